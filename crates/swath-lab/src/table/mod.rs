//! Results as one tidy table: a row for each point of a series and each claim, with named
//! columns of one type, for data frames.
//!
//! ```text
//!   StudyResult ──► rows ──► Table ──► Parquet, or Arrow
//! ```

pub mod column;
pub mod parquet;
pub mod result;
