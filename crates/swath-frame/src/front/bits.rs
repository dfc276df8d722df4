//! The bits of the frames that are the front's, and of those of them that users hold.

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

// A bit only counts who holds a frame. What a user wrote into the frame is
// ordered by the locks that the frame passes through on its way.
use core::sync::atomic::Ordering::Relaxed;

/// Frames for each word of bits.
pub(super) const BITS: u64 = usize::BITS as u64;

/// Two words for each `BITS` frames of the span: a bit for each frame that a user holds, and one
/// for each that is the front's. What is not the front's is held, too, so that a single bit says
/// whether a frame may go out.
#[derive(Clone, Copy)]
pub(super) struct Bits<'m>(pub(super) &'m [[AtomicUsize; 2]]);

impl Bits<'_> {
    /// The words of a frame's bits and the bit in them.
    #[inline]
    pub(super) fn at(&self, index: u64) -> Option<(&[AtomicUsize; 2], usize)> {
        let words = self.0.get(usize::try_from(index / BITS).ok()?)?;
        Some((words, 1 << (index % BITS)))
    }

    pub(super) fn is_owned(&self, index: u64) -> bool {
        self.at(index).is_some_and(|([_, owned], bit)| owned.load(Relaxed) & bit != 0)
    }

    /// Returns true if the frame is the front's and no user holds it.
    pub(super) fn is_free(&self, index: u64) -> bool {
        self.is_owned(index)
            && self.at(index).is_some_and(|([used, _], bit)| used.load(Relaxed) & bit == 0)
    }

    /// Notes that a user holds a frame; returns false if one did, or it is not the front's.
    #[inline]
    pub(super) fn take(&self, index: u64) -> bool {
        self.at(index).is_some_and(|([used, _], bit)| used.fetch_or(bit, Relaxed) & bit == 0)
    }

    /// Notes that no user holds a frame any more; returns false if none did, or if it is not the
    /// front's: then [`take`](Self::take) has to note again that it is held.
    #[inline]
    pub(super) fn give(&self, index: u64) -> bool {
        let Some(([used, owned], bit)) = self.at(index) else { return false };
        // With nothing before it, the first step is one instruction on x86-64.
        let held = used.fetch_and(!bit, Relaxed) & bit != 0;
        held && owned.load(Relaxed) & bit != 0
    }

    /// The words of the bits `start..end` and the bits in each, as far as the
    /// span reaches.
    pub(super) fn words(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, &[AtomicUsize; 2], usize)> {
        let first = usize::try_from(start / BITS).unwrap_or(usize::MAX);
        let words = self.0.get(first..).unwrap_or_default().iter();
        words.zip((start / BITS..end.div_ceil(BITS)).map(|i| i * BITS)).map(move |(words, base)| {
            let mut bits = usize::MAX << start.saturating_sub(base);
            if end - base < BITS {
                bits &= (1 << (end - base)) - 1;
            }
            (base, words, bits)
        })
    }

    /// Makes the frames `start..end` the front's, held by no user.
    pub(super) fn own_range(&self, start: u64, end: u64) {
        for (_, [used, owned], bits) in self.words(start, end) {
            used.fetch_and(!bits, Relaxed);
            owned.fetch_or(bits, Relaxed);
        }
    }

    /// As [`take`](Self::take) for the frames `start..end`; notes all of them.
    pub(super) fn take_range(&self, start: u64, end: u64) -> bool {
        let (mut free, mut covered) = (true, start);
        for (base, [used, _], bits) in self.words(start, end) {
            free &= used.fetch_or(bits, Relaxed) & bits == 0;
            covered = end.min(base + BITS);
        }
        free && covered == end
    }

    /// As [`give`](Self::give) for the frames `start..end` if users hold them all; otherwise
    /// leaves them all as they were and says which is the first that none holds.
    pub(super) fn give_range(&self, start: u64, end: u64) -> Result<(), u64> {
        let mut covered = start;
        for (base, [used, owned], bits) in self.words(start, end) {
            let own = bits & owned.load(Relaxed);
            let held = own & used.fetch_and(!own, Relaxed);
            let missing = bits & !held;
            if missing != 0 {
                used.fetch_or(held, Relaxed);
                self.take_range(start, base.max(start));
                return Err(base + u64::from(missing.trailing_zeros()));
            }
            covered = end.min(base + BITS);
        }
        if covered < end {
            self.take_range(start, covered);
            return Err(covered);
        }
        Ok(())
    }

    /// Counts the front's frames, and those of them that users hold.
    pub(super) fn count(&self) -> (u64, u64) {
        let ones = |word: usize| u64::from(word.count_ones());
        self.0.iter().fold((0, 0), |(all, held), [used, owned]| {
            let own = owned.load(Relaxed);
            (all + ones(own), held + ones(own & used.load(Relaxed)))
        })
    }
}
