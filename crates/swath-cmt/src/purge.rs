//! Returning free memory to the system.
//!
//! Only whole chunks of 2 MiB are returned, as a hole would break up a huge page. There
//! is no thread for it unless the [options](crate::Options::background) want one: of a thread's slow calls
//! one in 16 looks at the clock.

use crate::process::state::begun;

/// Returns free memory to the system. After a fork it also looks after blocks that writes have broken up since, as
/// the kernel copies shared pages one by one: a chunk of 2 MiB of which nearly all is this process's
/// own again gets a huge page.
///
/// ```
/// let block = swath_cmt::allocate(8 << 20)?;
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(block) };
/// swath_cmt::purge(swath_cmt::Purge::All);
/// assert!(swath_cmt::stats().cached_bytes < 8 << 20);
/// # Ok::<(), swath_cmt::OutOfMemory>(())
/// ```
pub fn purge(which: Purge) {
    let Some(process) = begun() else { return };
    match which {
        Purge::Due => process.purge(),
        Purge::All => process.purge_all(),
    }
}

/// The free memory that a [`purge`] returns to the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purge {
    /// Memory that has been free for the delay of the options; of the blocks that a fork has broken up some, a
    /// second after it and later.
    Due,
    /// All free memory; all such blocks.
    All,
}
