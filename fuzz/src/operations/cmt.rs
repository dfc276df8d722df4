//! `cmt_malloc` and its kin, in C and in Rust, from two threads, with pointers and sizes that cannot
//! be.
//!
//! A process has one pool, with the options that it began with: the hardened form, with canaries,
//! guards and a quarantine, is attacked where `SWATH_FUZZ_HARDENED` is set.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use ::swath_pool::{BufferFreeError, SLOT_BYTES_MAX};
use swath::swath_status::*;
use swath::*;
use swath_arch::testing::Random;
use swath_cmt::{Cmt, FreeError, Purge, ResizeError};

use super::memory::{STEPS, STEPS_MAX};

/// Addresses of the arena: so few that it is exhausted now and then.
const ARENA_MIB: u64 = 32;

/// Bytes of the canary behind a block of the hardened form.
const CANARY_BYTES: usize = 8;

/// Errors of the C library.
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: usize,
    /// What was asked for, as a Rust program's allocator is told when the block is freed.
    layout: Layout,
    /// Bytes that may be used.
    len: usize,
    /// A byte that is its own, at the places that are written.
    mark: u8,
}

impl Block {
    fn pointer(self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.at)
    }

    fn c(self) -> *mut c_void {
        self.pointer().cast()
    }

    fn non_null(self) -> NonNull<u8> {
        NonNull::new(self.pointer()).expect("a block is not null")
    }

    /// Both ends, and a byte of each page.
    fn places(self) -> impl Iterator<Item = usize> {
        const ENDS: usize = 64;
        let end = self.len.saturating_sub(ENDS).max(ENDS);
        let pages = (ENDS..end).step_by(4096);
        (0..self.len.min(ENDS)).chain(pages).chain(end..self.len)
    }

    fn fill(self) {
        // SAFETY: a block in use, of so many bytes.
        self.places().for_each(|place| unsafe { self.pointer().add(place).write(self.mark) });
    }

    /// Compares what lies among the first `len` bytes.
    fn look(self, len: usize) {
        for place in self.places().filter(|&place| place < len) {
            // SAFETY: still in use, and written by `fill`.
            let byte = unsafe { self.pointer().add(place).read() };
            assert_eq!(byte, self.mark, "byte {place} of {self:?} has changed");
        }
    }

    /// Returns true if all of the first `len` bytes are zero.
    fn is_zero(self, len: usize) -> bool {
        // SAFETY: a block in use, of so many bytes, which were initialised as zeroes.
        let bytes = unsafe { std::slice::from_raw_parts(self.pointer(), len) };
        // SAFETY: bytes may be read as words.
        let (head, words, tail) = unsafe { bytes.align_to::<u128>() };
        head.iter().chain(tail).all(|&byte| byte == 0) && words.iter().all(|&word| word == 0)
    }
}

struct Bench {
    /// Blocks in use, by address.
    blocks: BTreeMap<usize, Block>,
    random: Random,
    is_hardened: bool,
    /// Bytes that the pool's own threads have in use.
    own_bytes: u64,
    steps: usize,
}

/// Begins with the process's pool, once, and returns true if it is the hardened one.
fn begin() -> bool {
    static HARDENED: OnceLock<bool> = OnceLock::new();
    *HARDENED.get_or_init(|| {
        let is_hardened = std::env::var_os("SWATH_FUZZ_HARDENED").is_some();
        // SAFETY: a place that can be written, and read.
        unsafe {
            let mut options = std::mem::zeroed();
            assert_eq!(cmt_options_default(&mut options).status, SWATH_OK);
            options.arena_mib = ARENA_MIB;
            // What makes no difference to blocks but takes long, or depends on the machine.
            (options.hugetlb, options.thp, options.populate) = (0, 0, 0);
            (options.purge_ms, options.on_error) = (0, 0);
            if is_hardened {
                (options.guard, options.quarantine, options.canary) = (1, 8, 1);
            }
            let wrong = cmt_options { empty_eighths: 8, ..options };
            assert_eq!(cmt_init(&wrong), swath_result { status: SWATH_ARGUMENT, at: 8 });
            assert_eq!(cmt_init(&options).status, SWATH_OK);
            assert_eq!(cmt_init(&options).status, SWATH_STATE);
        }
        is_hardened
    })
}

/// Allocates, frees and resizes by all functions, and tries what cannot be. Each result is compared at
/// once, a block's contents when it is resized or freed; the contents of all blocks and the bytes in
/// use after 1, 2, 4... operations and at the end, and the bytes once more when all is freed.
pub fn run(bytes: &[u8]) {
    let is_hardened = begin();
    let random = Random::given(bytes);
    let (blocks, own_bytes) = (BTreeMap::new(), 0);
    let mut bench = Bench { blocks, random, is_hardened, own_bytes, steps: 0 };
    bench.enter();
    let own_bytes = bench.own_bytes;
    while bench.steps < STEPS_MAX && !bench.random.is_spent() {
        if bench.random.one_in(16) {
            // Another thread, which then ends: what it leaves in use is freed by this one.
            let steps = 1 + bench.random.index(12);
            let there = || {
                bench.enter();
                (0..steps).for_each(|_| bench.step());
            };
            let ended = std::thread::scope(|scope| scope.spawn(there).join());
            ended.unwrap_or_else(|panic| resume_unwind(panic));
            bench.own_bytes = own_bytes;
        } else {
            bench.step();
        }
    }
    bench.check();
    while let Some((_, block)) = bench.blocks.pop_first() {
        block.look(block.len);
        bench.free(block);
    }
    bench.check();
}

impl Bench {
    /// Notes what this thread has in use for itself, from its first block on.
    fn enter(&mut self) {
        // SAFETY: a block in use, and not used after.
        unsafe { cmt_free(cmt_malloc(1)) };
        self.own_bytes = self.stats().live_bytes - self.live_bytes();
    }

    fn stats(&self) -> cmt_stats {
        let mut stats = cmt_stats::default();
        // SAFETY: a place that can be written.
        assert_eq!(unsafe { cmt_stats_get(&mut stats, size_of::<cmt_stats>()) }.status, SWATH_OK);
        stats
    }

    fn live_bytes(&self) -> u64 {
        let canary = if self.is_hardened { CANARY_BYTES } else { 0 };
        self.blocks.values().map(|block| (block.len + canary) as u64).sum()
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..7 => self.allocate(),
            7..11 => {
                if let Some(block) = self.pick() {
                    self.free(block);
                }
            }
            11..15 => self.resize(),
            15 => self.wrong_pointers(),
            16 => self.wrong_sizes(),
            17 => self.free_twice(),
            18 => self.extents(),
            _ => match self.random.below(3) {
                0 => cmt_purge(self.random.below(2) as i32),
                1 => swath_cmt::purge(Purge::Due),
                _ if self.is_hardened => self.overrun(),
                _ => swath_cmt::purge(Purge::All),
            },
        }
        self.steps += 1;
        if STEPS.compares_all(self.steps) {
            self.check();
        }
    }

    /// Mostly short, up to longer than the arena.
    fn size(&mut self) -> usize {
        let random = &mut self.random;
        match random.below(16) {
            0..8 => random.index(256),
            8..10 => random.index(2048),
            10..12 => random.index(20_000),
            12 => SLOT_BYTES_MAX - 20 + random.index(40),
            13 => random.index(1 << 18),
            14 => random.index(1 << 20),
            _ => (1 << random.below(27)) - 1 + random.index(3),
        }
    }

    fn allocate(&mut self) {
        let (size, function) = (self.size(), self.random.below(8));
        let log2 =
            if self.random.one_in(4) { self.random.below(23) } else { self.random.below(13) };
        let align = if matches!(function, 2 | 4 | 6 | 7) { 1_usize << log2 } else { 16 };
        let layout = Layout::from_size_align(size, align).expect("a size far from the last");
        let zeroed = matches!(function, 1 | 5 | 7);
        let pointer: *mut u8 = match function {
            0 => cmt_malloc(size).cast(),
            1 => {
                let parts = 1 + self.random.index(4);
                cmt_calloc(parts, size.div_ceil(parts)).cast()
            }
            2 => cmt_aligned_alloc(align, size).cast(),
            3 => or_null(swath_cmt::allocate(size)),
            4 => or_null(swath_cmt::allocate_aligned(layout)),
            5 => or_null(swath_cmt::allocate_zeroed(size)),
            // SAFETY: a size of 0 gets a block, too.
            6 => unsafe { Cmt.alloc(layout) },
            // SAFETY: as above.
            _ => unsafe { Cmt.alloc_zeroed(layout) },
        };
        if pointer.is_null() {
            let errno = io::Error::last_os_error().raw_os_error();
            assert!(function > 2 || errno == Some(ENOMEM), "errno is {errno:?}");
            self.may_refuse(size, align);
            return;
        }
        self.insert(pointer, layout, zeroed);
    }

    /// Panics if there must have been memory for a request: fewer units are in use than it takes to
    /// leave no run of the arena's that is long enough.
    fn may_refuse(&self, size: usize, align: usize) {
        let live = self.live_bytes();
        let room = self.blocks.len() < 50 && live < 4 << 20;
        assert!(size + align > 1 << 17 || !room, "{size} bytes at {align} beside {live}");
    }

    /// Takes a new block in, and writes to it.
    fn insert(&mut self, pointer: *mut u8, layout: Layout, zeroed: bool) {
        let at = pointer.expose_provenance();
        // SAFETY: any pointer may be tried.
        let len = unsafe { cmt_usable_size(pointer.cast()) };
        assert!(len >= layout.size(), "{len} bytes for {layout:?}");
        assert!(at.is_multiple_of(layout.align()), "{at:#x} for {layout:?}");
        assert!(at.is_multiple_of(16), "{at:#x} for {layout:?}");
        let block = Block { at, layout, len, mark: self.random.below(256) as u8 };
        assert!(!zeroed || block.is_zero(layout.size()), "{block:?} is not zero");
        let before = self.blocks.range(..=at).next_back();
        assert!(before.is_none_or(|(_, other)| other.at + other.len <= at), "two own a byte");
        let after = self.blocks.range(at..).next();
        assert!(after.is_none_or(|(_, other)| at + len <= other.at), "two own a byte");
        block.fill();
        self.blocks.insert(at, block);
    }

    /// Takes out a block, whose contents are as they were.
    fn pick(&mut self) -> Option<Block> {
        let nth = self.random.index(self.blocks.len().max(1));
        let at = *self.blocks.keys().nth(nth)?;
        let block = self.blocks.remove(&at)?;
        block.look(block.len);
        Some(block)
    }

    fn free(&mut self, block: Block) {
        match self.random.below(3) {
            // SAFETY: a block in use, which is not used after.
            0 => unsafe { cmt_free(block.c()) },
            // SAFETY: as above.
            1 => unsafe { swath_cmt::free(block.non_null()) },
            // SAFETY: as above, with its layout.
            _ => unsafe { Cmt.dealloc(block.pointer(), block.layout) },
        }
    }

    fn resize(&mut self) {
        let Some(block) = self.pick() else { return };
        let size = self.size();
        let (pointer, kept, align) = match self.random.below(3) {
            0 => {
                // SAFETY: a block in use; which one is used after follows from the result.
                let moved = unsafe { cmt_realloc(block.c(), size) };
                if size == 0 {
                    assert!(moved.is_null(), "a size of 0 frees");
                    return;
                }
                (moved.cast(), block.len, 16)
            }
            1 => {
                // SAFETY: as above.
                let moved = unsafe { swath_cmt::resize(block.non_null(), size) };
                if let Err(error) = moved {
                    assert!(matches!(error, ResizeError::OutOfMemory(_)), "{error}");
                }
                (or_null(moved), block.len, 16)
            }
            _ => {
                let align = block.layout.align();
                // SAFETY: as above, and it has this layout.
                let moved = unsafe { Cmt.realloc(block.pointer(), block.layout, size.max(1)) };
                let kept = if align <= 16 { block.len } else { block.layout.size() };
                (moved, kept, align)
            }
        };
        if pointer.is_null() {
            self.may_refuse(size, align);
            block.look(block.len);
            self.blocks.insert(block.at, block);
            return;
        }
        let layout = Layout::from_size_align(size, align).expect("a size far from the last");
        Block { at: pointer.expose_provenance(), ..block }.look(kept.min(size));
        self.insert(pointer, layout, false);
    }

    /// A pointer that is none of a block is refused by name, and nothing changes.
    fn refused(&mut self, at: usize) {
        let live = self.stats().live_bytes;
        let pointer = ptr::with_exposed_provenance_mut::<u8>(at);
        let Some(non_null) = NonNull::new(pointer) else { return };
        match self.random.below(4) {
            // SAFETY: none of a block, which the pool finds out.
            0 => unsafe { cmt_free(pointer.cast()) },
            // SAFETY: as above.
            1 => unsafe { swath_cmt::free(non_null) },
            2 => {
                let size = 1 + self.size();
                // SAFETY: as above.
                assert!(unsafe { cmt_realloc(pointer.cast(), size) }.is_null(), "{at:#x}");
            }
            _ => {
                let size = self.size();
                // SAFETY: as above.
                let error = unsafe { swath_cmt::resize(non_null, size) };
                use BufferFreeError::{Foreign, Misaligned, NotAllocated};
                let named = match error {
                    Err(ResizeError::Free(FreeError::Pool(
                        Foreign { address } | Misaligned { address } | NotAllocated { address },
                    ))) => address,
                    other => panic!("{at:#x}: {other:?}"),
                };
                assert_eq!(named, at);
            }
        }
        assert_eq!(self.stats().live_bytes, live, "{at:#x} changed what is in use");
    }

    /// Pointers into blocks, before and behind them, and to what was never the pool's.
    fn wrong_pointers(&mut self) {
        let nth = self.random.index(self.blocks.len().max(1));
        let place = self.blocks.values().nth(nth).map(|block| (block.at, block.len));
        let (start, len) = place.unwrap_or((1 << 30, 1 << 16));
        let at = match self.random.below(8) {
            0 => start + 1 + self.random.index(len.max(2) - 1),
            1 => start + 16 * self.random.index(len / 16 + 1),
            2 => start + (self.random.index(64) << 16),
            3 => (start - (self.random.index(64) << 16)) & !0xffff,
            4 => start - 16 * self.random.index(64),
            5 => self.random.index(1 << 16),
            6 => usize::MAX - self.random.index(256),
            _ => ptr::from_ref(self).expose_provenance(),
        };
        // SAFETY: any pointer may be tried.
        let usable = unsafe { cmt_usable_size(ptr::without_provenance(at)) };
        match self.blocks.get(&at) {
            Some(block) => assert_eq!(usable, block.len, "{block:?}"),
            // The pool's own, or a block that waits in a quarantine: as good as any other's.
            None if usable > 0 => {}
            None => self.refused(at),
        }
        let mut found = 0;
        let (room, place) = (ptr::null_mut(), ptr::without_provenance(at));
        if usable == 0 && !self.blocks.contains_key(&at) {
            // SAFETY: none of a block, which the pool finds out; no room is needed.
            let got = unsafe { cmt_extents(place, 0, 1, room, 0, &mut found) };
            let wrong = if at == 0 { SWATH_NULL } else { SWATH_FOREIGN };
            let none = swath_result { status: wrong, at: at as u64 };
            // One of no bytes that waits in a quarantine has nothing to look at.
            let empty = swath_result { status: SWATH_FOREIGN, at: 0 };
            assert!(got == none || self.is_hardened && got == empty, "{got:?} of {at:#x}");
        }
    }

    /// Of two frees the second is refused, while nothing else has the block.
    fn free_twice(&mut self) {
        let Some(block) = self.pick() else { return };
        self.free(block);
        // SAFETY: any pointer may be tried.
        let usable = unsafe { cmt_usable_size(block.c()) };
        assert!(usable == 0 || self.is_hardened, "{block:?} was freed");
        self.refused(block.at);
    }

    /// Sizes and alignments that no pool has, and null in every place.
    fn wrong_sizes(&mut self) {
        let size = isize::MAX as usize - 64 + self.random.index(128);
        let errno = || io::Error::last_os_error().raw_os_error();
        assert!(cmt_malloc(size).is_null() && errno() == Some(ENOMEM));
        assert!(cmt_malloc(usize::MAX - self.random.index(64)).is_null());
        let count = 2 + self.random.index(8);
        assert!(cmt_calloc(count, usize::MAX / count + 1).is_null() && errno() == Some(ENOMEM));
        assert!(cmt_aligned_alloc(16 << self.random.below(8), size).is_null());
        let align = self.random.index(1 << 12);
        if !align.is_power_of_two() {
            assert!(cmt_aligned_alloc(align, 100).is_null() && errno() == Some(EINVAL));
        }
        assert!(cmt_aligned_alloc(1 << 63, 1).is_null());
        // SAFETY: null and sizes that cannot be change nothing.
        unsafe {
            cmt_free(ptr::null_mut());
            assert_eq!(cmt_usable_size(ptr::null()), 0);
            assert!(cmt_realloc(ptr::null_mut(), size).is_null());
            assert_eq!(cmt_stats_get(ptr::null_mut(), 8).status, SWATH_NULL);
            assert_eq!(cmt_options_default(ptr::null_mut()).status, SWATH_NULL);
            assert_eq!(cmt_areas(None, ptr::null_mut()).status, SWATH_NULL);
        }
        let Some((_, &block)) = self.blocks.first_key_value() else { return };
        // SAFETY: a block in use, which stays where it is.
        assert!(unsafe { cmt_realloc(block.c(), size) }.is_null() && errno() == Some(ENOMEM));
        block.look(block.len);
    }

    /// A write behind a block is found when it is freed or resized, and the block stays in use.
    fn overrun(&mut self) {
        let Some(block) = self.pick() else { return };
        if block.len == 0 && block.layout.align() <= 16 {
            // A place where every access faults: no write behind it goes unnoticed until it is freed.
            self.blocks.insert(block.at, block);
            return;
        }
        let place = block.pointer().wrapping_add(block.len + self.random.index(CANARY_BYTES));
        // SAFETY: a byte of the canary, which is the block's.
        let byte = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { place.write(byte ^ 1 << self.random.below(8)) };
        if self.random.one_in(2) {
            self.free(block);
        } else {
            let size = self.size();
            // SAFETY: a block in use, which is not moved.
            let error = unsafe { swath_cmt::resize(block.non_null(), size) };
            let found = FreeError::Overrun { address: block.at };
            assert_eq!(error, Err(ResizeError::Free(found)));
        }
        // SAFETY: any pointer may be tried.
        let usable = unsafe { cmt_usable_size(block.c()) };
        // An overwritten canary says no length.
        assert!(usable == block.len || usable == 0, "{usable} bytes of a block in use");
        // SAFETY: as above.
        unsafe { place.write(byte) };
        block.look(block.len);
        self.blocks.insert(block.at, block);
    }

    /// The physical extents of a part of a block, if they are told, are as long as it.
    fn extents(&mut self) {
        let nth = self.random.index(self.blocks.len().max(1));
        let Some(&block) = self.blocks.values().nth(nth) else { return };
        let (offset, len) = (self.random.index(block.len + 1), self.random.index(1 << 16));
        let (mut extents, mut found) = ([cmt_extent::default(); 20], 0);
        let (to, room) = (extents.as_mut_ptr(), extents.len());
        // SAFETY: a block in use, and room for as many.
        let got = unsafe { cmt_extents(block.c(), offset, len, to, room, &mut found) };
        let expected = match len {
            0 => swath_result { status: SWATH_EMPTY, at: 0 },
            _ if offset + len > block.len => {
                swath_result { status: SWATH_FOREIGN, at: block.len as u64 }
            }
            _ if got.status == SWATH_DENIED => {
                assert_eq!(self.stats().physical_known, 0);
                swath_result { status: SWATH_DENIED, at: (block.at + offset) as u64 }
            }
            _ => swath_result { status: SWATH_OK, at: 0 },
        };
        assert_eq!(got, expected, "{offset} and {len} of {block:?}");
        if got.status == SWATH_OK {
            let told: u64 = extents[..found].iter().map(|extent| extent.len_bytes).sum();
            assert_eq!(told, len as u64);
        }
    }

    /// Every block is as it was, and counted.
    fn check(&self) {
        self.blocks.values().for_each(|block| block.look(block.len));
        let stats = self.stats();
        let (live, own) = (self.live_bytes(), self.own_bytes);
        // What waits in a quarantine is in use, and less of it when a thread has ended.
        let counted = match self.is_hardened {
            true => stats.live_bytes >= live,
            false => stats.live_bytes == live + own,
        };
        assert!(counted, "{} bytes in use, not {live} and {own}", stats.live_bytes);
        assert!(stats.held_bytes >= stats.live_bytes && stats.held_bytes <= ARENA_MIB << 20);
        assert_eq!(stats.late_double_frees, 0);
    }
}

fn or_null<E>(block: Result<NonNull<u8>, E>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// The hardened form, in a process of its own.
    #[test]
    fn the_hardened_form_is_attacked_too() {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "targets::bounded::cmt", "--nocapture"]);
        let output = command.env("SWATH_FUZZ_HARDENED", "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}{why}");
    }
}
