//! Reverse maps beside a plain map of all mappings.

extern crate std;

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;
use std::{format, vec};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn, Vpn};

use crate::pmap::entries::{Flags, OutOfEntries, ReverseMap, Site, SpaceId, Status};
use crate::table::sizes::Sizes;

const FIRST: u64 = 37;
const COUNT: u64 = 600;
const FRAMES: Extent = Extent::new(Pfn::new(FIRST), COUNT);
const SIZES: [u8; 3] = [4, 6, 8];
/// From a frame to its page, in 52 bits: as far as the first page is from the first frame, aligned, and in
/// the upper half.
const DISTANCES: [u64; 5] = [0u64.wrapping_sub(FIRST), 0, 3, 1 << 20, 0u64.wrapping_sub(1 << 20)];
const PAGES: u64 = (1 << 52) - 1;

/// Order, first frame, space, first page.
type Mapping = (u8, u64, u32, u64);

fn order(k: u8) -> Order {
    Order::new(k).unwrap()
}

fn site((_, _, space, page): Mapping) -> Site {
    Site { space: SpaceId(space), page: Vpn::new(page) }
}

fn written((modified, referenced): (bool, bool)) -> Flags {
    Flags { modified, referenced }
}

/// All mappings with what was written and accessed; the same of frames, remembered.
#[derive(Clone)]
struct Plain {
    mappings: BTreeMap<Mapping, Flags>,
    marks: BTreeMap<u64, (bool, bool)>,
    keeps_flags: bool,
    entries: u32,
}

/// A PV entry is shared by base pages of a group that follow their frames.
fn entry((k, frame, space, page): Mapping) -> (u8, u64, u32, u64) {
    let inside = if k == 0 { frame % 16 } else { 0 };
    (k, frame - inside, space, page.wrapping_sub(inside) & PAGES)
}

impl Plain {
    fn entries(&self) -> BTreeSet<Mapping> {
        self.mappings.keys().map(|&mapping| entry(mapping)).collect()
    }

    fn free(&self) -> u64 {
        u64::from(self.entries) - self.entries().len() as u64
    }

    fn kept(&self, flags: Flags) -> Flags {
        if self.keeps_flags { flags } else { Flags::default() }
    }

    /// Those that map a frame of the block.
    fn on(&self, frame: u64, k: u8) -> impl Iterator<Item = (Mapping, Flags)> {
        let end = frame + (1 << k);
        let touches = move |&(of, first, ..): &Mapping| first < end && frame < first + (1 << of);
        self.mappings.iter().map(|(&one, &flags)| (one, flags)).filter(move |(one, _)| touches(one))
    }

    /// Whether the space maps a page of the mapping already.
    fn is_taken(&self, (k, _, space, page): Mapping) -> bool {
        let end = page + (1 << k);
        self.mappings
            .keys()
            .any(|&(of, _, other, first)| other == space && first < end && page < first + (1 << of))
    }
}

fn parts((k, frame, space, page): Mapping, of: u8) -> impl Iterator<Item = Mapping> {
    (0..1 << (k - of)).map(move |i: u64| (of, frame + (i << of), space, page + (i << of)))
}

/// An aligned block of frames.
fn block(random: &mut Random, k: u8) -> u64 {
    let first = FIRST.div_ceil(1 << k);
    random.within(first..(FIRST + COUNT) >> k) << k
}

/// A mapping that there may be: a superpage's page is as aligned as its frame.
fn mapping(random: &mut Random, k: u8) -> Mapping {
    let frame = block(random, k);
    loop {
        let page = frame.wrapping_add(DISTANCES[random.index(DISTANCES.len())]) & PAGES;
        if page.is_multiple_of(1 << k) {
            return (k, frame, random.below(3) as u32, page);
        }
    }
}

fn insert(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, one: Mapping, flags: Flags) {
    if model.is_taken(one) {
        return;
    }
    let (k, frame, ..) = one;
    let shares = k == 0 && model.entries().contains(&entry(one));
    let room = model.free() > 0 || shares;
    assert_eq!(map.has_room(order(k), Pfn::new(frame), site(one)), room);
    let inserted = map.insert(order(k), Pfn::new(frame), site(one), flags);
    assert_eq!(inserted, if room { Ok(()) } else { Err(OutOfEntries) });
    if room {
        let kept = model.kept(flags);
        model.mappings.insert(one, kept);
    }
}

/// Whether the parts of a superpage are all there and alike.
fn alike(model: &Plain, whole: Mapping, of: u8) -> Option<Flags> {
    let mut flags = parts(whole, of).map(|part| model.mappings.get(&part).copied());
    let first = flags.next()??;
    flags.all(|flags| flags == Some(first)).then_some(first)
}

fn promote(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, whole: Mapping, of: u8) {
    let (k, frame, ..) = whole;
    let flags = alike(model, whole, of);
    let found = map.alike(order(of), order(k), Pfn::new(frame), site(whole), &mut 0);
    assert_eq!(found, flags.is_some());
    let Some(flags) = flags else { return };
    map.promote(order(of), order(k), Pfn::new(frame), site(whole));
    for part in parts(whole, of) {
        model.mappings.remove(&part);
    }
    model.mappings.insert(whole, flags);
}

fn demote(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, whole: Mapping, to: u8) {
    let (k, frame, ..) = whole;
    let needed = ReverseMap::<Vec<u64>>::entries_to_demote(order(k), order(to));
    let mut split = model.clone();
    let flags = split.mappings.remove(&whole).unwrap();
    split.mappings.extend(parts(whole, to).map(|part| (part, flags)));
    assert_eq!(split.entries().len() as u64, model.entries().len() as u64 + needed);
    if needed <= model.free() {
        map.demote(order(k), order(to), Pfn::new(frame), site(whole));
        *model = split;
    }
}

fn move_block(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, (from, to, k): (u64, u64, u8)) {
    let sticks_out = model.on(from, k).any(|((of, ..), _)| of > k);
    if sticks_out || from == to || model.on(to, k).next().is_some() {
        return;
    }
    let moved = |(of, frame, space, page): Mapping| (of, frame - from + to, space, page);
    let inside: Vec<Mapping> = model.on(from, k).map(|(one, _)| one).collect();
    let left: BTreeSet<Mapping> =
        model.mappings.keys().filter(|one| !inside.contains(one)).map(|&one| entry(one)).collect();
    // An entry of which a part stays gives the moved part another, if none at the new place fits.
    let new: BTreeSet<(Mapping, Mapping)> =
        inside.iter().map(|&one| (entry(one), entry(moved(one)))).collect();
    let needed = new.iter().filter(|(old, new)| left.contains(old) && !left.contains(new)).count();
    assert_eq!(map.entries_to_move(Pfn::new(from), Pfn::new(to), order(k)), needed as u64);
    if needed as u64 > model.free() {
        return;
    }
    map.move_block(Pfn::new(from), Pfn::new(to), order(k));
    for one in inside {
        let flags = model.mappings.remove(&one).unwrap();
        model.mappings.insert(moved(one), flags);
    }
    for i in 0..1 << k {
        model.marks.remove(&(to + i));
        if let Some(marks) = model.marks.remove(&(from + i)) {
            model.marks.insert(to + i, marks);
        }
    }
}

fn step(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, random: &mut Random) {
    let k = [0, SIZES[random.index(3)]][random.index(2)];
    let flags = written((random.one_in(2), random.one_in(2)));
    let mapped = |model: &Plain, random: &mut Random| {
        let nth = random.index(model.mappings.len().max(1));
        model.mappings.keys().nth(nth).copied()
    };
    match random.below(16) {
        0..3 => insert(map, model, mapping(random, k), flags),
        // All the parts of a superpage, which may then become one.
        3..5 => {
            let k = SIZES[random.index(3)];
            let whole = mapping(random, k);
            let of = [0, 0, 4, 6][random.index(4)];
            if of < whole.0 {
                parts(whole, of).for_each(|part| insert(map, model, part, flags));
                // One of them may be otherwise, in either flag.
                if random.one_in(4) {
                    let nth = random.index(1 << (whole.0 - of));
                    let part = parts(whole, of).nth(nth).unwrap();
                    let flags = [(true, false), (false, true), (true, true)][random.index(3)];
                    let Flags { modified, referenced } = kept_flags(model, part);
                    let other = (modified != flags.0, referenced != flags.1);
                    set_flags(map, model, part, written(other));
                }
                if random.one_in(2) {
                    promote(map, model, whole, of);
                }
            }
        }
        5 => {
            let k = SIZES[random.index(3)];
            let whole = mapping(random, k);
            let of = [0, 4, 6][random.index(3)];
            if of < whole.0 {
                promote(map, model, whole, of);
            }
        }
        6 => {
            if let Some(whole) = mapped(model, random).filter(|whole| whole.0 > 0) {
                let smaller: Vec<u8> = [0, 4, 6].into_iter().filter(|&to| to < whole.0).collect();
                demote(map, model, whole, smaller[random.index(smaller.len())]);
            }
        }
        // Of a space that ends, some.
        9 if random.one_in(4) => {
            let (space, k) = (random.below(3) as u32, random.below(9) as u8);
            let of_space = |one: &Mapping| one.2 == space && (one.0 > 0 || one.1 >> k & 1 == 0);
            for one in model.mappings.keys().copied().filter(of_space).collect::<Vec<_>>() {
                map.remove(order(one.0), Pfn::new(one.1), site(one));
                model.mappings.remove(&one);
            }
        }
        // What is not there is not taken away, and has no flags.
        7..10 => {
            let any = mapping(random, k);
            let one = mapped(model, random).filter(|_| random.below(8) > 0).unwrap_or(any);
            map.remove(order(one.0), Pfn::new(one.1), site(one));
            model.mappings.remove(&one);
        }
        10 => {
            let any = mapping(random, k);
            let one = mapped(model, random).filter(|_| random.one_in(2)).unwrap_or(any);
            set_flags(map, model, one, flags);
        }
        11 => {
            let first = FIRST + random.below(COUNT);
            let count = random.within(1..(FIRST + COUNT - first).min(40) + 1);
            if random.one_in(2) {
                let Flags { modified, referenced } = flags;
                map.mark(Extent::new(Pfn::new(first), count), modified, referenced);
                for frame in first..first + count {
                    let (was_modified, was_referenced) = model.marks.entry(frame).or_default();
                    *was_modified |= modified;
                    *was_referenced |= referenced;
                }
            } else {
                map.clear_modified(Pfn::new(first));
                model.marks.entry(first).or_default().0 = false;
            }
        }
        _ => {
            // Mostly of what is mapped, and parts of a group; also within one group.
            let orders = [4, 5, 9][random.index(3)];
            let k = random.below(orders) as u8;
            let any = block(random, k);
            let is_inside = |&start: &u64| FIRST <= start && start + (1 << k) <= FIRST + COUNT;
            let fits = |start: u64| model.on(start, k).all(|((of, ..), _)| of <= k);
            let some: Vec<u64> = model.mappings.keys().map(|one| one.1 >> k << k).collect();
            let some = (0..8).filter_map(|_| some.get(random.index(some.len().max(1))).copied());
            let from = some.filter(is_inside).find(|&start| fits(start)).unwrap_or(any);
            let is_free = |&to: &u64| to != from && model.on(to, k).next().is_none();
            let near = random.one_in(4).then(|| from >> 4 << 4 | block(random, k) & 15);
            let far = (0..8).map(|_| block(random, k));
            if let Some(to) = near.into_iter().filter(is_inside).chain(far).find(is_free) {
                move_block(map, model, (from, to, k));
            }
        }
    }
}

fn kept_flags(model: &Plain, one: Mapping) -> Flags {
    model.mappings.get(&one).copied().unwrap_or_default()
}

fn set_flags(map: &mut ReverseMap<Vec<u64>>, model: &mut Plain, one: Mapping, flags: Flags) {
    // Of a base page that is not there, but has an entry of its group, nothing may be said.
    if one.0 > 0 || model.mappings.contains_key(&one) {
        map.set_flags(order(one.0), Pfn::new(one.1), site(one), flags);
    }
    let kept = model.kept(flags);
    if let Some(flags) = model.mappings.get_mut(&one) {
        *flags = kept;
    }
}

fn agree(map: &ReverseMap<Vec<u64>>, model: &Plain, random: &mut Random) {
    assert_eq!(map.walk(), Ok(model.mappings.len() as u64));
    assert_eq!(u64::from(map.free_entries()), model.free());
    let frame = FIRST + random.below(COUNT);
    let (at, place) = (Pfn::new(frame), |one: Mapping| (order(one.0), site(one)));
    // A base page's own, a superpage's first.
    let own: Vec<(Mapping, Flags)> = model.on(frame, 0).collect();
    let mut orders = Vec::new();
    for (of, site, flags) in map.mappings(at) {
        let same = own.iter().filter(|&&(one, kept)| place(one) == (of, site) && kept == flags);
        assert_eq!(same.count(), 1, "{of:?} {site:?} {flags:?}, of {own:?}");
        orders.push(of);
    }
    assert_eq!(orders.len(), own.len(), "{frame}: {own:?}");
    assert!(orders.is_sorted());
    assert_eq!(map.largest(at), orders.last().copied());
    assert_eq!(map.first(None, at).map(|(of, _)| of), orders.first().copied());
    let mut visited = Vec::new();
    map.for_each(at, &mut |of, site| visited.push((of, site)));
    assert!(visited.iter().copied().eq(map.mappings(at).map(|(of, site, _)| (of, site))));
    for k in [0].into_iter().chain(SIZES) {
        let of = order(k);
        assert_eq!(map.mappings_of(of, at).count(), orders.iter().filter(|&&o| o == of).count());
        assert_eq!(map.first(Some(of), at).is_some(), orders.contains(&of));
    }
    let (modified, referenced) = map.marks(at);
    assert_eq!((modified, referenced), model.marks.get(&frame).copied().unwrap_or_default());
    let k = [0, SIZES[random.index(3)]][random.index(2)];
    let one = match model.mappings.keys().nth(random.index(2 * model.mappings.len() + 1)) {
        Some(&one) => one,
        None => mapping(random, k),
    };
    let flags = map.flags(order(one.0), Pfn::new(one.1), site(one));
    assert_eq!(flags, model.mappings.get(&one).copied(), "{one:?}");
    let k = random.below(9) as u8;
    let start = block(random, k);
    if model.on(start, k).all(|((of, ..), _)| of <= k) {
        let within: BTreeSet<Mapping> = model.on(start, k).map(|(one, _)| one).collect();
        let found: Vec<Mapping> = map
            .mappings_within(Pfn::new(start), order(k))
            .map(|(of, frame, site)| (of.k() as u8, frame.raw(), site.space.0, site.page.raw()))
            .collect();
        assert_eq!(found.len(), within.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), within, "{start}, order {k}");
    }
}

fn made(status: Status, entries: u32) -> ReverseMap<Vec<u64>> {
    let sizes = SIZES.iter().fold(Sizes::NONE, |sizes, &k| sizes.with(order(k)));
    let words = ReverseMap::words_needed(FRAMES, sizes, status, entries).unwrap();
    ReverseMap::new(FRAMES, sizes, status, vec![u64::MAX; words]).unwrap()
}

#[test]
fn agrees_with_a_plain_map_operation_by_operation() {
    for (seed, entries) in (0..).zip([1, 9, 30, 60, 200]) {
        for (nth, status) in (0..).zip([Status::InTable, Status::InReverseMap]) {
            let mut map = made(status, entries);
            let keeps_flags = status == Status::InReverseMap;
            let mut model =
                Plain { mappings: BTreeMap::new(), marks: BTreeMap::new(), keeps_flags, entries };
            let mut random = Random::new(2 * seed + nth);
            for nth in 0..600 {
                let place = format!("seed {seed}, {entries} entries, {status:?}, step {nth}");
                let run = || {
                    step(&mut map, &mut model, &mut random);
                    agree(&map, &model, &mut random);
                };
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                assert!(ended.is_ok(), "{place}");
            }
        }
    }
}

/// Each part in turn is otherwise in each flag, or is not there.
#[test]
fn parts_are_alike_in_both_flags() {
    let flags = [(false, false), (true, false), (false, true), (true, true)].map(written);
    for (k, of) in [(4, 0), (6, 0), (6, 4), (8, 6)] {
        let whole = (k, 256, 1, 512);
        for (all, one) in flags.into_iter().flat_map(|all| flags.map(|one| (all, one))) {
            let mut map = made(Status::InReverseMap, 50);
            for part in parts(whole, of) {
                map.insert(order(of), Pfn::new(part.1), site(part), all).unwrap();
            }
            let (frame, page) = (Pfn::new(whole.1), site(whole));
            for part in parts(whole, of) {
                let at = (order(of), Pfn::new(part.1), site(part));
                map.set_flags(at.0, at.1, at.2, one);
                assert_eq!(map.alike(order(of), order(k), frame, page, &mut 0), all == one);
                map.remove(at.0, at.1, at.2);
                assert!(!map.alike(order(of), order(k), frame, page, &mut 0));
                map.insert(at.0, at.1, at.2, all).unwrap();
                assert!(map.alike(order(of), order(k), frame, page, &mut 0), "{part:?}");
            }
        }
    }
}

/// Of each group the head, two words of its entry, and its flags.
#[test]
fn the_words_that_are_read_are_counted() {
    let mut map = made(Status::InReverseMap, 50);
    let whole = (6, 64, 1, 64);
    for part in parts(whole, 0) {
        map.insert(Order::BASE, Pfn::new(part.1), site(part), Flags::default()).unwrap();
    }
    let mut read = 0;
    assert!(map.alike(Order::BASE, order(6), Pfn::new(64), site(whole), &mut read));
    assert_eq!(read, 4 * (1 + 2 + 1));
    // The last group is looked at first.
    map.remove(Order::BASE, Pfn::new(127), site((0, 127, 1, 127)));
    let mut read = 0;
    assert!(!map.alike(Order::BASE, order(6), Pfn::new(64), site(whole), &mut read));
    assert_eq!(read, 4);
}

#[test]
fn frames_outside_have_no_mappings() {
    let mut map = made(Status::InReverseMap, 5);
    for outside in [FIRST - 1, FIRST + COUNT] {
        let (frame, one) = (Pfn::new(outside), (0, outside, 1, 7));
        assert!(map.has_room(Order::BASE, frame, site(one)));
        assert_eq!(map.insert(Order::BASE, frame, site(one), Flags::default()), Err(OutOfEntries));
        map.remove(Order::BASE, frame, site(one));
        map.mark(Extent::new(frame, 1), true, true);
        map.clear_modified(frame);
        assert_eq!(map.marks(frame), (false, false));
        assert_eq!(map.mappings(frame).count(), 0);
        assert_eq!(map.walk(), Ok(0));
    }
}
