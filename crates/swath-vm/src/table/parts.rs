//! The entries of pages that become one, or of one page that becomes several,
//! and putting the ones in the others' place as break before make demands.

use swath_arch::formats::x86_64;
use swath_arch::{BusError, Format, Order, PhysAddr, PhysMemory};
use swath_frame::FrameAllocator;

use crate::table::encode::{self, Leaf};
use crate::table::flush::Flush;
use crate::table::space::AddressSpace;

/// Entries that promotion checks and demotion writes: one page of order `to`,
/// or all of the pages of order `part` in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) format: Format,
    /// The level of the parts' entries.
    pub(crate) level: usize,
    /// The first of them, whose entry maps the first part.
    pub(crate) first: Leaf,
    /// Number of entries.
    pub(crate) count: u64,
    /// The first entry's word.
    pub(crate) word: u64,
    /// After 2^shift entries the word moves by `step`.
    shift: u32,
    step: u64,
}

impl Parts {
    pub(crate) fn new(
        format: Format,
        level: usize,
        entry_order: Order,
        first: Leaf,
        count: u64,
    ) -> Self {
        let copies = first.order.k() - entry_order.k();
        let same = encode::copy_step(format, entry_order) == 0;
        let shift = if same { copies } else { 0 };
        let step = encode::word_step(format, entry_order.frames() << shift);
        Self { format, level, first, count, word: encode::leaf(format, level, first), shift, step }
    }

    /// Returns the word of the i-th entry.
    #[inline]
    pub(crate) const fn word(&self, i: u64) -> u64 {
        self.word + (i >> self.shift) * self.step
    }

    /// Returns the difference between one entry's word and the next one's, of the same part if
    /// a part has several entries that are the same.
    pub(crate) const fn step(&self) -> u64 {
        if self.shift == 0 { self.step } else { 0 }
    }
}

/// Returns the bits that are compared.
pub(crate) const fn compared(format: Format) -> u64 {
    match format {
        Format::ArmV7 | Format::ArmV8 | Format::Sv39 | Format::Sv48 => u64::MAX,
        Format::X86_64 => !x86_64::D.mask(),
    }
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Breaks `old`, has the TLBs forget it, and makes `new`, both from the
    /// entry at `at` on. On failure `old` stands there again.
    pub(crate) fn replace(
        &mut self,
        at: PhysAddr,
        old: &Parts,
        new: &Parts,
        flush: Flush,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<(), BusError> {
        let broken = |i| encode::suspend(old.format, old.level, old.word(i));
        if let Err(bus) = self.write_each(at, old.count, broken) {
            let _ = self.write_each(at, old.count, |i| old.word(i));
            return Err(bus);
        }
        invalidate(flush);
        if let Err(bus) = self.write_each(at, new.count, |i| new.word(i)) {
            let _ = self.write_each(at, old.count, broken);
            invalidate(flush);
            let _ = self.write_each(at, old.count, |i| old.word(i));
            return Err(bus);
        }
        Ok(())
    }

    /// Does as [`replace`](Self::replace) for the one entry of a superpage that
    /// becomes a link, or the other way. On x86-64 there is no break.
    pub(crate) fn replace_word(
        &mut self,
        level: usize,
        at: PhysAddr,
        old: u64,
        new: u64,
        flush: Flush,
        invalidate: &mut dyn FnMut(Flush),
    ) -> Result<(), BusError> {
        let format = self.regime.format;
        if format == Format::X86_64 {
            self.write(at, new)?;
            invalidate(flush);
            return Ok(());
        }
        self.write(at, encode::suspend(format, level, old))?;
        invalidate(flush);
        if let Err(bus) = self.write(at, new) {
            let _ = self.write(at, old);
            return Err(bus);
        }
        Ok(())
    }

    fn write_each(
        &mut self,
        at: PhysAddr,
        count: u64,
        word: impl Fn(u64) -> u64,
    ) -> Result<(), BusError> {
        for i in 0..count {
            let at = self.view().entry(at, i);
            self.write(at, word(i))?;
        }
        Ok(())
    }
}
