//! The frames behind addresses, from `/proc/self/pagemap`: the kernel shows them to a process with
//! CAP_SYS_ADMIN.

use swath_arch::BASE_PAGE_BYTES;

use crate::physical::file::File;
use crate::source::mapping::wait_for_pages;

/// The process's page map.
pub(crate) struct PageMap(File);

/// A page map's entry: the page is there.
const PRESENT: u64 = 1 << 63;
/// A page map's entry: no other process has the page.
const OWN: u64 = 1 << 56;
/// A page map's entry: the frame's number, 0 without the right to know it.
const FRAME: u64 = (1 << 55) - 1;

/// Readings before a page is none: the kernel may move it again and again.
const TRIES: usize = 16;

/// The pages of [`CHUNK_PAGES`] pages.
pub(crate) struct SharedPages {
    /// Number of those that are there.
    pub(crate) present: usize,
    /// Number of those that no other process has.
    pub(crate) own: usize,
    /// True if all are there in frames that follow one another, as far as the kernel says.
    pub(crate) is_run: bool,
}

/// Pages that are looked at together.
const CHUNK_PAGES: usize = 512;

impl PageMap {
    /// Opens it.
    pub(crate) fn open() -> Option<Self> {
        Some(Self(File::open(c"/proc/self/pagemap")?))
    }

    /// Calls `visit` with the frame of each of `pages` pages from `address` on: `None` if the page
    /// is not there or the kernel does not say. Returns true if the map could be read.
    pub(crate) fn frames(
        &self,
        address: usize,
        pages: usize,
        visit: &mut dyn FnMut(Option<u64>),
    ) -> bool {
        let mut buffer = [0; CHUNK_PAGES * 8];
        let mut page = 0;
        while page < pages {
            let wanted = (pages - page).min(CHUNK_PAGES) * 8;
            let first = (address / BASE_PAGE_BYTES as usize + page) as u64;
            let mut tries = 0;
            loop {
                if self.0.read_at(&mut buffer[..wanted], first * 8) != Some(wanted) {
                    return false;
                }
                let mut entries = buffer[..wanted].as_chunks().0.iter();
                let all = entries.all(|entry| u64::from_ne_bytes(*entry) & PRESENT != 0);
                // While the kernel moves a page it has none: whoever reads there waits for it.
                tries += 1;
                let first = address + page * BASE_PAGE_BYTES as usize;
                if all || tries == TRIES || !wait_for_pages(first, wanted / 8) {
                    break;
                }
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

    /// Counts the pages from `address` on, as many as a huge page has, that are there and that are shared.
    pub(crate) fn shared(&self, address: usize) -> Option<SharedPages> {
        let mut buffer = [0; CHUNK_PAGES * 8];
        let first = (address / BASE_PAGE_BYTES as usize) as u64;
        if self.0.read_at(&mut buffer, first * 8) != Some(buffer.len()) {
            return None;
        }
        let entries = || buffer.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        let count = |bits: u64| entries().filter(|entry| entry & bits == bits).count();
        let start = entries().next().unwrap_or(0) & FRAME;
        let follows = |(index, entry): (u64, u64)| entry & FRAME == start + index;
        let present = count(PRESENT);
        let is_run = start != 0 && present == CHUNK_PAGES && (0..).zip(entries()).all(follows);
        Some(SharedPages { present, own: count(PRESENT | OWN), is_run })
    }

    /// Returns the first frame of `pages` pages from `address` on if they lie in frames that
    /// follow one another.
    pub(crate) fn contiguous(&self, address: usize, pages: usize) -> Option<u64> {
        let (mut first, mut next, mut broken) = (None, 0, false);
        let read = self.frames(address, pages, &mut |frame| match frame {
            Some(frame) if first.is_none() => (first, next) = (Some(frame), frame + 1),
            Some(frame) if frame == next => next += 1,
            _ => broken = true,
        });
        if read && !broken { first } else { None }
    }
}

/// Returns true if this process may know physical addresses: it asks for the frame of a page of its
/// own stack.
pub(crate) fn known() -> bool {
    let here = 0_u8;
    let address = core::hint::black_box(&raw const here).addr();
    PageMap::open().is_some_and(|map| map.contiguous(address, 1).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = map.shared(bytes.as_ptr().addr()).expect("readable");
        assert!(all.present >= 16 && all.own >= 16 && all.own <= all.present && !all.is_run);
    }
}
