#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod hash_join;
pub mod more_writes;
