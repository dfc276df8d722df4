//! Placement: which bank serves a request, the one thing in which the
//! bank-buddy allocators differ.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::open::{Record, Taken};
use crate::zone::bank::ranges::BankPool;

/// The numbers of the lists, as a bank's note has them.
pub(crate) const KERNEL: usize = 0;
pub(crate) const USER: usize = 1;
pub(crate) const OFFLINE: usize = 2;
/// The note of a bank without frames.
pub(crate) const ABSENT: usize = 3;

pub(crate) const POOLS: [Option<BankPool>; 4] =
    [Some(BankPool::Kernel), Some(BankPool::User), Some(BankPool::Offline), None];

/// The choice of the bank that serves a request: [`ArrayPlacement`],
/// [`ListPlacement`] or [`PoolPlacement`].
///
/// The methods are the allocator's own business: `b` is the zone's blocks, `s`
/// the storage. A rule that keeps nothing of its own leaves out the methods that tell it
/// of a change.
#[doc(hidden)]
pub trait Placement {
    /// True if it is told of each bank that may have come to serve other orders by a free.
    const BY_ORDER: bool = false;

    /// True if most calls have a bank [at hand](Self::at_hand): the search for another stands apart from
    /// what they take, where the bank is known to be one.
    const SEARCHES_APART: bool = false;

    /// Words of storage for `banks` banks with blocks up to order `top`.
    fn words(&self, _banks: usize, _top: u32) -> usize {
        0
    }

    /// Notes every bank: each is wholly free, or has no free frame. The words from `at` on are its own.
    fn build(&mut self, b: &BankBlocks, s: &mut [u64], at: usize);

    /// The zone has stopped: no bank is chosen any more.
    fn stop(&mut self) {}

    /// Its own words are kept from the number `to` on, which were from `from` on.
    fn moved(&mut self, _from: usize, _to: usize) {}

    /// A bank that serves 2^`order` frames and is found without a look at words that can be
    /// outvoted: [`Pick::Open`].
    #[inline(always)]
    fn at_hand<S: Kept + ?Sized>(
        &self,
        _b: &BankBlocks,
        _s: &S,
        _order: u32,
        _movable: bool,
    ) -> Option<usize> {
        None
    }

    /// A bank that serves 2^`order` frames where none is [at hand](Self::at_hand), and how. Open words whose blocks
    /// could serve are closed before. None once the zone has stopped, when no bank
    /// is within its reach.
    fn choose<S: Keep + ?Sized>(
        &mut self,
        b: &mut BankBlocks,
        s: &mut S,
        order: u32,
        movable: bool,
    ) -> Option<(usize, Pick)>;

    /// Returns true if a single frame comes from the open word, which lies in
    /// this bank, without a choice.
    fn keeps(&self, bank: usize, movable: bool) -> bool;

    /// A bank's trees have lost frames; returns true if words that stand more than once were looked
    /// at, of which one may have been outvoted.
    #[inline(always)]
    fn allocated<S: Keep + ?Sized>(&mut self, _b: &BankBlocks, _s: &mut S, _taken: &Taken) -> bool {
        false
    }

    /// The bank's trees have got so many frames. `record` looks at its record, which whoever does not
    /// want it does not pay for.
    #[inline]
    fn freed<S: Keep + ?Sized>(
        &mut self,
        _b: &BankBlocks,
        _s: &mut S,
        _bank: usize,
        _record: impl FnOnce(&S) -> Record,
        _frames: u32,
    ) {
    }

    /// Returns true if a bank, which is neither wholly free nor isolated and serves the same orders
    /// as before, belongs elsewhere now that its trees have got so many frames; its record is this.
    #[inline]
    fn moves(&self, _record: Record, _frames: u32) -> bool {
        false
    }

    /// As [`freed`](Self::freed), for such a bank that does not.
    #[inline]
    fn freed_some(&mut self, _bank: usize, _record: Record, _frames: u32) {}

    /// The bank, not isolated and without an open word, is about to be.
    fn isolate<S: Keep + ?Sized>(&mut self, _b: &BankBlocks, _s: &mut S, _bank: usize) {}

    /// The bank's isolation has ended.
    fn rejoin<S: Keep + ?Sized>(&mut self, _b: &BankBlocks, _s: &mut S, _bank: usize) {}

    /// Returns the pool in which the bank counts.
    fn pool<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S, bank: usize) -> Option<BankPool>;

    /// The largest order that a tree of a bank which is not isolated serves. O(B)
    /// for B banks where the rule knows no better.
    fn largest<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Option<u32> {
        let open = (0..b.count).filter(|&bank| !b.is_isolated(s, bank));
        open.fold(0, |classes, bank| classes | b.classes(s, bank)).checked_ilog2()
    }

    /// Walks its invariants.
    fn check<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Result<(), &'static str>;
}

/// Notes all banks with frames as movable memory's.
pub(crate) fn note_movable(b: &BankBlocks, s: &mut [u64]) {
    for bank in 0..b.count {
        b.set_note(s, bank, if b.frames_of(s, bank) == 0 { ABSENT } else { USER } as u32);
    }
}

/// From where in a bank a block is to come.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// The smallest that is large enough. The word of a single frame is opened:
    /// the next ones come from there, too.
    Open,
    /// The smallest that is large enough.
    Smallest,
    /// The largest is broken up.
    Largest,
}
