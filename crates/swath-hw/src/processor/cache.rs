//! A data cache: set-associative, true LRU, write-back, write-allocate.
//!
//! A [`Cache`] knows which lines it holds and which of them are dirty, not what is in
//! them: data stand in the memory alone, so a model of time asks
//! [`access`](Cache::access) what an access would have done and pays for it. Lines are
//! found by physical address, so that a change of mapping needs no flush.
//!
//! The tags of a set stand in the order of their use, the most recently used first. A hit
//! on that one is a single comparison, any other moves what was used after it by one
//! place: with the few ways that caches have, both are cheaper than links.

use alloc::boxed::Box;
use alloc::vec;

use swath_arch::PhysAddr;

/// The configuration of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheConfig {
    /// Its bytes. The sets that follow, `len_bytes / (ways line_bytes)`, are a power of two.
    pub len_bytes: u64,
    /// Lines to a set.
    pub ways: u32,
    /// Bytes of a line: a power of two, 8 to 4096.
    pub line_bytes: u32,
}

impl CacheConfig {
    /// The most bytes that a cache may have.
    pub const LEN_BYTES_MAX: u64 = 1 << 30;

    /// Returns the number of sets, 0 without ways or lines.
    pub const fn sets(&self) -> u64 {
        match (self.ways as u64 * self.line_bytes as u64, self.len_bytes) {
            (0, _) => 0,
            (set, len) => len / set,
        }
    }
}

/// Reasons why a cache cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheConfigError {
    /// A line that is no power of two of 8 to 4096 bytes.
    #[error("a line of {line_bytes} bytes: a power of two, 8 to 4096")]
    Line {
        /// Its bytes.
        line_bytes: u32,
    },
    /// Bytes that are no power of two of sets with so many ways, or more than
    /// [`CacheConfig::LEN_BYTES_MAX`].
    #[error(
        "{} bytes in {} ways of {}: not a power of two of sets, or more than {} bytes",
        .0.len_bytes,
        .0.ways,
        .0.line_bytes,
        CacheConfig::LEN_BYTES_MAX
    )]
    Sets(CacheConfig),
}

/// The counters of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Accesses to lines that were there.
    pub hits: u64,
    /// Accesses to lines that were not.
    pub misses: u64,
    /// Lines replaced.
    pub evictions: u64,
    /// Replaced lines that were dirty and went down a level.
    pub write_backs: u64,
}

/// A line that had to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The address of its first byte.
    pub addr: PhysAddr,
    /// True if it must be written to the level below.
    pub dirty: bool,
}

/// The effect of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheOutcome {
    /// The line was there.
    Hit,
    /// The line was absent. It is there now, in place of the victim, if its set was full.
    Miss(Option<Victim>),
}

/// No line: as a line number it would lie above every address.
pub(super) const EMPTY: u64 = u64::MAX;

/// A cache.
///
/// Invariants, which [`check`](Self::check) walks: a set holds its lines from the most to
/// the least recently used, empty places last; a line stands in its own set, once.
#[derive(Clone, Debug)]
pub struct Cache {
    /// For each place the number of its line, shifted by one, and below it whether it is
    /// dirty.
    pub(super) tags: Box<[u64]>,
    ways: usize,
    line_shift: u32,
    set_mask: u64,
    stats: CacheStats,
}

impl Cache {
    /// Creates an empty cache. O(lines).
    ///
    /// # Errors
    /// [`CacheConfigError`].
    pub fn new(config: &CacheConfig) -> Result<Self, CacheConfigError> {
        let CacheConfig { len_bytes, ways, line_bytes } = *config;
        if !line_bytes.is_power_of_two() || !(8..=4096).contains(&line_bytes) {
            return Err(CacheConfigError::Line { line_bytes });
        }
        let sets = config.sets();
        let whole = u128::from(sets) * u128::from(ways) * u128::from(line_bytes);
        if !sets.is_power_of_two()
            || whole != u128::from(len_bytes)
            || len_bytes > CacheConfig::LEN_BYTES_MAX
        {
            return Err(CacheConfigError::Sets(*config));
        }
        Ok(Self {
            tags: vec![EMPTY; (len_bytes / u64::from(line_bytes)) as usize].into(),
            ways: ways as usize,
            line_shift: line_bytes.trailing_zeros(),
            set_mask: sets - 1,
            stats: CacheStats::default(),
        })
    }

    /// Returns the counters since the start or the last [`reset_stats`](Self::reset_stats).
    pub const fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Sets every counter to 0; the lines stay.
    pub fn reset_stats(&mut self) {
        self.stats = CacheStats::default();
    }

    /// Returns the number of the line that holds `addr`.
    #[inline]
    pub const fn line(&self, addr: PhysAddr) -> u64 {
        addr.raw() >> self.line_shift
    }

    /// Reads or writes at `addr`: the line is the most recently used of its set after it,
    /// fetched if need be, and dirty if written. O(1) for the line that was that before,
    /// else O(ways).
    #[inline]
    pub fn access(&mut self, addr: PhysAddr, write: bool) -> CacheOutcome {
        let line = self.line(addr);
        let at = (line & self.set_mask) as usize * self.ways;
        let set = &mut self.tags[at..at + self.ways];
        if set[0] >> 1 == line {
            set[0] |= u64::from(write);
            self.stats.hits += 1;
            return CacheOutcome::Hit;
        }
        self.access_older(line, write)
    }

    fn access_older(&mut self, line: u64, write: bool) -> CacheOutcome {
        let at = (line & self.set_mask) as usize * self.ways;
        let set = &mut self.tags[at..at + self.ways];
        if let Some(way) = set.iter().position(|&tag| tag >> 1 == line) {
            set[..=way].rotate_right(1);
            set[0] |= u64::from(write);
            self.stats.hits += 1;
            return CacheOutcome::Hit;
        }
        set.rotate_right(1);
        let old = core::mem::replace(&mut set[0], line << 1 | u64::from(write));
        self.stats.misses += 1;
        if old == EMPTY {
            return CacheOutcome::Miss(None);
        }
        let dirty = old & 1 != 0;
        self.stats.evictions += 1;
        self.stats.write_backs += u64::from(dirty);
        let addr = PhysAddr::new(old >> 1 << self.line_shift);
        CacheOutcome::Miss(Some(Victim { addr, dirty }))
    }

    /// Returns the address of the first byte of a line.
    #[inline]
    pub(crate) const fn addr(&self, line: u64) -> PhysAddr {
        PhysAddr::new(line << self.line_shift)
    }

    /// Makes an access that is counted as neither hit nor miss. O(ways).
    pub(crate) fn place(&mut self, addr: PhysAddr, write: bool) -> CacheOutcome {
        let CacheStats { hits, misses, .. } = self.stats;
        let outcome = self.access(addr, write);
        (self.stats.hits, self.stats.misses) = (hits, misses);
        outcome
    }

    /// Takes a dirty line from the level above: writes all of it, fetching nothing. Counted
    /// as neither hit nor miss. O(ways).
    pub(crate) fn take_back(&mut self, addr: PhysAddr) -> Option<Victim> {
        match self.place(addr, true) {
            CacheOutcome::Hit => None,
            CacheOutcome::Miss(victim) => victim,
        }
    }

    /// Returns the dirty bit of the line of `addr`, `None` if the line is absent. Changes nothing.
    /// O(ways).
    pub fn peek(&self, addr: PhysAddr) -> Option<bool> {
        let line = self.line(addr);
        let at = (line & self.set_mask) as usize * self.ways;
        let tag = self.tags[at..at + self.ways].iter().find(|&&tag| tag >> 1 == line)?;
        Some(tag & 1 != 0)
    }

    /// Forgets every line, the dirty ones too: what a cache is like after it was cleaned and
    /// invalidated by someone who pays for it. O(lines).
    pub fn invalidate_all(&mut self) {
        self.tags.fill(EMPTY);
    }

    /// Visits the lines, each set from the most to the least recently used: where a line
    /// begins, and whether it is dirty. O(lines).
    pub fn for_each(&self, visit: &mut dyn FnMut(PhysAddr, bool)) {
        for &tag in self.tags.iter().filter(|&&tag| tag != EMPTY) {
            visit(PhysAddr::new(tag >> 1 << self.line_shift), tag & 1 != 0);
        }
    }

    /// Walks every invariant. O(lines ways).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        for (number, set) in (0..).zip(self.tags.chunks_exact(self.ways)) {
            let used = set.iter().position(|&tag| tag == EMPTY).unwrap_or(set.len());
            if set[used..].iter().any(|&tag| tag != EMPTY) {
                return Err("an empty place is newer than a line");
            }
            for (i, &tag) in set[..used].iter().enumerate() {
                if tag >> 1 & self.set_mask != number {
                    return Err("a line stands in another set");
                }
                if set[..i].iter().any(|&other| other >> 1 == tag >> 1) {
                    return Err("a line stands twice");
                }
            }
        }
        Ok(())
    }
}
