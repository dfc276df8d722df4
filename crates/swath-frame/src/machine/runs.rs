//! Runs of requests: blocks of one order for one owner, many at once.
//!
//! What a run changes and which blocks it gets is what as many single calls would. It costs
//! less: the choice of the zone is made once for what its per-CPU list holds, and frames that
//! stand in one word change their bits together.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::layout::ZoneKind;
use crate::machine::nodes::{Machine, WatermarkLevel};
use crate::machine::per_cpu::PerCpuLists;
use crate::machine::request::{BlockRequest, MachineAllocateError, MachineFreeError};
use crate::machine::usage::MemoryUnit;
use crate::machine::watermark::LIST_ORDER_MAX;
use crate::zone::allocator::{Mobility, ZoneAllocator};

impl<Z, Zs, Ls, W> Machine<Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// Allocates as many blocks as `blocks` has room for, as [`allocate`](Self::allocate) does
    /// one after the other.
    ///
    /// # Errors
    /// How many blocks were allocated, which are the first of `blocks`, and why the next one was
    /// not.
    pub fn allocate_run(
        &mut self,
        request: BlockRequest,
        blocks: &mut [Pfn],
    ) -> Result<(), (usize, MachineAllocateError)> {
        let mut done = 0;
        while done < blocks.len() {
            let taken = self.allocate_waiting(&request, &mut blocks[done..]);
            done += taken;
            if taken == 0 {
                blocks[done] = self.allocate(request).map_err(|error| (done, error))?;
                done += 1;
            }
        }
        Ok(())
    }

    /// Allocates what the per-CPU list holds of the zone that would serve; returns the number of
    /// blocks, 0 if it is to be refilled or the zone to be looked for among those that are low.
    #[inline]
    fn allocate_waiting(&mut self, request: &BlockRequest, blocks: &mut [Pfn]) -> usize {
        let BlockRequest { order, mobility, node, cpu, .. } = *request;
        if node >= self.layout.nodes() || cpu >= self.cpus() || order.k() > LIST_ORDER_MAX {
            return 0;
        }
        let movable = mobility == Mobility::Movable;
        let highest = if movable { request.highest } else { request.highest.min(ZoneKind::Normal) };
        let Some((first, unmixed)) = self.preferred[node][highest as usize] else { return 0 };
        let first = usize::from(first);
        let level = WatermarkLevel::Low;
        let zone = if self.may_allocate(first, order, highest, level) {
            first
        } else {
            let mut zones = self.layout.zonelist(node, highest).skip(1);
            let may = |&zone: &usize| self.may_allocate(zone, order, highest, level);
            let Some(zone) = zones.find(may) else { return 0 };
            // First, the own node's zones are looked through for unmixed pageblocks.
            if unmixed && self.layout.zones()[zone].node != node {
                return 0;
            }
            zone
        };
        if self.states[zone].lists.is_none() {
            return 0;
        }
        let (entries, at) = (self.entries(zone, cpu), self.list_at(zone, cpu));
        let entries = &mut self.words[entries];
        let taken = self.lists[at].allocate_run(entries, (order, mobility), blocks);
        if taken > 0 {
            self.states[zone].waiting_frames -= (taken as u64) << order.k();
            let blocks = (&blocks[..taken], order.k());
            self.usage.allocate_run(&mut self.words, &self.layout, blocks, movable);
        }
        taken
    }

    /// Frees blocks of one order, as [`free`](Self::free) does one after the other.
    ///
    /// # Errors
    /// How many blocks were freed, which are the first of `blocks`, and why the next one was not.
    pub fn free_run(
        &mut self,
        blocks: &[Pfn],
        order: Order,
        cpu: usize,
    ) -> Result<(), (usize, MachineFreeError)> {
        let mut done = 0;
        while done < blocks.len() {
            let mut freed = 0;
            if order == Order::BASE && cpu < self.cpus() {
                freed = self.free_row(&blocks[done..], cpu);
            }
            if freed == 0 {
                let extent = Extent::new(blocks[done], order.frames());
                self.free(extent, cpu).map_err(|error| (done, error))?;
                freed = 1;
            }
            done += freed;
        }
        Ok(())
    }

    /// Frees single frames that stand in one word, if they go to a per-CPU list; returns their
    /// number.
    #[inline]
    fn free_row(&mut self, frames: &[Pfn], cpu: usize) -> usize {
        let Some(&first) = frames.first() else { return 0 };
        if !self.usage.is_used_small(&self.words, Extent::new(first, 1)) {
            return 0;
        }
        // Units are whole words.
        let section = self.layout.section_of(first).map(MemoryUnit::Section);
        let zone = section.and_then(|section| self.usage.zone_of_unit(&self.words, section));
        let Some(zone) = zone else { return 0 };
        let (Some(marks), false) = (self.states[zone].lists, self.is_isolated(first)) else {
            return 0;
        };
        let movable = self.usage.is_movable(&self.words, first);
        let own = if movable { Mobility::Movable } else { Mobility::Unmovable };
        let (entries, at) = (self.entries(zone, cpu), self.list_at(zone, cpu));
        let (list, allocator) = (&mut self.lists[at], &mut self.zones[zone]);
        let mobility = |allocator: &Z, frame| allocator.mobility_of(frame).unwrap_or(own);
        let wanted = mobility(allocator, first);
        let (word, count) = self.usage.used_row(&self.words, frames);
        let same = |frame: &&Pfn| mobility(allocator, **frame) == wanted;
        let count = frames[..count].iter().take_while(same).count();
        self.usage.free_row(&mut self.words, &self.layout, word, &frames[..count]);
        let before = list.count_frames();
        list.free_singles(&mut self.words[entries], marks, allocator, wanted, &frames[..count]);
        let waiting = &mut self.states[zone].waiting_frames;
        *waiting = *waiting + u64::from(list.count_frames()) - u64::from(before);
        count
    }
}
