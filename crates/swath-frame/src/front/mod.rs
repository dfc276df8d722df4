//! A front for each CPU over any frame allocator.
//!
//! Many CPUs that share one allocator would queue at its lock for every
//! request. So each CPU has a **slot** of its own, which serves every order up to 10 and runs of up
//! to 64 frames:
//!
//! - for single frames a *claimed word*, up to 64 frames in a row, cut from an area, that the CPU hands out one by
//!   one from the lowest, and a *bounded buffer* of frames that came back from elsewhere;
//! - of each order from 1 to 10 up to 14 aligned blocks that came back, 8 of orders 9 and 10;
//! - up to eight *areas*, runs of any length, from which is cut what no such block serves.
//!
//! A slot turns to what all CPUs share only to claim, or to return what it has no room for. What is
//! full is sorted. If it is one run, it becomes an area, or joins one that it borders on. Otherwise the
//! upper half goes, or one block more, so that pairs stay together, and becomes areas if it is up to four runs, or of
//! blocks of 128 frames or more (64 where a word has 32 bits); if not, it goes back to the allocator as so many runs.
//! The lower half stays, since every allocator here prefers low frame numbers. Only when areas would be more than eight or hold more
//! than a share of the memory, their whole huge pages are **pooled**: a bit for each, which a CPU sets or clears for up
//! to 64 pages by one atomic step, and for which nobody waits. What is left at the ends of areas
//! stays, as what comes next may border on it; where these are more than four, they are **spare** areas from then on.
//! Who claims next, on whichever CPU, takes over pages and spare areas; so where one CPU frees what
//! another allocates, they go from hand to hand. Only where there is no room for them, they go
//! back to the allocator; while another CPU has that, areas may grow to twice the share first, so that nobody waits
//! for it who gives back much in a row. The share is an eighth of the memory, divided by the CPUs, but at least 16,384
//! frames and at most 65,536. So a block that is taken and comes back
//! again and again is neither split from a larger one nor merged into it each time. Where nothing is pooled or spare, a block
//! is cut from what the allocator gives first, up to 256 frames for orders to 6 and up to 1,024 above,
//! up to four pieces where that is in pieces, and only where it has no such block, from a whole huge page of 512. A
//! CPU that claims again and again, and returns nothing between, claims twice as much each time, up to 64 times as
//! much and its share: about what it has taken since. Longer requests, and frames that are freed otherwise than as a
//! run of up to 64 frames or as an aligned block, go straight to the shared allocator; before a request of more than
//! 1,024 frames what is pooled and spare goes back to it, so that it gets as long runs as there are.
//!
//! **What is in use gathers below**, if the caller wants it ([`Gather`]; the default, [`Fifo`], is the fastest). A single
//! frame that came back goes out again if it lies lower than what the allocator would give, as far as is known from what it
//! last gave and took back; the others go back to it, 16 to 32 at a time, and as many are claimed. So before an allocator
//! that gives the lowest frame first, for up to 256 frames at once (the page buddy system of granularity 9 with
//! [`HeadOfList`](crate::HeadOfList); of granularity 4 it gives whole units of 16 first, and nothing gathers), frames that come and go
//! in any order end up side by side, and whole huge pages become free above, as without a front; where what is in use lies
//! side by side already, next to nothing goes back. Of blocks of order 1 and more the last that came back goes out first,
//! wherever it lies.
//!
//! **Nothing is stranded.** When the shared allocator cannot serve a request,
//! what is pooled and spare goes back to it, then the slots are emptied into it one by one, and each time it tries again: as
//! long as no other call is under way, a request fails only if the allocator
//! alone, with every frame back in it, would have failed too.
//!
//! **A wrong free is refused.** One bit for each frame says whether a user holds it.
//! To free is to clear that bit in one atomic step, so that of two frees of
//! one frame exactly one succeeds, on whichever CPUs they run and wherever the
//! frame lies by then. A run within one word of bits is one step as well. So is a block of order 7
//! to 10: one word for each 1,024 frames tells which eighths of them, or halves as blocks of order 9, are held
//! **whole**, and such a part has no bits of frames until less of it is freed. Frames of several words
//! are freed with the allocator's lock held, so that whoever holds it sees no half-done free.
//!
//! **A frame goes out once.** The same step that notes a frame as used says if it was used before, or
//! is not the front's. Then it goes to nobody: a bit or a slot has been changed from outside, which
//! [`Front::fault`] tells from then on. What the slot held, or the block, goes to nobody either.
//!
//! **Locks.** Each slot has its own lock, the spare areas have one and the allocator has one; the caller
//! brings their type (a kernel uses one that masks interrupts). A slot's lock
//! is taken before that of the spare areas, which comes before the allocator's, and never two slots' at once. A CPU
//! number only spreads the load: two threads that use the same number are safe. A request that its slot
//! serves holds that slot's lock for one word, or for a look at eight areas; a claim, or a return,
//! holds the spare areas' besides for a look at 64, and the allocator's for 32 calls at most, for 770 MiB together,
//! which are 3,080 words of bits. Pooled pages have no lock: who claims looks at one word for each 64 pages from that on
//! to which some came last, and gives way to who was first there; a free of a run that lies in two words of bits holds the allocator's lock for these.
//! To empty a slot, or what is spare and pooled, which is done where memory is short, takes a call for each of its
//! blocks, areas or runs of pages.
//!
//! Metadata: 40 words for each 1,024 frames from the lowest free frame to the highest (80 where a
//! word has 32 bits; [`Front::bits_len`]), on cache lines that no other frames share, and so up to 7 (15)
//! more before the first, and after the last one for each 64 (32) huge pages and two, up to a whole line. One [`Slot`] of 2,176 bytes for each CPU, which holds 76 MiB in blocks,
//! 16 MiB of order 9, 32 MiB of order 10 and 28 MiB of all others, and in areas three shares and 2 MiB at most. Spare
//! are up to 64 areas, together not more than all shares, nor than an eighth of the memory or one share; pooled is
//! half of the memory at most, or one share. No CPU keeps these: whoever asks next has them.

mod areas;
mod bits;
mod blocks;
mod exchange;
mod held;
mod on_cpu;
mod pages;
mod reuse;
mod shared;

pub use on_cpu::OnCpu;
pub use reuse::{Fifo, Gather, Reuse};
pub use shared::{Front, FrontError, FrontFault, NoSuchCpu, Slot};
