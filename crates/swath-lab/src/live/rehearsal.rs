//! A machine that only counts: the dry run, and the model of the tests.

use crate::live::daemon::{BlockUse, Machine, OnlineFrames, Refusal};
use crate::live::error::LiveError;

/// Blocks and their use.
///
/// Invariant: what is moved out of a block is in use in others, so that the frames in use of all
/// blocks that are online remain the same.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Of all memory, also what is in no block that is listed.
    pub frames: OnlineFrames,
    /// Blocks that are online, ascending by number.
    pub online: Vec<BlockUse>,
    /// Blocks that are offline, in the order in which they went.
    pub offline: Vec<BlockUse>,
    now_ns: u64,
}

impl Rehearsal {
    /// A machine with these blocks online.
    pub fn new(frames: OnlineFrames, online: Vec<BlockUse>) -> Self {
        Self { frames, online, offline: Vec::new(), now_ns: 0 }
    }
}

impl Machine for Rehearsal {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn rest(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn frames(&mut self) -> Result<OnlineFrames, LiveError> {
        Ok(self.frames)
    }

    fn blocks(&mut self) -> Result<Vec<BlockUse>, LiveError> {
        Ok(self.online.clone())
    }

    fn offline(&mut self, block: &BlockUse, low_frames: u64) -> Result<(), Refusal> {
        let Some(at) = self.online.iter().position(|other| other.number == block.number) else {
            return Err(Refusal::Busy);
        };
        if self.online[at].unmovable > 0 {
            return Err(Refusal::Busy);
        }
        if self.frames.free - self.online[at].free < low_frames + self.online[at].movable {
            return Err(Refusal::Scarce);
        }
        let mut block = self.online.remove(at);
        self.frames.total -= block.frames.count;
        self.frames.free -= block.free + block.movable;
        // The fullest first, which are the last to be emptied.
        let mut left = std::mem::take(&mut block.movable);
        block.free += left;
        let mut by_use: Vec<&mut BlockUse> = self.online.iter_mut().collect();
        by_use.sort_by_key(|other| (other.free, other.number));
        for other in by_use {
            let part = left.min(other.free);
            other.free -= part;
            other.movable += part;
            left -= part;
        }
        self.offline.push(block);
        Ok(())
    }

    fn online(&mut self, number: u64) -> Result<(), Refusal> {
        let Some(at) = self.offline.iter().position(|block| block.number == number) else {
            return Err(Refusal::Busy);
        };
        let block = self.offline.remove(at);
        self.frames.total += block.frames.count;
        self.frames.free += block.free;
        self.online.push(block);
        self.online.sort_by_key(|block| block.number);
        Ok(())
    }

    fn reclaim(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use swath_arch::{Extent, Pfn};
    use swath_vm::migrate::MigrationConfig;

    use super::*;
    use crate::live::daemon::{Choice, Event, Settings, serve};

    const BLOCK: u64 = 1 << 15;
    const SECOND: u64 = 1_000_000_000;

    fn settings() -> Settings {
        Settings {
            choice: Choice::Emptiest,
            migration: MigrationConfig {
                reserve_frames: 2 * BLOCK,
                settle_ns: 10 * SECOND,
                ..MigrationConfig::DEFAULT
            },
            low_frames: BLOCK,
            offline_frames_max: u64::MAX,
            moved_frames_per_s: 1 << 16,
            reclaimed_frames: 0,
            poll_ns: SECOND / 20,
            ends_when_idle: false,
            for_ns: Some(600 * SECOND),
        }
    }

    /// A machine of blocks of 128 MiB, of which some have frames that cannot move.
    fn machine(blocks: u64, random: &mut Pcg64Mcg) -> Rehearsal {
        let block = |number| {
            let unmovable = if random.random_range(0..5) == 0 { 7 } else { 0 };
            let movable = random.random_range(0..BLOCK / 4);
            BlockUse {
                number,
                frames: Extent::new(Pfn::new(number * BLOCK), BLOCK),
                in_movable_zone: unmovable == 0,
                can_go: number > 0,
                free: BLOCK - movable - unmovable,
                movable,
                unmovable,
                unmarked: 0,
                in_cpu_lists: 0,
            }
        };
        let online: Vec<_> = (0..blocks).map(block).collect();
        let free = online.iter().map(|block| block.free).sum();
        Rehearsal::new(OnlineFrames { total: blocks * BLOCK, free }, online)
    }

    fn no_figures() -> LiveError {
        let source = std::io::Error::other("no figures");
        LiveError::Journal { path: "/proc/meminfo".into(), source }
    }

    fn numbers(blocks: &[BlockUse]) -> BTreeSet<u64> {
        blocks.iter().map(|block| block.number).collect()
    }

    /// The rehearsal with programs that take and give memory, blocks that do not go or do not come
    /// back, and an end.
    struct Busy {
        rehearsal: Rehearsal,
        random: Pcg64Mcg,
        /// The most that programs take or give at a time.
        burst_frames: u64,
        /// Movable frames in use that programs aim at.
        aim: u64,
        pinned: BTreeSet<u64>,
        stuck: BTreeSet<u64>,
        tried: Vec<(u64, u64)>,
        /// Looks until the kernel's figures cannot be read any more.
        looks: u64,
        shares: f64,
        missing: u64,
        reclaimed: u64,
    }

    impl Busy {
        fn new(seed: u64, blocks: u64) -> Self {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let rehearsal = machine(blocks, &mut random);
            Self {
                rehearsal,
                random,
                burst_frames: 0,
                aim: 0,
                pinned: BTreeSet::new(),
                stuck: BTreeSet::new(),
                tried: Vec::new(),
                looks: u64::MAX,
                shares: 0.0,
                missing: 0,
                reclaimed: 0,
            }
        }

        fn used(&self) -> u64 {
            self.rehearsal.online.iter().map(|block| block.movable).sum()
        }

        /// Every frame is in one place, and the sums are those of the blocks.
        fn check(&self) {
            let all = self.rehearsal.online.iter().chain(&self.rehearsal.offline);
            for block in all {
                let sum = block.free + block.movable + block.unmovable;
                assert_eq!(sum, BLOCK, "{block:?}");
            }
            let free: u64 = self.rehearsal.online.iter().map(|block| block.free).sum();
            assert_eq!(free, self.rehearsal.frames.free);
            assert_eq!(self.rehearsal.online.len() as u64 * BLOCK, self.rehearsal.frames.total);
            assert!(self.rehearsal.offline.iter().all(|b| b.movable == 0 && b.unmovable == 0));
        }
    }

    impl Machine for Busy {
        fn now_ns(&self) -> u64 {
            self.rehearsal.now_ns()
        }

        fn rest(&mut self, ns: u64) {
            self.rehearsal.rest(ns);
            let offline = self.rehearsal.offline.len() as u64 * BLOCK;
            let free = self.rehearsal.frames.free;
            let burst = self.random.random_range(0..=self.burst_frames);
            if self.random.random_range(0..200) == 0 {
                self.aim = self.random.random_range(0..12 * BLOCK);
            }
            let grows = self.used() < self.aim;
            let mut left = burst;
            // Programs take memory anywhere.
            let count = self.rehearsal.online.len();
            let from = self.random.random_range(0..count);
            for i in 0..count {
                let block = &mut self.rehearsal.online[(from + i) % count];
                let part = left.min(if grows { block.free } else { block.movable });
                if grows {
                    block.free -= part;
                    block.movable += part;
                    self.rehearsal.frames.free -= part;
                } else {
                    block.free += part;
                    block.movable -= part;
                    self.rehearsal.frames.free += part;
                }
                left -= part;
            }
            self.missing += if grows { left } else { 0 };
            self.shares += offline as f64 / (offline + free) as f64;
            self.check();
        }

        fn is_stopped(&self) -> bool {
            false
        }

        fn frames(&mut self) -> Result<OnlineFrames, LiveError> {
            self.looks -= 1;
            if self.looks == 0 { Err(no_figures()) } else { self.rehearsal.frames() }
        }

        fn blocks(&mut self) -> Result<Vec<BlockUse>, LiveError> {
            self.rehearsal.blocks()
        }

        fn offline(&mut self, block: &BlockUse, low_frames: u64) -> Result<(), Refusal> {
            self.tried.push((self.now_ns(), block.number));
            if self.pinned.contains(&block.number) {
                return Err(Refusal::Busy);
            }
            self.rehearsal.offline(block, low_frames)
        }

        fn online(&mut self, number: u64) -> Result<(), Refusal> {
            if self.stuck.contains(&number) {
                return Err(Refusal::System("no memory".to_owned()));
            }
            self.rehearsal.online(number)
        }

        /// Frees what was read from files, which is all that is movable here.
        fn reclaim(&mut self, frames: u64) {
            self.reclaimed += frames;
            let mut left = frames;
            for block in &mut self.rehearsal.online {
                let part = left.min(block.movable);
                block.movable -= part;
                block.free += part;
                self.rehearsal.frames.free += part;
                left -= part;
            }
        }
    }

    #[test]
    fn memory_goes_and_comes_with_its_use_and_all_of_it_is_back() {
        let mut opened = 0;
        for seed in 1..=60 {
            let mut busy = Busy::new(seed, 24);
            // Less between two looks than what stays free.
            busy.burst_frames = BLOCK / 8;
            let before = numbers(&busy.rehearsal.online);
            let mut emptied = 0;
            let mut open = Vec::new();
            let (summary, result) = serve(&mut busy, &settings(), &mut |event| match event {
                Event::Emptied { number, .. } => {
                    emptied += 1;
                    open.push(*number);
                }
                Event::Opened { number, .. } => assert_eq!(open.pop(), Some(*number)),
                Event::Refused { number, refusal, .. } => panic!("{number}: {refusal}"),
                Event::StaysOffline { number, .. } => panic!("{number}"),
            });
            assert!(result.is_ok(), "seed {seed}");
            assert_eq!(busy.missing, 0, "seed {seed}: programs found no memory");
            assert_eq!(numbers(&busy.rehearsal.online), before, "seed {seed}");
            assert!(busy.rehearsal.offline.is_empty() && summary.left.is_empty());
            assert_eq!((summary.offlined, summary.failed), (emptied, 0), "seed {seed}");
            assert!(emptied > 5, "seed {seed}: {emptied}");
            let share = busy.shares / (summary.seconds * 20.0);
            let told = summary.offline_share.unwrap();
            assert!((share - told).abs() < 0.02, "seed {seed}: {share} {told}");
            opened += summary.opened;
        }
        assert!(opened > 60, "{opened} blocks came online for programs");
    }

    #[test]
    fn a_block_that_does_not_go_is_tried_less_and_less() {
        let mut busy = Busy::new(7, 16);
        busy.pinned = (8..16).collect();
        let (summary, _) =
            serve(&mut busy, &Settings { for_ns: Some(3600 * SECOND), ..settings() }, &mut |_| {});
        for number in busy.pinned {
            let at: Vec<u64> =
                busy.tried.iter().filter(|(_, n)| *n == number).map(|(at, _)| *at).collect();
            // 30 s, 60 s, … 960 s apart, so six times in an hour and not 120.
            assert!(at.len() <= 8, "{number}: {at:?}");
            for (i, pair) in at.windows(2).enumerate() {
                assert!(pair[1] - pair[0] >= (30 << i) * SECOND, "{number}: {at:?}");
            }
        }
        assert!(
            summary.failed > 0
                && summary.failed as usize + summary.offlined as usize == busy.tried.len()
        );
    }

    #[test]
    fn what_goes_wrong_half_way_is_put_back() {
        for looks in [1, 2, 30, 500] {
            let mut busy = Busy::new(looks, 12);
            let before = numbers(&busy.rehearsal.online);
            busy.looks = looks;
            let (_, result) = serve(&mut busy, &settings(), &mut |_| {});
            assert!(matches!(result, Err(LiveError::Journal { .. })));
            assert_eq!(numbers(&busy.rehearsal.online), before);
        }
        // A block that does not come is named, and the others come all the same.
        let mut busy = Busy::new(3, 24);
        busy.burst_frames = BLOCK / 8;
        busy.stuck = (0..24).filter(|number| number % 5 == 0).collect();
        let (summary, result) = serve(&mut busy, &settings(), &mut |_| {});
        assert!(result.is_ok() && !summary.left.is_empty());
        let left: BTreeSet<u64> = summary.left.iter().copied().collect();
        assert_eq!(numbers(&busy.rehearsal.offline), left);
        assert!(left.is_subset(&busy.stuck));
    }

    #[test]
    fn what_can_be_read_again_makes_room() {
        for (reclaimed_frames, goes) in [(0, false), (BLOCK / 64, false), (BLOCK, true)] {
            let mut busy = Busy::new(11, 16);
            // Four fifths of each block, and 2.2 blocks free in all: two stay free, and what is in
            // use has no room.
            for block in &mut busy.rehearsal.online {
                let free = BLOCK * 11 / 80;
                (block.movable, block.unmovable, block.free) = (BLOCK - free, 0, free);
            }
            busy.rehearsal.frames.free = 16 * (BLOCK * 11 / 80);
            let settings = Settings { reclaimed_frames, ..settings() };
            let (summary, _) = serve(&mut busy, &settings, &mut |_| {});
            assert_eq!(summary.offlined > 0, goes, "{reclaimed_frames}: {summary:?}");
            assert_eq!(summary.reclaimed_frames, busy.reclaimed);
            assert_eq!(busy.reclaimed > 0, goes);
        }
    }

    #[test]
    fn limits_hold() {
        for seed in 1..=20 {
            let mut busy = Busy::new(seed, 24);
            busy.burst_frames = BLOCK / 16;
            let limited =
                Settings { offline_frames_max: 3 * BLOCK, moved_frames_per_s: 64, ..settings() };
            let mut most = 0;
            let mut now = 0i64;
            let (summary, _) = serve(&mut busy, &limited, &mut |event| {
                now += match event {
                    Event::Emptied { .. } => 1,
                    Event::Opened { .. } => -1,
                    _ => 0,
                };
                most = most.max(now);
            });
            assert!(most <= 3, "seed {seed}: {most} blocks");
            // The budget is owed after a block, so one may be above it.
            let allowed = (summary.seconds * 64.0) as u64 + BLOCK;
            assert!(summary.moved_frames <= allowed, "seed {seed}: {}", summary.moved_frames);
        }
        // The naive choice tries what cannot go, too.
        let mut busy = Busy::new(5, 24);
        let highest = Settings { choice: Choice::Highest, ..settings() };
        let (summary, _) = serve(&mut busy, &highest, &mut |_| {});
        assert!(summary.failed > 0);
        assert!(busy.tried.iter().all(|(_, number)| *number > 0), "one that cannot go");
    }
}
