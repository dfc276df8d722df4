//! The adapter against a map of pages, at the borders, and beside the allocator that the crate brings.

use axallocator::{AllocError, BaseAllocator, BitmapPageAllocator, PageAllocator};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use swath_example_arceos::{ALIGN_MAX, ContiguousPages, PIECES_MAX, storage_words};
use swath_frame::segment::Area;

const PAGE: usize = 4096;

/// An allocator for memory within `pages` pages.
fn pages(pages: u64) -> ContiguousPages<'static, PAGE> {
    let words = vec![0; storage_words(pages).unwrap()].leak();
    let area = Box::leak(Box::new([Area::default()]));
    ContiguousPages::new(pages, area, words).unwrap()
}

#[test]
fn one_page() {
    let mut pages = pages(2);
    pages.init(PAGE, PAGE);
    for _ in 0..2 {
        assert_eq!((pages.total_pages(), pages.used_pages(), pages.available_pages()), (1, 0, 1));
        assert_eq!(pages.alloc_pages(1, PAGE).unwrap(), PAGE);
        assert!(matches!(pages.alloc_pages(1, PAGE), Err(AllocError::NoMemory)));
        assert_eq!((pages.used_pages(), pages.available_pages()), (1, 0));
        pages.dealloc_pages(PAGE, 1);
    }
}

#[test]
fn runs_of_two_gib_at_any_alignment() {
    let base = ALIGN_MAX + PAGE;
    let mut pages = pages(3 << 18);
    pages.init(base, 2 << 30);
    for (count, align) in [
        (1, PAGE),
        (10, PAGE),
        (1000, PAGE),
        (1, 2 << 20),
        (10, 1 << 30),
        (100, 1 << 30),
        (3, 1 << 16),
    ] {
        let at = pages.alloc_pages(count, align).unwrap();
        assert_eq!(at, base.next_multiple_of(align));
        assert_eq!(pages.used_pages(), count);
        // Parts come back by themselves.
        pages.dealloc_pages(at + (count - 1) * PAGE, 1);
        pages.dealloc_pages(at, count - 1);
        assert_eq!((pages.used_pages(), pages.longest_pages()), (0, 2 << 18));
    }
    assert_eq!(pages.alloc_pages_at(base + 5 * PAGE, 7, PAGE).unwrap(), base + 5 * PAGE);
    assert!(matches!(pages.alloc_pages_at(base + 11 * PAGE, 2, PAGE), Err(AllocError::NoMemory)));
    assert_eq!(pages.alloc_pages(6, PAGE).unwrap(), base + 12 * PAGE);
    assert_eq!(pages.alloc_pages(5, PAGE).unwrap(), base);
}

#[test]
fn wrong_arguments_change_nothing() {
    let mut pages = pages(1 << 18);
    assert!(matches!(pages.alloc_pages(1, PAGE), Err(AllocError::NoMemory)));
    for (start, size) in
        [(0, 0), (PAGE + 1, PAGE), (usize::MAX - PAGE, 2 * PAGE), (0, (1 << 30) + PAGE)]
    {
        assert!(
            matches!(pages.add_memory(start, size), Err(AllocError::InvalidParam)),
            "{start:#x}"
        );
    }
    pages.add_memory(100 * PAGE - 1, 10 * PAGE + 1).unwrap();
    assert_eq!(pages.total_pages(), 10);
    for (start, count) in [(99, 2), (109, 2), (103, 1), (90, 30), (100, 10)] {
        let added = pages.add_memory(start * PAGE, count * PAGE);
        assert!(matches!(added, Err(AllocError::MemoryOverlap)), "{start}");
    }
    for (count, align) in [(0, PAGE), (1, 0), (1, 3 * PAGE), (1, PAGE / 2), (1, 2 << 30)] {
        assert!(matches!(pages.alloc_pages(count, align), Err(AllocError::InvalidParam)));
    }
    for (at, count, align) in
        [(0, 0, PAGE), (PAGE / 2, 1, PAGE), (PAGE, 1, 2 * PAGE), (1 << 30, 1, PAGE)]
    {
        assert!(matches!(pages.alloc_pages_at(at, count, align), Err(AllocError::InvalidParam)));
    }
    // Not there, not handed out, partly so, and numbers that overflow.
    assert_eq!(pages.alloc_pages(4, PAGE).unwrap(), 100 * PAGE);
    for (at, count) in
        [(0, 1), (99, 2), (104, 1), (103, 2), (108, 5), (100, 0), (1 << 40, 1), (1, usize::MAX)]
    {
        pages.dealloc_pages(at * PAGE, count);
        pages.dealloc_pages((at * PAGE).wrapping_add(8), count);
        assert_eq!(pages.used_pages(), 4);
    }
}

#[test]
fn memory_comes_late_and_in_any_order() {
    let mut random = Pcg64Mcg::seed_from_u64(20261125);
    for round in 0..40 {
        // Pieces of which some touch, others never come.
        let ends: Vec<usize> = (0..40)
            .scan(0, |at, _| {
                *at += random.random_range(1..60);
                Some(*at)
            })
            .collect();
        let mut pieces: Vec<_> = ends.windows(2).map(|two| (two[0], two[1] - two[0])).collect();
        pieces.shuffle(&mut random);
        pieces.truncate(30);
        let mut there = vec![false; 3000];
        let mut pages = pages(1 << 18);
        for &(start, count) in &pieces {
            pages.add_memory(start * PAGE, count * PAGE).unwrap();
            there[start..start + count].fill(true);
            let longest = there.split(|&there| !there).map(<[bool]>::len).max().unwrap();
            assert_eq!(pages.longest_pages(), longest, "round {round}");
        }
        assert_eq!(pages.total_pages(), there.iter().filter(|&&there| there).count());
    }
    let mut pages = pages(1 << 18);
    for piece in 0..PIECES_MAX {
        pages.add_memory(2 * piece * PAGE, PAGE).unwrap();
    }
    assert!(matches!(pages.add_memory(1000 * PAGE, PAGE), Err(AllocError::NoMemory)));
    // One that joins two makes room.
    pages.add_memory(PAGE, PAGE).unwrap();
    pages.add_memory(1000 * PAGE, PAGE).unwrap();
    assert_eq!(pages.available_pages(), PIECES_MAX + 2);
}

/// Both against a map, by one load: what one is given the other may be refused, but neither gives a page twice.
#[test]
fn no_page_is_handed_out_twice() {
    const PAGES: usize = 5000;
    // The crate's own does not align single pages.
    fn run(allocator: &mut impl PageAllocator, aligns: bool, seed: u64) -> usize {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        allocator.init(ALIGN_MAX + PAGE, PAGES * PAGE);
        let first = |at: usize| (at - ALIGN_MAX) / PAGE;
        let (mut used, mut held) = (vec![false; PAGES + 1], Vec::new());
        let mut refused = 0;
        for _ in 0..20_000 {
            if random.random_bool(0.5) && !held.is_empty() {
                let (at, count): (usize, usize) =
                    held.swap_remove(random.random_range(0..held.len()));
                allocator.dealloc_pages(at, count);
                used[first(at)..first(at) + count].fill(false);
            } else {
                let count = 1 << random.random_range(0..8);
                let count = count + random.random_range(0..count);
                let align = PAGE << random.random_range(0..5);
                match allocator.alloc_pages(count, align) {
                    Ok(at) => {
                        assert!(at.is_multiple_of(align) || !aligns && count == 1);
                        let taken = &mut used[first(at)..first(at) + count];
                        assert!(taken.iter().all(|&used| !used), "seed {seed}: {at:#x}");
                        taken.fill(true);
                        held.push((at, count));
                    }
                    Err(AllocError::NoMemory) => refused += 1,
                    Err(error) => panic!("seed {seed}: {error:?}"),
                }
            }
            let sum = used.iter().filter(|&&used| used).count();
            assert_eq!((allocator.used_pages(), allocator.total_pages()), (sum, PAGES));
        }
        refused
    }
    for seed in 1..4 {
        let ours = run(&mut pages(3 << 18), true, seed);
        let theirs = run(&mut *Box::new(BitmapPageAllocator::<PAGE>::new()), false, seed);
        println!("seed {seed}: refused {ours}, by the crate's {theirs}");
        assert!(ours > 0);
    }
}
