//! Memory and frames for tables that fail when they are told to.

use std::cell::{Cell, RefCell};

use swath_arch::{BusError, Extent, Order, Pfn, PhysAddr, PhysMemory, SliceMemory};
use swath_frame::{BuddyConfig, FrameAllocateError, FrameAllocator, FrameFreeError, PageBuddy};

use super::memory::{GARBAGE, with_map};

/// Words of a frame.
const FRAME_WORDS: usize = 512;

/// Counts down to the access or request that fails; 0 for none.
#[derive(Default)]
pub(super) struct Fault(Cell<u64>);

impl Fault {
    pub(super) fn set(&self, left: u64) {
        self.0.set(left);
    }

    fn comes(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 1
    }
}

/// Memory of which one access fails.
pub(super) struct Bus<'m> {
    words: SliceMemory<'m>,
    first: Pfn,
    /// Which frames were written.
    written: Vec<Cell<bool>>,
    pub(super) read: Fault,
    pub(super) write: Fault,
}

/// Calls `test` with memory of these frames, full of garbage. It serves one input after the other:
/// of all of it, only frames that were written are filled again.
pub(super) fn with_bus<T>(frames: Extent, test: impl FnOnce(&Bus<'_>) -> T) -> T {
    thread_local! {
        static WORDS: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
    }
    // A test that panics does not give it back.
    let mut words = WORDS.take();
    words.resize(frames.count as usize * FRAME_WORDS, GARBAGE);
    let bus = Bus {
        words: SliceMemory::new(frames.start, &mut words),
        first: frames.start,
        written: vec![Cell::new(false); frames.count as usize],
        read: Fault::default(),
        write: Fault::default(),
    };
    let result = test(&bus);
    let written = bus.written;
    for (words, written) in words.chunks_mut(FRAME_WORDS).zip(written) {
        if written.get() {
            words.fill(GARBAGE);
        }
    }
    WORDS.set(words);
    result
}

impl Bus<'_> {
    /// Reads a word as the judge does, who knows no faults.
    pub(super) fn peek(&self, addr: PhysAddr) -> u64 {
        self.words.read_u64(addr).expect("memory that there is")
    }

    /// Writes a word as the judge does.
    pub(super) fn poke(&self, addr: PhysAddr, value: u64) {
        self.note(addr);
        self.words.write_u64(addr, value).expect("memory that there is");
    }

    fn note(&self, addr: PhysAddr) {
        let frame = addr.frame().raw().wrapping_sub(self.first.raw());
        if let Some(written) = self.written.get(frame as usize) {
            written.set(true);
        }
    }
}

impl PhysMemory for Bus<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let error = BusError { addr, len_bytes: 4 };
        if self.read.comes() { Err(error) } else { self.words.read_u32(addr) }
    }
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        let error = BusError { addr, len_bytes: 8 };
        if self.read.comes() { Err(error) } else { self.words.read_u64(addr) }
    }
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let error = BusError { addr, len_bytes: 4 };
        self.note(addr);
        if self.write.comes() { Err(error) } else { self.words.write_u32(addr, value) }
    }
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        let error = BusError { addr, len_bytes: 8 };
        self.note(addr);
        if self.write.comes() { Err(error) } else { self.words.write_u64(addr, value) }
    }
}

/// Frames of which one request fails.
pub(super) struct Frames {
    pub(super) buddy: RefCell<PageBuddy<Vec<u64>>>,
    pub(super) fault: Fault,
}

impl Frames {
    pub(super) fn new(frames: Extent) -> Self {
        let buddy = with_map(&[frames], |map| {
            let words = PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::BBS);
            PageBuddy::new(&map, BuddyConfig::BBS, vec![GARBAGE; words])
        });
        let buddy = RefCell::new(buddy.expect("as many words as needed"));
        Self { buddy, fault: Fault::default() }
    }

    /// Checks the allocator, and that so many frames are in use.
    pub(super) fn check(&self, used: u64) {
        assert_eq!(self.buddy.borrow().check(), Ok(()));
        self.count(used);
    }

    /// Checks that so many frames are in use.
    pub(super) fn count(&self, used: u64) {
        let buddy = self.buddy.borrow();
        assert_eq!(buddy.total_frames() - buddy.free_frames(), used, "frames of tables");
    }
}

impl FrameAllocator for &Frames {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if self.fault.comes() { None } else { self.buddy.borrow_mut().allocate_block(frames_max) }
    }
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        if self.fault.comes() {
            return Err(FrameAllocateError::NoBlock { order });
        }
        self.buddy.borrow_mut().allocate_aligned(order)
    }
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.buddy.borrow_mut().free(extent)
    }
    fn free_frames(&self) -> u64 {
        self.buddy.borrow().free_frames()
    }
    fn total_frames(&self) -> u64 {
        self.buddy.borrow().total_frames()
    }
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.buddy.borrow().for_each_free(visit);
    }
}
