//! A recorded kernel's free lists beside the baseline's, event by event.
//!
//! A recording of the whole system shows what entered and left the free lists
//! of every zone: takes, fallbacks, drains, and frees of the orders for which
//! there are no per-CPU lists. With a snapshot of the same machine, taken while the
//! recording ran, that is enough to rebuild the lists at its beginning:
//!
//! * The snapshot was taken where it differs least from what the events say. Of
//!   the frames with events before, the first one tells: what leaves the lists
//!   was free, what enters them was in use. Of all others the snapshot tells.
//! * Free buddies are always merged, so which frames are free determines the
//!   blocks.
//! * A pageblock's mobility is the one that its first event shows; without
//!   one it counts as movable, as the kernel makes all memory at boot.
//!
//! [`follow`] then goes through the events with a [`LinuxZone`] in the kernel's
//! state. At each take it brings the block that the kernel took to the head of
//! its list, because the order of the lists at the beginning is not known,
//! and asks whether the zone's rules lead to the same frames, from the same
//! order and mobility, with the same claim. Where they do not, it counts and does by
//! force what the kernel did. [`run_free`] lets the same zones serve
//! the same requests by themselves.

use std::collections::BTreeMap;
use std::fmt;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::linux::{Fallback, Observe, PAGEBLOCK_ORDER, fallbacks};
use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};

use crate::page_events::{MigrateType, PageChange, PageEvent};
use crate::snapshot::{FrameKind, Snapshot};

/// Why a recording cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// Events are missing.
    #[error("the recording lost {0} events")]
    Lost(u64),
    /// The zones cannot be built.
    #[error("zone {zone}: {what}")]
    Zone {
        /// Its name.
        zone: String,
        /// Why.
        what: String,
    },
}

/// What happens to a zone's free lists.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take { start: Pfn, order: Order, wanted: MigrateType, cpu: u16, found: Option<Found> },
    Give { start: Pfn, order: Order, list: Option<MigrateType> },
}

/// A fallback's other half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    order: Order,
    from: MigrateType,
    claimed: bool,
}

/// A kind of fallback.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FallbackKind {
    /// The mobility asked for.
    pub wanted: Mobility,
    /// The mobility found.
    pub from: Mobility,
    /// Whether the block found was of a pageblock or more.
    pub whole: bool,
    /// Whether the pageblock changed over.
    pub claimed: bool,
}

impl fmt::Display for FallbackKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |mobility| match mobility {
            Mobility::Unmovable => "U",
            Mobility::Movable => "M",
            Mobility::Reclaimable => "R",
        };
        let how = match (self.whole, self.claimed) {
            (true, true) => "whole",
            (true, false) => "of a whole",
            (false, true) => "claimed",
            (false, false) => "taken",
        };
        write!(f, "{}←{} {how}", short(self.wanted), short(self.from))
    }
}

/// How the zone's answer differs from the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// The zone has a block of the mobility asked for.
    OwnBlock,
    /// It finds another order or mobility.
    OtherBlock,
    /// It claims the pageblock where the kernel does not, or the reverse.
    OtherClaim,
    /// It finds nothing.
    Nothing,
    /// It takes other frames of the same pageblock.
    OtherFrames,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnBlock => "the baseline has a block of its own",
            Self::OtherBlock => "another order or mobility",
            Self::OtherClaim => "claimed or not",
            Self::Nothing => "the baseline finds nothing",
            Self::OtherFrames => "other frames of the pageblock",
        })
    }
}

/// Events of a kind: how many, and how many came out the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreement {
    /// Recorded.
    pub recorded: u64,
    /// The same by the zone's rules.
    pub same: u64,
}

impl Agreement {
    fn count(&mut self, same: bool) {
        self.recorded += 1;
        self.same += u64::from(same);
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// Takes from the own mobility's lists.
    pub own: Agreement,
    /// Those takes of which the frame was the zone's first without help.
    pub own_first: u64,
    /// Fallbacks.
    pub fallbacks: BTreeMap<FallbackKind, Agreement>,
    /// Fallbacks of which the block found was the first of its list without help.
    pub fallback_first: u64,
    /// Of the fallbacks that came out the same: steals that follow another one of their batch,
    /// where the kernel looks for nothing else.
    pub in_batch: u64,
    /// Fallbacks that came out otherwise.
    pub differences: BTreeMap<(FallbackKind, Difference), u64>,
    /// Drains: whether the kernel's list is that of the zone's pageblock.
    pub lists: Agreement,
    /// Frames that the kernel took though no event had given them back.
    pub given_unseen: u64,
    /// Frames given back that were free.
    pub given_twice: u64,
    /// Takes from the kernel's reserves.
    pub reserves: u64,
    /// Pageblocks at the end.
    pub end: Pageblocks,
}

/// Pageblocks of all zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pageblocks {
    /// By mobility, in the order of [`Mobility::ALL`].
    pub of: [u64; 3],
    /// In use by movable and by other owners.
    pub mixed: u64,
}

impl Followed {
    /// Fallbacks of all kinds.
    pub fn all_fallbacks(&self) -> Agreement {
        let mut all = Agreement::default();
        for kind in self.fallbacks.values() {
            all.recorded += kind.recorded;
            all.same += kind.same;
        }
        all
    }
}

/// The last fallback, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastFallback {
    count: u64,
    event: Option<Fallback>,
}

impl Observe for LastFallback {
    fn fallback(&mut self, event: &Fallback) {
        *self = Self { count: self.count + 1, event: Some(*event) };
    }
}

type Zone = LinuxZone<Vec<u64>, LastFallback>;

/// The zones at the recording's beginning, and what happens to their lists.
pub struct Course {
    zones: Vec<Zone>,
    steps: Vec<Step>,
}

/// For a request of this order there are per-CPU lists.
fn per_cpu(order: Order) -> bool {
    order.k() <= 3 || order == PAGEBLOCK_ORDER
}

/// The steps among the events. A claim within a pageblock shows as a take and
/// then, on the same processor, as the fallback that led to it.
fn steps(events: &[PageEvent]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut last_take = BTreeMap::new();
    for event in events {
        let cpu = event.cpu;
        match event.change {
            PageChange::Take { start, order, migrate_type: wanted, .. } => {
                last_take.insert(cpu, steps.len());
                steps.push(Step::Take { start, order, wanted, cpu, found: None });
                continue;
            }
            PageChange::Fallback { start, order, fallback_order, wanted, found, claimed } => {
                let new = Found { order: fallback_order, from: found, claimed };
                let took = last_take.remove(&cpu).map(|nth: usize| &mut steps[nth]);
                if let Some(Step::Take { start: at, order: of, wanted: by, found, .. }) = took
                    && (*at, *of, *by) == (start, order, wanted)
                {
                    *found = Some(new);
                } else {
                    steps.push(Step::Take { start, order, wanted, cpu, found: Some(new) });
                }
            }
            PageChange::Drain { start, order, migrate_type } => {
                steps.push(Step::Give { start, order, list: Some(migrate_type) });
            }
            PageChange::Free { start, order } if !per_cpu(order) => {
                steps.push(Step::Give { start, order, list: None });
            }
            _ => continue,
        }
        last_take.remove(&cpu);
    }
    steps
}

/// After which step the snapshot was taken: where what the steps say of the
/// frames differs least from it. `first` says of each frame whether its first
/// step finds it free. O(frames of the steps).
fn snapshot_step(steps: &[Step], first: &[Option<bool>], owner: &[Option<Mobility>]) -> usize {
    let mut free: Vec<bool> = first.iter().map(|first| first.unwrap_or(false)).collect();
    let (mut differ, mut least, mut best) = (0_i64, 0_i64, 0);
    for (nth, step) in steps.iter().enumerate() {
        let (Step::Take { start, order, .. } | Step::Give { start, order, .. }) = *step;
        let now = matches!(step, Step::Give { .. });
        let frames = start.raw() as usize..(start.raw() + order.frames()) as usize;
        for frame in frames.start.min(free.len())..frames.end.min(free.len()) {
            let there = owner[frame].is_none();
            differ += i64::from(now != there) - i64::from(free[frame] != there);
            free[frame] = now;
        }
        if differ < least {
            (least, best) = (differ, nth + 1);
        }
    }
    best
}

fn pageblock_of(frame: Pfn) -> u64 {
    frame.raw() >> PAGEBLOCK_ORDER.k()
}

impl Course {
    /// From the events of a recording of the whole system and a snapshot that
    /// was taken while it ran. O(events + frames).
    ///
    /// # Errors
    /// [`FollowError::Lost`] or [`FollowError::Zone`].
    pub fn new(events: &[PageEvent], snapshot: &Snapshot) -> Result<Self, FollowError> {
        let lost = events.iter().map(|event| match event.change {
            PageChange::Lost { count } => count.max(1),
            _ => 0,
        });
        let lost = lost.sum();
        if lost > 0 {
            return Err(FollowError::Lost(lost));
        }
        let steps = steps(events);
        let end = snapshot.runs().map(|run| run.extent.end().raw()).max().unwrap_or(0) as usize;
        // Whether in use, by whom; then what the events say first.
        let mut owner = vec![Some(Mobility::Unmovable); end];
        for run in snapshot.runs() {
            let of = match run.kind {
                FrameKind::Free => None,
                FrameKind::File | FrameKind::Anon | FrameKind::LargeFolio => {
                    Some(Mobility::Movable)
                }
                _ => Some(Mobility::Unmovable),
            };
            owner[run.extent.start.raw() as usize..run.extent.end().raw() as usize].fill(of);
        }
        let mut first = vec![None; end];
        let mut mobility = BTreeMap::new();
        let mut shows = |start: Pfn, order: Order, of: MigrateType| {
            let last = Pfn::new(start.raw() + order.frames() - 1);
            for pageblock in pageblock_of(start)..=pageblock_of(last) {
                if let Some(of) = of.mobility() {
                    mobility.entry(pageblock).or_insert(of);
                }
            }
        };
        for step in &steps {
            let (start, order, free) = match *step {
                Step::Take { start, order, wanted, found, .. } => {
                    match found {
                        Some(found) if found.order >= PAGEBLOCK_ORDER => {
                            let k = found.order.k();
                            let block = Pfn::new(start.raw() >> k << k);
                            shows(block, found.order, found.from);
                        }
                        Some(found) => shows(start, order, found.from),
                        None => shows(start, order, wanted),
                    }
                    (start, order, true)
                }
                Step::Give { start, order, list } => {
                    if let Some(list) = list {
                        shows(start, order, list);
                    }
                    (start, order, false)
                }
            };
            let frames = start.raw() as usize..(start.raw() + order.frames()) as usize;
            for known in &mut first[frames.start.min(end)..frames.end.min(end)] {
                known.get_or_insert(free);
            }
        }
        let past = snapshot_step(&steps, &first, &owner);
        let mut seen = vec![false; end];
        for step in &steps[..past] {
            let (Step::Take { start, order, .. } | Step::Give { start, order, .. }) = *step;
            let frames = start.raw() as usize..(start.raw() + order.frames()) as usize;
            for frame in frames.start.min(end)..frames.end.min(end) {
                if !std::mem::replace(&mut seen[frame], true) {
                    let takes = matches!(step, Step::Take { .. });
                    owner[frame] = (!takes).then(|| owner[frame].unwrap_or(Mobility::Unmovable));
                }
            }
        }
        let ranges: Vec<ByteRange> =
            snapshot.ranges().iter().map(|range| ByteRange::of_frames(range.frames())).collect();
        let mut areas = vec![Extent::default(); ranges.len()];
        let failed = |zone: &str, what: String| FollowError::Zone { zone: zone.to_owned(), what };
        let map = MemoryMap::new(&ranges, &mut areas).map_err(|e| failed("", e.to_string()))?;
        let mut zones = Vec::new();
        for zone in &snapshot.facts().zones {
            let span = Extent::new(Pfn::new(zone.start_frame), zone.spanned_frames);
            let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(span)];
            let built = LinuxZone::from_state(
                &map,
                span,
                PAGEBLOCK_ORDER,
                storage,
                &mut |frame| owner[frame.raw() as usize],
                &mut |start| {
                    mobility.get(&pageblock_of(start)).copied().unwrap_or(Mobility::Movable)
                },
            );
            let built = built.map_err(|error| failed(&zone.name, error.to_string()))?;
            zones.push(built.observed(LastFallback::default()));
        }
        Ok(Self { zones, steps })
    }

    /// The mobilities of pageblocks at the beginning.
    pub fn start(&self) -> Pageblocks {
        pageblocks(&self.zones)
    }
}

fn pageblocks(zones: &[Zone]) -> Pageblocks {
    let mut sum = Pageblocks::default();
    for zone in zones {
        let starts = (zone.span().start.raw()..zone.span().end().raw())
            .step_by(PAGEBLOCK_ORDER.frames() as usize);
        for start in starts.map(Pfn::new) {
            let Some(mobility) = zone.pageblock_mobility(start) else { continue };
            sum.of[mobility as usize] += 1;
            let [movable, other] = zone.pageblock_users(start);
            sum.mixed += u64::from(movable > 0 && other > 0);
        }
    }
    sum
}

/// Goes through the events; see the module. O(events) with the zone's costs.
pub fn follow(course: &Course) -> Followed {
    let mut zones = course.zones.clone();
    let mut out = Followed::default();
    // Whether the step before in the zone was a steal, and of what.
    let mut stealing = vec![None; zones.len()];
    for step in &course.steps {
        let (Step::Take { start, .. } | Step::Give { start, .. }) = *step;
        let Some(nth) = zones.iter().position(|zone| zone.span().contains(start)) else { continue };
        let zone = &mut zones[nth];
        match *step {
            Step::Give { start, order, list } => {
                give(zone, start, order, &mut out);
                let Some(list) = list.and_then(MigrateType::mobility) else { continue };
                let same = zone.pageblock_mobility(start) == Some(list);
                out.lists.count(same);
                if !same {
                    zone.set_mobility(start, list);
                }
                stealing[nth] = None;
            }
            Step::Take { start, order, wanted, cpu, found } => {
                out.given_unseen += make_free(zone, start, order);
                let Some(wanted) = wanted.mobility() else {
                    out.reserves += 1;
                    zone.take_at(start, order, Mobility::Unmovable);
                    continue;
                };
                let Some(found) = found else {
                    own(zone, start, order, wanted, &mut out);
                    stealing[nth] = None;
                    continue;
                };
                let of_batch = stealing[nth] == Some((cpu, order, wanted));
                fall_back(zone, (start, order, wanted), found, of_batch, &mut out);
                stealing[nth] = (!found.claimed).then_some((cpu, order, wanted));
            }
        }
    }
    out.end = pageblocks(&zones);
    out
}

/// Gives back those frames of a block that are in use, as a whole if all are.
fn give(zone: &mut Zone, start: Pfn, order: Order, out: &mut Followed) {
    if zone.give(start, order).is_ok() {
        return;
    }
    for frame in Extent::new(start, order.frames()).iter() {
        out.given_twice += u64::from(zone.give(frame, Order::BASE).is_err());
    }
}

/// Gives back what is in use of a block that the kernel found free; how much.
fn make_free(zone: &mut Zone, start: Pfn, order: Order) -> u64 {
    if zone.free_block(start).is_some_and(|(_, of)| of >= order) {
        return 0;
    }
    let frames = Extent::new(start, order.frames()).iter();
    frames.map(|frame| u64::from(zone.give(frame, Order::BASE).is_ok())).sum()
}

/// A take without a fallback: the smallest order of the own lists that has a
/// block, of that the first.
fn own(zone: &mut Zone, start: Pfn, order: Order, wanted: Mobility, out: &mut Followed) {
    let first = zone.bring_forward(start) == Some(true);
    let block = zone.free_block(start).map(|(block, _)| block);
    let smallest = (order.k()..=10).find_map(|k| zone.list(Order::known(k as u8), wanted).next());
    let same = smallest.is_some() && smallest == block && block == Some(start);
    out.own.count(same);
    out.own_first += u64::from(same && first);
    if same {
        let taken = zone.take(order, wanted);
        debug_assert_eq!(taken, Some(start), "the first block of the list is what is taken");
    } else {
        zone.take_at(start, order, wanted);
    }
}

fn fall_back(
    zone: &mut Zone,
    (start, order, wanted): (Pfn, Order, Mobility),
    found: Found,
    of_batch: bool,
    out: &mut Followed,
) {
    let Some(from) = found.from.mobility() else {
        out.reserves += 1;
        zone.take_at(start, order, wanted);
        return;
    };
    let whole = found.order >= PAGEBLOCK_ORDER;
    let kind = FallbackKind { wanted, from, whole, claimed: found.claimed };
    // After a claim the request gets the smallest block of the pageblock, which
    // need not be the one that was found.
    let block = if found.claimed && !whole {
        let first = pageblock_of(start) << PAGEBLOCK_ORDER.k();
        let step = found.order.frames() as usize;
        let mut starts = (first..first + PAGEBLOCK_ORDER.frames()).step_by(step).map(Pfn::new);
        starts.find(|at| zone.free_block(*at) == Some((*at, found.order)))
    } else {
        Some(start)
    };
    let first = block.and_then(|block| zone.bring_forward(block)) == Some(true);
    let steals = of_batch && !found.claimed && {
        let smallest = (order.k()..=10).map(|k| Order::known(k as u8)).find_map(|of| {
            let from = fallbacks(wanted).into_iter().find(|m| zone.list(of, *m).next().is_some());
            from.map(|from| (of, from))
        });
        smallest == Some((found.order, from))
    };
    let before = zone.observer().count;
    let taken = zone.take(order, wanted);
    let event = zone.observer().event.filter(|_| zone.observer().count > before);
    let expected =
        Fallback { start, order, block_order: found.order, wanted, from, claimed: found.claimed };
    let mut same = event == Some(expected);
    if !same {
        if let Some(taken) = taken {
            let given = zone.give(taken, order);
            debug_assert!(given.is_ok(), "what was taken can be given back");
        }
        if let Some(event) = event.filter(|event| event.claimed) {
            zone.set_mobility(event.start, event.from);
        }
        if found.claimed {
            zone.set_mobility(start, wanted);
        }
        zone.take_at(start, order, wanted);
        same = steals;
        out.in_batch += u64::from(steals);
    }
    out.fallback_first += u64::from(same && first);
    out.fallbacks.entry(kind).or_default().count(same);
    if !same {
        let why = match event {
            None if taken.is_some() => Difference::OwnBlock,
            None => Difference::Nothing,
            Some(event) if (event.block_order, event.from) != (found.order, from) => {
                Difference::OtherBlock
            }
            Some(event) if event.claimed != found.claimed => Difference::OtherClaim,
            Some(_) => Difference::OtherFrames,
        };
        *out.differences.entry((kind, why)).or_default() += 1;
    }
}

/// What the zones did by themselves.
#[derive(Clone, Debug, Default)]
pub struct RanFree {
    /// Fallbacks.
    pub fallbacks: BTreeMap<FallbackKind, u64>,
    /// Takes for which a zone had nothing.
    pub failed: u64,
    /// Pageblocks at the end.
    pub end: Pageblocks,
}

/// Lets the zones serve the requests that reached the kernel's free lists, each
/// in the zone that served it there. O(events) with the zone's costs.
pub fn run_free(course: &Course) -> RanFree {
    const NOWHERE: u64 = u64::MAX;
    let mut zones = course.zones.clone();
    let mut out = RanFree::default();
    // Where the zone has what the kernel has at a frame.
    let end = zones.iter().map(|zone| zone.span().end().raw()).max().unwrap_or(0);
    let mut place: Vec<u64> = (0..end).collect();
    for zone in &zones {
        zone.for_each_free(&mut |free| {
            place[free.start.raw() as usize..free.end().raw() as usize].fill(NOWHERE);
        });
    }
    for step in &course.steps {
        let (Step::Take { start, order, .. } | Step::Give { start, order, .. }) = *step;
        let Some(zone) = zones.iter_mut().find(|zone| zone.span().contains(start)) else {
            continue;
        };
        let frames = start.raw() as usize..(start.raw() + order.frames()) as usize;
        let Some(places) = place.get_mut(frames) else { continue };
        // A take of what is in use: that was given back unseen.
        let at = places[0];
        let in_one = at.is_multiple_of(order.frames())
            && at != NOWHERE
            && places.iter().zip(at..).all(|(place, at)| *place == at);
        if !in_one || zone.give(Pfn::new(at), order).is_err() {
            for place in places.iter().filter(|place| **place != NOWHERE) {
                let given = zone.give(Pfn::new(*place), Order::BASE);
                debug_assert!(given.is_ok(), "what has a place is in use");
            }
        }
        places.fill(NOWHERE);
        let Step::Take { wanted, .. } = *step else { continue };
        let before = zone.observer().count;
        let wanted = wanted.mobility().unwrap_or(Mobility::Unmovable);
        let Some(taken) = zone.take(order, wanted) else {
            out.failed += 1;
            continue;
        };
        for (place, at) in places.iter_mut().zip(taken.raw()..) {
            *place = at;
        }
        if let Some(event) = zone.observer().event.filter(|_| zone.observer().count > before) {
            let whole = event.block_order >= PAGEBLOCK_ORDER;
            let Fallback { wanted, from, claimed, .. } = event;
            *out.fallbacks.entry(FallbackKind { wanted, from, whole, claimed }).or_default() += 1;
        }
    }
    out.end = pageblocks(&zones);
    out
}
