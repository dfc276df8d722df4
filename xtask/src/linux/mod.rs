//! Builds the Linux module in linux/ for a kernel of the distribution's, and tries it in guests of that kernel
//! and of small ones under an emulator. Packages are fetched and unpacked beside the build; none is installed.

mod command;
mod fault;
mod guest;
mod library;
mod live;
mod module;
mod packages;
mod trial;

pub(crate) use trial::{Trial, run};
