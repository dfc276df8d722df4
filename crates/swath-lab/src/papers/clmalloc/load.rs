//! The loads of Fig. 7 and 8 (Zhang, Lu and Zhang, section 5.3): sizes of blocks, structures, and each
//! thread's part of the records.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::rounds::seed;
use crate::papers::clmalloc::ycsb::{Operation, Workload, operations};

/// A structure of Fig. 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Structure {
    /// An open hash table.
    HashMap,
    /// Records by number.
    Vector,
    /// A binary heap.
    PriorityQueue,
    /// A hash table of chained nodes.
    UnorderedMap,
}

impl Structure {
    /// All structures, in the order of the paper.
    pub(crate) const ALL: [Self; 4] =
        [Self::HashMap, Self::Vector, Self::PriorityQueue, Self::UnorderedMap];

    /// Its name in figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HashMap => "hash map",
            Self::Vector => "vector",
            Self::PriorityQueue => "priority queue",
            Self::UnorderedMap => "unordered map",
        }
    }
}

/// The work of one thread.
pub(crate) struct Part {
    pub(crate) records: u64,
    pub(crate) operations: Vec<Operation>,
}

/// As many operations as records, divided among the threads; `seed` gives that of a thread.
pub(crate) fn parts(
    workload: Workload,
    records: u64,
    threads: u64,
    seed: impl Fn(u64) -> u64,
) -> Vec<Part> {
    (0..threads)
        .map(|thread| {
            let own = share(records, threads, thread);
            Part { records: own, operations: operations(workload, own, own, seed(thread)) }
        })
        .collect()
}

/// The sizes in bytes that each thread requests, each a whole number of words, by the plan's seed.
pub(crate) fn sizes(
    (least, most): (u64, u64),
    plan_seed: u64,
    repeat: u64,
    threads: u64,
    count: u64,
) -> Vec<Vec<usize>> {
    let words = least * 128..=most * 128;
    let part = |thread: u64| {
        let mut random = Pcg64::seed_from_u64(seed(plan_seed, repeat, thread));
        let own = 0..share(count, threads, thread);
        own.map(|_| random.random_range(words.clone()) as usize * 8).collect()
    };
    (0..threads).map(part).collect()
}

/// The share of one of so many threads in `count` pieces of work.
pub(crate) const fn share(count: u64, threads: u64, thread: u64) -> u64 {
    (thread + 1) * count / threads - thread * count / threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole() {
        for threads in [1, 2, 3, 8] {
            let parts = parts(Workload::A, 1000, threads, |thread| thread);
            assert_eq!(parts.iter().map(|part| part.records).sum::<u64>(), 1000);
            assert_eq!(parts.iter().map(|part| part.operations.len()).sum::<usize>(), 1000);
        }
    }
}
