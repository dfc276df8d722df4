//! A guest is shrunk: by a balloon, and by a host that takes free units out of the guest's words.
//!
//! A guest is simulated: its memory is a mapping of this process, populated as a running guest's is, its frames an
//! allocator over it. Long-lived blocks hold a fifth of it; a job has filled the rest to 95% and has ended. Then the host
//! wants half of the memory, and gives it back when the guest needs it: the guest takes as much again and
//! touches every page of it. Two guests differ in what is free when the job has ended: in one the long-lived blocks came
//! first and lie together, in the other they came with the job's, in turns.
//!
//! * `words`: the host looks through the [shared words](swath_frame::guest), takes what is free, and discards each run
//!   of it by one call of the system. Over the page buddy system, granularity 9. The guest asks for each unit that it needs again.
//! * `balloon`: as virtio's, over a binary buddy system to order 10: the guest allocates pages one by one, and for each
//!   256 of them the host discards each. To grow, the guest frees them, 256 at a time.
//! * `balloon, 2 MiB`: the same by blocks of 2 MiB, 32 at a time, while there are any.
//!
//! Times are of this process on this machine: the allocators, the kernel's `madvise` and its page faults. What a
//! virtual machine pays beside them for leaving the guest is counted (`exits`), not timed.

use std::time::Instant;

use libc::{MADV_DONTNEED, MADV_HUGEPAGE};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::guest::{Guest, SharedUnits};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};

use crate::failure::{Failure, setup};
use crate::random::Random;
use crate::setup::{numbers, spread};

const PAGE_BYTES: usize = 4096;
/// Pages of an array that virtio's balloon hands over at once.
const BATCH_PAGES: usize = 256;
/// Blocks of 2 MiB that are handed over at once.
const BATCH_BLOCKS: usize = 32;
const HUGE: Order = Order::known(9);

/// The guest's memory as its host has it.
struct Memory {
    start: *mut u8,
    frames: u64,
    /// Calls of the system that discarded memory.
    discards: u64,
}

impl Memory {
    /// So many frames, populated; huge pages where the system has them.
    fn new(frames: u64) -> Result<Self, Failure> {
        let len_bytes = frames as usize * PAGE_BYTES;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at no address that anyone has.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len_bytes, access, kind | libc::MAP_NORESERVE, -1, 0)
        };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(setup(format!("no mapping of {len_bytes} bytes: {error}")));
        }
        let mut memory = Self { start: start.cast(), frames, discards: 0 };
        // SAFETY: the mapping made above. A system without huge pages refuses, and has none.
        unsafe { libc::madvise(start, len_bytes, MADV_HUGEPAGE) };
        memory.touch(Extent::new(Pfn::new(0), frames));
        Ok(memory)
    }

    /// The address of frames, which are all of this memory.
    fn at(&self, extent: Extent) -> *mut u8 {
        assert!(extent.end().raw() <= self.frames, "{extent} is no memory of the guest's");
        self.start.wrapping_add(extent.start.raw() as usize * PAGE_BYTES)
    }

    /// Writes to each page.
    fn touch(&mut self, extent: Extent) {
        let start = self.at(extent);
        for page in 0..extent.count as usize {
            // SAFETY: inside the mapping, which lives as long as `self`; nobody has a reference into it.
            unsafe { start.wrapping_add(page * PAGE_BYTES).write_volatile(1) };
        }
    }

    /// Takes the memory behind frames away.
    fn discard(&mut self, extent: Extent) -> Result<(), Failure> {
        self.discards += 1;
        let (start, len_bytes) = (self.at(extent), extent.count as usize * PAGE_BYTES);
        // SAFETY: inside the mapping; nobody has a reference into it.
        let refused = unsafe { libc::madvise(start.cast(), len_bytes, MADV_DONTNEED) } != 0;
        let error = || setup(format!("cannot discard: {}", std::io::Error::last_os_error()));
        if refused { Err(error()) } else { Ok(()) }
    }

    /// The share of what is there that is in huge pages, as the kernel says; 0 where it does not.
    fn huge_share(&self) -> f64 {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let (low, high) =
            (self.start as usize, self.start as usize + self.frames as usize * PAGE_BYTES);
        let (mut inside, mut there, mut huge) = (false, 0_u64, 0_u64);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next());
            if let Some((start, _)) = name.split_once('-')
                && let Ok(start) = usize::from_str_radix(start, 16)
            {
                inside = (low..high).contains(&start);
            }
            let kib = value.and_then(|value| value.parse::<u64>().ok()).filter(|_| inside);
            match (name, kib) {
                ("Rss:", Some(kib)) => there += kib << 10,
                ("AnonHugePages:", Some(kib)) => huge += kib << 10,
                _ => {}
            }
        }
        huge as f64 / (there as f64).max(1.0)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nobody uses any more.
        unsafe { libc::munmap(self.start.cast(), self.frames as usize * PAGE_BYTES) };
    }
}

/// What a host and a guest do to shrink it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Words,
    Balloon,
    HugeBalloon,
}

/// One run.
struct Outcome {
    shrunk_frames: u64,
    shrink_ms: f64,
    shrink_exits: u64,
    shrink_discards: u64,
    /// What is left of the guest's memory in huge pages.
    huge_share: f64,
    grow_ms: f64,
    grow_exits: u64,
}

type Buddy = PageBuddy<Vec<u64>>;

fn buddy(frames: u64, config: BuddyConfig) -> Result<Buddy, Failure> {
    let mut areas = [Extent::default()];
    let all = Extent::new(Pfn::new(0), frames);
    let wrong = |error: &dyn std::error::Error| setup(error.to_string());
    let map =
        MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).map_err(|error| wrong(&error))?;
    let words = vec![0; Buddy::storage_words(&map, config)];
    Buddy::new(&map, config, words).map_err(|error| wrong(&error))
}

/// Fills a guest's memory and ends the job; what is held then.
fn age(frames: u64, buddy: &mut Buddy, in_turns: bool, seed: u64) -> Result<Vec<Extent>, Failure> {
    let mut random = Random::new(seed);
    let (mut kept, mut job) = (Vec::new(), Vec::new());
    let (mut kept_frames, mut used) = (0, 0);
    while used < frames / 100 * 95 {
        let long_lived = if in_turns { random.below(4) == 0 } else { kept_frames < frames / 5 }
            && kept_frames < frames / 5;
        let count = 1 + random.below(64);
        let blocks = if long_lived { &mut kept } else { &mut job };
        let taken = buddy.allocate(count, &mut |block| blocks.push(block));
        taken.map_err(|error| setup(error.to_string()))?;
        used += count;
        kept_frames += if long_lived { count } else { 0 };
    }
    random.shuffle(&mut job);
    job.into_iter()
        .try_for_each(|block| buddy.free(block))
        .map_err(|error| setup(error.to_string()))?;
    Ok(kept)
}

/// Shrinks a guest of `frames` frames by half, or by what can be had, and lets it grow again.
fn sample(how: How, frames: u64, in_turns: bool, seed: u64) -> Result<Outcome, Failure> {
    let linux = BuddyConfig::new(1, Order::known(10)).map_err(|error| setup(error.to_string()))?;
    let config = if how == How::Words { BuddyConfig::PBS_ARMV8 } else { linux };
    let mut buddy = buddy(frames, config)?;
    let kept = age(frames, &mut buddy, in_turns, seed)?;
    let mut memory = Memory::new(frames)?;
    let wanted = frames / 2;
    let outcome = match how {
        How::Words => by_words(buddy, &mut memory, wanted),
        How::Balloon => by_balloon(&mut buddy, &mut memory, wanted, Order::BASE, BATCH_PAGES),
        How::HugeBalloon => by_balloon(&mut buddy, &mut memory, wanted, HUGE, BATCH_BLOCKS),
    }?;
    // What the guest held all the while is as it was.
    for block in kept {
        for frame in block.iter() {
            // SAFETY: inside the mapping; nobody has a reference into it.
            let byte = unsafe { memory.at(Extent::new(frame, 1)).read_volatile() };
            if byte != 1 {
                return Err(Failure::Result(format!("the guest's {frame} was taken from it")));
            }
        }
    }
    Ok(outcome)
}

fn by_words(buddy: Buddy, memory: &mut Memory, wanted: u64) -> Result<Outcome, Failure> {
    let all = Extent::new(Pfn::new(0), memory.frames);
    let mut words = Vec::new();
    words.resize_with(SharedUnits::words_len(all), Default::default);
    let units = SharedUnits::new(all, &words).ok_or_else(|| setup("too few words"))?;
    let exits = std::cell::Cell::new(0_u64);
    let guest = Guest::new(buddy, units, |unit| {
        exits.set(exits.get() + 1);
        units.give(unit)
    });
    let mut guest = guest.map_err(|error| setup(error.to_string()))?;

    let begun = Instant::now();
    let (mut run, mut shrunk, mut failure) = (Extent::default(), 0, Ok(()));
    units.take_free((wanted / 512) as usize, &mut |unit| {
        let frames = units.frames(unit);
        shrunk += frames.count;
        if frames.end() == run.start {
            run = Extent::new(frames.start, run.count + frames.count);
        } else {
            let past = std::mem::replace(&mut run, frames);
            if failure.is_ok() && !past.is_empty() {
                failure = memory.discard(past);
            }
        }
    });
    failure?;
    if !run.is_empty() {
        memory.discard(run)?;
    }
    let shrink_ms = begun.elapsed().as_secs_f64() * 1e3;
    let (huge_share, shrink_discards) = (memory.huge_share(), memory.discards);

    // The guest takes all that is free, so that it needs again what it lost.
    let begun = Instant::now();
    while let Some(block) = guest.allocate_block(u64::MAX) {
        memory.touch(block);
    }
    let grow_ms = begun.elapsed().as_secs_f64() * 1e3;
    Ok(Outcome {
        shrunk_frames: shrunk,
        shrink_ms,
        shrink_exits: 0,
        shrink_discards,
        huge_share,
        grow_ms,
        grow_exits: exits.get(),
    })
}

fn by_balloon(
    buddy: &mut Buddy,
    memory: &mut Memory,
    wanted: u64,
    order: Order,
    batch: usize,
) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let mut balloon: Vec<Extent> = Vec::new();
    let mut shrink_exits = 0;
    let most = (wanted / order.frames()) as usize;
    while balloon.len() < most {
        let first = balloon.len();
        while balloon.len() < most.min(first + batch) {
            let Ok(block) = buddy.allocate_aligned(order) else { break };
            balloon.push(block);
        }
        if balloon.len() == first {
            break;
        }
        shrink_exits += 1;
        balloon[first..].iter().try_for_each(|&block| memory.discard(block))?;
    }
    let shrink_ms = begun.elapsed().as_secs_f64() * 1e3;
    let huge_share = memory.huge_share();
    let (shrink_discards, shrunk) = (memory.discards, balloon.len() as u64 * order.frames());

    let begun = Instant::now();
    let grow_exits = balloon.len().div_ceil(batch) as u64;
    balloon
        .into_iter()
        .try_for_each(|block| buddy.free(block))
        .map_err(|error| setup(error.to_string()))?;
    while let Some(block) = buddy.allocate_block(1 << 10) {
        memory.touch(block);
    }
    let grow_ms = begun.elapsed().as_secs_f64() * 1e3;
    Ok(Outcome {
        shrunk_frames: shrunk,
        shrink_ms,
        shrink_exits,
        shrink_discards,
        huge_share,
        grow_ms,
        grow_exits,
    })
}

/// GiB that the system says are available.
fn available_gib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 20
}

/// Runs all of it and prints the table.
pub(crate) fn run(options: &[&str]) -> Result<(), Failure> {
    let (mut rounds, mut gib) = (3, 16);
    numbers(options, &mut [("--rounds", &mut rounds, 1000), ("--gib", &mut gib, 1024)])?;
    if gib + 1 > available_gib() {
        return Err(setup(format!(
            "a guest of {gib} GiB wants more memory than the {} GiB that are available: --gib N",
            available_gib()
        )));
    }
    let frames = gib << 18;
    println!("a guest of {gib} GiB, half of it wanted; {rounds} rounds: median (least to most)");
    let contenders =
        [("words", How::Words), ("balloon", How::Balloon), ("balloon, 2 MiB", How::HugeBalloon)];
    for (title, in_turns) in
        [("long-lived blocks came first", false), ("long-lived blocks came in turns", true)]
    {
        println!("\n{title}");
        let mut found: Vec<Vec<Outcome>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for ((_, how), kept) in contenders.iter().zip(&mut found) {
                kept.push(sample(*how, frames, in_turns, 1 + round)?);
            }
        }
        for ((name, _), kept) in contenders.iter().zip(&found) {
            let line = |title: &str, digits, of: fn(&Outcome) -> f64| {
                let mut values: Vec<f64> = kept.iter().map(of).collect();
                println!("    {title:17}{}", spread(&mut values, digits));
            };
            println!("  {name}");
            line("GiB given", 2, |one| one.shrunk_frames as f64 / f64::from(1 << 18));
            line("shrink, ms", 1, |one| one.shrink_ms);
            line("exits", 0, |one| one.shrink_exits as f64);
            line("discards", 0, |one| one.shrink_discards as f64);
            line("left in huge, %", 1, |one| one.huge_share * 100.0);
            line("grow, ms", 1, |one| one.grow_ms);
            line("exits", 0, |one| one.grow_exits as f64);
        }
    }
    Ok(())
}
