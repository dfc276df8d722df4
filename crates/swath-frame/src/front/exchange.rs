//! State that all CPUs share, and how a CPU's areas come from there and go back.

use core::sync::atomic::Ordering::Relaxed;

use lock_api::{Mutex, MutexGuard, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::front::areas::{AREAS, Areas, SPARE_AREAS, Wrong, runs};
use crate::front::bits::{BITS, UNIT_FRAMES};
use crate::front::pages::{HUGE_ORDER, Pages};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

/// Frames of an area that short blocks are cut from: as many as have their bits on one cache
/// line.
const AREA_FRAMES: u64 = if cfg!(loom) { BITS } else { 256 };

/// Something on cache lines of its own: what all read is not taken from them when it changes.
#[repr(align(128))]
struct Apart<T>(T);

/// The allocator that all CPUs share, **spare** areas, and [huge pages](Pages) that are pooled.
///
/// Where one CPU frees what another allocates, the one's areas overflow as often as the other has to
/// claim. So what overflows is kept aside for who claims next, and neither touches a word of the
/// allocator's for each block: huge pages in the pool, for which nobody waits, and what is no whole page, where there is
/// much of it, in spare areas.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame of the spare areas. Their lock is
/// taken before the allocator's, and after a slot's.
pub(super) struct Shared<'m, R, A> {
    allocator: Apart<Mutex<R, A>>,
    spare: Apart<Mutex<R, Areas<SPARE_AREAS>>>,
    pub(super) pages: Pages<'m>,
    /// As far as is known, no frame below this one is free in the allocator, if that gives the lowest
    /// first. Only what is best to do follows from it: it may be old.
    lowest: Apart<AtomicUsize>,
}

impl<'m, R: RawMutex, A: FrameAllocator> Shared<'m, R, A> {
    /// An allocator, no spare areas, which may become so many frames, and no pages.
    pub(super) fn new(allocator: A, spare_max: u64, pages: Pages<'m>) -> Self {
        let (allocator, spare) = (Mutex::new(allocator), Mutex::new(Areas::new(spare_max)));
        let lowest = Apart(AtomicUsize::new(0));
        Self { allocator: Apart(allocator), spare: Apart(spare), pages, lowest }
    }

    /// About the lowest frame that the allocator would give.
    pub(super) fn lowest(&self) -> u64 {
        self.lowest.0.load(Relaxed) as u64
    }

    fn set_lowest(&self, frame: u64) {
        self.lowest.0.store(usize::try_from(frame).unwrap_or(usize::MAX), Relaxed);
    }

    /// Notes what the allocator gave first.
    pub(super) fn note_claimed(&self, block: Extent) {
        self.set_lowest(block.start.raw().saturating_add(block.count));
    }

    /// Notes a frame that goes back to the allocator, the lowest of several.
    pub(super) fn note_returned(&self, frame: u64) {
        if frame < self.lowest() {
            self.set_lowest(frame);
        }
    }

    /// Frees blocks of `count` frames, which ascend.
    #[inline(always)]
    pub(super) fn free_blocks(&self, blocks: &[u64], count: u64) -> Result<(), Wrong> {
        self.note_returned(blocks.first().copied().unwrap_or(u64::MAX));
        free_all(runs(blocks, count), &mut *self.lock())
    }

    /// The allocator.
    #[inline(always)]
    pub(super) fn lock(&self) -> MutexGuard<'_, R, A> {
        self.allocator.0.lock()
    }

    /// The spare areas.
    #[inline(always)]
    pub(super) fn spare(&self) -> MutexGuard<'_, R, Areas<SPARE_AREAS>> {
        self.spare.0.lock()
    }

    /// The allocator alone.
    pub(super) fn into_inner(self) -> A {
        self.allocator.0.into_inner()
    }
}

/// Frees blocks; each is tried.
pub(super) fn free_all(
    blocks: impl Iterator<Item = Extent>,
    allocator: &mut impl FrameAllocator,
) -> Result<(), Wrong> {
    let tried = blocks.map(|block| allocator.free(block).map_err(|_| Wrong));
    tried.fold(Ok(()), Result::and)
}

/// The place of the first of the last blocks of which each is so many frames above the one before it.
#[inline(always)]
fn last_steps(blocks: &[u64], step: u64) -> usize {
    let mut pairs = blocks.windows(2);
    let breaks = pairs.rposition(|pair| pair[1].wrapping_sub(pair[0]) != step);
    breaks.map_or(0, |at| at + 1)
}

/// The run that the last blocks of `count` frames are, up or down, and how many are before them.
#[inline(always)]
fn last_run(blocks: &[u64], count: u64) -> (usize, Extent) {
    let up = last_steps(blocks, count);
    let (before, lowest) = if up + 1 < blocks.len() {
        (up, up)
    } else {
        (last_steps(blocks, count.wrapping_neg()), up)
    };
    let start = blocks.get(lowest).copied().unwrap_or_default();
    let frames = count.wrapping_mul((blocks.len() - before) as u64);
    (before, Extent::new(Pfn::new(start), frames))
}

impl<const N: usize> Areas<N> {
    /// Returns everything.
    pub(super) fn flush(&mut self, allocator: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let fits = self.fits();
        let result = free_all(self.iter(), allocator);
        self.clear();
        if fits { result } else { Err(Wrong) }
    }
}

impl Areas {
    /// Makes room where there is none for more of these blocks of `count` frames, which are in the order
    /// in which they came. If the last half of them or more are one run, that becomes an area. Otherwise the
    /// upper half goes: to the areas, too, if it is long blocks or few runs of short ones, else to the allocator, as single
    /// frames do. How many stay.
    #[inline(always)]
    pub(super) fn make_room<R: RawMutex>(
        &mut self,
        blocks: &mut [u64],
        count: u64,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> (usize, Result<(), Wrong>) {
        let (before, run) = last_run(blocks, count);
        if before <= blocks.len() / 2 {
            return (before, self.collect(run, shared));
        }
        blocks.sort_unstable();
        // Not one of a pair, which may be a huge page.
        let half = blocks.len() / 2;
        let (kept, gone) = blocks.split_at(if half > 1 { half & !1 } else { half });
        let are_few = || count > 1 && runs(gone, count).nth(AREAS / 2).is_none();
        let result = if count > BITS || are_few() {
            runs(gone, count).map(|run| self.collect(run, shared)).fold(Ok(()), Result::and)
        } else {
            shared.free_blocks(gone, count)
        };
        (kept.len(), result)
    }

    /// Makes a run that came back an area, or joins it to one. Only if there is no room for it, or the
    /// areas would be too long together, their whole huge pages go at once, so that who gives back much in a row rarely
    /// does a step on what others change, too. What is left at the ends stays, as what comes next may border on it. If
    /// that is too much, as where there is no room for the pages, it becomes spare, or goes to the
    /// allocator; where another has that, areas may grow to twice as many frames before it is waited for.
    fn collect<R: RawMutex>(
        &mut self,
        run: Extent,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        let most = self.frames_max;
        if self.count().saturating_add(run.count) <= most && self.join(run) {
            return Ok(());
        }
        let mut rest = Areas::new(u64::MAX);
        let mut result = self.pool(&shared.pages, &mut rest);
        let frames = rest.count().saturating_add(run.count);
        let stays = rest.are_few() && frames <= most;
        if !stays && !shared.spare().take_all_from(&mut rest) {
            let at_once = shared.allocator.0.try_lock();
            if at_once.is_some() || !rest.are_few() || frames > most.saturating_mul(2) {
                let mut allocator = at_once.unwrap_or_else(|| shared.lock());
                rest.iter().for_each(|area| shared.note_returned(area.start.raw()));
                result = result.and(rest.flush(&mut *allocator));
            }
        }
        self.take_rest_from(&mut rest);
        let room = self.join(run);
        debug_assert!(room, "no area is left, or few are");
        result
    }

    /// Pools the whole huge pages of all areas; what is left at their ends goes to `rest`.
    fn pool(&mut self, pages: &Pages<'_>, rest: &mut Areas<{ 2 * AREAS }>) -> Result<(), Wrong> {
        let mut result = if self.fits() { Ok(()) } else { Err(Wrong) };
        for mut area in self.iter() {
            match pages.give(&mut area) {
                Ok(above) => [area, above]
                    .into_iter()
                    .filter(|end| !end.is_empty())
                    .for_each(|end| _ = rest.push(end)),
                Err(Wrong) => result = Err(Wrong),
            }
        }
        self.clear_areas();
        result
    }

    /// Takes in an area that came back and for which there is no room: the older half goes.
    pub(super) fn spill(
        &mut self,
        area: Extent,
        allocator: &mut impl FrameAllocator,
    ) -> Result<(), Wrong> {
        self.forget_claims();
        self.replace(area, allocator)
    }

    /// Takes in an area in place of the older half.
    fn replace(&mut self, area: Extent, allocator: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let mut result = Ok(());
        let fits = self.push_over(area, |gone| {
            result = result.and(allocator.free(gone).map_err(|_| Wrong));
        });
        if fits { result } else { Err(Wrong) }
    }

    /// Takes in an area that was claimed, for which there may have to be made room.
    fn keep(&mut self, area: Extent, allocator: &mut impl FrameAllocator) -> Result<(), Wrong> {
        if self.push(area) { Ok(()) } else { self.replace(area, allocator) }
    }

    /// Takes over spare areas, or pooled pages of which a block of this order can be cut: who wants no less first
    /// those, for which nobody is waited for.
    fn take_over<R: RawMutex>(
        &mut self,
        order: u32,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        if order >= HUGE_ORDER {
            return if shared.pages.take(order, self) { Ok(()) } else { self.take_spare(shared) };
        }
        let len = self.len();
        self.take_spare(shared)?;
        if self.len() == len {
            shared.pages.take(order, self);
        }
        Ok(())
    }

    /// Takes over spare areas.
    fn take_spare<R: RawMutex>(
        &mut self,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        let mut spare = shared.spare();
        if !spare.fits() {
            spare.clear();
            return Err(Wrong);
        }
        self.take_from(&mut spare);
        Ok(())
    }

    /// Claims an area that has an aligned block of `order`, and takes that out: a spare one, or what the
    /// allocator gives first, which it prefers to use, if it has one, otherwise a whole huge page.
    pub(super) fn claim_block<R: RawMutex>(
        &mut self,
        order: u32,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<Option<u64>, Wrong> {
        let frames = 1_u64 << order;
        self.take_over(order, shared)?;
        if let Some(start) = self.cut_block(frames) {
            return Ok(Some(start));
        }
        // Blocks whose bits are those of parts come from units of their own.
        let wanted =
            self.next_frames(if frames < AREA_FRAMES / 2 { AREA_FRAMES } else { UNIT_FRAMES });
        let allocator = &mut *shared.lock();
        if frames < wanted && self.claim(frames, wanted, allocator)? {
            return Ok(self.cut_block(frames));
        }
        let order = Order::known(order.max(HUGE_ORDER) as u8);
        let Ok(block) = allocator.allocate_aligned(order) else { return Ok(None) };
        if block.count == frames {
            return Ok(Some(block.start.raw()));
        }
        self.keep(block, allocator)?;
        Ok(self.cut_block(frames))
    }

    /// Claims areas that have an aligned block of `frames` each, `wanted` frames together: what the
    /// allocator gives first. Where that is in pieces, several, as the lock is held. True if there is one.
    fn claim(
        &mut self,
        frames: u64,
        mut wanted: u64,
        allocator: &mut impl FrameAllocator,
    ) -> Result<bool, Wrong> {
        let mut claimed = false;
        while wanted >= frames && !(claimed && self.is_half_full()) {
            let Some(area) = allocator.allocate_block(wanted) else { break };
            let before = area.start.raw().next_multiple_of(frames) - area.start.raw();
            if before + frames > area.count {
                allocator.free(area).map_err(|_| Wrong)?;
                break;
            }
            wanted -= area.count;
            self.keep(area, allocator)?;
            claimed = true;
        }
        Ok(claimed)
    }

    /// Claims an area for several runs of so many frames, and takes one out, or all if there are fewer. Who gathers
    /// asks for no more each time where memory is in pieces, and notes what came.
    pub(super) fn claim_run<R: RawMutex>(
        &mut self,
        count: u64,
        gathers: bool,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<Option<Extent>, Wrong> {
        self.take_over(0, shared)?;
        let taken = |start| Extent::new(Pfn::new(start), count);
        if let Some(start) = self.cut_run(count) {
            return Ok(Some(taken(start)));
        }
        // A rest that is too short for another would be served first when it has gone back.
        let frames = self.next_frames(AREA_FRAMES).max(count) / count * count;
        let allocator = &mut *shared.lock();
        let Some(area) = allocator.allocate_block(frames) else { return Ok(None) };
        if gathers {
            shared.note_claimed(area);
            // A longer request would be served from beyond the pieces.
            if area.count < frames {
                self.forget_claims();
            }
        }
        if area.count <= count {
            return Ok(Some(area));
        }
        self.keep(area, allocator)?;
        Ok(self.cut_run(count).map(taken))
    }
}
