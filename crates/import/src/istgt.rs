//! istgt: `istgt.conf` with `auth.conf`.
//!
//! The NAA designator is locally assigned (3) and made of the CRC of name and LUN; a serial number that
//! is not set is made of the number of the section. Seen in istgt 20111008.

use std::collections::BTreeMap;

use crate::acl::Acl;
use crate::found::{Found, Idle, Mutual, Portal, Secret, Target, Unit, View};
use crate::lines::{base_name, is_yes};
use crate::tree::Node;
use crate::{ReadError, Source, address, crc32c, ini};
use config::{CacheMode, StoreAt};

const OF_UNIT: &[(&str, Idle)] = &[
    ("Comment", Idle::Housekeeping),
    ("TargetName", Idle::Housekeeping),
    ("TargetAlias", Idle::Housekeeping),
    ("Mapping", Idle::Housekeeping),
    ("AuthMethod", Idle::Housekeeping),
    ("AuthGroup", Idle::Housekeeping),
    ("UnitType", Idle::Housekeeping),
    ("UnitInquiry", Idle::Housekeeping),
    ("UnitOnline", Idle::Housekeeping),
    ("ReadOnly", Idle::Housekeeping),
    ("BlockLength", Idle::Housekeeping),
    ("UseDigest", Idle::Tuning),
    ("QueueDepth", Idle::Tuning),
    ("MaxOutstandingR2T", Idle::Tuning),
    ("DefaultTime2Wait", Idle::Tuning),
    ("DefaultTime2Retain", Idle::Tuning),
    ("FirstBurstLength", Idle::Tuning),
    ("MaxBurstLength", Idle::Tuning),
    ("MaxRecvDataSegmentLength", Idle::Tuning),
    ("InitialR2T", Idle::Tuning),
    ("ImmediateData", Idle::Tuning),
    ("DataPDUInOrder", Idle::Housekeeping),
    ("DataSequenceInOrder", Idle::Housekeeping),
    ("ErrorRecoveryLevel", Idle::Tuning),
];

const LUN_OPTIONS: &[(&str, Idle)] = &[
    ("Serial", Idle::Housekeeping),
    ("WriteCache", Idle::Housekeeping),
    ("ReadCache", Idle::Housekeeping),
    ("RPM", Idle::Tuning),
    ("FormFactor", Idle::Tuning),
];

/// All sections of all files, by name; a later section of a name adds to the first.
struct Sections(BTreeMap<String, Node>);

impl Sections {
    fn get(&self, name: &str) -> Option<&Node> {
        self.0.get(name)
    }
}

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    let mut sections = Sections(BTreeMap::new());
    let mut units = Vec::new();
    for source in sources {
        for section in ini::read(source)? {
            let name = section.key().to_owned();
            match sections.0.get_mut(&name) {
                Some(first) => first.children.extend(section.children),
                None => {
                    if number_of(&name, "LogicalUnit").is_some() {
                        units.push(name.clone());
                    }
                    sections.0.insert(name, section);
                }
            }
        }
    }
    read_discovery(&sections, found);
    for name in units {
        if let (Some(section), Some(number)) =
            (sections.get(&name), number_of(&name, "LogicalUnit"))
        {
            LogicalUnit {
                sections: &sections,
                section,
                number,
            }
            .read(found);
        }
    }
    Ok(())
}

/// The number behind `kind` in the name of a section.
fn number_of(name: &str, kind: &str) -> Option<u16> {
    name.strip_prefix(kind)?.parse().ok()
}

fn read_discovery(sections: &Sections, found: &mut Found) {
    let Some(global) = sections.get("Global") else {
        return;
    };
    let is_chap = |node: &Node| {
        node.words
            .iter()
            .any(|word| word.eq_ignore_ascii_case("CHAP"))
    };
    if global.find("DiscoveryAuthMethod").is_some_and(is_chap)
        && let Some(group) = global.value_of("DiscoveryAuthGroup")
    {
        let names = add_users(sections, group, found);
        found.discovery_auth.extend(names);
    }
}

/// Adds the users of an AuthGroup; gives their names.
fn add_users(sections: &Sections, group: &str, found: &mut Found) -> Vec<String> {
    let Some(section) = sections.get(group) else {
        return Vec::new();
    };
    if !found.has_room(&section.place, section.children.len()) {
        return Vec::new();
    }
    let mut names = Vec::new();
    for auth in section.all("Auth") {
        let secret = |text: &str| (!text.is_empty()).then(|| Secret::new(text.to_owned()));
        let mutual = (!auth.word(3).is_empty()).then(|| Mutual {
            name: auth.word(3).to_owned(),
            secret: secret(auth.word(4)),
        });
        found.add_user(
            auth.place.clone(),
            auth.value(),
            secret(auth.word(2)),
            mutual,
        );
        names.push(auth.value().to_owned());
    }
    names
}

/// A section that is a target.
struct LogicalUnit<'a> {
    sections: &'a Sections,
    section: &'a Node,
    number: u16,
}

impl LogicalUnit<'_> {
    fn read(&self, found: &mut Found) {
        let name = self.name();
        let subject = format!("target {name}");
        let section = self.section;
        let kind = section.value_of("UnitType").unwrap_or("Disk");
        if kind != "Disk" {
            let message = format!("UnitType {kind}; Tarn serves disks");
            found.left_out(&section.place, &subject, message, "keep istgt for it");
            return;
        }
        for child in &section.children {
            if lun_of(child).is_none() {
                found.idle_key(OF_UNIT, &child.place, &subject, child.key());
            }
        }
        let mut target = Target::new(section.place.clone(), name);
        target.alias = section.value_of("TargetAlias").map(str::to_owned);
        let is_open = self.read_auth(&mut target, found);
        let groups = self.read_mappings(&mut target, found);
        if !is_open {
            let message =
                "CHAP is required, but its AuthGroup has no user; no initiator could log in";
            found.left_out(&section.place, &subject, message, "bring auth.conf along");
            return;
        }
        self.read_luns(&mut target, &groups, found);
        found.targets.push(target);
    }

    /// A short name gets the NodeBase before it.
    fn name(&self) -> String {
        let name = self.section.value_of("TargetName").unwrap_or_default();
        let is_full = ["iqn.", "eui.", "naa."]
            .iter()
            .any(|start| name.starts_with(start));
        let base = self
            .sections
            .get("Global")
            .and_then(|global| global.value_of("NodeBase"));
        match base {
            Some(base) if !is_full => format!("{base}:{name}"),
            Some(_) | None => name.to_owned(),
        }
    }

    /// Whether somebody can log in: CHAP without users lets nobody in.
    fn read_auth(&self, target: &mut Target, found: &mut Found) -> bool {
        let method = self
            .section
            .find("AuthMethod")
            .map(Node::rest)
            .unwrap_or_default();
        let group = self.section.value_of("AuthGroup");
        if method.to_ascii_uppercase().contains("CHAP") {
            target.auth =
                group.map_or_else(Vec::new, |group| add_users(self.sections, group, found));
            return !target.auth.is_empty();
        }
        if method.eq_ignore_ascii_case("Auto") && group.is_some() {
            let message = "AuthMethod Auto takes initiators with CHAP and without; the users are not \
                imported, and every initiator may log in without, as before";
            let remedy = "set auth to ask for CHAP";
            found.changed(
                &target.place,
                &format!("target {}", target.name),
                message,
                remedy,
            );
        }
        true
    }

    /// Portals and groups of the mappings. Gives the groups that see the units; `None` is everyone.
    fn read_mappings(&self, target: &mut Target, found: &mut Found) -> Vec<Option<String>> {
        let subject = format!("target {}", target.name);
        let mut groups = Vec::new();
        for mapping in self.section.all("Mapping") {
            let (portals, initiators) = (mapping.value(), mapping.word(2));
            self.read_portals(portals, target, found);
            match self.sections.get(initiators) {
                Some(group) => groups.push(initiator_group(initiators, group, found)),
                None => {
                    let message = format!("Mapping names {initiators:?}, which is not there");
                    found.left_out(&mapping.place, &subject, message, "add a group by hand");
                }
            }
        }
        if self.section.all("Mapping").nth(1).is_some() {
            let message = "each Mapping let its initiators in through its portals; now all its initiators \
                come in through all its portals";
            let remedy = "make a target for each network to keep them apart";
            found.changed(&target.place, &subject, message, remedy);
        }
        groups
    }

    fn read_portals(&self, name: &str, target: &mut Target, found: &mut Found) {
        let tag = number_of(name, "PortalGroup").unwrap_or(1).max(1);
        let Some(group) = self.sections.get(name) else {
            let message = format!("Mapping names {name:?}, which is not there");
            let subject = format!("target {}", target.name);
            found.left_out(
                &target.place,
                &subject,
                message,
                "add the addresses to portals by hand",
            );
            return;
        };
        let place = &self.section.place;
        if !found.has_room(place, group.all("Portal").count()) {
            return;
        }
        for portal in group.all("Portal") {
            // A tag of the portal group may stand behind the address.
            let text = portal.word(2).split(',').next().unwrap_or_default();
            match address::bind(text) {
                Some(bind) => target.portals.push(Portal { bind, tag }),
                None => {
                    let message = format!("portal {text:?} is not an address");
                    let remedy = "add the address to portals by hand";
                    found.left_out(
                        &portal.place,
                        &format!("target {}", target.name),
                        message,
                        remedy,
                    );
                }
            }
        }
    }

    fn read_luns(&self, target: &mut Target, groups: &[Option<String>], found: &mut Found) {
        for node in &self.section.children {
            let Some(lun) = lun_of(node) else {
                continue;
            };
            match node.value() {
                "Storage" if !found.has_room(&node.place, groups.len()) => return,
                "Storage" => {
                    let unit = self.unit(lun, node, &target.name);
                    let unit = found.add_unit(unit);
                    target.views.extend(groups.iter().map(|group| View {
                        place: node.place.clone(),
                        lun,
                        unit,
                        group: group.clone(),
                        read_only: false,
                    }));
                }
                "Option" => {
                    let subject = format!("target {} LUN {lun}", target.name);
                    found.idle_key(LUN_OPTIONS, &node.place, &subject, node.word(2));
                }
                kind => {
                    let message = format!(
                        "LUN {lun} is a {kind:?}; Tarn serves disks on files and block devices"
                    );
                    let subject = format!("target {}", target.name);
                    found.left_out(&node.place, &subject, message, "keep istgt for it");
                }
            }
        }
    }

    fn unit(&self, lun: u64, storage: &Node, target: &str) -> Unit {
        let section = self.section;
        let path = storage.word(2);
        let option = |key: &str| {
            let mut options = section.children.iter().rev();
            options
                .find(|node| {
                    lun_of(node) == Some(lun) && node.value() == "Option" && node.word(2) == key
                })
                .map(|node| node.word(3))
        };
        let mut unit = Unit::new(
            storage.place.clone(),
            base_name(path),
            StoreAt::path(path.to_owned()),
        );
        let block = section.value_of("BlockLength");
        unit.block_bytes = block.map_or(512, |text| text.parse().unwrap_or(0));
        unit.store.read_only = section.value_of("ReadOnly").is_some_and(is_yes);
        if option("WriteCache").is_some_and(|text| text.eq_ignore_ascii_case("Disable")) {
            unit.store.cache = CacheMode::Writethrough;
        }
        unit.store.thin = Some(false);
        let inquiry = section.find("UnitInquiry");
        let told = |position: usize| inquiry.map(|node| node.word(position));
        unit.inquiry = (
            told(1).unwrap_or("FreeBSD").to_owned(),
            told(2).unwrap_or("iSCSI DISK").to_owned(),
        );
        unit.serial = Some(match option("Serial") {
            Some(serial) => serial.to_owned(),
            None => serial(told(4), self.number, lun),
        });
        unit.naa = Some(naa(target, lun));
        unit
    }
}

/// The serial number of a LUN that has none set.
fn serial(told: Option<&str>, number: u16, lun: u64) -> String {
    let base = told
        .filter(|text| !text.is_empty())
        .map_or_else(|| format!("1000{number:04}"), str::to_owned);
    if lun == 0 {
        base
    } else {
        format!("{base}L{lun}")
    }
}

/// The NAA designator: locally assigned, with the CRC of name and LUN, which is over whole words.
fn naa(target: &str, lun: u64) -> String {
    let mut bytes = format!("{target},{lun}").into_bytes();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    format!("30000000{:08x}", crc32c::checksum(bytes))
}

fn lun_of(node: &Node) -> Option<u64> {
    node.key().strip_prefix("LUN")?.parse().ok()
}

fn initiator_group(name: &str, group: &Node, found: &mut Found) -> Option<String> {
    let mut acl = Acl::default();
    if !found.has_room(&group.place, 0) {
        return None;
    }
    for node in group.all("InitiatorName") {
        if node.value().starts_with('!') {
            let message = format!(
                "{:?} excludes an initiator; groups of Tarn only include",
                node.value()
            );
            let remedy = "list those who may see the disks instead";
            found.left_out(&node.place, &format!("group {name:?}"), message, remedy);
        } else {
            acl.names.push(node.value().to_owned());
        }
    }
    let netmasks = group.all("Netmask");
    acl.addresses = netmasks.map(|node| node.value().to_owned()).collect();
    acl.into_group(name, &group.place, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As seen on the wire of istgt 20111008.
    #[test]
    fn identities_are_those_of_istgt() {
        for (target, lun, expected) in [
            ("iqn.2026-11.example.istgt:disk1", 0, "30000000ffcdd763"),
            ("iqn.2026-11.example.istgt:disk1", 1, "3000000022887ddb"),
            ("iqn.2026-11.example.istgt:disk2", 0, "30000000cb711cb9"),
            ("iqn.2026-11.other:d2", 0, "30000000aef2d2bc"),
        ] {
            assert_eq!(naa(target, lun), expected);
        }
        assert_eq!(serial(None, 5, 0), "10000005");
        assert_eq!(serial(None, 1, 3), "10000001L3");
        assert_eq!(serial(Some("ABC"), 1, 0), "ABC");
    }
}
