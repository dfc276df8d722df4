//! The small kernel: processes on reservations, superpages and a processor.

use swath_arch::{Extent, Format, Order, PageRange, Pfn, Regime, VirtAddr, Vpn};
use swath_frame::reserve::ReservationLevels;
use swath_hw::processor::presets;
use swath_hw::{MemoryAccess, Mmu};
use swath_lab::papers::superpages::config::{Config, Costs};
use swath_lab::papers::superpages::kernel::{Kernel, KernelError, boot};
use swath_lab::papers::superpages::processors::Ticks;
use swath_trace::access::MapBacking;
use swath_vm::{Sizes, Status};

const COSTS: Costs = Costs {
    fault_cycles: 1000,
    zero_cycles: 1000,
    copy_cycles: 2000,
    switch_cycles: 500,
    unmap_cycles: 50,
    clean_cycles: 100,
    shootdown_cycles: 100,
};

fn config(sizes: Sizes, data_frames: u64) -> Config {
    Config {
        format: Format::ArmV7,
        sizes,
        levels: ReservationLevels::ARMV7,
        status: Status::InTable,
        table_frames: 512,
        data: vec![Extent::new(Pfn::new(0x1000), data_frames)],
        reverse_entries: 1 << 14,
        costs: COSTS,
        processors: 1,
        files_aligned: true,
        ticks: None,
    }
}

fn mmu(regime: Regime) -> Result<Mmu, KernelError> {
    Mmu::new(regime, Default::default(), Default::default())
        .map_err(|error| KernelError::Machine(error.to_string()))
}

fn with<R>(config: &Config, run: impl FnOnce(&mut Kernel<'_, Mmu>) -> Result<R, KernelError>) -> R {
    boot(config, &presets::ARMADA_XP.processor(), mmu, run).unwrap()
}

const HEAP: u64 = 0x400;

fn at(page: u64) -> VirtAddr {
    Vpn::new(page).address()
}

fn touch_all(
    kernel: &mut Kernel<'_, Mmu>,
    id: usize,
    pages: u64,
    write: bool,
) -> Result<(), KernelError> {
    for page in HEAP..HEAP + pages {
        let access =
            if write { MemoryAccess::write(at(page)) } else { MemoryAccess::read(at(page)) };
        kernel.access(id, &access)?;
    }
    Ok(())
}

/// Two megabytes written page by page become two sections. Read again, the TLB
/// misses each page without them, and with them the first section alone: the
/// second was filled when the last page was touched. With pages of 64 KiB
/// between, filling the second did not drive out the first.
#[test]
fn superpages_arise() {
    for (sizes, promotions, misses) in [
        (Sizes::NONE, 0, 512),
        (Sizes::NONE.with(Order::new(8).unwrap()), 2, 1),
        (Sizes::all(Format::ArmV7), 2 + 32, 0),
    ] {
        let stats = with(&config(sizes, 4096), |kernel| {
            let id = kernel.spawn()?;
            let heap = PageRange::new(Vpn::new(HEAP), 512);
            kernel.map(id, heap, true, false, MapBacking::Anonymous)?;
            touch_all(kernel, id, 512, true)?;
            kernel.check()?;
            let faults = kernel.stats()?;
            assert_eq!(faults.faults, 512);
            assert_eq!(faults.pmap.promotions, promotions);
            // Frames are reserved with superpages and without.
            assert_eq!((faults.reservations.reserved, faults.reservations.single), (2, 0));
            kernel.reset_stats();
            touch_all(kernel, id, 512, false)?;
            let stats = kernel.stats()?;
            kernel.exit(id)?;
            kernel.check()?;
            assert_eq!(kernel.free_frames(), 4096);
            Ok(stats)
        });
        assert_eq!(stats.faults, 0);
        assert_eq!(stats.processor.walks, misses, "{sizes:?}");
    }
}

/// A child reads its parent's superpage as one, and has its own page after a
/// write; the parent, too, keeps what it had.
#[test]
fn fork_shares_and_copies() {
    with(&config(Sizes::all(Format::ArmV7), 4096), |kernel| {
        let parent = kernel.spawn()?;
        kernel.map(
            parent,
            PageRange::new(Vpn::new(HEAP), 256),
            true,
            false,
            MapBacking::Anonymous,
        )?;
        touch_all(kernel, parent, 256, true)?;
        let used = kernel.free_frames();
        let child = kernel.fork(parent)?;
        touch_all(kernel, child, 256, false)?;
        kernel.check()?;
        assert_eq!(kernel.free_frames(), used, "reading copies nothing");
        let before = kernel.stats()?;
        kernel.access(child, &MemoryAccess::write(at(HEAP + 7)))?;
        kernel.access(child, &MemoryAccess::write(at(HEAP + 8)))?;
        kernel.access(parent, &MemoryAccess::write(at(HEAP + 7)))?;
        kernel.check()?;
        let after = kernel.stats()?;
        assert_eq!(after.copies - before.copies, 3);
        assert!(after.pmap.demotions_remove > before.pmap.demotions_remove);
        kernel.exit(parent)?;
        kernel.check()?;
        touch_all(kernel, child, 256, true)?;
        kernel.exit(child)?;
        kernel.check()?;
        assert_eq!(kernel.free_frames(), 4096);
        Ok(())
    });
}

#[test]
fn what_is_not_permitted_stops() {
    with(&config(Sizes::all(Format::ArmV7), 1024), |kernel| {
        let id = kernel.spawn()?;
        let pages = PageRange::new(Vpn::new(HEAP), 64);
        kernel.map(id, pages, true, false, MapBacking::Anonymous)?;
        let outside = kernel.access(id, &MemoryAccess::read(at(HEAP + 64)));
        assert!(matches!(outside, Err(KernelError::NotPermitted { what: "read", .. })));
        let over = kernel.map(id, pages, true, false, MapBacking::Anonymous);
        assert!(matches!(over, Err(KernelError::Overlap { .. })));
        touch_all(kernel, id, 64, true)?;
        kernel.protect(id, PageRange::new(Vpn::new(HEAP + 3), 1), false, false)?;
        let write = kernel.access(id, &MemoryAccess::write(at(HEAP + 3)));
        assert!(matches!(write, Err(KernelError::NotPermitted { what: "write", .. })));
        kernel.access(id, &MemoryAccess::write(at(HEAP + 4)))?;
        kernel.unmap(id, PageRange::new(Vpn::new(HEAP + 5), 10))?;
        let fetch = kernel.access(id, &MemoryAccess::fetch(at(HEAP + 4)));
        assert!(matches!(fetch, Err(KernelError::NotPermitted { what: "fetch", .. })));
        let gone = kernel.access(id, &MemoryAccess::read(at(HEAP + 5)));
        assert!(matches!(gone, Err(KernelError::NotPermitted { .. })));
        kernel.access(id, &MemoryAccess::read(at(HEAP + 15)))?;
        assert!(matches!(kernel.exit(7), Err(KernelError::NoProcess(7))));
        kernel.check()
    });
}

/// Two processes that map one file share its frames, and its superpage.
#[test]
fn files_are_shared() {
    with(&config(Sizes::all(Format::ArmV7), 1024), |kernel| {
        let file = MapBacking::File { file: 1, first_page: 0 };
        let first = kernel.spawn()?;
        let second = kernel.spawn()?;
        for id in [first, second] {
            kernel.map(id, PageRange::new(Vpn::new(HEAP), 256), true, true, file)?;
            touch_all(kernel, id, 256, false)?;
        }
        kernel.check()?;
        let stats = kernel.stats()?;
        assert_eq!(kernel.free_frames(), 1024 - 256);
        assert_eq!(stats.pmap.promotions, 2 * (16 + 1));
        kernel.access(second, &MemoryAccess::write(at(HEAP)))?;
        assert_eq!(kernel.free_frames(), 1024 - 257);
        kernel.check()
    });
}

/// A program's read-only file, whose first mapping lies 5 pages off its superpages, is in
/// memory when it is mapped: its whole sections take a fault each, the ends a fault for each
/// page, and a second process finds the same frames.
#[test]
fn read_only_files_are_entered_whole() {
    let section = Sizes::NONE.with(Order::known(8));
    // 251 pages, two sections, 16 + 16 + 5 pages.
    let pages = 251 + 512 + 37;
    for (sizes, created, faults) in [
        (Sizes::NONE, 0, 251 + 512 + 37),
        (section, 2, 251 + 2 + 37),
        (section.with(Order::known(4)), 2, 251 + 2 + 37),
    ] {
        with(&config(sizes, 4096), |kernel| {
            let file = MapBacking::File { file: 1, first_page: 3 };
            let range = PageRange::new(Vpn::new(HEAP + 5), pages);
            for id in [kernel.spawn()?, kernel.spawn()?] {
                let before = kernel.stats()?;
                kernel.map(id, range, false, true, file)?;
                for page in 0..pages {
                    kernel.access(id, &MemoryAccess::read(at(HEAP + 5 + page)))?;
                }
                let after = kernel.stats()?;
                assert_eq!(after.pmap.created - before.pmap.created, created, "{sizes:?}");
                assert_eq!(after.faults - before.faults, faults, "{sizes:?}");
                kernel.check()?;
                assert_eq!(kernel.free_frames(), 4096 - pages);
            }
            // One page protected anew takes its section apart, and no more.
            let one = PageRange::new(Vpn::new(HEAP + 256 + 9), 1);
            kernel.protect(0, one, false, false)?;
            kernel.access(0, &MemoryAccess::read(at(HEAP + 256 + 9)))?;
            assert_eq!(kernel.stats()?.pmap.demotions_protect > 0, created > 0);
            kernel.check()
        });
    }
}

/// Pages that may be written are entered one by one, and a file shown shifted against its
/// first mapping has no superpage there.
#[test]
fn what_is_writable_or_shifted_is_entered_page_by_page() {
    with(&config(Sizes::NONE.with(Order::known(8)), 4096), |kernel| {
        let id = kernel.spawn()?;
        let file = MapBacking::File { file: 1, first_page: 0 };
        kernel.map(id, PageRange::new(Vpn::new(HEAP), 256), true, false, file)?;
        touch_all(kernel, id, 256, false)?;
        let shifted = PageRange::new(Vpn::new(HEAP + 0x100 + 1), 256);
        kernel.map(id, shifted, false, false, file)?;
        for page in 0..256 {
            kernel.access(id, &MemoryAccess::read(shifted.start.address() + page * 4096))?;
        }
        let stats = kernel.stats()?;
        assert_eq!((stats.pmap.created, stats.pmap.promotions, stats.faults), (0, 1, 512));
        assert_eq!(kernel.free_frames(), 4096 - 256);
        kernel.check()
    });
}

/// Where files lie a page off, none of their superpages is entered whole or promoted.
#[test]
fn files_that_do_not_align_have_no_superpages() {
    let section = Sizes::NONE.with(Order::known(8));
    with(&Config { files_aligned: false, ..config(section, 4096) }, |kernel| {
        let id = kernel.spawn()?;
        let file = MapBacking::File { file: 1, first_page: 0 };
        kernel.map(id, PageRange::new(Vpn::new(HEAP), 512), false, true, file)?;
        touch_all(kernel, id, 512, false)?;
        let stats = kernel.stats()?;
        assert_eq!((stats.pmap.created, stats.pmap.promotions, stats.faults), (0, 0, 512));
        kernel.check()
    });
}

/// A machine that is too small says so, and loses nothing.
#[test]
fn memory_runs_out() {
    with(&config(Sizes::all(Format::ArmV7), 300), |kernel| {
        let id = kernel.spawn()?;
        kernel.map(id, PageRange::new(Vpn::new(HEAP), 512), true, false, MapBacking::Anonymous)?;
        let full = touch_all(kernel, id, 512, true);
        assert!(matches!(full, Err(KernelError::OutOfMemory(_))), "{full:?}");
        assert_eq!(kernel.free_frames(), 0);
        kernel.check()?;
        kernel.exit(id)?;
        assert_eq!(kernel.free_frames(), 300);
        kernel.check()
    });
}

/// Four threads fill, change and empty one space, each on its own processor: whatever one of them
/// changes, no processor's TLB holds what the table no longer says, and the others that ran the
/// space were told. Alone on its processor, a process tells nobody.
#[test]
fn a_flush_reaches_every_processor() {
    let heap = PageRange::new(Vpn::new(HEAP), 512);
    let sound =
        |kernel: &Kernel<'_, Mmu>, what: &str| assert_eq!(kernel.stale(heap), None, "{what}");
    for (processors, sizes) in [(4, Sizes::NONE), (4, Sizes::all(Format::ArmV7)), (1, Sizes::NONE)]
    {
        let config = Config { processors, ..config(sizes, 4096) };
        with(&config, |kernel| {
            let id = kernel.spawn()?;
            kernel.map(id, heap, true, false, MapBacking::Anonymous)?;
            for page in 0..512u64 {
                kernel.act_on(page as usize);
                kernel.access(id, &MemoryAccess::write(at(HEAP + page)))?;
                sound(kernel, "a page entered or promoted");
            }
            for processor in 0..4 {
                kernel.act_on(processor);
                touch_all(kernel, id, 512, false)?;
            }
            let before = kernel.stats()?;
            for (nth, page) in [3, 256, 511].into_iter().enumerate() {
                let one = PageRange::new(Vpn::new(HEAP + page), 1);
                kernel.act_on(nth);
                kernel.protect(id, one, false, false)?;
                sound(kernel, "a page protected");
                kernel.protect(id, one, true, false)?;
                kernel.act_on(nth + 1);
                kernel.access(id, &MemoryAccess::write(at(HEAP + page)))?;
                sound(kernel, "a page written again");
            }
            kernel.act_on(2);
            let child = kernel.fork(id)?;
            sound(kernel, "a fork");
            kernel.act_on(3);
            kernel.access(child, &MemoryAccess::write(at(HEAP)))?;
            sound(kernel, "a page copied");
            kernel.act_on(1);
            kernel.unmap(id, heap)?;
            sound(kernel, "all unmapped");
            let owed = kernel.stats()?.shootdowns;
            let (remote, tlbs) = (owed.remote, owed.remote_tlbs);
            assert!(owed.flushes > before.shootdowns.flushes);
            assert_eq!(remote > before.shootdowns.remote, processors > 1);
            assert!(remote <= tlbs && tlbs <= 3 * remote, "{owed:?}");
            kernel.exit(id)?;
            kernel.exit(child)?;
            kernel.check()
        });
    }
}

/// A tick reads the kernel's pages, which miss again once the program has driven them out: two
/// translations of 32 pages each in a TLB of 32 entries. They take no fault's time and no frame of the
/// program's, in a child neither.
#[test]
fn ticks_take_entries_of_the_tlb() {
    let ticking = Config {
        ticks: Some(Ticks { period_cycles: 1_000_000, pages: 32 }),
        ..config(Sizes::NONE, 4096)
    };
    let walks = |config: &Config| {
        with(config, |kernel| {
            let id = kernel.spawn()?;
            let heap = PageRange::new(Vpn::new(HEAP), 32);
            kernel.map(id, heap, true, false, MapBacking::Anonymous)?;
            touch_all(kernel, id, 32, true)?;
            kernel.reset_stats();
            for _ in 0..4 {
                let idle =
                    MemoryAccess { compute_cycles: 1_000_000, ..MemoryAccess::read(at(HEAP)) };
                kernel.access(id, &idle)?;
                touch_all(kernel, id, 32, false)?;
            }
            let stats = kernel.stats()?;
            let child = kernel.fork(id)?;
            touch_all(kernel, child, 32, true)?;
            kernel.check()?;
            kernel.exit(child)?;
            kernel.exit(id)?;
            kernel.check()?;
            Ok((stats.ticks, stats.processor.walks, stats.faults, kernel.free_frames()))
        })
    };
    let (none, quiet, ..) = walks(&config(Sizes::NONE, 4096));
    assert_eq!((none, quiet), (0, 0));
    let (ticks, missed, faults, free) = walks(&ticking);
    // The page cache keeps the kernel's pages.
    assert_eq!((ticks, faults, free), (4, 0, 4096 - 32));
    assert!(missed >= 4 * 64, "{missed}");
}

/// Programs through `execute`: only what lies between begin and end counts,
/// and what is wrong stops it.
#[test]
fn programs_are_executed() {
    use swath_lab::papers::superpages::benchmark::{Forkbomb, Gups};
    use swath_lab::papers::superpages::execute::execute;
    use swath_lab::papers::superpages::process::{Action, Step};

    let table = at(HEAP);
    let gups = Gups { table, table_bytes: 1 << 20, updates: 500, seed: 1 << 32, update_cycles: 0 };
    let steps = || gups.steps().unwrap().map(Ok::<_, KernelError>);
    let cost =
        with(&config(Sizes::all(Format::ArmV7), 4096), |kernel| execute(kernel, steps(), 32));
    assert_eq!((cost.accesses, cost.faults, cost.copies), (1000, 0, 0));
    assert_eq!(cost.total.pmap.promotions, 16 + 1);
    assert!(cost.walks <= 1);

    let bomb = Forkbomb {
        data: table,
        data_pages: 256,
        written_pages: 10,
        children: 2,
        depth: 2,
        write_cycles: 0,
    };
    let steps = bomb.steps().unwrap().map(Ok::<_, KernelError>);
    let cost = with(&config(Sizes::all(Format::ArmV7), 4096), |kernel| {
        let cost = execute(kernel, steps, 32)?;
        assert_eq!(kernel.free_frames(), 4096, "all went back");
        Ok(cost)
    });
    assert_eq!((cost.accesses, cost.copies), (6 * 10, 6 * 10));

    let nobody = [Ok::<_, KernelError>(Step { process: 7, action: Action::Exit })];
    with(&config(Sizes::NONE, 64), |kernel| {
        let failed = execute(kernel, nobody.into_iter(), 32);
        assert!(matches!(failed, Err(KernelError::Machine(_))));
        Ok(())
    });
}
