//! `swath age`: brings a running Linux machine's free memory into a stated shape, and keeps it there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use swath_lab::live::{AgeLook, AgeSettings, Shape, age, frames, free_runs, would_hold};
use swath_lab::papers::green::machine::age::AgeTarget;
use swath_trace::inspect::MachineMemory;
use swath_trace::machine::Snapshot;

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, watch_for_interrupts};

/// Arguments of `swath age`.
#[derive(Args)]
pub(crate) struct AgeArgs {
    /// The shape: a file of `swath snapshot`, or shares, such as `used=0.7,huge=0.1`.
    #[arg(long, value_name = "SNAPSHOT|SHARES")]
    target: String,
    /// Do it; without this flag nothing is changed, and the shape of now stands beside the target.
    #[arg(long)]
    apply: bool,
    /// End after so many seconds; else when interrupted.
    #[arg(long = "for", value_name = "SECONDS", requires = "apply")]
    seconds: Option<u64>,
    /// Of what is held, the share that is the cache of a file.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    cache: f64,
    /// The folder of that file.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    cache_dir: PathBuf,
    /// Of what is held, the share of pages of the kernel's that cannot move.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    kernel: f64,
    /// Of what is held, the share that is pinned where it is.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pinned: f64,
    /// The distance from the target that is near enough: the share of free memory that lies in runs
    /// of another length, or is missing or too much.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    tolerance: f64,
    /// The seed of what is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// From one look to the next.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    interval: u64,
    /// Print as JSON, a line for each look.
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a share from 0 to 1".to_owned())
}

fn target(text: &str, seed: u64) -> Result<Shape, Failure> {
    let path = Path::new(text);
    if path.is_file() {
        let failed = |error| Failure::new(1, format!("{}: {error}", path.display()));
        let summary = Snapshot::load(path).map_err(failed)?.summary();
        return Ok(Shape::of(summary.total_frames(), &summary.free));
    }
    let target: AgeTarget = text.parse().map_err(|error| {
        Failure::new(2, format!("--target: no such file, and no shares: {error}"))
    })?;
    Shape::of_target(target, seed).map_err(|error| Failure::new(2, error))
}

/// Says how far memory is from the target, or brings it there.
pub(crate) fn run(args: &AgeArgs) -> Result<(), Failure> {
    let settings = AgeSettings {
        target: target(&args.target, args.seed)?,
        cache: args.cache,
        cache_folder: args.cache_dir.clone(),
        kernel: args.kernel,
        pinned: args.pinned,
        tolerance: args.tolerance,
        seed: args.seed,
        interval: Duration::from_millis(args.interval),
        lasts: args.seconds.map(Duration::from_secs),
    };
    if !args.apply {
        let memory = MachineMemory::read().map_err(|error| Failure::new(1, error))?;
        let would_hold = would_hold(&settings)?;
        let (total, target) = (frames()?.total, &settings.target);
        let shape = Shape::of(total, &free_runs(&memory));
        let target = target.fitted((target.free * total as f64) as u64);
        if args.json {
            let distance = target.distance(&shape);
            say!(
                "{}",
                json!({ "target": target, "shape": shape, "distance": distance, "would_hold": would_hold })
            );
        } else {
            print_shapes(&target, &shape);
            let mib = |share: f64| (share * would_hold as f64) as u64 >> 8;
            say!(
                "{} MiB would be held, {} of them cache, {} the kernel's, {} pinned; until the end memory would not be \
                 compacted; nothing was changed (--apply does it)",
                mib(1.0),
                mib(args.cache),
                mib(args.kernel),
                mib(args.pinned)
            );
        }
        return Ok(());
    }
    watch_for_interrupts();
    let last = age(&settings, &INTERRUPTED, &mut |at, look| print(args, at, look))?;
    if let Some(look) = &last
        && !args.json
    {
        let wanted = (settings.target.free * frames()?.total as f64) as u64;
        print_shapes(&settings.target.fitted(wanted), &look.shape);
    }
    match last {
        Some(look) if look.is_near => Ok(()),
        Some(look) => {
            let distance = look.distance;
            Err(Failure::new(1, format!("at the end memory was {distance:.3} from the target")))
        }
        None => Err(Failure::new(1, "it ended before memory had a shape")),
    }
}

fn print(args: &AgeArgs, at: Duration, look: &AgeLook) {
    if args.json {
        say!("{}", json!({ "seconds": at.as_secs_f64(), "look": look }));
        return;
    }
    let mib = look.held.map(|pages| pages >> 8);
    say!(
        "{:8.1} s  {:5.1}% free, {:.3} from the target{}; {} MiB held, {} of them cache, {} the kernel's, {} pinned",
        at.as_secs_f64(),
        100.0 * look.shape.free,
        look.distance,
        if look.is_near { "" } else { ", mending" },
        mib[0],
        mib[1],
        mib[2],
        mib[3],
    );
}

fn print_shapes(target: &Shape, now: &Shape) {
    say!("{:>24} {:>8} {:>8}", "free", "target", "now");
    say!("{:>24} {:>7.1}% {:>7.1}%", "of memory", 100.0 * target.free, 100.0 * now.free);
    for k in 0..target.parts.len().max(now.parts.len()) {
        let part = |shape: &Shape| 100.0 * shape.parts.get(k).copied().unwrap_or(0.0);
        let least = match (4_u64 << k).checked_ilog2().unwrap_or(0) {
            log2 @ 0..10 => format!("{} KiB", 1_u64 << log2),
            log2 @ 10..20 => format!("{} MiB", 1_u64 << (log2 - 10)),
            log2 => format!("{} GiB", 1_u64 << (log2 - 20)),
        };
        say!("{:>24} {:>7.1}% {:>7.1}%", format!("of it from {least}"), part(target), part(now));
    }
    say!("distance {:.3}", target.distance(now));
}
