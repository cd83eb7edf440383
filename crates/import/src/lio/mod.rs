//! LIO: `saveconfig.json`, as `targetcli` and `rtslib` write it.
//!
//! The unit serial number is the `wwn` of the backstore; the NAA designator is registered extended (6)
//! under the company id 001405h, with the first hexadecimal digits of that serial number.

mod access;
mod json;
mod keys;

use std::collections::BTreeMap;

use config::{StoreAt, StoreKind, StoreSpec};
use serde_json::Value;

use crate::found::{Found, Portal, Target, Unit, User};
use crate::passed::{NO_DEVICE, Passed};
use crate::{Place, ReadError, Source, address, rbd};
use json::{Places, account, is_set, is_understood, list, mutual, object, restricts, text};
use keys::{
    FILE, NOTICED, OBJECT_ATTRIBUTES, OF_MODULE, OF_OBJECT, OF_PORT_GROUP, OF_PORTAL, OF_TARGET,
    OF_TPG, TPG_ATTRIBUTES, TPG_PARAMETERS,
};

/// The vendor that INQUIRY reports.
const VENDOR: &str = "LIO-ORG";

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let config: Value = serde_json::from_str(source.text)
            .map_err(|error| ReadError::syntax(source.at(error.line()), error.to_string()))?;
        if config.get("portal-group").is_some() || config.get("auth-group").is_some() {
            return Err(ReadError::Ucl {
                place: source.at(1),
            });
        }
        let places = Places::of(source);
        found.is_guarded |= !is_understood(&config, FILE, &source.at(0), "file", found);
        let mut units = BTreeMap::new();
        for object in list(&config, "storage_objects") {
            let plugin = text(object, "plugin");
            let name = text(object, "name");
            if let Some(unit) = read_object(object, places.of_name(name), found) {
                let path = format!("/backstores/{plugin}/{name}");
                units.insert(path, (found.add_unit(unit), object));
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

fn read_discovery(config: &Value, places: &Places<'_>, found: &mut Found) {
    let modules = list(config, "fabric_modules").iter();
    for module in modules.filter(|module| text(module, "name") == "iscsi") {
        let place = places.of_name("iscsi");
        found.is_guarded |= !is_understood(module, OF_MODULE, &place, "discovery", found);
        if !restricts(module, "discovery_enable_auth", false) {
            continue;
        }
        found.discovery_needs_user = true;
        if let Some((name, secret)) = account(module, "discovery_") {
            let user = User::new(place, name, Some(secret));
            found.add_discovery_user(User {
                mutual: mutual(module, "discovery_"),
                ..user
            });
        }
    }
}

fn read_object(object: &Value, place: Place, found: &mut Found) -> Option<Unit> {
    let name = text(object, "name");
    let subject = format!("disk {name:?}");
    let attributes = json::object(object, "attributes");
    let made = match text(object, "plugin") {
        "pscsi" => passed_unit(object, &place, found),
        plugin => disk(plugin, object, &place),
    };
    let mut unit = match made {
        Ok(unit) => unit,
        Err((message, remedy)) => {
            found.left_out(&place, &subject, message, remedy);
            return None;
        }
    };
    let is_known = is_understood(object, OF_OBJECT, &place, &subject, found);
    let has_known = is_understood(attributes, OBJECT_ATTRIBUTES, &place, &subject, found);
    let groups = list(object, "alua_tpgs").iter();
    let unknown =
        groups.filter(|group| !is_understood(group, OF_PORT_GROUP, &place, &subject, found));
    let has_unknown_groups = unknown.count() != 0;
    unit.is_guarded = !is_known || !has_known || has_unknown_groups;
    unit.store.read_only = restricts(object, "readonly", false);
    note_attributes(attributes, &mut unit, found);
    let serial = text(object, "wwn");
    if !serial.is_empty() {
        unit.serial = Some(serial.to_owned());
        // The designators of a device are its own.
        unit.naa = (!unit.is_passed()).then(|| naa(serial));
    }
    Some(unit)
}

/// A device that has commands passed on, by its path or address; why there is none, and what to do.
fn passed_unit(
    object: &Value,
    place: &Place,
    found: &Found,
) -> Result<Unit, (String, &'static str)> {
    let dev = text(object, "dev");
    let passed = match dev.starts_with('/') {
        true => Passed::at_path(dev),
        false => Passed::at_address(&found.devices, dev, None),
    };
    let passed = passed.map_err(|problem| (problem, NO_DEVICE))?;
    Ok(Unit::passed(place.clone(), text(object, "name"), passed))
}

/// A disk; why Tarn cannot serve it, and what to do.
fn disk(plugin: &str, object: &Value, place: &Place) -> Result<Unit, (String, &'static str)> {
    let attributes = json::object(object, "attributes");
    let (store, model) = store(object).ok_or_else(|| {
        let message = format!(
            "backstore {plugin:?}; Tarn serves disks on files, block devices, images of Ceph and memory, and SCSI \
             devices below /dev"
        );
        (message, "keep LIO for it, or copy the data into a file or a block device")
    })?;
    let mut unit = Unit::new(place.clone(), text(object, "name"), store.at.clone());
    unit.store = store;
    unit.block_bytes = attributes
        .get("block_size")
        .and_then(Value::as_u64)
        .unwrap_or(512);
    unit.store.thin = Some(is_set(attributes, "emulate_tpu") || is_set(attributes, "emulate_tpws"));
    set_cache(plugin, object, &mut unit);
    let size_bytes = object.get("size").and_then(Value::as_u64).unwrap_or(0);
    if plugin == "fileio" && size_bytes != 0 && !text(object, "dev").starts_with("/dev/") {
        unit.note_size(&format!("{size_bytes} bytes"));
    }
    let alias = attributes.get("emulate_model_alias");
    let is_named = alias.is_none() || is_set(attributes, "emulate_model_alias");
    let model = if is_named { "" } else { model };
    unit.inquiry = (VENDOR.to_owned(), model.to_owned());
    Ok(unit)
}

/// Initiators that found no write cache do not flush one.
fn set_cache(plugin: &str, object: &Value, unit: &mut Unit) {
    const CACHE: &str = "emulate_write_cache";
    let attributes = json::object(object, "attributes");
    let is_back = is_set(object, "write_back");
    let is_reported = attributes
        .get(CACHE)
        .map_or(is_back, |_| is_set(attributes, CACHE));
    match plugin {
        "fileio" => unit.set_cache(!is_back || !is_reported, false),
        "block" => {
            unit.set_cache(!is_reported, false);
            if !is_reported {
                let message = "LIO reported no write cache, or that of the device; Tarn writes through the cache of \
                    the device, which is safe and may be slower";
                let remedy = "take cache=writethrough out if all initiators flush the cache that they find then";
                unit.change(message, remedy);
            }
        }
        // Others have no cache that could be chosen.
        _ => {}
    }
}

/// Notes the attributes that initiators notice.
fn note_attributes(attributes: &Value, unit: &mut Unit, found: &mut Found) {
    if restricts(attributes, "pi_prot_type", false) {
        let message = "pi_prot_type: Tarn has no protection information";
        let remedy = "format the disk without at the initiator";
        let subject = format!("disk {:?}", unit.name);
        found.left_out(&unit.place, &subject, message, remedy);
    }
    for (key, of_tarn, message, remedy) in NOTICED {
        if restricts(attributes, key, *of_tarn) != *of_tarn {
            unit.change(format!("{key}: {message}"), remedy);
        }
    }
}

/// The state of a LUN in a target port group (ALUA), if it is one in which commands are refused.
fn refusing_state(object: &Value, group: &str) -> Option<String> {
    let groups = list(object, "alua_tpgs").iter();
    let mut states = groups
        .filter(|one| text(one, "name") == group)
        .filter_map(|one| one.get("alua_access_state"));
    let state = states.find(|state| !matches!(state.as_u64(), Some(0 | 1)))?;
    Some(match state.as_u64() {
        Some(2) => "standby".to_owned(),
        Some(3) => "unavailable".to_owned(),
        Some(4) => "logical block dependent".to_owned(),
        Some(14) => "offline".to_owned(),
        Some(15) => "transitioning".to_owned(),
        _ => state.to_string(),
    })
}

/// A part of a portal group without what rtslib makes at random, and without the order of lists.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(comparable).collect();
            list.sort_by_cached_key(Value::to_string);
            Value::Array(list)
        }
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(key, _)| *key != "alias");
            Value::Object(
                entries
                    .map(|(key, value)| (key.clone(), comparable(value)))
                    .collect(),
            )
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// In what two portal groups differ, apart from their addresses.
fn differences(first: &Value, other: &Value) -> Vec<&'static str> {
    let method = |tpg: &Value| text(object(tpg, "parameters"), "AuthMethod").to_owned();
    let is_compared = |key: &&str| !matches!(*key, "portals" | "tag" | "enable" | "parameters");
    let part = |tpg: &Value, key: &str| tpg.get(key).map(comparable);
    let keys = OF_TPG.iter().copied().filter(is_compared);
    let mut differences: Vec<_> = keys
        .filter(|key| part(first, key) != part(other, key))
        .collect();
    if method(first) != method(other) {
        differences.push("AuthMethod");
    }
    differences
}

/// Where the data is, and the model that INQUIRY reports; `None` if Tarn cannot serve it.
fn store(object: &Value) -> Option<(StoreSpec, &'static str)> {
    let size_bytes = object.get("size").and_then(Value::as_u64).unwrap_or(0);
    let dev = text(object, "dev").to_owned();
    let (at, model) = match text(object, "plugin") {
        "fileio" => (StoreAt::path(dev), "FILEIO"),
        "block" => (StoreAt::path(dev), "IBLOCK"),
        "ramdisk" if is_set(object, "nullio") => {
            (StoreAt::sized(StoreKind::Null, size_bytes), "RAMDISK-MCP")
        }
        "ramdisk" => (StoreAt::sized(StoreKind::Memory, size_bytes), "RAMDISK-MCP"),
        // What the program in user mode does with a command is in its configuration: HANDLER/PLACE;OPTIONS.
        "user" => {
            let config = text(object, "config").strip_prefix("rbd/")?;
            let (image, options) = config.split_once(';').unwrap_or((config, ""));
            return Some((rbd::store(image, options)?, "TCMU device"));
        }
        _ => return None,
    };
    Some((StoreSpec::new(at), model))
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
    /// Where each storage object is among the units, and what the file has of it.
    units: &'a BTreeMap<String, (usize, &'a Value)>,
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
        let subject = self.subject();
        target.is_guarded = !is_understood(self.target, OF_TARGET, &self.place, &subject, found);
        for (value, keys) in [
            (*first, OF_TPG),
            (object(first, "attributes"), TPG_ATTRIBUTES),
            (object(first, "parameters"), TPG_PARAMETERS),
        ] {
            target.is_guarded |= !is_understood(value, keys, &self.place, &subject, found);
        }
        let alias = text(object(first, "parameters"), "TargetAlias");
        target.alias = (!alias.is_empty()).then(|| alias.to_owned());
        self.read_portals(first, &mut target, found);
        for other in others {
            let mut differences = differences(first, other);
            if !is_understood(other, OF_TPG, &self.place, &subject, found) {
                differences.push("what is not known");
            }
            if differences.is_empty() {
                self.read_portals(other, &mut target, found);
            } else {
                let message = format!(
                    "portal group {1} differs from portal group {0} in {2}; a target of Tarn is the same at all its \
                     portals, which are those of portal group {0} now",
                    tag(first),
                    tag(other),
                    differences.join(", ")
                );
                let remedy = "make them alike there and import again, or make another target with a name of its own";
                found.left_out(&self.place, &self.subject(), message, remedy);
            }
        }
        self.read_access(first, &mut target, found);
        found.targets.push(target);
    }

    fn read_portals(&self, tpg: &Value, target: &mut Target, found: &mut Found) {
        for portal in list(tpg, "portals") {
            let ip = text(portal, "ip_address");
            let port = portal.get("port").and_then(Value::as_u64).unwrap_or(3260);
            target.is_guarded |=
                !is_understood(portal, OF_PORTAL, &self.place, &self.subject(), found);
            let binds = address::address(ip).map_or_else(Vec::new, |ip| match ip {
                std::net::IpAddr::V4(ip) => address::binds(&format!("{ip}:{port}")),
                std::net::IpAddr::V6(ip) => address::binds(&format!("[{ip}]:{port}")),
            });
            match (!binds.is_empty())
                .then_some(binds)
                .filter(|_| !restricts(portal, "iser", false))
            {
                Some(binds) => target.portals.extend(binds.into_iter().map(|bind| Portal {
                    bind,
                    tag: tag(tpg),
                })),
                None => {
                    let message =
                        format!("portal {ip:?} port {port} is for iSER, or not an address");
                    let remedy = "add an address of TCP to portals by hand";
                    found.left_out(&self.place, &self.subject(), message, remedy);
                }
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
}
