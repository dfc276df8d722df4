//! `swath green`: takes the memory blocks that a running Linux does not need offline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, watch_for_interrupts};
use clap::Args;
use serde_json::json;
use swath_lab::live::{
    BlockUse, Choice, DamonReclaim, Event, Journal, Linux, LiveError, Machine, OnlineFrames,
    RECLAIM, Rehearsal, Settings, Summary, frames, serve, uses,
};
use swath_trace::inspect::MachineMemory;

/// The time from one look at the free memory to the next.
const POLL: Duration = Duration::from_millis(50);

/// Of the machine's memory, what stays free if nothing is said.
const LOW_PART: u64 = 32;

/// Arguments of `swath green`.
#[derive(Args)]
pub(crate) struct GreenArgs {
    /// Do it; without this flag nothing is changed, and what would go offline is listed.
    #[arg(long)]
    apply: bool,
    /// Bring online what a run that was killed has left offline, and end.
    #[arg(long, conflicts_with_all = ["apply", "seconds"])]
    put_back: bool,
    /// End after so many seconds; else when interrupted.
    #[arg(long = "for", value_name = "SECONDS", requires = "apply")]
    seconds: Option<u64>,
    /// A block comes online when less is free; a 32nd of the memory, or a block if that is more.
    #[arg(long, value_name = "MIB")]
    low: Option<u64>,
    /// So much stays free when a block goes offline; twice --low.
    #[arg(long, value_name = "MIB")]
    reserve: Option<u64>,
    /// So much may be offline.
    #[arg(long, value_name = "MIB", default_value_t = u64::MAX >> 20, hide_default_value = true)]
    most: u64,
    /// Of a block, so many percent may be in use.
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u32).range(0..=100))]
    fullest: u32,
    /// So much may be moved in a second, on average.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    budget: u64,
    /// From one block to the next.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    interval: u64,
    /// After a block came online because memory ran low, none goes offline for so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..1 << 32))]
    settle: u64,
    /// A block that takes longer to empty stays online.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    timeout: u64,
    /// A block that did not go is left alone for so long, and twice as long each time.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    retry: u64,
    /// Where so much is missing to empty a block, ask the system to free it of what it can read
    /// again (memory.reclaim of cgroup version 2).
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    reclaim: u64,
    /// Let the kernel free what was not used for long, as DAMON finds it (DAMON_RECLAIM); it is
    /// switched back at the end.
    #[arg(long, requires = "apply")]
    damon: bool,
    /// Which block is tried.
    #[arg(long, value_enum, default_value_t = Choice::Emptiest)]
    choose: Choice,
    /// Notes what is offline, for --put-back.
    #[arg(long, value_name = "FILE", default_value = "/run/swath-green")]
    journal: PathBuf,
    /// Print as JSON, a line for each event.
    #[arg(long)]
    json: bool,
}

fn frames_of(mib: u64) -> u64 {
    mib.saturating_mul(1 << 8)
}

impl GreenArgs {
    fn settings(&self, total_frames: u64, block_frames: u64) -> Result<Settings, Failure> {
        let low_frames = self.low.map_or((total_frames / LOW_PART).max(block_frames), frames_of);
        let reserve_frames = self.reserve.map_or(low_frames.saturating_mul(2), frames_of);
        if reserve_frames <= low_frames {
            let (reserve, low) = (reserve_frames >> 8, low_frames >> 8);
            let what = format!("--reserve ({reserve} MiB) must be more than --low ({low} MiB)");
            return Err(Failure::new(2, what));
        }
        if self.reclaim > 0 && !Path::new(RECLAIM).exists() {
            return Err(Failure::new(1, format!("--reclaim: {RECLAIM} does not exist")));
        }
        Ok(Settings {
            choice: self.choose,
            migration: swath_lab::live::MigrationConfig {
                interval_ns: self.interval * 1_000_000,
                retry_ns: self.retry * 1_000_000_000,
                occupied_permille_max: self.fullest * 10,
                reserve_frames,
                settle_ns: self.settle * 1_000_000_000,
            },
            low_frames,
            offline_frames_max: frames_of(self.most),
            moved_frames_per_s: frames_of(self.budget),
            reclaimed_frames: frames_of(self.reclaim),
            poll_ns: POLL.as_nanos() as u64,
            ends_when_idle: !self.apply,
            for_ns: self.seconds.map(|seconds| seconds.saturating_mul(1_000_000_000)),
        })
    }
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        let is_use = matches!(
            error,
            LiveError::AtWork { .. }
                | LiveError::LeftOffline { .. }
                | LiveError::AgeAtWork
                | LiveError::InUse { .. }
                | LiveError::Shares
        );
        Self::new(if is_use { 2 } else { 1 }, error)
    }
}

/// Lists what would go offline, or runs the daemon.
pub(crate) fn run(args: &GreenArgs) -> Result<(), Failure> {
    if args.put_back {
        return put_back(args);
    }
    let memory = MachineMemory::read().map_err(|error| Failure::new(1, error))?;
    let (frames, blocks) = (frames()?, uses(&memory)?);
    let block_frames = blocks.first().map_or(0, |block| block.frames.count);
    let settings = args.settings(frames.total, block_frames)?;
    if !args.json {
        print_blocks(frames, &blocks, &settings);
    }
    if !args.apply {
        return rehearse(args, Rehearsal::new(frames, blocks), &settings);
    }
    let journal = Journal::open(&args.journal)?;
    journal.check_empty()?;
    watch_for_interrupts();
    let _damon = args.damon.then(DamonReclaim::start).transpose()?;
    let mut machine = Linux::new(memory, journal, Duration::from_secs(args.timeout), &INTERRUPTED);
    let began = std::time::Instant::now();
    let (summary, result) =
        serve(&mut machine, &settings, &mut |event| print(args, began.elapsed(), event));
    let closed = machine.close();
    print_summary(args, &summary);
    result?;
    closed?;
    all_online(&summary.left)
}

fn all_online(left: &[u64]) -> Result<(), Failure> {
    if left.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = left.iter().map(|number| format!("memory{number}")).collect();
    Err(Failure::new(1, format!("still offline: {}", names.join(" "))))
}

fn put_back(args: &GreenArgs) -> Result<(), Failure> {
    let mut journal = Journal::open(&args.journal)?;
    let mut left = Vec::new();
    for (number, _) in journal.offline().to_vec().into_iter().rev() {
        match journal.bring_online(number) {
            Ok(()) => say!("memory{number} online"),
            Err(refusal) => {
                say!("memory{number} does not come online: {refusal}");
                left.push(number);
            }
        }
    }
    journal.close()?;
    all_online(&left)
}

fn mib(frames: u64) -> String {
    format!("{} MiB", frames >> 8)
}

fn print_blocks(frames: OnlineFrames, blocks: &[BlockUse], settings: &Settings) {
    let block = mib(blocks.first().map_or(0, |block| block.frames.count));
    say!(
        "{} online, {} free, in {} blocks of {block}",
        mib(frames.total),
        mib(frames.free),
        blocks.len()
    );
    let movable = blocks.iter().filter(|block| block.is_movable()).count();
    let has_unmovable = |block: &&BlockUse| block.can_go && block.unmovable > 0;
    let unmovable = blocks.iter().filter(has_unmovable).count();
    let fixed = blocks.iter().filter(|block| !block.can_go).count();
    say!("  {movable:>5} in which everything can move");
    say!("  {unmovable:>5} with frames that cannot");
    say!("  {fixed:>5} that the kernel or devices need");
    say!(
        "  {:>5} with frames that Linux marks as nothing",
        blocks.len() - movable - unmovable - fixed
    );
    say!(
        "a block comes online when less than {} are free; {} stay free when one goes offline",
        mib(settings.low_frames),
        mib(settings.migration.reserve_frames)
    );
}

fn rehearse(args: &GreenArgs, mut machine: Rehearsal, settings: &Settings) -> Result<(), Failure> {
    let before = machine.frames()?;
    let mut gone = (0, 0);
    let (_, result) = serve(&mut machine, settings, &mut |event| {
        if let Event::Emptied { number, moved_frames, .. } = event {
            gone = (gone.0 + 1, gone.1 + moved_frames);
            if args.json {
                say!(
                    "{}",
                    json!({ "would_go": { "number": number, "moved_frames": moved_frames } })
                );
            } else {
                say!("memory{number} would go offline, {} moved", mib(*moved_frames));
            }
        }
    });
    result?;
    if args.json {
        say!(
            "{}",
            json!({ "would": { "blocks": gone.0, "moved_frames": gone.1, "free_frames": before.free } })
        );
    } else {
        say!(
            "{} blocks would go offline, {} moved; nothing was changed (--apply does it)",
            gone.0,
            mib(gone.1)
        );
    }
    Ok(())
}

fn print(args: &GreenArgs, at: Duration, event: &Event) {
    if args.json {
        say!("{}", json!({ "seconds": at.as_secs_f64(), "event": event }));
    } else {
        say!("{:9.2} s  {event}", at.as_secs_f64());
    }
}

fn print_summary(args: &GreenArgs, summary: &Summary) {
    if args.json {
        say!("{}", json!({ "summary": summary }));
        return;
    }
    let tried = summary.offlined + summary.failed;
    say!(
        "{:.0} s: {} blocks went offline, {} did not ({:.1}%), {} were given up as memory was needed; {} came online as memory was needed",
        summary.seconds,
        summary.offlined,
        summary.failed,
        100.0 * summary.failed as f64 / tried.max(1) as f64,
        summary.given_up,
        summary.opened,
    );
    let share = summary
        .offline_share
        .map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    say!(
        "{} moved, {} reclaimed; of the free memory {share} was offline on average",
        mib(summary.moved_frames),
        mib(summary.reclaimed_frames)
    );
}
