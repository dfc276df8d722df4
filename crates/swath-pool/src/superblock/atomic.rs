//! The atomic words that several threads write: the model checker's own under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::AtomicU32 as Shared32;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::AtomicU64 as Shared64;

#[cfg(loom)]
pub use checked::order_loads;
#[cfg(loom)]
pub(crate) use checked::{Shared32, Shared64};

/// Words of the model checker whose loads may be ordered.
///
/// The checker tries another order of two accesses only for an access and the last one before it that it
/// depends on, be it of its own thread. So a thread that loads a word before it changes it hides the loads
/// of others before its own: that these come after the change is never tried. A load that is a change, too,
/// of nothing, hides none; but it never reads an earlier value, as a plain load may. A model is therefore
/// explored once in each way.
#[cfg(loom)]
mod checked {
    extern crate std;
    use core::cell::Cell;
    use core::ops::Deref;
    use core::sync::atomic::Ordering;

    std::thread_local! {
        static ORDERED: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes the loads of the calling thread's models ordered ones, or plain ones again.
    pub fn order_loads(ordered: bool) {
        ORDERED.set(ordered);
    }

    macro_rules! shared {
        ($name:ident, $word:ty, $number:ty) => {
            pub(crate) struct $name($word);

            impl $name {
                pub(crate) fn new(value: $number) -> Self {
                    Self(<$word>::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $number {
                    if ORDERED.get() { self.0.fetch_or(0, order) } else { self.0.load(order) }
                }
            }

            impl Deref for $name {
                type Target = $word;

                fn deref(&self) -> &$word {
                    &self.0
                }
            }
        };
    }

    shared!(Shared32, loom::sync::atomic::AtomicU32, u32);
    shared!(Shared64, loom::sync::atomic::AtomicU64, u64);
}
