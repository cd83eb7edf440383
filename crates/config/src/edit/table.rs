//! Single keys of the file: what they say, and how to say something else without touching what
//! is around them.

use toml_edit::{Array, InlineTable, Item, RawString, Table, TableLike, Value};

use super::list::{List, Row, rows};

/// The string under a key.
pub(super) fn text(table: &dyn TableLike, key: &str) -> Option<String> {
    table.get(key).and_then(Item::as_str).map(str::to_owned)
}

/// The strings under a key; none if the file does not have it.
pub(super) fn texts(table: &dyn TableLike, key: &str) -> Vec<String> {
    rows(table.get(key)).into_iter().map(plain).collect()
}

/// The string that an entry of a list is; empty for a table.
fn plain(row: Row<'_>) -> String {
    match row {
        Row::Text(text) => text.to_owned(),
        Row::Table(_) => String::new(),
    }
}

/// A table that is being changed, in either form.
pub(super) enum Keys<'a> {
    /// `[section]`
    Section(&'a mut Table),
    /// `{ ... }`
    Inline(&'a mut InlineTable),
}

impl<'a> Keys<'a> {
    /// The table in this item, if there is one.
    pub(super) fn of(item: &'a mut Item) -> Option<Self> {
        match item {
            Item::Table(table) => Some(Keys::Section(table)),
            Item::Value(value) => value.as_inline_table_mut().map(Keys::Inline),
            Item::ArrayOfTables(_) | Item::None => None,
        }
    }

    /// The table, to read it.
    pub(super) fn read(&self) -> &dyn TableLike {
        match self {
            Keys::Section(table) => *table,
            Keys::Inline(table) => *table,
        }
    }

    /// The list under a key.
    pub(super) fn list(&mut self, key: &str) -> Option<List<'_>> {
        match self {
            Keys::Section(table) => table.get_mut(key).and_then(List::of),
            Keys::Inline(table) => List::in_value(table.get_mut(key)?),
        }
    }

    /// The table under a key.
    pub(super) fn table(&mut self, key: &str) -> Option<Keys<'_>> {
        match self {
            Keys::Section(table) => table.get_mut(key).and_then(Keys::of),
            Keys::Inline(table) => table
                .get_mut(key)
                .and_then(Value::as_inline_table_mut)
                .map(Keys::Inline),
        }
    }

    /// Writes a value, or takes the key away.
    pub(super) fn set(&mut self, key: &str, value: Option<Value>) {
        let Some(value) = value else {
            self.remove(key);
            return;
        };
        match self {
            Keys::Section(table) => match table.get_mut(key).and_then(Item::as_value_mut) {
                Some(old) => exchange(old, value),
                None => {
                    table.insert(key, Item::Value(value));
                }
            },
            Keys::Inline(table) => match table.get_mut(key) {
                Some(old) => exchange(old, value),
                None => insert_inline(table, key, value),
            },
        }
    }

    /// Takes a key away.
    pub(super) fn remove(&mut self, key: &str) {
        match self {
            Keys::Section(table) => {
                table.remove(key);
            }
            Keys::Inline(table) => {
                let end = take_end(table);
                table.remove(key);
                give_end(table, &end);
            }
        }
    }

    /// Writes a string, if it is not there in this or an equal form.
    pub(super) fn set_text(
        &mut self,
        key: &str,
        wanted: Option<&str>,
        is_same: fn(&str, &str) -> bool,
    ) {
        let is_there = match (self.read().get(key).and_then(Item::as_str), wanted) {
            (Some(old), Some(new)) => is_same(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_there {
            self.set(key, wanted.map(Value::from));
        }
    }

    /// Writes a list of strings: entries that are there in this or an equal form stay as they
    /// are. `name` gives the form by which strings are compared.
    pub(super) fn set_texts(&mut self, key: &str, wanted: &[String], name: fn(&str) -> String) {
        let names: Vec<String> = wanted.iter().map(|text| name(text)).collect();
        let there = texts(self.read(), key);
        if there
            .iter()
            .map(|text| name(text))
            .eq(names.iter().cloned())
        {
            return;
        }
        let Some(mut list) = self.list(key) else {
            let array: Array = wanted.iter().map(String::as_str).collect();
            self.set(key, Some(Value::Array(array)));
            return;
        };
        list.reconcile(
            &names,
            |row| name(&plain(row)),
            |at| Value::from(wanted.get(at).map_or("", String::as_str)),
        );
    }
}

/// Puts a value in the place of another, with what is around it.
pub(super) fn exchange(old: &mut Value, mut new: Value) {
    *new.decor_mut() = old.decor().clone();
    *old = new;
}

fn insert_inline(table: &mut InlineTable, key: &str, mut value: Value) {
    value.decor_mut().set_prefix(" ");
    let end = take_end(table);
    table.insert(key, value);
    give_end(table, &end);
}

/// What stands between the last value and the brace must stay there, whichever value is the
/// last. It is taken from the value it stands behind.
fn take_end(table: &mut InlineTable) -> String {
    let Some((_, last)) = table.iter_mut().last() else {
        return " ".to_owned();
    };
    let end = last.decor().suffix().and_then(RawString::as_str);
    let end = end.unwrap_or(" ").to_owned();
    last.decor_mut().set_suffix("");
    end
}

fn give_end(table: &mut InlineTable, end: &str) {
    if let Some((_, last)) = table.iter_mut().last() {
        last.decor_mut().set_suffix(end);
    }
}
