//! The same requests in different orders (Zhang, Lu and Zhang, section 3.2, Fig. 4): which are
//! served, and how much memory moves until the others are.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::Order;
use swath_frame::segment::{Segment, SegmentAllocator, SegmentRequest, Window, allocate_by_moving};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES, Mib, equal_areas};
use crate::papers::clmalloc::segments::Candidate;
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Metrics, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};

/// Requests in different orders.
pub struct RequestOrder;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderPlan {
    /// Name, title, seed.
    pub about: Head,
    /// The machine.
    pub machine: AreasPlan,
    /// The orders; all have the same requests.
    pub orders: Vec<OrderRow>,
}

/// One order of requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRow {
    /// Its name in figures.
    pub name: String,
    /// MiB of each request, in order.
    pub requests_mib: Vec<Mib>,
}

impl OrderRow {
    fn sizes(&self) -> Vec<u64> {
        self.requests_mib.iter().map(|size| size.get()).collect()
    }
}

crate::plan!(OrderPlan, check);

fn check(plan: &OrderPlan) -> Result<(), Refused> {
    plan.machine.check("machine")?;
    let orders = &plan.orders;
    require((1..=8).contains(&orders.len()), "orders", || "not 1 to 8".into())?;
    let sorted = |row: &OrderRow| {
        let mut sizes = row.sizes();
        sizes.sort_unstable();
        sizes
    };
    for (at, row) in orders.iter().enumerate() {
        let key = &format!("orders.{at}.requests_mib");
        let count = row.requests_mib.len();
        require((1..=8).contains(&count), key, || "not 1 to 8 requests".into())?;
        require(sorted(row) == sorted(&orders[0]), key, || "not the same requests".into())?;
        let twice = orders[..at].iter().any(|other| other.name == row.name);
        require(!twice, &format!("orders.{at}.name"), || format!("{:?} stands twice", row.name))?;
    }
    Ok(())
}

/// The measurements; nothing in them is random.
pub struct OrderFound {
    /// By order of the plan and allocator.
    named: Grid,
    /// By order of all that there are and allocator.
    all: Grid,
}

const ORDER: &str = "order";
const ALLOCATOR: &str = "allocator";

const FIGURE: &str = "Fig. 4";
const MOVED: &str = "Migration";
const BY_MOVING: &str = "Served with migration";
const ALL_ORDERS: &str = "All orders";

/// The allocators of this study.
const COMPARED: [Candidate; 3] =
    [Candidate::Baseline, Candidate::GlobalBitmap, Candidate::PreAllocated];

impl Study for RequestOrder {
    const KIND: &'static str = "cl-order";
    type Plan = OrderPlan;
    type Found = OrderFound;

    fn seeds(_: &OrderPlan, _: bool) -> u64 {
        0
    }

    fn needs(plan: &OrderPlan, _: &Run<'_>) -> Needs {
        let requests = plan.orders[0].requests_mib.len() as u64;
        let orders: u64 = (1..=requests).product();
        Needs::small()
            .once("orders.0.requests_mib", bytes(&[4096, orders]))
            .each("machine.areas_mib", bytes(&[2, MIB_FRAMES, plan.machine.total_mib()]))
    }

    fn measure(plan: &OrderPlan, run: &Run<'_>) -> Result<OrderFound, StudyError> {
        let named = plan.orders.iter().map(|row| (row.name.clone(), row.sizes())).collect();
        let all = orders_of(&plan.orders[0].sizes());
        let all = all.into_iter().map(|sizes| (title(&sizes), sizes)).collect();
        Ok(OrderFound { named: grid(plan, run, named)?, all: grid(plan, run, all)? })
    }

    fn claims(plan: &OrderPlan, _: &Run<'_>) -> Vec<Statement<OrderFound>> {
        claims(&conditions(plan))
    }

    fn show(plan: &OrderPlan, _: &Run<'_>, found: &OrderFound) -> Shown {
        let figures = figures(plan, found);
        Shown { finding: String::new(), figures, notes: notes(plan), host: None }
    }
}

/// Sizes as a name: "8, 24, 8, 24".
fn title(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// Every allocator on named orders.
fn grid(
    plan: &OrderPlan,
    run: &Run<'_>,
    orders: Vec<(String, Vec<u64>)>,
) -> Result<Grid, StudyError> {
    let points: Vec<(&(String, Vec<u64>), Candidate)> =
        orders.iter().flat_map(|order| COMPARED.map(|candidate| (order, candidate))).collect();
    run.grid(
        &plan.about,
        &[ORDER, ALLOCATOR],
        0,
        &points,
        |((name, _), candidate)| vec![name.as_str().into(), candidate.name().into()],
        |((_, sizes), candidate), _| {
            let failed = |what| StudyError::Machine { study: plan.about.study.clone(), what };
            measure(&plan.machine, *candidate, sizes).map_err(failed)
        },
    )
}

/// Requests served without migration and with it, and MiB that it moves.
fn measure(
    machine: &AreasPlan,
    candidate: Candidate,
    sizes_mib: &[u64],
) -> Result<Metrics, String> {
    let with = |moving: bool| {
        candidate.with(machine, Order::BASE, |allocator| serve(allocator, sizes_mib, moving))
    };
    let ((served, _), (served_by_moving, moved)) = (with(false)?, with(true)?);
    Ok(metrics([
        ("served", served as f64),
        ("served_by_moving", served_by_moving as f64),
        ("moved_mib", moved as f64 / MIB_FRAMES as f64),
    ]))
}

/// Requests served one after the other, and frames that were moved for them.
fn serve(allocator: &mut dyn SegmentAllocator, sizes_mib: &[u64], moving: bool) -> (u64, u64) {
    let (mut live, mut moved): (Vec<Segment>, u64) = (Vec::new(), 0);
    for mib in sizes_mib {
        let frames = mib * MIB_FRAMES;
        let segment = if moving {
            let mut places = vec![Segment::default(); live.len()];
            let by = &mut |_: Segment, _: Segment| {};
            let found =
                allocate_by_moving(allocator, frames, Window::Areas, &mut live, &mut places, by);
            found.ok().map(|found| {
                moved += found.frames;
                found.segment
            })
        } else {
            allocator.allocate(&SegmentRequest::new(frames)).ok()
        };
        live.extend(segment);
    }
    (live.len() as u64, moved)
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

fn figures(plan: &OrderPlan, found: &OrderFound) -> Vec<Drawn> {
    let bars = FigureKind::Bars;
    let requests = plan.orders[0].requests_mib.len();
    let by_order = |figure: Figure, y: &str, metric: &str| {
        let series = |candidate: Candidate| {
            let of = |cell: &CellView<'_>| cell.get(metric);
            let points = found.named.points(ORDER, |all| all.is(ALLOCATOR, candidate.name()), of);
            Series::new(&figure.id, "order", y, candidate.name(), points)
        };
        let series = COMPARED.into_iter().map(series).collect();
        Drawn { figure, series }
    };
    let count = |candidate: Candidate| {
        let points = (0..=requests).filter_map(|served| {
            let orders = found.all.evidence(|view| {
                let all = view.select().is(ALLOCATOR, candidate.name()).numbers("served")?;
                Ok(all.iter().filter(|&&one| one == served as f64).count() as f64)
            });
            Some(orders.ok()?.point(format!("{served} of {requests}").as_str()))
        });
        Series::new(ALL_ORDERS, "served", "orders", candidate.name(), points)
    };
    let orders = found.all.values(ORDER).len();
    let of = format!("of all {orders} orders of the {requests} requests");
    let moved = Figure::new(MOVED, "memory moved until all are served", bars, "", "MiB");
    let by_moving = Figure::new(BY_MOVING, "requests served with migration", bars, "", "requests");
    vec![
        by_order(
            Figure::new(FIGURE, "requests served", bars, "", "requests"),
            "requests",
            "served",
        ),
        by_order(
            moved.with_caption(
                "Segments move whole, out of neighbouring areas that together are long enough, where \
                 least has to move and each has a place elsewhere. Nothing where all are served \
                 at once.",
            ),
            "moved_mib",
            "moved_mib",
        ),
        by_order(by_moving, "requests", "served_by_moving"),
        Drawn {
            figure: Figure::new(ALL_ORDERS, &of, bars, "requests served", "orders"),
            series: COMPARED.into_iter().map(count).collect(),
        },
    ]
}

fn notes(plan: &OrderPlan) -> Vec<String> {
    let orders = plan.orders.iter().map(|row| format!("{}: {:?} MiB", row.name, row.sizes()));
    vec![format!(
        "{} areas. Fig. 4 is a drawing without numbers, of four requests; the sizes here are the \
         plan's: {}.",
        plan.machine.areas_mib.len(),
        orders.collect::<Vec<_>>().join("; "),
    )]
}

const A: &str = "4(a)";
const B: &str = "4(b)";

/// The reading of Fig. 4, which has no numbers: areas of 16 MiB, each of which has room for a
/// small request or for a part of a large one.
fn conditions(plan: &OrderPlan) -> Conditions {
    let conditions = Conditions::new().same("areas", equal_areas(4, 16), plan.machine.sizes());
    let readings = [(A, [24, 24, 4, 4]), (B, [4, 24, 4, 24])];
    readings.into_iter().fold(conditions, |conditions, (name, paper)| {
        match plan.orders.iter().find(|row| row.name == name) {
            Some(row) => {
                let key = format!("MiB of the requests of {name}");
                conditions.same(&key, title(&paper), title(&row.sizes()))
            }
            None => conditions,
        }
    })
}

/// The statements on Fig. 4. They are on numbers of requests, which are exact.
fn claims(conditions: &Conditions) -> Vec<Statement<OrderFound>> {
    const REQUESTS: f64 = 4.0;
    let baseline = |order: &'static str, metric: &'static str| {
        move |found: &OrderFound| {
            found.named.evidence(|view| {
                let cell = view.select().is(ORDER, order);
                cell.is(ALLOCATOR, Candidate::Baseline.name()).one(metric)
            })
        }
    };
    let all = "4(a), Baseline: all requests are served";
    let not_all = "4(b), Baseline: not all are served without migration; requests served";
    let moved =
        "4(b), Baseline: memory migration; MiB that are moved until all are served, more than none";
    let any = "the global bitmap answers more requests than the baseline: served in every order";
    let claims = vec![
        Statement::exactly(FIGURE, all, REQUESTS).measured(baseline(A, "served")),
        Statement::at_most(FIGURE, not_all, REQUESTS - 1.0, 0.0).measured(baseline(B, "served")),
        Statement::at_least(FIGURE, moved, 1.0, 0.0)
            .fitted(
                "the small requests are 4 MiB: with 8 all memory is in use, and nothing can move",
            )
            .measured(|found: &OrderFound| {
                found.named.evidence(|view| {
                    let cell = || {
                        let cell = view.select().is(ORDER, B);
                        cell.is(ALLOCATOR, Candidate::Baseline.name())
                    };
                    // What moves in vain is no migration.
                    let all = cell().one("served_by_moving")? >= REQUESTS;
                    Ok(if all { cell().one("moved_mib")? } else { 0.0 })
                })
            }),
        Statement::exactly("Section 4.1", any, REQUESTS).measured(|found: &OrderFound| {
            found.all.evidence(|view| {
                view.select().is(ALLOCATOR, Candidate::GlobalBitmap.name()).min("served")
            })
        }),
    ];
    claims.into_iter().map(|statement| statement.under(conditions)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::areas::machine;

    #[test]
    fn all_orders_once() {
        assert_eq!(orders_of(&[1, 2, 3]).len(), 6);
        let orders = orders_of(&[24, 24, 8, 8]);
        assert_eq!(orders.len(), 6);
        assert!(orders.contains(&vec![8, 24, 8, 24]));
    }

    #[test]
    fn what_is_in_the_way_is_moved() {
        let machine = machine("four", &[(0, 16), (32, 16), (64, 16), (96, 16)]);
        let of = |candidate, sizes: &[u64]| measure(&machine, candidate, sizes).unwrap();
        let expected = |served: f64, by_moving: f64, moved: f64| {
            metrics([("served", served), ("served_by_moving", by_moving), ("moved_mib", moved)])
        };
        // The two small ones leave the first area for the head of the third.
        assert_eq!(of(Candidate::Baseline, &[4, 24, 4, 24]), expected(3.0, 4.0, 8.0));
        // No area can be emptied for what needs two, of 24 MiB that are free.
        assert_eq!(of(Candidate::Baseline, &[8, 24, 8, 24]), expected(3.0, 3.0, 0.0));
        assert_eq!(of(Candidate::PreAllocated, &[8, 24, 8, 24]), expected(4.0, 4.0, 0.0));
    }
}
