//! Where a buffer pool's units come from.

/// Hands runs of units of one arena to a buffer pool and takes them back.
///
/// Units are numbered from the arena's start, [`UNIT_BYTES`](crate::pool::UNIT_BYTES)
/// each. The pool calls under its lock, releases, extends, purges and guards only what it
/// acquired (a purge: what it acquired once and released since), and may
/// release any part of what it acquired. Which units are free is the source's
/// business alone; when memory goes back to the system is the pool's: a
/// released unit keeps its memory, so that it is quick to acquire again, until
/// `purge` says that nobody has wanted it for long enough.
///
/// # Safety
/// From `acquire` (or `extend`) until `release`, the units lie inside the arena, can be read
/// and written, and belong to nobody else.
pub unsafe trait SegmentSource {
    /// Units of a page of the system, a power of two: what lies within one is contiguous in physical
    /// memory, so a segment lies in as few of them as its length allows, counted from the arena's
    /// start.
    const PAGE_UNITS: u32 = 1;

    /// Whether units that were never released, or purged since, read as zeroes.
    fn reads_zero(&self) -> bool {
        false
    }

    /// The first of `units` units in a row that are free, its number a multiple
    /// of `align_units` (a power of two) from address 0 on; none if there is no
    /// such run. The runs handed out earlier stay as they are.
    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32>;

    /// Adds the `more` units behind the `units` from `first` on; whether they
    /// were free.
    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let _ = (first, units, more);
        false
    }

    /// Takes `units` from `first` on back.
    fn release(&mut self, first: u32, units: u32);

    /// Gives the memory of free units back to the system, the addresses not;
    /// whether it did. If not, the pool will ask again.
    fn purge(&mut self, first: u32, units: u32) -> bool;

    /// Makes acquired units fault at every access, or (`on` false) usable again.
    fn guard(&mut self, first: u32, units: u32, on: bool) {
        let _ = (first, units, on);
    }

    /// The process is about to fork; one of the two calls below follows.
    fn before_fork(&mut self) {}

    /// The process has forked, or could not.
    fn after_fork_in_parent(&mut self) {}

    /// The process is a fork's child, and no other thread has begun in it.
    fn after_fork_in_child(&mut self) {}
}

/// The simplest source: first fit over memory that is all there.
///
/// One bit for each unit in words that the caller gives. `acquire` takes O(n / 64 + r) for n
/// units of the arena and r runs passed, the others O(m / 64) for m units in
/// question. For arenas of many gigabytes, or of several areas, put an allocator of segments
/// behind [`SegmentSource`] instead.
pub struct FirstFit<W> {
    /// Ones are units in use.
    used: W,
    units: u32,
    /// Units from the arena's start to the next multiple of the largest alignment.
    base_units: u64,
    /// No unit below is free.
    lowest: u32,
    zero: bool,
}

impl<W: AsRef<[u64]> + AsMut<[u64]>> FirstFit<W> {
    /// Words of storage for `units` units.
    #[must_use]
    pub const fn words(units: u32) -> usize {
        units.div_ceil(64) as usize
    }

    /// All of `units` units are free, as many as `used` has bits at most. The
    /// arena starts at address `base_address`; `zero` says whether its memory reads as zeroes.
    pub fn new(base_address: usize, units: u32, mut used: W, zero: bool) -> Self {
        used.as_mut().fill(0);
        let units = units.min((used.as_ref().len() * 64).min(u32::MAX as usize) as u32);
        let base_units = (base_address >> crate::class::UNIT_SHIFT) as u64;
        Self { used, units, base_units, lowest: 0, zero }
    }

    /// Units that are free.
    pub fn free_units(&self) -> u32 {
        let used: u32 = self.used.as_ref().iter().map(|word| word.count_ones()).sum();
        self.units - used
    }

    /// The first unit from `from` on that is used, or free; the arena's end if there is none.
    fn next(&self, from: u32, used: bool) -> u32 {
        let words = self.used.as_ref();
        let flip = if used { 0 } else { u64::MAX };
        let mut at = from;
        while at < self.units {
            let word = (words[at as usize / 64] ^ flip) >> (at % 64);
            if word != 0 {
                return (at + word.trailing_zeros()).min(self.units);
            }
            at = (at / 64 + 1) * 64;
        }
        self.units
    }

    fn set(&mut self, first: u32, units: u32, used: bool) {
        for (index, mask) in word_masks(first, units) {
            let word = &mut self.used.as_mut()[index];
            *word = if used { *word | mask } else { *word & !mask };
        }
    }
}

/// The words that `count` bits from `first` on lie in, each with its bits.
pub(crate) fn word_masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
    (first / 64..end.div_ceil(64)).map(move |index| {
        let low = first.saturating_sub(index * 64);
        let high = (end - index * 64).min(64);
        (index as usize, (u64::MAX >> (64 - high)) & (u64::MAX << low))
    })
}

// SAFETY: a unit is handed out where its bit was clear, which is set until the
// unit is released; the arena's memory is all there by the pool's contract.
unsafe impl<W: AsRef<[u64]> + AsMut<[u64]>> SegmentSource for FirstFit<W> {
    fn reads_zero(&self) -> bool {
        self.zero
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        let align = u64::from(align_units.max(1));
        self.lowest = self.next(self.lowest, false);
        let mut at = self.lowest;
        loop {
            let aligned = (self.base_units + u64::from(at)).next_multiple_of(align);
            let first = u32::try_from(aligned - self.base_units).ok()?;
            if units > self.units.checked_sub(first)? {
                return None;
            }
            let end = self.next(first, true);
            if end - first >= units {
                self.set(first, units, true);
                return Some(first);
            }
            at = self.next(end, false);
        }
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let end = first + units;
        if more > self.units - end || self.next(end, true) - end < more {
            return false;
        }
        self.set(end, more, true);
        true
    }

    fn release(&mut self, first: u32, units: u32) {
        self.set(first, units, false);
        self.lowest = self.lowest.min(first);
    }

    /// Nobody takes this memory back.
    fn purge(&mut self, _: u32, _: u32) -> bool {
        false
    }
}
