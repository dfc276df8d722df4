//! The workloads of Table 4 of Duong and Hur by name, and the sizes that they are made from.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::papers::page_buddy::workload::added::{AddedId, all_added};
use crate::papers::page_buddy::workload::streams::{
    Category, Direction, Master, Stream, Tiles, Workload,
};

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

/// The names of Table 4's workloads and of those that were [added](crate::papers::page_buddy::workload::add),
/// as a plan writes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// One that another crate added, in the order of addition.
    Added(AddedId),
}

impl Serialize for WorkloadName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for WorkloadName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| {
            let known: Vec<String> =
                Self::known().into_iter().map(|known| format!("`{}`", known.as_str())).collect();
            let known = known.join(", ");
            D::Error::custom(format!("unknown variant `{name}`, expected one of {known}"))
        })
    }
}

impl JsonSchema for WorkloadName {
    fn schema_name() -> Cow<'static, str> {
        "WorkloadName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Self::known().into_iter().map(Self::as_str).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

impl WorkloadName {
    /// The paper's nine, in the table's order.
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

    /// The paper's nine, then those that were added.
    pub fn known() -> Vec<Self> {
        Self::with_added(&Self::ALL)
    }

    /// Those of a plan, then those that were added and that the plan does not name.
    pub fn with_added(of_plan: &[Self]) -> Vec<Self> {
        let added = all_added().map(Self::Added).filter(|added| !of_plan.contains(added));
        of_plan.iter().copied().chain(added).collect()
    }

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
            Self::Added(id) => id.name(),
        }
    }

    /// The name as in Table 4.
    pub fn title(self) -> &'static str {
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
            Self::Added(id) => id.title(),
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
            Self::Added(_) => Category::Added,
        }
    }

    /// The workload of this name, as a plan writes it.
    pub fn named(name: &str) -> Option<Self> {
        Self::known().into_iter().find(|known| known.as_str() == name)
    }

    /// The workload in these sizes; one that was added has its own.
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
        let master = Master::streaming;
        let filter = |halo| {
            let source = blocks(image, halo, Direction::Across);
            vec![master("accelerator", &[read(0, source), write(1, image)])]
        };
        let (arrays, masters) = match self {
            Self::Added(id) => return id.workload(),
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
    use crate::papers::page_buddy::workload::added::PAPER;
    use crate::papers::page_buddy::workload::streams::{TRANSACTION_BYTES, Traffic};

    #[test]
    fn names_are_those_of_plans() {
        for name in WorkloadName::ALL {
            let in_plan = serde_json::to_value(name).unwrap();
            assert_eq!(in_plan.as_str(), Some(name.as_str()));
            assert_eq!(WorkloadName::named(name.as_str()), Some(name));
        }
        let table = WorkloadName::ALL.map(|name| (name.as_str(), name.title()));
        assert_eq!(table, PAPER);
        assert_eq!(WorkloadName::known(), WorkloadName::ALL);
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
                let Traffic::Streams(streams) = &master.traffic else { unreachable!("listed") };
                for stream in streams {
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
