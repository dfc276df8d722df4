//! The hardware of C beside that of Rust: the same trace through both, and what is refused.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};

use swath::swath_status::*;
use swath::*;
use swath_arch::{
    Attributes, BusError, Coalescing, ContiguityField, Extent, Format, PageRange, Pfn, PhysAddr,
    PhysMemory, SliceMemory, VirtAddr, Vpn,
};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_hw::{
    AddressMapping, DDR4_3200, Dram, DramConfig, DramRequest, Geometry, Hierarchy, HierarchyConfig,
    Scheduling, Translate, TranslatedAccess, TranslationFault, WalkOrder,
};
use swath_vm::AddressSpace;

const TABLE_FRAMES: u64 = 4096;
const DATA_FRAMES: u64 = 1 << 18;

/// Accesses of a program: through arrays in turn, and here and there.
fn accesses(count: u64) -> Vec<(u64, bool)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut at = 0x7000_0000_u64;
    (0..count)
        .map(|_| {
            at = match random(8) {
                0 => 0x4000_0000 + random(3000) * 4096 + random(64) * 64,
                1..=4 => at + 64,
                _ => 0x7000_0000 + random(600) * 4096 * 3,
            };
            (at, random(3) == 0)
        })
        .collect()
}

/// They as ChampSim's instructions: up to four reads and two writes each, reads first.
fn champsim(accesses: &[(u64, bool)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(addr, write) in accesses {
        let mut record = [0_u64; 8];
        record[0] = 0x40_0000;
        record[if write { 2 } else { 4 }] = addr;
        bytes.extend(record.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

fn buddy(start: u64, count: u64, free: bool) -> RefCell<PageBuddy<Vec<u64>>> {
    let ranges = [ByteRange::of_frames(Extent::new(Pfn::new(start), count))];
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&ranges, &mut areas).unwrap();
    let orders = BuddyConfig::PBS_ARMV8;
    let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, orders)];
    RefCell::new(match free {
        true => PageBuddy::new(&map, orders, storage).unwrap(),
        false => PageBuddy::new_allocated(&map, orders, storage).unwrap(),
    })
}

/// One access by steps, with the addresses that it read.
fn access(
    unit: &mut Hierarchy,
    addr: VirtAddr,
    memory: &SliceMemory<'_>,
) -> Result<(TranslatedAccess, u32, Vec<PhysAddr>), TranslationFault> {
    let (hit, cycles) = unit.lookup(addr);
    if let Some(hit) = hit {
        return Ok((hit, cycles, Vec::new()));
    }
    let mut miss = unit.begin(addr)?;
    let mut reads = Vec::new();
    let result = loop {
        reads.push(miss.next_read());
        match unit.step(&mut miss, memory) {
            Ok(None) => {}
            Ok(Some(resolved)) => break Ok(resolved),
            Err(fault) => break Err(fault),
        }
    };
    Ok((unit.complete(addr, &miss, result)?, cycles, reads))
}

fn request(dram: &mut Dram, cycle: &mut u64, addr: PhysAddr, write: bool) {
    dram.offer(*cycle, DramRequest { id: 0, addr, write }).unwrap();
    while dram.take_done(*cycle).is_none() {
        *cycle = dram.next_event().unwrap();
        dram.advance(*cycle);
    }
}

/// What the example prints, by the models of Rust.
fn expected(accesses: &[(u64, bool)], name: &str, coalescing: Coalescing) -> String {
    let tables = Extent::new(Pfn::new(0), TABLE_FRAMES);
    let mut words = vec![0; tables.count as usize * 512];
    let memory = SliceMemory::new(tables.start, &mut words);
    let table_frames = buddy(0, TABLE_FRAMES, true);
    let frames = buddy(TABLE_FRAMES, DATA_FRAMES, false);
    let mut at = TABLE_FRAMES;
    while at + 32 <= TABLE_FRAMES + DATA_FRAMES {
        frames.borrow_mut().free(Extent::new(Pfn::new(at), 24)).unwrap();
        at += 32;
    }
    let mut space =
        AddressSpace::new(Format::X86_64, coalescing, &memory, &frames, &table_frames).unwrap();
    let index_shift = if coalescing == Coalescing::None { 0 } else { 3 };
    let config = HierarchyConfig {
        l1: Geometry { sets: 16, ways: 4, index_shift }.into(),
        l2: Geometry { sets: 128, ways: 12, index_shift }.into(),
        l2_cycles: 7,
        walk_cache_entries: 32,
        order: WalkOrder::RegularFirst,
    };
    let mut unit = Hierarchy::new(space.regime(), &config).unwrap();
    let config = DramConfig {
        part: DDR4_3200.clone(),
        channels: 1,
        ranks: 1,
        mapping: AddressMapping::interleaved(&DDR4_3200, 1, 1, 64).unwrap(),
        scheduling: Scheduling::fr_fcfs(32),
    };
    let (mut dram, mut cycle, mut faults) = (Dram::new(&config).unwrap(), 0, 0);
    for &(addr, write) in accesses {
        let addr = VirtAddr::new(addr);
        let found = access(&mut unit, addr, &memory).or_else(|_| {
            faults += 1;
            let block = PageRange::new(addr.page().align_down(6), 64);
            space.allocate_eager(block, Attributes::USER_DATA, &mut |_| {}).unwrap();
            access(&mut unit, addr, &memory)
        });
        let (found, lookup_cycles, reads) = found.unwrap();
        cycle += u64::from(lookup_cycles);
        for at in reads {
            request(&mut dram, &mut cycle, at, false);
        }
        request(&mut dram, &mut cycle, found.addr, write);
    }
    let stats = unit.stats();
    format!(
        "{name}: {} accesses, {} misses of the first TLB, {} of both, {} reads of tables, {cycle} cycles\n",
        accesses.len(),
        stats.l1.misses - faults,
        stats.l2.misses - faults,
        stats.walk.reads()
    )
}

#[test]
fn a_simulator_in_c_counts_what_the_models_count() {
    let accesses = accesses(20_000);
    let room = tempfile::tempdir().unwrap();
    let trace = room.path().join("trace");
    fs::write(&trace, champsim(&accesses)).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let exe = room.path().join("simulator");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&exe)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("examples/simulator.c"))
        .arg(libraries.join("libswath.a"))
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&exe).arg(&trace).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let trad = expected(&accesses, "TRAD", Coalescing::None);
    let pcad = expected(&accesses, "PCAD", Coalescing::Pcad(ContiguityField::Line));
    assert_eq!(text, format!("{trad}{pcad}"));
    let misses = |line: &str| -> u64 { line.split(' ').nth(3).unwrap().parse().unwrap() };
    assert!(misses(&pcad) < misses(&trad), "{text}");
    println!("{text}");
}

const PCAD: swath_coalescing =
    swath_coalescing { scheme: 1, field: 0, field_bits: 0, anchor_log2: 0 };

fn config() -> swath_mmu_config {
    swath_mmu_config {
        format: 1,
        root: 0x4000,
        coalescing: PCAD,
        first: swath_tlb_form { sets: 1, ways: 32, index_shift: 0 },
        second: swath_tlb_form { sets: 0, ways: 0, index_shift: 0 },
        second_cycles: 0,
        walk_cache_entries: 0,
        replacement: 0,
        anchor_first: 0,
    }
}

fn refused(config: swath_mmu_config) -> swath_result {
    let mut mmu = null_mut();
    // SAFETY: a configuration, and a place to write to.
    let result = unsafe { swath_mmu_create(&raw const config, &raw mut mmu) };
    assert!(mmu.is_null());
    result
}

#[test]
fn units_that_cannot_be_are_refused() {
    let argument = |at| swath_result { status: SWATH_ARGUMENT, at };
    let with = |change: fn(&mut swath_mmu_config)| {
        let mut config = config();
        change(&mut config);
        refused(config)
    };
    assert_eq!(with(|one| one.format = 5), argument(5));
    assert_eq!(with(|one| one.replacement = 3), argument(3));
    assert_eq!(with(|one| one.anchor_first = 2), argument(2));
    assert_eq!(with(|one| one.coalescing.scheme = 3), argument(3));
    assert_eq!(with(|one| one.coalescing.field = 3), argument(3));
    assert_eq!(with(|one| one.first.sets = 3), argument(3));
    assert_eq!(with(|one| one.first.ways = 0), argument(0));
    assert_eq!(with(|one| one.walk_cache_entries = 4), argument(4));
    assert_eq!(
        with(|one| one.second = swath_tlb_form { sets: 4, ways: 2, index_shift: 0 }),
        argument(0)
    );
    let misaligned = swath_result { status: SWATH_MISALIGNED, at: 0x4008 };
    assert_eq!(with(|one| one.root = 0x4008), misaligned);
    let null_result = swath_result { status: SWATH_NULL, at: 0 };
    let (config, mut mmu) = (config(), null_mut());
    // SAFETY: null pointers are refused.
    unsafe {
        assert_eq!(swath_mmu_create(null(), &raw mut mmu), null_result);
        assert_eq!(swath_mmu_create(&raw const config, null_mut()), null_result);
        assert_eq!(swath_mmu_destroy(null_mut()), null_result);
        assert_eq!(swath_dram_destroy(null_mut()), null_result);
    }
}

unsafe extern "C" fn nothing(_: *mut c_void, _: u64, _: u32, _: *mut u64) -> i32 {
    1
}

#[test]
fn a_unit_tells_its_faults_and_is_no_memory() {
    let (config, mut mmu) = (config(), null_mut());
    let memory = swath_bus { read: Some(nothing), write: None, context: null_mut() };
    let mut found = swath_translated { addr: 0, is_hit: 0, lookup_cycles: 0, reads: 0 };
    // SAFETY: objects of this library, places to write to, and functions that answer.
    unsafe {
        assert_eq!(swath_mmu_create(&raw const config, &raw mut mmu).status, SWATH_OK);
        let bus = swath_mmu_access(mmu, 0x1000, memory, &raw mut found);
        assert_eq!(bus, swath_result { status: SWATH_BUS, at: 0x4000 });
        let far = swath_mmu_access(mmu, 1 << 50, memory, &raw mut found);
        assert_eq!(far, swath_result { status: SWATH_FOREIGN, at: 1 << 38 });
        let none = swath_bus { read: None, ..memory };
        assert_eq!(swath_mmu_access(mmu, 0, none, &raw mut found).status, SWATH_NULL);
        assert_eq!(swath_mmu_access(mmu, 0, memory, null_mut()).status, SWATH_NULL);
        assert_eq!(swath_mmu_invalidate(mmu, 1 << 60, 2).status, SWATH_OVERFLOW);
        assert_eq!(swath_mmu_set_root(mmu, 1).status, SWATH_MISALIGNED);
        let other = swath_dram_advance(mmu.cast(), 1);
        assert_eq!(other.status, SWATH_WRONG_OBJECT);
        assert_eq!(swath_mmu_destroy(mmu).status, SWATH_OK);
    }
}

#[test]
fn a_memory_refuses_what_it_cannot_do() {
    let good = swath_dram_config { part: 0, channels: 1, ranks: 1, queue_entries: 2 };
    let create = |config: swath_dram_config| {
        let mut dram = null_mut();
        // SAFETY: a configuration, and a place to write to.
        (unsafe { swath_dram_create(&raw const config, &raw mut dram) }, dram)
    };
    for (config, at) in [
        (swath_dram_config { part: 6, ..good }, 6),
        (swath_dram_config { channels: 3, ..good }, 3),
        (swath_dram_config { ranks: 128, ..good }, 128),
        (swath_dram_config { queue_entries: 0, ..good }, 0),
    ] {
        assert_eq!(create(config).0, swath_result { status: SWATH_ARGUMENT, at });
    }
    let (made, dram) = create(good);
    assert_eq!(made.status, SWATH_OK);
    let mut done = swath_dram_done { id: 0, cycle: 0, is_write: 0 };
    let mut facts = swath_dram_facts { len_bytes: 0, clock_period_ps: 0, burst_bytes: 0 };
    let mut next = 0;
    // SAFETY: an object of this library, and places to write to.
    unsafe {
        assert_eq!(swath_dram_facts_get(dram, &raw mut facts).status, SWATH_OK);
        assert_eq!((facts.clock_period_ps, facts.burst_bytes), (2500, 64));
        assert_eq!(swath_dram_next_event(dram, &raw mut next).status, SWATH_EMPTY);
        assert_eq!(swath_dram_offer(dram, 5, 1, facts.len_bytes, 0).status, SWATH_BUS);
        for id in 0..2 {
            assert_eq!(swath_dram_offer(dram, 5, id, id << 20, 0).status, SWATH_OK);
        }
        let full = swath_dram_offer(dram, 5, 2, 2 << 20, 0);
        assert_eq!(full, swath_result { status: SWATH_QUEUE_FULL, at: 0 });
        assert_eq!(
            swath_dram_offer(dram, 4, 3, 0, 0),
            swath_result { status: SWATH_ARGUMENT, at: 4 }
        );
        let mut ends = Vec::new();
        while swath_dram_next_event(dram, &raw mut next).status == SWATH_OK {
            assert_eq!(swath_dram_advance(dram, next).status, SWATH_OK);
            while swath_dram_take_done(dram, next, &raw mut done).status == SWATH_OK {
                ends.push(done.id);
            }
        }
        assert_eq!(ends, [0, 1]);
        assert_eq!(swath_dram_destroy(dram).status, SWATH_OK);
    }
}

/// A memory of C's functions over words.
struct Words(RefCell<Vec<u64>>);

unsafe extern "C" fn read(words: *mut c_void, addr: u64, len_bytes: u32, value: *mut u64) -> i32 {
    // SAFETY: the context is such words; the value can be written.
    unsafe {
        let words = (*words.cast::<Words>()).0.borrow();
        let Some(&word) = words.get(addr as usize / 8) else { return 1 };
        *value = if len_bytes == 4 { u64::from((word >> (addr % 8 * 8)) as u32) } else { word };
    }
    0
}

unsafe extern "C" fn write(words: *mut c_void, addr: u64, len_bytes: u32, value: u64) -> i32 {
    // SAFETY: the context is such words.
    let mut words = unsafe { (*words.cast::<Words>()).0.borrow_mut() };
    let Some(word) = words.get_mut(addr as usize / 8) else { return 1 };
    let shift = addr % 8 * 8;
    *word = match len_bytes {
        4 => *word & !(u64::from(u32::MAX) << shift) | value << shift,
        _ => value,
    };
    0
}

/// Tables that C writes are those that Rust writes, in every format, and what is mapped, unmapped and
/// refused is told.
#[test]
fn a_space_in_c_writes_what_the_models_write() {
    for (number, format) in (0..).zip(Format::ALL) {
        let words = Words(RefCell::new(vec![0; 64 * 512]));
        let context = (&raw const words).cast_mut().cast();
        let memory = swath_bus { read: Some(read), write: Some(write), context };
        let range = swath_range { start: 0, len_bytes: 64 * 4096 };
        let mut map_storage = vec![0_u64; swath_map_storage_bytes(1).div_ceil(8)];
        let orders = swath_frames_config { granularity: 9, top_order: 18, best_fit: 0 };
        let (mut map, mut frames, mut space) = (null_mut(), null_mut(), null_mut());
        let bytes = |storage: &[u64]| storage.len() * 8;
        // SAFETY: storage of these lengths that nobody else uses, and objects of this library.
        unsafe {
            let len = bytes(&map_storage);
            let made = swath_map_create(
                &raw const range,
                1,
                map_storage.as_mut_ptr().cast(),
                len,
                &raw mut map,
            );
            assert_eq!(made.status, SWATH_OK);
            let mut storage = vec![0_u64; swath_frames_storage_bytes(map, orders).div_ceil(8)];
            let len = bytes(&storage);
            let made = swath_frames_create(
                map,
                orders,
                1,
                storage.as_mut_ptr().cast(),
                len,
                &raw mut frames,
            );
            assert_eq!(made.status, SWATH_OK);
            let mut room = vec![0_u64; swath_space_storage_bytes().div_ceil(8)];
            let (place, len) = (room.as_mut_ptr().cast::<c_void>(), bytes(&room));
            let create = |format, memory, len, space: &mut *mut swath_space| {
                swath_space_create(format, PCAD, memory, frames, frames, place, len, space)
            };
            assert_eq!(create(9, memory, len, &mut space).status, SWATH_ARGUMENT);
            let unwritable = swath_bus { write: None, ..memory };
            assert_eq!(create(number, unwritable, len, &mut space).status, SWATH_NULL);
            assert_eq!(create(number, memory, 8, &mut space).status, SWATH_STORAGE);
            assert_eq!(create(number, memory, len, &mut space).status, SWATH_OK);
            assert_eq!(swath_space_map(space, 0x100, 0x9000, 5).status, SWATH_OK);
            let mapped = swath_space_map(space, 0x104, 0x9000, 2);
            assert_eq!(mapped, swath_result { status: SWATH_MAPPED, at: 0x104 });
            assert_eq!(swath_space_allocate(space, 0x200, 7).status, SWATH_OK);
            assert_eq!(swath_space_allocate(space, 0x300, 999).status, SWATH_OUT_OF_FRAMES);
            assert_eq!(swath_space_map(space, 0x300, 0x9000, 0).status, SWATH_EMPTY);
            let absent = swath_space_unmap(space, 0x204, 5);
            assert_eq!(absent, swath_result { status: SWATH_STATE, at: 0x207 });
            assert_eq!(swath_space_unmap(space, 0x204, 3).status, SWATH_OK);
            let mut root = 0;
            assert_eq!(swath_space_root(space, &raw mut root).status, SWATH_OK);

            let mut own = vec![0; 64 * 512];
            let rust = SliceMemory::new(Pfn::new(0), &mut own);
            let own_frames = buddy(0, 64, true);
            let pcad = Coalescing::Pcad(ContiguityField::Descriptor);
            let mut model =
                AddressSpace::new(format, pcad, &rust, &own_frames, &own_frames).unwrap();
            let extent = Extent::new(Pfn::new(0x9000), 5);
            model.map(Vpn::new(0x100), extent, Attributes::USER_DATA).unwrap();
            let seven = PageRange::new(Vpn::new(0x200), 7);
            model.allocate_eager(seven, Attributes::USER_DATA, &mut |_| {}).unwrap();
            let _flush = model.unmap(PageRange::new(Vpn::new(0x204), 3)).unwrap();
            assert_eq!(root, model.regime().root.raw());
            let here = words.0.borrow();
            for at in 0..64 * 512 {
                let theirs: Result<u64, BusError> = rust.read_u64(PhysAddr::new(at * 8));
                assert_eq!(here[at as usize], theirs.unwrap(), "{format:?}, word {at}");
            }
        }
    }
}
