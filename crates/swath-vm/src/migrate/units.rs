//! The memory of a machine that is emptied and goes offline: the migration
//! daemon's [`MovableBanks`] over [`Machine`].
//!
//! Both kinds work on the machine as a whole and not on a zone's allocator,
//! since what waits in per-CPU lists is free for its owner and in use for the
//! zone: isolating a unit empties those lists, and whatever of it is given
//! later goes past them.
//!
//! | | [`NodeBanks`] | [`HotplugUnits`] |
//! |---|---|---|
//! | for | a daemon of each node or zone, in the background | hotplug by migration, on demand |
//! | unit | a bank of the node or zone | a section or a bank of the machine |
//! | candidates | the emptiest bank that the allocator lets go | what somebody names |
//! | targets | what the allocator chooses there ([`Emptying`]) | as any movable request |
//! | an empty unit | rests, or is offline, as the allocator has it | is offline until somebody onlines it |
//!
//! [`offline`](HotplugUnits::offline) takes away a unit or says what stands in its way.
//!
//! # What it costs
//! A search for the next frame in use is O(n/64) for the n frames passed over. A
//! scan looks at every bank of the machine, each in O(1). Isolating and rejoining
//! is the zone's: O(orders) for a bank of Adaptive-Buddy, O(frames) for Linux's
//! pageblocks; per-CPU lists are emptied once.

use core::cell::RefCell;
use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, ArrayBuddy, BankBuddy, BankPool, BoundaryBuddy, ListBuddy, Placement,
    PoolPolicy, TreeBuddy,
};
use swath_frame::zone::linux::Observe;
use swath_frame::{
    BlockRequest, Hardening, HotplugError, Isolation, LinuxZone, Machine, MemoryUnit, Mobility,
    PageZone, PerCpuLists, Rule, ZoneAllocator, ZoneKind,
};

use crate::migrate::daemon::{
    BankCandidate, Daemon, GiveUpCause, MigrationConfig, MigrationStep, MovableBanks, Owners,
};

/// Returns the part of an extent that lies at `from` or behind it.
fn rest(extent: Extent, from: Pfn) -> Extent {
    let start = from.max(extent.start).min(extent.end());
    Extent::new(start, extent.end() - start)
}

/// A zone's allocator whose banks a daemon empties. The defaults
/// are those of an allocator that knows nothing of it.
pub trait Emptying: ZoneAllocator {
    /// True if an empty bank rests by itself and is opened when it is needed.
    /// Of other allocators an empty bank is taken offline, and stays so until
    /// somebody onlines it.
    const RESTS: bool = false;

    /// Returns true if the bank around a frame rests.
    fn rests(&self, frame: Pfn) -> bool {
        let _ = frame;
        false
    }

    /// Returns true if the bank around the frame may be emptied, as far as the
    /// allocator's pools go.
    fn may_be_emptied(&self, frame: Pfn) -> bool {
        let _ = frame;
        true
    }

    /// Takes a block for what is moved out of another bank, from none that rests.
    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        self.allocate(order, Mobility::Movable)
    }

    /// Counts the free frames that [`allocate_target`](Self::allocate_target) can take.
    fn target_frames(&self) -> u64 {
        self.free_frames()
    }
}

impl<A: DerefMut<Target = [u64]>, O: Observe, H: Hardening> Emptying for LinuxZone<A, O, H> {}
impl<A: DerefMut<Target = [u64]>, H: Hardening> Emptying for ArrayBuddy<A, H> {}
impl<A: DerefMut<Target = [u64]>, H: Hardening> Emptying for ListBuddy<A, H> {}
impl<A: DerefMut<Target = [u64]>, H: Hardening> Emptying for TreeBuddy<A, H> {}
impl<A: DerefMut<Target = [u64]>, R: Rule, H: Hardening> Emptying for PageZone<A, R, H> {}

impl<A: DerefMut<Target = [u64]>, H: Hardening> Emptying for BoundaryBuddy<A, H> {
    /// Returns true for the banks of the movable region but for the one at the boundary: the
    /// unmovable region grows into it, and would pass it by were it offline.
    fn may_be_emptied(&self, frame: Pfn) -> bool {
        let bank = self.bank_of(frame);
        let below = bank.and_then(|bank| bank.checked_sub(1)).and_then(|bank| self.bank(bank));
        let is_next = below.is_none_or(|below| below.pool != Some(BankPool::User));
        pool(self, frame) == Some(BankPool::User) && !is_next
    }
}

impl<A: DerefMut<Target = [u64]>, H: Hardening> Emptying for AdaptiveBuddy<A, H> {
    const RESTS: bool = true;

    fn rests(&self, frame: Pfn) -> bool {
        pool(self, frame) == Some(BankPool::Offline)
    }

    /// Returns true for the banks of POOL_USER, which Panwar and Gopinath empty; packed,
    /// for those of POOL_KERNEL, too, from which the kernel's last frame is gone.
    fn may_be_emptied(&self, frame: Pfn) -> bool {
        self.policy() == PoolPolicy::PACKED || pool(self, frame) == Some(BankPool::User)
    }

    /// Allocates in POOL_USER, within which Panwar and Gopinath move frames. A bank with kernel memory never
    /// rests, so that, packed, its free frames serve as well, up to what the
    /// kernel may need soon.
    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        let shared = shared_frames(self);
        let own = self.allocate_own(order, BankPool::User);
        let may_share = own.is_none() && shared >= order.frames();
        own.or_else(|| may_share.then(|| self.allocate_own(order, BankPool::Kernel)).flatten())
    }

    fn target_frames(&self) -> u64 {
        self.pool_free_frames(BankPool::User) + shared_frames(self)
    }
}

/// Returns the pool of the bank around a frame.
fn pool<A, P, H>(zone: &BankBuddy<A, P, H>, frame: Pfn) -> Option<BankPool>
where
    A: DerefMut<Target = [u64]>,
    P: Placement,
    H: Hardening,
{
    zone.bank_of(frame).and_then(|bank| zone.bank(bank)).and_then(|bank| bank.pool)
}

/// Frames kept free in a zone's POOL_KERNEL when others are moved there: an
/// eighth of a bank.
const KERNEL_RESERVE_FRAMES: u64 = swath_frame::layout::BANK_FRAMES / 8;

/// Counts the free frames of POOL_KERNEL that may serve what is moved.
fn shared_frames<A, H>(zone: &AdaptiveBuddy<A, H>) -> u64
where
    A: DerefMut<Target = [u64]>,
    H: Hardening,
{
    match zone.policy() == PoolPolicy::PACKED {
        true => zone.pool_free_frames(BankPool::Kernel).saturating_sub(KERNEL_RESERVE_FRAMES),
        false => 0,
    }
}

/// The banks of a node, whose zones are emptied as one, or of one zone. Banks that cross zones
/// or have holes stay as they are.
///
/// Requests go to a node's highest zone as long as a bank of it can be opened, whatever room a lower
/// zone has. So where a node's zones are emptied as one, banks of the highest are opened again by the
/// next requests, and hysteresis is what keeps that rare.
#[derive(Debug)]
pub struct NodeBanks<'m, Zs, Ls, W> {
    machine: &'m RefCell<Machine<Zs, Ls, W>>,
    node: usize,
    /// The only zone, if there is one.
    zone: Option<usize>,
    cpu: usize,
}

impl<'m, Z, Zs, Ls, W> NodeBanks<'m, Zs, Ls, W>
where
    Z: Emptying,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Makes the banks of a node, for a daemon that runs on a CPU; `None` if there is
    /// no such node or CPU. The machine is borrowed within each call only.
    pub fn new(machine: &'m RefCell<Machine<Zs, Ls, W>>, node: usize, cpu: usize) -> Option<Self> {
        let borrowed = machine.borrow();
        let is_there = node < borrowed.layout().nodes() && cpu < borrowed.cpus();
        drop(borrowed);
        is_there.then_some(Self { machine, node, zone: None, cpu })
    }

    /// Makes the banks of a zone alone, as [`new`](Self::new) does of a node.
    pub fn of_zone(
        machine: &'m RefCell<Machine<Zs, Ls, W>>,
        zone: usize,
        cpu: usize,
    ) -> Option<Self> {
        let node = machine.borrow().layout().zones().get(zone)?.node;
        Some(Self { zone: Some(zone), ..Self::new(machine, node, cpu)? })
    }

    /// Returns true if a zone is one of these.
    fn has(&self, machine: &Machine<Zs, Ls, W>, zone: usize) -> bool {
        let place = machine.layout().zones().get(zone);
        place.is_some_and(|place| place.node == self.node)
            && self.zone.is_none_or(|only| only == zone)
    }

    /// Returns true if a bank of the machine is wholly free and rests or is offline, so
    /// that its power can be taken until it is opened. O(1).
    pub fn is_offline(&self, bank: usize) -> bool {
        Self::is_offline_in(&self.machine.borrow(), bank)
    }

    fn is_offline_in(machine: &Machine<Zs, Ls, W>, bank: usize) -> bool {
        let Some(state) = machine.bank_state(bank) else { return false };
        let rests = |frame| {
            let zone = machine.layout().zone_of(frame).and_then(|zone| machine.zones().get(zone));
            zone.is_some_and(|zone| zone.rests(frame))
        };
        let whole = machine.layout().bank(bank).filter(|frames| state.present == frames.count);
        state.isolation == Isolation::Offline
            || whole.is_some_and(|frames| !state.crosses_zones && rests(frames.start))
                && state.isolation == Isolation::None
                && state.free == state.present
    }

    /// Returns a bank that may be emptied now.
    fn look_at(&self, machine: &Machine<Zs, Ls, W>, bank: usize) -> Option<BankCandidate> {
        let layout = machine.layout();
        let frames = layout.bank(bank)?;
        let zone = layout.zone_of(frames.start)?;
        let state = machine.bank_state(bank)?;
        let allocator = machine.zones().get(zone)?;
        let may = self.has(machine, zone)
            && state.present == frames.count
            && !state.crosses_zones
            && state.isolation == Isolation::None
            && state.unmovable == 0
            && allocator.may_be_emptied(frames.start);
        // A bank that is free but for per-CPU lists is only to be drained.
        let waits = Z::RESTS && state.movable == 0 && !allocator.rests(frames.start);
        let occupied_frames = state.movable;
        (may && (occupied_frames > 0 || waits)).then_some(BankCandidate {
            bank,
            frames,
            occupied_frames,
        })
    }
}

impl<Z, Zs, Ls, W> MovableBanks for NodeBanks<'_, Zs, Ls, W>
where
    Z: Emptying,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        let machine = self.machine.borrow();
        (0..machine.layout().banks())
            .filter(|&bank| !avoided(bank))
            .filter_map(|bank| self.look_at(&machine, bank))
            .min_by_key(|candidate| candidate.occupied_frames)
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let machine = self.machine.borrow();
        let zones = machine.zones().iter().enumerate();
        let own_zones = zones.filter(|&(zone, _)| self.has(&machine, zone));
        let room: u64 = own_zones.map(|(_, zone)| zone.target_frames()).sum();
        // What is free in the bank itself is among them.
        let own = machine.bank_state(bank).map_or(0, |state| state.free);
        room.saturating_sub(own)
    }

    fn resting_banks(&self) -> usize {
        let machine = self.machine.borrow();
        let layout = machine.layout();
        let is_own = |&bank: &usize| {
            let zone = layout.bank(bank).and_then(|frames| layout.zone_of(frames.start));
            zone.is_some_and(|zone| self.has(&machine, zone))
        };
        let own = (0..layout.banks()).filter(is_own);
        own.filter(|&bank| Self::is_offline_in(&machine, bank)).count()
    }

    fn isolate(&mut self, bank: usize) -> bool {
        self.machine.borrow_mut().isolate(MemoryUnit::Bank(bank)).is_ok()
    }

    fn rejoin(&mut self, bank: usize) {
        leave(self.machine, MemoryUnit::Bank(bank), Z::RESTS);
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let machine = self.machine.borrow();
        machine.next_used(rest(machine.layout().bank(bank)?, from))
    }

    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        let mut machine = self.machine.borrow_mut();
        (0..machine.zones().len()).rev().find_map(|zone| {
            let is_own = self.has(&machine, zone);
            let mut take = || {
                machine
                    .allocate_with(zone, order, Mobility::Movable, |own| own.allocate_target(order))
            };
            is_own.then(&mut take).flatten()
        })
    }

    fn free(&mut self, start: Pfn, order: Order) {
        free_on(self.machine, start, order, self.cpu);
    }
}

/// Ends the isolation of a unit: offline if it is empty and does not rest by
/// itself.
fn leave<Z, Zs, Ls, W>(machine: &RefCell<Machine<Zs, Ls, W>>, unit: MemoryUnit, rests: bool)
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    let mut machine = machine.borrow_mut();
    let state = machine.unit_state(unit).unwrap_or_default();
    let left = match state.movable + state.unmovable {
        0 if !rests => machine.offline(unit),
        _ => machine.rejoin(unit),
    };
    debug_assert_eq!(left, Ok(()), "the daemon has isolated it");
}

fn free_on<Z, Zs, Ls, W>(
    machine: &RefCell<Machine<Zs, Ls, W>>,
    start: Pfn,
    order: Order,
    cpu: usize,
) where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    let given = machine.borrow_mut().free(Extent::new(start, order.frames()), cpu);
    debug_assert_eq!(given, Ok(()), "what is given was taken");
}

/// Reasons why a unit does not go offline. It is back as it was, except that some of its
/// movable memory may be elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfflineError {
    /// It cannot go whatever is moved, or is not online.
    #[error(transparent)]
    Hotplug(#[from] HotplugError),
    /// A frame could not be moved.
    #[error("frame {frame} of {unit} stays: {cause}")]
    Stays {
        /// The unit.
        unit: MemoryUnit,
        /// The frame.
        frame: Pfn,
        /// The cause.
        cause: GiveUpCause,
    },
}

/// The sections or the banks of a machine, over zones of any allocator.
#[derive(Debug)]
pub struct HotplugUnits<'m, Zs, Ls, W> {
    machine: &'m RefCell<Machine<Zs, Ls, W>>,
    of: fn(usize) -> MemoryUnit,
    cpu: usize,
    /// The request for targets while a unit is emptied: the node that it is on, and
    /// its kind of zone or a lower one.
    request: BlockRequest,
}

impl<'m, Z, Zs, Ls, W> HotplugUnits<'m, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Makes the units that `of` names by a number, [`MemoryUnit::Section`] or
    /// [`MemoryUnit::Bank`], for work on a CPU; `None` if there is no such CPU. The
    /// machine is borrowed within each call only.
    pub fn new(
        machine: &'m RefCell<Machine<Zs, Ls, W>>,
        of: fn(usize) -> MemoryUnit,
        cpu: usize,
    ) -> Option<Self> {
        let request = BlockRequest {
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
            MemoryUnit::Section(section) => self.machine.borrow().layout().section(section),
            MemoryUnit::Bank(bank) => self.machine.borrow().layout().bank(bank),
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
        Ok(daemon.begin(BankCandidate { bank: number, frames, occupied_frames }))
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
        let mut daemon = Daemon::new(MigrationConfig::DEFAULT);
        self.begin(&mut daemon, number)?;
        loop {
            match daemon.step(0, u64::MAX, self, owners) {
                MigrationStep::Emptied { moved_frames, .. } => return Ok(moved_frames),
                MigrationStep::GaveUp { frame, cause, .. } => {
                    let unit = (self.of)(number);
                    return Err(OfflineError::Stays { unit, frame, cause });
                }
                // It has begun, so it ends as one of the two.
                MigrationStep::Moving { .. } | MigrationStep::Wait { .. } => {}
            }
        }
    }

    fn isolate_known(&mut self, unit: MemoryUnit, frames: Extent) -> Result<(), HotplugError> {
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

impl<Z, Zs, Ls, W> MovableBanks for HotplugUnits<'_, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Returns no bank: only what is named is emptied.
    fn candidate(&self, _: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        None
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let machine = self.machine.borrow();
        let state = machine.unit_state((self.of)(bank));
        let counted = state.filter(|state| state.isolation == Isolation::None);
        machine.free_frames().saturating_sub(counted.map_or(0, |state| state.free))
    }

    /// None: no bank is a candidate.
    fn resting_banks(&self) -> usize {
        0
    }

    fn isolate(&mut self, bank: usize) -> bool {
        let Some(frames) = self.extent(bank) else { return false };
        self.isolate_known((self.of)(bank), frames).is_ok()
    }

    fn rejoin(&mut self, bank: usize) {
        leave(self.machine, (self.of)(bank), false);
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        self.machine.borrow().next_used(rest(self.extent(bank)?, from))
    }

    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        self.machine.borrow_mut().allocate(BlockRequest { order, ..self.request }).ok()
    }

    fn free(&mut self, start: Pfn, order: Order) {
        free_on(self.machine, start, order, self.cpu);
    }
}
