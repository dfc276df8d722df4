//! Looking at a space without changing it: the translation of one page, and
//! the invariants of all.

use swath_arch::{
    Attributes, BusError, Coalescing, ContiguityField, Order, PageRange, Pfn, PhysAddr, PhysMemory,
    Regime, Vpn,
};
use swath_frame::FrameAllocator;

use crate::table::contiguity::{NumberPlace, PageContiguity};
use crate::table::encode::{self, Entry, Leaf};
use crate::table::error::{SpaceFault, TranslateError};
use crate::table::line;
use crate::table::parts::compared;
use crate::table::space::{AddressSpace, first_not_canonical};
use crate::table::walk::{Below, Visit};

/// A translation, as software sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageMapping {
    /// The frame of the page asked for.
    pub frame: Pfn,
    /// The order of the page that maps it.
    pub order: Order,
    /// Its permissions and kind of memory.
    pub attributes: Attributes,
    /// True if the space allocated the frame itself and will free it.
    pub owned: bool,
    /// The neighbours of the page in its block: zero for larger pages.
    pub contiguity: PageContiguity,
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Translates a page. Reads at most l descriptors, and the word
    /// beside one or the line of one; changes nothing.
    ///
    /// # Errors
    /// [`TranslateError`].
    pub fn translate(&self, page: Vpn) -> Result<PageMapping, TranslateError> {
        let format = self.regime.format;
        if first_not_canonical(format, PageRange::new(page, 1)).is_some() {
            return Err(TranslateError::NotCanonical { page });
        }
        let found = self.view().find(page)?;
        let Entry::Leaf(leaf) = encode::decode(format, found.level, found.word) else {
            return Err(TranslateError::NotMapped { page });
        };
        let offset = page.offset_in(leaf.order.k());
        Ok(PageMapping {
            frame: leaf.frame + offset,
            order: leaf.order,
            attributes: leaf.attributes,
            owned: leaf.owned,
            contiguity: self.contiguity(page, leaf, found.at, found.word)?,
        })
    }

    /// Returns what is said of the neighbours of a page.
    fn contiguity(
        &self,
        page: Vpn,
        leaf: Leaf,
        at: PhysAddr,
        word: u64,
    ) -> Result<PageContiguity, BusError> {
        let Regime { format, coalescing, .. } = self.regime;
        if leaf.order != Order::BASE {
            return Ok(PageContiguity::default());
        }
        match coalescing {
            Coalescing::Pcad(ContiguityField::Line) => {
                let (ascend, descend) = line::contiguity(self.view(), at)?;
                return Ok(PageContiguity { ascend, descend });
            }
            Coalescing::Anchor { field: ContiguityField::Line, distance } => {
                let anchor = page.is_aligned(distance.k());
                let ascend = if anchor { line::contiguity(self.view(), at)?.0 + 1 } else { 0 };
                return Ok(PageContiguity { ascend, descend: 0 });
            }
            _ => {}
        }
        let number = |place: Option<NumberPlace>| match place {
            Some(place) => place.get(self.view(), at, word),
            None => Ok(0),
        };
        Ok(PageContiguity {
            ascend: number(NumberPlace::ascend(format, coalescing))?,
            descend: number(NumberPlace::descend(format, coalescing))?,
        })
    }

    /// Returns the fault of a table below the root: its number of entries, or
    /// that it is kept for nothing.
    fn check_table(&self, below: Below) -> Option<SpaceFault> {
        let view = self.view();
        let Below { level, link, kept, in_use, .. } = below;
        if level == 0 || !view.has_half(level - 1) {
            return None;
        }
        if kept {
            let right = self.kept_is_right(level - 1, link);
            return match right {
                Ok(true) => None,
                Ok(false) => Some(SpaceFault::Kept { entry: link }),
                Err(bus) => Some(SpaceFault::Bus(bus)),
            };
        }
        match view.read(view.half(level - 1, link)) {
            Ok(said) if said == in_use => None,
            Ok(said) => Some(SpaceFault::Occupancy { link, said, in_use }),
            Err(bus) => Some(SpaceFault::Bus(bus)),
        }
    }

    /// Walks every invariant, in one reading of every entry of every table.
    ///
    /// # Errors
    /// [`SpaceFault`]: the first thing wrong.
    pub fn check(&self) -> Result<(), SpaceFault> {
        let format = self.regime.format;
        let anchors = matches!(self.regime.coalescing, Coalescing::Anchor { .. });
        let mut wrong: Option<SpaceFault> = None;
        let mut reached = self.view().table_order(0).frames();
        let mut last_frame = None;
        // The run of base pages that ends before `next`: its start, its
        // frames' distance from its pages, and how far its pages' claims
        // reach.
        let (mut start, mut next, mut delta) = (0, 0, 0);
        let (mut claimed, mut claimant) = (0, Vpn::new(0));
        let visited = self.view().visit(|visit| match visit {
            Visit::Table(below) => {
                if last_frame != Some(below.table.frame()) {
                    reached += self.view().table_order(below.level).frames();
                }
                last_frame = Some(below.table.frame());
                if let Some(error) = self.check_table(below) {
                    wrong.get_or_insert(error);
                }
            }
            Visit::Leaf { level, at, page, leaf, word } => {
                let entry_order = self.view().entry_order(level);
                let within = page.offset_in(leaf.order.k());
                let expected = encode::leaf(format, level, leaf)
                    + (within >> entry_order.k()) * encode::copy_step(format, entry_order);
                let head = self.view().find(Vpn::new(page.raw() - within)).map(|f| f.word);
                let alike = match head {
                    Ok(head) => encode::decode(format, level, head) == Entry::Leaf(leaf),
                    Err(_) => false,
                };
                let differs = (word ^ expected) & compared(format) != 0;
                if leaf.order != Order::BASE && (differs || !alike) {
                    wrong.get_or_insert(SpaceFault::Copies { page });
                }
                let said = self.contiguity(page, leaf, at, word).unwrap_or_default();
                let frame = leaf.frame.raw() + within;
                let base = leaf.order == Order::BASE;
                let goes_on = base
                    && next == page.raw()
                    && frame.wrapping_sub(page.raw()) == delta
                    && page.raw() != start;
                if !goes_on {
                    if claimed > next {
                        wrong.get_or_insert(SpaceFault::Contiguity { page: claimant });
                    }
                    (start, claimed) = (page.raw(), 0);
                    delta = frame.wrapping_sub(page.raw());
                }
                // A run of one larger page never goes on.
                next = if base { page.raw() + 1 } else { 0 };
                let claim = match (base, anchors) {
                    (false, _) => 0,
                    (true, true) => page.raw() + said.ascend,
                    (true, false) => page.raw() + 1 + said.ascend,
                };
                if claim > claimed {
                    (claimed, claimant) = (claim, page);
                }
                if said.descend > page.raw() - start {
                    wrong.get_or_insert(SpaceFault::Contiguity { page });
                }
            }
        });
        visited.map_err(SpaceFault::Bus)?;
        if claimed > next {
            wrong.get_or_insert(SpaceFault::Contiguity { page: claimant });
        }
        if reached != self.table_frames {
            wrong.get_or_insert(SpaceFault::TableFrames { reached, taken: self.table_frames });
        }
        wrong.map_or(Ok(()), Err)
    }
}
