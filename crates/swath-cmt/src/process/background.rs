//! A thread of the library's own that returns free memory to the system, if the options want one.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::process::state::Process;

/// Bytes of the thread's stack, beside what the C library puts there.
const STACK_BYTES: usize = 256 << 10;

/// The least time between two purges, in ms.
const PERIOD_MS_LEAST: u64 = 10;

/// Begins the thread that purges, unless there is one, or none is wanted. The caller is in no call of the
/// pool: this allocates. Without the memory for a thread it is tried again the next time.
pub(crate) fn begin(process: &'static Process) {
    if process.has_background.load(Relaxed) || process.has_background.swap(true, Relaxed) {
        return;
    }
    let begun = spawn(process);
    process.has_background.store(begun, Relaxed);
}

fn spawn(process: &'static Process) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: each is written before it is read; the process lives as long as its threads do. The
    // program's signals are its own threads': the new one has all of them blocked.
    unsafe {
        if libc::pthread_attr_init(attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes, STACK_BYTES.max(libc::PTHREAD_STACK_MIN));
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let argument = ptr::from_ref(process).cast_mut().cast();
        let failed = libc::pthread_create(thread.as_mut_ptr(), attributes, purges, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::pthread_attr_destroy(attributes);
        failed == 0
    }
}

/// Purges for as long as the process lives.
extern "C" fn purges(process: *mut c_void) -> *mut c_void {
    // SAFETY: a process, which is never taken down.
    let process = unsafe { &*process.cast::<Process>() };
    let period_ms = (process.options.purge_delay_ms / 2).max(PERIOD_MS_LEAST);
    let period = libc::timespec {
        tv_sec: (period_ms / 1000) as libc::time_t,
        tv_nsec: (period_ms % 1000 * 1_000_000) as _,
    };
    loop {
        // SAFETY: a time of this thread's own. A signal cannot end it.
        unsafe { libc::nanosleep(&period, ptr::null_mut()) };
        process.purge();
    }
}
