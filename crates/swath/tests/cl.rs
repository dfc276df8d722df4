//! The studies on contiguous memory across areas, run by the program: every cell of Table 2, and
//! Fig. 4's two outcomes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use swath_lab::study::registry;

/// Runs a built-in study's quick form; the results that it wrote.
fn study(name: &str, out: &Path, jobs: &str) -> Value {
    run(name, &[name], out, jobs)
}

/// Runs the quick form of a built-in plan in which each first text is replaced by the second.
fn edited(name: &str, edits: &[(&str, &str)], out: &Path, jobs: &str) -> Value {
    let wanted = format!("study = \"{name}\"");
    let mut plans = registry::entries().map(|(_, entry)| entry.plan);
    let mut plan = plans.find(|plan| plan.contains(&wanted)).unwrap().to_owned();
    for (from, to) in edits {
        assert!(plan.contains(from), "{name}: {from}");
        plan = plan.replacen(from, to, 1);
    }
    let file = out.join(format!("{name}.toml"));
    std::fs::write(&file, plan).unwrap();
    run(name, &["--plan", file.to_str().unwrap()], out, jobs)
}

fn run(name: &str, which: &[&str], out: &Path, jobs: &str) -> Value {
    let args = ["--quick", "--jobs", jobs, "--out", out.to_str().unwrap()];
    let args = ["study"].iter().chain(which).chain(&args);
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
    // The library itself on one row is enough here.
    let edits =
        [("reserve_mib = 256, repeats = { full = 20, quick = 3 }", "reserve_mib = 2, repeats = 2")];
    let results = edited("cl-availability", &edits, dir.path(), "1");
    assert_drawn(&results);
    let cells = claims_at(&results, "Table 2");
    assert_eq!(cells.len(), 18);
    for (cell, served) in cells
        .into_iter()
        .zip(["111", "011", "011", "011", "001", "001"].concat().chars().map(|cell| cell == '1'))
    {
        let huge = cell["says"].as_str().unwrap().contains("Huge page: not served");
        assert_eq!(cell["verdict"], if huge { "identity" } else { "holds" }, "{cell}");
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
    assert_eq!(results, edited("cl-availability", &edits, dir.path(), "2"));
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
    assert!(results["claims"].as_array().unwrap().iter().all(|claim| claim["verdict"] == "holds"));
}

/// On every machine these are measured; their verdicts are no test's matter.
#[test]
fn studies_of_time_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let studies: [(&str, &[(&str, &str)]); 3] = [
        (
            "cl-latency",
            &[
                ("request_mib = 20", "request_mib = 2"),
                ("quick = [8, 12]", "quick = [8]"),
                ("repeats = { full = 20, quick = 3", "repeats = { full = 20, quick = 2"),
            ],
        ),
        ("cl-large", &[("requests = [100, 1000, 10000, 100000]", "requests = [100, 1000]")]),
        ("cl-structures", &[("quick = 5 }", "quick = 2 }"), ("quick = 2000 }", "quick = 640 }")]),
    ];
    for (name, edits) in studies {
        let results = edited(name, edits, out, "2");
        assert_drawn(&results);
        let host = std::fs::read_to_string(out.join(name).join("host.json")).unwrap();
        assert_drawn(&serde_json::from_str(&host).unwrap());
        assert_eq!(results, edited(name, edits, out, "1"), "{name}: plan and seed say it all");
    }
}
