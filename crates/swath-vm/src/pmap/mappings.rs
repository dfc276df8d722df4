//! The pmap: a kernel's interface to the mappings of all its spaces, so that
//! superpages arise and vanish by themselves.
//!
//! A [`Pmap`] does not hold the spaces; it reaches them through [`Spaces`], by
//! number, together with what invalidates their TLBs. It maps one page at a time
//! ([`enter`](Pmap::enter)) and promotes as far as the pages around it and the
//! reservation permit; it demotes when a page within a superpage is written
//! first, unmapped, protected, paged out or laundered; and it keeps the reverse
//! map in step, a demotion's mapping before its PV entries. The frames belong to
//! the caller throughout (to the reservations of `swath-frame`).
//!
//! **Removal in place of demotion.** A demotion may need a frame for a table, or
//! PV entries for the parts. Where there are none, the superpage is removed as a
//! whole, as Bodek says: what a pmap holds can be faulted in again at any
//! time. What its pages' flags said is remembered in the reverse map, so that no
//! dirty page is lost.
//!
//! **Where the flags stand.** The tables say whether a page was accessed and
//! written ([`Status::InTable`], Bodek's "What's next"). With
//! [`Status::InReverseMap`] they stand in the PV entries, as they did in the
//! talk of Bodek, and a promotion must look at its parts' PV entries too, though
//! here one tells of 16 pages; [`PmapStatistics`] counts what that costs where
//! it fails.
//!
//! # What it costs
//! Instructions per call, counted on x86-64 in ARMv7's format over a slice of
//! memory, with the flags in the table and in the PV entries: 4,400 and 5,500 for
//! the promotion of 256 pages to 1 MiB; 3,600 and 4,100 for a permission taken
//! from one page of it, with its demotion to 256 pages whose table was kept. A
//! page that is entered costs 660, with superpages or without; 870 and 910 with all
//! promotions to 64 KiB and 1 MiB.

use core::ops::DerefMut;

use swath_arch::{Attributes, Extent, Order, PageRange, Pfn, PhysMemory, Vpn};
use swath_frame::FrameAllocator;

use crate::pmap::entries::{Flags, ReverseMap, Site, SpaceId, Status};
use crate::pmap::error::PmapError;
use crate::table::error::{DemoteError, PromoteError, Refusal, TranslateError, UnmapError};
use crate::table::flush::Flush;
use crate::table::space::AddressSpace;
use crate::table::superpage::DemotedTable;

/// A space, and what does TLB maintenance for any of them at once.
pub type Reached<'s, S> = (
    &'s mut AddressSpace<<S as Spaces>::Memory, <S as Spaces>::Frames, <S as Spaces>::Tables>,
    &'s mut dyn FnMut(SpaceId, Flush),
);

/// The spaces that a pmap's operations reach, by number.
pub trait Spaces {
    /// The memory of their tables.
    type Memory: PhysMemory;
    /// Gives frames to pages; a pmap does not use it.
    type Frames: FrameAllocator;
    /// Gives frames to tables.
    type Tables: FrameAllocator;

    /// Returns the space of this number, and the TLB maintenance, which has to be done
    /// when the call returns; `None` if there is no such space.
    fn reach(&mut self, space: SpaceId) -> Option<Reached<'_, Self>>
    where
        Self: Sized;
}

/// A slice of spaces, whose numbers are their indices, and what invalidates.
impl<M, A, T, F> Spaces for (&mut [AddressSpace<M, A, T>], F)
where
    M: PhysMemory,
    A: FrameAllocator,
    T: FrameAllocator,
    F: FnMut(SpaceId, Flush),
{
    type Memory = M;
    type Frames = A;
    type Tables = T;

    fn reach(&mut self, space: SpaceId) -> Option<Reached<'_, Self>> {
        let index = usize::try_from(space.0).ok()?;
        Some((self.0.get_mut(index)?, &mut self.1))
    }
}

/// The access of a processor to a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageAccess {
    /// Nothing yet: the page is mapped in advance.
    None,
    /// It reads or executes.
    Read,
    /// It writes.
    Write,
}

/// The outcome of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Faulted {
    /// The page permits the access now, in a page of this order.
    Mapped {
        /// The order.
        order: Order,
    },
    /// The superpage could not be demoted and is gone: the page is to be entered
    /// anew.
    Removed {
        /// The superpage's pages.
        range: PageRange,
    },
}

/// The permissions that [`Pmap::protect`] keeps; it never adds one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeptPermissions {
    /// Writable pages stay writable.
    pub writable: bool,
    /// Executable pages stay executable.
    pub executable: bool,
}

/// Counts of a pmap's work since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PmapStatistics {
    /// Pages entered one by one.
    pub entered: u64,
    /// Superpages created directly.
    pub created: u64,
    /// Promotions made.
    pub promotions: u64,
    /// Promotions that pages did not permit.
    pub promotions_failed: u64,
    /// Words of tables read by those.
    pub failed_table_words: u64,
    /// Words of the reverse map read by those: none with
    /// [`Status::InTable`].
    pub failed_reverse_words: u64,
    /// Demotions for the first write to a read-only superpage.
    pub demotions_write: u64,
    /// Demotions because a part was removed.
    pub demotions_remove: u64,
    /// Demotions because a part was protected.
    pub demotions_protect: u64,
    /// Demotions because a page was paged out.
    pub demotions_page_out: u64,
    /// Demotions because a page was laundered.
    pub demotions_clean: u64,
    /// Demotions because a superpage's frames move one by one.
    pub demotions_move: u64,
    /// Frames whose content and mappings were moved.
    pub moved_frames: u64,
    /// Mappings that were changed for it.
    pub moved_mappings: u64,
    /// Superpages removed as a whole, as was asked.
    pub removed_whole: u64,
    /// Superpages removed as a whole because they could not be demoted.
    pub removed_for_shortage: u64,
    /// Demotions that parted 16 entries.
    pub parted: u64,
    /// Demotions that found their table kept and right.
    pub recalled: u64,
    /// Demotions that found their table stale.
    pub fixed_up: u64,
    /// Demotions that filled a new table.
    pub recreated: u64,
}

/// The cause of a demotion.
#[derive(Clone, Copy)]
pub(crate) enum DemotionCause {
    Write,
    Remove,
    Protect,
    PageOut,
    Clean,
    Move,
}

/// The mappings of all spaces.
///
/// Invariants, walked by [`check`](Self::check): every mapping in the spaces has
/// its place in one PV entry of its size at its frame, and no other has; with
/// [`Status::InReverseMap`] its flags are those of the table.
#[derive(Debug)]
pub struct Pmap<W> {
    pub(crate) reverse: ReverseMap<W>,
    pub(crate) statistics: PmapStatistics,
}

pub(crate) fn reach<S: Spaces>(
    spaces: &mut S,
    space: SpaceId,
) -> Result<Reached<'_, S>, PmapError> {
    spaces.reach(space).ok_or(PmapError::NoSpace { space })
}

impl<W: DerefMut<Target = [u64]>> Pmap<W> {
    /// Makes a pmap over empty reverse maps, for spaces without a mapping.
    pub fn new(reverse: ReverseMap<W>) -> Self {
        Self { reverse, statistics: PmapStatistics::default() }
    }

    /// Returns the reverse maps.
    pub const fn reverse(&self) -> &ReverseMap<W> {
        &self.reverse
    }

    /// Returns the counts so far.
    pub const fn statistics(&self) -> PmapStatistics {
        self.statistics
    }

    /// Maps a page that is not mapped, in the PV entry that it fits or a new one. It is writable only if
    /// the access is a write, and accessed if there is an access at all. Then
    /// promotes it as [`promote`](Self::promote) does; `full` is the largest
    /// order of which all frames around this one are populated, as the
    /// reservation says (`None`: not even the smallest). Returns the order of the
    /// page that maps it now.
    ///
    /// A walk, two writes of a table, at most five of the reverse map, whose list it searches in
    /// O(s), s long; and the promotions, for which nothing is read unless an order is full.
    ///
    /// # Errors
    /// [`PmapError`]; nothing has changed.
    pub fn enter<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        frame: Pfn,
        attributes: Attributes,
        access: PageAccess,
        full: Option<Order>,
    ) -> Result<Order, PmapError> {
        let attributes = self.admit(spaces, site, (frame, Order::BASE), attributes, access)?;
        let (space, _) = reach(spaces, site.space)?;
        space.map(site.page, Extent::new(frame, 1), attributes).map_err(PmapError::Map)?;
        self.note(Order::BASE, frame, site, attributes);
        self.statistics.entered += 1;
        Ok(self.promote_from(spaces, site, Order::BASE, full))
    }

    /// Maps a superpage at once, of which no page is mapped, with one PV entry
    /// and no table kept: creation, where the frames of a whole reservation are
    /// populated before the first access. A write makes all of it writable, and
    /// so dirty.
    ///
    /// # Errors
    /// [`PmapError`]; nothing has changed.
    pub fn enter_superpage<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        frames: (Pfn, Order),
        attributes: Attributes,
        access: PageAccess,
    ) -> Result<(), PmapError> {
        let (frame, order) = frames;
        let attributes = self.admit(spaces, site, frames, attributes, access)?;
        let (space, _) = reach(spaces, site.space)?;
        if !space.sizes().is_some_and(|sizes| sizes.contains(order)) {
            return Err(PmapError::MapSuperpage(crate::PageSizeError::NoSuchSize { order }));
        }
        space
            .map_page_size(site.page, frame, order, attributes)
            .map_err(PmapError::MapSuperpage)?;
        self.note(order, frame, site, attributes);
        self.statistics.created += 1;
        Ok(())
    }

    /// Checks that frames can be mapped at the site; returns what they will permit.
    fn admit<S: Spaces>(
        &self,
        spaces: &mut S,
        site: Site,
        frames: (Pfn, Order),
        attributes: Attributes,
        access: PageAccess,
    ) -> Result<Attributes, PmapError> {
        let (start, order) = frames;
        let (space, _) = reach(spaces, site.space)?;
        if !space.sizes().is_some_and(|sizes| self.reverse.sizes().contains_all(sizes)) {
            return Err(PmapError::Sizes { space: site.space });
        }
        let known = self.reverse.frames();
        if !known.contains(start) {
            return Err(PmapError::UnknownFrame { frame: start });
        }
        if order.frames() > known.end() - start {
            return Err(PmapError::UnknownFrame { frame: known.end() });
        }
        if access == PageAccess::Write && !attributes.writable {
            return Err(PmapError::Denied { page: site.page });
        }
        if !self.reverse.has_room(order, start, site) {
            return Err(PmapError::OutOfEntries);
        }
        let (writable, accessed) = (access == PageAccess::Write, access != PageAccess::None);
        Ok(Attributes { writable, accessed, ..attributes })
    }

    /// Adds a mapping that was made to the PV entries, for which there is room.
    fn note(&mut self, order: Order, frame: Pfn, site: Site, attributes: Attributes) {
        let _ = self.reverse.insert(order, frame, site, self.flags(attributes));
    }

    /// Returns the flags that a PV entry holds for a page that permits this.
    pub(crate) fn flags(&self, attributes: Attributes) -> Flags {
        match self.reverse.status() {
            Status::InTable => Flags { modified: false, referenced: false },
            Status::InReverseMap => {
                Flags { modified: attributes.writable, referenced: attributes.accessed }
            }
        }
    }

    /// Promotes the page, size by size, as far as its space's sizes, `full` and
    /// the pages around it permit; the order reached. A promotion that memory
    /// spoils is one that failed.
    pub fn promote<S: Spaces>(&mut self, spaces: &mut S, site: Site, full: Option<Order>) -> Order {
        let Ok((space, _)) = reach(spaces, site.space) else { return Order::BASE };
        let Ok(mapping) = space.translate(site.page) else { return Order::BASE };
        self.promote_from(spaces, site, mapping.order, full)
    }

    /// Does as [`promote`](Self::promote) for a page that is mapped in a page of order `from`.
    #[inline]
    fn promote_from<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        from: Order,
        full: Option<Order>,
    ) -> Order {
        match full {
            Some(full) if full > from => self.promote_between(spaces, site, from, full),
            _ => from,
        }
    }

    fn promote_between<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        from: Order,
        full: Order,
    ) -> Order {
        let mut order = from;
        let Ok((space, _)) = reach(spaces, site.space) else { return order };
        let Some(sizes) = space.sizes() else { return order };
        for to in sizes.iter().filter(|&to| from < to && to <= full) {
            loop {
                match self.promote_once(spaces, site, to) {
                    Ok(()) => order = to,
                    // Its fellows became alike one by one, and not by faults.
                    Err(Some((Refusal::Smaller { page }, part)))
                        if self.promote_once(spaces, Site { page, ..site }, part).is_ok() =>
                    {
                        continue;
                    }
                    Err(_) => return order,
                }
                break;
            }
        }
        order
    }

    /// Makes one promotion, with its PV entries; the error is what was in the way, and the order of
    /// the parts.
    fn promote_once<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        to: Order,
    ) -> Result<(), Option<(Refusal, Order)>> {
        let (space, invalidate) = reach(spaces, site.space).map_err(|_| None)?;
        let part = space.part_of(to).ok_or(None)?;
        let mut words = 0;
        let Self { reverse, statistics } = self;
        let alike = |page, frame| {
            let site = Site { page, ..site };
            reverse.status() == Status::InTable || reverse.alike(part, to, frame, site, &mut words)
        };
        let done =
            space.promote_if(site.page, to, &mut |flush| invalidate(site.space, flush), alike);
        match done {
            Ok(done) => {
                let site = Site { page: done.page, ..site };
                self.reverse.promote(done.from, done.to, done.frame, site);
                self.statistics.promotions += 1;
                Ok(())
            }
            Err(error) => {
                statistics.promotions_failed += 1;
                statistics.failed_reverse_words += words;
                let PromoteError::Refused { why, words_read } = error else { return Err(None) };
                statistics.failed_table_words += words_read;
                Err(Some((why, part)))
            }
        }
    }

    /// Makes one demotion at the site, mapping before PV entries, or removes
    /// the superpage if it cannot be demoted, whose pages it then returns.
    pub(crate) fn demote_once<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        cause: DemotionCause,
    ) -> Result<Option<PageRange>, PmapError> {
        if self.demote_or_keep(spaces, site, cause)? {
            return Ok(None);
        }
        let Site { space: id, page } = site;
        let (space, invalidate) = reach(spaces, id)?;
        let mapping = space.translate(page).map_err(|error| translation(page, error))?;
        let within = page.offset_in(mapping.order.k());
        let head = Vpn::new(page.raw() - within);
        let frames = Extent::new(Pfn::new(mapping.frame.raw() - within), mapping.order.frames());
        let site = Site { page: head, ..site };
        let flush = self.unmap(space, site, frames, mapping.order, mapping.attributes)?;
        invalidate(id, flush);
        self.statistics.removed_for_shortage += 1;
        Ok(Some(flush.range))
    }

    /// Makes one demotion at the site, mapping before PV entries. Returns whether it
    /// was made: if there are no PV entries or no table, the superpage stays.
    pub(crate) fn demote_or_keep<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        cause: DemotionCause,
    ) -> Result<bool, PmapError> {
        let Site { space: id, page } = site;
        let (space, invalidate) = reach(spaces, id)?;
        let mapping = space.translate(page).map_err(|error| translation(page, error))?;
        let Some(to) = space.part_of(mapping.order) else {
            return Err(PmapError::NotMapped { page });
        };
        let needed = ReverseMap::<W>::entries_to_demote(mapping.order, to);
        if u64::from(self.reverse.free_entries()) < needed {
            return Ok(false);
        }
        let demoted = match space.demote(page, &mut |flush| invalidate(id, flush)) {
            Ok(demoted) => demoted,
            Err(
                DemoteError::NoTable(_)
                | DemoteError::TableOutOfReach { .. }
                | DemoteError::FrameOutOfReach { .. },
            ) => return Ok(false),
            Err(error) => return Err(PmapError::demotion(id, page, error)),
        };
        self.reverse.demote(
            demoted.from,
            demoted.to,
            demoted.frame,
            Site { page: demoted.page, ..site },
        );
        let statistics = &mut self.statistics;
        *match demoted.table {
            DemotedTable::Parted => &mut statistics.parted,
            DemotedTable::Recalled => &mut statistics.recalled,
            DemotedTable::FixedUp => &mut statistics.fixed_up,
            DemotedTable::Recreated => &mut statistics.recreated,
        } += 1;
        *match cause {
            DemotionCause::Write => &mut statistics.demotions_write,
            DemotionCause::Remove => &mut statistics.demotions_remove,
            DemotionCause::Protect => &mut statistics.demotions_protect,
            DemotionCause::PageOut => &mut statistics.demotions_page_out,
            DemotionCause::Clean => &mut statistics.demotions_clean,
            DemotionCause::Move => &mut statistics.demotions_move,
        } += 1;
        Ok(true)
    }

    /// Unmaps one mapping, takes it out of the PV entries and remembers its flags.
    pub(crate) fn unmap<M: PhysMemory, A: FrameAllocator, T: FrameAllocator>(
        &mut self,
        space: &mut AddressSpace<M, A, T>,
        site: Site,
        frames: Extent,
        order: Order,
        attributes: Attributes,
    ) -> Result<Flush, PmapError> {
        let flush = match space.unmap(PageRange::new(site.page, frames.count)) {
            Ok(flush) | Err(UnmapError::Refused { flush, .. }) => flush,
            Err(error) => return Err(PmapError::unmapping(site.page, error)),
        };
        self.forget(site, frames, order, attributes);
        Ok(flush)
    }

    /// Takes a mapping out of the PV entries and remembers its flags.
    pub(crate) fn forget(
        &mut self,
        site: Site,
        frames: Extent,
        order: Order,
        attributes: Attributes,
    ) {
        self.reverse.remove(order, frames.start, site);
        self.reverse.mark(frames, attributes.writable, attributes.accessed);
    }

    /// Demotes until no superpage lies in the range in part.
    pub(crate) fn split<S: Spaces>(
        &mut self,
        spaces: &mut S,
        id: SpaceId,
        range: PageRange,
        cause: DemotionCause,
    ) -> Result<(), PmapError> {
        loop {
            let (space, _) = reach(spaces, id)?;
            let crossing = space.crossing(range);
            let crossing = crossing.map_err(|error| PmapError::demotion(id, range.start, error))?;
            let Some(page) = crossing else { return Ok(()) };
            self.demote_once(spaces, Site { space: id, page }, cause)?;
        }
    }

    /// Handles the fault of a page that is mapped and was accessed in a way that it does
    /// not permit yet, though the kernel does: it becomes accessed and, for a write, writable
    /// and so dirty. A read-only superpage is demoted for a write, down to the
    /// base page. Then promotes it as [`promote`](Self::promote) does, which is
    /// how a superpage becomes writable once all its pages are dirty.
    ///
    /// # Errors
    /// [`PmapError`]; superpages may have been demoted.
    pub fn fault<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        access: PageAccess,
        full: Option<Order>,
    ) -> Result<Faulted, PmapError> {
        let Site { space: id, page } = site;
        loop {
            let (space, invalidate) = reach(spaces, id)?;
            let mapping = space.translate(page).map_err(|error| translation(page, error))?;
            let write = access == PageAccess::Write && !mapping.attributes.writable;
            if write && mapping.order > Order::BASE {
                if let Some(range) = self.demote_once(spaces, site, DemotionCause::Write)? {
                    return Ok(Faulted::Removed { range });
                }
                continue;
            }
            let within = page.offset_in(mapping.order.k());
            let head = Vpn::new(page.raw() - within);
            let change = |attributes: Attributes| Attributes {
                accessed: attributes.accessed || access != PageAccess::None,
                writable: attributes.writable || access == PageAccess::Write,
                ..attributes
            };
            let range = PageRange::new(head, mapping.order.frames());
            space
                .protect(range, change, &mut |flush| invalidate(id, flush))
                .map_err(|error| PmapError::demotion(id, page, error))?;
            let frame = Pfn::new(mapping.frame.raw() - within);
            let flags = self.flags(change(mapping.attributes));
            self.reverse.set_flags(mapping.order, frame, Site { page: head, ..site }, flags);
            let order = self.promote_from(spaces, site, mapping.order, full);
            return Ok(Faulted::Mapped { order });
        }
    }

    /// Handles the fault of a write to a page that is mapped read-only, as [`fault`](Self::fault).
    ///
    /// # Errors
    /// As there.
    pub fn write_fault<S: Spaces>(
        &mut self,
        spaces: &mut S,
        site: Site,
        full: Option<Order>,
    ) -> Result<Faulted, PmapError> {
        self.fault(spaces, site, PageAccess::Write, full)
    }
}

pub(crate) const fn translation(page: Vpn, error: TranslateError) -> PmapError {
    match error {
        TranslateError::NotCanonical { page } => PmapError::NotCanonical { page },
        TranslateError::NotMapped { .. } => PmapError::NotMapped { page },
        TranslateError::Bus(bus) => PmapError::Bus(bus),
    }
}
