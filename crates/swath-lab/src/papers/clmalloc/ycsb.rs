//! YCSB's core workloads A to F, from their definition.
//!
//! A key is chosen by one of YCSB's generators (Cooper and others, *Benchmarking Cloud Serving
//! Systems with YCSB*, SoCC 2010; its source, `CoreWorkload`): **zipfian** by the method of
//! Gray and others (*Quickly Generating Billion-Record Synthetic Databases*, SIGMOD 1994) with
//! θ = 0.99, spread over the keys by a hash; or **latest**, the same counted back from the
//! record inserted last.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Skew of YCSB's zipfian generator.
const THETA: f64 = 0.99;
/// Items of the zipfian generator behind the hash, and its zeta(items, θ): constants of YCSB's
/// `ScrambledZipfianGenerator`.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// Records of a scan: 1 to this, all with the same chance (workload E).
const SCAN_MAX: u16 = 100;
/// Fields of a record.
pub(crate) const FIELDS: usize = 10;

/// The sum of 1/i^θ for i from 1 to n.
fn zeta(n: u64, theta: f64) -> f64 {
    (1..=n).map(|i| (i as f64).powf(-theta)).sum()
}

/// Ranks from 0 on, rank r with a chance as 1/(r+1)^θ.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Over `items` ranks. O(items).
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    fn with_zeta(items: u64, theta: f64, zeta_items: f64) -> Self {
        let left = 1.0 - (2.0 / items as f64).powf(1.0 - theta);
        let eta = left / (1.0 - zeta(2, theta) / zeta_items);
        Self { items, theta, zeta: zeta_items, eta }
    }

    /// One rank more. O(1).
    fn grow(&mut self) {
        let items = self.items + 1;
        let zeta = self.zeta + (items as f64).powf(-self.theta);
        *self = Self::with_zeta(items, self.theta, zeta);
    }

    /// The rank for a number from 0 to below 1, all of which have the same chance.
    pub(crate) fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let alpha = 1.0 / (1.0 - self.theta);
        let rank = self.items as f64 * (self.eta * uniform - self.eta + 1.0).powf(alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// YCSB's hash of a number, FNV-1a over its eight bytes; its sign is dropped.
pub(crate) fn hash(number: u64) -> u64 {
    let fnv = number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    fnv.cast_signed().unsigned_abs()
}

/// One of the core workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Workload {
    /// Reads and updates, half and half.
    A,
    /// Mostly reads, some updates.
    B,
    /// Reads alone.
    C,
    /// Reads of the records inserted last.
    D,
    /// Short scans.
    E,
    /// Reads, and records read and then updated.
    F,
}

/// Per cent of each operation.
struct Mix {
    read: u32,
    update: u32,
    insert: u32,
    scan: u32,
}

impl Workload {
    pub(crate) const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }

    /// The rest is read-modify-write.
    const fn mix(self) -> Mix {
        match self {
            Self::A => Mix { read: 50, update: 50, insert: 0, scan: 0 },
            Self::B => Mix { read: 95, update: 5, insert: 0, scan: 0 },
            Self::C => Mix { read: 100, update: 0, insert: 0, scan: 0 },
            Self::D => Mix { read: 95, update: 0, insert: 5, scan: 0 },
            Self::E => Mix { read: 0, update: 0, insert: 5, scan: 95 },
            Self::F => Mix { read: 50, update: 0, insert: 0, scan: 0 },
        }
    }
}

/// An operation on the record of a number; numbers count the inserts from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// All fields are read.
    Read(u64),
    /// One field is replaced.
    Update(u64, u8),
    /// A record is added; its number is the next one.
    Insert(u64),
    /// So many records from this one on are read.
    Scan(u64, u16),
    /// Read, and one field is replaced.
    ReadModifyWrite(u64, u8),
}

/// `count` operations on `records` records that are there.
pub(crate) fn operations(
    workload: Workload,
    records: u64,
    count: u64,
    seed: u64,
) -> Vec<Operation> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mix = workload.mix();
    let latest = workload == Workload::D;
    let mut zipfian = if latest {
        Zipfian::new(records, THETA)
    } else {
        Zipfian::with_zeta(SCRAMBLED_ITEMS, THETA, SCRAMBLED_ZETA)
    };
    // As many keys as there will be, and some more, so that inserts do not shift the others.
    let keys = records + count * u64::from(mix.insert) * 2 / 100;
    let mut inserted = records;
    let mut all = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let what = random.random_range(0..100_u32);
        if (mix.read + mix.update..mix.read + mix.update + mix.insert).contains(&what) {
            all.push(Operation::Insert(inserted));
            inserted += 1;
            if latest {
                zipfian.grow();
            }
            continue;
        }
        let number = if latest {
            inserted - 1 - zipfian.rank(random.random())
        } else {
            loop {
                let number = hash(zipfian.rank(random.random())) % keys;
                if number < inserted {
                    break number;
                }
            }
        };
        let field = random.random_range(0..FIELDS as u8);
        all.push(if what < mix.read {
            Operation::Read(number)
        } else if what < mix.read + mix.update {
            Operation::Update(number, field)
        } else if what < mix.read + mix.update + mix.insert + mix.scan {
            Operation::Scan(number, random.random_range(1..=SCAN_MAX))
        } else {
            Operation::ReadModifyWrite(number, field)
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of evenly spaced numbers that give each of the first ranks.
    fn shares(zipfian: &Zipfian, ranks: usize) -> Vec<f64> {
        const STEPS: u32 = 1 << 20;
        let mut counts = vec![0.0; ranks];
        for step in 0..STEPS {
            let rank = zipfian.rank((f64::from(step) + 0.5) / f64::from(STEPS)) as usize;
            if rank < ranks {
                counts[rank] += 1.0 / f64::from(STEPS);
            }
        }
        counts
    }

    /// 1/(r+1)^θ over the sum of all: exact for the first two ranks, close for the others, which
    /// the method takes from a continuous distribution.
    #[test]
    fn frequencies_of_the_first_ranks() {
        for (items, theta) in [(1000, 0.99), (100_000, 0.99), (1000, 0.5)] {
            let zipfian = Zipfian::new(items, theta);
            let all = zeta(items, theta);
            let shares = shares(&zipfian, 50);
            let (mut sum, mut expected_sum) = (0.0, 0.0);
            for (rank, share) in shares.into_iter().enumerate() {
                let expected = ((rank + 1) as f64).powf(-theta) / all;
                let tolerance = if rank < 2 { 1e-5 } else { 0.25 * expected };
                let case = format!("{items} {theta} {rank}: {share} for {expected}");
                assert!((share - expected).abs() <= tolerance, "{case}");
                (sum, expected_sum) = (sum + share, expected_sum + expected);
                if rank >= 4 {
                    assert!((sum / expected_sum - 1.0).abs() < 0.06, "{case}: {sum}");
                }
            }
        }
    }

    #[test]
    fn growing_is_the_same_as_more_items() {
        let mut grown = Zipfian::new(100, THETA);
        (0..400).for_each(|_| grown.grow());
        let new = Zipfian::new(500, THETA);
        assert!((grown.zeta - new.zeta).abs() < 1e-9 && (grown.eta - new.eta).abs() < 1e-9);
    }

    /// YCSB's constant follows from its definition: the sum's tail by Euler and Maclaurin.
    #[test]
    fn the_constant_of_the_scrambled_generator() {
        let n = 1_000_000_u64;
        let power = |x: f64| x.powf(1.0 - THETA) / (1.0 - THETA);
        let tail = power(SCRAMBLED_ITEMS as f64) - power(n as f64)
            + ((SCRAMBLED_ITEMS as f64).powf(-THETA) - (n as f64).powf(-THETA)) / 2.0;
        assert!((zeta(n, THETA) + tail - SCRAMBLED_ZETA).abs() < 1e-6);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Of eight zero bytes, by the definition.
        let zero = (0..8).fold(0xCBF2_9CE4_8422_2325_u64, |h, _| h.wrapping_mul(0x100_0000_01B3));
        assert_eq!(hash(0), zero.cast_signed().unsigned_abs());
        assert_ne!(hash(1), hash(256));
    }

    #[test]
    fn mixes_are_those_of_the_workloads() {
        let count = 20_000;
        for workload in Workload::ALL {
            let all = operations(workload, 1000, count, 1);
            let share = |is: fn(&Operation) -> bool| {
                all.iter().filter(|&one| is(one)).count() as f64 / count as f64
            };
            let found = [
                share(|one| matches!(one, Operation::Read(_))),
                share(|one| matches!(one, Operation::Update(..))),
                share(|one| matches!(one, Operation::Insert(_))),
                share(|one| matches!(one, Operation::Scan(..))),
                share(|one| matches!(one, Operation::ReadModifyWrite(..))),
            ];
            let expected = match workload {
                Workload::A => [0.5, 0.5, 0.0, 0.0, 0.0],
                Workload::B => [0.95, 0.05, 0.0, 0.0, 0.0],
                Workload::C => [1.0, 0.0, 0.0, 0.0, 0.0],
                Workload::D => [0.95, 0.0, 0.05, 0.0, 0.0],
                Workload::E => [0.0, 0.0, 0.05, 0.95, 0.0],
                Workload::F => [0.5, 0.0, 0.0, 0.0, 0.5],
            };
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 0.012, "{workload:?}: {found}");
            }
            // Every record is there when it is used.
            let mut inserted = 1000;
            for operation in all {
                match operation {
                    Operation::Insert(number) => {
                        assert_eq!(number, inserted);
                        inserted += 1;
                    }
                    Operation::Scan(number, len) => {
                        assert!(number < inserted && (1..=SCAN_MAX).contains(&len));
                    }
                    Operation::Read(number)
                    | Operation::Update(number, _)
                    | Operation::ReadModifyWrite(number, _) => assert!(number < inserted),
                }
            }
        }
    }

    #[test]
    fn the_latest_are_read_most() {
        let mut inserted = 1000;
        let mut last = 0;
        let all = operations(Workload::D, 1000, 10_000, 3);
        for operation in &all {
            match *operation {
                Operation::Insert(_) => inserted += 1,
                Operation::Read(number) => last += u32::from(number + 1 == inserted),
                _ => unreachable!("no others in D"),
            }
        }
        // One in zeta(1000 to 1500): about 7.6.
        assert!((1000..1600).contains(&last), "{last}");
    }
}
