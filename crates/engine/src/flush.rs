//! Flushes that no command asked for: the last one of a unit, before the core ends or before the unit is
//! removed, and the one before an administrator's eject.
//!
//! Every flush ends, at its deadline at the latest, and a last one that does not end well is named, with
//! [`Report::Flushed`](crate::Report::Flushed). A last one that is asked for while a store has another begins when that
//! one is over: since then something may have been written that it does not cover.

use std::fmt::Debug;
use std::time::Duration;

use crate::UnitIndex;
use crate::keys::ErrandKey;
use crate::report::FlushFailure;
use crate::stores::{FlushWay, Stores};
use crate::unit::Unit;

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Such a flush may take this many times what an abort may take.
const PATIENCE: u32 = 3;

/// A flush that no command asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    pub(crate) unit: UnitIndex,
    /// When it is given up.
    deadline: Duration,
    /// Its end is reported.
    pub(crate) is_last: bool,
}

impl Flush {
    /// It is too late to begin it.
    pub(crate) fn is_late(&self, now: Duration) -> bool {
        now >= self.deadline
    }

    /// One that begins now.
    pub(crate) fn new(
        unit: UnitIndex,
        is_last: bool,
        now: Duration,
        abort_timeout: Duration,
    ) -> Self {
        Self {
            unit,
            deadline: now + abort_timeout * PATIENCE,
            is_last,
        }
    }
}

/// What becomes of a flush now.
#[derive(Debug)]
#[must_use = "a flush that is over is reported, one that is due is asked for again"]
pub(crate) enum Course {
    /// The store is asked for it.
    Ask(Flush),
    /// It is over. Nobody waits any longer for a request that the store has of it.
    Over(Over, Option<FlushFailure>, Option<ErrandKey>),
}

/// A flush that is over.
#[derive(Clone, Copy, Debug)]
#[must_use = "the flush that was asked for meanwhile begins"]
pub(crate) struct Over {
    pub(crate) flush: Flush,
    /// The last one, which begins now.
    pub(crate) then: Option<Flush>,
}

/// A flush that is not over.
#[derive(Debug)]
struct Flushing {
    flush: Flush,
    state: State,
    /// The last one of the unit, which was asked for meanwhile.
    then: Option<Flush>,
}

#[derive(Debug)]
enum State {
    /// The store had no room for it.
    Refused {
        /// When it is asked again.
        again_at: Duration,
    },
    /// The store has it.
    Taken(ErrandKey),
}

impl Flushing {
    /// When something is to be done about it.
    fn due_at(&self) -> Duration {
        match self.state {
            State::Refused { again_at } => again_at.min(self.flush.deadline),
            State::Taken(_) => self.flush.deadline,
        }
    }

    /// What is to be done about it, once it is due.
    fn course(self, now: Duration) -> Course {
        let over = self.over();
        match self.state {
            State::Refused { .. } if now < over.flush.deadline => Course::Ask(over.flush),
            State::Refused { .. } => Course::Over(over, Some(FlushFailure::NotTaken), None),
            State::Taken(errand) => Course::Over(over, Some(FlushFailure::NotInTime), Some(errand)),
        }
    }

    const fn over(&self) -> Over {
        Over {
            flush: self.flush,
            then: self.then,
        }
    }
}

/// Flushes of one core that no command asked for, one a unit at most.
#[derive(Debug, Default)]
pub(crate) struct Flushes(Vec<Flushing>);

impl Flushes {
    /// Whether a store is being flushed.
    pub(crate) fn has(&self, unit: UnitIndex) -> bool {
        self.0.iter().any(|one| one.flush.unit == unit)
    }

    /// Units whose last flush is under way.
    pub(crate) fn last(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        let is_last = |one: &&Flushing| one.flush.is_last || one.then.is_some();
        self.0.iter().filter(is_last).map(|one| one.flush.unit)
    }

    /// When something is to be done about one.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(Flushing::due_at).min()
    }

    /// The last flush of a unit, which has another one: it begins when a store that has that one has answered, and
    /// takes the place of one that no store has. False where the unit has none.
    pub(crate) fn put_last(&mut self, last: Flush) -> bool {
        let mut all = self.0.iter_mut();
        let Some(before) = all.find(|one| one.flush.unit == last.unit) else {
            return false;
        };
        debug_assert!(
            !before.flush.is_last && before.then.is_none(),
            "two flushes are the last: {before:?}, {last:?}"
        );
        match before.state {
            State::Refused { .. } => before.flush = last,
            State::Taken(_) => {
                before.then = Some(last);
                // Deadlines may have been made shorter meanwhile.
                before.flush.deadline = before.flush.deadline.min(last.deadline);
            }
        }
        true
    }

    /// Asks the store of a unit. Gives the end of a flush that is over at once.
    pub(crate) fn ask<O: Copy + Debug>(
        &mut self,
        flush: Flush,
        unit: &mut Unit,
        stores: &mut Stores<O>,
        now: Duration,
    ) -> Option<(Flush, Option<FlushFailure>)> {
        let state = match stores.submit_flush(flush.unit, unit) {
            Some(FlushWay::Over(result)) => {
                return Some((flush, result.err().map(FlushFailure::Store)));
            }
            Some(FlushWay::Taken(errand)) => State::Taken(errand),
            None => State::Refused {
                again_at: now + FULL_PAUSE,
            },
        };
        self.0.push(Flushing {
            flush,
            state,
            then: None,
        });
        None
    }

    /// The store of a unit has answered.
    pub(crate) fn take(&mut self, unit: UnitIndex) -> Option<Over> {
        let at = self.0.iter().position(|one| one.flush.unit == unit)?;
        let taken = self.0.swap_remove(at);
        Some(taken.over())
    }

    /// The unit, which was flushed before, is closed: nobody waits for another flush of it.
    pub(crate) fn remove(&mut self, unit: UnitIndex) {
        self.0.retain(|one| one.flush.unit != unit);
    }

    /// Those whose deadline has come, and those whose store took none before.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Course> {
        let due = self.0.extract_if(.., |one| one.due_at() <= now);
        due.map(|one| one.course(now)).collect()
    }
}
