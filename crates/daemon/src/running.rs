//! What runs: the model and what each part of it is in the data plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admin::{ServiceTls, SocketFile};
use config::{InquiryNames, Model};
use plane::{
    Coalescing, Holding, PortPlan, PortalIndex, Restored, Settings, StateAuthority, TargetIndex,
    TargetPlan, TlsConfig, UnitIndex, UnitPlan,
};
use reactor::Occupant;
use scsi::{DeviceType, Identity, Profile, TargetPort};
use store::{DeviceFacts, SharedStore};

use super::hyperscsi::Served;
use super::opened::OpenStore;
use crate::StartError;
use crate::access::{ModelPolicy, Rules, WITHHELD};
use crate::locate::Location;
use crate::secret::Secrets;
use crate::state::{PortName, State, UnitIdentity};

/// PROTOCOL IDENTIFIER and version descriptor of iSCSI.
///
/// Spec: SPC-5, PROTOCOL IDENTIFIER values, version descriptor values.
const PROTOCOL_ISCSI: u8 = 0x05;
const VERSION_ISCSI: u16 = 0x0960;

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET,
/// LOGICAL UNIT RESET, TARGET RESET.
///
/// Spec: SPC-5, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
const TASK_MANAGEMENT: [u8; 2] = [0x80 | 0x40 | 0x10 | 0x08 | 0x02, 0x00];

/// A configuration in force. Replaced as a whole, never changed.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) model: Arc<Model>,
    pub(crate) secrets: Arc<Secrets>,
    /// By the position of the unit in the model.
    pub(crate) units: Vec<RunningUnit>,
    /// By the position of the target in the model.
    pub(crate) targets: Vec<TargetIndex>,
    /// The first index no target has had.
    pub(crate) next_target: u32,
    pub(crate) ports: PortNumbers,
    pub(crate) listeners: Vec<RunningListener>,
    /// The unix sockets of servers of NBD.
    pub(crate) sockets: Vec<RunningSocket>,
    /// By the position of the server of NBD: its TLS, from the files as they were read last.
    pub(crate) tls: Vec<Option<ServiceTls>>,
    /// What is served over HyperSCSI.
    pub(crate) hyperscsi: Served,
}

/// Stands for the index of a unit that the data plane does not have yet.
const NO_UNIT: UnitIndex = UnitIndex(u32::MAX);

/// Stands for the index of an address at which the data plane does not listen yet.
pub(crate) const NO_PORTAL: PortalIndex = PortalIndex(u32::MAX);

/// A unit and its store.
#[derive(Clone)]
pub(crate) struct RunningUnit {
    /// Given by the data plane when it takes the unit up; `NO_UNIT` until then.
    pub(crate) index: UnitIndex,
    pub(crate) store: Arc<dyn SharedStore>,
    /// The store as it was opened.
    pub(crate) opened: OpenStore,
    pub(crate) identity: UnitIdentity,
    /// Where its data was when it was opened.
    pub(crate) location: Option<Location>,
}

impl RunningUnit {
    /// A unit that the data plane does not have yet.
    pub(crate) fn new(
        opened: OpenStore,
        identity: UnitIdentity,
        location: Option<Location>,
    ) -> Self {
        Self {
            index: NO_UNIT,
            store: Arc::clone(&opened.store),
            opened,
            identity,
            location,
        }
    }

    /// What it is for initiators, where the configuration has it as `unit`.
    pub(crate) fn device_type(&self, unit: &config::Unit) -> DeviceType {
        device_type(Some(unit), foreign(Some(unit), &self.store).as_deref())
    }

    /// The same, as what a served unit becomes with another medium, if it can be that.
    pub(super) fn in_place_of(self, served: Option<&Self>) -> Self {
        let fits = |served: &&Self| {
            let (old, new) = (served.store.capabilities(), self.store.capabilities());
            Arc::ptr_eq(&self.identity.state, &served.identity.state)
                && self.opened.held.is_none()
                && served.opened.held.is_none()
                && old.block_bytes == new.block_bytes
                && old.has_cache() == new.has_cache()
        };
        let index = served
            .filter(fits)
            .map_or(self.index, |served| served.index);
        Self { index, ..self }
    }

    /// The same, with its data there.
    pub(super) fn at(self, location: Option<Location>) -> Self {
        Self { location, ..self }
    }

    /// What initiators are shown it as.
    fn shown(&self) -> UnitIndex {
        if self.identity.is_withheld {
            WITHHELD
        } else {
            self.index
        }
    }
}

/// An address that is listened on.
#[derive(Clone, Debug)]
pub(crate) struct RunningListener {
    /// Given by the data plane when it listens; [`NO_PORTAL`] until then.
    pub(crate) index: PortalIndex,
    /// As it is configured.
    pub(crate) wanted: SocketAddr,
    /// As it is; never port 0.
    pub(crate) bound: SocketAddr,
    /// Clients of NBD come in here.
    pub(crate) is_nbd: bool,
    /// The socket, as long as it is open.
    pub(crate) socket: Occupant,
}

/// A unix socket where clients of NBD come in.
#[derive(Clone, Debug)]
pub(crate) struct RunningSocket {
    /// Given by the data plane when it listens; [`NO_PORTAL`] until then.
    pub(crate) index: PortalIndex,
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    /// Its file, which goes with the last one who knows of it; `None`: it is that of the service manager.
    pub(crate) file: Option<Arc<SocketFile>>,
}

impl RunningSocket {
    /// Gives its file the mode that it is to have now.
    pub(crate) fn set_mode(&self) {
        let Some(file) = &self.file else {
            return;
        };
        let mode = Permissions::from_mode(self.mode);
        if let Err(error) = std::fs::set_permissions(file.path(), mode) {
            let path = file.path().display();
            tracing::warn!(
                %path,
                %error,
                "the socket keeps its mode until the next start, as a confined process changes none; use chmod"
            );
        }
    }
}

/// The relative target port identifiers, kept in the state directory: reservations name ports by
/// them, also after a restart.
///
/// Spec: SPC-5, relative target port identifier.
#[derive(Clone, Debug)]
pub(crate) struct PortNumbers(BTreeMap<PortName, u16>);

impl PortNumbers {
    /// Of every port of the model; one that has no number yet gets one.
    pub(crate) fn of_model(model: &Model, state: &State) -> Result<Self, StartError> {
        let targets = model.targets().iter();
        let names = targets.flat_map(|target| tags(target).into_iter().map(|tag| key(target, tag)));
        Ok(Self(state.port_numbers(&names.collect())?))
    }

    /// As [`PortNumbers::of_model`], for a start: it does not fail where they cannot be kept.
    pub(crate) fn of_start(model: &Model, state: &State) -> Result<Self, StartError> {
        let targets = model.targets().iter();
        let names = targets.flat_map(|target| tags(target).into_iter().map(|tag| key(target, tag)));
        Ok(Self(state.port_numbers_of_start(&names.collect())?))
    }

    /// The ports of a target, one for each portal group.
    pub(crate) fn of(&self, target: &config::Target) -> Vec<PortPlan> {
        tags(target)
            .into_iter()
            .filter_map(|portal_group_tag| {
                let relative_id = *self.0.get(&key(target, portal_group_tag))?;
                Some(PortPlan {
                    portal_group_tag,
                    relative_id,
                })
            })
            .collect()
    }
}

fn key(target: &config::Target, tag: u16) -> PortName {
    (target.name.as_str().to_ascii_lowercase(), tag)
}

fn tags(target: &config::Target) -> BTreeSet<u16> {
    let portals = target.portals.iter();
    portals.map(|portal| portal.group_tag).collect()
}

impl Running {
    /// Nothing, in a process with the settings of this model.
    pub(crate) fn nothing(model: &Model) -> Self {
        Self {
            model: Arc::new(model.emptied()),
            secrets: Arc::default(),
            units: Vec::new(),
            targets: Vec::new(),
            next_target: 0,
            ports: PortNumbers(BTreeMap::new()),
            listeners: Vec::new(),
            sockets: Vec::new(),
            tls: Vec::new(),
            hyperscsi: Served::default(),
        }
    }

    /// The real address of every portal, by target and position.
    pub(crate) fn bound(&self) -> Vec<Vec<SocketAddr>> {
        bound(&self.model, &self.listeners)
    }

    /// What a unit is called, by its position.
    pub(crate) fn unit_name(&self, position: usize) -> String {
        let unit = self.model.units().get(position);
        unit.map(ToString::to_string).unwrap_or_default()
    }

    /// The position of the unit of this name.
    pub(crate) fn unit_position_named(&self, name: &str) -> Option<usize> {
        let mut units = self.model.units().iter();
        units.position(|unit| unit.to_string() == name)
    }

    /// The unit of this name.
    pub(crate) fn unit_named(&self, name: &str) -> Option<&RunningUnit> {
        let mut units = self.model.units().iter().zip(&self.units);
        let named = units.find(|(unit, _)| unit.to_string() == name);
        named.map(|(_, served)| served)
    }

    /// The rules of access.
    pub(crate) fn policy(&self) -> ModelPolicy {
        ModelPolicy::new(Rules {
            model: Arc::clone(&self.model),
            secrets: &self.secrets,
            units: self.units.iter().map(RunningUnit::shown).collect(),
            targets: self.targets.clone(),
            bound: self.bound(),
            tls: self.tls_configs(),
        })
    }

    fn tls_configs(&self) -> Vec<Option<TlsConfig>> {
        let config = |tls: &ServiceTls| Arc::clone(&tls.config);
        let all = self.tls.iter();
        all.map(|tls| tls.as_ref().map(config)).collect()
    }

    /// The TLS of the server of NBD that is called so.
    pub(crate) fn tls_of(&self, name: &str) -> Option<&ServiceTls> {
        let mut servers = self.model.nbd().iter();
        let position = servers.position(|one| one.at.to_string() == name)?;
        self.tls.get(position)?.as_ref()
    }

    /// The rules of another model, to ask what would be: with the units and targets of this one
    /// as far as they stay. `from` has the position here of every unit of the model.
    pub(crate) fn policy_of(
        &self,
        model: &Model,
        from: &[Option<usize>],
        secrets: &Secrets,
    ) -> ModelPolicy {
        const NEW_UNIT: UnitIndex = UnitIndex(u32::MAX - 1);
        const NEW_TARGET: TargetIndex = TargetIndex(u32::MAX);
        let unit = |from: &Option<usize>| {
            let served = from.and_then(|at| self.units.get(at));
            served.map_or(NEW_UNIT, RunningUnit::shown)
        };
        let target = |target: &config::Target| {
            let index = self.model.target_by_name(target.name.as_str());
            let index = index.and_then(|index| self.targets.get(index.position()));
            index.copied().unwrap_or(NEW_TARGET)
        };
        ModelPolicy::new(Rules {
            model: Arc::new(model.clone()),
            secrets,
            units: from.iter().map(unit).collect(),
            targets: model.targets().iter().map(target).collect(),
            bound: bound(model, &self.listeners),
            // Nobody begins TLS in rules that are only asked.
            tls: Vec::new(),
        })
    }

    /// The position of a unit of the data plane in the model.
    pub(crate) fn unit_position(&self, index: UnitIndex) -> Option<usize> {
        self.units.iter().position(|unit| unit.index == index)
    }

    /// The position of a target of the data plane in the model.
    pub(crate) fn target_position(&self, index: TargetIndex) -> Option<usize> {
        self.targets.iter().position(|&target| target == index)
    }

    /// All targets, for the front.
    pub(crate) fn target_plans(&self) -> Vec<(TargetIndex, TargetPlan)> {
        let plan = |(index, target): (&TargetIndex, &config::Target)| {
            let name = target.name.as_str().to_owned();
            let ports = self.ports.of(target);
            let cold_reset = target.cold_reset;
            let plan = TargetPlan {
                name,
                ports,
                cold_reset,
            };
            (*index, plan)
        };
        self.targets
            .iter()
            .zip(self.model.targets())
            .map(plan)
            .collect()
    }
}

/// The real address of every portal of a model, by target and position.
pub(crate) fn bound(model: &Model, listeners: &[RunningListener]) -> Vec<Vec<SocketAddr>> {
    let real = |portal: &config::Portal| {
        let mut listeners = listeners.iter().filter(|one| !one.is_nbd);
        let listener = listeners.find(|one| one.wanted == portal.bind);
        listener.map_or(portal.bind, |listener| listener.bound)
    };
    let targets = model.targets().iter();
    targets
        .map(|target| target.portals.iter().map(real).collect())
        .collect()
}

/// Where each server of NBD is reached, as the start shows it.
pub(crate) fn nbd_places(running: &Running) -> Vec<String> {
    let bound = running.listeners.iter().filter(|one| one.is_nbd);
    let mut bound = bound.map(|one| one.bound.to_string());
    let servers = running.model.nbd().iter();
    let place = |server: &config::NbdServer| match &server.at {
        config::NbdPlace::Address(address) => bound.next().unwrap_or_else(|| address.to_string()),
        config::NbdPlace::Socket { path, .. } => path.display().to_string(),
    };
    servers.map(place).collect()
}

/// What the data plane must know of a unit.
pub(crate) fn unit_plan(
    model: &Model,
    position: usize,
    store: &Arc<dyn SharedStore>,
    identity: &UnitIdentity,
    ports: &PortNumbers,
) -> std::io::Result<UnitPlan> {
    Ok(UnitPlan {
        name: model
            .units()
            .get(position)
            .map(ToString::to_string)
            .unwrap_or_default(),
        profile: profile(model, position, store, identity, ports),
        store: Arc::clone(store),
        restored: restored(identity)?,
        authority: Arc::clone(&identity.state) as Arc<dyn StateAuthority>,
        losses: Arc::default(),
    })
}

/// What was kept of a unit. One whose state is damaged is served, and refuses what lost reservations could forbid.
fn restored(identity: &UnitIdentity) -> std::io::Result<Restored> {
    match identity.state.load() {
        Ok(None) => Ok(Restored::Nothing),
        Ok(Some(saved)) => Ok(Restored::State(saved)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(Restored::Damaged),
        Err(error) => Err(error),
    }
}

/// From when on a command is slow; `None`: never.
pub(crate) fn slow_command(model: &Model) -> Option<Duration> {
    let ms = model.limits().slow_command_ms;
    (ms > 0).then(|| Duration::from_millis(ms.into()))
}

/// What a unit says of itself.
pub(crate) fn profile(
    model: &Model,
    position: usize,
    store: &Arc<dyn SharedStore>,
    identity: &UnitIdentity,
    ports: &PortNumbers,
) -> Profile {
    let unit = model.units().get(position);
    let foreign = foreign(unit, store);
    Profile {
        device_type: device_type(unit, foreign.as_deref()),
        identity: scsi_identity((model, position), foreign.as_deref(), identity, ports),
        limits: scsi::Limits::default(),
        capabilities: store.capabilities(),
        has_vendor_commands: unit.is_some_and(|unit| unit.vendor_commands),
        foreign,
        keeps_state: identity.state.is_kept(),
    }
}

/// The PRODUCT REVISION LEVEL of a unit that has no other.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);

/// What a device of others has said of itself: nothing where it could not be asked yet.
pub(crate) fn foreign(
    unit: Option<&config::Unit>,
    store: &Arc<dyn SharedStore>,
) -> Option<Arc<DeviceFacts>> {
    let kind = unit.map(|unit| unit.store.at.kind.row().device);
    let is_foreign = kind == Some(config::DeviceType::Foreign);
    is_foreign.then(|| store.device().unwrap_or_default())
}

/// What a unit is: what the configuration says, or what a device of others says.
pub(crate) fn device_type(
    unit: Option<&config::Unit>,
    foreign: Option<&DeviceFacts>,
) -> DeviceType {
    match (unit.map(|unit| unit.store.at.kind.row().device), foreign) {
        // No driver of an initiator cares for a processor, as which one counts that was not asked yet.
        (_, Some(facts)) => DeviceType::of(facts.device_type()).unwrap_or(DeviceType::Processor),
        (Some(config::DeviceType::Optical), None) => DeviceType::Optical,
        (Some(config::DeviceType::Disk | config::DeviceType::Foreign) | None, None) => {
            DeviceType::Disk
        }
    }
}

/// What a unit reports to initiators, with every target port that exports it.
fn scsi_identity(
    (model, position): (&Model, usize),
    foreign: Option<&DeviceFacts>,
    identity: &UnitIdentity,
    ports: &PortNumbers,
) -> Identity {
    let mut target_ports = Vec::new();
    for target in model.targets() {
        let shows = |entry: &config::TargetLun| entry.unit.position() == position;
        if !target.luns.entries().iter().any(shows) {
            continue;
        }
        for port in ports.of(target) {
            target_ports.push(TargetPort {
                relative_id: port.relative_id,
                // All ports reach the store in the same way: one group, active/optimized.
                group: 1,
                scsi_name: format!("{},t,0x{:04x}", target.name, port.portal_group_tag),
                device_name: target.name.as_str().to_owned(),
                protocol_identifier: PROTOCOL_ISCSI,
                protocol_version: VERSION_ISCSI,
            });
        }
    }
    let unit = model.units().get(position);
    let InquiryNames {
        vendor,
        product,
        revision,
    } = unit.map(|unit| unit.inquiry.clone()).unwrap_or_default();
    let is_drive = device_type(unit, foreign) == DeviceType::Optical;
    let own_product = if is_drive { "DVD-ROM" } else { "DISK" };
    let own = || ["TARN", own_product, VERSION].map(str::to_owned);
    let [its_vendor, its_product, its_revision] = foreign.map_or_else(own, DeviceFacts::names);
    Identity {
        vendor: vendor.unwrap_or(its_vendor),
        product: product.unwrap_or(its_product),
        revision: revision.unwrap_or(its_revision),
        serial: identity.serial.as_str().to_owned(),
        naa: identity.naa.as_bytes().to_vec(),
        eui: None,
        target_ports,
        task_management: TASK_MANAGEMENT,
        removable: match foreign {
            Some(facts) => facts.is_removable(),
            None => unit.is_some_and(|unit| unit.store.removable),
        },
    }
}

/// What the data plane of so many cores gets.
pub(crate) fn settings(model: &Model, cores: usize) -> Settings {
    let (limits, server) = (model.limits(), model.server());
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let count = |count: u32| size(u64::from(count));
    Settings {
        cores,
        pool_bytes: size(limits.pool_per_core_bytes),
        busy_poll: Duration::from_micros(u64::from(server.busy_poll_us)),
        coalescing: match server.coalescing {
            config::Coalescing::Off => Coalescing::Off,
            config::Coalescing::Adaptive => Coalescing::Adaptive,
            config::Coalescing::Always => Coalescing::Always,
        },
        sessions_max: count(limits.sessions_max),
        logins_max: count(limits.connections_in_login_max),
        discovery_max: count(limits.discovery_sessions_max),
        discovery_lifetime: seconds(limits.discovery_lifetime_seconds),
        unproved_per_address_max: count(limits.unproved_per_address_max),
        connections_max: usize::MAX,
        holding: Holding::new(size(limits.unproved_memory_bytes)),
        gap_timeout: seconds(limits.command_gap_seconds),
        login_timeout: seconds(limits.login_timeout_seconds),
        queue_depth: u32::from(limits.queue_depth),
        nop_interval: (limits.nop_interval_seconds > 0)
            .then(|| seconds(limits.nop_interval_seconds)),
        nop_timeout: seconds(limits.nop_timeout_seconds),
        abort_timeout: seconds(limits.task_deadline_seconds),
        fence_timeout: seconds(limits.task_deadline_seconds),
        core_stall_limit: seconds(limits.core_stall_limit_seconds),
        stop_timeout: seconds(limits.shutdown_timeout_seconds),
        slow_command: slow_command(model),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::serve::living::Living;

    #[test]
    fn each_limit_is_what_the_data_plane_gets_and_zero_turns_off_what_can_be_off() {
        let text = "[limits]\npool_per_core_bytes = \"16M\"\nsessions_max = 11\nconnections_in_login_max = 12\n\
                    discovery_sessions_max = 13\ndiscovery_lifetime_seconds = 14\nunproved_per_address_max = 15\n\
                    command_gap_seconds = 16\nlogin_timeout_seconds = 17\nqueue_depth = 18\n\
                    nop_interval_seconds = 19\nnop_timeout_seconds = 20\ntask_deadline_seconds = 21\n\
                    core_stall_limit_seconds = 22\nshutdown_timeout_seconds = 23\nslow_command_ms = 24\n\
                    [server]\nbusy_poll_us = 25\ncoalescing = \"always\"\n";
        let of = |text: &str| settings(&Model::from_toml(text, Path::new("/t.toml")).unwrap(), 7);
        let all = of(text);
        let seconds = Duration::from_secs;
        assert_eq!((all.cores, all.pool_bytes), (7, 16 << 20));
        assert_eq!(
            (all.sessions_max, all.logins_max, all.discovery_max),
            (11, 12, 13)
        );
        let times = [all.discovery_lifetime, all.gap_timeout, all.login_timeout];
        assert_eq!(times, [14, 16, 17].map(seconds));
        assert_eq!((all.unproved_per_address_max, all.queue_depth), (15, 18));
        assert_eq!(all.nop_interval, Some(seconds(19)));
        let times = [all.nop_timeout, all.abort_timeout, all.fence_timeout];
        assert_eq!(times, [20, 21, 21].map(seconds));
        let times = [all.core_stall_limit, all.stop_timeout];
        assert_eq!(times, [22, 23].map(seconds));
        assert_eq!(all.slow_command, Some(Duration::from_millis(24)));
        assert_eq!(all.busy_poll, Duration::from_micros(25));
        assert!(matches!(all.coalescing, Coalescing::Always));
        let none = of("[limits]\nnop_interval_seconds = 0\nslow_command_ms = 0\n");
        assert_eq!((none.nop_interval, none.slow_command), (None, None));
    }

    const UNITS: &str = r#"
[[lun]]
id = "a"
store = "mem:1M?removable"
serial = "S1"
naa = "3000000000000001"
product = "THING"
[[lun]]
id = "d"
store = "cdrom:"
[[target]]
name = "iqn.2026-11.example.tarn:one"
portals = [{ bind = "127.0.0.1:0", group = 3 }, { bind = "127.0.0.2:0", group = 5 }]
luns = [{ lun = 0, id = "a" }]
[[target]]
name = "iqn.2026-11.example.tarn:two"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "d" }, { lun = 1, id = "a" }]
[server]
state = "{dir}/state"
cores = 1
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

    #[test]
    fn a_unit_says_what_it_is_and_names_the_ports_of_the_targets_that_show_it() {
        let living = Living::new(UNITS);
        let in_force = living.daemon.in_force();
        let running = &in_force.running;
        let of = |at: usize| {
            let (unit, ports) = (&running.units[at], &running.ports);
            profile(&running.model, at, &unit.store, &unit.identity, ports)
        };
        let [disk, drive] = [0, 1].map(of);
        let ports = |profile: &Profile| -> Vec<String> {
            let ports = profile.identity.target_ports.iter();
            let names = ports.map(|port| {
                assert_eq!((port.group, port.protocol_identifier), (1, 0x05));
                assert!(port.scsi_name.starts_with(&port.device_name));
                port.scsi_name.replace("iqn.2026-11.example.tarn:", "")
            });
            names.collect()
        };
        assert_eq!(
            ports(&disk),
            ["one,t,0x0003", "one,t,0x0005", "two,t,0x0001"]
        );
        assert_eq!(ports(&drive), ["two,t,0x0001"]);
        let ids = disk
            .identity
            .target_ports
            .iter()
            .map(|port| port.relative_id);
        assert_eq!(ids.collect::<BTreeSet<_>>().len(), 3);
        let names = |profile: &Profile| {
            let identity = &profile.identity;
            [&identity.vendor, &identity.product, &identity.revision].map(String::clone)
        };
        assert_eq!(names(&disk), ["TARN", "THING", VERSION]);
        assert_eq!(names(&drive), ["TARN", "DVD-ROM", VERSION]);
        assert_eq!(disk.identity.serial, "S1");
        assert_eq!(disk.identity.naa, [0x30, 0, 0, 0, 0, 0, 0, 1]);
        assert!(disk.identity.removable && drive.identity.removable && disk.keeps_state);
        let types = [disk.device_type, drive.device_type];
        assert_eq!(types, [DeviceType::Disk, DeviceType::Optical]);
        living.stop();
    }
}
