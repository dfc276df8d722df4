#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod access;
#[cfg(target_os = "linux")]
pub(crate) mod command;
pub mod container;
pub mod heap;
pub mod histogram;
pub(crate) mod input;
pub mod inspect;
pub mod machine;
pub mod output;
pub mod pages;
pub(crate) mod programs;
pub mod unpack;
pub mod valgrind;
pub mod whole;
