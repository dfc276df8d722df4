//! The functions within one process: every test of it shares the pool.

mod alone;

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

use swath_arch::testing::Random;
use swath_cmt::{
    Cmt, ExtentsError, Hugetlb, OnError, OptionError, Options, OutOfMemory, PhysicalUnknown,
    Populate, Purge,
};

use crate::alone::alone;

/// A block in use, with a byte of its own.
struct Block {
    at: NonNull<u8>,
    size: usize,
    byte: u8,
}

impl Block {
    fn fill(at: NonNull<u8>, size: usize, byte: u8) -> Self {
        // SAFETY: a block of that length.
        unsafe { at.write_bytes(byte, size) };
        Self { at, size, byte }
    }

    fn is_intact(&self, size: usize) -> bool {
        // SAFETY: a block of that length or more.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), size.min(self.size)) };
        bytes.iter().all(|&byte| byte == self.byte)
    }
}

#[test]
fn blocks_are_aligned_and_keep_what_is_written() {
    let mut random = Random::new(1);
    let mut blocks: Vec<Block> = Vec::new();
    for step in 0..5000_u32 {
        let bits = random.below(17);
        let size = random.index(1 << bits);
        match random.below(6) {
            0 | 1 => {
                let at = swath_cmt::allocate(size).expect("memory");
                assert_eq!(at.addr().get() % 16, 0);
                blocks.push(Block::fill(at, size, step as u8));
            }
            2 => {
                let align = 1 << random.below(14);
                let layout = Layout::from_size_align(size, align).expect("a layout");
                let at = swath_cmt::allocate_aligned(layout).expect("memory");
                assert_eq!(at.addr().get() % align, 0);
                blocks.push(Block::fill(at, size, step as u8));
            }
            3 => {
                let at = swath_cmt::allocate_zeroed(size).expect("memory");
                assert!(Block { at, size, byte: 0 }.is_intact(size));
                blocks.push(Block::fill(at, size, step as u8));
            }
            4 if !blocks.is_empty() => {
                let old = blocks.swap_remove(random.index(blocks.len()));
                // SAFETY: in use; only the result is used after.
                let at = unsafe { swath_cmt::resize(old.at, size) }.expect("memory");
                assert!(Block { at, ..old }.is_intact(size), "step {step}");
                blocks.push(Block::fill(at, size, step as u8));
            }
            _ if !blocks.is_empty() => {
                let old = blocks.swap_remove(random.index(blocks.len()));
                assert!(old.is_intact(old.size), "step {step}");
                assert!(swath_cmt::usable_size(old.at) >= old.size);
                // SAFETY: in use, and not after.
                unsafe { swath_cmt::free(old.at) };
            }
            _ => {}
        }
    }
    for block in blocks {
        assert!(block.is_intact(block.size));
        // SAFETY: in use, and not after.
        unsafe { swath_cmt::free(block.at) };
    }
    swath_cmt::purge(Purge::Due);
    swath_cmt::purge(Purge::All);
}

#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(swath_cmt::allocate(usize::MAX), Err(OutOfMemory));
    assert_eq!(swath_cmt::allocate_zeroed(usize::MAX / 2), Err(OutOfMemory));
    let layout = Layout::from_size_align(1 << 50, 64).expect("a layout");
    assert_eq!(swath_cmt::allocate_aligned(layout), Err(OutOfMemory));
    assert_eq!(swath_cmt::usable_size(NonNull::dangling()), 0);
    let block = swath_cmt::allocate(100).expect("memory");
    let usable = swath_cmt::usable_size(block);
    let ask = |block, range| {
        // SAFETY: in use, or none of this crate.
        unsafe { swath_cmt::extents(block, range, |extent| assert!(extent.len_bytes > 0)) }
    };
    assert_eq!(ask(block, 5..5), Err(ExtentsError::Empty));
    assert_eq!(ask(block, 0..usable + 1), Err(ExtentsError::Outside { usable_bytes: usable }));
    let foreign = NonNull::<u64>::dangling().cast();
    assert_eq!(ask(foreign, 0..1), Err(ExtentsError::Foreign { address: 8 }));
    let known = swath_cmt::stats().physical_known;
    let expected = if known { Ok(()) } else { Err(PhysicalUnknown.into()) };
    assert_eq!(ask(block, 10..100), expected);
    // SAFETY: in use, and not after.
    unsafe { swath_cmt::free(block) };
}

#[test]
fn a_global_allocator_keeps_alignments_when_it_resizes() {
    for align in [1, 16, 64, 8192] {
        let layout = Layout::from_size_align(100, align).expect("a layout");
        // SAFETY: the block is in use until it is freed, with its layout.
        unsafe {
            let at = Cmt.alloc_zeroed(layout);
            assert!(
                Block { at: NonNull::new(at).expect("memory"), size: 100, byte: 0 }.is_intact(100)
            );
            at.write(9);
            let longer = Cmt.realloc(at, layout, 70_000);
            assert_eq!((longer.addr() % align, longer.read()), (0, 9));
            Cmt.dealloc(longer, Layout::from_size_align(70_000, align).expect("a layout"));
        }
    }
}

#[test]
fn options_out_of_range_are_named() {
    let defaults = Options::default();
    assert_eq!((defaults.populate, defaults.on_error), (Populate::Default, OnError::Abort));
    for (options, name, value) in [
        (Options { arena_mib: 1, ..defaults }, "arena_mib", 1),
        (Options { empty_eighths: 0, ..defaults }, "empty_eighths", 0),
        (Options { slack: 1025, ..defaults }, "slack", 1025),
        (Options { heaps: 0, ..defaults }, "heaps", 0),
        (Options { quarantine: 5000, ..defaults }, "quarantine", 5000),
    ] {
        assert_eq!(options.check(), Err(OptionError { name, value }));
        assert!(swath_cmt::begin_with(options).is_err());
    }
}

/// The public safe functions that reach a raw pointer, with anything: `usable_size`, the
/// allocations, `purge`, `stats`, `begin_with`, and their forms in C's contract.
#[test]
fn safe_calls_with_anything_are_refused() {
    use std::ptr;
    use swath_cmt::c;

    for shift in 0..usize::BITS {
        for address in [(1_usize << shift).wrapping_sub(1), 1 << shift, (1 << shift) + 1] {
            assert_eq!(c::usable_size(ptr::without_provenance(address)), 0, "{address:#x}");
            if let Some(at) = NonNull::new(ptr::without_provenance_mut(address)) {
                assert_eq!(swath_cmt::usable_size(at), 0, "{address:#x}");
            }
            let aligned = c::aligned_alloc(address, 100);
            assert!(aligned.is_null() || aligned.addr().is_multiple_of(address));
            // SAFETY: null or a block in use, and not used after.
            unsafe { c::free(aligned) };
        }
    }
    for size in [isize::MAX as usize, isize::MAX as usize + 1, usize::MAX - 8, usize::MAX] {
        assert_eq!(swath_cmt::allocate(size), Err(OutOfMemory));
        assert_eq!(swath_cmt::allocate_zeroed(size), Err(OutOfMemory));
        assert!(c::malloc(size).is_null() && c::aligned_alloc(16, size).is_null());
        assert!(c::calloc(size, 2).is_null() && c::calloc(2, size).is_null());
        assert!(c::calloc(size, size).is_null() && c::aligned_alloc(size, 16).is_null());
    }
    let huge = Layout::from_size_align(1, 1 << 62).expect("a layout");
    assert_eq!(swath_cmt::allocate_aligned(huge), Err(OutOfMemory));
    for which in [Purge::Due, Purge::All, Purge::All] {
        swath_cmt::purge(which);
    }
    assert!(swath_cmt::begin_with(Options::default()).is_err(), "it has begun");
}

const MIB: u64 = 1 << 20;

/// Begins with the kernel's own huge pages and no others; returns false, and says so, where it has none.
fn begins_with_huge_pages() -> bool {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        println!("skipped: a kernel without transparent huge pages");
        return false;
    }
    let options = Options { hugetlb: Hugetlb::Never, ..Options::default() };
    swath_cmt::begin_with(options).expect("a pool");
    true
}

/// A process that grows gets the huge page of a chunk before all of it is used, the more so the more it has: the first at
/// seven eighths, the second at three quarters, and the third with its first unit, as the process has used much by then.
#[test]
fn a_growing_process_gets_its_huge_pages_early() {
    alone("a_growing_process_gets_its_huge_pages_early", || {
        if !begins_with_huge_pages() {
            return;
        }
        let stats = || swath_cmt::stats();
        // Until so much is held, and then until the next superblock.
        let fill = |held: u64| {
            while stats().held_bytes < held {
                Block::fill(swath_cmt::allocate(1000).expect("memory"), 1000, 1);
            }
        };
        fill(MIB * 3 / 2);
        assert_eq!(
            (stats().thp_bytes, stats().small_bytes),
            (0, 2 * MIB),
            "the first by three quarters"
        );
        for (held, thp, small) in [(4, 2, 2), (6, 6, 0), (8, 8, 0)] {
            fill(held * MIB - MIB * 3 / 2);
            let has = (stats().thp_bytes, stats().small_bytes);
            assert_eq!(has, (thp * MIB, small * MIB), "{held} MiB less one and a half");
        }
    });
}

/// A process that uses little of each of its first chunks has no huge page, and those of these chunks once it has seven.
#[test]
fn the_first_chunks_get_their_huge_pages_in_time() {
    alone("the_first_chunks_get_their_huge_pages_in_time", || {
        if !begins_with_huge_pages() {
            return;
        }
        let has = || (swath_cmt::stats().thp_bytes, swath_cmt::stats().small_bytes);
        // Segments of a unit, of each of which so many bytes are used.
        let fill = |chunks: u64, used: usize| {
            while has().0 + has().1 < chunks * 2 * MIB {
                Block::fill(swath_cmt::allocate(60_000).expect("memory"), used, 1);
            }
        };
        fill(4, 16 << 10);
        assert_eq!(has(), (0, 8 * MIB), "a quarter of each is used");
        fill(5, 16 << 10);
        assert_eq!(has(), (2 * MIB, 8 * MIB), "the fifth is whole");
        fill(8, 60_000);
        assert_eq!(has(), (16 * MIB, 0), "each may have seven eighths without use by now");
    });
}

/// With two heaps, ten threads that all hold blocks are served, by the one that they share.
#[test]
fn threads_beyond_the_heaps_share_one() {
    alone("threads_beyond_the_heaps_share_one", || {
        let options = Options { heaps: 2, slack: 0, empty_eighths: 1, ..Options::from_env() };
        swath_cmt::begin_with(options).expect("nothing was allocated");
        let all = std::sync::Barrier::new(10);
        std::thread::scope(|scope| {
            for byte in 0..10 {
                let all = &all;
                scope.spawn(move || {
                    let block = |n: usize| {
                        let size = 16 + n * 37 % 5000;
                        Block::fill(swath_cmt::allocate(size).expect("memory"), size, byte)
                    };
                    let blocks: Vec<Block> = (0..2000).map(block).collect();
                    all.wait();
                    let heaps = swath_cmt::stats().threads;
                    all.wait();
                    for block in blocks {
                        assert!(block.is_intact(block.size));
                        // SAFETY: in use, and not after.
                        unsafe { swath_cmt::free(block.at) };
                    }
                    assert_eq!(heaps, 3);
                });
            }
        });
    });
}
