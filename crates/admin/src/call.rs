//! Calls of the daemon. They may block, so they run on threads of their own, and only so many at once.
//!
//! Every request has a place, or it goes no further. There are so many for tokens below `admin`, as many for those with
//! `admin`, and as many for the unix socket; one token has only so many of them. Each request makes one call at a time.
//! In each of the three, work that takes much memory is done one after the other, and one change waits for its turn: so
//! no token of a lower role keeps an administrator from reading or changing. What a request holds goes with the thread
//! that works for it, until that has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::control::Control;
use api::event::Event;
use api::plan::Applied;
use api::problem::{Problem, ProblemKind};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::connections::{AtWork, Link};
use crate::limits;

/// Whose places a request takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// The administration itself.
    Own,
    /// Tokens below `admin`.
    BelowAdmin,
    /// Tokens with `admin`.
    Admin,
    /// The unix socket.
    Socket,
}

/// The places of a lane.
#[derive(Debug)]
struct Places {
    requests: Arc<Semaphore>,
    /// For answers with all counters, until they are sent.
    counters: Arc<Semaphore>,
    /// Held for work that takes much memory.
    document: Arc<Semaphore>,
    /// Held while a change waits for its turn and is made.
    change: Arc<Semaphore>,
    /// For files on their way.
    files: Arc<Semaphore>,
}

impl Places {
    fn new(requests_max: usize) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self {
            requests: places(requests_max),
            counters: places(limits::COUNTERS_MAX),
            document: places(1),
            change: places(1),
            files: places(limits::FILES_MAX),
        }
    }
}

/// How many requests of each token are under way.
type OfTokens = Arc<std::sync::Mutex<HashMap<String, usize>>>;

/// The share of one request in those of its token.
#[derive(Debug)]
struct Share {
    all: OfTokens,
    token: String,
}

impl Share {
    fn take(all: &OfTokens, token: &str) -> Result<Self, Problem> {
        let mut counts = all.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(token.to_owned()).or_default();
        if *count >= limits::REQUESTS_OF_TOKEN_MAX {
            return Err(too_many());
        }
        *count += 1;
        Ok(Self {
            all: Arc::clone(all),
            token: token.to_owned(),
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.token);
            }
        }
    }
}

/// The way to the daemon.
pub(crate) struct Calls {
    control: Arc<dyn Control>,
    own: Places,
    below_admin: Places,
    admin: Places,
    socket: Places,
    of_tokens: OfTokens,
    /// A change holds this, so that edits do not run into each other and those
    /// who wait take no thread.
    turn: Arc<Mutex<()>>,
}

/// A request that has a place, until this is gone.
#[derive(Debug)]
pub(crate) struct Request {
    lane: Lane,
    body_bytes: usize,
    _place: OwnedSemaphorePermit,
    _share: Option<Share>,
    _connection: Option<AtWork>,
}

tokio::task_local! {
    /// What this task works for; a task without one works for the administration itself.
    static REQUEST: Arc<Request>;
}

/// Runs a task that works for a request.
pub(crate) fn on_behalf_of<F: Future>(
    request: Arc<Request>,
    task: F,
) -> impl Future<Output = F::Output> {
    REQUEST.scope(request, task)
}

fn request() -> Option<Arc<Request>> {
    REQUEST.try_with(Arc::clone).ok()
}

impl Calls {
    /// To this daemon.
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        let places = || Places::new(limits::REQUESTS_MAX);
        Self {
            control,
            own: Places::new(limits::OWN_CALLS_MAX),
            below_admin: places(),
            admin: places(),
            socket: places(),
            of_tokens: OfTokens::default(),
            turn: Arc::new(Mutex::new(())),
        }
    }

    /// The places of the request that this task works for.
    fn places(&self) -> &Places {
        self.places_of(request().map_or(Lane::Own, |request| request.lane))
    }

    const fn places_of(&self, lane: Lane) -> &Places {
        match lane {
            Lane::Own => &self.own,
            Lane::BelowAdmin => &self.below_admin,
            Lane::Admin => &self.admin,
            Lane::Socket => &self.socket,
        }
    }

    /// A place for a request of this caller whose body has at most so many bytes, and which came by this connection.
    ///
    /// # Errors
    ///
    /// There is none left, or none for this token.
    pub(crate) fn admit(
        &self,
        (lane, caller): (Lane, &str),
        body_bytes: usize,
        connection: Option<&Link>,
    ) -> Result<Arc<Request>, Problem> {
        let share = match lane {
            Lane::Own | Lane::Socket => None,
            Lane::BelowAdmin | Lane::Admin => Some(Share::take(&self.of_tokens, caller)?),
        };
        let place = admit(&self.places_of(lane).requests)?;
        Ok(Arc::new(Request {
            lane,
            body_bytes,
            _place: place,
            _share: share,
            _connection: connection.map(Link::work),
        }))
    }

    /// A place for a file, to be taken before there is one.
    ///
    /// # Errors
    ///
    /// All are taken.
    pub(crate) fn admit_file(&self) -> Result<OwnedSemaphorePermit, Problem> {
        admit(&self.places().files)
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
        let (value, ()) = self.run(ask, (), limits::READ_TIME_MAX).await?;
        Ok(value)
    }

    /// Asks the daemon for what grows with its configuration, or with the document that the request brings. Such
    /// questions wait for each other, so that they do not take all memory together.
    ///
    /// # Errors
    ///
    /// As [`Calls::read`].
    pub(crate) async fn read_much<T, F>(&self, ask: F) -> Result<Much<T>, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let most = limits::READ_TIME_MAX;
        let room = self.room(Instant::now() + most).await?;
        let (value, room) = self.run(ask, room, most).await?;
        Ok(Much { value, _room: room })
    }

    /// Asks the daemon for all counters, which grow with the initiators that were there. Few answers with them are
    /// under way at once; the room is to be kept until the answer is sent.
    ///
    /// # Errors
    ///
    /// As [`Calls::read`].
    pub(crate) async fn read_counters<T, F>(&self, ask: F) -> Result<(T, Room), Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
    {
        let most = limits::READ_TIME_MAX;
        let permit = within(Instant::now() + most, &self.places().counters).await?;
        let room = Room {
            control: Some(Arc::clone(&self.control)),
            permit: Some(permit),
        };
        self.run(ask, room, most).await
    }

    /// Waits until there is room to work on the document of the request, and on the configuration. Small ones need
    /// none.
    async fn room(&self, end: Instant) -> Result<Option<Room>, Problem> {
        let sent = request().map_or(0, |request| request.body_bytes);
        if sent.max(self.control.document_bytes()) < limits::WORK_BYTES_SMALL {
            return Ok(None);
        }
        let permit = within(end, &self.places().document).await?;
        Ok(Some(Room {
            control: Some(Arc::clone(&self.control)),
            permit: Some(permit),
        }))
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
        let end = Instant::now() + limits::CHANGE_TIME_MAX;
        // One of each lane at most waits for its turn: those of others are not kept waiting by many.
        let next = within(end, &self.places().change).await?;
        let room = self.room(end).await?;
        let turn = Arc::clone(&self.turn).lock_owned();
        let Ok(turn) = timeout_at(end, turn).await else {
            return Err(not_made());
        };
        // Without one there is nobody who could give up, as in a test.
        let change_of = ASKER.try_with(Arc::clone).unwrap_or_default();
        let beginning = Arc::clone(&change_of);
        let change = move |control: &dyn Control| claim(&beginning, BEGUN).then(|| change(control));
        let most = limits::CHANGE_TIME_MAX;
        let held = (next, turn, room);
        match self.run(change, held, most).await {
            Ok((made, _)) => made.ok_or_else(not_made),
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
        let (value, ()) = self.run(act, (), limits::ACT_TIME_MAX).await?;
        Ok(value)
    }

    /// Waits until a change in force has taken effect everywhere, or for as long as its caller may
    /// wait; it says then what it waits for. Other changes are made meanwhile.
    pub(crate) async fn settle(&self, mut applied: Applied) -> Applied {
        let end = Instant::now() + limits::SETTLE_TIME_MAX;
        let mut pause = limits::SETTLE_PAUSE_MIN;
        while applied.unsettled.is_some() && Instant::now() < end {
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
        let end = Instant::now() + limits::SETTLE_TIME_MAX;
        let mut pause = limits::SETTLE_PAUSE_MIN;
        loop {
            let sessions = self.read(|control| control.sessions()).await??;
            if sessions.iter().all(|session| session.id != id) {
                return Ok(());
            }
            if Instant::now() >= end {
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

    /// Has a thread make a call. What it holds goes with the thread: an answer that came too late gives nothing back
    /// before the call has ended.
    async fn run<T, F, H>(&self, call: F, held: H, most: Duration) -> Result<(T, H), Problem>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> T + Send + 'static,
        H: Send + 'static,
    {
        let request = request();
        let own = match request {
            Some(_) => None,
            None => Some(within(Instant::now() + most, &self.own.requests).await?),
        };
        let control = Arc::clone(&self.control);
        let running = tokio::task::spawn_blocking(move || {
            let value = call(control.as_ref());
            drop((own, request));
            (value, held)
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
    _room: Option<Room>,
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
            .field("below_admin", &self.below_admin)
            .field("admin", &self.admin)
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

fn admit(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = Arc::clone(places).try_acquire_owned();
    permit.map_err(|_| too_many())
}

/// A place, when there is one.
async fn within(end: Instant, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    match timeout_at(end, Arc::clone(places).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(too_many()),
    }
}

fn too_many() -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        "too many requests are under way; nothing was done, try again in a second",
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
    use std::sync::mpsc;

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

    fn calls() -> Arc<Calls> {
        Arc::new(Calls::new(Arc::new(Double::default())))
    }

    /// As many places as a caller gets.
    fn all(calls: &Calls, lane: Lane, caller: &str) -> Vec<Arc<Request>> {
        std::iter::from_fn(|| calls.admit((lane, caller), 0, None).ok()).collect()
    }

    #[tokio::test]
    async fn one_token_leaves_places_to_others_and_none_takes_those_of_another_lane() {
        let calls = calls();
        let most = limits::REQUESTS_OF_TOKEN_MAX;
        let first = all(&calls, Lane::BelowAdmin, "a");
        let second = all(&calls, Lane::BelowAdmin, "b");
        assert_eq!((first.len(), second.len()), (most, most));
        let third = all(&calls, Lane::BelowAdmin, "c");
        assert_eq!(third.len(), limits::REQUESTS_MAX - 2 * most);
        assert!(all(&calls, Lane::BelowAdmin, "d").is_empty());
        assert_eq!(all(&calls, Lane::Admin, "e").len(), most);
        assert_eq!(
            all(&calls, Lane::Socket, "uid 0").len(),
            limits::REQUESTS_MAX
        );
        drop((first, second, third));
        assert!(calls.of_tokens.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn answers_with_all_counters_wait_until_others_are_sent() {
        let calls = calls();
        let ask = |lane| {
            let (request, calls) = (calls.admit((lane, "a"), 0, None), Arc::clone(&calls));
            let asked = async move { calls.read_counters(|_| ()).await };
            on_behalf_of(request.unwrap(), asked)
        };
        let mut sent = Vec::new();
        for _ in 0..limits::COUNTERS_MAX {
            sent.push(ask(Lane::BelowAdmin).await.unwrap());
        }
        let waits = tokio::time::timeout(Duration::from_millis(20), ask(Lane::BelowAdmin));
        assert!(waits.await.is_err());
        assert!(ask(Lane::Admin).await.is_ok());
        drop(sent.pop());
        assert!(ask(Lane::BelowAdmin).await.is_ok());
    }

    #[tokio::test]
    async fn calls_of_an_operator_that_do_not_end_keep_nobody_else_from_reading_or_changing() {
        let calls = calls();
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        let hang = move |_: &dyn Control| {
            begun.send(()).unwrap();
            assert!(ends.lock().unwrap().recv().is_err());
        };
        let requests = all(&calls, Lane::BelowAdmin, "operator").into_iter();
        let asks = requests.map(|request| {
            let (calls, hang) = (Arc::clone(&calls), hang.clone());
            tokio::spawn(on_behalf_of(request, async move { calls.read(hang).await }))
        });
        let asks: Vec<_> = asks.collect();
        for _ in 0..limits::REQUESTS_OF_TOKEN_MAX {
            while begins.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
        // Their callers go. The threads do not, and keep the places.
        for ask in asks {
            ask.abort();
            assert!(ask.await.is_err());
        }
        assert!(all(&calls, Lane::BelowAdmin, "operator").is_empty());
        for (lane, caller) in [
            (Lane::BelowAdmin, "another operator"),
            (Lane::Admin, "admin"),
            (Lane::Socket, "uid 0"),
        ] {
            let request = calls.admit((lane, caller), 0, None).unwrap();
            let asked = async { (calls.read(|_| 1).await, calls.change(|_| 2).await) };
            let (read, changed) = on_behalf_of(request, asked).await;
            assert_eq!((read.unwrap(), changed.unwrap()), (1, 2), "{lane:?}");
        }
        assert_eq!(calls.read(|_| 3).await.unwrap(), 3);
        drop(end);
    }

    #[tokio::test]
    async fn work_on_large_documents_is_done_one_after_the_other_and_gives_memory_back() {
        let daemon = Arc::new(Double::default());
        let calls = Arc::new(Calls::new(Arc::clone(&daemon) as Arc<dyn Control>));
        let ask = |body_bytes| {
            let request = calls.admit((Lane::Admin, "a"), body_bytes, None);
            let calls = Arc::clone(&calls);
            let asked = async move { calls.read_much(|_| 7).await };
            on_behalf_of(request.unwrap(), asked)
        };
        let given_back = || daemon.given_back.load(Ordering::Relaxed);
        let large = limits::WORK_BYTES_SMALL;
        for held in [large - 1, large - 1, large] {
            let held = ask(held).await.unwrap();
            assert_eq!(*ask(large - 1).await.unwrap(), *held);
        }
        let first = ask(large).await.unwrap();
        assert_eq!(given_back(), 1, "small ones took none");
        let waits = tokio::time::timeout(Duration::from_millis(20), ask(large));
        assert!(waits.await.is_err());
        drop(first);
        let second = ask(large).await.unwrap();
        assert_eq!(given_back(), 2);
        // What runs counts as much as what is sent.
        daemon.document_bytes.store(large, Ordering::Relaxed);
        let waits = tokio::time::timeout(Duration::from_millis(20), ask(0));
        assert!(waits.await.is_err());
        drop(second);
        assert_eq!(*ask(0).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_note_needs_no_place() {
        let daemon = Arc::new(Double::default());
        let calls = Calls::new(Arc::clone(&daemon) as Arc<dyn Control>);
        let held = all(&calls, Lane::Own, "");
        calls.note(event("admin-change"));
        assert_eq!(daemon.noted().len(), 1);
        drop(held);
    }
}
