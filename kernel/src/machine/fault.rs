//! The outcome of an access that the machine refuses.

/// A translation that the machine refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub address: usize,
    /// It was a write.
    pub write: bool,
}

/// Handles a page fault at an access of the kernel's own; true if it is to be made again.
#[unsafe(no_mangle)]
extern "C" fn own_fault(address: usize) -> bool {
    #[cfg(feature = "heap")]
    return crate::heap::fault(address);
    #[cfg(not(feature = "heap"))]
    {
        let _ = address;
        false
    }
}
