//! Rules of choice that other crates bring.
//!
//! A [`Fit`] looks at the free runs of a class and names the unit to take from; [`ByFit`] makes a [`Rule`] of
//! it. It keeps no index, so a choice is as long as its search. What it names is looked at before it is
//! taken: a choice that is not free, or too short, counts as none, so that no fit can break an allocator.

use crate::buddy::class::Class;
use crate::buddy::rule::Rule;

/// The free runs of a class, in ascending order: for each its first unit, counted from the class's first, and its
/// length in units.
#[derive(Clone, Debug)]
pub struct FreeRuns<'a> {
    class: &'a Class,
    storage: &'a [u64],
    from: usize,
}

impl FreeRuns<'_> {
    /// Returns the runs from a unit on; of the run that it lies in, what is left. O(1).
    #[must_use]
    pub const fn from(mut self, unit: usize) -> Self {
        self.from = unit;
        self
    }
}

impl Iterator for FreeRuns<'_> {
    type Item = (usize, usize);

    /// O(l + levels) for a run of 64 × l units.
    fn next(&mut self) -> Option<(usize, usize)> {
        let first = self.class.free.next(self.storage, self.from)?;
        let len = self.class.free.run(self.storage, first, usize::MAX);
        self.from = first.checked_add(len.max(1))?;
        Some((first, len))
    }
}

/// A choice among the free runs of a class.
///
/// # Examples
/// Worst fit, which always cuts the longest run:
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::{BuddyConfig, ByFit, ByteRange, Fit, FrameAllocator, FreeRuns, MemoryMap, PageBuddy};
///
/// #[derive(Clone, Debug)]
/// struct WorstFit;
///
/// impl Fit for WorstFit {
///     const NEW: Self = Self;
///
///     fn choose(&self, runs: FreeRuns<'_>, wanted: usize) -> Option<usize> {
///         let (first, _) = runs.filter(|(_, len)| *len >= wanted).max_by_key(|(_, len)| *len)?;
///         Some(first)
///     }
/// }
///
/// let ranges = [ByteRange::of_frames(Extent::new(Pfn::new(0), 4096))];
/// let mut areas = [Extent::default()];
/// let map = MemoryMap::new(&ranges, &mut areas)?;
/// let config = BuddyConfig::PBS_ARMV7;
/// type Buddy = PageBuddy<Vec<u64>, ByFit<WorstFit>>;
/// let mut frames = Buddy::new(&map, config, vec![0; Buddy::storage_words(&map, config)])?;
/// let mut block = None;
/// frames.allocate(900, &mut |one| block = Some(one))?;
/// assert_eq!(block.map(|block| block.count), Some(900));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Fit: Clone + core::fmt::Debug {
    /// One that has chosen nothing yet.
    const NEW: Self;

    /// Returns the first of `wanted` free units that lie side by side; `None` if there are none, or none are to be
    /// taken from this class. Classes are asked from that of the request's size on, then the others; if all
    /// have none, the longest run serves as much as it can.
    fn choose(&self, runs: FreeRuns<'_>, wanted: usize) -> Option<usize>;
}

/// The rule that takes what a [`Fit`] chooses.
#[derive(Clone, Debug)]
pub struct ByFit<F>(F);

impl<F: Fit> Rule for ByFit<F> {
    const INDEXED: bool = true;

    fn can_index(_units: u64) -> bool {
        true
    }

    fn storage_words(_units: u64, _node_max: u64) -> u64 {
        0
    }

    const NEW: Self = Self(F::NEW);

    fn add_class(&mut self, _: &mut [u64], _: usize, _: usize, _: u64, _: u64) {}

    fn inserted(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    fn removed(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    fn removed_first(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize, _: usize) {}

    fn pick(
        &self,
        storage: &mut [u64],
        _i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        let first = self.0.choose(FreeRuns { class, storage, from: 0 }, wanted)?;
        let len = class.free.run(storage, first, wanted);
        (wanted > 0 && len >= wanted).then_some((first, len))
    }

    fn pick_longest(
        &self,
        storage: &mut [u64],
        _i: usize,
        class: &mut Class,
        _wanted: usize,
    ) -> Option<(usize, usize)> {
        // The first of the longest.
        FreeRuns { class, storage, from: 0 }
            .reduce(|best, run| if run.1 > best.1 { run } else { best })
    }

    fn find_fault(&self, _: &[u64], _: usize, _: &Class) -> Result<(), usize> {
        Ok(())
    }

    fn check(&self, _: &[u64], _: usize, _: &Class) -> Result<(), &'static str> {
        Ok(())
    }
}
