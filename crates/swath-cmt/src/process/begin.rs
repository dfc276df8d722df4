//! The beginning: maps the pool's tables and reserves its arena.
//!
//! Nothing here may allocate, since it is what allocates: metadata are mapped, and touched as far
//! as they are used.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use lock_api::Mutex;
use swath_pool::{
    BufferOptions, BufferPool, Claim, HeapSlot, Live, Returned, Storage, Superblock, UNIT_BYTES,
    dirty_words,
};

use crate::error::{BeginError, OutOfMemory};
use crate::lock::Futex;
use crate::options::Options;
use crate::physical::page_map;
use crate::process::canary::Canary;
use crate::process::exit::thread_ends;
use crate::process::fork::{before_fork, in_child, in_parent};
use crate::process::nothing::Nothing;
use crate::process::state::{Process, begun, publish};
use crate::reserve::grow::grow;
use crate::source::backing::Backing;
use crate::source::chunk::CHUNK_BYTES;
use crate::source::mapping::{Mapped, Zeroed};
use crate::source::mend::Mending;
use crate::source::pages::ArenaPages;
use crate::source::runs::Runs;

/// The shortest arena that is made where the environment names none.
const ARENA_MIB_LEAST: u64 = 8;

static BEGINNING: Mutex<Futex, ()> = Mutex::new(());

/// Returns the process's pool, which begins with the environment's options if it has not yet.
pub(crate) fn process() -> Result<&'static Process, OutOfMemory> {
    if let Some(process) = begun() {
        return Ok(process);
    }
    begin_from_env()
}

#[cold]
fn begin_from_env() -> Result<&'static Process, OutOfMemory> {
    let one = BEGINNING.lock();
    if let Some(process) = begun() {
        return Ok(process);
    }
    let mut options = Options::from_env();
    let process = loop {
        match start(options) {
            // A process whose addresses are limited gets a shorter arena.
            Err(OutOfMemory)
                if options.arena_mib > ARENA_MIB_LEAST && !Options::env_names_arena() =>
            {
                options.arena_mib /= 2;
            }
            started => break started?,
        }
    };
    drop(one);
    grow(process, options.reserve_bytes);
    Ok(process)
}

/// Begins with the options of the environment, unless the pool has begun. The first allocation does
/// so by itself.
///
/// # Errors
/// [`OutOfMemory`] if there is no memory for the pool's tables, or too few addresses.
pub fn begin() -> Result<(), OutOfMemory> {
    process().map(|_| ())
}

/// Begins with these options, the environment not considered. To be called before anything is
/// allocated. A reserve is as long as there is memory for: [`stats`](crate::stats) says how long.
///
/// ```
/// use swath_cmt::{BeginError, OnError, Options};
///
/// let options = Options { arena_mib: 1024, on_error: OnError::Report, ..Options::default() };
/// swath_cmt::begin_with(options)?;
/// assert_eq!(swath_cmt::begin_with(options), Err(BeginError::AlreadyBegun));
/// assert_eq!(swath_cmt::stats().arena_bytes, 1 << 30);
/// # Ok::<(), BeginError>(())
/// ```
///
/// # Errors
/// A [`BeginError`]; nothing changes.
pub fn begin_with(options: Options) -> Result<(), BeginError> {
    options.check()?;
    let one = BEGINNING.lock();
    if begun().is_some() {
        return Err(BeginError::AlreadyBegun);
    }
    let process = start(options)?;
    drop(one);
    grow(process, options.reserve_bytes);
    Ok(())
}

/// Makes the process's pool; the caller holds the lock, and none has begun.
fn start(options: Options) -> Result<&'static Process, OutOfMemory> {
    let process = lay(options).ok_or(OutOfMemory)?;
    // SAFETY: none has begun, as the caller says.
    let process = unsafe { publish(process) };
    // It may allocate.
    // SAFETY: the three functions are this crate's.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    Ok(process)
}

// SAFETY: a pool's records may be all zeroes: they are as `new` makes them then.
unsafe impl Zeroed for Superblock {}
// SAFETY: as above.
unsafe impl Zeroed for Returned {}
// SAFETY: as above.
unsafe impl Zeroed for Live {}
// SAFETY: as above.
unsafe impl Zeroed for Claim {}
// SAFETY: as above.
unsafe impl Zeroed for HeapSlot {}

/// Makes the pool and its process, whose tables are mapped.
fn lay(options: Options) -> Option<Process> {
    let mut mapped = Mapped::default();
    let process = lay_in(&mut mapped, options)?;
    mapped.keep();
    Some(process)
}

fn lay_in(mapped: &mut Mapped, options: Options) -> Option<Process> {
    let chunks = usize::try_from(options.arena_mib / 2).ok()?;
    let units = chunks * (CHUNK_BYTES / UNIT_BYTES);
    let reserved = mapped.map(chunks.checked_add(2)?.checked_mul(CHUNK_BYTES)?, libc::PROT_NONE)?;
    // Before the arena, as behind it, there is a chunk that faults.
    let base = reserved.wrapping_add(reserved.align_offset(CHUNK_BYTES) + CHUNK_BYTES);
    let physical = page_map::known();
    let tables: [&[AtomicU32]; 3] =
        [mapped.table(chunks)?, mapped.table(chunks)?, mapped.table(chunks)?];
    let [pages] = mapped.table::<MaybeUninit<ArenaPages>>(1)? else { return None };
    // SAFETY: the arena was just reserved; two chunks more than that allow for it.
    let pages = pages.write(unsafe { ArenaPages::new(base, tables, &options, physical) });
    let tree = mapped.table(Runs::tree_bytes(chunks))?;
    let runs = Runs::new(mapped.table(chunks)?, tree, base.addr() / CHUNK_BYTES);
    let backing = Backing::new(runs, pages, mapped.table(chunks)?, options.dontfork);
    let storage = Storage {
        superblocks: mapped.table::<Superblock>(units)?,
        returned: mapped.table::<Returned>(units)?,
        live: mapped.table::<Live>(units)?,
        claims: mapped.table::<Claim>(units)?,
        // No more than chunks, and one that the threads beyond share.
        heaps: mapped.table::<HeapSlot>(chunks.min(options.heaps as usize) + 1)?,
        dirty: mapped.table(dirty_words(units))?,
    };
    let shape = BufferOptions {
        empty_eighths: options.empty_eighths,
        // What was free at one purge goes with the next.
        purge_delay: options.purge_delay_ms / if options.background { 2 } else { 1 },
        slack: options.slack,
        guard_segments: options.guard,
    };
    // SAFETY: the backing's units are those of the arena, which nothing else uses; the tables were
    // just mapped.
    let pool =
        unsafe { BufferPool::new_zeroed(NonNull::new(base)?, storage, backing, shape) }.ok()?;
    let mut key = 0;
    // SAFETY: a key for this library.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    let first_purge_ms = Process::now_ms().saturating_add(options.purge_delay_ms);
    // By its canary a block is known that waits.
    let canary = (options.canary || options.quarantine > 0).then(Canary::new);
    let shared = Mutex::new(None);
    Some(Process {
        pool,
        options,
        nothing: Nothing::before(base.addr()),
        canary,
        physical,
        key,
        first_purge_ms,
        shared,
        grows_from_ms: AtomicU64::new(0),
        mending: Mending::new(),
        has_background: AtomicBool::new(!options.background),
    })
}
