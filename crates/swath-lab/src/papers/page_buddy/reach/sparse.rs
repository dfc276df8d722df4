//! Physical memory of which few frames have bytes: the others read as zero.

use std::cell::RefCell;
use std::collections::HashMap;

use foldhash::fast::FixedState;
use swath_arch::{BusError, PhysAddr, PhysMemory};

/// Words of a frame.
const WORDS: usize = 512;

/// Memory that begins as zeros; a frame takes room when it is first written.
#[derive(Default)]
pub(crate) struct SparseMemory {
    frames: RefCell<HashMap<u64, Box<[u64; WORDS]>, FixedState>>,
}

/// The frame and the word of an address.
fn place(addr: PhysAddr, len_bytes: u32) -> Result<(u64, usize), BusError> {
    if !addr.raw().is_multiple_of(len_bytes.into()) {
        return Err(BusError { addr, len_bytes });
    }
    Ok((addr.frame().raw(), (addr.raw() as usize / 8) % WORDS))
}

impl SparseMemory {
    fn word(&self, (frame, word): (u64, usize)) -> u64 {
        self.frames.borrow().get(&frame).map_or(0, |words| words[word])
    }

    fn set(&self, (frame, word): (u64, usize), value: u64) {
        let mut frames = self.frames.borrow_mut();
        frames.entry(frame).or_insert_with(|| Box::new([0; WORDS]))[word] = value;
    }
}

impl PhysMemory for SparseMemory {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let word = self.word(place(addr, 4)?);
        Ok((word >> (8 * (addr.raw() & 4))) as u32)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        Ok(self.word(place(addr, 8)?))
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let at = place(addr, 4)?;
        let shift = 8 * (addr.raw() & 4);
        self.set(at, self.word(at) & !(0xffff_ffff << shift) | u64::from(value) << shift);
        Ok(())
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.set(place(addr, 8)?, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_where_they_were_written() {
        let memory = SparseMemory::default();
        let at = PhysAddr::new;
        assert_eq!(memory.read_u64(at(0x1_2345_6000)), Ok(0));
        memory.write_u64(at(0x1_2345_6ff8), 0x0123_4567_89ab_cdef).unwrap();
        memory.write_u32(at(0x1_2345_6ffc), 0x7654_3210).unwrap();
        assert_eq!(memory.read_u64(at(0x1_2345_6ff8)), Ok(0x7654_3210_89ab_cdef));
        assert_eq!(memory.read_u32(at(0x1_2345_6ff8)), Ok(0x89ab_cdef));
        assert_eq!(memory.read_u64(at(0x1_2345_5ff8)), Ok(0));
        assert_eq!(memory.frames.borrow().len(), 1);
        assert_eq!(memory.read_u64(at(4)), Err(BusError { addr: at(4), len_bytes: 8 }));
        assert_eq!(memory.write_u32(at(2), 1), Err(BusError { addr: at(2), len_bytes: 4 }));
    }
}
