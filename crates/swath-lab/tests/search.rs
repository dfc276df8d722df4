//! The search over readings of the timed system: its space, its sample, a tiny run from plan to
//! report, a run that goes on where it was stopped, and plans that are refused.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::runs::with_run;
use swath_lab::papers::page_buddy::search::found::Searched;
use swath_lab::papers::page_buddy::search::plan::SearchPlan;
use swath_lab::papers::page_buddy::search::space::differences;
use swath_lab::papers::page_buddy::search::study::Search;
use swath_lab::papers::page_buddy::system::SystemPlan;
use swath_lab::papers::page_buddy::timed::SystemMachine;
use swath_lab::study::journal::Journal;
use swath_lab::study::kind::{ReadyStudy, Study};
use swath_lab::study::registry;
use swath_lab::study::results::StudyResult;
use swath_lab::study::run::{Run, StudyError, Unwatched, Watch};
use toml::{Table, Value};

/// The search of the timed system, edited.
fn edited(edit: impl FnOnce(&mut Table)) -> Box<dyn ReadyStudy> {
    let (_, entry) = registry::entries().find(|(_, entry)| entry.search.is_some()).unwrap();
    let mut plan: Table = toml::from_str(entry.search.unwrap().plan).unwrap();
    edit(&mut plan);
    registry::parse("edited", &toml::to_string(&plan).unwrap()).unwrap()
}

/// Four readings on two workloads: two anchor distances, and writes posted or not.
fn tiny() -> Box<dyn ReadyStudy> {
    edited(|plan| {
        let axes = [
            ("anchor_log2", Value::from(vec![0, 2])),
            ("posted_writes", Value::from(vec![false, true])),
        ];
        let axes = axes.map(|(key, values)| (key.to_owned(), values));
        plan.insert("search".to_owned(), Table::from_iter(axes).into());
        plan.insert("block_frames".to_owned(), vec![1, 8, 128].into());
        plan.insert("category_i_block_frames".to_owned(), vec![1].into());
        plan.insert("workloads".to_owned(), vec!["edge-detection", "matrix-transpose"].into());
    })
}

fn plan_of(study: &dyn ReadyStudy) -> &SearchPlan {
    study.plan().downcast_ref().unwrap()
}

fn quick<T>(watch: &dyn Watch, journal: Option<&Journal>, does: impl FnOnce(&Run<'_>) -> T) -> T {
    with_run(true, |run| does(&Run { watch, journal, ..*run }))
}

/// The tiny search, run once for all tests.
fn result() -> &'static (Searched, StudyResult) {
    static RESULT: OnceLock<(Searched, StudyResult)> = OnceLock::new();
    RESULT.get_or_init(|| {
        let study = tiny();
        let found = quick(&Unwatched, None, |run| Search::measure(plan_of(&*study), run)).unwrap();
        let result = quick(&Unwatched, None, |run| study.run(run)).unwrap().result;
        (found, result)
    })
}

#[test]
fn the_base_of_the_search_is_the_timed_study_as_it_is() {
    let study = edited(|_| {});
    let search = plan_of(&*study);
    let (_, entry) = registry::entries().find(|(_, entry)| entry.search.is_some()).unwrap();
    let study = registry::parse("built in", entry.plan).unwrap();
    let system: &SystemPlan = study.plan().downcast_ref().unwrap();
    assert_eq!(search.system, system.system);
    assert_eq!((search.dram, &search.machine), (system.dram, &system.machine));
    assert_eq!(search.free_per_requested, system.free_per_requested);
}

#[test]
fn the_cross_product_has_every_combination_that_can_be_once() {
    let study = edited(|_| {});
    let plan = plan_of(&*study);
    let (readings, of) = plan.search.readings(plan.system, u64::MAX, 1);
    // 4 anchor distances, 3 of 4 ways of walks and hits, and 7 axes of two.
    assert_eq!((readings.len() as u64, of), (4 * 3 * 128, 4 * 3 * 128));
    assert_eq!(plan.search.combinations(), 4 * 4 * 128);
    assert_eq!(readings[0], plan.system);
    for (nth, reading) in readings.iter().enumerate() {
        assert!(reading.walks_max.get() == 1 || reading.hit_under_miss);
        assert!(nth == 0 || !readings[..nth].contains(reading), "{reading:?}");
        let apart = differences(&plan.system, reading);
        assert_eq!(apart.is_empty(), nth == 0, "{apart:?}");
        assert!(apart.len() <= 10);
    }
}

#[test]
fn a_sample_is_complete_up_to_some_parameters_and_follows_from_its_seed() {
    let study = edited(|_| {});
    let plan = plan_of(&*study);
    let of = |max, seed| plan.search.readings(plan.system, max, seed).0;
    let sample = of(300, 1);
    assert_eq!(sample.len(), 300);
    assert_eq!(sample, of(300, 1));
    assert_ne!(sample, of(300, 2));
    let all = of(u64::MAX, 1);
    assert!(sample.iter().all(|reading| all.contains(reading)));
    let machines = |of: &[SystemMachine], parameters: usize| {
        let mut machines: Vec<SystemMachine> = of.to_vec();
        machines.iter_mut().for_each(|one| one.anchor_log2 = None);
        machines.retain(|one| differences(&plan.system, one).len() == parameters);
        machines.len()
    };
    for parameters in 0..=2 {
        assert_eq!(machines(&sample, parameters), machines(&all, parameters));
    }
    assert!((1..machines(&all, 3)).contains(&machines(&sample, 3)));
    assert_eq!(machines(&sample, 4), 0);
    // Each machine comes with every anchor distance.
    for reading in &sample {
        let same = sample.iter().filter(|other| {
            let mut other = **other;
            other.anchor_log2 = reading.anchor_log2;
            other == *reading
        });
        assert_eq!(same.count(), 4, "{reading:?}");
    }
    // No machine is begun that does not fit with all its distances, but for the base.
    for (max, len) in [(1, 1), (2, 2), (7, 4), (8, 8)] {
        assert_eq!(of(max, 1).len(), len);
        assert_eq!(of(max, 1)[0], plan.system);
    }
}

#[test]
fn a_tiny_search_from_plan_to_report() {
    let (found, result) = result();
    let names: Vec<String> = found.readings.iter().map(|one| one.name()).collect();
    let expected = [
        "the plan's own",
        "anchors 4 pages apart",
        "posted writes",
        "anchors 4 pages apart; posted writes",
    ];
    assert_eq!(names, expected);
    // Four cells; of the three designs that have no anchors a run each for writes posted and
    // not, of AT for all four readings.
    assert_eq!((found.of, found.runs), (4, 4 * (3 * 2 + 4)));
    assert!(found.again.is_empty());
    assert!(result.claims.is_empty() && result.fitted.len() == 1);
    let figures: Vec<&str> = result.figures.iter().map(|figure| figure.id.as_str()).collect();
    assert_eq!(figures, ["Readings searched", "Front", "Claims met together", "Every reading"]);
    for reading in &found.readings {
        assert_eq!(reading.claims.len(), 10);
        let standing = reading.standing();
        assert_eq!(standing.chosen as usize, reading.differences.len());
        assert_eq!(standing.met as usize, reading.met().iter().filter(|met| **met).count());
        // Block size 1 is the same for all that have no anchors, by construction.
        assert_eq!(reading.met()[1..3], [true, true]);
        assert!(reading.claims.iter().all(|claim| claim.measured().is_some() && !claim.holds()));
    }
    // The search's numbers are those of the claims in their order.
    let says: Vec<&str> = found.readings[0].claims.iter().map(|claim| claim.says()).collect();
    assert!(says[0].starts_with("Category I") && says[3].contains("52% better than AT"));
    assert!(says[6].contains("78% better than TRAD") && says[9].contains("close to PCAD"));
    let every = |design: &str| {
        let of = |one: &&_| {
            let one: &swath_lab::study::results::Series = one;
            one.figure == "Every reading" && one.design == design
        };
        result.series.iter().find(of).unwrap().points.len()
    };
    assert_eq!((every("met"), every("I: 2%"), every("I: 2%, met")), (4, 4, 4));
    assert!(result.finding.contains("chosen after looking"), "{}", result.finding);
    assert!(result.finding.contains("No reading"), "{}", result.finding);
}

/// Stops a run after so many points.
struct StopsAfter(AtomicU64);

impl Watch for StopsAfter {
    fn begin(&self, _: &str, _: u64) {}
    fn point(&self) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn a_search_that_was_stopped_goes_on_to_the_same_result() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("journal");
    let study = tiny();
    let (journal, _) = Journal::open(&path, "key").unwrap();
    let stopped = quick(&StopsAfter(AtomicU64::new(25)), Some(&journal), |run| study.run(run));
    assert!(matches!(stopped, Err(StudyError::Interrupted)));
    drop(journal);
    let (journal, _) = Journal::open(&path, "key").unwrap();
    let resumed = quick(&Unwatched, Some(&journal), |run| study.run(run)).unwrap().result;
    let (recalled, all) = journal.counts();
    assert!((25..40).contains(&recalled) && all == 40, "{recalled} of {all}");
    assert_eq!(resumed, result().1);
}

#[test]
fn a_space_that_cannot_be_searched_is_refused_by_its_key() {
    let refused = |replaced: &[(&str, &str)]| {
        let (_, entry) = registry::entries().find(|(_, entry)| entry.search.is_some()).unwrap();
        let plan =
            replaced.iter().fold(entry.search.unwrap().plan.to_owned(), |plan, (from, to)| {
                assert!(plan.contains(from), "{from}");
                plan.replace(from, to)
            });
        registry::parse("mutant", &plan).err().unwrap().to_string()
    };
    let list = |from: u32, to: u32| {
        let values: Vec<String> = (from..to).map(|value| value.to_string()).collect();
        format!("[{}]", values.join(", "))
    };
    let (ways, lines, flights) = (list(0, 1000), list(0, 1000), list(1, 1001));
    let many = [
        ("anchor_log2 = [0, 2, 3, 9]", "anchor_log2 = [0]"),
        ("walk_cache_entries = [0, 4]", "walk_cache_entries = [0]"),
        ("descriptor_lines = [0, 16]", &format!("descriptor_lines = {lines}")),
        ("\nwalks_max = [1, 4]", "\nwalks_max = [1]"),
        ("hit_under_miss = [false, true]", "hit_under_miss = [false]"),
        ("outstanding_max = [16, 64]", &format!("outstanding_max = {flights}")),
        ("outstanding_each = [false, true]", "outstanding_each = [false]"),
        ("posted_writes = [false, true]", "posted_writes = [false]"),
        ("way_cycles = [1, 10]", &format!("way_cycles = {ways}")),
        ("frames_per_second = [0, 60]", "frames_per_second = [0]"),
    ];
    for (replaced, words) in [
        (&[("anchor_log2 = [0, 2, 3, 9]", "anchor_log2 = []")][..], "none given"),
        (&[("posted_writes = [false, true]", "posted_writes = [true, true]")], "stands twice"),
        (&[("way_cycles", "way_cycle")], "unknown field `way_cycle`"),
        (&many, "search: 1000000000 combinations are more than 1000000"),
        (&[("[1, 4, 8, 64, 128, 256]", "[1, 4, 8]")], "block_frames: 1, one from 2 to 64"),
        (
            &[("    \"image-blending\",\n    \"edge-detection\",\n", "")],
            "workloads: none of category I",
        ),
        (&[("quick = 25", "quick = 0")], "0 is not between"),
    ] {
        let said = refused(replaced);
        assert!(said.contains("plan mutant") && said.contains(words), "{words}: {said}");
        assert!(said.contains("line "), "{said}");
    }
}
