//! Places of keys in a plan's text.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line of a key, from 1; of the table or list that it would stand in if it does not
/// stand in the text. A part of a key that is a number is a place in a list, from 0.
pub(crate) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut at = None;
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for part in key.split('.') {
        let list = value.and_then(|value| value.get_ref().as_array());
        if let Some(list) = list {
            // Without a place the first of them.
            let place = part.parse::<usize>();
            value = list.get(place.clone().unwrap_or(0));
            at = value.map(|value| value.span().start).or(at);
            if place.is_ok() {
                continue;
            }
        }
        let table = match value {
            None => Some(document.get_ref()),
            Some(value) => value.get_ref().as_table(),
        };
        let Some((name, inner)) = table.and_then(|table| table.get_key_value(part)) else { break };
        at = Some(name.span().start);
        value = Some(inner);
    }
    Some(text.get(..at?)?.matches('\n').count() + 1)
}

/// The key that stands, or whose value stands, where a fault was found: the innermost of several.
/// `None` if the fault is the whole text's, or the text is not TOML.
pub(crate) fn key_at(text: &str, fault: Range<usize>) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let mut innermost = None;
    search(document.get_ref(), "", &mut |key, span| {
        let length = innermost.as_ref().map_or(usize::MAX, |(length, _)| *length);
        if span.start <= fault.start && fault.end <= span.end && span.len() <= length {
            innermost = Some((span.len(), key.to_owned()));
        }
    });
    innermost.map(|(_, key)| key)
}

/// Visits the spans of all keys and values of a table, outer ones first.
fn search(table: &DeTable<'_>, before: &str, visit: &mut impl FnMut(&str, Range<usize>)) {
    for (name, value) in table {
        let key = if before.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{before}.{}", name.get_ref())
        };
        visit(&key, name.span());
        search_value(value, &key, visit);
    }
}

fn search_value(
    value: &Spanned<DeValue<'_>>,
    key: &str,
    visit: &mut impl FnMut(&str, Range<usize>),
) {
    visit(key, value.span());
    match value.get_ref() {
        DeValue::Table(table) => search(table, key, visit),
        DeValue::Array(list) => {
            for (nth, value) in list.iter().enumerate() {
                search_value(value, &format!("{key}.{nth}"), visit);
            }
        }
        _ => {}
    }
}
