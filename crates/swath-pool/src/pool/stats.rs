//! The statistics of a pool.

use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::pool::buffer_pool::BufferPool;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{CLASSES, LAYOUTS, UNIT_BYTES, slot_bytes};
use crate::superblock::owner::Role;

/// Counts of what a pool holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferStats {
    /// Bytes of blocks in use, as long as their slots and segments are. A
    /// guard is not among them.
    pub live_bytes: u64,
    /// Bytes of superblocks and segments.
    pub held_bytes: u64,
    /// Bytes of segments in use, guards included.
    pub segment_bytes: u64,
    /// Bytes of free units whose memory has not gone back to the system, those that heaps keep
    /// among them.
    pub cached_bytes: u64,
    /// Number of superblocks of each class.
    pub superblocks: [u32; CLASSES],
    /// Number of superblocks of the global heap.
    pub global_superblocks: u32,
    /// Number of slots that threads returned to heaps of other threads, as far as these have
    /// collected them.
    pub remote_frees: u64,
    /// Number of blocks that were freed twice, by two threads at the same time.
    pub late_double_frees: u64,
    /// Number of heaps that have a thread.
    pub heaps: u32,
}

impl<L: RawMutex, S: SegmentSource> BufferPool<'_, L, S> {
    /// Counts what the pool holds. While other threads are at work the numbers are of no one
    /// moment.
    ///
    /// O(h + w) for h heaps used so far and w words of slots' bits in all superblocks.
    #[must_use]
    pub fn stats(&self) -> BufferStats {
        let global = self.lock();
        let heaps = &self.heaps()[..global.heaps_high];
        let attached = heaps.iter().filter(|slot| slot.is_attached());
        let kept = heaps.iter().flat_map(|slot| slot.kept.runs()).map(|run| u64::from(run.units));
        let remote = heaps.iter().map(|slot| slot.remote_frees.load(Relaxed));
        let mut stats = BufferStats {
            live_bytes: 0,
            held_bytes: 0,
            segment_bytes: 0,
            cached_bytes: (global.dirty_units() + kept.sum::<u64>()) * UNIT_BYTES as u64,
            superblocks: [0; CLASSES],
            global_superblocks: 0,
            remote_frees: remote.fold(global.remote_frees, u64::wrapping_add),
            late_double_frees: self.late_double_frees.load(Relaxed),
            heaps: attached.count() as u32,
        };
        let bytes = |units: u32| u64::from(units) * UNIT_BYTES as u64;
        let mut unit = 0;
        while unit < global.high {
            let superblock = &self.superblocks()[unit as usize];
            let held = match superblock.owner().role() {
                Role::Free | Role::Inner(_) => None,
                Role::Segment => superblock.segment_units().inspect(|&units| {
                    stats.segment_bytes += bytes(units);
                    stats.live_bytes += self.segment_bytes(units) as u64;
                }),
                Role::Superblock { heap } => superblock.class().map(|class| {
                    let units = LAYOUTS[class].units;
                    let returned = self.returned_bits(unit).count();
                    let used = self.live().count(unit, units).saturating_sub(returned);
                    stats.live_bytes += u64::from(used) * slot_bytes(class) as u64;
                    stats.superblocks[class] += 1;
                    stats.global_superblocks += u32::from(heap == 0);
                    units
                }),
            };
            stats.held_bytes += held.map_or(0, bytes);
            // Nothing begins here, or a record was overwritten; segments begin without the lock.
            unit = unit.saturating_add(held.unwrap_or(1).max(1));
        }
        stats
    }
}
