//! Places of keys in a plan's text.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the key that stands inside another as TOML writes it: with quotes, unless its name is bare.
pub(crate) fn inside(key: &str, name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = match !name.is_empty() && name.chars().all(is_bare) {
        true => Cow::Borrowed(name),
        // JSON's escapes are TOML's.
        false => Cow::Owned(serde_json::Value::from(name).to_string()),
    };
    if key.is_empty() { name.into_owned() } else { format!("{key}.{name}") }
}

/// The names of which a key is made; of one that is none of TOML's, what stands between its dots.
fn names(key: &str) -> Vec<String> {
    let text = format!("{key} = 0");
    let Ok(document) = DeTable::parse(&text) else {
        return key.split('.').map(str::to_owned).collect();
    };
    let mut names = Vec::new();
    let mut table = Some(document.get_ref());
    while let Some((name, value)) = table.and_then(|table| table.iter().next()) {
        names.push(name.get_ref().to_string());
        table = value.get_ref().as_table();
    }
    names
}

/// The line of a key, from 1; of the table or list that it would stand in if it does not
/// stand in the text. A part of a key that is a number is a place in a list, from 0.
pub(crate) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut at = None;
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for part in names(key) {
        let part = part.as_str();
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
        let key = inside(before, name.get_ref());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_whatever_their_names_are() {
        let text = "[sizes]\n\"a.b\" = [1, { \"c\\\"d\" = 2 }]\nplain = 3\n\"\" = 4\nb = 5\n";
        for (key, line) in [
            ("sizes", 1),
            ("sizes.\"a.b\"", 2),
            ("sizes.\"a.b\".1.\"c\\\"d\"", 2),
            ("sizes.plain", 3),
            ("sizes.\"\"", 4),
            // What is not there stands where it would.
            ("sizes.a.b", 1),
            ("sizes.plain and more", 1),
        ] {
            assert_eq!(line_of(text, key), Some(line), "{key}");
        }
        for (at, key) in [("3", "sizes.plain"), ("4", "sizes.\"\""), ("5", "sizes.b")] {
            let at = text.find(at).unwrap();
            assert_eq!(key_at(text, at..at + 1).as_deref(), Some(key));
        }
        let dotted = text.find("[1").unwrap();
        assert_eq!(key_at(text, dotted..dotted + 1).as_deref(), Some("sizes.\"a.b\""));
        assert_eq!(inside("sizes", "a.b"), "sizes.\"a.b\"");
        assert_eq!((inside("", "a-b_1"), inside("", "")), ("a-b_1".into(), "\"\"".into()));
        assert_eq!(line_of(text, "other"), None);
    }
}
