//! The studies of CLMalloc under plans that a reader cuts down: nothing is judged on a part of
//! what the paper states, or on another machine or load.

use crate::runs::{text, with_run};
use swath_lab::study::claim::Claim;
use swath_lab::study::kind::ReadyStudy;
use swath_lab::study::registry;
use swath_lab::study::run::Outcome;
use swath_lab::study::verdict::Verdict;
use toml::{Table, Value};

/// A built-in plan with other values of some keys, which are TOML.
fn edited(study: &str, edits: &[(&str, &str)]) -> Box<dyn ReadyStudy> {
    let mut plan: Table = toml::from_str(text(study)).unwrap();
    for (key, value) in edits {
        let value: Table = toml::from_str(&format!("value = {value}")).unwrap();
        let mut keys: Vec<&str> = key.split('.').collect();
        let last = keys.pop().unwrap();
        let table =
            keys.into_iter().fold(&mut plan, |table, key| table[key].as_table_mut().unwrap());
        table.insert(last.to_owned(), value["value"].clone());
    }
    registry::parse("edited", &toml::to_string(&plan).unwrap()).unwrap()
}

fn outcome(study: &dyn ReadyStudy) -> Outcome {
    with_run(true, |run| study.run(run).unwrap())
}

/// The claims of a quick run, those on the host last.
fn claims(study: &dyn ReadyStudy) -> Vec<Claim> {
    let outcome = outcome(study);
    let host = outcome.host.into_iter().flat_map(|host| host.claims);
    outcome.result.claims.into_iter().chain(host).collect()
}

/// Asserts that no statement of the plan's full form can be compared, and why.
fn assert_incomparable(study: &str, edits: &[(&str, &str)], why: &str) {
    let statements = with_run(false, |run| edited(study, edits).statements(run));
    assert!(!statements.is_empty());
    for (says, reason) in statements {
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(why)), "{says}: {reason:?}");
    }
}

/// The claims whose words have `words` in them.
fn about<'c>(claims: &'c [Claim], words: &str) -> Vec<&'c Claim> {
    claims.iter().filter(|claim| claim.says().contains(words)).collect()
}

const FOUR_AREAS: &str = "[[0, 16], [24, 16], [48, 16], [72, 16]]";

#[test]
fn requests_of_4_mib_are_not_the_papers() {
    assert_incomparable("cl-latency", &[("request_mib", "4")], "MiB of a request: 4 here, 20 in");
    let size = [("size_kib", "[4096, 4096]")];
    assert_incomparable("cl-large", &size, "KiB of a request: 4096 to 4096 here, 64 to 2048 in");
    assert_incomparable("cl-large", &[("live", "1")], "blocks of a thread at a time: 1 here, 8 in");
    let sizes = edited("cl-order", &[]);
    assert!(with_run(true, |run| sizes.statements(run)).iter().all(|(_, why)| why.is_none()));
    let same = "[{ name = \"4(a)\", requests_mib = [4, 4, 4, 4] }]";
    assert_incomparable("cl-order", &[("orders", same)], "4, 4, 4, 4 here, 24, 24, 4, 4 in");
}

#[test]
fn other_areas_are_not_the_papers() {
    let edits = [("machine.areas_mib", FOUR_AREAS)];
    assert_incomparable("cl-latency", &edits, "areas: 4 of 16 MiB here, 16 of 16 MiB in the paper");
    let machines = format!("[{{ name = \"small\", areas_mib = {FOUR_AREAS} }}]");
    let edits = [("machines", machines.as_str()), ("sizes_mib", "[1, 20]")];
    assert_incomparable("cl-availability", &edits, "areas: 4 of 16 MiB here, 16 of 16 MiB in");
    let claims = claims(&*edited("cl-availability", &edits));
    assert!(claims.iter().all(|claim| claim.verdict() == Verdict::NotComparable));
    let edits = [("machine.areas_mib", "[[0, 16], [24, 16], [48, 8], [72, 24]]")];
    assert_incomparable("cl-order", &edits, "areas: 4 of 64 MiB in all here, 4 of 16 MiB in");
}

#[test]
fn fewer_records_are_not_the_papers() {
    let study = edited("cl-structures", &[]);
    for (says, reason) in with_run(true, |run| study.statements(run)) {
        let reason = reason.unwrap();
        assert!(reason.contains("records: 2000 here, 100000 in the paper"), "{says}: {reason}");
    }
}

/// Threads that have no core of their own meet in the allocator in another way.
#[test]
fn more_threads_than_cores_are_not_the_papers() {
    let cores = std::thread::available_parallelism().unwrap().get();
    for study in ["cl-large", "cl-structures"] {
        let statements = with_run(false, |run| edited(study, &[]).statements(run));
        for threads in [1, 2, 4, 8] {
            let s = if threads == 1 { "" } else { "s" };
            let words = format!(" {threads} thread{s},");
            let colon = format!(" {threads} thread{s}:");
            let of: Vec<_> = statements
                .iter()
                .filter(|(says, _)| says.contains(&words) || says.contains(&colon))
                .collect();
            assert_eq!(of.len(), if study == "cl-large" { 2 } else { 4 }, "{study} {threads}");
            assert!(of.iter().all(|(_, reason)| reason.is_some() == (threads > cores)));
        }
    }
}

#[test]
fn a_table_without_a_row_is_judged_without_it() {
    let rows = "[{ mib = 1, count = 1 }, { mib = 20, count = 9 }]";
    let claims = claims(&*edited("cl-availability", &[("requests", rows), ("sizes_mib", "[8]")]));
    assert_eq!(claims.len(), 20);
    for claim in about(&claims, "100 MiB, Baseline") {
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
        assert!(claim.reason().contains("axis request: no 100 MiB"), "{}", claim.reason());
    }
    assert!(about(&claims, "20 MiB × 9, CLMalloc")[0].holds());
    let space = about(&claims, "most over all sizes")[0];
    assert_eq!(space.verdict(), Verdict::NotMeasured);
    assert!(space.reason().starts_with("axis request_mib: no 1, 2,"), "{}", space.reason());
}

/// The paper's figure keeps its name wherever its machine stands, and no other machine has it.
#[test]
fn the_papers_machine_is_known_by_its_areas() {
    let plan: Table = toml::from_str(text("cl-availability")).unwrap();
    let mut machines = plan["machines"].as_array().unwrap().clone();
    machines.reverse();
    let both = Value::Array(machines.clone()).to_string();
    let figures = |machines: &str| {
        let study = edited("cl-availability", &[("machines", machines), ("sizes_mib", "[20]")]);
        let result = outcome(&*study).result;
        let tables = result.figures.into_iter().filter(|one| one.id.starts_with("Table 2"));
        (tables.map(|one| one.id).collect::<Vec<_>>(), result.claims)
    };
    let (ids, claims) = figures(&both);
    let large = "Table 2, 16 areas of 4 GiB";
    assert_eq!(ids, [large, "Table 2, 16 unequal areas", "Table 2"]);
    assert!(about(&claims, "20 MiB × 8, Baseline")[0].holds());
    machines.truncate(1);
    let (ids, claims) = figures(&Value::Array(machines).to_string());
    assert_eq!(ids, [large]);
    assert!(claims.iter().all(|claim| claim.verdict() == Verdict::NotComparable));
}

/// A huge page cannot be longer than a page, and a quotient is what its two numbers are: that is
/// shown, and does not count.
#[test]
fn huge_pages_are_no_discovery() {
    let claims = claims(&*edited("cl-availability", &[]));
    let identities = claims.iter().filter(|claim| claim.verdict() == Verdict::Identity);
    let (pages, others): (Vec<&Claim>, Vec<&Claim>) =
        identities.partition(|claim| claim.says().contains("Huge page: not served"));
    assert_eq!(pages.len(), 5);
    assert_eq!(others, about(&claims, "requests of 20 MiB, CLMalloc / Baseline"));
}

#[test]
fn one_order_alone_judges_the_other_not() {
    let order = "[{ name = \"4(a)\", requests_mib = [24, 24, 4, 4] }]";
    let claims = claims(&*edited("cl-order", &[("orders", order)]));
    for claim in about(&claims, "4(b)") {
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
        assert_eq!(claim.reason(), "axis order: no 4(b)");
    }
    assert!(about(&claims, "4(a)")[0].holds());
}

#[cfg(target_os = "linux")]
#[test]
fn hundreds_of_requests_alone_judge_no_times() {
    let edits = [
        ("requests", "[100, 200]"),
        ("threads", "[1]"),
        ("uses", "[\"ends\", \"pages\"]"),
        ("repeats", "2"),
    ];
    let outcome = outcome(&*edited("cl-large", &edits));
    let claims = outcome.host.unwrap().claims;
    for claim in about(&claims, " 1 thread,") {
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
        assert_eq!(claim.reason(), "axis requests: no 1000, 10000, 100000");
    }
    assert_eq!(claims.len(), 8);
    // Sizes are random: they have a spread.
    let points = &outcome.result.series[0].points;
    assert!(points.iter().all(|point| point.spread.is_some_and(|spread| spread.n == 2)));
}

#[cfg(target_os = "linux")]
#[test]
fn one_workload_alone_judges_no_structure() {
    let edits = [
        ("workloads", "[\"C\"]"),
        ("structures", "[\"vector\"]"),
        ("threads", "[1]"),
        ("records", "640"),
        ("repeats", "2"),
    ];
    let outcome = outcome(&*edited("cl-structures", &edits));
    let claims = outcome.host.unwrap().claims;
    assert_eq!(claims.len(), 16);
    assert!(claims.iter().all(|claim| claim.verdict() == Verdict::NotComparable));
    assert!(claims.iter().all(|claim| claim.measured().is_none()));
}

#[cfg(not(target_os = "linux"))]
#[test]
fn elsewhere_there_is_no_cmt_malloc() {
    for study in ["cl-large", "cl-structures"] {
        let error = with_run(true, |run| edited(study, &[]).run(run).unwrap_err());
        assert!(error.to_string().contains("Linux only"), "{error}");
    }
}

#[test]
fn a_wrong_plan_names_the_key_or_the_line() {
    for (study, from, to, key) in [
        ("cl-availability", "unit_order = 0", "unit_order = 9", "unit_order: 9"),
        ("cl-availability", "[24, 16]", "[15, 16]", "machines.0.areas_mib"),
        ("cl-availability", "[24, 16]", "[24, 0]", "0 is not between 1 and 65536"),
        ("cl-availability", "16 unequal areas", "16 equal areas", "machines.1.name"),
        ("cl-availability", "mib = 100", "mib = 0", "requests.2.mib: 0"),
        ("cl-availability", "count = 12", "count = 9", "value 6 stands twice"),
        ("cl-availability", "[1, 2, 3,", "[2, 1, 3,", "sizes_mib"),
        ("cl-availability", "16384]", "65537]", "65537 is not between"),
        ("cl-order", "[4, 24, 4, 24]", "[4, 24, 4, 4]", "orders.1.requests_mib"),
        ("cl-order", "4(b)", "4(a)", "orders.1.name"),
        ("cl-order", "[72, 16]]", "[72, 16], [80, 8]]", "machine.areas_mib"),
        ("cl-bitmap", "request_areas = 1.5", "request_areas = 15.0", "request_areas"),
        ("cl-bitmap", "8 areas of 4 GiB", "16 equal areas", "machines.1.name"),
        ("cl-bitmap", "threads = [1, 2,", "threads = [2, 1,", "threads"),
        ("cl-bitmap", "[0, 3, 6, 9]", "[0, 3, 6, 13]", "13 is not between 0 and 12"),
        ("cl-translation", "[1, 4, 12]", "[1, 4, 13]", "segments"),
        ("cl-translation", "[360, 16]", "[510, 16]", "machine.areas_mib"),
        ("cl-latency", "request_mib = 20", "request_mib = 300", "request_mib"),
        ("cl-latency", "full = [8,", "full = [0,", "counts"),
        ("cl-latency", "rounds = { full = 5", "rounds = { full = 1", "rounds"),
        ("cl-large", "size_kib = [64, 2048]", "size_kib = [64, 32]", "size_kib"),
        ("cl-large", "live = 8", "live = 0", "live"),
        ("cl-large", "repeats = { full = 20", "repeats = { full = 0", "repeats"),
        ("cl-large", "full = [1, 2, 4, 8]", "full = [8, 2]", "threads"),
        ("cl-structures", "full = 100000", "full = 63", "records"),
        ("cl-structures", "\"vector\"", "\"list\"", "structures"),
        ("cl-structures", "kind = \"cl-structures\"", "kind = \"cl-structure\"", "kind"),
    ] {
        let plan = text(study);
        assert!(plan.contains(from), "{study}: {from}");
        let error = registry::parse(study, &plan.replacen(from, to, 1)).err().unwrap().to_string();
        assert!(error.contains(key), "{study}, {to}: {error}");
    }
}
