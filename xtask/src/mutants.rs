//! Mutation testing: the cores' code with one operator or value changed at a time, each change
//! to be found by a test of the crate.
//!
//! `cargo-mutants` does it; what stands here is which files are cores, with which tests, what part
//! of the changes is tried, and the list of reviewed changes that no test can find because they
//! change nothing.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// The reviewed changes that change nothing, see [`Equivalents::parse`].
const EQUIVALENTS: &str = ".cargo/mutants-equivalent.txt";

/// The part of the changes that is to be found, in hundredths.
const SCORE_MIN: usize = 95;

/// Tests of a crate: which program of them `cargo test` builds, and the parts of names by which
/// that selects some.
type Stage = (&'static str, &'static [&'static str]);

/// The tests of each core, the quickest first, and each next stage for the changes that the one
/// before did not find. Building the tests is most of a change's cost. A file that is not listed
/// meets all tests of its crate at once.
const CORES: &[(&str, &[Stage])] = &[
    ("crates/swath-frame/src/bits/bitmap.rs", &[(UNIT, &["bits::model"]), FRAMES]),
    ("crates/swath-frame/src/bits/tree.rs", &[(UNIT, &["bits::tree"]), ZONES]),
    ("crates/swath-frame/src/buddy/class.rs", &[(UNIT, &["buddy::class"]), FRAMES]),
    ("crates/swath-frame/src/reserve/break_up.rs", &[(UNIT, &["reserve::"]), RESERVED]),
    ("crates/swath-frame/src/reserve/reservations.rs", &[(UNIT, &["reserve::"]), RESERVED]),
    ("crates/swath-heap/src/block.rs", &[(UNIT, &["block::"]), HEAPS]),
    ("crates/swath-heap/src/fit.rs", &[(UNIT, &["fit::"]), HEAPS]),
    ("crates/swath-hw/src/dram/controller.rs", &[(UNIT, &["dram::"]), (SUITE, &["dram"])]),
    ("crates/swath-hw/src/dram/refresh.rs", &[(UNIT, &["dram::"]), (SUITE, &["dram"])]),
    (
        "crates/swath-hw/src/processor/cache.rs",
        &[(UNIT, &["processor::cache"]), (SUITE, &["processor"])],
    ),
    ("crates/swath-hw/src/tlb/array.rs", &[(UNIT, &["tlb::"]), (SUITE, &["tlb", "mmu::"])]),
    ("crates/swath-hw/src/tlb/split.rs", &[(UNIT, &["tlb::"]), (SUITE, &["mmu::", "processor"])]),
    ("crates/swath-hw/src/translate/walker.rs", &[(UNIT, &["translate::"]), WALKS]),
    ("crates/swath-pool/src/heap/cache.rs", POOL),
    ("crates/swath-pool/src/heap/front.rs", POOL),
    ("crates/swath-pool/src/heap/kept.rs", &[(UNIT, &["heap::kept"]), POOLS]),
    ("crates/swath-pool/src/heap/local.rs", POOL),
    ("crates/swath-pool/src/heap/run.rs", &[(UNIT, &["heap::kept"]), POOLS]),
    ("crates/swath-pool/src/heap/segment.rs", POOL),
    ("crates/swath-pool/src/heap/short.rs", &[(UNIT, &["heap::short"]), POOLS]),
    ("crates/swath-pool/src/heap/spill.rs", POOL),
    ("crates/swath-pool/src/pool/buffer_pool.rs", POOL),
    ("crates/swath-pool/src/pool/check.rs", POOL),
    ("crates/swath-pool/src/pool/dirty.rs", POOL),
    ("crates/swath-pool/src/pool/exchange.rs", POOL),
    ("crates/swath-pool/src/pool/stats.rs", &[(SUITE, &["stats"]), POOLS]),
    ("crates/swath-pool/src/source/first_fit.rs", &[(UNIT, &["source::"]), POOLS]),
    ("crates/swath-pool/src/source/masks.rs", &[(UNIT, &["source::"]), POOLS]),
    ("crates/swath-pool/src/superblock/class.rs", &[(UNIT, &["superblock::class"]), POOLS]),
    ("crates/swath-pool/src/superblock/list.rs", &[(UNIT, &["superblock::list"]), POOLS]),
    ("crates/swath-pool/src/superblock/live.rs", &[(UNIT, &["superblock::live"]), POOLS]),
    ("crates/swath-pool/src/superblock/owner.rs", &[(UNIT, &["superblock::owner"]), POOLS]),
    ("crates/swath-pool/src/superblock/record.rs", &[(UNIT, &["superblock::record"]), POOLS]),
    ("crates/swath-pool/src/superblock/returned.rs", &[(UNIT, &["superblock::returned"]), POOLS]),
    ("crates/swath-region/src/tree/dense.rs", &[(UNIT, &["tree::"]), (SUITE, &["space"])]),
    ("crates/swath-region/src/tree/layered.rs", &[(UNIT, &["tree::"]), (SUITE, &["space"])]),
    ("crates/swath-region/src/tree/sparse.rs", &[(UNIT, &["tree::"]), (SUITE, &["sparse"])]),
    (
        "crates/swath-vm/src/migrate/daemon.rs",
        &[(UNIT, &["migrate::"]), (SUITE, &["migrate"]), MACHINE],
    ),
    ("crates/swath-vm/src/migrate/relocate.rs", &[(SUITE, &["relocate::"]), MACHINE]),
    ("crates/swath-vm/src/migrate/units.rs", &[(SUITE, &["units::"]), MACHINE]),
    (
        "crates/swath-vm/src/pmap/reverse.rs",
        &[(UNIT, &["pmap::"]), (SUITE, &["pmap", "superpages"])],
    ),
    ("crates/swath-vm/src/table/superpage.rs", &[(SUITE, &["superpages"]), PMAPS]),
];

const UNIT: &str = "--lib";
const SUITE: &str = "--test=suite";
const FRAMES: Stage = (SUITE, &["bitmap", "page_buddy", "quick_fit", "segment", "every_state"]);
const ZONES: Stage = (SUITE, &["bank_", "linux"]);
const HEAPS: Stage = (SUITE, &["conformance", "model", "named", "sizing"]);
const MACHINE: Stage = (SUITE, &["whole_machine"]);
const PMAPS: Stage = (SUITE, &["pmap", "superpage_faults"]);
const RESERVED: Stage = (SUITE, &["reservation"]);
const WALKS: Stage = (SUITE, &["mmu::", "superpage_walks", "line::"]);
const POOLS: Stage = (SUITE, &["errors", "flips", "model", "safe_calls", "threads"]);
/// Of a pool's heaps and its exchange: all unit tests, then the suite, without its long tests and with them.
const POOL: &[Stage] = &[
    (UNIT, &[]),
    (
        SUITE,
        &[
            "a_block",
            "a_full_arena",
            "a_pool",
            "an_ill_made",
            "cannot_be",
            "every",
            "front::",
            "kept_segments",
            "only_slots",
            "places",
            "safe_calls",
            "stats",
        ],
    ),
    (SUITE, &["errors", "flips", "model", "threads"]),
];

/// Which files are changed, and how much of them.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Source files, from the workspace's root.
    #[arg(required = true)]
    files: Vec<String>,
    /// Tries about so many changes of each file, evenly spread over it, instead of all.
    #[arg(long)]
    sample: Option<NonZeroUsize>,
    /// Which of the samples, which have no change in common.
    #[arg(long, default_value_t = 0, requires = "sample")]
    seed: usize,
}

/// Runs the changes of each file.
pub(crate) fn mutants(shell: &Shell, metadata: &Metadata, choice: &Choice) -> Result<()> {
    if cmd!(shell, "cargo mutants --version").quiet().ignore_stdout().run().is_err() {
        bail!("cargo-mutants is not installed, nothing was tested: `cargo install cargo-mutants`");
    }
    let root = metadata.workspace_root.as_std_path();
    let equivalents = Equivalents::read(&root.join(EQUIVALENTS))?;
    let mut bad = Vec::new();
    for file in &choice.files {
        let package = package_of(metadata, file)?;
        // As it is now: the changes are tried on a copy.
        let code = fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
        let list = cmd!(shell, "cargo mutants --list --package {package} --file {file}");
        let all = list.quiet().read()?.lines().count();
        let sample = Sample::of(all, choice.sample, choice.seed);
        println!("{file}: {sample}");

        let tried = tried(shell, metadata, file, &code, sample, &equivalents)?;
        let outcome = tried.outcome(&equivalents)?;
        println!("{file}: {}", outcome.summary(sample));
        for Change { place, name, at } in &outcome.missed {
            println!("  not found: {place} {name}\n    at {at}");
        }
        if outcome.score() < SCORE_MIN {
            bad.push(file.as_str());
        }
    }
    ensure!(bad.is_empty(), "below {SCORE_MIN}%: {}", bad.join(", "));
    Ok(())
}

/// Tries the changes of a sample, stage by stage.
fn tried(
    shell: &Shell,
    metadata: &Metadata,
    file: &str,
    code: &str,
    sample: Sample,
    equivalents: &Equivalents,
) -> Result<Tried> {
    let package = package_of(metadata, file)?;
    let folder = metadata.target_directory.join("mutants");
    // Each run is on a new copy of the tree; what the crates depend on is built once for all.
    let built = folder.join("built");
    let mut which = ["--sharding", "round-robin", "--shard"].map(str::to_owned).to_vec();
    which.push(sample.shard());
    let (mut all, mut known) = (Tried::default(), Vec::new());
    let mut wanted = sample.len();
    for (stage, (target, names)) in stages_of(file).iter().enumerate() {
        let out = folder.join(format!("{}-{stage}", file.replace('/', "-")));
        shell.create_dir(&out)?;
        let run = cmd!(shell, "cargo mutants --package {package} --file {file} --output {out}");
        let run = run.args(&which).args(["--jobs", "1", "--cargo-arg", target]);
        let run = run.args(["--", "--"]).args(*names);
        let run = run.env("CARGO_TARGET_DIR", &built).env("CARGO_INCREMENTAL", "1");
        // A failing test that resolves its symbols may take longer than a test that never ends.
        let run = run.env_remove("RUST_BACKTRACE");
        // It ends with 2 or 3 if a change is missed or runs for ever, which is judged later.
        let status = Command::from(run).status().context("cargo mutants")?;
        ensure!(
            matches!(status.code(), Some(0 | 2 | 3)),
            "{file}: no changes were tried, cargo mutants ended with {status}"
        );
        let mut stage = Tried::read(out.join("mutants.out").as_std_path(), code)?;
        if !all.is_empty() {
            stage.keep(&all.missed);
        }
        let tried = stage.len();
        ensure!(tried == wanted, "{file}: {tried} changes were tried, not {wanted}");
        all.found.extend(stage.found);
        all.refused.extend(stage.refused);
        // What was reviewed is not tried again, nor is what was found.
        let (reviewed, missed): (Vec<_>, Vec<_>) =
            stage.missed.into_iter().partition(|change| equivalents.has(change));
        known.extend(reviewed);
        all.missed = missed;
        if all.missed.is_empty() {
            break;
        }
        wanted = all.missed.len();
        let names = all.missed.iter().map(|change| change.regex(file));
        which = names.flat_map(|name| ["--re".to_owned(), name]).collect();
    }
    all.missed.extend(known);
    Ok(all)
}

/// Returns the tests that the changes of a file meet.
fn stages_of(file: &str) -> &'static [Stage] {
    CORES.iter().find(|(core, _)| *core == file).map_or(&[("--tests", &[])], |(_, stages)| stages)
}

/// Returns the name of the crate that a file of the workspace belongs to.
fn package_of<'a>(metadata: &'a Metadata, file: &str) -> Result<&'a str> {
    let path = metadata.workspace_root.join(file);
    ensure!(path.is_file(), "{file} is no file of the workspace");
    let packages = metadata.workspace_packages();
    let holds = |root: Option<&cargo_metadata::camino::Utf8Path>| {
        root.is_some_and(|root| path.starts_with(root))
    };
    let package = packages.iter().find(|package| holds(package.manifest_path.parent()));
    Ok(package.with_context(|| format!("{file} is in no crate"))?.name.as_str())
}

/// A systematic sample: every so many-th of all changes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    /// Changes that there are.
    all: usize,
    /// From one to the next.
    step: usize,
    /// The first, below `step`.
    first: usize,
}

impl Sample {
    fn of(all: usize, wanted: Option<NonZeroUsize>, seed: usize) -> Self {
        let wanted = wanted.map_or(all, NonZeroUsize::get).max(1);
        let step = ((all + wanted / 2) / wanted).max(1);
        Self { all, step, first: seed % step }
    }

    fn len(self) -> usize {
        (self.first..self.all).step_by(self.step).len()
    }

    /// As cargo-mutants has it: changes numbered from 0, of which those are tried that leave the
    /// first number when they are divided by the second.
    fn shard(self) -> String {
        format!("{}/{}", self.first, self.step)
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            1 => write!(f, "all {} changes", self.all),
            _ => write!(f, "{} of {} changes, shard {}", self.len(), self.all, self.shard()),
        }
    }
}

/// A change, with its place in the code.
#[derive(Clone, PartialEq, Debug)]
struct Change {
    /// `LINE:COLUMN`.
    place: String,
    /// `FILE: WHAT`.
    name: String,
    /// The code from there to the end of the line. A name and this tell a change from its
    /// neighbours wherever lines move.
    at: String,
}

impl Change {
    /// Reads `FILE:LINE:COLUMN: WHAT`, as cargo-mutants has it.
    fn parse(line: &str, code: &str) -> Result<Self> {
        let read = || {
            let mut parts = line.splitn(4, ':');
            let (file, row) = (parts.next()?, parts.next()?);
            let (column, what) = (parts.next()?, parts.next()?);
            let text = code.lines().nth(row.parse::<usize>().ok()?.checked_sub(1)?)?;
            let skipped = column.parse::<usize>().ok()?.checked_sub(1)?;
            let at = text.chars().skip(skipped).collect::<String>().trim().to_owned();
            let (place, name) = (format!("{row}:{column}"), format!("{file}:{what}"));
            Some(Self { place, name, at })
        };
        read().with_context(|| format!("no FILE:LINE:COLUMN: CHANGE of this code: {line}"))
    }

    /// Returns what selects this change alone.
    fn regex(&self, file: &str) -> String {
        let what = self.name.strip_prefix(file).unwrap_or(&self.name);
        let name = format!("{file}:{}{what}", self.place);
        // No more than these: `\<` is the start of a word.
        let escape = |c: char| if r"\.+*?()|[]{}^$".contains(c) { vec!['\\', c] } else { vec![c] };
        format!("^{}$", name.chars().flat_map(escape).collect::<String>())
    }
}

/// The reviewed changes that change nothing: the reason of each, by name and code.
#[derive(Debug, PartialEq)]
struct Equivalents(BTreeMap<(String, String), String>);

impl Equivalents {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads paragraphs of a name, the code from the change to the end of its line, and the reason
    /// on the lines that follow:
    ///
    /// ```text
    /// FILE: CHANGE
    ///   at CODE
    ///   REASON
    /// ```
    fn parse(text: &str) -> Result<Self> {
        let mut all = BTreeMap::new();
        let text =
            text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        for paragraph in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
            let mut lines = paragraph.lines().map(str::trim);
            let name = lines.next().unwrap_or_default().to_owned();
            let at = lines.next().and_then(|line| line.strip_prefix("at "));
            let at = at.with_context(|| format!("no line `at CODE` after: {name}"))?.to_owned();
            let reason = lines.collect::<Vec<_>>().join(" ");
            ensure!(!reason.is_empty(), "no reason for: {name}, at {at}");
            let twice = all.insert((name, at), reason);
            ensure!(twice.is_none(), "stands there twice: {paragraph}");
        }
        Ok(Self(all))
    }

    fn has(&self, change: &Change) -> bool {
        self.0.contains_key(&(change.name.clone(), change.at.clone()))
    }
}

/// The changes of a file that were tried, before the list of those that change nothing is asked.
#[derive(Default)]
struct Tried {
    found: Vec<Change>,
    missed: Vec<Change>,
    /// Changes that the compiler refused.
    refused: Vec<Change>,
}

impl Tried {
    fn len(&self) -> usize {
        self.found.len() + self.missed.len() + self.refused.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves out what was not wanted: cargo-mutants tries each change that leaves a field out, whatever
    /// names it is told.
    fn keep(&mut self, wanted: &[Change]) {
        for changes in [&mut self.found, &mut self.missed, &mut self.refused] {
            changes.retain(|change| wanted.contains(change));
        }
    }

    /// Reads what cargo-mutants left in its folder.
    fn read(folder: &Path, code: &str) -> Result<Self> {
        let changes = |name: &str| -> Result<Vec<Change>> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            text.lines().map(|line| Change::parse(line, code)).collect()
        };
        // A change that makes the tests run for ever is found, too.
        let found = [changes("caught.txt")?, changes("timeout.txt")?].concat();
        Ok(Self { found, missed: changes("missed.txt")?, refused: changes("unviable.txt")? })
    }

    fn outcome(self, equivalents: &Equivalents) -> Result<Outcome> {
        let Self { found, missed, refused } = self;
        ensure!(found.len() + missed.len() > 0, "no change was tried");
        let wrong = found.iter().find(|change| equivalents.has(change));
        if let Some(Change { name, at, .. }) = wrong {
            bail!("a test finds what is listed as changing nothing: {name}, at {at}");
        }
        let (equivalent, missed): (Vec<_>, Vec<_>) =
            missed.into_iter().partition(|change| equivalents.has(change));
        let (found, equivalent) = (found.len(), equivalent.len());
        Ok(Outcome { found, equivalent, missed, refused: refused.len() })
    }
}

/// What became of the changes of a file.
#[derive(Debug, PartialEq)]
struct Outcome {
    found: usize,
    equivalent: usize,
    missed: Vec<Change>,
    refused: usize,
}

impl Outcome {
    /// Hundredths of the changes that change something which were found, rounded down.
    fn score(&self) -> usize {
        match self.found + self.missed.len() {
            0 => 100,
            all => 100 * self.found / all,
        }
    }

    fn summary(&self, sample: Sample) -> String {
        let Self { found, equivalent, missed, refused } = self;
        let (score, missed) = (self.score(), missed.len());
        let bound = match sample.step {
            1 => String::new(),
            _ => format!(
                " (of all {} with 95% confidence at least {:.1}%, Wilson)",
                sample.all,
                100.0 * wilson_bound(*found, found + missed)
            ),
        };
        format!(
            "{score}%{bound}: {found} found, {missed} not found, {equivalent} change nothing, \
             {refused} do not compile"
        )
    }
}

/// Returns the lower bound of a share of which `found` of `tried` are a sample: of the one-sided
/// interval with 95% confidence by Wilson's score method.
fn wilson_bound(found: usize, tried: usize) -> f64 {
    /// The normal distribution's quantile of 0.95.
    const Z: f64 = 1.644_854;
    if tried == 0 {
        return 0.0;
    }
    let (tried, found) = (tried as f64, found as f64);
    let (share, zz) = (found / tried, Z * Z);
    let spread = Z * (share * (1.0 - share) / tried + zz / (4.0 * tried * tried)).sqrt();
    (share + zz / (2.0 * tried) - spread) / (1.0 + zz / tried)
}

#[cfg(test)]
mod unit {
    use super::*;

    const CODE: &str = "fn f() {\n    a < b | c < d;\n    e + f\n}\n";

    fn changes(lines: &[&str]) -> Vec<Change> {
        lines.iter().map(|line| Change::parse(line, CODE).unwrap()).collect()
    }

    #[test]
    fn a_reviewed_change_is_known_wherever_it_has_moved_and_is_not_its_neighbour() {
        let equivalents = Equivalents::parse(
            "# heading\n\na/b.rs: replace < with <= in f\n  at < b | c < d;\n  both are the\n  \
             same there\n\na/b.rs: replace | with ^ in f\n  at | c < d;\n  never both\n",
        );
        let equivalents = equivalents.unwrap();
        let lines = [
            "a/b.rs:2:7: replace < with <= in f",
            "a/b.rs:2:15: replace < with <= in f",
            "a/b.rs:2:11: replace | with ^ in f",
        ];
        let found = vec![changes(&["a/b.rs:3:7: replace + with - in f"])[0].clone(); 19];
        let refused = vec![found[0].clone(); 4];
        let tried = |found: &[Change], missed: &[&str]| {
            let (found, missed) = (found.to_vec(), changes(missed));
            Tried { found, missed, refused: refused.clone() }.outcome(&equivalents)
        };
        let outcome = tried(&found, &lines).unwrap();
        assert_eq!(outcome.missed, changes(&lines[1..2]));
        assert_eq!((outcome.equivalent, outcome.score()), (2, 95));
        assert_eq!(
            outcome.summary(Sample::of(26, None, 0)),
            "95%: 19 found, 1 not found, 2 change nothing, 4 do not compile"
        );
        let moved = Change::parse("a/b.rs:3:11: replace | with ^ in f", &format!("\n{CODE}"));
        assert!(equivalents.has(&moved.unwrap()));
        assert!(tried(&changes(&lines), &[]).is_err());
        assert_eq!(outcome.missed[0].regex("a/b.rs"), r"^a/b\.rs:2:15: replace < with <= in f$");
    }

    #[test]
    fn what_was_not_missed_does_not_count_in_the_next_stage() {
        let all = changes(&[
            "a/b.rs:2:5: delete field x from struct S expression in f",
            "a/b.rs:2:7: replace < with <= in f",
            "a/b.rs:2:15: delete field y from struct S expression in f",
            "a/b.rs:3:7: replace + with - in f",
        ]);
        let pick = |which: &[usize]| which.iter().map(|&at| all[at].clone()).collect::<Vec<_>>();
        let mut stage = Tried { found: pick(&[0, 1]), missed: pick(&[3]), refused: pick(&[2]) };
        assert_eq!(stage.len(), 4);
        stage.keep(&pick(&[1, 2, 3]));
        assert_eq!(
            (stage.found, stage.missed, stage.refused),
            (pick(&[1]), pick(&[3]), pick(&[2]))
        );
    }

    #[test]
    fn a_change_without_a_reason_is_refused_and_so_is_a_run_without_changes() {
        assert!(Equivalents::parse("a.rs: replace f with ()\n  the same").is_err());
        assert!(Equivalents::parse("a.rs: replace f with ()\n  at g();\n").is_err());
        let entry = "a.rs: replace f with ()\n  at g();\n  the same\n";
        assert!(Equivalents::parse(&format!("{entry}\n{entry}")).is_err());
        let none = Equivalents::parse("").unwrap();
        assert!(
            Tried {
                refused: changes(&["a/b.rs:3:7: replace + with - in f"; 3]),
                ..Tried::default()
            }
            .outcome(&none)
            .is_err()
        );
        assert!(Change::parse("a/b.rs:9:1: replace f with ()", CODE).is_err());
        assert!(Change::parse("a/b.rs: replace f with ()", CODE).is_err());
    }

    #[test]
    fn samples_are_disjoint_and_together_all() {
        for (all, wanted) in [(729, 40), (174, 40), (29, 40), (48, 40), (1, 1), (0, 5), (100, 60)] {
            let sample = |seed| Sample::of(all, NonZeroUsize::new(wanted), seed);
            let step = sample(0).step;
            let sizes = (0..step).map(|seed| sample(seed).len()).collect::<Vec<_>>();
            assert_eq!(sizes.iter().sum::<usize>(), all, "{all} in samples of {wanted}");
            // No other whole step comes nearer, by its quotient.
            assert!(sizes.iter().all(|&len| len <= 2 * wanted), "{sizes:?}");
            assert_eq!(sample(step), sample(0));
        }
        assert_eq!(
            Sample::of(729, NonZeroUsize::new(40), 20).to_string(),
            "41 of 729 changes, shard 2/18"
        );
        assert_eq!(Sample::of(29, None, 0).to_string(), "all 29 changes");
    }

    /// Against the roots of the method's definition: at the bound, the share that was seen lies Z
    /// standard deviations above.
    #[test]
    fn the_bound_is_wilsons() {
        for (found, tried) in [(0, 1), (1, 1), (6, 15), (38, 40), (40, 40), (119, 120)] {
            let bound = wilson_bound(found, tried);
            let (tried, share) = (tried as f64, found as f64 / tried as f64);
            let deviation = (bound * (1.0 - bound) / tried).sqrt();
            assert!((share - bound - 1.644_854 * deviation).abs() < 1e-9, "{found} of {tried}");
            assert!(-1e-12 < bound && bound < share + 1e-12, "{bound}");
        }
        assert_eq!(format!("{:.3}", wilson_bound(40, 40)), "0.937");
        assert_eq!(wilson_bound(0, 0), 0.0);
    }
}
