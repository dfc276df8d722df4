//! Reverse maps: which pages of which spaces a frame is mapped at.
//!
//! Mappings stand in **PV entries** (physical to virtual). An entry is for one
//! superpage, or for up to 16 base pages: those by which one space maps an
//! aligned group of 16 frames, one page further for each frame further. It says
//! the space, the page of the group's first frame, and in masks of a bit for each
//! frame which of them it maps and, where the flags stand here, which were
//! written and accessed. So pages that follow their frames share an entry,
//! aligned or not, and pages that follow nothing have one each.
//!
//! The entries of a group of 16 frames form a list, those of base pages and
//! those of superpages of 16 pages; so do, for each larger superpage size,
//! those of each aligned group of frames of that size. **Promotion** of 16 base
//! pages turns the kind of their entry where it stands; a larger one turns the
//! first of its parts' entries and frees the others. Demotion is the reverse. An
//! entry does not say its frames, so that groups of frames move by moving their
//! lists' heads.
//!
//! All of it stands in words that the caller gives
//! ([`words_needed`](ReverseMap::words_needed)): one for each group of 16 frames
//! and each aligned group of a larger size as the head of its list, and two or
//! three for each PV entry ([`Status`](crate::pmap::entries::Status)). The head of 16 frames also keeps what is
//! known of frames that no mapping says any more: that they were written, that
//! they were accessed.
//!
//! # What it costs
//! s is the length of a list: the spaces that map a group, times the distances
//! from page to frame that each has there. To add a mapping, to find and to
//! remove it is O(s). n is the number of entries of a superpage's parts, one for
//! each 16 base pages or each larger part: promotion is O(n·s), demotion O(n + s).
//!
//! Memory for each frame that is mapped once, in bytes, of superpage sizes as of
//! 1 MiB in 4 KiB pages: 1.5 where pages follow frames through whole groups, 16.5
//! where none does; 2 and 24.5 with the flags here; and 8 / 2^k for the heads of
//! each size k above 4.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn, Vpn};

use crate::pmap::entries::{
    ALL, ENTRY_REFERENCED_AT, Flags, GROUP, MAPPED, MAPPED_AT, MODIFIED_AT, ORDER_AT, OutOfEntries,
    PAGE, REFERENCED_AT, ReverseMap, Site, list_orders,
};

/// Returns the bits of a mapping's frames in its group.
fn bits(order: Order, frame: Pfn) -> u64 {
    if order == Order::BASE { 1 << frame.offset_in(GROUP.k()) } else { ALL }
}

/// Returns the bits of a block of frames in the group of its first.
fn block_bits(start: Pfn, order: Order) -> u64 {
    if order >= GROUP { ALL } else { ((1 << order.frames()) - 1) << start.offset_in(GROUP.k()) }
}

/// Returns the first word of a mapping's entry without what is mapped.
fn key(order: Order, frame: Pfn, page: Vpn) -> u64 {
    let of_group = page.raw().wrapping_sub(frame.offset_in(GROUP.k())) & PAGE;
    u64::from(order.k()) << ORDER_AT | of_group
}

impl<W: DerefMut<Target = [u64]>> ReverseMap<W> {
    /// Visits the mappings of the frame: base pages, then superpages by size,
    /// with their order.
    pub fn for_each(&self, frame: Pfn, visit: &mut dyn FnMut(Order, Site)) {
        self.mappings(frame).for_each(|(order, site, _)| visit(order, site));
    }

    /// Returns the head of a mapping's list, its entry, and the one before that.
    #[inline]
    fn find(
        &self,
        order: Order,
        frame: Pfn,
        site: Site,
        read: &mut u64,
    ) -> Option<(usize, u32, u32)> {
        let head = self.head(order, frame)?;
        let (before, at) = self.find_in(head, key(order, frame, site.page), site.space, read)?;
        Some((head, before, at))
    }

    /// Returns true if a mapping that is not there yet would find a PV entry.
    pub(crate) fn has_room(&self, order: Order, frame: Pfn, site: Site) -> bool {
        self.free_entries > 0
            || order == Order::BASE && self.find(order, frame, site, &mut 0).is_some()
    }

    /// Adds a mapping that is not there yet, to the frame's entry that fits it or to a new one.
    pub(crate) fn insert(
        &mut self,
        order: Order,
        frame: Pfn,
        site: Site,
        flags: Flags,
    ) -> Result<(), OutOfEntries> {
        let (head, key) =
            (self.head(order, frame).ok_or(OutOfEntries)?, key(order, frame, site.page));
        let bits = bits(order, frame);
        if order == Order::BASE
            && let Some((_, at)) = self.find_in(head, key, site.space, &mut 0)
        {
            let word = self.word_of(at);
            self.words[word] |= bits << MAPPED_AT;
            self.set_flags_at(at, bits, flags);
            return Ok(());
        }
        let modified = if flags.modified { bits } else { 0 };
        let referenced = if flags.referenced { bits } else { 0 };
        let masks = modified | referenced << ENTRY_REFERENCED_AT;
        self.add(head, site.space, key | bits << MAPPED_AT, masks)
    }

    /// Returns the flags of a mapping, if it is there.
    pub(crate) fn flags(&self, order: Order, frame: Pfn, site: Site) -> Option<Flags> {
        let (_, _, at) = self.find(order, frame, site, &mut 0)?;
        let bits = bits(order, frame);
        let mapped = self.mapped_bits(at) & bits == bits;
        mapped.then(|| self.flags_at(at, bits))
    }

    /// Returns true if the parts, of order `from`, of what may become a superpage of order
    /// `to` are all there and their flags, which stand here, alike; counts the words read.
    pub(crate) fn alike(
        &self,
        from: Order,
        to: Order,
        frame: Pfn,
        site: Site,
        read: &mut u64,
    ) -> bool {
        let Some(head) = self.head(from, frame) else { return false };
        let (first, k) = (key(from, frame, site.page), from.max(GROUP).k());
        let mut flags = None;
        for i in (0..1 << (to.k() - k)).rev() {
            let part = first + (i << k);
            let Some((_, at)) = self.find_in(head + i as usize, part, site.space, read) else {
                return false;
            };
            *read += 1;
            let masks = self.flag_masks(at);
            if self.mapped_bits(at) != ALL || *flags.get_or_insert(masks) != masks {
                return false;
            }
        }
        let is_one = |mask: u64| matches!(mask & ALL, 0 | ALL);
        flags.is_some_and(|masks| is_one(masks) && is_one(masks >> ENTRY_REFERENCED_AT))
    }

    pub(crate) fn set_flags(&mut self, order: Order, frame: Pfn, site: Site, flags: Flags) {
        if let Some((_, _, at)) = self.find(order, frame, site, &mut 0) {
            self.set_flags_at(at, bits(order, frame), flags);
        }
    }

    /// Takes a mapping away, and its entry if it has no other.
    pub(crate) fn remove(&mut self, order: Order, frame: Pfn, site: Site) {
        let Some((head, before, at)) = self.find(order, frame, site, &mut 0) else { return };
        self.clear(head, before, at, bits(order, frame));
    }

    /// Takes the mappings of these frames of a group out of an entry, and it out of its list if
    /// none is left.
    fn clear(&mut self, head: usize, before: u32, at: u32, bits: u64) {
        let word = self.word_of(at);
        let first = self.words[word] & !(bits << MAPPED_AT);
        if first & MAPPED == 0 {
            self.unlink(head, before, at);
            self.free_entry(at);
            return;
        }
        self.words[word] = first;
        self.set_flags_at(at, bits, Flags::default());
    }

    /// Makes the entries of the parts, of order `from`, the one of a superpage
    /// of order `to`, with the flags of the first: the parts are all there.
    pub(crate) fn promote(&mut self, from: Order, to: Order, frame: Pfn, site: Site) {
        let Some(found) = self.find(from, frame, site, &mut 0) else { return };
        // The groups of the parts follow one another, and so do their lists' heads.
        let (head, first, k) = (found.0, key(from, frame, site.page), from.max(GROUP).k());
        for i in 1..1 << (to.k() - k) {
            let part = first + (i << k);
            let other = head + i as usize;
            if let Some((before, at)) = self.find_in(other, part, site.space, &mut 0) {
                self.unlink(other, before, at);
                self.free_entry(at);
            }
        }
        self.turn(to, frame, site, found);
    }

    /// Makes an entry, found so, that of a mapping of another order, or of 16 base pages, at the
    /// same frame and page.
    fn turn(&mut self, to: Order, frame: Pfn, site: Site, found: (usize, u32, u32)) {
        let (head, before, at) = found;
        let word = self.word_of(at);
        self.words[word] = key(to, frame, site.page) | MAPPED;
        if let Some(other) = self.head(to, frame).filter(|&other| other != head) {
            self.unlink(head, before, at);
            self.link(other, at);
        }
    }

    /// Counts the PV entries that the demotion of a superpage takes.
    pub(crate) fn entries_to_demote(from: Order, to: Order) -> u64 {
        (1 << (from.k() - to.max(GROUP).k())) - 1
    }

    /// Makes the entry of a superpage of order `from` those of its parts, of
    /// order `to`, for which [`entries_to_demote`](Self::entries_to_demote)
    /// entries are free.
    pub(crate) fn demote(&mut self, from: Order, to: Order, frame: Pfn, site: Site) {
        let Some(found) = self.find(from, frame, site, &mut 0) else { return };
        let Some(head) = self.head(to, frame) else { return };
        let flags = self.flag_masks(found.2);
        self.turn(to, frame, site, found);
        let (first, k) = (key(to, frame, site.page) | MAPPED, to.max(GROUP).k());
        for i in 1..1 << (from.k() - k) {
            let _ = self.add(head + i as usize, site.space, first + (i << k), flags);
        }
    }

    /// Returns the mappings of the frame, base pages first, with their orders, first pages and
    /// flags.
    pub(crate) fn mappings(&self, frame: Pfn) -> impl Iterator<Item = (Order, Site, Flags)> {
        let sizes = self.sizes.iter().filter(|&order| order != Order::BASE);
        core::iter::once(Order::BASE)
            .chain(sizes)
            .flat_map(move |order| self.mappings_of(order, frame))
    }

    /// Returns the mappings of one order of the frame.
    pub(crate) fn mappings_of(
        &self,
        order: Order,
        frame: Pfn,
    ) -> impl Iterator<Item = (Order, Site, Flags)> {
        let within = if order == Order::BASE { frame.offset_in(GROUP.k()) } else { 0 };
        let bits = bits(order, frame);
        let list = self.head(order, frame).into_iter().flat_map(|head| self.list(head));
        list.filter(move |&at| self.order(at) == order && self.mapped_bits(at) & bits != 0)
            .map(move |at| (order, self.site(at, within), self.flags_at(at, bits)))
    }

    /// Returns the first of the mappings of the frame, or of those of one order.
    pub(crate) fn first(&self, order: Option<Order>, frame: Pfn) -> Option<(Order, Site)> {
        let found = match order {
            None => self.mappings(frame).next(),
            Some(order) => self.mappings_of(order, frame).next(),
        };
        found.map(|(order, site, _)| (order, site))
    }

    /// Returns the order of the largest page that maps the frame.
    pub(crate) fn largest(&self, frame: Pfn) -> Option<Order> {
        self.mappings(frame).map(|(order, ..)| order).last()
    }

    /// Returns the groups of an aligned block that have a list: the head, and the first frame.
    fn groups(&self, start: Pfn, order: Order) -> impl Iterator<Item = (usize, Pfn)> {
        let orders = list_orders(self.sizes).filter(move |&of| of <= order.max(GROUP));
        orders.flat_map(move |of| {
            let offsets = (0..order.frames()).step_by(of.frames() as usize);
            offsets.filter_map(move |offset| {
                self.head(of, start + offset).map(|head| (head, start + offset))
            })
        })
    }

    /// Returns the mappings of the frames of an aligned block, none of which maps a frame
    /// beside it: order, first frame and first page.
    pub(crate) fn mappings_within(
        &self,
        start: Pfn,
        order: Order,
    ) -> impl Iterator<Item = (Order, Pfn, Site)> {
        let bits = block_bits(start, order);
        self.groups(start, order).flat_map(move |(head, frame)| {
            let group = frame.align_down(GROUP.k());
            self.list(head).flat_map(move |at| {
                let order = self.order(at);
                let mapped = self.mapped_bits(at) & bits;
                let one = if order == Order::BASE { mapped } else { mapped & 1 };
                (0..GROUP.frames())
                    .filter(move |n| one >> n & 1 != 0)
                    .map(move |n| (order, group + n, self.site(at, n)))
            })
        })
    }

    /// Counts the PV entries that [`move_block`](Self::move_block) takes: none for a block of
    /// whole groups.
    pub(crate) fn entries_to_move(&self, from: Pfn, to: Pfn, order: Order) -> u64 {
        let Some(head) = self.head(GROUP, from).filter(|_| order < GROUP) else { return 0 };
        let bits = block_bits(from, order);
        let needed = |&at: &u32| {
            let mapped = self.mapped_bits(at);
            let site = self.site(at, from.offset_in(GROUP.k()));
            mapped & bits != 0
                && mapped & !bits != 0
                && self.find(Order::BASE, to, site, &mut 0).is_none()
        };
        self.list(head).filter(needed).count() as u64
    }

    /// Gives the mappings of an aligned block, and what is remembered of its
    /// frames, to another block of frames that are not mapped: a word for each
    /// group, however many mappings there are. Less than a group's frames go
    /// entry by entry, for which [`entries_to_move`](Self::entries_to_move)
    /// entries are free.
    pub(crate) fn move_block(&mut self, from: Pfn, to: Pfn, order: Order) {
        if order < GROUP {
            return self.move_part(from, to, order);
        }
        for of in list_orders(self.sizes).filter(|&of| of <= order) {
            for offset in (0..order.frames()).step_by(of.frames() as usize) {
                let heads = (self.head(of, from + offset), self.head(of, to + offset));
                if let (Some(old), Some(new)) = heads {
                    self.words[new] = core::mem::take(&mut self.words[old]);
                }
            }
        }
    }

    /// Moves a block of less than a group's frames.
    fn move_part(&mut self, from: Pfn, to: Pfn, order: Order) {
        let (Some(old), Some(new)) = (self.head(GROUP, from), self.head(GROUP, to)) else { return };
        let (n, bits) = (from.offset_in(GROUP.k()), block_bits(from, order));
        while let Some((before, at)) = self.first_in(old, bits) {
            let (mapped, flags) = (self.mapped_bits(at), self.flag_masks(at));
            let (space, page) = (self.space(at), self.site(at, n).page);
            // An entry that is left with nothing is the one that is taken below.
            self.clear(old, before, at, bits);
            for i in (0..order.frames()).filter(|i| mapped >> (n + i) & 1 != 0) {
                let flags = Flags {
                    modified: flags >> (n + i) & 1 != 0,
                    referenced: flags >> ENTRY_REFERENCED_AT >> (n + i) & 1 != 0,
                };
                let _ = self.insert(Order::BASE, to + i, Site { space, page: page + i }, flags);
            }
        }
        let marks = |bits: u64| bits << MODIFIED_AT | bits << REFERENCED_AT;
        let taken = self.words[old] & marks(bits);
        self.words[old] &= !marks(bits);
        self.words[new] &= !marks(block_bits(to, order));
        self.words[new] |= taken >> n << to.offset_in(GROUP.k());
    }

    /// Returns the first entry of a list that maps any of these frames as base pages, and the one
    /// before it.
    fn first_in(&self, head: usize, bits: u64) -> Option<(u32, u32)> {
        let mut before = 0;
        for at in self.list(head) {
            if self.order(at) == Order::BASE && self.mapped_bits(at) & bits != 0 {
                return Some((before, at));
            }
            before = at;
        }
        None
    }

    /// Remembers of each frame of a mapping that was removed what its mapping
    /// said.
    pub(crate) fn mark(&mut self, frames: Extent, modified: bool, referenced: bool) {
        let marks = u64::from(modified) << MODIFIED_AT | u64::from(referenced) << REFERENCED_AT;
        let mut rest = frames;
        while marks != 0 && !rest.is_empty() {
            let first = rest.start.offset_in(GROUP.k());
            let count = rest.count.min(GROUP.frames() - first);
            if let Some(head) = self.head(GROUP, rest.start) {
                self.words[head] |= marks * (((1 << count) - 1) << first);
            }
            rest = rest.split_at(count).1;
        }
    }

    /// Forgets that a frame was written.
    pub(crate) fn clear_modified(&mut self, frame: Pfn) {
        if let Some(head) = self.head(GROUP, frame) {
            self.words[head] &= !(bits(Order::BASE, frame) << MODIFIED_AT);
        }
    }

    /// Returns what is remembered of a frame: written, accessed.
    pub(crate) fn marks(&self, frame: Pfn) -> (bool, bool) {
        let head = self.head(GROUP, frame).map_or(0, |head| self.words[head]);
        let head = head >> frame.offset_in(GROUP.k());
        (head >> MODIFIED_AT & 1 != 0, head >> REFERENCED_AT & 1 != 0)
    }
}
