//! Promotion and demotion of one space's pages, the machine-dependent part of
//! transparent superpages (Bodek, `pmap_promote_section` and
//! `pmap_demote_section`).
//!
//! A superpage arises in two ways. **Join**: 16 entries of one table say that
//! they are one page (ARMv7's large pages and supersections, ARMv8's contiguous
//! bit). **Fold**: one entry takes the place of the whole table below it, which
//! is kept, so that demotion is quick. Sizes come in that order: a table is
//! folded when all its entries have the largest size below that is on.
//!
//! **Where it is written.** A space made with
//! [`with_superpages`](AddressSpace::with_superpages) gives each table whose
//! entries can be superpages a software half: the word for the entry at address
//! `a` stands at `a` + the table's length. Beside a link it counts the entries
//! in use of the table below (Bodek's `l2b_occupancy`), so that promotion
//! fails after one word while a page is missing, and a table is known to be
//! empty without a look at it. Beside a superpage it is the address of the kept
//! table, 0 if the superpage was created directly. The hardware looks at neither.
//!
//! **The check** reads the first entry, then the others from the last
//! backwards, eight bytes at a time, so that pages that are filled or written upwards make it fail at
//! once. All say the same: attributes, permissions and owner, and frames that
//! follow one another from an aligned one on. They must also have been accessed,
//! as FreeBSD's pmaps for ARM demand: a superpage whose pages are only there in
//! advance would count as referenced as a whole with the first access. A bit
//! that the hardware alone sets (x86-64's D) is not compared.
//!
//! **Writable means dirty.** No format here has the hardware say what was
//! written, so a page is mapped read-only, and its first write makes it writable
//! and thereby dirty. While all pages are clean a superpage arises read-only; a
//! write demotes it; when every page is dirty it arises again, writable. So one
//! write does not let the whole superpage go to disc.
//!
//! **Break before make.** Where a valid translation would become one of another
//! size, ARM demands that the old one is made invalid, and the TLBs too, before
//! the new one is written (DDI 0487 D8.16.1, DDI 0406C B3.10.1). So these
//! operations do not return the owed [`Flush`]: they hand it to `invalidate` at
//! the one moment when it is due, between break and make on ARM, after the write
//! on x86-64, which allows a change of size alone (SDM volume 3A, section
//! 4.10.2.3). A joined page is broken as a whole whenever it changes.
//!
//! # What it costs
//! e is the number of entries that are checked (16; or 256 in ARMv7, 512
//! elsewhere) and l the format's levels. A promotion reads l - 1 words on the
//! way, one of the software half for a fold, and e at most, two when pages are
//! filled upwards. A fold writes two words, or three with the break; a join 32.
//! A demotion that recalls its table reads one word more and writes as much as a
//! fold; where the table is stale or new it writes e words besides.
//!
//! Instructions per call, counted on x86-64 in ARMv7's format over a slice of
//! memory: 2,700 for a fold of 256 entries, as many for one that fails at the
//! last of them; 670 for a demotion that recalls its table, 13,900 where a new
//! one is taken and filled. With PV entries it is more:
//! [`mappings`](crate::pmap::mappings) says how much.

use swath_arch::{
    Attributes, BusError, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Vpn,
};
use swath_frame::FrameAllocator;

use crate::table::encode::{self, Entry, Kind, Leaf};
use crate::table::error::{DemoteError, MapPagesError, PromoteError, Refusal};
use crate::table::flush::Flush;
use crate::table::parts::{Parts, compared};
use crate::table::space::{AddressSpace, first_not_canonical};

/// A promotion that was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Promoted {
    /// The superpage's first page.
    pub page: Vpn,
    /// Its first frame.
    pub frame: Pfn,
    /// Its order.
    pub to: Order,
    /// The order of each of the pages that it was made of.
    pub from: Order,
    /// Its permissions and kind of memory.
    pub attributes: Attributes,
    /// Words of tables that were read.
    pub words_read: u64,
}

/// A demotion that was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Demoted {
    /// The superpage's first page.
    pub page: Vpn,
    /// Its first frame.
    pub frame: Pfn,
    /// The superpage's order.
    pub from: Order,
    /// The order of each of the pages that take its place.
    pub to: Order,
    /// The origin of their table.
    pub table: DemotedTable,
}

/// The origin of the entries that a demotion put in a superpage's place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DemotedTable {
    /// 16 entries were parted where they stood.
    Parted,
    /// The kept table was right as it was.
    Recalled,
    /// The kept table was stale, since the superpage had changed as a whole.
    FixedUp,
    /// There was none: a new table was filled.
    Recreated,
}

/// Returns the place of pages of an order: the level of their entries, and whether 16
/// entries are joined.
fn place(format: Format, order: Order) -> Option<(usize, bool)> {
    format.levels().iter().enumerate().find_map(|(level, of_level)| {
        let at = of_level.leaves.iter().position(|&leaf| leaf == order)?;
        Some((level, at == 1))
    })
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Returns the order of the pages that one entry at `level` is folded from, or is
    /// demoted to.
    fn part_order(&self, level: usize) -> Order {
        let leaves = self.regime.format.levels()[level + 1].leaves;
        let on = |order: &&Order| self.sizes.is_some_and(|sizes| sizes.contains(**order));
        *leaves.iter().skip(1).find(on).unwrap_or(&leaves[0])
    }

    /// Returns the order that a page of a superpage size is demoted to, or made of.
    pub(crate) fn part_of(&self, order: Order) -> Option<Order> {
        let (level, joined) = place(self.regime.format, order)?;
        match joined {
            true => Some(self.view().entry_order(level)),
            false if level < self.view().leaf_level() => Some(self.part_order(level)),
            false => None,
        }
    }

    /// Makes the aligned range of order `order` around the page one superpage,
    /// if the pages there permit it. Costs as the module says.
    ///
    /// # Errors
    /// [`PromoteError`]; nothing has changed.
    pub fn promote(
        &mut self,
        page: Vpn,
        order: Order,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<Promoted, PromoteError> {
        self.promote_if(page, order, invalidate, |_, _| true)
    }

    /// Does as [`promote`](Self::promote), if `accept` says yes to the first page and
    /// the first frame. It is asked as soon as two entries are known to be alike, of which the
    /// last is one.
    pub(crate) fn promote_if(
        &mut self,
        page: Vpn,
        order: Order,
        invalidate: &mut dyn FnMut(Flush),
        accept: impl FnOnce(Vpn, Pfn) -> bool,
    ) -> Result<Promoted, PromoteError> {
        let format = self.regime.format;
        let Some(sizes) = self.sizes else { return Err(PromoteError::NotForSuperpages) };
        let place = place(format, order).filter(|_| sizes.contains(order));
        let Some((level, joined)) = place else {
            return Err(PromoteError::NoSuchSize { order });
        };
        if first_not_canonical(format, PageRange::new(page, 1)).is_some() {
            return Err(PromoteError::NotCanonical { page });
        }
        let page = page.align_down(order.k());
        let mut words_read = 0;
        let promoted = if joined {
            self.join(level, page, order, invalidate, accept, &mut words_read)
        } else {
            self.fold(level, page, order, invalidate, accept, &mut words_read)
        };
        promoted.map_err(|error| match error {
            PromoteError::Refused { why, .. } => PromoteError::Refused { why, words_read },
            other => other,
        })
    }

    /// Returns the entry at `level` on the way to the page.
    fn entry_at(
        &self,
        level: usize,
        page: Vpn,
        words_read: &mut u64,
    ) -> Result<(PhysAddr, PhysAddr), PromoteError> {
        let view = self.view();
        let mut table = self.regime.root;
        for above in 0..level {
            *words_read += 1;
            let word = view.read(view.entry(table, view.index(above, page)))?;
            table = match encode::kind(view.format(), above, word) {
                Kind::Table(next) => next,
                Kind::Leaf(order) => return Err(refused(Refusal::Superpage { order })),
                Kind::Empty => return Err(refused(Refusal::NotMapped { page })),
            };
        }
        Ok((view.entry(table, view.index(level, page)), table))
    }

    fn join(
        &mut self,
        level: usize,
        page: Vpn,
        order: Order,
        invalidate: &mut dyn FnMut(Flush),
        accept: impl FnOnce(Vpn, Pfn) -> bool,
        words_read: &mut u64,
    ) -> Result<Promoted, PromoteError> {
        let (at, _) = self.entry_at(level, page, words_read)?;
        let from = self.view().entry_order(level);
        let parts = self.check_parts(level, at, page, from, order, accept, words_read)?;
        let said = Leaf { order, ..parts.first };
        let whole = Parts::new(self.regime.format, level, from, said, parts.count);
        let flush = Flush { range: PageRange::new(page, order.frames()), links_changed: false };
        self.replace(at, &parts, &whole, flush, invalidate)?;
        Ok(promoted(page, from, said, *words_read))
    }

    fn fold(
        &mut self,
        level: usize,
        page: Vpn,
        order: Order,
        invalidate: &mut dyn FnMut(Flush),
        accept: impl FnOnce(Vpn, Pfn) -> bool,
        words_read: &mut u64,
    ) -> Result<Promoted, PromoteError> {
        let (at, _) = self.entry_at(level, page, words_read)?;
        let view = self.view();
        *words_read += 1;
        let link = view.read(at)?;
        let table = match encode::kind(view.format(), level, link) {
            Kind::Table(table) => table,
            Kind::Leaf(order) => return Err(refused(Refusal::Superpage { order })),
            Kind::Empty => return Err(refused(Refusal::NotMapped { page })),
        };
        let half = view.half(level, at);
        *words_read += 1;
        let occupancy = view.read(half)?;
        if occupancy != view.entries(level + 1) {
            return Err(refused(Refusal::NotFull { entries: occupancy }));
        }
        let from = self.part_order(level);
        let parts = self.check_parts(level + 1, table, page, from, order, accept, words_read)?;
        let said = Leaf { order, ..parts.first };
        if frame_out_of_reach(self.regime.format, said) {
            return Err(refused(Refusal::Misaligned { frame: said.frame }));
        }
        let word = encode::leaf(self.regime.format, level, said);
        self.view().write(half, table.raw())?;
        let flush = Flush { range: PageRange::new(page, order.frames()), links_changed: true };
        if let Err(bus) = self.replace_word(level, at, link, word, flush, invalidate) {
            // Memory that answered a moment ago answers again.
            let _ = self.view().write(half, occupancy);
            return Err(bus.into());
        }
        Ok(promoted(page, from, said, *words_read))
    }

    /// Reads the entries that would become one page of order `to`: the first,
    /// then from the last backwards.
    #[allow(clippy::too_many_arguments, reason = "one check for both kinds of promotion")]
    fn check_parts(
        &self,
        level: usize,
        at: PhysAddr,
        page: Vpn,
        from: Order,
        to: Order,
        accept: impl FnOnce(Vpn, Pfn) -> bool,
        words_read: &mut u64,
    ) -> Result<Parts, PromoteError> {
        let view = self.view();
        let entry_order = view.entry_order(level);
        let count = 1 << (to.k() - entry_order.k());
        *words_read += 1;
        let first = match encode::decode(view.format(), level, view.read(at)?) {
            Entry::Leaf(leaf) => leaf,
            Entry::Table(_) | Entry::Empty => return Err(refused(Refusal::NotMapped { page })),
        };
        if first.order > from {
            return Err(refused(Refusal::Superpage { order: first.order }));
        }
        if first.order < from {
            return Err(refused(Refusal::Smaller { page }));
        }
        if !first.frame.is_aligned(to.k()) {
            return Err(refused(Refusal::Misaligned { frame: first.frame }));
        }
        if !first.attributes.accessed {
            return Err(refused(Refusal::NotAccessed));
        }
        let parts = Parts::new(view.format(), level, entry_order, first, count);
        // Pages that are written upwards differ in the last.
        let last = count.saturating_sub(2).max(1);
        self.compare(at, &parts, page, last..count, words_read)?;
        let different = Err(refused(Refusal::Different { page }));
        if from == Order::BASE {
            if !accept(page, first.frame) {
                return different;
            }
            self.compare(at, &parts, page, 1..last, words_read)?;
        } else {
            // Smaller parts are to be found before `accept` is asked.
            self.compare(at, &parts, page, 1..last, words_read)?;
            if !accept(page, first.frame) {
                return different;
            }
        }
        Ok(parts)
    }

    /// Compares these entries of the parts, whose first stands at `at`, with what they should be,
    /// from the last backwards.
    fn compare(
        &self,
        at: PhysAddr,
        parts: &Parts,
        page: Vpn,
        entries: core::ops::Range<u64>,
        words_read: &mut u64,
    ) -> Result<(), PromoteError> {
        let view = self.view();
        let mask = compared(parts.format);
        let mut end = entries.end;
        let mut different = None;
        while end > entries.start {
            end -= self.alike(at, parts, entries.start..end)?;
            if end == entries.start {
                break;
            }
            // Read alone: half of what was different, or half of which was not to be read.
            let word = view.read(view.entry(at, end - 1))?;
            if (word ^ parts.word(end - 1)) & mask != 0 {
                different = Some((end - 1, word));
                break;
            }
            end -= 1;
        }
        *words_read += entries.end.saturating_sub(different.map_or(entries.start, |(i, _)| i));
        match different {
            Some((i, word)) => Err(refused(self.difference(parts, page, i, word))),
            None => Ok(()),
        }
    }

    /// Counts the entries, from the last backwards, that are as they should be, eight bytes at a
    /// time.
    fn alike(
        &self,
        at: PhysAddr,
        parts: &Parts,
        entries: core::ops::Range<u64>,
    ) -> Result<u64, BusError> {
        let entry_bytes = parts.format.entry_bytes();
        let together = 8 / entry_bytes;
        if !entries.end.is_multiple_of(together) {
            return Ok(0);
        }
        let mask = compared(parts.format);
        let mut next = at + entry_bytes * entries.end;
        let (mut expected, mut step) = (parts.word(entries.end - 1), parts.step());
        if together == 2 {
            expected = expected << 32 | parts.word(entries.end - 2);
            step = step << 33 | step << 1;
        }
        let mut left = (entries.end - entries.start) / together;
        let all = left;
        while left > 0 {
            next = PhysAddr::new(next.raw() - 8);
            if (self.memory.read_u64(next)? ^ expected) & mask != 0 {
                break;
            }
            expected = expected.wrapping_sub(step);
            left -= 1;
        }
        Ok((all - left) * together)
    }

    /// Returns the reason why the i-th entry is no part.
    fn difference(&self, parts: &Parts, page: Vpn, i: u64, word: u64) -> Refusal {
        let entry_order = self.view().entry_order(parts.level);
        let offset = i << entry_order.k();
        let page = page + offset;
        let smaller = Leaf { order: entry_order, frame: parts.first.frame + offset, ..parts.first };
        match encode::decode(parts.format, parts.level, word) {
            Entry::Leaf(leaf) if leaf == smaller && parts.first.order != entry_order => {
                Refusal::Smaller { page }
            }
            Entry::Leaf(_) => Refusal::Different { page },
            Entry::Table(_) | Entry::Empty => Refusal::NotMapped { page },
        }
    }

    /// Demotes the page by one size: parts the 16 entries of a joined page, or
    /// puts the table back that was kept, or a new one. What the pages permit
    /// stays as it is. Costs as the module says.
    ///
    /// # Errors
    /// [`DemoteError`]; nothing has changed. After
    /// [`NoTable`](DemoteError::NoTable) the superpage can only be unmapped as a
    /// whole.
    pub fn demote(
        &mut self,
        page: Vpn,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<Demoted, DemoteError> {
        let format = self.regime.format;
        if self.sizes.is_none() {
            return Err(DemoteError::NotForSuperpages);
        }
        if first_not_canonical(format, PageRange::new(page, 1)).is_some() {
            return Err(DemoteError::NotCanonical { page });
        }
        let found = self.view().find(page)?;
        let Entry::Leaf(leaf) = encode::decode(format, found.level, found.word) else {
            return Err(DemoteError::NotMapped { page });
        };
        if leaf.order == Order::BASE {
            return Err(DemoteError::BasePage { page });
        }
        let head = page.align_down(leaf.order.k());
        let entry_order = self.view().entry_order(found.level);
        if leaf.order == entry_order {
            return self.unfold(found.level, found.at, found.word, leaf, head, invalidate);
        }
        let within = (page - head) >> entry_order.k();
        let at = PhysAddr::new(found.at.raw() - within * format.entry_bytes());
        let count = 1 << (leaf.order.k() - entry_order.k());
        let whole = Parts::new(format, found.level, entry_order, leaf, count);
        let first = Leaf { order: entry_order, ..leaf };
        if frame_out_of_reach(format, first) {
            return Err(DemoteError::FrameOutOfReach { frame: first.frame });
        }
        let parts = Parts::new(format, found.level, entry_order, first, count);
        let range = PageRange::new(head, leaf.order.frames());
        let flush = Flush { range, links_changed: false };
        self.replace(at, &whole, &parts, flush, invalidate)?;
        let (from, to) = (leaf.order, entry_order);
        Ok(Demoted { page: head, frame: leaf.frame, from, to, table: DemotedTable::Parted })
    }

    fn unfold(
        &mut self,
        level: usize,
        at: PhysAddr,
        word: u64,
        leaf: Leaf,
        page: Vpn,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<Demoted, DemoteError> {
        let format = self.regime.format;
        let parts = self.parts_below(level, leaf);
        let kept = self.view().kept(level, at)?;
        let (table, taken) = match kept {
            Some(table) => (table, Extent::default()),
            None => self.table_frame(at, level + 1, page).map_err(|error| match error {
                MapPagesError::NoTable(error) => DemoteError::NoTable(error),
                MapPagesError::TableOutOfReach { frame } => DemoteError::TableOutOfReach { frame },
                MapPagesError::Bus(bus) => DemoteError::Bus(bus),
                // Nothing else happens while a table is made.
                _ => DemoteError::NotMapped { page },
            })?,
        };
        let flush = Flush { range: PageRange::new(page, leaf.order.frames()), links_changed: true };
        let half = self.view().half(level, at);
        let linked = self.fill(&parts, table, kept.is_some()).and_then(|fixed_up| {
            self.view().write(half, parts.count)?;
            let link = encode::table(format, table);
            if let Err(bus) = self.replace_word(level, at, word, link, flush, invalidate) {
                let _ = self.view().write(half, kept.map_or(0, PhysAddr::raw));
                return Err(bus);
            }
            Ok(fixed_up)
        });
        let table = match (linked, kept) {
            (Err(bus), _) => {
                self.free_table(taken);
                return Err(bus.into());
            }
            (Ok(_), None) => DemotedTable::Recreated,
            (Ok(true), Some(_)) => DemotedTable::FixedUp,
            (Ok(false), Some(_)) => DemotedTable::Recalled,
        };
        let (from, to) = (leaf.order, parts.first.order);
        Ok(Demoted { page, frame: leaf.frame, from, to, table })
    }

    /// Returns the entries of the table below in place of a superpage's entry at
    /// `level`.
    fn parts_below(&self, level: usize, leaf: Leaf) -> Parts {
        let view = self.view();
        let first = Leaf { order: self.part_order(level), ..leaf };
        let entry_order = view.entry_order(level + 1);
        Parts::new(view.format(), level + 1, entry_order, first, view.entries(level + 1))
    }

    /// Writes the parts into the table, unless its first entry is right. That is
    /// emptied first and comes last: a table is stale until all of it is fixed
    /// up, also for a superpage that says again what it once said. Returns
    /// whether it wrote.
    fn fill(&mut self, parts: &Parts, table: PhysAddr, kept: bool) -> Result<bool, BusError> {
        let view = self.view();
        if kept && (view.read(table)? ^ parts.word) & compared(parts.format) == 0 {
            return Ok(false);
        }
        if kept {
            view.write(table, 0)?;
        }
        for i in (0..parts.count).rev() {
            view.write(view.entry(table, i), parts.word(i))?;
        }
        self.statistics.descriptor_writes += parts.count + u64::from(kept);
        Ok(true)
    }

    /// Returns true if the table kept beside the entry at `at` is stale or says what
    /// the superpage says.
    pub(crate) fn kept_is_right(&self, level: usize, at: PhysAddr) -> Result<bool, BusError> {
        let view = self.view();
        let Entry::Leaf(leaf) = encode::decode(view.format(), level, view.read(at)?) else {
            return Ok(false);
        };
        let Some(table) = view.kept(level, at)? else { return Ok(true) };
        // Of a joined page, this entry's piece.
        let entry_order = view.entry_order(level);
        let pieces = leaf.order.frames() >> entry_order.k();
        let piece = at.raw() / view.format().entry_bytes() % pieces;
        let frame = leaf.frame + (piece << entry_order.k());
        let parts = self.parts_below(level, Leaf { frame, ..leaf });
        let mask = compared(parts.format);
        if (view.read(table)? ^ parts.word) & mask != 0 {
            return Ok(true);
        }
        for i in 1..parts.count {
            if (view.read(view.entry(table, i))? ^ parts.word(i)) & mask != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

const fn refused(why: Refusal) -> PromoteError {
    PromoteError::Refused { why, words_read: 0 }
}

const fn promoted(page: Vpn, from: Order, said: Leaf, words_read: u64) -> Promoted {
    let Leaf { order: to, frame, attributes, .. } = said;
    Promoted { page, frame, to, from, attributes, words_read }
}

/// Returns true if an ordinary descriptor cannot say the frame: those behind a
/// supersection of ARMv7 may lie beyond 32 bits.
const fn frame_out_of_reach(format: Format, leaf: Leaf) -> bool {
    let supersection = matches!(format, Format::ArmV7) && leaf.order.k() == 12;
    !supersection && leaf.frame.raw() >> (format.pa_bits() - swath_arch::BASE_PAGE_SHIFT) != 0
}
