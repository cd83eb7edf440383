//! `[[user]]`: who proves by CHAP who it is.

use std::path::Path;

use crate::error::{At as _, Broken as _};
use crate::fields::{dot_name, is_dots, read_text};
use crate::keys::{SECTION_MUTUAL, SECTION_USER};
use crate::names::FirstUse;
use crate::reader::{Field, Section};
use crate::{ConfigError, NamePattern, SecretFile};

/// A pattern of a user that no name matches.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "initiator {pattern:?} of a user matches no iSCSI name; write a pattern of names (iqn.*, eui.*, naa.* or *)"
)]
pub(crate) struct NameOfUserUnknown {
    /// The entry as written.
    pattern: String,
}

/// A CHAP user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// What the initiator sends as CHAP_N.
    pub name: String,
    /// Where its secret is.
    pub secret: SecretFile,
    /// With what the target proves itself, if it does.
    pub mutual: Option<Mutual>,
    /// The names that are this user's alone, and the only ones it may have; empty: it may have any.
    pub initiators: Vec<NamePattern>,
}

impl User {
    /// Whether the initiator name is one of those that are this user's alone.
    pub fn owns_name(&self, name: &str) -> bool {
        self.initiators.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether the user may come with this initiator name.
    pub fn may_have_name(&self, name: &str) -> bool {
        self.initiators.is_empty() || self.owns_name(name)
    }
}

/// The target's side of mutual CHAP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mutual {
    /// What the target sends as CHAP_N.
    pub name: String,
    /// Where its secret is.
    pub secret: SecretFile,
}

pub(crate) fn read_users(top: &Section<'_>, directory: &Path) -> Result<Vec<User>, ConfigError> {
    let mut names = FirstUse::new("user");
    let mut users = Vec::new();
    let read_secret = |section: &Section<'_>| {
        let field = section.required("secret_file")?;
        SecretFile::read("path of the secret", &field, directory)
    };
    for entry in top.entries("user")? {
        let section = entry.section(SECTION_USER)?;
        let name = section.required("name")?;
        let user = User {
            name: read_user_name(&name)?,
            secret: read_secret(&section)?,
            mutual: match section.section("mutual", SECTION_MUTUAL)? {
                None => None,
                Some(mutual) => Some(Mutual {
                    name: read_text("mutual name", &mutual.required("name")?)?,
                    secret: read_secret(&mutual)?,
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
    Err(NameOfUserUnknown { pattern }.at(entry.place()))
}

/// The name of a user: a text that also stands in URLs of the API.
fn read_user_name(field: &Field<'_>) -> Result<String, ConfigError> {
    let name = read_text("user name", field)?;
    if is_dots(&name) {
        return Err(dot_name("user name", &name).at(field.place()));
    }
    Ok(name)
}
