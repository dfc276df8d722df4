//! Transparent superpages by reservation (*Bodek 2014*): pages are reserved in
//! runs at the first fault, promoted to a superpage when the run is full and
//! demoted when a part of it changes.
//!
//! [`kernel`], booted with a [`config`], holds the talk's rules of reserving, promoting and demoting over
//! [`objects`] that own the frames, [`files`] among them, on [`processors`] whose timers
//! have [`ticks`]; [`process`] and
//! [`execute`] let programs run there, which are the talk's ([`benchmark`]).
//! [`machine`] is the talk's machine and [`bench`](mod@bench) the points that are
//! measured; [`study`] with [`found`], [`claims`] and [`figures`] is the study, and
//! [`real`] measures the machine that runs it.

pub(crate) mod bench;
pub mod benchmark;
pub(crate) mod claims;
pub mod config;
pub mod execute;
pub(crate) mod figures;
pub(crate) mod files;
pub mod found;
pub mod kernel;
pub(crate) mod machine;
pub(crate) mod objects;
pub mod paper;
pub mod plan;
pub mod process;
pub mod processors;
pub(crate) mod real;
pub mod study;
pub(crate) mod ticks;
