//! The green memory manager's plans cut down as a reader would: the paper's
//! statements stay, and those that cannot be compared say why.

use crate::runs::with_run;
use swath_lab::papers::green::paper::PAPER;
use swath_lab::source::real::RealInput;
use swath_lab::study::kind::ReadyStudy;
use swath_lab::study::registry::parse;
use swath_lab::study::results::Verdict;
use swath_lab::study::run::{Run, Shared, Unwatched};

fn text(kind: &str) -> &'static str {
    PAPER.studies.iter().find(|entry| entry.code.kind() == kind).unwrap().plan
}

/// A built-in plan with some of its text replaced.
fn plan(kind: &str, replaced: &[(&str, &str)]) -> Result<Box<dyn ReadyStudy>, String> {
    let mut text = text(kind).to_owned();
    for (from, to) in replaced {
        assert!(text.contains(from), "{kind} has no {from}");
        text = text.replace(from, to);
    }
    parse(kind, &text).map_err(|error| error.to_string())
}

/// Places of the statements, and the reasons of those that cannot be compared.
fn statements(kind: &str, replaced: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
    let plan = plan(kind, replaced).unwrap();
    with_run(true, |run| plan.statements(run))
}

/// The reason of the first statement whose words contain `words`.
fn reason(kind: &str, replaced: &[(&str, &str)], words: &str) -> String {
    let all = statements(kind, replaced);
    let found = all.into_iter().find(|(says, _)| says.contains(words));
    found.unwrap_or_else(|| panic!("{kind} says nothing of {words}")).1.unwrap_or_default()
}

#[test]
fn statements_stay_whatever_a_plan_leaves_out() {
    for (kind, cut, count) in [
        ("green-layout", &[("    \"adaptive\",\n", "")][..], 6),
        ("green-hotplug", &[("    \"linux\",\n", "")], 6),
        ("green-power", &[("    \"adaptive + migration\",\n", "")], 46),
        ("green-migration", &[("load = \"medium\"", "load = \"light\"")], 10),
        ("green-replay", &[("[\"compile\", \"files\"]", "[\"files\"]")], 10),
        ("green-cost", &[("[10_000, 1_000_000]", "[10_000]")], 33),
        (
            "green-operations",
            &[("\n[[tests]]\nrecording = \"fork_test\"\noperations = 300\n", "")],
            58,
        ),
        ("green-working-set", &[("[1, 4, 8, 16]", "[1, 4]")], 7),
    ] {
        let words = |replaced| -> Vec<String> {
            statements(kind, replaced).into_iter().map(|(says, _)| says).collect()
        };
        let whole = words(&[]);
        assert_eq!(whole.len(), count, "{kind}: {whole:#?}");
        assert_eq!(words(cut), whole, "{kind}");
    }
}

/// A claim on "any allocator" is on those that a form runs, by name.
#[test]
fn no_request_fails_on_the_allocators_that_run() {
    let plan = plan("green-replay", &[]).unwrap();
    for (quick, count) in [(false, 7), (true, 6)] {
        let all = with_run(quick, |run| plan.statements(run));
        let of: Vec<_> = all.iter().filter(|(says, _)| says.contains("no request fails")).collect();
        assert_eq!(of.len(), 2);
        for (says, _) in of {
            let (_, names) = says.split_once(&format!("any of {count} allocators (")).unwrap();
            assert_eq!(names.split(';').count(), count, "{says}");
        }
    }
}

#[test]
fn another_machine_or_a_cut_load_is_not_comparable() {
    let reason_of = |machine| reason("green-layout", &[], &format!("Fig. 1 ({machine}"));
    assert_eq!(reason_of("32 GiB"), "");
    assert_eq!(reason_of("4 GiB"), "machine: 4 GiB here, 32 GiB in the paper");
    let short = [("quick = 40", "quick = 5")];
    for (kind, words) in [
        ("green-hotplug", "Fig. 8 (4 GiB, medium)"),
        ("green-power", "Table IV (4 GiB, light)"),
        ("green-migration", "Fig. 9c (4 GiB, medium)"),
    ] {
        assert_eq!(reason(kind, &[], words), "");
        let why = reason(kind, &short, words);
        assert!(why.starts_with("5 simulated minutes here"), "{kind}: {why}");
    }
    let banks = [("bank_frames = 65_536", "bank_frames = 32_768")];
    let why = reason("green-cost", &banks, "Table III");
    assert_eq!(why, "frames of a bank: 32768 here, 65536 in the paper");
    assert_eq!(reason("green-working-set", &[], "facesim with 16 threads"), "");
}

#[test]
fn a_wrong_plan_names_the_key() {
    for (from, to, key) in [
        ("full = 60, quick = 0", "full = 2, quick = 0", "runs.0.minutes"),
        ("quick = 40", "quick = 0", "runs"),
        ("machine = \"32g\"", "machine = \"64g\"", "machine"),
        ("load = \"light\"", "load = \"heavy\"", "load"),
        ("\"linux + migration\",", "\"adaptive + migration\",", "designs"),
        ("\"linux + migration\",", "\"slab\",", "adaptive-packed + migration"),
        ("bank_mib = 64", "bank_mib = 65", "runs.8.bank_mib"),
        ("bank_mib = 64", "bank_mib = 256", "runs"),
        ("system_mib = 512", "system_mib = 32000", "runs.0.system_mib"),
        ("full = 20, quick = 3", "full = 0, quick = 3", "repeats"),
        ("interval_ms = 1000", "interval_ms = 0", "interval_ms"),
        ("budget_frames = 4096", "budget_frames = 0", "budget_frames"),
        ("occupied_permille_max = 900", "occupied_permille_max = 1001", "occupied_permille_max"),
        ("reserve_frames = 4096", "reserve_frames = 99999999", "reserve_frames"),
        ("retry_ms = 30000", "retries = 3", "retries"),
    ] {
        let error = plan("green-power", &[(from, to)]).err().unwrap_or_default();
        assert!(error.contains(key), "{to}: {error}");
    }
}

/// A program that is given is another one than the paper's: its number stands beside, without a verdict. The face has
/// verdicts, but for the numbers of threads that a plan leaves out.
#[test]
fn another_program_has_numbers_but_no_verdict() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/data/sort.swtrace");
    let given = RealInput { accesses: Some(file.into()), ..RealInput::default() };
    let shared = Shared::default();
    let run = Run { quick: true, real: &given, watch: &Unwatched, journal: None, shared: &shared };
    let claims = plan("green-working-set", &[]).unwrap().run(&run).unwrap().result.claims;
    assert!(claims.iter().all(|claim| claim.verdict() == Verdict::NotComparable));
    assert_eq!(claims.iter().filter(|claim| claim.measured().is_some()).count(), 1);
    let why = claims[0].reason();
    assert!(why.starts_with("program: sort.swtrace here, facesim in the paper; windows"), "{why}");

    let study = plan("green-working-set", &[("[1, 4, 8, 16]", "[4]")]).unwrap();
    let outcome = with_run(true, |run| study.run(run)).unwrap();
    assert_eq!(outcome.result.n, 0);
    for claim in &outcome.result.claims {
        let measured = claim.says().contains("with 4 threads");
        assert_eq!(claim.verdict() != Verdict::NotMeasured, measured, "{}", claim.says());
    }
}

/// A load's random numbers depend on the repeat, and on the plan's seed.
#[test]
fn repeats_have_loads_of_their_own() {
    let cut = [
        ("quick = 40", "quick = 3"),
        ("    \"adaptive-packed + migration\",\n", ""),
        ("full = 20, quick = 3", "full = 20, quick = 2"),
    ];
    let study = plan("green-power", &cut).unwrap();
    let run = || with_run(true, |run| study.run(run)).unwrap().result;
    let result = run();
    assert_eq!(result.n, 2);
    let c = result.series.iter().find(|series| series.y == "c").unwrap();
    let spread = |point: &swath_lab::study::results::Point| {
        let spread = point.spread.unwrap();
        assert_eq!(spread.n, 2);
        spread.interval.unwrap()
    };
    assert!(c.points.iter().map(spread).any(|(low, high)| low < high));
    // The same plan and seed give the same bytes.
    let json = |result| serde_json::to_string(&result).unwrap();
    assert_eq!(json(result), json(run()));
}
