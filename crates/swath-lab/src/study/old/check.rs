//! Whether a plan that was read can be run: every number is held against what
//! the study can do with it, and what is wrong is named by its key.

use crate::papers::superpages::plan::{Benchmark, SuperpagesPlan};
use crate::study::old::plan::Plan;

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
        Plan::Superpages(plan) => check_superpages(plan),
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
