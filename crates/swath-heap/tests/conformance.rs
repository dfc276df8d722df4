//! The suite on both policies, all tiers, with and without a source of pages.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::support::{Account, Memory};
use swath_heap::conformance::{Oracle, Plan, conform};
use swath_heap::{
    Bins, Fit, GRANULE_BYTES, HEADER_BYTES, Hardening, Headers, Heap, Links, MIN_BLOCK_BYTES,
    PageSource, PowersOfTwo, Resident, Trusting, TwoLevel,
};

/// The heap's blocks against the users': each user's bytes lie in one used
/// block and each used block is one user's; free blocks are coalesced.
fn compare<F: Fit, S: PageSource, H: Hardening>(
    heap: &Heap<'_, F, S, H>,
    used: &Oracle,
    place: &dyn Display,
) {
    heap.check().unwrap_or_else(|fault| panic!("{place}: {fault}"));
    let mut blocks = BTreeMap::new();
    let mut before_free = None;
    heap.walk(&mut |block| {
        let end = block.address + block.len_bytes;
        if block.free {
            assert_ne!(before_free, Some(block.address), "{place}: {block:?} is not coalesced");
            before_free = Some(end);
        } else {
            blocks.insert(block.address + GRANULE_BYTES, block.len_bytes - HEADER_BYTES);
        }
    })
    .expect("checked above");
    assert_eq!(blocks.len(), used.len(), "{place}");
    for (at, user) in used {
        let len = blocks.get(at).unwrap_or_else(|| panic!("{place}: {user:?} has no block"));
        assert!(*len >= user.layout.size(), "{place}: {user:?} has {len} bytes");
    }
}

fn plans(scale: usize) -> impl Iterator<Item = Plan> {
    (1..=4).flat_map(move |seed| {
        [
            Plan { seed, steps: 3000, size_bytes_max: scale / 64, align_log2_max: 0, blocks: 60 },
            Plan { seed, steps: 3000, size_bytes_max: scale / 2, align_log2_max: 12, blocks: 20 },
            Plan { seed, steps: 3000, size_bytes_max: scale / 8, align_log2_max: 6, blocks: 40 },
        ]
    })
}

fn resident<F: Fit, H: Hardening>() {
    let bytes = 64 << 10;
    for plan in plans(bytes) {
        println!("{plan:?}");
        let mut memory = [Memory::new(bytes), Memory::new(bytes / 4)];
        let [first, second] = &mut memory;
        let mut heap = Heap::<F, Resident, H>::new();
        let one = heap.add_pool(first.bytes(bytes)).expect("a pool");
        let ever = heap.largest_ever_bytes();
        let two = heap.add_pool(&mut second.bytes(bytes / 4)[3..]).expect("a pool");
        let done = conform(&mut heap, plan, &mut |heap, used, place| compare(heap, used, place));
        println!("{done:?}");
        assert!(done.allocated > 500 && done.stayed > 20 && done.moved > 20, "{done:?}");
        assert_eq!(heap.largest_ever_bytes(), ever);
        for pool in [one, two] {
            heap.remove_pool(pool).expect("nothing is allocated");
        }
        assert_eq!(heap.largest_ever_bytes(), None);
    }
}

fn paged<F: Fit, H: Hardening>(page_bytes: usize) {
    let bytes = 64 << 10;
    for (index, plan) in plans(bytes).enumerate() {
        // Every other time the source runs out.
        let pages_max = bytes / page_bytes / (1 + index % 2);
        println!("{plan:?}, {pages_max} pages");
        let mut memory = Memory::new(bytes);
        let mut heap = Heap::<F, _, H>::over(Account::new(page_bytes, pages_max), 12345);
        // SAFETY: the memory outlives the heap.
        let pool = unsafe { heap.add_pool_at(memory.start(), bytes) }.expect("a pool");
        let mut calls = 0;
        let done = conform(&mut heap, plan, &mut |heap, used, place| {
            compare(heap, used, place);
            // Exactly the pages with a user's byte, a tag or links are there.
            let mut wanted = heap.source().committed.clone();
            let start = pool.address();
            wanted.clear();
            let mut want = |from: usize, to: usize| {
                let first = from & !(page_bytes - 1);
                wanted.extend((first..to).step_by(page_bytes));
            };
            want(start, start + GRANULE_BYTES);
            want(start + bytes - GRANULE_BYTES, start + bytes);
            heap.walk(&mut |block| {
                let len = if block.free { MIN_BLOCK_BYTES } else { block.len_bytes };
                want(block.address, block.address + len);
            })
            .expect("checked");
            assert_eq!(wanted, heap.source().committed, "{place}");
            let now = heap.source().calls;
            assert!(now - calls <= 4, "{place}: {} calls", now - calls);
            calls = now;
        });
        println!("{done:?}");
        assert!(done.allocated > 300, "{done:?}");
        heap.remove_pool(pool).expect("nothing is allocated");
        assert!(heap.source().committed.is_empty());
    }
}

#[test]
fn two_level_trusting() {
    resident::<TwoLevel, Trusting>();
}

#[test]
fn two_level_headers() {
    resident::<TwoLevel, Headers>();
}

#[test]
fn two_level_links() {
    resident::<TwoLevel, Links>();
}

#[test]
fn half_fit_trusting() {
    resident::<PowersOfTwo, Trusting>();
}

#[test]
fn half_fit_links() {
    resident::<PowersOfTwo, Links>();
}

#[test]
fn other_divisions_too() {
    resident::<Bins<3, 256, { 256 / usize::BITS as usize }>, Headers>();
}

#[test]
fn two_level_over_pages() {
    paged::<TwoLevel, Trusting>(256);
    paged::<TwoLevel, Links>(4096);
    paged::<TwoLevel, Headers>(64);
}

#[test]
fn half_fit_over_pages() {
    paged::<PowersOfTwo, Headers>(1024);
}
