//! Addresses, frame and page numbers, orders and ranges, and their algebra.
//!
//! **Frame** is physical, **page** is virtual. Every number is a newtype and
//! every conversion is spelled out, so that a frame number cannot be passed
//! where a page number is meant. Rounding, distances, intersections and the
//! division of a range into naturally aligned blocks stand here once, so that
//! no other crate computes them on raw integers.
//!
//! Alignments are powers of two and given as their logarithm, as an order is.

pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod range;

pub use number::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT, Pfn, PhysAddr, VirtAddr, Vpn};
pub use order::Order;
pub use range::{Extent, PageRange};
