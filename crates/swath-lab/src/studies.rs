//! The studies that come with the program, and which code runs which plan.

use crate::plan::{Kind, Plan};
use crate::study::{Outcome, Run, StudyError};
use crate::{
    cl_availability, cl_latency, cl_order, green_cost, green_hotplug, green_layout,
    green_migration, green_power, green_recorded, green_working_set, pbs_allocation, pbs_cases,
    pbs_fit, pbs_freelist, pbs_readings, pbs_system, pbs_tlb, pbs_widths, results, rt_footprint,
    rt_programs, rt_runtimes, superpages,
};

/// The plans that come with the program: name and text.
pub const BUILT_IN: [(&str, &str); 28] = [
    ("pbs-cases", include_str!("../../../studies/pbs-cases.toml")),
    ("pbs-tlb", include_str!("../../../studies/pbs-tlb.toml")),
    ("pbs-system", include_str!("../../../studies/pbs-system.toml")),
    ("pbs-system-cpu", include_str!("../../../studies/pbs-system-cpu.toml")),
    ("pbs-readings", include_str!("../../../studies/pbs-readings.toml")),
    ("pbs-tlb-armv8", include_str!("../../../studies/pbs-tlb-armv8.toml")),
    ("pbs-tlb-aged", include_str!("../../../studies/pbs-tlb-aged.toml")),
    ("pbs-tlb-real", include_str!("../../../studies/pbs-tlb-real.toml")),
    ("pbs-widths", include_str!("../../../studies/pbs-widths.toml")),
    ("pbs-allocation", include_str!("../../../studies/pbs-allocation.toml")),
    ("pbs-freelist", include_str!("../../../studies/pbs-freelist.toml")),
    ("pbs-fit", include_str!("../../../studies/pbs-fit.toml")),
    ("green-layout", include_str!("../../../studies/green-layout.toml")),
    ("green-hotplug", include_str!("../../../studies/green-hotplug.toml")),
    ("green-power", include_str!("../../../studies/green-power.toml")),
    ("green-migration", include_str!("../../../studies/green-migration.toml")),
    ("green-replay", include_str!("../../../studies/green-replay.toml")),
    ("green-cost", include_str!("../../../studies/green-cost.toml")),
    ("green-working-set", include_str!("../../../studies/green-working-set.toml")),
    ("superpages", include_str!("../../../studies/superpages.toml")),
    ("rt-runtimes", include_str!("../../../studies/rt-runtimes.toml")),
    ("rt-footprint", include_str!("../../../studies/rt-footprint.toml")),
    ("rt-programs", include_str!("../../../studies/rt-programs.toml")),
    ("cl-availability", include_str!("../../../studies/cl-availability.toml")),
    ("cl-order", include_str!("../../../studies/cl-order.toml")),
    ("cl-latency", include_str!("../../../studies/cl-latency.toml")),
    ("cl-large", include_str!("../../../studies/cl-large.toml")),
    ("cl-structures", include_str!("../../../studies/cl-structures.toml")),
];

/// Runs a plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &Plan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let outcome = match plan {
        Plan::Cases(plan) => pbs_cases::run(plan, run),
        Plan::Tlb(plan) => pbs_tlb::run(plan, run),
        Plan::Widths(plan) => pbs_widths::run(plan, run),
        Plan::Readings(plan) => pbs_readings::run(plan, run),
        Plan::System(plan) => pbs_system::run(plan, run),
        Plan::Allocation(plan) => pbs_allocation::run(plan, run),
        Plan::Freelist(plan) => pbs_freelist::run(plan, run),
        Plan::Fit(plan) => pbs_fit::run(plan, run),
        Plan::Green(plan) => match plan.about.kind {
            Kind::GreenHotplug => green_hotplug::run(plan, run),
            Kind::GreenPower => green_power::run(plan, run),
            Kind::GreenMigration => green_migration::run(plan, run),
            Kind::GreenReplay => green_recorded::run(plan, run),
            _ => green_layout::run(plan, run),
        },
        Plan::GreenCost(plan) => green_cost::run(plan, run),
        Plan::GreenWorkingSet(plan) => green_working_set::run(plan, run),
        Plan::Superpages(plan) => superpages::run(plan, run),
        Plan::Rt(plan) => match plan.about.kind {
            Kind::RtFootprint => rt_footprint::run(plan, run),
            Kind::RtPrograms => rt_programs::run(plan, run),
            _ => rt_runtimes::run(plan, run),
        },
        Plan::ClAvailability(plan) => cl_availability::run(plan, run),
        Plan::ClOrder(plan) => cl_order::run(plan, run),
        Plan::ClLatency(plan) => cl_latency::run(plan, run),
        #[cfg(target_os = "linux")]
        Plan::ClLarge(plan) => crate::cl_large::run(plan, run),
        #[cfg(target_os = "linux")]
        Plan::ClStructures(plan) => crate::cl_structures::run(plan, run),
        #[cfg(not(target_os = "linux"))]
        Plan::ClLarge(_) | Plan::ClStructures(_) => Err(StudyError::Machine {
            study: plan.about().study.clone(),
            what: "cmt_malloc is made for Linux only".to_owned(),
        }),
    }?;
    results::check_pair(&outcome.result, outcome.host.as_ref())?;
    Ok(outcome)
}
