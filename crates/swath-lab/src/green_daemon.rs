//! The migration daemon's view of a node of a [green
//! machine](crate::green_machine): its banks, and who owns their frames.
//!
//! One view for all allocators, so that they differ in nothing else: the zones
//! of a node are emptied as one, and an empty bank rests by itself or goes
//! offline by hotplug, as the allocator has it.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::Mobility;
use swath_frame::banks::Pool;
use swath_frame::hotplug::HotplugError;
use swath_frame::usage::{Isolation, Unit};
use swath_vm::migrate::{Banks, Candidate, Owners, Stuck};

use crate::green_allocator::GreenZone;
use crate::green_blocks::Blocks;
use crate::green_machine::Zones;

/// The banks of a node.
pub(crate) struct NodeBanks<'a, Z> {
    machine: &'a mut Zones<Z>,
    node: usize,
    /// What the machine refused although it should not.
    failed: Option<HotplugError>,
}

impl<'a, Z: GreenZone> NodeBanks<'a, Z> {
    pub(crate) fn new(machine: &'a mut Zones<Z>, node: usize) -> Self {
        Self { machine, node, failed: None }
    }

    pub(crate) fn failed(&self) -> Option<HotplugError> {
        self.failed
    }

    /// The node's zones, the highest first.
    fn zones(&self) -> impl Iterator<Item = usize> + use<Z> {
        let node = self.node;
        let of_node = |zone: usize| self.machine.layout().zones()[zone].node == node;
        let zones: Vec<usize> =
            (0..self.machine.zones().len()).rev().filter(|&zone| of_node(zone)).collect();
        zones.into_iter()
    }

    /// A bank that may be emptied now.
    fn look_at(&self, bank: usize) -> Option<Candidate> {
        let layout = self.machine.layout();
        let frames = layout.bank(bank)?;
        let zone = layout.zone_of(frames.start)?;
        let state = self.machine.bank_state(bank)?;
        let allocator = &self.machine.zones()[zone];
        let may = layout.zones()[zone].node == self.node
            && state.present == frames.count
            && !state.crosses_zones
            && state.isolation == Isolation::None
            && state.unmovable == 0
            && allocator.may_be_emptied(frames.start);
        // A bank that is free but for per-CPU lists is only to be drained.
        let waits = Z::RESTS && state.movable == 0;
        let rests = allocator.pool(frames.start) == Some(Pool::Offline);
        (may && (state.movable > 0 || waits && !rests)).then_some(Candidate {
            bank,
            frames,
            occupied_frames: state.movable,
        })
    }
}

impl<Z: GreenZone> Banks for NodeBanks<'_, Z> {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<Candidate> {
        (0..self.machine.layout().banks())
            .filter(|&bank| !avoided(bank))
            .filter_map(|bank| self.look_at(bank))
            .min_by_key(|candidate| candidate.occupied_frames)
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let zones = self.zones().map(|zone| self.machine.zones()[zone].target_frames());
        let room: u64 = zones.sum();
        // What is free in the bank itself is among them.
        let own = self.machine.bank_state(bank).map_or(0, |state| state.free);
        room.saturating_sub(own)
    }

    fn isolate(&mut self, bank: usize) -> bool {
        self.machine.isolate(Unit::Bank(bank)).is_ok()
    }

    fn rejoin(&mut self, bank: usize) {
        let unit = Unit::Bank(bank);
        let is_empty =
            self.machine.bank_state(bank).is_some_and(|state| state.free == state.present);
        let done = if is_empty && !Z::RESTS {
            self.machine.offline(unit)
        } else {
            self.machine.rejoin(unit)
        };
        self.failed = self.failed.or(done.err());
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let frames = self.machine.layout().bank(bank)?;
        let start = frames.start.max(from);
        let count = frames.end().raw().checked_sub(start.raw())?;
        self.machine.next_used(Extent::new(start, count))
    }

    fn take_target(&mut self, order: Order) -> Option<Pfn> {
        self.zones().find_map(|zone| {
            self.machine.take_with(zone, order, Mobility::Movable, |zone| zone.take_target(order))
        })
    }

    fn give(&mut self, start: Pfn, order: Order) {
        let given = self.machine.give(Extent::new(start, order.frames()), 0);
        debug_assert!(given.is_ok(), "a moved block that was not in use");
    }
}

/// Who owns the frames of a node's banks.
pub(crate) struct NodeOwners<'a> {
    blocks: &'a mut Blocks,
    /// Where blocks were moved to.
    pub(crate) targets: Vec<Pfn>,
}

impl<'a> NodeOwners<'a> {
    pub(crate) fn new(blocks: &'a mut Blocks) -> Self {
        Self { blocks, targets: Vec::new() }
    }
}

impl Owners for NodeOwners<'_> {
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        match self.blocks.block_of(frame) {
            None => Ok(None),
            Some((id, _, _)) if !self.blocks.is_movable(id) => Err(Stuck::Unmovable),
            Some((_, start, order)) => Ok(Some((start, order))),
        }
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        let moved = self.blocks.relocate(from, to, order);
        if moved {
            self.targets.push(to);
        }
        Ok(moved)
    }

    fn split(&mut self, start: Pfn, order: Order) -> Result<bool, Stuck> {
        Ok(self.blocks.split(start, order))
    }
}
