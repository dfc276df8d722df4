//! Words that do not belong: metaphors that only their author understands.

use crate::lint::tree::Tree;

/// Each with what to say instead.
const WORDS: &[(&str, &str)] = &[
    ("breathe", "grow and shrink"),
    ("breathes", "grows and shrinks"),
    ("STRANGERS", "a plain name"),
    ("whosever", "of whichever owner"),
    ("doubt", "validation"),
    ("complain", "report an error"),
    ("complains", "reports an error"),
    ("to be had", "available"),
];

/// This file, which must name them.
const HERE: &str = "xtask/src/lint/rules/words.rs";

/// Files that are not written here.
const FOREIGN: &[&str] = &["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in &tree.files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if file.path == HERE || FOREIGN.contains(&name) {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            for (word, instead) in WORDS.iter().filter(|(word, _)| stands_in(line, word)) {
                let at = format!("{}:{}", file.path, number + 1);
                breaches.push(format!("{at}: not \"{word}\" but \"{instead}\""));
            }
        }
    }
    breaches
}

/// Returns true if the word stands in the line, not as a part of a longer one.
fn stands_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        !is_letter(line[..at].chars().next_back())
            && !is_letter(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_word_is_found_whole() {
        let tree = Tree::of(&[
            ("a.rs", "fn f() {}\n// Heaps that breathe.\n"),
            ("b.md", "doubtless unbreathed\n"),
            (HERE, "breathe"),
        ]);
        assert_eq!(breaches(&tree), ["a.rs:2: not \"breathe\" but \"grow and shrink\""]);
    }
}
