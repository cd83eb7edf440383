//! Whose writes a store has answered and no flush of theirs has covered, and who has to learn that they may be lost.
//!
//! A store that is somewhere else counts how often it may have lost what it had answered
//! ([`Backstore::lost`](store::Backstore::lost)); it goes on after that, and a flush of it is good. So each initiator
//! that has written since its last good flush learns of it by its next one; a flush of another initiator is no report
//! to it. An initiator is a device with its principal, not one of its sessions: hosts with several paths and clients
//! of NBD with several connections write by one and flush by another. Each of its sessions gets the report, once, as
//! nobody knows whether two of them are one program. What was not reported when its last session ended, is reported to
//! its next one. An administrator learns of it by the last flush of the unit, and by the one before an eject.
//!
//! One book is shared by the cores of a unit, for the time of a look at it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scsi::reservation::device_of;
use scsi::{NexusId, PortName, Principal};

/// So many initiators without a session are known. What others have to learn is reported to the next session of any.
const ABSENT_MAX: usize = 256;

/// The name of an initiator: its principal, and the device of its ports.
type Name = Arc<(Principal, Box<[u8]>)>;

/// What one flush covers, if it is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// How many writes its initiator had begun.
    writes: u64,
}

#[derive(Debug, Default)]
struct Initiator {
    /// How often the store had lost something when the first of its writes began that no flush of it has covered.
    since: Option<u64>,
    /// How many writes it has begun.
    writes: u64,
    /// The last loss that concerns it, by its number.
    loss: u64,
    /// That was reported to a session of it.
    is_reported: bool,
    sessions: usize,
    /// It is in the list of those without a session, perhaps from an earlier time.
    is_listed: bool,
}

impl Initiator {
    /// There is nothing to report to it, nor may there be.
    const fn is_clear(&self) -> bool {
        self.since.is_none() && (self.is_reported || self.loss == 0)
    }

    /// Its writes before the loss of this number may be lost.
    fn meet(&mut self, lost: u64) {
        if self.since.is_some_and(|since| since < lost) {
            self.since = Some(lost);
            self.loss = lost;
            self.is_reported = false;
        }
    }
}

#[derive(Debug)]
struct Session {
    name: Name,
    /// The last loss that was reported to it, or was nothing to it, by its number.
    reported: u64,
}

#[derive(Debug, Default)]
struct Book {
    initiators: HashMap<Name, Initiator>,
    sessions: HashMap<NexusId, Session>,
    /// Initiators that lost their last session, oldest first.
    absent: VecDeque<Name>,
    /// The first of the uncovered writes of initiators that found no place.
    anyone: Option<u64>,
    /// Losses up to this one were reported to an administrator.
    administrator: u64,
}

/// The book of one unit; see the module.
#[derive(Debug, Default)]
pub struct Uncovered(Mutex<Book>);

impl Uncovered {
    /// Every change of it is whole.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write goes to the store, which has lost something `lost` times.
    pub(crate) fn note_write(&self, nexus: NexusId, name: &PortName, lost: u64) {
        let mut book = self.book();
        let (initiator, _) = book.enter(nexus, name);
        initiator.meet(lost);
        initiator.since.get_or_insert(lost);
        initiator.writes += 1;
    }

    /// A flush goes to the store.
    pub(crate) fn mark(&self, nexus: NexusId, name: &PortName) -> Mark {
        let mut book = self.book();
        let (Initiator { writes, .. }, _) = book.enter(nexus, name);
        Mark { writes: *writes }
    }

    /// The store has answered a flush as good, and its nexus is there to be answered. Whether a loss has to be
    /// reported to it instead; then it counts as reported.
    pub(crate) fn settle(&self, nexus: NexusId, name: &PortName, mark: Mark, lost: u64) -> bool {
        let mut book = self.book();
        let (initiator, reported) = book.enter(nexus, name);
        initiator.meet(lost);
        if initiator.writes == mark.writes {
            initiator.since = None;
        }
        let is_owed = *reported < initiator.loss;
        if is_owed {
            initiator.is_reported = true;
            *reported = initiator.loss;
        }
        is_owed
    }

    /// A nexus is gone. `is_covered`: a flush of somebody has covered all that the store has answered.
    pub(crate) fn depart(&self, nexus: NexusId, (lost, is_covered): (u64, bool)) {
        let mut book = self.book();
        let Some(Session { name, reported }) = book.sessions.remove(&nexus) else {
            return;
        };
        let Some(initiator) = book.initiators.get_mut(&name) else {
            debug_assert!(false, "a session without an initiator");
            return;
        };
        initiator.sessions -= 1;
        initiator.meet(lost);
        // It was reported to another session, which may be another program.
        initiator.is_reported &= reported >= initiator.loss;
        if initiator.sessions > 0 {
            return;
        }
        if is_covered {
            initiator.since = None;
        }
        if initiator.is_clear() {
            book.initiators.remove(&name);
        } else if !std::mem::replace(&mut initiator.is_listed, true) {
            book.absent.push_back(name);
            book.limit_absent();
        }
    }

    /// Whether a loss is still to be reported to somebody, and was to no administrator.
    pub(crate) fn is_owed(&self, lost: u64) -> bool {
        self.book().is_owed(lost)
    }

    /// The same; and it is reported to an administrator now.
    pub(crate) fn report_to_administrator(&self, lost: u64) -> bool {
        let mut book = self.book();
        let is_owed = book.is_owed(lost);
        book.administrator = book.administrator.max(lost);
        is_owed
    }
}

impl Book {
    /// The initiator of a nexus, and what was reported to the nexus.
    fn enter(&mut self, nexus: NexusId, port: &PortName) -> (&mut Initiator, &mut u64) {
        let session = self.sessions.entry(nexus);
        let is_new = matches!(session, std::collections::hash_map::Entry::Vacant(_));
        let session = session.or_insert_with(|| Session {
            name: Arc::new((port.principal.clone(), device_of(&port.transport_id).into())),
            reported: 0,
        });
        let initiator = self.initiators.entry(Arc::clone(&session.name));
        let initiator = initiator.or_default();
        if is_new {
            initiator.sessions += 1;
            let inherited = self.anyone.take();
            initiator.since = initiator.since.into_iter().chain(inherited).min();
            // What was reported to another session of its initiator is known there.
            session.reported = if initiator.is_reported {
                initiator.loss
            } else {
                0
            };
        }
        (initiator, &mut session.reported)
    }

    /// Drops the oldest without a session, but not what they have to learn.
    fn limit_absent(&mut self) {
        while self.absent.len() > ABSENT_MAX {
            let Some(name) = self.absent.pop_front() else {
                return;
            };
            let Some(initiator) = self.initiators.get_mut(&name) else {
                continue;
            };
            initiator.is_listed = false;
            if initiator.sessions == 0
                && let Some(initiator) = self.initiators.remove(&name)
            {
                let untold = (!initiator.is_reported && initiator.loss > 0).then_some(0);
                let all = self.anyone.into_iter().chain(initiator.since);
                self.anyone = all.chain(untold).min();
            }
        }
    }

    fn is_owed(&self, lost: u64) -> bool {
        let is_lost = |since: Option<u64>| since.is_some_and(|since| since < lost);
        let is_untold = |one: &Initiator| is_lost(one.since) || !one.is_reported && one.loss > 0;
        self.administrator < lost
            && (is_lost(self.anyone) || self.initiators.values().any(is_untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NexusId = NexusId(1);
    const B: NexusId = NexusId(2);
    const C: NexusId = NexusId(3);

    fn name(n: u16) -> PortName {
        PortName {
            transport_id: Arc::from(n.to_be_bytes()),
            target_port: 1,
            principal: Principal::Nobody,
        }
    }

    /// A flush that the store answers as good: whether a loss is reported.
    fn flush(book: &Uncovered, nexus: NexusId, of: u16, lost: u64) -> bool {
        let mark = book.mark(nexus, &name(of));
        book.settle(nexus, &name(of), mark, lost)
    }

    #[test]
    fn a_loss_is_reported_to_each_initiator_that_wrote_once() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        book.note_write(B, &name(2), 0);
        assert!(!flush(&book, C, 3, 1), "it wrote nothing");
        assert!(flush(&book, B, 2, 1));
        assert!(flush(&book, A, 1, 1), "what was reported to B was not to A");
        assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 2, 1));
        book.note_write(A, &name(1), 1);
        assert!(!flush(&book, A, 1, 1), "nothing was lost since");
    }

    /// As a host with several paths, and as several programs that look like one.
    #[test]
    fn a_loss_of_one_session_is_reported_to_each_of_its_initiator() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        assert!(flush(&book, B, 1, 1), "it flushes what A has written");
        assert!(flush(&book, A, 1, 1));
        assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 1, 1));
        assert!(!flush(&book, C, 1, 1), "its initiator knows by then");
        // A write by one is covered by a flush of the other.
        book.note_write(A, &name(1), 1);
        assert!(!flush(&book, B, 1, 1) && !flush(&book, A, 1, 2));
    }

    #[test]
    fn what_a_good_flush_has_covered_is_not_reported_and_what_came_during_it_is() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        let mark = book.mark(A, &name(1));
        book.note_write(A, &name(1), 0);
        assert!(!book.settle(A, &name(1), mark, 0));
        assert!(flush(&book, A, 1, 1), "the second write");
        book.note_write(A, &name(1), 1);
        assert!(!flush(&book, A, 1, 1));
        assert!(!flush(&book, A, 1, 2), "it was covered before");
        // Two losses between two flushes are one.
        book.note_write(A, &name(1), 2);
        book.note_write(A, &name(1), 3);
        assert!(flush(&book, A, 1, 4) && !flush(&book, A, 1, 4));
    }

    #[test]
    fn what_was_not_reported_to_the_last_session_is_to_the_next_one() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        book.depart(A, (0, false));
        assert!(!flush(&book, B, 2, 1));
        assert!(flush(&book, C, 1, 1));
        book.depart(C, (1, true));
        assert!(!flush(&book, NexusId(4), 1, 1));
        book.depart(NexusId(4), (1, true));
        // It was reported to another session, but not to this one.
        let (a, b) = (NexusId(5), NexusId(6));
        book.note_write(a, &name(1), 1);
        assert!(flush(&book, b, 1, 2));
        book.depart(a, (2, true));
        assert!(flush(&book, NexusId(7), 1, 2));
        // Nothing is left of writes that somebody has flushed.
        book.note_write(B, &name(2), 2);
        book.depart(B, (2, true));
        assert!(!flush(&book, NexusId(8), 2, 3));
    }

    #[test]
    fn initiators_without_a_session_are_bounded_and_none_of_them_is_forgotten() {
        let book = Uncovered::default();
        for n in 0..1000 {
            book.note_write(A, &name(n), 0);
            book.depart(A, (0, false));
        }
        assert_eq!(book.book().absent.len(), ABSENT_MAX);
        assert_eq!(book.book().initiators.len(), ABSENT_MAX);
        assert!(flush(&book, C, 0, 1), "the next one that comes");
        assert!(!flush(&book, NexusId(4), 1, 1), "once");
        assert!(flush(&book, NexusId(5), 999, 1));
        for n in 0..1000 {
            let nexus = NexusId(100 + n);
            assert!(!flush(&book, nexus, 7, 1));
            book.depart(nexus, (1, false));
        }
        assert!(book.book().sessions.len() == 3, "C and two more");
    }

    #[test]
    fn what_initiators_do_not_know_is_reported_to_an_administrator_once() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        assert!(!book.is_owed(0));
        assert!(book.is_owed(1) && book.report_to_administrator(1));
        assert!(!book.is_owed(1) && !book.report_to_administrator(1));
        assert!(book.report_to_administrator(2));
        assert!(flush(&book, A, 1, 2), "to the initiator, all the same");
        assert!(!book.is_owed(3));
        book.note_write(A, &name(1), 3);
        book.depart(A, (4, true));
        assert!(book.report_to_administrator(4));
    }
}
