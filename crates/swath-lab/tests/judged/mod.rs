//! Statements judged with numbers that a test sets.

use swath_lab::study::claim::{Claim, Statement};
use swath_lab::study::grid::{Grid, metrics};

/// The claim that this statement becomes if `values` are measured, one for
/// each seed; a single value depends on none.
pub(crate) fn judged(statement: Statement<Grid>, values: &[f64]) -> Claim {
    let seeds = if values.len() == 1 { 0 } else { values.len() };
    let mut grid = Grid::new(&["subject"], seeds);
    let runs: Vec<_> = values.iter().map(|&value| metrics([("value", value)])).collect();
    let subject = statement.describe().0;
    grid.add(vec![subject.clone().into()], &runs);
    statement
        .measured(move |grid: &Grid| {
            grid.evidence(|view| view.select().is("subject", subject.as_str()).one("value"))
        })
        .judge(&grid)
}
