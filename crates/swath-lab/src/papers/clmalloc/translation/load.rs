//! Segments in memory, and the requests of an accelerator that works on them.

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{BASE_PAGE_BYTES, Extent, Order, PageRange, VirtAddr, Vpn};
use swath_frame::segment::{AreaSpace, Segment, SegmentRequest};
use swath_hw::{TRANSACTION_BYTES, Transaction};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES};
use crate::papers::clmalloc::segments::Candidate;
use crate::source::memory::Random;

/// The work of an accelerator on its segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Reads line after line, from a random one on.
    Sequential,
    /// Reads down a column of a matrix whose rows are a page and a line long.
    Column,
    /// Reads at the first of two places and writes at the second, both line after line in segments of
    /// their own.
    Copy,
    /// Reads a random line of a random segment.
    Random,
}

impl Load {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Column => "column",
            Self::Copy => "copy",
            Self::Random => "random",
        }
    }
}

/// Segments of an accelerator's space with the frames behind them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    /// The pages of each segment.
    pub(crate) segments: Vec<PageRange>,
    /// The extents behind them, each with its first page.
    pub(crate) extents: Vec<(Vpn, Extent)>,
    /// The areas of the machine, each with its first page: the accelerator's whole space.
    pub(crate) areas: Vec<(Vpn, Extent)>,
}

/// Allocates so many segments one after the other, as CLMalloc does.
pub(crate) fn place(machine: &AreasPlan, mib: u64, count: u64) -> Result<Placed, String> {
    Candidate::PreAllocated.with(machine, Order::BASE, |allocator| {
        let mut segments = Vec::new();
        for _ in 0..count {
            let segment = allocator.allocate(&SegmentRequest::new(mib * MIB_FRAMES));
            segments.push(segment.map_err(|error| error.to_string())?);
        }
        let space = allocator.space();
        let whole = Segment::new(0, space.total_frames());
        Ok(Placed {
            extents: segments.iter().flat_map(|&segment| behind(space, segment)).collect(),
            areas: behind(space, whole).collect(),
            segments: segments
                .iter()
                .map(|segment| PageRange::new(Vpn::new(segment.start), segment.count))
                .collect(),
        })
    })?
}

/// The extents behind a segment, each with its first page.
fn behind(space: AreaSpace<'_>, segment: Segment) -> impl Iterator<Item = (Vpn, Extent)> {
    let mut next = Vpn::new(segment.start);
    space.extents(segment).map(move |extent| {
        let page = next;
        next += extent.count;
        (page, extent)
    })
}

/// The requests of one accelerator.
pub(crate) fn transactions(
    load: Load,
    segments: &[PageRange],
    count: u64,
    random: &mut Random,
) -> Vec<Transaction> {
    const LINES: u64 = BASE_PAGE_BYTES / TRANSACTION_BYTES;
    // All segments as one matrix or stream of lines.
    let each = segments.first().map_or(1, |pages| pages.count) * LINES;
    let all = each * segments.len() as u64;
    let at = |line: u64| {
        let (segment, inside) = ((line % all / each) as usize, line % each);
        let start = segments.get(segment).map_or(0, |pages| pages.start.address().raw());
        VirtAddr::new(start + inside * TRANSACTION_BYTES)
    };
    let read = |line: u64| Transaction { addr: at(line), write: false };
    let from = random.random_range(0..all);
    match load {
        Load::Sequential => (0..count).map(|n| read(from + n)).collect(),
        Load::Column => (0..count).map(|n| read(from + n * (LINES + 1))).collect(),
        Load::Copy => {
            let half = all / 2;
            let one = |n: u64| Transaction {
                addr: at(from + n / 2 + if n % 2 == 1 { half } else { 0 }),
                write: n % 2 == 1,
            };
            (0..count).map(one).collect()
        }
        Load::Random => (0..count).map(|_| read(random.random_range(0..all))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::areas::machine;
    use crate::source::memory::random;

    #[test]
    fn segments_cross_areas_and_requests_stay_in_them() {
        let machine = machine("4", &[(0, 4), (6, 4), (12, 4), (18, 4)]);
        let placed = place(&machine, 5, 3).unwrap();
        assert_eq!(placed.segments.len(), 3);
        // 4 + 1, 3 + 2, 2 + 3 MiB.
        let counts: Vec<u64> =
            placed.extents.iter().map(|(_, extent)| extent.count / 256).collect();
        assert_eq!(counts, [4, 1, 3, 2, 2, 3]);
        // Four areas of 4 MiB, one behind the other in the accelerator's space.
        let areas: Vec<[u64; 3]> = placed
            .areas
            .iter()
            .map(|(page, extent)| [page.raw(), extent.start.raw(), extent.count].map(|n| n / 256))
            .collect();
        assert_eq!(areas, [[0, 0, 4], [4, 6, 4], [8, 12, 4], [12, 18, 4]]);
        assert!(place(&machine, 5, 4).is_err());
        for load in [Load::Sequential, Load::Column, Load::Copy, Load::Random] {
            let requests = transactions(load, &placed.segments, 5000, &mut random(1, 0));
            assert_eq!(requests.len(), 5000);
            for request in &requests {
                let page = request.addr.page();
                assert!(placed.segments.iter().any(|pages| pages.contains(page)), "{load:?}");
                assert_eq!(request.addr.raw() % TRANSACTION_BYTES, 0);
            }
            let writes = requests.iter().filter(|request| request.write).count();
            assert_eq!(writes, if load == Load::Copy { 2500 } else { 0 });
        }
        let column = transactions(Load::Column, &placed.segments, 2, &mut random(3, 0));
        assert_eq!(column[1].addr.raw().abs_diff(column[0].addr.raw()) % 4160, 0);
    }
}
