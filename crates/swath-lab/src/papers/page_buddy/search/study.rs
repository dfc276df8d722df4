//! The study: it measures the readings, compares them, and measures those of the front again.

use crate::papers::page_buddy::savings::Scope;
use crate::papers::page_buddy::search::figures;
use crate::papers::page_buddy::search::front::{Standing, exclusions, front, together};
use crate::papers::page_buddy::search::measure::measure;
use crate::papers::page_buddy::search::plan::SearchPlan;
use crate::papers::page_buddy::search::space::{differences, name};
use crate::papers::page_buddy::setting::blocks_bytes;
use crate::papers::page_buddy::timed::SystemMachine;
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::study::claim::{Claim, Statement};
use crate::study::kind::{Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Verdict;

/// Readings of Table 3 searched jointly.
pub struct Search;

/// A reading with its ten claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The parameters in which it differs from the base, in words.
    pub differences: Vec<String>,
    /// True if it has as many transactions in flight as Table 3 states.
    pub is_papers: bool,
    /// The claims as the search measured them.
    pub claims: Vec<Claim>,
}

/// The findings of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Searched {
    /// The readings, the base first.
    pub readings: Vec<Reading>,
    /// Readings of the whole space.
    pub of: u64,
    /// Different runs that they took.
    pub runs: u64,
    /// The places of the readings of the front, and of that of Table 3's machine alone.
    pub front: Vec<usize>,
    /// Those measured again, with their claims.
    pub again: Vec<(usize, Vec<Claim>)>,
}

/// The transactions in flight that Table 3 states.
const IN_FLIGHT: u64 = 16;

/// Returns how far a claim's number lies from those that agree with the paper; nothing if it was not
/// measured.
fn distance(claim: &Claim) -> Option<f64> {
    let (least, most) = claim.tolerance().range(claim.paper())?;
    let measured = claim.measured()?;
    Some((least - measured).max(measured - most).max(0.0))
}

impl Reading {
    fn new(base: &SystemMachine, machine: &SystemMachine, claims: Vec<Claim>) -> Self {
        let is_papers = machine.outstanding_max.get() == IN_FLIGHT;
        Self { differences: differences(base, machine), is_papers, claims }
    }

    /// Its name: the parameters that were chosen.
    pub fn name(&self) -> String {
        name(&self.differences)
    }

    /// For each claim true if its number agrees with the paper's. The spread over seeds does not
    /// count.
    pub fn met(&self) -> Vec<bool> {
        self.claims.iter().map(|claim| distance(claim) == Some(0.0)).collect()
    }

    /// Its standing.
    pub fn standing(&self) -> Standing {
        let distances: Vec<f64> = self.claims.iter().filter_map(distance).collect();
        let mean = distances.iter().sum::<f64>() / distances.len().max(1) as f64;
        Standing {
            met: self.met().iter().map(|&met| u32::from(met)).sum(),
            chosen: u32::try_from(self.differences.len()).unwrap_or(u32::MAX),
            distance: mean,
        }
    }
}

impl Searched {
    /// The front over all readings, and that over those of Table 3's machine, by place.
    fn fronts(readings: &[Reading]) -> Vec<usize> {
        let of = |keep: &dyn Fn(&Reading) -> bool| -> Vec<usize> {
            let kept: Vec<usize> = (0..readings.len()).filter(|&at| keep(&readings[at])).collect();
            let standings: Vec<Standing> = kept.iter().map(|&at| readings[at].standing()).collect();
            front(&standings).into_iter().map(|at| kept[at]).collect()
        };
        let mut all = of(&|_| true);
        all.extend(of(&|reading| reading.is_papers));
        all.sort_by_key(|&at| (readings[at].standing().chosen, at));
        all.dedup();
        all
    }

    /// For each pair of claims the number of readings that meet both.
    pub fn together(&self) -> Vec<Vec<u64>> {
        let met: Vec<Vec<bool>> = self.readings.iter().map(Reading::met).collect();
        together(&met, met.first().map_or(0, Vec::len))
    }

    /// The reading with the most claims met on Table 3's machine; of equals the one with the
    /// fewest parameters.
    fn best(&self) -> Option<&Reading> {
        let papers = self.front.iter().map(|&at| &self.readings[at]).filter(|one| one.is_papers);
        papers.max_by_key(|one| one.standing().met)
    }
}

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
        text += &format!(
            " With Table 3's 16 transactions in flight the best meets {met} of {} claims, with \
             {chosen} parameters chosen after looking: {}.",
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
