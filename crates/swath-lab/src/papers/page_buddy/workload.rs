//! The workloads of Table 4 of Duong and Hur as streams of 64-byte
//! transactions.
//!
//! Every access pattern of the table is one shape, [`Tiles`]: an array of
//! `rows` rows of `row_bytes` bytes, cut into blocks of `block_bytes` by
//! `block_rows`, visited across or down. A raster scan has one block to a row;
//! a vertical scan has narrow blocks, visited down. What a block row touches
//! is transferred as the aligned 64-byte lines it touches, in ascending order.
//!
//! A master with several streams interleaves them in proportion to their
//! lengths: transaction j of a stream of n is due at (j + 1/2) / n of the
//! master's run, and the earlier stream goes first on a tie. Blending, with
//! three streams of one length, therefore reads A, reads B, writes C, and so on.

use schemars::JsonSchema;
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

/// A DMA device with an IOMMU of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    /// Its kind: camera, display, scaler, blender, accelerator.
    pub name: &'static str,
    /// Its streams, interleaved as the module's text says.
    pub streams: Vec<Stream>,
}

impl Master {
    /// The master's transactions in order. Costs O(streams) a transaction.
    pub fn transactions(&self) -> impl Iterator<Item = Transaction> {
        let mut streams: Vec<_> = self
            .streams
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
}

/// The paper's two kinds of workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Category {
    /// Linear access, high address locality.
    I,
    /// Access with low address locality.
    II,
}

impl Category {
    /// The category's number as in Table 4.
    pub const fn title(self) -> &'static str {
        match self {
            Self::I => "I",
            Self::II => "II",
        }
    }
}

/// Masters that work on shared buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// As in Table 4.
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
        let streams = self.masters.iter().flat_map(|master| &master.streams);
        streams.fold(0, |sum, stream| sum.saturating_add(stream.tiles.lines_max()))
    }

    /// Pages of all buffers.
    pub fn pages(&self) -> u64 {
        self.buffers.iter().fold(0, |sum, len_bytes| sum.saturating_add(len_bytes.div_ceil(4096)))
    }
}

/// The sizes that the workloads are made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shapes {
    /// Pixels in an image row.
    pub image_width: u64,
    /// Rows in an image.
    pub image_height: u64,
    /// Bytes in a pixel.
    pub pixel_bytes: u64,
    /// Rows and columns of a matrix.
    pub matrix_elements: u64,
    /// Bytes in an element.
    pub element_bytes: u64,
    /// Bytes of a row that a vertical scan reads before it steps down. The
    /// paper does not say; one transaction is the least.
    pub column_bytes: u64,
    /// Bytes of a row in a block of the "block hor." and "block ver." patterns.
    pub block_bytes: u64,
    /// Rows in such a block.
    pub block_rows: u64,
}

impl Default for Shapes {
    /// The paper's image (1280 × 720 × 4 bytes: 900 pages) and matrix
    /// (600 × 600 floats). Columns of two transactions and blocks of 16 × 16
    /// elements are the reading of the paper that comes closest to its figures
    /// (study `pbs-readings`).
    fn default() -> Self {
        Self {
            image_width: 1280,
            image_height: 720,
            pixel_bytes: 4,
            matrix_elements: 600,
            element_bytes: 4,
            column_bytes: 128,
            block_bytes: 64,
            block_rows: 16,
        }
    }
}

impl Shapes {
    /// The sizes that were chosen by their results, as a study's list of fitted parameters
    /// has them.
    pub fn fitted(&self) -> Vec<String> {
        let open = "open in Table 4 (study pbs-readings)";
        let elements = self.block_bytes / self.element_bytes.max(1);
        vec![
            format!("columns of {} bytes in vertical scans, {open}", self.column_bytes),
            format!("blocks of {elements} × {} elements, {open}", self.block_rows),
        ]
    }
}

/// The names of Table 4's workloads, as a plan writes them.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    /// Camera writes, display reads, both raster.
    CameraPreview,
    /// Camera writes, scaler reads and writes 1.5 times each side, display
    /// reads; all raster.
    ImageScaling,
    /// Blender reads two images and writes one, raster.
    ImageBlending,
    /// Accelerator reads blocks with one row of halo (a 3 × 3 filter) across,
    /// writes raster.
    EdgeDetection,
    /// Accelerator reads blocks with two rows of halo (a 5 × 5 kernel) across,
    /// writes raster.
    Convolution,
    /// Camera writes columns, display reads raster.
    RotatedPreview,
    /// Display reads columns.
    RotatedDisplay,
    /// Accelerator reads one matrix by rows and the other by blocks downwards,
    /// writes by rows; one pass over each, as Table 4 describes the traffic.
    MatrixMultiplication,
    /// Accelerator reads blocks across and writes blocks downwards.
    MatrixTranspose,
}

impl WorkloadName {
    /// All nine, in the table's order.
    pub const ALL: [Self; 9] = [
        Self::CameraPreview,
        Self::ImageScaling,
        Self::ImageBlending,
        Self::EdgeDetection,
        Self::Convolution,
        Self::RotatedPreview,
        Self::RotatedDisplay,
        Self::MatrixMultiplication,
        Self::MatrixTranspose,
    ];

    /// The name as a plan writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CameraPreview => "camera-preview",
            Self::ImageScaling => "image-scaling",
            Self::ImageBlending => "image-blending",
            Self::EdgeDetection => "edge-detection",
            Self::Convolution => "convolution",
            Self::RotatedPreview => "rotated-preview",
            Self::RotatedDisplay => "rotated-display",
            Self::MatrixMultiplication => "matrix-multiplication",
            Self::MatrixTranspose => "matrix-transpose",
        }
    }

    /// The name as in Table 4.
    pub const fn title(self) -> &'static str {
        match self {
            Self::CameraPreview => "Camera preview",
            Self::ImageScaling => "Image scaling",
            Self::ImageBlending => "Image blending",
            Self::EdgeDetection => "Edge detection",
            Self::Convolution => "Convolution",
            Self::RotatedPreview => "Rotated preview",
            Self::RotatedDisplay => "Rotated display",
            Self::MatrixMultiplication => "Matrix multiplication",
            Self::MatrixTranspose => "Matrix transpose",
        }
    }

    /// The category as in Table 4.
    pub const fn category(self) -> Category {
        match self {
            Self::CameraPreview
            | Self::ImageScaling
            | Self::ImageBlending
            | Self::EdgeDetection
            | Self::Convolution => Category::I,
            Self::RotatedPreview
            | Self::RotatedDisplay
            | Self::MatrixMultiplication
            | Self::MatrixTranspose => Category::II,
        }
    }

    /// The workload of this name, as a plan writes it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// The workload in these sizes.
    pub fn build(self, shapes: &Shapes) -> Workload {
        let row = shapes.image_width * shapes.pixel_bytes;
        let rows = shapes.image_height;
        let image = Tiles::raster(row, rows);
        let columns = Tiles::vertical(row, rows, shapes.column_bytes);
        let matrix_row = shapes.matrix_elements * shapes.element_bytes;
        let matrix = Tiles::raster(matrix_row, shapes.matrix_elements);
        let blocks = |array: Tiles, halo_rows, direction| Tiles {
            block_bytes: shapes.block_bytes,
            block_rows: shapes.block_rows,
            halo_rows,
            direction,
            ..array
        };
        let read = |buffer, tiles| Stream { buffer, write: false, tiles };
        let write = |buffer, tiles| Stream { buffer, write: true, tiles };
        let master = |name, streams: &[Stream]| Master { name, streams: streams.to_vec() };
        let filter = |halo| {
            let source = blocks(image, halo, Direction::Across);
            vec![master("accelerator", &[read(0, source), write(1, image)])]
        };
        let (arrays, masters) = match self {
            Self::CameraPreview => (
                vec![image],
                vec![master("camera", &[write(0, image)]), master("display", &[read(0, image)])],
            ),
            Self::ImageScaling => {
                let scaled = Tiles::raster(row * 3 / 2, rows * 3 / 2);
                (
                    vec![image, scaled],
                    vec![
                        master("camera", &[write(0, image)]),
                        master("scaler", &[read(0, image), write(1, scaled)]),
                        master("display", &[read(1, scaled)]),
                    ],
                )
            }
            Self::ImageBlending => (
                vec![image; 3],
                vec![master("blender", &[read(0, image), read(1, image), write(2, image)])],
            ),
            Self::EdgeDetection => (vec![image; 2], filter(1)),
            Self::Convolution => (vec![image; 2], filter(2)),
            Self::RotatedPreview => (
                vec![image],
                vec![master("camera", &[write(0, columns)]), master("display", &[read(0, image)])],
            ),
            Self::RotatedDisplay => (vec![image], vec![master("display", &[read(0, columns)])]),
            Self::MatrixMultiplication => (
                vec![matrix; 3],
                vec![master(
                    "accelerator",
                    &[
                        read(0, matrix),
                        read(1, blocks(matrix, 0, Direction::Down)),
                        write(2, matrix),
                    ],
                )],
            ),
            Self::MatrixTranspose => (
                vec![matrix; 2],
                vec![master(
                    "accelerator",
                    &[
                        read(0, blocks(matrix, 0, Direction::Across)),
                        write(1, blocks(matrix, 0, Direction::Down)),
                    ],
                )],
            ),
        };
        let buffers = arrays.iter().map(|array| array.len_bytes()).collect();
        Workload { name: self.title(), category: self.category(), buffers, masters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tiles: Tiles) -> Vec<u64> {
        tiles.lines().collect()
    }

    #[test]
    fn names_are_those_of_plans() {
        for name in WorkloadName::ALL {
            let in_plan = serde_json::to_value(name).unwrap();
            assert_eq!(in_plan.as_str(), Some(name.as_str()));
            assert_eq!(WorkloadName::named(name.as_str()), Some(name));
        }
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

    /// Every workload covers every line of every buffer it reads or writes.
    #[test]
    fn workloads_cover_their_buffers() {
        for name in WorkloadName::ALL {
            let workload = name.build(&Shapes::default());
            for master in &workload.masters {
                let mut seen: Vec<Vec<bool>> = workload
                    .buffers
                    .iter()
                    .map(|len| vec![false; len.div_ceil(TRANSACTION_BYTES) as usize])
                    .collect();
                for t in master.transactions() {
                    seen[t.buffer][(t.offset_bytes / TRANSACTION_BYTES) as usize] = true;
                }
                for stream in &master.streams {
                    assert!(seen[stream.buffer].iter().all(|&s| s), "{}", workload.name);
                }
            }
        }
        let image = WorkloadName::RotatedDisplay.build(&Shapes::default());
        assert_eq!(image.buffers[0].div_ceil(4096), 900);
    }

    #[test]
    fn streams_interleave_in_proportion() {
        let workload = WorkloadName::ImageBlending.build(&Shapes::default());
        let head: Vec<_> = workload.masters[0]
            .transactions()
            .take(6)
            .map(|t| (t.buffer, t.offset_bytes, t.write))
            .collect();
        assert_eq!(
            head,
            [
                (0, 0, false),
                (1, 0, false),
                (2, 0, true),
                (0, 64, false),
                (1, 64, false),
                (2, 64, true)
            ]
        );
        let scaling = WorkloadName::ImageScaling.build(&Shapes::default());
        let (mut reads, mut writes) = (0u64, 0u64);
        for t in scaling.masters[1].transactions() {
            if t.write {
                writes += 1;
            } else {
                reads += 1;
            }
            assert!((writes as f64 - reads as f64 * 2.25).abs() <= 3.0);
        }
    }
}
