//! The tables that the [RTMMU](crate::rtmmu::unit) and the conventional unit read, and the pure
//! function from a page to its frame.
//!
//! The function reads one word after another and stops at the first that says no. The
//! [timed walk](crate::rtmmu::walk) reads in parallel, as far as it must guess, and comes to the
//! same answer.

use core::fmt;

use swath_arch::{
    Attributes, BusError, NodeTables, Pfn, PhysAddr, PhysMemory, ValidityTables, Vpn, validity,
};

use crate::translate::permit::Operation;

/// The one page table of the conventional unit, after *Böhnert and Scholl*, section II-B: a
/// *direct* table, N = 2^k words of [`validity::ENTRY_BYTES`], indexed by the page.
///
/// A word has the fields of a data entry of [`validity`]. A word without any right maps
/// nothing, so a table of zeros maps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageTable {
    /// k: the space has pages 0 to 2^k − 1.
    pub pages_log2: u32,
    /// The address of the word of page 0, a multiple of [`validity::ENTRY_BYTES`].
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

/// Reasons why no unit can read tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RtTablesError {
    /// 2^k pages with a k that the scheme does not allow: 5 to 31 for arrays and for a page
    /// table, 1 to 40 for nodes.
    #[error("tables of 2^{pages_log2} pages")]
    PagesLog2 {
        /// The k given.
        pages_log2: u32,
    },
    /// A table that is not aligned or passes the end of physical addresses.
    #[error("a table at {base} is not aligned or has no room")]
    Base {
        /// The address at which it would begin.
        base: PhysAddr,
    },
}

/// The rights to a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRights {
    /// True if it may be read.
    pub read: bool,
    /// True if it may be written.
    pub write: bool,
    /// True if it may be executed.
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

    /// Returns true if they suffice for an operation.
    #[inline]
    pub const fn permit(self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.read,
            Operation::Write => self.write,
            Operation::Fetch => self.execute,
        }
    }

    /// As a TLB holds them: `user` stands for the right to read, as all code that runs in the space
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

impl fmt::Display for PageRights {
    /// Writes the rights as `rwx`, with `-` in place of each that is missing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |has, letter| if has { letter } else { '-' };
        let (r, w, x) =
            (letter(self.read, 'r'), letter(self.write, 'w'), letter(self.execute, 'x'));
        write!(f, "{r}{w}{x}")
    }
}

/// The word that denies that a page is mapped: the conditions of [`validity`], in the order in
/// which they are judged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum UnmappedCause {
    /// The cached start of a region lies above the page.
    #[error("its region's start lies above it")]
    Start,
    /// The page's place lies outside the stack of that start, or the stack outside the space.
    #[error("its place is on no stack")]
    Stack,
    /// Another page stands in the page's place.
    #[error("another page stands in its place")]
    Page,
    /// The word of the conventional page table has no rights.
    #[error("its entry has no rights")]
    Entry,
}

/// Reasons why an access has no physical address.
///
/// The unit sees a page fault and not whether the page is in a region: the tree of regions
/// is the system's. Its handler of page faults tells "not in a region" from "not yet mapped".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RtFault {
    /// The page lies beyond the space. Nothing was read.
    #[error("page {page} is beyond the space")]
    OutOfSpace {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped: the page fault.
    #[error("page {page} is not mapped (level {level}): {cause}")]
    Unmapped {
        /// The page.
        page: Vpn,
        /// The level of the node that said so, 0 being the lowest; 0 without nodes.
        level: u32,
        /// The word that says so.
        cause: UnmappedCause,
    },
    /// The page is mapped without a right that the access needs.
    #[error("{operation:?} of page {page} with rights {rights}")]
    Denied {
        /// The page.
        page: Vpn,
        /// The operation.
        operation: Operation,
        /// The rights to the page.
        rights: PageRights,
    },
    /// No memory answered a read that the answer depends on.
    #[error("tables of page {page}: {error}")]
    Bus {
        /// The page.
        page: Vpn,
        /// The read.
        error: BusError,
    },
}

/// A page with its frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MappedPage {
    /// The frame.
    pub frame: Pfn,
    /// The rights to the page.
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
    /// Returns the words of all three together.
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
    /// Creates the tables from the arrays of an RTMMU.
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

    /// Creates the tables from the tree of nodes of an RTMMU for sparse spaces.
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

    /// Creates the tables from the page table of the conventional unit.
    ///
    /// # Errors
    /// [`RtTablesError`].
    pub fn page_table(table: PageTable) -> Result<Self, RtTablesError> {
        check_array(table.pages_log2, table.base)?;
        Ok(Self(Scheme::Page(table)))
    }

    /// Returns k: the space has pages 0 to 2^k − 1.
    pub const fn pages_log2(&self) -> u32 {
        match self.0 {
            Scheme::Regions(ValidityTables { pages_log2, .. })
            | Scheme::Nodes(NodeTables { pages_log2, .. })
            | Scheme::Page(PageTable { pages_log2, .. }) => pages_log2,
        }
    }

    /// Returns the number of tables on the way to a frame: 1, or the levels of nodes.
    pub const fn levels(&self) -> u32 {
        match self.0 {
            Scheme::Nodes(tables) => tables.levels(),
            _ => 1,
        }
    }

    /// Returns the frame of `page` and the rights to it. O(levels), at most 5 reads for arrays, 4 a
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

/// Reasons why a table has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    Unmapped(UnmappedCause),
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

/// Returns the address of entry `index` of an array.
#[inline]
pub(crate) fn entry(base: PhysAddr, index: u64) -> PhysAddr {
    base + validity::ENTRY_BYTES * index
}

/// Returns the place in its node, at `level`, of the entry that leads to `page`.
#[inline]
pub(crate) const fn place(page: u64, level: u32) -> u64 {
    page >> (level * validity::NODE_ENTRIES_LOG2) & ((1 << validity::NODE_ENTRIES_LOG2) - 1)
}

/// Returns the address of the data word of a place of a node.
#[inline]
pub(crate) fn node_data(node: Pfn, place: u64) -> PhysAddr {
    node.address() + 8 * place
}

/// Returns the address of the control word of a place of a node.
#[inline]
pub(crate) fn node_control(node: Pfn, place: u64) -> PhysAddr {
    node.address() + validity::NODE_CONTROL_BYTES + 8 * place
}

/// Decodes a word of the data array.
#[inline]
pub(crate) fn in_data(word: u64) -> MappedPage {
    MappedPage { frame: Pfn::new(validity::FRAME.get(word)), rights: PageRights::of(word) }
}

/// Decodes a data word of a node.
#[inline]
pub(crate) fn in_node_data(word: u64) -> MappedPage {
    MappedPage { frame: Pfn::new(validity::NODE_FRAME.get(word)), rights: PageRights::of(word) }
}

/// Decodes a word of the conventional page table.
#[inline]
pub(crate) fn in_entry(word: u64) -> Result<MappedPage, Unread> {
    let mapped = in_data(word);
    let PageRights { read, write, execute } = mapped.rights;
    if read || write || execute { Ok(mapped) } else { Err(Unread::Unmapped(UnmappedCause::Entry)) }
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
        return Err(Unread::Unmapped(UnmappedCause::Start));
    }
    let end = read(tables.stack_end, start)?;
    let at = read(tables.helper, page)?;
    if at < start || at >= end || at >> tables.pages_log2 != 0 {
        return Err(Unread::Unmapped(UnmappedCause::Stack));
    }
    if read(tables.stack, at)? != page {
        return Err(Unread::Unmapped(UnmappedCause::Page));
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
        return Err(Unread::Unmapped(UnmappedCause::Start));
    }
    if at < start || at >= validity::NODE_STACK_END.get(control(start)?) {
        return Err(Unread::Unmapped(UnmappedCause::Stack));
    }
    if validity::NODE_STACK.get(control(at)?) != place {
        return Err(Unread::Unmapped(UnmappedCause::Page));
    }
    Ok(in_node_data(memory.read_u64(node_data(node, place))?))
}
