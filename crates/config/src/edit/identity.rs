//! What things of the file are known by.

use std::net::SocketAddr;

use toml_edit::{TableLike, Value};

use super::list::text;
use crate::HyperScsiPlace;
use crate::address::parse_nbd_bind;

/// Where a server of NBD listens that does not say it.
const NBD_PLACE_DEFAULT: &str = "127.0.0.1:10809";

/// What names the things of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Identity {
    /// The text of this key.
    Key(&'static str),
    /// The address or the path of a server of NBD.
    Place,
    /// What a quota counts: `owner:NAME` or `pool:PLACE`.
    Counted,
    /// The name and the place of a group of HyperSCSI: `NAME at PLACE`.
    Group,
}

impl Identity {
    /// The name of a thing.
    pub(super) fn of(self, table: &dyn TableLike) -> Option<String> {
        match self {
            Self::Key(key) => text(table, key),
            Self::Place => {
                let place = text(table, "socket").or_else(|| text(table, "bind"));
                Some(place.unwrap_or_else(|| NBD_PLACE_DEFAULT.to_owned()))
            }
            Self::Counted => {
                let of = |key: &str| text(table, key).map(|text| format!("{key}:{text}"));
                of("owner").or_else(|| of("pool"))
            }
            Self::Group => hyperscsi_name_of(table),
        }
    }

    /// The keys that say the name.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Key("id") => &["id"],
            Self::Key(_) => &["name"],
            Self::Place => &["bind", "socket"],
            Self::Counted => &["owner", "pool"],
            Self::Group => &["name", "interface", "udp"],
        }
    }

    /// The keys that say a name, and their values.
    pub(super) fn key(self, name: &str) -> Option<Vec<(&'static str, Value)>> {
        let (key, text) = match self {
            Self::Key(key) => (key, name),
            Self::Place if parse_nbd_bind(name).is_ok() => ("bind", name),
            Self::Place => ("socket", name),
            Self::Counted => match name.split_once(':')? {
                ("owner", owner) => ("owner", owner),
                ("pool", pool) => ("pool", pool),
                _ => return None,
            },
            Self::Group => return hyperscsi_keys(name),
        };
        Some(vec![(key, Value::from(text))])
    }
}

/// The address of a server of NBD that is given so, with or without a port. `None`: it is none, as a path.
pub fn nbd_address(place: &str) -> Option<SocketAddr> {
    parse_nbd_bind(place).ok()
}

/// What a server of NBD is known by, as plans call it: its address with a port, or the path of its socket.
pub fn nbd_name(place: &str) -> String {
    nbd_address(place).map_or_else(|| place.to_owned(), |address| address.to_string())
}

/// What stands between the name of a group and its place.
pub(super) const AT: &str = " at ";

/// What a group is known by, as the file says it.
pub(super) fn hyperscsi_name_of(group: &dyn TableLike) -> Option<String> {
    let place = match (text(group, "interface"), text(group, "udp")) {
        (Some(interface), _) => HyperScsiPlace::parse(&interface),
        (None, Some(address)) => HyperScsiPlace::parse(&format!("udp:{address}")),
        (None, None) => return None,
    };
    Some(format!("{}{AT}{}", text(group, "name")?, place.ok()?))
}

/// The two parts of what a group is known by.
pub(super) fn parts(known_by: &str) -> Option<(&str, HyperScsiPlace)> {
    let (name, place) = known_by.rsplit_once(AT)?;
    Some((name, HyperScsiPlace::parse(place).ok()?))
}

/// The keys with which the section of a group begins.
fn hyperscsi_keys(known_by: &str) -> Option<Vec<(&'static str, Value)>> {
    let (name, place) = parts(known_by)?;
    let (key, value) = place.key_and_value();
    Some(vec![("name", Value::from(name)), (key, Value::from(value))])
}
