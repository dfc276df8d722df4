//! `swath study` as its user meets it: lists, checks, schemas, places that are
//! another's, and names that are nearly right.

#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn swath(directory: &Path, args: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
    command.args(args).current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

fn run(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
    let output = swath(directory, &args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The plan of a study of the registry.
fn plan(study: &str) -> &'static str {
    let head = format!("study = {study:?}");
    let mut plans = swath_lab::study::registry::entries().map(|(_, entry)| entry.plan);
    plans.find(|plan| plan.contains(&head)).unwrap()
}

#[test]
fn the_list_is_text_or_json() {
    let room = tempfile::tempdir().unwrap();
    let (code, text, _) = run(room.path(), &["study", "--list"]);
    assert_eq!((code, text.lines().count()), (Some(0), 37));
    let (code, json, _) = run(room.path(), &["study", "--list", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let studies = json["studies"].as_array().unwrap();
    assert_eq!((code, studies.len()), (Some(0), 37));
    for (line, study) in text.lines().zip(studies) {
        assert!(line.starts_with(study["study"].as_str().unwrap()), "{line}");
        assert!(study["paper"].as_str().is_some_and(|key| !key.is_empty()), "{study}");
    }
}

#[test]
fn a_search_is_found_by_its_study_and_runs_only_if_it_is_asked_for() {
    let room = tempfile::tempdir().unwrap();
    let (code, text, _) = run(room.path(), &["study", "--search", "--list"]);
    assert_eq!((code, text.lines().count()), (Some(0), 1));
    assert!(text.starts_with("pbs-system-search"), "{text}");
    let (code, text, _) = run(room.path(), &["study", "pbs-system", "--search", "--list"]);
    assert!(code == Some(0) && text.starts_with("pbs-system-search"), "{text}");
    for (name, words) in [
        ("pbs-tlb", "no study with a search \"pbs-tlb\"; there are pbs-system"),
        ("pbs-systen", "did you mean pbs-system?"),
    ] {
        let (code, _, said) = run(room.path(), &["study", name, "--search"]);
        assert_eq!(code, Some(2));
        assert!(said.contains(words), "{said}");
    }
    let (code, _, said) = run(room.path(), &["study", "pbs-system-search"]);
    assert!(code == Some(2) && said.contains("no study"), "{said}");
}

#[test]
fn a_check_runs_nothing_and_says_what_cannot_be_compared() {
    let room = tempfile::tempdir().unwrap();
    let text = plan("pbs-tlb");
    fs::write(room.path().join("same.toml"), text).unwrap();
    let larger = text.replace("tlb_entries = 32", "tlb_entries = 64");
    fs::write(room.path().join("larger.toml"), larger).unwrap();
    fs::write(room.path().join("wrong.toml"), text.replace("seed = 1", "sead = 1")).unwrap();
    let (code, said, _) = run(room.path(), &["study", "--check", "same.toml", "larger.toml"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("8 statements, 0 of them not comparable"), "{said}");
    assert!(said.contains("8 statements, 8 of them not comparable"), "{said}");
    assert!(said.contains("TLB entries: 64 here, 32 in the paper"), "{said}");
    assert!(!room.path().join("report").exists());
    let (code, _, said) = run(room.path(), &["study", "--check", "wrong.toml"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("wrong.toml") && said.contains("sead"), "{said}");
}

#[test]
fn schemas_are_json_by_kind() {
    let room = tempfile::tempdir().unwrap();
    let (code, json, _) = run(room.path(), &["study", "--schema"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(0));
    assert!(json["tlb"]["properties"]["machine"].is_object());
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let room = tempfile::tempdir().unwrap();
    let (code, _, said) = run(room.path(), &["study", "pbs-tbl"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("did you mean pbs-tlb?"), "{said}");
}

#[test]
fn a_page_of_another_program_stays() {
    let room = tempfile::tempdir().unwrap();
    fs::create_dir(room.path().join("site")).unwrap();
    let page = room.path().join("site/index.html");
    fs::write(&page, "<html>mine</html>").unwrap();
    let (code, _, said) = run(room.path(), &["study", "pbs-cases", "--out", "site"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("site/index.html"), "{said}");
    assert_eq!(fs::read_to_string(page).unwrap(), "<html>mine</html>");
    assert!(!room.path().join("site/pbs-cases").exists(), "work before the refusal");
}

#[test]
fn a_directory_whose_name_is_not_utf_8_is_written() {
    let room = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"r\xffport");
    for more in [&[][..], &[OsStr::new("--json")]] {
        let args = [OsStr::new("study"), OsStr::new("pbs-cases"), OsStr::new("--out"), name];
        let output = swath(room.path(), &[&args, more].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(room.path().join(name).join("index.html").is_file());
    }
}

#[test]
fn results_of_another_version_are_left_out_with_a_word() {
    let room = tempfile::tempdir().unwrap();
    let old = room.path().join("report/old-study");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("results.json"), "{\"study\": \"old-study\"}").unwrap();
    let (code, _, said) = run(room.path(), &["study", "pbs-cases"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("left out of the page") && said.contains("old-study"), "{said}");
    let page = fs::read_to_string(room.path().join("report/index.html")).unwrap();
    assert!(page.contains("pbs-cases") && !page.contains("old-study"));
}

#[test]
fn completions_the_manual_and_the_version_name_the_program() {
    let room = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, text, _) = run(room.path(), &["completions", shell]);
        assert_eq!(code, Some(0));
        assert!(text.contains("swath") && text.contains("study"), "{shell}");
    }
    let (code, manual, _) = run(room.path(), &["man"]);
    assert_eq!(code, Some(0));
    assert!(manual.contains(".TH swath") && manual.contains("snapshot"), "{manual}");
    let (_, version, _) = run(room.path(), &["--version"]);
    assert_eq!(version, format!("swath {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_plan_beyond_the_limit_is_refused_with_its_key_and_line() {
    let room = tempfile::tempdir().unwrap();
    let text = plan("pbs-fit").replace("frames = 262144", "frames = 16777216");
    let line = text.lines().position(|line| line.starts_with("frames")).unwrap() + 1;
    fs::write(room.path().join("large.toml"), text).unwrap();
    let check = ["study", "--check", "large.toml", "--json", "--jobs", "2"];
    let (code, said, _) = run(room.path(), &[&check[..], &["--memory-limit", "64GiB"]].concat());
    let json: Value = serde_json::from_str(&said).unwrap();
    let memory = json["plans"][0]["memory_bytes"].as_u64().unwrap();
    assert_eq!((code, &json["plans"][0]["threads"]), (Some(0), &Value::from(2)));
    // One point at a time where two are too many.
    let less = (memory - 1).to_string();
    let (_, said, _) = run(room.path(), &[&check[..], &["--memory-limit", &less]].concat());
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["plans"][0]["threads"], 1);
    for how in [&check[..], &["study", "--plan", "large.toml"]] {
        let (code, _, said) = run(room.path(), &[how, &["--memory-limit", "128MiB"]].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("line {line}, aged.frames")), "{said}");
        assert!(said.contains("the limit is 128"), "{said}");
    }
    assert!(!room.path().join("report/pbs-fit").exists());
    let (code, _, said) = run(room.path(), &[&check[..], &["--memory-limit", "3 miles"]].concat());
    assert!(code == Some(2) && said.contains("miles"), "{said}");
}
