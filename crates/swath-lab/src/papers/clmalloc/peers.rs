//! The programs of Fig. 7 and 8 on other allocators than the C library's, and on `cmt_malloc` with other
//! parameters of its heaps (Zhang, Lu and Zhang, sections 4.3 and 5.3).
//!
//! An allocator is a library that is preloaded into a process of its own, where it stands behind
//! `malloc`; `cmt_malloc` has one, too. A process runs the program twice, and the second time counts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::load::Structure;
use crate::papers::clmalloc::rounds::{cores, where_possible};
use crate::papers::clmalloc::ycsb::Workload;
use crate::study::bounds::Bounded;
use crate::study::child::child_command;
use crate::study::grid::{Grid, Metrics, Missing, View, mean, metrics};
use crate::study::plan::{Head, Refused, require};
use crate::study::run::{Run, StudyError};

/// The name of `cmt_malloc` with its own parameters among the allocators.
pub(crate) const OURS: &str = "CLMalloc";
/// The name of the C library's `malloc`.
pub(crate) const LIBC: &str = "malloc";

/// The axis of the allocators.
pub(crate) const ALLOCATOR: &str = "allocator";

/// An allocator to compare with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerPlan {
    /// Its name in figures.
    pub name: String,
    /// File names of its library, of which the first that is found is taken: paths, or names that are
    /// looked for where the system has its libraries.
    pub libraries: Vec<String>,
}

/// Parameters of the heaps (section 4.3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapsPlan {
    /// The name in figures.
    pub name: String,
    /// The threshold f in eighths: superblocks that are so empty may go to other heaps.
    pub empty_eighths: Bounded<1, 7>,
    /// Superblocks of a class and that emptiness which a heap keeps: Hoard's K.
    pub slack: Bounded<0, 1024>,
    /// Heaps for threads, the paper's P; the threads beyond share one more.
    pub heaps: Bounded<1, 8191>,
}

/// Refuses names that stand twice, and those of the allocators that are always there.
pub(crate) fn check<'p>(
    key: &str,
    names: impl Iterator<Item = &'p str>,
    most: usize,
) -> Result<(), Refused> {
    let mut before = vec![OURS, LIBC];
    for (at, name) in names.enumerate() {
        require(at < most, key, || format!("more than {most}"))?;
        require(!before.contains(&name), &format!("{key}.{at}.name"), || {
            format!("{name:?} stands twice, or is an allocator that is always there")
        })?;
        before.push(name);
    }
    Ok(())
}

/// A program of the paper's with its load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Program {
    /// Of Fig. 7.
    Large { size_kib: (u64, u64), live: usize, every_page: bool, requests: u64 },
    /// Of Fig. 8.
    Structure { structure: Structure, workload: Workload, records: u64 },
}

/// The work of a child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramJob {
    pub(crate) program: Program,
    pub(crate) threads: u64,
    /// The plan's seed, and the number of the round.
    pub(crate) seed: u64,
    pub(crate) round: u64,
    /// True for `cmt_malloc`; `malloc` otherwise, of whichever library.
    pub(crate) cmt: bool,
}

/// The answer of a child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    ns: f64,
    /// A sum over all that was read.
    sum: u64,
}

/// An allocator with what a child needs for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Allocator {
    pub(crate) name: String,
    preload: Option<PathBuf>,
    environment: Vec<(&'static str, String)>,
    cmt: bool,
}

impl Allocator {
    /// `cmt_malloc` as it is.
    pub(crate) fn ours() -> Self {
        let (preload, environment) = (None, Vec::new());
        Self { name: OURS.to_owned(), preload, environment, cmt: true }
    }

    /// `cmt_malloc` with other parameters.
    pub(crate) fn with_heaps(plan: &HeapsPlan) -> Self {
        let environment = vec![
            ("SWATH_EMPTY_EIGHTHS", plan.empty_eighths.to_string()),
            ("SWATH_SLACK", plan.slack.to_string()),
            ("SWATH_HEAPS", plan.heaps.to_string()),
        ];
        Self { name: plan.name.clone(), environment, ..Self::ours() }
    }

    /// The C library's `malloc`, and those of the plan whose libraries are found; the others in words.
    pub(crate) fn found(peers: &[PeerPlan]) -> (Vec<Self>, Vec<String>) {
        let libc = Self { name: LIBC.to_owned(), cmt: false, ..Self::ours() };
        let (mut all, mut lacking) = (vec![libc], Vec::new());
        for peer in peers {
            match peer.libraries.iter().find_map(|library| find(library)) {
                Some(path) => {
                    let preload = Some(path);
                    all.push(Self { name: peer.name.clone(), preload, cmt: false, ..Self::ours() });
                }
                None => lacking.push(format!(
                    "{} is not measured: no library {} is installed.",
                    peer.name,
                    peer.libraries.join(" or ")
                )),
            }
        }
        (all, lacking)
    }

    /// Returns true for `cmt_malloc`, with whichever parameters.
    pub(crate) const fn is_ours(&self) -> bool {
        self.cmt
    }

    /// Does a job in a child of the study `kind`.
    fn run(&self, kind: &str, job: &ProgramJob) -> Result<Ran, String> {
        let job = ProgramJob { cmt: self.cmt, ..job.clone() };
        let text = serde_json::to_string(&job).map_err(|error| error.to_string())?;
        let mut command = child_command(kind, &text).map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).envs(self.environment.iter().map(|(key, value)| (key, value)));
        if let Some(path) = &self.preload {
            command.env("LD_PRELOAD", path);
        }
        let output = command.output().map_err(|error| error.to_string())?;
        // The dynamic linker says so if it cannot preload a library, and goes on.
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || self.preload.is_some() && said.contains("LD_PRELOAD") {
            return Err(format!("{}: {}", self.name, said.trim()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// The file of a library: itself if it is a path, else where the system has its libraries.
fn find(library: &str) -> Option<PathBuf> {
    if library.contains('/') {
        return Some(PathBuf::from(library)).filter(|path| path.is_file());
    }
    let arch = std::env::consts::ARCH;
    let places = [
        format!("/usr/lib/{arch}-linux-gnu"),
        "/usr/lib64".to_owned(),
        "/usr/local/lib".to_owned(),
        "/usr/lib".to_owned(),
    ];
    places.iter().map(|place| PathBuf::from(place).join(library)).find(|path| path.is_file())
}

/// Times of a program with its place on the axes of a grid.
pub(crate) type Point = (Vec<crate::study::grid::Value>, Program, u64);

/// Points, and the names of the axes on which they have a place.
pub(crate) type Points<'p> = (&'p [&'p str], &'p [Point]);

/// Every program on every allocator in each round, one after the other, another one first each time:
/// the grid of the axes of the points and that of the allocators. Without a child that does its work
/// there is none, and the reason is added to `lacking`: the rest of a study does not need it.
pub(crate) fn measure(
    kind: &'static str,
    about: &Head,
    run: &Run<'_>,
    repeats: u64,
    (axes, points): Points<'_>,
    allocators: &[Allocator],
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let rounds = where_possible(run, about, repeats, points, |(_, program, threads), round| {
        let (program, threads) = (program.clone(), *threads);
        let job = ProgramJob { program, threads, seed: about.seed, round, cmt: false };
        times(kind, &job, allocators)
    })?;
    let axes: Vec<&str> = axes.iter().copied().chain([ALLOCATOR]).collect();
    let rounds = match rounds {
        Ok(rounds) => rounds,
        Err(why) => {
            lacking.push(format!("Other allocators were not measured: {why}."));
            return Ok(Grid::new(&axes, 0));
        }
    };
    let mut grid = Grid::new(&axes, usize::try_from(repeats).unwrap_or(usize::MAX));
    for ((place, ..), runs) in points.iter().zip(&rounds) {
        for Allocator { name, .. } in allocators {
            let of = |times: &Times| {
                metrics([("log_ns", times.get(name).map_or(f64::NAN, |ns| ns.ln()))])
            };
            let at = place.iter().cloned().chain([name.as_str().into()]).collect();
            grid.add(at, &runs.iter().map(of).collect::<Vec<Metrics>>());
        }
    }
    Ok(grid)
}

/// The time of a job in nanoseconds on each allocator, by name.
type Times = BTreeMap<String, f64>;

fn times(kind: &str, job: &ProgramJob, allocators: &[Allocator]) -> Result<Times, String> {
    let (mut found, mut sum) = (Times::new(), None);
    for nth in 0..allocators.len() {
        let allocator = &allocators[(nth + job.round as usize) % allocators.len()];
        let ran = allocator.run(kind, job)?;
        if *sum.get_or_insert(ran.sum) != ran.sum {
            return Err(format!("{}: another sum than the others'", allocator.name));
        }
        found.insert(allocator.name.clone(), ran.ns.max(1.0));
    }
    Ok(found)
}

/// The geometric mean, over the cells that `select` has of an allocator, of the time of `ours` as a
/// ratio to that of the others: the fastest of these in the mean of the seeds.
pub(crate) fn against_best(
    view: &View<'_>,
    ours: &str,
    others: &[Allocator],
    select: impl Fn(&View<'_>, &str) -> Result<Vec<f64>, Missing>,
) -> Result<f64, Missing> {
    let of = |name: &str| Ok(mean(&select(view, name)?));
    let mut best = f64::INFINITY;
    for other in others.iter().filter(|other| !other.is_ours()) {
        best = best.min(of(&other.name)?);
    }
    Ok((of(ours)? - best).exp())
}

/// Numbers of threads that have a core each: others would measure the scheduler.
pub(crate) fn side_by_side(threads: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let cores = cores();
    threads.filter(move |&threads| threads <= cores)
}

/// Does a job, in the child, and prints its answer.
///
/// # Errors
/// The fault, for the program to say.
#[cfg(target_os = "linux")]
pub(crate) fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let job: ProgramJob = serde_json::from_str(job)?;
    // The first is for memory that the allocator never had.
    ran(&job)?;
    println!("{}", serde_json::to_string(&ran(&job)?)?);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn child(_: &str) -> Result<(), Box<dyn std::error::Error>> {
    Err(crate::papers::clmalloc::rounds::ELSEWHERE.into())
}

#[cfg(target_os = "linux")]
fn ran(job: &ProgramJob) -> Result<Ran, String> {
    use crate::papers::clmalloc::allocator::{Cmt, Libc};
    use crate::papers::clmalloc::load::{parts, sizes};
    use crate::papers::clmalloc::rounds::seed;
    use crate::papers::clmalloc::{blocks, records};
    let ProgramJob { threads, seed: plan, round, cmt, .. } = *job;
    match job.program {
        Program::Large { size_kib, live, every_page, requests } => {
            let parts = sizes(size_kib, plan, round, threads, requests);
            let run = if cmt { blocks::run::<Cmt> } else { blocks::run::<Libc> };
            run(&parts, live, every_page).map(|(ns, sum)| Ran { ns, sum })
        }
        Program::Structure { structure, workload, records } => {
            let parts = parts(workload, records, threads, |thread| seed(plan, round, thread));
            let run = if cmt { records::run_all::<Cmt> } else { records::run_all::<Libc> };
            let (ns, sums) = run(structure, &parts)?;
            Ok(Ran { ns, sum: sums.into_iter().fold(0, u64::wrapping_add) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_said() {
        let peer = |name: &str, libraries: &[&str]| PeerPlan {
            name: name.to_owned(),
            libraries: libraries.iter().map(|&library| library.to_owned()).collect(),
        };
        let here = std::env::current_exe().unwrap();
        let here = here.to_str().unwrap();
        let peers = [peer("none", &["libnone.so.9", "/no/such/file"]), peer("here", &["x", here])];
        let (found, lacking) = Allocator::found(&peers);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, [LIBC, "here"]);
        let none = "none is not measured: no library libnone.so.9 or /no/such/file is installed.";
        assert_eq!(lacking, [none]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_allocators_read_the_same() {
        let job =
            |program: Program, cmt| ProgramJob { program, threads: 2, seed: 3, round: 1, cmt };
        let size_kib = (1, 64);
        let programs = [
            Program::Large { size_kib, live: 3, every_page: true, requests: 50 },
            Program::Structure {
                structure: Structure::UnorderedMap,
                workload: Workload::F,
                records: 700,
            },
        ];
        for program in programs {
            let [malloc, cmt] = [false, true].map(|cmt| ran(&job(program.clone(), cmt)).unwrap());
            assert_eq!(malloc.sum, cmt.sum, "{program:?}");
            assert!(malloc.ns > 0.0 && cmt.ns > 0.0);
        }
    }
}
