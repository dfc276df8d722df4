//! The memory that every measurement uses, the allocators over it, and the
//! median of what was measured.

use std::sync::atomic::{AtomicBool, Ordering};

use lock_api::{GuardSend, RawMutex};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::buddy::Rule;
use swath_frame::{BuddyConfig, ByteRange, Hardening, MemoryMap, PageBuddy};

use crate::failure::{Failure, setup};

/// 4 GiB of base frames.
pub(crate) const FRAMES: u64 = 1 << 20;

/// Calls measured by each entry for single frames.
pub(crate) const CALLS: usize = 1 << 16;

/// The binary buddy system with MAX_ORDER 9: orders 0 to 9, as the rows of
/// order 9 need.
pub(crate) fn bbs() -> BuddyConfig {
    BuddyConfig::new(1, Order::known(9)).expect("granularity 1 has ten orders up to 9")
}

/// The map of all frames.
pub(crate) fn all_frames() -> MemoryMap<'static> {
    let ranges = [ByteRange::of_frames(Extent::new(Pfn::new(0), FRAMES))];
    let areas = Box::leak(Box::new([Extent::default()]));
    MemoryMap::new(&ranges, areas).expect("one range makes one area")
}

/// A page buddy allocator over all frames, all of them free or all allocated.
pub(crate) fn buddy<R: Rule, H: Hardening>(
    config: BuddyConfig,
    free: bool,
) -> PageBuddy<Vec<u64>, R, H> {
    let map = all_frames();
    let words = PageBuddy::<Vec<u64>, R, H>::storage_words(&map, config);
    let storage = vec![0; words];
    let built = if free {
        PageBuddy::new(&map, config, storage)
    } else {
        PageBuddy::new_allocated(&map, config, storage)
    };
    built.expect("the storage has the size asked for")
}

/// Checks that the frames were free and are different, and that no other
/// frame went.
pub(crate) fn check_taken(
    taken: &[Option<Pfn>],
    used: &[Pfn],
    free_after: u64,
) -> Result<u64, String> {
    let mut seen = vec![false; FRAMES as usize];
    used.iter().for_each(|frame| seen[frame.raw() as usize] = true);
    for frame in taken {
        let frame = frame.ok_or("a frame was free, none was given")?;
        if std::mem::replace(&mut seen[frame.raw() as usize], true) {
            return Err(format!("frame {frame} was given twice"));
        }
    }
    let held = (used.len() + taken.len()) as u64;
    if free_after != FRAMES - held {
        return Err(format!("{free_after} frames are free and {held} are used"));
    }
    Ok(taken.len() as u64)
}

/// The smallest lock there is. It never waits here: one thread runs.
pub(crate) struct SpinLock(AtomicBool);

// SAFETY: `lock` and `try_lock` return holding the lock only where they changed
// the flag from false to true in one atomic step, which no other thread can do
// until `unlock` stores false; acquire and release order what is inside.
unsafe impl RawMutex for SpinLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The median of times or speeds; sorts them, ascending.
///
/// # Panics
/// If there are none.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let above = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[above]
    } else {
        f64::midpoint(numbers[above - 1], numbers[above])
    }
}

/// Reads an option's number, from 1 to `most`.
fn number(text: &str, most: u64) -> Result<u64, Failure> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| setup(format!("not a number from 1 to {most}: {text:?}")))
}

/// Reads options, each a name, its number and the most that it may be; those that are not given stay.
pub(crate) fn numbers(
    mut options: &[&str],
    known: &mut [(&str, &mut u64, u64)],
) -> Result<(), Failure> {
    while let [name, rest @ ..] = options {
        let found = known.iter_mut().find(|(known, ..)| known == name);
        let (_, value, most) = found.ok_or_else(|| setup(format!("no such option: {name:?}")))?;
        let [text, rest @ ..] = rest else {
            return Err(setup(format!("no number for {name}")));
        };
        **value = number(text, *most)?;
        options = rest;
    }
    Ok(())
}

/// A median with the least and the most, where they differ.
pub(crate) fn spread(values: &mut [f64], digits: usize) -> String {
    let middle = median(values);
    let (least, most) = (values[0], values[values.len() - 1]);
    if least == most {
        format!("{middle:.digits$}")
    } else {
        format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}
