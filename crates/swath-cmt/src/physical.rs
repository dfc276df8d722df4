//! Which frames lie behind addresses, as far as the kernel tells: `/proc/self/pagemap` says so
//! to whoever has the right (CAP_SYS_ADMIN), `/proc/iomem` where memory is.
//!
//! Nothing here allocates: it is used from within `malloc`.

use core::ffi::CStr;

use swath_arch::BASE_PAGE_BYTES;

use swath_arch::{Extent, Pfn};

/// An open file that is closed in the end.
struct File(i32);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a path that ends with a zero.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads at an offset; how much was read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let offset = libc::off_t::try_from(offset).ok()?;
        // SAFETY: the buffer is as long as it is said to be.
        let read = unsafe { libc::pread(self.0, bytes.as_mut_ptr().cast(), bytes.len(), offset) };
        usize::try_from(read).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: opened above, closed once.
        unsafe { libc::close(self.0) };
    }
}

/// The process's page map.
pub struct PageMap(File);

/// A page map's entry: the page is there.
const PRESENT: u64 = 1 << 63;
/// A page map's entry: the frame's number, 0 without the right to know it.
const FRAME: u64 = (1 << 55) - 1;

impl PageMap {
    pub fn open() -> Option<Self> {
        Some(Self(File::open(c"/proc/self/pagemap")?))
    }

    /// Calls `visit` with the frame of each of `pages` pages from `address` on: `None` if the page
    /// is not there or the kernel does not say. Whether the map could be read.
    pub fn frames(&self, address: usize, pages: usize, visit: &mut dyn FnMut(Option<u64>)) -> bool {
        let mut buffer = [0; 512 * 8];
        let mut page = 0;
        while page < pages {
            let wanted = (pages - page).min(512) * 8;
            let first = (address / BASE_PAGE_BYTES as usize + page) as u64;
            if self.0.read_at(&mut buffer[..wanted], first * 8) != Some(wanted) {
                return false;
            }
            for entry in buffer[..wanted].as_chunks().0 {
                let entry = u64::from_ne_bytes(*entry);
                let frame = entry & FRAME;
                visit((entry & PRESENT != 0 && frame != 0).then_some(frame));
            }
            page += wanted / 8;
        }
        true
    }

    /// The first frame of `pages` pages from `address` on if they lie in frames that
    /// follow one another.
    pub fn contiguous(&self, address: usize, pages: usize) -> Option<u64> {
        let (mut first, mut next, mut broken) = (None, 0, false);
        let read = self.frames(address, pages, &mut |frame| match frame {
            Some(frame) if first.is_none() => (first, next) = (Some(frame), frame + 1),
            Some(frame) if frame == next => next += 1,
            _ => broken = true,
        });
        if read && !broken { first } else { None }
    }
}

/// Whether this process may know physical addresses: it asks for the frame of a page of its
/// own stack.
pub fn known() -> bool {
    let here = 0_u8;
    let address = core::hint::black_box(&raw const here).addr();
    PageMap::open().is_some_and(|map| map.contiguous(address, 1).is_some())
}

/// Visits the machine's ranges of memory in `/proc/iomem` as frames, ascending; whether the
/// kernel says where they are.
pub fn areas(visit: &mut dyn FnMut(Extent)) -> bool {
    let Some(file) = File::open(c"/proc/iomem") else { return false };
    let mut line = Line { bytes: [0; 160], len: 0 };
    let (mut buffer, mut offset, mut any) = ([0; 1024], 0, false);
    while let Some(read @ 1..) = file.read_at(&mut buffer, offset) {
        offset += read as u64;
        for &byte in &buffer[..read] {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            if let Some(area) = line.area() {
                any = true;
                visit(area);
            }
            line.len = 0;
        }
    }
    any
}

/// One line of `/proc/iomem`, such as `00100000-bfffffff : System RAM`.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    /// What is too long is no memory: its name is short.
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// The whole frames of a range of memory that the kernel tells the addresses of.
    fn area(&self) -> Option<Extent> {
        let line = core::str::from_utf8(&self.bytes[..self.len]).ok()?;
        let (range, name) = line.split_once(" : ")?;
        if name != "System RAM" {
            return None;
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) =
            (u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(last, 16).ok()?);
        let (start, end) =
            (first.div_ceil(BASE_PAGE_BYTES), last.checked_add(1)? / BASE_PAGE_BYTES);
        (end > start).then(|| Extent::new(Pfn::new(start), end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(text: &str) -> Option<Extent> {
        let mut line = Line { bytes: [0; 160], len: 0 };
        text.bytes().for_each(|byte| line.push(byte));
        line.area()
    }

    #[test]
    fn lines_of_iomem() {
        let found = area("00001000-0009fbff : System RAM");
        assert_eq!(found, Some(Extent::new(Pfn::new(1), 0x9e)));
        assert_eq!(area("  01000000-01ffffff : Kernel code"), None);
        // Without the right to know, all addresses are zero.
        assert_eq!(area("00000000-00000000 : System RAM"), None);
        assert_eq!(area("100000000-ffffffffffffffff : System RAM"), None);
        assert_eq!(area("5-4 : System RAM"), None);
        assert_eq!(area(&"9".repeat(500)), None);
    }

    #[test]
    fn a_page_has_a_frame_or_the_kernel_does_not_say() {
        let Some(map) = PageMap::open() else { return };
        let bytes = vec![1_u8; 64 << 10];
        let mut seen = 0;
        assert!(map.frames(bytes.as_ptr().addr(), 16, &mut |frame| {
            assert_eq!(frame.is_some(), known());
            seen += 1;
        }));
        assert_eq!(seen, 16);
    }
}
