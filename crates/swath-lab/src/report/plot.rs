//! The data of a figure for the script that draws it anew where scripts run.

use serde::Serialize;

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
    let ends = point.spread.and_then(|spread| spread.interval).filter(|(low, high)| low < high);
    let ends = ends.into_iter().flat_map(|(low, high)| [low, high]);
    Some([x, point.y].into_iter().chain(ends).map(short).collect())
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
