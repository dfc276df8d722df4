//! Single-bit flips in every kind of word that a heap relies on.
//!
//! A heap of two pools is aged by random calls; then one bit of one word is flipped, and three
//! things are asked: does `check` find it and name the word; do further random calls end in a
//! signal, a panic, or a byte with two owners; is a call refused with the corruption by name. Each
//! case runs in a forked child, so that a signal is a count.
//!
//! The quick form runs with the suite. The long one, 10,000 flips for each kind of word and tier:
//!
//! ```text
//! SWATH_FLIPS=10000 cargo test --release -p swath-heap --test suite flips -- --nocapture
//! ```
#![cfg(all(target_os = "linux", not(miri)))]

use std::alloc::Layout;
use std::fmt::Debug;
use std::ptr::NonNull;

use crate::support::Memory;
use crate::support::forked::{End, run};
use swath_arch::testing::Random;
use swath_heap::conformance::size;
use swath_heap::{
    AllocateBytesError, ByteAllocator, Fit, FreeBytesError, GRANULE_BYTES, Hardening, Headers,
    Heap, HeapFault, HeapFaultKind, Links, PageSource, PoolId, PowersOfTwo, Resident,
    ResizeBytesError, SourceError, Trusting, TwoLevel,
};

const WORD_BYTES: usize = size_of::<usize>();
const PAGE_BYTES: usize = 1024;
/// Bytes of the two pools.
const POOLS: [usize; 2] = [12 << 10, 4 << 10];
const POOL_BYTES: usize = POOLS[0] + POOLS[1];
/// Calls after the flip.
const CALLS: usize = 150;
/// Cases that begin with the same heap.
const CASES_PER_HEAP: usize = 100;

/// The kinds of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Records of pools.
    Record,
    /// Headers of blocks and of sentinels.
    Header,
    /// Tags that lead back to a free block.
    Before,
    /// Links of free blocks.
    Link,
    /// Heads of lists, a half of the flips in those that have blocks.
    Head,
    /// The fit's bit maps.
    Bits,
    /// The heap's own words: its way to the first pool, and its key.
    Own,
}

const KINDS: [Kind; 7] =
    [Kind::Record, Kind::Header, Kind::Before, Kind::Link, Kind::Head, Kind::Bits, Kind::Own];

/// A block in use: its bytes are all `pattern`.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: NonNull<u8>,
    len: usize,
    pattern: u8,
}

impl Used {
    fn intact(self) -> bool {
        // SAFETY: in use, and filled when it was allocated.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) };
        bytes.iter().all(|&byte| byte == self.pattern)
    }

    fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.at.addr().get(), other.at.addr().get());
        a < b + other.len.max(1) && b < a + self.len.max(1)
    }
}

/// A source over memory that stays, as a value that can be copied: what it has released holds 0xDD.
#[derive(Clone, Copy, Debug)]
struct Paged {
    base: usize,
    committed: u64,
}

impl Paged {
    fn mask(&self, start: usize, len_bytes: usize) -> u64 {
        let first = (start - self.base) / PAGE_BYTES;
        ((1 << (len_bytes / PAGE_BYTES)) - 1) << first
    }
}

// SAFETY: the memory is there all the time.
unsafe impl PageSource for Paged {
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        self.committed |= self.mask(start.addr().get(), len_bytes);
        Ok(())
    }

    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        self.committed &= !self.mask(start.addr().get(), len_bytes);
        // SAFETY: pages of the test's memory, which the heap gave up.
        unsafe { start.write_bytes(0xDD, len_bytes) };
    }

    fn is_committed(&self, address: usize) -> bool {
        self.committed >> ((address - self.base) / PAGE_BYTES) & 1 != 0
    }
}

/// A source that the campaign knows the released pages of.
trait Source: PageSource + Copy {
    fn over(base: usize) -> Self;
    fn released(&self) -> u64;
}

impl Source for Resident {
    fn over(_: usize) -> Self {
        Self
    }

    fn released(&self) -> u64 {
        0
    }
}

impl Source for Paged {
    fn over(base: usize) -> Self {
        Self { base, committed: 0 }
    }

    fn released(&self) -> u64 {
        !self.committed & ((1 << (POOL_BYTES / PAGE_BYTES)) - 1)
    }
}

/// A heap, and what its users have.
struct Aged<F: Fit, S: Source, H: Hardening> {
    heap: Box<Heap<'static, F, S, H>>,
    memory: Memory,
    pools: [PoolId; 2],
    used: Vec<Used>,
    random: Random,
}

/// What the calls since the flip have shown.
#[derive(Default)]
struct Seen {
    /// A call was refused as the heap is corrupt.
    refused: bool,
    /// A byte has two owners, or was written by the heap while it had one.
    shared: bool,
}

fn bytes(size: usize) -> Layout {
    Layout::from_size_align(size, 1).expect("small")
}

impl<F: Fit, S: Source, H: Hardening> Aged<F, S, H> {
    fn new(seed: u64) -> Self {
        let mut memory = Memory::new(POOL_BYTES);
        let start = memory.start();
        // SAFETY: the test's memory, all of which `new` has written.
        unsafe { start.write_bytes(0xDD, POOL_BYTES) };
        let mut heap = Box::new(Heap::over(S::over(start.addr().get()), 0x5bd1_e995));
        // SAFETY: the memory is dropped with the heap, and two ranges of it are two pools.
        let pools = unsafe {
            [
                heap.add_pool_at(start, POOLS[0]).expect("a pool"),
                heap.add_pool_at(start.add(POOLS[0]), POOLS[1]).expect("a pool"),
            ]
        };
        let mut aged = Self { heap, memory, pools, used: Vec::new(), random: Random::new(seed) };
        let mut seen = Seen::default();
        for _ in 0..400 {
            aged.call(&mut seen);
        }
        assert!(!seen.refused && !seen.shared);
        aged.heap.check().expect("nothing was flipped");
        aged
    }

    /// One random call, and what it shows.
    fn call(&mut self, seen: &mut Seen) {
        let len = size(&mut self.random, 700);
        match self.random.below(8) {
            0..4 if self.used.len() < 40 => match self.heap.allocate(bytes(len)) {
                Ok(at) => self.own(at, len, seen),
                Err(error) => seen.refused |= matches!(error, AllocateBytesError::Corrupt(_)),
            },
            4 if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                let block = self.used[index];
                seen.shared |= !block.intact();
                // SAFETY: in use; after a success only the result is used.
                match unsafe { self.heap.resize(block.at, bytes(len)) } {
                    Ok(at) => {
                        self.used.swap_remove(index);
                        self.own(at, len, seen);
                    }
                    Err(error) => {
                        seen.refused |= matches!(
                            error,
                            ResizeBytesError::Free(FreeBytesError::Corrupt(_))
                                | ResizeBytesError::Allocate(AllocateBytesError::Corrupt(_))
                        );
                    }
                }
            }
            _ if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                let block = self.used[index];
                seen.shared |= !block.intact();
                // SAFETY: in use, and not after a success.
                match unsafe { self.heap.free(block.at) } {
                    Ok(()) => drop(self.used.swap_remove(index)),
                    Err(_) => seen.refused = true,
                }
            }
            _ => {}
        }
    }

    fn own(&mut self, at: NonNull<u8>, len: usize, seen: &mut Seen) {
        let start = self.memory.start().addr().get();
        let block = Used { at, len, pattern: self.random.word() as u8 };
        let inside = at.addr().get() >= start && at.addr().get() + len <= start + POOL_BYTES;
        if !inside || self.used.iter().any(|other| other.overlaps(block)) {
            seen.shared = true;
            return;
        }
        // SAFETY: in the test's memory, and nobody else's.
        unsafe { at.write_bytes(block.pattern, len) };
        self.used.push(block);
    }

    /// Addresses of all words of a kind.
    fn words(&self, kind: Kind) -> Vec<usize> {
        let mut words = Vec::new();
        if kind == Kind::Record {
            for pool in self.pools {
                words.extend((0..RECORD_WORDS).map(|word| pool.address() + word * WORD_BYTES));
            }
            return words;
        }
        let start = (&raw const *self.heap).addr();
        // The summary, the bits, the heads; then the heap's own.
        let bits = start + WORD_BYTES * (1 + F::CLASSES / usize::BITS as usize);
        let own = bits + WORD_BYTES * F::CLASSES;
        let words_of = |from: usize, to: usize| (from..to).step_by(WORD_BYTES);
        match kind {
            Kind::Bits => return words_of(start, bits).collect(),
            Kind::Own => return words_of(own, own + WORD_BYTES * OWN_WORDS).collect(),
            Kind::Head => {
                let mut heads: Vec<usize> = words_of(bits, own).collect();
                // SAFETY: words of the heap, which nothing changes now.
                let used = |&head: &usize| unsafe {
                    std::ptr::with_exposed_provenance::<usize>(head).read() != 0
                };
                let of_lists: Vec<usize> = heads.iter().copied().filter(used).collect();
                heads.extend(of_lists.iter().cycle().take(F::CLASSES));
                return heads;
            }
            _ => {}
        }
        let mut before_free = false;
        let mut border = |address: usize, free: bool, after_free: bool| match kind {
            Kind::Header => words.push(address + WORD_BYTES),
            Kind::Before if after_free => words.push(address),
            Kind::Link if free => words.extend([2, 3].map(|word| address + word * WORD_BYTES)),
            _ => {}
        };
        self.heap
            .walk(&mut |block| {
                border(block.address, block.free, before_free);
                before_free = block.free;
                let end = block.address + block.len_bytes;
                let sentinels = self.pools.map(|pool| pool.address()).into_iter().zip(POOLS);
                if sentinels.into_iter().any(|(pool, len)| end + GRANULE_BYTES == pool + len) {
                    border(end, false, before_free);
                    before_free = false;
                }
            })
            .expect("nothing was flipped");
        words
    }
}

/// Words of a pool's record: the next pool, the sentinel, the seal.
const RECORD_WORDS: usize = 3;
/// Words of a heap behind its lists: the first pool, its seal, the key.
const OWN_WORDS: usize = 3;

/// Flags that a case returns.
const FOUND: u8 = 1;
const NAMED: u8 = 2;
const REFUSED: u8 = 4;
const SHARED: u8 = 8;

/// A heap that can be put back as it was.
struct Saved<F: Fit, S: Source, H: Hardening> {
    aged: Aged<F, S, H>,
    pools: Vec<u8>,
}

impl<F: Fit, S: Source, H: Hardening> Saved<F, S, H> {
    fn new(seed: u64) -> Self {
        let mut aged = Aged::new(seed);
        // SAFETY: the test's memory, all of it written.
        let pools = unsafe { std::slice::from_raw_parts(aged.memory.start().as_ptr(), POOL_BYTES) }
            .to_vec();
        Self { aged, pools }
    }

    /// Flips a bit of a copy and looks what becomes of it.
    fn flip(&mut self, kind: Kind, calls: bool, seed: u64) -> u8 {
        // Whatever is written is written to the memory itself, as the pointers in it lead there.
        let heap = std::mem::ManuallyDrop::new(
            // SAFETY: the heap owns nothing, and one of the two is used at a time.
            unsafe { std::ptr::read(&raw const *self.aged.heap) },
        );
        let (used, random) = (self.aged.used.clone(), self.aged.random.clone());
        let mut draw = Random::new(seed);
        let _ = (&raw mut *self.aged.heap).expose_provenance();
        let _ = self.aged.memory.start().as_ptr().expose_provenance();
        let words = self.aged.words(kind);
        let word = words[draw.index(words.len())];
        let bit = 1_usize << draw.below(usize::BITS.into());
        // SAFETY: a word of the pools' memory or of the heap, which nothing refers to now.
        unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<usize>(word);
            at.write(at.read() ^ bit);
        }
        let mut code = match self.aged.heap.check() {
            Ok(()) => 0,
            Err(fault) if names(fault, word) => FOUND | NAMED,
            Err(_) => FOUND,
        };
        let mut seen = Seen::default();
        if calls {
            for _ in 0..CALLS {
                self.aged.call(&mut seen);
            }
            seen.shared |= self.aged.used.iter().any(|block| !block.intact());
            seen.shared |= self.released_were_written(word);
        }
        code |= if seen.refused { REFUSED } else { 0 } | if seen.shared { SHARED } else { 0 };
        // As it was.
        // SAFETY: the memory, and a heap of the same type over it.
        unsafe {
            let start = self.aged.memory.start();
            start.copy_from_nonoverlapping(NonNull::from(&self.pools[0]), POOL_BYTES);
            (&raw mut *self.aged.heap).write(std::mem::ManuallyDrop::into_inner(heap));
        }
        (self.aged.used, self.aged.random) = (used, random);
        code
    }

    /// True if the heap wrote to a page that it had given up.
    fn released_were_written(&mut self, flipped: usize) -> bool {
        let start = self.aged.memory.start();
        // SAFETY: the test's memory, all of it written.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), POOL_BYTES) };
        let released = self.aged.heap.source().released();
        bytes.chunks(PAGE_BYTES).enumerate().any(|(page, bytes)| {
            let address = start.addr().get() + page * PAGE_BYTES;
            released >> page & 1 != 0
                && !(address..address + PAGE_BYTES).contains(&flipped)
                && bytes.iter().any(|&byte| byte != 0xDD)
        })
    }
}

fn names(fault: HeapFault, word: usize) -> bool {
    let first = fault.word_address();
    let words = if fault.kind == HeapFaultKind::Pool { RECORD_WORDS } else { 1 };
    (first..first + words * WORD_BYTES).contains(&word)
}

/// Counts of the cases of one kind and tier.
#[derive(Default, Debug)]
struct Count {
    cases: usize,
    found: usize,
    named: usize,
    refused: usize,
    shared: usize,
    panicked: usize,
    signals: usize,
}

impl Count {
    fn harm(&self) -> usize {
        self.shared + self.panicked + self.signals
    }
}

fn campaign<F: Fit, S: Source, H: Hardening>(kind: Kind, calls: bool, cases: usize) -> Count {
    let saved = std::cell::RefCell::new((usize::MAX, Saved::<F, S, H>::new(0)));
    let ends = run(cases, cases, |case| {
        let (number, saved) = &mut *saved.borrow_mut();
        if case / CASES_PER_HEAP != *number {
            *number = case / CASES_PER_HEAP;
            *saved = Saved::new(*number as u64);
        }
        saved.flip(kind, calls, case as u64)
    });
    let mut count = Count { cases, ..Count::default() };
    for end in ends {
        match end {
            End::Returned(code) => {
                count.found += usize::from(code & FOUND != 0);
                count.named += usize::from(code & NAMED != 0);
                count.refused += usize::from(code & REFUSED != 0);
                count.shared += usize::from(code & SHARED != 0);
            }
            End::Panicked => count.panicked += 1,
            End::Signal => count.signals += 1,
        }
    }
    println!(
        "{:<10} {:<9} {:<8} {cases:>6} flips: {:>6} found by check, {:>6} by name; then {:>6} \
         refused, {:>4} shared, {:>4} panics, {:>4} signals",
        std::any::type_name::<F>().rsplit("::").next().unwrap_or_default(),
        format!("{:?}", H::default()),
        format!("{kind:?}"),
        count.found,
        count.named,
        count.refused,
        count.shared,
        count.panicked,
        count.signals
    );
    count
}

/// Flips for each kind and tier.
fn cases() -> usize {
    std::env::var("SWATH_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

fn tier<F: Fit, S: Source, H: Hardening + Debug>() -> Vec<(Kind, Count)> {
    KINDS.into_iter().map(|kind| (kind, campaign::<F, S, H>(kind, true, cases()))).collect()
}

/// Every flip is found, and the word named: for a record and the heap's own words as one.
fn assert_harmless(kind: Kind, count: &Count) {
    assert_eq!(count.harm(), 0, "{kind:?}: {count:?}");
    assert_eq!((count.found, count.named), (count.cases, count.cases), "{kind:?}: {count:?}");
}

#[test]
fn no_flip_does_harm_in_the_tier_that_checks_links() {
    for (kind, count) in tier::<TwoLevel, Resident, Links>() {
        assert_harmless(kind, &count);
    }
}

#[test]
fn nor_over_a_source_of_pages() {
    for (kind, count) in tier::<PowersOfTwo, Paged, Links>() {
        assert_harmless(kind, &count);
    }
}

/// Links and heads are found by `check` there, and not by the calls. Nor is, in two of 10,000 flips,
/// a tag that leads to the old header of a block that ended at the same place before it grew: it is
/// the old block's links that betray it.
#[test]
fn no_flip_of_headers_records_and_bits_does_harm_in_the_tier_that_checks_headers() {
    for kind in KINDS {
        let calls = !matches!(kind, Kind::Link | Kind::Head | Kind::Before);
        assert_harmless(kind, &campaign::<TwoLevel, Resident, Headers>(kind, calls, cases()));
    }
}

#[test]
fn a_check_of_a_trusting_heap_ends_whatever_was_flipped() {
    for kind in KINDS {
        let count = campaign::<TwoLevel, Resident, Trusting>(kind, false, cases());
        assert_eq!(count.harm(), 0, "{kind:?}: {count:?}");
    }
}
