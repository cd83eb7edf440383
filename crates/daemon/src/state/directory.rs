//! The directory, with the ledger of identities that is read, changed and written under its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::Model;
use durable::{Found as FoundFile, copy_of};

use super::ledger::Ledger;
use super::ports::{Exhausted, PortName};
use super::troubles::{Trouble, Troubles};
use crate::StartError;

/// The state directory of this process.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) directory: PathBuf,
    /// What was found wrong with it.
    pub(super) troubles: Troubles,
}

/// A ledger that was not written.
pub(super) struct Unkept {
    pub(super) error: StartError,
    /// Whether there was anything to write.
    pub(super) is_needed: bool,
}

impl State {
    /// Opens the directory and makes it, for the owner alone, if it is not there.
    ///
    /// # Errors
    ///
    /// It cannot be made or used, or others may write to it.
    pub fn open(directory: PathBuf) -> Result<Self, StartError> {
        let unusable = |source| StartError::StateUnusable {
            path: directory.clone(),
            source,
        };
        durable::make_private_directory(&directory).map_err(unusable)?;
        let mode = fs::metadata(&directory).map_err(unusable)?.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(StartError::StateExposed {
                path: directory,
                mode,
            });
        }
        Ok(Self {
            directory,
            troubles: Troubles::default(),
        })
    }

    /// What was found wrong with the directory since it was opened.
    pub(crate) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// As [`State::port_numbers`], for a start: where the numbers cannot be kept, that is noted.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or there are more ports than numbers.
    pub(crate) fn port_numbers_of_start(
        &self,
        ports: &BTreeSet<PortName>,
    ) -> Result<BTreeMap<PortName, u16>, StartError> {
        let (numbers, unkept) = self.try_ledger(|ledger| {
            let numbers = ledger.port.number(ports);
            numbers.map_err(|Exhausted| StartError::PortsExhausted)
        })?;
        self.note_unkept(unkept);
        Ok(numbers)
    }

    /// The relative target port identifier of each port, the same as at the last start.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or there are more ports than numbers.
    pub(crate) fn port_numbers(
        &self,
        ports: &BTreeSet<PortName>,
    ) -> Result<BTreeMap<PortName, u16>, StartError> {
        self.change_ledger(|ledger| {
            let numbers = ledger.port.number(ports);
            numbers.map_err(|Exhausted| StartError::PortsExhausted)
        })
    }

    pub(super) fn note_unkept(&self, unkept: Option<Unkept>) {
        if let Some(Unkept { error, .. }) = unkept {
            self.troubles.note(Trouble::of_ledger(&error));
        }
    }

    /// Ends renames that were begun, as this configuration decides: the one that is in force now.
    ///
    /// # Errors
    ///
    /// The directory cannot be used. The next change or start does it then.
    pub(crate) fn settle(&self, model: &Model) -> Result<(), StartError> {
        self.change_ledger(|ledger| {
            ledger.settle(model);
            Ok(())
        })
    }

    /// Reads the ledger, lets `change` work on it, and writes it if it is another one then; all
    /// under the lock, so that processes that share the directory do not undo each other's work.
    pub(super) fn change_ledger<T>(
        &self,
        change: impl FnOnce(&mut Ledger) -> Result<T, StartError>,
    ) -> Result<T, StartError> {
        match self.try_ledger(change)? {
            (_, Some(unkept)) if unkept.is_needed => Err(unkept.error),
            (outcome, _) => Ok(outcome),
        }
    }

    /// As [`State::change_ledger`], for one who can do with an outcome that is not kept: because
    /// the file cannot be written, or because it is damaged. A damaged one is left alone, and the
    /// change works on its copy, or on an empty ledger.
    pub(super) fn try_ledger<T>(
        &self,
        change: impl FnOnce(&mut Ledger) -> Result<T, StartError>,
    ) -> Result<(T, Option<Unkept>), StartError> {
        let lock_path = self.directory.join("lock");
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| StartError::StateUnusable { path, source }
        };
        let lock = durable::open_private(&lock_path).map_err(unusable(&lock_path))?;
        // It is only held for some milliseconds, so waiting is right. Dropping the file
        // lets it go.
        File::lock(&lock).map_err(unusable(&lock_path))?;

        let path = self.ledger_path();
        let (mut ledger, damage) = self.read_ledger()?;
        let text = |ledger: &Ledger| ledger.to_text().map_err(unusable(&path));
        let before = ledger.clone();
        let outcome = change(&mut ledger)?;
        let after = text(&ledger)?;
        let is_other = after != text(&before)? && !ledger.is_empty();
        let is_needed = is_other && text(&ledger.without_days())? != text(&before.without_days())?;
        let error = match damage {
            Some(damage) => Some(damage),
            None if is_other => {
                let written = durable::write_with_copy(&path, durable::seal(&after).as_bytes());
                // Nothing is lost with the days alone.
                written.map_err(unusable(&path)).err().filter(|_| is_needed)
            }
            None => None,
        };
        Ok((outcome, error.map(|error| Unkept { error, is_needed })))
    }

    pub(super) fn ledger_path(&self) -> PathBuf {
        self.directory.join("identities.toml")
    }

    /// The ledger; with what is wrong with it where it is damaged, and is the copy then, or empty.
    pub(super) fn read_ledger(&self) -> Result<(Ledger, Option<StartError>), StartError> {
        let path = self.ledger_path();
        let read = |path: &Path| {
            let found = durable::read(path);
            found.map_err(|source| StartError::StateUnusable {
                path: path.to_owned(),
                source,
            })
        };
        let problem = match read(&path)? {
            FoundFile::Whole(text) => match Ledger::parse(&text, &path) {
                Err(StartError::StateForeign { problem, .. }) => problem,
                parsed => return Ok((parsed?, None)),
            },
            FoundFile::Absent if !self.was_used() => return Ok((Ledger::default(), None)),
            FoundFile::Absent => "it is missing".to_owned(),
            FoundFile::Damaged(damage) => damage.to_string(),
        };
        let copy = copy_of(&path);
        let copied = match read(&copy)? {
            FoundFile::Whole(text) => Ledger::parse(&text, &copy).ok(),
            FoundFile::Absent | FoundFile::Damaged(_) => None,
        };
        let damage = StartError::StateDamaged {
            path,
            problem,
            has_copy: copied.is_some(),
        };
        Ok((copied.unwrap_or_default(), Some(damage)))
    }

    /// Whether units have been served with this directory.
    pub(super) fn was_used(&self) -> bool {
        let has_units = || Some(fs::read_dir(self.directory.join("units")).ok()?.count() > 0);
        copy_of(&self.ledger_path()).exists() || has_units().unwrap_or(false)
    }

    /// The names of ports by their numbers.
    pub(super) fn port_names(
        &self,
        numbers: &BTreeSet<u16>,
    ) -> Result<BTreeMap<u16, PortName>, StartError> {
        if numbers.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (ledger, _) = self.read_ledger()?;
        Ok(ledger.port.names(numbers))
    }
}
