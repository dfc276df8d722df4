//! A memory of several channels of DRAM, driven from event to event.
//!
//! The caller owns the clock. It [`offer`](Dram::offer)s requests of one burst
//! (64 bytes with the parts of this crate) at the cycle it likes; each channel's
//! controller schedules them against the
//! part's timing table; [`take_done`](Dram::take_done) returns the requests that have
//! ended. [`next_event`](Dram::next_event) says when there is anything to see next, so
//! that an interconnect can go from event to event too:
//!
//! ```
//! use swath_arch::PhysAddr;
//! use swath_hw::{Dram, DramConfig, DramRequest};
//!
//! let mut dram = Dram::new(&DramConfig::paper()).unwrap();
//! dram.offer(100, DramRequest { id: 7, addr: PhysAddr::new(0x1000), write: false }).unwrap();
//! let mut done = None;
//! while let Some(cycle) = dram.next_event() {
//!     dram.advance(cycle);
//!     done = dram.take_done(cycle).or(done);
//! }
//! // Activate, tRCD, read, CL, four cycles of data.
//! assert_eq!(done.map(|done| (done.id, done.cycle)), Some((7, 100 + 5 + 5 + 4)));
//! ```
//!
//! **The order within a cycle**: what ends in it is returned, offers are taken, then
//! commands are issued. An offer may cause a command in its own cycle, and the place of a
//! request whose column command is issued is free in the next.

use alloc::boxed::Box;
use alloc::vec::Vec;

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::dram::config::{DramConfig, DramConfigError};
use crate::dram::controller::{Accepted, Controller};
use crate::dram::ends::Ends;
use crate::dram::mapping::{AddressMapping, BankRow, Decoder, Location};
use crate::dram::queue::Arrival;
use crate::dram::request::{Completion, DramRequest, IssuedCommand, OfferError};
use crate::dram::stats::DramStats;

/// No later cycle is accepted: what follows from it still fits.
const CYCLE_MAX: Cycle = 1 << 62;

/// The memory.
///
/// Invariants, which [`check`](Self::check) tests: those of the channels; all
/// commands before `now` have been issued, and none after; the requests that were accepted
/// are in the queues, have ended, or are taken; no channel's next command is before
/// `next_command`, and `next_change` is the first cycle before which no channel has a place.
#[derive(Clone, Debug)]
pub struct Dram {
    now: Cycle,
    accepted: u64,
    taken: u64,
    ends: Ends,
    next_command: Cycle,
    next_change: Cycle,
    mapping: AddressMapping,
    decoder: Decoder,
    burst_shift: u32,
    channels: Box<[Controller]>,
    log: Option<Vec<IssuedCommand>>,
}

impl Dram {
    /// Creates a memory at cycle 0, all banks closed. O(channels (banks + entries)).
    ///
    /// # Errors
    /// [`DramConfigError`].
    pub fn new(config: &DramConfig) -> Result<Self, DramConfigError> {
        config.validate()?;
        let channel = Controller::new(&config.part, config.ranks, config.scheduling)?;
        Ok(Self {
            now: 0,
            accepted: 0,
            taken: 0,
            ends: Ends::new(),
            next_command: 0,
            next_change: Cycle::MAX,
            decoder: config.mapping.decoder(&config.part),
            mapping: config.mapping.clone(),
            burst_shift: config.part.burst_bytes().trailing_zeros(),
            channels: alloc::vec![channel; config.channels as usize].into(),
            log: None,
        })
    }

    /// Returns the present cycle: all before it have been simulated.
    pub const fn now(&self) -> Cycle {
        self.now
    }

    /// Returns the place of an address, or `None` above the memory.
    pub fn locate(&self, addr: PhysAddr) -> Option<Location> {
        self.mapping.locate(addr)
    }

    /// Offers a request in the cycle `now`, after simulating all before it.
    /// O(banks + entries), and [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`OfferError`].
    pub fn offer(&mut self, now: Cycle, request: DramRequest) -> Result<(), OfferError> {
        if now < self.now || now > CYCLE_MAX {
            return Err(OfferError::Time { cycle: now, now: self.now });
        }
        let DramRequest { id, addr, write } = request;
        let Some(BankRow { channel, bank, row }) = self.decoder.place(addr) else {
            return Err(OfferError::Address { addr, len_bytes: 1 << self.mapping.bits() });
        };
        self.advance(now);
        let burst = addr.raw() >> self.burst_shift;
        let arrival = Arrival { id, order: self.accepted, burst, bank, row, write };
        let controller = &mut self.channels[channel as usize];
        let before = controller.next_change();
        match controller.accept(now, &arrival, &mut self.ends) {
            Accepted::Full => return Err(OfferError::Full { channel }),
            Accepted::Queued => {
                self.next_command = self.next_command.min(controller.next_command());
                let change = controller.next_change();
                if change != before {
                    self.next_change = self.first_change();
                }
            }
            Accepted::Forwarded => {}
        }
        self.accepted += 1;
        Ok(())
    }

    /// Advances to the cycle `until`: issues all commands before it. Does nothing
    /// if it is past; cycles beyond 2^62 count as that one. O(banks) for each command, and
    /// O(1) for all of a time without requests.
    #[inline]
    pub fn advance(&mut self, until: Cycle) {
        let until = until.min(CYCLE_MAX);
        if until <= self.now {
            return;
        }
        self.now = until;
        if self.next_command < until {
            self.issue_before(until);
        }
    }

    /// Issues all commands before the cycle `until`, of which there may be some.
    // Out of line, as most cycles have none.
    #[inline(never)]
    fn issue_before(&mut self, until: Cycle) {
        let (mut next_command, mut next_change) = (Cycle::MAX, Cycle::MAX);
        if let Some(log) = &mut self.log {
            for (number, channel) in (0..).zip(&mut self.channels) {
                channel.advance_logged(until, &mut self.ends, (log, number));
                next_command = next_command.min(channel.next_command());
                next_change = next_change.min(channel.next_change());
            }
        } else {
            for channel in &mut self.channels {
                channel.advance(until, &mut self.ends);
                next_command = next_command.min(channel.next_command());
                next_change = next_change.min(channel.next_change());
            }
        }
        (self.next_command, self.next_change) = (next_command, next_change);
    }

    /// Returns the first cycle before which no channel has a place. O(channels).
    #[inline]
    fn first_change(&self) -> Cycle {
        self.channels.iter().map(Controller::next_change).fold(Cycle::MAX, Cycle::min)
    }

    /// Returns the next cycle at which there may be something to see: a completion to take,
    /// or a place in a queue. Nothing is before it unless a request is offered. A
    /// completion that was not taken when it was time is still one to take. `None` if
    /// all is done and taken. O(1).
    #[inline]
    pub fn next_event(&self) -> Option<Cycle> {
        let next = self.ends.first().min(self.next_change);
        (next != Cycle::MAX).then_some(next)
    }

    /// Returns the first request that has ended by the cycle `now`, in the order of their ends
    /// and then of acceptance. Everything before the present cycle is known: call
    /// [`advance`](Self::advance) first. O(1).
    #[inline]
    pub fn take_done(&mut self, now: Cycle) -> Option<Completion> {
        if self.ends.first() > now.min(self.now) {
            return None;
        }
        let done = self.ends.take();
        self.taken += u64::from(done.is_some());
        done
    }

    /// Returns true if a channel's queue has a place for a read, or for a write, in the
    /// present cycle; `false` for a channel that is not there. An
    /// [`offer`](Self::offer) finds out as well, but looks the address up each time.
    pub fn has_room(&self, channel: u32, write: bool) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.has_room(write))
    }

    /// Returns the number of requests in a channel's queues; 0 for a channel that is not there.
    pub fn queued(&self, channel: u32) -> u32 {
        self.channels.get(channel as usize).map_or(0, Controller::queued)
    }

    /// Returns the counters since the start or the last [`reset_stats`](Self::reset_stats).
    pub fn stats(&self) -> DramStats {
        DramStats {
            channels: self.channels.iter().map(|channel| channel.stats(self.now)).collect(),
        }
    }

    /// Sets every counter to 0; requests and rows stay.
    pub fn reset_stats(&mut self) {
        for channel in &mut self.channels {
            channel.reset_stats(self.now);
        }
    }

    /// Begins to keep every command that is issued, for a checker to read.
    pub fn record_commands(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Returns the commands since [`record_commands`](Self::record_commands) or the
    /// last call; of one channel in order of time.
    pub fn take_commands(&mut self) -> Vec<IssuedCommand> {
        self.log.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Tests every invariant. O(channels entries²).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        self.ends.check()?;
        let mut queued = 0;
        for channel in &self.channels {
            channel.check()?;
            queued += u64::from(channel.queued());
            if channel.next_command() < self.next_command {
                return Err("a command comes before the next one");
            }
            if channel.next_change() <= self.now {
                return Err("a command lies in the past");
            }
        }
        if self.next_change != self.first_change() {
            return Err("the next change is another one");
        }
        if queued + self.ends.len() as u64 + self.taken != self.accepted {
            return Err("a request is lost");
        }
        Ok(())
    }
}
