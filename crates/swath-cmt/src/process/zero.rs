//! Zeroes in what a block's user has freed: written when a block begins to wait, and looked at when it has waited.
//!
//! Nearly all blocks are short: for them a few words are written or read, some of them twice, where a call would take longer.

use core::ptr::NonNull;
use core::slice;

/// The bits of a word's first bytes, of which there are fewer than eight.
#[inline(always)]
const fn first_bytes(len: usize) -> u64 {
    !(!0_u64 << (8 * len)).to_le()
}

/// Sets `len` bytes to zero.
///
/// # Safety
/// `at` begins `len` bytes that can be written, and nobody else uses; of fewer than eight, but not of none, so are the rest of
/// eight, which stay.
#[inline(always)]
pub(crate) unsafe fn write(at: NonNull<u8>, len: usize) {
    // SAFETY: all of it within `len` bytes from `at` on, or within eight, as the caller says.
    unsafe {
        match len {
            0 => {}
            1..8 => {
                let word = at.cast::<u64>();
                word.write_unaligned(word.read_unaligned() & !first_bytes(len));
            }
            8..=16 => {
                at.cast::<u64>().write_unaligned(0);
                at.add(len - 8).cast::<u64>().write_unaligned(0);
            }
            17..=32 => {
                at.cast::<u128>().write_unaligned(0);
                at.add(len - 16).cast::<u128>().write_unaligned(0);
            }
            _ => at.write_bytes(0, len),
        }
    }
}

/// Returns true if `len` bytes are zero.
///
/// # Safety
/// As for [`write`], but for reading.
#[inline(always)]
pub(crate) unsafe fn is_there(at: NonNull<u8>, len: usize) -> bool {
    // SAFETY: as above.
    unsafe {
        match len {
            0 => true,
            1..8 => at.cast::<u64>().read_unaligned() & first_bytes(len) == 0,
            8..=16 => {
                let last = at.add(len - 8).cast::<u64>();
                at.cast::<u64>().read_unaligned() | last.read_unaligned() == 0
            }
            17..=32 => {
                let last = at.add(len - 16).cast::<u128>();
                at.cast::<u128>().read_unaligned() | last.read_unaligned() == 0
            }
            _ => is_long_there(at, len),
        }
    }
}

/// # Safety
/// As for [`is_there`].
#[inline(never)]
unsafe fn is_long_there(at: NonNull<u8>, len: usize) -> bool {
    // SAFETY: as the caller says, in memory of the kernel's: there are no bytes that were never written.
    let (words, rest) = unsafe { slice::from_raw_parts(at.as_ptr(), len) }.as_chunks::<8>();
    let written = words.iter().fold(0, |all, &word| all | u64::from_ne_bytes(word));
    rest.iter().fold(written, |all, &byte| all | u64::from(byte)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_written_and_seen_and_no_other() {
        for (from, len) in (0..9).flat_map(|from| (0..80).map(move |len| (from, len))) {
            let mut bytes = [0xa5_u8; 100];
            let at = NonNull::from(&mut bytes).cast::<u8>();
            // SAFETY: within the bytes, as is what is eight bytes long from there on.
            unsafe {
                write(at.add(from), len);
                let zeroes = (0..100).filter(|&index| at.add(index).read() == 0);
                assert!(zeroes.eq(from..from + len), "{len} from {from}");
                assert!(is_there(at.add(from), len), "{len} from {from}");
                for index in from..from + len {
                    at.add(index).write(1);
                    assert!(!is_there(at.add(from), len), "{index}: {len} from {from}");
                    at.add(index).write(0);
                }
            }
        }
    }
}
