//! The process and its threads: one pool that begins at the first allocation, and for each thread a
//! processor heap that ends with it.
//!
//! ```text
//!   arena      | unit | unit | ...                      reserved addresses, chunks of 2 MiB
//!   metadata   | superblocks | returned | heaps | bits   one record for each unit
//!   thread     | words ──► Thread, in a block of its own heap, and that heap
//! ```

pub(crate) mod background;
pub(crate) mod begin;
pub(crate) mod canary;
pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod nothing;
pub(crate) mod own;
pub(crate) mod state;
pub(crate) mod thread;
pub(crate) mod words;
pub(crate) mod zero;
