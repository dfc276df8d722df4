//! The cost of the zone allocators: Linux's, which is the baseline, and the green
//! memory manager's.
//!
//! All are called through their trait, as from one program that has several.
//! A zone of 4 GiB has 16 banks of 256 MiB, as the paper's. **Half-used** is a
//! zone that was taken whole, of which a random half of the blocks has been
//! given back; everything in it has the mobility that is asked for, so that
//! nobody has to fall back. **Aged** is a zone that was taken whole and given back in part, and
//! that has then seen several times as many requests as it holds blocks, so that each design has
//! what its own rules leave of it.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, ListPlacement, Placement, PoolPlacement, PoolPolicy,
};
use swath_frame::zone::linux::{LinuxZone, PAGEBLOCK_ORDER};
use swath_frame::{
    BuddyConfig, ByteRange, Checked, Hardening, HeadOfList, MemoryMap, Mobility, PageZone,
    Trusting, ZoneAllocator,
};

use crate::random::Random;

/// An allocator that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Design {
    Linux,
    /// In the tier that checks its words.
    LinuxChecked,
    Array,
    /// The bank that served last first.
    List,
    /// Adaptive-Buddy, fullest banks first.
    Adaptive,
    /// Adaptive-Buddy with the paper's order of banks.
    Paper,
    /// The banks in the tier that checks its words.
    ArrayChecked,
    ListChecked,
    AdaptiveChecked,
    /// The page buddy system of order 4.
    Pages,
    /// It, in the tier that checks its words.
    PagesChecked,
}

/// What the measured calls do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Single frames in a row from a zone of which nothing was taken.
    Fresh,
    /// Single frames of a half-used zone.
    Take(Mobility),
    /// Single frames back, which leaves the zone less than half used.
    Give,
    /// A random frame comes back, and one is taken: one call is both.
    Pair,
    /// Blocks of all orders and mobilities, taken from a half-used zone.
    TakeMixed,
    /// Such blocks back.
    GiveMixed,
    /// A random one of such blocks comes back, and another is taken.
    PairMixed,
    /// The calls of the [`aged`] zone with so many percent of its frames in use.
    Aged(u64, Side, Span),
}

/// The calls of an aged zone that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Takes,
    Gives,
    /// One call is a take and a give.
    TakesAndGives,
}

/// The orders of which calls are counted, from the first to the last.
pub(crate) type Span = (u32, u32);

/// The longest calls, in a zone of so many banks of 16 MiB: one call each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Worst {
    /// A movable request whose pool has nothing left opens a bank.
    Open,
    /// An unmovable one takes the bank of POOL_USER with the most free frames.
    Steal,
    /// A frame is given back that completes the largest block and with it a
    /// bank, which goes offline.
    Rest,
}

const FRAMES: u64 = 1 << 20;
const BANK_FRAMES: u64 = 1 << 16;
const SMALL_BANK_FRAMES: u64 = 1 << 12;
const TOP: Order = Order::known(10);
const SINGLES: usize = 1 << 16;
const BLOCKS: usize = 1 << 13;

/// Of a thousand requests, how many are of each order from 0 on: most pages
/// are single, slabs and stacks are of orders 1 to 3, and some are huge.
const MIXTURE: [u64; 10] = [800, 60, 50, 40, 10, 8, 6, 6, 5, 15];

type Zone = Box<dyn ZoneAllocator>;
type Counted = fn(&mut dyn FnMut());

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Design {
    fn zone(self, frames: u64, bank_frames: u64) -> Result<Zone, String> {
        let span = Extent::new(Pfn::new(0), frames);
        let mut areas = [Extent::default()];
        let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas).map_err(text)?;
        let banks = BankLayout::new(Pfn::new(0), bank_frames, TOP).map_err(text)?;
        Ok(match self {
            Self::Linux => Box::new(linux_zone(&map, span)?),
            Self::LinuxChecked => Box::new(linux_zone(&map, span)?.checked()),
            Self::Array => bank_zone(&map, span, banks, ArrayPlacement)?,
            Self::List => bank_zone(&map, span, banks, ListPlacement::new(true))?,
            Self::Adaptive => bank_zone(&map, span, banks, PoolPlacement::new(PoolPolicy::PACKED))?,
            Self::Paper => bank_zone(&map, span, banks, PoolPlacement::new(PoolPolicy::PAPER))?,
            Self::ArrayChecked => checked_bank_zone(&map, span, banks, ArrayPlacement)?,
            Self::ListChecked => checked_bank_zone(&map, span, banks, ListPlacement::new(true))?,
            Self::AdaptiveChecked => {
                checked_bank_zone(&map, span, banks, PoolPlacement::new(PoolPolicy::PACKED))?
            }
            Self::Pages => page_zone::<Trusting>(&map)?,
            Self::PagesChecked => page_zone::<Checked>(&map)?,
        })
    }
}

fn linux_zone(map: &MemoryMap<'_>, span: Extent) -> Result<LinuxZone<Vec<u64>>, String> {
    let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(span)];
    LinuxZone::new(map, span, PAGEBLOCK_ORDER, storage).map_err(text)
}

fn bank_zone<P: Placement + 'static>(
    map: &MemoryMap<'_>,
    span: Extent,
    banks: BankLayout,
    rule: P,
) -> Result<Zone, String> {
    let words = BankBuddy::<Vec<u64>, P>::storage_words(map, span, banks, &rule).map_err(text)?;
    Ok(Box::new(BankBuddy::new(map, span, banks, rule, vec![0; words]).map_err(text)?))
}

fn checked_bank_zone<P: Placement + 'static>(
    map: &MemoryMap<'_>,
    span: Extent,
    banks: BankLayout,
    rule: P,
) -> Result<Zone, String> {
    let words = BankBuddy::<Vec<u64>, P>::checked_words(map, span, banks, &rule).map_err(text)?;
    let zone = BankBuddy::new(map, span, banks, rule, vec![0; words]).map_err(text)?;
    Ok(Box::new(zone.checked().map_err(text)?))
}

fn page_zone<H: Hardening + 'static>(map: &MemoryMap<'_>) -> Result<Zone, String> {
    let config = BuddyConfig::new(4, Order::known(12)).map_err(text)?;
    let words = PageZone::<Vec<u64>, HeadOfList, H>::storage_words(map, config, PAGEBLOCK_ORDER);
    let storage = vec![0; words];
    let zone = PageZone::<_, HeadOfList, H>::new(map, config, PAGEBLOCK_ORDER, storage);
    Ok(Box::new(zone.map_err(text)?))
}

/// A block in use, or to be.
type Block = (Pfn, Order, Mobility);

/// The next request of the mixture: a huge one is a process's.
fn request(random: &mut Random) -> (Order, Mobility) {
    let mut rest = random.below(1000);
    let mut order = 0;
    while rest >= MIXTURE[order] {
        rest -= MIXTURE[order];
        order += 1;
    }
    let mobility = match random.below(20) {
        0..14 => Mobility::Movable,
        _ if order == 9 => Mobility::Movable,
        14..19 => Mobility::Unmovable,
        _ => Mobility::Reclaimable,
    };
    (Order::known(order as u8), mobility)
}

/// A half-used zone and the blocks in use, in random order.
fn half_used(
    design: Design,
    mut next: impl FnMut() -> (Order, Mobility),
) -> Result<(Zone, Vec<Block>), String> {
    let mut zone = design.zone(FRAMES, BANK_FRAMES)?;
    let mut blocks: Vec<Block> = Vec::new();
    while zone.free_frames() > 0 {
        let (order, mobility) = next();
        // What is left of the zone is too small for the request: singles.
        let order = if zone.largest_free() >= Some(order) { order } else { Order::BASE };
        let start = zone.allocate(order, mobility).ok_or("a request failed")?;
        blocks.push((start, order, mobility));
    }
    Random::new(7).shuffle(&mut blocks);
    for (start, order, _) in blocks.drain(blocks.len() / 2..) {
        zone.free(start, order).map_err(text)?;
    }
    Ok((zone, blocks))
}

/// Every frame that is in use is in one block, and no other.
fn check(zone: &Zone, blocks: &[Block], frames: u64) -> Result<(), String> {
    zone.check()?;
    let mut seen = vec![false; frames as usize];
    for &(start, order, _) in blocks {
        for frame in Extent::new(start, order.frames()).iter() {
            if std::mem::replace(&mut seen[frame.raw() as usize], true) {
                return Err(format!("frame {frame} was given twice"));
            }
        }
    }
    let used = seen.iter().filter(|&&used| used).count() as u64;
    if zone.free_frames() != frames - used {
        return Err(format!("{} frames are free and {used} are used", zone.free_frames()));
    }
    Ok(())
}

/// Counts calls in a zone of which `percent` of the frames stay in use while blocks of all orders
/// and mobilities come and go, for four times as many calls as there are blocks before any is
/// counted. Each counted call is counted by itself, with the ten instructions or so that
/// start one, so that the order of the calls is that of the mixture whatever is counted.
fn aged(
    design: Design,
    (percent, side, orders): (u64, Side, Span),
    counted: Counted,
) -> Result<u64, String> {
    let mut random = Random::new(3);
    let (mut zone, mut used) = half_used(design, || request(&mut random))?;
    let mut free = zone.free_frames();
    let floor = FRAMES * (100 - percent) / 100;
    let (mut takes, mut gives, mut failed) = (0_u64, 0_u64, false);
    let warm = 4 * used.len();
    for step in 0..warm + 8 * BLOCKS {
        let counts = |order: Order, own: Side| {
            step >= warm
                && (side == own || side == Side::TakesAndGives)
                && (orders.0..=orders.1).contains(&order.k())
        };
        if free > floor {
            let (order, mobility) = request(&mut random);
            let order = if zone.largest_free() >= Some(order) { order } else { Order::BASE };
            let (zone, mut start) = (&mut *zone, None);
            let mut take = || start = zone.allocate(order, mobility);
            if counts(order, Side::Takes) {
                takes += 1;
                counted(&mut take);
            } else {
                take();
            }
            used.push((start.ok_or("a request failed")?, order, mobility));
            free -= order.frames();
        } else {
            let (start, order, _) = used.swap_remove(random.below(used.len() as u64) as usize);
            let zone = &mut *zone;
            let mut give = || failed |= zone.free(start, order).is_err();
            if counts(order, Side::Gives) {
                gives += 1;
                counted(&mut give);
            } else {
                give();
            }
            free += order.frames();
        }
    }
    if failed {
        return Err("a block did not come back".into());
    }
    check(&zone, &used, FRAMES)?;
    Ok(if side == Side::TakesAndGives { (takes + gives) / 2 } else { takes + gives })
}

/// Runs the calls of `work`; how many there were.
pub(crate) fn gate(design: Design, work: Work, counted: Counted) -> Result<u64, String> {
    if let Work::Aged(percent, side, orders) = work {
        return aged(design, (percent, side, orders), counted);
    }
    let mut random = Random::new(3);
    let movable = || (Order::BASE, Mobility::Movable);
    let (mut zone, mut used) = match work {
        Work::Fresh => (design.zone(FRAMES, BANK_FRAMES)?, Vec::new()),
        Work::Take(mobility) => half_used(design, || (Order::BASE, mobility))?,
        Work::Give | Work::Pair => half_used(design, movable)?,
        _ => half_used(design, || request(&mut random))?,
    };
    let requests: Vec<(Order, Mobility)> = match work {
        Work::Fresh | Work::Give | Work::Pair => vec![movable(); SINGLES],
        Work::Take(mobility) => vec![(Order::BASE, mobility); SINGLES],
        _ => (0..BLOCKS).map(|_| request(&mut random)).collect(),
    };
    let calls = requests.len();
    let zone_ref = &mut *zone;
    let mut failed = 0_u64;
    match work {
        Work::Fresh | Work::Take(_) | Work::TakeMixed => {
            let mut taken = vec![None; calls];
            counted(&mut || {
                for (&(order, mobility), start) in requests.iter().zip(&mut taken) {
                    *start = zone_ref.allocate(order, mobility);
                }
            });
            for ((order, mobility), start) in requests.into_iter().zip(taken) {
                used.push((start.ok_or("a request failed")?, order, mobility));
            }
        }
        Work::Give | Work::GiveMixed => {
            let given = used.split_off(used.len() - calls);
            counted(&mut || {
                for &(start, order, _) in &given {
                    failed += u64::from(zone_ref.free(start, order).is_err());
                }
            });
        }
        _ => {
            // Long enough for a steady state of the words and lists.
            for round in 0..8 {
                random.shuffle(&mut used);
                let mut pairs = || {
                    for (block, &(order, mobility)) in used.iter_mut().zip(&requests) {
                        failed += u64::from(zone_ref.free(block.0, block.1).is_err());
                        match zone_ref.allocate(order, mobility) {
                            Some(start) => *block = (start, order, mobility),
                            None => failed += 1,
                        }
                    }
                };
                if round == 7 { counted(&mut pairs) } else { pairs() }
            }
        }
    }
    if failed > 0 {
        return Err(format!("{failed} calls failed"));
    }
    check(&zone, &used, FRAMES)?;
    Ok(calls as u64)
}

/// Makes the one call of Adaptive-Buddy that is the longest of its kind.
pub(crate) fn worst(call: Worst, banks: u64, counted: Counted) -> Result<u64, String> {
    let frames = banks * SMALL_BANK_FRAMES;
    let mut zone = Design::Adaptive.zone(frames, SMALL_BANK_FRAMES)?;
    let zone = &mut *zone;
    let take = |zone: &mut dyn ZoneAllocator, order, mobility| {
        zone.allocate(order, mobility).ok_or_else(|| "a request failed".to_owned())
    };
    // Half of the banks are the users', and full.
    for _ in 0..frames / TOP.frames() / 2 {
        take(zone, TOP, Mobility::Movable)?;
    }
    match call {
        Worst::Open => {
            let mut start = None;
            counted(&mut || start = zone.allocate(Order::BASE, Mobility::Movable));
            start.ok_or("no bank was opened")?;
        }
        Worst::Steal => {
            // The others too; one frame in 512 comes back from each, two from one.
            for _ in 0..frames / TOP.frames() / 2 {
                take(zone, TOP, Mobility::Movable)?;
            }
            for frame in (0..frames).step_by(512) {
                zone.free(Pfn::new(frame), Order::BASE).map_err(text)?;
            }
            let bank = frames / 2;
            for frame in bank + 512..bank + 1024 {
                if frame % 512 != 0 {
                    zone.free(Pfn::new(frame), Order::BASE).map_err(text)?;
                }
            }
            let mut start = None;
            counted(&mut || start = zone.allocate(Order::BASE, Mobility::Unmovable));
            let start = start.ok_or("no bank was stolen")?;
            if start.raw() / SMALL_BANK_FRAMES != bank / SMALL_BANK_FRAMES {
                return Err(format!("{start} is not of the bank with the most free frames"));
            }
        }
        Worst::Rest => {
            let first = take(zone, Order::BASE, Mobility::Movable)?;
            // Users above and below, so that the bank leaves a crowded column.
            for _ in 0..frames / TOP.frames() / 4 {
                take(zone, Order::known(9), Mobility::Movable)?;
            }
            let bank = first.raw() / SMALL_BANK_FRAMES * SMALL_BANK_FRAMES;
            for frame in bank..bank + SMALL_BANK_FRAMES {
                let frame = Pfn::new(frame);
                if frame != first {
                    // Some are free already.
                    let _ = zone.free(frame, Order::BASE);
                }
            }
            let mut result = Ok(());
            counted(&mut || result = zone.free(first, Order::BASE));
            result.map_err(text)?;
        }
    }
    zone.check()?;
    Ok(1)
}
