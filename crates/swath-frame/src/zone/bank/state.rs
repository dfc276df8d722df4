//! Banks that begin with frames in use, as another allocator left them.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::map::MemoryMap;
use crate::zone::allocator::{Mobility, ZoneAllocator};
use crate::zone::bank::buddy::BankBuddy;
use crate::zone::bank::placement::Placement;
use crate::zone::bank::ranges::{BankLayout, BankLayoutError};

impl<W: DerefMut<Target = [u64]>, P: Placement> BankBuddy<W, P> {
    /// Like [`new`](Self::new), but the frames of the extents in `used`, ascending, are in use for
    /// owners of this mobility; what of them is not the zone's does not count. A bank is where the
    /// placement has those that serve the mobility of most of its frames in use, movable if as many
    /// are of either. O(words + r + B·orders) for r extents and B banks.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn from_state<I>(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        rule: P,
        storage: W,
        used: I,
    ) -> Result<Self, BankLayoutError>
    where
        I: IntoIterator<Item = (Extent, Mobility)>,
        I::IntoIter: Clone,
    {
        let mut buddy = Self::new(map, zone, banks, rule, storage)?;
        let used = used.into_iter();
        // Banks without frames are in the other state already.
        for bank in 0..buddy.banks() {
            let _ = buddy.isolate_bank(bank);
        }
        let mut runs = used.clone().peekable();
        for bank in 0..buddy.banks() {
            let own = buddy.blocks.extent(bank);
            let (mut movable, mut unmovable) = (0, 0);
            while let Some(&(run, mobility)) = runs.peek() {
                let inside = run.intersect(own).intersect(zone).count;
                *(if mobility == Mobility::Movable { &mut movable } else { &mut unmovable }) +=
                    inside;
                if run.end() > own.end() {
                    break;
                }
                runs.next();
            }
            if movable + unmovable == 0 || buddy.rejoin_bank(bank).is_err() {
                continue;
            }
            // All of it, as it is the only bank that can serve.
            let owner = if unmovable > movable { Mobility::Unmovable } else { Mobility::Movable };
            for k in (0..=banks.top().k()).rev() {
                while buddy.allocate(Order::known(k as u8), owner).is_some() {}
            }
        }
        for bank in 0..buddy.banks() {
            if buddy.bank(bank).is_some_and(|state| state.isolated) {
                let _ = buddy.rejoin_bank(bank);
            }
        }
        let mut runs = used.map(|(run, _)| run).peekable();
        for area in map.areas().iter().map(|area| area.intersect(zone)) {
            let mut at = area.start;
            while at < area.end() {
                let next = runs.peek().copied().filter(|run| run.start < area.end());
                let end = next.map_or(area.end(), |run| run.start.max(at));
                buddy.free_unused(Extent::between(at, end));
                at = next.map_or(area.end(), |run| run.end().max(at));
                if next.is_some_and(|run| run.end() <= area.end()) {
                    runs.next();
                }
            }
        }
        Ok(buddy)
    }

    /// Frees the frames of an extent that was taken as a whole, but for those of banks that were not.
    fn free_unused(&mut self, extent: Extent) {
        let mut rest = extent;
        while !rest.is_empty() {
            let end = self.bank_of(rest.start).map_or(rest.end(), |bank| self.end_of(bank));
            let (part, beyond) = rest.split_at(end - rest.start);
            rest = beyond;
            if self.is_free(part.start) {
                continue;
            }
            for (start, order) in part.blocks(self.blocks_top()) {
                let freed = self.free(start, order);
                debug_assert_eq!(freed, Ok(()), "a frame that was taken");
            }
        }
    }

    fn end_of(&self, bank: usize) -> Pfn {
        self.blocks.extent(bank).end()
    }

    fn blocks_top(&self) -> Order {
        Order::known(self.blocks.top as u8)
    }
}
