//! Readings of how blocks of a power of two are placed for a segment of the global bitmap (Zhang, Lu
//! and Zhang, sections 4.1 and 4.2), and the requests that each serves. The paper tells of the rounding
//! and not of the places, and serves nine requests of 20 MiB.

use crate::papers::clmalloc::areas::AreasPlan;

/// A reading. The piece of a segment in an area is rounded up to a block unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// The whole request is one block, wherever it begins.
    Whole,
    /// Blocks are aligned to their size from the area's start on, and cut off where it ends: the one
    /// that [`GlobalBitmap`](swath_frame::segment::GlobalBitmap) follows.
    AlignedCut,
    /// As before, but a block has to lie in its area whole.
    AlignedWhole,
    /// Blocks begin anywhere, and have to lie in their areas whole.
    AnywhereWhole,
    /// Blocks begin anywhere, and are cut off where their areas end.
    AnywhereCut,
    /// All areas but the last give exactly what is left in them, and the last one a block, anywhere: "all
    /// the remaining local pages" (section 4.1).
    LastArea,
    /// The excess beyond the request is given back at once (section 4.1).
    GivenBack,
}

impl Reading {
    pub(crate) const ALL: [Self; 7] = [
        Self::Whole,
        Self::AlignedCut,
        Self::AlignedWhole,
        Self::AnywhereWhole,
        Self::AnywhereCut,
        Self::LastArea,
        Self::GivenBack,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Whole => "the whole request one block",
            Self::AlignedCut => "a block in each area, aligned, cut at its end (here)",
            Self::AlignedWhole => "a block in each area, aligned, whole",
            Self::AnywhereWhole => "a block in each area, anywhere, whole",
            Self::AnywhereCut => "a block in each area, anywhere, cut at its end",
            Self::LastArea => "a block in the last area alone, cut at its end",
            Self::GivenBack => "excess given back",
        }
    }

    /// The MiB that a segment from `start` on holds, up to the end of which place; `None` if it may not
    /// begin there. `areas` are the ends of the areas laid end to end.
    fn held_end(self, areas: &[u64], start: u64, count: u64) -> Option<u64> {
        match self {
            Self::Whole => return Some(start + count.next_power_of_two()),
            Self::GivenBack => return Some(start + count),
            _ => {}
        }
        let (mut at, past, mut held) = (start, start + count, start);
        while at < past {
            let area = areas.partition_point(|&end| end <= at);
            let base = area.checked_sub(1).map_or(0, |before| areas[before]);
            let end = *areas.get(area)?;
            let piece = past.min(end) - at;
            let exact = self == Self::LastArea && past > end;
            let block = if exact { piece } else { piece.next_power_of_two() };
            let aligned = !matches!(self, Self::AlignedCut | Self::AlignedWhole)
                || (at - base).is_multiple_of(block);
            let whole = at + block <= end;
            if !aligned || !whole && matches!(self, Self::AlignedWhole | Self::AnywhereWhole) {
                return None;
            }
            held = (at + block).min(end);
            at += piece;
        }
        Some(held)
    }

    /// The number of requests of `mib` that are served one after the other, each at the lowest place,
    /// in steps of a MiB.
    pub(crate) fn served(self, machine: &AreasPlan, mib: u64) -> u64 {
        let mut areas = Vec::new();
        for (_, len) in machine.areas() {
            areas.push(areas.last().copied().unwrap_or(0) + len);
        }
        let total = areas.last().copied().unwrap_or(0);
        // Nothing is released, so that places only go up.
        let (mut from, mut served) = (0, 0);
        loop {
            let fits = |start| self.held_end(&areas, start, mib).filter(|&end| end <= total);
            let Some(end) = (from..total).find_map(fits) else { return served };
            (from, served) = (end, served + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::areas::machine;
    use crate::papers::clmalloc::segments::{Candidate, serve};
    use swath_arch::Order;

    #[test]
    fn the_reading_here_is_the_global_bitmaps() {
        let shapes: [&[(u64, u64)]; 3] =
            [&[(0, 16), (20, 16), (40, 16), (60, 16)], &[(0, 7), (9, 31), (48, 3)], &[(0, 64)]];
        for areas in shapes {
            let machine = machine("some", areas);
            for mib in 1..=24 {
                let served = |candidate: Candidate| {
                    candidate.with(&machine, Order::BASE, |all| serve(all, mib, 1000)).unwrap()
                };
                let exact = Reading::GivenBack.served(&machine, mib);
                assert_eq!(exact, served(Candidate::PreAllocated), "{mib} MiB of {areas:?}");
                if areas.iter().all(|(_, len)| len.is_power_of_two()) {
                    let here = Reading::AlignedCut.served(&machine, mib);
                    assert_eq!(here, served(Candidate::GlobalBitmap), "{mib} MiB of {areas:?}");
                }
            }
        }
    }

    #[test]
    fn no_reading_serves_nine() {
        let areas: Vec<(u64, u64)> = (0..16).map(|i| (24 * i, 16)).collect();
        let machine = machine("16", &areas);
        let served = Reading::ALL.map(|reading| reading.served(&machine, 20));
        assert_eq!(served, [8, 10, 10, 10, 12, 12, 12]);
    }
}
