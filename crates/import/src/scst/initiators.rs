//! Who is in the groups of a target of SCST, and at which of its portals.
//!
//! An initiator is in the first group that has it, or else in none. With `per_portal_acl` the names are compared with
//! `NAME#PORTAL`, where PORTAL is the address that the initiator came to; without it no name has that sign.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use config::NamePattern;

use crate::address;
use crate::found::{Found, Group, Target};
use crate::tree::Node;

/// At which portals an INITIATOR counts.
enum At {
    All,
    One(IpAddr),
    None,
    /// Nothing that is known here.
    Unclear,
}

/// The groups of one target.
pub(super) struct Groups<'a> {
    target: &'a Node,
    is_per_portal: bool,
    /// Patterns of those who are in the groups so far.
    members: Vec<String>,
    /// The portals of each pattern; none are all.
    portals: BTreeMap<String, BTreeSet<IpAddr>>,
    /// An INITIATOR goes by the portal in a way that Tarn has no form for.
    is_unclear: bool,
}

impl<'a> Groups<'a> {
    pub(super) fn of(target: &'a Node) -> Self {
        let is_set = |node: &Node| !crate::lines::is_no(node.value());
        Self {
            target,
            is_per_portal: target.find("per_portal_acl").is_some_and(is_set),
            members: Vec::new(),
            portals: BTreeMap::new(),
            is_unclear: false,
        }
    }

    /// The name of an INITIATOR without portal, and where it counts.
    fn split<'t>(&self, text: &'t str) -> (&'t str, At) {
        match (self.is_per_portal, text.split_once('#')) {
            (false, None) => (text, At::All),
            (false, Some((name, _))) => (name, At::None),
            (true, Some((name, "*"))) => (name, At::All),
            (true, Some((name, portal))) => {
                (name, address::address(portal).map_or(At::Unclear, At::One))
            }
            // What ends in a star takes the sign and the portal along.
            (true, None) if text.ends_with('*') => (text, At::All),
            (true, None) if text.contains(['*', '?']) => (text, At::Unclear),
            (true, None) => (text, At::None),
        }
    }

    /// Adds the group of a section, without those who are in one before it; gives its `id`.
    pub(super) fn add(&mut self, group: &Node, found: &mut Found) -> String {
        let id = format!("{}/{}", self.target.value(), group.value());
        let mut initiators: Vec<String> = Vec::new();
        let mut has_exclusion = false;
        for initiator in group.all("INITIATOR") {
            let (is_exclusion, text) = match initiator.value().strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, initiator.value()),
            };
            let (name, at) = self.split(text);
            has_exclusion |= is_exclusion;
            match (is_exclusion, at) {
                (true, At::All) => initiators.push(format!("!{name}")),
                (false, At::All) => {
                    self.portals.entry(name.to_owned()).or_default();
                    initiators.push(name.to_owned());
                }
                (false, At::One(portal)) => {
                    self.portals
                        .entry(name.to_owned())
                        .or_default()
                        .insert(portal);
                    initiators.push(name.to_owned());
                }
                (false, At::None) => {}
                (true, At::One(_) | At::None) | (_, At::Unclear) => self.is_unclear = true,
            }
        }
        let is_exclusion = |name: &String| name.starts_with('!');
        if !initiators.is_empty() && initiators.iter().all(is_exclusion) {
            initiators.insert(0, "*".to_owned());
        }
        let mut members: Vec<String> = initiators
            .iter()
            .filter(|name| !is_exclusion(name))
            .cloned()
            .collect();
        let taken = self
            .members
            .iter()
            .filter(|other| overlaps(&members, other));
        initiators.extend(taken.map(|other| format!("!{other}")));
        // A pattern that is turned round may be one for all others: so nobody is in a later group.
        if has_exclusion {
            members.push("*".to_owned());
        }
        self.members.extend(members);
        found.groups.push(Group {
            place: group.place.clone(),
            id: id.clone(),
            initiators,
        });
        id
    }

    /// Adds the group of those who are in no group of the target, and see its own LUNs; gives its `id`.
    pub(super) fn add_others(&self, found: &mut Found) -> String {
        let node = self.target;
        let id = format!("{}/others", node.value());
        let subject = format!("target {}", node.value());
        let mut initiators = vec!["*".to_owned()];
        if self.members.iter().any(|member| member == "*") {
            let message =
                "its own LUNs were for the few that a group with * excludes; nobody sees them now";
            let remedy = "add a group of these initiators, and the luns for it";
            found.left_out(&node.place, &subject, message, remedy);
            initiators.clear();
        } else {
            let message = "its own LUNs are for initiators in none of its groups: a group of all others was made";
            found.changed(&node.place, &subject, message, "nothing");
            initiators.extend(self.members.iter().map(|member| format!("!{member}")));
        }
        found.groups.push(Group {
            place: node.place.clone(),
            id: id.clone(),
            initiators,
        });
        id
    }

    /// Where all initiators are listed for the same portals, the target is reached there and nowhere else. Other lists
    /// have no form in Tarn.
    pub(super) fn limit_portals(&self, target: &mut Target, found: &mut Found) {
        let mut sets = self.portals.values();
        let first = sets.next().cloned().unwrap_or_default();
        if self.is_unclear || sets.any(|set| *set != first) {
            let message = "its groups let initiators in at some of its portals, others or the same at others; a \
                target of Tarn shows each of them the same at all its portals";
            let remedy = "make a target for each portal, with a name of its own and the groups of those it let in";
            found.left_out(
                &target.place,
                &format!("target {}", target.name),
                message,
                remedy,
            );
            target.is_guarded = true;
        }
        if first.is_empty() {
            return;
        }
        let tag = target.portals.first().map_or(1, |portal| portal.tag);
        let limited =
            first
                .iter()
                .filter(|ip| is_among(**ip, target))
                .map(|ip| crate::found::Portal {
                    bind: SocketAddr::new(*ip, 3260).to_string(),
                    tag,
                });
        target.portals = limited.collect();
        target.is_bound = true;
    }
}

/// Whether a target is reached at an address, by itself or by one for all of its family.
fn is_among(ip: IpAddr, target: &Target) -> bool {
    let mut binds = target
        .portals
        .iter()
        .filter_map(|portal| portal.bind.parse::<SocketAddr>().ok());
    binds.any(|bind| {
        bind.ip() == ip || (bind.ip().is_unspecified() && bind.is_ipv4() == ip.is_ipv4())
    })
}

/// Whether a pattern may match an initiator that one of the others matches.
fn overlaps(members: &[String], other: &str) -> bool {
    let parse = |text: &str| NamePattern::parse(text).ok();
    let Some(other) = parse(other) else {
        return false;
    };
    let mut members = members.iter().filter_map(|member| parse(member));
    members.any(|member| member.common(&other).is_some())
}
