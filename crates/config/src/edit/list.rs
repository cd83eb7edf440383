//! Lists and tables of the file in both their forms, `[[lun]]` and `lun = [...]`, `[section]` and `{ ... }`: what they
//! say, and how to say something else without touching what is around it.

use std::collections::{HashMap, HashSet};

use toml_edit::{Array, ArrayOfTables, InlineTable, Item, RawString, Table, TableLike, Value};

use super::inline::{
    exchange, gap, give_end, insert_inline, insert_key, remove_inline, set_gap, take_end,
};

/// An entry of a list.
#[derive(Clone, Copy)]
pub(super) enum Row<'a> {
    /// A table, in either form.
    Table(&'a dyn TableLike),
    /// A string.
    Text(&'a str),
}

impl<'a> Row<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::InlineTable(table) => Some(Row::Table(table)),
            Value::String(text) => Some(Row::Text(text.value())),
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => None,
        }
    }

    /// A string of the entry, if it is a table that has it.
    pub(super) fn text(self, key: &str) -> Option<&'a str> {
        match self {
            Row::Table(table) => table.get(key).and_then(Item::as_str),
            Row::Text(_) => None,
        }
    }
}

/// The entries of a list; none if the file does not have it.
pub(super) fn rows(list: Option<&Item>) -> Vec<Row<'_>> {
    match list {
        Some(Item::ArrayOfTables(tables)) => tables.iter().map(|table| Row::Table(table)).collect(),
        Some(Item::Value(Value::Array(array))) => array.iter().filter_map(Row::of).collect(),
        Some(Item::Value(_) | Item::Table(_) | Item::None) | None => Vec::new(),
    }
}

/// The entry at this position of a list.
pub(super) fn row_at(list: &Item, at: usize) -> Option<Row<'_>> {
    match list {
        Item::ArrayOfTables(tables) => tables.get(at).map(|table| Row::Table(table)),
        Item::Value(Value::Array(array)) => array.get(at).and_then(Row::of),
        Item::Value(_) | Item::Table(_) | Item::None => None,
    }
}

/// A list that is being changed.
pub(super) enum List<'a> {
    /// `[[lun]]`
    Tables(&'a mut ArrayOfTables),
    /// `lun = [...]`
    Inline(&'a mut Array),
}

impl<'a> List<'a> {
    /// The list in this item, if there is one.
    pub(super) fn of(item: &'a mut Item) -> Option<Self> {
        match item {
            Item::ArrayOfTables(tables) => Some(List::Tables(tables)),
            Item::Value(Value::Array(array)) => Some(List::Inline(array)),
            Item::Value(_) | Item::Table(_) | Item::None => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            List::Tables(tables) => tables.len(),
            List::Inline(array) => array.len(),
        }
    }

    pub(super) fn row(&self, at: usize) -> Option<Row<'_>> {
        match self {
            List::Tables(tables) => tables.get(at).map(|table| Row::Table(table)),
            List::Inline(array) => array.get(at).and_then(Row::of),
        }
    }

    /// As [`Self::of`], of a value.
    pub(super) fn in_value(value: &'a mut Value) -> Option<Self> {
        value.as_array_mut().map(List::Inline)
    }

    /// The entry, if it is a table.
    pub(super) fn into_table(self, at: usize) -> Option<Keys<'a>> {
        match self {
            List::Tables(tables) => tables.get_mut(at).map(Keys::Section),
            List::Inline(array) => array
                .get_mut(at)
                .and_then(Value::as_inline_table_mut)
                .map(Keys::Inline),
        }
    }

    /// As [`Self::into_table`], for a while.
    pub(super) fn table(&mut self, at: usize) -> Option<Keys<'_>> {
        match self {
            List::Tables(tables) => List::Tables(tables).into_table(at),
            List::Inline(array) => List::Inline(array).into_table(at),
        }
    }

    /// Puts another value in the place of an entry.
    pub(super) fn replace(&mut self, at: usize, value: Value) {
        match self {
            List::Tables(tables) => {
                if let Some(table) = tables.get_mut(at) {
                    let mut new = table_of(value);
                    *new.decor_mut() = table.decor().clone();
                    new.set_position(table.position());
                    *table = new;
                }
            }
            List::Inline(array) => {
                if let Some(old) = array.get_mut(at) {
                    exchange(old, value);
                }
            }
        }
    }

    /// Adds an entry before the one at this position, or at the end.
    pub(super) fn insert(&mut self, at: usize, value: Value) {
        match self {
            List::Tables(tables) => tables.insert(at.min(tables.len()), table_of(value)),
            List::Inline(array) => insert_inline(array, at.min(array.len()), value),
        }
    }

    /// Takes an entry out; gives the comments before it that are not about it alone.
    pub(super) fn remove(&mut self, at: usize) -> Option<Detached> {
        match self {
            List::Tables(tables) if at < tables.len() => Detached::of(&tables.remove(at)),
            List::Inline(array) if at < array.len() => {
                remove_inline(array, at);
                None
            }
            List::Tables(_) | List::Inline(_) => None,
        }
    }

    /// Puts the entries into the order of these numbers. In `[...]` comments stay with their line, and in the file
    /// tables with their place.
    fn sort(&mut self, order: &[usize]) {
        match self {
            List::Tables(tables) => {
                let places: Vec<_> = tables.iter().map(Table::position).collect();
                let mut all: Vec<_> = order.iter().zip(std::mem::take(*tables)).collect();
                all.sort_by_key(|(number, _)| **number);
                for ((_, mut table), place) in all.into_iter().zip(places) {
                    table.set_position(place);
                    tables.push(table);
                }
            }
            List::Inline(array) => {
                let gaps: Vec<_> = (0..array.len()).map(|at| gap(array, at)).collect();
                let values = (0..array.len()).rev().map(|at| array.remove(at));
                let mut all: Vec<_> = order.iter().rev().zip(values).collect();
                all.sort_by_key(|(number, _)| **number);
                for (at, ((_, value), gap)) in all.into_iter().zip(gaps).enumerate() {
                    array.push_formatted(value);
                    set_gap(array, at, gap);
                }
            }
        }
    }

    /// Makes the list one of entries with these names, in this order: takes out those with other
    /// names, makes those that are missing.
    pub(super) fn reconcile(
        &mut self,
        wanted: &[String],
        name: impl Fn(Row<'_>) -> String,
        make: impl Fn(usize) -> Value,
    ) {
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, wanted) in wanted.iter().enumerate() {
            places.entry(wanted).or_insert(at);
        }
        let place = |row| places.get(name(row).as_str()).copied();
        let mut seen = HashSet::new();
        let there: Vec<_> = (0..self.len())
            .map(|at| self.row(at).and_then(place).filter(|at| seen.insert(*at)))
            .collect();
        for (at, _) in there
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, place)| place.is_none())
        {
            self.remove(at);
        }
        let kept: Vec<usize> = there.into_iter().flatten().collect();
        if !kept.is_sorted() {
            self.sort(&kept);
        }
        for at in (0..wanted.len()).filter(|at| !seen.contains(at)) {
            self.insert(at, make(at));
        }
    }
}

/// Comments that stood before a removed table and are set off from it by an empty line: a
/// headline of the file rather than a word about the table.
#[derive(Debug)]
pub(super) struct Detached {
    text: String,
    /// Where the table stood among the tables of the file.
    position: Option<isize>,
}

impl Detached {
    fn of(table: &Table) -> Option<Self> {
        let prefix = table.decor().prefix()?.as_str()?;
        let lines: Vec<&str> = prefix.split_inclusive('\n').collect();
        let blank = lines.iter().rposition(|line| line.trim().is_empty())?;
        let text: String = lines.iter().take(blank + 1).copied().collect();
        text.contains('#').then(|| Self {
            text,
            position: table.position(),
        })
    }

    /// Gives the comments to the next table below `root`; gives them back if there is none.
    pub(super) fn attach(self, root: &mut Table) -> Result<(), String> {
        let next = first_after(root, self.position);
        let Some(heir) = next.and_then(|next| table_at(root, next)) else {
            return Err(self.text);
        };
        let own = heir.decor().prefix().and_then(RawString::as_str);
        let text = self.text + own.unwrap_or("").trim_start_matches(['\r', '\n']);
        heir.decor_mut().set_prefix(text);
        Ok(())
    }
}

/// The tables right below this one.
fn tables_mut(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    table.iter_mut().flat_map(|(_, item)| {
        let tables: Box<dyn Iterator<Item = &mut Table>> = match item {
            Item::Table(table) => Box::new(std::iter::once(table)),
            Item::ArrayOfTables(tables) => Box::new(tables.iter_mut()),
            Item::Value(_) | Item::None => Box::new(std::iter::empty()),
        };
        tables
    })
}

/// The smallest position of a table below this one that is larger than `position`.
fn first_after(table: &mut Table, position: Option<isize>) -> Option<isize> {
    tables_mut(table)
        .flat_map(|table| [table.position(), first_after(table, position)])
        .flatten()
        .filter(|found| Some(*found) > position)
        .min()
}

fn table_at(table: &mut Table, position: isize) -> Option<&mut Table> {
    tables_mut(table).find_map(|table| {
        if table.position() == Some(position) {
            Some(table)
        } else {
            table_at(table, position)
        }
    })
}

fn table_of(value: Value) -> Table {
    let Value::InlineTable(table) = value else {
        return Table::new();
    };
    table.into_table()
}

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
                None => insert_key(table, key, value),
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

/// Takes the key of an empty `[[list]]` away, which would otherwise come back as `list = []`.
pub(super) fn tidy(keys: &mut Keys<'_>, key: &str) {
    let is_bare =
        matches!(keys.read().get(key), Some(Item::ArrayOfTables(tables)) if tables.is_empty());
    if is_bare {
        keys.remove(key);
    }
}

#[cfg(test)]
mod tests;
