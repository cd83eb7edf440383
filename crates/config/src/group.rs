//! `[[group]]`: initiators that see the same units.

use crate::error::{At as _, Broken as _};
use crate::fields::read_id;
use crate::keys::SECTION_GROUP;
use crate::names::{FirstUse, Names};
use crate::reader::{Field, Section};
use crate::{AddressRule, Cidr, ConfigError, NamePattern, Place, Rule, UserIndex};

/// Why a group cannot have these initiators.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum GroupRule {
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
}

/// A group of initiators.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// The `id` of the file.
    pub id: String,
    /// An initiator that one of these matches belongs to the group; at least one.
    pub initiators: Vec<InitiatorMatch>,
    /// Unless one of these matches it. None is a user: who does not authenticate would be nobody's exclusion.
    pub excluded: Vec<InitiatorMatch>,
}

/// What makes an initiator belong to a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum InitiatorMatch {
    /// The name it claims.
    Name(NamePattern),
    /// The address it comes from.
    Address(Cidr),
    /// Both: the name it claims, and the address it comes from.
    NameAt(NamePattern, Cidr),
    /// The CHAP user it proved to be.
    User(UserIndex),
    /// A name that its certificate proves; clients of NBD alone have one.
    Certificate(NamePattern),
}

pub(crate) fn read_groups(top: &Section<'_>, users: &Names<'_>) -> Result<Vec<Group>, ConfigError> {
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
        (true, false) => Err(GroupRule::OnlyExclusions.at(field.place())),
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

/// Name and address of an entry that wants both, such as `iqn.1993-08.org.debian:*@192.0.2.0/24`.
fn name_at(text: &str) -> Option<(&str, &str)> {
    let (name, address) = text.rsplit_once('@')?;
    NamePattern::looks_like(name).then_some((name, address))
}

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
    if let Some((name, address)) = name_at(text) {
        return format!("{}@{}", initiator_form(name), initiator_form(address));
    }
    match initiator_user(text) {
        Some(user) => format!("user:{user}"),
        None => Cidr::parse(text).map_or_else(|_| text.to_ascii_lowercase(), |c| c.to_string()),
    }
}

/// A name pattern, an address or network, one of each with an `@` between them, a pattern for names in certificates, or
/// a user; `user:` says the last beyond doubt, for users whose names look like one of the others.
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
    } else if let Some((name, address)) = name_at(text) {
        let name = NamePattern::parse(name).at(place)?;
        let address = Cidr::parse(address).at(place)?;
        Ok(InitiatorMatch::NameAt(name, address))
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
            Err(GroupRule::UserExcluded { text }.at(place()))
        }
        entry @ (InitiatorMatch::Name(_)
        | InitiatorMatch::Address(_)
        | InitiatorMatch::NameAt(..)
        | InitiatorMatch::Certificate(_)) => Ok(entry),
    }
}
