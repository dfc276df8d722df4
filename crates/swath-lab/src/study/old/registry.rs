//! The studies that come with the program, and which code runs which plan.

use crate::papers::clmalloc::{availability, latency, order};
use crate::papers::page_buddy::{allocation, cases, fit, freelist, readings, system, widths};
use crate::papers::real_time::{footprint, programs, runtimes};
use crate::papers::superpages::talk;
use crate::study::old::plan::{Kind, Plan};
use crate::study::results;
use crate::study::run::{Outcome, Run, StudyError};

/// The plans that come with the program: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("pbs-cases", include_str!("../../papers/page_buddy/cases.toml")),
    ("pbs-system", include_str!("../../papers/page_buddy/system.toml")),
    ("pbs-system-cpu", include_str!("../../papers/page_buddy/system_cpu.toml")),
    ("pbs-readings", include_str!("../../papers/page_buddy/readings.toml")),
    ("pbs-widths", include_str!("../../papers/page_buddy/widths.toml")),
    ("pbs-allocation", include_str!("../../papers/page_buddy/allocation.toml")),
    ("pbs-freelist", include_str!("../../papers/page_buddy/freelist.toml")),
    ("pbs-fit", include_str!("../../papers/page_buddy/fit.toml")),
    ("superpages", include_str!("../../papers/superpages/talk.toml")),
    ("rt-runtimes", include_str!("../../papers/real_time/runtimes.toml")),
    ("rt-footprint", include_str!("../../papers/real_time/footprint.toml")),
    ("rt-programs", include_str!("../../papers/real_time/programs.toml")),
    ("cl-availability", include_str!("../../papers/clmalloc/availability.toml")),
    ("cl-order", include_str!("../../papers/clmalloc/order.toml")),
    ("cl-latency", include_str!("../../papers/clmalloc/latency.toml")),
    ("cl-large", include_str!("../../papers/clmalloc/large.toml")),
    ("cl-structures", include_str!("../../papers/clmalloc/structures.toml")),
];

/// Runs a plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &Plan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let outcome = match plan {
        Plan::Cases(plan) => cases::run(plan, run),
        Plan::Widths(plan) => widths::run(plan, run),
        Plan::Readings(plan) => readings::run(plan, run),
        Plan::System(plan) => system::run(plan, run),
        Plan::Allocation(plan) => allocation::run(plan, run),
        Plan::Freelist(plan) => freelist::run(plan, run),
        Plan::Fit(plan) => fit::run(plan, run),
        Plan::Superpages(plan) => talk::run(plan, run),
        Plan::Rt(plan) => match plan.about.kind {
            Kind::RtFootprint => footprint::run(plan, run),
            Kind::RtPrograms => programs::run(plan, run),
            _ => runtimes::run(plan, run),
        },
        Plan::ClAvailability(plan) => availability::run(plan, run),
        Plan::ClOrder(plan) => order::run(plan, run),
        Plan::ClLatency(plan) => latency::run(plan, run),
        #[cfg(target_os = "linux")]
        Plan::ClLarge(plan) => crate::papers::clmalloc::large::run(plan, run),
        #[cfg(target_os = "linux")]
        Plan::ClStructures(plan) => crate::papers::clmalloc::structures::run(plan, run),
        #[cfg(not(target_os = "linux"))]
        Plan::ClLarge(_) | Plan::ClStructures(_) => Err(StudyError::Machine {
            study: plan.about().study.clone(),
            what: "cmt_malloc is made for Linux only".to_owned(),
        }),
    }?;
    results::check_pair(&outcome.result, outcome.host.as_ref())?;
    Ok(outcome)
}

struct Ready {
    head: crate::study::plan::Head,
    plan: Plan,
}

/// Old studies as new ones.
pub fn ready()
-> Result<Vec<Box<dyn crate::study::registry::ReadyStudy>>, crate::study::plan::PlanError> {
    BUILT_IN.iter().map(|(name, text)| parse(name, text)).collect()
}

/// An old plan.
pub fn parse(
    name: &str,
    text: &str,
) -> Result<Box<dyn crate::study::registry::ReadyStudy>, crate::study::plan::PlanError> {
    let plan = Plan::parse(name, text)?;
    let about = plan.about();
    let head = crate::study::plan::Head {
        study: about.study.clone(),
        kind: format!("{:?}", about.kind),
        title: about.title.clone(),
        seed: about.seed,
        purpose: about.purpose.clone(),
    };
    Ok(Box::new(Ready { head, plan }))
}

impl crate::study::registry::ReadyStudy for Ready {
    fn about(&self) -> &crate::study::plan::Head {
        &self.head
    }
    fn about_mut(&mut self) -> &mut crate::study::plan::Head {
        &mut self.head
    }
    fn paper(&self) -> &'static crate::study::paper::Paper {
        &crate::papers::page_buddy::PAPER
    }
    fn uses(&self) -> crate::study::registry::Uses {
        let kind = self.plan.about().kind;
        crate::study::registry::Uses {
            memory: kind.uses_memory(),
            accesses: kind.uses_accesses(),
            machine: kind.measures_machine(),
        }
    }
    fn statements(&self, _: &Run<'_>) -> Vec<(String, Option<String>)> {
        Vec::new()
    }
    fn run(&self, with: &Run<'_>) -> Result<Outcome, StudyError> {
        let mut plan = self.plan.clone();
        plan.about_mut().seed = self.head.seed;
        run(&plan, with)
    }
    fn plan(&self) -> &dyn std::any::Any {
        &self.plan
    }
}

/// Jobs of old studies.
pub fn child(kind: &str, job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let print = |answer: String| println!("{answer}");
    match kind {
        "measure-memory" => print(crate::host::memory::child(job)?),
        "count-heap" => crate::papers::real_time::run::count_child(job)?,
        "measure-requests" => print(crate::papers::clmalloc::latency::child(job)?),
        "count-allocation" => {
            let job: (String, usize, Option<std::path::PathBuf>, bool) = serde_json::from_str(job)?;
            let unknown = if job.3 {
                swath_trace::machine::snapshot::UnknownFrames::Free
            } else {
                swath_trace::machine::snapshot::UnknownFrames::Used
            };
            let machine = job
                .2
                .map(|file| crate::source::real::Machine::load(Some(&file), unknown))
                .transpose()?;
            allocation::count_child(&job.0, job.1, machine.as_ref())?;
        }
        _ => return Err("no such kind".into()),
    }
    Ok(())
}
