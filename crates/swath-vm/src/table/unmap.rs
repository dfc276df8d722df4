//! Unmapping: the way back of everything that `space` maps.
//!
//! It takes four steps, so that it can be taken back until nothing can fail
//! any more: see that every page is mapped; correct the contiguity of what
//! remains on both sides; make the descriptors invalid, keeping what they said;
//! and only then give back frames, and tables that have become empty.

use swath_arch::formats::line;
use swath_arch::{
    BusError, Coalescing, ContiguityField, Extent, Format, Order, PageRange, PhysAddr, PhysMemory,
    Vpn,
};
use swath_frame::{FrameAllocator, FrameFreeError};

use crate::table::contiguity::NumberPlace;
use crate::table::encode::{self, Kind, LEVELS_MAX};
use crate::table::error::UnmapError;
use crate::table::flush::Flush;
use crate::table::space::{AddressSpace, append, first_not_canonical};

/// Contiguity that was corrected on one side of a range, so that it can be
/// put back.
#[derive(Clone, Copy, Debug)]
struct Trimmed {
    side: Side,
    /// Number of descriptors that were changed, counted away from the range.
    count: u64,
    /// Pages by which the claim of the nearest of them went into the range.
    extra: u64,
}

/// On which side of the range the remaining pages stand, and the range's edge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Before(Vpn),
    After(Vpn),
}

/// Entries of one table that follow one another.
#[derive(Clone, Copy, Debug)]
struct Span {
    level: usize,
    at: PhysAddr,
    entries: u64,
    pages: u64,
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Unmaps the range, every page of which must be mapped, larger pages as a
    /// whole. Frames that the space took go back to the allocator they came
    /// from, adjacent ones together; frames that were mapped for somebody else
    /// are left alone. Tables that become empty are given back.
    ///
    /// Three reads and one write per page; per leaf table four walks of l - 1
    /// reads, and reads outward from the hole to the nearest entry in use (one
    /// or two where a neighbour is mapped, e at most). Pages of the blocks that
    /// remain in part cost two reads and a write each where what they claim
    /// changes: as many as their field can count (anchors: divided by the
    /// distance), at most what is left of the block. With a field of lines it is two reads of
    /// each descriptor of each line beyond the hole, and at most two writes.
    ///
    /// # Errors
    /// [`UnmapError`]; nothing has changed, except after
    /// [`UnmapError::Refused`]. This, and the rollback of all operations,
    /// relies on memory that answered an access to answer it again.
    pub fn unmap(&mut self, range: PageRange) -> Result<Flush, UnmapError> {
        self.check_mapped(range)?;
        let before = self.trim(Side::Before(range.start))?;
        let after = match self.trim(Side::After(range.end())) {
            Ok(after) => after,
            Err(bus) => {
                self.restore(before);
                return Err(bus.into());
            }
        };
        if let Err((bus, done)) = self.suspend(range) {
            self.resume(PageRange::new(range.start, done));
            self.restore(after);
            self.restore(before);
            return Err(bus.into());
        }
        let (links_changed, refused) = self.free_suspended(range);
        let flush = Flush { range, links_changed };
        match refused {
            None => Ok(flush),
            Some((extent, error)) => Err(UnmapError::Refused { extent, error, flush }),
        }
    }

    /// Takes back a mapping made by the operation that is failing. Contiguity
    /// beside the range says nothing of it.
    pub(crate) fn undo(&mut self, range: PageRange) {
        // What cannot be made invalid stays mapped, with its frames.
        let done = match self.suspend(range) {
            Ok(()) => range.count,
            Err((_, done)) => done,
        };
        self.free_suspended(PageRange::new(range.start, done));
    }

    /// Returns the entries from the page's on, up to `pages` pages: those of its leaf
    /// table, or those of its larger page.
    fn span(&self, page: Vpn, pages: u64) -> Result<Span, BusError> {
        let view = self.view();
        let found = view.find(page)?;
        let entry_order = view.entry_order(found.level);
        if found.level == view.leaf_level() {
            let entries = pages.min(view.entries(found.level) - view.index(found.level, page));
            return Ok(Span { level: found.level, at: found.at, entries, pages: entries });
        }
        // A suspended entry says its size when it is resumed.
        let word = if encode::in_use(view.format(), found.word) {
            found.word
        } else {
            encode::resume(view.format(), found.level, found.word)
        };
        let entries = match encode::kind(view.format(), found.level, word) {
            Kind::Leaf(order) => 1 << (order.k() - entry_order.k()),
            _ => 1,
        };
        Ok(Span { level: found.level, at: found.at, entries, pages: entries << entry_order.k() })
    }

    fn check_mapped(&self, range: PageRange) -> Result<(), UnmapError> {
        let view = self.view();
        if range.is_empty() {
            return Err(UnmapError::Empty);
        }
        if let Some(page) = first_not_canonical(view.format(), range) {
            return Err(UnmapError::NotCanonical { page });
        }
        let mut done = 0;
        while done < range.count {
            let page = range.start + done;
            let found = view.find(page)?;
            let entry_order = view.entry_order(found.level);
            let index = view.index(found.level, page);
            let mut i = 0;
            while found.level == view.leaf_level() || i == 0 {
                if done == range.count || index + i >= view.entries(found.level) {
                    break;
                }
                let word = if i == 0 { found.word } else { view.read(view.entry(found.at, i))? };
                let page = range.start + done;
                let Kind::Leaf(order) = encode::kind(view.format(), found.level, word) else {
                    return Err(UnmapError::NotMapped { page });
                };
                if order != Order::BASE {
                    let head = page.align_down(order.k());
                    if head < range.start || order.frames() > range.end() - head {
                        return Err(UnmapError::Partial { page: head, order });
                    }
                }
                i += 1 << (order.k() - entry_order.k());
                done += order.frames();
            }
        }
        Ok(())
    }

    /// Makes the descriptors of the range invalid, all of which are in use.
    ///
    /// # Errors
    /// The bus error, and how many pages were done before it.
    fn suspend(&mut self, range: PageRange) -> Result<(), (BusError, u64)> {
        self.rewrite(range, true, encode::suspend)
    }

    /// Makes them valid again. What cannot be stays unmapped.
    fn resume(&mut self, range: PageRange) {
        let _ = self.rewrite(range, false, encode::resume);
    }

    /// Changes the descriptors of the range that are `in_use` or not, and what
    /// is written of their number.
    fn rewrite(
        &mut self,
        range: PageRange,
        in_use: bool,
        change: impl Fn(Format, usize, u64) -> u64,
    ) -> Result<(), (BusError, u64)> {
        let (mut writes, mut done) = (0, 0);
        let mut result = Ok(());
        while done < range.count && result.is_ok() {
            let page = range.start + done;
            let span = match self.span(page, range.count - done) {
                Ok(span) => span,
                Err(bus) => {
                    result = Err((bus, done));
                    break;
                }
            };
            let counted = match self.counted(page, span) {
                Ok(None) => None,
                Ok(Some(link)) if in_use => {
                    match self.occupy(span.level, link, -(span.entries as i64)) {
                        Ok(()) => Some(link),
                        Err(bus) => {
                            result = Err((bus, done));
                            break;
                        }
                    }
                }
                Ok(link) => link,
                Err(bus) => {
                    result = Err((bus, done));
                    break;
                }
            };
            let view = self.view();
            for i in 0..span.entries {
                let at = view.entry(span.at, i);
                let changed = view.read(at).and_then(|word| {
                    if encode::in_use(view.format(), word) == in_use {
                        view.write(at, change(view.format(), span.level, word))?;
                        writes += 1;
                    }
                    Ok(())
                });
                if let Err(bus) = changed {
                    result = Err((bus, done + (i << view.entry_order(span.level).k())));
                    break;
                }
            }
            if let Some(link) = counted
                && (result.is_err() || !in_use)
            {
                let offset = view.index(span.level, page) * view.format().entry_bytes();
                self.recount(span.level, link, PhysAddr::new(span.at.raw() - offset));
            }
            done += span.pages;
        }
        self.statistics.descriptor_writes += writes;
        result
    }

    /// Returns the link of the span's table, if the entries in use are written there.
    fn counted(&self, page: Vpn, span: Span) -> Result<Option<PhysAddr>, BusError> {
        if span.level == 0 || !self.view().has_half(span.level - 1) {
            return Ok(None);
        }
        self.view().link(page, span.level)
    }

    /// Gives back what the suspended entries of the range held, and the tables
    /// that have become empty. Returns whether there were such tables, and the
    /// first extent that the allocator refused.
    fn free_suspended(&mut self, range: PageRange) -> (bool, Option<(Extent, FrameFreeError)>) {
        let format = self.regime.format;
        let mut pending = Extent::default();
        let mut refused = None;
        let (mut done, mut entries, mut spans) = (0, 0, 0);
        while done < range.count {
            let page = range.start + done;
            // It was read a moment ago; without an answer there is nothing to
            // give back.
            let Ok(span) = self.span(page, range.count - done) else { break };
            let entry_order = self.view().entry_order(span.level);
            let mut i = 0;
            while i < span.entries {
                let Ok(word) = self.view().read(self.view().entry(span.at, i)) else { break };
                let word = encode::resume(format, span.level, word);
                let Kind::Leaf(order) = encode::kind(format, span.level, word) else { break };
                if encode::owned(format, span.level, word) {
                    let frame = encode::frame(format, order, word);
                    let more = Extent::new(frame, order.frames());
                    if let Some(block) = append(&mut pending, more) {
                        self.free_frames(block, &mut refused);
                    }
                }
                i += 1 << (order.k() - entry_order.k());
            }
            for i in 0..span.entries {
                self.drop_kept(span.level, self.view().entry(span.at, i));
            }
            done += span.pages;
            entries = span.entries;
            spans += 1;
        }
        if !pending.is_empty() {
            self.free_frames(pending, &mut refused);
        }
        let links_changed = match spans {
            0 => false,
            // Most often: without another walk.
            1 => self.prune_from(range.start, entries),
            _ => self.prune_range(PageRange::new(range.start, done)),
        };
        (links_changed, refused)
    }

    /// Gives back the tables that nothing in the suspended range needs any more. A table goes with the
    /// first of its entries if none is in use, so this comes after all that was kept beside others.
    /// Returns whether a table was given back.
    fn prune_range(&mut self, range: PageRange) -> bool {
        let mut freed = false;
        let mut done = 0;
        while done < range.count {
            let page = range.start + done;
            let Ok(span) = self.span(page, range.count - done) else { break };
            freed |= self.prune_from(page, span.entries);
            done += if span.level == self.view().leaf_level() {
                span.pages
            } else {
                // Of a table that is gone already, the rest is one empty entry of that above.
                span.pages - (page.raw() & (span.pages - 1))
            };
        }
        freed
    }

    fn free_frames(&mut self, block: Extent, refused: &mut Option<(Extent, FrameFreeError)>) {
        if let Err(error) = self.frames.free(block) {
            refused.get_or_insert((block, error));
        }
    }

    /// Gives back the tables on the way to the page that are empty, the
    /// deepest first.
    pub(crate) fn prune(&mut self, page: Vpn) {
        self.prune_from(page, 0);
    }

    /// Does as [`prune`](Self::prune), where `hole` entries from the page's on are
    /// known not to be in use. Returns whether a table
    /// was given back.
    fn prune_from(&mut self, page: Vpn, hole: u64) -> bool {
        let view = self.view();
        let mut links = [(view.regime.root, view.regime.root); LEVELS_MAX];
        let mut depth = 0;
        while depth < view.leaf_level() {
            let at = view.entry(links[depth].1, view.index(depth, page));
            let Ok(word) = view.read(at) else { break };
            let Kind::Table(table) = encode::kind(view.format(), depth, word) else { break };
            depth += 1;
            links[depth] = (at, table);
        }
        let mut freed = false;
        let mut hole = hole;
        while depth > 0 {
            let (link, table) = links[depth];
            // A table that cannot be read or unlinked stays, empty, to be used
            // again or given back at the end.
            let above = links[depth - 1];
            if !self.is_empty(depth, link, table, page, hole).unwrap_or(false)
                || self.drop_table(depth, above, link, table).is_err()
            {
                break;
            }
            freed = true;
            hole = 1;
            depth -= 1;
        }
        freed
    }

    /// Returns true if no entry of the table is in use: by its number where that is
    /// written, or looking outward from the hole in turn on both sides: where
    /// one neighbour is in use, after two reads.
    fn is_empty(
        &self,
        level: usize,
        link: PhysAddr,
        table: PhysAddr,
        page: Vpn,
        hole: u64,
    ) -> Result<bool, BusError> {
        let view = self.view();
        if view.has_half(level - 1) {
            return Ok(view.read(view.half(level - 1, link))? == 0);
        }
        let first = view.index(level, page);
        let end = first + hole;
        let in_use = |index| {
            let word = view.read(view.entry(table, index))?;
            Ok(encode::in_use(view.format(), word))
        };
        for i in 0..first.max(view.entries(level) - end) {
            if end + i < view.entries(level) && in_use(end + i)? {
                return Ok(false);
            }
            if i < first && in_use(first - 1 - i)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Unlinks an empty table, which has an entry in the table `above`
    /// (its link and itself), and gives its frames back, unless fellows share
    /// them.
    fn drop_table(
        &mut self,
        level: usize,
        above: (PhysAddr, PhysAddr),
        link: PhysAddr,
        table: PhysAddr,
    ) -> Result<(), BusError> {
        let shared = self.is_shared(link)?;
        let unlinked = self.occupy(level - 1, above.0, -1).and_then(|()| self.write(link, 0));
        if let Err(bus) = unlinked {
            self.recount(level - 1, above.0, above.1);
            return Err(bus);
        }
        if !shared {
            self.free_table(Extent::new(table.frame(), self.view().table_order(level).frames()));
        }
        Ok(())
    }

    /// Returns true if the table of the entry at `link` shares its frame.
    fn is_shared(&self, link: PhysAddr) -> Result<bool, BusError> {
        Ok(self.regime.format == Format::ArmV7 && self.view().shared_frame(link)?.is_some())
    }

    /// Gives back the table kept beside the entry at `at`, and those kept
    /// beside its entries.
    pub(crate) fn drop_kept(&mut self, level: usize, at: PhysAddr) {
        let view = self.view();
        let Ok(Some(table)) = view.kept(level, at) else { return };
        let half = view.half(level, at);
        // Memory that fails once is asked again: nothing else knows the table.
        if view.write(half, 0).is_err() && view.write(half, 0).is_err() {
            return;
        }
        if view.has_half(level + 1) {
            for i in 0..view.entries(level + 1) {
                self.drop_kept(level + 1, self.view().entry(table, i));
            }
        }
        if !self.is_shared(at).unwrap_or(true) {
            let count = self.view().table_order(level + 1).frames();
            self.free_table(Extent::new(table.frame(), count));
        }
    }

    /// Corrects the contiguity of the pages that remain on one side of a range
    /// that will be unmapped: nobody claims pages beyond the edge.
    ///
    /// Claims shrink with the distance from the edge, or are saturated alike:
    /// the first page that claims nothing beyond the edge ends the work.
    fn trim(&mut self, side: Side) -> Result<Trimmed, BusError> {
        let mut trimmed = Trimmed { side, count: 0, extra: 0 };
        let Some(place) = self.place(side) else { return Ok(trimmed) };
        let mut leaf_table = None;
        while let Some((page, limit)) = self.beyond(side, trimmed.count) {
            let step = self.base_page(&mut leaf_table, page).and_then(|found| {
                let Some((at, word)) = found else { return Ok(None) };
                let claim = place.get(self.view(), at, word)?;
                if claim <= limit {
                    return Ok(None);
                }
                let writes = place.set(self.view(), at, limit)?;
                Ok(Some((claim - limit, writes)))
            });
            match step {
                Ok(None) => break,
                Ok(Some((extra, writes))) => {
                    if trimmed.count == 0 {
                        trimmed.extra = extra;
                    }
                    trimmed.count += 1;
                    self.statistics.descriptor_writes += writes;
                }
                Err(bus) => {
                    self.restore(trimmed);
                    return Err(bus);
                }
            }
        }
        Ok(trimmed)
    }

    /// Puts back what [`trim`](Self::trim) took away: what the nearest page
    /// claimed tells what the others did, since either all counts are exact
    /// or those farther away are saturated.
    fn restore(&mut self, trimmed: Trimmed) {
        let Some(place) = self.place(trimmed.side) else { return };
        let mut leaf_table = None;
        for i in 0..trimmed.count {
            let Some((page, limit)) = self.beyond(trimmed.side, i) else { return };
            if let Ok(Some((at, _))) = self.base_page(&mut leaf_table, page) {
                // Claiming less than is there does no harm.
                if let Ok(writes) = place.set(self.view(), at, limit + trimmed.extra) {
                    self.statistics.descriptor_writes += writes;
                }
            }
        }
    }

    pub(crate) const fn place(&self, side: Side) -> Option<NumberPlace> {
        let regime = self.regime;
        match side {
            Side::Before(_) => NumberPlace::ascend(regime.format, regime.coalescing),
            Side::After(_) => NumberPlace::descend(regime.format, regime.coalescing),
        }
    }

    /// Returns the i-th page away from the edge that carries contiguity, and the most
    /// that it may claim.
    pub(crate) fn beyond(&self, side: Side, i: u64) -> Option<(Vpn, u64)> {
        let coalescing = self.regime.coalescing;
        if let Coalescing::Pcad(ContiguityField::Line)
        | Coalescing::Anchor { field: ContiguityField::Line, .. } = coalescing
        {
            let entries = line::entries(self.regime.format);
            return match side {
                Side::Before(edge) => {
                    let end = (edge.raw() & !(entries - 1)).checked_sub(i * entries)?;
                    Some((Vpn::new(end.checked_sub(1)?), edge.raw() - end))
                }
                Side::After(edge) => {
                    let first = edge.raw().next_multiple_of(entries) + i * entries;
                    Some((Vpn::new(first), first - edge.raw()))
                }
            };
        }
        match (side, coalescing) {
            (Side::Before(edge), Coalescing::Anchor { distance, .. }) => {
                let nearest = edge.checked_sub(1)?.align_down(distance.k());
                nearest.checked_sub(i << distance.k()).map(|page| (page, edge - page))
            }
            (Side::Before(edge), _) => edge.checked_sub(i + 1).map(|page| (page, i)),
            (Side::After(edge), _) => Some((edge + i, i)),
        }
    }

    /// Returns the entry of a mapped base page, and its word; `None` for everything
    /// else. `leaf_table` keeps the way from one page to the next.
    pub(crate) fn base_page(
        &self,
        leaf_table: &mut Option<(u64, PhysAddr)>,
        page: Vpn,
    ) -> Result<Option<(PhysAddr, u64)>, BusError> {
        let view = self.view();
        let level = view.leaf_level();
        let index = view.index(level, page);
        let tag = page.raw() - index;
        let (at, word) = match *leaf_table {
            Some((known, table)) if known == tag => {
                let at = view.entry(table, index);
                (at, view.read(at)?)
            }
            _ => {
                if first_not_canonical(view.format(), PageRange::new(page, 1)).is_some() {
                    return Ok(None);
                }
                let found = view.find(page)?;
                if found.level != level {
                    return Ok(None);
                }
                let offset = index * view.format().entry_bytes();
                *leaf_table = Some((tag, PhysAddr::new(found.at.raw() - offset)));
                (found.at, found.word)
            }
        };
        Ok(match encode::kind(view.format(), level, word) {
            Kind::Leaf(Order::BASE) => Some((at, word)),
            _ => None,
        })
    }
}
