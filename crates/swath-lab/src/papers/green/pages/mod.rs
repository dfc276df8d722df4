//! Requests for pages: synthetic loads, recordings of a real kernel as requests
//! that any allocator can serve, and a recording followed event by event with
//! the kernel's free lists rebuilt.

pub mod follow;
pub mod load;
pub mod recordings;
pub mod requests;
pub(crate) mod steps;
