//! The memory of a machine that is emptied and goes offline: the migration
//! daemon's [`Banks`] over [`Machine`].
//!
//! Both kinds work on the machine as a whole and not on a zone's allocator,
//! since what waits in per-CPU lists is free for its owner and in use for the
//! zone: isolating a unit empties those lists, and whatever of it is given
//! later goes past them.
//!
//! | | [`PoolBanks`] | [`Units`] |
//! |---|---|---|
//! | zones | one of Adaptive-Buddy | all, of any allocator |
//! | unit | a bank | a section or a bank |
//! | candidates | POOL_USER, the emptiest first | those without unmovable frames |
//! | targets | the fullest other banks of POOL_USER | as any movable request |
//! | an empty unit | is in POOL_OFFLINE, and opened again when needed | is offline until somebody onlines it |
//!
//! [`Units`] is hotplug by migration: [`offline`](Units::offline) takes away a
//! unit that somebody names, or says what stands in its way. Over Linux's zones
//! it is also what a daemon can do without Adaptive-Buddy.
//!
//! # What it costs
//! A search for the next frame in use is O(n/64) for the n frames passed over. A
//! scan looks at the candidates of the pool until one will do, most often the
//! first, each in O(1); or at all units of the machine in O(1) each. Isolating
//! and rejoining is the zone's: O(orders) for a bank of Adaptive-Buddy,
//! O(frames) for Linux's pageblocks; per-CPU lists are emptied once.

use core::cell::RefCell;
use core::fmt;
use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::bank_buddy::AdaptiveBuddy;
use swath_frame::banks::Pool;
use swath_frame::{
    HotplugError, Isolation, Machine, Mobility, PerCpu, Request, Unit, ZoneAllocator, ZoneKind,
};

use crate::migrate::{Banks, Candidate, Cause, Config, Daemon, Owners, Step};

/// What of an extent lies at `from` or behind it.
fn rest(extent: Extent, from: Pfn) -> Extent {
    let start = from.max(extent.start).min(extent.end());
    Extent::new(start, extent.end().raw() - start.raw())
}

/// The banks of one zone of Adaptive-Buddy, by their numbers in the machine's
/// layout, whose borders are those of the zone's banks.
#[derive(Debug)]
pub struct PoolBanks<'m, Zs, Ls, W> {
    machine: &'m RefCell<Machine<Zs, Ls, W>>,
    zone: usize,
    cpu: usize,
}

impl<'m, A, Zs, Ls, W> PoolBanks<'m, Zs, Ls, W>
where
    A: DerefMut<Target = [u64]>,
    Zs: DerefMut<Target = [AdaptiveBuddy<A>]>,
    Ls: DerefMut<Target = [PerCpu]>,
    W: DerefMut<Target = [u64]>,
{
    /// The banks of a zone, for a daemon that runs on a CPU; `None` if there is
    /// no such zone or CPU. The machine is borrowed within each call only.
    pub fn new(machine: &'m RefCell<Machine<Zs, Ls, W>>, zone: usize, cpu: usize) -> Option<Self> {
        let borrowed = machine.borrow();
        let is_there = zone < borrowed.zones().len() && cpu < borrowed.cpus();
        drop(borrowed);
        is_there.then_some(Self { machine, zone, cpu })
    }

    /// Whether a bank of the zone is wholly free and in POOL_OFFLINE, so that
    /// its power can be taken until a request opens it. O(1).
    pub fn is_offline(&self, bank: usize) -> bool {
        let machine = self.machine.borrow();
        let zone = &machine.zones()[self.zone];
        let state = machine.layout().bank(bank).and_then(|extent| {
            let state = zone.bank(zone.bank_of(extent.start)?)?;
            (state.extent == extent).then_some(state)
        });
        state.is_some_and(|state| state.pool == Some(Pool::Offline) && !state.isolated)
    }
}

impl<A, Zs, Ls, W> Banks for PoolBanks<'_, Zs, Ls, W>
where
    A: DerefMut<Target = [u64]>,
    Zs: DerefMut<Target = [AdaptiveBuddy<A>]>,
    Ls: DerefMut<Target = [PerCpu]>,
    W: DerefMut<Target = [u64]>,
{
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<Candidate> {
        let machine = self.machine.borrow();
        let zone = &machine.zones()[self.zone];
        let mut next = zone.next_candidate(None);
        while let Some(own) = next {
            let state = zone.bank(own)?;
            let bank = machine.layout().bank_of(state.extent.start);
            // A bank that crosses zones or has holes stays in the allocation pool.
            let bank = bank.filter(|&bank| {
                machine.removable(Unit::Bank(bank)).is_ok_and(|usage| usage.movable > 0)
                    && machine.layout().bank(bank) == Some(state.extent)
                    && !avoided(bank)
            });
            if let Some(bank) = bank {
                let occupied_frames = state.allocated_frames();
                return Some(Candidate { bank, frames: state.extent, occupied_frames });
            }
            next = zone.next_candidate(Some(own));
        }
        None
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let machine = self.machine.borrow();
        let zone = &machine.zones()[self.zone];
        let own = machine.layout().bank(bank).and_then(|extent| zone.bank_of(extent.start));
        let counted = own.and_then(|own| zone.bank(own));
        let counted = counted.filter(|state| state.pool == Some(Pool::User) && !state.isolated);
        let own_frames = counted.map_or(0, |state| state.free_frames);
        zone.pool_free_frames(Pool::User).saturating_sub(own_frames)
    }

    fn isolate(&mut self, bank: usize) -> bool {
        self.machine.borrow_mut().isolate(Unit::Bank(bank)).is_ok()
    }

    fn rejoin(&mut self, bank: usize) {
        let rejoined = self.machine.borrow_mut().rejoin(Unit::Bank(bank));
        debug_assert_eq!(rejoined, Ok(()), "the daemon has isolated it");
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let machine = self.machine.borrow();
        machine.next_used(rest(machine.layout().bank(bank)?, from))
    }

    fn take_target(&mut self, order: Order) -> Option<Pfn> {
        self.machine.borrow_mut().take_own(self.zone, order)
    }

    fn give(&mut self, start: Pfn, order: Order) {
        give(self.machine, start, order, self.cpu);
    }
}

fn give<Z, Zs, Ls, W>(machine: &RefCell<Machine<Zs, Ls, W>>, start: Pfn, order: Order, cpu: usize)
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpu]>,
    W: DerefMut<Target = [u64]>,
{
    let given = machine.borrow_mut().give(Extent::new(start, order.frames()), cpu);
    debug_assert_eq!(given, Ok(()), "what is given was taken");
}

/// Why a unit did not go offline. It is back as it was, but that some of its
/// movable memory may be elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfflineError {
    /// It cannot go whatever is moved, or is not online.
    Hotplug(HotplugError),
    /// A frame could not be moved.
    Stays {
        /// The unit.
        unit: Unit,
        /// The frame.
        frame: Pfn,
        /// Why.
        cause: Cause,
    },
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hotplug(error) => error.fmt(f),
            Self::Stays { unit, frame, cause } => {
                write!(f, "frame {frame} of {unit} stays: {cause}")
            }
        }
    }
}

impl core::error::Error for OfflineError {}

impl From<HotplugError> for OfflineError {
    fn from(error: HotplugError) -> Self {
        Self::Hotplug(error)
    }
}

/// The sections or the banks of a machine, over zones of any allocator.
#[derive(Debug)]
pub struct Units<'m, Zs, Ls, W> {
    machine: &'m RefCell<Machine<Zs, Ls, W>>,
    of: fn(usize) -> Unit,
    cpu: usize,
    /// What is asked for while a unit is emptied: the node that it is on, and
    /// its kind of zone or a lower one.
    request: Request,
}

impl<'m, Z, Zs, Ls, W> Units<'m, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpu]>,
    W: DerefMut<Target = [u64]>,
{
    /// The units that `of` makes of a number, [`Unit::Section`] or
    /// [`Unit::Bank`], for work on a CPU; `None` if there is no such CPU. The
    /// machine is borrowed within each call only.
    pub fn new(
        machine: &'m RefCell<Machine<Zs, Ls, W>>,
        of: fn(usize) -> Unit,
        cpu: usize,
    ) -> Option<Self> {
        let request = Request {
            order: Order::BASE,
            mobility: Mobility::Movable,
            highest: ZoneKind::Normal,
            node: 0,
            cpu,
            urgent: false,
        };
        (cpu < machine.borrow().cpus()).then_some(Self { machine, of, cpu, request })
    }

    fn extent(&self, number: usize) -> Option<Extent> {
        match (self.of)(number) {
            Unit::Section(section) => self.machine.borrow().layout().section(section),
            Unit::Bank(bank) => self.machine.borrow().layout().bank(bank),
        }
    }

    /// Isolates a unit and has the daemon begin to empty it: what a request to
    /// take it offline in steps comes down to. Returns whether it does; not, and
    /// nothing has changed, while another is being emptied.
    ///
    /// # Errors
    /// A [`HotplugError`]: the unit cannot go offline whatever is moved, and why.
    /// Nothing has changed.
    pub fn begin(&mut self, daemon: &mut Daemon, number: usize) -> Result<bool, HotplugError> {
        if daemon.moving().is_some() {
            return Ok(false);
        }
        let unit = (self.of)(number);
        let occupied_frames = self.machine.borrow().removable(unit)?.movable;
        let frames = self.extent(number).ok_or(HotplugError::NoUnit { unit })?;
        self.isolate_known(unit, frames)?;
        Ok(daemon.begin(Candidate { bank: number, frames, occupied_frames }))
    }

    /// Takes a unit offline: isolates it, moves what is in use elsewhere, and
    /// returns how many frames that were.
    ///
    /// # Errors
    /// [`OfflineError`]: what stands in the way. The unit is online again.
    pub fn offline<O: Owners>(
        &mut self,
        number: usize,
        owners: &mut O,
    ) -> Result<u64, OfflineError> {
        let mut daemon = Daemon::new(Config::DEFAULT);
        self.begin(&mut daemon, number)?;
        loop {
            match daemon.step(0, u64::MAX, self, owners) {
                Step::Emptied { moved_frames, .. } => return Ok(moved_frames),
                Step::GaveUp { frame, cause, .. } => {
                    let unit = (self.of)(number);
                    return Err(OfflineError::Stays { unit, frame, cause });
                }
                // It has begun, so it ends as one of the two.
                Step::Moving { .. } | Step::Wait { .. } => {}
            }
        }
    }

    fn isolate_known(&mut self, unit: Unit, frames: Extent) -> Result<(), HotplugError> {
        let mut machine = self.machine.borrow_mut();
        machine.isolate(unit)?;
        let layout = machine.layout();
        if let Some(zone) = layout.zone_of(frames.start).and_then(|zone| layout.zones().get(zone)) {
            self.request.node = zone.node;
            // Who could use lower frames only may hold frames of a lower zone.
            self.request.highest = zone.kind.max(ZoneKind::Normal);
        }
        Ok(())
    }
}

impl<Z, Zs, Ls, W> Banks for Units<'_, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpu]>,
    W: DerefMut<Target = [u64]>,
{
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<Candidate> {
        let machine = self.machine.borrow();
        let count = match (self.of)(0) {
            Unit::Section(_) => machine.layout().sections(),
            Unit::Bank(_) => machine.layout().banks(),
        };
        let occupied = |&number: &usize| {
            let state = machine.removable((self.of)(number)).ok()?;
            let fits = state.isolation == Isolation::None && state.movable > 0;
            fits.then_some((state.movable, number))
        };
        let numbers = (0..count).filter(|&number| !avoided(number));
        let (occupied_frames, bank) = numbers.filter_map(|number| occupied(&number)).min()?;
        Some(Candidate { bank, frames: self.extent(bank)?, occupied_frames })
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let machine = self.machine.borrow();
        let state = machine.unit_state((self.of)(bank));
        let counted = state.filter(|state| state.isolation == Isolation::None);
        machine.free_frames().saturating_sub(counted.map_or(0, |state| state.free))
    }

    fn isolate(&mut self, bank: usize) -> bool {
        let Some(frames) = self.extent(bank) else { return false };
        self.isolate_known((self.of)(bank), frames).is_ok()
    }

    fn rejoin(&mut self, bank: usize) {
        let unit = (self.of)(bank);
        let mut machine = self.machine.borrow_mut();
        let state = machine.unit_state(unit).unwrap_or_default();
        let left = match state.movable + state.unmovable {
            0 => machine.offline(unit),
            _ => machine.rejoin(unit),
        };
        debug_assert_eq!(left, Ok(()), "the daemon has isolated it");
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        self.machine.borrow().next_used(rest(self.extent(bank)?, from))
    }

    fn take_target(&mut self, order: Order) -> Option<Pfn> {
        self.machine.borrow_mut().take(Request { order, ..self.request }).ok()
    }

    fn give(&mut self, start: Pfn, order: Order) {
        give(self.machine, start, order, self.cpu);
    }
}
