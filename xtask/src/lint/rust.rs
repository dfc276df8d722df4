//! Rust as tokens and items, with what the tests alone compile told apart.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Expr, Item, Lit, Meta};

/// Returns true if the attributes leave the item to test builds: `#[cfg(test)]` or `#[cfg(all(test, …))]`.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => demands_test(list.tokens.clone()),
        _ => false,
    })
}

fn demands_test(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    match tokens.next() {
        Some(TokenTree::Ident(word)) if word == "test" => tokens.next().is_none(),
        Some(TokenTree::Ident(word)) if word == "all" => match tokens.next() {
            Some(TokenTree::Group(group)) => group
                .stream()
                .into_iter()
                .any(|token| matches!(token, TokenTree::Ident(word) if word == "test")),
            _ => false,
        },
        _ => false,
    }
}

/// Returns the attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the first line of the documentation; `None` without one, or if it is another file's text.
pub(crate) fn first_line(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        match &literal.lit {
            Lit::Str(text) if pair.path.is_ident("doc") => {
                text.value().lines().next().map(|line| line.trim().to_owned())
            }
            _ => None,
        }
    })
}

/// Returns true if the word stands among the tokens, at any depth; texts and comments do not count.
pub(crate) fn has_word(tokens: TokenStream, wanted: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == wanted,
        TokenTree::Group(group) => has_word(group.stream(), wanted),
        _ => false,
    })
}
