//! The studies on contiguous memory across areas: every cell of Table 2, Fig. 4's two outcomes,
//! and plans with one thing wrong.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use swath_lab::study::old::plan::Plan;
use swath_lab::study::old::registry::BUILT_IN;

fn plan_text(study: &str) -> &'static str {
    BUILT_IN.iter().find(|(name, _)| *name == study).unwrap().1
}

/// Runs a study's quick form; what it wrote.
fn study(name: &str, out: &Path, jobs: &str) -> Value {
    let args = ["study", name, "--quick", "--jobs", jobs, "--out", out.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_swath")).args(args).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let results = std::fs::read_to_string(out.join(name).join("results.json")).unwrap();
    serde_json::from_str(&results).unwrap()
}

fn claims_at<'r>(results: &'r Value, place: &str) -> Vec<&'r Value> {
    let all = results["claims"].as_array().unwrap();
    all.iter().filter(|claim| claim["where"] == place).collect()
}

/// Each figure of a result has points.
fn assert_drawn(results: &Value) {
    for figure in results["figures"].as_array().unwrap() {
        let series = results["series"].as_array().unwrap();
        let own = series.iter().filter(|series| series["figure"] == figure["id"]);
        let points: usize = own.map(|series| series["points"].as_array().unwrap().len()).sum();
        assert!(points > 0, "{} is empty", figure["id"]);
    }
}

#[test]
fn every_cell_of_table_2() {
    let dir = tempfile::tempdir().unwrap();
    let results = study("cl-availability", dir.path(), "1");
    assert_drawn(&results);
    let cells = claims_at(&results, "Table 2");
    assert_eq!(cells.len(), 18);
    for (cell, served) in cells
        .into_iter()
        .zip(["111", "011", "011", "011", "001", "001"].concat().chars().map(|cell| cell == '1'))
    {
        assert_eq!(cell["holds"], true, "{cell}");
        assert_eq!(cell["measured"], f64::from(u8::from(served)), "{cell}");
    }
    // The unequal machine has as much memory, and every request of the table but huge pages'.
    let series = results["series"].as_array().unwrap();
    let unequal = series
        .iter()
        .find(|one| one["figure"] == "Table 2, 16 unequal areas" && one["design"] == "CLMalloc");
    for point in unequal.unwrap()["points"].as_array().unwrap() {
        assert_eq!(point[1], 1.0, "{point}");
    }
    assert_eq!(results, study("cl-availability", dir.path(), "2"));
}

#[test]
fn the_two_orders_of_fig_4() {
    let dir = tempfile::tempdir().unwrap();
    let results = study("cl-order", dir.path(), "2");
    assert_drawn(&results);
    let served = |design: &str| -> Vec<f64> {
        let series = results["series"].as_array().unwrap();
        let one = series.iter().find(|one| one["figure"] == "Fig. 4" && one["design"] == design);
        let points = one.unwrap()["points"].as_array().unwrap();
        points.iter().map(|point| point[1].as_f64().unwrap()).collect()
    };
    assert_eq!(served("Baseline"), [4.0, 3.0]);
    assert_eq!(served("Global bitmap"), [4.0, 4.0]);
    assert_eq!(served("CLMalloc"), [4.0, 4.0]);
    assert!(results["claims"].as_array().unwrap().iter().all(|claim| claim["holds"] == true));
}

/// Whatever the machine, these are measured; what they say is not a test's matter.
#[test]
fn studies_of_time_run() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["cl-latency", "cl-large", "cl-structures"] {
        let results = study(name, dir.path(), "2");
        assert_drawn(&results);
        let host = std::fs::read_to_string(dir.path().join(name).join("host.json")).unwrap();
        assert_drawn(&serde_json::from_str(&host).unwrap());
        // The other one takes the longest.
        if name != "cl-latency" {
            let again = study(name, dir.path(), "1");
            assert_eq!(results, again, "{name}: not a function of plan and seed");
        }
    }
}

#[test]
fn a_wrong_plan_names_the_key() {
    for (study, from, to, key) in [
        ("cl-availability", "unit_order = 0", "unit_order = 9", "unit_order"),
        ("cl-availability", "[24, 16]", "[15, 16]", "machines.areas_mib"),
        ("cl-availability", "[24, 16]", "[24, 0]", "machines.areas_mib"),
        ("cl-availability", "16 unequal areas", "16 equal areas", "machines.name"),
        ("cl-availability", "mib = 100", "mib = 0", "requests.mib"),
        ("cl-availability", "count = 12", "count = 9", "requests"),
        ("cl-availability", "[1, 2, 3,", "[2, 1, 3,", "sizes_mib"),
        ("cl-availability", "60, 64]", "60, 257]", "sizes_mib"),
        ("cl-order", "[8, 24, 8, 24]", "[8, 24, 8, 8]", "orders.requests_mib"),
        ("cl-order", "4(b)", "4(a)", "orders.name"),
        ("cl-order", "[72, 16]]", "[72, 16], [80, 8]]", "machine.areas_mib"),
        ("cl-latency", "request_mib = 20", "request_mib = 300", "request_mib"),
        ("cl-latency", "counts = [8,", "counts = [0,", "counts"),
        ("cl-latency", "counts_quick = [8,", "counts_quick = [9,", "counts_quick"),
        ("cl-latency", "rounds = 21", "rounds = 1", "rounds"),
        ("cl-large", "size_kib = [64, 2048]", "size_kib = [64, 32]", "size_kib"),
        ("cl-large", "live = 8", "live = 0", "live"),
        ("cl-large", "rounds = 5", "rounds = 4", "rounds"),
        ("cl-large", "threads = [1, 2, 4, 8]", "threads = [8, 2]", "threads"),
        ("cl-structures", "records = 100000", "records = 63", "records"),
        ("cl-structures", "kind = \"cl-structures\"", "kind = \"cl-structure\"", "kind"),
    ] {
        let plan = plan_text(study);
        assert!(plan.contains(from), "{study}: {from}");
        let error = Plan::parse(study, &plan.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(key), "{study}, {to}: {error}");
    }
}
