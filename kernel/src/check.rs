//! Assertions that are counted, so that a run can say how much it has looked at.

use core::sync::atomic::{AtomicU32, Ordering};

static CHECKS: AtomicU32 = AtomicU32::new(0);

/// Counts a check.
pub fn passed() {
    // The kernel has one thread; the counter is atomic so that no `static mut` is needed.
    CHECKS.store(count() + 1, Ordering::Relaxed);
}

/// Returns how many checks there were.
pub fn count() -> u32 {
    CHECKS.load(Ordering::Relaxed)
}

/// Checks that two things are equal, and counts that; what follows is said if they are not.
macro_rules! same {
    ($left:expr, $right:expr, $($what:tt)+) => {{
        assert_eq!($left, $right, $($what)+);
        $crate::check::passed();
    }};
}
