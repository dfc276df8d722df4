//! Sections that could be taken offline, over time (Panwar and Gopinath, Fig. 8).

use crate::papers::green::compare::{Compared, DESIGN, Looked, Stated, compare, needs, notes};
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::MachineName;
use crate::papers::green::setting::{Design, GreenPlan, LoadName, LoadRun};
use crate::papers::green::track::{Track, removable_share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Metrics, largest, mean, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Removable sections over time.
pub struct Hotplug;

impl Study for Hotplug {
    const KIND: &'static str = "green-hotplug";
    type Plan = GreenPlan;
    type Found = Compared;

    fn seeds(plan: &GreenPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &GreenPlan, run: &Run<'_>) -> Needs {
        needs(plan, run)
    }

    fn measure(plan: &GreenPlan, run: &Run<'_>) -> Result<Compared, StudyError> {
        compare(plan, run, Looked::SinceBoot, &[("removable_share", removable_share)], &gains)
    }

    fn claims(plan: &GreenPlan, run: &Run<'_>) -> Vec<Statement<Compared>> {
        let machines = [MachineName::ThirtyTwoGib, MachineName::FourGib];
        let mut all = Vec::new();
        for stated in machines.map(|machine| Stated::new(machine, LoadName::Medium)) {
            all.extend(claims(stated, &stated.conditions(plan, run.quick)));
        }
        // Shown beside: file benchmarks are in the medium load alone.
        let light = Stated::new(MachineName::FourGib, LoadName::Light);
        all.extend(claims(light, &Conditions::new().same("load", "medium", "light")));
        all
    }

    fn show(plan: &GreenPlan, run: &Run<'_>, found: &Compared) -> Shown {
        let figures = found.loads.iter().map(|load| over_time(found, load)).collect();
        let findings = found.loads.iter().map(|load| finding(found, load));
        let mut notes = notes(plan, run);
        notes.push(
            "A section is removable if it is memory of one zone without holes and none of its \
             frames is unmovable; it need not be empty. The largest gain is that of each run, \
             against the baseline at the same moment and under the same requests."
                .to_owned(),
        );
        let finding = findings.collect::<Vec<_>>().join(" ");
        Shown { finding, figures, notes, host: None }
    }
}

/// The largest and mean share by which more sections are removable than with the
/// baseline at the same moment.
fn gains(_: &LoadRun, track: &Track, baseline: Option<&Track>) -> Metrics {
    let Some(baseline) = baseline else { return Metrics::new() };
    let pairs = track.looks.iter().zip(&baseline.looks);
    let gain = |own: u64, other: u64| own as f64 / other.max(1) as f64 - 1.0;
    let gains: Vec<f64> =
        pairs.map(|(own, other)| gain(own.removable_sections, other.removable_sections)).collect();
    metrics([("gain_largest", largest(&gains)), ("gain_mean", mean(&gains))])
}

fn over_time(found: &Compared, load: &LoadRun) -> Drawn {
    let id = format!("Fig. 8, {}", load.title());
    let (title, y_label) = ("Removable sections", "share of all sections");
    let figure = Figure::new(&id, title, FigureKind::Lines, "minutes", y_label);
    let line = |&design: &Design| {
        let points = found.over_time(load, design, "removable_share");
        Series::new(&id, "time_minutes", "removable_share", &design.title(), points)
    };
    let series = found.designs.iter().map(line).collect();
    Drawn { figure: figure.with_y_range(0.0, 1.0), series }
}

fn finding(found: &Compared, load: &LoadRun) -> String {
    let shares = found.sentence(load, &["removable_mean", "spoiled"], |title, values| {
        format!("{title} {:.0}% ({:.0} spoiled)", 100.0 * values[0], values[1])
    });
    let mut text =
        format!("{}: removable sections on average {}.", load.title(), shares.join(", "));
    for name in [AllocatorName::Adaptive, AllocatorName::AdaptivePacked] {
        if let Some(gain) = found.mean(load, Design::plain(name), "gain_mean") {
            let title = name.title();
            text += &format!(" {title} gains {:.0}% on Linux on average.", 100.0 * gain);
        }
    }
    text
}

/// The statements on this figure. The paper says "as much as 85%-90%" of single
/// moments: the largest gain of a run is judged from below, to half of that range.
fn claims(stated: Stated, conditions: &Conditions) -> Vec<Statement<Compared>> {
    let place = format!("Fig. 8 ({})", stated.title());
    let claim = |name: AllocatorName| {
        let says = format!(
            "{}: in some cases 85% to 90% more removable sections than Linux",
            name.title()
        );
        let statement = Statement::at_least(&place, &says, 0.85, 0.05).unit(Unit::Share).cause(
            "The baseline is Linux 6.18, whose grouping by mobility claims whole pageblocks; the \
             paper's was of 2015.",
        );
        let (linux, own) = (Design::plain(AllocatorName::Linux), Design::plain(name));
        statement.under(conditions).measured(move |found: &Compared| {
            found.grid.evidence(|view| {
                let cells = stated.cells(view).all(DESIGN, [linux.title(), own.title()]);
                cells.cells()?;
                cells.is(DESIGN, own.title()).one("gain_largest")
            })
        })
    };
    [AllocatorName::Adaptive, AllocatorName::AdaptivePacked].into_iter().map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::claim::Claim;
    use crate::study::verdict::Verdict;

    const STATED: Stated = Stated::new(MachineName::FourGib, LoadName::Medium);
    const LINUX: Design = Design::plain(AllocatorName::Linux);
    const ADAPTIVE: Design = Design::plain(AllocatorName::Adaptive);

    fn judged(stated: Stated, designs: &[Design], values: &[f64]) -> Claim {
        let found = Compared::of(STATED, designs, "gain_largest", values);
        claims(stated, &Conditions::new()).remove(0).judge(&found)
    }

    #[test]
    fn without_the_baseline_nothing_is_claimed() {
        let claim = judged(STATED, &[ADAPTIVE], &[1.0, 1.1, 1.2]);
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
        assert_eq!(claim.reason(), "axis design: no Linux");
        let claim = judged(STATED, &[LINUX], &[1.0, 1.1, 1.2]);
        assert_eq!(claim.reason(), "axis design: no Adaptive-Buddy");
        let other = Stated::new(MachineName::ThirtyTwoGib, LoadName::Medium);
        let claim = judged(other, &[LINUX, ADAPTIVE], &[1.0, 1.1, 1.2]);
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
        assert_eq!(claim.reason(), "axis machine: no 32 GiB");
    }

    #[test]
    fn the_largest_gain_has_an_interval() {
        let both = [LINUX, ADAPTIVE];
        assert_eq!(judged(STATED, &both, &[1.0, 1.01, 1.02]).verdict(), Verdict::Holds);
        assert_eq!(judged(STATED, &both, &[0.1, 0.11, 0.12]).verdict(), Verdict::Differs);
        assert_eq!(judged(STATED, &both, &[0.5, 1.0, 1.5]).verdict(), Verdict::Undecided);
        assert_eq!(judged(STATED, &both, &[1.0]).verdict(), Verdict::Undecided);
    }
}
