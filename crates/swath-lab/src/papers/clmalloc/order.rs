//! The same requests in different orders (Fig. 4 of 003_f9a9d8482224280c.txt):
//! which are served, and how much memory would have to move for the others.

use std::collections::BTreeSet;

use swath_arch::Order;
use swath_frame::segment::{SegmentAllocator, SegmentRequest};

use crate::papers::clmalloc::plan::{AreasPlan, MIB_FRAMES, OrderPlan};
use crate::papers::clmalloc::segments::Candidate;
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

const FIGURE: &str = "Fig. 4";
const MOVED: &str = "Migration";
const ALL_ORDERS: &str = "All orders";

/// The allocators of this study.
const COMPARED: [Candidate; 3] =
    [Candidate::Baseline, Candidate::GlobalBitmap, Candidate::PreAllocated];

/// What became of requests in one order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Found {
    served: u64,
    /// Frames that would have to move for the first request that was not served.
    moved_frames: u64,
}

/// The fewest frames in use in neighbouring areas that have `count` frames
/// together: what migration would have to move out of them.
fn to_move(allocator: &dyn SegmentAllocator, count: u64) -> u64 {
    let space = allocator.space();
    let areas: Vec<_> = space.areas().iter().map(|area| area.segment()).collect();
    let mut used: Vec<u64> = areas.iter().map(|area| area.count).collect();
    allocator.for_each_free(&mut |free| {
        for (area, used) in areas.iter().zip(&mut used) {
            let end = (area.start + area.count).min(free.start + free.count);
            *used -= end.saturating_sub(area.start.max(free.start));
        }
    });
    let mut least = u64::MAX;
    for first in 0..areas.len() {
        let (mut len, mut moved) = (0, 0);
        for (area, used) in areas[first..].iter().zip(&used[first..]) {
            (len, moved) = (len + area.count, moved + used);
            if len >= count {
                least = least.min(moved);
                break;
            }
        }
    }
    if least == u64::MAX { 0 } else { least }
}

fn measure(machine: &AreasPlan, candidate: Candidate, sizes_mib: &[u64]) -> Result<Found, String> {
    candidate.with(machine, Order::BASE, |allocator| {
        let mut found = Found::default();
        for mib in sizes_mib {
            let frames = mib * MIB_FRAMES;
            if allocator.allocate(&SegmentRequest::new(frames)).is_ok() {
                found.served += 1;
            } else if found.moved_frames == 0 {
                found.moved_frames = to_move(allocator, frames);
            }
        }
        found
    })
}

/// All different orders of some sizes, ascending.
fn orders_of(sizes: &[u64]) -> BTreeSet<Vec<u64>> {
    if sizes.is_empty() {
        return BTreeSet::from([Vec::new()]);
    }
    let rest = |at: usize| [&sizes[..at], &sizes[at + 1..]].concat();
    (0..sizes.len())
        .flat_map(|at| {
            orders_of(&rest(at)).into_iter().map(move |tail| [vec![sizes[at]], tail].concat())
        })
        .collect()
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &OrderPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let sizes = &plan.orders[0].requests_mib;
    let all = orders_of(sizes);
    let measured = run.points(about, &COMPARED, |&candidate| {
        let one = |sizes: &[u64]| measure(&plan.machine, candidate, sizes);
        let named: Result<Vec<Found>, _> =
            plan.orders.iter().map(|row| one(&row.requests_mib)).collect();
        let any: Result<Vec<Found>, _> = all.iter().map(|sizes| one(sizes)).collect();
        Ok((named.map_err(failed)?, any.map_err(failed)?))
    })?;
    let requests = sizes.len() as u64;
    let mut result = StudyResult {
        figures: figures(requests, all.len()),
        notes: notes(plan),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for (candidate, (named, any)) in COMPARED.into_iter().zip(&measured) {
        let rows = || plan.orders.iter().zip(named);
        let name = candidate.name();
        let served = rows().map(|(row, found)| (row.name.as_str(), found.served as f64));
        result.series.push(Series::new(FIGURE, "order", "requests", name, served));
        let mib = |found: &Found| found.moved_frames as f64 / MIB_FRAMES as f64;
        let moved = rows().map(|(row, found)| (row.name.as_str(), mib(found)));
        result.series.push(Series::new(MOVED, "order", "moved_mib", name, moved));
        let counts = (0..=requests).map(|served| {
            let orders = any.iter().filter(|found| found.served == served).count();
            (format!("{served} of {requests}"), orders as f64)
        });
        result.series.push(Series::new(ALL_ORDERS, "served", "orders", name, counts));
    }
    if plan.claims {
        result.claims = claims(requests, &measured[0].0, &measured[2].0);
    }
    Ok(Outcome { result, host: None })
}

fn figures(requests: u64, orders: usize) -> Vec<Figure> {
    let bars = FigureKind::Bars;
    let of = format!("of all {orders} orders of the {requests} requests");
    vec![
        Figure::new(FIGURE, "requests served", bars, "", "requests"),
        Figure::new(MOVED, "memory to move for the first request not served", bars, "", "MiB")
            .with_caption(
                "The least that lies in neighbouring areas which together would be long enough. \
                 Nothing where all are served.",
            ),
        Figure::new(ALL_ORDERS, &of, bars, "requests served", "orders"),
    ]
}

fn notes(plan: &OrderPlan) -> Vec<String> {
    vec![format!(
        "{} areas. Fig. 4 is a drawing without numbers, of four requests; the sizes here are the \
         plan's: {}.",
        plan.machine.areas_mib.len(),
        plan.orders
            .iter()
            .map(|row| format!("{}: {:?} MiB", row.name, row.requests_mib))
            .collect::<Vec<_>>()
            .join("; "),
    )]
}

fn claims(requests: u64, baseline: &[Found], ours: &[Found]) -> Vec<Claim> {
    let [a, b, ..] = baseline else { return Vec::new() };
    let count = |found: &Found| found.served as f64;
    let requests = requests as f64;
    let mut claims = vec![
        Claim::exactly(FIGURE, "4(a), Baseline: all requests are served", requests, count(a)),
        Claim::at_most(
            FIGURE,
            "4(b), Baseline: not all are served without migration; requests served",
            requests - 1.0,
            count(b),
            0.0,
        ),
        Claim::at_least(
            FIGURE,
            "4(b), Baseline: memory migration; MiB that have to move, more than none",
            1.0,
            b.moved_frames as f64 / MIB_FRAMES as f64,
            0.0,
        ),
    ];
    let least = ours.iter().map(count).fold(requests, f64::min);
    let says = "the global bitmap answers more requests than the baseline: served in every order";
    claims.push(Claim::exactly("Section 4.1", says, requests, least));
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> AreasPlan {
        AreasPlan { name: "four".into(), areas_mib: vec![(0, 16), (32, 16), (64, 16), (96, 16)] }
    }

    #[test]
    fn all_orders_once() {
        assert_eq!(orders_of(&[1, 2, 3]).len(), 6);
        let orders = orders_of(&[24, 24, 8, 8]);
        assert_eq!(orders.len(), 6);
        assert!(orders.contains(&vec![8, 24, 8, 24]));
    }

    #[test]
    fn the_least_is_moved() {
        // A small one in the first area, 24 at the end, the second small one in
        // the first area: the last 24 need the third area, whose tail is taken.
        let found = measure(&machine(), Candidate::Baseline, &[8, 24, 8, 24]).unwrap();
        assert_eq!(found.served, 3);
        assert_eq!(found.moved_frames, 8 * MIB_FRAMES);
        let found = measure(&machine(), Candidate::PreAllocated, &[8, 24, 8, 24]).unwrap();
        assert_eq!(found, Found { served: 4, moved_frames: 0 });
    }
}
