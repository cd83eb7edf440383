//! Something with an image that may take long: one at a time, on a thread of its own, which others may wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{NativeError, Progress};

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    UnderWay {
        percent: u8,
    },
    Over {
        outcome: Result<(), NativeError>,
        /// Somebody has been given it.
        is_given: bool,
    },
}

#[derive(Debug, Default)]
struct Shared {
    state: State,
    /// The last one that is over has ended well.
    has_done: bool,
    /// The store is gone: nothing goes on.
    is_given_up: bool,
}

/// One kind of it.
#[derive(Debug, Default)]
pub(super) struct Job {
    shared: Mutex<Shared>,
    changed: Condvar,
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one begins here; false where one is under way. An outcome that nobody has been given is in the way,
    /// unless it is to be dropped.
    pub(super) fn begin(&self, drops_outcome: bool) -> bool {
        let mut shared = self.lock();
        let begins = match shared.state {
            State::Idle => true,
            State::UnderWay { .. } => false,
            State::Over { is_given, .. } => drops_outcome || is_given,
        };
        if begins {
            shared.state = State::UnderWay { percent: 0 };
        }
        begins
    }

    /// The one before the one that is under way has ended well.
    pub(super) fn has_done_before(&self) -> bool {
        self.lock().has_done
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.lock().state, State::UnderWay { .. })
    }

    /// Of its thread: so much is done. False where it is to end.
    pub(super) fn note(&self, done: u64, all: u64) -> bool {
        let mut shared = self.lock();
        let percent = done.saturating_mul(100) / all.max(1);
        let percent = u8::try_from(percent.min(99)).unwrap_or(99);
        match shared.state {
            // Parts of it report in any order.
            State::UnderWay { percent: before } if percent > before => {
                shared.state = State::UnderWay { percent };
            }
            State::UnderWay { .. } | State::Idle | State::Over { .. } => {}
        }
        !shared.is_given_up
    }

    pub(super) fn end(&self, outcome: Result<(), NativeError>) {
        let mut shared = self.lock();
        shared.has_done = outcome.is_ok();
        shared.state = State::Over {
            outcome,
            is_given: false,
        };
        drop(shared);
        self.changed.notify_all();
    }

    /// It ends at its next step, and none begins any more that gets further.
    pub(super) fn give_up(&self) {
        self.lock().is_given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.lock().is_given_up
    }

    /// Waits for its end, no longer than this. All who wait are given the outcome, and all who ask later, until one
    /// begins again.
    pub(super) fn wait(&self, limit: Duration) -> Result<Progress, NativeError> {
        let is_under_way = |shared: &mut Shared| matches!(shared.state, State::UnderWay { .. });
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, is_under_way);
        let (mut shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &mut shared.state {
            State::UnderWay { percent } => Ok(Progress::UnderWay { percent: *percent }),
            State::Over { outcome, is_given } => {
                *is_given = true;
                outcome.clone().map(|()| Progress::Done)
            }
            // None has ever begun.
            State::Idle => Ok(Progress::Done),
        }
    }

    /// How far it is, in words.
    pub(super) fn words(&self) -> String {
        match &self.lock().state {
            State::Idle => "it begins".to_owned(),
            State::UnderWay { percent } => format!("{percent} % is done"),
            State::Over { outcome, .. } => match outcome {
                Ok(()) => "it is done".to_owned(),
                Err(error) => {
                    format!("it has failed: {error}; roll it back again, or start Tarn again")
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_waited_for_and_all_who_wait_are_given_its_outcome() {
        let job = Job::default();
        assert!(job.begin(false) && !job.begin(true));
        assert!(job.note(1, 4) && job.note(3, 4) && job.note(2, 4));
        let under_way = Ok(Progress::UnderWay { percent: 75 });
        assert_eq!(job.wait(Duration::ZERO), under_way);
        job.end(Err(NativeError::NoClone));
        assert!(job.words().contains("it has failed"), "{}", job.words());
        assert!(!job.begin(false), "the outcome is not given yet");
        for _ in 0..2 {
            assert_eq!(job.wait(Duration::ZERO), Err(NativeError::NoClone));
        }
        assert!(job.begin(false));
        job.end(Ok(()));
        assert!(job.begin(true));
        job.give_up();
        assert!(!job.note(1, 4), "it goes on");
    }
}
