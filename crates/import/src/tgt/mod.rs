//! tgt: `targets.conf`, as `tgt-admin` reads it.
//!
//! `tgt-admin` takes the targets in the order of their names and numbers them from 1; the stores of a
//! target in the order of their paths, `backing-store` before `direct-store`, and gives each the first
//! free LUN from 1. From these two numbers `tgtd` derives whatever the file does not have of an identity.
//! Seen in tgt 1.0.85.

mod keys;

use std::collections::{BTreeMap, BTreeSet};

use crate::acl::Acl;
use crate::found::{self, Found, Mutual, Secret, Target, Unit, User, View};
use crate::lines::{base_name, is_no, is_yes};
use crate::passed::{self, Passed};
use crate::tree::Node;
use crate::{Include, Place, ReadError, Source, acl, address, rbd, tags};
use config::{StoreAt, StoreSpec};
use keys::{GLOBAL, OF_TARGET, OF_UNIT, TARGET_KEYS, UNIT_KEYS};

/// What `tgt-admin --dump` writes where it does not know the secret.
const NO_PASSWORD: &str = "PLEASE_CORRECT_THE_PASSWORD";

/// Length of the SCSI SN and of the SCSI ID in bytes.
const SCSI_SN_BYTES: usize = 36;

/// The files that a file includes.
pub(crate) fn includes(source: Source<'_>) -> Vec<Include> {
    let Ok(file) = tags::read(&source) else {
        return Vec::new();
    };
    let includes = file.children.iter();
    includes
        .filter(|node| node.key().eq_ignore_ascii_case("include"))
        .map(|node| Include {
            place: node.place.clone(),
            pattern: node.rest(),
        })
        .collect()
}

/// A file that another one includes is a configuration, too: else nothing of it is to be shown.
pub(crate) fn check_included(source: Source<'_>) -> Result<(), ReadError> {
    let file = tags::read(&source).map_err(|error| {
        if let ReadError::Syntax { place, .. } = error {
            let problem = "the line cannot be read".to_owned();
            ReadError::Included { place, problem }
        } else {
            error
        }
    })?;
    let known = || GLOBAL.iter().map(|(key, _)| *key).chain(["target"]);
    let mut nodes = file.children.iter();
    let Some(node) = nodes.find(|node| !known().any(|key| key == node.key())) else {
        return Ok(());
    };
    // The word itself is only shown where it is one of ours.
    let meant = known().find(|key| key.eq_ignore_ascii_case(node.key()));
    let problem = match meant {
        Some(key) => format!(
            "the line begins with {key:?} in another case, as which tgt-admin does not know it"
        ),
        None => "the word with which the line begins is no key of targets.conf".to_owned(),
    };
    Err(ReadError::Included {
        place: node.place.clone(),
        problem,
    })
}

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    let mut targets: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let mut default_driver = "iscsi".to_owned();
    let mut globals = Vec::new();
    for source in sources {
        for node in tags::read(source)?.children {
            if node.key() == "target" {
                // Nearly always the only one of its name.
                let blocks = targets.entry(node.rest());
                blocks.or_insert_with(|| Vec::with_capacity(1)).push(node);
            } else {
                if node.key() == "default-driver" {
                    node.value().clone_into(&mut default_driver);
                }
                globals.push(node);
            }
        }
    }
    read_globals(&globals, found);
    let mut numbers = TargetNumbers::default();
    for (name, blocks) in targets {
        let Some(target) = merge_blocks(blocks) else {
            continue;
        };
        let tid = numbers.next(&target);
        let driver = target.value_of("driver").unwrap_or(&default_driver);
        if driver == "iscsi" {
            read_target(&name, tid, &target, found);
        } else {
            let message = format!("driver {driver:?}; Tarn speaks iSCSI over TCP");
            let remedy = "log the initiators in over TCP";
            found.left_out(&target.place, &format!("target {name}"), message, remedy);
        }
    }
    note_guesses(sources, found);
    Ok(())
}

/// What holds for every target of tgt, once.
fn note_guesses(sources: &[Source<'_>], found: &mut Found) {
    let Some(source) = sources.first() else {
        return;
    };
    let place = source.at(0);
    found.changed(
        &place,
        "identities",
        "the file does not contain the numbers of targets, of which tgt makes identities; they are those of a \
         tgtd that was started with this file and in which all stores were there",
        "compare with tgtadm --op show --mode target, or import what that prints",
    );
    note_common(&place, found);
}

/// What holds for every target of tgt, whichever way its configuration came.
pub(crate) fn note_common(place: &Place, found: &mut Found) {
    found.changed(
        place,
        "portals",
        "the addresses of tgtd are on its command line; Tarn would listen on all, port 3260",
        "give --listen ADDRESS:PORT if it listened elsewhere",
    );
    found.changed(
        place,
        "identities",
        "tgt pads serial numbers with blanks in front and shows a second NAA designator, which begins with \
         3; Tarn shows the number alone and the designator that begins with 6, by which Linux knows a disk",
        "nothing, unless an initiator compares VPD pages byte by byte",
    );
    found.changed(
        place,
        "identities",
        "tgt derives identities from the numbers of target and LUN alone, so they are the same on every server with \
         tgt",
        "if disks of two such servers come to one Tarn or to one host, set another serial and naa for those of one",
    );
    found.changed(
        place,
        "LUN 0",
        "tgt has a controller at LUN 0 of every target, Tarn has none",
        "nothing: no initiator stores data there",
    );
}

/// Blocks of one name are one target.
fn merge_blocks(blocks: Vec<Node>) -> Option<Node> {
    blocks.into_iter().reduce(|mut first, more| {
        first.children.extend(more.children);
        first
    })
}

/// The numbers that `tgt-admin` gives.
#[derive(Default)]
struct TargetNumbers {
    last: u64,
}

impl TargetNumbers {
    fn next(&mut self, target: &Node) -> u64 {
        let fixed = target.value_of("controller_tid");
        let fixed = fixed.and_then(|text| text.parse().ok());
        self.last = fixed.unwrap_or_else(|| self.last.saturating_add(1));
        self.last
    }
}

fn read_globals(globals: &[Node], found: &mut Found) {
    for node in globals {
        match node.key() {
            "incomingdiscoveryuser" => {
                found.is_guarded |= !is_account(node, "discovery", found);
                let user = user(node, None);
                found.discovery_needs_user = true;
                found.discovery_auth.push(user.name.clone());
                found.users.push(user);
            }
            "outgoingdiscoveryuser" => {
                let message =
                    "Tarn does not prove itself in discovery sessions with a user of their own";
                let remedy = "give the discovery user a mutual table by hand";
                found.left_out(&node.place, "discovery", message, remedy);
            }
            key => found.is_guarded |= !found.idle_key(GLOBAL, &node.place, "global", key),
        }
    }
}

/// Name and secret of an account, as they stand with one blank between them.
fn account(node: &Node) -> (&str, Option<Secret>) {
    let mut parts = node.value().split(' ');
    let name = parts.next().unwrap_or_default();
    let secret = parts
        .next()
        .filter(|secret| !secret.is_empty() && *secret != NO_PASSWORD);
    (name, secret.map(|secret| Secret::new(secret.to_owned())))
}

/// Whether there is nothing but a name and a secret. What there is more is not shown, as it may be a secret.
fn is_account(node: &Node, subject: &str, found: &mut Found) -> bool {
    let is_account = node.value().split(' ').nth(2).is_none();
    if !is_account {
        let message = format!(
            "{} has more than a name and a secret, with one blank between them",
            node.key()
        );
        found.left_out(
            &node.place,
            subject,
            message,
            "correct it there and import again",
        );
    }
    is_account
}

/// tgt has one account of a name, with the secret that it is given first.
fn user(node: &Node, mutual: Option<Mutual>) -> User {
    let (name, secret) = account(node);
    let user = User::new(node.place.clone(), name, secret);
    User { mutual, ..user }
}

fn read_target(name: &str, tid: u64, node: &Node, found: &mut Found) {
    let mut target = Target::new(node.place.clone(), name);
    target.portals = found::portal_of_all();
    target.is_guarded = !is_understood(node, &format!("target {name}"), found);
    read_users(node, &mut target, found);
    let group = read_acl(node, name, found);
    let mut luns = LunNumbers::of(node);
    for (store, is_direct) in stores(node) {
        let unit = read_unit(node, store, is_direct);
        let lun = luns.next(node, store);
        let Some(unit) = unit.finish(tid, lun, found) else {
            continue;
        };
        target.views.push(View {
            place: store.place.clone(),
            lun,
            unit: found.add_unit(unit),
            group: group.clone(),
            read_only: false,
        });
    }
    found.targets.push(target);
}

/// Whether everything that stands in a target is known, and the target is one that is served.
fn is_understood(node: &Node, subject: &str, found: &mut Found) -> bool {
    let mut is_understood = true;
    for child in &node.children {
        let key = child.key();
        let is_known = TARGET_KEYS.contains(&key) || UNIT_KEYS.contains(&key);
        let is_of_unit = OF_UNIT.iter().any(|(name, _)| *name == key);
        is_understood &= if is_of_unit {
            found.idle_key(OF_UNIT, &child.place, subject, key)
        } else {
            is_known || found.idle_key(OF_TARGET, &child.place, subject, key)
        };
    }
    let luns = stores(node)
        .into_iter()
        .map(|(store, _)| store)
        .chain([node]);
    let mut numbers = luns.flat_map(|one| one.all("lun"));
    if let Some(lun) = numbers.find(|lun| lun.value().parse::<u64>().is_err()) {
        is_understood &= found.unknown_key(&lun.place, subject, &format!("lun {}", lun.value()));
    }
    let is_ready = node.value_of("state").is_none_or(|state| state == "ready");
    if !is_ready || is_offline(node) {
        let message = "it was set offline";
        found.left_out(
            &node.place,
            subject,
            message,
            "set it online there and import again, if it is used",
        );
        is_understood = false;
    }
    is_understood
}

fn is_offline(node: &Node) -> bool {
    node.value_of("online")
        .is_some_and(|online| !is_yes(online))
}

fn read_users(node: &Node, target: &mut Target, found: &mut Found) {
    let subject = format!("target {}", target.name);
    // tgt knows one account for the target's own proof, towards all users.
    let mutual = node.all("outgoinguser").next().map(|outgoing| {
        let (name, secret) = account(outgoing);
        Mutual {
            name: name.to_owned(),
            secret,
        }
    });
    for incoming in node.all("incominguser") {
        target.is_guarded |= !is_account(incoming, &subject, found);
        target.needs_user = true;
        let user = user(incoming, mutual.clone());
        target.auth.push(user.name.clone());
        found.users.push(user);
    }
    if let (true, Some(outgoing)) = (target.auth.is_empty(), node.find("outgoinguser")) {
        let message = "the target proves itself, but no initiator has to; Tarn does the first only with the second";
        let remedy = "add an incoming user";
        found.left_out(&outgoing.place, &subject, message, remedy);
    }
}

/// What tgt makes of a list of names and one of addresses.
const EITHER: &str = "initiators needed a listed name or a listed address with tgt since 1.0.83, and both before; a \
    group of Tarn with all of them takes either, so until it is known which was meant nobody sees what they saw";

/// The group of those who may log in; `None` is everyone.
fn read_acl(node: &Node, name: &str, found: &mut Found) -> Option<String> {
    let values = |key: &'static str| node.all(key).map(Node::rest).collect::<Vec<_>>();
    // A dump has networks under initiator-name.
    let (misplaced, names): (Vec<_>, Vec<_>) = values("initiator-name")
        .into_iter()
        .partition(|name| address::network(name).is_some());
    let addresses = [values("initiator-address"), misplaced].concat();
    acl_of(names, addresses, name, &node.place, found)
}

/// The same of the two lists, of which an empty one is none.
pub(crate) fn acl_of(
    names: Vec<String>,
    addresses: Vec<String>,
    target: &str,
    place: &Place,
    found: &mut Found,
) -> Option<String> {
    let subject = format!("access to {target}");
    let is_any = addresses.is_empty() || addresses.iter().any(|address| address == "ALL");
    if is_any && !names.is_empty() {
        let message = "tgt since 1.0.83 lets in everyone here, as each address is enough and it takes all of them; \
            before, and in Tarn now, only the names that are listed";
        found.changed(
            place,
            &subject,
            message,
            "add the others to the group if they were meant",
        );
    }
    let names = (!names.is_empty()).then(|| acl::literal(names, place, &subject, found));
    let addresses = (!is_any).then(|| usable(addresses, place, &subject, found));
    let acl = Acl {
        names,
        addresses,
        unclear: Some(EITHER),
    };
    acl.into_group(target, place, found)
}

/// The addresses that tgt compares with anybody.
fn usable(addresses: Vec<String>, place: &Place, subject: &str, found: &mut Found) -> Vec<String> {
    let mut usable = Vec::new();
    for address in addresses {
        match address::strict_network(&address) {
            Some(network) => usable.push(network),
            None => {
                let message = format!(
                    "{address:?} is nobody to tgt: it is no address, a network with bits behind its prefix, or one \
                     whose prefix has all bits or none"
                );
                let remedy = "add the address or the network to the group if it was meant";
                found.left_out(place, subject, message, remedy);
            }
        }
    }
    usable
}

/// The stores in the order in which `tgt-admin` takes them, each with whether it is a direct one.
fn stores(target: &Node) -> Vec<(&Node, bool)> {
    let mut all = Vec::new();
    for (key, is_direct) in [("backing-store", false), ("direct-store", true)] {
        let by_path: BTreeMap<String, &Node> =
            target.all(key).map(|node| (node.rest(), node)).collect();
        all.extend(by_path.into_values().map(|node| (node, is_direct)));
    }
    all
}

/// The LUNs of one target.
struct LunNumbers {
    taken: BTreeSet<u64>,
    free: u64,
}

impl LunNumbers {
    fn of(target: &Node) -> Self {
        let fixed = stores(target)
            .into_iter()
            .filter_map(|(store, _)| lun(store));
        Self {
            taken: fixed.collect(),
            free: 1,
        }
    }

    fn next(&mut self, target: &Node, store: &Node) -> u64 {
        if let Some(fixed) = lun(target).or_else(|| lun(store)) {
            return fixed;
        }
        while self.taken.contains(&self.free) {
            self.free = self.free.saturating_add(1);
        }
        self.taken.insert(self.free);
        self.free
    }
}

fn lun(node: &Node) -> Option<u64> {
    node.value_of("lun")?.parse().ok()
}

/// A unit as tgt describes it.
pub(crate) struct TgtUnit<'a> {
    pub(crate) place: Place,
    pub(crate) path: String,
    /// The identity is that of the device behind it, which is not in the file.
    pub(crate) is_direct: bool,
    pub(crate) scsi_id: Option<&'a str>,
    pub(crate) scsi_sn: Option<&'a str>,
    pub(crate) vendor: &'a str,
    pub(crate) product: &'a str,
    pub(crate) backing_type: &'a str,
    pub(crate) device_type: &'a str,
    pub(crate) block_bytes: Option<u64>,
    pub(crate) read_only: bool,
    pub(crate) removable: bool,
    /// A write is on stable storage before it is answered.
    pub(crate) is_through: bool,
    /// Its data do not go through the page cache.
    pub(crate) is_unbuffered: bool,
    pub(crate) thin: bool,
    /// How an image of a Ceph cluster is found.
    pub(crate) options: &'a str,
    /// It was set offline.
    pub(crate) is_offline: bool,
    /// Keys without a counterpart.
    pub(crate) idle: Vec<&'a Node>,
}

/// The product of a disk for which none is set.
pub(crate) const DISK: &str = "VIRTUAL-DISK";

fn read_unit<'a>(target: &'a Node, store: &'a Node, is_direct: bool) -> TgtUnit<'a> {
    let value = |key: &str| {
        store
            .find(key)
            .or_else(|| target.find(key))
            .map(Node::value)
    };
    let flags = value("bsoflags").unwrap_or_default();
    let is_off = value("write-cache").is_some_and(|text| !is_yes(text));
    let idle = store.children.iter();
    TgtUnit {
        place: store.place.clone(),
        path: store.rest(),
        is_direct,
        scsi_id: value("scsi_id"),
        scsi_sn: value("scsi_sn"),
        vendor: value("vendor_id").unwrap_or("IET"),
        product: value("product_id").unwrap_or(DISK),
        backing_type: value("bs-type").unwrap_or("rdwr"),
        device_type: value("device-type").unwrap_or("disk"),
        block_bytes: value("block-size").map(|text| text.parse().unwrap_or(0)),
        read_only: value("readonly").is_some_and(|text| !is_no(text)),
        removable: value("removable").is_some_and(is_yes),
        is_through: is_off || flags.contains("sync"),
        is_unbuffered: flags.contains("direct"),
        thin: false,
        options: value("bsopts").unwrap_or_default(),
        is_offline: is_offline(store),
        idle: idle
            .filter(|node| !UNIT_KEYS.contains(&node.key()))
            .collect(),
    }
}

impl TgtUnit<'_> {
    /// The unit in our terms; `None` if it is none that Tarn can serve, which is noted.
    pub(crate) fn finish(self, tid: u64, lun: u64, found: &mut Found) -> Option<Unit> {
        let subject = format!("disk {:?}", self.path);
        let Some(mut unit) = self.unit() else {
            let message = format!(
                "device type {:?} on backing store type {:?}; Tarn serves disks on files, block devices and images of \
                 Ceph, and SCSI devices below /dev",
                self.device_type, self.backing_type
            );
            let remedy = "keep tgt for it, or copy the data into a file or a block device";
            found.left_out(&self.place, &subject, message, remedy);
            return None;
        };
        for node in &self.idle {
            unit.is_guarded |= !found.idle_key(OF_UNIT, &node.place, &subject, node.key());
        }
        if self.is_offline {
            let message = "it was set offline";
            found.left_out(
                &self.place,
                &subject,
                message,
                "add it to luns if it is used",
            );
            unit.is_guarded = true;
        }
        if unit.is_passed() {
            // What the file has of an identity was not shown: INQUIRY went to the device.
            unit.store.read_only = self.read_only;
            return Some(unit);
        }
        if unit.store.is_disk() {
            // The cache of an image of Ceph is off.
            if self.backing_type != "rbd" {
                unit.set_cache(self.is_through, self.is_unbuffered);
            }
            unit.block_bytes = self.block_bytes.unwrap_or(512);
            unit.store.read_only = self.read_only;
            unit.store.removable = self.removable;
            unit.store.thin = Some(self.thin);
        }
        let product = match (self.product, unit.store.is_disk()) {
            // Where nothing is set, it depends on the type.
            (DISK, false) => "VIRTUAL-CDROM",
            (product, _) => product,
        };
        unit.inquiry = (self.vendor.to_owned(), product.to_owned());
        self.set_identity(tid, lun, &mut unit);
        if self.is_direct {
            let message = "a direct-store shows serial number, vendor and product of the device behind it, \
                which the file does not contain; the serial number here is only right if it was set";
            let remedy = "read them with sg_inq at an initiator, and set serial";
            found.left_out(&self.place, &subject, message, remedy);
        }
        Some(unit)
    }

    /// The unit with its store; `None` if Tarn cannot serve it.
    fn unit(&self) -> Option<Unit> {
        let name = base_name(&self.path);
        // A dump has no types; files and disks are never below these names.
        let is_passed = passed::is_generic(&self.path)
            || matches!(
                (self.device_type, self.backing_type),
                ("pt" | "passthrough", "sg" | "bsg")
            );
        if is_passed {
            let passed = Passed::at_path(&self.path).ok()?;
            return Some(Unit::passed(self.place.clone(), name, passed));
        }
        let store = self.store()?;
        let mut unit = Unit::new(self.place.clone(), name, store.at.clone());
        unit.store = store;
        Some(unit)
    }

    /// Where the data is; `None` if Tarn cannot serve it.
    fn store(&self) -> Option<StoreSpec> {
        match (self.device_type, self.backing_type) {
            ("disk", "rdwr" | "aio") => Some(StoreSpec::new(StoreAt::path(self.path.clone()))),
            ("disk", "rbd") => rbd::store(&self.path, self.options),
            ("cd" | "cd/dvd", "rdwr" | "aio") => Some(StoreSpec::new(StoreAt::disc(
                // As `tgtadm` shows a drive without a disc.
                Some(&self.path)
                    .filter(|path| *path != "None")
                    .cloned()
                    .unwrap_or_default(),
            ))),
            _ => None,
        }
    }

    fn set_identity(&self, tid: u64, lun: u64, unit: &mut Unit) {
        let scsi_id = self
            .scsi_id
            .map_or_else(|| format!("IET     {tid:04x}{lun:04x}"), str::to_owned);
        unit.naa = Some(naa(&scsi_id));
        let made = || (!self.is_direct).then(|| format!("beaf{tid}{lun}"));
        let serial = self
            .scsi_sn
            .map_or_else(made, |sn| Some(cut(sn).to_owned()));
        unit.serial = serial.map(|serial| serial.trim().to_owned());
    }
}

fn cut(scsi_sn: &str) -> &str {
    scsi_sn.get(..SCSI_SN_BYTES).unwrap_or(scsi_sn)
}

/// The NAA designator that tgt makes of the SCSI ID: a 6, and the last 31 characters as hexadecimal
/// digits, with 0 for whatever is none.
pub(crate) fn naa(scsi_id: &str) -> String {
    const DIGITS: usize = 31;
    // The last byte of the field ends the string.
    let bytes = scsi_id.bytes().take(SCSI_SN_BYTES - 1);
    let digits: Vec<char> = bytes
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => char::from(byte.to_ascii_lowercase()),
            _ => '0',
        })
        .collect();
    let skipped = digits.len().saturating_sub(DIGITS);
    let digits: String = digits.into_iter().skip(skipped).collect();
    format!("6{digits:0>DIGITS$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As seen on the wire of tgt 1.0.85.
    #[test]
    fn the_designator_of_a_scsi_id_is_that_of_tgt() {
        for (scsi_id, expected) in [
            ("IET     00030001", "60000000000000000e00000000030001"),
            ("MYID", "6000000000000000000000000000000d"),
            ("ABCDEF0123456789ABCDEF", "6000000000abcdef0123456789abcdef"),
            ("x1y2", "60000000000000000000000000000102"),
            (
                "0123456789abcdef0123456789abcdef012",
                "6456789abcdef0123456789abcdef012",
            ),
            ("eui.0123", "600000000000000000000000e0000123"),
            ("A B C D", "6000000000000000000000000a0b0c0d"),
        ] {
            assert_eq!(naa(scsi_id), expected, "{scsi_id}");
        }
    }

    #[test]
    fn luns_are_given_by_path_around_those_that_are_fixed() {
        let text = "<target iqn.x>\nbacking-store /c\nbacking-store /a\n<backing-store /b>\n\
            lun 1\n</backing-store>\ndirect-store /0\n</target>";
        let file = tags::read(&Source { name: "f", text }).unwrap();
        let target = file.find("target").unwrap();
        let mut numbers = LunNumbers::of(target);
        let got: Vec<_> = stores(target)
            .into_iter()
            .map(|(store, _)| (store.rest(), numbers.next(target, store)))
            .collect();
        let expected = [("/a", 2), ("/b", 1), ("/c", 3), ("/0", 4)];
        assert_eq!(got, expected.map(|(path, lun)| (path.to_owned(), lun)));
    }
}
