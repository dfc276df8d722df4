//! Size classes: the length of the slot for a request, and the layout of a superblock of
//! such slots.
//!
//! Up to 128 bytes there is a class for each 16; above, eight in each power of
//! two, so that less than an eighth of a slot is lost by rounding. A slot's
//! length is an odd number times a power of two; from an offset to the slot's
//! number it takes one multiplication with the inverse of the odd part and one
//! rotation, and the result is below the number of slots only if the offset is
//! a multiple of the length: the division and the check for misaligned
//! pointers are one (Granlund and Montgomery 1994, section 9).
//!
//! A slot's bits stand at its **position**. Up to 128 bytes that is the granule, of 16 bytes, at which it begins, counted
//! from the superblock's first, so that they lie as the live bits do. Above, it is the slot's number: a word has the bits
//! of 64 slots, and a cache is filled from one or two.

/// The unit in which superblocks and segments lie, as a power of two of bytes.
pub const UNIT_SHIFT: u32 = 16;

/// Bytes of a unit: 64 KiB.
pub const UNIT_BYTES: usize = 1 << UNIT_SHIFT;

/// Bytes of the shortest slot, and the alignment of every slot.
pub const SLOT_BYTES_MIN: usize = 16;

/// Bytes of the longest slot. Longer requests are segments: superblocks of longer slots
/// would hold more memory than a program with few such blocks uses.
pub const SLOT_BYTES_MAX: usize = 32 << 10;

/// Words of bits in a superblock; few for the model checker.
pub(crate) const WORDS: usize = 1 << (UNIT_GRANULES_SHIFT - 6);

/// Number of size classes.
pub const CLASSES: usize = class_of(SLOT_BYTES_MAX) + 1;

/// The granule in which slots lie, as a power of two of bytes: 16, and 512 for the model checker, whose
/// slots are longer.
pub(crate) const GRANULE_SHIFT: u32 = if cfg!(loom) { 9 } else { SLOT_BYTES_MIN.ilog2() };

/// Granules of a unit, as a power of two.
pub(crate) const UNIT_GRANULES_SHIFT: u32 = UNIT_SHIFT - GRANULE_SHIFT;

/// Number of slots in a superblock at least.
const SLOTS_MIN: usize = 8;

/// The layout of the superblocks of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SuperblockLayout {
    /// Bytes of a slot: an odd number times two to the power of `twos`.
    pub(crate) size: u32,
    /// Slots, all from the superblock's first byte on.
    pub(crate) slots: u32,
    /// The odd part's inverse modulo 2^32.
    pub(crate) inverse: u32,
    /// See `size`.
    pub(crate) twos: u32,
    /// Units of a superblock.
    pub(crate) units: u32,
    /// Granules from one position to the next.
    pub(crate) step: u32,
    /// 2^52 divided by `step`, rounded up: the highest twelve bits of a granule's number times this are its position.
    pub(crate) reciprocal: u64,
    /// Slots that have their bits in one word at most.
    pub(crate) in_word: u32,
}

/// The class of requests for `size` bytes, of at most [`SLOT_BYTES_MAX`].
#[inline]
pub(crate) const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return size.saturating_sub(1) / SLOT_BYTES_MIN;
    }
    let last = size - 1;
    let top = last.ilog2() as usize;
    (top - 7) * 8 + ((last >> (top - 3)) & 7) + 8
}

/// Bytes of a slot of `class`.
pub(crate) const fn slot_bytes(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * SLOT_BYTES_MIN;
    }
    (9 + class % 8) << (class / 8 + 3)
}

/// The number of the slot that starts `offset` bytes into a superblock; no
/// smaller than its number of slots if none does.
#[inline(always)]
pub(crate) const fn slot_at(offset: u32, inverse: u32, twos: u32) -> u32 {
    offset.wrapping_mul(inverse).rotate_right(twos)
}

/// The bits of a product below the position.
const POSITION_SHIFT: u32 = u64::BITS - 12;

/// The position of what begins so many granules after a superblock does, by its layout's reciprocal. No position has more
/// than twelve bits, whatever the numbers are, so that its word is one of 64.
#[inline(always)]
pub(crate) const fn position_of(granules: usize, reciprocal: u64) -> u32 {
    ((granules as u64).wrapping_mul(reciprocal) >> POSITION_SHIFT) as u32
}

/// The word in which a position has its bit. Of one beyond all, which only a record that was
/// overwritten has, it is some word.
#[inline(always)]
pub(crate) const fn word_of(position: u32) -> usize {
    (position as usize / 64) & (WORDS - 1)
}

const fn layout(class: usize) -> SuperblockLayout {
    let size = slot_bytes(class);
    let units = (SLOTS_MIN * size).div_ceil(UNIT_BYTES).next_power_of_two();
    let fit = (units << UNIT_SHIFT) / size;
    let slots = if fit < WORDS * 64 { fit } else { WORDS * 64 };
    let twos = size.trailing_zeros();
    let odd = (size >> twos) as u32;
    // Newton's iteration doubles the right bits, of which the odd number itself
    // has three.
    let mut inverse = odd;
    let mut step = 0;
    while step < 4 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    let granules = size >> GRANULE_SHIFT;
    // The model checker's granules are longer than some slots.
    let is_numbered = size > 128 && size.is_multiple_of(1 << GRANULE_SHIFT);
    let step = if is_numbered { granules } else { 1 };
    let between = granules / step;
    assert!(between * (slots - 1) < 64 * WORDS, "each slot has a position");
    SuperblockLayout {
        size: size as u32,
        slots: slots as u32,
        inverse,
        twos,
        units: units as u32,
        step: step as u32,
        reciprocal: (1_u64 << POSITION_SHIFT).div_ceil(step as u64),
        in_word: if between == 0 { 64 } else { 64_usize.div_ceil(between) as u32 },
    }
}

/// The layouts of all classes.
pub(crate) static LAYOUTS: [SuperblockLayout; CLASSES] = {
    let mut layouts = [layout(0); CLASSES];
    let mut class = 0;
    while class < CLASSES {
        layouts[class] = layout(class);
        class += 1;
    }
    layouts
};

/// For each class the words of a superblock all of whose slots are free: bits at the positions where slots begin.
pub(crate) static STARTS: [[u64; WORDS]; CLASSES] = {
    let mut starts = [[0; WORDS]; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let SuperblockLayout { size, slots, .. } = LAYOUTS[class];
        let mut slot = 0;
        while slot < slots {
            let position =
                position_of(((slot * size) >> GRANULE_SHIFT) as usize, LAYOUTS[class].reciprocal);
            starts[class][word_of(position)] |= 1 << (position % 64);
            slot += 1;
        }
        class += 1;
    }
    starts
};

/// For each class the words of [`STARTS`] that have bits.
pub(crate) static OPEN: [u64; CLASSES] = {
    let mut open = [0; CLASSES];
    let (mut class, mut word) = (0, 0);
    while class < CLASSES {
        if STARTS[class][word] != 0 {
            open[class] |= 1 << word;
        }
        word += 1;
        if word == WORDS {
            (class, word) = (class + 1, 0);
        }
    }
    open
};

/// The class whose slots hold `size` bytes at a multiple of `align`, a power
/// of two; none if only a segment does.
///
/// A size rounded up to a multiple of the alignment always has a class of such
/// multiples: either the classes there lie that far apart anyway, or the size
/// is a class itself. A superblock starts at a multiple of a unit.
#[inline]
pub(crate) const fn class_for(size: usize, align: usize) -> Option<usize> {
    if align > UNIT_BYTES || size > SLOT_BYTES_MAX {
        return None;
    }
    let size = if size == 0 { align } else { (size + align - 1) & !(align - 1) };
    if size > SLOT_BYTES_MAX { None } else { Some(class_of(size)) }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        assert_eq!(CLASSES, 72);
        for class in 1..CLASSES {
            assert!(slot_bytes(class - 1) < slot_bytes(class));
        }
        let mut class = 0;
        for size in 1..=SLOT_BYTES_MAX {
            if size > slot_bytes(class) {
                class += 1;
            }
            assert_eq!(class_of(size), class, "{size} bytes");
            assert_eq!(slot_bytes(class) % SLOT_BYTES_MIN, 0);
            assert!(size <= 128 || (slot_bytes(class) - size) * 8 < size, "{size} bytes");
        }
        assert_eq!(class_of(0), 0);
    }

    #[test]
    fn every_offset_of_every_class_has_its_slot_or_none() {
        for (class, layout) in LAYOUTS.iter().enumerate() {
            assert_eq!(layout.size as usize, slot_bytes(class));
            assert!(layout.slots as usize >= SLOTS_MIN);
            let length = (layout.units as usize) << UNIT_SHIFT;
            let used = layout.slots as usize * layout.size as usize;
            assert!(used <= length && (length - used) * 8 <= length, "class {class}");
            for offset in 0..length as u32 {
                let slot = slot_at(offset, layout.inverse, layout.twos);
                let (quotient, rest) = (offset / layout.size, offset % layout.size);
                if rest == 0 && quotient < layout.slots {
                    assert_eq!(slot, quotient, "offset {offset} of class {class}");
                } else {
                    assert!(slot >= layout.slots, "offset {offset} of class {class}");
                }
            }
        }
    }

    #[test]
    fn every_alignment_is_kept() {
        for align in (0..=16).map(|shift| 1 << shift) {
            for size in (0..2000).chain((2000..=SLOT_BYTES_MAX).step_by(61)) {
                let Some(class) = class_for(size, align) else {
                    assert!(size.max(1).next_multiple_of(align) > SLOT_BYTES_MAX);
                    continue;
                };
                let rounded = size.max(1).next_multiple_of(align);
                assert_eq!(class, class_of(rounded), "{size} at {align}");
                assert!(slot_bytes(class) >= size);
                assert_eq!(slot_bytes(class) % align.max(SLOT_BYTES_MIN), 0, "{size} at {align}");
            }
        }
        assert_eq!(class_for(1, 2 * UNIT_BYTES), None);
        assert_eq!(class_for(SLOT_BYTES_MAX, 16), Some(CLASSES - 1));
        assert_eq!((class_for(SLOT_BYTES_MAX + 1, 16), class_for(usize::MAX, 16)), (None, None));
    }

    /// Of positions beyond all words, too, it is a word that is there.
    #[test]
    fn every_position_has_its_word() {
        for position in 0..64 * WORDS as u32 {
            assert_eq!(word_of(position), position as usize / 64, "position {position}");
        }
        for position in [64 * WORDS as u32, u32::MAX / 2, u32::MAX] {
            assert!(word_of(position) < WORDS, "position {position}");
        }
    }

    /// Each slot has a position of its own, from which the way back leads to where the slot begins.
    #[test]
    fn every_slot_has_its_position() {
        for (class, layout) in LAYOUTS.iter().enumerate() {
            let position = |slot: u32| {
                position_of(((slot * layout.size) >> GRANULE_SHIFT) as usize, layout.reciprocal)
            };
            let has = |position: u32| STARTS[class][word_of(position)] >> (position % 64) & 1 != 0;
            let starts: u32 = STARTS[class].iter().map(|word| word.count_ones()).sum();
            assert_eq!(starts, layout.slots, "class {class}");
            // Of those that lie by granules, slots begin in each word.
            assert!(layout.step != 1 || STARTS[class].iter().all(|&starts| starts != 0));
            for slot in 0..layout.slots {
                assert!(has(position(slot)), "slot {slot} of class {class}");
                let back = (position(slot) * layout.step) << GRANULE_SHIFT;
                assert_eq!(back, slot * layout.size, "slot {slot} of class {class}");
            }
        }
    }
}
