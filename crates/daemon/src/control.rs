//! The daemon as its administration asks for it.

mod back;
mod check;
mod findings;
mod planning;
mod reopen;

pub(super) use check::no_answer;
pub(super) use reopen::Acceptance;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use api::control::Control;
use api::edit::SecretOf;
use api::event::{Event, Finding, Severity};
use api::figures::{Figures, Range};
use api::plan::{Applied, Change, Document, Inspection, Origin, Plan, Revision};
use api::problem::{Problem, ProblemKind};
use api::request::{EventQuestion, Rollback, TakeSnapshots, Tracing};
use api::stats::{Space, Stats};
use api::view;
use config::Model;
use confine::inherited::Inherited;
use plane::{Handle, MediumOrder, NoAnswer, SessionReport};

use self::check::{check_revision, check_role, failed, unprepared};
use self::planning::{Planned, stand_in_the_way};
use self::reopen::settle;
use super::apply::{self, Prepared};
use super::attempts::{Attempts, Patience, pause};
use super::calendar::milliseconds;
use super::doctor::{Doctor, Inquirer};
use super::events::Events;
use super::figures::{self, PastFigures};
use super::file::{self, Aside, Found};
use super::history::{History, Past, Record};
use super::log_device::{self, Verdict};
use super::losses::Readings;
use super::paced::Paced;
use super::quotas::{Accounts, Summons};
use super::running::Running;
use super::schedule::Missed;
use super::secrets::SecretFiles;
use super::settling::{OWN_PATIENCE, Progress, Settling, Settlings};
use super::{foresight, media, quotas, reservations, snapshots, stats, traces, views};
use crate::StartError;
use crate::administration::AdminListening;
use crate::confinement::Reach;
use crate::logging::LogSwitch;
use crate::prepare::Flags;
use crate::save;
use crate::secret::Secrets;
use crate::state::{State, Trouble};

/// Between two times that the cores are asked for their sessions, however many want to know.
const SESSIONS_PAUSE: Duration = Duration::from_millis(20);

/// How long a change waits for the one before it: longer than that takes when stores hang.
const WRITER_PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks whether it is over.
const WRITER_PAUSE: Duration = Duration::from_millis(10);

/// How long the rest of a change may take before it is logged.
const SETTLING_PATIENCE: Duration = Duration::from_secs(15);

/// Where the history of stores of the command line is kept.
const NO_FILE: &str = "command-line";

/// What is in force: the document, what it became, and what was before. Replaced as a whole, so
/// that a read never waits for a change.
pub(super) struct InForce {
    pub(super) running: Running,
    pub(super) document: Document,
    pub(super) past: Past,
}

/// What becomes of a configuration file that was edited by hand and not applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EditedFile {
    /// It stands in the way.
    Stays,
    /// Its text is kept beside it.
    GoesAside,
}

/// What is to be applied.
enum Wanted {
    Document(Change, Origin),
    /// What the configuration file says when the turn of this change has come: read before, it would
    /// take back what the changes before this one have written.
    File,
}

/// The daemon.
pub(crate) struct Daemon {
    pub(super) plane: Arc<Handle>,
    in_force: RwLock<Arc<InForce>>,
    /// Held for as long as a change takes: there is one writer.
    writer: Mutex<History>,
    /// What changes have left to do.
    settlings: Mutex<Settlings>,
    /// Files and devices that are being looked at for a change.
    pub(super) attempts: Attempts,
    /// The same, of what nobody waits for: a change does not find a path busy because of it.
    polls: Attempts,
    secret_files: SecretFiles,
    /// Where the history is kept, and the numbers of events.
    history_directory: PathBuf,
    pub(super) state: State,
    /// Where the document lives; `None` for stores of the command line, which cannot be changed.
    pub(super) file: Option<PathBuf>,
    uid: u32,
    flags: Flags,
    reach: Reach,
    inherited: Inherited,
    pub(super) cores: usize,
    pub(super) started: SystemTime,
    pub(super) events: Arc<Events>,
    /// Each core makes its part of the answer, and serves no disk meanwhile.
    sessions: Paced<Result<Arc<[SessionReport]>, NoAnswer>>,
    doctor: Doctor,
    pub(super) accounts: Accounts,
    /// Of the thread that keeps them.
    pub(super) summons: Arc<Summons>,
    pub(super) missed: Missed,
    /// How busy initiators have been.
    readings: Readings,
    /// The settings of the process that it was started with.
    pub(super) begun: Arc<Model>,
    log: LogSwitch,
    /// Where the administration listens; there is none before it was started.
    administration: OnceLock<AdminListening>,
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
            missed: Missed::default(),
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
        let named = |unit: &&config::Unit| names.iter().any(|name| **name == *unit.to_string());
        super::keepers::where_to_look(units.filter(named))
    }

    /// The right to make a change, when the one under way is over. Nothing waits for it for longer
    /// than its caller does.
    ///
    /// A writer that panicked has either put its change in force or not.
    fn writer(&self) -> Result<MutexGuard<'_, History>, Problem> {
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

    /// Names of removed units whose last flush failed, and no caller knows. To be called when the plane has ended.
    pub(crate) fn unflushed_at_end(&self) -> Vec<String> {
        self.settlings().unflushed_at_end(&self.plane)
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

    /// Files that are being looked at.
    pub(super) const fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    fn file(&self) -> Result<&Path, Problem> {
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

    /// Applies the configuration file as it is now.
    pub(crate) fn apply_file(&self) -> Result<Applied, Problem> {
        self.change(Wanted::File, None, "SIGHUP", EditedFile::Stays)
    }

    /// What the configuration file says now.
    fn file_now(&self) -> Result<Change, Problem> {
        let (file, runs) = (self.file()?, self.in_force().document.text.len());
        let text = file::read_in_turn(file, runs, &self.attempts.begin())
            .and_then(|text| text.ok_or_else(|| format!("{} does not exist", file.display())))
            .map_err(|error| Problem::new(ProblemKind::BadRequest, error))?;
        Ok(Change {
            text,
            comment: None,
        })
    }

    /// The file may have been edited by hand and not applied: that must not be lost. Gives its
    /// text, and whether it is to be kept.
    fn found(
        &self,
        now: &InForce,
        text: &str,
        edited: EditedFile,
        patience: &Patience<'_>,
    ) -> Result<(Found<'_>, bool), Problem> {
        let file = self.file()?;
        let revision = now.document.revision;
        let runs = now.document.text.len();
        let found = file::read_in_turn(file, runs, patience)
            .map_err(|error| Problem::new(ProblemKind::ApplyFailed, error))?;
        let found = Found::new(file, found);
        let Some(now_there) = found.text() else {
            if edited == EditedFile::GoesAside {
                return Ok((found, false));
            }
            let detail = format!(
                "{} does not exist any more; tarn rollback {revision} writes it again",
                file.display()
            );
            return Err(Problem::new(ProblemKind::Conflict, detail));
        };
        let is_edited = now_there != now.document.text && now_there != text;
        if !is_edited || edited == EditedFile::GoesAside {
            return Ok((found, is_edited));
        }
        let detail = format!(
            "{0} was changed by hand and not applied; see tarn plan {0}, then apply it, or put back what runs with \
             tarn rollback {revision}, which keeps the edited text beside it",
            file.display()
        );
        Err(Problem::new(ProblemKind::Conflict, detail))
    }

    fn note_applied(&self, applied: &Applied, author: &str) {
        self.events.note(Event {
            number: 0,
            at_ms: 0,
            severity: Severity::Info,
            kind: "config-applied".to_owned(),
            message: match applied.steps.len() {
                1 => format!(
                    "revision {} was applied by {author} with 1 step",
                    applied.revision
                ),
                steps => format!(
                    "revision {} was applied by {author} with {steps} steps",
                    applied.revision
                ),
            },
            lun: None,
            target: None,
            initiator: None,
            user: None,
            author: Some(author.to_owned()),
            command: None,
        });
    }

    /// Everything that can fail. On an error all is as before.
    fn take_up(
        &self,
        now: &InForce,
        planned: Planned,
        found: &Found<'_>,
        history: &mut History,
        record: Record,
    ) -> Result<Prepared, Problem> {
        let Planned { model, units, .. } = planned;
        let (old, state) = (&now.running, &self.state);
        let settle_back = |_: &Problem| settle(state, &old.model);
        let means = self.means(self.attempts.begin(), &model);
        let mut prepared = Secrets::read(&model, self.uid)
            .and_then(|secrets| apply::prepare(old, model, secrets.into(), &units, &means))
            .map_err(|error| unprepared(&error))
            .inspect_err(settle_back)?;
        prepared
            .add_units(&self.plane)
            .map_err(failed)
            .inspect_err(settle_back)?;
        let added = prepared.added_positions();
        self.accounts.admit(&self.plane, prepared.running(), added);
        let saved = found.save(history, record);
        let grow = || prepared.grow(&means.patience).map_err(failed);
        let switch = || prepared.switch_caches(&self.plane).map_err(failed);
        let carried_out = || grow().and_then(|()| switch());
        let done = saved.and_then(|()| carried_out().inspect_err(|_| found.put_back(history)));
        if done.is_ok() {
            prepared.note_media(state);
        }
        let drop_units = |_: &Problem| {
            let added = prepared.added();
            let indices: Vec<_> = added.iter().map(|unit| unit.index).collect();
            self.accounts.dismiss(&indices);
            let unseen = Settling::unseen(added, &self.plane);
            self.settlings().add(unseen);
        };
        done.inspect_err(drop_units).inspect_err(settle_back)?;
        Ok(prepared)
    }

    /// What cannot be refused any more. Notes what keeps the change from having taken effect
    /// everywhere, if anything does, and units that were closed without a good flush.
    fn put_in_force(
        &self,
        now: &InForce,
        mut prepared: Prepared,
        history: &mut History,
        document: Document,
        applied: &mut Applied,
    ) {
        settle(&self.state, &prepared.running.model);
        self.log.set(prepared.running.model.server().log);
        foresight::name_sizes(&mut applied.steps, &now.running, &prepared.running);
        let switched = prepared.switch(&now.running, &self.plane);
        history.prune(history_max(&prepared.running.model));
        self.forget_media(&now.running, &prepared.running);
        let revision = document.revision;
        let in_force = InForce {
            running: prepared.running.clone(),
            document,
            past: history.past(),
        };
        *self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        self.summons.look();
        let mut settling = Settling::new(revision, prepared.rest(&now.running));
        if switched.is_ok() {
            settling.judge(&prepared.running.policy(), &self.plane);
        }
        settling.advance(&self.plane, Instant::now() + OWN_PATIENCE);
        if let Some(file) = &self.file {
            self.secret_files.collect(file);
        }
        match self.settlings().add(settling) {
            Progress::Settled(warnings) => applied.warnings.extend(warnings),
            Progress::Waits(for_what) => applied.unsettled = Some(for_what),
        }
    }

    /// Applies a document.
    fn change(
        &self,
        wanted: Wanted,
        only_at: Option<u64>,
        author: &str,
        edited: EditedFile,
    ) -> Result<Applied, Problem> {
        let mut history = self.writer()?;
        let (mut change, origin) = match wanted {
            Wanted::Document(change, origin) => (change, origin),
            Wanted::File => (self.file_now()?, Origin::Written),
        };
        let now = self.in_force();
        let mut stays = Vec::new();
        if origin == Origin::Past {
            (change.text, stays) = self.way_back(&now, change.text, Inspection::Files);
        }
        let revision = now.document.revision;
        check_revision(revision, only_at)?;
        let how = (&origin, Inspection::Files);
        let planned = self.planned(&now, &change.text, how, self.attempts.begin())?;
        check_role(&origin, &planned)?;
        let mut applied = Applied {
            revision,
            steps: planned.plan.steps.clone(),
            changes_text: planned.plan.changes_text,
            // Those that were there before are findings of the doctor.
            warnings: planned.plan.warnings.clone(),
            unsettled: None,
        };
        let patience = self.attempts.begin();
        applied.warnings.extend(stays);
        let (found, is_edited) = self.found(&now, &change.text, edited, &patience)?;
        if let Some(refusal) = planned.refusal {
            return Err(refusal);
        }
        let aside = is_edited.then(|| found.set_aside()).transpose();
        let aside =
            Aside(aside.map_err(|error| {
                failed(format!("the text edited by hand cannot be kept: {error}"))
            })?);
        if change.text == now.document.text && applied.steps.is_empty() {
            if found.text() != Some(change.text.as_str()) {
                found.write(&change.text).map_err(|error| {
                    failed(format!("the configuration file cannot be written: {error}"))
                })?;
            }
            applied.warnings.extend(aside.told());
            return Ok(applied);
        }
        applied.revision += 1;
        let record = Record {
            revision: applied.revision,
            applied_ms: milliseconds(SystemTime::now()),
            author: author.to_owned(),
            comment: change.comment,
            summary: views::summary(&applied.steps),
            text: change.text.clone(),
        };
        let prepared = self.take_up(&now, planned, &found, &mut history, record)?;
        applied.warnings.extend(aside.told());
        let document = Document {
            revision: applied.revision,
            text: change.text,
        };
        self.put_in_force(&now, prepared, &mut history, document, &mut applied);
        self.note_applied(&applied, author);
        self.note_troubles();
        Ok(applied)
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

fn history_max(model: &Model) -> usize {
    usize::from(model.admin().history)
}

impl Control for Daemon {
    fn status(&self) -> view::Status {
        views::status(self)
    }

    fn document(&self) -> Document {
        self.in_force().document.clone()
    }

    fn check_changeable(&self) -> Result<(), Problem> {
        self.file().map(|_| ())
    }

    fn document_bytes(&self) -> usize {
        self.in_force().document.text.len()
    }

    fn give_memory_back(&self) {
        memory::give_back();
    }

    fn effective(&self) -> Document {
        views::effective(&self.in_force())
    }

    fn plan(&self, text: &str, origin: &Origin, inspection: Inspection) -> Result<Plan, Problem> {
        let now = self.in_force();
        let (text, stays, edited) = match origin {
            Origin::Past => {
                let (text, stays) = self.way_back(&now, text.to_owned(), inspection);
                (Cow::Owned(text), stays, EditedFile::GoesAside)
            }
            Origin::Written | Origin::Edited { .. } => {
                (Cow::Borrowed(text), Vec::new(), EditedFile::Stays)
            }
        };
        let patience = self.attempts.begin_plan();
        let how = (origin, inspection);
        let mut plan = self.planned(&now, &text, how, patience)?.plan;
        plan.warnings.extend(stays);
        if inspection == Inspection::Files {
            let patience = self.attempts.begin_plan();
            if let Err(problem) = self.found(&now, &text, edited, &patience) {
                stand_in_the_way(&mut plan, problem);
            }
        }
        Ok(plan)
    }

    fn apply(
        &self,
        change: Change,
        origin: Origin,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let wanted = Wanted::Document(change, origin);
        self.change(wanted, only_at, author, EditedFile::Stays)
    }

    fn roll_back(
        &self,
        back: Rollback,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let Rollback { revision, comment } = back;
        let past = self.document_of(revision).ok_or_else(|| {
            let detail = format!("there is no revision {revision}; see tarn history");
            Problem::new(ProblemKind::NotFound, detail)
        })?;
        let comment = comment.unwrap_or_else(|| format!("back to revision {revision}"));
        let change = Change {
            text: past.text,
            comment: Some(comment),
        };
        let change = Wanted::Document(change, Origin::Past);
        self.change(change, only_at, author, EditedFile::GoesAside)
    }

    fn settle(&self, applied: &mut Applied) {
        if applied.unsettled.is_none() {
            return;
        }
        let mut settlings = self.settlings();
        settlings.advance(&self.plane, SETTLING_PATIENCE);
        applied.unsettled = match settlings.progress(applied.revision) {
            Progress::Waits(for_what) => Some(for_what),
            Progress::Settled(warnings) => {
                applied.warnings.extend(warnings);
                None
            }
        };
    }

    fn history(&self) -> Vec<Revision> {
        self.in_force().past.list()
    }

    fn document_of(&self, revision: u64) -> Option<Document> {
        let in_force = self.in_force();
        in_force.past.find(revision).map(|record| Document {
            revision,
            text: record.text.clone(),
        })
    }

    fn luns(&self) -> Vec<view::Lun> {
        let mut luns = views::luns(&self.in_force(), &self.plane);
        self.settlings().show_rollbacks(&mut luns);
        luns
    }

    fn quotas(&self) -> Vec<view::Quota> {
        quotas::views(self)
    }

    fn eject(&self, lun: &str, force: bool) -> Result<(), Problem> {
        media::order(self, lun, MediumOrder::Eject { force })
    }

    fn load(&self, lun: &str) -> Result<(), Problem> {
        media::order(self, lun, MediumOrder::Load)
    }

    fn reservations(&self, lun: &str) -> Result<view::Reservations, Problem> {
        reservations::view(self, lun)
    }

    fn clear_reservations(&self, lun: &str) -> Result<(), Problem> {
        reservations::clear(self, lun)
    }

    fn take_over(&self, lun: &str) -> Result<(), Problem> {
        media::take_over(self, lun)
    }

    fn discard_log(&self, lun: &str) -> Result<(), Problem> {
        log_device::decide(self, lun, Verdict::Discard)
    }

    fn replay_log(&self, lun: &str) -> Result<(), Problem> {
        log_device::decide(self, lun, Verdict::Replay)
    }

    fn adopt(&self, lun: &str) -> Result<(), Problem> {
        media::adopt(self, lun)
    }

    fn snapshots(&self, lun: Option<&str>) -> Result<Vec<view::Snapshot>, Problem> {
        snapshots::list(self, lun)
    }

    fn take_snapshots(
        &self,
        wanted: TakeSnapshots,
        author: &str,
    ) -> Result<view::SnapshotsTaken, Problem> {
        snapshots::take(self, &wanted, author)
    }

    fn remove_snapshot(&self, lun: &str, name: &str) -> Result<(), Problem> {
        snapshots::remove(self, lun, name)
    }

    fn restore_snapshot(&self, lun: &str, name: &str) -> Result<view::RolledBack, Problem> {
        snapshots::roll_back(self, lun, name)
    }

    fn clone_snapshot(&self, which: (&str, &str), store: &str) -> Result<(), Problem> {
        snapshots::clone(self, which, store)
    }

    fn discard_clone(&self, lun: &str, store: &str) {
        snapshots::discard(self, lun, store);
    }

    fn flatten(&self, lun: &str) -> Result<view::Flattened, Problem> {
        snapshots::flatten(self, lun)
    }

    fn targets(&self) -> Result<Vec<view::Target>, Problem> {
        let sessions = self.sessions_now()?;
        Ok(views::targets(&self.in_force(), &sessions))
    }

    fn hyperscsi(&self) -> Result<Vec<view::Hyperscsi>, Problem> {
        let sessions = self.sessions_now()?;
        Ok(views::hyperscsi(&self.in_force(), &sessions))
    }

    fn hyperscsi_stats(&self) -> api::stats::Hyperscsi {
        stats::hyperscsi(self)
    }

    fn sessions(&self) -> Result<Vec<view::Session>, Problem> {
        let sessions = self.sessions_now()?;
        Ok(views::sessions(&self.in_force(), &sessions))
    }

    fn end_session(&self, id: u64) -> Result<(), Problem> {
        let sessions = self.sessions_now()?;
        let session = sessions.iter().find(|session| session.id.0 == id);
        let session = session.ok_or_else(|| {
            let detail = format!("there is no session {id}; see tarn session list");
            Problem::new(ProblemKind::NotFound, detail)
        })?;
        let which = [(session.core, session.id)];
        let reason = "an administrator ended it";
        // Nobody waits here: its commands may hang.
        drop(self.plane.change_sessions(Vec::new(), &which, reason));
        Ok(())
    }

    fn traces(&self) -> Vec<view::Trace> {
        traces::list(&self.plane)
    }

    fn start_trace(&self, subject: &str, how: Tracing) -> Result<(view::Trace, bool), Problem> {
        traces::start(&self.plane, &self.sessions_now()?, subject, how)
    }

    fn read_trace(&self, subject: &str) -> Result<Vec<u8>, Problem> {
        traces::read(&self.plane, subject)
    }

    fn stop_trace(&self, subject: &str) -> Result<(), Problem> {
        traces::stop(&self.plane, subject)
    }

    fn keep_secret(&self, of: SecretOf<'_>, secret: &str) -> Result<String, Problem> {
        let running = &self.in_force().running;
        match self.secret_files.same(running, of, secret) {
            Some(path) => Ok(path),
            None => self.secret_files.keep(of, secret),
        }
    }

    fn release_secret(&self, path: &str) {
        if let Some(file) = &self.file {
            self.secret_files.release(path, file);
        }
    }

    fn access(&self, question: &view::AccessQuestion) -> Result<Vec<view::Access>, Problem> {
        views::access(&self.in_force(), question)
    }

    fn stats(&self) -> Stats {
        stats::stats(self)
    }

    fn checks(&self) -> Vec<view::Check> {
        super::doctor::checks()
    }

    fn places(&self) -> view::Places {
        super::places::places(self)
    }

    fn figures(&self, range: Range, lun: Option<&str>) -> Result<Figures, Problem> {
        figures::figures(self, range, lun)
    }

    fn space(&self) -> Space {
        self.doctor.space(self)
    }

    fn events(&self, question: EventQuestion) -> Vec<Event> {
        self.events.find(&question)
    }

    fn note(&self, event: Event) {
        self.events.note(event);
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings_now(Inquirer::Administrator)
    }
}
