//! The calling thread's heap, made at its first slow call; it stands in a block of itself.

use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use swath_pool::Front;

use crate::lock::Futex;
use crate::process::begin::process;
use crate::process::state::Process;
use crate::process::thread::{Local, Thread};
use crate::process::words::{self, ENDED, OwnReach};
use crate::source::backing::Backing;

/// The front of a thread's heap.
pub(crate) type OwnFront = Front<'static, 'static, Futex, Backing, OwnReach>;

/// Returns the front of the thread's heap, which serves nothing if the thread has none or is hardened.
#[inline(always)]
pub(crate) fn own_front() -> OwnFront {
    let (heap, reach) = words::heap_and_reach();
    // SAFETY: `enter` put the heap there, with its pool; only this thread uses it, and it
    // is there until the word is nobody's again; callers keep it for one call.
    unsafe { Front::new(reach, heap) }
}

/// Returns the thread's heap, if it has one and is not hardened.
#[inline]
pub(crate) fn own_heap() -> Option<ManuallyDrop<Local>> {
    let (heap, pool) = words::heap_and_pool();
    // SAFETY: as above, and where there is a heap there is its pool.
    (heap != words::nobodys()).then(|| unsafe { Local::from_raw(&*pool, heap) })
}

/// Returns the thread's state, if it has a heap.
#[inline]
fn own() -> Option<&'static mut Thread> {
    let word = words::get();
    // SAFETY: the word is the address of the thread's own heap, which no other thread uses
    // and which is there until the thread ends; callers keep it for one call.
    (word > ENDED).then(|| unsafe { &mut *ptr::with_exposed_provenance_mut::<Thread>(word) })
}

/// Returns the thread's state, if it is hardened.
#[inline]
pub(crate) fn own_hardened() -> Option<&'static mut Thread> {
    own().filter(|thread| thread.is_hardened())
}

/// Calls `act` with the thread's state, or with the shared one; `None` without memory for either.
#[inline]
pub(crate) fn with_thread<T>(act: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    match own() {
        Some(thread) => Some(act(thread)),
        None => with_new(words::get(), act),
    }
}

#[cold]
#[inline(never)]
fn with_new<T>(word: usize, act: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let process = process().ok()?;
    if word != ENDED
        && let Some(mut thread) = enter(process)
    {
        // SAFETY: just made, for this thread alone.
        return Some(act(unsafe { thread.as_mut() }));
    }
    let mut shared = process.shared.lock();
    if shared.is_none() {
        *shared = process.attach_shared();
    }
    shared.as_mut().map(act)
}

/// Makes a heap for the thread; it stands in a block of itself.
fn enter(process: &'static Process) -> Option<NonNull<Thread>> {
    let mut thread = process.attach()?;
    // As a user's block: those beside it look at its canary.
    let Some((block, _)) = thread.allocate(size_of::<Thread>(), align_of::<Thread>()) else {
        thread.end();
        return None;
    };
    let place = block.cast::<Thread>();
    // SAFETY: a block of its own, long enough and aligned.
    unsafe { place.write(thread) };
    // SAFETY: written just now.
    let heap = unsafe { place.as_ref() };
    // Of a hardened thread no call is the front's.
    let (slot, pool, tables) = if heap.is_hardened() {
        (words::nobodys(), words::no_pool(), words::NO_TABLES)
    } else {
        (heap.heap.as_raw(), &raw const process.pool, process.pool.table_words())
    };
    words::set(place.as_ptr().expose_provenance(), slot, pool, tables);
    // Only from now on: it may allocate.
    // SAFETY: the key was made before the process began.
    unsafe { libc::pthread_setspecific(process.key, place.as_ptr().cast()) };
    Some(place)
}
