//! Targets: legal names, addresses that do not collide, one unit per number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use config::{IscsiName, LunNumber, NamePattern};

use crate::found::{Found, Group, Portal, Target, View};
use crate::{Options, Place};

pub(super) fn settle(found: &mut Found, options: &Options) {
    let mut names = BTreeSet::new();
    let mut kept = Vec::new();
    let all = std::mem::take(&mut found.groups);
    let groups: BTreeMap<&str, &Group> =
        all.iter().map(|group| (group.id.as_str(), group)).collect();
    for mut target in std::mem::take(&mut found.targets) {
        if settle_name(found, &mut target, &mut names) {
            settle_alias(found, &mut target);
            settle_views(found, &mut target, &groups);
            kept.push(target);
        }
    }
    found.groups = all;
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

/// Longest alias in bytes; see docs/reference/configuration.md.
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

/// One entry per number and unit: groups of the same unit come together. Another unit under a number goes, unless it is
/// for groups that have nobody in common with those of the first.
fn settle_views(found: &mut Found, target: &mut Target, groups: &BTreeMap<&str, &Group>) {
    let subject = subject(target);
    let are_apart = |one: &View, two: &View| {
        let group = |view: &View| groups.get(view.group.as_deref()?).copied();
        group(one)
            .zip(group(two))
            .is_some_and(|(one, two)| have_nobody_in_common(one, two))
    };
    let mut kept: BTreeMap<u64, Vec<View>> = BTreeMap::new();
    let mut left_out: Vec<(Place, String, &str)> = Vec::new();
    for view in std::mem::take(&mut target.views) {
        if view.lun > u64::from(LunNumber::MAX) {
            let message = format!("LUN {} is above {}", view.lun, LunNumber::MAX);
            let remedy = "give the disk a smaller number by hand";
            left_out.push((view.place.clone(), message, remedy));
            continue;
        }
        let entries = kept.entry(view.lun).or_default();
        if !entries
            .iter()
            .all(|other| other.unit == view.unit || are_apart(other, &view))
        {
            let message = format!(
                "LUN {} is another disk to other initiators, and some may be among both",
                view.lun
            );
            let remedy =
                "give the two groups no initiator in common, or give the disk a free number";
            left_out.push((view.place.clone(), message, remedy));
            continue;
        }
        entries.push(view);
    }
    for (place, message, remedy) in left_out {
        found.left_out(&place, &subject, message, remedy);
    }
    let mut by_unit: BTreeMap<(u64, usize), Vec<View>> = BTreeMap::new();
    for view in kept.into_values().flatten() {
        by_unit.entry((view.lun, view.unit)).or_default().push(view);
    }
    for entries in by_unit.values_mut() {
        let (read_only, writable): (Vec<&View>, Vec<&View>) =
            entries.iter().partition(|view| view.read_only);
        let is_split = read_only
            .iter()
            .all(|one| writable.iter().all(|two| are_apart(one, two)));
        settle_entry(found, &subject, entries, is_split);
    }
    target.views = by_unit.into_values().flatten().collect();
}

/// Whether it is certain that nobody is in both groups: names that differ, or that one of the groups takes out.
fn have_nobody_in_common(one: &Group, two: &Group) -> bool {
    let takes_out = |group: &Group, name: &str| {
        let mut excluded = group
            .initiators
            .iter()
            .filter_map(|entry| entry.strip_prefix('!'));
        excluded.any(|excluded| excluded == name)
    };
    let members = |group: &Group| -> Vec<String> {
        let members = group
            .initiators
            .iter()
            .filter(|entry| !entry.starts_with('!'));
        members.cloned().collect()
    };
    let others = members(two);
    // Of a name at an address: the name alone, wherever it comes from.
    let name = |text: &str| {
        text.split_once('@')
            .map_or(text, |(name, _)| name)
            .to_owned()
    };
    members(one).iter().map(|a| name(a)).all(|a| {
        others.iter().map(|b| name(b)).all(|b| {
            let is_name = |text: &str| !text.starts_with(|c: char| c.is_ascii_digit() || c == '[');
            let pattern = |text: &str| NamePattern::parse(text).ok().filter(|_| is_name(text));
            let patterns = pattern(&a).zip(pattern(&b));
            patterns.is_some_and(|(a, b)| a.common(&b).is_none())
                || [one, two]
                    .iter()
                    .any(|group| takes_out(group, &a) || takes_out(group, &b))
        })
    })
}

/// The entries of one unit under one number: everyone's makes the others idle. Some may write and others only read,
/// if it is certain that nobody is among both (`is_split`).
fn settle_entry(found: &mut Found, subject: &str, entries: &mut Vec<View>, is_split: bool) {
    if is_split {
        entries.sort_by_key(|view| view.read_only);
    } else if let Some(first) = entries.first() {
        let message = format!(
            "LUN {} was read-only for some initiators only, and some may be among both; now for all",
            first.lun
        );
        let remedy = "add a second target for those that may write";
        found.changed(&first.place.clone(), subject, message, remedy);
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
            replace_portals(target, &options.listen, found);
        }
        let mut seen = BTreeSet::new();
        target
            .portals
            .retain(|portal| seen.insert(portal.bind.clone()));
    }
    let wild = wild_ports(&targets);
    for target in &mut targets {
        drop_covered(found, target, &wild);
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

/// All addresses of the caller, with the tag the target has had. A target that let its initiators in at some addresses
/// gets none but these.
fn replace_portals(target: &mut Target, listen: &[String], found: &mut Found) {
    let tag = target.portals.first().map_or(1, |portal| portal.tag);
    let ip = |bind: &str| bind.parse::<SocketAddr>().ok().map(|address| address.ip());
    let own: BTreeSet<_> = target
        .portals
        .iter()
        .filter_map(|portal| ip(&portal.bind))
        .collect();
    let is_own = |bind: &&String| !target.is_bound || ip(bind).is_some_and(|ip| own.contains(&ip));
    let (kept, others): (Vec<&String>, Vec<&String>) = listen.iter().partition(is_own);
    for other in others {
        let message =
            format!("it is not at {other}, as it let its initiators in at other addresses only");
        let remedy = "give --listen with one of its addresses, or add the portal by hand";
        found.left_out(&target.place, &subject(target), message, remedy);
    }
    let portal = |bind: &String| Portal {
        bind: bind.clone(),
        tag,
    };
    target.portals = kept.into_iter().map(portal).collect();
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

/// An address for all takes the port of every single one of its family: Tarn refuses both at once. A target that was at
/// the single one only is not reached at all others instead.
fn drop_covered(found: &mut Found, target: &mut Target, wild: &BTreeSet<(bool, u16)>) {
    let subject = subject(target);
    let own = wild_ports(std::slice::from_ref(target));
    let place = target.place.clone();
    target.portals.retain(|portal| {
        let Ok(address) = portal.bind.parse::<SocketAddr>() else {
            return true;
        };
        let port = (address.is_ipv4(), address.port());
        if address.ip().is_unspecified() || !wild.contains(&port) {
            return true;
        }
        if !own.contains(&port) {
            let message = format!(
                "it is not reached at {address}, as another target listens at all addresses"
            );
            let remedy =
                "give --listen ADDRESS:PORT, or give that target addresses of its own there";
            found.left_out(&place, &subject, message, remedy);
        }
        false
    });
}
