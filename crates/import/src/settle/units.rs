//! Units: one per store, with an identity that is legal and its own.

use std::collections::{BTreeMap, BTreeSet};

use config::{Naa, Serial, StorePlace};

use super::Ids;
use crate::Place;
use crate::found::{Found, Unit};

/// What to do when initiators know a disk by something that Tarn does not show.
const NEW_WWID: &str = "where an initiator names the disk by its WWID (multipath wwids and bindings, \
    /dev/disk/by-id, VMware datastores, Windows clusters), enter the new one when it logs in \
    to Tarn; names by file system UUID, label or LVM stay";

pub(super) fn settle(found: &mut Found) {
    merge_stores(found);
    limit_passed(found);
    hide_guarded(found);
    drop_impossible(found);
    let mut ids = Ids::default();
    for unit in &mut found.units {
        unit.name = ids.make(&unit.name);
    }
    check_serials(found);
    check_naas(found);
}

/// The unit for people.
pub(crate) fn subject(name: &str) -> String {
    format!("disk {name:?}")
}

/// Two units on one store become one: two would not know of each other's reservations.
fn merge_stores(found: &mut Found) {
    let mut first_of: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<Unit> = Vec::new();
    let mut moved = Vec::new();
    for unit in std::mem::take(&mut found.units) {
        let medium = unit.store.at.medium().map(|medium| medium.to_string());
        let first = medium.as_ref().and_then(|medium| first_of.get(medium));
        let position = match first {
            Some(&first) => {
                if let Some(first) = kept.get_mut(first) {
                    merge(found, first, &unit);
                }
                first
            }
            None => {
                let position = kept.len();
                first_of.extend(medium.map(|medium| (medium, position)));
                kept.push(unit);
                position
            }
        };
        moved.push(position);
    }
    found.units = kept;
    for view in found
        .targets
        .iter_mut()
        .flat_map(|target| &mut target.views)
    {
        view.unit = moved.get(view.unit).copied().unwrap_or(usize::MAX);
    }
}

fn merge(found: &mut Found, first: &mut Unit, other: &Unit) {
    let differs = |a: &Option<String>, b: &Option<String>| b.is_some() && a != b;
    if differs(&first.serial, &other.serial) || differs(&first.naa, &other.naa) {
        let message = format!(
            "the same store is {:?} at {}; here it had another identity and now has that one",
            first.name, first.place
        );
        found.changed(&other.place, &subject(&other.name), message, NEW_WWID);
    }
    first.is_guarded |= other.is_guarded;
    first.changes.extend(other.changes.iter().cloned());
    if first.store.read_only != other.store.read_only {
        let message = format!(
            "the same store is {:?} at {}, writable in one place and read-only in the other; it is read-only now",
            first.name, first.place
        );
        let remedy =
            "take readonly out of the store, and put readonly = true where it belongs in luns";
        found.changed(&other.place, &subject(&other.name), message, remedy);
        first.store.read_only = true;
    }
}

/// A store of a device that has commands passed on refuses no writes; where it had to, the targets do.
fn limit_passed(found: &mut Found) {
    let is_limited = |unit: &Unit| unit.is_passed() && unit.store.read_only;
    let views = found
        .targets
        .iter_mut()
        .flat_map(|target| &mut target.views);
    for view in views {
        view.read_only |= found.units.get(view.unit).is_some_and(is_limited);
    }
    for unit in found.units.iter_mut().filter(|unit| unit.is_passed()) {
        unit.store.read_only = false;
    }
}

/// Takes out targets and views of which something was not understood; the units stay.
fn hide_guarded(found: &mut Found) {
    let units = std::mem::take(&mut found.units);
    let is_guarded = |position: usize| units.get(position).is_none_or(|unit| unit.is_guarded);
    let mut kept = Vec::new();
    for mut target in std::mem::take(&mut found.targets) {
        let subject = format!("target {}", target.name);
        if target.is_guarded || found.is_guarded {
            let message = "it is not in the result, as not all that limits it could be kept; its disks are, without it";
            let remedy = "see the notes on it and on the file as a whole; then add it by hand, or import again";
            found.left_out(&target.place, &subject, message, remedy);
            continue;
        }
        for view in target.views.iter().filter(|view| is_guarded(view.unit)) {
            let message = format!(
                "LUN {} is not shown, as not all of what the file says of its disk is known",
                view.lun
            );
            found.left_out(
                &view.place,
                &subject,
                message,
                "see the note on that disk; then add it to luns",
            );
        }
        target.views.retain(|view| !is_guarded(view.unit));
        kept.push(target);
    }
    found.targets = kept;
    found.units = units;
}

/// Takes out what Tarn cannot serve, with everything that shows it.
fn drop_impossible(found: &mut Found) {
    let mut moved = Vec::new();
    let mut kept = Vec::new();
    for unit in std::mem::take(&mut found.units) {
        match impossible(&unit) {
            None => {
                moved.push(Some(kept.len()));
                kept.push(unit);
            }
            Some((message, remedy)) => {
                moved.push(None);
                found.left_out(&unit.place, &subject(&unit.name), message, remedy);
            }
        }
    }
    found.units = kept;
    move_views(found, &moved);
}

/// Follows units to their new positions, and drops the views of those that have none.
fn move_views(found: &mut Found, moved: &[Option<usize>]) {
    for target in &mut found.targets {
        target
            .views
            .retain_mut(|view| match moved.get(view.unit).copied().flatten() {
                Some(position) => {
                    view.unit = position;
                    true
                }
                None => false,
            });
    }
}

fn impossible(unit: &Unit) -> Option<(String, &'static str)> {
    if unit.store.is_disk() && !matches!(unit.block_bytes, 512 | 4096) {
        let message = format!(
            "blocks of {} bytes; Tarn has 512 and 4096, and another size would shift all data",
            unit.block_bytes
        );
        return Some((message, "copy the data to a disk of another block size"));
    }
    let size_bytes = match &unit.store.at.place {
        StorePlace::Path(path) => {
            let has_control = path.display().to_string().contains(char::is_control);
            let is_usable = path.is_absolute() && !has_control;
            let remedy = "give the absolute path of a file or a block device";
            return (!is_usable).then(|| (format!("{path:?} is no absolute path"), remedy));
        }
        StorePlace::Size(size_bytes) => *size_bytes,
        // Its server or cluster has the size.
        StorePlace::Export(_)
        | StorePlace::Image(_)
        | StorePlace::Device(_)
        | StorePlace::Lun(_)
        | StorePlace::Snapshot(_)
        | StorePlace::Members(_)
        | StorePlace::Empty => return None,
    };
    let is_whole = size_bytes != 0
        && size_bytes <= config::SIZE_BYTES_MAX
        && size_bytes.is_multiple_of(unit.block_bytes);
    (!is_whole).then(|| {
        let message = format!("{size_bytes} bytes are not a number of whole blocks");
        (message, "set a size in the store")
    })
}

fn check_serials(found: &mut Found) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut untold = Alike::default();
    let mut units = std::mem::take(&mut found.units);
    for unit in &mut units {
        let Some(serial) = unit.serial.take() else {
            untold.add(String::new(), unit);
            continue;
        };
        let subject = subject(&unit.name);
        if let Err(rule) = Serial::parse(&serial) {
            let message = format!("serial number {serial:?} was shown, which Tarn cannot: {rule}");
            let remedy =
                "initiators see a new serial number in VPD page 80h; set serial to choose one";
            found.left_out(&unit.place, &subject, message, remedy);
        } else if let Some(other) = seen.insert(serial.clone(), unit.name.clone()) {
            let message = format!("serial number {serial:?} belongs to disk {other:?}, too");
            let remedy = "two disks with one serial number are one to some initiators; set serial to choose another";
            found.left_out(&unit.place, &subject, message, remedy);
        } else {
            unit.serial = Some(serial);
        }
    }
    found.units = units;
    for (place, names) in untold.0.into_values() {
        let message = "the file has no serial number, so Tarn generates a new one";
        let remedy = "read the old one at an initiator with sg_inq --page=0x80 before the move, and set serial";
        found.left_out(&place, &names, message, remedy);
    }
}

fn check_naas(found: &mut Found) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut units = std::mem::take(&mut found.units);
    for unit in &mut units {
        let Some(text) = unit.naa.take() else {
            continue;
        };
        let subject = subject(&unit.name);
        let problem = match Naa::parse(&text) {
            Err(rule) => Some(rule.to_string()),
            Ok(naa) => {
                let naa = naa.to_string();
                let other = seen.insert(naa.clone(), unit.name.clone());
                unit.naa = other.is_none().then_some(naa);
                other.map(|other| format!("it belongs to disk {other:?}, too"))
            }
        };
        if let Some(problem) = problem {
            let message =
                format!("NAA designator {text:?} was shown and cannot be kept: {problem}");
            found.left_out(&unit.place, &subject, message, NEW_WWID);
            unit.other_designator = Some("an NAA designator that cannot be kept");
        }
    }
    found.units = units;
}

/// Units that no target shows are written nevertheless, with their identities: to add them to a target is easy.
pub(super) fn note_unseen(found: &mut Found) {
    let views = found.targets.iter().flat_map(|target| &target.views);
    let seen: BTreeSet<usize> = views.map(|view| view.unit).collect();
    let units = std::mem::take(&mut found.units);
    for (_, unit) in units
        .iter()
        .enumerate()
        .filter(|(position, _)| !seen.contains(position))
    {
        let message = "no target shows it; it is written, so that its identity stays";
        let remedy = "nothing, or put it into the luns of a target, for those who saw it";
        found.left_out(&unit.place, &subject(&unit.name), message, remedy);
    }
    found.units = units;
}

/// Notes what of units is other than it was, once for all that have it in common.
pub(super) fn note_changes(found: &mut Found) {
    let mut changes: BTreeMap<&'static str, Alike> = BTreeMap::new();
    for unit in &found.units {
        for (message, remedy) in &unit.changes {
            let alike = changes.entry(remedy).or_default();
            alike.add(message.clone(), unit);
        }
    }
    for (remedy, alike) in changes {
        for (message, (place, names)) in alike.0 {
            found.changed(&place, &names, message, remedy);
        }
    }
}

/// Says of every unit what of its identity stays, and once for all alike what does not.
pub(super) fn note_identities(found: &mut Found) {
    let mut designators = Alike::default();
    let units = std::mem::take(&mut found.units);
    for unit in &units {
        if unit.naa.is_none() {
            let other = unit.other_designator.unwrap_or("nothing in the file");
            designators.add(other.to_owned(), unit);
        }
        note_identity(found, unit);
    }
    found.units = units;
    for (designator, (place, names)) in designators.0 {
        let message = format!(
            "VPD page 83h had {designator}; Tarn shows an NAA designator that it makes and keeps"
        );
        found.left_out(&place, &names, message, NEW_WWID);
    }
}

fn note_identity(found: &mut Found, unit: &Unit) {
    let subject = subject(&unit.name);
    match (&unit.serial, &unit.naa) {
        (Some(serial), Some(naa)) => {
            let message = format!("serial number {serial}, NAA designator {naa}");
            found.carried(&unit.place, &subject, message);
        }
        (Some(serial), None) => {
            found.carried(&unit.place, &subject, format!("serial number {serial}"));
        }
        (None, Some(naa)) => {
            found.carried(&unit.place, &subject, format!("NAA designator {naa}"));
        }
        (None, None) => found.carried(&unit.place, &subject, "its data, with a new identity"),
    }
}

/// Units that have something in common, by what it is: where the first stands, and their names.
#[derive(Default)]
struct Alike(BTreeMap<String, (Place, String)>);

/// Longest list of names in one note, in bytes.
const NAMES_BYTES_MAX: usize = 200;

impl Alike {
    fn add(&mut self, what: String, unit: &Unit) {
        match self.0.get_mut(&what) {
            None => {
                let names = format!("disk {:?}", unit.name);
                self.0.insert(what, (unit.place.clone(), names));
            }
            Some((_, names)) if names.ends_with("...") => {}
            Some((_, names)) if names.len() > NAMES_BYTES_MAX => names.push_str(", ..."),
            Some((_, names)) => names.push_str(&format!(", {:?}", unit.name)),
        }
    }
}
