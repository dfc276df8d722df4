//! The process's one buffer pool: how it begins, and how threads come and go.
//!
//! Nothing here may allocate, since it is what allocates: metadata are mapped, and touched
//! as far as they are used.
//!
//! ```text
//!   arena      | unit | unit | ...                      reserved addresses, chunks of 2 MiB
//!   metadata   | superblocks | returned | heaps | bits   one record for each unit
//!   thread     | words ──► Thread, in a block of its own heap, and that heap
//! ```

use core::ffi::c_void;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::{
    NonNull, {self},
};
use core::slice;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use lock_api::Mutex;
use swath_pool::pool::{
    BufferPool, HeapSlot, LocalHeap, Options, Returned, Storage, Superblock, UNIT_BYTES,
    dirty_words,
};

use crate::backing::{Backing, CHUNK_BYTES, FOUND_WORDS, map, unmap};
use crate::choice::{QUARANTINE_MAX, cmt_options};
use crate::lock::Futex;
use crate::{physical, thread};

/// The most threads that have a heap at a time; others share one.
const HEAPS: usize = 8192;

/// The shortest arena that is made where none was asked for.
const ARENA_MIB_LEAST: u64 = 256;

pub type Pool = BufferPool<'static, Futex, Backing>;
pub type Local = LocalHeap<'static, 'static, Futex, Backing>;

/// A pool, and what it was made with.
pub struct Process {
    pub pool: Pool,
    pub options: cmt_options,
    /// Whether physical addresses are known.
    pub physical: bool,
    key: libc::pthread_key_t,
    /// When memory may go back for the first time.
    first_purge_ms: u64,
    /// For threads without a heap of their own.
    shared: Mutex<Futex, Option<Thread>>,
}

/// What a thread has.
pub struct Thread {
    pub heap: Local,
    /// Freed blocks that wait, a ring; empty without a quarantine.
    waiting: &'static mut [MaybeUninit<NonNull<u8>>],
    /// How many waited so far.
    waited: usize,
    /// Calls that took the long way.
    breaths: u32,
}

/// Of the calls that take the long way, one in so many looks at the clock.
const BREATH: u32 = 16;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
static BEGINNING: Mutex<Futex, ()> = Mutex::new(());
/// The thread's word once its heap is gone: what it still asks for is shared.
const ENDED: usize = 1;

/// The process's pool, if it has begun.
#[inline]
pub fn begun() -> Option<&'static Process> {
    // SAFETY: null, or a process that is never taken down.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// The process's pool. `None` if there is no memory for it.
pub fn process() -> Option<&'static Process> {
    begun().or_else(|| begin(None).ok())
}

/// Why the pool did not begin.
pub enum BeginError {
    /// It had begun before.
    Begun,
    /// There is no memory for it.
    Memory,
}

/// Makes the pool, with the environment's options or these.
#[cold]
pub fn begin(options: Option<cmt_options>) -> Result<&'static Process, BeginError> {
    let _one = BEGINNING.lock();
    if let Some(process) = begun() {
        return if options.is_none() { Ok(process) } else { Err(BeginError::Begun) };
    }
    let fixed = options.is_some() || cmt_options::names_arena();
    let mut options = options.unwrap_or_else(cmt_options::from_environment);
    let process = loop {
        if let Some(process) = lay(options) {
            break process;
        }
        // A process whose addresses are limited gets a shorter arena.
        if fixed || options.arena_mib <= ARENA_MIB_LEAST {
            return Err(BeginError::Memory);
        }
        options.arena_mib /= 2;
    };
    PROCESS.store(ptr::from_ref(process).cast_mut(), Release);
    // It may allocate.
    // SAFETY: the three functions are this module's.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    Ok(process)
}

/// What was mapped so far for a pool; goes back if this ends before the pool is there.
#[derive(Default)]
struct Mapped {
    ranges: [(usize, usize); 16],
    count: usize,
}

impl Mapped {
    fn map(&mut self, bytes: usize, access: i32) -> Option<*mut u8> {
        let range = self.ranges.get_mut(self.count)?;
        let at = map(bytes, access)?;
        *range = (at.expose_provenance(), bytes);
        self.count += 1;
        Some(at)
    }

    /// A table of zeroed records.
    fn table<T>(&mut self, count: usize) -> Option<&'static mut [T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let at = self.map(bytes, libc::PROT_READ | libc::PROT_WRITE)?.cast::<T>();
        // SAFETY: mapped for this; unmapped only if nobody got it. All callers' types may be all
        // zeroes.
        Some(unsafe { slice::from_raw_parts_mut(at, count) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for &(at, bytes) in &self.ranges[..self.count] {
            // SAFETY: mapped above, and the pool that would use it was not made.
            unsafe { unmap(ptr::with_exposed_provenance_mut(at), bytes) };
        }
    }
}

/// The pool and its process, all of it mapped.
fn lay(options: cmt_options) -> Option<&'static Process> {
    let mut mapped = Mapped::default();
    let process = lay_in(&mut mapped, options)?;
    core::mem::forget(mapped);
    Some(process)
}

fn lay_in(mapped: &mut Mapped, options: cmt_options) -> Option<&'static Process> {
    let chunks = usize::try_from(options.arena_mib / 2).ok()?;
    let units = chunks * (CHUNK_BYTES / UNIT_BYTES);
    let reserved = mapped.map(chunks.checked_add(1)?.checked_mul(CHUNK_BYTES)?, libc::PROT_NONE)?;
    let base = reserved.wrapping_add(reserved.align_offset(CHUNK_BYTES));
    let physical = physical::known();
    let units_of_chunks = [mapped.table(chunks)?, mapped.table(chunks)?];
    let (records, found) = (mapped.table(chunks)?, mapped.table(FOUND_WORDS)?);
    // SAFETY: the arena was just reserved; a chunk more than that allows for the alignment.
    let backing =
        unsafe { Backing::new(base, units_of_chunks, records, found, &options, physical) };
    let storage = Storage {
        superblocks: mapped.table::<Superblock>(units)?,
        returned: mapped.table::<Returned>(units)?,
        heaps: mapped.table::<HeapSlot>(HEAPS)?,
        dirty: mapped.table(dirty_words(units))?,
    };
    let shape = Options {
        empty_eighths: options.empty_eighths,
        purge_delay: options.purge_ms,
        guard_segments: options.guard != 0,
        ..Options::default()
    };
    // SAFETY: the backing hands out units of the arena, which nobody else uses.
    let pool = unsafe { BufferPool::new(NonNull::new(base)?, storage, backing, shape) }.ok()?;
    let [place] = mapped.table::<MaybeUninit<Process>>(1)? else { return None };
    let mut key = 0;
    // SAFETY: a key for this library.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    let first_purge_ms = Process::now_ms().saturating_add(options.purge_ms);
    let process =
        Process { pool, options, physical, key, first_purge_ms, shared: Mutex::new(None) };
    Some(place.write(process))
}

impl Process {
    /// Milliseconds of a clock that only rises.
    fn now_ms() -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    /// Gives memory back to the system that has been free for long enough. A process that ends
    /// before the delay is over has nothing to give.
    pub fn purge(&self) {
        let now = Self::now_ms();
        if now >= self.first_purge_ms {
            self.pool.purge(now);
        }
    }

    fn attach(&'static self) -> Option<Thread> {
        let mut heap = self.pool.attach()?;
        let count = self.options.quarantine.min(QUARANTINE_MAX) as usize;
        let waiting: &'static mut [_] = if count == 0 {
            &mut []
        } else {
            let block = heap.allocate(count * size_of::<usize>(), 16).ok()?;
            // SAFETY: a block of its own, long enough and aligned.
            unsafe { slice::from_raw_parts_mut(block.as_ptr().cast(), count) }
        };
        Some(Thread { heap, waiting, waited: 0, breaths: 0 })
    }
}

impl Thread {
    /// Whether it is time to look at the clock again.
    pub fn is_time(&mut self) -> bool {
        self.breaths = self.breaths.wrapping_add(1);
        self.breaths.is_multiple_of(BREATH)
    }

    /// # Safety
    /// As for [`LocalHeap::free`].
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), swath_pool::FreeError> {
        if self.waiting.is_empty() {
            // SAFETY: as the caller says.
            return unsafe { self.heap.free(block) };
        }
        self.quarantine(block)
    }

    /// The block waits; the one that waited longest is freed.
    #[cold]
    fn quarantine(&mut self, block: NonNull<u8>) -> Result<(), swath_pool::FreeError> {
        let len = self.waiting.len();
        let usable = self.heap.pool().usable_size(block)?;
        let held = self.waited.min(len);
        // SAFETY: the first `held` were written.
        let same = |place: &MaybeUninit<NonNull<u8>>| unsafe { place.assume_init() } == block;
        if self.waiting[..held].iter().any(same) {
            return Err(swath_pool::FreeError::NotAllocated { address: block.addr().get() });
        }
        // What reads it after its free reads this.
        // SAFETY: the block is in use and given up by its user.
        unsafe { block.write_bytes(0xDF, usable.min(4096)) };
        let place = &mut self.waiting[self.waited % len];
        // SAFETY: written when the ring was first filled.
        let oldest = (self.waited >= len).then(|| unsafe { place.assume_init() });
        place.write(block);
        self.waited += 1;
        // SAFETY: it was in use until it began to wait, and nobody has it.
        oldest.map_or(Ok(()), |oldest| unsafe { self.heap.free(oldest) })
    }

    /// Frees all that waits, and what it waited in.
    fn end(mut self) {
        let held = self.waited.min(self.waiting.len());
        for index in 0..held {
            // SAFETY: the first `held` were written, and are in use until now.
            let _ = unsafe { self.heap.free(self.waiting[index].assume_init()) };
        }
        if let Some(first) = self.waiting.first_mut() {
            // SAFETY: the ring's block, which is not used any more.
            let _ = unsafe { self.heap.free(NonNull::from(first).cast()) };
        }
    }
}

/// The thread's heap, if it has one that takes frees at once: there is no quarantine.
#[inline(always)]
pub fn own_heap() -> Option<ManuallyDrop<Local>> {
    let slot = NonNull::new(ptr::with_exposed_provenance_mut(thread::heap()))?;
    // SAFETY: `enter` put it there from the thread's heap, which only this thread uses and
    // which is there until the word is 0 again; callers keep it for one call.
    Some(unsafe { Local::from_raw(slot) })
}

/// What the thread has, if it has a heap.
fn own() -> Option<&'static mut Thread> {
    let word = thread::get();
    // SAFETY: the word is the address of the thread's own heap, which no other thread uses
    // and which is there until the thread ends; callers keep it for one call.
    (word > ENDED).then(|| unsafe { &mut *ptr::with_exposed_provenance_mut::<Thread>(word) })
}

/// Does `does` with the thread's heap, or with the shared one; `None` without memory for either.
#[inline]
pub fn with_thread<T>(does: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    match own() {
        Some(thread) => Some(does(thread)),
        None => with_new(thread::get(), does),
    }
}

#[cold]
#[inline(never)]
fn with_new<T>(word: usize, does: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let process = process()?;
    if word != ENDED
        && let Some(mut thread) = enter(process)
    {
        // SAFETY: just made, for this thread alone.
        return Some(does(unsafe { thread.as_mut() }));
    }
    let mut shared = process.shared.lock();
    if shared.is_none() {
        *shared = process.attach();
    }
    shared.as_mut().map(does)
}

/// Gives the thread a heap; it stands in a block of itself.
fn enter(process: &'static Process) -> Option<NonNull<Thread>> {
    let mut thread = process.attach()?;
    let Ok(block) = thread.heap.allocate(size_of::<Thread>(), align_of::<Thread>()) else {
        thread.end();
        return None;
    };
    let place = block.cast::<Thread>();
    // SAFETY: a block of its own, long enough and aligned.
    unsafe { place.write(thread) };
    // SAFETY: written just now.
    let heap = unsafe { place.as_ref() };
    let slot = heap.waiting.is_empty().then(|| heap.heap.as_raw().expose_provenance().get());
    thread::set(place.as_ptr().expose_provenance(), slot.unwrap_or(0));
    // Only from now on: it may allocate.
    // SAFETY: the key was made before the process began.
    unsafe { libc::pthread_setspecific(process.key, place.as_ptr().cast()) };
    Some(place)
}

unsafe extern "C" fn thread_ends(place: *mut c_void) {
    thread::set(ENDED, 0);
    let Some(place) = NonNull::new(place.cast::<Thread>()) else { return };
    // SAFETY: what `enter` wrote for this thread, which does not find it any more.
    let mut thread = unsafe { place.read() };
    // SAFETY: its block, which is not used any more.
    let _ = unsafe { thread.heap.free(place.cast()) };
    thread.end();
    if let Some(process) = begun() {
        process.purge();
    }
}

unsafe extern "C" fn before_fork() {
    let Some(process) = begun() else { return };
    core::mem::forget(process.shared.lock());
    process.pool.before_fork();
}

unsafe extern "C" fn in_parent() {
    let Some(process) = begun() else { return };
    // SAFETY: this thread called `before_fork`, which left no guards.
    unsafe {
        process.pool.after_fork_in_parent();
        process.shared.force_unlock();
    }
}

unsafe extern "C" fn in_child() {
    let Some(process) = begun() else { return };
    let word = thread::get();
    // SAFETY: as in the parent, and no other thread is left. The shared heap stays attached
    // as an ended thread's would not: it is taken for gone and made anew.
    unsafe {
        let own = (word > ENDED).then(|| ptr::with_exposed_provenance_mut::<Thread>(word));
        let heap = own.and_then(|thread| NonNull::new(&raw mut (*thread).heap));
        process.pool.after_fork_in_child(heap);
        core::mem::forget((*process.shared.data_ptr()).take());
        process.shared.force_unlock();
    }
}

/// A block for a request, if there is memory; before there is none, what other threads returned
/// is taken in and superblocks without blocks are given up.
#[cold]
#[inline(never)]
pub fn allocate(size: usize, align: usize) -> Option<NonNull<u8>> {
    let (block, is_time) = with_thread(|thread| {
        let block = thread.heap.allocate(size, align).or_else(|_| {
            thread.heap.collect();
            thread.heap.allocate(size, align)
        });
        (block.ok(), thread.is_time())
    })?;
    if is_time {
        breathe();
    }
    block
}

/// Frees a block, or says why it cannot.
///
/// # Safety
/// As for [`LocalHeap::free`].
pub unsafe fn free(block: NonNull<u8>) -> Result<(), swath_pool::FreeError> {
    let freed = with_thread(|thread| {
        // SAFETY: as the caller says.
        (unsafe { thread.free(block) }, thread.is_time())
    });
    let Some((freed, is_time)) = freed else { return Ok(()) };
    if is_time {
        breathe();
    }
    freed
}

/// Looks at the clock, and gives memory back if it is time. `errno` stays: a free may not change it.
#[cold]
#[inline(never)]
fn breathe() {
    let Some(process) = begun() else { return };
    // SAFETY: the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    process.purge();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
