//! A study as a page that needs nothing but itself, and the frame of every page.
//!
//! Style, drawings and scripts stand in the page, and its own policy forbids the browser to load
//! anything or to run any other script. Without scripts it shows the same: they draw lines and points
//! anew with values, zoom and a legend to switch by, and read the values of bars and maps. The only links that leave it go to the report's
//! other pages and to the study's files beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::claims::{self, figure_anchor, figure_of};
use crate::report::figure::{
    FigureError, Palette, {self},
};
use crate::report::write::{StudyResults, palette};
use crate::report::{film, plot};
use crate::study::results::{
    Claim, Figure, FigureKind, HostResult, Place, Point, Series, StudyResult, Tally, Unit,
};

/// The words by which a page of this program is known.
pub(crate) const MARK: &str = "<meta name=\"generator\" content=\"swath\">";

const STYLE: &str = include_str!("../../assets/report.css");

/// A script, allowed by the word that the policy has for it.
#[derive(Clone, Copy)]
pub(crate) enum Script {
    /// The search over all claims.
    Search,
    /// Figures to work with.
    Figures,
    /// The controls of a film.
    Film,
}

/// What the policy asks of a script before it runs: text that a result brings has it not.
const NONCE: &str = "swath";

impl Script {
    fn show(self) -> Markup {
        html! {
            @match self {
                Self::Search => {
                    script nonce=(NONCE) { (PreEscaped(include_str!("../../assets/search.js"))) }
                }
                Self::Figures => {
                    style { (PreEscaped(include_str!("../../assets/uplot/uPlot.min.css"))) }
                    script nonce=(NONCE) {
                        (PreEscaped(include_str!("../../assets/uplot/uPlot.iife.min.js")))
                    }
                    script nonce=(NONCE) { (PreEscaped(include_str!("../../assets/figures.js"))) }
                }
                Self::Film => {
                    script nonce=(NONCE) { (PreEscaped(include_str!("../../assets/film.js"))) }
                }
            }
        }
    }
}

/// The file of a study's page, from the report's directory.
pub(crate) fn page_file(study: &str) -> String {
    format!("{study}.html")
}

/// A page of this program that needs nothing but itself.
pub(crate) fn document(title: &str, scripts: &[Script], body: Markup) -> Markup {
    let allowed =
        if scripts.is_empty() { String::new() } else { format!("; script-src 'nonce-{NONCE}'") };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content={ "default-src 'none'; style-src 'unsafe-inline'; img-src data:" (allowed) };
                meta name="generator" content="swath";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(figure::stylesheet())) }
            }
            body {
                (body)
                @for script in scripts { (script.show()) }
            }
        }
    }
}

/// The page of a study. The same results give the same bytes. O(p + c f) with p points, c claims
/// and f figures.
///
/// # Errors
/// [`FigureError`] if a figure cannot be drawn.
pub(crate) fn page(found: &StudyResults) -> Result<String, FigureError> {
    let result = &found.result;
    let body = html! {
        a.skip href="#content" { "Skip to the study" }
        (contents(found))
        main #content { (section(found)?) }
    };
    let title = format!("Swath: {}", result.title);
    let scripts: &[Script] = match result.film {
        Some(_) => &[Script::Figures, Script::Film],
        None => &[Script::Figures],
    };
    Ok(document(&title, scripts, body).into_string())
}

fn contents(found: &StudyResults) -> Markup {
    let StudyResults { result, host } = found;
    html! {
        nav aria-label="Contents" {
            h2 { a href="index.html" { "All studies" } }
            ul {
                @if let Some(film) = &result.film { li { a href="#film" { "Film " span.quiet { (film.title) } } } }
                @for figure in &result.figures {
                    li {
                        a href={ "#" (figure_anchor(figure)) } {
                            (figure.id) " " span.quiet { (figure.title) }
                        }
                    }
                }
                @if !result.claims.is_empty() { li { a href="#claims" { "Claims" } } }
                @if host.is_some() { li { a href="#host" { "Measured on this machine" } } }
            }
        }
    }
}

/// All claims of a study, those of the machine that ran it included.
pub(crate) fn all_claims(found: &StudyResults) -> impl Iterator<Item = &Claim> {
    found.result.claims.iter().chain(found.host.iter().flat_map(|host| &host.claims))
}

/// The form of a run: "quick, n = 5".
pub(crate) fn form(result: &StudyResult) -> Markup {
    let words = match (result.quick, result.n) {
        (false, 0) => return html! {},
        (false, n) => format!("n = {n}"),
        (true, 0) => "quick".to_owned(),
        (true, n) => format!("quick, n = {n}"),
    };
    html! { span.badge { (words) } }
}

fn section(found: &StudyResults) -> Result<Markup, FigureError> {
    let StudyResults { result, host } = found;
    let palette = palette(result, host.as_ref());
    let drawings = figures(
        &result.study,
        &result.figures,
        &result.series,
        ("claim", &result.claims),
        &palette,
    )?;
    let of_host = match host {
        Some(host) => Some(host_section(host, &palette)?),
        None => None,
    };
    // As a plan file, to be run again. What TOML cannot say, such as a null,
    // is shown as JSON.
    let plan = toml::to_string(&result.plan).unwrap_or_else(|_| format!("{:#}", result.plan));
    Ok(html! {
        section.study id=(result.study) {
            h1 { (result.title) }
            p.source { (form(result)) " " (result.reference) }
            (finding(&result.finding))
            p.total { (Tally::of(all_claims(found))) "." }
            @if let Some(film) = &result.film {
                (film::figure(film, Some(&format!("{}/{}", result.study, film::film_file()))))
            }
            (drawings)
            @if !result.claims.is_empty() {
                h2 #claims { "What the paper says, and what was measured" }
                (fitted(result))
                (claims::table(&result.title, ("claim", &result.claims), &result.figures, &result.series))
            }
            (notes(&result.notes))
            details {
                summary { "Plan and seed" }
                p { "Seed " code { (result.seed) } }
                pre tabindex="0" { code { (plan) } }
                p {
                    a href={ (result.study) "/results.json" } download { "results.json" }
                    @if host.is_some() {
                        " · " a href={ (result.study) "/host.json" } download { "host.json" }
                    }
                }
            }
            @if let Some(part) = of_host { (part) }
        }
    })
}

/// The finding: its first sentence, and the rest for who wants it.
fn finding(text: &str) -> Markup {
    let end = text.match_indices(". ").map(|(at, _)| at).find(|&at| {
        text[at + 2..].starts_with(|c: char| c.is_uppercase())
            && !text[..at].ends_with("Fig")
            && at > 20
    });
    html! {
        @match end {
            Some(end) => {
                p.finding { (text[..=end]) }
                details.more { summary { "What was found at length" } p { (text[end + 2..]) } }
            }
            None => p.finding { (text) },
        }
    }
}

/// The score, with the parameters that were chosen after looking.
fn fitted(result: &StudyResult) -> Markup {
    let count = result.fitted.len();
    let noun = if count == 1 { "parameter was" } else { "parameters were" };
    html! {
        @if count > 0 {
            p.fitted {
                (Tally::of(&result.claims)) ". " (count) " " (noun)
                " chosen after looking at the paper’s figures: "
                (result.fitted.join("; ")) "."
            }
        }
    }
}

fn host_section(host: &HostResult, palette: &Palette) -> Result<Markup, FigureError> {
    let drawings =
        figures(&host.study, &host.figures, &host.series, ("host-claim", &host.claims), palette)?;
    Ok(html! {
        section.host #host {
            h2 { span.badge { "Measured on this machine" } }
            p {
                "These figures depend on the machine and differ from run to run. They come from: "
                (host.host) "."
            }
            (drawings)
            @if !host.claims.is_empty() {
                (claims::table(&host.host, ("host-claim", &host.claims), &host.figures, &host.series))
            }
            (notes(&host.notes))
        }
    })
}

fn figures(
    study: &str,
    figures: &[Figure],
    series: &[Series],
    claims: (&str, &[Claim]),
    palette: &Palette,
) -> Result<Markup, FigureError> {
    let drawings = figures
        .iter()
        .map(|one| match one.kind {
            FigureKind::Table => Ok(table(one, series)),
            _ => figure::draw(one, series, palette).map(PreEscaped),
        })
        .collect::<Result<Vec<Markup>, _>>()?;
    let shown: Vec<Option<&Figure>> =
        claims.1.iter().map(|claim| figure_of(claim, figures, series)).collect();
    let data = |one: &Figure| {
        let is_its = |figure: &Option<&Figure>| figure.is_some_and(|figure| figure.id == one.id);
        let its = claims.1.iter().zip(&shown).filter(|(_, figure)| is_its(figure));
        plot::data(one, series, &its.map(|(claim, _)| claim).collect::<Vec<_>>(), palette)
    };
    Ok(html! {
        @if !figures.is_empty() {
            div.figures {
                @for (one, drawing) in figures.iter().zip(drawings) {
                    @let file = format!("{study}/{}", one.file_stem());
                    figure id=(figure_anchor(one)) data-plot=[data(one)]
                        data-cells=[plot::cells(one, series, palette)] {
                        figcaption { strong { (one.id) } " " (one.title) }
                        (drawing)
                        @if !one.caption.is_empty() { p.caption { (one.caption) } }
                        (claims::of_figure(one, claims, &shown))
                        p.files {
                            a href={ (file) ".csv" } download { "CSV" }
                            @if one.kind != FigureKind::Table {
                                " · "
                                a href={ (file) ".svg" } { "SVG" }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// A row for each category in the order of first use, a column for each series.
/// O(r · p) for r rows and p points.
fn table(figure: &Figure, series: &[Series]) -> Markup {
    let columns: Vec<&Series> = series.iter().filter(|one| one.figure == figure.id).collect();
    let mut rows: Vec<&str> = Vec::new();
    for point in columns.iter().flat_map(|column| &column.points) {
        if let Place::In(name) = &point.x
            && !rows.contains(&name.as_str())
        {
            rows.push(name);
        }
    }
    let cell = |column: &Series, row: &str| {
        let is_row = |point: &&Point| matches!(&point.x, Place::In(name) if name == row);
        column.points.iter().find(is_row).map(cell_text)
    };
    scrolling(
        &format!("{}: {}", figure.id, figure.title),
        html! {
            table {
                thead { tr {
                    th scope="col" { (figure.x_label) }
                    @for column in &columns { th.number scope="col" { (column.design) } }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row) }
                            @for column in &columns {
                                td.number { (cell(column, row).as_deref().unwrap_or("–")) }
                            }
                        }
                    }
                }
            }
            @if !figure.y_label.is_empty() { p.quiet.unit { (figure.y_label) } }
        },
    )
}

/// A measured number in a table, with half of its interval's width.
fn cell_text(point: &Point) -> String {
    let text = Unit::Number.show(point.y);
    match point.spread.and_then(|spread| spread.interval) {
        Some((low, high)) if low < high => {
            format!("{text} ± {}", Unit::Number.show((high - low) / 2.0))
        }
        _ => text,
    }
}

fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            h2 { "Notes" }
            ul.notes { @for note in notes { li { (note) } } }
        }
    }
}

/// A wide table scrolls inside its own box, also by keyboard.
pub(crate) fn scrolling(label: &str, table: Markup) -> Markup {
    html! { div.scrolling role="region" aria-label=(label) tabindex="0" { (table) } }
}
