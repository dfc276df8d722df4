//! Frames that migration moves and banks that it frees (Panwar and Gopinath,
//! Fig. 9).

use crate::papers::green::compare::{Compared, Stated, compare, needs, notes, nothing, of_design};
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::MachineName;
use crate::papers::green::machine::view::Look;
use crate::papers::green::power::FITTED;
use crate::papers::green::setting::{Design, GreenPlan, LoadName, LoadRun, PAPER_BANK_MIB};
use crate::papers::green::track::{EVERY_US, Track, gib};
use crate::study::claim::Statement;
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Frames moved and banks freed.
pub struct Migration;

impl Study for Migration {
    const KIND: &'static str = "green-migration";
    type Plan = GreenPlan;
    type Found = Compared;

    fn seeds(plan: &GreenPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &GreenPlan, run: &Run<'_>) -> Needs {
        needs(plan, run)
    }

    fn measure(plan: &GreenPlan, run: &Run<'_>) -> Result<Compared, StudyError> {
        let moved = |look: &Look| gib(look.moved_frames);
        let emptied = |look: &Look| look.emptied_banks as f64;
        compare(plan, run, &[("moved_gib", moved), ("emptied_banks", emptied)], &nothing)
    }

    fn claims(plan: &GreenPlan, run: &Run<'_>) -> Vec<Statement<Compared>> {
        let machines = [MachineName::ThirtyTwoGib, MachineName::FourGib];
        let stated = machines.map(|machine| Stated::new(machine, LoadName::Medium));
        stated.into_iter().flat_map(|stated| claims(plan, run, stated)).collect()
    }

    fn show(plan: &GreenPlan, run: &Run<'_>, found: &Compared) -> Shown {
        let drawn = |load| {
            [release(plan, found, load), over_time(found, load), each_bank(plan, found, load)]
        };
        let figures = found.loads.iter().flat_map(drawn).collect();
        let findings = found.loads.iter().map(|load| finding(found, load));
        let mut notes = notes(plan, run);
        let daemon = &plan.daemon;
        notes.push(format!(
            "The daemon of each node looks for a bank every {} ms, of which at most {}% is in use, \
             moves up to {} frames each 100 ms (twice as many where banks are interleaved), and \
             leaves {} frames free; after a bank was opened it begins with none for {} ms, unless it is \
             eager.",
            daemon.interval_ms,
            daemon.occupied_permille_max.get() / 10,
            daemon.budget_frames,
            daemon.reserve_frames,
            daemon.settle_ms,
        ));
        notes.push(
            "The paper says what its daemon moved for its load. Adaptive-Buddy is judged by that \
             both ways; what is beyond the paper is to move no more; Linux with a daemon has no \
             figure in the paper and is only shown."
                .to_owned(),
        );
        notes.extend(found.loads.iter().filter_map(|load| {
            let banks = found.mean(load, ADAPTIVE, "released_most_banks")?;
            let title = load.title();
            let seconds = EVERY_US / 1_000_000;
            Some(format!(
                "{title}: within {seconds} s at most {banks:.1} banks' worth of memory come free, on \
                 average over the seeds."
            ))
        }));
        let finding = findings.collect::<Vec<_>>().join(" ");
        Shown { finding, figures, notes, host: None }
    }
}

/// The paper's design.
const ADAPTIVE: Design = Design::migrating(AllocatorName::Adaptive);

/// The design beyond it.
const PACKED: Design = Design::migrating(AllocatorName::AdaptivePacked);

/// The same without hysteresis.
const EAGER: Design = Design::eager(AllocatorName::AdaptivePacked);

/// The designs of this form that migrate.
fn migrating(found: &Compared) -> impl Iterator<Item = Design> {
    found.designs.iter().copied().filter(|design| design.migrates())
}

/// Seconds before and after the moment of [`release`].
const AROUND_S: u64 = 120;

/// The banks around the moment at which the paper's design had the most of them nearly free, with
/// the first of the seeds: what a release of much memory leaves, and how it is taken away.
fn release(plan: &GreenPlan, found: &Compared, load: &LoadRun) -> Drawn {
    let id = format!("Fig. 9a, {}", load.title());
    let title = "Banks after much memory was released at once";
    let figure = Figure::new(&id, title, FigureKind::Lines, "seconds", "banks");
    let mut series = Vec::new();
    if let Some((design, track)) = found.first(load).find(|(design, _)| *design == ADAPTIVE) {
        let most = |look: &&Look| (look.nearly_free_banks, u64::MAX - look.time_us);
        let at_us = track.looks.iter().max_by_key(most).map_or(0, |look| look.time_us);
        let near = |look: &&Look| look.time_us.abs_diff(at_us) <= AROUND_S * 1_000_000;
        let looks: Vec<&Look> = track.looks.iter().filter(near).collect();
        type Banks = fn(&Look) -> u64;
        let lines: [(&str, &str, Banks); 2] = [
            ("nearly_free_banks", "more than 90% free", |look| look.nearly_free_banks),
            ("resting_banks", "at rest", |look| look.resting_banks),
        ];
        for (y, what, of) in lines {
            let seconds = |look: &Look| (look.time_us as f64 - at_us as f64) / 1e6;
            let points = looks.iter().map(|look| Point::at(seconds(look), of(look) as f64));
            let title = format!("{}: {what}", design.title());
            series.push(Series::new(&id, "time_s", y, &title, points));
        }
    }
    let caption = format!("With the seed {} alone, from that moment on.", plan.about.seed);
    Drawn { figure: figure.with_caption(&caption), series }
}

fn over_time(found: &Compared, load: &LoadRun) -> Drawn {
    let id = format!("Fig. 9b, {}", load.title());
    let title = "Memory moved, and memory of the banks emptied, summed up";
    let figure = Figure::new(&id, title, FigureKind::Lines, "minutes", "GiB");
    let bank_gib = load.unit_bytes() as f64 / f64::from(1 << 30);
    let mut series = Vec::new();
    for design in migrating(found) {
        let title = design.title();
        let moved = found.over_time(load, design, "moved_gib");
        series.push(Series::new(&id, "time_minutes", "moved_gib", &title, moved));
        let mut emptied = found.over_time(load, design, "emptied_banks");
        emptied.iter_mut().for_each(|point| scale(point, bank_gib));
        let title = format!("{title}: banks emptied");
        series.push(Series::new(&id, "time_minutes", "emptied_gib", &title, emptied));
    }
    Drawn { figure, series }
}

/// The same point in another unit.
fn scale(point: &mut Point, by: f64) {
    point.y *= by;
    if let Some((low, high)) = point.spread.as_mut().and_then(|spread| spread.interval.as_mut()) {
        *low *= by;
        *high *= by;
    }
}

/// Each bank emptied with the first of the seeds, in order, as a share of a
/// bank; thinned out.
fn each_bank(plan: &GreenPlan, found: &Compared, load: &LoadRun) -> Drawn {
    let id = format!("Fig. 9c, {}", load.title());
    let figure = Figure::new(
        &id,
        "Frames moved to empty a bank",
        FigureKind::Scatter,
        "nth bank emptied",
        "share of the bank's frames",
    );
    let row = |(design, track): (Design, &Track)| {
        let every = track.emptied.len().div_ceil(300).max(1);
        let banks = track.emptied.iter().enumerate().step_by(every);
        let share = |moved: u64| moved as f64 / track.bank_frames as f64;
        let points = banks.map(|(nth, &moved)| Point::at(nth as f64, share(moved)));
        Series::new(&id, "bank", "moved_share", &design.title(), points)
    };
    let series = found.first(load).filter(|(design, _)| design.migrates()).map(row).collect();
    let caption = format!("With the seed {} alone.", plan.about.seed);
    Drawn { figure: figure.with_y_range(0.0, 1.0).with_caption(&caption), series }
}

fn finding(found: &Compared, load: &LoadRun) -> String {
    let metrics = [
        "moved_gib",
        "emptied_banks",
        "moved_share",
        "resting_mean",
        "nearly_empty_share",
        "opened_banks",
    ];
    let designs = found.sentence(load, &metrics, |title, values| {
        format!(
            "{title} moved {:.1} GiB to empty {:.0} banks ({:.0}% of a bank each; {:.0}% of the \
             banks held less than a tenth), {:.0} were opened; {:.0}% of memory rests on average",
            values[0],
            values[1],
            100.0 * values[2],
            100.0 * values[4],
            values[5],
            100.0 * values[3],
        )
    });
    format!("{}: {}.", load.title(), designs.join("; "))
}

/// The statements on this figure. The paper rounds its average to "≈ 40%" of
/// 65,536 pages: within a tenth of a bank.
fn claims(plan: &GreenPlan, run: &Run<'_>, stated: Stated) -> Vec<Statement<Compared>> {
    let conditions = stated.conditions(plan, run.quick);
    let measured = |statement: Statement<Compared>, design: Design, metric: &'static str| {
        statement.under(&conditions).fitted(FITTED).measured(move |found: &Compared| {
            found.grid.evidence(|view| of_design(stated.cells(view), design, metric))
        })
    };
    let at = |figure: &str| format!("{figure} ({})", stated.title());
    let title = ADAPTIVE.title();
    let says = "about 40% of a bank's pages are moved to offline it";
    let own = Statement::within(&at("Fig. 9c"), &format!("{title}: {says}"), 0.4, 0.1).cause(
        "A bank that was opened a short while ago holds little; the finding has the share of such \
         banks, with the eager daemon, too.",
    );
    let beyond = format!("Beyond: {}: no more than that; {says}", PACKED.title());
    let beyond = Statement::at_most(&at("Fig. 9c"), &beyond, 0.4, 0.0);
    let quarter = format!(
        "Beyond: {}: of the banks that are opened without hysteresis, at most a quarter",
        PACKED.title()
    );
    let quarter = Statement::at_most(&at("Fig. 9b"), &quarter, 0.25, 0.0)
        .under(&conditions)
        .unit(Unit::Share)
        .fitted(FITTED)
        .cause("Each rise of the footprint opens banks that were emptied in the fall before.")
        .measured(move |found: &Compared| {
            found.grid.evidence(|view| {
                let opened = |design| of_design(stated.cells(view), design, "opened_banks");
                Ok(opened(PACKED)? / opened(EAGER)?)
            })
        });
    let says = format!("{title}: at some moment at least 5 banks are more than 90% free");
    let released = Statement::at_least(&at("Fig. 9a"), &says, 5.0, 0.0).cause(
        "The notes have the most that is released at once here; what the paper's applications \
         release, and on which of its machines, it does not say.",
    );
    let says = format!("{title}: 12 GiB moved for 28 GiB offlined");
    let sums = Statement::within(&at("Fig. 9b"), &says, 12.0 / 28.0, 0.1).identity(&format!(
        "The sum over all banks of {PAPER_BANK_MIB} MiB of Fig. 9c, which has the verdict; it \
         could differ from it by the frames that were moved in vain alone."
    ));
    vec![
        measured(own.unit(Unit::Share), ADAPTIVE, "moved_share"),
        measured(sums.unit(Unit::Share), ADAPTIVE, "moved_in_all_share"),
        measured(beyond.unit(Unit::Share), PACKED, "moved_share"),
        quarter,
        measured(released, ADAPTIVE, "nearly_free_banks_most"),
    ]
}
