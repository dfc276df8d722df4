//! The laboratory: workloads, traces, machine snapshots, studies and reports.

#![deny(unsafe_code)]

pub mod access;
pub mod access_champsim;
pub mod access_event;
pub mod access_lackey;
pub mod access_record;
#[cfg(target_os = "linux")]
mod access_sample;
pub mod access_swath;
mod access_syscall;
mod axis;
pub mod benchmark;
#[cfg(target_os = "linux")]
mod cl_allocator;
pub mod cl_availability;
#[cfg(target_os = "linux")]
pub mod cl_large;
pub mod cl_latency;
#[cfg(target_os = "linux")]
mod cl_memory;
pub mod cl_order;
#[cfg(target_os = "linux")]
mod cl_records;
#[cfg(target_os = "linux")]
mod cl_rounds;
mod cl_segments;
#[cfg(target_os = "linux")]
pub mod cl_structures;
mod cl_variant;
#[cfg(target_os = "linux")]
mod cl_ycsb;
mod claim;
#[cfg(target_os = "linux")]
mod command;
pub mod content;
pub mod count;
pub mod execute;
pub mod figure;
pub mod green_allocator;
mod green_blocks;
pub mod green_cost;
pub mod green_hotplug;
pub mod green_layout;
pub mod green_machine;
pub mod green_migration;
pub mod green_power;
pub mod green_recorded;
pub mod green_replay;
pub mod green_sample;
mod green_track;
pub mod green_view;
pub mod green_working_set;
mod green_zone;
pub mod heap_events;
pub mod heap_events_file;
pub mod heap_record;
#[cfg(target_os = "linux")]
mod heap_record_calls;
#[cfg(target_os = "linux")]
mod heap_record_live;
pub mod heap_summary;
mod input;
pub mod kernel;
mod kernel_objects;
pub mod memory;
mod output;
mod page;
pub mod page_events;
pub mod page_events_file;
pub mod page_events_live;
pub mod page_follow;
pub mod page_load;
pub mod page_replay;
mod page_steps;
mod palette;
pub mod pbs_allocation;
pub mod pbs_cases;
mod pbs_energy;
pub mod pbs_fit;
pub mod pbs_freelist;
pub mod pbs_readings;
pub mod pbs_system;
pub mod pbs_tlb;
pub mod pbs_widths;
pub mod plan;
mod plan_check;
pub mod plan_cl;
pub mod plan_green;
pub mod plan_green_cost;
pub mod plan_rt;
pub mod plan_superpages;
pub mod process;
pub mod real;
pub mod real_memory;
pub mod report;
pub mod results;
pub mod rt_footprint;
pub mod rt_heap;
pub mod rt_program;
pub mod rt_programs;
mod rt_real;
pub mod rt_run;
pub mod rt_runtimes;
pub mod rt_system;
pub mod rt_table;
pub mod rt_table_heap;
pub mod rt_workload;
pub mod snapshot;
pub mod snapshot_file;
pub mod snapshot_live;
pub mod studies;
pub mod study;
pub mod superpages;
mod superpages_figures;
mod superpages_real;
mod trace_ring;
pub mod translation;
pub mod workload;

/// The README's example, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
