//! Taking sections and banks offline, and bringing them back.

use core::ops::DerefMut;

use swath_arch::{Extent, Pfn};

use crate::machine::nodes::Machine;
use crate::machine::per_cpu::PerCpuLists;
use crate::machine::usage::{Isolation, MemoryUnit, UnitState, extent};
use crate::zone::allocator::{IsolateError, ZoneAllocator};

/// Reasons why a section or bank was not isolated, taken offline or brought
/// back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HotplugError {
    /// There is no such section or bank.
    #[error("there is no {unit}")]
    NoUnit {
        /// The number.
        unit: MemoryUnit,
    },
    /// It has frames of several zones: it stays in the allocation pool.
    #[error("{unit} has frames of several zones")]
    CrossesZones {
        /// The section or bank.
        unit: MemoryUnit,
    },
    /// Not all of it is memory.
    #[error("{unit} lacks {frames} frames")]
    Holes {
        /// The section or bank.
        unit: MemoryUnit,
        /// Frames that are missing.
        frames: u64,
    },
    /// It holds frames that cannot be moved.
    #[error("{unit} holds {frames} unmovable frames, first {frame}")]
    Unmovable {
        /// The section or bank.
        unit: MemoryUnit,
        /// The first such frame.
        frame: Pfn,
        /// Their number.
        frames: u64,
    },
    /// All its frames in use are movable, but they have not been moved.
    #[error("{unit} has {frames} frames in use")]
    InUse {
        /// The section or bank.
        unit: MemoryUnit,
        /// Their number.
        frames: u64,
    },
    /// It is not in the state that the call changes.
    #[error("{unit} is {isolation}")]
    State {
        /// The section or bank.
        unit: MemoryUnit,
        /// The state in which it is.
        isolation: Isolation,
    },
    /// Its zone's allocator does not isolate it.
    #[error("{unit}: {error}")]
    Zone {
        /// The section or bank.
        unit: MemoryUnit,
        /// The zone's reason.
        error: IsolateError,
    },
}

impl<Z, Zs, Ls, W> Machine<Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Returns the use of a section's or bank's frames; `None` if there is no
    /// such unit. O(1).
    pub fn unit_state(&self, unit: MemoryUnit) -> Option<UnitState> {
        extent(&self.layout, unit)?;
        Some(self.usage.state(&self.words, unit))
    }

    /// [`unit_state`](Self::unit_state) of a section.
    pub fn section_state(&self, section: usize) -> Option<UnitState> {
        self.unit_state(MemoryUnit::Section(section))
    }

    /// [`unit_state`](Self::unit_state) of a bank.
    pub fn bank_state(&self, bank: usize) -> Option<UnitState> {
        self.unit_state(MemoryUnit::Bank(bank))
    }

    /// Counts the frames of any range by their use; those beyond the machine are holes, and the range
    /// is no unit that could be isolated. O(frames / 64).
    pub fn frames_state(&self, frames: Extent) -> UnitState {
        self.usage.counts(&self.words, frames)
    }

    /// Returns true if a section could be taken offline once its frames in use
    /// have been moved: it is memory of one zone without holes, and none of its
    /// frames is unmovable. O(1).
    pub fn is_removable(&self, section: usize) -> bool {
        self.whole(MemoryUnit::Section(section)).is_ok_and(|(_, _, state)| state.unmovable == 0)
    }

    /// Succeeds if nothing prevents a unit from being taken offline once its
    /// movable frames have been moved. O(1), and O(frames of the unit / 64)
    /// where a frame is unmovable.
    ///
    /// # Errors
    /// A [`HotplugError`]: the unit is not whole, offline, or holds a frame that
    /// cannot be moved.
    pub fn removable(&self, unit: MemoryUnit) -> Result<UnitState, HotplugError> {
        let (extent, _, state) = self.whole(unit)?;
        if state.isolation == Isolation::Offline {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        if state.unmovable == 0 {
            return Ok(state);
        }
        let frame = self.usage.find_unmovable(&self.words, extent).unwrap_or(extent.start);
        Err(HotplugError::Unmovable { unit, frame, frames: state.unmovable })
    }

    /// The first frame of `extent` that is in use; frames in
    /// per-CPU lists are not. O(frames of the extent / 64) up to that one.
    pub fn next_used(&self, extent: Extent) -> Option<Pfn> {
        extent.checked_end()?;
        self.usage.find_used(&self.words, extent)
    }

    /// The unit's frames, its zone and its state, if it is whole.
    fn whole(&self, unit: MemoryUnit) -> Result<(Extent, usize, UnitState), HotplugError> {
        let extent = extent(&self.layout, unit).ok_or(HotplugError::NoUnit { unit })?;
        let state = self.usage.state(&self.words, unit);
        if state.present < extent.count {
            let frames = extent.count - state.present;
            return Err(HotplugError::Holes { unit, frames });
        }
        let zone = self.usage.zone_of_unit(&self.words, unit);
        let zone = zone.ok_or(HotplugError::CrossesZones { unit })?;
        Ok((extent, zone, state))
    }

    /// From now on, hands out no frame of a unit, whether free now or given
    /// later. The per-CPU lists of its zone are emptied.
    ///
    /// # Errors
    /// A [`HotplugError`]; nothing changes but where free frames wait.
    pub fn isolate(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let (extent, zone, state) = self.whole(unit)?;
        if state.isolation != Isolation::None {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        self.drain_zone(zone);
        let isolated = self.zones[zone].isolate(extent);
        isolated.map_err(|error| HotplugError::Zone { unit, error })?;
        self.usage.set_isolation(&mut self.words, unit, Isolation::Isolated);
        Ok(())
    }

    /// Ends the isolation of a unit that is not offline.
    ///
    /// # Errors
    /// A [`HotplugError`]; nothing changes.
    pub fn rejoin(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        self.leave(unit, Isolation::Isolated)
    }

    /// Takes a unit offline, isolating it first if need be: its frames are
    /// gone, and the watermarks are those of the memory that is left. O(frames
    /// of the unit / 64), the zone's isolation aside.
    ///
    /// # Errors
    /// A [`HotplugError`] that says why the unit cannot go; nothing changes but
    /// where free frames wait.
    pub fn offline(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let (extent, zone, _) = self.whole(unit)?;
        let state = self.removable(unit)?;
        if state.movable > 0 {
            return Err(HotplugError::InUse { unit, frames: state.movable });
        }
        if state.isolation == Isolation::None {
            self.isolate(unit)?;
        }
        self.usage.set_isolation(&mut self.words, unit, Isolation::Offline);
        self.states[zone].offline_frames += extent.count;
        self.renew_marks();
        Ok(())
    }

    /// Brings an offline unit back; all its frames are free.
    ///
    /// # Errors
    /// A [`HotplugError`]; nothing changes.
    pub fn online(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        self.leave(unit, Isolation::Offline)
    }

    fn leave(&mut self, unit: MemoryUnit, from: Isolation) -> Result<(), HotplugError> {
        let (extent, zone, state) = self.whole(unit)?;
        if state.isolation != from {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        let rejoined = self.zones[zone].rejoin(extent);
        rejoined.map_err(|error| HotplugError::Zone { unit, error })?;
        self.usage.set_isolation(&mut self.words, unit, Isolation::None);
        if from == Isolation::Offline {
            self.states[zone].offline_frames -= extent.count;
            self.renew_marks();
        }
        Ok(())
    }
}
