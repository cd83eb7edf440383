//! Whose writes a store has answered and no flush of theirs has covered, and who has to learn that they may be lost.
//!
//! A store that is somewhere else counts how often it may have lost what it had answered
//! ([`Backstore::lost`](store::Backstore::lost)); it goes on after that, and a flush of it is good. So each
//! initiator that has written since its last good flush learns of it by its next one; a flush of another initiator
//! is no report to it. An initiator is a device with its principal, not one of its sessions: hosts with several
//! paths and clients of NBD with several connections write by one and flush by another. Each of its sessions gets
//! the report, once, as nobody knows whether two of them are one program. For each session that went while something
//! that it had written was not covered, or without its report, a later one gets what that did not. An administrator
//! learns of it by the last flush of the unit, and by the one before an eject. A loss of what was written before
//! this program began is reported to everybody.
//!
//! A write counts from its answer on, since a flush covers what was answered before it began, and with the losses
//! that were known when it began, since nobody knows at which end of a loss the server did it. So a write that was
//! under way at a loss may be a second report. An answer is no report until it has come: a session that ends without
//! a farewell within [`RECEIPT`] of its report may not have had it, and a host that is back sends the flush again.
//!
//! One book is shared by the cores of a unit, for the time of a look at it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use scsi::reservation::device_of;
use scsi::{NexusId, PortName, Principal};

/// So many initiators without a session are known. What others have to learn is reported to all that are not known.
const ABSENT_MAX: usize = 256;

/// A session that goes on for so long after a report has had it: no initiator waits longer for the answer to a flush
/// without an abort or another session.
const RECEIPT: Duration = Duration::from_secs(120);

/// The name of an initiator: its principal, and the device of its ports.
type Name = Arc<(Principal, Box<[u8]>)>;

/// What one flush covers, if it is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// How many writes of its initiator were answered when it began.
    writes: u64,
    /// How often the store had lost something then.
    lost: u64,
    /// How many initiators had been displaced then.
    displaced: u64,
}

/// How a nexus goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// A flush of somebody has covered all that the store has answered. Asked before `lost`, as a store that loses
    /// what it had answered has nothing to cover then.
    pub(crate) is_covered: bool,
    /// How often the store has lost something.
    pub(crate) lost: u64,
    /// Its initiator has had all answers.
    pub(crate) is_farewell: bool,
    pub(crate) now: Duration,
}

#[derive(Debug, Default)]
struct Initiator {
    /// How often the store had lost something when the first of its writes began that no flush of it has covered.
    since: Option<u64>,
    /// How many writes of it were answered.
    writes: u64,
    /// So many of them are covered.
    covered: u64,
    /// So many of them were when something was first lost.
    spared: Option<u64>,
    /// How many losses concern it.
    losses: u64,
    /// So many of them were reported to a session of it.
    reported: u64,
    sessions: usize,
    /// Sessions that went and may not know of all losses, and of how many they know at least.
    away: usize,
    known_away: u64,
    /// It is in the list of those without a session, perhaps from an earlier time.
    is_listed: bool,
}

impl Initiator {
    /// There is nothing to report to it, nor may there be.
    const fn is_clear(&self) -> bool {
        self.since.is_none() && !self.is_owed()
    }

    /// There is a loss that no session of it knows of, or one that is gone did not.
    const fn is_owed(&self) -> bool {
        self.reported < self.losses || self.away > 0 && self.known_away < self.losses
    }

    /// The store has lost something so many times: what was written before may be gone.
    fn meet(&mut self, lost: u64) {
        if self.since.is_some_and(|since| since < lost) {
            self.since = Some(lost);
            self.losses += 1;
            self.spared.get_or_insert(self.covered);
        }
    }

    /// Writes of it may be uncovered since so many losses.
    fn fear(&mut self, since: u64) {
        self.since = Some(self.since.map_or(since, |oldest| oldest.min(since)));
    }

    /// Everything that it has written is durable. Those that are gone need not know more.
    const fn cover(&mut self) {
        self.since = None;
        self.covered = self.writes;
        if self.known_away >= self.losses {
            self.away = 0;
        }
    }

    /// A session of it begins: of how many losses it knows.
    const fn welcome(&mut self) -> u64 {
        self.sessions += 1;
        if self.away == 0 {
            return self.reported;
        }
        self.away -= 1;
        self.known_away
    }

    /// A session of it goes.
    fn part(&mut self, session: &Session, is_unheard: bool) {
        self.sessions -= 1;
        let known = session.known.saturating_sub(u64::from(is_unheard));
        let may_lose = self.since.is_some() && session.last_write > self.covered;
        let has_lost = self
            .spared
            .is_some_and(|spared| session.last_write > spared);
        if may_lose || is_unheard || has_lost && known < self.losses {
            let least = if self.away == 0 {
                known
            } else {
                self.known_away
            };
            self.known_away = least.min(known);
            self.away += 1;
        }
    }
}

#[derive(Debug)]
struct Session {
    name: Name,
    /// Of how many losses of its initiator it knows, or need not.
    known: u64,
    /// Of its initiator's writes the last one that came by it, by its number from 1 on.
    last_write: u64,
    /// When it got its last report.
    reported_at: Option<Duration>,
}

impl Session {
    /// Its last report may not have come.
    fn is_unheard(&self, departure: &Departure) -> bool {
        let is_fresh = |at: Duration| departure.now.saturating_sub(at) < RECEIPT;
        !departure.is_farewell && self.reported_at.is_some_and(is_fresh)
    }
}

#[derive(Debug, Default)]
struct Book {
    initiators: HashMap<Name, Initiator>,
    sessions: HashMap<NexusId, Session>,
    /// Initiators that lost their last session, oldest first.
    absent: VecDeque<Name>,
    /// The first of the uncovered writes of initiators that are not known.
    anyone: Option<u64>,
    /// How many initiators found no place.
    displaced: u64,
    /// So many losses of what was written before have been seen.
    seen: u64,
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

    /// So many of the losses are of what was written before: they concern everybody.
    pub(crate) fn see(&self, before: u64, lost: u64) {
        let mut book = self.book();
        if before <= book.seen {
            return;
        }
        book.seen = before;
        let since = lost.saturating_sub(1);
        book.anyone = Some(book.anyone.map_or(since, |oldest| oldest.min(since)));
        for initiator in book.initiators.values_mut() {
            initiator.fear(since);
        }
    }

    /// The store has answered a write as good. It had lost something `since` times when that began.
    pub(crate) fn note_write(&self, nexus: NexusId, name: &PortName, since: u64) {
        let mut book = self.book();
        let (initiator, session) = book.enter(nexus, name);
        initiator.fear(since);
        initiator.writes += 1;
        session.last_write = initiator.writes;
    }

    /// A flush goes to the store, which has lost something `lost` times.
    pub(crate) fn mark(&self, nexus: NexusId, name: &PortName, lost: u64) -> Mark {
        let mut book = self.book();
        let (Initiator { writes, .. }, _) = book.enter(nexus, name);
        Mark {
            writes: *writes,
            lost,
            displaced: book.displaced,
        }
    }

    /// The store has answered a flush as good, and its nexus is there to be answered. Whether a loss has to be
    /// reported to it instead; then it counts as reported.
    pub(crate) fn settle(
        &self,
        (nexus, name): (NexusId, &PortName),
        mark: Mark,
        (lost, now): (u64, Duration),
    ) -> bool {
        let mut book = self.book();
        let (initiator, session) = book.meet(nexus, name, lost);
        let is_owed = session.known < initiator.losses;
        if is_owed {
            initiator.reported = initiator.losses;
            session.known = initiator.losses;
            session.reported_at = Some(now);
        }
        if initiator.writes == mark.writes {
            initiator.cover();
        }
        // It has covered what anybody had written.
        let is_whole = mark.lost == lost && mark.displaced == book.displaced;
        book.anyone = book.anyone.filter(|&since| since < lost || !is_whole);
        is_owed
    }

    /// The store has answered a flush as good that was for one command, which is no report of what others have written.
    pub(crate) fn cover(&self, nexus: NexusId, name: &PortName, mark: Mark, lost: u64) {
        let mut book = self.book();
        let (initiator, _) = book.meet(nexus, name, lost);
        if initiator.writes == mark.writes {
            initiator.cover();
        }
    }

    /// A nexus is gone.
    pub(crate) fn depart(&self, nexus: NexusId, departure: Departure) {
        let mut book = self.book();
        let Some(session) = book.sessions.remove(&nexus) else {
            return;
        };
        let name = Arc::clone(&session.name);
        let Some(initiator) = book.initiators.get_mut(&name) else {
            debug_assert!(false, "a session without an initiator");
            return;
        };
        initiator.meet(departure.lost);
        if departure.is_covered && initiator.sessions == 1 {
            initiator.cover();
        }
        initiator.part(&session, session.is_unheard(&departure));
        if initiator.sessions > 0 {
            return;
        }
        let was_listed = std::mem::replace(&mut initiator.is_listed, true);
        if initiator.is_clear() && book.anyone.is_none_or(|since| since >= departure.lost) {
            book.initiators.remove(&name);
            book.absent.retain(|other| !was_listed || *other != name);
        } else if !was_listed {
            // One that has nothing to learn is kept where it would learn what those who are not known have to.
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
        if is_owed {
            book.administrator = book.administrator.max(lost);
        }
        is_owed
    }
}

impl Book {
    /// The initiator of a nexus, and the nexus.
    fn enter(&mut self, nexus: NexusId, port: &PortName) -> (&mut Initiator, &mut Session) {
        let session = self.sessions.entry(nexus);
        let is_new = matches!(session, std::collections::hash_map::Entry::Vacant(_));
        let session = session.or_insert_with(|| Session {
            name: Arc::new((port.principal.clone(), device_of(&port.transport_id).into())),
            known: 0,
            last_write: 0,
            reported_at: None,
        });
        let initiator = self.initiators.entry(Arc::clone(&session.name));
        let initiator = initiator.or_insert_with(|| Initiator {
            since: self.anyone,
            ..Initiator::default()
        });
        if is_new {
            session.known = initiator.welcome();
        }
        (initiator, session)
    }

    /// The same, once it has met what was lost.
    fn meet(
        &mut self,
        nexus: NexusId,
        port: &PortName,
        lost: u64,
    ) -> (&mut Initiator, &mut Session) {
        let (initiator, session) = self.enter(nexus, port);
        initiator.meet(lost);
        (initiator, session)
    }

    /// Drops the oldest without a session, but not what they have to learn.
    fn limit_absent(&mut self) {
        while self.absent.len() > ABSENT_MAX {
            let may_go = |name: &Name| {
                let initiator = self.initiators.get(name);
                initiator.is_none_or(|one| one.sessions > 0 || one.is_clear())
            };
            let first = self.absent.iter().position(may_go).unwrap_or(0);
            let Some(name) = self.absent.remove(first) else {
                return;
            };
            let Some(initiator) = self.initiators.get_mut(&name) else {
                continue;
            };
            initiator.is_listed = false;
            if initiator.sessions > 0 {
                continue;
            }
            let owed = initiator.is_owed().then_some(0);
            let since = initiator.since.into_iter().chain(owed).min();
            self.initiators.remove(&name);
            if since.is_some() {
                self.anyone = self.anyone.into_iter().chain(since).min();
                self.displaced += 1;
            }
        }
    }

    fn is_owed(&self, lost: u64) -> bool {
        let is_lost = |since: Option<u64>| since.is_some_and(|since| since < lost);
        let waits = |one: &Initiator| is_lost(one.since) || one.is_owed();
        self.administrator < lost && (is_lost(self.anyone) || self.initiators.values().any(waits))
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
        let mark = book.mark(nexus, &name(of), lost);
        book.settle((nexus, &name(of)), mark, (lost, Duration::ZERO))
    }

    /// One whose writes are never covered has a part in each loss.
    fn beside_another() -> Uncovered {
        let book = Uncovered::default();
        book.note_write(NexusId(99), &name(99), 0);
        book
    }

    /// A nexus goes with a farewell.
    fn depart(book: &Uncovered, nexus: NexusId, lost: u64, is_covered: bool) {
        let departure = Departure {
            is_covered,
            lost,
            is_farewell: true,
            now: Duration::ZERO,
        };
        book.depart(nexus, departure);
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
        let book = beside_another();
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
        let book = beside_another();
        book.note_write(A, &name(1), 0);
        let mark = book.mark(A, &name(1), 0);
        book.note_write(A, &name(1), 0);
        assert!(!book.settle((A, &name(1)), mark, (0, Duration::ZERO)));
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
        let book = beside_another();
        book.note_write(A, &name(1), 0);
        depart(&book, A, 0, false);
        assert!(!flush(&book, B, 2, 1));
        assert!(flush(&book, C, 1, 1));
        depart(&book, C, 1, true);
        assert!(!flush(&book, NexusId(4), 1, 1));
        depart(&book, NexusId(4), 1, true);
        // It was reported to another session, but not to this one.
        let (a, b) = (NexusId(5), NexusId(6));
        book.note_write(a, &name(1), 1);
        assert!(flush(&book, b, 1, 2));
        depart(&book, a, 2, true);
        assert!(flush(&book, NexusId(7), 1, 2));
        // Nothing is left of writes that somebody has flushed.
        book.note_write(B, &name(2), 2);
        depart(&book, B, 2, true);
        assert!(!flush(&book, NexusId(8), 2, 3));
    }

    #[test]
    fn initiators_without_a_session_are_bounded_and_none_of_them_is_forgotten() {
        let book = Uncovered::default();
        for n in 0..1000 {
            book.note_write(A, &name(n), 0);
            depart(&book, A, 0, false);
        }
        assert_eq!(book.book().absent.len(), ABSENT_MAX);
        assert_eq!(book.book().initiators.len(), ABSENT_MAX);
        for n in [999, 0, 1] {
            let nexus = NexusId(u32::from(n) + 4);
            assert!(flush(&book, nexus, n, 1), "{n}, known or not");
            assert!(!flush(&book, nexus, n, 1), "{n}, once");
            depart(&book, nexus, 1, true);
            let next = NexusId(u32::from(n) + 2000);
            assert!(!flush(&book, next, n, 1), "{n}, in no other session");
            depart(&book, next, 1, true);
        }
        assert_eq!(book.book().absent.len(), ABSENT_MAX);
    }

    /// Where nobody has found no place, a flush that has covered everything leaves nothing for strangers.
    #[test]
    fn what_a_whole_flush_has_covered_is_nothing_to_those_who_found_no_place() {
        let book = beside_another();
        for n in 0..300 {
            book.note_write(A, &name(n), 0);
            depart(&book, A, 0, false);
        }
        assert!(!flush(&book, B, 500, 0));
        assert!(!flush(&book, C, 0, 1), "it is covered");
        assert!(flush(&book, NexusId(4), 299, 1), "its own flush it had not");
    }

    /// Coming and going makes no place free, and takes none.
    #[test]
    fn one_initiator_that_comes_again_and_again_displaces_nobody() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        depart(&book, A, 0, false);
        for _ in 0..1000 {
            book.note_write(B, &name(2), 0);
            depart(&book, B, 0, false);
            assert!(!flush(&book, C, 2, 0));
            depart(&book, C, 0, false);
        }
        assert!(book.book().absent.len() == 1 && book.book().anyone.is_none());
        assert!(flush(&book, NexusId(4), 1, 1));
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
        book.note_write(A, &name(1), 2);
        book.note_write(B, &name(2), 2);
        assert!(flush(&book, A, 1, 3));
        assert!(flush(&book, B, 2, 3) && !book.is_owed(3));
        assert!(
            !book.report_to_administrator(3),
            "there is nothing to report"
        );
        book.note_write(A, &name(1), 3);
        assert!(flush(&book, C, 1, 4));
        assert!(!book.report_to_administrator(4), "A may ask yet");
        depart(&book, A, 4, true);
        assert!(book.report_to_administrator(4), "it has not");
    }

    /// As after a restart, beside which a server reports what it has lost.
    #[test]
    fn a_loss_of_what_nobody_here_has_written_is_reported_to_everybody() {
        let book = Uncovered::default();
        assert!(!flush(&book, A, 1, 0));
        assert!(!flush(&book, A, 1, 1), "no loss of a former time");
        for _ in 0..2 {
            book.see(1, 2);
        }
        assert!(flush(&book, A, 1, 2) && !flush(&book, A, 1, 2));
        assert!(book.is_owed(2), "to those who are not here");
        assert!(flush(&book, B, 2, 2) && !flush(&book, B, 2, 2));
        depart(&book, B, 2, true);
        assert!(!flush(&book, C, 2, 2), "it knows");
    }

    #[test]
    fn a_write_under_way_during_a_flush_is_not_covered_by_it() {
        let book = Uncovered::default();
        let mark = book.mark(A, &name(1), 0);
        // It began before the flush, and is answered after it.
        assert!(!book.settle((A, &name(1)), mark, (0, Duration::ZERO)));
        book.note_write(A, &name(1), 0);
        assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
        // One that was under way at a loss that was reported since.
        book.note_write(A, &name(1), 0);
        assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
    }

    /// As one of several connections of a client.
    #[test]
    fn a_session_that_wrote_nothing_and_goes_is_owed_nothing() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        let mark = book.mark(B, &name(1), 0);
        depart(&book, B, 1, false);
        assert!(mark.writes == 1 && flush(&book, A, 1, 1));
        depart(&book, A, 1, true);
        assert!(!book.is_owed(1) && !flush(&book, C, 1, 1));
    }

    /// Two programs of one name.
    #[test]
    fn each_session_that_is_away_gets_what_it_does_not_know_when_it_is_back() {
        for leaves_first in [true, false] {
            let book = Uncovered::default();
            book.note_write(A, &name(1), 0);
            book.note_write(B, &name(1), 0);
            if leaves_first {
                depart(&book, B, 0, false);
            }
            assert!(flush(&book, A, 1, 1));
            if !leaves_first {
                depart(&book, B, 1, true);
            }
            assert!(book.is_owed(1));
            assert!(flush(&book, C, 1, 1) && !flush(&book, C, 1, 1));
            assert!(!flush(&book, NexusId(4), 1, 1), "one was away");
        }
    }

    #[test]
    fn a_report_that_may_not_have_come_is_made_again() {
        for (is_farewell, after, is_again) in [
            (false, Duration::ZERO, true),
            (false, RECEIPT - Duration::from_secs(1), true),
            (false, RECEIPT, false),
            (true, Duration::ZERO, false),
        ] {
            let book = Uncovered::default();
            let at = Duration::from_secs(1000);
            book.note_write(A, &name(1), 0);
            let mark = book.mark(A, &name(1), 1);
            assert!(book.settle((A, &name(1)), mark, (1, at)));
            let departure = Departure {
                is_covered: true,
                lost: 1,
                is_farewell,
                now: at + after,
            };
            book.depart(A, departure);
            assert_eq!(flush(&book, B, 1, 1), is_again);
            assert!(!flush(&book, B, 1, 1));
        }
    }

    #[test]
    fn a_flush_for_one_command_covers_and_is_no_report() {
        let book = Uncovered::default();
        book.note_write(A, &name(1), 0);
        let mark = book.mark(A, &name(1), 0);
        book.cover(A, &name(1), mark, 0);
        assert!(!flush(&book, A, 1, 1), "it was covered before the loss");
        book.note_write(A, &name(1), 1);
        let mark = book.mark(A, &name(1), 2);
        book.cover(A, &name(1), mark, 2);
        assert!(flush(&book, A, 1, 2) && !flush(&book, A, 1, 2));
    }
}
