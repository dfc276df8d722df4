//! The choice of the single frames that go out again after they came back.

mod sealed {
    pub trait Reuse {}
}

/// A choice of the single frames that go out again after they came back to a CPU: [`Fifo`] or [`Gather`].
pub trait Reuse: sealed::Reuse {
    /// True if only those do that lie low.
    #[doc(hidden)]
    const GATHERS: bool;
}

/// All that came back go out again, in the order in which they came: the fastest, and what is in use stays
/// wherever it lies.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

/// Those that lie lower than what the allocator would give; the others go back to it. What is in use
/// gathers below, and whole huge pages become free above, if the allocator gives the lowest frame first, also to
/// who asks for 256 at once: the page buddy system of granularity 9 with [`HeadOfList`](crate::HeadOfList).
#[derive(Clone, Copy, Debug)]
pub struct Gather;

impl sealed::Reuse for Fifo {}
impl sealed::Reuse for Gather {}

impl Reuse for Fifo {
    const GATHERS: bool = false;
}

impl Reuse for Gather {
    const GATHERS: bool = true;
}
