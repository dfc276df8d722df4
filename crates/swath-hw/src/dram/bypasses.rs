//! The count by which a channel knows that its oldest request has waited long enough.

/// Number of column commands that have passed the request that was the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bypasses {
    order: u64,
    pub(crate) count: u32,
}

impl Bypasses {
    pub(crate) const NONE: Self = Self { order: u64::MAX, count: 0 };

    /// Returns the number that have passed this one.
    pub(crate) fn of(self, order: u64) -> u32 {
        if order == self.order { self.count } else { 0 }
    }

    /// Counts a request that is served while `oldest` is the oldest.
    pub(crate) fn serve(&mut self, order: u64, oldest: u64) {
        *self = if order == oldest {
            Self::NONE
        } else {
            Self { order: oldest, count: self.of(oldest).saturating_add(1) }
        };
    }
}
