//! The configuration of a machine, and the errors of building one.

use swath_arch::Extent;

/// The most CPUs of a machine.
pub const CPUS_MAX: usize = 1024;

/// The properties of a machine beside its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// Number of CPUs, shared evenly by the nodes.
    pub cpus: usize,
    /// Memory that the watermarks keep free, in KiB; `None` for the kernel's
    /// default, [`min_free_kib`](crate::machine::watermark::min_free_kib).
    pub min_free_kib: Option<u64>,
    /// True if there are per-CPU lists; without, each block comes from a zone.
    pub per_cpu_lists: bool,
}

/// Reasons why a machine cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineError {
    /// The words are too few.
    #[error("{needed_words} words of storage needed, {given_words} given")]
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The per-CPU lists are not as many as zones times CPUs.
    #[error("{needed} per-CPU lists needed, {given} given")]
    Lists {
        /// Number needed.
        needed: usize,
        /// Number given.
        given: usize,
    },
    /// The zones are not as many as the layout's.
    #[error("{needed} zones needed, {given} given")]
    Zones {
        /// Number expected.
        needed: usize,
        /// Number given.
        given: usize,
    },
    /// A zone has another number of frames than in the layout, or of free ones than there are.
    #[error("zone {zone} has {present} frames, of which {free} are free")]
    Frames {
        /// The zone's number.
        zone: usize,
        /// Frames in the layout.
        present: u64,
        /// Frames that the zone says are free.
        free: u64,
    },
    /// Frames said to be in use are no frames of the map, or stand twice.
    #[error("{extent} is not free, or no memory")]
    Used {
        /// The extent.
        extent: Extent,
    },
    /// There are no CPUs, or more than [`CPUS_MAX`].
    #[error("{cpus} CPUs, not from 1 to {CPUS_MAX}")]
    Cpus {
        /// Number expected.
        cpus: usize,
    },
}

/// The storage that a machine needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineSize {
    /// Words of storage.
    pub words: usize,
    /// Per-CPU lists.
    pub lists: usize,
}
