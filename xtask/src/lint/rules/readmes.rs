//! Every crate tells its purpose in a `README.md` of its own.

use crate::lint::tree::Tree;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let paths = tree.crates.iter().map(|package| package.beside_manifest("README.md"));
    paths
        .filter(|path| tree.file(path).is_none_or(|file| file.text.trim().is_empty()))
        .map(|path| format!("{path} is missing"))
        .collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_crate_without_readme_is_named() {
        let tree = Tree::of(&[
            ("crates/a/README.md", "# a\n"),
            ("crates/a/src/lib.rs", ""),
            ("crates/b/src/lib.rs", ""),
        ]);
        assert_eq!(breaches(&tree), ["crates/b/README.md is missing"]);
    }
}
