//! Media as the administration sees, moves and holds them.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::{MediumFailure, MediumOrder};

use super::{MEDIUM_PATIENCE, MediumReport};
use crate::handle::{ANSWER_PATIENCE, Handle};
use crate::letter::Letter;
use crate::plan::{Exchange, UnitIndex};
use crate::receipt::{AddUnitError, NoAnswer};
use crate::reserved::ReservationReport;

impl Handle {
    /// Ejects or loads the medium of a unit. [`Handle::medium`] shows the change before this returns.
    ///
    /// # Errors
    ///
    /// The outer one: the core does not answer in time, and may still do it. The inner one: why the
    /// medium is where it was.
    pub fn move_medium(
        &self,
        unit: UnitIndex,
        order: MediumOrder,
    ) -> Result<Result<(), MediumFailure>, NoAnswer> {
        let answered = self.order_medium(unit, order);
        answered.recv_timeout(MEDIUM_PATIENCE).map_err(|_| NoAnswer)
    }

    /// The same for several units at once, in `patience` all together. A unit whose answer has not come may still do
    /// it.
    pub fn move_media(
        &self,
        orders: &[(UnitIndex, MediumOrder)],
        patience: Duration,
    ) -> Vec<Result<Result<(), MediumFailure>, NoAnswer>> {
        let until = Instant::now() + patience;
        let ask = |&(unit, order): &(UnitIndex, MediumOrder)| self.order_medium(unit, order);
        let answers: Vec<_> = orders.iter().map(ask).collect();
        let wait = |answered: Receiver<Result<(), MediumFailure>>| {
            let left = until.saturating_duration_since(Instant::now());
            answered.recv_timeout(left).map_err(|_| NoAnswer)
        };
        answers.into_iter().map(wait).collect()
    }

    /// Has another store stand for the medium of a unit, which is held meanwhile. It is in when it is loaded; nexuses,
    /// reservations and modes are as before.
    ///
    /// # Errors
    ///
    /// The medium cannot be held, or a core cannot exchange it: then some cores may have, and the unit has to be opened
    /// anew.
    pub fn exchange_store(&self, exchange: Exchange) -> Result<(), ExchangeError> {
        let held = self.hold_media(&[exchange.unit], ANSWER_PATIENCE);
        let held = held.map_err(|_| ExchangeError::NotHeld)?;
        let (report, reports) = mpsc::channel();
        let exchange = Arc::new(exchange);
        for post in &self.posts {
            let (exchange, report) = (Arc::clone(&exchange), report.clone());
            post.push(Letter::Exchange { exchange, report });
        }
        let until = Instant::now() + ANSWER_PATIENCE;
        for _ in &self.posts {
            let left = until.saturating_duration_since(Instant::now());
            let one = reports.recv_timeout(left);
            one.unwrap_or_else(|_| Err(NoAnswer.into()))?;
        }
        drop(held);
        Ok(())
    }

    fn order_medium(
        &self,
        unit: UnitIndex,
        order: MediumOrder,
    ) -> Receiver<Result<(), MediumFailure>> {
        let (answer, answered) = mpsc::channel();
        self.post_to_owner(
            unit,
            Letter::MoveMedium {
                unit,
                order,
                answer,
            },
        );
        answered
    }

    fn post_to_owner(&self, unit: UnitIndex, letter: Letter) {
        let owner = unit.owner(self.posts.len().max(1));
        if let Some(post) = self.posts.get(owner) {
            post.push(letter);
        }
    }

    /// Holds the media of several units at once: from the return of this until they are released no command is at work
    /// on any of them, on no core, and those that come wait. After `limit`, the wait for those at work included,
    /// commands go on whatever the caller does. There is one hold at a time; the next caller waits for its end.
    ///
    /// # Errors
    ///
    /// Of one unit, why not. Nothing is held.
    pub fn hold_media(
        &self,
        units: &[UnitIndex],
        limit: Duration,
    ) -> Result<Hold<'_>, (UnitIndex, NotHeld)> {
        let turn = self.holding.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + limit;
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        let order = MediumOrder::Hold { limit, number };
        let ask = |&unit| (unit, self.order_medium(unit, order));
        let answers: Vec<_> = units.iter().map(ask).collect();
        // Released where this returns early.
        let hold = Hold {
            handle: self,
            units: units.to_vec(),
            number,
            _turn: turn,
        };
        for (unit, answered) in answers {
            let left = until.saturating_duration_since(Instant::now());
            match answered.recv_timeout(left) {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return Err((unit, NotHeld::Refused(failure))),
                Err(_) => return Err((unit, NotHeld::NoAnswer)),
            }
        }
        Ok(hold)
    }

    /// The reservations of a unit. No core is asked.
    pub fn reservations(&self, unit: UnitIndex) -> Arc<ReservationReport> {
        self.media.reserved.get(unit)
    }

    /// Keeps everybody from the medium of a unit until what is returned is dropped: commands that come wait, and end
    /// with BUSY after the time that they may wait for others. Those at work may take `patience` to end.
    ///
    /// # Errors
    ///
    /// Why not; commands go on.
    pub fn close_medium(
        self: &Arc<Self>,
        unit: UnitIndex,
        patience: Duration,
    ) -> Result<Closed, NotHeld> {
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        let closed = Closed {
            handle: Arc::clone(self),
            unit,
            number,
        };
        let limit = CLOSED_MAX;
        let answered = self.order_medium(unit, MediumOrder::Hold { limit, number });
        match answered.recv_timeout(patience) {
            Ok(Ok(())) => Ok(closed),
            Ok(Err(failure)) => Err(NotHeld::Refused(failure)),
            Err(_) => Err(NotHeld::NoAnswer),
        }
    }

    fn release_medium(&self, unit: UnitIndex, number: u64) -> Receiver<bool> {
        let (answer, answered): (Sender<bool>, _) = mpsc::channel();
        let hold = (unit, number);
        let letter = Letter::ReleaseMedium { hold, answer };
        self.post_to_owner(unit, letter);
        answered
    }

    /// The medium of a unit, if that is removable. No core is asked.
    pub fn medium(&self, unit: UnitIndex) -> MediumReport {
        self.media.get(unit)
    }
}

/// Longer than any program runs.
const CLOSED_MAX: Duration = Duration::from_secs(1 << 32);

/// A medium that nobody reads or writes, until this is dropped.
#[derive(Debug)]
#[must_use = "commands wait for it"]
pub struct Closed {
    handle: Arc<Handle>,
    unit: UnitIndex,
    number: u64,
}

impl Drop for Closed {
    fn drop(&mut self) {
        drop(self.handle.release_medium(self.unit, self.number));
    }
}

/// Why a medium is not held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotHeld {
    /// Its owner says so.
    Refused(MediumFailure),
    /// Its owner has not answered in time.
    NoAnswer,
}

/// Why no other store stands for the medium of a unit.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Commands are at work on it, or it moves. Nothing has changed.
    #[error("its medium cannot be held: commands are at work on it, or it is being moved")]
    NotHeld,
    /// A core has not exchanged it; others may have.
    #[error(transparent)]
    Core(#[from] AddUnitError),
}

/// Media that are held. Dropping it releases them, too.
#[derive(Debug)]
#[must_use = "commands wait for it"]
pub struct Hold<'a> {
    handle: &'a Handle,
    units: Vec<UnitIndex>,
    number: u64,
    /// Given back when all letters are sent: those of the next hold come after them.
    _turn: MutexGuard<'a, ()>,
}

impl Hold<'_> {
    /// Lets commands go on. True when all media were held until now; else one has fallen at its deadline, or its core
    /// does not answer, and commands may have been at work on it.
    #[must_use = "what was done meanwhile may be worth nothing"]
    pub fn release(mut self) -> bool {
        let answers: Vec<_> = self.post_all().collect();
        let until = Instant::now() + ANSWER_PATIENCE;
        let stood = |answered: Receiver<bool>| {
            let left = until.saturating_duration_since(Instant::now());
            answered.recv_timeout(left).unwrap_or(false)
        };
        answers.into_iter().all(stood)
    }

    fn post_all(&mut self) -> impl Iterator<Item = Receiver<bool>> {
        let units = std::mem::take(&mut self.units);
        let (handle, number) = (self.handle, self.number);
        units
            .into_iter()
            .map(move |unit| handle.release_medium(unit, number))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.post_all().for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::handle::tests::{unit, with_cores};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// What cores do about media; what they were asked is noted.
    #[derive(Default)]
    struct Cores {
        /// Whose medium is not held, and why.
        refused: Option<(UnitIndex, MediumFailure)>,
        /// The one that cannot exchange a store.
        failing: Option<usize>,
        /// A hold has fallen before it is released.
        has_fallen: bool,
        log: Mutex<Vec<String>>,
    }

    impl Cores {
        fn answer(&self, core: usize, letter: Letter) {
            let note = |what: &str, unit: UnitIndex| {
                let noted = format!("{core}: {what} {}", unit.0);
                self.log.lock().unwrap().push(noted);
            };
            if let Letter::MoveMedium {
                unit,
                order,
                answer,
            } = letter
            {
                assert!(matches!(order, MediumOrder::Hold { .. }), "{order:?}");
                note("hold", unit);
                let refused = self.refused.as_ref().filter(|(of, _)| *of == unit);
                let answered = refused.map_or(Ok(()), |(_, why)| Err(why.clone()));
                answer.send(answered).unwrap();
            } else if let Letter::ReleaseMedium { hold, answer } = letter {
                note("release", hold.0);
                // Nobody need wait for it.
                let _sent = answer.send(!self.has_fallen);
            } else if let Letter::Exchange { exchange, report } = letter {
                note("exchange", exchange.unit);
                let source = std::io::Error::other("no descriptor");
                let name = exchange.name.clone();
                let failed = Err(AddUnitError::Store { name, source });
                let is_failing = self.failing == Some(core);
                drop(report.send(if is_failing { failed } else { Ok(()) }));
            } else {
                panic!("{letter:?}");
            }
        }

        /// What two of them are asked, in the order of each.
        fn asked<R>(&self, ask: impl FnOnce(&Arc<Handle>) -> R) -> (R, Vec<String>) {
            let result = with_cores(2, |core, letter| self.answer(core, letter), ask);
            let mut log = std::mem::take(&mut *self.log.lock().unwrap());
            log.sort_by_key(|noted| noted.as_bytes()[0]);
            (result, log)
        }
    }

    #[test]
    fn media_are_held_by_their_owners_until_they_are_released() {
        let units = [UnitIndex(0), UnitIndex(1), UnitIndex(3)];
        for has_fallen in [false, true] {
            let cores = Cores {
                has_fallen,
                ..Cores::default()
            };
            let (stood, log) = cores.asked(|handle| {
                let hold = handle.hold_media(&units, PATIENCE).unwrap();
                hold.release()
            });
            assert_eq!(stood, !has_fallen);
            let of_one = ["1: hold 1", "1: hold 3", "1: release 1", "1: release 3"];
            assert_eq!(log[..2], ["0: hold 0", "0: release 0"]);
            assert_eq!(log[2..], of_one);
        }
    }

    #[test]
    fn of_several_media_all_are_held_or_none() {
        let refused = (UnitIndex(1), MediumFailure::Busy);
        let cores = Cores {
            refused: Some(refused.clone()),
            ..Cores::default()
        };
        let units = [UnitIndex(0), UnitIndex(1)];
        let (held, log) = cores.asked(|handle| handle.hold_media(&units, PATIENCE).map(drop));
        assert_eq!(held, Err((refused.0, NotHeld::Refused(refused.1))));
        assert_eq!(
            log,
            ["0: hold 0", "0: release 0", "1: hold 1", "1: release 1"]
        );
    }

    #[test]
    fn a_closed_medium_is_released_when_nobody_wants_it_closed() {
        let cores = Cores::default();
        let (before, log) = cores.asked(|handle| {
            let closed = handle.close_medium(UnitIndex(1), PATIENCE).unwrap();
            let before = cores.log.lock().unwrap().len();
            drop(closed);
            before
        });
        assert_eq!(
            (before, log.as_slice()),
            (1, &["1: hold 1", "1: release 1"].map(str::to_owned)[..])
        );
        let cores = Cores {
            refused: Some((UnitIndex(1), MediumFailure::Gone)),
            ..Cores::default()
        };
        let (closed, _) =
            cores.asked(|handle| handle.close_medium(UnitIndex(1), PATIENCE).map(drop));
        assert_eq!(closed, Err(NotHeld::Refused(MediumFailure::Gone)));
    }

    #[test]
    fn a_store_is_exchanged_on_every_core_while_its_medium_is_held() {
        let all = [
            "0: hold 0",
            "0: exchange 0",
            "0: release 0",
            "1: exchange 0",
        ];
        let exchanged = |cores: Cores| {
            let plan = unit("a");
            cores.asked(|handle| {
                handle.exchange_store(Exchange {
                    unit: UnitIndex(0),
                    name: plan.name,
                    profile: Arc::new(plan.profile),
                    store: plan.store,
                })
            })
        };
        let (result, log) = exchanged(Cores::default());
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(log, all);
        for failing in [0, 1] {
            let (result, log) = exchanged(Cores {
                failing: Some(failing),
                ..Cores::default()
            });
            assert!(matches!(result, Err(ExchangeError::Core(_))), "{result:?}");
            assert_eq!(log, all, "it is released all the same");
        }
        let (result, log) = exchanged(Cores {
            refused: Some((UnitIndex(0), MediumFailure::Busy)),
            ..Cores::default()
        });
        assert!(matches!(result, Err(ExchangeError::NotHeld)), "{result:?}");
        assert_eq!(log, ["0: hold 0", "0: release 0"], "none is exchanged");
    }
}
