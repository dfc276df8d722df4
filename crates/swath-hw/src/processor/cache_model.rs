//! The cache against a naive model: for each set a list of lines in the order of their use; and its
//! check against the invariants, word by word, of tags that were changed.

extern crate std;

use std::collections::BTreeSet;
use std::println;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use swath_arch::PhysAddr;
use swath_arch::testing::Random;

use crate::processor::cache::EMPTY;
use crate::processor::{Cache, CacheConfig, CacheConfigError, CacheOutcome, CacheStats, Victim};

/// Bytes, ways and bytes of a line.
type Form = (u64, u32, u32);

fn config((len_bytes, ways, line_bytes): Form) -> CacheConfig {
    CacheConfig { len_bytes, ways, line_bytes }
}

fn cache(form: Form) -> Cache {
    Cache::new(&config(form)).unwrap()
}

struct PlainCache {
    line_bytes: u64,
    ways: usize,
    /// Lines and whether they are dirty, the most recently used first.
    sets: Vec<Vec<(u64, bool)>>,
    stats: CacheStats,
}

impl PlainCache {
    fn new((len_bytes, ways, line_bytes): Form) -> Self {
        let (ways, line_bytes) = (ways as usize, u64::from(line_bytes));
        let sets = len_bytes / line_bytes / ways as u64;
        let (sets, stats) = (vec![Vec::new(); sets as usize], CacheStats::default());
        Self { line_bytes, ways, sets, stats }
    }

    fn access(&mut self, addr: u64, write: bool, counted: bool) -> CacheOutcome {
        let line = addr / self.line_bytes;
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        if let Some(at) = set.iter().position(|&(l, _)| l == line) {
            let (_, dirty) = set.remove(at);
            set.insert(0, (line, dirty || write));
            self.stats.hits += u64::from(counted);
            return CacheOutcome::Hit;
        }
        self.stats.misses += u64::from(counted);
        set.insert(0, (line, write));
        if set.len() <= self.ways {
            return CacheOutcome::Miss(None);
        }
        let (old, dirty) = set.pop().unwrap();
        self.stats.evictions += 1;
        self.stats.write_backs += u64::from(dirty);
        let addr = PhysAddr::new(old * self.line_bytes);
        CacheOutcome::Miss(Some(Victim { addr, dirty }))
    }

    /// The dirty bit of a line that is there.
    fn peek(&self, addr: u64) -> Option<bool> {
        let line = addr / self.line_bytes;
        let line = self.sets.iter().flatten().find(|&&(l, _)| l == line)?;
        Some(line.1)
    }
}

#[test]
fn random_accesses_agree_with_the_model() {
    let forms =
        [(64, 1, 64), (1024, 2, 32), (512, 8, 64), (768, 3, 32), (4096, 4, 8), (192, 6, 32)];
    for (seed, form) in (1u64..).zip(forms) {
        println!("seed {seed}: {form:?}, bytes, ways and bytes of a line");
        let (len_bytes, _, line_bytes) = form;
        let (mut cache, mut model) = (cache(form), PlainCache::new(form));
        assert_eq!(config(form).sets(), model.sets.len() as u64);
        let mut random = Random::new(seed);
        for step in 0..20_000u64 {
            let span = if step % 3000 < 1500 { len_bytes } else { 3 * len_bytes };
            let high = if random.one_in(16) { 1 << 40 } else { 0 };
            let addr = high + random.below(span);
            let at = PhysAddr::new(addr);
            let write = random.one_in(4);
            assert_eq!(cache.peek(at), model.peek(addr), "step {step}");
            assert_eq!(cache.line(at), addr / u64::from(line_bytes));
            assert_eq!(cache.addr(cache.line(at)).raw(), addr - addr % u64::from(line_bytes));
            // What the level above writes back, and what is fetched before it is asked for, is
            // counted as neither hit nor miss.
            match random.below(16) {
                0 => {
                    let victim = match model.access(addr, true, false) {
                        CacheOutcome::Hit => None,
                        CacheOutcome::Miss(victim) => victim,
                    };
                    assert_eq!(cache.take_back(at), victim, "step {step}");
                }
                1 => {
                    let outcome = model.access(addr, write, false);
                    assert_eq!(cache.place(at, write), outcome, "step {step}");
                }
                _ => {
                    let outcome = model.access(addr, write, true);
                    assert_eq!(cache.access(at, write), outcome, "step {step}");
                }
            }
            assert_eq!(cache.stats(), model.stats, "step {step}");
            if step % 64 == 0 {
                cache.check().unwrap();
                let mut lines = Vec::new();
                cache.for_each(&mut |addr, dirty| {
                    lines.push((addr.raw() / u64::from(line_bytes), dirty));
                });
                assert_eq!(lines, model.sets.concat());
            }
        }
        assert!(model.stats.write_backs > 100 && model.stats.hits > 1000);
        cache.reset_stats();
        assert_eq!(cache.stats(), CacheStats::default());
        // The lines are what they were.
        let (set, &(line, dirty)) = (0..).zip(&model.sets[0]).next().unwrap();
        assert_eq!(
            (line % model.sets.len() as u64, cache.peek(cache.addr(line))),
            (set, Some(dirty))
        );
        cache.invalidate_all();
        cache.check().unwrap();
        cache.for_each(&mut |addr, _| panic!("{addr:?} is left"));
        assert_eq!(cache.access(PhysAddr::new(0), false), CacheOutcome::Miss(None));
    }
}

/// A stream over n lines of n places hits from the second round on; over n + 1 of a set, never.
#[test]
fn lru_is_exact_at_the_edge() {
    for over in [0, 1] {
        let mut cache = cache((512, 8, 64));
        for i in 0..10 * (8 + over) {
            cache.access(PhysAddr::new(i % (8 + over) * 64), false);
        }
        assert_eq!(cache.stats().hits, if over == 0 { 9 * 8 } else { 0 });
    }
}

/// Whether each set has its lines first, each once, and each of the set's own number.
fn is_well(tags: &[u64], ways: usize) -> bool {
    let sets = tags.len() / ways;
    (0..sets).all(|set| {
        let places = &tags[set * ways..(set + 1) * ways];
        let lines: Vec<u64> =
            places.iter().take_while(|&&tag| tag != EMPTY).map(|tag| tag / 2).collect();
        lines.iter().all(|line| line % sets as u64 == set as u64)
            && lines.iter().collect::<BTreeSet<_>>().len() == lines.len()
            && places[lines.len()..].iter().all(|&tag| tag == EMPTY)
    })
}

/// Of caches from empty to full, every bit of every tag changed, and every tag overwritten by every
/// other.
#[test]
fn the_check_finds_every_tag_that_breaks_an_invariant() {
    for (seed, form) in (1..).zip([(192, 3, 8), (64, 8, 8), (256, 4, 16), (64, 2, 16)]) {
        let (mut whole, ways) = (cache(form), form.1 as usize);
        let mut random = Random::new(seed);
        let (mut well, mut broken) = (0, 0);
        for _ in 0..4 * whole.tags.len() {
            whole.access(PhysAddr::new(random.below(4 * form.0)), random.one_in(2));
            let changes = whole.tags.iter().copied().chain([EMPTY]).collect::<Vec<_>>();
            for at in 0..whole.tags.len() {
                let flipped = (0..64).map(|bit| whole.tags[at] ^ 1 << bit);
                for tag in flipped.chain(changes.iter().copied()) {
                    let mut changed = whole.clone();
                    changed.tags[at] = tag;
                    let is_well = is_well(&changed.tags, ways);
                    assert_eq!(changed.check().is_ok(), is_well, "{at}: {:x?}", changed.tags);
                    *if is_well { &mut well } else { &mut broken } += 1;
                }
            }
        }
        assert!(well > 100 && broken > 100, "{form:?}: {well} {broken}");
    }
    let mut cache = cache((64, 4, 8));
    for (tags, said) in [
        ([EMPTY, 4, EMPTY, EMPTY], "an empty place is newer than a line"),
        ([4, 3, EMPTY, EMPTY], "a line stands in another set"),
        ([4, 0, 5, EMPTY], "a line stands twice"),
    ] {
        cache.tags[..4].copy_from_slice(&tags);
        assert_eq!(cache.check(), Err(said));
    }
}

#[test]
fn impossible_forms_are_refused() {
    let new = |form| {
        let made = Cache::new(&config(form));
        made.map(|_| ()).inspect_err(|error| assert!(!error.to_string().is_empty()))
    };
    for line_bytes in [0, 4, 48, 8192, u32::MAX] {
        assert_eq!(new((1024, 2, line_bytes)), Err(CacheConfigError::Line { line_bytes }));
    }
    for (len_bytes, ways) in [
        (1024, 0),
        (0, 1),
        (1024, 3),
        (1000, 2),
        (64, 2),
        (CacheConfig::LEN_BYTES_MAX + 64, 1 << 24 | 1),
        (1 << 31, 1),
        (u64::MAX, u32::MAX),
    ] {
        let form = (len_bytes, ways, 64);
        assert_eq!(new(form), Err(CacheConfigError::Sets(config(form))));
    }
    assert_eq!(CacheConfig { ways: 0, ..config((1024, 1, 64)) }.sets(), 0);
    assert_eq!(CacheConfig { line_bytes: 0, ..config((1024, 1, 64)) }.sets(), 0);
    // The longest cache, of the longest lines.
    assert_eq!(new((1 << 30, 1, 4096)), Ok(()));
    // The highest address there is.
    let mut cache = cache((64, 8, 8));
    assert_eq!(cache.access(PhysAddr::new(u64::MAX), true), CacheOutcome::Miss(None));
    assert_eq!(cache.access(PhysAddr::new(u64::MAX), true), CacheOutcome::Hit);
    cache.check().unwrap();
}
