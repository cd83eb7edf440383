//! What a plan can see of what would keep its change from being made, beside the rules of `steps`.

use std::fs;

use admin::ServiceTls;
use api::plan::{Action, Effect, Kind, Plan, Step};
use api::problem::Problem;
use config::{Model, Place, StoreSpec, Unit};
use confine::inherited::Inherited;
use plane::MediumReport;

use super::apply::on_thread;
use super::attempts::Patience;
use super::control::unprepared;
use super::effect::{Consequence, PlannedStep};
use super::open::open_tls;
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::StartError;
use crate::confinement::Reach;
use crate::locate::{Location, first_twice, locate_store};

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
        let kept = before.filter(|(before, _)| units.keeps(position, before, unit));
        let count = kept.map_or(0, |(before, _)| before.parts().count());
        let name = unit.to_string();
        let steps = plan.steps.iter_mut();
        let step = steps
            .filter(|step| step.effect != Effect::Refused)
            .find(|step| step.kind == Kind::Lun && step.name == name);
        let Some(step) = step else {
            continue;
        };
        let sizes = unit.parts().skip(count);
        let sizes = sizes.map(|part| on_thread(part, patience, size_at_place)?);
        match sizes.collect::<Result<Vec<_>, _>>() {
            Ok(sizes) => {
                let is_whole = unit.store.members().is_empty();
                if let (Some(&Some(size_bytes)), true, Some((_, before))) =
                    (sizes.first(), is_whole, before)
                {
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
    refuse_twice(plan, old, model, units, patience);
}

/// Refuses a unit that would have what another one has. What cannot be looked at is left to the change.
fn refuse_twice(
    plan: &mut Plan,
    old: &Running,
    model: &Model,
    units: &Match,
    patience: &Patience<'_>,
) {
    let mut locations = Vec::new();
    for (position, (unit, from)) in model.units().iter().zip(&units.from).enumerate() {
        let kept = from.and_then(|at| Some((old.units.get(at)?, old.model.units().get(at)?)));
        let kept = kept.filter(|(_, before)| units.keeps(position, before, unit));
        let before = kept.and_then(|(served, _)| served.location.clone());
        let count = kept.map_or(0, |(_, before)| before.parts().count());
        let found = unit.parts().skip(count);
        let found = found.filter_map(|part| on_thread(part, patience, locate_store).ok()?.ok()?);
        locations.push(Location::joined(before, found.collect()));
    }
    let Some((position, error)) = first_twice(model, &locations) else {
        return;
    };
    let name = model.units().get(position).map(ToString::to_string);
    let mut steps = plan.steps.iter_mut();
    let step = steps.find(|step| {
        step.kind == Kind::Lun
            && Some(&step.name) == name.as_ref()
            && step.effect != Effect::Refused
    });
    if let Some(step) = step {
        step.effect = Effect::Refused;
        step.reason = Some(crate::error::chain(&error));
        plan.is_applicable = false;
    }
}

/// The size that a store will have, as far as it can be known without opening it.
fn size_at_place(store: &StoreSpec, place: &Place) -> Result<Option<u64>, StartError> {
    let location = locate_store(store, place)?;
    let file = location.and_then(|location| fs::metadata(location.path).ok());
    let file = file.filter(fs::Metadata::is_file);
    let configured = store.configured_size_bytes();
    Ok(configured.or_else(|| Some(file?.len())))
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
        let grows = unit.store.size_bytes.is_some_and(|wanted| wanted > size)
            || unit.store.members() != before.store.members();
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

/// Refuses steps for what this process cannot reach, and adds those for files that hold something else now.
pub(super) fn inspect(
    steps: &mut Vec<PlannedStep>,
    old: &Running,
    model: &Model,
    reach: &Reach,
    inherited: &Inherited,
) -> Result<(), Problem> {
    reach.refuse(steps, model, inherited);
    super::hyperscsi::refuse(steps, old, model);
    let renewed = new_certificates(old, model).map_err(|error| unprepared(&error))?;
    steps.extend(renewed);
    Ok(())
}

/// Servers of NBD whose files of TLS hold something else than when they were read last.
fn new_certificates(old: &Running, model: &Model) -> Result<Vec<PlannedStep>, StartError> {
    let read = open_tls(model)?;
    let servers = model.nbd().iter().zip(read);
    let step = |(server, read): (&config::NbdServer, Option<ServiceTls>)| {
        let name = server.at.to_string();
        let is_new = old.tls_of(&name)?.digest != read?.digest;
        let detail = "other files of its certificate".to_owned();
        is_new.then(|| PlannedStep::new(Action::Change, Kind::Nbd, name, detail))
    };
    Ok(servers.filter_map(step).collect())
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
