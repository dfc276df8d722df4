//! The figures of a search: all readings, the front, and the pairs of claims.

use crate::papers::page_buddy::search::found::{Reading, Searched};
use crate::papers::page_buddy::search::front::Standing;
use crate::study::kind::Drawn;
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, Verdict};

/// The ten claims in a few characters, in the order of the statements.
pub(crate) const SHORT: [&str; 10] = [
    "I: 2%",
    "1: TRAD same",
    "1: PCAD same",
    "1: AT 52%",
    "2-64: PCAD 30%",
    "2-64: AT 67%",
    "2-64: TRAD 78%",
    "128-256: AT 45%",
    "128-256: TRAD 79%",
    "128-256: PCAD close",
];

/// All of them, in the order of the report.
pub(crate) fn all(found: &Searched) -> Vec<Drawn> {
    let mut figures = vec![scores(found), front(found)];
    figures.extend(again(found));
    figures.extend([pairs(found), every(found)]);
    figures
}

/// Every reading as a mark, by its parameters and its distance, coloured by its score.
fn scores(found: &Searched) -> Drawn {
    let id = "Readings searched";
    let (x_label, y_label) =
        ("parameters chosen after looking", "mean distance from what agrees (share of cycles)");
    let title = "claims met, by what was chosen";
    let standings: Vec<Standing> = found.readings.iter().map(Reading::standing).collect();
    let mut scores: Vec<u32> = standings.iter().map(|one| one.met).collect();
    scores.sort_unstable();
    scores.dedup();
    let of = |score: u32| {
        let marks = standings.iter().filter(|one| one.met == score);
        let points =
            marks.map(|one| Point::at(one.chosen.into(), one.distance)).collect::<Vec<_>>();
        Series::new(id, "parameters_chosen", "distance_share", &format!("{score} met"), points)
    };
    let figure = Figure::new(id, title, FigureKind::Scatter, x_label, y_label);
    let figure = figure.with_caption("The fewer parameters, the less a score was made by choice.");
    Drawn { figure, series: scores.into_iter().rev().map(of).collect() }
}

/// A column of a table with a row for each reading given.
fn column(
    id: &str,
    name: &str,
    rows: &[&Reading],
    value: impl Fn(&Reading) -> Option<f64>,
) -> Series {
    let points = rows.iter().filter_map(|one| Some(Point::named(one.name(), value(one)?)));
    Series::new(id, "reading", "value", name, points.collect::<Vec<_>>())
}

/// The columns that every table of readings has: standing, and each claim's number.
fn columns(id: &str, rows: &[&Reading]) -> Vec<Series> {
    let standing = |of: fn(Standing) -> f64| move |one: &Reading| Some(of(one.standing()));
    let mut all = vec![
        column(id, "chosen", rows, standing(|one| one.chosen.into())),
        column(id, "met", rows, standing(|one| one.met.into())),
        column(id, "distance", rows, standing(|one| one.distance)),
    ];
    all.extend(SHORT.iter().enumerate().map(|(nth, name)| {
        column(id, name, rows, |one| one.claims.get(nth).and_then(Claim::measured))
    }));
    all
}

/// The front.
fn front(found: &Searched) -> Drawn {
    let id = "Front";
    let title = "the most claims met for each number of parameters";
    let rows: Vec<&Reading> = found.front.iter().map(|&at| &found.readings[at]).collect();
    let figure = Figure::new(id, title, FigureKind::Table, "reading", "value");
    let caption = "Gains are shares of cycles. All parameters were chosen after looking.";
    Drawn { figure: figure.with_caption(caption), series: columns(id, &rows) }
}

/// The front measured again, if it was.
fn again(found: &Searched) -> Option<Drawn> {
    let id = "Front on all cells";
    let title = "all workloads, sizes and several seeds";
    let counted = |verdict: Verdict, name: &str| {
        let points = found.again.iter().map(|(at, claims)| {
            let count = claims.iter().filter(|claim| claim.verdict() == verdict).count();
            Point::named(found.readings[*at].name(), count as f64)
        });
        Series::new(id, "reading", "claims", name, points.collect::<Vec<_>>())
    };
    let mut series = vec![
        counted(Verdict::Holds, "hold"),
        counted(Verdict::Undecided, "undecided"),
        counted(Verdict::Differs, "differ"),
    ];
    for (nth, name) in SHORT.iter().enumerate() {
        let points = found.again.iter().filter_map(|(at, claims)| {
            Some(Point::named(found.readings[*at].name(), claims.get(nth)?.measured()?))
        });
        series.push(Series::new(id, "reading", "value", name, points.collect::<Vec<_>>()));
    }
    let figure = Figure::new(id, title, FigureKind::Table, "reading", "value");
    (!found.again.is_empty()).then_some(Drawn { figure, series })
}

/// For each pair of claims the readings that meet both.
fn pairs(found: &Searched) -> Drawn {
    let id = "Claims met together";
    let together = found.together();
    let series = together.iter().enumerate().map(|(one, row)| {
        let points =
            row.iter().enumerate().map(|(two, &count)| Point::named(SHORT[two], count as f64));
        Series::new(id, "claim", "readings", SHORT[one], points.collect::<Vec<_>>())
    });
    let title = "readings that meet both";
    let figure = Figure::new(id, title, FigureKind::Table, "claim", "readings");
    let caption = "0 beside two claims that are met apart: no reading searched meets both.";
    Drawn { series: series.collect(), figure: figure.with_caption(caption) }
}

/// Every reading with its numbers, and 1 or 0 for each claim that is met or not.
fn every(found: &Searched) -> Drawn {
    let id = "Every reading";
    let rows: Vec<&Reading> = found.readings.iter().collect();
    let mut series = columns(id, &rows);
    series.extend(SHORT.iter().enumerate().map(|(nth, name)| {
        let met = |one: &Reading| one.met().get(nth).map(|&met| f64::from(u8::from(met)));
        column(id, &format!("{name}, met"), &rows, met)
    }));
    let figure = Figure::new(id, "searched", FigureKind::Table, "reading", "value");
    Drawn { figure, series }
}
