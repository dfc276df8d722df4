//! The physical reserve: memory whose frames are known, laid out so that a run of frames is a run of
//! addresses.
//!
//! It comes in **extents**, each a run of frames, as pages of 1 GiB or 2 MiB of the kernel's hugetlb
//! pools, else as transparent huge pages: more of these than are wanted are touched, sorted by their
//! frames, and the longest runs of them moved into place; the rest goes back. Between two extents there
//! are addresses without access. One global bitmap over the machine's frames says which of them are
//! free (*Zhang, Lu and Zhang*, section 4.1), all of them taken at start (section 4.2): so a block that
//! comes from it is one run of physical memory, found in O(log n).
//!
//! Where the process may not know frames, or the kernel has no huge pages to give, the frames are
//! **simulated**: numbers in the order of the addresses.
//!
//! ```text
//!  frames      ........|=== A ===|......|== B ==|.....
//!  addresses   --|=== A ===|--|== B ==|--               (-: no access)
//!  bitmap      000000001111111111000000011111110000     (1: free)
//! ```
//!
//! Pages are taken, touched and moved without any lock; under the pool's lock are only the acquiring
//! of addresses and the entry of an extent that is ready.

pub(crate) mod extent;
pub(crate) mod frames;
pub(crate) mod grow;
pub(crate) mod room;
pub(crate) mod stock;
