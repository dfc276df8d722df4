//! The synthetic workload of the heaps of the real-time studies (*Böhnert and Scholl 2014*,
//! section V-A).
//!
//! The paper gives the chances of the actions (10% allocations, 10% releases, 40% reads,
//! 40% writes) and how many there are, and says that size, allocation and address are random. It does
//! not give the sizes. Here they are uniform up to a bound of the plan, and so is everything else.

use rand::RngExt;

use crate::source::memory::{Random, random};

/// One action of a program on its heap. Allocations have numbers, which are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Asks for bytes.
    Allocate {
        /// The allocation's number, not in use.
        id: u32,
        /// Number of bytes.
        size_bytes: u64,
        /// A power of two that divides their first address.
        align_bytes: u64,
    },
    /// Gives an allocation back.
    Free {
        /// Its number.
        id: u32,
    },
    /// Accesses a byte of an allocation.
    Access {
        /// Its number.
        id: u32,
        /// The byte.
        offset: u64,
        /// True if it is written.
        write: bool,
    },
}

/// The usual alignment of `malloc`.
pub const ALIGN_BYTES: u64 = 16;

/// The synthetic workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Synthetic {
    /// Number of actions.
    pub actions: u64,
    /// The largest size.
    pub size_bytes_max: u64,
    /// The seed.
    pub seed: u64,
    /// The repeat with this seed, from 0.
    pub repeat: u64,
}

impl Synthetic {
    /// Its actions. An action on an allocation while there is none is an allocation.
    pub fn actions(self) -> impl Iterator<Item = Action> {
        let mut state = WorkloadState { live: Vec::new(), unused: Vec::new(), next: 0 };
        let mut random = random(self.seed, self.repeat);
        (0..self.actions).map(move |_| state.action(self.size_bytes_max, &mut random))
    }

    /// The arcs of its footprint: the times that all is free again after at least half as much was
    /// allocated as there ever is. None if the last one is not ended so.
    pub fn arcs(self) -> Option<u64> {
        let live = self.actions().scan(0_u32, |live, action| {
            match action {
                Action::Allocate { .. } => *live += 1,
                Action::Free { .. } => *live -= 1,
                Action::Access { .. } => {}
            }
            Some(*live)
        });
        let live: Vec<u32> = live.collect();
        let half = live.iter().max().map_or(1, |most| most.div_ceil(2));
        let (mut arcs, mut is_high) = (0, false);
        for count in live {
            is_high |= count >= half;
            if is_high && count == 0 {
                (arcs, is_high) = (arcs + 1, false);
            }
        }
        (!is_high).then_some(arcs)
    }

    /// The first `count` of its repeats, from its own on, of which each has so many arcs; fewer if
    /// not one of a thousand for each has.
    pub fn with_arcs(self, arcs: u64, count: u64) -> Vec<Self> {
        let repeats = (self.repeat..).take(usize::try_from(1000 * count).unwrap_or(usize::MAX));
        let all = repeats.map(|repeat| Self { repeat, ..self });
        let chosen = all.filter(|one| one.arcs() == Some(arcs));
        chosen.take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
    }
}

/// Numbers and sizes of what is allocated.
struct WorkloadState {
    live: Vec<(u32, u64)>,
    unused: Vec<u32>,
    next: u32,
}

impl WorkloadState {
    fn action(&mut self, size_bytes_max: u64, random: &mut Random) -> Action {
        let tenth = random.random_range(0..10_u32);
        if tenth == 0 || self.live.is_empty() {
            let size_bytes = random.random_range(1..=size_bytes_max);
            let id = self.unused.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            self.live.push((id, size_bytes));
            return Action::Allocate { id, size_bytes, align_bytes: ALIGN_BYTES };
        }
        let at = random.random_range(0..self.live.len());
        if tenth == 1 {
            let (id, _) = self.live.swap_remove(at);
            self.unused.push(id);
            return Action::Free { id };
        }
        let (id, size_bytes) = self.live[at];
        Action::Access { id, offset: random.random_range(0..size_bytes), write: tenth >= 6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_papers() {
        let plan = Synthetic { actions: 100_000, size_bytes_max: 5000, seed: 7, repeat: 0 };
        let mut counts = [0_u32; 4];
        let mut sizes = std::collections::HashMap::new();
        for action in plan.actions() {
            match action {
                Action::Allocate { id, size_bytes, .. } => {
                    assert_eq!(sizes.insert(id, size_bytes), None);
                    assert!((1..=5000).contains(&size_bytes));
                    counts[0] += 1;
                }
                Action::Free { id } => {
                    assert!(sizes.remove(&id).is_some());
                    counts[1] += 1;
                }
                Action::Access { id, offset, write } => {
                    assert!(offset < sizes[&id]);
                    counts[2 + usize::from(write)] += 1;
                }
            }
        }
        for (count, expected) in counts.into_iter().zip([10_000_u32, 10_000, 40_000, 40_000]) {
            assert!(count.abs_diff(expected) < 1000, "{counts:?}");
        }
        assert!(plan.actions().eq(plan.actions()));
    }

    /// The heap is empty so often after it was half full, and after the last time never half full again.
    #[test]
    fn arcs_end_with_an_empty_heap() {
        let any = Synthetic { actions: 2000, size_bytes_max: 5000, seed: 7, repeat: 0 };
        for arcs in [1, 3] {
            let chosen = any.with_arcs(arcs, 4);
            assert_eq!(chosen.len(), 4);
            assert!(chosen.windows(2).all(|pair| pair[0].repeat < pair[1].repeat));
            for one in chosen {
                let (mut live, mut counts) = (std::collections::HashSet::new(), Vec::new());
                for action in one.actions() {
                    match action {
                        Action::Allocate { id, .. } => assert!(live.insert(id)),
                        Action::Free { id } => assert!(live.remove(&id)),
                        Action::Access { .. } => {}
                    }
                    counts.push(live.len());
                }
                let most = *counts.iter().max().unwrap();
                let between = counts.split(|&count| count == 0);
                let high = |part: &[usize]| part.iter().any(|&count| 2 * count >= most);
                let parts: Vec<bool> = between.map(high).collect();
                assert_eq!(parts.iter().filter(|is_high| **is_high).count() as u64, arcs);
                assert_eq!(parts.last(), Some(&false));
            }
        }
        assert!(any.with_arcs(500, 1).is_empty());
    }
}
