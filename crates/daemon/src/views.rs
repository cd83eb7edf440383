//! What runs, in the words of the API.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::SystemTime;

use api::plan::{Document, Kind, Step};
use api::problem::{Problem, ProblemKind};
use api::view;
use config::{
    Authentication, Denial, GroupIndex, HyperScsiGroup, HyperScsiPassword, Initiator, Model,
    NbdServer, StoreOption, StoreSpec,
};
use plane::{Handle, Place, SessionReport, TransportDetails, UnitIndex};

use crate::locate::Location;

use super::calendar::milliseconds;
use super::daemon::{Daemon, InForce};
use super::doctor::{self, Hindrance, Inquirer};
use super::effect::{Consequence, PlannedStep};
use super::hyperscsi::{group_of, hyperscsi_places};
use super::opened::OpenStore;
use super::running::Running;
use super::{reservations, stats};

/// What answers call the protocols.
const ISCSI: &str = "iscsi";
const NBD: &str = "nbd";
const HYPERSCSI: &str = "hyperscsi";

/// The daemon in one look.
pub(super) fn status(daemon: &Daemon) -> view::Status {
    let in_force = daemon.in_force();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    // Who reads it may stand in another directory.
    let path = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_no_directory| path.to_owned());
        path.display().to_string()
    };
    view::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_ms: milliseconds(daemon.started),
        now_ms: milliseconds(SystemTime::now()),
        revision: in_force.document.revision,
        config_file: daemon.file.as_deref().map(path),
        state_directory: path(daemon.state.directory()),
        cores: count(daemon.cores),
        luns: count(in_force.running.units.len()),
        targets: count(in_force.running.targets.len()),
        sessions: stats::sessions(daemon),
        pending: daemon.pending(),
        certificates: daemon
            .certificates()
            .into_iter()
            .map(|(of, end)| view::Certificate {
                of,
                not_after_ms: milliseconds(end),
            })
            .collect(),
        findings: daemon.findings_now(Inquirer::Administrator),
    }
}

/// `change lun disk1 store: "a" -> "b"`.
pub(super) fn step_line(step: &Step) -> String {
    let action = match step.action {
        api::plan::Action::Add => "add",
        api::plan::Action::Change => "change",
        api::plan::Action::Remove => "remove",
    };
    let kind = match step.kind {
        Kind::Lun => "lun",
        Kind::Target => "target",
        Kind::Portal => "portal",
        Kind::View => "view",
        Kind::Store => "store",
        Kind::Group => "group",
        Kind::User => "user",
        Kind::Nbd => "nbd",
        Kind::HyperScsi => "hyperscsi",
        Kind::Quota => "quota",
        Kind::Notify => "notify",
        Kind::Server => "server key",
        Kind::Limits => "limit",
        Kind::Admin => "admin key",
        Kind::Confine => "confine key",
    };
    let what = format!("{action} {kind} {}", step.name);
    if step.detail.is_empty() {
        return what;
    }
    format!("{what}: {}", step.detail)
}

/// Puts the sessions that end beside the step that is the reason: one about their target, or else
/// the first about groups and users.
pub(super) fn name_ended(steps: &mut [PlannedStep], old: &Running, ended: Vec<SessionReport>) {
    for session in ended {
        let target = session.target.and_then(|index| old.target_position(index));
        let name = target.and_then(|at| old.model.targets().get(at));
        let name = name.map_or("", |target| target.name.as_str());
        let service = match &session.transport {
            TransportDetails::Nbd { service, .. } => Some(&**service),
            TransportDetails::Iscsi { .. } | TransportDetails::Hyperscsi { .. } => None,
        };
        let group = group_of(old, &session).map(ToString::to_string);
        let of_target = |step: &PlannedStep| {
            let word = step.name.split(' ').next().unwrap_or_default();
            match (service, &group) {
                (Some(service), _) => step.kind == Kind::Nbd && step.name == service,
                (None, Some(group)) => step.kind == Kind::HyperScsi && step.name == *group,
                (None, None) => {
                    matches!(step.kind, Kind::Target | Kind::Portal | Kind::View) && word == name
                }
            }
        };
        let of_rules = |step: &PlannedStep| matches!(step.kind, Kind::Group | Kind::User);
        let at = steps
            .iter()
            .position(of_target)
            .or_else(|| steps.iter().position(of_rules))
            .or_else(|| (!steps.is_empty()).then_some(0));
        if let Some(step) = at.and_then(|at| steps.get_mut(at)) {
            step.sessions_ended.push(session.id.0);
            if step.consequence.is_harmless() {
                step.consequence = Consequence::AccessEnds;
            }
        }
    }
}

/// The configuration with its defaults written out.
pub(super) fn effective(in_force: &InForce) -> Document {
    Document {
        revision: in_force.document.revision,
        text: in_force.running.model.effective(),
    }
}

fn group_names(model: &Model, groups: &[GroupIndex]) -> Vec<String> {
    let groups = groups
        .iter()
        .filter_map(|group| model.groups().get(group.position()));
    groups.map(|group| group.id.clone()).collect()
}

/// Servers of NBD and groups of HyperSCSI, by the position of the unit that they serve.
fn services(model: &Model) -> Vec<Vec<view::LunService>> {
    let mut services: Vec<Vec<view::LunService>> = vec![Vec::new(); model.units().len()];
    for server in model.nbd() {
        for index in &server.luns {
            let unit = model.units().get(index.position());
            let served = unit.zip(services.get_mut(index.position()));
            if let Some((unit, services)) = served {
                services.push(view::LunService {
                    protocol: NBD.to_owned(),
                    name: server.at.to_string(),
                    device: unit.to_string(),
                    groups: group_names(model, &server.groups),
                    readonly: unit.store.read_only,
                    level: None,
                });
            }
        }
    }
    for group in model.hyperscsi() {
        for device in &group.devices {
            if let Some(services) = services.get_mut(device.unit.position()) {
                services.push(view::LunService {
                    protocol: HYPERSCSI.to_owned(),
                    name: group.to_string(),
                    device: device.name.clone(),
                    groups: Vec::new(),
                    readonly: device.read_only,
                    level: Some(device.level.as_str().to_owned()),
                });
            }
        }
    }
    services
}

/// What keeps a unit, or its log, from being used.
fn trouble(opened: &OpenStore) -> Option<view::LunTrouble> {
    let (code, why) = match doctor::hindrance(opened)? {
        Hindrance::Held(reason) => (reason.code(), reason.why),
        Hindrance::LogUnused(why) => ("log-failed", why.to_owned()),
        Hindrance::KnownByPath => return None,
    };
    let code = code.to_owned();
    Some(view::LunTrouble { code, why })
}

/// All units.
pub(super) fn luns(in_force: &InForce, plane: &Handle) -> Vec<view::Lun> {
    let running = &in_force.running;
    let model = &running.model;
    let mut shown_by: Vec<Vec<view::LunPath>> = vec![Vec::new(); running.units.len()];
    for target in model.targets() {
        for entry in target.luns.entries() {
            if let Some(paths) = shown_by.get_mut(entry.unit.position()) {
                paths.push(view::LunPath {
                    target: target.name.as_str().to_owned(),
                    lun: entry.lun.value(),
                    groups: group_names(model, &entry.groups),
                    readonly: entry.read_only,
                });
            }
        }
    }
    let units = model.units().iter().zip(&running.units);
    let specs = model.to_specs().luns;
    units
        .zip(specs)
        .zip(shown_by.into_iter().zip(services(model)))
        .map(|(((unit, served), spec), (shown_by, served_by))| {
            let capabilities = served.store.capabilities();
            view::Lun {
                spec,
                kind: kind(&unit.store, served.location.as_ref()).to_owned(),
                device_type: served.device_type(unit).word().to_owned(),
                size_bytes: capabilities.size_bytes,
                block_bytes: match served.store.device() {
                    None => capabilities.block_bytes,
                    Some(_) => 0,
                },
                readonly: capabilities.read_only,
                cache: StoreOption::Cache.value(&unit.store),
                thin: capabilities.thin,
                serial: served.identity.serial.to_string(),
                naa: served.identity.naa.to_string(),
                medium: unit.store.removable.then(|| medium(plane, served.index)),
                outage: served.store.outage(),
                trouble: trouble(&served.opened),
                reservations: reservations::summary(&plane.reservations(served.index)),
                shown_by,
                served_by,
            }
        })
        .collect()
}

/// A removable medium.
fn medium(plane: &Handle, unit: UnitIndex) -> view::Medium {
    let report = plane.medium(unit);
    view::Medium {
        loaded: report.is_in,
        prevented_by: report.prevented_by,
    }
}

/// What the data is on: as the configuration says, or else as it was when it was opened. The file system is not asked,
/// because it may not answer.
fn kind(store: &StoreSpec, location: Option<&Location>) -> &'static str {
    let (shown, shown_on_device) = store.at.kind.row().shown;
    if location.is_some_and(|it| it.is_device) {
        shown_on_device
    } else {
        shown
    }
}

/// All targets.
pub(super) fn targets(in_force: &InForce, sessions: &[SessionReport]) -> Vec<view::Target> {
    let running = &in_force.running;
    let targets = running
        .model
        .to_specs()
        .targets
        .into_iter()
        .zip(&running.targets);
    targets
        .zip(running.bound())
        .map(|((target, index), bound)| {
            let count = sessions
                .iter()
                .filter(|one| one.target == Some(*index))
                .count();
            view::Target {
                spec: target,
                bound: bound.iter().map(ToString::to_string).collect(),
                sessions: u32::try_from(count).unwrap_or(u32::MAX),
            }
        })
        .collect()
}

/// All groups of HyperSCSI.
pub(super) fn hyperscsi(in_force: &InForce, sessions: &[SessionReport]) -> Vec<view::Hyperscsi> {
    let running = &in_force.running;
    let specs = running.model.to_specs().hyperscsi.into_iter();
    let groups = specs.zip(running.model.hyperscsi());
    let places = hyperscsi_places(running);
    groups
        .zip(places)
        .map(|((spec, group), place)| {
            let is_of_it = |one: &&SessionReport| {
                group_of(running, one).is_some_and(|of| std::ptr::eq(of, group))
            };
            view::Hyperscsi {
                name: group.to_string(),
                spec,
                place,
                password: match group.password {
                    HyperScsiPassword::File(_) => "file",
                    HyperScsiPassword::Written { .. } => "configuration",
                    HyperScsiPassword::Open { .. } => "none",
                }
                .to_owned(),
                sessions: sessions
                    .iter()
                    .filter(is_of_it)
                    .map(|one| one.id.0)
                    .collect(),
            }
        })
        .collect()
}

/// What only sessions of its transport have.
fn transport(details: &TransportDetails) -> view::Transport {
    match details {
        TransportDetails::Iscsi {
            tsih,
            isid,
            portal_group_tag,
            connections,
            violations,
            reinstatements,
        } => view::Transport::Iscsi(view::IscsiSession {
            tsih: tsih.0,
            isid: isid.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            portal_group: *portal_group_tag,
            connections: connections
                .iter()
                .map(|one| view::Connection {
                    cid: one.cid,
                    address: one.peer.to_string(),
                    portal: one.portal.to_string(),
                    header_digest: one.header_digest,
                    data_digest: one.data_digest,
                })
                .collect(),
            violations: u64::from(*violations),
            reinstatements: u64::from(*reinstatements),
        }),
        TransportDetails::Nbd {
            export,
            service,
            names,
        } => view::Transport::Nbd(view::NbdSession {
            export: export.clone(),
            service: service.to_string(),
            names: names.to_vec(),
        }),
        TransportDetails::Hyperscsi { group, place, .. } => {
            view::Transport::Hyperscsi(view::HyperscsiSession {
                group: group.to_string(),
                place: match place {
                    Place::Interface(name) => name.to_string(),
                    Place::Udp(address) => format!("udp:{address}"),
                },
            })
        }
    }
}

/// All sessions.
pub(super) fn sessions(in_force: &InForce, sessions: &[SessionReport]) -> Vec<view::Session> {
    let running = &in_force.running;
    let model = &running.model;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let session = |one: &SessionReport| {
        let target = one.target.and_then(|index| running.target_position(index));
        let target = target.and_then(|at| model.targets().get(at));
        let levels = match &one.transport {
            TransportDetails::Hyperscsi { levels, .. } => levels.as_slice(),
            TransportDetails::Iscsi { .. } | TransportDetails::Nbd { .. } => &[],
        };
        let level_of = |number: u16| levels.iter().find(|(device, _)| *device == number);
        let lun = |lun: &plane::VisibleLun| {
            let unit = model.units().get(running.unit_position(lun.unit)?)?;
            Some(view::SessionLun {
                lun: lun.lun,
                id: unit.to_string(),
                readonly: lun.read_only,
                level: level_of(lun.lun).map(|(_, level)| level.word().to_owned()),
            })
        };
        let target = match &one.transport {
            TransportDetails::Iscsi { .. } => target.map(|target| target.name.as_str().to_owned()),
            TransportDetails::Nbd { export, .. } => Some(format!("nbd:{export}")),
            TransportDetails::Hyperscsi { group, .. } => Some(format!("hyperscsi:{group}")),
        };
        view::Session {
            id: one.id.0,
            initiator: one.initiator_name.clone(),
            address: one.peer.to_string(),
            target,
            user: one.user.clone(),
            core: count(one.core),
            since_ms: milliseconds(one.since),
            luns: one.luns.iter().filter_map(lun).collect(),
            commands: count(one.commands),
            window: one.window,
            transport: transport(&one.transport),
        }
    };
    sessions.iter().map(session).collect()
}

/// One line a step, for the history.
pub(super) fn summary(steps: &[Step]) -> Vec<String> {
    if steps.is_empty() {
        return vec!["only the text, such as comments".to_owned()];
    }
    steps.iter().map(step_line).collect()
}

/// Through which groups somebody sees units of a target, and for which groups the others are.
fn by_groups(model: &Model, target: &config::Target, is_member: &[bool]) -> String {
    /// How many hidden units are named.
    const NAMED_MAX: usize = 8;
    let is_in = |group: &&GroupIndex| is_member.get(group.position()).copied() == Some(true);
    let names = |groups: &mut dyn Iterator<Item = &GroupIndex>| {
        let names = groups.filter_map(|group| model.groups().get(group.position()));
        let names: Vec<&str> = names.map(|group| group.id.as_str()).collect();
        names.join(", ")
    };
    let entries = target.luns.entries();
    let own: BTreeSet<GroupIndex> = entries
        .iter()
        .flat_map(|one| &one.groups)
        .filter(is_in)
        .copied()
        .collect();
    let mut text = match names(&mut own.iter()) {
        named if named.is_empty() => String::new(),
        named => format!("; it is in {named}"),
    };
    let is_hidden = |one: &&config::TargetLun| {
        !one.groups.is_empty() && !one.groups.iter().any(|group| is_in(&group))
    };
    let hidden: Vec<_> = entries.iter().filter(is_hidden).collect();
    for one in hidden.iter().take(NAMED_MAX) {
        let groups = names(&mut one.groups.iter());
        let is_shared = entries.iter().filter(|other| other.lun == one.lun).count() > 1;
        text += &match model.units().get(one.unit.position()) {
            Some(unit) if is_shared => format!("; LUN {} as {unit} is only for {groups}", one.lun),
            Some(_) | None => format!("; LUN {} is only for {groups}", one.lun),
        };
    }
    match hidden.len().saturating_sub(NAMED_MAX) {
        0 => text,
        more => format!("{text}; {more} more are for other groups"),
    }
}

/// Where somebody comes from; an address that no rule names if it is not said.
fn asked_address(question: &view::AccessQuestion) -> Result<IpAddr, Problem> {
    let Some(text) = &question.address else {
        return Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    };
    text.parse().map_err(|_| {
        let detail = format!("address {text:?} is no IP address");
        Problem::new(ProblemKind::BadRequest, detail)
    })
}

/// The dry run of the rules.
pub(super) fn access(
    in_force: &InForce,
    question: &view::AccessQuestion,
) -> Result<Vec<view::Access>, Problem> {
    let model = &in_force.running.model;
    let wrong = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    let address = asked_address(question)?;
    let user = match &question.user {
        None => None,
        Some(name) => {
            let user = model.user_by_name(name);
            Some(user.ok_or_else(|| wrong(format!("there is no user {name:?}")))?)
        }
    };
    // By the rule of the login, which takes more than configured names may have.
    let name = iscsi::names::IscsiName::parse(&question.initiator)
        .map_err(|error| wrong(format!("iSCSI name {:?}: {error}", question.initiator)))?;
    let initiator = Initiator {
        name: name.as_str(),
        address,
        user,
        certificate: &[],
    };
    let is_member: Vec<bool> = model
        .groups()
        .iter()
        .map(|group| group.has(&initiator))
        .collect();
    let discovery_needs_chap = match model.discovery_authentication() {
        Authentication::None | Authentication::Optional(_) => false,
        Authentication::Required(users) => !user.is_some_and(|user| users.contains(&user)),
    };
    let mut answers = Vec::new();
    for (index, target) in model.target_indices().zip(model.targets()) {
        let login = model.login(index, &initiator);
        let (mut reason, luns) = match &login {
            Ok(map) => ("it may log in".to_owned(), map.entries()),
            Err(denial) => (denial.to_string(), [].as_slice()),
        };
        if !matches!(login, Err(ref denial) if *denial != Denial::NothingToSee) {
            reason += &by_groups(model, target, &is_member);
        }
        let lun = |entry: &config::LunEntry| view::SessionLun {
            level: None,
            lun: entry.lun.value(),
            id: model
                .units()
                .get(entry.unit.position())
                .map(ToString::to_string)
                .unwrap_or_default(),
            readonly: entry.read_only,
        };
        answers.push(view::Access {
            protocol: ISCSI.to_owned(),
            target: target.name.as_str().to_owned(),
            may_login: login.is_ok(),
            needs_password: false,
            needs_chap: matches!(model.authentication(index), Authentication::Required(_)),
            is_discovered: model.discovers(index, &initiator) && !discovery_needs_chap,
            discovery_needs_chap,
            reason,
            luns: luns.iter().map(lun).collect(),
        });
    }
    let names: Vec<String> = question.certificate.iter().cloned().collect();
    let servers = model.nbd().iter();
    answers.extend(servers.map(|server| access_by_nbd(model, server, address, &names)));
    answers.extend(model.hyperscsi().iter().map(access_by_hyperscsi));
    Ok(answers)
}

/// What a client meets at a server of NBD, which knows it by its address and its certificate.
fn access_by_nbd(
    model: &Model,
    server: &NbdServer,
    address: IpAddr,
    names: &[String],
) -> view::Access {
    let asks_certificates = server.tls.as_ref().is_some_and(|tls| tls.ca.is_some());
    let exports = match asks_certificates && names.is_empty() {
        true => Vec::new(),
        false => model.exports(server, address, names),
    };
    let may_login = !exports.is_empty();
    let groups = group_names(model, &server.groups).join(", ");
    let mut reason = match (may_login, asks_certificates && names.is_empty()) {
        (false, true) => "it asks for certificates, and none is named".to_owned(),
        (false, false) => {
            format!("it is for {groups}, and neither address nor certificate is there")
        }
        (true, _) if groups.is_empty() => "it is for all that reach it".to_owned(),
        (true, _) => format!("it is for {groups}"),
    };
    if let Some((_, mode)) = server.at.socket() {
        reason += &format!(", on this host alone, by a socket of mode {mode:04o}");
    }
    let luns = exports.iter().filter_map(|index| {
        let unit = model.units().get(index.position())?;
        Some(view::SessionLun {
            lun: 0,
            id: unit.to_string(),
            readonly: unit.store.read_only,
            level: None,
        })
    });
    view::Access {
        discovery_needs_chap: false,
        protocol: NBD.to_owned(),
        target: server.at.to_string(),
        may_login,
        needs_chap: false,
        needs_password: false,
        is_discovered: may_login,
        reason,
        luns: luns.collect(),
    }
}

/// What a client meets at a group of HyperSCSI, which knows it by the password alone.
fn access_by_hyperscsi(group: &HyperScsiGroup) -> view::Access {
    let needs_password = !matches!(group.password, HyperScsiPassword::Open { .. });
    let reason = match (needs_password, &group.user) {
        (false, _) => "it needs no password, and is for all that reach it".to_owned(),
        (true, None) => "it is for all that have its password".to_owned(),
        (true, Some(user)) => format!("it is for all that have the password of its user {user}"),
    };
    let luns = group
        .devices
        .iter()
        .zip(1..)
        .map(|(device, lun)| view::SessionLun {
            lun,
            id: device.name.clone(),
            readonly: device.read_only,
            level: Some(device.level.as_str().to_owned()),
        });
    view::Access {
        discovery_needs_chap: false,
        protocol: HYPERSCSI.to_owned(),
        target: group.to_string(),
        may_login: true,
        needs_chap: false,
        needs_password,
        is_discovered: true,
        reason,
        luns: luns.collect(),
    }
}
