//! Finds what changed between two reports beyond what other seeds would change.
//!
//! Each number of both that has an interval is tested by Student's test for two samples:
//! where nothing changed, both come from one distribution, whatever the seeds. Holm's
//! step-down procedure bounds the chance that any number of the whole comparison is called
//! changed where none did by [`FAMILY_ALPHA`]. Few seeds that all gave one value are no proof
//! that others would: such a point is held to have the largest spread of its series, and only a
//! series that has none anywhere is taken to depend on no seed. A number without an interval is
//! judged, by equality, only where both runs have the same seed or nothing depends on one: the
//! same plan and seed give the same bytes. What was measured on a machine (`host.json`) differs
//! from run to run by more than its interval and is not compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::report::compare::error::CompareError;
use crate::report::write::{RESULTS_FILE, find_studies, read_results};
use crate::study::estimate::Estimate;
use crate::study::results::{Claim, Place, Point, Series, StudyResult, Unit, Verdict};

/// The most that any number is called changed by chance, over all numbers of a comparison.
pub const FAMILY_ALPHA: f64 = 0.001;

/// What changed from one report to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Number of numbers that were judged.
    pub judged: usize,
    /// Number of numbers in both that were not: without an interval, under another seed.
    pub unjudged: usize,
    /// Studies in both, in the order of the first report.
    pub studies: Vec<StudyChanges>,
    /// Names of the studies in the first alone.
    pub only_a: Vec<String>,
    /// Names of the studies in the second alone.
    pub only_b: Vec<String>,
}

/// What changed in one study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyChanges {
    /// The study's name.
    pub study: String,
    /// Its title.
    pub title: String,
    /// Keys of the plan, seed and form that differ.
    pub plan: Vec<KeyChange>,
    /// Numbers that changed beyond their intervals, in the order of the report.
    pub changes: Vec<Change>,
    /// Figures, series, points and claims in one alone, in words.
    pub lone: Vec<Lone>,
    /// Claims whose verdict is another although their number did not change.
    pub verdicts: Vec<VerdictChange>,
}

/// A key of the plan with two values; none where a plan lacks it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyChange {
    /// The key, with dots.
    pub key: String,
    /// Its value in the first.
    pub a: Option<serde_json::Value>,
    /// Its value in the second.
    pub b: Option<serde_json::Value>,
}

/// A number that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The number's place.
    #[serde(flatten)]
    pub subject: Subject,
    /// The form in which it is shown.
    pub unit: Unit,
    /// The number in the first.
    pub a: Estimate,
    /// The number in the second.
    pub b: Estimate,
    /// The chance of such a difference, or a larger one, if nothing had changed.
    pub p: f64,
}

impl Change {
    /// The difference as a share of the first number; none of 0.
    pub fn relative(&self) -> Option<f64> {
        let share = (self.b.value - self.a.value) / self.a.value.abs();
        share.is_finite().then_some(share)
    }
}

/// The place of a number in a study's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Subject {
    /// A point of a figure.
    Point {
        /// The figure's id.
        figure: String,
        /// The series' design.
        design: String,
        /// The place on the x axis.
        x: Place,
    },
    /// A claim's measured number.
    Claim {
        /// The place in the paper.
        place: String,
        /// The statement.
        says: String,
    },
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Point { figure, design, x: Place::At(x) } => {
                write!(f, "{figure}: {design} at {}", Unit::Number.show(*x))
            }
            Self::Point { figure, design, x: Place::In(category) } => {
                write!(f, "{figure}: {design}, {category}")
            }
            Self::Claim { place, says } => write!(f, "claim of {place}: {says}"),
        }
    }
}

/// A part of the results that one run has and the other has not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lone {
    /// The part in words.
    pub what: String,
    /// True if the first run has it.
    pub in_a: bool,
}

/// A claim with two verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictChange {
    /// The claim.
    #[serde(flatten)]
    pub subject: Subject,
    /// Its verdict in the first.
    pub a: Verdict,
    /// Its verdict in the second.
    pub b: Verdict,
}

impl Comparison {
    /// Number of numbers that changed, and of parts and studies that one run alone has.
    pub fn changed(&self) -> usize {
        let of = |study: &StudyChanges| study.changes.len() + study.lone.len();
        self.studies.iter().map(of).sum::<usize>() + self.only_a.len() + self.only_b.len()
    }
}

/// Compares the results in two folders, each a report's or a study's.
/// O(p log p + c) with p points and c claims in both.
///
/// # Errors
/// [`CompareError`]; a result that cannot be read is one, so that nothing is left out.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison, CompareError> {
    let (in_a, in_b) = (results_in(a)?, results_in(b)?);
    let names = |of: &[StudyResult]| -> BTreeSet<String> {
        of.iter().map(|one| one.study.clone()).collect()
    };
    let (names_a, names_b) = (names(&in_a), names(&in_b));
    if names_a.is_disjoint(&names_b) {
        return Err(CompareError::NothingInCommon { a: a.to_owned(), b: b.to_owned() });
    }
    let lone = |of: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
        of.difference(other).cloned().collect()
    };
    let mut comparison = compare_results(&in_a, &in_b);
    comparison.only_a = lone(&names_a, &names_b);
    comparison.only_b = lone(&names_b, &names_a);
    Ok(comparison)
}

/// The results in a folder; those of machines are not read into them.
fn results_in(path: &Path) -> Result<Vec<StudyResult>, CompareError> {
    if path.join(RESULTS_FILE).is_file() {
        return Ok(vec![read_results(path)?.result]);
    }
    let (found, left_out) = find_studies(path)?;
    if let Some(error) = left_out.into_iter().next() {
        return Err(error.into());
    }
    if found.is_empty() {
        return Err(CompareError::Empty { path: path.to_owned() });
    }
    Ok(found.into_iter().map(|one| one.result).collect())
}

/// One number of both runs, before it is known whether it changed.
struct Judged {
    study: usize,
    change: Change,
}

/// Compares the studies that are in both.
pub fn compare_results(a: &[StudyResult], b: &[StudyResult]) -> Comparison {
    let mut studies = Vec::new();
    let mut found = Found::default();
    for one in a {
        let Some(other) = b.iter().find(|other| other.study == one.study) else { continue };
        found.study = studies.len();
        found.is_exact = one.seed == other.seed || (one.n, other.n) == (0, 0);
        found.lone.clear();
        found.points(one, other);
        let claims = found.claims(one, other);
        studies.push(StudyChanges {
            study: one.study.clone(),
            title: one.title.clone(),
            plan: plan_changes(one, other),
            changes: Vec::new(),
            lone: std::mem::take(&mut found.lone),
            verdicts: claims,
        });
    }
    let Found { judged, unjudged, .. } = found;
    let count = judged.len();
    for Judged { study, change } in beyond_chance(judged, FAMILY_ALPHA) {
        let study: &mut StudyChanges = &mut studies[study];
        study.verdicts.retain(|claim| claim.subject != change.subject);
        study.changes.push(change);
    }
    Comparison { judged: count, unjudged, studies, only_a: Vec::new(), only_b: Vec::new() }
}

/// Those whose p is below Holm's bound, in the order given (Holm 1979, "A simple
/// sequentially rejective multiple test procedure"). O(m log m) with m numbers.
fn beyond_chance(judged: Vec<Judged>, alpha: f64) -> Vec<Judged> {
    let mut order: Vec<f64> = judged.iter().map(|one| one.change.p).collect();
    order.sort_by(f64::total_cmp);
    let count = order.len();
    let held = |&(nth, p): &(usize, f64)| p <= alpha / (count - nth) as f64;
    let bound = order.into_iter().enumerate().take_while(held).last().map(|(_, p)| p);
    let changed = |one: &Judged| bound.is_some_and(|bound| one.change.p <= bound);
    judged.into_iter().filter(changed).collect()
}

/// The spread over seeds of the points of one series.
#[derive(Clone, Copy, Default)]
struct Like {
    /// The largest variance of a point.
    variance: f64,
    /// True if three points or more have none, in neither run: they depend on no seed.
    is_steady: bool,
}

impl Like {
    fn of<'p>(pairs: impl ExactSizeIterator<Item = &'p (Estimate, Estimate)>) -> Self {
        let count = pairs.len();
        let variances = pairs.map(|(a, b)| a.pooled_variance(b));
        let variance = variances.flatten().fold(0.0, f64::max);
        Self { variance, is_steady: variance == 0.0 && count >= 3 }
    }
}

/// What is found while two runs are walked.
#[derive(Default)]
struct Found {
    study: usize,
    /// True if numbers without an interval must be equal.
    is_exact: bool,
    judged: Vec<Judged>,
    unjudged: usize,
    lone: Vec<Lone>,
}

impl Found {
    fn lone(&mut self, what: String, in_a: bool) {
        self.lone.push(Lone { what, in_a });
    }

    /// Judges one number of both, beside numbers of its kind.
    fn judge(&mut self, subject: Subject, unit: Unit, (a, b): (Estimate, Estimate), like: Like) {
        let equal = f64::from(a.value == b.value);
        let of_seeds = a.n.max(b.n) > 1;
        let is_steady = !(a.varies() || b.varies());
        let p = match (self.is_exact, of_seeds) {
            (true, false) => Some(equal),
            (false, false) => None,
            (is_exact, true) if is_steady && (is_exact || like.is_steady) => Some(equal),
            (_, true) => a.p_same(&b, like.variance),
        };
        match p {
            Some(p) => self
                .judged
                .push(Judged { study: self.study, change: Change { subject, unit, a, b, p } }),
            None => self.unjudged += 1,
        }
    }

    fn points(&mut self, a: &StudyResult, b: &StudyResult) {
        let key = |one: &Series| (one.figure.clone(), one.design.clone());
        let others: BTreeMap<_, &Series> = b.series.iter().map(|one| (key(one), one)).collect();
        let mine: BTreeSet<_> = a.series.iter().map(key).collect();
        for one in &a.series {
            match others.get(&key(one)) {
                Some(other) => self.series(one, other),
                None => self.lone(format!("{}: {}", one.figure, one.design), true),
            }
        }
        for one in b.series.iter().filter(|one| !mine.contains(&key(one))) {
            self.lone(format!("{}: {}", one.figure, one.design), false);
        }
    }

    fn series(&mut self, a: &Series, b: &Series) {
        let (in_a, in_b) = (by_place(&a.points), by_place(&b.points));
        let mut in_b: BTreeMap<_, _> = in_b.into_iter().collect();
        // Points in one alone follow from the seed where their places do.
        let (mut lone_a, mut pairs) = (0, Vec::new());
        for (place, one) in in_a {
            match in_b.remove(&place) {
                Some(other) => pairs.push((&one.x, (one.into(), other.into()))),
                None => lone_a += 1,
            }
        }
        let like = Like::of(pairs.iter().map(|(_, pair)| pair));
        for (x, pair) in pairs {
            let (figure, design) = (a.figure.clone(), a.design.clone());
            let subject = Subject::Point { figure, design, x: x.clone() };
            self.judge(subject, Unit::Number, pair, like);
        }
        for (count, in_a) in [(lone_a, true), (in_b.len(), false)] {
            match (count, self.is_exact) {
                (0, _) => {}
                (_, true) => {
                    let s = if count == 1 { "" } else { "s" };
                    self.lone(format!("{}: {}, {count} point{s}", a.figure, a.design), in_a);
                }
                (_, false) => self.unjudged += count,
            }
        }
    }

    /// Judges the claims' numbers, and gives those whose verdicts differ.
    fn claims(&mut self, a: &StudyResult, b: &StudyResult) -> Vec<VerdictChange> {
        let mut verdicts = Vec::new();
        let key = |one: &Claim| (one.place().to_owned(), one.says().to_owned());
        let mut others: BTreeMap<_, &Claim> = b.claims.iter().map(|one| (key(one), one)).collect();
        for one in &a.claims {
            let (place, says) = key(one);
            let Some(other) = others.remove(&(place.clone(), says.clone())) else {
                self.lone(format!("claim of {place}: {says}"), true);
                continue;
            };
            let subject = Subject::Claim { place, says };
            if one.verdict() != other.verdict() {
                let subject = subject.clone();
                verdicts.push(VerdictChange { subject, a: one.verdict(), b: other.verdict() });
            }
            match (estimate(one), estimate(other)) {
                (Some(a), Some(b)) => self.judge(subject, one.unit(), (a, b), Like::default()),
                (None, None) => {}
                (in_a, _) => self.lone(format!("the number of the {subject}"), in_a.is_some()),
            }
        }
        for (place, says) in others.into_keys() {
            self.lone(format!("claim of {place}: {says}"), false);
        }
        verdicts
    }
}

/// Points by their place, and by how many of that place come before.
fn by_place(points: &[Point]) -> Vec<((String, usize), &Point)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let place = |point: &Point| match &point.x {
        Place::At(x) => format!("{x:?}"),
        Place::In(category) => format!("in {category}"),
    };
    points
        .iter()
        .map(|point| {
            let nth = seen.entry(place(point)).or_default();
            *nth += 1;
            ((place(point), *nth), point)
        })
        .collect()
}

fn estimate(claim: &Claim) -> Option<Estimate> {
    let (n, interval) = (claim.n().max(1), claim.interval());
    claim.measured().map(|value| Estimate { value, n, interval })
}

impl From<&Point> for Estimate {
    fn from(point: &Point) -> Self {
        match point.spread {
            Some(spread) => Self { value: point.y, n: spread.n, interval: spread.interval },
            None => Self::exact(point.y),
        }
    }
}

/// Keys of the plans that differ; the seed and the form are keys of the runs.
fn plan_changes(a: &StudyResult, b: &StudyResult) -> Vec<KeyChange> {
    let mut changes = Vec::new();
    let form = |one: &StudyResult| if one.quick { "quick" } else { "full" };
    for (key, a, b) in [
        ("seed", a.seed.into(), b.seed.into()),
        ("form", form(a).into(), form(b).into()),
        ("n", a.n.into(), b.n.into()),
    ] {
        differ(key, Some(&a), Some(&b), &mut changes);
    }
    differ("plan", Some(&a.plan), Some(&b.plan), &mut changes);
    // The run's seed stands in the plan, too.
    changes.retain(|change| change.key != "plan.about.seed");
    changes
}

/// Values that differ, table by table: as deep as the reader of JSON lets a value be.
fn differ(
    key: &str,
    a: Option<&serde_json::Value>,
    b: Option<&serde_json::Value>,
    changes: &mut Vec<KeyChange>,
) {
    use serde_json::Value::Object;
    if a == b {
        return;
    }
    if let (Some(Object(of_a)), Some(Object(of_b))) = (a, b) {
        let keys: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
        for one in keys {
            differ(&format!("{key}.{one}"), of_a.get(one), of_b.get(one), changes);
        }
        return;
    }
    changes.push(KeyChange { key: key.to_owned(), a: a.cloned(), b: b.cloned() });
}
