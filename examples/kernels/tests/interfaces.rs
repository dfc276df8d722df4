//! The interfaces over one allocator, against a set of frames.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize};

use free_list::{PageLayout, PageRange};
use swath_arch::{Extent, Pfn};
use swath_example_kernels::asterinas::GlobalFrames;
use swath_example_kernels::hermit::{PhysicalRanges, RangeError};
use swath_example_kernels::nanvix::{SharedError, SharedFrames};
use swath_example_kernels::paging::TableFrames;
use swath_example_kernels::twizzler::{Frame, ZeroedFrames};
use swath_example_kernels::{FRAME_BYTES, KernelFrames};
use swath_frame::FrameHotplugError;
use swath_frame::front::Slot;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};

type Lock = spin::Mutex<()>;

const FRAME: usize = FRAME_BYTES;
/// The span: 4 GiB from 1 MiB on.
const FIRST: usize = 1 << 20;
const SPAN_BYTES: usize = 4 << 30;

fn frames() -> KernelFrames<'static, Lock> {
    let span = Extent::new(Pfn::new((FIRST / FRAME) as u64), (SPAN_BYTES / FRAME) as u64);
    let needs = KernelFrames::<Lock>::needs(span).unwrap();
    let words = vec![u64::MAX; needs.words].leak();
    let bits = (0..needs.bits).map(|_| AtomicUsize::new(7)).collect::<Vec<_>>().leak();
    let slots = (0..3).map(|_| Slot::new()).collect::<Vec<_>>().leak();
    // A CPU number beyond the slots.
    KernelFrames::new(span, words, bits, slots, || 4).unwrap()
}

#[test]
fn it_begins_without_memory_and_takes_what_comes() {
    let frames = frames();
    let global = GlobalFrames(&frames);
    let page = Layout::from_size_align(FRAME, FRAME).unwrap();
    assert_eq!((frames.free_bytes(), global.alloc(page)), (0, None));
    // Parts of frames are left out.
    global.add_free_memory(2 * FIRST + 1, 3 * FRAME).unwrap();
    assert_eq!(frames.free_bytes(), 2 * FRAME);
    let present = global.add_free_memory(2 * FIRST, 4 * FRAME);
    let frame = Pfn::new((2 * FIRST / FRAME + 1) as u64);
    assert_eq!(present, Err(FrameHotplugError::Present { frame }));
    assert!(global.add_free_memory(0, FRAME).is_err());
    assert!(global.add_free_memory(FIRST, 0).is_err());
    assert!(global.add_free_memory(usize::MAX - 3 * FRAME, usize::MAX).is_err());
    let taken: BTreeSet<usize> = (0..2).map(|_| global.alloc(page).unwrap()).collect();
    assert_eq!(taken, BTreeSet::from([2 * FIRST + FRAME, 2 * FIRST + 2 * FRAME]));
    assert_eq!(global.alloc(page), None);
    assert!(frames.remove_memory(2 * FIRST + FRAME, FRAME).is_err());
    global.dealloc(2 * FIRST + FRAME, 2 * FRAME);
    global.dealloc(2 * FIRST + FRAME, FRAME);
    assert_eq!(frames.free_bytes(), 2 * FRAME);
    frames.remove_memory(2 * FIRST + FRAME, FRAME).unwrap();
    assert_eq!(frames.free_bytes(), FRAME);
}

#[test]
fn layouts_of_any_size_and_alignment() {
    let frames = frames();
    let global = GlobalFrames(&frames);
    global.add_free_memory(3 * FIRST, 256 << 20).unwrap();
    let mut held = Vec::new();
    for pages in [1, 2, 3, 64, 65, 511, 512, 513, 2048, 5000] {
        for align in [FRAME, 4 * FRAME, 1 << 21] {
            let layout = Layout::from_size_align(pages * FRAME, align).unwrap();
            let addr = global.alloc(layout).unwrap();
            assert!(addr.is_multiple_of(align), "{layout:?} at {addr:#x}");
            held.push((addr, pages * FRAME));
        }
    }
    held.sort_unstable();
    assert!(held.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "two share a frame");
    // In any pieces: the odd frames of each, then the even ones.
    for odd in [1, 0] {
        for &(addr, size) in &held {
            for page in (odd * FRAME..size).step_by(2 * FRAME) {
                global.dealloc(addr + page, FRAME);
            }
        }
    }
    assert_eq!(frames.free_bytes(), 256 << 20);
}

#[test]
fn ranges_at_an_address() {
    let frames = frames();
    let ranges = PhysicalRanges(&frames);
    let range = |start: usize, end: usize| PageRange::new(start, end).unwrap();
    // As at boot: what is freed is memory from now on.
    ranges.deallocate(range(4 * FIRST, 8 * FIRST)).unwrap();
    assert_eq!(frames.free_bytes(), 4 * FIRST);
    assert_eq!(ranges.deallocate(range(4 * FIRST, 8 * FIRST)), Err(RangeError));
    ranges.allocate_at(range(5 * FIRST, 6 * FIRST)).unwrap();
    assert_eq!(ranges.allocate_at(range(5 * FIRST, 5 * FIRST + FRAME)), Err(RangeError));
    let layout = PageLayout::from_size_align(2 * FIRST, FIRST).unwrap();
    assert_eq!(ranges.allocate(layout).unwrap(), range(6 * FIRST, 8 * FIRST));
    assert_eq!(ranges.allocate(layout), Err(RangeError));
    ranges.deallocate(range(5 * FIRST, 7 * FIRST)).unwrap();
    assert_eq!(ranges.allocate(layout).unwrap(), range(4 * FIRST, 6 * FIRST));
}

#[test]
fn pages_of_every_size() {
    let frames = frames();
    frames.add_memory(1 << 30, 2 << 30).unwrap();
    let mut source = TableFrames(&frames);
    let huge: PhysFrame<Size1GiB> = source.allocate_frame().unwrap();
    let small: PhysFrame<Size4KiB> = source.allocate_frame().unwrap();
    let large: PhysFrame<Size2MiB> = source.allocate_frame().unwrap();
    assert!(FrameAllocator::<Size1GiB>::allocate_frame(&mut source).is_none());
    // SAFETY: numbers of frames, which nobody uses.
    unsafe {
        source.deallocate_frame(huge);
        source.deallocate_frame(small);
        source.deallocate_frame(large);
        // A second free changes nothing.
        source.deallocate_frame(small);
    }
    assert_eq!(frames.free_bytes(), 2 << 30);
    assert!(FrameAllocator::<Size1GiB>::allocate_frame(&mut source).is_some());
    assert!(FrameAllocator::<Size1GiB>::allocate_frame(&mut source).is_some());
}

#[test]
fn frames_of_several_owners() {
    let frames = frames();
    frames.add_memory(2 * FIRST, FIRST).unwrap();
    let counts: Vec<AtomicU8> = (0..384).map(|_| AtomicU8::new(0)).collect();
    let shared = SharedFrames::new(&frames, Pfn::new((2 * FIRST / FRAME) as u64), &counts);
    let addr = shared.alloc().unwrap();
    assert_eq!(shared.refcount(addr), Ok(1));
    for owners in 2..=255 {
        shared.share(addr).unwrap();
        assert_eq!(shared.refcount(addr), Ok(owners));
    }
    assert_eq!(shared.share(addr), Err(SharedError::TooManyOwners { addr }));
    for _ in 0..255 {
        assert_eq!(frames.free_bytes(), FIRST - FRAME);
        shared.free(addr).unwrap();
    }
    assert_eq!(frames.free_bytes(), FIRST);
    for addr in [addr, addr + 1, 0, 2 * FIRST + 384 * FRAME, usize::MAX] {
        assert_eq!(shared.free(addr), Err(SharedError::NotOwned { addr }));
        assert_eq!(shared.share(addr), Err(SharedError::NotOwned { addr }));
        assert_eq!(shared.refcount(addr), Err(SharedError::NotOwned { addr }));
    }
    // A region at its place, once, then runs of what is left.
    shared.alloc_range(2 * FIRST + 8 * FRAME, 8 * FRAME).unwrap();
    assert_eq!(
        shared.alloc_range(2 * FIRST + 15 * FRAME, 2 * FRAME),
        Err(SharedError::OutOfMemory)
    );
    assert_eq!(shared.alloc_range(usize::MAX - FRAME + 1, FRAME), Err(SharedError::OutOfMemory));
    let run = shared.alloc_contiguous(5).unwrap();
    assert!(!(2 * FIRST + 3 * FRAME + 1..2 * FIRST + 16 * FRAME).contains(&run), "{run:#x}");
    assert_eq!(shared.alloc_contiguous(257), Err(SharedError::OutOfMemory));
    for page in 0..5 {
        shared.free(run + page * FRAME).unwrap();
    }
    for page in 8..16 {
        shared.free(2 * FIRST + page * FRAME).unwrap();
    }
    assert_eq!(frames.free_bytes(), FIRST);
    // Memory without counts is not handed out.
    frames.add_memory(8 * FIRST, FIRST).unwrap();
    assert_eq!(shared.alloc_range(8 * FIRST, FRAME), Err(SharedError::OutOfMemory));
    assert_eq!(frames.free_bytes(), 2 * FIRST);
}

/// Of several threads that add owners and take them away, the last one frees the frame, once.
#[test]
fn owners_on_several_threads() {
    let frames = frames();
    frames.add_memory(2 * FIRST, 4 * FRAME).unwrap();
    let counts: Vec<AtomicU8> = (0..4).map(|_| AtomicU8::new(0)).collect();
    let shared = SharedFrames::new(&frames, Pfn::new((2 * FIRST / FRAME) as u64), &counts);
    for _ in 0..500 {
        let addr = shared.alloc().unwrap();
        (0..3).try_for_each(|_| shared.share(addr)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    shared.share(addr).unwrap();
                    shared.free(addr).unwrap();
                    shared.free(addr).unwrap();
                });
            }
        });
        assert_eq!(shared.free(addr), Err(SharedError::NotOwned { addr }));
        assert_eq!(frames.free_bytes(), 4 * FRAME);
    }
}

#[test]
fn frames_that_hold_zeros() {
    static ZEROED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let written = || std::mem::take(&mut *ZEROED.lock().unwrap());
    let frames = frames();
    frames.add_memory(2 * FIRST, 3 * FRAME).unwrap();
    let bits = [const { AtomicUsize::new(0) }; 1];
    let first = Pfn::new((2 * FIRST / FRAME) as u64);
    let source = ZeroedFrames::new(&frames, first, &bits, |at| ZEROED.lock().unwrap().push(at));
    // Zeros are written once for a frame, until something else is.
    let all =
        |zeroed| -> Vec<Frame> { std::iter::from_fn(|| source.try_alloc_frame(zeroed)).collect() };
    let mut held = all(true);
    assert!(held.len() == 3 && held.iter().all(Frame::is_zeroed));
    let mut starts: Vec<usize> = held.iter().map(Frame::start_address).collect();
    assert_eq!(written(), starts);
    held[1].set_not_zero();
    let dirty = held[1].start_address();
    held.into_iter().for_each(|frame| source.free_frame(frame));
    let held = all(true);
    assert_eq!(written(), [dirty]);
    held.into_iter().for_each(|frame| source.free_frame(frame));
    // Who wants anything is told what there is, and nothing is written.
    let held = all(false);
    assert!(held.len() == 3 && held.iter().all(Frame::is_zeroed) && written().is_empty());
    for mut frame in held {
        frame.set_not_zero();
        source.free_frame(frame);
    }
    assert!(all(false).iter().all(|frame| !frame.is_zeroed()));
    assert_eq!(frames.free_bytes(), 0);
    starts.sort_unstable();
    assert_eq!(starts, [0, 1, 2].map(|page| 2 * FIRST + page * FRAME));
}
