//! TODO testing.

#[cfg(feature = "testing")]
pub mod frames;
#[cfg(feature = "testing")]
pub mod lists;
#[cfg(feature = "testing")]
pub mod segments;
#[cfg(feature = "testing")]
pub mod zones;
