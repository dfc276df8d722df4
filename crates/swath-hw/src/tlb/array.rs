//! The TLB: a set-associative store of page ranges with true LRU, or another replacement.
//!
//! One storage serves all designs: an **entry** maps a range of pages to as
//! many frames, be it a base page (TRAD), a coalesced block (PCAD), an anchor
//! and the pages behind it (AT) or a superpage. Hardware compares all ways at
//! once; a scan would make the model pay for every way on every access.
//! Instead, an entry of length n has the size class k = ceil(log2 n), so it
//! touches at most two aligned windows of 2^k pages, and is chained into a
//! small hash table under each of them. A lookup probes one window for each
//! size class present.
//!
//! **Two entries never match one page** (of one kind), as two matching ways
//! would be an error in hardware. True blocks are disjoint, but saturated
//! contiguity fields, or tables changed without invalidation, can describe
//! ranges that overlap an older entry. A fill then follows one rule: where an
//! older entry sticks out of the new range, the new range is cut at it; an
//! older entry wholly inside the new range is dropped. So no reach is lost, a
//! superpage (nested with what it overlaps) always keeps its size, and the
//! demanded page is always served.
//!
//! **Sets.** The set index comes from the page number divided by
//! 2^[`index_shift`](Geometry::index_shift), and a range is cut to the aligned
//! window of so many pages around the demanded one, so that an entry lies in
//! one set (as CoLT does: Pham et al., MICRO 2012). Anchor entries are indexed
//! above the anchor distance where that is more, as in the AT paper. With one
//! set nothing is cut.
//!
//! **By size.** Indexed [by size](Indexing::Size), a superpage beyond that window chooses its
//! set by the page number divided by its own length instead, as second TLBs do that hold
//! several sizes (one probe for each size). Pages of different sizes stand in
//! different sets then, and a fill drops only what serves the demanded page; so after
//! a promotion without the owed invalidation, old base pages live on beside the
//! superpage. The smallest entry answers.

use alloc::boxed::Box;
use alloc::vec;

use swath_arch::{Attributes, Order, PageRange, Pfn, Vpn};

use crate::tlb::fill::{EntryKind, PAGE_BITS, TlbFill, TlbHit};
use crate::tlb::geometry::{Geometry, GeometryError, Indexing, Replacement};
use crate::tlb::stats::TlbStats;

/// The class of anchor entries, which are found by their aligned window.
pub(crate) const ANCHOR: u32 = 63;
/// No entry, no node.
pub(crate) const NIL: u32 = u32::MAX;
/// No page has this number.
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// An empty entry has `len` 0 and `start`
/// [`NO_PAGE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) frame: u64,
    /// The nodes behind the entry's two nodes in their chains.
    pub(crate) chain: [u32; 2],
    /// The buckets of the two nodes; the second is [`NIL`] where one window
    /// holds the whole entry.
    pub(crate) buckets: [u32; 2],
    /// Neighbours in the ring of the set, by age.
    pub(crate) newer: u32,
    pub(crate) older: u32,
    pub(crate) attributes: Attributes,
    pub(crate) class: u8,
}

/// A TLB of any form, with true LRU replacement in each set, or [another](Self::replacing).
///
/// Let c be the number of size classes present: 1 for base pages alone, at
/// most 53. Chains are short: there are at most a quarter as many nodes as buckets.
///
/// Invariants, all walked by [`check`](Self::check):
/// * The ring of a set holds its ways, from the most recently used `heads[set]`
///   along `older` to the least recently used; empty entries come last. Under another replacement
///   than LRU a use is a fill.
/// * An entry lies in the set of each of its pages, and in one window of
///   2^distance if it is an anchor entry.
/// * Two entries of one kind share no page, but, indexed by size, those of different
///   classes of which one is beyond the window; two anchor entries share no window.
/// * The node `2 * entry + w` is chained under the first (w = 0) or, if that is
///   another one, the last (w = 1) window that the entry touches.
/// * `population` counts regular entries by class and `classes` has a bit for
///   each class that is not empty; `anchors` counts anchor entries.
/// * `last_page` is the page of the last hit or fill, `last` what is known of
///   it and its entry is, under LRU, the most recently used of its set; or it is no page.
#[derive(Clone, Debug)]
pub struct Tlb {
    pub(crate) last_page: u64,
    pub(crate) last: TlbHit,
    /// The class of the entry behind `last`.
    pub(crate) last_class: u8,
    /// The bits of a class that count in the choice of a set: all, or none.
    pub(crate) size_mask: u32,
    pub(crate) replacement: Replacement,
    /// The shift register of [`Replacement::Random`], never 0.
    register: u32,
    pub(crate) classes: u64,
    pub(crate) anchors: u32,
    pub(crate) distance: u32,
    pub(crate) hash_shift: u32,
    pub(crate) geometry: Geometry,
    pub(crate) heads: Box<[u32]>,
    pub(crate) entries: Box<[Entry]>,
    pub(crate) buckets: Box<[u32]>,
    pub(crate) population: [u32; PAGE_BITS as usize + 1],
    pub(crate) stats: TlbStats,
}

impl Tlb {
    /// Creates an empty TLB, indexed by windows. `distance` is log2 of the anchor distance in
    /// pages; it matters to anchor entries alone. O(entries).
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(geometry: Geometry, distance: Order) -> Result<Self, GeometryError> {
        Self::indexed(geometry, Indexing::Window, distance)
    }

    /// Creates an empty TLB with a choice of the indexing, which matters where there are sets.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn indexed(
        geometry: Geometry,
        indexing: Indexing,
        distance: Order,
    ) -> Result<Self, GeometryError> {
        let Geometry { sets, ways, index_shift } = geometry;
        let entries = u64::from(sets) * u64::from(ways);
        if entries == 0 || entries > u64::from(Geometry::ENTRIES_MAX) {
            return Err(GeometryError::Entries { sets, ways });
        }
        if index_shift > PAGE_BITS {
            return Err(GeometryError::IndexShift { index_shift });
        }
        let entries = entries as u32;
        let empty = Entry {
            start: NO_PAGE,
            len: 0,
            frame: 0,
            chain: [NIL; 2],
            buckets: [NIL; 2],
            newer: 0,
            older: 0,
            attributes: Attributes::default(),
            class: 0,
        };
        let mut entries: Box<[Entry]> = vec![empty; entries as usize].into_boxed_slice();
        for (set, chunk) in (0u32..).zip(entries.chunks_exact_mut(ways as usize)) {
            let base = set * ways;
            for (way, entry) in (0u32..).zip(chunk) {
                entry.older = base + (way + 1) % ways;
                entry.newer = base + (way + ways - 1) % ways;
            }
        }
        let buckets = (8 * entries.len()).next_power_of_two();
        Ok(Self {
            last_page: NO_PAGE,
            last: TlbHit {
                frame: Pfn::new(0),
                attributes: Attributes::default(),
                kind: EntryKind::Regular,
            },
            last_class: 0,
            size_mask: if indexing == Indexing::Size && sets > 1 { 63 } else { 0 },
            replacement: Replacement::Lru,
            register: 1,
            classes: 0,
            anchors: 0,
            distance: distance.k(),
            hash_shift: 64 - buckets.trailing_zeros(),
            geometry,
            heads: (0..sets).map(|set| set * ways).collect(),
            entries,
            buckets: vec![NIL; buckets].into_boxed_slice(),
            population: [0; PAGE_BITS as usize + 1],
            stats: TlbStats::default(),
        })
    }

    /// Replaces entries so from now on.
    #[must_use]
    pub const fn replacing(mut self, replacement: Replacement) -> Self {
        self.replace_by(replacement);
        self
    }

    pub(crate) const fn replace_by(&mut self, replacement: Replacement) {
        self.replacement = replacement;
        self.last_page = NO_PAGE;
    }

    /// Returns the form.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the counters since the start or the last
    /// [`reset_stats`](Self::reset_stats).
    pub const fn stats(&self) -> TlbStats {
        self.stats
    }

    /// Sets every counter to 0; the entries stay.
    pub fn reset_stats(&mut self) {
        self.stats = TlbStats::default();
    }

    /// Looks `page` up, and under LRU makes the entry that answers the most recently
    /// used of its set. A regular entry is looked for first, then the anchor
    /// entry. O(1) for the page of the access before, else O(c).
    #[inline]
    pub fn lookup(&mut self, page: Vpn) -> Option<TlbHit> {
        self.stats.accesses += 1;
        // Exact in every design: nothing has changed since, and under LRU the entry is the most
        // recently used one already.
        if page.raw() == self.last_page && page.raw() != NO_PAGE {
            match self.last.kind {
                EntryKind::Regular => self.stats.regular_hits += 1,
                EntryKind::Anchor => self.stats.anchor_hits += 1,
            }
            return Some(self.last);
        }
        let found = self.search(page.raw());
        match found {
            Some(TlbHit { kind: EntryKind::Regular, .. }) => self.stats.regular_hits += 1,
            Some(_) => self.stats.anchor_hits += 1,
            None => self.stats.misses += 1,
        }
        found
    }

    /// Looks `page` up and counts nothing, for a caller that searches several TLBs and counts
    /// itself. Kept out of line: the way of the page of the access before is a third shorter so.
    #[inline(never)]
    pub(crate) fn search(&mut self, page: u64) -> Option<TlbHit> {
        let (index, kind) = match self.find_regular(page) {
            Some(index) => (index, EntryKind::Regular),
            None => match self.find_anchor(page) {
                Some(index) if self.entries[index as usize].covers(page) => {
                    (index, EntryKind::Anchor)
                }
                _ => return None,
            },
        };
        let class = self.entries[index as usize].class;
        if self.replacement == Replacement::Lru {
            let set = self.set_of(page, kind, class.into());
            self.touch(set, index);
        }
        let entry = &self.entries[index as usize];
        self.last_class = class;
        let frame = Pfn::new(entry.frame + (page - entry.start));
        self.last = TlbHit { frame, attributes: entry.attributes, kind };
        self.last_page = page;
        Some(self.last)
    }

    /// Returns the hit that a lookup of `page` would find, and changes nothing. O(c).
    pub fn peek(&self, page: Vpn) -> Option<TlbHit> {
        let page = page.raw();
        let regular = self.find_regular(page).map(|index| (index, EntryKind::Regular));
        let (index, kind) = regular.or_else(|| {
            let index = self.find_anchor(page)?;
            self.entries[index as usize].covers(page).then_some((index, EntryKind::Anchor))
        })?;
        let entry = &self.entries[index as usize];
        let frame = Pfn::new(entry.frame + (page - entry.start));
        Some(TlbHit { frame, attributes: entry.attributes, kind })
    }

    /// Returns the entry that [`peek`](Self::peek) finds, for another TLB to hold. O(c).
    pub(crate) fn entry(&self, page: Vpn) -> Option<TlbFill> {
        let kind = self.peek(page)?.kind;
        let index = match kind {
            EntryKind::Regular => self.find_regular(page.raw())?,
            EntryKind::Anchor => self.find_anchor(page.raw())?,
        };
        let entry = &self.entries[index as usize];
        Some(TlbFill::within(kind, page, entry.pages(), Pfn::new(entry.frame), entry.attributes))
    }

    /// Writes an entry in place of the least recently used of its set, or of the one that another
    /// [`Replacement`] chooses, after
    /// cutting and dropping as told at the head of the [module](self). An
    /// older entry of this kind for the same page (or the same anchor) is
    /// dropped first. O(c) for one page or an anchor, else O(c + ways), as for every random choice.
    pub fn fill(&mut self, fill: &TlbFill) {
        let regular = self.find_regular(fill.page);
        match (fill.kind, regular) {
            (EntryKind::Regular, Some(_)) => {
                self.displace_regular(fill.page);
                self.fill_missed(fill);
            }
            (EntryKind::Anchor, Some(_)) => {
                self.fill_missed(fill);
                // The regular entry still wins.
                self.last_page = NO_PAGE;
            }
            (_, None) => self.fill_missed(fill),
        }
    }

    /// Drops the regular entries for a page that a newer one takes the place of.
    pub(crate) fn displace_regular(&mut self, page: u64) {
        while let Some(index) = self.find_regular(page) {
            self.displace((index / self.geometry.ways) as usize, index);
        }
    }

    /// Fills an entry where no regular entry serves the page, as after a lookup that
    /// missed.
    #[inline]
    pub(crate) fn fill_missed(&mut self, fill: &TlbFill) {
        let page = fill.page;
        let (mut start, mut end) = (fill.start, fill.end);
        let superpage = self.size_mask != 0 && is_superpage(start, end, self.geometry.index_shift);
        let by_size = if superpage { (end - start).trailing_zeros() } else { 0 };
        let set = self.set_of(page, fill.kind, by_size);
        let class = match fill.kind {
            EntryKind::Regular if end - start == 1 => 0,
            EntryKind::Regular if superpage => by_size,
            EntryKind::Regular => {
                if self.geometry.sets > 1 {
                    cut(page, self.geometry.index_shift, &mut start, &mut end);
                }
                self.make_room(set, &mut start, &mut end);
                64 - (end - start - 1).leading_zeros()
            }
            EntryKind::Anchor => {
                if let Some(index) = self.find_anchor(page) {
                    self.displace(set, index);
                }
                cut(page, self.distance, &mut start, &mut end);
                ANCHOR
            }
        };
        self.stats.fills += 1;
        self.stats.trimmed_fills += u64::from(end - start != fill.end - fill.start);
        let mut index = self.entries[self.heads[set] as usize].newer;
        if self.entries[index as usize].len != 0 {
            if self.replacement == Replacement::Random {
                index = self.draw(set);
                self.make_oldest(set, index);
            }
            self.stats.evictions += 1;
            self.unchain(index);
        }
        self.heads[set] = index;
        let frame = fill.frame + (start - fill.start);
        let entry = &mut self.entries[index as usize];
        entry.start = start;
        entry.len = end - start;
        entry.frame = frame;
        entry.attributes = fill.attributes;
        entry.class = class as u8;
        self.chain(index);
        self.last_page = page;
        self.last = TlbHit {
            frame: Pfn::new(frame + (page - start)),
            attributes: fill.attributes,
            kind: fill.kind,
        };
        self.last_class = class as u8;
    }

    /// Drops every entry, of either kind, that serves `page`: a coalesced
    /// entry goes as a whole, as in hardware. O(c).
    pub fn invalidate_page(&mut self, page: Vpn) {
        let page = page.raw();
        while let Some(index) = self.find_regular(page) {
            self.invalidate(index);
        }
        if let Some(index) = self.find_anchor(page)
            && self.entries[index as usize].covers(page)
        {
            self.invalidate(index);
        }
    }

    /// Drops every entry that serves a page of `pages`. O(entries).
    pub fn invalidate_range(&mut self, pages: PageRange) {
        for index in 0..self.entries.len() as u32 {
            if self.entries[index as usize].pages().overlaps(pages) {
                self.invalidate(index);
            }
        }
    }

    /// Drops every entry. O(entries).
    pub fn invalidate_all(&mut self) {
        for index in 0..self.entries.len() as u32 {
            if self.entries[index as usize].len != 0 {
                self.invalidate(index);
            }
        }
    }

    /// Visits the valid entries, each set from the most to the least recently
    /// used, or filled if not LRU. O(entries).
    pub fn for_each(&self, visit: &mut dyn FnMut(EntryKind, PageRange, Pfn)) {
        for &head in &self.heads {
            let mut index = head;
            for _ in 0..self.geometry.ways {
                let entry = &self.entries[index as usize];
                if entry.len != 0 {
                    visit(entry.kind(), entry.pages(), Pfn::new(entry.frame));
                }
                index = entry.older;
            }
        }
    }

    /// Returns the set of a page in an entry of this kind and class. A set number is below
    /// 2^24, so it fits.
    #[inline]
    pub(crate) fn set_of(&self, page: u64, kind: EntryKind, class: u32) -> usize {
        let Geometry { sets, index_shift, .. } = self.geometry;
        if sets == 1 {
            return 0;
        }
        let shift = match kind {
            EntryKind::Regular => index_shift.max(class & self.size_mask),
            EntryKind::Anchor => index_shift.max(self.distance),
        };
        let window = page >> shift;
        if sets.is_power_of_two() {
            (window & u64::from(sets - 1)) as usize
        } else {
            (window % u64::from(sets)) as usize
        }
    }

    /// Returns the bucket by Fibonacci hashing; the class goes to bits that a window leaves free.
    #[inline]
    fn bucket(&self, class: u32, window: u64) -> u32 {
        let key = window ^ u64::from(class) << 56;
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.hash_shift) as u32
    }

    #[inline]
    pub(crate) fn find_regular(&self, page: u64) -> Option<u32> {
        let mut classes = self.classes;
        while classes != 0 {
            let class = classes.trailing_zeros();
            classes &= classes - 1;
            let mut node = self.buckets[self.bucket(class, page >> class) as usize];
            while node != NIL {
                let entry = &self.entries[(node >> 1) as usize];
                if entry.covers(page) && u32::from(entry.class) == class {
                    return Some(node >> 1);
                }
                node = entry.chain[(node & 1) as usize];
            }
        }
        None
    }

    /// Returns the anchor entry of the window of `page`, whether it covers the page or
    /// not.
    #[inline]
    pub(crate) fn find_anchor(&self, page: u64) -> Option<u32> {
        if self.anchors == 0 {
            return None;
        }
        let window = page >> self.distance;
        let mut node = self.buckets[self.bucket(ANCHOR, window) as usize];
        while node != NIL {
            let entry = &self.entries[(node >> 1) as usize];
            if entry.start >> self.distance == window && u32::from(entry.class) == ANCHOR {
                return Some(node >> 1);
            }
            node = entry.chain[(node & 1) as usize];
        }
        None
    }

    /// Makes sure that no regular entry of the set overlaps the range: cuts it
    /// at those that stick out, drops those inside. None covers the page that
    /// demanded the range, so none sticks out on both sides.
    fn make_room(&mut self, set: usize, start: &mut u64, end: &mut u64) {
        let (from, to) = (*start, *end);
        let ways = self.geometry.ways as usize;
        let first = set * ways;
        // First whether there is any, without branches: where the ways in the
        // range stand is different every time, so no branch would be foreseen.
        let all = &self.entries[first..][..ways];
        if all.iter().map(|entry| u32::from(entry.overlaps(from, to))).sum::<u32>() == 0 {
            return;
        }
        for entry in all.iter().filter(|entry| entry.overlaps(from, to)) {
            if !self.is_cut(entry) {
                continue;
            }
            if entry.start < from {
                *start = (*start).max(entry.start + entry.len);
            } else if entry.start + entry.len > to {
                *end = (*end).min(entry.start);
            }
        }
        // What is left of the range overlaps only entries inside it.
        for index in first..first + ways {
            let entry = &self.entries[index];
            if entry.overlaps(*start, *end) && self.is_cut(entry) {
                self.displace(set, index as u32);
            }
        }
    }

    /// Returns true if an entry is one of those that share no page: neither an anchor entry nor a
    /// superpage indexed by its size.
    pub(crate) fn is_cut(&self, entry: &Entry) -> bool {
        let class = u32::from(entry.class);
        class != ANCHOR && (self.size_mask == 0 || class <= self.geometry.index_shift)
    }

    fn displace(&mut self, set: usize, index: u32) {
        self.stats.displaced += 1;
        self.drop_entry(set, index);
    }

    fn invalidate(&mut self, index: u32) {
        self.stats.invalidated += 1;
        self.drop_entry((index / self.geometry.ways) as usize, index);
    }

    /// Empties an entry and makes it the next to be replaced.
    fn drop_entry(&mut self, set: usize, index: u32) {
        self.unchain(index);
        let entry = &mut self.entries[index as usize];
        entry.start = NO_PAGE;
        entry.len = 0;
        self.make_oldest(set, index);
        self.last_page = NO_PAGE;
    }

    /// Makes an entry the least recently used of its set.
    fn make_oldest(&mut self, set: usize, index: u32) {
        if self.heads[set] == index {
            self.heads[set] = self.entries[index as usize].older;
        } else {
            self.move_before_head(set, index);
        }
    }

    /// Chooses an entry of a set by the shift register, so many places behind the newest.
    #[cold]
    fn draw(&mut self, set: usize) -> u32 {
        self.register = step(self.register);
        let places = self.register % self.geometry.ways;
        (0..places).fold(self.heads[set], |index, _| self.entries[index as usize].older)
    }

    /// Makes an entry the most recently used of its set.
    #[inline]
    fn touch(&mut self, set: usize, index: u32) {
        if self.heads[set] != index {
            self.move_before_head(set, index);
            self.heads[set] = index;
        }
    }

    /// Moves an entry other than the head between the oldest and the head: it
    /// is the oldest now, or the newest if it is made the head.
    #[inline]
    fn move_before_head(&mut self, set: usize, index: u32) {
        let head = self.heads[set];
        let oldest = self.entries[head as usize].newer;
        if oldest == index {
            return;
        }
        let Entry { newer, older, .. } = self.entries[index as usize];
        self.entries[newer as usize].older = older;
        self.entries[older as usize].newer = newer;
        self.entries[oldest as usize].older = index;
        self.entries[head as usize].newer = index;
        let entry = &mut self.entries[index as usize];
        entry.newer = oldest;
        entry.older = head;
    }

    /// Returns the buckets of an entry's nodes; the second is absent where one window
    /// holds the whole entry.
    #[inline]
    pub(crate) fn nodes(&self, class: u32, start: u64, len: u64) -> [u32; 2] {
        if class == ANCHOR {
            return [self.bucket(ANCHOR, start >> self.distance), NIL];
        }
        let (first, last) = (start >> class, (start + len - 1) >> class);
        let second = if first == last { NIL } else { self.bucket(class, last) };
        [self.bucket(class, first), second]
    }

    #[inline]
    fn chain(&mut self, index: u32) {
        let Entry { class, start, len, .. } = self.entries[index as usize];
        let buckets = self.nodes(u32::from(class), start, len);
        let entry = &mut self.entries[index as usize];
        entry.buckets = buckets;
        let first = &mut self.buckets[buckets[0] as usize];
        entry.chain[0] = *first;
        *first = 2 * index;
        if buckets[1] != NIL {
            let second = &mut self.buckets[buckets[1] as usize];
            entry.chain[1] = *second;
            *second = 2 * index + 1;
        }
        if u32::from(class) == ANCHOR {
            self.anchors += 1;
        } else {
            self.population[usize::from(class)] += 1;
            self.classes |= 1 << class;
        }
    }

    #[inline]
    fn unchain(&mut self, index: u32) {
        let Entry { class, buckets, chain, .. } = self.entries[index as usize];
        self.unlink(buckets[0], 2 * index, chain[0]);
        if buckets[1] != NIL {
            // The two nodes may share a chain, so the link is read afresh.
            let next = self.entries[index as usize].chain[1];
            self.unlink(buckets[1], 2 * index + 1, next);
        }
        if u32::from(class) == ANCHOR {
            self.anchors -= 1;
        } else {
            let left = &mut self.population[usize::from(class)];
            *left -= 1;
            if *left == 0 {
                self.classes &= !(1 << class);
            }
        }
    }

    /// Takes `node` out of a chain in which `next` follows it.
    #[inline]
    fn unlink(&mut self, bucket: u32, node: u32, next: u32) {
        let mut slot = &mut self.buckets[bucket as usize];
        while *slot != node {
            let at = *slot;
            slot = &mut self.entries[(at >> 1) as usize].chain[(at & 1) as usize];
        }
        *slot = next;
    }
}

impl Entry {
    #[inline]
    pub(crate) const fn covers(&self, page: u64) -> bool {
        page.wrapping_sub(self.start) < self.len
    }

    /// Returns true if the entry has a page of `from..to`, which is not empty. One
    /// comparison; an empty entry has none.
    #[inline]
    const fn overlaps(&self, from: u64, to: u64) -> bool {
        let last = self.start.wrapping_add(self.len).wrapping_sub(1);
        last.wrapping_sub(from) < (to - from - 1) + self.len
    }

    pub(crate) const fn kind(&self) -> EntryKind {
        if self.class as u32 == ANCHOR { EntryKind::Anchor } else { EntryKind::Regular }
    }

    pub(crate) const fn pages(&self) -> PageRange {
        PageRange::new(Vpn::new(self.start), self.len)
    }
}

/// Returns the next state of a shift register of 32 bits, which goes through all but 0
/// (Marsaglia, "Xorshift RNGs", 2003).
pub(crate) const fn step(register: u32) -> u32 {
    let register = register ^ register << 13;
    let register = register ^ register >> 17;
    register ^ register << 5
}

/// Cuts a range around `page` to the page's aligned window of 2^`shift`.
#[inline]
fn cut(page: u64, shift: u32, start: &mut u64, end: &mut u64) {
    let low = page >> shift << shift;
    *start = (*start).max(low);
    *end = (*end).min(low + (1 << shift));
}

/// Returns true if a range is a superpage longer than a window of 2^`shift`.
#[inline]
const fn is_superpage(start: u64, end: u64, shift: u32) -> bool {
    let len = end - start;
    len.is_power_of_two() && start & (len - 1) == 0 && len.trailing_zeros() > shift
}
