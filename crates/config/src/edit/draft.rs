//! The text that is changed, and where its things are.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value,
};

use super::error::EditError;
use super::identity::{Identity, nbd_name};
use super::list::{Keys, List, Row, row_at, rows};
use crate::keys::{
    SECTION_GROUP, SECTION_HYPERSCSI_GROUP, SECTION_LUN, SECTION_NBD, SECTION_QUOTA, SECTION_STORE,
    SECTION_TARGET, SECTION_USER, SectionKeys,
};
use crate::reader::Source;
use crate::{ConfigError, Model};

/// The text of a configuration that is being changed.
///
/// Edits that change nothing leave every byte of it. An edit that returns an error has changed
/// nothing.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(super) document: DocumentMut,
    /// The text that was read, and how the document gave it back: some line ends come out
    /// otherwise.
    original: String,
    rendered: String,
    /// Where the things of a list are that was searched, by what they are found by.
    pub(super) places: RefCell<HashMap<&'static str, HashMap<String, usize>>>,
    /// Of units that are new or have another `id`: the one that they began with.
    pub(super) began_as: BTreeMap<String, Option<String>>,
}

/// A kind of thing that has a list of its own, at the top of the file or in a section (`SECTION.LIST`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Its key, and what messages call it.
    pub(super) list: &'static str,
    /// What there is to say of it.
    pub(super) keys: &'static SectionKeys,
    /// What it is found by.
    pub(super) identity: Identity,
}

pub(super) const LUN: Kind = Kind {
    list: "lun",
    keys: &SECTION_LUN,
    identity: Identity::Key("id"),
};
pub(super) const STORE: Kind = Kind {
    list: "store",
    keys: &SECTION_STORE,
    identity: Identity::Key("id"),
};
pub(super) const TARGET: Kind = Kind {
    list: "target",
    keys: &SECTION_TARGET,
    identity: Identity::Key("name"),
};
pub(super) const NBD: Kind = Kind {
    list: "nbd",
    keys: &SECTION_NBD,
    identity: Identity::Place,
};
pub(super) const QUOTA: Kind = Kind {
    list: "quota",
    keys: &SECTION_QUOTA,
    identity: Identity::Counted,
};
pub(super) const HYPERSCSI: Kind = Kind {
    list: "hyperscsi.group",
    keys: &SECTION_HYPERSCSI_GROUP,
    identity: Identity::Group,
};
pub(super) const GROUP: Kind = Kind {
    list: "group",
    keys: &SECTION_GROUP,
    identity: Identity::Key("id"),
};
pub(super) const USER: Kind = Kind {
    list: "user",
    keys: &SECTION_USER,
    identity: Identity::Key("name"),
};

impl Draft {
    /// Takes the text of a configuration.
    ///
    /// # Errors
    ///
    /// It breaks a rule; a draft begins with a configuration that could run.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Model::from_toml(text, Path::new("tarn.toml"))?;
        let document: DocumentMut = text.parse().map_err(|error: TomlError| {
            let source = Source::new("tarn.toml", text);
            source.syntax(error.message(), error.span())
        })?;
        Ok(Self {
            rendered: document.to_string(),
            original: text.to_owned(),
            places: RefCell::default(),
            began_as: BTreeMap::new(),
            document,
        })
    }

    /// The thing of this name.
    pub(super) fn one<T>(
        &self,
        kind: Kind,
        name: &str,
        read: impl FnOnce(&dyn TableLike) -> T,
    ) -> Result<T, EditError> {
        let position = self.position(kind, name);
        match position.and_then(|at| row_at(self.list(kind)?, at)) {
            Some(Row::Table(table)) => Ok(read(table)),
            Some(Row::Text(_)) | None => Err(kind.not_found(name)),
        }
    }

    pub(super) fn position(&self, kind: Kind, name: &str) -> Option<usize> {
        let mut places = self.places.borrow_mut();
        let places = places.entry(kind.list).or_insert_with(|| {
            let rows = rows(self.list(kind)).into_iter().enumerate();
            let named = rows.filter_map(|(at, row)| match row {
                Row::Table(table) => Some((kind.form(&kind.identity.of(table)?), at)),
                Row::Text(_) => None,
            });
            // The first of two that have one name.
            named.rev().collect()
        });
        places.get(&kind.form(name)).copied()
    }

    pub(super) fn list(&self, kind: Kind) -> Option<&Item> {
        match kind.section() {
            None => self.document.get(kind.list),
            Some((section, list)) => self.document.get(section)?.as_table_like()?.get(list),
        }
    }

    pub(super) fn list_mut(&mut self, kind: Kind) -> Option<List<'_>> {
        let item = match kind.section() {
            None => self.document.get_mut(kind.list),
            Some((section, list)) => {
                let section = self.document.get_mut(section)?;
                section.as_table_like_mut()?.get_mut(list)
            }
        };
        item.and_then(List::of)
    }

    /// Puts an empty list where there is none, in whichever form it can have there.
    pub(super) fn add_list(&mut self, kind: Kind) {
        let tables = Item::ArrayOfTables(ArrayOfTables::new());
        let Some((section, list)) = kind.section() else {
            self.document.insert(kind.list, tables);
            return;
        };
        if self.document.get(section).is_none() {
            let mut table = Table::new();
            table.set_implicit(true);
            self.document.insert(section, Item::Table(table));
        }
        match self.document.get_mut(section) {
            Some(Item::Table(table)) => {
                table.insert(list, tables);
            }
            Some(Item::Value(Value::InlineTable(table))) => {
                table.insert(list, Value::Array(Array::new()));
            }
            Some(Item::Value(_) | Item::ArrayOfTables(_) | Item::None) | None => {}
        }
    }

    /// Takes a list away, with its section where nothing else is in that.
    pub(super) fn remove_list(&mut self, kind: Kind) {
        let Some((section, list)) = kind.section() else {
            self.document.remove(kind.list);
            return;
        };
        let Some(table) = self.document.get_mut(section) else {
            return;
        };
        let is_bare = match table {
            Item::Table(table) => {
                table.remove(list);
                table.is_empty() && (table.is_implicit() || table.is_dotted())
            }
            Item::Value(Value::InlineTable(table)) => {
                table.remove(list);
                false
            }
            Item::Value(_) | Item::ArrayOfTables(_) | Item::None => false,
        };
        if is_bare {
            self.document.remove(section);
        }
    }

    pub(super) fn find(&mut self, kind: Kind, name: &str) -> Result<Keys<'_>, EditError> {
        let position = self.position(kind, name);
        let list = self.list_mut(kind);
        list.zip(position)
            .and_then(|(list, position)| list.into_table(position))
            .ok_or_else(|| kind.not_found(name))
    }

    /// The thing of this name, and whether it had to be made.
    pub(super) fn find_or_add(
        &mut self,
        kind: Kind,
        name: &str,
    ) -> Result<(Keys<'_>, bool), EditError> {
        let found = self.position(kind, name);
        let identity = kind.identity.key(name);
        let identity = identity.ok_or_else(|| kind.not_found(name))?;
        if self.list_mut(kind).is_none() {
            self.add_list(kind);
        }
        let list = self.list_mut(kind);
        let mut list = list.ok_or_else(|| kind.not_found(name))?;
        let position = found.unwrap_or(list.len());
        if found.is_none() {
            list.insert(position, InlineTable::from_iter(identity).into());
            if let Some(places) = self.places.get_mut().get_mut(kind.list) {
                places.insert(kind.form(name), position);
            }
        }
        let keys = self
            .list_mut(kind)
            .and_then(|list| list.into_table(position));
        Ok((keys.ok_or_else(|| kind.not_found(name))?, found.is_none()))
    }

    /// Removes a thing that nothing uses.
    pub(super) fn remove(
        &mut self,
        kind: Kind,
        name: &str,
        uses: impl FnOnce(&Self) -> Vec<String>,
    ) -> Result<(), EditError> {
        let position = self.position(kind, name);
        let position = position.ok_or_else(|| kind.not_found(name))?;
        let by = uses(self);
        if !by.is_empty() {
            let (what, name) = (kind.list, name.to_owned());
            return Err(EditError::InUse { what, name, by });
        }
        if let Some(places) = self.places.get_mut().get_mut(kind.list) {
            places.remove(&kind.form(name));
            let behind = places.values_mut().filter(|at| **at > position);
            behind.for_each(|at| *at = at.saturating_sub(1));
        }
        let Some(mut list) = self.list_mut(kind) else {
            return Err(kind.not_found(name));
        };
        let detached = list.remove(position);
        let is_bare = match &list {
            List::Tables(tables) => tables.is_empty(),
            // The dotted key of a section goes with its last entry.
            List::Inline(array) => array.is_empty() && kind.section().is_some(),
        };
        if is_bare {
            self.remove_list(kind);
        }
        if let Some(text) = detached.and_then(|comments| comments.attach(&mut self.document).err())
        {
            let end = self.document.trailing().as_str().unwrap_or("");
            let text = format!("{text}{end}");
            self.document.set_trailing(text);
        }
        Ok(())
    }
}

impl Kind {
    /// The section that its list is in, and the key there.
    pub(super) fn section(self) -> Option<(&'static str, &'static str)> {
        self.list.split_once('.')
    }

    pub(super) fn not_found(self, name: &str) -> EditError {
        EditError::NotFound {
            what: self.list,
            name: name.to_owned(),
        }
    }

    /// The one form of all names that mean one thing: those of targets do in any case of letters.
    fn form(self, name: &str) -> String {
        match self.identity {
            Identity::Place => nbd_name(name),
            Identity::Key(_) if self.list == TARGET.list => name.to_ascii_lowercase(),
            Identity::Key(_) | Identity::Counted | Identity::Group => name.to_owned(),
        }
    }
}

/// The text as it is now.
impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rendered = self.document.to_string();
        f.write_str(if rendered == self.rendered {
            &self.original
        } else {
            &rendered
        })
    }
}
