//! Whom a change takes what away: sessions that see a unit now and do not see it, or not its data, when it is made.
//!
//! It looks at what the rules say of the sessions that are there, so it is as right as the change itself; sessions that
//! come in between are not in it. How busy they are is the difference of two readings of the counters of the cores,
//! which nobody is asked for: one a second is kept.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::plan::{Action, Kind, Taken};
use plane::{CoreCounts, SessionReport, UnitIndex, VisibleLun};

use super::access::Verdict;
use super::effect::{Consequence, PlannedStep};
use super::hyperscsi::group_of;
use super::running::Running;

/// A reading that is younger says too little of how busy anybody is.
const READING_AGE_MIN: Duration = Duration::from_millis(500);

/// A reading that is older says nothing of the last second.
const READING_AGE_MAX: Duration = Duration::from_secs(5);

/// Commands that were answered, by unit and initiator.
#[derive(Debug)]
struct Reading {
    at: Instant,
    counts: HashMap<(UnitIndex, String), u64>,
}

impl Reading {
    fn new(counts: &[CoreCounts]) -> Self {
        let mut sums = HashMap::new();
        for one in counts.iter().flat_map(|core| &core.series) {
            let sum = sums
                .entry((one.unit, one.initiator.clone()))
                .or_insert(0_u64);
            *sum += one.kinds.iter().map(|kind| kind.count).sum::<u64>();
        }
        Self {
            at: Instant::now(),
            counts: sums,
        }
    }
}

/// The last readings of the counters.
#[derive(Debug, Default)]
pub(super) struct Readings(Mutex<[Option<Reading>; 2]>);

impl Readings {
    /// To be called once a second.
    pub(super) fn read(&self, counts: &[CoreCounts]) {
        self.keep(Reading::new(counts));
    }

    fn keep(&self, reading: Reading) {
        // One that panicked has left older readings.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [older, newer] = &mut *kept;
        *older = newer.replace(reading);
    }

    /// How busy initiators are now.
    pub(super) fn rates(&self, counts: &[CoreCounts]) -> Rates {
        self.since(&Reading::new(counts))
    }

    fn since(&self, now: &Reading) -> Rates {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = READING_AGE_MIN..READING_AGE_MAX;
        let mut readings = kept.iter().rev().flatten();
        let before = readings.find(|one| ages.contains(&now.at.duration_since(one.at)));
        let Some(before) = before else {
            return Rates::default();
        };
        let milliseconds = now.at.duration_since(before.at).as_millis().max(1);
        let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
        let rate = |(key, count): (&(UnitIndex, String), &u64)| {
            let earlier = before.counts.get(key).copied().unwrap_or_default();
            let more = count.saturating_sub(earlier);
            (key.clone(), more.saturating_mul(1000) / milliseconds)
        };
        Rates(now.counts.iter().map(rate).collect())
    }
}

/// Commands a second, by unit and initiator.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<(UnitIndex, String), u64>);

impl Rates {
    fn of(&self, unit: UnitIndex, initiator: &str) -> u64 {
        let key = (unit, initiator.to_owned());
        self.0.get(&key).copied().unwrap_or_default()
    }
}

/// What runs and who uses it.
pub(super) struct Users<'a> {
    pub(super) old: &'a Running,
    pub(super) sessions: &'a [SessionReport],
    pub(super) rates: &'a Rates,
}

impl Users<'_> {
    /// Puts what sessions lose beside the steps that are the reason. Those that end have their step already.
    pub(super) fn name(&self, steps: &mut [PlannedStep], verdict: &Verdict) {
        for session in &verdict.ended {
            let its = |step: &&mut PlannedStep| step.sessions_ended.contains(&session.id.0);
            for step in steps.iter_mut().filter(its) {
                step.taken.extend(self.taken(session, &session.luns));
            }
        }
        for grant in &verdict.granted {
            let Some(session) = self.sessions.iter().find(|one| one.id == grant.session) else {
                continue;
            };
            let of = |lun: &VisibleLun| (lun.lun, lun.unit);
            let left: HashSet<_> = grant.luns.iter().map(of).collect();
            for lun in session.luns.iter().filter(|lun| !left.contains(&of(lun))) {
                self.name_lost(steps, session, lun);
            }
        }
        self.name_exchanged(steps);
    }

    /// A unit that a session sees no more: the step that takes it out of the target or the group of HyperSCSI, and the
    /// one that removes it; else the first about groups and users, or any.
    fn name_lost(&self, steps: &mut [PlannedStep], session: &SessionReport, lun: &VisibleLun) {
        let (target, unit) = (self.target_of(session), self.unit_of(lun));
        let view = target.map(|target| format!("{target} LUN {} (", lun.lun));
        let group = group_of(self.old, session).map(ToString::to_string);
        let is_view = |step: &PlannedStep| {
            let names = |view: &String| step.name.starts_with(view);
            step.kind == Kind::View && view.as_ref().is_some_and(names)
                || step.kind == Kind::HyperScsi && group.as_ref() == Some(&step.name)
        };
        let removes = |step: &PlannedStep| {
            step.kind == Kind::Lun && step.action == Action::Remove && step.name == unit
        };
        let taken = self.taken(session, std::slice::from_ref(lun));
        let mut is_named = false;
        for step in steps
            .iter_mut()
            .filter(|step| is_view(step) || removes(step))
        {
            step.taken.extend(taken.clone());
            is_named = true;
        }
        if is_named {
            return;
        }
        let of_rules = |step: &PlannedStep| matches!(step.kind, Kind::Group | Kind::User);
        let at = steps.iter().position(of_rules);
        let at = at.or_else(|| (!steps.is_empty()).then_some(0));
        if let Some(step) = at.and_then(|at| steps.get_mut(at)) {
            step.taken.extend(taken);
        }
    }

    /// Who sees a unit that gets another store or medium has other data then.
    fn name_exchanged(&self, steps: &mut [PlannedStep]) {
        let gets_other = |step: &&mut PlannedStep| {
            let consequence = &step.consequence;
            matches!(
                consequence,
                Consequence::OtherStore { .. } | Consequence::OtherMedium
            )
        };
        for step in steps.iter_mut().filter(gets_other) {
            let Some(index) = self.old.unit_named(&step.name).map(|unit| unit.index) else {
                continue;
            };
            for session in self.sessions.iter().filter(|session| !session.is_ending) {
                let its = session.luns.iter().filter(|lun| lun.unit == index);
                let its: Vec<VisibleLun> = its.copied().collect();
                step.taken.extend(
                    self.taken(session, &its)
                        .into_iter()
                        .filter(|one| one.lun.is_some()),
                );
            }
        }
    }

    fn target_of(&self, session: &SessionReport) -> Option<&str> {
        let at = session
            .target
            .and_then(|index| self.old.target_position(index))?;
        let target = self.old.model.targets().get(at)?;
        Some(target.name.as_str())
    }

    fn unit_of(&self, lun: &VisibleLun) -> String {
        let at = self.old.unit_position(lun.unit);
        at.map(|at| self.old.unit_name(at)).unwrap_or_default()
    }

    /// What a session loses with these units; one that sees none loses itself.
    fn taken(&self, session: &SessionReport, luns: &[VisibleLun]) -> Vec<Taken> {
        let of = |lun: Option<&VisibleLun>| Taken {
            session: session.id.0,
            initiator: session.initiator_name.clone(),
            target: self.target_of(session).map(str::to_owned),
            lun: lun.map(|lun| lun.lun),
            id: lun.map(|lun| self.unit_of(lun)),
            ios_per_second: lun.map_or(0, |lun| self.rates.of(lun.unit, &session.initiator_name)),
        };
        match luns {
            [] => vec![of(None)],
            luns => luns.iter().map(|lun| of(Some(lun))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_second_or_it_is_none() {
        let begin = Instant::now();
        let reading = |ms: u64, count: u64| Reading {
            at: begin + Duration::from_millis(ms),
            counts: HashMap::from([((UnitIndex(7), "h".to_owned()), count)]),
        };
        let readings = Readings::default();
        let rate = |ms, count, initiator| {
            let rates = readings.since(&reading(ms, count));
            rates.of(UnitIndex(7), initiator)
        };
        assert_eq!(rate(2000, 9, "h"), 0, "nothing was read before");
        readings.keep(reading(0, 100));
        assert_eq!(rate(499, 200, "h"), 0, "too young");
        assert_eq!(rate(500, 200, "h"), 200);
        readings.keep(reading(1000, 600));
        assert_eq!(
            rate(1250, 700, "h"),
            480,
            "the one before, since the last is too young"
        );
        assert_eq!(rate(2000, 1600, "h"), 1000);
        assert_eq!(rate(2000, 1600, "other"), 0);
        assert_eq!(rate(6000, 1600, "h"), 0, "too old");
    }
}
