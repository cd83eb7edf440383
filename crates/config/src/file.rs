//! From the text of a configuration file to a [`Model`]: one function per section.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use crate::error::{At as _, Broken as _, nearest_hint};
use crate::hyperscsi::read_hyperscsi;
use crate::keys::{
    SECTION_GROUP, SECTION_LIMITS, SECTION_MUTUAL, SECTION_SERVER, SECTION_STORE, SECTION_TOP,
    SECTION_USER,
};
use crate::limits::NUMBERS;
use crate::nbd::read_nbd;
use crate::quota::read_quotas;
use crate::reader::{Field, Section, Source};
use crate::target::read_targets;
use crate::unit::read_units;
use crate::value::is_invisible;
use crate::views::ViewCheck;
use crate::{
    AddressRule, Cidr, Coalescing, ConfigError, DigestPolicy, Group, InitiatorMatch, Limits,
    LogLevel, Model, Mutual, NamePattern, NamedStore, Place, Rule, SecretFile, Server, StoreSpec,
    User, UserIndex, admin, confine, notify,
};

/// Why a group or a user cannot have these initiators.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum InitiatorRule {
    /// A group of nobody.
    #[error(
        "the group only excludes initiators, so nobody is in it; add those it is for, or \"*\" for all others"
    )]
    OnlyExclusions,
    /// An exclusion that everybody could evade.
    #[error(
        "user {text:?} cannot be excluded, as an initiator that does not authenticate is nobody's user; name the users \
         that belong to the group instead"
    )]
    UserExcluded {
        /// What stands behind the exclamation mark.
        text: String,
    },
    /// A pattern of a user that no name matches.
    #[error(
        "initiator {pattern:?} of a user matches no iSCSI name; write a pattern of names (iqn.*, eui.*, naa.* or *)"
    )]
    NameOfUserUnknown {
        /// The entry as written.
        pattern: String,
    },
}

/// Longest `id` of a unit or group in bytes.
const ID_BYTES_MAX: usize = 64;

/// Longest text value of the protocol in bytes.
///
/// Spec: RFC 7143 section 6.1.
const TEXT_BYTES_MAX: usize = 255;

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
        let nbd = read_nbd(&top, &names, directory)?;
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

/// The names that references of one kind may lead to, by position.
pub(crate) struct Names<'a> {
    what: &'static str,
    positions: BTreeMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(what: &'static str, names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            what,
            positions: names.zip(0..).collect(),
        }
    }

    /// The position of the name, or the error that it does not exist.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Rule> {
        self.positions.get(name).copied().ok_or_else(|| {
            let what = self.what;
            Rule::Unknown {
                what,
                name: name.to_owned(),
                hint: nearest_hint(name, self.positions.keys().copied(), || {
                    format!("add a [[{what}]] of that name")
                }),
            }
        })
    }

    pub(crate) fn find_all<T>(
        &self,
        field: Option<Field<'_>>,
        index: fn(usize) -> T,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(field) = field else {
            return Ok(Vec::new());
        };
        let mut seen = FirstUse::new(self.what);
        let mut found = Vec::new();
        for entry in field.entries()? {
            let name = entry.text()?;
            found.push(index(self.find(name).at(|| entry.place())?));
            seen.insert(name, entry.place())?;
        }
        Ok(found)
    }
}

pub(crate) struct AllNames<'a> {
    pub(crate) users: &'a Names<'a>,
    pub(crate) groups: &'a Names<'a>,
    pub(crate) units: &'a Names<'a>,
}

/// Refuses the second use of a name; the error says where the first is.
pub(crate) struct FirstUse {
    what: &'static str,
    places: BTreeMap<String, Place>,
}

impl FirstUse {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(
        &mut self,
        name: impl Into<String>,
        place: Place,
    ) -> Result<(), ConfigError> {
        let name = name.into();
        self.insert_as(name.clone(), name, place)
    }

    /// The same for a name of which others may see only this.
    pub(crate) fn insert_as(
        &mut self,
        name: String,
        shown: String,
        place: Place,
    ) -> Result<(), ConfigError> {
        match self.places.insert(name, place.clone()) {
            None => Ok(()),
            Some(first) => Err(Rule::Twice {
                what: self.what,
                name: shown,
                first,
            }
            .at(place)),
        }
    }
}

fn read_users(top: &Section<'_>, directory: &Path) -> Result<Vec<User>, ConfigError> {
    let mut names = FirstUse::new("user");
    let mut users = Vec::new();
    for entry in top.entries("user")? {
        let section = entry.section(SECTION_USER)?;
        let name = section.required("name")?;
        let user = User {
            name: read_user_name(&name)?,
            secret: read_secret(&section, directory)?,
            mutual: match section.section("mutual", SECTION_MUTUAL)? {
                None => None,
                Some(mutual) => Some(Mutual {
                    name: read_text("mutual name", &mutual.required("name")?)?,
                    secret: read_secret(&mutual, directory)?,
                }),
            },
            initiators: match section.field("initiators") {
                None => Vec::new(),
                Some(field) => read_names_of_user(&field)?,
            },
        };
        names.insert(&user.name, name.place())?;
        users.push(user);
    }
    Ok(users)
}

pub(crate) fn read_secret(
    section: &Section<'_>,
    directory: &Path,
) -> Result<SecretFile, ConfigError> {
    let field = section.required("secret_file")?;
    Ok(SecretFile {
        path: read_path("path of the secret", &field, directory)?,
        text: field.text()?.to_owned(),
        place: field.place(),
    })
}

/// A path; a relative one is taken from `directory`.
pub(crate) fn read_path(
    what: &'static str,
    field: &Field<'_>,
    directory: &Path,
) -> Result<PathBuf, ConfigError> {
    let path = field.text()?;
    if path.is_empty() {
        return Err(Rule::EmptyName { what }.at(field.place()));
    }
    Ok(directory.join(path))
}

fn read_names_of_user(field: &Field<'_>) -> Result<Vec<NamePattern>, ConfigError> {
    let names = field.entries()?;
    let names = names.iter();
    names.map(read_name_of_user).collect()
}

fn read_name_of_user(entry: &Field<'_>) -> Result<NamePattern, ConfigError> {
    let text = entry.text()?;
    if text.is_empty() || NamePattern::looks_like(text) {
        return NamePattern::parse(text).at(|| entry.place());
    }
    let pattern = text.to_owned();
    Err(InitiatorRule::NameOfUserUnknown { pattern }.at(entry.place()))
}

fn read_groups(top: &Section<'_>, users: &Names<'_>) -> Result<Vec<Group>, ConfigError> {
    let mut ids = FirstUse::new("group");
    let mut groups = Vec::new();
    for entry in top.entries("group")? {
        let section = entry.section(SECTION_GROUP)?;
        let id = section.required("id")?;
        let (initiators, excluded) = read_initiators(&section.required("initiators")?, users)?;
        let group = Group {
            id: read_id(&id)?,
            initiators,
            excluded,
        };
        ids.insert(&group.id, id.place())?;
        groups.push(group);
    }
    Ok(groups)
}

/// Those who are in a group, and those who are not although they match.
fn read_initiators(
    field: &Field<'_>,
    users: &Names<'_>,
) -> Result<(Vec<InitiatorMatch>, Vec<InitiatorMatch>), ConfigError> {
    let (mut initiators, mut excluded) = (Vec::new(), Vec::new());
    for entry in field.entries()? {
        let text = entry.text()?;
        let place = || entry.place();
        match text.strip_prefix(EXCLUDED) {
            Some(rest) => excluded.push(read_excluded(rest, users, &place)?),
            None => initiators.push(read_initiator(text, users, &place)?),
        }
    }
    match (initiators.is_empty(), excluded.is_empty()) {
        (true, true) => Err(NO_INITIATORS.at(field.place())),
        (true, false) => Err(InitiatorRule::OnlyExclusions.at(field.place())),
        (false, _) => Ok((initiators, excluded)),
    }
}

/// A group of nobody.
pub(crate) const NO_INITIATORS: Rule = Rule::EmptyList {
    remedy: "name an initiator, or write \"*\" for all",
};

/// What stands before an entry of a group that takes initiators out of it.
pub(crate) const EXCLUDED: char = '!';

/// What stands before a name in a certificate.
pub(crate) const CERTIFICATE: &str = "certificate:";

/// The user that an entry of a group names, if it names one.
pub(crate) fn initiator_user(text: &str) -> Option<&str> {
    match text.strip_prefix("user:") {
        Some(user) => Some(user),
        None if text.starts_with(CERTIFICATE) || text.starts_with(EXCLUDED) => None,
        None if NamePattern::looks_like(text) || Cidr::looks_like(text) => None,
        None => Some(text),
    }
}

/// The one form of an entry of a group, by which two of them are compared.
pub(crate) fn initiator_form(text: &str) -> String {
    if let Some(rest) = text.strip_prefix(EXCLUDED) {
        return format!("{EXCLUDED}{}", initiator_form(rest));
    }
    match initiator_user(text) {
        Some(user) => format!("user:{user}"),
        None => Cidr::parse(text).map_or_else(|_| text.to_ascii_lowercase(), |c| c.to_string()),
    }
}

/// A name pattern, an address or network, a pattern for names in certificates, or a user; `user:` says the last beyond
/// doubt, for users whose names look like one of the others.
fn read_initiator(
    text: &str,
    users: &Names<'_>,
    place: &impl Fn() -> Place,
) -> Result<InitiatorMatch, ConfigError> {
    let user = |user| InitiatorMatch::User(UserIndex(user));
    if let Some(name) = text.strip_prefix("user:") {
        users.find(name).map(user).at(place)
    } else if let Some(name) = text.strip_prefix(CERTIFICATE) {
        let name = NamePattern::parse(name).at(place)?;
        Ok(InitiatorMatch::Certificate(name))
    } else if NamePattern::looks_like(text) {
        let name = NamePattern::parse(text).at(place)?;
        Ok(InitiatorMatch::Name(name))
    } else if Cidr::looks_like(text) {
        Cidr::parse(text).map(InitiatorMatch::Address).at(place)
    } else {
        let unknown = |_| AddressRule::InitiatorUnknown {
            pattern: text.to_owned(),
        };
        users.find(text).map(user).map_err(unknown).at(place)
    }
}

/// What stands behind the exclamation mark.
fn read_excluded(
    text: &str,
    users: &Names<'_>,
    place: &impl Fn() -> Place,
) -> Result<InitiatorMatch, ConfigError> {
    match read_initiator(text, users, place)? {
        InitiatorMatch::User(_) => {
            let text = text.to_owned();
            Err(InitiatorRule::UserExcluded { text }.at(place()))
        }
        entry @ (InitiatorMatch::Name(_)
        | InitiatorMatch::Address(_)
        | InitiatorMatch::Certificate(_)) => Ok(entry),
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

fn read_server(
    top: &Section<'_>,
    directory: &Path,
    users: &Names<'_>,
) -> Result<Server, ConfigError> {
    let Some(section) = top.section("server", SECTION_SERVER)? else {
        return Ok(Server::default());
    };
    Ok(Server {
        state: match section.field("state") {
            Some(field) => Some(directory.join(field.text()?)),
            None => None,
        },
        cores: match section.field("cores") {
            Some(field) => NonZeroU16::new(read_u16(&field, 1, 1024)?),
            None => None,
        },
        busy_poll_us: match section.field("busy_poll_us") {
            Some(field) => u32::from(read_u16(&field, 0, 10_000)?),
            None => 0,
        },
        coalescing: match section.field("coalescing") {
            Some(field) => Coalescing::parse(field.text()?).at(|| field.place())?,
            None => Coalescing::default(),
        },
        log: match section.field("log") {
            Some(field) => Some(LogLevel::parse(field.text()?).at(|| field.place())?),
            None => None,
        },
        discovery_auth: users.find_all(section.field("discovery_auth"), UserIndex)?,
    })
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

pub(crate) fn read_u16(field: &Field<'_>, min: u16, max: u16) -> Result<u16, ConfigError> {
    let number = field.number(u64::from(min), u64::from(max))?;
    // The range has just been checked.
    Ok(u16::try_from(number).unwrap_or(max))
}

/// A name that is also used in file names and in other programs' output.
pub(crate) fn read_id(field: &Field<'_>) -> Result<String, ConfigError> {
    let text = field.text()?;
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let rule = if text.is_empty() {
        Rule::EmptyName { what: "id" }
    } else if is_dots(text) {
        dot_name("id", text)
    } else if text.len() > ID_BYTES_MAX {
        Rule::TooLong {
            what: "id",
            got_bytes: text.len(),
            max_bytes: ID_BYTES_MAX,
        }
    } else if let Some(character) = text.chars().find(|c| !is_allowed(c)) {
        Rule::Character {
            what: "id",
            text: text.to_owned(),
            character,
            allowed: "letters, digits, - _ and .",
        }
    } else {
        return Ok(text.to_owned());
    };
    Err(rule.at(field.place()))
}

/// Many programs normalise a URL before they send it: the API could not be asked for such a name.
fn is_dots(text: &str) -> bool {
    matches!(text, "." | "..")
}

fn dot_name(what: &'static str, text: &str) -> Rule {
    Rule::DotName {
        what,
        text: text.to_owned(),
    }
}

/// The name of a user: a text that also stands in URLs of the API.
fn read_user_name(field: &Field<'_>) -> Result<String, ConfigError> {
    let name = read_text("user name", field)?;
    if is_dots(&name) {
        return Err(dot_name("user name", &name).at(field.place()));
    }
    Ok(name)
}

/// A text that goes over the wire as the value of a key.
pub(crate) fn read_text(what: &'static str, field: &Field<'_>) -> Result<String, ConfigError> {
    read_text_of(what, TEXT_BYTES_MAX, field)
}

/// The same with this many bytes at most.
pub(crate) fn read_text_of(
    what: &'static str,
    max_bytes: usize,
    field: &Field<'_>,
) -> Result<String, ConfigError> {
    let text = field.text()?;
    check_text(what, max_bytes, text).at(|| field.place())?;
    Ok(text.to_owned())
}

/// Whether a text can go over the wire.
pub(crate) fn check_text(what: &'static str, max_bytes: usize, text: &str) -> Result<(), Rule> {
    if text.is_empty() {
        return Err(Rule::EmptyName { what });
    }
    if text.len() > max_bytes {
        return Err(Rule::TooLong {
            what,
            got_bytes: text.len(),
            max_bytes,
        });
    }
    match text.chars().find(|&c| is_invisible(c)) {
        Some(character) => Err(Rule::Character {
            what,
            text: text.to_owned(),
            character,
            allowed: "characters that can be printed",
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
