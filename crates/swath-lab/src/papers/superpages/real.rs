//! Superpages on the machine that runs the study, beside those of the simulation.

use serde::{Deserialize, Serialize};

use crate::host::memory::{
    MEMORY, MemoryError, MemoryKind, MemoryPlan, RELEASED_MIB, RealMemory, measure as measure_host,
};
use crate::papers::superpages::plan::RealPlan;
use crate::study::child::child_command;
use crate::study::grid::{CellView, Value, View};
use crate::study::kind::{Drawn, HostShown};
use crate::study::results::{Figure, FigureKind, Point, Series};

/// The measurements of this machine.
#[derive(Serialize, Deserialize)]
pub(crate) struct Real(RealMemory);

/// Measures this machine in processes of its own.
///
/// # Errors
/// [`MemoryError`]: this is no Linux, memory is too small, a process failed.
pub(crate) fn measure(plan: &RealPlan, quick: bool, seed: u64) -> Result<Real, MemoryError> {
    let release_bytes = plan.release_mib.of(quick).iter().map(|mib| mib.get() << 20).collect();
    let memory_plan = MemoryPlan {
        table_bytes: plan.table_mib.of(quick).get() << 20,
        updates: plan.updates.of(quick).get(),
        seed,
        release_bytes,
        repeats: plan.repeats.small(),
    };
    let child = |request: &str| child_command("superpages", request);
    measure_host(&child, &memory_plan).map(Real)
}

const LARGE: [MemoryKind; 2] = [MemoryKind::Transparent, MemoryKind::HugeTlb];

impl Real {
    /// Figures beside the ratios of the simulation, where it has them.
    pub(crate) fn show(
        &self,
        simulated: &str,
        gups_ratio: Option<f64>,
        release_ratio: Option<f64>,
    ) -> HostShown {
        let mut notes = vec![
            "Each kind of memory is measured in processes of its own, by turns; the figures show \
             means over the processes and 95% intervals. The sums of all tables agree."
                .to_owned(),
        ];
        notes.extend(self.0.lacking());
        let figures =
            vec![self.updates(simulated, gups_ratio), self.ratios(release_ratio), self.times()];
        HostShown { machine: self.0.host.describe(), figures, notes }
    }

    fn updates(&self, simulated: &str, gups_ratio: Option<f64>) -> Drawn {
        let id = "GUPS, real";
        let label = "updates a second (4 KiB pages = 1)";
        let grid = self.0.updates();
        let bar = |kind: MemoryKind| {
            let rate = |view: &View<'_>| {
                let of = |kind: MemoryKind| view.select().is(MEMORY, kind.name()).one("gups");
                Ok(of(kind)? / of(MemoryKind::Base)?)
            };
            let point = grid.evidence(rate).ok().map(|rate| rate.point("this machine"));
            Series::new(id, "machine", "gups_ratio", kind.name(), point)
        };
        let mut series: Vec<Series> = LARGE.into_iter().map(bar).collect();
        let point = gups_ratio.map(|ratio| Point::named(simulated, ratio));
        series.push(Series::new(id, "machine", "gups_ratio", "simulated", point));
        let figure = Figure::new(id, "beside the simulation", FigureKind::Bars, MEMORY, label);
        Drawn { figure, series }
    }

    fn ratios(&self, release_ratio: Option<f64>) -> Drawn {
        let id = "Release, real";
        let label = "time of munmap (4 KiB pages = 1)";
        let (title, kind) = ("beside the simulation", FigureKind::LinesLog2);
        let figure = Figure::new(id, title, kind, X_LABEL, label).with_y_range(0.0, 1.0);
        let grid = self.0.releases();
        let lengths: Vec<Value> = grid.values(RELEASED_MIB).into_iter().cloned().collect();
        let line = |kind: MemoryKind| {
            let points = lengths.iter().filter_map(|mib| {
                let ratio = |view: &View<'_>| {
                    let cells = view.select().is(RELEASED_MIB, mib.clone());
                    let of =
                        |kind: MemoryKind| cells.clone().is(MEMORY, kind.name()).one("release_ns");
                    Ok(of(kind)? / of(MemoryKind::Base)?)
                };
                Some(grid.evidence(ratio).ok()?.point(mib.clone()))
            });
            Series::new(id, RELEASED_MIB, "release_ratio", kind.name(), points)
        };
        let mut series: Vec<Series> = LARGE.into_iter().map(line).collect();
        let flat = release_ratio.into_iter().flat_map(|ratio| {
            lengths.iter().filter_map(move |mib| Some(Point::at(mib.number()?, ratio)))
        });
        series.push(Series::new(id, RELEASED_MIB, "release_ratio", "simulated", flat));
        Drawn { figure, series }
    }

    fn times(&self) -> Drawn {
        let id = "Release time, real";
        let label = "time of munmap (ms)";
        let kind = FigureKind::LinesLog2;
        let grid = self.0.releases();
        let line = |kind: MemoryKind| {
            let milliseconds = |cell: &CellView<'_>| Ok(cell.get("release_ns")? / 1e6);
            let points = grid.points(RELEASED_MIB, |all| all.is(MEMORY, kind.name()), milliseconds);
            Series::new(id, RELEASED_MIB, "release_ms", kind.name(), points)
        };
        Drawn {
            figure: Figure::new(id, "of touched memory", kind, X_LABEL, label),
            series: MemoryKind::ALL.into_iter().map(line).collect(),
        }
    }
}

const X_LABEL: &str = "memory released (MiB)";
