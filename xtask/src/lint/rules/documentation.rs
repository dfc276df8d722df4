//! The documentation of a public item begins with a sentence that says what the item is or does.
//!
//! "Returns true if it is free", not "Whether it is free": a list of items, which shows the first
//! sentence alone, then reads as sentences.

use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Visibility};

use crate::lint::rust::{attributes, first_line, is_test_only};
use crate::lint::tree::Tree;

/// Words that begin a question or half a sentence.
const FIRST_WORDS: &[&str] = &[
    "What",
    "Whatever",
    "Whether",
    "How",
    "Why",
    "Which",
    "Whichever",
    "Where",
    "Wherever",
    "When",
    "Whenever",
    "Who",
    "Whom",
    "Whose",
];

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.rust_files() {
        let Ok(parsed) = syn::parse_file(&file.text) else {
            breaches.push(format!("{} is not Rust", file.path));
            continue;
        };
        let mut lines = Vec::new();
        note(&parsed.attrs, &mut lines);
        look_at(&parsed.items, &mut lines);
        breaches.extend(lines.into_iter().map(|line| format!("{}: \"{line}\"", file.path)));
    }
    breaches
}

/// Notes the first line of the documentation if it begins with one of [`FIRST_WORDS`].
fn note(attributes: &[Attribute], lines: &mut Vec<String>) {
    let Some(line) = first_line(attributes) else { return };
    let word = line.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    if FIRST_WORDS.contains(&word) {
        lines.push(line);
    }
}

fn look_at(items: &[Item], lines: &mut Vec<String>) {
    for item in items {
        if is_test_only(attributes(item)) {
            continue;
        }
        let counts = match item {
            Item::Const(item) => is_public(&item.vis),
            Item::Enum(item) => is_public(&item.vis),
            Item::Fn(item) => is_public(&item.vis),
            Item::Mod(item) => is_public(&item.vis),
            Item::Static(item) => is_public(&item.vis),
            Item::Struct(item) => is_public(&item.vis),
            Item::Trait(item) => is_public(&item.vis),
            Item::Type(item) => is_public(&item.vis),
            Item::Union(item) => is_public(&item.vis),
            Item::Macro(item) => {
                item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
            }
            // The type decides; its public functions are looked at below.
            Item::Impl(_) => true,
            _ => false,
        };
        if !counts {
            continue;
        }
        note(attributes(item), lines);
        match item {
            Item::Enum(item) => {
                for variant in &item.variants {
                    note(&variant.attrs, lines);
                    variant.fields.iter().for_each(|field| note(&field.attrs, lines));
                }
            }
            Item::Struct(item) => look_at_fields(&item.fields, lines),
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    look_at(items, lines);
                }
            }
            Item::Trait(item) => {
                for item in &item.items {
                    match item {
                        TraitItem::Const(item) => note(&item.attrs, lines),
                        TraitItem::Fn(item) => note(&item.attrs, lines),
                        TraitItem::Type(item) => note(&item.attrs, lines),
                        _ => {}
                    }
                }
            }
            Item::Impl(item) => {
                for item in &item.items {
                    match item {
                        ImplItem::Const(item) if is_public(&item.vis) => note(&item.attrs, lines),
                        ImplItem::Fn(item) if is_public(&item.vis) => note(&item.attrs, lines),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn look_at_fields(fields: &Fields, lines: &mut Vec<String>) {
    for field in fields.iter().filter(|field| is_public(&field.vis)) {
        note(&field.attrs, lines);
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn half_sentences_are_found_on_whatever_is_public() {
        let text = "
            //! What files hold.
            /// Whether it is.
            pub fn a() {}
            /// Why it is private.
            fn b() {}
            /// A thing.
            pub struct C {
                /// How many.
                pub d: u8,
                /// How few.
                e: u8,
            }
            impl C {
                /// Which one.
                pub fn f() {}
                /// Returns it.
                /// Which one does not matter.
                pub fn g() {}
            }
            /// A trait.
            pub trait T {
                /// Where it is.
                fn h();
            }
            /// Kinds.
            pub enum E {
                /// Whatsoever.
                F,
                /// When it is.
                G {
                    /// Who it is.
                    h: u8,
                },
            }
            #[cfg(test)]
            /// What tests see.
            pub mod unit {}
        ";
        assert_eq!(
            breaches(&Tree::of(&[("a.rs", text)])),
            [
                "What files hold.",
                "Whether it is.",
                "How many.",
                "Which one.",
                "Where it is.",
                "When it is.",
                "Who it is.",
            ]
            .map(|line| format!("a.rs: \"{line}\""))
        );
    }
}
