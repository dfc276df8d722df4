//! The hardware of `rtl/`: linted, simulated beside the models, synthesised, proved.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::bare_metal::Toolchain;
use crate::rtl_cost;

/// A part of the chore.
struct Part {
    name: &'static str,
    /// The programs that it needs, each with the distribution's package.
    tools: &'static [(&'static str, &'static str)],
    /// It needs a compiler for the system's program.
    compiles: bool,
    run: fn(&Room) -> Result<()>,
}

const VERILATOR: (&str, &str) = ("verilator", "verilator");
const CPP: (&str, &str) = ("c++", "g++");
const YOSYS: (&str, &str) = ("yosys", "yosys");

const PARTS: &[Part] = &[
    Part { name: "lint", tools: &[VERILATOR], compiles: false, run: lint },
    Part { name: "cosim", tools: &[VERILATOR, CPP], compiles: false, run: cosim },
    Part { name: "system", tools: &[VERILATOR, CPP], compiles: true, run: system },
    Part { name: "synth", tools: &[YOSYS], compiles: false, run: synth },
    Part { name: "prove", tools: &[YOSYS], compiles: false, run: prove },
    Part { name: COST, tools: &[YOSYS], compiles: false, run: cost },
    Part { name: TIMES, tools: &[VERILATOR, CPP], compiles: true, run: times },
];

/// The parts that are run only if they are named: they take many minutes, and write files that are kept.
const COST: &str = "cost";
const TIMES: &str = "times";

/// Where the times of the system stand: beside what the study `rt-hardware` reads.
const TIMES_TABLE: &str = "../crates/swath-lab/data/system.csv";

/// The number of seeds of the times, the actions of each, and the arcs of each one's footprint: both the paper's, which
/// has "three rising curves, each ended with a drop" (section V-B).
const TIMES_SEEDS: u64 = 5;
const TIMES_ACTIONS: u64 = 1_000_000;
const TIMES_ARCS: u64 = 3;

/// What the system's program is built for, and the instructions of its core beyond.
const CORE: &str = "riscv32i-unknown-none-elf";
const CORE_FEATURES: &str = "-Ctarget-feature=+zbb";

/// A module that is a product, with what it is made of.
struct Top {
    name: &'static str,
    files: &'static [&'static str],
    /// LUT4 of an ECP5 that it may take, two for each carry cell.
    lut4_max: u64,
}

const TOPS: &[Top] = &[
    Top {
        name: "rtmmu_arrays",
        files: &[
            "rtmmu/verdict.sv",
            "rtmmu/two_reads.sv",
            "rtmmu/data_port.sv",
            "rtmmu/hold.sv",
            "rtmmu/rtmmu_arrays.sv",
        ],
        lut4_max: 900,
    },
    Top {
        name: "rtmmu_nodes",
        files: &["rtmmu/verdict.sv", "rtmmu/data_port.sv", "rtmmu/hold.sv", "rtmmu/rtmmu_nodes.sv"],
        lut4_max: 900,
    },
    Top {
        name: "page_table_unit",
        files: &["rtmmu/verdict.sv", "rtmmu/data_port.sv", "rtmmu/page_table_unit.sv"],
        lut4_max: 200,
    },
    Top { name: "walker", files: &["tlb/walker.sv"], lut4_max: 600 },
    Top { name: "core", files: &["system/core.sv"], lut4_max: 5_000 },
    Top { name: "range_tlb", files: &["tlb/range_tlb.sv"], lut4_max: 16_000 },
];

/// A statement, proved by induction from the reset on.
struct Proof {
    top: &'static str,
    /// Its parameters, as yosys takes them.
    parameters: &'static str,
    files: &'static [&'static str],
    /// Cycles from the reset on that are looked at, from which the induction goes on.
    steps: u32,
    /// Changes of the hardware that the proof must not survive: file, text, other text.
    mutants: &'static [(&'static str, &'static str, &'static str)],
}

const ARRAYS: &[&str] = &[
    "rtmmu/verdict.sv",
    "rtmmu/two_reads.sv",
    "rtmmu/data_port.sv",
    "rtmmu/hold.sv",
    "rtmmu/rtmmu_arrays.sv",
    "proofs/arrays.sv",
];

const TLB: &[&str] = &["tlb/range_tlb.sv", "proofs/tlb.sv"];

const PROOFS: &[Proof] = &[
    Proof {
        top: "arrays",
        parameters: "",
        files: ARRAYS,
        steps: 12,
        mutants: &[
            // A fault comes as soon as it is known.
            ("rtmmu/hold.sv", "assign over = age == cycles;", "assign over = 1'b1;"),
            // A stale page behind the end of a stack.
            ("rtmmu/rtmmu_arrays.sv", "place} < p1_rsp_data;", "place} <= p1_rsp_data;"),
            // Nobody looks who stands in the place.
            ("rtmmu/rtmmu_arrays.sv", "p2_rsp_data != page_word", "1'b0"),
        ],
    },
    Proof {
        top: "tlb_any",
        parameters: "-set FORM 0 -set LEAF_BITS 3",
        files: TLB,
        steps: 6,
        mutants: &[
            // Any page will do.
            ("tlb/range_tlb.sv", "same[i] && low[i] == probe_low;", "same[i];"),
        ],
    },
    Proof {
        top: "tlb_any",
        parameters: "-set FORM 1 -set LEAF_BITS 3",
        files: TLB,
        steps: 6,
        mutants: &[
            // What lies in a new one stays beside it.
            ("tlb/range_tlb.sv", "high[i] | (phase == WRITE ? to : '0);", "high[i];"),
            // The frame of the demanded page for all of them.
            ("tlb/range_tlb.sv", "frame & ~ones : frame;", "frame : frame;"),
        ],
    },
    Proof {
        top: "tlb_any",
        parameters: "-set FORM 2 -set LEAF_BITS 3",
        files: TLB,
        steps: 14,
        mutants: &[
            // A new run is not cut where an older one sticks out before it, or after it.
            ("tlb/range_tlb.sv", "from <= found_high + 1'b1;", "from <= from;"),
            ("tlb/range_tlb.sv", "to <= found_low - 1'b1;", "to <= to;"),
            // What lies in a new one stays beside it.
            ("tlb/range_tlb.sv", "same & below_end & (from == '0 ? '1 : ~begins);", "'0;"),
        ],
    },
    Proof {
        top: "tlb_any",
        parameters: "-set FORM 2 -set LEAF_BITS 2",
        files: TLB,
        steps: 14,
        mutants: &[
            // The upper bits of the page are not looked at.
            (
                "tlb/range_tlb.sv",
                "match[i] = same[i] && begins[i] && probe_low <= high[i];",
                "match[i] = valid[i] && begins[i] && probe_low <= high[i];",
            ),
        ],
    },
];

/// Where things lie.
struct Room {
    rtl: PathBuf,
    target: PathBuf,
    accesses: u64,
    actions: u64,
    seed: u64,
}

/// Names of the parts, in the order in which they run.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// How much is done.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Which of them; all but `cost` and `times` if none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    parts: Vec<String>,
    /// Accesses of each run of the co-simulation, of which there are 27.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..))]
    accesses: u64,
    /// Actions of the trace that the system runs.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..))]
    actions: u64,
    /// The seed of the co-simulation and of the trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the parts that are named; the last line says how many passed, failed and were not run.
///
/// # Errors
/// A part that failed, or none that could be run.
pub(crate) fn rtl(metadata: &Metadata, choice: &Choice) -> Result<()> {
    let room = Room {
        rtl: metadata.workspace_root.join("rtl").into(),
        target: metadata.target_directory.join("rtl").into(),
        accesses: choice.accesses,
        actions: choice.actions,
        seed: choice.seed,
    };
    std::fs::create_dir_all(&room.target)?;
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    for Part { name, tools, compiles, run } in PARTS {
        let is_chosen = match choice.parts.is_empty() {
            true => ![COST, TIMES].contains(name),
            false => choice.parts.iter().any(|part| part == name),
        };
        if !is_chosen {
            continue;
        }
        let lacks = |tool: &&(&str, &str)| Command::new(tool.0).arg("--version").output().is_err();
        if let Some((tool, package)) = tools.iter().find(lacks) {
            left += 1;
            println!("{name}: not run, no {tool} here; the package {package} has it");
            continue;
        }
        if *compiles && let Err(lack) = Toolchain::from_source(CORE) {
            left += 1;
            println!("{name}: not run, {lack}");
            continue;
        }
        let began = Instant::now();
        match run(&room) {
            Ok(()) => {
                passed += 1;
                println!("{name}: passed in {:.1} s", began.elapsed().as_secs_f64());
            }
            Err(error) => {
                failed += 1;
                println!("{name}: failed, {error:#}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {left} not run");
    ensure!(failed == 0, "a part failed");
    ensure!(passed > 0, "no part could be run here");
    Ok(())
}

/// Runs a command, and returns what it printed if it ended well.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}{errors}", text.lines().rev().take(5).collect::<Vec<_>>().join("\n"));
    }
    Ok(text)
}

fn lint(room: &Room) -> Result<()> {
    for Top { name, files, .. } in TOPS {
        let mut command = Command::new("verilator");
        command.args(["--lint-only", "-Wall", "--top-module", name]).args(*files);
        said(command.current_dir(&room.rtl))?;
        println!("  {name}: no warning");
    }
    Ok(())
}

/// Builds the co-simulation; returns a command that runs it.
fn cosimulator(room: &Room) -> Result<Command> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--target-dir"]).arg(&room.target);
    ensure!(build.current_dir(room.rtl.join("cosim")).status()?.success(), "it was not built");
    Ok(Command::new(room.target.join("release/swath-cosim")))
}

fn cosim(room: &Room) -> Result<()> {
    let mut run = cosimulator(room)?;
    run.arg("units").args([room.accesses, room.seed].map(|number| number.to_string()));
    ensure!(run.status()?.success(), "hardware and model differ");
    Ok(())
}

/// Builds the program of the system; returns its file.
fn program(room: &Room) -> Result<PathBuf> {
    let toolchain = Toolchain::from_source(CORE).map_err(anyhow::Error::msg)?;
    let folder = room.rtl.join("system/program");
    let mut build = toolchain.cargo_with("build", &folder, CORE_FEATURES);
    build.args(["--release", "--quiet", "--target-dir"]).arg(room.target.join("program"));
    ensure!(build.status()?.success(), "the system's program was not built");
    Ok(room.target.join("program").join(CORE).join("release/swath-system"))
}

/// Runs the core beside its interpreter and the paper's trace on the system, and returns the rows of its table.
fn run_system(room: &Room, actions: u64, seed: u64) -> Result<String> {
    let program = program(room)?;
    let mut run = cosimulator(room)?;
    run.arg("system").arg(program).args([actions, seed].map(|number| number.to_string()));
    let output = run.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the system's run failed");
    Ok(String::from_utf8(output.stdout)?)
}

fn system(room: &Room) -> Result<()> {
    let table = run_system(room, room.actions, room.seed)?;
    let rows = table.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() == 13).collect();
    for (name, kind) in [("access", "access"), ("allocation", "allocation"), ("release", "release")]
    {
        let most = |system: &str| {
            let of = rows.iter().filter(|row| row[0] == system && row[6] == kind);
            of.filter_map(|row| row[12].parse::<u64>().ok()).max().unwrap_or(0)
        };
        let (regions, conventional) = (most("regions"), most("conventional"));
        println!(
            "  longest {name}: {regions} cycles over regions, {conventional} over a page table"
        );
        ensure!(regions > 0 && conventional > 0, "no {name} was measured");
        ensure!(
            kind != "access" || regions == conventional,
            "an access takes longer through the RTMMU"
        );
    }
    Ok(())
}

/// Writes the table of the system's times anew.
fn times(room: &Room) -> Result<()> {
    let mut table = String::new();
    let mut course = cosimulator(room)?;
    course.arg("seeds");
    let seeds = said(course.args([TIMES_SEEDS, TIMES_ACTIONS, TIMES_ARCS].map(|n| n.to_string())))?;
    for seed in seeds.lines() {
        let rows = run_system(room, TIMES_ACTIONS, seed.parse()?)?;
        // One head.
        table.extend(rows.split_inclusive('\n').skip(usize::from(!table.is_empty())));
    }
    std::fs::write(room.rtl.join(TIMES_TABLE), table)?;
    Ok(())
}

/// Writes the table of costs anew.
fn cost(room: &Room) -> Result<()> {
    let tops: Vec<(&str, &[&str])> = TOPS
        .iter()
        .filter(|top| !["core", "walker", "range_tlb"].contains(&top.name))
        .map(|top| (top.name, top.files))
        .collect();
    rtl_cost::table(&room.rtl, &room.target, &tops)
}

fn synth(room: &Room) -> Result<()> {
    for Top { name, files, lut4_max } in TOPS {
        let script = format!("read_verilog -sv {}; synth_ecp5 -top {name}; stat", files.join(" "));
        let text = said(Command::new("yosys").args(["-p", &script]).current_dir(&room.rtl))?;
        let statistics = text.rsplit("Printing statistics").next().unwrap_or_default();
        let cells = |kind: &str| {
            let mut lines =
                statistics.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let found = lines.find(|words| words.len() == 2 && words.contains(&kind));
            let number = found.and_then(|words| words.iter().find_map(|word| word.parse().ok()));
            number.unwrap_or(0_u64)
        };
        let lut4 = cells("LUT4") + 2 * cells("CCU2C");
        println!("  {name}: {lut4} LUT4, {} flip-flops (ECP5)", cells("TRELLIS_FF"));
        ensure!(cells("TRELLIS_FF") > 0, "{name}: the synthesis has no flip-flop");
        ensure!(lut4 <= *lut4_max, "{name}: more than {lut4_max} LUT4");
    }
    Ok(())
}

fn prove(room: &Room) -> Result<()> {
    for proof in PROOFS {
        let name = format!("{} {}", proof.top, proof.parameters.replace("-set ", ""));
        let name = name.trim();
        ensure!(holds(proof, &room.rtl, Search::Induction)?, "{name}: not proved");
        println!("  {name}: proved by induction");
        for (file, text, other) in proof.mutants {
            let mutant = room.target.join("mutant");
            for path in proof.files {
                let path = Path::new(path);
                let content = std::fs::read_to_string(room.rtl.join(path))?;
                let changed = if path == Path::new(file) {
                    ensure!(
                        content.matches(text).count() == 1,
                        "{file}: \"{text}\" is not there once"
                    );
                    content.replace(text, other)
                } else {
                    content
                };
                let to = mutant.join(path);
                std::fs::create_dir_all(to.parent().context("a file in a folder")?)?;
                std::fs::write(to, changed)?;
            }
            ensure!(
                !holds(proof, &mutant, Search::Bounded)?,
                "{name}: proved of \"{other}\" in {file} too"
            );
            println!("  {name}: refuted where \"{text}\" is \"{other}\"");
        }
    }
    Ok(())
}

/// The ways to look for a counterexample.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Within the proof's cycles after the reset, and by induction after them.
    Induction,
    /// Within the proof's cycles after the reset alone.
    Bounded,
}

/// Returns true if there is no counterexample over the files below `root`, false if there is one that begins at
/// the reset.
fn holds(proof: &Proof, root: &Path, search: Search) -> Result<bool> {
    let Proof { top, parameters, files, steps, .. } = proof;
    let files = files.join(" ");
    let chosen = match *parameters {
        "" => String::new(),
        parameters => format!("chparam {parameters} {top}; "),
    };
    let how = match search {
        Search::Induction => format!("-tempinduct -initsteps {}", steps - 1),
        Search::Bounded => "-tempinduct -tempinduct-baseonly".to_owned(),
    };
    let script = format!(
        "read_verilog -sv -formal -defer {files}; {chosen}prep -top {top} -flatten; async2sync; \
         opt -full -nodffe -nosdff; dffunmap; techmap; opt -fast; \
         sat {how} -maxsteps {steps} -prove-asserts -set-assumes -seq 1"
    );
    let text = said(Command::new("yosys").args(["-p", &script]).current_dir(root))?;
    let proved = text.contains("Induction step proven: SUCCESS!");
    let refuted = text.contains("model found for base case: FAIL!");
    ensure!(
        proved || refuted || search == Search::Bounded,
        "{top}: neither proved nor refuted within {steps} cycles"
    );
    Ok(!refuted)
}
