//! The words of a reverse map: heads of lists, PV entries, and the list of the
//! free ones. [`reverse`](crate::pmap::reverse) says what they are for.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn, Vpn};

use crate::table::sizes::Sizes;

/// The number of a space, given by the owner of the spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub u32);

/// A page of a space; of a mapping, its first page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// The space.
    pub space: SpaceId,
    /// The page.
    pub page: Vpn,
}

/// The place of the flags that say whether a page was accessed and written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Status {
    /// In the table alone. A PV entry takes two words.
    #[default]
    InTable,
    /// In the PV entries, which decide; promotion compares them too. A PV entry takes
    /// three words.
    InReverseMap,
}

impl Status {
    /// Counts the words of a PV entry.
    const fn entry_words(self) -> usize {
        match self {
            Self::InTable => 2,
            Self::InReverseMap => 3,
        }
    }
}

/// The status flags of a mapping, where they stand in its PV entry: none otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) modified: bool,
    pub(crate) referenced: bool,
}

/// Reasons why a reverse map is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReverseError {
    /// The frames end beyond the last frame number, or their lists need more
    /// words than there can be.
    #[error("frames {frames} are too many")]
    TooMany {
        /// The frames.
        frames: Extent,
    },
    /// Fewer words than the lists' heads take.
    #[error("{given} words, {needed} are needed")]
    Short {
        /// Words needed for the heads and no entry.
        needed: usize,
        /// Words given.
        given: usize,
    },
}

/// A breach of an invariant, found by [`ReverseMap::check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReverseFault {
    /// Entries are in no list, or in two.
    #[error("{found} of {total} PV entries are found")]
    Lost {
        /// Entries in lists and free ones.
        found: u64,
        /// All entries.
        total: u64,
    },
    /// A list's link leads to no entry.
    #[error("the list of frame {frame} leads nowhere")]
    Link {
        /// The first frame of the list.
        frame: Pfn,
    },
    /// A PV entry maps nothing, says more of what it does not map, is of a size
    /// that belongs elsewhere, or says the same as another.
    #[error("the list of frame {frame} holds a wrong PV entry")]
    Entry {
        /// The first frame of the list.
        frame: Pfn,
    },
}

/// No PV entry is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfEntries;

/// The frames of a group whose base pages share PV entries.
pub(crate) const GROUP: Order = Order::known(4);
/// A bit for each frame of a group.
pub(crate) const ALL: u64 = 0xffff;
/// The number of an entry plus one, in the low half of a head or of an entry's
/// second word; 0 ends a list.
pub(crate) const NEXT: u64 = 0xffff_ffff;
/// In the head of a group, a bit for each frame from here on: it was written, or
/// accessed, through a mapping that is no more or says so no more.
pub(crate) const MODIFIED_AT: u32 = 32;
pub(crate) const REFERENCED_AT: u32 = 48;
/// In an entry's first word the page, with its sign: no format translates more
/// than 36 bits of it and their extension.
const PAGE_BITS: u32 = 37;
pub(crate) const PAGE: u64 = (1 << PAGE_BITS) - 1;
/// Over it the order.
pub(crate) const ORDER_AT: u32 = PAGE_BITS;
/// Over it, a bit for each frame of the group that is mapped; all for a superpage.
pub(crate) const MAPPED_AT: u32 = 48;
pub(crate) const MAPPED: u64 = ALL << MAPPED_AT;
/// In the low half of an entry's third word, a bit for each frame of the group.
pub(crate) const ENTRY_REFERENCED_AT: u32 = 16;

/// The most kinds of lists: groups of 16 frames and four larger sizes.
const LISTS_MAX: usize = 5;

/// The reverse maps of the frames of an extent, in words that the caller gives.
///
/// Invariants, walked by [`check`](Self::check): every PV entry is in exactly
/// one list, of a group of frames or of the free ones; in a list it maps at
/// least one frame, its flags are of frames that it maps, and no other has its
/// space, page and order.
#[derive(Debug)]
pub struct ReverseMap<W> {
    pub(crate) words: W,
    pub(crate) frames: Extent,
    pub(crate) sizes: Sizes,
    pub(crate) status: Status,
    /// For each kind of list the order of its groups, and its first head among the words.
    lists: [(Order, usize); LISTS_MAX],
    /// Index of the first entry's first word.
    entries_at: usize,
    entries: u32,
    /// The first free entry plus one.
    free: u32,
    pub(crate) free_entries: u32,
}

/// Returns the heads of one kind: a head per aligned group.
fn heads(frames: Extent, order: Order) -> u64 {
    if frames.is_empty() {
        return 0;
    }
    ((frames.end().raw() - 1) >> order.k()) - (frames.start.raw() >> order.k()) + 1
}

/// Returns the orders of the groups that have lists, ascending.
pub(crate) fn list_orders(sizes: Sizes) -> impl Iterator<Item = Order> {
    let larger = sizes.iter().filter(|&order| order > GROUP);
    core::iter::once(GROUP).chain(larger).take(LISTS_MAX)
}

impl ReverseMap<&mut [u64]> {
    /// Counts the words for the frames of the extent, superpages of `sizes`, and `entries`
    /// PV entries at a time; `None` if there cannot be so many. As many entries as there are
    /// mappings at a time always suffice.
    pub fn words_needed(
        frames: Extent,
        sizes: Sizes,
        status: Status,
        entries: u32,
    ) -> Option<usize> {
        frames.checked_end()?;
        let mut words = u64::from(entries).checked_mul(status.entry_words() as u64)?;
        for order in list_orders(sizes) {
            words = words.checked_add(heads(frames, order))?;
        }
        usize::try_from(words).ok()
    }
}

impl<W: DerefMut<Target = [u64]>> ReverseMap<W> {
    /// Makes reverse maps without a mapping, with as many PV entries as the words hold.
    /// One write per head and per entry.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub fn new(
        frames: Extent,
        sizes: Sizes,
        status: Status,
        mut words: W,
    ) -> Result<Self, ReverseError> {
        let needed = ReverseMap::words_needed(frames, sizes, status, 0)
            .ok_or(ReverseError::TooMany { frames })?;
        let given = words.len();
        let rest = given.checked_sub(needed).ok_or(ReverseError::Short { needed, given })?;
        let entries = rest / status.entry_words();
        let entries = u32::try_from(entries).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let mut lists = [(GROUP, 0); LISTS_MAX];
        let mut at = 0;
        for (list, order) in lists.iter_mut().zip(list_orders(sizes)) {
            *list = (order, at);
            at += heads(frames, order) as usize;
        }
        words[..needed].fill(0);
        let mut map = Self {
            words,
            frames,
            sizes,
            status,
            lists,
            entries_at: needed,
            entries,
            free: 0,
            free_entries: 0,
        };
        for entry in (1..=entries).rev() {
            map.free_entry(entry);
        }
        Ok(map)
    }

    /// Returns the frames whose mappings are kept.
    pub const fn frames(&self) -> Extent {
        self.frames
    }

    /// Returns the superpage sizes that have lists.
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns the place of the status flags.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Counts the PV entries that are free.
    pub const fn free_entries(&self) -> u32 {
        self.free_entries
    }

    /// Counts the PV entries in use: at most one per mapping.
    pub const fn used_entries(&self) -> u32 {
        self.entries - self.free_entries
    }

    /// Walks every list: a reading of each head, and for each entry one of those of its list.
    ///
    /// # Errors
    /// [`ReverseFault`]: the first thing wrong.
    pub fn check(&self) -> Result<(), ReverseFault> {
        self.walk().map(drop)
    }

    /// Does as [`check`](Self::check), and counts the mappings.
    pub(crate) fn walk(&self) -> Result<u64, ReverseFault> {
        let total = u64::from(self.entries);
        let (mut found, mut mappings) = (0, 0);
        for order in list_orders(self.sizes) {
            for group in 0..heads(self.frames, order) {
                let first = (self.frames.start.raw() >> order.k()) + group;
                let frame = Pfn::new(first << order.k()).max(self.frames.start);
                let Some(head) = self.head(order, frame) else { continue };
                let length = self.length((self.words[head] & NEXT) as u32, frame)?;
                found += length;
                if found > total {
                    return Err(ReverseFault::Lost { found, total });
                }
                for at in self.list(head) {
                    mappings += self.mapped(at, order, head, frame)?;
                }
            }
        }
        let free = self.length(self.free, self.frames.start)?;
        if found + free != total || free != u64::from(self.free_entries) {
            return Err(ReverseFault::Lost { found: found + free, total });
        }
        Ok(mappings)
    }

    /// Counts the entries of a list.
    fn length(&self, first: u32, frame: Pfn) -> Result<u64, ReverseFault> {
        let mut length = 0;
        let mut at = first;
        while at != 0 {
            length += 1;
            if at > self.entries || length > u64::from(self.entries) {
                return Err(ReverseFault::Link { frame });
            }
            at = self.next(at);
        }
        Ok(length)
    }

    /// Counts the mappings of an entry in the list of groups of this order.
    fn mapped(&self, at: u32, list: Order, head: usize, frame: Pfn) -> Result<u64, ReverseFault> {
        let word = self.words[self.word_of(at)];
        let (mapped, order) = (word >> MAPPED_AT, self.order(at));
        let flags = self.flag_masks(at);
        let base = order == Order::BASE && list == GROUP && mapped != 0;
        let superpage = order == list && self.sizes.contains(order) && mapped == ALL;
        let known = (flags | flags >> ENTRY_REFERENCED_AT) & ALL & !mapped == 0;
        let first = self.find_in(head, word & !MAPPED, self.space(at), &mut 0);
        if !(base || superpage) || !known || first.is_none_or(|(_, first)| first != at) {
            return Err(ReverseFault::Entry { frame });
        }
        Ok(if base { u64::from(mapped.count_ones()) } else { 1 })
    }
}

/// Words, lists and entries.
impl<W: DerefMut<Target = [u64]>> ReverseMap<W> {
    /// Returns the head of the list that holds mappings of the order at the frame.
    #[inline]
    pub(crate) fn head(&self, order: Order, frame: Pfn) -> Option<usize> {
        if !self.frames.contains(frame) {
            return None;
        }
        let (k, first) = if order <= GROUP {
            (GROUP.k(), 0)
        } else {
            let (order, first) = *self.lists.iter().find(|&&(of_list, _)| of_list == order)?;
            (order.k(), first)
        };
        Some(first + ((frame.raw() >> k) - (self.frames.start.raw() >> k)) as usize)
    }

    #[inline]
    pub(crate) const fn word_of(&self, at: u32) -> usize {
        self.entries_at + self.status.entry_words() * (at as usize - 1)
    }

    #[inline]
    pub(crate) fn next(&self, at: u32) -> u32 {
        (self.words[self.word_of(at) + 1] & NEXT) as u32
    }

    pub(crate) fn set_next(&mut self, at: u32, next: u32) {
        let word = self.word_of(at) + 1;
        self.words[word] = self.words[word] & !NEXT | u64::from(next);
    }

    pub(crate) fn space(&self, at: u32) -> SpaceId {
        SpaceId((self.words[self.word_of(at) + 1] >> 32) as u32)
    }

    pub(crate) fn order(&self, at: u32) -> Order {
        let k = self.words[self.word_of(at)] >> ORDER_AT & 63;
        Order::new(k as u8).unwrap_or(Order::MAX)
    }

    /// Returns the site of the mapping of the entry at the n-th frame of its group.
    pub(crate) fn site(&self, at: u32, n: u64) -> Site {
        let shift = u64::BITS - PAGE_BITS;
        let of_group = ((self.words[self.word_of(at)] << shift) as i64 >> shift) as u64;
        // The numbers that a `Vpn` has.
        let page = of_group.wrapping_add(n) & ((1 << 52) - 1);
        Site { space: self.space(at), page: Vpn::new(page) }
    }

    /// Returns a bit for each frame of its group that an entry maps.
    pub(crate) fn mapped_bits(&self, at: u32) -> u64 {
        self.words[self.word_of(at)] >> MAPPED_AT
    }

    /// Returns the masks of an entry's flags: modified, then referenced.
    pub(crate) fn flag_masks(&self, at: u32) -> u64 {
        match self.status {
            Status::InTable => 0,
            Status::InReverseMap => self.words[self.word_of(at) + 2],
        }
    }

    pub(crate) fn flags_at(&self, at: u32, bits: u64) -> Flags {
        let masks = self.flag_masks(at);
        Flags { modified: masks & bits != 0, referenced: masks >> ENTRY_REFERENCED_AT & bits != 0 }
    }

    pub(crate) fn set_flags_at(&mut self, at: u32, bits: u64, flags: Flags) {
        if self.status == Status::InReverseMap {
            let word = self.word_of(at) + 2;
            let modified = if flags.modified { bits } else { 0 };
            let referenced = if flags.referenced { bits } else { 0 };
            self.words[word] = self.words[word] & !(bits | bits << ENTRY_REFERENCED_AT)
                | modified
                | referenced << ENTRY_REFERENCED_AT;
        }
    }

    pub(crate) fn free_entry(&mut self, at: u32) {
        self.set_next(at, self.free);
        self.free = at;
        self.free_entries += 1;
    }

    /// Takes a free entry, puts it into a list and says in it what is given.
    pub(crate) fn add(
        &mut self,
        head: usize,
        space: SpaceId,
        first: u64,
        flags: u64,
    ) -> Result<(), OutOfEntries> {
        let at = self.free;
        if at == 0 {
            return Err(OutOfEntries);
        }
        self.free = self.next(at);
        self.free_entries -= 1;
        let word = self.word_of(at);
        self.words[word] = first;
        self.words[word + 1] = u64::from(space.0) << 32;
        if self.status == Status::InReverseMap {
            self.words[word + 2] = flags;
        }
        self.link(head, at);
        Ok(())
    }

    pub(crate) fn link(&mut self, head: usize, at: u32) {
        self.set_next(at, (self.words[head] & NEXT) as u32);
        self.words[head] = self.words[head] & !NEXT | u64::from(at);
    }

    /// Takes an entry out of its list; `before` precedes it (0: the head).
    pub(crate) fn unlink(&mut self, head: usize, before: u32, at: u32) {
        let next = self.next(at);
        if before == 0 {
            self.words[head] = self.words[head] & !NEXT | u64::from(next);
        } else {
            self.set_next(before, next);
        }
    }

    /// Returns the entries of a list.
    pub(crate) fn list(&self, head: usize) -> impl Iterator<Item = u32> {
        let some = |at: u32| (at != 0).then_some(at);
        core::iter::successors(some((self.words[head] & NEXT) as u32), move |&at| {
            some(self.next(at))
        })
    }

    /// Returns the entry with this key and the one before it (0 for the head).
    #[inline(always)]
    pub(crate) fn find_in(
        &self,
        head: usize,
        key: u64,
        space: SpaceId,
        read: &mut u64,
    ) -> Option<(u32, u32)> {
        let mut before = 0;
        *read += 1;
        let mut at = (self.words[head] & NEXT) as u32;
        while at != 0 {
            *read += 2;
            let word = self.word_of(at);
            let (first, second) = (self.words[word], self.words[word + 1]);
            if first & !MAPPED == key && second >> 32 == u64::from(space.0) {
                return Some((before, at));
            }
            (before, at) = (at, (second & NEXT) as u32);
        }
        None
    }
}
