//! Adaptive-Buddy's own calls: its pools, and what a migration thread asks of it.

use core::ops::DerefMut;

use swath_arch::{Order, Pfn};

use crate::hardening::{Hardening, Latch};
use crate::zone::bank::buddy::AdaptiveBuddy;
use crate::zone::bank::placement::{Pick, Placement};
use crate::zone::bank::pools::{PoolMoves, PoolPolicy};
use crate::zone::bank::ranges::BankPool;

impl<W: DerefMut<Target = [u64]>, H: Hardening> AdaptiveBuddy<W, H> {
    /// Returns the preference of each pool.
    pub fn policy(&self) -> PoolPolicy {
        self.rule.policy
    }

    /// Returns the counts of moves between the pools so far.
    pub fn moves(&self) -> PoolMoves {
        self.rule.moves
    }

    /// Free frames of a pool's banks, isolated ones left out. O(1).
    pub fn pool_free_frames(&self, pool: BankPool) -> u64 {
        let (b, s) = (&self.blocks, H::read(&self.storage));
        let own = |&bank: &usize| self.rule.pool(b, s, bank) == Some(pool);
        let open = b.open_banks().filter(own).map(|bank| u64::from(b.open_of(bank)));
        self.rule.free[pool as usize] + open.sum::<u64>()
    }

    /// The banks of POOL_USER that have free frames and are not isolated, the
    /// emptiest first (up to a 32nd of a bank): candidates for migration.
    /// `None` asks for the first; there is none after a bank that is no
    /// candidate (any more). O(C).
    ///
    /// # Examples
    /// ```
    /// # use swath_arch::{Extent, Order, Pfn};
    /// # use swath_frame::zone::bank::{AdaptiveBuddy, PoolPlacement};
    /// # use swath_frame::zone::bank::{BankLayout, BankPool};
    /// # use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};
    /// # let mut areas = [Extent::default(); 1];
    /// # let zone = Extent::new(Pfn::new(0), 4 << 16);
    /// # let map = MemoryMap::new(&[ByteRange::of_frames(zone)], &mut areas).unwrap();
    /// # let rule = PoolPlacement::default();
    /// # let words = AdaptiveBuddy::<Vec<u64>>::storage_words(&map, zone, BankLayout::PAPER, &rule).unwrap();
    /// # let mut buddy = AdaptiveBuddy::new(&map, zone, BankLayout::PAPER, rule, vec![0; words]).unwrap();
    /// // A bank and a half of user memory, of which most of the first is freed.
    /// let frames: Vec<_> =
    ///     (0..3 << 15).map(|_| buddy.allocate(Order::BASE, Mobility::Movable).unwrap()).collect();
    /// for &frame in &frames[..60_000] {
    ///     buddy.free(frame, Order::BASE).unwrap();
    /// }
    /// let candidate = buddy.next_candidate(None).unwrap();
    /// assert_eq!(buddy.bank(candidate).unwrap().allocated_frames(), (1 << 16) - 60_000);
    ///
    /// // Emptied, it goes offline.
    /// buddy.isolate_bank(candidate).unwrap();
    /// while let Some(old) = buddy.next_allocated(candidate, Pfn::new(0)) {
    ///     let _new = buddy.allocate_own(Order::BASE, BankPool::User).unwrap();
    ///     buddy.free(old, Order::BASE).unwrap();
    /// }
    /// buddy.rejoin_bank(candidate).unwrap();
    /// assert_eq!(buddy.bank(candidate).unwrap().pool, Some(BankPool::Offline));
    /// ```
    pub fn next_candidate(&self, after: Option<usize>) -> Option<usize> {
        self.rule.candidate(&self.blocks, H::read(&self.storage), after)
    }

    /// Allocates a block from the fullest bank (up to a 32nd) that a pool has,
    /// whatever the policy, and from no bank of another pool: a target for
    /// migration, which is to fill banks and open none. `None` if there is none,
    /// and always for POOL_OFFLINE. O(C) and the allocation.
    pub fn allocate_own(&mut self, order: Order, pool: BankPool) -> Option<Pfn> {
        if order.k() > self.blocks.top || pool == BankPool::Offline || self.latch.fault().is_some()
        {
            return None;
        }
        let (b, s, pool) = (&mut self.blocks, H::write(&mut self.storage), pool as usize);
        let mut bank = self.rule.fullest(s, pool, order.k());
        if bank.is_none() && order > Order::BASE && self.rule.close_all(b, s) {
            bank = self.rule.fullest(s, pool, order.k());
        }
        let frame = bank.and_then(|bank| self.allocate_from(bank, order.k(), Pick::Smallest));
        self.settle();
        frame
    }
}
