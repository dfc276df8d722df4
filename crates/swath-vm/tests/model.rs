//! Random operations on a space, beside a flat model: a map from mapped pages
//! to what they should say. After each operation the whole of the model is
//! compared with what `translate` says and with what the decoder written from
//! the specifications reads in memory; refused operations must change nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::machine::{Memory, Pool, Space, coalescings, spec};
use swath_arch::testing::Random;
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, MemoryKind, Order, PageRange, Pfn, Vpn,
};
use swath_frame::FrameAllocator;
use swath_vm::{
    AddressSpace, DemandPagingError, EagerPagingError, MapPagesError, PageSizeError, Sizes,
    TranslateError, UnmapError,
};

/// Frames from here on are the pool's; those below are memory for nothing.
const POOL: u64 = 0x100;
const POOL_FRAMES: u64 = 6000;

#[derive(Clone, Copy, Debug)]
struct Page {
    frame: u64,
    order: u32,
    attributes: Attributes,
    owned: bool,
    /// The block as it is now: its first page and its length.
    block: (u64, u64),
}

struct Model {
    format: Format,
    coalescing: Coalescing,
    pages: BTreeMap<u64, Page>,
}

impl Model {
    fn mapped_in(&self, range: PageRange) -> bool {
        self.pages.range(range.start.raw()..range.end().raw()).next().is_some()
    }

    fn map(&mut self, start: u64, extent: Extent, order: u32, attributes: Attributes, owned: bool) {
        for i in 0..extent.count {
            let frame = extent.start.raw() + i;
            let block = (start, extent.count);
            self.pages.insert(start + i, Page { frame, order, attributes, owned, block });
        }
    }

    /// What `unmap` must answer for the range, or `None` if it succeeds.
    fn refuses(&self, range: PageRange) -> Option<UnmapError> {
        let mut page = range.start.raw();
        while page < range.end().raw() {
            let Some(at) = self.pages.get(&page) else {
                return Some(UnmapError::NotMapped { page: Vpn::new(page) });
            };
            let first = page >> at.order << at.order;
            if first < range.start.raw() || first + (1 << at.order) > range.end().raw() {
                let (page, order) = (Vpn::new(first), Order::known(at.order as u8));
                return Some(UnmapError::Partial { page, order });
            }
            page += 1 << at.order;
        }
        None
    }

    fn unmap(&mut self, range: PageRange) {
        let (start, end) = (range.start.raw(), range.end().raw());
        self.pages.retain(|page, _| !(start..end).contains(page));
        for (&page, at) in &mut self.pages {
            let (first, count) = at.block;
            if page < start && first + count > start {
                at.block = (first, start - first);
            }
            if page >= end && first < end {
                at.block = (end, first + count - end);
            }
        }
    }

    /// Page by page the largest size that fits there, or a base page of the block before.
    fn map_largest(&mut self, range: PageRange, frame: u64, sizes: Sizes, attributes: Attributes) {
        let (start, end) = (range.start.raw(), range.end().raw());
        let mut page = start;
        while page < end {
            let at = frame + (page - start);
            let fits = |order: &Order| {
                let size = order.frames();
                page.is_multiple_of(size) && at.is_multiple_of(size) && page + size <= end
            };
            let order = sizes.iter().rfind(fits).unwrap_or(Order::BASE);
            let extent = Extent::new(Pfn::new(at), order.frames());
            self.map(page, extent, order.k(), attributes, false);
            let before = page.checked_sub(1).filter(|before| *before >= start);
            if order == Order::BASE
                && let Some(before) = before.and_then(|before| self.pages.get(&before))
                && before.order == 0
            {
                let first = before.block.0;
                for inside in first..=page {
                    self.pages.get_mut(&inside).unwrap().block = (first, page + 1 - first);
                }
            }
            page += order.frames();
        }
    }

    /// Makes one block of the base pages around that are alike, and returns it.
    fn join(&mut self, page: u64) -> Option<(u64, u64)> {
        let at = *self.pages.get(&page)?;
        if at.order > 0 {
            return Some((page >> at.order << at.order, 1 << at.order));
        }
        let delta = |page: u64, at: &Page| at.frame.wrapping_sub(page);
        let alike = |other: u64| {
            self.pages.get(&other).is_some_and(|found| {
                let said = |at: &Page| (at.order, at.attributes, at.owned);
                said(found) == said(&at) && delta(other, found) == delta(page, &at)
            })
        };
        let first = (0..page).rev().find(|&other| !alike(other)).map_or(0, |other| other + 1);
        let end = (page..).find(|&other| !alike(other))?;
        for page in first..end {
            self.pages.get_mut(&page)?.block = (first, end - first);
        }
        Some((first, end - first))
    }

    /// Ascend and Descend by their definition.
    fn contiguity(&self, page: u64, at: &Page) -> (u64, u64) {
        let (first, end) = (at.block.0, at.block.0 + at.block.1);
        if let Coalescing::Pcad(ContiguityField::Line)
        | Coalescing::Anchor { field: ContiguityField::Line, .. } = self.coalescing
        {
            return self.in_line(page, at);
        }
        let width = |field, real: u32| match field {
            ContiguityField::Descriptor | ContiguityField::Line => (1_u64 << real) - 1,
            ContiguityField::Beside { bits } => (1 << bits) - 1,
        };
        let (real_pcad, real_anchor) = match self.format {
            Format::ArmV7 => (1, 2),
            Format::ArmV8 => (4, 9),
            Format::X86_64 => (7, 14),
            Format::Sv39 | Format::Sv48 => (1, 3),
        };
        match self.coalescing {
            _ if at.order > 0 => (0, 0),
            Coalescing::None => (0, 0),
            Coalescing::Pcad(field) => {
                let max = width(field, real_pcad);
                ((end - 1 - page).min(max), (page - first).min(max))
            }
            Coalescing::Anchor { field, distance } => {
                let anchor = page.is_multiple_of(distance.frames());
                (if anchor { (end - page).min(width(field, real_anchor)) } else { 0 }, 0)
            }
        }
    }

    /// The same where the pages of a line are compared, and its ends told.
    fn in_line(&self, page: u64, at: &Page) -> (u64, u64) {
        if at.order > 0 {
            return (0, 0);
        }
        let pages = if self.format == Format::ArmV7 { 16 } else { 8 };
        let first = page / pages * pages;
        // A number has a bit in each of the eight descriptors.
        let most = match self.format {
            Format::Sv39 | Format::Sv48 => 255,
            _ => u64::MAX,
        };
        let alike = |page: u64| {
            let (Some(one), Some(two)) = (self.pages.get(&page), self.pages.get(&(page + 1)))
            else {
                return false;
            };
            let said = |page: &Page| (page.order, page.attributes, page.owned);
            one.order == 0 && said(one) == said(two) && one.frame + 1 == two.frame
        };
        let end = (page..first + pages).find(|&p| p + 1 == first + pages || !alike(p)).unwrap();
        let begin = (first..=page).rev().find(|&p| p == first || !alike(p - 1)).unwrap();
        let mut ascend = end - page;
        if end + 1 == first + pages {
            let (start, count) = self.pages[&end].block;
            ascend += (start + count - 1 - end).min(most);
        }
        let mut descend = page - begin;
        if begin == first {
            descend += (begin - self.pages[&begin].block.0).min(most);
        }
        match self.coalescing {
            Coalescing::Anchor { distance, .. } if !page.is_multiple_of(distance.frames()) => {
                (0, 0)
            }
            Coalescing::Anchor { .. } => (ascend + 1, 0),
            _ => (ascend, descend),
        }
    }

    fn compare(&self, memory: &Memory, space: &Space<'_>, window: PageRange) {
        for page in window.iter().map(Vpn::raw) {
            let seen = spec::look(memory, space.regime(), page);
            let told = space.translate(Vpn::new(page));
            match self.pages.get(&page) {
                None => {
                    assert_eq!(seen, None, "page {page:#x}");
                    assert_eq!(told, Err(TranslateError::NotMapped { page: Vpn::new(page) }));
                }
                Some(at) => {
                    let (ascend, descend) = self.contiguity(page, at);
                    let Page { frame, order, attributes, owned, .. } = *at;
                    let expected = spec::Seen { frame, order, attributes, ascend, descend };
                    assert_eq!(seen, Some(expected), "page {page:#x} of {at:?}");
                    let told = told.unwrap();
                    assert_eq!((told.frame.raw(), told.order.k()), (frame, order));
                    assert_eq!((told.attributes, told.owned), (attributes, owned));
                    assert_eq!(
                        (told.contiguity.ascend, told.contiguity.descend),
                        (ascend, descend)
                    );
                }
            }
        }
    }

    fn owned_frames(&self) -> u64 {
        self.pages.values().filter(|page| page.owned).count() as u64
    }
}

fn random_attributes(random: &mut Random) -> Attributes {
    let bits = random.word();
    Attributes {
        writable: bits & 1 != 0,
        user: bits & 2 != 0,
        executable: bits & 4 != 0,
        global: bits & 8 != 0,
        accessed: bits & 16 != 0,
        memory: if bits & 32 != 0 { MemoryKind::Device } else { MemoryKind::Normal },
    }
}

/// Windows of pages that cross leaf tables: at zero, in the middle, and at the
/// very ends of what the format translates.
fn windows(format: Format) -> Vec<PageRange> {
    let at = |start, count| PageRange::new(Vpn::new(start), count);
    match format {
        Format::ArmV7 => vec![at(0, 700), at(0x0_3f00 - 30, 300), at((1 << 20) - 600, 600)],
        Format::ArmV8 => vec![at(0, 1100), at((1 << 27) - 40, 90), at((1 << 36) - 600, 600)],
        Format::X86_64 | Format::Sv39 | Format::Sv48 => {
            let half = if format == Format::Sv39 { 1 << 26 } else { 1 << 35 };
            vec![
                at(0, 1100),
                at(half - 600, 600),
                at((1 << 52) - half, 560),
                at((1 << 52) - 600, 600),
            ]
        }
    }
}

fn run(format: Format, coalescing: Coalescing, seed: u64, steps: u32) {
    println!("{format:?} {coalescing:?} seed {seed}");
    let mut random = Random::new(seed);
    let memory = Memory::new(0, POOL + POOL_FRAMES);
    let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 40, seed));
    {
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        let mut model = Model { format, coalescing, pages: BTreeMap::new() };
        let windows = windows(format);
        let mut joined = 0;
        for _ in 0..steps {
            let window = windows[random.below(windows.len() as u64) as usize];
            let offset = random.below(window.count);
            let most = (window.count - offset).min(1 << random.below(10));
            let mut range =
                PageRange::new(Vpn::new(window.start.raw() + offset), 1 + random.below(most));
            let attributes = random_attributes(&mut random);
            match random.below(11) {
                0 | 1 => {
                    let frame =
                        random.below(1 << (format.pa_bits() - 12)).max(range.count) - range.count;
                    // Now and then what goes on from the page before.
                    let before = range.start.raw().checked_sub(1);
                    let before = before.and_then(|page| model.pages.get(&page));
                    let before = before.filter(|at| !at.owned && random.below(2) == 0);
                    let (frame, attributes) =
                        before.map_or((frame, attributes), |at| (at.frame + 1, at.attributes));
                    let reach = 1 << (format.pa_bits() - 12);
                    let frame = frame.min(reach - range.count);
                    let extent = Extent::new(Pfn::new(frame), range.count);
                    let result = space.map(range.start, extent, attributes);
                    if model.mapped_in(range) {
                        let first = model.pages.range(range.start.raw()..).next().unwrap();
                        let page = Vpn::new(*first.0);
                        assert_eq!(result, Err(MapPagesError::AlreadyMapped { page }));
                    } else {
                        result.unwrap();
                        model.map(range.start.raw(), extent, 0, attributes, false);
                    }
                }
                2 | 3 => {
                    let mut blocks = vec![];
                    let result =
                        space.allocate_eager(range, attributes, &mut |block| blocks.push(block));
                    if model.mapped_in(range) {
                        let refused = matches!(
                            result,
                            Err(EagerPagingError::Map(MapPagesError::AlreadyMapped { .. }))
                        );
                        assert!(refused, "{result:?}");
                    } else {
                        result.unwrap();
                        let mut page = range.start.raw();
                        for block in blocks {
                            model.map(page, block, 0, attributes, true);
                            page += block.count;
                        }
                        assert_eq!(page, range.end().raw());
                    }
                }
                4 => {
                    let page = range.start;
                    match space.fault(page, attributes) {
                        Ok(frame) => {
                            assert!(!model.pages.contains_key(&page.raw()));
                            model.map(page.raw(), Extent::new(frame, 1), 0, attributes, true);
                        }
                        Err(error) => {
                            let expected =
                                DemandPagingError::Map(MapPagesError::AlreadyMapped { page });
                            assert_eq!(error, expected);
                            assert!(model.pages.contains_key(&page.raw()));
                        }
                    }
                }
                5 => {
                    let sizes: Vec<Order> = format
                        .levels()
                        .iter()
                        .flat_map(|level| level.leaves)
                        .copied()
                        .filter(|order| order.k() <= 9)
                        .collect();
                    let order = sizes[random.below(sizes.len() as u64) as usize];
                    let page = Vpn::new(range.start.raw() >> order.k() << order.k());
                    let last = format.pa_bits() - 12 - order.k();
                    let frame = Pfn::new(random.below(1 << last) << order.k());
                    range = PageRange::new(page, order.frames());
                    let result = space.map_page_size(page, frame, order, attributes);
                    if model.mapped_in(range) {
                        let refused = matches!(
                            result,
                            Err(PageSizeError::Map(MapPagesError::AlreadyMapped { .. }))
                        );
                        assert!(refused, "{result:?}");
                    } else {
                        result.unwrap();
                        let extent = Extent::new(frame, order.frames());
                        model.map(page.raw(), extent, order.k(), attributes, false);
                    }
                }
                6 => {
                    let frame = random.below(1 << (format.pa_bits() - 12 - 10)) << 10;
                    let mut frame =
                        frame + if random.below(2) == 0 { range.start.raw() } else { 7 };
                    frame %= (1 << (format.pa_bits() - 12)) - range.count;
                    let extent = Extent::new(Pfn::new(frame), range.count);
                    let sizes = [Sizes::all(format), Sizes::NONE][random.below(2) as usize];
                    let result = space.map_largest(range.start, extent, sizes, attributes);
                    if model.mapped_in(range) {
                        let refused = matches!(
                            result,
                            Err(PageSizeError::Map(MapPagesError::AlreadyMapped { .. }))
                        );
                        assert!(refused, "{result:?}");
                    } else {
                        result.unwrap();
                        model.map_largest(range, frame, sizes, attributes);
                    }
                }
                7 | 8 => {
                    let page = model.pages.range(range.start.raw()..).next();
                    let page = Vpn::new(page.map_or(range.start.raw(), |(&page, _)| page));
                    let run = model.join(page.raw());
                    let run = run.map(|(first, count)| PageRange::new(Vpn::new(first), count));
                    assert_eq!(
                        space.join_blocks(page),
                        run.ok_or(TranslateError::NotMapped { page })
                    );
                    joined += run.map_or(0, |run| run.count);
                    range = run.unwrap_or(range);
                }
                _ => {
                    // Mostly something that is mapped: a run from a page on.
                    if let Some((&page, _)) = model.pages.range(range.start.raw()..).next()
                        && random.below(8) > 0
                    {
                        let run = (page..).take_while(|p| model.pages.contains_key(p)).count();
                        let count = range.count.min(run as u64);
                        range = PageRange::new(Vpn::new(page), count);
                    }
                    let before = pool.borrow().free_frames();
                    match space.unmap(range) {
                        Ok(flush) => {
                            assert_eq!(model.refuses(range), None);
                            assert_eq!(flush.range, range);
                            model.unmap(range);
                        }
                        Err(error) => {
                            assert_eq!(model.refuses(range), Some(error));
                            assert_eq!(pool.borrow().free_frames(), before);
                        }
                    }
                }
            }
            space.check().unwrap();
            for window in &windows {
                let start = window.start.raw().max(600) - 600;
                let end = window.end().raw();
                // Larger pages may begin before the window.
                let touched = if start <= range.start.raw() && range.start.raw() < end {
                    PageRange::new(window.start, window.count)
                } else {
                    PageRange::new(window.start, window.count.min(3))
                };
                model.compare(&memory, &space, touched);
            }
            let taken = pool.borrow().taken_frames();
            assert_eq!(taken, space.table_frames() + model.owned_frames());
        }
        model.windows_compare(&memory, &space, &windows);
        assert!(joined > 0, "nothing was joined");
    }
    assert_eq!(pool.borrow().taken_frames(), 0, "a dropped space gives everything back");
}

impl Model {
    fn windows_compare(&self, memory: &Memory, space: &Space<'_>, windows: &[PageRange]) {
        for &window in windows {
            self.compare(memory, space, window);
        }
    }
}

#[test]
fn armv7() {
    for coalescing in coalescings(Format::ArmV7) {
        for seed in 0..4 {
            run(Format::ArmV7, coalescing, seed, 150);
        }
    }
}

#[test]
fn armv8() {
    for coalescing in coalescings(Format::ArmV8) {
        for seed in 100..104 {
            run(Format::ArmV8, coalescing, seed, 150);
        }
    }
}

#[test]
fn x86_64() {
    for coalescing in coalescings(Format::X86_64) {
        for seed in 200..204 {
            run(Format::X86_64, coalescing, seed, 150);
        }
    }
}

#[test]
fn riscv() {
    for format in [Format::Sv39, Format::Sv48] {
        for coalescing in coalescings(format) {
            for seed in 300..302 {
                run(format, coalescing, seed, 150);
            }
        }
    }
}

/// The largest pages, each at its sparse place, and nothing but themselves.
#[test]
fn largest_pages_come_and_go() {
    for format in Format::ALL {
        let memory = Memory::new(0, POOL + POOL_FRAMES);
        let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 40, 9));
        let coalescing = Coalescing::Pcad(ContiguityField::Beside { bits: 8 });
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        let empty = pool.borrow().taken_frames();
        let window = *windows(format).last().unwrap();
        for level in format.levels() {
            for &order in level.leaves {
                let page = Vpn::new((window.end().raw() - 1) >> order.k() << order.k());
                let frame = Pfn::new(1 << order.k());
                space.map_page_size(page, frame, order, Attributes::USER_DATA).unwrap();
                space.check().unwrap();
                for offset in [0, order.frames() / 3, order.frames() - 1] {
                    let seen = spec::look(&memory, space.regime(), page.raw() + offset).unwrap();
                    assert_eq!((seen.frame, seen.order), (frame.raw() + offset, order.k()));
                    let told = space.translate(Vpn::new(page.raw() + offset)).unwrap();
                    assert_eq!((told.frame.raw(), told.order), (frame.raw() + offset, order));
                }
                let range = PageRange::new(page, order.frames());
                if order != Order::BASE {
                    for part in [
                        PageRange::new(page, range.count - 1),
                        PageRange::new(Vpn::new(page.raw() + 1), range.count - 1),
                        PageRange::new(page, 1),
                    ] {
                        let refused = space.unmap(part).map(drop);
                        assert_eq!(refused, Err(UnmapError::Partial { page, order }));
                    }
                }
                let flush = space.unmap(range).unwrap();
                assert_eq!(flush.range, range);
                assert_eq!(spec::look(&memory, space.regime(), page.raw()), None);
                assert_eq!(pool.borrow().taken_frames(), empty, "tables are gone too");
            }
        }
    }
}

/// Several spaces over one pool keep apart.
#[test]
fn spaces_share_a_pool() {
    let memory = Memory::new(0, POOL + POOL_FRAMES);
    let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 40, 3));
    let mut spaces: Vec<Space<'_>> = (0..6)
        .map(|i| {
            let format = Format::ALL[i % Format::ALL.len()];
            AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool).unwrap()
        })
        .collect();
    let range = PageRange::new(Vpn::new(100), 500);
    for space in &mut spaces {
        space.allocate_eager(range, Attributes::USER_DATA, &mut |_| ()).unwrap();
    }
    let mut frames: Vec<u64> = vec![];
    for space in &spaces {
        space.check().unwrap();
        frames.extend(range.iter().map(|page| space.translate(page).unwrap().frame.raw()));
    }
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), 6 * 500, "no frame twice");
    let tables: u64 = spaces.iter().map(AddressSpace::table_frames).sum();
    assert_eq!(pool.borrow().taken_frames(), tables + 6 * 500);
    spaces.truncate(2);
    let tables: u64 = spaces.iter().map(AddressSpace::table_frames).sum();
    assert_eq!(pool.borrow().taken_frames(), tables + 2 * 500);
    drop(spaces);
    assert_eq!(pool.borrow().taken_frames(), 0);
}
