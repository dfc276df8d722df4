//! Types of plan values that refuse: bounded numbers, shares, ascending lists,
//! and full and quick values of one key.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct Bounded<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Bounded<MIN, MAX> {
    /// The number, if it is within the bounds.
    pub const fn new(value: u64) -> Option<Self> {
        if MIN <= value && value <= MAX { Some(Self(value)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as an index or length.
    ///
    /// # Panics
    /// Never: a bound above `usize` fails to compile.
    pub const fn size(self) -> usize {
        const { assert!(MAX <= usize::MAX as u64) };
        self.0 as usize
    }

    /// The number with 32 bits.
    pub const fn small(self) -> u32 {
        const { assert!(MAX <= u32::MAX as u64) };
        self.0 as u32
    }

    /// The number with 8 bits.
    pub const fn tiny(self) -> u8 {
        const { assert!(MAX <= u8::MAX as u64) };
        self.0 as u8
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(from)?;
        let number = u64::try_from(value).ok().and_then(Self::new);
        number.ok_or_else(|| D::Error::custom(format!("{value} is not between {MIN} and {MAX}")))
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("From_{MIN}_to_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// Number of repeats with other random numbers.
pub type Repeats = Bounded<1, 1000>;

/// A share above 0 and below 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize)]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// The share, if it is above 0 and below 1.
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share < 1.0).then_some(Self(share))
    }

    /// The share.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        let error = || D::Error::custom(format!("{share} is not a share between 0 and 1"));
        Self::new(share).ok_or_else(error)
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 })
    }
}

/// A list of at least one value, each larger than the one before.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub struct Ascending<T>(Vec<T>);

impl<T: PartialOrd> Ascending<T> {
    /// The list, if it is not empty and ascends.
    pub fn new(values: Vec<T>) -> Option<Self> {
        (!values.is_empty() && values.is_sorted_by(|one, two| one < two)).then_some(Self(values))
    }
}

impl<T> Deref for Ascending<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Ascending<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: DeserializeOwned + PartialOrd> Deserialize<'de> for Ascending<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let values = Vec::<T>::deserialize(from)?;
        let empty = values.is_empty();
        Self::new(values).ok_or_else(|| {
            D::Error::custom(if empty { "none given" } else { "each must be larger than the last" })
        })
    }
}

impl<T: JsonSchema> JsonSchema for Ascending<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Ascending_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true })
    }
}

/// A list of at least one value, none of which stands twice.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub struct Distinct<T>(Vec<T>);

impl<T> Deref for Distinct<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Distinct<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: DeserializeOwned + PartialEq> Deserialize<'de> for Distinct<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let values = Vec::<T>::deserialize(from)?;
        if values.is_empty() {
            return Err(D::Error::custom("none given"));
        }
        if let Some(nth) = (1..values.len()).find(|&nth| values[..nth].contains(&values[nth])) {
            return Err(D::Error::custom(format!("value {} stands twice", nth + 1)));
        }
        Ok(Self(values))
    }
}

impl<T: JsonSchema> JsonSchema for Distinct<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Distinct_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true })
    }
}

/// The values of one key in a full and in a quick run: `{ full = 20, quick = 5 }`,
/// or one value for both.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Forms<T> {
    /// In a full run.
    pub full: T,
    /// In a quick run.
    pub quick: T,
}

impl<T> Forms<T> {
    /// The value of this run.
    pub const fn of(&self, quick: bool) -> &T {
        if quick { &self.quick } else { &self.full }
    }
}

impl<T: DeserializeOwned + Clone> Forms<T> {
    /// Apart from what gave the value, of which there are several for each type of value.
    fn read(value: toml::Value) -> Result<Self, toml::de::Error> {
        let (full, quick) = forms(value)?;
        let full = T::deserialize(full)?;
        let quick = quick.map_or_else(|| Ok(full.clone()), T::deserialize)?;
        Ok(Self { full, quick })
    }
}

impl<'de, T: DeserializeOwned + Clone> Deserialize<'de> for Forms<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(toml::Value::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A full run's value, and a quick run's if it has its own.
fn forms(value: toml::Value) -> Result<(toml::Value, Option<toml::Value>), toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Both {
        full: toml::Value,
        quick: toml::Value,
    }
    let named = |table: &toml::Table| table.contains_key("full") || table.contains_key("quick");
    if value.as_table().is_some_and(named) {
        let Both { full, quick } = value.try_into()?;
        return Ok((full, Some(quick)));
    }
    Ok((value, None))
}

impl<T: JsonSchema> JsonSchema for Forms<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Forms_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, {
            "type": "object",
            "properties": { "full": one, "quick": one },
            "required": ["full", "quick"],
            "additionalProperties": false,
        }] })
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Sample {
        repeats: Forms<Repeats>,
        share: Share,
        sizes: Ascending<u64>,
        names: Distinct<String>,
    }

    const GOOD: &str =
        "repeats = { full = 20, quick = 5 }\nshare = 0.5\nsizes = [1, 2]\nnames = [\"a\"]\n";

    #[test]
    fn good_values_are_read() {
        let sample: Sample = toml::from_str(GOOD).unwrap();
        assert_eq!((sample.repeats.full.get(), sample.repeats.quick.get()), (20, 5));
        let one = GOOD.replace("{ full = 20, quick = 5 }", "7");
        let sample: Sample = toml::from_str(&one).unwrap();
        assert_eq!((sample.repeats.of(false).get(), sample.repeats.of(true).get()), (7, 7));
    }

    #[test]
    fn bad_values_are_refused_with_their_line() {
        for (good, bad, line, why) in [
            ("quick = 5", "quick = 0", 1, "0 is not between 1 and 1000"),
            ("full = 20", "full = -1", 1, "-1 is not between 1 and 1000"),
            ("full = 20, ", "", 1, "missing field `full`"),
            ("0.5", "1.0", 2, "1 is not a share between 0 and 1"),
            ("0.5", "nan", 2, "not a share"),
            ("[1, 2]", "[]", 3, "none given"),
            ("[1, 2]", "[2, 2]", 3, "each must be larger than the last"),
            ("[\"a\"]", "[\"a\", \"b\", \"a\"]", 4, "value 3 stands twice"),
        ] {
            let error = toml::from_str::<Sample>(&GOOD.replace(good, bad)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(error.contains(&format!("line {line},")), "{bad}: {error}");
        }
    }
}
