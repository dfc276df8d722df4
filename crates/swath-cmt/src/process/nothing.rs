//! Blocks of no bytes: places of 16 in the chunk before the arena, where every access faults.
//!
//! A bit says that a place is in use. The next one is looked for from the word after the last one's on, so that a place
//! comes again late.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

use swath_pool::{BufferFreeError, SLOT_BYTES_MIN};

use crate::source::chunk::CHUNK_BYTES;

/// Words of bits: 16,384 places.
const WORDS: usize = 256;
/// Words that one request looks at.
const TRIED: usize = 8;
/// Bytes of all places.
const PLACES_BYTES: usize = WORDS * 64 * SLOT_BYTES_MIN;

const _: () = assert!(PLACES_BYTES <= CHUNK_BYTES);

/// The process's blocks of no bytes.
pub(crate) struct Nothing {
    /// Address of the first place.
    first: usize,
    used: [AtomicU64; WORDS],
    /// The word that the next request looks at first.
    next: AtomicUsize,
}

impl Nothing {
    /// Makes the places of an arena that begins at this address, before which a chunk faults.
    pub(crate) const fn before(arena: usize) -> Self {
        Self {
            first: arena - CHUNK_BYTES,
            used: [const { AtomicU64::new(0) }; WORDS],
            next: AtomicUsize::new(0),
        }
    }

    /// Allocates a place; `None` if the words looked at have none.
    pub(crate) fn allocate(&self) -> Option<NonNull<u8>> {
        let from = self.next.load(Relaxed);
        (from..from + TRIED).find_map(|index| {
            let index = index % WORDS;
            let take = |used: u64| (used != u64::MAX).then(|| used | (used + 1));
            // Nothing is written to a place, so nothing has to come before or after.
            let used = self.used[index].fetch_update(Relaxed, Relaxed, take).ok()?;
            self.next.store((index + 1) % WORDS, Relaxed);
            let place = 64 * index + used.trailing_ones() as usize;
            NonNull::new(ptr::without_provenance_mut(self.first + place * SLOT_BYTES_MIN))
        })
    }

    /// The word and the bit of the place that a pointer leads to; none if it leads elsewhere.
    fn find(&self, block: NonNull<u8>) -> Option<Result<(&AtomicU64, u64), BufferFreeError>> {
        let address = block.addr().get();
        let offset = address.wrapping_sub(self.first);
        let used = self.used.get(offset / (64 * SLOT_BYTES_MIN))?;
        let bit = 1 << (offset / SLOT_BYTES_MIN % 64);
        let aligned = offset.is_multiple_of(SLOT_BYTES_MIN);
        Some(if aligned { Ok((used, bit)) } else { Err(BufferFreeError::Misaligned { address }) })
    }

    /// Returns that a pointer is one of a block of no bytes in use, or why not; `None` if it leads elsewhere.
    pub(crate) fn look(&self, block: NonNull<u8>) -> Option<Result<(), BufferFreeError>> {
        let free = BufferFreeError::NotAllocated { address: block.addr().get() };
        Some(
            self.find(block)?.and_then(|(used, bit)| {
                if used.load(Relaxed) & bit == 0 { Err(free) } else { Ok(()) }
            }),
        )
    }

    /// Frees a block of no bytes; `None` if the pointer leads elsewhere. Any pointer may be tried.
    pub(crate) fn free(&self, block: NonNull<u8>) -> Option<Result<(), BufferFreeError>> {
        let free = BufferFreeError::NotAllocated { address: block.addr().get() };
        Some(self.find(block)?.and_then(|(used, bit)| {
            if used.fetch_and(!bit, Relaxed) & bit == 0 { Err(free) } else { Ok(()) }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ARENA: usize = 5 * CHUNK_BYTES;

    #[test]
    fn places_are_handed_out_once_and_late_again() {
        let nothing = Nothing::before(ARENA);
        let first = nothing.allocate().expect("a place");
        assert_eq!(first.addr().get(), ARENA - CHUNK_BYTES);
        assert_eq!((nothing.look(first), nothing.free(first)), (Some(Ok(())), Some(Ok(()))));
        let free = Some(Err(BufferFreeError::NotAllocated { address: first.addr().get() }));
        assert_eq!((nothing.look(first), nothing.free(first)), (free, free));
        assert!((1..WORDS).all(|_| nothing.allocate() != Some(first)));
        let mut all = BTreeSet::new();
        while let Some(place) = nothing.allocate() {
            assert!(all.insert(place), "{place:?} twice");
            assert!(
                (ARENA - CHUNK_BYTES..ARENA - CHUNK_BYTES + PLACES_BYTES)
                    .contains(&place.addr().get())
            );
            assert_eq!(place.addr().get() % SLOT_BYTES_MIN, 0);
        }
        assert_eq!(all.len(), 64 * WORDS - (WORDS - 1));
        assert!(all.contains(&first));
        assert!(all.iter().all(|&place| nothing.free(place) == Some(Ok(()))));
    }

    #[test]
    fn other_pointers_are_told_apart() {
        let nothing = Nothing::before(ARENA);
        let block = nothing.allocate().expect("a place");
        let at = |address| NonNull::new(ptr::without_provenance_mut(address)).expect("not null");
        let inside = block.addr().get() + 1;
        let misaligned = Some(Err(BufferFreeError::Misaligned { address: inside }));
        assert_eq!((nothing.look(at(inside)), nothing.free(at(inside))), (misaligned, misaligned));
        for outside in [1, ARENA - CHUNK_BYTES - 16, ARENA - CHUNK_BYTES + PLACES_BYTES, ARENA] {
            assert_eq!((nothing.look(at(outside)), nothing.free(at(outside))), (None, None));
        }
        assert_eq!(nothing.free(block), Some(Ok(())));
    }
}
