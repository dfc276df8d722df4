//! Plans of all studies.

use std::sync::LazyLock;

use serde_json::Value as Json;
use swath_arch::testing::Random;
use swath_lab::study::registry;
use toml::Value;

/// The schema of every kind's plans.
static SCHEMAS: LazyLock<Json> = LazyLock::new(registry::schemas);

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
            let head = swath_lab::study::plan::read_head("FUZZ.toml", text).expect("it was read");
            assert_eq!(head.study, study.about().study);
            // What is taken is what the schema of its kind describes.
            let plan: toml::Table = text.parse().expect("it was read");
            let schema = &SCHEMAS[head.kind.as_str()];
            agree(schema, schema, &Value::Table(plan), "plan");
        }
        Err(error) => assert!(error.to_string().contains("FUZZ.toml"), "{error}"),
    }
}

/// Checks the numbers of a plan, and the lengths of its lists, against a schema.
fn agree(root: &Json, schema: &Json, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let named = root.pointer(name.trim_start_matches('#')).expect("a definition");
        return agree(root, named, value, at);
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        // One value or one for each form; or one that may be left out.
        let has_forms = value.get("full").is_some();
        let fits =
            |one: &&Json| one["type"] != "null" && one["properties"]["full"].is_null() != has_forms;
        return forms.iter().find(fits).map_or((), |one| agree(root, one, value, at));
    }
    let within = |number: f64, min: &str, max: &str| {
        let [min, max] = [&schema[min], &schema[max]].map(Json::as_f64);
        min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max)
    };
    match value {
        Value::Integer(number) => {
            assert!(within(*number as f64, "minimum", "maximum"), "{at} = {number}, {schema}");
        }
        Value::Float(number) => {
            assert!(within(*number, "minimum", "maximum"), "{at} = {number}, {schema}");
        }
        Value::Array(list) => {
            assert!(within(list.len() as f64, "minItems", "maxItems"), "{at} = {list:?}, {schema}");
            for (nth, value) in list.iter().enumerate() {
                let item = schema["prefixItems"].get(nth).unwrap_or(&schema["items"]);
                agree(root, item, value, at);
            }
        }
        Value::Table(table) => {
            for (key, value) in table {
                agree(root, &schema["properties"][key], value, key);
            }
        }
        _ => {}
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
        let old = values.swap_remove(nth);
        *old = value(old, random);
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

/// Draws a value that a plan may hold or not, in place of another.
fn value(old: &Value, random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Integer(random.word() as i64),
        1 => Value::Integer(random.below(2) as i64 - 1),
        2 => Value::Integer(10_i64.pow(random.below(10) as u32) + random.below(3) as i64 - 1),
        3 => Value::Integer(i64::MAX),
        // Around what bounds are often: powers of two and of ten.
        4 => Value::Integer((1 << random.below(62)) + random.below(3) as i64 - 1),
        5 => Value::Integer(random.below(256) as i64),
        6 => Value::Float(random.below(256) as f64 / 64.0),
        7 => Value::Float([f64::NAN, f64::INFINITY, -0.0, f64::MAX][random.index(4)]),
        8 => Value::String("x".repeat(random.index(300))),
        9 => {
            // To a list too much is added, for one whose length is fixed.
            let mut list = old.as_array().cloned().unwrap_or_default();
            list.extend((0..random.below(4)).map(|_| Value::Integer(random.below(8) as i64)));
            Value::Array(list)
        }
        10 => Value::Boolean(random.one_in(2)),
        _ => Value::Table(toml::Table::new()),
    }
}
