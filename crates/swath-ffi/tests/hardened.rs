//! Guards, the quarantine and what a wrong pointer comes to: a process of its own, with these options.

use std::ffi::c_void;

use swath::swath_status::SWATH_OK;
use swath::*;

const QUARANTINE: usize = 8;

/// How a fork's child ends that does this: its signal, or 0.
fn signal_of(does: impl FnOnce()) -> i32 {
    let mut status = 0;
    // SAFETY: the child does what is said and ends; what is said calls only this library.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // What it has to say is no output of this test.
            libc::close(2);
            does();
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }
}

fn allocate(size: usize) -> *mut u8 {
    let block = cmt_malloc(size);
    assert!(!block.is_null());
    block.cast()
}

fn free(block: *mut u8) {
    // SAFETY: a block in use, or a test of what is none.
    unsafe { cmt_free(block.cast::<c_void>()) }
}

#[test]
fn wrong_accesses_and_frees_end_the_process() {
    // SAFETY: places to write to.
    unsafe {
        let mut options = std::mem::zeroed();
        assert_eq!(cmt_options_default(&mut options).status, SWATH_OK);
        (options.guard, options.quarantine, options.on_error) = (1, QUARANTINE as u32, 2);
        (options.hugetlb, options.thp, options.canary) = (0, 0, 1);
        assert_eq!(cmt_init(&options).status, SWATH_OK);
    }
    guards();
    quarantine();
    wrong_pointers();
    overruns();
}

/// A write of 40 bytes beyond a block of 100, which the pool's default form lets pass, ends the
/// process at the block's free or resize; so does any that leaves the bytes that may be used.
fn overruns() {
    for size in [0, 1, 100, 1000, 5000, 30_000, 100_000] {
        let block = allocate(size);
        // SAFETY: a block in use.
        let usable = unsafe { cmt_usable_size(block.cast()) };
        assert!(usable >= size);
        // Of a block of no bytes the write itself faults.
        let found = if size == 0 { libc::SIGSEGV } else { libc::SIGABRT };
        // SAFETY: all that may be used, written and resized, then freed, in a child each; the
        // overruns lie in the arena.
        unsafe {
            assert_eq!(signal_of(|| (block.write_bytes(1, usable), free(block)).1), 0);
            for beyond in [1, 8, 40] {
                // Behind a segment there is not so much.
                let beyond = if size > 32 << 10 { beyond.min(8) } else { beyond };
                // The canary is random: what is written is what it is not.
                let at = |index| block.add(usable + index);
                let write = || (0..beyond).for_each(|index| at(index).write(!at(index).read()));
                assert_eq!(signal_of(|| (write(), free(block)).1), found, "{size}");
                let resized = || assert!(!cmt_realloc(block.cast(), 2 * size + 1).is_null());
                assert_eq!(signal_of(|| (write(), resized()).1), found, "{size}");
            }
            let moved = cmt_realloc(block.cast(), 3 * size + 1).cast::<u8>();
            assert!(!moved.is_null());
            moved.write_bytes(3, 3 * size + 1);
            free(moved);
        }
    }
    let block = allocate(100);
    // SAFETY: in a child, within the arena.
    let overrun = || unsafe { block.write_bytes(4, 140) };
    assert_eq!(signal_of(|| (overrun(), free(block)).1), libc::SIGABRT, "40 bytes too many");
    free(block);
}

/// Bytes of the canary behind a block.
const CANARY: usize = 8;
/// Segments are whole units.
const UNIT_BYTES: usize = 64 << 10;

/// A segment's last byte is there, and the first one behind its units faults; so it is again when
/// the units were another's.
fn guards() {
    for size in [40_000, 100_000, 3 << 20, 70_000] {
        let block = allocate(size);
        // SAFETY: a block in use.
        let usable = unsafe { cmt_usable_size(block.cast()) };
        assert!(usable >= size);
        // SAFETY: within the block, but for the child, which is to end.
        unsafe {
            block.add(usable - 1).write(1);
            assert_eq!(signal_of(|| block.add(usable - 1).write(2)), 0);
            let end = (usable + CANARY).next_multiple_of(UNIT_BYTES);
            assert_eq!(signal_of(|| block.wrapping_add(end).write(2)), libc::SIGSEGV);
            assert_eq!(block.add(usable - 1).read(), 1);
        }
        free(block);
    }
}

/// A freed block is zero, and comes back after so many frees of others and not before.
fn quarantine() {
    let block = allocate(200);
    // SAFETY: a block of so many bytes.
    unsafe { block.write_bytes(1, 200) };
    free(block);
    // SAFETY: its memory is still the process's.
    unsafe { assert!((0..200).all(|at| block.add(at).read() == 0)) };
    let others: Vec<_> = (0..QUARANTINE).map(|_| allocate(200)).collect();
    assert!(!others.contains(&block));
    assert_eq!(signal_of(|| free(block)), libc::SIGABRT, "it waits, and is freed again");
    let (last, first) = others.split_last().unwrap();
    first.iter().for_each(|&other| free(other));
    // All of a superblock's slots: the block is not among them yet.
    let all: Vec<_> = (0..400).map(|_| allocate(200)).collect();
    assert!(!all.contains(&block));
    free(*last);
    assert!((0..400).any(|_| allocate(200) == block), "it comes back");
    all.into_iter().for_each(free);
    // What a resize leaves waits, too.
    let left = allocate(200);
    // SAFETY: a block of so many bytes, of which only the result is used.
    let moved = unsafe {
        left.write_bytes(1, 200);
        cmt_realloc(left.cast(), 5000).cast::<u8>()
    };
    // SAFETY: as above; the memory of the place that it left is still the process's.
    unsafe {
        assert!(moved != left && (0..200).all(|at| moved.add(at).read() == 1));
        assert!((0..200).all(|at| left.add(at).read() == 0));
    }
    assert!((0..400).all(|_| allocate(200) != left), "it is not handed out yet");
    assert_eq!(signal_of(|| free(left)), libc::SIGABRT, "it waits, and is freed");
    free(moved);
    for size in [200, 100_000, 300_000] {
        let block = allocate(size);
        free(block);
        // Of a segment all but the last unit faults; any pointer may be asked about.
        // SAFETY: only asks.
        assert!(unsafe { cmt_usable_size(block.cast()) } <= size);
        if size > 2 * UNIT_BYTES {
            // SAFETY: in a child, which is to end.
            assert_eq!(signal_of(|| unsafe { block.write(1) }), libc::SIGSEGV, "{size}");
        }
        let resized = || {
            // SAFETY: none that is in use, which the call is to find.
            let _ = unsafe { cmt_realloc(block.cast(), 2 * size) };
        };
        assert_eq!(signal_of(resized), libc::SIGABRT, "it waits, and is resized: {size}");
    }
}

fn wrong_pointers() {
    let (block, segment) = (allocate(100), allocate(100_000));
    let mut own = 0_u64;
    assert_eq!(signal_of(|| free((&raw mut own).cast())), libc::SIGABRT, "foreign");
    assert_eq!(signal_of(|| free(block.wrapping_add(8))), libc::SIGABRT, "inside a slot");
    assert_eq!(signal_of(|| free(segment.wrapping_add(4096))), libc::SIGABRT, "inside a segment");
    assert_eq!(signal_of(|| free(block)), 0);
    free(segment);
    free(block);
    assert_eq!(signal_of(|| free(segment)), libc::SIGABRT, "freed twice");
}
