//! Counts over a recording of a heap.

use std::io::Read;

use serde::Serialize;

use crate::container::FileError;
use crate::heap::events::{HeapEvent, HeapHeader, HeapTotals};
use crate::heap::file::HeapReader;
use crate::histogram::Histogram;

/// The most threads that are told apart; a recorder has places for fewer.
const THREADS_MAX: usize = 1 << 16;

/// Counts of a whole recording.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HeapSummary {
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks given another size.
    pub resizes: u64,
    /// Blocks released.
    pub releases: u64,
    /// Threads that called; 65536 stands for that or more.
    pub threads: u64,
    /// The most blocks allocated at once.
    pub peak_blocks: u64,
    /// The most bytes asked for and not given back.
    pub peak_bytes: u64,
    /// Blocks and bytes left at the end.
    pub left_blocks: u64,
    /// …
    pub left_bytes: u64,
    /// Sizes asked for by allocations, in bytes.
    pub sizes: Histogram,
    /// Reads in the recording.
    pub reads: u64,
    /// Writes in the recording.
    pub writes: u64,
    /// The whole run.
    pub totals: HeapTotals,
}

impl HeapSummary {
    /// Reads a recording to its end. O(events).
    ///
    /// # Errors
    /// Those of the reader.
    pub fn of<R: Read>(reader: &mut HeapReader<R>) -> Result<Self, FileError> {
        let mut summary = Self::default();
        let mut threads = std::collections::BTreeSet::new();
        let mut called = |thread| {
            if threads.len() < THREADS_MAX {
                threads.insert(thread);
            }
            threads.len() as u64
        };
        while let Some(event) = reader.next() {
            match event? {
                HeapEvent::Allocate { size_bytes, thread, .. } => {
                    summary.allocations += 1;
                    summary.sizes.add(size_bytes);
                    summary.threads = called(thread);
                }
                HeapEvent::Resize { thread, .. } => {
                    summary.resizes += 1;
                    summary.threads = called(thread);
                }
                HeapEvent::Release { thread, .. } => {
                    summary.releases += 1;
                    summary.threads = called(thread);
                }
                HeapEvent::Read { .. } => summary.reads += 1,
                HeapEvent::Write { .. } => summary.writes += 1,
                HeapEvent::Skip { .. } => {}
            }
            summary.peak_blocks = summary.peak_blocks.max(reader.live_blocks());
            summary.peak_bytes = summary.peak_bytes.max(reader.live_bytes());
        }
        summary.left_blocks = reader.live_blocks();
        summary.left_bytes = reader.live_bytes();
        summary.totals = reader.totals().copied().unwrap_or_default();
        Ok(summary)
    }

    /// For a reader.
    pub fn lines(&self, head: &HeapHeader) -> Vec<String> {
        let Self { allocations, resizes, releases, threads, totals, .. } = self;
        let threads = match *threads {
            threads if threads >= THREADS_MAX as u64 => format!("{threads} or more"),
            threads => threads.to_string(),
        };
        let program = if head.program.is_empty() { "a program" } else { &head.program };
        let sampled = match head.sampling {
            None => "all".to_owned(),
            Some(s) => format!("the first {} of every {}", s.burst_accesses, s.period_accesses),
        };
        let HeapTotals { reads, writes, elsewhere, failed_calls, unknown_calls, lost_calls } =
            totals;
        let mut lines = vec![
            format!(
                "{program}: {allocations} allocations, {resizes} changes of size, {releases} \
                 releases by {threads} threads; {failed_calls} calls failed, {unknown_calls} \
                 were of unknown blocks, {lost_calls} lost"
            ),
            format!(
                "at most {} blocks at once, at most {} bytes; {} blocks of {} bytes left",
                self.peak_blocks, self.peak_bytes, self.left_blocks, self.left_bytes
            ),
            format!(
                "{} reads of {reads} and {} writes of {writes} ({sampled}); {elsewhere} accesses \
                 elsewhere",
                self.reads, self.writes
            ),
        ];
        let line = |from: u64, count: u64| {
            let share = 100.0 * count as f64 / *allocations as f64;
            format!("  from {from:>12} bytes {count:>9} allocations  {share:5.1}%")
        };
        lines.extend((self.sizes.zeros > 0).then(|| line(0, self.sizes.zeros)));
        lines.extend(self.sizes.filled().map(|(from, bin)| line(from, bin.count)));
        lines
    }
}
