//! An accelerator's way to its segments: registers of base, bound and target, beside an IOMMU with
//! page tables. The introduction of *Zhang, Lu and Zhang* sets "simple segment mapping" against the
//! IOMMU, and does not measure either.
//!
//! [`load`] places the segments and makes an accelerator's requests, [`machine`] runs them through a
//! way of translation before the timed memory, [`study`] compares.

pub(crate) mod load;
pub(crate) mod machine;
pub mod study;
