//! Memory that rests, and the energy that this saves (Panwar and Gopinath,
//! Table IV and section V-D).

use crate::papers::green::compare::{Compared, Stated, compare, needs, notes, of_design};
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::{Interleaved, MachineName};
use crate::papers::green::machine::view::Look;
use crate::papers::green::setting::{Design, GreenPlan, LoadName, LoadRun};
use crate::papers::green::track::{Track, free_share};
use crate::study::claim::Statement;
use crate::study::grid::{Metrics, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Memory that rests.
pub struct Power;

/// The paper's design.
const ADAPTIVE: Design = Design::migrating(AllocatorName::Adaptive);

/// The design beyond it.
const PACKED: Design = Design::migrating(AllocatorName::AdaptivePacked);

/// Linux with the same daemon, by hotplug: without and with a zone for movable memory.
const LINUX: [Design; 2] =
    [Design::migrating(AllocatorName::Linux), Design::migrating(AllocatorName::LinuxMovable)];

/// The settings that were chosen after results were seen.
pub(crate) const FITTED: &str = "daemon.budget_frames, daemon.settle_ms and runs.system_mib";

impl Study for Power {
    const KIND: &'static str = "green-power";
    type Plan = GreenPlan;
    type Found = Compared;

    fn seeds(plan: &GreenPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &GreenPlan, run: &Run<'_>) -> Needs {
        needs(plan, run)
    }

    fn measure(plan: &GreenPlan, run: &Run<'_>) -> Result<Compared, StudyError> {
        compare(plan, run, &[("c", Look::c)], &at_implied)
    }

    fn claims(plan: &GreenPlan, run: &Run<'_>) -> Vec<Statement<Compared>> {
        TABLE_IV.iter().flat_map(|row| claims(plan, run, row)).collect()
    }

    fn show(plan: &GreenPlan, run: &Run<'_>, found: &Compared) -> Shown {
        let mut figures = bars(found);
        figures.extend(found.loads.iter().map(|load| over_time(found, load)));
        let findings = found.loads.iter().map(|load| finding(found, load));
        let mut notes = notes(plan, run);
        notes.push(
            "Energy is that of Table I: 63% of a bank's full power in active idle, 0.9% in deep \
             power-down, a transition, and the copies of frames that move (320 ns at full power \
             for a frame's read and for its write). Accesses are not simulated here, so a bank \
             that is in use takes active idle throughout; what is shown is the share of the \
             energy that all banks take in active idle. A bank that is opened is waited for \
             200 µs."
                .to_owned(),
        );
        notes.push(
            "Where all banks are interleaved, as in GreenDIMM (Lee et al., MICRO 2021), a 64th of \
             memory rests as a group of sub-arrays: at 32 GiB as much as two interleaved banks. \
             Whether such a group saves what a bank does is open: the interface that the others \
             need stays on, and if only cells and refresh rest, the 7% of self-refresh, the second \
             figure of energy is theirs."
                .to_owned(),
        );
        notes.push(
            "No bank was in use when it was powered down; a run in which one was would have failed."
                .to_owned(),
        );
        notes.extend(found.loads.iter().flat_map(|load| causes(found, load)));
        let finding = findings.collect::<Vec<_>>().join(" ");
        Shown { finding, figures, notes, host: None }
    }
}

/// A row of Table IV: the largest and the average share of offlined memory, and
/// the average c of section V-D.
struct Row {
    stated: Stated,
    max: Option<f64>,
    mean: f64,
    c: f64,
}

impl Row {
    const fn new(
        machine: MachineName,
        load: LoadName,
        interleaving: Interleaved,
        max: Option<f64>,
        mean: f64,
    ) -> Self {
        let c = if matches!(load, LoadName::Light) { 0.85 } else { 0.80 };
        Self { stated: Stated { machine, load, interleaving }, max, mean, c }
    }
}

const TABLE_IV: [Row; 6] = {
    use Interleaved::{None as No, TwoWay};
    use LoadName::{Light, Medium};
    use MachineName::{FourGib, ThirtyTwoGib};
    [
        Row::new(ThirtyTwoGib, Light, No, Some(0.81), 0.595),
        Row::new(ThirtyTwoGib, Medium, No, Some(0.56), 0.457),
        Row::new(ThirtyTwoGib, Light, TwoWay, None, 0.552),
        Row::new(ThirtyTwoGib, Medium, TwoWay, None, 0.407),
        Row::new(FourGib, Light, No, Some(0.64), 0.48),
        Row::new(FourGib, Medium, No, Some(0.45), 0.26),
    ]
};

/// The row of a load, whatever its banks.
fn row_of(load: &LoadRun) -> Option<&'static Row> {
    let LoadRun { machine, load, interleaving, .. } = *load;
    TABLE_IV.iter().find(|row| row.stated == Stated { machine, load, interleaving })
}

/// The difference from the free memory of a look that counts as the same.
const NEAR: f64 = 0.03;

/// The share of memory that rests when as much is free as the paper's share and
/// its c make; not a number where it never is.
fn at_implied(load: &LoadRun, track: &Track, _: Option<&Track>) -> Metrics {
    let Some(row) = row_of(load) else { return Metrics::new() };
    let implied = (row.mean / row.c).min(1.0);
    let near = track.looks.iter().filter(|look| (free_share(look) - implied).abs() <= NEAR);
    let rests: Vec<f64> = near.map(Look::resting_share).collect();
    let mean = rests.iter().sum::<f64>() / rests.len() as f64;
    metrics([("resting_at_implied", mean)])
}

fn bars(found: &Compared) -> Vec<Drawn> {
    let figures = [
        ("Table IV, average", "Memory that rests", "share of memory, average", "resting_mean"),
        ("Table IV, max", "Memory that rests", "share of memory, maximum", "resting_max"),
        ("c", "Resting by free memory", "c = resting / free", "c"),
        ("Energy", "Energy of the banks", "share of all in active idle", "energy_share"),
        (
            "Energy with the interface on",
            "Energy of the banks if only cells and their refresh rest",
            "share of all in active idle",
            "energy_share_cells",
        ),
        ("Waiting", "Waiting for banks that are opened", "ms in all", "waited_ms"),
    ];
    let drawn = |(id, title, y_label, metric)| {
        let figure = Figure::new(id, title, FigureKind::Bars, "machine and load", y_label);
        let y = if id.starts_with("Table IV") { "resting_share" } else { metric };
        found.bars(figure, y, metric)
    };
    figures.into_iter().map(drawn).collect()
}

fn over_time(found: &Compared, load: &LoadRun) -> Drawn {
    let id = format!("c over time, {}", load.title());
    let (title, y_label) = ("Resting by free memory", "c = resting / free");
    let figure = Figure::new(&id, title, FigureKind::Lines, "minutes", y_label);
    let line = |&design: &Design| {
        let points = found.over_time(load, design, "c");
        Series::new(&id, "time_minutes", "c", &design.title(), points)
    };
    let series = found.designs.iter().map(line).collect();
    Drawn { figure: figure.with_y_range(0.0, 1.0), series }
}

fn finding(found: &Compared, load: &LoadRun) -> String {
    let metrics = ["c", "resting_mean", "energy_share", "energy_share_cells", "waited_ms"];
    let designs = found.sentence(load, &metrics, |title, values| {
        format!(
            "{title} c {:.2}, {:.0}% of memory, {:.0}% of the energy ({:.0}% with the interface \
             on), {:.0} ms waited",
            values[0],
            100.0 * values[1],
            100.0 * values[2],
            100.0 * values[3],
            values[4],
        )
    });
    format!("{}: {}.", load.title(), designs.join("; "))
}

/// The measurements behind the claims' causes under a load.
fn causes(found: &Compared, load: &LoadRun) -> Vec<String> {
    let Some(row) = row_of(load) else { return Vec::new() };
    let of = |design, metric| found.mean(load, design, metric);
    let mut notes = Vec::new();
    if let (Some(mean), Some(most)) = (of(ADAPTIVE, "free_mean"), of(ADAPTIVE, "free_max")) {
        let then = match of(ADAPTIVE, "resting_at_implied") {
            Some(rests) => format!("when it is here, {:.0}% rests", 100.0 * rests),
            None => "here it is not in every run".to_owned(),
        };
        notes.push(format!(
            "{}: {:.0}% of memory is free on average here and at most {:.0}%; the paper's figure \
             and its c mean {:.0}%, and {then}.",
            load.title(),
            100.0 * mean,
            100.0 * most,
            100.0 * (row.mean / row.c).min(1.0),
        ));
    }
    let least = (of(ADAPTIVE, "c_least"), of(ADAPTIVE, "banks_free_at_least_c"));
    if let (Some(least), Some(banks)) = least {
        notes.push(format!(
            "{}: when c is least, {least:.2}, {banks:.1} banks' worth is free, and each zone and \
             pool holds on to a part of a bank.",
            load.title(),
        ));
    }
    let largest = (of(ADAPTIVE, "c_largest"), of(ADAPTIVE, "awake_banks_at_largest_c"));
    if let (Some(largest), Some(banks)) = largest {
        notes.push(format!(
            "{}: when c is largest, {largest:.2}, {banks:.1} banks' worth of free frames do not rest.",
            load.title(),
        ));
    }
    let awake = (of(ADAPTIVE, "awake_free_banks"), of(PACKED, "awake_free_banks"));
    if let (Some(own), Some(packed)) = awake {
        notes.push(format!(
            "{}: {own:.1} banks' worth of free frames do not rest on average, and {packed:.1} with \
             packed pools.",
            load.title(),
        ));
    }
    notes
}

/// The statements on a row. Table IV depends on the load's course and is judged
/// both ways, to a tenth of memory. c is the paper's measure of merit ("higher is
/// better"): its averages are judged from below, to 0.05; its range, "at all
/// times", by the least and by the largest value of each run, to 0.05.
fn claims(plan: &GreenPlan, run: &Run<'_>, row: &'static Row) -> Vec<Statement<Compared>> {
    let stated = row.stated;
    let (load, title) = (stated.load.title(), stated.title());
    let (place, c_place) = (format!("Table IV ({title})"), format!("Section V-D ({title})"));
    let conditions = stated.conditions(plan, run.quick);
    let measured = |statement: Statement<Compared>, design: Design, metric: &'static str| {
        statement.under(&conditions).fitted(FITTED).measured(move |found: &Compared| {
            found.grid.evidence(|view| of_design(stated.cells(view), design, metric))
        })
    };
    let mut claims = Vec::new();
    let both = [("maximum", row.max, "resting_max"), ("average", Some(row.mean), "resting_mean")];
    for (which, paper, metric) in both {
        let Some(paper) = paper else { continue };
        let says = format!("Adaptive-Buddy with migration: offlined memory, {which}");
        let statement = Statement::within(&place, &says, paper, 0.1).unit(Unit::Share).cause(
            "The load's course decides, which the paper does not give; the notes say what rests \
             when as much memory is free as the paper's figure and its c mean.",
        );
        claims.push(measured(statement, ADAPTIVE, metric));
    }
    let c = row.c;
    let average = format!("c is {c:.2} on average under {load} load");
    let says = format!("Adaptive-Buddy with migration: {average}");
    let held = "The free frames of banks that are in use do not rest; the notes say how many.";
    let statement = Statement::at_least(&c_place, &says, c, 0.05).cause(held);
    claims.push(measured(statement, ADAPTIVE, "c"));
    let ends = [
        (
            "least",
            "c_least",
            "Each zone and pool holds on to a part of a bank, whatever is free; the notes say how many \
             banks' worth is free when c is least. Smaller banks raise it.",
        ),
        (
            "largest",
            "c_largest",
            "Where most memory is free and nothing opens banks, few free frames do not rest; the notes say \
             how many banks' worth when c is largest.",
        ),
    ];
    for (which, metric, cause) in ends {
        let says = format!(
            "Adaptive-Buddy with migration: c is between 0.75 and 0.90 at all times; its {which}"
        );
        let statement = Statement::between(&c_place, &says, (0.75, 0.90), 0.05).cause(cause);
        claims.push(measured(statement, ADAPTIVE, metric));
    }
    let says = format!("Beyond: packed pools with migration; {average}");
    let statement = Statement::at_least(&c_place, &says, c, 0.0).cause(held);
    claims.push(measured(statement, PACKED, "c"));
    let beside = |says: &str, design, metric: &'static str| {
        let says = format!("Beyond: {says} the best of Linux's variants with the same daemon");
        let statement = Statement::at_least(&c_place, &says, 0.0, 0.0).under(&conditions);
        statement.measured(move |found: &Compared| {
            found.grid.evidence(|view| {
                let of = |design| of_design(stated.cells(view), design, metric);
                let [one, other] = LINUX.map(of);
                // The one who saves more is better: c from below, energy from above.
                match metric {
                    "c" => Ok(of(design)? - one?.max(other?)),
                    _ => Ok(one?.min(other?) - of(design)?),
                }
            })
        })
    };
    let cause = "Linux's blocks are wholly free banks as well, and a bank that hotplug took offline \
                 stays so until memory runs low; the finding has all of them.";
    let says = "packed pools with migration; c is above that of";
    claims.push(beside(says, PACKED, "c").fitted(FITTED).cause(cause));
    let says = "packed pools with migration; less energy, copies included, than";
    let statement = beside(says, PACKED, "energy_share").unit(Unit::Share);
    claims.push(statement.fitted(FITTED).cause(cause));
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::grid::Grid;

    #[test]
    fn cells_of_a_row_are_those_of_the_paper() {
        let axes = ["machine", "load", "interleaving", "bank_mib", "design"];
        let mut grid = Grid::new(&axes, 0);
        for bank in [64_u64, 256] {
            let at = ["4 GiB", "medium", "none"].map(Into::into).to_vec();
            let at = [at, vec![bank.into(), ADAPTIVE.title().into()]].concat();
            grid.add(at, &[metrics([("c", bank as f64)])]);
        }
        let of = |row: &Row| grid.evidence(|v| of_design(row.stated.cells(v), ADAPTIVE, "c"));
        assert_eq!(of(&TABLE_IV[5]).map(|found| found.estimate().value), Ok(256.0));
        assert_eq!(of(&TABLE_IV[4]).unwrap_err().to_string(), "axis load: no light");
    }
}
