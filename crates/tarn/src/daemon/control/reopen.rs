//! Media whose file was replaced: the load of one opens what is at its place now, as an exchange of the store does.

use std::io::ErrorKind;
use std::sync::Arc;

use api::event::{Event, Severity};
use api::plan::Applied;
use api::problem::{Problem, ProblemKind};
use config::{Model, Unit};
use plane::UnitIndex;

use super::{Daemon, failed, settle, unprepared};
use crate::daemon::apply::{self, Means, on_thread};
use crate::daemon::running::RunningUnit;
use crate::daemon::steps::Match;

impl Daemon {
    /// Whether the place of a unit names another file or device than the one that is open.
    ///
    /// # Errors
    ///
    /// Nothing is there, or the file system does not answer.
    pub(in crate::daemon) fn is_replaced(
        &self,
        unit: &Unit,
        served: &RunningUnit,
    ) -> Result<bool, Problem> {
        let Some((path, _)) = unit.store.at.node() else {
            return Ok(false);
        };
        let (store, place) = (Arc::clone(&served.store), path.to_owned());
        let patience = self.attempts.begin_plan();
        let is_at = on_thread(unit, &patience, move |_| store.is_at(&place));
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
    pub(in crate::daemon) fn reopen(&self, lun: &str, index: UnitIndex) -> Result<(), Problem> {
        let mut history = self.writer()?;
        let now = self.in_force();
        let old = &now.running;
        let Some(position) = old.unit_position(index) else {
            let detail = format!("lun {lun:?} was changed meanwhile; see tarn lun show {lun}");
            return Err(Problem::new(ProblemKind::Conflict, detail));
        };
        let means = Means {
            state: &self.state,
            inherited: &self.inherited,
            patience: self.attempts.begin_plan(),
            cores: self.cores,
        };
        let (model, secrets) = (Model::clone(&old.model), Arc::clone(&old.secrets));
        let units = Match::itself(&model, position);
        let mut prepared = apply::prepare(old, model, secrets, &units, &means)
            .map_err(|error| unprepared(&error))
            .inspect_err(|_| settle(&self.state, &old.model))?;
        prepared
            .add_units(&self.plane)
            .map_err(failed)
            .inspect_err(|_| settle(&self.state, &old.model))?;
        let mut applied = Applied {
            changes_text: false,
            revision: now.document.revision,
            steps: Vec::new(),
            warnings: Vec::new(),
            unsettled: None,
        };
        let document = now.document.clone();
        self.put_in_force(&now, prepared, &mut history, document, &mut applied);
        for warning in applied.warnings.iter().chain(&applied.unsettled) {
            tracing::warn!(lun, warning, "a medium was opened again");
        }
        self.note_reopened(lun);
        Ok(())
    }

    fn note_reopened(&self, lun: &str) {
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
            author: None,
            command: None,
        });
    }
}
