//! The machine's judge: a state for each frame and each unit, and what follows from them.

use std::collections::BTreeMap;
use std::ops::Range;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Layout, ZoneKind};
use swath_frame::machine::watermark::{Watermarks, min_free_kib, watermarks};
use swath_frame::machine::{HotplugError, UnitState};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{
    BlockRequest, FrameFreeError, IsolateError, Isolation, MachineConfig, MemoryMap, MemoryUnit,
    Mobility,
};

use super::super::memory::extent;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Hole,
    Free,
    Movable,
    Unmovable,
}

/// A state for each frame and for each unit.
pub(super) struct Model<'l> {
    pub(super) layout: &'l Layout,
    pub(super) config: MachineConfig,
    /// The first frame of `states`.
    pub(super) first: u64,
    pub(super) states: Vec<State>,
    pub(super) sections: Vec<Isolation>,
    pub(super) banks: Vec<Isolation>,
    /// Whether each unit has frames of several zones.
    crosses: BTreeMap<(bool, usize), bool>,
    /// What follows from these: which frames are free and not isolated, how many of each zone, and
    /// the watermarks.
    pub(super) open: Vec<bool>,
    pub(super) free: Vec<u64>,
    pub(super) marks: Vec<Watermarks>,
}

impl<'l> Model<'l> {
    pub(super) fn new(map: &MemoryMap<'_>, layout: &'l Layout, config: MachineConfig) -> Self {
        let span = map.span();
        let state = |frame| if map.contains(frame) { State::Free } else { State::Hole };
        let mut model = Self {
            layout,
            config,
            first: span.start.raw(),
            states: span.iter().map(state).collect(),
            sections: vec![Isolation::None; layout.sections()],
            banks: vec![Isolation::None; layout.banks()],
            crosses: BTreeMap::new(),
            open: Vec::new(),
            free: Vec::new(),
            marks: Vec::new(),
        };
        let units: Vec<_> = model.units().collect();
        for unit in units {
            let crosses = model.crosses_zones(unit);
            model.crosses.insert(place(unit), crosses);
        }
        model.renew();
        model
    }

    pub(super) fn units(&self) -> impl Iterator<Item = MemoryUnit> + use<> {
        let sections = (0..self.sections.len()).map(MemoryUnit::Section);
        sections.chain((0..self.banks.len()).map(MemoryUnit::Bank))
    }

    /// Computes anew what follows from the states of frames and units.
    pub(super) fn renew(&mut self) {
        let frames = (self.first..).map(Pfn::new).take(self.states.len());
        self.open = frames
            .map(|frame| self.state(frame) == State::Free && !self.is_isolated(frame))
            .collect();
        let zones = self.layout.zones();
        self.free = zones
            .iter()
            .map(|zone| self.open_of(zone.span).iter().filter(|&&open| open).count() as u64)
            .collect();
        self.marks = self.marks_of_managed();
    }

    /// Where a range of the machine's stands in `states` and `open`.
    fn range(&self, extent: Extent) -> Range<usize> {
        let first = (extent.start.raw() - self.first) as usize;
        first..first + extent.count as usize
    }

    fn open_of(&self, extent: Extent) -> &[bool] {
        &self.open[self.range(extent)]
    }

    pub(super) fn state(&self, frame: Pfn) -> State {
        let index = frame.raw().checked_sub(self.first).map(|index| index as usize);
        index.and_then(|index| self.states.get(index).copied()).unwrap_or(State::Hole)
    }

    pub(super) fn is_used(&self, frame: Pfn) -> bool {
        matches!(self.state(frame), State::Movable | State::Unmovable)
    }

    fn is_isolated(&self, frame: Pfn) -> bool {
        let section = self.layout.section_of(frame).map(|at| self.sections[at]);
        let bank = self.layout.bank_of(frame).map(|at| self.banks[at]);
        section.into_iter().chain(bank).any(|isolation| isolation != Isolation::None)
    }

    /// Free and not isolated.
    pub(super) fn is_free(&self, frame: Pfn) -> bool {
        let index = frame.raw().checked_sub(self.first).map(|index| index as usize);
        index.and_then(|index| self.open.get(index).copied()).unwrap_or(false)
    }

    pub(super) fn has_block(&self, zone: usize, order: Order) -> bool {
        let span = self.layout.zones()[zone].span;
        let start = span.start.raw().next_multiple_of(order.frames());
        let Some(count) = span.end().raw().checked_sub(start) else { return false };
        let blocks = self.open_of(extent(start, count)).chunks_exact(order.frames() as usize);
        order <= ORDER_MAX && { blocks }.any(|frames| !frames.contains(&false))
    }

    pub(super) fn take(&mut self, block: Extent, mobility: Mobility) {
        for frame in block.iter() {
            assert!(self.is_free(frame), "{frame} of {block} is {:?}", self.state(frame));
            let state =
                if mobility == Mobility::Movable { State::Movable } else { State::Unmovable };
            let index = (frame.raw() - self.first) as usize;
            (self.states[index], self.open[index]) = (state, false);
        }
        self.free[self.layout.zone_of(block.start).expect("frames of a zone")] -= block.count;
    }

    /// Frees frames; the result that a free has to have.
    pub(super) fn give(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        match extent.iter().find(|&frame| !self.is_used(frame)) {
            Some(frame) if self.state(frame) == State::Hole => {
                Err(FrameFreeError::Foreign { frame })
            }
            Some(frame) => Err(FrameFreeError::NotAllocated { frame }),
            None => {
                for frame in extent.iter() {
                    let (index, open) =
                        ((frame.raw() - self.first) as usize, !self.is_isolated(frame));
                    (self.states[index], self.open[index]) = (State::Free, open);
                    let zone = self.layout.zone_of(frame).expect("a frame of a zone");
                    self.free[zone] += u64::from(open);
                }
                Ok(())
            }
        }
    }

    pub(super) fn isolation(&self, unit: MemoryUnit) -> Isolation {
        match unit {
            MemoryUnit::Section(section) => self.sections[section],
            MemoryUnit::Bank(bank) => self.banks[bank],
        }
    }

    pub(super) fn set_isolation(&mut self, unit: MemoryUnit, isolation: Isolation) {
        match unit {
            MemoryUnit::Section(section) => self.sections[section] = isolation,
            MemoryUnit::Bank(bank) => self.banks[bank] = isolation,
        }
        self.renew();
    }

    fn extent(&self, unit: MemoryUnit) -> Option<Extent> {
        match unit {
            MemoryUnit::Section(section) => self.layout.section(section),
            MemoryUnit::Bank(bank) => self.layout.bank(bank),
        }
    }

    /// Returns true if the unit's frames, which are memory or not for good, are of several zones.
    fn crosses_zones(&self, unit: MemoryUnit) -> bool {
        let extent = self.extent(unit).unwrap_or_default();
        let mut zones: Vec<_> = extent
            .iter()
            .filter(|&frame| self.state(frame) != State::Hole)
            .map(|frame| self.layout.zone_of(frame))
            .collect();
        zones.dedup();
        zones.len() > 1
    }

    pub(super) fn unit_state(&self, unit: MemoryUnit) -> Option<UnitState> {
        let extent = self.extent(unit)?;
        let span = Extent::new(Pfn::new(self.first), self.states.len() as u64);
        let states = &self.states[self.range(extent.intersect(span))];
        let count = |state| states.iter().filter(|&&of| of == state).count() as u64;
        let (free, movable) = (count(State::Free), count(State::Movable));
        let unmovable = count(State::Unmovable);
        Some(UnitState {
            present: free + movable + unmovable,
            free,
            movable,
            unmovable,
            isolation: self.isolation(unit),
            crosses_zones: self.crosses[&place(unit)],
        })
    }

    /// The unit's frames and state, if it may be isolated at all.
    pub(super) fn whole(&self, unit: MemoryUnit) -> Result<(Extent, UnitState), HotplugError> {
        let extent = self.extent(unit).ok_or(HotplugError::NoUnit { unit })?;
        let state = self.unit_state(unit).expect("there is such a unit");
        if state.present < extent.count {
            return Err(HotplugError::Holes { unit, frames: extent.count - state.present });
        }
        if state.crosses_zones {
            return Err(HotplugError::CrossesZones { unit });
        }
        Ok((extent, state))
    }

    pub(super) fn removable(&self, unit: MemoryUnit) -> Result<UnitState, HotplugError> {
        let (extent, state) = self.whole(unit)?;
        if state.isolation == Isolation::Offline {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        match extent.iter().find(|&frame| self.state(frame) == State::Unmovable) {
            Some(frame) => Err(HotplugError::Unmovable { unit, frame, frames: state.unmovable }),
            None => Ok(state),
        }
    }

    pub(super) fn isolate(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let (extent, state) = self.whole(unit)?;
        if state.isolation != Isolation::None {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        // Isolated with a unit of the other kind.
        if let Some(frame) = extent.iter().find(|&frame| self.is_isolated(frame)) {
            return Err(HotplugError::Zone { unit, error: IsolateError::State { frame } });
        }
        self.set_isolation(unit, Isolation::Isolated);
        Ok(())
    }

    pub(super) fn leave(&mut self, unit: MemoryUnit, from: Isolation) -> Result<(), HotplugError> {
        let (_, state) = self.whole(unit)?;
        if state.isolation != from {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        self.set_isolation(unit, Isolation::None);
        Ok(())
    }

    pub(super) fn offline(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let state = self.removable(unit)?;
        if state.movable > 0 {
            return Err(HotplugError::InUse { unit, frames: state.movable });
        }
        if state.isolation == Isolation::None {
            self.isolate(unit)?;
        }
        self.set_isolation(unit, Isolation::Offline);
        Ok(())
    }

    /// The watermarks of all zones, from what is not offline.
    fn marks_of_managed(&self) -> Vec<Watermarks> {
        let zones = self.layout.zones();
        let gone = |isolation: &Isolation| *isolation == Isolation::Offline;
        let sections = self.sections.iter().enumerate().filter(|(_, isolation)| gone(isolation));
        let banks = self.banks.iter().enumerate().filter(|(_, isolation)| gone(isolation));
        let mut managed: Vec<u64> = zones.iter().map(|zone| zone.present_frames).collect();
        for extent in sections
            .filter_map(|(at, _)| self.layout.section(at))
            .chain(banks.filter_map(|(at, _)| self.layout.bank(at)))
        {
            managed[self.layout.zone_of(extent.start).expect("a unit of one zone")] -= extent.count;
        }
        let buffer = (0..zones.len()).filter(|&zone| zones[zone].kind != ZoneKind::Movable);
        let kib = min_free_kib(buffer.map(|zone| managed[zone]).sum());
        let kib = self.config.min_free_kib.unwrap_or(kib);
        watermarks(self.layout, |zone| managed[zone], kib)[..zones.len()].to_vec()
    }

    /// Returns true if a zone that is left so many frames may serve the request.
    pub(super) fn may_serve(&self, zone: usize, request: &BlockRequest) -> bool {
        let marks = self.marks[zone];
        let mark = marks.min + marks.reserve[request.highest as usize];
        request.urgent || self.free[zone].saturating_sub(request.order.frames() - 1) > mark
    }
}

/// A unit's place in the model's map.
fn place(unit: MemoryUnit) -> (bool, usize) {
    match unit {
        MemoryUnit::Section(section) => (false, section),
        MemoryUnit::Bank(bank) => (true, bank),
    }
}
