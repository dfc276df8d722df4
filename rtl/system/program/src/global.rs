//! Values that both the program and its handler of page faults reach.

use core::cell::UnsafeCell;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::sync::atomic::{Ordering, compiler_fence};

/// A value of the only core, which the handler of page faults changes, too.
///
/// Invariant: while it is borrowed, nothing is accessed through the unit. So no fault comes meanwhile, and no two
/// borrows meet.
pub struct Global<T>(UnsafeCell<Option<T>>);

// SAFETY: there is one core and no interrupt. The handler runs only where an access through the unit faults, and
// by the invariant no borrow is live there.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    /// Makes one without a value.
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Sets the value.
    pub fn set(&'static self, value: T) {
        // SAFETY: as in `with`.
        unsafe { *self.0.get() = Some(value) };
    }

    /// Calls `f`, which makes no access through the unit, with the value.
    ///
    /// # Panics
    /// If there is none yet.
    pub fn with<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        // Accesses through the unit that stand before this call are made before, and the compiler knows nothing of
        // what the handler left: the address goes through an instruction that may read and write all of memory.
        let value = black_box(self).0.get();
        // SAFETY: the invariant: no other borrow is live, and none begins before `f` is done.
        let result = f(unsafe { (*value).as_mut() }.expect("it is set before it is used"));
        compiler_fence(Ordering::SeqCst);
        result
    }
}

/// Room for a value that stays to the end.
pub struct Place<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: there is one core, and only `put` reaches the room, once.
unsafe impl<T> Sync for Place<T> {}

impl<T> Place<T> {
    /// Makes an empty room.
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Puts the value there.
    ///
    /// # Safety
    /// To be called once.
    pub unsafe fn put(&'static self, value: T) -> &'static mut T {
        // SAFETY: nobody else has a reference to the room, by the contract.
        unsafe { (*self.0.get()).write(value) }
    }
}
