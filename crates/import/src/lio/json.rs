//! Entries of JSON values as rtslib has them, and the lines where they stand.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::found::{Found, Mutual, Secret};
use crate::{Place, Source, lines};

/// An entry of an object as a list; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An entry of an object as text; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an entry is true, or a number other than 0.
pub(super) fn is_set(value: &Value, key: &str) -> bool {
    match value.get(key) {
        Some(Value::Bool(is_set)) => *is_set,
        Some(Value::Number(number)) => number.as_i64().is_some_and(|number| number > 0),
        Some(Value::String(text)) => lines::is_yes(text),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

/// The same of an entry that restricts: whatever is not a no is a yes, and what is not there is as the kernel has it.
pub(super) fn restricts(value: &Value, key: &str, if_absent: bool) -> bool {
    match value.get(key) {
        None => if_absent,
        Some(Value::Bool(is_set)) => *is_set,
        Some(Value::Number(number)) => number.as_i64() != Some(0),
        Some(Value::String(text)) => !lines::is_no(text),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => true,
    }
}

/// An object in an object; without entries if it is not there.
pub(super) fn object<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

/// Whether all entries of an object are known, and it is an object where there is one.
pub(super) fn is_understood(
    value: &Value,
    keys: &[&str],
    place: &Place,
    subject: &str,
    found: &mut Found,
) -> bool {
    match value {
        Value::Null => true,
        Value::Object(entries) => {
            let unknown = entries.keys().filter(|key| !keys.contains(&key.as_str()));
            unknown.fold(true, |_, key| found.unknown_key(place, subject, key))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            found.unknown_key(place, subject, "a value in place of entries")
        }
    }
}

/// A name and its secret, if both are there.
pub(super) fn account(value: &Value, prefix: &str) -> Option<(String, Secret)> {
    let name = text(value, &format!("{prefix}userid"));
    let secret = text(value, &format!("{prefix}password"));
    let is_there = !name.is_empty() && !secret.is_empty();
    is_there.then(|| (name.to_owned(), Secret::new(secret.to_owned())))
}

pub(super) fn mutual(value: &Value, prefix: &str) -> Option<Mutual> {
    account(value, &format!("{prefix}mutual_")).map(|(name, secret)| Mutual {
        name,
        secret: Some(secret),
    })
}

/// The line of each name in the text, which a JSON value does not know.
pub(super) struct Places<'a> {
    source: &'a Source<'a>,
    lines: BTreeMap<&'a str, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn of(source: &'a Source<'a>) -> Self {
        let mut lines = BTreeMap::new();
        for (number, line) in (1..).zip(source.text.lines()) {
            let mut rest = line;
            while let Some((key, value, after)) = string_entry(rest) {
                if matches!(key, "name" | "wwn" | "node_wwn") {
                    lines.entry(value).or_insert(number);
                }
                rest = after;
            }
        }
        Self { source, lines }
    }

    pub(super) fn of_name(&self, name: &str) -> Place {
        self.source.at(self.lines.get(name).copied().unwrap_or(0))
    }
}

/// The next `"key": "value"` of a line, and what follows it.
fn string_entry(line: &str) -> Option<(&str, &str, &str)> {
    let mut rest = line;
    loop {
        let (_, front) = rest.split_once('"')?;
        let (key, after) = front.split_once('"')?;
        let value = after.trim_start().strip_prefix(':');
        let value = value.and_then(|value| value.trim_start().strip_prefix('"'));
        match value.and_then(|value| value.split_once('"')) {
            Some((value, after)) => return Some((key, value, after)),
            None => rest = after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_on_their_lines() {
        let text = "{\n \"x\": 1, \"name\": \"a\",\n \"wwn\": \"b\", \"name\": \"a\"}";
        let source = Source { name: "f", text };
        let places = Places::of(&source);
        assert_eq!(places.of_name("a").line, 2);
        assert_eq!(places.of_name("b").line, 3);
        assert_eq!(places.of_name("c").line, 0);
    }
}
