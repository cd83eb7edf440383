//! What no single entry of a configuration can know of itself: that no two things take the same.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use crate::error::Broken as _;
use crate::{ConfigError, Listener, Model, Place, Rule, StoreRule, names};

/// Two things of a model that cannot both be there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum SealRule {
    /// Two units that initiators would take for the same one.
    #[error("{what} {value:?} is already that of the unit at {first}; give each unit its own")]
    IdentityTwice {
        /// Serial number or NAA designator.
        what: &'static str,
        /// The value both have.
        value: String,
        /// Where it was given first.
        first: Place,
    },
    /// Two portals of which one would take the other's address.
    #[error(
        "address {this} overlaps {other} at {first}; keep the one for all addresses or name each address"
    )]
    PortalsOverlap {
        /// This portal.
        this: String,
        /// The other one.
        other: String,
        /// Where the other one stands.
        first: Place,
    },
}

impl Model {
    /// Checks what no single entry can know of itself.
    pub(crate) fn seal(mut self) -> Result<Self, ConfigError> {
        self.check_stores()?;
        self.check_identities()?;
        self.check_nbd()?;
        self.check_own()?;
        self.check_portals()?;
        self.check_hyperscsi()?;
        self.discoverers = self.users_for_discovery_alone();
        Ok(self)
    }

    /// One medium, one unit: two units on one file would not know of each other's reservations.
    fn check_stores(&self) -> Result<(), ConfigError> {
        let mut first_use = BTreeMap::new();
        // A composition has no medium but those of its members, which are among the named stores.
        let named = self.stores.iter().map(|one| (&one.store, &one.place));
        let units = self.units.iter().map(|unit| (&unit.store, &unit.place));
        let logs = self.units.iter().filter_map(|unit| unit.log.as_ref());
        let logs = logs.map(|log| (&log.store, &log.place));
        for (store, place) in named.chain(units).chain(logs) {
            let Some(medium) = store.at.medium() else {
                continue;
            };
            if let Some(first) = first_use.insert(medium, place.clone()) {
                let path = medium.to_string();
                return Err(StoreRule::Twice { path, first }.at(place.clone()));
            }
        }
        Ok(())
    }

    fn check_identities(&self) -> Result<(), ConfigError> {
        let mut first_use = BTreeMap::new();
        for unit in &self.units {
            let serial = unit
                .serial
                .as_ref()
                .map(|serial| ("serial", serial.to_string()));
            let naa = unit.naa.map(|naa| ("naa", naa.to_string()));
            for (what, value) in serial.into_iter().chain(naa) {
                let key = (what, value.clone());
                if let Some(first) = first_use.insert(key, unit.place.clone()) {
                    return Err(
                        SealRule::IdentityTwice { what, value, first }.at(unit.place.clone())
                    );
                }
            }
        }
        Ok(())
    }

    /// Clients of NBD do not say what they speak before the server does.
    fn check_nbd(&self) -> Result<(), ConfigError> {
        let listeners = self.listeners();
        let mut first_uses = HashMap::new();
        for listener in &listeners {
            // Each port 0 is another port, but the rules know servers of NBD by their addresses.
            if listener.bind.port() == 0 && listener.nbd.is_none() {
                continue;
            }
            if let Some(first) = first_uses.insert(listener.bind, listener) {
                return Err(Rule::Twice {
                    what: "address",
                    name: listener.bind.to_string(),
                    first: first.place.clone(),
                }
                .at(listener.place.clone()));
            }
        }
        let mut paths = names::FirstUse::new("socket");
        let admin = self.admin.socket.as_deref().map(|path| (path, &self.place));
        let of_nbd = self.nbd.iter();
        let of_nbd = of_nbd.filter_map(|one| Some((one.at.socket()?.0, &one.place)));
        for (path, place) in admin.into_iter().chain(of_nbd) {
            paths.insert(path.display().to_string(), place.clone())?;
        }
        Ok(())
    }

    /// An address for all takes the port of every single one of its family.
    fn check_portals(&self) -> Result<(), ConfigError> {
        let listeners = self.listeners();
        let mut first_uses = HashMap::<_, FirstUse<'_>>::new();
        for listener in &listeners {
            let family = (listener.bind.port(), listener.bind.is_ipv4());
            let first = first_uses.entry(family).or_default();
            let earlier = if listener.bind.ip().is_unspecified() {
                first.of_any
            } else {
                first.of_all
            };
            if let Some(earlier) = earlier.filter(|other| overlap(other.bind, listener.bind)) {
                return Err(SealRule::PortalsOverlap {
                    this: listener.bind.to_string(),
                    other: earlier.bind.to_string(),
                    first: earlier.place.clone(),
                }
                .at(listener.place.clone()));
            }
            first.note(listener);
        }
        for (position, listener) in self.admin.listen.iter().enumerate() {
            let mut earlier = self.admin.listen.iter().take(position);
            if let Some(other) = earlier.find(|other| overlap(other.bind, listener.bind)) {
                return Err(SealRule::PortalsOverlap {
                    this: listener.bind.to_string(),
                    other: other.bind.to_string(),
                    first: other.place.clone(),
                }
                .at(listener.place.clone()));
            }
            let takes = |other: &&Listener| {
                let is_same = other.bind == listener.bind && listener.bind.port() != 0;
                is_same || overlap(other.bind, listener.bind)
            };
            if let Some(portal) = listeners.iter().find(takes) {
                return Err(Rule::Twice {
                    what: "address",
                    name: listener.bind.to_string(),
                    first: portal.place.clone(),
                }
                .at(listener.place.clone()));
            }
        }
        Ok(())
    }

    /// One address for all groups of a port, or several that do not overlap. Ports of UDP are not those of TCP.
    fn check_hyperscsi(&self) -> Result<(), ConfigError> {
        let mut earlier: Vec<(SocketAddr, &Place)> = Vec::new();
        for group in &self.hyperscsi {
            let Some(bind) = group.at.udp() else {
                continue;
            };
            if let Some((other, first)) = earlier
                .iter()
                .find(|(other, _)| overlap(*other, bind) && *other != bind)
            {
                return Err(SealRule::PortalsOverlap {
                    this: bind.to_string(),
                    other: other.to_string(),
                    first: (*first).clone(),
                }
                .at(group.at_place.clone()));
            }
            if earlier.iter().all(|(other, _)| *other != bind) {
                earlier.push((bind, &group.at_place));
            }
        }
        Ok(())
    }
}

/// Who takes a port first, in one family.
#[derive(Default)]
struct FirstUse<'a> {
    /// Of all addresses.
    of_any: Option<&'a Listener>,
    /// Of those that stand for all of the family.
    of_all: Option<&'a Listener>,
}

impl<'a> FirstUse<'a> {
    fn note(&mut self, listener: &'a Listener) {
        self.of_any.get_or_insert(listener);
        if listener.bind.ip().is_unspecified() {
            self.of_all.get_or_insert(listener);
        }
    }
}

/// Whether one of two different addresses stands for all of its family and takes the other's
/// port.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port()
        && a.port() != 0
        && a.is_ipv4() == b.is_ipv4()
        && (a.ip().is_unspecified() || b.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_address_for_all_takes_the_port_of_every_single_one_of_its_family() {
        #[rustfmt::skip]
        let cases = [
            (vec!["127.0.0.1:1", "127.0.0.2:1", "0.0.0.0:2", "[::]:1"], None),
            (vec!["127.0.0.1:0", "0.0.0.0:0", "127.0.0.1:0"], None),
            (vec!["127.0.0.1:1", "127.0.0.2:1", "0.0.0.0:1"], Some("127.0.0.1:1")),
            (vec!["[::1]:1", "0.0.0.0:1", "127.0.0.2:1"], Some("0.0.0.0:1")),
        ];
        for (portals, other) in cases {
            let one = |(at, bind): (usize, &&str)| {
                format!("[[target]]\nname = \"iqn.2026-11.a:t{at}\"\nportals = [\"{bind}\"]\n")
            };
            let text: String = portals.iter().enumerate().map(one).collect();
            let error = Model::from_toml(&text, Path::new("t.toml")).err();
            let found = error.map(|error| {
                let Some(SealRule::PortalsOverlap { this, other, .. }) = error.broken() else {
                    panic!("{portals:?}: {error}");
                };
                (this.clone(), other.clone())
            });
            let last = portals.last().map(ToString::to_string);
            let expected = other.and_then(|other: &str| Some((last?, other.to_owned())));
            assert_eq!(found, expected, "{portals:?}");
        }
    }

    #[test]
    fn groups_of_one_port_of_udp_are_at_one_address() {
        for (binds, other) in [
            (vec!["127.0.0.1:1", "127.0.0.1:1", "0.0.0.0:2"], None),
            (vec!["127.0.0.1:1", "127.0.0.2:1"], None),
            (
                vec!["127.0.0.1:2", "127.0.0.1:1", "0.0.0.0:1"],
                Some("127.0.0.1:1"),
            ),
            (
                vec!["0.0.0.0:1", "0.0.0.0:1", "127.0.0.1:1"],
                Some("0.0.0.0:1"),
            ),
        ] {
            let one = |(at, bind): (usize, &&str)| {
                let devices = "open = true\ndevice = [{ id = \"a\" }]";
                format!("[[hyperscsi.group]]\nname = \"g{at}\"\nudp = \"{bind}\"\n{devices}\n")
            };
            let groups: String = binds.iter().enumerate().map(one).collect();
            let text = format!("lun = [{{ id = \"a\", store = \"mem:1M\" }}]\n{groups}");
            let error = Model::from_toml(&text, Path::new("t.toml")).err();
            let found = error.map(|error| {
                let Some(SealRule::PortalsOverlap { other, .. }) = error.broken() else {
                    panic!("{binds:?}: {error}");
                };
                other.clone()
            });
            assert_eq!(found.as_deref(), other, "{binds:?}");
        }
    }
}
