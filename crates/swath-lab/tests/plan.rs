//! Plans: those that come with the program are read, and a wrong value is
//! refused with its key and line. A study of a test's own runs like any other.

use crate::runs::with_run;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_lab::study::bounds::{Ascending, Bounded, Forms, Repeats};
use swath_lab::study::citation::Citation;
use swath_lab::study::claim::{Conditions, Statement};
use swath_lab::study::grid::{Grid, Missing, metrics};
use swath_lab::study::kind::{Drawn, Shown, Study};
use swath_lab::study::needs::Needs;
use swath_lab::study::paper::Entry;
use swath_lab::study::plan::Head;
use swath_lab::study::registry;
use swath_lab::study::results::{Figure, FigureKind, Series};
use swath_lab::study::run::{Outcome, Run, StudyError};
use swath_lab::study::verdict::Verdict;

#[test]
fn every_plan_of_the_registry_is_read_and_has_a_name_of_its_own() {
    let studies = registry::built_in().unwrap();
    assert!(studies.len() >= 28, "{}", studies.len());
    let mut names: Vec<&str> = studies.iter().map(|study| study.about().study.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), studies.len());
    for (paper, entry) in registry::entries() {
        let study = registry::parse("built in", entry.plan).unwrap();
        assert_eq!(study.about().kind, entry.code.kind());
        assert_eq!(study.citation().key, paper.citation.key);
    }
}

#[test]
fn every_kind_has_a_schema_that_names_its_keys() {
    let schemas = registry::schemas();
    for (_, entry) in registry::entries() {
        let schema = &schemas[entry.code.kind()];
        let plan: toml::Table = entry.plan.parse().unwrap();
        for key in plan.keys() {
            assert!(!schema["properties"][key].is_null(), "{}: {key}", entry.code.kind());
        }
        assert_eq!(schema["additionalProperties"], false, "{}", entry.code.kind());
    }
}

#[test]
fn an_unknown_kind_is_named_with_those_that_there_are() {
    let (_, entry) = registry::entries().next().unwrap();
    let text = entry.plan.replace(&format!("kind = {:?}", entry.code.kind()), "kind = \"tbl\"");
    let error = registry::parse("mine.toml", &text).err().unwrap().to_string();
    assert!(error.contains("mine.toml") && error.contains("\"tbl\"") && error.contains("tlb"));
}

fn plan_of(kind: &str) -> &'static str {
    registry::entries().find(|(_, entry)| entry.code.kind() == kind).unwrap().1.plan
}

fn tlb_plan() -> &'static str {
    plan_of("tlb")
}

/// Every list of fixed length that a plan has, and one in a list of a plan that has both forms.
#[test]
fn a_list_of_fixed_length_takes_no_more_and_no_fewer_values() {
    for (kind, good, bad, key, why) in [
        ("cases", "b = [[1, 4],", "b = [[1, 4, 0],", "fig_8.b.0", "3 values, 2 are wanted"),
        ("cases", "[9, 4]]", "[9]]", "fig_8.b.1", "invalid length 1"),
        ("cl-large", "[64, 2048]", "[64, 2048, 1]", "size_kib", "3 values, 2 are wanted"),
        ("cl-large", "[64, 2048]", "[]", "size_kib", "invalid length 0"),
        ("readings", "[64, 16]", "[64, 16, 16]", "blocks.1", "3 values, 2 are wanted"),
        ("beyond", "[4, 1],", "[4, 1, 7, 7],", "demand.together", "invalid length 4"),
        ("cl-order", "[24, 16],", "[24, 16, 0],", "machine.areas_mib.1", "3 values, 2 are wanted"),
    ] {
        let plan = plan_of(kind);
        let line = plan[..plan.find(good).unwrap()].matches('\n').count() + 1;
        let error = registry::parse("mine.toml", &plan.replacen(good, bad, 1)).err();
        let error = error.unwrap_or_else(|| panic!("{kind}: {bad} is read")).to_string();
        let said = format!("plan mine.toml: line {line}, {key}: {why}");
        assert!(error.starts_with(&said), "{bad}: {error}, not {said}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_key_and_line() {
    for (good, bad, words) in [
        ("full = 20", "full = 0", &["repeats", "0 is not between 1 and 1000"][..]),
        ("tlb_ways = 32", "tlb_ways = 5", &["machine.tlb_ways", "sets of 5 ways", "line "]),
        ("tlb_entries = 32", "tlb_entries = -1", &["tlb_entries", "-1"]),
        ("contiguity_bits = 16", "contiguity_bits = 99", &["machine.contiguity_bits", "line "]),
        ("pbs_top_order = 8", "pbs_top_order = 63", &["machine.pbs_top_order", "line "]),
        ("[1, 2, 4, 8,", "[2, 1, 4, 8,", &["block_frames", "larger than the last"]),
        ("[1, 2, 4, 8,", "[0, 2, 4, 8,", &["block_frames", "0 is not between 1 and"]),
        ("free_share = 0.25", "free_share = 1.0", &["free_share", "not a share"]),
        ("free_share = 0.25", "free_share = nan", &["free_share", "not a share"]),
        (
            "free_per_requested = 1.1378",
            "free_per_requested = 0.5",
            &["free_per_requested", "line "],
        ),
        ("\"camera-preview\",", "\"camera-view\",", &["camera-view", "camera-preview"]),
        ("\"camera-preview\",", "\"image-scaling\",", &["workloads", "stands twice"]),
        ("claims = true", "claims = true\nclams = true", &["clams"]),
        ("claims = true\n", "", &["claims"]),
        ("seed = 1", "seed = \"one\"", &["seed"]),
    ] {
        let text = tlb_plan();
        assert!(text.contains(good), "{good}");
        let error = registry::parse("mine.toml", &text.replacen(good, bad, 1)).err();
        let error = error.unwrap_or_else(|| panic!("{bad} is read")).to_string();
        for word in words {
            assert!(error.contains(word), "{bad}: {error} lacks {word}");
        }
        assert!(error.contains("mine.toml"), "{error}");
    }
}

/// A study that a test adds: code, a plan and an entry.
struct Waves;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WavesPlan {
    about: Head,
    repeats: Forms<Repeats>,
    sizes: Ascending<Bounded<1, 64>>,
}

swath_lab::plan!(WavesPlan);

impl Study for Waves {
    const KIND: &'static str = "waves";
    type Plan = WavesPlan;
    type Found = Grid;

    fn seeds(plan: &WavesPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(_: &WavesPlan, _: &Run<'_>) -> Needs {
        Needs::small()
    }

    fn measure(plan: &WavesPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let sizes: Vec<u64> = plan.sizes.iter().map(|size| size.get()).collect();
        let seeds = Self::seeds(plan, run.quick);
        let seed = plan.about.seed;
        run.grid(
            &plan.about,
            &["size"],
            seeds,
            &sizes,
            |&size| vec![size.into()],
            |&size, repeat| {
                let noise = ((seed + repeat) * 7919 % 100) as f64 / 1000.0;
                Ok(metrics([("height", size as f64 + noise)]))
            },
        )
    }

    fn claims(_: &WavesPlan, run: &Run<'_>) -> Vec<Statement<Grid>> {
        let of = |size: u64| {
            move |grid: &Grid| {
                grid.evidence(|view| -> Result<f64, Missing> {
                    view.select().is("size", size).one("height")
                })
            }
        };
        let conditions =
            Conditions::new().same("form", "full", if run.quick { "quick" } else { "full" });
        vec![
            Statement::within("Fig. 1", "size 4: a height of 4", 4.0, 0.2).measured(of(4)),
            Statement::within("Fig. 1", "size 8: a height of 8", 8.0, 0.2).measured(of(8)),
            Statement::within("Fig. 2", "size 2, full", 2.0, 0.2)
                .under(&conditions)
                .measured(of(2)),
        ]
    }

    fn show(_: &WavesPlan, _: &Run<'_>, grid: &Grid) -> Shown {
        let points = grid.points("size", |all| all, |cell| cell.get("height"));
        let series = vec![Series::new("Fig. 1", "size", "height", "wave", points)];
        let figure = Figure::new("Fig. 1", "Waves", FigureKind::Lines, "size", "height");
        Shown { figures: vec![Drawn { figure, series }], ..Shown::default() }
    }
}

const WAVES: &str = "repeats = { full = 9, quick = 3 }\nsizes = [2, 4]\n[about]\nstudy = \"waves\"\n\
    kind = \"waves\"\ntitle = \"Waves\"\nseed = 5\npurpose = \"Water.\"\n";

static ENTRY: Entry = Entry { code: &Waves, plan: WAVES, search: None };
static CITATION: Citation = Citation {
    key: "Poseidon",
    authors: "Poseidon",
    title: "On Waves",
    venue: "Sea",
    year: None,
    doi: None,
};

fn waves(text: &str, quick: bool) -> Outcome {
    let study = ENTRY.code.read(&CITATION, "waves", text).unwrap();
    with_run(quick, |run| study.run(run)).unwrap()
}

#[test]
fn a_study_is_code_a_plan_and_an_entry() {
    let outcome = waves(ENTRY.plan, true);
    let result = &outcome.result;
    assert_eq!((result.n, result.quick, result.paper.as_str()), (3, true, "Poseidon"));
    let verdicts: Vec<Verdict> = result.claims.iter().map(|claim| claim.verdict()).collect();
    assert_eq!(verdicts, [Verdict::Holds, Verdict::NotMeasured, Verdict::NotComparable]);
    assert_eq!(result.claims[1].reason(), "axis size: no 8");
    assert_eq!(result.claims[0].n(), 3);
    assert_eq!(result.series[0].points[0].spread.unwrap().n, 3);
    let full = waves(ENTRY.plan, false).result;
    assert_eq!((full.n, full.claims[2].verdict()), (9, Verdict::Holds));
}

#[test]
fn plan_and_seed_decide_every_byte() {
    let bytes = |text: &str| serde_json::to_string(&waves(text, true).result).unwrap();
    assert_eq!(bytes(WAVES), bytes(WAVES));
    assert_ne!(bytes(WAVES), bytes(&WAVES.replace("seed = 5", "seed = 6")));
}

#[test]
fn a_kind_without_work_for_a_child_says_so() {
    let error = ENTRY.code.child("{}").unwrap_err().to_string();
    assert!(error.contains("waves"), "{error}");
}
