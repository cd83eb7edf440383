//! LIO: `saveconfig.json`, as `targetcli` and `rtslib` write it.
//!
//! The unit serial number is the `wwn` of the backstore; the NAA designator is registered extended (6)
//! under the company id 001405h, with the first hexadecimal digits of that serial number.

mod access;
mod json;
mod keys;

use std::collections::BTreeMap;

use config::{CacheMode, StoreAt, StoreKind, StoreSpec};
use serde_json::Value;

use crate::found::{Found, Portal, Target, Unit, User};
use crate::{Place, ReadError, Source, address, rbd};
use json::{Places, account, is_set, is_understood, list, mutual, object, restricts, text};
use keys::{
    FILE, OBJECT_ATTRIBUTES, OF_MODULE, OF_OBJECT, OF_PORTAL, OF_TARGET, OF_TPG, TPG_ATTRIBUTES,
    TPG_PARAMETERS,
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
    let plugin = text(object, "plugin");
    let attributes = json::object(object, "attributes");
    let Some((store, model)) = store(object) else {
        let message = format!(
            "backstore {plugin:?} passes commands on; Tarn serves disks on files, block devices, images of Ceph and \
             memory"
        );
        let remedy = "give Tarn the block device behind it, if it is a disk; its identity was that of the device";
        found.left_out(&place, &subject, message, remedy);
        return None;
    };
    let is_known = is_understood(object, OF_OBJECT, &place, &subject, found);
    let has_known = is_understood(attributes, OBJECT_ATTRIBUTES, &place, &subject, found);
    let mut unit = Unit::new(place, name, store.at.clone());
    unit.is_guarded = !is_known || !has_known;
    unit.store = store;
    unit.block_bytes = attributes
        .get("block_size")
        .and_then(Value::as_u64)
        .unwrap_or(512);
    unit.store.read_only = restricts(object, "readonly", false);
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
            let keys = OF_TPG
                .iter()
                .filter(|key| !matches!(**key, "portals" | "tag" | "enable"));
            let mut keys = keys.filter(|key| **key != "parameters");
            let method = |tpg: &Value| text(object(tpg, "parameters"), "AuthMethod").to_owned();
            let is_alike = keys.all(|key| other.get(key) == first.get(key))
                && method(other) == method(first)
                && is_understood(other, OF_TPG, &self.place, &subject, found);
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
