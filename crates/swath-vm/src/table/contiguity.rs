//! Contiguity beside the mapping: what a base page's descriptor says of its
//! neighbours.
//!
//! With PCAD a page tells how many pages of its block follow (Ascend) and
//! precede it (Descend), so that demanding page minus Descend is the block's
//! first page (Duong and Hur, Table 1). With anchors a page whose number is a
//! multiple of the distance tells how many pages of its block begin there, the
//! page itself included; every other page tells nothing (zero).
//!
//! Each number saturates at its field's width. A reader may always use the
//! pages from `page - Descend` to `page + Ascend`: a saturated number claims
//! less than is there, never more.

use swath_arch::{BusError, Coalescing, ContiguityField, Format, PhysAddr, PhysMemory, Scattered};

use crate::table::encode;
use crate::table::line;
use crate::table::piece::Piece;
use crate::table::walk::View;

/// Distance of a descriptor from the word beside it.
pub(crate) const BESIDE_BYTES: u64 = swath_arch::BASE_PAGE_BYTES;

/// A mapped base page's place in its block, as the descriptor tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageContiguity {
    /// PCAD's Ascend, or an anchor's contiguity.
    pub ascend: u64,
    /// PCAD's Descend; zero with anchors.
    pub descend: u64,
}

/// The place of one of the numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NumberPlace {
    /// In the descriptor.
    Descriptor(Scattered),
    /// In the same bits of all the descriptors of its line: a number of the line's, which
    /// the page at its end alone carries.
    Line(Scattered),
    /// In the word beside it.
    Beside {
        /// The number's lowest bit.
        low: u32,
        /// Its width.
        bits: u32,
    },
}

impl NumberPlace {
    /// Returns the place of Ascend or an anchor's contiguity; `None` without
    /// coalescing.
    pub(crate) const fn ascend(format: Format, coalescing: Coalescing) -> Option<Self> {
        match coalescing {
            Coalescing::None => None,
            Coalescing::Pcad(ContiguityField::Descriptor) => {
                Some(Self::Descriptor(format.ascend()))
            }
            Coalescing::Anchor { field: ContiguityField::Descriptor, .. } => {
                Some(Self::Descriptor(format.anchor()))
            }
            Coalescing::Pcad(ContiguityField::Line)
            | Coalescing::Anchor { field: ContiguityField::Line, .. } => {
                Some(Self::Line(format.ascend()))
            }
            Coalescing::Pcad(ContiguityField::Beside { bits })
            | Coalescing::Anchor { field: ContiguityField::Beside { bits }, .. } => {
                Some(Self::Beside { low: 0, bits: bits as u32 })
            }
        }
    }

    /// Returns the place of Descend; `None` without PCAD.
    pub(crate) const fn descend(format: Format, coalescing: Coalescing) -> Option<Self> {
        match coalescing {
            Coalescing::Pcad(ContiguityField::Descriptor) => {
                Some(Self::Descriptor(format.descend()))
            }
            Coalescing::Pcad(ContiguityField::Line) => Some(Self::Line(format.descend())),
            Coalescing::Pcad(ContiguityField::Beside { bits }) => {
                Some(Self::Beside { low: format.beside_half_bits(), bits: bits as u32 })
            }
            _ => None,
        }
    }

    /// Returns the number that belongs to the entry at `at`, whose word is `word`.
    pub(crate) fn get<M: PhysMemory>(
        self,
        view: View<'_, M>,
        at: PhysAddr,
        word: u64,
    ) -> Result<u64, BusError> {
        match self {
            Self::Descriptor(field) => Ok(field.get(word)),
            Self::Line(field) => line::get(view, at, field),
            Self::Beside { low, bits } => Ok((view.read(beside(at))? >> low) & mask(bits)),
        }
    }

    /// Writes the number of the entry at `at`, and returns the number of writes: one,
    /// but for a line's.
    pub(crate) fn set<M: PhysMemory>(
        self,
        view: View<'_, M>,
        at: PhysAddr,
        value: u64,
    ) -> Result<u64, BusError> {
        match self {
            Self::Descriptor(field) => {
                view.write(at, field.set_saturating(view.read(at)?, value))?;
            }
            Self::Line(field) => return line::set(view, at, field, value),
            Self::Beside { low, bits } => {
                let rest = view.read(beside(at))? & !(mask(bits) << low);
                view.write(beside(at), rest | value.min(mask(bits)) << low)?;
            }
        }
        Ok(1)
    }
}

/// Returns the largest number of so many bits.
const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Returns the address of the word beside the entry at `at`.
pub(crate) fn beside(at: PhysAddr) -> PhysAddr {
    at + BESIDE_BYTES
}

/// The way of a format's words to memory: a type rather than a value, so that the
/// loop over the pages of a block holds no decision that is the same for all.
trait FormatWords {
    const FORMAT: Format;
    const STEP_BYTES: u64 = Self::FORMAT.entry_bytes();

    #[inline(always)]
    fn store<M: PhysMemory>(memory: &M, at: PhysAddr, word: u64) -> Result<(), BusError> {
        if Self::STEP_BYTES == 4 {
            memory.write_u32(at, word as u32)
        } else {
            memory.write_u64(at, word)
        }
    }
}

struct ArmV7Words;
struct ArmV8Words;
struct X86Words;
struct RiscVWords;

impl FormatWords for ArmV7Words {
    const FORMAT: Format = Format::ArmV7;
}
impl FormatWords for ArmV8Words {
    const FORMAT: Format = Format::ArmV8;
}
impl FormatWords for X86Words {
    const FORMAT: Format = Format::X86_64;
}
impl FormatWords for RiscVWords {
    // The leaf tables of Sv48 are the same.
    const FORMAT: Format = Format::Sv39;
}

/// Writes the piece's descriptors with their contiguity, ascending: one write
/// per page, two with [`ContiguityField::Beside`], the word beside first; with
/// [`ContiguityField::Line`] as [`line::write_piece`] does. Returns the number of descriptors of
/// others that were written.
///
/// # Errors
/// The bus error, and how many descriptors of the piece were written before it.
pub(crate) fn write_piece<M: PhysMemory>(
    view: View<'_, M>,
    piece: Piece,
) -> Result<u64, (BusError, u64)> {
    match view.format() {
        Format::ArmV7 => write_words::<ArmV7Words, M>(view, piece),
        Format::ArmV8 => write_words::<ArmV8Words, M>(view, piece),
        Format::X86_64 => write_words::<X86Words, M>(view, piece),
        Format::Sv39 | Format::Sv48 => write_words::<RiscVWords, M>(view, piece),
    }
}

fn write_words<W: FormatWords, M: PhysMemory>(
    view: View<'_, M>,
    piece: Piece,
) -> Result<u64, (BusError, u64)> {
    let (memory, coalescing) = (view.memory, view.regime.coalescing);
    let format = W::FORMAT;
    let Piece { page, before, after, .. } = piece;
    // The number of pages from the i-th on, if it is an anchor.
    let anchored = |i: u64, distance: swath_arch::Order| {
        let is_anchor = (page + i) & (distance.frames() - 1) == 0;
        if is_anchor { after - i } else { 0 }
    };
    match coalescing {
        Coalescing::None => each::<W, M>(memory, piece, |_, word| word),
        Coalescing::Pcad(ContiguityField::Line) => return line::write_piece(view, true, piece),
        Coalescing::Anchor { field: ContiguityField::Line, .. } => {
            return line::write_piece(view, false, piece);
        }
        Coalescing::Pcad(ContiguityField::Descriptor) => each::<W, M>(memory, piece, |i, word| {
            let word = format.ascend().set_saturating(word, after - i - 1);
            format.descend().set_saturating(word, before + i)
        }),
        Coalescing::Anchor { field: ContiguityField::Descriptor, distance } => {
            each::<W, M>(memory, piece, |i, word| {
                format.anchor().set_saturating(word, anchored(i, distance))
            })
        }
        Coalescing::Pcad(ContiguityField::Beside { bits }) => {
            let max = (1_u64 << bits) - 1;
            each_beside::<W, M>(memory, piece, |i| {
                (after - i - 1).min(max) | (before + i).min(max) << format.beside_half_bits()
            })
        }
        Coalescing::Anchor { field: ContiguityField::Beside { bits }, distance } => {
            let max = (1_u64 << bits) - 1;
            each_beside::<W, M>(memory, piece, |i| anchored(i, distance).min(max))
        }
    }?;
    Ok(0)
}

#[inline(always)]
fn each<W: FormatWords, M: PhysMemory>(
    memory: &M,
    piece: Piece,
    annotate: impl Fn(u64, u64) -> u64,
) -> Result<(), (BusError, u64)> {
    let mut at = piece.at.raw();
    let mut word = piece.word;
    for i in 0..piece.count {
        W::store(memory, PhysAddr::new(at), annotate(i, word)).map_err(|bus| (bus, i))?;
        at += W::STEP_BYTES;
        word = word.wrapping_add(encode::word_step(W::FORMAT, 1));
    }
    Ok(())
}

#[inline(always)]
fn each_beside<W: FormatWords, M: PhysMemory>(
    memory: &M,
    piece: Piece,
    annotation: impl Fn(u64) -> u64,
) -> Result<(), (BusError, u64)> {
    let mut at = piece.at.raw();
    let mut word = piece.word;
    for i in 0..piece.count {
        let here = PhysAddr::new(at);
        W::store(memory, beside(here), annotation(i))
            .and_then(|()| W::store(memory, here, word))
            .map_err(|bus| (bus, i))?;
        at += W::STEP_BYTES;
        word = word.wrapping_add(encode::word_step(W::FORMAT, 1));
    }
    Ok(())
}
