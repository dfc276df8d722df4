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

use crate::study::results::is_study_name;

/// Reasons why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan: TOML's message names line, column and key.
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
    toml::from_str::<HeadOnly>(text).map(|head| head.about).map_err(|error| parse(name, &error))
}

fn parse(plan: &str, error: &toml::de::Error) -> PlanError {
    PlanError::Parse { plan: plan.to_owned(), message: error.to_string().trim_end().to_owned() }
}

/// Reads a plan and checks it.
///
/// # Errors
/// [`PlanError`], which names the key and the line.
pub fn read<P: Plan>(name: &str, text: &str) -> Result<P, PlanError> {
    let plan: P = toml::from_str(text).map_err(|error| parse(name, &error))?;
    let checked = check_name(&plan.about().study).and_then(|()| plan.check());
    checked.map_err(|refused| value_error(name, text, refused))?;
    Ok(plan)
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

/// The line of a key, from 1; of the table or list that it would stand in if it does not
/// stand in the text. A part of a key that is a number is a place in a list, from 0.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let mut at = None;
    let mut value: Option<&toml::Spanned<toml::de::DeValue<'_>>> = None;
    for part in key.split('.') {
        let list = value.and_then(|value| value.get_ref().as_array());
        if let Some(list) = list {
            // Without a place the first of them.
            let place = part.parse::<usize>();
            value = list.get(place.clone().unwrap_or(0));
            at = value.map(|value| value.span().start).or(at);
            if place.is_ok() {
                continue;
            }
        }
        let table = match value {
            None => Some(document.get_ref()),
            Some(value) => value.get_ref().as_table(),
        };
        let Some((name, inner)) = table.and_then(|table| table.get_key_value(part)) else { break };
        at = Some(name.span().start);
        value = Some(inner);
    }
    Some(text.get(..at?)?.matches('\n').count() + 1)
}
