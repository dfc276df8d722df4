//! Large blocks of programs, by `malloc` and by `cmt_malloc` (Zhang, Lu and Zhang, section 5.3,
//! Fig. 7).

#![allow(unsafe_code, reason = "writes to blocks of a C allocator: each with its proof")]

use std::ptr::NonNull;

use crate::papers::clmalloc::allocator::{Cmt, Heap, Libc};
use crate::papers::clmalloc::rounds::{Times, in_turn, on_threads};

const PAGE_BYTES: usize = 4096;

/// A block with its length and the word that marks it.
struct Block {
    at: NonNull<u8>,
    len: usize,
    tag: u64,
}

impl Block {
    fn word(&self, offset: usize) -> *mut u64 {
        self.at.as_ptr().wrapping_add(offset).cast()
    }

    fn offsets(&self, every_page: bool) -> impl Iterator<Item = usize> + use<> {
        let inner = if every_page { self.len } else { 1 };
        (0..inner).step_by(PAGE_BYTES).chain([self.len - 8])
    }

    fn write(&self, every_page: bool) {
        for offset in self.offsets(every_page) {
            // SAFETY: a word of this block, which is in use and aligned to 16; lengths are whole words.
            unsafe { self.word(offset).write(self.tag ^ offset as u64) };
        }
    }

    /// The sum of the words that were written, or `None` if any of them has changed.
    fn read(&self, every_page: bool) -> Option<u64> {
        let mut sum = 0_u64;
        for offset in self.offsets(every_page) {
            // SAFETY: as in `write`, which wrote it.
            let word = unsafe { self.word(offset).read() };
            if word != self.tag ^ offset as u64 {
                return None;
            }
            sum = sum.wrapping_add(word);
        }
        Some(sum)
    }
}

/// One thread's requests: each takes the place of the one made `live` before, which is read and
/// freed. The sum of all words that were read; `None` if a block was refused or has changed.
fn requests<H: Heap>(sizes: &[usize], live: usize, every_page: bool) -> Option<u64> {
    let mut blocks: Vec<Option<Block>> = (0..live).map(|_| None).collect();
    let mut sum = Some(0_u64);
    let mut free = |place: &mut Option<Block>| {
        if let Some(block) = place.take() {
            sum = sum.zip(block.read(every_page)).map(|(sum, read)| sum.wrapping_add(read));
            // SAFETY: of this allocator, and taken out of its place.
            unsafe { H::free_bytes(block.at) };
        }
    };
    for (nth, &len) in sizes.iter().enumerate() {
        let place = &mut blocks[nth % live];
        free(place);
        let block = Block { at: H::allocate_bytes(len)?, len, tag: (nth as u64) << 32 };
        block.write(every_page);
        *place = Some(block);
    }
    blocks.iter_mut().for_each(free);
    sum
}

/// All threads' requests: nanoseconds and the sum.
///
/// # Errors
/// As [`times`].
pub(crate) fn run<H: Heap>(
    parts: &[Vec<usize>],
    live: usize,
    every_page: bool,
) -> Result<(f64, u64), String> {
    let (ns, sums) = on_threads(parts, |sizes| requests::<H>(sizes, live, every_page))?;
    let sum = sums.into_iter().try_fold(0_u64, |sum, one| Some(sum.wrapping_add(one?)));
    Ok((ns, sum.ok_or("a block was refused, or another's bytes stood in it")?))
}

/// The times of both allocators for these sizes, those of each thread, of which it holds `live` blocks
/// at a time. A thread writes each page of a block, or its two ends.
///
/// # Errors
/// A block that was refused, or has changed.
pub(crate) fn times(
    parts: &[Vec<usize>],
    live: usize,
    every_page: bool,
    round: u64,
) -> Result<Times, String> {
    let malloc = || run::<Libc>(parts, live, every_page);
    let cmt = || run::<Cmt>(parts, live, every_page);
    in_turn(round, malloc, cmt).map(|(times, _)| times)
}

/// A block of `cmt_malloc`, of which each page was written.
pub(crate) struct Touched(Block);

impl Touched {
    /// `None` if it is refused. `len` is whole words.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let block = Block { at: Cmt::allocate_bytes(len)?, len, tag: 1 };
        block.write(true);
        Some(Self(block))
    }

    pub(crate) fn address(&self) -> usize {
        self.0.at.addr().get()
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        // SAFETY: of this allocator, and gone with this value.
        unsafe { Cmt::free_bytes(self.0.at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_was_written() {
        let sizes = [1 << 20, 8, 4096, 4104, 12288, 100_000 / 8 * 8];
        for every_page in [false, true] {
            let malloc = requests::<Libc>(&sizes, 2, every_page).unwrap();
            assert_eq!(requests::<Cmt>(&sizes, 3, every_page), Some(malloc), "{every_page}");
        }
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut words = [0_u64; 1024];
        let at = NonNull::from(&mut words).cast();
        let block = Block { at, len: 8192, tag: 5 };
        block.write(true);
        assert!(block.read(true).is_some());
        // SAFETY: within the block.
        unsafe { block.word(4096).write(0) };
        assert!(block.read(true).is_none());
        assert!(block.read(false).is_some());
    }
}
