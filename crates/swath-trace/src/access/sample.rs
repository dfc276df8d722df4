//! The step between a log and the trace made of it: the mappings that no
//! system call made, and sampling.
//!
//! A program does not ask for all of its memory: its image, the loader and the
//! stack are there when it starts. The log does not tell of them, the kernel's
//! list of the process's mappings does. Each is written as an
//! [`TraceEvent::Map`] before the first access to it; a page in no list (the stack
//! grows) is a mapping of its own.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use foldhash::fast::FixedState;
use swath_arch::{BASE_PAGE_BYTES, PageRange, Vpn};

use crate::access::event::{AccessKind, MemoryAccess};
use crate::access::event::{MapBacking, MapProtection, Sampling, TraceEvent, page_range};
use crate::access::file::TraceWriter;

/// Files of mappings that no system call made are numbered from here.
const FIRST_IMAGE_FILE: u64 = 1 << 32;

/// Marks of a page since it was mapped.
const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;

/// Pages whose state is kept at hand.
const SLOTS: usize = 256;

/// A mapping that was there before the program's first system call.
struct Segment {
    pages: PageRange,
    protection: MapProtection,
    backing: MapBacking,
    shared: bool,
}

/// The mappings of a process as `/proc/PID/maps` lists them:
/// `START-END rwxp OFFSET DEVICE INODE PATH`. Lines that are not of this form
/// are skipped, and paths are not kept.
fn segments(maps: &str) -> Vec<Segment> {
    let mut files: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut segment = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)? / BASE_PAGE_BYTES, hex(end)? / BASE_PAGE_BYTES);
        let pages = page_range(start, end.checked_sub(start)?)?;
        let flags = words.next()?.as_bytes();
        let has = |at: usize, letter: u8| flags.get(at) == Some(&letter);
        let protection =
            MapProtection { read: has(0, b'r'), write: has(1, b'w'), execute: has(2, b'x') };
        let first_page = hex(words.next()?)? / BASE_PAGE_BYTES;
        let (device, inode) = (words.next()?, words.next()?);
        let backing = match inode {
            "0" => MapBacking::Anonymous,
            _ => {
                let next = FIRST_IMAGE_FILE + files.len() as u64;
                let file = *files.entry((device.to_owned(), inode.to_owned())).or_insert(next);
                MapBacking::File { file, first_page }
            }
        };
        Some(Segment { pages, protection, backing, shared: has(3, b's') })
    };
    maps.lines().filter_map(&mut segment).collect()
}

/// Writes what comes from a log, thinned out and completed.
///
/// `regions` holds, disjoint, start and end of what is mapped, in pages;
/// `pages` what each page has seen, and only for mapped ones; `slots` repeats
/// some of it.
pub(crate) struct Sampler<W: Write> {
    writer: TraceWriter<W>,
    sampling: Option<Sampling>,
    image: Vec<Segment>,
    regions: BTreeMap<u64, u64>,
    pages: HashMap<u64, u8, FixedState>,
    slots: Box<[(u64, u8); SLOTS]>,
    /// Accesses of the run so far.
    seen: u64,
    /// Accesses left out since the last that was written.
    skipped: u64,
}

impl<W: Write> Sampler<W> {
    pub(crate) fn new(writer: TraceWriter<W>, sampling: Option<Sampling>) -> Self {
        Self {
            writer,
            sampling,
            image: Vec::new(),
            regions: BTreeMap::new(),
            pages: HashMap::default(),
            slots: Box::new([(u64::MAX, 0); SLOTS]),
            seen: 0,
            skipped: 0,
        }
    }

    /// Accesses of the run so far, written or not.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Tells what `/proc/PID/maps` said when the program had just started.
    pub(crate) fn started_with(&mut self, maps: &str) {
        self.image = segments(maps);
    }

    /// O(1), and O(log regions) for the first access and the first write to a
    /// page.
    #[inline]
    pub(crate) fn access(&mut self, access: MemoryAccess) -> io::Result<()> {
        let needs = match access.kind {
            AccessKind::Write => TOUCHED | WRITTEN,
            AccessKind::Read | AccessKind::Fetch => TOUCHED,
        };
        let mut first = false;
        for page in access.pages().iter() {
            let (tag, bits) = self.slots[page.raw() as usize % SLOTS];
            if tag != page.raw() || bits & needs != needs {
                first |= self.look(page.raw(), needs)?;
            }
        }
        let at = self.seen;
        self.seen += 1;
        let keep = match self.sampling {
            None => true,
            Some(sampling) => first || at % sampling.period_accesses < sampling.burst_accesses,
        };
        if !keep {
            self.skipped += 1;
            return Ok(());
        }
        self.tell_skipped()?;
        self.writer.push(access)
    }

    /// Returns true if the page sees anything of `needs` for the first time.
    fn look(&mut self, page: u64, needs: u8) -> io::Result<bool> {
        let had = self.pages.get(&page).copied().unwrap_or(0);
        if had == 0 {
            self.ensure_mapped(page)?;
        }
        let has = had | needs;
        if has != had {
            self.pages.insert(page, has);
        }
        self.slots[page as usize % SLOTS] = (page, has);
        Ok(has != had)
    }

    /// Maps, if `page` is not mapped yet, the part of the segment around it that
    /// is not mapped either.
    fn ensure_mapped(&mut self, page: u64) -> io::Result<()> {
        let below = self.regions.range(..=page).next_back().map_or(0, |(_, &end)| end);
        if below > page {
            return Ok(());
        }
        let above = self.regions.range(page..).next().map_or(u64::MAX, |(&start, _)| start);
        let found = self.image.iter().find(|segment| segment.pages.contains(Vpn::new(page)));
        let event = match found {
            None => TraceEvent::Map {
                pages: PageRange::new(Vpn::new(page), 1),
                protection: MapProtection::READ_WRITE,
                backing: MapBacking::Anonymous,
                shared: false,
            },
            Some(segment) => {
                let start = segment.pages.start.raw().max(below);
                let end = segment.pages.end().raw().min(above);
                let backing = match segment.backing {
                    MapBacking::Anonymous => MapBacking::Anonymous,
                    MapBacking::File { file, first_page } => {
                        let first_page = first_page + (start - segment.pages.start.raw());
                        MapBacking::File { file, first_page }
                    }
                };
                let pages = PageRange::new(Vpn::new(start), end - start);
                let (protection, shared) = (segment.protection, segment.shared);
                TraceEvent::Map { pages, protection, backing, shared }
            }
        };
        self.event(event)
    }

    /// O(log regions + pages that the event covers and that were touched, but
    /// at most all that were).
    pub(crate) fn event(&mut self, event: TraceEvent) -> io::Result<()> {
        match event {
            TraceEvent::Map { pages, .. } => {
                self.unmap(pages);
                self.regions.insert(pages.start.raw(), pages.end().raw());
            }
            TraceEvent::Unmap { pages } => self.unmap(pages),
            TraceEvent::Move { from, to } => {
                self.unmap(from);
                self.unmap(to);
                self.regions.insert(to.start.raw(), to.end().raw());
            }
            TraceEvent::Discard { pages } => self.forget(pages),
            TraceEvent::Fork => {
                self.pages.values_mut().for_each(|bits| *bits &= !WRITTEN);
                self.slots.fill((u64::MAX, 0));
            }
            TraceEvent::Protect { .. } | TraceEvent::Skip { .. } => {}
        }
        self.tell_skipped()?;
        self.writer.push_event(event)
    }

    fn unmap(&mut self, pages: PageRange) {
        self.forget(pages);
        let (start, end) = (pages.start.raw(), pages.end().raw());
        while let Some((&at, &to)) = self.regions.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.regions.remove(&at);
            if to > end {
                self.regions.insert(end, to);
            }
            if at < start {
                self.regions.insert(at, start);
            }
        }
    }

    fn forget(&mut self, pages: PageRange) {
        if pages.count <= self.pages.len() as u64 {
            for page in pages.iter() {
                self.pages.remove(&page.raw());
            }
        } else {
            self.pages.retain(|&page, _| !pages.contains(Vpn::new(page)));
        }
        self.slots.fill((u64::MAX, 0));
    }

    fn tell_skipped(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.skipped) {
            0 => Ok(()),
            accesses => self.writer.push_event(TraceEvent::Skip { accesses }),
        }
    }

    /// The writer, with everything told.
    pub(crate) fn finish(mut self) -> io::Result<TraceWriter<W>> {
        self.tell_skipped()?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use swath_arch::VirtAddr;

    use super::*;
    use crate::access::event::{TraceHeader, TraceItem};
    use crate::access::reader::TraceReader;

    const MAPS: &str = "\
00400000-00403000 r--p 00000000 fe:00 77   /usr/bin/some program
00403000-00405000 r-xp 00003000 fe:00 77   /usr/bin/some program
00500000-00502000 rw-p 00000000 00:00 0
not a line
00600000-00600000 rw-p 00000000 00:00 0
00700000-00701000 rw-s 00002000 fe:00 78   /dev/shm/x
";

    fn range(start: u64, count: u64) -> PageRange {
        PageRange::new(Vpn::new(start), count)
    }

    fn anonymous(start: u64, count: u64) -> TraceEvent {
        let (protection, backing) = (MapProtection::READ_WRITE, MapBacking::Anonymous);
        TraceEvent::Map { pages: range(start, count), protection, backing, shared: false }
    }

    fn access(page: u64, kind: AccessKind) -> MemoryAccess {
        MemoryAccess::new(VirtAddr::new(page << 12 | 8), 4, kind).unwrap()
    }

    /// Returns what a sampler writes of these items.
    fn written(maps: &str, sampling: Option<Sampling>, items: &[TraceItem]) -> Vec<TraceItem> {
        let header = TraceHeader { program: String::new(), sampling };
        let writer = TraceWriter::with_header(Vec::new(), 1, &header).unwrap();
        let mut sampler = Sampler::new(writer, sampling);
        sampler.started_with(maps);
        for item in items {
            match *item {
                TraceItem::Access(access) => sampler.access(access).unwrap(),
                TraceItem::Event(event) => sampler.event(event).unwrap(),
            }
        }
        let bytes = sampler.finish().unwrap().finish().unwrap();
        let accesses = TraceReader::from_reader(Cursor::new(bytes), None).unwrap();
        accesses.items().map(Result::unwrap).collect()
    }

    #[test]
    fn lists_of_mappings() {
        let all = segments(MAPS);
        assert_eq!(all.len(), 4);
        assert_eq!(all[1].pages, range(0x403, 2));
        assert_eq!(all[1].backing, MapBacking::File { file: FIRST_IMAGE_FILE, first_page: 3 });
        assert_eq!(all[1].protection, MapProtection { read: true, write: false, execute: true });
        assert_eq!(all[2].backing, MapBacking::Anonymous);
        assert_eq!(all[3].backing, MapBacking::File { file: FIRST_IMAGE_FILE + 1, first_page: 2 });
        assert!(all[3].shared && !all[2].shared);
        for odd in ["", "-", "0-", "1-0 r", "ffffffffffffffff-0 rw-p 0 0 0", "400000-401000"] {
            assert!(segments(odd).is_empty(), "{odd}");
        }
    }

    /// The part of a segment that no system call has replaced is told, once,
    /// before the first access to it.
    #[test]
    fn the_image_is_told_when_it_is_touched() {
        use AccessKind::{Fetch, Read};
        let items = [
            TraceItem::Event(anonymous(0x403, 1)),
            TraceItem::Access(access(0x404, Fetch)),
            TraceItem::Access(access(0x404, Fetch)),
            TraceItem::Access(access(0x403, Read)),
            TraceItem::Access(access(0x999, Read)),
            TraceItem::Event(TraceEvent::Unmap { pages: range(0x404, 1) }),
            TraceItem::Access(access(0x501, Read)),
        ];
        let image = TraceEvent::Map {
            pages: range(0x404, 1),
            protection: MapProtection { read: true, write: false, execute: true },
            backing: MapBacking::File { file: FIRST_IMAGE_FILE, first_page: 4 },
            shared: false,
        };
        let mut expected = items.to_vec();
        expected.insert(6, TraceItem::Event(anonymous(0x500, 2)));
        expected.insert(4, TraceItem::Event(anonymous(0x999, 1)));
        expected.insert(1, TraceItem::Event(image));
        assert_eq!(written(MAPS, None, &items), expected);
    }

    /// Against a model that keeps sets: random mixes of everything.
    #[test]
    fn sampling_keeps_bursts_and_what_can_fault() {
        use swath_arch::testing::Random;
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let (burst, period) = (3, 11);
            let mut items = Vec::new();
            for _ in 0..600 {
                let pages = range(random.within(0..300), random.within(1..40));
                let to = range(random.within(0..300), random.within(1..40));
                items.push(match random.below(60) {
                    0 => TraceItem::Event(anonymous(pages.start.raw(), pages.count)),
                    1 => TraceItem::Event(TraceEvent::Unmap { pages }),
                    2 => TraceItem::Event(TraceEvent::Discard { pages }),
                    3 => TraceItem::Event(TraceEvent::Move { from: pages, to }),
                    4 => TraceItem::Event(TraceEvent::Fork),
                    5 => {
                        let protection = MapProtection::READ;
                        TraceItem::Event(TraceEvent::Protect { pages, protection })
                    }
                    // Some lie across a page boundary.
                    6..9 => {
                        let addr = VirtAddr::new((random.within(1..300) << 12) - 2);
                        TraceItem::Access(MemoryAccess::new(addr, 4, AccessKind::Write).unwrap())
                    }
                    n => {
                        let kinds = [AccessKind::Read, AccessKind::Write, AccessKind::Fetch];
                        TraceItem::Access(access(random.within(0..300), kinds[n as usize % 3]))
                    }
                });
            }
            let mut model = Vec::new();
            let mut mapped = std::collections::BTreeSet::new();
            let mut touched = std::collections::BTreeSet::new();
            let mut written_to = std::collections::BTreeSet::new();
            let (mut seen, mut skipped) = (0, 0);
            for item in &items {
                let mut told = Vec::new();
                let mut keep = true;
                match *item {
                    TraceItem::Access(access) => {
                        keep = seen % period < burst;
                        seen += 1;
                        for page in access.pages().iter().map(Vpn::raw) {
                            if mapped.insert(page) {
                                told.push(TraceItem::Event(anonymous(page, 1)));
                            }
                            keep |= touched.insert(page);
                            keep |= access.kind == AccessKind::Write && written_to.insert(page);
                        }
                    }
                    TraceItem::Event(event) => {
                        let gone: Vec<PageRange> = match event {
                            TraceEvent::Map { pages, .. }
                            | TraceEvent::Unmap { pages }
                            | TraceEvent::Discard { pages } => vec![pages],
                            TraceEvent::Move { from, to } => vec![from, to],
                            _ => vec![],
                        };
                        for page in gone.iter().flat_map(|pages| pages.iter()).map(Vpn::raw) {
                            touched.remove(&page);
                            written_to.remove(&page);
                            if !matches!(event, TraceEvent::Discard { .. }) {
                                mapped.remove(&page);
                            }
                        }
                        match event {
                            TraceEvent::Map { pages, .. } | TraceEvent::Move { to: pages, .. } => {
                                mapped.extend(pages.iter().map(Vpn::raw));
                            }
                            TraceEvent::Fork => written_to.clear(),
                            _ => {}
                        }
                    }
                }
                if !keep {
                    skipped += 1;
                    continue;
                }
                if skipped > 0 {
                    model.push(TraceItem::Event(TraceEvent::Skip { accesses: skipped }));
                    skipped = 0;
                }
                model.extend(told);
                model.push(*item);
            }
            if skipped > 0 {
                model.push(TraceItem::Event(TraceEvent::Skip { accesses: skipped }));
            }
            assert_eq!(written("", Sampling::new(burst, period), &items), model, "seed {seed}");
        }
    }
}
