//! A film of a real machine: its snapshots in sequence.

use swath_arch::{Extent, Pfn};
use swath_trace::machine::{FrameKind, Snapshot};

use crate::film::{COLUMNS, CellUse, Cells, Film, Reel, map, size};

/// The film of these snapshots, each with its name, in their order; all of one machine. Frames
/// whose state is unknown count as unmovable. O(runs + cells) for each.
pub fn film(snapshots: &[(String, Snapshot)]) -> Film {
    let ranges = snapshots.iter().flat_map(|(_, snapshot)| snapshot.ranges());
    let spans = ranges.map(|range| range.frames()).filter(|frames| !frames.is_empty());
    let ends = spans.map(|frames| (frames.start, frames.end()));
    let whole = ends.reduce(|(first, end), (start, past)| (first.min(start), end.max(past)));
    let (first, end) = whole.unwrap_or((Pfn::new(0), Pfn::new(1)));
    let cells = Cells::new(Extent::new(first, end.raw() - first.raw()));
    let cell_frames = cells.frames();
    Film {
        title: "this machine".to_owned(),
        caption: format!(
            "Each cell is {} of physical memory, {} a row. Memory of the kernel, of hardware and of \
             unknown use counts as unmovable. A gap is a hole. Below the map: the cells that are \
             wholly free, their longest run, and its course.",
            size(cell_frames),
            size(COLUMNS as u64 * cell_frames),
        ),
        cell_frames,
        moments: snapshots.iter().map(|(name, _)| name.clone()).collect(),
        reels: vec![Reel {
            design: "This machine".to_owned(),
            maps: snapshots.iter().map(|(_, snapshot)| map_of(snapshot, cells)).collect(),
        }],
    }
}

/// Frames of a cell that are there, and those in use by movable and by other owners.
#[derive(Clone, Copy, Default)]
struct CellFrames {
    present: u64,
    movable: u64,
    unmovable: u64,
}

fn map_of(snapshot: &Snapshot, cells: Cells) -> String {
    let extents: Vec<Extent> = cells.extents().collect();
    let mut counts = vec![CellFrames::default(); extents.len()];
    for run in snapshot.runs() {
        let first = extents.partition_point(|cell| cell.end() <= run.extent.start);
        for (cell, counts) in extents.iter().zip(&mut counts).skip(first) {
            let frames = cell.intersect(run.extent).count;
            if frames == 0 {
                break;
            }
            let (movable, unmovable) = match run.kind {
                FrameKind::Absent => continue,
                FrameKind::Free => (0, 0),
                FrameKind::File | FrameKind::Anon | FrameKind::LargeFolio | FrameKind::HugeTlb => {
                    (frames, 0)
                }
                FrameKind::Unknown
                | FrameKind::Slab
                | FrameKind::PageTable
                | FrameKind::Kernel
                | FrameKind::Reserved
                | FrameKind::Offline => (0, frames),
            };
            counts.present += frames;
            counts.movable += movable;
            counts.unmovable += unmovable;
        }
    }
    let of = |&CellFrames { present, movable, unmovable }: &CellFrames| {
        CellUse::of(present, movable, unmovable, false)
    };
    map(counts.iter().map(of))
}
