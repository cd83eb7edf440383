//! The identities of units: what each is known by, with its state locked for this process.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use config::{Model, Naa, Serial, Unit};
use plane::StateAuthority as _;
use store::{Note, SharedStore};

use super::directory::{State, Unkept};
use super::ledger::MadeIdentity;
use super::medium::OnMedium;
use super::renames::Rename;
use super::troubles::Trouble;
use super::unit::{self, UnitState};
use crate::StartError;
use crate::attempts::retry_while_in_use;
use crate::locate::Location;

/// What a unit is known by, and where its state is kept.
#[derive(Clone, Debug)]
pub struct UnitIdentity {
    /// Serial number (VPD page 80h).
    pub serial: Serial,
    /// NAA designator (VPD page 83h).
    pub naa: Naa,
    /// That of its record in the ledger; another one where `naa` is configured.
    pub(super) record: Naa,
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

/// The identity of a unit, and whether its state is locked already.
enum Found {
    Served(UnitIdentity),
    Made(MadeIdentity),
    Withheld(MadeIdentity),
}

impl State {
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
                if identity.state.is_kept() {
                    ledger.remember(unit, &identity.serial, identity.naa);
                }
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
                was_served: made.was_served,
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

    /// Has the ledger know that these units are served from now on: what was at the places of their stores is missed
    /// when it is gone. To be called before anybody writes to them.
    pub(crate) fn note_served<'a>(&self, identities: impl IntoIterator<Item = &'a UnitIdentity>) {
        let is_new = |it: &&UnitIdentity| !it.was_served && !it.is_withheld;
        let new = identities.into_iter().filter(is_new);
        let new: Vec<Naa> = new.map(|identity| identity.record).collect();
        if new.is_empty() {
            return;
        }
        let noted = self.change_ledger(|ledger| {
            new.iter().for_each(|naa| ledger.note_served(*naa));
            Ok(())
        });
        if let Err(error) = noted {
            let error = crate::error::chain(&error);
            tracing::warn!(
                error,
                "the ledger of identities has units that are served as new ones"
            );
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

    fn lock_unit(&self, unit: &Unit, naa: Naa) -> Result<UnitState, StartError> {
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
    fn busy(&self, unit: &Unit, naa: Naa) -> StartError {
        StartError::UnitBusy {
            place: unit.place.clone(),
            unit: unit.to_string(),
            lock: self.unit_directory(naa).join(unit::LOCK),
        }
    }

    /// What a unit is known by when its store is open: a medium that keeps that itself decides, or is given it.
    pub(crate) fn settle_identity(
        &self,
        unit: &Unit,
        identity: UnitIdentity,
        store: &dyn SharedStore,
    ) -> UnitIdentity {
        let notes = store.notes().filter(|_| !identity.is_withheld);
        let Some(notes) = notes else {
            return identity;
        };
        let known = notes.read(Note::Identity).ok().flatten();
        let identity = match known.as_deref().and_then(parse_identity) {
            Some((naa, serial)) => UnitIdentity {
                naa: unit.naa.unwrap_or(naa),
                serial: unit.serial.clone().unwrap_or(serial),
                ..identity
            },
            None => {
                let text = format!("{} {}", identity.naa, identity.serial);
                if let Err(error) = notes.write(Note::Identity, &text) {
                    tracing::warn!(%unit, %error, "serial number and NAA are not kept on the medium");
                }
                identity
            }
        };
        identity.state.keep_on(OnMedium::new(notes, self.clone()));
        identity
    }
}

/// Refuses units of one identity: that of a medium shows only when it is open.
pub(crate) fn check_identities<'a>(
    model: &Model,
    identities: impl Iterator<Item = &'a UnitIdentity>,
) -> Result<(), StartError> {
    let mut seen = BTreeSet::new();
    for (unit, identity) in model.units().iter().zip(identities) {
        if !seen.insert(identity.naa) {
            return Err(StartError::IdentityShared {
                place: unit.place.clone(),
                unit: unit.to_string(),
            });
        }
    }
    Ok(())
}

/// NAA and serial number, with a space between.
fn parse_identity(text: &str) -> Option<(Naa, Serial)> {
    let (naa, serial) = text.split_once(' ')?;
    Some((Naa::parse(naa).ok()?, Serial::parse(serial).ok()?))
}

fn random_bytes() -> Result<[u8; 8], StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|source| StartError::Random { source })?;
    Ok(bytes)
}
