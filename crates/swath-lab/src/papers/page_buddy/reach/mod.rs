//! Beside *Duong and Hur*: what the TLBs of processors that are sold gain from blocks of any length, and
//! what other proposals do; and the same under a hypervisor.
//!
//! | part | file |
//! |---|---|
//! | the plan, the figures | [`study`] |
//! | the TLBs, and one measurement | [`ways`] |
//! | what such TLBs cost in hardware: the plan, the figures; the table of costs | [`hardware`], `costs` |
//! | a guest's table over its host's | [`nested`] |
//! | physical memory of which few frames have bytes | [`sparse`] |

pub(crate) mod costs;
pub mod hardware;
pub mod nested;
pub mod sparse;
pub mod study;
pub mod ways;
