//! A whole machine's frames: nodes with zones, watermarks and per-CPU lists,
//! above any [`ZoneAllocator`].
//!
//! What stands here is the same for Linux's zones and for the green ones, and
//! follows the kernel (6.18):
//!
//! * A request looks at its own node's zones first, from the highest that it
//!   may use downwards, then at the other nodes' ([`Layout::zonelist`]).
//! * It first wants a zone that is left above its **low** watermark, and there
//!   no pageblock mixed with another mobility (only where a lower zone is the
//!   alternative); then one above the **min** watermark; and only an urgent
//!   request takes what is below. A zone keeps a reserve against requests that
//!   could have used higher zones.
//! * Blocks of orders 0 to 3 and 9 come from [per-CPU lists](crate::machine::per_cpu)
//!   and return there.
//!
//! Reclaim and compaction are the caller's: a request that cannot be served
//! fails, after the per-CPU lists have been emptied if that could help.
//!
//! Beside the zones, the machine knows of each frame whether it is in use and
//! by whom, and counts that by section and by bank. So it can say at once which
//! section could be removed, and take one offline.
//!
//! # What it costs
//! 2 bits per frame, 16 bytes per section and per bank, and 16 bytes for each
//! entry of a per-CPU list, of which there are about as many as its high mark.
//! A request or return costs O(1) beyond the zone's work while the preferred
//! zone serves it, else O(z) for z zones; a batch is paid by its first block.
//!
//! Instructions per call over Linux's zone, counted as
//! [there](crate::zone::linux::zone#what-it-costs): 385 to allocate a single frame and 634 to
//! free one through per-CPU lists, 292 and 424 without. In [runs](Machine::allocate_run) of 64 frames
//! it is half of that to allocate one, and 0.6 to free those that stand side by side; frames here and there
//! are freed for as much as by themselves.

use core::ops::{DerefMut, Range};

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::layout::{Layout, NODES_MAX, ZONES_MAX, ZoneKind};
use crate::machine::config::{CPUS_MAX, MachineConfig, MachineError, MachineSize};
use crate::machine::per_cpu::{Marks, PerCpuLists, has_list};
use crate::machine::request::{BlockRequest, MachineAllocateError, MachineFreeError};
use crate::machine::usage::{Isolation, MemoryUnit, Usage};
use crate::machine::watermark::{Watermarks, list_batch, list_high, min_free_kib, watermarks};
use crate::map::MemoryMap;
use crate::zone::allocator::{Mobility, ZoneAllocator};
use crate::zone::linux::build::ORDER_MAX;

/// The machine's record of one of its zones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZoneState {
    pub(crate) marks: Watermarks,
    pub(crate) lists: Option<Marks>,
    /// The place in the words of its per-CPU lists' entries, and the words that
    /// each CPU has.
    entries_at: usize,
    entries_words: usize,
    /// Frames in per-CPU lists.
    pub(crate) waiting_frames: u64,
    pub(crate) offline_frames: u64,
}

/// A machine's frames over its zones `Zs`, per-CPU lists `Ls` and words `W`,
/// each any owner of a slice.
///
/// Invariants, all walked by [`check`](Self::check):
/// * each frame of the map is free in its zone, in one per-CPU list, isolated
///   or in use; the bitmaps say which are in use;
/// * the counters of sections and banks agree with the bitmaps;
/// * no frame of an isolated unit is in a per-CPU list.
#[derive(Debug)]
pub struct Machine<Zs, Ls, W> {
    pub(crate) layout: Layout,
    pub(crate) zones: Zs,
    pub(crate) lists: Ls,
    pub(crate) words: W,
    pub(crate) usage: Usage,
    pub(crate) states: [ZoneState; ZONES_MAX],
    /// By node and highest kind, the first of the zonelist, and whether requests
    /// from there first try to leave pageblocks unmixed.
    pub(crate) preferred: [[Option<(u8, bool)>; ZoneKind::ALL.len()]; NODES_MAX],
    config: MachineConfig,
    /// Requests that mixed a pageblock after all, if every request is to avoid it.
    mixed_at_last: Option<u64>,
}

/// The watermark that a request has to leave untouched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatermarkLevel {
    Low,
    Min,
    None,
}

/// The marks of all zones at the given numbers of frames.
fn marks(
    layout: &Layout,
    config: MachineConfig,
    managed: impl Fn(usize) -> u64,
) -> [(Watermarks, Option<Marks>); ZONES_MAX] {
    let zones = layout.zones();
    let buffer_frames =
        (0..zones.len()).filter(|zone| zones[*zone].kind != ZoneKind::Movable).map(&managed).sum();
    let kib = config.min_free_kib.unwrap_or(min_free_kib(buffer_frames));
    let watermarks = watermarks(layout, &managed, kib);
    let cpus = config.cpus.div_ceil(layout.nodes());
    core::array::from_fn(|at| {
        let has_lists = config.per_cpu_lists && at < zones.len();
        let lists = has_lists.then(|| {
            let batch = list_batch(managed(at));
            Marks { batch, high: list_high(watermarks[at].low, cpus, batch) }
        });
        (watermarks[at], lists)
    })
}

/// Returns true if requests from `zone` first try to leave pageblocks unmixed:
/// if it is a Normal zone with a lower one to go to.
fn avoids_mixing(layout: &Layout, zone: usize) -> bool {
    let zones = layout.zones();
    zones[zone].kind == ZoneKind::Normal
        && (layout.nodes() == 1
            || zone > 0
                && zones[zone - 1].node == zones[zone].node
                && zones[zone - 1].kind == ZoneKind::Dma32)
}

impl<Z, Zs, Ls, W> Machine<Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Returns the storage that a machine of this layout needs. O(z) for z
    /// zones.
    pub fn size(map: &MemoryMap<'_>, layout: &Layout, config: MachineConfig) -> MachineSize {
        let zones = layout.zones();
        let marks = marks(layout, config, |zone| zones[zone].present_frames);
        let entries: usize = marks.iter().filter_map(|(_, lists)| lists.map(Marks::words)).sum();
        MachineSize {
            words: Usage::new(map.span(), layout).words() + entries * config.cpus,
            lists: if config.per_cpu_lists { zones.len() * config.cpus } else { 0 },
        }
    }

    /// A machine with the frames of `map`, all of them free. `zones` are the
    /// allocators of the layout's zones, in its order; `lists` and `words` are
    /// as large as [`size`](Self::size) says, or larger, and are overwritten.
    ///
    /// # Errors
    /// A [`MachineError`].
    pub fn new(
        map: &MemoryMap<'_>,
        layout: Layout,
        config: MachineConfig,
        zones: Zs,
        lists: Ls,
        words: W,
    ) -> Result<Self, MachineError> {
        Self::from_state(map, layout, config, zones, lists, words, [])
    }

    /// Like [`new`](Self::new), but the frames of the extents in `used` are in use for owners of
    /// this mobility, in the zones' allocators as well. Nothing waits in per-CPU lists. O(words), and
    /// O(n / 64) for n frames in use.
    ///
    /// # Errors
    /// A [`MachineError`].
    pub fn from_state(
        map: &MemoryMap<'_>,
        layout: Layout,
        config: MachineConfig,
        zones: Zs,
        lists: Ls,
        mut words: W,
        used: impl IntoIterator<Item = (Extent, Mobility)>,
    ) -> Result<Self, MachineError> {
        if config.cpus == 0 || config.cpus > CPUS_MAX {
            return Err(MachineError::Cpus { cpus: config.cpus });
        }
        let size = Self::size(map, &layout, config);
        if lists.len() < size.lists {
            return Err(MachineError::Lists { needed: size.lists, given: lists.len() });
        }
        if words.len() < size.words {
            let given_words = words.len();
            return Err(MachineError::Storage { needed_words: size.words, given_words });
        }
        if zones.len() != layout.zones().len() {
            let given = zones.len();
            return Err(MachineError::Zones { needed: layout.zones().len(), given });
        }
        let usage = Usage::new(map.span(), &layout);
        usage.reset(&mut words[usage.range()], map, &layout);
        for (extent, mobility) in used {
            if extent.checked_end().is_none() || !usage.is_free(&words, extent) {
                return Err(MachineError::Used { extent });
            }
            usage.allocate(&mut words, &layout, extent, mobility == Mobility::Movable);
        }
        for (at, (zone, expected)) in zones.iter().zip(layout.zones()).enumerate() {
            let (present, free) = (expected.present_frames, zone.free_frames());
            if (zone.total_frames(), free) != (present, usage.counts(&words, expected.span).free) {
                return Err(MachineError::Frames { zone: at, present, free });
            }
        }

        let mut states = [ZoneState::default(); ZONES_MAX];
        let mut entries_at = usage.words();
        let all_marks = marks(&layout, config, |zone| layout.zones()[zone].present_frames);
        for (state, (watermarks, list_marks)) in states.iter_mut().zip(all_marks) {
            state.marks = watermarks;
            state.lists = list_marks;
            state.entries_at = entries_at;
            state.entries_words = list_marks.map_or(0, Marks::words);
            entries_at += state.entries_words * config.cpus;
        }
        let preferred = core::array::from_fn(|node| {
            ZoneKind::ALL.map(|highest| {
                let first = (node < layout.nodes()).then(|| layout.zonelist(node, highest).next());
                first.flatten().map(|zone| (zone as u8, avoids_mixing(&layout, zone)))
            })
        });
        let mixed_at_last = None;
        let mut machine =
            Self { layout, zones, lists, words, usage, states, preferred, config, mixed_at_last };
        for zone in 0..machine.zones.len() {
            for cpu in 0..config.cpus {
                if machine.states[zone].lists.is_some() {
                    let entries = machine.entries(zone, cpu);
                    let at = machine.list_at(zone, cpu);
                    machine.lists[at].reset(&mut machine.words[entries]);
                }
            }
        }
        Ok(machine)
    }

    /// The kernel's `vm.defrag_mode` (from 6.15 on) from now on, as far as it goes without reclaim and
    /// compaction: a request mixes a pageblock with another mobility only when no zone of any node
    /// serves it otherwise above its min watermark. The kernel reclaims and compacts before that;
    /// [`mixed_at_last`](Self::mixed_at_last) counts how often it would.
    pub fn set_defrag_mode(&mut self) {
        self.mixed_at_last = Some(0);
        let all = self.preferred.iter_mut().flatten().flatten();
        all.for_each(|(_, unmixed)| *unmixed = true);
    }

    /// Requests that no zone served without mixing a pageblock, nor with what waits in per-CPU lists:
    /// 0 but in [`defrag_mode`](Self::set_defrag_mode).
    pub fn mixed_at_last(&self) -> u64 {
        self.mixed_at_last.unwrap_or(0)
    }

    /// Returns the division of the memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The zones' allocators, in the layout's order.
    pub fn zones(&self) -> &[Z] {
        &self.zones
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> usize {
        self.config.cpus
    }

    /// A zone's watermarks as they are now.
    pub fn watermarks(&self, zone: usize) -> Option<Watermarks> {
        (zone < self.zones.len()).then(|| self.states[zone].marks)
    }

    /// A zone's frames in per-CPU lists.
    pub fn waiting_frames(&self, zone: usize) -> u64 {
        self.states.get(zone).map_or(0, |state| state.waiting_frames)
    }

    /// Frames that are free, in zones and in per-CPU lists, and neither
    /// isolated nor offline. O(z) for z zones.
    pub fn free_frames(&self) -> u64 {
        (0..self.zones.len()).map(|zone| self.free_in(zone)).sum()
    }

    pub(crate) fn free_in(&self, zone: usize) -> u64 {
        self.zones[zone].free_frames() + self.states[zone].waiting_frames
    }

    /// Returns true if the frame is in use; `None` if there is no such frame.
    /// O(1).
    pub fn is_used(&self, frame: Pfn) -> Option<bool> {
        self.usage.is_used(&self.words, frame)
    }

    /// For whom a frame is in use: movable, or unmovable, which here includes
    /// reclaimable. `None` if it is not in use. O(1).
    pub fn owner(&self, frame: Pfn) -> Option<Mobility> {
        let movable = self.usage.is_movable(&self.words, frame);
        let mobility = if movable { Mobility::Movable } else { Mobility::Unmovable };
        (self.is_used(frame) == Some(true)).then_some(mobility)
    }

    pub(crate) fn list_at(&self, zone: usize, cpu: usize) -> usize {
        zone * self.config.cpus + cpu
    }

    pub(crate) fn entries(&self, zone: usize, cpu: usize) -> Range<usize> {
        let state = &self.states[zone];
        let start = state.entries_at + cpu * state.entries_words;
        start..start + state.entries_words
    }

    /// The watermarks and the per-CPU lists' marks, after a zone has grown or
    /// shrunk.
    pub(crate) fn renew_marks(&mut self) {
        let managed = |zone: usize| {
            self.layout.zones()[zone].present_frames - self.states[zone].offline_frames
        };
        let all_marks = marks(&self.layout, self.config, managed);
        for (state, (watermarks, list_marks)) in self.states.iter_mut().zip(all_marks) {
            state.marks = watermarks;
            // The entries are as many as at the start.
            let capped = |marks: Marks| match state.entries_words < marks.words() {
                true => state.lists.unwrap_or(marks),
                false => marks,
            };
            state.lists = list_marks.map(capped);
        }
    }

    /// Returns true if a zone keeps its watermark, and has such a block.
    #[inline]
    pub(crate) fn may_allocate(
        &self,
        zone: usize,
        order: Order,
        highest: ZoneKind,
        level: WatermarkLevel,
    ) -> bool {
        let marks = &self.states[zone].marks;
        let mark = match level {
            WatermarkLevel::None => return true,
            WatermarkLevel::Min => marks.min,
            WatermarkLevel::Low => marks.low,
        };
        // Of a larger block, the kernel lets the frames beyond the first count
        // as gone already.
        let free = self.zones[zone].free_frames().saturating_sub(order.frames() - 1);
        free > mark + marks.reserve[highest as usize]
            && (order == Order::BASE
                || self.zones[zone].largest_free().is_some_and(|largest| largest >= order))
    }

    /// Allocates a block from one zone, through a per-CPU list if it has one.
    #[inline]
    fn allocate_in(&mut self, zone: usize, request: &BlockRequest, unmixed: bool) -> Option<Pfn> {
        let BlockRequest { order, mobility, cpu, .. } = *request;
        match self.states[zone].lists {
            Some(marks) if has_list(order) => {
                let entries = self.entries(zone, cpu);
                let at = self.list_at(zone, cpu);
                let (list, allocator) = (&mut self.lists[at], &mut self.zones[zone]);
                let before = list.count_frames();
                let wanted = (order, mobility, unmixed);
                let taken = list.allocate(&mut self.words[entries], marks, allocator, wanted);
                let waiting = &mut self.states[zone].waiting_frames;
                *waiting = *waiting + u64::from(list.count_frames()) - u64::from(before);
                taken
            }
            _ if unmixed => self.zones[zone].allocate_unmixed(order, mobility),
            _ => self.zones[zone].allocate(order, mobility),
        }
    }

    /// Looks through the zonelist once, from its entry `from` on.
    fn scan(
        &mut self,
        request: &BlockRequest,
        level: WatermarkLevel,
        unmixed: bool,
        from: usize,
    ) -> Option<Pfn> {
        let mut nth = from;
        loop {
            let zone = self.layout.zonelist(request.node, request.highest).nth(nth)?;
            // Another node's memory costs more than mixed pageblocks do.
            let stays = unmixed && self.mixed_at_last.is_none();
            if stays && self.layout.zones()[zone].node != request.node {
                return None;
            }
            if self.may_allocate(zone, request.order, request.highest, level)
                && let Some(start) = self.allocate_in(zone, request, unmixed)
            {
                return Some(start);
            }
            nth += 1;
        }
    }

    /// Allocates a block.
    ///
    /// # Errors
    /// A [`MachineAllocateError`]; nothing changes but where free frames wait.
    pub fn allocate(&mut self, request: BlockRequest) -> Result<Pfn, MachineAllocateError> {
        if request.node >= self.layout.nodes() {
            return Err(MachineAllocateError::Node { node: request.node });
        }
        if request.cpu >= self.config.cpus {
            return Err(MachineAllocateError::Cpu { cpu: request.cpu });
        }
        let mut request = request;
        if request.mobility != Mobility::Movable {
            request.highest = request.highest.min(ZoneKind::Normal);
        }
        let taken = self.allocate_checked(&request);
        let Some(start) = taken else {
            let zones = self.layout.zonelist(request.node, request.highest);
            let free = zones.map(|zone| self.free_in(zone)).sum();
            return Err(MachineAllocateError::NoBlock { order: request.order, free });
        };
        let extent = Extent::new(start, request.order.frames());
        let movable = request.mobility == Mobility::Movable;
        self.usage.allocate(&mut self.words, &self.layout, extent, movable);
        Ok(start)
    }

    /// Allocates the block of 2^`order` frames that `choose` allocates from a zone's
    /// allocator, past zonelist, watermarks and per-CPU lists: a target for
    /// migration, which the allocator knows best how to choose. `None` if there
    /// is no such zone or `choose` has none. `choose` must not change the zone
    /// otherwise.
    pub fn allocate_with(
        &mut self,
        zone: usize,
        order: Order,
        mobility: Mobility,
        choose: impl FnOnce(&mut Z) -> Option<Pfn>,
    ) -> Option<Pfn> {
        let start = choose(self.zones.get_mut(zone)?)?;
        let extent = Extent::new(start, order.frames());
        debug_assert!(self.usage.is_free(&self.words, extent), "a block that is in use");
        let movable = mobility == Mobility::Movable;
        self.usage.allocate(&mut self.words, &self.layout, extent, movable);
        Some(start)
    }

    #[inline]
    fn allocate_checked(&mut self, request: &BlockRequest) -> Option<Pfn> {
        let (first, unmixed) = self.preferred[request.node][request.highest as usize]?;
        let first = usize::from(first);
        // Most often the first zone serves; only else the list is walked.
        if self.may_allocate(first, request.order, request.highest, WatermarkLevel::Low) {
            let taken = self.allocate_in(first, request, unmixed);
            if taken.is_some() {
                return taken;
            }
        }
        self.allocate_slowly(request, unmixed)
    }

    /// As [`allocate_checked`](Self::allocate_checked), once the first zone has failed.
    #[cold]
    fn allocate_slowly(&mut self, request: &BlockRequest, unmixed: bool) -> Option<Pfn> {
        let last = if request.urgent { WatermarkLevel::None } else { WatermarkLevel::Min };
        let mut taken = self.scan(request, WatermarkLevel::Low, unmixed, 1);
        if taken.is_none() && self.mixed_at_last.is_some() {
            taken = self.scan(request, WatermarkLevel::Min, true, 0);
            let count = u64::from(taken.is_none());
            self.mixed_at_last = self.mixed_at_last.map(|before| before + count);
        }
        if unmixed {
            taken = taken.or_else(|| self.scan(request, WatermarkLevel::Low, false, 0));
        }
        taken = taken.or_else(|| self.scan(request, WatermarkLevel::Min, false, 0));
        if request.urgent {
            taken = taken.or_else(|| self.scan(request, last, false, 0));
        }
        if taken.is_none() && self.draining_helps(request) {
            self.drain();
            taken = self.scan(request, last, false, 0);
        }
        taken
    }

    /// Returns true if per-CPU lists hold frames that would complete a block,
    /// or that would lift a zone above its watermark.
    fn draining_helps(&self, request: &BlockRequest) -> bool {
        let layout = &self.layout;
        layout.zonelist(request.node, request.highest).any(|zone| {
            if self.states[zone].waiting_frames == 0 {
                return false;
            }
            if !request.urgent && self.draining_lifts(zone, request) {
                return true;
            }
            let whole = |frame: Pfn| {
                let block = Extent::block_around(frame, request.order);
                layout.zones()[zone].span.covers(block)
                    && self.usage.is_free(&self.words, block)
                    && !self.is_isolated(block.start)
            };
            let mut helps = false;
            self.for_each_waiting(zone, &mut |block, _| helps |= whole(block));
            helps
        })
    }

    /// Returns true if a zone is not above its min watermark, and would be with the frames that
    /// wait in its per-CPU lists.
    fn draining_lifts(&self, zone: usize, request: &BlockRequest) -> bool {
        let marks = &self.states[zone].marks;
        let mark = marks.min + marks.reserve[request.highest as usize];
        // As a request counts them: of a larger block but the first frame is gone already.
        let is_above = |free: u64| free.saturating_sub(request.order.frames() - 1) > mark;
        !is_above(self.zones[zone].free_frames()) && is_above(self.free_in(zone))
    }

    pub(crate) fn for_each_waiting(&self, zone: usize, visit: &mut dyn FnMut(Pfn, Order)) {
        if self.states[zone].waiting_frames == 0 {
            return;
        }
        for cpu in 0..self.config.cpus {
            let entries = &self.words[self.entries(zone, cpu)];
            self.lists[self.list_at(zone, cpu)].for_each(entries, visit);
        }
    }

    /// Returns true if a frame lies in an isolated section or bank.
    #[inline]
    pub(crate) fn is_isolated(&self, frame: Pfn) -> bool {
        let isolated = |unit| self.usage.isolation(&self.words, unit) != Isolation::None;
        self.layout.section_of(frame).is_some_and(|section| isolated(MemoryUnit::Section(section)))
            || self.layout.bank_of(frame).is_some_and(|bank| isolated(MemoryUnit::Bank(bank)))
    }

    /// The zone of a frame that is there.
    #[inline]
    fn zone_of(&self, frame: Pfn) -> Option<usize> {
        let section = MemoryUnit::Section(self.layout.section_of(frame)?);
        let zone = self.usage.zone_of_unit(&self.words, section);
        zone.or_else(|| self.layout.zone_of(frame))
    }

    /// Frees frames on a CPU, which may be any part of what was allocated.
    ///
    /// # Errors
    /// A [`MachineFreeError`] if any frame is not in use; nothing changes.
    pub fn free(&mut self, extent: Extent, cpu: usize) -> Result<(), MachineFreeError> {
        if cpu >= self.config.cpus {
            return Err(MachineFreeError::Cpu { cpu });
        }
        // Most often a frame or a small block.
        if extent.count.is_power_of_two()
            && extent.start.is_aligned(extent.count.trailing_zeros())
            && self.usage.is_used_small(&self.words, extent)
            && let Some(zone) = self.zone_of(extent.start)
            && extent.end() <= self.layout.zones()[zone].span.end()
        {
            let order = Order::known(extent.count.trailing_zeros() as u8);
            self.free_block(zone, extent.start, order, cpu);
            return Ok(());
        }
        self.free_slowly(extent, cpu).map_err(MachineFreeError::Frames)
    }

    fn free_slowly(&mut self, extent: Extent, cpu: usize) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        if let Some(frame) = self.usage.find_unused(&self.words, extent) {
            return Err(match self.is_used(frame) {
                Some(_) => FrameFreeError::NotAllocated { frame },
                None => FrameFreeError::Foreign { frame },
            });
        }
        let mut rest = extent;
        while !rest.is_empty() {
            let Some(zone) = self.zone_of(rest.start) else {
                debug_assert!(false, "a frame in use that no zone has");
                return Ok(());
            };
            let part = rest.intersect(self.layout.zones()[zone].span);
            for (start, order) in part.blocks(ORDER_MAX) {
                self.free_block(zone, start, order, cpu);
            }
            rest = rest.split_at(part.count).1;
        }
        Ok(())
    }

    #[inline]
    fn free_block(&mut self, zone: usize, start: Pfn, order: Order, cpu: usize) {
        let movable = self.usage.is_movable(&self.words, start);
        self.usage.free(&mut self.words, &self.layout, Extent::new(start, order.frames()));
        match self.states[zone].lists {
            Some(marks) if has_list(order) && !self.is_isolated(start) => {
                let entries = self.entries(zone, cpu);
                let at = self.list_at(zone, cpu);
                let (list, allocator) = (&mut self.lists[at], &mut self.zones[zone]);
                let own = if movable { Mobility::Movable } else { Mobility::Unmovable };
                let mobility = allocator.mobility_of(start).unwrap_or(own);
                let before = list.count_frames();
                let block = (start, order, mobility);
                list.free(&mut self.words[entries], marks, allocator, block);
                let waiting = &mut self.states[zone].waiting_frames;
                *waiting = *waiting + u64::from(list.count_frames()) - u64::from(before);
            }
            _ => {
                let given = self.zones[zone].free(start, order);
                debug_assert!(given.is_ok(), "a frame in use that its zone does not know");
            }
        }
    }

    /// Empties all per-CPU lists into the zones. O(entries).
    pub fn drain(&mut self) {
        for zone in 0..self.zones.len() {
            self.drain_zone(zone);
        }
    }

    pub(crate) fn drain_zone(&mut self, zone: usize) {
        if self.states[zone].waiting_frames == 0 {
            return;
        }
        for cpu in 0..self.config.cpus {
            let entries = self.entries(zone, cpu);
            let at = self.list_at(zone, cpu);
            self.lists[at].drain(&mut self.words[entries], &mut self.zones[zone]);
        }
        self.states[zone].waiting_frames = 0;
    }

    /// Walks all invariants in O(frames); the first that does not hold is
    /// named.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let (free, isolated) = self.usage.check(&self.words, &self.layout)?;
        let mut listed = 0;
        for (at, zone) in self.zones.iter().enumerate() {
            zone.check()?;
            let span = self.layout.zones()[at].span;
            let mut wrong = false;
            let mut visit = |block: Extent| {
                let is_own = block.intersect(span) == block;
                wrong |= !is_own || !self.usage.is_free(&self.words, block);
                wrong |= self.is_isolated(block.start);
                listed += block.count;
            };
            zone.for_each_free(&mut visit);
            let mut waiting = 0;
            self.for_each_waiting(at, &mut |block, order| {
                visit(Extent::new(block, order.frames()));
                waiting += order.frames();
            });
            if wrong {
                return Err("a free block that is in use, isolated or another zone's");
            }
            if waiting != self.states[at].waiting_frames {
                return Err("a zone that counts its waiting frames wrongly");
            }
            for cpu in 0..self.config.cpus {
                if self.states[at].lists.is_some() {
                    let entries = &self.words[self.entries(at, cpu)];
                    self.lists[self.list_at(at, cpu)].check(entries)?;
                }
            }
        }
        if listed + isolated != free {
            return Err("a free frame that is nowhere");
        }
        Ok(())
    }
}
