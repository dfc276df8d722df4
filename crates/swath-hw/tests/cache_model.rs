//! The cache against a naive model: for each set a list of lines in the order of their use.

use swath_arch::PhysAddr;
use swath_arch::testing::Random;
use swath_hw::processor::{Cache, CacheConfig, CacheConfigError, CacheOutcome, CacheStats, Victim};

struct Model {
    config: CacheConfig,
    /// Lines and whether they are dirty, the most recently used first.
    sets: Vec<Vec<(u64, bool)>>,
    stats: CacheStats,
}

impl Model {
    fn access(&mut self, addr: u64, write: bool) -> CacheOutcome {
        let line = addr / u64::from(self.config.line_bytes);
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        if let Some(at) = set.iter().position(|&(l, _)| l == line) {
            let (_, dirty) = set.remove(at);
            set.insert(0, (line, dirty || write));
            self.stats.hits += 1;
            return CacheOutcome::Hit;
        }
        self.stats.misses += 1;
        set.insert(0, (line, write));
        if set.len() <= self.config.ways as usize {
            return CacheOutcome::Miss(None);
        }
        let (old, dirty) = set.pop().unwrap();
        self.stats.evictions += 1;
        self.stats.write_backs += u64::from(dirty);
        let addr = PhysAddr::new(old * u64::from(self.config.line_bytes));
        CacheOutcome::Miss(Some(Victim { addr, dirty }))
    }
}

#[test]
fn random_accesses_agree_with_the_model() {
    let forms =
        [(64, 1, 64), (1024, 2, 32), (512, 8, 64), (768, 3, 32), (4096, 4, 8), (192, 6, 32)];
    for (seed, (len_bytes, ways, line_bytes)) in (1u64..).zip(forms) {
        println!("seed {seed}: {len_bytes} bytes, {ways} ways of {line_bytes}");
        let config = CacheConfig { len_bytes, ways, line_bytes };
        let mut cache = Cache::new(&config).unwrap();
        let sets = vec![Vec::new(); config.sets() as usize];
        let mut model = Model { config, sets, stats: CacheStats::default() };
        let mut random = Random::new(seed);
        for step in 0..20_000u64 {
            let word = random.word();
            let span = if step % 3000 < 1500 { len_bytes } else { 3 * len_bytes };
            let high = if word >> 20 & 15 == 0 { 1 << 40 } else { 0 };
            let addr = high + (word >> 33) % span;
            let write = word >> 30 & 3 == 0;
            let peeked = cache.peek(PhysAddr::new(addr)).is_some();
            let outcome = cache.access(PhysAddr::new(addr), write);
            assert_eq!(peeked, outcome == CacheOutcome::Hit);
            assert_eq!(outcome, model.access(addr, write), "step {step}");
            if step % 64 == 0 {
                cache.check().unwrap();
                let mut lines = Vec::new();
                cache.for_each(&mut |addr, dirty| {
                    lines.push((addr.raw() / u64::from(line_bytes), dirty));
                });
                assert_eq!(lines, model.sets.concat());
            }
        }
        assert_eq!(cache.stats(), model.stats);
        assert!(model.stats.write_backs > 100 && model.stats.hits > 1000);
        cache.invalidate_all();
        cache.check().unwrap();
        assert_eq!(cache.access(PhysAddr::new(0), false), CacheOutcome::Miss(None));
    }
}

/// A stream over n lines of n places hits from the second round on; over n + 1 of a set, never.
#[test]
fn lru_is_exact_at_the_edge() {
    for over in [0, 1] {
        let mut cache =
            Cache::new(&CacheConfig { len_bytes: 512, ways: 8, line_bytes: 64 }).unwrap();
        for i in 0..10 * (8 + over) {
            cache.access(PhysAddr::new(i % (8 + over) * 64), false);
        }
        assert_eq!(cache.stats().hits, if over == 0 { 9 * 8 } else { 0 });
    }
}

#[test]
fn impossible_forms_are_refused() {
    let new = |len_bytes, ways, line_bytes| {
        let made = Cache::new(&CacheConfig { len_bytes, ways, line_bytes }).map(|_| ());
        made.inspect_err(|error| assert!(!error.to_string().is_empty()))
    };
    for line_bytes in [0, 4, 48, 8192, u32::MAX] {
        assert_eq!(new(1024, 2, line_bytes), Err(CacheConfigError::Line { line_bytes }));
    }
    for (len_bytes, ways) in
        [(1024, 0), (0, 1), (1024, 3), (1000, 2), (64, 2), (1 << 31, 1), (u64::MAX, u32::MAX)]
    {
        let config = CacheConfig { len_bytes, ways, line_bytes: 64 };
        assert_eq!(new(len_bytes, ways, 64), Err(CacheConfigError::Sets(config)));
    }
    // The highest address there is.
    let mut cache = Cache::new(&CacheConfig { len_bytes: 64, ways: 8, line_bytes: 8 }).unwrap();
    assert_eq!(cache.access(PhysAddr::new(u64::MAX), true), CacheOutcome::Miss(None));
    assert_eq!(cache.access(PhysAddr::new(u64::MAX), true), CacheOutcome::Hit);
    cache.check().unwrap();
}
