//! The outcome of an access that the machine refuses.

/// A translation that the machine refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub address: usize,
    /// It was a write.
    pub write: bool,
}
