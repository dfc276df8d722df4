//! Reverse maps: which pages of which spaces a frame is mapped at.
//!
//! A mapping has one **PV entry** (physical to virtual): a space and a page. The
//! entries of a frame's base-page mappings form a list; so do, for each
//! superpage size, those of each aligned group of frames of that size, so that a
//! superpage has one PV entry, however many frames it maps. Promotion makes 2^k
//! entries one, demotion the reverse. An entry does not say its frame, so that
//! frames move by moving their lists' heads.
//!
//! All of it stands in words that the caller gives
//! ([`words_needed`](ReverseMap::words_needed)): one per frame and per aligned
//! group as the head of its list, two per PV entry. A head also keeps what is
//! known of a frame that no mapping says any more: that it was written, that it
//! was accessed.
//!
//! # What it costs
//! s is the length of a list: how many mappings share the frame. To insert is
//! O(1); to find and to remove O(s). With p parts, promotion is O(p·s) and
//! demotion O(p + s).

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

/// The status flags of a PV entry, where they stand there
/// ([`Status::InReverseMap`](crate::Status::InReverseMap)).
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
}

/// No PV entry is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfEntries;

/// The number of an entry plus one, in the low half of a head or of an entry's
/// second word; 0 ends a list.
const NEXT: u64 = 0xffff_ffff;
/// In the head of a frame: it was written, or accessed, through a mapping that
/// is no more or says so no more.
const MODIFIED: u64 = 1 << 32;
const REFERENCED: u64 = 1 << 33;
/// In an entry's first word, over the 52 bits of the page.
const ENTRY_PAGE: u64 = (1 << 52) - 1;
const ENTRY_MODIFIED: u64 = 1 << 52;
const ENTRY_REFERENCED: u64 = 1 << 53;

/// The most classes: base pages and four sizes of superpages.
const CLASSES_MAX: usize = 5;

/// The reverse maps of the frames of an extent, in words that the caller gives.
///
/// Invariants, walked by [`check`](Self::check): every PV entry is in exactly
/// one list, of a frame, of a group of frames, or of the free ones.
#[derive(Debug)]
pub struct ReverseMap<W> {
    words: W,
    frames: Extent,
    sizes: Sizes,
    /// For each class its order, and its first head among the words.
    classes: [(Order, usize); CLASSES_MAX],
    /// Index of the first entry's first word.
    entries_at: usize,
    entries: u32,
    /// The first free entry plus one.
    free: u32,
    free_entries: u32,
}

/// Returns the heads of one class: a head per aligned group.
fn heads(frames: Extent, order: Order) -> u64 {
    if frames.is_empty() {
        return 0;
    }
    ((frames.end().raw() - 1) >> order.k()) - (frames.start.raw() >> order.k()) + 1
}

/// Returns the orders of the classes, base pages first.
fn orders(sizes: Sizes) -> impl Iterator<Item = Order> {
    core::iter::once(Order::BASE)
        .chain(sizes.iter().filter(|&order| order != Order::BASE))
        .take(CLASSES_MAX)
}

impl ReverseMap<&mut [u64]> {
    /// Counts the words for the frames of the extent, superpages of `sizes`, and `entries`
    /// mappings at a time; `None` if there cannot be so many.
    pub fn words_needed(frames: Extent, sizes: Sizes, entries: u32) -> Option<usize> {
        frames.checked_end()?;
        let mut words = u64::from(entries).checked_mul(2)?;
        for order in orders(sizes) {
            words = words.checked_add(heads(frames, order))?;
        }
        usize::try_from(words).ok()
    }
}

impl<W: DerefMut<Target = [u64]>> ReverseMap<W> {
    /// Makes reverse maps without a mapping, with as many PV entries as the words hold.
    /// One write per word.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub fn new(frames: Extent, sizes: Sizes, mut words: W) -> Result<Self, ReverseError> {
        let needed =
            ReverseMap::words_needed(frames, sizes, 0).ok_or(ReverseError::TooMany { frames })?;
        let given = words.len();
        let rest = given.checked_sub(needed).ok_or(ReverseError::Short { needed, given })?;
        let entries = u32::try_from(rest / 2).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let mut classes = [(Order::BASE, 0); CLASSES_MAX];
        let mut at = 0;
        for (class, order) in classes.iter_mut().zip(orders(sizes)) {
            *class = (order, at);
            at += heads(frames, order) as usize;
        }
        words[..needed].fill(0);
        let mut map = Self {
            words,
            frames,
            sizes,
            classes,
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

    /// Counts the PV entries that are free.
    pub const fn free_entries(&self) -> u32 {
        self.free_entries
    }

    /// Counts the PV entries in use: one per mapping, whatever its size.
    pub const fn used_entries(&self) -> u32 {
        self.entries - self.free_entries
    }

    /// Visits the mappings of the frame: base pages, then superpages by size,
    /// with their order.
    pub fn for_each(&self, frame: Pfn, visit: &mut dyn FnMut(Order, Site)) {
        for order in orders(self.sizes) {
            let Some(head) = self.head(order, frame) else { return };
            let mut at = (self.words[head] & NEXT) as u32;
            while at != 0 {
                let (entry, _) = self.entry(at);
                visit(order, entry);
                at = self.next(at);
            }
        }
    }

    /// Walks every list, in one reading of all the words.
    ///
    /// # Errors
    /// [`ReverseFault`]: the first thing wrong.
    pub fn check(&self) -> Result<(), ReverseFault> {
        let mut found = u64::from(self.free_entries);
        let total = u64::from(self.entries);
        for order in orders(self.sizes) {
            for group in 0..heads(self.frames, order) {
                let first = (self.frames.start.raw() >> order.k()) + group;
                let frame = Pfn::new(first << order.k()).max(self.frames.start);
                let Some(head) = self.head(order, frame) else { continue };
                found = self.count(self.words[head], found, frame)?;
            }
        }
        let mut free = 0;
        free = self.count(u64::from(self.free), free, self.frames.start)?;
        if found != total || free != u64::from(self.free_entries) {
            return Err(ReverseFault::Lost { found, total });
        }
        Ok(())
    }

    /// Returns `found` and the entries of a list.
    fn count(&self, head: u64, found: u64, frame: Pfn) -> Result<u64, ReverseFault> {
        let mut found = found;
        let mut at = (head & NEXT) as u32;
        while at != 0 {
            found += 1;
            if at > self.entries || found > u64::from(self.entries) {
                return Err(ReverseFault::Link { frame });
            }
            at = self.next(at);
        }
        Ok(found)
    }
}

impl<W: DerefMut<Target = [u64]>> ReverseMap<W> {
    /// Returns the head of the list of the group of 2^order frames around the frame.
    fn head(&self, order: Order, frame: Pfn) -> Option<usize> {
        if !self.frames.contains(frame) {
            return None;
        }
        let (_, first) = *self.classes.iter().find(|&&(of_class, _)| of_class == order)?;
        let group = (frame.raw() >> order.k()) - (self.frames.start.raw() >> order.k());
        Some(first + group as usize)
    }

    const fn word_of(&self, at: u32) -> usize {
        self.entries_at + 2 * (at as usize - 1)
    }

    fn next(&self, at: u32) -> u32 {
        (self.words[self.word_of(at) + 1] & NEXT) as u32
    }

    fn set_next(&mut self, at: u32, next: u32) {
        let word = self.word_of(at) + 1;
        self.words[word] = self.words[word] & !NEXT | u64::from(next);
    }

    fn entry(&self, at: u32) -> (Site, Flags) {
        let word = self.word_of(at);
        let (first, second) = (self.words[word], self.words[word + 1]);
        let flags = Flags {
            modified: first & ENTRY_MODIFIED != 0,
            referenced: first & ENTRY_REFERENCED != 0,
        };
        let space = SpaceId((second >> 32) as u32);
        (Site { space, page: Vpn::new(first & ENTRY_PAGE) }, flags)
    }

    fn free_entry(&mut self, at: u32) {
        self.set_next(at, self.free);
        self.free = at;
        self.free_entries += 1;
    }

    /// Puts a mapping into the list of the frame's group.
    pub(crate) fn insert(
        &mut self,
        order: Order,
        frame: Pfn,
        entry: Site,
        flags: Flags,
    ) -> Result<(), OutOfEntries> {
        let head = self.head(order, frame).ok_or(OutOfEntries)?;
        let at = self.free;
        if at == 0 {
            return Err(OutOfEntries);
        }
        self.free = self.next(at);
        self.free_entries -= 1;
        let word = self.word_of(at);
        self.words[word] = entry.page.raw() & ENTRY_PAGE | flags_word(flags);
        self.words[word + 1] = u64::from(entry.space.0) << 32 | self.words[head] & NEXT;
        self.words[head] = self.words[head] & !NEXT | u64::from(at);
        Ok(())
    }

    /// Returns the entry of a mapping and the one before it (0 for the head).
    fn find(&self, order: Order, frame: Pfn, entry: Site, read: &mut u64) -> Option<(u32, u32)> {
        let mut before = 0;
        *read += 1;
        let mut at = (self.words[self.head(order, frame)?] & NEXT) as u32;
        while at != 0 {
            *read += 2;
            if self.entry(at).0 == entry {
                return Some((before, at));
            }
            (before, at) = (at, self.next(at));
        }
        None
    }

    /// Returns the flags of a mapping; counts the words read.
    pub(crate) fn flags(
        &self,
        order: Order,
        frame: Pfn,
        entry: Site,
        read: &mut u64,
    ) -> Option<Flags> {
        self.find(order, frame, entry, read).map(|(_, at)| self.entry(at).1)
    }

    pub(crate) fn set_flags(&mut self, order: Order, frame: Pfn, entry: Site, flags: Flags) {
        if let Some((_, at)) = self.find(order, frame, entry, &mut 0) {
            let word = self.word_of(at);
            self.words[word] = self.words[word] & ENTRY_PAGE | flags_word(flags);
        }
    }

    /// Takes a mapping out of its list; what its flags were.
    pub(crate) fn remove(&mut self, order: Order, frame: Pfn, entry: Site) -> Option<Flags> {
        let head = self.head(order, frame)?;
        let (before, at) = self.find(order, frame, entry, &mut 0)?;
        let (_, flags) = self.entry(at);
        let next = self.next(at);
        if before == 0 {
            self.words[head] = self.words[head] & !NEXT | u64::from(next);
        } else {
            self.set_next(before, next);
        }
        self.free_entry(at);
        Some(flags)
    }

    /// Makes the entries of the parts, of order `from`, the one of a superpage
    /// of order `to`. The first part's flags become the superpage's.
    pub(crate) fn promote(&mut self, from: Order, to: Order, frame: Pfn, entry: Site) {
        let mut flags = Flags::default();
        for i in (0..1 << (to.k() - from.k())).rev() {
            let offset = i << from.k();
            let part = Site { page: entry.page + offset, ..entry };
            let removed = self.remove(from, frame + offset, part);
            flags = removed.unwrap_or_default();
        }
        // Entries were given back a moment ago.
        let _ = self.insert(to, frame, entry, flags);
    }

    /// Counts the PV entries that the demotion of a superpage takes.
    pub(crate) const fn entries_to_demote(from: Order, to: Order) -> u64 {
        (1 << (from.k() - to.k())) - 1
    }

    /// Makes the entry of a superpage of order `from` those of its parts, of
    /// order `to`, for which [`entries_to_demote`](Self::entries_to_demote)
    /// entries are free.
    pub(crate) fn demote(&mut self, from: Order, to: Order, frame: Pfn, entry: Site) {
        let Some(flags) = self.remove(from, frame, entry) else { return };
        for offset in (0..from.frames()).step_by(to.frames() as usize) {
            let part = Site { page: entry.page + offset, ..entry };
            let _ = self.insert(to, frame + offset, part, flags);
        }
    }

    /// Returns the first mapping of the frame, base pages first.
    pub(crate) fn first(&self, frame: Pfn) -> Option<(Order, Site)> {
        orders(self.sizes).find_map(|order| {
            let at = (self.words[self.head(order, frame)?] & NEXT) as u32;
            (at != 0).then(|| (order, self.entry(at).0))
        })
    }

    /// Returns the mapping that follows the entry `at` (0: the first) in the list of the
    /// group of 2^order frames around the frame, with its entry.
    pub(crate) fn following(&self, order: Order, frame: Pfn, at: u32) -> Option<(u32, Site)> {
        let at = match at {
            0 => (self.words[self.head(order, frame)?] & NEXT) as u32,
            at => self.next(at),
        };
        (at != 0).then(|| (at, self.entry(at).0))
    }

    /// Returns the order of the largest page that maps the frame.
    pub(crate) fn largest(&self, frame: Pfn) -> Option<Order> {
        let is_mapped = |&order: &Order| self.following(order, frame, 0).is_some();
        orders(self.sizes).filter(is_mapped).last()
    }

    /// Returns the lists' heads of an aligned block: for each class up to its order, the
    /// class and the first frame of each group.
    pub(crate) fn groups(
        &self,
        start: Pfn,
        order: Order,
    ) -> impl Iterator<Item = (Order, Pfn)> + use<W> {
        orders(self.sizes).filter(move |&class| class <= order).flat_map(move |class| {
            let offsets = (0..order.frames()).step_by(class.frames() as usize);
            offsets.map(move |offset| (class, start + offset))
        })
    }

    /// Gives the lists of an aligned block, and what is remembered of its
    /// frames, to another block of frames that are not mapped: a word for each
    /// frame and each group, however many mappings there are.
    pub(crate) fn move_block(&mut self, from: Pfn, to: Pfn, order: Order) {
        for (class, group) in self.groups(from, order) {
            let other = to + (group - from);
            if let (Some(old), Some(new)) = (self.head(class, group), self.head(class, other)) {
                self.words[new] = core::mem::take(&mut self.words[old]);
            }
        }
    }

    /// Returns the n-th mapping of the frame among those of one size, with its flags.
    pub(crate) fn nth(&self, order: Order, frame: Pfn, n: u64) -> Option<(Site, Flags)> {
        let mut at = (self.words[self.head(order, frame)?] & NEXT) as u32;
        for _ in 0..n {
            if at == 0 {
                break;
            }
            at = self.next(at);
        }
        (at != 0).then(|| self.entry(at))
    }

    /// Remembers of each frame of a mapping that was removed what its mapping
    /// said.
    pub(crate) fn mark(&mut self, frames: Extent, modified: bool, referenced: bool) {
        let word = if modified { MODIFIED } else { 0 } | if referenced { REFERENCED } else { 0 };
        if word == 0 {
            return;
        }
        for frame in frames.iter() {
            if let Some(head) = self.head(Order::BASE, frame) {
                self.words[head] |= word;
            }
        }
    }

    /// Forgets that a frame was written.
    pub(crate) fn clear_modified(&mut self, frame: Pfn) {
        if let Some(head) = self.head(Order::BASE, frame) {
            self.words[head] &= !MODIFIED;
        }
    }

    /// Returns what is remembered of a frame: written, accessed.
    pub(crate) fn marks(&self, frame: Pfn) -> (bool, bool) {
        let head = self.head(Order::BASE, frame).map_or(0, |head| self.words[head]);
        (head & MODIFIED != 0, head & REFERENCED != 0)
    }
}

const fn flags_word(flags: Flags) -> u64 {
    let mut word = 0;
    if flags.modified {
        word |= ENTRY_MODIFIED;
    }
    if flags.referenced {
        word |= ENTRY_REFERENCED;
    }
    word
}
