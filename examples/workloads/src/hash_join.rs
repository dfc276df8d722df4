//! A hash join: a core reads the rows of one table in turn, for each a bucket somewhere in a hash table,
//! and writes what it found.

use swath_lab::papers::page_buddy::workload::{
    self, AddWorkloadError, Category, Master, Transaction, Workload,
};

const ROWS: u64 = 20_000;
const BUCKETS_LOG2: u32 = 15;

/// Adds it.
///
/// # Errors
/// [`AddWorkloadError`].
pub fn add() -> Result<(), AddWorkloadError> {
    let buffers = vec![64 * ROWS, 64 << BUCKETS_LOG2, 64 * ROWS];
    let masters = vec![Master::listed("core", (0..ROWS).flat_map(row))];
    let category = Category::Added;
    workload::add("hash-join", Workload { name: "Hash join", category, buffers, masters })
}

/// The lines that a row takes: its own, its bucket's, that of the result.
fn row(row: u64) -> [Transaction; 3] {
    let bucket = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS_LOG2);
    [(0, row, false), (1, bucket, false), (2, row, true)].map(|(buffer, line, write)| Transaction {
        buffer,
        offset_bytes: 64 * line,
        write,
    })
}
