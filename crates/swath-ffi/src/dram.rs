//! DRAM in time, for simulators.

use swath_arch::PhysAddr;
use swath_hw::{
    AddressMapping, DDR3_800, DDR3_1600, DDR4_3200, DDR5_4800, Dram, DramConfig, DramConfigError,
    DramRequest, LPDDR4_3200, LPDDR5_6400, OfferError, Part, Scheduling,
};

use crate::object::{Opaque, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// A memory of several channels, cycle by cycle.
pub struct swath_dram {
    _private: [u8; 0],
}

/// A memory with what does not change of it.
pub(crate) struct Timed {
    dram: Dram,
    config: DramConfig,
}

impl Opaque for swath_dram {
    type Inner = Timed;
    const TAG: u64 = u64::from_le_bytes(*b"swthdram");
}

/// Chips of a memory.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_dram_part {
    /// DDR3-800 5-5-5.
    SWATH_DRAM_DDR3_800 = 0,
    /// DDR3-1600.
    SWATH_DRAM_DDR3_1600 = 1,
    /// DDR4-3200.
    SWATH_DRAM_DDR4_3200 = 2,
    /// DDR5-4800, a channel of 32 bits.
    SWATH_DRAM_DDR5_4800 = 3,
    /// LPDDR4-3200.
    SWATH_DRAM_LPDDR4_3200 = 4,
    /// LPDDR5-6400.
    SWATH_DRAM_LPDDR5_6400 = 5,
}

const PARTS: [&Part; 6] =
    [&DDR3_800, &DDR3_1600, &DDR4_3200, &DDR5_4800, &LPDDR4_3200, &LPDDR5_6400];

/// Configuration of a memory. Its channels take turns every 64 bytes; each serves what is ready first, then
/// the oldest, and keeps as many writes as reads, which it writes in drains.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_dram_config {
    /// A `swath_dram_part`.
    pub part: u32,
    /// Channels: a power of two up to 64.
    pub channels: u32,
    /// Ranks on each: a power of two, with up to 64 banks on a channel.
    pub ranks: u32,
    /// Places in a channel's queue: 1 to 4096.
    pub queue_entries: u32,
}

/// Constants of a memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_dram_facts {
    /// Bytes of all channels.
    pub len_bytes: u64,
    /// Picoseconds of a cycle of the command clock, in which time is counted.
    pub clock_period_ps: u64,
    /// Bytes of a request.
    pub burst_bytes: u64,
}

/// End of a request.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_dram_done {
    /// The caller's name for it.
    pub id: u64,
    /// The first cycle in which its data are there.
    pub cycle: u64,
    /// 1 if it was a write.
    pub is_write: u32,
}

/// Counters of a memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_dram_stats {
    /// Reads that were accepted.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Requests that found their row open.
    pub row_hits: u64,
    /// Those that found their bank closed.
    pub row_misses: u64,
    /// Those that found another row open.
    pub row_conflicts: u64,
    /// Refreshes.
    pub refreshes: u64,
}

impl From<DramConfigError> for swath_result {
    fn from(error: DramConfigError) -> Self {
        match error {
            DramConfigError::Count { value, .. } => Self::new(SWATH_ARGUMENT, value.into()),
            DramConfigError::Scheduling(scheduling) => {
                Self::new(SWATH_ARGUMENT, scheduling.entries.into())
            }
            DramConfigError::Part(_)
            | DramConfigError::Mapping(_)
            | DramConfigError::Refresh { .. } => Self::new(SWATH_ARGUMENT, 0),
        }
    }
}

fn timed(config: swath_dram_config) -> Outcome<Timed> {
    let swath_dram_config { part, channels, ranks, queue_entries } = config;
    let wrong = |number: u32| swath_result::new(SWATH_ARGUMENT, number.into());
    let part = *PARTS.get(part as usize).ok_or(wrong(part))?;
    for count in [channels, ranks] {
        if !count.is_power_of_two() || count > 64 {
            return Err(wrong(count));
        }
    }
    if !(1..=4096).contains(&queue_entries) {
        return Err(wrong(queue_entries));
    }
    let mapping = AddressMapping::interleaved(part, channels, ranks, 64);
    let config = DramConfig {
        part: part.clone(),
        channels,
        ranks,
        mapping: mapping.map_err(|_| wrong(ranks))?,
        scheduling: Scheduling::fr_fcfs(queue_entries),
    };
    Ok(Timed { dram: Dram::new(&config)?, config })
}

/// Makes a memory at cycle 0, all banks closed, on the C library's heap.
///
/// Errors: `SWATH_ARGUMENT` with the number that cannot be; `SWATH_NULL`.
///
/// # Safety
/// `config` is null or can be read; `dram` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_create(
    config: *const swath_dram_config,
    dram: *mut *mut swath_dram,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let config = unsafe { config.as_ref() }.ok_or(swath_result::new(SWATH_NULL, 0))?;
        // SAFETY: as the caller says.
        unsafe { swath_dram::create_on_heap(dram, || timed(*config)) }
    };
    swath_result::of(create())
}

/// Ends a memory.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library that has not been ended; nobody uses it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_destroy(dram: *mut swath_dram) -> swath_result {
    // SAFETY: as the caller says.
    swath_result::of(unsafe { swath_dram::end(dram) })
}

/// Tells a memory's constants.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library; `facts` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_facts_get(
    dram: *const swath_dram,
    facts: *mut swath_dram_facts,
) -> swath_result {
    // SAFETY: as the caller says.
    let told = unsafe { swath_dram::look(dram) }.and_then(|timed| {
        let part = &timed.config.part;
        let told = swath_dram_facts {
            len_bytes: timed.config.len_bytes(),
            clock_period_ps: part.clock_period_ps.into(),
            burst_bytes: part.burst_bytes().into(),
        };
        // SAFETY: as the caller says.
        unsafe { put(facts, told) }
    });
    swath_result::of(told)
}

/// Offers a request of one burst in a cycle, after simulating all before it.
///
/// Errors: `SWATH_QUEUE_FULL` with the channel: offer it again after `swath_dram_next_event`;
/// `SWATH_BUS` with an address above the memory; `SWATH_ARGUMENT` with a cycle that is past;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_offer(
    dram: *mut swath_dram,
    cycle: u64,
    id: u64,
    addr: u64,
    is_write: u32,
) -> swath_result {
    let offer = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let timed = unsafe { swath_dram::get(dram) }?;
        let request = DramRequest { id, addr: PhysAddr::new(addr), write: is_write != 0 };
        timed.dram.offer(cycle, request).map_err(|error| match error {
            OfferError::Full { channel } => swath_result::new(SWATH_QUEUE_FULL, channel.into()),
            OfferError::Address { addr, .. } => swath_result::new(SWATH_BUS, addr.raw()),
            OfferError::Time { cycle, .. } => swath_result::new(SWATH_ARGUMENT, cycle),
        })
    };
    swath_result::of(offer())
}

/// Advances to a cycle: issues all commands before it. Does nothing if it is past.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_advance(dram: *mut swath_dram, cycle: u64) -> swath_result {
    // SAFETY: as the caller says.
    let timed = unsafe { swath_dram::get(dram) };
    swath_result::of(timed.map(|timed| timed.dram.advance(cycle)))
}

/// Tells the next cycle at which there may be something to see: an end, or a place in a queue.
///
/// Errors: `SWATH_EMPTY` if all is done and taken; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library; `cycle` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_next_event(
    dram: *const swath_dram,
    cycle: *mut u64,
) -> swath_result {
    // SAFETY: as the caller says.
    let told = unsafe { swath_dram::look(dram) }.and_then(|timed| match timed.dram.next_event() {
        // SAFETY: as the caller says.
        Some(next) => unsafe { put(cycle, next) },
        None => fail(SWATH_EMPTY, 0),
    });
    swath_result::of(told)
}

/// Takes the first request that has ended by a cycle, in the order of their ends. Advance to the cycle
/// before.
///
/// Errors: `SWATH_EMPTY` if none has; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library; `done` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_take_done(
    dram: *mut swath_dram,
    cycle: u64,
    done: *mut swath_dram_done,
) -> swath_result {
    let take = || -> Outcome<()> {
        if done.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let timed = unsafe { swath_dram::get(dram) }?;
        let taken = timed.dram.take_done(cycle).ok_or(swath_result::new(SWATH_EMPTY, 0))?;
        let told =
            swath_dram_done { id: taken.id, cycle: taken.cycle, is_write: taken.write.into() };
        // SAFETY: as the caller says.
        unsafe { put(done, told) }
    };
    swath_result::of(take())
}

/// Tells what all channels have counted.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `dram` is null or an object of this library; `stats` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_dram_stats_get(
    dram: *const swath_dram,
    stats: *mut swath_dram_stats,
) -> swath_result {
    // SAFETY: as the caller says.
    let told = unsafe { swath_dram::look(dram) }.and_then(|timed| {
        let counted = timed.dram.stats().total();
        let told = swath_dram_stats {
            reads: counted.reads,
            writes: counted.writes,
            row_hits: counted.row_hits,
            row_misses: counted.row_misses,
            row_conflicts: counted.row_conflicts,
            refreshes: counted.refreshes + counted.set_refreshes,
        };
        // SAFETY: as the caller says.
        unsafe { put(stats, told) }
    });
    swath_result::of(told)
}
