//! Names from plans and data files that live as long as the program.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Returns the one copy of a name. Each different name is kept until the program ends, so it is for
/// names of some dozen letters of which there are few: designs, parts, timing parameters.
pub(crate) fn lasting(name: &str) -> &'static str {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get(name).copied().unwrap_or_else(|| {
        let kept: &'static str = String::from(name).leak();
        names.insert(kept);
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let one = lasting("a name of this test");
        assert!(std::ptr::eq(one, lasting(&String::from("a name of this test"))));
        assert_ne!(one, lasting("another name of this test"));
    }
}
