//! The state directory: what must survive a restart.
//!
//! ```text
//! identities.toml[.last]     serial number and NAA designator of each unit, and the number of each
//!                            target port, made once
//! lock                       held while identities.toml is read, changed and written
//! history/NAME/NNNNNN.toml   the revisions of a configuration file
//! secrets/NAME/HEX.secret    secrets that its administration has set
//! hyperscsi.toml[.last]      the key and the number of the server of HyperSCSI, made once
//! units/NAA/lock             held as long as a process serves the unit
//! units/NAA/saved[.last]     registrations with APTPL and saved mode pages, in a form of the
//!                            device server's own, with a version that counts the saves
//! units/NAA/log              which log device the unit has, and whether that may have what the store has not
//! units/NAA/medium           what the medium of the unit was when it was served last (crate::medium)
//! ```
//!
//! Several processes may share a directory: `identities.toml` is read again under the lock before
//! each change, and a unit has one owner at a time. Every file is replaced as a whole, so that a
//! reader finds the old content or the new, also after a power cut. Each begins with its length
//! and its checksum, so that damage is known; the files named `.last` are copies of the last good
//! version. A unit whose identity is not known because of damage is withheld: no identity is made
//! for it, and it is not served. See `tarn state`.
//!
//! A medium that has a place for it keeps identity and state of its unit itself (`medium`).

mod hyperscsi;
mod identity;
mod log;
mod media;
mod medium;
mod ports;
mod prune;
mod renames;
mod repair;
mod troubles;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Model, Naa, Serial};
use plane::StateAuthority as _;

use crate::StartError;
use crate::locate::Location;
use crate::retry_while_in_use;
use durable::{Found as FoundFile, copy_of};
pub(crate) use hyperscsi::entropy;
use identity::{Ledger, MadeIdentity};
pub(crate) use log::{LogNote, LogNotes};
pub(crate) use medium::check_identities;
pub(crate) use ports::PortName;
pub use prune::Pruned;
pub(crate) use renames::{Rename, path_of};
pub(crate) use troubles::{Trouble, Troubles};
pub(crate) use unit::CONFLICT_REMEDY;
pub use unit::UnitState;

/// The state directory of this process.
#[derive(Clone, Debug)]
pub struct State {
    directory: PathBuf,
    /// What was found wrong with it.
    troubles: Troubles,
}

/// What a unit is known by, and where its state is kept.
#[derive(Clone, Debug)]
pub struct UnitIdentity {
    /// Serial number (VPD page 80h).
    pub serial: Serial,
    /// NAA designator (VPD page 83h).
    pub naa: Naa,
    /// That of its record in the ledger; another one where `naa` is configured.
    record: Naa,
    /// What is kept of the unit across restarts; shared with the thread that saves it.
    pub state: Arc<UnitState>,
    /// The real identity is not known, so the unit must not be shown to anybody.
    pub is_withheld: bool,
    /// The ledger had it when this process began: the unit has been served before.
    pub(crate) was_served: bool,
}

/// What a change of the configuration asks of the ledger.
pub(crate) struct LedgerChange<'a> {
    /// What runs.
    pub(crate) old: &'a Model,
    /// What is to run.
    pub(crate) new: &'a Model,
    /// Where the units of `new` are that are not served yet.
    pub(crate) locations: &'a [Option<Location>],
    /// The identities of the units of `old`.
    pub(crate) served: Vec<UnitIdentity>,
    /// The position in `old` of every unit of `new` that is served already.
    pub(crate) from: &'a [Option<usize>],
    /// Served units that get another id.
    pub(crate) renames: Vec<Rename>,
}

impl LedgerChange<'_> {
    fn served_as(&self, position: usize) -> Option<&UnitIdentity> {
        let from = self.from.get(position).copied().flatten()?;
        self.served.get(from)
    }
}

/// A ledger that was not written.
struct Unkept {
    error: StartError,
    /// Whether there was anything to write.
    is_needed: bool,
}

/// The identity of a unit, and whether its state is locked already.
enum Found {
    Served(UnitIdentity),
    Made(MadeIdentity),
    Withheld(MadeIdentity),
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
        make_private_directory(&directory).map_err(unusable)?;
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

    /// The identity of every unit, by the position of its index, with its state locked for this
    /// process. What was never seen before gets an identity now.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or another process serves one of the units. A ledger that is
    /// damaged or cannot be written is no error here, but noted: disks that it need not know are
    /// served.
    pub fn identities(
        &self,
        model: &Model,
        locations: &[Option<Location>],
    ) -> Result<Vec<UnitIdentity>, StartError> {
        let ((made, is_foreign), unkept) = self.try_ledger(|ledger| {
            ledger.settle(model);
            let is_used = ledger.has_ids();
            let units = model.units().iter().zip(locations);
            let made = units
                .map(|(unit, location)| ledger.identity(unit, location.as_ref(), random_bytes))
                .collect::<Result<Vec<_>, _>>()?;
            let mut with_id = made.iter().zip(model.units());
            let is_new = with_id.all(|(made, unit)| made.is_new && unit.id.is_some());
            let is_foreign = is_used && is_new && !made.is_empty();
            let used = made.iter().map(|made| made.naa.to_string());
            self.prune_excess(ledger, &used.collect());
            Ok((made, is_foreign))
        })?;
        if is_foreign {
            self.troubles.note(Trouble::foreign(&self.directory));
        }
        let Some(Unkept { error, .. }) = unkept else {
            return self.take(model, made.into_iter().map(Found::Made).collect());
        };
        self.troubles.note(Trouble::of_ledger(&error));
        let units = model.units().iter().zip(made);
        let found = units.map(|(unit, made)| {
            let is_named = unit.naa.is_some() && unit.serial.is_some();
            if !made.is_new || !made.is_kept || is_named {
                return Found::Made(made);
            }
            self.troubles.note(Trouble::withheld(unit, &error));
            Found::Withheld(made)
        });
        self.take(model, found.collect())
    }

    /// As [`State::identities`], for a change of what runs: everything that the change needs of
    /// the ledger is written before the configuration file may be replaced. A unit that is served
    /// keeps the identity it is served with, also under a new id.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or another process serves one of the new units. The ledger
    /// may have new records then, and [`State::settle`] takes the renames back.
    pub(crate) fn identities_of_change(
        &self,
        change: &LedgerChange<'_>,
    ) -> Result<Vec<UnitIdentity>, StartError> {
        let LedgerChange {
            old,
            new,
            locations,
            served,
            renames,
            from: _,
        } = change;
        let found = self.change_ledger(|ledger| {
            ledger.settle(old);
            for (unit, identity) in old.units().iter().zip(served) {
                ledger.remember(unit, identity);
            }
            ledger.begin_renames(renames);
            let units = new.units().iter().enumerate();
            let found = units.map(|(position, unit)| match change.served_as(position) {
                Some(identity) => Ok(Found::Served(identity.clone())),
                None => {
                    let location = locations.get(position).and_then(Option::as_ref);
                    let made = ledger.identity(unit, location, random_bytes)?;
                    Ok(Found::Made(made))
                }
            });
            let found = found.collect::<Result<Vec<_>, StartError>>()?;
            let used = found.iter().map(|found| match found {
                Found::Served(identity) => identity.naa.to_string(),
                Found::Made(made) | Found::Withheld(made) => made.naa.to_string(),
            });
            self.prune_excess(ledger, &used.collect());
            Ok(found)
        })?;
        self.take(new, found)
    }

    /// What would keep the new units of a change from having their identities, with their positions. Writes nothing.
    pub(crate) fn foresee_identities(&self, change: &LedgerChange<'_>) -> Vec<(usize, StartError)> {
        let Ok((mut ledger, _)) = self.read_ledger() else {
            // The change says what is wrong with it.
            return Vec::new();
        };
        ledger.settle(change.old);
        ledger.begin_renames(&change.renames);
        let units = || change.new.units().iter().enumerate();
        let kept = units().filter_map(|(position, _)| Some(change.served_as(position)?.naa));
        let mut seen: BTreeSet<Naa> = kept.collect();
        let mut wrong = Vec::new();
        for (position, unit) in
            units().filter(|(position, _)| change.served_as(*position).is_none())
        {
            let known = unit.id.as_ref().and_then(|id| ledger.find_by_id(id));
            let known = known.and_then(|record| Naa::parse(&record.naa).ok());
            let Some(naa) = unit.naa.or(known) else {
                continue;
            };
            if !seen.insert(naa) {
                let (place, unit) = (unit.place.clone(), unit.to_string());
                wrong.push((position, StartError::IdentityShared { place, unit }));
                continue;
            }
            let is_free = || match UnitState::is_locked(&self.unit_directory(naa)) {
                true => Err(self.busy(unit, naa)),
                false => Ok(()),
            };
            let busy = retry_while_in_use(is_free, |_| true).err();
            wrong.extend(busy.map(|error| (position, error)));
        }
        wrong
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
            numbers.map_err(|ports::Exhausted| StartError::PortsExhausted)
        })?;
        self.note_unkept(unkept);
        Ok(numbers)
    }

    fn note_unkept(&self, unkept: Option<Unkept>) {
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

    /// Locks the state of all units that are not served yet.
    fn take(&self, model: &Model, found: Vec<Found>) -> Result<Vec<UnitIdentity>, StartError> {
        let mut seen = BTreeSet::new();
        let mut identities = Vec::new();
        for (unit, found) in model.units().iter().zip(found) {
            let made = match found {
                Found::Made(made) => made,
                Found::Served(served) => {
                    seen.insert(served.naa);
                    identities.push(served);
                    continue;
                }
                Found::Withheld(MadeIdentity { serial, naa, .. }) => {
                    identities.push(UnitIdentity {
                        serial,
                        naa,
                        record: naa,
                        state: Arc::new(UnitState::volatile()),
                        is_withheld: true,
                        was_served: false,
                    });
                    continue;
                }
            };
            let (record, saved_in) = (made.naa, made.saved_in.clone());
            let naa = unit.naa.unwrap_or(made.naa);
            let serial = unit.serial.clone().unwrap_or(made.serial);
            if !seen.insert(naa) {
                return Err(StartError::IdentityShared {
                    place: unit.place.clone(),
                    unit: unit.to_string(),
                });
            }
            let state = if made.is_kept {
                let state = self.lock_unit(unit, naa)?;
                state.set_known(saved_in.as_deref() == Some(&naa.to_string()));
                let readable = state.load().and_then(|kept| {
                    let checked = kept.map_or(Ok(()), |kept| scsi::check_kept_state(&kept.state));
                    checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
                });
                if let Err(error) = readable {
                    self.troubles.note(Trouble::of_unit(unit, &error));
                }
                state
            } else {
                UnitState::volatile()
            };
            identities.push(UnitIdentity {
                serial,
                naa,
                record,
                state: Arc::new(state),
                is_withheld: false,
                was_served: !made.is_new,
            });
        }
        self.note_saved(&identities);
        Ok(identities)
    }

    /// Has the ledger know for which of these units something was saved, so that it is missed when it
    /// is gone. Where that cannot be written it is tried again the next time.
    pub(crate) fn note_saved<'a>(&self, identities: impl IntoIterator<Item = &'a UnitIdentity>) {
        let news = identities.into_iter().filter(|it| it.state.is_news());
        let news: Vec<&UnitIdentity> = news.collect();
        if news.is_empty() {
            return;
        }
        let noted = self.change_ledger(|ledger| {
            for identity in &news {
                if let Some(directory) = identity.state.name() {
                    ledger.note_saved(identity.record, directory);
                }
            }
            Ok(())
        });
        if noted.is_ok() {
            news.iter()
                .for_each(|identity| identity.state.set_known(true));
        }
    }

    /// Notes the files that were made since [`State::identities`], so that they are known again
    /// when they are moved. To be called when the stores are open.
    ///
    /// # Errors
    ///
    /// The directory cannot be used.
    pub fn note_files(
        &self,
        model: &Model,
        locations: &[Option<Location>],
    ) -> Result<(), StartError> {
        let ((), unkept) = self.try_ledger(|ledger| {
            for (unit, location) in model.units().iter().zip(locations) {
                ledger.identity(unit, location.as_ref(), random_bytes)?;
            }
            Ok(())
        })?;
        self.note_unkept(unkept);
        Ok(())
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
            numbers.map_err(|ports::Exhausted| StartError::PortsExhausted)
        })
    }

    fn lock_unit(&self, unit: &config::Unit, naa: Naa) -> Result<UnitState, StartError> {
        let directory = self.unit_directory(naa);
        let unusable = |source| StartError::StateUnusable {
            path: directory.clone(),
            source,
        };
        let lock = || {
            let state = UnitState::lock(&directory).map_err(unusable)?;
            state.ok_or_else(|| self.busy(unit, naa))
        };
        retry_while_in_use(lock, |error| matches!(error, StartError::UnitBusy { .. }))
    }

    fn unit_directory(&self, naa: Naa) -> PathBuf {
        self.directory.join("units").join(naa.to_string())
    }

    /// Another process has a unit.
    fn busy(&self, unit: &config::Unit, naa: Naa) -> StartError {
        StartError::UnitBusy {
            place: unit.place.clone(),
            unit: unit.to_string(),
            lock: self.unit_directory(naa).join(unit::LOCK),
        }
    }

    /// Reads the ledger, lets `change` work on it, and writes it if it is another one then; all
    /// under the lock, so that processes that share the directory do not undo each other's work.
    fn change_ledger<T>(
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
    fn try_ledger<T>(
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

    fn ledger_path(&self) -> PathBuf {
        self.directory.join("identities.toml")
    }

    /// The ledger; with what is wrong with it where it is damaged, and is the copy then, or empty.
    fn read_ledger(&self) -> Result<(Ledger, Option<StartError>), StartError> {
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
    fn was_used(&self) -> bool {
        let has_units = || Some(fs::read_dir(self.directory.join("units")).ok()?.count() > 0);
        copy_of(&self.ledger_path()).exists() || has_units().unwrap_or(false)
    }
}

pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn random_bytes() -> Result<[u8; 8], StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|source| StartError::Random { source })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
