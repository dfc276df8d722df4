//! The area of guaranteed CMA (Park et al., 2016): `ZONE_MOVABLE`, lent to clean pages of files alone.
//!
//! A block of 2 MiB or more that no other zone has is put where the fewest of them are in use, and these
//! are dropped, with no move and no wait; their files' releases then give nothing back. Reading
//! them again is no request here, but the frames are counted.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::ZoneKind;
use swath_frame::zone::linux::{ORDER_MAX, PAGEBLOCK_ORDER};
use swath_frame::{BlockRequest, Mobility};

use crate::host::callgrind::counted_call;
use crate::papers::green::machine::allocator::GreenZone;
use crate::papers::green::machine::computer::GreenMachine;
use crate::papers::green::machine::config::GreenError;

impl<Z: GreenZone> GreenMachine<Z> {
    /// Takes a block out of the guaranteed area, on the request's own node if it has one. What is in the
    /// way is dropped.
    pub(crate) fn take_guaranteed(
        &mut self,
        request: BlockRequest,
    ) -> Result<Option<Pfn>, GreenError> {
        let BlockRequest { order, mobility, node, cpu, .. } = request;
        if !self.config.is_guaranteed() || order < PAGEBLOCK_ORDER || order > ORDER_MAX {
            return Ok(None);
        }
        let zones = self.layout.zones().iter().enumerate();
        let areas = zones.filter(|(_, zone)| zone.kind == ZoneKind::Movable);
        let mut areas: Vec<(usize, usize, Extent)> =
            areas.map(|(nth, zone)| (nth, zone.node, zone.span)).collect();
        areas.sort_by_key(|&(_, of, _)| of != node);
        for (nth, _, span) in areas {
            let Some(place) = self.least_cached(span, order) else { continue };
            self.drop_cached(place, cpu as u16)?;
            let machine = self.machine.get_mut();
            let choose = |zone: &mut Z| zone.allocate(order, Mobility::Movable);
            let taken = counted_call(|| {
                machine.drain();
                machine.allocate_with(nth, order, mobility, choose)
            });
            if let Some(start) = taken {
                self.wake(start)?;
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// The first of the places for a block that have the fewest frames in use, all of which can be dropped.
    /// O(frames of the span / 64), and a search for each block in use of a place that has fewer than
    /// those before.
    fn least_cached(&mut self, span: Extent, order: Order) -> Option<Extent> {
        let machine = self.machine.get_mut();
        let mut least: Option<(u64, Extent)> = None;
        let mut start = span.start.align_up(order.k())?;
        while start + order.frames() <= span.end() {
            let place = Extent::new(start, order.frames());
            start = place.end();
            let state = machine.frames_state(place);
            let used = order.frames() - state.free;
            let is_less = least.is_none_or(|(fewest, _)| used < fewest);
            if state.present < order.frames() || state.unmovable > 0 || !is_less {
                continue;
            }
            let (mut rest, mut all_cached) = (place, true);
            while let Some(frame) = machine.next_used(rest).filter(|_| all_cached) {
                let held = self.blocks.block_of(frame);
                let held = held.filter(|&(id, ..)| self.blocks.is_cached(id));
                let end = held.map(|(_, first, order)| (first + order.frames()).min(place.end()));
                all_cached = end.is_some();
                rest = Extent::between(end.unwrap_or(place.end()), place.end());
            }
            if all_cached {
                least = Some((used, place));
            }
        }
        least.map(|(_, place)| place)
    }

    /// Drops all files that have a frame in a place.
    fn drop_cached(&mut self, place: Extent, cpu: u16) -> Result<(), GreenError> {
        while let Some(frame) = self.machine.get_mut().next_used(place) {
            let held = self.blocks.block_of(frame);
            let Some((blocks, order)) = held.and_then(|(id, ..)| self.blocks.drop_cached(id))
            else {
                return Err(self.fault(format_args!("frame {frame} cannot be dropped")));
            };
            self.give(&blocks, order, cpu)?;
            self.counts.dropped_frames += blocks.len() as u64 * order.frames();
        }
        Ok(())
    }
}
