//! The declared space of readings: its axes, their product, and the part that is measured.

use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::timed::{SystemMachine, WayCycles};
use crate::source::memory::random;
use crate::study::bounds::{Bounded, Distinct};
use crate::study::plan::{Refused, require};

/// The most combinations that a space may have before any is left out.
pub const COMBINATIONS_MAX: u128 = 1_000_000;

/// The axes, each a list of values of one key of the base reading; a key without an axis keeps the
/// base's value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpacePlan {
    /// log2 of AT's anchor distance in pages; 0 for the distance that suits the mapped blocks best.
    pub anchor_log2: Option<Distinct<Bounded<0, 16>>>,
    /// True if a transaction goes on after AT's regular walk.
    pub early_regular: Option<Distinct<bool>>,
    /// Entries of the page-walk cache, 0 for none.
    pub walk_cache_entries: Option<Distinct<Bounded<0, 1024>>>,
    /// Lines of descriptors cached, 0 for none.
    pub descriptor_lines: Option<Distinct<Bounded<0, 1024>>>,
    /// Walks in flight; more than one only go with hits that pass a miss.
    pub walks_max: Option<Distinct<Bounded<1, 64>>>,
    /// True if hits pass a miss.
    pub hit_under_miss: Option<Distinct<bool>>,
    /// Transactions in flight; another number than 16 is another machine than Table 3's.
    pub outstanding_max: Option<Distinct<Bounded<1, 4096>>>,
    /// True if reads and writes have so many each.
    pub outstanding_each: Option<Distinct<bool>>,
    /// True if a write has completed when the controller has taken it.
    pub posted_writes: Option<Distinct<bool>>,
    /// Cycles of a request on its way, and of data on theirs back.
    pub way_cycles: Option<Distinct<WayCycles>>,
    /// Frames a second of cameras and displays, 0 for as fast as they can.
    pub frames_per_second: Option<Distinct<Bounded<0, 1000>>>,
}

/// The values of one axis, each as what it changes in a reading.
type Axis = Vec<Box<dyn Fn(&mut SystemMachine)>>;

fn axis<V: Copy + 'static>(
    values: Option<&Distinct<V>>,
    set: impl Fn(&mut SystemMachine, V) + Copy + 'static,
) -> Option<Axis> {
    let one = |&value: &V| -> Box<dyn Fn(&mut SystemMachine)> {
        Box::new(move |machine| set(machine, value))
    };
    values.map(|values| values.iter().map(one).collect())
}

/// All combinations of the axes' values over a reading, those of the last axis side by side.
fn product(base: SystemMachine, axes: &[Axis]) -> Vec<SystemMachine> {
    axes.iter().fold(vec![base], |machines, axis| {
        let with = |machine: SystemMachine| {
            axis.iter().map(move |set| {
                let mut machine = machine;
                set(&mut machine);
                machine
            })
        };
        machines.into_iter().flat_map(with).collect()
    })
}

impl SpacePlan {
    /// The axes of all designs.
    fn machine_axes(&self) -> Vec<Axis> {
        let axes = [
            axis(self.walk_cache_entries.as_ref(), |to, value| {
                to.walk_cache_entries = Bounded::new(value.get());
            }),
            axis(self.descriptor_lines.as_ref(), |to, value| {
                to.descriptor_lines = Bounded::new(value.get());
            }),
            axis(self.walks_max.as_ref(), |to, value| to.walks_max = value),
            axis(self.hit_under_miss.as_ref(), |to, value| to.hit_under_miss = value),
            axis(self.outstanding_max.as_ref(), |to, value| to.outstanding_max = value),
            axis(self.outstanding_each.as_ref(), |to, value| to.outstanding_each = value),
            axis(self.posted_writes.as_ref(), |to, value| to.posted_writes = value),
            axis(self.way_cycles.as_ref(), |to, value| {
                to.request_cycles = value;
                to.response_cycles = value;
            }),
            axis(self.frames_per_second.as_ref(), |to, value| {
                to.frames_per_second = Bounded::new(value.get());
            }),
        ];
        axes.into_iter().flatten().collect()
    }

    /// The axes that change AT alone, so that all their values cost little more than one.
    fn anchor_axes(&self) -> Vec<Axis> {
        let axes = [
            axis(self.anchor_log2.as_ref(), |to, value| to.anchor_log2 = Bounded::new(value.get())),
            axis(self.early_regular.as_ref(), |to, value| to.early_regular = value),
        ];
        axes.into_iter().flatten().collect()
    }

    /// Combinations of the axes' values, those that no machine can have included.
    pub fn combinations(&self) -> u128 {
        let axes = self.machine_axes().into_iter().chain(self.anchor_axes());
        axes.fold(1, |product, axis| product.saturating_mul(axis.len() as u128))
    }

    /// Refuses a space that is too large to look over.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        let all = self.combinations();
        require(all <= COMBINATIONS_MAX, "search", || {
            format!("{all} combinations are more than {COMBINATIONS_MAX}")
        })
    }

    /// The readings to measure, the base first, and the number that there are. Of more than `max`
    /// those that differ from the base in the fewest parameters are taken, of those that differ in as
    /// many a random sample, each machine with every value of the axes that change AT alone: so
    /// the search is complete up to some number of parameters. O(n log n) of n combinations.
    pub fn readings(&self, base: SystemMachine, max: u64, seed: u64) -> (Vec<SystemMachine>, u64) {
        let (axes, anchors) = (self.machine_axes(), self.anchor_axes());
        let others = product(base, &axes);
        let mut machines = vec![base];
        machines.extend(others.into_iter().filter(|one| one.can_be() && *one != base));
        let with_anchors = |machine: &SystemMachine| product(*machine, &anchors);
        let each = with_anchors(&base).len();
        let mut all = machines.len() * each;
        all += usize::from(!with_anchors(&base).contains(&base));
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let machines = match all > max {
            true => nearest(&base, machines, max / each, seed),
            false => machines,
        };
        let mut readings = vec![base];
        readings.extend(machines.iter().flat_map(with_anchors).filter(|one| *one != base));
        readings.truncate(max);
        (readings, all as u64)
    }
}

/// So many machines, the base first: those with the fewest parameters that differ from it, in a
/// random order of those with as many.
fn nearest(
    base: &SystemMachine,
    machines: Vec<SystemMachine>,
    count: usize,
    seed: u64,
) -> Vec<SystemMachine> {
    let mut machines = machines;
    machines.shuffle(&mut random(seed, 0));
    machines.sort_by_cached_key(|machine| differences(base, machine).len());
    machines.truncate(count.max(1));
    machines
}

/// The parameters in which a reading differs from the base, each in a few words.
pub fn differences(base: &SystemMachine, reading: &SystemMachine) -> Vec<String> {
    let SystemMachine { request_cycles, response_cycles, lookup_cycles, .. } = *reading;
    let some = |number: Option<u64>, words: &str, none: &str| match number {
        Some(number) => words.replace('N', &number.to_string()),
        None => none.to_owned(),
    };
    let flag = |holds: bool, yes: &str, no: &str| if holds { yes } else { no }.to_owned();
    let anchors = reading.anchor_log2.map(|log2| 1 << log2.get());
    let cache = reading.walk_cache_entries.map(Bounded::get);
    let lines = reading.descriptor_lines.map(Bounded::get);
    let frames = reading.frames_per_second.map(Bounded::get);
    let ways = (base.request_cycles, base.response_cycles) == (request_cycles, response_cycles);
    let all = [
        (
            base.anchor_log2 == reading.anchor_log2,
            some(anchors, "anchors N pages apart", "anchors as suits the blocks"),
        ),
        (
            base.early_regular == reading.early_regular,
            flag(reading.early_regular, "AT goes on early", "AT waits for both walks"),
        ),
        (
            base.walk_cache_entries == reading.walk_cache_entries,
            some(cache, "walk cache of N", "no walk cache"),
        ),
        (
            base.descriptor_lines == reading.descriptor_lines,
            some(lines, "N lines of descriptors", "no cached descriptors"),
        ),
        (base.walks_max == reading.walks_max, format!("{} walks", reading.walks_max)),
        (
            base.hit_under_miss == reading.hit_under_miss,
            flag(reading.hit_under_miss, "hits pass", "nothing passes a miss"),
        ),
        (
            base.outstanding_max == reading.outstanding_max,
            format!("{} in flight", reading.outstanding_max),
        ),
        (
            base.outstanding_each == reading.outstanding_each,
            flag(reading.outstanding_each, "reads and writes apart", "reads and writes together"),
        ),
        (
            base.posted_writes == reading.posted_writes,
            flag(reading.posted_writes, "posted writes", "writes until written"),
        ),
        (base.lookup_cycles == lookup_cycles, format!("lookups of {lookup_cycles}")),
        (ways, format!("{request_cycles} and {response_cycles} cycles of way")),
        (
            base.frames_per_second == reading.frames_per_second,
            some(frames, "N frames a second", "frames as fast as they can"),
        ),
    ];
    all.into_iter().filter(|(same, _)| !same).map(|(_, words)| words).collect()
}

/// A reading's name: its differences, or that there are none.
pub fn name(differences: &[String]) -> String {
    if differences.is_empty() { "the plan's own".to_owned() } else { differences.join("; ") }
}
