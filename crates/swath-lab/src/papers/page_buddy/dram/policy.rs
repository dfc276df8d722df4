//! Rules that say when a memory serves writes, which other crates add.

use std::sync::{Mutex, PoisonError};

use swath_hw::DrainRule;

static ADDED: Mutex<Vec<DrainRule>> = Mutex::new(Vec::new());

/// A name that a rule has already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is a rule {0:?} for writes already")]
pub struct RuleTaken(pub &'static str);

/// Adds a rule that plans name by `dram.write_rule`, for this process.
///
/// # Errors
/// [`RuleTaken`]; nothing is added.
pub fn add_write_rule(rule: DrainRule) -> Result<(), RuleTaken> {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    if added.contains(&rule) {
        return Err(RuleTaken(rule.name));
    }
    added.push(rule);
    Ok(())
}

/// Returns the rule of this name; or says which there are.
pub(crate) fn write_rule(name: &str) -> Result<DrainRule, String> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let names: Vec<&str> = added.iter().map(|rule| rule.name).collect();
    added.iter().find(|rule| rule.name == name).copied().ok_or_else(|| match names.is_empty() {
        true => format!("no rule {name:?}: no other crate has added one"),
        false => format!("no rule {name:?}; there are {}", names.join(", ")),
    })
}
