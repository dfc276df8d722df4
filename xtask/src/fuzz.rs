//! Campaigns against the fuzz targets under libFuzzer. What one comes to is added to the ledger.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::fuzz_program::Programs;
use crate::ledger::{Book, table};

/// The list of the targets, which is read as text: the crate, and all that it attacks, need not be
/// built for it.
const LIST: &str = "fuzz/src/targets.rs";

/// What a parser's line begins with, for only the parsers' program has it.
const PARSER: &str = "#[cfg(feature = \"parsers\")] ";

/// Memory beyond which an input is a finding: four times what a file of 1 MiB may cost.
const MEMORY_MIB_MAX: u32 = 1024;

/// Seconds of a processor beyond which a single input is a finding.
const INPUT_SECONDS_MAX: u32 = 20;

/// Seconds of the clock after which an input is stopped. Among others it is then run again alone, as is
/// each that takes [`INPUT_SECONDS_MAX`] of the clock, for a busy machine stretches that; one that is
/// stopped alone as well waits for something for ever, and is a finding.
const INPUT_CLOCK_SECONDS_MAX: u32 = 300;

/// Seconds by the clock, for each of a processor, that a turn may take.
const CLOCK_FACTOR_MAX: u64 = 10;

/// Seconds of the clock for which a finding's case is shortened.
const SHORTENING_SECONDS: u32 = 40;

/// Bytes and files that the stored corpus of one target has at most, without findings.
const STORED_BYTES_MAX: u64 = 48 << 10;
const STORED_FILES_MAX: usize = 80;

/// The target that has a second form, what the environment names for that, and the form's name in the
/// ledger.
const TWO_FORMS: (&str, &str, &str) = ("cmt", "SWATH_FUZZ_HARDENED", "cmt_hardened");

/// The name in the ledger of a target, in the form that it is attacked in.
fn entered_as(name: &str) -> &str {
    let (target, variable, form) = TWO_FORMS;
    if name == target && std::env::var_os(variable).is_some() { form } else { name }
}

/// How the stored cases of findings are named.
const FINDING: &str = "finding-";

/// What is attacked, and for how long.
#[derive(clap::Args)]
pub(crate) struct Attack {
    /// The targets.
    names: Vec<String>,
    /// Says what targets there are.
    #[arg(long, conflicts_with_all = ["all", "names"])]
    list: bool,
    /// Shows what all campaigns have come to.
    #[arg(long, conflicts_with_all = ["all", "names", "list"])]
    ledger: bool,
    /// Every target, one after the other.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Seconds of a processor for each target, or for each turn of one with `--hours`; it ends after
    /// ten times as many by the clock at the latest.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Goes on for so many hours: each turn is that target's whose clean time in the ledger is least.
    #[arg(long)]
    hours: Option<f64>,
    /// Targets that are attacked side by side.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Stores what covers most as the targets' corpus, in place of what is stored, but for findings.
    #[arg(long)]
    store: bool,
}

/// A target as the crate lists it.
struct Target {
    name: String,
    is_parser: bool,
    len_bytes_max: String,
    about: String,
}

/// What one target's attack came to.
#[derive(Default)]
struct Outcome {
    name: String,
    executions: u64,
    edges: u64,
    features: u64,
    inputs: u64,
    /// Of the clock.
    seconds: f64,
    /// Of processors.
    processor_seconds: f64,
    /// The stored case of what was found.
    finding: Option<PathBuf>,
}

/// Attacks the targets and writes a table of what came of it.
pub(crate) fn fuzz(metadata: &Metadata, attack: &Attack) -> Result<()> {
    let root = metadata.workspace_root.as_std_path();
    let mut targets = targets(root)?;
    if attack.list {
        for Target { name, about, .. } in &targets {
            println!("{name:16} {about}");
        }
        return Ok(());
    }
    let work = metadata.target_directory.as_std_path().join("fuzz");
    fs::create_dir_all(&work)?;
    let book = Book::new(root, &work);
    if attack.ledger {
        print!("{}", table(&book.read()?, &entered(&targets)));
        return Ok(());
    }
    if !attack.all {
        ensure!(!attack.names.is_empty(), "name a target, or --all; --list says what there are");
        let known: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        for name in &attack.names {
            ensure!(known.contains(name.as_str()), "{name} is no target: cargo xtask fuzz --list");
        }
        targets.retain(|target| attack.names.contains(&target.name));
    }
    let some = |parsers| targets.iter().any(|target| target.is_parser == parsers);
    let programs = Programs::build(root, &work, some(true), some(false))?;
    let place = Place { root, work: &work, programs: &programs };

    let turns = Turns::new(&targets, &book, attack.hours);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..attack.jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = turns.next() {
                    let clock = turns.clock_seconds(attack.seconds);
                    let outcome = place.attack(target, attack, clock).and_then(|outcome| {
                        println!("{}", outcome.row());
                        turns.done(target, &outcome).map(|()| outcome)
                    });
                    outcomes.lock().expect("nobody panics").push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("nobody panics");
    let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>>>()?;
    print!("{}", table(&book.read()?, &entered(&targets)));
    let findings = outcomes.iter().filter(|outcome| outcome.finding.is_some()).count();
    ensure!(findings == 0, "{findings} findings, each stored as a case of the corpus");
    Ok(())
}

/// The ledger's names of targets, in all forms.
fn entered(targets: &[Target]) -> Vec<&str> {
    let mut names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    if names.contains(&TWO_FORMS.0) {
        names.push(TWO_FORMS.2);
    }
    names
}

/// Whose turn it is.
struct Turns<'a> {
    /// Those that no thread attacks now and that are to have a turn, in the order of the list.
    waiting: Mutex<Vec<&'a Target>>,
    book: &'a Book,
    /// With this, targets come again until then.
    end: Option<Instant>,
}

impl<'a> Turns<'a> {
    fn new(targets: &'a [Target], book: &'a Book, hours: Option<f64>) -> Self {
        let end = hours.map(|hours| Instant::now() + Duration::from_secs_f64(3600.0 * hours));
        Self { waiting: Mutex::new(targets.iter().collect()), book, end }
    }

    /// The next target: that with the least clean time by the ledger.
    fn next(&self) -> Option<&'a Target> {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        // A ledger that cannot be read is told when it is to be changed.
        let ledger = self.book.read().unwrap_or_default();
        let clean = |target: &&Target| {
            ledger.get(entered_as(&target.name)).map_or(0.0, |sums| sums.clean_seconds)
        };
        let mut waiting = self.waiting.lock().expect("nobody panics");
        let least = (0..waiting.len())
            .min_by(|&one, &other| clean(&waiting[one]).total_cmp(&clean(&waiting[other])))?;
        Some(waiting.remove(least))
    }

    /// The most seconds by the clock of a turn of so many of a processor, which a busy machine
    /// stretches: none goes on when the time of all is over.
    fn clock_seconds(&self, seconds: u64) -> u64 {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()).as_secs());
        (CLOCK_FACTOR_MAX * seconds).min(left.unwrap_or(u64::MAX)).max(1)
    }

    /// Enters what a turn came to; one without a finding may have another.
    fn done(&self, target: &'a Target, outcome: &Outcome) -> Result<()> {
        let Outcome { name, executions, edges, processor_seconds, finding, .. } = outcome;
        self.book.change(|ledger| {
            let sums = ledger.entry(entered_as(name).to_owned()).or_default();
            sums.add(*executions, *processor_seconds, *edges, finding.is_some());
        })?;
        if self.end.is_some() && finding.is_none() {
            self.waiting.lock().expect("nobody panics").push(target);
        }
        Ok(())
    }
}

/// Reads the crate's list of targets, of which each has a line: `NAME, LENGTH, FUNCTION, "ABOUT";`,
/// which a parser's begins with [`PARSER`].
fn targets(root: &Path) -> Result<Vec<Target>> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| LIST.to_owned())?;
    let lines = text.lines().skip_while(|line| *line != "targets! {").skip(1);
    let lines = lines.take_while(|line| *line != "}");
    let read = |line: &str| {
        let (line, is_parser) = match line.trim().strip_prefix(PARSER) {
            Some(rest) => (rest, true),
            None => (line.trim(), false),
        };
        let mut parts = line.splitn(4, ", ").map(str::to_owned);
        let (name, len_bytes_max) = (parts.next()?, parts.next()?);
        let about = parts.nth(1)?.strip_prefix('"')?.strip_suffix("\";")?.to_owned();
        Some(Target { name, is_parser, len_bytes_max, about })
    };
    lines.map(|line| read(line).with_context(|| format!("{LIST}: no target: {line}"))).collect()
}

/// Where everything lies.
struct Place<'a> {
    root: &'a Path,
    work: &'a Path,
    programs: &'a Programs,
}

impl Place<'_> {
    /// The inputs of a target that are part of the project.
    fn stored(&self, name: &str) -> PathBuf {
        self.root.join("fuzz").join("corpus").join(name)
    }

    /// Runs the fuzzer; returns whether it ended well, and the processor time that it took.
    fn fuzzer(&self, target: &Target, args: &[String], log: &Path) -> Result<(bool, Duration)> {
        self.turn(target, args, log, Duration::MAX)
    }

    /// Does as [`fuzzer`](Self::fuzzer), up to so much processor time.
    fn turn(
        &self,
        target: &Target,
        args: &[String],
        log: &Path,
        most: Duration,
    ) -> Result<(bool, Duration)> {
        self.programs.run((&target.name, target.is_parser), args, log, most)
    }

    /// Attacks a target for a turn, of which `clock` are the most seconds by the clock.
    fn attack(&self, target: &Target, attack: &Attack, clock: u64) -> Result<Outcome> {
        let name = target.name.as_str();
        let folder = self.work.join("work").join(name);
        let (inputs, findings) = (folder.join("corpus"), folder.join("findings"));
        fs::create_dir_all(&inputs)?;
        // What was found before is stored, or was mended.
        let _ = fs::remove_dir_all(&findings);
        fs::create_dir_all(&findings)?;
        let stored = self.stored(name);
        fs::create_dir_all(&stored)?;
        let limits = [
            format!("-max_len={}", target.len_bytes_max),
            format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
            format!("-timeout={INPUT_CLOCK_SECONDS_MAX}"),
            format!("-report_slow_units={INPUT_SECONDS_MAX}"),
            format!("-artifact_prefix={}/", findings.display()),
        ];
        let mut args = vec![inputs.display().to_string(), stored.display().to_string()];
        args.extend_from_slice(&limits);
        args.push(format!("-max_total_time={clock}"));
        args.push("-print_final_stats=1".to_owned());
        let log = folder.join("log");
        let start = Instant::now();
        let most = Duration::from_secs(attack.seconds);
        let (is_well, processor) = self.turn(target, &args, &log, most)?;
        let mut outcome = read_log(name, &fs::read_to_string(&log).unwrap_or_default());
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.processor_seconds = processor.as_secs_f64();
        let mut cases = Vec::new();
        for entry in fs::read_dir(&findings)? {
            cases.push(entry?.path());
        }
        if !is_well && cases.is_empty() {
            bail!("{name}: the fuzzer failed, see {}", log.display());
        }
        cases.sort();
        let (slow, broken): (Vec<PathBuf>, _) = cases.into_iter().partition(|case| is_slow(case));
        if let Some(case) = broken.first() {
            outcome.finding = Some(self.keep(target, case, Some(&folder))?);
        }
        for case in slow {
            if outcome.finding.is_none() && self.is_long(target, &case, &folder)? {
                outcome.finding = Some(self.keep(target, &case, None)?);
            }
        }
        if outcome.finding.is_none() && attack.store {
            self.store(target, &inputs, &folder)?;
        }
        Ok(outcome)
    }

    /// Runs an input that was slow among others alone; whether it takes too much of a processor, or does
    /// not end well.
    fn is_long(&self, target: &Target, case: &Path, folder: &Path) -> Result<bool> {
        let args = [
            format!("-timeout={INPUT_CLOCK_SECONDS_MAX}"),
            format!("-artifact_prefix={}/", folder.display()),
            case.display().to_string(),
        ];
        let (is_well, processor) = self.fuzzer(target, &args, &folder.join("log-alone"))?;
        let (seconds, most) = (processor.as_secs_f64(), f64::from(INPUT_SECONDS_MAX));
        println!("{}: {} alone takes {seconds:.1} s of a processor", target.name, case.display());
        Ok(!is_well || seconds > most)
    }

    /// Stores the case of a finding, shortened where a folder for that is given.
    fn keep(&self, target: &Target, case: &Path, folder: Option<&Path>) -> Result<PathBuf> {
        let mut best = case.to_owned();
        if let Some(folder) = folder {
            let short = folder.join("shortened");
            let _ = fs::remove_file(&short);
            let args = [
                "-minimize_crash=1".to_owned(),
                format!("-max_total_time={SHORTENING_SECONDS}"),
                format!("-exact_artifact_path={}", short.display()),
                case.display().to_string(),
            ];
            self.fuzzer(target, &args, &folder.join("log-shortened"))?;
            if short.is_file() {
                best = short;
            }
        }
        let hash = case.file_name().map(|name| name.to_string_lossy().into_owned());
        let hash = hash.unwrap_or_default();
        let hash = hash.rsplit('-').next().unwrap_or_default();
        let kept =
            self.stored(&target.name).join(format!("{FINDING}{}", &hash[..hash.len().min(12)]));
        fs::copy(&best, &kept)?;
        Ok(kept)
    }

    /// Stores the smallest inputs that cover what all of them cover.
    fn store(&self, target: &Target, inputs: &Path, folder: &Path) -> Result<()> {
        let cover = folder.join("cover");
        let _ = fs::remove_dir_all(&cover);
        fs::create_dir_all(&cover)?;
        let stored = self.stored(&target.name);
        let mut args = vec!["-set_cover_merge=1".to_owned()];
        args.extend([&cover, inputs, &stored].map(|path: &Path| path.display().to_string()));
        let (is_well, _) = self.fuzzer(target, &args, &folder.join("log-cover"))?;
        ensure!(is_well, "{}: what covers most was not found out", target.name);
        let mut files: Vec<(u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&cover)? {
            let entry = entry?;
            files.push((entry.metadata()?.len(), entry.path()));
        }
        files.sort();
        for entry in fs::read_dir(&stored)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(FINDING) {
                fs::remove_file(entry.path())?;
            }
        }
        let mut bytes = 0;
        for (len, path) in files.into_iter().take(STORED_FILES_MAX) {
            bytes += len;
            let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(file) = file.filter(|_| bytes <= STORED_BYTES_MAX) else { break };
            fs::copy(&path, stored.join(&file[..file.len().min(12)]))?;
        }
        Ok(())
    }
}

impl Outcome {
    fn row(&self) -> String {
        let Self { name, executions, edges, features, inputs, seconds, .. } = self;
        let (processor, finding) = (self.processor_seconds, &self.finding);
        let finding = finding.as_ref().map_or("no finding".to_owned(), |p| p.display().to_string());
        format!(
            "{name}: {executions} executions in {processor:.0} s ({seconds:.0} s by the clock), \
             {edges} edges, {features} features, {inputs} inputs, {finding}"
        )
    }
}

/// Whether the fuzzer kept a case only because the clock went on for long.
fn is_slow(case: &Path) -> bool {
    let name = case.file_name().unwrap_or_default().to_string_lossy();
    ["slow-unit-", "timeout-"].iter().any(|kind| name.starts_with(kind))
}

/// Reads what the fuzzer says of itself: its last line of progress, and its statistics.
fn read_log(name: &str, log: &str) -> Outcome {
    let mut outcome = Outcome { name: name.to_owned(), ..Outcome::default() };
    for line in log.lines() {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.executions = count.trim().parse().unwrap_or(0);
        }
        if !line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let executions = words.next().and_then(|word| word[1..].parse().ok());
        outcome.executions = executions.unwrap_or(outcome.executions);
        while let Some(word) = words.next() {
            let mut number = || {
                let word = words.next()?;
                word.split('/').next()?.parse().ok()
            };
            match word {
                "cov:" => outcome.edges = number().unwrap_or(0),
                "ft:" => outcome.features = number().unwrap_or(0),
                "corp:" => outcome.inputs = number().unwrap_or(0),
                _ => {}
            }
        }
    }
    outcome
}

#[cfg(test)]
mod unit {
    use std::fs;
    use std::path::Path;

    use crate::fuzz_program::write_program;

    use super::{Attack, Place, Programs, Target, read_log, targets};

    /// Attacks with a program that says at the end of a campaign that an input took long, and does `alone` when
    /// that is run again: the name of what is stored.
    fn stopped_by_the_clock(alone: &str) -> Option<String> {
        let room = tempfile::tempdir().unwrap();
        let (program, work) = (room.path().join("fuzzer"), room.path().join("work"));
        let script = format!(
            "#!/bin/sh\nfor last; do case $last in -artifact_prefix=*) at=${{last#*=}};; esac; done\n\
             case $* in *-max_total_time=*) echo input > ${{at}}timeout-abcdef; exit 70;; esac\n{alone}\n"
        );
        write_program(&program, &script);
        let programs = Programs::only(program);
        let place = Place { root: room.path(), work: &work, programs: &programs };
        let target = Target {
            name: "it".into(),
            is_parser: false,
            len_bytes_max: "9".into(),
            about: String::new(),
        };
        let attack = Attack {
            names: Vec::new(),
            list: false,
            ledger: false,
            all: false,
            seconds: 1,
            hours: None,
            jobs: 1,
            store: false,
        };
        let stored = place.attack(&target, &attack, 1).unwrap().finding?;
        assert_eq!(fs::read_to_string(&stored).unwrap(), "input\n");
        Some(stored.file_name().unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn what_the_clock_stopped_is_judged_alone() {
        assert_eq!(stopped_by_the_clock("exit 0"), None);
        assert_eq!(stopped_by_the_clock("exit 70").unwrap(), "finding-abcdef");
    }

    #[test]
    fn every_target_is_listed_and_has_inputs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let targets = targets(&root).unwrap();
        let corpus = root.join("fuzz/corpus");
        let folders = corpus.read_dir().unwrap().count();
        assert_eq!(targets.len(), folders);
        for target in targets {
            assert!(corpus.join(&target.name).is_dir(), "{}", target.name);
            assert!(target.len_bytes_max.parse::<usize>().is_ok() && target.about.len() > 10);
        }
    }

    #[test]
    fn the_last_progress_and_the_statistics_are_read() {
        let log = "INFO: Running with entropic power schedule (0xFF, 100).\n\
            #2\tINITED cov: 9 ft: 9 corp: 1/1b exec/s: 0 rss: 26Mb\n\
            #4194304\tpulse  cov: 10 ft: 12 corp: 4/13b lim: 4096 exec/s: 1398101 rss: 27Mb\n\
            thread '<unnamed>' panicked at 'found'\n\
            stat::number_of_executed_units: 4194400\n\
            stat::average_exec_per_sec:     1198521\n";
        let outcome = read_log("it", log);
        let counts = [outcome.executions, outcome.edges, outcome.features, outcome.inputs];
        assert_eq!(counts, [4_194_400, 10, 12, 4]);
        let row = read_log("it", "nothing").row();
        assert!(row.starts_with("it: 0 executions in 0 s"), "{row}");
    }
}
