//! A pmap's operations on mappings that are there: ranges of a space removed or
//! protected, and a frame's mappings in all spaces paged out, laundered, looked
//! at.

use core::ops::DerefMut;

use swath_arch::{Attributes, Extent, Order, PageRange, Pfn, PhysMemory};
use swath_frame::FrameAllocator;

use crate::pmap::entries::{Flags, Site, SpaceId, Status};
use crate::pmap::error::{PmapError, PmapFault};
use crate::pmap::mappings::{DemotionCause, KeptPermissions, Pmap, Spaces, reach, translation};
use crate::table::encode::Leaf;
use crate::table::error::UnmapError;
use crate::table::flush::Flush;
use crate::table::protect::Mapped;
use crate::table::space::AddressSpace;
use crate::table::walk::Visit;

/// Mappings that are unmapped together.
const RUN: usize = 16;

fn each_mapped<M: PhysMemory, A: FrameAllocator, T: FrameAllocator>(
    space: &AddressSpace<M, A, T>,
    range: PageRange,
    visit: &mut dyn FnMut(Mapped),
) -> Result<(), PmapError> {
    let mut near = None;
    let mut page = range.start;
    while let Some(mapped) = space.next_mapped(&mut near, page, range.end())? {
        page = mapped.page + mapped.leaf.order.frames();
        visit(mapped);
    }
    Ok(())
}

impl<W: DerefMut<Target = [u64]>> Pmap<W> {
    /// Removes every mapping in the range, superpages that lie in it as a whole
    /// as a whole; those that do in part are demoted, or removed if they cannot
    /// be. What flags said is remembered. The TLB maintenance of the whole range
    /// is asked for once, at its end. Returns how many mappings were removed.
    ///
    /// # Errors
    /// [`PmapError`]; after [`Bus`](PmapError::Bus) a first part of the range is
    /// removed, and the TLBs know.
    pub fn remove<S: Spaces>(
        &mut self,
        spaces: &mut S,
        id: SpaceId,
        range: PageRange,
    ) -> Result<u64, PmapError> {
        self.split(spaces, id, range, DemotionCause::Remove)?;
        let (space, invalidate) = reach(spaces, id)?;
        let mut owed: Option<Flush> = None;
        let mut removed = 0;
        let mut page = range.start;
        let result = loop {
            // Mappings that follow one another go together.
            let mut run = [None; RUN];
            let mut near = None;
            let mut end = page;
            let mut found = Ok(());
            for slot in &mut run {
                match space.next_mapped(&mut near, end, range.end()) {
                    Ok(Some(mapped)) if mapped.page == end || end == page => {
                        if end == page {
                            page = mapped.page;
                        }
                        end = mapped.page + mapped.leaf.order.frames();
                        *slot = Some(mapped);
                    }
                    Ok(_) => break,
                    Err(bus) => {
                        found = Err(bus.into());
                        break;
                    }
                }
            }
            if let Err(error) = found {
                break Err(error);
            }
            if end == page {
                break Ok(());
            }
            let pages = PageRange::new(page, end - page);
            let flush = match space.unmap(pages) {
                Ok(flush) | Err(UnmapError::Refused { flush, .. }) => flush,
                Err(error) => break Err(PmapError::unmapping(page, error)),
            };
            for Mapped { page, leaf: Leaf { order, frame, attributes, .. }, .. } in
                run.into_iter().flatten()
            {
                let frames = Extent::new(frame, order.frames());
                self.forget(Site { space: id, page }, frames, order, attributes);
                self.statistics.removed_whole += u64::from(order > Order::BASE);
                removed += 1;
            }
            owed = Some(match owed {
                None => flush,
                Some(before) => Flush {
                    range: PageRange::new(before.range.start, end - before.range.start),
                    links_changed: before.links_changed || flush.links_changed,
                },
            });
            page = end;
        };
        if let Some(flush) = owed {
            invalidate(id, flush);
        }
        result.map(|()| removed)
    }

    /// Takes permissions away from every mapping in the range; superpages that
    /// lie in it in part are demoted, or removed if they cannot be. That a page
    /// was written is remembered.
    ///
    /// # Errors
    /// [`PmapError`]; after [`Bus`](PmapError::Bus) a first part of the range is
    /// changed, and the TLBs know.
    pub fn protect<S: Spaces>(
        &mut self,
        spaces: &mut S,
        id: SpaceId,
        range: PageRange,
        protection: KeptPermissions,
    ) -> Result<(), PmapError> {
        self.split(spaces, id, range, DemotionCause::Protect)?;
        let (space, invalidate) = reach(spaces, id)?;
        let change = |attributes: Attributes| Attributes {
            writable: attributes.writable && protection.writable,
            executable: attributes.executable && protection.executable,
            ..attributes
        };
        let each = |space: &mut _, visit: &mut dyn FnMut(Mapped)| each_mapped(space, range, visit);
        each(space, &mut |Mapped { leaf, .. }| {
            if leaf.attributes.writable && !protection.writable {
                self.reverse.mark(Extent::new(leaf.frame, leaf.order.frames()), true, false);
            }
        })?;
        let changed = space.protect(range, change, &mut |flush| invalidate(id, flush));
        if self.reverse.status() == Status::InReverseMap {
            each(space, &mut |Mapped { page, leaf, .. }| {
                let flags = self.flags(leaf.attributes);
                self.reverse.set_flags(leaf.order, leaf.frame, Site { space: id, page }, flags);
            })?;
        }
        changed.map(drop).map_err(|error| PmapError::demotion(id, range.start, error))
    }

    /// Removes every mapping of the frame, in all spaces: superpages around it
    /// are demoted, or removed if they cannot be. Returns how many mappings were
    /// removed; whether the frame was written, [`modified`](Self::modified) says.
    ///
    /// # Errors
    /// [`PmapError::UnknownFrame`], [`PmapError::NoSpace`]; after
    /// [`PmapError::Bus`] some mappings of the frame may be removed.
    pub fn page_out<S: Spaces>(&mut self, spaces: &mut S, frame: Pfn) -> Result<u64, PmapError> {
        self.known(frame)?;
        let mut removed = 0;
        while let Some((order, site)) = self.reverse.first(None, frame) {
            let within = frame.offset_in(order.k());
            let site = Site { page: site.page + within, ..site };
            if order > Order::BASE {
                let gone = self.demote_once(spaces, site, DemotionCause::PageOut)?;
                removed += u64::from(gone.is_some());
                continue;
            }
            let (space, invalidate) = reach(spaces, site.space)?;
            let mapping =
                space.translate(site.page).map_err(|error| translation(site.page, error))?;
            let flush =
                self.unmap(space, site, Extent::new(frame, 1), order, mapping.attributes)?;
            invalidate(site.space, flush);
            removed += 1;
        }
        Ok(removed)
    }

    /// Records that the frame was laundered: it is read-only again in all its mappings, and
    /// no longer modified. Writable superpages around it are demoted, or removed
    /// if they cannot be. Returns whether it was modified.
    ///
    /// # Errors
    /// [`PmapError::UnknownFrame`], [`PmapError::NoSpace`]; after
    /// [`PmapError::Bus`] it still counts as modified.
    pub fn clean<S: Spaces>(&mut self, spaces: &mut S, frame: Pfn) -> Result<bool, PmapError> {
        self.known(frame)?;
        let mut modified = self.reverse.marks(frame).0;
        while let Some((order, site, flags)) = self.find(spaces, frame, |flags| flags.modified)? {
            modified = true;
            if order > Order::BASE {
                self.demote_once(spaces, site, DemotionCause::Clean)?;
                continue;
            }
            let (space, invalidate) = reach(spaces, site.space)?;
            space
                .protect(
                    PageRange::new(site.page, 1),
                    |attributes| Attributes { writable: false, ..attributes },
                    &mut |flush| invalidate(site.space, flush),
                )
                .map_err(|error| PmapError::demotion(site.space, site.page, error))?;
            if self.reverse.status() == Status::InReverseMap {
                self.reverse.set_flags(order, frame, site, Flags { modified: false, ..flags });
            }
        }
        self.reverse.clear_modified(frame);
        Ok(modified)
    }

    /// Returns true if the frame was written since it was last [`clean`](Self::clean).
    ///
    /// # Errors
    /// [`PmapError`]; nothing has changed.
    pub fn modified<S: Spaces>(&self, spaces: &mut S, frame: Pfn) -> Result<bool, PmapError> {
        self.known(frame)?;
        let found = self.find(spaces, frame, |flags| flags.modified)?;
        Ok(self.reverse.marks(frame).0 || found.is_some())
    }

    /// Returns true if the frame was accessed, in a mapping that is or was.
    ///
    /// # Errors
    /// [`PmapError`]; nothing has changed.
    pub fn referenced<S: Spaces>(&self, spaces: &mut S, frame: Pfn) -> Result<bool, PmapError> {
        self.known(frame)?;
        let found = self.find(spaces, frame, |flags| flags.referenced)?;
        Ok(self.reverse.marks(frame).1 || found.is_some())
    }

    fn known(&self, frame: Pfn) -> Result<(), PmapError> {
        match self.reverse.frames().contains(frame) {
            true => Ok(()),
            false => Err(PmapError::UnknownFrame { frame }),
        }
    }

    /// Returns the first mapping of the frame whose flags are as wanted, at the frame's
    /// own page.
    fn find<S: Spaces>(
        &self,
        spaces: &mut S,
        frame: Pfn,
        wanted: impl Fn(Flags) -> bool,
    ) -> Result<Option<(Order, Site, Flags)>, PmapError> {
        for (order, site, mut flags) in self.reverse.mappings(frame) {
            let within = frame.offset_in(order.k());
            let site = Site { page: site.page + within, ..site };
            if self.reverse.status() == Status::InTable {
                let (space, _) = reach(spaces, site.space)?;
                let mapping =
                    space.translate(site.page).map_err(|error| translation(site.page, error))?;
                let Attributes { writable, accessed, .. } = mapping.attributes;
                flags = Flags { modified: writable, referenced: accessed };
            }
            if wanted(flags) {
                return Ok(Some((order, site, flags)));
            }
        }
        Ok(None)
    }

    /// Walks every invariant of the pmap and of the spaces of these numbers,
    /// which are all that hold mappings.
    ///
    /// # Errors
    /// [`PmapFault`]: the first thing wrong.
    pub fn check<S: Spaces>(
        &self,
        spaces: &mut S,
        ids: impl Iterator<Item = SpaceId>,
    ) -> Result<(), PmapFault> {
        let entered = self.reverse.walk().map_err(PmapFault::Reverse)?;
        let mut mappings = 0;
        for id in ids {
            let (space, _) = spaces.reach(id).ok_or(PmapFault::NoSpace { space: id })?;
            space.check().map_err(|error| PmapFault::Space { space: id, error })?;
            let mut wrong = None;
            let visited = space.view().visit(|visit| {
                let Visit::Leaf { page, leaf, .. } = visit else { return };
                if !page.is_aligned(leaf.order.k()) {
                    return;
                }
                mappings += 1;
                let site = Site { space: id, page };
                match self.reverse.flags(leaf.order, leaf.frame, site) {
                    None => wrong = wrong.or(Some(PmapFault::Missing { site })),
                    Some(flags) if flags != self.flags(leaf.attributes) => {
                        wrong = wrong.or(Some(PmapFault::Flags { site }));
                    }
                    Some(_) => {}
                }
            });
            visited.map_err(|bus| PmapFault::Space {
                space: id,
                error: crate::SpaceFault::Bus(bus),
            })?;
            wrong.map_or(Ok(()), Err)?;
        }
        if entered != mappings {
            return Err(PmapFault::Surplus { entered, mappings });
        }
        Ok(())
    }
}
