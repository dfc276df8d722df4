//! The findings of a search: each reading's claims and standing, and how they compare.

use crate::papers::page_buddy::search::front::{Standing, front, together};
use crate::papers::page_buddy::search::space::{differences, name};
use crate::papers::page_buddy::timed::SystemMachine;
use crate::study::claim::Claim;

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
    pub(crate) fn new(base: &SystemMachine, machine: &SystemMachine, claims: Vec<Claim>) -> Self {
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
    pub(crate) fn fronts(readings: &[Reading]) -> Vec<usize> {
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
    pub(crate) fn best(&self) -> Option<&Reading> {
        let papers = self.front.iter().map(|&at| &self.readings[at]).filter(|one| one.is_papers);
        papers.max_by_key(|one| one.standing().met)
    }
}
