//! Films as pictures that move: an SVG that plays wherever styles do, without scripts, and a page
//! in which it can be played, paused and scrubbed.
//!
//! The maps of a design stand one below the other in one small image, of which a window shows one
//! at a time: an animation moves the image by a map's height, and the counts and the line in the
//! course below with it. Where a reader wants no motion, and on paper, the last moment stands.

use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use swath_trace::output;

use crate::film::{COLUMNS, CellUse, FILM_STEM, Film, FilmFault, Reel, size};
use crate::report::axis::text_width;
use crate::report::error::ReportError;
use crate::report::figure::{FONT, GAP, LINE, WIDTH, clean, fit, stand_alone, wrap};
use crate::report::folder::check_page;
use crate::report::page::{Script, document};
use crate::report::palette::{AXIS, GRID, SURFACE, TEXT};

/// Moments shown in a second.
const MOMENTS_A_SECOND: f64 = 5.0;
/// Height of the largest map, in the picture's units.
const MAP_HEIGHT_MAX: f64 = 200.0;
/// Height of the course below a map.
const COURSE: f64 = 40.0;
/// Width of a legend's sample.
const SAMPLE: f64 = 14.0;

/// The colour of a use in both schemes; none where the ground shows.
const fn colour(cell: CellUse) -> Option<[u8; 3]> {
    match cell {
        CellUse::Absent | CellUse::Free => None,
        CellUse::Resting => Some([0x1f, 0x9d, 0x76]),
        CellUse::Sparse => Some([0x8c, 0xb8, 0xe0]),
        CellUse::Dense => Some([0x2a, 0x74, 0xb8]),
        CellUse::Unmovable => Some([0xdd, 0x60, 0x10]),
    }
}

/// The file of a study's film.
pub(crate) fn film_file() -> String {
    format!("{FILM_STEM}.svg")
}

/// A film as an `<svg>` element for a page that has the [stylesheet](crate::report::palette::stylesheet).
/// The same film gives the same bytes. O(cells of all maps).
pub(crate) fn draw(film: &Film) -> String {
    Picture::plan(film).draw().into_string()
}

/// A film as a file of its own.
pub fn svg(film: &Film) -> String {
    stand_alone(&draw(film))
}

/// A film and its controls as a part of a page that has [`Script::Film`]. `file` is the drawing's.
pub(crate) fn figure(film: &Film, file: Option<&str>) -> Markup {
    html! {
        figure.film #film data-film=[script_data(film)] {
            figcaption { strong { "Film" } " " (film.title) }
            (PreEscaped(draw(film)))
            @if !film.caption.is_empty() { p.caption { (film.caption) } }
            @if let Some(file) = file { p.files { a href=(file) { "SVG" } } }
        }
    }
}

/// Writes a film: a drawing if the file's name ends in `.svg`, else a page with controls.
///
/// # Errors
/// [`ReportError::Result`] if it is none, [`ReportError::Foreign`] if a page is there that is another
/// program's, [`ReportError::File`] if the file cannot be written.
pub fn write(path: &Path, film: &Film) -> Result<(), ReportError> {
    let refused =
        |fault: FilmFault| ReportError::Result { path: path.to_owned(), source: fault.into() };
    film.check().map_err(refused)?;
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    let text = if is_svg {
        svg(film)
    } else {
        check_page(path)?;
        let body = html! {
            header { h1 { "Physical memory over time" } }
            main { (figure(film, None)) }
        };
        document(&format!("Swath: {}", film.title), &[Script::Film], body).into_string()
    };
    output::replace(path, |file| file.write_all(text.as_bytes()))
        .map_err(|source| ReportError::File { path: path.to_owned(), source })
}

/// What the script needs: how long the film is, and each moment in words.
#[derive(Serialize)]
struct ScriptData<'f> {
    seconds: f64,
    moments: &'f [String],
    says: Vec<String>,
}

fn script_data(film: &Film) -> Option<String> {
    let counts: Vec<(&str, Vec<Free>)> =
        film.reels.iter().map(|reel| (reel.design.as_str(), free(reel))).collect();
    let says = (0..film.moments.len()).map(|nth| {
        let of = |(design, free): &(&str, Vec<Free>)| {
            let Free { cells, longest } = free[nth];
            let run = size(longest as u64 * film.cell_frames);
            format!("{design}: {cells} cells free, the longest run {run}")
        };
        counts.iter().map(of).collect::<Vec<_>>().join("; ")
    });
    let data = ScriptData { seconds: seconds(film), moments: &film.moments, says: says.collect() };
    serde_json::to_string(&data).ok()
}

fn seconds(film: &Film) -> f64 {
    film.moments.len() as f64 / MOMENTS_A_SECOND
}

/// The free cells of a map, and the longest run of them.
#[derive(Clone, Copy)]
struct Free {
    cells: usize,
    longest: usize,
}

/// The free cells at each moment.
fn free(reel: &Reel) -> Vec<Free> {
    let of = |map: &String| {
        let mut free = Free { cells: 0, longest: 0 };
        let mut run = 0;
        for cell in uses(map) {
            run = if cell.is_free() { run + 1 } else { 0 };
            free.cells += usize::from(cell.is_free());
            free.longest = free.longest.max(run);
        }
        free
    };
    reel.maps.iter().map(of).collect()
}

fn uses(map: &str) -> impl Iterator<Item = CellUse> {
    map.chars().map(|letter| CellUse::from_letter(letter).unwrap_or(CellUse::Absent))
}

/// Everything decided before the first line is drawn.
struct Picture<'f> {
    film: &'f Film,
    /// Rows of a map, and a cell's height.
    rows: usize,
    cell_height: f64,
    /// Designs side by side, and the width of each.
    columns: usize,
    width: f64,
    titles: Vec<Vec<String>>,
    title_lines: usize,
    /// The uses that occur: left edge, row, use.
    legend: Vec<(f64, usize, CellUse)>,
    /// Cells that are memory.
    present: usize,
}

impl<'f> Picture<'f> {
    fn plan(film: &'f Film) -> Self {
        let rows = film.cells().div_ceil(COLUMNS).max(1);
        let first = film.reels.first().and_then(|reel| reel.maps.first());
        let memory = |map: &String| uses(map).filter(|&cell| cell != CellUse::Absent).count();
        let columns = film.reels.len().clamp(1, 2);
        let width = (WIDTH - GAP * (columns + 1) as f64) / columns as f64;
        let wide = |reel: &Reel| wrap(&clean(&reel.design), width);
        let titles: Vec<Vec<String>> = film.reels.iter().map(wide).collect();
        let mut legend: Vec<(f64, usize, CellUse)> = Vec::new();
        let (mut x, mut row) = (GAP, 0);
        for cell in CellUse::ALL.into_iter().filter(|&cell| cell != CellUse::Absent) {
            let occurs = |map: &String| map.contains(cell.letter());
            if !film.reels.iter().any(|reel| reel.maps.iter().any(occurs)) {
                continue;
            }
            let wide = SAMPLE + 6.0 + text_width(cell.title());
            if x > GAP && x + wide > WIDTH - GAP {
                (x, row) = (GAP, row + 1);
            }
            legend.push((x, row, cell));
            x += wide + 2.0 * GAP;
        }
        Self {
            film,
            rows,
            cell_height: (MAP_HEIGHT_MAX / rows as f64).min(if columns == 1 { 8.0 } else { 5.0 }),
            columns,
            width,
            title_lines: titles.iter().map(Vec::len).max().unwrap_or(1),
            titles,
            legend,
            present: first.map_or(0, memory).max(1),
        }
    }

    fn moments(&self) -> usize {
        self.film.moments.len()
    }

    fn map_height(&self) -> f64 {
        self.cell_height * self.rows as f64
    }

    /// Height of a design: its name, its map, its count and its course.
    fn reel_height(&self) -> f64 {
        LINE * (self.title_lines + 2) as f64 + self.map_height() + COURSE + 2.0 * GAP
    }

    fn reels_top(&self) -> f64 {
        let rows = self.legend.last().map_or(0, |(_, row, _)| row + 1);
        GAP + LINE * rows as f64 + GAP
    }

    fn bottom(&self) -> f64 {
        let rows = self.film.reels.len().div_ceil(self.columns);
        self.reels_top() + rows as f64 * (self.reel_height() + GAP)
    }

    fn style(&self) -> String {
        let seconds = seconds(self.film);
        // The middle of the last moment.
        let late = seconds - 0.5 / MOMENTS_A_SECOND;
        format!(
            ".swath-film image{{image-rendering:pixelated}}\
             .swath-film .roll{{animation:swath-roll {seconds}s steps({}) infinite}}\
             @keyframes swath-roll{{to{{transform:translate(var(--x,0),var(--y,0))}}}}\
             @media (prefers-reduced-motion:reduce),print\
             {{.swath-film .roll{{animation-play-state:paused;animation-delay:-{late}s}}}}",
            self.moments()
        )
    }

    fn draw(&self) -> Markup {
        let height = self.bottom() + LINE + GAP;
        let film = self.film;
        html! {
            svg.swath-figure.swath-film viewBox={ "0 0 " (WIDTH) " " (number(height)) } role="img"
                font-size=(FONT) {
                title { "Physical memory over time: " (clean(&film.title)) }
                desc { (clean(&self.describe())) }
                style { (PreEscaped(self.style())) }
                rect width=(WIDTH) height=(number(height)) fill=(SURFACE.light_hex()) {}
                @for &(x, row, cell) in &self.legend {
                    @let y = GAP + LINE * row as f64;
                    rect x=(number(x)) y=(number(y + 3.0)) width=(SAMPLE) height=(SAMPLE)
                        fill=(colour(cell).map_or_else(|| GRID.light_hex(), hex)) {}
                    (text(x + SAMPLE + 6.0, y, "start", cell.title()))
                }
                @for (nth, reel) in film.reels.iter().enumerate() { (self.reel(nth, reel)) }
                (self.counter((GAP, self.bottom()), WIDTH - 2.0 * GAP, "middle", &film.moments))
            }
        }
    }

    /// A design: its name, its map, how many cells are free, and the course of their longest run.
    fn reel(&self, nth: usize, reel: &Reel) -> Markup {
        let left = GAP + (nth % self.columns) as f64 * (self.width + GAP);
        let top = self.reels_top() + (nth / self.columns) as f64 * (self.reel_height() + GAP);
        let map_top = top + LINE * self.title_lines as f64;
        let count_top = map_top + self.map_height() + 2.0;
        let (free, moments) = (free(reel), self.moments());
        let count = |free: &Free| format!("{} of {} free", free.cells, self.present);
        let longest = |free: &Free| {
            format!("longest run {}", size(free.longest as u64 * self.film.cell_frames))
        };
        let shift = self.map_height() * moments as f64;
        let course_top = count_top + 2.0 * LINE + 2.0;
        html! {
            @for (row, line) in self.titles[nth].iter().enumerate() {
                (text(left, top + LINE * row as f64, "start", line))
            }
            svg x=(number(left)) y=(number(map_top)) width=(number(self.width))
                height=(number(self.map_height())) {
                rect width="100%" height="100%" fill=(GRID.light_hex()) {}
                g.roll style={ "--y:-" (number(shift)) "px" } {
                    image width=(number(self.width)) height=(number(shift)) preserveAspectRatio="none"
                        href={ "data:image/png;base64," (self.image(reel)) } {}
                }
                (self.absent(reel))
            }
            @let counts = free.iter().map(count).collect::<Vec<_>>();
            (self.counter((left, count_top), self.width, "start", &counts))
            @let runs = free.iter().map(longest).collect::<Vec<_>>();
            (self.counter((left, count_top + LINE), self.width, "start", &runs))
            svg x=(number(left)) y=(number(course_top)) width=(number(self.width)) height=(number(COURSE)) {
                rect width="100%" height="100%" fill=(GRID.light_hex()) {}
                polygon points=(self.course(&free)) fill=(AXIS.light_hex()) {}
                g.roll style={ "--x:" (number(self.width)) "px" } {
                    rect width=(number(self.width / moments as f64)) height="100%"
                        fill=(TEXT.light_hex()) opacity="0.55" {}
                }
            }
        }
    }

    /// One of these texts at a time.
    fn counter(&self, at: (f64, f64), width: f64, anchor: &str, texts: &[String]) -> Markup {
        let x = if anchor == "middle" { width / 2.0 } else { 0.0 };
        html! {
            svg x=(number(at.0)) y=(number(at.1)) width=(number(width)) height=(LINE) {
                g.roll style={ "--y:-" (number(LINE * texts.len() as f64)) "px" } {
                    @for (nth, one) in texts.iter().enumerate() {
                        (text(x, LINE * nth as f64, anchor, &fit(&clean(one), width)))
                    }
                }
            }
        }
    }

    /// The longest run over time as a share of memory: a step for each moment.
    fn course(&self, free: &[Free]) -> String {
        let step = self.width / free.len() as f64;
        let mut points = format!("0,{COURSE}");
        for (nth, one) in free.iter().enumerate() {
            let y = number(COURSE * (1.0 - one.longest as f64 / self.present as f64));
            let (from, to) = (step * nth as f64, step * (nth + 1) as f64);
            points += &format!(" {},{y} {},{y}", number(from), number(to));
        }
        format!("{points} {},{COURSE}", number(self.width))
    }

    /// Covers the cells that are no memory: they are the same at every moment.
    fn absent(&self, reel: &Reel) -> Markup {
        let Some(map) = reel.maps.first() else { return html! {} };
        let mut cells: Vec<CellUse> = uses(map).collect();
        cells.resize(self.rows * COLUMNS, CellUse::Absent);
        let cell_width = self.width / COLUMNS as f64;
        let mut path = String::new();
        for (row, cells) in cells.chunks(COLUMNS).enumerate() {
            let mut column = 0;
            for run in cells.chunk_by(|one, two| one == two) {
                if run[0] == CellUse::Absent {
                    path += &format!(
                        "M{} {}h{}v{}h-{}z",
                        number(cell_width * column as f64),
                        number(self.cell_height * row as f64),
                        number(cell_width * run.len() as f64),
                        number(self.cell_height),
                        number(cell_width * run.len() as f64),
                    );
                }
                column += run.len();
            }
        }
        html! { @if !path.is_empty() { path d=(path) fill=(SURFACE.light_hex()) {} } }
    }

    /// The maps one below the other, a pixel for each cell, as PNG in base 64.
    fn image(&self, reel: &Reel) -> String {
        let mut pixels = Vec::with_capacity(self.rows * COLUMNS / 2 * self.moments());
        for map in &reel.maps {
            let mut cells: Vec<CellUse> = uses(map).collect();
            cells.resize(self.rows * COLUMNS, CellUse::Absent);
            pixels.extend(cells.chunks(2).map(|pair| (pair[0] as u8) << 4 | pair[1] as u8));
        }
        let height = (self.rows * self.moments()) as u32;
        let palette = CellUse::ALL.map(|cell| colour(cell).unwrap_or_default());
        let clear = CellUse::ALL.map(|cell| if colour(cell).is_some() { 255 } else { 0 });
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, COLUMNS as u32, height);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Four);
        encoder.set_palette(palette.concat());
        encoder.set_trns(clear.to_vec());
        encoder.set_compression(png::Compression::High);
        encoder.set_filter(png::Filter::NoFilter);
        let written = encoder.write_header().and_then(|mut png| png.write_image_data(&pixels));
        debug_assert!(written.is_ok(), "a picture in memory: {written:?}");
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    /// The film in words, for those who cannot see it.
    fn describe(&self) -> String {
        let (first, last) = (self.film.moments.first(), self.film.moments.last());
        let mut text = format!(
            "A map of memory with {} cells of {} at {} moments, from {} to {}.",
            self.present,
            size(self.film.cell_frames),
            self.moments(),
            first.map_or("", String::as_str),
            last.map_or("", String::as_str),
        );
        for reel in &self.film.reels {
            let runs: Vec<usize> = free(reel).iter().map(|free| free.longest).collect();
            let show = |run: Option<&usize>| {
                size(run.map_or(0, |&run| run as u64) * self.film.cell_frames)
            };
            text += &format!(
                " {}: the longest free run from {} to {}, {} at the end.",
                reel.design,
                show(runs.iter().min()),
                show(runs.iter().max()),
                show(runs.last()),
            );
        }
        text
    }
}

fn text(x: f64, top: f64, anchor: &str, words: &str) -> Markup {
    html! {
        text x=(number(x)) y=(number(top + 0.72 * LINE)) text-anchor=(anchor)
            fill=(TEXT.light_hex()) { (clean(words)) }
    }
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// In hundredths: finer than a picture shows.
fn number(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
