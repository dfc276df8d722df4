//! Promises by name.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Account, Memory};
use swath_arch::testing::Random;
use swath_heap::{
    AllocateBytesError, ByteAllocator, Fit, FreeBytesError, GRANULE_BYTES, HEADER_BYTES, HalfFit,
    Headers, Heap, HeapPoolError, Links, LockedHeap, MIN_BLOCK_BYTES, POOL_OVERHEAD_BYTES,
    PowersOfTwo, Resident, SourceError, Tlsf, Trusting, TwoLevel,
};

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

fn bytes(size: usize) -> Layout {
    layout(size, 1)
}

/// Allocates until nothing is left, however small.
fn fill(heap: &mut impl ByteAllocator) -> usize {
    let mut count = 0;
    while let Some(largest) = heap.largest_bytes() {
        heap.allocate(bytes(largest)).expect("it says that it can");
        count += 1;
    }
    count
}

fn freed_serves_again<F: Fit>(align: usize) {
    for size in [0, 1, 24, 100, 505, 1000, 4097, 20_001, 65_535, 100_003] {
        let mut memory = Memory::new(1 << 20);
        let mut heap = Heap::<F, Resident, Links>::new();
        heap.add_pool(memory.bytes(1 << 20)).expect("a pool");
        // Something before it, so that it does not begin the pool.
        heap.allocate(bytes(333)).expect("room");
        let block = heap.allocate(layout(size, align)).expect("room");
        assert!(fill(&mut heap) > 0);
        assert!(matches!(heap.allocate(bytes(0)), Err(AllocateBytesError::OutOfMemory { .. })));
        // SAFETY: in use, and not after.
        unsafe { heap.free(block) }.expect("in use");
        let again = heap.allocate(layout(size, align));
        assert_eq!(again, Ok(block), "{size} bytes aligned to {align}");
        heap.check().expect("intact");
    }
}

/// What is allocated is rounded to its class: a request of 20,001 bytes would
/// otherwise leave, when freed, a block of a class below the one searched.
#[test]
fn a_block_just_freed_serves_the_same_request_again() {
    freed_serves_again::<TwoLevel>(1);
    freed_serves_again::<PowersOfTwo>(1);
    freed_serves_again::<TwoLevel>(GRANULE_BYTES);
}

#[test]
fn so_does_an_aligned_one() {
    for align in [32, 64, 4096] {
        freed_serves_again::<TwoLevel>(align);
        freed_serves_again::<PowersOfTwo>(align);
    }
}

/// A block is cut to the request's class, not to that of the block found: a
/// pool of 64 MiB is one block at first, and four small requests must not
/// take all of it.
#[test]
fn a_request_does_not_take_the_class_of_the_block_that_was_found() {
    let mut memory = Memory::new(64 << 20);
    let mut heap: Tlsf = Tlsf::new();
    heap.add_pool(memory.bytes(64 << 20)).expect("a pool");
    for size in [16 << 20, 15 << 20, 17 << 20] {
        heap.allocate(bytes(size)).expect("48 of 64 MiB");
    }
    for _ in 0..100_000 {
        heap.allocate(bytes(100)).expect("11 of 16 MiB");
    }
    assert_eq!(Tlsf::<Resident>::block_bytes(100), Some(112));
    heap.check().expect("intact");
}

#[test]
fn the_cost_of_a_block_is_a_word_and_at_most_a_thirty_second() {
    for size in 0..200_000 {
        let block = Tlsf::<Resident>::block_bytes(size).expect("small");
        let least = (size + HEADER_BYTES).next_multiple_of(GRANULE_BYTES).max(MIN_BLOCK_BYTES);
        assert!(block >= least && (block - least) * 32 <= least, "{size}: {block}");
        let half = HalfFit::<Resident>::block_bytes(size).expect("small");
        assert_eq!(half, least.next_power_of_two());
    }
}

#[test]
fn the_largest_is_served_and_one_more_is_not() {
    let mut memory = Memory::new(1 << 16);
    let mut heap: Tlsf = Tlsf::new();
    assert_eq!((heap.largest_bytes(), heap.largest_ever_bytes()), (None, None));
    let refused = heap.allocate(bytes(1));
    assert_eq!(refused, Err(AllocateBytesError::OutOfMemory { size_bytes: 1, largest_bytes: 0 }));
    heap.add_pool(memory.bytes(50_000)).expect("a pool");
    let largest = heap.largest_bytes().expect("all is free");
    assert_eq!(heap.largest_ever_bytes(), Some(largest));
    let refused = heap.allocate(bytes(largest + 1));
    let size_bytes = largest + 1;
    assert_eq!(
        refused,
        Err(AllocateBytesError::OutOfMemory { size_bytes, largest_bytes: largest })
    );
    heap.allocate(bytes(largest)).expect("the largest");
    let most = Tlsf::<Resident>::SIZE_BYTES_MAX;
    let refused = heap.allocate(bytes(most + 1));
    assert_eq!(refused, Err(AllocateBytesError::TooLarge { size_bytes: most + 1, align_bytes: 1 }));
    let huge = layout(1, 1 << (usize::BITS - 2));
    assert!(matches!(heap.allocate(huge), Err(AllocateBytesError::TooLarge { .. })));
    let longest = bytes(isize::MAX as usize);
    assert!(matches!(heap.allocate(longest), Err(AllocateBytesError::TooLarge { .. })));
}

#[test]
fn a_resize_to_what_fits_keeps_the_place_and_a_slide_keeps_the_bytes() {
    let mut memory = Memory::new(4096);
    let mut heap: Tlsf<'_, Resident, Links> = Tlsf::new();
    heap.add_pool(memory.bytes(4096)).expect("a pool");
    let first = heap.allocate(bytes(1000)).expect("room");
    let second = heap.allocate(bytes(1000)).expect("room");
    let third = heap.allocate(bytes(1000)).expect("room");
    // SAFETY: all of these blocks are in use when they are named, and `second`
    // has at least 1000 bytes.
    unsafe {
        for index in 0..1000 {
            second.add(index).write(index as u8);
        }
        heap.free(third).expect("in use");
        assert_eq!(heap.resize(second, bytes(1800)), Ok(second), "into the free block behind");
        assert_eq!(heap.resize(second, bytes(1000)), Ok(second), "and back");
        heap.free(first).expect("in use");
        let slid = heap.resize(second, bytes(3900)).expect("only both free neighbours do");
        assert_eq!(slid, first);
        for index in 0..1000 {
            assert_eq!(slid.add(index).read(), index as u8);
        }
        heap.check().expect("intact");
        let refused = heap.resize(slid, bytes(5000)).expect_err("there is no more");
        assert!(refused.to_string().contains("5000 bytes wanted"), "{refused}");
        heap.free(slid).expect("in use");
    }
    heap.check().expect("intact");
}

#[test]
fn pools_are_refused_by_name() {
    let mut memory = Memory::new(1 << 16);
    let start = memory.start();
    let mut heap: Tlsf = Tlsf::new();
    let least = POOL_OVERHEAD_BYTES + MIN_BLOCK_BYTES;
    // SAFETY: nothing is used after the memory, and what is refused is not used.
    unsafe {
        let short = heap.add_pool_at(start, least - 1);
        let len_bytes = least - GRANULE_BYTES;
        assert_eq!(short, Err(HeapPoolError::TooShort { len_bytes, min_bytes: least }));
        let pool = heap.add_pool_at(start.add(1), 1 << 12).expect("aligned inside");
        assert_eq!(pool.address() % GRANULE_BYTES, 0);
        for from in [0, 100, 4000] {
            let overlapping = heap.add_pool_at(start.add(from), 1 << 13);
            assert_eq!(overlapping, Err(HeapPoolError::Overlaps { address: pool.address() }));
        }
        let second = heap.add_pool_at(start.add(1 << 14), 1 << 12).expect("apart");
        let block = heap.allocate(bytes(10)).expect("room");
        assert!(matches!(heap.remove_pool(second), Err(HeapPoolError::InUse { .. })));
        heap.remove_pool(pool).expect("nothing is allocated from it");
        assert_eq!(heap.remove_pool(pool), Err(HeapPoolError::Unknown { address: pool.address() }));
        heap.free(block).expect("in use");
        let memory = heap.remove_pool(second).expect("free again");
        assert_eq!((memory.addr().get(), memory.len()), (second.address(), 1 << 12));
        assert_eq!(heap.largest_bytes(), None);

        let mut paged: Tlsf<'_, _> = Tlsf::over(Account::new(4096, 1), 0);
        let refused = paged.add_pool_at(start.add(16), 8192);
        assert!(matches!(refused, Err(HeapPoolError::NotPages { page_bytes: 4096, .. })));
        // There is no second page, so the first goes back.
        let refused = paged.add_pool_at(start, 8192);
        let address = start.addr().get() + 4096;
        assert_eq!(refused, Err(HeapPoolError::Source(SourceError { address, len_bytes: 4096 })));
        assert!(paged.source().committed.is_empty());
        paged.add_pool_at(start, 4096).expect("one page");
    }
}

/// The paper's modification, in numbers: one call of the source for each
/// allocation and each free, of a size of pages that may be anything.
#[test]
fn a_free_is_one_call_of_the_source_for_any_number_of_pages() {
    let len = 4 << 20;
    let mut memory = Memory::new(len);
    let mut heap: Tlsf<'_, _> = Tlsf::over(Account::new(4096, 1024), 7);
    // SAFETY: the memory outlives the heap.
    unsafe { heap.add_pool_at(memory.start(), len) }.expect("a pool");
    assert_eq!((heap.source().calls, heap.source().committed.len()), (2, 2));
    for pages in [1, 2, 10, 100, 900] {
        let calls = heap.source().calls;
        let before = heap.source().committed.len();
        let small = heap.allocate(bytes(100)).expect("room");
        let block = heap.allocate(bytes(pages * 4096)).expect("room");
        let held = heap.source().committed.len();
        assert!(held >= before + pages && held <= before + pages + pages / 32 + 2, "{held}");
        // SAFETY: both are in use, and not after.
        unsafe {
            heap.free(block).expect("in use");
            heap.free(small).expect("in use");
        }
        assert!(heap.source().calls - calls <= 4);
        assert_eq!(heap.source().committed.len(), before);
        heap.check().expect("intact");
    }
    // Without frames an allocation fails, and nothing has changed.
    // SAFETY: the same source, and the same pages.
    unsafe { heap.source_mut() }.pages_max = 10;
    let refused = heap.allocate(bytes(100 * 4096)).expect_err("10 pages are not enough");
    assert!(matches!(refused, AllocateBytesError::Source(SourceError { .. })), "{refused}");
    assert_eq!(heap.source().committed.len(), 2);
    heap.check().expect("intact");
}

struct Spin(AtomicBool);

// SAFETY: only the thread that changed the flag from false to true holds it.
unsafe impl lock_api::RawMutex for Spin {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[test]
fn threads_share_a_global_allocator() {
    let mut memory = Memory::new(1 << 20);
    let mut heap: Tlsf<'_, Resident, Links> = Tlsf::new();
    heap.add_pool(memory.bytes(1 << 20)).expect("a pool");
    let global: LockedHeap<Spin, _> = LockedHeap::new(heap);
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let global = &global;
            scope.spawn(move || {
                for round in 0..300 {
                    let (size, more) = (1 + round % 700, 2000);
                    let layout = layout(size, 1 << (round % 7));
                    // SAFETY: sizes are not 0; each block is used as long as
                    // its layout says, then resized, then freed.
                    unsafe {
                        let at = global.alloc(layout);
                        assert!(!at.is_null());
                        at.write_bytes(thread, size);
                        let at = global.realloc(at, layout, more);
                        assert!(!at.is_null());
                        for index in 0..size {
                            assert_eq!(at.add(index).read(), thread);
                        }
                        let layout = Layout::from_size_align(more, layout.align());
                        global.dealloc(at, layout.expect("a layout"));
                    }
                }
            });
        }
    });
    let heap = global.lock();
    heap.check().expect("intact");
    assert_eq!(heap.largest_bytes(), heap.largest_ever_bytes());
    drop(heap);
    assert_eq!(global.last_refused(), None);
    let mut foreign = [0_u8; 64];
    // SAFETY: the tier looks at the pointer and refuses it.
    unsafe { global.dealloc(foreign.as_mut_ptr(), bytes(1)) };
    assert!(global.last_refused().is_some());
    // SAFETY: too much; null says so.
    assert!(unsafe { global.alloc(bytes(1 << 40)) }.is_null());
}

/// What the tiers find, and that it changes nothing.
mod hostile {
    use super::*;

    fn pool<H: swath_heap::Hardening>(memory: &mut Memory) -> Tlsf<'_, Resident, H> {
        let mut heap = Tlsf::over(Resident, 0x1234_5678);
        heap.add_pool(memory.bytes(8192)).expect("a pool");
        heap
    }

    #[test]
    fn pointers_that_are_none_of_the_heaps() {
        let mut memory = Memory::new(8192);
        let mut other = Memory::new(8192);
        let mut heap = pool::<Headers>(&mut memory);
        let block = heap.allocate(bytes(500)).expect("room");
        // Written, as a user would: neither old headers nor anything sealed.
        // SAFETY: 500 bytes of this test's; what is refused is not touched.
        unsafe {
            block.write_bytes(0x41, 500);
            for address in [block.add(1), block.add(8)] {
                let address = address.addr().get();
                let at = NonNull::new(std::ptr::without_provenance_mut(address)).expect("not 0");
                assert_eq!(heap.free(at), Err(FreeBytesError::Misaligned { address }));
            }
            for at in [other.start(), other.start().add(64), NonNull::<u128>::dangling().cast()] {
                let address = at.addr().get();
                assert_eq!(heap.free(at), Err(FreeBytesError::Foreign { address }));
                assert_eq!(heap.usable_bytes(at), Err(FreeBytesError::Foreign { address }));
            }
            for inside in (GRANULE_BYTES..496).step_by(GRANULE_BYTES) {
                let refused = heap.free(block.add(inside));
                assert!(
                    matches!(refused, Err(FreeBytesError::Corrupt(_))),
                    "{inside}: {refused:?}"
                );
            }
            heap.check().expect("nothing has changed");
            heap.free(block).expect("still in use");
        }
    }

    #[test]
    fn every_granule_of_a_pool_as_a_pointer() {
        let mut memory = Memory::new(8192);
        let mut heap = pool::<Links>(&mut memory);
        let mut live = Vec::new();
        for index in 0..20 {
            let at = heap.allocate(bytes(40 * index)).expect("room");
            // SAFETY: as many bytes as asked for.
            unsafe { at.write_bytes(0xff, 40 * index) };
            live.push(at);
        }
        for at in live.extract_if(.., |at| at.addr().get() / 16 % 2 == 0).collect::<Vec<_>>() {
            // SAFETY: in use, and not after.
            unsafe { heap.free(at) }.expect("in use");
        }
        let start = live[0].addr().get() & !4095;
        let mut found = 0;
        for address in (start..start + 8192).step_by(GRANULE_BYTES) {
            if live.iter().any(|at| at.addr().get() == address) {
                found += 1;
                continue;
            }
            let distance = address.wrapping_sub(live[0].addr().get()) as isize;
            let at = NonNull::new(live[0].as_ptr().wrapping_offset(distance)).expect("not 0");
            // SAFETY: it is refused.
            let refused = unsafe { heap.free(at) };
            assert!(refused.is_err(), "{address:#x} was taken");
            heap.check().expect("nothing has changed");
        }
        assert_eq!(found, live.len());
    }

    #[test]
    fn a_second_free_whatever_became_of_the_block() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut memory = Memory::new(8192);
            let mut heap = pool::<Headers>(&mut memory);
            let blocks = [0; 3].map(|_| heap.allocate(bytes(300)).expect("room"));
            for (freed, index) in order.into_iter().enumerate() {
                // SAFETY: in use; the second times are refused.
                unsafe { heap.free(blocks[index]) }.expect("in use");
                for again in &order[..=freed] {
                    let address = blocks[*again].addr().get();
                    // SAFETY: it is refused.
                    let refused = unsafe { heap.free(blocks[*again]) };
                    assert_eq!(refused, Err(FreeBytesError::NotAllocated { address }), "{order:?}");
                }
                heap.check().expect("nothing has changed");
            }
        }
    }

    #[test]
    fn a_second_free_of_what_lies_in_released_pages() {
        let mut memory = Memory::new(1 << 16);
        let mut heap: Tlsf<'_, _> = Tlsf::over(Account::new(4096, 16), 3);
        // SAFETY: the memory outlives the heap.
        unsafe { heap.add_pool_at(memory.start(), 1 << 16) }.expect("a pool");
        let first = heap.allocate(bytes(10_000)).expect("room");
        let second = heap.allocate(bytes(20_000)).expect("room");
        // SAFETY: in use; the second time is refused.
        unsafe {
            heap.free(first).expect("in use");
            heap.free(second).expect("in use");
            let address = second.addr().get();
            assert!(!heap.source().committed.contains(&(address & !4095)));
            assert_eq!(heap.free(second), Err(FreeBytesError::NotAllocated { address }));
        }
    }

    /// Each byte of a header or a tag is overwritten in turn: a checking tier
    /// refuses to work with it, or it was of no consequence.
    #[test]
    fn overwritten_headers_are_found_before_they_are_used() {
        for flip in [1_u8, 0x10, 0x80, 0xff] {
            for byte in 0..size_of::<usize>() {
                let mut memory = Memory::new(8192);
                let mut heap = pool::<Links>(&mut memory);
                let blocks = [0; 3].map(|_| heap.allocate(bytes(300)).expect("room"));
                let usable = unsafe_usable(&heap, blocks[0]);
                // SAFETY: a byte of the header behind the first block: in the
                // pool, and what an overrun would hit.
                unsafe {
                    let header = blocks[0].add(usable + byte);
                    header.write(header.read() ^ flip);
                    let refused = [heap.free(blocks[0]), heap.free(blocks[1])];
                    assert!(
                        refused
                            .iter()
                            .all(|refused| matches!(refused, Err(FreeBytesError::Corrupt(_)))),
                        "byte {byte} with {flip:#x}: {refused:?}"
                    );
                    assert!(heap.check().is_err());
                    header.write(header.read() ^ flip);
                }
                heap.check().expect("nothing else has changed");
                for at in blocks {
                    // SAFETY: in use.
                    unsafe { heap.free(at) }.expect("in use");
                }
            }
        }
    }

    fn unsafe_usable(heap: &impl ByteAllocator, at: NonNull<u8>) -> usize {
        // SAFETY: the callers pass blocks in use.
        unsafe { heap.usable_bytes(at) }.expect("in use")
    }

    /// A write after free hits the links; they are not followed.
    #[test]
    fn overwritten_links_are_not_followed() {
        for word in 0..2 {
            for value in [1, 0x10, 0xdead_0000, usize::MAX & !15] {
                let mut memory = Memory::new(8192);
                let mut heap = pool::<Links>(&mut memory);
                let [first, _, second, _] =
                    [0; 4].map(|_| heap.allocate(bytes(300)).expect("room"));
                // SAFETY: in use; then the links of what was freed, as a user
                // would that still has the pointer.
                unsafe {
                    heap.free(first).expect("in use");
                    heap.free(second).expect("in use");
                    let link = second.cast::<usize>().add(word);
                    let was = link.read();
                    link.write(value);
                    let refused = heap.allocate(bytes(300));
                    assert!(matches!(refused, Err(AllocateBytesError::Corrupt(_))), "{refused:?}");
                    assert!(heap.check().is_err());
                    link.write(was);
                }
                heap.check().expect("nothing else has changed");
                assert_eq!(heap.allocate(bytes(300)), Ok(second));
            }
        }
    }

    #[test]
    fn the_trusting_tier_works_without_any_of_it() {
        let mut memory = Memory::new(8192);
        let mut heap = pool::<Trusting>(&mut memory);
        let block = heap.allocate(bytes(100)).expect("room");
        // SAFETY: in use.
        unsafe { heap.free(block) }.expect("in use");
        heap.check().expect("intact");
    }

    /// A write that goes on beyond the bytes of a block that may be used is found when the block is
    /// freed, whatever follows it: a used block, a free one, the sentinel. A wrong seal passes with
    /// probability 2^−16, and never if one byte alone is changed.
    fn overflow<H: swath_heap::Hardening>(rounds: usize) {
        let (mut random, mut missed) = (Random::new(4), 0);
        for round in 0..rounds {
            let mut memory = Memory::new(8192);
            let mut heap = pool::<H>(&mut memory);
            let size = random.index(400);
            let block = heap.allocate(bytes(size)).expect("room");
            match round % 3 {
                0 => assert!(heap.allocate(bytes(random.index(300))).is_ok()),
                1 => {}
                _ => assert!(fill(&mut heap) > 0),
            }
            let usable = unsafe_usable(&heap, block);
            let (from, len) = (usable, if round % 2 == 0 { 1 } else { 1 + random.index(12) });
            let mut written = 0;
            // SAFETY: from the block's end on, within the pool: what an overrun hits; then frees of
            // blocks in use.
            unsafe {
                for index in from..from + len {
                    let (byte, new) = (block.add(index), random.word() as u8);
                    written += usize::from(byte.read() != new);
                    byte.write(new);
                }
                let freed = heap.free(block);
                let word = block.addr().get() + usable;
                match freed {
                    Err(FreeBytesError::Corrupt(fault)) => {
                        assert_eq!(fault.word_address(), word, "round {round}: {fault}");
                        assert_eq!(heap.free(block), freed, "and nothing has changed");
                    }
                    Ok(()) if written > 1 => missed += 1,
                    freed => assert_eq!((freed, written), (Ok(()), 0), "round {round}"),
                }
            }
        }
        println!("{missed} of {rounds} passed");
        assert!(missed <= 1 + rounds / 10_000);
    }

    #[test]
    fn a_write_beyond_a_block_is_found_at_its_free() {
        let rounds = if cfg!(miri) { 30 } else { 3000 };
        overflow::<Headers>(rounds);
        overflow::<Links>(rounds);
    }
}
