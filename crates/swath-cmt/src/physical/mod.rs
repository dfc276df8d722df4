//! Physical memory, as far as the kernel shows it: the frames behind addresses, and the areas that
//! the machine has. Nothing here allocates: it is used from within an allocation.

pub(crate) mod areas;
pub(crate) mod file;
pub(crate) mod page_map;
