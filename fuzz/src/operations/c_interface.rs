//! The C interface: objects in storage that begins anywhere, called with null, with objects of
//! another kind and with arguments that cannot be.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::Random;

use swath_arch::Format;
use swath_vm::Status;

use super::memory::{FrameSet, GARBAGE, STEPS, STEPS_MAX};

#[path = "../../../crates/swath-ffi/tests/pmap/beside.rs"]
mod beside;

/// Draws a format and where the status of pages stands, and drives the pmap of C beside Rust's. Each
/// result and all TLB maintenance are compared at once, the invariants and the tables' bytes at the end.
pub fn pmap(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let format = Format::ALL[random.index(Format::ALL.len())];
    let status = if random.one_in(2) { Status::InTable } else { Status::InReverseMap };
    beside::drive(format, status, random, STEPS_MAX);
}

/// Areas of the map: first frame and frames.
const AREAS: [(u64, u64); 3] = [(3, 300), (400, 64), (512, 300)];

/// Storage of objects, kept as long as they are.
#[derive(Default)]
struct Storages(Vec<Vec<u64>>);

impl Storages {
    /// Storage for one object, which may begin anywhere.
    fn get(&mut self, len_bytes: usize, off: usize) -> *mut c_void {
        self.0.push(vec![GARBAGE; len_bytes / 8 + 3]);
        let words = self.0.last_mut().expect("just pushed");
        words.as_mut_ptr().cast::<u8>().wrapping_add(off).cast()
    }
}

/// A set of frames, some of them in use.
struct Frames {
    all: FrameSet,
    used: FrameSet,
}

impl Frames {
    fn new() -> Self {
        let mut all = FrameSet::new();
        for (start, count) in AREAS {
            (start..start + count).for_each(|frame| assert!(all.insert(frame)));
        }
        Self { all, used: FrameSet::new() }
    }

    fn free(&self) -> u64 {
        (self.all.len() - self.used.len()) as u64
    }

    fn take(&mut self, start: u64, count: u64) {
        for frame in start..start + count {
            assert!(self.all.contains(frame), "frame {frame:#x} is nobody's");
            assert!(self.used.insert(frame), "frame {frame:#x} is handed out twice");
        }
    }

    /// Gives frames back; the result that a free has to have.
    fn give(&mut self, start: u64, count: u64) -> swath_result {
        if count == 0 {
            return result(SWATH_EMPTY, 0);
        }
        let Some(end) = start.checked_add(count) else { return result(SWATH_OVERFLOW, start) };
        match (start..end).find(|&frame| !self.used.contains(frame)) {
            Some(frame) if self.all.contains(frame) => result(SWATH_NOT_ALLOCATED, frame),
            Some(frame) => result(SWATH_FOREIGN, frame),
            None => {
                (start..end).for_each(|frame| assert!(self.used.remove(frame)));
                result(SWATH_OK, 0)
            }
        }
    }
}

fn result(status: swath_status, at: u64) -> swath_result {
    swath_result { status, at }
}

struct Bench {
    storages: Storages,
    map: *mut swath_map,
    frames: *mut swath_frames,
    banks: *mut swath_banks,
    heap: *mut swath_heap,
    of_frames: Frames,
    of_banks: Frames,
    isolated: bool,
    /// Bytes in use: address, length and what they hold.
    blocks: BTreeMap<usize, (usize, u8)>,
    random: Random,
}

/// Makes one object of each kind, and calls their functions. Each result and the numbers of free frames
/// are compared at once, a block's contents when it is resized or freed; which frames are free, and
/// the heap's invariants, after 1, 2, 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let mut storages = Storages::default();
    let off = random.index(16);
    let map = map(&mut storages, off);
    let configs = [(1, 10, 0), (4, 8, 1), (9, 18, 0)];
    let (granularity, top_order, best_fit) = configs[random.index(3)];
    let config = swath_frames_config { granularity, top_order, best_fit };
    let mut frames = ptr::null_mut();
    // SAFETY: a map.
    let len = unsafe { swath_frames_storage_bytes(map, config) };
    let at = storages.get(len, off);
    // SAFETY: storage as long as was asked for, used for nothing else.
    let made = unsafe { swath_frames_create(map, config, 1, at, len, &mut frames) };
    assert_eq!(made.status, SWATH_OK);

    let (zone, packed) = (swath_extent { start: 0, count: 1024 }, random.below(2) as u32);
    let config =
        swath_banks_config { zone, first_frame: 0, bank_frames: 128, top_order: 6, packed };
    // SAFETY: a map.
    let len = unsafe { swath_banks_storage_bytes(map, config) };
    let (at, mut banks) = (storages.get(len, off), ptr::null_mut());
    // SAFETY: as above.
    let made = unsafe { swath_banks_create(map, config, at, len, &mut banks) };
    assert_eq!(made.status, SWATH_OK);

    let len = swath_heap_storage_bytes();
    let (at, mut heap) = (storages.get(len, off), ptr::null_mut());
    let fit = random.below(2) as u32;
    // SAFETY: as above, and no source.
    let made = unsafe { swath_heap_create(fit, ptr::null(), 12345, at, len, &mut heap) };
    assert_eq!(made.status, SWATH_OK);
    let len = 512 << random.below(5);
    // SAFETY: memory for nothing else, as long as the heap.
    let added = unsafe { swath_heap_add_pool(heap, storages.get(len, off), len) };
    assert_eq!(added.status, SWATH_OK);

    let (of_frames, of_banks) = (Frames::new(), Frames::new());
    let (isolated, blocks) = (false, BTreeMap::new());
    let mut bench =
        Bench { storages, map, frames, banks, heap, of_frames, of_banks, isolated, blocks, random };
    for step in 1..=STEPS_MAX {
        if bench.random.is_spent() {
            break;
        }
        match bench.random.below(10) {
            0..=1 => bench.allocate_frames(),
            2 => bench.free_frames(),
            3 => bench.banks(),
            4..=6 => bench.heap(),
            7 => bench.other_objects(),
            8 => bench.create(),
            _ => bench.isolate(),
        }
        bench.count();
        if STEPS.compares_all(step) {
            bench.check();
        }
    }
    bench.check();
}

fn map(storages: &mut Storages, off: usize) -> *mut swath_map {
    let range = |(start, count)| swath_range { start: start << 12, len_bytes: count << 12 };
    let ranges = AREAS.map(range);
    let len = swath_map_storage_bytes(ranges.len());
    let (at, mut map) = (storages.get(len, off), ptr::null_mut());
    // SAFETY: storage as long as was asked for, used for nothing else.
    let made = unsafe { swath_map_create(ranges.as_ptr(), ranges.len(), at, len, &mut map) };
    assert_eq!(made.status, SWATH_OK);
    map
}

impl Bench {
    fn allocate_frames(&mut self) {
        let (free, count) = (self.of_frames.free(), self.random.below(400));
        let mut block = swath_extent::default();
        match self.random.below(5) {
            3 => self.allocate_contiguous(),
            4 => self.come_and_go(),
            0 => {
                let mut blocks = vec![swath_extent::default(); self.random.index(40)];
                let mut taken = 0;
                let (at, room) = (blocks.as_mut_ptr(), blocks.len());
                // SAFETY: an object of the library, and room for as many blocks.
                let got =
                    unsafe { swath_frames_allocate(self.frames, count, at, room, &mut taken) };
                match got.status {
                    SWATH_OK => {
                        blocks[..taken].iter().for_each(|b| self.of_frames.take(b.start, b.count));
                        let sum: u64 = blocks[..taken].iter().map(|block| block.count).sum();
                        assert_eq!(sum, count);
                    }
                    SWATH_EMPTY => assert_eq!(count, 0),
                    SWATH_OUT_OF_FRAMES => assert!(count > free && got.at == free),
                    SWATH_TOO_MANY_BLOCKS => assert!(count <= free && got.at < count),
                    other => panic!("{other:?}"),
                }
            }
            1 => {
                // SAFETY: an object of the library.
                let got = unsafe { swath_frames_allocate_block(self.frames, count, &mut block) };
                if got.status == SWATH_OK {
                    assert!((1..=count).contains(&block.count));
                    self.of_frames.take(block.start, block.count);
                } else {
                    assert!(count == 0 || free == 0, "{got:?}");
                }
            }
            _ => {
                let k = self.random.below(70) as u32;
                // SAFETY: an object of the library.
                let got = unsafe { swath_frames_allocate_aligned(self.frames, k, &mut block) };
                match got.status {
                    SWATH_OK => {
                        assert!(block.count == 1 << k && block.start.is_multiple_of(block.count));
                        self.of_frames.take(block.start, block.count);
                    }
                    SWATH_ARGUMENT => assert!(k > 40, "order {k}"),
                    SWATH_OUT_OF_FRAMES => assert!(free >> k == 0 && got.at == free),
                    SWATH_NO_BLOCK => assert!(free >> k > 0),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A run under limits that may be anything.
    fn allocate_contiguous(&mut self) {
        let (free, mut run) = (self.of_frames.free(), swath_extent::default());
        let mut request = swath_contiguous_request_of(self.random.below(200));
        if self.random.one_in(2) {
            (request.lower, request.upper) = (self.random.below(900), self.random.below(900));
        }
        if self.random.one_in(2) {
            let ends = [0, 1, 3, 4, 64, 1 << 20, u64::MAX];
            (request.align, request.boundary) =
                (ends[self.random.index(7)], ends[self.random.index(7)]);
        }
        // SAFETY: an object of the library.
        let got = unsafe { swath_frames_allocate_contiguous(self.frames, &request, &mut run) };
        match got.status {
            SWATH_OK => {
                let end = run.start + run.count;
                assert!(run.count == request.count && run.start.is_multiple_of(request.align));
                assert!(run.start >= request.lower && end <= request.upper, "{run:?}");
                let boundary = if request.boundary == 0 { u64::MAX } else { request.boundary };
                assert_eq!(run.start / boundary, (end - 1) / boundary, "{run:?}, {request:?}");
                self.of_frames.take(run.start, run.count);
            }
            SWATH_EMPTY => assert_eq!(request.count, 0),
            SWATH_OUT_OF_FRAMES => assert!(request.count > free && got.at == free),
            SWATH_ARGUMENT | SWATH_NO_BLOCK => {}
            other => panic!("{other:?}"),
        }
    }

    /// Removes frames that are free, and adds them again; what is in use or no memory is named.
    fn come_and_go(&mut self) {
        let (start, count) = self.extent(false);
        let extent = swath_extent { start, count };
        // SAFETY: an object of the library.
        let removed = unsafe { swath_frames_remove(self.frames, extent) };
        let is_free =
            |frame| self.of_frames.all.contains(frame) && !self.of_frames.used.contains(frame);
        let end = start.checked_add(count).filter(|_| (1..2000).contains(&count));
        let all_free = end.is_some_and(|end| (start..end).all(is_free));
        assert_eq!(removed.status == SWATH_OK, all_free, "{removed:?}: {extent:?}");
        // SAFETY: an object of the library.
        let added = unsafe { swath_frames_add(self.frames, extent) };
        // A hole of the map may be filled, as far as the areas reach: it is removed again.
        if added.status == SWATH_OK && !all_free {
            // SAFETY: an object of the library.
            let gone = unsafe { swath_frames_remove(self.frames, extent) };
            assert_eq!(gone.status, SWATH_OK);
        }
        assert!(added.status == SWATH_OK || !all_free, "{added:?}: {extent:?}");
    }

    /// A run of frames in use, a run around it, or one that cannot be.
    fn extent(&mut self, of_banks: bool) -> (u64, u64) {
        let of = if of_banks { &self.of_banks } else { &self.of_frames };
        let nth = self.random.index(of.used.len().max(1));
        let start = of.used.iter().nth(nth).unwrap_or(3);
        let run = (start..).take_while(|&frame| of.used.contains(frame)).count() as u64;
        match self.random.below(8) {
            0 => (self.random.below(900), self.random.below(10)),
            1 => (u64::MAX - self.random.below(3), self.random.below(5)),
            2 => (start, run + 1),
            3 => (start, u64::MAX - self.random.below(2 * start)),
            4 => (start.saturating_sub(1), run),
            _ => (start, 1 + self.random.below(run.max(1))),
        }
    }

    fn free_frames(&mut self) {
        let (start, count) = self.extent(false);
        let expected = self.of_frames.give(start, count);
        // SAFETY: an object of the library.
        let got = unsafe { swath_frames_free(self.frames, swath_extent { start, count }) };
        assert_eq!(got, expected, "frames {start:#x}, {count}");
    }

    fn banks(&mut self) {
        let k = self.random.below(9) as u32;
        if self.random.one_in(2) {
            let (mut frame, owner) = (0, self.random.below(4) as u32);
            // SAFETY: an object of the library.
            let got = unsafe { swath_banks_allocate(self.banks, k, owner, &mut frame) };
            if got.status == SWATH_OK {
                assert!(owner < 3 && k <= 6 && frame.is_multiple_of(1 << k));
                self.of_banks.take(frame, 1 << k);
            } else if owner < 3 && k == 0 && !self.isolated {
                assert_eq!(self.of_banks.free(), 0, "{got:?}");
            }
            return;
        }
        let (start, _) = self.extent(true);
        // A block of the order, or a frame that does not begin one.
        let start = if self.random.one_in(8) { start } else { start >> k << k };
        let is_aligned = start.is_multiple_of(1 << k);
        // SAFETY: an object of the library.
        let got = unsafe { swath_banks_free(self.banks, start, k) };
        if !is_aligned {
            assert_eq!(got, result(SWATH_MISALIGNED, start), "block {start:#x}, order {k}");
        } else if k <= 6 || got.status == SWATH_OK {
            // Beyond the top order it may be taken as the blocks that it is made of, or refused.
            assert_eq!(got, self.of_banks.give(start, 1 << k), "block {start:#x}, order {k}");
        }
    }

    fn isolate(&mut self) {
        let (index, on) = (self.random.index(10), u32::from(!self.isolated));
        // SAFETY: an object of the library.
        let count = unsafe { swath_banks_count(self.banks) };
        // Bank 0 alone is ever isolated.
        let index = if index < count { 0 } else { index };
        // SAFETY: an object of the library.
        let got = unsafe { swath_banks_isolate(self.banks, index, on) };
        if index < count {
            assert_eq!(got.status, SWATH_OK);
            self.isolated = on != 0;
        } else {
            assert_eq!(got.status, SWATH_FOREIGN);
        }
    }

    fn heap(&mut self) {
        let size = self.random.index(600);
        let align = [1, 8, 16, 64, 3, 0][self.random.index(6)];
        let mut block = ptr::null_mut();
        let nth = self.random.index(self.blocks.len().max(1));
        let old = self.blocks.iter().nth(nth).map(|(&at, &(len, mark))| (at, len, mark));
        match (self.random.below(4), old) {
            (0, Some((at, len, mark))) => {
                self.look(at, len, mark);
                // SAFETY: a block of the heap, not used after.
                let got = unsafe { swath_heap_free(self.heap, pointer(at)) };
                assert_eq!(got.status, SWATH_OK);
                self.blocks.remove(&at);
            }
            (1, Some((at, len, mark))) => {
                block = pointer(at);
                // SAFETY: a block of the heap, used after as the result says.
                let got = unsafe { swath_heap_resize(self.heap, size, align, &mut block) };
                if got.status == SWATH_OK {
                    self.blocks.remove(&at);
                    self.look(block.expose_provenance(), len.min(size), mark);
                    self.insert(block, size, align);
                } else {
                    assert_eq!(block, pointer(at), "{got:?} moved the block");
                    self.look(at, len, mark);
                }
            }
            _ => {
                // SAFETY: an object of the library.
                let got = unsafe { swath_heap_allocate(self.heap, size, align, &mut block) };
                match got.status {
                    SWATH_OK => self.insert(block, size, align),
                    SWATH_ARGUMENT => assert!(!align.is_power_of_two()),
                    SWATH_OUT_OF_MEMORY | SWATH_TOO_LARGE => assert!(block.is_null()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn insert(&mut self, block: *mut c_void, size: usize, align: usize) {
        let at = block.expose_provenance();
        assert!(align.is_power_of_two() && at.is_multiple_of(align));
        let before = self.blocks.range(..=at).next_back();
        assert!(before.is_none_or(|(&other, &(len, _))| other + len <= at), "two own a byte");
        let after = self.blocks.range(at..).next();
        assert!(after.is_none_or(|(&other, _)| at + size <= other), "two own a byte");
        let mark = self.random.below(256) as u8;
        // SAFETY: the heap gave so many bytes.
        unsafe { block.cast::<u8>().write_bytes(mark, size) };
        self.blocks.insert(at, (size, mark));
    }

    fn look(&self, at: usize, len: usize, mark: u8) {
        // SAFETY: bytes in use, which `insert` wrote, and nobody writes while they are looked at.
        let bytes = unsafe { std::slice::from_raw_parts(pointer(at).cast::<u8>(), len) };
        assert_eq!(bytes.iter().position(|&byte| byte != mark), None, "a byte has changed");
    }

    /// Null, and objects of another kind, in the place of each object.
    fn other_objects(&mut self) {
        let objects: [*mut c_void; 5] = [
            ptr::null_mut(),
            self.map.cast(),
            self.frames.cast(),
            self.banks.cast(),
            self.heap.cast(),
        ];
        let nth = self.random.index(objects.len());
        let object = objects[nth];
        let wrong = if nth == 0 { SWATH_NULL } else { SWATH_WRONG_OBJECT };
        let extent = swath_extent { start: 3, count: 1 };
        // SAFETY: null, or an object of the library of another kind than the function's.
        unsafe {
            if nth != 1 {
                assert_eq!(swath_map_frames(object.cast()), 0);
            }
            if nth != 2 {
                assert_eq!(swath_frames_free(object.cast(), extent).status, wrong);
                assert_eq!(swath_frames_free_count(object.cast()), 0);
            }
            if nth != 3 {
                assert_eq!(swath_banks_free(object.cast(), 3, 0).status, wrong);
                assert_eq!(swath_banks_free_count(object.cast()), 0);
            }
            if nth != 4 {
                assert_eq!(swath_heap_check(object.cast()).status, wrong);
                assert_eq!(swath_heap_largest_bytes(object.cast()), 0);
            }
        }
        // SAFETY: an object of the library; nothing is written to null.
        let got = unsafe { swath_frames_allocate_block(self.frames, 1, ptr::null_mut()) };
        assert_eq!(got.status, SWATH_NULL);
    }

    /// Makes objects of any configuration in storage of any length.
    fn create(&mut self) {
        let config = swath_frames_config {
            granularity: self.random.below(40) as u32,
            top_order: self.random.below(70) as u32,
            best_fit: self.random.below(3) as u32,
        };
        // SAFETY: a map.
        let needed = unsafe { swath_frames_storage_bytes(self.map, config) };
        let len = (needed + self.random.index(3)).saturating_sub(1);
        let (off, mut frames) = (self.random.index(16), ptr::null_mut());
        let at = self.storages.get(len, off);
        // SAFETY: storage of that length, used for nothing else.
        let made = unsafe { swath_frames_create(self.map, config, 1, at, len, &mut frames) };
        assert_eq!(frames.is_null(), made.status != SWATH_OK, "{config:?}: {made:?}");
        if needed > 0 && len >= needed {
            assert_eq!(made.status, SWATH_OK, "{config:?}");
            // SAFETY: an object of the library.
            assert_eq!(unsafe { swath_frames_free_count(frames) }, self.of_frames.all.len() as u64);
        }
        self.storages.0.pop();
    }

    fn check(&mut self) {
        unsafe extern "C" fn each(block: swath_extent, context: *mut c_void) {
            // SAFETY: the pointer to the set below.
            let set = unsafe { &mut *context.cast::<FrameSet>() };
            for frame in block.start..block.start + block.count {
                assert!(set.insert(frame), "frame {frame:#x} is free twice");
            }
        }
        let mut free = FrameSet::new();
        // SAFETY: an object of the library; `each` takes the context for what it is.
        let walked =
            unsafe { swath_frames_each_free(self.frames, Some(each), (&raw mut free).cast()) };
        assert_eq!(walked.status, SWATH_OK);
        assert_eq!(free.len() as u64, self.of_frames.free());
        let Frames { all, used } = &self.of_frames;
        assert!(free.iter().all(|frame| all.contains(frame) && !used.contains(frame)));
        // SAFETY: an object of the library.
        assert_eq!(unsafe { swath_heap_check(self.heap) }.status, SWATH_OK);
        self.count();
    }

    /// Compares the numbers of free frames.
    fn count(&self) {
        // SAFETY: objects of the library.
        unsafe {
            assert_eq!(swath_frames_free_count(self.frames), self.of_frames.free());
            let of_banks = swath_banks_free_count(self.banks);
            assert!(of_banks == self.of_banks.free() || self.isolated);
        }
    }
}

/// The pointer whose provenance was exposed.
fn pointer(at: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(at)
}
