//! A fork of the process, from before it to after it.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;

use crate::process::state::{Process, begun};
use crate::process::thread::Thread;
use crate::process::words::{self, ENDED};
use crate::source::backing::Backing;

/// Prepares for a fork: leaves the kernel's hugetlb pools, and takes the locks.
pub(crate) unsafe extern "C" fn before_fork() {
    let Some(process) = begun() else { return };
    core::mem::forget(process.shared.lock());
    let pages = process.pool.with_source(Backing::pages);
    core::mem::forget(pages.gate());
    pages.note_fork();
    let is_used = |chunk| process.pool.with_source(|source| source.is_used(chunk));
    let mut from = 0;
    while let Some(run) = process.pool.with_source(|source| source.next_pooled(from)) {
        from = run.end;
        pages.move_to_ordinary(run, &is_used);
    }
    process.pool.before_fork();
}

/// Ends the preparation in the parent.
pub(crate) unsafe extern "C" fn in_parent() {
    let Some(process) = begun() else { return };
    // SAFETY: this thread called `before_fork`, which left no guards.
    unsafe {
        process.pool.after_fork_in_parent();
        process.pool.with_source(Backing::pages).open_gate();
        process.shared.force_unlock();
    }
    process.mending.begin(Process::now_ms());
}

/// Ends the preparation in the child, whose other threads are gone.
pub(crate) unsafe extern "C" fn in_child() {
    let Some(process) = begun() else { return };
    let word = words::get();
    process.grows_from_ms.store(0, Relaxed);
    process.has_background.store(!process.options.background, Relaxed);
    // SAFETY: as in the parent, and no other thread is left. The shared heap stays attached
    // as an ended thread's would not: it is taken for gone and made anew.
    unsafe {
        let own = (word > ENDED).then(|| ptr::with_exposed_provenance_mut::<Thread>(word));
        let heap = own.and_then(|thread| NonNull::new(&raw mut (*thread).heap));
        process.pool.after_fork_in_child(heap);
        process.pool.with_source(Backing::pages).open_gate();
        core::mem::forget((*process.shared.data_ptr()).take());
        process.shared.force_unlock();
    }
}
