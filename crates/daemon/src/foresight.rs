//! What a plan can see of what would keep its change from being made, beside the rules of `steps`.

use std::collections::BTreeMap;

use api::plan::{Action, Effect, Kind, Step};
use config::{Model, Unit};
use confine::inherited::Inherited;
use plane::MediumReport;

use super::effect::{Consequence, PlannedStep};
use super::open::read_tls;
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::administration::{AdminListening, listens_otherwise};
use crate::confinement::Reach;

/// Refuses what the whereabouts of removable media forbid: another size for one that is out, and another medium in the
/// place of one that initiators hold. `medium` gives them. Names the units that only get another medium.
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
            true | false if units.exchanges(position, before, unit) => Consequence::OtherMedium,
            true | false => continue,
        };
        let is_its = |step: &&mut PlannedStep| step.kind == Kind::Lun && step.name == lun;
        let is_exchange = consequence == Consequence::OtherMedium;
        let is_other = |it: &Consequence| matches!(it, Consequence::OtherStore { .. });
        if let Some(step) = steps.iter_mut().find(is_its)
            && (!is_exchange || is_other(&step.consequence))
        {
            step.consequence = consequence;
        }
    }
}

/// Refuses another write cache for disks that cannot be flushed, or are not served.
pub(super) fn refuse_by_stores(
    steps: &mut [PlannedStep],
    old: &Running,
    model: &Model,
    units: &Match,
) {
    for (unit, from) in model.units().iter().zip(&units.from) {
        let Some((_, running)) = served(old, *from) else {
            continue;
        };
        let is_its =
            |step: &&mut PlannedStep| step.kind == Kind::Lun && step.name == unit.to_string();
        let Some(step) = steps.iter_mut().find(is_its) else {
            continue;
        };
        let is_held = running.opened.held.is_some();
        let is_stuck = running.store.is_flush_latched();
        let writes_through = step.consequence == Consequence::WritesThrough;
        let writes_back = step.consequence == Consequence::WritesBack;
        if is_held && (writes_through || writes_back) {
            step.consequence = Consequence::NotServed;
        } else if is_stuck && writes_through {
            step.consequence = Consequence::CacheStuck;
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
    administration: Option<&AdminListening>,
    cores: usize,
) {
    reach.refuse(steps, model, inherited);
    super::hyperscsi::refuse(steps, old, model, cores);
    steps.extend(new_certificates(old, model));
    let is_renewed = administration.is_some_and(|one| one.is_renewed(model));
    if is_renewed && !listens_otherwise(&old.model, model) {
        let detail = "another certificate in its file".to_owned();
        let name = "certificate".to_owned();
        steps.push(PlannedStep::new(Action::Change, Kind::Admin, name, detail));
    }
}

/// Servers of NBD whose files of TLS hold something else than when they were read last. What is wrong with files is
/// found elsewhere.
fn new_certificates(old: &Running, model: &Model) -> Vec<PlannedStep> {
    let step = |server: &config::NbdServer| {
        let name = server.at.to_string();
        let before = old.tls_of(&name)?;
        let is_new = before.digest != read_tls(server).ok()??.digest;
        let detail = "other files of its certificate".to_owned();
        is_new.then(|| PlannedStep::new(Action::Change, Kind::Nbd, name, detail))
    };
    model.nbd().iter().filter_map(step).collect()
}

/// Says beside the steps of a plan how large the media are that would come, and those they would come for.
pub(super) fn name_sizes_to_come(
    steps: &mut [Step],
    old: &Running,
    (model, units): (&Model, &Match),
    sizes: &BTreeMap<String, u64>,
) {
    for (unit, from) in model.units().iter().zip(&units.from) {
        let name = unit.to_string();
        let step = steps.iter_mut().find(|step| {
            step.effect != Effect::Refused && step.kind == Kind::Lun && step.name == name
        });
        if let (Some(step), Some((_, before)), Some(size_bytes)) =
            (step, served(old, *from), sizes.get(&name))
        {
            name_size(step, before, *size_bytes);
        }
    }
}

/// Says beside the steps that were made how large the media are that have come, and those they came for.
pub(super) fn name_sizes(steps: &mut [Step], old: &Running, new: &Running) {
    let drains = |step: &&mut Step| {
        step.kind == Kind::Lun && matches!(step.effect, Effect::Drains | Effect::TakesAway)
    };
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
    let sizes = format!("another medium comes, of {size_bytes} bytes for one of {size_before}: ");
    let reason = step.reason.take().unwrap_or_default();
    // The plan may have said it.
    step.reason = Some(match reason.starts_with(&sizes) {
        true => reason,
        false => sizes + &reason,
    });
}

/// The unit that a new one comes from.
fn served(old: &Running, from: Option<usize>) -> Option<(&Unit, &RunningUnit)> {
    let at = from?;
    Some((old.model.units().get(at)?, old.units.get(at)?))
}
