//! Memory that is held so that it is not free: page by page, whose frames are known.
//!
//! All of it is this process's, so that it is free again when the process ends, however it does.

#![allow(unsafe_code, reason = "pages of a map come and go: each with its proof")]

use std::fs::File;
use std::io::{self, IoSlice, PipeReader, PipeWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, vmsplice};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use swath_arch::Pfn;

const PAGE_BYTES: usize = 4096;

/// Pages of a huge page.
pub(super) const HUGE_PAGES: usize = 512;

/// Pages of a pipe whose buffer is as long as an ordinary user's may be: 1 MiB.
const PIPE_PAGES: usize = 256;

/// Pages of anonymous memory or of a file's cache.
///
/// Invariant: a page of it is there exactly if it was taken and not given back since; the map has
/// `skipped + pages` pages or more.
pub(super) struct Pages {
    map: MmapRaw,
    /// The pages that there is room for.
    pages: usize,
    /// Present if they are a file's, which is given back by a hole in it.
    file: Option<File>,
    /// Pages of the map before the first.
    skipped: usize,
}

impl Pages {
    /// Room for so many pages of anonymous memory, of which none is there yet.
    pub(super) fn anonymous(pages: usize) -> io::Result<Self> {
        let map: MmapRaw = MmapMut::map_anon(pages * PAGE_BYTES)?.into();
        // A kernel without huge pages does not know the advice.
        let _ = map.advise(Advice::NoHugePage);
        Ok(Self { map, pages, file: None, skipped: 0 })
    }

    /// Room for so many pages of anonymous memory that comes as huge pages where it can.
    pub(super) fn huge(pages: usize) -> io::Result<Self> {
        let map: MmapRaw = MmapMut::map_anon((pages + HUGE_PAGES) * PAGE_BYTES)?.into();
        map.advise(Advice::HugePage)?;
        let first = map.as_ptr().addr() / PAGE_BYTES;
        Ok(Self { map, pages, file: None, skipped: first.next_multiple_of(HUGE_PAGES) - first })
    }

    /// Room for so many pages of the cache of a file without a name in a folder.
    pub(super) fn cached(folder: &Path, pages: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        file.set_len((pages * PAGE_BYTES) as u64)?;
        Ok(Self { map: MmapRaw::map_raw(&file)?, pages, file: Some(file), skipped: 0 })
    }

    /// The place of pages in the map, and their length, in bytes.
    fn bytes(&self, first: usize, pages: usize) -> io::Result<(usize, usize)> {
        match first.checked_add(pages) {
            Some(end) if end <= self.pages => {
                Ok(((self.skipped + first) * PAGE_BYTES, pages * PAGE_BYTES))
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there is room for {} pages, not for {pages} at {first}", self.pages),
            )),
        }
    }

    /// Takes memory for pages.
    ///
    /// # Errors
    /// There is no room for them, or the system's.
    pub(super) fn take(&self, first: usize, pages: usize) -> io::Result<()> {
        let (at, len) = self.bytes(first, pages)?;
        self.map.advise_range(Advice::PopulateWrite, at, len)
    }

    /// Gives the memory of pages back.
    ///
    /// # Errors
    /// There is no room for them, or the system's.
    pub(super) fn give_back(&self, first: usize, pages: usize) -> io::Result<()> {
        let advice = match self.file {
            Some(_) => UncheckedAdvice::Remove,
            None => UncheckedAdvice::DontNeed,
        };
        let (at, len) = self.bytes(first, pages)?;
        // SAFETY: the range lies in the map. The advice zeroes its pages, of which this process reads
        // nothing: there are no references to a raw map's bytes but those of `pin`, which end with it.
        unsafe { self.map.unchecked_advise_range(advice, at, len) }
    }

    /// Tells `each` the pages that are there, with their frames.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`] if it hides the frames' numbers.
    pub(super) fn frames(
        &self,
        pages: std::ops::Range<usize>,
        each: &mut dyn FnMut(usize, Pfn),
    ) -> io::Result<()> {
        self.bytes(pages.start, pages.len())?;
        let table = File::open("/proc/self/pagemap")?;
        let first = self.skipped + self.map.as_ptr().addr() / PAGE_BYTES;
        let mut words = vec![0; 8 * 4096];
        let mut at = pages.start;
        while at < pages.end {
            let count = (words.len() / 8).min(pages.end - at);
            let words = &mut words[..8 * count];
            table.read_exact_at(words, 8 * (first + at) as u64)?;
            for (i, word) in words.as_chunks().0.iter().enumerate() {
                let word = u64::from_ne_bytes(*word);
                if word >> 63 == 1 {
                    let frame = word & ((1 << 55) - 1);
                    if frame == 0 {
                        return Err(io::ErrorKind::PermissionDenied.into());
                    }
                    each(at + i, Pfn::new(frame));
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Pins a page that is there in its frame, through a pipe that refers to it.
    ///
    /// # Errors
    /// There is no room for it, or the system's.
    pub(super) fn pin(&self, page: usize, pipes: &mut Pipes) -> io::Result<()> {
        let (at, len) = self.bytes(page, 1)?;
        let pipe = pipes.with_room()?;
        // SAFETY: the page lies in the map, whose bytes nobody writes while the slice is: a raw map has
        // no other references, and the kernel alone zeroes pages, in `give_back`, not at once with this.
        let bytes = unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(at), len) };
        vmsplice(pipe, &[IoSlice::new(bytes)], SpliceFFlags::empty())?;
        pipes.used += 1;
        Ok(())
    }
}

/// Pipes whose buffers hold pages that the kernel cannot move: its own, or pinned ones.
#[derive(Default)]
pub(super) struct Pipes {
    pipes: Vec<(PipeReader, PipeWriter)>,
    /// Pages in the last one.
    used: usize,
}

/// Lets this process open as many files as the system allows it: each pipe is two.
pub(super) fn open_many_files() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

impl Pipes {
    fn with_room(&mut self) -> io::Result<&mut PipeWriter> {
        if self.pipes.is_empty() || self.used == PIPE_PAGES {
            let (reader, writer) = io::pipe()?;
            fcntl(&writer, FcntlArg::F_SETPIPE_SZ((PIPE_PAGES * PAGE_BYTES) as i32))?;
            fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            self.pipes.push((reader, writer));
            self.used = 0;
        }
        match self.pipes.last_mut() {
            Some((_, writer)) => Ok(writer),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Takes a page of the kernel's own.
    pub(super) fn take(&mut self) -> io::Result<()> {
        self.with_room()?.write_all(&[0; PAGE_BYTES])?;
        self.used += 1;
        Ok(())
    }

    /// The pages that are held.
    pub(super) fn pages(&self) -> u64 {
        match self.pipes.len() {
            0 => 0,
            pipes => ((pipes - 1) * PIPE_PAGES + self.used) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn there(pages: &Pages, count: usize) -> Option<Vec<usize>> {
        let mut found = Vec::new();
        match pages.frames(0..count, &mut |page, _| found.push(page)) {
            Ok(()) => Some(found),
            // Another user than root.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn pages_are_there_from_taking_to_giving_back() {
        let folder = tempfile::tempdir().unwrap();
        for pages in [Pages::anonymous(64).unwrap(), Pages::cached(folder.path(), 64).unwrap()] {
            assert!(there(&pages, 64).unwrap_or_default().is_empty());
            pages.take(8, 16).unwrap();
            let Some(found) = there(&pages, 64) else { return };
            assert_eq!(found, (8..24).collect::<Vec<_>>());
            pages.give_back(10, 3).unwrap();
            assert_eq!(there(&pages, 64).unwrap().len(), 13);
            pages.take(10, 1).unwrap();
            assert_eq!(there(&pages, 64).unwrap().len(), 14);
        }
    }

    #[test]
    fn pages_beyond_the_room_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            Pages::anonymous(8).unwrap(),
            Pages::huge(8).unwrap(),
            Pages::cached(folder.path(), 8).unwrap(),
        ];
        for pages in all {
            for (first, count) in [(0, 9), (8, 1), (9, 0), (1, usize::MAX), (usize::MAX, 1)] {
                let refused = io::ErrorKind::InvalidInput;
                assert_eq!(pages.take(first, count).unwrap_err().kind(), refused);
                assert_eq!(pages.give_back(first, count).unwrap_err().kind(), refused);
            }
            let error = pages.pin(8, &mut Pipes::default()).unwrap_err();
            assert_eq!(error.to_string(), "there is room for 8 pages, not for 1 at 8");
            assert!(pages.frames(4..9, &mut |_, _| ()).is_err());
            pages.take(0, 8).unwrap();
        }
    }

    #[test]
    fn pipes_hold_pages() {
        let pages = Pages::anonymous(300).unwrap();
        pages.take(0, 300).unwrap();
        let mut pipes = Pipes::default();
        for page in 0..300 {
            pages.pin(page, &mut pipes).unwrap();
        }
        assert_eq!((pipes.pages(), pipes.pipes.len()), (300, 2));
        for _ in 0..300 {
            pipes.take().unwrap();
        }
        assert_eq!((pipes.pages(), pipes.pipes.len()), (600, 3));
        let mut page = [1; PAGE_BYTES];
        pipes.pipes.last_mut().unwrap().0.read_exact(&mut page).unwrap();
        assert_eq!(page, [0; PAGE_BYTES]);
    }
}
