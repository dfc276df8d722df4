//! A guest's free memory, where its hypervisor can see and take it.
//!
//! To shrink a guest by a balloon the hypervisor asks, and the guest allocates page after page and hands each
//! over: slowly, when it gets to it, and in pieces. Here guest and host share one word for each **unit** of 2 MiB,
//! in which the guest counts the frames that it holds. A unit of which it holds none the host takes by
//! one atomic step, without asking and while the guest runs; the guest notices when it is about to use that unit, and
//! asks for its memory back. The idea is HyperAlloc's (*Wrenger et al.*, EuroSys 2025), which builds it on LLFree; here
//! it stands before any allocator whose memory [comes and goes](crate::FrameHotplug).
//!
//! ```text
//!              guest holds n more           host takes (if 0 are held)
//!           .---------------------.       .----------------------------.
//!           v                     |       |                            v
//!      [ held: n ] ---------> [ held: 0 ]                          [ taken ]
//!           |      frees all          ^                              |   |
//!           '-------------------------'-----------------------------'   | refused: the guest
//!                                       host backs it again, asked      v parks the unit, and asks
//!                                       by the guest or not         [ parked, taken ]  when it is short
//! ```
//!
//! [`SharedUnits`] is the words, which is all that the host has to see; [`Guest`] is the guest's side. A unit of which some
//! frames are no memory of the guest's counts these as held, and is never taken.
//!
//! **What it costs.** Four bytes for 2 MiB. The guest pays one atomic step for each unit that a block lies in, when it
//! is allocated and when it is freed, on a line that the host writes to only when it takes something near. The host
//! reads a word for each unit that it looks at, and writes one for each that it takes.
//!
//! **What the host must trust.** Nothing: a guest that lies about what it holds loses its own data. A host that takes a unit
//! of which frames are held breaks the guest, as any hypervisor can.

mod allocator;
mod shared;

pub use allocator::{Guest, OtherSpan};
pub use shared::{SharedUnits, UNIT_FRAMES, UnitUse};
