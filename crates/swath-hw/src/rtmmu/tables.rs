//! What the [RTMMU](crate::rtmmu::unit) and the conventional unit read, and the pure function from a
//! page to its frame.
//!
//! The function reads one word after another and stops at the first that says no. The
//! [timed walk](crate::rtmmu::walk) reads in parallel, as far as it must guess, and comes to the
//! same answer.

use core::fmt;

use swath_arch::{
    Attributes, BusError, NodeTables, Pfn, PhysAddr, PhysMemory, ValidityTables, Vpn, validity,
};

use crate::translate::walker::Operation;

/// The one page table of the conventional unit, after 004_0cb2f33903da1556.txt, section II-B: a
/// *direct* table, N = 2^k words of [`validity::ENTRY_BYTES`], indexed by the page.
///
/// A word has the fields of a data entry of [`validity`]. A word without any right maps
/// nothing, so a table of zeros maps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageTable {
    /// k: the space has pages 0 to 2^k − 1.
    pub pages_log2: u32,
    /// Where the word of page 0 stands, a multiple of [`validity::ENTRY_BYTES`].
    pub base: PhysAddr,
}

/// The tables of one address space: which of the three schemes, and where they lie.
///
/// Invariants: k is one that the scheme allows, bases are aligned, and no table passes the
/// end of physical addresses. What the tables say may be anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RtTables(pub(crate) Scheme);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Scheme {
    Regions(ValidityTables),
    Nodes(NodeTables),
    Page(PageTable),
}

/// Tables that no unit can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtTablesError {
    /// 2^k pages with a k that the scheme does not allow: 5 to 31 for arrays and for a page
    /// table, 1 to 40 for nodes.
    PagesLog2 {
        /// The k given.
        pages_log2: u32,
    },
    /// A table that is not aligned or passes the end of physical addresses.
    Base {
        /// Where it would begin.
        base: PhysAddr,
    },
}

impl fmt::Display for RtTablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PagesLog2 { pages_log2 } => {
                write!(f, "tables of 2^{pages_log2} pages")
            }
            Self::Base { base } => write!(f, "a table at {base} is not aligned or has no room"),
        }
    }
}

impl core::error::Error for RtTablesError {}

/// What a page permits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRights {
    /// It may be read.
    pub read: bool,
    /// It may be written.
    pub write: bool,
    /// It may be executed.
    pub execute: bool,
}

impl PageRights {
    pub(crate) fn of(data: u64) -> Self {
        let has = |field: swath_arch::Field| field.get(data) != 0;
        Self {
            read: has(validity::READ),
            write: has(validity::WRITE),
            execute: has(validity::EXECUTE),
        }
    }

    /// Whether they suffice for an access.
    #[inline]
    pub const fn permit(self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.read,
            Operation::Write => self.write,
            Operation::Fetch => self.execute,
        }
    }

    /// As a TLB holds them: `user` stands for the right to read, as whoever runs in the space
    /// is its user.
    pub(crate) fn attributes(self) -> Attributes {
        Attributes {
            user: self.read,
            writable: self.write,
            executable: self.execute,
            ..Attributes::default()
        }
    }

    pub(crate) fn of_attributes(attributes: Attributes) -> Self {
        let Attributes { user, writable, executable, .. } = attributes;
        Self { read: user, write: writable, execute: executable }
    }
}

/// Which word denied that a page is mapped: the conditions of [`validity`], in the order in
/// which they are judged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The cached start of a region lies above the page.
    Start,
    /// The page's place lies outside the stack of that start, or the stack outside the space.
    Stack,
    /// Another page stands in the page's place.
    Page,
    /// The word of the conventional page table has no rights.
    Entry,
}

/// Why an access has no physical address.
///
/// The unit sees a page fault and not whether the page is in a region: the tree of regions
/// is the system's. Its handler of page faults tells "not in a region" from "not yet mapped".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtFault {
    /// The page lies beyond the space. Nothing was read.
    OutOfSpace {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped: the page fault.
    Unmapped {
        /// The page.
        page: Vpn,
        /// The level of the node that said so, 0 being the lowest; 0 without nodes.
        level: u32,
        /// Which word.
        cause: Cause,
    },
    /// The page is mapped without a right that the access needs.
    Denied {
        /// The page.
        page: Vpn,
        /// What was to be done.
        operation: Operation,
        /// What the page permits.
        rights: PageRights,
    },
    /// No memory answered a read that the answer depends on.
    Bus {
        /// The page.
        page: Vpn,
        /// The read.
        error: BusError,
    },
}

impl fmt::Display for RtFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfSpace { page } => write!(f, "page {page} is beyond the space"),
            Self::Unmapped { page, level, cause } => {
                let cause = match cause {
                    Cause::Start => "its region's start lies above it",
                    Cause::Stack => "its place is on no stack",
                    Cause::Page => "another page stands in its place",
                    Cause::Entry => "its entry has no rights",
                };
                write!(f, "page {page} is not mapped (level {level}): {cause}")
            }
            Self::Denied { page, operation, rights } => {
                let PageRights { read, write, execute } = rights;
                let letter = |has: &bool, letter| if *has { letter } else { '-' };
                let (r, w, x) = (letter(read, 'r'), letter(write, 'w'), letter(execute, 'x'));
                write!(f, "{operation:?} of page {page} with rights {r}{w}{x}")
            }
            Self::Bus { page, error } => write!(f, "tables of page {page}: {error}"),
        }
    }
}

impl core::error::Error for RtFault {}

/// A page with its frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MappedPage {
    /// The frame.
    pub frame: Pfn,
    /// What the page permits.
    pub rights: PageRights,
}

/// Words of tables read through each of the three ports (section IV-B).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortReads {
    /// The first port: the VRC, then the stack end.
    pub regions: u64,
    /// The second: the helper array, then the stack.
    pub stack: u64,
    /// The third: the data array or the page table. The access to the data themselves is not
    /// counted here.
    pub data: u64,
}

impl PortReads {
    /// All three together.
    pub const fn total(self) -> u64 {
        self.regions + self.stack + self.data
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.regions += other.regions;
        self.stack += other.stack;
        self.data += other.data;
    }
}

impl RtTables {
    /// The arrays of an RTMMU.
    ///
    /// # Errors
    /// [`RtTablesError`].
    pub fn regions(tables: ValidityTables) -> Result<Self, RtTablesError> {
        let ValidityTables { pages_log2, data, helper, stack, stack_end, regions } = tables;
        for base in [data, helper, stack, stack_end, regions] {
            check_array(pages_log2, base)?;
        }
        Ok(Self(Scheme::Regions(tables)))
    }

    /// The tree of nodes of an RTMMU for sparse spaces.
    ///
    /// # Errors
    /// [`RtTablesError`].
    pub fn nodes(tables: NodeTables) -> Result<Self, RtTablesError> {
        let NodeTables { pages_log2, root } = tables;
        if !(1..=40).contains(&pages_log2) {
            return Err(RtTablesError::PagesLog2 { pages_log2 });
        }
        if root.raw() > validity::NODE_FRAME.max() {
            return Err(RtTablesError::Base { base: root.address() });
        }
        Ok(Self(Scheme::Nodes(tables)))
    }

    /// The page table of the conventional unit.
    ///
    /// # Errors
    /// [`RtTablesError`].
    pub fn page_table(table: PageTable) -> Result<Self, RtTablesError> {
        check_array(table.pages_log2, table.base)?;
        Ok(Self(Scheme::Page(table)))
    }

    /// k: the space has pages 0 to 2^k − 1.
    pub const fn pages_log2(&self) -> u32 {
        match self.0 {
            Scheme::Regions(ValidityTables { pages_log2, .. })
            | Scheme::Nodes(NodeTables { pages_log2, .. })
            | Scheme::Page(PageTable { pages_log2, .. }) => pages_log2,
        }
    }

    /// How many tables lie on the way to a frame: 1, or the levels of nodes.
    pub const fn levels(&self) -> u32 {
        match self.0 {
            Scheme::Nodes(tables) => tables.levels(),
            _ => 1,
        }
    }

    /// The frame of `page` and the rights to it. O(levels), at most 5 reads for arrays, 4 a
    /// level for nodes, 1 for a page table.
    ///
    /// # Errors
    /// [`RtFault`], but never [`RtFault::Denied`].
    pub fn translate<M: PhysMemory + ?Sized>(
        &self,
        page: Vpn,
        memory: &M,
    ) -> Result<MappedPage, RtFault> {
        if page.raw() >> self.pages_log2() != 0 {
            return Err(RtFault::OutOfSpace { page });
        }
        let fault = |level| move |unread: Unread| unread.fault(page, level);
        match self.0 {
            Scheme::Regions(tables) => in_arrays(&tables, page, memory).map_err(fault(0)),
            Scheme::Nodes(NodeTables { root, .. }) => {
                let mut node = root;
                for level in (1..self.levels()).rev() {
                    node = in_node(node, page, level, memory).map_err(fault(level))?.frame;
                }
                in_node(node, page, 0, memory).map_err(fault(0))
            }
            Scheme::Page(PageTable { base, .. }) => {
                let word = memory.read_u32(entry(base, page.raw()));
                word.map_err(Unread::from).and_then(|word| in_entry(word.into())).map_err(fault(0))
            }
        }
    }
}

/// Why a table gives nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    Unmapped(Cause),
    Bus(BusError),
}

impl Unread {
    pub(crate) fn fault(self, page: Vpn, level: u32) -> RtFault {
        match self {
            Self::Unmapped(cause) => RtFault::Unmapped { page, level, cause },
            Self::Bus(error) => RtFault::Bus { page, error },
        }
    }
}

impl From<BusError> for Unread {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

fn check_array(pages_log2: u32, base: PhysAddr) -> Result<(), RtTablesError> {
    if !validity::PAGES_LOG2.contains(&pages_log2) {
        return Err(RtTablesError::PagesLog2 { pages_log2 });
    }
    let len_bytes = validity::ENTRY_BYTES << pages_log2;
    if !base.is_aligned(2) || base.raw().checked_add(len_bytes).is_none() {
        return Err(RtTablesError::Base { base });
    }
    Ok(())
}

/// Where entry `index` of an array stands.
#[inline]
pub(crate) const fn entry(base: PhysAddr, index: u64) -> PhysAddr {
    PhysAddr::new(base.raw() + validity::ENTRY_BYTES * index)
}

/// The place in its node, at `level`, of the entry that leads to `page`.
#[inline]
pub(crate) const fn place(page: u64, level: u32) -> u64 {
    page >> (level * validity::NODE_ENTRIES_LOG2) & ((1 << validity::NODE_ENTRIES_LOG2) - 1)
}

/// Where the data word of a place of a node stands.
#[inline]
pub(crate) const fn node_data(node: Pfn, place: u64) -> PhysAddr {
    PhysAddr::new(node.address().raw() + 8 * place)
}

/// Where the control word of a place of a node stands.
#[inline]
pub(crate) const fn node_control(node: Pfn, place: u64) -> PhysAddr {
    PhysAddr::new(node.address().raw() + validity::NODE_CONTROL_BYTES + 8 * place)
}

/// What a word of the data array says.
#[inline]
pub(crate) fn in_data(word: u64) -> MappedPage {
    MappedPage { frame: Pfn::new(validity::FRAME.get(word)), rights: PageRights::of(word) }
}

/// What a data word of a node says.
#[inline]
pub(crate) fn in_node_data(word: u64) -> MappedPage {
    MappedPage { frame: Pfn::new(validity::NODE_FRAME.get(word)), rights: PageRights::of(word) }
}

/// What a word of the conventional page table says.
#[inline]
pub(crate) fn in_entry(word: u64) -> Result<MappedPage, Unread> {
    let mapped = in_data(word);
    let PageRights { read, write, execute } = mapped.rights;
    if read || write || execute { Ok(mapped) } else { Err(Unread::Unmapped(Cause::Entry)) }
}

#[inline]
fn in_arrays<M: PhysMemory + ?Sized>(
    tables: &ValidityTables,
    page: Vpn,
    memory: &M,
) -> Result<MappedPage, Unread> {
    let read = |base, index| memory.read_u32(entry(base, index)).map(u64::from);
    let page = page.raw();
    let start = read(tables.regions, page)?;
    if start > page {
        return Err(Unread::Unmapped(Cause::Start));
    }
    let end = read(tables.stack_end, start)?;
    let at = read(tables.helper, page)?;
    if at < start || at >= end || at >> tables.pages_log2 != 0 {
        return Err(Unread::Unmapped(Cause::Stack));
    }
    if read(tables.stack, at)? != page {
        return Err(Unread::Unmapped(Cause::Page));
    }
    Ok(in_data(read(tables.data, page)?))
}

#[inline]
fn in_node<M: PhysMemory + ?Sized>(
    node: Pfn,
    page: Vpn,
    level: u32,
    memory: &M,
) -> Result<MappedPage, Unread> {
    let place = place(page.raw(), level);
    let control = |place| memory.read_u64(node_control(node, place));
    let own = control(place)?;
    let (start, at) = (validity::NODE_REGION.get(own), validity::NODE_HELPER.get(own));
    if start > place {
        return Err(Unread::Unmapped(Cause::Start));
    }
    if at < start || at >= validity::NODE_STACK_END.get(control(start)?) {
        return Err(Unread::Unmapped(Cause::Stack));
    }
    if validity::NODE_STACK.get(control(at)?) != place {
        return Err(Unread::Unmapped(Cause::Page));
    }
    Ok(in_node_data(memory.read_u64(node_data(node, place))?))
}
