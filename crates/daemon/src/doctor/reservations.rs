//! The rule about reservations that nobody is left to release.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::event::{Finding, Severity};
use plane::{Conflict, UnitIndex};

use super::{Facts, of_lun};
use crate::control::{Daemon, InForce};
use crate::reservations::{blame, initiators_of};

/// It is over when no command has met a conflict for so long, or one of the holders is back.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// A unit with a reservation in the way of others, and nobody of its holders is there.
#[derive(Clone, Debug)]
pub(super) struct Stranded {
    pub(super) lun: String,
    /// The initiator that met the last conflict.
    pub(super) initiator: String,
    /// Who holds it.
    pub(super) blame: String,
}

/// Cores are asked for their sessions only where a command has met a conflict within [`QUIET`].
pub(super) fn stranded(daemon: &Daemon, in_force: &InForce, now: Instant) -> Vec<Stranded> {
    let mut last: BTreeMap<UnitIndex, Conflict> = BTreeMap::new();
    for trouble in daemon
        .plane
        .counts()
        .into_iter()
        .flat_map(|core| core.troubles)
    {
        let Some(conflict) = trouble.conflict else {
            continue;
        };
        let is_recent = now.saturating_duration_since(conflict.at) < QUIET;
        let is_last = last
            .get(&trouble.unit)
            .is_none_or(|one| one.at < conflict.at);
        if is_recent && is_last {
            last.insert(trouble.unit, conflict);
        }
    }
    if last.is_empty() {
        return Vec::new();
    }
    let Ok(sessions) = daemon.sessions_now() else {
        return Vec::new();
    };
    let running = &in_force.running;
    let stranded = last.into_iter().filter_map(|(index, conflict)| {
        let unit = running.model.units().get(running.unit_position(index)?)?;
        let report = daemon.plane.reservations(index);
        let here = initiators_of(&sessions, index);
        let holders = report.holders();
        let is_there = holders.iter().any(|one| here.contains(&one.initiator.name));
        (!holders.is_empty() && !is_there).then(|| Stranded {
            lun: unit.to_string(),
            initiator: conflict.initiator.into(),
            blame: blame(&report),
        })
    });
    stranded.collect()
}

pub(super) fn stranded_reservations(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.stranded.iter().map(|one| {
        let Stranded { lun, initiator, blame } = one;
        let message = format!(
            "commands of {initiator} end with RESERVATION CONFLICT: {blame}, without a session that could release it"
        );
        let remedy = format!(
            "start that initiator, have another one preempt it, or end it with tarn lun reservation clear {lun}"
        );
        of_lun(Severity::Warning, "reservation-stranded", lun, message, remedy)
    });
    findings.collect()
}
