//! The daemon as its administration asks for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use api::control::Control;
use api::event::{Event, EventQuestion, Finding, Severity};
use api::plan::{Applied, Change, Document, Effect, Plan, Revision, Step};
use api::problem::{Problem, ProblemKind};
use api::request::Tracing;
use api::stats::Stats;
use api::view;
use config::Model;
use confine::inherited::Inherited;
use target::{Handle, NoAnswer, SessionReport};

use super::apply::{self, Prepared};
use super::doctor::Doctor;
use super::events::{Events, milliseconds};
use super::history::{History, Record};
use super::paced::Paced;
use super::running::Running;
use super::steps::{self, Match};
use super::{secrets, stats, traces, views};
use crate::confinement::Reach;
use crate::prepare::Flags;
use crate::secret::Secrets;
use crate::state::{State, replace_file};

/// Between two times that the cores are asked for their sessions, however many want to know.
const SESSIONS_PAUSE: Duration = Duration::from_millis(20);

/// What is in force: the document and what it became. Replaced as a whole.
pub(super) struct InForce {
    pub(super) running: Running,
    pub(super) document: Document,
}

/// The daemon.
pub(crate) struct Daemon {
    pub(super) plane: Arc<Handle>,
    in_force: RwLock<Arc<InForce>>,
    /// Held for as long as a change takes: there is one writer.
    writer: Mutex<History>,
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
}

/// What a daemon is made from.
pub(crate) struct Parts {
    pub(crate) plane: Arc<Handle>,
    pub(crate) running: Running,
    pub(crate) state: State,
    pub(crate) file: Option<PathBuf>,
    /// The text the file had when it was read.
    pub(crate) text: String,
    pub(crate) uid: u32,
    pub(crate) flags: Flags,
    pub(crate) reach: Reach,
    pub(crate) inherited: Inherited,
    pub(crate) cores: usize,
    pub(crate) events: Arc<Events>,
    pub(crate) doctor: Doctor,
}

/// A document that was read and compared with what runs.
struct Planned {
    model: Model,
    units: Match,
    plan: Plan,
}

impl Daemon {
    /// Takes over what was started.
    ///
    /// # Errors
    ///
    /// The history cannot be read or written.
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let started = SystemTime::now();
        let place = parts
            .file
            .clone()
            .unwrap_or_else(|| PathBuf::from("command-line"));
        let mut history = History::open(
            parts.state.directory(),
            &place,
            history_max(&parts.running.model),
        )?;
        let last = history.last();
        let revision = match last {
            Some(last) if last.text == parts.text => last.revision,
            last => {
                let revision = last.map_or(1, |last| last.revision + 1);
                history.add(Record {
                    revision,
                    applied_ms: milliseconds(started),
                    author: "start".to_owned(),
                    comment: None,
                    summary: Vec::new(),
                    text: parts.text.clone(),
                })?;
                revision
            }
        };
        let in_force = InForce {
            running: parts.running,
            document: Document {
                revision,
                text: parts.text,
            },
        };
        Ok(Self {
            plane: parts.plane,
            in_force: RwLock::new(Arc::new(in_force)),
            writer: Mutex::new(history),
            state: parts.state,
            file: parts.file,
            uid: parts.uid,
            flags: parts.flags,
            reach: parts.reach,
            inherited: parts.inherited,
            cores: parts.cores,
            started,
            events: parts.events,
            sessions: Paced::new(SESSIONS_PAUSE),
            doctor: parts.doctor,
        })
    }

    /// A thread that panicked while it held this lock did not leave half a value behind.
    pub(super) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_in_force(&self, in_force: InForce) {
        *self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
    }

    /// A writer that panicked has either put its change in force or not.
    fn writer(&self) -> MutexGuard<'_, History> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions_now(&self) -> Result<Arc<[SessionReport]>, Problem> {
        let ask = || self.plane.sessions().map(Arc::from);
        self.sessions.ask(ask).map_err(no_answer)
    }

    /// What limits or endangers the service, now.
    pub(super) fn findings_now(&self) -> Vec<Finding> {
        self.doctor.findings(self)
    }

    fn file(&self) -> Result<&PathBuf, Problem> {
        self.file.as_ref().ok_or_else(|| {
            Problem::new(
                ProblemKind::Refused,
                "Tarn serves stores of its command line, which has no file to keep a change in; start it with --config FILE",
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
        let file = self.file()?;
        let text = std::fs::read_to_string(file).map_err(|error| {
            let detail = format!("cannot read {}: {error}", file.display());
            Problem::new(ProblemKind::BadRequest, detail)
        })?;
        let change = Change {
            text,
            comment: None,
        };
        self.apply(change, None, "SIGHUP")
    }

    fn planned(&self, now: &InForce, text: &str) -> Result<Planned, Problem> {
        let file = self.file()?;
        let mut model = Model::from_toml(text, file).map_err(|error| {
            let mut problem = Problem::new(ProblemKind::InvalidConfig, error.rule.to_string());
            problem.place = Some(error.place.to_string());
            problem
        })?;
        self.flags.work_into(&mut model);
        let old = &now.running;
        self.reach.check_secrets(&model)?;
        let secrets = Secrets::read(&model, self.uid)
            .map_err(|error| Problem::new(ProblemKind::InvalidConfig, error.to_string()))?;
        let size_of = |at: usize| old.units[at].store.capabilities().size_bytes;
        let secrets_differ =
            |user: &str| secrets::differ((&old.model, &old.secrets), (&model, &secrets), user);
        let differences = config::diff_with_secrets(&old.model, &model, secrets_differ);
        let units = Match::of(&old.model, &model, &differences);
        let mut steps = steps::steps(&old.model, &model, &differences, size_of);
        self.reach.refuse(&mut steps, &model);
        let ended = self.sessions_that_end(old, &model, &units, &secrets)?;
        views::name_ended(&mut steps, old, ended);
        let is_applicable = steps.iter().all(|step| step.effect != Effect::Refused);
        let warnings = model.warnings().iter().map(ToString::to_string).collect();
        let plan = Plan {
            revision: now.document.revision,
            steps,
            is_applicable,
            warnings,
        };
        Ok(Planned { model, units, plan })
    }

    /// The sessions that the rules of a model would not let in.
    fn sessions_that_end(
        &self,
        old: &Running,
        model: &Model,
        units: &Match,
        secrets: &Secrets,
    ) -> Result<Vec<SessionReport>, Problem> {
        let policy = old.policy_of(model, &units.from, secrets);
        Ok(apply::judge(&policy, &self.sessions_now()?).ended)
    }

    /// The file may have been edited by hand and not applied: that must not be lost.
    fn check_file(&self, now: &InForce, text: &str) -> Result<(), Problem> {
        let file = self.file()?;
        let on_disk = std::fs::read_to_string(file).map_err(|error| {
            let detail = format!("cannot read {}: {error}", file.display());
            Problem::new(ProblemKind::ApplyFailed, detail)
        })?;
        if on_disk == now.document.text || on_disk == text {
            return Ok(());
        }
        let detail = format!(
            "{0} was changed by hand and not applied; see tarn plan {0}, then apply it or put it back (tarn rollback)",
            file.display()
        );
        Err(Problem::new(ProblemKind::Conflict, detail))
    }

    /// Puts the document and its record on disk.
    fn save(&self, history: &mut History, record: Record, before: &str) -> Result<(), String> {
        let file = self.file().map_err(|problem| problem.detail)?;
        let say = |error| format!("cannot write {}: {error}", file.display());
        replace_file(file, record.text.as_bytes()).map_err(say)?;
        history.add(record).map_err(|error| {
            self.put_text_back(before);
            format!("cannot write the history: {error}")
        })
    }

    fn put_text_back(&self, text: &str) {
        if let Some(file) = &self.file
            && let Err(error) = replace_file(file, text.as_bytes())
        {
            tracing::error!(%error, "the configuration file is not what runs");
        }
    }

    fn note_applied(&self, applied: &Applied, author: &str) {
        self.events.note(Event {
            number: 0,
            at_ms: 0,
            severity: Severity::Info,
            kind: "config-applied".to_owned(),
            message: format!(
                "revision {} with {} steps",
                applied.revision,
                applied.steps.len()
            ),
            lun: None,
            target: None,
            initiator: None,
            author: Some(author.to_owned()),
            command: None,
        });
    }

    /// Everything that can fail. On an error all is as before.
    fn take_up(
        &self,
        now: &InForce,
        planned: Planned,
        history: &mut History,
        record: Record,
    ) -> Result<Prepared, Problem> {
        let failed = |detail: String| Problem::new(ProblemKind::ApplyFailed, detail);
        let Planned { model, units, .. } = planned;
        let (old, state) = (&now.running, &self.state);
        let mut prepared = apply::prepare(old, model, &units, state, self.uid, &self.inherited)
            .map_err(|error| failed(crate::error::chain(&error)))?;
        prepared.add_units(&self.plane).map_err(failed)?;
        let saved = self.save(history, record, &now.document.text);
        let done = saved.and_then(|()| {
            prepared.grow().inspect_err(|_| {
                self.put_text_back(&now.document.text);
                if let Err(error) = history.take_back() {
                    tracing::error!(%error, "the history tells of a change that was not made");
                }
            })
        });
        done.map_err(|detail| {
            prepared.drop_units(&self.plane);
            failed(detail)
        })?;
        Ok(prepared)
    }
}

fn history_max(model: &Model) -> usize {
    usize::from(model.admin().history)
}

pub(super) fn no_answer(error: NoAnswer) -> Problem {
    Problem::new(ProblemKind::Unavailable, error.to_string())
}

/// One line a step, for the history.
fn summary(steps: &[Step]) -> Vec<String> {
    steps.iter().map(views::step_line).collect()
}

impl Control for Daemon {
    fn status(&self) -> view::Status {
        views::status(self)
    }

    fn document(&self) -> Document {
        self.in_force().document.clone()
    }

    fn effective(&self) -> Document {
        views::effective(&self.in_force())
    }

    fn plan(&self, text: &str) -> Result<Plan, Problem> {
        Ok(self.planned(&self.in_force(), text)?.plan)
    }

    fn apply(
        &self,
        change: Change,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let mut history = self.writer();
        let now = self.in_force();
        let revision = now.document.revision;
        if only_at.is_some_and(|wanted| wanted != revision) {
            let detail = format!("revision {revision} runs; read it and make the change again");
            let mut problem = Problem::new(ProblemKind::RevisionMismatch, detail);
            problem.revision = Some(revision);
            return Err(problem);
        }
        let planned = self.planned(&now, &change.text)?;
        let Plan {
            steps, warnings, ..
        } = planned.plan.clone();
        self.check_file(&now, &change.text)?;
        if change.text == now.document.text && steps.is_empty() {
            return Ok(Applied {
                revision,
                steps,
                warnings,
            });
        }
        if let Some(refused) = steps.iter().find(|step| step.effect == Effect::Refused) {
            let reason = refused.reason.clone().unwrap_or_default();
            let detail = format!("{}: {reason}", views::step_line(refused));
            return Err(Problem::new(ProblemKind::Refused, detail));
        }
        let applied = Applied {
            revision: revision + 1,
            steps,
            warnings,
        };
        let record = Record {
            revision: applied.revision,
            applied_ms: milliseconds(SystemTime::now()),
            author: author.to_owned(),
            comment: change.comment,
            summary: summary(&applied.steps),
            text: change.text.clone(),
        };
        history.keep(history_max(&planned.model));
        let mut prepared = self.take_up(&now, planned, &mut history, record)?;
        for (old, new) in &prepared.renamed {
            if let Err(error) = self.state.rename(old, new) {
                tracing::error!(%error, old, new, "a renamed lun gets another identity at the next start");
            }
        }
        let verdict = prepared.switch(&now.running, &self.plane);
        self.put_in_force(InForce {
            running: prepared.running.clone(),
            document: Document {
                revision: applied.revision,
                text: change.text,
            },
        });
        self.note_applied(&applied, author);
        let settled = verdict.and_then(|verdict| prepared.settle(verdict, &self.plane));
        settled.map_err(|error| {
            let detail = format!(
                "revision {} is in force, but {error}; see the log and tarn doctor",
                applied.revision
            );
            Problem::new(ProblemKind::Unavailable, detail)
        })?;
        Ok(applied)
    }

    fn history(&self) -> Vec<Revision> {
        self.writer().list()
    }

    fn document_of(&self, revision: u64) -> Option<Document> {
        let history = self.writer();
        history.find(revision).map(|record| Document {
            revision,
            text: record.text.clone(),
        })
    }

    fn luns(&self) -> Vec<view::Lun> {
        views::luns(&self.in_force())
    }

    fn targets(&self) -> Vec<view::Target> {
        let sessions = self.sessions_now().unwrap_or_default();
        views::targets(&self.in_force(), &sessions)
    }

    fn sessions(&self) -> Result<Vec<view::Session>, Problem> {
        let sessions = self.sessions_now()?;
        Ok(views::sessions(&self.in_force(), &sessions))
    }

    fn end_session(&self, id: u16) -> Result<(), Problem> {
        let sessions = self.sessions_now()?;
        let session = sessions.iter().find(|session| session.tsih == id);
        let session = session.ok_or_else(|| {
            let detail = format!("there is no session {id}; see tarn session list");
            Problem::new(ProblemKind::NotFound, detail)
        })?;
        let which = [(session.core, session.tsih)];
        let ended = self.plane.end_sessions(&which, "an administrator ended it");
        ended.map_err(no_answer)
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

    fn keep_secret(&self, user: &str, secret: &str, is_mutual: bool) -> Result<String, Problem> {
        secrets::keep(self.state.directory(), user, secret, is_mutual)
    }

    fn access(&self, question: &view::AccessQuestion) -> Result<Vec<view::Access>, Problem> {
        views::access(&self.in_force(), question)
    }

    fn stats(&self) -> Stats {
        stats::stats(self)
    }

    fn events(&self, question: EventQuestion) -> Vec<Event> {
        self.events.find(question)
    }

    fn note(&self, event: Event) {
        self.events.note(event);
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings_now()
    }
}
