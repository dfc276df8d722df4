#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod colt;
pub mod hashed;
pub mod next_fit;
