//! Requests for pages: synthetic loads, recordings of a real kernel as requests
//! that any allocator can serve, and a recording followed event by event with
//! the kernel's free lists rebuilt.

pub mod follow;
pub(crate) mod handles;
pub mod load;
pub(crate) mod owners;
pub mod recordings;
pub mod requests;
pub mod runs;
pub(crate) mod steps;
pub mod stream;
