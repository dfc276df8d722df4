//! A plain pool beside the real one, for tests: of each call it tells beforehand what place comes back, what is held where and
//! what goes back.

mod agrees;
mod both;
pub(crate) mod fixture;
mod frees;
mod heaps;
mod pool;
