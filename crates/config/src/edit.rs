//! Single changes to the text of a configuration, which keep its comments, its order and its
//! form. What the text means as a whole is for [`Model::from_toml`] to check afterwards.

mod error;
mod hide;
mod hyperscsi;
mod list;
mod make;
mod section;
mod size;
mod table;
mod target;
mod walk;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use api::spec;
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value,
};

pub use self::error::EditError;
pub(crate) use self::hide::shown_url;
pub use self::hide::{NOT_SHOWN, with_other_secrets, with_secrets_of, without_secrets};
pub use self::hyperscsi::hyperscsi_name;
use self::list::{List, Row, row_at, rows};
use self::section::Identity;
pub use self::section::{nbd_address, nbd_name};
use self::table::Keys;
use crate::keys::{
    SECTION_GROUP, SECTION_HYPERSCSI_GROUP, SECTION_LUN, SECTION_NBD, SECTION_QUOTA, SECTION_STORE,
    SECTION_TARGET, SECTION_USER, SectionKeys,
};
use crate::reader::Source;
use crate::{ConfigError, Model, file};

/// The text of a configuration that is being changed.
///
/// Edits that change nothing leave every byte of it. An edit that returns an error has changed
/// nothing.
#[derive(Clone, Debug)]
pub struct Draft {
    document: DocumentMut,
    /// The text that was read, and how the document gave it back: some line ends come out
    /// otherwise.
    original: String,
    rendered: String,
    /// Where the things of a list are that was searched, by what they are found by.
    places: RefCell<HashMap<&'static str, HashMap<String, usize>>>,
    /// Of units that are new or have another `id`: the one that they began with.
    began_as: BTreeMap<String, Option<String>>,
}

/// A kind of thing that has a list of its own, at the top of the file or in a section (`SECTION.LIST`).
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Its key, and what messages call it.
    list: &'static str,
    /// What there is to say of it.
    keys: &'static SectionKeys,
    /// What it is found by.
    identity: Identity,
}

const LUN: Kind = Kind {
    list: "lun",
    keys: &SECTION_LUN,
    identity: Identity::Key("id"),
};
const STORE: Kind = Kind {
    list: "store",
    keys: &SECTION_STORE,
    identity: Identity::Key("id"),
};
const TARGET: Kind = Kind {
    list: "target",
    keys: &SECTION_TARGET,
    identity: Identity::Key("name"),
};
const NBD: Kind = Kind {
    list: "nbd",
    keys: &SECTION_NBD,
    identity: Identity::Place,
};
const QUOTA: Kind = Kind {
    list: "quota",
    keys: &SECTION_QUOTA,
    identity: Identity::Counted,
};
const HYPERSCSI: Kind = Kind {
    list: "hyperscsi.group",
    keys: &SECTION_HYPERSCSI_GROUP,
    identity: Identity::Group,
};
const GROUP: Kind = Kind {
    list: "group",
    keys: &SECTION_GROUP,
    identity: Identity::Key("id"),
};
const USER: Kind = Kind {
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

    /// The units, as the text has them.
    pub fn luns(&self) -> Vec<spec::Lun> {
        self.sections()
    }

    /// The named stores, as the text has them.
    pub fn stores(&self) -> Vec<spec::Store> {
        self.sections()
    }

    /// The servers of NBD, as the text has them.
    pub fn nbd(&self) -> Vec<spec::Nbd> {
        self.sections()
    }

    /// The quotas, as the text has them.
    pub fn quotas(&self) -> Vec<spec::Quota> {
        self.sections()
    }

    /// The targets, as the text has them.
    pub fn targets(&self) -> Vec<spec::Target> {
        self.sections()
    }

    /// The groups, as the text has them.
    pub fn groups(&self) -> Vec<spec::Group> {
        self.sections()
    }

    /// The users, as the text has them, without secrets.
    pub fn users(&self) -> Vec<spec::User> {
        self.sections()
    }

    /// Adds a unit, or changes the one with this `id`. True when it was made.
    ///
    /// # Errors
    ///
    /// Its store is none.
    pub fn put_lun(&mut self, lun: &spec::Lun) -> Result<bool, EditError> {
        let is_made = self.put_section(lun)?;
        if is_made {
            self.began_as.insert(lun.id.clone(), None);
        }
        Ok(is_made)
    }

    /// Removes a unit.
    ///
    /// # Errors
    ///
    /// There is none with this `id`, or a target shows it.
    pub fn remove_lun(&mut self, id: &str) -> Result<(), EditError> {
        self.remove_section::<spec::Lun>(id)?;
        self.began_as.remove(id);
        Ok(())
    }

    /// Gives a unit another size in bytes.
    ///
    /// # Errors
    ///
    /// There is none with this `id`, it would shrink, it is a block device, or the size is not
    /// one of whole blocks.
    pub fn resize_lun(&mut self, id: &str, size_bytes: u64) -> Result<(), EditError> {
        let mut keys = self.find(LUN, id)?;
        let store = table::text(keys.read(), "store").unwrap_or_default();
        let resized = size::resized(id, &store, size_bytes)?;
        keys.set_text("store", Some(&resized), str::eq);
        Ok(())
    }

    /// Gives a unit another `id`; targets follow.
    ///
    /// # Errors
    ///
    /// There is none with the old `id`, or one with the new one.
    pub fn rename_lun(&mut self, old: &str, new: &str) -> Result<(), EditError> {
        if old != new && self.position(LUN, new).is_some() {
            return Err(EditError::Exists {
                what: LUN.list,
                name: new.to_owned(),
            });
        }
        self.find(LUN, old)?.set_text("id", Some(new), str::eq);
        if let Some(places) = self.places.get_mut().get_mut(LUN.list)
            && let Some(at) = places.remove(old)
        {
            places.insert(new.to_owned(), at);
        }
        self.follow_rename(old, new);
        for (lun, rest) in self.snapshots_of(old) {
            let store = format!("snap:{new}{rest}");
            self.find(LUN, &lun)?
                .set_text("store", Some(&store), str::eq);
        }
        let began_as = self.began_as.remove(old);
        let began_as = began_as.unwrap_or_else(|| Some(old.to_owned()));
        self.began_as.insert(new.to_owned(), began_as);
        Ok(())
    }

    /// The units that have another `id` than in the text this began with: the new one, and that one.
    pub fn renames(&self) -> BTreeMap<String, String> {
        let began_as = self.began_as.iter();
        let renames = began_as.filter_map(|(new, old)| Some((new.clone(), old.clone()?)));
        renames.filter(|(new, old)| new != old).collect()
    }

    fn uses_of_user(&self, name: &str) -> Vec<String> {
        let is_name = |user: &String| user == name;
        let targets = self.targets().into_iter();
        let of_targets = targets
            .filter(|target| target.auth.iter().any(is_name))
            .map(|target| format!("auth of target {}", target.name));
        let is_entry = |entry: &String| file::initiator_user(entry) == Some(name);
        let groups = self.groups().into_iter();
        let of_groups = groups
            .filter(|group| group.initiators.iter().any(is_entry))
            .map(|group| format!("group {}", group.id));
        let server = self.document.get("server").and_then(Item::as_table_like);
        let discovery = server.map(|server| table::texts(server, "discovery_auth"));
        let of_server = discovery
            .filter(|users| users.iter().any(is_name))
            .map(|_| "discovery_auth".to_owned());
        of_targets.chain(of_groups).chain(of_server).collect()
    }

    /// The units that are snapshots of the one with this `id`, each with what follows that in its store.
    fn snapshots_of(&self, id: &str) -> Vec<(String, String)> {
        let rows = rows(self.list(LUN)).into_iter();
        rows.filter_map(|row| {
            let rest = snapshot_of(row.text("store")?, id)?;
            Some((row.text("id")?.to_owned(), rest))
        })
        .collect()
    }

    /// The thing of this name.
    fn one<T>(
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

    fn position(&self, kind: Kind, name: &str) -> Option<usize> {
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

    fn list(&self, kind: Kind) -> Option<&Item> {
        match kind.section() {
            None => self.document.get(kind.list),
            Some((section, list)) => self.document.get(section)?.as_table_like()?.get(list),
        }
    }

    fn list_mut(&mut self, kind: Kind) -> Option<List<'_>> {
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
    fn add_list(&mut self, kind: Kind) {
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
    fn remove_list(&mut self, kind: Kind) {
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

    fn find(&mut self, kind: Kind, name: &str) -> Result<Keys<'_>, EditError> {
        let position = self.position(kind, name);
        let list = self.list_mut(kind);
        list.zip(position)
            .and_then(|(list, position)| list.into_table(position))
            .ok_or_else(|| kind.not_found(name))
    }

    /// The thing of this name, and whether it had to be made.
    fn find_or_add(&mut self, kind: Kind, name: &str) -> Result<(Keys<'_>, bool), EditError> {
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
    fn remove(
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
    fn section(self) -> Option<(&'static str, &'static str)> {
        self.list.split_once('.')
    }

    fn not_found(self, name: &str) -> EditError {
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

/// What follows the `id` in the store of a unit that is a snapshot of the unit with this one.
fn snapshot_of(store: &str, id: &str) -> Option<String> {
    let rest = store.strip_prefix("snap:")?.strip_prefix(id)?;
    rest.starts_with('@').then(|| rest.to_owned())
}

#[cfg(test)]
mod tests;
