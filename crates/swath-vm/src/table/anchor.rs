//! The distance between anchors that a space should have: the operating system's
//! part of hybrid TLB coalescing (Park et al., ISCA 2017), which counts the TLB
//! entries that each distance would need and takes the least.

use swath_arch::{Order, PageRange};

/// The distances to choose from, as log2 of pages.
const DISTANCES: core::ops::RangeInclusive<u8> = 1..=16;

/// Counts the TLB entries that the run needs with anchors `2^log2` pages apart: see
/// [`anchor_distance`].
fn entries(run: PageRange, log2: u8, contiguity_max: u64) -> u64 {
    let distance = 1_u64 << log2;
    let to_first = run.start.raw().wrapping_neg() & (distance - 1);
    if to_first >= run.count {
        return run.count;
    }
    let covered = run.count - to_first;
    // An anchor's stretch of n pages: one entry, and one for each page that
    // the anchor cannot say.
    let stretch = |n: u64| 1 + n.saturating_sub(contiguity_max.max(1));
    let tail = covered % distance;
    to_first
        .saturating_add((covered / distance).saturating_mul(stretch(distance)))
        .saturating_add(if tail > 0 { stretch(tail) } else { 0 })
}

/// Returns the distance, 2^1 to 2^16 pages, that needs the fewest TLB entries for the
/// mapped runs; the smallest of them if several do, 2^1 if there are no runs.
///
/// A run is a range of pages that are contiguous virtually and physically.
/// `contiguity_max` is the longest contiguity that an anchor can say: the field
/// saturates there (`format.anchor().max()`, or `u64::MAX` for the ideal); less
/// than 1 counts as 1, the anchor itself.
///
/// Cost of distance D over the runs `[s, e)`, with the anchors at the multiples
/// of D: pages from s to the first anchor cost one entry each (all of the run if
/// it holds no anchor); the stretch of n pages from an anchor to the next
/// anchor or to e costs `1 + max(0, n - contiguity_max)`.
///
/// Takes O(runs × 16) steps and one pass.
pub fn anchor_distance(runs: impl IntoIterator<Item = PageRange>, contiguity_max: u64) -> Order {
    let mut costs = [0_u64; 16];
    for run in runs {
        for (cost, log2) in costs.iter_mut().zip(DISTANCES) {
            *cost = cost.saturating_add(entries(run, log2, contiguity_max));
        }
    }
    let best = costs.iter().zip(DISTANCES).min_by_key(|&(cost, log2)| (*cost, log2));
    match best.and_then(|(_, log2)| Order::new(log2)) {
        Some(order) => order,
        None => Order::known(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_arch::Vpn;

    /// Counts the same page by page: a page is free if the last anchor at or
    /// before it stands in the run and reaches it.
    fn entries_by_page(run: PageRange, log2: u8, contiguity_max: u64) -> u64 {
        run.iter()
            .filter(|&page| {
                let anchor = page.align_down(log2.into());
                let reached =
                    anchor != page && run.contains(anchor) && page - anchor < contiguity_max;
                !reached
            })
            .count() as u64
    }

    #[test]
    fn cost_is_the_count_of_pages_that_no_anchor_covers() {
        for start in 0..40 {
            for count in 0..80 {
                let run = PageRange::new(Vpn::new(start), count);
                for log2 in 1..=6 {
                    for max in [1, 3, 16, u64::MAX] {
                        assert_eq!(
                            entries(run, log2, max),
                            entries_by_page(run, log2, max),
                            "{run:?} distance 2^{log2} max {max}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn picks_what_fits_the_runs() {
        let run = |start, count| PageRange::new(Vpn::new(start), count);
        // Runs of 64 pages, aligned: 64 covers each with one entry.
        let aligned = (0..10).map(|i| run(i * 1024, 64));
        assert_eq!(anchor_distance(aligned, u64::MAX), Order::known(6));
        // Single pages never share an entry: any distance does.
        assert_eq!(anchor_distance((0..9).map(|i| run(i * 3, 1)), u64::MAX), Order::known(1));
        assert_eq!(anchor_distance([], u64::MAX), Order::known(1));
        // A field of two bits says at most 3 pages, so 4 leaves one single.
        assert_eq!(anchor_distance([run(0, 4096)], 3), Order::known(1));
        assert_eq!(anchor_distance([run(0, 1 << 20)], u64::MAX), Order::known(16));
        // Hostile lengths do not overflow.
        let _ = anchor_distance([run(1, u64::MAX), run(u64::MAX, u64::MAX)], 0);
    }
}
