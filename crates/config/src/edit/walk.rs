//! Sections of the file as the API says them, and back: both walk the table of keys, and know no key by its name.

use std::collections::{HashMap, HashSet};

use api::spec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use toml_edit::{InlineTable, Item, TableLike, Value};

use super::error::EditError;
use super::inline::array_of;
use super::list::{Keys, List, Row, rows, tidy};
use crate::address::parse_bind;
use crate::group::initiator_form;
use crate::keys::{
    Fallback, Form, Key, SECTION_GROUP, SECTION_LUN, SECTION_PORTAL, SECTION_TARGET_LUN,
    SECTION_USER, SectionKeys,
};
use crate::{HostPort, Naa, parse_size};

/// What a table of the file says.
///
/// # Errors
///
/// The API has no such key, or not with such a value.
pub(super) fn read<T: DeserializeOwned>(
    keys: &SectionKeys,
    table: &dyn TableLike,
) -> Result<T, EditError> {
    let read = serde_json::from_value(Json::Object(object(keys, table)));
    read.map_err(|error| EditError::Value {
        why: error.to_string(),
    })
}

/// Has a table say what `wanted` does. What says the same already, in whichever form, stays as it is, and so do the
/// keys that are `kept`.
pub(super) fn write<T: Serialize>(
    table: &mut Keys<'_>,
    keys: &SectionKeys,
    wanted: &T,
    kept: &[&str],
) {
    if let Ok(Json::Object(wanted)) = serde_json::to_value(wanted) {
        write_object(table, keys, &wanted, kept);
    }
}

/// The value of an entry of a list, in the short form where that says all.
pub(super) fn row_value<T: Serialize>(keys: &SectionKeys, wanted: &T) -> Value {
    match serde_json::to_value(wanted) {
        Ok(Json::Object(wanted)) => inline(keys, &wanted).into(),
        Ok(_) | Err(_) => InlineTable::new().into(),
    }
}

/// The password of a group of HyperSCSI, which the API never says.
fn is_secret(key: &Key) -> bool {
    key.name == "password"
}

fn object(keys: &SectionKeys, table: &dyn TableLike) -> Map<String, Json> {
    let known = keys.keys.iter().filter(|key| !is_secret(key));
    let there =
        known.filter_map(|key| Some((key.name.to_owned(), json(&key.form, table.get(key.name)?)?)));
    there.collect()
}

fn json(form: &Form, item: &Item) -> Option<Json> {
    match form {
        Form::Text { .. } | Form::Store | Form::OneOf(_) => item.as_str().map(Json::from),
        Form::Flag => item.as_bool().map(Json::from),
        Form::Number { .. } => item.as_integer().map(Json::from),
        Form::Bytes { .. } => {
            let number = || item.as_integer().map(|bytes| bytes.to_string());
            item.as_str()
                .map(str::to_owned)
                .or_else(number)
                .map(Json::from)
        }
        Form::Table { keys, .. } => {
            let table = item.as_table_like()?;
            Some(Json::Object(object(keys, table)))
        }
        Form::List { entries, .. } => {
            let entry = |row| match Form::table(entries) {
                Some(keys) => Json::Object(row_object(keys, row)),
                None => Json::from(text_of(row)),
            };
            Some(rows(Some(item)).into_iter().map(entry).collect())
        }
    }
}

fn row_object(keys: &SectionKeys, row: Row<'_>) -> Map<String, Json> {
    match row {
        Row::Table(table) => object(keys, table),
        // The short form is the first key.
        Row::Text(text) => {
            let first = keys.keys.first();
            first
                .map(|key| (key.name.to_owned(), Json::from(text)))
                .into_iter()
                .collect()
        }
    }
}

fn text_of(row: Row<'_>) -> &str {
    match row {
        Row::Text(text) => text,
        Row::Table(_) => "",
    }
}

fn write_object(
    table: &mut Keys<'_>,
    keys: &SectionKeys,
    wanted: &Map<String, Json>,
    kept: &[&str],
) {
    for key in keys.keys {
        if kept.contains(&key.name) || is_secret(key) {
            continue;
        }
        let there = table
            .read()
            .get(key.name)
            .and_then(|item| json(&key.form, item));
        let wanted = wanted.get(key.name);
        if meaning(keys, key, there.as_ref()) != meaning(keys, key, wanted) {
            write_key(table, keys, key, wanted);
        }
    }
}

fn write_key(table: &mut Keys<'_>, keys: &SectionKeys, key: &Key, wanted: Option<&Json>) {
    match (&key.form, wanted) {
        (_, None | Some(Json::Null | Json::Bool(false))) => table.remove(key.name),
        (_, Some(Json::Bool(true))) => table.set(key.name, Some(Value::from(true))),
        (_, Some(Json::Number(number))) => table.set(key.name, number.as_i64().map(Value::from)),
        (_, Some(Json::String(text))) => table.set(key.name, Some(Value::from(text.as_str()))),
        (_, Some(Json::Array(list))) if list.is_empty() => table.remove(key.name),
        (Form::List { entries, .. }, Some(Json::Array(list))) => match Form::table(entries) {
            Some(nested) => write_rows(table, key.name, (nested, entries), list),
            None => {
                let texts = list.iter().filter_map(Json::as_str).map(str::to_owned);
                let texts: Vec<String> = texts.collect();
                table.set_texts(key.name, &texts, form_of(keys, key));
            }
        },
        (Form::Table { keys: nested, .. }, Some(Json::Object(wanted))) => {
            match table.table(key.name) {
                Some(mut there) => write_object(&mut there, nested, wanted, &[]),
                None => table.set(key.name, Some(inline(nested, wanted).into())),
            }
        }
        (_, Some(Json::Array(_) | Json::Object(_))) => {}
    }
}

fn inline(keys: &SectionKeys, wanted: &Map<String, Json>) -> InlineTable {
    let mut table = InlineTable::new();
    write_object(&mut Keys::Inline(&mut table), keys, wanted, &[]);
    table
}

/// Makes a list one of these tables. Those that are there stay, with what is around them.
fn write_rows(
    table: &mut Keys<'_>,
    name: &str,
    (keys, entries): (&SectionKeys, &[Form]),
    wanted: &[Json],
) {
    let is_short = entries.iter().any(|form| matches!(form, Form::Text { .. }));
    let there = rows(table.read().get(name)).into_iter();
    let there: Vec<_> = there.map(|row| row_object(keys, row)).collect();
    let mut wanted: Vec<_> = wanted.iter().filter_map(Json::as_object).collect();
    let naming = Naming::of(keys, [&there.iter().collect::<Vec<_>>(), &wanted]);
    if !naming.is_ordered {
        // The order of the file means nothing here, so it stays.
        let order: HashMap<String, usize> =
            there.iter().map(|row| naming.name(row)).zip(0..).collect();
        wanted.sort_by_key(|row| order.get(&naming.name(row)).copied().unwrap_or(usize::MAX));
    }
    let short = |wanted: &Map<String, Json>| {
        let table = inline(keys, wanted);
        let first = table.iter().next().and_then(|(_, value)| value.as_str());
        match first.filter(|_| is_short && table.len() == 1) {
            Some(text) => Value::from(text),
            None => table.into(),
        }
    };
    let Some(mut list) = table.list(name) else {
        let values = wanted.into_iter().map(short);
        let array = if is_short {
            values.collect()
        } else {
            array_of(values)
        };
        table.set(name, Some(Value::Array(array)));
        return;
    };
    let names: Vec<String> = wanted.iter().map(|row| naming.name(row)).collect();
    let is_inline = matches!(list, List::Inline(_));
    let make = |at: usize| match wanted.get(at) {
        Some(wanted) if is_inline => short(wanted),
        Some(wanted) => inline(keys, wanted).into(),
        None => Value::from(""),
    };
    list.reconcile(&names, |row| naming.name(&row_object(keys, row)), make);
    for (at, wanted) in wanted.iter().enumerate() {
        let there = list.row(at).map(|row| row_object(keys, row));
        if there.is_none_or(|there| meanings(keys, &there) == meanings(keys, wanted)) {
            continue;
        }
        match list.table(at) {
            Some(mut row) => write_object(&mut row, keys, wanted, &[]),
            None => list.replace(at, short(wanted)),
        }
    }
    tidy(table, name);
}

/// What the tables of a list are found by.
struct Naming<'a> {
    keys: &'a SectionKeys,
    /// Their order means something.
    is_ordered: bool,
    /// What several tables of one list have as their first key: there the first of their groups counts, too.
    shared: HashSet<String>,
}

impl<'a> Naming<'a> {
    fn of(keys: &'a SectionKeys, lists: [&[&Map<String, Json>]; 2]) -> Self {
        let mut naming = Self {
            keys,
            is_ordered: keys.heading != SECTION_TARGET_LUN.heading,
            shared: HashSet::new(),
        };
        for list in lists {
            if naming.is_ordered {
                break;
            }
            let mut seen = HashSet::new();
            let names = list.iter().map(|row| naming.first(row));
            let again: Vec<String> = names.filter(|name| !seen.insert(name.clone())).collect();
            naming.shared.extend(again);
        }
        naming
    }

    fn first(&self, row: &Map<String, Json>) -> String {
        let key = self.keys.keys.first();
        let meaning = key.map(|key| meaning(self.keys, key, row.get(key.name)));
        meaning
            .map(|meaning| meaning.to_string())
            .unwrap_or_default()
    }

    fn name(&self, row: &Map<String, Json>) -> String {
        let first = self.first(row);
        match self.shared.contains(&first) {
            true => format!("{first} {}", first_group(row)),
            false => first,
        }
    }
}

fn first_group(row: &Map<String, Json>) -> String {
    let groups = row.get("groups").and_then(Json::as_array);
    let first = groups.and_then(|groups| groups.first()?.as_str());
    first.unwrap_or_default().to_owned()
}

fn meanings(keys: &SectionKeys, table: &Map<String, Json>) -> Vec<Json> {
    let known = keys.keys.iter().filter(|key| !is_secret(key));
    known
        .map(|key| meaning(keys, key, table.get(key.name)))
        .collect()
}

/// The one form of all values that mean one thing, by which they are compared; of one that is not there, its default.
fn meaning(keys: &SectionKeys, key: &Key, value: Option<&Json>) -> Json {
    let is_there = |value: &&Json| match value {
        Json::Null | Json::Bool(false) => false,
        Json::Array(list) => !list.is_empty(),
        Json::Bool(true) | Json::Number(_) | Json::String(_) | Json::Object(_) => true,
    };
    let form = form_of(keys, key);
    match (value.filter(is_there), &key.default) {
        (Some(value), _) => one_form(&key.form, form, value),
        (None, Fallback::Number(number)) => one_form(&key.form, form, &Json::from(*number)),
        (None, Fallback::Value(text)) => {
            let value = serde_json::from_str(text).unwrap_or_default();
            one_form(&key.form, form, &value)
        }
        (None, Fallback::Required | Fallback::Words(_)) => Json::Null,
    }
}

fn one_form(form: &Form, text_form: fn(&str) -> String, value: &Json) -> Json {
    match (form, value) {
        (Form::Bytes { .. }, Json::String(text)) => {
            parse_size(text).map_or_else(|_| value.clone(), Json::from)
        }
        (Form::List { entries, .. }, Json::Array(list)) => {
            let entry = |entry: &Json| match (Form::table(entries), entry) {
                (Some(keys), Json::Object(table)) => meanings(keys, table).into(),
                (Some(keys), Json::String(text)) => {
                    meanings(keys, &row_object(keys, Row::Text(text))).into()
                }
                (_, Json::String(text)) => Json::from(text_form(text)),
                (_, other) => other.clone(),
            };
            let mut list: Vec<Json> = list.iter().map(entry).collect();
            if Form::table(entries).is_some_and(|keys| keys.heading == SECTION_TARGET_LUN.heading) {
                list.sort_by_cached_key(Json::to_string);
            }
            list.into()
        }
        (Form::Table { keys, .. }, Json::Object(table)) => meanings(keys, table).into(),
        (_, Json::String(text)) => Json::from(text_form(text)),
        (_, other) => other.clone(),
    }
}

/// From a text to the one form of all that mean the same under this key.
fn form_of(keys: &SectionKeys, key: &Key) -> fn(&str) -> String {
    let is_in = |section: &SectionKeys| keys.heading == section.heading;
    match key.name {
        "naa" if is_in(&SECTION_LUN) => {
            |text| Naa::parse(text).map_or_else(|_| text.to_owned(), |naa| naa.to_string())
        }
        "initiators" if is_in(&SECTION_GROUP) || is_in(&SECTION_USER) => initiator_form,
        "bind" if is_in(&SECTION_PORTAL) => bind_form,
        "advertise" if is_in(&SECTION_PORTAL) => {
            |text| HostPort::parse(text).map_or_else(|_| text.to_owned(), |at| at.to_string())
        }
        _ => str::to_owned,
    }
}

/// The one form of an address to listen on.
fn bind_form(bind: &str) -> String {
    parse_bind(bind).map_or_else(|_| bind.to_owned(), |address| address.to_string())
}

/// The number of an entry of a target.
pub(super) fn lun_number(row: Row<'_>) -> Option<u16> {
    match row {
        Row::Table(table) => {
            let number = table.get("lun").and_then(Item::as_integer)?;
            u16::try_from(number)
                .ok()
                .filter(|lun| *lun <= crate::LunNumber::MAX)
        }
        Row::Text(_) => None,
    }
}

/// An entry of a target.
pub(super) fn target_lun(row: Row<'_>) -> Option<spec::TargetLun> {
    match row {
        Row::Table(table) => read(&SECTION_TARGET_LUN, table).ok(),
        Row::Text(_) => None,
    }
}
