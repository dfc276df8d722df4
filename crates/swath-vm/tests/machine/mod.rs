//! A small machine for the tests: memory and frames that can be made to fail,
//! and a decoder of tables written from the specifications.

pub(crate) mod spec;

use std::cell::{Cell, RefCell};

use swath_arch::testing::Random;
use swath_arch::{
    BusError, Coalescing, ContiguityField, Extent, Format, Order, Pfn, PhysAddr, PhysMemory,
};
use swath_frame::{FrameAllocateError, FrameAllocator, FrameFreeError};
use swath_vm::AddressSpace;

/// Frames of memory that answer; the rest of the address space does not.
pub(crate) struct Memory {
    first: u64,
    words: RefCell<Vec<Option<Box<[u64; 512]>>>>,
    /// Writes until the one that fails; 0 for none.
    pub(crate) fail_in: Cell<u64>,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
}

impl Memory {
    /// `frames` frames from `first` on, full of ones: nobody may rely on zero.
    pub(crate) fn new(first: u64, frames: u64) -> Self {
        let (fail_in, reads, writes) = Default::default();
        let words = RefCell::new(vec![None; frames as usize]);
        Self { first, words, fail_in, reads, writes }
    }

    fn access(&self, addr: PhysAddr, len_bytes: u32, write: Option<u64>) -> Result<u64, BusError> {
        let error = BusError { addr, len_bytes };
        let frame = (addr.raw() >> 12).wrapping_sub(self.first);
        let mut words = self.words.borrow_mut();
        let words = match words.get_mut(frame as usize) {
            Some(words) if addr.raw().is_multiple_of(len_bytes.into()) => words,
            _ => return Err(error),
        };
        let words = words.get_or_insert_with(|| Box::new([u64::MAX; 512]));
        let word = &mut words[(addr.raw() & 0xfff) as usize / 8];
        let shift = 8 * (addr.raw() & 7);
        let mask = u64::MAX >> (64 - 8 * len_bytes);
        match write {
            None => self.reads.set(self.reads.get() + 1),
            Some(value) => {
                let fail_in = self.fail_in.get();
                self.fail_in.set(fail_in.saturating_sub(1));
                if fail_in == 1 {
                    return Err(error);
                }
                self.writes.set(self.writes.get() + 1);
                *word = *word & !(mask << shift) | (value & mask) << shift;
            }
        }
        Ok(*word >> shift & mask)
    }
}

impl PhysMemory for Memory {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.access(addr, 4, None).map(|word| word as u32)
    }
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.access(addr, 8, None)
    }
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.access(addr, 4, Some(value.into())).map(drop)
    }
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.access(addr, 8, Some(value)).map(drop)
    }
    /// One write, so that each of them can be made to fail in short time.
    fn zero_frame(&self, frame: Pfn) -> Result<(), BusError> {
        self.access(frame.address(), 8, Some(0))?;
        self.words.borrow_mut()[(frame.raw() - self.first) as usize] = Some(Box::new([0; 512]));
        Ok(())
    }
}

/// Frames from `first` on. Blocks come at random places and lengths, so that
/// chunks are scattered.
pub(crate) struct Pool {
    first: u64,
    taken: Vec<bool>,
    pub(crate) random: Random,
    block_max: u64,
    /// Requests until the one that fails; 0 for none.
    pub(crate) fail_in: u64,
    pub(crate) requests: u64,
}

impl Pool {
    pub(crate) fn new(first: u64, frames: u64, block_max: u64, seed: u64) -> Self {
        let taken = vec![false; frames as usize];
        Self { first, taken, random: Random::new(seed), block_max, fail_in: 0, requests: 0 }
    }

    pub(crate) fn taken_frames(&self) -> u64 {
        self.taken.iter().filter(|&&taken| taken).count() as u64
    }
    fn fails(&mut self) -> bool {
        self.requests += 1;
        let fail_in = self.fail_in;
        self.fail_in = fail_in.saturating_sub(1);
        fail_in == 1
    }

    fn take(&mut self, at: usize, count: usize) -> Extent {
        self.taken[at..at + count].fill(true);
        Extent::new(Pfn::new(self.first + at as u64), count as u64)
    }
}

impl FrameAllocator for Pool {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 || self.fails() {
            return None;
        }
        let len = self.taken.len();
        let from = self.random.below(len as u64) as usize;
        let at = (from..len).chain(0..from).find(|&at| !self.taken[at])?;
        let wanted = 1 + self.random.below(frames_max.min(self.block_max));
        let room = self.taken[at..].iter().take_while(|&&taken| !taken).count();
        Some(self.take(at, room.min(wanted as usize)))
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let count = order.frames() as usize;
        let skip = (self.first.next_multiple_of(order.frames()) - self.first) as usize;
        let error = FrameAllocateError::NoBlock { order };
        if self.fails() {
            return Err(error);
        }
        let at = (skip..self.taken.len())
            .step_by(count)
            .find(|&at| self.taken.get(at..at + count).is_some_and(|s| !s.contains(&true)));
        at.map(|at| self.take(at, count)).ok_or(error)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        for frame in extent.iter() {
            match frame.raw().checked_sub(self.first).and_then(|i| self.taken.get(i as usize)) {
                None => return Err(FrameFreeError::Foreign { frame }),
                Some(false) => return Err(FrameFreeError::NotAllocated { frame }),
                Some(true) => {}
            }
        }
        let at = (extent.start.raw() - self.first) as usize;
        self.taken[at..at + extent.count as usize].fill(false);
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.total_frames() - self.taken_frames()
    }

    fn total_frames(&self) -> u64 {
        self.taken.len() as u64
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        for (i, _) in self.taken.iter().enumerate().filter(|(_, taken)| !**taken) {
            visit(Extent::new(Pfn::new(self.first + i as u64), 1));
        }
    }
}

pub(crate) type Space<'m> = AddressSpace<&'m Memory, &'m RefCell<Pool>>;

/// Every kind of coalescing, with the real widths and with ideal ones.
pub(crate) fn coalescings(format: Format) -> Vec<Coalescing> {
    let most = format.beside_half_bits() as u8;
    let mut all = vec![Coalescing::None];
    for field in [
        ContiguityField::Descriptor,
        ContiguityField::Line,
        ContiguityField::Beside { bits: 3 },
        ContiguityField::Beside { bits: most },
    ] {
        all.push(Coalescing::Pcad(field));
        for distance in [1, 4] {
            all.push(Coalescing::Anchor { field, distance: Order::known(distance) });
        }
    }
    all
}
