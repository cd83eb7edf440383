//! What a store was when it was served last, and whether it still is: a path is not the medium.
//!
//! A record has what is *strong* (UUID of the file system, server and export, WWID, the file of a loop device, cluster
//! and id of an image, designator of a disk), which differs for no other reason than that the medium is another one,
//! and what is *weak* (inode and birth time), which a restored copy does not have. The names that the kernel gives to
//! devices are in neither.

mod device;
mod file;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use config::{StoreKind, StoreSpec};
use rustix::fs::{FileType, fstat};
use store::SharedStore;

/// A medium, as it was found or as it was recorded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Medium {
    /// The store, as the configuration names it.
    pub(crate) store: String,
    /// Its size in bytes.
    pub(crate) size_bytes: u64,
    /// What differs only where the medium is another one, by what it is.
    pub(crate) strong: BTreeMap<String, String>,
    /// Inode and birth time, where the file system keeps them.
    pub(crate) weak: Option<String>,
    /// Where its bytes are in those of the unit.
    pub(crate) position: Option<String>,
}

/// How what is there stands to what was recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fit {
    /// It is the same, as far as can be seen.
    Same,
    /// It is another file in the same place, such as a copy that was restored.
    OtherFile,
}

/// Types of file systems whose files are gone with the machine.
const VOLATILE: [&str; 2] = ["tmpfs", "ramfs"];

/// The key of the type of a file system.
const FILE_SYSTEM: &str = "file-system";

impl Medium {
    /// What an open store is; nothing, where it is made anew each time. May block for as long as its file system does.
    ///
    /// # Errors
    ///
    /// The system does not say: a record without that would be one of another medium.
    pub(crate) fn of(spec: &StoreSpec, store: &dyn SharedStore) -> io::Result<Option<Self>> {
        let Some(name) = name_of(spec) else {
            return Ok(None);
        };
        let mut medium = Self {
            store: name,
            size_bytes: store.capabilities().size_bytes,
            ..Self::default()
        };
        if let Some(open) = store.descriptor() {
            let found = fstat(open)?;
            match FileType::from_raw_mode(found.st_mode).is_block_device() {
                true => device::describe(found.st_rdev, &mut medium),
                false => file::describe(open, found.st_dev, &mut medium)?,
            }
        }
        if let Some(identity) = store.identity() {
            medium.note("identity", identity);
        }
        Ok(Some(medium))
    }

    /// The same, with the size that the store has now.
    pub(crate) fn with_size_of(&self, store: &dyn SharedStore) -> Self {
        Self {
            size_bytes: store.capabilities().size_bytes,
            ..self.clone()
        }
    }

    /// The same, at this place in the unit.
    pub(crate) fn at(self, position: String) -> Self {
        Self {
            position: Some(position),
            ..self
        }
    }

    /// What a log device is: recorded beside the parts, under a name that none of these has.
    ///
    /// # Errors
    ///
    /// As [`Medium::of`].
    pub(crate) fn of_log(spec: &StoreSpec, device: &dyn SharedStore) -> io::Result<Option<Self>> {
        let medium = Self::of(spec, device)?.zip(log_name_of(spec));
        Ok(medium.map(|(medium, store)| Self { store, ..medium }))
    }

    /// Whether it is that of a log.
    pub(crate) fn is_log(&self) -> bool {
        self.store.starts_with(OF_LOG)
    }

    /// The same, without what the configuration calls it.
    pub(crate) fn without_name(&self) -> Self {
        Self {
            store: String::new(),
            ..self.clone()
        }
    }

    fn is_volatile(&self) -> bool {
        let kind = self.strong.get(FILE_SYSTEM);
        kind.is_some_and(|kind| VOLATILE.contains(&kind.as_str()))
    }

    /// Whether it may be made again where it is missing.
    pub(crate) fn may_be_made(&self) -> bool {
        self.is_volatile()
    }

    /// Nothing but its path and size would show that it is another one.
    fn is_known_by_path_only(&self) -> bool {
        !self.strong.keys().any(|key| key != FILE_SYSTEM)
    }

    /// The same, of a medium that outlives the machine.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.is_known_by_path_only() && !self.is_volatile()
    }

    /// Whether `found` may be served as what this was recorded of.
    ///
    /// # Errors
    ///
    /// It is another medium, or a part of it is missing: what was expected, and what was found.
    pub(crate) fn check(&self, found: &Self) -> Result<Fit, String> {
        if self.is_volatile() {
            return Ok(Fit::Same);
        }
        if found.size_bytes < self.size_bytes {
            return Err(format!(
                "it has {} bytes, and had {} when it was served last",
                found.size_bytes, self.size_bytes
            ));
        }
        for (key, was) in &self.strong {
            if let Some(is) = found.strong.get(key).filter(|is| *is != was) {
                return Err(format!(
                    "its {key} is {is}, and was {was} when it was served last"
                ));
            }
        }
        let is_file = |medium: &Self| medium.strong.contains_key(FILE_SYSTEM);
        if is_file(self) != is_file(found) {
            let kind = |medium| if is_file(medium) { "a file" } else { "no file" };
            return Err(format!(
                "it is {}, and was {} when it was served last",
                kind(found),
                kind(self)
            ));
        }
        if self.is_device() && found.is_known_by_path_only() {
            let names: Vec<&str> = self.strong.values().map(String::as_str).collect();
            return Err(format!(
                "it has no name of its own, and was {} when it was served last",
                names.join(", ")
            ));
        }
        let is_other = self.weak.is_some() && found.weak.is_some() && self.weak != found.weak;
        Ok(if is_other { Fit::OtherFile } else { Fit::Same })
    }

    /// Whether `found` is this very file: also weak parts are the same.
    ///
    /// # Errors
    ///
    /// As [`Medium::check`]; or it is another file, or nothing shows that it is not.
    pub(crate) fn check_strictly(&self, found: &Self) -> Result<(), String> {
        self.check(found)?;
        if self.is_device() || self.weak.is_some() && self.weak == found.weak {
            return Ok(());
        }
        Err("nothing shows that it is the file that was served last".to_owned())
    }

    /// Of a device with a name of its own, that name shows as much as an inode does of a file.
    fn is_device(&self) -> bool {
        !self.strong.contains_key(FILE_SYSTEM) && !self.is_known_by_path_only()
    }

    /// A line for each fact: `store` begins a medium; then `size`, `strong KEY VALUE`, `weak VALUE` and
    /// `position WORDS`.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "store {}", self.store);
        let _infallible = writeln!(text, "size {}", self.size_bytes);
        for (key, value) in &self.strong {
            let _infallible = writeln!(text, "strong {key} {value}");
        }
        if let Some(value) = &self.weak {
            let _infallible = writeln!(text, "weak {value}");
        }
        if let Some(value) = &self.position {
            let _infallible = writeln!(text, "position {value}");
        }
        text
    }

    /// Reads the text of any number of media. What a later release adds to a line of its own is skipped.
    pub(crate) fn of_text(text: &str) -> Option<Vec<Self>> {
        let mut media: Vec<Self> = Vec::new();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ')?;
            if word == "store" {
                media.push(Self {
                    store: rest.to_owned(),
                    ..Self::default()
                });
                continue;
            }
            let medium = media.last_mut()?;
            match word {
                "size" => medium.size_bytes = rest.parse().ok()?,
                "strong" => {
                    let (key, value) = rest.split_once(' ')?;
                    medium.strong.insert(key.to_owned(), value.to_owned());
                }
                "weak" => medium.weak = Some(rest.to_owned()),
                "position" => medium.position = Some(rest.to_owned()),
                _ => {}
            }
        }
        Some(media)
    }

    fn note(&mut self, key: &str, value: impl AsRef<str>) {
        self.strong
            .insert(key.to_owned(), in_one_line(value.as_ref()));
    }
}

/// Where the bytes of each part of a store are in those of the whole, in the order of its parts.
pub(crate) fn positions(spec: &StoreSpec) -> Vec<String> {
    let members = spec.members();
    if spec.at.kind == StoreKind::Stripe {
        let (chunk, count) = (spec.chunk_bytes, members.len());
        let position = |at| format!("chunks of {chunk} bytes, {at} of {count}");
        return (1..=count).map(position).collect();
    }
    let mut start = 0_u64;
    let mut positions = vec![format!("byte {start}")];
    // A member of a concat that has another one behind it has a size of its own.
    for member in members.iter().take(members.len().saturating_sub(1)) {
        start = start.saturating_add(member.store.configured_size_bytes().unwrap_or(0));
        positions.push(format!("byte {start}"));
    }
    positions
}

/// What differs between how recorded media were put together and how a store would be now: the data would be in another
/// order. A store that has none of them is another one, and more of them may follow in a concat.
pub(crate) fn check_positions(recorded: &[Medium], spec: &StoreSpec) -> Result<(), String> {
    let names = match spec.members() {
        [] => vec![name_of(spec)],
        members => members.iter().map(|one| name_of(&one.store)).collect(),
    };
    let now: Vec<_> = names.into_iter().zip(positions(spec)).collect();
    let place_of = |one: &Medium| {
        now.iter()
            .find(|(name, _)| name.as_ref() == Some(&one.store))
    };
    if !recorded.iter().any(|one| place_of(one).is_some()) {
        return Ok(());
    }
    for one in recorded.iter().filter(|one| !one.is_log()) {
        let Some(was) = &one.position else {
            continue;
        };
        match place_of(one) {
            Some((_, is)) if is == was => {}
            Some((_, is)) => {
                return Err(format!("{} would be at {is}, and was at {was}", one.store));
            }
            None => {
                return Err(format!(
                    "{} was at {was}, and is no member any more",
                    one.store
                ));
            }
        }
    }
    Ok(())
}

/// Before what a record calls the store of a log.
const OF_LOG: &str = "log of ";

/// What a record calls a log device.
pub(crate) fn log_name_of(spec: &StoreSpec) -> Option<String> {
    Some(format!("{OF_LOG}{}", name_of(spec)?))
}

/// What a record calls the store.
pub(crate) fn name_of(spec: &StoreSpec) -> Option<String> {
    // Any disc may be in a drive.
    if !spec.is_disk() {
        return None;
    }
    Some(in_one_line(&spec.at.medium()?.to_string()))
}

fn in_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store of a unit, whose members are `a` to `c`.
    fn spec(store: &str) -> StoreSpec {
        let member =
            |id: &str| format!("[[store]]\nid = \"{id}\"\nstore = \"file:/srv/{id}?size=8M\"\n");
        let members = ["a", "b", "c"].into_iter();
        let members = members.filter(|id| !store.contains(&format!("/{id}")));
        let members: String = members.map(member).collect();
        let text = format!("{members}[[lun]]\nid = \"x\"\nstore = \"{store}\"\n");
        let model = config::Model::from_toml(&text, std::path::Path::new("tarn.toml")).unwrap();
        model.units().first().unwrap().store.clone()
    }

    #[test]
    fn parts_stay_where_they_were_in_the_unit() {
        const OF: [&str; 6] = [
            "concat:a,b",
            "concat:b,a",
            "concat:a",
            "stripe:a,b",
            "stripe:a,b?chunk=128k",
            "/srv/a",
        ];
        let recorded = |store: &str| -> Vec<Medium> {
            let spec = spec(store);
            let names = match spec.members() {
                [] => vec![name_of(&spec)],
                members => members.iter().map(|one| name_of(&one.store)).collect(),
            };
            let media = names.into_iter().zip(positions(&spec));
            let media = media.map(|(name, position)| {
                let store = name.unwrap();
                Medium {
                    store,
                    ..Medium::default()
                }
                .at(position)
            });
            media.collect()
        };
        for was in OF {
            for is in OF {
                let is_grown = ["/srv/a", "concat:a"].contains(&was)
                    && ["/srv/a", "concat:a", "concat:a,b"].contains(&is);
                let fits = check_positions(&recorded(was), &spec(is)).is_ok();
                assert_eq!(fits, was == is || is_grown, "{was} as {is}");
            }
            assert_eq!(check_positions(&recorded(was), &spec("/srv/c")), Ok(()));
        }
        let why = check_positions(&recorded("concat:a,b"), &spec("concat:a,c")).unwrap_err();
        assert_eq!(why, "/srv/b was at byte 8388608, and is no member any more");
        // Nothing is said of what an earlier release recorded.
        let unknown = Medium {
            position: None,
            ..recorded("concat:a,b").remove(1)
        };
        assert_eq!(check_positions(&[unknown], &spec("concat:b,a")), Ok(()));
    }

    fn medium() -> Medium {
        let mut medium = Medium {
            store: "/srv/a b.img".to_owned(),
            size_bytes: 4096,
            weak: Some("12:34".to_owned()),
            position: Some("byte 0".to_owned()),
            ..Medium::default()
        };
        medium.note(FILE_SYSTEM, "xfs");
        medium.note("uuid", "ab");
        medium
    }

    #[test]
    fn a_text_comes_back_and_facts_of_later_releases_are_skipped() {
        let (one, two) = (medium(), Medium::default());
        let text = format!("{}{}", one.to_text(), two.to_text());
        assert_eq!(Medium::of_text(&text), Some(vec![one.clone(), two]));
        let later = format!("{}color blue\n", one.to_text());
        assert_eq!(Medium::of_text(&later), Some(vec![one]));
        assert_eq!(Medium::of_text(""), Some(Vec::new()));
        for damaged in [
            "size 1\n",
            "store a\nsize x\n",
            "store a\nstrong\n",
            "store\n",
        ] {
            assert_eq!(Medium::of_text(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn what_is_smaller_or_of_another_file_system_does_not_fit_and_what_grew_or_was_restored_does() {
        let was = medium();
        assert_eq!(was.check(&was), Ok(Fit::Same));
        let grown = Medium {
            size_bytes: 8192,
            ..medium()
        };
        assert_eq!(was.check(&grown), Ok(Fit::Same));
        assert!(grown.check(&was).unwrap_err().contains("4096 bytes"));
        let mut restored = medium();
        restored.weak = Some("13:35".to_owned());
        assert_eq!(was.check(&restored), Ok(Fit::OtherFile));
        let mut elsewhere = medium();
        elsewhere.note("uuid", "cd");
        let why = was.check(&elsewhere).unwrap_err();
        assert!(
            why.contains("uuid is cd") && why.contains("was ab"),
            "{why}"
        );
        // What cannot be had is compared with nothing.
        elsewhere.strong.remove("uuid");
        assert_eq!(was.check(&elsewhere), Ok(Fit::Same));
        elsewhere.note(FILE_SYSTEM, "ext4");
        assert!(was.check(&elsewhere).is_err());
    }

    #[test]
    fn a_device_keeps_its_name_and_is_no_file() {
        let (file, nameless) = (medium(), Medium::default());
        let mut device = Medium::default();
        device.note("wwid", "naa.5");
        let why = device.check(&nameless).unwrap_err();
        assert!(why.contains("was naa.5"), "{why}");
        assert_eq!(nameless.check(&device), Ok(Fit::Same));
        let small = Medium {
            size_bytes: 0,
            ..file.clone()
        };
        for (was, is) in [(&nameless, &file), (&device, &file), (&small, &device)] {
            assert!(was.check(is).unwrap_err().contains("file, and was"));
        }
    }

    #[test]
    fn a_log_wants_the_very_file_or_a_device_with_a_name() {
        let was = medium();
        assert_eq!(was.check_strictly(&was), Ok(()));
        let mut other = medium();
        other.weak = Some("13:35".to_owned());
        assert!(was.check_strictly(&other).is_err());
        other.weak = None;
        assert!(was.check_strictly(&other).is_err());
        assert!(other.check_strictly(&was).is_err());
        let mut device = Medium::default();
        assert!(device.check_strictly(&device).is_err());
        let nameless = device.clone();
        device.note("wwid", "naa.5");
        assert_eq!(device.check_strictly(&device), Ok(()));
        assert!(device.check_strictly(&nameless).is_err());
    }

    #[test]
    fn what_was_in_memory_may_be_made_again() {
        let mut was = medium();
        assert!(!was.may_be_made() && !was.is_known_by_path_only());
        was.note(FILE_SYSTEM, "tmpfs");
        let smaller = Medium::default();
        assert!(was.may_be_made());
        assert_eq!(was.check(&smaller), Ok(Fit::Same));
        was.strong.remove("uuid");
        assert!(was.is_known_by_path_only() && !was.is_unmarked());
        was.note(FILE_SYSTEM, "fuse");
        assert!(was.is_unmarked());
    }
}
