//! What is counted: commands by unit and initiator, and what cores do.
//!
//! Every counter has one writer, its core, and is read by others at any time. A command costs
//! one entry in a list of its core; the list is counted when the answers of a turn have been sent,
//! with one reading of the clock for all of them. So a latency is the time from the turn in which the
//! command was received to the moment its answer was given to the kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(test)]
use engine::NO_SERIES;
use engine::{Ending, Life, Port as _, UnitIndex};
use front::{Command, CommandId, Port, SessionId, hyperscsi};
use reactor::cores;
use scsi::{CommandSet, Description, Status};
use slab::Slab;

use crate::slow::{SlowLimit, SlowLog};
use crate::troubles::{StoreTrouble, Troubles};

/// Buckets of a latency histogram: two to the octave from 4 us on, and one for what is above.
pub const LATENCY_BUCKETS: usize = 41;

/// How many series a core keeps; those that come later are counted together, unit by unit.
const SERIES_MAX: usize = 4096;

/// InitiatorName of such a series.
const OTHER: &str = "other";

/// The bucket of a latency in microseconds. Bounds are inclusive: 4, 6, 8, 12, 16, 24 and so on.
pub const fn latency_bucket(us: u64) -> usize {
    if us <= 4 {
        return 0;
    }
    let below = us - 1;
    let octave = below.ilog2();
    let half = (below >> (octave - 1)) & 1;
    let bucket = (octave as usize - 2) * 2 + half as usize + 1;
    if bucket < LATENCY_BUCKETS {
        bucket
    } else {
        LATENCY_BUCKETS - 1
    }
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, amount: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(amount);
    counter.store(sum, Ordering::Relaxed);
}

/// Counters of one kind of command.
#[derive(Debug)]
struct KindCounters {
    count: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency_us: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
}

impl Default for KindCounters {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            latency_us: AtomicU64::new(0),
            latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }
}

/// Counters of one kind of command, as they were read.
#[derive(Clone, Debug)]
pub struct KindCounts {
    /// Commands that were answered.
    pub count: u64,
    /// Data that went with them.
    pub bytes: u64,
    /// Commands that were not answered GOOD.
    pub errors: u64,
    /// The sum of their latencies.
    pub latency_us: u64,
    /// By [`latency_bucket`].
    pub latency: [u64; LATENCY_BUCKETS],
}

impl KindCounters {
    fn read(&self) -> KindCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KindCounts {
            count: value(&self.count),
            bytes: value(&self.bytes),
            errors: value(&self.errors),
            latency_us: value(&self.latency_us),
            latency: std::array::from_fn(|at| value(&self.latency[at])),
        }
    }
}

/// The commands of one initiator to one unit, on one core.
#[derive(Debug)]
pub(crate) struct SeriesCounters {
    unit: UnitIndex,
    commands: CommandSet,
    initiator: Box<str>,
    /// Commands that wait for something.
    depth: AtomicU32,
    slow: AtomicU64,
    kinds: [KindCounters; 3],
}

/// The commands of one initiator to one unit, on one core, as they were read.
#[derive(Clone, Debug)]
pub struct SeriesCounts {
    /// The unit.
    pub unit: UnitIndex,
    /// InitiatorName, or `other` for all that found no series of their own.
    pub initiator: String,
    /// Commands that wait for something.
    pub depth: u32,
    /// Commands that took longer than the limit.
    pub slow: u64,
    /// By [`scsi::CommandKind`], in its order.
    pub kinds: [KindCounts; 3],
}

/// What one core counts.
#[derive(Debug, Default)]
pub(crate) struct CoreCounters {
    thread: AtomicU32,
    turns: AtomicU64,
    starved: AtomicU64,
    sessions: AtomicU64,
    pool_bytes: AtomicU64,
    pool_free_bytes: AtomicU64,
    /// Locked to add a series, to take those of a unit out, and to read.
    series: Mutex<Vec<Arc<SeriesCounters>>>,
    /// What is the matter with stores.
    pub(crate) troubles: Troubles,
}

impl CoreCounters {
    /// How many turns the core has taken.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// The list is whole even if a thread panicked: under the lock series are only added or removed.
    fn series(&self) -> MutexGuard<'_, Vec<Arc<SeriesCounters>>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> CoreCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let series = |one: &Arc<SeriesCounters>| SeriesCounts {
            unit: one.unit,
            initiator: one.initiator.to_string(),
            depth: one.depth.load(Ordering::Relaxed),
            slow: value(&one.slow),
            kinds: std::array::from_fn(|at| one.kinds[at].read()),
        };
        CoreCounts {
            thread: self.thread.load(Ordering::Relaxed),
            turns: value(&self.turns),
            starved: value(&self.starved),
            sessions: value(&self.sessions),
            pool_bytes: value(&self.pool_bytes),
            pool_free_bytes: value(&self.pool_free_bytes),
            series: self.series().iter().map(series).collect(),
            troubles: self.troubles.read(),
        }
    }
}

/// What one core has counted.
#[derive(Clone, Debug)]
pub struct CoreCounts {
    /// Its thread, as the system numbers it.
    pub thread: u32,
    /// Turns of its loop.
    pub turns: u64,
    /// Commands that had to wait for memory.
    pub starved: u64,
    /// Sessions that live there now.
    pub sessions: u64,
    /// Memory for data in flight.
    pub pool_bytes: u64,
    /// How much of it is free now.
    pub pool_free_bytes: u64,
    /// Commands.
    pub series: Vec<SeriesCounts>,
    /// What is the matter with stores, by unit.
    pub troubles: Vec<StoreTrouble>,
}

/// HyperSCSI on a core, at one moment.
#[derive(Clone, Debug)]
pub struct HyperscsiReport {
    /// The core.
    pub core: usize,
    /// All places.
    pub places: Vec<hyperscsi::Place>,
    /// Places that are away: their interfaces are gone or down.
    pub away: Vec<hyperscsi::Place>,
    /// What it has counted since it began.
    pub counts: hyperscsi::Counts,
}

/// Where and as what a command is to be counted, and which it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    series: u32,
    pub(crate) session: SessionId,
    /// Initiator Task Tag.
    pub(crate) task_tag: u32,
    pub(crate) bytes: u32,
    /// When its header came.
    pub(crate) since: Duration,
    pub(crate) cdb: [u8; 16],
}

impl Account {
    #[inline]
    pub(crate) fn new(series: u32, port: &Port, id: CommandId, command: &Command) -> Self {
        let (session, task_tag) = match port {
            Port::Iscsi(port) => (port.detail.id, port.session.tag_of(id.into())),
            Port::Nbd(port) => (port.detail.id, id.place),
            Port::Hyperscsi(port) => (port.detail.id, id.place),
        };
        Self {
            series,
            session,
            task_tag,
            bytes: command.data_in_length.max(command.data_out_length),
            since: port.arrival_of(id),
            cdb: command.cdb,
        }
    }

    /// Belongs to no series.
    #[cfg(test)]
    const NOBODY: Self = Self {
        series: NO_SERIES,
        session: SessionId(0),
        task_tag: 0,
        bytes: 0,
        since: Duration::ZERO,
        cdb: [0; 16],
    };
}

/// A command that is over, or hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowReport {
    pub(crate) account: Account,
    pub(crate) ending: Ending,
    pub(crate) life: Life,
    /// How many slow ones were not reported since the last that was.
    pub(crate) unreported: u64,
}

/// The series of one core, and what is yet to be counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) shared: Arc<CoreCounters>,
    /// By number. Readers know nothing of numbers: one that is given again leads to new counters.
    series: Slab<Arc<SeriesCounters>>,
    found: HashMap<(UnitIndex, Box<str>), u32>,
    /// Commands of this turn that never waited.
    at_once: Vec<(Account, Status)>,
    /// The other commands that ended in this turn.
    lived: Vec<(Account, Ending, Life)>,
    pub(crate) slow: SlowLog,
    /// Units with a command that was not answered GOOD in the turns that were counted: what their stores say of it is
    /// yet to be asked.
    unhappy: Vec<UnitIndex>,
    /// How many commands ended with RESERVATION CONFLICT in the turns that were counted, by series.
    conflicts: BTreeMap<u32, u64>,
}

impl Tally {
    pub(crate) fn new(shared: Arc<CoreCounters>, pool_bytes: usize, slow: Arc<SlowLimit>) -> Self {
        shared.thread.store(cores::thread_id(), Ordering::Relaxed);
        add(&shared.pool_bytes, pool_bytes as u64);
        Self {
            shared,
            slow: SlowLog::new(slow),
            ..Self::default()
        }
    }

    /// The series of an initiator and a unit, made if it is the first time.
    pub(crate) fn series_of(
        &mut self,
        (unit, commands): (UnitIndex, CommandSet),
        initiator: &str,
    ) -> u32 {
        let mut key = (unit, Box::from(initiator));
        if let Some(&series) = self.found.get(&key) {
            return series;
        }
        if self.series.len() >= SERIES_MAX {
            key.1 = Box::from(OTHER);
            if let Some(&series) = self.found.get(&key) {
                return series;
            }
        }
        let series = Arc::new(SeriesCounters {
            unit,
            commands,
            initiator: key.1.clone(),
            depth: AtomicU32::new(0),
            slow: AtomicU64::new(0),
            kinds: Default::default(),
        });
        self.shared.series().push(Arc::clone(&series));
        let number = u32::try_from(self.series.insert(series)).unwrap_or(u32::MAX);
        self.found.insert(key, number);
        number
    }

    /// A unit was removed: so are its series, and their numbers may be given again. No session has the unit
    /// any more and no command to it is under way; what may be left is an answer of this turn, which must not
    /// be counted for the next series of that number.
    pub(crate) fn remove_unit(&mut self, unit: UnitIndex) {
        let series = &self.series;
        let is_gone = |account: &Account| {
            let series = series.get(account.series as usize);
            series.is_some_and(|series| series.unit == unit)
        };
        self.at_once.retain(|(account, _)| !is_gone(account));
        self.lived.retain(|(account, ..)| !is_gone(account));
        self.found.retain(|(of, _), _| *of != unit);
        self.unhappy.retain(|of| *of != unit);
        self.shared.troubles.remove_unit(unit);
        self.series.retain(|_, series| series.unit != unit);
        self.shared.series().retain(|series| series.unit != unit);
    }

    /// A command that never waited is answered; counted at the end of the turn.
    pub(crate) fn note(&mut self, account: Account, status: Status) {
        self.at_once.push((account, status));
    }

    /// A command is over after it has waited; counted at the end of the turn.
    pub(crate) fn note_lived(&mut self, account: Account, ending: Ending, life: Life) {
        self.lived.push((account, ending, life));
    }

    /// Whose command it is: the unit and the InitiatorName of its series.
    pub(crate) fn whose(&self, account: Account) -> Option<(UnitIndex, &str)> {
        let series = self.series.get(account.series as usize)?;
        Some((series.unit, &series.initiator))
    }

    /// What it was.
    pub(crate) fn description(&self, account: Account) -> Description {
        let series = self.series.get(account.series as usize);
        let commands = series.map_or(CommandSet::OWN, |series| series.commands);
        commands.describe(&account.cdb)
    }

    /// A command waits for something.
    pub(crate) fn enter(&self, account: Account) {
        if let Some(series) = self.series.get(account.series as usize) {
            series
                .depth
                .store(series.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// It waits no more.
    pub(crate) fn leave(&self, account: Account) {
        if let Some(series) = self.series.get(account.series as usize) {
            let depth = series.depth.load(Ordering::Relaxed);
            debug_assert!(depth > 0, "a command leaves that did not enter");
            series
                .depth
                .store(depth.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// A turn is over, with so many sessions and so much free memory.
    pub(crate) fn note_turn(&self, sessions: usize, pool_free_bytes: usize) {
        let shared = &self.shared;
        add(&shared.turns, 1);
        let set =
            |counter: &AtomicU64, value: usize| counter.store(value as u64, Ordering::Relaxed);
        set(&shared.sessions, sessions);
        set(&shared.pool_free_bytes, pool_free_bytes);
    }

    /// No command ended in this turn.
    pub(crate) fn is_even(&self) -> bool {
        self.at_once.is_empty() && self.lived.is_empty()
    }

    /// Units with commands that were not answered GOOD, once.
    pub(crate) fn take_unhappy(&mut self) -> Vec<UnitIndex> {
        std::mem::take(&mut self.unhappy)
    }

    /// Units and InitiatorNames of commands that ended with RESERVATION CONFLICT, and how many they were, once.
    pub(crate) fn take_conflicts(&mut self) -> Vec<(UnitIndex, Box<str>, u64)> {
        let conflicts = std::mem::take(&mut self.conflicts).into_iter();
        let whose = conflicts.filter_map(|(series, count)| {
            let series = self.series.get(series as usize)?;
            Some((series.unit, series.initiator.clone(), count))
        });
        whose.collect()
    }

    pub(crate) fn note_starved(&self) {
        add(&self.shared.starved, 1);
    }

    /// Counts what the turn that began at `began` has completed. Returns the slow ones that are to be reported.
    pub(crate) fn count(&mut self, began: Duration, now: Duration) -> Vec<SlowReport> {
        let limit_us = self.slow.limit_us();
        let mut reports = Vec::new();
        for (account, status) in &self.at_once {
            let Some(series) = self.series.get(account.series as usize) else {
                continue;
            };
            let status = *status;
            if status == Status::ReservationConflict {
                *self.conflicts.entry(account.series).or_default() += 1;
            }
            if status != Status::Good && !self.unhappy.contains(&series.unit) {
                self.unhappy.push(series.unit);
            }
            if series.count(account, Some(status), now) > limit_us {
                let life = Life::new(account.since, began);
                let ending = Ending::Answered(status);
                reports.extend(series.note_slow(&mut self.slow, (*account, ending, life), now));
            }
        }
        self.at_once.clear();
        for (account, ending, life) in self.lived.drain(..) {
            let Some(series) = self.series.get(account.series as usize) else {
                continue;
            };
            let status = match ending {
                Ending::Answered(status) => Some(status),
                Ending::Aborted | Ending::Pending => None,
            };
            if status == Some(Status::ReservationConflict) {
                *self.conflicts.entry(account.series).or_default() += 1;
            }
            if status != Some(Status::Good) && !self.unhappy.contains(&series.unit) {
                self.unhappy.push(series.unit);
            }
            if series.count(&account, status, now) > limit_us {
                reports.extend(series.note_slow(&mut self.slow, (account, ending, life), now));
            }
        }
        reports
    }
}

impl SeriesCounters {
    /// Counts a command, if it was answered. Gives its latency in microseconds.
    fn count(&self, account: &Account, answer: Option<Status>, now: Duration) -> u64 {
        let latency = now.saturating_sub(account.since).as_micros();
        let us = u64::try_from(latency).unwrap_or(u64::MAX);
        let Some(status) = answer else {
            return us;
        };
        let counters = &self.kinds[self.commands.kind_of(account.cdb[0]) as usize];
        add(&counters.count, 1);
        add(&counters.latency_us, us);
        add(&counters.latency[latency_bucket(us)], 1);
        if status == Status::Good {
            add(&counters.bytes, u64::from(account.bytes));
        } else {
            add(&counters.errors, 1);
        }
        us
    }

    /// Counts a slow command, and returns what is reported about it.
    fn note_slow(
        &self,
        log: &mut SlowLog,
        (account, ending, life): (Account, Ending, Life),
        now: Duration,
    ) -> Option<SlowReport> {
        add(&self.slow, 1);
        let unreported = log.take(now)?;
        Some(SlowReport {
            account,
            ending,
            life,
            unreported,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Phase;

    const READ: u8 = 0x28;
    const WRITE: u8 = 0x2a;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A command that came after 100 us.
    fn account(series: u32, operation_code: u8, bytes: u32) -> Account {
        let mut cdb = [0; 16];
        cdb[0] = operation_code;
        Account {
            series,
            bytes,
            cdb,
            since: us(100),
            ..Account::NOBODY
        }
    }

    #[test]
    fn buckets_are_two_to_the_octave() {
        for (us, bucket) in [
            (0, 0),
            (4, 0),
            (5, 1),
            (6, 1),
            (7, 2),
            (8, 2),
            (9, 3),
            (12, 3),
            (13, 4),
            (3 << 20, 39),
            ((3 << 20) + 1, 40),
            (u64::MAX, 40),
        ] {
            assert_eq!(latency_bucket(us), bucket, "{us}");
        }
    }

    #[test]
    fn latecomers_share_a_series() {
        let mut tally = Tally::default();
        for number in 0..SERIES_MAX {
            tally.series_of((UnitIndex(0), CommandSet::OWN), &number.to_string());
        }
        let first = tally.series_of((UnitIndex(0), CommandSet::OWN), "late");
        assert_eq!(
            tally.series_of((UnitIndex(0), CommandSet::OWN), "later"),
            first
        );
        assert_ne!(
            tally.series_of((UnitIndex(1), CommandSet::OWN), "later"),
            first
        );
        assert_eq!(tally.series_of((UnitIndex(0), CommandSet::OWN), "7"), 7);
    }

    /// More units than there are places, each with its initiator, come and go.
    #[test]
    fn a_unit_that_is_gone_leaves_its_places_to_others() {
        let mut tally = Tally::default();
        let kept = tally.series_of((UnitIndex(0), CommandSet::OWN), "a");
        for unit in (1..).take(SERIES_MAX + 9) {
            let unit = UnitIndex(unit);
            for initiator in ["a", "b"] {
                let series = tally.series_of((unit, CommandSet::OWN), initiator);
                tally.note(account(series, READ, 512), Status::Good);
                let counts = tally.shared.read().series;
                let last = counts.last().unwrap();
                assert_eq!((last.unit, last.initiator.as_str()), (unit, initiator));
                assert_eq!(last.kinds[0].count, 0, "counters of another one");
            }
            tally.remove_unit(unit);
            assert_eq!(tally.shared.read().series.len(), 1);
        }
        assert_eq!(tally.series.capacity(), 4, "places");
        // The answers were to units that are gone.
        let next = tally.series_of((UnitIndex(u32::MAX), CommandSet::OWN), "c");
        tally.count(us(105), us(110));
        let counts = tally.shared.read().series;
        assert!(counts.iter().all(|one| one.kinds[0].count == 0));
        assert_eq!(tally.series_of((UnitIndex(0), CommandSet::OWN), "a"), kept);
        assert_ne!(next, kept);
    }

    #[test]
    fn depth_is_the_number_of_commands_that_wait() {
        let mut tally = Tally::default();
        let waits = account(
            tally.series_of((UnitIndex(0), CommandSet::OWN), "a"),
            READ,
            512,
        );
        let depth = |tally: &Tally| tally.shared.read().series[0].depth;
        tally.enter(waits);
        tally.enter(waits);
        tally.leave(waits);
        assert_eq!(depth(&tally), 1);
        // One whose unit was removed meanwhile belongs to no series.
        tally.leave(Account::NOBODY);
        assert_eq!(depth(&tally), 1);
    }

    #[test]
    fn a_command_is_counted_once() {
        let mut tally = Tally::default();
        let series = tally.series_of((UnitIndex(0), CommandSet::OWN), "a");
        tally.note(account(series, READ, 4096), Status::Good);
        let life = Life::new(us(100), us(100));
        let failed = Ending::Answered(Status::CheckCondition);
        tally.note_lived(account(series, WRITE, 512), failed, life);
        tally.note_lived(account(series, READ, 512), Ending::Aborted, life);
        tally.note(Account::NOBODY, Status::Good);
        assert!(tally.count(us(105), us(110)).is_empty());
        assert!(tally.is_even());
        let [read, write, other] = tally.shared.read().series[0].kinds.clone();
        assert_eq!(
            (read.count, read.bytes, read.errors, read.latency_us),
            (1, 4096, 0, 10)
        );
        assert_eq!((write.count, write.bytes, write.errors), (1, 0, 1));
        assert_eq!(read.latency[latency_bucket(10)], 1);
        assert_eq!(other.count, 0);
    }

    /// At the limit and above it, answered at once, later, or never.
    #[test]
    fn what_took_longer_than_the_limit_is_slow_and_reported_with_its_life() {
        let limit = SlowLimit::new(Some(us(50)));
        let mut tally = Tally::new(Arc::default(), 0, Arc::new(limit));
        let series = tally.series_of((UnitIndex(0), CommandSet::OWN), "a");
        let mut life = Life::new(us(100), us(110));
        life.leave(Some(Phase::Store), us(140));
        tally.note(account(series, READ, 512), Status::Good);
        tally.note_lived(account(series, READ, 512), Ending::Aborted, life);
        assert!(tally.count(us(140), us(150)).is_empty());
        tally.note(account(series, READ, 512), Status::Busy);
        tally.note_lived(account(series, WRITE, 512), Ending::Aborted, life);
        let reports = tally.count(us(140), us(151));
        let reports = reports.iter().map(|one| {
            let phases = one.life.phases();
            let last = phases.last().map(|one| (one.phase, one.took));
            (one.account.cdb[0], one.ending, last)
        });
        assert_eq!(
            reports.collect::<Vec<_>>(),
            [
                (
                    READ,
                    Ending::Answered(Status::Busy),
                    Some((Phase::Arrival, us(40)))
                ),
                (WRITE, Ending::Aborted, Some((Phase::Store, us(30)))),
            ]
        );
        assert_eq!(tally.shared.read().series[0].slow, 2);
    }
}
