//! The hierarchical bitmap against a plain set.

use std::collections::BTreeSet;

use swath_arch::testing::Random;
use swath_frame::bits::Bitmap;

#[test]
fn equals_a_set_operation_by_operation() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let bits = [1, 64, 65, 700, 4096, 4097, 20_000, 300_000][seed as usize % 8];
        let at = random.below(5) as usize;
        let words = Bitmap::storage_words(bits) as usize;
        let mut storage = vec![u64::MAX; at + words + 1];
        let mut bitmap = Bitmap::new(&mut storage, at, bits);
        let mut set = BTreeSet::new();
        for step in 0..1500 {
            let place = format!("seed {seed}, step {step}");
            // Low numbers half of the time, as the head moves there.
            let bound = if random.below(2) == 0 { bits.min(200) } else { bits };
            let first = random.below(bound) as usize;
            let limit = [1, 5, 300, 9000][random.below(4) as usize].min(bits as usize - first);
            match random.below(6) {
                0 | 1 => {
                    let count = (first..first + limit).take_while(|n| !set.contains(n)).count();
                    if count > 0 {
                        bitmap.insert(&mut storage, first, count);
                        set.extend(first..first + count);
                    }
                }
                2 => {
                    let count = (first..first + limit).take_while(|n| set.contains(n)).count();
                    if count > 0 {
                        bitmap.remove(&mut storage, first, count);
                        set.retain(|n| !(first..first + count).contains(n));
                    }
                }
                3 => assert_eq!(bitmap.pop(&mut storage), set.pop_first(), "{place}"),
                _ => assert_eq!(bitmap.first(&mut storage), set.first().copied(), "{place}"),
            }
            assert_eq!(bitmap.check(&storage), Ok(()), "{place}");
            assert_eq!(bitmap.len(&storage), set.len(), "{place}");
            assert_eq!(bitmap.is_empty(&storage), set.is_empty(), "{place}");
            assert_eq!(bitmap.last(&storage), set.last().copied(), "{place}");
            let from = random.below(bits) as usize;
            assert_eq!(bitmap.next(&storage, from), set.range(from..).next().copied(), "{place}");
            assert_eq!(bitmap.contains(&storage, from), set.contains(&from), "{place}");
            let limit = 1 + random.below(500) as usize;
            let run = (from..).take_while(|n| set.contains(n)).take(limit).count();
            assert_eq!(bitmap.run(&storage, from, limit), run, "{place}");
            let start = (0..from).rev().take_while(|n| set.contains(n)).last().unwrap_or(from);
            assert_eq!(bitmap.run_start(&storage, from), start, "{place}");
        }
        assert_eq!(storage[at + words], u64::MAX, "seed {seed}: a word beyond was written");
        assert!(storage[..at].iter().all(|&word| word == u64::MAX), "seed {seed}");
        assert!(!bitmap.contains(&storage, bits.next_multiple_of(64) as usize));
        assert_eq!(bitmap.next(&storage, bits as usize + 64), None);
    }
}

#[test]
fn storage_is_one_64th_more_than_the_bits() {
    assert_eq!(Bitmap::storage_words(0), 1);
    assert_eq!(Bitmap::storage_words(64), 1);
    assert_eq!(Bitmap::storage_words(65), 2 + 1);
    assert_eq!(Bitmap::storage_words(1 << 20), (1 << 14) + (1 << 8) + 4 + 1);
}
