//! Statements judged with numbers that a test sets.

use swath_lab::study::claim::{Claim, Statement};
use swath_lab::study::grid::{Grid, metrics};

/// The claim that this statement becomes if `values` are measured, one for
/// each seed; a single value depends on none.
pub(crate) fn judged(statement: Statement<Grid>, values: &[f64]) -> Claim {
    let seeds = if values.len() == 1 { 0 } else { values.len() };
    let mut grid = Grid::new(&["design"], seeds);
    let runs: Vec<_> = values.iter().map(|&value| metrics([("value", value)])).collect();
    grid.add(vec!["PBS".into()], &runs);
    statement
        .measured(|grid: &Grid| grid.evidence(|v| v.select().is("design", "PBS").one("value")))
        .judge(&grid)
}
