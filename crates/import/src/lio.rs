//! LIO: `saveconfig.json`, as `targetcli` and `rtslib` write it.
//!
//! The unit serial number is the `wwn` of the backstore; the NAA designator is registered extended (6)
//! under the company id 001405h, with the first hexadecimal digits of that serial number.

use std::collections::BTreeMap;

use config::IscsiName;
use config::{CacheMode, StoreAt, StoreKind};
use serde_json::Value;

use crate::found::{Found, Group, Mutual, Portal, Secret, Target, Unit, User, View};
use crate::{Place, ReadError, Source, address};

/// The vendor that INQUIRY reports.
const VENDOR: &str = "LIO-ORG";

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let config: Value = serde_json::from_str(source.text)
            .map_err(|error| ReadError::syntax(source.at(error.line()), error.to_string()))?;
        let places = Places::of(source);
        let mut units = BTreeMap::new();
        for object in list(&config, "storage_objects") {
            let plugin = text(object, "plugin");
            let name = text(object, "name");
            if let Some(unit) = read_object(object, places.of_name(name), found) {
                let path = format!("/backstores/{plugin}/{name}");
                units.insert(path, found.add_unit(unit));
            }
        }
        read_discovery(&config, &places, found);
        for target in list(&config, "targets") {
            TargetReader {
                target,
                place: places.of_name(text(target, "wwn")),
                places: &places,
                units: &units,
            }
            .read(found);
        }
    }
    Ok(())
}

/// An entry of an object as a list; empty if there is none.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An entry of an object as text; empty if there is none.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an entry is true, or a number other than 0.
fn is_set(value: &Value, key: &str) -> bool {
    match value.get(key) {
        Some(Value::Bool(is_set)) => *is_set,
        Some(Value::Number(number)) => number.as_i64().is_some_and(|number| number > 0),
        Some(Value::String(text)) => crate::lines::is_yes(text),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

/// A name and its secret, if both are there.
fn account(value: &Value, prefix: &str) -> Option<(String, Secret)> {
    let name = text(value, &format!("{prefix}userid"));
    let secret = text(value, &format!("{prefix}password"));
    let is_there = !name.is_empty() && !secret.is_empty();
    is_there.then(|| (name.to_owned(), Secret::new(secret.to_owned())))
}

fn mutual(value: &Value, prefix: &str) -> Option<Mutual> {
    account(value, &format!("{prefix}mutual_")).map(|(name, secret)| Mutual {
        name,
        secret: Some(secret),
    })
}

/// The line of each name in the text, which a JSON value does not know.
struct Places<'a> {
    source: &'a Source<'a>,
    lines: BTreeMap<&'a str, usize>,
}

impl<'a> Places<'a> {
    fn of(source: &'a Source<'a>) -> Self {
        let mut lines = BTreeMap::new();
        for (number, line) in (1..).zip(source.text.lines()) {
            let mut rest = line;
            while let Some((key, value, after)) = string_entry(rest) {
                if matches!(key, "name" | "wwn" | "node_wwn") {
                    lines.entry(value).or_insert(number);
                }
                rest = after;
            }
        }
        Self { source, lines }
    }

    fn of_name(&self, name: &str) -> Place {
        self.source.at(self.lines.get(name).copied().unwrap_or(0))
    }
}

/// The next `"key": "value"` of a line, and what follows it.
fn string_entry(line: &str) -> Option<(&str, &str, &str)> {
    let mut rest = line;
    loop {
        let (_, front) = rest.split_once('"')?;
        let (key, after) = front.split_once('"')?;
        let value = after.trim_start().strip_prefix(':');
        let value = value.and_then(|value| value.trim_start().strip_prefix('"'));
        match value.and_then(|value| value.split_once('"')) {
            Some((value, after)) => return Some((key, value, after)),
            None => rest = after,
        }
    }
}

fn read_discovery(config: &Value, places: &Places<'_>, found: &mut Found) {
    let modules = list(config, "fabric_modules").iter();
    for module in modules.filter(|module| text(module, "name") == "iscsi") {
        if !is_set(module, "discovery_enable_auth") {
            continue;
        }
        if let Some((name, secret)) = account(module, "discovery_") {
            let place = places.of_name("iscsi");
            found.add_user(place, &name, Some(secret), mutual(module, "discovery_"));
            found.discovery_auth.push(name);
        }
    }
}

fn read_object(object: &Value, place: Place, found: &mut Found) -> Option<Unit> {
    let name = text(object, "name");
    let subject = format!("disk {name:?}");
    let plugin = text(object, "plugin");
    let null = Value::Null;
    let attributes = object.get("attributes").unwrap_or(&null);
    let size_bytes = object.get("size").and_then(Value::as_u64).unwrap_or(0);
    let dev = text(object, "dev").to_owned();
    let (store, model) = match plugin {
        "fileio" => (StoreAt::path(dev), "FILEIO"),
        "block" => (StoreAt::path(dev), "IBLOCK"),
        "ramdisk" if is_set(object, "nullio") => {
            (StoreAt::sized(StoreKind::Null, size_bytes), "RAMDISK-MCP")
        }
        "ramdisk" => (StoreAt::sized(StoreKind::Memory, size_bytes), "RAMDISK-MCP"),
        _ => {
            let message = format!(
                "backstore {plugin:?} passes commands on; Tarn serves disks on files, block devices and memory"
            );
            let remedy = "give Tarn the block device behind it, if it is a disk; its identity was that of the device";
            found.left_out(&place, &subject, message, remedy);
            return None;
        }
    };
    let mut unit = Unit::new(place, name, store);
    unit.block_bytes = attributes
        .get("block_size")
        .and_then(Value::as_u64)
        .unwrap_or(512);
    unit.store.read_only = is_set(object, "readonly");
    unit.store.thin = Some(is_set(attributes, "emulate_tpu") || is_set(attributes, "emulate_tpws"));
    if plugin == "fileio" && !is_set(object, "write_back") {
        unit.store.cache = CacheMode::Writethrough;
    }
    let alias = attributes.get("emulate_model_alias");
    let is_named = alias.is_none() || is_set(attributes, "emulate_model_alias");
    let model = if is_named { "" } else { model };
    unit.inquiry = (VENDOR.to_owned(), model.to_owned());
    let serial = text(object, "wwn");
    if !serial.is_empty() {
        unit.serial = Some(serial.to_owned());
        unit.naa = Some(naa(serial));
    }
    Some(unit)
}

/// The NAA designator of a serial number: whatever is no hexadecimal digit is passed over.
fn naa(serial: &str) -> String {
    const DIGITS: usize = 25;
    let digits = serial.chars().filter(char::is_ascii_hexdigit);
    let digits: String = digits.take(DIGITS).collect();
    format!("6001405{:0<DIGITS$}", digits.to_ascii_lowercase())
}

/// A target that is being read.
struct TargetReader<'a> {
    target: &'a Value,
    place: Place,
    places: &'a Places<'a>,
    units: &'a BTreeMap<String, usize>,
}

impl TargetReader<'_> {
    fn subject(&self) -> String {
        format!("target {}", text(self.target, "wwn"))
    }

    fn read(&self, found: &mut Found) {
        let fabric = text(self.target, "fabric");
        if fabric != "iscsi" {
            let message = format!("fabric {fabric:?}; Tarn speaks iSCSI");
            found.left_out(
                &self.place,
                &self.subject(),
                message,
                "log the initiators in over iSCSI",
            );
            return;
        }
        let (enabled, disabled): (Vec<_>, Vec<_>) = list(self.target, "tpgs")
            .iter()
            .partition(|tpg| tpg.get("enable").is_none() || is_set(tpg, "enable"));
        for tpg in disabled {
            let message = format!("portal group {} is not enabled", tag(tpg));
            let remedy = "enable it there and import again, if it is used";
            found.left_out(&self.place, &self.subject(), message, remedy);
        }
        let Some((first, others)) = enabled.split_first() else {
            return;
        };
        let mut target = Target::new(self.place.clone(), text(self.target, "wwn"));
        let null = Value::Null;
        let alias = text(first.get("parameters").unwrap_or(&null), "TargetAlias");
        target.alias = (!alias.is_empty()).then(|| alias.to_owned());
        self.read_portals(first, &mut target, found);
        for other in others {
            let is_alike = ["luns", "node_acls", "attributes"]
                .iter()
                .all(|key| other.get(key) == first.get(key));
            if is_alike {
                self.read_portals(other, &mut target, found);
            } else {
                let message = format!(
                    "portal group {} shows other disks, or to others, than portal group {}; a target of \
                     Tarn shows the same at all its portals",
                    tag(other),
                    tag(first)
                );
                let remedy = "make another target for it, with a name of its own";
                found.left_out(&self.place, &self.subject(), message, remedy);
            }
        }
        if self.read_access(first, &mut target, found) {
            found.targets.push(target);
        }
    }

    fn read_portals(&self, tpg: &Value, target: &mut Target, found: &mut Found) {
        for portal in list(tpg, "portals") {
            let ip = text(portal, "ip_address");
            let port = portal.get("port").and_then(Value::as_u64).unwrap_or(3260);
            let address = address::address(ip).map(|ip| match ip {
                std::net::IpAddr::V4(ip) => format!("{ip}:{port}"),
                std::net::IpAddr::V6(ip) => format!("[{ip}]:{port}"),
            });
            let bind = address.and_then(|address| address::bind(&address));
            match bind.filter(|_| !is_set(portal, "iser")) {
                Some(bind) => target.portals.push(Portal {
                    bind,
                    tag: tag(tpg),
                }),
                None => {
                    let message =
                        format!("portal {ip:?} port {port} is for iSER, or not an address");
                    let remedy = "add an address of TCP to portals by hand";
                    found.left_out(&self.place, &self.subject(), message, remedy);
                }
            }
        }
    }

    /// Who sees what. False if nobody could log in, which is noted.
    fn read_access(&self, tpg: &Value, target: &mut Target, found: &mut Found) -> bool {
        let null = Value::Null;
        let attributes = tpg.get("attributes").unwrap_or(&null);
        let needs_chap = is_set(attributes, "authentication");
        let is_demo = is_set(attributes, "generate_node_acls");
        let acls = list(tpg, "node_acls");
        if needs_chap {
            self.read_users(tpg, acls, target, found);
            if target.auth.is_empty() {
                let message = "CHAP is required, but no user is set; no initiator could log in";
                found.left_out(
                    &self.place,
                    &self.subject(),
                    message,
                    "set a user there and import again, or add both by hand",
                );
                return false;
            }
        }
        let units = self.units_of(tpg);
        for acl in acls {
            self.read_acl(&units, acl, target, found);
        }
        if is_demo {
            let protects = attributes.get("demo_mode_write_protect");
            let is_protected = protects.is_none() || is_set(attributes, "demo_mode_write_protect");
            self.read_demo_mode(tpg, acls, is_protected, target, found);
        }
        true
    }

    fn read_users(&self, tpg: &Value, acls: &[Value], target: &mut Target, found: &mut Found) {
        for owner in std::iter::once(tpg).chain(acls) {
            if let Some((name, secret)) = account(owner, "chap_") {
                let initiator = text(owner, "node_wwn");
                let place = self.places.of_name(initiator);
                // Of the portal group, the user may come with any name; of an ACL, with that one.
                let bound = match IscsiName::parse(initiator) {
                    Ok(bound) => vec![bound.to_string()],
                    Err(_) if initiator.is_empty() => Vec::new(),
                    Err(_) => {
                        let message =
                            format!("{initiator:?}, whose user {name:?} is, is no initiator name");
                        let remedy = "add the user, with the names it may come with";
                        found.left_out(&place, &self.subject(), message, remedy);
                        continue;
                    }
                };
                found.users.push(User {
                    place,
                    name: name.clone(),
                    secret: Some(secret),
                    mutual: mutual(owner, "chap_"),
                    initiators: bound,
                });
                target.auth.push(name);
            }
        }
    }

    /// The units of a portal group by their numbers in it.
    fn units_of(&self, tpg: &Value) -> BTreeMap<u64, usize> {
        let unit = |lun: &Value| {
            let index = lun.get("index").and_then(Value::as_u64)?;
            let unit = self.units.get(text(lun, "storage_object"))?;
            Some((index, *unit))
        };
        list(tpg, "luns").iter().filter_map(unit).collect()
    }

    fn read_acl(
        &self,
        units: &BTreeMap<u64, usize>,
        acl: &Value,
        target: &mut Target,
        found: &mut Found,
    ) {
        let name = text(acl, "node_wwn");
        let place = self.places.of_name(name);
        found.groups.push(Group {
            place: place.clone(),
            id: name.to_owned(),
            initiators: vec![name.to_owned()],
        });
        for mapped in list(acl, "mapped_luns") {
            let number = |key: &str| mapped.get(key).and_then(Value::as_u64);
            let unit = number("tpg_lun").and_then(|lun| units.get(&lun));
            let (Some(index), Some(&unit)) = (number("index"), unit) else {
                let message = format!("a LUN of initiator {name} shows no disk that was imported");
                found.left_out(
                    &place,
                    &self.subject(),
                    message,
                    "see the note on that disk",
                );
                continue;
            };
            target.views.push(View {
                place: place.clone(),
                lun: index,
                unit,
                group: Some(name.to_owned()),
                read_only: is_set(mapped, "write_protect"),
            });
        }
    }

    /// Everyone who is in no list sees all disks of the portal group.
    fn read_demo_mode(
        &self,
        tpg: &Value,
        acls: &[Value],
        is_protected: bool,
        target: &mut Target,
        found: &mut Found,
    ) {
        if !acls.is_empty() && is_protected {
            let message = "initiators without an ACL saw all disks read-only (generate_node_acls); now they see none";
            let remedy = "make a second target with readonly = true for them";
            found.left_out(&self.place, &self.subject(), message, remedy);
            return;
        }
        if !acls.is_empty() {
            let message = "initiators without an ACL saw all disks (generate_node_acls); so does everyone now";
            let remedy = "give each disk its groups if that was not meant";
            found.changed(&self.place, &self.subject(), message, remedy);
        }
        for lun in list(tpg, "luns") {
            let index = lun.get("index").and_then(Value::as_u64);
            let unit = self.units.get(text(lun, "storage_object"));
            if let (Some(index), Some(&unit)) = (index, unit) {
                target.views.push(View {
                    place: self.place.clone(),
                    lun: index,
                    unit,
                    group: None,
                    read_only: is_protected,
                });
            }
        }
    }
}

/// The target portal group tag.
fn tag(tpg: &Value) -> u16 {
    let tag = tpg.get("tag").and_then(Value::as_u64).unwrap_or(1);
    u16::try_from(tag).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_designator_takes_the_digits_of_the_serial_number() {
        for (serial, expected) in [
            (
                "0c5f0e5b-2f3a-4c1d-9e8f-0123456789ab",
                "60014050c5f0e5b2f3a4c1d9e8f01234",
            ),
            ("ABC", "6001405abc0000000000000000000000"),
            ("x-y", "60014050000000000000000000000000"),
        ] {
            assert_eq!(naa(serial), expected, "{serial}");
        }
    }

    #[test]
    fn names_are_found_on_their_lines() {
        let text = "{\n \"x\": 1, \"name\": \"a\",\n \"wwn\": \"b\", \"name\": \"a\"}";
        let source = Source { name: "f", text };
        let places = Places::of(&source);
        assert_eq!(places.of_name("a").line, 2);
        assert_eq!(places.of_name("b").line, 3);
        assert_eq!(places.of_name("c").line, 0);
    }
}
