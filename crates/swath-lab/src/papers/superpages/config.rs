//! The configuration of a [kernel](crate::papers::superpages::kernel).

use swath_arch::{Extent, Format};
use swath_frame::ReservationLevels;
use swath_vm::{Sizes, Status};

use crate::papers::superpages::processors::Ticks;

/// Costs of the kernel's work in cycles of the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Entering and leaving the kernel for a page fault, and finding the page.
    pub fault_cycles: u64,
    /// Clearing a frame.
    pub zero_cycles: u64,
    /// Copying a frame.
    pub copy_cycles: u64,
    /// Switching to another process.
    pub switch_cycles: u64,
    /// Unmapping one page, of whatever size.
    pub unmap_cycles: u64,
    /// Cleaning a descriptor from the caches to memory, and waiting for it.
    pub clean_cycles: u64,
    /// Telling the other processors to invalidate, and waiting for them.
    pub shootdown_cycles: u64,
}

/// A machine and its kernel's policy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The translation format.
    pub format: Format,
    /// Superpage sizes; none is superpages off.
    pub sizes: Sizes,
    /// The levels at which frames are reserved, with superpages or without: in FreeBSD what turns
    /// them off (`vm.pmap.sp_enabled` in arm's `pmap_init`) is not asked where frames are taken
    /// (`vm_reserv.c`).
    pub levels: ReservationLevels,
    /// Place of the accessed and dirty flags.
    pub status: Status,
    /// Frames for tables, from frame 0 on.
    pub table_frames: u64,
    /// Free blocks for data, after those.
    pub data: Vec<Extent>,
    /// PV entries in all.
    pub reverse_entries: u32,
    /// Costs of the kernel's work.
    pub costs: Costs,
    /// Processors, 1 or more.
    pub processors: usize,
    /// Files lie so that their superpages align with the first mapping; otherwise a page off.
    pub files_aligned: bool,
    /// The timer, if it ticks.
    pub ticks: Option<Ticks>,
}
