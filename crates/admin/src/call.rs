//! Calls of the daemon. They may block, so they run on threads of their own, and only so many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use api::control::Control;
use api::event::Event;
use api::plan::Applied;
use api::problem::{Problem, ProblemKind};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::limits;
use crate::shares::{Owner, Share, Shares};

/// The way to the daemon.
pub(crate) struct Calls {
    control: Arc<dyn Control>,
    reads: Shares,
    changes: Arc<Semaphore>,
    /// Room to work on documents, in kibibytes.
    room: Arc<Semaphore>,
    /// Those who have it or wait for it.
    working: Shares,
    /// For the one question that nobody needs to be known for.
    probe: Arc<Semaphore>,
    /// A change holds this, so that edits do not run into each other and those
    /// who wait take no thread.
    turn: Arc<Mutex<()>>,
}

impl Calls {
    /// To this daemon.
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        Self {
            control,
            reads: Shares::new(limits::READS_MAX),
            changes: Arc::new(Semaphore::new(limits::CHANGES_MAX)),
            room: Arc::new(Semaphore::new(limits::WORK_BYTES_MAX / ROOM_UNIT_BYTES)),
            working: Shares::new(limits::WORK_WAITING_MAX),
            probe: Arc::new(Semaphore::new(1)),
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
        let permit = share_of(&self.reads)?;
        self.run(ask, permit, limits::READ_TIME_MAX).await
    }

    /// Asks the daemon for what grows with its configuration, or with a document of so many bytes that
    /// is sent. Such questions wait for each other, so that they do not take all memory together.
    ///
    /// # Errors
    ///
    /// As [`Calls::read`].
    pub(crate) async fn read_much<T, F>(&self, bytes: usize, ask: F) -> Result<Much<T>, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        if bytes.max(self.control.document_bytes()) < limits::WORK_BYTES_SMALL {
            let value = self.read(ask).await?;
            return Ok(Much { value, _room: None });
        }
        let place = share_of(&self.working)?;
        let room = self.room_for(bytes, limits::READ_TIME_MAX).await?;
        let value = self.read(ask).await?;
        Ok(Much {
            value,
            _room: Some((room, place)),
        })
    }

    /// Waits until there is room to work on a document of so many bytes, and on the configuration.
    async fn room_for(&self, bytes: usize, most: Duration) -> Result<Room, Problem> {
        let bytes = bytes.max(self.control.document_bytes());
        let units = bytes.min(limits::WORK_BYTES_MAX) / ROOM_UNIT_BYTES;
        let units = u32::try_from(units).unwrap_or(u32::MAX).max(1);
        let permit = Arc::clone(&self.room).acquire_many_owned(units);
        match tokio::time::timeout(most, permit).await {
            Ok(Ok(permit)) => Ok(Room {
                control: (units >= TRIM_UNITS).then(|| Arc::clone(&self.control)),
                permit: Some(permit),
            }),
            Ok(Err(_)) | Err(_) => Err(late(most)),
        }
    }

    /// Asks the daemon on behalf of nobody in particular: one at a time, and beside all others, so
    /// that neither keeps the other from being asked.
    ///
    /// # Errors
    ///
    /// The daemon takes too long or panics.
    pub(crate) async fn probe<T, F>(&self, ask: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let most = limits::READ_TIME_MAX;
        let permit = Arc::clone(&self.probe).acquire_owned();
        match tokio::time::timeout(most, permit).await {
            Ok(permit) => self.run(ask, permit, most).await,
            Err(_) => Err(late(most)),
        }
    }

    /// Puts an event into the books. Takes no permit: what was done is noted however much is under
    /// way.
    pub(crate) fn note(&self, event: Event) {
        self.control.note(event);
    }

    /// Changes something, when all changes before have been made. One whose caller disconnects before
    /// it begins is not made. One that has begun goes on when nobody waits for its outcome any
    /// more; the answer says so, and the history has it.
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
            return Err(not_made());
        };
        let room = self.room_for(0, limits::CHANGE_TIME_MAX).await?;
        // Without one there is nobody who could give up, as in a test.
        let change_of = ASKER.try_with(Arc::clone).unwrap_or_default();
        let beginning = Arc::clone(&change_of);
        let change = move |control: &dyn Control| claim(&beginning, BEGUN).then(|| change(control));
        let outcome = self
            .run(change, (permit, turn, room), limits::CHANGE_TIME_MAX)
            .await;
        match outcome {
            Ok(made) => made.ok_or_else(not_made),
            Err(_) if claim(&change_of, GONE) => Err(not_made()),
            Err(problem) => Err(problem),
        }
    }

    /// Has something done that is no change of the configuration, and that may take a while: it waits
    /// for no change, and none waits for it.
    ///
    /// # Errors
    ///
    /// As [`Calls::read`].
    pub(crate) async fn act<T, F>(&self, act: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let permit = admit(&self.changes)?;
        self.run(act, permit, limits::ACT_TIME_MAX).await
    }

    /// Waits until a change in force has taken effect everywhere, or for as long as its caller may
    /// wait; it says then what it waits for. Other changes are made meanwhile.
    pub(crate) async fn settle(&self, mut applied: Applied) -> Applied {
        let end = tokio::time::Instant::now() + limits::SETTLE_TIME_MAX;
        let mut pause = limits::SETTLE_PAUSE_MIN;
        while applied.unsettled.is_some() && tokio::time::Instant::now() < end {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits::SETTLE_PAUSE_MAX);
            let mut asked = applied.clone();
            let ask = move |control: &dyn Control| {
                control.settle(&mut asked);
                asked
            };
            // Where too much is under way, it is asked the next time.
            if let Ok(answer) = self.read(ask).await {
                applied = answer;
            }
        }
        applied
    }

    /// Waits until a session that was asked to end is over. It holds up no change: its commands may
    /// hang.
    ///
    /// # Errors
    ///
    /// It takes too long, or the data plane does not answer.
    pub(crate) async fn await_end_of(&self, id: u64) -> Result<(), Problem> {
        let end = tokio::time::Instant::now() + limits::SETTLE_TIME_MAX;
        let mut pause = limits::SETTLE_PAUSE_MIN;
        loop {
            let sessions = self.read(|control| control.sessions()).await??;
            if sessions.iter().all(|session| session.id != id) {
                return Ok(());
            }
            if tokio::time::Instant::now() >= end {
                return Err(Problem::new(
                    ProblemKind::Unavailable,
                    format!(
                        "session {id} has to end and has not within {} s: a store does not give its commands back; \
                         there is nothing to ask again",
                        limits::SETTLE_TIME_MAX.as_secs()
                    ),
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits::SETTLE_PAUSE_MAX);
        }
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
                    "the daemon failed; see its log",
                ))
            }
            Err(_) => Err(late(most)),
        }
    }
}

/// What a unit of room is good for.
const ROOM_UNIT_BYTES: usize = 1024;

/// From so many units on, memory goes back to the system after the work.
const TRIM_UNITS: u32 = 64;

/// Room to work on documents; free when this is gone.
pub(crate) struct Room {
    /// Whom to ask to give memory back.
    control: Option<Arc<dyn Control>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Room {
    fn drop(&mut self) {
        let (control, permit) = (self.control.take(), self.permit.take());
        let Some(control) = control else {
            return;
        };
        let give_back = move || {
            control.give_memory_back();
            drop(permit);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(give_back)),
            Err(_) => give_back(),
        }
    }
}

/// An answer of the daemon that may be large, with the room that it was made in.
pub(crate) struct Much<T> {
    value: T,
    _room: Option<(Room, Share)>,
}

impl<T, E> Much<Result<T, E>> {
    /// What it is, if it is no error.
    pub(crate) fn good(self) -> Result<Much<T>, E> {
        let Self { value, _room } = self;
        value.map(|value| Much { value, _room })
    }
}

impl<T> std::ops::Deref for Much<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls")
            .field("reads", &self.reads)
            .field("changes", &self.changes.available_permits())
            .finish_non_exhaustive()
    }
}

/// A change waits for a thread, has begun, or never will because its caller has disconnected: the first that
/// claims it decides.
const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const GONE: u8 = 2;

tokio::task_local! {
    /// What becomes of the change that this task is asked for.
    static ASKER: Arc<AtomicU8>;
}

/// Who waits for a change: gone when this is dropped, as with its connection.
#[derive(Default)]
pub(crate) struct Asker(Arc<AtomicU8>);

impl Asker {
    /// Runs the task that makes the change, which may outlive this.
    pub(crate) fn task<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        ASKER.scope(Arc::clone(&self.0), task)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        claim(&self.0, GONE);
    }
}

/// Decides what becomes of a change that waits; false where that is decided.
fn claim(change: &AtomicU8, fate: u8) -> bool {
    let (ordering, on_failure) = (Ordering::AcqRel, Ordering::Acquire);
    change
        .compare_exchange(WAITS, fate, ordering, on_failure)
        .is_ok()
}

fn not_made() -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        format!(
            "the changes before this one have not ended within {} s; it was not made, try again",
            limits::CHANGE_TIME_MAX.as_secs()
        ),
    )
}

tokio::task_local! {
    /// Who asks in this task.
    static OWNER: Owner;
}

/// Runs a task whose questions are those of this owner; those of other tasks are the administration's own.
pub(crate) fn asked_by<F: Future>(owner: Owner, task: F) -> impl Future<Output = F::Output> {
    OWNER.scope(owner, task)
}

fn share_of(places: &Shares) -> Result<Share, Problem> {
    let owner = OWNER.try_with(Clone::clone);
    let share = places.take(owner.unwrap_or_else(|_| Owner::own()));
    share.ok_or_else(too_many)
}

fn admit(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = Arc::clone(semaphore).try_acquire_owned();
    permit.map_err(|_| too_many())
}

fn too_many() -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        "too many requests are under way; try again in a second",
    )
}

fn late(most: Duration) -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        format!(
            "no answer from the daemon within {} s; it may still be at work on this: a change goes on, and \
             tarn history shows it once it is made",
            most.as_secs()
        ),
    )
}

#[cfg(test)]
mod tests {
    use api::access::Role;

    use super::*;
    use crate::testing::{Double, event};

    #[test]
    fn a_change_is_made_or_its_caller_is_told_that_it_is_not() {
        for (first, second) in [(BEGUN, GONE), (GONE, BEGUN)] {
            let caller = Asker::default();
            assert!(claim(&caller.0, first));
            assert!(!claim(&caller.0, second));
        }
        let caller = Asker::default();
        let change = Arc::clone(&caller.0);
        drop(caller);
        assert!(!claim(&change, BEGUN), "nobody waits for it");
    }

    #[tokio::test]
    async fn questions_of_one_caller_leave_places_to_others() {
        let calls = Calls::new(Arc::new(Double::default()));
        let viewer = |name: &str| Owner {
            name: name.to_owned(),
            role: Role::Viewer,
        };
        let all = async { std::iter::from_fn(|| share_of(&calls.reads).ok()).collect::<Vec<_>>() };
        let held = asked_by(viewer("loud"), all).await;
        assert_eq!(held.len(), limits::READS_MAX / limits::SHARE_OF_ONE);
        assert!(asked_by(viewer("loud"), calls.read(|_| ())).await.is_err());
        assert!(asked_by(viewer("calm"), calls.read(|_| ())).await.is_ok());
        assert!(calls.read(|_| ()).await.is_ok());
    }

    #[tokio::test]
    async fn a_probe_and_a_note_need_no_place_among_the_questions() {
        let daemon = Arc::new(Double::default());
        let calls = Calls::new(Arc::clone(&daemon) as Arc<dyn Control>);
        let reads: Vec<_> = std::iter::from_fn(|| share_of(&calls.reads).ok()).collect();
        assert!(calls.read(|_| ()).await.is_err());
        assert_eq!(calls.probe(|_| 7).await.unwrap(), 7);
        calls.note(event("admin-change"));
        assert_eq!(daemon.noted().len(), 1);
        drop(reads);
    }
}
