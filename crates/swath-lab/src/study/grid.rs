//! Measurements by named axes.
//!
//! A [`Grid`] has a cell for each point that a study measured (a design on a
//! workload at a block size), and a cell holds named metrics, one value for
//! each seed. Everything that a report shows or judges is selected from it by
//! the names and values of axes: a selection that lacks what was asked for is
//! [`Missing`], and says which axis lacks what, so that no statement can be made
//! about cells that nobody measured.
//!
//! ```text
//!   Grid      axes: design, workload, block_frames
//!     Cell    PBS, rotated-display, 4     hits: [seed 0, seed 1, …]   walks: […]
//!     Cell    PBS, rotated-display, 8     …
//! ```

use std::cell::RefCell;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::study::estimate::Estimate;
use crate::study::point::{Place, Point, Spread};

/// A coordinate on an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// A name.
    Word(String),
    /// A number.
    Number(f64),
}

/// A selection that has no cell or lacks a metric: which axis lacks what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("axis {axis}: no {lacks}")]
pub struct Missing {
    /// The axis, or "metric".
    pub axis: String,
    /// The values that it lacks, in words.
    pub lacks: String,
}

/// A number selected from a grid, with what it was selected by.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    estimate: Estimate,
    source: String,
}

/// The points of a study: metrics by seed, found by axes.
///
/// Invariants: each cell has a coordinate on every axis, no two cells have the
/// same coordinates, and a metric has one value for each seed, or a single
/// one if it depends on none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    axes: Vec<String>,
    cells: Vec<Cell>,
    seeds: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    at: Vec<Value>,
    metrics: Vec<(String, Vec<f64>)>,
}

impl Grid {
    /// An empty grid with these axes; `seeds` is 0 if nothing depends on a seed.
    pub fn new(axes: &[&str], seeds: usize) -> Self {
        let axes = axes.iter().map(|&axis| axis.to_owned()).collect();
        Self { axes, cells: Vec::new(), seeds }
    }

    /// Adds a cell. `runs` has the metrics of each seed, in their order; the
    /// names are those of the first. Metrics that a later run lacks or values
    /// that are no finite numbers leave the metric out, so that a selection of
    /// it is missing.
    pub fn add(&mut self, at: Vec<Value>, runs: &[Metrics]) {
        let names = runs.first().into_iter().flat_map(|run| run.iter().map(|(name, _)| name));
        let metrics = names.filter_map(|name| {
            let of = |run: &Metrics| run.iter().find(|(other, _)| other == name).map(|one| one.1);
            let values: Option<Vec<f64>> = runs.iter().map(of).collect();
            let values = values.filter(|values| values.iter().all(|value| value.is_finite()))?;
            Some((name.clone(), values))
        });
        let metrics = metrics.collect();
        debug_assert!(self.cells.iter().all(|cell| cell.at != at), "a cell twice at {at:?}");
        self.cells.push(Cell { at, metrics });
    }

    /// Values of an axis in the order of their first use.
    pub fn values(&self, axis: &str) -> Vec<&Value> {
        let Some(axis) = self.axes.iter().position(|name| name == axis) else {
            return Vec::new();
        };
        let mut values: Vec<&Value> = Vec::new();
        for cell in &self.cells {
            if !values.contains(&&cell.at[axis]) {
                values.push(&cell.at[axis]);
            }
        }
        values
    }

    /// The statistic over all seeds, with its interval and what was selected.
    ///
    /// # Errors
    /// [`Missing`] as the statistic says, or if its value is no finite number.
    pub fn evidence(
        &self,
        statistic: impl Fn(&View<'_>) -> Result<f64, Missing>,
    ) -> Result<Evidence, Missing> {
        self.evidence_of(&statistic)
    }

    /// [`evidence`](Self::evidence), once for all statistics: there are hundreds.
    fn evidence_of(
        &self,
        statistic: &dyn Fn(&View<'_>) -> Result<f64, Missing>,
    ) -> Result<Evidence, Missing> {
        let all = View::new(self, None);
        let value = statistic(&all)?;
        if !value.is_finite() {
            return Err(Missing { axis: "metric".to_owned(), lacks: format!("{value}") });
        }
        let estimate = match (all.random.into_inner(), self.seeds) {
            (false, _) | (_, 0) => Estimate::exact(value),
            (true, n) => {
                let without = |seed| statistic(&View::new(self, Some(seed)));
                let without: Result<Vec<f64>, Missing> = match n {
                    1 => Ok(vec![value]),
                    _ => (0..n).map(without).collect(),
                };
                Estimate::jackknife(value, &without?)
            }
        };
        Ok(Evidence { estimate, source: all.source.into_inner().join("; ") })
    }

    /// The points of a line or of bars: for each cell of the selection its
    /// place on `axis` and the statistic of the cell, with its interval. Cells
    /// that lack the metric are left out.
    pub fn points(
        &self,
        axis: &str,
        select: impl Fn(Selection<'_>) -> Selection<'_>,
        statistic: impl Fn(&CellView<'_>) -> Result<f64, Missing>,
    ) -> Vec<Point> {
        let view = View::new(self, None);
        let cells = select(view.select()).cells().unwrap_or_default();
        self.points_of(axis, &cells, &statistic)
    }

    fn points_of(
        &self,
        axis: &str,
        cells: &[CellView<'_>],
        statistic: &dyn Fn(&CellView<'_>) -> Result<f64, Missing>,
    ) -> Vec<Point> {
        let points = cells.iter().filter_map(|cell| {
            let of = |view: &View<'_>| statistic(&CellView { view, index: cell.index });
            Some(self.evidence_of(&of).ok()?.point(cell.at(axis)?.clone()))
        });
        points.collect()
    }

    /// Returns true if nothing was measured.
    pub const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// Named numbers of one run of one point.
pub type Metrics = Vec<(String, f64)>;

/// Metrics from pairs of a name and a number.
pub fn metrics<const N: usize>(pairs: [(&str, f64); N]) -> Metrics {
    pairs.as_slice().iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

impl Evidence {
    /// The number with its interval.
    pub const fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// The point of a figure at this place, with its spread.
    pub fn point(&self, place: impl Into<Value>) -> Point {
        let point = Point::new(place.into().into(), self.estimate.value);
        point.with_spread(Spread::of(&self.estimate))
    }

    /// The selections that it was made from, in words.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// A grid with the means over all seeds, or over all but one.
#[derive(Debug)]
pub struct View<'g> {
    grid: &'g Grid,
    without: Option<usize>,
    source: RefCell<Vec<String>>,
    /// True if a number was read that depends on the seed.
    random: RefCell<bool>,
}

impl<'g> View<'g> {
    fn new(grid: &'g Grid, without: Option<usize>) -> Self {
        Self { grid, without, source: RefCell::default(), random: RefCell::default() }
    }

    /// All cells.
    pub fn select(&self) -> Selection<'_> {
        let cells = (0..self.grid.cells.len()).collect();
        Selection { view: self, cells, words: Vec::new(), missing: None }
    }
}

/// Cells chosen by the names and values of axes.
#[derive(Clone, Debug)]
pub struct Selection<'v> {
    view: &'v View<'v>,
    cells: Vec<usize>,
    words: Vec<String>,
    missing: Option<Missing>,
}

impl<'v> Selection<'v> {
    fn lack(&mut self, axis: &str, lacks: String) {
        self.missing.get_or_insert(Missing { axis: axis.to_owned(), lacks });
    }

    fn keep(&mut self, axis: &str, keep: impl Fn(&Value) -> bool) {
        match self.view.grid.axes.iter().position(|name| name == axis) {
            Some(at) => self.cells.retain(|&cell| keep(&self.view.grid.cells[cell].at[at])),
            None => self.lack(axis, "such axis".to_owned()),
        }
    }

    /// The cells with this value on the axis.
    #[must_use]
    pub fn is(self, axis: &str, value: impl Into<Value>) -> Self {
        self.all_of(axis, vec![value.into()])
    }

    /// The cells with one of these values, each of which there must be.
    #[must_use]
    pub fn all<V: Into<Value>>(self, axis: &str, values: impl IntoIterator<Item = V>) -> Self {
        self.all_of(axis, values.into_iter().map(Into::into).collect())
    }

    fn all_of(mut self, axis: &str, wanted: Vec<Value>) -> Self {
        let found = self.clone();
        self.keep(axis, |value| wanted.contains(value));
        let at = self.view.grid.axes.iter().position(|name| name == axis);
        let lacking: Vec<String> = wanted
            .iter()
            .filter(|value| {
                let has = |&cell: &usize| {
                    at.is_some_and(|at| found.view.grid.cells[cell].at[at] == **value)
                };
                !found.cells.iter().any(has)
            })
            .map(Value::to_string)
            .collect();
        if !lacking.is_empty() {
            self.lack(axis, lacking.join(", "));
        }
        let words: Vec<String> = wanted.iter().map(Value::to_string).collect();
        self.words.push(format!("{axis} = {}", words.join(", ")));
        self
    }

    /// The cells whose value on the axis `keep` accepts; `words` says which.
    #[must_use]
    pub fn some(mut self, axis: &str, words: &str, keep: impl Fn(&Value) -> bool) -> Self {
        self.keep(axis, keep);
        if self.cells.is_empty() {
            self.lack(axis, words.to_owned());
        }
        self.words.push(format!("{axis}: {words}"));
        self
    }

    /// The cells; there is at least one.
    ///
    /// # Errors
    /// [`Missing`] if a wanted value has no cell.
    pub fn cells(&self) -> Result<Vec<CellView<'v>>, Missing> {
        if let Some(missing) = &self.missing {
            return Err(missing.clone());
        }
        if self.cells.is_empty() {
            return Err(Missing { axis: "all".to_owned(), lacks: "cell at all".to_owned() });
        }
        Ok(self.cells.iter().map(|&index| CellView { view: self.view, index }).collect())
    }

    /// The statistic of each cell; there is at least one.
    ///
    /// # Errors
    /// [`Missing`] if a wanted value has no cell, or as the statistic says.
    pub fn each(
        &self,
        statistic: impl Fn(&CellView<'v>) -> Result<f64, Missing>,
    ) -> Result<Vec<f64>, Missing> {
        self.view.source.borrow_mut().push(self.words.join(" and "));
        self.cells()?.iter().map(statistic).collect()
    }

    /// The metric of each cell; there is at least one.
    ///
    /// # Errors
    /// [`Missing`] if a wanted value has no cell, or a cell has no such metric.
    pub fn numbers(&self, metric: &str) -> Result<Vec<f64>, Missing> {
        self.each(|cell| cell.get(metric))
    }

    /// The metric of the only cell.
    ///
    /// # Errors
    /// [`Missing`] if there is none, or several.
    pub fn one(&self, metric: &str) -> Result<f64, Missing> {
        match self.numbers(metric)?.as_slice() {
            [one] => Ok(*one),
            several => Err(Missing {
                axis: "all".to_owned(),
                lacks: format!("single cell: there are {}", several.len()),
            }),
        }
    }

    /// The mean of a metric over the cells.
    ///
    /// # Errors
    /// As for [`numbers`](Self::numbers).
    pub fn mean(&self, metric: &str) -> Result<f64, Missing> {
        self.numbers(metric).map(|numbers| mean(&numbers))
    }

    /// The largest of a metric over the cells.
    ///
    /// # Errors
    /// As for [`numbers`](Self::numbers).
    pub fn max(&self, metric: &str) -> Result<f64, Missing> {
        self.numbers(metric).map(|numbers| largest(&numbers))
    }

    /// The least of a metric over the cells.
    ///
    /// # Errors
    /// As for [`numbers`](Self::numbers).
    pub fn min(&self, metric: &str) -> Result<f64, Missing> {
        self.numbers(metric).map(|numbers| least(&numbers))
    }

    /// `of` each pair of cells that differ on `axis` alone, by `first` and
    /// `second`; each cell of the one must have its partner.
    ///
    /// # Errors
    /// [`Missing`] if a wanted value or a partner has no cell, or as `of` says.
    pub fn pairs(
        &self,
        axis: &str,
        first: impl Into<Value>,
        second: impl Into<Value>,
        of: impl Fn(&CellView<'v>, &CellView<'v>) -> Result<f64, Missing>,
    ) -> Result<Vec<f64>, Missing> {
        self.pairs_of(axis, first.into(), second.into(), &of)
    }

    fn pairs_of(
        &self,
        axis: &str,
        first: Value,
        second: Value,
        of: &dyn Fn(&CellView<'v>, &CellView<'v>) -> Result<f64, Missing>,
    ) -> Result<Vec<f64>, Missing> {
        let firsts = self.clone().is(axis, first.clone());
        let seconds = self.clone().is(axis, second.clone());
        let others = seconds.cells()?;
        let words = format!("{} of {second} against {first}", self.words.join(" and "));
        self.view.source.borrow_mut().push(words);
        let pair = |cell: &CellView<'v>| {
            let partner = others.iter().find(|other| cell.differs_only_on(other, axis));
            let partner = partner.ok_or_else(|| Missing {
                axis: axis.to_owned(),
                lacks: format!("{second} beside {}", cell.describe()),
            })?;
            of(cell, partner)
        };
        firsts.cells()?.iter().map(pair).collect()
    }
}

/// One cell of a view.
#[derive(Clone, Copy, Debug)]
pub struct CellView<'v> {
    view: &'v View<'v>,
    index: usize,
}

impl CellView<'_> {
    fn cell(&self) -> &Cell {
        &self.view.grid.cells[self.index]
    }

    /// The mean of a metric over the view's seeds.
    ///
    /// # Errors
    /// [`Missing`] if the cell has no such metric.
    pub fn get(&self, metric: &str) -> Result<f64, Missing> {
        let found = self.cell().metrics.iter().find(|(name, _)| name == metric);
        let Some((_, values)) = found else {
            let lacks = format!("{metric} at {}", self.describe());
            return Err(Missing { axis: "metric".to_owned(), lacks });
        };
        let source = &mut self.view.source.borrow_mut();
        if source.last().is_none_or(|last| last != metric) {
            source.push(metric.to_owned());
        }
        *self.view.random.borrow_mut() |= self.view.grid.seeds > 0;
        let kept = values.iter().enumerate();
        let kept = kept.filter(|(seed, _)| values.len() == 1 || Some(*seed) != self.view.without);
        let (sum, count) = kept.fold((0.0, 0.0), |(sum, count), (_, v)| (sum + v, count + 1.0));
        Ok(sum / count)
    }

    /// The coordinate on an axis, if there is such an axis.
    pub fn at(&self, axis: &str) -> Option<&Value> {
        let at = self.view.grid.axes.iter().position(|name| name == axis)?;
        Some(&self.cell().at[at])
    }

    fn differs_only_on(&self, other: &Self, axis: &str) -> bool {
        let pairs = self.cell().at.iter().zip(&other.cell().at).zip(&self.view.grid.axes);
        let mut pairs = pairs.map(|((one, two), name)| (one == two, name == axis));
        pairs.all(|(same, is_axis)| same != is_axis)
    }

    fn describe(&self) -> String {
        let words: Vec<String> = self.cell().at.iter().map(Value::to_string).collect();
        words.join(", ")
    }
}

/// The largest of numbers, of which there is at least one.
pub fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NAN, f64::max)
}

/// The least of numbers, of which there is at least one.
pub fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NAN, f64::min)
}

/// The mean of numbers, of which there is at least one.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The median of numbers, of which there is at least one.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => word.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl Value {
    /// The number, if it is one.
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }

    /// The name, if it is one.
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Number(_) => None,
        }
    }
}

impl From<Value> for Place {
    fn from(value: Value) -> Self {
        match value {
            Value::Word(word) => Self::In(word),
            Value::Number(number) => Self::At(number),
        }
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl From<String> for Value {
    fn from(word: String) -> Self {
        Self::Word(word)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(&["design", "block"], 3);
        for (design, gain) in [("BBS", 0.0), ("PBS", 10.0)] {
            for block in [1_u64, 4] {
                let run = |seed: u64| metrics([("rate", gain + block as f64 + seed as f64)]);
                grid.add(vec![design.into(), block.into()], &[run(0), run(1), run(2)]);
            }
        }
        grid
    }

    #[test]
    fn an_empty_selection_has_no_maximum() {
        let max = |design: &str, blocks: &[u64]| {
            let blocks = blocks.to_vec();
            grid().evidence(|view| {
                view.select().is("design", design).all("block", blocks.clone()).max("rate")
            })
        };
        assert_eq!(max("PBS", &[1, 4]).unwrap().estimate().value, 15.0);
        assert_eq!(max("PBS", &[4]).unwrap().estimate().n, 3);
        let missing = |axis: &str, lacks: &str| {
            Err(Missing { axis: axis.to_owned(), lacks: lacks.to_owned() })
        };
        assert_eq!(max("AT", &[4]), missing("design", "AT"));
        assert_eq!(max("PBS", &[1, 2, 4, 8]), missing("block", "2, 8"));
        let some = grid().evidence(|view| {
            view.select().some("block", "128 to 256", |v| v.number() > Some(100.0)).max("rate")
        });
        assert_eq!(some, missing("block", "128 to 256"));
        assert_eq!(
            Grid::new(&["design"], 1).evidence(|view| view.select().max("rate")),
            missing("all", "cell at all")
        );
        assert_eq!(
            grid().evidence(|view| view.select().is("colour", "red").max("rate")),
            missing("colour", "such axis")
        );
        assert!(grid().evidence(|view| view.select().max("cost")).is_err());
    }

    #[test]
    fn pairs_share_every_other_axis() {
        let gains = grid().evidence(|view| {
            let rates =
                |one: &CellView<'_>, two: &CellView<'_>| Ok(one.get("rate")? - two.get("rate")?);
            let gains = view.select().pairs("design", "PBS", "BBS", rates)?;
            assert_eq!(gains.len(), 2);
            Ok(least(&gains))
        });
        let gains = gains.unwrap();
        assert_eq!(gains.estimate().value, 10.0);
        // Seeds move both designs alike.
        assert_eq!(gains.estimate().interval, Some((10.0, 10.0)));
    }

    #[test]
    fn what_depends_on_no_seed_is_exact() {
        let mut grid = Grid::new(&["case"], 0);
        grid.add(vec!["a".into()], &[metrics([("nodes", 9.0)])]);
        let found = grid.evidence(|view| view.select().is("case", "a").one("nodes")).unwrap();
        assert_eq!(*found.estimate(), Estimate::exact(9.0));
        assert_eq!(found.source(), "case = a; nodes");
    }

    #[test]
    fn a_number_that_is_not_finite_is_missing() {
        let mut grid = Grid::new(&["case"], 0);
        grid.add(vec!["a".into()], &[metrics([("ratio", f64::NAN)])]);
        assert!(grid.evidence(|view| view.select().one("ratio")).is_err());
    }

    #[test]
    fn points_carry_their_spread() {
        let points = grid().points("block", |all| all.is("design", "BBS"), |c| c.get("rate"));
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].x.clone(), points[0].y), (Place::At(1.0), 2.0));
        assert_eq!(points[0].spread.map(|spread| spread.n), Some(3));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
