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
