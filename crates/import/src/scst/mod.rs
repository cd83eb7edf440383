//! SCST: `scst.conf`, as `scstadmin` writes it.
//!
//! What a device shows is in its attributes `usn`, `t10_dev_id`, `naa_id` and `eui64_id`; `scstadmin`
//! writes them when they were set. SCST makes the first two of the CRC of the device's name.

mod grammar;
mod initiators;
mod keys;

use std::collections::BTreeMap;

use crate::found::{self, Found, Mutual, Secret, Target, Unit, User, View};
use crate::lines::{is_no, is_yes, size_bytes};
use crate::passed::{NO_DEVICE, Passed};
use crate::tree::Node;
use crate::{ReadError, Source, crc32c};
use config::{StoreAt, StoreKind};
use initiators::Groups;
use keys::{GLOBAL, OF_DEVICE, OF_DRIVER, OF_GROUP, OF_HANDLER, OF_LUN, OF_TARGET};

/// Handlers whose devices are disks on a file, a block device or nothing, and drives.
const HANDLERS: &[&str] = &["vdisk_fileio", "vdisk_blockio", "vdisk_nullio", CDROM];

/// The handler of drives.
const CDROM: &str = "vcdrom";

/// Handlers that pass commands on, with the PERIPHERAL DEVICE TYPE that each takes.
const PASSED: &[(&str, u8)] = &[
    ("dev_disk", 0x00),
    ("dev_tape", 0x01),
    ("dev_processor", 0x03),
    ("dev_cdrom", 0x05),
    ("dev_modisk", 0x07),
    ("dev_changer", 0x08),
];

/// What initiators go by where a device has no NAA designator.
const EUI_64: &str = "an EUI-64 and a T10 vendor designator, made of t10_dev_id";

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let file = grammar::read(source)?;
        found.is_guarded |= !is_understood(&file, GLOBAL, "global", found);
        let mut devices = BTreeMap::new();
        let setup_id = file.value_of("setup_id").and_then(number).unwrap_or(0);
        for handler in file.all("HANDLER") {
            let subject = format!("handler {}", handler.value());
            let is_guarded = !is_understood(handler, OF_HANDLER, &subject, found);
            for device in handler.all("DEVICE") {
                if let Some(mut unit) = read_device(handler.value(), device, setup_id, found) {
                    unit.is_guarded |= is_guarded;
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

/// Whether all keys of a section are known. The first of several users has no number, the others have one.
fn is_understood(
    section: &Node,
    keys: &[(&str, found::Idle)],
    subject: &str,
    found: &mut Found,
) -> bool {
    let unknown = section.children.iter().filter(|child| {
        let key = match unnumbered(child.key()) {
            user @ ("IncomingUser" | "OutgoingUser") => user,
            _ => child.key(),
        };
        !found.idle_key(keys, &child.place, subject, key)
    });
    // All that is not known is noted.
    unknown.count() == 0
}

fn read_device(handler: &str, device: &Node, setup_id: u32, found: &mut Found) -> Option<Unit> {
    let name = device.value();
    let subject = format!("disk {name:?}");
    let passed = PASSED.iter().find(|(passed, _)| *passed == handler);
    if passed.is_none() && !HANDLERS.contains(&handler) {
        let (message, remedy) = not_served(handler);
        found.left_out(&device.place, &subject, message, remedy);
        return None;
    }
    let is_guarded = !is_understood(device, OF_DEVICE, &subject, found);
    if let Some((_, device_type)) = passed {
        let mut unit = read_passed(device, *device_type, &subject, found)?;
        unit.is_guarded = is_guarded;
        return Some(unit);
    }
    let value = |key: &str| device.value_of(key);
    let is_set = |key: &str| value(key).is_some_and(is_yes);
    let store = match value("filename") {
        path if handler == CDROM => StoreAt::disc(path.unwrap_or_default()),
        Some(path) => StoreAt::path(path.to_owned()),
        None => StoreAt::sized(StoreKind::Null, null_bytes(device)),
    };
    let mut unit = Unit::new(device.place.clone(), name, store);
    unit.is_guarded = is_guarded;
    if handler == CDROM {
        set_identity(handler, device, setup_id, &mut unit, found);
        return Some(unit);
    }
    unit.block_bytes = value("blocksize").map_or(512, |text| text.parse().unwrap_or(0));
    unit.store.read_only = is_read_only(device);
    unit.store.removable = is_set("removable");
    unit.store.thin = value("thin_provisioned").map(is_yes);
    unit.set_cache(
        is_set("write_through") || is_set("nv_cache"),
        is_set("o_direct"),
    );
    if let (Some(_), Some(size)) = (value("filename"), told_size(device)) {
        unit.note_size(&size);
    }
    if is_set("nv_cache") {
        let message = "nv_cache promised that no write is lost though it was cached; Tarn has each on \
            stable storage before it answers, which is slower";
        let remedy = "take cache=writethrough out if the cache really survives a power failure and initiators flush";
        found.changed(&device.place, &subject, message, remedy);
    }
    set_identity(handler, device, setup_id, &mut unit, found);
    Some(unit)
}

/// Why there is nothing like the devices of a handler, and what to do.
fn not_served(handler: &str) -> (String, &'static str) {
    if handler.starts_with("dev_") && handler.ends_with("_perf") {
        let message = format!(
            "handler {handler} answers reads and writes without moving data, for measuring"
        );
        return (
            message,
            "give the device to the handler without _perf there and import again, if its data is wanted",
        );
    }
    let message = format!("handler {handler}; Tarn serves disks on files and block devices");
    (
        message,
        "keep SCST for it, or copy the data into a file or a block device",
    )
}

/// A device that has commands passed on, by the address that is its name.
fn read_passed(device: &Node, device_type: u8, subject: &str, found: &mut Found) -> Option<Unit> {
    let address = device.value();
    match Passed::at_address(&found.devices, address, Some(device_type)) {
        Ok(passed) => {
            let mut unit = Unit::passed(device.place.clone(), address, passed);
            unit.store.read_only = is_read_only(device);
            Some(unit)
        }
        Err(problem) => {
            found.left_out(&device.place, subject, problem, NO_DEVICE);
            None
        }
    }
}

fn is_read_only(node: &Node) -> bool {
    node.value_of("read_only").is_some_and(|text| !is_no(text))
}

/// The size that is set.
fn told_size(device: &Node) -> Option<String> {
    let mib = device.value_of("size_mb").map(|text| format!("{text}M"));
    device.value_of("size").map(str::to_owned).or(mib)
}

/// The size of a device without a file.
fn null_bytes(device: &Node) -> u64 {
    told_size(device)
        .and_then(|text| size_bytes(&text))
        .unwrap_or(0)
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
    let subject = format!("target driver {}", driver.value());
    if driver.value() == "copy_manager" {
        let message = "SCST copies within itself (EXTENDED COPY); Tarn does not";
        found.left_out(
            &driver.place,
            &subject,
            message,
            "nothing: initiators copy by themselves then",
        );
        return;
    }
    if driver.value() != "iscsi" {
        for target in driver.all("TARGET") {
            let message = format!("target driver {:?}; Tarn speaks iSCSI", driver.value());
            let subject = format!("target {}", target.value());
            let remedy = "log the initiators in over iSCSI";
            found.left_out(&target.place, &subject, message, remedy);
        }
        return;
    }
    found.is_guarded |= !is_understood(driver, OF_DRIVER, &subject, found);
    if !driver.value_of("enabled").is_some_and(is_yes) {
        let message = "it is not enabled, so no target of it is reached";
        let remedy = "enable it there and import again, if it is used";
        found.left_out(&driver.place, &subject, message, remedy);
        found.is_guarded = true;
    }
    for node in incoming_users(driver) {
        let (name, secret) = account(node);
        found.add_discovery_user(User::new(node.place.clone(), name, secret));
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
    let mut target = Target::new(node.place.clone(), name);
    target.is_guarded = !is_understood(node, OF_TARGET, &subject, found);
    if !node.value_of("enabled").is_some_and(is_yes) {
        let message = "it is not enabled";
        let remedy = "enable it there and import again, if it is used";
        found.left_out(&node.place, &subject, message, remedy);
        target.is_guarded = true;
    }
    let is_black_hole = |node: &Node| node.value_of("black_hole").is_some_and(|text| text != "0");
    if is_black_hole(node) || node.all("GROUP").any(is_black_hole) {
        let message = "black_hole: SCST drops commands or aborts them";
        found.left_out(
            &node.place,
            &subject,
            message,
            "add the target by hand, if it is used",
        );
        target.is_guarded = true;
    }
    target.alias = node.value_of("alias").map(str::to_owned);
    read_portals(node, &mut target, found);
    read_users(node, &mut target, found);
    let mut groups = Groups::of(node);
    for group in node.all("GROUP") {
        let subject = format!("group {:?}", group.value());
        target.is_guarded |= !is_understood(group, OF_GROUP, &subject, found);
        let id = groups.add(group, found);
        add_views(group, Some(&id), devices, &mut target, found);
    }
    let has_groups = node.all("GROUP").next().is_some();
    let others = (has_groups && node.all("LUN").next().is_some()).then(|| groups.add_others(found));
    add_views(node, others.as_deref(), devices, &mut target, found);
    groups.limit_portals(&mut target, found);
    found.targets.push(target);
}

fn read_portals(node: &Node, target: &mut Target, found: &mut Found) {
    for allowed in node.all("allowed_portal") {
        let binds = crate::address::binds(allowed.value());
        let is_address = !binds.is_empty();
        target
            .portals
            .extend(binds.into_iter().map(|bind| found::Portal { bind, tag: 1 }));
        if !is_address {
            let message = format!("allowed_portal {:?} is not an address", allowed.value());
            let remedy = "add the address to portals by hand";
            let subject = format!("target {}", target.name);
            found.left_out(&allowed.place, &subject, message, remedy);
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
        let user = User::new(incoming.place.clone(), name, secret);
        found.add_target_user(
            target,
            User {
                mutual: mutual.clone(),
                ..user
            },
        );
    }
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
        let subject = format!("target {} LUN {number}", target.name);
        if !is_understood(lun, OF_LUN, &subject, found) {
            continue;
        }
        target.views.push(View {
            place: lun.place.clone(),
            lun: number,
            unit,
            group: group.map(str::to_owned),
            read_only: is_read_only(lun),
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
