//! The comparison of readings: the Pareto front of claims met against parameters chosen, and the claims
//! that no reading meets together.

use std::cmp::Reverse;

/// A reading's standing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// Claims met: the more, the better.
    pub met: u32,
    /// Parameters that were chosen after looking: the fewer, the better.
    pub chosen: u32,
    /// Mean distance of the claims' figures from what agrees with the paper, which decides
    /// between equals.
    pub distance: f64,
}

/// The places of the readings that no other beats: none has more claims met with as few
/// parameters, or as many with fewer; of equals the nearest, then the first. Ascending by
/// parameters. O(n log n).
pub fn front(readings: &[Standing]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..readings.len()).collect();
    places.sort_by(|&one, &two| {
        let key = |place: usize| (readings[place].chosen, Reverse(readings[place].met));
        let distance = readings[one].distance.total_cmp(&readings[two].distance);
        key(one).cmp(&key(two)).then(distance).then(one.cmp(&two))
    });
    let mut most = None;
    places.retain(|&place| {
        let beats = most.is_none_or(|most| readings[place].met > most);
        if beats {
            most = Some(readings[place].met);
        }
        beats
    });
    places
}

/// For each pair of claims the number of readings that meet both; a claim with itself, that
/// meet it. O(readings claims²).
pub fn together(readings: &[Vec<bool>], claims: usize) -> Vec<Vec<u64>> {
    let both =
        |one: usize, two: usize| readings.iter().filter(|met| met[one] && met[two]).count() as u64;
    (0..claims).map(|one| (0..claims).map(|two| both(one, two)).collect()).collect()
}

/// The claims that no reading meets, and the pairs of others that none meets together.
pub fn exclusions(together: &[Vec<u64>]) -> (Vec<usize>, Vec<(usize, usize)>) {
    let claims = 0..together.len();
    let (met, never): (Vec<usize>, Vec<usize>) = claims.partition(|&one| together[one][one] > 0);
    let pairs = met.iter().flat_map(|&one| met.iter().map(move |&two| (one, two)));
    (never, pairs.filter(|&(one, two)| one < two && together[one][two] == 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::memory::random;
    use rand::RngExt;

    /// Looks at every pair.
    fn naive(readings: &[Standing]) -> Vec<usize> {
        let beats = |one: usize, two: usize| {
            let (a, b) = (&readings[one], &readings[two]);
            let as_good = a.met >= b.met && a.chosen <= b.chosen;
            let better = a.met > b.met || a.chosen < b.chosen;
            let nearer = a.distance < b.distance || a.distance == b.distance && one < two;
            as_good && (better || nearer)
        };
        let all = 0..readings.len();
        let mut front: Vec<usize> = all
            .clone()
            .filter(|&two| !all.clone().any(|one| one != two && beats(one, two)))
            .collect();
        front.sort_by_key(|&place| readings[place].chosen);
        front
    }

    #[test]
    fn the_front_is_that_of_the_naive_model() {
        let mut random = random(7, 0);
        for round in 0..500 {
            let count = random.random_range(0..30);
            let readings: Vec<Standing> = (0..count)
                .map(|_| Standing {
                    met: random.random_range(0..6),
                    chosen: random.random_range(0..5),
                    distance: f64::from(random.random_range(0..4_u32)) / 4.0,
                })
                .collect();
            assert_eq!(front(&readings), naive(&readings), "round {round}: {readings:?}");
        }
    }

    #[test]
    fn what_excludes_each_other_was_met_apart() {
        let readings =
            [vec![true, false, true, false], vec![false, true, true, false], vec![true; 4]];
        let table = together(&readings[..2], 4);
        assert_eq!(table[0], [1, 0, 1, 0]);
        assert_eq!(table[2], [1, 1, 2, 0]);
        assert_eq!(exclusions(&table), (vec![3], vec![(0, 1)]));
        assert_eq!(exclusions(&together(&readings, 4)), (vec![], vec![]));
        assert_eq!(exclusions(&together(&[], 2)), (vec![0, 1], vec![]));
    }
}
