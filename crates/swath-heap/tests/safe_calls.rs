//! Every public safe function that reaches a raw pointer, called as badly as safe code can.
//!
//! | function | hostile case |
//! |---|---|
//! | `Heap::add_pool` | slices of every short length and offset |
//! | `Heap::remove_pool` | another heap's pool, one that is gone, one in use |
//! | `Heap::{check, walk, largest_bytes, largest_ever_bytes, largest_free_block_bytes}`, `Debug` | no pool; every flip of `flips.rs` |
//! | `Heap::into_source`, `Heap::source` | blocks are still in use |
//! | `Heap::source_mut`, `LockedHeap::lock_mut` | unsafe: see their documentation's examples that do not compile |
//! | `ByteAllocator::{allocate, largest_bytes}` | every extreme layout, by both policies |
//! | `LockedHeap::{add_pool, lock, last_refused}` | as of the heap; blocks in use meanwhile |
//! | `Bins` (of `Fit`) | holds no block outside a heap: `find` and `head` of an empty one |

use std::alloc::Layout;
use std::mem::MaybeUninit;

use crate::support::{Account, Memory};
use swath_heap::{
    ByteAllocator, Fit, Hardening, Headers, Heap, HeapPoolError, Links, PowersOfTwo, Resident,
    Tlsf, Trusting, TwoLevel,
};

fn pools<F: Fit, H: Hardening>() {
    for offset in 0..if cfg!(miri) { 2 } else { 20 } {
        for len in (0..200).step_by(7) {
            let mut memory = Memory::new(4096);
            let mut other = Memory::new(4096);
            let mut heap = Heap::<F, Resident, H>::new();
            let mut elsewhere = Heap::<F, Resident, H>::new();
            assert_eq!((heap.largest_bytes(), heap.largest_ever_bytes()), (None, None));
            assert_eq!(heap.largest_free_block_bytes(), Ok(None));
            assert_eq!(heap.check(), Ok(()));
            let foreign = elsewhere.add_pool(other.bytes(4096)).expect("long enough");
            let unknown = HeapPoolError::Unknown { address: foreign.address() };
            assert_eq!(heap.remove_pool(foreign), Err(unknown));
            let Ok(pool) = heap.add_pool(&mut memory.bytes(4096)[offset..][..len]) else {
                continue;
            };
            assert_eq!(heap.check(), Ok(()));
            assert_eq!(heap.remove_pool(foreign), Err(unknown));
            let block = heap.allocate(Layout::new::<u8>()).expect("there is one block at least");
            assert!(matches!(heap.remove_pool(pool), Err(HeapPoolError::InUse { .. })));
            assert!(elsewhere.remove_pool(pool).is_err());
            // SAFETY: in use, and not after.
            unsafe { heap.free(block) }.expect("in use");
            assert!(heap.remove_pool(pool).is_ok());
            assert!(heap.remove_pool(pool).is_err());
            assert_eq!(heap.check(), Ok(()));
            assert!(format!("{heap:?}").contains("0 pools"));
        }
    }
}

#[test]
fn pools_of_any_slice_and_name() {
    pools::<TwoLevel, Trusting>();
    pools::<TwoLevel, Links>();
    pools::<PowersOfTwo, Headers>();
}

fn layouts<F: Fit, H: Hardening>() {
    let mut memory = Memory::new(1 << 14);
    let mut heap = Heap::<F, Resident, H>::new();
    heap.add_pool(memory.bytes(1 << 14)).expect("long enough");
    let step = if cfg!(miri) { 9 } else { 1 };
    let shifts = || (0..63).step_by(step);
    for size in shifts().flat_map(|shift| [(1_usize << shift) - 1, 1 << shift, (1 << shift) + 1]) {
        for align in shifts().map(|shift| 1 << shift) {
            let Ok(layout) = Layout::from_size_align(size, align) else { continue };
            if let Ok(block) = heap.allocate(layout) {
                assert!(size < 1 << 14 && block.addr().get().is_multiple_of(align));
                // SAFETY: in use, and not after.
                unsafe { heap.free(block) }.expect("in use");
            }
            let _ = Heap::<F>::block_bytes(size);
        }
    }
    assert_eq!(heap.check(), Ok(()));
    assert_eq!(heap.largest_bytes(), heap.largest_ever_bytes());
}

#[test]
fn every_extreme_layout() {
    layouts::<TwoLevel, Trusting>();
    layouts::<TwoLevel, Links>();
    layouts::<PowersOfTwo, Trusting>();
    layouts::<PowersOfTwo, Links>();
}

#[test]
fn a_source_outlives_its_heap() {
    let mut memory = Memory::new(1 << 14);
    let mut heap: Tlsf<'_, _> = Tlsf::over(Account::new(1024, 16), 1);
    // SAFETY: the memory outlives the heap.
    unsafe { heap.add_pool_at(memory.start(), 1 << 14) }.expect("a pool");
    let block = heap.allocate(Layout::new::<[u8; 3000]>()).expect("room");
    assert!(heap.source().committed.len() > 2);
    let source = heap.into_source();
    // SAFETY: its pages are committed as long as nobody releases them.
    unsafe { block.write_bytes(1, 3000) };
    assert!(source.committed.len() > 2);
}

/// A heap that moves takes its lists with it.
#[test]
fn a_heap_that_moves_is_the_same() {
    let mut memory = [MaybeUninit::uninit(); 4096];
    let mut heaps: Vec<Tlsf<'_, Resident, Links>> = vec![Tlsf::new()];
    heaps[0].add_pool(&mut memory).expect("long enough");
    let block = heaps[0].allocate(Layout::new::<[u8; 99]>()).expect("room");
    heaps.insert(0, Tlsf::new());
    heaps.reserve(100);
    // SAFETY: in use, and not after a success.
    unsafe {
        assert!(heaps[0].free(block).is_err());
        assert_eq!(heaps[1].free(block), Ok(()));
    }
    assert_eq!(heaps[1].check(), Ok(()));
}

#[test]
fn an_empty_fit_has_no_block_for_anyone() {
    fn empty<F: Fit>() {
        let fit = F::EMPTY;
        for class in 0..F::CLASSES {
            assert!(fit.find(class).is_none() && fit.head(class).is_none() && !fit.has(class));
        }
        assert!(fit.highest().is_none() && fit.wrong_summary().is_none());
    }
    empty::<TwoLevel>();
    empty::<PowersOfTwo>();
}
