//! `swath sweep` and `swath merge`: one plan at many points, as one table.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use swath_lab::study::needs::mib;
use swath_lab::sweep::definition::Sweep;
use swath_lab::sweep::folder::{POINTS_FILE, Shard};
use swath_lab::sweep::merge::{merge as merge_shards, shards_below};
use swath_lab::sweep::run::{Swept, check, run as run_sweep};
use swath_lab::sweep::slurm::ArrayJob;

use crate::failure::Failure;
use crate::progress::{Bar, watch_for_interrupts};
use crate::resources::Resources;

/// Arguments of `swath sweep`.
#[derive(Args)]
pub(crate) struct SweepArgs {
    /// The sweep: a study or a plan, and lists or ranges of values of its keys.
    sweep: PathBuf,
    /// The directory of the table.
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    out: PathBuf,
    /// Run every N-th point alone, from the I-th on, into a folder of its own in the directory.
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    shard: Option<Shard>,
    /// Check every point's plan, and stop.
    #[arg(long)]
    check: bool,
    /// Print a script that runs the sweep as an array job of Slurm, in so many shards, and stop.
    #[arg(long, value_name = "N", conflicts_with_all = ["shard", "check", "json"],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slurm: Option<u32>,
    #[command(flatten)]
    resources: Resources,
    /// Measure every point anew, whatever an earlier run has measured.
    #[arg(long)]
    fresh: bool,
    /// Print the result of the command as JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `swath merge`.
#[derive(Args)]
pub(crate) struct MergeArgs {
    /// The shards' folders, or the directory that they are in.
    #[arg(required = true)]
    shards: Vec<PathBuf>,
    /// The directory of the whole table.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the result of the command as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `swath sweep`.
pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    let sweep = Sweep::load(&args.sweep)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(usize::try_from(args.resources.jobs()).unwrap_or(1))
        .build()
        .map_err(|error| Failure::new(1, format!("threads: {error}")))?;
    let limits = args.resources.limits();
    let points: Vec<u64> = (0..sweep.points()).collect();
    let checked = pool
        .install(|| check(&sweep, &points, args.resources.jobs(), limits))
        .map_err(|error| Failure::new(2, error))?;
    drop(pool);
    if args.check {
        let (points, threads) = (sweep.points(), checked.threads);
        if args.json {
            say!(
                "{}",
                json!({
                    "study": sweep.study,
                    "points": points,
                    "refused": checked.refused,
                    "threads": threads,
                    "memory_bytes": checked.memory_bytes,
                })
            );
            return Ok(());
        }
        let s = if threads == 1 { "" } else { "s" };
        say!("{}: {points} points, {} of them refused", sweep.study, checked.refused);
        say!("  takes up to {} MiB of memory on {threads} thread{s}", mib(checked.memory_bytes));
        return Ok(());
    }
    if let Some(shards) = args.slurm {
        let job = ArrayJob {
            program: "swath".to_owned(),
            sweep: absolute(&args.sweep)?,
            out: absolute(&args.out)?,
            study: sweep.study,
            shards,
            threads: checked.threads,
            memory_bytes: checked.memory_bytes,
        };
        say!("{}", job.script().trim_end());
        return Ok(());
    }
    watch_for_interrupts();
    let bar = Bar::new();
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let warn = |what: &str| bar.warn(&format!("{}: {what}", sweep.study));
    let swept = run_sweep(&sweep, &args.out, shard, checked.threads, args.fresh, &bar, &warn);
    bar.0.finish_and_clear();
    let swept = swept?;
    sum_up(args, &sweep, &swept, &shard.place(&args.out).join(POINTS_FILE));
    match swept.failed {
        0 => Ok(()),
        failed => Err(Failure::new(1, format!("{failed} points failed; the table says why"))),
    }
}

fn sum_up(args: &SweepArgs, sweep: &Sweep, swept: &Swept, file: &Path) {
    let Swept { points, resumed, refused, failed, rows, was_whole } = *swept;
    if args.json {
        say!(
            "{}",
            json!({
                "study": sweep.study,
                "points": {
                    "all": points, "resumed": resumed, "refused": refused, "failed": failed,
                },
                "rows": rows,
                "was_whole": was_whole,
                "table": file.to_string_lossy(),
            })
        );
        return;
    }
    let mut what = match was_whole {
        true => "whole before; --fresh measures anew".to_owned(),
        false => format!("{rows} rows"),
    };
    for (count, how) in [(resumed, "resumed"), (refused, "refused"), (failed, "failed")] {
        if count > 0 && !was_whole {
            what += &format!(", {count} points {how}");
        }
    }
    say!("{}: {points} points, {what}; {}", sweep.study, file.display());
}

/// Runs `swath merge`.
pub(crate) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let shards = match &args.shards[..] {
        [one] => shards_below(one)?,
        several => several.to_vec(),
    };
    let (points, rows) = merge_shards(&shards, &args.out)?;
    let file = args.out.join(POINTS_FILE);
    if args.json {
        let table = file.to_string_lossy();
        say!(
            "{}",
            json!({ "shards": shards.len(), "points": points, "rows": rows, "table": table })
        );
    } else {
        say!("{} shards, {points} points, {rows} rows; {}", shards.len(), file.display());
    }
    Ok(())
}

/// Reads a shard: 2/4 is the second of four.
fn parse_shard(text: &str) -> Result<Shard, String> {
    let parts =
        text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
    let shard = parts.and_then(|(nth, of)| Shard::new(nth, of));
    shard.ok_or_else(|| format!("{text:?} is not I/N with I from 1 to N"))
}

fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path)
        .map_err(|error| Failure::new(1, format!("{}: {error}", path.display())))?;
    Ok(path.to_string_lossy().into_owned())
}
