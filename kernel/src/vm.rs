//! A kernel's memory, in as few lines as it takes: one object of pages, mapped by two programs, over
//! reservations; faults fill it page by page, and superpages arise by themselves.

use core::cell::RefCell;

use swath_arch::{Attributes, Extent, MemoryKind, Order, PageRange, Pfn, PhysAddr, Vpn};
use swath_frame::reserve::Reservations;
use swath_frame::{FrameAllocator, PageBuddy};
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, PageAccess, Pmap, Site, Sizes, SpaceId,
};

use crate::machine::{self, FORMAT, WINDOW};
use crate::memory::DirectMap;

/// Frames by reservation over the page buddy system.
pub type Frames<'k> = Reservations<PageBuddy<&'k mut [u64]>, &'k mut [u64]>;
/// A program's address space.
pub type Space<'k> = AddressSpace<DirectMap, &'k RefCell<Frames<'k>>>;

/// The number of the one object.
const OBJECT: u64 = 7;

/// An access that the kernel refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// The memory of two programs.
///
/// Invariant: a page that a program can reach is mapped to the frame in `resident`, and is writable
/// only if `may_write` says so.
pub struct Kernel<'k> {
    pub frames: &'k RefCell<Frames<'k>>,
    pub spaces: [Space<'k>; 2],
    pub pmap: Pmap<&'k mut [u64]>,
    /// The frame of each page of the object.
    pub resident: &'k mut [Option<Pfn>],
    /// The pages that each program may write.
    pub may_write: [&'k mut [bool]; 2],
    /// The program whose space is loaded.
    pub loaded: usize,
    /// Faults that were handled.
    pub faults: u64,
    /// The time, as reservations count it: it never falls.
    pub now: u64,
}

/// Returns the page of the window that holds page `index` of the object.
pub fn page(index: u64) -> Vpn {
    Vpn::new((WINDOW >> 12) as u64 + index)
}

/// Returns the pages of the window that hold these pages of the object.
pub fn pages(index: u64, count: u64) -> PageRange {
    PageRange::new(page(index), count)
}

fn site(space: usize, index: u64) -> Site {
    Site { space: SpaceId(space as u32), page: page(index) }
}

/// Maps all memory and the registers of devices at their own addresses, for the kernel alone.
pub fn map_kernel(space: &mut Space<'_>, memory: Extent) {
    let all =
        Attributes { writable: true, executable: true, accessed: true, ..Attributes::default() };
    space
        .map_largest(Vpn::new(memory.start.raw()), memory, Sizes::all(FORMAT), all)
        .expect("the direct map");
    for &register in machine::DEVICES {
        let frame = PhysAddr::new(register).frame();
        let registers = Attributes { executable: false, memory: MemoryKind::Device, ..all };
        space
            .map(Vpn::new(frame.raw()), Extent::new(frame, 1), registers)
            .expect("a device's registers");
    }
}

impl<'k> Kernel<'k> {
    /// Calls the pmap with the spaces; what is loaded has its TLB emptied as is asked for. A space that
    /// is loaded later has its TLB emptied whole.
    fn with<R>(
        &mut self,
        call: impl FnOnce(
            &mut Pmap<&'k mut [u64]>,
            &mut (&mut [Space<'k>], &mut dyn FnMut(SpaceId, Flush)),
        ) -> R,
    ) -> R {
        let loaded = self.loaded;
        let mut invalidate = |space: SpaceId, flush: Flush| {
            if space.0 as usize == loaded {
                machine::invalidate(flush);
            }
        };
        call(&mut self.pmap, &mut (&mut self.spaces[..], &mut invalidate))
    }

    /// Loads a program's space.
    pub fn switch(&mut self, space: usize) {
        if self.loaded != space {
            // SAFETY: every space begins with the direct map.
            unsafe { machine::load(self.spaces[space].regime()) };
            self.loaded = space;
        }
    }

    /// Reads a word as the program, through the machine's own translation; faults are handled.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(&mut self, space: usize, index: u64, offset: usize) -> Result<usize, Refused> {
        self.access(space, index, |at| machine::read(at + offset))
    }

    /// Writes a word as the program, through the machine's own translation; faults are handled.
    ///
    /// # Errors
    /// [`Refused`], if it may not write there.
    pub fn write(
        &mut self,
        space: usize,
        index: u64,
        offset: usize,
        value: usize,
    ) -> Result<(), Refused> {
        self.access(space, index, |at| machine::write(at + offset, value))
    }

    fn access<R>(
        &mut self,
        space: usize,
        index: u64,
        attempt: impl Fn(usize) -> Result<R, machine::Fault>,
    ) -> Result<R, Refused> {
        self.switch(space);
        let at = page(index).address().raw() as usize;
        // A superpage that could not be demoted is removed, and its page faults once more.
        for _ in 0..4 {
            match attempt(at) {
                Ok(value) => return Ok(value),
                Err(fault) => {
                    assert_eq!(fault.address & !4095, at, "the fault of another page");
                    self.fault(space, index, fault)?;
                }
            }
        }
        panic!("page {index} of program {space} faults for ever");
    }

    /// Handles a program's fault, as an operating system would.
    fn fault(&mut self, space: usize, index: u64, fault: machine::Fault) -> Result<(), Refused> {
        if fault.write && !self.may_write[space][index as usize] {
            return Err(Refused);
        }
        self.faults += 1;
        let frame = match self.resident[index as usize] {
            Some(frame) => frame,
            None => self.fill(index),
        };
        let access = if fault.write { PageAccess::Write } else { PageAccess::Read };
        self.enter(space, index, frame, access);
        Ok(())
    }

    /// Gives a page of the object a frame, with zeroes.
    pub fn fill(&mut self, index: u64) -> Pfn {
        self.now += 1;
        let bounds = 0..self.resident.len() as u64;
        let populated = self.frames.borrow_mut().populate(OBJECT, index, bounds, self.now);
        let frame = populated.expect("memory is large enough").frame;
        swath_arch::PhysMemory::zero_frame(&self.memory(), frame).expect("a frame is memory");
        self.resident[index as usize] = Some(frame);
        frame
    }

    /// Maps the page, or lets it permit more.
    pub fn enter(&mut self, space: usize, index: u64, frame: Pfn, access: PageAccess) -> Order {
        let full = self.frames.borrow().full_order(frame);
        let site = site(space, index);
        if self.spaces[space].translate(site.page).is_ok() {
            let faulted = self.with(|pmap, spaces| pmap.fault(spaces, site, access, full));
            if let Faulted::Mapped { order } = faulted.expect("a mapped page faults") {
                return order;
            }
        }
        let permitted = Attributes::USER_DATA;
        self.with(|pmap, spaces| pmap.enter(spaces, site, frame, permitted, access, full))
            .expect("a page is entered")
    }

    /// Returns the size of the page that maps this one; `None` if nothing does.
    pub fn order(&self, space: usize, index: u64) -> Option<Order> {
        self.spaces[space].translate(page(index)).ok().map(|mapping| mapping.order)
    }

    /// Takes pages from a program; the object keeps its frames.
    pub fn unmap(&mut self, space: usize, index: u64, count: u64) -> u64 {
        let id = SpaceId(space as u32);
        self.with(|pmap, spaces| pmap.remove(spaces, id, pages(index, count))).expect("a removal")
    }

    /// Forbids a program to write pages, or permits it at the next fault.
    pub fn protect(&mut self, space: usize, index: u64, count: u64, may_write: bool) {
        self.may_write[space][index as usize..][..count as usize].fill(may_write);
        if !may_write {
            let kept = KeptPermissions { writable: false, executable: false };
            let id = SpaceId(space as u32);
            self.with(|pmap, spaces| pmap.protect(spaces, id, pages(index, count), kept))
                .expect("a protection");
        }
    }

    /// Returns true if the page was written since it was last clean.
    pub fn modified(&mut self, frame: Pfn) -> bool {
        self.with(|pmap, spaces| pmap.modified(spaces, frame)).expect("a frame of the reverse map")
    }

    /// Returns true if the frame was accessed.
    pub fn referenced(&mut self, frame: Pfn) -> bool {
        self.with(|pmap, spaces| pmap.referenced(spaces, frame))
            .expect("a frame of the reverse map")
    }

    /// Makes the page read-only in all programs until its next write; returns whether it was modified.
    pub fn clean(&mut self, frame: Pfn) -> bool {
        self.with(|pmap, spaces| pmap.clean(spaces, frame)).expect("a frame of the reverse map")
    }

    /// Takes the page from all programs and frees its frame; returns whether it was modified.
    pub fn page_out(&mut self, index: u64) -> Option<bool> {
        let frame = self.resident[index as usize].take()?;
        self.with(|pmap, spaces| pmap.page_out(spaces, frame)).expect("a frame of the reverse map");
        let modified = self.clean(frame);
        self.frames.borrow_mut().free(Extent::new(frame, 1)).expect("the frame was populated");
        Some(modified)
    }

    /// Walks every invariant.
    pub fn check(&self) {
        for space in &self.spaces {
            space.check().expect("a space is sound");
        }
        self.pmap.reverse().check().expect("the reverse map is sound");
        self.frames.borrow().check().expect("reservations are sound");
        crate::check::passed();
    }

    /// Returns the memory, by address.
    pub fn memory(&self) -> DirectMap {
        DirectMap { frames: self.pmap.reverse().frames() }
    }
}
