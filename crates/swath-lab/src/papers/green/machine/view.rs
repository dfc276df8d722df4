//! The state of a [machine](crate::papers::green::machine::computer) as an observer sees it.

use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order};
use swath_frame::layout::Layout;
use swath_frame::machine::{MemoryUnit, UnitState};
use swath_hw::power::BankEnergy;
use swath_vm::migrate::daemon;

use crate::papers::green::machine::allocator::FallbackTally;
use crate::papers::green::machine::places::Places;

/// Events counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MachineCounts {
    /// Requests.
    pub requests: u64,
    /// Requests that got nothing.
    pub failed: u64,
    /// Movable requests beyond order 3 that got single frames instead.
    pub split: u64,
    /// Unmovable blocks that went into a section of movable memory, which could
    /// be removed until then.
    pub spoiled: u64,
    /// Banks that left deep power-down.
    pub woken: u64,
    /// Nanoseconds that requests waited for these.
    pub waited_ns: u64,
    /// Frames that were in use in a bank when it went down: 0, or content was lost.
    pub lost_frames: u64,
    /// Banks brought back by hotplug because memory ran low.
    pub onlined: u64,
    /// Times that a request was refused at first, or waited for a bank that hotplug brought back.
    #[serde(default)]
    pub stalled: u64,
    /// Requests for 2 MiB and more.
    #[serde(default)]
    pub huge_requests: u64,
    /// Those of them that got one block.
    #[serde(default)]
    pub huge_served: u64,
    /// Frames of files that were dropped to make room for a huge page.
    #[serde(default)]
    pub dropped_frames: u64,
}

/// The state of the machine at some time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Simulated time in microseconds.
    pub time_us: u64,
    /// All frames.
    pub total_frames: u64,
    /// Frames that are not in use, resting ones included.
    pub free_frames: u64,
    /// Frames in use by unmovable and reclaimable owners.
    pub unmovable_frames: u64,
    /// Banks that have frames.
    pub banks: u64,
    /// Banks with a frame in use.
    pub used_banks: u64,
    /// Banks of which more than 90% but not all is free.
    pub nearly_free_banks: u64,
    /// Banks that rest.
    pub resting_banks: u64,
    /// Frames of these.
    pub resting_frames: u64,
    /// Sections that have frames.
    pub sections: u64,
    /// Sections that could be taken offline once their movable frames have moved.
    pub removable_sections: u64,
    /// Sections with at least one unmovable frame.
    pub kernel_sections: u64,
    /// Frames moved by the daemons.
    pub moved_frames: u64,
    /// Banks that the daemons emptied.
    pub emptied_banks: u64,
    /// Banks that a pool got from POOL_OFFLINE, or that hotplug brought back.
    pub opened_banks: u64,
    /// Requests served from memory of the other kind, where the allocator
    /// counts them.
    pub fallbacks: Option<u64>,
    /// Everything else that was counted.
    pub counts: MachineCounts,
}

impl Look {
    /// c: resting memory as a share of free memory (section V-D); 1 if none is free.
    pub fn c(&self) -> f64 {
        if self.free_frames == 0 {
            return 1.0;
        }
        self.resting_frames as f64 / self.free_frames as f64
    }

    /// Resting memory as a share of all.
    pub fn resting_share(&self) -> f64 {
        self.resting_frames as f64 / self.total_frames as f64
    }
}

/// The free blocks of all zones, those in per-CPU lists and resting ones aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FreeBlocks {
    /// Number of blocks.
    pub count: u64,
    /// Frames of the largest.
    pub largest_frames: u64,
}

/// A machine as an observer sees it.
pub trait MachineView {
    /// Its state now.
    fn look(&self) -> Look;
    /// The use of a section or bank; `None` if there is no such.
    fn unit(&self, unit: MemoryUnit) -> Option<UnitState>;
    /// The use of any range of frames. O(frames / 64).
    fn frames(&self, frames: Extent) -> UnitState;
    /// Returns true if a bank rests.
    fn rests(&self, bank: usize) -> bool;
    /// The division of its memory.
    fn layout(&self) -> &Layout;
    /// The places for blocks of this order. O(frames / 64).
    fn places(&self, order: Order) -> Places;
    /// Its free blocks. O(blocks).
    fn free_blocks(&self) -> FreeBlocks;
    /// Energy that its banks have taken so far.
    fn energy(&self) -> BankEnergy;
    /// Linux's fallbacks in detail.
    fn tally(&self) -> Option<FallbackTally>;
    /// Work of the daemons, summed over the nodes.
    fn migration(&self) -> daemon::MigrationStatistics;
    /// Frames that each bank emptied so far held when it was emptied, in order.
    fn emptied(&self) -> &[u64];
    /// Walks everything: every frame is in one place, and its owner knows which.
    ///
    /// # Errors
    /// What does not hold.
    fn check(&self) -> Result<(), String>;
}
