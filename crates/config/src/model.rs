//! The checked model: what Tarn is to serve, with every reference resolved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use crate::error::Broken as _;
use crate::{
    Admin, Cidr, ConfigError, Confine, HyperScsiGroup, Limits, NamePattern, NamedStore, NbdServer,
    Place, Quota, Rule, Target, Unit,
};

/// Two things of a model that cannot both be there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ModelRule {
    /// Two units on one file or device, which would give one medium two states.
    #[error(
        "store {path:?} is already used at {first}; keep one, and show its unit under several LUN numbers or targets \
         instead"
    )]
    StoreTwice {
        /// The path both units name.
        path: String,
        /// Where it was used first.
        first: Place,
    },
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

/// What Tarn is to serve. Checked: only [`Model::from_toml`] and [`Model::from_stores`] make one.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) server: Server,
    pub(crate) limits: Limits,
    pub(crate) admin: Admin,
    pub(crate) confine: Confine,
    pub(crate) stores: Vec<NamedStore>,
    pub(crate) units: Vec<Unit>,
    pub(crate) users: Vec<User>,
    pub(crate) groups: Vec<Group>,
    pub(crate) targets: Vec<Target>,
    pub(crate) nbd: Vec<NbdServer>,
    pub(crate) hyperscsi: Vec<HyperScsiGroup>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) notify: Vec<crate::Notify>,
    /// From the folded name to the target.
    pub(crate) target_names: BTreeMap<String, TargetIndex>,
    /// Users that may discover and that no target and no group names.
    pub(crate) discoverers: BTreeSet<UserIndex>,
    /// Where all of it is given.
    pub(crate) place: Place,
}

/// Gives a list of the model an index type of its own, so that no index reaches another list.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub(crate) usize);

        impl $name {
            /// Position in the list of the model, counted from zero.
            pub const fn position(self) -> usize {
                self.0
            }
        }
    };
}

index! {
    /// Names a [`Unit`] of one model.
    UnitIndex
}
index! {
    /// Names a [`NamedStore`] of one model.
    StoreIndex
}
index! {
    /// Names a [`User`] of one model.
    UserIndex
}
index! {
    /// Names a [`Group`] of one model.
    GroupIndex
}
index! {
    /// Names a [`Target`] of one model.
    TargetIndex
}
index! {
    /// Names an [`NbdServer`] of one model.
    NbdIndex
}
index! {
    /// Names a [`HyperScsiGroup`] of one model.
    HyperScsiIndex
}
index! {
    /// Names a [`Quota`] of one model.
    QuotaIndex
}

/// The process itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Server {
    /// State directory; `None` leaves it to the binary, which knows the user.
    pub state: Option<PathBuf>,
    /// Cores to work on; `None` is as many as the process may use.
    pub cores: Option<NonZeroU16>,
    /// Microseconds a core looks for more work before it sleeps.
    pub busy_poll_us: u32,
    /// Whether answers wait for further ones, to go in one send.
    pub coalescing: Coalescing,
    /// How much to log; `None` leaves it to the binary.
    pub log: Option<LogLevel>,
    /// The users that may open discovery sessions; empty: all, without CHAP.
    pub discovery_auth: Vec<UserIndex>,
}

/// Whether answers wait for further ones, to go in one send.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Coalescing {
    /// Never.
    Off,
    /// While further commands of the same connection are there already.
    #[default]
    Adaptive,
    /// Always, for a moment.
    Always,
}

impl Coalescing {
    /// Reads the word.
    ///
    /// # Errors
    ///
    /// [`Rule::NotOneOf`].
    pub fn parse(text: &str) -> Result<Self, Rule> {
        match text {
            "off" => Ok(Self::Off),
            "adaptive" => Ok(Self::Adaptive),
            "always" => Ok(Self::Always),
            _ => Err(Rule::NotOneOf {
                got: text.to_owned(),
                wanted: "off, adaptive or always",
            }),
        }
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Adaptive => "adaptive",
            Self::Always => "always",
        }
    }
}

/// How much to log.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Someone's request did not happen.
    Error,
    /// Odd things too.
    Warn,
    /// Rare changes of state too.
    Info,
    /// Commands too.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// Reads the word.
    ///
    /// # Errors
    ///
    /// [`Rule::NotOneOf`].
    pub fn parse(text: &str) -> Result<Self, Rule> {
        match text {
            "off" => Ok(Self::Off),
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(Rule::NotOneOf {
                got: text.to_owned(),
                wanted: "off, error, warn, info, debug or trace",
            }),
        }
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
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

/// A file that holds a secret. The model never sees the secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretFile {
    /// The file.
    pub path: PathBuf,
    /// The path as the administrator wrote it.
    pub text: String,
    /// Where it is named, for errors that only reading it shows.
    pub place: Place,
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
    /// The CHAP user it proved to be.
    User(UserIndex),
    /// A name that its certificate proves; clients of NBD alone have one.
    Certificate(NamePattern),
}

/// An address to listen on and the portals of targets that are reached there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listener {
    /// Where to listen.
    pub bind: SocketAddr,
    /// Each target reached here, with the position of the portal in [`Target::portals`].
    pub portals: Vec<(TargetIndex, usize)>,
    /// The server of NBD that is reached here; then it has no portals.
    pub nbd: Option<NbdIndex>,
    /// Where the address is given first.
    pub place: Place,
}

impl Model {
    /// The same process with nothing to serve: what the first configuration of a run is a change of.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            server: Server {
                discovery_auth: Vec::new(),
                ..self.server.clone()
            },
            limits: self.limits.clone(),
            admin: self.admin.clone(),
            confine: self.confine.clone(),
            stores: Vec::new(),
            units: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
            targets: Vec::new(),
            nbd: Vec::new(),
            hyperscsi: Vec::new(),
            quotas: Vec::new(),
            notify: Vec::new(),
            target_names: BTreeMap::new(),
            discoverers: BTreeSet::new(),
            place: self.place.clone(),
        }
    }

    /// The process itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Replaces the settings of the process, as flags of the command line do. No other part of
    /// the model depends on them.
    pub fn set_server(&mut self, server: Server) {
        self.server = server;
    }

    /// Limits and parameters.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How administrators reach the daemon.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// What the process gives up once it serves.
    pub fn confine(&self) -> &Confine {
        &self.confine
    }

    /// All named stores, by the position of their index.
    pub fn stores(&self) -> &[NamedStore] {
        &self.stores
    }

    /// All units, by the position of their index.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// All users, by the position of their index.
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// All groups, by the position of their index.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All targets, by the position of their index.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// All servers of NBD, by the position of their index.
    pub fn nbd(&self) -> &[NbdServer] {
        &self.nbd
    }

    /// All groups of HyperSCSI, by the position of their index.
    pub fn hyperscsi(&self) -> &[HyperScsiGroup] {
        &self.hyperscsi
    }

    /// The target with this name, in any case of letters.
    pub fn target_by_name(&self, name: &str) -> Option<TargetIndex> {
        self.target_names.get(&name.to_ascii_lowercase()).copied()
    }

    /// The user with exactly this name.
    pub fn user_by_name(&self, name: &str) -> Option<UserIndex> {
        self.users
            .iter()
            .position(|user| user.name == name)
            .map(UserIndex)
    }

    /// The index of every target.
    pub fn target_indices(&self) -> impl Iterator<Item = TargetIndex> + use<> {
        (0..self.targets.len()).map(TargetIndex)
    }

    /// Each address to listen on once, with the portals that are reached there, in the order of
    /// the file; those of NBD come last. Unix sockets are not among them.
    pub fn listeners(&self) -> Vec<Listener> {
        let mut listeners: Vec<Listener> = Vec::new();
        let mut positions = HashMap::new();
        for (target_position, target) in self.targets.iter().enumerate() {
            for (portal_position, portal) in target.portals.iter().enumerate() {
                let entry = (TargetIndex(target_position), portal_position);
                let next = listeners.len();
                let position = *positions.entry(portal.bind).or_insert(next);
                match listeners.get_mut(position) {
                    Some(listener) => listener.portals.push(entry),
                    None => listeners.push(Listener {
                        bind: portal.bind,
                        portals: vec![entry],
                        nbd: None,
                        place: portal.place.clone(),
                    }),
                }
            }
        }
        let nbd = self.nbd.iter().zip(0..);
        listeners.extend(nbd.filter_map(|(server, position)| {
            Some(Listener {
                bind: server.at.address()?,
                portals: Vec::new(),
                nbd: Some(NbdIndex(position)),
                place: server.place.clone(),
            })
        }));
        listeners
    }

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
                return Err(ModelRule::StoreTwice { path, first }.at(place.clone()));
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
                        ModelRule::IdentityTwice { what, value, first }.at(unit.place.clone())
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
        let mut paths = crate::file::FirstUse::new("socket");
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
                return Err(ModelRule::PortalsOverlap {
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
                return Err(ModelRule::PortalsOverlap {
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
}

impl Model {
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
                return Err(ModelRule::PortalsOverlap {
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
    use crate::{HostPort, Portal};

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
                let Some(ModelRule::PortalsOverlap { this, other, .. }) = error.broken() else {
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
    fn discovery_tells_an_address_that_the_initiator_can_use() {
        for (bound, advertise, reached, expected) in [
            ("127.0.0.1:1", None, "192.0.2.1:1", None),
            ("[::1]:1", None, "192.0.2.1:1", None),
            ("192.0.2.1:1", None, "192.0.2.1:1", Some("192.0.2.1:1,7")),
            ("192.0.2.1:1", None, "198.51.100.1:2", Some("192.0.2.1:1,7")),
            ("192.0.2.1:1", Some("san:9"), "192.0.2.1:1", Some("san:9,7")),
            ("0.0.0.0:1", None, "192.0.2.5:2", Some("192.0.2.5:1,7")),
            ("0.0.0.0:1", None, "[2001:db8::5]:2", None),
            ("[::]:1", None, "[2001:db8::5]:2", Some("[2001:db8::5]:1,7")),
            ("[::]:1", None, "192.0.2.5:2", None),
            ("[::]:1", None, "[::ffff:192.0.2.5]:2", None),
            (
                "0.0.0.0:1",
                None,
                "[::ffff:192.0.2.5]:2",
                Some("192.0.2.5:1,7"),
            ),
        ] {
            let portal = Portal {
                bind: bound.parse().unwrap(),
                advertise: advertise.map(|text| HostPort::parse(text).unwrap()),
                group_tag: 7,
                place: Place::argument("x"),
            };
            let reached = reached.parse().unwrap();
            let from = "198.51.100.9".parse().unwrap();
            let got = portal.target_address(portal.bind, reached, from);
            assert_eq!(got.as_deref(), expected, "{bound} {reached}");
        }
    }

    #[test]
    fn loopback_portals_are_for_this_host() {
        for (bound, from, is_given) in [
            ("127.0.0.1:1", "127.0.0.1", true),
            ("127.0.0.1:1", "::ffff:127.0.0.9", true),
            ("[::1]:1", "::1", true),
            ("127.0.0.1:1", "192.0.2.1", false),
            ("[::ffff:127.0.0.1]:1", "192.0.2.1", false),
        ] {
            let portal = Portal {
                bind: bound.parse().unwrap(),
                advertise: None,
                group_tag: 1,
                place: Place::argument("x"),
            };
            let got = portal.target_address(portal.bind, portal.bind, from.parse().unwrap());
            assert_eq!(got.is_some(), is_given, "{bound} for {from}");
        }
    }
}
