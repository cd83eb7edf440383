//! Lists of the file in both their forms, `[[lun]]` and `lun = [...]`: what is around the entries,
//! comments and line breaks, stays where it was.

use std::collections::{HashMap, HashSet};

use toml_edit::{Array, ArrayOfTables, Item, RawString, Table, TableLike, Value};

use super::table::{Keys, exchange};

/// What new entries of a list that has one on each line are indented by, if it has none yet.
const INDENT: &str = "    ";

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
    match value {
        Value::InlineTable(table) => table.into_table(),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_) => Table::new(),
    }
}

/// What stands before the entry at this position; behind the last one, what stands before the
/// bracket.
fn gap(array: &Array, at: usize) -> String {
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

fn set_gap(array: &mut Array, at: usize, gap: String) {
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

fn insert_inline(array: &mut Array, at: usize, mut value: Value) {
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

fn remove_inline(array: &mut Array, at: usize) {
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

#[cfg(test)]
mod tests;
