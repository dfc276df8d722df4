//! The measurements of the study, by axes.

use crate::papers::superpages::execute::Cost;
use crate::papers::superpages::real::Real;
use crate::study::grid::{CellView, Grid, Metrics, Missing, Value, View, metrics};

/// Axis: the program.
pub(crate) const PROGRAM: &str = "program";
/// Axis: the compiler that the recorded run is of; [`NO_COMPILER`] for other programs.
pub(crate) const COMPILER: &str = "compiler";
/// Axis: the page sizes that are on.
pub(crate) const MODE: &str = "mode";
/// Axis: the place where the reads of walks begin.
pub(crate) const WALKS: &str = "walks";
/// Axis: the reading of the machine in the loop of TLB misses.
pub(crate) const READING: &str = "reading";
/// Axis: the TLB of that loop.
pub(crate) const TLB: &str = "TLB";
/// Axis: the place of accessed and dirty flags.
pub(crate) const FLAGS: &str = "flags";
/// Axis: the design of coalescing, or the page sizes that are on.
pub(crate) const DESIGN: &str = "design";
/// Axis: how much further on the destination of a copy lies, in KiB.
pub(crate) const SHIFT: &str = "destination_shift_kib";
/// Axis: the work for each access of a recorded build.
pub(crate) const CYCLES: &str = "cycles_per_access";
/// Axis: the size of free blocks.
pub(crate) const LEVEL: &str = "free_block_frames";

/// Superpages off.
pub(crate) const OFF: &str = "4 KiB";
/// The talk's superpages.
pub(crate) const ON: &str = "1 MiB";
/// The plan's own reading.
pub(crate) const PLAN: &str = "the plan";
/// Walks that read from the second cache.
pub(crate) const FROM_L2: &str = "from L2";
/// A TLB that never misses.
pub(crate) const IDEAL: &str = "never misses";
/// The compiler of programs that are none.
pub(crate) const NO_COMPILER: &str = "none";
/// The recorded compilers.
pub(crate) const GCC: &str = "GCC";
pub(crate) const CLANG: &str = "CLANG";
/// Programs beside the benchmarks.
pub(crate) const FORKBOMB: &str = "forkbomb";
pub(crate) const COMPILE: &str = "compiler";
pub(crate) const BUILD: &str = "build";
pub(crate) const SHIFTED_BUILD: &str = "build, shifted";
pub(crate) const THREADS: &str = "threads";
pub(crate) const RELEASE: &str = "munmap";

/// Everything that the study measures.
pub struct TalkFound {
    /// Programs that depend on no seed: [`PROGRAM`], [`COMPILER`], [`MODE`], [`WALKS`].
    pub(crate) exact: Grid,
    /// Programs that do, on the same axes.
    pub(crate) random: Grid,
    /// Copies to other places: [`PROGRAM`], [`MODE`], [`SHIFT`].
    pub(crate) copies: Grid,
    /// Builds with more or less work than the plan's: [`COMPILER`], [`MODE`], [`CYCLES`].
    pub(crate) work: Grid,
    /// The loop of TLB misses: [`READING`], [`MODE`], [`TLB`].
    pub(crate) misses: Grid,
    /// First writes to superpages that were read: [`FLAGS`].
    pub(crate) flags: Grid,
    /// Random updates on free blocks of one size: [`DESIGN`], [`LEVEL`].
    pub(crate) blocks: Grid,
    /// A table that is touched in part, on the same axes.
    pub(crate) sparse: Grid,
    /// This machine.
    pub(crate) real: Option<Real>,
}

impl TalkFound {
    /// Nothing measured yet, with so many seeds of what depends on one.
    pub(crate) fn new(seeds: usize) -> Self {
        let programs = [PROGRAM, COMPILER, MODE, WALKS];
        Self {
            exact: Grid::new(&programs, 0),
            random: Grid::new(&programs, seeds),
            copies: Grid::new(&[PROGRAM, MODE, SHIFT], 0),
            work: Grid::new(&[COMPILER, MODE, CYCLES], 0),
            misses: Grid::new(&[READING, MODE, TLB], 0),
            flags: Grid::new(&[FLAGS], 0),
            blocks: Grid::new(&[DESIGN, LEVEL], seeds),
            sparse: Grid::new(&[DESIGN, LEVEL], seeds),
            real: None,
        }
    }

    /// The grid in which a program is.
    pub(crate) fn of(&self, program: &str) -> &Grid {
        let is_random = self.random.values(PROGRAM).contains(&&Value::from(program));
        if is_random { &self.random } else { &self.exact }
    }
}

/// The numbers of one run.
pub(crate) fn numbers(cost: &Cost) -> Metrics {
    metrics([
        ("accesses", cost.accesses as f64),
        ("cycles", cost.cycles as f64),
        ("walks", cost.walks as f64),
        ("walk_cycles", cost.walk_cycles as f64),
        ("row_conflicts", cost.row_conflicts as f64),
        ("table_frames", cost.table_frames_max as f64),
        ("reserved_frames", cost.reserved_frames as f64),
        ("promotions", cost.total.pmap.promotions as f64),
        ("created", cost.total.pmap.created as f64),
        ("failed_table_words", cost.total.pmap.failed_table_words as f64),
        ("failed_reverse_words", cost.total.pmap.failed_reverse_words as f64),
        ("faults", cost.faults as f64),
        ("ticks", cost.ticks as f64),
        ("cleaned", cost.cleaned as f64),
        ("flushes", cost.shootdowns.flushes as f64),
        ("remote_flushes", cost.shootdowns.remote as f64),
        ("remote_tlbs", cost.shootdowns.remote_tlbs as f64),
    ])
}

/// Time without superpages / time with a mode's, of a program.
pub(crate) fn speedup(
    view: &View<'_>,
    program: &str,
    compiler: &str,
    mode: &str,
    walks: &str,
) -> Result<f64, Missing> {
    let cells = view.select().is(PROGRAM, program).is(COMPILER, compiler).is(WALKS, walks);
    let ratio =
        |off: &CellView<'_>, on: &CellView<'_>| Ok(off.get("cycles")? / on.get("cycles")?.max(1.0));
    let ratios = cells.pairs(MODE, OFF, mode, ratio)?;
    ratios
        .first()
        .copied()
        .ok_or_else(|| Missing { axis: PROGRAM.to_owned(), lacks: program.to_owned() })
}

/// Cycles of a TLB miss, (X - Y) / T in the talk: those above a TLB that never misses.
pub(crate) fn miss_cycles(view: &View<'_>, reading: &str, mode: &str) -> Result<f64, Missing> {
    let cells = || view.select().is(READING, reading).is(MODE, mode);
    let (own, ideal) = (cells().is(TLB, PLAN), cells().is(TLB, IDEAL));
    Ok((own.one("cycles")? - ideal.one("cycles")?) / own.one("walks")?.max(1.0))
}
