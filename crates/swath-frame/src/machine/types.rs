//! What a [`Machine`](crate::Machine) is asked and answers.

use core::fmt;

use swath_arch::Order;

use crate::allocator::FreeError;
use crate::layout::ZoneKind;
use crate::zone::allocator::Mobility;

/// The most CPUs of a machine.
pub const CPUS_MAX: usize = 1024;

/// What a request says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// 2^order frames are wanted.
    pub order: Order,
    /// Whether the owner could be moved.
    pub mobility: Mobility,
    /// The highest zone whose frames will do. Only movable requests get
    /// frames of [`ZoneKind::Movable`]; for others it means Normal.
    pub highest: ZoneKind,
    /// The node whose memory is preferred.
    pub node: usize,
    /// The CPU that asks.
    pub cpu: usize,
    /// Whether the reserves below the watermarks may be used.
    pub urgent: bool,
}

/// Why a request was not served. No frame has been taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeError {
    /// There is no such node.
    Node {
        /// The number.
        node: usize,
    },
    /// There is no such CPU.
    Cpu {
        /// The number.
        cpu: usize,
    },
    /// No zone has such a block, or none that its watermark lets go.
    NoBlock {
        /// The order asked for.
        order: Order,
        /// Frames free in the zones that would do.
        free: u64,
    },
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node } => write!(f, "there is no node {node}"),
            Self::Cpu { cpu } => write!(f, "there is no CPU {cpu}"),
            Self::NoBlock { order, free } => {
                write!(f, "no block of order {order} to be had, {free} frames free")
            }
        }
    }
}

impl core::error::Error for TakeError {}

/// Why frames were not taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveError {
    /// There is no such CPU.
    Cpu {
        /// The number.
        cpu: usize,
    },
    /// The frames are not in use.
    Frames(FreeError),
}

impl fmt::Display for GiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { cpu } => write!(f, "there is no CPU {cpu}"),
            Self::Frames(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GiveError {}

/// What a machine has beside its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// How many CPUs, shared evenly by the nodes.
    pub cpus: usize,
    /// How much memory the watermarks keep free, in KiB; `None` for the
    /// kernel's default, [`min_free_kib`](crate::machine::watermark::min_free_kib).
    pub min_free_kib: Option<u64>,
    /// Whether there are per-CPU lists; without, each block comes from a zone.
    pub per_cpu_lists: bool,
}

/// Why a machine cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineError {
    /// The words are too few.
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The per-CPU lists are not as many as zones times CPUs.
    Lists {
        /// How many are needed.
        needed: usize,
        /// How many were given.
        given: usize,
    },
    /// The zones are not as many as the layout's.
    Zones {
        /// How many there should be.
        needed: usize,
        /// How many were given.
        given: usize,
    },
    /// A zone has another number of frames than in the layout, or some are in use.
    Frames {
        /// The zone's number.
        zone: usize,
        /// Frames in the layout.
        present: u64,
        /// Frames that the zone says are free.
        free: u64,
    },
    /// There are no CPUs, or more than [`CPUS_MAX`].
    Cpus {
        /// How many there should be.
        cpus: usize,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage { needed_words, given_words } => {
                write!(f, "{needed_words} words of storage needed, {given_words} given")
            }
            Self::Lists { needed, given } => {
                write!(f, "{needed} per-CPU lists needed, {given} given")
            }
            Self::Zones { needed, given } => write!(f, "{needed} zones needed, {given} given"),
            Self::Frames { zone, present, free } => {
                write!(f, "zone {zone} has {present} frames, of which {free} are free")
            }
            Self::Cpus { cpus } => write!(f, "{cpus} CPUs, not from 1 to {CPUS_MAX}"),
        }
    }
}

impl core::error::Error for MachineError {}

/// How much storage a machine needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineSize {
    /// Words of storage.
    pub words: usize,
    /// Per-CPU lists.
    pub lists: usize,
}
