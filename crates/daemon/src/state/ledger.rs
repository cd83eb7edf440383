//! The ledger of identities: which unit has which serial number and NAA designator, and which
//! target port has which number.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use config::{Naa, Serial, Unit};
use serde::{Deserialize, Serialize};

use super::ports::Ports;
use crate::StartError;
use crate::locate::{FileMark, Location};

/// Version of the file's form.
const VERSION: u32 = 1;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// All identities ever made, as `identities.toml` holds them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Ledger {
    version: u32,
    /// The day on which it was read, in days since 1970.
    #[serde(skip)]
    pub(super) today: u64,
    #[serde(default, rename = "unit", skip_serializing_if = "Vec::is_empty")]
    pub(super) records: Vec<Record>,
    #[serde(default, skip_serializing_if = "Ports::is_empty")]
    pub(super) port: Ports,
}

/// One identity and how its unit is found again: by the `id` of a configuration file, or else by
/// mark and path of its file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Left out when the path is not UTF-8; the mark has to do then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    serial: String,
    pub(super) naa: String,
    /// The day on which a unit was last started or changed with it, in days since 1970 (UTC).
    #[serde(default = "today")]
    pub(super) last_used: u64,
    /// The directory below `units` in which something was saved for the unit: its NAA, the
    /// configured one if there is one. What is there is missed when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) saved_in: Option<String>,
    /// The identity was made for a unit that nobody has served yet: there may be nothing at the place of its store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unserved: bool,
    /// A unit that was renamed has its id; it is that of the id again when no other record has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_displaced: bool,
    /// The change that gives the unit another id, from before the configuration file is replaced
    /// until after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renaming: Option<Renaming>,
}

/// A rename that is begun, as the ledger holds it beside the record.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Renaming {
    pub(super) to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
}

/// An identity of the ledger, or one made for this run only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MadeIdentity {
    pub(super) serial: Serial,
    pub(super) naa: Naa,
    /// Whether the same unit will have it again.
    pub(super) is_kept: bool,
    /// Whether the ledger did not have it before.
    pub(super) is_new: bool,
    /// Whether a unit was served with it.
    pub(super) was_served: bool,
    /// Where something was saved for it.
    pub(super) saved_in: Option<String>,
}

/// Today, in days since 1970 (UTC).
fn today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / DAY_SECONDS)
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            version: VERSION,
            today: today(),
            records: Vec::new(),
            port: Ports::default(),
        }
    }
}

impl Ledger {
    /// Reads the text of the file at `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, StartError> {
        let foreign = |problem| StartError::StateForeign {
            path: path.to_owned(),
            problem,
        };
        let mut ledger: Self = toml::from_str(text).map_err(|error| {
            let problem: Vec<_> = error.message().split_whitespace().collect();
            foreign(problem.join(" "))
        })?;
        ledger.today = today();
        if ledger.version != VERSION {
            return Err(StartError::StateVersion {
                path: path.to_owned(),
                got: ledger.version,
                known: VERSION,
            });
        }
        if let Some(record) = ledger
            .records
            .iter()
            .find(|record| record.identity().is_none())
        {
            let Record { serial, naa, .. } = record;
            return Err(foreign(format!("serial {serial:?} or naa {naa:?} is none")));
        }
        Ok(ledger)
    }

    /// Whether it has a unit of a configuration file.
    pub(super) fn has_ids(&self) -> bool {
        self.records.iter().any(|record| record.id.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.port.is_empty()
    }

    /// The text of the file.
    pub(super) fn to_text(&self) -> io::Result<String> {
        toml::to_string(self).map_err(io::Error::other)
    }

    /// The identity of a unit, made with eight bytes of `random` if it has none yet.
    pub(super) fn identity(
        &mut self,
        unit: &Unit,
        location: Option<&Location>,
        random: impl Fn() -> Result<[u8; 8], StartError>,
    ) -> Result<MadeIdentity, StartError> {
        let today = self.today;
        let found = match (&unit.id, location) {
            (Some(id), _) => self.find_by_id(id),
            (None, Some(location)) => self.find_by_location(location),
            // Memory of the command line: its data is new each time, so its identity must be, or
            // an initiator would take it for the disk it knew.
            (None, None) => return Ok(make(self.fresh_naa(random)?, false)),
        };
        if let Some(record) = found
            && let Some(identity) = record.identity()
        {
            record.last_used = today;
            return Ok(identity);
        }
        let made = make(self.fresh_naa(random)?, true);
        let location = location.filter(|_| unit.id.is_none());
        self.records.push(Record {
            id: unit.id.clone(),
            path: location.and_then(Location::path_text),
            mark: location.and_then(Location::mark_text),
            serial: made.serial.to_string(),
            naa: made.naa.to_string(),
            last_used: today,
            saved_in: None,
            is_unserved: true,
            is_displaced: false,
            renaming: None,
        });
        // What neither id nor path nor mark leads to is never found again.
        self.records
            .retain(|record| record.id.is_some() || record.path.is_some() || record.mark.is_some());
        Ok(made)
    }

    /// Writes the identity of a unit that is being served into the ledger, if the ledger does not
    /// have it any more. Never makes an identity.
    pub(super) fn remember(&mut self, unit: &Unit, serial: &Serial, naa: Naa) {
        let Some(id) = &unit.id else {
            return;
        };
        let today = self.today;
        if let Some(record) = self.find_by_id(id) {
            record.last_used = today;
            return;
        }
        self.records.push(Record {
            id: Some(id.clone()),
            path: None,
            mark: None,
            serial: serial.to_string(),
            naa: naa.to_string(),
            last_used: today,
            saved_in: None,
            is_unserved: false,
            is_displaced: false,
            renaming: None,
        });
    }

    /// The unit with the identity `naa` is served from now on.
    pub(super) fn note_served(&mut self, naa: Naa) {
        let naa = naa.to_string();
        if let Some(record) = self.records.iter_mut().find(|record| record.naa == naa) {
            record.is_unserved = false;
        }
    }

    /// Something was saved in this directory for the unit with the identity `naa`.
    pub(super) fn note_saved(&mut self, naa: Naa, directory: &str) {
        let naa = naa.to_string();
        if let Some(record) = self.records.iter_mut().find(|record| record.naa == naa) {
            record.saved_in = Some(directory.to_owned());
        }
    }

    pub(super) fn find_by_id(&mut self, id: &str) -> Option<&mut Record> {
        let has_id = |record: &Record| record.id.as_deref() == Some(id);
        let is_it = |record: &Record| has_id(record) && !record.is_displaced;
        // Of those that had to give it up, the last.
        let position = self.records.iter().position(is_it);
        let position = position.or_else(|| self.records.iter().rposition(has_id))?;
        let record = self.records.get_mut(position)?;
        record.is_displaced = false;
        Some(record)
    }

    /// The mark decides, as a file that was moved is the disk it was; the path only where no
    /// record has the mark, as for a file that was restored from a backup. Either is then noted
    /// as it is now. A file that is yet to be made is a new disk, whatever was at its path.
    fn find_by_location(&mut self, location: &Location) -> Option<&mut Record> {
        let (path, mark) = (location.path_text(), location.mark_text());
        let has_mark = |record: &Record| mark.is_some() && record.mark == mark;
        let has_path = |record: &Record| path.is_some() && record.path == path;
        let position = if location.exists {
            let by_mark = self.records.iter().position(has_mark);
            by_mark.or_else(|| self.records.iter().position(has_path))
        } else {
            None
        };
        for (other, record) in self.records.iter_mut().enumerate() {
            if Some(other) != position && has_path(record) {
                // Its file is gone from here; if it is seen again, its mark shows which it is.
                record.path = None;
            }
        }
        let record = self.records.get_mut(position?)?;
        record.path = path;
        if mark.is_some() {
            record.mark = mark;
        }
        Some(record)
    }

    /// A designator that no record has.
    fn fresh_naa(
        &self,
        random: impl Fn() -> Result<[u8; 8], StartError>,
    ) -> Result<Naa, StartError> {
        // With 60 random bits the second try is already a wonder.
        for _attempt in 0..8 {
            let naa = Naa::locally_assigned(random()?);
            let text = naa.to_string();
            if self.records.iter().all(|record| record.naa != text) {
                return Ok(naa);
            }
        }
        let source = getrandom::Error::UNEXPECTED;
        Err(StartError::Random { source })
    }
}

fn make(naa: Naa, is_kept: bool) -> MadeIdentity {
    MadeIdentity {
        serial: Serial::of_naa(naa),
        naa,
        is_kept,
        is_new: true,
        was_served: false,
        saved_in: None,
    }
}

impl Record {
    fn identity(&self) -> Option<MadeIdentity> {
        Some(MadeIdentity {
            serial: Serial::parse(&self.serial).ok()?,
            naa: Naa::parse(&self.naa).ok()?,
            is_kept: true,
            is_new: false,
            was_served: !self.is_unserved,
            saved_in: self.saved_in.clone(),
        })
    }
}

impl Location {
    fn path_text(&self) -> Option<String> {
        self.path.to_str().map(str::to_owned)
    }

    fn mark_text(&self) -> Option<String> {
        self.mark.as_ref().map(FileMark::as_str).map(str::to_owned)
    }
}
