//! The crates that a kernel links say `#![no_std]` for every build; `proof.rs` then links them so.

use crate::lint::tree::Tree;

/// The crates that a kernel links.
pub(crate) const LOWER: &[&str] = &[
    "swath-arch",
    "swath-frame",
    "swath-vm",
    "swath-region",
    "swath-heap",
    "swath-pool",
    "swath-hw",
    "swath-example-arceos",
    "swath-example-kernels",
];

/// The line at their libraries' roots.
const NO_STD: &str = "#![no_std]";

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    against(LOWER, tree)
}

fn against(lower: &[&str], tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in &tree.crates {
        let is_lower = lower.contains(&package.name.as_str());
        for root in package.roots.iter().filter(|root| root.is_library) {
            let Some(file) = tree.file(&root.path) else { continue };
            match (is_lower, file.text.lines().any(|line| line == NO_STD)) {
                (true, false) => breaches.push(format!("{} lacks the line {NO_STD}", root.path)),
                (false, true) => breaches.push(format!(
                    "{} has the line {NO_STD}, and no row in the table of lower crates",
                    root.path
                )),
                _ => {}
            }
        }
    }
    breaches
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_line_and_the_table_agree() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! Text.\n\n#![no_std]\n"),
            ("crates/b/src/lib.rs", "//! `#![no_std]`\n#![cfg_attr(not(test), no_std)]\n"),
        ]);
        assert_eq!(against(&["a"], &tree), [""; 0]);
        assert_eq!(
            against(&["b"], &tree),
            [
                "crates/a/src/lib.rs has the line #![no_std], and no row in the table of lower crates",
                "crates/b/src/lib.rs lacks the line #![no_std]"
            ]
        );
    }
}
