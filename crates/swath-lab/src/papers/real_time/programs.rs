//! The longest allocation and release and the most pages mapped, of the synthetic workload and of
//! recorded programs, on both systems (Table I of 004_0cb2f33903da1556.txt).

use crate::papers::real_time::plan::RtPlan;
use crate::papers::real_time::program::Actions;
use crate::papers::real_time::run;
use crate::papers::real_time::run::Found;
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::workload::Action;
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::study::run::{Outcome, Run, StudyError};

const ALLOCATION: &str = "Table I, allocation";
const RELEASE: &str = "Table I, de-allocation";
const RELEASE_REGIONS: &str = "Table I, de-allocation with regions";
const LARGER: &str = "De-allocation with larger sizes";
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
    Program {
        name: "fft",
        kind: "FFT",
        recording: include_bytes!("../../../data/fft.swheap"),
        row: Row { releases: [524.0, 94_305.0], pages: [6_263.0, 6_263.0] },
    },
    Program {
        name: "neural",
        kind: "PHP (neural net)",
        recording: include_bytes!("../../../data/neural.swheap"),
        row: Row { releases: [437.0, 1_423_306.0], pages: [476.0, 476.0] },
    },
];

/// By how much all sizes of a program are multiplied, to see whether its input is too small for
/// the paper's figures.
const FACTORS: [u64; 3] = [1, 16, 256];
/// So many of them in a quick run.
const FACTORS_QUICK: usize = 2;

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &RtPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let mut points = SystemName::ALL.map(|system| (None, 1, system)).to_vec();
    let factors = if run.quick { &FACTORS[..FACTORS_QUICK] } else { &FACTORS };
    for &factor in factors {
        for program in PROGRAMS {
            points.extend(SystemName::ALL.map(|system| (Some(program), factor, system)));
        }
    }
    let found = run.points(about, &points, |&(program, factor, system)| {
        let found = match program {
            None => {
                let actions = plan.workload(run.quick).actions();
                run::run(system, plan.size, false, actions)
            }
            Some(program) => {
                let actions = actions(program).map_err(failed)?.into_iter();
                run::run(system, plan.size, false, actions.map(|action| action.times(factor)))
            }
        };
        found.map_err(|error| failed(error.to_string()))
    })?;
    let systems = SystemName::ALL.len();
    let (found, larger) = found.split_at(systems * (1 + PROGRAMS.len()));
    let mut result = StudyResult {
        figures: figures(),
        notes: notes(),
        ..crate::study::run::result(about, plan, run, about.purpose.clone())
    };
    let names: Vec<&str> =
        ["synthetic"].into_iter().chain(PROGRAMS.iter().map(|program| program.name)).collect();
    for (s, system) in SystemName::ALL.into_iter().enumerate() {
        let of = |figure, y, value: &dyn Fn(&Found) -> f64| {
            let found = found.iter().skip(s).step_by(systems);
            let points = names.iter().copied().zip(found.map(value));
            Series::new(figure, "program", y, system.name(), points)
        };
        let words = |steps: &[run::Step]| run::words_max(steps) as f64;
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
    let failures: u64 = larger.iter().map(|found| found.failures).sum();
    result.notes.push(format!("With larger sizes {failures} allocations found no room."));
    let ratio = |pair: &[Found]| release_ratio(&pair[0], &pair[1]);
    let larger: Vec<Vec<f64>> = (0..PROGRAMS.len())
        .map(|p| {
            let of = |all: &[Found]| ratio(&all[systems * p..systems * (p + 1)]);
            let larger = larger.chunks(systems * PROGRAMS.len()).map(of);
            [of(&found[systems..])].into_iter().chain(larger).collect()
        })
        .collect();
    for (program, ratios) in PROGRAMS.iter().zip(&larger) {
        // A heap that never shrinks has no ratio to draw.
        let points = FACTORS.iter().zip(ratios).filter(|(_, ratio)| **ratio > 0.0);
        let points = points.map(|(&factor, ratio)| (factor as f64, ratio.log10()));
        result.series.push(Series::new(LARGER, "factor", "log10_ratio", program.name, points));
    }
    if plan.claims {
        let rows = [("the synthetic workload", "synthetic", &SYNTHETIC)].into_iter();
        let rows = rows.chain(PROGRAMS.iter().map(|p| (p.kind, p.name, &p.row)));
        let causes = [SYNTHETIC_CAUSE.to_owned()].into_iter();
        let causes = causes.chain(found.chunks(systems).skip(1).zip(&larger).map(cause));
        for (((kind, name, row), pair), cause) in rows.zip(found.chunks(systems)).zip(causes) {
            result.claims.extend(claims(kind, name, row, &pair[0], &pair[1], &cause));
        }
    }
    Ok(Outcome { result, host: None })
}

fn actions(program: &Program) -> Result<Vec<Action>, String> {
    let reader = swath_trace::heap::HeapReader::new(program.recording);
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
        Figure::new(
            LARGER,
            "longest release, conventional / regions",
            FigureKind::LinesLog2,
            "factor of all sizes",
            "log10 of the ratio of words",
        )
        .with_caption(
            "Each recording with its sizes and offsets multiplied, to see what a larger input of \
             the same shape would do. A step of 1 is a factor of 10. Heaps that never shrink are not \
             drawn.",
        ),
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

/// The longest release in words, conventional / regions.
fn release_ratio(regions: &Found, conventional: &Found) -> f64 {
    let words = |found: &Found| run::words_max(&found.releases) as f64;
    words(conventional) / words(regions).max(1.0)
}

const SYNTHETIC_CAUSE: &str =
    "As in rt-runtimes and rt-footprint; there over several seeds, here one.";

/// What was seen of a program's conventional heap, and with larger sizes.
fn cause((pair, ratios): (&[Found], &Vec<f64>)) -> String {
    let conventional = &pair[1];
    let shrinks = conventional.releases.iter().filter(|step| step.pages > 0);
    let most = shrinks.clone().map(|step| step.pages).max().unwrap_or(0);
    let larger: Vec<String> = FACTORS
        .iter()
        .zip(ratios)
        .skip(1)
        .map(|(factor, ratio)| format!("{ratio:.1} with sizes {factor} times as large"))
        .collect();
    format!(
        "Another program on a small input. Its conventional heap shrinks at {} of {} releases, by \
         at most {most} pages, and has {} at most. The ratio of releases is {}.",
        shrinks.count(),
        conventional.releases.len(),
        conventional.mapped_pages_max,
        larger.join(" and "),
    )
}

fn claims(
    kind: &str,
    name: &str,
    row: &Row,
    regions: &Found,
    conventional: &Found,
    cause: &str,
) -> Vec<Claim> {
    let ratio = |[rtmmu, traditional]: [f64; 2]| traditional / rtmmu.max(1.0);
    let pages = |found: &Found| found.mapped_pages_max as f64;
    let place = format!("Table I, {kind}");
    let claim = |what: &str, paper, measured| {
        let says = format!("{what}, conventional / RTMMU; measured on {name}");
        let claim = Claim::at_least(&place, &says, paper, measured, 0.1 * paper);
        let claim = claim.with_unit(Unit::Ratio);
        claim.with_cause(cause)
    };
    vec![
        claim("longest de-allocation", ratio(row.releases), release_ratio(regions, conventional)),
        claim("most pages mapped", ratio(row.pages), ratio([pages(regions), pages(conventional)])),
    ]
}
