//! The interconnect between masters and memory, after AXI.
//!
//! Each master has three **ports** towards it: its reads, its writes, and the reads of its walker.
//! A port is a queue: what stands at its head holds up what stands behind it, and nothing else. A
//! request reaches the **arbiter** [`request_cycles`](InterconnectConfig::request_cycles) after it
//! was sent. The arbiter hands the memory one request a cycle, round-robin over the ports: the next
//! after the one served last that has a request which can go. A request can go if the queue of its
//! DRAM channel has a place and, for a write, if the write data channel is free.
//!
//! **Data** move in beats of [`beat_bytes`](InterconnectConfig::beat_bytes), one a cycle: four for
//! 64 bytes on 128 bits, one for a descriptor, four for a line of them
//! ([`ContiguityField::Line`](swath_arch::ContiguityField::Line)). A write occupies its channel from the cycle in which
//! it is accepted (the memory wants the data later than that). Read data that are all there wait
//! for the read data channel, each master's and each walker's in a queue of its own, in the order
//! in which the memory had them; the channel serves these queues round-robin, a transaction at a
//! time, so that a descriptor does not stand behind a window of data. They arrive
//! [`response_cycles`](InterconnectConfig::response_cycles) after their last beat, and so does the
//! response to a write after what [`WriteResponse`] says.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::dram::memory::Dram;
use crate::dram::queue::bits;
use crate::dram::request::{DramRequest, OfferError};
use crate::system::stats::InterconnectStats;
use crate::system::transaction::TRANSACTION_BYTES;

/// The arrangement of the data channels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wiring {
    /// One for all reads and one for all writes: the memory controller has one port.
    Shared,
    /// One of each to every master, which its walker shares: a crossbar in front of
    /// a controller with a port to each channel.
    PerMaster,
}

/// The time at which a write counts as completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteResponse {
    /// As soon as its data are in the memory.
    Written,
    /// As soon as the controller has taken its data, which is its promise that later
    /// reads will find them.
    Accepted,
}

/// The configuration of an interconnect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterconnectConfig {
    /// Bytes of a beat: a power of two, 8 to 64.
    pub beat_bytes: u32,
    /// Cycles of a request on its way to the arbiter.
    pub request_cycles: u32,
    /// Cycles of data or a response on the way back.
    pub response_cycles: u32,
    /// The arrangement of the data channels.
    pub wiring: Wiring,
    /// The time at which a write counts as completed.
    pub write_response: WriteResponse,
}

impl Default for InterconnectConfig {
    /// Returns a width of 128 bits (*Duong and Hur*, Table 3), one cycle each way (a register at
    /// the interconnect's edge; the paper does not say), one channel for reads and
    /// one for writes, and writes complete when they are written.
    fn default() -> Self {
        Self {
            beat_bytes: 16,
            request_cycles: 1,
            response_cycles: 1,
            wiring: Wiring::Shared,
            write_response: WriteResponse::Written,
        }
    }
}

/// The most masters in a system: three ports each, with a bit for each port.
pub(crate) const MASTERS_MAX: usize = 16;

/// The ports of a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortKind {
    Read,
    Write,
    Walk,
}

/// Ports of a master.
const KINDS: usize = 3;

/// The owner of a request: a slot of its master, or a walk of its IOMMU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Id {
    pub(crate) master: u16,
    pub(crate) walk: bool,
    pub(crate) slot: u16,
}

impl Id {
    const fn pack(self) -> u64 {
        (self.master as u64) << 32 | (self.walk as u64) << 16 | self.slot as u64
    }

    pub(crate) const fn unpack(id: u64) -> Self {
        Self { master: (id >> 32) as u16, walk: id >> 16 & 1 == 1, slot: id as u16 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The cycle in which it reaches the arbiter.
    arrival: Cycle,
    id: Id,
    addr: PhysAddr,
}

#[derive(Clone, Debug, Default)]
struct Port {
    queue: VecDeque<Pending>,
    /// The DRAM channel that had no place for the head.
    refused: Option<u32>,
}

/// A read data channel.
#[derive(Clone, Copy, Debug)]
struct ReadChannel {
    /// The cycle after its last beat.
    free: Cycle,
    /// The queues that it serves.
    queues: u64,
    /// Those after the one that was served last.
    after: u64,
}

/// A request that the memory has accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    pub(crate) addr: PhysAddr,
    pub(crate) write: bool,
    /// The cycle in which its write is complete, if acceptance decides that.
    pub(crate) complete: Option<Cycle>,
}

/// The state of the interconnect.
///
/// Invariants: `waiting` has a bit for each port that is not empty, and `returning`
/// for each queue of read data; `refused` has one for each port whose head was refused, which is
/// offered again when its DRAM channel has room; before `next` no other head can go.
#[derive(Clone, Debug)]
pub(crate) struct Interconnect {
    config: InterconnectConfig,
    ports: Box<[Port]>,
    waiting: u64,
    /// Ports whose head was refused.
    refused: u64,
    /// The port after the one that was served last.
    first: u32,
    /// The cycle after that of the last request.
    idle: Cycle,
    /// The next cycle in which a request can go, but for those that were refused.
    next: Cycle,
    /// Read data that wait, by master: the slots of its own, and of its walks, with
    /// their beats.
    returns: Box<[VecDeque<(u16, Cycle)>]>,
    returning: u64,
    read_channels: Box<[ReadChannel]>,
    write_free: Box<[Cycle]>,
    data_beats: Cycle,
    stats: InterconnectStats,
}

impl Interconnect {
    /// Creates an interconnect; the arguments have been tested.
    pub(crate) fn new(config: &InterconnectConfig, masters: usize) -> Self {
        let channels = match config.wiring {
            Wiring::Shared => 1,
            Wiring::PerMaster => masters,
        };
        Self {
            config: *config,
            ports: vec![Port::default(); KINDS * masters].into(),
            waiting: 0,
            refused: 0,
            first: 0,
            idle: 0,
            next: Cycle::MAX,
            returns: vec![VecDeque::new(); 2 * masters].into(),
            returning: 0,
            read_channels: (0..channels)
                .map(|channel| {
                    let queues = if channels == 1 { u64::MAX } else { 0b11 << (2 * channel) };
                    ReadChannel { free: 0, queues, after: u64::MAX }
                })
                .collect(),
            write_free: vec![0; channels].into(),
            data_beats: TRANSACTION_BYTES / Cycle::from(config.beat_bytes),
            stats: InterconnectStats::default(),
        }
    }

    pub(crate) fn into_stats(self) -> InterconnectStats {
        self.stats
    }

    /// Returns the data channel of a master.
    #[inline]
    fn channel(&self, master: u16) -> usize {
        match self.config.wiring {
            Wiring::Shared => 0,
            Wiring::PerMaster => usize::from(master),
        }
    }

    /// Sends a request in the cycle `sent`. O(1).
    #[inline]
    pub(crate) fn send(&mut self, sent: Cycle, id: Id, kind: PortKind, addr: PhysAddr) {
        let number = KINDS * usize::from(id.master) + kind as usize;
        let port = &mut self.ports[number];
        let arrival = sent + Cycle::from(self.config.request_cycles);
        port.queue.push_back(Pending { arrival, id, addr });
        self.waiting |= 1 << number;
        self.next = self.next.min(arrival.max(self.idle));
    }

    /// Returns true if the head of a port can go in the cycle `now`, as far as is known
    /// before the memory is asked.
    #[inline]
    fn is_ready(&self, number: u32, now: Cycle, dram: &Dram) -> bool {
        let port = &self.ports[number as usize];
        let Some(head) = port.queue.front() else { return false };
        head.arrival <= now
            && !(is_write(number) && self.write_free[self.channel(head.id.master)] > now)
            && port.refused.is_none_or(|channel| dram.has_room(channel, is_write(number)))
    }

    /// Hands the memory the request whose turn it is in the cycle `now`, up to which the
    /// memory has been advanced. O(ports).
    ///
    /// # Errors
    /// The request that the memory does not take, and why.
    #[inline]
    pub(crate) fn arbitrate(
        &mut self,
        now: Cycle,
        dram: &mut Dram,
    ) -> Result<Option<Granted>, (Id, PhysAddr, OfferError)> {
        if self.next > now && !self.has_turn(dram) {
            return Ok(None);
        }
        self.grant(now, dram)
    }

    // Out of line, as most cycles have no turn.
    #[inline(never)]
    fn grant(
        &mut self,
        now: Cycle,
        dram: &mut Dram,
    ) -> Result<Option<Granted>, (Id, PhysAddr, OfferError)> {
        let granted = self.offer_first(now, dram);
        self.next = self.next_try(now, dram);
        granted
    }

    #[inline]
    fn offer_first(
        &mut self,
        now: Cycle,
        dram: &mut Dram,
    ) -> Result<Option<Granted>, (Id, PhysAddr, OfferError)> {
        let below = (1u64 << self.first) - 1;
        for half in [self.waiting & !below, self.waiting & below] {
            for number in bits(half) {
                if !self.is_ready(number, now, dram) {
                    continue;
                }
                let port = &mut self.ports[number as usize];
                let Some(&Pending { arrival, id, addr }) = port.queue.front() else { continue };
                let write = is_write(number);
                match dram.offer(now, DramRequest { id: id.pack(), addr, write }) {
                    Ok(()) => {}
                    Err(OfferError::Full { channel }) => {
                        port.refused = Some(channel);
                        self.refused |= 1 << number;
                        continue;
                    }
                    Err(error) => return Err((id, addr, error)),
                }
                port.queue.pop_front();
                port.refused = None;
                self.refused &= !(1 << number);
                if port.queue.is_empty() {
                    self.waiting &= !(1 << number);
                }
                self.first = (number + 1) % self.ports.len() as u32;
                self.idle = now + 1;
                self.stats.requests += 1;
                self.stats.walk_requests += u64::from(id.walk);
                self.stats.wait.record(now - arrival);
                let mut complete = None;
                if write {
                    let taken = now + self.data_beats;
                    let channel = self.channel(id.master);
                    self.write_free[channel] = taken;
                    self.stats.write_beats += self.data_beats;
                    if self.config.write_response == WriteResponse::Accepted {
                        complete = Some(taken + Cycle::from(self.config.response_cycles));
                    }
                }
                return Ok(Some(Granted { id, addr, write, complete }));
            }
        }
        Ok(None)
    }

    /// Returns the next cycle in which a request can go, but for places in the memory's queues.
    #[inline]
    pub(crate) const fn next_request(&self) -> Cycle {
        self.next
    }

    /// Returns true if a head that was refused can go now. O(ports that were refused).
    #[inline]
    pub(crate) fn has_turn(&self, dram: &Dram) -> bool {
        bits(self.refused).any(|number| {
            let refused = self.ports[number as usize].refused;
            refused.is_some_and(|channel| dram.has_room(channel, is_write(number)))
        })
    }

    /// Returns the next cycle after `now` in which a request can go, but for places in
    /// the memory's queues. O(ports that wait).
    #[inline]
    fn next_try(&self, now: Cycle, dram: &Dram) -> Cycle {
        let mut next = Cycle::MAX;
        for number in bits(self.waiting) {
            let port = &self.ports[number as usize];
            let Some(head) = port.queue.front() else { continue };
            if port.refused.is_some_and(|channel| !dram.has_room(channel, is_write(number))) {
                continue;
            }
            let mut at = head.arrival;
            if is_write(number) {
                at = at.max(self.write_free[self.channel(head.id.master)]);
            }
            next = next.min(at);
        }
        if next == Cycle::MAX { next } else { next.max(now + 1).max(self.idle) }
    }

    /// Queues the data of a read, so many bytes, which are there. O(1).
    #[inline]
    pub(crate) fn read_back(&mut self, id: Id, bytes: u64) {
        let queue = 2 * usize::from(id.master) + usize::from(id.walk);
        let beats = bytes.div_ceil(self.config.beat_bytes.into()).max(1);
        self.returns[queue].push_back((id.slot, beats));
        self.returning |= 1 << queue;
    }

    /// Begins a transfer of read data in the cycle `now`, if one can begin: whose, and
    /// when they arrive. To be called until there is none. O(channels).
    #[inline]
    pub(crate) fn begin_transfer(&mut self, now: Cycle) -> Option<(Cycle, Id)> {
        if self.returning == 0 {
            return None;
        }
        let returning = self.returning;
        let ready =
            |channel: &&mut ReadChannel| channel.free <= now && channel.queues & returning != 0;
        let channel = self.read_channels.iter_mut().find(ready)?;
        let waiting = channel.queues & returning;
        let after = waiting & channel.after;
        let queue = if after == 0 { waiting } else { after }.trailing_zeros() as usize;
        channel.after = (u64::MAX << queue) << 1;
        let (slot, beats) = self.returns[queue].pop_front()?;
        if self.returns[queue].is_empty() {
            self.returning &= !(1 << queue);
        }
        let id = Id { master: (queue / 2) as u16, walk: queue % 2 == 1, slot };
        channel.free = now + beats;
        self.stats.read_beats += beats;
        Some((channel.free + Cycle::from(self.config.response_cycles), id))
    }

    /// Returns the next cycle after `now` in which a transfer of read data can begin, of those
    /// that wait. O(channels).
    #[inline]
    pub(crate) fn next_transfer(&self) -> Cycle {
        if self.returning == 0 {
            return Cycle::MAX;
        }
        let waiting = |channel: &&ReadChannel| channel.queues & self.returning != 0;
        let free = self.read_channels.iter().filter(waiting).map(|channel| channel.free);
        free.min().unwrap_or(Cycle::MAX)
    }

    /// Returns, for a write whose data are in the memory, the cycle in which the
    /// response arrives, unless it has been given at acceptance. O(1).
    #[inline]
    pub(crate) fn written(&self, now: Cycle) -> Option<Cycle> {
        match self.config.write_response {
            WriteResponse::Written => Some(now + Cycle::from(self.config.response_cycles)),
            WriteResponse::Accepted => None,
        }
    }
}

/// Returns true if a port is one for writes.
const fn is_write(number: u32) -> bool {
    number as usize % KINDS == PortKind::Write as usize
}
