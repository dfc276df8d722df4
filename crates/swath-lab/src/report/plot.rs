//! The data of a figure for the script that draws it anew, or reads its values, where scripts run.

use serde::Serialize;

use crate::report::figure::{Layout, layout};
use crate::report::palette::Palette;
use crate::report::thin::thin;
use crate::study::results::{Claim, Figure, FigureKind, PaperFigure, Place, Point, Series, Unit};

/// A figure with numbers on both axes.
#[derive(Serialize)]
struct Plot<'f> {
    x: &'f str,
    y: &'f str,
    log: bool,
    cloud: bool,
    range: Option<(f64, f64)>,
    series: Vec<Line<'f>>,
    marks: Vec<Mark>,
}

#[derive(Serialize)]
struct Line<'f> {
    name: &'f str,
    light: String,
    dark: &'static str,
    points: Vec<Vec<f64>>,
}

/// A drawing of bars, or of a map's cells, in which values are read.
#[derive(Serialize)]
struct Cells<'f> {
    x: &'f str,
    /// Left edge, top, width and height of the drawing's inside.
    inside: [i32; 4],
    /// The names of bars' groups; of a map there are none.
    names: Vec<&'f str>,
    /// The ends of a map's x axis.
    range: (f64, f64),
    series: Vec<Row<'f>>,
}

#[derive(Serialize)]
struct Row<'f> {
    name: &'f str,
    /// The group's number or x, the value, and the ends of its interval.
    points: Vec<Vec<f64>>,
}

/// Returns the values of a figure of bars or a map as JSON, with their places in its drawing; nothing
/// for other figures, and for one without points. O(p c) with p points and c categories.
pub(crate) fn cells(figure: &Figure, series: &[Series], palette: &Palette) -> Option<String> {
    if !matches!(figure.kind, FigureKind::Bars | FigureKind::Map) {
        return None;
    }
    let mine: Vec<&Series> = series.iter().filter(|one| one.figure == figure.id).collect();
    if mine.iter().all(|one| one.points.is_empty()) {
        return None;
    }
    let Layout { inside, x, categories } = layout(figure, mine.clone(), palette);
    let row = |one: &&'_ Series| {
        let at = |point: &Point| match &point.x {
            Place::At(x) => Some(*x),
            Place::In(name) => categories.iter().position(|one| one == name).map(|nth| nth as f64),
        };
        let points = one.points.iter().filter_map(|point| Some(values(at(point)?, point)));
        points.collect()
    };
    let rows: Vec<Vec<Vec<f64>>> = mine.iter().map(row).collect();
    let names = mine.iter().map(|one| one.design.as_str());
    let series = names.zip(rows).map(|(name, points)| Row { name, points }).collect();
    let cells = Cells { x: &figure.x_label, inside, names: categories, range: x, series };
    serde_json::to_string(&cells).ok()
}

/// A number of the paper on the y axis.
#[derive(Serialize)]
struct Mark {
    y: f64,
    says: String,
}

/// The data of a figure as JSON; none for bars, maps and tables, and for lines that go back.
/// `claims` are those that the figure shows. O(p log p) with p points.
pub(crate) fn data(
    figure: &Figure,
    series: &[Series],
    claims: &[&Claim],
    palette: &Palette,
) -> Option<String> {
    let is_line = matches!(figure.kind, FigureKind::Lines | FigureKind::LinesLog2);
    if !is_line && figure.kind != FigureKind::Scatter {
        return None;
    }
    let mine: Vec<&Series> = series.iter().filter(|one| one.figure == figure.id).collect();
    let mut lines = Vec::new();
    for one in &mine {
        let mut points: Vec<Vec<f64>> =
            thin(one, figure.kind).points.iter().filter_map(numbers).collect();
        if !is_line {
            points.sort_by(|one, two| one[0].total_cmp(&two[0]));
        } else if !points.is_sorted_by(|one, two| one[0] < two[0]) {
            return None;
        }
        let ink = palette.style(&one.design).ink;
        lines.push(Line { name: &one.design, light: ink.light_hex(), dark: ink.dark, points });
    }
    let marks = claims.iter().filter_map(|claim| mark(claim, &mine)).collect();
    let plot = Plot {
        x: &figure.x_label,
        y: &figure.y_label,
        log: figure.kind == FigureKind::LinesLog2,
        cloud: !is_line,
        range: figure.y_range,
        series: lines,
        marks,
    };
    serde_json::to_string(&plot).ok()
}

/// x, y and the ends of the interval, in six digits: more than a picture shows.
fn numbers(point: &Point) -> Option<Vec<f64>> {
    let Place::At(x) = point.x else { return None };
    Some(values(x, point))
}

fn values(x: f64, point: &Point) -> Vec<f64> {
    let ends = point.spread.and_then(|spread| spread.interval).filter(|(low, high)| low < high);
    let ends = ends.into_iter().flat_map(|(low, high)| [low, high]);
    [x, point.y].into_iter().chain(ends).map(short).collect()
}

fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The paper's number, where it is one of the quantity that the figure shows: the claim is measured
/// by one selection of it, not by a ratio or a gain of two.
fn mark(claim: &Claim, series: &[&Series]) -> Option<Mark> {
    let PaperFigure::Value(y) = claim.paper() else { return None };
    let (_, quantity) = claim.source().rsplit_once("; ")?;
    let is_alone =
        claim.source().matches("; ").count() == 1 && !claim.source().contains(" against ");
    let is_shown = series.iter().any(|one| one.y == quantity);
    let is_plain = claim.unit() != Unit::Ratio;
    (is_alone && is_shown && is_plain)
        .then(|| Mark { y, says: format!("paper: {}", claim.paper().show(claim.unit())) })
}
