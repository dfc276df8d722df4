//! The statements of section V-C: shares of cycles that PBS saves in the timed
//! system, selected from its grid.

use crate::papers::page_buddy::workload::{Category, WorkloadName};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Missing, Selection, Value, View, largest};
use crate::study::verdict::Unit;

/// The axis of the readings of Table 3.
pub const READING: &str = "reading";
/// The axis of the workloads' categories.
pub const CATEGORY: &str = "category";
/// The axis of the workloads.
pub const WORKLOAD: &str = "workload";
/// The axis of the sizes of the free blocks.
pub const LEVEL: &str = "free_block_frames";
/// The axis of the designs.
pub const DESIGN: &str = "design";

/// The reading on which claims are judged: the plan's own.
pub const AS_MEASURED: &str = "as measured";

/// Returns the shares of cycles that a design saves over another: 1 - one / other.
///
/// # Errors
/// [`Missing`] if a cell has no partner.
pub fn saved(cells: &Selection<'_>, by: &str, over: &str) -> Result<Vec<f64>, Missing> {
    cells.pairs(DESIGN, by, over, |one, other| Ok(1.0 - one.get("cycles")? / other.get("cycles")?))
}

const REFERENCES: [&str; 3] = ["TRAD", "PCAD", "AT"];

const ONE: &[u64] = &[1];
const SMALL: &[u64] = &[2, 4, 8, 16, 32, 64];
const LARGE: &[u64] = &[128, 256];

/// Sizes at which category I must have been measured. The paper names none, so
/// all that were measured are judged: both ends and the middle at least.
const LINEAR: [u64; 3] = [1, 16, 256];

/// The cells that the statements are about: workloads, and sizes of free blocks.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) workloads: Vec<WorkloadName>,
    /// Those that category I must have.
    pub(crate) linear: Vec<u64>,
    /// Those from 2 to 64.
    pub(crate) small: Vec<u64>,
    /// Those from 128 to 256.
    pub(crate) large: Vec<u64>,
}

impl Scope {
    /// All that the paper's statements are about.
    pub(crate) fn paper() -> Self {
        Self {
            workloads: WorkloadName::ALL.into(),
            linear: LINEAR.into(),
            small: SMALL.into(),
            large: LARGE.into(),
        }
    }

    /// All workloads of a category on the plan's own system.
    fn of<'v>(&self, view: &'v View<'_>, category: Category) -> Selection<'v> {
        let names = self.workloads.iter().filter(|name| name.category() == category);
        view.select().is(READING, AS_MEASURED).all(WORKLOAD, names.map(|name| name.title()))
    }

    /// The savings on category II at these sizes, each of which there must be.
    fn on_two(&self, view: &View<'_>, sizes: &[u64], over: &str) -> Result<Vec<f64>, Missing> {
        saved(&self.of(view, Category::II).all(LEVEL, sizes.iter().copied()), "PBS", over)
    }
}

/// The largest magnitude.
fn widest(savings: &[f64]) -> f64 {
    largest(&savings.iter().map(|saved| saved.abs()).collect::<Vec<_>>())
}

const OPEN: &str = "The paper leaves open how an IOMMU overlaps its walks with data. Figure \
                    \"Readings\" varies it; none of the readings meets every claim, nor does any of \
                    the 500 that pbs-system --search measured (results/pbs-system-search).";

const ANCHORS: &str = "AT walks twice here too, but less than twice as long: the anchor's \
                       descriptors mostly lie in the DRAM row that the first walk has opened, and \
                       a page that is its own anchor walks once, which at block size 1 is every \
                       second page. With anchors 512 pages apart (figure \"Readings\") the second \
                       walk comes nearer to the first; with anchors 4 pages apart AT's 67% and 45% \
                       come out, but not its 52% (results/pbs-system-search).";

const LINEAR_CAUSE: &str = "A walk is hidden behind the 16 transactions in flight if it comes \
                            alone: image scaling differs least. Where streams (blending) or the \
                            rows of a block (edge detection, convolution) cross into new pages \
                            together, walks queue up behind each other, one at a time (category I \
                            in figure \"Readings\": with 4 walks, and with 32 in flight).";

/// The parameters that were chosen by their results.
const FITTED: &str = "the bytes of a column and of a block, which Table 4 leaves open (study \
                      pbs-readings), and one walk at a time that nothing passes, which Table 3 \
                      leaves open (figure \"Readings\")";

fn share(statement: Statement<Grid>, conditions: &Conditions, cause: &str) -> Statement<Grid> {
    statement.unit(Unit::Share).under(conditions).cause(cause)
}

/// The statements of section V-C. "Better" is read as the share of cycles
/// saved. Tolerances: "less than 2%" has none and "the same" a tenth of a
/// per cent; gains that the paper gives in whole per cent and that are read
/// off small figures have 5 points.
pub(crate) fn claims(conditions: &Conditions, scope: &Scope) -> Vec<Statement<Grid>> {
    let says = "Category I: the differences between all designs are less than 2%";
    let statement = Statement::at_most("Section V-C", says, 0.02, 0.0).fitted(FITTED);
    let cause = format!("{LINEAR_CAUSE} {OPEN}");
    let all = scope.clone();
    let mut claims = vec![share(statement, conditions, &cause).measured(move |grid: &Grid| {
        grid.evidence(|view| {
            let cells = all.of(view, Category::I);
            cells.clone().all(LEVEL, all.linear.iter().copied()).cells()?;
            let cells = cells.some(
                LEVEL,
                "1 to 256",
                |size| matches!(size, Value::Number(size) if (1.0..=256.0).contains(size)),
            );
            let all: Result<Vec<_>, Missing> =
                REFERENCES.into_iter().map(|over| saved(&cells, "PBS", over)).collect();
            Ok(widest(&all?.concat()))
        })
    })];
    let same = |name: &'static str| {
        let says = format!("Block size 1: PBS is the same as {name} (largest difference)");
        let statement = Statement::within("Section V-C, 1", &says, 0.0, 0.001);
        let scope = scope.clone();
        share(statement, conditions, OPEN).measured(move |grid: &Grid| {
            grid.evidence(|view| Ok(widest(&scope.on_two(view, ONE, name)?)))
        })
    };
    claims.extend(["TRAD", "PCAD"].map(same));
    claims.extend(up_to(conditions, scope));
    let says = "Block sizes 128 to 256: PBS is close to PCAD (largest difference)";
    let statement = Statement::within("Section V-C, 3", says, 0.0, 0.05).fitted(FITTED);
    let all = scope.clone();
    let close = share(statement, conditions, OPEN).measured(move |grid: &Grid| {
        grid.evidence(|view| Ok(widest(&all.on_two(view, &all.large, "PCAD")?)))
    });
    claims.push(close);
    claims
}

/// The statements of the form "up to so many per cent better".
fn up_to(conditions: &Conditions, scope: &Scope) -> Vec<Statement<Grid>> {
    let (one, small, large) = ("Section V-C, 1", "Section V-C, 2", "Section V-C, 3");
    let sizes = [(one, ONE), (small, &scope.small), (large, &scope.large)];
    let rows: [(&str, &str, &'static str, f64); 6] = [
        (one, "Block size 1", "AT", 0.52),
        (small, "Block sizes 2 to 64", "PCAD", 0.30),
        (small, "Block sizes 2 to 64", "AT", 0.67),
        (small, "Block sizes 2 to 64", "TRAD", 0.78),
        (large, "Block sizes 128 to 256", "AT", 0.45),
        (large, "Block sizes 128 to 256", "TRAD", 0.79),
    ];
    let statement = |(place, at, over, paper): (&str, &str, &'static str, f64)| {
        let says = format!("{at}: PBS is up to {:.0}% better than {over}", 100.0 * paper);
        let statement = Statement::within(place, &says, paper, 0.05).fitted(FITTED);
        let cause = if over == "AT" { ANCHORS } else { OPEN };
        let sizes = sizes.iter().find(|(of, _)| *of == place).map_or(ONE, |(_, sizes)| sizes);
        let (scope, sizes) = (scope.clone(), sizes.to_vec());
        share(statement, conditions, cause).measured(move |grid: &Grid| {
            grid.evidence(|view| Ok(largest(&scope.on_two(view, &sizes, over)?)))
        })
    };
    rows.map(statement).into()
}
