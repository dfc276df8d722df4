//! Virtual memory with constant bounds, and its RTMMU (*Böhnert and Scholl 2014*): a heap over
//! regions that map and unmap any number of pages by a few words, beside the same heap over a page
//! table.
//!
//! [`heap`] is the heap over regions, [`table`] and [`table_heap`] are the conventional system of
//! section V-A; [`system`] puts both behind one interface and counts the words they touch.
//! [`workload`] is the synthetic workload of section V-A and [`program`] recorded ones, [`run`] one
//! run of either. [`runtimes`] is Fig. 5 and 6 by [`words`] and [`instructions`], [`footprint`]
//! Fig. 7, [`programs`] Table I, [`hardware`] all of it in cycles of hardware; [`real`] measures releases on the machine that runs the study.

pub mod footprint;
pub mod hardware;
pub mod heap;
pub(crate) mod instructions;
pub mod paper;
pub mod plan;
pub mod program;
pub mod programs;
pub(crate) mod real;
pub mod run;
pub mod runtimes;
pub mod system;
pub mod table;
pub mod table_heap;
pub(crate) mod words;
pub mod workload;
