//! The race against other crates: see the crate's text for the method.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use serde_json::json;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::buddy::Rule;
use swath_frame::{
    BestFit, BuddyConfig, FrameAllocator, HeadOfList, PageBuddy, QuickFit, Trusting,
};

use crate::failure::Failure;
use crate::random::Random;
use crate::setup::{FRAMES, all_frames, bbs, buddy};

/// Takes aligned blocks of 2^K frames and puts them back.
///
/// Each contender's two methods only pass the call on, and are inlined into the
/// timed loop by force. Left to the compiler, one contender's put was inlined
/// and another's was a call with registers to save, which is a sixth of the
/// time of a put of a single frame and says nothing about the allocators.
///
/// In the row of shuffled single frames the fastest samples are level with
/// `bitmap-allocator` now (3.1 to 3.2 ns against 3.2). Timed in sixteenths, ours
/// loses time in the first (words that are empty) and the last (words that fill
/// up), which no branch predictor foresees. A trial without the bitmap of
/// allocated frames, its put not inlined, took as long (3.9 ns); in a bare loop of
/// the same steps it saves 0.6 of 2.5 ns. Marks and full words without branches,
/// stored on every put, took 9.9 ns.
trait Blocks<const K: u8> {
    /// The first frame of a block.
    fn take(&mut self) -> Option<u64>;
    /// Whether the block was taken back, as far as the contender can tell.
    fn put(&mut self, start: u64) -> bool;
}

impl<const K: u8, R: Rule> Blocks<K> for PageBuddy<Vec<u64>, R> {
    #[inline(always)]
    fn take(&mut self) -> Option<u64> {
        if K == 0 {
            return self.allocate_frame().map(Pfn::raw);
        }
        self.allocate_aligned(const { Order::known(K) }).ok().map(|block| block.start.raw())
    }

    #[inline(always)]
    fn put(&mut self, start: u64) -> bool {
        if K == 0 {
            return self.free_frame(Pfn::new(start)).is_ok();
        }
        self.free(Extent::new(Pfn::new(start), 1 << K)).is_ok()
    }
}

impl<const K: u8, const ORDERS: usize> Blocks<K>
    for buddy_system_allocator::FrameAllocator<ORDERS>
{
    #[inline(always)]
    fn take(&mut self) -> Option<u64> {
        self.alloc(1 << K).map(|start| start as u64)
    }

    #[inline(always)]
    fn put(&mut self, start: u64) -> bool {
        self.dealloc(start as usize, 1 << K);
        true
    }
}

impl<const K: u8> Blocks<K> for Box<BitAlloc1M> {
    #[inline(always)]
    fn take(&mut self) -> Option<u64> {
        let start =
            if K == 0 { self.alloc() } else { self.alloc_contiguous(None, 1 << K, usize::from(K)) };
        start.map(|start| start as u64)
    }

    #[inline(always)]
    fn put(&mut self, start: u64) -> bool {
        if K == 0 {
            self.dealloc(start as usize)
        } else {
            self.dealloc_contiguous(start as usize, 1 << K)
        }
    }
}

/// What one sample measured, beside its time.
#[derive(Clone, Copy, Default)]
struct Sample {
    time: Duration,
    requests: u64,
    /// Blocks that the requests were served with.
    blocks: u64,
    failed: u64,
}

/// Runs one sample, or says what was wrong with a result.
type Run = Box<dyn FnMut() -> Result<Sample, String>>;

struct Contender {
    name: &'static str,
    side: Side,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Swath, and it has to win.
    Ours,
    /// Swath, shown for comparison.
    Shown,
    Theirs,
}

/// One workload and those who run it.
struct Row {
    name: &'static str,
    contenders: Vec<Contender>,
}

/// Checks that blocks are aligned, lie in the memory and do not overlap.
fn check_blocks<const K: u8>(starts: &[u64]) -> Result<(), String> {
    let mut seen = vec![false; (FRAMES >> K) as usize];
    for &start in starts {
        if start % (1 << K) != 0 {
            return Err(format!("block {start:#x} is not aligned"));
        }
        match seen.get_mut((start >> K) as usize) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("block {start:#x} was given twice")),
            None => return Err(format!("block {start:#x} lies outside the memory")),
        }
    }
    Ok(())
}

/// Takes every block there is into `starts` and checks them.
fn take_all<const K: u8>(
    allocator: &mut impl Blocks<K>,
    starts: &mut Vec<u64>,
) -> Result<(), String> {
    starts.clear();
    while let Some(start) = allocator.take() {
        starts.push(start);
    }
    check_blocks::<K>(starts)?;
    match FRAMES as usize >> K {
        all if all == starts.len() => Ok(()),
        all => Err(format!("{} of {all} blocks were given", starts.len())),
    }
}

fn put_all<const K: u8>(allocator: &mut impl Blocks<K>, starts: &[u64]) -> Result<(), String> {
    match starts.iter().find(|&&start| !allocator.put(start)) {
        Some(start) => Err(format!("block {start:#x} was not taken back")),
        None => Ok(()),
    }
}

/// How often a sample repeats its work, so that it lasts some milliseconds.
const fn rounds<const K: u8>() -> u64 {
    if K == 0 { 1 } else { 8 }
}

/// `bulk`, and with a `shuffle` of its seed `shuffled free`.
fn bulk<const K: u8>(mut allocator: impl Blocks<K> + 'static, shuffle: Option<u64>) -> Run {
    let mut starts = Vec::with_capacity(FRAMES as usize >> K);
    Box::new(move || {
        let mut sample = Sample::default();
        for round in 0..rounds::<K>() {
            starts.clear();
            let begin = Instant::now();
            while let Some(start) = allocator.take() {
                starts.push(start);
            }
            let taken = begin.elapsed();
            check_blocks::<K>(&starts)?;
            if starts.len() != FRAMES as usize >> K {
                return Err(format!("{} blocks were given", starts.len()));
            }
            if let Some(seed) = shuffle {
                Random::new(seed + round).shuffle(&mut starts);
            }
            let begin = Instant::now();
            let put = put_all(&mut allocator, &starts);
            sample.time += begin.elapsed();
            put?;
            if shuffle.is_none() {
                sample.time += taken;
            }
            sample.requests += starts.len() as u64;
        }
        sample.blocks = sample.requests;
        // All can be taken again.
        take_all(&mut allocator, &mut starts)?;
        put_all(&mut allocator, &starts)?;
        Ok(sample)
    })
}

/// `repeat`: the random half that is used stays the same.
fn repeat<const K: u8>(mut allocator: impl Blocks<K> + 'static) -> Run {
    let mut used = Vec::new();
    Box::new(move || {
        if used.is_empty() {
            take_all(&mut allocator, &mut used)?;
            // By frame, so that contenders free the same half.
            used.sort_unstable();
            Random::new(7).shuffle(&mut used);
            let half = used.split_off(used.len() / 2);
            put_all(&mut allocator, &half)?;
        }
        let pairs = if K == 0 { 1 << 20 } else { 1 << 12 };
        let (mut wrong, mut last) = (0_u64, None);
        let begin = Instant::now();
        for _ in 0..pairs {
            last = black_box(allocator.take());
            wrong += u64::from(!last.is_some_and(|start| allocator.put(start)));
        }
        let time = begin.elapsed();
        if wrong > 0 {
            return Err(format!("{wrong} pairs failed"));
        }
        // What is left is the other half.
        let mut all = used.clone();
        while let Some(start) = allocator.take() {
            all.push(start);
        }
        check_blocks::<K>(&all)?;
        if all.len() != FRAMES as usize >> K || !last.is_some_and(|last| all.contains(&last)) {
            return Err(format!("{} blocks are left", all.len()));
        }
        put_all(&mut allocator, &all[used.len()..])?;
        Ok(Sample { time, requests: pairs, blocks: pairs, failed: 0 })
    })
}

/// Serves requests of 1 to 64 frames.
trait Lengths {
    /// What a live request is known by.
    type Held: Copy;
    /// Takes `frames` frames.
    fn take(&mut self, frames: u32) -> Option<Self::Held>;
    /// Gives a request's frames back.
    fn put(&mut self, held: Self::Held) -> bool;
    /// Each block of a request that took `frames` frames.
    fn blocks(&self, held: Self::Held, frames: u32, visit: &mut dyn FnMut(Extent));
    /// How many frames are free, as far as the contender knows.
    fn free_frames(&self) -> u64;
}

impl Lengths for offset_allocator::Allocator<u32> {
    type Held = offset_allocator::Allocation<u32>;

    #[inline]
    fn take(&mut self, frames: u32) -> Option<Self::Held> {
        self.allocate(frames)
    }

    #[inline]
    fn put(&mut self, held: Self::Held) -> bool {
        self.free(held);
        true
    }

    fn blocks(&self, held: Self::Held, frames: u32, visit: &mut dyn FnMut(Extent)) {
        visit(Extent::new(Pfn::new(u64::from(held.offset)), u64::from(frames)));
    }

    fn free_frames(&self) -> u64 {
        u64::from(self.storage_report().total_free_space)
    }
}

/// Swath's allocator, and the further blocks of live requests.
struct Listed<A> {
    allocator: A,
    /// Each a block of a request and where its next one is.
    more: Vec<(Block, u32)>,
    /// The first unused entry of `more`; their second halves link them.
    unused: u32,
}

const NONE: u32 = u32::MAX;

/// A block of at most 64 frames, in 32 bits; a length of 0 is none.
#[derive(Clone, Copy)]
struct Block(u32);

impl Block {
    const NONE: Self = Self(0);

    fn new(extent: Extent) -> Self {
        Self((extent.start.raw() as u32) << 7 | extent.count as u32)
    }

    fn extent(self) -> Option<Extent> {
        let (start, count) = (u64::from(self.0 >> 7), u64::from(self.0 & 0x7f));
        (count > 0).then(|| Extent::new(Pfn::new(start), count))
    }
}

/// The blocks of a request: the first three here, more in `Listed::more`.
#[derive(Clone, Copy)]
struct Blocks3 {
    first: [Block; 3],
    more: u32,
}

impl<A: FrameAllocator> Lengths for Listed<A> {
    type Held = Blocks3;

    #[inline]
    fn take(&mut self, frames: u32) -> Option<Blocks3> {
        let Self { allocator, more, unused } = self;
        let mut held = Blocks3 { first: [Block::NONE; 3], more: NONE };
        let mut count = 0;
        let taken = allocator.allocate(u64::from(frames), &mut |extent| {
            let block = Block::new(extent);
            if let Some(first) = held.first.get_mut(count) {
                *first = block;
                count += 1;
                return;
            }
            if *unused == NONE {
                *unused = more.len() as u32;
                more.push((Block::NONE, NONE));
            }
            let entry = &mut more[*unused as usize];
            let next_unused = entry.1;
            *entry = (block, held.more);
            held.more = *unused;
            *unused = next_unused;
        });
        taken.ok().map(|()| held)
    }

    #[inline]
    fn put(&mut self, held: Blocks3) -> bool {
        for extent in held.first.iter().map_while(|block| block.extent()) {
            if self.allocator.free(extent).is_err() {
                return false;
            }
        }
        let mut at = held.more;
        while at != NONE {
            let (block, next) = self.more[at as usize];
            if block.extent().is_none_or(|extent| self.allocator.free(extent).is_err()) {
                return false;
            }
            self.more[at as usize].1 = self.unused;
            self.unused = at;
            at = next;
        }
        true
    }

    fn blocks(&self, held: Blocks3, _: u32, visit: &mut dyn FnMut(Extent)) {
        held.first.iter().filter_map(|block| block.extent()).for_each(&mut *visit);
        let mut at = held.more;
        while at != NONE {
            let (block, next) = self.more[at as usize];
            block.extent().into_iter().for_each(&mut *visit);
            at = next;
        }
    }

    fn free_frames(&self) -> u64 {
        self.allocator.free_frames()
    }
}

/// Live requests of `lengths`: 32.5 frames on average, so this many take half
/// of the memory.
const LIVE: usize = (FRAMES / 2 * 2 / 65) as usize;

/// Exchanges timed by a sample of `lengths`.
const EXCHANGES: usize = 1 << 17;

type Live<A> = Vec<Option<(<A as Lengths>::Held, u32)>>;

/// For each step, frees what is alive in its place and takes so many frames
/// anew. How many requests failed, and how many were not taken back.
fn exchange<A: Lengths>(allocator: &mut A, live: &mut Live<A>, steps: &[(u32, u32)]) -> (u64, u64) {
    let (mut failed, mut refused) = (0, 0);
    for &(place, frames) in steps {
        let entry = &mut live[place as usize];
        if let Some((held, _)) = entry.take() {
            refused += u64::from(!allocator.put(held));
        }
        *entry = allocator.take(frames).map(|held| (held, frames));
        failed += u64::from(entry.is_none());
    }
    (failed, refused)
}

fn lengths<A: Lengths + 'static>(mut allocator: A) -> Run {
    let mut random = Random::new(11);
    let mut live: Live<A> = vec![None; LIVE];
    let mut warm = false;
    let mut steps: Vec<(u32, u32)> = Vec::with_capacity(EXCHANGES);
    Box::new(move || {
        if !warm {
            warm = true;
            // The first requests, and enough exchanges that the memory is as
            // scattered as it gets.
            let mut first = Vec::with_capacity(9 * LIVE);
            for step in 0..9 * LIVE as u64 {
                let place = if step < LIVE as u64 { step } else { random.below(LIVE as u64) };
                first.push((place as u32, 1 + random.below(64) as u32));
            }
            exchange(&mut allocator, &mut live, &first);
        }
        steps.clear();
        steps.extend(
            (0..EXCHANGES).map(|_| (random.below(LIVE as u64) as u32, 1 + random.below(64) as u32)),
        );
        let begin = Instant::now();
        let (failed, refused) = exchange(&mut allocator, &mut live, &steps);
        let time = begin.elapsed();
        if refused > 0 {
            return Err(format!("{refused} blocks were not taken back"));
        }

        let mut seen = vec![false; FRAMES as usize];
        let (mut blocks, mut requests, mut used) = (0, 0, 0_u64);
        let mut wrong = None;
        for &(held, frames) in live.iter().flatten() {
            let mut got = 0;
            allocator.blocks(held, frames, &mut |block| {
                blocks += 1;
                got += block.count;
                for frame in block.iter() {
                    match seen.get_mut(frame.raw() as usize) {
                        Some(seen) if !*seen => *seen = true,
                        _ => wrong = Some(frame),
                    }
                }
            });
            if got != u64::from(frames) {
                return Err(format!("{frames} frames asked for, {got} given"));
            }
            requests += 1;
            used += got;
        }
        if let Some(frame) = wrong {
            return Err(format!("frame {frame} was given twice or does not exist"));
        }
        if used + allocator.free_frames() != FRAMES {
            return Err(format!("{used} used, {} free", allocator.free_frames()));
        }
        // Blocks per request, counted over those that are alive now.
        let blocks = blocks * EXCHANGES as u64 / requests;
        Ok(Sample { time, requests: EXCHANGES as u64, blocks, failed })
    })
}

fn listed(allocator: impl FrameAllocator + 'static) -> Run {
    lengths(Listed { allocator, more: Vec::new(), unused: NONE })
}

fn shown<R: Rule + 'static>(config: BuddyConfig) -> Run {
    listed(buddy::<R, Trusting>(config, true))
}

/// Best fit behind lists of short blocks.
fn quick_fit() -> impl FrameAllocator {
    let (map, allocator) = (all_frames(), buddy::<BestFit, Trusting>(BuddyConfig::PBS_ARMV8, true));
    let storage = vec![0; QuickFit::<Vec<u64>, ()>::storage_words(&map)];
    QuickFit::<_, _>::new(map, allocator, storage).expect("the allocator has the frames of the map")
}

/// The contenders of a row of blocks of 2^K frames.
macro_rules! contenders {
    ($k:literal, $workload:expr) => {{
        let buddy9 = || buddy::<HeadOfList, Trusting>(BuddyConfig::PBS_ARMV8, true);
        let buddy4 = || buddy::<HeadOfList, Trusting>(BuddyConfig::PBS_ARMV7, true);
        let buddy1 = || buddy::<HeadOfList, Trusting>(bbs(), true);
        let mut few_orders = buddy_system_allocator::FrameAllocator::<10>::new();
        few_orders.insert(0..FRAMES as usize);
        let mut all_orders = buddy_system_allocator::FrameAllocator::<21>::new();
        all_orders.insert(0..FRAMES as usize);
        let mut bits = Box::new(BitAlloc1M::DEFAULT);
        bits.insert(0..FRAMES as usize);
        vec![
            contender("swath PBS-9", Side::Ours, $workload(buddy9())),
            contender("swath PBS-4", Side::Shown, $workload(buddy4())),
            contender("swath BBS", Side::Shown, $workload(buddy1())),
            contender("buddy_system_allocator, orders 0-9", Side::Theirs, $workload(few_orders)),
            contender("buddy_system_allocator, orders 0-20", Side::Theirs, $workload(all_orders)),
            contender("bitmap-allocator", Side::Theirs, $workload(bits)),
        ]
    }};
}

/// Every row, made when its turn comes: contenders of other rows do not sit in
/// memory meanwhile.
const ROWS: &[fn() -> Row] = &[
    || Row { name: "bulk, order 0", contenders: contenders!(0, |a| bulk::<0>(a, None)) },
    || Row { name: "bulk, order 9", contenders: contenders!(9, |a| bulk::<9>(a, None)) },
    || Row { name: "repeat, order 0", contenders: contenders!(0, repeat::<0>) },
    || Row { name: "repeat, order 9", contenders: contenders!(9, repeat::<9>) },
    || Row {
        name: "shuffled free, order 0",
        contenders: contenders!(0, |a| bulk::<0>(a, Some(3))),
    },
    || Row {
        name: "shuffled free, order 9",
        contenders: contenders!(9, |a| bulk::<9>(a, Some(3))),
    },
    || Row {
        name: "lengths 1 to 64",
        contenders: vec![
            contender("swath PBS-9, best fit, quick fit", Side::Ours, listed(quick_fit())),
            contender(
                "swath PBS-9, best fit",
                Side::Shown,
                shown::<BestFit>(BuddyConfig::PBS_ARMV8),
            ),
            contender(
                "swath PBS-4, best fit",
                Side::Shown,
                shown::<BestFit>(BuddyConfig::PBS_ARMV7),
            ),
            contender("swath PBS-9", Side::Shown, shown::<HeadOfList>(BuddyConfig::PBS_ARMV8)),
            contender("swath PBS-4", Side::Shown, shown::<HeadOfList>(BuddyConfig::PBS_ARMV7)),
            contender(
                "offset-allocator",
                Side::Theirs,
                lengths(offset_allocator::Allocator::<u32>::with_max_allocs(
                    FRAMES as u32,
                    FRAMES as u32,
                )),
            ),
        ],
    },
];

const fn contender(name: &'static str, side: Side, run: Run) -> Contender {
    Contender { name, side, run }
}

/// The samples of one contender in one row, in nanoseconds per request.
struct Measured {
    name: &'static str,
    side: Side,
    /// Ascending.
    times_ns: Vec<f64>,
    blocks_per_request: f64,
    failed: u64,
}

impl Measured {
    fn median_ns(&self) -> f64 {
        let (below, above) = (&self.times_ns[..], self.times_ns.len() / 2);
        if below.len() % 2 == 1 { below[above] } else { (below[above - 1] + below[above]) / 2.0 }
    }
}

/// One sample of each contender in turn, `samples` times. The first turn warms
/// up and is not kept.
fn race(row: &mut Row, samples: usize) -> Result<Vec<Measured>, Failure> {
    let mut kept: Vec<Vec<Sample>> = row.contenders.iter().map(|_| Vec::new()).collect();
    let count = row.contenders.len();
    for turn in 0..=samples {
        for i in (0..count).map(|i| (turn + i) % count) {
            let contender = &mut row.contenders[i];
            let sample = (contender.run)().map_err(|what| {
                Failure::Result(format!("{}: {}: {what}", row.name, contender.name))
            })?;
            if turn > 0 {
                kept[i].push(sample);
            }
        }
    }
    let measured = row.contenders.iter().zip(kept).map(|(contender, kept)| {
        let per_request = |sample: &Sample| sample.time.as_nanos() as f64 / sample.requests as f64;
        let mut times_ns: Vec<f64> = kept.iter().map(per_request).collect();
        times_ns.sort_unstable_by(f64::total_cmp);
        let sum = |of: fn(&Sample) -> u64| kept.iter().map(of).sum::<u64>();
        Measured {
            name: contender.name,
            side: contender.side,
            times_ns,
            blocks_per_request: sum(|s| s.blocks) as f64 / sum(|s| s.requests) as f64,
            failed: sum(|s| s.failed),
        }
    });
    Ok(measured.collect())
}

/// Runs every row, prints the table, and fails if a row is lost.
pub(crate) fn run(options: &[&str]) -> Result<(), Failure> {
    let (mut json_file, mut samples) = (None, 9);
    let mut rest = options;
    loop {
        rest = match rest {
            [] => break,
            ["--json", file, rest @ ..] => {
                json_file = Some(*file);
                rest
            }
            ["--samples", count, rest @ ..] => {
                samples = count.parse().ok().filter(|&count| count > 0).ok_or_else(|| {
                    Failure::Setup(format!("--samples takes a number from 1 on, not {count:?}"))
                })?;
                rest
            }
            [other, ..] => return Err(Failure::Setup(format!("unknown option {other:?}"))),
        };
    }
    let (mut json_rows, mut lost) = (Vec::new(), Vec::new());
    for make in ROWS {
        let mut row = make();
        let measured = race(&mut row, samples)?;
        println!("\n{}: nanoseconds per request, {samples} samples", row.name);
        println!(
            "  {:<36} {:>9} {:>9} {:>9} {:>7} {:>7}  ours/theirs",
            "", "min", "median", "max", "blocks", "failed"
        );
        let mut ratios = Vec::new();
        for entry in &measured {
            let mut line = format!(
                "  {:<36} {:>9.1} {:>9.1} {:>9.1} {:>7.2} {:>7}",
                entry.name,
                entry.times_ns[0],
                entry.median_ns(),
                entry.times_ns[entry.times_ns.len() - 1],
                entry.blocks_per_request,
                entry.failed,
            );
            for ours in &measured {
                if entry.side != Side::Theirs || ours.side == Side::Theirs {
                    continue;
                }
                let ratio = ours.median_ns() / entry.median_ns();
                let _ = write!(line, "  {} {ratio:.3}", ours.name.trim_start_matches("swath "));
                ratios.push(json!({"ours": ours.name, "theirs": entry.name, "ratio": ratio}));
                if ratio >= 1.0 && ours.side == Side::Ours {
                    lost.push(format!("{}: {} / {} = {ratio:.3}", row.name, ours.name, entry.name));
                }
            }
            println!("{line}");
        }
        let contenders: Vec<_> = measured
            .iter()
            .map(|entry| {
                json!({
                    "name": entry.name, "ours": entry.side != Side::Theirs, "times_ns": entry.times_ns,
                    "median_ns": entry.median_ns(), "failed": entry.failed,
                    "blocks_per_request": entry.blocks_per_request,
                })
            })
            .collect();
        json_rows.push(json!({"row": row.name, "contenders": contenders, "ratios": ratios}));
    }
    if let Some(file) = json_file {
        let text = format!("{:#}\n", json!({"frames": FRAMES, "rows": json_rows}));
        std::fs::write(file, text)
            .map_err(|error| Failure::Setup(format!("cannot write {file}: {error}")))?;
    }
    if lost.is_empty() {
        Ok(())
    } else {
        Err(Failure::Result(format!("lost:\n  {}", lost.join("\n  "))))
    }
}
