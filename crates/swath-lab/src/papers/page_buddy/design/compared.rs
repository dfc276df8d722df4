//! A design: an allocator, what its page tables tell of contiguity, and a TLB.
//!
//! The paper compares four. Another crate brings its own by [`add`], before a study runs: an
//! allocator of frames (any [`FrameAllocator`]), a TLB (any [`Translate`](swath_hw::Translate)), or
//! both. From then on it is measured beside the paper's four by the studies that compare designs.

use std::sync::{Mutex, PoisonError};

use swath_arch::{Extent, Order, PhysAddr, PhysMemory, Vpn};
use swath_frame::{BestFit, BuddyConfig, FrameAllocator, HeadOfList};
use swath_hw::{Geometry, Replacement, WalkOrder};

use crate::papers::page_buddy::design::tlb_kind::TlbKind;
use crate::source::memory::{PrepareError, Random, Source};

/// The way in which a table tells of contiguity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Not at all.
    Trad,
    /// Not at all, but pages are as large as the format and the blocks' places allow.
    Large,
    /// Ascend and Descend.
    Pcad,
    /// Anchors, at the distance that suits the mapped blocks best.
    At,
}

impl Scheme {
    /// Returns true if a table tells of contiguity.
    pub const fn tells(self) -> bool {
        matches!(self, Self::Pcad | Self::At)
    }
}

/// The allocator of a design.
#[derive(Clone, Copy, Debug)]
pub enum DesignFrames {
    /// A buddy system of these orders, which takes the first node of a list.
    Buddy(BuddyConfig),
    /// The same, which takes the best node of a list.
    BestFit(BuddyConfig),
    /// One that another crate brought.
    Own(NewFrames),
}

/// Makes an allocator over frames, all of them allocated; or says why there is none.
pub type NewFrames = fn(Extent) -> Result<Box<dyn FrameAllocator>, String>;

impl DesignFrames {
    /// Returns the allocator over this memory.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn over(
        self,
        source: &Source<'_>,
        random: &mut Random,
    ) -> Result<Box<dyn FrameAllocator>, PrepareError> {
        Ok(match self {
            Self::Buddy(orders) => Box::new(source.prepare::<HeadOfList>(orders, random)?),
            Self::BestFit(orders) => Box::new(source.prepare::<BestFit>(orders, random)?),
            Self::Own(new) => source.prepare_own(new, random)?,
        })
    }
}

/// Writes page tables of a format that only another crate knows: for blocks of pages, each with the frames
/// behind it, into frames of the allocator; returns the address that its TLB is told as the root
/// ([`NewTlb`](crate::papers::page_buddy::design::NewTlb)), or says why there are none.
pub type NewTables =
    fn(&[(Vpn, Extent)], &dyn PhysMemory, &mut dyn FrameAllocator) -> Result<PhysAddr, String>;

/// The hardware that a design has of its own; a plan's machine has the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnHardware {
    /// The form of its TLB.
    pub tlb: Option<Geometry>,
    /// The choice of the entry that gives way in it.
    pub replacement: Option<Replacement>,
    /// The order of AT's two walks.
    pub order: Option<WalkOrder>,
    /// log2 of AT's anchor distance in pages.
    pub anchor_log2: Option<Order>,
}

impl OwnHardware {
    /// Nothing but the machine's.
    pub const NONE: Self = Self { tlb: None, replacement: None, order: None, anchor_log2: None };
}

/// An allocator, a way of coalescing and a TLB.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// Its name in the figures; for the paper's, the paper's.
    pub name: &'static str,
    /// The allocator.
    pub frames: DesignFrames,
    /// The way of coalescing.
    pub scheme: Scheme,
    /// The TLB; the one that belongs to the scheme if not given.
    pub tlb: Option<TlbKind>,
    /// Its page tables; those of the plan's format if not given.
    pub tables: Option<NewTables>,
    /// The hardware of its own where a plan's machine has another.
    pub own: OwnHardware,
}

impl Design {
    /// Creates one with the TLB that belongs to the scheme.
    pub const fn new(name: &'static str, frames: DesignFrames, scheme: Scheme) -> Self {
        Self { name, frames, scheme, tlb: None, tables: None, own: OwnHardware::NONE }
    }

    /// Returns the designs with these orders: [`paper`](Self::paper), then what was [added](add).
    pub fn all(bbs: BuddyConfig, pbs: BuddyConfig) -> Vec<Self> {
        let mut designs = Self::paper(bbs, pbs).to_vec();
        designs.extend(added().into_iter().map(|added| added.with(bbs, pbs)));
        designs
    }

    /// Returns the paper's four: three references on BBS memory, and PBS.
    pub const fn paper(bbs: BuddyConfig, pbs: BuddyConfig) -> [Self; 4] {
        [
            Self::new("TRAD", DesignFrames::Buddy(bbs), Scheme::Trad),
            Self::new("PCAD", DesignFrames::Buddy(bbs), Scheme::Pcad),
            Self::new("AT", DesignFrames::Buddy(bbs), Scheme::At),
            Self::new("PBS", DesignFrames::Buddy(pbs), Scheme::Pcad),
        ]
    }

    /// Returns PBS with best fit.
    pub const fn best_fit(pbs: BuddyConfig) -> Self {
        Self::new(BEST_FIT, DesignFrames::BestFit(pbs), Scheme::Pcad)
    }
}

const BEST_FIT: &str = "PBS, best fit";

/// The allocator of an added design.
#[derive(Clone, Copy, Debug)]
pub enum AddedFrames {
    /// The plan's binary buddy system.
    Bbs,
    /// The plan's page buddy system.
    Pbs,
    /// One of its own.
    Own(NewFrames),
}

/// A design that another crate brings.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// Its name in the figures.
    pub name: &'static str,
    /// Its allocator.
    pub frames: AddedFrames,
    /// The way in which its page tables tell of contiguity.
    pub scheme: Scheme,
    /// Its TLB; the one that belongs to the scheme if not given.
    pub tlb: Option<TlbKind>,
    /// Its page tables, in a format of its own, which its TLB reads; those of the plan's format if not given.
    /// Pages that come one by one, on demand, are not measured with them.
    pub tables: Option<NewTables>,
}

impl Added {
    /// Returns the design with these orders.
    pub(crate) fn with(self, bbs: BuddyConfig, pbs: BuddyConfig) -> Design {
        let frames = match self.frames {
            AddedFrames::Bbs => DesignFrames::Buddy(bbs),
            AddedFrames::Pbs => DesignFrames::Buddy(pbs),
            AddedFrames::Own(new) => DesignFrames::Own(new),
        };
        let tables = self.tables;
        Design { frames, tlb: self.tlb, tables, ..Design::new(self.name, frames, self.scheme) }
    }
}

/// Reasons why a design is not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// A design has this name already.
    #[error("there is a design {0:?} already")]
    NameTaken(&'static str),
    /// Its tables have a format of their own, and no TLB of its own reads them.
    #[error("design {0:?} has tables of its own, but no TLB that reads them")]
    NoTlb(&'static str),
}

static ADDED: Mutex<Vec<Added>> = Mutex::new(Vec::new());

/// Adds a design to the studies of this paper that compare designs, for this process.
///
/// # Errors
/// [`AddError`]; nothing is added.
pub fn add(design: Added) -> Result<(), AddError> {
    if design.tables.is_some() && design.tlb.is_none() {
        return Err(AddError::NoTlb(design.name));
    }
    let paper = Design::paper(BuddyConfig::BBS, BuddyConfig::PBS_ARMV7);
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut names = added.iter().map(|one| one.name).chain(paper.iter().map(|one| one.name));
    if design.name == BEST_FIT || names.any(|name| name == design.name) {
        return Err(AddError::NameTaken(design.name));
    }
    added.push(design);
    Ok(())
}

/// Returns the designs that were added, in their order.
pub(crate) fn added() -> Vec<Added> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        let frames = AddedFrames::Bbs;
        let of = |name| Added { name, frames, scheme: Scheme::Trad, tlb: None, tables: None };
        for name in ["TRAD", "PBS", BEST_FIT] {
            assert_eq!(add(of(name)), Err(AddError::NameTaken(name)));
        }
        let tables: Option<NewTables> = Some(|_, _, _| Err(String::new()));
        let design = Added { tables, ..of("Unread") };
        assert_eq!(add(design), Err(AddError::NoTlb("Unread")));
        assert!(added().is_empty());
    }
}
