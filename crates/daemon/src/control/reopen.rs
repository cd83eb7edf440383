//! Stores that are opened again, with their units: media whose file was replaced, and those that another client has
//! had. It is done as an exchange of the store.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::event::{Event, Severity};
use api::plan::Applied;
use api::problem::{Problem, ProblemKind};
use config::{Model, Place, StoreSpec, Unit};
use plane::UnitIndex;
use store::SharedStore;

use super::check::{failed, unprepared};
use crate::attempts::{Patience, on_thread, pause};
use crate::daemon::Daemon;
use crate::held::{Acceptance, Withheld};
use crate::locate::OwnFiles;
use crate::look::{Means, look_again, look_at_reopened};
use crate::open::Opener;
use crate::running::{Running, RunningUnit};
use crate::state::{State, UnitState};
use crate::steps::Match;
use crate::take::take;

/// Ends the renames that a change has begun in the ledger. `model` is in force, also on disk.
pub(super) fn settle(state: &State, model: &Model) {
    if let Err(error) = state.settle(model) {
        let error = crate::error::chain(&error);
        tracing::warn!(
            error,
            "the ledger of identities has two ids for a renamed lun until the next change or start"
        );
    }
}

/// How long stores are opened again before the next look at the configuration file.
const REOPEN_TIME_MAX: Duration = Duration::from_secs(5);

/// After a store could not be opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(10);

/// How long a takeover waits until the medium is served.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(20);

/// A takeover that has not answered may be made all the same.
const LATE: &str = "may be taken over or not, that is not known yet; see tarn lun show";

/// Between two looks whether it is.
const TAKEOVER_PAUSE: Duration = Duration::from_millis(50);

impl Daemon {
    /// Whether the place of a unit names another file or device than the one that is open.
    ///
    /// # Errors
    ///
    /// Nothing is there, or the file system does not answer.
    pub(crate) fn is_replaced(&self, unit: &Unit, served: &RunningUnit) -> Result<bool, Problem> {
        let mut parts = unit.parts().zip(served.opened.parts());
        parts.try_fold(false, |is_replaced, (part, store)| {
            Ok(self.is_part_replaced(unit, part, store)? || is_replaced)
        })
    }

    fn is_part_replaced(
        &self,
        unit: &Unit,
        part: (&StoreSpec, &Place),
        store: Arc<dyn SharedStore>,
    ) -> Result<bool, Problem> {
        let Some((path, _)) = part.0.at.node() else {
            return Ok(false);
        };
        let place = path.to_owned();
        let patience = self.attempts.begin_plan();
        let is_at = on_thread(part, &patience, move |_, _| store.is_at(&place));
        let hangs = |error| Problem::new(ProblemKind::Unavailable, crate::error::chain(&error));
        match is_at.map_err(hangs)? {
            Ok(is_at) => Ok(!is_at),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let detail = format!(
                    "the file of the medium of lun \"{unit}\" is gone: {} does not exist; put it back, or load another \
                     medium (tarn lun load {unit} STORE)",
                    path.display()
                );
                Err(Problem::new(ProblemKind::Conflict, detail))
            }
            // A directory that this user may not search says nothing about the file that is open.
            Err(_) => Ok(false),
        }
    }

    /// Gives a unit the file or device that is at its place now. The unit starts again with it, so it is in.
    ///
    /// # Errors
    ///
    /// It cannot be opened or served; all is as before.
    pub(crate) fn reopen(
        &self,
        lun: &str,
        index: UnitIndex,
        acceptance: Acceptance,
    ) -> Result<(), Problem> {
        let mut history = self.writer()?;
        let now = self.in_force();
        let old = &now.running;
        let Some(position) = old.unit_position(index) else {
            let detail = format!("lun {lun:?} was changed meanwhile; see tarn lun show {lun}");
            return Err(Problem::new(ProblemKind::Conflict, detail));
        };
        let mut means = self.means(self.attempts.begin_plan(), &old.model);
        means.opener.acceptance = acceptance;
        let to = (Model::clone(&old.model), Arc::clone(&old.secrets));
        let units = Match::itself(&old.model, position);
        let mut prepared = look_again(old, position, &means)
            .and_then(|kept| take(old, to, &units, kept, &means))
            .map_err(|error| unprepared(&error))
            .inspect_err(|_| settle(&self.state, &old.model))?;
        prepared
            .add_units(&self.plane)
            .map_err(failed)
            .inspect_err(|_| settle(&self.state, &old.model))?;
        prepared
            .exchange_media(old, &self.plane)
            .map_err(failed)
            .inspect_err(|_| settle(&self.state, &old.model))?;
        prepared.note_media(&self.state);
        let opened = prepared.opened_positions();
        self.accounts
            .admit(&self.plane, prepared.running(), &opened);
        let mut applied = Applied {
            changes_text: false,
            revision: now.document.revision,
            steps: Vec::new(),
            warnings: Vec::new(),
            unsettled: None,
        };
        let document = now.document.clone();
        let mut opened = opened
            .iter()
            .filter_map(|at| prepared.running().units.get(*at));
        let has_other_file = opened.any(|unit| unit.opened.has_other_file);
        self.put_in_force(&now, prepared, &mut history, document, &mut applied);
        if has_other_file {
            self.note_other_file(lun);
        }
        for warning in &applied.warnings {
            tracing::warn!(lun, warning, "a store was opened again");
        }
        if let Some(unsettled) = applied.unsettled {
            tracing::info!(lun, unsettled, "a store was opened again");
        }
        Ok(())
    }

    /// Records the sizes of stores that grew beside Tarn: what is smaller at the next start was cut. To be called now
    /// and then.
    pub(crate) fn note_growth(&self) {
        let in_force = self.in_force();
        let running = &in_force.running;
        for (unit, served) in running.model.units().iter().zip(&running.units) {
            if let Some(media) = served.opened.media_now(unit)
                && let Err(error) = served.identity.state.note_growth(&media)
            {
                let lun = served.identity.naa.to_string();
                tracing::warn!(lun, %error, "the size of a store that grew is not recorded");
            }
        }
    }

    /// Opens the stores again that somebody else has had meanwhile, and those of units that are not served and could be
    /// now. To be called now and then.
    pub(crate) fn reopen_outdated(&self) {
        let begin = Instant::now();
        let after = self.settlings().reopen_after;
        if after.is_some_and(|after| begin < after) {
            return;
        }
        let in_force = self.in_force();
        let units = in_force.running.model.units().iter();
        let units = units.zip(&in_force.running.units);
        let mut is_left = false;
        for (unit, served) in units.take_while(|_| begin.elapsed() < REOPEN_TIME_MAX) {
            let is_waiting = served
                .opened
                .held
                .as_ref()
                .is_some_and(Withheld::is_tried_again);
            is_left |= is_waiting;
            if served.store.is_outdated() || is_waiting && self.is_openable(unit, served) {
                let lun = unit.to_string();
                match self.reopen(&lun, served.index, Acceptance::AsServed) {
                    Ok(()) => tracing::info!(lun, "the unit was started again with its store"),
                    Err(problem) => {
                        tracing::warn!(lun, %problem, "a store is not open again");
                        is_left = true;
                    }
                }
            }
        }
        self.settlings().reopen_after = is_left.then(|| Instant::now() + REOPEN_PAUSE);
    }

    /// Whether the stores of a unit that is not served can be opened now, and are what was served. Opens and closes
    /// them; makes and changes nothing. A path that hangs keeps one thread, and is not asked again until it answers.
    fn is_openable(&self, unit: &Unit, served: &RunningUnit) -> bool {
        let means = self.means(self.polls.begin_look(), &self.begun);
        look_at_reopened(unit, served, &means).is_ok()
    }

    /// What units that are removed have next, if they are added again, is compared with nothing.
    pub(super) fn forget_media(&self, old: &Running, new: &Running) {
        let stays = |state: &Arc<UnitState>| {
            new.units
                .iter()
                .any(|it| Arc::ptr_eq(&it.identity.state, state))
        };
        let states = old.units.iter().map(|unit| &unit.identity.state);
        for state in states.filter(|state| state.is_kept() && !stays(state)) {
            if let Err(error) = state.note_media(&[]) {
                tracing::warn!(%error, "the medium of a removed lun is still expected when it is added by hand");
            }
        }
    }

    fn opener(&self, next: &Model) -> Opener {
        let model = &self.in_force().running.model;
        let (file, state) = (self.file.as_deref(), self.state.directory());
        let own_files = OwnFiles::of([&**model, next], file, Some(state));
        Opener::of_change(self.cores, (model, next), own_files)
    }

    /// What a change to a model is made with that has this patience.
    pub(super) fn means<'a>(&'a self, patience: Patience<'a>, next: &Model) -> Means<'a> {
        Means {
            state: &self.state,
            inherited: &self.inherited,
            patience,
            begun: &self.begun,
            administration: self.administration.get(),
            opener: self.opener(next),
        }
    }

    /// Takes the medium of a unit from another client that has it, and serves it.
    ///
    /// # Errors
    ///
    /// There is no such unit, it is no image that others could have, or the cluster does not let this user.
    pub(crate) fn take_over_medium(&self, lun: &str) -> Result<(), Problem> {
        let in_force = self.in_force();
        let (unit, served) = in_force.lun(lun)?;
        let patience = self.attempts.begin();
        if !self.take_over_images(lun, (unit, served), &patience)? {
            let detail = format!(
                "lun {lun:?} is no image of a Ceph cluster that may be written, so no other client has it"
            );
            return Err(Problem::new(ProblemKind::Conflict, detail));
        }
        self.wait_until_served(lun)?;
        // What serves it now shows that it does: the store may be another one, and another client may be quicker.
        let in_force = self.in_force();
        let mut units = in_force.running.model.units().iter();
        let unit = units.find(|unit| unit.to_string() == lun);
        match unit.zip(in_force.running.unit_named(lun)) {
            Some(now) => self.take_over_images(lun, now, &patience).map(drop),
            None => Ok(()),
        }
    }

    /// Takes the images of a unit from other clients, or has those that are served show that they are. Whether it has
    /// some.
    fn take_over_images(
        &self,
        lun: &str,
        (unit, served): (&Unit, &RunningUnit),
        patience: &Patience<'_>,
    ) -> Result<bool, Problem> {
        let images = unit.parts().zip(served.opened.parts());
        let images = images.filter(|((spec, _), _)| spec.at.image().is_some() && !spec.read_only);
        let mut has_image = false;
        for (part, store) in images {
            has_image = true;
            let taken = on_thread(part, patience, move |_, _| store.take_over());
            let (kind, what, why) = match taken {
                Ok(Ok(())) => continue,
                Ok(Err(error)) if error.kind() != ErrorKind::TimedOut => {
                    (ProblemKind::Failed, "is not taken over", error.to_string())
                }
                Ok(Err(error)) => (ProblemKind::Unavailable, LATE, error.to_string()),
                Err(error) => (ProblemKind::Unavailable, LATE, crate::error::chain(&error)),
            };
            return Err(Problem::new(kind, format!("lun {lun:?} {what}: {why}")));
        }
        Ok(has_image)
    }

    /// Waits until the store of a unit is reached, and opens it again where it has to be.
    fn wait_until_served(&self, lun: &str) -> Result<(), Problem> {
        let until = Instant::now() + TAKEOVER_TIME_MAX;
        loop {
            let in_force = self.in_force();
            let Some(served) = in_force.running.unit_named(lun) else {
                return Ok(());
            };
            if served.store.is_outdated() {
                // Where this change waits for another one it is tried again.
                match self.reopen(lun, served.index, Acceptance::AsServed) {
                    Err(problem) if Instant::now() > until => return Err(problem),
                    Err(_) | Ok(()) => {}
                }
            }
            match served.store.outage() {
                None => return Ok(()),
                Some(why) if Instant::now() > until => {
                    let detail = format!("lun {lun:?} is not served yet: {why}; see tarn doctor");
                    return Err(Problem::new(ProblemKind::Unavailable, detail));
                }
                Some(_) => pause(TAKEOVER_PAUSE),
            }
        }
    }

    /// Reports the units that are served with another file than before, such as one that was restored from a backup.
    pub(crate) fn note_other_files(&self) {
        let running = &self.in_force().running;
        let units = running.model.units().iter().zip(&running.units);
        for (unit, _) in units.filter(|(_, served)| served.opened.has_other_file) {
            self.note_other_file(&unit.to_string());
        }
    }

    fn note_other_file(&self, lun: &str) {
        self.events.note(Event {
            number: 0,
            at_ms: 0,
            severity: Severity::Warning,
            kind: "medium-replaced".to_owned(),
            message: format!(
                "lun {lun}: its store is another file than the one that was served last, in the same place"
            ),
            lun: Some(lun.to_owned()),
            target: None,
            initiator: None,
            user: None,
            author: None,
            command: None,
        });
    }

    /// Reports that the new file of a medium is served.
    pub(crate) fn note_reopened(&self, lun: &str) {
        tracing::info!(
            lun,
            "the file of a medium was replaced; the new one is served"
        );
        self.events.note(Event {
            number: 0,
            at_ms: 0,
            severity: Severity::Info,
            kind: "medium-loaded".to_owned(),
            message: format!("lun {lun}: its medium is in, from the file that is at its place now"),
            lun: Some(lun.to_owned()),
            target: None,
            initiator: None,
            user: None,
            author: None,
            command: None,
        });
    }
}
