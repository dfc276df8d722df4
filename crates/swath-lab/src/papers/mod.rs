//! The papers, a folder for each: its citation and its list of studies, the studies with
//! their plans beside them, and the models that only they need.

pub mod clmalloc;
pub mod green;
pub mod page_buddy;
pub mod real_time;
pub mod superpages;
