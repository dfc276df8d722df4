//! The points of a figure: a place on the x axis, a value, and its spread.

use serde::{Deserialize, Serialize};

use crate::study::estimate::Estimate;

/// One measurement: `[x, y]` in JSON, or `["category", y]` for bars, with `n` and
/// the ends of the 95% interval behind it if it depends on a seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "PointForm", into = "PointForm")]
pub struct Point {
    /// The place on the x axis.
    pub x: Place,
    /// The measured value.
    pub y: f64,
    /// The value's spread over seeds, if it depends on one.
    pub spread: Option<Spread>,
}

/// A place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A number.
    At(f64),
    /// A category.
    In(String),
}

/// The spread of a measured value over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of seeds.
    pub n: u32,
    /// Ends of the 95% interval; none with a single seed.
    pub interval: Option<(f64, f64)>,
}

impl Spread {
    /// The spread of an estimate; none if it depends on no seed.
    pub fn of(estimate: &Estimate) -> Option<Self> {
        let exact = *estimate == Estimate::exact(estimate.value);
        (!exact).then_some(Self { n: estimate.n, interval: estimate.interval })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PointForm {
    Exact(Place, f64),
    Sampled(Place, f64, u32, Option<(f64, f64)>),
}

impl From<PointForm> for Point {
    fn from(form: PointForm) -> Self {
        match form {
            PointForm::Exact(x, y) => Self { x, y, spread: None },
            PointForm::Sampled(x, y, n, interval) => {
                Self { x, y, spread: Some(Spread { n, interval }) }
            }
        }
    }
}

impl From<Point> for PointForm {
    fn from(Point { x, y, spread }: Point) -> Self {
        match spread {
            None => Self::Exact(x, y),
            Some(Spread { n, interval }) => Self::Sampled(x, y, n, interval),
        }
    }
}

impl Point {
    /// A value at a place, without a spread.
    pub const fn new(x: Place, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// A value at a number, without a spread.
    pub const fn at(x: f64, y: f64) -> Self {
        Self::new(Place::At(x), y)
    }

    /// A value in a category, without a spread.
    pub fn named(category: impl Into<String>, y: f64) -> Self {
        Self::new(Place::In(category.into()), y)
    }

    /// The same point with a spread.
    #[must_use]
    pub fn with_spread(self, spread: Option<Spread>) -> Self {
        Self { spread, ..self }
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self::at(x, y)
    }
}

impl From<(&str, f64)> for Point {
    fn from((category, y): (&str, f64)) -> Self {
        Self::named(category, y)
    }
}

impl From<(String, f64)> for Point {
    fn from((category, y): (String, f64)) -> Self {
        Self::named(category, y)
    }
}
