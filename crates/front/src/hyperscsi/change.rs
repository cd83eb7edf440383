//! What is served changes while it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::hyperscsi::{Cookies, Entropy, Gate, GateSettings, Group as Shown, Responder, Settings};
use engine::{Engine, SessionKey};

use super::entry::PlaceEntry;
use super::keys::PlaceKey;
use super::logins::devices_of;
use super::plan::{FrameSizes, Group, GroupDevice, Place, Server};
use super::sessions::{Sessions, port_of};
use super::wire::{Notice, Wire};
use crate::station::Station;

/// What changed of the places of a core.
#[derive(Debug, Default)]
pub struct ChangedPlaces {
    /// These are there now: what comes in at their sockets is to be received.
    pub opened: Vec<PlaceKey>,
    /// These are gone, with their sockets.
    pub closed: Vec<PlaceKey>,
}

impl<C: Wire> Sessions<C> {
    /// Serves these groups from now on, and no others. Sessions of groups that are gone end, and so do those of a group
    /// with a device whose least level has risen; the others see what they may. The receipt is kept until what is over
    /// is over.
    pub fn set_groups(
        &mut self,
        engine: &mut Engine<C>,
        (server, groups): (Server, Arc<[Group]>),
        sockets: Vec<(Place, C::HyperscsiSocket, FrameSizes)>,
        receipt: &C::Receipt,
    ) -> ChangedPlaces {
        let is_other = self
            .server
            .as_ref()
            .is_some_and(|old| old.id != server.id || !Arc::ptr_eq(&old.keys, &server.keys));
        let before = std::mem::replace(&mut self.groups, Arc::clone(&groups));
        let mut changed = ChangedPlaces::default();
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for key in all {
            self.change_session(engine, key, &before, receipt);
        }
        let is_used = |place: &Place| groups.iter().any(|group| group.place == *place);
        let gone = self.sites.iter().filter(|(_, site)| !is_used(&site.place));
        changed.closed = gone.map(|(key, _)| key).collect();
        for key in &changed.closed {
            self.sites.remove(*key);
            self.asked.retain(|_, asked| asked.place != *key);
        }
        for (place, socket, sizes) in sockets {
            let is_known = self.sites.iter().any(|(_, site)| site.place == place);
            if is_known || !is_used(&place) {
                continue;
            }
            let site = self.site(&server, (place, socket, sizes));
            changed.opened.push(self.sites.insert(site));
        }
        let keys: Vec<PlaceKey> = self.sites.keys().collect();
        for key in keys {
            self.change_site(key, &server, is_other);
        }
        for group in groups.iter() {
            let is_here = self.sites.iter().any(|(_, site)| site.place == group.place);
            if !is_here {
                engine.carrier.report(Notice::GroupAway {
                    group: &group.name,
                    place: &group.place,
                });
            }
        }
        self.server = Some(server);
        changed
    }

    /// The frames of a place are of other sizes from now on: its interface has come back, or has another MTU. Sessions
    /// keep theirs; those that send frames without trying which do not fit any more end, so that their clients log in
    /// again.
    pub fn set_sizes(&mut self, engine: &mut Engine<C>, place: PlaceKey, sizes: FrameSizes) {
        let Some(site) = self.sites.get_mut(place) else {
            return;
        };
        if std::mem::replace(&mut site.sizes, sizes) == sizes {
            return;
        }
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for key in all {
            let is_large = port_of(engine, key).is_some_and(|port| {
                port.detail.place == place && port.session.frame_bytes() > sizes.base
            });
            if is_large {
                self.end(engine, key, "the MTU of its interface has become smaller");
            }
        }
    }

    /// The sizes of frames of a place.
    pub fn sizes(&self, place: PlaceKey) -> Option<FrameSizes> {
        self.sites.get(place).map(|site| site.sizes)
    }

    /// The socket of a place.
    pub fn socket(&self, place: PlaceKey) -> Option<&C::HyperscsiSocket> {
        self.sites.get(place).map(|site| &site.socket)
    }

    /// The socket of a place, to be changed.
    pub fn socket_mut(&mut self, place: PlaceKey) -> Option<&mut C::HyperscsiSocket> {
        self.sites.get_mut(place).map(|site| &mut site.socket)
    }

    /// What a place is.
    pub fn place(&self, place: PlaceKey) -> Option<&Place> {
        self.sites.get(place).map(|site| &site.place)
    }

    /// All places.
    pub fn place_keys(&self) -> Vec<PlaceKey> {
        self.sites.keys().collect()
    }

    fn change_session(
        &mut self,
        engine: &mut Engine<C>,
        key: SessionKey,
        before: &[Group],
        receipt: &C::Receipt,
    ) {
        let groups = Arc::clone(&self.groups);
        let Some(port) = port_of(engine, key) else {
            return;
        };
        let place = self.sites.get(port.detail.place).map(|site| &site.place);
        let is_it =
            |group: &&Group| group.name == *port.detail.group && Some(&group.place) == place;
        let (old, new) = (before.iter().find(is_it), groups.iter().find(is_it));
        let id = port.detail.id;
        let Some(new) = new.filter(|new| old.is_none_or(|old| !has_risen(old, new))) else {
            self.receipts.entry(id).or_default().push(receipt.clone());
            self.end(engine, key, "its group has changed");
            return;
        };
        let devices = devices_of(engine, new);
        let Some(port) = port_of(engine, key) else {
            return;
        };
        port.session.set_devices(devices);
        let luns = new.luns();
        let had = std::mem::replace(&mut port.detail.luns, luns.clone());
        engine.change_view(key, (had, luns), receipt.clone());
    }

    fn gate(&mut self, server: &Server) -> Gate<Arc<::hyperscsi::OpaqueTarget>, Station> {
        let settings = GateSettings {
            server: server.id,
            session: Settings::default(),
        };
        let entropy = Entropy::new(&self.entropy.bytes());
        Gate::new(settings, Arc::clone(&server.keys), BTreeMap::new(), entropy)
    }

    fn site(
        &mut self,
        server: &Server,
        (place, socket, sizes): (Place, C::HyperscsiSocket, FrameSizes),
    ) -> PlaceEntry<C::HyperscsiSocket> {
        PlaceEntry {
            place,
            socket,
            sizes,
            gate: self.gate(server),
            responder: Responder::new(server.id, String::new(), Vec::new()),
            cookies: Cookies::new(&mut self.entropy),
            sending: 0,
        }
    }

    /// What a place shows to clients without a session.
    fn change_site(&mut self, key: PlaceKey, server: &Server, is_other: bool) {
        let gate = is_other.then(|| self.gate(server));
        let groups = Arc::clone(&self.groups);
        let Some(site) = self.sites.get_mut(key) else {
            return;
        };
        if let Some(gate) = gate {
            site.gate = gate;
        }
        let here = || groups.iter().filter(|group| group.place == site.place);
        let record = |group: &Group| {
            (
                Group::credential(&group.name, group.user.as_deref()),
                group.record.clone(),
            )
        };
        let records = here().map(record).collect();
        let shown = here().map(|group| Shown {
            name: group.name.clone(),
            is_open: group.is_open,
        });
        site.responder = Responder::new(server.id, server.name.clone(), shown.collect());
        site.gate.set_records(records);
    }
}

/// A device asks for a higher level than it did: it may be open at a lower one.
fn has_risen(old: &Group, new: &Group) -> bool {
    let asks_more = |device: &GroupDevice| {
        let mut before = old.devices.iter();
        before.any(|one| one.handle == device.handle && one.level < device.level)
    };
    new.devices.iter().any(asks_more)
}
