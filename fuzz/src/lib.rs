#![doc = include_str!("../README.md")]

#[cfg(test)]
mod bounded;
pub mod hardware;
pub mod operations;
#[cfg(feature = "parsers")]
pub mod parsers;
pub mod target;
pub mod targets;
