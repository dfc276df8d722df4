//! `swath inspect`: how contiguous this machine's memory is, and what blocks it.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use swath_trace::inspect::{
    BlockTypes, DeviceHeap, GIGANTIC_FRAMES, HUGE_FRAMES, HugePages, KernelSums, MachineMemory,
    Processes, Unmarked, block_types, processes,
};
use swath_trace::machine::{
    CaptureError, FrameKind, FreeBlocks, Snapshot, UnknownFrames, free_blocks,
};

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, watch_for_interrupts};

/// Arguments of `swath inspect`.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// A file of `swath snapshot` instead of this machine.
    snapshot: Option<PathBuf>,
    /// Show it anew every second, within a hundredth of a processor: memory is read part by part,
    /// and the first line says how old the oldest part is.
    #[arg(long, conflicts_with_all = ["snapshot", "processes"])]
    watch: bool,
    /// So many processes, those with the most anonymous memory.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "snapshot")]
    processes: usize,
    /// Print as JSON; with --watch one line a second.
    #[arg(long)]
    json: bool,
}

/// Looks, and prints.
pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    if let Some(path) = &args.snapshot {
        let failed = |error| Failure::new(1, format!("{}: {error}", path.display()));
        let memory = MachineMemory::of(&Snapshot::load(path).map_err(failed)?);
        print(&View::of(&memory, &Live::default()), None, args.json);
        return Ok(());
    }
    let failed = |error: CaptureError| Failure::new(1, error);
    if args.watch {
        return watch(MachineMemory::read().map_err(failed)?, args.json);
    }
    // The kernel's lists and the processes' tables are walked beside the frames, of which another
    // thread takes more then.
    let walk = || (Live::read(), (args.processes > 0).then(processes));
    let (memory, (live, processes)) = thread::scope(|scope| {
        let walking = thread::Builder::new().spawn_scoped(scope, walk);
        let memory = MachineMemory::read();
        let walked = match walking.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(walked)) => walked,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // There is no thread for them: one after the other.
            Err(_) => walk(),
        };
        (memory, walked)
    });
    let largest = |memory: Option<&MachineMemory>| {
        let mut processes = processes.transpose().map_err(failed)?;
        if let Some(processes) = &mut processes {
            processes.seen.truncate(args.processes);
            if let Some(memory) = memory {
                processes.judge(memory);
            }
        }
        Ok::<_, Failure>(processes)
    };
    match memory {
        Ok(memory) => {
            let (live, processes) = (live.map_err(failed)?, largest(Some(&memory))?);
            print(&View::of(&memory, &live), processes.as_ref(), args.json);
            Ok(())
        }
        // What the kernel tells everybody.
        Err(error @ CaptureError::NotPermitted { .. }) => {
            let zones = free_blocks(Path::new(PROC)).map_err(failed)?;
            let heap = DeviceHeap::read(Path::new(PROC)).map_err(failed)?;
            print_lists(&error, &zones, largest(None)?.as_ref(), heap.as_ref(), args.json);
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

const PROC: &str = "/proc";
const FRAME_BYTES: u64 = 4096;

/// The time from one view to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The share of a processor that watching takes, as its inverse.
const SHARE: u32 = 100;

/// The fewest units that are read at a time.
const COUNT_MIN: usize = 16;

/// Reads the units that were read the longest ago, as many as fit into the share of a processor,
/// and shows the whole, until it is interrupted.
fn watch(mut memory: MachineMemory, as_json: bool) -> Result<(), Failure> {
    watch_for_interrupts();
    let all = memory.units().len();
    let (mut next, mut count) = (0, COUNT_MIN.min(all));
    while !INTERRUPTED.load(Ordering::Relaxed) {
        let began = Instant::now();
        // The kernel walks its free lists for the mobility of blocks: not every second.
        let live = Live::without_types().map_err(|error| Failure::new(1, error))?;
        if !as_json && stdout().is_terminal() {
            // Home, and clear what follows.
            print_raw("\x1b[H\x1b[J");
        }
        let seconds = all.div_ceil(count.max(1));
        if !as_json {
            say!("all memory is read within {seconds} s, {count} of {all} pages of 2 MiB a second");
        }
        print(&View::of(&memory, &live), None, as_json);
        let end = all.min(next + count);
        let read = Instant::now();
        memory.read_again(next..end).map_err(|error| Failure::new(1, error))?;
        // Doubled or halved: the share need not be met to the last page.
        let threads = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let took = (read - began) + read.elapsed() * threads;
        let allowed = INTERVAL / SHARE;
        if took > allowed && count > COUNT_MIN {
            count /= 2;
        } else if took < allowed / 3 {
            count = all.min(count * 2);
        }
        next = if end == all { 0 } else { end };
        thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
    }
    Ok(())
}

fn print_raw(text: &str) {
    use std::io::Write as _;
    crate::failure::note_output(stdout().write_all(text.as_bytes()));
}

/// What only the running machine tells.
#[derive(Default)]
struct Live {
    sums: KernelSums,
    types: Vec<BlockTypes>,
    device_heap: Option<DeviceHeap>,
}

impl Live {
    fn read() -> Result<Self, CaptureError> {
        Ok(Self { types: block_types(Path::new(PROC))?, ..Self::without_types()? })
    }

    fn without_types() -> Result<Self, CaptureError> {
        let proc = Path::new(PROC);
        let device_heap = DeviceHeap::read(proc)?;
        let sums = KernelSums::read(proc, device_heap.as_ref())?;
        Ok(Self { sums, types: Vec::new(), device_heap })
    }
}

/// Everything that is shown of the memory.
struct View<'a> {
    memory: &'a MachineMemory,
    live: &'a Live,
    unmarked: Unmarked,
    /// How units without any mark are counted, and the frames in such.
    whole: (UnknownFrames, u64),
    all: [HugePages; 2],
    /// Of each zone.
    zones: Vec<[HugePages; 2]>,
}

const SIZES: [u64; 2] = [HUGE_FRAMES, GIGANTIC_FRAMES];
const NAMES: [&str; 2] = ["2 MiB", "1 GiB"];

impl<'a> View<'a> {
    fn of(memory: &'a MachineMemory, live: &'a Live) -> Self {
        let unmarked = Unmarked::of(memory.count(FrameKind::Unknown), memory.facts(), live.sums);
        let whole = memory.units().iter().filter(|unit| unit.is_unmarked()).count() as u64;
        let whole = whole * HUGE_FRAMES;
        let count_as = unmarked.count_whole_as(whole);
        let judge = |units| SIZES.map(|size| HugePages::of(units, size, count_as));
        let zones = memory.facts().zones.iter().map(|zone| {
            let end = zone.start_frame.saturating_add(zone.spanned_frames);
            judge(memory.units_within(zone.start_frame..end))
        });
        let (zones, all) = (zones.collect(), judge(memory.units()));
        Self { memory, live, unmarked, whole: (count_as, whole), all, zones }
    }

    fn json(&self) -> Value {
        let named = |pages: &[HugePages; 2]| json!({ "huge": pages[0], "gigantic": pages[1] });
        let kinds =
            FrameKind::ALL.map(|kind| (kind.name().to_owned(), json!(self.memory.count(kind))));
        let zones = self.memory.facts().zones.iter().zip(&self.zones);
        let zones = zones.map(|(zone, pages)| json!({ "facts": zone, "pages": named(pages) }));
        json!({
            "kernel_release": self.memory.facts().kernel_release,
            "frames": kinds.into_iter().collect::<serde_json::Map<_, _>>(),
            "kinds": FrameKind::ALL.map(FrameKind::name),
            "pages": named(&self.all),
            "zones": zones.collect::<Vec<_>>(),
            "free_runs": self.memory.free_runs(),
            "folios": self.memory.folios(),
            "unmarked": self.unmarked,
            "unmarked_units": { "frames": self.whole.1, "count_as": self.whole.0 },
            "block_types": self.live.types,
            "device_heap": self.live.device_heap,
        })
    }
}

fn print(view: &View<'_>, processes: Option<&Processes>, as_json: bool) {
    if as_json {
        let mut all = view.json();
        all["processes"] = json!(processes);
        say!("{all}");
        return;
    }
    let frames: u64 = FrameKind::ALL.into_iter().map(|kind| view.memory.count(kind)).sum();
    say!("Linux {}, {} of RAM", view.memory.facts().kernel_release, bytes(frames));
    for kind in FrameKind::ALL {
        let count = view.memory.count(kind);
        if count > 0 {
            let share = 100.0 * count as f64 / frames as f64;
            say!("  {:12} {:>10}  {share:5.1}%", kind.name(), bytes(count));
        }
    }
    say!("");
    say!("huge pages              {:>10} {:>10}", NAMES[0], NAMES[1]);
    let row = |what: &str, of: fn(&HugePages) -> u64| {
        say!("  {what:22}{:>10} {:>10}", of(&view.all[0]), of(&view.all[1]));
    };
    row("free now", |pages| pages.free);
    row("after compaction, more", |pages| pages.after_compaction);
    row("  frames to move", |pages| pages.frames_to_move);
    row("in use as one", |pages| pages.in_use);
    row("movable, no room", |pages| pages.movable - pages.after_compaction);
    row("blocked if unmarked is", |pages| pages.unsettled);
    row("blocked", |pages| pages.blocked);
    say!(
        "  (Linux does not show which pages a device or a system call has pinned: they count as movable)"
    );
    for (pages, name) in view.all.iter().zip(NAMES) {
        print_blockers(pages, name);
    }
    print_zones(view);
    print_runs(view);
    print_device_heap(view.live.device_heap.as_ref());
    print_unmarked(view);
    print_processes(processes);
}

fn print_unmarked(view: &View<'_>) {
    if view.unmarked.frames == 0 {
        return;
    }
    say!("");
    say!("frames that Linux marks as nothing; which of them is which, it does not show:");
    for (name, count) in view.unmarked.parts().into_iter().filter(|(_, count)| *count > 0) {
        say!("  {:>10}  {name}", bytes(count));
    }
    if let (UnknownFrames::Free, frames) = view.whole {
        say!(
            "  {} of whole pages of 2 MiB count as free above: not initialised yet",
            bytes(frames)
        );
    }
}

fn print_blockers(pages: &HugePages, name: &str) {
    if pages.blocked == 0 {
        return;
    }
    let few =
        pages.blocked_by_at_most.map(|(limit, places)| format!("{places} by at most {limit}"));
    say!("");
    say!("what blocks pages of {name}: {} of {}, {}", pages.blocked, pages.places, few.join(", "));
    say!("  {:12}{:>10} {:>10} {:>10}", "frames", "in pages", "alone in", "memory");
    let mut blockers: Vec<_> = FrameKind::ALL.into_iter().zip(&pages.blockers).collect();
    blockers.retain(|(_, blocker)| blocker.places > 0);
    blockers.sort_by_key(|(_, blocker)| std::cmp::Reverse(blocker.places));
    for (kind, blocker) in blockers {
        let (places, alone, memory) = (blocker.places, blocker.alone, bytes(blocker.frames));
        say!("  {:12}{places:>10} {alone:>10} {memory:>10}", kind.name());
    }
}

fn print_zones(view: &View<'_>) {
    say!("");
    let head = ["free", "2 MiB free", "compacted", "in use", "unmarked", "blocked"];
    say!("{:20}{}", "zones", head.map(|word| format!("{word:>11}")).concat());
    for (zone, pages) in view.memory.facts().zones.iter().zip(&view.zones) {
        let huge = &pages[0];
        let counts = [huge.free, huge.after_compaction, huge.in_use, huge.unsettled, huge.blocked];
        let counts = counts.map(|count| format!("{count:>11}")).concat();
        let name = format!("node {}, {}", zone.node, zone.name);
        say!("  {name:18}{:>11}{counts}", bytes(zone.free_frames));
        for types in view
            .live
            .types
            .iter()
            .filter(|types| (types.node, &types.zone) == (zone.node, &zone.name))
        {
            let blocks = types.blocks.iter().filter(|(_, count)| *count > 0);
            let blocks = blocks.map(|(name, count)| format!("{count} {}", name.to_lowercase()));
            say!("    blocks of 2 MiB by mobility: {}", blocks.collect::<Vec<_>>().join(", "));
        }
    }
}

fn print_runs(view: &View<'_>) {
    let runs = view.memory.free_runs();
    let long = runs.filled().filter(|(from, _)| *from >= HUGE_FRAMES);
    let (count, sum) =
        long.fold((0, 0), |(count, sum), (_, bin)| (count + bin.count, sum + bin.sum));
    say!("");
    say!(
        "free runs of any alignment: {}, the longest {}; {count} of 2 MiB and more hold {}",
        runs.count,
        bytes(runs.largest),
        bytes(sum)
    );
    if let Some(folios) = view.memory.folios() {
        let sizes = folios.iter().enumerate().filter(|(_, count)| **count > 0);
        let sizes = sizes.map(|(i, count)| format!("{count} of {}", bytes(2 << i)));
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        say!(
            "folios of user memory: {}",
            if sizes.is_empty() { "none of several pages" } else { &sizes }
        );
    }
}

fn print_device_heap(heap: Option<&DeviceHeap>) {
    let Some(heap) = heap else { return };
    let of = |len_bytes: u64| bytes(len_bytes / FRAME_BYTES);
    say!("");
    say!(
        "heap for devices ({}): holds {} of {}, {} free in {} runs, the longest {}",
        heap.policy,
        of(heap.held_bytes),
        of(heap.total_bytes),
        of(heap.free_bytes),
        heap.free_runs,
        of(heap.largest_run_bytes)
    );
    let failed: Vec<_> = heap.failed.iter().filter(|(_, count)| *count > 0).collect();
    let whys = failed.iter().map(|(why, count)| format!("{count} by {why}")).collect::<Vec<_>>();
    let whys = if whys.is_empty() { "none failed".to_owned() } else { whys.join(", ") + " failed" };
    say!("  {} buffers of {} runs; of the requests so far {whys}", heap.buffers, heap.buffer_runs);
    for area in &heap.areas {
        let from = if area.reserved { "reserved at boot" } else { "taken when it was loaded" };
        say!("  {:>10} at {:#x}, {from}", of(area.len_bytes), area.address);
    }
}

/// What the kernel's free lists say, for a user who may not see frames.
fn print_lists(
    error: &CaptureError,
    zones: &[FreeBlocks],
    processes: Option<&Processes>,
    heap: Option<&DeviceHeap>,
    as_json: bool,
) {
    if as_json {
        let hidden = error.to_string();
        let all = json!({ "hidden": hidden, "free_blocks": zones, "processes": processes, "device_heap": heap });
        say!("{all}");
        return;
    }
    say!("{error}");
    say!("");
    say!("what the kernel's free lists say, whose blocks are aligned:");
    for zone in zones {
        let huge = zone.of_order(HUGE_FRAMES.ilog2() as usize);
        let free = bytes(zone.of_order(0));
        say!("  node {}, {:8} {free:>10} free, {huge} pages of 2 MiB", zone.node, zone.zone);
    }
    print_device_heap(heap);
    print_processes(processes);
}

fn print_processes(processes: Option<&Processes>) {
    let Some(processes) = processes else { return };
    say!("");
    let head = ["memory", "huge", "runs", "in 2 MiB", "longest", "in way of", "alone"];
    let head = head.map(|word| format!("{word:>10}")).concat();
    say!("{:24}{head}  control group", "anonymous memory of");
    for memory in &processes.seen {
        let name = format!("{} {}", memory.pid, memory.name);
        let runs = match &memory.runs {
            Some(runs) => {
                let long = runs.filled().filter(|(from, _)| *from >= HUGE_FRAMES);
                let sum: u64 = long.map(|(_, bin)| bin.sum).sum();
                [runs.count.to_string(), bytes(sum), bytes(runs.largest)]
            }
            None => ["hidden"; 3].map(str::to_owned),
        };
        let [count, long, longest] = runs;
        let way =
            memory.in_the_way.map(|way| [way.places, way.alone].map(|count| count.to_string()));
        let [places, alone] = way.unwrap_or_else(|| ["hidden"; 2].map(str::to_owned));
        say!(
            "  {name:22}{:>10}{:>10}{count:>10}{long:>10}{longest:>10}{places:>10}{alone:>10}  {}",
            bytes(memory.pages),
            bytes(memory.huge_pages),
            memory.cgroup
        );
    }
    if processes.seen.iter().any(|memory| memory.in_the_way.is_some()) {
        say!(
            "  (in way of: pages of 2 MiB that could be had if its frames in them were moved, and perhaps others';"
        );
        say!("  alone: of these, pages with no others')");
    }
    if processes.hidden > 0 {
        say!("  and {} that this user may not look into", processes.hidden);
    }
}

/// Frames as bytes, in the largest unit of which there is one.
fn bytes(frames: u64) -> String {
    let kib = frames.saturating_mul(FRAME_BYTES >> 10);
    let (unit, size) = match kib {
        1_048_576.. => ("GiB", 1_048_576.0),
        1024.. => ("MiB", 1024.0),
        _ => ("KiB", 1.0),
    };
    let number = kib as f64 / size;
    let places = usize::from(unit != "KiB" && number < 100.0);
    format!("{number:.places$} {unit}")
}
