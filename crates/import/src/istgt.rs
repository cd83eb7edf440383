//! istgt: `istgt.conf` with `auth.conf`.
//!
//! The NAA designator is locally assigned (3) and made of the CRC of name and LUN; a serial number that
//! is not set is made of the number of the section. Seen in istgt 20111008.

use std::collections::{BTreeMap, BTreeSet};

use crate::acl::Acl;
use crate::found::{Found, Group, Idle, Mutual, Portal, Secret, Target, Unit, User, View};
use crate::lines::{base_name, is_no, is_yes};
use crate::tree::Node;
use crate::{ReadError, Source, acl, address, crc32c, ini};
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

const GLOBAL: &[(&str, Idle)] = &[
    ("Comment", Idle::Housekeeping),
    ("NodeBase", Idle::Housekeeping),
    ("PidFile", Idle::Housekeeping),
    ("AuthFile", Idle::Housekeeping),
    ("LogFile", Idle::Housekeeping),
    ("MediaDirectory", Idle::Housekeeping),
    ("LogFacility", Idle::Housekeeping),
    ("Timeout", Idle::Housekeeping),
    ("NopInInterval", Idle::Housekeeping),
    ("DiscoveryAuthMethod", Idle::Housekeeping),
    ("DiscoveryAuthGroup", Idle::Housekeeping),
    ("MaxSessions", Idle::Housekeeping),
    ("MaxConnections", Idle::Housekeeping),
    ("MaxR2T", Idle::Housekeeping),
    ("MaxOutstandingR2T", Idle::Housekeeping),
    ("DefaultTime2Wait", Idle::Housekeeping),
    ("DefaultTime2Retain", Idle::Housekeeping),
    ("FirstBurstLength", Idle::Housekeeping),
    ("MaxBurstLength", Idle::Housekeeping),
    ("MaxRecvDataSegmentLength", Idle::Housekeeping),
    ("InitialR2T", Idle::Housekeeping),
    ("ImmediateData", Idle::Housekeeping),
    ("DataPDUInOrder", Idle::Housekeeping),
    ("DataSequenceInOrder", Idle::Housekeeping),
    ("ErrorRecoveryLevel", Idle::Housekeeping),
];

const COMMENT: (&str, Idle) = ("Comment", Idle::Housekeeping);
const OF_PORTAL_GROUP: &[(&str, Idle)] = &[COMMENT, ("Portal", Idle::Housekeeping)];
const OF_INITIATOR_GROUP: &[(&str, Idle)] = &[
    COMMENT,
    ("InitiatorName", Idle::Housekeeping),
    ("Netmask", Idle::Housekeeping),
];
const OF_AUTH_GROUP: &[(&str, Idle)] = &[COMMENT, ("Auth", Idle::Housekeeping)];

/// The keys of a kind of section.
type Keys = &'static [(&'static str, Idle)];

/// The kinds of sections, with the keys of each; those of the control port mean nothing here.
const KINDS: &[(&str, Option<Keys>)] = &[
    ("Global", Some(GLOBAL)),
    ("UnitControl", None),
    ("PortalGroup", Some(OF_PORTAL_GROUP)),
    ("InitiatorGroup", Some(OF_INITIATOR_GROUP)),
    ("LogicalUnit", Some(OF_UNIT)),
    ("AuthGroup", Some(OF_AUTH_GROUP)),
];

/// The kind of a section and its name in one spelling, as istgt knows no case; `None` if it is none.
fn section_name(name: &str) -> Option<(&'static str, String)> {
    let digits = name
        .len()
        .saturating_sub(name.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    let (kind, number) = name.split_at_checked(name.len().saturating_sub(digits))?;
    let (kind, _) = KINDS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(kind))?;
    let number = match number {
        "" => String::new(),
        number => number.parse::<u16>().ok()?.to_string(),
    };
    Some((kind, format!("{kind}{number}")))
}

/// All sections of all files, by name; a later section of a name adds to the first.
struct Sections(BTreeMap<String, Node>);

impl Sections {
    fn get(&self, name: &str) -> Option<&Node> {
        let (_, name) = section_name(name)?;
        self.0.get(&name)
    }
}

/// The first line of a key counts.
fn first<'a>(section: &'a Node, key: &'a str) -> Option<&'a Node> {
    section.all(key).next()
}

fn first_value<'a>(section: &'a Node, key: &'a str) -> Option<&'a str> {
    first(section, key).map(Node::value)
}

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    let mut sections = Sections(BTreeMap::new());
    let mut units = Vec::new();
    for source in sources {
        for mut section in ini::read(source)? {
            let Some((kind, name)) = section_name(section.key()) else {
                found.is_guarded |= !found.unknown_key(&section.place, "section", section.key());
                continue;
            };
            spell(kind, &mut section);
            match sections.0.get_mut(&name) {
                Some(first) => first.children.extend(section.children),
                None => {
                    if kind == "LogicalUnit" {
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

/// Gives the keys the spelling of the tables.
fn spell(kind: &str, section: &mut Node) {
    let keys = KINDS
        .iter()
        .find(|(known, _)| *known == kind)
        .and_then(|(_, keys)| *keys);
    for node in &mut section.children {
        let spelt = keys
            .into_iter()
            .flatten()
            .find(|(key, _)| key.eq_ignore_ascii_case(node.key()));
        let lun = node
            .key()
            .get(3..)
            .filter(|_| node.key().to_ascii_uppercase().starts_with("LUN"));
        let spelt = match (spelt, lun) {
            (Some((key, _)), _) => Some((*key).to_owned()),
            (None, Some(number)) => Some(format!("LUN{number}")),
            (None, None) => None,
        };
        if let (Some(word), Some(spelt)) = (node.words.first_mut(), spelt) {
            *word = spelt;
        }
    }
}

/// Whether all keys of a section are known.
fn is_understood(section: &Node, keys: &[(&str, Idle)], subject: &str, found: &mut Found) -> bool {
    let children = section
        .children
        .iter()
        .filter(|child| lun_of(child).is_none());
    // All that is not known is noted.
    let unknown =
        children.filter(|child| !found.idle_key(keys, &child.place, subject, child.key()));
    unknown.count() == 0
}

/// The number behind `kind` in the name of a section.
fn number_of(name: &str, kind: &str) -> Option<u16> {
    name.strip_prefix(kind)?.parse().ok()
}

fn has_word(node: &Node, word: &str) -> bool {
    node.words
        .iter()
        .skip(1)
        .any(|one| one.eq_ignore_ascii_case(word))
}

fn read_discovery(sections: &Sections, found: &mut Found) {
    let Some(global) = sections.get("Global") else {
        return;
    };
    found.is_guarded |= !is_understood(global, GLOBAL, "global", found);
    if first(global, "DiscoveryAuthMethod").is_some_and(|method| has_word(method, "CHAP")) {
        found.discovery_needs_user = true;
        let group = first_value(global, "DiscoveryAuthGroup").unwrap_or_default();
        for user in users(sections, group, "discovery", found) {
            found.add_discovery_user(user);
        }
    }
}

/// The users of an AuthGroup.
fn users(sections: &Sections, group: &str, subject: &str, found: &mut Found) -> Vec<User> {
    let Some(section) = sections.get(group) else {
        return Vec::new();
    };
    let has_room = found.has_room(&section.place, section.children.len());
    if !has_room || !is_understood(section, OF_AUTH_GROUP, subject, found) {
        return Vec::new();
    }
    let user = |auth: &Node| {
        let secret = |text: &str| (!text.is_empty()).then(|| Secret::new(text.to_owned()));
        let mutual = (!auth.word(3).is_empty()).then(|| Mutual {
            name: auth.word(3).to_owned(),
            secret: secret(auth.word(4)),
        });
        let user = User::new(auth.place.clone(), auth.value(), secret(auth.word(2)));
        User { mutual, ..user }
    };
    section.all("Auth").map(user).collect()
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
        let kind = first_value(section, "UnitType").unwrap_or("Disk");
        if !kind.eq_ignore_ascii_case("Disk") {
            let message = format!("UnitType {kind}; Tarn serves disks");
            found.left_out(&section.place, &subject, message, "keep istgt for it");
            return;
        }
        let mut target = Target::new(section.place.clone(), name);
        target.is_guarded = !is_understood(section, OF_UNIT, &subject, found);
        if first_value(section, "UnitOnline").is_some_and(|online| !is_yes(online)) {
            let message = "it is not online";
            let remedy = "set it online there and import again, if it is used";
            found.left_out(&section.place, &subject, message, remedy);
            target.is_guarded = true;
        }
        target.alias = first_value(section, "TargetAlias").map(str::to_owned);
        self.read_auth(&mut target, found);
        let groups = self.read_mappings(&mut target, found);
        self.read_luns(&mut target, &groups, found);
        found.targets.push(target);
    }

    /// A short name gets the NodeBase before it.
    fn name(&self) -> String {
        let name = first_value(self.section, "TargetName").unwrap_or_default();
        let is_full = ["iqn.", "eui.", "naa."]
            .iter()
            .any(|start| name.to_ascii_lowercase().starts_with(start));
        let base = self
            .sections
            .get("Global")
            .and_then(|global| first_value(global, "NodeBase"));
        match base {
            Some(base) if !is_full => format!("{base}:{name}"),
            Some(_) | None => name.to_owned(),
        }
    }

    /// Who has to prove himself. CHAP without users lets nobody in.
    fn read_auth(&self, target: &mut Target, found: &mut Found) {
        let subject = format!("target {}", target.name);
        let Some(method) = first(self.section, "AuthMethod") else {
            return;
        };
        let is_known = |word: &String| {
            ["CHAP", "Mutual", "Auto", "None"]
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known))
        };
        if let Some(word) = method.words.iter().skip(1).find(|word| !is_known(word)) {
            target.is_guarded |= !found.unknown_key(&method.place, &subject, word);
        }
        let group = first_value(self.section, "AuthGroup");
        if has_word(method, "CHAP") {
            target.needs_user = true;
            let users = users(self.sections, group.unwrap_or_default(), &subject, found);
            if users.is_empty() {
                let message =
                    "CHAP is required, but its AuthGroup has no user; no initiator could log in";
                found.left_out(&target.place, &subject, message, "bring auth.conf along");
            }
            for user in users {
                found.add_target_user(target, user);
            }
        } else if has_word(method, "Auto") && group.is_some() {
            let message = "AuthMethod Auto takes initiators with CHAP and without; the users are not \
                imported, and every initiator may log in without, as before";
            found.changed(&target.place, &subject, message, "set auth to ask for CHAP");
        }
    }

    /// Portals and groups of the mappings. Gives the groups that see the units; `None` is everyone.
    fn read_mappings(&self, target: &mut Target, found: &mut Found) -> Vec<Option<String>> {
        let subject = format!("target {}", target.name);
        let mut groups: BTreeMap<&str, &Node> = BTreeMap::new();
        let mut by_portals: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for mapping in self.section.all("Mapping") {
            let (portals, initiators) = (mapping.value(), mapping.word(2));
            if by_portals.entry(portals).or_default().insert(initiators)
                && !groups.contains_key(initiators)
            {
                match self.sections.get(initiators) {
                    Some(group) => drop(groups.insert(initiators, group)),
                    None => {
                        let message = format!("Mapping names {initiators:?}, which is not there");
                        found.left_out(&mapping.place, &subject, message, "add a group by hand");
                        target.is_guarded = true;
                    }
                }
            }
        }
        for portals in by_portals.keys() {
            self.read_portals(portals, target, found);
        }
        let mut sets = by_portals.values();
        let is_alike = sets.next().is_none_or(|first| sets.all(|set| set == first));
        if !is_alike {
            let message = "each Mapping let its initiators in through its portals; a target of Tarn lets all of \
                them in through all of its";
            let remedy = "make a target for each PortalGroup, with groups for its initiators";
            found.left_out(&target.place, &subject, message, remedy);
            target.is_guarded = true;
        }
        let exclusions = groups.values().flat_map(|group| group.all("InitiatorName"));
        let exclusions = exclusions.filter_map(|node| node.value().strip_prefix('!'));
        let exclusions: Vec<String> = exclusions.map(str::to_owned).collect();
        let groups = groups.into_iter();
        groups
            .map(|(name, group)| {
                target.is_guarded |= !is_understood(group, OF_INITIATOR_GROUP, name, found);
                initiator_group(&target.name, name, group, &exclusions, found)
            })
            .collect()
    }

    fn read_portals(&self, name: &str, target: &mut Target, found: &mut Found) {
        let spelt = section_name(name).map(|(_, name)| name).unwrap_or_default();
        let tag = number_of(&spelt, "PortalGroup").unwrap_or(1).max(1);
        let Some(group) = self.sections.get(name) else {
            let message = format!("Mapping names {name:?}, which is not there");
            let subject = format!("target {}", target.name);
            let remedy = "add the addresses to portals by hand";
            found.left_out(&target.place, &subject, message, remedy);
            target.is_guarded = true;
            return;
        };
        target.is_guarded |= !is_understood(group, OF_PORTAL_GROUP, name, found);
        let place = &self.section.place;
        if !found.has_room(place, group.all("Portal").count()) {
            return;
        }
        for portal in group.all("Portal") {
            // A tag of the portal group may stand behind the address.
            let text = portal.word(2).split(',').next().unwrap_or_default();
            let any = text
                .strip_prefix("*:")
                .map(|port| format!("0.0.0.0:{port}"));
            let text = any.as_deref().unwrap_or(text);
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
                    let mut unit = self.unit(lun, node, &target.name);
                    unit.is_guarded = !self.is_known(lun, &target.name, found);
                    let unit = found.add_unit(unit);
                    target.views.extend(groups.iter().map(|group| View {
                        place: node.place.clone(),
                        lun,
                        unit,
                        group: group.clone(),
                        read_only: false,
                    }));
                }
                // Read with its storage.
                "Option" => {}
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

    /// Whether all options of a LUN are known.
    fn is_known(&self, lun: u64, target: &str, found: &mut Found) -> bool {
        let subject = format!("target {target} LUN {lun}");
        let options = self.section.children.iter();
        let options = options.filter(|node| lun_of(node) == Some(lun) && node.value() == "Option");
        let unknown = options
            .filter(|node| !found.idle_key(LUN_OPTIONS, &node.place, &subject, node.word(2)));
        unknown.count() == 0
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
        let block = first_value(section, "BlockLength");
        unit.block_bytes = block.map_or(512, |text| text.parse().unwrap_or(0));
        unit.store.read_only = first_value(section, "ReadOnly").is_some_and(|text| !is_no(text));
        if option("WriteCache").is_some_and(|text| text.eq_ignore_ascii_case("Disable")) {
            unit.store.cache = CacheMode::Writethrough;
        }
        unit.store.thin = Some(false);
        let size = storage.word(3);
        if !size.is_empty() && !size.eq_ignore_ascii_case("Auto") {
            unit.note_size(size);
        }
        let inquiry = first(section, "UnitInquiry");
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

/// The group of an InitiatorGroup; `None` is everyone. Who is excluded in one group of a target is in none.
fn initiator_group(
    target: &str,
    name: &str,
    group: &Node,
    exclusions: &[String],
    found: &mut Found,
) -> Option<String> {
    let values = |key: &'static str| -> Vec<String> {
        group.all(key).map(|node| node.value().to_owned()).collect()
    };
    let is_all = |list: &[String]| list.iter().any(|one| one.eq_ignore_ascii_case("ALL"));
    let (names, masks) = (values("InitiatorName"), values("Netmask"));
    let subject = format!("group {name:?}");
    let id = if exclusions.is_empty() {
        name.to_owned()
    } else {
        format!("{target}/{name}")
    };
    let names = (!is_all(&names)).then(|| {
        let names = names
            .into_iter()
            .filter(|name| !name.starts_with('!'))
            .collect();
        acl::literal(names, &group.place, &subject, found)
    });
    // An IPv6 network stands in brackets.
    let is_mask = |mask: &String| {
        mask.contains(':') == mask.starts_with('[') && address::network(mask).is_some()
    };
    let masks =
        (!masks.is_empty() && !is_all(&masks)).then(|| masks.into_iter().filter(is_mask).collect());
    if exclusions.is_empty() {
        let acl = Acl {
            names,
            addresses: masks,
            unclear: None,
        };
        return acl.into_group(&id, &group.place, found);
    }
    let all = vec!["*".to_owned()];
    let acl = Acl {
        addresses: match (&names, masks) {
            (None, None) => Some(all),
            (_, masks) => masks,
        },
        names,
        unclear: None,
    };
    let id = acl.into_group(&id, &group.place, found)?;
    if let Some(made) = found.groups.last_mut().filter(|made| made.id == id) {
        exclude(made, exclusions);
    }
    Some(id)
}

/// Takes initiators out of a group.
fn exclude(group: &mut Group, exclusions: &[String]) {
    if exclusions
        .iter()
        .any(|name| name.eq_ignore_ascii_case("ALL"))
    {
        group.initiators.clear();
    } else if !group.initiators.is_empty() {
        group
            .initiators
            .extend(exclusions.iter().map(|name| format!("!{name}")));
    }
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
