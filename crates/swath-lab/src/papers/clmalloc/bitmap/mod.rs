//! The questions of section 4.1 of *Zhang, Lu and Zhang* on the global bitmap: what it takes at which
//! granularity, and whether memory stays in long runs when segments come and go.
//!
//! [`table_1`] is the paper's search word for word, whose cost is the words that it reads; [`churn`]
//! runs it beside the allocators of `swath-frame` on the same requests and releases, with and without
//! migration; [`mutex`] has threads wait for each other in it. [`study`] puts them together, with other
//! [`readings`] of how blocks are placed.

pub(crate) mod churn;
pub(crate) mod mutex;
pub(crate) mod readings;
pub mod study;
pub(crate) mod table_1;
