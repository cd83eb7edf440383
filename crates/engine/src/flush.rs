//! Flushes that no command asked for: the last one of a unit, before the core ends or before the unit is
//! removed, and the one before an administrator's eject.
//!
//! Every flush ends, at its deadline at the latest, and a last one that does not end well is named, with
//! [`Report::Flushed`].

use std::fmt;
use std::time::Duration;

use store::{IoFailure, IoResult};

use crate::UnitIndex;
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::report::Report;
use crate::stores::{ErrandKey, FlushWay};

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Such a flush may take this many times what an abort may take.
const PATIENCE: u32 = 3;

/// Why the data of a unit may not be on stable storage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlushFailure {
    /// The store said so.
    Store(IoFailure),
    /// The store takes no flush.
    NotTaken,
    /// It did not end in time.
    NotInTime,
}

impl fmt::Display for FlushFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(failure) => failure.fmt(f),
            Self::NotTaken => f.write_str("the store takes no flush"),
            Self::NotInTime => f.write_str("it did not end in time"),
        }
    }
}

/// A flush that is not over.
#[derive(Debug)]
struct Flushing {
    unit: UnitIndex,
    /// When it is given up.
    deadline: Duration,
    /// Its end is reported.
    is_last: bool,
    state: State,
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
            State::Refused { again_at } => again_at.min(self.deadline),
            State::Taken(_) => self.deadline,
        }
    }
}

/// Flushes of one core that no command asked for, one a unit at most.
#[derive(Debug, Default)]
pub(crate) struct Flushes(Vec<Flushing>);

impl Flushes {
    /// Whether a store is being flushed.
    pub(crate) fn has(&self, unit: UnitIndex) -> bool {
        self.0.iter().any(|one| one.unit == unit)
    }

    /// When something is to be done about one.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(Flushing::due_at).min()
    }
}

impl<C: Carrier> Engine<C> {
    /// Flushes the store of a unit that this core owns, for the last time.
    pub fn flush_unit(&mut self, unit: UnitIndex) {
        debug_assert!(
            self.units[unit].owner.is_some(),
            "{unit:?} is another core's to flush"
        );
        debug_assert!(
            !self.flushing_units().any(|other| other == unit),
            "{unit:?} is flushed twice"
        );
        let deadline = self.flush_deadline();
        match self.flushes.0.iter_mut().find(|one| one.unit == unit) {
            // The one before an eject: nothing was written since it began.
            Some(one) => (one.is_last, one.deadline) = (true, deadline),
            None => self.begin_flush(unit, true),
        }
    }

    /// Flushes a store of which no flush is under way.
    pub(crate) fn begin_flush(&mut self, unit: UnitIndex, is_last: bool) {
        debug_assert!(!self.flushes.has(unit), "{unit:?} is being flushed");
        let deadline = self.flush_deadline();
        self.try_flush(unit, deadline, is_last);
    }

    /// When a flush that begins now is given up.
    fn flush_deadline(&self) -> Duration {
        self.now + self.settings.abort_timeout * PATIENCE
    }

    /// Units whose last flush is under way.
    pub fn flushing_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        let last = self.flushes.0.iter().filter(|one| one.is_last);
        last.map(|one| one.unit)
    }

    fn try_flush(&mut self, unit: UnitIndex, deadline: Duration, is_last: bool) {
        let state = match self.submit_flush(unit) {
            Ok(FlushWay::Over(result)) => {
                self.end_flush(unit, is_last, result.err().map(FlushFailure::Store));
                return;
            }
            Ok(FlushWay::Taken(errand)) => State::Taken(errand),
            Err(()) => State::Refused {
                again_at: self.now + FULL_PAUSE,
            },
        };
        self.flushes.0.push(Flushing {
            unit,
            deadline,
            is_last,
            state,
        });
    }

    /// Gives up those whose deadline has come, and asks stores again that took none.
    pub(crate) fn retry_flushes(&mut self) {
        let now = self.now;
        if self.flushes.deadline().is_none_or(|at| now < at) {
            return;
        }
        let all = std::mem::take(&mut self.flushes.0);
        let (due, left) = all.into_iter().partition(|flush| flush.due_at() <= now);
        self.flushes.0 = left;
        for Flushing {
            unit,
            deadline,
            is_last,
            state,
        } in due
        {
            match state {
                State::Refused { .. } if now < deadline => self.try_flush(unit, deadline, is_last),
                State::Refused { .. } => {
                    self.end_flush(unit, is_last, Some(FlushFailure::NotTaken));
                }
                State::Taken(errand) => {
                    self.disown_errand(errand);
                    self.end_flush(unit, is_last, Some(FlushFailure::NotInTime));
                }
            }
        }
    }

    /// The answer of a store to a flush that no command asked for.
    pub(crate) fn handle_flush(&mut self, unit: UnitIndex, result: IoResult) {
        let mut under_way = self.flushes.0.iter();
        let Some(at) = under_way.position(|one| one.unit == unit) else {
            debug_assert!(false, "{unit:?} was not flushed");
            return;
        };
        let ended = self.flushes.0.swap_remove(at);
        self.end_flush(unit, ended.is_last, result.err().map(FlushFailure::Store));
    }

    fn end_flush(&mut self, unit: UnitIndex, is_last: bool, failure: Option<FlushFailure>) {
        self.handle_flushed_medium(unit, failure.as_ref());
        if is_last {
            self.reports.push_back(Report::Flushed { unit, failure });
        }
    }
}
