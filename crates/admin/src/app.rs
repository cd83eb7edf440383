//! What the requests share. It outlives a restart of the thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api::control::Control;
use axum::http::StatusCode;
use tokio::sync::watch;

use crate::audit::{Book, Entry};
use crate::browser::Logins;
use crate::bucket::Attempts;
use crate::call::Calls;
use crate::live::Live;
use crate::ready::Ready;
use crate::tokens::Tokens;

/// What the requests share.
#[derive(Debug)]
pub(crate) struct App {
    /// The way to the daemon.
    pub(crate) calls: Arc<Calls>,
    /// Who may ask over TCP.
    pub(crate) tokens: Tokens,
    /// Names of this server, beside its addresses.
    names: Mutex<Arc<[String]>>,
    /// Streams of live data.
    pub(crate) live: Live,
    /// Whether the daemon answers.
    pub(crate) ready: Ready,
    /// True when all has to end.
    pub(crate) stopping: watch::Receiver<bool>,
    gate: Mutex<Gate>,
}

/// What changes with those who knock.
pub(crate) struct Gate {
    /// Logins of the console.
    pub(crate) logins: Logins,
    /// Attempts that failed.
    pub(crate) attempts: Attempts,
    /// How often who did what recently, so that nobody fills the log and the events.
    pub(crate) book: Book,
}

impl App {
    /// For this daemon.
    pub(crate) fn new(
        control: Arc<dyn Control>,
        tokens: Tokens,
        names: Vec<String>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let now = Instant::now();
        Self {
            calls: Arc::new(Calls::new(control)),
            tokens,
            names: Mutex::new(names.into()),
            live: Live::default(),
            ready: Ready::default(),
            stopping,
            gate: Mutex::new(Gate {
                logins: Logins::default(),
                attempts: Attempts::new(now),
                book: Book::default(),
            }),
        }
    }

    /// Names of this server, beside its addresses.
    pub(crate) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It has these names from now on.
    pub(crate) fn set_names(&self, names: Vec<String>) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names.into();
    }

    /// The gate, for as long as it takes to look something up.
    pub(crate) fn gate(&self) -> MutexGuard<'_, Gate> {
        // Nothing in it can be half changed.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the outcome of a request, unless there were too many like it: in the log and in the events.
    pub(crate) fn note(&self, entry: Entry, status: StatusCode) {
        let kind = entry.kind(status);
        let admitted = kind.and_then(|kind| self.gate().book.admit(kind, Instant::now()));
        if let Some(left_out) = admitted {
            self.calls.note(entry.log(status, left_out));
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("book", &self.book)
            .finish_non_exhaustive()
    }
}

/// Returns when all has to end, or nobody is left who could say so.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    stopping.wait_for(|is_stopping| *is_stopping).await.ok();
}
