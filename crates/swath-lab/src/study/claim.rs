//! The papers' claims beside what was measured.
//!
//! A study lists its [`Statement`]s before anything runs: what the paper says
//! and under which conditions, its figure, a tolerance from the paper's own
//! precision, and how the figure is selected from what the study measures.
//! After the run each becomes a [`Claim`] with a [`Verdict`] and a reason.
//! A verdict is never set by hand: it follows from the numbers, and a file in
//! which the two disagree is refused when it is read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::study::grid::{Evidence, Missing};

/// The judgement on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The 95% interval lies inside the tolerance.
    Holds,
    /// The interval lies outside.
    Differs,
    /// The interval crosses the bound, or there is none.
    Undecided,
    /// The selection is empty.
    NotMeasured,
    /// The machine or load is another than the paper's.
    NotComparable,
    /// It could not fail by construction, so it does not count.
    Identity,
}

impl Verdict {
    /// Every verdict, in the order in which they are counted.
    pub const ALL: [Self; 6] = [
        Self::Holds,
        Self::Differs,
        Self::Undecided,
        Self::NotMeasured,
        Self::NotComparable,
        Self::Identity,
    ];

    /// Its name as a reader sees it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
            Self::NotComparable => "not comparable",
            Self::Identity => "identity",
        }
    }
}

/// A statement of a paper, and how it is measured: `F` is what the study finds.
pub struct Statement<F> {
    fields: ClaimFields,
    host: bool,
    evidence: Option<Selector<F>>,
}

type Selector<F> = Box<dyn Fn(&F) -> Result<Evidence, Missing>>;

/// One statement of the paper beside what was measured. Built only by
/// [`Statement::judge`]; read from JSON only if the file's verdict is the one
/// that follows.
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
    #[serde(default)]
    measured: Option<f64>,
    #[serde(default)]
    n: u32,
    #[serde(default)]
    interval: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Unit::is_number")]
    unit: Unit,
    tolerance: Tolerance,
    verdict: Verdict,
    /// The reason why it is not measured, not comparable or an identity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cause: String,
    /// Selections that the measured number comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    source: String,
    /// True for a worked example of the paper, which is counted apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    example: bool,
    /// True if a parameter was fitted after the paper's figure was known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    fitted: String,
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

/// The form in which a claim's figures are shown to a reader. The stored
/// numbers stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A plain number; the claim's words say what it counts.
    #[default]
    Number,
    /// A share of one, shown in per cent: 0.22 is 22 %.
    Share,
    /// A ratio of two quantities, shown with a times sign: 2 is 2×.
    Ratio,
}

/// The numbers that agree with the paper's figure p. All comparisons are of
/// 64-bit floating-point numbers, without further slack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// p − slack and above; the slack is in the figures' unit.
    AtLeast(f64),
    /// p + slack and below; the slack is in the figures' unit.
    AtMost(f64),
    /// Within fraction × |p| of p.
    Relative(f64),
    /// Within a difference of p, which is in the figures' unit.
    Absolute(f64),
    /// p alone.
    Exactly,
    /// low − slack to high + slack, where the paper gives low and high.
    Between(f64),
}

/// Reasons why a claim cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ClaimFault {
    /// The paper's figure is infinite, not a number, or a reversed range.
    #[error("the paper's figure is not a finite number or range")]
    Paper,
    /// The measured figure or its interval is infinite or not a number.
    #[error("the measured figure is {0}, not a finite number")]
    Measured(f64),
    /// The tolerance is negative, infinite or not a number.
    #[error("the tolerance {0} is not a finite number of at least 0")]
    Tolerance(f64),
    /// A range was judged by a tolerance for numbers or the other way round.
    #[error("a range needs the tolerance \"between\", and a number one of the others")]
    Kind,
    /// The stored verdict is not the one that follows from the figures.
    #[error("it is stored as {stored:?}, but {follows:?} follows from its figures")]
    Verdict {
        /// The verdict in the file.
        stored: Verdict,
        /// The verdict of its numbers.
        follows: Verdict,
    },
    /// The same measured number is said to be of two subjects.
    #[error("its number, {0}, is also that of another claim with another figure of the paper")]
    Shared(f64),
}

/// An error in a claim, and the claim.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("claim at {place:?} ({says:?}): {what}")]
pub struct ClaimError {
    /// The section, figure or table of the paper.
    pub place: String,
    /// The statement in words.
    pub says: String,
    /// The fault.
    pub what: ClaimFault,
}

/// Conditions that the paper states, beside those of the plan.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    differing: Vec<String>,
}

impl Conditions {
    /// No condition.
    pub fn new() -> Self {
        Self::default()
    }

    /// A condition of which the paper states `paper` and the plan has `here`.
    #[must_use]
    pub fn same<T: PartialEq + fmt::Display>(mut self, name: &str, paper: T, here: T) -> Self {
        if paper != here {
            self.differing.push(format!("{name}: {here} here, {paper} in the paper"));
        }
        self
    }

    /// A condition that is met or not; `otherwise` says what is here instead.
    #[must_use]
    pub fn met(mut self, met: bool, otherwise: &str) -> Self {
        if !met {
            self.differing.push(otherwise.to_owned());
        }
        self
    }
}

impl<F> Statement<F> {
    fn new(place: &str, says: &str, paper: PaperFigure, tolerance: Tolerance) -> Self {
        let fields = ClaimFields {
            place: place.to_owned(),
            says: says.to_owned(),
            paper,
            measured: None,
            n: 0,
            interval: None,
            unit: Unit::Number,
            tolerance,
            verdict: Verdict::NotMeasured,
            reason: String::new(),
            cause: String::new(),
            source: String::new(),
            example: false,
            fitted: String::new(),
        };
        Self { fields, host: false, evidence: None }
    }

    /// The paper says "at least `paper`"; it holds down to `paper − slack`.
    pub fn at_least(place: &str, says: &str, paper: f64, slack: f64) -> Self {
        Self::new(place, says, PaperFigure::Value(paper), Tolerance::AtLeast(slack))
    }

    /// The paper says "at most `paper`"; it holds up to `paper + slack`.
    pub fn at_most(place: &str, says: &str, paper: f64, slack: f64) -> Self {
        Self::new(place, says, PaperFigure::Value(paper), Tolerance::AtMost(slack))
    }

    /// The paper gives `paper`; it holds within this fraction of it.
    pub fn about(place: &str, says: &str, paper: f64, fraction: f64) -> Self {
        Self::new(place, says, PaperFigure::Value(paper), Tolerance::Relative(fraction))
    }

    /// The paper gives `paper`; it holds within this difference, which is in
    /// the figures' unit.
    pub fn within(place: &str, says: &str, paper: f64, difference: f64) -> Self {
        Self::new(place, says, PaperFigure::Value(paper), Tolerance::Absolute(difference))
    }

    /// The paper gives `paper`, and only this number will do.
    pub fn exactly(place: &str, says: &str, paper: f64) -> Self {
        Self::new(place, says, PaperFigure::Value(paper), Tolerance::Exactly)
    }

    /// The paper gives the range `(low, high)`; it holds inside it and up to
    /// `slack` outside.
    pub fn between(place: &str, says: &str, paper: (f64, f64), slack: f64) -> Self {
        Self::new(place, says, PaperFigure::Range(paper.0, paper.1), Tolerance::Between(slack))
    }

    /// Shows the figures in `unit`.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Self {
        self.fields.unit = unit;
        self
    }

    /// Gives the known cause, for the reader of a claim that does not hold.
    #[must_use]
    pub fn cause(mut self, cause: &str) -> Self {
        cause.clone_into(&mut self.fields.cause);
        self
    }

    /// States the paper's machine and load. Where the plan has another, the
    /// claim is not comparable, whatever was measured.
    #[must_use]
    pub fn under(mut self, conditions: &Conditions) -> Self {
        if !conditions.differing.is_empty() {
            self.fields.reason = conditions.differing.join("; ");
            self.fields.verdict = Verdict::NotComparable;
        }
        self
    }

    /// Says that the number could not have been another, and why: it is shown
    /// but does not count.
    #[must_use]
    pub fn identity(mut self, why: &str) -> Self {
        why.clone_into(&mut self.fields.reason);
        self.fields.verdict = Verdict::Identity;
        self
    }

    /// Says which parameter was chosen after the paper's figure was known.
    #[must_use]
    pub fn fitted(mut self, parameter: &str) -> Self {
        parameter.clone_into(&mut self.fields.fitted);
        self
    }

    /// A worked example of the paper, which is counted apart from its claims.
    #[must_use]
    pub fn example(mut self) -> Self {
        self.fields.example = true;
        self
    }

    /// Measured on the machine that runs the study.
    #[must_use]
    pub fn on_host(mut self) -> Self {
        self.host = true;
        self
    }

    /// Selects the measured number from what the study found.
    #[must_use]
    pub fn measured(
        mut self,
        evidence: impl Fn(&F) -> Result<Evidence, Missing> + 'static,
    ) -> Self {
        self.evidence = Some(Box::new(evidence));
        self
    }

    /// Returns true if it is measured on the machine that runs the study.
    pub const fn is_on_host(&self) -> bool {
        self.host
    }

    /// Place and words, and the reason if no run of the plan can be compared.
    pub fn describe(&self) -> (String, Option<String>) {
        let incomparable = self.fields.verdict == Verdict::NotComparable;
        let words = format!("{}: {}", self.fields.place, self.fields.says);
        (words, incomparable.then(|| self.fields.reason.clone()))
    }

    /// The claim, with the verdict that follows from what was found.
    pub fn judge(self, found: &F) -> Claim {
        let mut fields = self.fields;
        let none = || Missing { axis: "all".to_owned(), lacks: "measurement".to_owned() };
        match self.evidence.map_or_else(|| Err(none()), |select| select(found)) {
            Ok(evidence) => {
                let estimate = evidence.estimate();
                fields.measured = Some(estimate.value);
                fields.n = estimate.n;
                fields.interval = estimate.interval;
                evidence.source().clone_into(&mut fields.source);
            }
            Err(missing) => {
                if fields.reason.is_empty() {
                    fields.reason = missing.to_string();
                }
            }
        }
        fields.verdict = fields.follows();
        if fields.verdict == Verdict::Holds {
            fields.cause.clear();
        }
        Claim { fields }
    }
}

impl Claim {
    /// The place in the paper: section, figure or table.
    pub fn place(&self) -> &str {
        &self.fields.place
    }

    /// The paper's statement, in words.
    pub fn says(&self) -> &str {
        &self.fields.says
    }

    /// The paper's figure.
    pub const fn paper(&self) -> PaperFigure {
        self.fields.paper
    }

    /// The measured figure, if there is one.
    pub const fn measured(&self) -> Option<f64> {
        self.fields.measured
    }

    /// Number of seeds.
    pub const fn n(&self) -> u32 {
        self.fields.n
    }

    /// The 95% interval, if there is one.
    pub const fn interval(&self) -> Option<(f64, f64)> {
        self.fields.interval
    }

    /// The form in which the figures are shown.
    pub const fn unit(&self) -> Unit {
        self.fields.unit
    }

    /// The numbers that agree with the paper's.
    pub const fn tolerance(&self) -> Tolerance {
        self.fields.tolerance
    }

    /// The judgement.
    pub const fn verdict(&self) -> Verdict {
        self.fields.verdict
    }

    /// Returns true if the claim holds.
    pub fn holds(&self) -> bool {
        self.fields.verdict == Verdict::Holds
    }

    /// The reason of a verdict other than holds and differs, in words.
    pub fn reason(&self) -> String {
        match self.fields.verdict {
            Verdict::Undecided if self.fields.interval.is_none() => {
                "one seed has no interval".to_owned()
            }
            Verdict::Undecided => "the interval crosses the bound".to_owned(),
            _ => self.fields.reason.clone(),
        }
    }

    /// The known cause, or an empty text.
    pub fn cause(&self) -> &str {
        &self.fields.cause
    }

    /// The parameter that was chosen after looking, or an empty text.
    pub fn fitted(&self) -> &str {
        &self.fields.fitted
    }

    /// Returns true for a worked example, which is counted apart.
    pub const fn is_example(&self) -> bool {
        self.fields.example
    }

    pub(crate) fn check(&self) -> Result<(), ClaimError> {
        self.fields.check()
    }

    /// An error if this claim and another are made from one number: the same
    /// selections and value, but another figure of the paper.
    pub(crate) fn check_apart(&self, other: &Self) -> Result<(), ClaimError> {
        let (one, two) = (&self.fields, &other.fields);
        let Some(measured) = one.measured else { return Ok(()) };
        let same = one.measured == two.measured && one.source == two.source;
        if same && !one.source.is_empty() && one.paper != two.paper {
            return Err(one.error(ClaimFault::Shared(measured)));
        }
        Ok(())
    }
}

impl ClaimFields {
    fn error(&self, what: ClaimFault) -> ClaimError {
        ClaimError { place: self.place.clone(), says: self.says.clone(), what }
    }

    /// The verdict of the numbers.
    fn follows(&self) -> Verdict {
        match (self.verdict, self.measured, self.interval) {
            (Verdict::NotComparable, ..) => Verdict::NotComparable,
            (_, None, _) => Verdict::NotMeasured,
            (Verdict::Identity, ..) => Verdict::Identity,
            (_, Some(_), None) => Verdict::Undecided,
            (_, Some(_), Some(interval)) => self.tolerance.verdict(self.paper, interval),
        }
    }

    fn check(&self) -> Result<(), ClaimError> {
        let usable = match self.paper {
            PaperFigure::Value(value) => value.is_finite(),
            PaperFigure::Range(low, high) => low.is_finite() && high.is_finite() && low <= high,
        };
        let slack = self.tolerance.slack();
        let range = matches!(self.paper, PaperFigure::Range(..));
        let ends = self.interval.map(|(low, high)| [low, high]);
        let numbers = self.measured.into_iter().chain(ends.into_iter().flatten());
        let infinite = numbers.into_iter().find(|number| !number.is_finite());
        let follows = self.follows();
        let what = if !usable {
            ClaimFault::Paper
        } else if let Some(number) = infinite {
            ClaimFault::Measured(number)
        } else if !(slack.is_finite() && slack >= 0.0) {
            ClaimFault::Tolerance(slack)
        } else if range != matches!(self.tolerance, Tolerance::Between(_)) {
            ClaimFault::Kind
        } else if self.verdict != follows {
            ClaimFault::Verdict { stored: self.verdict, follows }
        } else {
            return Ok(());
        };
        Err(self.error(what))
    }
}

impl TryFrom<ClaimFields> for Claim {
    type Error = ClaimError;

    fn try_from(fields: ClaimFields) -> Result<Self, ClaimError> {
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
    /// The numbers that agree with `paper`, from the first to the second. A
    /// range is judged by [`Tolerance::Between`] only and a number by the
    /// others; nothing agrees otherwise.
    pub fn range(self, paper: PaperFigure) -> Option<(f64, f64)> {
        let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
        match (self, paper) {
            (Self::AtLeast(slack), PaperFigure::Value(value)) => Some((value - slack, most)),
            (Self::AtMost(slack), PaperFigure::Value(value)) => Some((least, value + slack)),
            (Self::Relative(fraction), PaperFigure::Value(value)) => {
                let slack = fraction * value.abs();
                Some((value - slack, value + slack))
            }
            (Self::Absolute(slack), PaperFigure::Value(value)) => {
                Some((value - slack, value + slack))
            }
            (Self::Exactly, PaperFigure::Value(value)) => Some((value, value)),
            (Self::Between(slack), PaperFigure::Range(low, high)) => {
                Some((low - slack, high + slack))
            }
            (Self::Between(_), PaperFigure::Value(_)) | (_, PaperFigure::Range(..)) => None,
        }
    }

    /// The verdict on an interval: holds if it lies inside, differs if it lies
    /// outside, undecided if it crosses a bound.
    pub fn verdict(self, paper: PaperFigure, (low, high): (f64, f64)) -> Verdict {
        match self.range(paper) {
            Some((least, most)) if least <= low && high <= most => Verdict::Holds,
            Some((least, most)) if low <= most && least <= high => Verdict::Undecided,
            _ => Verdict::Differs,
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

/// Verdicts of many claims, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; Verdict::ALL.len()],
    /// Worked examples that come out, and all of them.
    pub examples: (u64, u64),
}

impl Tally {
    /// Counts claims; worked examples apart.
    pub fn of<'c>(claims: impl IntoIterator<Item = &'c Claim>) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            if claim.is_example() {
                tally.examples.0 += u64::from(claim.holds());
                tally.examples.1 += 1;
            } else {
                tally.counts[claim.verdict() as usize] += 1;
            }
        }
        tally
    }

    /// Number of claims with this verdict.
    pub const fn count(&self, verdict: Verdict) -> u64 {
        self.counts[verdict as usize]
    }

    /// Number of claims on which there could be a verdict: all but identities
    /// and those of another machine or load.
    pub const fn comparable(&self) -> u64 {
        self.count(Verdict::Holds)
            + self.count(Verdict::Differs)
            + self.count(Verdict::Undecided)
            + self.count(Verdict::NotMeasured)
    }
}

impl Tally {
    /// The counts by verdict, and the worked examples.
    pub fn to_json(&self) -> serde_json::Value {
        let counts = Verdict::ALL
            .iter()
            .map(|verdict| (verdict.title().replace(' ', "-"), self.count(*verdict).into()));
        let mut json: serde_json::Map<_, _> = counts.collect();
        let (held, of) = self.examples;
        json.insert("examples".to_owned(), serde_json::json!({ "hold": held, "of": of }));
        json.into()
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut sum = self;
        sum.counts.iter_mut().zip(other.counts).for_each(|(one, two)| *one += two);
        sum.examples.0 += other.examples.0;
        sum.examples.1 += other.examples.1;
        sum
    }
}

impl fmt::Display for Tally {
    /// In one line: "8 of 10 claims hold, 1 differs, 1 undecided".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, of) = self.examples;
        let claims = self.counts.iter().sum::<u64>();
        if claims > 0 {
            let (holds, comparable) = (self.count(Verdict::Holds), self.comparable());
            let noun = if comparable == 1 { "claim holds" } else { "claims hold" };
            write!(f, "{holds} of {comparable} {noun}")?;
            for verdict in &Verdict::ALL[1..] {
                match self.count(*verdict) {
                    0 => {}
                    n => write!(f, ", {n} {}", verdict.title())?,
                }
            }
        }
        match (claims, of) {
            (0, 0) => write!(f, "no claims"),
            (_, 0) => Ok(()),
            (0, _) => write!(f, "{held} of {of} worked examples hold"),
            _ => write!(f, "; {held} of {of} worked examples hold"),
        }
    }
}

impl fmt::Display for Claim {
    /// One line for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit();
        write!(
            f,
            "{}: {}: {} (paper {}, {}; measured {})",
            self.verdict().title(),
            self.place(),
            self.says(),
            self.paper().show(unit),
            self.tolerance().describe(unit),
            self.measured().map_or_else(|| self.reason(), |value| unit.show(value)),
        )
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::study::grid::{Grid, metrics};

    fn grid(values: &[f64]) -> Grid {
        let mut grid = Grid::new(&["design"], values.len());
        let runs: Vec<_> = values.iter().map(|&value| metrics([("rate", value)])).collect();
        grid.add(vec!["PBS".into()], &runs);
        grid
    }

    fn rate(statement: Statement<Grid>, design: &'static str) -> Statement<Grid> {
        statement.measured(move |grid: &Grid| {
            grid.evidence(|view| view.select().is("design", design).one("rate"))
        })
    }

    fn verdict(values: &[f64]) -> Verdict {
        let statement = rate(Statement::at_least("Fig. 1", "at least 10", 10.0, 0.0), "PBS");
        statement.judge(&grid(values)).verdict()
    }

    #[test]
    fn an_interval_inside_outside_and_across_the_bound() {
        assert_eq!(verdict(&[11.0, 11.1, 11.2]), Verdict::Holds);
        assert_eq!(verdict(&[9.0, 9.1, 9.2]), Verdict::Differs);
        assert_eq!(verdict(&[9.0, 11.0, 10.5]), Verdict::Undecided);
        assert_eq!(verdict(&[12.0]), Verdict::Undecided);
    }

    #[test]
    fn nothing_is_claimed_over_nothing() {
        let statement = rate(Statement::at_most("Fig. 1", "at most 10", 10.0, 0.0), "AT");
        let claim = statement.judge(&grid(&[1.0, 1.0]));
        assert_eq!((claim.verdict(), claim.measured()), (Verdict::NotMeasured, None));
        assert_eq!(claim.reason(), "axis design: no AT");
        let unmeasured = Statement::at_most("Fig. 1", "at most 10", 10.0, 0.0);
        assert_eq!(unmeasured.judge(&grid(&[1.0])).verdict(), Verdict::NotMeasured);
    }

    #[test]
    fn another_machine_is_not_comparable_whatever_was_measured() {
        for (values, entries) in [(&[11.0, 11.0][..], 64), (&[9.0, 9.0], 64)] {
            let conditions = Conditions::new().same("TLB entries", 32, entries);
            let statement = Statement::at_least("Fig. 1", "at least 10", 10.0, 0.0);
            let claim = rate(statement.under(&conditions), "PBS").judge(&grid(values));
            assert_eq!(claim.verdict(), Verdict::NotComparable);
            assert_eq!(claim.reason(), "TLB entries: 64 here, 32 in the paper");
        }
    }

    #[test]
    fn a_file_with_another_verdict_is_refused() {
        let statement = rate(Statement::at_least("Fig. 1", "at least 10", 10.0, 0.0), "PBS");
        let claim = statement.judge(&grid(&[9.0, 9.0]));
        let json = serde_json::to_string(&claim).unwrap();
        assert_eq!(serde_json::from_str::<Claim>(&json).unwrap(), claim);
        let forged = json.replace("differs", "holds");
        assert!(serde_json::from_str::<Claim>(&forged).is_err());
    }

    #[test]
    fn one_number_serves_one_claim() {
        let claim = |paper| {
            rate(Statement::at_least("p", "s", paper, 0.0), "PBS").judge(&grid(&[11.0, 11.0]))
        };
        assert!(claim(10.0).check_apart(&claim(10.0)).is_ok());
        assert!(claim(10.0).check_apart(&claim(9.0)).is_err());
    }

    #[test]
    fn tallies_count_examples_and_identities_apart() {
        let claim = |statement: Statement<Grid>| rate(statement, "PBS").judge(&grid(&[11.0, 11.0]));
        let of = || Statement::at_least("p", "s", 10.0, 0.0);
        let all = [claim(of()), claim(of().example()), claim(of().identity("2 x 64 x 256"))];
        let tally = Tally::of(&all);
        assert_eq!((tally.comparable(), tally.examples), (1, (1, 1)));
        assert_eq!(
            tally.to_string(),
            "1 of 1 claim holds, 1 identity; 1 of 1 worked examples hold"
        );
        assert_eq!(Tally::default().to_string(), "no claims");
    }
}
