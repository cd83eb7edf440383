//! The daemon as its administration asks for it.

mod back;
mod check;
mod findings;
mod planning;
mod reopen;

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use api::control::Control;
use api::edit::SecretOf;
use api::event::{Event, Finding, Severity};
use api::figures::{Figures, Range};
use api::plan::{Applied, Change, Document, Inspection, Origin, Plan, Revision};
use api::problem::{Problem, ProblemKind};
use api::request::{EventQuestion, Rollback, TakeSnapshots, Tracing};
use api::stats::{Space, Stats};
use api::view;
use plane::MediumOrder;

use self::check::{check_revision, check_role, failed, unprepared};
use self::planning::{Planned, stand_in_the_way};
use self::reopen::settle;
use super::apply::Prepared;
use super::attempts::Patience;
use super::calendar::milliseconds;
use super::daemon::{Daemon, InForce, history_max};
use super::doctor::Inquirer;
use super::figures;
use super::file::{self, Aside, Found};
use super::history::{History, Record};
use super::log_orders::{self, Verdict};
use super::settling::{OWN_PATIENCE, Progress, SETTLING_PATIENCE, Settling};
use super::take::take;
use super::{foresight, media, quotas, reservations, snapshots, stats, traces, views};

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

impl Daemon {
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
        let Planned {
            model,
            secrets,
            units,
            kept,
            ..
        } = planned;
        let (old, state) = (&now.running, &self.state);
        let settle_back = |_: &Problem| settle(state, &old.model);
        let means = self.means(self.attempts.begin(), &model);
        let mut prepared = take(old, (model, secrets.into()), &units, kept, &means)
            .map_err(|error| unprepared(&error))
            .inspect_err(settle_back)?;
        prepared
            .add_units(&self.plane)
            .map_err(failed)
            .inspect_err(settle_back)?;
        let opened = prepared.opened_positions();
        self.accounts
            .admit(&self.plane, prepared.running(), &opened);
        let saved = found.save(history, record);
        let grow = || prepared.grow(&means.patience).map_err(failed);
        let switch = || prepared.switch_caches(&self.plane).map_err(failed);
        let exchange = || prepared.exchange_media(old, &self.plane).map_err(failed);
        let carried_out = || {
            grow()?;
            switch()?;
            exchange()
        };
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
        log_orders::decide(self, lun, Verdict::Discard)
    }

    fn replay_log(&self, lun: &str) -> Result<(), Problem> {
        log_orders::decide(self, lun, Verdict::Replay)
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
