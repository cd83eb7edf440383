//! What a reader found, in the terms of Tarn but not yet within its rules.

use zeroize::Zeroizing;

use config::{StoreAt, StoreSpec};

use crate::{Note, Place, ReadError, Severity};

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
    pub(crate) notes: Vec<Note>,
    /// How many entries of lists were multiplied out.
    entries: usize,
    /// Where they became too many.
    full_at: Option<Place>,
}

/// Most entries of lists that are multiplied out: one list may be that of many targets.
pub(crate) const ENTRIES_MAX: usize = 1_000_000;

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
    /// Vendor and product of standard INQUIRY data; no product is the name of the unit.
    pub(crate) inquiry: (String, String),
    /// What initiators that go by VPD page 83h have known it by, if not an NAA designator.
    pub(crate) other_designator: Option<&'static str>,
}

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
        }
    }
}

/// An iSCSI target.
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) portals: Vec<Portal>,
    /// Names of users; empty: no CHAP.
    pub(crate) auth: Vec<String>,
    pub(crate) views: Vec<View>,
}

impl Target {
    pub(crate) fn new(place: Place, name: impl Into<String>) -> Self {
        Self {
            place,
            name: name.into(),
            alias: None,
            portals: Vec::new(),
            auth: Vec::new(),
            views: Vec::new(),
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

/// The address that stands for all, of both families on a Linux with its defaults.
pub(crate) const ANY_ADDRESS: &str = "[::]:3260";

/// The portal of programs whose configuration names none: everywhere, with the only tag they know.
pub(crate) fn portal_of_all() -> Vec<Portal> {
    vec![Portal {
        bind: ANY_ADDRESS.to_owned(),
        tag: 1,
    }]
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

/// With what the target proves itself.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Mutual {
    pub(crate) name: String,
    pub(crate) secret: Option<Secret>,
}

impl Found {
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

    /// A key that means nothing to a reader: it may matter.
    pub(crate) fn unknown_key(&mut self, place: &Place, subject: &str, key: &str) {
        let message = format!("the key {key:?} is not known here");
        let remedy = "see in the other program's manual whether it matters";
        self.left_out(place, subject, message, remedy);
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
}

impl Found {
    /// Notes what becomes of a key, going by the table of the reader.
    pub(crate) fn idle_key(
        &mut self,
        table: &[(&str, Idle)],
        place: &Place,
        subject: &str,
        key: &str,
    ) {
        match table.iter().find(|(name, _)| *name == key) {
            None => self.unknown_key(place, subject, key),
            Some((_, Idle::Housekeeping)) => {}
            Some((_, Idle::Tuning)) => self.changed(
                place,
                subject,
                format!("{key} is left to Tarn's own default"),
                "nothing, unless an initiator needs another value; docs/CONFIG.md has the keys there are",
            ),
            Some((_, Idle::Missed(what, remedy))) => {
                self.left_out(place, subject, format!("{key}: {what}"), remedy);
            }
        }
    }

    /// Adds a user, or the same user once more.
    pub(crate) fn add_user(
        &mut self,
        place: Place,
        name: &str,
        secret: Option<Secret>,
        mutual: Option<Mutual>,
    ) {
        self.users.push(User {
            place,
            name: name.to_owned(),
            secret,
            mutual,
            initiators: Vec::new(),
        });
    }
}
