//! Contiguity spread over a line of descriptors.
//!
//! The few bits that a descriptor leaves free cannot say how long a block is. But a walk's
//! last read fetches a burst of memory, and with it the descriptors of the page's
//! neighbours: a **line** of [`LINE_BYTES`], aligned to them, 16 descriptors in ARMv7 and 8
//! elsewhere. Hardware that takes in the whole line sees by comparing which of
//! its pages go on from one another, and has to be told only what lies beyond its two
//! ends. So the free bits of all the line's descriptors make two numbers:
//!
//! * **Before**: the number of pages that precede the line's first page in its block, which
//!   is that page's Descend;
//! * **After**: the number of pages that follow the line's last page in its block, which is
//!   that page's Ascend.
//!
//! | format | descriptors | Before: of descriptor i bits | are bits | After: of descriptor i bits | are bits |
//! |---|---|---|---|---|---|
//! | ARMv7 | 16 | 8 (TEX\[2\]) | i | 7 (TEX\[1\]) | i |
//! | ARMv8 | 8 | 62 to 59 | 4 i + 3 to 4 i | 58 to 55 | 4 i + 3 to 4 i |
//! | x86-64 | 8 | 62 to 59, 11 to 9 | 7 i + 6 to 7 i | 58 to 52 | 7 i + 6 to 7 i |
//! | RISC-V | 8 | 59 | i | 60 | i |
//!
//! Each of them has 8, 16, 32 or 56 bits ([`bits`]), and saturates there: of descriptor i it is
//! what [`Format::descend`] or [`Format::ascend`] is in [`Descriptor`] form. The bits count
//! whatever the descriptor is: in an invalid one the architectures leave them to
//! software (DDI 0406C section B3.5.1; DDI 0487 section D8.3; SDM volume 3A, section 5.5.4; RISC-V's
//! privileged architecture, "Sv39").
//! The 16 copies of a larger page fill whole lines, so that no line holds both sizes.
//!
//! **Reading.** The run of page p is the pages of its line, p among them, whose descriptors
//! are of base pages, lead to consecutive frames and are alike in every other bit but the free
//! ones. Ascend of p is the number of pages that follow it in its run and, if the run ends with
//! the line's last page, After besides; Descend likewise, with Before. With anchors the contiguity
//! is Ascend of the anchor and the anchor itself; Before is then zero.
//!
//! **Writing.** Before is true of the line's first page while that is mapped, After of its
//! last; of a page that is not mapped the number means nothing. Both may always say less than
//! is there. A writer that changes a number writes those of the line's descriptors whose bits
//! change, up to all of them; a block's own descriptors are written anyhow.
//!
//! [`Descriptor`]: crate::ContiguityField::Descriptor

use crate::formats::field::Scattered;
use crate::formats::format::Format;

/// Bytes of a line, aligned to as many: a burst of the memories in use, and a line of
/// most caches.
pub const LINE_BYTES: u64 = 64;

/// The most descriptors in a line.
pub const ENTRIES_MAX: usize = 16;

/// Returns the number of descriptors in a line.
pub const fn entries(format: Format) -> u64 {
    LINE_BYTES / format.entry_bytes()
}

/// Returns the bits of each of the two numbers.
pub const fn bits(format: Format) -> u32 {
    entries(format) as u32 * format.ascend().width()
}

/// Returns the largest number that a line can say.
pub const fn max(format: Format) -> u64 {
    (1 << bits(format)) - 1
}

/// Returns the bits that the two numbers take in each descriptor.
pub fn free_bits(format: Format) -> u64 {
    let fields = format.ascend().0.iter().chain(format.descend().0);
    fields.fold(0, |bits, field| bits | field.mask())
}

/// Returns the number that a field's bits make over the descriptors of a line: After of
/// [`Format::ascend`], Before of [`Format::descend`]. O(descriptors).
pub fn number(field: Scattered, words: &[u64]) -> u64 {
    words.iter().rev().fold(0, |number, &word| number << field.width() | field.get(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The widths documented in the table, and both numbers in as many bits.
    #[test]
    fn widths() {
        for (format, descriptors, wide) in [
            (Format::ArmV7, 16, 16),
            (Format::ArmV8, 8, 32),
            (Format::X86_64, 8, 56),
            (Format::Sv39, 8, 8),
        ] {
            assert_eq!((entries(format), bits(format)), (descriptors, wide));
            assert_eq!(format.ascend().width(), format.descend().width());
            assert_eq!(max(format), (1 << wide) - 1);
            assert!(entries(format) as usize <= ENTRIES_MAX);
            assert_eq!(free_bits(format).count_ones(), 2 * format.ascend().width());
            let words = [u64::MAX; ENTRIES_MAX];
            let words = &words[..entries(format) as usize];
            assert_eq!(number(format.ascend(), words), max(format));
            assert_eq!(number(format.descend(), words), max(format));
        }
    }
}
