//! The page over all studies: totals, and a search over all claims.

use maud::{Markup, html};

use crate::report::claims::{anchors, class, sign};
use crate::report::page::{Script, all_claims, document, form, page_file, scrolling};
use crate::report::write::StudyResults;
use crate::study::results::{Claim, Tally, Verdict};

/// The page over these studies, in this order. The same studies give the same bytes.
/// O(s + c) with s studies and c claims.
pub(crate) fn index(studies: &[&StudyResults]) -> String {
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
        nav aria-label="Contents" {
            h2 { "Contents" }
            ul {
                li { a href="#summary" { "Summary" } }
                li { a href="#claims" { "All claims" } }
                @for StudyResults { result, .. } in studies {
                    li { a href=(page_file(&result.study)) { (result.title) } }
                }
            }
        }
        main #content {
            (summary(studies))
            (claims(studies))
        }
        footer {
            p {
                "Every number here follows from a study’s plan and seed, but for the "
                "parts marked “this machine”."
            }
        }
    };
    document("Swath: what was measured", &[Script::Search], body).into_string()
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
                                @let page = page_file(&result.study);
                                (row(html! {
                                    a id=(result.study) href=(page) { (result.title) }
                                    " " (form(result))
                                }, &result.paper, &result.claims))
                                @if let Some(host) = host {
                                    @let name = html! {
                                        a href={ (page) "#host" } { (result.title) }
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

/// Every claim in a row that leads to it.
fn claims(studies: &[&StudyResults]) -> Markup {
    html! {
        section #claims {
            h2 { "All claims" }
            p #search hidden {
                label { "Search " input #words type="search" autocomplete="off"
                    placeholder="differs superpages"; }
                " " output #found for="words" aria-live="polite" {}
            }
            (scrolling("All claims", html! {
                table.every {
                    thead { tr {
                        th scope="col" { "Verdict" }
                        th scope="col" { "The paper says" }
                        th.number scope="col" { "Paper" }
                        th.number scope="col" { "Measured" }
                        th scope="col" { "Study" }
                    } }
                    tbody {
                        @for StudyResults { result, host } in studies {
                            @let page = page_file(&result.study);
                            @let from_host = host.as_ref().map_or(&[][..], |host| &host.claims);
                            @for claims in [("claim", &result.claims[..]), ("host-claim", from_host)] {
                                @for (claim, anchor) in claims.1.iter().zip(anchors(claims)) {
                                    (claim_row(claim, &format!("{page}#{anchor}"), &result.study, &result.paper))
                                }
                            }
                        }
                    }
                }
            }))
        }
    }
}

fn claim_row(claim: &Claim, address: &str, study: &str, paper: &str) -> Markup {
    let (unit, verdict) = (claim.unit(), claim.verdict());
    html! {
        tr class=(class(verdict)) {
            td.verdict { (sign(verdict)) " " (verdict.title()) }
            td.says { a href=(address) { (claim.says()) } " " span.quiet { (claim.place()) } }
            td.number data-label="Paper" { (claim.paper().show(unit)) }
            td.number data-label="Measured" {
                (claim.measured().map_or_else(|| "–".to_owned(), |value| unit.show(value)))
            }
            td { (study) " " span.quiet { (paper) } }
        }
    }
}
