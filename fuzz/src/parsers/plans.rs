//! Plans of all studies.

use swath_arch::testing::Random;
use swath_lab::study::registry;
use toml::Value;

/// Reads a plan: after an even byte the text that follows; after an odd one a built-in plan in
/// which the bytes change single values. It is refused by name, or read.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    if kind & 1 == 1 {
        return read(&changed(&mut Random::given(rest)));
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        read(text);
    }
}

fn read(text: &str) {
    match registry::parse("FUZZ.toml", text) {
        Ok(study) => {
            assert!(!study.about().study.is_empty());
            // The head is the same without the rest.
            let head = swath_lab::study::plan::read_head("FUZZ.toml", text);
            assert_eq!(head.map(|head| head.study).ok(), Some(study.about().study.clone()));
        }
        Err(error) => assert!(error.to_string().contains("FUZZ.toml"), "{error}"),
    }
}

/// Returns a built-in plan with some values changed.
fn changed(random: &mut Random) -> String {
    let plans: Vec<&str> = registry::entries().map(|(_, entry)| entry.plan).collect();
    let mut plan: toml::Table = plans[random.index(plans.len())].parse().expect("a built-in plan");
    for _ in 0..1 + random.below(3) {
        let mut values = Vec::new();
        leaves(&mut plan, &mut values);
        let nth = random.index(values.len());
        *values.swap_remove(nth) = value(random);
    }
    plan.to_string()
}

/// Gathers what stands behind a key: numbers and words, lists, and what stands in them.
fn leaves<'p>(table: &'p mut toml::Table, values: &mut Vec<&'p mut Value>) {
    for (_, value) in table.iter_mut() {
        if value.is_table() {
            value.as_table_mut().into_iter().for_each(|table| leaves(table, values));
        } else if value.as_array().is_some_and(|list| list.len() > 1) {
            values.extend(value.as_array_mut().into_iter().flatten());
        } else {
            values.push(value);
        }
    }
}

/// Draws a value that a plan may hold or not.
fn value(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Integer(random.word() as i64),
        1 => Value::Integer(-1),
        2 => Value::Integer(0),
        3 => Value::Integer(i64::MAX),
        4 => Value::Integer(1 << random.below(63)),
        5 => Value::Integer(random.below(256) as i64),
        6 => Value::Float(random.below(256) as f64 / 64.0),
        7 => Value::Float([f64::NAN, f64::INFINITY, -0.0, f64::MAX][random.index(4)]),
        8 => Value::String("x".repeat(random.index(300))),
        9 => Value::Array(
            (0..random.below(4)).map(|_| Value::Integer(random.below(8) as i64)).collect(),
        ),
        10 => Value::Boolean(random.one_in(2)),
        _ => Value::Table(toml::Table::new()),
    }
}
