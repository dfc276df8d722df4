//! TODO papers.

pub mod clmalloc;
pub mod green;
pub mod page_buddy;
pub mod real_time;
pub mod superpages;
