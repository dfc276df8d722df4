//! `swath show`: a module of the program, which says what a file holds.

use std::collections::BTreeMap;
use std::path::Path;

use swath_lab::papers::green::pages::requests;
use swath_trace::access::{AccessKind, PageSet, TraceError, TraceReader};
use swath_trace::container::FileError;
use swath_trace::heap::{HeapReader, HeapSummary};
use swath_trace::histogram::Histogram;
use swath_trace::machine::{FrameKind, Snapshot};
use swath_trace::pages::{ORDER_MAX, PageChange, PageReader};

use swath_trace::valgrind::CommandPrograms;

use crate::failure::Failure;

/// A snapshot, page events, a heap or a trace: the signature says which.
pub(crate) fn show(file: &Path, json: bool) -> Result<(), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(1, format!("{}: {error}", file.display()));
    for show in [show_snapshot, show_pages, show_heap] {
        match show(file, json) {
            Err(FileError::Magic { .. }) => {}
            shown => return shown.map_err(|error| failed(&error)),
        }
    }
    show_accesses(file, json).map_err(|error| failed(&error))
}

fn show_snapshot(file: &Path, json: bool) -> Result<(), FileError> {
    snapshot(&Snapshot::load(file)?, json);
    Ok(())
}

/// Prints how contiguous a machine's memory is.
pub(crate) fn snapshot(snapshot: &Snapshot, json: bool) {
    let summary = snapshot.summary();
    if json {
        say!("{}", serde_json::json!({ "facts": snapshot.facts(), "summary": summary }));
        return;
    }
    say!("Linux {}, {} frames of 4 KiB", snapshot.facts().kernel_release, summary.total_frames());
    for kind in FrameKind::ALL {
        let frames = summary.count(kind);
        if frames > 0 {
            let share = 100.0 * frames as f64 / summary.total_frames() as f64;
            say!("  {:12} {frames:>12}  {share:5.1}%", kind.name());
        }
    }
    print_runs("free", &summary.free);
    print_runs("free, unknown frames counted too", &summary.free_or_unknown);
}

fn print_runs(what: &str, runs: &Histogram) {
    let Histogram { count, sum, largest, .. } = runs;
    say!("{what}: {sum} frames in {count} extents, the longest {largest} frames");
    for (from, bin) in runs.filled() {
        let share = 100.0 * bin.sum as f64 / *sum as f64;
        say!("  from {from:>8} frames {:>9} extents  {share:5.1}%", bin.count);
    }
}

/// The requests of a recording by order and mobility.
#[derive(Default)]
struct RequestMix {
    /// By order, and by migrate type: unmovable, movable, reclaimable, a reserve.
    counts: [[u64; 4]; ORDER_MAX.k() as usize + 1],
    /// Of those that read a file ahead, their number and frames.
    read_ahead: (u64, u64),
}

impl RequestMix {
    const NAMES: [&'static str; 4] = ["unmovable", "movable", "reclaimable", "reserve"];

    fn count(&mut self, change: PageChange) {
        if let PageChange::Alloc { order, migrate_type, read_ahead, .. } = change
            && let Some(row) = self.counts.get_mut(order.k() as usize)
        {
            row[usize::from(migrate_type.number()).min(3)] += 1;
            let (requests, frames) = &mut self.read_ahead;
            *requests += u64::from(read_ahead);
            *frames = frames.saturating_add(u64::from(read_ahead) * order.frames());
        }
    }

    /// The orders that were asked for, each with its requests by mobility.
    fn rows(&self) -> Vec<serde_json::Value> {
        let asked = self.counts.iter().enumerate().filter(|(_, row)| row.iter().any(|&n| n > 0));
        let row = |(order, row): (usize, &[u64; 4])| {
            let named: BTreeMap<_, _> = Self::NAMES.into_iter().zip(row).collect();
            serde_json::json!({ "order": order, "requests": named })
        };
        asked.map(row).collect()
    }

    /// The same as text, with each order's share of the frames asked for.
    fn lines(&self) -> Vec<String> {
        let frames = |order: usize, row: &[u64; 4]| {
            (row.iter().sum::<u64>() as f64) * (1u64 << order) as f64
        };
        let all: f64 = self.counts.iter().enumerate().map(|(order, row)| frames(order, row)).sum();
        if all == 0.0 {
            return Vec::new();
        }
        let names = Self::NAMES.map(|name| format!("{name:>13}")).concat();
        let mut lines = vec![format!("  requests    {names}   of the frames")];
        for (order, row) in
            self.counts.iter().enumerate().filter(|(_, row)| row.iter().any(|&n| n > 0))
        {
            let cells = row.map(|count| format!("{count:>13}")).concat();
            let share = 100.0 * frames(order, row) / all;
            lines.push(format!("  order {order:<6}{cells}   {share:>12.1}%"));
        }
        let (requests, read) = self.read_ahead;
        if requests > 0 {
            let share = 100.0 * read as f64 / all;
            lines.push(format!("  read ahead  {requests:>26}{:>29}{share:>12.1}%", ""));
        }
        lines
    }
}

/// Prints what a recording of page events holds, and what pairing makes of it.
fn show_pages(file: &Path, json: bool) -> Result<(), FileError> {
    let mut reader = PageReader::open(file)?;
    let head = reader.head().clone();
    let mut counts = [0u64; PageChange::KINDS];
    let mut mix = RequestMix::default();
    let mut duration_us = 0;
    let events = reader.by_ref().inspect(|event| {
        if let Ok(event) = event {
            counts[event.change.kind()] += 1;
            mix.count(event.change);
            duration_us = event.time_us;
        }
    });
    let blocks_max = requests::blocks_max(std::fs::metadata(file)?.len());
    let replayed = requests::replay(events, &[], blocks_max, &mut |_| {})?;
    let lost = reader.lost();
    let all: u64 = counts.iter().sum();
    let kinds = PageChange::NAMES.into_iter().zip(counts);
    if json {
        let kinds: BTreeMap<_, _> = kinds.collect();
        say!(
            "{}",
            serde_json::json!({ "facts": head.facts, "program": head.program,
                                "whole_system": head.whole_system, "cpus": head.cpus,
                                "events": kinds, "requests": mix.rows(),
                                "read_ahead": { "requests": mix.read_ahead.0, "frames": mix.read_ahead.1 },
                                "duration_us": duration_us,
                                "lost": lost, "replay": replayed })
        );
        return Ok(());
    }
    let whose = if head.whole_system { "the whole system during" } else { "the processes of" };
    say!("Linux {}, {} processors, {whose} {}", head.facts.kernel_release, head.cpus, head.program);
    let seconds = duration_us as f64 / 1e6;
    let lost: u64 = lost.iter().sum();
    let rate = match duration_us {
        0 => String::new(),
        _ => format!(" {:.0} a second,", all as f64 / seconds),
    };
    say!("{all} events in {seconds:.1} s,{rate} {lost} lost");
    for (name, count) in kinds.filter(|&(_, count)| count > 0) {
        say!("  {name:12} {count:>12}");
    }
    for line in mix.lines() {
        say!("{line}");
    }
    say!(
        "{} blocks allocated, {} freed ({} of them unseen, {} in parts), {} left; at most {} frames \
         at once; {} frames freed that were allocated before",
        replayed.allocs,
        replayed.frees,
        replayed.frees_implied,
        replayed.frees_in_parts,
        replayed.live_blocks,
        replayed.peak_frames,
        replayed.unseen_frames
    );
    Ok(())
}

/// Prints what a recording of a heap holds.
fn show_heap(file: &Path, json: bool) -> Result<(), FileError> {
    let mut reader = HeapReader::open(file)?;
    let summary = HeapSummary::of(&mut reader)?;
    if json {
        let mut shown = serde_json::json!({ "head": reader.head(), "summary": summary });
        if let Some(programs) = reader.programs() {
            shown["programs"] = serde_json::json!(programs);
        }
        say!("{shown}");
        return Ok(());
    }
    for line in summary.lines(reader.head()) {
        say!("{line}");
    }
    print_programs(reader.programs());
    Ok(())
}

/// Prints the programs of a recorded command that the recording is not of.
fn print_programs(programs: Option<&CommandPrograms>) {
    for line in programs.into_iter().flat_map(CommandPrograms::left_out) {
        say!("{line}");
    }
}

/// Prints what a trace of any format holds.
fn show_accesses(file: &Path, json: bool) -> Result<(), TraceError> {
    let mut counts = [0u64; 3];
    let (mut pages, mut last) = (PageSet::default(), None);
    let mut accesses = TraceReader::open(file)?;
    let format = accesses.format();
    for access in accesses.by_ref() {
        let access = access?;
        counts[match access.kind {
            AccessKind::Read => 0,
            AccessKind::Write => 1,
            AccessKind::Fetch => 2,
        }] += 1;
        if last != Some(access.pages()) {
            last = Some(access.pages());
            pages.insert(access.pages())?;
        }
    }
    let [reads, writes, fetches] = counts;
    if json {
        let mut shown = serde_json::json!({ "format": format, "reads": reads, "writes": writes,
                                            "fetches": fetches, "pages": pages.len() });
        if let Some(programs) = accesses.programs() {
            shown["programs"] = serde_json::json!(programs);
        }
        say!("{shown}");
    } else {
        say!("{reads} reads, {writes} writes, {fetches} fetches, {} pages touched", pages.len());
        print_programs(accesses.programs());
    }
    Ok(())
}
