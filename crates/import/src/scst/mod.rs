//! SCST: `scst.conf`, as `scstadmin` writes it.
//!
//! What a device shows is in its attributes `usn`, `t10_dev_id`, `naa_id` and `eui64_id`; `scstadmin`
//! writes them when they were set. SCST makes the first two of the CRC of the device's name.

mod keys;

use std::collections::BTreeMap;

use crate::found::{self, Found, Group, Mutual, Secret, Target, Unit, View};
use crate::lines::{is_yes, size_bytes};
use crate::tree::Node;
use crate::{ReadError, Source, braces, crc32c};
use config::{CacheMode, NamePattern, StoreAt, StoreKind};
use keys::{OF_DEVICE, OF_TARGET};

/// Handlers whose devices are disks on a file, a block device or nothing.
const HANDLERS: &[&str] = &["vdisk_fileio", "vdisk_blockio", "vdisk_nullio"];

/// What initiators go by where a device has no NAA designator.
const EUI_64: &str = "an EUI-64 and a T10 vendor designator, made of t10_dev_id";

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let file = braces::read(source)?;
        let mut devices = BTreeMap::new();
        let setup_id = file.value_of("setup_id").and_then(number).unwrap_or(0);
        for handler in file.all("HANDLER") {
            for device in handler.all("DEVICE") {
                if let Some(unit) = read_device(handler.value(), device, setup_id, found) {
                    devices.insert(device.value().to_owned(), found.add_unit(unit));
                }
            }
        }
        for driver in file.all("TARGET_DRIVER") {
            read_driver(driver, &devices, found);
        }
        for group in file.all("DEVICE_GROUP") {
            let message = "asymmetric access by groups of devices and targets";
            let remedy = "nothing if all paths led to one host; Tarn reports all its ports active";
            found.left_out(
                &group.place,
                &format!("device group {:?}", group.value()),
                message,
                remedy,
            );
        }
    }
    Ok(())
}

fn read_device(handler: &str, device: &Node, setup_id: u32, found: &mut Found) -> Option<Unit> {
    let name = device.value();
    let subject = format!("disk {name:?}");
    if !HANDLERS.contains(&handler) {
        let message = format!("handler {handler}; Tarn serves disks on files and block devices");
        let remedy = "keep SCST for it, or copy the data into a file or a block device";
        found.left_out(&device.place, &subject, message, remedy);
        return None;
    }
    for child in &device.children {
        found.idle_key(OF_DEVICE, &child.place, &subject, child.key());
    }
    let value = |key: &str| device.value_of(key);
    let is_set = |key: &str| value(key).is_some_and(is_yes);
    let store = match value("filename") {
        Some(path) => StoreAt::path(path.to_owned()),
        None => StoreAt::sized(StoreKind::Null, null_bytes(device)),
    };
    let mut unit = Unit::new(device.place.clone(), name, store);
    unit.block_bytes = value("blocksize").map_or(512, |text| text.parse().unwrap_or(0));
    unit.store.read_only = is_set("read_only");
    unit.store.removable = is_set("removable");
    unit.store.thin = value("thin_provisioned").map(is_yes);
    unit.store.cache = if is_set("o_direct") {
        CacheMode::Direct
    } else if is_set("write_through") || is_set("nv_cache") {
        CacheMode::Writethrough
    } else {
        CacheMode::Writeback
    };
    if is_set("nv_cache") {
        let message = "nv_cache promised that no write is lost though it was cached; Tarn has each on \
            stable storage before it answers, which is slower";
        let remedy = "take cache=writethrough out if the cache really survives a power failure and initiators flush";
        found.changed(&device.place, &subject, message, remedy);
    }
    set_identity(handler, device, setup_id, &mut unit, found);
    Some(unit)
}

/// The size of a device without a file.
fn null_bytes(device: &Node) -> u64 {
    let mib = device.value_of("size_mb").map(|text| format!("{text}M"));
    let text = device.value_of("size").map(str::to_owned).or(mib);
    text.and_then(|text| size_bytes(&text)).unwrap_or(0)
}

fn set_identity(handler: &str, device: &Node, setup_id: u32, unit: &mut Unit, found: &mut Found) {
    let name = device.value();
    let value = |key: &str| device.value_of(key).map(str::to_owned);
    let is_told = device.find("usn").is_some();
    let number = dev_id_num(name, setup_id);
    unit.serial = Some(value("usn").unwrap_or_else(|| format!("{number:x}")));
    unit.naa = value("naa_id").map(|naa| naa.trim_start_matches("0x").to_owned());
    unit.other_designator = Some(EUI_64);
    let vendor = if handler == "vdisk_blockio" {
        "SCST_BIO"
    } else {
        "SCST_FIO"
    };
    unit.inquiry = (
        value("t10_vend_id").unwrap_or_else(|| vendor.to_owned()),
        value("prod_id").unwrap_or_default(),
    );
    if !is_told {
        let message = format!(
            "usn is missing; {number:x} is what SCST 3 makes of the name with setup_id {setup_id:#x}"
        );
        let remedy = "compare with /sys/kernel/scst_tgt/devices/NAME/usn, and correct serial";
        found.changed(&device.place, &format!("disk {name:?}"), message, remedy);
    }
}

/// A number as the kernel reads it, decimal or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The number that SCST makes of a device's name: its CRC with the zero at its end, and before it the
/// `setup_id`, which keeps the devices of several machines apart.
fn dev_id_num(name: &str, setup_id: u32) -> u64 {
    let crc = crc32c::update(0, name.bytes().chain([0]));
    u64::from(setup_id) << 32 | u64::from(crc)
}

fn read_driver(driver: &Node, devices: &BTreeMap<String, usize>, found: &mut Found) {
    if driver.value() != "iscsi" {
        for target in driver.all("TARGET") {
            let message = format!("target driver {:?}; Tarn speaks iSCSI", driver.value());
            let subject = format!("target {}", target.value());
            found.left_out(
                &target.place,
                &subject,
                message,
                "log the initiators in over iSCSI",
            );
        }
        return;
    }
    for node in incoming_users(driver) {
        let (name, secret) = account(node);
        found.add_user(node.place.clone(), &name, secret, None);
        found.discovery_auth.push(name);
    }
    for target in driver.all("TARGET") {
        read_target(target, devices, found);
    }
    if let Some(first) = driver.all("TARGET").next() {
        let message = "the addresses of iscsi-scstd are on its command line; Tarn would listen on all, port 3260";
        let remedy = "give --listen ADDRESS:PORT if it listened elsewhere";
        found.changed(&first.place, "portals", message, remedy);
    }
}

/// The users of a driver or a target. Those after the first may be numbered, as their attributes
/// are: `IncomingUser1`.
fn incoming_users(node: &Node) -> impl Iterator<Item = &Node> {
    let users = node.children.iter();
    users.filter(|child| unnumbered(child.key()) == "IncomingUser")
}

fn unnumbered(key: &str) -> &str {
    key.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Name and secret, in one quoted word or in two.
fn account(node: &Node) -> (String, Option<Secret>) {
    let rest = Secret::new(node.rest());
    match rest.split_once(char::is_whitespace) {
        Some((name, secret)) => {
            let secret = Secret::new(secret.trim().to_owned());
            (name.to_owned(), Some(secret))
        }
        None => (rest.as_str().to_owned(), None),
    }
}

fn read_target(node: &Node, devices: &BTreeMap<String, usize>, found: &mut Found) {
    let name = node.value();
    let subject = format!("target {name}");
    if node.value_of("enabled").is_some_and(|text| !is_yes(text)) {
        let message = "it is not enabled";
        found.left_out(
            &node.place,
            &subject,
            message,
            "enable it there and import again, if it is used",
        );
        return;
    }
    for child in &node.children {
        found.idle_key(OF_TARGET, &child.place, &subject, unnumbered(child.key()));
    }
    let mut target = Target::new(node.place.clone(), name);
    target.alias = node.value_of("alias").map(str::to_owned);
    read_portals(node, &mut target, found);
    read_users(node, &mut target, found);
    let mut earlier: Vec<String> = Vec::new();
    for group in node.all("GROUP") {
        let id = add_group(name, group, &mut earlier, found);
        add_views(group, Some(&id), devices, &mut target, found);
    }
    let has_groups = node.all("GROUP").next().is_some();
    let others = (has_groups && node.all("LUN").next().is_some())
        .then(|| add_others(name, node, &earlier, found));
    add_views(node, others.as_deref(), devices, &mut target, found);
    found.targets.push(target);
}

/// The group of those who are in no group of a target, and see its own LUNs.
fn add_others(target: &str, node: &Node, members: &[String], found: &mut Found) -> String {
    let id = format!("{target}/others");
    let subject = format!("target {target}");
    let mut initiators = vec!["*".to_owned()];
    let is_all = members.iter().any(|member| member == "*");
    if is_all {
        let message =
            "its own LUNs were for the few that a group with * excludes; nobody sees them now";
        let remedy = "add a group of these initiators, and the luns for it";
        found.left_out(&node.place, &subject, message, remedy);
        initiators.clear();
    } else {
        let message =
            "its own LUNs are for initiators in none of its groups: a group of all others was made";
        found.changed(&node.place, &subject, message, "nothing");
        initiators.extend(members.iter().map(|member| format!("!{member}")));
    }
    found.groups.push(Group {
        place: node.place.clone(),
        id: id.clone(),
        initiators,
    });
    id
}

fn read_portals(node: &Node, target: &mut Target, found: &mut Found) {
    for allowed in node.all("allowed_portal") {
        match crate::address::bind(allowed.value()) {
            Some(bind) => target.portals.push(found::Portal { bind, tag: 1 }),
            None => {
                let message = format!("allowed_portal {:?} is not an address", allowed.value());
                let remedy = "add the address to portals by hand";
                found.left_out(
                    &allowed.place,
                    &format!("target {}", target.name),
                    message,
                    remedy,
                );
            }
        }
    }
    if node.find("allowed_portal").is_none() {
        target.portals = found::portal_of_all();
    }
}

fn read_users(node: &Node, target: &mut Target, found: &mut Found) {
    let outgoing = node.find("OutgoingUser").map(account);
    let mutual = outgoing.map(|(name, secret)| Mutual { name, secret });
    for incoming in incoming_users(node) {
        let (name, secret) = account(incoming);
        found.add_user(incoming.place.clone(), &name, secret, mutual.clone());
        target.auth.push(name);
    }
}

/// An initiator is in the first group of a target that has it. So each takes out the members of `earlier` ones, and its
/// own are added to those.
fn add_group(target: &str, group: &Node, earlier: &mut Vec<String>, found: &mut Found) -> String {
    let id = format!("{target}/{}", group.value());
    let subject = format!("group {:?}", group.value());
    let mut initiators: Vec<String> = Vec::new();
    let mut is_whole = true;
    let mut portals = Vec::new();
    for initiator in group.all("INITIATOR") {
        let name = initiator.value();
        let Some((before, _)) = name.split_once('#') else {
            initiators.push(name.to_owned());
            continue;
        };
        let message =
            format!("INITIATOR {name:?} goes by the portal; groups of Tarn go by name or address");
        let remedy = "list those who may see the disks instead";
        found.left_out(&initiator.place, &subject, message, remedy);
        // Who was taken out would be in it.
        is_whole &= !name.starts_with('!');
        portals.push(before.to_owned());
    }
    let is_exclusion = |name: &String| name.starts_with('!');
    if !initiators.is_empty() && initiators.iter().all(is_exclusion) {
        initiators.insert(0, "*".to_owned());
    }
    let members = initiators.iter().filter(|name| !is_exclusion(name));
    let members: Vec<String> = members.cloned().chain(portals).collect();
    let taken = earlier.iter().filter(|other| overlaps(&members, other));
    initiators.extend(taken.map(|other| format!("!{other}")));
    if !is_whole {
        initiators.clear();
    }
    earlier.extend(members);
    found.groups.push(Group {
        place: group.place.clone(),
        id: id.clone(),
        initiators,
    });
    id
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

fn add_views(
    node: &Node,
    group: Option<&str>,
    devices: &BTreeMap<String, usize>,
    target: &mut Target,
    found: &mut Found,
) {
    for lun in node.all("LUN") {
        let (Ok(number), Some(&unit)) = (lun.value().parse(), devices.get(lun.word(2))) else {
            let line = format!("LUN {}", lun.rest());
            found.no_disk(&lun.place, &target.name, &line);
            continue;
        };
        target.views.push(View {
            place: lun.place.clone(),
            lun: number,
            unit,
            group: group.map(str::to_owned),
            read_only: lun.value_of("read_only").is_some_and(is_yes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setup_id_is_part_of_what_a_name_makes() {
        assert_eq!(dev_id_num("plain", 0), 0x2c97_96ae);
        assert_eq!(dev_id_num("plain", 0x12), 0x12_2c97_96ae);
        for (text, value) in [("0x1F", Some(31)), ("31", Some(31)), ("x", None)] {
            assert_eq!(number(text), value);
        }
    }
}
