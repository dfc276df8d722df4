//! Quantities counted by powers of two: lengths of runs, sizes of requests.

use serde::Serialize;

/// Quantities by number and sum, in all and by powers of two.
///
/// Invariants: `count` is `zeros` and the bins' counts together, `sum` the
/// bins' sums, and the last bin is not empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Histogram {
    /// Quantities in all.
    pub count: u64,
    /// Their sum, at most `u64::MAX`.
    pub sum: u64,
    /// The largest.
    pub largest: u64,
    /// Quantities of 0.
    pub zeros: u64,
    /// Bin k counts the quantities of 2^k to 2^(k+1) - 1.
    pub bins: Vec<Bin>,
}

/// One bin of a [`Histogram`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bin {
    /// Quantities in the bin.
    pub count: u64,
    /// Their sum, at most `u64::MAX`.
    pub sum: u64,
}

impl Histogram {
    /// Counts one quantity. Amortised O(1).
    pub fn add(&mut self, quantity: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(quantity);
        self.largest = self.largest.max(quantity);
        let Some(bin) = quantity.checked_ilog2() else {
            self.zeros += 1;
            return;
        };
        let bin = bin as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, Bin::default());
        }
        self.bins[bin].count += 1;
        self.bins[bin].sum = self.bins[bin].sum.saturating_add(quantity);
    }

    /// The bins that are not empty, each with its least quantity, ascending.
    pub fn filled(&self) -> impl Iterator<Item = (u64, Bin)> {
        let bins = self.bins.iter().enumerate().filter(|(_, bin)| bin.count > 0);
        bins.map(|(log2, &bin)| (1 << log2, bin))
    }
}

impl FromIterator<u64> for Histogram {
    /// Counts all, in O(quantities).
    fn from_iter<I: IntoIterator<Item = u64>>(quantities: I) -> Self {
        let mut histogram = Self::default();
        quantities.into_iter().for_each(|quantity| histogram.add(quantity));
        histogram
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn bins_begin_at_powers_of_two_and_zeros_stand_apart() {
        let histogram: Histogram = [0, 1, 2, 3, 4, 7, 8, u64::MAX].into_iter().collect();
        let filled: Vec<_> = histogram.filled().map(|(from, bin)| (from, bin.count)).collect();
        assert_eq!(filled, [(1, 1), (2, 2), (4, 2), (8, 1), (1 << 63, 1)]);
        assert_eq!((histogram.count, histogram.zeros, histogram.bins[1].sum), (8, 1, 5));
        // The sum of a hostile file stops at the largest number.
        assert_eq!((histogram.sum, histogram.largest), (u64::MAX, u64::MAX));
    }
}
