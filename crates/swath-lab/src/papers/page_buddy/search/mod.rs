//! Readings of Table 3 searched jointly: what it leaves open as axes, their product, each
//! reading's ten claims, and which of them exclude each other.
//!
//! A reading takes one core about 2.3 seconds in a release build, as its cells are
//! few and runs that readings cannot tell apart are shared; `search.toml`'s full form of 500 takes some
//! 12 minutes on two idle cores with the front measured again, its quick form of 25 half a minute.
//!
//! A search judges nothing: whatever it finds was chosen after looking, and each score bears the
//! number of parameters that were.

pub(crate) mod figures;
pub mod found;
pub mod front;
pub mod measure;
pub mod plan;
pub mod space;
pub mod study;
