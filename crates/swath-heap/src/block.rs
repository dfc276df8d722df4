//! Boundary tags: the two words in memory at the border of two blocks.
//!
//! ```text
//!        b                  b+16 (payload)                     n = b+size
//!   ─────┬─────────┬────────┬────────┬────────┬─ ─ ─ ─ ─ ─ ─ ─┬─────────┬──────
//!        │ before  │ header │ next   │ prev   │               │ before  │ header
//!   ─────┴─────────┴────────┴────────┴────────┴─ ─ ─ ─ ─ ─ ─ ─┴─────────┴──────
//!          tag of b           links, while b is free            tag of n
//! ```
//!
//! (For words of 8 bytes; all distances halve with words of 4.) A **tag** is
//! two words on a multiple of [`GRANULE_BYTES`], so it never crosses a page.
//! Its second word is the header of the block that starts there: the size and
//! the flags. Its first word belongs to the block that ends there: while that
//! one is free it holds its address, while it is used it is the last word of
//! its payload. A used block so costs one word.
//!
//! [`Block`] is the only place where the crate reads and writes pool memory.

use core::mem::size_of;
use core::ptr::NonNull;

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = size_of::<usize>();

/// Every block starts at and takes a multiple of this many bytes: two words,
/// the alignment that every allocation has.
pub const GRANULE_BYTES: usize = 2 * WORD_BYTES;

/// log2 of [`GRANULE_BYTES`].
pub(crate) const GRANULE_SHIFT: u32 = GRANULE_BYTES.trailing_zeros();

/// Bytes that a used block takes beyond its payload: one word.
pub const HEADER_BYTES: usize = WORD_BYTES;

/// Bytes of the smallest block: its tag and its links when it is free.
pub const MIN_BLOCK_BYTES: usize = 2 * GRANULE_BYTES;

/// The block is free.
pub(crate) const FREE: usize = 1;
/// The block before this one is free, and `before` says where it starts.
pub(crate) const PREV_FREE: usize = 2;

/// Bits of a header that a seal takes: the upper 16 where words have 64 bits.
/// There is no room for one in smaller words.
pub(crate) const SEAL_BITS: u32 = if usize::BITS >= 64 { 16 } else { 0 };
/// Bits of a header that hold the seal.
pub(crate) const SEAL_MASK: usize = if SEAL_BITS == 0 { 0 } else { !(usize::MAX >> SEAL_BITS) };
/// Bits of a header that hold the size.
pub(crate) const SIZE_MASK: usize = !SEAL_MASK & !(GRANULE_BYTES - 1);

/// No block may be this long or longer: its size has to fit beside the seal.
pub(crate) const BLOCK_BYTES_END: usize = 1 << (usize::BITS - SEAL_BITS - 1);

/// The border at which a block starts.
///
/// Invariants, which [`Block::at`] demands of its caller and all methods
/// rely on for as long as the value is used:
/// * the address is a multiple of [`GRANULE_BYTES`], and the tag there lies in
///   a pool of the heap and may be accessed (its page is committed);
/// * the pointer's provenance covers that pool;
/// * the header is the heap's alone. `before` is so too while the block before
///   is free, and the links while this one is; the methods for these are called
///   in that state only.
///
/// Values are kept across calls of the heap only as links of free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Block(NonNull<usize>);

impl Block {
    /// # Safety
    /// The invariants of the type hold of `at`.
    #[inline(always)]
    pub(crate) unsafe fn at(at: NonNull<u8>) -> Self {
        Self(at.cast())
    }

    /// The border `len_bytes` further on.
    ///
    /// # Safety
    /// The invariants of the type hold of it; it lies in the same pool.
    #[inline(always)]
    pub(crate) unsafe fn after(self, len_bytes: usize) -> Self {
        // SAFETY: both borders lie in one pool, so the sum does not leave it.
        Self(unsafe { self.0.byte_add(len_bytes) })
    }

    #[inline(always)]
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    #[inline(always)]
    pub(crate) fn start(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// Returns the address that the user gets.
    #[inline(always)]
    pub(crate) fn payload(self) -> NonNull<u8> {
        // SAFETY: a border has its tag of one granule in the pool, so its end
        // is at most one past the pool's.
        unsafe { self.0.cast().byte_add(GRANULE_BYTES) }
    }

    /// The word at `index` of the block's four.
    ///
    /// The pointer is in bounds of the pool for the tag (0 and 1), and for the
    /// links (2 and 3) of a free block, which has at least four words.
    #[inline(always)]
    fn word(self, index: usize) -> *mut usize {
        self.0.as_ptr().wrapping_add(index)
    }

    #[inline(always)]
    pub(crate) fn header(self) -> usize {
        // SAFETY: by the type's invariants the tag is ours, in bounds, aligned
        // to a granule and therefore to a word.
        unsafe { self.word(1).read() }
    }

    #[inline(always)]
    pub(crate) fn set_header(self, header: usize) {
        // SAFETY: as for `header`; no reference to pool memory exists.
        unsafe { self.word(1).write(header) }
    }

    /// The free block that ends here, as the tag has it; `None` for a word
    /// that is no address at all.
    #[inline(always)]
    pub(crate) fn before(self) -> Option<Block> {
        // SAFETY: as for `header`. The word was written by `set_before`, or is
        // checked by the caller before it is used; any word is a valid
        // `Option<NonNull>`.
        unsafe { self.word(0).cast::<Option<Block>>().read() }
    }

    #[inline(always)]
    pub(crate) fn set_before(self, before: Block) {
        // SAFETY: as for `header`; called only where the block that ends here
        // is or becomes free, so its last word is not a user's.
        unsafe { self.word(0).cast::<Option<Block>>().write(Some(before)) }
    }

    /// The next block of the list.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<Block> {
        // SAFETY: called on free blocks only, whose links are the heap's, in
        // bounds and aligned; any word is a valid `Option<NonNull>`.
        unsafe { self.word(2).cast::<Option<Block>>().read() }
    }

    #[inline(always)]
    pub(crate) fn set_next(self, next: Option<Block>) {
        // SAFETY: as for `next`.
        unsafe { self.word(2).cast::<Option<Block>>().write(next) }
    }

    /// The previous block of the list.
    #[inline(always)]
    pub(crate) fn prev(self) -> Option<Block> {
        // SAFETY: as for `next`.
        unsafe { self.word(3).cast::<Option<Block>>().read() }
    }

    #[inline(always)]
    pub(crate) fn set_prev(self, prev: Option<Block>) {
        // SAFETY: as for `next`.
        unsafe { self.word(3).cast::<Option<Block>>().write(prev) }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    extern crate std;

    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    /// The words of a block of the smallest size.
    #[repr(C, align(16))]
    #[derive(Clone)]
    struct Words([usize; 4]);

    /// Returns blocks of the smallest size in memory of their own, which is never given back.
    pub(crate) fn blocks(count: usize) -> Vec<Block> {
        let memory = Box::leak(std::vec![Words([0; 4]); count].into_boxed_slice());
        // SAFETY: each is a multiple of a granule, and its four words are nobody else's for ever.
        memory.iter_mut().map(|words| unsafe { Block::at(NonNull::from(words).cast()) }).collect()
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    /// The layout that the head of the file draws: no word is another's.
    #[test]
    fn each_word_of_a_block_is_its_own() {
        let [block, other] = *testing::blocks(2) else { unreachable!("two blocks") };
        assert_eq!(other.address() - block.address(), MIN_BLOCK_BYTES);
        let word = |index: usize| {
            // SAFETY: one of the block's four words.
            unsafe { block.start().cast::<usize>().add(index).read() }
        };
        let mut expected = [0; 4];
        let check = |expected: [usize; 4]| assert_eq!([0, 1, 2, 3].map(word), expected);
        check(expected);
        block.set_header(77 | FREE);
        expected[1] = 77 | FREE;
        check(expected);
        assert_eq!(block.header(), 77 | FREE);
        assert_eq!((block.before(), block.next(), block.prev()), (None, None, None));
        block.set_before(other);
        expected[0] = other.address();
        check(expected);
        assert_eq!((block.before(), block.next(), block.prev()), (Some(other), None, None));
        block.set_next(Some(block));
        expected[2] = block.address();
        check(expected);
        assert_eq!((block.next(), block.prev()), (Some(block), None));
        block.set_prev(Some(other));
        expected[3] = other.address();
        check(expected);
        assert_eq!((block.before(), block.prev()), (Some(other), Some(other)));
        block.set_next(None);
        expected[2] = 0;
        check(expected);
        assert_eq!((block.next(), block.prev()), (None, Some(other)));
    }

    #[test]
    fn a_block_leads_to_its_payload_and_the_next() {
        let [block, other] = *testing::blocks(2) else { unreachable!("two blocks") };
        // SAFETY: it lies in the same memory.
        assert_eq!(unsafe { block.after(MIN_BLOCK_BYTES) }, other);
        assert_eq!(block.start().addr().get(), block.address());
        assert_eq!(block.payload().addr().get(), block.address() + GRANULE_BYTES);
    }

    /// Seal, size and flags share a header without a bit in common.
    #[test]
    fn a_header_has_room_for_seal_size_and_flags() {
        assert_eq!(WORD_BYTES * 8, usize::BITS as usize);
        assert_eq!((GRANULE_BYTES, HEADER_BYTES), (2 * WORD_BYTES, WORD_BYTES));
        assert_eq!((MIN_BLOCK_BYTES, 1 << GRANULE_SHIFT), (4 * WORD_BYTES, GRANULE_BYTES));
        assert_eq!(SEAL_MASK.count_ones(), SEAL_BITS);
        assert_eq!(SEAL_MASK.leading_ones(), SEAL_BITS);
        assert_eq!(SIZE_MASK ^ SEAL_MASK, usize::MAX << GRANULE_SHIFT);
        assert_eq!(SIZE_MASK & SEAL_MASK, 0);
        assert_eq!([FREE, PREV_FREE], [1, 2], "below the shortest granule, of 8 bytes");
        assert_eq!(SEAL_BITS, if usize::BITS == 64 { 16 } else { 0 });
        // A size may take one bit less than there is room for.
        assert_eq!(BLOCK_BYTES_END.trailing_zeros(), usize::BITS - SEAL_BITS - 1);
        assert!(BLOCK_BYTES_END.is_power_of_two());
    }
}
