//! Every state of small allocators, and every operation in each.
//!
//! From the allocator with all frames free, every operation is tried in every state that
//! is reached, until no new one is. So every sequence of operations of any length is
//! covered; those of four are counted. Beside each allocator goes a naive model that knows
//! which frames are out, and judges what every operation returns.

mod frames;
mod segments;
mod walk;
mod zones;
