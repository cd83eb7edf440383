//! What the model looks at, and how the daemon is asked for it, at most once a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::plan::Document;
use api::problem::ProblemKind;
use api::spec;
use api::stats::Stats;
use api::view::{Hyperscsi, Lun, Quota, Session, Snapshot, Status, Target};
use client::{Client, ClientError, Path, path};
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// What was asked for is as good as new for so long.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Units whose snapshots are kept; with more, those that nobody asks for at that moment are dropped.
const UNITS_KEPT_MAX: usize = 64;

/// Bytes that are kept of the text of the last problem.
const PROBLEM_BYTES_MAX: usize = 4096;

/// What the model looks at.
pub(crate) trait View: Send + Sync {
    /// The daemon in one look.
    fn status(&self) -> Result<Arc<Status>, Refusal>;
    /// The configuration that runs.
    fn document(&self) -> Result<Arc<Document>, Refusal>;
    /// All units.
    fn luns(&self) -> Result<Arc<[Lun]>, Refusal>;
    /// All targets.
    fn targets(&self) -> Result<Arc<[Target]>, Refusal>;
    /// All sessions.
    fn sessions(&self) -> Result<Arc<[Session]>, Refusal>;
    /// All groups of initiators.
    fn groups(&self) -> Result<Arc<[spec::Group]>, Refusal>;
    /// All CHAP users.
    fn users(&self) -> Result<Arc<[spec::User]>, Refusal>;
    /// All named stores.
    fn stores(&self) -> Result<Arc<[spec::Store]>, Refusal>;
    /// All servers of NBD.
    fn nbd(&self) -> Result<Arc<[spec::Nbd]>, Refusal>;
    /// All quotas.
    fn quotas(&self) -> Result<Arc<[Quota]>, Refusal>;
    /// The snapshots of the unit of this id; none where it can have none.
    fn snapshots(&self, lun: &str) -> Result<Arc<[Snapshot]>, Refusal>;
    /// All groups of HyperSCSI.
    fn hyperscsi(&self) -> Result<Arc<[Hyperscsi]>, Refusal>;
    /// All counters.
    fn stats(&self) -> Result<Arc<Stats>, Refusal>;
    /// The text of the last problem; empty while there was none. Never asks the daemon.
    fn last_error(&self) -> String;
}

/// One answer of the daemon, also when it is that there was none: a program that asks while the daemon
/// hangs waits for the deadline once a second, not each time.
struct Kept<T: ?Sized>(Mutex<Option<(Instant, Told<T>)>>);

/// What the daemon said.
type Told<T> = Result<Arc<T>, Arc<ClientError>>;

impl<T: ?Sized> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: ?Sized> Kept<T> {
    /// The answer, asked for if there is none that is young enough. Others who want it meanwhile
    /// wait for the same one. Its age counts from when it came.
    fn of(
        &self,
        now: impl Fn() -> Instant,
        ask: impl FnOnce() -> Result<Arc<T>, ClientError>,
    ) -> Result<Arc<T>, Refusal> {
        let mut kept = locked(&self.0);
        let is_young = |at: Instant| now().saturating_duration_since(at) < AGE_MAX;
        let answer = match &*kept {
            Some((at, answer)) if is_young(*at) => answer.clone(),
            Some(_) | None => {
                let answer = ask().map_err(Arc::new);
                *kept = Some((now(), answer.clone()));
                answer
            }
        };
        Ok(answer?)
    }

    /// The next who asks gets a new one.
    fn forget(&self) {
        *locked(&self.0) = None;
    }
}

/// A daemon that is asked once a second.
pub(crate) struct Daemon {
    client: Client,
    status: Kept<Status>,
    document: Kept<Document>,
    luns: Kept<[Lun]>,
    targets: Kept<[Target]>,
    sessions: Kept<[Session]>,
    groups: Kept<[spec::Group]>,
    users: Kept<[spec::User]>,
    stores: Kept<[spec::Store]>,
    nbd: Kept<[spec::Nbd]>,
    quotas: Kept<[Quota]>,
    /// By unit.
    snapshots: Mutex<HashMap<String, Arc<Kept<[Snapshot]>>>>,
    hyperscsi: Kept<[Hyperscsi]>,
    stats: Kept<Stats>,
    last_error: Mutex<String>,
}

impl Daemon {
    /// Asks by way of this client.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            status: Kept::default(),
            document: Kept::default(),
            luns: Kept::default(),
            targets: Kept::default(),
            sessions: Kept::default(),
            groups: Kept::default(),
            users: Kept::default(),
            stores: Kept::default(),
            nbd: Kept::default(),
            quotas: Kept::default(),
            snapshots: Mutex::default(),
            hyperscsi: Kept::default(),
            stats: Kept::default(),
            last_error: Mutex::default(),
        }
    }

    /// The way to the daemon.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Something was changed: nothing that was kept is true any more.
    pub(crate) fn forget(&self) {
        self.status.forget();
        self.document.forget();
        self.luns.forget();
        self.targets.forget();
        self.sessions.forget();
        self.groups.forget();
        self.users.forget();
        self.stores.forget();
        self.nbd.forget();
        self.quotas.forget();
        locked(&self.snapshots).clear();
        self.hyperscsi.forget();
        self.stats.forget();
    }

    /// Keeps the text of a problem, to be read.
    pub(crate) fn note(&self, mut line: String) {
        line.truncate(line.floor_char_boundary(PROBLEM_BYTES_MAX));
        *locked(&self.last_error) = line;
    }

    fn one<T: DeserializeOwned>(&self, kept: &Kept<T>, path: &Path) -> Result<Arc<T>, Refusal> {
        let ask = || self.client.get::<T>(path).map(|answer| answer.value.into());
        kept.of(Instant::now, ask)
    }

    fn all<T: DeserializeOwned>(&self, kept: &Kept<[T]>, path: &Path) -> Result<Arc<[T]>, Refusal> {
        let ask = || {
            self.client
                .get::<Vec<T>>(path)
                .map(|answer| answer.value.into())
        };
        kept.of(Instant::now, ask)
    }
}

impl View for Daemon {
    fn status(&self) -> Result<Arc<Status>, Refusal> {
        self.one(&self.status, &path(&["status"]))
    }

    fn document(&self) -> Result<Arc<Document>, Refusal> {
        self.one(&self.document, &path(&["config"]))
    }

    fn luns(&self) -> Result<Arc<[Lun]>, Refusal> {
        self.all(&self.luns, &path(&["luns"]))
    }

    fn targets(&self) -> Result<Arc<[Target]>, Refusal> {
        self.all(&self.targets, &path(&["targets"]))
    }

    fn sessions(&self) -> Result<Arc<[Session]>, Refusal> {
        self.all(&self.sessions, &path(&["sessions"]))
    }

    fn groups(&self) -> Result<Arc<[spec::Group]>, Refusal> {
        self.all(&self.groups, &path(&["groups"]))
    }

    fn users(&self) -> Result<Arc<[spec::User]>, Refusal> {
        self.all(&self.users, &path(&["users"]))
    }

    fn stores(&self) -> Result<Arc<[spec::Store]>, Refusal> {
        self.all(&self.stores, &path(&["stores"]))
    }

    fn nbd(&self) -> Result<Arc<[spec::Nbd]>, Refusal> {
        self.all(&self.nbd, &path(&["nbd"]))
    }

    fn quotas(&self) -> Result<Arc<[Quota]>, Refusal> {
        self.all(&self.quotas, &path(&["quotas"]))
    }

    fn snapshots(&self, lun: &str) -> Result<Arc<[Snapshot]>, Refusal> {
        let kept = {
            let mut all = locked(&self.snapshots);
            if all.len() >= UNITS_KEPT_MAX {
                all.retain(|_, kept| Arc::strong_count(kept) > 1);
            }
            Arc::clone(all.entry(lun.to_owned()).or_default())
        };
        let ask = || {
            let asked = self
                .client
                .get::<Vec<Snapshot>>(&path(&["luns", lun, "snapshots"]));
            match asked {
                Ok(answer) => Ok(answer.value.into()),
                // Its store is of a kind that has none, or another client has it now.
                Err(ClientError::Problem(problem)) if problem.kind == ProblemKind::Conflict => {
                    Ok(Arc::default())
                }
                Err(error) => Err(error),
            }
        };
        kept.of(Instant::now, ask)
    }

    fn hyperscsi(&self) -> Result<Arc<[Hyperscsi]>, Refusal> {
        self.all(&self.hyperscsi, &path(&["hyperscsi"]))
    }

    fn stats(&self) -> Result<Arc<Stats>, Refusal> {
        self.one(&self.stats, &path(&["stats"]))
    }

    fn last_error(&self) -> String {
        locked(&self.last_error).clone()
    }
}

/// What a thread that panicked left is whole: each value is set by one assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Asks at this time after `start`; the second value is true when the daemon was asked.
    fn at(
        kept: &Kept<u32>,
        time: Instant,
        answer: Result<u32, ClientError>,
    ) -> (Option<u32>, bool) {
        let was_asked = Cell::new(false);
        let ask = || {
            was_asked.set(true);
            answer.map(Arc::new)
        };
        let got = kept.of(|| time, ask).ok();
        (got.map(|value| *value), was_asked.get())
    }

    #[test]
    fn an_answer_is_kept_for_a_second_and_not_longer() {
        let (kept, start) = (Kept::default(), Instant::now());
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(at(&kept, start, Ok(1)), (Some(1), true));
        assert_eq!(
            at(&kept, start + AGE_MAX - nanosecond, Ok(2)),
            (Some(1), false)
        );
        assert_eq!(at(&kept, start + AGE_MAX, Ok(3)), (Some(3), true));
        kept.forget();
        assert_eq!(at(&kept, start + AGE_MAX, Ok(4)), (Some(4), true));
    }

    #[test]
    fn that_there_is_no_answer_is_kept_as_long() {
        let (kept, start) = (Kept::default(), Instant::now());
        assert_eq!(at(&kept, start, Err(ClientError::TokenForm)), (None, true));
        assert_eq!(at(&kept, start, Ok(1)), (None, false));
        assert_eq!(at(&kept, start + AGE_MAX, Ok(1)), (Some(1), true));
    }
}
