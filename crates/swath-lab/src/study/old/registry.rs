//! The studies that come with the program, and which code runs which plan.

use crate::papers::clmalloc::{availability, latency, order};
use crate::papers::real_time::{footprint, programs, runtimes};
use crate::papers::superpages::talk;
use crate::study::old::plan::{Kind, Plan};
use crate::study::results;
use crate::study::run::{Outcome, Run, StudyError};

/// The plans that come with the program: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[
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
pub fn ready() -> Result<Vec<Box<dyn crate::study::kind::ReadyStudy>>, crate::study::plan::PlanError>
{
    BUILT_IN.iter().map(|(name, text)| parse(name, text)).collect()
}

/// An old plan.
pub fn parse(
    name: &str,
    text: &str,
) -> Result<Box<dyn crate::study::kind::ReadyStudy>, crate::study::plan::PlanError> {
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

impl crate::study::kind::ReadyStudy for Ready {
    fn about(&self) -> &crate::study::plan::Head {
        &self.head
    }
    fn about_mut(&mut self) -> &mut crate::study::plan::Head {
        &mut self.head
    }
    fn citation(&self) -> &'static crate::study::citation::Citation {
        &crate::papers::page_buddy::paper::PAPER.citation
    }
    fn uses(&self) -> crate::study::kind::Uses {
        let kind = self.plan.about().kind;
        crate::study::kind::Uses {
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
        _ => return Err("no such kind".into()),
    }
    Ok(())
}
