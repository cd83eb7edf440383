//! What a core counts at the end of each turn, and which slow commands and failures of stores it reports.

use std::time::Duration;

use engine::{Ending, Phase, TaskKey, UnitIndex};
use scsi::StoreFailures;
use store::Cause;

use crate::core::Core;
use crate::counters::SlowReport;
use crate::events::Event;
use crate::slow::SlowCommand;

/// How many places of the table of tasks are looked at in one tick, so that a core with very many
/// commands does not stop for it. All have their turn in the ticks that follow.
const PLACES_PER_TICK: usize = 16 * 1024;

impl Core {
    /// Counts what the turn has completed.
    pub(crate) fn count_turn(&mut self) {
        let (engine, tally) = (&self.engine, &self.engine.carrier.tally);
        tally.note_turn(engine.session_count(), engine.pool().free_bytes());
        if !tally.is_even() {
            let (began, now) = (
                self.engine.carrier.reactor.now(),
                self.engine.carrier.reactor.clock(),
            );
            for report in self.engine.carrier.tally.count(began, now) {
                self.report_slow(&report, now);
            }
            for unit in self.engine.carrier.tally.take_unhappy() {
                self.report_failures(unit, now);
            }
            for (unit, initiator, count) in self.engine.carrier.tally.take_conflicts() {
                self.report_conflict(unit, &initiator, count, now);
            }
        }
    }

    /// Counts what the store of a unit failed to do, and reports some of it.
    fn report_failures(&self, index: UnitIndex, now: Duration) {
        let (engine, carrier) = (&self.engine, &self.engine.carrier);
        for failures in engine.take_store_failures(index) {
            let StoreFailures {
                cause,
                first,
                count,
            } = failures;
            let troubles = &carrier.tally.shared.troubles;
            let unreported = troubles.note_failures(index, cause, count, now);
            // There is an event of its own when it begins and when it ends.
            if cause == Cause::NotReady {
                continue;
            }
            let (Some(unreported), Some(unit)) = (unreported, carrier.units.get(index)) else {
                continue;
            };
            let unit = &*unit.name;
            tracing::error!(unit, %cause, unreported, failure = %first, "the store of a unit failed");
            carrier.events.emit(&Event::StoreFailed {
                unit,
                cause,
                failure: &first,
                unreported,
            });
        }
    }

    /// Counts commands that a reservation of others has ended, and reports some of it.
    fn report_conflict(&self, index: UnitIndex, initiator: &str, count: u64, now: Duration) {
        let carrier = &self.engine.carrier;
        let troubles = &carrier.tally.shared.troubles;
        let unreported = troubles.note_conflict(index, initiator, count, now);
        let (Some(unreported), Some(unit)) = (unreported, carrier.units.get(index)) else {
            return;
        };
        let unit = &*unit.name;
        tracing::info!(unit, initiator, unreported, "reservation conflict");
        carrier.events.emit(&Event::ReservationConflict {
            unit,
            initiator,
            reserved: &self.media.shared.reserved.get(index),
            unreported,
        });
    }

    /// Reports a command that is slow.
    pub(crate) fn report_slow(&self, report: &SlowReport, now: Duration) {
        let Some((unit, initiator)) = self.engine.carrier.tally.whose(report.account) else {
            return;
        };
        let phases = report.life.phases();
        let longest = phases.iter().max_by_key(|one| one.took);
        if longest.is_some_and(|one| one.phase == Phase::Store) {
            self.engine.carrier.tally.shared.troubles.note_slow(unit);
        }
        let Some(unit) = self.engine.carrier.units.get(unit) else {
            return;
        };
        let id = report.account.session;
        let session = self.sessions.session(id).or_else(|| self.nbd.session(id));
        let who = session
            .and_then(|key| self.engine.session(key))
            .map(|entry| entry.port.who());
        let command = SlowCommand {
            unit: &unit.name,
            initiator: who.map_or(initiator, |who| who.initiator),
            target: who.and_then(|who| who.target),
            user: who.and_then(|who| who.user),
            session: report.account.session,
            task_tag: report.account.task_tag,
            description: self.engine.carrier.tally.description(report.account),
            bytes: report.account.bytes,
            took: report.life.age(now),
            phases,
            ending: report.ending,
            unreported: report.unreported,
        };
        let (unit, initiator) = (command.unit, command.initiator);
        tracing::warn!(unit, initiator, %command, "slow command");
        self.engine
            .carrier
            .events
            .emit(&Event::SlowCommand(&command));
    }

    /// Reports, once, commands that have waited far too long and are not over.
    pub(crate) fn report_hanging(&mut self, now: Duration) {
        let places = self.engine.task_places();
        let slow = &mut self.engine.carrier.tally.slow;
        let Some(patience) = slow.patience() else {
            return;
        };
        if self.engine.task_count() == 0 {
            return;
        }
        for _ in 0..places.min(PLACES_PER_TICK) {
            let place = self.engine.carrier.tally.slow.next_place % places;
            let hanging = self.engine.hanging_task(place, patience);
            let slow = &mut self.engine.carrier.tally.slow;
            if hanging.is_some() && !slow.may_report(now) {
                // It keeps its turn.
                return;
            }
            slow.next_place = place + 1;
            if let Some(key) = hanging {
                self.report_hanging_task(key, now);
            }
        }
    }

    fn report_hanging_task(&mut self, key: TaskKey, now: Duration) {
        let Some((account, life)) = self.engine.note_hanging(key) else {
            return;
        };
        let Some(unreported) = self.engine.carrier.tally.slow.take(now) else {
            return;
        };
        let report = SlowReport {
            account,
            ending: Ending::Pending,
            life,
            unreported,
        };
        self.report_slow(&report, now);
    }
}
