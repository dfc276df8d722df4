//! The conventional system: pages stay with the heap, until its footprint shrinks at its end (section V-A).

use core::alloc::Layout;
use core::ptr::NonNull;

use swath_arch::{PhysAddr, PhysMemory, Vpn, validity};
use swath_heap::{ByteAllocator, Resident, Tlsf, Trusting};

use crate::System;
use crate::global::Global;
use crate::machine::{self, Bus, PAGES_LOG2, POOL, POOL_PAGES, TABLES};

/// Reading and writing, as in a word of the table.
const RIGHTS: u64 = validity::READ.mask() | validity::WRITE.mask();

/// No frame: the end of the list.
const NONE: u32 = u32::MAX;

/// The page table and the free frames.
///
/// Invariants: each frame is on the free list, or in one word with rights, or was never used: `fresh` and above.
struct Mappings {
    links: &'static mut [u32],
    head: u32,
    fresh: u32,
    mapped: u32,
    /// One past the last page of the footprint; that of the pool's last tag does not count.
    end: u64,
}

static MAPPINGS: Global<Mappings> = Global::empty();

fn word_at(page: u64) -> PhysAddr {
    TABLES.data + validity::ENTRY_BYTES * page
}

impl Mappings {
    /// Gives a page a frame. O(1).
    fn map(&mut self, page: Vpn) -> Option<()> {
        let page = page.raw();
        let index = if self.head == NONE { self.fresh } else { self.head };
        let next = *self.links.get(index as usize)?;
        let frame = POOL.start.raw() + u64::from(index);
        Bus.write_u32(word_at(page), validity::FRAME.set(RIGHTS, frame) as u32).ok()?;
        match self.head == NONE {
            true => self.fresh += 1,
            false => self.head = next,
        }
        self.mapped += 1;
        if page < POOL_PAGES - 1 {
            self.end = self.end.max(page + 1);
        }
        Some(())
    }

    /// Takes back the frames of all pages from `end` on, one after the other. O(n) for n pages of the footprint.
    fn shrink(&mut self, end: u64) -> Option<()> {
        for page in end..self.end {
            let word = u64::from(Bus.read_u32(word_at(page)).ok()?);
            if word & RIGHTS != 0 {
                Bus.write_u32(word_at(page), 0).ok()?;
                let index = (validity::FRAME.get(word) - POOL.start.raw()) as u32;
                *self.links.get_mut(index as usize)? = self.head;
                self.head = index;
                self.mapped -= 1;
            }
        }
        self.end = self.end.min(end);
        Some(())
    }
}

/// Handles a page fault.
pub fn fault(page: Vpn) -> bool {
    MAPPINGS.with(|mappings| mappings.map(page).is_some())
}

/// The heap.
pub struct Table {
    heap: Tlsf<'static, Resident, Trusting>,
}

impl Table {
    /// Makes the table and the heap. To be called once.
    ///
    /// # Panics
    /// If the parts do not fit together.
    pub fn start() -> Self {
        // SAFETY: it is called once.
        let (_, _, links) = unsafe { machine::storage() };
        for page in 0..1 << PAGES_LOG2 {
            Bus.write_u32(word_at(page), 0).expect("memory");
        }
        MAPPINGS.set(Mappings { links, head: NONE, fresh: 0, mapped: 0, end: 1 });
        machine::set_unit(TABLES);
        let (start, len_bytes) = machine::pool();
        let mut heap = Tlsf::new();
        // SAFETY: these addresses are nobody else's, and the handler gives their pages frames.
        unsafe { heap.add_pool_at(start, len_bytes).expect("a pool") };
        Self { heap }
    }
}

impl System for Table {
    #[inline(never)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.heap.allocate(layout).ok()
    }

    #[inline(never)]
    unsafe fn free(&mut self, at: NonNull<u8>, end: u64) -> bool {
        // SAFETY: the contract of this function.
        let freed = unsafe { self.heap.free(at) };
        freed.is_ok() && MAPPINGS.with(|mappings| mappings.shrink(end)).is_some()
    }

    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> usize {
        // SAFETY: the contract of this function.
        unsafe { self.heap.usable_bytes(at) }.unwrap_or(0)
    }

    fn mapped_pages(&self) -> u32 {
        MAPPINGS.with(|mappings| mappings.mapped)
    }

    fn check(&self) -> bool {
        self.heap.check().is_ok()
    }
}
