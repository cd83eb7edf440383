//! Losses of what a store had answered, and who gets a report of them.
//!
//! An initiator is a device with its principal, not one of its sessions: hosts with several paths, and NBD clients
//! with several connections, write through one and flush through another. Each session gets a report, once, as nobody
//! knows whether two of them are the same program. A session that begins gets one of each loss of the last [`RECENT`],
//! and of older ones that no session has fetched. A report is fetched when its session logs out, or goes on for
//! [`RECEIPT`]: one that breaks off earlier may not have received it.
//!
//! A write counts from its answer on, because a flush covers what was answered before it began, and with the losses
//! that were known when it began, because nobody knows at which end of a loss the server did it. So a write that was
//! under way during a loss may be reported too often, never too seldom.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use marks::sometimes;

/// Initiators without a session that are remembered. What a further one is owed is reported to all that are not known.
const ABSENT_MAX: usize = 256;

/// A session that continues for this long after a report has received it: no initiator waits longer for the answer to
/// a flush without an abort or another session.
const RECEIPT: Duration = Duration::from_secs(120);

/// Sessions that begin within this time of a loss get a report of it, even if other sessions have received one.
const RECENT: Duration = Duration::from_secs(3600);

/// A session that does something. `F` names its initiator, which is asked for once.
#[derive(Clone, Copy, Debug)]
pub struct Party<S, F> {
    /// The session.
    pub session: S,
    /// Whose it is.
    pub initiator: F,
    /// When it does it.
    pub now: Duration,
}

/// What a flush covers, if it is good.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Writes of the initiator that were answered when it began.
    writes: u64,
    /// Losses of the store until then.
    lost: u64,
    /// Initiators that had been displaced by then.
    displaced: u64,
}

/// How a session ends.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// A flush of somebody has covered all that the store has answered. To be asked before `lost`: a store that loses
    /// what it had answered has nothing left to cover.
    pub is_covered: bool,
    /// Losses of the store until now.
    pub lost: u64,
    /// The initiator has logged out: it has received all answers.
    pub is_logout: bool,
    /// When it ends.
    pub now: Duration,
}

/// The last loss that concerns an initiator; a report of it is one of those before, too.
#[derive(Clone, Copy, Debug)]
struct Loss {
    epoch: u64,
    /// When it was noticed.
    at: Duration,
}

#[derive(Debug, Default)]
struct Initiator {
    /// Losses of the store when the first of its writes began that no flush has covered.
    since: Option<u64>,
    /// Writes that were answered.
    writes: u64,
    loss: Option<Loss>,
    /// Losses up to this epoch were reported to a session that has not broken off since.
    reported: u64,
    /// Losses up to this epoch were reported to a session that has certainly received the report.
    fetched: u64,
    sessions: usize,
}

impl Initiator {
    /// The store has lost something so many times, as far as a core has heard: what was written before may be gone.
    fn meet(&mut self, lost: u64, now: Duration) {
        if self.since.is_some_and(|since| since < lost) {
            self.since = Some(lost);
            // Another core may have heard of more.
            let epoch = lost.max(self.epoch());
            self.loss = Some(Loss { epoch, at: now });
        }
    }

    /// Writes of it may be uncovered since so many losses.
    fn fear(&mut self, since: u64) {
        self.since = Some(self.since.map_or(since, |oldest| oldest.min(since)));
    }

    /// The epoch that the cursor of a session has to reach.
    fn epoch(&self) -> u64 {
        self.loss.map_or(0, |loss| loss.epoch)
    }

    /// Where the cursor of a session stands that begins.
    fn cursor(&self, now: Duration) -> u64 {
        match self.loss {
            Some(loss) if self.is_over(loss, now) => loss.epoch,
            Some(_) | None => 0,
        }
    }

    fn is_over(&self, loss: Loss, now: Duration) -> bool {
        loss.epoch <= self.fetched && now.saturating_sub(loss.at) >= RECENT
    }

    /// Neither it nor a later session has anything to learn, whatever the store loses.
    fn is_clear(&self, now: Duration) -> bool {
        self.since.is_none() && self.loss.is_none_or(|loss| self.is_over(loss, now))
    }

    /// A session has received the report of losses up to this epoch.
    fn fetch(&mut self, epoch: u64) {
        self.fetched = self.fetched.max(epoch);
        self.reported = self.reported.max(epoch);
    }

    fn is_unreported(&self, lost: u64) -> bool {
        self.since.is_some_and(|since| since < lost) || self.reported < self.epoch()
    }
}

#[derive(Debug)]
struct Session<I> {
    initiator: I,
    /// It knows of losses up to this epoch, or need not.
    cursor: u64,
    reported_at: Option<Duration>,
}

impl<I> Session<I> {
    /// Whether it has received its last report.
    fn has_fetched(&self, now: Duration) -> bool {
        let reported = self.reported_at;
        reported.is_some_and(|at| now.saturating_sub(at) >= RECEIPT)
    }
}

#[derive(Debug)]
struct Book<I, S> {
    initiators: HashMap<I, Initiator>,
    sessions: HashMap<S, Session<I>>,
    /// Initiators without a session, oldest first.
    absent: VecDeque<I>,
    /// Losses before the first of the uncovered writes of initiators that are not known.
    anyone: Option<u64>,
    /// Initiators that found no place.
    displaced: u64,
    /// Losses of what earlier programs had written that were seen.
    earlier: u64,
    /// Losses up to this epoch were reported to an administrator.
    administrator: u64,
}

/// The losses of one unit, shared by its cores for the time of a look. `I` identifies an initiator, `S` a session.
#[derive(Debug)]
pub struct Losses<I, S>(Mutex<Book<I, S>>);

impl<I, S> Default for Losses<I, S> {
    fn default() -> Self {
        Self(Mutex::new(Book {
            initiators: HashMap::new(),
            sessions: HashMap::new(),
            absent: VecDeque::new(),
            anyone: None,
            displaced: 0,
            earlier: 0,
            administrator: 0,
        }))
    }
}

impl<I: Clone + Eq + Hash, S: Copy + Eq + Hash> Losses<I, S> {
    /// Every change of it is whole.
    fn book(&self) -> MutexGuard<'_, Book<I, S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `earlier` of the `lost` losses are of what was written before this program began: they concern everybody.
    pub fn note_earlier(&self, earlier: u64, lost: u64) {
        let mut book = self.book();
        if earlier <= book.earlier {
            return;
        }
        sometimes!("a store has lost what was written before this program began");
        book.earlier = earlier;
        let since = lost.saturating_sub(1);
        book.anyone = Some(book.anyone.map_or(since, |oldest| oldest.min(since)));
        for initiator in book.initiators.values_mut() {
            initiator.fear(since);
        }
    }

    /// The store has answered a write as good, and had lost something `since` times when it began.
    pub fn note_write<F: Fn() -> I>(&self, party: Party<S, F>, since: u64) {
        let mut book = self.book();
        let (initiator, _) = book.enter(party, since);
        initiator.fear(since);
        initiator.writes += 1;
    }

    /// A flush goes to the store, which has lost something `lost` times.
    pub fn begin_flush<F: Fn() -> I>(&self, party: Party<S, F>, lost: u64) -> Mark {
        let mut book = self.book();
        let (&mut Initiator { writes, .. }, _) = book.enter(party, lost);
        Mark {
            writes,
            lost,
            displaced: book.displaced,
        }
    }

    /// The store has answered a flush as good. Whether it fails all the same, as the report of a loss.
    #[must_use]
    pub fn end_flush<F: Fn() -> I>(&self, party: Party<S, F>, mark: Mark, lost: u64) -> bool {
        let (mut book, now) = (self.book(), party.now);
        let (initiator, session) = book.enter(party, lost);
        let epoch = initiator.epoch();
        let is_report = session.cursor < epoch;
        if is_report {
            sometimes!("a flush reports a loss");
            if session.has_fetched(now) {
                initiator.fetch(session.cursor);
            }
            (session.cursor, session.reported_at) = (epoch, Some(now));
            initiator.reported = epoch;
        }
        initiator.cover(mark);
        // It has covered what anybody had written.
        let is_whole = mark.lost == lost && mark.displaced == book.displaced;
        book.anyone = book.anyone.filter(|&since| since < lost || !is_whole);
        is_report
    }

    /// The store has answered a flush as good that belongs to one command, which is no report of what others wrote.
    pub fn cover<F: Fn() -> I>(&self, party: Party<S, F>, mark: Mark, lost: u64) {
        self.book().enter(party, lost).0.cover(mark);
    }

    /// A session ends.
    pub fn depart(&self, session: S, departure: Departure) {
        let Departure { lost, now, .. } = departure;
        let mut book = self.book();
        let Some(session) = book.sessions.remove(&session) else {
            return;
        };
        let name = session.initiator.clone();
        let is_known_only = book.anyone.is_some_and(|since| since < lost);
        let Some(initiator) = book.initiators.get_mut(&name) else {
            debug_assert!(false, "a session without an initiator");
            return;
        };
        initiator.meet(lost, now);
        if departure.is_covered && initiator.sessions == 1 {
            initiator.since = None;
        }
        if session.reported_at.is_some() {
            if departure.is_logout || session.has_fetched(now) {
                initiator.fetch(session.cursor);
            } else {
                sometimes!("a report of a loss may not have arrived");
                initiator.reported = initiator.fetched;
            }
        }
        initiator.sessions -= 1;
        if initiator.sessions > 0 {
            return;
        }
        // One with nothing to learn is kept where it would learn what those who are not known have to.
        if initiator.is_clear(now) && !is_known_only {
            book.initiators.remove(&name);
        } else {
            sometimes!("an initiator leaves that has to learn of a loss");
            book.absent.push_back(name);
            book.limit_absent(now);
        }
    }

    /// Whether a loss is still to be reported to somebody, and was to no administrator.
    pub fn is_owed(&self, lost: u64) -> bool {
        self.book().is_owed(lost)
    }

    /// The same; it is reported to an administrator now, which is no report to anybody else.
    pub fn report_to_administrator(&self, lost: u64) -> bool {
        let mut book = self.book();
        let is_owed = book.is_owed(lost);
        if is_owed {
            sometimes!("a loss is reported to an administrator");
            book.administrator = book.administrator.max(lost);
        }
        is_owed
    }
}

impl Initiator {
    /// All that was answered before a flush began is durable, or lost and met.
    fn cover(&mut self, mark: Mark) {
        debug_assert!(mark.writes <= self.writes, "a flush of another initiator");
        if self.writes == mark.writes {
            self.since = None;
        }
    }
}

impl<I: Clone + Eq + Hash, S: Copy + Eq + Hash> Book<I, S> {
    /// The initiator and the session of a party, once they have met what was lost.
    fn enter<F: Fn() -> I>(
        &mut self,
        party: Party<S, F>,
        lost: u64,
    ) -> (&mut Initiator, &mut Session<I>) {
        let now = party.now;
        let known = self.sessions.get(&party.session);
        let is_new = known.is_none();
        let name = known.map_or_else(&party.initiator, |session| session.initiator.clone());
        let since = self.anyone;
        let initiator = self.initiators.entry(name.clone());
        let initiator = initiator.or_insert_with(|| Initiator {
            since,
            ..Initiator::default()
        });
        initiator.meet(lost, now);
        if is_new {
            if initiator.sessions == 0 {
                self.absent.retain(|other| *other != name);
            }
            initiator.sessions += 1;
            if initiator.fetched < initiator.epoch() {
                let of_it = |session: &&Session<I>| session.initiator == name;
                let of_it = self.sessions.values().filter(of_it);
                let fetched = of_it.filter(|session| session.has_fetched(now));
                let cursor = fetched.map(|session| session.cursor).max();
                initiator.fetch(cursor.unwrap_or(0));
            }
        }
        let session = self.sessions.entry(party.session);
        let session = session.or_insert_with(|| Session {
            initiator: name,
            cursor: initiator.cursor(now),
            reported_at: None,
        });
        debug_assert!(
            initiator.fetched <= initiator.reported && initiator.reported <= initiator.epoch(),
            "more is fetched than was reported, or reported than was lost: {initiator:?}"
        );
        (initiator, session)
    }

    /// Drops the oldest without a session, but not what they have to learn.
    fn limit_absent(&mut self, now: Duration) {
        while self.absent.len() > ABSENT_MAX {
            let is_clear = |name: &I| {
                let initiator = self.initiators.get(name);
                initiator.is_none_or(|one| one.is_clear(now))
            };
            let first = self.absent.iter().position(is_clear).unwrap_or(0);
            let Some(name) = self.absent.remove(first) else {
                return;
            };
            let gone = self.initiators.remove(&name);
            let Some(gone) = gone.filter(|one| !one.is_clear(now)) else {
                continue;
            };
            let before = gone.loss.map(|loss| loss.epoch - 1);
            let since = gone.since.into_iter().chain(before).min();
            self.anyone = self.anyone.into_iter().chain(since).min();
            self.displaced += 1;
        }
    }

    fn is_owed(&self, lost: u64) -> bool {
        let is_lost = self.anyone.is_some_and(|since| since < lost);
        let mut initiators = self.initiators.values();
        self.administrator < lost && (is_lost || initiators.any(|one| one.is_unreported(lost)))
    }
}

#[cfg(test)]
mod tests;
