//! Keys of a plan with the values that they take.

use toml::{Table, Value};

use crate::study::plan::Refused;
use crate::table::column::{Cell, Type};

/// The most points of a sweep.
pub const POINTS_MAX: u64 = 1_000_000;

/// A key of a plan, and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The key with its tables, `machine.tlb_entries`; a number is a place in a list, from 0.
    pub path: String,
    /// The values, all different.
    pub values: Vec<Value>,
}

/// The fields of a range.
const RANGE_FIELDS: [&str; 4] = ["from", "to", "step", "times"];

/// Returns true for a table that is a range and no part of a key.
pub(crate) fn is_range(table: &Table) -> bool {
    table.contains_key("from") && table.keys().all(|key| RANGE_FIELDS.contains(&key.as_str()))
}

impl Key {
    /// A key with the values that a list or range stands for.
    ///
    /// # Errors
    /// The reason, for a value that is neither, has no values, too many, or one twice.
    pub fn new(path: &str, values: &Value) -> Result<Self, String> {
        let values = match values {
            Value::Array(values) => values.clone(),
            Value::Table(range) if is_range(range) => of_range(range)?,
            _ => return Err("neither a list nor a range { from, to, step or times }".to_owned()),
        };
        if values.is_empty() {
            return Err("no value".to_owned());
        }
        if values.len() as u64 > POINTS_MAX {
            return Err(format!("{} values, of at most {POINTS_MAX}", values.len()));
        }
        // As text: of 10^6 values each is compared with one.
        let mut seen = std::collections::HashSet::new();
        if let Some(nth) = values.iter().position(|value| !seen.insert(value.to_string())) {
            return Err(format!("value {} stands twice", nth + 1));
        }
        Ok(Self { path: path.to_owned(), values })
    }

    /// The type of its column: text if its values have no other in common.
    pub fn column(&self) -> Type {
        let all = |is: fn(&Value) -> bool| self.values.iter().all(is);
        if all(Value::is_bool) {
            Type::Bool
        } else if all(Value::is_integer) {
            Type::Int
        } else if all(|value| value.is_integer() || value.is_float()) {
            Type::Float
        } else {
            Type::Text
        }
    }

    /// A value as one of its column.
    pub(crate) fn cell(&self, nth: usize) -> Cell {
        match (self.column(), &self.values[nth]) {
            (Type::Bool, Value::Boolean(value)) => Cell::Bool(*value),
            (Type::Int | Type::Float, Value::Integer(value)) => Cell::Int(*value),
            (Type::Float, Value::Float(value)) => Cell::Float(*value),
            (_, Value::String(value)) => Cell::Text(value.clone()),
            (_, value) => Cell::Text(value.to_string()),
        }
    }
}

/// The values of a range: both ends are in it if steps lead there.
fn of_range(range: &Table) -> Result<Vec<Value>, String> {
    let (from, to) = (&range["from"], range.get("to").ok_or("a range without `to`")?);
    let (step, times) = (range.get("step"), range.get("times"));
    if step.is_some() && times.is_some() {
        return Err("a range with both `step` and `times`".to_owned());
    }
    let all = [Some(from), Some(to), step, times];
    if all.iter().flatten().all(|value| value.is_integer()) {
        let number = |value: Option<&Value>| value.and_then(Value::as_integer);
        let (from, to) = (number(Some(from)).unwrap_or(0), number(Some(to)).unwrap_or(0));
        return whole_numbers(from, to, number(step), number(times));
    }
    let number = |value: &Value| match value {
        Value::Integer(value) => Ok(*value as f64),
        Value::Float(value) if value.is_finite() => Ok(*value),
        other => Err(format!("{other} is no number to begin, end or step with")),
    };
    let step = step.map(number).transpose()?;
    let times = times.map(number).transpose()?;
    floating(number(from)?, number(to)?, step, times)
}

fn whole_numbers(
    from: i64,
    to: i64,
    step: Option<i64>,
    times: Option<i64>,
) -> Result<Vec<Value>, String> {
    if to < from {
        return Err(format!("from {from} to {to} is no range"));
    }
    if let Some(times) = times {
        if times < 2 || from < 1 {
            return Err("`times` wants at least 2, from 1 on".to_owned());
        }
        let next = |value: &i64| value.checked_mul(times).filter(|value| *value <= to);
        return Ok(std::iter::successors(Some(from), next).map(Value::Integer).collect());
    }
    let step = step.unwrap_or(1);
    if step < 1 {
        return Err("`step` wants at least 1".to_owned());
    }
    check_count((i128::from(to) - i128::from(from)) / i128::from(step) + 1)?;
    let values = (from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(values.map(Value::Integer).collect())
}

fn floating(
    from: f64,
    to: f64,
    step: Option<f64>,
    times: Option<f64>,
) -> Result<Vec<Value>, String> {
    if to < from {
        return Err(format!("from {from} to {to} is no range"));
    }
    // An end that rounding alone keeps away is one of the values.
    const ROUNDING: f64 = 1e-9;
    let (steps, value): (f64, Box<dyn Fn(f64) -> f64>) = match (step, times) {
        (_, Some(times)) if times > 1.0 && from > 0.0 => (
            ((to / from).ln() / times.ln() + ROUNDING).floor(),
            Box::new(move |nth| from * times.powf(nth)),
        ),
        (_, Some(_)) => return Err("`times` wants more than 1, from more than 0 on".to_owned()),
        (Some(step), None) if step > 0.0 => {
            (((to - from) / step + ROUNDING).floor(), Box::new(move |nth| from + nth * step))
        }
        (Some(_), None) => return Err("`step` wants more than 0".to_owned()),
        (None, None) => return Err("a range of fractions wants `step` or `times`".to_owned()),
    };
    let count = if steps < POINTS_MAX as f64 { steps as i128 + 1 } else { i128::MAX };
    check_count(count)?;
    Ok((0..count).map(|nth| Value::Float(value(nth as f64).min(to))).collect())
}

fn check_count(count: i128) -> Result<(), String> {
    if count <= i128::from(POINTS_MAX) {
        return Ok(());
    }
    Err(format!("more values than the {POINTS_MAX} that a sweep may have"))
}

/// Gives a key of a plan a value. Tables that the plan leaves out are made.
///
/// # Errors
/// [`Refused`] if the key leads through a value that is no table, or a place that a list has not.
pub fn set(plan: &mut Table, path: &str, value: &Value) -> Result<(), Refused> {
    let refuse = |why: String| Refused { key: path.to_owned(), why };
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    if first.is_empty() {
        return Err(refuse("a key without a name".to_owned()));
    }
    let mut at = match rest {
        None => {
            plan.insert(first.to_owned(), value.clone());
            return Ok(());
        }
        Some(_) => plan.entry(first).or_insert_with(|| Value::Table(Table::new())),
    };
    for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
        at = match at {
            Value::Table(table) if !part.is_empty() => {
                // What stands at the end is replaced below.
                table.entry(part).or_insert_with(|| Value::Table(Table::new()))
            }
            Value::Array(list) => {
                let count = list.len();
                let place = part.parse::<usize>().ok();
                let found = place.and_then(|place| list.get_mut(place));
                found.ok_or_else(|| refuse(format!("no place {part} in a list of {count}")))?
            }
            _ => return Err(refuse(format!("no {part:?} below a value that is no table"))),
        };
    }
    *at = value.clone();
    Ok(())
}

#[cfg(test)]
mod unit {
    use super::*;

    fn values(text: &str) -> Result<Vec<String>, String> {
        let table: Table = toml::from_str(&format!("key = {text}")).unwrap();
        let key = Key::new("key", &table["key"])?;
        Ok(key.values.iter().map(Value::to_string).collect())
    }

    #[test]
    fn lists_and_ranges_are_values() {
        for (text, expected) in [
            ("[3, 1]", &["3", "1"][..]),
            ("[\"a\", true]", &["\"a\"", "true"]),
            ("{ from = 1, to = 3 }", &["1", "2", "3"]),
            ("{ from = -1, to = 4, step = 2 }", &["-1", "1", "3"]),
            ("{ from = 4, to = 40, times = 2 }", &["4", "8", "16", "32"]),
            ("{ from = 0.1, to = 0.3, step = 0.1 }", &["0.1", "0.2", "0.3"]),
            ("{ from = 1, to = 8, times = 2.0 }", &["1.0", "2.0", "4.0", "8.0"]),
            ("{ from = 5, to = 5 }", &["5"]),
            (
                "{ from = 9223372036854775806, to = 9223372036854775807 }",
                &["9223372036854775806", "9223372036854775807"],
            ),
        ] {
            assert_eq!(values(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_absurd_is_refused() {
        for (text, why) in [
            ("3", "neither a list nor a range"),
            ("[]", "no value"),
            ("[1, 2, 1]", "value 3 stands twice"),
            ("{ from = 1 }", "without `to`"),
            ("{ from = 2, to = 1 }", "is no range"),
            ("{ from = 1, to = 9223372036854775807 }", "more values"),
            ("{ from = -9223372036854775808, to = 9223372036854775807 }", "more values"),
            ("{ from = 1, to = 2, step = 0 }", "at least 1"),
            ("{ from = 1, to = 2, step = 1, times = 2 }", "both"),
            ("{ from = 0, to = 9, times = 2 }", "at least 2"),
            ("{ from = 0.0, to = 1.0, step = 1e-300 }", "more values"),
            ("{ from = 0.0, to = 1.0 }", "wants `step`"),
            ("{ from = 1.0, to = 2.0, times = 1.0 }", "more than 1"),
            ("{ from = 1.0, to = inf, step = 1 }", "no number"),
            ("{ from = nan, to = 2.0, step = 1 }", "no number"),
        ] {
            let error = values(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn keys_are_set_wherever_they_stand() {
        let mut plan: Table = toml::from_str("a = 1\n[b]\nc = [1, { d = 2 }]").unwrap();
        for (path, value) in [("a", 9), ("b.c.0", 8), ("b.c.1.d", 7), ("new.e", 6)] {
            set(&mut plan, path, &Value::Integer(value)).unwrap();
        }
        let expected: Table =
            toml::from_str("a = 9\n[b]\nc = [8, { d = 7 }]\n[new]\ne = 6").unwrap();
        assert_eq!(plan, expected);
        for (path, why) in [
            ("a.b", "no \"b\" below"),
            ("b.c.2", "no place 2 in a list of 2"),
            ("b.c.x", "no place x"),
            ("b..c", "no \"\" below"),
            ("", "without a name"),
        ] {
            let refused = set(&mut plan, path, &Value::Integer(0)).unwrap_err();
            assert!(refused.why.contains(why), "{path}: {}", refused.why);
        }
    }
}
