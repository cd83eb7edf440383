//! Who did what from where, and with what outcome: to the log (target `audit`) and to the events.
//! Never a body, so never a secret.

use std::time::{Duration, Instant};

use api::event::{Event, Severity};
use axum::http::{Method, StatusCode};

use crate::app::{self, App};
use crate::bucket::Rate;

/// How many refusals become events.
pub(crate) const REFUSALS: Rate = Rate {
    burst: 20,
    every: Duration::from_secs(5),
};

/// Bytes of a path that are kept.
const PATH_MAX: usize = 200;

/// A request, for the books.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Who: `uid 0`, a token's name; absent when it was not proved.
    pub(crate) author: Option<String>,
    /// From where.
    pub(crate) peer: String,
    /// How.
    pub(crate) method: Method,
    /// What, as it was sent: percent-encoded, so without control characters.
    pub(crate) path: String,
    /// It takes out what initiators wrote and read.
    pub(crate) gives_file: bool,
}

impl Entry {
    /// Notes the outcome of a change, of a request for a file, or of any request that was refused to
    /// this caller.
    pub(crate) fn note(self, app: &App, status: StatusCode) {
        let is_refusal = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
        if !is_refusal && self.method.is_safe() && !self.gives_file {
            return;
        }
        tracing::info!(
            target: "audit",
            author = self.author.as_deref().unwrap_or("unknown"),
            peer = self.peer,
            method = %self.method,
            path = self.path,
            status = status.as_u16(),
        );
        if is_refusal && !app.gate().refusals.take(Instant::now()) {
            return;
        }
        let event = self.event(status, is_refusal);
        app.calls.note(event);
    }

    fn event(self, status: StatusCode, is_refusal: bool) -> Event {
        let (kind, severity) = match (is_refusal, self.method.is_safe()) {
            (true, _) => ("admin-refused", Severity::Warning),
            (false, false) => ("admin-change", Severity::Info),
            (false, true) => ("admin-read", Severity::Info),
        };
        let who = self.author.as_deref().unwrap_or("somebody unknown");
        let path: String = self.path.chars().take(PATH_MAX).collect();
        Event {
            number: 0,
            at_ms: app::now_ms(),
            severity,
            kind: kind.to_owned(),
            message: format!(
                "{} {path} by {who} from {}: {}",
                self.method,
                self.peer,
                status.as_u16()
            ),
            lun: None,
            target: None,
            initiator: None,
            author: self.author,
            command: None,
        }
    }
}
