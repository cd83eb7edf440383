//! What differs between two configurations, as the steps of a plan.

use std::collections::BTreeMap;
use std::path::Path;

use api::plan::{Action, Effect, Kind, Step};
use config::{Model, StoreKind, StoreSpec, Target, Unit, User};

/// Keys of `[limits]` that every login reads anew; the others are read once, at the start.
const NEGOTIATED: [&str; 9] = [
    "header_digest",
    "data_digest",
    "connections_per_session_max",
    "initial_r2t",
    "immediate_data",
    "max_recv_data_segment_bytes",
    "max_burst_bytes",
    "first_burst_bytes",
    "outstanding_r2t_max",
];

/// Where each unit of the new configuration comes from.
pub(super) struct Match {
    /// By the position of the new unit: the position of the old one.
    pub(super) from: Vec<Option<usize>>,
}

impl Match {
    /// By name; and a unit whose name is new but whose store and identity are those of one that is
    /// gone is that one, under another name.
    pub(super) fn of(old: &Model, new: &Model) -> Self {
        let names = |model: &Model| -> BTreeMap<String, usize> {
            let named = model.units().iter().map(ToString::to_string);
            named.zip(0..).collect()
        };
        let (old_names, new_names) = (names(old), names(new));
        let gone = old.units().iter().zip(0..);
        let mut gone: Vec<(&Unit, usize)> = gone
            .filter(|(unit, _)| !new_names.contains_key(&unit.to_string()))
            .collect();
        let mut from = Vec::new();
        for unit in new.units() {
            let same_name = old_names.get(&unit.to_string()).copied();
            let same_disk = || {
                let is_it = |other: &(&Unit, usize)| {
                    is_same_disk(&other.0.store, &unit.store)
                        && other.0.serial == unit.serial
                        && other.0.naa == unit.naa
                };
                let at = gone.iter().position(is_it)?;
                Some(gone.swap_remove(at).1)
            };
            from.push(same_name.or_else(same_disk));
        }
        Self { from }
    }

    /// The positions of old units that are nobody any more.
    pub(super) fn gone(&self, old: &Model) -> Vec<usize> {
        let stays: std::collections::BTreeSet<usize> =
            self.from.iter().flatten().copied().collect();
        (0..old.units().len())
            .filter(|at| !stays.contains(at))
            .collect()
    }
}

/// The same bytes, treated the same way; only the size may differ.
fn is_same_disk(a: &StoreSpec, b: &StoreSpec) -> bool {
    let plain = |spec: &StoreSpec| StoreSpec {
        text: String::new(),
        size_bytes: None,
        ..spec.clone()
    };
    plain(a) == plain(b)
}

/// Makes steps.
struct Steps(Vec<Step>);

impl Steps {
    fn add(
        &mut self,
        action: Action,
        kind: Kind,
        name: impl ToString,
        detail: String,
    ) -> &mut Step {
        self.0.push(Step {
            action,
            kind,
            name: name.to_string(),
            detail,
            effect: Effect::Online,
            reason: None,
            sessions_ended: Vec::new(),
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

/// Sets what a step costs.
trait Cost {
    fn drains(&mut self, why: &str);
    fn refused(&mut self, why: impl Into<String>);
}

impl Cost for Step {
    fn drains(&mut self, why: &str) {
        self.effect = Effect::NeedsDrain;
        self.reason = Some(why.to_owned());
    }

    fn refused(&mut self, why: impl Into<String>) {
        self.effect = Effect::Refused;
        self.reason = Some(why.into());
    }
}

/// `name: "old" -> "new"`.
fn changed(key: &str, old: &str, new: &str) -> String {
    format!("{key}: {old:?} -> {new:?}")
}

/// All steps from one configuration to another. `size_of` gives the size of an old unit's store.
pub(super) fn steps(
    old: &Model,
    new: &Model,
    units: &Match,
    size_of: impl Fn(usize) -> u64,
    secrets_differ: impl Fn(&str) -> bool,
) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    unit_steps(&mut steps, old, new, units, size_of);
    list_steps(
        &mut steps,
        Kind::Group,
        &group_lines(old),
        &group_lines(new),
    );
    user_steps(&mut steps, old, new, secrets_differ);
    target_steps(&mut steps, old, new);
    server_steps(&mut steps, old, new);
    steps.0
}

fn unit_steps(
    steps: &mut Steps,
    old: &Model,
    new: &Model,
    units: &Match,
    size_of: impl Fn(usize) -> u64,
) {
    for at in units.gone(old) {
        let unit = &old.units()[at];
        let detail = unit.store.to_string();
        steps
            .add(Action::Remove, Kind::Lun, unit, detail)
            .drains("commands on it end first, or are aborted; its store is flushed and closed");
    }
    for (unit, from) in new.units().iter().zip(&units.from) {
        let Some(at) = *from else {
            steps.add(Action::Add, Kind::Lun, unit, unit.store.to_string());
            continue;
        };
        let before = &old.units()[at];
        if before.to_string() != unit.to_string() {
            let detail = changed("id", &before.to_string(), &unit.to_string());
            steps.add(Action::Change, Kind::Lun, before, detail);
        }
        if before.serial != unit.serial || before.naa != unit.naa {
            let identity = |unit: &Unit| {
                let serial = unit.serial.as_ref().map(ToString::to_string);
                let naa = unit.naa.map(|naa| naa.to_string());
                format!("{}/{}", serial.unwrap_or_default(), naa.unwrap_or_default())
            };
            let detail = changed("serial/naa", &identity(before), &identity(unit));
            steps.add(Action::Change, Kind::Lun, unit, detail).refused(
                "initiators know the disk by its identity: remove it in one change, add it again in the next",
            );
        }
        store_step(steps, before, unit, size_of(at));
    }
}

/// What a changed STORE means.
fn store_step(steps: &mut Steps, before: &Unit, unit: &Unit, size_bytes: u64) {
    let (a, b) = (&before.store, &unit.store);
    if is_same_disk(a, b) && a.size_bytes == b.size_bytes {
        return;
    }
    let detail = changed("store", &a.text, &b.text);
    let step = steps.add(Action::Change, Kind::Lun, unit, detail);
    if is_same_disk(a, b) {
        match b.size_bytes {
            Some(wanted) if wanted < size_bytes => step.refused(format!(
                "the disk has {size_bytes} bytes and is never made smaller; give at least that, or leave size out"
            )),
            Some(_) | None => {}
        }
        return;
    }
    let memory =
        |spec: &StoreSpec| matches!(spec.kind, StoreKind::Memory { .. } | StoreKind::Null { .. });
    let same_medium = a.kind.path().is_some() && a.kind.path() == b.kind.path();
    if same_medium {
        step.refused(
            "a store is not opened twice: remove the lun in one change, add it with the new options in the next",
        );
    } else if memory(a) && memory(b) {
        step.refused(
            "what is in memory would be lost: remove the lun in one change, add it again in the next",
        );
    } else {
        step.drains("commands on the old store end first, or are aborted; then the unit has the data of the new one");
    }
}

fn group_lines(model: &Model) -> Vec<(String, String)> {
    let line = |group: &config::Group| {
        let entries: Vec<String> = group
            .initiators
            .iter()
            .map(|entry| match entry {
                config::InitiatorMatch::Name(pattern) => pattern.to_string(),
                config::InitiatorMatch::Address(cidr) => cidr.to_string(),
                config::InitiatorMatch::User(user) => {
                    let user = model.users().get(user.position());
                    user.map(|user| format!("user:{}", user.name))
                        .unwrap_or_default()
                }
            })
            .collect();
        (group.id.clone(), entries.join(", "))
    };
    model.groups().iter().map(line).collect()
}

/// Steps of things that have a name and a line.
fn list_steps(steps: &mut Steps, kind: Kind, old: &[(String, String)], new: &[(String, String)]) {
    let before: BTreeMap<&str, &str> = old.iter().map(|(n, l)| (n.as_str(), l.as_str())).collect();
    let after: BTreeMap<&str, &str> = new.iter().map(|(n, l)| (n.as_str(), l.as_str())).collect();
    for (name, line) in old {
        if !after.contains_key(name.as_str()) {
            steps.add(Action::Remove, kind, name, line.clone());
        }
    }
    for (name, line) in new {
        match before.get(name.as_str()) {
            None => {
                steps.add(Action::Add, kind, name, line.clone());
            }
            Some(old) if old != line => {
                let detail = format!("{old} -> {line}");
                steps.add(Action::Change, kind, name, detail);
            }
            Some(_) => {}
        }
    }
}

fn user_steps(steps: &mut Steps, old: &Model, new: &Model, secrets_differ: impl Fn(&str) -> bool) {
    let lines = |model: &Model| {
        let line = |user: &User| {
            let mutual = user.mutual.as_ref();
            let mutual =
                mutual.map(|own| format!(", mutual {} {}", own.name, own.secret.path.display()));
            let path = user.secret.path.display();
            (
                user.name.clone(),
                format!("{path}{}", mutual.unwrap_or_default()),
            )
        };
        model.users().iter().map(line).collect::<Vec<_>>()
    };
    let (old, new) = (lines(old), lines(new));
    list_steps(steps, Kind::User, &old, &new);
    for (name, line) in &new {
        if old.iter().any(|(n, l)| n == name && l == line) && secrets_differ(name) {
            let detail = "the content of its secret file".to_owned();
            steps.add(Action::Change, Kind::User, name, detail);
        }
    }
}

fn target_steps(steps: &mut Steps, old: &Model, new: &Model) {
    for target in old.targets() {
        if new.target_by_name(target.name.as_str()).is_none() {
            let detail = format!("{} LUNs", target.luns.len());
            steps
                .add(Action::Remove, Kind::Target, &target.name, detail)
                .drains("its sessions end");
        }
    }
    for target in new.targets() {
        let before = old
            .target_by_name(target.name.as_str())
            .and_then(|index| old.targets().get(index.position()));
        match before {
            None => {
                let detail = format!("{} LUNs", target.luns.len());
                steps.add(Action::Add, Kind::Target, &target.name, detail);
            }
            Some(before) => changed_target(steps, (old, before), (new, target)),
        }
    }
}

fn changed_target(
    steps: &mut Steps,
    (old, before): (&Model, &Target),
    (new, target): (&Model, &Target),
) {
    let users = |model: &Model, target: &Target| {
        let name =
            |user: &config::UserIndex| model.users().get(user.position()).map(|u| u.name.clone());
        let names: Vec<String> = target.auth.iter().filter_map(name).collect();
        names.join(", ")
    };
    let algorithms = |target: &Target| {
        let words: Vec<&str> = target.chap_algorithms.iter().map(|a| a.as_str()).collect();
        words.join(", ")
    };
    let alias = |target: &Target| target.alias.clone().unwrap_or_default();
    for (key, a, b) in [
        ("alias", alias(before), alias(target)),
        ("auth", users(old, before), users(new, target)),
        ("chap_algorithms", algorithms(before), algorithms(target)),
    ] {
        if a != b {
            let detail = changed(key, &a, &b);
            steps.add(Action::Change, Kind::Target, &target.name, detail);
        }
    }
    let name = |what: &str| format!("{} {what}", target.name);
    let portals = |target: &Target| {
        let line = |portal: &config::Portal| {
            let advertise = portal
                .advertise
                .as_ref()
                .map(|a| format!(", advertised as {a}"));
            let detail = format!(
                "group {}{}",
                portal.group_tag,
                advertise.unwrap_or_default()
            );
            (portal.bind.to_string(), detail)
        };
        target.portals.iter().map(line).collect::<Vec<_>>()
    };
    let luns = |model: &Model, target: &Target| {
        let line = |entry: &config::TargetLun| {
            let unit = model.units().get(entry.unit.position());
            let groups = entry
                .groups
                .iter()
                .filter_map(|g| model.groups().get(g.position()));
            let groups: Vec<&str> = groups.map(|group| group.id.as_str()).collect();
            let mut detail = unit.map(ToString::to_string).unwrap_or_default();
            if !groups.is_empty() {
                detail = format!("{detail} for {}", groups.join(", "));
            }
            if entry.read_only {
                detail.push_str(", read-only");
            }
            (format!("LUN {}", entry.lun), detail)
        };
        target.luns.iter().map(line).collect::<Vec<_>>()
    };
    let named = |lines: Vec<(String, String)>| -> Vec<(String, String)> {
        lines
            .into_iter()
            .map(|(what, line)| (name(&what), line))
            .collect()
    };
    list_steps(
        steps,
        Kind::Portal,
        &named(portals(before)),
        &named(portals(target)),
    );
    list_steps(
        steps,
        Kind::View,
        &named(luns(old, before)),
        &named(luns(new, target)),
    );
}

/// Keys of `[server]` and `[limits]`.
fn server_steps(steps: &mut Steps, old: &Model, new: &Model) {
    const RESTART: &str = "it is set when Tarn starts: put it into the file and restart";
    let (a, b) = (old.server(), new.server());
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_deref()
            .map_or("", |path| Path::to_str(path).unwrap_or("?"))
            .to_owned()
    };
    let users = |model: &Model| {
        let name =
            |user: &config::UserIndex| model.users().get(user.position()).map(|u| u.name.clone());
        let names: Vec<String> = model
            .server()
            .discovery_auth
            .iter()
            .filter_map(name)
            .collect();
        names.join(", ")
    };
    for (key, old, new, is_online) in [
        ("state", path(&a.state), path(&b.state), false),
        (
            "cores",
            format!("{:?}", a.cores),
            format!("{:?}", b.cores),
            false,
        ),
        (
            "busy_poll_us",
            a.busy_poll_us.to_string(),
            b.busy_poll_us.to_string(),
            false,
        ),
        (
            "coalescing",
            format!("{:?}", a.coalescing),
            format!("{:?}", b.coalescing),
            false,
        ),
        ("log", format!("{:?}", a.log), format!("{:?}", b.log), false),
        ("discovery_auth", users(old), users(new), true),
    ] {
        if old != new {
            let step = steps.add(Action::Change, Kind::Server, key, changed(key, &old, &new));
            if !is_online {
                step.refused(RESTART);
            }
        }
    }
    for difference in old.limits().differences(new.limits()) {
        let detail = changed(difference.key, &difference.old, &difference.new);
        let step = steps.add(Action::Change, Kind::Limits, difference.key, detail);
        if NEGOTIATED.contains(&difference.key) {
            step.reason = Some("sessions that begin from now on have it".to_owned());
        } else {
            step.refused(RESTART);
        }
    }
}
