//! The way back to an earlier revision. What cannot go back stays as it is, or is left out, and a warning says so.
//! Administrators need a rollback when something is wrong: a disk that has grown is no reason to refuse it.
//!
//! Only LUNs stay: their steps can be refused for what happened since. The text of the earlier revision is edited for
//! that, and becomes the text of the new one. It is planned once more than other changes for that, under the same
//! limits, and the change that follows is looked at as any other.

use api::edit::{Edit, Keys, LunKeys, Name, Thing};
use api::plan::{Action, Effect, Inspection, Kind, Origin, Step};
use api::spec;
use config::Draft;

use crate::daemon::{Daemon, InForce};

impl Daemon {
    /// The text that an earlier one becomes, and what stays as it is or is left out. A text that cannot be planned at
    /// all is given back as it is.
    pub(super) fn way_back(
        &self,
        now: &InForce,
        past: String,
        inspection: Inspection,
    ) -> (String, Vec<String>) {
        let patience = self.attempts.begin_plan();
        let planned = self.planned(now, &past, (&Origin::Written, inspection), patience);
        let Ok(planned) = planned else {
            return (past, Vec::new());
        };
        let is_refused = |step: &&Step| step.kind == Kind::Lun && step.effect == Effect::Refused;
        let refused: Vec<&Step> = planned.plan.steps.iter().filter(is_refused).collect();
        let Some(mut draft) = Draft::parse(&past).ok().filter(|_| !refused.is_empty()) else {
            return (past, Vec::new());
        };
        let mut said = Vec::new();
        for step in refused {
            let reason = step.reason.as_deref().unwrap_or_default();
            let done = match step.action {
                Action::Add => leave_out(&mut draft, &step.name),
                Action::Change => self.keep(now, &mut draft, &step.name),
                Action::Remove => None,
            };
            said.extend(done.map(|what| format!("lun {} {what}: {reason}", step.name)));
        }
        (draft.to_string(), said)
    }

    /// Gives a unit of an earlier text the store and the identity that it runs with.
    fn keep(&self, now: &InForce, draft: &mut Draft, id: &str) -> Option<&'static str> {
        let specs = now.running.model.to_specs();
        let lun = specs.luns.iter().find(|lun| lun.id == id)?;
        let unit = now.running.unit_position_named(id)?;
        let unit = now.running.model.units().get(unit)?;
        // All of it or nothing.
        let mut tried = draft.clone();
        for member in unit.store.members() {
            let store = spec::Store {
                id: member.id.clone(),
                store: member.store.text.clone(),
            };
            tried.make(&Edit::Put(Thing::Store(store))).ok()?;
        }
        let keys = LunKeys::of([id])
            .with("store", lun.store.clone())
            .with("serial", lun.serial.clone().unwrap_or_default())
            .with("naa", lun.naa.clone().unwrap_or_default())
            .with("log", lun.log.clone().unwrap_or_default())
            .with("sync_bias", lun.sync_bias.clone().unwrap_or_default())
            .with("vendor_commands", lun.vendor_commands);
        tried.make(&Edit::Set(Keys::Lun(keys))).ok()?;
        *draft = tried;
        Some("stays as it is")
    }
}

/// Takes a unit that cannot come back out of an earlier text, unless more than targets name it.
fn leave_out(draft: &mut Draft, id: &str) -> Option<&'static str> {
    let lun = id.to_owned();
    let mut tried = draft.clone();
    tried.make(&Edit::Hide { lun: lun.clone() }).ok()?;
    tried.make(&Edit::Remove(Name::Lun(lun))).ok()?;
    *draft = tried;
    Some("is left out")
}
