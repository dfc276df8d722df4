//! The name of a module says what is inside, and the name of a type has few meanings.

use std::collections::{BTreeMap, BTreeSet};

use crate::lint::tree::Tree;

/// Names that say nothing of what is inside.
const NONDESCRIPT_NAMES: &[&str] = &["utils", "util", "common", "helpers", "misc"];

/// Files of the crates' sources that may declare a type of one name.
const MEANINGS_MAX: usize = 4;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = meanings(tree);
    for file in tree.rust_files() {
        for name in modules(&file.text) {
            if NONDESCRIPT_NAMES.contains(&name) {
                breaches.push(format!("{}: the name of `mod {name}` says nothing", file.path));
            }
        }
        let mut parts = file.path.rsplit('/');
        let name = parts.next().unwrap_or_default();
        let folder = parts.next().unwrap_or_default();
        if name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('_')) {
            breaches.push(format!("{}: the name repeats its folder's", file.path));
        }
    }
    breaches
}

/// The type names that stand for too many different things.
fn meanings(tree: &Tree) -> Vec<String> {
    let mut declared: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree
        .rust_files()
        .filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"))
    {
        for name in types(&file.text) {
            declared.entry(name).or_default().insert(&file.path);
        }
    }
    let many = declared.into_iter().filter(|(_, files)| files.len() > MEANINGS_MAX);
    many.map(|(name, files)| {
        let files: Vec<_> = files.into_iter().collect();
        format!("{} files declare a type `{name}`: {}", files.len(), files.join(", "))
    })
    .collect()
}

/// The types and traits that the text declares; not the associated ones, whose names their trait
/// prescribes.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let first = words.next()?;
        let declares = match first {
            "struct" | "enum" | "union" | "trait" => true,
            "type" => !line.starts_with(' '),
            _ => false,
        };
        let name = words.next().filter(|_| declares)?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

/// The modules that the text declares or holds.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        (words.next() == Some("mod"))
            .then(|| words.next().unwrap_or_default().trim_end_matches([';', '{', '}']))
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn nondescript_names_are_found() {
        let text = "mod utils;\npub(crate) mod common {\n}\nmod commons;\n";
        assert_eq!(
            breaches(&Tree::of(&[("a.rs", text)])),
            [
                "a.rs: the name of `mod utils` says nothing",
                "a.rs: the name of `mod common` says nothing"
            ]
        );
    }

    #[test]
    fn a_type_name_has_few_meanings() {
        let text = "pub(crate) struct Row {\n}\nimpl Rows for Row {\n    type Rows = Row;\n}\n";
        let paths = ["1", "2", "3", "4", "5"].map(|name| format!("crates/{name}/src/a.rs"));
        let files: Vec<_> = paths.iter().map(|path| (path.as_str(), text)).collect();
        assert_eq!(breaches(&Tree::of(&files[..4])), [""; 0]);
        let found = breaches(&Tree::of(&files));
        assert!(
            found.len() == 1 && found[0].starts_with("5 files declare a type `Row`: crates/1/")
        );
    }

    #[test]
    fn a_name_does_not_repeat_its_folder() {
        assert_eq!(
            breaches(&Tree::of(&[("src/bank/bank_list.rs", ""), ("src/bank/banker.rs", "")])),
            ["src/bank/bank_list.rs: the name repeats its folder's"]
        );
    }
}
