//! Opens the log device of a unit, and finds out whether the unit may be served.

use std::io;
use std::sync::Arc;

use config::{LogDevice, StoreSpec, SyncBias};
use store::{
    Bias, Held, LogHead, LogOptions, Logged, Misfit, NotLogged, Noted, OpenFailure, OpenOptions,
    SharedStore, Use,
};

use super::attempts::retry_while_in_use;
use super::held::{Acceptance, Cause, Withheld};
use super::open::{Opener, is_in_use, options as options_of};
use super::opened::{LogUse, OpenStore};
use crate::StartError;
use crate::error::MediumError;
use crate::medium::{Medium, log_name_of};
use crate::state::{LogNote, LogNotes, UnitIdentity};

/// Puts the log before the open store of a unit. Where the log is not the one that the unit was served with last, the
/// unit is held until an administrator decides. Where a look has `found` the device, no other one is opened.
///
/// # Errors
///
/// The log device cannot be opened, or has no room for a log.
pub(super) fn attach(
    unit: &config::Unit,
    identity: &UnitIdentity,
    opened: OpenStore,
    (opener, found): (&Opener, Option<&dyn SharedStore>),
) -> Result<OpenStore, StartError> {
    let note = match note_of(unit, identity)? {
        Ok(note) => note,
        Err(error) => {
            let why =
                format!("whether its log may have what its store has not is not known: {error}");
            return Ok(held(unit, opened, &why));
        }
    };
    let serving = note.as_ref().filter(|note| note.known.how == Use::Serving);
    let medium = medium_of(&unit.store);
    if let Some(note) = serving.filter(|note| note.store != medium) {
        let why = format!(
            "its log may have what its store {} has not, and now its store is {medium}; give it that store back",
            note.store
        );
        return Ok(held(unit, opened, &why));
    }
    let Some(log) = &unit.log else {
        return Ok(match serving {
            Some(_) => {
                let why = "its log may have what its store has not, and the configuration does not name it; write \
                           log at the [[lun]] again";
                held(unit, opened, why)
            }
            None => opened,
        });
    };
    opener.check_file(&log.store, &log.place)?;
    let path = log.store.at.node().map(|(path, _)| path.to_owned());
    let new = path.filter(|path| !path.exists());
    // What the unit was served with is read as it is: nothing is made, and nothing becomes larger.
    let is_known = is_recorded(log, identity, note.as_ref());
    let device = match open_device(log, !is_known, (opener, found)) {
        Ok(device) => device,
        // A device that is not there, or a file that was there.
        Err(error) if is_known && is_missing(&error.reason) => {
            let at = &log.store.at;
            let why = format!("its log {at} is lost; put it back, or mount its file system");
            return Ok(held(unit, opened, &why));
        }
        Err(source) => {
            let place = log.place.clone();
            return Err(StartError::Store { place, source });
        }
    };
    if opener.acceptance != Acceptance::AnythingForLog
        && let Some(why) = store_of_another_log(&*device, identity, note.as_ref(), &opened)
    {
        let why = format!(
            "its log {} has changes, and its store may not be the one: {why}",
            log.store.at
        );
        return Ok(undecided(unit, opened, &why));
    }
    let is_serving = serving.is_some();
    let options = options(unit, log, identity, note, &opened)?;
    let logged = Logged::open(Arc::clone(&opened.store), device, &options);
    let opened = behind(unit, log, opened, logged, is_serving)?;
    if let (LogUse::InUse(logged), Some(path)) = (&opened.log, new) {
        opener.note_log(&path, logged);
    }
    Ok(opened)
}

/// How the unit stands to its log; or that this is damaged, and somebody has to decide.
///
/// # Errors
///
/// It cannot be read, which may pass.
fn note_of(
    unit: &config::Unit,
    identity: &UnitIdentity,
) -> Result<io::Result<Option<LogNote>>, StartError> {
    match identity.state.log_note() {
        Err(source) if source.kind() != io::ErrorKind::InvalidData => {
            let place = unit.place.clone();
            Err(MediumError::LogUnread { place, source }.into())
        }
        noted => Ok(noted),
    }
}

/// Why changes of the log may not be those of the open store, where the log has some and nobody has decided about them.
/// What its head records of the store counts; a log of an earlier release records nothing there.
fn store_of_another_log(
    device: &dyn SharedStore,
    identity: &UnitIdentity,
    note: Option<&LogNote>,
    opened: &OpenStore,
) -> Option<String> {
    // Whatever else is there, or cannot be read, is found when the log is opened.
    let head = store::read_log_head(device).ok().flatten()?;
    let is_given_up =
        |note: &LogNote| note.known.how == Use::Discarded && note.known.log == binding_of(&head);
    if head.unit != name_of(identity) || !head.has_records || note.is_some_and(is_given_up) {
        return None;
    }
    let found = opened.media.first()?.as_ref()?;
    let recorded = std::str::from_utf8(&head.medium).ok();
    match recorded.and_then(Medium::of_text)?.first() {
        Some(recorded) => recorded.check_strictly(found).err(),
        None => opened
            .has_other_file
            .then(|| "it is another file than the one that was served last".to_owned()),
    }
}

/// Whether the unit was served with the log that is at this place, and nobody has decided to do without it. Where it is
/// missing, its file system may not be mounted.
fn is_recorded(log: &LogDevice, identity: &UnitIdentity, note: Option<&LogNote>) -> bool {
    let how = note.map(|note| note.known.how);
    let was_at_its_place = || {
        let name = log_name_of(&log.store);
        let media = identity.state.media().ok().flatten().unwrap_or_default();
        let is_it = |medium: &Medium| Some(&medium.store) == name.as_ref();
        media.iter().any(|one| is_it(one) && !one.may_be_made())
    };
    match how {
        Some(Use::Serving) => true,
        Some(Use::Discarded) => false,
        Some(Use::Left | Use::Closed) | None => was_at_its_place(),
    }
}

/// What the head of the log records of the store; nothing, where there is no room for it.
fn record_of(opened: &OpenStore) -> Vec<u8> {
    let medium = opened.media.first().and_then(Option::as_ref);
    let text = medium.map(|medium| medium.without_name().to_text());
    let text = text.filter(|text| text.len() <= store::MEDIUM_BYTES_MAX);
    text.unwrap_or_default().into_bytes()
}

/// The store behind its log, or why the unit is held.
fn behind(
    unit: &config::Unit,
    log: &LogDevice,
    opened: OpenStore,
    logged: Result<Logged, NotLogged>,
    is_serving: bool,
) -> Result<OpenStore, StartError> {
    match logged {
        Ok(logged) => {
            let (count, lun) = (logged.replayed(), unit.to_string());
            if count > 0 {
                tracing::warn!(
                    lun,
                    count,
                    "changes that only the log had were written to the store"
                );
            }
            let medium = Medium::of_log(&log.store, &*logged.device());
            let medium = medium.map_err(|source| MediumError::Unseen {
                place: log.place.clone(),
                source,
            })?;
            Ok(opened.with_log(Arc::new(logged), medium))
        }
        Err(NotLogged::Misfit(Misfit::Store(error))) => Ok(unsynced(unit, opened, &error)),
        Err(NotLogged::Misfit(misfit)) => {
            let why = format!("its log {} is not usable: {misfit}", log.store.at);
            Ok(match misfit {
                Misfit::OtherUnit { .. } => {
                    let remedy = "Tarn leaves it as it is; write the log of this lun at log, or a file that is yet to \
                                  be made: remove the lun in one change, and add it in the next";
                    not_served(unit, opened, format!("{why}; {remedy}"))
                }
                Misfit::NotEmpty => {
                    let remedy =
                        "clear it if nobody needs what it holds, or write another one at log";
                    not_served(unit, opened, format!("{why}; {remedy}"))
                }
                Misfit::OtherLog | Misfit::Newer { .. } => undecided(unit, opened, &why),
                Misfit::Missing(_)
                | Misfit::Damaged(_)
                | Misfit::OtherGeneration { .. }
                | Misfit::Cut { .. }
                | Misfit::StoreEnds { .. }
                | Misfit::NotReplayed { .. }
                | Misfit::Io(_)
                | Misfit::Store(_) => held(unit, opened, &why),
            })
        }
        Err(error @ NotLogged::Small { .. }) if is_serving => {
            let why = format!("its log {} was cut: {error}", log.store.at);
            Ok(held(unit, opened, &why))
        }
        Err(source @ NotLogged::Small { .. }) => {
            let place = log.place.clone();
            Err(StartError::Log { place, source })
        }
    }
}

/// What the log is known by, and where that is kept.
fn options(
    unit: &config::Unit,
    log: &LogDevice,
    identity: &UnitIdentity,
    note: Option<LogNote>,
    opened: &OpenStore,
) -> Result<LogOptions, StartError> {
    let mut new_id = [0; 16];
    getrandom::fill(&mut new_id).map_err(|source| StartError::Random { source })?;
    let noted: Arc<dyn Noted> = Arc::new(LogNotes {
        state: Arc::clone(&identity.state),
        store: medium_of(&unit.store),
    });
    Ok(LogOptions {
        unit: name_of(identity),
        known: note.map(|note| note.known),
        new_id,
        bias: match log.bias {
            SyncBias::Latency => Bias::Latency,
            SyncBias::Throughput => Bias::Throughput,
        },
        medium: record_of(opened),
        noted,
    })
}

/// What the log has as the name of the unit.
pub(super) fn name_of(identity: &UnitIdentity) -> store::UnitName {
    let mut name = [0; 16];
    for (place, byte) in name.iter_mut().zip(identity.naa.as_bytes()) {
        *place = *byte;
    }
    name
}

fn held(unit: &config::Unit, opened: OpenStore, why: &str) -> OpenStore {
    let lun = unit.to_string();
    let why = format!("{why}; or do without what the log has: tarn lun log discard {lun}");
    withheld(
        unit,
        opened,
        Withheld {
            why,
            cause: Cause::Log {
                may_discard: true,
                may_replay: false,
            },
        },
    )
}

/// A log of the unit that has changes which the state directory does not know of.
fn undecided(unit: &config::Unit, opened: OpenStore, why: &str) -> OpenStore {
    let lun = unit.to_string();
    let why = format!(
        "{why}; if the state directory was put back from a backup, and this is the log that the unit had last, have \
         its changes written to the store: tarn lun log replay {lun}; if the log is an old one, do without them: \
         tarn lun log discard {lun}"
    );
    withheld(
        unit,
        opened,
        Withheld {
            why,
            cause: Cause::Log {
                may_discard: true,
                may_replay: true,
            },
        },
    )
}

/// The store is at fault. No log is to blame, and to discard it would not help.
fn unsynced(unit: &config::Unit, opened: OpenStore, error: &io::Error) -> OpenStore {
    let at = medium_of(&unit.store);
    let why = format!(
        "its store {at} cannot be synced, and writes of before may not be durable: {error}; look at the store, then \
         start Tarn again"
    );
    not_served(unit, opened, why)
}

/// To discard the log would not help.
fn not_served(unit: &config::Unit, opened: OpenStore, why: String) -> OpenStore {
    withheld(
        unit,
        opened,
        Withheld {
            why,
            cause: Cause::Log {
                may_discard: false,
                may_replay: false,
            },
        },
    )
}

fn withheld(unit: &config::Unit, opened: OpenStore, reason: Withheld) -> OpenStore {
    let (lun, why) = (unit.to_string(), &reason.why);
    tracing::error!(lun, why, "a lun is not ready");
    let store = Held::new(opened.store.capabilities());
    opened.held(Arc::new(store), reason)
}

/// What the note of the log has as the name of the store.
pub(super) fn medium_of(store: &StoreSpec) -> String {
    store
        .at
        .medium()
        .map(|medium| medium.to_string())
        .unwrap_or_default()
}

fn is_missing(failure: &OpenFailure) -> bool {
    matches!(
        failure,
        OpenFailure::Missing | OpenFailure::MissingAndNoSize
    )
}

/// Finds out whether the log device of a unit can be opened, and makes nothing.
///
/// # Errors
///
/// It cannot. One that is missing and was there before keeps the unit from being served, not the change.
pub(super) fn look_at_device(
    log: &LogDevice,
    opener: &Opener,
) -> Result<Arc<dyn SharedStore>, StartError> {
    opener.check_file(&log.store, &log.place)?;
    let options = device_options(log);
    let place = || log.place.clone();
    let found = retry_while_in_use(|| options.probe(), is_in_use);
    let device = found.map_err(|source| StartError::Store {
        place: place(),
        source,
    })?;
    let bytes = device.capabilities().size_bytes;
    if bytes < store::LOG_BYTES_MIN {
        let (place, source) = (place(), NotLogged::Small { bytes });
        return Err(StartError::Log { place, source });
    }
    Ok(device)
}

/// The same for a log that is not there yet. Of others nothing is said: they may be in use rightly.
///
/// # Errors
///
/// As [`look_at_device`].
pub(crate) fn look_at_new_log(unit: &config::Unit, opener: &Opener) -> Result<(), StartError> {
    let log = unit.log.as_ref();
    let is_new = |log: &&LogDevice| log.store.at.node().is_some_and(|(path, _)| !path.exists());
    match log.filter(is_new) {
        Some(log) => look_at_device(log, opener).map(drop),
        None => Ok(()),
    }
}

fn open_device(
    log: &LogDevice,
    may_change: bool,
    (opener, found): (&Opener, Option<&dyn SharedStore>),
) -> Result<Arc<dyn SharedStore>, store::OpenError> {
    let mut options = device_options(log);
    opener.note_made(&mut options);
    options.seen = found.map(store::seen);
    options.size_bytes = options.size_bytes.filter(|_| may_change);
    retry_while_in_use(|| options.open(), is_in_use)
}

pub(super) const fn binding_of(head: &LogHead) -> store::Binding {
    store::Binding {
        id: head.id,
        generation: head.generation,
    }
}

pub(super) fn device_options(log: &LogDevice) -> OpenOptions {
    let mut options = options_of(&log.store);
    options.block_bytes = None;
    // It is written all over, and has no room to spare.
    options.thin = false;
    options.force_raw = true;
    options
}
