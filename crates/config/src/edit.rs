//! Single changes to the text of a configuration, which keep its comments, its order and its
//! form. What the text means as a whole is for [`Model::from_toml`] to check afterwards.

mod error;
mod hide;
mod hyperscsi;
mod list;
mod make;
mod read;
mod section;
mod size;
mod table;
mod target;

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
use crate::reader::Source;
use crate::{ConfigError, Model, Naa, StoreSpec, file};

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
    /// What it is found by.
    identity: Identity,
}

const LUN: Kind = Kind {
    list: "lun",
    identity: Identity::Key("id"),
};
const STORE: Kind = Kind {
    list: "store",
    identity: Identity::Key("id"),
};
const TARGET: Kind = Kind {
    list: "target",
    identity: Identity::Key("name"),
};
const NBD: Kind = Kind {
    list: "nbd",
    identity: Identity::Place,
};
const QUOTA: Kind = Kind {
    list: "quota",
    identity: Identity::Counted,
};
const HYPERSCSI: Kind = Kind {
    list: "hyperscsi.group",
    identity: Identity::Group,
};
const GROUP: Kind = Kind {
    list: "group",
    identity: Identity::Key("id"),
};
const USER: Kind = Kind {
    list: "user",
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
        self.read(LUN, read::lun)
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
        self.read(TARGET, read::target)
    }

    /// The groups, as the text has them.
    pub fn groups(&self) -> Vec<spec::Group> {
        self.read(GROUP, read::group)
    }

    /// The users, as the text has them, without secrets.
    pub fn users(&self) -> Vec<spec::User> {
        self.read(USER, read::user)
    }

    /// Adds a unit, or changes the one with this `id`. True when it was made.
    ///
    /// # Errors
    ///
    /// Its store is none.
    pub fn put_lun(&mut self, lun: &spec::Lun) -> Result<bool, EditError> {
        StoreSpec::parse(&lun.store)?;
        let (mut keys, is_made) = self.find_or_add(LUN, &lun.id)?;
        keys.set_text("store", Some(&lun.store), str::eq);
        keys.set_text("serial", lun.serial.as_deref(), str::eq);
        keys.set_text("naa", lun.naa.as_deref(), is_same_naa);
        keys.set_text("owner", lun.owner.as_deref(), str::eq);
        keys.set_text("log", lun.log.as_deref(), str::eq);
        keys.set_text("sync_bias", lun.sync_bias.as_deref(), str::eq);
        set_schedule(&mut keys, lun.snapshots.as_ref());
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
        self.remove(LUN, id, |draft| {
            let targets = draft.targets_with(id).into_iter();
            let targets = targets.map(|target| format!("target {target}"));
            let snapshots = draft.snapshots_of(id).into_iter();
            let snapshots = snapshots.map(|(lun, _)| format!("lun {lun}"));
            let shown = targets.chain(draft.nbd_with("luns", id));
            let shown = shown.chain(draft.hyperscsi_with(id));
            shown.chain(snapshots).collect()
        })?;
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

    /// Adds a group, or changes the one with this `id`. True when it was made.
    ///
    /// # Errors
    ///
    /// It has no initiators.
    pub fn put_group(&mut self, group: &spec::Group) -> Result<bool, EditError> {
        if group.initiators.is_empty() {
            return Err(file::NO_INITIATORS.into());
        }
        let (mut keys, is_made) = self.find_or_add(GROUP, &group.id)?;
        keys.set_texts("initiators", &group.initiators, file::initiator_form);
        Ok(is_made)
    }

    /// Removes a group.
    ///
    /// # Errors
    ///
    /// There is none with this `id`, or a unit of a target is shown to it.
    pub fn remove_group(&mut self, id: &str) -> Result<(), EditError> {
        self.remove(GROUP, id, |draft| {
            let targets = draft.targets();
            let entries = targets
                .iter()
                .flat_map(|target| target.luns.iter().map(move |entry| (target, entry)));
            entries
                .filter(|(_, entry)| entry.groups.iter().any(|group| group == id))
                .map(|(target, entry)| format!("lun {} of target {}", entry.lun, target.name))
                .chain(draft.nbd_with("groups", id))
                .collect()
        })
    }

    /// Adds a user, or changes the one with this name. True when it was made. Secrets are
    /// not for this text: only the files that hold them are; one that is not given stays.
    ///
    /// # Errors
    ///
    /// No file is given, and none is there.
    pub fn put_user(&mut self, user: &spec::User) -> Result<bool, EditError> {
        let old = self.one(USER, &user.name, read::user).ok();
        let old = old.as_ref();
        let missing = || EditError::SecretMissing {
            name: user.name.clone(),
        };
        let kept = old.and_then(|old| old.secret_file.clone());
        let secret_file = user.secret_file.clone().or(kept).ok_or_else(missing)?;
        let mutual = match &user.mutual {
            None => None,
            Some(mutual) => {
                let old = old.and_then(|old| old.mutual.as_ref());
                let kept = old.and_then(|old| old.secret_file.clone());
                let file = mutual.secret_file.clone().or(kept).ok_or_else(missing)?;
                Some((mutual.name.as_str(), file))
            }
        };
        let (mut keys, is_made) = self.find_or_add(USER, &user.name)?;
        keys.set_text("secret_file", Some(&secret_file), str::eq);
        match mutual {
            None => keys.remove("mutual"),
            Some((name, file)) => set_mutual(&mut keys, name, &file),
        }
        // A client that does not know the key does not free the user of its names.
        match user.initiators.as_deref() {
            None => {}
            Some([]) => keys.remove("initiators"),
            Some(names) => keys.set_texts("initiators", names, file::initiator_form),
        }
        Ok(is_made)
    }

    /// Removes a user.
    ///
    /// # Errors
    ///
    /// There is none with this name, or a target, a group or discovery refers to it.
    pub fn remove_user(&mut self, name: &str) -> Result<(), EditError> {
        self.remove(USER, name, |draft| draft.uses_of_user(name))
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

    fn read<T>(&self, kind: Kind, read: fn(&dyn TableLike) -> T) -> Vec<T> {
        let rows = rows(self.list(kind)).into_iter();
        rows.filter_map(|row| match row {
            Row::Table(table) => Some(read(table)),
            Row::Text(_) => None,
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

fn is_same_naa(a: &str, b: &str) -> bool {
    a == b || Naa::parse(a).is_ok_and(|naa| Naa::parse(b) == Ok(naa))
}

fn set_schedule(lun: &mut Keys<'_>, wanted: Option<&spec::Schedule>) {
    let there = lun.read().get("snapshots").and_then(Item::as_table_like);
    if there.map(read::schedule).as_ref() == wanted {
        return;
    }
    let table = wanted.map(|wanted| {
        let counts = [
            ("hourly", wanted.hourly),
            ("daily", wanted.daily),
            ("weekly", wanted.weekly),
        ];
        let counts = counts
            .into_iter()
            .filter_map(|(key, count)| Some((key, Value::from(i64::from(count?)))));
        let at = wanted.at.as_deref().map(|at| ("at", Value::from(at)));
        InlineTable::from_iter(counts.chain(at)).into()
    });
    lun.set("snapshots", table);
}

fn set_mutual(user: &mut Keys<'_>, name: &str, file: &str) {
    match user.table("mutual") {
        Some(mut mutual) => {
            mutual.set_text("name", Some(name), str::eq);
            mutual.set_text("secret_file", Some(file), str::eq);
        }
        None => {
            let keys = [("name", name), ("secret_file", file)];
            let mutual = InlineTable::from_iter(keys);
            user.set("mutual", Some(mutual.into()));
        }
    }
}

#[cfg(test)]
mod tests;
