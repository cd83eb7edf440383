//! What a plan can see of what would keep its change from being made, beside the rules of `steps`.

use std::fs;

use api::plan::{Effect, Kind, Plan, Step};
use config::{Model, Unit};
use plane::MediumReport;

use super::apply::on_thread;
use super::attempts::Patience;
use super::effect::{Consequence, PlannedStep};
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::StartError;
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
    for (position, (unit, from)) in model.units().iter().zip(&units.from).enumerate() {
        let before = served(old, *from);
        let stays = before.is_some_and(|(before, _)| units.keeps(position, before, unit));
        let name = unit.to_string();
        let steps = plan.steps.iter_mut();
        let step = steps
            .filter(|step| step.effect != Effect::Refused)
            .find(|step| step.kind == Kind::Lun && step.name == name);
        let Some(step) = step.filter(|_| !stays) else {
            continue;
        };
        match on_thread(unit, patience, size_at_place).flatten() {
            Ok(size_bytes) => {
                if let (Some(size_bytes), Some((_, before))) = (size_bytes, before) {
                    name_size(step, before, size_bytes);
                }
            }
            Err(error) => {
                step.effect = Effect::Refused;
                step.reason = Some(crate::error::chain(&error));
                plan.is_applicable = false;
            }
        }
    }
}

/// The size that a unit will have, as far as it can be known without opening its store.
fn size_at_place(unit: &Unit) -> Result<Option<u64>, StartError> {
    let location = locate(unit)?;
    let file = location.and_then(|location| fs::metadata(location.path).ok());
    let file = file.filter(fs::Metadata::is_file);
    Ok(unit
        .store
        .configured_size_bytes()
        .or_else(|| Some(file?.len())))
}

/// Refuses what the whereabouts of removable media forbid: another size for one that is out, and another medium in the
/// place of one that initiators hold. `medium` gives them.
pub(super) fn refuse_by_media(
    steps: &mut [PlannedStep],
    old: &Running,
    model: &Model,
    units: &Match,
    medium: impl Fn(&RunningUnit) -> MediumReport,
) {
    for (position, (unit, from)) in model.units().iter().zip(&units.from).enumerate() {
        let removable = served(old, *from).filter(|(before, _)| before.store.removable);
        let Some((before, running)) = removable else {
            continue;
        };
        let (lun, report) = (unit.to_string(), medium(running));
        let size = running.store.capabilities().size_bytes;
        let grows = unit.store.size_bytes.is_some_and(|wanted| wanted > size);
        let keeps = units.keeps(position, before, unit);
        let consequence = match report.is_in {
            false if keeps && grows => Consequence::MediumOut { lun: lun.clone() },
            true if !keeps && !report.prevented_by.is_empty() => Consequence::MediumHeld {
                lun: lun.clone(),
                names: report.prevented_by,
            },
            true | false => continue,
        };
        let is_its = |step: &&mut PlannedStep| step.kind == Kind::Lun && step.name == lun;
        if let Some(step) = steps.iter_mut().find(is_its) {
            step.consequence = consequence;
        }
    }
}

/// Says beside the steps that were made how large the media are that have come, and those they came for.
pub(super) fn name_sizes(steps: &mut [Step], old: &Running, new: &Running) {
    let drains = |step: &&mut Step| step.kind == Kind::Lun && step.effect == Effect::NeedsDrain;
    for step in steps.iter_mut().filter(drains) {
        if let (Some(before), Some(after)) =
            (old.unit_named(&step.name), new.unit_named(&step.name))
        {
            name_size(step, before, after.store.capabilities().size_bytes);
        }
    }
}

fn name_size(step: &mut Step, before: &RunningUnit, size_bytes: u64) {
    let size_before = before.store.capabilities().size_bytes;
    let reason = step.reason.take().unwrap_or_default();
    step.reason = Some(format!(
        "another medium comes, of {size_bytes} bytes for one of {size_before}: {reason}"
    ));
}

/// The unit that a new one comes from.
fn served(old: &Running, from: Option<usize>) -> Option<(&Unit, &RunningUnit)> {
    let at = from?;
    Some((old.model.units().get(at)?, old.units.get(at)?))
}
