//! Plans: the parameters of a study, as TOML.
//!
//! A plan is a type that refuses: its fields are [bounded](crate::study::bounds)
//! numbers, lists and shares, and what no field can say alone its
//! [`check`](Plan::check) says. A key that the study does not know, a value of
//! the wrong type or out of range and an impossible machine are errors that
//! name the key and the line. The same types write the JSON Schema.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::Value;

use crate::study::place::{inside, key_at, line_of};
use crate::study::results::is_study_name;

/// Reasons why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML, or its outermost table lacks a key: TOML's message names them.
    #[error("plan {plan}: {message}")]
    Parse {
        /// The plan's name or file.
        plan: String,
        /// The fault and its place.
        message: String,
    },
    /// A key has a value that no study can run with.
    #[error("plan {plan}: {key}: {why}")]
    Value {
        /// The plan's name or file.
        plan: String,
        /// The key, with its line and tables: `line 7, machine.tlb_entries`.
        key: String,
        /// The reason.
        why: String,
    },
    /// Free lists that no allocator can have.
    #[error("granularity {granularity}, top order {top_order}: {why}")]
    Orders {
        /// The distance between adjacent orders.
        granularity: u8,
        /// The highest order.
        top_order: u8,
        /// The reason.
        why: String,
    },
}

/// The head of every plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The study's name, which is also its directory in the report: lower-case
    /// letters, digits and single hyphens.
    pub study: String,
    /// The kind of study: the code that runs the plan.
    pub kind: String,
    /// The study's title in words.
    pub title: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The purpose of the study, as an opening to its finding.
    pub purpose: String,
}

/// A study's plan.
pub trait Plan: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The head.
    fn about(&self) -> &Head;

    /// The head, to be changed: a seed of the command line.
    fn about_mut(&mut self) -> &mut Head;

    /// Returns the first key whose value does not go with the others, as in
    /// `machine.tlb_ways`, and why.
    ///
    /// # Errors
    /// The key and the reason.
    fn check(&self) -> Result<(), Refused> {
        Ok(())
    }
}

/// A key and the reason why its value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The key with its tables: `machine.tlb_ways`.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// Refuses `key` with the reason that `why` gives unless `holds`.
///
/// # Errors
/// [`Refused`].
pub fn require(holds: bool, key: &str, why: impl FnOnce() -> String) -> Result<(), Refused> {
    if holds { Ok(()) } else { Err(Refused { key: key.to_owned(), why: why() }) }
}

/// Implements [`Plan`] by the field `about`, with a function that checks what no
/// field can say alone, if there is one.
#[macro_export]
macro_rules! plan {
    ($plan:ty $(, $check:path)?) => {
        impl $crate::study::plan::Plan for $plan {
            fn about(&self) -> &$crate::study::plan::Head {
                &self.about
            }

            fn about_mut(&mut self) -> &mut $crate::study::plan::Head {
                &mut self.about
            }

            $(fn check(&self) -> Result<(), $crate::study::plan::Refused> {
                $check(self)
            })?
        }
    };
}

/// Only the head of a plan, to see which kind it is.
#[derive(Deserialize)]
struct HeadOnly {
    about: Head,
}

/// Reads the head of a plan and leaves the rest.
///
/// # Errors
/// [`PlanError::Parse`].
pub fn read_head(name: &str, text: &str) -> Result<Head, PlanError> {
    parse::<HeadOnly>(name, text).map(|head| head.about)
}

/// Reads TOML as a type.
///
/// # Errors
/// [`PlanError::Value`], with key and line, if the type refuses a value.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, PlanError> {
    toml::from_str(text).map_err(|error| match error.span().and_then(|span| key_at(text, span)) {
        Some(key) => {
            let why = error.message().trim_end().replace('\n', " ");
            value_error(name, text, Refused { key, why })
        }
        None => PlanError::Parse {
            plan: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        },
    })
}

/// Reads a plan and checks it.
///
/// # Errors
/// [`PlanError`], which names the key and the line.
pub fn read<P: Plan>(name: &str, text: &str) -> Result<P, PlanError> {
    let plan: P = parse(name, text)?;
    let values = parse(name, text)?;
    let as_read = serde_json::to_value(&plan).unwrap_or_default();
    let checked = check_name(&plan.about().study)
        .and_then(|()| all_was_read(&Value::Table(values), &as_read, ""))
        .and_then(|()| plan.check());
    checked.map_err(|refused| value_error(name, text, refused))?;
    Ok(plan)
}

/// Refuses a list of which not all values are in the plan as it was read: of a pair TOML's reader
/// takes two values, and passes over more.
fn all_was_read(given: &Value, read: &Json, key: &str) -> Result<(), Refused> {
    let inside = |part: &str| inside(key, part);
    match (given, read) {
        (Value::Array(given), Json::Array(read)) => {
            let (count, wanted) = (given.len(), read.len());
            require(count == wanted, key, || format!("{count} values, {wanted} are wanted"))?;
            let mut pairs = given.iter().zip(read).enumerate();
            pairs.try_for_each(|(nth, (given, read))| {
                all_was_read(given, read, &inside(&nth.to_string()))
            })
        }
        (Value::Table(given), Json::Object(read)) => given.iter().try_for_each(|(name, given)| {
            read.get(name).map_or(Ok(()), |read| all_was_read(given, read, &inside(name)))
        }),
        // One value for a full and a quick run is read as that of each.
        (Value::Array(_), Json::Object(forms)) => {
            forms.get("full").map_or(Ok(()), |read| all_was_read(given, read, key))
        }
        _ => Ok(()),
    }
}

/// The error of a key that is refused, with its line in the plan's text.
pub(crate) fn value_error(plan: &str, text: &str, Refused { key, why }: Refused) -> PlanError {
    let key = match line_of(text, &key) {
        Some(line) => format!("line {line}, {key}"),
        None => key,
    };
    PlanError::Value { plan: plan.to_owned(), key, why }
}

/// Refuses a name that cannot be a directory's on every system.
fn check_name(study: &str) -> Result<(), Refused> {
    require(is_study_name(study), "about.study", || {
        format!("{study:?}: only lower-case letters, digits and single hyphens inside")
    })
}
