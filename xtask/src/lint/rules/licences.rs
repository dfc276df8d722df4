//! Every package that is published carries both licences, the same as at the workspace's root.

use crate::lint::tree::Tree;

/// The files, at the root and beside each manifest (symbolic links there; a package holds the text).
const FILES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for name in FILES {
        let Some(licence) = tree.file(name) else {
            breaches.push(format!("{name} is missing"));
            continue;
        };
        for package in tree.crates.iter().filter(|package| package.is_public) {
            let path = package.beside_manifest(name);
            match tree.file(&path) {
                None => breaches.push(format!("{path} is missing")),
                Some(file) if file.text != licence.text => {
                    breaches.push(format!("{path} is not the text of {name}"));
                }
                Some(_) => {}
            }
        }
    }
    breaches
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_package_without_its_licences_is_named() {
        let tree = Tree::of(&[
            ("LICENSE-APACHE", "Apache"),
            ("LICENSE-MIT", "MIT"),
            ("crates/a/LICENSE-APACHE", "Apache"),
            ("crates/a/LICENSE-MIT", "MIT"),
            ("crates/a/src/lib.rs", ""),
            ("crates/b/LICENSE-APACHE", "another"),
            ("crates/b/src/lib.rs", ""),
        ]);
        assert_eq!(
            breaches(&tree),
            [
                "crates/b/LICENSE-APACHE is not the text of LICENSE-APACHE",
                "crates/b/LICENSE-MIT is missing"
            ]
        );
    }
}
