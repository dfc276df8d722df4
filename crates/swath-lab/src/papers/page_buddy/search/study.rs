//! The study: it measures the readings, compares them, and measures those of the front again.

use crate::papers::page_buddy::savings::Scope;
use crate::papers::page_buddy::search::figures;
use crate::papers::page_buddy::search::found::{Reading, Searched};
use crate::papers::page_buddy::search::front::{Standing, exclusions};
use crate::papers::page_buddy::search::measure::measure;
use crate::papers::page_buddy::search::plan::SearchPlan;
use crate::papers::page_buddy::setting::blocks_bytes;
use crate::papers::page_buddy::timed::SystemMachine;
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::study::claim::Statement;
use crate::study::kind::{Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Verdict;

/// Readings of Table 3 searched jointly.
pub struct Search;

impl Study for Search {
    const KIND: &'static str = "search";
    type Plan = SearchPlan;
    type Found = Searched;

    fn seeds(plan: &SearchPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &SearchPlan, run: &Run<'_>) -> Needs {
        let all: Vec<_> =
            WorkloadName::ALL.iter().map(|name| name.build(&Shapes::default())).collect();
        let transactions = all.iter().map(|one| one.transactions_max());
        let once = transactions.clone().fold(0, u64::saturating_add);
        let pages = all.iter().map(|one| one.pages()).max().unwrap_or(0);
        let (per, share) = (plan.free_per_requested, plan.free_share);
        let memory = blocks_bytes(pages, &plan.block_frames, per, share);
        let repeats = plan.repeats.of(run.quick).get() + plan.repeats_of_front.of(run.quick).get();
        let readings = plan.readings_max.of(run.quick).get();
        let combinations = u64::try_from(plan.search.combinations()).unwrap_or(u64::MAX);
        // Cells of all workloads, sizes and designs.
        let cells = bytes(&[9, 9, 4]);
        Needs::small()
            .once("workloads", bytes(&[48, once]))
            .once("search", bytes(&[128, combinations]))
            .once("readings_max", bytes(&[128, readings, cells]))
            .once("repeats", bytes(&[32, repeats, readings.min(combinations), cells]))
            .each("free_per_requested", memory)
            .each("machine.tlb_entries", bytes(&[512, plan.machine.tlb_entries.get()]))
    }

    fn measure(plan: &SearchPlan, run: &Run<'_>) -> Result<Searched, StudyError> {
        let max = plan.readings_max.of(run.quick).get();
        let (machines, of) = plan.search.readings(plan.system, max, plan.about.seed);
        let seeds = Self::seeds(plan, run.quick);
        let (claims, runs) = measure(plan, run, &machines, &plan.scope(), seeds)?;
        let reading = |(machine, claims)| Reading::new(&plan.system, machine, claims);
        let readings: Vec<Reading> = machines.iter().zip(claims).map(reading).collect();
        let front = Searched::fronts(&readings);
        let seeds = plan.repeats_of_front.of(run.quick).get();
        let mut again = Vec::new();
        if seeds > 0 {
            let chosen: Vec<SystemMachine> = front.iter().map(|&at| machines[at]).collect();
            let (claims, _) = measure(plan, run, &chosen, &Scope::paper(), seeds)?;
            again = front.iter().copied().zip(claims).collect();
        }
        Ok(Searched { readings, of, runs, front, again })
    }

    fn claims(_: &SearchPlan, _: &Run<'_>) -> Vec<Statement<Searched>> {
        Vec::new()
    }

    fn fitted(_: &SearchPlan) -> Vec<String> {
        let all = "every parameter in which a reading differs from the plan's own: it was chosen by \
                   its results, and no score of a search counts as the paper's claims held";
        vec![all.to_owned()]
    }

    fn show(plan: &SearchPlan, run: &Run<'_>, found: &Searched) -> Shown {
        let seeds = Self::seeds(plan, run.quick);
        let notes = vec![
            scope_note(plan, seeds),
            "A score is the number of the ten claims of pbs-system whose number agrees with the \
             paper's by that study's tolerances. Beside it stands the number of parameters in \
             which the reading differs from the plan's own: so many were chosen after looking, and \
             none of these claims counts as held."
                .to_owned(),
            "The front has, for each number of parameters, the reading with the most claims met, if \
             none with fewer parameters meets as many; of equals the one whose figures lie nearest \
             to those that agree. It is taken over all readings, and over those with the 16 \
             transactions in flight of Table 3."
                .to_owned(),
            "Two claims exclude each other here if readings meet the one and readings meet the \
             other, but none of those searched meets both. It is no proof beyond them."
                .to_owned(),
            plan.dram.describe(),
        ];
        Shown { finding: finding(plan, found), figures: figures::all(found), notes, host: None }
    }
}

/// The cells on which readings are compared, and where they are fewer than the paper's.
fn scope_note(plan: &SearchPlan, seeds: u64) -> String {
    let names: Vec<&str> = plan.workloads.iter().map(|name| name.title()).collect();
    let words = |sizes: &[u64]| {
        let words: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        words.join(", ")
    };
    let Scope { linear, small, large, .. } = plan.scope();
    let s = if seeds == 1 { "" } else { "s" };
    format!(
        "Readings are compared on {}, with {seeds} seed{s}; category I at block sizes {}, category \
         II at 1, {} and {}. The paper has nine workloads and every power of two up to 256: a \
         claim that is met here may fail there.",
        names.join(", "),
        words(&linear),
        words(&small),
        words(&large)
    )
}

/// The finding in words.
fn finding(plan: &SearchPlan, found: &Searched) -> String {
    let Searched { readings, of, runs, .. } = found;
    let sample = match readings.len() as u64 == *of {
        true => "all there are".to_owned(),
        false => {
            format!("of {of}, those with the fewest parameters first, seed {}", plan.about.seed)
        }
    };
    let mut text = format!("{} readings ({sample}) took {runs} different runs.", readings.len());
    if let Some(best) = found.best() {
        let Standing { met, chosen, .. } = best.standing();
        let parameters = if chosen == 1 { "parameter" } else { "parameters" };
        text += &format!(
            " With Table 3's 16 transactions in flight the best meets {met} of {} claims, with \
             {chosen} {parameters} chosen after looking: {}.",
            best.claims.len(),
            best.name()
        );
    }
    let beyond = found.front.iter().map(|&at| &readings[at]).filter(|one| !one.is_papers);
    if let Some(other) = beyond.max_by_key(|one| one.standing().met) {
        let Standing { met, chosen, .. } = other.standing();
        text += &format!(" With others {met} are met, by {chosen} parameters: {}.", other.name());
    }
    for (at, claims) in &found.again {
        let hold = claims.iter().filter(|claim| claim.verdict() == Verdict::Holds).count();
        let undecided = claims.iter().filter(|claim| claim.verdict() == Verdict::Undecided).count();
        text += &format!(
            " On all workloads and sizes {hold} hold and {undecided} are undecided under: {}.",
            readings[*at].name()
        );
    }
    let (never, pairs) = exclusions(&found.together());
    let name = |at: &usize| figures::SHORT[*at];
    if !never.is_empty() {
        let never: Vec<&str> = never.iter().map(name).collect();
        text += &format!(" No reading searched meets: {}.", never.join("; "));
    }
    let pairs = pairs.iter().map(|(one, two)| format!("{} and {}", name(one), name(two)));
    let pairs: Vec<String> = pairs.collect();
    text += &match pairs.is_empty() {
        true => " No two claims that are met at all exclude each other.".to_owned(),
        false => format!(
            " No reading of the {} searched meets both of: {}.",
            readings.len(),
            pairs.join("; ")
        ),
    };
    text
}
