//! What a plan can see of what would keep its change from being made, beside the rules of `steps`.

use api::plan::{Effect, Kind, Plan};
use config::{Model, Unit};

use super::apply::{on_thread, same_medium};
use super::attempts::Patience;
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::locate::locate;

/// Refuses the steps of a plan whose stores are not where they must be. Nothing is opened, so what only opening shows
/// is not seen here.
pub(super) fn refuse_unlocated(
    plan: &mut Plan,
    old: &Running,
    model: &Model,
    units: &Match,
    patience: &Patience<'_>,
) {
    for (unit, from) in model.units().iter().zip(&units.from) {
        let stays = served(old, *from).is_some_and(|(before, _)| same_medium(before, unit));
        let name = unit.to_string();
        let steps = plan.steps.iter_mut();
        let step = steps
            .filter(|step| step.effect != Effect::Refused)
            .find(|step| step.kind == Kind::Lun && step.name == name);
        let Some(step) = step.filter(|_| !stays) else {
            continue;
        };
        if let Err(error) = on_thread(unit, patience, locate).flatten() {
            step.effect = Effect::Refused;
            step.reason = Some(crate::error::chain(&error));
            plan.is_applicable = false;
        }
    }
}

/// The unit that a new one comes from.
fn served(old: &Running, from: Option<usize>) -> Option<(&Unit, &RunningUnit)> {
    let at = from?;
    Some((old.model.units().get(at)?, old.units.get(at)?))
}
