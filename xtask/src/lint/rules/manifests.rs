//! The manifest of every published package has what a registry and its readers want.

use crate::lint::tree::{Crate, Tree};

/// Most keywords, and most categories, that the registry takes.
const TERMS_MAX: usize = 5;
/// Most letters of a keyword.
const KEYWORD_LEN_MAX: usize = 20;

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in tree.crates.iter().filter(|package| package.is_public) {
        breaches.extend(look_at(package));
    }
    for edge in &tree.edges {
        let Some(from) = tree.crates.iter().find(|package| package.name == edge.from) else {
            continue;
        };
        // Without a version there is nothing to depend on in a registry; with one, the tests'
        // dependency would have to be published first, though it may depend on this very crate.
        if from.is_public && !edge.tests_only && !edge.has_version {
            breaches.push(format!("{} depends on {} without a version", edge.from, edge.to));
        }
        if from.is_public && edge.tests_only && edge.has_version && sees(tree, &edge.to, &edge.from)
        {
            breaches.push(format!(
                "{}'s tests depend on {}, which depends on it: name its path only, no version",
                edge.from, edge.to
            ));
        }
    }
    breaches
}

fn look_at(package: &Crate) -> Vec<String> {
    let name = &package.name;
    let mut breaches = Vec::new();
    for (key, value) in [
        ("description", &package.description),
        ("license", &package.licence),
        ("repository", &package.repository),
        ("readme", &package.readme),
        ("rust-version", &package.rust_version),
    ] {
        if value.as_ref().is_none_or(String::is_empty) {
            breaches.push(format!("{name}'s manifest has no `{key}`"));
        }
    }
    for (key, terms) in [("keywords", &package.keywords), ("categories", &package.categories)] {
        if terms.is_empty() || terms.len() > TERMS_MAX {
            breaches.push(format!("{name}'s manifest wants 1 to {TERMS_MAX} `{key}`"));
        }
    }
    for keyword in &package.keywords {
        if keyword.len() > KEYWORD_LEN_MAX || keyword.contains(char::is_whitespace) {
            breaches.push(format!("{name}: \"{keyword}\" is no keyword"));
        }
    }
    breaches
}

/// Returns true if `from` is `to` or depends on it, its tests left out.
fn sees(tree: &Tree, from: &str, to: &str) -> bool {
    // The rule on layers leaves no circle to run in.
    from == to
        || tree
            .edges
            .iter()
            .filter(|edge| edge.from == from && !edge.tests_only)
            .any(|edge| sees(tree, &edge.to, to))
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::lint::tree::Edge;

    fn package(name: &str) -> Crate {
        let text = || Some("text".to_owned());
        Crate {
            name: name.to_owned(),
            is_public: true,
            description: text(),
            licence: text(),
            repository: text(),
            readme: text(),
            rust_version: text(),
            keywords: vec!["allocator".to_owned()],
            categories: vec!["no-std".to_owned()],
            ..Crate::default()
        }
    }

    #[test]
    fn missing_keys_are_named_but_only_of_public_crates() {
        let private = Crate { is_public: false, readme: None, ..package("b") };
        let tree = Tree { crates: vec![package("a"), private], ..Tree::default() };
        assert_eq!(breaches(&tree), [""; 0]);
        let keywords = vec!["two words".to_owned(); 6];
        let crates = vec![Crate { readme: None, keywords, ..package("a") }];
        let found = breaches(&Tree { crates, ..Tree::default() });
        assert_eq!(
            found[..3],
            [
                "a's manifest has no `readme`",
                "a's manifest wants 1 to 5 `keywords`",
                "a: \"two words\" is no keyword"
            ]
        );
    }

    #[test]
    fn dependencies_can_be_published_in_some_order() {
        let edge = |from: &str, to: &str, tests_only, has_version| Edge {
            from: from.into(),
            to: to.into(),
            tests_only,
            has_version,
        };
        let crates = || vec![package("a"), package("b")];
        let edges = vec![edge("b", "a", false, true), edge("a", "b", true, false)];
        assert_eq!(breaches(&Tree { crates: crates(), edges, ..Tree::default() }), [""; 0]);
        let edges = vec![edge("b", "a", false, false), edge("a", "b", true, true)];
        assert_eq!(
            breaches(&Tree { crates: crates(), edges, ..Tree::default() }),
            [
                "b depends on a without a version",
                "a's tests depend on b, which depends on it: name its path only, no version"
            ]
        );
    }
}
