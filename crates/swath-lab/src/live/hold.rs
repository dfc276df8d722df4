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
use swath_arch::Pfn;

const PAGE_BYTES: usize = 4096;

/// Pages of a huge page.
pub(super) const HUGE_PAGES: usize = 512;

/// Pages of a pipe whose buffer is as long as an ordinary user's may be: 1 MiB.
const PIPE_PAGES: usize = 256;

/// Pages of anonymous memory or of a file's cache.
///
/// Invariant: a page of it is there exactly if it was taken and not given back since.
pub(super) struct Pages {
    map: MmapRaw,
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
        Ok(Self { map, file: None, skipped: 0 })
    }

    /// Room for so many pages of anonymous memory that comes as huge pages where it can.
    pub(super) fn huge(pages: usize) -> io::Result<Self> {
        let map: MmapRaw = MmapMut::map_anon((pages + HUGE_PAGES) * PAGE_BYTES)?.into();
        map.advise(Advice::HugePage)?;
        let first = map.as_ptr().addr() / PAGE_BYTES;
        Ok(Self { map, file: None, skipped: first.next_multiple_of(HUGE_PAGES) - first })
    }

    /// Room for so many pages of the cache of a file without a name in a folder.
    pub(super) fn cached(folder: &Path, pages: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        file.set_len((pages * PAGE_BYTES) as u64)?;
        Ok(Self { map: MmapRaw::map_raw(&file)?, file: Some(file), skipped: 0 })
    }

    /// Takes memory for pages.
    pub(super) fn take(&self, first: usize, pages: usize) -> io::Result<()> {
        let first = self.skipped + first;
        self.map.advise_range(Advice::PopulateWrite, first * PAGE_BYTES, pages * PAGE_BYTES)
    }

    /// Gives the memory of pages back.
    pub(super) fn give_back(&self, first: usize, pages: usize) -> io::Result<()> {
        let advice = match self.file {
            Some(_) => UncheckedAdvice::Remove,
            None => UncheckedAdvice::DontNeed,
        };
        let first = self.skipped + first;
        // SAFETY: the advice zeroes the pages, of which this process reads nothing: there are no
        // references to a raw map's bytes but those of `pin`, which end with it.
        unsafe { self.map.unchecked_advise_range(advice, first * PAGE_BYTES, pages * PAGE_BYTES) }
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
    pub(super) fn pin(&self, page: usize, pipes: &mut Pipes) -> io::Result<()> {
        let pipe = pipes.with_room()?;
        // SAFETY: the page lies in the map, is there, and nobody writes to it while the slice is.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.map.as_ptr().add((self.skipped + page) * PAGE_BYTES),
                PAGE_BYTES,
            )
        };
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
