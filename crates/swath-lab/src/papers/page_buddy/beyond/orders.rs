//! Matrix multiplication with its loops in every order, tile by tile.
//!
//! Table 4 describes one pass over each matrix. A multiplication of n × n elements that is cut into
//! tiles has three loops, over the rows i of A and C, the columns j of B and C, and k between; their
//! order decides which operand stays in the accelerator and in which directions the others are
//! walked. The operand that the innermost loop does not move is held: read once, or, if it is C,
//! written once. The others are transferred at each step, C read and written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::VirtAddr;

use crate::papers::page_buddy::savings::{DESIGN, READING};
use crate::papers::page_buddy::setting::BlockFrames;
use crate::papers::page_buddy::translation::{Accesses, Program};
use crate::papers::page_buddy::workload::{Shapes, TRANSACTION_BYTES, Tiles, WorkloadName};
use crate::study::bounds::{Ascending, Bounded, Forms};
use crate::study::grid::{CellView, Grid, Missing, View, largest, mean};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrdersPlan {
    /// Rows and columns of a tile in elements; 1 is a loop over elements.
    pub tile_elements: Forms<Ascending<Bounded<1, 1024>>>,
    /// Steps of the outermost loop that are measured, of all that there are: each is like the
    /// others.
    pub outer_steps: Bounded<1, 1024>,
    /// Sizes of the free blocks.
    pub block_frames: Ascending<BlockFrames>,
}

/// The loops' order from the outermost to the innermost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoopOrder {
    /// Its name: "ijk".
    pub(crate) name: &'static str,
    /// The place of i, j and k among the loops.
    places: [usize; 3],
}

/// All six.
pub(crate) const LOOP_ORDERS: [LoopOrder; 6] = [
    LoopOrder { name: "ijk", places: [0, 1, 2] },
    LoopOrder { name: "ikj", places: [0, 2, 1] },
    LoopOrder { name: "jik", places: [1, 0, 2] },
    LoopOrder { name: "jki", places: [2, 0, 1] },
    LoopOrder { name: "kij", places: [1, 2, 0] },
    LoopOrder { name: "kji", places: [2, 1, 0] },
];

/// The matrices A, B and C as buffers, and the loops (i = 0, j = 1, k = 2) over their tiles' rows
/// and columns.
const OPERANDS: [(usize, usize); 3] = [(0, 2), (2, 1), (0, 1)];

/// The buffer of C.
const RESULT: usize = 2;

/// A multiplication C = A × B.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    /// Rows and columns of each matrix.
    pub(crate) elements: u64,
    pub(crate) element_bytes: u64,
    /// Rows and columns of a tile.
    pub(crate) tile: u64,
    pub(crate) order: LoopOrder,
    /// Steps of the outermost loop.
    pub(crate) outer_steps: u64,
}

impl Product {
    /// Hands over each transaction: the buffer and the offset of its line in bytes. O(1) each.
    pub(crate) fn visit(&self, visit: &mut impl FnMut(usize, u64)) {
        let steps = self.elements.div_ceil(self.tile);
        let [i, j, k] = self.order.places;
        for outer in 0..self.outer_steps.min(steps) {
            for middle in 0..steps {
                for inner in 0..steps {
                    let at = [outer, middle, inner];
                    self.step([at[i], at[j], at[k]], inner, steps, visit);
                }
            }
        }
    }

    /// One step of the innermost loop at the tiles i, j and k.
    fn step(&self, at: [u64; 3], inner: u64, steps: u64, visit: &mut impl FnMut(usize, u64)) {
        for (buffer, (row, column)) in OPERANDS.into_iter().enumerate() {
            let moved = [row, column].iter().any(|&one| self.order.places[one] == 2);
            let times = match (buffer == RESULT, moved) {
                // Read and written, or written when it is done.
                (true, true) => 2,
                (true, false) => u64::from(inner + 1 == steps),
                (false, true) => 1,
                (false, false) => u64::from(inner == 0),
            };
            for _ in 0..times {
                self.tile(at[row], at[column], &mut |line| visit(buffer, line));
            }
        }
    }

    /// The lines of one tile of a matrix, row by row.
    fn tile(&self, row: u64, column: u64, visit: &mut impl FnMut(u64)) {
        let row_bytes = self.elements * self.element_bytes;
        let end = ((row + 1) * self.tile).min(self.elements);
        let left = column * self.tile * self.element_bytes;
        let right = (left + self.tile * self.element_bytes).min(row_bytes);
        for y in row * self.tile..end {
            let first = (y * row_bytes + left) / TRANSACTION_BYTES;
            let past = (y * row_bytes + right).div_ceil(TRANSACTION_BYTES);
            (first..past).for_each(|line| visit(line * TRANSACTION_BYTES));
        }
    }

    /// The most transactions that there are.
    fn transactions_max(&self) -> u64 {
        let steps = self.elements.div_ceil(self.tile);
        let row_bytes = self.elements * self.element_bytes;
        let tile = Tiles::vertical(row_bytes, self.tile, self.tile * self.element_bytes);
        let columns = row_bytes.div_ceil(tile.block_bytes.max(1)).max(1);
        let each = tile.lines_max() / columns;
        // Two of the operands move, one of them C, read and written.
        [self.outer_steps.min(steps), steps, steps, each, 4].iter().product()
    }

    fn named(&self) -> String {
        match self.tile {
            1 => format!("{}, elements", self.order.name),
            tile => format!("{}, tiles of {tile}", self.order.name),
        }
    }
}

/// A multiplication under one reading.
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) program: Program,
}

/// The reading that is the paper's.
const TABLE_4: &str = "Table 4";

fn products(plan: &OrdersPlan, quick: bool) -> impl Iterator<Item = Product> {
    let Shapes { matrix_elements: elements, element_bytes, .. } = Shapes::default();
    let outer_steps = plan.outer_steps.get();
    plan.tile_elements.of(quick).iter().flat_map(move |tile| {
        let tile = tile.get();
        LOOP_ORDERS.map(|order| Product { elements, element_bytes, tile, order, outer_steps })
    })
}

/// Bytes of all programs.
pub(crate) fn needs_bytes(plan: &OrdersPlan, quick: bool) -> u64 {
    let one = |product: Product| product.transactions_max().saturating_mul(8);
    products(plan, quick).map(one).fold(0, u64::saturating_add)
}

/// The paper's reading, and each order with each tile.
pub(crate) fn readings(plan: &OrdersPlan, quick: bool) -> Vec<Reading> {
    let matrices = || {
        let workload = WorkloadName::MatrixMultiplication.build(&Shapes::default());
        Program::of(&workload)
    };
    let of = |product: Product| {
        let mut program = matrices();
        let mut count = 0;
        product.visit(&mut |_, _| count += 1);
        let mut listed: Vec<VirtAddr> = Vec::with_capacity(count);
        product.visit(&mut |buffer, offset| listed.push(program.address(buffer, offset)));
        program.masters = vec![Accesses::Listed(listed)];
        Reading { name: product.named(), program }
    };
    let paper = Reading { name: TABLE_4.to_owned(), program: matrices() };
    std::iter::once(paper).chain(products(plan, quick).map(of)).collect()
}

fn rate(cell: &CellView<'_>) -> Result<f64, Missing> {
    cell.get("hit_rate")
}

/// The hit rates, and what PBS gains.
pub(crate) fn figures(grid: &Grid) -> Vec<Drawn> {
    let names: Vec<String> = grid.values(READING).iter().map(ToString::to_string).collect();
    let id = "Matrix orders";
    let title = "Matrix multiplication, mean over the block sizes";
    let y_label = "TLB hit rate (share of accesses)";
    let rates = Figure::new(id, title, FigureKind::Bars, "order of the loops", y_label);
    let of = |design: &str| {
        let points = names.iter().filter_map(|name| {
            let rates = |view: &View<'_>| {
                let cells = view.select().is(READING, name.as_str()).is(DESIGN, design);
                Ok(mean(&cells.each(rate)?))
            };
            Some(grid.evidence(rates).ok()?.point(name.as_str()))
        });
        Series::new(id, READING, "tlb_hit_rate", design, points.collect::<Vec<_>>())
    };
    let series = ["TRAD", "PCAD", "AT", "PBS"].map(of).to_vec();
    let rates = Drawn { figure: rates.with_y_range(0.0, 1.0), series };

    let id = "Gains by matrix order";
    let title = "Matrix multiplication: largest gain of PBS over the block sizes";
    let y_label = "gain in TLB hit rate (PBS / other - 1)";
    let gains = Figure::new(id, title, FigureKind::Table, "order of the loops", y_label);
    let over = |other: &str| {
        let points = names.iter().filter_map(|name| {
            let gain = |view: &View<'_>| largest_gain(view, name, other);
            Some(grid.evidence(gain).ok()?.point(name.as_str()))
        });
        Series::new(id, READING, "gain", other, points.collect::<Vec<_>>())
    };
    let series = ["TRAD", "PCAD", "AT"].map(over).to_vec();
    vec![rates, Drawn { figure: gains, series }]
}

fn largest_gain(view: &View<'_>, reading: &str, other: &str) -> Result<f64, Missing> {
    let cells = view.select().is(READING, reading);
    let gains = cells.pairs(DESIGN, "PBS", other, |pbs, other| Ok(rate(pbs)? / rate(other)? - 1.0));
    Ok(largest(&gains?))
}

/// The finding in one sentence.
pub(crate) fn finding(grid: &Grid) -> String {
    let gain = |name: &str| {
        let found = grid.evidence(|view: &View<'_>| largest_gain(view, name, "PCAD"));
        found.ok().map(|evidence| 100.0 * evidence.estimate().value)
    };
    let mut orders: Vec<(f64, String)> = Vec::new();
    for name in grid.values(READING).iter().map(ToString::to_string).filter(|name| name != TABLE_4)
    {
        orders.extend(gain(&name).map(|gain| (gain, name)));
    }
    orders.sort_by(|one, two| one.0.total_cmp(&two.0));
    let (Some(paper), Some(least), Some(most)) = (gain(TABLE_4), orders.first(), orders.last())
    else {
        return String::new();
    };
    format!(
        "Matrix multiplication: PBS gains at most {paper:.1}% over PCAD on one pass over each matrix \
         as in Table 4, and from {:.1}% ({}) to {:.1}% ({}) as the loops of a real product are \
         ordered and tiled.",
        least.0, least.1, most.0, most.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transactions(product: Product) -> Vec<(usize, u64)> {
        let mut all = Vec::new();
        product.visit(&mut |buffer, offset| all.push((buffer, offset / 64)));
        all
    }

    /// Elements of one line each, as loops written out.
    #[test]
    fn loops_over_elements() {
        let n = 5;
        let product =
            |order| Product { elements: n, element_bytes: 64, tile: 1, order, outer_steps: n };
        let (mut ijk, mut ikj, mut jki) = (Vec::new(), Vec::new(), Vec::new());
        for one in 0..n {
            for two in 0..n {
                ikj.push((0, one * n + two));
                jki.push((1, two * n + one));
                for three in 0..n {
                    ijk.extend([(0, one * n + three), (1, three * n + two)]);
                    ikj.extend([(1, two * n + three), (2, one * n + three), (2, one * n + three)]);
                    let (a, c) = (three * n + two, three * n + one);
                    // B comes after A at the first step.
                    let last = if three == 0 { jki.pop() } else { None };
                    jki.push((0, a));
                    jki.extend(last);
                    jki.extend([(2, c), (2, c)]);
                }
                ijk.push((2, one * n + two));
            }
        }
        assert_eq!(transactions(product(LOOP_ORDERS[0])), ijk);
        assert_eq!(transactions(product(LOOP_ORDERS[1])), ikj);
        assert_eq!(transactions(product(LOOP_ORDERS[3])), jki);
    }

    /// Each order multiplies each pair of tiles once, and ends each line of C once or more.
    #[test]
    fn every_order_covers_the_matrices() {
        for order in LOOP_ORDERS {
            let product =
                Product { elements: 40, element_bytes: 4, tile: 16, order, outer_steps: 99 };
            let all = transactions(product);
            assert!(all.len() as u64 <= product.transactions_max(), "{}", order.name);
            for buffer in 0..3 {
                let mut lines: Vec<u64> =
                    all.iter().filter(|one| one.0 == buffer).map(|one| one.1).collect();
                lines.sort_unstable();
                lines.dedup();
                assert_eq!(lines, (0..100).collect::<Vec<u64>>(), "{}", order.name);
            }
            let one = Product { outer_steps: 1, ..product };
            assert!(all.starts_with(&transactions(one)));
        }
    }

    #[test]
    fn places_are_those_of_the_name() {
        for order in LOOP_ORDERS {
            let places = ["i", "j", "k"].map(|name| order.name.find(name).unwrap());
            assert_eq!(order.places, places, "{}", order.name);
        }
    }
}
