//! Superpages, software against hardware: what a TLB sees after promotion,
//! demotion, protection and unmapping, with the maintenance that they ask for
//! and without.

use std::cell::{Cell, RefCell};

use rand::RngExt;
use swath_arch::{
    Attributes, Extent, Format, Order, PageRange, Pfn, PhysMemory, SliceMemory, VirtAddr, Vpn,
};
use swath_frame::BuddyConfig;
use swath_hw::{Geometry, Mmu, TlbOutcome, TranslationFault, WalkOrder};
use swath_lab::source::memory::{Allocator, new_allocator, random};
use swath_vm::{
    AddressSpace, Flush, KeptPermissions, PageAccess, Pmap, PmapError, ReverseMap, Site, Sizes,
    SpaceId, Status,
};

type Space<'m> = AddressSpace<&'m SliceMemory<'m>, &'m RefCell<Allocator>>;

/// Frames of the tables: all memory that answers.
const TABLES: Extent = Extent::new(Pfn::new(0x8000), 0x100);
const FIRST: u64 = 0x4_0000;
const WRITE: Attributes = Attributes::USER_DATA;
const READ: Attributes = Attributes { writable: false, ..WRITE };

fn with_space(format: Format, sizes: Sizes, body: impl FnOnce(&SliceMemory<'_>, Space<'_>)) {
    let tables = RefCell::new(new_allocator(TABLES, BuddyConfig::PBS_ARMV7, true).unwrap());
    let mut words = vec![u64::MAX; TABLES.count as usize * 512];
    let memory = SliceMemory::new(TABLES.start, &mut words);
    let space = AddressSpace::with_superpages(format, sizes, &memory, &tables, &tables).unwrap();
    body(&memory, space);
}

fn mmu(space: &Space<'_>) -> Mmu {
    Mmu::new(space.regime(), Geometry::default(), WalkOrder::default()).unwrap()
}

fn at(page: u64) -> VirtAddr {
    Vpn::new(FIRST + page).address()
}

/// The frame and the attributes that an access meets, and whether it hit.
fn meet<M: PhysMemory>(mmu: &mut Mmu, page: u64, memory: &M) -> (u64, Attributes, bool) {
    let access = mmu.access(at(page), memory).unwrap();
    let hit = matches!(access.outcome, TlbOutcome::Hit(_));
    (access.addr.frame().raw(), access.attributes, hit)
}

/// Sizes with which a table of base pages is folded at once, and those where it
/// is joined first.
fn cases() -> impl Iterator<Item = (Format, Sizes, Order)> {
    Format::ALL.into_iter().flat_map(|format| {
        let all = Sizes::all(format);
        let (joined, table) = (Order::known(4), if format == Format::ArmV7 { 8 } else { 9 });
        let fold = (format, all.without(joined), Order::known(table));
        let join = all.contains(joined).then_some((format, all, joined));
        [Some(fold), join].into_iter().flatten()
    })
}

/// A base page is in the TLB when its neighbours and it become one. Until the
/// TLB is told, it goes on with the base page, and misses the next; then one
/// entry serves all.
#[test]
fn promotion() {
    for (format, sizes, order) in cases() {
        with_space(format, sizes, |memory, mut space| {
            space.map(Vpn::new(FIRST), Extent::new(Pfn::new(FIRST), order.frames()), READ).unwrap();
            let mut mmu = mmu(&space);
            assert_eq!(meet(&mut mmu, 3, memory), (FIRST + 3, READ, false));
            let owed = Cell::new(None);
            space
                .promote(Vpn::new(FIRST + 5), order, &mut |flush: Flush| owed.set(Some(flush)))
                .unwrap();
            let all = PageRange::new(Vpn::new(FIRST), order.frames());
            // The superpage changes as a whole, and the old entry does not know.
            let change = |_| Attributes { executable: true, ..WRITE };
            let owed = owed.take().unwrap();
            assert_eq!(owed.range, all);
            assert_eq!(owed.links_changed, order > Order::known(4));
            space.protect(all, change, &mut |_| ()).unwrap();
            assert_eq!(meet(&mut mmu, 3, memory), (FIRST + 3, READ, true), "stale");
            mmu.invalidate_range(owed.range);
            let changed = change(READ);
            assert_eq!(meet(&mut mmu, 3, memory), (FIRST + 3, changed, false));
            let last = order.frames() - 1;
            assert_eq!(meet(&mut mmu, last, memory), (FIRST + last, changed, true));
        });
    }
}

/// A superpage is in the TLB when it is demoted and one of its pages leads
/// elsewhere. Until the TLB is told, it finds the old frame.
#[test]
fn demotion_and_unmapping() {
    for (format, sizes, order) in cases() {
        for created in [false, true] {
            with_space(format, sizes, |memory, mut space| {
                let (page, frame) = (Vpn::new(FIRST), Pfn::new(FIRST));
                if created {
                    space.map_page_size(page, frame, order, WRITE).unwrap();
                } else {
                    space.map(page, Extent::new(frame, order.frames()), WRITE).unwrap();
                    space.promote(page, order, &mut |_| ()).unwrap();
                }
                let mut mmu = mmu(&space);
                assert_eq!(meet(&mut mmu, 0, memory), (FIRST, WRITE, false));
                assert_eq!(meet(&mut mmu, 7, memory), (FIRST + 7, WRITE, true));
                let mut owed = vec![];
                space.demote(page, &mut |flush| owed.push(flush)).unwrap();
                owed.push(space.unmap(PageRange::new(Vpn::new(FIRST + 7), 1)).unwrap());
                let other = Extent::new(Pfn::new(0x7777), 1);
                space.map(Vpn::new(FIRST + 7), other, READ).unwrap();
                assert_eq!(meet(&mut mmu, 7, memory), (FIRST + 7, WRITE, true), "stale");
                owed.iter().for_each(|flush| mmu.invalidate_range(flush.range));
                assert_eq!(meet(&mut mmu, 7, memory), (0x7777, READ, false));
                assert_eq!(meet(&mut mmu, 6, memory), (FIRST + 6, WRITE, false));
                space.check().unwrap();
            });
        }
    }
}

/// A superpage is protected, and then unmapped, as a whole.
#[test]
fn protection_and_removal() {
    for (format, sizes, order) in cases() {
        with_space(format, sizes, |memory, mut space| {
            let range = PageRange::new(Vpn::new(FIRST), order.frames());
            space.map_page_size(range.start, Pfn::new(FIRST), order, WRITE).unwrap();
            let mut mmu = mmu(&space);
            meet(&mut mmu, 9, memory);
            let mut owed = vec![];
            space.protect(range, |_| READ, &mut |flush| owed.push(flush)).unwrap();
            assert_eq!(meet(&mut mmu, 9, memory), (FIRST + 9, WRITE, true), "stale");
            owed.iter().for_each(|flush| mmu.invalidate_range(flush.range));
            assert_eq!(meet(&mut mmu, 9, memory), (FIRST + 9, READ, false));
            let flush = space.unmap(range).unwrap();
            assert_eq!(meet(&mut mmu, 9, memory), (FIRST + 9, READ, true), "stale");
            mmu.invalidate_range(flush.range);
            let fault = mmu.access(at(9), memory);
            assert!(matches!(fault, Err(TranslationFault::Translation { .. })), "{fault:?}");
        });
    }
}

/// Between break and make the hardware finds nothing on ARM, so that no TLB can
/// hold two sizes at once.
#[test]
fn break_before_make() {
    for (format, sizes, order) in cases() {
        with_space(format, sizes, |memory, mut space| {
            space.map(Vpn::new(FIRST), Extent::new(Pfn::new(FIRST), order.frames()), READ).unwrap();
            let mut mmu = mmu(&space);
            let mut seen = 0;
            let mut invalidate = |flush: Flush| {
                mmu.invalidate_range(flush.range);
                let found = mmu.access(at(3), memory).is_ok();
                assert_eq!(found, format == Format::X86_64, "{format:?}");
                seen += 1;
            };
            space.promote(Vpn::new(FIRST), order, &mut invalidate).unwrap();
            space.demote(Vpn::new(FIRST), &mut invalidate).unwrap();
            assert_eq!(seen, 2);
        });
    }
}

/// Random faults, protections and removals through a pmap: with the maintenance
/// that it asks for, the TLB always says what the tables say.
#[test]
fn a_pmap_keeps_a_tlb_right() {
    let (mut promotions, mut recalled, mut written) = (0, 0, 0);
    for (format, status) in
        Format::ALL.into_iter().flat_map(|f| [(f, Status::InTable), (f, Status::InReverseMap)])
    {
        let pages = 1200;
        let frames = Extent::new(Pfn::new(FIRST), pages);
        let sizes = Sizes::all(format);
        let words = ReverseMap::words_needed(frames, sizes, status, 1500).unwrap();
        let mut pmap = Pmap::new(ReverseMap::new(frames, sizes, status, vec![0; words]).unwrap());
        with_space(format, sizes, |memory, space| {
            let mut random = random(7, 0);
            let mmu = RefCell::new(mmu(&space));
            let mut spaces = [space];
            for step in 0..300 {
                let start = random.random_range(0..pages) & !15;
                let count = [1, 16, 256, 512][random.random_range(0..4)].min(pages - start);
                let act = random.random_range(0..8);
                let id = SpaceId(0);
                let invalidate = |_, flush: Flush| mmu.borrow_mut().invalidate_range(flush.range);
                let reached = &mut (&mut spaces[..], invalidate);
                let range = PageRange::new(Vpn::new(FIRST + start), count);
                match act {
                    0 => drop(pmap.remove(reached, id, range).unwrap()),
                    1 => {
                        let writable = random.random_range(0..2) == 0;
                        let protection = KeptPermissions { writable, executable: false };
                        pmap.protect(reached, id, range, protection).unwrap();
                    }
                    2 => drop(pmap.clean(reached, Pfn::new(FIRST + start)).unwrap()),
                    _ => {
                        let access = if act < 5 { PageAccess::Write } else { PageAccess::Read };
                        for page in range.iter() {
                            let site = Site { space: id, page };
                            let full = Some(Order::known(18));
                            let frame = Pfn::new(page.raw());
                            if let Err(PmapError::NotMapped { .. }) =
                                pmap.fault(reached, site, access, full)
                            {
                                pmap.enter(reached, site, frame, WRITE, access, full).unwrap();
                            }
                        }
                    }
                }
                for page in 0..pages {
                    let right = spaces[0].translate(Vpn::new(FIRST + page)).ok();
                    let right = right.map(|mapping| (mapping.frame, mapping.attributes));
                    let seen = mmu.borrow_mut().access(at(page), memory).ok();
                    let seen = seen.map(|access| (access.addr.frame(), access.attributes));
                    assert_eq!(seen, right, "{format:?} step {step} page {page:#x}");
                }
            }
            let statistics = pmap.statistics();
            promotions += statistics.promotions;
            recalled += statistics.recalled;
            written += statistics.demotions_write;
        });
    }
    assert!(promotions > 100 && recalled > 10 && written > 10, "{promotions} {recalled} {written}");
}
