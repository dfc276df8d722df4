//! The paper's claims beside what was measured.
//!
//! Whether a [`Claim`] holds is never set by hand. It follows from the paper's
//! figure, the measured one and a stated [`Tolerance`]; a file in which the
//! three disagree is refused when it is read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::study::results::ResultError;

/// One statement of the paper beside what was measured. Built only by the
/// constructors, which judge it; read from JSON only if the file's judgement
/// is the one that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ClaimFields", into = "ClaimFields")]
pub struct Claim {
    fields: ClaimFields,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFields {
    #[serde(rename = "where")]
    place: String,
    says: String,
    paper: PaperFigure,
    measured: f64,
    #[serde(default, skip_serializing_if = "Unit::is_number")]
    unit: Unit,
    tolerance: Tolerance,
    holds: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cause: String,
}

/// The figure that the paper gives: a number, or the two ends of a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PaperFigure {
    /// A number.
    Value(f64),
    /// From the first to the second, both included.
    Range(f64, f64),
}

/// How a claim's figures are shown to a reader. The stored numbers stay as
/// they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A plain number; what it counts stands in the claim's words.
    #[default]
    Number,
    /// A share of one, shown in per cent: 0.22 is 22 %.
    Share,
    /// A ratio of two quantities, shown with a times sign: 2 is 2×.
    Ratio,
}

/// When a claim holds, given the paper's figure p and the measured m. All
/// comparisons are of 64-bit floating-point numbers, without further slack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// m ≥ p − slack; the slack is in the figures' unit.
    AtLeast(f64),
    /// m ≤ p + slack; the slack is in the figures' unit.
    AtMost(f64),
    /// |m − p| ≤ fraction × |p|.
    Relative(f64),
    /// |m − p| ≤ difference, which is in the figures' unit.
    Absolute(f64),
    /// m = p.
    Exactly,
    /// low − slack ≤ m ≤ high + slack, where the paper gives low and high.
    Between(f64),
}

/// What is wrong with a claim.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ClaimFault {
    /// The paper's figure is infinite, not a number, or a reversed range.
    #[error("the paper's figure is not a finite number or range")]
    Paper,
    /// The measured figure is infinite or not a number.
    #[error("the measured figure is {0}, not a finite number")]
    Measured(f64),
    /// The tolerance is negative, infinite or not a number.
    #[error("the tolerance {0} is not a finite number of at least 0")]
    Tolerance(f64),
    /// A range was judged by a tolerance for numbers or the other way round.
    #[error("a range needs the tolerance \"between\", and a number one of the others")]
    Kind,
    /// The stored judgement is not the one that follows from the figures.
    #[error("it is stored as holds = {0}, which does not follow from its figures")]
    Judgement(bool),
}

impl Claim {
    /// The paper says "at least `paper`"; it holds down to `paper − slack`.
    pub fn at_least(place: &str, says: &str, paper: f64, measured: f64, slack: f64) -> Self {
        let paper = PaperFigure::Value(paper);
        Self::judged(place, says, paper, measured, Tolerance::AtLeast(slack))
    }

    /// The paper says "at most `paper`"; it holds up to `paper + slack`.
    pub fn at_most(place: &str, says: &str, paper: f64, measured: f64, slack: f64) -> Self {
        let paper = PaperFigure::Value(paper);
        Self::judged(place, says, paper, measured, Tolerance::AtMost(slack))
    }

    /// The paper gives `paper`; it holds within this fraction of it.
    pub fn about(place: &str, says: &str, paper: f64, measured: f64, fraction: f64) -> Self {
        let paper = PaperFigure::Value(paper);
        Self::judged(place, says, paper, measured, Tolerance::Relative(fraction))
    }

    /// The paper gives `paper`; it holds within this difference, which is in
    /// the figures' unit.
    pub fn within(place: &str, says: &str, paper: f64, measured: f64, difference: f64) -> Self {
        let paper = PaperFigure::Value(paper);
        Self::judged(place, says, paper, measured, Tolerance::Absolute(difference))
    }

    /// The paper gives `paper`, and only this number will do.
    pub fn exactly(place: &str, says: &str, paper: f64, measured: f64) -> Self {
        let paper = PaperFigure::Value(paper);
        Self::judged(place, says, paper, measured, Tolerance::Exactly)
    }

    /// The paper gives the range `(low, high)`; it holds inside it and up to
    /// `slack` outside.
    pub fn between(place: &str, says: &str, paper: (f64, f64), measured: f64, slack: f64) -> Self {
        let paper = PaperFigure::Range(paper.0, paper.1);
        Self::judged(place, says, paper, measured, Tolerance::Between(slack))
    }

    fn judged(
        place: &str,
        says: &str,
        paper: PaperFigure,
        measured: f64,
        tolerance: Tolerance,
    ) -> Self {
        let fields = ClaimFields {
            place: place.to_owned(),
            says: says.to_owned(),
            paper,
            measured,
            unit: Unit::Number,
            tolerance,
            holds: tolerance.holds(paper, measured),
            cause: String::new(),
        };
        Self { fields }
    }

    /// The same claim with its figures shown in `unit`.
    #[must_use]
    pub fn with_unit(mut self, unit: Unit) -> Self {
        self.fields.unit = unit;
        self
    }

    /// The same claim with the known cause of what was measured: why it does
    /// not hold, or by what it holds.
    #[must_use]
    pub fn with_cause(mut self, cause: &str) -> Self {
        cause.clone_into(&mut self.fields.cause);
        self
    }

    /// Where the paper says it: section, figure or table.
    pub fn place(&self) -> &str {
        &self.fields.place
    }

    /// What the paper says, in words.
    pub fn says(&self) -> &str {
        &self.fields.says
    }

    /// The paper's figure.
    pub fn paper(&self) -> PaperFigure {
        self.fields.paper
    }

    /// The measured figure.
    pub fn measured(&self) -> f64 {
        self.fields.measured
    }

    /// How the figures are shown.
    pub fn unit(&self) -> Unit {
        self.fields.unit
    }

    /// When it holds.
    pub fn tolerance(&self) -> Tolerance {
        self.fields.tolerance
    }

    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.fields.holds
    }

    /// The known cause, or an empty text.
    pub fn cause(&self) -> &str {
        &self.fields.cause
    }

    pub(crate) fn check(&self) -> Result<(), ResultError> {
        self.fields.check()
    }
}

impl ClaimFields {
    fn check(&self) -> Result<(), ResultError> {
        let usable = match self.paper {
            PaperFigure::Value(value) => value.is_finite(),
            PaperFigure::Range(low, high) => low.is_finite() && high.is_finite() && low <= high,
        };
        let slack = self.tolerance.slack();
        let range = matches!(self.paper, PaperFigure::Range(..));
        let what = if !usable {
            ClaimFault::Paper
        } else if !self.measured.is_finite() {
            ClaimFault::Measured(self.measured)
        } else if !(slack.is_finite() && slack >= 0.0) {
            ClaimFault::Tolerance(slack)
        } else if range != matches!(self.tolerance, Tolerance::Between(_)) {
            ClaimFault::Kind
        } else if self.holds != self.tolerance.holds(self.paper, self.measured) {
            ClaimFault::Judgement(self.holds)
        } else {
            return Ok(());
        };
        Err(ResultError::Claim { place: self.place.clone(), says: self.says.clone(), what })
    }
}

impl TryFrom<ClaimFields> for Claim {
    type Error = ResultError;

    fn try_from(fields: ClaimFields) -> Result<Self, ResultError> {
        fields.check()?;
        Ok(Self { fields })
    }
}

impl From<Claim> for ClaimFields {
    fn from(claim: Claim) -> Self {
        claim.fields
    }
}

impl Tolerance {
    /// Whether a claim with the figure `paper` holds for `measured`. A range
    /// is judged by [`Tolerance::Between`] only, a number by the others; what
    /// does not fit, or is not a number, does not hold.
    pub fn holds(self, paper: PaperFigure, measured: f64) -> bool {
        match (self, paper) {
            (Self::AtLeast(slack), PaperFigure::Value(value)) => measured >= value - slack,
            (Self::AtMost(slack), PaperFigure::Value(value)) => measured <= value + slack,
            (Self::Relative(fraction), PaperFigure::Value(value)) => {
                (measured - value).abs() <= fraction * value.abs()
            }
            (Self::Absolute(difference), PaperFigure::Value(value)) => {
                (measured - value).abs() <= difference
            }
            (Self::Exactly, PaperFigure::Value(value)) => measured == value,
            (Self::Between(slack), PaperFigure::Range(low, high)) => {
                low - slack <= measured && measured <= high + slack
            }
            (Self::Between(_), PaperFigure::Value(_)) | (_, PaperFigure::Range(..)) => false,
        }
    }

    fn slack(self) -> f64 {
        match self {
            Self::AtLeast(slack)
            | Self::AtMost(slack)
            | Self::Relative(slack)
            | Self::Absolute(slack)
            | Self::Between(slack) => slack,
            Self::Exactly => 0.0,
        }
    }

    /// The tolerance in a few words, with its figures shown in `unit`.
    pub fn describe(self, unit: Unit) -> String {
        // A share of a share and a difference of two are both in per cent; the
        // latter is said in points.
        let show = |slack: f64| match unit {
            Unit::Share => format!("{} points", short(slack * 100.0)),
            Unit::Number | Unit::Ratio => unit.show(slack),
        };
        let or_plain = |words: &str, sign: &str, slack: f64| {
            if slack == 0.0 { words.to_owned() } else { format!("{words}, {sign}{}", show(slack)) }
        };
        match self {
            Self::AtLeast(slack) => or_plain("at least", "−", slack),
            Self::AtMost(slack) => or_plain("at most", "+", slack),
            Self::Relative(fraction) => format!("about, ±{} of it", Unit::Share.show(fraction)),
            Self::Absolute(difference) => format!("about, ±{}", show(difference)),
            Self::Exactly => "exactly".to_owned(),
            Self::Between(slack) => or_plain("between", "±", slack),
        }
    }
}

impl Unit {
    fn is_number(&self) -> bool {
        *self == Self::Number
    }

    /// `value` as a reader wants it: four significant digits, and the unit's
    /// sign after it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Number => short(value),
            Self::Share => format!("{} %", short(value * 100.0)),
            Self::Ratio => format!("{}×", short(value)),
        }
    }
}

impl PaperFigure {
    /// The figure as a reader wants it, in `unit`.
    pub fn show(self, unit: Unit) -> String {
        match self {
            Self::Value(value) => unit.show(value),
            Self::Range(low, high) => format!("{} to {}", unit.show(low), unit.show(high)),
        }
    }
}

/// Four significant digits without trailing zeros; whole numbers in full.
fn short(value: f64) -> String {
    // No negative zero.
    let value = value + 0.0;
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}").replace('-', "−");
    }
    if value.abs() >= 1e15 || (value != 0.0 && value.abs() < 1e-4) {
        return format!("{value:.3e}").replace('-', "−");
    }
    #[expect(clippy::cast_possible_truncation, reason = "between -4 and 15 by the branch above")]
    let whole_digits = value.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(4 - whole_digits).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.replace('-', "−")
}

impl fmt::Display for Claim {
    /// One line for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit();
        write!(
            f,
            "{} {}: {} (paper {}, {}; measured {})",
            if self.holds() { "✔ holds" } else { "✘ differs" },
            self.place(),
            self.says(),
            self.paper().show(unit),
            self.tolerance().describe(unit),
            unit.show(self.measured()),
        )
    }
}
