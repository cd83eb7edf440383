//! Caches that go alone: the disk goes on, and everyone whose writes went has to learn of it.

use super::World;
use super::known::Losses;
use crate::initiator::{Answer, Breach, Operation, Task};
use crate::ledger::{Handle, WriteId};
use crate::trace::Actor;

/// Sense key, ASC and ASCQ by which an initiator learns of it.
pub(super) const REPORT: (u8, u8, u8) = (0x04, 0x0c, 0x00);

impl World {
    /// The cache of the disk goes, if it is time for that.
    pub(super) fn lose_cache_now_and_then(&mut self) {
        let permille = self.scenario.losses;
        if permille == 0 || !self.losses.prng.chance(permille) {
            return;
        }
        let before = self.disk.content();
        self.disk.lose_cache();
        let gone = self.ledger.lose_cache(&before, &self.disk.content());
        self.swapped.clear();
        self.losses.since = self.next_handle;
        self.note(
            Actor::Disk,
            format_args!("loses its cache, with writes {gone:?}"),
        );
        for creditor in self.losses.creditors.values_mut() {
            creditor.may_learn |= creditor.has_written;
        }
        for (handle, (initiator, known)) in &self.losses.writes {
            if known.is_none() {
                let creditor = self.losses.creditors.entry(*initiator).or_default();
                creditor.late.insert(*handle);
            }
        }
        for id in gone {
            let Some((initiator, _)) = self.losses.writes.get(&id) else {
                continue;
            };
            let creditor = self.losses.creditors.entry(*initiator).or_default();
            creditor.gone.insert(id);
        }
    }

    /// A command is about to be sent.
    pub(super) fn note_for_losses(&mut self, by: usize, handle: Handle, operation: &Operation) {
        let creditor = self.losses.creditors.entry(by).or_default();
        if operation.writes() {
            creditor.has_written = true;
            creditor.last_write = handle;
            self.losses.writes.insert(handle, (by, None));
        }
        let session = self.players[by].session.as_ref();
        let is_writing =
            session.is_some_and(|session| session.tasks().any(|(_, task)| task.operation.writes()));
        if operation.flushes() && !is_writing {
            self.losses.whole.insert(handle);
        }
    }

    /// A flush that ends with GOOD covers what its initiator knew to be done when it was sent.
    pub(super) fn check_losses(
        &mut self,
        by: usize,
        task: &Task,
        answer: &Answer,
    ) -> Result<(), Breach> {
        let handle = task.handle;
        let is_good = answer.status == 0;
        let is_report = answer.status == 2 && answer.sense == Some(REPORT);
        if task.operation.writes() {
            return self.check_written(by, handle, (is_good, is_report));
        }
        if is_report {
            let creditor = self.losses.creditors.entry(by).or_default();
            if !creditor.may_learn && creditor.late.is_empty() {
                let detail = format!("{:?} of initiator {by}", task.operation);
                return Err(Breach::new("a-lost-cache-is-reported-once", detail));
            }
            creditor.may_learn = false;
            creditor.gone.clear();
            creditor.has_learned = true;
        }
        let is_whole = self.losses.whole.remove(&handle);
        if !is_good || !task.operation.flushes() {
            return Ok(());
        }
        // The report may be on its way on another connection.
        let switches = self.scenario.cache_switches > 0;
        let session = self.players[by].session.as_ref();
        let is_flushing = session.is_some_and(|session| {
            session
                .tasks()
                .any(|(_, other)| other.operation.flushes() || switches && other.operation.writes())
        });
        let Losses {
            creditors, writes, ..
        } = &mut self.losses;
        let creditor = creditors.entry(by).or_default();
        let was_done = |id: &&WriteId| {
            let known = writes.get(*id).and_then(|(_, since)| *since);
            known.is_some_and(|since| since <= handle)
        };
        if let Some(id) = creditor.gone.iter().find(was_done)
            && !is_flushing
        {
            let detail = format!("initiator {by} has no report that its write {id} has gone");
            return Err(Breach::new("a-lost-cache-is-reported", detail));
        }
        if is_whole && creditor.last_write < handle {
            creditor.has_written = false;
            creditor.may_learn = false;
        }
        Ok(())
    }

    /// A write has ended. One that is durable when it is good fails if it may have gone with the cache, and only then.
    fn check_written(
        &mut self,
        by: usize,
        handle: Handle,
        (is_good, is_report): (bool, bool),
    ) -> Result<(), Breach> {
        if is_report && !self.losses.may_have_undone(handle) {
            let detail = format!("write {handle} of initiator {by}");
            return Err(Breach::new("a-lost-cache-is-reported-once", detail));
        }
        if !is_good {
            self.losses.note_unanswered(handle);
            return Ok(());
        }
        let next_handle = self.next_handle;
        if let Some((_, since)) = self.losses.writes.get_mut(&handle) {
            *since = Some(next_handle);
        }
        let creditor = self.losses.creditors.entry(by).or_default();
        creditor.may_learn |= creditor.late.remove(&handle);
        Ok(())
    }
}
