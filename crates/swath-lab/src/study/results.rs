//! The results of a study: the figures' series, and the paper's claims judged.
//!
//! A [`StudyResult`] is a function of the study's plan and seed, so it holds
//! nothing that depends on the machine that ran it: the same plan and seed
//! give the same bytes of `results.json`. Times and instruction counts go
//! into a [`HostResult`] beside it, which becomes `host.json`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::film::{FILM_STEM, Film, FilmFault};

pub use crate::study::claim::{Claim, ClaimError, ClaimFault, Statement};
pub use crate::study::point::{Place, Point, Spread};
pub use crate::study::tally::Tally;
pub use crate::study::verdict::{PaperFigure, Tolerance, Unit, Verdict};

/// The result of one study. Everything in it follows from `plan` and `seed`.
///
/// Invariants, walked by [`StudyResult::check`]: the study's name can be a
/// directory's name; figures have different ids and different [file
/// names](Figure::file_stem); every series names a figure of this result and
/// fits its kind; every number is finite; every claim's `holds` follows from
/// its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyResult {
    /// The study's name, which is also its directory's: `pbs-tlb`.
    pub study: String,
    /// The study's title in words.
    pub title: String,
    /// The paper's key, as in `docs/papers.md`.
    pub paper: String,
    /// The paper as a reader would cite it: authors, title, venue, year.
    pub reference: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// True for a quick run: fewer seeds or less work.
    pub quick: bool,
    /// Number of seeds; 0 if nothing depends on one.
    pub n: u32,
    /// The plan that was run, with every key it may leave out filled in.
    pub plan: serde_json::Value,
    /// The finding in one paragraph of plain text.
    pub finding: String,
    /// Memory over time, where the study shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub film: Option<Film>,
    /// The drawing of the figures, in the order of the report.
    pub figures: Vec<Figure>,
    /// The measured series of all figures.
    pub series: Vec<Series>,
    /// The parameters that were chosen after the paper's figures were known, each with
    /// its value and what leaves it open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// The paper's claims beside the measurements.
    pub claims: Vec<Claim>,
    /// Facts that a reader must know to judge the figures, one paragraph each.
    pub notes: Vec<String>,
}

/// The measurements of a study that depend on the machine it ran on: times, ratios
/// of times, instruction counts. Invariants as for [`StudyResult`], walked by
/// [`HostResult::check`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostResult {
    /// The study's name, as in the [`StudyResult`] beside it.
    pub study: String,
    /// The machine in words: processor, cores, operating system.
    pub host: String,
    /// The drawing of the figures. Their file names differ from those of the
    /// study result beside them ([`check_pair`]).
    pub figures: Vec<Figure>,
    /// The measured series of all figures.
    pub series: Vec<Series>,
    /// The paper's claims beside the measurements.
    pub claims: Vec<Claim>,
    /// Facts that a reader must know to judge the figures, one paragraph each.
    pub notes: Vec<String>,
}

/// The drawing of one figure. Its data are the [`Series`] that carry its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The paper's name for it ("Fig. 11") or a name of our own.
    pub id: String,
    /// Its subject, in a few words.
    pub title: String,
    /// The kind of drawing.
    pub kind: FigureKind,
    /// The x axis in words, with its unit: "free block size (pages)".
    pub x_label: String,
    /// The y axis in words, with its unit: "TLB hit rate (share of accesses)".
    pub y_label: String,
    /// Lowest and highest y shown. Without it the axis fits the data. It is
    /// widened where a point lies outside, so that no point is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y_range: Option<(f64, f64)>,
    /// One or two sentences below the figure; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
}

/// A kind of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A line with markers for each design, x on a linear axis.
    Lines,
    /// A line with markers for each design, x on a logarithmic axis with a
    /// tick at each power of two, as in the paper's Fig. 11 to 21.
    LinesLog2,
    /// A group of bars for each category, a bar for each design, as in the
    /// paper's Fig. 10.
    Bars,
    /// A marker for each point, both axes linear.
    Scatter,
    /// A row of cells for each design, a cell for each point, the fuller the
    /// nearer its y is to the end of the y range (0 to 1 if none is given).
    Map,
    /// No drawing but a table: a row for each category, a column for each
    /// design, in which a category that its series lacks is a dash.
    Table,
}

/// One design's measurements in one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The id of its [`Figure`].
    pub figure: String,
    /// The quantity of the points' x, as a name with its unit last: `free_block_frames`.
    pub x: String,
    /// The quantity of the points' y, as a name with its unit last: `tlb_hit_rate`.
    pub y: String,
    /// The design that was measured: TRAD, PCAD, AT, PBS, BBS, …
    pub design: String,
    /// The measurements, in the order in which a line joins them.
    pub points: Vec<Point>,
}

/// Errors in a result, each with its place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResultError {
    /// The study's name cannot be a directory's name on every system.
    #[error(
        "study name {0:?}: only lower-case letters, digits and single hyphens inside may stand in it"
    )]
    StudyName(String),
    /// The host result belongs to another study.
    #[error("study {study}: the host result beside it is of study {host_study:?}")]
    OtherStudy {
        /// The study.
        study: String,
        /// The study that the host result names.
        host_study: String,
    },
    /// Two figures have the same id, or ids that give the same file name.
    #[error("figures {first:?} and {second:?} would both be written to {stem}.svg")]
    SameFigure {
        /// The id of the earlier figure.
        first: String,
        /// The id of the later figure.
        second: String,
        /// The file name that they share, without its extension.
        stem: String,
    },
    /// No letter or digit in a figure's id, so it gives no file name.
    #[error("figure {0:?}: its id has no letter or digit to name a file with")]
    FigureId(String),
    /// A figure's y range is not a range.
    #[error("figure {figure:?}: y range {low} to {high} is not a range within -1e300 to 1e300")]
    YRange {
        /// The figure's id.
        figure: String,
        /// The lower end as given.
        low: f64,
        /// The upper end as given.
        high: f64,
    },
    /// A series names a figure that the result does not describe.
    #[error("series {design:?}: the result has no figure {figure:?}")]
    UnknownFigure {
        /// The series' design.
        design: String,
        /// The figure that it names.
        figure: String,
    },
    /// A figure has two series of the same design.
    #[error("figure {figure:?} has two series of design {design:?}")]
    SameSeries {
        /// The figure's id.
        figure: String,
        /// The design.
        design: String,
    },
    /// A point does not fit its figure or is not finite.
    #[error("figure {figure:?}, design {design:?}, point {index}: {what}")]
    Point {
        /// The figure's id.
        figure: String,
        /// The series' design.
        design: String,
        /// The point's place in the series, from 0.
        index: usize,
        /// The fault.
        what: PointFault,
    },
    /// The film is none.
    #[error("the film: {0}")]
    Film(#[from] FilmFault),
    /// A claim's numbers are not usable, or contradict its verdict.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// The largest magnitude of a point's x and y and of an axis' ends: far above
/// any measurement, and small enough that differences stay finite.
pub const MAGNITUDE_MAX: f64 = 1e300;

fn drawable(value: f64) -> bool {
    value.abs() <= MAGNITUDE_MAX
}

/// Faults of a point.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PointFault {
    /// x is not a number, or beyond [`MAGNITUDE_MAX`].
    #[error("x is {0}, not a number from -1e300 to 1e300")]
    XNotFinite(f64),
    /// y is not a number, or beyond [`MAGNITUDE_MAX`].
    #[error("y is {0}, not a number from -1e300 to 1e300")]
    YNotFinite(f64),
    /// A logarithmic axis has no place for this x.
    #[error("x is {0}, and a logarithmic axis begins above 0")]
    XNotPositive(f64),
    /// A number in a figure of bars.
    #[error("x is a number, and bars need a category")]
    NumberInBars,
    /// A category in a figure with a numeric x axis.
    #[error("x is a category, and only bars have categories")]
    CategoryOnAxis,
    /// The same category twice in one series.
    #[error("its category already has a bar in this series")]
    SameCategory,
}

impl StudyResult {
    /// Walks the invariants. O(p log p + c) with p points and c claims.
    ///
    /// # Errors
    /// The first [`ResultError`] found, in the order of the fields.
    pub fn check(&self) -> Result<(), ResultError> {
        self.film.as_ref().map_or(Ok(()), Film::check)?;
        self.check_film_apart(&self.figures)?;
        check_parts(&self.study, &self.figures, &self.series, &self.claims)
    }

    /// Refuses a figure whose file would be the film's.
    fn check_film_apart(&self, figures: &[Figure]) -> Result<(), ResultError> {
        let same = |figure: &&Figure| self.film.is_some() && figure.file_stem() == FILM_STEM;
        figures.iter().find(same).map_or(Ok(()), |figure| {
            let (first, stem) = ("the film".to_owned(), FILM_STEM.to_owned());
            Err(ResultError::SameFigure { first, second: figure.id.clone(), stem })
        })
    }
}

impl HostResult {
    /// Nothing measured yet, by `study` on the machine `host`, to be drawn as `figures`.
    pub fn new(study: &str, host: String, figures: Vec<Figure>) -> Self {
        Self {
            study: study.to_owned(),
            host,
            figures,
            series: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Walks the invariants. O(p log p + c) with p points and c claims.
    ///
    /// # Errors
    /// The first [`ResultError`] found, in the order of the fields.
    pub fn check(&self) -> Result<(), ResultError> {
        check_parts(&self.study, &self.figures, &self.series, &self.claims)
    }
}

/// Checks a study's result, its host result, and that the two fit together:
/// the same study, and no two figures with one file name. Time as for
/// [`StudyResult::check`].
///
/// # Errors
/// The first [`ResultError`] found.
pub fn check_pair(result: &StudyResult, host: Option<&HostResult>) -> Result<(), ResultError> {
    result.check()?;
    let Some(host) = host else { return Ok(()) };
    host.check()?;
    if host.study != result.study {
        return Err(ResultError::OtherStudy {
            study: result.study.clone(),
            host_study: host.study.clone(),
        });
    }
    result.check_film_apart(&host.figures)?;
    check_figures(result.figures.iter().chain(&host.figures))
}

/// Returns true if a study's name can be a directory's name on every system: lower-case
/// letters, digits and single hyphens inside.
pub(crate) fn is_study_name(study: &str) -> bool {
    let fits = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    study.split('-').all(fits)
}

fn check_parts(
    study: &str,
    figures: &[Figure],
    series: &[Series],
    claims: &[Claim],
) -> Result<(), ResultError> {
    if !is_study_name(study) {
        return Err(ResultError::StudyName(study.to_owned()));
    }
    check_figures(figures.iter())?;
    let mut seen = BTreeSet::new();
    for one in series {
        let figure = figures.iter().find(|f| f.id == one.figure).ok_or_else(|| {
            ResultError::UnknownFigure { design: one.design.clone(), figure: one.figure.clone() }
        })?;
        if !seen.insert((&one.figure, &one.design)) {
            return Err(ResultError::SameSeries {
                figure: one.figure.clone(),
                design: one.design.clone(),
            });
        }
        one.check(figure.kind)?;
    }
    for (i, claim) in claims.iter().enumerate() {
        claim.check()?;
        claims[..i].iter().try_for_each(|other| claim.check_apart(other))?;
    }
    Ok(())
}

fn check_figures<'a>(figures: impl Iterator<Item = &'a Figure>) -> Result<(), ResultError> {
    let mut seen = std::collections::BTreeMap::new();
    for figure in figures {
        let stem = figure.file_stem();
        if stem.is_empty() {
            return Err(ResultError::FigureId(figure.id.clone()));
        }
        if let Some((low, high)) = figure.y_range
            && !(drawable(low) && drawable(high) && low < high)
        {
            return Err(ResultError::YRange { figure: figure.id.clone(), low, high });
        }
        if let Some(first) = seen.insert(stem.clone(), figure.id.clone()) {
            return Err(ResultError::SameFigure { first, second: figure.id.clone(), stem });
        }
    }
    Ok(())
}

impl Figure {
    /// A figure with the y axis fitted to the data and no caption.
    pub fn new(id: &str, title: &str, kind: FigureKind, x_label: &str, y_label: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            kind,
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            y_range: None,
            caption: String::new(),
        }
    }

    /// The same figure with the y axis from `low` to `high`.
    #[must_use]
    pub fn with_y_range(self, low: f64, high: f64) -> Self {
        Self { y_range: Some((low, high)), ..self }
    }

    /// The same figure with a caption.
    #[must_use]
    pub fn with_caption(self, caption: &str) -> Self {
        Self { caption: caption.to_owned(), ..self }
    }

    /// The name of its files without the extension: the id's letters and
    /// digits in lower case, with one hyphen for all that stands between.
    /// "Fig. 11" gives `fig-11`. Empty if the id has no ASCII letter or digit.
    pub fn file_stem(&self) -> String {
        let lower = self.id.to_ascii_lowercase();
        let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
        words.join("-")
    }
}

impl Series {
    /// A series of `design` in the figure with the id `figure`; `x` and `y`
    /// name the columns. Points are pairs of numbers, or of a category and a
    /// number.
    pub fn new<P: Into<Point>>(
        figure: &str,
        x: &str,
        y: &str,
        design: &str,
        points: impl IntoIterator<Item = P>,
    ) -> Self {
        Self {
            figure: figure.to_owned(),
            x: x.to_owned(),
            y: y.to_owned(),
            design: design.to_owned(),
            points: points.into_iter().map(Into::into).collect(),
        }
    }

    /// Checks that every point fits a figure of this kind.
    pub(crate) fn check(&self, kind: FigureKind) -> Result<(), ResultError> {
        let mut categories = BTreeSet::new();
        for (index, point) in self.points.iter().enumerate() {
            let bars = matches!(kind, FigureKind::Bars | FigureKind::Table);
            let ends = point.spread.and_then(|spread| spread.interval);
            let end = ends.and_then(|(low, high)| [low, high].into_iter().find(|y| !drawable(*y)));
            let what = match &point.x {
                _ if !drawable(point.y) => PointFault::YNotFinite(point.y),
                _ if end.is_some() => PointFault::YNotFinite(end.unwrap_or_default()),
                Place::At(_) if bars => PointFault::NumberInBars,
                Place::In(_) if !bars => PointFault::CategoryOnAxis,
                Place::In(category) if !categories.insert(category) => PointFault::SameCategory,
                Place::At(x) if !drawable(*x) => PointFault::XNotFinite(*x),
                Place::At(x) if kind == FigureKind::LinesLog2 && *x <= 0.0 => {
                    PointFault::XNotPositive(*x)
                }
                Place::At(_) | Place::In(_) => continue,
            };
            return Err(ResultError::Point {
                figure: self.figure.clone(),
                design: self.design.clone(),
                index,
                what,
            });
        }
        Ok(())
    }
}
