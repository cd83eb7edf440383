//! Groups of HyperSCSI, `[[hyperscsi.group]]`, and their devices: a section as all others, whose devices may be
//! changed by themselves. A group is known as `NAME at PLACE`, as plans call it; its name alone will do where no other
//! has that.

use api::edit::{DeviceKeys, HyperscsiKeys};
use api::spec;

use super::draft::{Draft, HYPERSCSI, Kind};
use super::error::EditError;
use super::identity::{AT, parts};
use super::list::Keys;
use super::section::Section;
use crate::fields::check_text;
use crate::{HYPERSCSI_NAME_BYTES_MAX, HyperScsiPlace, HyperScsiRule, Rule};

/// The list of devices of a group.
const DEVICE: &str = "device";

impl Section for spec::Hyperscsi {
    const KIND: Kind = HYPERSCSI;

    fn named(&self) -> Result<String, EditError> {
        let place = match (&self.interface, &self.udp) {
            (Some(_), Some(_)) => return Err(Rule::NotBoth { other: "interface" }.into()),
            (Some(interface), None) => HyperScsiPlace::parse(interface)?,
            (None, Some(address)) => HyperScsiPlace::parse(&format!("udp:{address}"))?,
            (None, None) => return Err(HyperScsiRule::Nowhere.into()),
        };
        check_text("name of the group", HYPERSCSI_NAME_BYTES_MAX, &self.name)?;
        Ok(format!("{}{AT}{place}", self.name))
    }

    /// Without a word about it, what clients need stays.
    fn completed(&self, there: Option<&Self>) -> Result<Self, EditError> {
        let mut group = Self {
            password: None,
            ..self.clone()
        };
        if group.password_file.is_none() && !group.open {
            group.password_file = there.and_then(|there| there.password_file.clone());
        }
        Ok(group)
    }

    fn write_rest(&self, keys: &mut Keys<'_>) {
        // That of a document is not shown by the API, so it stays until another way takes its place.
        if self.password_file.is_some() || self.open {
            keys.remove("password");
        }
    }

    fn check(&self) -> Result<(), EditError> {
        match self.password_file.is_some() && self.open {
            true => Err(Rule::NotBoth { other: "open" }.into()),
            false => Ok(()),
        }
    }
}

impl Draft {
    /// The groups of HyperSCSI, as the text has them.
    pub fn hyperscsi(&self) -> Vec<spec::Hyperscsi> {
        self.sections()
    }

    /// What a group is known by that is called so.
    ///
    /// # Errors
    ///
    /// There is none, or the name is that of several.
    pub fn hyperscsi_called(&self, called: &str) -> Result<String, EditError> {
        let groups = self.hyperscsi();
        let known_by = parts(called).map(|(name, place)| format!("{name}{AT}{place}"));
        let mut all = groups.iter().filter_map(|group| group.named().ok());
        if let Some(found) = all.find(|one| Some(one) == known_by.as_ref()) {
            return Ok(found);
        }
        let named = groups.iter().filter(|group| group.name == called);
        let mut named: Vec<String> = named.filter_map(|group| group.named().ok()).collect();
        match named.len() {
            0 => Err(HYPERSCSI.not_found(called)),
            1 => Ok(named.swap_remove(0)),
            _ => Err(EditError::SeveralGroups {
                name: called.to_owned(),
                groups: named,
            }),
        }
    }

    /// Changes the group that is called so.
    fn change_hyperscsi(
        &mut self,
        called: &str,
        change: impl FnOnce(&mut spec::Hyperscsi),
    ) -> Result<(), EditError> {
        let known_by = self.hyperscsi_called(called)?;
        let mut group = self.section(&known_by)?;
        change(&mut group);
        self.put_section(&group).map(drop)
    }

    pub(super) fn set_hyperscsi(&mut self, keys: &HyperscsiKeys) -> Result<(), EditError> {
        if keys.open == Some(false) && keys.password_file.is_none() {
            let known_by = self.hyperscsi_called(&keys.hyperscsi)?;
            let mut groups = self.hyperscsi().into_iter();
            if groups.any(|group| group.open && group.named().is_ok_and(|it| it == known_by)) {
                return Err(HyperScsiRule::NoPassword.into());
            }
        }
        self.change_hyperscsi(&keys.hyperscsi, |group| {
            replace(&mut group.user, keys.user.as_ref());
            if let Some(file) = &keys.password_file {
                group.password_file = Some(file.clone());
                group.open = false;
            }
            if keys.open == Some(true) {
                group.open = true;
                // Both are refused, if both are given.
                group.password_file.clone_from(&keys.password_file);
            }
            replace(&mut group.retransmit, keys.retransmit.as_ref());
            replace(&mut group.profile, keys.profile.as_ref());
            if let Some(devices) = &keys.device {
                group.device.clone_from(devices);
            }
        })
    }

    pub(super) fn has_device(&self, called: &str, id: &str) -> Result<bool, EditError> {
        let known_by = self.hyperscsi_called(called)?;
        let mut groups = self.hyperscsi().into_iter();
        let is_it = |group: &spec::Hyperscsi| group.named().is_ok_and(|name| name == known_by);
        let devices = groups.find(is_it).map(|group| group.device);
        Ok(devices.is_some_and(|devices| devices.iter().any(|one| one.id == id)))
    }

    /// Adds a device to a group, or changes the one of this unit. True when it was made.
    pub(super) fn put_device(
        &mut self,
        called: &str,
        device: &spec::HyperscsiDevice,
    ) -> Result<bool, EditError> {
        let is_there = self.has_device(called, &device.id)?;
        self.change_hyperscsi(called, |group| {
            let there = group.device.iter_mut().find(|one| one.id == device.id);
            match there {
                Some(there) => there.clone_from(device),
                None => group.device.push(device.clone()),
            }
        })?;
        Ok(!is_there)
    }

    pub(super) fn set_device_keys(&mut self, keys: &DeviceKeys) -> Result<(), EditError> {
        let (group, id) = (keys.name(0), keys.name(1));
        self.check_device(group, id)?;
        let mut devices = self
            .section::<spec::Hyperscsi>(&self.hyperscsi_called(group)?)?
            .device;
        for device in devices.iter_mut().filter(|one| one.id == id) {
            let changed = keys.applied(device);
            *device = changed.map_err(|error| EditError::Value {
                why: error.to_string(),
            })?;
        }
        self.change_hyperscsi(group, |group| group.device = devices)
    }

    /// Takes a device from a group.
    pub(super) fn remove_device(&mut self, called: &str, id: &str) -> Result<(), EditError> {
        self.check_device(called, id)?;
        self.change_hyperscsi(called, |group| group.device.retain(|one| one.id != id))
    }

    fn check_device(&self, called: &str, id: &str) -> Result<(), EditError> {
        match self.has_device(called, id)? {
            true => Ok(()),
            false => Err(EditError::NotFound {
                what: DEVICE,
                name: format!("{id} of {called}"),
            }),
        }
    }

    /// Calls a unit by its new `id` wherever a group has it.
    pub(super) fn follow_in_hyperscsi(&mut self, old: &str, new: &str) {
        let Some(mut groups) = self.list_mut(HYPERSCSI) else {
            return;
        };
        for at in 0..groups.len() {
            let Some(mut group) = groups.table(at) else {
                continue;
            };
            let Some(mut devices) = group.list(DEVICE) else {
                continue;
            };
            for at in 0..devices.len() {
                if devices.row(at).and_then(|row| row.text("id")) == Some(old)
                    && let Some(mut keys) = devices.table(at)
                {
                    keys.set_text("id", Some(new), str::eq);
                }
            }
        }
    }

    /// The groups that have this unit as a device, in words.
    pub(super) fn hyperscsi_with(&self, id: &str) -> Vec<String> {
        let groups = self.hyperscsi().into_iter();
        let has = |group: &spec::Hyperscsi| group.device.iter().any(|one| one.id == id);
        let uses = groups.filter(has);
        uses.map(|group| format!("hyperscsi.group {}", group.name))
            .collect()
    }
}

/// Takes a value over, if there is one; an empty one takes the key away.
fn replace(key: &mut Option<String>, value: Option<&String>) {
    if let Some(value) = value {
        *key = (!value.is_empty()).then(|| value.clone());
    }
}

/// What a group is known by that is configured so.
///
/// # Errors
///
/// It has no name, or not one place.
pub fn hyperscsi_name(group: &spec::Hyperscsi) -> Result<String, EditError> {
    group.named()
}

#[cfg(test)]
mod tests {
    use api::edit::{Edit, GroupDevice, Keys as Changed, Name, Thing};

    use super::*;

    const LUNS: &str =
        "lun = [{ id = \"a\", store = \"mem:1M\" }, { id = \"b\", store = \"mem:1M\" }]\n";

    const TABLES: &str = r#"
# Of the lab.
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1" # here
password_file = "abc.secret"

[[hyperscsi.group.device]] # the first
id = "a"

[[quota]]
owner = "o"
used = "1G"
"#;

    const INLINE: &str = r#"
hyperscsi.group = [
    { name = "ABC", udp = "127.0.0.1", password = "eight by", device = [{ id = "a" }] }, # the first
]
"#;

    fn after(text: &str, edits: &[Edit]) -> Result<String, EditError> {
        let mut draft = Draft::parse(&format!("{LUNS}{text}")).unwrap();
        for edit in edits {
            draft.make(edit)?;
        }
        let after = draft.to_string();
        Draft::parse(&after).unwrap_or_else(|error| panic!("{error}\n{after}"));
        Ok(after.strip_prefix(LUNS).unwrap().to_owned())
    }

    fn group(name: &str, udp: &str) -> spec::Hyperscsi {
        spec::Hyperscsi {
            name: name.to_owned(),
            udp: Some(udp.to_owned()),
            open: true,
            device: vec![named("b")],
            ..spec::Hyperscsi::default()
        }
    }

    fn named(id: &str) -> spec::HyperscsiDevice {
        spec::HyperscsiDevice {
            id: id.to_owned(),
            ..spec::HyperscsiDevice::default()
        }
    }

    fn device_edit(called: &str, device: spec::HyperscsiDevice) -> Thing {
        Thing::Device(GroupDevice {
            hyperscsi: called.to_owned(),
            device,
        })
    }

    fn remove(called: &str, id: &str) -> Edit {
        Edit::Remove(Name::Device {
            hyperscsi: called.to_owned(),
            id: id.to_owned(),
        })
    }

    #[test]
    fn a_group_is_added_behind_the_others_and_the_last_one_takes_the_section_along() {
        let add = Edit::Add(Thing::Hyperscsi(group("DEF", "[::1]:1")));
        let added = "[[hyperscsi.group]]\nname = \"DEF\"\nudp = \"[::1]:1\"\nopen = true\ndevice = [{ id = \"b\" }]\n";
        let with_it = after(TABLES, std::slice::from_ref(&add)).unwrap();
        let place = with_it.find(added).unwrap_or_else(|| panic!("{with_it}"));
        assert!(place < with_it.find("[[quota]]").unwrap(), "{with_it}");
        assert_eq!(with_it.replacen(&format!("\n{added}"), "", 1), TABLES);
        let gone = [add, Edit::Remove(Name::Hyperscsi("DEF".to_owned()))];
        assert_eq!(after(TABLES, &gone).unwrap(), TABLES);
        for text in [TABLES, INLINE] {
            let none = after(text, &[Edit::Remove(Name::Hyperscsi("ABC".to_owned()))]).unwrap();
            assert!(
                !none.contains("ABC") && !none.contains("[hyperscsi"),
                "{none}"
            );
        }
        let first = after("", &[Edit::Add(Thing::Hyperscsi(group("DEF", "[::1]:1")))]).unwrap();
        assert_eq!(first.trim_start(), added);
        let inline = after(
            INLINE,
            &[Edit::Add(Thing::Hyperscsi(group("DEF", "[::1]:1")))],
        )
        .unwrap();
        assert!(
            inline.contains("# the first\n    { name = \"DEF\""),
            "{inline}"
        );
    }

    #[test]
    fn keys_and_devices_are_changed_by_themselves_and_all_else_stays() {
        let level = |level: &str| {
            DeviceKeys::of(["ABC", "a"])
                .with("level", level)
                .with("readonly", !level.is_empty())
        };
        for text in [TABLES, INLINE] {
            let edits = [
                Edit::Set(Changed::Device(level("crc"))),
                Edit::Add(device_edit("ABC at udp:127.0.0.1", named("b"))),
                Edit::Set(Changed::Hyperscsi(HyperscsiKeys {
                    hyperscsi: "ABC".to_owned(),
                    user: Some("alice".to_owned()),
                    profile: Some("wireless".to_owned()),
                    ..HyperscsiKeys::default()
                })),
            ];
            let changed = after(text, &edits).unwrap();
            for part in [
                "level = \"crc\"",
                "readonly = true",
                "id = \"b\"",
                "alice",
                "wireless",
                "the first",
            ] {
                assert!(changed.contains(part), "{part}: {changed}");
            }
            assert_eq!(
                changed.contains("eight by"),
                text == INLINE,
                "the password stays"
            );
            let back = [
                Edit::Set(Changed::Device(level(""))),
                remove("ABC", "b"),
                Edit::Set(Changed::Hyperscsi(HyperscsiKeys {
                    hyperscsi: "ABC at udp:127.0.0.1:5674".to_owned(),
                    user: Some(String::new()),
                    profile: Some(String::new()),
                    ..HyperscsiKeys::default()
                })),
            ];
            let both = [&edits[..], &back[..]].concat();
            assert_eq!(after(text, &both).unwrap(), text);
        }
    }

    #[test]
    fn one_way_to_a_password_takes_the_place_of_another() {
        let keys = |file: Option<&str>, open: Option<bool>| {
            Edit::Set(Changed::Hyperscsi(HyperscsiKeys {
                hyperscsi: "ABC".to_owned(),
                password_file: file.map(str::to_owned),
                open,
                ..HyperscsiKeys::default()
            }))
        };
        let filed = after(INLINE, &[keys(Some("new.secret"), None)]).unwrap();
        assert!(
            filed.contains("new.secret") && !filed.contains("eight by"),
            "{filed}"
        );
        let open = after(TABLES, &[keys(None, Some(true))]).unwrap();
        assert!(
            open.contains("open = true") && !open.contains("abc.secret"),
            "{open}"
        );
        let again = after(&open, &[keys(Some("abc.secret"), Some(false))]).unwrap();
        assert!(
            !again.contains("open") && again.contains("abc.secret"),
            "{again}"
        );
        let both = after(TABLES, &[keys(Some("x"), Some(true))]);
        assert_eq!(both, Err(Rule::NotBoth { other: "open" }.into()));
        let none = after(&open, &[keys(None, Some(false))]);
        assert_eq!(none, Err(HyperScsiRule::NoPassword.into()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let two = format!("{TABLES}{}", INLINE_OTHER);
        let mut nowhere = group("DEF", "[::1]:1");
        nowhere.udp = None;
        for (edit, why) in [
            (
                Edit::Add(Thing::Hyperscsi(group("ABC", "127.0.0.1:5674"))),
                "exists already",
            ),
            (
                Edit::Add(Thing::Hyperscsi(group("DEF", "nowhere"))),
                "nowhere",
            ),
            (Edit::Put(Thing::Hyperscsi(nowhere)), "interface"),
            (
                Edit::Remove(Name::Hyperscsi("abc".to_owned())),
                "there is no hyperscsi.group",
            ),
            (Edit::Remove(Name::Hyperscsi("ABC".to_owned())), "say which"),
            (
                Edit::Add(device_edit("ABC at udp:127.0.0.1", named("a"))),
                "change it with tarn hyperscsi device set \"ABC at udp:127.0.0.1\" a",
            ),
            (remove("ABC at udp:127.0.0.1", "b"), "there is no device"),
            (
                Edit::Remove(Name::Lun("a".to_owned())),
                "hyperscsi.group ABC",
            ),
        ] {
            let error = after(&two, &[edit]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    const INLINE_OTHER: &str = "\n[[hyperscsi.group]]\nname = \"ABC\"\ninterface = \"eth1\"\nopen = true\n\
        device = [{ id = \"b\" }]\n";
}
