//! The claims of a study as a table, with an address for each and links to its figure.

use maud::{Markup, html};

use crate::report::page::scrolling;
use crate::study::results::{Claim, Figure, Series, Verdict};

/// The addresses of these claims within their page, which follow from their words alone: they
/// stay when others come or go. `kind` tells those of a study from those of its machine.
pub(crate) fn anchors((kind, claims): (&str, &[Claim])) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for claim in claims {
        let words = format!("{}\n{}", claim.place(), claim.says());
        let sum = crc32fast::hash(words.as_bytes());
        let mut anchor = format!("{kind}-{sum:08x}");
        let same = seen.iter().filter(|one| one.starts_with(&anchor)).count();
        if same > 0 {
            anchor += &format!("-{}", same + 1);
        }
        seen.push(anchor);
    }
    seen
}

/// The figure that shows what a claim is about: the one that it names, or else one of the
/// quantity that it is measured in. None if no figure has either.
pub(crate) fn figure_of<'f>(
    claim: &Claim,
    figures: &'f [Figure],
    series: &[Series],
) -> Option<&'f Figure> {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        let parts = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let place = words(claim.place());
    let all = [words(claim.says()), words(claim.source())].concat();
    let score = |figure: &Figure| {
        // "Fig. 9a, 4 GiB": the paper's name, and what tells it from its twins.
        let name = words(figure.id.split(',').next().unwrap_or_default());
        let is_named = !name.is_empty() && place.windows(name.len()).any(|part| part == name);
        let mine = || series.iter().filter(|one| one.figure == figure.id);
        let of_quantity = mine().any(|one| all.contains(&one.y.to_lowercase()));
        let shared = |text: &str| {
            words(text).iter().filter(|word| place.contains(word) || all.contains(word)).count()
        };
        let likeness = shared(&figure.id) + shared(&figure.title);
        (is_named || of_quantity).then_some((is_named, of_quantity, likeness))
    };
    let scored = figures.iter().filter_map(|figure| Some((score(figure)?, figure)));
    // The first of equals.
    scored.rev().max_by_key(|(score, _)| *score).map(|(_, figure)| figure)
}

/// The address of a figure within its study's page.
pub(crate) fn figure_anchor(figure: &Figure) -> String {
    format!("figure-{}", figure.file_stem())
}

/// The table of a study's claims.
pub(crate) fn table(
    of: &str,
    claims: (&str, &[Claim]),
    figures: &[Figure],
    series: &[Series],
) -> Markup {
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
                tbody {
                    @for (claim, anchor) in claims.1.iter().zip(anchors(claims)) {
                        (row(claim, &anchor, figure_of(claim, figures, series)))
                    }
                }
            }
        },
    )
}

fn row(claim: &Claim, anchor: &str, figure: Option<&Figure>) -> Markup {
    let unit = claim.unit();
    let (verdict, reason) = (claim.verdict(), claim.reason());
    html! {
        tr id=(anchor) class=(class(verdict)) {
            td {
                a.anchor href={ "#" (anchor) } { (claim.place()) }
                @if let Some(figure) = figure {
                    p.cause { a href={ "#" (figure_anchor(figure)) } { "↗ " (figure.id) } }
                }
            }
            td.says {
                (claim.says())
                @if !claim.cause().is_empty() { p.cause { "Cause: " (claim.cause()) } }
                @else if verdict == Verdict::Differs { p.cause { "Cause: not known yet." } }
                @if !claim.fitted().is_empty() {
                    p.cause { "Chosen after looking: " (claim.fitted()) }
                }
            }
            td.number data-label="Paper" { (claim.paper().show(unit)) }
            td.number data-label="Measured" {
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
            td.tolerance data-label="Tolerance" { (claim.tolerance().describe(unit)) }
            td.judgement {
                (sign(verdict)) " " (verdict.title())
                @if !reason.is_empty() { p.cause { (reason) } }
            }
        }
    }
}

/// Links from a figure to the claims that it shows; `shown` has the figure of each claim.
pub(crate) fn of_figure(
    figure: &Figure,
    claims: (&str, &[Claim]),
    shown: &[Option<&Figure>],
) -> Markup {
    let is_its = |of: &Option<&Figure>| of.is_some_and(|one| one.id == figure.id);
    let all = claims.1.iter().zip(anchors(claims)).zip(shown);
    let links: Vec<(&Claim, String)> =
        all.filter(|(_, of)| is_its(of)).map(|(link, _)| link).collect();
    html! {
        @if !links.is_empty() {
            p.linked {
                "Claims: "
                @for (claim, anchor) in links {
                    a class=(class(claim.verdict())) href={ "#" (anchor) } title=(claim.says()) {
                        (sign(claim.verdict())) " " (claim.verdict().title())
                    }
                    " "
                }
            }
        }
    }
}

/// The row's class in the style sheet.
pub(crate) const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Differs => "differs",
        Verdict::Undecided => "undecided",
        Verdict::NotMeasured | Verdict::NotComparable | Verdict::Identity => "apart",
    }
}

pub(crate) const fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✔",
        Verdict::Differs => "✘",
        Verdict::Undecided => "?",
        Verdict::NotMeasured | Verdict::NotComparable | Verdict::Identity => "–",
    }
}
