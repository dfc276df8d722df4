//! Synthetic work for a page allocator: hours of a machine's life as requests.
//!
//! The green memory manager's paper (section V) measures under a **light**
//! load, whose footprint varies between 10% and 50% of memory, and a **medium**
//! one, between 30% and 80%, over hours. A [`PageLoad`] is such a load as an
//! endless, seeded iterator of the same requests that a recording gives, in [runs](OpRun).
//!
//! Its figures of Linux's layout (Fig. 1 and 2) are of a machine that has been up
//! for long and has run file benchmarks. The **filled** load is the light one but
//! for that: its page cache fills memory up to 95% again and again, as a kernel
//! lets it, and is dropped.
//!
//! The paper's footprint is that "of all applications". What else is in use, a kernel's own memory,
//! a desktop and its daemons, is **the system's** frames, which come on top of both bounds, up to
//! [95%](FILLED_PERCENT) of memory.
//!
//! With F frames, S of them the system's, C processors, footprint bounds l and h with S / F in
//! them, u uniform in [0, 1):
//!
//! | part | formula |
//! |---|---|
//! | boot, the first [`BOOT_US`] | unmovable slabs of F/64 frames; C + 8 long-lived processes of S + (F (l - 1/40) - S) / 2 frames together; the rest of F (l + 1/50) page cache |
//! | target footprint | straight lines through valley, peak, valley, …, (15 + 10 u) minutes long; peak h - g - (h - l) (u / 2)^2, valley l + g + (h - l) (u / 2)^2 with a guard g = 1/50; the first of each has u = 0 |
//! | below the target | 3/5 of what is missing goes to workers, 2/5 to page cache, at most F/400 frames in a tick of 100 ms |
//! | worker | a process of (1 + 7 u) F/128 frames; when the footprint is above the target by half of one, a random one exits, all at once |
//! | above the target otherwise | the oldest files are dropped |
//! | build | on for 3 + 2 u minutes, off for 12 + 6 u (light, filled) or 4 + 2 u (medium); C jobs at once |
//! | job | 300 * 40^u frames, times (F / 2^23)^(1/2); grows to its end over 0.2 + 3 u^2 s, exits all at once and leaves a file of 16 frames |
//! | file | 4 * 512^u frames, each by itself, as kernels of the paper's time read them |
//! | process | a stack of order 2, 3 page tables and one more for each 512 frames of anonymous memory; a slab block for each 64 |
//! | anonymous memory | single frames; a worker's is 3/10 blocks of order 9 |
//! | slab | orders 0, 1, 2, 3 with 40, 25, 15, 20%; unmovable ones as above, reclaimable ones 1/16 of the page cache; each lives 120 s on average |
//! | long-lived process | gives back and takes again each frame once in 600 s on average |
//! | processor | C u^2 rounded down for each process, so that node 0 of two has 70% of the processes |
//!
//! Anonymous memory and page cache are movable and may lie in any zone; all
//! else may lie up to the Normal zone, one unmovable block in 256 below 4 GiB.
//!
//! **Bounds.** After boot the footprint never leaves [l F, h F]: a request that
//! would pass h F waits until files are dropped for it, an exit or drop that would
//! pass l F waits for the next tick.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use swath_arch::Order;
use swath_frame::Mobility;

use crate::papers::green::pages::handles::{HandleRow, Handles};
use crate::papers::green::pages::owners::{CachedFile, Group, Owner, Process};
use crate::papers::green::pages::requests::ReplayOp;
use crate::papers::green::pages::runs::{OpRun, Requests, Stretch};
use swath_trace::pages::ZoneMax;

/// Simulated time from one decision to the next, in microseconds.
pub const TICK_US: u64 = 100_000;

/// Simulated microseconds of boot; from then on the bounds hold.
pub const BOOT_US: u64 = 60_000_000;

const SECOND_US: u64 = 1_000_000;

/// One frame in so many is unmovable slab.
const SLAB_SHARE: u64 = 64;

/// Frames of page cache to one frame of reclaimable slab.
const CACHE_PER_SLAB: u64 = 16;

const SLAB_LIFE_US: u64 = 120 * SECOND_US;

const LASTING_LIFE_US: u64 = 600 * SECOND_US;

/// One request in so many is for order 9 where the rest are single frames:
/// 512 / (512 + 1195) is 3/10 of the frames.
const HUGE_STEPS: u32 = 1196;

/// The most of a machine's frames that a load has in use, in percent.
pub const FILLED_PERCENT: u64 = 95;

/// A machine that the load runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadMachine {
    /// Frames of 4 KiB, from 2^16 to 2^30.
    pub frames: u64,
    /// Nodes of equal size.
    pub nodes: u16,
    /// Processors, the same number for each node.
    pub cpus: u16,
}

impl LoadMachine {
    /// 4 GiB and 4 processors in one node (Table IV).
    pub const GIB_4: Self = Self { frames: 1 << 20, nodes: 1, cpus: 4 };

    /// 32 GiB and 16 processors in two nodes (Fig. 1 and Table IV).
    pub const GIB_32: Self = Self { frames: 1 << 23, nodes: 2, cpus: 16 };

    /// The node that a processor belongs to.
    pub fn node(&self, cpu: u16) -> u16 {
        let per_node = (self.cpus / self.nodes.max(1)).max(1);
        (cpu / per_node).min(self.nodes.saturating_sub(1))
    }
}

/// The weight of a load.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoadKind {
    /// 10% to 50%, a build now and then.
    Light,
    /// 30% to 80%, a build most of the time.
    Medium,
    /// 10% to 95%, else as light.
    Filled,
}

impl LoadKind {
    /// The bounds of the footprint, in percent of the machine's frames.
    pub const fn bounds_percent(self) -> (u64, u64) {
        match self {
            Self::Light => (10, 50),
            Self::Medium => (30, 80),
            Self::Filled => (10, FILLED_PERCENT),
        }
    }
}

/// A load as an endless row of requests. The same machine, kind and seed give
/// the same requests.
///
/// Invariants: `used` is the sum of the frames of all processes, files and slabs; each handle is
/// free or in exactly one of them.
pub struct PageLoad {
    machine: LoadMachine,
    kind: LoadKind,
    random: Pcg64Mcg,
    /// Frames of the system's processes.
    system: u64,
    /// Bounds in frames, the system's in them.
    low: u64,
    high: u64,
    used: u64,
    handles: Handles,
    /// This tick's requests, and their number.
    runs: Vec<OpRun>,
    requests: u32,
    tick_us: u64,
    next_tick_us: u64,
    lasting: Vec<Process>,
    workers: Vec<Process>,
    jobs: Vec<Process>,
    files: VecDeque<CachedFile>,
    cache_frames: u64,
    /// Handles and orders.
    unmovable: Vec<(u32, u8)>,
    unmovable_frames: u64,
    reclaimable: Vec<(u32, u8)>,
    reclaimable_frames: u64,
    /// The leg of the target that the load is on: times and frames.
    leg: [(u64, u64); 2],
    legs: u64,
    build_until_us: u64,
    building: bool,
}

impl PageLoad {
    /// A load from boot on, whose footprint is all that is in use. `None` for a machine out of its
    /// limits: frames below 2^16 or above 2^30, or no node or processor.
    pub fn new(machine: LoadMachine, kind: LoadKind, seed: u64) -> Option<Self> {
        Self::with_system(machine, kind, seed, 0)
    }

    /// A load beside so many frames of the system's own. `None` for a machine out of its limits,
    /// as of [`new`](Self::new), or one of which a system as large leaves the load less than a
    /// tenth.
    pub fn with_system(
        machine: LoadMachine,
        kind: LoadKind,
        seed: u64,
        system: u64,
    ) -> Option<Self> {
        let sized = (1 << 16..=1 << 30).contains(&machine.frames);
        if !sized || machine.nodes == 0 || machine.cpus == 0 {
            return None;
        }
        let (low, high) = kind.bounds_percent();
        let guard = machine.frames / 50;
        let low = (machine.frames * low).div_ceil(100).checked_add(system)?;
        let high = (machine.frames * high / 100).checked_add(system)?;
        let high = high.min(machine.frames * FILLED_PERCENT / 100);
        if low.checked_add(machine.frames / 10)? > high {
            return None;
        }
        Some(Self {
            machine,
            kind,
            random: Pcg64Mcg::seed_from_u64(seed),
            system,
            low,
            high,
            used: 0,
            handles: Handles::default(),
            runs: Vec::new(),
            requests: 0,
            tick_us: 0,
            next_tick_us: 0,
            lasting: Vec::new(),
            workers: Vec::new(),
            jobs: Vec::new(),
            files: VecDeque::new(),
            cache_frames: 0,
            unmovable: Vec::new(),
            unmovable_frames: 0,
            reclaimable: Vec::new(),
            reclaimable_frames: 0,
            leg: [(0, 0), (BOOT_US, low + guard)],
            legs: 0,
            build_until_us: BOOT_US,
            building: false,
        })
    }

    /// The machine.
    pub fn machine(&self) -> LoadMachine {
        self.machine
    }

    /// The frames allocated after all requests of the current tick.
    pub fn used_frames(&self) -> u64 {
        self.used
    }

    fn unit(&mut self) -> f64 {
        self.random.random::<f64>()
    }

    /// `low` at least, `low + more` at most.
    fn between(&mut self, low: u64, more: u64) -> u64 {
        low + (self.unit() * more as f64) as u64
    }

    fn cpu(&mut self) -> u16 {
        let u = self.unit();
        (f64::from(self.machine.cpus) * u * u) as u16
    }

    /// Makes room for a block, if files can be dropped for it. If not, the request waits.
    fn make_room(&mut self, order: u8) -> bool {
        while self.used + (1 << order) > self.high {
            if !self.drop_file() {
                return false;
            }
        }
        true
    }

    /// Adds requests that are alike, the first with this handle, to the tick's.
    fn push(&mut self, op: ReplayOp, count: u32) {
        self.requests += count;
        match self.runs.last_mut() {
            Some(last) if last.first.renamed(|id| id + last.count) == op => last.count += count,
            _ => self.runs.push(OpRun { first: op, count }),
        }
    }

    /// Requests a block, for which there is room.
    fn request(&mut self, id: u32, order: u8, owner: Owner) {
        let zone_max = match owner.mobility {
            Mobility::Movable => ZoneMax::Movable,
            Mobility::Unmovable if self.random.random::<u32>() % 256 == 0 => ZoneMax::Dma32,
            _ => ZoneMax::Normal,
        };
        let (order, Owner { mobility, cached, cpu }) = (Order::known(order), owner);
        self.used += order.frames();
        self.push(ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu }, 1);
    }

    /// Requests a block, for which there is room, for an owner with other handles.
    fn request_in(&mut self, row: &mut HandleRow, order: u8, owner: Owner) {
        let mut id = 0;
        row.extend(&mut self.handles, 1, |first, _| id = first);
        self.request(id, order, owner);
    }

    /// Requests single frames for an owner of movable memory, for which there is room.
    fn request_frames(&mut self, row: &mut HandleRow, count: u32, owner: Owner) {
        let (order, zone_max) = (Order::BASE, ZoneMax::Movable);
        let Owner { mobility, cached, cpu } = owner;
        let mut handles = std::mem::take(&mut self.handles);
        row.extend(&mut handles, count, |id, count| {
            let op = ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu };
            self.push(op, count);
        });
        self.handles = handles;
        self.used += u64::from(count);
    }

    /// Frees all blocks of an owner, in the order in which it got them.
    fn free_all(&mut self, row: HandleRow) {
        for (id, count) in row.pieces() {
            self.push(ReplayOp::Free { id }, count);
        }
        self.handles.give(row);
    }

    fn spare(&self) -> u64 {
        self.used.saturating_sub(self.low)
    }

    fn slab_order(&mut self) -> u8 {
        match self.random.random::<u32>() % 20 {
            0..8 => 0,
            8..13 => 1,
            13..16 => 2,
            _ => 3,
        }
    }

    fn add_slab(&mut self, mobility: Mobility) {
        let (order, cpu) = (self.slab_order(), self.cpu());
        if !self.make_room(order) {
            return;
        }
        let id = self.handles.single();
        self.request(id, order, Owner::new(mobility, cpu));
        if mobility == Mobility::Reclaimable {
            self.reclaimable.push((id, order));
            self.reclaimable_frames += 1 << order;
        } else {
            self.unmovable.push((id, order));
            self.unmovable_frames += 1 << order;
        }
    }

    /// Frees a random slab of a kind, if there is one and the bound allows it.
    fn drop_slab(&mut self, mobility: Mobility) -> bool {
        let reclaimable = mobility == Mobility::Reclaimable;
        let count = if reclaimable { self.reclaimable.len() } else { self.unmovable.len() };
        if count == 0 || self.spare() < 8 {
            return false;
        }
        let which = self.random.random_range(0..count);
        let (slabs, frames) = if reclaimable {
            (&mut self.reclaimable, &mut self.reclaimable_frames)
        } else {
            (&mut self.unmovable, &mut self.unmovable_frames)
        };
        let (id, order) = slabs.swap_remove(which);
        *frames -= 1 << order;
        self.used -= 1 << order;
        self.push(ReplayOp::Free { id }, 1);
        self.handles.give_single(id);
        true
    }

    /// Reads a file of so many frames into the page cache, or of as many as there is room for: waiting
    /// would drop the very file that is being read.
    fn read_file(&mut self, frames: u64) {
        let owner = Owner { mobility: Mobility::Movable, cached: true, cpu: self.cpu() };
        let frames = frames.min(self.high.saturating_sub(self.used));
        if frames > 0 {
            let mut blocks = HandleRow::default();
            self.request_frames(&mut blocks, frames as u32, owner);
            self.cache_frames += frames;
            self.files.push_back(CachedFile { blocks, frames });
        }
    }

    fn read_some_file(&mut self) -> u64 {
        let frames = (4.0 * 512f64.powf(self.unit())) as u64;
        self.read_file(frames);
        frames
    }

    /// Drops the oldest file, if there is one and the bound allows it.
    fn drop_file(&mut self) -> bool {
        let spare = self.spare();
        if self.files.front().is_none_or(|file| file.frames > spare) {
            return false;
        }
        let Some(file) = self.files.pop_front() else { return false };
        self.cache_frames -= file.frames;
        self.used -= file.frames;
        self.free_all(file.blocks);
        true
    }

    fn start(&mut self, want: u64, huge: bool, life_us: u64) -> Process {
        let cpu = self.cpu();
        let mut process = Process {
            cpu,
            anonymous: HandleRow::default(),
            kernel: HandleRow::default(),
            frames: 0,
            grown: 0,
            want,
            huge,
            born_us: self.tick_us,
            exit_us: self.tick_us.saturating_add(life_us),
        };
        for order in [2, 0, 0, 0] {
            self.add_kernel(&mut process, order);
        }
        process
    }

    fn add_kernel(&mut self, process: &mut Process, order: u8) {
        let owner = Owner::new(Mobility::Unmovable, process.cpu);
        if self.make_room(order) {
            self.request_in(&mut process.kernel, order, owner);
            process.frames += 1 << order;
        }
    }

    /// Grows a process to so many anonymous frames, or by a large block beyond.
    fn grow(&mut self, process: &mut Process, to: u64) {
        while process.grown < to {
            // Single frames follow one another up to the process's next slab.
            let room = self.high.saturating_sub(self.used);
            let most = (to - process.grown).min(64 - process.grown % 64).min(room);
            let (mut count, mut huge) = (0, false);
            while count < most && !huge {
                huge = self.is_huge(process, count);
                count += u64::from(!huge);
            }
            if count > 0 {
                let owner = Owner::new(Mobility::Movable, process.cpu);
                self.request_frames(&mut process.anonymous, count as u32, owner);
                self.add_grown(process, count, false);
            }
            if count > 0 && !huge {
                continue;
            }
            huge = huge || self.is_huge(process, 0);
            let order = if huge { 9 } else { 0 };
            if !self.make_room(order) {
                break;
            }
            let owner = Owner::new(Mobility::Movable, process.cpu);
            self.request_in(&mut process.anonymous, order, owner);
            self.add_grown(process, 1 << order, huge);
        }
    }

    /// Returns true if a process's next request, once it has grown by so many frames more, is for
    /// a large block.
    fn is_huge(&mut self, process: &Process, more: u64) -> bool {
        process.huge
            && process.want.saturating_sub(process.grown + more) >= 512
            && self.random.random::<u32>() % HUGE_STEPS == 0
    }

    /// Counts frames that a process has grown by, with what the kernel needs for them.
    fn add_grown(&mut self, process: &mut Process, frames: u64, huge: bool) {
        let before = process.grown;
        process.grown += frames;
        process.frames += frames;
        if process.grown / 512 > before / 512 {
            self.add_kernel(process, 0);
        }
        if process.grown / 64 > before / 64 && !huge {
            let order = self.slab_order();
            self.add_kernel(process, order);
        }
    }

    /// Frees all that a process has: its memory in the order in which it was
    /// touched, then what the kernel had for it.
    fn exit(&mut self, process: Process) {
        self.used -= process.frames;
        self.free_all(process.anonymous);
        self.free_all(process.kernel);
    }
}

/// The events of a tick.
impl PageLoad {
    fn step(&mut self) {
        self.runs.clear();
        self.requests = 0;
        self.tick_us = self.next_tick_us;
        self.next_tick_us += TICK_US;
        if self.tick_us < BOOT_US {
            self.boot();
        } else {
            self.churn_slabs();
            self.churn_lasting();
            self.build();
            self.follow_target();
        }
    }

    fn boot(&mut self) {
        let frames = self.machine.frames;
        let share = |of: u64| of * (self.next_tick_us / TICK_US) / (BOOT_US / TICK_US);
        let slabs = share(frames / SLAB_SHARE);
        let all = share(self.leg[1].1);
        let count = u64::from(self.machine.cpus) + 8;
        let applications = (self.low - self.system).saturating_sub(frames / 40) / 2;
        let want = (self.system + applications) / count;
        let grown = share(want);
        if self.tick_us == 0 {
            for _ in 0..count {
                let process = self.start(want, false, u64::MAX);
                self.lasting.push(process);
            }
        }
        while self.unmovable_frames < slabs {
            self.add_slab(Mobility::Unmovable);
        }
        for i in 0..self.lasting.len() {
            self.grow_in(Group::Lasting, i, grown);
        }
        while self.used < all && self.read_some_file() > 0 {}
    }

    /// Number of times that something that happens to each of `count` once in `every_us`
    /// on average happens in this tick.
    fn times(&mut self, count: u64, every_us: u64) -> u64 {
        let expected = count as f64 * TICK_US as f64 / every_us as f64;
        (expected + self.unit()) as u64
    }

    fn churn_slabs(&mut self) {
        for mobility in [Mobility::Unmovable, Mobility::Reclaimable] {
            let blocks = match mobility {
                Mobility::Unmovable => self.unmovable.len(),
                _ => self.reclaimable.len(),
            };
            for _ in 0..self.times(blocks as u64, SLAB_LIFE_US) {
                if !self.drop_slab(mobility) {
                    break;
                }
            }
            let frames = |load: &Self| match mobility {
                Mobility::Unmovable => load.unmovable_frames,
                _ => load.reclaimable_frames,
            };
            let want = match mobility {
                Mobility::Unmovable => self.machine.frames / SLAB_SHARE,
                _ => self.cache_frames / CACHE_PER_SLAB,
            };
            while frames(self) < want {
                let before = frames(self);
                self.add_slab(mobility);
                if frames(self) == before {
                    break;
                }
            }
            // Slabs go slower than the files that they describe.
            for _ in 0..frames(self).saturating_sub(want) / 64 {
                if !self.drop_slab(mobility) {
                    break;
                }
            }
        }
    }

    fn churn_lasting(&mut self) {
        for i in 0..self.lasting.len() {
            let (count, cpu) = (self.lasting[i].anonymous.count(), self.lasting[i].cpu);
            for _ in 0..self.times(count.into(), LASTING_LIFE_US) {
                if self.spare() == 0 {
                    break;
                }
                let which = self.random.random_range(0..count as usize);
                let id = self.lasting[i].anonymous.get(which as u32);
                self.push(ReplayOp::Free { id }, 1);
                // There is room: a frame was just given back.
                self.used -= 1;
                self.request(id, 0, Owner::new(Mobility::Movable, cpu));
            }
        }
    }

    fn build(&mut self) {
        if self.tick_us >= self.build_until_us {
            self.building = !self.building;
            let (minutes, more) = match (self.building, self.kind) {
                (true, _) => (3, 2),
                (false, LoadKind::Light | LoadKind::Filled) => (12, 6),
                (false, LoadKind::Medium) => (4, 2),
            };
            let length = self.between(minutes * 60 * SECOND_US, more * 60 * SECOND_US);
            self.build_until_us = self.tick_us + length;
        }
        let mut i = 0;
        while i < self.jobs.len() {
            let job = &self.jobs[i];
            if job.exit_us <= self.tick_us && job.frames <= self.spare() {
                let job = self.jobs.swap_remove(i);
                self.exit(job);
                self.read_file(16);
                continue;
            }
            let life = job.exit_us - job.born_us;
            let to = job.want * (self.next_tick_us - job.born_us).min(life) / life;
            self.grow_in(Group::Jobs, i, to);
            i += 1;
        }
        while self.building && self.jobs.len() < usize::from(self.machine.cpus) {
            let scale = (self.machine.frames as f64 / f64::from(1 << 23)).sqrt();
            let want = (300.0 * 40f64.powf(self.unit()) * scale) as u64;
            let u = self.unit();
            let life = 200_000 + (3e6 * u * u) as u64;
            let job = self.start(want, false, life);
            self.jobs.push(job);
        }
    }

    /// The footprint to have now, in frames.
    fn target(&mut self) -> u64 {
        while self.tick_us >= self.leg[1].0 {
            let from = self.leg[1];
            let u = if self.legs < 2 { 0.0 } else { self.unit() / 2.0 };
            let guard = self.machine.frames / 50;
            let less = ((self.high - self.low) as f64 * u * u) as u64;
            let to = if self.legs.is_multiple_of(2) {
                self.high - guard - less
            } else {
                self.low + guard + less
            };
            let minutes = self.between(15 * 60 * SECOND_US, 10 * 60 * SECOND_US);
            self.leg = [from, (from.0 + minutes, to)];
            self.legs += 1;
        }
        let [(start, from), (end, to)] = self.leg;
        let passed = (self.tick_us - start) as f64 / (end - start) as f64;
        (from as f64 + (to as f64 - from as f64) * passed) as u64
    }

    fn follow_target(&mut self) {
        let target = self.target();
        let frames = self.machine.frames;
        let falling = self.leg[1].1 < self.leg[0].1;
        if self.used < target {
            let missing = (target - self.used).min(frames / 400);
            let grown = self.workers.last().filter(|worker| worker.grown < worker.want);
            if grown.is_none() && !falling {
                let want = self.between(frames / 128, frames * 7 / 128);
                let worker = self.start(want, true, u64::MAX);
                self.workers.push(worker);
            }
            if let Some(worker) = self.workers.last() {
                let to = worker.want.min(worker.grown + missing * 3 / 5);
                self.grow_in(Group::Workers, self.workers.len() - 1, to);
            }
            let mut cache = missing * 2 / 5;
            while cache > 0 && self.used < target {
                cache = cache.saturating_sub(self.read_some_file().max(1));
            }
            return;
        }
        let excess = self.used - target;
        if !self.workers.is_empty() {
            let which = self.random.random_range(0..self.workers.len());
            let worker = self.workers[which].frames;
            let leaves = worker / 2 <= excess || (falling && self.times(1, 60 * SECOND_US) > 0);
            if leaves && worker <= self.spare() {
                let worker = self.workers.swap_remove(which);
                self.exit(worker);
            }
        }
        while self.used > target && self.drop_file() {}
    }

    fn grow_in(&mut self, group: Group, index: usize, to: u64) {
        // Taken out for the while, so that it and the rest can be changed.
        let mut processes = std::mem::take(self.group(group));
        if let Some(process) = processes.get_mut(index) {
            self.grow(process, to);
        }
        *self.group(group) = processes;
    }

    fn group(&mut self, group: Group) -> &mut Vec<Process> {
        match group {
            Group::Lasting => &mut self.lasting,
            Group::Workers => &mut self.workers,
            Group::Jobs => &mut self.jobs,
        }
    }

    /// Walks the invariants of the struct. O(blocks allocated).
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let processes = || self.lasting.iter().chain(&self.workers).chain(&self.jobs);
        let rows = processes().flat_map(|process| [&process.anonymous, &process.kernel]);
        let files = self.files.iter().map(|file| &file.blocks);
        let slabs = self.unmovable.iter().chain(&self.reclaimable).map(|&(id, _)| id);
        self.handles.check(rows.chain(files), slabs)?;
        let sum = |slabs: &[(u32, u8)]| slabs.iter().map(|&(_, order)| 1 << order).sum::<u64>();
        if (sum(&self.unmovable), sum(&self.reclaimable))
            != (self.unmovable_frames, self.reclaimable_frames)
        {
            return Err("slabs with other frames than are counted");
        }
        if self.files.iter().map(|file| file.frames).sum::<u64>() != self.cache_frames {
            return Err("files with other frames than are counted");
        }
        let others = self.unmovable_frames + self.reclaimable_frames + self.cache_frames;
        if processes().map(|process| process.frames).sum::<u64>() + others != self.used {
            return Err("the footprint is not the sum of what is owned");
        }
        if self.used > self.high {
            return Err("a footprint beyond the upper bound");
        }
        Ok(())
    }
}

impl Requests for PageLoad {
    /// The requests of a tick in which there are some, spread over it.
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        self.step();
        while self.runs.is_empty() {
            self.step();
        }
        let (count, start_us) = (self.requests, self.tick_us);
        Some(Stretch { runs: &self.runs, count, start_us, length_us: TICK_US as u32, ids_from: 0 })
    }
}
