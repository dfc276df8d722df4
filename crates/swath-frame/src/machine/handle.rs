//! A machine's frames as one [`FrameAllocator`]: all requests alike.

use core::cell::RefCell;
use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::layout::ZoneKind;
use crate::machine::nodes::Machine;
use crate::machine::per_cpu::PerCpuLists;
use crate::machine::request::{BlockRequest, MachineAllocateError, MachineFreeError};
use crate::zone::allocator::{Mobility, ZoneAllocator};
use crate::zone::linux::build::ORDER_MAX;

/// Draws from a machine with one mobility, from one node and CPU. Several
/// handles share a machine, as a process's pages and its page tables do.
///
/// Requests are urgent: the watermarks keep nothing back, so that a request
/// fails only if no frame is left, as the trait demands. Blocks are powers of
/// two up to order 10: an aligned request above that is refused.
///
/// Invariant: node and CPU are the machine's.
#[derive(Debug)]
pub struct MachineHandle<'a, Zs, Ls, W> {
    machine: &'a RefCell<Machine<Zs, Ls, W>>,
    request: BlockRequest,
}

impl<Zs, Ls, W> Clone for MachineHandle<'_, Zs, Ls, W> {
    fn clone(&self) -> Self {
        Self { machine: self.machine, request: self.request }
    }
}

impl<'a, Z, Zs, Ls, W> MachineHandle<'a, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// A handle on `machine` for owners of this mobility. Frames up to the zone
    /// `highest` will do.
    ///
    /// # Errors
    /// [`MachineAllocateError::Node`] or [`MachineAllocateError::Cpu`] if there is none of that number.
    pub fn new(
        machine: &'a RefCell<Machine<Zs, Ls, W>>,
        mobility: Mobility,
        highest: ZoneKind,
        node: usize,
        cpu: usize,
    ) -> Result<Self, MachineAllocateError> {
        let borrowed = machine.borrow();
        if node >= borrowed.layout().nodes() {
            return Err(MachineAllocateError::Node { node });
        }
        if cpu >= borrowed.cpus() {
            return Err(MachineAllocateError::Cpu { cpu });
        }
        drop(borrowed);
        let highest =
            if mobility == Mobility::Movable { highest } else { highest.min(ZoneKind::Normal) };
        let request =
            BlockRequest { order: Order::BASE, mobility, highest, node, cpu, urgent: true };
        Ok(Self { machine, request })
    }

    fn sum(&self, of: impl Fn(&Machine<Zs, Ls, W>, usize) -> u64) -> u64 {
        let machine = self.machine.borrow();
        let zones = machine.layout.zonelist(self.request.node, self.request.highest);
        zones.map(|zone| of(&machine, zone)).sum()
    }
}

impl<Z, Zs, Ls, W> FrameAllocator for MachineHandle<'_, Zs, Ls, W>
where
    Z: ZoneAllocator,
    Zs: DerefMut<Target = [Z]>,
    Ls: DerefMut<Target = [PerCpuLists]>,
    W: DerefMut<Target = [u64]>,
{
    /// The largest power of two up to `frames_max` of which there is a block:
    /// at most 11 requests.
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        let largest = frames_max.checked_ilog2()?.min(ORDER_MAX.k());
        let mut machine = self.machine.borrow_mut();
        (0..=largest).rev().find_map(|k| {
            let order = Order::known(k as u8);
            let start = machine.allocate(BlockRequest { order, ..self.request }).ok()?;
            Some(Extent::new(start, order.frames()))
        })
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let free = self.free_frames();
        if order.frames() > free {
            return Err(FrameAllocateError::OutOfFrames { wanted: order.frames(), free });
        }
        let taken = self.machine.borrow_mut().allocate(BlockRequest { order, ..self.request });
        let start = taken.map_err(|_| FrameAllocateError::NoBlock { order })?;
        Ok(Extent::new(start, order.frames()))
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        match self.machine.borrow_mut().free(extent, self.request.cpu) {
            Ok(()) => Ok(()),
            Err(MachineFreeError::Frames(error)) => Err(error),
            // Not with this type's invariant.
            Err(MachineFreeError::Cpu { .. }) => {
                Err(FrameFreeError::Foreign { frame: extent.start })
            }
        }
    }

    /// O(z) for z zones.
    fn free_frames(&self) -> u64 {
        self.sum(Machine::free_in)
    }

    fn total_frames(&self) -> u64 {
        self.sum(|machine, zone| machine.zones()[zone].total_frames())
    }

    /// Zone by zone; what waits in per-CPU lists comes last.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        let machine = self.machine.borrow();
        for zone in machine.layout.zonelist(self.request.node, self.request.highest) {
            machine.zones()[zone].for_each_free(visit);
            machine.for_each_waiting(zone, &mut |start, order| {
                visit(Extent::new(start, order.frames()));
            });
        }
    }

    fn allocate_frame(&mut self) -> Option<Pfn> {
        self.machine.borrow_mut().allocate(self.request).ok()
    }
}
