//! Memory of the kernel's dma-heaps, whose buffers are one run of physical memory each and stay in their
//! frames: of Swath's (`linux/`), which says where a buffer lies, else of the kernel's contiguous memory
//! allocator (CMA). An ordinary user has them who may open the heap.
//!
//! A mapping of a buffer is shared with whoever has it: a fork's child never gets one.

use core::ffi::CStr;

use swath_arch::BASE_PAGE_BYTES;

use crate::physical::file::{File, read};
use crate::physical::page_map::PageMap;
use crate::reserve::frames::CHUNK_FRAMES;
use crate::source::chunk::CHUNK_BYTES;
use crate::source::mapping::{keep_from_children, map_file};
use crate::source::scratch::Scratch;

/// Swath's heap.
const SWATH: &CStr = c"/dev/dma_heap/swath";
/// The kernel's, by the names that it has had, or has where a device tree names no other.
const CMA: [&CStr; 3] =
    [c"/dev/dma_heap/default_cma_region", c"/dev/dma_heap/linux,cma", c"/dev/dma_heap/reserved"];
/// The areas of Swath's heap, among its counts.
const COUNTS: &CStr = c"/proc/swath_heap";

/// `DMA_HEAP_IOCTL_ALLOC` of `linux/dma-heap.h`: of an [`Allocation`].
const ALLOCATE: libc::c_ulong = 0xC018_4800;
/// `SWATH_HEAP_IOCTL_EXTENTS` of `swath_heap.h`: of an [`Extents`].
const EXTENTS: libc::c_ulong = 0xC018_4840;
/// `SWATH_HEAP_ALIGN(21)` of `swath_heap.h`: aligned to a chunk.
const ALIGNED: u64 = 21 << 16;

/// `struct dma_heap_allocation_data` of `linux/dma-heap.h`.
#[repr(C)]
struct Allocation {
    len_bytes: u64,
    file: u32,
    file_flags: u32,
    heap_flags: u64,
}

/// `struct swath_heap_extents` of `swath_heap.h`.
#[repr(C)]
struct Extents {
    file: u32,
    room: u32,
    extents: u64,
    count: u32,
    pad: u32,
}

/// A heap that this process may open.
pub(crate) struct DmaHeap {
    file: File,
    is_swath: bool,
}

/// Memory of a heap, of whole chunks in one run of frames. A fork's child does not get it, wherever it moves.
pub(crate) struct HeapRun {
    pub(crate) memory: Scratch,
    /// Its first frame, at a multiple of a chunk, if that is known.
    pub(crate) frame: Option<u64>,
}

impl DmaHeap {
    /// Opens the first heap that there is.
    pub(crate) fn open() -> Option<Self> {
        let open = |path, is_swath| Some(Self { file: File::open(path)?, is_swath });
        open(SWATH, true).or_else(|| CMA.into_iter().find_map(|path| open(path, false)))
    }

    /// Takes a run of so many chunks.
    pub(crate) fn take(&self, chunks: usize) -> Option<HeapRun> {
        let len_bytes = chunks.checked_mul(CHUNK_BYTES)?;
        let heap_flags = if self.is_swath { ALIGNED } else { 0 };
        // The kernel's own aligns to less than a chunk.
        let more = if self.is_swath { 0 } else { CHUNK_BYTES };
        let mut asked = Allocation {
            len_bytes: (len_bytes + more) as u64,
            file: 0,
            file_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
            heap_flags,
        };
        // SAFETY: the kernel reads and writes a struct as long as the request says.
        if unsafe { self.file.control(ALLOCATE, (&raw mut asked).cast()) } != 0 {
            return None;
        }
        // SAFETY: a new file of this process, which nobody else has.
        let buffer = unsafe { File::of(asked.file as i32) };
        let at = map_file(&buffer, len_bytes + more)?;
        // SAFETY: mapped just now, and used by nothing else.
        let mut memory = unsafe { Scratch::of(at, len_bytes + more) };
        // What parent and child share, each would see the other change.
        // SAFETY: as above.
        if !unsafe { keep_from_children(at, len_bytes + more, true) } {
            return None;
        }
        let frame = if self.is_swath { self.told(asked.file) } else { seen(&memory) };
        let skip = frame.map_or(0, |frame| frame.wrapping_neg() % CHUNK_FRAMES);
        memory.trim(skip as usize * BASE_PAGE_BYTES as usize, len_bytes);
        Some(HeapRun { memory, frame: frame.map(|frame| frame + skip) })
    }

    /// Returns the first frame of a buffer of Swath's.
    fn told(&self, file: u32) -> Option<u64> {
        let mut extent = [0_u64; 2];
        let mut asked =
            Extents { file, room: 1, extents: (&raw mut extent).addr() as u64, count: 0, pad: 0 };
        (&raw mut extent).expose_provenance();
        // SAFETY: the kernel writes to the struct, and one extent behind its pointer.
        let told = unsafe { self.file.control(EXTENTS, (&raw mut asked).cast()) } == 0;
        let [address, _] = extent;
        (told && asked.count == 1).then_some(address / BASE_PAGE_BYTES)
    }

    /// Returns the frame behind the last of Swath's areas; 0 where it does not say.
    pub(crate) fn frames_end(&self) -> u64 {
        let mut bytes = [0; 4096];
        let counts = if self.is_swath { read(COUNTS, &mut bytes) } else { None };
        counts.map_or(0, |counts| areas_end(counts).div_ceil(BASE_PAGE_BYTES))
    }
}

/// Returns the address behind the last area that a heap's counts name: `area 0x40000000 0x10000000`.
fn areas_end(counts: &[u8]) -> u64 {
    let end = |line: &[u8]| {
        let mut words = core::str::from_utf8(line).ok()?.split(' ');
        let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        number()?.checked_add(number()?)
    };
    let lines = counts.split(|&byte| byte == b'\n');
    lines.filter_map(|line| end(line.strip_prefix(b"area ")?)).max().unwrap_or(0)
}

/// Returns the frame behind an address as the page map has it.
fn seen(memory: &Scratch) -> Option<u64> {
    // The page comes at the first access.
    // SAFETY: mapped, and this memory's.
    unsafe { memory.start().read_volatile() };
    PageMap::open()?.contiguous(memory.start().addr(), 1)
}

#[cfg(test)]
mod tests {
    use super::areas_end;

    #[test]
    fn areas_of_the_heap() {
        let counts = b"policy bitmap\nareas 2\narea 0x100000 0x200000\narea 0x40000000 0x10000000 reserved\n";
        assert_eq!(areas_end(counts), 0x5000_0000);
        for none in [&b""[..], b"area", b"area 5 5", b"area 0x5", b"area 0xffffffffffffffff 0x2"] {
            assert_eq!(areas_end(none), 0);
        }
    }
}
