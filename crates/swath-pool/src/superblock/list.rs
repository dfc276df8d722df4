//! Lists of superblocks: of those with returned slots, and of those of one heap.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::superblock::atomic::Shared32;
use crate::superblock::record::Superblock;

/// A list of superblocks with returned slots: any thread pushes one, and the owner takes the
/// whole list.
pub(crate) struct ReturnList(Shared32);

impl ReturnList {
    pub(crate) fn new() -> Self {
        Self(Shared32::new(0))
    }

    /// Pushes superblock `index`; the caller has the right to.
    pub(crate) fn push(&self, superblocks: &[Superblock], index: u32) {
        let link = &superblocks[index as usize].link;
        let mut head = self.0.load(Relaxed);
        loop {
            link.store(head, Relaxed);
            match self.0.compare_exchange_weak(head, index + 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.0.load(Relaxed).checked_sub(1)
    }

    /// Empties the list; what was on it has to leave.
    pub(crate) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Empties the list and visits what was on it. The visitor either pushes a
    /// superblock on another list or makes it leave.
    pub(crate) fn take(&self, superblocks: &[Superblock], mut visit: impl FnMut(u32)) {
        if self.is_empty() {
            return;
        }
        let mut next = self.0.swap(0, Acquire);
        // A link that was overwritten leads nowhere, or round and round.
        for _ in superblocks {
            let Some(index) = next.checked_sub(1) else { return };
            let Some(superblock) = superblocks.get(index as usize) else { return };
            // Before the visit, after which another thread may push it.
            next = superblock.link.load(Relaxed);
            visit(index);
        }
    }
}

/// A list of superblocks of one heap, in the order in which they came. Only the
/// heap's owner touches it, or the thread that holds the pool's lock.
pub(crate) struct List {
    first: AtomicU32,
    last: AtomicU32,
}

/// A neighbour in a list, plus one; 0, as at the list's end, for a number that was overwritten and
/// is none of a superblock.
#[inline]
fn known(superblocks: &[Superblock], link: u32) -> u32 {
    if link as usize <= superblocks.len() { link } else { 0 }
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { first: AtomicU32::new(0), last: AtomicU32::new(0) }
    }

    pub(crate) fn clear(&self) {
        self.first.store(0, Relaxed);
        self.last.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.first.load(Relaxed).checked_sub(1)
    }

    /// Returns true if superblock `last`, plus one, is the last; 0 for an empty list.
    pub(crate) fn ends_with(&self, last: u32) -> bool {
        self.last.load(Relaxed) == last
    }

    pub(crate) fn push(&self, superblocks: &[Superblock], index: u32) {
        let last = self.last.load(Relaxed);
        let superblock = &superblocks[index as usize];
        superblock.before.store(last, Relaxed);
        superblock.after.store(0, Relaxed);
        let link = match known(superblocks, last) {
            0 => &self.first,
            _ => &superblocks[last as usize - 1].after,
        };
        link.store(index + 1, Relaxed);
        self.last.store(index + 1, Relaxed);
    }

    pub(crate) fn remove(&self, superblocks: &[Superblock], index: u32) {
        let superblock = &superblocks[index as usize];
        let before = known(superblocks, superblock.before.load(Relaxed));
        let after = known(superblocks, superblock.after.load(Relaxed));
        let ahead = match before {
            0 => &self.first,
            _ => &superblocks[before as usize - 1].after,
        };
        ahead.store(after, Relaxed);
        let behind = match after {
            0 => &self.last,
            _ => &superblocks[after as usize - 1].before,
        };
        behind.store(before, Relaxed);
    }

    pub(crate) fn pop(&self, superblocks: &[Superblock]) -> Option<u32> {
        let index = self.first().filter(|&index| (index as usize) < superblocks.len())?;
        self.remove(superblocks, index);
        Some(index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use swath_arch::testing::Random;

    use super::*;

    const SUPERBLOCKS: u32 = 9;

    fn records() -> Vec<Superblock> {
        (0..SUPERBLOCKS).map(|_| Superblock::new()).collect()
    }

    /// Beside a vector of the numbers in a list, first to last.
    #[test]
    fn lists_are_in_the_order_in_which_superblocks_came() {
        let (superblocks, mut random) = (records(), Random::new(1));
        let lists = [List::new(), List::new()];
        let mut plain = [Vec::new(), Vec::new()];
        for _ in 0..5000 {
            let nth = random.index(2);
            let (list, own) = (&lists[nth], &mut plain[nth]);
            match random.below(4) {
                0 => assert_eq!(list.pop(&superblocks), (!own.is_empty()).then(|| own.remove(0))),
                1 if !own.is_empty() => {
                    list.remove(&superblocks, own.remove(random.index(own.len())));
                }
                _ => {
                    let index = random.below(SUPERBLOCKS.into()) as u32;
                    if !plain.iter().any(|plain| plain.contains(&index)) {
                        list.push(&superblocks, index);
                        plain[nth].push(index);
                    }
                }
            }
            if random.one_in(200) {
                list.clear();
                plain[nth].clear();
            }
            for (list, own) in lists.iter().zip(&plain) {
                assert_eq!(list.first(), own.first().copied());
                let last = own.last().map_or(0, |index| index + 1);
                assert!(list.ends_with(last) && !list.ends_with(last + 1));
                let links = |link: &dyn Fn(&Superblock) -> u32| -> Vec<u32> {
                    own.iter().map(|&index| link(&superblocks[index as usize])).collect()
                };
                let after: Vec<u32> =
                    own.iter().skip(1).map(|index| index + 1).chain([0]).collect();
                let before: Vec<u32> = [0].into_iter().chain(own.iter().map(|i| i + 1)).collect();
                assert_eq!(links(&|s| s.after.load(Relaxed)), after[..own.len()]);
                assert_eq!(links(&|s| s.before.load(Relaxed)), before[..own.len()]);
            }
        }
    }

    #[test]
    fn a_number_that_is_none_of_a_superblock_ends_a_list() {
        let superblocks = records();
        let list = List::new();
        let count = SUPERBLOCKS;
        list.push(&superblocks, count - 1);
        assert_eq!(list.pop(&superblocks), Some(count - 1), "the last of all");
        for wrong in [count + 1, u32::MAX] {
            list.first.store(wrong, Relaxed);
            assert_eq!(list.pop(&superblocks), None);
            list.last.store(wrong, Relaxed);
            list.push(&superblocks, 3);
            assert_eq!((list.first(), list.ends_with(4)), (Some(3), true));
            superblocks[3].after.store(wrong, Relaxed);
            list.remove(&superblocks, 3);
            assert!(list.first().is_none_or(|first| first >= count));
        }
    }

    #[test]
    fn what_was_returned_is_taken_last_to_first() {
        let superblocks = records();
        let list = ReturnList::new();
        let take = |list: &ReturnList| {
            let mut taken = Vec::new();
            list.take(&superblocks, |index| taken.push(index));
            taken
        };
        assert!(list.is_empty() && list.first().is_none() && take(&list).is_empty());
        [3, 0, 8].into_iter().for_each(|index| list.push(&superblocks, index));
        assert_eq!((list.is_empty(), list.first()), (false, Some(8)));
        assert_eq!(take(&list), [8, 0, 3]);
        assert!(list.is_empty() && list.first().is_none());
        list.push(&superblocks, 5);
        list.forget();
        assert!(list.is_empty() && take(&list).is_empty());
        // A visitor may push on another list.
        let other = ReturnList::new();
        (0..SUPERBLOCKS).for_each(|index| list.push(&superblocks, index));
        list.take(&superblocks, |index| other.push(&superblocks, index));
        assert_eq!(take(&other), (0..SUPERBLOCKS).collect::<Vec<_>>());
        // Links that lead nowhere, or round and round.
        [1, 2].into_iter().for_each(|index| list.push(&superblocks, index));
        superblocks[2].link.store(SUPERBLOCKS + 1, Relaxed);
        assert_eq!(take(&list), [2]);
        list.push(&superblocks, 1);
        superblocks[1].link.store(2, Relaxed);
        assert_eq!(take(&list), [1; SUPERBLOCKS as usize]);
    }
}
