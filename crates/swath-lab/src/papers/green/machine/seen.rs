//! A [machine](crate::papers::green::machine::computer) as an observer sees it.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::Mobility;
use swath_frame::layout::Layout;
use swath_frame::machine::{Isolation, MemoryUnit, UnitState};
use swath_hw::power::BankEnergy;
use swath_vm::migrate::daemon;
use swath_vm::migrate::daemon::Daemon;

use crate::papers::green::machine::allocator::{FallbackTally, GreenZone};
use crate::papers::green::machine::computer::GreenMachine;
use crate::papers::green::machine::places::Places;
use crate::papers::green::machine::view::{FreeBlocks, Look, MachineCounts, MachineView};

impl<Z: GreenZone> MachineView for GreenMachine<Z> {
    fn look(&self) -> Look {
        let (layout, machine) = (&self.layout, self.machine.borrow());
        let present = |state: &UnitState| state.present > 0;
        let banks = (0..layout.banks()).filter_map(|bank| Some((bank, machine.bank_state(bank)?)));
        let mut look = Look {
            time_us: self.clock.now_us(),
            total_frames: self.total_frames,
            free_frames: 0,
            unmovable_frames: 0,
            banks: 0,
            used_banks: 0,
            nearly_free_banks: 0,
            resting_banks: 0,
            resting_frames: 0,
            sections: 0,
            removable_sections: 0,
            kernel_sections: 0,
            moved_frames: 0,
            emptied_banks: 0,
            opened_banks: self.opened() + self.counts.onlined - self.before.0,
            fallbacks: self.fallbacks().map(|count| count - self.before.1),
            counts: MachineCounts {
                stalled: self.counts.stalled + machine.mixed_at_last(),
                ..self.counts
            },
        };
        for (bank, state) in banks.filter(|(_, state)| present(state)) {
            look.banks += 1;
            look.free_frames += state.free;
            look.unmovable_frames += state.unmovable;
            let is_used = state.free < state.present;
            look.used_banks += u64::from(is_used);
            look.nearly_free_banks += u64::from(is_used && state.free * 10 > state.present * 9);
            if self.rests(bank) {
                look.resting_banks += 1;
                look.resting_frames += state.present;
            }
        }
        let sections = (0..layout.sections())
            .filter_map(|section| Some((section, machine.section_state(section)?)));
        for (section, state) in sections.filter(|(_, state)| present(state)) {
            look.sections += 1;
            look.removable_sections += u64::from(machine.is_removable(section));
            look.kernel_sections += u64::from(state.unmovable > 0);
        }
        let migration = self.migration();
        look.moved_frames = migration.moved_frames;
        look.emptied_banks = migration.emptied_banks;
        look
    }

    fn unit(&self, unit: MemoryUnit) -> Option<UnitState> {
        self.machine.borrow().unit_state(unit)
    }

    fn frames(&self, frames: Extent) -> UnitState {
        self.machine.borrow().frames_state(frames)
    }

    /// By what its allocator or hotplug knows.
    fn rests(&self, bank: usize) -> bool {
        let machine = self.machine.borrow();
        let Some(state) = machine.bank_state(bank) else { return false };
        if state.isolation == Isolation::Offline {
            return true;
        }
        let layout = &self.layout;
        let extent = layout.bank(bank).unwrap_or_default();
        let whole = state.present == extent.count && !state.crosses_zones;
        if !whole || state.free < state.present || state.isolation != Isolation::None {
            return false;
        }
        let zone = layout.zone_of(extent.start).and_then(|zone| machine.zones().get(zone));
        !Z::RESTS || zone.is_some_and(|zone| zone.rests(extent.start))
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn free_blocks(&self) -> FreeBlocks {
        let mut blocks = FreeBlocks::default();
        for zone in self.machine.borrow().zones() {
            zone.for_each_free(&mut |extent| {
                blocks.count += 1;
                blocks.largest_frames = blocks.largest_frames.max(extent.count);
            });
        }
        blocks
    }

    fn places(&self, order: Order) -> Places {
        let machine = self.machine.borrow();
        Places::of(&self.layout, order, |extent| machine.frames_state(extent))
    }

    fn energy(&self) -> BankEnergy {
        self.power.energy(self.clock.now_us() * 1000)
    }

    fn tally(&self) -> Option<FallbackTally> {
        let mut sum = None;
        for tally in self.machine.borrow().zones().iter().filter_map(Z::tally) {
            sum.get_or_insert_with(FallbackTally::default).add(tally);
        }
        sum
    }

    fn migration(&self) -> daemon::MigrationStatistics {
        let mut sum = daemon::MigrationStatistics::default();
        for one in self.daemons.iter().map(Daemon::statistics) {
            sum.scans += one.scans;
            sum.emptied_banks += one.emptied_banks;
            sum.moved_frames += one.moved_frames;
            sum.unmovable += one.unmovable;
            sum.pinned += one.pinned;
            sum.no_target += one.no_target;
            sum.failed += one.failed;
            sum.in_use += one.in_use;
        }
        sum
    }

    fn emptied(&self) -> &[u64] {
        &self.emptied
    }

    fn check(&self) -> Result<(), String> {
        let machine = self.machine.borrow();
        machine.check()?;
        self.blocks.check()?;
        let (mut movable, mut unmovable, mut wrong) = (0, 0, None);
        self.blocks.for_each(&mut |extent, is_movable| {
            *(if is_movable { &mut movable } else { &mut unmovable }) += extent.count;
            let owner = if is_movable { Mobility::Movable } else { Mobility::Unmovable };
            let differs = |frame: &Pfn| machine.owner(*frame) != Some(owner);
            wrong = wrong.or_else(|| extent.iter().find(differs));
        });
        if let Some(frame) = wrong {
            return Err(format!("frame {frame} is not in use for its owner"));
        }
        // Owners are of different frames if they have as many as are in use.
        let look = self.look();
        let used = (look.total_frames - look.free_frames, look.unmovable_frames);
        if used != (movable + unmovable, unmovable) {
            return Err(format!("{} frames in use, owners have {}", used.0, movable + unmovable));
        }
        let awake = |&bank: &usize| {
            let state = machine.bank_state(bank);
            self.down[bank] && state.is_none_or(|state| state.free < state.present)
        };
        match (0..self.down.len()).find(awake) {
            Some(bank) => Err(format!("bank {bank} is down and in use")),
            None => Ok(()),
        }
    }
}
