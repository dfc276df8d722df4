//! Memory of this machine as areas: a file of memory, mapped piece by piece.
//!
//! An offset in the file is a physical address, so that frames are taken
//! or not (pages of the file), and mapped or not, apart from each other, as
//! sections 3.2 and 4.2 of Zhang, Lu and Zhang want it. The accelerator's
//! space is a range of addresses, reserved once.

#![allow(unsafe_code, reason = "maps memory: each call with its proof")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};

use nix::libc;
use swath_arch::{BASE_PAGE_BYTES, Extent, Pfn};
use swath_frame::segment::{
    AreaFrames, CountedPages, FrameSupply, MappingRefused, Segment, SegmentExtents, SegmentMapping,
};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES};
use crate::papers::clmalloc::variant::CountsPages;

/// So that the accelerator's space begins with a unit of the pool.
const ALIGN_BYTES: usize = 1 << 21;

/// A machine's memory, of which some is mapped.
pub(crate) struct FileMemory {
    file: File,
    reserved: *mut u8,
    reserved_len: usize,
    base: NonNull<u8>,
    pages: CountedPages,
    /// True if frames are cleared as they are acquired.
    clears: bool,
    /// True if frames were to be acquired and could not be.
    lacking: bool,
}

fn mapped(at: *mut libc::c_void) -> io::Result<*mut u8> {
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

fn bytes(frames: u64) -> usize {
    (frames * BASE_PAGE_BYTES) as usize
}

impl FileMemory {
    /// The memory of `machine`, its frames taken now or when they are acquired, and cleared then or when
    /// they are mapped.
    pub(crate) fn new(machine: &AreasPlan, frames: FrameSupply, clears: bool) -> io::Result<Self> {
        // SAFETY: a name that ends with a zero; the file is this value's own.
        let file = unsafe {
            let file = libc::memfd_create(c"areas".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(file)
        };
        let end_mib = machine.areas().map(|(first, len)| first + len).max();
        file.set_len(end_mib.unwrap_or(0) << 20)?;
        let reserved_len = ((machine.total_mib() << 20) as usize).saturating_add(ALIGN_BYTES);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel wants it.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), reserved_len, libc::PROT_NONE, flags, -1, 0) };
        let reserved = mapped(at)?;
        let base = reserved.wrapping_add(reserved.align_offset(ALIGN_BYTES));
        let base = NonNull::new(base).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let pages = CountedPages::default();
        let lacking = false;
        let mut memory = Self { file, reserved, reserved_len, base, pages, clears, lacking };
        if frames == FrameSupply::PreAllocated {
            for (first, len) in machine.areas() {
                let extent = Extent::new(Pfn::new(first * MIB_FRAMES), len * MIB_FRAMES);
                memory.place(0, extent)?;
                memory.hide(0, extent.count)?;
            }
        }
        Ok(memory)
    }

    /// The address at which frame 0 of the accelerator's space is mapped.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Calls `fallocate` on a run of frames; true if it did as it was told.
    fn fallocate(&self, run: Extent, how: libc::c_int) -> bool {
        let (offset, len) = (bytes(run.start.raw()), bytes(run.count));
        let (offset, len) = (offset as libc::off_t, len as libc::off_t);
        // SAFETY: pages of this value's file; those that go are mapped nowhere any more.
        unsafe { libc::fallocate(self.file.as_raw_fd(), how, offset, len) == 0 }
    }

    /// Takes a run of frames with zeroes in them; true if that failed.
    fn write_zeroes(&self, run: Extent) -> bool {
        // Stays in a cache, so that it costs little more than to clear.
        static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
        let (start, end) = (bytes(run.start.raw()), bytes(run.end().raw()));
        (start..end).step_by(ZEROES.len()).any(|at| {
            let part = &ZEROES[..ZEROES.len().min(end - at)];
            self.file.write_all_at(part, at as u64).is_err()
        })
    }

    /// Maps `extent` from page `page` of the space on; its frames are taken if they were not.
    fn place(&mut self, page: u64, extent: Extent) -> io::Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let (at, len) = (self.base.as_ptr().wrapping_add(bytes(page)), bytes(extent.count));
        let offset = bytes(extent.start.raw()) as libc::off_t;
        // SAFETY: within the reservation, as long as the space, and not in use.
        let placed =
            unsafe { libc::mmap(at.cast(), len, access, flags, self.file.as_raw_fd(), offset) };
        mapped(placed)?;
        // SAFETY: the range just mapped.
        if unsafe { libc::madvise(at.cast(), len, libc::MADV_POPULATE_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Makes `count` pages of the space a reservation again.
    fn hide(&mut self, page: u64, count: u64) -> io::Result<()> {
        let at = self.base.as_ptr().wrapping_add(bytes(page));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: within the reservation, and given up by its user.
        let hidden = unsafe { libc::mmap(at.cast(), bytes(count), libc::PROT_NONE, flags, -1, 0) };
        mapped(hidden).map(|_| ())
    }
}

impl AreaFrames for FileMemory {
    /// Takes pages of the file, which are cleared now or when they are mapped.
    fn acquire(&mut self, run: Extent) {
        self.lacking |= if self.clears { self.write_zeroes(run) } else { !self.fallocate(run, 0) };
        self.pages.acquire(run);
    }

    fn release(&mut self, run: Extent) {
        // What does not go stays taken: more than there should be.
        let _ = self.fallocate(run, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE);
        self.pages.release(run);
    }
}

impl SegmentMapping for FileMemory {
    fn map(&mut self, segment: Segment, extents: SegmentExtents<'_>) -> Result<(), MappingRefused> {
        if self.lacking {
            return Err(MappingRefused);
        }
        let mut page = segment.start;
        for extent in extents.clone() {
            if self.place(page, extent).is_err() {
                self.unmap(segment, extents);
                return Err(MappingRefused);
            }
            page += extent.count;
        }
        self.pages.mapped += segment.count;
        Ok(())
    }

    fn unmap(&mut self, segment: Segment, _: SegmentExtents<'_>) {
        // A part that fails stays mapped.
        let _ = self.hide(segment.start, segment.count);
        self.pages.unmapped += segment.count;
    }
}

impl CountsPages for FileMemory {
    fn pages(&self) -> CountedPages {
        self.pages
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        // SAFETY: reserved by `new`; whatever is mapped in it goes, too.
        unsafe { libc::munmap(self.reserved.cast(), self.reserved_len) };
    }
}

#[cfg(test)]
mod tests {
    use swath_arch::Order;

    use super::*;
    use crate::papers::clmalloc::areas::machine;

    /// A byte of the space.
    fn byte(memory: &FileMemory, page: u64) -> *mut u8 {
        memory.base().as_ptr().wrapping_add(bytes(page))
    }

    #[test]
    fn frames_stay_or_go_with_the_mapping() {
        let machine = machine("two", &[(1, 1), (5, 1)]);
        for (frames, clears, kept) in [
            (FrameSupply::PreAllocated, false, 7),
            (FrameSupply::OnDemand, false, 0),
            (FrameSupply::OnDemand, true, 0),
        ] {
            let mut memory = FileMemory::new(&machine, frames, clears).unwrap();
            machine
                .with_space(Order::BASE, |space| {
                    // Across the vacuum.
                    let segment = Segment::new(200, 100);
                    let on_demand = frames == FrameSupply::OnDemand;
                    let behind = || space.extents(segment).filter(|_| on_demand);
                    behind().for_each(|run| memory.acquire(run));
                    memory.map(segment, space.extents(segment)).unwrap();
                    for page in 200..300 {
                        // SAFETY: mapped by the call above.
                        unsafe {
                            assert_eq!(byte(&memory, page).read(), 0);
                            byte(&memory, page).write(7);
                        }
                    }
                    memory.unmap(segment, space.extents(segment));
                    behind().for_each(|run| memory.release(run));
                    behind().for_each(|run| memory.acquire(run));
                    memory.map(segment, space.extents(segment)).unwrap();
                    for page in 200..300 {
                        // SAFETY: as above.
                        assert_eq!(unsafe { byte(&memory, page).read() }, kept, "{page}");
                    }
                    let (acquired, released) = if on_demand { (200, 100) } else { (0, 0) };
                    let pages = CountedPages { acquired, released, mapped: 200, unmapped: 100 };
                    assert_eq!(memory.pages(), pages);
                })
                .unwrap();
        }
    }
}
