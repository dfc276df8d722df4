//! Plans with one thing wrong: whatever it is, reading one never panics, and an
//! error says where, by the key or by the line.

use proptest::prelude::*;
use proptest::sample::Index;
use swath_lab::study::old::plan::{Plan, PlanError};
use swath_lab::study::old::registry::BUILT_IN;

/// Asserts that the error tells its reader where to look.
fn assert_says_where(error: &PlanError, text: &str) {
    let said = error.to_string();
    match error {
        PlanError::Parse { plan, message } => {
            assert_eq!(plan, "mutant");
            // A line that the text has, or the key in backticks.
            let line = message.split_once("at line ").and_then(|(_, rest)| {
                rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
            });
            let lines = text.lines().count().max(1);
            // A text that ends too early may fail behind its last line.
            let line_fits = line.is_some_and(|line| (1..=lines + 1).contains(&line));
            assert!(line_fits || message.contains('`'), "{said}\n---\n{text}");
        }
        PlanError::Value { plan, key, why } => {
            assert_eq!(plan, "mutant");
            assert!(!why.is_empty(), "{said}");
            // `machine.pbs` stands for the keys that begin so, and shapes have
            // defaults, so that their keys may be absent.
            let stands = key.split(" or ").flat_map(|key| key.split('.')).any(|part| {
                let begins = |line: &str| line.trim_start_matches(['[', ' ']).starts_with(part);
                !part.is_empty() && text.lines().any(begins)
            });
            assert!(stands || key.contains("shapes"), "{said}\n---\n{text}");
        }
        PlanError::Orders { .. } => panic!("orders are judged by their key: {said}"),
    }
}

/// What the text holds of one line: the key before `=`, and what follows.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_key.then_some((key, value.trim()))
}

/// One thing that goes wrong in a plan.
#[derive(Clone, Debug)]
enum Wrong {
    DeleteLine(Index),
    ChangeNumber(Index, &'static str),
    ChangeValue(Index, &'static str),
    RenameKey(Index, usize, char),
    DuplicateLine(Index),
    Cut(Index),
    SwapLines(Index, Index),
    ChangeCharacter(Index, char),
}

const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "3",
    "40",
    "255",
    "256",
    "65537",
    "9223372036854775807",
    "9223372036854775808",
    "0.5",
    "1.0",
    "1e300",
    "-0.0",
    "nan",
    "inf",
];

const VALUES: [&str; 9] =
    ["\"\"", "\"many\"", "true", "[]", "[[]]", "[1, \"2\"]", "{}", "1979-05-27", ""];

fn wrong() -> impl Strategy<Value = Wrong> {
    prop_oneof![
        any::<Index>().prop_map(Wrong::DeleteLine),
        (any::<Index>(), prop::sample::select(&NUMBERS[..]))
            .prop_map(|(at, to)| Wrong::ChangeNumber(at, to)),
        (any::<Index>(), prop::sample::select(&VALUES[..]))
            .prop_map(|(at, to)| Wrong::ChangeValue(at, to)),
        (any::<Index>(), 0..24_usize, prop::char::range('a', 'z'))
            .prop_map(|(at, place, to)| Wrong::RenameKey(at, place, to)),
        any::<Index>().prop_map(Wrong::DuplicateLine),
        any::<Index>().prop_map(Wrong::Cut),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Wrong::SwapLines(a, b)),
        (any::<Index>(), any::<char>()).prop_map(|(at, to)| Wrong::ChangeCharacter(at, to)),
    ]
}

/// The ranges of bytes that are numbers.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let part = |c: char| c.is_ascii_digit() || c == '_' || c == '.';
    let mut found = vec![];
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match start {
            None if c.is_ascii_digit() => start = Some(at),
            Some(from) if !part(c) => {
                found.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn apply(text: &str, wrong: &Wrong) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let keyed: Vec<usize> = (0..lines.len()).filter(|&i| key_of(&lines[i]).is_some()).collect();
    match *wrong {
        Wrong::DeleteLine(at) if !lines.is_empty() => {
            lines.remove(at.index(lines.len()));
        }
        Wrong::ChangeNumber(at, to) => {
            let numbers = numbers(text);
            let mut text = text.to_owned();
            if !numbers.is_empty() {
                text.replace_range(numbers[at.index(numbers.len())].clone(), to);
            }
            return text;
        }
        Wrong::ChangeValue(at, to) if !keyed.is_empty() => {
            let at = keyed[at.index(keyed.len())];
            let (key, _) = key_of(&lines[at]).unwrap();
            lines[at] = format!("{key} = {to}");
        }
        Wrong::RenameKey(at, place, to) if !keyed.is_empty() => {
            let at = keyed[at.index(keyed.len())];
            let (key, value) = key_of(&lines[at]).unwrap();
            let mut key: Vec<char> = key.chars().collect();
            let place = place % key.len();
            key[place] = to;
            lines[at] = format!("{} = {value}", key.into_iter().collect::<String>());
        }
        Wrong::DuplicateLine(at) if !keyed.is_empty() => {
            let at = keyed[at.index(keyed.len())];
            lines.insert(at, lines[at].clone());
        }
        Wrong::Cut(at) => {
            let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
            return text[..ends[at.index(ends.len())]].to_owned();
        }
        Wrong::SwapLines(a, b) if !lines.is_empty() => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Wrong::ChangeCharacter(at, to) => {
            let mut chars: Vec<char> = text.chars().collect();
            if !chars.is_empty() {
                let at = at.index(chars.len());
                chars[at] = to;
            }
            return chars.into_iter().collect();
        }
        _ => {}
    }
    lines.join("\n")
}

/// What must hold of any text.
fn read(text: &str) {
    match Plan::parse("mutant", text) {
        Ok(plan) => assert!(!plan.about().study.is_empty()),
        Err(error) => assert_says_where(&error, text),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_plan_with_something_wrong(
        which in any::<Index>(),
        wrongs in prop::collection::vec(wrong(), 1..=3),
    ) {
        let (_, text) = which.get(&BUILT_IN);
        let mut text = (*text).to_owned();
        for wrong in &wrongs {
            if !text.is_empty() {
                text = apply(&text, wrong);
            }
        }
        read(&text);
    }

    #[test]
    fn any_text(text in "\\PC*") {
        read(&text);
    }
}

/// Every line deleted or doubled, every number replaced by each of a few, every
/// value by each of a few, every key misspelt, and the text cut after each line:
/// not a sample.
#[test]
fn every_single_wrong() {
    let mut refused = 0;
    for (name, text) in BUILT_IN {
        let lines: Vec<&str> = text.lines().collect();
        let with = |at: usize, to: Option<&str>| -> String {
            let line = |i: usize| if i == at { to } else { Some(lines[i]) };
            (0..lines.len()).filter_map(line).collect::<Vec<_>>().join("\n")
        };
        let mut check = |text: &str| {
            read(text);
            refused += u32::from(Plan::parse(name, text).is_err());
        };
        for at in 0..lines.len() {
            check(&with(at, None));
            check(&lines[..at].join("\n"));
            let Some((key, value)) = key_of(lines[at]) else { continue };
            for to in VALUES {
                check(&with(at, Some(&format!("{key} = {to}"))));
            }
            // A key that no plan knows is always refused, by its name.
            let misspelt = with(at, Some(&format!("{key}_x = {value}")));
            let said = Plan::parse("mutant", &misspelt).unwrap_err().to_string();
            assert!(said.contains(&format!("{key}_x")) || said.contains(key), "{said}");
            let twice = with(at, Some(&format!("{key} = {value}\n{key} = {value}")));
            let said = Plan::parse("mutant", &twice).unwrap_err().to_string();
            assert!(said.contains("duplicate key") || said.contains(key), "{said}");
        }
        for number in numbers(text) {
            for to in NUMBERS {
                let mut text = text.to_owned();
                text.replace_range(number.clone(), to);
                check(&text);
            }
        }
    }
    println!("{refused} plans refused");
    assert!(refused > 1000);
}

#[test]
fn every_built_in_plan_is_one() {
    let studies = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/papers");
    let mut files: Vec<String> = std::fs::read_dir(studies)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut built_in: Vec<String> = BUILT_IN
        .iter()
        .map(|(name, text)| {
            let plan = Plan::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            // The study's directory in the report is called as its plan's file.
            assert_eq!(&plan.about().study, name);
            assert!(!plan.about().title.is_empty() && !plan.about().purpose.is_empty());
            format!("{name}.toml")
        })
        .collect();
    built_in.sort();
    assert_eq!(built_in, files);
}

/// The error for a built-in plan with the values of some keys replaced.
fn refused(study: &str, replaced: &[(&str, &str)]) -> String {
    let (_, text) = BUILT_IN.iter().find(|(name, _)| *name == study).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for &(key, value) in replaced {
        let mut found = 0;
        for line in &mut lines {
            if key_of(line).is_some_and(|(this, _)| this == key) {
                *line = format!("{key} = {value}");
                found += 1;
            }
        }
        assert!(found > 0, "{study} has no {key}");
    }
    match Plan::parse("mutant", &lines.join("\n")) {
        Ok(_) => format!("{replaced:?} is no error"),
        Err(error) => error.to_string(),
    }
}

#[test]

fn a_wrong_type_within_a_nested_table_names_the_key() {
    for (study, key, value) in [
        ("pbs-tlb", "free_share", "\"x\""),
        ("pbs-tlb", "free_per_requested", "[]"),
        ("pbs-tlb-aged", "operations", "-1"),
        ("pbs-tlb-aged", "workloads", "[\"sorting\"]"),
        ("pbs-tlb-real", "file", "1"),
    ] {
        let said = refused(study, &[(key, value)]);
        assert!(said.contains(key), "{key} = {value}: {said}");
    }
}

#[test]

fn a_share_that_needs_too_much_memory_is_refused() {
    for (study, key) in [
        ("pbs-tlb", "memory.blocks.free_share"),
        ("pbs-freelist", "free_share"),
        ("pbs-widths", "free_share"),
    ] {
        for share in ["1e-9", "1e-300"] {
            let said = refused(study, &[("free_share", share)]);
            assert!(said.contains(&format!("mutant: {key}: ")), "{said}");
        }
    }
}

#[test]

fn what_cannot_be_run_is_refused_when_the_plan_is_read() {
    // 33 orders are one more than can have a list.
    let orders = [("pbs_granularity", "1"), ("pbs_top_order", "32")];
    for (study, replaced, key) in [
        ("pbs-tlb", &orders[..], "machine.pbs"),
        ("pbs-freelist", &[("granularity", "1"), ("top_order", "32")], "pbs"),
        // Memory is never fuller than at its peak.
        ("pbs-freelist", &[("used_shares", "[0.999]")], "aged.used_shares"),
        // Two series of a figure cannot have one name.
        ("pbs-freelist", &[("design", "\"PBS\"")], "pbs"),
    ] {
        let said = refused(study, replaced);
        assert!(said.contains(&format!("plan mutant: {key}")), "{said}");
    }
}
