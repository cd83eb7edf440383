//! What is served over HyperSCSI.

use std::net::SocketAddr;
use std::sync::Arc;

use config::{HyperScsiGroup, HyperScsiPlace, Model};
use plane::{Place, Server};
use reactor::Occupant;

/// What is served over HyperSCSI, beside the model.
#[derive(Clone, Default)]
pub(crate) struct Served {
    /// `None` until there was a group.
    pub(super) server: Option<Server>,
    /// By the position of the group in the model.
    pub(super) groups: Vec<ServedGroup>,
    /// Where frames come in.
    pub(crate) sites: Vec<ServedSite>,
}

#[derive(Clone)]
pub(super) struct ServedGroup {
    pub(super) record: Arc<[u8]>,
    /// By the position of the device.
    pub(super) handles: Vec<u16>,
    /// The handle of the next device that comes.
    pub(super) next: u16,
}

/// A place that is open.
#[derive(Clone, Debug)]
pub(crate) struct ServedSite {
    pub(crate) at: HyperScsiPlace,
    /// As it is, where it is an address; never port 0.
    pub(crate) bound: Option<SocketAddr>,
    /// Its sockets, as long as they are open, where it is an address.
    pub(crate) sockets: Vec<Occupant>,
}

impl ServedSite {
    /// What the data plane calls it.
    pub(super) fn place(&self) -> Place {
        match (&self.at, self.bound) {
            (HyperScsiPlace::Interface(name), _) => Place::Interface(name.as_str().into()),
            (HyperScsiPlace::Udp(_), Some(bound)) => Place::Udp(bound),
            (HyperScsiPlace::Udp(wanted), None) => Place::Udp(*wanted),
        }
    }
}

impl Served {
    /// The groups of a model that wait for a restart.
    pub(crate) fn waiting<'m>(&self, model: &'m Model) -> impl Iterator<Item = &'m HyperScsiGroup> {
        let groups = model.hyperscsi().iter();
        groups.filter(|group| !self.sites.iter().any(|site| site.at == group.at))
    }

    /// The real place of a group.
    pub(super) fn place_of(&self, group: &HyperScsiGroup) -> Option<Place> {
        let site = self.sites.iter().find(|site| site.at == group.at)?;
        Some(site.place())
    }
}
