//! The report as a page: one file over all studies that needs nothing but itself.
//!
//! Style and drawings stand in the page, there is no script, and its own
//! policy forbids the browser to load anything. The only links that leave it
//! go to the studies' files beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::figure::{
    FigureError, Palette, {self},
};
use crate::report::write::{StudyResults, palette};
use crate::study::results::{
    Claim, Figure, FigureKind, HostResult, Place, Point, Series, StudyResult, Tally, Unit, Verdict,
};

/// The words by which a page of this program is known.
pub(crate) const MARK: &str = "<meta name=\"generator\" content=\"swath\">";

const STYLE: &str = include_str!("../../assets/report.css");

/// The page over these studies, in this order, and those that it leaves out since their
/// figures cannot be drawn. The same studies give the same bytes. O(p + c) with p points
/// and c claims.
pub(crate) fn page(found: &[StudyResults]) -> (String, Vec<(String, FigureError)>) {
    let (mut studies, mut sections, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for one in found {
        match section(one) {
            Ok(drawn) => {
                studies.push(one);
                sections.push(drawn);
            }
            Err(error) => left_out.push((one.result.study.clone(), error)),
        }
    }
    (whole(&studies, &sections).into_string(), left_out)
}

fn whole(studies: &[&StudyResults], sections: &[Markup]) -> Markup {
    let body = html! {
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
    };
    document("Swath: what was measured", body)
}

/// A page of this program that needs nothing but itself.
pub(crate) fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                meta name="generator" content="swath";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(figure::stylesheet())) }
            }
            body { (body) }
        }
    }
}

fn contents(studies: &[&StudyResults]) -> Markup {
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

/// All claims of a study, those of the machine that ran it included.
fn all_claims(found: &StudyResults) -> impl Iterator<Item = &Claim> {
    found.result.claims.iter().chain(found.host.iter().flat_map(|host| &host.claims))
}

fn summary(studies: &[&StudyResults]) -> Markup {
    let total: Tally = studies
        .iter()
        .map(|found| Tally::of(all_claims(found)))
        .fold(Tally::default(), std::ops::Add::add);
    let row = |name: Markup, paper: &str, claims: &[Claim]| {
        let tally = Tally::of(claims);
        html! {
            tr {
                th scope="row" { (name) }
                @for verdict in Verdict::ALL {
                    @let count = tally.count(verdict);
                    td.number { @if count > 0 { (count) } @else { span.quiet { "–" } } }
                }
                td.number {
                    @if tally.examples.1 > 0 { (tally.examples.0) " of " (tally.examples.1) }
                    @else { span.quiet { "–" } }
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
                p.total { (total) "." }
                (scrolling("Verdicts of each study", html! {
                    table.summary {
                        thead { tr {
                            th scope="col" { "Study" }
                            @for verdict in Verdict::ALL {
                                th.number scope="col" { (verdict.title()) }
                            }
                            th.number scope="col" { "worked examples" }
                            th.paper scope="col" { "Paper" }
                        } }
                        tbody {
                            @for StudyResults { result, host } in studies {
                                (row(html! {
                                    a href={ "#" (result.study) } { (result.title) } " " (form(result))
                                }, &result.paper, &result.claims))
                                @if let Some(host) = host {
                                    @let name = html! {
                                        a href={ "#" (result.study) "-host" } {
                                            (result.title)
                                        }
                                        " " span.badge { "this machine" }
                                    };
                                    (row(name, &result.paper, &host.claims))
                                }
                            }
                        }
                    }
                }))
                p.quiet {
                    "A claim holds if the 95% interval of the measured number lies inside the \
                     tolerance, differs if it lies outside, and is undecided if it crosses the \
                     bound. It is not measured where the plan leaves out what it is about, and \
                     not comparable where the plan’s machine or load is another than the paper’s. \
                     An identity could not have failed and does not count."
                }
            }
        }
    }
}

/// The form of a run: "quick, n = 5".
fn form(result: &StudyResult) -> Markup {
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
            h2 { (result.title) " " (form(result)) }
            p.source { (result.reference) }
            p.finding { (result.finding) }
            (drawings)
            @if !result.claims.is_empty() {
                h3 id={ (result.study) "-claims" } { "What the paper says, and what was measured" }
                (fitted(result))
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
                    th scope="col" { "Verdict" }
                } }
                tbody { @for claim in claims { (row(claim)) } }
            }
        },
    )
}

fn row(claim: &Claim) -> Markup {
    let unit = claim.unit();
    let (verdict, reason) = (claim.verdict(), claim.reason());
    html! {
        tr class=(class(verdict)) {
            td { (claim.place()) }
            td.says {
                (claim.says())
                @if !claim.cause().is_empty() { p.cause { "Cause: " (claim.cause()) } }
                @else if verdict == Verdict::Differs { p.cause { "Cause: not known yet." } }
                @if !claim.fitted().is_empty() {
                    p.cause { "Chosen after looking: " (claim.fitted()) }
                }
            }
            td.number { (claim.paper().show(unit)) }
            td.number {
                @match claim.measured() {
                    Some(value) => {
                        (unit.show(value))
                        @if let (Some((low, high)), true) = (claim.interval(), claim.n() > 1) {
                            br;
                            span.quiet { (unit.show(low)) " to " (unit.show(high)) ", n = " (claim.n()) }
                        }
                    }
                    None => "–",
                }
            }
            td.tolerance { (claim.tolerance().describe(unit)) }
            td.judgement {
                (sign(verdict)) " " (verdict.title())
                @if !reason.is_empty() { p.cause { (reason) } }
            }
        }
    }
}

/// The row's class in the style sheet.
const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Differs => "differs",
        Verdict::Undecided => "undecided",
        Verdict::NotMeasured | Verdict::NotComparable | Verdict::Identity => "apart",
    }
}

const fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✔",
        Verdict::Differs => "✘",
        Verdict::Undecided => "?",
        Verdict::NotMeasured | Verdict::NotComparable | Verdict::Identity => "–",
    }
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
            h3 { "Notes" }
            ul.notes { @for note in notes { li { (note) } } }
        }
    }
}

/// A wide table scrolls inside its own box, also by keyboard.
pub(crate) fn scrolling(label: &str, table: Markup) -> Markup {
    html! { div.scrolling role="region" aria-label=(label) tabindex="0" { (table) } }
}
