//! TLSF and half-fit against a naive model, call by call: the same address or
//! the same refusal.
//!
//! The model keeps free and used extents in ordered maps and each class as a
//! stack; it finds classes by trying, and no bits.

use std::alloc::Layout;
use std::collections::BTreeMap;

use crate::support::Memory;
use swath_arch::testing::Random;
use swath_heap::conformance::size;
use swath_heap::{
    AllocateBytesError, ByteAllocator, Fit, GRANULE_BYTES, HEADER_BYTES, Headers, Heap,
    MIN_BLOCK_BYTES, POOL_OVERHEAD_BYTES, PowersOfTwo, Resident, TwoLevel,
};

struct Model {
    /// log2 of the classes in a power of two.
    division: u32,
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
    /// Least size of a class to its free blocks, the last of which goes first.
    classes: BTreeMap<usize, Vec<usize>>,
}

impl Model {
    fn new(division: u32, start: usize, len: usize) -> Self {
        let mut model = Self {
            division,
            free: BTreeMap::new(),
            used: BTreeMap::new(),
            classes: BTreeMap::new(),
        };
        model.insert(start, len);
        model
    }

    /// The least size of the class of `len`.
    fn least(&self, len: usize) -> usize {
        let granules = len / GRANULE_BYTES;
        let mut step = 1;
        while granules / step >= 2 << self.division {
            step *= 2;
        }
        granules / step * step * GRANULE_BYTES
    }

    fn need(&self, size: usize) -> usize {
        let mut len = (size + HEADER_BYTES).next_multiple_of(GRANULE_BYTES).max(MIN_BLOCK_BYTES);
        while self.least(len) != len {
            len += GRANULE_BYTES;
        }
        len
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.free.insert(start, len);
        self.classes.entry(self.least(len)).or_default().push(start);
    }

    fn remove(&mut self, start: usize) -> usize {
        let len = self.free.remove(&start).expect("it is free");
        let least = self.least(len);
        let class = self.classes.get_mut(&least).expect("it is in its class");
        class.retain(|&other| other != start);
        if class.is_empty() {
            self.classes.remove(&least);
        }
        len
    }

    fn allocate(&mut self, size: usize) -> Option<usize> {
        let need = self.need(size);
        let start = *self.classes.range(need..).next()?.1.last()?;
        let len = self.remove(start);
        let taken = if len - need >= MIN_BLOCK_BYTES { need } else { len };
        if len > taken {
            self.insert(start + taken, len - taken);
        }
        self.used.insert(start, taken);
        Some(start)
    }

    fn free(&mut self, start: usize) {
        let mut len = self.used.remove(&start).expect("it is used");
        let mut from = start;
        if self.free.contains_key(&(start + len)) {
            len += self.remove(start + len);
        }
        let before = self.free.range(..start).next_back().map(|(&at, &len)| (at, len));
        if let Some((at, before_len)) = before
            && at + before_len == start
        {
            self.remove(at);
            len += before_len;
            from = at;
        }
        self.insert(from, len);
    }
}

/// The heap and the model over the same memory.
struct Both<'p, F: Fit> {
    heap: Heap<'p, F, Resident, Headers>,
    model: Model,
}

impl<'p, F: Fit> Both<'p, F> {
    fn new(division: u32, memory: &'p mut Memory, len: usize) -> Self {
        let mut heap = Heap::new();
        let pool = heap.add_pool(memory.bytes(len)).expect("long enough");
        let model = Model::new(division, pool.address() + GRANULE_BYTES, len - POOL_OVERHEAD_BYTES);
        Self { heap, model }
    }

    fn allocate(&mut self, size: usize) -> Result<(), String> {
        let layout = Layout::from_size_align(size, 1).expect("small");
        let largest = self.heap.largest_bytes();
        let ours = self.heap.allocate(layout);
        match (ours, self.model.allocate(size)) {
            (Ok(at), Some(start)) if at.addr().get() == start + GRANULE_BYTES => {
                // SAFETY: `size` bytes of the test's.
                unsafe { at.write_bytes(0x5a, size) };
                Ok(())
            }
            (Err(AllocateBytesError::OutOfMemory { .. }), None) => {
                let more = largest.is_some_and(|largest| largest >= size);
                if more { Err(format!("{size} refused with {largest:?}")) } else { Ok(()) }
            }
            (ours, theirs) => Err(format!("{size}: {ours:?} but {theirs:x?}")),
        }
    }

    fn free(&mut self, index: usize) -> Result<(), String> {
        let (&start, _) = self.model.used.iter().nth(index).expect("counted");
        self.model.free(start);
        let at = self.pointer(start);
        // SAFETY: the block is used, and not after.
        unsafe { self.heap.free(at) }.map_err(|error| error.to_string())
    }

    /// The pointer that the heap gave for the block at `start`.
    fn pointer(&self, start: usize) -> std::ptr::NonNull<u8> {
        std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(start + GRANULE_BYTES))
            .expect("not 0")
    }

    /// Block by block the same.
    fn compare(&self) -> Result<(), String> {
        self.heap.check().map_err(|fault| fault.to_string())?;
        let (mut free, mut used) = (BTreeMap::new(), BTreeMap::new());
        self.heap
            .walk(&mut |block| {
                let map = if block.free { &mut free } else { &mut used };
                map.insert(block.address, block.len_bytes);
            })
            .map_err(|fault| fault.to_string())?;
        let largest = free.values().max().map(|len| len - HEADER_BYTES);
        if (free, used) != (self.model.free.clone(), self.model.used.clone()) {
            return Err("the blocks differ".into());
        }
        if self.heap.largest_free_block_bytes() != Ok(largest) {
            return Err(format!("the largest is {largest:?}"));
        }
        Ok(())
    }
}

fn random<F: Fit>(division: u32) {
    for seed in 1..=6 {
        let len = 1 << (10 + seed);
        let mut memory = Memory::new(len);
        memory.start().as_ptr().expose_provenance();
        let mut both = Both::<F>::new(division, &mut memory, len);
        let mut random = Random::new(seed);
        let (mut refused, mut steps) = (0, 0);
        for step in 0..4000 {
            let used = both.model.used.len();
            let outcome = if used > 0 && random.below(100) < 45 {
                both.free(random.index(used))
            } else {
                let before = both.model.used.len();
                let outcome = both.allocate(size(&mut random, len / 4));
                refused += usize::from(both.model.used.len() == before);
                outcome
            };
            outcome
                .and_then(|()| both.compare())
                .unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"));
            steps += 1;
        }
        println!("seed {seed}: {steps} steps, {refused} refused");
        assert!(refused > 50, "the pool of seed {seed} was never full");
    }
}

#[test]
fn two_level_is_the_model() {
    random::<TwoLevel>(5);
}

#[test]
fn half_fit_is_the_model() {
    random::<PowersOfTwo>(0);
}

/// All sequences of `depth` calls on a pool of `len` bytes: each of `sizes`
/// allocated, each used block freed.
fn exhaust<F: Fit>(division: u32, len: usize, sizes: &[usize], depth: usize) -> usize {
    let mut memory = Memory::new(len);
    memory.start().as_ptr().expose_provenance();
    let mut sequences = 0;
    let mut calls: Vec<usize> = Vec::new();
    loop {
        let mut both = Both::<F>::new(division, &mut memory, len);
        let mut widths = Vec::new();
        while widths.len() < depth {
            let at = widths.len();
            if calls.len() == at {
                calls.push(0);
            }
            let call = calls[at];
            widths.push(sizes.len() + both.model.used.len());
            match sizes.get(call) {
                Some(&size) => both.allocate(size),
                None => both.free(call - sizes.len()),
            }
            .and_then(|()| both.compare())
            .unwrap_or_else(|what| panic!("{len} bytes, calls {:?}: {what}", &calls[..=at]));
        }
        sequences += 1;
        // The next sequence in order.
        loop {
            let Some(last) = calls.pop() else { return sequences };
            if last + 1 < widths[calls.len()] {
                calls.push(last + 1);
                break;
            }
        }
    }
}

#[test]
fn all_short_histories_of_small_pools() {
    let mut sequences = 0;
    for granules in 4..=13 {
        let len = granules * GRANULE_BYTES;
        let sizes = [0, 3 * GRANULE_BYTES - HEADER_BYTES, 5 * GRANULE_BYTES - HEADER_BYTES];
        sequences += exhaust::<TwoLevel>(5, len, &sizes, 6);
        sequences += exhaust::<PowersOfTwo>(0, len, &sizes, 6);
    }
    println!("{sequences} histories");
    assert!(sequences > 20 * 3_usize.pow(6));
}
