//! The name of a module says what is inside.

use crate::lint::tree::Tree;

/// Names that say nothing of what is inside.
const NONDESCRIPT_NAMES: &[&str] = &["utils", "util", "common", "helpers", "misc"];

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
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
    fn a_name_does_not_repeat_its_folder() {
        assert_eq!(
            breaches(&Tree::of(&[("src/bank/bank_list.rs", ""), ("src/bank/banker.rs", "")])),
            ["src/bank/bank_list.rs: the name repeats its folder's"]
        );
    }
}
