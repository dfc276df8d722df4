//! Whether a plan that was read can be run: every number is held against what
//! the study can do with it, and what is wrong is named by its key.

use crate::papers::page_buddy::workload::Shapes;
use crate::papers::superpages::plan::{Benchmark, SuperpagesPlan};
use crate::study::old::plan::{Aged, FormatName, HierarchyPlan, Plan, SystemMachine, bbs, pbs};

/// Nothing, or the key and why its value cannot be run.
pub(crate) type Checked = Result<(), (String, String)>;

/// Whether the plan can be run; else the key and why not.
pub(crate) fn validate(plan: &Plan) -> Checked {
    let study = &plan.about().study;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    require(!study.is_empty() && study.chars().all(fits), "about.study", || {
        format!("{study:?} is not a name of lower-case letters, digits and hyphens")
    })?;
    match plan {
        Plan::Cases(plan) => {
            let fig = &plan.fig_8;
            for (key, ranges) in [("a", &fig.a), ("b", &fig.b), ("c", &fig.c), ("d", &fig.d)] {
                let free = check_case(ranges).map_err(|why| (format!("fig_8.{key}"), why))?;
                require((1..=free).contains(&fig.request_frames), "fig_8.request_frames", || {
                    format!("{} of {free} free frames", fig.request_frames)
                })?;
            }
            Ok(())
        }
        Plan::Widths(plan) => {
            check_repeats(plan.repeats, plan.repeats_quick)?;
            check_tlb("tlb_entries", plan.tlb_entries)?;
            require(!plan.formats.is_empty(), "formats", || "none given".into())?;
            require(!plan.widths.is_empty(), "widths", || "none given".into())?;
            for &format in &plan.formats {
                for &bits in &plan.widths {
                    check_width("widths", format, bits)?;
                }
            }
            check_blocks("block_frames", &[plan.block_frames])?;
            check_spare("free_per_requested", plan.free_per_requested)?;
            check_free_share("free_share", plan.free_share)?;
            check_shapes("shapes", &plan.shapes)
        }
        Plan::System(plan) => {
            check_repeats(plan.repeats, plan.repeats_quick)?;
            check_machine(&plan.machine)?;
            check_system("system", &plan.system)?;
            if let Some(behind) = &plan.hierarchy {
                let HierarchyPlan { l2_sets, l2_ways, l2_index_shift, l2_cycles, .. } = *behind;
                let walk_cache_entries = behind.walk_cache_entries;
                require(l2_index_shift <= 18, "hierarchy.l2_index_shift", || {
                    format!("{l2_index_shift} is more than 18")
                })?;
                let entries = u64::from(l2_sets) * u64::from(l2_ways);
                let fits = l2_sets.is_power_of_two() && (1..=1 << 16).contains(&entries);
                require(fits, "hierarchy.l2_sets", || {
                    format!("{l2_sets} sets of {l2_ways} ways: a power of two, 65536 entries")
                })?;
                require(l2_cycles <= 1000, "hierarchy.l2_cycles", || {
                    format!("{l2_cycles} is more than 1000")
                })?;
                require(walk_cache_entries <= 1024, "hierarchy.walk_cache_entries", || {
                    format!("{walk_cache_entries} is more than 1024")
                })?;
            }
            for variant in &plan.variants {
                check_system("variants.system", &variant.system)?;
            }
            check_blocks("variant_block_frames", &plan.variant_block_frames)?;
            check_blocks("block_frames", &plan.block_frames)?;
            check_blocks("block_frames_quick", &plan.block_frames_quick)?;
            check_spare("free_per_requested", plan.free_per_requested)?;
            check_free_share("free_share", plan.free_share)?;
            require(!plan.workloads.is_empty(), "workloads", || "none given".into())?;
            check_shapes("shapes", &plan.shapes)
        }
        Plan::Readings(plan) => {
            check_repeats(plan.repeats, plan.repeats_quick)?;
            require(!plan.column_bytes.is_empty(), "column_bytes", || "none given".into())?;
            require(!plan.blocks.is_empty(), "blocks", || "none given".into())?;
            for (i, shapes) in plan.shapes().enumerate() {
                let key = if i < plan.column_bytes.len() { "column_bytes" } else { "blocks" };
                check_shapes("", &shapes).map_err(|(_, why)| (key.to_owned(), why))?;
            }
            check_blocks("block_frames", &plan.block_frames)?;
            check_spare("free_per_requested", plan.free_per_requested)?;
            check_free_share("free_share", plan.free_share)
        }
        Plan::Allocation(plan) | Plan::Freelist(plan) => {
            check_repeats(plan.repeats, plan.repeats_quick)?;
            check_bbs("bbs_max_order", plan.bbs_max_order)?;
            require(!plan.pbs.is_empty(), "pbs", || "none given".into())?;
            for (i, variant) in plan.pbs.iter().enumerate() {
                check_pbs("pbs", variant.granularity, variant.top_order)?;
                let before = plan.pbs[..i].iter().map(|other| other.design.as_str());
                let taken = before.chain(["BBS"]).any(|name| name == variant.design);
                require(!taken, "pbs.design", || format!("{:?} stands twice", variant.design))?;
            }
            check_free_share("free_share", plan.free_share)?;
            for (prefix, plan) in [("", plan), ("quick.", &plan.quick())] {
                let key = |name: &str| format!("{prefix}{name}");
                check_blocks(&key("block_frames"), &plan.block_frames)?;
                require((1..=1 << 24).contains(&plan.free_frames), &key("free_frames"), || {
                    format!("{} is not between 1 and 2^24", plan.free_frames)
                })?;
                let requested = plan.request_frames;
                require(requested <= plan.free_frames, &key("request_frames"), || {
                    format!("{requested} of {} free frames", plan.free_frames)
                })?;
            }
            match &plan.aged {
                Some(aged) => check_aged("aged", aged),
                None => Ok(()),
            }
        }
        Plan::Superpages(plan) => check_superpages(plan),
        Plan::Fit(plan) => {
            check_pbs("granularity", plan.granularity, plan.top_order)?;
            require(plan.requests > 0, "requests", || "none".into())?;
            check_aged("aged", &plan.aged)
        }
        Plan::Rt(plan) => plan.check(),
        Plan::ClAvailability(plan) => plan.check(),
        Plan::ClOrder(plan) => plan.check(),
        Plan::ClLatency(plan) => plan.check(),
        Plan::ClLarge(plan) => plan.check(),
        Plan::ClStructures(plan) => plan.check(),
    }
}

fn check_superpages(plan: &SuperpagesPlan) -> Checked {
    fn within<T: PartialOrd + std::fmt::Display>(key: &str, value: T, low: T, high: T) -> Checked {
        require(value >= low && value <= high, key, || {
            format!("{value} is not between {low} and {high}")
        })
    }
    let machine = &plan.machine;
    within("machine.memory_mib", machine.memory_mib, 16, 1 << 10)?;
    for (key, value, high) in [
        ("tlb_entries", machine.tlb_entries, 1 << 16),
        ("micro_tlb_entries", machine.micro_tlb_entries, 1 << 16),
        ("l1_cycles", machine.l1_cycles, 1000),
        ("l2_cycles", machine.l2_cycles, 1000),
        ("memory_cycles", machine.memory_cycles, 10_000),
        ("tlb_miss_cycles", machine.tlb_miss_cycles, 10_000),
        ("outstanding_max", machine.outstanding_max, 64),
    ] {
        let low = u32::from(!matches!(key, "l2_cycles" | "memory_cycles" | "tlb_miss_cycles"));
        if let Some(value) = value {
            within(&format!("machine.{key}"), value, low, high)?;
        }
    }
    for (key, value) in [("l1_kib", machine.l1_kib), ("l2_kib", machine.l2_kib)] {
        let Some(value) = value else { continue };
        within(&format!("machine.{key}"), value, 1, 1 << 16)?;
        require(value.is_power_of_two(), &format!("machine.{key}"), || {
            format!("{value} is not a power of two")
        })?;
    }
    for (key, value) in [
        ("fault_cycles", machine.fault_cycles),
        ("zero_cycles", machine.zero_cycles),
        ("copy_cycles", machine.copy_cycles),
        ("switch_cycles", machine.switch_cycles),
        ("unmap_cycles", machine.unmap_cycles),
    ] {
        within(&format!("machine.{key}"), value, 0, 1_000_000)?;
    }
    within("loop_cycles", plan.loop_cycles, 0, 1000)?;
    within("recorded_cycles", plan.recorded_cycles, 0, 1000)?;
    within("quick_divisor", plan.quick_divisor, 1, 1000)?;
    require(!plan.benchmarks.is_empty(), "benchmarks", || "none given".into())?;
    for (i, benchmark) in plan.benchmarks.iter().enumerate() {
        // Tables and what runs before need some, too.
        let high = machine.memory_mib * 3 / 4;
        within(&format!("benchmarks.{}", benchmark.key()), benchmark.mib(), 1, high)?;
        let twice = plan.benchmarks[..i].iter().any(|other| other.title() == benchmark.title());
        require(!twice, &format!("benchmarks.{}", benchmark.key()), || {
            format!("{} is given twice", benchmark.title())
        })?;
        if let Benchmark::Gups { updates: count, .. }
        | Benchmark::RandomLatency { reads: count, .. } = *benchmark
        {
            within(&format!("benchmarks.{}", benchmark.key()), count, 1000, 1 << 32)?;
        }
    }
    let bomb = &plan.forkbomb;
    within("forkbomb.heap_kib", bomb.heap_kib, 4, machine.memory_mib << 4)?;
    within("forkbomb.children", bomb.children, 1, 8)?;
    within("forkbomb.depth", bomb.depth, 0, 10)?;
    within("forkbomb.depth_quick", bomb.depth_quick, 0, bomb.depth)?;
    within("forkbomb.written_pages", bomb.written_pages, 0, bomb.heap_kib / 4)?;
    let real = &plan.real;
    within("real.table_mib", real.table_mib, 16, 1 << 16)?;
    within("real.updates", real.updates, 1000, 1 << 40)?;
    within("real.repeats", real.repeats, 1, 100)?;
    require(!real.release_mib.is_empty(), "real.release_mib", || "none given".into())?;
    for pair in real.release_mib.windows(2) {
        require(pair[0] < pair[1], "real.release_mib", || format!("{} is not more", pair[1]))?;
    }
    for &mib in &real.release_mib {
        within("real.release_mib", mib, 1, 1 << 20)?;
    }
    let blocks = &plan.blocks;
    within("blocks.table_mib", blocks.table_mib, 1, 64)?;
    require(blocks.table_mib.is_power_of_two(), "blocks.table_mib", || {
        format!("{} is not a power of two", blocks.table_mib)
    })?;
    within("blocks.updates", blocks.updates, 1000, 1 << 26)?;
    check_blocks("blocks.block_frames", &blocks.block_frames)?;
    check_blocks("blocks.block_frames_quick", &blocks.block_frames_quick)?;
    check_spare("blocks.free_per_requested", blocks.free_per_requested)?;
    check_free_share("blocks.free_share", blocks.free_share)
}

pub(crate) fn require(holds: bool, key: &str, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err((key.to_owned(), why())) }
}

fn check_repeats(repeats: u64, quick: u64) -> Checked {
    for (key, value) in [("repeats", repeats), ("repeats_quick", quick)] {
        require((1..=1000).contains(&value), key, || format!("{value} is not between 1 and 1000"))?;
    }
    Ok(())
}

fn check_system(table: &str, system: &SystemMachine) -> Checked {
    let distance = system.anchor_log2.unwrap_or(1);
    require((1..=16).contains(&distance), &format!("{table}.anchor_log2"), || {
        format!("{distance} is not between 1 and 16")
    })?;
    for (key, value, max) in
        [("outstanding_max", system.outstanding_max, 4096), ("walks_max", system.walks_max, 64)]
    {
        require((1..=max).contains(&value), &format!("{table}.{key}"), || {
            format!("{value} is not between 1 and {max}")
        })?;
    }
    require(system.walks_max == 1 || system.hit_under_miss, &format!("{table}.walks_max"), || {
        "more than one walk needs hit_under_miss".into()
    })?;
    for (key, value) in [
        ("lookup_cycles", system.lookup_cycles),
        ("request_cycles", system.request_cycles),
        ("response_cycles", system.response_cycles),
    ] {
        require(value <= 1000, &format!("{table}.{key}"), || format!("{value} is more than 1000"))?;
    }
    Ok(())
}

fn check_machine(machine: &crate::study::old::plan::Machine) -> Checked {
    machine.check().map_err(|refused| (refused.key, refused.why))
}

fn check_tlb(key: &str, entries: usize) -> Checked {
    require((1..=1 << 16).contains(&entries), key, || {
        format!("{entries} is not between 1 and 65536")
    })
}

fn check_width(key: &str, format: FormatName, bits: u8) -> Checked {
    let max = format.format().beside_half_bits();
    require((1..=max).contains(&u32::from(bits)), key, || {
        format!("{bits} is not between 1 and {max}, the widest beside {}", format.title())
    })
}

fn check_bbs(key: &str, max_order: u8) -> Checked {
    require(max_order > 0, key, || "there is no list at all".into())?;
    bbs(max_order).map(drop).map_err(|why| (key.to_owned(), why.to_string()))
}

fn check_pbs(key: &str, granularity: u8, top: u8) -> Checked {
    pbs(granularity, top).map(drop).map_err(|why| (key.to_owned(), why.to_string()))
}

fn check_blocks(key: &str, sizes: &[u64]) -> Checked {
    require(!sizes.is_empty(), key, || "none given".into())?;
    for size in sizes {
        require((1..=1 << 20).contains(size), key, || {
            format!("{size} frames is not between 1 and 2^20")
        })?;
    }
    Ok(())
}

fn check_share(key: &str, share: f64) -> Checked {
    require(share > 0.0 && share < 1.0, key, || format!("{share} is not a share between 0 and 1"))
}

/// Memory is as many times longer than what is free in it.
fn check_free_share(key: &str, share: f64) -> Checked {
    check_share(key, share)?;
    require(share >= 0.001, key, || format!("{share} is less than one thousandth"))
}

fn check_spare(key: &str, spare: f64) -> Checked {
    require((1.0..=1000.0).contains(&spare), key, || format!("{spare} is not between 1 and 1000"))
}

fn check_aged(key: &str, aged: &Aged) -> Checked {
    let sub = |name: &str| format!("{key}.{name}");
    require((1024..=1 << 24).contains(&aged.frames), &sub("frames"), || {
        format!("{} is not between 1024 and 2^24", aged.frames)
    })?;
    check_share(&sub("peak_share"), aged.peak_share)?;
    require(!aged.used_shares.is_empty(), &sub("used_shares"), || "none given".into())?;
    for &share in &aged.used_shares {
        check_share(&sub("used_shares"), share)?;
        require(share <= aged.peak_share, &sub("used_shares"), || {
            format!("{share} is above the peak, {}", aged.peak_share)
        })?;
    }
    require(
        (1..=aged.frames).contains(&aged.request_frames_max),
        &sub("request_frames_max"),
        || format!("{} is not between 1 and all frames", aged.request_frames_max),
    )
}

fn check_shapes(key: &str, shapes: &Shapes) -> Checked {
    let sides = [
        ("image_width", shapes.image_width),
        ("image_height", shapes.image_height),
        ("pixel_bytes", shapes.pixel_bytes),
        ("matrix_elements", shapes.matrix_elements),
        ("element_bytes", shapes.element_bytes),
        ("column_bytes", shapes.column_bytes),
        ("block_bytes", shapes.block_bytes),
        ("block_rows", shapes.block_rows),
    ];
    for (name, value) in sides {
        require((1..=1 << 14).contains(&value), &format!("{key}.{name}"), || {
            format!("{value} is not between 1 and 16384")
        })?;
    }
    Ok(())
}

fn check_case(ranges: &[(u64, u64)]) -> Result<u64, String> {
    let mut end = 0;
    let mut free = 0;
    for &(start, count) in ranges {
        if count == 0 || start < end || start > 1 << 16 || count > 1 << 16 {
            return Err(format!("range [{start}, {count}] is empty, out of order or too large"));
        }
        end = start + count;
        free += count;
    }
    Ok(free)
}
