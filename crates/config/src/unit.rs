//! `[[lun]]`: a logical unit.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::error::{At as _, Broken as _, nearest_hint};
use crate::fields::read_id;
use crate::keys::SECTION_LUN;
use crate::names::{FirstUse, Names};
use crate::reader::{Field, Section};
use crate::{
    ConfigError, DeviceType, LogDevice, Medium, Naa, NamedStore, Place, Rule, Schedule, Serial,
    StoreRule, StoreSpec, SyncBias, log_device, schedule,
};

/// A serial number both in the store and beside it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("serial is given twice, as {store:?} in the store and as {key:?} here; keep one")]
pub(crate) struct SerialTwice {
    /// The one in the STORE.
    pub(crate) store: String,
    /// The one of the key.
    pub(crate) key: String,
}

/// Commands of a vendor, of what Tarn is the vendor of.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "vendor_commands is about a device, and store {store:?} is none; remove it, or write scsi: for a device"
)]
pub(crate) struct NoVendorCommands {
    /// The store as written.
    pub(crate) store: String,
}

/// A logical unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unit {
    /// The `id` of the file. `None` on the command line, where the store itself is the identity.
    pub id: Option<String>,
    /// Where its data lives.
    pub store: StoreSpec,
    /// Serial number, if the administrator wants a certain one.
    pub serial: Option<Serial>,
    /// NAA designator, if the administrator wants a certain one.
    pub naa: Option<Naa>,
    /// What INQUIRY calls it.
    pub inquiry: InquiryNames,
    /// Whose disk it is, for quotas.
    pub owner: Option<String>,
    /// Where its log is, if it has one.
    pub log: Option<LogDevice>,
    /// Commands that only its vendor knows are passed to a device, too.
    pub vendor_commands: bool,
    /// How often snapshots of it are taken, if they are by themselves.
    pub snapshots: Option<Schedule>,
    /// Where the store is given, for errors that only opening it shows.
    pub place: Place,
}

impl Unit {
    /// A store that is nothing but a unit, as on the command line.
    pub(crate) fn of_store(store: StoreSpec, place: Place) -> Self {
        Self {
            id: None,
            serial: store.serial.clone(),
            naa: None,
            inquiry: InquiryNames::default(),
            owner: None,
            log: None,
            vendor_commands: false,
            snapshots: None,
            store,
            place,
        }
    }

    /// The stores that have its data, and where they are given: its own, or the members of that.
    pub fn parts(&self) -> impl Iterator<Item = (&StoreSpec, &Place)> {
        let members = self.store.members();
        let own = members.is_empty().then_some((&self.store, &self.place));
        let members = members.iter().map(|one| (&one.store, &one.place));
        own.into_iter().chain(members)
    }

    /// What quotas count of it: the stores that have its data, and its log.
    pub fn counted(&self) -> impl Iterator<Item = &StoreSpec> {
        let log = self.log.as_ref().map(|log| &log.store);
        self.parts().map(|(store, _)| store).chain(log)
    }

    /// The media that its data is on, and its log.
    pub fn media(&self) -> impl Iterator<Item = Medium<'_>> {
        self.stores().filter_map(|(store, _)| store.at.medium())
    }

    /// All stores that are opened for it, and where they are given: those that have its data, then its log.
    pub fn stores(&self) -> impl Iterator<Item = (&StoreSpec, &Place)> {
        let log = self.log.as_ref().map(|log| (&log.store, &log.place));
        self.parts().chain(log)
    }

    /// The memory of the process that its data takes when all of it is written, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let parts = self.parts().map(|(store, _)| store.at.memory_bytes());
        parts.fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.as_ref().unwrap_or(&self.store.text))
    }
}

/// What standard INQUIRY data call a unit, as far as the administrator says it.
///
/// Spec: SPC-4, T10 VENDOR IDENTIFICATION, PRODUCT IDENTIFICATION and PRODUCT REVISION LEVEL.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InquiryNames {
    /// Up to 8 characters.
    pub vendor: Option<String>,
    /// Up to 16 characters.
    pub product: Option<String>,
    /// Up to 4 characters.
    pub revision: Option<String>,
}

impl InquiryNames {
    /// The keys of a `[[lun]]` that say them.
    pub const KEYS: [&'static str; 3] = ["vendor", "product", "revision"];

    fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let [vendor, product, revision] = Self::KEYS;
        Ok(Self {
            vendor: read_inquiry(vendor, 8, section)?,
            product: read_inquiry(product, 16, section)?,
            revision: read_inquiry(revision, 4, section)?,
        })
    }
}

/// ASCII that can be printed. Blanks fill the field behind it, so that none can be its first or last character.
fn read_inquiry(
    what: &'static str,
    max_bytes: usize,
    section: &Section<'_>,
) -> Result<Option<String>, ConfigError> {
    let Some(field) = section.field(what) else {
        return Ok(None);
    };
    let text = field.text()?;
    let is_edge = |at: usize| at == 0 || at + 1 == text.len();
    let is_allowed = |(at, c): (usize, char)| c.is_ascii_graphic() || c == ' ' && !is_edge(at);
    let wrong = text.char_indices().find(|one| !is_allowed(*one));
    let rule = if text.is_empty() {
        Rule::EmptyName { what }
    } else if text.len() > max_bytes {
        Rule::TooLong {
            what,
            got_bytes: text.len(),
            max_bytes,
        }
    } else if let Some((_, character)) = wrong {
        Rule::Character {
            what,
            text: text.to_owned(),
            character,
            allowed: "printable ASCII without a blank at either end",
        }
    } else {
        return Ok(Some(text.to_owned()));
    };
    Err(rule.at(field.place()))
}

/// The sections that a composition names. A section is a member of one.
fn find_members<'a>(
    store: &StoreSpec,
    place: &Place,
    (named, names): (&'a [NamedStore], &Names<'a>),
    uses: &mut BTreeMap<&'a str, Place>,
) -> Result<Vec<NamedStore>, ConfigError> {
    let mut members = Vec::new();
    for id in store.member_ids() {
        let position = names.find(id).at(|| place.clone())?;
        let Some(member) = named.get(position) else {
            continue;
        };
        if let Some(first) = uses.insert(&member.id, place.clone()) {
            let path = id.clone();
            return Err(StoreRule::Twice { path, first }.at(place.clone()));
        }
        members.push(member.clone());
    }
    Ok(members)
}

pub(crate) fn read_units(
    top: &Section<'_>,
    directory: &Path,
    named: &[NamedStore],
) -> Result<Vec<Unit>, ConfigError> {
    let mut ids = FirstUse::new("lun");
    let names = Names::of("store", named.iter().map(|one| one.id.as_str()));
    let mut uses = BTreeMap::new();
    let mut units = Vec::new();
    for entry in top.entries("lun")? {
        let section = entry.section(SECTION_LUN)?;
        let id_field = section.required("id")?;
        let id = read_id(&id_field)?;
        ids.insert(&id, id_field.place())?;
        let store_field = section.required("store")?;
        let place = store_field.place();
        let mut store = StoreSpec::parse(store_field.text()?).at(|| place.clone())?;
        let members = find_members(&store, &place, (named, &names), &mut uses)?;
        store.set_members(members, &place)?;
        let owner = section.field("owner");
        let owner = owner.map(|field| read_id(&field)).transpose()?;
        let naa = match section.field("naa") {
            Some(field) => Some(Naa::parse(field.text()?).at(|| field.place())?),
            None => None,
        };
        let log = read_log(&section, &store, directory)?;
        units.push(Unit {
            id: Some(id),
            log,
            serial: read_serial(section.field("serial"), &store)?,
            naa,
            inquiry: InquiryNames::read(&section)?,
            owner,
            vendor_commands: read_vendor_commands(section.field("vendor_commands"), &store)?,
            snapshots: schedule::read(&section, &store)?,
            store: store.below(directory),
            place,
        });
    }
    resolve_snapshots(&mut units)?;
    Ok(units)
}

/// Has each snapshot among the units lead to what has its data, with the blocks of the unit it was taken of.
fn resolve_snapshots(units: &mut [Unit]) -> Result<(), ConfigError> {
    let mut found = Vec::new();
    for (position, unit) in units.iter().enumerate() {
        let Some(snapshot) = unit.store.snapshot() else {
            continue;
        };
        let place = || unit.place.clone();
        let ids = || units.iter().filter_map(|unit| unit.id.as_deref());
        let of = units
            .iter()
            .find(|of| of.id.as_ref() == Some(&snapshot.lun));
        let of = of.ok_or_else(|| Rule::Unknown {
            what: "lun",
            name: snapshot.lun.clone(),
            hint: nearest_hint(&snapshot.lun, ids(), || {
                "name a [[lun]] of this configuration".to_owned()
            }),
        });
        let of = &of.at(place)?.store;
        let at = of.snapshot_at(&snapshot.name).at(place)?;
        found.push((position, at, of.block_size, of.format_raw));
    }
    for (position, at, block_size, format_raw) in found {
        if let Some(unit) = units.get_mut(position) {
            unit.store.block_size = block_size;
            unit.store.format_raw = format_raw;
            unit.store.lead_to(at);
        }
    }
    Ok(())
}

fn read_log(
    section: &Section<'_>,
    store: &StoreSpec,
    directory: &Path,
) -> Result<Option<LogDevice>, ConfigError> {
    let bias = section.field("sync_bias");
    let Some(field) = section.field("log") else {
        return match bias {
            Some(bias) => Err(log_device::LogRule::BiasWithoutLog.at(bias.place())),
            None => Ok(None),
        };
    };
    let log = StoreSpec::parse(field.text()?).at(|| field.place())?;
    log_device::check(store, &log).at(|| field.place())?;
    Ok(Some(LogDevice {
        store: log.below(directory),
        bias: match bias {
            Some(bias) => SyncBias::parse(bias.text()?).at(|| bias.place())?,
            None => SyncBias::default(),
        },
        place: field.place(),
    }))
}

/// Only a device that has commands passed through has some of its vendor.
fn read_vendor_commands(field: Option<Field<'_>>, store: &StoreSpec) -> Result<bool, ConfigError> {
    let Some(field) = field else {
        return Ok(false);
    };
    let passes = field.flag()?;
    if passes && store.at.kind.row().device != DeviceType::Foreign {
        let store = store.text.clone();
        return Err(NoVendorCommands { store }.at(field.place()));
    }
    Ok(passes)
}

fn read_serial(field: Option<Field<'_>>, store: &StoreSpec) -> Result<Option<Serial>, ConfigError> {
    let Some(field) = field else {
        return Ok(store.serial.clone());
    };
    let serial = Serial::parse(field.text()?).at(|| field.place())?;
    match &store.serial {
        None => Ok(Some(serial)),
        Some(other) => Err(SerialTwice {
            store: other.to_string(),
            key: serial.to_string(),
        }
        .at(field.place())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::specs::{Said, lun};

    #[test]
    fn names_of_inquiry_fit_their_fields() {
        let read = |key: &str, value: &str| {
            let text = format!("lun = [{{ id = \"a\", store = \"mem:1M\", {key} = {value:?} }}]");
            Model::from_toml(&text, Path::new("t.toml")).map_err(|error| error.to_string())
        };
        for (key, value) in [
            ("vendor", "FREEBSD"),
            ("vendor", "Nimble 2"),
            ("product", "VIRTUAL DISK 100"),
            ("revision", "2"),
            ("revision", "22.4"),
        ] {
            let model = read(key, value).unwrap();
            let spec = lun(&model.units()[0], Said::Written);
            let said = [spec.vendor, spec.product, spec.revision];
            assert!(said.contains(&Some(value.to_owned())), "{key} {value}");
            let again = Model::from_toml(&model.effective(), Path::new("")).unwrap();
            assert!(crate::diff(&model, &again).is_empty());
        }
        for (key, value, why) in [
            ("vendor", "", "vendor is empty"),
            ("vendor", "NINE CHAR", "the limit is 8"),
            ("product", " DISK", "has the character ' '"),
            ("product", "DISK ", "has the character ' '"),
            ("product", "VIRTUAL DISK 1000", "the limit is 16"),
            ("revision", "22.04", "the limit is 4"),
            ("revision", "\u{e9}", "has the character"),
        ] {
            let error = read(key, value).unwrap_err();
            assert!(error.contains(why) && error.contains("t.toml:1"), "{error}");
        }
    }

    #[test]
    fn only_a_device_has_commands_of_its_vendor() {
        let read = |store: &str, value: &str| {
            let text =
                format!("lun = [{{ id = \"a\", store = \"{store}\", vendor_commands = {value} }}]");
            Model::from_toml(&text, Path::new("t.toml")).map_err(|error| error.to_string())
        };
        let device = "scsi:iscsi://h/iqn.2026-11.example.far:t/1";
        for (value, passes) in [("true", true), ("false", false)] {
            let model = read(device, value).unwrap();
            assert_eq!(
                lun(&model.units()[0], Said::Written).vendor_commands,
                passes
            );
            let again = Model::from_toml(&model.effective(), Path::new("")).unwrap();
            assert!(crate::diff(&model, &again).is_empty());
        }
        assert!(read("mem:1M", "false").is_ok());
        let error = read("mem:1M", "true").unwrap_err();
        assert!(
            error.contains("t.toml:1") && error.contains("store \"mem:1M\" is none"),
            "{error}"
        );
        let error = read(device, "1").unwrap_err();
        assert!(error.contains("t.toml:1"), "{error}");
    }
}
