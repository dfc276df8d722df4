//! The scenario of a task's heap: real-time regions (Böhnert and Scholl) on a machine with a table of pages like any other.
//!
//! The paper's arrays say which pages have frames; here the processor does not read them. Its table is a *copy* of what
//! was used since the last release, in a window of the addresses. A fault in the window asks the regions, gives the page a
//! frame if it has none, and copies that. A release ends regions by a few words and throws the whole copy away: a new
//! root, and the tables' frames are free again by one write. So mapping, a fault and a release each take a bounded number
//! of instructions whatever their size, and what a release costs later is one fault for each page that is used again.
//!
//! The heap's tags and its users' bytes lie in the window, behind the machine's own translation.

use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::NonNull;

use swath_arch::{
    Attributes, Coalescing, Extent, Order, PageRange, Pfn, PhysAddr, ValidityTables, Vpn,
};
use swath_frame::{FrameAllocateError, FrameAllocator, FrameFreeError};
use swath_heap::{ByteAllocator, PageSource, SourceError, Tlsf, Trusting};
use swath_region::{
    DenseTree, FramePool, HeapRegions, Quota, RegionError, RegionSpace, Rights, dense_tree_words,
};
use swath_vm::{AddressSpace, Sizes};

use crate::global::{Global, Place};
use crate::machine::{self, FORMAT, WINDOW};
use crate::memory::{DirectMap, Firmware};
use crate::random::Random;

/// log2 of the pages of the window: 256 MiB.
const PAGES_LOG2: u32 = 16;
const PAGES: u64 = 1 << PAGES_LOG2;
const TREE_WORDS: usize = dense_tree_words(PAGES_LOG2);
/// Frames of the heap's pages, and of tables.
const FRAMES: u64 = 5000;
const TABLES: u64 = 256;
/// The most pages that one allocation touches here: as many as have frames with room for others.
const TOUCHED_MAX: u64 = 4096;
/// Bytes of the largest release: 64 MiB.
const LARGEST: usize = 64 << 20;

type Tree = DenseTree<PAGES_LOG2, TREE_WORDS, &'static mut [u64; TREE_WORDS]>;

/// Frames for tables, taken one after the other and given back all at once.
struct Tables {
    frames: Extent,
    taken: u64,
}

impl FrameAllocator for Tables {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        let count = frames_max.min(self.free_frames());
        (count > 0).then(|| {
            self.taken += count;
            Extent::new(self.frames.start + (self.taken - count), count)
        })
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let start =
            (self.frames.start + self.taken).align_up(order.k()).unwrap_or(self.frames.end());
        let end = start.raw() + order.frames();
        if end > self.frames.end().raw() {
            let wanted = order.frames();
            return Err(FrameAllocateError::OutOfFrames { wanted, free: self.free_frames() });
        }
        self.taken = end - self.frames.start.raw();
        Ok(Extent::new(start, order.frames()))
    }

    /// What a space gives back stays taken until all is.
    fn free(&mut self, _: Extent) -> Result<(), FrameFreeError> {
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.frames.count - self.taken
    }

    fn total_frames(&self) -> u64 {
        self.frames.count
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        visit(Extent::new(self.frames.start + self.taken, self.free_frames()));
    }
}

type Space = AddressSpace<DirectMap, &'static RefCell<Tables>>;

/// The heap's pages.
struct Pages {
    regions: HeapRegions<'static, DirectMap, Tree, &'static mut [u64]>,
    /// The heap's own accesses fault, to its tags: not a user's.
    for_heap: bool,
    /// The copy that the machine reads.
    copy: Space,
    tables: &'static RefCell<Tables>,
    memory: DirectMap,
    /// The page of the last fault, and how often it was that in a row.
    last: (Vpn, u32),
    faults: u64,
    copies: u64,
}

static PAGES_OF_HEAP: Global<Pages> = Global::empty();
static POOL: Place<FramePool<'static>> = Place::empty();
static TABLE_FRAMES: Place<RefCell<Tables>> = Place::empty();

/// An empty copy: all memory at its own address, and the registers of devices.
fn empty(tables: &'static RefCell<Tables>, memory: DirectMap) -> Space {
    let mut space =
        AddressSpace::new(FORMAT, Coalescing::None, memory, tables, tables).expect("a root");
    let all =
        Attributes { writable: true, executable: true, accessed: true, ..Attributes::default() };
    let frames = memory.frames;
    space
        .map_largest(Vpn::new(frames.start.raw()), frames, Sizes::all(FORMAT), all)
        .expect("the direct map");
    for &register in machine::DEVICES {
        let frame = PhysAddr::new(register).frame();
        let memory = swath_arch::MemoryKind::Device;
        let registers = Attributes { executable: false, memory, ..all };
        space
            .map(Vpn::new(frame.raw()), Extent::new(frame, 1), registers)
            .expect("a device's registers");
    }
    space
}

impl Pages {
    /// Throws the copy away, by a number of instructions that depends on the memory alone.
    fn throw_away(&mut self) {
        self.tables.borrow_mut().taken = 0;
        // The root may be the one that is loaded: it is cleared and filled before anything but the window is used.
        machine::leave();
        let old = core::mem::replace(&mut self.copy, empty(self.tables, self.memory));
        // Its tables are no more: it has nothing to give back.
        core::mem::forget(old);
        // SAFETY: the space maps all memory at its own address.
        unsafe { machine::load(self.copy.regime()) };
        self.copies += 1;
    }

    /// Takes pages of an allocation out of the copy one by one, as a kernel without regions would; returns the
    /// instructions. The copy is thrown away before they are used again.
    fn unmap(&mut self, at: NonNull<u8>, count: u64) -> u64 {
        let pages = PageRange::new(Vpn::new((at.addr().get() >> 12) as u64), count);
        let began = machine::instructions();
        let flush = self.copy.unmap(pages).expect("all are mapped");
        machine::invalidate(flush);
        machine::instructions().wrapping_sub(began) & 0xffff_ffff
    }

    /// Handles the fault of a page of the window; false if nothing may be there, or it is a fault for ever.
    fn fault(&mut self, page: Vpn) -> bool {
        self.faults += 1;
        self.last = (page, if self.last.0 == page { self.last.1 + 1 } else { 1 });
        let given = match self.for_heap {
            true => self.regions.tag(page),
            false => self.regions.fault(page, Rights::READ).map(drop),
        };
        if !matches!(given, Ok(()) | Err(RegionError::AlreadyMapped { .. })) || self.last.1 > 3 {
            return false;
        }
        let Ok(Some((frame, _))) = self.regions.space().translate(page) else { return false };
        let attributes = Attributes { user: false, ..Attributes::USER_DATA };
        let place = Vpn::new((WINDOW >> 12) as u64 + page.raw());
        if self.copy.map(place, Extent::new(frame, 1), attributes).is_err() {
            // No frames for a table: the copy begins anew.
            self.throw_away();
            return self.copy.map(place, Extent::new(frame, 1), attributes).is_ok();
        }
        true
    }
}

/// Handles a page fault of the kernel's own.
pub fn fault(address: usize) -> bool {
    let page = address.wrapping_sub(WINDOW) >> 12;
    (page as u64) < PAGES && PAGES_OF_HEAP.with(|pages| pages.fault(Vpn::new(page as u64)))
}

/// The source of the heap's pages.
struct Source;

fn range(start: NonNull<u8>, len_bytes: usize) -> PageRange {
    PageRange::new(Vpn::new(((start.addr().get() - WINDOW) >> 12) as u64), (len_bytes >> 12) as u64)
}

// SAFETY: a page that is committed can be read and written: the handler gives it a frame at its first access. The
// window's addresses are the heap's alone.
unsafe impl PageSource for Source {
    fn page_bytes(&self) -> usize {
        4096
    }

    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        let error = SourceError { address: start.addr().get(), len_bytes };
        let commit = |pages: &mut Pages| pages.regions.commit(range(start, len_bytes));
        PAGES_OF_HEAP.with(commit).map_err(|_| error)
    }

    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        PAGES_OF_HEAP.with(|pages| {
            pages.regions.release(range(start, len_bytes)).expect("a region ends");
            pages.throw_away();
        });
    }

    fn is_committed(&self, address: usize) -> bool {
        let page = Vpn::new(((address - WINDOW) >> 12) as u64);
        PAGES_OF_HEAP.with(|pages| pages.regions.space().region_of(page).is_some())
    }
}

/// The task's heap.
struct Heap(Tlsf<'static, Source, Trusting>);

impl Heap {
    /// Makes the space, its regions and the heap.
    fn start(firmware: &mut Firmware) -> Self {
        let memory = DirectMap { frames: firmware.span(machine::kernel()) };
        let arrays = firmware.cut(5 << PAGES_LOG2, 0_u32);
        let tables =
            ValidityTables::consecutive(PAGES_LOG2, PhysAddr::new(arrays.as_ptr().addr() as u64));
        let headers = firmware.cut(2 << PAGES_LOG2, 0_u64);
        let words = firmware.cut(1 << PAGES_LOG2, 0_u32);
        let links = firmware.cut(FRAMES as usize, 0_u32);
        let tree: &'static mut [u64; TREE_WORDS] =
            firmware.cut(TREE_WORDS, 0_u64).try_into().expect("as many words");
        let mut run = |frames: u64| {
            // ARMv7's root has four frames, at a multiple of that.
            let bytes = firmware.cut(((frames + 4) << 12) as usize / 8, 0_u64);
            let first =
                Pfn::new((bytes.as_ptr().addr() >> 12) as u64).align_up(2).expect("an address");
            Extent::new(first, frames)
        };
        let (frames, of_tables) = (run(FRAMES), run(TABLES));
        // SAFETY: `start` is called once, by `run`.
        let (pool, table_frames) = unsafe {
            (
                &*POOL.put(FramePool::new(frames, links).expect("links enough")),
                &*TABLE_FRAMES.put(RefCell::new(Tables { frames: of_tables, taken: 0 })),
            )
        };
        let space = RegionSpace::new(memory, tables, Tree::new(tree), headers, pool, Quota::OPEN)
            .expect("a space");
        let regions = HeapRegions::new(space, pool, PAGES, words).expect("regions");
        let copy = empty(table_frames, memory);
        // SAFETY: the space maps all memory at its own address.
        unsafe { machine::load(copy.regime()) };
        let last = (Vpn::new(0), 0);
        let tables = table_frames;
        let for_heap = true;
        PAGES_OF_HEAP.set(Pages {
            regions,
            for_heap,
            copy,
            tables,
            memory,
            last,
            faults: 0,
            copies: 0,
        });
        let mut heap = Tlsf::over(Source, 0);
        let start = core::ptr::with_exposed_provenance_mut::<u8>(WINDOW);
        let start = NonNull::new(start).expect("it is not 0");
        // SAFETY: these addresses are nobody else's, and the source commits them.
        unsafe { heap.add_pool_at(start, (PAGES << 12) as usize).expect("a pool") };
        PAGES_OF_HEAP.with(|pages| pages.for_heap = false);
        Self(heap)
    }

    /// Calls the heap, whose own accesses may fault; returns what it says and the instructions that it took.
    fn call<R>(&mut self, f: impl FnOnce(&mut Tlsf<'static, Source, Trusting>) -> R) -> (R, u64) {
        PAGES_OF_HEAP.with(|pages| pages.for_heap = true);
        let began = machine::instructions();
        let result = f(&mut self.0);
        let took = machine::instructions().wrapping_sub(began) & 0xffff_ffff;
        PAGES_OF_HEAP.with(|pages| pages.for_heap = false);
        (result, took)
    }

    fn allocate(&mut self, len_bytes: usize) -> (Option<NonNull<u8>>, u64) {
        let layout = Layout::from_size_align(len_bytes, 16).expect("a layout");
        self.call(|heap| heap.allocate(layout).ok())
    }

    fn free(&mut self, at: NonNull<u8>) -> u64 {
        // SAFETY: callers free what they allocated, once.
        let (freed, took) = self.call(|heap| unsafe { heap.free(at) });
        same!(freed, Ok(()), "the heap knows what it gave");
        took
    }
}

/// The place of the first word of page `n` of an allocation.
fn word(at: NonNull<u8>, n: u64) -> *mut u32 {
    at.as_ptr().wrapping_add((n << 12) as usize).cast()
}

/// Runs everything on the memory that the firmware left.
pub fn run(mut firmware: Firmware) {
    let mut heap = Heap::start(&mut firmware);
    let mapped = || PAGES_OF_HEAP.with(|pages| u64::from(pages.regions.space().frames_used()));
    let before = mapped();
    say!("a heap of {} MiB, {before} pages with frames", PAGES >> 8);
    let (mut longest, mut shortest, mut fault_max) = (0, u64::MAX, 0);
    let mut len_bytes = 4096;
    while len_bytes <= LARGEST {
        // Once before, so that the tags of its place are there.
        let (at, _) = heap.allocate(len_bytes);
        heap.free(at.expect("room"));
        let (at, allocated) = heap.allocate(len_bytes);
        let at = at.expect("room");
        let pages = (len_bytes as u64 >> 12).min(TOUCHED_MAX);
        for n in 0..pages {
            let began = machine::instructions();
            // SAFETY: the allocation's own word, in the window.
            unsafe { word(at, n).write_volatile(n as u32) };
            let took = machine::instructions().wrapping_sub(began) & 0xffff_ffff;
            fault_max = took.max(fault_max);
        }
        for n in 0..pages {
            // SAFETY: as above.
            same!(
                unsafe { word(at, n).read_volatile() },
                n as u32,
                "page {n} of {len_bytes} bytes"
            );
        }
        same!(mapped() >= before + pages - 1, true, "pages have frames");
        let took = heap.free(at);
        same!(mapped() <= before + 2, true, "a release gives all back");
        // The same again, unmapped as a kernel without regions would.
        let (again, _) = heap.allocate(len_bytes);
        let again = again.expect("room");
        for n in 0..pages {
            // SAFETY: as above.
            unsafe { word(again, n).write_volatile(1) };
        }
        let by_page = PAGES_OF_HEAP.with(|held| held.unmap(again, pages));
        heap.free(again);
        let kib = len_bytes >> 10;
        say!(
            "  {kib} KiB, {pages} pages with frames: allocated in {allocated}, released in {took}; page by page {by_page}"
        );
        // A page alone may share both of its neighbours' tags.
        if len_bytes > 4096 {
            (longest, shortest) = (took.max(longest), took.min(shortest));
        }
        len_bytes *= 4;
    }
    say!("releases take {shortest} to {longest} instructions, a page fault {fault_max} at most");
    same!(longest <= shortest + shortest / 10, true, "a release is bounded whatever its size");
    random_steps(&mut heap, fault_max);
    let (faults, copies) = PAGES_OF_HEAP.with(|pages| (pages.faults, pages.copies));
    say!("{faults} faults, {copies} copies of the table");
    PAGES_OF_HEAP.with(|pages| pages.regions.space().check().expect("the regions are sound"));
    heap.0.check().expect("the heap is sound");
    machine::leave();
}

/// Allocations that live in the random part.
const LIVE: usize = 24;
const STEPS: u32 = 20_000;

/// Random allocations, releases and accesses, each seen by the machine's own translation.
fn random_steps(heap: &mut Heap, fault_max: u64) {
    let mut random = Random::new(1);
    let mut live = [None::<(NonNull<u8>, u64, u32)>; LIVE];
    let mut longest = [0_u64; 3];
    for step in 0..STEPS {
        let slot = random.below(LIVE as u64) as usize;
        match live[slot] {
            None => {
                let len_bytes = 1 + random.below(4 << 20);
                let (at, took) = heap.allocate(len_bytes as usize);
                let Some(at) = at else { continue };
                longest[0] = took.max(longest[0]);
                // SAFETY: the allocation's own word.
                unsafe { word(at, 0).write_volatile(step) };
                live[slot] = Some((at, len_bytes, step));
            }
            Some((at, len_bytes, written)) if random.below(4) > 0 => {
                // SAFETY: as above.
                same!(unsafe { word(at, 0).read_volatile() }, written, "step {step}");
                let offset = random.below(len_bytes >> 12 | 1);
                if offset > 0 && (offset << 12) + 4 <= len_bytes {
                    let began = machine::instructions();
                    // SAFETY: within the allocation.
                    unsafe { word(at, offset).write_volatile(step) };
                    let took = machine::instructions().wrapping_sub(began) & 0xffff_ffff;
                    longest[2] = took.max(longest[2]);
                }
            }
            Some((at, _, written)) => {
                // SAFETY: as above.
                same!(unsafe { word(at, 0).read_volatile() }, written, "step {step}");
                longest[1] = heap.free(at).max(longest[1]);
                live[slot] = None;
            }
        }
    }
    for (at, _, _) in live.into_iter().flatten() {
        heap.free(at);
    }
    let [allocation, release, access] = longest;
    say!(
        "{STEPS} steps: allocations take {allocation} at most, releases {release}, accesses {access}"
    );
    same!(access <= fault_max + fault_max / 4, true, "an access is bounded");
}
