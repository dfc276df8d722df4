//! Execution cycles in the timed system (section V-C, Fig. 15 to 18).

use std::io::Write;
use std::path::Path;

use swath_arch::{BASE_PAGE_BYTES, Order, SliceMemory};
use swath_hw::dram::trace::{TraceFormat, write_trace};
use swath_hw::system::{System, SystemConfig, SystemEvent, WriteResponse};
use swath_hw::{
    DramRequest, Geometry, Hierarchy, HierarchyConfig, Mmu, SharedBuffer, SystemStats, Transaction,
    Translate, WalkOrder,
};

use crate::papers::page_buddy::energy;
use crate::papers::page_buddy::energy::Nanojoules;
use crate::papers::page_buddy::translation::{
    Design, Hardware, MeasureError, Program, with_mapped,
};
use crate::papers::page_buddy::workload::{Category, Workload, WorkloadName};
use crate::source::memory::{Source, random};
use crate::source::real::Machine;
use crate::study::old::plan::{Machine as MachinePlan, SystemMachine, SystemPlan, SystemVariant};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};
use swath_trace::output;

/// A workload ready to run: where its buffers are, and what its masters do.
struct Timed {
    name: &'static str,
    category: Category,
    program: Program,
    masters: Vec<Vec<Transaction>>,
    shared: Vec<SharedBuffer>,
}

impl Timed {
    fn new(workload: &Workload) -> Self {
        let program = Program::of(workload);
        let masters = workload.masters.iter().map(|master| {
            let address = |t: crate::papers::page_buddy::workload::Transaction| Transaction {
                addr: program.address(t.buffer, t.offset_bytes),
                write: t.write,
            };
            master.transactions().map(address).collect()
        });
        // What one master writes and another reads, it reads when it is written.
        let uses = |master: usize, buffer: usize, write: bool| {
            let streams = &workload.masters[master].streams;
            streams.iter().any(|stream| stream.buffer == buffer && stream.write == write)
        };
        let all = 0..workload.masters.len();
        let handed_over = |buffer: usize| {
            all.clone().any(|writer| {
                uses(writer, buffer, true)
                    && all.clone().any(|reader| reader != writer && uses(reader, buffer, false))
            })
        };
        let shared = (0..workload.buffers.len()).filter(|&buffer| handed_over(buffer));
        let shared = shared.map(|buffer| SharedBuffer {
            start: program.address(buffer, 0),
            len_bytes: workload.buffers[buffer],
        });
        Self {
            name: workload.name,
            category: workload.category,
            masters: masters.collect(),
            shared: shared.collect(),
            program,
        }
    }
}

/// What one point gave, added up over its repeats.
#[derive(Clone, Copy, Default)]
struct Cycles {
    total: f64,
    /// The share of the masters' cycles in which a miss was under way.
    walking: f64,
    /// The share of column accesses that found their row open.
    row_hits: f64,
    /// Of the memory.
    energy: Nanojoules,
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &SystemPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let hardware = hardware(&plan.machine);
    let designs = designs(&plan.machine)?;
    let workloads: Vec<Timed> =
        plan.workloads.iter().map(|name| Timed::new(&name.build(&plan.shapes))).collect();
    let sizes = if run.quick { &plan.block_frames_quick } else { &plan.block_frames };
    let repeats = if run.quick { plan.repeats_quick } else { plan.repeats };
    let machine_memory = run.real.memory.as_deref();
    let sizes: &[u64] = if machine_memory.is_some() { &[0] } else { sizes };

    let mut points = Vec::new();
    let mut sweep = |system, sizes: &[u64]| {
        for timed in &workloads {
            for &size in sizes {
                points.extend(designs.iter().map(|&design| (system, timed, size, design)));
            }
        }
    };
    sweep(&plan.system, sizes);
    let variants: &[SystemVariant] = if machine_memory.is_some() { &[] } else { &plan.variants };
    for variant in variants {
        sweep(&variant.system, &plan.variant_block_frames);
    }
    let measured = run.points(about, &points, |(system, timed, size, design)| {
        let mut sum = Cycles::default();
        for repeat in 0..repeats {
            let point = (*system, *timed, *size, design);
            let one = simulated(plan, &hardware, machine_memory, point, repeat, &mut |_| {})?;
            let one = summary(&one, &config(system, timed));
            sum.total += one.total / repeats as f64;
            sum.walking += one.walking / repeats as f64;
            sum.row_hits += one.row_hits / repeats as f64;
            for (sum, part) in sum.energy.iter_mut().zip(one.energy) {
                *sum += part / repeats as f64;
            }
        }
        Ok(sum)
    })?;
    let of = |w: usize, l: usize, d: usize| &measured[(w * sizes.len() + l) * designs.len() + d];

    let (kind, x, x_label) = match machine_memory {
        None => (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)"),
        Some(_) => (FigureKind::Bars, "memory", "memory"),
    };
    let at = |l: usize, y: f64| match machine_memory {
        None => Point::at(sizes[l] as f64, y),
        Some(machine) => Point::named(machine.name.clone(), y),
    };
    let mut figures = Vec::new();
    let mut series = Vec::new();
    let in_category =
        |category| workloads.iter().enumerate().filter(move |(_, w)| w.category == category);
    for (n, (w, timed)) in in_category(Category::II).enumerate() {
        let (id, title) = if plan.claims {
            (format!("Fig. {}", 15 + n), timed.name)
        } else {
            (timed.name.to_owned(), "execution")
        };
        figures.push(Figure::new(&id, title, kind, x_label, "execution (million cycles)"));
        for (d, design) in designs.iter().enumerate() {
            let points = (0..sizes.len()).map(|l| at(l, of(w, l, d).total / 1e6));
            series.push(Series::new(&id, x, "cycles_millions", design.name, points));
        }
    }
    if in_category(Category::I).next().is_some() {
        let id = "Category I";
        let y_label = "cycles (TRAD = 1, mean over the sizes)";
        figures.push(Figure::new(id, "execution", FigureKind::Bars, "workload", y_label));
        for (d, design) in designs.iter().enumerate() {
            let points = in_category(Category::I).map(|(w, timed)| {
                let ratios = (0..sizes.len()).map(|l| of(w, l, d).total / of(w, l, 0).total);
                (timed.name, ratios.sum::<f64>() / sizes.len() as f64)
            });
            series.push(Series::new(id, "workload", "cycles_to_trad", design.name, points));
        }
    }
    type Part<'a> = &'a dyn Fn(&Cycles) -> f64;
    let shares: [(&str, &str, &str, Part<'_>); 2] = [
        ("Walking", "cycles behind a miss (share)", "walk_cycles_share", &|c| c.walking),
        ("Row hits", "column accesses to an open row (share)", "row_hit_share", &|c| c.row_hits),
    ];
    for (id, y_label, y, part) in shares {
        let figure = Figure::new(id, "mean over category II", kind, x_label, y_label);
        figures.push(figure.with_y_range(0.0, 1.0));
        let count = in_category(Category::II).count().max(1) as f64;
        for (d, design) in designs.iter().enumerate() {
            let points = (0..sizes.len()).map(|l| {
                let sum: f64 = in_category(Category::II).map(|(w, _)| part(of(w, l, d))).sum();
                at(l, sum / count)
            });
            series.push(Series::new(id, x, y, design.name, points));
        }
    }

    figures.extend(energy::figures(kind, x_label));
    for (d, design) in designs.iter().enumerate() {
        let mean = |l: usize| {
            let in_two = in_category(Category::II).map(|(w, _)| of(w, l, d).energy);
            let count = in_category(Category::II).count().max(1) as f64;
            in_two.fold(Nanojoules::default(), |mut mean, energy| {
                mean.iter_mut().zip(energy).for_each(|(mean, part)| *mean += part / count);
                mean
            })
        };
        let swept: Vec<Nanojoules> = (0..sizes.len()).map(mean).collect();
        series.extend(energy::series(design.name, x, &at, &swept));
    }

    let main = workloads.len() * sizes.len() * designs.len();
    let sizes_of_variant = &plan.variant_block_frames;
    let per_variant = workloads.len() * sizes_of_variant.len() * designs.len();
    if !variants.is_empty() {
        let id = "Readings";
        let y_label = "share of cycles saved by PBS (Category I: largest)";
        let title = "of what Table 3 leaves open";
        figures.push(Figure::new(id, title, FigureKind::Bars, "reading", y_label));
        let mut columns: Vec<Vec<(String, f64)>> = vec![Vec::new(); SAVINGS.len()];
        for (v, variant) in variants.iter().enumerate() {
            let cycles = |w: usize, l: usize, d: usize| {
                let at = (w * sizes_of_variant.len() + l) * designs.len() + d;
                measured[main + v * per_variant + at].total
            };
            let savings =
                Savings { sizes: sizes_of_variant, workloads: &workloads, cycles: &cycles };
            for (column, (_, category, from, to, over)) in columns.iter_mut().zip(SAVINGS) {
                column.push((variant.name.clone(), savings.most(category, from, to, over)));
            }
        }
        for (column, (name, ..)) in columns.into_iter().zip(SAVINGS) {
            series.push(Series::new(id, "reading", "saved_share", name, column));
        }
    }

    let cycles = |w: usize, l: usize, d: usize| of(w, l, d).total;
    let judged = plan.claims && machine_memory.is_none();
    let claims = if judged {
        claims(&Savings { sizes, workloads: &workloads, cycles: &cycles })
    } else {
        Vec::new()
    };
    let finding = format!(
        "{} Cycles are those of the 400 MHz command clock until the last transaction of every \
         master has completed. Of the readings tried, the default, one walk at a time and \
         nothing passing a miss, comes closest to the paper's figures for TRAD and PCAD.",
        about.purpose
    );
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes: vec![
                format!("Each point is the mean over {repeats} independent states of memory."),
                "A master reads a line that another writes only once it is written: the display \
                 of a rotated preview waits for the camera's whole image."
                    .to_owned(),
                "\"Better\" is the share of cycles saved: 1 - PBS / other.".to_owned(),
                energy::NOTE.to_owned(),
            ],
            ..run::result(about, plan, run, finding)
        },
        host: None,
    })
}

/// The plan's hardware before the memory of the paper's system.
fn hardware(machine: &MachinePlan) -> Hardware {
    let frames = SystemConfig::paper().dram.len_bytes() / BASE_PAGE_BYTES;
    Hardware { frames, ..Hardware::of(machine) }
}

fn designs(machine: &MachinePlan) -> Result<Vec<Design>, StudyError> {
    Ok(Design::of(machine)?.into_iter().filter(|design| !design.best_fit).collect())
}

/// Writes to `path` what the memory is asked for in one run, walks included, in
/// a simulator's trace format, so that a reader can check the memory's timing
/// there. Gives the number of transactions.
///
/// # Errors
/// [`StudyError`]; `path` is then as it was.
pub fn export(
    plan: &SystemPlan,
    workload: WorkloadName,
    design: &str,
    block_frames: u64,
    format: TraceFormat,
    path: &Path,
) -> Result<u64, StudyError> {
    let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
    let designs = designs(&plan.machine)?;
    let named = designs.iter().find(|known| known.name.eq_ignore_ascii_case(design));
    let design = named.ok_or_else(|| {
        let names: Vec<_> = designs.iter().map(|design| design.name).collect();
        StudyError::NoDesign { design: design.to_owned(), known: names.join(", ") }
    })?;
    let timed = Timed::new(&workload.build(&plan.shapes));
    let hardware = hardware(&plan.machine);
    let mut count = 0;
    let mut error = None;
    let written = output::replace(path, |file| {
        let mut line = String::new();
        let mut result = Ok(());
        let point = (&plan.system, &timed, block_frames, design);
        let run = simulated(plan, &hardware, None, point, 0, &mut |event| {
            let SystemEvent::Accepted { cycle, addr, write, .. } = event else { return };
            if result.is_ok() {
                line.clear();
                let request = DramRequest { id: count, addr, write };
                // Writing into a string does not fail.
                let _ = write_trace(&mut line, format, [(cycle, request)]);
                result = file.write_all(line.as_bytes());
                count += 1;
            }
        });
        match run {
            Ok(_) => result,
            Err(what) => {
                error = Some(what);
                Err(std::io::Error::other("the run failed"))
            }
        }
    });
    match (error, written) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(failed(format!("{}: {error}", path.display()))),
        (None, Ok(())) => Ok(count),
    }
}

/// One run of one point, showing each event.
fn simulated(
    plan: &SystemPlan,
    hardware: &Hardware,
    machine: Option<&Machine>,
    (system, timed, size, design): (&SystemMachine, &Timed, u64, &Design),
    repeat: u64,
    observe: &mut dyn FnMut(SystemEvent),
) -> Result<SystemStats, StudyError> {
    let mut random = random(plan.about.seed, repeat);
    let below;
    let source = match machine {
        Some(machine) => {
            below = hardware.free_of(machine, &timed.program);
            Source::Free(&below)
        }
        None => timed.program.scattered(size, plan.free_per_requested, plan.free_share),
    };
    let program = &timed.program;
    let hardware = &Hardware { anchor_log2: system.anchor_log2.and_then(Order::new), ..*hardware };
    let stats =
        with_mapped(hardware, design, &source, program, &mut random, |regime, memory, _| {
            let failed = |error: &dyn std::fmt::Display| MeasureError::Hardware(error.to_string());
            let order = WalkOrder::default();
            match &plan.hierarchy {
                None => simulate(system, timed, memory, observe, || {
                    Mmu::new(regime, hardware.tlb, order).map_err(|e| failed(&e))
                }),
                Some(behind) => simulate(system, timed, memory, observe, || {
                    let config = HierarchyConfig {
                        l1: hardware.tlb.into(),
                        l2: Geometry {
                            sets: behind.l2_sets,
                            ways: behind.l2_ways,
                            index_shift: behind.l2_index_shift,
                        }
                        .into(),
                        l2_cycles: behind.l2_cycles,
                        walk_cache_entries: behind.walk_cache_entries,
                        order,
                    };
                    Hierarchy::new(regime, &config).map_err(|e| failed(&e))
                }),
            }
        });
    stats.map_err(|error| StudyError::Machine {
        study: plan.about.study.clone(),
        what: format!("{} on {}: {error}", design.name, timed.name),
    })
}

/// Runs the masters of a workload, each with a translating machine of its own.
fn simulate<T: Translate>(
    system: &SystemMachine,
    timed: &Timed,
    memory: &SliceMemory<'_>,
    observe: &mut dyn FnMut(SystemEvent),
    machine: impl Fn() -> Result<T, MeasureError>,
) -> Result<SystemStats, MeasureError> {
    let failed = |error: &dyn std::fmt::Display| MeasureError::Hardware(error.to_string());
    let mut masters = Vec::new();
    for transactions in &timed.masters {
        masters.push((machine()?, transactions.iter().copied()));
    }
    let system = System::new(&config(system, timed), masters).map_err(|e| failed(&e))?;
    system.run_observed(memory, observe).map_err(|e| failed(&e))
}

/// The machine of the plan, with what the workload's masters share.
fn config(plan: &SystemMachine, timed: &Timed) -> SystemConfig {
    let mut config = SystemConfig::paper();
    config.outstanding_max = plan.outstanding_max;
    config.iommu.lookup_cycles = plan.lookup_cycles;
    config.iommu.walks_max = plan.walks_max;
    config.iommu.hit_under_miss = plan.hit_under_miss;
    config.interconnect.request_cycles = plan.request_cycles;
    config.interconnect.response_cycles = plan.response_cycles;
    if plan.posted_writes {
        config.interconnect.write_response = WriteResponse::Accepted;
    }
    config.shared.clone_from(&timed.shared);
    config
}

fn summary(stats: &SystemStats, config: &SystemConfig) -> Cycles {
    let walking: u64 = stats.masters.iter().map(|master| master.walk_cycles).sum();
    let busy: u64 = stats.masters.iter().map(|master| master.cycles()).sum();
    let dram = stats.dram.total();
    let columns = dram.row_hits + dram.row_misses + dram.row_conflicts;
    Cycles {
        total: stats.total_cycles as f64,
        walking: walking as f64 / busy.max(1) as f64,
        row_hits: dram.row_hits as f64 / columns.max(1) as f64,
        energy: energy::per_transaction(&config.dram, stats),
    }
}

// As Design::all has them.
const TRAD: usize = 0;
const PCAD: usize = 1;
const AT: usize = 2;
const PBS: usize = 3;

/// What is shown of each reading: name, category, block sizes, over which
/// design.
const SAVINGS: [(&str, Category, u64, u64, usize); 6] = [
    ("Category I, TRAD", Category::I, 1, 256, TRAD),
    ("size 1, AT", Category::II, 1, 1, AT),
    ("2 to 64, PCAD", Category::II, 2, 64, PCAD),
    ("2 to 64, AT", Category::II, 2, 64, AT),
    ("2 to 64, TRAD", Category::II, 2, 64, TRAD),
    ("128 to 256, AT", Category::II, 128, 256, AT),
];

/// Shares of cycles that PBS saves.
struct Savings<'a> {
    sizes: &'a [u64],
    workloads: &'a [Timed],
    /// By workload, size and design.
    cycles: &'a dyn Fn(usize, usize, usize) -> f64,
}

impl Savings<'_> {
    /// 1 - PBS / other, for each workload of a category and each size from
    /// `from` to `to`.
    fn all(
        &self,
        category: Category,
        from: u64,
        to: u64,
        over: usize,
    ) -> impl Iterator<Item = f64> {
        let sizes = (0..self.sizes.len()).filter(move |&l| (from..=to).contains(&self.sizes[l]));
        let workloads =
            (0..self.workloads.len()).filter(move |&w| self.workloads[w].category == category);
        workloads.flat_map(move |w| {
            let saved = move |l| 1.0 - (self.cycles)(w, l, PBS) / (self.cycles)(w, l, over);
            sizes.clone().map(saved)
        })
    }

    /// The largest; 0 if there is none.
    fn most(&self, category: Category, from: u64, to: u64, over: usize) -> f64 {
        self.all(category, from, to, over).reduce(f64::max).unwrap_or(0.0)
    }

    /// The largest difference either way.
    fn widest(&self, category: Category, from: u64, to: u64, over: usize) -> f64 {
        self.all(category, from, to, over).map(f64::abs).fold(0.0, f64::max)
    }
}

/// The statements of section V-C.
fn claims(savings: &Savings<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut claim = |claim: Claim, cause: &str| {
        let claim = claim.with_unit(Unit::Share);
        claims.push(if claim.holds() { claim } else { claim.with_cause(cause) });
    };
    let open = "The paper leaves open how an IOMMU overlaps its walks with data. Figure \
                \"Readings\" varies it; none of the readings meets every claim.";
    let (one, two) = (Category::I, Category::II);

    let spread = [TRAD, PCAD, AT].map(|over| savings.widest(one, 1, 256, over));
    let spread = spread.into_iter().fold(0.0, f64::max);
    let says = "Category I: the differences between all designs are less than 2%";
    let cause = "A walk is hidden behind the 16 transactions in flight if it comes alone: image \
                 scaling differs least. Where streams (blending) or the rows of a block (edge \
                 detection, convolution) cross into new pages together, walks queue up behind \
                 each other, one at a time.";
    claim(Claim::at_most("Section V-C", says, 0.02, spread, 0.0), &format!("{cause} {open}"));

    let place = "Section V-C, 1";
    for (over, name) in [(TRAD, "TRAD"), (PCAD, "PCAD")] {
        let says = format!("Block size 1: PBS is the same as {name} (largest difference)");
        let widest = savings.widest(two, 1, 1, over);
        claim(Claim::within(place, &says, 0.0, widest, 0.001), open);
    }
    let anchors = "AT walks twice here too, but less than twice as long: the anchor's descriptors \
                   mostly lie in the DRAM row that the first walk has opened, and a page that is \
                   its own anchor walks once, which at block size 1 is every second page. With \
                   anchors 512 pages apart (figure \"Readings\") the second walk comes nearer to \
                   the first.";
    let says = "Block size 1: PBS is up to 52% better than AT";
    claim(Claim::within(place, says, 0.52, savings.most(two, 1, 1, AT), 0.05), anchors);
    let place = "Section V-C, 2";
    for (over, name, paper) in [(PCAD, "PCAD", 0.30), (AT, "AT", 0.67), (TRAD, "TRAD", 0.78)] {
        let percent = 100.0 * paper;
        let says = format!("Block sizes 2 to 64: PBS is up to {percent:.0}% better than {name}");
        let most = savings.most(two, 2, 64, over);
        claim(
            Claim::within(place, &says, paper, most, 0.05),
            if over == AT { anchors } else { open },
        );
    }
    let place = "Section V-C, 3";
    let says = "Block sizes 128 to 256: PBS is close to PCAD (largest difference)";
    claim(Claim::within(place, says, 0.0, savings.widest(two, 128, 256, PCAD), 0.05), open);
    for (over, name, paper) in [(AT, "AT", 0.45), (TRAD, "TRAD", 0.79)] {
        let percent = 100.0 * paper;
        let says = format!("Block sizes 128 to 256: PBS is up to {percent:.0}% better than {name}");
        let most = savings.most(two, 128, 256, over);
        claim(
            Claim::within(place, &says, paper, most, 0.05),
            if over == AT { anchors } else { open },
        );
    }
    claims
}
