//! The virtual regions tree (VRT), which finds the region that a page lies in.
//!
//! 2^K pages are partitioned into intervals, and an interval is known by its
//! first page, its *start*. To split is to add a start, to unite is to remove
//! one, to find is to look for the last start at or below a page: the
//! union-split-find problem (Böhnert and Scholl, section II-C2).
//!
//! | tree | for |
//! |---|---|
//! | [`DenseTree`] | a space whose pages have a bit each: the default |
//! | [`LayeredTree`] | comparison: the structure that the paper describes |
//! | [`SparseTree`] | a space too large for a bit per page |

pub mod dense;
pub mod layered;
#[cfg(test)]
mod model;
pub mod partition;
pub mod sparse;

pub use dense::{DenseTree, dense_tree_words};
pub use layered::LayeredTree;
pub use partition::{RegionTree, TreeError, TreeTooShort};
pub use sparse::SparseTree;
