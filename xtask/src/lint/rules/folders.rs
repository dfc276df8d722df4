//! A folder of sources can be surveyed: it holds at most [`FILES_MAX`] files, each below [`LINES_MAX`] lines,
//! and its `mod.rs` gives the idea and declares.

use std::collections::BTreeMap;

use syn::Item;

use crate::lint::rust::{first_line, is_test_only};
use crate::lint::tree::Tree;

/// Most files of Rust in a folder below a crate's `src`.
const FILES_MAX: usize = 20;
/// Lines of a file that wants to be two.
const LINES_MAX: usize = 700;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in tree.rust_files() {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        if !format!("{folder}/").contains("/src/") {
            continue;
        }
        *folders.entry(folder).or_default() += 1;
        if name == "mod.rs" {
            breaches.extend(look_at_mod(&file.path, &file.text));
        }
    }
    for (folder, files) in folders {
        if files > FILES_MAX {
            breaches.push(format!("{folder} holds {files} files, more than {FILES_MAX}"));
        }
    }
    breaches
}

/// Returns a line for each file that is long: to be told, no breach.
pub(crate) fn warnings(tree: &Tree) -> Vec<String> {
    let mut warnings = Vec::new();
    for file in tree.rust_files() {
        let lines = file.text.lines().count();
        if lines >= LINES_MAX {
            warnings.push(format!("{} has {lines} lines (below {LINES_MAX} is wanted)", file.path));
        }
    }
    warnings
}

fn look_at_mod(path: &str, text: &str) -> Vec<String> {
    let Ok(parsed) = syn::parse_file(text) else { return vec![format!("{path} is not Rust")] };
    let mut breaches = Vec::new();
    match first_line(&parsed.attrs) {
        None => breaches.push(format!("{path} does not begin with the folder's idea (`//! …`)")),
        Some(line) if line.starts_with("TODO") => {
            breaches.push(format!("{path} still begins with TODO"));
        }
        Some(_) => {}
    }
    for item in &parsed.items {
        let declares = match item {
            Item::Mod(module) => module.content.is_none() || is_test_only(&module.attrs),
            Item::Use(_) | Item::ExternCrate(_) => true,
            _ => false,
        };
        if !declares {
            breaches.push(format!("{path} holds more than declarations and re-exports"));
            break;
        }
    }
    breaches
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_folder_of_too_many_files_is_named() {
        let paths: Vec<String> =
            (0..FILES_MAX).map(|i| format!("crates/a/src/b/f{i}.rs")).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        files.push(("crates/a/src/lib.rs", ""));
        assert_eq!(breaches(&Tree::of(&files)), [""; 0]);
        files.push(("crates/a/src/b/one_more.rs", ""));
        assert_eq!(breaches(&Tree::of(&files)), ["crates/a/src/b holds 21 files, more than 20"]);
    }

    #[test]
    fn a_mod_rs_gives_the_idea_and_declares() {
        let path = "crates/a/src/b/mod.rs";
        let good = "//! The idea.\n\nmod c;\npub use c::C;\n#[cfg(test)]\nmod unit {}\n";
        for (text, expected) in [
            (good, None),
            ("mod c;\n", Some("does not begin with the folder's idea (`//! …`)")),
            ("//! TODO\n\nmod c;\n", Some("still begins with TODO")),
            ("//! It.\n\nfn f() {}\n", Some("holds more than declarations and re-exports")),
        ] {
            let expected: Vec<String> =
                expected.iter().map(|rest| format!("{path} {rest}")).collect();
            assert_eq!(breaches(&Tree::of(&[(path, text)])), expected, "{text}");
        }
    }

    #[test]
    fn long_files_are_told() {
        let tree = Tree::of(&[("b.rs", &"\n".repeat(LINES_MAX))]);
        assert_eq!(warnings(&tree), ["b.rs has 700 lines (below 700 is wanted)"]);
    }
}
