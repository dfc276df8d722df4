//! What superpages bring on the machine that runs the study, beside what they
//! bring in simulation.

use crate::host::memory::{HostFacts, MemoryError, MemoryKind, MemoryPlan, RealMemory, measure};
use crate::papers::superpages::plan::RealPlan;
use crate::study::results::{Figure, FigureKind, HostResult, Series};

/// Ratios of the simulation that have a counterpart here.
pub(crate) struct Simulated {
    /// The processor and its larger page.
    pub(crate) name: String,
    /// Updates a second, 4 KiB pages = 1.
    pub(crate) gups_ratio: f64,
    /// Time of unmapping memory that was touched, 4 KiB pages = 1.
    pub(crate) release_ratio: f64,
}

/// Measures this machine in processes of its own.
///
/// # Errors
/// [`MemoryError`]: this is no Linux, memory is too small, a process failed.
pub(crate) fn run(
    plan: &RealPlan,
    quick: bool,
    seed: u64,
    study: &str,
    simulated: &Simulated,
) -> Result<HostResult, MemoryError> {
    let share = if quick { 8 } else { 1 };
    let bytes = |mib: u64| (mib << 20) / share;
    let huge = 2 << 20;
    let mut release_bytes: Vec<u64> =
        plan.release_mib.iter().map(|&mib| bytes(mib).next_multiple_of(huge)).collect();
    release_bytes.dedup();
    let memory_plan = MemoryPlan {
        table_bytes: bytes(plan.table_mib).next_power_of_two().max(huge),
        updates: (plan.updates / share).max(1),
        seed,
        release_bytes,
        repeats: plan.repeats,
    };
    let program = std::env::current_exe()?;
    let measured = measure(&program, &["child", "measure-memory"], &memory_plan, &mut |_, _| {})?;
    Ok(figures(&measured, study, simulated))
}

fn figures(measured: &RealMemory, study: &str, simulated: &Simulated) -> HostResult {
    let mut figures = Vec::new();
    let mut series = Vec::new();
    let mut notes = vec![
        "Each kind of memory is measured in processes of its own, by turns; the figures show \
         medians. The sums of all tables agree."
            .to_owned(),
    ];
    let of = |kind: MemoryKind| {
        let found = measured.kinds.iter().find(|one| one.kind == kind);
        found.and_then(|one| one.outcome.as_ref().ok())
    };
    for one in &measured.kinds {
        if let Err(reason) = &one.outcome {
            notes.push(format!("Without {}: {reason}.", one.kind.name()));
        }
    }
    let gups = |kind: MemoryKind| of(kind).and_then(|kind| kind.gups.median());

    let id = "GUPS, real";
    let label = "updates a second (4 KiB pages = 1)";
    figures.push(Figure::new(id, "beside the simulation", FigureKind::Bars, "memory", label));
    let base = gups(MemoryKind::Base);
    for kind in [MemoryKind::Transparent, MemoryKind::HugeTlb] {
        if let (Some(base), Some(rate)) = (base, gups(kind)) {
            let points = [("this machine", rate / base)];
            series.push(Series::new(id, "machine", "gups_ratio", kind.name(), points));
        }
    }
    let points = [(simulated.name.as_str(), simulated.gups_ratio)];
    series.push(Series::new(id, "machine", "gups_ratio", "simulated", points));

    let id = "Release, real";
    let label = "time of munmap (4 KiB pages = 1)";
    let x_label = "memory released (MiB)";
    figures.push(
        Figure::new(id, "beside the simulation", FigureKind::LinesLog2, x_label, label)
            .with_y_range(0.0, 1.0),
    );
    let mib = |len_bytes: u64| len_bytes as f64 / f64::from(1 << 20);
    let (x, y) = ("released_mib", "release_ratio");
    if let Some(base) = of(MemoryKind::Base) {
        for kind in [MemoryKind::Transparent, MemoryKind::HugeTlb] {
            let Some(other) = of(kind) else { continue };
            let points = base.releases.iter().zip(&other.releases).filter_map(|(a, b)| {
                let ratio = b.release_ns.median()? / a.release_ns.median()?;
                Some((mib(a.len_bytes), ratio))
            });
            series.push(Series::new(id, x, y, kind.name(), points));
        }
        let points = base.releases.iter().map(|a| (mib(a.len_bytes), simulated.release_ratio));
        series.push(Series::new(id, x, y, "simulated", points));
    }

    let id = "Release time, real";
    let label = "time of munmap (ms)";
    figures.push(Figure::new(id, "of touched memory", FigureKind::LinesLog2, x_label, label));
    for kind in MemoryKind::ALL {
        let Some(found) = of(kind) else { continue };
        let points = found.releases.iter().filter_map(|release| {
            Some((mib(release.len_bytes), release.release_ns.median()? / 1e6))
        });
        series.push(Series::new(id, x, "release_ms", kind.name(), points));
    }
    HostResult {
        study: study.to_owned(),
        host: host(&measured.host),
        figures,
        series,
        claims: Vec::new(),
        notes,
    }
}

fn host(facts: &HostFacts) -> String {
    format!(
        "{}, {} processors, Linux {}, transparent huge pages: {}",
        facts.processor, facts.processors, facts.kernel_release, facts.transparent_enabled
    )
}
