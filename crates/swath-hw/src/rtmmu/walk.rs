//! One access on its way through the [RTMMU](crate::rtmmu::unit) or the conventional unit, event by
//! event.

use swath_arch::{NodeTables, Pfn, PhysAddr, PhysMemory, ValidityTables, VirtAddr, Vpn, validity};

use crate::clock::Cycle;
use crate::rtmmu::tables::{
    MappedPage, PageTable, PortReads, RtFault, RtTables, Scheme, UnmappedCause, Unread, entry,
    in_data, in_entry, in_node_data, node_control, node_data, place,
};
use crate::translate::permit::Operation;

/// The latencies of the memories, in cycles of the unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RtLatency {
    /// A read of VRC, stack ends, helper or stack array.
    pub fast: u32,
    /// A read of the data array or the page table.
    pub table: u32,
    /// The access to the data at the physical address.
    pub data: u32,
    /// A lookup in the TLB, if there is one; a walk begins after it.
    pub tlb: u32,
}

impl RtLatency {
    /// As in the paper (section V-A): VRC, stack ends, helper and stack array at twice the speed
    /// of the module that holds page table and data. A cycle is a read of the fast memory. The
    /// paper has no TLB; one cycle for it is a choice.
    pub const PAPER: Self = Self { fast: 1, table: 2, data: 2, tlb: 1 };

    /// All memories at one speed, the case of the paper's footnote 2.
    pub const ONE_SPEED: Self = Self { fast: 2, ..Self::PAPER };

    /// Returns the number of cycles from the beginning of a level to its verdict.
    pub(crate) fn level_cycles(self, tables: &RtTables) -> Cycle {
        let table = Cycle::from(self.table);
        match tables.0 {
            Scheme::Page(_) => table,
            _ => table.max(2 * Cycle::from(self.fast)),
        }
    }
}

impl Default for RtLatency {
    fn default() -> Self {
        Self::PAPER
    }
}

/// The next event of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The first words of ports one and two arrive.
    First,
    /// Their second words arrive.
    Second,
    /// The word of the third port arrives; with it the table's answer is known.
    Verdict,
    /// The access to the data ends.
    Data,
    /// Nothing.
    Over,
}

/// An access under way: begun by [`Rtmmu::begin`](crate::Rtmmu::begin), advanced by its
/// owner, given back to [`Rtmmu::complete`](crate::Rtmmu::complete).
///
/// A word is read in the cycle in which it arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RtWalk {
    tables: RtTables,
    latency: RtLatency,
    addr: VirtAddr,
    operation: Operation,
    phase: Phase,
    level: u32,
    node: Pfn,
    /// The cycle in which the present level was begun.
    begun: Cycle,
    /// The cycle of the phase or, once all is over, of the last one.
    at: Cycle,
    /// Port one: the region's start, its stack end.
    start: Result<u64, Unread>,
    end: Result<u64, Unread>,
    /// Port two: the page's place on the stack, who stands there.
    helper: Result<u64, Unread>,
    found: Result<u64, Unread>,
    pub(crate) reads: PortReads,
    /// The result once it is over; before that a fault that means nothing.
    pub(crate) mapped: Result<MappedPage, RtFault>,
    pub(crate) asked: Cycle,
    pub(crate) from_tlb: bool,
    pub(crate) epoch: u64,
    /// Until when ports 1 and 2, and port 3, are kept for it.
    pub(crate) kept: [Cycle; 2],
}

impl RtWalk {
    /// Creates a walk of the tables that begins at `begun`.
    pub(crate) fn new(
        tables: &RtTables,
        latency: RtLatency,
        addr: VirtAddr,
        operation: Operation,
        begun: Cycle,
    ) -> Self {
        let unread = Err(Unread::Unmapped(UnmappedCause::Start));
        let node = match tables.0 {
            Scheme::Nodes(NodeTables { root, .. }) => root,
            _ => Pfn::new(0),
        };
        let mut walk = Self {
            tables: *tables,
            latency,
            addr,
            operation,
            phase: Phase::Over,
            level: tables.levels() - 1,
            node,
            begun,
            at: begun,
            start: unread,
            end: unread,
            helper: unread,
            found: unread,
            reads: PortReads::default(),
            mapped: Err(RtFault::OutOfSpace { page: addr.page() }),
            asked: begun,
            from_tlb: false,
            epoch: 0,
            kept: [0; 2],
        };
        walk.begin_level(begun);
        walk
    }

    /// Returns the virtual address of the access.
    pub const fn addr(&self) -> VirtAddr {
        self.addr
    }

    /// Returns the cycle of the next event; `None` once all is over.
    #[inline]
    pub fn next_event(&self) -> Option<Cycle> {
        (self.phase != Phase::Over).then_some(self.at)
    }

    /// Runs every event up to the cycle `now`. O(levels).
    pub fn advance<M: PhysMemory + ?Sized>(&mut self, now: Cycle, memory: &M) {
        while self.phase != Phase::Over && self.at <= now {
            self.step(memory);
        }
    }

    /// Runs every event, and returns the cycle in which the access is over. O(levels).
    #[inline]
    pub fn finish<M: PhysMemory + ?Sized>(&mut self, memory: &M) -> Cycle {
        while self.phase != Phase::Over {
            self.step(memory);
        }
        self.at
    }

    /// Returns the result, once it is over.
    #[inline]
    pub fn result(&self) -> Option<Result<PhysAddr, RtFault>> {
        (self.phase == Phase::Over).then(|| self.outcome())
    }

    /// Returns the last event's cycle.
    pub(crate) const fn done(&self) -> Cycle {
        self.at
    }

    /// Returns the result of a walk that is over.
    pub(crate) fn outcome(&self) -> Result<PhysAddr, RtFault> {
        let MappedPage { frame, .. } = self.mapped?;
        Ok(PhysAddr::new(frame.address().raw() | self.addr.page_offset()))
    }

    pub(crate) fn page(&self) -> Vpn {
        self.addr.page()
    }

    /// Ends with a fault at `at`.
    pub(crate) fn fail(&mut self, at: Cycle, fault: RtFault) {
        (self.mapped, self.phase, self.at) = (Err(fault), Phase::Over, at);
    }

    /// Goes on, with the page known, to the data at `at`, if the rights suffice.
    pub(crate) fn go_to_data(&mut self, at: Cycle, mapped: MappedPage) {
        let MappedPage { rights, .. } = mapped;
        let (page, operation) = (self.page(), self.operation);
        if !rights.permit(operation) {
            return self.fail(at, RtFault::Denied { page, operation, rights });
        }
        self.mapped = Ok(mapped);
        self.phase = Phase::Data;
        self.at = at.saturating_add(self.latency.data.into());
    }

    #[inline]
    fn begin_level(&mut self, begun: Cycle) {
        self.begun = begun;
        let (phase, cycles) = match self.tables.0 {
            Scheme::Page(_) => (Phase::Verdict, self.latency.table),
            _ => (Phase::First, self.latency.fast),
        };
        self.phase = phase;
        self.at = begun.saturating_add(cycles.into());
    }

    #[inline]
    fn step<M: PhysMemory + ?Sized>(&mut self, memory: &M) {
        match self.phase {
            Phase::First => {
                self.read_first(memory);
                self.phase = Phase::Second;
                self.at = self.at.saturating_add(self.latency.fast.into());
            }
            Phase::Second => {
                self.read_second(memory);
                self.phase = Phase::Verdict;
                self.at = self.begun.saturating_add(self.latency.level_cycles(&self.tables));
            }
            Phase::Verdict => {
                let (now, level) = (self.at, self.level);
                self.reads.data += 1;
                match self.judge(memory) {
                    Err(unread) => self.fail(now, unread.fault(self.page(), level)),
                    Ok(mapped) if level == 0 => self.go_to_data(now, mapped),
                    Ok(MappedPage { frame, .. }) => {
                        (self.level, self.node) = (level - 1, frame);
                        self.begin_level(now);
                    }
                }
            }
            Phase::Data => self.phase = Phase::Over,
            Phase::Over => {}
        }
    }

    /// Reads c\[b\] and h\[b\]. In a node one word holds both.
    #[inline]
    fn read_first<M: PhysMemory + ?Sized>(&mut self, memory: &M) {
        let page = self.page().raw();
        self.reads.regions += 1;
        match self.tables.0 {
            Scheme::Regions(ValidityTables { regions, helper, .. }) => {
                self.reads.stack += 1;
                self.start = read(memory, entry(regions, page));
                self.helper = read(memory, entry(helper, page));
            }
            Scheme::Nodes(_) => {
                let own = control(memory, node_control(self.node, place(page, self.level)));
                self.start = own.map(|word| validity::NODE_REGION.get(word));
                self.helper = own.map(|word| validity::NODE_HELPER.get(word));
            }
            Scheme::Page(_) => {}
        }
    }

    /// Reads sp\[c\[b\]\] and s\[h\[b\]\], each as far as its own port can know that there is such
    /// a word.
    #[inline]
    fn read_second<M: PhysMemory + ?Sized>(&mut self, memory: &M) {
        let own = self.own_place();
        let start = self.start.and_then(|start| {
            if start > own { Err(Unread::Unmapped(UnmappedCause::Start)) } else { Ok(start) }
        });
        let helper = self.helper.and_then(|at| match self.tables.0 {
            Scheme::Regions(tables) if at >> tables.pages_log2 != 0 => {
                Err(Unread::Unmapped(UnmappedCause::Stack))
            }
            _ => Ok(at),
        });
        self.reads.regions += u64::from(start.is_ok());
        self.reads.stack += u64::from(helper.is_ok());
        match self.tables.0 {
            Scheme::Regions(ValidityTables { stack_end, stack, .. }) => {
                self.end = start.and_then(|start| read(memory, entry(stack_end, start)));
                self.found = helper.and_then(|at| read(memory, entry(stack, at)));
            }
            Scheme::Nodes(_) => {
                let at = |place| control(memory, node_control(self.node, place));
                self.end = start.and_then(at).map(|word| validity::NODE_STACK_END.get(word));
                self.found = helper.and_then(at).map(|word| validity::NODE_STACK.get(word));
            }
            Scheme::Page(_) => {}
        }
    }

    /// Reads the third port's word and decides whether it is valid: the conditions in their order.
    #[inline]
    fn judge<M: PhysMemory + ?Sized>(&self, memory: &M) -> Result<MappedPage, Unread> {
        let page = self.page().raw();
        let (data, decode): (_, fn(u64) -> MappedPage) = match self.tables.0 {
            Scheme::Page(PageTable { base, .. }) => {
                return read(memory, entry(base, page)).and_then(in_entry);
            }
            Scheme::Regions(tables) => (read(memory, entry(tables.data, page)), in_data),
            Scheme::Nodes(_) => {
                let at = node_data(self.node, place(page, self.level));
                (control(memory, at), in_node_data)
            }
        };
        let (start, end, at) = (self.start?, self.end?, self.helper?);
        if at < start || at >= end {
            return Err(Unread::Unmapped(UnmappedCause::Stack));
        }
        if self.found? != self.own_place() {
            return Err(Unread::Unmapped(UnmappedCause::Page));
        }
        data.map(decode)
    }

    /// Returns the page's number among the entries of its table.
    #[inline]
    fn own_place(&self) -> u64 {
        match self.tables.0 {
            Scheme::Nodes(_) => place(self.page().raw(), self.level),
            _ => self.page().raw(),
        }
    }
}

/// Reads a word of an array.
#[inline]
fn read<M: PhysMemory + ?Sized>(memory: &M, at: PhysAddr) -> Result<u64, Unread> {
    Ok(memory.read_u32(at)?.into())
}

/// Reads a word of a node.
#[inline]
fn control<M: PhysMemory + ?Sized>(memory: &M, at: PhysAddr) -> Result<u64, Unread> {
    Ok(memory.read_u64(at)?)
}
