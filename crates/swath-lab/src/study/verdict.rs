//! Verdicts, and how one follows from figures: the paper's number or range, the
//! tolerance stated before the run, and the interval that was measured.

use serde::{Deserialize, Serialize};

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

    pub(crate) fn slack(self) -> f64 {
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
    pub(crate) fn is_number(&self) -> bool {
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
