//! The machine's memory: what the firmware said of it, storage cut from it, and access by address.
//!
//! All memory lies at its own address, before and after the kernel's tables are loaded: with the
//! processor's translation off, by the tables of the way in, then by Swath's own (a *direct map*).

use core::ptr;

use swath_arch::{BusError, Extent, PhysAddr, PhysMemory};
use swath_frame::ByteRange;

/// The most ranges that are kept.
const RANGES: usize = 16;

/// The ranges of memory that the firmware calls usable, without the kernel's own.
pub struct Firmware {
    ranges: [ByteRange; RANGES],
    count: usize,
}

impl Firmware {
    /// Knows of no memory.
    pub const fn new() -> Self {
        Self { ranges: [ByteRange::new(PhysAddr::new(0), 0); RANGES], count: 0 }
    }

    /// Adds a usable range, without what lies in `taken`, which may cut it in two.
    ///
    /// # Panics
    /// If there are more than 16 ranges.
    pub fn add(&mut self, start: u64, len_bytes: u64, taken: (u64, u64)) {
        let end = start.saturating_add(len_bytes);
        for (from, to) in [(start, end.min(taken.0)), (start.max(taken.1), end)] {
            if from < to {
                self.ranges[self.count] = ByteRange::new(PhysAddr::new(from), to - from);
                self.count += 1;
            }
        }
    }

    /// The ranges.
    pub fn ranges(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }

    /// Counts the usable bytes.
    pub fn len_bytes(&self) -> u64 {
        self.ranges().iter().map(|range| range.len_bytes).sum()
    }

    /// Returns the frames from the first to the last byte that is known to be memory, holes, the
    /// kernel and what was cut off included.
    pub fn span(&self, kernel: (u64, u64)) -> Extent {
        let starts = self.ranges().iter().map(|range| range.start.raw());
        let ends = self.ranges().iter().map(|range| range.start.raw() + range.len_bytes);
        let start = starts.fold(kernel.0, u64::min) >> 12;
        let end = ends.fold(kernel.1, u64::max).div_ceil(4096);
        Extent::new(swath_arch::Pfn::new(start), end - start)
    }

    /// Cuts storage for `count` items off the end of the longest range.
    ///
    /// # Panics
    /// If no range is long enough.
    pub fn cut<T: Copy>(&mut self, count: usize, item: T) -> &'static mut [T] {
        let len_bytes = (count * size_of::<T>()).next_multiple_of(4096) as u64;
        let ranges = &mut self.ranges[..self.count];
        let range = ranges.iter_mut().max_by_key(|range| range.len_bytes).expect("there is memory");
        let end = (range.start.raw() + range.len_bytes) & !4095;
        assert!(end - range.start.raw() >= len_bytes, "no room for {len_bytes} bytes");
        *range = ByteRange::new(range.start, end - len_bytes - range.start.raw());
        let first = ptr::with_exposed_provenance_mut::<T>((end - len_bytes) as usize);
        for at in 0..count {
            // SAFETY: `first` is aligned to a page and the range's last `len_bytes` bytes are memory
            // that the firmware calls usable, outside of the kernel; the range ends before them from
            // now on, so nobody else gets them.
            unsafe { first.add(at).write(item) };
        }
        // SAFETY: as above, and all `count` items were written.
        unsafe { core::slice::from_raw_parts_mut(first, count) }
    }
}

/// Memory by its address, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct DirectMap {
    /// The frames that may be reached.
    pub frames: Extent,
}

impl DirectMap {
    fn pointer<T>(self, addr: PhysAddr) -> Result<*mut T, BusError> {
        let len_bytes = size_of::<T>() as u32;
        let aligned = addr.raw().is_multiple_of(u64::from(len_bytes));
        if aligned && self.frames.contains(addr.frame()) {
            Ok(ptr::with_exposed_provenance_mut(addr.raw() as usize))
        } else {
            Err(BusError { addr, len_bytes })
        }
    }
}

impl PhysMemory for DirectMap {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        // SAFETY: the pointer is aligned and lies in memory that exists at its own address; who uses
        // this type gives it frames that no reference reaches.
        self.pointer(addr).map(|at| unsafe { ptr::read_volatile(at) })
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        // SAFETY: as in `read_u32`.
        self.pointer(addr).map(|at| unsafe { ptr::read_volatile(at) })
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        // SAFETY: as in `read_u32`.
        self.pointer(addr).map(|at| unsafe { ptr::write_volatile(at, value) })
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        // SAFETY: as in `read_u32`.
        self.pointer(addr).map(|at| unsafe { ptr::write_volatile(at, value) })
    }
}
