//! From the text of a configuration file to a [`Model`]: one function per section.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

use crate::error::At as _;
use crate::fields::read_id;
use crate::group::read_groups;
use crate::hyperscsi::read_hyperscsi;
use crate::keys::{SECTION_LIMITS, SECTION_STORE, SECTION_TOP};
use crate::limits::NUMBERS;
use crate::names::{AllNames, FirstUse, Names};
use crate::nbd::read_nbd;
use crate::quota::read_quotas;
use crate::reader::{Section, Source};
use crate::server::read_server;
use crate::target::read_targets;
use crate::unit::read_units;
use crate::user::read_users;
use crate::views::ViewCheck;
use crate::{
    ConfigError, DigestPolicy, Limits, Model, NamedStore, Place, StoreSpec, admin, confine, notify,
};

impl Model {
    /// Reads the text of a configuration file.
    ///
    /// `file` is named in errors, and relative paths of the text are taken from its directory.
    ///
    /// # Errors
    ///
    /// The first broken rule, with its line.
    pub fn from_toml(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let file_name = file.display().to_string();
        let source = Source::new(&file_name, text);
        let root = source.parse()?;
        Self::from_tree(&source, &root, file)
    }

    /// Reads a text that a program has made. Its errors, and all places of the model, are what `place` says of the path
    /// of a key, as `lun[0].store`: nobody has seen the text.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn from_made_toml(text: &str, place: &dyn Fn(&str) -> Place) -> Result<Self, ConfigError> {
        let source = Source::made(text, place);
        let root = source.parse()?;
        Self::from_tree(&source, &root, Path::new(""))
    }

    /// Reads what was parsed.
    pub(crate) fn from_tree(
        source: &Source<'_>,
        root: &Spanned<DeTable<'_>>,
        file: &Path,
    ) -> Result<Self, ConfigError> {
        let top = Section::top(source, root, SECTION_TOP)?;
        let directory = file.parent().unwrap_or_else(|| Path::new(""));

        let users = read_users(&top, directory)?;
        let user_names = Names::of("user", users.iter().map(|user| user.name.as_str()));
        let groups = read_groups(&top, &user_names)?;
        let group_names = Names::of("group", groups.iter().map(|group| group.id.as_str()));
        let stores = read_stores(&top, directory)?;
        let units = read_units(&top, directory, &stores)?;
        let unit_names = Names::of("lun", units.iter().filter_map(|unit| unit.id.as_deref()));
        let names = AllNames {
            users: &user_names,
            groups: &group_names,
            units: &unit_names,
        };
        let mut views = ViewCheck::new(&groups);
        let (targets, target_names) = read_targets(&top, &names, &units, &mut views)?;
        let nbd = read_nbd(&top, &names, &units, directory)?;
        let hyperscsi = read_hyperscsi(&top, &names, &units, directory)?;
        let model = Self {
            server: read_server(&top, directory, &user_names)?,
            limits: read_limits(&top)?,
            admin: admin::read(&top, directory)?,
            confine: confine::read(&top, directory)?,
            stores,
            units,
            users,
            groups,
            targets,
            nbd,
            hyperscsi,
            quotas: read_quotas(&top, directory)?,
            notify: notify::read(&top, directory)?,
            target_names,
            discoverers: BTreeSet::new(),
            place: top.place(),
        };
        model.seal()
    }
}

fn read_stores(top: &Section<'_>, directory: &Path) -> Result<Vec<NamedStore>, ConfigError> {
    let mut ids = FirstUse::new("store");
    let mut stores = Vec::new();
    for entry in top.entries("store")? {
        let section = entry.section(SECTION_STORE)?;
        let id = section.required("id")?;
        let field = section.required("store")?;
        let store = StoreSpec::parse(field.text()?).at(|| field.place())?;
        let named = NamedStore {
            id: read_id(&id)?,
            store: store.below(directory),
            place: field.place(),
        };
        named.check().at(|| field.place())?;
        ids.insert(&named.id, id.place())?;
        stores.push(named);
    }
    Ok(stores)
}

fn read_limits(top: &Section<'_>) -> Result<Limits, ConfigError> {
    let mut limits = Limits::default();
    let Some(section) = top.section("limits", SECTION_LIMITS)? else {
        return Ok(limits);
    };
    for number in NUMBERS {
        if let Some(field) = section.field(number.name) {
            let value = if number.is_bytes {
                field.bytes(number.min, number.max)?
            } else {
                field.number(number.min, number.max)?
            };
            (number.set)(&mut limits, value);
        }
    }
    for (name, flag) in [
        ("initial_r2t", &mut limits.initial_r2t),
        ("immediate_data", &mut limits.immediate_data),
    ] {
        if let Some(field) = section.field(name) {
            *flag = field.flag()?;
        }
    }
    for (name, policy) in [
        ("header_digest", &mut limits.header_digest),
        ("data_digest", &mut limits.data_digest),
    ] {
        if let Some(field) = section.field(name) {
            *policy = DigestPolicy::parse(field.text()?).at(|| field.place())?;
        }
    }
    limits.check().at(|| section.place())?;
    Ok(limits)
}

#[cfg(test)]
mod tests;
