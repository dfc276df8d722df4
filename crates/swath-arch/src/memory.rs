//! Physical memory, reached by address.
//!
//! Writing takes `&self`: physical memory is shared by everything attached to
//! it, as on a real machine, and the compiler must not be told otherwise.
//! Numbers stand in memory with the lowest byte first, the order of all
//! formats.

use core::cell::Cell;

use crate::addr::number::{BASE_PAGE_BYTES, Pfn, PhysAddr};

/// An access that no memory answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no memory answers at {addr} for {len_bytes} bytes")]
pub struct BusError {
    /// The address of the access.
    pub addr: PhysAddr,
    /// Its size.
    pub len_bytes: u32,
}

/// Bytes of physical memory.
///
/// Accesses are naturally aligned: an implementation answers a misaligned
/// access, or one outside its memory, with a [`BusError`] that changes
/// nothing. Each access costs O(1).
pub trait PhysMemory {
    /// Reads four bytes.
    ///
    /// # Errors
    /// [`BusError`] where no memory is, or `addr` is no multiple of 4.
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError>;

    /// Reads eight bytes.
    ///
    /// # Errors
    /// [`BusError`] where no memory is, or `addr` is no multiple of 8.
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError>;

    /// Writes four bytes.
    ///
    /// # Errors
    /// [`BusError`] where no memory is, or `addr` is no multiple of 4.
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError>;

    /// Writes eight bytes.
    ///
    /// # Errors
    /// [`BusError`] where no memory is, or `addr` is no multiple of 8.
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError>;

    /// Fills a frame with zeros, in O(frame size).
    ///
    /// # Errors
    /// [`BusError`] where no memory is; part of the frame may be zero then.
    fn zero_frame(&self, frame: Pfn) -> Result<(), BusError> {
        let base = frame.address().raw();
        for offset in (0..BASE_PAGE_BYTES).step_by(8) {
            self.write_u64(PhysAddr::new(base + offset), 0)?;
        }
        Ok(())
    }
}

impl<M: PhysMemory + ?Sized> PhysMemory for &M {
    #[inline]
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        (**self).read_u32(addr)
    }

    #[inline]
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        (**self).read_u64(addr)
    }

    #[inline]
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        (**self).write_u32(addr, value)
    }

    #[inline]
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        (**self).write_u64(addr, value)
    }

    #[inline]
    fn zero_frame(&self, frame: Pfn) -> Result<(), BusError> {
        (**self).zero_frame(frame)
    }
}

/// Physical memory over a slice that the caller gives: one contiguous window,
/// eight bytes to a cell.
#[derive(Debug)]
pub struct SliceMemory<'m> {
    base: u64,
    words: &'m [Cell<u64>],
}

impl<'m> SliceMemory<'m> {
    /// Memory whose first byte has the address of frame `first`, one cell for
    /// each eight bytes.
    pub fn new(first: Pfn, words: &'m mut [u64]) -> Self {
        Self { base: first.address().raw(), words: Cell::from_mut(words).as_slice_of_cells() }
    }

    #[inline]
    fn cell(&self, addr: PhysAddr, len_bytes: u32) -> Result<&Cell<u64>, BusError> {
        let offset = addr.raw().wrapping_sub(self.base);
        let aligned = addr.raw() & u64::from(len_bytes - 1) == 0;
        match usize::try_from(offset / 8).ok().and_then(|i| self.words.get(i)) {
            Some(cell) if aligned => Ok(cell),
            _ => Err(BusError { addr, len_bytes }),
        }
    }
}

impl PhysMemory for SliceMemory<'_> {
    #[inline]
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let word = self.cell(addr, 4)?.get();
        Ok((word >> (8 * (addr.raw() & 4))) as u32)
    }

    #[inline]
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        Ok(self.cell(addr, 8)?.get())
    }

    #[inline]
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let cell = self.cell(addr, 4)?;
        let shift = 8 * (addr.raw() & 4);
        cell.set(cell.get() & !(0xffff_ffff << shift) | u64::from(value) << shift);
        Ok(())
    }

    #[inline]
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.cell(addr, 8)?.set(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_bounded() {
        let mut words = [0; 512];
        let memory = SliceMemory::new(Pfn::new(3), &mut words);
        let at = |offset: u64| PhysAddr::new(0x3000 + offset);
        memory.write_u32(at(4), 0xaabb_ccdd).unwrap();
        assert_eq!(memory.read_u64(at(0)), Ok(0xaabb_ccdd_0000_0000));
        memory.write_u64(at(0), 0x0102_0304_0506_0708).unwrap();
        assert_eq!(memory.read_u32(at(0)), Ok(0x0506_0708));
        assert_eq!(memory.read_u32(at(4)), Ok(0x0102_0304));
        for bad in [at(2), at(4096), PhysAddr::new(0x2ffc), PhysAddr::new(u64::MAX - 3)] {
            assert_eq!(memory.read_u32(bad), Err(BusError { addr: bad, len_bytes: 4 }));
            assert!(memory.write_u64(bad, 1).is_err());
        }
        memory.zero_frame(Pfn::new(3)).unwrap();
        assert!(words.iter().all(|&word| word == 0));
    }
}
