//! The report as a page: one file over all studies that needs nothing but itself.
//!
//! Style and drawings stand in the page, there is no script, and its own
//! policy forbids the browser to load anything. The only links that leave it
//! go to the studies' files beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::figure::{
    FigureError, Palette, {self},
};
use crate::report::write::{Found, palette};
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Point, Series, Unit};

const STYLE: &str = include_str!("../../assets/report.css");

/// The page over these studies, in this order. The same studies give the same
/// bytes. O(p + c) with p points and c claims.
///
/// # Errors
/// [`FigureError`] if a figure's data do not fit it, which
/// [`StudyResult::check`](crate::study::results::StudyResult::check) finds too.
pub(crate) fn page(studies: &[Found]) -> Result<String, FigureError> {
    let sections = studies.iter().map(section);
    let sections = sections.collect::<Result<Vec<Markup>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { "Swath: what was measured" }
                style { (PreEscaped(STYLE)) (PreEscaped(figure::stylesheet())) }
            }
            body {
                a.skip href="#content" { "Skip to the studies" }
                header {
                    h1 { "Swath" }
                    p.lead {
                        "A memory manager that keeps memory contiguous, and the laboratory that "
                        "proves what that buys: the papers’ figures and claims beside what was "
                        "measured here."
                    }
                }
                (contents(studies))
                main #content {
                    (summary(studies))
                    @for one in sections { (one) }
                }
                footer {
                    p {
                        "Every number above follows from a study’s plan and seed, but for the "
                        "parts marked “measured on this machine”."
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn contents(studies: &[Found]) -> Markup {
    html! {
        nav aria-label="Contents" {
            h2 { "Contents" }
            ul {
                li { a href="#summary" { "Summary" } }
                @for found in studies {
                    @let study = &found.result.study;
                    li {
                        a href={ "#" (study) } { (found.result.title) }
                        ul {
                            @for figure in &found.result.figures {
                                li {
                                    a href={ "#" (anchor(study, figure)) } {
                                        (figure.id) " " span.quiet { (figure.title) }
                                    }
                                }
                            }
                            @if !found.result.claims.is_empty() {
                                li { a href={ "#" (study) "-claims" } { "Claims" } }
                            }
                            @if found.host.is_some() {
                                li { a href={ "#" (study) "-host" } { "Measured on this machine" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn summary(studies: &[Found]) -> Markup {
    let row = |name: Markup, paper: &str, claims: &[Claim]| {
        let held = claims.iter().filter(|claim| claim.holds()).count();
        html! {
            tr {
                th scope="row" { (name) }
                td.tally {
                    @if claims.is_empty() {
                        span.quiet { "no claims" }
                    } @else {
                        (held) " of " (claims.len())
                        meter aria-hidden="true" min="0" max=(claims.len()) value=(held) {}
                    }
                }
                td.paper { (paper) }
            }
        }
    };
    html! {
        section #summary {
            h2 { "Summary" }
            @if studies.is_empty() {
                p { "No study has been run yet." }
            } @else {
                (scrolling("Claims held in each study", html! {
                    table.summary {
                        thead { tr {
                            th scope="col" { "Study" }
                            th scope="col" { "Claims that hold" }
                            th.paper scope="col" { "Paper" }
                        } }
                        tbody {
                            @for Found { result, host } in studies {
                                (row(html! { a href={ "#" (result.study) } { (result.title) } },
                                    &result.reference, &result.claims))
                                @if let Some(host) = host {
                                    @let name = html! {
                                        a href={ "#" (result.study) "-host" } {
                                            (result.title)
                                        }
                                        " " span.badge { "this machine" }
                                    };
                                    (row(name, &result.reference, &host.claims))
                                }
                            }
                        }
                    }
                }))
            }
        }
    }
}

fn section(found: &Found) -> Result<Markup, FigureError> {
    let Found { result, host } = found;
    let palette = palette(result, host.as_ref());
    let drawings = figures(&result.study, &result.figures, &result.series, &palette)?;
    let of_host = match host {
        Some(host) => Some(host_section(host, &palette)?),
        None => None,
    };
    // As a plan file, to be run again. What TOML cannot say, such as a null,
    // is shown as JSON.
    let plan = toml::to_string(&result.plan).unwrap_or_else(|_| format!("{:#}", result.plan));
    Ok(html! {
        section.study id=(result.study) {
            h2 { (result.title) }
            p.source { (result.reference) " " span.quiet { "(" (result.paper) ")" } }
            p.finding { (result.finding) }
            (drawings)
            @if !result.claims.is_empty() {
                h3 id={ (result.study) "-claims" } { "What the paper says, and what was measured" }
                (claims(&result.title, &result.claims))
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

fn host_section(host: &HostResult, palette: &Palette) -> Result<Markup, FigureError> {
    let drawings = figures(&host.study, &host.figures, &host.series, palette)?;
    Ok(html! {
        section.host id={ (host.study) "-host" } {
            h3 { span.badge { "Measured on this machine" } }
            p {
                "These figures depend on the machine and differ from run to run. They come from: "
                (host.host) "."
            }
            (drawings)
            @if !host.claims.is_empty() { (claims(&host.host, &host.claims)) }
            (notes(&host.notes))
        }
    })
}

fn anchor(study: &str, figure: &Figure) -> String {
    format!("{study}-{}", figure.file_stem())
}

fn figures(
    study: &str,
    figures: &[Figure],
    series: &[Series],
    palette: &Palette,
) -> Result<Markup, FigureError> {
    let drawings = figures
        .iter()
        .map(|one| match one.kind {
            FigureKind::Table => Ok(table(one, series)),
            _ => figure::draw(one, series, palette).map(PreEscaped),
        })
        .collect::<Result<Vec<Markup>, _>>()?;
    Ok(html! {
        @if !figures.is_empty() {
            div.figures {
                @for (one, drawing) in figures.iter().zip(drawings) {
                    @let file = format!("{study}/{}", one.file_stem());
                    figure id=(anchor(study, one)) {
                        figcaption { strong { (one.id) } " " (one.title) }
                        (drawing)
                        @if !one.caption.is_empty() { p.caption { (one.caption) } }
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
        if let Point::In(name, _) = point
            && !rows.contains(&name.as_str())
        {
            rows.push(name);
        }
    }
    let cell = |column: &Series, row: &str| {
        let is_row = |point: &&Point| matches!(point, Point::In(name, _) if name == row);
        column.points.iter().find(is_row).map(|point| Unit::Number.show(point.y()))
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

fn claims(of: &str, claims: &[Claim]) -> Markup {
    scrolling(
        &format!("Claims: {of}"),
        html! {
            table.claims {
                thead { tr {
                    th scope="col" { "Where" }
                    th scope="col" { "The paper says" }
                    th.number scope="col" { "Paper" }
                    th.number scope="col" { "Measured" }
                    th scope="col" { "Tolerance" }
                    th scope="col" { "Judgement" }
                } }
                tbody { @for claim in claims { (row(claim)) } }
            }
        },
    )
}

fn row(claim: &Claim) -> Markup {
    let unit = claim.unit();
    html! {
        tr class=(if claim.holds() { "holds" } else { "differs" }) {
            td { (claim.place()) }
            td.says {
                (claim.says())
                @if !claim.cause().is_empty() { p.cause { "Cause: " (claim.cause()) } }
                @else if !claim.holds() { p.cause { "Cause: not known yet." } }
            }
            td.number { (claim.paper().show(unit)) }
            td.number { (unit.show(claim.measured())) }
            td.tolerance { (claim.tolerance().describe(unit)) }
            td.judgement {
                @if claim.holds() { "✔ holds" } @else { "✘ does not hold" }
            }
        }
    }
}

fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            h3 { "Notes" }
            ul.notes { @for note in notes { li { (note) } } }
        }
    }
}

/// A wide table scrolls inside its own box, also by keyboard.
fn scrolling(label: &str, table: Markup) -> Markup {
    html! { div.scrolling role="region" aria-label=(label) tabindex="0" { (table) } }
}
