//! Targets: legal names, addresses that do not collide, one unit per number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use config::{IscsiName, LunNumber};

use crate::Options;
use crate::found::{Found, Portal, Target, View};

pub(super) fn settle(found: &mut Found, options: &Options) {
    let mut names = BTreeSet::new();
    let mut kept = Vec::new();
    for mut target in std::mem::take(&mut found.targets) {
        if settle_name(found, &mut target, &mut names) {
            settle_alias(found, &mut target);
            settle_views(found, &mut target);
            kept.push(target);
        }
    }
    found.targets = kept;
    settle_portals(found, options);
}

fn subject(target: &Target) -> String {
    format!("target {}", target.name)
}

/// Whether the target has a name that Tarn can have, and that no target before it had.
fn settle_name(found: &mut Found, target: &mut Target, names: &mut BTreeSet<String>) -> bool {
    let subject = subject(target);
    let name = match IscsiName::parse(&target.name) {
        Ok(name) => name.as_str().to_owned(),
        Err(rule) => {
            let remedy = "give it another name, and log the initiators in to that";
            found.left_out(&target.place, &subject, rule.to_string(), remedy);
            return false;
        }
    };
    if !names.insert(name.clone()) {
        let message = "a target of this name was there before";
        let remedy = "add its units to that one by hand";
        found.left_out(&target.place, &subject, message, remedy);
        return false;
    }
    if name != target.name {
        let message = format!("its name is {name} now: iSCSI names have no capitals");
        let remedy = "initiators that compare names letter by letter have to discover it again";
        found.changed(&target.place, &subject, message, remedy);
        target.name = name;
    }
    true
}

/// Longest alias in bytes; see docs/CONFIG.md.
const ALIAS_BYTES_MAX: usize = 255;

fn settle_alias(found: &mut Found, target: &mut Target) {
    let is_legal = |alias: &String| {
        !alias.is_empty() && alias.len() <= ALIAS_BYTES_MAX && !alias.contains(char::is_control)
    };
    if target.alias.as_ref().is_some_and(|alias| !is_legal(alias)) {
        let message = "its alias is empty, too long or has control characters";
        found.left_out(
            &target.place,
            &subject(target),
            message,
            "set another alias",
        );
        target.alias = None;
    }
}

/// One entry per number: groups of the same unit come together, another unit under a number that is
/// taken goes.
fn settle_views(found: &mut Found, target: &mut Target) {
    let subject = subject(target);
    let mut kept: BTreeMap<u64, Vec<View>> = BTreeMap::new();
    for view in std::mem::take(&mut target.views) {
        if view.lun > u64::from(LunNumber::MAX) {
            let message = format!("LUN {} is above {}", view.lun, LunNumber::MAX);
            let remedy = "give the disk a smaller number by hand";
            found.left_out(&view.place, &subject, message, remedy);
            continue;
        }
        let entries = kept.entry(view.lun).or_default();
        if entries.first().is_some_and(|first| first.unit != view.unit) {
            let message = format!(
                "LUN {} is another disk to other initiators, which one target of Tarn cannot show",
                view.lun
            );
            let remedy = "add a second target for these initiators, or give the disk a free number";
            found.left_out(&view.place, &subject, message, remedy);
            continue;
        }
        entries.push(view);
    }
    for entries in kept.values_mut() {
        settle_entry(found, &subject, entries);
    }
    target.views = kept.into_values().flatten().collect();
}

/// The entries of one unit under one number: all see it alike, and everyone's makes the others idle.
fn settle_entry(found: &mut Found, subject: &str, entries: &mut Vec<View>) {
    let is_mixed =
        entries.iter().any(|view| view.read_only) && entries.iter().any(|view| !view.read_only);
    if is_mixed {
        if let Some(first) = entries.first() {
            let message = format!(
                "LUN {} was read-only for some initiators only; now for all",
                first.lun
            );
            let remedy = "add a second target for those that may write";
            found.changed(&first.place.clone(), subject, message, remedy);
        }
        entries.iter_mut().for_each(|view| view.read_only = true);
    }
    if let Some(everyone) = entries.iter().position(|view| view.group.is_none()) {
        entries.swap(0, everyone);
        entries.truncate(1);
    }
    let mut seen = BTreeSet::new();
    entries.retain(|view| seen.insert(view.group.clone()));
}

fn settle_portals(found: &mut Found, options: &Options) {
    let mut targets = std::mem::take(&mut found.targets);
    for target in &mut targets {
        if !options.listen.is_empty() {
            replace_portals(target, &options.listen);
        }
        let mut seen = BTreeSet::new();
        target
            .portals
            .retain(|portal| seen.insert(portal.bind.clone()));
    }
    let wild = wild_ports(&targets);
    for target in &mut targets {
        widen_portals(found, target, &wild);
    }
    targets.retain(|target| {
        let has_portals = !target.portals.is_empty();
        if !has_portals {
            let message = "it has no TCP address that could be imported";
            let remedy = "give --listen ADDRESS:PORT";
            found.left_out(&target.place, &subject(target), message, remedy);
        }
        has_portals
    });
    found.targets = targets;
}

/// All addresses of the caller, with the tag the target has had.
fn replace_portals(target: &mut Target, listen: &[String]) {
    let tag = target.portals.first().map_or(1, |portal| portal.tag);
    let portal = |bind: &String| Portal {
        bind: bind.clone(),
        tag,
    };
    target.portals = listen.iter().map(portal).collect();
}

/// Ports, by family, that some target listens on at every address.
fn wild_ports(targets: &[Target]) -> BTreeSet<(bool, u16)> {
    let portals = targets.iter().flat_map(|target| &target.portals);
    portals
        .filter_map(|portal| portal.bind.parse::<SocketAddr>().ok())
        .filter(|address| address.ip().is_unspecified())
        .map(|address| (address.is_ipv4(), address.port()))
        .collect()
}

/// An address for all takes the port of every single one of its family: Tarn refuses both at once.
fn widen_portals(found: &mut Found, target: &mut Target, wild: &BTreeSet<(bool, u16)>) {
    let subject = subject(target);
    for portal in &mut target.portals {
        let Ok(address) = portal.bind.parse::<SocketAddr>() else {
            continue;
        };
        let is_covered = wild.contains(&(address.is_ipv4(), address.port()));
        if is_covered && !address.ip().is_unspecified() {
            let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let message = format!("{address} is {any} now, as another portal has all addresses");
            let remedy = "give each portal an address of its own where a target must not be reached everywhere";
            found.changed(&target.place, &subject, message, remedy);
            portal.bind = format!("{any}:{}", address.port());
        }
    }
    let mut seen = BTreeSet::new();
    target
        .portals
        .retain(|portal| seen.insert(portal.bind.clone()));
}
