//! Flushes that no command asked for: the last one of a unit, before the core ends or before the unit is removed, and
//! the one before an administrator's eject, or before a unit writes through.
//!
//! Every flush ends, at its deadline at the latest. A last one that begins while a store has another is asked for when
//! that one is over: since then something may have been written that it does not cover.

use std::fmt;
use std::time::Duration;

use marks::sometimes;

use crate::{IoFailure, IoResult};

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// A flush that no command asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Flush<U> {
    /// Of which unit.
    pub unit: U,
    /// No other follows.
    pub is_last: bool,
    /// When it is given up.
    pub deadline: Duration,
}

/// How a store takes a flush. `E` names it in the store.
#[derive(Debug)]
pub enum FlushTaken<E> {
    /// It is over.
    Done(IoResult),
    /// The store has it.
    Taken(E),
    /// There is no room for it.
    Full,
}

/// Why what a store has answered may not be on stable storage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlushFailure {
    /// The store said so.
    Store(IoFailure),
    /// It was good, and reports that the store has lost something that it had answered, for this time.
    CacheLost {
        /// See [`Durability::lost`](super::Durability::lost).
        lost: u64,
    },
    /// The store takes no flush.
    NotTaken,
    /// It did not end in time.
    NotInTime,
}

impl fmt::Display for FlushFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(failure) => failure.fmt(f),
            Self::CacheLost { .. } => IoFailure::CacheLost.fmt(f),
            Self::NotTaken => f.write_str("the store takes no flush"),
            Self::NotInTime => f.write_str("it did not end in time"),
        }
    }
}

/// What is to be done about a flush now.
#[derive(Debug, Eq, PartialEq)]
pub enum FlushStep<U, E> {
    /// The store is asked for it: see [`Flushes::note`].
    Ask(Flush<U>),
    /// It is over.
    Over {
        /// Which.
        flush: Flush<U>,
        /// How, unless it was good.
        failure: Option<FlushFailure>,
        /// The request that the store still has of it, for which nobody waits.
        left: Option<E>,
    },
}

#[derive(Debug)]
struct Flushing<U, E> {
    flush: Flush<U>,
    state: State<E>,
    /// The last one of the unit, which is asked for after this one.
    then: Option<Flush<U>>,
}

#[derive(Debug)]
enum State<E> {
    /// The store had no room for it.
    Refused {
        /// When it is asked again.
        again_at: Duration,
    },
    /// The store has it.
    Taken(E),
}

impl<U, E> Flushing<U, E> {
    /// When something is to be done about it.
    fn due_at(&self) -> Duration {
        match self.state {
            State::Refused { again_at } => again_at.min(self.flush.deadline),
            State::Taken(_) => self.flush.deadline,
        }
    }
}

/// Flushes of one core that no command asked for, one a unit at most, and a last one after it.
#[derive(Debug)]
pub struct Flushes<U, E>(Vec<Flushing<U, E>>);

impl<U, E> Default for Flushes<U, E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<U: Copy + Eq, E> Flushes<U, E> {
    /// Whether a store is being flushed.
    pub fn has(&self, unit: U) -> bool {
        self.0.iter().any(|one| one.flush.unit == unit)
    }

    /// Units whose last flush is under way.
    pub fn last(&self) -> impl Iterator<Item = U> + '_ {
        let is_last = |one: &&Flushing<U, E>| one.flush.is_last || one.then.is_some();
        self.0.iter().filter(is_last).map(|one| one.flush.unit)
    }

    /// When something is to be done about one.
    pub fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(Flushing::due_at).min()
    }

    /// A flush begins. Of a unit that has one it is the last, and takes the place of one that the store has not.
    pub fn begin(&mut self, flush: Flush<U>) -> Vec<FlushStep<U, E>> {
        let mut all = self.0.iter_mut();
        let Some(before) = all.find(|one| one.flush.unit == flush.unit) else {
            return vec![FlushStep::Ask(flush)];
        };
        debug_assert!(
            flush.is_last && !before.flush.is_last && before.then.is_none(),
            "two flushes of one kind"
        );
        match before.state {
            State::Refused { .. } => before.flush = flush,
            State::Taken(_) => {
                sometimes!("a last flush waits for one that is under way");
                before.then = Some(flush);
                // Deadlines may have been made shorter meanwhile.
                before.flush.deadline = before.flush.deadline.min(flush.deadline);
            }
        }
        Vec::new()
    }

    /// A store was asked for a flush.
    pub fn note(
        &mut self,
        flush: Flush<U>,
        taken: FlushTaken<E>,
        now: Duration,
    ) -> Option<FlushStep<U, E>> {
        let state = match taken {
            FlushTaken::Done(result) => {
                return Some(FlushStep::Over {
                    flush,
                    failure: result.err().map(FlushFailure::Store),
                    left: None,
                });
            }
            FlushTaken::Taken(errand) => State::Taken(errand),
            FlushTaken::Full => State::Refused {
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
    pub fn end(&mut self, unit: U, result: IoResult, now: Duration) -> Vec<FlushStep<U, E>> {
        let Some(at) = self.0.iter().position(|one| one.flush.unit == unit) else {
            return Vec::new();
        };
        let Flushing { flush, then, .. } = self.0.swap_remove(at);
        let failure = result.err().map(FlushFailure::Store);
        steps(flush, failure, None, then, now)
    }

    /// The unit, which was flushed before, is closed: nobody waits for another flush of it.
    pub fn remove(&mut self, unit: U) {
        self.0.retain(|one| one.flush.unit != unit);
    }

    /// Gives up those whose deadline has come, and has stores asked again that took none.
    pub fn take_due(&mut self, now: Duration) -> Vec<FlushStep<U, E>> {
        let due = self.0.extract_if(.., |one| one.due_at() <= now);
        let due = due.flat_map(|Flushing { flush, state, then }| match state {
            State::Refused { .. } if now < flush.deadline => vec![FlushStep::Ask(flush)],
            State::Refused { .. } => steps(flush, Some(FlushFailure::NotTaken), None, then, now),
            State::Taken(errand) => {
                let failure = Some(FlushFailure::NotInTime);
                steps(flush, failure, Some(errand), then, now)
            }
        });
        due.collect()
    }
}

/// One is over, and the last one is asked for, unless it is too late for that.
fn steps<U, E>(
    flush: Flush<U>,
    failure: Option<FlushFailure>,
    left: Option<E>,
    then: Option<Flush<U>>,
    now: Duration,
) -> Vec<FlushStep<U, E>> {
    let over = FlushStep::Over {
        flush,
        failure,
        left,
    };
    let next = then.map(|last| match now < last.deadline {
        true => FlushStep::Ask(last),
        false => FlushStep::Over {
            flush: last,
            failure: Some(FlushFailure::NotInTime),
            left: None,
        },
    });
    [over].into_iter().chain(next).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::IoAnswer;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Begin { unit: u8, is_last: bool, limit: u64 },
        Answer { unit: u8 },
        Pass(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let unit = || 0_u8..2;
        let event = prop_oneof![
            3 => (unit(), any::<bool>(), 1_u64..60)
                .prop_map(|(unit, is_last, limit)| Event::Begin { unit, is_last, limit }),
            3 => unit().prop_map(|unit| Event::Answer { unit }),
            3 => (1_u64..40).prop_map(Event::Pass),
        ];
        vec(event, 1..40)
    }

    #[test]
    fn the_last_flush_is_asked_for_before_its_deadline_only() {
        let [first, last] = [false, true].map(|is_last| Flush {
            unit: 0_u8,
            is_last,
            deadline: Duration::from_secs(5),
        });
        let over = |flush, failure| FlushStep::<u8, u32>::Over {
            flush,
            failure,
            left: None,
        };
        let at = |now| steps(first, None, None, Some(last), now);
        let before = Duration::from_nanos(4_999_999_999);
        assert_eq!(at(before), [over(first, None), FlushStep::Ask(last)]);
        let late = over(last, Some(FlushFailure::NotInTime));
        assert_eq!(at(last.deadline), [over(first, None), late]);
    }

    /// Two stores, and what becomes of each flush.
    #[derive(Default)]
    struct World {
        flushes: Flushes<u8, u32>,
        now: Duration,
        /// What stores answer when they are asked, in turn.
        takes: Vec<u8>,
        asked: usize,
        /// The flush that each store has, and nobody has given up.
        stores: BTreeMap<u8, Flush<u8>>,
        begun: Vec<Flush<u8>>,
        /// Those that stores have carried out.
        carried_out: Vec<Flush<u8>>,
        over: Vec<Flush<u8>>,
    }

    impl World {
        fn follow(&mut self, steps: Vec<FlushStep<u8, u32>>) {
            let mut steps = VecDeque::from(steps);
            while let Some(step) = steps.pop_front() {
                match step {
                    FlushStep::Ask(flush) => {
                        assert!(!self.stores.contains_key(&flush.unit), "two of one store");
                        assert!(self.now < flush.deadline && self.begun.contains(&flush));
                        let take = self
                            .takes
                            .get(self.asked % self.takes.len().max(1))
                            .copied();
                        self.asked += 1;
                        let taken = match take {
                            Some(0) => {
                                self.carried_out.push(flush);
                                FlushTaken::Done(Ok(IoAnswer::Done))
                            }
                            Some(1) => FlushTaken::Full,
                            Some(_) | None => {
                                self.stores.insert(flush.unit, flush);
                                FlushTaken::Taken(7)
                            }
                        };
                        steps.extend(self.flushes.note(flush, taken, self.now));
                    }
                    FlushStep::Over {
                        flush,
                        failure,
                        left,
                    } => {
                        assert_eq!(
                            failure.is_none(),
                            self.carried_out.contains(&flush),
                            "{flush:?}"
                        );
                        assert_eq!(left.is_some(), self.stores.remove(&flush.unit).is_some());
                        self.over.push(flush);
                    }
                }
            }
        }

        fn pass(&mut self, millis: u64) {
            self.now += Duration::from_millis(millis);
            for _ in 0..100 {
                let due = self.flushes.take_due(self.now);
                if due.is_empty() {
                    break;
                }
                self.follow(due);
            }
            assert!(self.flushes.deadline().is_none_or(|at| at > self.now));
            let late = self.begun.iter().filter(|one| one.deadline <= self.now);
            assert!(
                late.into_iter().all(|one| self.over.contains(one)),
                "{:?}",
                self.begun
            );
        }
    }

    proptest! {
        /// And a last one that is good was asked for after it had begun, beside no other.
        #[test]
        fn every_flush_ends_once_and_in_time(events in events(), takes in vec(0_u8..4, 1..6)) {
            let mut world = World { takes, ..World::default() };
            for event in events {
                match event {
                    Event::Begin { unit, is_last, limit } => {
                        let is_allowed = match is_last {
                            true => !world.flushes.last().any(|one| one == unit),
                            false => !world.flushes.has(unit),
                        };
                        // Each is told by its deadline.
                        let deadline = world.now + Duration::from_millis(limit)
                            + Duration::from_nanos(world.begun.len() as u64);
                        if is_allowed {
                            let flush = Flush { unit, is_last, deadline };
                            // What is under way is given up by then, too.
                            let under_way = world.stores.get_mut(&unit).into_iter();
                            let begun = world.begun.iter_mut().filter(|one| one.unit == unit);
                            for one in under_way.chain(begun) {
                                if !world.over.contains(one) {
                                    one.deadline = one.deadline.min(deadline);
                                }
                            }
                            world.begun.push(flush);
                            let before = world.flushes.0.iter().any(|one| {
                                one.flush.unit == unit && matches!(one.state, State::Refused { .. })
                            });
                            if before {
                                // The last one takes its place.
                                let place = world.begun.iter().position(|one| {
                                    one.unit == unit && !one.is_last && !world.over.contains(one)
                                });
                                world.begun.remove(place.unwrap());
                            }
                            let steps = world.flushes.begin(flush);
                            world.follow(steps);
                        }
                    }
                    Event::Answer { unit } => {
                        if let Some(flush) = world.stores.remove(&unit) {
                            world.carried_out.push(flush);
                            let steps = world.flushes.end(unit, Ok(IoAnswer::Done), world.now);
                            world.follow(steps);
                        }
                    }
                    Event::Pass(millis) => world.pass(millis),
                }
            }
            world.pass(200);
            prop_assert_eq!(world.over.len(), world.begun.len());
            prop_assert!(world.flushes.deadline().is_none());
        }
    }
}
