//! Page tables and address spaces, written as bytes of physical memory.
//!
//! An [`AddressSpace`] is a tree of translation tables in one of the formats
//! of `swath-arch`. It holds handles only (to memory, to the frames that it
//! hands to its pages, to the frames of its tables), so that several spaces
//! share one machine, and everything it knows stands in the tables: there is
//! no metadata beside them. What is mapped with contiguity gets it when it is
//! mapped (the PBS paper's Fig. 4, line 20), as
//! [`Coalescing`](swath_arch::Coalescing) says.
//!
//! A space can be made for superpages, whose tables then say too how full they
//! are and which tables are kept for demotion ([`superpage`]). [`Pmap`] stands
//! over several spaces: it promotes and demotes their mappings as faults,
//! writes and page-outs ask for it, and keeps a reverse map of every frame
//! ([`reverse`]).
//!
//! Where every operation must have a bound that does not depend on sizes, a
//! [`RegionSpace`] takes the place of page tables, or a [`SparseRegionSpace`] that of
//! hierarchical ones ([`region`]).
//!
//! The crate is `no_std` and allocates nothing.
//!
//! ```
//! use core::cell::RefCell;
//! use swath_arch::{Attributes, Coalescing, Extent, Format, Pfn, SliceMemory, Vpn};
//! use swath_vm::AddressSpace;
//! # use swath_arch::Order;
//! # use swath_frame::{FrameAllocateError, FrameAllocator, FrameFreeError};
//! # struct Bump(u64);
//! # impl FrameAllocator for Bump {
//! #     fn allocate_block(&mut self, max: u64) -> Option<Extent> {
//! #         self.0 += max;
//! #         Some(Extent::new(Pfn::new(self.0 - max), max))
//! #     }
//! #     fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
//! #         self.0 = self.0.next_multiple_of(order.frames()) + order.frames();
//! #         Ok(Extent::new(Pfn::new(self.0 - order.frames()), order.frames()))
//! #     }
//! #     fn free(&mut self, _: Extent) -> Result<(), FrameFreeError> { Ok(()) }
//! #     fn free_frames(&self) -> u64 { u64::MAX }
//! #     fn total_frames(&self) -> u64 { u64::MAX }
//! #     fn for_each_free(&self, _: &mut dyn FnMut(Extent)) {}
//! # }
//! let mut words = vec![0; 16 * 512];
//! let memory = SliceMemory::new(Pfn::new(0), &mut words);
//! let frames = RefCell::new(Bump(1));
//! let mut space =
//!     AddressSpace::new(Format::X86_64, Coalescing::None, &memory, &frames, &frames)?;
//! space.map(Vpn::new(4), Extent::new(Pfn::new(0x100), 5), Attributes::USER_DATA)?;
//! assert_eq!(space.translate(Vpn::new(6))?.frame, Pfn::new(0x102));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub mod migrate;
pub mod pmap;
pub mod table;

pub use pmap::error::{PmapError, PmapFault};
pub use pmap::mappings::{Access, Faulted, Pmap, PmapStatistics, Protection, Spaces, Status};
pub use pmap::relocation::MoveError;
pub use pmap::reverse::{ReverseError, ReverseMap, Site, SpaceId};
pub use table::anchor::anchor_distance;
pub use table::contiguity::Contiguity;
pub use table::error::{
    AllocateError, CheckError, DemoteError, FaultError, MapError, NewError, PageSizeError,
    PromoteError, Refusal, TranslateError, UnmapError,
};
pub use table::inspect::Mapping;
pub use table::space::{AddressSpace, Statistics};
pub use table::superpage::{Demoted, DemotedTable, Promoted, Sizes};
pub use table::unmap::Flush;
