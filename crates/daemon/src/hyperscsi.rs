//! HyperSCSI: what a configuration needs that is served over it, beside what its model says.
//!
//! Records of passwords are made here, of those that are new, and kept in memory alone. Devices keep their numbers as
//! long as their group has them.

mod served;

pub(crate) use self::served::Served;
use self::served::{ServedGroup, ServedSite};

use std::collections::BTreeSet;
use std::sync::Arc;

use api::plan::{Action, Kind};
use config::{
    HyperScsiGroup, HyperScsiLevel, HyperScsiPassword, HyperScsiPlace, HyperScsiProfile,
    HyperScsiRetransmit, Model,
};
use hyperscsi::limits::ETHERTYPE;
use hyperscsi::{Level, Profile, Retransmit};
use plane::{
    Group, GroupDevice, Hyperscsi, Place, Server, SessionReport, TransportDetails, UnitIndex,
    VisibleLun,
};
use reactor::Site;
use reactor::net::BindError;
use store::DeviceFacts;

use super::attempts::retry_while_in_use;
use super::effect::{Consequence, PlannedStep};
use super::own_sockets::OwnSockets;
use super::running::{Running, RunningUnit, device_type, foreign};
use crate::StartError;
use crate::interface::{self, FrameUse, check_frames};
use crate::secret::Secrets;
use crate::state::{State, entropy};

/// Longest name of a server in bytes.
const NAME_BYTES_MAX: usize = 64;

/// What a change opens.
pub(crate) type Sites = Vec<(Place, Site)>;

/// Whether all interfaces of the model can take frames, as far as can be seen without taking any.
///
/// # Errors
///
/// The first that cannot.
pub(crate) fn check_interfaces(model: &Model) -> Result<(), StartError> {
    let mut groups = model.hyperscsi().iter();
    groups.try_for_each(check_interface)
}

fn check_interface(group: &HyperScsiGroup) -> Result<(), StartError> {
    let Some(name) = group.at.interface() else {
        return Ok(());
    };
    let found = interface::find(name);
    found.map(drop).map_err(|problem| StartError::Interface {
        place: group.at_place.clone(),
        problem,
    })
}

/// The sockets of UDP, when this model replaces what runs.
fn own_sockets(old: &Running, model: &Model) -> OwnSockets {
    let mut own = OwnSockets::default();
    for site in &old.hyperscsi.sites {
        let stays = model.hyperscsi().iter().any(|group| group.at == site.at);
        for socket in &site.sockets {
            own.note(socket.clone(), stays);
        }
    }
    own
}

/// Names the groups whose address or interface cannot be had. An address is bound for a moment only: as long as it is,
/// it takes the datagrams of a wider address that is served. The sockets of an interface are made with the change.
pub(super) fn look_at_places<'a>(
    old: &Running,
    model: &'a Model,
    cores: usize,
) -> Vec<(&'a HyperScsiGroup, StartError)> {
    let is_open = |at: &HyperScsiPlace| old.hyperscsi.sites.iter().any(|site| site.at == *at);
    let own = own_sockets(old, model);
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    for group in model.hyperscsi().iter().filter(|one| !is_open(&one.at)) {
        let looked = match group.at.udp().is_none() {
            true => check_interface(group),
            false if known.insert(&group.at) => open_site(group, cores, &own).map(drop),
            false => Ok(()),
        };
        wrong.extend(looked.err().map(|error| (group, error)));
    }
    wrong
}

/// Has the steps wait for a restart that concern groups of interfaces whose sockets only the start can make, and
/// refuses those to which it had no right either. What is wrong with the interface itself is for
/// [`look_at_places`].
pub(super) fn refuse(steps: &mut [PlannedStep], old: &Running, model: &Model, cores: usize) {
    let stays =
        |step: &&mut PlannedStep| step.kind == Kind::HyperScsi && step.action != Action::Remove;
    for step in steps.iter_mut().filter(stays) {
        let mut groups = model.hyperscsi().iter();
        let Some(group) = groups.find(|group| group.to_string() == step.name) else {
            continue;
        };
        let is_open = old.hyperscsi.sites.iter().any(|site| site.at == group.at);
        let Some(name) = group.at.interface().filter(|_| !is_open) else {
            continue;
        };
        if check_interface(group).is_err() {
            continue;
        }
        if let Err(error) = check_frames(name, &group.at_place, FrameUse::Groups(cores)) {
            step.consequence = match error.needs_restart() {
                true => Consequence::Restart,
                false => Consequence::OutOfReach(error.to_string()),
            };
        }
    }
}

impl Served {
    /// What the model needs, with all that is as it was.
    ///
    /// # Errors
    ///
    /// A password of which no record can be made, or the state directory cannot be used.
    pub(super) fn of(
        (model, secrets): (&Model, &Secrets),
        units: &[RunningUnit],
        old: &Running,
        state: &State,
    ) -> Result<Self, StartError> {
        let before = &old.hyperscsi;
        let mut served = Self {
            server: before.server.clone(),
            ..Self::default()
        };
        if model.hyperscsi().is_empty() {
            return Ok(served);
        }
        let server = match served.server.take() {
            Some(server) => server,
            None => server(state)?,
        };
        for (position, group) in model.hyperscsi().iter().enumerate() {
            let was = old.hyperscsi_named(&group.to_string());
            let password = secrets.password(position);
            let keeps = was.filter(|(at, was)| {
                was.user == group.user && old.secrets.password(*at) == password
            });
            let record = keeps.and_then(|(at, _)| Some(Arc::clone(&before.groups.get(at)?.record)));
            let record = match record {
                Some(record) => record,
                None => record_of(&server, group, password)?.into(),
            };
            let (handles, next) = handles(group, units, old, was.map(|(at, _)| at));
            served.groups.push(ServedGroup {
                record,
                handles,
                next,
            });
        }
        served.server = Some(server);
        Ok(served)
    }

    /// Opens places where nobody of `old` is. Groups of an interface that only the start can open have none: they are
    /// served after a restart.
    pub(super) fn open_sites(
        &mut self,
        model: &Model,
        old: &Running,
        cores: usize,
    ) -> Result<Sites, StartError> {
        let mut sites = Sites::new();
        let own = own_sockets(old, model);
        let mut known = BTreeSet::new();
        for group in model.hyperscsi() {
            if !known.insert(&group.at) {
                continue;
            }
            let site = match old.hyperscsi.sites.iter().find(|site| site.at == group.at) {
                Some(same) => same.clone(),
                None => {
                    let opened = match open_site(group, cores, &own) {
                        Err(error) if error.needs_restart() => continue,
                        opened => opened?,
                    };
                    let site = ServedSite {
                        at: group.at.clone(),
                        bound: opened.address(),
                        sockets: opened.occupants(),
                    };
                    sites.push((site.place(), opened));
                    site
                }
            };
            self.sites.push(site);
        }
        Ok(sites)
    }

    /// What the data plane gets, when it has all units; `None` as long as there was no group.
    pub(super) fn for_plane(&self, running: &Running, open: Sites) -> Option<Hyperscsi> {
        Some(Hyperscsi {
            server: self.server.clone()?,
            groups: self.plans(running),
            open,
        })
    }

    fn plans(&self, running: &Running) -> Vec<Group> {
        let groups = running.model.hyperscsi().iter().zip(&self.groups);
        let plan = |(group, served): (&HyperScsiGroup, &ServedGroup)| {
            let devices = group.devices.iter().zip(&served.handles);
            Some(Group {
                name: group.name.clone(),
                user: group.user.clone(),
                place: self.place_of(group)?,
                profile: profile(group.profile),
                retransmit: retransmit(group.retransmit),
                is_open: matches!(group.password, HyperScsiPassword::Open { .. }),
                record: served.record.to_vec(),
                devices: devices
                    .filter_map(|(device, handle)| device_plan(running, device, *handle))
                    .collect(),
            })
        };
        groups.filter_map(plan).collect()
    }
}

impl Running {
    /// The group of HyperSCSI that is called so, and its position.
    fn hyperscsi_named(&self, name: &str) -> Option<(usize, &HyperScsiGroup)> {
        let mut groups = self.model.hyperscsi().iter().enumerate();
        groups.find(|(_, group)| group.to_string() == name)
    }
}

/// A unit as a device; `None` where nobody may see it.
fn device_plan(
    running: &Running,
    device: &config::HyperScsiDevice,
    handle: u16,
) -> Option<GroupDevice> {
    let unit = running.units.get(device.unit.position())?;
    if unit.identity.is_withheld {
        return None;
    }
    let naa = unit.identity.naa.as_bytes();
    let mut designator = [0; 16];
    designator
        .iter_mut()
        .zip(naa)
        .for_each(|(to, from)| *to = *from);
    let model = running.model.units().get(device.unit.position())?;
    let foreign = foreign(Some(model), &unit.store);
    let foreign = foreign.as_deref();
    Some(GroupDevice {
        handle,
        name: device.name.clone(),
        unit: unit.index,
        level: level(device.level),
        read_only: device.read_only,
        is_removable: foreign.map_or(model.store.removable, DeviceFacts::is_removable),
        peripheral_type: device_type(Some(model), foreign) as u8,
        designator,
    })
}

/// The handles of the devices of a group, and the next one. A unit that stays in its group keeps its handle; no
/// other gets one that was in use.
fn handles(
    group: &HyperScsiGroup,
    units: &[RunningUnit],
    old: &Running,
    was: Option<usize>,
) -> (Vec<u16>, u16) {
    let before = was.and_then(|at| {
        Some((
            old.model.hyperscsi().get(at)?,
            old.hyperscsi.groups.get(at)?,
        ))
    });
    let known: Vec<_> = before
        .into_iter()
        .flat_map(|(group, served)| group.devices.iter().zip(&served.handles))
        .filter_map(|(device, handle)| {
            Some((old.units.get(device.unit.position())?.index, *handle))
        })
        .collect();
    let next = before.map_or(1, |(_, served)| served.next);
    let devices = group.devices.iter();
    let wanted = devices.map(|device| units.get(device.unit.position()).map(|unit| unit.index));
    number(&known, next, wanted)
}

/// A number for each unit: that which is known, or the next that is free.
fn number(
    known: &[(UnitIndex, u16)],
    mut next: u16,
    wanted: impl Iterator<Item = Option<UnitIndex>>,
) -> (Vec<u16>, u16) {
    let mut used: BTreeSet<u16> = known.iter().map(|(_, handle)| *handle).collect();
    let handles = wanted.map(|index| {
        let same = known.iter().find(|(known, _)| Some(*known) == index);
        if let Some((_, handle)) = same {
            return *handle;
        }
        // There are at most 1024 devices before and after.
        while !used.insert(next) {
            next = if next >= HANDLE_MAX { 1 } else { next + 1 };
        }
        next
    });
    (handles.collect(), next)
}

/// Largest handle of a device: it is a LUN of its sessions.
const HANDLE_MAX: u16 = config::LunNumber::MAX;

/// The server of this process.
fn server(state: &State) -> Result<Server, StartError> {
    let key = state.hyperscsi_key()?;
    let keys = key.target().ok_or_else(|| StartError::StateUnusable {
        path: state.directory().join("hyperscsi.toml"),
        source: std::io::ErrorKind::InvalidData.into(),
    })?;
    Ok(Server {
        id: key.server,
        name: server_name(),
        keys: Arc::new(keys),
    })
}

/// What people know this machine by, cut to what goes over the wire.
fn server_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let mut name: String = name.chars().filter(|&c| !config::is_invisible(c)).collect();
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    if name.is_empty() {
        name.push_str("localhost");
    }
    name
}

fn record_of(
    server: &Server,
    group: &HyperScsiGroup,
    password: Option<&crate::secret::Secret>,
) -> Result<Vec<u8>, StartError> {
    let name = Group::credential(&group.name, group.user.as_deref());
    let password = password.map(crate::secret::Secret::as_bytes);
    let mut entropy = entropy()?;
    let record = password.and_then(|password| server.keys.record(&name, password, &mut entropy));
    record.ok_or_else(|| StartError::PasswordUnusable {
        place: group.place.clone(),
    })
}

fn open_site(group: &HyperScsiGroup, cores: usize, own: &OwnSockets) -> Result<Site, StartError> {
    match &group.at {
        HyperScsiPlace::Interface(name) => {
            check_frames(name, &group.at_place, FrameUse::Groups(cores))?;
            Site::interface(name, ETHERTYPE, cores).map_err(|source| StartError::Frames {
                place: group.at_place.clone(),
                source,
            })
        }
        HyperScsiPlace::Udp(address) => {
            let is_in_use = |error: &BindError| matches!(error, BindError::InUse { .. });
            let opened = retry_while_in_use(|| Site::udp(*address, cores, own.going()), is_in_use);
            opened.map_err(|source| own.refused(group.at_place.clone(), source))
        }
    }
}

const fn level(level: HyperScsiLevel) -> Level {
    match level {
        HyperScsiLevel::None => Level::None,
        HyperScsiLevel::Crc => Level::Crc,
        HyperScsiLevel::Hash => Level::Hash,
        HyperScsiLevel::Encrypt => Level::Encrypt,
    }
}

const fn profile(profile: HyperScsiProfile) -> Profile {
    match profile {
        HyperScsiProfile::Wired => Profile::WIRED,
        HyperScsiProfile::Wireless => Profile::WIRELESS,
    }
}

const fn retransmit(retransmit: HyperScsiRetransmit) -> Retransmit {
    match retransmit {
        HyperScsiRetransmit::Selective => Retransmit::Selective,
        HyperScsiRetransmit::Window => Retransmit::Window,
    }
}

/// The group of a session, if that is one of HyperSCSI.
pub(super) fn group_of<'a>(
    running: &'a Running,
    session: &SessionReport,
) -> Option<&'a HyperScsiGroup> {
    let TransportDetails::Hyperscsi { group, place, .. } = &session.transport else {
        return None;
    };
    let mut groups = running.model.hyperscsi().iter();
    groups
        .find(|one| one.name == **group && running.hyperscsi.place_of(one).as_ref() == Some(place))
}

/// The sessions that end with a change to this model: their group is gone, or they may have a device open at a level
/// that is too low then.
pub(super) fn ended(
    old: &Running,
    model: &Model,
    sessions: &[SessionReport],
) -> Vec<SessionReport> {
    let ends = |session: &&SessionReport| {
        let Some(before) = group_of(old, session).filter(|_| !session.is_ending) else {
            return false;
        };
        let mut groups = model.hyperscsi().iter();
        let after = groups.find(|group| group.to_string() == before.to_string());
        after.is_none_or(|after| has_higher_level(before, after))
    };
    sessions.iter().filter(ends).cloned().collect()
}

/// What a session keeps of what it sees with a change to this model, whose `units` are these by position. `None`: it is
/// of another transport, or its group is gone.
pub(super) fn kept(
    old: &Running,
    (model, units): (&Model, &[UnitIndex]),
    session: &SessionReport,
) -> Option<Vec<VisibleLun>> {
    let before = group_of(old, session)?.to_string();
    let after = model
        .hyperscsi()
        .iter()
        .find(|group| group.to_string() == before)?;
    let devices = after.devices.iter();
    let served: Vec<_> = devices
        .filter_map(|one| units.get(one.unit.position()))
        .collect();
    let luns = session.luns.iter().copied();
    Some(luns.filter(|lun| served.contains(&&lun.unit)).collect())
}

/// Whether a device of both needs more protection in the second.
pub(super) fn has_higher_level(before: &HyperScsiGroup, after: &HyperScsiGroup) -> bool {
    before.devices.iter().any(|device| {
        let mut devices = after.devices.iter();
        devices.any(|one| one.name == device.name && one.level > device.level)
    })
}

/// The interfaces of groups of which something is wrong now.
pub(super) fn interfaces(model: &Model) -> Vec<(String, interface::Problem)> {
    let names: BTreeSet<&str> = model
        .hyperscsi()
        .iter()
        .filter_map(|group| group.at.interface())
        .collect();
    let wrong = names.into_iter().filter_map(|name| {
        let problem = interface::find(name).err()?;
        Some((name.to_owned(), problem))
    });
    wrong.collect()
}

/// Where each group is reached, as the start shows it.
pub(crate) fn hyperscsi_places(running: &Running) -> Vec<String> {
    let groups = running.model.hyperscsi().iter();
    let place = |group: &HyperScsiGroup| {
        let mut sites = running.hyperscsi.sites.iter();
        let site = sites.find(|site| site.at == group.at);
        let bound = site.and_then(|site| site.bound);
        bound.map_or_else(|| group.at.to_string(), |bound| format!("udp:{bound}"))
    };
    groups.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_stays_keeps_its_number_and_no_other_gets_it() {
        let wanted = |units: &[u32]| {
            let units = units.iter().map(|unit| Some(UnitIndex(*unit)));
            units.collect::<Vec<_>>().into_iter()
        };
        let known = |units: &[u32], handles: &[u16]| {
            let units = units.iter().map(|unit| UnitIndex(*unit));
            units.zip(handles.iter().copied()).collect::<Vec<_>>()
        };
        let (first, next) = number(&[], 1, wanted(&[7, 8, 9]));
        assert_eq!(first, [1, 2, 3]);
        let (second, next) = number(&known(&[7, 8, 9], &first), next, wanted(&[9, 5, 7]));
        assert_eq!(second, [3, 4, 1]);
        let (third, next) = number(&known(&[9, 5, 7], &second), next, wanted(&[8]));
        assert_eq!(
            (third[0], next),
            (5, 5),
            "8 was gone: its number is not given again"
        );
        let (last, next) = number(&[(UnitIndex(1), 1)], HANDLE_MAX, wanted(&[1, 2, 3]));
        assert_eq!((last, next), (vec![1, HANDLE_MAX, 2], 2));
        // New units have no index of their own yet.
        let new = UnitIndex(u32::MAX);
        let (new, _) = number(&[], 1, [Some(new), Some(new), None].into_iter());
        assert_eq!(new, [1, 2, 3]);
    }

    #[test]
    fn words_of_the_configuration_are_those_of_the_protocol() {
        use HyperScsiLevel as Word;
        let levels = [Word::None, Word::Crc, Word::Hash, Word::Encrypt].map(level);
        assert_eq!(
            levels,
            [Level::None, Level::Crc, Level::Hash, Level::Encrypt]
        );
        assert_eq!(profile(HyperScsiProfile::Wired), Profile::WIRED);
        assert_eq!(profile(HyperScsiProfile::Wireless), Profile::WIRELESS);
        assert_eq!(
            [HyperScsiRetransmit::Selective, HyperScsiRetransmit::Window].map(retransmit),
            [Retransmit::Selective, Retransmit::Window]
        );
    }

    #[test]
    fn the_name_of_the_server_goes_over_the_wire() {
        let name = server_name();
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "{name}");
    }
}
