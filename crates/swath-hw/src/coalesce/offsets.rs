//! Prediction of offsets: a TLB miss goes on with a guessed frame, and the walk finds out.
//!
//! Alverti et al., *Enhancing and Exploiting Contiguity for Fast Memory Virtualization* (ISCA 2020,
//! SpOT): where runs are long, the distance from a page to its frame is mostly what it was at the miss
//! before. A table remembers it with a confidence of two bits; a prediction is made where that is 2 or 3.
//! After the walk the confidence goes up by one if the distance was the same, else down by one, and at 0
//! the distance is learnt anew. Theirs is indexed by the instruction; accesses of devices have none, so
//! this one is indexed by the region of virtual memory. Theirs learns only of runs from a length on, which
//! the system marks; this one learns of all.
//!
//! It has no time: what a wrong guess costs is the reader's to say.

use alloc::boxed::Box;
use alloc::vec;

use swath_arch::{PhysMemory, Regime, VirtAddr};

use crate::tlb::geometry::{Geometry, Replacement};
use crate::translate::miss::{TlbOutcome, TranslatedAccess, WalkOrder};
use crate::translate::mmu::{Mmu, MmuStats};
use crate::translate::regime::MmuConfigError;
use crate::translate::walker::TranslationFault;

/// The confidence from which on a prediction is made.
const SURE: u8 = 2;

/// The highest confidence.
const SUREST: u8 = 3;

/// The part that a prediction had in an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OffsetOutcome {
    /// The TLB had the page.
    Hit,
    /// A right prediction hid the walk.
    Right,
    /// A wrong prediction was undone after the walk.
    Wrong,
    /// No prediction was made: the access waited for the walk.
    Waited,
}

/// The counters of predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffsetStats {
    /// The TLB and its walks.
    pub mmu: MmuStats,
    /// Misses that a right prediction hid.
    pub right: u64,
    /// Misses with a wrong prediction.
    pub wrong: u64,
}

/// A distance that was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    region: u64,
    /// Frame minus page, wrapping.
    offset: u64,
    confidence: u8,
}

/// A TLB with a table of offsets.
///
/// Invariant: the table has a power of two of entries, at least one.
#[derive(Clone, Debug)]
pub struct OffsetPrediction {
    mmu: Mmu,
    table: Box<[Seen]>,
    region_log2: u32,
    right: u64,
    wrong: u64,
}

impl OffsetPrediction {
    /// Creates one with an empty TLB and `2^entries_log2` offsets (at most 2^16) for regions of
    /// `2^region_log2` pages. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub fn new(
        regime: Regime,
        geometry: Geometry,
        entries_log2: u32,
        region_log2: u32,
    ) -> Result<Self, MmuConfigError> {
        let mmu = Mmu::new(regime, geometry, WalkOrder::default())?;
        let table = vec![Seen::default(); 1 << entries_log2.min(16)].into();
        Ok(Self { mmu, table, region_log2: region_log2.min(52), right: 0, wrong: 0 })
    }

    /// Replaces the TLB's entries so from now on.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.mmu = self.mmu.replacing(replacement);
        self
    }

    /// Translates `addr`; the address is the walk's, whatever was predicted. O(1) beside the walk.
    ///
    /// # Errors
    /// The [`TranslationFault`] of the page; nothing is filled or learnt then.
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<(TranslatedAccess, OffsetOutcome), TranslationFault> {
        let access = self.mmu.access(addr, memory)?;
        if let TlbOutcome::Hit(_) = access.outcome {
            return Ok((access, OffsetOutcome::Hit));
        }
        let page = addr.page().raw();
        let region = page >> self.region_log2;
        let offset = access.addr.frame().raw().wrapping_sub(page);
        let place = region as usize & (self.table.len() - 1);
        let seen = &mut self.table[place];
        let is_same = seen.region == region && seen.offset == offset;
        let outcome = match (seen.region == region && seen.confidence >= SURE, is_same) {
            (false, _) => OffsetOutcome::Waited,
            (true, true) => OffsetOutcome::Right,
            (true, false) => OffsetOutcome::Wrong,
        };
        self.right += u64::from(outcome == OffsetOutcome::Right);
        self.wrong += u64::from(outcome == OffsetOutcome::Wrong);
        if is_same {
            seen.confidence = (seen.confidence + 1).min(SUREST);
        } else {
            seen.confidence = seen.confidence.saturating_sub(1);
            if seen.confidence == 0 {
                *seen = Seen { region, offset, confidence: 1 };
            }
        }
        Ok((access, outcome))
    }

    /// Returns the counters.
    pub const fn stats(&self) -> OffsetStats {
        OffsetStats { mmu: self.mmu.stats(), right: self.right, wrong: self.wrong }
    }
}
