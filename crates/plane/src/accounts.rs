//! What a core counts at the end of each turn, and which slow commands it reports.

use std::time::Duration;

use engine::{Ending, TaskKey};
use scsi::describe;

use crate::core::Core;
use crate::counters::Told;
use crate::slow::SlowCommand;
use crate::watcher::Happening;

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
            for told in self.engine.carrier.tally.count(began, now) {
                self.tell_slow(&told, now);
            }
        }
    }

    /// Reports a command that is slow.
    pub(crate) fn tell_slow(&self, told: &Told, now: Duration) {
        let Some((unit, initiator)) = self.engine.carrier.tally.whose(told.account) else {
            return;
        };
        let Some(unit) = self.engine.carrier.units.get(unit) else {
            return;
        };
        let who = self
            .sessions
            .session(told.account.session)
            .and_then(|key| self.engine.session(key))
            .map(|entry| entry.port.detail.who());
        let command = SlowCommand {
            unit: &unit.name,
            initiator: who.map_or(initiator, |who| who.initiator),
            target: who.and_then(|who| who.target),
            session: told.account.session,
            task_tag: told.account.task_tag,
            description: describe(&told.account.cdb),
            bytes: told.account.bytes,
            took: told.life.age(now),
            phases: told.life.phases(),
            ending: told.ending,
            untold: told.untold,
        };
        let (unit, initiator) = (command.unit, command.initiator);
        tracing::warn!(unit, initiator, %command, "slow command");
        self.engine
            .carrier
            .watcher
            .hear(&Happening::SlowCommand(&command));
    }

    /// Reports, once, commands that have waited far too long and are not over.
    pub(crate) fn tell_hanging(&mut self, now: Duration) {
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
                self.tell_hanging_task(key, now);
            }
        }
    }

    fn tell_hanging_task(&mut self, key: TaskKey, now: Duration) {
        let Some((account, life)) = self.engine.note_hanging(key) else {
            return;
        };
        let Some(untold) = self.engine.carrier.tally.slow.take(now) else {
            return;
        };
        let told = Told {
            account,
            ending: Ending::Pending,
            life,
            untold,
        };
        self.tell_slow(&told, now);
    }
}
