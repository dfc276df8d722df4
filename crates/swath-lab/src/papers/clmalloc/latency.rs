//! What requests cost, from the baseline to CLMalloc (Fig. 6 of
//! 003_f9a9d8482224280c.txt).
//!
//! How many are served, and how many pages are taken and mapped for them, follows
//! from the plan. Time is taken in children on real memory ([`cl_memory`](crate::papers::clmalloc::memory)),
//! and the allocators' own instructions are stepped.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_frame::segment::FrameSupply;

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::clmalloc::plan::LatencyPlan;
use crate::papers::clmalloc::variant::{Requests, Setting, Variant};
use crate::papers::page_buddy::allocation::host_name;
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

const SERVED: &str = "Requests served";
const PAGES: &str = "Pages";
const FIRST: &str = "Fig. 6, new memory";
const LATER: &str = "Fig. 6";
const BOTH: &str = "Fig. 6, with releases";
const INSTRUCTIONS: &str = "Instructions";

/// The most steps of one request.
const STEPS_MAX: u64 = 20_000_000;

/// What a child is to do.
#[derive(Serialize, Deserialize)]
struct Job {
    setting: Setting,
    /// How many requests.
    count: u64,
    /// Rounds on real memory; none: instructions are counted by the parent.
    rounds: Option<u32>,
}

/// Times of one round in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Round {
    get_ns: f64,
    put_ns: f64,
}

/// The child: what it has to print, nothing where the parent counts.
///
/// # Errors
/// What went wrong, for the program to say.
pub fn child(job: &str) -> Result<String, Box<dyn std::error::Error>> {
    let Job { setting, count, rounds } = serde_json::from_str(job)?;
    match rounds {
        Some(rounds) => Ok(serde_json::to_string(&time(&setting, count, rounds)?)?),
        None => {
            let mut marks = Marks::begin()?;
            setting.simulate(|requests| step(requests, count, &mut marks))??;
            Ok(String::new())
        }
    }
}

/// The second round's requests between marks.
fn step(requests: &mut dyn Requests, count: u64, marks: &mut Marks) -> Result<(), String> {
    get_all(requests, count)?;
    requests.put_all()?;
    for _ in 0..count {
        let mut served = false;
        marks
            .region("", &mut || served = std::hint::black_box(requests.get()))
            .map_err(|error| error.to_string())?;
        if !served {
            return Err("a request was served once and not again".to_owned());
        }
    }
    Ok(())
}

fn get_all(requests: &mut dyn Requests, count: u64) -> Result<(), String> {
    match (0..count).find(|_| !requests.get()) {
        Some(at) => Err(format!("request {at} of {count} was not served")),
        None => Ok(()),
    }
}

fn measure(requests: &mut dyn Requests, count: u64, rounds: u32) -> Result<Vec<Round>, String> {
    let round = |_| {
        let start = Instant::now();
        get_all(requests, count)?;
        let get_ns = start.elapsed().as_nanos() as f64;
        let start = Instant::now();
        requests.put_all()?;
        Ok(Round { get_ns, put_ns: start.elapsed().as_nanos() as f64 })
    };
    (0..rounds).map(round).collect()
}

#[cfg(target_os = "linux")]
fn time(setting: &Setting, count: u64, rounds: u32) -> Result<Vec<Round>, String> {
    let memory = crate::papers::clmalloc::memory::FileMemory::new(
        &setting.machine,
        setting.variant.frames(),
    );
    let memory = memory.map_err(|error| format!("memory of areas: {error}"))?;
    setting.with(memory.base(), memory, |requests| measure(requests, count, rounds))?
}

#[cfg(not(target_os = "linux"))]
fn time(_: &Setting, _: u64, _: u32) -> Result<Vec<Round>, String> {
    Err("memory of areas is made by Linux only".to_owned())
}

fn command(job: &Job) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", "measure-requests", &serde_json::to_string(job)?]);
    Ok(command)
}

/// The parent's side of [`time`].
fn ask(job: &Job) -> Result<Vec<Round>, String> {
    let output = command(job)
        .and_then(|mut command| command.stdin(Stdio::null()).stderr(Stdio::piped()).output())
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let rounds: Vec<Round> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    if rounds.len() < 2 { Err("too few rounds came back".to_owned()) } else { Ok(rounds) }
}

/// The parent's side of [`step`].
fn count(job: &Job) -> Result<Vec<u64>, CountError> {
    let mut counter = Counter::spawn(command(job).map_err(CountError::Spawn)?, STEPS_MAX)?;
    let mut counts = Vec::new();
    while let Some(region) = counter.next_region()? {
        counts.push(region.instructions);
    }
    Ok(counts)
}

/// What follows from the plan for one design.
struct Simulated {
    /// Requests served, of as many as there can be.
    served: u64,
    /// Pages mapped for the first `counts[0]` requests, or as many as are served, in the
    /// first round and in the next.
    mapped: [u64; 2],
    requests: u64,
}

fn simulate(plan: &LatencyPlan, setting: &Setting) -> Result<Simulated, String> {
    let served = setting
        .simulate(|requests| std::iter::from_fn(|| requests.get().then_some(())).count() as u64)?;
    let requests = plan.counts[0].min(served);
    let mapped = setting.simulate(|all| {
        let mut round = || {
            let before = all.pages().0;
            get_all(all, requests)?;
            all.put_all()?;
            Ok::<_, String>(all.pages().0 - before)
        };
        Ok::<_, String>([round()?, round()?])
    })??;
    Ok(Simulated { served, mapped, requests })
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &LatencyPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let settings = Variant::ALL.map(|variant| Setting {
        variant,
        machine: plan.machine.clone(),
        request_mib: plan.request_mib,
    });
    let simulated =
        run.points(about, &settings, |setting| simulate(plan, setting).map_err(failed))?;
    let mut result = StudyResult {
        figures: figures(plan),
        notes: notes(plan),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for (setting, found) in settings.iter().zip(&simulated) {
        let name = setting.variant.name();
        let served = plan.counts.iter().map(|&n| (n as f64, found.served.min(n) as f64));
        result.series.push(Series::new(SERVED, "requests", "served", name, served));
        let on_demand = setting.variant.frames() == FrameSupply::OnDemand;
        let per = |pages: u64| pages as f64 / found.requests.max(1) as f64;
        let [first, later] = found.mapped.map(per);
        let taken = |pages: f64| if on_demand { pages } else { 0.0 };
        let points = [
            ("first: taken", taken(first)),
            ("first: mapped", first),
            ("later: taken", taken(later)),
            ("later: mapped", later),
        ];
        result.series.push(Series::new(PAGES, "round", "pages", name, points));
    }
    let mut host = HostResult::new(&about.study, host_name(), Vec::new());
    let measured = times(plan, run, &settings, &simulated)?;
    match &measured {
        Ok(measured) => add_times(plan, &settings, measured, &mut host),
        Err(why) => host.notes.push(format!("Times were not measured: {why}.")),
    }
    instructions(plan, run, &settings, &simulated, &mut host)?;
    if plan.claims {
        result.claims = claims(&simulated);
        if let Ok(measured) = measured {
            host.claims = time_claims(plan, &settings, &measured).map_err(failed)?;
        }
    }
    Ok(Outcome { result, host: Some(host) })
}

/// By design, then by the number of requests, as far as all are served.
type Times = Vec<Vec<(u64, Vec<Round>)>>;

/// One child after the other, so that none disturbs another.
fn times(
    plan: &LatencyPlan,
    run: &Run<'_>,
    settings: &[Setting],
    simulated: &[Simulated],
) -> Result<Result<Times, String>, StudyError> {
    let rounds = if run.quick { plan.rounds_quick } else { plan.rounds };
    let counts = plan.counts(run.quick);
    let mut all: Times = settings.iter().map(|_| Vec::new()).collect();
    run.watch.begin(&plan.about.study, (counts.len() * settings.len()) as u64);
    for &count in counts {
        for ((setting, found), times) in settings.iter().zip(simulated).zip(&mut all) {
            if run.watch.cancelled() {
                return Err(StudyError::Interrupted);
            }
            if count <= found.served {
                let job = Job { setting: setting.clone(), count, rounds: Some(rounds) };
                match ask(&job) {
                    Ok(rounds) => times.push((count, rounds)),
                    Err(why) => return Ok(Err(why)),
                }
            }
            run.watch.point();
        }
    }
    Ok(Ok(all))
}

/// The first round, and the medians of the others: nanoseconds of all requests, and with the
/// releases.
fn summary(rounds: &[Round]) -> [f64; 3] {
    let median = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds[1..].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0).max(1.0)
    };
    [rounds[0].get_ns.max(1.0), median(|r| r.get_ns), median(|r| r.get_ns + r.put_ns)]
}

/// Microseconds that the allocator alone takes for so many requests, without memory behind it: the
/// median of some rounds.
fn search_us(setting: &Setting, count: u64) -> Result<f64, String> {
    let rounds = setting.simulate(|requests| measure(requests, count, 16))??;
    Ok(summary(&rounds)[1] / 1e3)
}

fn add_times(plan: &LatencyPlan, settings: &[Setting], times: &Times, host: &mut HostResult) {
    let size = plan.request_mib;
    let (x, y) = (format!("requests of {size} MiB"), "log10 of microseconds");
    let lines = FigureKind::Lines;
    host.figures.extend([
        Figure::new(LATER, "time of all requests, memory used before", lines, &x, y).with_caption(
            "Medians of rounds. A step of 1 is a factor of 10. A line ends where a request \
                 is not served any more.",
        ),
        Figure::new(FIRST, "time of all requests, the first round", lines, &x, y).with_caption(
            "Where all memory was taken before, that is not in the time; the pool maps \
             what it gets for the first time.",
        ),
        Figure::new(BOTH, "time of all requests and of all releases", lines, &x, y),
    ]);
    for (setting, times) in settings.iter().zip(times) {
        for (at, figure) in [FIRST, LATER, BOTH].into_iter().enumerate() {
            let points = times.iter().map(|(count, rounds)| {
                let us = summary(rounds)[at] / 1000.0;
                (*count as f64, us.log10())
            });
            let name = setting.variant.name();
            host.series.push(Series::new(figure, "requests", "log10_us", name, points));
        }
    }
}

fn instructions(
    plan: &LatencyPlan,
    run: &Run<'_>,
    settings: &[Setting],
    simulated: &[Simulated],
    host: &mut HostResult,
) -> Result<(), StudyError> {
    let most = plan.counts.iter().copied().max().unwrap_or(0);
    let jobs: Vec<Job> = settings
        .iter()
        .zip(simulated)
        .map(|(setting, found)| Job {
            setting: setting.clone(),
            count: most.min(found.served),
            rounds: None,
        })
        .collect();
    let counted = run.points(&plan.about, &jobs, |job| match count(job) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => {
            Err(StudyError::Machine { study: plan.about.study.clone(), what: error.to_string() })
        }
    })?;
    let counted: Vec<Vec<u64>> = match counted.into_iter().collect() {
        Ok(counted) => counted,
        Err(why) => {
            host.notes.push(format!("Instructions were not measured: {why}."));
            return Ok(());
        }
    };
    host.figures.push(
        Figure::new(
            INSTRUCTIONS,
            "the allocators' own, of each request",
            FigureKind::Lines,
            "request",
            "instructions",
        )
        .with_caption(
            "Exact, of the second round. Pages are not mapped here: only the search for a place \
             and what is noted.",
        ),
    );
    for (setting, counts) in settings.iter().zip(counted) {
        let points = counts.iter().enumerate().map(|(at, &n)| ((at + 1) as f64, n as f64));
        let name = setting.variant.name();
        host.series.push(Series::new(INSTRUCTIONS, "request", "instructions", name, points));
    }
    Ok(())
}

fn figures(plan: &LatencyPlan) -> Vec<Figure> {
    let size = plan.request_mib;
    vec![
        Figure::new(
            SERVED,
            &format!("of so many of {size} MiB"),
            FigureKind::Lines,
            "requests made",
            "requests served",
        ),
        Figure::new(
            PAGES,
            &format!("of 4 KiB for each request of {size} MiB"),
            FigureKind::Bars,
            "",
            "pages",
        )
        .with_caption(
            "All requests are made, released, and made again. Taken: from the areas' \
             buddy systems, and cleared.",
        ),
    ]
}

fn notes(plan: &LatencyPlan) -> Vec<String> {
    vec![
        format!(
            "{} areas, {} MiB. Physical memory is a file of memory, whose pages the kernel takes \
             and clears when they are first mapped: with each request (the first two designs: a \
             release gives them back), or before all (the others). A segment is mapped extent by \
             extent at its place in the accelerator's space.",
            plan.machine.areas_mib.len(),
            plan.machine.total_mib(),
        ),
        "Left out, in favour of the baseline: the excess of whole areas that it takes and gives \
         back, and the pages of blocks of a power of two beyond their requests."
            .to_owned(),
        "The pool gives nothing back to the areas between rounds: its delay has not passed. Its \
         arena is the accelerator's space, in units of 64 KiB from the global bitmap."
            .to_owned(),
    ]
}

fn claims(simulated: &[Simulated]) -> Vec<Claim> {
    let [baseline, bitmap, _, pool] = simulated else { return Vec::new() };
    let served = |found: &Simulated| found.served as f64;
    let exactly = |says: &str, paper: f64, found: &Simulated| {
        Claim::exactly("Section 5.2, 5.3", says, paper, served(found))
    };
    let says = "the global bitmap supports one more allocation than the baseline";
    vec![
        exactly("Baseline supports up to 8 allocations of 20 MB", 8.0, baseline),
        exactly(says, 9.0, bitmap).with_cause(
            "How blocks of a power of two are placed is not told. Here the piece of a segment in \
             each area is one block, aligned to its size from the area's start on.",
        ),
        exactly("CLMalloc supports 12 allocations of 20 MB", 12.0, pool),
        Claim::about(
            "Abstract",
            "space utilization is increased by 2×: requests served, CLMalloc / Baseline",
            2.0,
            served(pool) / served(baseline).max(1.0),
            0.1,
        )
        .with_unit(Unit::Ratio)
        .with_cause(
            "The paper's own numbers, 12 and 8, give 1.5. The study cl-availability has the \
             sizes at which it is nearly 2.",
        ),
    ]
}

fn time_claims(
    plan: &LatencyPlan,
    settings: &[Setting],
    times: &Times,
) -> Result<Vec<Claim>, String> {
    let least = plan.counts[0];
    let at = |nth: usize| {
        let rounds = times[nth].iter().find(|(count, _)| *count == least)?;
        Some(summary(&rounds.1))
    };
    let (Some(baseline), Some(bitmap), Some(pre), Some(pool)) = (at(0), at(1), at(2), at(3)) else {
        return Ok(Vec::new());
    };
    let [of_baseline, of_bitmap] = [&settings[0], &settings[1]].map(|of| search_us(of, least));
    let saved = |times: [f64; 3], at: usize| 1.0 - times[at] / baseline[at];
    let claim = |place: &str, says: &str, paper: f64, measured: f64, slack: f64| {
        let says = format!("{least} requests: {says}");
        Claim::at_least(place, &says, paper, measured, slack).with_unit(Unit::Share)
    };
    Ok(vec![
        claim(
            "Section 5.3",
            "the global bitmap is somewhat faster than the baseline; time saved",
            0.0,
            saved(bitmap, 1),
            0.05,
        )
        .with_cause(&format!(
            "Without memory behind them the two take {:.1} and {:.1} µs, of {:.0} µs in all: to take, \
             clear and map the pages is the rest, and the same in both.",
            of_baseline?,
            of_bitmap?,
            baseline[1] / 1e3,
        )),
        claim(
            "Section 5.3",
            "pre-allocation reduces the delay significantly; time saved against the baseline",
            0.2,
            saved(pre, 1),
            0.0,
        )
        .with_cause("The paper gives no number; a fifth is taken for significant."),
        claim(
            "Abstract",
            "latency is reduced by 80% to 90%, CLMalloc against the baseline, the first round",
            0.8,
            saved(pool, 0),
            0.0,
        )
        .with_cause("Frames were taken and cleared before; the pool maps each for the first time."),
        claim(
            "Abstract",
            "latency is reduced by 80% to 90%, CLMalloc against the baseline, memory used before",
            0.8,
            saved(pool, 1),
            0.0,
        )
        .with_cause("The pool still has the memory, mapped: nothing is left but its own work."),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::plan::AreasPlan;

    fn setting(variant: Variant) -> Setting {
        let areas_mib = (0..16).map(|i| (i * 32, 16)).collect();
        Setting { variant, machine: AreasPlan { name: "16".into(), areas_mib }, request_mib: 20 }
    }

    #[test]
    fn as_many_are_served_as_there_can_be() {
        let served = |variant| {
            let count =
                |requests: &mut dyn Requests| (0..100).take_while(|_| requests.get()).count();
            setting(variant).simulate(count).unwrap()
        };
        assert_eq!(Variant::ALL.map(served), [8, 10, 12, 12]);
    }

    #[test]
    fn the_pool_maps_once() {
        for variant in Variant::ALL {
            let (first, both) = setting(variant)
                .simulate(|requests| {
                    get_all(requests, 8).unwrap();
                    let first = requests.pages();
                    requests.put_all().unwrap();
                    get_all(requests, 8).unwrap();
                    (first, requests.pages())
                })
                .unwrap();
            assert_eq!(first, (8 * 5120, 0), "{variant:?}");
            let pooled = variant == Variant::Pool;
            assert_eq!(both, if pooled { first } else { (16 * 5120, 8 * 5120) }, "{variant:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn on_real_memory() {
        let machine =
            AreasPlan { name: "4".into(), areas_mib: vec![(0, 4), (8, 4), (16, 4), (24, 4)] };
        for variant in Variant::ALL {
            let setting = Setting { variant, machine: machine.clone(), request_mib: 5 };
            let rounds = time(&setting, 2, 3).unwrap();
            assert_eq!(rounds.len(), 3, "{variant:?}");
            assert!(rounds.iter().all(|round| round.get_ns > 0.0 && round.get_ns < 1e10));
            assert!(time(&setting, 100, 2).unwrap_err().contains("not served"));
        }
    }

    #[test]
    fn a_wrong_job_is_an_error() {
        assert!(child("{}").is_err());
    }
}
