//! The settings of a [machine](crate::papers::green::machine::computer), and the
//! reasons why a run on it ends early.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::layout::{BANK_FRAMES, LayoutPreset};
use swath_vm::migrate::daemon;

use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::pages::load::LoadMachine;

/// A machine of the paper.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
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

/// The banks over which neighbouring addresses are spread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum Interleaved {
    /// None: a bank is powered by itself.
    #[default]
    #[serde(rename = "none")]
    None,
    /// Two: they are powered together.
    #[serde(rename = "2-way")]
    TwoWay,
    /// All of them. What is powered by itself is a group of sub-arrays, the same in every bank: a
    /// [`SUB_ARRAY_GROUPS`]th of memory (GreenDIMM: Lee et al., MICRO 2021).
    #[serde(rename = "all")]
    All,
}

/// Groups of sub-arrays that a memory has: rows of a DDR4 bank are in 64 or 128 sub-arrays.
pub const SUB_ARRAY_GROUPS: u64 = 64;

impl Interleaved {
    /// Its name in grids and tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TwoWay => "2-way",
            Self::All => "all",
        }
    }
}

/// The migration daemon of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DaemonConfig {
    /// Milliseconds from the end of one bank to the search for the next.
    pub interval_ms: u64,
    /// Milliseconds for which a bank that failed is left alone.
    pub retry_ms: u64,
    /// The most of a bank that may be in use, in thousandths.
    pub occupied_permille_max: u32,
    /// Free frames that must remain where frames are moved to.
    pub reserve_frames: u64,
    /// Frames moved in a step of [`TICK_US`](crate::papers::green::machine::computer::TICK_US); twice as many where
    /// banks are interleaved.
    pub budget_frames: u64,
    /// Milliseconds after a bank was opened in which none is begun with; 0 for no hysteresis.
    pub settle_ms: u64,
}

impl DaemonConfig {
    /// The daemon's own defaults, but for hysteresis, since what is replayed may be over before any
    /// would end; 16 MiB are moved in each tick.
    pub const EAGER: Self = Self {
        interval_ms: daemon::MigrationConfig::DEFAULT.interval_ns / 1_000_000,
        retry_ms: daemon::MigrationConfig::DEFAULT.retry_ns / 1_000_000,
        occupied_permille_max: daemon::MigrationConfig::DEFAULT.occupied_permille_max,
        reserve_frames: daemon::MigrationConfig::DEFAULT.reserve_frames,
        budget_frames: 4096,
        settle_ms: 0,
    };
}

/// The settings of a machine to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GreenConfig {
    /// The allocator of its zones.
    pub allocator: AllocatorName,
    /// Its memory.
    pub machine: MachineName,
    /// Number of CPUs, shared evenly by the nodes.
    pub cpus: u16,
    /// The banks that share their addresses.
    pub interleaving: Interleaved,
    /// Frames of a bank; where all are interleaved, groups of sub-arrays have their own size.
    pub bank_frames: u64,
    /// The daemon that empties banks by migration, if there is one.
    pub daemon: Option<DaemonConfig>,
}

impl GreenConfig {
    /// The machine with its own number of CPUs, banks of 256 MiB, no migration.
    pub fn new(allocator: AllocatorName, machine: MachineName) -> Self {
        let cpus = machine.load().cpus;
        Self {
            allocator,
            machine,
            cpus,
            interleaving: Interleaved::None,
            bank_frames: BANK_FRAMES,
            daemon: None,
        }
    }

    /// Returns true if an area is lent to clean pages of files alone. Each zone has a daemon of its own
    /// then, since nothing may be moved into that area.
    pub(crate) fn is_guaranteed(&self) -> bool {
        self.allocator == AllocatorName::LinuxGuaranteed
    }
}

/// Reasons why a run ends early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreenError {
    /// The machine cannot be built.
    #[error("a machine of {allocator:?}: {what}")]
    Build {
        /// The allocator.
        allocator: AllocatorName,
        /// The reason.
        what: String,
    },
    /// A request names a handle that is in use.
    #[error("request at {time_us} µs: handle {id} is in use")]
    HandleInUse {
        /// Simulated time.
        time_us: u64,
        /// The handle.
        id: u32,
    },
    /// A release names a handle that is not in use.
    #[error("release at {time_us} µs: handle {id} is not in use")]
    NoHandle {
        /// Simulated time.
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
        /// Simulated time.
        time_us: u64,
        /// The reason.
        what: String,
    },
}
