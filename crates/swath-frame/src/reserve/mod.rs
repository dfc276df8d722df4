//! Reservations of superpages, after *Bodek 2014*.
//!
//! The first page of an object that is touched reserves the frames of a whole
//! superpage; later pages are **populated** in their places, and when all are,
//! the mapping can be promoted without a copy. Under shortage the reservation
//! least likely to fill is **broken up**, and its unpopulated frames are
//! **reclaimed**. [`Reservations`] does so over any
//! [`FrameAllocator`](crate::FrameAllocator), at the orders of
//! [`ReservationLevels`].

pub(crate) mod allocator;
mod break_up;
pub(crate) mod check;
pub mod error;
#[cfg(test)]
mod flips;
pub mod levels;
#[cfg(test)]
mod model;
pub mod plausible;
mod reservation;
pub mod reservations;
pub(crate) mod slots;
pub(crate) mod table;

pub use error::{PopulateError, ReservationsError};
pub use levels::{LEVELS_MAX, ReservationLevels, ReservationLevelsError};
pub use reservation::{FrameSource, Populated, Reservation, ReservationCounters};
pub use reservations::Reservations;
