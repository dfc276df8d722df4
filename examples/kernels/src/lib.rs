//! One allocator of frames, by the interfaces that kernels take theirs by.
//!
//! [`KernelFrames`] is the page buddy system with a slot for each CPU before it. It begins without memory, which comes
//! when boot code, a driver or a hypervisor has some to give. The modules are the interfaces: each is what the
//! kernel's own code calls, and some twenty lines.

#![no_std]
#![deny(unsafe_code)]

pub mod asterinas;
pub mod hermit;
pub mod nanvix;
pub mod paging;
pub mod twizzler;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use core::sync::atomic::AtomicUsize;

use lock_api::RawMutex;
use swath_arch::{Extent, Order, Pfn, PhysAddr};
use swath_frame::front::{Front, FrontError, OnCpu, Slot};
use swath_frame::{
    BuddyConfig, BuildError, ByteRange, ContiguousRequest, FrameAllocator, FrameHotplug,
    FrameHotplugError, MemoryMap, MemoryMapError, PageBuddy,
};

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 4096;

/// The frame lists: those of x86-64 and ARMv8, 4 KiB and 2 MiB and 1 GiB.
const CONFIG: BuddyConfig = BuddyConfig::PBS_ARMV8;

type Buddy<'m> = PageBuddy<&'m mut [u64]>;

/// Reasons why there is no allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelFramesError {
    /// The span has no frame, or no end.
    #[error(transparent)]
    Span(#[from] MemoryMapError),
    /// There are too few words, or too many frames.
    #[error(transparent)]
    Storage(#[from] BuildError),
    /// There is no slot, or there are too few words of bits.
    #[error(transparent)]
    Front(#[from] FrontError),
    /// The span could not be emptied.
    #[error(transparent)]
    Empty(#[from] FrameHotplugError),
}

/// Storage for an allocator of a span of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Words of the page buddy system.
    pub words: usize,
    /// Words of the bits that say which frames users hold.
    pub bits: usize,
}

/// Frames for all CPUs of a kernel, within a span of addresses.
///
/// `R` is the lock's type, which masks interrupts where handlers allocate. Each CPU uses its own slot, whose number
/// `cpu` tells; a number beyond the slots goes round, since any slot is right and one's own the fastest.
pub struct KernelFrames<'m, R> {
    front: Front<'m, R, Buddy<'m>>,
    cpus: usize,
    cpu: fn() -> usize,
}

fn map<'a>(span: Extent, area: &'a mut [Extent; 1]) -> Result<MemoryMap<'a>, MemoryMapError> {
    MemoryMap::new(&[ByteRange::of_frames(span)], area)
}

impl<'m, R: RawMutex> KernelFrames<'m, R> {
    /// Counts the words for memory that lies within `span`: some 2.1 bits of the first and 2.5 of the second
    /// kind for each frame.
    ///
    /// # Errors
    /// [`MemoryMapError`] if the span has no frame.
    pub fn needs(span: Extent) -> Result<Needs, MemoryMapError> {
        let mut area = [Extent::default()];
        let words = Buddy::storage_words(&map(span, &mut area)?, CONFIG);
        Ok(Needs { words, bits: Front::<R, Buddy<'_>>::bits_len_reaching(span) })
    }

    /// Makes an allocator that has no memory yet. O(words).
    ///
    /// # Errors
    /// [`KernelFramesError`].
    pub fn new(
        span: Extent,
        words: &'m mut [u64],
        bits: &'m mut [AtomicUsize],
        slots: &'m mut [Slot<R>],
        cpu: fn() -> usize,
    ) -> Result<Self, KernelFramesError> {
        let mut area = [Extent::default()];
        let mut buddy = Buddy::new(&map(span, &mut area)?, CONFIG, words)?;
        buddy.remove_frames(span)?;
        let cpus = slots.len();
        Ok(Self { front: Front::new_reaching(buddy, span, slots, bits)?, cpus, cpu })
    }

    /// Adds the whole frames of a piece of memory, now or at any time.
    ///
    /// # Errors
    /// A [`FrameHotplugError`], as of memory that is there already or lies outside the span; nothing changes.
    pub fn add_memory(&self, start: usize, len_bytes: usize) -> Result<(), FrameHotplugError> {
        let first = start.div_ceil(FRAME_BYTES);
        let past = start.saturating_add(len_bytes) / FRAME_BYTES;
        self.front
            .add_frames(Extent::new(Pfn::new(first as u64), past.saturating_sub(first) as u64))
    }

    /// Removes memory all of which is free.
    ///
    /// # Errors
    /// A [`FrameHotplugError`] that names a frame; nothing changes.
    pub fn remove_memory(&self, start: usize, len_bytes: usize) -> Result<(), FrameHotplugError> {
        self.front.remove_frames(extent(start, len_bytes))
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> usize {
        self.front.free_frames() as usize * FRAME_BYTES
    }

    /// The calling CPU's view.
    fn here(&self) -> Option<OnCpu<'_, 'm, R, Buddy<'m>>> {
        self.front.on((self.cpu)() % self.cpus).ok()
    }

    /// Allocates an aligned block of an order.
    fn take_order(&self, order: Order) -> Option<Extent> {
        self.here()?.allocate_aligned(order).ok()
    }

    /// Allocates frames in a row at a multiple of 2^`align` frames; a power of two by the CPU's slot, if its own
    /// alignment is enough.
    fn take(&self, frames: u64, align: Order) -> Option<Extent> {
        if frames.is_power_of_two() && align.frames() <= frames {
            return self.take_order(Order::new(frames.trailing_zeros() as u8)?);
        }
        self.place(&ContiguousRequest { align, ..ContiguousRequest::new(frames) })
    }

    fn place(&self, request: &ContiguousRequest) -> Option<Extent> {
        self.front.allocate_contiguous(request).ok()
    }

    /// Frees frames; a wrong free changes nothing.
    fn give(&self, extent: Extent) -> bool {
        self.here().is_some_and(|mut cpu| cpu.free(extent).is_ok())
    }
}

impl<R> core::fmt::Debug for KernelFrames<'_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KernelFrames").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

/// The frames of an address and a length, both multiples of a frame.
fn extent(start: usize, len_bytes: usize) -> Extent {
    let frames = len_bytes / FRAME_BYTES;
    Extent::new(PhysAddr::new(start as u64).frame(), frames as u64)
}

/// The address of the first byte.
fn address(extent: Extent) -> usize {
    extent.start.address().raw() as usize
}

/// The order, in frames, of a number of bytes that is a power of two of frames.
fn order(bytes: usize) -> Option<Order> {
    let frames = bytes / FRAME_BYTES;
    let whole = bytes.is_multiple_of(FRAME_BYTES) && frames.is_power_of_two();
    whole.then(|| Order::new(frames.trailing_zeros() as u8)).flatten()
}
