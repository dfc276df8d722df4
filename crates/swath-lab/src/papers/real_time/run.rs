//! One run of a workload on a system: the words that each allocation and release touches, the
//! pages mapped after it, and the cycles of accesses.

use std::alloc::Layout;
use std::hint::black_box;

use serde::{Deserialize, Serialize};
use swath_arch::Vpn;
use swath_hw::{Cycle, Geometry, RtLatency, RtStats};
use swath_region::RegionHeapStatistics;

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::real_time::heap::HeapError;
use crate::papers::real_time::system;
use crate::papers::real_time::system::{Body, Size, System, SystemError, SystemName, Unit, Units};
use crate::papers::real_time::workload::{Action, Synthetic};
use crate::study::child::child_command;

/// An allocation or a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Bytes that were asked for.
    pub size_bytes: u64,
    /// Words touched.
    pub words: u64,
    /// Pages that a release gave back, mapped or not.
    pub pages: u64,
    /// The calls of regions' operations in it.
    #[serde(with = "Operations")]
    pub operations: RegionHeapStatistics,
}

/// [`RegionHeapStatistics`] in a journal.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RegionHeapStatistics")]
struct Operations {
    mapped: u64,
    cuts: u64,
    faults: u64,
    ended: u64,
}

/// The most words of one of these calls.
pub fn words_max(steps: &[Step]) -> u64 {
    steps.iter().map(|step| step.words).max().unwrap_or(0)
}

/// The observations of a run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// In their order.
    pub allocations: Vec<Step>,
    /// In their order.
    pub releases: Vec<Step>,
    /// Pages mapped after each allocation and each release.
    pub mapped_pages: Vec<u32>,
    /// The most pages that were mapped.
    pub mapped_pages_max: u64,
    /// The most words of a page fault.
    pub fault_words_max: u64,
    /// Page faults of users.
    pub faults: u64,
    /// The most regions that one release ended.
    pub ended_max: u64,
    /// Allocations that found no room.
    pub failures: u64,
    /// The most words of tables that an access read without a TLB.
    pub access_words_max: u64,
    /// Cycles of accesses without a TLB.
    pub bare: RtStats,
    /// With one.
    pub with_tlb: RtStats,
    /// Cycles of making it forget, all and the most of a release.
    pub forget_cycles: (Cycle, Cycle),
}

/// The TLB beside the paper's units: 32 entries, fully associative.
const TLB_ENTRIES: u32 = 32;

struct Run<I> {
    actions: I,
    with_units: bool,
}

fn layout(size_bytes: u64, align_bytes: u64) -> Result<Layout, HeapError> {
    let (size, align) = (size_bytes as usize, align_bytes as usize);
    Layout::from_size_align(size, align).map_err(|_| {
        swath_heap::AllocateBytesError::TooLarge { size_bytes: size, align_bytes: align }.into()
    })
}

/// An allocation that finds no room is counted, and what is done to it later left out;
/// everything else that fails ends the run.
fn no_room(error: &HeapError) -> bool {
    matches!(error, HeapError::Allocation(_))
}

impl<I: Iterator<Item = Action>> Body for Run<I> {
    type Out = Observed;

    fn run(
        self,
        system: &mut impl System,
        unit: Unit<'_>,
        touched: &dyn Fn() -> u64,
    ) -> Result<Observed, SystemError> {
        let tlb = Geometry::fully_associative(TLB_ENTRIES);
        let units = self.with_units.then(|| Units::new(unit, RtLatency::PAPER, tlb)).transpose();
        let mut units = units.map_err(|error| SystemError::Parts(error.to_string()))?;
        let mut found = Observed::default();
        // Sizes of what is allocated, none for what found no room.
        let mut sizes: Vec<Option<u64>> = Vec::new();
        for (at, action) in (0..).zip(self.actions) {
            let failed = |error| SystemError::Action { at, action, error };
            let before = touched() + system.link_words();
            let operations = system.operations();
            match action {
                Action::Allocate { id, size_bytes, align_bytes } => {
                    let slot = id as usize;
                    sizes.resize(sizes.len().max(slot + 1), None);
                    let layout = layout(size_bytes, align_bytes).map_err(failed)?;
                    match system.allocate(id, layout) {
                        Ok(placed) => {
                            let words = touched() + system.link_words() - before;
                            system.note(id, placed);
                            sizes[slot] = Some(size_bytes);
                            let operations = system.operations().since(operations);
                            let step = Step { size_bytes, words, pages: 0, operations };
                            found.allocations.push(step);
                        }
                        Err(error) if no_room(&error) => found.failures += 1,
                        Err(error) => return Err(failed(error)),
                    }
                }
                Action::Free { id } => {
                    let Some(size_bytes) = sizes.get_mut(id as usize).and_then(Option::take) else {
                        continue;
                    };
                    let prepared = system.prepare(id);
                    system.free(id, prepared).map_err(failed)?;
                    let words = touched() + system.link_words() - before;
                    let pages = system.released();
                    if let Some(units) = &mut units {
                        units.forget(pages);
                    }
                    let operations = system.operations().since(operations);
                    found.ended_max = found.ended_max.max(operations.ended);
                    found.releases.push(Step { size_bytes, words, pages: pages.count, operations });
                }
                Action::Access { id, offset, write } => {
                    if sizes.get(id as usize).copied().flatten().is_none() {
                        continue;
                    }
                    let addr = system.address(id, offset).map_err(failed)?;
                    let mut most = 0;
                    // Without units the table is asked.
                    let unmapped = units.is_none() && !system.is_mapped(addr.page());
                    let mut fault = |page: Vpn| {
                        let before = touched() + system.link_words();
                        system.fault(page)?;
                        most = touched() + system.link_words() - before;
                        Ok(())
                    };
                    let faulted = match &mut units {
                        Some(units) => units.access(addr, write, &mut fault)?.map_err(failed)?,
                        None => unmapped,
                    };
                    if unmapped {
                        fault(addr.page()).map_err(failed)?;
                    }
                    found.faults += u64::from(faulted);
                    found.fault_words_max = found.fault_words_max.max(most);
                    found.mapped_pages_max = found.mapped_pages_max.max(system.mapped_pages());
                    continue;
                }
            }
            let mapped = system.mapped_pages();
            found.mapped_pages_max = found.mapped_pages_max.max(mapped);
            found.mapped_pages.push(mapped as u32);
        }
        if let Some(units) = &units {
            [found.bare, found.with_tlb] = units.stats();
            found.forget_cycles = (units.forget_cycles, units.forget_cycles_max);
            found.access_words_max = units.words_max;
        }
        Ok(found)
    }
}

/// Runs a workload on a system, with units of memory management that make each access, or,
/// faster, without.
///
/// # Errors
/// [`SystemError`].
pub fn run(
    name: SystemName,
    size: Size,
    with_units: bool,
    actions: impl Iterator<Item = Action>,
) -> Result<Observed, SystemError> {
    system::with(name, size, true, Run { actions, with_units })
}

/// The most steps of one allocation or release.
const STEPS_MAX: u64 = 50_000_000;

/// Instructions of what was stepped, in its order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Of allocations.
    pub allocations: Vec<u64>,
    /// Of releases.
    pub releases: Vec<u64>,
    /// Of page faults of users.
    pub faults: Vec<u64>,
}

/// A child's job: the actions of the synthetic workload that it is to step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountJob {
    /// The system.
    pub system: SystemName,
    /// Its size.
    pub size: Size,
    /// Number of actions.
    pub actions: u64,
    /// The largest size.
    pub size_bytes_max: u64,
    /// The seed.
    pub seed: u64,
    /// The repeat with this seed, from 0.
    pub repeat: u64,
    /// The numbers of the allocations to step, ascending.
    pub allocations: Vec<u64>,
    /// The same of releases.
    pub releases: Vec<u64>,
    /// Number of page faults of users to step, from the first on.
    pub faults: u64,
}

impl CountJob {
    fn workload(&self) -> Synthetic {
        let &Self { actions, size_bytes_max, seed, repeat, .. } = self;
        Synthetic { actions, size_bytes_max, seed, repeat }
    }
}

struct Counted<'a> {
    job: &'a CountJob,
    marks: &'a mut Marks,
}

/// Returns true if the next of `wanted` is `at`.
fn is_next(wanted: &mut std::slice::Iter<'_, u64>, at: u64) -> bool {
    let next = wanted.as_slice().first() == Some(&at);
    if next {
        wanted.next();
    }
    next
}

impl Body for Counted<'_> {
    type Out = ();

    fn run(
        self,
        system: &mut impl System,
        _: Unit<'_>,
        _: &dyn Fn() -> u64,
    ) -> Result<(), SystemError> {
        let Self { job, marks } = self;
        let (mut allocations, mut releases) = (job.allocations.iter(), job.releases.iter());
        let (mut allocated, mut released, mut faulted) = (0, 0, 0);
        let parts = |error: CountError| SystemError::Parts(error.to_string());
        // Vectors do not grow while something is counted.
        system.reserve(1 << 16);
        for (at, action) in (0..).zip(job.workload().actions()) {
            let failed = |error| SystemError::Action { at, action, error };
            match action {
                Action::Allocate { id, size_bytes, align_bytes } => {
                    let layout = layout(size_bytes, align_bytes).map_err(failed)?;
                    let mut placed = Err(HeapError::NotInUse { id });
                    let mut work = || placed = black_box(system.allocate(id, layout));
                    if is_next(&mut allocations, allocated) {
                        marks.region("a", &mut work).map_err(parts)?;
                    } else {
                        work();
                    }
                    allocated += 1;
                    let placed = placed.map_err(failed)?;
                    system.note(id, placed);
                }
                Action::Free { id } => {
                    let prepared = system.prepare(id);
                    let mut freed = Err(HeapError::NotInUse { id });
                    let mut work = || freed = black_box(system.free(id, prepared));
                    if is_next(&mut releases, released) {
                        marks.region("r", &mut work).map_err(parts)?;
                    } else {
                        work();
                    }
                    released += 1;
                    freed.map_err(failed)?;
                }
                Action::Access { id, offset, .. } => {
                    let page = system.address(id, offset).map_err(failed)?.page();
                    if system.is_mapped(page) {
                        continue;
                    }
                    let mut handled = Ok(());
                    let mut work = || handled = black_box(system.fault(page));
                    if faulted < job.faults {
                        marks.region("f", &mut work).map_err(parts)?;
                    } else {
                        work();
                    }
                    faulted += 1;
                    handled.map_err(failed)?;
                }
            }
            let done = allocations.as_slice().is_empty() && releases.as_slice().is_empty();
            if done && faulted >= job.faults {
                break;
            }
        }
        Ok(())
    }
}

/// The child's side of [`count`].
///
/// # Errors
/// The fault, for the program to say.
pub fn count_child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let job: CountJob = serde_json::from_str(job)?;
    let mut marks = Marks::begin()?;
    let counted = Counted { job: &job, marks: &mut marks };
    Ok(system::with(job.system, job.size, false, counted)?)
}

/// Instructions of the chosen allocations, releases and page faults, exactly: a child process does the
/// workload, and these are stepped.
///
/// # Errors
/// [`CountError`], also where this machine does not let a process step its child.
pub fn count(job: &CountJob) -> Result<Counts, CountError> {
    let job_text = serde_json::to_string(job).unwrap_or_default();
    let command = child_command("rt-runtimes", &job_text).map_err(CountError::Spawn)?;
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counts = Counts::default();
    while let Some(region) = counter.next_region()? {
        let of = match region.label.as_str() {
            "a" => &mut counts.allocations,
            "r" => &mut counts.releases,
            _ => &mut counts.faults,
        };
        of.push(region.instructions);
    }
    let same = |counts: &[u64], chosen: &[u64]| counts.len() == chosen.len();
    if same(&counts.allocations, &job.allocations) && same(&counts.releases, &job.releases) {
        Ok(counts)
    } else {
        Err(CountError::Protocol("fewer regions than expected".to_owned()))
    }
}
