//! The pool that a set of sizes needs, and what half-fit's rounding costs.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::support::Memory;
use swath_arch::testing::Random;
use swath_heap::{
    ByteAllocator, Demand, Fit, GRANULE_BYTES, HalfFit, Heap, POOL_OVERHEAD_BYTES, PowersOfTwo,
    Resident, Tlsf, Trusting, TwoLevel, pool_bytes,
};

fn demand(size: usize, align: usize, count: usize) -> Demand {
    Demand { layout: Layout::from_size_align(size, align).expect("a layout"), count }
}

fn release<F: Fit>(heap: &mut Heap<'_, F>, at: NonNull<u8>) {
    // SAFETY: the callers keep what is in use.
    unsafe { heap.free(at) }.expect("in use");
}

/// A pool of exactly the stated length serves everything that the demands
/// allow: random histories, and those that leave holes of one demand just
/// before another is made.
fn never_fails<F: Fit>(demands: &[Demand], seed: u64) {
    let len = pool_bytes::<F>(demands).expect("small");
    let mut memory = Memory::new(len);
    let mut heap = Heap::<F>::new();
    heap.add_pool(memory.bytes(len)).expect("a pool");
    let mut random = Random::new(seed);
    let mut used: Vec<Vec<NonNull<u8>>> = demands.iter().map(|_| Vec::new()).collect();
    let get = |heap: &mut Heap<'_, F>, demand: Demand| {
        heap.allocate(demand.layout).unwrap_or_else(|error| panic!("{demands:?}, {seed}: {error}"))
    };
    for _ in 0..60 {
        // Up to the limit in one order, then holes: every other or every third
        // goes, or a random half.
        let shift = random.index(demands.len());
        for index in 0..demands.len() {
            let index = (index + shift) % demands.len();
            while used[index].len() < demands[index].count {
                let at = get(&mut heap, demands[index]);
                used[index].push(at);
            }
        }
        let step = 1 + random.below(4);
        for blocks in &mut used {
            blocks.sort();
            let mut count = 0;
            for at in blocks
                .extract_if(.., |_| {
                    count += 1;
                    if step == 1 { random.below(2) == 0 } else { count % step != 0 }
                })
                .collect::<Vec<_>>()
            {
                release(&mut heap, at);
            }
        }
    }
    for _ in 0..3000 {
        let index = random.index(demands.len());
        if used[index].len() < demands[index].count && random.below(5) > 1 {
            let at = get(&mut heap, demands[index]);
            used[index].push(at);
        } else if !used[index].is_empty() {
            let at = random.index(used[index].len());
            let at = used[index].swap_remove(at);
            release(&mut heap, at);
        }
    }
    heap.check().expect("intact");
}

#[test]
fn a_pool_of_the_stated_length_never_fails() {
    let sets = [
        vec![demand(100, 1, 50)],
        vec![demand(24, 1, 40), demand(40, 1, 40)],
        vec![demand(1, 1, 100), demand(5000, 1, 3), demand(300, 1, 20)],
        vec![demand(56, 1, 30), demand(120, 1, 30), demand(248, 1, 30), demand(504, 1, 5)],
        vec![demand(100, 64, 20), demand(20_001, 1, 4), demand(10, 4096, 3)],
    ];
    for demands in sets {
        for seed in 1..=5 {
            never_fails::<TwoLevel>(&demands, seed);
            never_fails::<PowersOfTwo>(&demands, seed);
        }
    }
}

#[test]
fn one_size_needs_no_more_than_its_blocks() {
    let block = Tlsf::<Resident>::block_bytes(100).expect("small");
    let bytes = pool_bytes::<TwoLevel>(&[demand(100, 1, 1000)]).expect("small");
    assert_eq!(bytes, 1000 * block + GRANULE_BYTES + POOL_OVERHEAD_BYTES);
    // Two granules less than it says, and the last request fails.
    let mut memory = Memory::new(bytes);
    for (len, served) in [(bytes, 1000), (bytes - 2 * GRANULE_BYTES, 999)] {
        let mut heap: Tlsf = Tlsf::new();
        heap.add_pool(memory.bytes(len)).expect("a pool");
        let layout = Layout::from_size_align(100, 1).expect("a layout");
        assert_eq!((0..2000).take_while(|_| heap.allocate(layout).is_ok()).count(), served);
    }
}

#[test]
fn impossible_demands_have_no_pool() {
    assert_eq!(pool_bytes::<TwoLevel>(&[demand(1 << 50, 1, 1)]), None);
    assert_eq!(pool_bytes::<TwoLevel>(&[demand(1 << 30, 1, 1 << 40)]), None);
    assert!(pool_bytes::<TwoLevel>(&[]).is_some());
    assert_eq!(pool_bytes::<TwoLevel>(&[demand(1, 1, 0)]), pool_bytes::<TwoLevel>(&[]));
}

/// Bytes asked for, bytes in blocks, and the shortest pool in which the trace
/// of the benchmarks (8,192 slots toggled at random, 16 to 65,536 bytes with
/// every power of two as likely) has no failure, all at a fourth of its slots.
fn price<F: Fit>() -> (usize, usize, usize) {
    let toggles = |heap: &mut Heap<'_, F, Resident, Trusting>| {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut slots: Vec<Option<(NonNull<u8>, usize)>> = vec![None; 2048];
        let (mut asked, mut taken, mut most) = (0, 0, (0, 0));
        for _ in 0..40_000 {
            let slot = &mut slots[(random.word() >> 53) as usize];
            if let Some((at, size)) = slot.take() {
                // SAFETY: in use, and not after.
                unsafe { heap.free(at) }.expect("in use");
                asked -= size;
                taken -= Heap::<F>::block_bytes(size).expect("small");
            } else {
                let u = (random.word() >> 11) as f64 / (1_u64 << 53) as f64;
                let size = (16.0 * (12.0 * u).exp2()) as usize;
                let layout = Layout::from_size_align(size, GRANULE_BYTES).expect("a layout");
                *slot = Some((heap.allocate(layout).ok()?, size));
                asked += size;
                taken += Heap::<F>::block_bytes(size).expect("small");
                most = most.max((asked, taken));
            }
        }
        Some(most)
    };
    let mut memory = Memory::new(32 << 20);
    let mut run = |len: usize| {
        let mut heap = Heap::<F, Resident, Trusting>::new();
        heap.add_pool(memory.bytes(len)).expect("a pool");
        toggles(&mut heap)
    };
    let (mut fails, mut serves) = (1 << 20, 32 << 20);
    let (asked, taken) = run(serves).expect("32 MiB are plenty");
    while serves - fails > 64 << 10 {
        let middle = (fails + serves) / 2;
        *(if run(middle).is_some() { &mut serves } else { &mut fails }) = middle;
    }
    (asked, taken, serves)
}

/// Half-fit's price: rounding to powers of two takes about 1.4 times the bytes
/// where TLSF takes 1.02, and the pool has to grow as much.
#[test]
fn half_fit_pays_for_its_bound_with_memory() {
    let (asked, tlsf, tlsf_pool) = price::<TwoLevel>();
    let (same, half, half_pool) = price::<PowersOfTwo>();
    assert_eq!(asked, same, "the same trace");
    let ratio = |bytes: usize| bytes as f64 / asked as f64;
    println!("blocks by bytes asked for: TLSF {:.3}, half-fit {:.3}", ratio(tlsf), ratio(half));
    println!("pool: TLSF {:.3}, half-fit {:.3}", ratio(tlsf_pool), ratio(half_pool));
    assert!(ratio(tlsf) < 1.0 + 1.0 / 32.0, "rounding loses at most 1/32");
    assert!(ratio(half) > 1.2 && ratio(half) < 2.1, "and at most half of a block");
    assert!(ratio(tlsf_pool) < 1.2, "{}", ratio(tlsf_pool));
    assert!(half_pool > tlsf_pool + tlsf_pool / 5);
    let block = HalfFit::<Resident>::block_bytes(20_001).expect("small");
    assert_eq!(block, 32 << 10);
}
