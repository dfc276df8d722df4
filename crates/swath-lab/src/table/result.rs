//! The rows of a study's results.

use crate::study::claim::Claim;
use crate::study::results::{HostResult, Place, Series, StudyResult};
use crate::study::verdict::PaperFigure;
use crate::table::column::{Cell, Schema, Table, Type};

/// The columns of a result's rows.
///
/// A row is a point of a series (`kind` is `series`) or a claim (`claim`): `place` is the figure,
/// or where the paper makes the claim, `subject` the design, or the claim in words. `x` is a
/// number or `category` a name, `value` what was measured, `low` and `high` the ends of its 95%
/// interval, `n` the number of seeds. Of a study that gave no result (`refused`, `failed`) there is
/// `why`. `paper_low` and `paper_high` are the paper's own figure, equal
/// unless that is a range. `why` is the reason or cause of a verdict. `on_host` says that it depends
/// on the machine that ran the study.
const COLUMNS: [(&str, Type); 17] = [
    ("kind", Type::Text),
    ("study", Type::Text),
    ("place", Type::Text),
    ("subject", Type::Text),
    ("x_name", Type::Text),
    ("x", Type::Float),
    ("category", Type::Text),
    ("y_name", Type::Text),
    ("value", Type::Float),
    ("low", Type::Float),
    ("high", Type::Float),
    ("n", Type::Int),
    ("paper_low", Type::Float),
    ("paper_high", Type::Float),
    ("verdict", Type::Text),
    ("why", Type::Text),
    ("on_host", Type::Bool),
];

/// Names and types of the columns of a result's rows.
pub fn schema() -> Schema {
    COLUMNS.iter().map(|&(name, of)| (name.to_owned(), of)).collect()
}

fn text(text: &str) -> Cell {
    if text.is_empty() { Cell::Absent } else { Cell::Text(text.to_owned()) }
}

fn float(number: Option<f64>) -> Cell {
    number.map_or(Cell::Absent, Cell::Float)
}

/// A row of a study that gave no result, and why: its plan is `refused`, or it `failed`.
pub(crate) fn without(kind: &str, study: &str, why: &str) -> Vec<Cell> {
    let mut row = vec![Cell::Absent; COLUMNS.len()];
    row[0] = text(kind);
    row[1] = text(study);
    row[15] = text(why);
    row[16] = Cell::Bool(false);
    row
}

/// Appends the rows of a study's result, each with `front` before it: its series, then its claims.
/// O(p) with p points.
pub fn append(table: &mut Table, front: &[Cell], result: &StudyResult) {
    rows(table, front, &result.study, false, &result.series, &result.claims);
}

/// Appends the rows of what depends on the machine.
pub fn append_host(table: &mut Table, front: &[Cell], host: &HostResult) {
    rows(table, front, &host.study, true, &host.series, &host.claims);
}

fn rows(
    table: &mut Table,
    front: &[Cell],
    study: &str,
    on_host: bool,
    series: &[Series],
    claims: &[Claim],
) {
    for one in series {
        for point in &one.points {
            let (x, category) = match &point.x {
                Place::At(x) => (Cell::Float(*x), Cell::Absent),
                Place::In(name) => (Cell::Absent, Cell::Text(name.clone())),
            };
            let interval = point.spread.and_then(|spread| spread.interval);
            let row = [
                text("series"),
                text(study),
                text(&one.figure),
                text(&one.design),
                text(&one.x),
                x,
                category,
                text(&one.y),
                Cell::Float(point.y),
                float(interval.map(|ends| ends.0)),
                float(interval.map(|ends| ends.1)),
                Cell::Int(point.spread.map_or(0, |spread| spread.n.into())),
                Cell::Absent,
                Cell::Absent,
                Cell::Absent,
                Cell::Absent,
                Cell::Bool(on_host),
            ];
            table.push(front.iter().cloned().chain(row));
        }
    }
    for claim in claims {
        let (low, high) = match claim.paper() {
            PaperFigure::Value(value) => (value, value),
            PaperFigure::Range(low, high) => (low, high),
        };
        let reasons = [claim.reason(), claim.cause().to_owned()];
        let why: Vec<&str> =
            reasons.iter().map(String::as_str).filter(|reason| !reason.is_empty()).collect();
        let row = [
            text("claim"),
            text(study),
            text(claim.place()),
            text(claim.says()),
            Cell::Absent,
            Cell::Absent,
            Cell::Absent,
            Cell::Absent,
            float(claim.measured()),
            float(claim.interval().map(|ends| ends.0)),
            float(claim.interval().map(|ends| ends.1)),
            Cell::Int(claim.n().into()),
            Cell::Float(low),
            Cell::Float(high),
            text(claim.verdict().title()),
            text(&why.join("; ")),
            Cell::Bool(on_host),
        ];
        table.push(front.iter().cloned().chain(row));
    }
}
