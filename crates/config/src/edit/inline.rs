//! Values within brackets and braces: comments and line breaks around them stay where they were.

use toml_edit::{Array, InlineTable, RawString, Value};

/// What new entries of a list that has one on each line are indented by, if it has none yet.
pub(super) const INDENT: &str = "    ";

/// A list of values: one on each line, unless there is at most one.
pub(super) fn array_of(values: impl IntoIterator<Item = Value>) -> Array {
    let mut array: Array = values.into_iter().collect();
    if array.len() > 1 {
        for value in array.iter_mut() {
            value.decor_mut().set_prefix(format!("\n{INDENT}"));
        }
        array.set_trailing("\n");
        array.set_trailing_comma(true);
    }
    array
}

/// What stands before the entry at this position; behind the last one, what stands before the
/// bracket.
pub(super) fn gap(array: &Array, at: usize) -> String {
    let raw = match array.get(at) {
        Some(value) => value.decor().prefix(),
        None => Some(array.trailing()),
    };
    let default = if at == 0 || at >= array.len() {
        ""
    } else {
        " "
    };
    raw.map_or(default, |raw| raw.as_str().unwrap_or(default))
        .to_owned()
}

pub(super) fn set_gap(array: &mut Array, at: usize, gap: String) {
    match array.get_mut(at) {
        Some(value) => value.decor_mut().set_prefix(gap),
        None => array.set_trailing(gap),
    }
}

/// Splits a gap into what belongs to the entry before it, the rest of its line, and what comes
/// after.
fn split(gap: &str) -> (&str, &str) {
    gap.find('\n').map_or(("", gap), |end| gap.split_at(end))
}

/// The end of the list begins behind its last entry, whether or not a comma stands there.
fn settle_end(array: &mut Array) {
    let Some(last) = array.len().checked_sub(1) else {
        return;
    };
    if array.trailing_comma() {
        return;
    }
    let Some(value) = array.get_mut(last) else {
        return;
    };
    let suffix = value.decor().suffix().and_then(RawString::as_str);
    let end = suffix.unwrap_or("").to_owned();
    value.decor_mut().set_suffix("");
    array.set_trailing(end);
}

pub(super) fn insert_inline(array: &mut Array, at: usize, mut value: Value) {
    settle_end(array);
    let here = gap(array, at);
    let model = gap(array, at.min(array.len().saturating_sub(1)));
    let (line_end, after) = split(&here);
    let own = if array.is_empty() && here.contains('\n') {
        let indent = here.rsplit('\n').next().unwrap_or("");
        format!("\n{indent}{INDENT}")
    } else if let Some((_, indent)) = model.rsplit_once('\n') {
        format!("\n{indent}")
    } else if line_end.contains('#') {
        format!("\n{INDENT}")
    } else if at == 0 {
        model
    } else {
        " ".to_owned()
    };
    let after = match (after, at == array.len()) {
        ("", false) => " ".to_owned(),
        (after, _) => after.to_owned(),
    };
    value.decor_mut().set_prefix(format!("{line_end}{own}"));
    value.decor_mut().set_suffix("");
    set_gap(array, at, after);
    array.insert_formatted(at, value);
}

pub(super) fn remove_inline(array: &mut Array, at: usize) {
    settle_end(array);
    let (before, behind) = (gap(array, at), gap(array, at + 1));
    let is_last = at + 1 == array.len();
    let joined = if behind.contains('\n') {
        format!("{}{}", split(&before).0, split(&behind).1)
    } else if before.contains('#') || (at == 0 && !is_last) {
        before
    } else {
        behind
    };
    array.remove(at);
    set_gap(array, at, joined);
}

/// Puts a value in the place of another, with what is around it.
pub(super) fn exchange(old: &mut Value, mut new: Value) {
    *new.decor_mut() = old.decor().clone();
    *old = new;
}

pub(super) fn insert_key(table: &mut InlineTable, key: &str, mut value: Value) {
    value.decor_mut().set_prefix(" ");
    let end = take_end(table);
    table.insert(key, value);
    give_end(table, &end);
}

/// What stands between the last value and the brace must stay there, whichever value is the
/// last. It is taken from the value it stands behind.
pub(super) fn take_end(table: &mut InlineTable) -> String {
    let Some((_, last)) = table.iter_mut().last() else {
        return " ".to_owned();
    };
    let end = last.decor().suffix().and_then(RawString::as_str);
    let end = end.unwrap_or(" ").to_owned();
    last.decor_mut().set_suffix("");
    end
}

pub(super) fn give_end(table: &mut InlineTable, end: &str) {
    if let Some((_, last)) = table.iter_mut().last() {
        last.decor_mut().set_suffix(end);
    }
}
