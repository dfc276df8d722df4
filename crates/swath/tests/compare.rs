//! `swath compare`: what other seeds change is no change, an injected one is found, and what
//! cannot be compared is an error.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The quick form of a study, with less to do in it where it is named.
fn small_plan() -> String {
    let plan = swath_lab::study::registry::text_of("pbs-tlb").unwrap().to_owned();
    let (head, workloads) = plan.split_once("workloads = [").unwrap();
    let rest = workloads.split_once(']').unwrap().1;
    let plan = format!("{head}workloads = [\"matrix-transpose\", \"camera-preview\"]{rest}");
    let (from, to) = ("[1, 2, 4, 8, 16, 32, 64, 128, 256]", "[1, 4, 16, 64]");
    assert!(plan.contains(from));
    plan.replace(from, to)
}

fn swath(room: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
    command.current_dir(room).args(args).stdin(Stdio::null()).output().unwrap()
}

fn compare(room: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = swath(room, &[&["compare"], args].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs the small plan with these seeds, each into a folder of its name.
fn run_seeds(room: &Path, plan: &str, seeds: std::ops::RangeInclusive<u32>) {
    fs::write(room.join("plan.toml"), plan).unwrap();
    for seed in seeds {
        let seed = seed.to_string();
        let study = ["study", "--plan", "plan.toml", "--quick", "--seed", &seed, "--out", &seed];
        let output = swath(room, &study);
        assert!(output.status.success(), "{output:?}");
    }
}

/// Changes a folder's results.
fn edit(room: &Path, folder: &str, change: impl FnOnce(&mut Value)) {
    let path = room.join(folder).join("pbs-tlb/results.json");
    let mut results = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut results);
    fs::write(path, serde_json::to_vec(&results).unwrap()).unwrap();
}

/// Every number of the points of one design in one figure becomes 5% larger.
fn grow(results: &mut Value, figure: &str, design: &str) {
    fn scale(value: &mut Value) {
        match value {
            Value::Array(ends) => ends.iter_mut().for_each(scale),
            number => *number = (number.as_f64().unwrap() * 1.05).into(),
        }
    }
    for series in results["series"].as_array_mut().unwrap() {
        if series["figure"] == figure && series["design"] == design {
            for point in series["points"].as_array_mut().unwrap() {
                scale(&mut point[1]);
                scale(&mut point[3]);
            }
        }
    }
}

#[test]
fn other_seeds_change_nothing_and_a_change_of_five_per_cent_is_found() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    run_seeds(room, &small_plan(), 1..=4);
    for (a, b) in [("1", "2"), ("2", "3"), ("3", "4"), ("1", "4"), ("1/pbs-tlb", "3")] {
        let (code, said, _) = compare(room, &[a, b]);
        assert_eq!(code, Some(0), "{a} and {b}: {said}");
        assert!(said.contains("\n0 of ") || said.starts_with("0 of "), "{said}");
    }

    edit(room, "4", |results| grow(results, "Fig. 14", "PBS"));
    for other in ["1", "2", "3"] {
        let (code, said, _) = compare(room, &[other, "4"]);
        assert_eq!(code, Some(1), "{said}");
        let found = said.lines().filter(|line| line.contains("Fig. 14: PBS at ")).count();
        assert!(found >= 3, "{found} of four points: {said}");
        assert!(said.contains("seed: ") && said.contains("+5"), "{said}");
        // The claims are those that were measured, and no other figure changed.
        assert!(!said.contains("PCAD at"), "{said}");
    }

    let (code, json, _) = compare(room, &["1", "4", "--json", "--out", "page.html"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let changes = json["comparison"]["studies"][0]["changes"].as_array().unwrap().clone();
    assert_eq!((code, json["changed"].as_u64()), (Some(1), Some(changes.len() as u64)));
    assert!(changes.iter().all(|one| one["figure"] == "Fig. 14" && one["design"] == "PBS"));
    let page = fs::read_to_string(room.join("page.html")).unwrap();
    assert!(page.ends_with("</html>") && page.contains("Fig. 14: PBS at 4"), "{page}");
    // A page of ours is replaced, another's is not.
    assert_eq!(compare(room, &["1", "2", "--out", "page.html"]).0, Some(0));
    fs::write(room.join("page.html"), "mine").unwrap();
    let (code, _, said) = compare(room, &["1", "2", "--out", "page.html"]);
    assert!(code == Some(2) && said.contains("page.html"), "{said}");
    assert_eq!(fs::read_to_string(room.join("page.html")).unwrap(), "mine");
}

#[test]
fn without_an_interval_numbers_are_equal_or_changed() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    for out in ["a", "b"] {
        assert!(swath(room, &["study", "pbs-cases", "--out", out]).status.success());
    }
    assert_eq!(compare(room, &["a", "b"]).0, Some(0));
    let path = room.join("b/pbs-cases/results.json");
    let mut results: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let point = &mut results["series"][0]["points"][0];
    *point = serde_json::json!([point[0], point[1].as_f64().unwrap() + 1.0]);
    results["series"][1]["points"].as_array_mut().unwrap().pop();
    fs::write(&path, serde_json::to_vec(&results).unwrap()).unwrap();
    let (code, said, _) = compare(room, &["a", "b"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("\n1 of ") && said.contains("; 1 parts are in one report alone"),
        "{said}"
    );
    assert!(said.contains("in the first alone: ") && said.contains(", 1 point\n"), "{said}");
}

#[test]
fn what_cannot_be_compared_is_an_error_of_one_line_that_names_it() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    assert!(swath(room, &["study", "pbs-cases", "--out", "good"]).status.success());
    assert!(swath(room, &["study", "cl-order", "--out", "other"]).status.success());
    fs::create_dir(room.join("empty")).unwrap();
    let good = fs::read_to_string(room.join("good/pbs-cases/results.json")).unwrap();
    for (name, bytes) in [
        ("cut", good.as_bytes()[..300].to_vec()),
        ("numbers", good.replace(".0", ".0e308").into_bytes()),
        ("zeros", vec![0; 1 << 20]),
        ("deep", "[".repeat(500_000).into_bytes()),
    ] {
        let place = room.join(name).join("pbs-cases");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("results.json"), bytes).unwrap();
    }
    for name in ["missing", "empty", "cut", "numbers", "zeros", "deep", "other"] {
        for (a, b) in [("good", name), (name, "good")] {
            let (code, _, said) = compare(room, &[a, b]);
            assert_eq!(code, Some(2), "{name}: {said}");
            assert!(said.contains(name) && said.lines().count() == 1, "{name}: {said}");
            assert!(!said.contains("panicked"), "{said}");
        }
    }
    // Ends of an interval that no run writes: an answer or an error, and no panic.
    let exact = good.replacen(
        "\"points\": [",
        "\"points\": [[\"x\", 1e300, 4294967295, [1e300, -1e300]],",
        1,
    );
    fs::write(room.join("cut/pbs-cases/results.json"), exact).unwrap();
    let (code, _, said) = compare(room, &["cut", "cut"]);
    assert!(matches!(code, Some(0 | 2)) && !said.contains("panicked"), "{code:?} {said}");
}

/// Twenty runs of the whole quick form that differ in their seeds alone, each with the next and
/// with the first.
#[test]
#[ignore = "takes two minutes"]
fn twenty_identical_runs_raise_no_alarm() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let plan = swath_lab::study::registry::text_of("pbs-tlb").unwrap();
    run_seeds(room, plan, 1..=20);
    for b in 2..=20 {
        for a in [1, b - 1] {
            let (code, said, _) = compare(room, &[&a.to_string(), &b.to_string()]);
            assert_eq!(code, Some(0), "{a} and {b}: {said}");
        }
    }
}
