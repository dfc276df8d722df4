//! Languages of operations: bytes choose what is done next, and after each step the structure and
//! a naive model of it, or the hardware that reads its bytes, say the same.

pub mod address_space;
pub mod bank_zone;
mod bus;
pub mod c_interface;
pub mod cmt;
pub mod front;
pub mod heap;
pub mod linux_zone;
pub mod machine;
mod memory;
pub mod migration;
pub mod page_buddy;
pub mod page_zone;
pub mod pmap;
pub mod pool;
pub mod quick_fit;
pub mod regions;
pub mod reservations;
pub mod segments;
