//! Claims with a number set by hand.

use crate::study::claim::{Claim, Statement, Unit};
use crate::study::grid::{Grid, metrics};

fn with(statement: Statement<Grid>, measured: f64) -> Claim {
    let mut grid = Grid::new(&["all"], 0);
    grid.add(vec!["all".into()], &[metrics([("value", measured)])]);
    statement
        .measured(|grid: &Grid| grid.evidence(|v| v.select().one("value")))
        .judge(&grid)
        .anonymous()
}

#[allow(missing_docs)]
impl Claim {
    pub fn at_least(place: &str, says: &str, paper: f64, measured: f64, slack: f64) -> Self {
        with(Statement::at_least(place, says, paper, slack), measured)
    }
    pub fn at_most(place: &str, says: &str, paper: f64, measured: f64, slack: f64) -> Self {
        with(Statement::at_most(place, says, paper, slack), measured)
    }
    pub fn about(place: &str, says: &str, paper: f64, measured: f64, fraction: f64) -> Self {
        with(Statement::about(place, says, paper, fraction), measured)
    }
    pub fn within(place: &str, says: &str, paper: f64, measured: f64, difference: f64) -> Self {
        with(Statement::within(place, says, paper, difference), measured)
    }
    pub fn exactly(place: &str, says: &str, paper: f64, measured: f64) -> Self {
        with(Statement::exactly(place, says, paper), measured)
    }
    pub fn between(place: &str, says: &str, paper: (f64, f64), measured: f64, slack: f64) -> Self {
        with(Statement::between(place, says, paper, slack), measured)
    }
    #[must_use]
    pub fn with_unit(self, unit: Unit) -> Self {
        self.edit(|fields| fields.0 = Some(unit))
    }
    #[must_use]
    pub fn with_cause(self, cause: &str) -> Self {
        self.edit(|fields| fields.1 = Some(cause.to_owned()))
    }
}
