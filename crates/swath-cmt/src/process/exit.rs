//! The end of a thread.

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::process::state::begun;
use crate::process::thread::Thread;
use crate::process::words::{self, ENDED};

/// Ends the heap of a thread that ends: the destructor of the process's key.
pub(crate) unsafe extern "C" fn thread_ends(place: *mut c_void) {
    words::set(ENDED, words::nobodys(), words::no_pool(), words::NO_TABLES);
    let Some(place) = NonNull::new(place.cast::<Thread>()) else { return };
    // SAFETY: what `own::enter` wrote for this thread, which does not find it any more.
    let mut thread = unsafe { place.read() };
    // SAFETY: its block, which is not used any more.
    let _ = unsafe { thread.heap.free(place.cast()) };
    thread.end();
    if let Some(process) = begun() {
        process.purge();
    }
}
