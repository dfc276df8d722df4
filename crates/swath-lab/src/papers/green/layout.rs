//! The sections in use, and those that hold kernel memory, on a machine that has
//! run for a while (Panwar and Gopinath, Fig. 1, 2 and 7).

use crate::film::Film;
use crate::papers::green::compare::{Compared, Stated, compare, needs, notes, nothing, of_design};
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::MachineName;
use crate::papers::green::setting::{Design, GreenPlan, LoadName, LoadRun, PAPER_BANK_MIB};
use crate::papers::green::track::{SectionUse, Track};
use crate::study::claim::{Conditions, Statement};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Sections in use and with kernel memory.
pub struct Layout;

impl Study for Layout {
    const KIND: &'static str = "green-layout";
    type Plan = GreenPlan;
    type Found = Compared;

    fn seeds(plan: &GreenPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &GreenPlan, run: &Run<'_>) -> Needs {
        needs(plan, run)
    }

    fn measure(plan: &GreenPlan, run: &Run<'_>) -> Result<Compared, StudyError> {
        compare(plan, run, &[], &nothing)
    }

    fn claims(plan: &GreenPlan, run: &Run<'_>) -> Vec<Statement<Compared>> {
        let paper = Stated::new(MachineName::ThirtyTwoGib, LoadName::Filled);
        let small = Stated { machine: MachineName::FourGib, ..paper };
        let other = Conditions::new().same("machine", "32 GiB", "4 GiB");
        let mut all = claims(paper, &paper.conditions(plan, run.quick));
        // Shown beside, but the paper's figures are of the other machine.
        all.extend(claims(small, &other));
        all
    }

    fn film(_: &GreenPlan, _: &Run<'_>, found: &Compared) -> Option<Film> {
        found.film()
    }

    fn show(plan: &GreenPlan, run: &Run<'_>, found: &Compared) -> Shown {
        let figures = found.loads.iter().flat_map(|load| maps(plan, found, load)).collect();
        let findings = found.loads.iter().map(|load| finding(found, load));
        let mut notes = notes(plan, run);
        notes.push(
            "The paper's figures are of a machine that has been up for long and has run file \
             benchmarks: page cache has filled its memory before. The filled load does so, and \
             the claims are on it; the light load, which leaves half of memory untouched since \
             boot, differs in that alone."
                .to_owned(),
        );
        let finding = findings.collect::<Vec<_>>().join(" ");
        Shown { finding, figures, notes, host: None }
    }
}

/// The paper's name of a figure for its machine and load, and with another's
/// title for another.
fn id(name: &str, load: &LoadRun) -> String {
    let paper = Stated::new(MachineName::ThirtyTwoGib, LoadName::Filled);
    let own = load.title() == paper.title() && load.bank_mib.get() == PAPER_BANK_MIB;
    if own { name.to_owned() } else { format!("{name}, {}", load.title()) }
}

/// The maps of sections, of the first of the seeds.
fn maps(plan: &GreenPlan, found: &Compared, load: &LoadRun) -> Vec<Drawn> {
    let x_label = format!("section of 128 MiB, {}", load.title());
    let used = found.first(load).map(|(_, track)| {
        let look = &track.lowest.look;
        100.0 * (1.0 - look.free_frames as f64 / look.total_frames as f64)
    });
    let caption = format!(
        "With the seed {} alone, at the moment of the second half at which the least memory is in \
         use: {:.0}%.",
        plan.about.seed,
        used.fold(0.0, f64::max),
    );
    type Of = fn(&SectionUse) -> f64;
    let maps: [(&str, &str, &str, &str, Of); 2] = [
        ("Fig. 1", "Frames in use by section", "share of frames in use", "used_share", |state| {
            1.0 - state.free as f64 / state.present as f64
        }),
        (
            "Fig. 2 and 7",
            "Sections with a kernel frame",
            "holds unmovable memory",
            "has_kernel",
            |state| f64::from(u8::from(state.unmovable > 0)),
        ),
    ];
    let map = |(name, title, y_label, y, of): (&str, &str, &str, &str, Of)| {
        let id = id(name, load);
        let figure = Figure::new(&id, title, FigureKind::Map, &x_label, y_label);
        let row = |(design, track): (Design, &Track)| {
            Series::new(&id, "section", y, &design.title(), cells(track, of))
        };
        let series = found.first(load).map(row).collect();
        Drawn { figure: figure.with_y_range(0.0, 1.0).with_caption(&caption), series }
    };
    maps.into_iter().map(map).collect()
}

/// The sections that have frames, each at its number.
fn cells(track: &Track, of: fn(&SectionUse) -> f64) -> Vec<Point> {
    let states = track.lowest.states.iter().enumerate();
    let present = states.filter(|(_, state)| state.present > 0);
    present.map(|(section, state)| Point::at(section as f64, of(state))).collect()
}

fn finding(found: &Compared, load: &LoadRun) -> String {
    let metrics = ["kernel_share_at_lowest", "whole_share_at_lowest", "used_at_lowest"];
    let parts = found.sentence(load, &metrics, |title, values| {
        format!("{title} {:.0}% and {:.0}%", 100.0 * values[0], 100.0 * values[1])
    });
    let used = found.designs.first().and_then(|&one| found.mean(load, one, "used_at_lowest"));
    format!(
        "{}, {:.0}% in use, shares of sections that hold kernel memory and that are wholly free: \
         {}.",
        load.title(),
        100.0 * used.unwrap_or(0.0),
        parts.join("; ")
    )
}

/// The statements on these figures. Fig. 1 and 7 say "none" and "contiguous",
/// Fig. 2 "more than": each is judged to that side only. None is none; Fig. 2 and 7, which are
/// read off a picture, have a tolerance of a tenth of all sections.
fn claims(stated: Stated, conditions: &Conditions) -> Vec<Statement<Compared>> {
    let at = |figure: &str| format!("{figure} ({})", stated.title());
    let linux = Design::plain(AllocatorName::Linux);
    let adaptive = Design::plain(AllocatorName::Adaptive);
    let measured = |statement: Statement<Compared>, design, metric: &'static str| {
        statement.unit(Unit::Share).under(conditions).measured(move |found: &Compared| {
            found.grid.evidence(|view| of_design(stated.cells(view), design, metric))
        })
    };
    let says = "Linux: no section is wholly free although most memory is";
    let none = Statement::at_most(&at("Fig. 1"), says, 0.0, 0.0).cause(
        "Sections that were never in use since boot stay whole: the last of the zone that is filled \
         last (figure Fig. 1), of as much memory as the load leaves free at its peak.",
    );
    let says = "Linux: more than 170 of 256 sections hold kernel memory";
    let most = Statement::at_least(&at("Fig. 2"), says, 170.0 / 256.0, 0.1)
        .cause("Linux groups pageblocks by mobility as long as whole ones are free.");
    let says =
        "Adaptive-Buddy: kernel memory is in contiguous sections from the first of each zone on";
    let rows = Statement::at_least(&at("Fig. 7"), says, 1.0, 0.1).cause(
        "Where the peak fills a zone, the kernel takes the emptiest bank of POOL_USER, wherever \
         that lies, and keeps it.",
    );
    vec![
        measured(none, linux, "whole_share_at_lowest"),
        measured(most, linux, "kernel_share_at_lowest"),
        measured(rows, adaptive, "kernel_in_rows_at_lowest"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::verdict::Verdict;

    /// "None" has no tolerance: one section of 256 is one too many.
    #[test]
    fn no_section_is_none() {
        let stated = Stated::new(MachineName::ThirtyTwoGib, LoadName::Filled);
        let linux = Design::plain(AllocatorName::Linux);
        let verdict = |share: f64| {
            let found =
                Compared::of(stated, &[linux], "whole_share_at_lowest", &[share, share, share]);
            claims(stated, &Conditions::new()).remove(0).judge(&found).verdict()
        };
        assert_eq!(verdict(0.0), Verdict::Holds);
        assert_eq!(verdict(1.0 / 256.0), Verdict::Differs);
    }
}
