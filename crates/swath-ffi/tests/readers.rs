//! Readers of one object: a visitor that asks the allocator it walks, threads that share a map.
//! Run under Miri as well, which sees references that exclude each other.

use std::ffi::c_void;
use std::ptr;
use std::sync::Barrier;

use swath::swath_status::*;
use swath::*;

const CONFIG: swath_frames_config =
    swath_frames_config { granularity: 1, top_order: 4, best_fit: 0 };

/// A map of 48 frames in the storage.
fn map_in(storage: &mut Vec<u64>) -> *mut swath_map {
    let range = swath_range { start: 0x1_0000, len_bytes: 48 << 12 };
    let len_bytes = swath_map_storage_bytes(1);
    storage.resize(len_bytes.div_ceil(8), 0);
    let mut map = ptr::null_mut();
    // SAFETY: the storage is as long as was asked for, and stays with the caller.
    let made =
        unsafe { swath_map_create(&range, 1, storage.as_mut_ptr().cast(), len_bytes, &mut map) };
    assert_eq!(made.status, SWATH_OK);
    map
}

/// An allocator of which a visitor counts the free frames.
struct Walk {
    frames: *mut swath_frames,
    visited: u64,
}

unsafe extern "C" fn visit(block: swath_extent, context: *mut c_void) {
    // SAFETY: the context of the walk below; nobody else uses it meanwhile.
    let walk = unsafe { &mut *context.cast::<Walk>() };
    walk.visited += block.count;
    // SAFETY: an object of the library, which a visitor may read.
    unsafe {
        assert_eq!(swath_frames_free_count(walk.frames), 47);
        assert_eq!(swath_frames_total_count(walk.frames), 48);
    }
    let mut taken = swath_extent { start: 0, count: 0 };
    let mut count = 0;
    // SAFETY: an object of the library; a visitor that would change it is refused.
    unsafe {
        let busy = swath_result { status: SWATH_BUSY, at: 0 };
        assert_eq!(swath_frames_allocate_block(walk.frames, 1, &mut taken), busy);
        assert_eq!(swath_frames_allocate_aligned(walk.frames, 0, &mut taken), busy);
        assert_eq!(swath_frames_allocate(walk.frames, 1, &mut taken, 1, &mut count), busy);
        assert_eq!(swath_frames_free(walk.frames, block), busy);
    }
}

#[test]
fn a_visitor_reads_the_allocator_that_it_walks_and_cannot_change_it() {
    let (mut under_map, mut under_frames) = (Vec::new(), Vec::<u64>::new());
    let map = map_in(&mut under_map);
    // SAFETY: a map of the library.
    let len_bytes = unsafe { swath_frames_storage_bytes(map, CONFIG) };
    under_frames.resize(len_bytes.div_ceil(8), 0);
    let mut frames = ptr::null_mut();
    let mut block = swath_extent { start: 0, count: 0 };
    // SAFETY: storage as long as was asked for, which outlives the object.
    unsafe {
        let storage = under_frames.as_mut_ptr().cast();
        let made = swath_frames_create(map, CONFIG, 1, storage, len_bytes, &mut frames);
        assert_eq!(made.status, SWATH_OK);
        assert_eq!(swath_frames_allocate_block(frames, 1, &mut block).status, SWATH_OK);
    }
    let mut walk = Walk { frames, visited: 0 };
    // SAFETY: the visitor gets its own context, and reads alone.
    let walked = unsafe { swath_frames_each_free(frames, Some(visit), (&raw mut walk).cast()) };
    assert_eq!((walked.status, walk.visited), (SWATH_OK, 47));
    // SAFETY: nobody walks any more.
    assert_eq!(unsafe { swath_frames_free(frames, block) }.status, SWATH_OK);
}

/// Lets a pointer cross to another thread.
struct Shared(*const swath_map);

// SAFETY: the map behind it is only read.
unsafe impl Sync for Shared {}

#[test]
fn threads_read_one_map() {
    let mut storage = Vec::new();
    let map = &Shared(map_in(&mut storage));
    let together = Barrier::new(2);
    let read = || {
        let Shared(map) = *map;
        together.wait();
        let mut area = swath_extent { start: 0, count: 0 };
        // SAFETY: a map of the library, which all threads read alone.
        unsafe {
            assert_eq!(swath_map_frames(map), 48);
            assert_eq!(swath_map_area(map, 0, &mut area).status, SWATH_OK);
        }
        assert_eq!((area.start, area.count), (0x10, 48));
    };
    std::thread::scope(|threads| {
        threads.spawn(read);
        threads.spawn(read);
    });
}
