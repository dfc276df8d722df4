//! The real-time memory management unit (RTMMU) with time, and the conventional unit beside it.
//!
//! After *Böhnert and Scholl*, section IV-B. The RTMMU has three ports to memory, which
//! work in parallel. A page is looked up in the tables of [`validity`](swath_arch::validity):
//!
//! ```text
//!  cycles        0        f        2f = t              t + m
//!  port 1        │ c[b]   │ sp[c[b]] │
//!  port 2        │ h[b]   │ s[h[b]]  │
//!  port 3        │ d[b]              │ data              │
//!                                    ▲ verdict: the conditions of `validity`
//! ```
//!
//! f, t and m are the [latencies](RtLatency) of the fast memories, of the table that holds
//! frames, and of the data. The third port waits for the verdict of the others, so an access
//! takes max(2f, t) + m cycles; with memories at double speed, 2f = t, that is what the
//! conventional unit takes, which has the third port alone and reads a [`PageTable`](crate::PageTable) in place of
//! d: t + m. A fault is reported with the verdict (of the node that is not valid, where
//! there are nodes), always in the same cycle, whichever word told it and however early.
//!
//! | scheme | cycles to the verdict | words read through ports 1 + 2 + 3, at most |
//! |---|---|---|
//! | arrays (RTMMU) | max(2f, t) | 2 + 2 + 1 |
//! | nodes of L levels (RTMMU) | L·max(2f, t) | 2L + L + L |
//! | page table (conventional) | t | 0 + 0 + 1 |
//!
//! Nothing else counts: not the size of a region, nor their number, nor what was mapped before.
//! Fewer words are read only where a port finds a number that is no place of the space, and where
//! a node is not valid.
//!
//! The model takes about 580 instructions of x86-64 for an access through arrays, 340 through
//! a page table.
//!
//! # Accesses in a row
//! An access may [begin](Rtmmu::begin) while another is under way, as soon as its ports are
//! free. If 2f > t, the third port begins late, so that its word arrives with the
//! verdict; this is the pipelining of the paper's footnote 2: with all memories at one speed
//! f = t = m an access takes one read more (3f in place of 2f), but another one can
//! begin every 2f cycles all the same. In general [that is](Rtmmu::interval_cycles)
//! (L − 1)·max(2f, t) + max(2f, t + m).
//!
//! # With a TLB
//! The paper's units have none, "orthogonal to our approach" (footnote 3). With one, a hit takes
//! the lookup and m; a miss the lookup more than without. Only what was permitted is filled.
//!
//! Unmapping a region writes one word, and the tables are right at once; a TLB is not. It must
//! forget the region's pages **before one of them is mapped again**; nothing else that is done to
//! regions concerns it, as a page that was not mapped was never filled. Two ways are modelled:
//! * [`invalidate_pages`](Rtmmu::invalidate_pages), by range: each entry compares its page
//!   with both ends. All entries of a set do so in one cycle, so it takes no more cycles than
//!   the TLB has sets, 1 if it is fully associative. So unmapping stays O(1) in the region's size.
//! * [`invalidate_all`](Rtmmu::invalidate_all), which clears all valid bits in one cycle;
//!   what follows misses, and a worst case must count that.
//!
//! To let entries remember c\[b\] and h\[b\] and ask at each hit whether h\[b\] < sp\[c\[b\]\]
//! and s\[h\[b\]\] = b still hold would not do: after the region was unmapped and mapped again,
//! page b can stand in the same place with another frame.
//!
//! ```
//! use swath_arch::{Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables, VirtAddr};
//! use swath_hw::{Operation, RtLatency, RtTables, Rtmmu};
//!
//! // 32 pages. Page 5 is the only one of region 4: it stands in place 4 of the stack.
//! let mut words = vec![0; 80];
//! let memory = SliceMemory::new(Pfn::new(0), &mut words);
//! let arrays = ValidityTables::consecutive(5, PhysAddr::new(0));
//! let write = |base: PhysAddr, index: u64, word| {
//!     memory.write_u32(base + 4 * index, word)
//! };
//! write(arrays.regions, 5, 4)?;
//! write(arrays.helper, 5, 4)?;
//! write(arrays.stack, 4, 5)?;
//! write(arrays.stack_end, 4, 5)?;
//! write(arrays.data, 5, 0x77 << 3 | 1)?; // frame 0x77, to be read
//!
//! let mut unit = Rtmmu::new(RtTables::regions(arrays)?, RtLatency::PAPER, None)?;
//! let access = unit.access(100, VirtAddr::new(0x5008), Operation::Read, &memory);
//! assert_eq!(access.result, Ok(PhysAddr::new(0x77008)));
//! assert_eq!((access.cycles(), access.reads.total()), (4, 5));
//!
//! // The region is unmapped by one write.
//! write(arrays.stack_end, 4, 4)?;
//! let access = unit.access(200, VirtAddr::new(0x5008), Operation::Read, &memory);
//! assert!(access.result.is_err());
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use swath_arch::{Order, PageRange, PhysAddr, PhysMemory, VirtAddr, Vpn};

use crate::clock::Cycle;
use crate::rtmmu::tables::{MappedPage, PageRights, PortReads, RtFault, RtTables, Scheme};
use crate::rtmmu::walk::{RtLatency, RtWalk};
use crate::tlb::array::Tlb;
use crate::tlb::fill::{EntryKind, TlbFill};
use crate::tlb::geometry::{Geometry, GeometryError};
use crate::translate::permit::Operation;

/// An access that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtAccess {
    /// The physical address, or why there is none.
    pub result: Result<PhysAddr, RtFault>,
    /// The cycle in which it was asked for.
    pub asked: Cycle,
    /// The cycle in which the data were there or the fault was reported.
    pub done: Cycle,
    /// Words of tables read.
    pub reads: PortReads,
    /// True if the TLB answered.
    pub from_tlb: bool,
}

impl RtAccess {
    /// Returns the cycles from the question to the end.
    pub const fn cycles(&self) -> Cycle {
        self.done - self.asked
    }
}

/// The counters of a unit, over the accesses that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RtStats {
    /// All accesses.
    pub accesses: u64,
    /// Those that the TLB answered.
    pub tlb_hits: u64,
    /// Those to pages that are not mapped.
    pub page_faults: u64,
    /// Those that ended in any other fault.
    pub other_faults: u64,
    /// Words of tables read.
    pub reads: PortReads,
    /// Their cycles together.
    pub cycles: Cycle,
    /// The most cycles of one.
    pub cycles_max: Cycle,
}

/// An RTMMU or, over a [`PageTable`](crate::PageTable), the conventional unit: for one address space at a time,
/// with or without a TLB.
///
/// Invariant: no port serves two reads at once; ports 1 and 2 are free from `tables_free` on,
/// port 3 from `data_free` on.
#[derive(Clone, Debug)]
pub struct Rtmmu {
    tables: RtTables,
    latency: RtLatency,
    tlb: Option<Tlb>,
    tables_free: Cycle,
    data_free: Cycle,
    /// Counts invalidations: what a walk found before one is not filled after it.
    epoch: u64,
    stats: RtStats,
}

impl Rtmmu {
    /// Creates a unit with idle ports and, if `tlb` says its form, an empty TLB. O(entries).
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(
        tables: RtTables,
        latency: RtLatency,
        tlb: Option<Geometry>,
    ) -> Result<Self, GeometryError> {
        let tlb = tlb.map(|geometry| Tlb::new(geometry, Order::BASE)).transpose()?;
        let (tables_free, data_free, epoch) = (0, 0, 0);
        let stats = RtStats::default();
        Ok(Self { tables, latency, tlb, tables_free, data_free, epoch, stats })
    }

    /// Returns the tables.
    pub const fn tables(&self) -> &RtTables {
        &self.tables
    }

    /// Returns the TLB, if there is one.
    pub const fn tlb(&self) -> Option<&Tlb> {
        self.tlb.as_ref()
    }

    /// Returns the counters since the start or the last [`reset_stats`](Self::reset_stats).
    pub const fn stats(&self) -> RtStats {
        self.stats
    }

    /// Sets every counter to 0; the TLB's entries stay.
    pub fn reset_stats(&mut self) {
        self.stats = RtStats::default();
        if let Some(tlb) = &mut self.tlb {
            tlb.reset_stats();
        }
    }

    /// Returns the number of cycles of an access that finds its ports free and walks the tables, the TLB's lookup
    /// before it and the access to the data after it included: the worst case.
    pub fn access_cycles(&self) -> Cycle {
        self.lookup_cycles() + self.walk_cycles() + Cycle::from(self.latency.data)
    }

    /// Returns the cycles of an access that ends in a fault: at most, where there are nodes.
    pub fn fault_cycles(&self) -> Cycle {
        self.lookup_cycles() + self.walk_cycles()
    }

    /// Returns the number of cycles after which the next walk of the tables can begin.
    pub fn interval_cycles(&self) -> Cycle {
        let RtLatency { table, data, .. } = self.latency;
        let last = self.walk_cycles() - self.latency.level_cycles(&self.tables);
        last + self.fast_cycles().max(Cycle::from(table) + Cycle::from(data))
    }

    fn lookup_cycles(&self) -> Cycle {
        self.tlb.as_ref().map_or(0, |_| self.latency.tlb.into())
    }

    fn walk_cycles(&self) -> Cycle {
        Cycle::from(self.tables.levels()) * self.latency.level_cycles(&self.tables)
    }

    /// Returns the number of cycles for which ports 1 and 2 are busy with a level.
    fn fast_cycles(&self) -> Cycle {
        match self.tables.0 {
            Scheme::Page(_) => 0,
            _ => 2 * Cycle::from(self.latency.fast),
        }
    }

    /// Begins an access that is asked for at `now`: looks into the TLB, and takes the ports from
    /// when they are free. Accesses are begun in the order of their cycles. O(1) or, with a TLB, a
    /// [lookup](Tlb::lookup).
    #[inline]
    pub fn begin(&mut self, now: Cycle, addr: VirtAddr, operation: Operation) -> RtWalk {
        let page = addr.page();
        let walk = |unit: &Self, at| RtWalk::new(&unit.tables, unit.latency, addr, operation, at);
        if page.raw() >> self.tables.pages_log2() != 0 {
            let mut walk = walk(self, now);
            walk.fail(now, RtFault::OutOfSpace { page });
            return walk;
        }
        let looked_up = now.saturating_add(self.lookup_cycles());
        let hit = self.tlb.as_mut().and_then(|tlb| tlb.lookup(page));
        let mut walk = if let Some(hit) = hit {
            let rights = PageRights::of_attributes(hit.attributes);
            let mut walk = walk(self, looked_up);
            // One that is denied takes no port.
            let permitted = rights.permit(operation);
            let at = if permitted { looked_up.max(self.data_free) } else { looked_up };
            walk.go_to_data(at, MappedPage { frame: hit.frame, rights });
            if permitted {
                self.data_free = walk.done();
            }
            walk.from_tlb = true;
            walk
        } else {
            let level_cycles = self.latency.level_cycles(&self.tables);
            // The third port begins so that it ends with the verdict.
            let late = level_cycles - Cycle::from(self.latency.table);
            let ports_free = self.tables_free.max(self.data_free.saturating_sub(late));
            let begun = looked_up.max(ports_free);
            let last_level = begun.saturating_add(self.walk_cycles() - level_cycles);
            self.tables_free = last_level.saturating_add(self.fast_cycles());
            let verdict = last_level.saturating_add(level_cycles);
            self.data_free = verdict.saturating_add(self.latency.data.into());
            let mut walk = walk(self, begun);
            walk.kept = [self.tables_free, self.data_free];
            walk
        };
        (walk.asked, walk.epoch) = (now, self.epoch);
        walk
    }

    /// Counts an access that is over and fills the TLB with what its walk found, unless
    /// something was invalidated meanwhile. O(1) or, with a TLB, a [fill](Tlb::fill).
    ///
    /// # Errors
    /// The walk, if it is not over.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the walk goes back to its owner")]
    pub fn complete(&mut self, walk: RtWalk) -> Result<RtAccess, RtWalk> {
        if walk.next_event().is_some() { Err(walk) } else { Ok(self.record(&walk)) }
    }

    fn record(&mut self, walk: &RtWalk) -> RtAccess {
        if let (Some(tlb), Ok(MappedPage { frame, rights })) = (&mut self.tlb, walk.mapped)
            && !walk.from_tlb
            && walk.epoch == self.epoch
        {
            let (page, attributes) = (walk.page(), rights.attributes());
            let pages = PageRange::new(page, 1);
            tlb.fill(&TlbFill::within(EntryKind::Regular, page, pages, frame, attributes));
        }
        let result = walk.outcome();
        if result.is_err() {
            // What a fault no longer needs is free, unless another walk has been promised it.
            for (free, kept) in
                [&mut self.tables_free, &mut self.data_free].into_iter().zip(walk.kept)
            {
                if *free == kept {
                    *free = kept.min(walk.done());
                }
            }
        }
        let &RtWalk { asked, reads, from_tlb, .. } = walk;
        let access = RtAccess { result, asked, done: walk.done(), reads, from_tlb };
        let stats = &mut self.stats;
        stats.accesses += 1;
        stats.tlb_hits += u64::from(from_tlb);
        match result {
            Ok(_) => {}
            Err(RtFault::Unmapped { .. }) => stats.page_faults += 1,
            Err(_) => stats.other_faults += 1,
        }
        stats.reads.add(reads);
        stats.cycles = stats.cycles.saturating_add(access.cycles());
        stats.cycles_max = stats.cycles_max.max(access.cycles());
        access
    }

    /// Makes a whole access in one go, asked for at `now`. The next one is best asked for at its
    /// [`done`](RtAccess::done), as by a core that waits. O(levels) and what the TLB takes.
    #[inline]
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        now: Cycle,
        addr: VirtAddr,
        operation: Operation,
        memory: &M,
    ) -> RtAccess {
        let mut walk = self.begin(now, addr, operation);
        walk.finish(memory);
        self.record(&walk)
    }

    /// Makes the TLB forget every page of `pages`, and says how many cycles that takes: one for
    /// each set that can hold such a page, so at most as many as there are sets; 0 without a TLB.
    /// Until then a changed table goes unnoticed. The model takes O(entries).
    pub fn invalidate_pages(&mut self, pages: PageRange) -> Cycle {
        self.epoch += 1;
        let Some(tlb) = &mut self.tlb else {
            return 0;
        };
        tlb.invalidate_range(pages);
        let Geometry { sets, index_shift, .. } = tlb.geometry();
        let last = pages.start.raw().saturating_add(pages.count.saturating_sub(1));
        let windows = (last >> index_shift) - (pages.start.raw() >> index_shift);
        windows.saturating_add(1).min(sets.into())
    }

    /// Makes the TLB forget everything, in one cycle; 0 without a TLB. The model takes
    /// O(entries).
    pub fn invalidate_all(&mut self) -> Cycle {
        self.epoch += 1;
        match &mut self.tlb {
            Some(tlb) => {
                tlb.invalidate_all();
                1
            }
            None => 0,
        }
    }

    /// Changes to another address space, and [invalidates everything](Self::invalidate_all).
    pub fn set_tables(&mut self, tables: RtTables) -> Cycle {
        self.tables = tables;
        self.invalidate_all()
    }

    /// Returns the TLB's answer for `page`, and changes nothing.
    pub fn peek(&self, page: Vpn) -> Option<MappedPage> {
        let hit = self.tlb.as_ref()?.peek(page)?;
        Some(MappedPage { frame: hit.frame, rights: PageRights::of_attributes(hit.attributes) })
    }
}
