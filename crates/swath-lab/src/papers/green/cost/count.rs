//! Instructions and times of the allocations of a sequence. Instructions are
//! exact: chosen allocations are stepped in a child process.

use std::hint::black_box;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_arch::Order;

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::green::cost::plan::CostSampling;
use crate::papers::green::cost::sample::{ClassSizes, Classes, CostEstimate, Sample};
use crate::papers::green::cost::sequence::Sequence;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::zone::MEASURED;
use crate::study::child::child_command;
use crate::study::grid::median;

/// The most steps of one allocation.
const STEPS_MAX: u64 = 20_000_000;

/// The job of the child.
#[derive(Serialize, Deserialize)]
struct Job {
    design: AllocatorName,
    sequence: Sequence,
    /// The allocations to step, ascending.
    indices: Vec<u32>,
}

/// The child: takes the whole sequence, the chosen allocations between marks.
///
/// # Errors
/// The fault, for the program to say.
pub(crate) fn count_child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Job { design, sequence, indices } = serde_json::from_str(job)?;
    let mut zone = sequence.zone(design)?;
    let mobility = sequence.mobility();
    let mut marks = Marks::begin()?;
    let mut next = 0;
    for index in indices {
        while next < index {
            zone.allocate(Order::BASE, mobility).ok_or("no frame is left")?;
            next += 1;
        }
        let mut taken = None;
        marks.region("", &mut || taken = black_box(zone.allocate(Order::BASE, mobility)))?;
        taken.ok_or("no frame is left")?;
        next += 1;
    }
    Ok(())
}

/// The parent's side of [`count_child`].
fn count(
    kind: &str,
    design: AllocatorName,
    sequence: &Sequence,
    samples: &[Sample],
) -> Result<Vec<(Sample, u64)>, CountError> {
    let indices = samples.iter().map(|sample| sample.index).collect();
    let job = Job { design, sequence: sequence.clone(), indices };
    let job = serde_json::to_string(&job).unwrap_or_default();
    let command = child_command(kind, &job).map_err(CountError::Spawn)?;
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counted = Vec::with_capacity(samples.len());
    for &sample in samples {
        match counter.next_region()? {
            Some(region) => counted.push((sample, region.instructions)),
            None => return Err(CountError::Protocol("fewer regions than expected".to_owned())),
        }
    }
    Ok(counted)
}

/// The allocations of a sequence that are to be stepped, and what the estimate of the
/// others needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Survey {
    sizes: ClassSizes,
    chosen: Vec<Sample>,
    /// The largest of the smallest times, up to each end.
    worst_ns: Vec<f64>,
}

impl Survey {
    /// Takes the whole sequence `runs` times: its allocations by class, and the smallest
    /// time of each. `sampling` chooses from these.
    ///
    /// # Errors
    /// The fault in words.
    pub(crate) fn new(
        sampling: &CostSampling,
        quick: bool,
        design: AllocatorName,
        sequence: &Sequence,
    ) -> Result<Self, String> {
        let mut classes = Classes::new(sequence.is_whole());
        let mut times_ns = vec![u32::MAX; sequence.len() as usize];
        for run in 0..sampling.runs.of(quick).get() {
            let mut zone = sequence.zone(design)?;
            let mobility = sequence.mobility();
            for (at, least_ns) in times_ns.iter_mut().enumerate() {
                let start = Instant::now();
                let frame = black_box(zone.allocate(Order::BASE, mobility));
                let time_ns = start.elapsed().as_nanos();
                *least_ns = u32::try_from(time_ns).unwrap_or(u32::MAX).min(*least_ns);
                let Some(frame) = frame else {
                    return Err(format!("{}: no frame is left after {at}", design.title()));
                };
                if run == 0 {
                    classes.push(frame.raw(), frame.raw() / sequence.bank_frames);
                    if sequence.ends.contains(&(at as u64 + 1)) {
                        classes.end_segment();
                    }
                }
            }
        }
        let samples = match sequence.is_whole() {
            true => sampling.class_samples.of(quick),
            false => sampling.scattered_samples.of(quick),
        };
        let (rare, slowest) = (sampling.rare.of(quick).get(), sampling.slowest.of(quick).size());
        let chosen = classes.choose(samples.get(), rare, slowest, &times_ns);
        let worst = |&end: &u64| times_ns[..end as usize].iter().copied().max().unwrap_or(0);
        let worst_ns = sequence.ends.iter().map(|end| f64::from(worst(end))).collect();
        Ok(Self { sizes: classes.sizes(), chosen, worst_ns })
    }

    /// Steps the allocations that were chosen, in a child of the study `kind`.
    ///
    /// # Errors
    /// [`CountError`], other than that instructions cannot be counted here.
    pub(crate) fn measure(
        &self,
        kind: &str,
        design: AllocatorName,
        sequence: &Sequence,
    ) -> Result<Measured, CountError> {
        let Self { sizes, chosen, worst_ns } = self;
        let instructions = match count(kind, design, sequence, chosen) {
            Ok(counted) => Ok(sizes.estimate(&counted)),
            // The rest of the study does not need the counts.
            Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
                Err(error.to_string())
            }
            Err(error) => return Err(error),
        };
        Ok(Measured { instructions, worst_ns: worst_ns.clone(), stepped: chosen.len() })
    }
}

/// Nanoseconds per allocation up to each end of each design: medians over the
/// runs, the designs taken in turn.
pub(crate) fn time(sequence: &Sequence, runs: usize) -> Result<Vec<Vec<f64>>, String> {
    let mut times = vec![vec![Vec::with_capacity(runs); sequence.ends.len()]; MEASURED.len()];
    for _ in 0..runs {
        for (design, times) in MEASURED.into_iter().zip(&mut times) {
            let mut zone = sequence.zone(design)?;
            let mobility = sequence.mobility();
            let mut taken = 0;
            let mut total_ns = 0.0;
            for (&end, times) in sequence.ends.iter().zip(times) {
                let start = Instant::now();
                while taken < end && black_box(zone.allocate(Order::BASE, mobility)).is_some() {
                    taken += 1;
                }
                total_ns += start.elapsed().as_nanos() as f64;
                times.push(total_ns / end as f64);
            }
        }
    }
    let typical = |times: &Vec<f64>| median(times).max(f64::MIN_POSITIVE);
    Ok(times.iter().map(|ends| ends.iter().map(typical).collect()).collect())
}

/// The cost of one design on one sequence.
#[derive(Serialize, Deserialize)]
pub(crate) struct Measured {
    /// At each end, or the reason why instructions cannot be counted here.
    pub(crate) instructions: Result<Vec<CostEstimate>, String>,
    /// The largest of the smallest times, up to each end.
    pub(crate) worst_ns: Vec<f64>,
    /// Number of allocations that were stepped.
    pub(crate) stepped: usize,
}
