//! `swath study`: runs studies and writes the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use swath_lab::report::folder::Folder;
use swath_lab::report::write::{self, Rendered};
use swath_lab::source::real::{Machine, RealInput};
use swath_lab::study::journal::{Begun, Journal};
use swath_lab::study::kind::{ReadyStudy, Uses};
use swath_lab::study::needs::mib;
use swath_lab::study::registry;
use swath_lab::study::results::{Claim, StudyResult};
use swath_lab::study::run::{Outcome, Run, Shared};
use swath_lab::study::tally::Tally;
use swath_trace::machine::UnknownFrames;
use swath_trace::whole;

use crate::failure::Failure;
use crate::progress::{Bar, watch_for_interrupts};
use crate::resources::Resources;

/// The longest plan: those that come with the program have up to a hundredth.
pub(crate) const PLAN_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `swath study`.
#[derive(Args)]
pub(crate) struct StudyArgs {
    /// The studies; all of them, in their quick form, if none is named.
    names: Vec<String>,
    /// A plan of your own instead of the built-in ones; can be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    plan: Vec<PathBuf>,
    /// The report's directory.
    #[arg(long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
    /// Search the open parameters of a study jointly, instead of running it; of all studies that
    /// have a search, in its quick form, if none is named.
    #[arg(long, conflicts_with_all = ["plan", "check"])]
    search: bool,
    /// Fewer seeds for each point, or less work.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All seeds of each point, also when no study is named.
    #[arg(long)]
    full: bool,
    /// Use the free frames of a real machine, from `swath snapshot`.
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,
    /// Count the frames of a snapshot whose state is unknown as free.
    #[arg(long, requires = "memory")]
    unknown_free: bool,
    /// Use the accesses of a real program: valgrind lackey's text, records of
    /// ChampSim or of DynamoRIO's drmemtrace, plain text or CSV of addresses and kinds, or `swath record accesses`, plain or
    /// compressed.
    #[arg(long, value_name = "FILE")]
    accesses: Option<PathBuf>,
    /// Measure this machine, too, in the studies that can.
    #[arg(long)]
    real: bool,
    /// Another seed than the plan's.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    resources: Resources,
    /// Measure every point anew, whatever a run that did not end has measured.
    #[arg(long)]
    fresh: bool,
    /// Print the result of the command as JSON.
    #[arg(long)]
    json: bool,
    /// List the studies and stop.
    #[arg(long)]
    list: bool,
    /// Check plans and their statements without running them.
    #[arg(long, value_name = "PLAN", num_args = 1.., conflicts_with_all = ["names", "plan"])]
    check: Vec<PathBuf>,
    /// Print the JSON Schema of every kind's plans and stop.
    #[arg(long, conflicts_with_all = ["names", "plan", "check"])]
    schema: bool,
}

type Plans = Vec<Box<dyn ReadyStudy>>;

/// Runs the command.
pub(crate) fn run(args: &StudyArgs) -> Result<(), Failure> {
    if args.schema {
        say!("{:#}", registry::schemas());
        return Ok(());
    }
    let mut plans = plans(args)?;
    if args.list {
        list(&plans, args.json);
        return Ok(());
    }
    if let Some(seed) = args.seed {
        plans.iter_mut().for_each(|plan| plan.about_mut().seed = seed);
    }
    let real = real_input(args, &plans)?;
    let bar = Bar::new();
    let named = !args.names.is_empty() || !args.plan.is_empty();
    let quick = args.quick || !(named || args.full);
    let run = Run { quick, real: &real, watch: &bar, journal: None, shared: &Shared::default() };
    if !args.check.is_empty() {
        return check(args, &plans, &run);
    }
    for (i, plan) in plans.iter().enumerate() {
        let study = &plan.about().study;
        if plans[..i].iter().any(|other| other.about().study == *study) {
            return Err(Failure::new(2, format!("study {study:?} is given twice")));
        }
    }
    let folder = Folder::open(&args.out)?;
    watch_for_interrupts();
    let mut written = Vec::new();
    let ran = run_all(args, &folder, &plans, &run, &bar, &mut written);
    bar.0.finish_and_clear();
    // The studies that were finished have their page, whatever ended the run.
    if ran.is_ok() || !written.is_empty() {
        let rendered = write::write_index(&folder)?;
        warn_of(&rendered);
        sum_up(args, &written, &rendered.index);
    }
    if ran.is_ok() {
        // All is in the report: nothing is left to resume.
        for one in &written {
            let _ = std::fs::remove_file(&one.journal);
        }
    }
    ran
}

/// One study that was run and written.
struct Written {
    study: String,
    directory: PathBuf,
    tally: Tally,
    /// Points that a run before this one had measured, and all.
    points: (u64, u64),
    journal: PathBuf,
}

fn run_all(
    args: &StudyArgs,
    folder: &Folder,
    plans: &Plans,
    run: &Run<'_>,
    bar: &Bar,
    written: &mut Vec<Written>,
) -> Result<(), Failure> {
    // Before any work: a plan that cannot be run is not found out about after hours.
    let threads: Result<Vec<u64>, Failure> =
        plans.iter().map(|plan| threads(args, plan.as_ref(), run)).collect();
    for (plan, threads) in plans.iter().zip(threads?) {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(usize::try_from(threads).unwrap_or(1))
            .build()
            .map_err(|error| Failure::new(1, format!("threads: {error}")))?;
        let (journal, path) = journal(args, folder, plan.as_ref(), run, bar)?;
        let run = Run { journal: Some(&journal), ..*run };
        let outcome = pool.install(|| plan.run(&run))?;
        let (result, host) = (&outcome.result, &outcome.host);
        write::write_study(folder, result, host.as_ref())?;
        let points = journal.counts();
        let tally = Tally::of(claims(&outcome));
        let directory = args.out.join(&result.study);
        bar.0.suspend(|| {
            if !args.json {
                let (study, form) = (&result.study, form(result));
                let resumed = match points {
                    (0, _) => String::new(),
                    (resumed, all) => format!("resumed: {resumed} of {all} points   "),
                };
                say!("{study:18} {form:14} {tally}   {resumed}{}", directory.display());
            }
        });
        let study = result.study.clone();
        written.push(Written { study, directory, tally, points, journal: path });
    }
    Ok(())
}

/// Opens the journal of a study, and says what is in it.
fn journal(
    args: &StudyArgs,
    folder: &Folder,
    plan: &dyn ReadyStudy,
    run: &Run<'_>,
    bar: &Bar,
) -> Result<(Journal, PathBuf), Failure> {
    let study = &plan.about().study;
    let key = plan.journal_key(run)?;
    let path = folder.journal(study, &key);
    for other in folder.journals(study)? {
        if args.fresh {
            std::fs::remove_file(&other)
                .map_err(|error| Failure::new(1, format!("{}: {error}", other.display())))?;
        } else if other != path {
            bar.warn(&format!(
                "{study}: {} is of another plan, seed or build and stays; --fresh removes it",
                other.display()
            ));
        }
    }
    let (journal, begun) = Journal::open(&path, &key)?;
    match begun {
        Begun::Anew => {}
        Begun::Resumed { points, under_way, cut_bytes } => {
            let cut = match cut_bytes {
                0 => String::new(),
                bytes => format!("; {bytes} bytes at its end were no whole record"),
            };
            bar.warn(&format!(
                "{study}: {points} points of a run that did not end are in its journal, {under_way} \
                 were under way{cut}"
            ));
        }
        Begun::Replaced => bar.warn(&format!(
            "{}: not a journal of this plan, seed and build; begun anew",
            path.display()
        )),
    }
    Ok((journal, path))
}

fn claims(outcome: &Outcome) -> impl Iterator<Item = &Claim> {
    outcome.result.claims.iter().chain(outcome.host.iter().flat_map(|host| &host.claims))
}

/// The form of a run: "quick, n = 5".
fn form(result: &StudyResult) -> String {
    let form = if result.quick { "quick" } else { "full" };
    if result.n == 0 { form.to_owned() } else { format!("{form}, n = {}", result.n) }
}

/// Says what the page leaves out.
pub(crate) fn warn_of(rendered: &Rendered) {
    use std::io::Write as _;
    for error in &rendered.left_out {
        let _ = writeln!(std::io::stderr(), "swath: left out of the page: {error}");
    }
}

fn sum_up(args: &StudyArgs, written: &[Written], index: &Path) {
    let total = written.iter().fold(Tally::default(), |sum, one| sum + one.tally);
    if args.json {
        let studies: Vec<Value> = written
            .iter()
            .map(|one| {
                json!({
                    "study": one.study,
                    "results": one.directory.join("results.json").to_string_lossy(),
                    "verdicts": one.tally.to_json(),
                    "points": { "all": one.points.1, "resumed": one.points.0 },
                })
            })
            .collect();
        let index = index.to_string_lossy();
        say!("{}", json!({ "studies": studies, "verdicts": total.to_json(), "index": index }));
    } else {
        let noun = if written.len() == 1 { "study" } else { "studies" };
        say!("{total} in {} {noun}; open {}", written.len(), index.display());
    }
}

fn list(plans: &Plans, json: bool) {
    if json {
        let studies: Vec<Value> = plans
            .iter()
            .map(|plan| {
                let (about, citation) = (plan.about(), plan.citation());
                json!({
                    "study": about.study,
                    "kind": about.kind,
                    "title": about.title,
                    "paper": citation.key,
                })
            })
            .collect();
        say!("{}", json!({ "studies": studies }));
        return;
    }
    for plan in plans {
        say!("{:18} {}", plan.about().study, plan.about().title);
    }
}

/// Threads on which a study keeps within the limits.
fn threads(args: &StudyArgs, plan: &dyn ReadyStudy, run: &Run<'_>) -> Result<u64, Failure> {
    plan.threads_within(run, args.resources.jobs(), args.resources.limits())
        .map_err(|error| Failure::new(2, error))
}

/// Prints each plan's statements, which of them its machine or load rules out, and the memory
/// that it takes. A plan that takes more than it may is refused.
fn check(args: &StudyArgs, plans: &Plans, run: &Run<'_>) -> Result<(), Failure> {
    let mut checked = Vec::new();
    for plan in plans {
        let statements = plan.statements(run);
        let apart = statements.iter().filter(|(_, incomparable)| incomparable.is_some()).count();
        let (study, of) = (&plan.about().study, statements.len());
        let threads = threads(args, plan.as_ref(), run)?;
        let memory = plan.needs(run).memory_bytes(threads);
        checked.push(json!({
            "study": study,
            "statements": of,
            "not_comparable": apart,
            "threads": threads,
            "memory_bytes": memory,
            "memory_limit_bytes": args.resources.limits().memory_bytes,
        }));
        if args.json {
            continue;
        }
        say!("{study}: can be run; {of} statements, {apart} of them not comparable");
        let s = if threads == 1 { "" } else { "s" };
        say!("  takes up to {} MiB of memory on {threads} thread{s}", mib(memory));
        for (statement, incomparable) in &statements {
            if let Some(why) = incomparable {
                say!("  not comparable: {statement} ({why})");
            }
        }
    }
    if args.json {
        say!("{}", json!({ "plans": checked }));
    }
    Ok(())
}

fn plans(args: &StudyArgs) -> Result<Plans, Failure> {
    let files = if args.check.is_empty() { &args.plan } else { &args.check };
    if !files.is_empty() {
        let read = |path: &PathBuf| {
            let text =
                whole::read_text(path, PLAN_BYTES_MAX).map_err(|error| Failure::new(2, error))?;
            registry::parse(&path.display().to_string(), &text)
                .map_err(|error| Failure::new(2, error))
        };
        return files.iter().map(read).collect();
    }
    let (names, all): (Vec<String>, Plans) = match args.search {
        true => registry::built_in_searches().map_err(|error| Failure::new(1, error))?,
        false => {
            let all = registry::built_in().map_err(|error| Failure::new(1, error))?;
            all.into_iter().map(|plan| (plan.about().study.clone(), plan)).collect()
        }
    }
    .into_iter()
    .unzip();
    if args.names.is_empty() {
        return Ok(all);
    }
    let mut all: Vec<Option<_>> = all.into_iter().map(Some).collect();
    let mut chosen = Plans::new();
    for wanted in &args.names {
        let Some(at) = names.iter().position(|name| name == wanted) else {
            return Err(Failure::new(2, unknown(wanted, &names, args.search)));
        };
        let twice = || Failure::new(2, format!("study {wanted:?} is given twice"));
        chosen.push(all[at].take().ok_or_else(twice)?);
    }
    Ok(chosen)
}

/// A name that is no study's, and the one that is meant.
fn unknown(wanted: &str, names: &[String], search: bool) -> String {
    let study = if search { "study with a search" } else { "study" };
    let likeness =
        |name: &&String| (strsim::normalized_damerau_levenshtein(wanted, name) * 1e6) as u64;
    let nearest = names.iter().max_by_key(likeness).filter(|name| likeness(name) >= 700_000);
    match nearest {
        Some(name) => format!("no {study} {wanted:?}; did you mean {name}?"),
        None => format!("no {study} {wanted:?}; there are {}", names.join(", ")),
    }
}

fn real_input(args: &StudyArgs, plans: &Plans) -> Result<RealInput, Failure> {
    let uses = |of: fn(Uses) -> bool| plans.iter().any(|plan| of(plan.uses()));
    for (given, used, what) in [
        (
            args.real,
            uses(|uses| uses.machine),
            "--real: none of these studies measures this machine",
        ),
        (
            args.memory.is_some(),
            uses(|uses| uses.memory),
            "--memory: none of these studies uses it",
        ),
        (
            args.accesses.is_some(),
            uses(|uses| uses.accesses),
            "--accesses: none of these studies uses them",
        ),
    ] {
        if given && !used {
            return Err(Failure::new(2, what));
        }
    }
    let unknown = if args.unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
    let memory = match &args.memory {
        Some(file) => Some(Arc::new(Machine::load(Some(file), unknown)?)),
        None => None,
    };
    Ok(RealInput { memory, accesses: args.accesses.clone(), measure: args.real })
}
