//! Streams of 64-byte transactions over arrays.
//!
//! Every access pattern of Table 4 is one shape, [`Tiles`]: an array of
//! `rows` rows of `row_bytes` bytes, cut into blocks of `block_bytes` by
//! `block_rows`, visited across or down. A raster scan has one block to a row;
//! a vertical scan has narrow blocks, visited down. What a block row touches
//! is transferred as the aligned 64-byte lines it touches, in ascending order.
//!
//! A master with several streams interleaves them in proportion to their
//! lengths: transaction j of a stream of n is due at (j + 1/2) / n of the
//! master's run, and the earlier stream goes first on a tie. Blending, with
//! three streams of one length, therefore reads A, reads B, writes C, and so on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bytes in a transaction: a burst of four beats of 128 bits (Table 3).
pub const TRANSACTION_BYTES: u64 = 64;

/// One transaction of a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Index of the buffer in [`Workload::buffers`].
    pub buffer: usize,
    /// Byte offset in the buffer, a multiple of [`TRANSACTION_BYTES`].
    pub offset_bytes: u64,
    /// Write, or read.
    pub write: bool,
}

/// The direction in which the blocks of an array are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Along a row of blocks, then the next row of blocks (the paper's "hor.").
    Across,
    /// Down a column of blocks, then the next column (the paper's "ver.").
    Down,
}

/// An array visited block by block; within a block row by row.
///
/// With R = `rows`, the blocks of column c and block row b cover the bytes
/// `[y * row_bytes + c * block_bytes, … + block_bytes)` of the rows
/// `y` from `b * block_rows - halo_rows` to
/// `(b + 1) * block_rows + halo_rows - 1`, clipped to the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiles {
    /// Bytes in a row, which is also the distance between rows.
    pub row_bytes: u64,
    /// Rows in the array.
    pub rows: u64,
    /// Bytes of a row that belong to one block.
    pub block_bytes: u64,
    /// Rows in a block.
    pub block_rows: u64,
    /// Rows above and below a block that are read with it, as a filter does.
    pub halo_rows: u64,
    /// The order of the blocks.
    pub direction: Direction,
}

impl Tiles {
    /// The whole array row by row.
    pub const fn raster(row_bytes: u64, rows: u64) -> Self {
        Self {
            row_bytes,
            rows,
            block_bytes: row_bytes,
            block_rows: 1,
            halo_rows: 0,
            direction: Direction::Across,
        }
    }

    /// The array in columns of `column_bytes`, each from top to bottom.
    pub const fn vertical(row_bytes: u64, rows: u64, column_bytes: u64) -> Self {
        Self {
            row_bytes,
            rows,
            block_bytes: column_bytes,
            block_rows: 1,
            halo_rows: 0,
            direction: Direction::Down,
        }
    }

    /// The aligned lines touched, in order. Costs O(1) a line.
    pub fn lines(self) -> impl Iterator<Item = u64> + Clone {
        let columns = self.row_bytes.div_ceil(self.block_bytes);
        let block_rows = self.rows.div_ceil(self.block_rows);
        let (outer, inner) = match self.direction {
            Direction::Across => (block_rows, columns),
            Direction::Down => (columns, block_rows),
        };
        (0..outer).flat_map(move |o| {
            (0..inner).flat_map(move |i| {
                let (block_row, column) = match self.direction {
                    Direction::Across => (o, i),
                    Direction::Down => (i, o),
                };
                let top = (block_row * self.block_rows).saturating_sub(self.halo_rows);
                let bottom = ((block_row + 1) * self.block_rows + self.halo_rows).min(self.rows);
                let left = column * self.block_bytes;
                let right = (left + self.block_bytes).min(self.row_bytes);
                (top..bottom).flat_map(move |y| {
                    let first = (y * self.row_bytes + left) / TRANSACTION_BYTES;
                    let end = (y * self.row_bytes + right).div_ceil(TRANSACTION_BYTES);
                    (first..end).map(|line| line * TRANSACTION_BYTES)
                })
            })
        })
    }

    /// The most lines that [`lines`](Self::lines) has.
    pub fn lines_max(self) -> u64 {
        let columns = self.row_bytes.div_ceil(self.block_bytes.max(1));
        let rows_each = self.block_rows.saturating_add(self.halo_rows.saturating_mul(2));
        let rows = self.rows.div_ceil(self.block_rows.max(1)).saturating_mul(rows_each);
        // A column that begins inside a line has that line, too.
        let width = self.block_bytes.min(self.row_bytes);
        let each = width
            .div_ceil(TRANSACTION_BYTES)
            .saturating_add(u64::from(!width.is_multiple_of(TRANSACTION_BYTES)));
        rows.saturating_mul(columns).saturating_mul(each)
    }

    /// Bytes of the array.
    pub const fn len_bytes(self) -> u64 {
        self.row_bytes * self.rows
    }
}

/// One pattern over one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Index of the buffer in [`Workload::buffers`].
    pub buffer: usize,
    /// Write, or read.
    pub write: bool,
    /// The order of the lines.
    pub tiles: Tiles,
}

/// The transactions of a master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Streams, interleaved in proportion to their lengths.
    Streams(Vec<Stream>),
    /// These, in their order.
    Listed(Arc<[Transaction]>),
}

/// A device, or a core, with an IOMMU of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    /// Its kind: camera, display, scaler, blender, accelerator. Cameras and displays have frames to
    /// keep up with, where a plan says how many a second.
    pub name: &'static str,
    /// Its transactions.
    pub traffic: Traffic,
}

impl Master {
    /// Creates one whose streams are interleaved.
    pub fn streaming(name: &'static str, streams: &[Stream]) -> Self {
        Self { name, traffic: Traffic::Streams(streams.to_vec()) }
    }

    /// Creates one with these transactions, in their order.
    pub fn listed(name: &'static str, transactions: impl IntoIterator<Item = Transaction>) -> Self {
        Self { name, traffic: Traffic::Listed(transactions.into_iter().collect()) }
    }

    /// Returns true if it reads a buffer, or writes it.
    pub fn uses(&self, buffer: usize, write: bool) -> bool {
        match &self.traffic {
            Traffic::Streams(all) => {
                all.iter().any(|one| one.buffer == buffer && one.write == write)
            }
            Traffic::Listed(all) => {
                all.iter().any(|one| one.buffer == buffer && one.write == write)
            }
        }
    }

    /// Returns the same on other buffers, so many places on.
    #[must_use]
    pub fn moved(&self, buffers: usize) -> Self {
        let traffic = match &self.traffic {
            Traffic::Streams(all) => {
                let moved = |one: &Stream| Stream { buffer: one.buffer + buffers, ..*one };
                Traffic::Streams(all.iter().map(moved).collect())
            }
            Traffic::Listed(all) => {
                let moved =
                    |one: &Transaction| Transaction { buffer: one.buffer + buffers, ..*one };
                Traffic::Listed(all.iter().map(moved).collect())
            }
        };
        Self { name: self.name, traffic }
    }

    /// The most transactions that it has.
    pub fn transactions_max(&self) -> u64 {
        match &self.traffic {
            Traffic::Streams(all) => {
                all.iter().fold(0, |sum, one| sum.saturating_add(one.tiles.lines_max()))
            }
            Traffic::Listed(all) => all.len() as u64,
        }
    }

    /// The master's transactions in order. Costs O(streams) a transaction.
    pub fn transactions(&self) -> Box<dyn Iterator<Item = Transaction> + '_> {
        match &self.traffic {
            Traffic::Streams(streams) => Box::new(interleaved(streams)),
            Traffic::Listed(all) => Box::new(all.iter().copied()),
        }
    }
}

/// The transactions of streams, interleaved in proportion to their lengths.
fn interleaved(streams: &[Stream]) -> impl Iterator<Item = Transaction> {
    let mut streams: Vec<_> = streams
        .iter()
        .map(|s| (*s, s.tiles.lines().count() as u128, 0u128, s.tiles.lines()))
        .collect();
    std::iter::from_fn(move || {
        let next = streams
            .iter_mut()
            .filter(|(_, len, done, _)| done < len)
            // (2 a + 1) / len_a < (2 b + 1) / len_b, without rounding.
            .reduce(|a, b| if (2 * b.2 + 1) * a.1 < (2 * a.2 + 1) * b.1 { b } else { a })?;
        next.2 += 1;
        let offset_bytes = next.3.next()?;
        Some(Transaction { buffer: next.0.buffer, offset_bytes, write: next.0.write })
    })
}

/// The paper's two kinds of workload, and those that are not the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Category {
    /// Linear access, high address locality.
    I,
    /// Access with low address locality.
    II,
    /// Neither: a workload that another crate added, on which the paper says nothing.
    Added,
}

impl Category {
    /// The category's number as in Table 4.
    pub const fn title(self) -> &'static str {
        match self {
            Self::I => "I",
            Self::II => "II",
            Self::Added => "added",
        }
    }
}

/// Masters that work on shared buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Its name in the figures, as in Table 4.
    pub name: &'static str,
    /// As in Table 4.
    pub category: Category,
    /// The length of each buffer in bytes. One buffer is one request.
    pub buffers: Vec<u64>,
    /// In the table's order.
    pub masters: Vec<Master>,
}

impl Workload {
    /// The most transactions of all masters.
    pub fn transactions_max(&self) -> u64 {
        let masters = self.masters.iter().map(Master::transactions_max);
        masters.fold(0, u64::saturating_add)
    }

    /// Pages of all buffers.
    pub fn pages(&self) -> u64 {
        self.buffers.iter().fold(0, |sum, len_bytes| sum.saturating_add(len_bytes.div_ceil(4096)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tiles: Tiles) -> Vec<u64> {
        tiles.lines().collect()
    }

    #[test]
    fn raster_is_every_line_in_order() {
        let expected: Vec<u64> = (0..57_600).map(|i| i * 64).collect();
        assert_eq!(lines(Tiles::raster(5120, 720)), expected);
    }

    #[test]
    fn vertical_steps_by_the_row() {
        let all = lines(Tiles::vertical(5120, 720, 64));
        assert_eq!(all.len(), 57_600);
        assert_eq!(&all[..3], &[0, 5120, 10_240]);
        assert_eq!(all[720], 64);
        let wide = lines(Tiles::vertical(5120, 720, 128));
        assert_eq!(&wide[..4], &[0, 64, 5120, 5184]);
    }

    /// Rows of 2400 bytes begin in the middle of a line every other time:
    /// the shared line is transferred for both blocks that touch it.
    #[test]
    fn unaligned_blocks_touch_shared_lines() {
        let tiles = Tiles { block_rows: 2, ..Tiles::vertical(2400, 4, 128) };
        let first: Vec<u64> = lines(tiles).into_iter().take(10).collect();
        assert_eq!(first, [0, 64, 2368, 2432, 2496, 4800, 4864, 7168, 7232, 7296]);
    }

    #[test]
    fn halo_rows_are_clipped_at_the_edges() {
        let tiles = Tiles { block_bytes: 64, block_rows: 2, halo_rows: 1, ..Tiles::raster(128, 4) };
        let rows: Vec<u64> = lines(tiles).into_iter().map(|line| line / 128).collect();
        assert_eq!(rows, [0, 1, 2, 0, 1, 2, 1, 2, 3, 1, 2, 3]);
    }
}
