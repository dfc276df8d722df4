//! Figures and statements of section V-D, selected from the measured costs.
//!
//! **Measure.** The paper gives times, of which the verdict would differ from machine to
//! machine and from run to run: its statements are judged on instructions. Times and steps of
//! the lists stand beside them.
//!
//! **Reading.** Figure 4 adds contiguity to each descriptor, and section IV-B lists
//! that (5) among what PBS does and BBS does not; section V-D, 1, explains with
//! it why PBS is slower on large blocks. So here BBS writes descriptors alone. In
//! the paper's other studies BBS writes contiguity too, since PCAD coalesces
//! over it; that reading stands in figure "Readings".

use crate::host::machine::host_name;
use crate::papers::page_buddy::lists::{BBS, PBS};
use crate::papers::page_buddy::savings::{DESIGN, LEVEL};
use crate::papers::page_buddy::subject::{
    Act, BBS_WRITING, Load, Memory, PBS_INSIDE, Structure, Subject, Work,
};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Evidence, Grid, Missing, Value, largest, mean};
use crate::study::kind::{Drawn, HostShown, Shown};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::verdict::Unit;

const WORK: &str = "work";
const STRUCTURE: &str = "structure";
/// The axes of everything that has a cost.
pub(crate) const COST_AXES: [&str; 4] = [WORK, DESIGN, STRUCTURE, LEVEL];

/// Costs and blocks.
pub struct Costs {
    /// Instructions, or the reason why there are none.
    pub counts: Result<Grid, String>,
    /// Nanoseconds.
    pub times: Grid,
    /// Steps of the paper's lists.
    pub steps: Grid,
    /// Blocks that serve the request.
    pub blocks: Grid,
}

/// The place of a cost on these axes.
pub(crate) fn at(work: Work, act: Act, subject: &Subject, memory: &Memory<'_>) -> Vec<Value> {
    let (design, structure) = (subject.design.as_str(), subject.structure.title());
    vec![work.figure(act).into(), design.into(), structure.into(), memory.x()]
}

/// The pages that the paper requests.
const PAGES: u64 = 900;

/// The metric of a grid of times, and of one of instructions.
const TIME: &str = "nanoseconds";
const INSTRUCTIONS: &str = "instructions";

/// The x axis: kind, name with unit, and words.
type XAxis = (FigureKind, &'static str, &'static str);

/// The report of what was found.
pub(crate) fn show(load: &Load<'_>, counted: &Load<'_>, machine: bool, found: &Costs) -> Shown {
    let x = match machine {
        true => (FigureKind::Bars, "memory", "memory"),
        false => (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)"),
    };
    let mut host = HostShown { machine: host_name(), ..HostShown::default() };
    if !machine {
        let same = load.demands == counted.demands;
        host.figures.push(readings(found, same));
    }
    host.figures.extend(time_figures(&found.times, x));
    match &found.counts {
        Err(why) => host.notes.push(format!("Instructions were not measured: {why}.")),
        Ok(counts) => host.figures.extend(count_figures(counted, counts, x)),
    }
    let mut figures = vec![block_figure(load, found, x)];
    figures.extend(step_figures(load, &found.steps, x));
    let mut notes = vec![
        "\"Lists\" are the paper's structure: linked lists ordered by frame number, scanned \
         from the highest order down. Without that word the same blocks come from bitmaps, \
         where no order is scanned."
            .to_owned(),
        "BBS writes descriptors alone, PBS contiguity too, in a word beside each descriptor: \
         sections IV-B, 5, and V-D, 1, charge contiguity to PBS. \"BBS with contiguity\" is the \
         other reading, \"PBS, contiguity in the descriptor\" writes what fits into the two bits \
         that ARMv7 leaves free."
            .to_owned(),
        "Frames are freed in the order in which they were allocated. The paper does not \
         measure de-allocation. On ordered lists each free walks to the node's place, further \
         where fewer lists are longer; at block \
         size 1 the nodes just fill a first-level cache, and lists that do the same work can \
         differ by half in time: there the steps say more."
            .to_owned(),
    ];
    if counted.demands != load.demands {
        notes.push(format!(
            "Instructions are counted for {} pages: stepping takes some thirty microseconds an \
             instruction, and valgrind, with which all are counted, is not installed. The \
             statements, which are judged on instructions, are for {} pages; times and steps are \
             taken for {}.",
            counted.demands.request_frames, PAGES, load.demands.request_frames
        ));
    }
    Shown { finding: finding(found), figures, notes, host: Some(host) }
}

/// The steps of de-allocation, which follow from the plan.
fn finding(found: &Costs) -> String {
    let saved = |work, act| {
        let saved = found.steps.evidence(|view| {
            let cells = view.select().is(WORK, Work::figure(work, act));
            let ratio = |pbs: &CellView<'_>, bbs: &CellView<'_>| {
                Ok(1.0 - pbs.get("steps")? / bbs.get("steps")?)
            };
            Ok(mean(&cells.pairs(DESIGN, PBS, BBS, ratio)?))
        });
        saved.map(|saved| 100.0 * saved.estimate().value)
    };
    let words = |percent: f64| match percent {
        fewer if fewer >= 0.0 => format!("{fewer:.0}% fewer"),
        more => format!("{:.0}% more", -more),
    };
    let steps = |work| Ok::<_, Missing>((saved(work, Act::Allocate)?, saved(work, Act::Free)?));
    let (Ok(request), Ok(single)) = (steps(Work::Request), steps(Work::Demand)) else {
        return String::new();
    };
    format!(
        "Averaged over the block sizes, the paper's lists take {} steps with {PBS} than with {BBS} \
         to allocate a request and {} to free its blocks; for single pages {} and {}.",
        words(request.0),
        words(request.1),
        words(single.0),
        words(single.1)
    )
}

/// Every subject in a grid's order, but for the reading that figure "Readings"
/// alone shows.
fn lines(grid: &Grid) -> Vec<(String, &'static str, String)> {
    let designs = grid.values(DESIGN).into_iter();
    let designs = designs.filter(|design| design.word() != Some(PBS_INSIDE));
    let structures: Vec<Structure> = Structure::WITH_OWN
        .into_iter()
        .filter(|structure| grid.values(STRUCTURE).contains(&&structure.title().into()))
        .collect();
    designs
        .flat_map(|design| structures.iter().map(move |structure| (design.to_string(), *structure)))
        .map(|(design, structure)| {
            let name = structure.named(&design);
            (design, structure.title(), name)
        })
        .collect()
}

/// A line for each subject that has this work.
fn series(
    grid: &Grid,
    (id, x): (&str, &str),
    (metric, per): (&str, u64),
    (work, act): (Work, Act),
) -> Vec<Series> {
    let of = |(design, structure, name): (String, &str, String)| {
        let points = grid.points(
            LEVEL,
            |all| {
                let all = all.is(WORK, work.figure(act));
                all.is(DESIGN, design.as_str()).is(STRUCTURE, structure)
            },
            |cell| Ok(cell.get(metric)? / per as f64),
        );
        Series::new(id, x, metric, &name, points)
    };
    let drawn = lines(grid).into_iter().map(of);
    drawn.filter(|series| !series.points.is_empty()).collect()
}

fn count_figures(load: &Load<'_>, grid: &Grid, (kind, x, x_label): XAxis) -> Vec<Drawn> {
    let demands = load.demands;
    let drawn = |work: Work| {
        let (id, pages) = (work.figure(Act::Allocate), demands.request_frames);
        let y_label = match work {
            Work::Demand => "instructions for a page".to_owned(),
            Work::Eager | Work::Request => format!("instructions for {pages} pages"),
        };
        let figure = Figure::new(id, work.title(Act::Allocate), kind, x_label, &y_label);
        let metric = (INSTRUCTIONS, work.operations(demands));
        Drawn { figure, series: series(grid, (id, x), metric, (work, Act::Allocate)) }
    };
    Work::ALL.map(drawn).to_vec()
}

fn step_figures(load: &Load<'_>, grid: &Grid, (kind, x, x_label): XAxis) -> Vec<Drawn> {
    let caption = "Lists looked at for a block, nodes looked at, and nodes changed, together.";
    let drawn = |act: Act, work: Work| {
        let id = format!("{}, steps", work.figure(act));
        let y_label = match work {
            Work::Demand => "steps for a page".to_owned(),
            Work::Eager | Work::Request => {
                format!("steps for {} pages", load.demands.request_frames)
            }
        };
        let figure = Figure::new(&id, work.title(act), kind, x_label, &y_label);
        let metric = ("steps", work.operations(load.demands));
        let series = series(grid, (&id, x), metric, (work, act));
        Drawn { figure: figure.with_caption(caption), series }
    };
    let all = Act::ALL.into_iter();
    let all = all.flat_map(|act| [Work::Request, Work::Demand].map(|work| drawn(act, work)));
    all.filter(|drawn| !drawn.series.is_empty()).collect()
}

fn time_figures(grid: &Grid, (kind, x, x_label): XAxis) -> Vec<Drawn> {
    let caption = "Medians of runs taken in turn, each against BBS on the same structure.";
    let drawn = |act: Act, work: Work| {
        let id = format!("{}, time", work.figure(act));
        let figure = Figure::new(&id, work.title(act), kind, x_label, "time (design / BBS)");
        let others = lines(grid).into_iter().filter(|(design, ..)| design != BBS);
        let series = others.map(|(design, structure, name)| {
            let points = grid.values(LEVEL).into_iter().filter_map(|level| {
                let ratio = grid.evidence(|view| {
                    let cells = view.select().is(WORK, work.figure(act)).is(STRUCTURE, structure);
                    let cells = cells.is(LEVEL, level.clone());
                    let of = |pbs: &CellView<'_>, bbs: &CellView<'_>| {
                        Ok(pbs.get(TIME)? / bbs.get(TIME)?)
                    };
                    Ok(mean(&cells.pairs(DESIGN, design.as_str(), BBS, of)?))
                });
                Some(ratio.ok()?.point(level.clone()))
            });
            Series::new(&id, x, "time_ratio", &name, points.collect::<Vec<_>>())
        });
        let series = series.filter(|series| !series.points.is_empty()).collect();
        Drawn { figure: figure.with_caption(caption), series }
    };
    Act::ALL.into_iter().flat_map(|act| Work::ALL.map(|work| drawn(act, work))).collect()
}

fn block_figure(load: &Load<'_>, found: &Costs, (kind, x, x_label): XAxis) -> Drawn {
    let id = "Blocks for a request";
    let title = format!("Blocks that serve {} pages", load.demands.request_frames);
    let figure = Figure::new(id, &title, kind, x_label, "blocks");
    let of = |design: &&Value| {
        let points = found.blocks.points(
            LEVEL,
            |all| all.is(DESIGN, (*design).clone()),
            |cell| cell.get("blocks"),
        );
        Series::new(id, x, "blocks", &design.to_string(), points)
    };
    Drawn { figure, series: found.blocks.values(DESIGN).iter().map(of).collect() }
}

const ALL_LEVELS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Shares of a cost that one design saves over another at these sizes.
#[derive(Clone, Copy)]
struct Saving {
    structure: Structure,
    work: Work,
    sizes: &'static [u64],
    statistic: fn(&[f64]) -> f64,
}

impl Saving {
    fn of(self, grid: &Grid, metric: &str, design: &str, over: &str) -> Result<Evidence, Missing> {
        grid.evidence(|view| {
            let cells = view.select().is(WORK, self.work.figure(Act::Allocate));
            let cells = cells.is(STRUCTURE, self.structure.title());
            let cells = cells.all(LEVEL, self.sizes.iter().copied());
            let saved = |pbs: &CellView<'_>, bbs: &CellView<'_>| {
                Ok(1.0 - pbs.get(metric)? / bbs.get(metric)?)
            };
            Ok((self.statistic)(&cells.pairs(DESIGN, design, over, saved)?))
        })
    }
}

/// The four numbers of section V-D: place, words, the paper's figure, and how it
/// is measured.
fn stated(structure: Structure) -> [(&'static str, &'static str, f64, Saving); 4] {
    let saving = |work, sizes, statistic| Saving { structure, work, sizes, statistic };
    let eager = "Section V-D, 1, Fig. 19";
    [
        (
            eager,
            "Eager, block sizes 1 to 16: PBS is up to 25% better than BBS",
            0.25,
            saving(Work::Eager, &ALL_LEVELS[..5], largest),
        ),
        (
            eager,
            "Eager, block size 256: PBS is up to 9% worse than BBS",
            0.09,
            saving(Work::Eager, &ALL_LEVELS[8..], |saved| -largest(saved)),
        ),
        (
            eager,
            "Eager: PBS is on average 8% better than BBS",
            0.08,
            saving(Work::Eager, &ALL_LEVELS, mean),
        ),
        (
            "Section V-D, 2, Fig. 20",
            "Demand: PBS is on average 17% better than BBS",
            0.17,
            saving(Work::Demand, &ALL_LEVELS, mean),
        ),
    ]
}

/// The same four numbers under each reading, in times, and in instructions if
/// they were counted under the same load.
fn readings(found: &Costs, counted: bool) -> Drawn {
    let id = "Readings";
    let title = "Section V-D on the paper's lists, by what is charged to whom";
    let figure = Figure::new(id, title, FigureKind::Table, "the paper says", "");
    let caption = "Shares saved, as in the claims, which are judged on instructions. The first \
                   column is their reading: BBS writes descriptors alone.";
    let pairs = [
        ("BBS writes descriptors alone", PBS, BBS),
        ("BBS writes contiguity too", PBS, BBS_WRITING),
        ("PBS writes it into the descriptor", PBS_INSIDE, BBS),
    ];
    let column = |grid: &Grid, metric: &'static str, (name, design, over): (&str, &str, &str)| {
        let points = stated(Structure::Lists).into_iter().filter_map(|(_, says, _, saving)| {
            let evidence = saving.of(grid, metric, design, over).ok()?;
            Some(evidence.point(says))
        });
        let unit = if metric == TIME { "time" } else { INSTRUCTIONS };
        Series::new(
            id,
            "statement",
            "share",
            &format!("{name} ({unit})"),
            points.collect::<Vec<_>>(),
        )
    };
    let times = pairs.map(|pair| column(&found.times, TIME, pair)).into_iter();
    let counts = found.counts.iter().filter(|_| counted);
    let counts = counts.flat_map(|grid| pairs.map(|pair| column(grid, INSTRUCTIONS, pair)));
    let series = times.chain(counts).filter(|series| !series.points.is_empty()).collect();
    Drawn { figure: figure.with_caption(caption), series }
}

/// The parameter that was chosen by its results.
const FITTED: &str = "that BBS writes no contiguity here: the paper's words say so (sections \
                      IV-B, 5, and V-D, 1), but it was chosen after the other reading had been \
                      measured; figure \"Readings\" has both";

/// The statements of section V-D, judged on instructions, which are the same on every run of a
/// program, for each structure. The paper gives whole per cent that it reads off small figures: 5
/// points.
pub(crate) fn claims(conditions: &Conditions, load: &Load<'_>) -> Vec<Statement<Costs>> {
    let conditions = conditions.clone().same("free frames", 1024, load.free_frames);
    let eager = conditions.clone().same("pages requested", PAGES, load.demands.request_frames);
    let demand = conditions.same("single pages requested", PAGES, load.demands.demand_frames);
    let of = |structure: Structure| {
        let name = match structure {
            Structure::Lists => "the paper's lists",
            Structure::Bitmaps | Structure::Own => "Swath's bitmaps",
        };
        let (eager, demand) = (&eager, &demand);
        stated(structure).map(move |(place, says, paper, saving)| {
            let reading = match saving.work {
                Work::Demand => "",
                Work::Eager | Work::Request => ", BBS without contiguity",
            };
            let says = format!("{says} ({name}, instructions{reading})");
            let statement = Statement::within(place, &says, paper, 0.05).unit(Unit::Share);
            let statement = match saving.work {
                Work::Demand => statement.under(demand),
                Work::Eager | Work::Request => statement.under(eager).fitted(FITTED),
            };
            let cause = cause(structure, saving);
            statement.cause(cause).on_host().measured(move |found: &Costs| {
                let counts = found.counts.as_ref().map_err(|why| Missing {
                    axis: INSTRUCTIONS.to_owned(),
                    lacks: format!("count ({why})"),
                })?;
                saving.of(counts, INSTRUCTIONS, PBS, BBS)
            })
        })
    };
    Structure::ALL.into_iter().flat_map(of).collect()
}

/// The cause for which a statement does not hold.
fn cause(structure: Structure, saving: Saving) -> &'static str {
    match (structure, saving.work, saving.sizes) {
        (Structure::Lists, Work::Demand, _) => {
            "The gain depends on how a list implementation takes one frame from a longer node. \
             Here it shortens the node where it stands, while BBS splits a block once for each \
             order, and looks at nine lists for every page (figure \"Fig. 20, steps\")."
        }
        (Structure::Bitmaps | Structure::Own, Work::Demand, _) => {
            "No order is scanned in either allocator. What BBS pays is the splitting of large \
             blocks, order by order, so its cost grows with the size of the free blocks (figure \
             \"Fig. 20\")."
        }
        (_, _, [256]) => {
            "With few blocks the descriptors are most of the work (figure \"Fig. 19, allocator \
             alone\" is without them). Contiguity is a second word for each page here, in a second \
             table that is cleared too; in the descriptor itself it costs less (figure \"Readings\")."
        }
        (_, _, [1, ..]) if saving.sizes.len() < ALL_LEVELS.len() => {
            "On blocks of 4 and 8 pages PBS serves the request in half as many blocks as BBS or \
             fewer (figure \"Blocks for a request\"), and here a block costs several times as much \
             as its descriptors (figures \"Fig. 19, allocator alone\" and \"Fig. 19\")."
        }
        _ => {
            "PBS gains more than the paper says on small blocks, by their smaller number (figure \
             \"Blocks for a request\"), and loses more on large ones, by the words of contiguity \
             (figure \"Readings\")."
        }
    }
}
