//! FreeBSD: `ctl.conf`, as `ctld` reads it.
//!
//! A disk shows the T10 vendor designator of its `device-id`, and an NAA designator only if the option
//! `naa` sets one. Serial numbers and device ids that are not set are numbered in the order in which
//! disks were made, which is not in the file.

mod grammar;
mod keys;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::acl::Acl;
use crate::found::{self, Found, Mutual, Portal, Secret, Target, Unit, User, View};
use crate::lines::{base_name, is_no, is_yes};
use crate::tree::Node;
use crate::{ReadError, Source, acl, address};
use config::{CacheMode, StoreAt, StoreKind, StorePlace};
use keys::{GLOBAL, OF_LUN, OF_PORTAL_GROUP, OF_TARGET, OPTIONS};

/// The tag of the portal group that ctld makes first, which is called `default`.
const FIRST_TAG: u16 = 256;

/// What initiators go by where a disk has no NAA designator.
const T10_VENDOR: &str = "a T10 vendor designator, FREEBSD with the device-id";

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let file = grammar::read(source)?;
        let mut reader = Reader {
            sections: sections(&file)?,
            tags: tags(&file),
            shared: BTreeMap::new(),
            guessed: RefCell::default(),
        };
        for node in &file.children {
            match node.key() {
                "lun" => {
                    let unit = reader.read_unit(node, node.value(), found);
                    reader.shared.insert(node.value(), unit);
                }
                "portal-group" => reader.read_portal_group(node, found),
                "target" | "auth-group" => {}
                key => found.is_guarded |= !found.idle_key(GLOBAL, &node.place, "global", key),
            }
        }
        for target in file.all("target") {
            // Each looks through the lists that it names; what is not to be used is not looked for.
            if !found.has_room(&target.place, 0) {
                break;
            }
            reader.read_target(target, found);
        }
    }
    Ok(())
}

/// What stands in the file, by key and name. ctld refuses a second one of a name.
fn sections(file: &Node) -> Result<Sections<'_>, ReadError> {
    let mut sections = Sections::new();
    let is_named =
        |node: &&Node| matches!(node.key(), "auth-group" | "portal-group" | "lun" | "target");
    for node in file.children.iter().filter(is_named) {
        if let Some(first) = sections.insert((node.key(), node.value()), node) {
            let problem = format!(
                "a {} of this name is at line {}, too",
                node.key(),
                first.place.line
            );
            return Err(ReadError::syntax(node.place.clone(), problem));
        }
    }
    Ok(sections)
}

/// Sections by key and name.
type Sections<'a> = BTreeMap<(&'a str, &'a str), &'a Node>;

/// A number as ctld reads it: decimal, hexadecimal behind `0x`, octal behind `0`, with a unit.
fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let units = lower.trim_end_matches(|c| "kmgtpeb".contains(c));
    // The letters of a hexadecimal number are no units.
    let (digits, unit) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, ""),
        None => lower.split_at_checked(units.len())?,
    };
    let radix = match digits {
        _ if lower.starts_with("0x") => 16,
        _ if digits.len() > 1 && digits.starts_with('0') => 8,
        _ => 10,
    };
    let shift = match unit.trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    u64::from_str_radix(digits, radix)
        .ok()?
        .checked_mul(1 << shift)
}

/// The tag of each portal group: its own, or the next from 256, where `default` comes first.
fn tags(file: &Node) -> BTreeMap<&str, (u16, bool)> {
    let named = file
        .all("portal-group")
        .map(|node| (node.value(), Some(node)));
    let mut tags = BTreeMap::new();
    let mut next = FIRST_TAG;
    for (name, node) in std::iter::once(("default", None)).chain(named) {
        let told = node.and_then(|node| node.value_of("tag"));
        match told
            .and_then(number)
            .and_then(|tag| tag.try_into().ok())
            .filter(|tag| *tag != 0)
        {
            Some(tag) => {
                tags.insert(name, (tag, true));
            }
            None => {
                tags.entry(name).or_insert_with(|| {
                    let tag = next;
                    next = next.saturating_add(1);
                    (tag, false)
                });
            }
        }
    }
    tags
}

/// Who a target lets in.
enum Access<'a> {
    /// Everyone.
    Open,
    /// Those whom this section names: an auth-group, or the target itself.
    Of(&'a Node),
    /// Nobody.
    Deny,
}

/// Whom a section lets in: ctld wants it to have users, or to say that none are needed.
fn access_by(section: &Node) -> Access<'_> {
    let has_users = ["chap", "chap-mutual"]
        .iter()
        .any(|key| section.find(key).is_some());
    let mut types: Vec<&str> = section.all("auth-type").map(Node::value).collect();
    types.dedup();
    match types.as_slice() {
        ["none"] => Access::Of(section),
        ["deny"] => Access::Deny,
        [] | [_] if has_users => Access::Of(section),
        // ctld refuses two that differ.
        [] | [..] => Access::Deny,
    }
}

struct Reader<'a> {
    sections: Sections<'a>,
    /// The tag of each portal group, and whether the file has it.
    tags: BTreeMap<&'a str, (u16, bool)>,
    /// Disks that several targets may show, by name.
    shared: BTreeMap<&'a str, Option<usize>>,
    /// Portal groups of which it is noted that the file lacks the tag.
    guessed: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Reader<'a> {
    fn section(&self, key: &str, name: &str) -> Option<&'a Node> {
        self.sections.get(&(key, name)).copied()
    }

    fn read_portal_group(&self, node: &'a Node, found: &mut Found) {
        let subject = format!("portal group {:?}", node.value());
        for child in &node.children {
            found.idle_key(OF_PORTAL_GROUP, &child.place, &subject, child.key());
        }
        let group = node.value_of("discovery-auth-group");
        match self.access(group.unwrap_or("default")) {
            Access::Open => {}
            Access::Of(section) => {
                for user in users(section, found) {
                    found.add_discovery_user(user);
                }
            }
            Access::Deny => {
                let message = "discovery was refused here; Tarn answers, and lists the targets that an \
                    initiator may log in to";
                let remedy = "set discovery_auth to a user to keep the names from others";
                found.changed(&node.place, &subject, message, remedy);
            }
        }
    }

    fn read_target(&self, node: &'a Node, found: &mut Found) {
        let name = node.value();
        let subject = format!("target {name}");
        let mut target = Target::new(node.place.clone(), name);
        target.alias = node.value_of("alias").map(str::to_owned);
        for child in &node.children {
            target.is_guarded |= !found.idle_key(OF_TARGET, &child.place, &subject, child.key());
        }
        // A portal group may be named with an auth-group of its own, which counts there.
        let first = node.all("portal-group").next();
        let own = first.map_or("", |group| group.word(2));
        let access = if own.is_empty() {
            self.access_of_target(node)
        } else {
            self.access(own)
        };
        let group = match access {
            Access::Open => None,
            Access::Of(section) => {
                for user in users(section, found) {
                    found.add_target_user(&mut target, user);
                }
                let values = |key: &'static str| -> Option<Vec<String>> {
                    let values: Vec<_> = section
                        .all(key)
                        .map(|node| node.value().to_owned())
                        .collect();
                    (!values.is_empty()).then_some(values)
                };
                let names = values("initiator-name");
                let subject = format!("access to {}", section.value());
                let acl = Acl {
                    names: names.map(|names| acl::literal(names, &section.place, &subject, found)),
                    addresses: values("initiator-portal"),
                    unclear: None,
                };
                acl.into_group(section.value(), &section.place, found)
            }
            Access::Deny => {
                let message = "its auth-group lets nobody in; a target without one takes the auth-group \
                    default, which does the same unless it is set";
                let remedy = "add the target by hand, with auth or groups";
                found.left_out(&node.place, &subject, message, remedy);
                target.is_guarded = true;
                None
            }
        };
        self.read_portals(node, own, &mut target, found);
        for lun in node.all("lun") {
            self.read_lun(lun, &mut target, group.as_ref(), found);
        }
        found.targets.push(target);
    }

    /// Who may log in to a target: its auth-group says so, or it does itself.
    fn access_of_target(&self, target: &'a Node) -> Access<'a> {
        const OWN: &[&str] = &[
            "chap",
            "chap-mutual",
            "auth-type",
            "initiator-name",
            "initiator-portal",
        ];
        let is_own = target.children.iter().any(|node| OWN.contains(&node.key()));
        let groups: Vec<&str> = target.all("auth-group").map(Node::value).collect();
        match groups.as_slice() {
            [] if is_own => access_by(target),
            [] => self.access("default"),
            [name] if !is_own => self.access(name),
            // ctld refuses both, and two.
            [..] => Access::Deny,
        }
    }

    /// Whom an auth-group lets in. One that is not in the file is of ctld, or nobody's.
    fn access(&self, name: &str) -> Access<'a> {
        match (name, self.section("auth-group", name)) {
            ("no-authentication", _) => Access::Open,
            (_, Some(section)) => access_by(section),
            (_, None) => Access::Deny,
        }
    }

    /// The portals of the groups that are named with the auth-group `own`.
    fn read_portals(&self, node: &'a Node, own: &str, target: &mut Target, found: &mut Found) {
        let subject = format!("target {}", target.name);
        let mut names: Vec<&str> = Vec::new();
        for group in node.all("portal-group") {
            if group.word(2) == own {
                names.push(group.value());
                continue;
            }
            let message = format!(
                "at portal group {} it had another auth-group; one holds at all portals of a target of \
                 Tarn, so it is not reached there",
                group.value()
            );
            let remedy = "make another target for these portals";
            found.left_out(&group.place, &subject, message, remedy);
        }
        if names.is_empty() {
            names.push("default");
        }
        for name in names {
            let (tag, is_told) = self.tags.get(name).copied().unwrap_or((FIRST_TAG, false));
            let section = self.section("portal-group", name);
            if section.is_none() && name == "default" {
                target.portals.extend(found::portals_of_all(tag));
            }
            let listens = section.map_or_else(Vec::new, |section| section.all("listen").collect());
            if !found.has_room(&node.place, listens.len()) {
                return;
            }
            for listen in listens {
                match address::bind(listen.value()) {
                    Some(bind) => target.portals.push(Portal { bind, tag }),
                    None => {
                        let message = format!("listen {:?} is not an address", listen.value());
                        let remedy = "add the address to portals by hand";
                        found.left_out(&listen.place, &subject, message, remedy);
                    }
                }
            }
            // Once, however many targets it has.
            if !is_told && self.guessed.borrow_mut().insert(name) {
                let message = format!(
                    "its tag is missing; {tag} is what ctld gives it when it starts with this file"
                );
                let remedy = "compare with the portal group that an initiator has stored (iscsiadm -m node \
                    shows it behind the comma)";
                let place = section.map_or(&node.place, |section| &section.place);
                found.changed(place, &format!("portal group {name:?}"), message, remedy);
            }
        }
    }

    /// `lun NUMBER { ... }`, or `lun NUMBER NAME` of a disk that stands by itself.
    fn read_lun(
        &self,
        node: &Node,
        target: &mut Target,
        group: Option<&String>,
        found: &mut Found,
    ) {
        let unit = match node.word(2) {
            "" => {
                let name = node.value_of("path").map(base_name);
                let suffix = target.name.rsplit(':').next().unwrap_or_default();
                let made = format!("{suffix}-{}", node.value());
                self.read_unit(node, name.unwrap_or(&made), found)
            }
            name => self.shared.get(name).copied().flatten(),
        };
        let (Some(lun), Some(unit)) = (number(node.value()), unit) else {
            let line = format!("lun {}", node.rest());
            found.no_disk(&node.place, &target.name, &line);
            return;
        };
        target.views.push(View {
            place: node.place.clone(),
            lun,
            unit,
            group: group.cloned(),
            read_only: false,
        });
    }

    fn read_unit(&self, node: &Node, name: &str, found: &mut Found) -> Option<usize> {
        let subject = format!("disk {name:?}");
        let mut is_guarded = false;
        for child in &node.children {
            is_guarded |= if child.key() == "option" {
                !found.idle_key(OPTIONS, &child.place, &subject, child.value())
            } else {
                !found.idle_key(OF_LUN, &child.place, &subject, child.key())
            };
        }
        let kind = node.value_of("device-type").unwrap_or("disk");
        if !matches!(kind, "disk" | "direct" | "0") {
            let message = format!("device-type {kind}; Tarn serves disks");
            found.left_out(&node.place, &subject, message, "keep ctld for it");
            return None;
        }
        let mut unit = unit(node, name);
        unit.is_guarded = is_guarded;
        Some(found.add_unit(unit))
    }
}

fn unit(node: &Node, name: &str) -> Unit {
    let option = |key: &str| {
        let mut options = node.children.iter().rev();
        options
            .find(|child| child.key() == "option" && child.value() == key)
            .map(|child| child.word(2))
    };
    let store = if node.value_of("backend") == Some("ramdisk") {
        StoreAt::sized(
            StoreKind::Memory,
            node.value_of("size").and_then(number).unwrap_or(0),
        )
    } else {
        StoreAt::path(node.value_of("path").unwrap_or_default().to_owned())
    };
    let mut unit = Unit::new(node.place.clone(), name, store);
    let block = node.value_of("blocksize");
    unit.block_bytes = block.map_or(512, |text| number(text).unwrap_or(0));
    unit.store.read_only = option("readonly").is_some_and(|text| !is_no(text));
    unit.store.removable = option("removable").is_some_and(is_yes);
    unit.store.thin = option("unmap").map(is_yes);
    if option("writecache").is_some_and(|text| !is_yes(text)) {
        unit.store.cache = CacheMode::Writethrough;
    }
    // That of a disk in memory is in the store.
    let size = node.value_of("size");
    if let (Some(size), StorePlace::Path(_)) = (size, &unit.store.at.place) {
        unit.note_size(size);
    }
    unit.serial = node.value_of("serial").map(str::to_owned);
    let naa = option("naa").map(|naa| naa.trim_start_matches("0x").to_owned());
    unit.naa = naa;
    unit.other_designator = Some(T10_VENDOR);
    unit.inquiry = (
        option("vendor").unwrap_or("FREEBSD").to_owned(),
        option("product").unwrap_or("CTLDISK").to_owned(),
    );
    unit
}

/// The users of an auth-group, or of a target.
fn users(section: &Node, found: &mut Found) -> Vec<User> {
    let secret = |text: &str| (!text.is_empty()).then(|| Secret::new(text.to_owned()));
    if !found.has_room(&section.place, section.children.len()) {
        return Vec::new();
    }
    let user = |node: &Node| {
        let mutual = match node.key() {
            "chap" => None,
            "chap-mutual" => Some(Mutual {
                name: node.word(3).to_owned(),
                secret: secret(node.word(4)),
            }),
            _ => return None,
        };
        let user = User::new(node.place.clone(), node.value(), secret(node.word(2)));
        Some(User { mutual, ..user })
    };
    section.children.iter().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_expand_number() {
        for (text, expected) in [
            ("0", Some(0)),
            ("16M", Some(16 << 20)),
            ("1gb", Some(1 << 30)),
            ("0x0001", Some(1)),
            ("0xFE", Some(254)),
            ("010", Some(8)),
            ("08", None),
            ("", None),
            ("k", None),
            ("1x", None),
            ("16E", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
