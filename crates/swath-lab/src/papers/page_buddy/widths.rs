//! What the real width of a format's contiguity fields costs: hit rates
//! against the width, with the width that the descriptors leave free beside
//! ideal ones.

use crate::papers::page_buddy::translation::{Design, Hardware, Measured, Program, measure};
use crate::source::memory::{Source, random};
use crate::source::real::Trace;
use crate::study::old::plan::{ContiguityBits, FormatName, FormatWord, WidthsPlan};
use crate::study::results::{Figure, FigureKind, Point, Series, StudyResult};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &WidthsPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let repeats = if run.quick { plan.repeats_quick } else { plan.repeats };
    let workload = Program::of(&plan.workload.build(&plan.shapes));
    let own = ContiguityBits::Format(FormatWord::Format);
    let mut points = Vec::new();
    for &format in &plan.formats {
        let widths = plan.widths.iter().map(|&bits| ContiguityBits::Ideal(bits));
        for contiguity in widths.chain([own]) {
            for design in designs(format)? {
                points.push((format, contiguity, design));
            }
        }
    }
    let rates = run.points(about, &points, |(format, contiguity, design)| {
        let recorded;
        let program = match &run.real.accesses {
            None => &workload,
            Some(file) => {
                recorded = Program::recorded(Trace::new(Some(file)), format.format())?;
                &recorded
            }
        };
        let entries = plan.tlb_entries as u32;
        let hardware = Hardware::new(format.format(), entries, *contiguity);
        let below;
        let source = match &run.real.memory {
            None => program.scattered(plan.block_frames, plan.free_per_requested, plan.free_share),
            Some(machine) => {
                below = hardware.free_of(machine, program);
                Source::Free(&below)
            }
        };
        let mut sum = Measured::default();
        for repeat in 0..repeats {
            let mut random = random(about.seed, repeat);
            let measured = measure(&hardware, design, &source, program, &mut random);
            sum = sum
                + measured.map_err(|error| StudyError::Machine {
                    study: about.study.clone(),
                    what: format!("{} on {}: {error}", design.name, format.title()),
                })?;
        }
        Ok(sum.hit_rate())
    })?;
    let rate = |format: FormatName, contiguity: ContiguityBits, name: &str| {
        let at = points.iter().position(|p| p.0 == format && p.1 == contiguity && p.2.name == name);
        at.map_or(0.0, |i| rates[i])
    };

    let y_label = "TLB hit rate (share of accesses)";
    let own_id = "The format's own width";
    let mut figures = vec![
        Figure::new(
            own_id,
            "With the bits that each format leaves free",
            FigureKind::Bars,
            "format",
            y_label,
        )
        .with_y_range(0.0, 1.0),
    ];
    let mut series = Vec::new();
    for name in NAMES {
        let points = plan.formats.iter().map(|&format| (format.title(), rate(format, own, name)));
        series.push(Series::new(own_id, "format", "tlb_hit_rate", name, points));
    }
    for &format in &plan.formats {
        let id = format!("Ideal width, {}", format.title());
        let x_label = "width of each contiguity number (bits)";
        figures.push(
            Figure::new(&id, "TLB hit rate", FigureKind::Lines, x_label, y_label)
                .with_y_range(0.0, 1.0),
        );
        for name in NAMES {
            let points = plan.widths.iter().map(|&bits| {
                Point::at(f64::from(bits), rate(format, ContiguityBits::Ideal(bits), name))
            });
            series.push(Series::new(&id, "contiguity_bits", "tlb_hit_rate", name, points));
        }
    }
    let widest = plan.widths.iter().copied().max().unwrap_or(1);
    let costs = plan.formats.iter().map(|&format| {
        let of = format.format();
        let (own, ideal) =
            (rate(format, own, "PBS"), rate(format, ContiguityBits::Ideal(widest), "PBS"));
        format!(
            "{} leaves {} + {} bits for PCAD and {} for an anchor: PBS hits {:.1}% instead of \
             {:.1}%",
            format.title(),
            of.ascend().width(),
            of.descend().width(),
            of.anchor().width(),
            100.0 * own,
            100.0 * ideal
        )
    });
    let finding = format!("{} {}.", about.purpose, costs.collect::<Vec<_>>().join("; "));
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            notes: vec![
                "A run longer than the field can say saturates: each descriptor then tells of a \
                 window around its own page, and a block takes several TLB entries."
                    .to_owned(),
                "The ideal field stands beside the table and arrives with the descriptor at no \
                 cost; no processor has it."
                    .to_owned(),
            ],
            ..run::result(about, plan, run, finding)
        },
        host: None,
    })
}

const NAMES: [&str; 3] = ["PCAD", "AT", "PBS"];

/// The designs that write contiguity, with PBS at the format's granularity.
fn designs(format: FormatName) -> Result<Vec<Design>, StudyError> {
    let granularity = format.format().granularity().k() as u8;
    let pbs = crate::study::old::plan::pbs(granularity, 2 * granularity)?;
    let all = Design::all(crate::study::old::plan::bbs(9)?, pbs);
    Ok(all.into_iter().filter(|design| NAMES.contains(&design.name)).collect())
}
