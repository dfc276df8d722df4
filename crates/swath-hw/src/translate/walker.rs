//! The walk: from a page number to a leaf, one memory read at a time.
//!
//! A [`Walk`] knows the address that it must read next and, once it has been
//! [stepped](Walk::step), either the address after that or the end. The
//! functional models step it in a loop; a timed model lets each read take its
//! time first. A large page ends the walk early, so it takes fewer reads.

use swath_arch::formats::line::LINE_BYTES;
use swath_arch::{
    Attributes, BASE_PAGE_BYTES, BASE_PAGE_SHIFT, BusError, Coalescing, ContiguityField, Extent,
    Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn,
};

use crate::translate::decode::{Descriptor, TableRights, decode};
use crate::translate::line;

/// Reasons why a page has no translation. Levels count from the root's, which is 0, as
/// in [`Format::levels`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslationFault {
    /// The address lies outside what the format translates.
    #[error("address {addr} is not canonical")]
    NotCanonical {
        /// The address of the page's first byte.
        addr: VirtAddr,
    },
    /// The descriptor at this level maps nothing.
    #[error("page {page} is not mapped (level {level})")]
    Translation {
        /// The page.
        page: Vpn,
        /// The level of the descriptor.
        level: u8,
    },
    /// The descriptor is reserved at this level, or (ARMv8's contiguous bit)
    /// contradicts its place. ARM hardware reports a translation fault for the
    /// first, x86-64 a page fault with the RSVD bit, RISC-V a page fault.
    #[error("reserved descriptor {descriptor:#x} at {at} (level {level})")]
    Reserved {
        /// The level of the descriptor.
        level: u8,
        /// The address of the descriptor.
        at: PhysAddr,
        /// The descriptor.
        descriptor: u64,
    },
    /// No memory answered the read of a descriptor.
    #[error("table walk, level {level}: {error}")]
    Bus {
        /// The level of the descriptor.
        level: u8,
        /// The read.
        error: BusError,
    },
}

/// The neighbours of a base page that the table declares contiguous with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafContiguity {
    /// Nothing.
    None,
    /// PCAD: pages of the same block that follow and precede.
    Pcad {
        /// Pages that follow.
        ascend: u64,
        /// Pages that precede.
        descend: u64,
    },
    /// The page is an anchor: so many contiguous pages begin here. 0 says that
    /// the anchor covers nothing, not even itself.
    Anchor {
        /// Pages.
        count: u64,
    },
}

/// The result of a walk for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The frame of the demanded page.
    pub frame: Pfn,
    /// The order of the page that the leaf maps: a TLB entry of this size
    /// holds it.
    pub order: Order,
    /// The attributes of the leaf, restricted by the tables above it.
    pub attributes: Attributes,
    /// The contiguous neighbours; [`LeafContiguity::None`] for
    /// superpages, whose descriptors have no such field.
    pub contiguity: LeafContiguity,
}

impl Translation {
    /// Returns the pages that one TLB entry serves after the walk for `page`, and the
    /// frames behind them, equally many.
    ///
    /// A superpage is the aligned range around `page`. With PCAD the block is
    /// `BaseVPN = page - Descend`, `BasePPN = frame - Descend`,
    /// `BlockSize = Ascend + Descend + 1` (*Duong and Hur*, Table 1), cut where
    /// the address space or the physical one ends, which only a wrong table
    /// makes happen. All else, and an anchor too, is the page alone. O(1).
    #[inline]
    pub fn block(&self, format: Format, page: Vpn) -> (PageRange, Extent) {
        let (before, after) = match self.contiguity {
            LeafContiguity::Pcad { ascend, descend } => {
                let low = page_min(format, page).raw();
                (descend.min(page.raw() - low).min(self.frame.raw()), ascend)
            }
            _ if self.order == Order::BASE => {
                return (PageRange::new(page, 1), Extent::new(self.frame, 1));
            }
            _ => {
                let inside = page.offset_in(self.order.k());
                (inside, self.order.frames() - 1 - inside)
            }
        };
        let after = after.min(pages_after(format, page, self.frame));
        let count = before + after + 1;
        (
            PageRange::new(Vpn::new(page.raw() - before), count),
            Extent::new(Pfn::new(self.frame.raw() - before), count),
        )
    }
}

/// Returns the number of pages that may follow `page` (on `frame`) before an address space ends.
#[inline]
pub(crate) fn pages_after(format: Format, page: Vpn, frame: Pfn) -> u64 {
    let frame_last = REACHES[format as usize].frame_last;
    (page_max(format, page).raw() - page.raw()).min(frame_last.saturating_sub(frame.raw()))
}

/// The pages that a format translates, from 0 to the end of the lower half of its addresses, and from the
/// start of the upper half, if it has one, to the end of all; and its last frame.
#[derive(Clone, Copy)]
struct Reach {
    lower_last: u64,
    upper_first: u64,
    frame_last: u64,
}

/// The last page of all.
const LAST: u64 = (1 << (64 - BASE_PAGE_SHIFT)) - 1;

/// The reach of each format, by its number: an index in place of a branch for each.
static REACHES: [Reach; Format::ALL.len()] = {
    let none = Reach { lower_last: 0, upper_first: 0, frame_last: 0 };
    let mut all = [none; Format::ALL.len()];
    let mut i = 0;
    while i < all.len() {
        let format = Format::ALL[i];
        let bits = format.va_bits() - BASE_PAGE_SHIFT;
        // A supersection reaches beyond the 32 bits of other ARMv7 mappings.
        let pa_bits = if matches!(format, Format::ArmV7) { 40 } else { format.pa_bits() };
        let frame_last = (1 << (pa_bits - BASE_PAGE_SHIFT)) - 1;
        all[format as usize] = if format.has_halves() {
            let lower_last = (1 << (bits - 1)) - 1;
            Reach { lower_last, upper_first: LAST - lower_last, frame_last }
        } else {
            Reach { lower_last: (1 << bits) - 1, upper_first: LAST + 1, frame_last }
        };
        i += 1;
    }
    all
};

/// Returns the first page of the canonical range that holds `page`.
#[inline]
fn page_min(format: Format, page: Vpn) -> Vpn {
    let upper_first = REACHES[format as usize].upper_first;
    Vpn::new(if page.raw() >= upper_first { upper_first } else { 0 })
}

/// Returns the last page of the canonical range that holds `page`.
#[inline]
fn page_max(format: Format, page: Vpn) -> Vpn {
    let Reach { lower_last, upper_first, .. } = REACHES[format as usize];
    Vpn::new(if page.raw() >= upper_first { LAST } else { lower_last })
}

/// The state of a walk after a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkStep {
    /// Another read is needed.
    Read,
    /// The leaf has been reached.
    Done(Translation),
}

/// A walk under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    format: Format,
    coalescing: Coalescing,
    level: u8,
    rights: TableRights,
    page: Vpn,
    table: PhysAddr,
}

impl Walk {
    /// Creates a walk for `page` from the root of `regime`. O(1).
    ///
    /// # Errors
    /// [`TranslationFault::NotCanonical`].
    #[inline]
    pub fn new(regime: &Regime, page: Vpn) -> Result<Self, TranslationFault> {
        if page > page_max(regime.format, page) {
            return Err(TranslationFault::NotCanonical { addr: page.address() });
        }
        Ok(Self::canonical(regime, page))
    }

    /// Creates a walk for a page that is known to be canonical.
    #[inline(always)]
    const fn canonical(regime: &Regime, page: Vpn) -> Self {
        Self {
            format: regime.format,
            coalescing: regime.coalescing,
            level: 0,
            rights: TableRights::ALL,
            page,
            table: regime.root,
        }
    }

    /// Returns the page that is looked for.
    #[inline]
    pub const fn page(&self) -> Vpn {
        self.page
    }

    /// Returns the same walk for another page that it leads to, too.
    pub(crate) const fn for_page(self, page: Vpn) -> Self {
        Self { page, ..self }
    }

    /// Returns the level of the next descriptor or, once the walk is over, of the last.
    #[inline]
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// Returns the address of the next descriptor. O(1).
    #[inline]
    pub fn next_read(&self) -> PhysAddr {
        self.read_at(self.format)
    }

    /// Returns the bytes of the next read: a descriptor, or the whole line around it where a
    /// base page's contiguity is spread over that ([`ContiguityField::Line`]). O(1).
    #[inline]
    pub fn next_read_bytes(&self) -> u64 {
        let in_line = match self.coalescing {
            Coalescing::Pcad(field) | Coalescing::Anchor { field, .. } => {
                field == ContiguityField::Line && self.says_contiguity()
            }
            Coalescing::None => false,
        };
        let at_end = usize::from(self.level) + 1 >= self.format.levels().len();
        if in_line && at_end { LINE_BYTES } else { self.format.entry_bytes() }
    }

    #[inline(always)]
    fn read_at(&self, format: Format) -> PhysAddr {
        let levels = format.levels();
        let index =
            levels[usize::from(self.level) % levels.len()].index.get(self.page.address().raw());
        // A root near the end of the address space wraps; no memory answers.
        PhysAddr::new(self.table.raw().wrapping_add(index * format.entry_bytes()))
    }

    /// Reads the descriptor at [`next_read`](Self::next_read) and follows it.
    /// A contiguity word beside the table arrives with it, and so does the line, as part of the
    /// same read. After a fault or the end the walk is over; what more steps do is
    /// harmless and means nothing. O(1).
    ///
    /// # Errors
    /// The [`TranslationFault`] that ends the walk.
    #[inline]
    pub fn step<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<WalkStep, TranslationFault> {
        // A constant format in each arm lets the compiler fold all field
        // positions into the code of that arm.
        match self.format {
            Format::ArmV7 => self.step_as(Format::ArmV7, memory),
            Format::ArmV8 => self.step_as(Format::ArmV8, memory),
            Format::X86_64 => self.step_as(Format::X86_64, memory),
            Format::Sv39 | Format::Sv48 => self.step_riscv(memory),
        }
    }

    /// Makes a step in RISC-V's formats, in a function of its own: with five formats in one the compiler
    /// keeps less in registers, and the walks of all of them take 9% more instructions.
    #[inline(never)]
    fn step_riscv<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<WalkStep, TranslationFault> {
        match self.format {
            Format::Sv39 => self.step_as(Format::Sv39, memory),
            _ => self.step_as(Format::Sv48, memory),
        }
    }

    /// Makes all the steps of a walk just begun.
    #[inline(always)]
    fn run<M: PhysMemory + ?Sized>(
        self,
        memory: &M,
        reads: &mut u64,
    ) -> Result<Translation, TranslationFault> {
        match self.format {
            Format::ArmV7 => self.run_as(Format::ArmV7, memory, reads),
            Format::ArmV8 => self.run_as(Format::ArmV8, memory, reads),
            Format::X86_64 => self.run_as(Format::X86_64, memory, reads),
            Format::Sv39 | Format::Sv48 => self.run_riscv(memory, reads),
        }
    }

    /// Makes all the steps of a walk just begun. With the level a constant in each
    /// turn of the loop, too, only the few instructions that the level needs
    /// are left.
    #[inline(always)]
    fn run_as<M: PhysMemory + ?Sized>(
        mut self,
        format: Format,
        memory: &M,
        reads: &mut u64,
    ) -> Result<Translation, TranslationFault> {
        for level in 0..format.levels().len() as u8 {
            self.level = level;
            *reads += 1;
            if let WalkStep::Done(translation) = self.step_as(format, memory)? {
                return Ok(translation);
            }
        }
        // Not reached: the last level has no tables.
        Err(TranslationFault::Translation { page: self.page, level: self.level })
    }

    /// Makes all the steps of a walk in RISC-V's formats; see [`step_riscv`](Self::step_riscv).
    #[inline(never)]
    fn run_riscv<M: PhysMemory + ?Sized>(
        self,
        memory: &M,
        reads: &mut u64,
    ) -> Result<Translation, TranslationFault> {
        match self.format {
            Format::Sv39 => self.run_as(Format::Sv39, memory, reads),
            _ => self.run_as(Format::Sv48, memory, reads),
        }
    }

    #[inline(always)]
    fn step_as<M: PhysMemory + ?Sized>(
        &mut self,
        format: Format,
        memory: &M,
    ) -> Result<WalkStep, TranslationFault> {
        let at = self.read_at(format);
        let level = self.level;
        let word =
            read(format, at, memory).map_err(|error| TranslationFault::Bus { level, error })?;
        let reserved = TranslationFault::Reserved { level, at, descriptor: word };
        match decode(format, usize::from(level), word) {
            Descriptor::Invalid => Err(TranslationFault::Translation { page: self.page, level }),
            Descriptor::Reserved => Err(reserved),
            Descriptor::Table { base, rights } => {
                self.table = base;
                self.rights = self.rights.and(rights);
                self.level += 1;
                Ok(WalkStep::Read)
            }
            Descriptor::Leaf(leaf) => {
                let page = self.page.raw();
                let frame = leaf.frame.raw() | page & (leaf.entry_order.frames() - 1);
                // Descriptors joined by the contiguous bit must stand in their place.
                if leaf.order != leaf.entry_order && (frame ^ page) & (leaf.order.frames() - 1) != 0
                {
                    return Err(reserved);
                }
                let contiguity = if leaf.order == Order::BASE && self.says_contiguity() {
                    self.contiguity(format, at, word, memory)
                        .map_err(|error| TranslationFault::Bus { level, error })?
                } else {
                    LeafContiguity::None
                };
                let mut attributes = leaf.attributes;
                attributes.writable &= self.rights.writable;
                attributes.user &= self.rights.user;
                attributes.executable &= self.rights.executable;
                Ok(WalkStep::Done(Translation {
                    frame: Pfn::new(frame),
                    order: leaf.order,
                    attributes,
                    contiguity,
                }))
            }
        }
    }

    /// Returns true if the descriptor of the page, if a base page, says something of
    /// its neighbours.
    #[inline(always)]
    fn says_contiguity(&self) -> bool {
        match self.coalescing {
            Coalescing::None => false,
            Coalescing::Pcad(_) => true,
            Coalescing::Anchor { distance, .. } => self.page.is_aligned(distance.k()),
        }
    }

    #[inline(always)]
    fn contiguity<M: PhysMemory + ?Sized>(
        &self,
        format: Format,
        at: PhysAddr,
        word: u64,
        memory: &M,
    ) -> Result<LeafContiguity, BusError> {
        Ok(match self.coalescing {
            Coalescing::None => LeafContiguity::None,
            Coalescing::Pcad(field) => {
                let (ascend, descend) = match field {
                    ContiguityField::Descriptor => {
                        (format.ascend().get(word), format.descend().get(word))
                    }
                    ContiguityField::Line => line::contiguity(format, at, memory)?,
                    ContiguityField::Beside { bits } => beside(format, at, bits, memory)?,
                };
                LeafContiguity::Pcad { ascend, descend }
            }
            Coalescing::Anchor { field, .. } => {
                let count = match field {
                    ContiguityField::Descriptor => format.anchor().get(word),
                    ContiguityField::Line => line::contiguity(format, at, memory)?.0 + 1,
                    ContiguityField::Beside { bits } => beside(format, at, bits, memory)?.0,
                };
                LeafContiguity::Anchor { count }
            }
        })
    }
}

/// Reads the word beside the descriptor at `at`: its lower half and its upper half.
#[inline(always)]
fn beside<M: PhysMemory + ?Sized>(
    format: Format,
    at: PhysAddr,
    bits: u8,
    memory: &M,
) -> Result<(u64, u64), BusError> {
    let at = PhysAddr::new(at.raw().wrapping_add(BASE_PAGE_BYTES));
    let half = format.beside_half_bits();
    let mask = (1u64 << u32::from(bits).min(half)) - 1;
    let word = read(format, at, memory)?;
    Ok((word & mask, word >> half & mask))
}

#[inline(always)]
fn read<M: PhysMemory + ?Sized>(format: Format, at: PhysAddr, memory: &M) -> Result<u64, BusError> {
    if format.entry_bytes() == 4 { memory.read_u32(at).map(u64::from) } else { memory.read_u64(at) }
}

/// Walks to the end and counts the reads, those of a walk that faults too.
/// O(levels), at most 4 reads.
///
/// # Errors
/// The [`TranslationFault`] that ended the walk.
#[inline]
pub fn walk<M: PhysMemory + ?Sized>(
    regime: &Regime,
    page: Vpn,
    memory: &M,
    reads: &mut u64,
) -> Result<Translation, TranslationFault> {
    Walk::new(regime, page)?.run(memory, reads)
}

/// Does as [`walk`] for the anchor of a page for which a walk was made: it lies in the same half of the
/// addresses, since a half begins at an anchor whatever the distance.
#[inline]
pub(crate) fn walk_anchor<M: PhysMemory + ?Sized>(
    regime: &Regime,
    anchor: Vpn,
    memory: &M,
    reads: &mut u64,
) -> Result<Translation, TranslationFault> {
    Walk::canonical(regime, anchor).run(memory, reads)
}
