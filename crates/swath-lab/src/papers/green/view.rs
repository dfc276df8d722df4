//! What a [green machine](crate::papers::green::machine) is told, and what it shows.

use serde::{Deserialize, Serialize};
use swath_frame::layout::{BANK_FRAMES, Layout, LayoutPreset};
use swath_frame::machine::{MemoryUnit, UnitState};
use swath_hw::power::BankEnergy;
use swath_vm::migrate::daemon;

use crate::papers::green::allocator::{AllocatorName, FallbackTally};
use crate::source::load::LoadMachine;

/// A machine of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, clap::ValueEnum)]
pub enum MachineName {
    /// 4 GiB in one node, 4 processors.
    #[serde(rename = "4g")]
    #[value(name = "4g")]
    FourGib,
    /// 32 GiB in two nodes, 16 processors.
    #[serde(rename = "32g")]
    #[value(name = "32g")]
    ThirtyTwoGib,
}

impl MachineName {
    /// Its memory.
    pub const fn preset(self) -> LayoutPreset {
        match self {
            Self::FourGib => LayoutPreset::FourGib,
            Self::ThirtyTwoGib => LayoutPreset::ThirtyTwoGib,
        }
    }

    /// The same machine as a load sees it.
    pub const fn load(self) -> LoadMachine {
        match self {
            Self::FourGib => LoadMachine::GIB_4,
            Self::ThirtyTwoGib => LoadMachine::GIB_32,
        }
    }

    /// Its name in figures and tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::FourGib => "4 GiB",
            Self::ThirtyTwoGib => "32 GiB",
        }
    }
}

/// The migration daemon of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonPlan {
    /// Milliseconds from the end of one bank to the search for the next.
    pub interval_ms: u64,
    /// Milliseconds for which a bank that failed is left alone.
    pub retry_ms: u64,
    /// The most of a bank that may be in use, in thousandths.
    pub occupied_permille_max: u32,
    /// Free frames that must remain where frames are moved to.
    pub reserve_frames: u64,
    /// Frames moved in a step of [`TICK_US`](crate::papers::green::machine::TICK_US); twice as many where
    /// two banks are interleaved.
    pub budget_frames: u64,
}

impl DaemonPlan {
    /// The daemon's own defaults; 16 MiB are moved in each tick.
    pub const DEFAULT: Self = Self {
        interval_ms: daemon::MigrationConfig::DEFAULT.interval_ns / 1_000_000,
        retry_ms: daemon::MigrationConfig::DEFAULT.retry_ns / 1_000_000,
        occupied_permille_max: daemon::MigrationConfig::DEFAULT.occupied_permille_max,
        reserve_frames: daemon::MigrationConfig::DEFAULT.reserve_frames,
        budget_frames: 4096,
    };
}

/// What machine to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GreenConfig {
    /// The allocator of its zones.
    pub allocator: AllocatorName,
    /// Its memory.
    pub machine: MachineName,
    /// How many CPUs, shared evenly by the nodes.
    pub cpus: u16,
    /// Whether neighbouring banks share their addresses, two by two.
    pub interleaved: bool,
    /// Frames of a bank.
    pub bank_frames: u64,
    /// Whether banks are emptied by migration, and how.
    pub daemon: Option<DaemonPlan>,
}

impl GreenConfig {
    /// The machine with its own number of CPUs, banks of 256 MiB, no migration.
    pub fn new(allocator: AllocatorName, machine: MachineName) -> Self {
        let cpus = machine.load().cpus;
        Self {
            allocator,
            machine,
            cpus,
            interleaved: false,
            bank_frames: BANK_FRAMES,
            daemon: None,
        }
    }
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreenError {
    /// The machine cannot be built.
    #[error("a machine of {allocator:?}: {what}")]
    Build {
        /// The allocator.
        allocator: AllocatorName,
        /// Why not.
        what: String,
    },
    /// A request names a handle that is in use.
    #[error("request at {time_us} µs: handle {id} is in use")]
    HandleInUse {
        /// When.
        time_us: u64,
        /// The handle.
        id: u32,
    },
    /// A release names a handle that is not in use.
    #[error("release at {time_us} µs: handle {id} is not in use")]
    NoHandle {
        /// When.
        time_us: u64,
        /// The handle.
        id: u32,
    },
    /// Requests are not in the order of time.
    #[error("a request at {time_us} µs after the time {now_us} µs")]
    Past {
        /// The request's time.
        time_us: u64,
        /// The machine's.
        now_us: u64,
    },
    /// The allocator refused what it should take: its fault or the harness's.
    #[error("at {time_us} µs: {what}")]
    Machine {
        /// When.
        time_us: u64,
        /// What it said.
        what: String,
    },
}

/// What has been counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
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
    /// Frames that were in use in a bank when it went down: 0, or content was lost.
    pub lost_frames: u64,
    /// Banks brought back by hotplug because memory ran low.
    pub onlined: u64,
}

/// What the machine looks like at some time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Look {
    /// When, in simulated microseconds.
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
    /// Requests served from memory of the other kind, where the allocator
    /// counts them.
    pub fallbacks: Option<u64>,
    /// Everything else that was counted.
    pub counts: Counts,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FreeBlocks {
    /// How many there are.
    pub count: u64,
    /// Frames of the largest.
    pub largest_frames: u64,
}

/// A machine as an observer sees it.
pub trait View {
    /// What it looks like.
    fn look(&self) -> Look;
    /// What a section or bank is used for; `None` if there is no such.
    fn unit(&self, unit: MemoryUnit) -> Option<UnitState>;
    /// How the memory is divided.
    fn layout(&self) -> &Layout;
    /// Its free blocks. O(blocks).
    fn free_blocks(&self) -> FreeBlocks;
    /// What its banks have taken so far.
    fn energy(&self) -> BankEnergy;
    /// Linux's fallbacks in detail.
    fn tally(&self) -> Option<FallbackTally>;
    /// What the daemons have done, summed over the nodes.
    fn migration(&self) -> daemon::MigrationStatistics;
    /// Frames that each bank emptied so far held when it was emptied, in order.
    fn emptied(&self) -> &[u64];
    /// Walks everything: every frame is in one place, and its owner knows which.
    ///
    /// # Errors
    /// What does not hold.
    fn check(&self) -> Result<(), String>;
}
