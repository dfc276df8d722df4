//! The paper's synthetic trace on its system: the commands, what came of them, and whether it can be true.

use std::collections::{BTreeMap, BTreeSet};

use swath_arch::testing::Random;
use swath_arch::{PhysAddr, PhysMemory, ValidityTables, VirtAddr, Vpn};
use swath_hw::{Operation, PageTable, RtLatency, RtTables, Rtmmu};

use crate::machine::{Host, Memories};

/// log2 of the pages of a space; the first address that goes through the unit.
const PAGES_LOG2: u32 = 19;
const VIRTUAL: u32 = 0x8000_0000;

/// The greatest footprint: the page of the pool's last tag does not count.
const END_MAX: u32 = (31 << PAGES_LOG2) / 32 - 1;

/// The alignment of `malloc` where a word has four bytes.
const ALIGN_BYTES: u32 = 8;

/// Sizes in a figure's row, and actions in one of the footprint.
pub const SIZE_BINS: usize = 64;
pub const TIME_BINS: usize = 100;

/// The least, the sum, the most of some numbers of cycles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub count: u64,
    pub min: u32,
    pub sum: u64,
    pub max: u32,
}

impl Times {
    fn add(&mut self, cycles: u32) {
        self.min = if self.count == 0 { cycles } else { self.min.min(cycles) };
        self.count += 1;
        self.sum += u64::from(cycles);
        self.max = self.max.max(cycles);
    }
}

/// The times of a run, and its counts.
#[derive(Clone, Debug)]
pub struct Found {
    /// By the size.
    pub allocations: [Times; SIZE_BINS],
    pub releases: [Times; SIZE_BINS],
    /// Accesses to pages with a frame, and first ones.
    pub accesses: Times,
    pub faults: Times,
    /// The most pages with frames, by time.
    pub mapped_pages: [u32; TIME_BINS],
    /// Allocations that found no room.
    pub failures: u64,
    /// The program ended with a good word.
    pub ended_well: bool,
    /// The bytes of accesses that were looked up in memory, by the tables and the model.
    pub looked_up: u64,
}

/// An allocation that lives.
struct Live {
    at: u32,
    size_bytes: u32,
    /// The page at which a footprint ends that ends with it.
    end: u32,
    /// Bytes that were written, and what.
    written: BTreeMap<u32, u8>,
}

/// A command that the program works on.
#[derive(Clone, Copy, Debug)]
enum Command {
    End,
    Allocate { size_bytes: u32 },
    Free { index: usize, end: u32 },
    Read { index: usize, offset: u32 },
    Write { index: usize, offset: u32, value: u8 },
    Check,
}

/// A random action on the allocations that there are.
#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate { size_bytes: u32 },
    Free { index: usize },
    Read { index: usize, offset: u32 },
    Write { index: usize, offset: u32, value: u8 },
}

impl Action {
    /// Draws one: 10% allocations, 10% releases, 40% reads, 40% writes; size, allocation and byte with the same chance
    /// each. There are `count` allocations, of these sizes; if there is none, the action is an allocation.
    fn draw(
        random: &mut Random,
        size_bytes_max: u32,
        count: usize,
        size: impl Fn(usize) -> u32,
    ) -> Self {
        let tenth = random.below(10);
        if tenth == 0 || count == 0 {
            return Self::Allocate { size_bytes: 1 + random.below(size_bytes_max.into()) as u32 };
        }
        let index = random.index(count);
        if tenth == 1 {
            return Self::Free { index };
        }
        let offset = random.below(size(index).into()) as u32;
        match tenth < 6 {
            true => Self::Read { index, offset },
            false => Self::Write { index, offset, value: random.below(256) as u8 },
        }
    }
}

/// The arcs of the footprint of a run in which every allocation finds room: the times that all is free again after at
/// least half as much was allocated as there ever is. None if the last one is not ended so.
pub fn arcs(actions: u64, size_bytes_max: u32, seed: u64) -> Option<u64> {
    let mut random = Random::new(seed);
    let (mut sizes, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..actions {
        match Action::draw(&mut random, size_bytes_max, sizes.len(), |index| sizes[index]) {
            Action::Allocate { size_bytes } => sizes.push(size_bytes),
            Action::Free { index } => drop(sizes.swap_remove(index)),
            Action::Read { .. } | Action::Write { .. } => {}
        }
        counts.push(sizes.len());
    }
    let half = counts.iter().max().map_or(1, |most| most.div_ceil(2));
    let (mut arcs, mut is_high) = (0, false);
    for count in counts {
        is_high |= count >= half;
        if is_high && count == 0 {
            (arcs, is_high) = (arcs + 1, false);
        }
    }
    (!is_high).then_some(arcs)
}

/// The workstation of the paper.
pub struct Workload {
    random: Random,
    actions: u64,
    done: u64,
    size_bytes_max: u32,
    conventional: bool,
    hold_cycles: u32,
    unit: Rtmmu,
    live: Vec<Live>,
    command: Command,
    /// What the program wrote since.
    cycles: u32,
    value: u32,
    mapped_pages: u32,
    mapped_before: u32,
    end: u32,
    cause: u32,
    checked: bool,
    pub found: Found,
}

impl Workload {
    pub fn new(
        conventional: bool,
        latency: RtLatency,
        actions: u64,
        size_bytes_max: u32,
        seed: u64,
    ) -> Self {
        let array = |chip: u64, half: u64| PhysAddr::new(chip + half * (4 << PAGES_LOG2));
        let (chip1, chip2) = (0x2000_0000, 0x3000_0000);
        let data = PhysAddr::new(0x4000_0000);
        let tables = match conventional {
            false => RtTables::regions(ValidityTables {
                pages_log2: PAGES_LOG2,
                regions: array(chip1, 0),
                stack_end: array(chip1, 1),
                helper: array(chip2, 0),
                stack: array(chip2, 1),
                data,
            }),
            true => RtTables::page_table(PageTable { pages_log2: PAGES_LOG2, base: data }),
        };
        let unit = Rtmmu::new(tables.expect("tables of the model"), latency, None).expect("no TLB");
        let found = Found {
            allocations: [Times::default(); SIZE_BINS],
            releases: [Times::default(); SIZE_BINS],
            accesses: Times::default(),
            faults: Times::default(),
            mapped_pages: [0; TIME_BINS],
            failures: 0,
            ended_well: false,
            looked_up: 0,
        };
        Self {
            random: Random::new(seed),
            actions,
            done: 0,
            size_bytes_max,
            conventional,
            hold_cycles: latency.table.max(2 * latency.fast),
            unit,
            live: Vec::new(),
            command: Command::End,
            cycles: 0,
            value: 0,
            mapped_pages: 0,
            mapped_before: 0,
            end: 0,
            cause: 0,
            checked: false,
            found,
        }
    }

    fn next(&mut self) -> Command {
        if self.done == self.actions {
            return if self.checked { Command::End } else { Command::Check };
        }
        self.done += 1;
        let (count, size) = (self.live.len(), |index: usize| self.live[index].size_bytes);
        match Action::draw(&mut self.random, self.size_bytes_max, count, size) {
            Action::Allocate { size_bytes } => Command::Allocate { size_bytes },
            Action::Free { index } => {
                let others = self.live.iter().enumerate().filter(|&(other, _)| other != index);
                let last = others.map(|(_, live)| live).max_by_key(|live| live.at);
                Command::Free { index, end: last.map_or(1, |last| last.end.min(END_MAX)) }
            }
            Action::Read { index, offset } => Command::Read { index, offset },
            Action::Write { index, offset, value } => Command::Write { index, offset, value },
        }
    }

    /// The byte of memory behind an address, by the tables as the model of the unit reads them.
    fn look_up(&mut self, at: u32, memories: &Memories) -> u8 {
        let access =
            self.unit.access(0, VirtAddr::new((at - VIRTUAL).into()), Operation::Read, memories);
        let place = access
            .result
            .unwrap_or_else(|fault| panic!("{at:#x} was accessed, and the model says: {fault}"));
        let word = memories.read_u32(PhysAddr::new(place.raw() & !3)).expect("memory");
        self.found.looked_up += 1;
        (word >> (8 * (place.raw() & 3))) as u8
    }

    /// Goes by what the program said of the command.
    fn answered(&mut self, done: bool, memories: &Memories) {
        let bin = |size_bytes: u32, max: u32| (size_bytes - 1) as usize * SIZE_BINS / max as usize;
        let cycles = self.cycles;
        let time = ((self.done.max(1) - 1) as usize * TIME_BINS / self.actions as usize)
            .min(TIME_BINS - 1);
        let most = &mut self.found.mapped_pages[time];
        *most = self.mapped_pages.max(*most);
        match self.command {
            Command::Allocate { size_bytes } if done => {
                let at = self.value;
                assert!(
                    at >= VIRTUAL && at.is_multiple_of(ALIGN_BYTES),
                    "an allocation at {at:#x}"
                );
                for live in &self.live {
                    let apart = at + size_bytes <= live.at || live.at + live.size_bytes <= at;
                    assert!(apart, "an allocation at {at:#x} over one at {:#x}", live.at);
                }
                self.live.push(Live { at, size_bytes, end: self.end, written: BTreeMap::new() });
                self.found.allocations[bin(size_bytes, self.size_bytes_max)].add(cycles);
            }
            Command::Allocate { .. } => self.found.failures += 1,
            Command::Free { index, .. } => {
                assert!(done, "the heap does not know what it gave");
                let freed = self.live.swap_remove(index);
                self.found.releases[bin(freed.size_bytes, self.size_bytes_max)].add(cycles);
            }
            Command::Read { index, offset } => {
                let at = self.live[index].at + offset;
                let there = self.look_up(at, memories);
                assert_eq!(self.value, u32::from(there), "the byte at {at:#x}");
                if let Some(written) = self.live[index].written.get(&offset) {
                    assert_eq!(*written, there, "what was written at {at:#x} is gone");
                }
                self.accessed();
            }
            Command::Write { index, offset, value } => {
                self.live[index].written.insert(offset, value);
                self.accessed();
                // All of it is there, in a frame of its own.
                let written: Vec<_> =
                    self.live[index].written.iter().map(|(&at, &byte)| (at, byte)).collect();
                for (offset, byte) in written {
                    let at = self.live[index].at + offset;
                    assert_eq!(self.look_up(at, memories), byte, "the byte at {at:#x}");
                }
            }
            Command::Check => {
                assert!(done, "an invariant of heap or pages is broken");
                self.count_pages(memories);
                self.checked = true;
            }
            Command::End => unreachable!("the program answers the end"),
        }
        self.mapped_before = self.mapped_pages;
    }

    fn accessed(&mut self) {
        match self.mapped_pages - self.mapped_before {
            0 => self.found.accesses.add(self.cycles),
            1 => self.found.faults.add(self.cycles),
            pages => panic!("an access that gave {pages} pages frames"),
        }
    }

    /// Looks at every page of the tables: as many are mapped as the program says, each to a frame of its own.
    fn count_pages(&mut self, memories: &Memories) {
        let mut frames = BTreeSet::new();
        for page in 0..1_u64 << PAGES_LOG2 {
            let access = self.unit.access(0, Vpn::new(page).address(), Operation::Read, memories);
            if let Ok(place) = access.result {
                assert!(frames.insert(place.raw()), "two pages have the frame at {place}");
            }
        }
        assert_eq!(frames.len(), self.mapped_pages as usize, "pages that are mapped");
    }
}

impl Host for Workload {
    fn read(&mut self, register: u32, _: &Memories) -> u32 {
        let live = |index: usize| self.live[index].at;
        match register {
            0 => {
                self.command = self.next();
                match self.command {
                    Command::End => 0,
                    Command::Allocate { .. } => 1,
                    Command::Free { .. } => 2,
                    Command::Read { .. } => 3,
                    Command::Write { .. } => 4,
                    Command::Check => 5,
                }
            }
            4 => match self.command {
                Command::Allocate { size_bytes } => size_bytes,
                Command::Free { index, .. } => live(index),
                Command::Read { index, offset } | Command::Write { index, offset, .. } => {
                    live(index) + offset
                }
                Command::Check | Command::End => 0,
            },
            8 => match self.command {
                Command::Allocate { .. } => ALIGN_BYTES,
                Command::Free { end, .. } => end,
                Command::Write { value, .. } => value.into(),
                _ => 0,
            },
            12 => self.conventional.into(),
            16 => self.hold_cycles,
            _ => panic!("the program reads register {register}"),
        }
    }

    fn write(&mut self, register: u32, value: u32, memories: &Memories) {
        match register {
            0 => self.found.ended_well = value == 1 && matches!(self.command, Command::End),
            4 => self.cycles = value,
            8 => self.value = value,
            12 => self.mapped_pages = value,
            16 => self.answered(value == 1, memories),
            20 => self.end = value,
            24 => self.cause = value,
            28 => panic!(
                "the program failed: trap {} at {value:#x} (0: a panic in a line)",
                self.cause
            ),
            _ => panic!("the program writes register {register}"),
        }
    }
}
