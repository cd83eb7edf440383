//! What the unit tests of this crate share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use api::control::Control;
use api::edit::SecretOf;
use api::event::{Event, Finding, Severity};
use api::figures::{Figures, Range};
use api::plan::{Applied, Change, Document, Inspection, Origin, Plan, Revision};
use api::problem::{Problem, ProblemKind};
use api::request::{EventQuestion, Rollback, TakeSnapshots, Tracing};
use api::stats::Stats;
use api::view::{
    Access, AccessQuestion, Check, Flattened, Hyperscsi, Lun, Places, Quota, Reservations,
    RolledBack, Session, Snapshot, SnapshotsTaken, Status, Target, Trace,
};
use durable::scratch::Scratch;
use tokio::sync::watch;

use crate::app::App;
use crate::tokens::Tokens;

/// An event of this kind.
pub(crate) fn event(kind: &str) -> Event {
    Event {
        number: 0,
        at_ms: 0,
        severity: Severity::Info,
        kind: kind.to_owned(),
        message: String::new(),
        lun: None,
        target: None,
        initiator: None,
        user: None,
        author: None,
        command: None,
    }
}

/// What the requests share, before this daemon and with tokens in this directory.
pub(crate) fn app(daemon: &Arc<Double>, scratch: &Scratch) -> Arc<App> {
    let tokens = Tokens::open(&scratch.path().join("tokens.toml")).unwrap().0;
    let control = Arc::clone(daemon) as Arc<dyn Control>;
    let stopping = watch::Sender::new(false).subscribe();
    Arc::new(App::new(control, tokens, Vec::new(), stopping))
}

/// A daemon that has no sessions and keeps the notes that it gets.
#[derive(Debug, Default)]
pub(crate) struct Double {
    is_silent: bool,
    is_fixed: bool,
    asked_sessions: AtomicU32,
    noted: Mutex<Vec<Event>>,
}

impl Double {
    /// One whose data plane hangs.
    pub(crate) fn that_answers_nothing() -> Self {
        Self {
            is_silent: true,
            ..Self::default()
        }
    }

    /// One whose configuration cannot be changed.
    pub(crate) fn that_is_fixed() -> Self {
        Self {
            is_fixed: true,
            ..Self::default()
        }
    }

    /// How often it was asked for its sessions.
    pub(crate) fn asked_sessions(&self) -> u32 {
        self.asked_sessions.load(Ordering::Relaxed)
    }

    /// The notes that it got.
    pub(crate) fn noted(&self) -> Vec<Event> {
        self.noted.lock().unwrap().clone()
    }
}

/// What no test asks of it.
const UNASKED: &str = "the double of the daemon does not know this";

impl Control for Double {
    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        self.asked_sessions.fetch_add(1, Ordering::Relaxed);
        if self.is_silent {
            return Err(Problem::new(ProblemKind::Unavailable, "it does not answer"));
        }
        Ok(Vec::new())
    }

    fn events(&self, question: EventQuestion) -> Vec<Event> {
        let after = usize::try_from(question.after.unwrap_or(0)).unwrap();
        self.noted()
            .into_iter()
            .skip(after)
            .take(question.most)
            .collect()
    }

    fn note(&self, event: Event) {
        self.noted.lock().unwrap().push(event);
    }

    fn status(&self) -> Status {
        panic!("{UNASKED}")
    }

    fn document(&self) -> Document {
        panic!("{UNASKED}")
    }

    fn check_changeable(&self) -> Result<(), Problem> {
        let detail = "it has no document";
        let problem = || Problem::new(ProblemKind::Refused, detail);
        (!self.is_fixed).then_some(()).ok_or_else(problem)
    }

    fn document_bytes(&self) -> usize {
        0
    }

    fn give_memory_back(&self) {}

    fn effective(&self) -> Document {
        panic!("{UNASKED}")
    }

    fn plan(&self, _: &str, _: &Origin, _: Inspection) -> Result<Plan, Problem> {
        panic!("{UNASKED}")
    }

    fn apply(&self, _: Change, _: Origin, _: Option<u64>, _: &str) -> Result<Applied, Problem> {
        panic!("{UNASKED}")
    }

    fn roll_back(&self, _: Rollback, _: Option<u64>, _: &str) -> Result<Applied, Problem> {
        panic!("{UNASKED}")
    }

    fn settle(&self, _: &mut Applied) {
        panic!("{UNASKED}")
    }

    fn history(&self) -> Vec<Revision> {
        panic!("{UNASKED}")
    }

    fn document_of(&self, _revision: u64) -> Option<Document> {
        panic!("{UNASKED}")
    }

    fn luns(&self) -> Vec<Lun> {
        panic!("{UNASKED}")
    }

    fn quotas(&self) -> Vec<Quota> {
        panic!("{UNASKED}")
    }

    fn eject(&self, _lun: &str, _force: bool) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn load(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn reservations(&self, _lun: &str) -> Result<Reservations, Problem> {
        panic!("{UNASKED}")
    }

    fn clear_reservations(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn take_over(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn discard_log(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn adopt(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn replay_log(&self, _lun: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn snapshots(&self, _: Option<&str>) -> Result<Vec<Snapshot>, Problem> {
        panic!("{UNASKED}")
    }

    fn take_snapshots(&self, _: TakeSnapshots, _: &str) -> Result<SnapshotsTaken, Problem> {
        panic!("{UNASKED}")
    }

    fn remove_snapshot(&self, _: &str, _: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn restore_snapshot(&self, _: &str, _: &str) -> Result<RolledBack, Problem> {
        panic!("{UNASKED}")
    }

    fn clone_snapshot(&self, _: (&str, &str), _: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn discard_clone(&self, _: &str, _: &str) {
        panic!("{UNASKED}")
    }

    fn flatten(&self, _: &str) -> Result<Flattened, Problem> {
        panic!("{UNASKED}")
    }

    fn release_secret(&self, _path: &str) {
        panic!("{UNASKED}")
    }

    fn targets(&self) -> Result<Vec<Target>, Problem> {
        panic!("{UNASKED}")
    }

    fn hyperscsi(&self) -> Result<Vec<Hyperscsi>, Problem> {
        panic!("{UNASKED}")
    }

    fn hyperscsi_stats(&self) -> api::stats::Hyperscsi {
        panic!("{UNASKED}")
    }

    fn end_session(&self, _id: u64) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn traces(&self) -> Vec<Trace> {
        panic!("{UNASKED}")
    }

    fn start_trace(&self, _: &str, _: Tracing) -> Result<(Trace, bool), Problem> {
        panic!("{UNASKED}")
    }

    fn read_trace(&self, _subject: &str) -> Result<Vec<u8>, Problem> {
        panic!("{UNASKED}")
    }

    fn stop_trace(&self, _subject: &str) -> Result<(), Problem> {
        panic!("{UNASKED}")
    }

    fn keep_secret(&self, _: SecretOf<'_>, _: &str) -> Result<String, Problem> {
        panic!("{UNASKED}")
    }

    fn access(&self, _question: &AccessQuestion) -> Result<Vec<Access>, Problem> {
        panic!("{UNASKED}")
    }

    fn space(&self) -> api::stats::Space {
        panic!("{UNASKED}")
    }

    fn stats(&self) -> Stats {
        panic!("{UNASKED}")
    }

    fn checks(&self) -> Vec<Check> {
        panic!("{UNASKED}")
    }

    fn places(&self) -> Places {
        panic!("{UNASKED}")
    }

    fn figures(&self, _: Range, _: Option<&str>) -> Result<Figures, Problem> {
        panic!("{UNASKED}")
    }

    fn findings(&self) -> Vec<Finding> {
        panic!("{UNASKED}")
    }
}
