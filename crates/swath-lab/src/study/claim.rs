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
use crate::study::verdict::{PaperFigure, Tolerance, Unit, Verdict};

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

    /// Selections that the measured number comes from, or an empty text.
    pub(crate) fn source(&self) -> &str {
        &self.fields.source
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
}
