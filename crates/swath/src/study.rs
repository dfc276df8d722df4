//! `swath study`: runs studies and writes the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use swath_lab::report::write::{self, ReportError};
use swath_lab::source::real::{Machine, RealInput};
use swath_lab::study::claim::Tally;
use swath_lab::study::kind::{ReadyStudy, Uses};
use swath_lab::study::registry;
use swath_lab::study::results::{Claim, StudyResult};
use swath_lab::study::run::{Outcome, Run};
use swath_trace::machine::UnknownFrames;
use swath_trace::whole;

use crate::failure::Failure;
use crate::progress::{Bar, watch_for_interrupts};

/// The longest plan: those that come with the program have up to a hundredth.
const PLAN_BYTES_MAX: u64 = 1 << 20;

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
    /// Use the accesses of a real program: valgrind lackey's text, ChampSim's
    /// records or `swath record accesses`, plain or compressed.
    #[arg(long, value_name = "FILE")]
    accesses: Option<PathBuf>,
    /// Measure this machine, too, in the studies that can.
    #[arg(long)]
    real: bool,
    /// Another seed than the plan's.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; as many as processors if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
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
    let run = Run { quick: args.quick || !(named || args.full), real: &real, watch: &bar };
    if !args.check.is_empty() {
        check(&plans, &run);
        return Ok(());
    }
    for (i, plan) in plans.iter().enumerate() {
        let study = &plan.about().study;
        if plans[..i].iter().any(|other| other.about().study == *study) {
            return Err(Failure::new(2, format!("study {study:?} is given twice")));
        }
    }
    write::check_place(&args.out).map_err(|error| Failure::new(2, error))?;
    watch_for_interrupts();
    let mut written = Vec::new();
    let ran = run_all(args, &plans, &run, &bar, &mut written);
    bar.0.finish_and_clear();
    // The studies that were finished have their page, whatever ended the run.
    let index = if ran.is_ok() || !written.is_empty() { Some(index(&args.out)?) } else { None };
    if let Some(index) = &index {
        sum_up(args, &written, index);
    }
    ran
}

/// One study that was run and written.
struct Written {
    study: String,
    directory: PathBuf,
    tally: Tally,
}

fn run_all(
    args: &StudyArgs,
    plans: &Plans,
    run: &Run<'_>,
    bar: &Bar,
    written: &mut Vec<Written>,
) -> Result<(), Failure> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs.unwrap_or(0).into())
        .build()
        .map_err(|error| Failure::new(1, error))?;
    for plan in plans {
        let outcome = pool.install(|| plan.run(run))?;
        let (result, host) = (&outcome.result, &outcome.host);
        write::write_study(&args.out, result, host.as_ref())
            .map_err(|error| Failure::new(1, error))?;
        let tally = Tally::of(claims(&outcome));
        let directory = args.out.join(&result.study);
        bar.0.suspend(|| {
            if !args.json {
                let (study, form) = (&result.study, form(result));
                say!("{study:18} {form:14} {tally}   {}", directory.display());
            }
        });
        written.push(Written { study: result.study.clone(), directory, tally });
    }
    Ok(())
}

fn claims(outcome: &Outcome) -> impl Iterator<Item = &Claim> {
    outcome.result.claims.iter().chain(outcome.host.iter().flat_map(|host| &host.claims))
}

/// The form of a run: "quick, n = 5".
fn form(result: &StudyResult) -> String {
    let form = if result.quick { "quick" } else { "full" };
    if result.n == 0 { form.to_owned() } else { format!("{form}, n = {}", result.n) }
}

fn index(out: &Path) -> Result<PathBuf, Failure> {
    let (index, left_out) = write::write_index(out).map_err(|error| Failure::new(1, error))?;
    for error in left_out {
        warn(&error);
    }
    Ok(index)
}

/// Says what the page leaves out.
fn warn(error: &ReportError) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "swath: left out of the page: {error}");
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

/// Prints each plan's statements, and which of them its machine or load rules
/// out.
fn check(plans: &Plans, run: &Run<'_>) {
    for plan in plans {
        let statements = plan.statements(run);
        let apart = statements.iter().filter(|(_, incomparable)| incomparable.is_some()).count();
        let (study, of) = (&plan.about().study, statements.len());
        say!("{study}: can be run; {of} statements, {apart} of them not comparable");
        for (statement, incomparable) in &statements {
            if let Some(why) = incomparable {
                say!("  not comparable: {statement} ({why})");
            }
        }
    }
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
    let mut all: Vec<Option<_>> = registry::built_in()
        .map_err(|error| Failure::new(1, error))?
        .into_iter()
        .map(Some)
        .collect();
    if args.names.is_empty() {
        return Ok(all.into_iter().flatten().collect());
    }
    let names: Vec<String> = all.iter().flatten().map(|plan| plan.about().study.clone()).collect();
    let mut chosen = Plans::new();
    for wanted in &args.names {
        let Some(at) = names.iter().position(|name| name == wanted) else {
            return Err(Failure::new(2, unknown(wanted, &names)));
        };
        let twice = || Failure::new(2, format!("study {wanted:?} is given twice"));
        chosen.push(all[at].take().ok_or_else(twice)?);
    }
    Ok(chosen)
}

/// A name that is no study's, and the one that is meant.
fn unknown(wanted: &str, names: &[String]) -> String {
    let likeness =
        |name: &&String| (strsim::normalized_damerau_levenshtein(wanted, name) * 1e6) as u64;
    let nearest = names.iter().max_by_key(likeness).filter(|name| likeness(name) >= 700_000);
    match nearest {
        Some(name) => format!("no study {wanted:?}; did you mean {name}?"),
        None => format!("no study {wanted:?}; there are {}", names.join(", ")),
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
