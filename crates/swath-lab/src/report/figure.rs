//! Figures as SVG, drawn like the paper's.
//!
//! A drawing carries the colours of the light scheme as plain attributes, so
//! any viewer shows it. [`stylesheet`] holds one rule for each colour that
//! replaces it where the reader's system is dark; the report has these rules
//! once, a [stand-alone](stand_alone) file carries them itself.
//!
//! All lengths here are in units of the picture: it is [`WIDTH`] units wide,
//! about as wide as a phone, so that text of [`FONT`] units is still readable
//! there. The picture's own coordinates are tenths of a unit, because the
//! drawing library places everything on whole coordinates.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use crate::report::palette::{Palette, stylesheet};

use crate::report::axis::{Axis, char_width, extent, text_width};
use crate::report::palette::{AXIS, GRID, Marker, SURFACE, Style, TEXT};
use crate::report::paths::merge;
use crate::report::thin::thin;
use crate::study::results::{Figure, FigureKind, Place, Point, ResultError, Series};

/// Width of every picture in units.
pub const WIDTH: f64 = 400.0;
/// Size of all text in units.
pub const FONT: f64 = 15.0;

/// Coordinates in a unit.
const FINE: f64 = 10.0;
/// From one line of text to the next.
pub(crate) const LINE: f64 = 20.0;
/// Free space around the picture and between its parts.
pub(crate) const GAP: f64 = 8.0;
/// Height of the plot itself.
const PLOT: f64 = 230.0;
/// The most markers on one line.
const MARKERS_MAX: usize = 16;
/// Longest category label that is still written out when it stands upright.
const UPRIGHT_MAX: f64 = 200.0;

/// A figure that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A series does not fit the figure.
    #[error(transparent)]
    Data(#[from] ResultError),
    /// The drawing library failed.
    #[error("figure {figure:?} cannot be drawn: {why}")]
    Drawing {
        /// The figure's id.
        figure: String,
        /// The library's words.
        why: String,
    },
}

/// Draws `figure` from those of `series` that belong to it, as an `<svg>`
/// element for a page that has the [`stylesheet`]. The same input gives the
/// same bytes. O(p) with p points.
///
/// # Errors
/// [`FigureError::Data`] if a point is not finite or does not fit the kind of
/// figure.
pub fn draw(figure: &Figure, series: &[Series], palette: &Palette) -> Result<String, FigureError> {
    let mut mine = Vec::new();
    for one in series.iter().filter(|s| s.figure == figure.id) {
        one.check(figure.kind)?;
        mine.push(thin(one, figure.kind));
    }
    let picture = Picture::plan(figure, mine.iter().collect(), palette);
    let mut svg = String::new();
    picture.draw(&mut svg).map_err(|error| FigureError::Drawing {
        figure: figure.id.clone(),
        why: error.to_string(),
    })?;
    Ok(picture.finish(&svg))
}

/// The place of the bars or cells of a drawing, in the coordinates of its view box.
pub(crate) struct Layout<'a> {
    /// Left edge, top, width and height.
    pub(crate) inside: [i32; 4],
    /// The lowest and the highest x.
    pub(crate) x: (f64, f64),
    /// The categories of bars, in their order; empty for cells.
    pub(crate) categories: Vec<&'a str>,
}

/// Returns the place of the bars or cells that [`draw`] draws of these series, which are the figure's.
pub(crate) fn layout<'a>(
    figure: &'a Figure,
    series: Vec<&'a Series>,
    palette: &'a Palette,
) -> Layout<'a> {
    let picture = Picture::plan(figure, series, palette);
    let width = WIDTH - picture.left - 2.0 * GAP;
    let inside = [picture.left, picture.plot_top(), width, PLOT].map(fine);
    Layout { inside, x: (picture.x.low, picture.x.high), categories: picture.categories }
}

/// The drawing as a file of its own: with the namespace that XML asks for,
/// and the [`stylesheet`] inside.
pub fn stand_alone(svg: &str) -> String {
    let head = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    let svg = svg.replacen("<svg", head, 1);
    let css = format!("<style>{}</style>\n", stylesheet());
    match svg.find("<rect") {
        Some(at) => format!("{}{css}{}\n", &svg[..at], &svg[at..]),
        None => svg,
    }
}

/// Units to coordinates.
fn fine(units: f64) -> i32 {
    (units * FINE).round() as i32
}

/// Words of `text` in lines of at most `width` units; a longer word is cut.
pub(crate) fn wrap(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + char_width(' ') + text_width(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, width)),
        }
    }
    lines
}

/// `text`, cut with an ellipsis if it is wider than `width`.
pub(crate) fn fit(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut room = width - char_width('…');
    let fits = |c: &char| {
        room -= char_width(*c);
        room >= 0.0
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

/// Characters that XML forbids, even escaped, become replacement characters.
pub(crate) fn clean(text: &str) -> String {
    let bad = |c: char| (c.is_control()) || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars()
        .map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            c if bad(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// A piece of the legend.
struct LegendEntry {
    /// The series whose sample stands before it; none before the rest of a name.
    sample: Option<usize>,
    /// Its left edge.
    x: f64,
    name: String,
}

/// Everything decided before the first line is drawn.
struct Picture<'a> {
    figure: &'a Figure,
    series: Vec<&'a Series>,
    palette: &'a Palette,
    /// Row by row.
    legend: Vec<Vec<LegendEntry>>,
    x_title: Vec<String>,
    y_title: Vec<String>,
    x: Axis,
    y: Axis,
    /// Categories of bars in order of appearance, else empty.
    categories: Vec<&'a str>,
    /// Lines of each category's label, or `None` if they stand upright.
    category_lines: Option<Vec<Vec<String>>>,
    left: f64,
    /// Height below the plot for tick or category labels.
    below: f64,
}

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl<'a> Picture<'a> {
    fn plan(figure: &'a Figure, series: Vec<&'a Series>, palette: &'a Palette) -> Self {
        let points = || series.iter().flat_map(|s| &s.points);
        let mut categories: Vec<&str> = Vec::new();
        let mut xs = Vec::new();
        for point in points() {
            match &point.x {
                Place::At(x) => xs.push(*x),
                Place::In(name) if !categories.contains(&name.as_str()) => categories.push(name),
                Place::In(_) => {}
            }
        }
        let whole = |point: &Point| {
            let ends = point.spread.and_then(|spread| spread.interval);
            ends.map_or([point.y, point.y], |(low, high)| [low.min(point.y), high.max(point.y)])
        };
        let ys: Vec<f64> = points().flat_map(whole).collect();
        let y = match figure.kind {
            FigureKind::Map => Axis::categories(series.len()),
            _ => Axis::y(figure, &ys),
        };
        let widest = y.ticks.iter().map(|(_, label)| text_width(label));
        let left = (widest.fold(0.0, f64::max) + 14.0).max(40.0);
        let inside = WIDTH - left - 2.0 * GAP;
        let x = match figure.kind {
            FigureKind::Bars | FigureKind::Table => Axis::categories(categories.len()),
            FigureKind::Map => Axis::cells(&xs, inside),
            FigureKind::Lines | FigureKind::LinesLog2 | FigureKind::Scatter => {
                Axis::x(figure, &xs, inside)
            }
        };
        let slot = inside / categories.len().max(1) as f64;
        let fits = |name: &&str| name.split_whitespace().all(|w| text_width(w) <= slot - 6.0);
        let category_lines = categories.iter().all(fits).then(|| {
            let lines = categories.iter().map(|name| wrap(&clean(name), slot - 6.0));
            lines.collect::<Vec<_>>()
        });
        let below = match &category_lines {
            _ if categories.is_empty() => LINE + GAP,
            Some(all) => 2.0 * GAP + LINE * all.iter().map(Vec::len).max().unwrap_or(1) as f64,
            None => {
                let widths = categories.iter().map(|name| text_width(name));
                2.0 * GAP + widths.fold(0.0, f64::max).min(UPRIGHT_MAX)
            }
        };
        Self {
            figure,
            legend: legend(&series, swatch(figure.kind)),
            x_title: wrap(&clean(&figure.x_label), WIDTH - 2.0 * GAP),
            y_title: wrap(&clean(&figure.y_label), WIDTH - 2.0 * GAP),
            series,
            palette,
            x,
            y,
            categories,
            category_lines,
            left,
            below,
        }
    }

    fn title_top(&self) -> f64 {
        GAP + LINE * self.legend.len() as f64 + GAP / 2.0
    }

    fn plot_top(&self) -> f64 {
        self.title_top() + LINE * self.y_title.len() as f64 + GAP
    }

    fn height(&self) -> f64 {
        self.plot_top() + PLOT + self.below + LINE * self.x_title.len() as f64 + GAP
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let size = (fine(WIDTH) as u32, fine(self.height()) as u32);
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        root.fill(&SURFACE.light)?;
        self.draw_legend(&root)?;
        for (row, line) in self.y_title.iter().enumerate() {
            let y = self.title_top() + LINE * (row as f64 + 0.5);
            write(&root, line, (GAP, y), HPos::Left)?;
        }
        let bottom = self.plot_top() + PLOT + self.below;
        for (row, line) in self.x_title.iter().enumerate() {
            let at = (self.middle(), bottom + LINE * (row as f64 + 0.5));
            write(&root, line, at, HPos::Center)?;
        }
        let area =
            root.clone().shrink((0, fine(self.plot_top())), (fine(WIDTH), fine(PLOT + LINE + GAP)));
        let mut chart = ChartBuilder::on(&area)
            .margin_right(fine(2.0 * GAP))
            .x_label_area_size(fine(LINE + GAP))
            .y_label_area_size(fine(self.left))
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(GRID.light.stroke_width(fine(1.0) as u32))
            .axis_style(AXIS.light.stroke_width(fine(1.0) as u32))
            .label_style(font())
            .set_all_tick_mark_size(fine(3.5))
            .draw()?;
        if self.series.iter().all(|s| s.points.is_empty()) {
            let at = (self.middle(), self.plot_top() + PLOT / 2.0);
            write(&root, "no data", at, HPos::Center)?;
        }
        match self.figure.kind {
            FigureKind::Bars | FigureKind::Table => {
                self.draw_bars(&mut chart)?;
                self.draw_categories(&root)?;
            }
            FigureKind::Map => self.draw_cells(&mut chart)?,
            FigureKind::Lines | FigureKind::LinesLog2 | FigureKind::Scatter => {
                self.draw_points(&mut chart)?;
            }
        }
        drop(chart);
        root.present()
    }

    fn middle(&self) -> f64 {
        self.left + (WIDTH - self.left - 2.0 * GAP) / 2.0
    }

    fn draw_legend(&self, root: &Root<'_>) -> Drawn {
        let swatch = swatch(self.figure.kind);
        for (row, entries) in self.legend.iter().enumerate() {
            let y = GAP + LINE * (row as f64 + 0.5);
            for LegendEntry { sample, x, name } in entries {
                write(root, name, (x + swatch + 6.0, y), HPos::Left)?;
                let Some(index) = sample else { continue };
                let style = self.palette.style(&self.series[*index].design);
                let at = (fine(x + swatch / 2.0), fine(y));
                match self.figure.kind {
                    FigureKind::Bars | FigureKind::Map | FigureKind::Table => {
                        let half = fine(6.0);
                        let corners = [(at.0 - half, at.1 - half), (at.0 + half, at.1 + half)];
                        root.draw(&Rectangle::new(corners, style.ink.light.filled()))?;
                    }
                    kind => {
                        if kind != FigureKind::Scatter {
                            let line = vec![(fine(*x), at.1), (fine(x + swatch), at.1)];
                            root.draw(&PathElement::new(line, stroke(style)))?;
                        }
                        root.draw(&marker(at, style))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn draw_points(&self, chart: &mut Chart<'_, '_>) -> Drawn {
        let place = |x: f64| match self.figure.kind {
            FigureKind::LinesLog2 => x.log2(),
            _ => x,
        };
        for one in &self.series {
            let style = self.palette.style(&one.design);
            let points: Vec<(f64, f64)> = one
                .points
                .iter()
                .filter_map(|point| match &point.x {
                    Place::At(x) => Some((place(*x), point.y)),
                    Place::In(_) => None,
                })
                .collect();
            let whiskers = one.points.iter().filter_map(|point| match (&point.x, whisker(point)) {
                (Place::At(x), Some((low, high))) => Some(PathElement::new(
                    vec![(place(*x), low), (place(*x), high)],
                    style.ink.light.stroke_width(fine(1.0) as u32),
                )),
                _ => None,
            });
            chart.draw_series(whiskers)?;
            if self.figure.kind != FigureKind::Scatter && points.len() > 1 {
                chart.draw_series(LineSeries::new(points.iter().copied(), stroke(style)))?;
            }
            // On a long line markers would hide it; a few still tell it from others.
            let step = match self.figure.kind {
                FigureKind::Scatter => 1,
                _ => points.len().div_ceil(MARKERS_MAX).max(1),
            };
            chart.draw_series(
                points.iter().step_by(step).map(|&at| EmptyElement::at(at) + marker((0, 0), style)),
            )?;
        }
        Ok(())
    }

    /// The first design's row is the upper one; an empty cell is not drawn.
    fn draw_cells(&self, chart: &mut Chart<'_, '_>) -> Drawn {
        let (low, high) = self.figure.y_range.unwrap_or((0.0, 1.0));
        for (index, one) in self.series.iter().enumerate() {
            let ink = self.palette.style(&one.design).ink.light;
            let top = (self.series.len() - index) as f64 - 0.1;
            let cells = one.points.iter().filter_map(|point| {
                let Place::At(x) = &point.x else {
                    return None;
                };
                let full = ((point.y - low) / (high - low)).clamp(0.0, 1.0);
                // Even the least use is to be seen.
                let shade = if full > 0.0 { 0.15 + 0.85 * full } else { return None };
                let corners = [(*x, top - 0.8), (x + 1.0, top)];
                Some(Rectangle::new(corners, ink.mix((shade * 50.0).round() / 50.0).filled()))
            });
            chart.draw_series(cells)?;
        }
        Ok(())
    }

    fn draw_bars(&self, chart: &mut Chart<'_, '_>) -> Drawn {
        let base = 0f64.clamp(self.y.low, self.y.high);
        // A fifth of each slot stays free between the groups.
        let width = 0.8 / self.series.len().max(1) as f64;
        for (index, one) in self.series.iter().enumerate() {
            let style = self.palette.style(&one.design).ink.light.filled();
            let bars = one.points.iter().filter_map(|point| {
                let Place::In(name) = &point.x else {
                    return None;
                };
                let slot = self.categories.iter().position(|c| c == name)?;
                let left = slot as f64 + 0.1 + width * index as f64;
                let corners = [(left + width * 0.06, base), (left + width * 0.94, point.y)];
                Some(Rectangle::new(corners, style))
            });
            chart.draw_series(bars)?;
            let whiskers = one.points.iter().filter_map(|point| {
                let (Place::In(name), Some((low, high))) = (&point.x, whisker(point)) else {
                    return None;
                };
                let slot = self.categories.iter().position(|c| c == name)?;
                let middle = slot as f64 + 0.1 + width * (index as f64 + 0.5);
                Some(PathElement::new(
                    vec![(middle, low), (middle, high)],
                    TEXT.light.stroke_width(fine(1.0) as u32),
                ))
            });
            chart.draw_series(whiskers)?;
        }
        Ok(())
    }

    fn draw_categories(&self, root: &Root<'_>) -> Drawn {
        let slot = (WIDTH - self.left - 2.0 * GAP) / self.categories.len().max(1) as f64;
        let top = self.plot_top() + PLOT + GAP;
        for (index, name) in self.categories.iter().enumerate() {
            let x = self.left + slot * (index as f64 + 0.5);
            match &self.category_lines {
                Some(lines) => {
                    for (row, line) in lines[index].iter().enumerate() {
                        let y = top + LINE * (row as f64 + 0.5);
                        write(root, line, (x, y), HPos::Center)?;
                    }
                }
                None => {
                    let upright = font()
                        .transform(FontTransform::Rotate270)
                        .pos(Pos::new(HPos::Right, VPos::Center));
                    let name = fit(&clean(name), UPRIGHT_MAX);
                    root.draw(&Text::new(name, (fine(x), fine(top)), upright))?;
                }
            }
        }
        Ok(())
    }

    /// Gives the library's output the head of an element for a page, and takes
    /// the line breaks out of its text.
    fn finish(&self, svg: &str) -> String {
        let body = svg.split_once('>').map_or("", |(_, body)| body);
        let body = body
            .replace("\">\n", "\">")
            .replace("\n</text>", "</text>")
            .replace(" \"/>", "\"/>")
            .replace(" font-family=\"sans-serif\"", "")
            .replace("opacity=\"1\" ", "");
        let (width, height) = (fine(WIDTH), fine(self.height()));
        let escape = |text: &str| maud::html! { (clean(text)) }.into_string();
        format!(
            "<svg class=\"swath-figure\" viewBox=\"0 0 {width} {height}\" role=\"img\">\
             <title>{}</title><desc>{}</desc>{}",
            escape(&format!("{}: {}", self.figure.id, self.figure.title)),
            escape(&self.describe()),
            merge(body.trim_start()),
        )
        .trim_end()
        .to_owned()
    }

    /// The figure in words, for those who cannot see it.
    fn describe(&self) -> String {
        let kind = match self.figure.kind {
            FigureKind::Lines => "Lines",
            FigureKind::LinesLog2 => "Lines over a logarithmic x axis",
            FigureKind::Bars | FigureKind::Table => "Bars",
            FigureKind::Scatter => "Points",
            FigureKind::Map => "A row of cells for each design, fuller for more",
        };
        let mut text = format!("{kind}. x: {}. y: {}.", self.figure.x_label, self.figure.y_label);
        for one in &self.series {
            let ys: Vec<f64> = one.points.iter().map(|point| point.y).collect();
            let show = |value| crate::study::results::Unit::Number.show(value);
            text += &match extent(&ys) {
                None => format!(" {}: no data.", one.design),
                Some((low, high)) => format!(
                    " {}: {} points, y from {} to {}.",
                    one.design,
                    ys.len(),
                    show(low),
                    show(high)
                ),
            };
        }
        text
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Width of the sample before a name in the legend: a piece of line, or only
/// a marker or a square.
fn swatch(kind: FigureKind) -> f64 {
    match kind {
        FigureKind::Lines | FigureKind::LinesLog2 => 28.0,
        FigureKind::Bars | FigureKind::Scatter | FigureKind::Map | FigureKind::Table => 14.0,
    }
}

/// Puts the designs' names into rows. A name that is wider than the picture
/// goes on in rows of its own, without a sample.
fn legend(series: &[&Series], swatch: f64) -> Vec<Vec<LegendEntry>> {
    let mut rows: Vec<Vec<LegendEntry>> = Vec::new();
    let mut x = WIDTH;
    for (index, one) in series.iter().enumerate() {
        let mut sample = Some(index);
        for name in wrap(&clean(&one.design), WIDTH - 2.0 * GAP - swatch - 6.0) {
            let width = swatch + 6.0 + text_width(&name);
            if sample.is_none() || x + width > WIDTH - GAP {
                rows.push(Vec::new());
                x = GAP;
            }
            if let Some(row) = rows.last_mut() {
                row.push(LegendEntry { sample: sample.take(), x, name });
            }
            x += width + 2.0 * GAP;
        }
    }
    rows
}

fn font() -> TextStyle<'static> {
    // The library divides sizes by 1.24 when it writes them.
    let size = FONT * FINE * 1.24;
    TextStyle::from(("sans-serif", size).into_font()).color(&TEXT.light)
}

/// Writes one line around `at` (units), which is its middle in height.
fn write(root: &Root<'_>, text: &str, at: (f64, f64), side: HPos) -> Drawn {
    let style = font().pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text.to_owned(), (fine(at.0), fine(at.1)), style))
}

/// Ends of a point's interval; none if it has no width.
fn whisker(point: &Point) -> Option<(f64, f64)> {
    point.spread.and_then(|spread| spread.interval).filter(|(low, high)| low < high)
}

fn stroke(style: &Style) -> ShapeStyle {
    style.ink.light.stroke_width(fine(2.0) as u32)
}

/// A marker around `at` (coordinates).
fn marker<'b>(at: (i32, i32), style: &Style) -> DynElement<'static, SVGBackend<'b>, (i32, i32)> {
    let corner = |(x, y): (f64, f64)| (at.0 + fine(x), at.1 + fine(y));
    let shape = |corners: &[(f64, f64)]| -> Vec<(i32, i32)> {
        corners.iter().copied().map(corner).collect()
    };
    let corners: Vec<(i32, i32)> = match style.marker {
        Marker::Circle => {
            let radius = fine(5.0);
            let line = ShapeStyle { filled: style.filled, ..stroke(style) };
            return Circle::new(at, radius, line).into_dyn();
        }
        Marker::Square => shape(&[(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)]),
        Marker::Triangle => shape(&[(0.0, -6.0), (5.5, 4.0), (-5.5, 4.0)]),
        Marker::TriangleDown => shape(&[(0.0, 6.0), (5.5, -4.0), (-5.5, -4.0)]),
        Marker::Diamond => shape(&[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)]),
        Marker::Cross => shape(&[
            (0.0, 0.0),
            (-4.5, -4.5),
            (0.0, 0.0),
            (4.5, -4.5),
            (0.0, 0.0),
            (4.5, 4.5),
            (0.0, 0.0),
            (-4.5, 4.5),
        ]),
        Marker::Plus => shape(&[
            (0.0, 0.0),
            (0.0, -6.0),
            (0.0, 0.0),
            (6.0, 0.0),
            (0.0, 0.0),
            (0.0, 6.0),
            (0.0, 0.0),
            (-6.0, 0.0),
        ]),
        Marker::Hexagon => {
            shape(&[(-5.5, 0.0), (-2.8, -4.9), (2.8, -4.9), (5.5, 0.0), (2.8, 4.9), (-2.8, 4.9)])
        }
        Marker::Hourglass => shape(&[(-4.5, -5.0), (4.5, -5.0), (-4.5, 5.0), (4.5, 5.0)]),
        Marker::Bowtie => shape(&[(-5.0, -4.5), (5.0, 4.5), (5.0, -4.5), (-5.0, 4.5)]),
    };
    if style.filled {
        return Polygon::new(corners, style.ink.light.filled()).into_dyn();
    }
    let closed: Vec<(i32, i32)> = corners.iter().chain(corners.first()).copied().collect();
    PathElement::new(closed, stroke(style)).into_dyn()
}
