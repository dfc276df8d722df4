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
//! * Of two blocks in a list, the one that is taken first stands first.
//!
//! [`follow`] then goes through the events with a [`LinuxZone`] in the kernel's
//! state. At each take it brings the block that the kernel took to the head of
//! its list, should it not be there, and asks whether the zone's rules lead to
//! the same frames, from the same order and mobility, with the same claim. Where
//! they do not, it counts and does by force what the kernel did. [`run_free`]
//! lets the same zones serve the same requests by themselves.

use std::collections::BTreeMap;
use std::fmt;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::{Fallback, Observe, PAGEBLOCK_ORDER, fallbacks};
use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};

use crate::papers::green::pages::requests::mobility_of;
use crate::papers::green::pages::steps::{BlockChange, BlockStep, FallbackFound, steps};
use swath_trace::machine::{FrameKind, Snapshot};
use swath_trace::pages::{MigrateType, PageChange, PageEvent};

/// Reasons why a recording cannot be followed.
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
        /// The reason.
        what: String,
    },
}

/// A kind of fallback.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FallbackKind {
    /// The mobility wanted.
    pub wanted: Mobility,
    /// The mobility found.
    pub from: Mobility,
    /// True if the block found was of a pageblock or more.
    pub whole: bool,
    /// True if the pageblock changed over.
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

/// A difference of the zone's choice from the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// The zone has a block of the mobility wanted.
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

/// The outcome of following a recording.
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
    /// Of the pageblocks that were claimed in part free, the fewest frames that were free or alike.
    pub claimed_least: Option<u32>,
    /// Of those that were looked at and left, the most.
    pub left_most: Option<u32>,
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
    /// The blocks that were the first of their lists for the kernel, one after another.
    firsts: Vec<(Pfn, Order)>,
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
    steps: Vec<BlockStep>,
}

/// The owner of each frame in the snapshot; `None` for a free one.
fn owners(snapshot: &Snapshot, end: usize) -> Vec<Option<Mobility>> {
    let mut owner = vec![Some(Mobility::Unmovable); end];
    for run in snapshot.runs() {
        let of = match run.kind {
            FrameKind::Free => None,
            FrameKind::File | FrameKind::Anon | FrameKind::LargeFolio => Some(Mobility::Movable),
            _ => Some(Mobility::Unmovable),
        };
        owner[run.extent.start.raw() as usize..run.extent.end().raw() as usize].fill(of);
    }
    owner
}

/// The state that the first event of each frame and pageblock shows: true if the
/// frame was free before, and the mobility.
fn shown_first(steps: &[BlockStep], end: usize) -> (Vec<Option<bool>>, BTreeMap<u64, Mobility>) {
    let mut first = vec![None; end];
    let mut mobility = BTreeMap::new();
    let mut shows = |start: Pfn, order: Order, of: MigrateType| {
        let last = start + (order.frames() - 1);
        for pageblock in pageblock_of(start)..=pageblock_of(last) {
            if let Some(of) = mobility_of(of) {
                mobility.entry(pageblock).or_insert(of);
            }
        }
    };
    for step in steps {
        let Some(free) = step.is_free_after() else { continue };
        let &BlockStep { start, order, what } = step;
        match what {
            BlockChange::Take { found: Some(found), .. } if found.order >= PAGEBLOCK_ORDER => {
                let k = found.order.k();
                let block = start.align_down(k);
                shows(block, found.order, found.from);
            }
            BlockChange::Take { found: Some(FallbackFound { from: list, .. }), .. }
            | BlockChange::Take { wanted: list, .. }
            | BlockChange::Give { list: Some(list) } => shows(start, order, list),
            _ => {}
        }
        for known in &mut first[step.frames(end)] {
            // What leaves the lists was free.
            known.get_or_insert(!free);
        }
    }
    (first, mobility)
}

/// The zones in the state that the owners and mobilities are of.
fn zones(
    snapshot: &Snapshot,
    owner: &[Option<Mobility>],
    mobility: &BTreeMap<u64, Mobility>,
) -> Result<Vec<Zone>, FollowError> {
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
            &mut |start| mobility.get(&pageblock_of(start)).copied().unwrap_or(Mobility::Movable),
        );
        let built = built.map_err(|error| failed(&zone.name, error.to_string()))?;
        zones.push(built.observed(LastFallback::default()));
    }
    Ok(zones)
}

/// After which step the snapshot was taken: where what the steps say of the
/// frames differs least from it. `first` says of each frame whether its first
/// step finds it free. O(frames of the steps).
fn snapshot_step(steps: &[BlockStep], first: &[Option<bool>], owner: &[Option<Mobility>]) -> usize {
    let mut free: Vec<bool> = first.iter().map(|first| first.unwrap_or(false)).collect();
    let (mut differ, mut least, mut best) = (0_i64, 0_i64, 0);
    for (nth, step) in steps.iter().enumerate() {
        let Some(now) = step.is_free_after() else { continue };
        for frame in step.frames(free.len()) {
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
    /// was taken while it ran. O(events) with the zone's costs, and O(frames).
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
        let mut owner = owners(snapshot, end);
        let (first, mobility) = shown_first(&steps, end);
        let past = snapshot_step(&steps, &first, &owner);
        let mut seen = vec![false; end];
        for step in &steps[..past] {
            let Some(free) = step.is_free_after() else { continue };
            for frame in step.frames(end) {
                if !std::mem::replace(&mut seen[frame], true) {
                    owner[frame] = free.then(|| owner[frame].unwrap_or(Mobility::Unmovable));
                }
            }
        }
        let zones = zones(snapshot, &owner, &mobility)?;
        let mut course = Self { zones, steps };
        for (start, order) in follow(&course).firsts.into_iter().rev() {
            for zone in &mut course.zones {
                if zone.free_block(start) == Some((start, order)) {
                    zone.bring_forward(start);
                }
            }
        }
        Ok(course)
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
    let mut stealing = false;
    for step in &course.steps {
        let BlockStep { start, order, what } = *step;
        let Some(zone) = zones.iter_mut().find(|zone| zone.span().contains(start)) else {
            continue;
        };
        let end = start.raw().saturating_add(order.frames());
        match what {
            BlockChange::Give { list } => {
                give(zone, start, order, &mut out);
                let Some(list) = list.and_then(mobility_of) else { continue };
                let same = zone.pageblock_mobility(start) == Some(list);
                out.lists.count(same);
                if !same {
                    zone.set_mobility(start, list);
                }
            }
            BlockChange::Take { wanted, found, next } => {
                stealing &= next;
                out.given_unseen += make_free(zone, start, order);
                let Some(wanted) = mobility_of(wanted) else {
                    out.reserves += 1;
                    zone.allocate_at(start, order, Mobility::Unmovable);
                    continue;
                };
                if let Some(found) = found {
                    fall_back(zone, (start, order, wanted), found, &mut stealing, &mut out);
                } else {
                    own(zone, (start, order, wanted), &mut stealing, &mut out);
                }
                use_frames(zone, start.raw()..end, false);
            }
            BlockChange::Movable => use_frames(zone, start.raw()..end, true),
            BlockChange::Disown => use_frames(zone, start.raw()..end, false),
        }
    }
    out.end = pageblocks(&zones);
    out
}

/// Says of frames in use whether they count as movable. What waits in per-CPU
/// lists does not.
fn use_frames(zone: &mut Zone, frames: impl Iterator<Item = u64>, movable: bool) {
    let by = if movable { Mobility::Movable } else { Mobility::Unmovable };
    for frame in frames {
        zone.set_user(Pfn::new(frame), by);
    }
}

/// Gives back those frames of a block that are in use, as a whole if all are.
fn give(zone: &mut Zone, start: Pfn, order: Order, out: &mut Followed) {
    if zone.free(start, order).is_ok() {
        return;
    }
    for frame in Extent::new(start, order.frames()).iter() {
        out.given_twice += u64::from(zone.free(frame, Order::BASE).is_err());
    }
}

/// Gives back what is in use of a block that the kernel found free; how much.
fn make_free(zone: &mut Zone, start: Pfn, order: Order) -> u64 {
    if zone.free_block(start).is_some_and(|(_, of)| of >= order) {
        return 0;
    }
    let frames = Extent::new(start, order.frames()).iter();
    frames.map(|frame| u64::from(zone.free(frame, Order::BASE).is_ok())).sum()
}

/// Makes the free block that holds `frame` the first of its list. Whether it was.
fn bring_forward(zone: &mut Zone, frame: Pfn, out: &mut Followed) -> bool {
    out.firsts.extend(zone.free_block(frame));
    zone.bring_forward(frame) == Some(true)
}

/// A take without a fallback: the smallest order of the own lists that has a
/// block, of that the first.
fn own(
    zone: &mut Zone,
    (start, order, wanted): (Pfn, Order, Mobility),
    stealing: &mut bool,
    out: &mut Followed,
) {
    let first = bring_forward(zone, start, out);
    let block = zone.free_block(start).map(|(block, _)| block);
    let smallest = (order.k()..=10).find_map(|k| zone.list(Order::known(k as u8), wanted).next());
    let same = !*stealing && smallest.is_some() && smallest == block && block == Some(start);
    out.own.count(same);
    out.own_first += u64::from(same && first);
    if same {
        let taken = zone.allocate(order, wanted);
        debug_assert_eq!(taken, Some(start), "the first block of the list is what is taken");
    } else {
        zone.allocate_at(start, order, wanted);
        *stealing = false;
    }
}

fn fall_back(
    zone: &mut Zone,
    (start, order, wanted): (Pfn, Order, Mobility),
    found: FallbackFound,
    stealing: &mut bool,
    out: &mut Followed,
) {
    let Some(from) = mobility_of(found.from) else {
        out.reserves += 1;
        zone.allocate_at(start, order, wanted);
        return;
    };
    let whole = found.order >= PAGEBLOCK_ORDER;
    let kind = FallbackKind { wanted, from, whole, claimed: found.claimed };
    // After a claim the request gets the smallest block of the pageblock, which
    // need not be the one that was found.
    let block = if found.claimed && !whole {
        let first = pageblock_of(start) << PAGEBLOCK_ORDER.k();
        let step = found.order.frames() as usize;
        let starts = (first..first + PAGEBLOCK_ORDER.frames()).step_by(step).map(Pfn::new);
        let head = zone.list(found.order, from).next();
        head.filter(|head| pageblock_of(*head) == pageblock_of(start)).or_else(|| {
            starts.into_iter().find(|at| zone.free_block(*at) == Some((*at, found.order)))
        })
    } else {
        Some(start)
    };
    let first = block.is_some_and(|block| bring_forward(zone, block, out));
    let looked_at = if *stealing { (None, None) } else { looks(zone, order, wanted, found) };
    let before = zone.observer().count;
    let taken = zone.allocate_of_batch(order, wanted, stealing);
    let event = zone.observer().event.filter(|_| zone.observer().count > before);
    let expected =
        Fallback { start, order, block_order: found.order, wanted, from, claimed: found.claimed };
    let same = event == Some(expected);
    if same {
        let (claimed, left) = looked_at;
        out.claimed_least = out.claimed_least.into_iter().chain(claimed).min();
        out.left_most = out.left_most.max(left);
    } else {
        if let Some(taken) = taken {
            let given = zone.free(taken, order);
            debug_assert!(given.is_ok(), "what was taken can be given back");
        }
        if let Some(event) = event.filter(|event| event.claimed) {
            zone.set_mobility(event.start, event.from);
        }
        if found.claimed {
            zone.set_mobility(start, wanted);
        }
        zone.allocate_at(start, order, wanted);
        *stealing = !found.claimed;
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

/// Number of frames that are free or alike in the pageblock that is claimed, if it is
/// not wholly free, and how many at most in those that are looked at before.
fn looks(
    zone: &Zone,
    order: Order,
    wanted: Mobility,
    found: FallbackFound,
) -> (Option<u32>, Option<u32>) {
    let least = if wanted == Mobility::Movable { PAGEBLOCK_ORDER.k() / 2 } else { 0 };
    let counts = |k: u32| {
        let of = Order::known(k as u8);
        let from = |from: &Mobility| zone.list(of, *from).next();
        zone.free_or_alike(fallbacks(wanted).iter().find_map(from)?, wanted)
    };
    let k = found.order.k();
    if !found.claimed {
        return (None, (order.k().max(least)..PAGEBLOCK_ORDER.k()).filter_map(counts).max());
    }
    let claimed = (found.order < PAGEBLOCK_ORDER).then(|| counts(k)).flatten();
    (claimed, (k + 1..PAGEBLOCK_ORDER.k()).filter_map(counts).max())
}

/// The outcome of the zones' own choices.
#[derive(Clone, Debug, Default)]
pub struct RanFree {
    /// Takes, and those that got the frames that the kernel gave.
    pub takes: Agreement,
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
    let mut stealing = false;
    for step in &course.steps {
        let BlockStep { start, order, what } = *step;
        let Some(zone) = zones.iter_mut().find(|zone| zone.span().contains(start)) else {
            continue;
        };
        let Some(places) = place.get_mut(step.frames(usize::MAX)) else { continue };
        if let BlockChange::Movable | BlockChange::Disown = what {
            let places = places.iter().copied().filter(|at| *at != NOWHERE);
            use_frames(zone, places, what == BlockChange::Movable);
            continue;
        }
        // A take of what is in use: that was given back unseen.
        let at = places[0];
        let in_one = at.is_multiple_of(order.frames())
            && at != NOWHERE
            && places.iter().zip(at..).all(|(place, at)| *place == at);
        if !in_one || zone.free(Pfn::new(at), order).is_err() {
            for place in places.iter().filter(|place| **place != NOWHERE) {
                let given = zone.free(Pfn::new(*place), Order::BASE);
                debug_assert!(given.is_ok(), "what has a place is in use");
            }
        }
        places.fill(NOWHERE);
        let BlockChange::Take { wanted, next, .. } = what else { continue };
        stealing &= next;
        let before = zone.observer().count;
        let wanted = mobility_of(wanted).unwrap_or(Mobility::Unmovable);
        let Some(taken) = zone.allocate_of_batch(order, wanted, &mut stealing) else {
            out.takes.count(false);
            out.failed += 1;
            continue;
        };
        out.takes.count(taken == start);
        for (place, at) in places.iter_mut().zip(taken.raw()..) {
            *place = at;
        }
        use_frames(zone, places.iter().copied(), false);
        if let Some(event) = zone.observer().event.filter(|_| zone.observer().count > before) {
            let whole = event.block_order >= PAGEBLOCK_ORDER;
            let Fallback { wanted, from, claimed, .. } = event;
            *out.fallbacks.entry(FallbackKind { wanted, from, whole, claimed }).or_default() += 1;
        }
    }
    out.end = pageblocks(&zones);
    out
}
