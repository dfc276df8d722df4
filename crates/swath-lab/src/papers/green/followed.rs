//! The baseline beside a kernel whose free lists were rebuilt from a recording
//! of the whole system, event by event.

use std::collections::BTreeSet;

use swath_trace::machine::Snapshot;
use swath_trace::pages::PageReader;

use crate::papers::green::pages::follow::{Agreement, Course, FallbackKind, follow, run_free};
use crate::papers::green::pages::recordings::FOLLOWED;
use crate::study::claim::Statement;
use crate::study::grid::{Grid, metrics};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::verdict::Unit;

/// The outcome. Nothing in it depends on a seed.
pub(crate) struct Followed {
    grid: Grid,
    drawn: Drawn,
    finding: String,
}

impl Followed {
    /// Agreement of the baseline with the kernel.
    pub(crate) const fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Fallbacks by kind.
    pub(crate) const fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    /// The finding in one sentence.
    pub(crate) fn finding(&self) -> &str {
        &self.finding
    }
}

const RECORDING: &str = "recording";

/// Follows the recording that comes with the program.
///
/// # Errors
/// The fault in words; never for what comes with the program.
pub(crate) fn followed() -> Result<Followed, String> {
    let (name, events, snapshot) = FOLLOWED;
    let reader = PageReader::new(events).map_err(|error| format!("{name}: {error}"))?;
    let events: Result<Vec<_>, _> = reader.collect();
    let events = events.map_err(|error| format!("{name}: {error}"))?;
    let snapshot = Snapshot::read(snapshot).map_err(|error| format!("{name}: {error}"))?;
    let course = Course::new(&events, &snapshot).map_err(|error| format!("{name}: {error}"))?;
    let there = follow(&course);
    let free = run_free(&course);

    let kinds: BTreeSet<_> = there.fallbacks.keys().chain(free.fallbacks.keys()).copied().collect();
    let points = |count: &dyn Fn(&FallbackKind) -> u64| -> Vec<Point> {
        kinds.iter().map(|kind| Point::named(kind.to_string(), count(kind) as f64)).collect()
    };
    let of = |kind: &FallbackKind| there.fallbacks.get(kind).copied().unwrap_or_default();
    let own = |kind: &FallbackKind| free.fallbacks.get(kind).copied().unwrap_or_default();
    let id = "Fallbacks, step by step";
    let line = |design: &str, points| Series::new(id, "kind", "fallbacks", design, points);
    let series = vec![
        line("recorded", points(&|kind| of(kind).recorded)),
        line("the same by the baseline's rules", points(&|kind| of(kind).same)),
        line("baseline by itself", points(&own)),
    ];
    let (title, x_label) =
        ("of a kernel and of the baseline", "wanted from found, and what was found");
    let figure = Figure::new(id, title, FigureKind::Bars, x_label, "fallbacks");

    let all = there.all_fallbacks();
    let share = |agreement: Agreement| agreement.same as f64 / agreement.recorded as f64;
    let frames = |count: Option<u32>| count.map_or(f64::NAN, f64::from);
    let mut grid = Grid::new(&[RECORDING], 0);
    let numbers = metrics([
        ("own_as_ruled", share(there.own)),
        ("fallbacks_as_ruled", share(all)),
        ("same_frames", share(free.takes)),
        ("claimed_least", frames(there.claimed_least)),
        ("left_most", frames(there.left_most)),
    ]);
    grid.add(vec![name.into()], &[numbers]);
    let mut finding = format!(
        "{name}, {} takes, {} fallbacks: {} and {} are as the baseline's rules say.",
        there.own.recorded, all.recorded, there.own.same, all.same
    );
    for ((kind, difference), count) in &there.differences {
        finding += &format!(" {count} of {kind}: {difference}.");
    }
    Ok(Followed { grid, drawn: Drawn { figure, series }, finding })
}

/// Statements on the baseline: that its rules are the kernel's, to the last event.
pub(crate) fn followed_claims<F: 'static>(
    grid: impl Fn(&F) -> &Grid + Copy + 'static,
) -> Vec<Statement<F>> {
    let (name, ..) = FOLLOWED;
    let place = "recorded free lists";
    let shares = [
        (
            "takes without a fallback that the baseline's rules lead to, from the same order and \
             list",
            "own_as_ruled",
        ),
        (
            "fallbacks that the baseline's rules lead to, from the same order and mobility, \
             claimed or not",
            "fallbacks_as_ruled",
        ),
        (
            "takes of the baseline by itself, from the same beginning and under the same \
             requests, that get the kernel's frames",
            "same_frames",
        ),
    ];
    let frames = [
        (
            "frames of 512, free or alike, with which the kernel claims a pageblock: the fewest",
            256.0,
            "claimed_least",
        ),
        (
            "frames of 512, free or alike, with which it leaves a pageblock: the most",
            255.0,
            "left_most",
        ),
    ];
    let shares = shares.into_iter().map(|(says, metric)| {
        let statement = Statement::at_least(place, &format!("Beyond: {name}: {says}"), 1.0, 0.0);
        (statement.unit(Unit::Share), metric)
    });
    let frames = frames.into_iter().map(|(says, paper, metric)| {
        (Statement::exactly(place, &format!("Beyond: {name}: {says}"), paper), metric)
    });
    let measured = |(statement, metric): (Statement<F>, &'static str)| {
        statement.measured(move |found: &F| {
            grid(found).evidence(|view| view.select().is(RECORDING, name).one(metric))
        })
    };
    shares.chain(frames).map(measured).collect()
}
