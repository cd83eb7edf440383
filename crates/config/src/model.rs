//! The checked model: what Tarn is to serve, with every reference resolved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use crate::{
    Admin, Confine, Group, HyperScsiGroup, Limits, NamedStore, NbdIndex, NbdServer, Notify, Place,
    Quota, Server, Target, TargetIndex, Unit, User, UserIndex,
};

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
    pub(crate) notify: Vec<Notify>,
    /// From the folded name to the target.
    pub(crate) target_names: BTreeMap<String, TargetIndex>,
    /// Users that may discover and that no target and no group names.
    pub(crate) discoverers: BTreeSet<UserIndex>,
    /// Where all of it is given.
    pub(crate) place: Place,
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

    /// All quotas, by the position of their index.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Those that get events, by the position of their index.
    pub fn notify(&self) -> &[Notify] {
        &self.notify
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
}
