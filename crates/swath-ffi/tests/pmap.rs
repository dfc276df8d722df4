//! The C interface of mappings: beside Rust's, with wrong arguments, and over memory that is reached directly.

#[path = "pmap/beside.rs"]
mod beside;

use std::ptr;

use beside::{FRAMES, MAPPED, NO_FAULT, World, drive, made};
use swath::swath_status::*;
use swath::*;
use swath_arch::Format;
use swath_arch::testing::Random;
use swath_vm::Status;

#[test]
fn the_pmap_does_what_it_does_in_rust() {
    for format in Format::ALL {
        for status in [Status::InTable, Status::InReverseMap] {
            for seed in 0..2 {
                let statistics = drive(format, status, Random::new(seed), 1500);
                let arose = statistics.promotions > 5 && statistics.demotions_write > 0;
                assert!(arose, "{format:?}, seed {seed}: {statistics:?}");
            }
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let world = World::new();
    let (tables, pmap) = made(&world, Format::ArmV8, 0);
    let argument = |at| swath_result { status: SWATH_ARGUMENT, at };
    let null = swath_result { status: SWATH_NULL, at: 0 };
    assert_eq!(swath_pmap_storage_bytes(FRAMES.into(), 9, 0, 1), 0);
    assert_eq!(swath_pmap_storage_bytes(FRAMES.into(), 1, 2, 1), 0);
    let endless = swath_extent { start: u64::MAX, count: 2 };
    assert_eq!(swath_pmap_storage_bytes(endless, 1, 0, 1), 0);
    let (mut order, mut faulted) = (0, NO_FAULT);
    let space = world.spaces[0].get();
    // SAFETY: objects of the library, and what it looks for.
    unsafe {
        let enter = |attributes, access, k, order| {
            swath_pmap_enter(pmap, 0, 5, 5, attributes, access, k, order)
        };
        assert_eq!(enter(64, 1, 0, &mut order), argument(64));
        assert_eq!(enter(1, 3, 0, &mut order), argument(3));
        assert_eq!(enter(1, 1, 64, &mut order), argument(64));
        assert_eq!(enter(1, 1, 0, ptr::null_mut()), null);
        assert_eq!(enter(1, 1, 0, &mut order).status, SWATH_OK);
        assert_eq!(enter(1, 1, 0, &mut order), swath_result { status: SWATH_MAPPED, at: 5 });
        let faults = [5, 6].map(|page| swath_pmap_fault(pmap, 0, page, 1, 0, &mut faulted).status);
        assert_eq!(faults, [SWATH_OK, SWATH_FAULT]);
        let overflow = swath_pmap_remove(pmap, 0, u64::MAX, 2, ptr::null_mut());
        assert_eq!(overflow.status, SWATH_OVERFLOW);
        assert_eq!(swath_pmap_page_out(pmap, MAPPED, ptr::null_mut()).status, SWATH_FOREIGN);
        assert_eq!(
            swath_pmap_page_out(tables.cast(), 0, ptr::null_mut()).status,
            SWATH_WRONG_OBJECT
        );
        assert_eq!(swath_pmap_each_mapping(pmap, 0, None, ptr::null_mut()), null);
        assert_eq!(swath_space_map_page_size(space, 512, 512, 9, 0b11).status, SWATH_OK);
        let askew = swath_space_map_page_size(space, 1024, 3, 9, 0b11);
        assert_eq!(askew, swath_result { status: SWATH_MISALIGNED, at: 3 });
        assert_eq!(swath_space_map_page_size(space, 1024, 0, 5, 0b11), argument(5));
        assert_eq!(swath_space_map_largest(space, 4096, 512, 600, 0b1).status, SWATH_OK);
        let mut mapping = swath_mapping { frame: 0, order: 0, attributes: 0 };
        assert_eq!(swath_space_translate(space, 4100, &mut mapping).status, SWATH_OK);
        assert_eq!((mapping.frame, mapping.order), (516, 9));
        assert_eq!(swath_space_translate(space, 4100, ptr::null_mut()), null);
        assert_eq!(swath_space_drop(ptr::null_mut()), null);
    }
}

#[test]
fn memory_is_reached_directly() {
    let mut words = vec![0_u64; 4 * 512];
    let start = words.as_mut_ptr();
    let memory = swath_memory { first_frame: 100, bytes: start.cast(), len_bytes: 4 * 4096 };
    // SAFETY: the memory stays to the end of the test.
    let bus = unsafe { swath_bus_direct(&memory) };
    let (read, write) = (bus.read.unwrap(), bus.write.unwrap());
    let mut value = 0;
    // SAFETY: the functions of the bus, with its context.
    unsafe {
        assert_eq!(write(bus.context, 100 << 12, 8, 0x1122_3344_5566_7788), 0);
        assert_eq!(write(bus.context, (100 << 12) + 4, 4, 0xffff_ffff_9999_9999), 0);
        assert_eq!(
            (read(bus.context, 100 << 12, 8, &mut value), value),
            (0, 0x9999_9999_5566_7788)
        );
        assert_eq!((read(bus.context, 100 << 12, 4, &mut value), value), (0, 0x5566_7788));
        assert_eq!(write(bus.context, (104 << 12) - 8, 8, 5), 0);
        for (addr, len) in [
            (104 << 12, 4),
            ((104 << 12) - 4, 8),
            (99 << 12, 8),
            ((100 << 12) + 2, 4),
            (100 << 12, 2),
        ] {
            assert_eq!(read(bus.context, addr, len, &mut value), 1, "{addr:#x}, {len} bytes");
            assert_eq!(write(bus.context, addr, len, 1), 1, "{addr:#x}, {len} bytes");
        }
        assert_eq!(read(bus.context, u64::MAX - 7, 8, &mut value), 1);
        // A frame beyond all addresses has none.
        let far = swath_memory { first_frame: u64::MAX, ..memory };
        assert_eq!(
            swath_bus_direct(&far).read.unwrap()(
                (&raw const far).cast_mut().cast(),
                0,
                8,
                &mut value
            ),
            1
        );
        let none = swath_bus_direct(ptr::null());
        assert!(none.read.is_none() && none.write.is_none());
    }
    assert_eq!(words[0], 0x9999_9999_5566_7788);
    assert_eq!(words[4 * 512 - 1], 5);
}
