//! Data structures under YCSB's workloads on threads: `cmt_malloc` beside `malloc` (Fig. 8 of
//! 003_f9a9d8482224280c.txt).

use crate::papers::clmalloc::allocator::{Cmt, Counted, Counts, Libc};
use crate::papers::clmalloc::plan::StructuresPlan;
use crate::papers::clmalloc::records;
use crate::papers::clmalloc::records::{Chained, Hashed, Listed, Queue, Store};
use crate::papers::clmalloc::rounds::{
    Times, geometric_mean, in_turn, on_threads, oversubscribed, threads_title,
};
use crate::papers::clmalloc::ycsb::{Operation, Workload, operations};
use crate::papers::page_buddy::allocation::host_name;
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

const FIGURE: &str = "Fig. 8";
const REQUESTS: &str = "Allocations";
const PEAK: &str = "Memory";

/// What one thread does.
struct Part {
    records: u64,
    operations: Vec<Operation>,
}

/// The structures of Fig. 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Structure {
    Hashed,
    Listed,
    Queue,
    Chained,
}

impl Structure {
    const ALL: [Self; 4] = [Self::Hashed, Self::Listed, Self::Queue, Self::Chained];

    const fn name(self) -> &'static str {
        match self {
            Self::Hashed => Hashed::<Libc>::NAME,
            Self::Listed => Listed::<Libc>::NAME,
            Self::Queue => Queue::<Libc>::NAME,
            Self::Chained => Chained::<Libc>::NAME,
        }
    }

    fn ratio_figure(self) -> String {
        format!("{FIGURE}, {}", self.name())
    }

    fn time_figure(self) -> String {
        format!("{FIGURE}, {}, time", self.name())
    }

    fn measure(self, parts: &[Part], rounds: u32) -> Result<(Times, Vec<u64>), String> {
        match self {
            Self::Hashed => measure::<Hashed<Libc>, Hashed<Cmt>>(parts, rounds),
            Self::Listed => measure::<Listed<Libc>, Listed<Cmt>>(parts, rounds),
            Self::Queue => measure::<Queue<Libc>, Queue<Cmt>>(parts, rounds),
            Self::Chained => measure::<Chained<Libc>, Chained<Cmt>>(parts, rounds),
        }
    }

    /// What it asks of its allocator, and the sum of what was read.
    fn count(self, part: &Part) -> (Counts, u64) {
        fn run<S: Store<Counted>>(Part { records, operations }: &Part) -> u64 {
            records::run::<_, S>(Counted, *records, operations)
        }
        Counted::take();
        let sum = match self {
            Self::Hashed => run::<Hashed<Counted>>(part),
            Self::Listed => run::<Listed<Counted>>(part),
            Self::Queue => run::<Queue<Counted>>(part),
            Self::Chained => run::<Chained<Counted>>(part),
        };
        (Counted::take(), sum)
    }
}

fn measure<M: Store<Libc>, C: Store<Cmt>>(
    parts: &[Part],
    rounds: u32,
) -> Result<(Times, Vec<u64>), String> {
    let malloc =
        || on_threads(parts, |part| records::run::<_, M>(Libc, part.records, &part.operations));
    let cmt =
        || on_threads(parts, |part| records::run::<_, C>(Cmt, part.records, &part.operations));
    in_turn(rounds, malloc, cmt)
}

/// As many operations as records, divided among the threads.
fn parts(workload: Workload, records: u64, threads: u64, seed: u64) -> Vec<Part> {
    (0..threads)
        .map(|thread| {
            let own = (thread + 1) * records / threads - thread * records / threads;
            let operations = operations(workload, own, own, seed ^ thread << 32);
            Part { records: own, operations }
        })
        .collect()
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &StructuresPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let (threads, records, rounds) = if run.quick {
        (&plan.threads_quick, plan.records_quick, plan.rounds_quick)
    } else {
        (&plan.threads, plan.records, plan.rounds)
    };
    let points: Vec<(Structure, Workload)> = Structure::ALL
        .into_iter()
        .flat_map(|structure| Workload::ALL.map(|workload| (structure, workload)))
        .collect();
    let counted = run.points(about, &points, |&(structure, workload)| {
        let [part] = &parts(workload, records, 1, about.seed)[..] else {
            return Err(failed(plan, "one thread has one part".to_owned()));
        };
        Ok(structure.count(part))
    })?;
    let mut host = HostResult::new(&about.study, host_name(), host_figures(records, threads));
    run.watch.begin(&about.study, (points.len() * threads.len()) as u64);
    for (structure, of) in Structure::ALL.into_iter().zip(counted.chunks(Workload::ALL.len())) {
        let mut all = Vec::new();
        for &threads in threads {
            let mut times = Vec::new();
            for (workload, (_, sum)) in Workload::ALL.into_iter().zip(of) {
                if run.watch.cancelled() {
                    return Err(StudyError::Interrupted);
                }
                let parts = parts(workload, records, threads, about.seed);
                let found = structure.measure(&parts, rounds);
                let name = structure.name();
                let (found, sums) = found
                    .map_err(|what| failed(plan, format!("{name}, {}: {what}", workload.name())))?;
                if threads == 1 && sums != [*sum] {
                    let what = format!("{name}: {sums:?} was read, and {sum} before");
                    return Err(failed(plan, what));
                }
                times.push((workload, found));
                run.watch.point();
            }
            let ratios = times.iter().map(|(workload, times)| (workload.name(), times.ratio()));
            let (figure, title) = (structure.ratio_figure(), threads_title(threads));
            host.series.push(Series::new(&figure, "workload", "time_ratio", &title, ratios));
            all.push((threads, times));
        }
        add_times(&mut host, structure, records, &all);
        if plan.claims {
            host.claims
                .extend(all.iter().map(|(threads, times)| claim(structure, *threads, times)));
        }
    }
    let mut result = StudyResult {
        figures: figures(records),
        notes: notes(),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for (structure, counts) in Structure::ALL.into_iter().zip(counted.chunks(Workload::ALL.len())) {
        let of = |value: &dyn Fn(&Counts) -> f64| -> Vec<(&str, f64)> {
            let counts = counts.iter().map(|(counts, _)| value(counts));
            Workload::ALL.into_iter().map(Workload::name).zip(counts).collect()
        };
        let name = structure.name();
        let calls = of(&|counts| counts.allocations as f64 / records as f64);
        result.series.push(Series::new(
            REQUESTS,
            "workload",
            "allocations_per_record",
            name,
            calls,
        ));
        let peak = of(&|counts| counts.live_bytes_max as f64 / records as f64);
        result.series.push(Series::new(PEAK, "workload", "bytes_per_record", name, peak));
    }
    Ok(Outcome { result, host: Some(host) })
}

fn failed(plan: &StructuresPlan, what: String) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what }
}

/// Times of the workloads, for each number of threads.
type All = Vec<(u64, Vec<(Workload, Times)>)>;

fn add_times(host: &mut HostResult, structure: Structure, records: u64, all: &All) {
    let figure = structure.time_figure();
    for (name, of) in [
        ("malloc", (|times: &Times| times.malloc_ns) as fn(&Times) -> f64),
        ("CLMalloc", |times| times.cmt_ns),
    ] {
        let points = all.iter().map(|(threads, times)| {
            let mean = geometric_mean(times.iter().map(|(_, times)| of(times)));
            (*threads as f64, mean / 1000.0 / records as f64)
        });
        host.series.push(Series::new(&figure, "threads", "us_per_record", name, points));
    }
}

fn host_figures(records: u64, threads: &[u64]) -> Vec<Figure> {
    let beyond = oversubscribed(threads);
    let mut figures = Vec::new();
    for structure in Structure::ALL {
        let caption = format!(
            "{records} records and as many operations, divided among the threads. Below 1 cmt_malloc \
             is faster. Medians of rounds taken in turn. {beyond}"
        );
        let y = "time (CLMalloc / malloc)";
        let figure = Figure::new(
            &structure.ratio_figure(),
            "YCSB's workloads",
            FigureKind::Bars,
            "workload",
            y,
        );
        figures.push(figure.with_caption(caption.trim_end()));
    }
    for structure in Structure::ALL {
        let title = "geometric mean over YCSB's workloads";
        let y = "µs for each record";
        let id = structure.time_figure();
        let figure = Figure::new(&id, title, FigureKind::LinesLog2, "threads", y);
        figures.push(figure.with_caption(&beyond));
    }
    figures
}

fn figures(records: u64) -> Vec<Figure> {
    let of = format!("{records} records, as many operations, one thread");
    let bars = FigureKind::Bars;
    let y = "allocations for each record loaded";
    vec![
        Figure::new(REQUESTS, &of, bars, "workload", y)
            .with_caption("A record is ten blocks of 100 bytes, and an update replaces one."),
        Figure::new(
            PEAK,
            "most bytes in use, as asked for",
            bars,
            "workload",
            "bytes for each record",
        ),
    ]
}

fn notes() -> Vec<String> {
    vec![
        "A run loads the records, makes the operations and drops all; its time is from the first \
         thread's start to the last one's end. Each thread has a structure of its own, so that \
         threads meet in the allocator only. Operations are drawn before."
            .to_owned(),
        "Keys by YCSB's scrambled zipfian generator, in D by its latest one; scans of 1 to 100 \
         records. The maps have no order: a scan reads the records inserted next. A priority queue \
         finds its first record only: that is read; an update takes it out, and puts it back with \
         another key; a scan takes out as many, and puts them back."
            .to_owned(),
        "The same code for both allocators, which differ in a type parameter. What is read is \
         summed, and the sums have to be the same."
            .to_owned(),
    ]
}

fn claim(structure: Structure, threads: u64, times: &[(Workload, Times)]) -> Claim {
    let ratio = geometric_mean(times.iter().map(|(_, times)| times.ratio()));
    let says = format!(
        "CLMalloc outperforms malloc and free, {}, {}: time, mean over the workloads",
        structure.name(),
        threads_title(threads),
    );
    Claim::at_most("Section 5.3, Fig. 8", &says, 1.0, ratio, 0.0).with_unit(Unit::Ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole() {
        for threads in [1, 2, 3, 8] {
            let parts = parts(Workload::A, 1000, threads, 1);
            assert_eq!(parts.iter().map(|part| part.records).sum::<u64>(), 1000);
            assert_eq!(parts.iter().map(|part| part.operations.len()).sum::<usize>(), 1000);
        }
    }

    /// On threads, both allocators read the same, which is what one thread alone reads.
    #[test]
    fn sums_are_the_same_everywhere() {
        for structure in Structure::ALL {
            let parts = parts(Workload::A, 800, 4, 9);
            let (_, sums) = structure.measure(&parts, 1).unwrap();
            for (part, sum) in parts.iter().zip(sums) {
                let (counts, alone) = structure.count(part);
                assert_eq!(alone, sum, "{structure:?}");
                assert_eq!(counts.live_bytes, 0);
                assert!(counts.allocations >= 2000, "{counts:?}");
            }
        }
    }
}
