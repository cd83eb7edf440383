//! The daemon: what it has, and the locks around that. What it does with it is in the modules above.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use api::event::Severity;
use api::plan::Document;
use api::problem::{Problem, ProblemKind};
use config::{Model, Unit};
use confine::inherited::Inherited;
use plane::{Handle, NoAnswer, SessionReport};

use super::asked::Flags;
use super::attempts::{Attempts, pause};
use super::doctor::Doctor;
use super::events::Events;
use super::figures::PastFigures;
use super::history::{History, Past};
use super::losses::Readings;
use super::paced::Paced;
use super::quotas::{Accounts, Summons};
use super::running::{Running, RunningUnit};
use super::secrets::SecretFiles;
use super::settling::{SETTLING_PATIENCE, Settlings};
use crate::StartError;
use crate::administration::AdminListening;
use crate::confinement::Reach;
use crate::logging::LogSwitch;
use crate::save;
use crate::state::{State, Trouble};

/// Between two times that the cores are asked for their sessions, however many want to know.
const SESSIONS_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 20 });

/// How long a change waits for the one before it: longer than that takes when stores hang.
const WRITER_PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks whether it is over.
const WRITER_PAUSE: Duration = Duration::from_millis(10);

/// Where the history of stores of the command line is kept.
const NO_FILE: &str = "command-line";

/// What is in force: the document, what it became, and what was before. Replaced as a whole, so
/// that a read never waits for a change.
pub(super) struct InForce {
    pub(super) running: Running,
    pub(super) document: Document,
    pub(super) past: Past,
}

impl InForce {
    /// The unit of this name.
    pub(super) fn lun(&self, lun: &str) -> Result<(&Unit, &RunningUnit), Problem> {
        let running = &self.running;
        let mut units = running.model.units().iter().zip(&running.units);
        let found = units.find(|(unit, _)| unit.to_string() == lun);
        found.ok_or_else(|| {
            let detail = format!("there is no lun {lun:?}; check the name");
            Problem::new(ProblemKind::NotFound, detail)
        })
    }
}

/// The daemon.
pub(crate) struct Daemon {
    pub(super) plane: Arc<Handle>,
    pub(super) in_force: RwLock<Arc<InForce>>,
    /// Held for as long as a change takes: there is one writer.
    pub(super) writer: Mutex<History>,
    /// What changes have left to do.
    pub(super) settlings: Mutex<Settlings>,
    /// Files and devices that are being looked at for a change.
    pub(super) attempts: Attempts,
    /// The same, of what nobody waits for: a change does not find a path busy because of it.
    pub(super) polls: Attempts,
    pub(super) secret_files: SecretFiles,
    /// Where the history is kept, and the numbers of events.
    pub(super) history_directory: PathBuf,
    pub(super) state: State,
    /// Where the document lives; `None` for stores of the command line, which cannot be changed.
    pub(super) file: Option<PathBuf>,
    pub(super) uid: u32,
    pub(super) flags: Flags,
    pub(super) reach: Reach,
    pub(super) inherited: Inherited,
    pub(super) cores: usize,
    pub(super) started: SystemTime,
    pub(super) events: Arc<Events>,
    /// Each core makes its part of the answer, and serves no disk meanwhile.
    pub(super) sessions: Paced<Result<Arc<[SessionReport]>, NoAnswer>>,
    pub(super) doctor: Doctor,
    pub(super) accounts: Accounts,
    /// Of the thread that keeps them.
    pub(super) summons: Arc<Summons>,
    /// Scheduled snapshots that are not taken, by unit: why.
    missed: Mutex<BTreeMap<String, String>>,
    /// How busy initiators have been.
    pub(super) readings: Readings,
    /// The settings of the process that it was started with.
    pub(super) begun: Arc<Model>,
    pub(super) log: LogSwitch,
    /// Where the administration listens; there is none before it was started.
    pub(super) administration: OnceLock<AdminListening>,
    pub(super) past_figures: PastFigures,
}

/// What a daemon is made from.
pub(crate) struct Parts {
    pub(crate) plane: Arc<Handle>,
    pub(crate) running: Running,
    pub(crate) state: State,
    pub(crate) file: Option<PathBuf>,
    /// The text the file had when it was read.
    pub(crate) text: String,
    pub(crate) history: History,
    pub(crate) uid: u32,
    pub(crate) flags: Flags,
    pub(crate) reach: Reach,
    pub(crate) inherited: Inherited,
    pub(crate) cores: usize,
    pub(crate) events: Arc<Events>,
    pub(crate) doctor: Doctor,
    pub(crate) accounts: Accounts,
    /// Changes how much is logged.
    pub(crate) log: LogSwitch,
}

impl Daemon {
    /// Opens the history of a configuration that is about to be started; `file` is where its
    /// `text` is from.
    ///
    /// # Errors
    ///
    /// It cannot be read or written.
    pub(crate) fn open_history(
        state: &State,
        file: Option<&Path>,
        text: &str,
        model: &Model,
    ) -> Result<History, StartError> {
        let file = file.unwrap_or_else(|| Path::new(NO_FILE));
        let begun = History::begin_anyhow(state.directory(), file, text, history_max(model));
        let path = state.directory().join("history");
        let (history, unkept) = begun.map_err(|source| StartError::StateUnusable {
            path: path.clone(),
            source,
        })?;
        if let Some(source) = unkept {
            state.troubles().note(Trouble {
                severity: Severity::Error,
                code: "state-unwritable",
                subject: "history".to_owned(),
                is_of_unit: false,
                message: crate::error::chain(&StartError::StateUnusable { path, source }),
                remedy: "make room in the state directory: the configuration cannot be changed until then, and the \
                    revision that runs is not kept".to_owned(),
            });
        }
        Ok(history)
    }

    /// Takes over what was started.
    ///
    /// # Errors
    ///
    /// The directory it works in is gone.
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let file = parts.file.as_deref().unwrap_or_else(|| Path::new(NO_FILE));
        let secret_files = SecretFiles::of(parts.state.directory(), file)?;
        secret_files.collect(file);
        let begun = Arc::clone(&parts.running.model);
        let text = match parts.file {
            Some(_) => parts.text,
            None => text_of_arguments(&parts.running),
        };
        let in_force = InForce {
            running: parts.running,
            document: Document {
                revision: parts.history.running(),
                text,
            },
            past: parts.history.past(),
        };
        Ok(Self {
            plane: parts.plane,
            in_force: RwLock::new(Arc::new(in_force)),
            past_figures: PastFigures::begin(parts.history.directory()),
            history_directory: parts.history.directory().to_owned(),
            writer: Mutex::new(parts.history),
            settlings: Mutex::default(),
            attempts: Attempts::default(),
            polls: Attempts::default(),
            secret_files,
            state: parts.state,
            file: parts.file,
            uid: parts.uid,
            flags: parts.flags,
            reach: parts.reach,
            inherited: parts.inherited,
            cores: parts.cores,
            started: SystemTime::now(),
            events: parts.events,
            sessions: Paced::new(SESSIONS_PAUSE),
            doctor: parts.doctor,
            accounts: parts.accounts,
            summons: Arc::default(),
            missed: Mutex::default(),
            readings: Readings::default(),
            begun,
            log: parts.log,
            administration: OnceLock::new(),
        })
    }

    /// From now on changes decide where the administration listens.
    pub(crate) fn set_administration(&self, listening: AdminListening) {
        // It is started once.
        drop(self.administration.set(listening));
    }

    /// A thread that panicked while it held this lock did not leave half a value behind.
    pub(super) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What to look at where data of the units with these names may be lost.
    pub(crate) fn where_to_look(&self, names: &[Arc<str>]) -> String {
        let in_force = self.in_force();
        let units = in_force.running.model.units().iter();
        let named = |unit: &&Unit| names.iter().any(|name| **name == *unit.to_string());
        super::keepers::where_to_look(units.filter(named))
    }

    /// The right to make a change, when the one under way is over. Nothing waits for it for longer
    /// than its caller does.
    ///
    /// A writer that panicked has either put its change in force or not.
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, History>, Problem> {
        let until = Instant::now() + WRITER_PATIENCE;
        loop {
            match self.hold_changes() {
                Some(history) => return Ok(history),
                None if Instant::now() < until => pause(WRITER_PAUSE),
                None => {
                    let seconds = WRITER_PATIENCE.as_secs();
                    let detail = format!(
                        "another change has been under way for {seconds} s; this one was not made, try again"
                    );
                    return Err(Problem::new(ProblemKind::Conflict, detail));
                }
            }
        }
    }

    /// Keeps changes from being made, unless one is under way.
    pub(super) fn hold_changes(&self) -> Option<MutexGuard<'_, History>> {
        match self.writer.try_lock() {
            Ok(history) => Some(history),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A thread that panicked while it held this lock did not leave half a value behind.
    pub(super) fn settlings(&self) -> MutexGuard<'_, Settlings> {
        self.settlings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that panicked while it held this lock has left older reasons.
    pub(super) fn missed(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the numbers of events for the next start.
    pub(crate) fn end_events(&self) {
        self.events.end(&self.history_directory);
    }

    /// Has the ledger know of units for which something was saved since.
    pub(crate) fn note_saved(&self) {
        let now = self.in_force();
        let identities = now.running.units.iter().map(|unit| &unit.identity);
        self.state.note_saved(identities);
    }

    /// Does what changes have left to do, as far as it can be done now. To be called now and then.
    pub(crate) fn settle_rest(&self) {
        self.note_saved();
        self.readings.read(&self.plane.counts());
        if self.settlings().is_empty() {
            return;
        }
        // A change that is being made judges all sessions itself.
        if let Ok(_writer) = self.writer.try_lock() {
            let policy = self.in_force().running.policy();
            self.settlings().judge(&policy, &self.plane);
        }
        self.settlings().advance(&self.plane, SETTLING_PATIENCE);
    }

    pub(super) fn sessions_now(&self) -> Result<Arc<[SessionReport]>, Problem> {
        let ask = || self.plane.sessions().map(Arc::from);
        self.sessions.ask(ask).map_err(no_answer)
    }

    pub(super) fn file(&self) -> Result<&Path, Problem> {
        self.file.as_deref().ok_or_else(|| {
            Problem::new(
                ProblemKind::Refused,
                "this Tarn was started with stores on its command line, so there is no configuration file to change; \
                 start it with the same arguments and --save FILE, which makes one",
            )
        })
    }

    /// What is served, in one line for the service manager.
    pub(crate) fn in_words(&self) -> String {
        let in_force = self.in_force();
        let model = &in_force.running.model;
        let (targets, luns) = (model.targets().len(), model.units().len());
        let revision = in_force.document.revision;
        format!("revision {revision}: targets {targets}, luns {luns}")
    }
}

/// The file that would say what the command line has said.
fn text_of_arguments(running: &Running) -> String {
    let identity = |position: usize| {
        let identity = &running.units.get(position)?.identity;
        let both = (identity.serial.to_string(), identity.naa.to_string());
        identity.state.is_kept().then_some(both)
    };
    save::text_of(&running.model, identity).unwrap_or_default()
}

pub(super) fn history_max(model: &Model) -> usize {
    usize::from(model.admin().history)
}

pub(super) fn no_answer(error: NoAnswer) -> Problem {
    Problem::new(ProblemKind::Unavailable, error.to_string())
}
