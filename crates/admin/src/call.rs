//! Calls of the daemon. They may block, so they run on threads of their own, and only so many at once.

use std::sync::Arc;
use std::time::Duration;

use api::control::Control;
use api::problem::{Problem, ProblemKind};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// The way to the daemon.
pub(crate) struct Calls {
    control: Arc<dyn Control>,
    reads: Arc<Semaphore>,
    changes: Arc<Semaphore>,
    /// Whoever changes something holds this, so that edits do not run into each other and those
    /// who wait take no thread.
    turn: Arc<Mutex<()>>,
}

impl Calls {
    /// To this daemon.
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        Self {
            control,
            reads: Arc::new(Semaphore::new(limits::READS_MAX)),
            changes: Arc::new(Semaphore::new(limits::CHANGES_MAX)),
            turn: Arc::new(Mutex::new(())),
        }
    }

    /// Asks the daemon.
    ///
    /// # Errors
    ///
    /// Too much is under way, or the daemon takes too long or panics.
    pub(crate) async fn read<T, F>(&self, ask: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let permit = admit(&self.reads)?;
        self.run(ask, permit, limits::READ_TIME_MAX).await
    }

    /// Changes something, when all changes before have been made. A change that has begun goes on
    /// when nobody waits for its outcome any more.
    ///
    /// # Errors
    ///
    /// As [`Calls::read`].
    pub(crate) async fn change<T, F>(&self, change: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let permit = admit(&self.changes)?;
        let turn = Arc::clone(&self.turn).lock_owned();
        let Ok(turn) = tokio::time::timeout(limits::CHANGE_TIME_MAX, turn).await else {
            return Err(late(limits::CHANGE_TIME_MAX));
        };
        self.run(change, (permit, turn), limits::CHANGE_TIME_MAX)
            .await
    }

    async fn run<T, F, P>(&self, call: F, permit: P, most: Duration) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
        P: Send + 'static,
    {
        let control = Arc::clone(&self.control);
        let running = tokio::task::spawn_blocking(move || {
            let outcome = call(control.as_ref());
            drop(permit);
            outcome
        });
        match tokio::time::timeout(most, running).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => {
                tracing::error!(%error, "a call of the daemon failed");
                Err(Problem::new(
                    ProblemKind::Unavailable,
                    "the daemon failed at this; its log tells more",
                ))
            }
            Err(_) => Err(late(most)),
        }
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls")
            .field("reads", &self.reads.available_permits())
            .field("changes", &self.changes.available_permits())
            .finish_non_exhaustive()
    }
}

fn admit(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(semaphore).try_acquire_owned().map_err(|_| {
        Problem::new(
            ProblemKind::Unavailable,
            "too many requests are under way; try again in a second",
        )
    })
}

fn late(most: Duration) -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        format!(
            "no answer from the daemon within {} s; it may still be at work on this",
            most.as_secs()
        ),
    )
}
