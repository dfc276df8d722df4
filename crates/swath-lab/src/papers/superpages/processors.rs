//! The processors of the [kernel](crate::papers::superpages::kernel), and the maintenance that a
//! change of a table owes: descriptors cleaned to memory, and a flush in each of their TLBs.
//!
//! ARMv7 sends maintenance of TLBs to all processors of the inner shareable domain (FreeBSD turns
//! it on in `pj4b_config`), so no interrupt is needed: who changes the table waits for the others.

use swath_arch::{PageRange, PhysAddr, Vpn};
use swath_hw::processor::{Processor, ProcessorConfig, ProcessorConfigError, ProcessorStats};
use swath_hw::{MmuConfigError, OfferError, Translate};
use swath_vm::{PageMapping, PmapStatistics, SpaceId};

/// The timer's interrupts on each processor. A tick reads one word in each of `pages` pages of the
/// kernel, which every space maps page by page whatever superpages are on: FreeBSD makes its
/// kernel's mappings before any program runs, and never promotes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticks {
    /// Cycles of the core from one to the next, 1 or more.
    pub period_cycles: u64,
    /// Pages that one touches.
    pub pages: u64,
}

/// Descriptors written so far, as FreeBSD writes them (`PTE_SYNC` in its `pmap`): one for a page,
/// a superpage created or promoted and a demotion that finds its table right, 16 for a page of 64
/// KiB in parts, a table's 256 and its own for any other demotion.
pub(super) fn descriptors(made: &PmapStatistics) -> u64 {
    let refilled = made.fixed_up + made.recreated;
    made.entered
        + made.created
        + made.promotions
        + made.recalled
        + 16 * made.parted
        + 257 * refilled
}

/// Flushes of TLBs that changes of tables owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shootdowns {
    /// Flushes owed.
    pub flushes: u64,
    /// Those of a space that a processor ran which did not make the change.
    pub remote: u64,
    /// TLBs of such processors that were flushed.
    pub remote_tlbs: u64,
}

struct Core<T> {
    processor: Processor<T>,
    /// The space of the process that it runs.
    running: Option<SpaceId>,
    /// The cycle of the next tick.
    next_tick: u64,
}

/// All of them. One acts at a time, the chosen one.
pub(super) struct Processors<T> {
    cores: Vec<Core<T>>,
    chosen: usize,
    shootdown_cycles: u64,
    pub(super) shootdowns: Shootdowns,
}

impl<T: Translate> Processors<T> {
    /// A processor for each of what translates for them, one at least.
    pub(super) fn new(
        mmus: Vec<T>,
        config: &ProcessorConfig,
        ticks: Option<Ticks>,
        shootdown_cycles: u64,
    ) -> Result<Self, ProcessorConfigError> {
        let next_tick = ticks.map_or(u64::MAX, |ticks| ticks.period_cycles);
        let core = |mmu| {
            let processor = Processor::new(config, mmu)?;
            Ok(Core { processor, running: None, next_tick })
        };
        let cores: Result<Vec<Core<T>>, ProcessorConfigError> =
            mmus.into_iter().map(core).collect();
        let shootdowns = Shootdowns::default();
        Ok(Self { cores: cores?, chosen: 0, shootdown_cycles, shootdowns })
    }

    pub(super) fn choose(&mut self, processor: usize) {
        self.chosen = processor % self.cores.len();
    }

    pub(super) fn core(&mut self) -> &mut Processor<T> {
        &mut self.cores[self.chosen].processor
    }

    pub(super) fn running(&self) -> Option<SpaceId> {
        self.cores[self.chosen].running
    }

    /// Changes to a space, whose tables lie at `root`.
    pub(super) fn run(&mut self, space: SpaceId, root: PhysAddr) -> Result<(), MmuConfigError> {
        self.core().mmu_mut().set_root(root)?;
        self.cores[self.chosen].running = Some(space);
        Ok(())
    }

    /// No processor runs in a space any more.
    pub(super) fn stop(&mut self, space: SpaceId) {
        for core in self.cores.iter_mut().filter(|core| core.running == Some(space)) {
            core.processor.invalidate_all();
            core.running = None;
        }
    }

    /// Returns true once in each period.
    #[inline]
    pub(super) fn tick_is_due(&mut self, period_cycles: u64) -> bool {
        let core = &mut self.cores[self.chosen];
        let now = core.processor.now();
        let due = now >= core.next_tick;
        if due {
            // Ticks that were missed while the kernel worked are one.
            core.next_tick = (now / period_cycles + 1) * period_cycles;
        }
        due
    }

    /// Invalidates pages of a space in every TLB that may hold them. What no processor runs is in
    /// none.
    pub(super) fn flush(&mut self, space: SpaceId, pages: PageRange) {
        self.shootdowns.flushes += 1;
        let mut others = 0;
        for (at, core) in self.cores.iter_mut().enumerate() {
            if core.running != Some(space) {
                continue;
            }
            // Either takes the walk cache with it, whether links changed or not.
            match pages.count {
                1 => core.processor.invalidate_page(pages.start),
                _ => core.processor.invalidate_range(pages),
            }
            others += u64::from(at != self.chosen);
        }
        if others > 0 {
            self.shootdowns.remote += 1;
            self.shootdowns.remote_tlbs += others;
            let cycles = self.shootdown_cycles;
            self.core().spend(cycles);
        }
    }

    pub(super) fn reset_stats(&mut self) {
        self.cores.iter_mut().for_each(|core| core.processor.reset_stats());
        self.shootdowns = Shootdowns::default();
    }

    /// Waits for all data under way; gives the counters of all processors together, and the
    /// cycles of the one that took longest.
    pub(super) fn finish(&mut self) -> Result<ProcessorStats, OfferError> {
        let mut all = ProcessorStats::default();
        for core in &mut self.cores {
            core.processor.finish()?;
            let one = core.processor.stats();
            all.cycles = all.cycles.max(one.cycles);
            all.reads += one.reads;
            all.fetches += one.fetches;
            all.writes += one.writes;
            all.walks += one.walks;
            all.walk_cycles += one.walk_cycles;
            all.row_conflicts += one.row_conflicts;
        }
        Ok(all)
    }

    /// A processor that holds for one of `pages` what `table` does not say.
    pub(super) fn stale(
        &self,
        pages: PageRange,
        table: impl Fn(SpaceId, Vpn) -> Option<PageMapping>,
    ) -> Option<(usize, Vpn)>
    where
        T: Clone,
    {
        self.cores.iter().enumerate().find_map(|(at, core)| {
            let space = core.running?;
            let mut mmu = core.processor.mmu().clone();
            let stale = |page: &Vpn| {
                let Some(held) = mmu.lookup(page.address()).0 else { return false };
                table(space, *page).is_none_or(|right| {
                    held.addr.frame() != right.frame
                        || held.attributes.writable && !right.attributes.writable
                })
            };
            pages.iter().find(stale).map(|page| (at, page))
        })
    }
}
