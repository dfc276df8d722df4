//! Real-time regions in a sparse space: the hierarchical tables that
//! Böhnert and Scholl mention (section II-B) and leave out.
//!
//! The arrays of [`RegionSpace`](crate::RegionSpace) are as long as the space. Here
//! they are cut into [nodes](swath_arch::validity) of 256 entries in a tree, made when a
//! page below is first mapped. Each node is a small space of its own: its entries
//! are pages or nodes, and its parts of regions are regions of entries.
//!
//! ```text
//!  pages      a                                            e
//!  level 0    │··xxxx│xxxxxxx│xxxxxxx│ … │xxxxxxx│xxxxxx···│
//!              shared  whole   whole  …    whole   shared
//!  level 1    │   s       x       x   …      x        s    │
//! ```
//!
//! A region covers, at each level, whole entries and at most two in part. A node's run
//! of whole entries is the region's **part** there: an initialisation-free array
//! that starts at the first of them. The node below a whole entry belongs to the region alone,
//! and is on its list of frames beside the data. The node below an entry that is covered in part is
//! **shared** by all regions that have a part in it; such an entry is a part by itself, of one
//! entry, for as long as the node lives, and the node lives while a part in it is not empty.
//!
//! # Bounds
//! L = ⌈k/8⌉ levels, 5 for the 36 bits of a page number of a 48-bit space.
//!
//! *Parts.* A node in which a region [a, e) has a part without covering it all holds a
//! border of the region in its inside, or is the root: a node that holds neither border is
//! all outside or all inside, and then its parent's entry is whole, and the
//! part is the parent's. There is one node a level that holds a and one that
//! holds e − 1, so a region has at most 2L − 1 parts, whatever its size. To
//! end all of them is to reset as many stack ends.
//!
//! *Validity.* By the argument for the flat arrays, which holds within each node, an entry
//! seems valid only if it is on the stack of a part in use. If a node is reached by
//! valid entries it is therefore one that is in use; its stack ends were cleared when
//! it was made, and all else in it may be garbage. When a part of whole entries ends, all
//! nodes below become unreachable at once, and they are on the region's list, so that the
//! splice returns them with the data. When the last part in a shared node ends, its
//! entry in its parent ends too, up to the root.
//!
//! *Cost.* With T for the words of one operation on the starts' tree:
//!
//! | operation | words of nodes, read + written, at most |
//! |---|---|
//! | map_region | 0 + 0 |
//! | map_page | 4L + 3 and 4; 260 more are written for each of at most L − 1 nodes made |
//! | unmap_region | 12L + 4L |
//! | access by hardware | 4L + 0, of which 2 of each level's can run beside the other 2 |
//!
//! All are fixed by k. Clearing a node's 256 control words when it is made is the price for
//! not having all stack ends from the start; it is paid once per 256 entries
//! of sequential use, and a bound for a fault must count L − 1 of them.
//!
//! *Space.* m mapped pages have at most m·(L − 1) nodes, 2 more words a start of a region, and no
//! table in proportion to the space.

use core::ops::DerefMut;

use swath_arch::{BusError, NodeTables, PageRange, Pfn, PhysAddr, PhysMemory, Vpn, validity};

use crate::error::{NewRegionsError, RegionError, RegionFault};
use crate::frames::{Account, FramePool, NONE, NoFrame, Quota, QuotaError};
use crate::header::Rights;
use crate::space::region::{Region, UnmappedRegion};
use crate::tree::partition::{RegionTree, TreeTooShort};
use crate::tree::sparse::SparseTree;

/// Entries of a node.
const ENTRIES: u64 = 1 << validity::NODE_ENTRIES_LOG2;
/// The most levels.
const LEVELS_MAX: usize = 5;
/// Places of the tree of starts for a page: a word, the region's header.
const PLACES_LOG2: u32 = 6;

/// The word of a start: bit 0 is set and makes it one.
///
/// The list is closed to a ring: the link of the oldest frame is the newest.
#[derive(Clone, Copy)]
struct Header {
    /// The rights, or `None` in a free interval.
    rights: Option<Rights>,
    /// The frame at the end of the list.
    oldest: u32,
    /// Frames on the list: mapped pages, and nodes of the region alone.
    count: u32,
}

impl Header {
    const FREE: Self = Self { rights: None, oldest: 0, count: 0 };

    fn of(word: u64) -> Self {
        let rights = (word & 2 != 0).then(|| Rights::from_bits(word as u32 >> 2));
        Self { rights, oldest: (word >> 5) as u32 & 0x1fff_ffff, count: (word >> 34) as u32 }
    }

    fn word(self) -> u64 {
        let kind = self.rights.map_or(0, |rights| 2 | u64::from(rights.bits()) << 2);
        u64::from(self.count) << 34 | u64::from(self.oldest) << 5 | kind | 1
    }
}

/// A sparse virtual address space of regions: 2^k pages, k from 5 to 40.
///
/// Invariants, for starts a of the tree and the interval [a, e) of each:
/// 1. No two free intervals are neighbours.
/// 2. In each node in use, a stack end above its own place is that of a
///    part of a region or of a shared entry.
/// 3. The frames on a region's list are those of its pages and of the nodes below
///    its whole entries; `count` is their number.
/// 4. The link of a shared node's frame counts the parts in the node that are not empty:
///    never zero.
/// 5. The account counts all of these frames and the shared nodes.
#[derive(Debug)]
pub struct SparseRegionSpace<'p, M, W> {
    memory: M,
    tables: NodeTables,
    starts: SparseTree<W>,
    pool: &'p FramePool<'p>,
    account: Account,
}

/// A region while it is worked on: its borders.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// Returns the part of the region in the node of `level` that holds `page`: its whole
    /// entries, if any.
    fn part(self, page: u64, level: u32) -> Option<(u64, u64)> {
        let shift = level * validity::NODE_ENTRIES_LOG2;
        let base = page >> shift >> validity::NODE_ENTRIES_LOG2 << validity::NODE_ENTRIES_LOG2;
        // In entries of the level, counted from page 0.
        let low = self.start.div_ceil(1 << shift).max(base);
        let high = (self.end >> shift).min(base + ENTRIES);
        (low < high).then(|| (low - base, high - base))
    }
}

/// Returns the entry of a node of `level` that holds `page`.
fn entry(page: u64, level: u32) -> u64 {
    page >> (level * validity::NODE_ENTRIES_LOG2) & (ENTRIES - 1)
}

/// A node of the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Node(Pfn);

impl<'p, M: PhysMemory, W: DerefMut<Target = [u64]>> SparseRegionSpace<'p, M, W> {
    /// Counts the words for the starts of `regions` regions, with the free intervals between
    /// them.
    pub const fn words_needed(pages_log2: u32, regions: usize) -> usize {
        SparseTree::words_needed(pages_log2 + PLACES_LOG2, 2 * regions + 1)
    }

    /// Makes a space without regions. O(1): the root's 256 control words are cleared.
    ///
    /// # Errors
    /// [`NewRegionsError`] if k is not 5 to 40, the root is one of the pool's frames, the
    /// words do not suffice, the pool cannot give the guarantee, or memory does not
    /// answer.
    pub fn new(
        memory: M,
        tables: NodeTables,
        words: W,
        pool: &'p FramePool<'p>,
        quota: Quota,
    ) -> Result<Self, NewRegionsError> {
        let k = tables.pages_log2;
        if !(5..=40).contains(&k) {
            return Err(NewRegionsError::Pages { tables_log2: k, tree_pages: 0 });
        }
        if pool.frames().contains(tables.root) {
            let base = tables.root.address();
            return Err(NewRegionsError::Overlap { base, with: base });
        }
        let starts = SparseTree::of_places(k + PLACES_LOG2, words).map_err(
            |TreeTooShort { needed, given }| NewRegionsError::Headers {
                needed: needed as u64,
                given,
            },
        )?;
        let mut space = Self { memory, tables, starts, pool, account: Account::empty() };
        space.clear(Node(tables.root))?;
        pool.set_quota(&mut space.account, quota).map_err(NewRegionsError::Quota)?;
        space.set_header(0, Header::FREE);
        Ok(space)
    }

    /// Returns the root of the tree of nodes, which the RTMMU needs to know.
    pub fn tables(&self) -> NodeTables {
        self.tables
    }

    /// Counts the frames that the space has, of pages and of nodes, without the root.
    pub fn frames_used(&self) -> u32 {
        self.account.used
    }

    /// Changes the quota, of which nodes take their share. O(1).
    ///
    /// # Errors
    /// As [`RegionSpace::set_quota`](crate::RegionSpace::set_quota).
    pub fn set_quota(&mut self, quota: Quota) -> Result<(), QuotaError> {
        self.pool.set_quota(&mut self.account, quota)
    }

    /// Returns the region that holds `page`, if any.
    pub fn region_of(&self, page: Vpn) -> Option<Region> {
        let (span, header) = self.find(page).ok()?;
        let pages = PageRange::new(Vpn::new(span.start), span.end - span.start);
        header.rights.map(|rights| Region { pages, rights })
    }

    /// Makes free pages a region (mapVRH).
    ///
    /// # Errors
    /// As [`RegionSpace::map_region`](crate::RegionSpace::map_region).
    pub fn map_region(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError> {
        let PageRange { start, count } = range;
        if count == 0 {
            return Err(RegionError::Empty { start });
        }
        let pages = 1 << self.tables.pages_log2;
        let (free, header) = self.find(start)?;
        if count > pages - start.raw() {
            return Err(RegionError::OutOfRange { page: Vpn::new(pages) });
        }
        let end = start.raw() + count;
        let hit = match header.rights {
            Some(_) => Some(free.start),
            None => (end > free.end).then_some(free.end),
        };
        if let Some(start) = hit {
            return Err(RegionError::Overlap { range, start: Vpn::new(start) });
        }
        if end < free.end {
            self.split(end)?;
        }
        if start.raw() != free.start
            && let Err(error) = self.split(start.raw())
        {
            if end < free.end {
                self.union(end)?;
            }
            return Err(error);
        }
        self.set_header(start.raw(), Header { rights: Some(rights), ..Header::FREE });
        Ok(())
    }

    /// Gives a page of a region a frame (mapPage), and makes the nodes that lead to it.
    ///
    /// # Errors
    /// As [`RegionSpace::map_page`](crate::RegionSpace::map_page); too few frames for
    /// the nodes is too few.
    pub fn map_page(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError> {
        let (span, header) = self.find(page)?;
        let Some(rights) = header.rights else { return Err(RegionError::NoRegion { page }) };
        if !rights.contain(access) {
            return Err(RegionError::Denied { page, access, rights });
        }
        // Down to the first entry that is not valid.
        let (mut node, mut level) = (Node(self.tables.root), self.tables.levels() - 1);
        while self.is_valid(node, page.raw(), level, span)? {
            if level == 0 {
                return Err(RegionError::AlreadyMapped { page });
            }
            node = self.below(node, page.raw(), level)?;
            level -= 1;
        }
        // The page's frame and one for each node that is missing.
        let mut taken = [NONE; LEVELS_MAX];
        let result = self.allocate(&mut taken[..=level as usize]).and_then(|()| {
            self.enter(node, level, page.raw(), span, rights, &taken).map_err(RegionError::Bus)
        });
        if let Err(error) = result {
            for &index in taken.iter().filter(|&&index| index != NONE) {
                self.pool.free_list(&mut self.account, index, index, 1);
            }
            return Err(error);
        }
        // From here on nothing fails. taken[0] is the page's, taken[l] that of the node
        // of level l − 1.
        let mut header = header;
        for entry_level in 0..=level {
            let index = taken[entry_level as usize];
            if self.is_whole(page.raw(), entry_level, span) {
                self.add_to_list(&mut header, index);
            } else {
                // A shared node, in which one part has its first entry.
                self.pool.set_link(index, 1);
            }
        }
        self.set_header(span.start, header);
        Ok(self.pool.frame(taken[0]))
    }

    /// Ends a region (unmapRegion).
    ///
    /// # Errors
    /// [`RegionError`] if no region starts at `start`, and nothing has changed. With
    /// [`RegionError::Bus`] some of its pages may not be mapped any more; the
    /// region and its frames are still there, and it can be ended again.
    pub fn unmap_region(&mut self, start: Vpn) -> Result<UnmappedRegion, RegionError> {
        let (span, header) = self.find(start)?;
        if header.rights.is_none() {
            return Err(RegionError::NoRegion { page: start });
        }
        if span.start != start.raw() {
            return Err(RegionError::NotStart { page: start, start: Vpn::new(span.start) });
        }
        let nodes = self.end_parts(span, span.start)? + self.end_parts(span, span.end - 1)?;
        if header.count > 0
            && let Some(newest) = self.pool.link(header.oldest)
        {
            self.pool.free_list(&mut self.account, newest, header.oldest, header.count);
        }
        self.set_header(span.start, Header::FREE);
        let pages = 1 << self.tables.pages_log2;
        if span.end < pages && self.header(span.end).rights.is_none() {
            self.union(span.end)?;
        }
        if span.start > 0 && self.find(Vpn::new(span.start - 1))?.1.rights.is_none() {
            self.union(span.start)?;
        }
        Ok(UnmappedRegion {
            pages: PageRange::new(start, span.end - span.start),
            frames: header.count + nodes,
        })
    }

    /// Ends all regions and gives up the quota. O(R·(L + T)) for R regions.
    ///
    /// # Errors
    /// The space, and [`RegionError`] if memory does not answer: some regions may be
    /// gone then.
    pub fn close(mut self) -> Result<(), (Self, RegionError)> {
        let mut at = Some(0);
        while let Some(start) = at {
            if self.header(start).rights.is_some()
                && let Err(error) = self.unmap_region(Vpn::new(start))
            {
                return Err((self, error));
            }
            at = self.next(start);
        }
        self.pool.close(&mut self.account);
        Ok(())
    }

    /// Walks the starts and all nodes in use. O(regions + nodes).
    ///
    /// # Errors
    /// The first [`RegionFault`] found.
    pub fn check(&self) -> Result<(), RegionFault> {
        if !self.starts.check() {
            return Err(RegionFault::Tree);
        }
        let (mut found, mut at, mut free_below) = (0, 0, false);
        loop {
            let header = self.header(at);
            if free_below && header.rights.is_none() {
                return Err(RegionFault::Uncoalesced { start: Vpn::new(at) });
            }
            free_below = header.rights.is_none();
            let mut index = header.oldest;
            for _ in 0..header.count {
                let start = Vpn::new(at);
                index = self.pool.link(index).ok_or(RegionFault::List { start })?;
            }
            if index != header.oldest {
                return Err(RegionFault::List { start: Vpn::new(at) });
            }
            found += u64::from(header.count);
            match self.next(at) {
                Some(next) => at = next,
                None => break,
            }
        }
        let root = Node(self.tables.root);
        let (shared, _) = self.check_node(root, 0, self.tables.levels() - 1)?;
        found += shared;
        if found == u64::from(self.account.used) {
            Ok(())
        } else {
            Err(RegionFault::Frames { found, counted: self.account.used })
        }
    }

    /// Counts the shared nodes below a node that is shared or the root, and the parts in it that are not
    /// empty.
    fn check_node(&self, node: Node, base: u64, level: u32) -> Result<(u64, u32), RegionFault> {
        let shift = level * validity::NODE_ENTRIES_LOG2;
        let (mut shared, mut parts) = (0, 0);
        for place in 0..ENTRIES {
            let end = validity::NODE_STACK_END.get(self.control(node, place)?);
            let page = base + (place << shift);
            if end <= place {
                continue;
            }
            parts += 1;
            let error = RegionFault::StackEnd { page: Vpn::new(page), end: end as u32 };
            let (span, header) = self.find(Vpn::new(page)).map_err(|_| error)?;
            if self.is_whole(page, level, span) {
                match span.part(page, level) {
                    Some((low, high)) if low == place && end <= high && header.rights.is_some() => {
                        continue;
                    }
                    _ => return Err(error),
                }
            }
            let child = self.below(node, page, level)?;
            let (below, parts) = self.check_node(child, page, level - 1)?;
            if end != place + 1
                || parts == 0
                || self.pool.link(self.pool.index(child.0)) != Some(parts)
            {
                return Err(error);
            }
            shared += below + 1;
        }
        Ok((shared, parts))
    }

    /// Allocates frames for a page and its nodes, or as many as there are.
    fn allocate(&mut self, taken: &mut [u32]) -> Result<(), RegionError> {
        for slot in taken {
            let index = self.pool.peek(&self.account).map_err(|error| match error {
                NoFrame::Limit => RegionError::LimitReached { limit: self.account.quota.limit },
                NoFrame::Empty => RegionError::OutOfFrames,
            })?;
            self.pool.allocate(&mut self.account, index, NONE);
            *slot = index;
        }
        Ok(())
    }

    /// Builds the missing nodes from below, unseen, and then enters the highest into
    /// `node` of `level`.
    fn enter(
        &self,
        node: Node,
        level: u32,
        page: u64,
        span: Span,
        rights: Rights,
        taken: &[u32; LEVELS_MAX],
    ) -> Result<(), BusError> {
        for below in 0..level {
            let new = Node(self.pool.frame(taken[below as usize + 1]));
            self.clear(new)?;
            self.push(new, below, page, span, rights, taken)?;
        }
        self.push(node, level, page, span, rights, taken)
    }

    /// Puts the entry of `page` on the stack of its part in `node`, the stack's end
    /// last: that makes it valid. It is what counts parts, too, after the last write.
    fn push(
        &self,
        node: Node,
        level: u32,
        page: u64,
        span: Span,
        rights: Rights,
        taken: &[u32; LEVELS_MAX],
    ) -> Result<(), BusError> {
        let place = entry(page, level);
        let start = self.part_start(page, level, span);
        let frame = self.pool.frame(taken[level as usize]);
        let bits = if level == 0 { u64::from(rights.bits()) } else { 0 };
        let end = validity::NODE_STACK_END.get(self.control(node, start)?).max(start);
        let data = validity::NODE_FRAME.set(bits, frame.raw());
        self.memory.write_u64(PhysAddr::new(node.0.address().raw() + 8 * place), data)?;
        let word = validity::NODE_HELPER.set(self.control(node, place)?, end);
        self.set_control(node, place, validity::NODE_REGION.set(word, start))?;
        let word = validity::NODE_STACK.set(self.control(node, end)?, place);
        self.set_control(node, end, word)?;
        let word = validity::NODE_STACK_END.set(self.control(node, start)?, end + 1);
        self.set_control(node, start, word)?;
        // A shared node that is new gets its count from the caller.
        let shared = level + 1 < self.tables.levels() && !self.is_whole(page, level + 1, span);
        let index = self.pool.index(node.0);
        if shared && end == start && taken.get(level as usize + 1) != Some(&index) {
            self.pool.set_link(index, self.pool.link(index).unwrap_or(0) + 1);
        }
        Ok(())
    }

    /// Ends the region's parts in the nodes on the way to `page`, one of its borders;
    /// then the shared nodes there in which no part is left, from below. How many.
    fn end_parts(&mut self, span: Span, page: u64) -> Result<u32, RegionError> {
        let mut path = [Node(self.tables.root); LEVELS_MAX];
        let top = self.tables.levels() - 1;
        let mut level = top;
        loop {
            let node = path[level as usize];
            if let Some((start, _)) = span.part(page, level) {
                self.end_stack(node, start, level == top)?;
            }
            if self.is_whole(page, level, span) || !self.is_valid(node, page, level, span)? {
                break;
            }
            path[level as usize - 1] = self.below(node, page, level)?;
            level -= 1;
        }
        let mut freed = 0;
        while level < top {
            let index = self.pool.index(path[level as usize].0);
            if self.pool.link(index) != Some(0) {
                break;
            }
            level += 1;
            self.end_stack(path[level as usize], entry(page, level), level == top)?;
            self.pool.free_list(&mut self.account, index, index, 1);
            freed += 1;
        }
        Ok(freed)
    }

    /// Empties the stack that starts at a place of a node.
    fn end_stack(&self, node: Node, start: u64, is_root: bool) -> Result<(), BusError> {
        let word = self.control(node, start)?;
        if validity::NODE_STACK_END.get(word) > start {
            self.set_control(node, start, validity::NODE_STACK_END.set(word, start))?;
            let index = self.pool.index(node.0);
            if !is_root {
                self.pool.set_link(index, self.pool.link(index).unwrap_or(1) - 1);
            }
        }
        Ok(())
    }

    /// Returns true if the entry that holds `page` at `level` lies wholly in the region.
    fn is_whole(&self, page: u64, level: u32, span: Span) -> bool {
        let place = entry(page, level);
        span.part(page, level).is_some_and(|(low, high)| (low..high).contains(&place))
    }

    /// Returns the start of the stack on which the entry of `page` stands if it is valid.
    fn part_start(&self, page: u64, level: u32, span: Span) -> u64 {
        match span.part(page, level) {
            Some((low, high)) if (low..high).contains(&entry(page, level)) => low,
            _ => entry(page, level),
        }
    }

    /// Returns true if the entry of `page` in a node is valid.
    fn is_valid(&self, node: Node, page: u64, level: u32, span: Span) -> Result<bool, BusError> {
        let (place, start) = (entry(page, level), self.part_start(page, level, span));
        let at = validity::NODE_HELPER.get(self.control(node, place)?);
        Ok(start <= at
            && at < validity::NODE_STACK_END.get(self.control(node, start)?)
            && validity::NODE_STACK.get(self.control(node, at)?) == place)
    }

    /// Returns the node that a valid entry leads to.
    fn below(&self, node: Node, page: u64, level: u32) -> Result<Node, BusError> {
        let data = PhysAddr::new(node.0.address().raw() + 8 * entry(page, level));
        Ok(Node(Pfn::new(validity::NODE_FRAME.get(self.memory.read_u64(data)?))))
    }

    /// Makes a node one without valid entries.
    fn clear(&self, node: Node) -> Result<(), BusError> {
        (0..ENTRIES).try_for_each(|place| self.set_control(node, place, 0))
    }

    fn control(&self, node: Node, place: u64) -> Result<u64, BusError> {
        self.memory.read_u64(control_at(node, place))
    }

    fn set_control(&self, node: Node, place: u64, word: u64) -> Result<(), BusError> {
        self.memory.write_u64(control_at(node, place), word)
    }

    /// Adds a frame to a region's list.
    fn add_to_list(&self, header: &mut Header, index: u32) {
        if header.count == 0 {
            header.oldest = index;
        } else {
            self.pool.set_link(index, self.pool.link(header.oldest).unwrap_or(NONE));
        }
        self.pool.set_link(header.oldest, index);
        header.count += 1;
    }

    /// Returns the interval that holds `page`, and its header.
    fn find(&self, page: Vpn) -> Result<(Span, Header), RegionError> {
        let pages = 1 << self.tables.pages_log2;
        let found = match page.raw() {
            number if number < pages => self.starts.find(last_place(number)),
            _ => None,
        };
        let start = found.ok_or(RegionError::OutOfRange { page })?.raw() >> PLACES_LOG2;
        let end = self.next(start).unwrap_or(pages);
        Ok((Span { start, end }, self.header(start)))
    }

    /// Returns the first start above `page`.
    fn next(&self, page: u64) -> Option<u64> {
        self.starts.next(last_place(page)).map(|place| place.raw() >> PLACES_LOG2)
    }

    fn header(&self, start: u64) -> Header {
        Header::of(self.starts.word(start << PLACES_LOG2))
    }

    fn set_header(&mut self, start: u64, header: Header) {
        self.starts.set_word(start << PLACES_LOG2, header.word());
    }

    fn split(&mut self, at: u64) -> Result<(), RegionError> {
        self.starts.split(Vpn::new(at << PLACES_LOG2)).map_err(RegionError::Tree)
    }

    /// Removes the start of a free interval, in whose word only the start's bit is set.
    fn union(&mut self, at: u64) -> Result<(), RegionError> {
        self.starts.union(Vpn::new(at << PLACES_LOG2)).map_err(RegionError::Tree)
    }
}

/// Returns the last place of a page in the tree of starts.
fn last_place(page: u64) -> Vpn {
    Vpn::new(page << PLACES_LOG2 | ((1 << PLACES_LOG2) - 1))
}

fn control_at(node: Node, place: u64) -> PhysAddr {
    PhysAddr::new(node.0.address().raw() + validity::NODE_CONTROL_BYTES + 8 * place)
}
