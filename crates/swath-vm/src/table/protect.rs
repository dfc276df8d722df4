//! Ranges of a space made for superpages: what their pages permit, and the
//! superpages that lie across their ends.

use swath_arch::{Attributes, BusError, PageRange, PhysAddr, PhysMemory, Vpn};
use swath_frame::FrameAllocator;

use crate::table::encode::{self, Entry, Kind, Leaf};
use crate::table::error::DemoteError;
use crate::table::flush::Flush;
use crate::table::parts::Parts;
use crate::table::space::{AddressSpace, first_not_canonical};

/// A page that is mapped, of any size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    /// Its first base page.
    pub(crate) page: Vpn,
    pub(crate) level: usize,
    /// Its first entry.
    pub(crate) at: PhysAddr,
    pub(crate) leaf: Leaf,
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Changes what the pages of the range permit, of those that are mapped:
    /// `change` is given what each page permits now. Superpages that lie in the
    /// range in part are [`split`](Self::split) first; the others change as a
    /// whole, and the table kept for them becomes stale. Returns how many
    /// entries or joined pages changed. Two walks of l - 1 reads, one per table,
    /// and a read and a write per entry in use.
    ///
    /// # Errors
    /// [`DemoteError`]: what no page permits has changed, except after
    /// [`Bus`](DemoteError::Bus), where the pages before the address that did
    /// not answer have changed, and the TLBs know.
    pub fn protect(
        &mut self,
        range: PageRange,
        mut change: impl FnMut(Attributes) -> Attributes,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<u64, DemoteError> {
        self.split(range, invalidate)?;
        let mut changed: Option<(Vpn, Vpn)> = None;
        let mut count = 0;
        let mut near = None;
        let mut page = range.start;
        let result = loop {
            let found = match self.next_mapped(&mut near, page, range.end()) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(bus) => break Err(bus),
            };
            let Mapped { page: head, level, at, leaf } = found;
            page = head + leaf.order.frames();
            let said = Leaf { attributes: change(leaf.attributes), ..leaf };
            if said == leaf {
                continue;
            }
            let entry_order = self.view().entry_order(level);
            let entries = leaf.order.frames() >> entry_order.k();
            let new = Parts::new(self.regime.format, level, entry_order, said, entries);
            let written = if entries == 1 {
                self.write(at, new.word(0))
            } else {
                let old = Parts::new(self.regime.format, level, entry_order, leaf, entries);
                let range = PageRange::new(head, leaf.order.frames());
                self.replace(at, &old, &new, Flush { range, links_changed: false }, invalidate)
            };
            if let Err(bus) = written {
                break Err(bus);
            }
            count += 1;
            changed = Some((changed.map_or(head, |(first, _)| first), page));
        };
        if let Some((first, end)) = changed {
            let range = PageRange::new(first, end - first);
            invalidate(Flush { range, links_changed: false });
        }
        result.map(|()| count).map_err(DemoteError::Bus)
    }

    /// Demotes the superpages that lie in the range in part, at its two ends,
    /// until none does: what follows ([`unmap`](Self::unmap)) meets whole pages.
    ///
    /// # Errors
    /// [`DemoteError`]; what every page permits and where it leads is as before.
    pub fn split(
        &mut self,
        range: PageRange,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<(), DemoteError> {
        while let Some(page) = self.crossing(range)? {
            self.demote(page, invalidate)?;
        }
        Ok(())
    }

    /// Returns a page at one end of the range whose superpage lies in it in part.
    pub(crate) fn crossing(&self, range: PageRange) -> Result<Option<Vpn>, DemoteError> {
        if self.sizes.is_none() {
            return Err(DemoteError::NotForSuperpages);
        }
        if range.is_empty() {
            return Ok(None);
        }
        if let Some(page) = first_not_canonical(self.regime.format, range) {
            return Err(DemoteError::NotCanonical { page });
        }
        let last = Vpn::new(range.end().raw() - 1);
        for page in [range.start, last] {
            let found = self.view().find(page)?;
            if let Kind::Leaf(order) = encode::kind(self.regime.format, found.level, found.word) {
                let head = page.raw() & !(order.frames() - 1);
                if head < range.start.raw() || order.frames() > range.end().raw() - head {
                    return Ok(Some(page));
                }
            }
        }
        Ok(None)
    }

    /// Returns the first page mapped from `page` on and before `end`; a superpage that
    /// holds `page` counts from its own first page. `near` keeps the leaf table
    /// from one call to the next.
    pub(crate) fn next_mapped(
        &self,
        near: &mut Option<(u64, PhysAddr)>,
        page: Vpn,
        end: Vpn,
    ) -> Result<Option<Mapped>, BusError> {
        let view = self.view();
        let leaf_level = view.leaf_level();
        let mut page = page.raw();
        while page < end.raw() {
            let index = view.index(leaf_level, Vpn::new(page));
            let (level, at, word) = match *near {
                Some((tag, table)) if tag == page - index => {
                    let at = view.entry(table, index);
                    (leaf_level, at, view.read(at)?)
                }
                _ => {
                    let found = view.find(Vpn::new(page))?;
                    if found.level == leaf_level {
                        let offset = index * view.format().entry_bytes();
                        *near = Some((page - index, PhysAddr::new(found.at.raw() - offset)));
                    }
                    (found.level, found.at, found.word)
                }
            };
            let entry_order = view.entry_order(level);
            if let Entry::Leaf(leaf) = encode::decode(view.format(), level, word) {
                let head = page & !(leaf.order.frames() - 1);
                let within = (page - head) >> entry_order.k();
                let at = PhysAddr::new(at.raw() - within * view.format().entry_bytes());
                return Ok(Some(Mapped { page: Vpn::new(head), level, at, leaf }));
            }
            let Some(next) = (page & !(entry_order.frames() - 1)).checked_add(entry_order.frames())
            else {
                break;
            };
            page = next;
        }
        Ok(None)
    }
}
