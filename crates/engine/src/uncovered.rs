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
//! of the unit, and by the one before an eject; it is not reported again once the caller has that answer. A loss of
//! what was written before this program began is reported to everybody.
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
        debug_assert_eq!(
            self.spared.is_some(),
            self.losses > 0,
            "what was covered at the first loss"
        );
        debug_assert!(
            self.spared.is_none_or(|spared| spared <= self.covered),
            "what was covered is not any more"
        );
    }

    /// Writes of it may be uncovered since so many losses.
    fn fear(&mut self, since: u64) {
        self.since = Some(self.since.map_or(since, |oldest| oldest.min(since)));
    }

    /// Everything that it has written is durable. Those that are gone need not know more.
    const fn cover(&mut self) {
        debug_assert!(
            self.covered <= self.writes,
            "more is covered than was written"
        );
        debug_assert!(self.heirs <= self.away, "a debt is to be paid twice");
        self.since = None;
        self.covered = self.writes;
        if self.known_away >= self.losses {
            self.away = self.heirs;
        }
    }

    /// A session of it begins: of how many losses it knows, and what it is to pay.
    const fn welcome(&mut self) -> (u64, Role) {
        self.sessions += 1;
        debug_assert!(
            self.heirs < self.sessions,
            "a session that begins is to pay already"
        );
        debug_assert!(
            self.known_away <= self.losses && self.heard <= self.losses,
            "more losses are counted than there were"
        );
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
        debug_assert!(session.reported_at.is_some(), "no report was sent");
        debug_assert!(
            session.sure <= session.known && session.known <= self.reported,
            "a session has a report that was not sent"
        );
        session.reported_at = None;
        session.sure = session.known;
        self.heard = self.heard.max(session.known);
        if session.role == Role::Heir {
            session.role = Role::Own;
            self.heirs -= 1;
            self.paying -= 1;
            self.away -= 1;
        }
        debug_assert!(
            self.paying <= self.heirs && self.heirs <= self.away,
            "debts, and who is to pay them: {self:?}"
        );
    }

    /// A flush of a session has covered everything: one that was to pay, and has nothing to learn, has paid.
    fn release(&mut self, session: &mut Session) {
        let has_learned = session.known >= self.losses && session.reported_at.is_none();
        if session.role == Role::Heir && has_learned && self.since.is_none() {
            session.role = Role::Own;
            self.heirs -= 1;
            self.away -= 1;
        }
        debug_assert!(
            self.paying <= self.heirs && self.heirs <= self.away,
            "debts, and who is to pay them: {self:?}"
        );
    }

    /// A session of it goes.
    fn part(&mut self, session: &Session) {
        debug_assert!(
            session.last_write <= self.writes,
            "a session has written more than its initiator"
        );
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
                // What nothing has covered may still be lost, and is not only its own.
                match is_owed || may_lose || known < self.losses || self.since.is_some() {
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
        debug_assert!(
            self.paying <= self.heirs && self.heirs <= self.away,
            "debts, and who is to pay them: {self:?}"
        );
        debug_assert!(
            self.heirs <= self.sessions,
            "one that is gone is to pay a debt"
        );
        debug_assert!(
            self.known_away <= self.losses,
            "those who are gone count more losses than there were"
        );
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
    /// Reports that may not have come, in their order; of a session the last one counts.
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
        debug_assert!(
            initiator.covered < initiator.writes,
            "a write is covered before it is answered"
        );
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
        debug_assert!(
            mark.displaced <= book.displaced,
            "a flush is marked in another book"
        );
        let (initiator, session) = book.meet(actor, lost);
        debug_assert!(
            mark.writes <= initiator.writes,
            "a flush was marked for another initiator"
        );
        let is_owed = session.known < initiator.losses;
        if is_owed {
            initiator.reported = initiator.losses;
            session.known = initiator.losses;
            let is_first = session.reported_at.replace(actor.now).is_none();
            initiator.paying += usize::from(is_first && session.role == Role::Heir);
            debug_assert!(
                initiator.paying <= initiator.heirs,
                "more reports are to pay debts than there are heirs"
            );
        }
        if initiator.writes == mark.writes {
            initiator.cover();
            initiator.release(session);
        }
        if is_owed {
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
        let (initiator, session) = book.meet(actor, lost);
        debug_assert!(
            mark.writes <= initiator.writes,
            "a flush was marked for another initiator"
        );
        if initiator.writes == mark.writes {
            initiator.cover();
            initiator.release(session);
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
        debug_assert!(
            initiator.sessions > 0,
            "a session goes that was not counted"
        );
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
        debug_assert!(
            book.absent.len() <= book.initiators.len().min(ABSENT_MAX),
            "the list of those without a session has others"
        );
        debug_assert!(
            book.initiators.len() <= book.sessions.len() + book.absent.len(),
            "an initiator without a session is in no list"
        );
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
            debug_assert!(!book.is_owed(lost), "a loss is reported twice");
        }
        is_owed
    }
}

impl Book {
    /// Reports of long ago have come.
    fn hear(&mut self, now: Duration) {
        let is_old = |at: Duration| now.saturating_sub(at) >= RECEIPT;
        while let Some((at, nexus)) = self.unheard.pop_front_if(|(at, _)| is_old(*at)) {
            if let Some(session) = self.sessions.get_mut(&nexus)
                && session.reported_at == Some(at)
                && let Some(initiator) = self.initiators.get_mut(&session.name)
            {
                debug_assert!(
                    initiator.sessions > 0,
                    "a session that is there was not counted"
                );
                initiator.hear(session);
            }
        }
    }

    /// A report was sent.
    fn await_receipt(&mut self, actor: Actor<'_>) {
        debug_assert!(
            self.sessions.contains_key(&actor.nexus),
            "a report is sent to nobody"
        );
        self.unheard.push_back((actor.now, actor.nexus));
        if self.unheard.len() > 2 * self.sessions.len() + ABSENT_MAX {
            let last = |nexus: &NexusId| self.sessions.get(nexus).and_then(|one| one.reported_at);
            self.unheard.retain(|(at, nexus)| last(nexus) == Some(*at));
        }
    }

    /// The initiator of a nexus, and the nexus.
    fn enter(&mut self, actor: Actor<'_>) -> (&mut Initiator, &mut Session) {
        self.hear(actor.now);
        debug_assert!(
            self.initiators.len() <= self.sessions.len() + self.absent.len(),
            "an initiator without a session is in no list"
        );
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
        debug_assert!(
            session.sure <= session.known && session.known <= initiator.losses,
            "a session counts more losses than there were"
        );
        debug_assert!(
            session.last_write <= initiator.writes,
            "a session has written more than its initiator"
        );
        debug_assert!(
            initiator.covered <= initiator.writes,
            "more is covered than was written"
        );
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
            debug_assert!(initiator.is_listed, "one is in the list by mistake");
            initiator.is_listed = false;
            if initiator.sessions > 0 {
                continue;
            }
            debug_assert_eq!(initiator.heirs, 0, "who is to pay a debt is gone");
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
mod tests;
