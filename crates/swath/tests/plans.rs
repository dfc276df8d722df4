//! Absurd plans: every key of every plan changed within its bounds and beyond. A plan is
//! refused with its key, or checked, or runs within the memory that was estimated for it.
//!
//! The quick form is part of the suite. The long one runs so many plans, for so many seconds
//! each: `SWATH_PLANS=335 SWATH_PLAN_SECONDS=60 cargo test --release -p swath --test suite
//! plans -- --nocapture`.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use swath_arch::testing::Random;
use swath_lab::source::real::RealInput;
use swath_lab::study::needs::Limits;
use swath_lab::study::plan::PlanError;
use swath_lab::study::registry;
use swath_lab::study::run::{Run, Shared, Unwatched};
use toml::Value;

/// The memory that the plans of this test may take.
const LIMITS: Limits = Limits { memory_bytes: 1 << 30, address_bytes: 3 << 30 };

/// The places of all values below one, as keys and places in lists.
fn places(value: &Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    found.push(at.clone());
    let inner: Vec<(String, &Value)> = match value {
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(nth, value)| (nth.to_string(), value)).collect()
        }
        _ => return,
    };
    for (key, value) in inner {
        at.push(key);
        places(value, at, found);
        at.pop();
    }
}

fn get<'v>(value: &'v mut Value, at: &[String]) -> &'v mut Value {
    at.iter().fold(value, |value, key| match value {
        Value::Table(table) => table.get_mut(key).unwrap(),
        Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        _ => unreachable!("a place is in a table or list"),
    })
}

/// Another value: near the old one, at the ends of its type, or of another type.
fn change(value: &Value, random: &mut Random) -> Value {
    let pick = random.below(24);
    match value {
        Value::Integer(number) if pick < 22 => {
            let bound = 1_i64 << random.below(41);
            Value::Integer(match pick {
                0 => 0,
                1 => -1,
                2 => i64::MAX,
                3 => i64::MIN,
                4 => bound,
                5 => bound - 1,
                6 => bound + 1,
                7 => number.saturating_mul(2),
                8 => number / 2,
                9 => number.saturating_mul(1000),
                10 => 1,
                11 => number.saturating_add(1),
                12 => number.saturating_mul(16),
                13 => number.saturating_sub(1),
                14 | 15 => number / 4,
                16 | 17 => number.saturating_mul(4),
                18 => number / 3,
                _ => number.saturating_mul(3) / 2,
            })
        }
        Value::Float(number) if pick < 22 => Value::Float(match pick {
            0 => 0.0,
            1 => -1.0,
            2 => f64::MAX,
            3 => f64::NAN,
            4 => f64::INFINITY,
            5 => 0.001,
            6 => 1000.0,
            7 => f64::MIN_POSITIVE,
            8 => number / 10.0,
            9 => number * 10.0,
            10 => 0.999_999,
            _ => number * 0.9,
        }),
        Value::Boolean(is) if pick < 22 => Value::Boolean(!is),
        Value::Array(list) if pick < 22 && !list.is_empty() => {
            let mut list = list.clone();
            let nth = random.index(list.len());
            match pick {
                0..14 => list.truncate(nth.max(1)),
                14 => list.clear(),
                15..18 => list.push(list[nth].clone()),
                _ => list.reverse(),
            }
            Value::Array(list)
        }
        _ => match pick % 5 {
            0 => Value::String(String::new()),
            1 => Value::String("../x".to_owned()),
            2 => Value::Integer(3),
            3 => Value::Array(Vec::new()),
            _ => Value::Table(toml::Table::new()),
        },
    }
}

/// A plan with one value changed, or two, and their keys.
fn mutant(plan: &str, random: &mut Random) -> (String, Vec<String>) {
    let mut value = Value::Table(plan.parse().unwrap());
    let mut changed = Vec::new();
    for _ in 0..=random.below(3) / 2 {
        let mut found = Vec::new();
        places(&value, &mut Vec::new(), &mut found);
        // The kind stays, or all would end there.
        found.retain(|at| !at.is_empty() && at.join(".") != "about.kind");
        let at = &found[random.index(found.len())];
        let old = get(&mut value, at);
        *old = change(old, random);
        changed.push(at.join("."));
    }
    (toml::to_string(&value).unwrap(), changed)
}

/// What becomes of a plan before it runs.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// With the key and its line.
    Refused {
        key: String,
        why: String,
    },
    Runs {
        address_bytes: u64,
    },
}

fn outcome(text: &str, quick: bool) -> Outcome {
    let refused = |error| match error {
        PlanError::Value { key, why, .. } => Outcome::Refused { key, why },
        error => panic!("no key is named: {error}\n{text}"),
    };
    let plan = match registry::parse("mutant", text) {
        Ok(plan) => plan,
        Err(error) => return refused(error),
    };
    let real = RealInput::default();
    let run =
        Run { quick, real: &real, watch: &Unwatched, journal: None, shared: &Shared::default() };
    // A reader is told what cannot be compared, whatever the plan.
    let _ = plan.statements(&run);
    match plan.threads_within(&run, 1, LIMITS) {
        Ok(_) => Outcome::Runs { address_bytes: plan.needs(&run).address_bytes(1) },
        Err(error) => refused(error),
    }
}

/// Checks that a refusal names a key of the text, or one that a table of the text lacks, with the line on
/// which the last part of it stands that does stand in the text; returns the key.
fn named<'k>(key: &'k str, text: &str) -> &'k str {
    let (line, key) = key.split_once(", ").unwrap_or_else(|| panic!("{key}: no line\n{text}"));
    let line: usize = line.strip_prefix("line ").unwrap().parse().unwrap();
    let line = text.lines().nth(line - 1).unwrap_or_else(|| panic!("{key}: line {line}\n{text}"));
    let mut value = &Value::Table(text.parse().unwrap());
    let mut last = None;
    for part in key.split('.') {
        let inner = match value {
            Value::Table(table) => table.get(part).inspect(|_| last = Some(part)),
            Value::Array(list) => part.parse::<usize>().ok().and_then(|nth| list.get(nth)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        value = inner;
    }
    let last = last.unwrap_or_else(|| panic!("the plan has no {key}\n{text}"));
    let names = line.split(['[', ']', '.', '=', ' ']);
    assert!(names.into_iter().any(|name| name == last), "{key} is not in {line:?}\n{text}");
    key
}

#[test]
fn a_refusal_names_the_key_and_its_line() {
    let seed = std::env::var("SWATH_SEED").map_or(6, |text| text.parse().unwrap());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut refused, mut too_large, mut runs) = (0, 0, 0);
    // Refusals of plans with one value changed, and those that name it or what it is in.
    let (mut of_one, mut the_one) = (0, 0);
    for (_, entry) in registry::entries() {
        for _ in 0..40 {
            let (text, changed) = mutant(entry.plan, &mut random);
            for quick in [true, false] {
                match outcome(&text, quick) {
                    Outcome::Runs { .. } => runs += 1,
                    Outcome::Refused { key, why } => {
                        let key = named(&key, &text);
                        too_large += u32::from(why.contains("MiB"));
                        refused += 1;
                        let [one] = &changed[..] else { continue };
                        let is_within = |inner: &str, outer: &str| {
                            let rest = inner.strip_prefix(outer);
                            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                        };
                        of_one += 1;
                        the_one += u32::from(is_within(key, one) || is_within(one, key));
                    }
                }
            }
        }
    }
    println!(
        "{refused} refused, {too_large} of them for their memory; {runs} run; of {of_one} with one value \
         changed {the_one} name it or what it is in"
    );
    assert!(refused > 500 && too_large > 10 && runs > 300);
    // The rest are at odds with another key, which is named.
    assert!(4 * the_one > 3 * of_one);
}

/// Runs a plan with no more addresses than were estimated for it; the reason if that was no
/// good end.
fn run_within(room: &Path, address_bytes: u64, seconds: u64) -> Result<bool, String> {
    // A shell sets the limit, which the program and its children inherit.
    let limit = format!("ulimit -v {} && exec \"$0\" \"$@\"", address_bytes >> 10);
    let mut command = Command::new("sh");
    command.args(["-c", &limit, env!("CARGO_BIN_EXE_swath")]);
    command.args(["study", "--quick", "--jobs", "1", "--memory-limit", "1GiB", "--fresh"]);
    command.args(["--plan", "mutant.toml"]).current_dir(room);
    let said = fs::File::create(room.join("said")).unwrap();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        if let Some(status) = child.try_wait().unwrap() {
            let said = fs::read_to_string(room.join("said")).unwrap();
            // Done, failed in words, or refused in words.
            let good = matches!(status.code(), Some(0..=2)) && !said.contains("panicked");
            return if good { Ok(true) } else { Err(format!("{status}: {said}")) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    Ok(false)
}

#[test]
fn a_plan_that_is_not_refused_runs_within_its_memory() {
    let wanted =
        |name: &str, quick: u64| std::env::var(name).map_or(quick, |text| text.parse().unwrap());
    let (plans, seconds) = (wanted("SWATH_PLANS", 56), wanted("SWATH_PLAN_SECONDS", 1));
    let seed = wanted("SWATH_SEED", 3);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let entries: Vec<_> = registry::entries().collect();
    let (mut ended, mut cut) = (0, 0);
    let mut refused = 0;
    for nth in 0..plans {
        let (_, entry) = entries[usize::try_from(nth).unwrap() % entries.len()];
        let (text, _) = mutant(entry.plan, &mut random);
        let address_bytes = match outcome(&text, true) {
            Outcome::Runs { address_bytes } => address_bytes,
            Outcome::Refused { key, .. } => {
                named(&key, &text);
                refused += 1;
                continue;
            }
        };
        let room = tempfile::tempdir().unwrap();
        fs::write(room.path().join("mutant.toml"), &text).unwrap();
        match run_within(room.path(), address_bytes, seconds) {
            Ok(true) => ended += 1,
            Ok(false) => cut += 1,
            Err(why) => panic!("plan {nth} of seed {seed}, {address_bytes} bytes: {why}\n{text}"),
        }
    }
    println!("{plans} plans: {refused} refused, {ended} ended, {cut} stopped after {seconds} s");
}
