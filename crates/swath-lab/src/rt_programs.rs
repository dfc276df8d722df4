//! The longest allocation and release and the most pages mapped, of the synthetic workload and of
//! recorded programs, on both systems (Table I of 004_0cb2f33903da1556.txt).

use crate::plan_rt::RtPlan;
use crate::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::rt_program::Actions;
use crate::rt_run::{self, Found};
use crate::rt_system::SystemName;
use crate::rt_workload::Action;
use crate::study::{self, Outcome, Run, StudyError};

const ALLOCATION: &str = "Table I, allocation";
const RELEASE: &str = "Table I, de-allocation";
const RELEASE_REGIONS: &str = "Table I, de-allocation with regions";
const FOOTPRINT: &str = "Table I, memory footprint";

/// A row of Table I: longest de-allocation in microseconds and most pages, with the RTMMU and with
/// the conventional MMU.
struct Row {
    releases: [f64; 2],
    pages: [f64; 2],
}

/// A shipped recording, and the row of Table I of a program of its kind.
struct Program {
    name: &'static str,
    kind: &'static str,
    recording: &'static [u8],
    row: Row,
}

const SYNTHETIC: Row = Row { releases: [945.0, 4_145_462.0], pages: [2_971.0, 180_132.0] };

const PROGRAMS: &[Program] = &[
    Program {
        name: "transcode (flac)",
        kind: "avconv",
        recording: include_bytes!("../../../data/transcode.swheap"),
        row: Row { releases: [547.0, 2_263.0], pages: [621.0, 781.0] },
    },
    Program {
        name: "mc",
        kind: "mc",
        recording: include_bytes!("../../../data/mc.swheap"),
        row: Row { releases: [747.0, 2_899_292.0], pages: [206.0, 96_035.0] },
    },
    Program {
        name: "minisat",
        kind: "sharpSAT",
        recording: include_bytes!("../../../data/minisat.swheap"),
        row: Row { releases: [702.0, 73_454.0], pages: [4_522.0, 4_718.0] },
    },
    Program {
        name: "picosat",
        kind: "antom",
        recording: include_bytes!("../../../data/picosat.swheap"),
        row: Row { releases: [668.0, 37_854.0], pages: [2_942.0, 3_176.0] },
    },
];

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &RtPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let mut points = vec![(None, SystemName::Regions), (None, SystemName::Conventional)];
    for program in PROGRAMS {
        points.extend(SystemName::ALL.map(|system| (Some(program), system)));
    }
    let found = run.points(about, &points, |&(program, system)| {
        let found = match program {
            None => rt_run::run(system, plan.size, plan.workload(run.quick).actions()),
            Some(program) => {
                let actions = actions(program).map_err(failed)?;
                rt_run::run(system, plan.size, actions.into_iter())
            }
        };
        found.map_err(|error| failed(error.to_string()))
    })?;
    let mut result = StudyResult {
        figures: figures(),
        notes: notes(),
        ..study::result(about, plan, run, about.purpose.clone())
    };
    let names: Vec<&str> =
        ["synthetic"].into_iter().chain(PROGRAMS.iter().map(|program| program.name)).collect();
    for (s, system) in SystemName::ALL.into_iter().enumerate() {
        let of = |figure, y, value: &dyn Fn(&Found) -> f64| {
            let found = found.iter().skip(s).step_by(SystemName::ALL.len());
            let points = names.iter().copied().zip(found.map(value));
            Series::new(figure, "program", y, system.name(), points)
        };
        let words =
            |steps: &[rt_run::Step]| steps.iter().map(|step| step.words).max().unwrap_or(0) as f64;
        let log = |value: f64| value.max(1.0).log10();
        result.series.extend([
            of(ALLOCATION, "words", &|found| words(&found.allocations)),
            of(RELEASE, "log10_words", &|found| log(words(&found.releases))),
            of(FOOTPRINT, "log10_pages", &|found| log(found.mapped_pages_max as f64)),
        ]);
        if system == SystemName::Regions {
            result.series.push(of(RELEASE_REGIONS, "words", &|found| words(&found.releases)));
        }
    }
    if plan.claims {
        let rows = [("the synthetic workload", "synthetic", &SYNTHETIC)].into_iter();
        let rows = rows.chain(PROGRAMS.iter().map(|p| (p.kind, p.name, &p.row)));
        for ((kind, name, row), pair) in rows.zip(found.chunks(SystemName::ALL.len())) {
            if let [regions, conventional] = pair {
                result.claims.extend(claims(kind, name, row, regions, conventional));
            }
        }
    }
    Ok(Outcome { result, host: None })
}

fn actions(program: &Program) -> Result<Vec<Action>, String> {
    let reader = crate::heap_events_file::HeapReader::new(program.recording);
    reader.and_then(Actions::read).map_err(|error| format!("{}: {error}", program.name))
}

fn figures() -> Vec<Figure> {
    let bars = |id, title, y| Figure::new(id, title, FigureKind::Bars, "program", y);
    vec![
        bars(ALLOCATION, "the longest", "words touched"),
        bars(RELEASE, "the longest", "log10 of words touched")
            .with_caption("A step of 1 is a factor of 10."),
        bars(RELEASE_REGIONS, "the longest, regions alone", "words touched"),
        bars(FOOTPRINT, "the most pages mapped", "log10 of pages"),
    ]
}

fn notes() -> Vec<String> {
    vec![
        "The programs are those that were to be had, of the paper's kinds, on small inputs; the \
         claims set them beside the paper's program of the same kind. Words are those of the \
         structures that differ between the systems, as in rt-runtimes."
            .to_owned(),
        "A realloc is an allocation, writes of what is kept and a release.".to_owned(),
    ]
}

fn claims(kind: &str, name: &str, row: &Row, regions: &Found, conventional: &Found) -> Vec<Claim> {
    let ratio = |[rtmmu, traditional]: [f64; 2]| traditional / rtmmu.max(1.0);
    let words =
        |found: &Found| found.releases.iter().map(|step| step.words).max().unwrap_or(0) as f64;
    let pages = |found: &Found| found.mapped_pages_max as f64;
    let place = format!("Table I, {kind}");
    let other = "Another program on a small input. The conventional heap shrinks only when the \
                 last block before its end is freed: little at a time in these runs, or never.";
    let same = "As in rt-runtimes and rt-footprint.";
    let claim = |what: &str, paper, measured| {
        let says = format!("{what}, conventional / RTMMU; measured on {name}");
        let claim = Claim::at_least(&place, &says, paper, measured, 0.1 * paper);
        let claim = claim.with_unit(Unit::Ratio);
        claim.with_cause(if name == "synthetic" { same } else { other })
    };
    vec![
        claim(
            "longest de-allocation",
            ratio(row.releases),
            ratio([words(regions), words(conventional)]),
        ),
        claim("most pages mapped", ratio(row.pages), ratio([pages(regions), pages(conventional)])),
    ]
}
