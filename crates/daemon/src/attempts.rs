//! Calls that a file system may never answer: each is made on a thread of its own, which is left behind when its time
//! is over. Before that, another process asks the file system, as a thread that asks one which hangs would keep this
//! process from ending.
//!
//! A path has one such thread at most, and there are [`LEFT_BEHIND_MAX`] in all: what hangs is not asked again until it
//! has answered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use config::StoreSpec;
use reactor::process::wait_for;

use crate::error::{StartError, Unanswered};

/// How long one call may take: a file system that answers at all does so earlier.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);

/// How long all calls of a change may take: less than its caller waits for the answer.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long all calls of a plan may take: less than a question waits for the answer.
const PLAN_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a look at the configuration file may take.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);

/// Between two times that somebody who waits for a path sees whether it is free.
const TURN_PAUSE: Duration = Duration::from_millis(1);

/// Threads that are under way at once, those that were left behind among them.
const LEFT_BEHIND_MAX: usize = 64;

const _: () = assert!(CALL_TIME_MAX.as_secs() < CHANGE_TIME_MAX.as_secs());

/// The paths that are being asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts(Arc<Mutex<BTreeSet<PathBuf>>>);

/// The calls of one change.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    attempts: &'a Attempts,
    until: Instant,
    call_max: Duration,
}

impl Attempts {
    /// For a change that begins now.
    pub(crate) fn begin(&self) -> Patience<'_> {
        Patience {
            attempts: self,
            until: Instant::now() + CHANGE_TIME_MAX,
            call_max: CALL_TIME_MAX,
        }
    }

    /// For a plan, which is a question: its caller waits less.
    pub(crate) fn begin_plan(&self) -> Patience<'_> {
        Patience {
            attempts: self,
            until: Instant::now() + PLAN_TIME_MAX,
            call_max: PLAN_TIME_MAX,
        }
    }

    /// For a step of a snapshot, which may take so long.
    pub(crate) fn begin_step(&self, limit: Duration) -> Patience<'_> {
        Patience {
            attempts: self,
            until: Instant::now() + limit,
            call_max: limit,
        }
    }

    /// For a look, of which nobody should notice that it is not answered.
    pub(crate) fn begin_look(&self) -> Patience<'_> {
        Patience {
            attempts: self,
            until: Instant::now() + LOOK_TIME_MAX,
            call_max: LOOK_TIME_MAX,
        }
    }

    /// A thread that panicked while it held this lock did not leave half a value behind.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, path: &Path) -> Result<Place, Unanswered> {
        let path = path.to_owned();
        let mut paths = self.lock();
        if paths.contains(&path) {
            return Err(Unanswered::StillHangs { path });
        }
        if paths.len() >= LEFT_BEHIND_MAX {
            return Err(Unanswered::TooMany {
                path,
                many: LEFT_BEHIND_MAX,
            });
        }
        paths.insert(path.clone());
        Ok(Place {
            attempts: self.clone(),
            path,
        })
    }
}

impl Patience<'_> {
    /// The time for all calls is over.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The outcome of a call that touches `path`. One that comes too late is dropped where it was
    /// made.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.ask_at(self.enter(path)?, true, call)
    }

    /// As [`Patience::ask`], of a call to a server or a cluster.
    pub(crate) fn ask_server<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.ask_at(self.enter(path)?, false, call)
    }

    /// As [`Patience::ask`], of a path that others ask, too: waits until they have their answer.
    pub(crate) fn ask_in_turn<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.ask_at(self.enter_in_turn(path)?, true, call)
    }

    /// As [`Patience::ask_server`], in turn.
    pub(crate) fn ask_server_in_turn<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.ask_at(self.enter_in_turn(path)?, false, call)
    }

    fn enter(&self, path: &Path) -> Result<Place, Unanswered> {
        match self.is_over() {
            true => Err(Unanswered::NoTime {
                path: path.to_owned(),
            }),
            false => self.attempts.enter(path),
        }
    }

    fn enter_in_turn(&self, path: &Path) -> Result<Place, Unanswered> {
        let until = self.until.min(Instant::now() + self.call_max);
        let mut entered = self.enter(path);
        while matches!(entered, Err(Unanswered::StillHangs { .. })) && Instant::now() < until {
            pause(TURN_PAUSE);
            entered = self.attempts.enter(path);
        }
        entered
    }

    /// With `is_file` the call waits until the file systems of its path and of the directory around have answered.
    fn ask_at<T: Send + 'static>(
        &self,
        place: Place,
        is_file: bool,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (answer, answered) = sync_channel(1);
        let path = place.path.clone();
        let run = move || {
            if is_file && let Err(error) = wait_for(place.path.ancestors().take(2)) {
                tracing::error!(%error, "a store is not asked");
                return;
            }
            let outcome = call();
            drop(place);
            // Nobody waits any more where it took too long.
            drop(answer.send(outcome));
        };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(run);
        if thread.is_err() {
            return Err(Unanswered::NoThread { path });
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let limit = left.min(self.call_max);
        answered.recv_timeout(limit).map_err(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Timeout => Unanswered::Late {
                path,
                seconds: limit.as_secs(),
            },
            std::sync::mpsc::RecvTimeoutError::Disconnected => Unanswered::NoThread { path },
        })
    }
}

/// What a call that touches the medium of a store gives, which is given at a place.
pub(super) fn on_thread<T: Send + 'static>(
    (spec, place): (&StoreSpec, &config::Place),
    patience: &Patience<'_>,
    call: impl FnOnce(&StoreSpec, &config::Place) -> T + Send + 'static,
) -> Result<T, StartError> {
    let path = match spec.at.medium() {
        Some(medium) => PathBuf::from(medium.to_string()),
        None => return Ok(call(spec, place)),
    };
    let (spec, there) = (spec.clone(), place.clone());
    let is_node = spec.at.node().is_some();
    let call = move || call(&spec, &there);
    let answer = match is_node {
        true => patience.ask(&path, call),
        false => patience.ask_server(&path, call),
    };
    answer.map_err(|source| StartError::StoreHangs {
        place: place.clone(),
        source,
    })
}

/// A path that is being asked, until this is dropped.
struct Place {
    attempts: Attempts,
    path: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.attempts.lock().remove(&self.path);
    }
}

/// Tries again for a moment when something is in use: the kernel takes a while to give back what
/// a program that was killed, or a listener that was closed, had on its rings, and so does the
/// guardian of a program that was killed (`reactor::process`).
pub(crate) fn retry_while_in_use<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(50);
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if is_in_use(&error) && Instant::now() < until => pause(PAUSE),
            outcome => return outcome,
        }
    }
}

/// Waits a moment.
#[expect(
    clippy::disallowed_methods,
    reason = "no core of the data plane waits here"
)]
pub(super) fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn patience(attempts: &Attempts) -> Patience<'_> {
        Patience {
            call_max: Duration::ZERO,
            ..attempts.begin()
        }
    }

    #[test]
    fn an_answer_comes_back_and_the_path_may_be_asked_again() {
        let attempts = Attempts::default();
        let patience = attempts.begin();
        for _ in 0..2 {
            assert_eq!(patience.ask(Path::new("/a"), || 7).unwrap(), 7);
        }
        assert!(attempts.lock().is_empty());
    }

    #[test]
    fn a_path_that_hangs_has_one_thread_and_holds_up_no_other() {
        let attempts = Attempts::default();
        let (release, released) = channel::<()>();
        let hang = move || released.recv().is_ok();
        let late = patience(&attempts).ask(Path::new("/a"), hang).unwrap_err();
        assert!(matches!(late, Unanswered::Late { .. }), "{late}");
        let again = attempts.begin().ask(Path::new("/a"), || ()).unwrap_err();
        assert!(matches!(again, Unanswered::StillHangs { .. }), "{again}");
        attempts.begin().ask(Path::new("/b"), || ()).unwrap();
        release.send(()).unwrap();
        while !attempts.lock().is_empty() {
            thread::yield_now();
        }
        attempts.begin().ask(Path::new("/a"), || ()).unwrap();
    }

    #[test]
    fn who_asks_in_turn_waits_for_the_one_before() {
        let attempts = Attempts::default();
        let asked = std::sync::atomic::AtomicU32::new(0);
        let asked = Arc::new(asked);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        let asked = Arc::clone(&asked);
                        let ask = move || asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        attempts.begin().ask_in_turn(Path::new("/a"), ask).unwrap();
                    }
                });
            }
        });
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 32);
        let (release, released) = channel::<()>();
        let hang = move || released.recv().is_ok();
        patience(&attempts).ask(Path::new("/a"), hang).unwrap_err();
        let waits = Patience {
            call_max: Duration::from_millis(5),
            ..attempts.begin()
        };
        let hangs = waits.ask_in_turn(Path::new("/a"), || ()).unwrap_err();
        assert!(matches!(hangs, Unanswered::StillHangs { .. }), "{hangs}");
        drop(release);
    }

    #[test]
    fn threads_that_are_left_behind_are_bounded() {
        let attempts = Attempts::default();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for number in 0..LEFT_BEHIND_MAX {
            let released = Arc::clone(&released);
            let hang = move || {
                let held = released.lock().unwrap_or_else(PoisonError::into_inner);
                held.recv().is_err()
            };
            let path = PathBuf::from(format!("/{number}"));
            assert!(patience(&attempts).ask(&path, hang).is_err());
        }
        let many = attempts.begin().ask(Path::new("/b"), || ()).unwrap_err();
        assert!(matches!(many, Unanswered::TooMany { .. }), "{many}");
        drop(release);
    }
}
