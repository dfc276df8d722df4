//! Memory in pieces by a stated measure: how much is in use, and how the rest lies.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use swath_arch::{Extent, Pfn};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_frame::{MemoryMap, Mobility};

use crate::papers::green::machine::config::MachineName;
use crate::papers::green::machine::start::MachineStart;
use crate::source::memory::random;

/// Frames of a unit: of a page of 2 MiB.
const UNIT: u64 = PAGEBLOCK_ORDER.frames();

/// The largest order of a free block that is put into a unit, exclusive.
const PIECE_ORDERS: u32 = 6;

/// A fragmentation, in shares from 0 to 1.
///
/// As text: `used=0.7,huge=0.1,unmovable=0.15,mixed=0.5`, of which any may be left out, or in percent,
/// `used=70%`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AgeTarget {
    /// Of all frames those in use.
    pub used: f64,
    /// Of the free frames those in free aligned 2 MiB.
    pub huge: f64,
    /// Of the frames in use those that cannot be moved.
    pub unmovable: f64,
    /// Of the aligned 2 MiB that are not free those with a frame that cannot be moved.
    pub mixed: f64,
}

impl Default for AgeTarget {
    /// Seven tenths in use, a tenth of what is free in 2 MiB, and unmovable frames in half of the
    /// rest.
    fn default() -> Self {
        Self { used: 0.7, huge: 0.1, unmovable: 0.15, mixed: 0.5 }
    }
}

/// Reasons why memory cannot be so.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AgeError {
    /// A part of the text is no share.
    #[error(
        "{part:?} is not used=, huge=, unmovable= or mixed= and a share from 0 to 1 or 0% to 100%"
    )]
    Part {
        /// The part.
        part: String,
    },
    /// A share is stated twice.
    #[error("{name}= stands twice")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// The shares contradict each other.
    #[error("{target}: {what}")]
    Contradiction {
        /// The target.
        target: AgeTarget,
        /// The sum that cannot be.
        what: String,
    },
}

impl fmt::Display for AgeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, huge, unmovable, mixed } = self;
        write!(f, "used={used},huge={huge},unmovable={unmovable},mixed={mixed}")
    }
}

impl FromStr for AgeTarget {
    type Err = AgeError;

    fn from_str(text: &str) -> Result<Self, AgeError> {
        let mut target = Self::default();
        let mut stated = [false; 4];
        for part in text.split(',') {
            let wrong = || AgeError::Part { part: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let share = match value.strip_suffix('%') {
                Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
                None => value.parse::<f64>(),
            };
            let share = share.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)?;
            let fields = [
                ("used", &mut target.used),
                ("huge", &mut target.huge),
                ("unmovable", &mut target.unmovable),
                ("mixed", &mut target.mixed),
            ];
            let found = fields.into_iter().enumerate().find(|(_, (own, _))| *own == name.trim());
            let (nth, (name, field)) = found.ok_or_else(wrong)?;
            if std::mem::replace(&mut stated[nth], true) {
                return Err(AgeError::Twice { name });
            }
            *field = share;
        }
        Ok(target)
    }
}

impl AgeTarget {
    /// A machine so, drawn from `seed`. Each share is met to the frame, that of free 2 MiB to one of them;
    /// frames outside of aligned 2 MiB are in use by firmware. O(frames).
    ///
    /// # Errors
    /// [`AgeError::Contradiction`].
    pub fn start(self, machine: MachineName, seed: u64) -> Result<MachineStart, AgeError> {
        let contradiction = |what: String| AgeError::Contradiction { target: self, what };
        let preset = machine.preset();
        let mut areas = [Extent::default(); 8];
        let map = MemoryMap::new(preset.ranges(), &mut areas)
            .map_err(|error| contradiction(error.to_string()))?;
        let mut random = random(seed, AGE_STREAM);
        let mut units: Vec<HugeUnit> = units(&map).map(HugeUnit::free).collect();
        let (frames, inside) = (map.total_frames(), units.len() as u64 * UNIT);
        let edges = frames - inside;
        let used = ((frames as f64 * self.used).round() as u64).max(edges);
        let free = frames - used;
        let whole = ((free as f64 * self.huge / UNIT as f64).round() as u64).min(free / UNIT);
        let in_pieces = free - whole * UNIT;
        let partial = units.len() as u64 - whole;
        if in_pieces > partial * (UNIT - 1) {
            let room = partial * (UNIT - 1);
            return Err(contradiction(format!(
                "{in_pieces} frames are to be free in pieces, and {room} can be"
            )));
        }
        // Which units are not free, in a random order: those with unmovable frames first.
        let mut places: Vec<usize> = (0..units.len()).collect();
        shuffle(&mut places, &mut random);
        places.truncate(partial as usize);
        let free_of = spread(in_pieces, &vec![UNIT - 1; places.len()], 0, &mut random);
        let fixed = ((used as f64 * self.unmovable).round() as u64).max(edges) - edges;
        let mixed = (partial as f64 * self.mixed).round() as u64;
        let room: Vec<u64> = free_of.iter().take(mixed as usize).map(|free| UNIT - free).collect();
        let most: u64 = room.iter().sum();
        if fixed > most || fixed < room.len() as u64 {
            return Err(contradiction(format!(
                "{fixed} unmovable frames are to be in {mixed} places, in which {} to {most} can be",
                room.len()
            )));
        }
        let fixed_of = spread(fixed, &room, 1, &mut random);
        for (nth, (&place, &free)) in places.iter().zip(&free_of).enumerate() {
            let fixed = fixed_of.get(nth).copied().unwrap_or(0);
            units[place].fill(free, fixed, &mut random);
        }
        let mut runs = Vec::new();
        let mut next = units.iter().peekable();
        for area in map.areas() {
            let mut at = area.start;
            while let Some(unit) = next.next_if(|unit| unit.first < area.end()) {
                push(&mut runs, Extent::between(at, unit.first), Mobility::Unmovable);
                unit.runs(&mut runs);
                at = unit.first + UNIT;
            }
            push(&mut runs, Extent::between(at, area.end()), Mobility::Unmovable);
        }
        let (ranges, nodes) = (preset.ranges().to_vec(), preset.nodes().to_vec());
        Ok(MachineStart::new(ranges, nodes, runs, frames, seed))
    }
}

/// The stream of random numbers that ages a machine.
const AGE_STREAM: u64 = 0x616765;

fn push(runs: &mut Vec<(Extent, Mobility)>, run: Extent, mobility: Mobility) {
    if !run.is_empty() {
        runs.push((run, mobility));
    }
}

/// The first frames of the aligned units of which a map has all frames.
fn units(map: &MemoryMap<'_>) -> impl Iterator<Item = Pfn> {
    let within = |area: &Extent| {
        let first = area.start.raw().next_multiple_of(UNIT);
        (first..).step_by(UNIT as usize).take_while({
            let end = area.end().raw();
            move |start| start + UNIT <= end
        })
    };
    map.areas().iter().flat_map(within).map(Pfn::new)
}

fn shuffle<T>(items: &mut [T], random: &mut impl RngExt) {
    for nth in (1..items.len()).rev() {
        items.swap(nth, random.random_range(0..=nth));
    }
}

/// Divides a sum into random parts of at least `least` each and at most as many as there is room for.
fn spread(sum: u64, room: &[u64], least: u64, random: &mut impl RngExt) -> Vec<u64> {
    let weights: Vec<f64> = room.iter().map(|_| random.random::<f64>()).collect();
    let all: f64 = weights.iter().sum();
    let beyond = sum - least * room.len() as u64;
    let part = |(&weight, &room): (&f64, &u64)| {
        let share = (beyond as f64 * weight / all.max(f64::MIN_POSITIVE)) as u64;
        (least + share).min(room)
    };
    let mut parts: Vec<u64> = weights.iter().zip(room).map(part).collect();
    let mut rest = sum - parts.iter().sum::<u64>();
    // What a part had no room for goes to the next ones.
    let mut nth = 0;
    while rest > 0 {
        let more = rest.min((room[nth] - parts[nth]).min(rest.div_ceil(room.len() as u64)));
        parts[nth] += more;
        rest -= more;
        nth = (nth + 1) % room.len();
    }
    parts
}

/// The frames of an aligned 2 MiB.
struct HugeUnit {
    first: Pfn,
    used: [u64; (UNIT / 64) as usize],
    fixed: [u64; (UNIT / 64) as usize],
}

impl HugeUnit {
    fn free(first: Pfn) -> Self {
        let none = [0; (UNIT / 64) as usize];
        Self { first, used: none, fixed: none }
    }

    /// Frees so many frames of a unit in use, in random aligned blocks, and gives a row of the others
    /// to owners that do not move.
    fn fill(&mut self, free: u64, fixed: u64, random: &mut impl RngExt) {
        self.used.fill(u64::MAX);
        let mut left = free;
        while left > 0 {
            let k = random.random_range(0..PIECE_ORDERS).min(left.ilog2());
            let start = random.random_range(0..UNIT) >> k << k;
            let mask = (u64::MAX >> (64 - (1 << k))) << (start % 64);
            let word = &mut self.used[(start / 64) as usize];
            // Where some are free already, it gets the others.
            left -= u64::from((*word & mask).count_ones());
            *word &= !mask;
        }
        let (mut at, mut left) = (random.random_range(0..UNIT), fixed);
        while left > 0 {
            let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
            if self.used[word] & bit != 0 {
                self.fixed[word] |= bit;
                left -= 1;
            }
            at = (at + 1) % UNIT;
        }
    }

    fn runs(&self, runs: &mut Vec<(Extent, Mobility)>) {
        let of = |at: u64| {
            let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
            let owner =
                if self.fixed[word] & bit != 0 { Mobility::Unmovable } else { Mobility::Movable };
            (self.used[word] & bit != 0).then_some(owner)
        };
        let mut at = 0;
        while at < UNIT {
            let owner = of(at);
            let count = (at..UNIT).take_while(|&next| of(next) == owner).count() as u64;
            if let Some(owner) = owner {
                push(runs, Extent::new(self.first + at, count), owner);
            }
            at += count;
        }
    }
}
