//! The cost of populating a reservation.

use swath_arch::{Extent, Pfn};
use swath_frame::reserve::{FrameSource, ReservationLevels, Reservations};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, Hardening, MemoryMap, PageBuddy};

use crate::random::Random;
use crate::setup::{FRAMES, buddy};

type Pool<H> = Reservations<PageBuddy<Vec<u64>>, Vec<u64>, H>;

/// What the measured calls do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Populate pages of reservations that exist, at a new time each, so that
    /// each moves in the queue: as much as a population can be.
    Populate,
    /// The same where nothing is reserved yet: 1 call in 32 makes a reservation
    /// if there is one level of order 9.
    Fault,
    /// Free the frames one by one, which returns the reservations too.
    Free,
}

/// Objects of 1 GiB each, so that all of memory is reserved.
const OBJECTS: u64 = 4;
const PAGES: u64 = 1 << 18;
/// Pages of each object that are populated: a sixteenth, in all its ranges.
const POPULATED: usize = 1 << 14;

/// Runs `calls` in random order over reservations on all of memory.
pub(crate) fn gate<H: Hardening>(
    levels: ReservationLevels,
    calls: Calls,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let ranges = [ByteRange::of_frames(Extent::new(Pfn::new(0), FRAMES))];
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&ranges, &mut areas).map_err(|error| error.to_string())?;
    let storage = vec![0; Pool::<H>::storage_words(&map, levels)];
    let mut pool = Pool::<H>::new(&map, levels, buddy(BuddyConfig::PBS_ARMV8, true), storage)
        .map_err(|error| error.to_string())?;
    let mut random = Random::new(1);
    let mut faults = Vec::new();
    for object in 0..OBJECTS {
        let mut pages: Vec<u64> = (0..PAGES).collect();
        random.shuffle(&mut pages);
        faults.extend(pages[..POPULATED].iter().map(|&page| (object, page)));
    }
    random.shuffle(&mut faults);
    let lowest = levels.lowest().frames();
    if calls == Calls::Populate {
        for object in 0..OBJECTS {
            let taken: Vec<u64> =
                faults.iter().filter(|fault| fault.0 == object).map(|fault| fault.1).collect();
            for first in (0..PAGES).step_by(lowest as usize) {
                let free = (first..first + lowest).find(|page| !taken.contains(page));
                let free = free.ok_or("a range has no page left")?;
                pool.populate(object, free, 0..PAGES, 0).map_err(|error| error.to_string())?;
            }
        }
    }
    let mut frames = Vec::with_capacity(faults.len());
    let (mut failed, mut singles) = (0, 0);
    let mut populate = |pool: &mut Pool<H>| {
        for (now, &(object, page)) in (1..).zip(&faults) {
            match pool.populate(object, page, 0..PAGES, now) {
                Ok(page) => {
                    singles += u64::from(page.source == FrameSource::Single);
                    frames.push(page.frame);
                }
                Err(_) => failed += 1,
            }
        }
    };
    if calls == Calls::Free {
        populate(&mut pool);
        counted(&mut || {
            for &frame in &frames {
                failed += u64::from(pool.free(Extent::new(frame, 1)).is_err());
            }
        });
        if pool.free_frames() != FRAMES || pool.reservations() != 0 {
            return Err("not all frames came back".into());
        }
    } else {
        counted(&mut || populate(&mut pool));
    }
    pool.check()?;
    if failed + singles > 0 {
        return Err(format!("{failed} calls failed, {singles} pages got no reservation"));
    }
    Ok(faults.len() as u64)
}
