//! The tables name the crates that there are: no crate without a row, no row without a crate.

use crate::lint::rules::{layers, no_std};
use crate::lint::tree::Tree;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let layers: Vec<&str> = layers::TABLE.iter().map(|(name, _)| *name).collect();
    let mut breaches = stale("the table of layers", &layers, tree);
    breaches.extend(stale("the table of lower crates", no_std::LOWER, tree));
    for package in &tree.crates {
        if !layers.contains(&package.name.as_str()) {
            breaches.push(format!("{} has no row in the table of layers", package.name));
        }
    }
    breaches
}

/// The rows of a table that name no crate.
fn stale(table: &str, rows: &[&str], tree: &Tree) -> Vec<String> {
    rows.iter()
        .filter(|row| tree.crates.iter().all(|package| package.name != **row))
        .map(|row| format!("{table} names {row}, which does not exist"))
        .collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn crates_and_rows_belong_together() {
        let tree = Tree::of(&[("crates/swath-new/src/lib.rs", "")]);
        assert_eq!(
            stale("it", &["swath-new", "swath-py"], &tree),
            ["it names swath-py, which does not exist"]
        );
        let found = breaches(&tree);
        assert!(found.contains(&"swath-new has no row in the table of layers".to_owned()));
        assert!(
            found.contains(&"the table of layers names xtask, which does not exist".to_owned())
        );
    }
}
