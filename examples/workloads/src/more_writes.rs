//! A memory that serves whichever waits more, reads or writes.

use swath_hw::DrainRule;
use swath_lab::papers::page_buddy::dram::{RuleTaken, add_write_rule};

/// Adds it; a plan names it by `dram.write_rule = "more-writes"`.
///
/// # Errors
/// [`RuleTaken`].
pub fn add() -> Result<(), RuleTaken> {
    add_write_rule(DrainRule { name: "more-writes", drains: |now| now.writes > now.reads })
}
