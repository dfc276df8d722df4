//! A running machine in pieces: free memory of a stated shape, kept under load.
//!
//! All free memory but what the kernel needs is taken, page by page; then those pages are given back
//! whose frames make up free runs of the stated lengths. What is held is ordinary memory, the cache of
//! a file, pages of the kernel's that cannot move, or pinned, in stated shares. It is looked at again and
//! again, and mended where the machine's work has changed it. Everything is this process's, so that
//! it is free again when it ends, however it does. Meanwhile the kernel does not compact memory of its
//! own accord, nor for huge pages, and keeps few pages in the lists of its processors.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use swath_arch::{Extent, Pfn};
use swath_trace::histogram::Histogram;
use swath_trace::inspect::{HUGE_FRAMES, MachineMemory, Unit};
use swath_trace::machine::{FrameKind, available_frames};

use crate::live::daemon::OnlineFrames;
use crate::live::error::LiveError;
use crate::live::hold::{HUGE_PAGES, Pages, Pipes, open_many_files};
use crate::live::linux::frames;
use crate::live::setting::Setting;
use crate::live::shape::{Shape, choose};
use crate::source::memory::random;

/// How much the kernel compacts memory that nobody asked for.
const COMPACTION: &str = "/proc/sys/vm/compaction_proactiveness";

/// Whether the kernel joins free memory when a huge page is asked for.
const DEFRAGMENTATION: &str = "/sys/kernel/mm/transparent_hugepage/defrag";

/// The part of a zone that the lists of free pages of each processor may have, as the inverse.
const LISTS: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";

/// So small a part that they have the least that they can have: what lies in them is free only when the kernel empties
/// them, long after it was given back.
const SHORT_LISTS: &str = "1000000";

/// The file of the kernel's that is locked while memory is held: of two runs the later would set the kernel's settings
/// back to those of the other.
const LOCKED: &str = "/proc/sys/vm/min_free_kbytes";

/// Pages that are taken at a time.
const CHUNK: usize = 256;

/// Of all memory, what the kernel keeps beside its own minimum, as the inverse.
const SPARE: u64 = 1000;

/// Of the tolerance, the part by which more may be free than is wanted, while runs of some length are
/// missing.
const WITHIN: f64 = 0.5;

/// Of the tolerance, the part from which on memory is taken again.
const AT_MOST: f64 = 0.9;

/// Looks in a row at which memory may be of another shape, before all of it is taken anew.
const PATIENCE: u32 = 3;

/// Of what stays held, the part that stays in long runs at first, as the inverse.
const SPARED: u64 = 4;

/// Of the frames that stay free while all others are taken, the part that may go to the kernel's pages, as the inverse:
/// the rest is still more than that below which the kernel reclaims.
const PIECES: u64 = 4;

/// Pages that the kernel has for itself at a time: more than lie in the lists of its processors.
const ROUND: u64 = 1024;

/// The bin of runs from a huge page on.
const HUGE_LOG2: usize = HUGE_PAGES.ilog2() as usize;

/// The stream of random numbers.
const STREAM: u64 = 0x6c69_7665;

/// The settings of [`age`].
#[derive(Clone, Debug)]
pub struct AgeSettings {
    /// The shape of free memory, [fitted](Shape::fitted) to this machine.
    pub target: Shape,
    /// Of what is held, the share that is the cache of a file.
    pub cache: f64,
    /// The folder of that file.
    pub cache_folder: PathBuf,
    /// Of what is held, the share of pages of the kernel's that cannot move.
    pub kernel: f64,
    /// Of what is held, the share that is pinned.
    pub pinned: f64,
    /// The distance from the target that is near enough, and the part of the free memory that may be
    /// missing or too much.
    pub tolerance: f64,
    /// The seed of what is drawn.
    pub seed: u64,
    /// The time from one look to the next; the kernel's own lists are emptied about once a second.
    pub interval: Duration,
    /// The time to the end, if there is one.
    pub lasts: Option<Duration>,
}

/// A look at the memory.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct AgeLook {
    /// The shape of free memory.
    pub shape: Shape,
    /// Its distance from the target that was fitted to the machine.
    pub distance: f64,
    /// True if shape and amount are near enough.
    pub is_near: bool,
    /// Pages held: all, of the file's cache, of the kernel's, and pinned.
    pub held: [u64; 4],
}

/// A page that is held: anonymous or of the cache, and its number.
type HeldPage = (usize, usize);

/// What is held, and of which a part was given back.
///
/// Invariant: `given_back` has the pages of `pages` that were taken once and are not there. The lists have room from the
/// start: what is allocated while little is free breaks the long runs that are left.
struct HeldPages {
    /// Anonymous memory, and a file's cache.
    pages: [Pages; 2],
    taken: [usize; 2],
    given_back: Vec<HeldPage>,
    /// Those of the last [`runs`](Self::runs), by frame.
    by_frame: Vec<(Pfn, HeldPage)>,
    /// Huge pages, by which long runs are taken and short ones are not.
    huge: Pages,
    huge_pages: usize,
    pinned: BTreeSet<(usize, usize)>,
    kernel: Pipes,
    pins: Pipes,
}

/// Brings the machine's free memory into the shape and keeps it there until it is stopped, or its
/// time is over; `tell` has each look. Returns the last one. O(n × log n) for n frames at a look.
///
/// # Errors
/// [`LiveError`]; what was held is given back.
pub fn age(
    settings: &AgeSettings,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Duration, &AgeLook),
) -> Result<Option<AgeLook>, LiveError> {
    let hold = |source| LiveError::Hold { source };
    let _lock = lock(Path::new(LOCKED))?;
    let mut random = random(settings.seed, STREAM);
    let mut memory = MachineMemory::read()?;
    let now = frames()?;
    let wanted = wanted(settings, now, available_frames(Path::new("/proc"))?)?;
    let target = settings.target.fitted(wanted);
    let floor = floor(&memory, now.total).min(wanted);
    // It would join what is free again.
    let _compaction = Setting::change(Path::new(COMPACTION), "0").map_err(hold)?;
    let _defragmentation = Setting::change(Path::new(DEFRAGMENTATION), "never").map_err(hold)?;
    let _lists = Setting::change(Path::new(LISTS), SHORT_LISTS).map_err(hold)?;
    // If memory becomes scarce, this is what the kernel ends: not the processes that set those back, which
    // were begun before.
    fs::write("/proc/self/oom_score_adj", "1000").map_err(hold)?;
    open_many_files().map_err(hold)?;
    let room = room(now);
    let mut held = HeldPages {
        pages: [
            Pages::anonymous(room).map_err(hold)?,
            Pages::cached(&settings.cache_folder, room).map_err(hold)?,
        ],
        taken: [0; 2],
        given_back: touched(room),
        by_frame: touched(room),
        huge: Pages::huge(room).map_err(hold)?,
        huge_pages: 0,
        pinned: BTreeSet::new(),
        kernel: Pipes::default(),
        pins: Pipes::default(),
    };
    let began = Instant::now();
    let (mut last, mut far) = (None, PATIENCE);
    let is_over = || {
        stop.load(Ordering::Relaxed) || settings.lasts.is_some_and(|lasts| began.elapsed() >= lasts)
    };
    while !is_over() {
        let all = memory.units().len();
        if far >= PATIENCE {
            held.take(settings, floor, &mut random, &is_over).map_err(hold)?;
            if is_over() {
                break;
            }
            memory.read_again(0..all)?;
            held.begin(&target, wanted, floor, &mut memory, &mut random)?;
            memory.read_again(0..all)?;
            far = 0;
        }
        let most = wanted + (wanted as f64 * settings.tolerance * WITHIN) as u64;
        let free = free_runs(&memory).sum;
        // What is taken comes from the shortest runs, which are then missing: not before it must be.
        if free > wanted + (wanted as f64 * settings.tolerance * AT_MOST) as u64 {
            held.take_again((free - wanted) as usize).map_err(hold)?;
            memory.read_again(0..all)?;
        }
        held.mend(&target, wanted, most, &memory, &mut random).map_err(hold)?;
        if held.pinned.is_empty() && settings.pinned > 0.0 {
            held.pin(settings.pinned, &mut random).map_err(hold)?;
        }
        // Until the machine's work has changed it.
        loop {
            rest(settings.interval, &is_over);
            memory.read_again(0..all)?;
            let look = held.look(settings, &target, now.total, wanted, &memory);
            tell(began.elapsed(), &look);
            let is_near = look.is_near;
            last = Some(look);
            if is_over() {
                return Ok(last);
            }
            if !is_near {
                far += 1;
                break;
            }
            far = 0;
        }
    }
    Ok(last)
}

/// The frames that are to be free. O(1).
///
/// # Errors
/// [`LiveError::InUse`] if so many cannot be, by more than the tolerance; [`LiveError::Shares`].
fn wanted(settings: &AgeSettings, now: OnlineFrames, available: u64) -> Result<u64, LiveError> {
    if settings.kernel + settings.pinned > 1.0 {
        return Err(LiveError::Shares);
    }
    let wanted = (settings.target.free * now.total as f64).round() as u64;
    if (1.0 - settings.tolerance) * wanted as f64 > available.max(now.free) as f64 {
        return Err(LiveError::InUse { wanted, available });
    }
    Ok(wanted)
}

/// The pages that there is room for. More than are free now: what the kernel gives up while memory is taken, and
/// what programs give back, is taken, too. Not all, so that no map is longer than the memory, which the kernel
/// refuses.
fn room(now: OnlineFrames) -> usize {
    now.total.saturating_sub(HUGE_FRAMES) as usize
}

/// Locks a file until what is returned is dropped.
fn lock(path: &Path) -> Result<File, LiveError> {
    let hold = |source| LiveError::Hold { source };
    let file = File::open(path).map_err(hold)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LiveError::AgeAtWork),
        Err(TryLockError::Error(source)) => Err(hold(source)),
    }
}

/// The frames that would be held: those by which memory has more free ones than the target, after the checks that
/// [`age`] begins with. Nothing is changed. O(1).
///
/// # Errors
/// [`LiveError`], as [`age`].
pub fn would_hold(settings: &AgeSettings) -> Result<u64, LiveError> {
    let now = frames()?;
    let wanted = wanted(settings, now, available_frames(Path::new("/proc"))?)?;
    Ok(now.free.saturating_sub(wanted))
}

/// The free runs of the memory that programs can have. O(frames / 64).
pub fn free_runs(memory: &MachineMemory) -> Histogram {
    memory.free_runs_within(within_reach(memory))
}

/// The frames but those that the kernel keeps for devices with 24 bits of address.
fn within_reach(memory: &MachineMemory) -> Range<u64> {
    let of_devices = memory.facts().zones.iter().filter(|zone| zone.name == "DMA");
    let ends = of_devices.map(|zone| zone.start_frame.saturating_add(zone.spanned_frames));
    ends.max().unwrap_or(0)..u64::MAX
}

/// The free pages that lie in whole huge pages. O(frames / 512).
fn whole(memory: &MachineMemory) -> usize {
    let is_free = |unit: &&Unit| unit.count(FrameKind::Free) == HUGE_FRAMES;
    memory.units_within(within_reach(memory)).iter().filter(is_free).count() * HUGE_PAGES
}

/// Frames that stay free while all others are taken: above that the kernel reclaims nothing.
fn floor(memory: &MachineMemory, total: u64) -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/min_free_kbytes").unwrap_or_default();
    let min: u64 = text.trim().parse().unwrap_or(0);
    let of_devices = memory.facts().zones.iter().filter(|zone| zone.name == "DMA");
    // Twice the minimum, where the kernel begins to reclaim at less and ends at one and a half.
    of_devices.map(|zone| zone.free_frames).sum::<u64>() + min / 2 + total / SPARE
}

/// Waits, but not beyond the end.
fn rest(interval: Duration, is_over: &dyn Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < interval && !is_over() {
        thread::sleep(Duration::from_millis(20).min(interval));
    }
}

/// A run of frames that are held, and the place of the first among those of [`HeldPages::by_frame`].
type HeldRun = (Extent, usize);

/// Returns an empty list whose memory is there.
fn touched<T: Copy + Default>(len: usize) -> Vec<T> {
    let mut list = vec![T::default(); len];
    // Zeros may be memory that is not there yet.
    std::hint::black_box(&mut list).fill(T::default());
    list.clear();
    list
}

impl HeldPages {
    /// Takes memory until little is free.
    fn take(
        &mut self,
        settings: &AgeSettings,
        floor: u64,
        random: &mut Pcg64Mcg,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        if self.huge_pages > 0 {
            self.huge.give_back(0, self.huge_pages)?;
        }
        self.huge_pages = 0;
        loop {
            let free = frames().map_err(io::Error::other)?.free;
            let chunk = CHUNK.min(free.saturating_sub(floor) as usize);
            if chunk == 0 || is_over() {
                return Ok(());
            }
            if !self.given_back.is_empty() {
                self.take_again(chunk)?;
                continue;
            }
            if self.share(self.kernel.pages()) < settings.kernel {
                for _ in 0..chunk {
                    self.kernel.take()?;
                }
                continue;
            }
            let kind = usize::from(random.random::<f64>() < settings.cache);
            self.pages[kind].take(self.taken[kind], chunk)?;
            self.taken[kind] += chunk;
        }
    }

    fn all(&self) -> u64 {
        (self.taken[0] + self.taken[1] + self.huge_pages - self.given_back.len()) as u64
            + self.kernel.pages()
    }

    fn share(&self, of: u64) -> f64 {
        of as f64 / self.all().max(1) as f64
    }

    /// Gives back what has the shape, when all is held but what the kernel has kept. That is mostly one
    /// long run, which is taken as huge pages: they take nothing else, as long as only short runs
    /// were given back for it.
    fn begin(
        &mut self,
        target: &Shape,
        wanted: u64,
        floor: u64,
        memory: &mut MachineMemory,
        random: &mut Pcg64Mcg,
    ) -> Result<(), LiveError> {
        let hold = |source| LiveError::Hold { source };
        self.take_pieces(floor / PIECES, memory)?;
        // What cannot be taken as huge pages stays free.
        let mut short = free_runs(memory);
        short.bins.truncate(HUGE_LOG2);
        short.sum = short.sum.saturating_sub(whole(memory) as u64);
        let runs = self.runs().map_err(hold)?;
        let extents: Vec<Extent> = runs.iter().map(|run| run.0).collect();
        let all: u64 = extents.iter().map(|run| run.count).sum();
        let spared = all.saturating_sub(wanted) / SPARED;
        let chosen = choose(target, wanted, wanted, &short, &extents, spared, random);
        let (long, short): (Vec<Extent>, Vec<Extent>) =
            chosen.into_iter().partition(|extent| extent.count >= HUGE_FRAMES);
        self.give_back(&runs, &short).map_err(hold)?;
        let all = memory.units().len();
        memory.read_again(0..all)?;
        let spare = frames()?.free.saturating_sub(floor) as usize;
        self.take_huge(whole(memory).min(spare)).map_err(hold)?;
        self.give_back(&runs, &long).map_err(hold)
    }

    /// Gives back what the shape lacks.
    fn mend(
        &mut self,
        target: &Shape,
        wanted: u64,
        most: u64,
        memory: &MachineMemory,
        random: &mut Pcg64Mcg,
    ) -> io::Result<()> {
        let runs = self.runs()?;
        let extents: Vec<Extent> = runs.iter().map(|run| run.0).collect();
        let chosen = choose(target, wanted, most, &free_runs(memory), &extents, 0, random);
        self.give_back(&runs, &chosen)
    }

    /// Takes what lies beside huge pages, as far as the kernel has it for pages of its own: programs' pages come
    /// from there last of all. At most so many pages.
    fn take_pieces(&mut self, most: u64, memory: &mut MachineMemory) -> Result<(), LiveError> {
        let all = memory.units().len();
        let pieces =
            |memory: &MachineMemory| free_runs(memory).sum.saturating_sub(whole(memory) as u64);
        let (mut left, mut before) = (most, pieces(memory));
        while left >= ROUND && before >= ROUND {
            for _ in 0..ROUND {
                self.kernel.take().map_err(|source| LiveError::Hold { source })?;
            }
            left -= ROUND;
            memory.read_again(0..all)?;
            let now = pieces(memory);
            // From here on they come from elsewhere.
            if now + ROUND / 2 > before {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Takes memory as huge pages, as many as so many pages have, or as the kernel gives as such.
    fn take_huge(&mut self, pages: usize) -> io::Result<()> {
        for _ in 0..pages / HUGE_PAGES {
            let at = self.huge_pages..self.huge_pages + HUGE_PAGES;
            self.huge.take(at.start, HUGE_PAGES)?;
            let mut runs: Vec<Extent> = Vec::new();
            self.huge.frames(at.clone(), &mut |_, frame| match runs.last_mut() {
                Some(run) if run.end() == frame => run.count += 1,
                _ => runs.push(Extent::new(frame, 1)),
            })?;
            // Short runs in its place are those that are to stay free.
            if runs.len() != 1 {
                return self.huge.give_back(at.start, HUGE_PAGES);
            }
            self.huge_pages += HUGE_PAGES;
        }
        Ok(())
    }

    /// Takes memory for pages that were given back.
    fn take_again(&mut self, pages: usize) -> io::Result<()> {
        for _ in 0..pages {
            let Some((kind, page)) = self.given_back.pop() else { break };
            self.pages[kind].take(page, 1)?;
        }
        Ok(())
    }

    /// The runs of frames that are held and not pinned, each as long as it can be, ascending.
    fn runs(&mut self) -> io::Result<Vec<HeldRun>> {
        self.by_frame.clear();
        for (kind, pages) in self.pages.iter().enumerate() {
            pages.frames(0..self.taken[kind], &mut |page, frame| {
                if !self.pinned.contains(&(kind, page)) {
                    self.by_frame.push((frame, (kind, page)));
                }
            })?;
        }
        self.by_frame.sort_unstable();
        let mut runs: Vec<HeldRun> = Vec::new();
        for (place, (frame, _)) in self.by_frame.iter().enumerate() {
            match runs.last_mut() {
                Some((run, _)) if run.end() == *frame => run.count += 1,
                _ => runs.push((Extent::new(*frame, 1), place)),
            }
        }
        Ok(runs)
    }

    /// Gives back the pages in these frames, ascending, each extent within one run.
    fn give_back(&mut self, runs: &[HeldRun], extents: &[Extent]) -> io::Result<()> {
        let mut runs = runs.iter().peekable();
        for extent in extents {
            while runs.next_if(|(run, _)| run.end() <= extent.start).is_some() {}
            let Some((run, place)) = runs.peek() else { break };
            let first = place + (extent.start.raw() - run.start.raw()) as usize;
            let in_frames = &self.by_frame[first..first + extent.count as usize];
            let before = self.given_back.len();
            self.given_back.extend(in_frames.iter().map(|(_, page)| page));
            let pages = &mut self.given_back[before..];
            pages.sort_unstable();
            for group in pages.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
                let (kind, page) = group[0];
                self.pages[kind].give_back(page, group.len())?;
            }
        }
        Ok(())
    }

    /// Pins a share of what is held, at random.
    fn pin(&mut self, share: f64, random: &mut Pcg64Mcg) -> io::Result<()> {
        let gone: BTreeSet<(usize, usize)> = self.given_back.iter().copied().collect();
        for kind in 0..self.pages.len() {
            for page in 0..self.taken[kind] {
                if random.random::<f64>() < share && !gone.contains(&(kind, page)) {
                    self.pages[kind].pin(page, &mut self.pins)?;
                    self.pinned.insert((kind, page));
                }
            }
        }
        Ok(())
    }

    fn look(
        &self,
        settings: &AgeSettings,
        target: &Shape,
        total: u64,
        wanted: u64,
        memory: &MachineMemory,
    ) -> AgeLook {
        let free = free_runs(memory);
        let shape = Shape::of(total, &free);
        let distance = target.distance(&shape);
        let is_amount = free.sum.abs_diff(wanted) as f64 <= settings.tolerance * wanted as f64;
        let cached = self.given_back.iter().filter(|(kind, _)| *kind == 1).count();
        let held = [
            self.all(),
            (self.taken[1] - cached) as u64,
            self.kernel.pages(),
            self.pinned.len() as u64,
        ];
        AgeLook { shape, distance, is_near: is_amount && distance <= settings.tolerance, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(free: f64) -> AgeSettings {
        AgeSettings {
            target: Shape { free, parts: vec![1.0] },
            cache: 0.0,
            cache_folder: PathBuf::new(),
            kernel: 0.0,
            pinned: 0.0,
            tolerance: 0.05,
            seed: 1,
            interval: Duration::ZERO,
            lasts: None,
        }
    }

    #[test]
    fn what_becomes_free_meanwhile_has_room() {
        let now = OnlineFrames { total: 1 << 20, free: 1 << 18 };
        // All but a huge page, by which the map of huge pages is longer.
        assert_eq!(room(now), (1 << 20) - HUGE_PAGES);
        assert_eq!(room(OnlineFrames { total: 100, free: 10 }), 0);
    }

    #[test]
    fn what_is_in_use_cannot_be_free() {
        let now = OnlineFrames { total: 1 << 20, free: 1 << 18 };
        assert_eq!(wanted(&settings(0.25), now, 1 << 18).unwrap(), 1 << 18);
        // The kernel would give up what it holds for others.
        assert_eq!(wanted(&settings(0.5), now, 1 << 19).unwrap(), 1 << 19);
        // Within the tolerance.
        assert!(wanted(&settings(0.5), now, 500_000).is_ok());
        let error = wanted(&settings(0.5), now, 490_000).unwrap_err().to_string();
        let expected =
            "the target has 2048 MiB free, and no more than 1914 MiB can be: the rest is in use";
        assert_eq!(error, expected);
        let shares = AgeSettings { kernel: 0.6, pinned: 0.5, ..settings(0.25) };
        assert!(matches!(wanted(&shares, now, 1 << 18), Err(LiveError::Shares)));
    }

    #[test]
    fn two_do_not_work_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = lock(file.path()).unwrap();
        assert!(matches!(lock(file.path()), Err(LiveError::AgeAtWork)));
        drop(first);
        assert!(lock(file.path()).is_ok());
    }
}
