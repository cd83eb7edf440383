//! Whose writes a store has answered and no flush of theirs has covered, and who has to learn that they may be lost.
//!
//! A store that is somewhere else counts how often it may have lost what it had answered
//! ([`Backstore::lost`](store::Backstore::lost)); it goes on after that, and a flush of it is good. So each
//! initiator that has written since its last good flush learns of it by its next one; a flush of another initiator
//! is no report to it. An initiator is a device with its principal, not one of its sessions: hosts with several
//! paths and clients of NBD with several connections write by one and flush by another. Each of its sessions gets
//! the report, once, as nobody knows whether two of them are one program. For each session that went while something
//! that it had written was not covered, or without its report, there is a *debt*: a later one pays it when it has had
//! what that did not. Until then every session that begins gets it. An administrator learns of a loss by the last flush
//! of the unit, and by the one before an eject. A loss of what was written before this program began is reported to
//! everybody.
//!
//! A write counts from its answer on, since a flush covers what was answered before it began, and with the losses
//! that were known when it began, since nobody knows at which end of a loss the server did it. So a write that was
//! under way at a loss may be a second report. An answer is no report until it has come: a session may not have had it
//! within [`RECEIPT`] of it, unless it says farewell. A host that has it lost sends the flush again by another session.
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
    /// So many of those reports have come.
    heard: u64,
    sessions: usize,
    /// Debts: sessions that went and may not know of all losses; and of how many they know at least.
    away: usize,
    known_away: u64,
    /// So many of the debts have a session that is to pay them, and so many of these have been sent the report.
    heirs: usize,
    paying: usize,
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
        self.reported < self.losses || self.away > self.paying && self.known_away < self.losses
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
            self.away = self.heirs;
        }
    }

    /// A session of it begins: of how many losses it knows, and what it is to pay.
    const fn welcome(&mut self) -> (u64, Role) {
        self.sessions += 1;
        if self.away == 0 {
            return (self.heard, Role::Own);
        }
        if self.heirs == self.away {
            return (self.known_away, Role::Beside);
        }
        self.heirs += 1;
        (self.known_away, Role::Heir)
    }

    /// The last report of a session has come.
    fn hear(&mut self, session: &mut Session) {
        session.reported_at = None;
        session.sure = session.known;
        self.heard = self.heard.max(session.known);
        if session.role == Role::Heir {
            session.role = Role::Own;
            self.heirs -= 1;
            self.paying -= 1;
            self.away -= 1;
        }
    }

    /// A session of it goes.
    fn part(&mut self, session: &Session) {
        self.sessions -= 1;
        let is_unheard = session.reported_at.is_some();
        let known = session.sure;
        let may_lose = self.since.is_some() && session.last_write > self.covered;
        let has_lost = self
            .spared
            .is_some_and(|spared| session.last_write > spared);
        let is_owed = is_unheard || has_lost && known < self.losses;
        let debts = match session.role {
            Role::Heir => {
                self.heirs -= 1;
                self.paying -= usize::from(is_unheard);
                match is_owed || may_lose || known < self.losses {
                    true => self.away,
                    false => self.away - 1,
                }
            }
            Role::Beside if !is_owed && !may_lose && known < self.losses => self.away.max(1),
            Role::Own | Role::Beside => self.away + usize::from(is_owed || may_lose),
        };
        if debts > 0 {
            let least = match self.away {
                0 => known,
                _ => self.known_away,
            };
            // Of a debt that is paid nothing more is known than of the others.
            self.known_away = match debts >= self.away {
                true => least.min(known),
                false => least,
            };
        }
        self.away = debts;
    }
}

/// What a session has to do with the debts of its initiator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Own,
    /// It pays one when it has had its report.
    Heir,
    /// It began when others were to pay all that there were, and gets the report, too.
    Beside,
}

#[derive(Debug)]
struct Session {
    name: Name,
    role: Role,
    /// Of how many losses of its initiator it knows, or need not; and so many of these for sure.
    known: u64,
    sure: u64,
    /// Of its initiator's writes the last one that came by it, by its number from 1 on.
    last_write: u64,
    /// When its last report was sent, which may not have come.
    reported_at: Option<Duration>,
}

/// A session that does something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor<'a> {
    pub(crate) nexus: NexusId,
    pub(crate) name: &'a PortName,
    pub(crate) now: Duration,
}

#[derive(Debug, Default)]
struct Book {
    initiators: HashMap<Name, Initiator>,
    sessions: HashMap<NexusId, Session>,
    /// Sessions whose last report may not have come, in the order of their reports.
    unheard: VecDeque<(Duration, NexusId)>,
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
    pub(crate) fn note_write(&self, actor: Actor<'_>, since: u64) {
        let mut book = self.book();
        let (initiator, session) = book.enter(actor);
        initiator.fear(since);
        initiator.writes += 1;
        session.last_write = initiator.writes;
    }

    /// A flush goes to the store, which has lost something `lost` times.
    pub(crate) fn mark(&self, actor: Actor<'_>, lost: u64) -> Mark {
        let mut book = self.book();
        let (Initiator { writes, .. }, _) = book.enter(actor);
        Mark {
            writes: *writes,
            lost,
            displaced: book.displaced,
        }
    }

    /// The store has answered a flush as good, and its nexus is there to be answered. Whether a loss has to be
    /// reported to it instead; then it counts as reported.
    pub(crate) fn settle(&self, actor: Actor<'_>, mark: Mark, lost: u64) -> bool {
        let mut book = self.book();
        let (initiator, session) = book.meet(actor, lost);
        let is_owed = session.known < initiator.losses;
        let mut is_first = false;
        if is_owed {
            initiator.reported = initiator.losses;
            session.known = initiator.losses;
            is_first = session.reported_at.replace(actor.now).is_none();
            initiator.paying += usize::from(is_first && session.role == Role::Heir);
        }
        if initiator.writes == mark.writes {
            initiator.cover();
        }
        if is_first {
            book.await_receipt(actor);
        }
        // It has covered what anybody had written.
        let is_whole = mark.lost == lost && mark.displaced == book.displaced;
        book.anyone = book.anyone.filter(|&since| since < lost || !is_whole);
        is_owed
    }

    /// The store has answered a flush as good that was for one command, which is no report of what others have written.
    pub(crate) fn cover(&self, actor: Actor<'_>, mark: Mark, lost: u64) {
        let mut book = self.book();
        let (initiator, _) = book.meet(actor, lost);
        if initiator.writes == mark.writes {
            initiator.cover();
        }
    }

    /// A nexus is gone.
    pub(crate) fn depart(&self, nexus: NexusId, departure: Departure) {
        let mut book = self.book();
        book.hear(departure.now);
        let Some(mut session) = book.sessions.remove(&nexus) else {
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
        if departure.is_farewell && session.reported_at.is_some() {
            initiator.hear(&mut session);
        }
        initiator.part(&session);
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
    /// Reports of long ago have come.
    fn hear(&mut self, now: Duration) {
        let is_old = |at: Duration| now.saturating_sub(at) >= RECEIPT;
        while let Some((_, nexus)) = self.unheard.pop_front_if(|(at, _)| is_old(*at)) {
            let Some(session) = self.sessions.get_mut(&nexus) else {
                continue;
            };
            match session.reported_at {
                Some(at) if is_old(at) => {
                    if let Some(initiator) = self.initiators.get_mut(&session.name) {
                        initiator.hear(session);
                    }
                }
                Some(at) => self.unheard.push_back((at, nexus)),
                None => {}
            }
        }
    }

    /// A report was sent.
    fn await_receipt(&mut self, actor: Actor<'_>) {
        self.unheard.push_back((actor.now, actor.nexus));
        if self.unheard.len() > 2 * self.sessions.len() + ABSENT_MAX {
            let sessions = &self.sessions;
            self.unheard.retain(|(_, nexus)| {
                sessions
                    .get(nexus)
                    .is_some_and(|one| one.reported_at.is_some())
            });
        }
    }

    /// The initiator of a nexus, and the nexus.
    fn enter(&mut self, actor: Actor<'_>) -> (&mut Initiator, &mut Session) {
        self.hear(actor.now);
        let session = self.sessions.entry(actor.nexus);
        let is_new = matches!(session, std::collections::hash_map::Entry::Vacant(_));
        let port = actor.name;
        let session = session.or_insert_with(|| Session {
            name: Arc::new((port.principal.clone(), device_of(&port.transport_id).into())),
            role: Role::Own,
            known: 0,
            sure: 0,
            last_write: 0,
            reported_at: None,
        });
        let initiator = self.initiators.entry(Arc::clone(&session.name));
        let initiator = initiator.or_insert_with(|| Initiator {
            since: self.anyone,
            ..Initiator::default()
        });
        if is_new {
            (session.known, session.role) = initiator.welcome();
            session.sure = session.known;
        }
        (initiator, session)
    }

    /// The same, once it has met what was lost.
    fn meet(&mut self, actor: Actor<'_>, lost: u64) -> (&mut Initiator, &mut Session) {
        let (initiator, session) = self.enter(actor);
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
        flush_at(book, nexus, of, lost, Duration::ZERO)
    }

    fn flush_at(book: &Uncovered, nexus: NexusId, of: u16, lost: u64, now: Duration) -> bool {
        let name = &name(of);
        let mark = book.mark(Actor { nexus, name, now }, lost);
        settle(book, nexus, of, (mark, lost, now))
    }

    fn write(book: &Uncovered, nexus: NexusId, of: u16, since: u64) {
        let (name, now) = (&name(of), Duration::ZERO);
        book.note_write(Actor { nexus, name, now }, since);
    }

    fn mark_of(book: &Uncovered, nexus: NexusId, of: u16, lost: u64) -> Mark {
        let (name, now) = (&name(of), Duration::ZERO);
        book.mark(Actor { nexus, name, now }, lost)
    }

    fn settle(
        book: &Uncovered,
        nexus: NexusId,
        of: u16,
        (mark, lost, now): (Mark, u64, Duration),
    ) -> bool {
        let name = &name(of);
        book.settle(Actor { nexus, name, now }, mark, lost)
    }

    fn cover(book: &Uncovered, mark: Mark, lost: u64) {
        let (nexus, name, now) = (A, &name(1), Duration::ZERO);
        book.cover(Actor { nexus, name, now }, mark, lost);
    }

    /// A nexus goes without a farewell.
    fn break_off(book: &Uncovered, nexus: NexusId, lost: u64, now: Duration) {
        let (is_covered, is_farewell) = (false, false);
        let departure = Departure {
            is_covered,
            lost,
            is_farewell,
            now,
        };
        book.depart(nexus, departure);
    }

    /// One whose writes are never covered has a part in each loss.
    fn beside_another() -> Uncovered {
        let book = Uncovered::default();
        write(&book, NexusId(99), 99, 0);
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
        write(&book, A, 1, 0);
        write(&book, B, 2, 0);
        assert!(!flush(&book, C, 3, 1), "it wrote nothing");
        assert!(flush(&book, B, 2, 1));
        assert!(flush(&book, A, 1, 1), "what was reported to B was not to A");
        assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 2, 1));
        write(&book, A, 1, 1);
        assert!(!flush(&book, A, 1, 1), "nothing was lost since");
    }

    /// As a host with several paths, and as several programs that look like one.
    #[test]
    fn a_loss_of_one_session_is_reported_to_each_of_its_initiator() {
        let book = beside_another();
        write(&book, A, 1, 0);
        assert!(flush(&book, B, 1, 1), "it flushes what A has written");
        assert!(flush(&book, A, 1, 1));
        assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 1, 1));
        assert!(flush(&book, C, 1, 1), "nobody knows whether it has come");
        let d = NexusId(4);
        assert!(
            !flush_at(&book, d, 1, 1, RECEIPT),
            "its initiator knows by then"
        );
        // A write by one is covered by a flush of the other.
        write(&book, A, 1, 1);
        assert!(!flush(&book, B, 1, 1) && !flush(&book, A, 1, 2));
    }

    #[test]
    fn what_a_good_flush_has_covered_is_not_reported_and_what_came_during_it_is() {
        let book = beside_another();
        write(&book, A, 1, 0);
        let mark = mark_of(&book, A, 1, 0);
        write(&book, A, 1, 0);
        assert!(!settle(&book, A, 1, (mark, 0, Duration::ZERO)));
        assert!(flush(&book, A, 1, 1), "the second write");
        write(&book, A, 1, 1);
        assert!(!flush(&book, A, 1, 1));
        assert!(!flush(&book, A, 1, 2), "it was covered before");
        // Two losses between two flushes are one.
        write(&book, A, 1, 2);
        write(&book, A, 1, 3);
        assert!(flush(&book, A, 1, 4) && !flush(&book, A, 1, 4));
    }

    #[test]
    fn what_was_not_reported_to_the_last_session_is_to_the_next_one() {
        let book = beside_another();
        write(&book, A, 1, 0);
        depart(&book, A, 0, false);
        assert!(!flush(&book, B, 2, 1));
        assert!(flush(&book, C, 1, 1));
        depart(&book, C, 1, true);
        assert!(!flush(&book, NexusId(4), 1, 1));
        depart(&book, NexusId(4), 1, true);
        // It was reported to another session, but not to this one.
        let (a, b) = (NexusId(5), NexusId(6));
        write(&book, a, 1, 1);
        assert!(flush(&book, b, 1, 2));
        depart(&book, a, 2, true);
        assert!(flush(&book, NexusId(7), 1, 2));
        // Nothing is left of writes that somebody has flushed.
        write(&book, B, 2, 2);
        depart(&book, B, 2, true);
        assert!(!flush(&book, NexusId(8), 2, 3));
    }

    #[test]
    fn initiators_without_a_session_are_bounded_and_none_of_them_is_forgotten() {
        let book = Uncovered::default();
        for n in 0..1000 {
            write(&book, A, n, 0);
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
            write(&book, A, n, 0);
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
        write(&book, A, 1, 0);
        depart(&book, A, 0, false);
        for _ in 0..1000 {
            write(&book, B, 2, 0);
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
        write(&book, A, 1, 0);
        assert!(!book.is_owed(0));
        assert!(book.is_owed(1) && book.report_to_administrator(1));
        assert!(!book.is_owed(1) && !book.report_to_administrator(1));
        assert!(book.report_to_administrator(2));
        assert!(flush(&book, A, 1, 2), "to the initiator, all the same");
        write(&book, A, 1, 2);
        write(&book, B, 2, 2);
        assert!(flush(&book, A, 1, 3));
        assert!(flush(&book, B, 2, 3) && !book.is_owed(3));
        assert!(
            !book.report_to_administrator(3),
            "there is nothing to report"
        );
        write(&book, A, 1, 3);
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
        let mark = mark_of(&book, A, 1, 0);
        // It began before the flush, and is answered after it.
        assert!(!settle(&book, A, 1, (mark, 0, Duration::ZERO)));
        write(&book, A, 1, 0);
        assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
        // One that was under way at a loss that was reported since.
        write(&book, A, 1, 0);
        assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
    }

    /// As one of several connections of a client.
    #[test]
    fn a_session_that_wrote_nothing_and_goes_is_owed_nothing() {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        let mark = mark_of(&book, B, 1, 0);
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
            write(&book, A, 1, 0);
            write(&book, B, 1, 0);
            if leaves_first {
                depart(&book, B, 0, false);
            }
            assert!(flush(&book, A, 1, 1));
            if !leaves_first {
                depart(&book, B, 1, true);
            }
            assert!(book.is_owed(1));
            assert!(flush(&book, C, 1, 1) && !flush(&book, C, 1, 1));
            let d = NexusId(4);
            assert!(!flush_at(&book, d, 1, 1, RECEIPT), "one was away");
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
            write(&book, A, 1, 0);
            let mark = mark_of(&book, A, 1, 1);
            assert!(settle(&book, A, 1, (mark, 1, at)));
            let departure = Departure {
                is_covered: true,
                lost: 1,
                is_farewell,
                now: at + after,
            };
            book.depart(A, departure);
            assert_eq!(flush_at(&book, B, 1, 1, at + after), is_again);
            assert!(!flush_at(&book, B, 1, 1, at + after));
        }
    }

    #[test]
    fn a_flush_for_one_command_covers_and_is_no_report() {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        let mark = mark_of(&book, A, 1, 0);
        cover(&book, mark, 0);
        assert!(!flush(&book, A, 1, 1), "it was covered before the loss");
        write(&book, A, 1, 1);
        let mark = mark_of(&book, A, 1, 2);
        cover(&book, mark, 2);
        assert!(flush(&book, A, 1, 2) && !flush(&book, A, 1, 2));
    }

    /// As a host whose path hangs, which Tarn does not know yet.
    #[test]
    fn a_session_that_begins_while_a_report_may_be_stuck_gets_it() {
        for has_read in [false, true] {
            let book = Uncovered::default();
            write(&book, A, 1, 0);
            if has_read {
                assert!(!flush(&book, B, 1, 0));
                write(&book, A, 1, 0);
            }
            assert!(flush(&book, A, 1, 1), "it is stuck");
            assert!(flush(&book, B, 1, 1) && !flush(&book, B, 1, 1));
            assert!(!book.is_owed(1));
        }
    }

    /// As a connection that breaks before the answer to its flush.
    #[test]
    fn a_debt_stays_until_a_session_has_had_its_report() {
        for is_reported in [false, true] {
            let book = Uncovered::default();
            write(&book, A, 1, 0);
            assert!(flush(&book, A, 1, 1));
            break_off(&book, A, 1, Duration::ZERO);
            for n in 4..8 {
                let nexus = NexusId(n);
                assert!(book.is_owed(1));
                mark_of(&book, nexus, 1, 1);
                assert!(!is_reported || flush(&book, nexus, 1, 1) && !book.is_owed(1));
                break_off(&book, nexus, 1, RECEIPT / 2);
            }
            assert!(flush(&book, B, 1, 1));
            break_off(&book, B, 1, RECEIPT);
            assert!(!book.is_owed(1) && !flush_at(&book, C, 1, 1, RECEIPT));
        }
    }

    /// As a host that is back with two paths, and writes by one and flushes by the other.
    #[test]
    fn what_one_session_is_to_pay_others_get_too_until_it_has() {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        break_off(&book, A, 1, Duration::ZERO);
        write(&book, B, 1, 1);
        assert!(flush(&book, C, 1, 1) && !flush(&book, C, 1, 1));
        break_off(&book, C, 1, Duration::ZERO);
        assert!(flush(&book, B, 1, 1));
        // C may not have had it, and B has.
        depart(&book, B, 1, true);
        assert!(flush(&book, NexusId(4), 1, 1));
        depart(&book, NexusId(4), 1, true);
        assert!(!flush(&book, NexusId(5), 1, 1) && !book.is_owed(1));
    }

    #[test]
    fn debts_that_nobody_pays_and_reports_that_nobody_has_had_are_bounded() {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        break_off(&book, A, 1, Duration::ZERO);
        for n in 0..10_000 {
            let nexus = NexusId(n + 4);
            assert!(flush(&book, nexus, 1, 1));
            break_off(&book, nexus, 1, Duration::ZERO);
        }
        assert!(book.book().unheard.len() <= ABSENT_MAX + 2);
        assert!(book.book().initiators.values().all(|one| one.away <= 1));
        assert!(flush(&book, A, 1, 1));
        depart(&book, A, 1, true);
        assert!(!flush(&book, B, 1, 1));
    }
}
