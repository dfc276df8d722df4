//! A front for each CPU over any frame allocator.
//!
//! Many CPUs that share one allocator would queue at its lock for every
//! single frame. So each CPU has a **slot** of its own: a *claimed word*, up
//! to 64 frames in a row that the CPU hands out one by one from the lowest, and
//! a *bounded buffer* of frames that came back from elsewhere. A slot turns to
//! the shared allocator only to claim the next word, or to return half of a full
//! buffer: sorted, so that frames in a row go back as one extent, and
//! under one hold of the lock. The upper half goes and the lower half stays,
//! since every allocator here prefers low frame numbers. Requests for more
//! than one frame go straight to the shared allocator.
//!
//! **Nothing is stranded.** When the shared allocator cannot serve a request,
//! the slots are emptied into it one by one, and each time it tries again: as
//! long as no other call is under way, a request fails only if the allocator
//! alone, with every frame back in it, would have failed too.
//!
//! **A wrong free is refused.** One bit for each frame says whether a user holds it.
//! To free is to clear that bit in one atomic step, so that of two frees of
//! one frame exactly one succeeds, on whichever CPUs they run and wherever the
//! frame lies by then.
//!
//! **A frame goes out once.** The same step that notes a frame as used says if it was used before, or
//! is not the front's. Then it goes to nobody: a bit or a slot has been changed from outside, which
//! [`Front::fault`] tells from then on. What the slot held, or the block, goes to nobody either.
//!
//! **Locks.** Each slot has its own lock and the allocator has one; the caller
//! brings their type (a kernel uses one that masks interrupts). A slot's lock
//! is taken before the allocator's, and never two slots' at once. A CPU number
//! only spreads the load: two threads that use the same number are safe.
//!
//! Metadata: two bits for each frame from the lowest free frame to the highest
//! ([`Front::bits_len`]), and one [`Slot`] of 640 bytes for each CPU.

mod bits;
mod held;
mod shared;

pub use shared::{Front, FrontError, FrontFault, NoSuchCpu, OnCpu, Slot};
