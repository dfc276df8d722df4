//! Whether a plan that was read can be run: every number is held against what
//! the study can do with it, and what is wrong is named by its key.

use crate::papers::page_buddy::workload::Shapes;
use crate::study::old::plan::{
    AccessPlan, Aged, ContiguityBits, FormatName, HierarchyPlan, Machine, MemoryPlan, Plan,
    SystemMachine, bbs, pbs,
};

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
        Plan::Fit(plan) => {
            check_pbs("granularity", plan.granularity, plan.top_order)?;
            require(plan.requests > 0, "requests", || "none".into())?;
            check_aged("aged", &plan.aged)
        }
        Plan::Green(plan) => {
            let fault = plan.fault().map(|(key, why)| (key.to_owned(), why));
            fault.map_or(Ok(()), Err)
        }
        Plan::GreenCost(plan) => plan.check(),
        Plan::ClAvailability(plan) => plan.check(),
        Plan::ClOrder(plan) => plan.check(),
        Plan::ClLatency(plan) => plan.check(),
        Plan::ClLarge(plan) => plan.check(),
        Plan::ClStructures(plan) => plan.check(),
        Plan::GreenWorkingSet(plan) => plan.check(),
    }
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
