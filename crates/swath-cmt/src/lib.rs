//! TODO.

pub mod backing;
pub mod calls;
pub mod choice;
pub mod global;
pub mod lock;
pub mod physical;
pub mod pool;
pub mod runs;
pub mod thread;

pub use choice::cmt_options;
pub use global::Cmt;
