//! Whole programs on `cmt_malloc` beside the same programs on other allocators.
//!
//! Every program of `bench/programs` runs with every library preloaded, in turn: round 1 of
//! each, round 2 of each, starting with another library each time, so that a slow spell
//! of the machine meets all. What a program prints depends on its arguments only, and has to be
//! the same with each library. No run is left out of the medians.
//!
//! A row gives, for each library, the wall time, the processor time and the peak of resident memory, as
//! ratios to the best of the others: below 1 is better. Reached is: at most 1.05 of the best processor
//! time, and within 10% of the least memory. What is not reached is listed
//! at the end, and is no error: times on a machine that others use are not to be gated. `--out` writes
//! the table with 95% intervals as a page with its picture ([`crate::table`]).
//!
//! The last column is what ours is for: of another run, stopped every few milliseconds, the mean
//! length of the physical runs in which the program's memory lay when it had most. It needs
//! the right to see frames. Ours stands there twice: as it is, and with pages of 4 KiB
//! (`SWATH_THP=0`), which shows what the huge pages cost in memory and bring in time; the
//! second is not judged. None uses reserved huge pages, which no peak would count.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, make, setup};
use crate::peers::{Library, Whose, find_libraries, target_directory};
use crate::setup::median;
use crate::table::{self, BOUND, Line, Ratio};

/// One program with its arguments.
struct Row {
    threads: usize,
    /// The program and its arguments, with a space between two; a script is run by the shell.
    line: &'static str,
    /// A program that has to be installed.
    needs: Option<&'static str>,
}

const fn row(threads: usize, line: &'static str) -> Row {
    Row { threads, line, needs: None }
}

const fn script(line: &'static str, needs: &'static str) -> Row {
    Row { threads: 1, line, needs: Some(needs) }
}

const ROWS: &[Row] = &[
    row(1, "large plain 1 100000"),
    row(2, "large plain 2 100000"),
    row(4, "large plain 4 100000"),
    row(8, "large plain 8 100000"),
    row(1, "large touch 1 10000"),
    row(2, "large touch 2 10000"),
    row(1, "structures hashmap 1 100000 20000"),
    row(2, "structures hashmap 2 100000 20000"),
    row(4, "structures hashmap 4 100000 20000"),
    row(8, "structures hashmap 8 100000 20000"),
    row(1, "structures vector 1 100000 20000"),
    row(2, "structures vector 2 100000 20000"),
    row(4, "structures vector 4 100000 20000"),
    row(8, "structures vector 8 100000 20000"),
    row(1, "structures queue 1 100000 20000"),
    row(2, "structures queue 2 100000 20000"),
    row(4, "structures queue 4 100000 20000"),
    row(8, "structures queue 8 100000 20000"),
    row(1, "structures unordered 1 100000 20000"),
    row(2, "structures unordered 2 100000 20000"),
    row(4, "structures unordered 4 100000 20000"),
    row(8, "structures unordered 8 100000 20000"),
    row(1, "larson 1 50 5000 50000 16 1000"),
    row(2, "larson 2 50 5000 50000 16 1000"),
    row(2, "xmalloc 1 20000 120"),
    row(4, "xmalloc 2 10000 120"),
    row(1, "sh6bench 1 200 20000"),
    row(2, "sh6bench 2 100 20000"),
    row(2, "sh8bench 2 100 20000"),
    row(8, "sh8bench 8 25 20000"),
    row(1, "cache scratch 1 100000 8 200"),
    row(2, "cache scratch 2 100000 8 200"),
    row(1, "cache thrash 1 100000 8 200"),
    row(2, "cache thrash 2 100000 8 200"),
    row(1, "cfrac 2100000000371300000000135861"),
    row(1, "alloctest 1 5000000 50000 10"),
    row(2, "alloctest 2 2500000 50000 10"),
    row(1, "rptest 1 100 5000"),
    row(2, "rptest 2 100 5000"),
    row(1, "threadtest many 1 200 100000 64"),
    row(2, "threadtest many 2 200 100000 64"),
    row(1, "threadtest pair 1 200 100000 64"),
    row(1, "glibcsimple 64 20000000"),
    row(1, "glibcsimple 2048 20000000"),
    row(1, "glibcthread 1 10000000"),
    row(2, "glibcthread 2 5000000"),
    row(2, "mstress 2 20 50000"),
    row(8, "mstress 8 5 50000"),
    row(1, "espresso 200 20000"),
    row(1, "mleak 1000 1000"),
    row(1, "malloclarge 1000"),
    script("python.sh", "python3"),
    script("perl.sh", "perl"),
    script("sqlite.sh", "sqlite3"),
    script("compile.sh", "cc"),
];

/// What one run took.
#[derive(Clone, Copy, Default)]
struct Sample {
    wall_ms: f64,
    cpu_ms: f64,
    peak_kib: f64,
    faults: f64,
}

/// A column: its title, and what it shows of a run.
type Measure = (&'static str, fn(&Sample) -> f64);

const MEASURES: [Measure; 4] = [
    ("wall ms", |s| s.wall_ms),
    ("cpu ms", |s| s.cpu_ms),
    ("peak KiB", |s| s.peak_kib),
    ("faults", |s| s.faults),
];

/// A row's medians: for each library, each of [`MEASURES`].
type Medians = Vec<[f64; MEASURES.len()]>;

/// Memory that is touched before each run: more than nearly all programs need.
const WARM_MIB: &str = "256";

fn failed(what: impl Into<String>) -> Failure {
    Failure::Result(what.into())
}

/// Builds all programs that are asked for, once each.
fn build(rows: &[&Row], out: &Path) -> Result<(), Failure> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let mut names: Vec<&str> =
        rows.iter().filter(|row| row.needs.is_none()).map(|row| program(row.line)).collect();
    names.sort_unstable();
    names.dedup();
    for tool in ["measure", "layout"] {
        let source = sources.join(tool).with_extension("c");
        make(
            Command::new("cc").args(["-O2", "-static"]).arg(source).arg("-o").arg(out.join(tool)),
        )?;
    }
    for name in names {
        let (c, cpp) = (sources.join(format!("{name}.c")), sources.join(format!("{name}.cpp")));
        let (compiler, source) = if c.is_file() { ("cc", c) } else { ("c++", cpp) };
        make(
            Command::new(compiler)
                .args(["-O2", "-pthread"])
                .arg(source)
                .arg("-o")
                .arg(out.join(name)),
        )?;
    }
    Ok(())
}

fn program(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

/// Runs a row's program once with a library under a tool: the numbers that the tool says, and what
/// the program printed.
fn run_under<const N: usize>(
    tool: &str,
    arguments: &[&str],
    row: &Row,
    library: &Library,
    out: &Path,
) -> Result<([f64; N], String), Failure> {
    let preload = library.path.as_deref().unwrap_or(Path::new("-"));
    let mut words = row.line.split(' ');
    let mut command = Command::new(out.join(tool));
    command.args(arguments).arg(preload);
    let first = words.next().unwrap_or_default();
    if row.needs.is_some() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        command.arg("/bin/sh").arg(scripts.join(first));
    } else {
        command.arg(out.join(first));
    }
    command.args(words).envs(library.environment.iter().copied());
    let output = command.output().map_err(|error| setup(format!("{command:?}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let place = format!("{} with {}", row.line, library.name);
    let (before, said) = said
        .rsplit_once(&format!("\n{tool} "))
        .ok_or_else(|| failed(format!("{place}: nothing from {tool}: {said}")))?;
    let mut numbers = said.split_whitespace().filter_map(|number| number.parse().ok());
    // A library that cannot be preloaded is a line of the dynamic linker.
    if numbers.next() != Some(0.0) || !before.is_empty() {
        return Err(failed(format!("{place}: status {said} {before}")));
    }
    let numbers: Vec<f64> = numbers.collect();
    let numbers = numbers.try_into().map_err(|_| failed(format!("{place}: {said}")))?;
    Ok((numbers, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// What one run of a row took, and what it printed.
fn sample(row: &Row, library: &Library, out: &Path) -> Result<(Sample, String), Failure> {
    let ([wall_ns, user_us, system_us, peak_kib, faults], text) =
        run_under("measure", &[WARM_MIB], row, library, out)?;
    let cpu_ms = (user_us + system_us) / 1e3;
    Ok((Sample { wall_ms: wall_ns / 1e6, cpu_ms, peak_kib, faults }, text))
}

/// KiB of a physical run on average, if frames can be seen.
fn run_kib(row: &Row, library: &Library, out: &Path) -> Result<Option<f64>, Failure> {
    let ([kib, runs], _) = run_under("layout", &[], row, library, out)?;
    Ok((runs > 0.0).then(|| kib / runs))
}

/// All rounds of one row: for each library its runs.
fn race(
    row: &Row,
    libraries: &[Library],
    rounds: usize,
    out: &Path,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let mut kept: Vec<Vec<Sample>> = libraries.iter().map(|_| Vec::new()).collect();
    let mut printed: Option<String> = None;
    for round in 0..rounds {
        for index in (0..libraries.len()).map(|i| (round + i) % libraries.len()) {
            let (sample, text) = sample(row, &libraries[index], out)?;
            let expected = printed.get_or_insert_with(|| text.clone());
            if *expected != text {
                let name = libraries[index].name;
                return Err(failed(format!("{} with {name}: {text:?} and {expected:?}", row.line)));
            }
            kept[index].push(sample);
        }
    }
    Ok(kept)
}

fn medians(kept: &[Vec<Sample>]) -> Medians {
    let of_one = |samples: &Vec<Sample>| {
        MEASURES.map(|(_, of)| median(&mut samples.iter().map(of).collect::<Vec<_>>()))
    };
    kept.iter().map(of_one).collect()
}

/// Processor times of all libraries but variants beside the best of the others.
fn line(row: &Row, libraries: &[Library], kept: &[Vec<Sample>], medians: &Medians) -> Option<Line> {
    let judged = |index: &usize| libraries[*index].whose != Whose::Variant;
    let peers = (0..libraries.len()).filter(|&index| libraries[index].whose == Whose::Peer);
    let fastest = peers.min_by(|&a, &b| medians[a][1].total_cmp(&medians[b][1]))?;
    let cpu = |index: usize| kept[index].iter().map(|run| run.cpu_ms).collect::<Vec<f64>>();
    let cells = (0..libraries.len())
        .filter(judged)
        .map(|index| (libraries[index].name, Ratio::of(&cpu(index), &cpu(fastest))));
    Some(Line {
        program: row.line,
        cells: cells.collect(),
        best: (medians[fastest][1], libraries[fastest].name),
        peak: medians[0][2] / best(medians, libraries, 2),
    })
}

/// The least of a measure among the others.
fn best(medians: &Medians, libraries: &[Library], measure: usize) -> f64 {
    let theirs = medians.iter().zip(libraries).filter(|(_, library)| library.whose == Whose::Peer);
    theirs.map(|(values, _)| values[measure]).fold(f64::INFINITY, f64::min)
}

/// Runs the rows whose line begins with one of `names` (all, if there are none) and prints the table; with
/// `--no-runs` without its last column, whose runs take minutes for some.
pub(crate) fn run(options: &[&str]) -> Result<(), Failure> {
    let (mut rounds, mut folder, mut sees_runs, mut names) = (5, None, true, Vec::new());
    let mut rest = options;
    loop {
        rest = match rest {
            [] => break,
            ["--out", path, rest @ ..] => {
                folder = Some(*path);
                rest
            }
            ["--no-runs", rest @ ..] => {
                sees_runs = false;
                rest
            }
            ["--rounds", count, rest @ ..] => {
                rounds = count.parse().ok().filter(|&count| count > 0).ok_or_else(|| {
                    setup(format!("--rounds takes a number from 1 on, not {count:?}"))
                })?;
                rest
            }
            [name, rest @ ..] => {
                names.push(*name);
                rest
            }
        };
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|n| row.line.starts_with(n));
    let mut rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    rows.retain(|row| {
        let missing = row.needs.filter(|program| !is_installed(program));
        if let Some(program) = missing {
            println!("left out: {}: {program} is not installed", row.line);
        }
        missing.is_none()
    });
    if rows.is_empty() {
        return Err(setup(format!("no program is called {names:?}")));
    }
    let out: PathBuf = target_directory()?.join("programs");
    fs::create_dir_all(&out).map_err(|error| setup(format!("{}: {error}", out.display())))?;
    build(&rows, &out)?;
    let libraries = find_libraries(&out)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n{cores} processors, {rounds} rounds, medians; ratios to the best of the others");
    let mut short: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut lines = Vec::new();
    for row in rows {
        let kept = race(row, &libraries, rounds, &out)?;
        let medians = medians(&kept);
        let oversubscribed = if row.threads > cores { ", oversubscribed" } else { "" };
        let s = if row.threads == 1 { "" } else { "s" };
        println!("\n{}: {} thread{s}{oversubscribed}", row.line, row.threads);
        let titles: String = MEASURES.iter().map(|(title, _)| format!("{title:>18}")).collect();
        println!("  {:<14}{titles}{:>9}", "", "KiB/run");
        let run_kib = |library| if sees_runs { run_kib(row, library, &out) } else { Ok(None) };
        let runs: Vec<Option<f64>> = libraries.iter().map(run_kib).collect::<Result<_, _>>()?;
        for ((library, values), run_kib) in libraries.iter().zip(&medians).zip(&runs) {
            let cells: String = (0..MEASURES.len())
                .map(|m| {
                    format!(
                        "{:>11.0} {:>6.3}",
                        values[m],
                        values[m] / best(&medians, &libraries, m)
                    )
                })
                .collect();
            let run_kib = run_kib.map_or("?".to_owned(), |kib| format!("{kib:.0}"));
            println!("  {:<14}{cells}{run_kib:>9}", library.name);
            for (measure, bound) in [(1, BOUND), (2, 1.1)] {
                let ratio = values[measure] / best(&medians, &libraries, measure);
                if library.whose == Whose::Ours && ratio > bound {
                    let line = format!("{}: {ratio:.3}, to reach {bound}", row.line);
                    short.entry(MEASURES[measure].0).or_default().push(line);
                }
            }
        }
        lines.extend(line(row, &libraries, &kept, &medians));
    }
    for (measure, lines) in &short {
        println!("\nfalls short in {measure}:\n  {}", lines.join("\n  "));
    }
    folder.map_or(Ok(()), |folder| table::write(Path::new(folder), &lines, rounds))
}

/// Returns true if a program is in one of the folders of programs.
fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
