//! The designs against what they must do, and in the reports of the studies that compare designs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use swath_arch::{
    Attributes, Coalescing, Extent, Format, PageRange, Pfn, PhysAddr, PhysMemory, Regime,
    SliceMemory, VirtAddr, Vpn,
};
use swath_example_designs::colt::Colt;
use swath_example_designs::hashed::{self, Hashed};
use swath_example_designs::next_fit::NextFit;
use swath_frame::testing::frames::conform;
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_hw::translate::translator::access_by_steps;
use swath_hw::{Geometry, Mmu, TlbOutcome, Translate, WalkOrder};
use swath_lab::papers::page_buddy::design::NewTlb;
use swath_lab::study::results::{HostResult, StudyResult};
use swath_vm::AddressSpace;

#[test]
fn next_fit_conforms() {
    let frames = Extent::new(Pfn::new(512), 4096);
    let ranges = [ByteRange::of_frames(frames)];
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&ranges, &mut areas).expect("one range");
    for seed in 0..40 {
        let mut allocator = NextFit::allocated(frames);
        allocator.free(frames).expect("all are allocated");
        conform(&map, &mut allocator, seed, 150, &mut |_, _| ());
    }
}

/// What CoLT translates is what was mapped, and it misses no more often than the same TLB without it.
#[test]
fn colt_translates_what_is_mapped() {
    for (seed, format) in (0..4).flat_map(|seed| Format::ALL.map(|format| (seed, format))) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let tables = Extent::new(Pfn::new(1 << 16), 256);
        let mut words = vec![0; tables.count as usize * 512];
        let memory = SliceMemory::new(tables.start, &mut words);
        let ranges = [ByteRange::of_frames(tables)];
        let mut areas = [Extent::default()];
        let map = MemoryMap::new(&ranges, &mut areas).expect("one range");
        let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::BBS)];
        let frames = PageBuddy::<_>::new(&map, BuddyConfig::BBS, storage).expect("storage");
        let frames = RefCell::new(frames);
        let mut space =
            AddressSpace::new(format, Coalescing::None, &memory, &frames, &frames).expect("a root");
        let (mut page, mut mapped) = (0x1000, Vec::new());
        while mapped.len() < 400 {
            let block =
                Extent::new(Pfn::new(random.random_range(0..60_000)), random.random_range(1..9));
            page += random.random_range(0..3);
            space.map(Vpn::new(page), block, Attributes::USER_DATA).expect("room");
            mapped.extend((page..).zip(block.iter()));
            page += block.count;
        }
        let regime = space.regime();
        let geometry = Geometry { sets: 8, ways: 4, index_shift: 2 };
        let mut colt = Colt::new(regime, Geometry::fully_associative(32)).expect("a form");
        let mut trad = Mmu::new(regime, geometry, WalkOrder::default()).expect("a form");
        let mut hits = [0, 0];
        for _ in 0..4000 {
            let near = random.random_range(0..mapped.len());
            for (page, frame) in mapped.iter().skip(near).take(6) {
                let addr = VirtAddr::new((page << 12) + random.random_range(0..4096));
                let found = access_by_steps(&mut colt, addr, &memory).expect("mapped");
                let expected = frame.address().raw() + addr.page_offset();
                assert_eq!(found.addr.raw(), expected, "seed {seed}, {format:?}, {addr}");
                let plain = trad.access(addr, &memory).expect("mapped");
                for (count, found) in hits.iter_mut().zip([found, plain]) {
                    *count += u32::from(matches!(found.outcome, TlbOutcome::Hit(_)));
                }
            }
        }
        assert!(hits[0] > hits[1], "seed {seed}, {format:?}: {hits:?}");
        // What was unmapped faults.
        let last = mapped[mapped.len() - 1].0;
        let _flush = space.unmap(PageRange::new(Vpn::new(last), 1)).expect("mapped");
        colt.invalidate_page(Vpn::new(last));
        assert!(access_by_steps(&mut colt, VirtAddr::new(last << 12), &memory).is_err());
    }
}

/// The hashed table translates what was written, faults elsewhere, and takes whatever words there are.
#[test]
fn hashed_tables_translate_what_is_written() {
    for seed in 0..20 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let tables = Extent::new(Pfn::new(1 << 16), 64);
        let mut words = vec![0; tables.count as usize * 512];
        let memory = SliceMemory::new(tables.start, &mut words);
        let mut frames = NextFit::allocated(tables);
        frames.free(tables).expect("all are allocated");
        let (mut page, mut blocks) = (random.random_range(0..1 << 30), Vec::new());
        for _ in 0..random.random_range(1..300) {
            let start = Pfn::new(random.random_range(0..1 << 30));
            let block = Extent::new(start, random.random_range(1..9));
            blocks.push((Vpn::new(page), block));
            page += block.count + random.random_range(0..3);
        }
        let root = hashed::write(&blocks, &memory, &mut frames).expect("room");
        let regime = Regime { format: Format::X86_64, root, coalescing: Coalescing::None };
        let mut unit = Hashed::new(regime, Geometry::fully_associative(4)).expect("a form");
        let first = blocks[0].0.raw();
        for _ in 0..2000 {
            let addr = VirtAddr::new(random.random_range(first << 12..(page + 5) << 12));
            let mapped = blocks.iter().find(|(start, block)| {
                (start.raw()..start.raw() + block.count).contains(&addr.page().raw())
            });
            let expected = mapped.map(|(start, block)| {
                (block.start.raw() + addr.page().raw() - start.raw()) << 12 | addr.page_offset()
            });
            let found = access_by_steps(&mut unit, addr, &memory);
            assert_eq!(found.ok().map(|access| access.addr.raw()), expected, "seed {seed}, {addr}");
        }
        let stats = unit.stats().walk;
        assert!(stats.reads() < 4 * stats.walks(), "seed {seed}: {stats:?}");
        // Words that mean nothing.
        for at in (root.raw()..tables.end().address().raw()).step_by(8) {
            memory.write_u64(PhysAddr::new(at), random.random()).expect("memory");
        }
        memory.write_u64(root, random.random_range(0..70)).expect("memory");
        let mut unit = Hashed::new(regime, Geometry::fully_associative(4)).expect("a form");
        for _ in 0..200 {
            let _ =
                access_by_steps(&mut unit, VirtAddr::new(random.random::<u64>() >> 13), &memory);
        }
    }
}

/// Names of the series with points in the results of a study, run in its quick form with a plan that
/// was changed.
fn series(study: &str, change: impl FnOnce(&mut toml::Table)) -> BTreeSet<String> {
    let room = tempfile::tempdir().expect("a folder");
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/swath-lab/src/papers/page_buddy");
    let text = fs::read_to_string(format!("{lab}/{study}.toml")).expect("a plan");
    let mut plan: toml::Table = text.parse().expect("a plan");
    change(&mut plan);
    let (file, out) = (room.path().join("plan.toml"), room.path().join("report"));
    fs::write(&file, plan.to_string()).expect("written");
    let mut run = Command::new(env!("CARGO_BIN_EXE_swath-example-designs"));
    let run = run.args(["study", "--quick", "--plan"]).arg(&file).arg("--out").arg(&out);
    // What this machine has installed changes nothing.
    let output = run.env("PATH", "").output().expect("it starts");
    assert!(output.status.success(), "{study}: {}", String::from_utf8_lossy(&output.stderr));
    let name = plan["about"]["study"].as_str().expect("a name");
    let read = |file| fs::read_to_string(out.join(name).join(file));
    let found: StudyResult =
        serde_json::from_str(&read("results.json").expect("results")).expect("JSON");
    let mut all = found.series;
    if let Ok(host) = read("host.json") {
        let host: HostResult = serde_json::from_str(&host).expect("JSON");
        all.extend(host.series);
    }
    all.into_iter().filter(|one| !one.points.is_empty()).map(|one| one.design).collect()
}

/// Sets a key of a plan, given as `TABLE.KEY`, to a value in TOML.
fn set(plan: &mut toml::Table, key: &str, value: &str) {
    let value: toml::Table = format!("value = {value}").parse().expect("TOML");
    let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
    let tables = tables.split('.').filter(|table| !table.is_empty());
    let table = tables.fold(plan, |table, name| table[name].as_table_mut().expect("a table"));
    table.insert(last.to_owned(), value["value"].clone());
}

const ONE: &str = r#"["rotated-display"]"#;

fn assert_both(study: &str, keys: &[(&str, &str)], without: &[&str]) {
    let found = series(study, |plan| {
        without.iter().for_each(|key| drop(plan.remove(*key)));
        keys.iter().for_each(|(key, value)| set(plan, key, value));
    });
    for design in ["CoLT", "Next fit", "Hashed", "PBS"] {
        assert!(found.contains(design), "{study} without {design}: {found:?}");
    }
}

#[test]
fn both_are_in_figures_of_hit_rates() {
    let few = [("repeats.quick", "2"), ("accesses.table4.workloads", ONE)];
    assert_both("tlb", &[few[0], few[1], ("memory.blocks.block_frames", "[4, 16]")], &[]);
    let keys = [few[0], ("formats", r#"["armv7"]"#), ("widths", "[2]"), ("block_frames", "16")];
    assert_both("widths", &keys, &[]);
}

#[test]
fn both_are_beside_what_others_sell_and_propose() {
    let nested = [("nested.workloads", ONE), ("nested.block_frames", "[16]")];
    let few = [("repeats.quick", "1"), ("workloads", ONE), ("block_frames", "[4, 16]")];
    assert_both("reach/reach", &[few, [nested[0], nested[1], few[2]]].concat(), &[]);
}

#[test]
fn both_are_in_figures_of_cycles() {
    let keys = [("repeats.quick", "1"), ("workloads", ONE), ("block_frames", "[16]")];
    assert_both("system", &keys, &["variants", "fields", "category_i_block_frames"]);
}

/// A plan composes the parts of both with its own.
#[test]
fn a_plan_composes_them() {
    let found = series("tlb", |plan| {
        set(plan, "repeats.quick", "1");
        set(plan, "accesses.table4.workloads", ONE);
        set(plan, "memory.blocks.block_frames", "[4, 16]");
        let names = r#"[
            { name = "Hashed on PBS", frames = "pbs", scheme = "trad", tlb = "Hashed" },
            { name = "CoLT" },
            { name = "CoLT on next fit", frames = "Next fit", scheme = "trad", tlb = "CoLT" },
            { name = "Next fit with anchors", frames = "Next fit", scheme = "at", anchor_log2 = 3 },
        ]"#;
        set(plan, "designs", names);
        set(plan, "best_fit", "false");
    });
    let named =
        ["Hashed on PBS", "CoLT", "CoLT on next fit", "Next fit with anchors"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(named));
}

/// Next fit is an allocator, CoLT's memory that of BBS.
#[test]
fn next_fit_is_in_figures_of_free_lists() {
    let found = series("freelist", |plan| {
        for key in ["aged", "varied"] {
            plan.remove(key);
        }
        set(plan, "repeats.quick", "2");
    });
    assert!(found.contains("Next fit") && !found.contains("CoLT"), "{found:?}");
}

/// Instructions are counted by stepping, of few pages: valgrind is hidden.
#[test]
fn next_fit_is_in_figures_of_costs() {
    let found = series("allocation", |plan| {
        set(plan, "block_frames", "[16]");
        set(plan, "repeats.quick", "1");
        set(plan, "counted.repeats.quick", "1");
        set(plan, "counted.block_frames.quick", "[16]");
        set(plan, "counted.free_frames.quick", "64");
        set(plan, "counted.request_frames.quick", "8");
        set(plan, "counted.demand_frames.quick", "2");
    });
    assert!(found.contains("Next fit") && !found.contains("CoLT"), "{found:?}");
}

/// A plan names and composes the allocators that are compared alone.
#[test]
fn a_plan_composes_allocators() {
    let found = series("freelist", |plan| {
        for key in ["aged", "varied"] {
            plan.remove(key);
        }
        set(plan, "repeats.quick", "1");
        let names = r#"[
            { name = "PBS" },
            { name = "Next fit" },
            { name = "The same", frames = "Next fit" },
            { name = "BBS of 11", frames = "bbs", max_order = 11 },
        ]"#;
        set(plan, "designs", names);
    });
    let of_list = |name: &&str| !name.contains("two integers");
    let found: BTreeSet<&str> = found.iter().map(String::as_str).filter(of_list).collect();
    assert_eq!(found, BTreeSet::from(["PBS", "Next fit", "The same", "BBS of 11"]));
}

#[test]
fn next_fit_is_in_figures_of_split_requests() {
    let found = series("fit", |plan| {
        set(plan, "repeats.quick", "1");
        set(plan, "requests", "200");
        set(plan, "aged.frames", "4096");
        set(plan, "aged.operations.quick", "2000");
    });
    assert_eq!(found, BTreeSet::from(["head of list", "best fit", "Next fit"].map(str::to_owned)));
}

#[test]
fn both_are_in_the_worked_examples() {
    let found = series("cases", |_| ());
    assert!(found.contains("CoLT") && found.contains("Next fit"), "{found:?}");
}
