//! What a reader found, in the terms of Tarn but not yet within its rules.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use config::{CacheMode, StoreAt, StoreSpec};

use crate::passed::Passed;
use crate::source::ENTRIES_MAX;
use crate::{Device, Note, Place, ReadError, Severity};

/// A text that is not to be shown.
pub(crate) type Secret = Zeroizing<String>;

/// Everything a reader found.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) units: Vec<Unit>,
    pub(crate) targets: Vec<Target>,
    pub(crate) users: Vec<User>,
    pub(crate) groups: Vec<Group>,
    /// Names of the users that may open discovery sessions.
    pub(crate) discovery_auth: Vec<String>,
    /// Discovery asks for a user, whether or not there is one in `discovery_auth`.
    pub(crate) discovery_needs_user: bool,
    /// Something that was not understood stands beside all targets: none is to be shown.
    pub(crate) is_guarded: bool,
    pub(crate) notes: Vec<Note>,
    /// The devices of this machine.
    pub(crate) devices: Vec<Device>,
    /// Where each user has its secret first, and the secret.
    secrets: BTreeMap<String, (Place, Option<Secret>)>,
    /// How many entries of lists were multiplied out.
    entries: usize,
    /// Where they became too many.
    full_at: Option<Place>,
}

/// A logical unit.
pub(crate) struct Unit {
    pub(crate) place: Place,
    /// What the other program calls it; becomes the `id`.
    pub(crate) name: String,
    /// Where its data is. `thin` says whether initiators see it unmap. The size of a block stands beside it: other
    /// programs have more sizes.
    pub(crate) store: StoreSpec,
    /// Size of a logical block in bytes.
    pub(crate) block_bytes: u64,
    /// VPD page 80h, as the initiator sees it.
    pub(crate) serial: Option<String>,
    /// NAA designator of VPD page 83h, hexadecimal.
    pub(crate) naa: Option<String>,
    /// Vendor and product of standard INQUIRY data; no product is the name of the unit, or what its device says.
    pub(crate) inquiry: (String, String),
    /// What initiators that go by VPD page 83h have known it by, if not an NAA designator.
    pub(crate) other_designator: Option<&'static str>,
    /// Something of it was not understood: no target is to show it.
    pub(crate) is_guarded: bool,
    /// What is other than it was, and what to do; noted once for all units that have it in common.
    pub(crate) changes: Vec<(String, &'static str)>,
}

/// What to do where a configuration has its own length of a disk.
const SIZE: &str = "compare with the length of the file: if that is shorter, lengthen it with truncate -s before the \
    start, or with tarn lun resize after it; if it is longer, initiators see a longer disk";

impl Unit {
    /// A unit with nothing said of it but where its data is.
    pub(crate) fn new(place: Place, name: impl Into<String>, store: StoreAt) -> Self {
        Self {
            place,
            name: name.into(),
            store: StoreSpec::new(store),
            block_bytes: 512,
            serial: None,
            naa: None,
            inquiry: (String::new(), String::new()),
            other_designator: None,
            is_guarded: false,
            changes: Vec::new(),
        }
    }

    /// A device that has commands passed on. Vendor and product are the device's own, as they were.
    pub(crate) fn passed(place: Place, name: impl Into<String>, passed: Passed) -> Self {
        Self {
            store: passed.store.clone(),
            other_designator: Some("the designators of the device"),
            changes: passed.change.into_iter().collect(),
            ..Self::new(place, name, passed.store.at)
        }
    }

    /// Whether its commands are passed on to a device.
    pub(crate) fn is_passed(&self) -> bool {
        self.store.at.local_device().is_some()
    }

    /// It is other than it was.
    pub(crate) fn change(&mut self, message: impl Into<String>, remedy: &'static str) {
        self.changes.push((message.into(), remedy));
    }

    /// When a write is on stable storage: before it is answered comes before past the page cache, as an initiator
    /// that found no write cache never flushes.
    pub(crate) fn set_cache(&mut self, is_through: bool, is_direct: bool) {
        self.store.cache = match (is_through, is_direct) {
            (true, _) => CacheMode::Writethrough,
            (false, true) => CacheMode::Direct,
            (false, false) => CacheMode::Writeback,
        };
        if is_through && is_direct {
            let message = "writes went through and past the page cache; Tarn has cache=writethrough or cache=direct, \
                and has writethrough now: each write is on stable storage before it is answered, direct was dropped";
            let remedy = "take cache=direct instead only if all initiators find the new write cache and flush it";
            self.change(message, remedy);
        }
    }

    /// The length in the other configuration, as it stands there.
    pub(crate) fn note_size(&mut self, size: &str) {
        let message = format!(
            "its configuration has a length of {size}; in Tarn a disk is as long as its file or device, at which the \
             import does not look"
        );
        self.change(message, SIZE);
    }
}

/// An iSCSI target.
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) portals: Vec<Portal>,
    /// Its initiators are let in at these portals only: others are not to take their place.
    pub(crate) is_bound: bool,
    /// Names of users; empty: no CHAP, unless it needs a user.
    pub(crate) auth: Vec<String>,
    /// It had users, whether or not one of them is in `auth`.
    pub(crate) needs_user: bool,
    pub(crate) views: Vec<View>,
    /// Something of it was not understood, or nobody could log in: it is not to be in the result, but its disks are.
    pub(crate) is_guarded: bool,
}

impl Target {
    pub(crate) fn new(place: Place, name: impl Into<String>) -> Self {
        Self {
            place,
            name: name.into(),
            alias: None,
            portals: Vec::new(),
            is_bound: false,
            auth: Vec::new(),
            needs_user: false,
            views: Vec::new(),
            is_guarded: false,
        }
    }
}

/// An address of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Portal {
    pub(crate) bind: String,
    /// Target portal group tag.
    pub(crate) tag: u16,
}

/// The addresses that stand for all, of one family each.
const ANY_ADDRESS: [&str; 2] = ["0.0.0.0:3260", "[::]:3260"];

/// Everywhere, on the default port.
pub(crate) fn portals_of_all(tag: u16) -> Vec<Portal> {
    let portal = |bind: &str| Portal {
        bind: bind.to_owned(),
        tag,
    };
    ANY_ADDRESS.map(portal).into()
}

/// The portals of programs whose configuration names none: everywhere, with the only tag they know.
pub(crate) fn portal_of_all() -> Vec<Portal> {
    portals_of_all(1)
}

/// A unit as a target shows it.
pub(crate) struct View {
    pub(crate) place: Place,
    pub(crate) lun: u64,
    /// Position in [`Found::units`].
    pub(crate) unit: usize,
    /// The group that sees it; `None`: everyone who may log in.
    pub(crate) group: Option<String>,
    pub(crate) read_only: bool,
}

/// A group of initiators.
pub(crate) struct Group {
    pub(crate) place: Place,
    pub(crate) id: String,
    /// Name patterns, addresses and networks; what follows a `!` is not in the group. Empty: nobody is in it.
    pub(crate) initiators: Vec<String>,
}

/// A CHAP user.
pub(crate) struct User {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// `None` if the file does not have it.
    pub(crate) secret: Option<Secret>,
    pub(crate) mutual: Option<Mutual>,
    /// The initiator names it may come with; empty: any.
    pub(crate) initiators: Vec<String>,
}

impl User {
    /// A user that may come with any name, towards whom the target does not prove itself.
    pub(crate) fn new(place: Place, name: impl Into<String>, secret: Option<Secret>) -> Self {
        Self {
            place,
            name: name.into(),
            secret,
            mutual: None,
            initiators: Vec::new(),
        }
    }
}

/// With what the target proves itself.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Mutual {
    pub(crate) name: String,
    pub(crate) secret: Option<Secret>,
}

impl Found {
    /// Nothing yet, on a machine with these devices.
    pub(crate) fn of(devices: Vec<Device>) -> Self {
        Self {
            devices,
            ..Self::default()
        }
    }

    /// Whether there is room for so many more entries of a list that is used here. If there is not,
    /// what was found so far is not to be used, see [`Found::check_room`].
    pub(crate) fn has_room(&mut self, place: &Place, entries: usize) -> bool {
        self.entries = self.entries.saturating_add(entries);
        if self.entries > ENTRIES_MAX {
            self.full_at.get_or_insert_with(|| place.clone());
        }
        self.full_at.is_none()
    }

    /// # Errors
    ///
    /// [`ReadError::TooMuch`].
    pub(crate) fn check_room(&mut self) -> Result<(), ReadError> {
        match self.full_at.take() {
            None => Ok(()),
            Some(place) => Err(ReadError::TooMuch { place }),
        }
    }

    /// Adds a unit and gives its position.
    pub(crate) fn add_unit(&mut self, unit: Unit) -> usize {
        self.units.push(unit);
        self.units.len().saturating_sub(1)
    }

    /// It is in the result, and initiators see no difference.
    pub(crate) fn carried(&mut self, place: &Place, subject: &str, message: impl Into<String>) {
        self.note(Severity::Carried, place, subject, message.into(), "");
    }

    /// It is in the result in another form.
    pub(crate) fn changed(
        &mut self,
        place: &Place,
        subject: &str,
        message: impl Into<String>,
        remedy: &str,
    ) {
        self.note(Severity::Changed, place, subject, message.into(), remedy);
    }

    /// It is not in the result.
    pub(crate) fn left_out(
        &mut self,
        place: &Place,
        subject: &str,
        message: impl Into<String>,
        remedy: &str,
    ) {
        self.note(Severity::LeftOut, place, subject, message.into(), remedy);
    }

    /// A line that exports a disk does not lead to one.
    pub(crate) fn no_disk(&mut self, place: &Place, target: &str, line: &str) {
        let subject = format!("target {target}");
        let message = format!("{line} has no number, or has no disk that was imported");
        self.left_out(place, &subject, message, "see the note on that disk");
    }

    fn note(
        &mut self,
        severity: Severity,
        place: &Place,
        subject: &str,
        message: String,
        remedy: &str,
    ) {
        self.notes.push(Note {
            severity,
            place: place.clone(),
            subject: subject.to_owned(),
            message,
            remedy: remedy.to_owned(),
        });
    }

    /// A key that means nothing to a reader may keep somebody out, so what it stands in is not shown. Gives false: it
    /// was not understood.
    pub(crate) fn unknown_key(&mut self, place: &Place, subject: &str, key: &str) -> bool {
        let message = format!(
            "{key:?} is not known here; as it may restrict access, what it stands in is not shown"
        );
        let remedy =
            "if it does not say who may do what, take it out of a copy of the file and import that";
        self.left_out(place, subject, message, remedy);
        false
    }
}

/// What a key that has no counterpart is for: a table of these stands in each reader.
pub(crate) enum Idle {
    /// It says nothing that outlives the other program: logs, process files, threads.
    Housekeeping,
    /// A parameter of the protocol or of performance, for which Tarn has its own defaults.
    Tuning,
    /// Something initiators may miss: what it was, and what to do.
    Missed(&'static str, &'static str),
    /// The same, where what it stands in cannot be shown as it was.
    Guards(&'static str, &'static str),
}

impl Found {
    /// Notes what becomes of a key, going by the table of the reader. False if what it stands in is not to be shown.
    pub(crate) fn idle_key(
        &mut self,
        table: &[(&str, Idle)],
        place: &Place,
        subject: &str,
        key: &str,
    ) -> bool {
        match table.iter().find(|(name, _)| *name == key) {
            None => self.unknown_key(place, subject, key),
            Some((_, Idle::Housekeeping)) => true,
            Some((_, Idle::Tuning)) => {
                let remedy = "nothing, unless an initiator needs another value; \
                              docs/reference/configuration.md lists the keys";
                let message = format!("{key} is left to Tarn's own default");
                self.changed(place, subject, message, remedy);
                true
            }
            Some((_, Idle::Missed(what, remedy))) => {
                self.left_out(place, subject, format!("{key}: {what}"), remedy);
                true
            }
            Some((_, Idle::Guards(what, remedy))) => {
                self.left_out(place, subject, format!("{key}: {what}"), remedy);
                false
            }
        }
    }

    /// Adds a user of a target. A name has one secret in Tarn: a user that had another one elsewhere before does not
    /// get into this target with that.
    pub(crate) fn add_target_user(&mut self, target: &mut Target, user: User) {
        target.needs_user = true;
        if self.is_first_secret(&user, &format!("target {}", target.name)) {
            target.auth.push(user.name.clone());
            self.users.push(user);
        }
    }

    /// The same for discovery.
    pub(crate) fn add_discovery_user(&mut self, user: User) {
        self.discovery_needs_user = true;
        if self.is_first_secret(&user, "discovery") {
            if !self.discovery_auth.contains(&user.name) {
                self.discovery_auth.push(user.name.clone());
            }
            self.users.push(user);
        }
    }

    /// Adds a user whom nobody asks for, to be at hand.
    pub(crate) fn keep_user(&mut self, user: User, subject: &str) {
        if self.is_first_secret(&user, subject) {
            self.users.push(user);
        }
    }

    fn is_first_secret(&mut self, user: &User, subject: &str) -> bool {
        let new = || (user.place.clone(), user.secret.clone());
        let (first, secret) = self.secrets.entry(user.name.clone()).or_insert_with(new);
        if *secret == user.secret {
            return true;
        }
        let message = format!(
            "user {:?} has another secret at {first}; a user of Tarn has one, so it does not log in here",
            user.name
        );
        let remedy = "give one of the two another name, here and at the initiators";
        self.left_out(&user.place, subject, message, remedy);
        false
    }
}
