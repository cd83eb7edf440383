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

/// What a request is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A read; it is only noted when it is refused.
    Question,
    /// To take out what initiators wrote and read.
    File,
    /// To change something.
    Change,
}

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
    /// What for.
    pub(crate) purpose: Purpose,
}

impl Entry {
    /// Notes the outcome of a change, of a request for a file, or of any request that was refused to
    /// this caller. Whatever has no author is a refusal: nobody changes anything without a name.
    pub(crate) fn note(self, app: &App, status: StatusCode) {
        let is_refusal = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        ) || self.author.is_none();
        if !is_refusal && self.purpose == Purpose::Question {
            return;
        }
        // What strangers send fills neither the log nor the events.
        if is_refusal {
            let mut gate = app.gate();
            let bucket = match self.author {
                Some(_) => &mut gate.known_refusals,
                None => &mut gate.refusals,
            };
            if !bucket.take(Instant::now()) {
                return;
            }
        }
        let path: String = self.path.chars().take(PATH_MAX).collect();
        tracing::info!(
            target: "audit",
            author = self.author.as_deref().unwrap_or("unknown"),
            peer = self.peer,
            method = %self.method,
            path,
            status = status.as_u16(),
        );
        let event = self.event(status, is_refusal);
        app.calls.note(event);
    }

    fn event(self, status: StatusCode, is_refusal: bool) -> Event {
        let (kind, severity) = match (is_refusal, self.purpose) {
            (true, _) => ("admin-refused", Severity::Warning),
            (false, Purpose::Change) => ("admin-change", Severity::Info),
            (false, Purpose::Question | Purpose::File) => ("admin-read", Severity::Info),
        };
        let who = self.author.as_deref().unwrap_or("unknown caller");
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{Double, app};
    use durable::scratch::Scratch;

    fn entry(author: Option<&str>) -> Entry {
        Entry {
            author: author.map(str::to_owned),
            peer: "192.0.2.1".to_owned(),
            method: Method::POST,
            path: "/api/v1/login".to_owned(),
            purpose: Purpose::Change,
        }
    }

    #[tokio::test]
    async fn whoever_is_not_known_cannot_wash_the_events_away() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::default());
        let app = app(&daemon, &scratch);
        for _ in 0..5000 {
            entry(None).note(&app, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let noted = daemon.noted();
        // Some more may fit in while the test runs on a slow machine.
        assert!(noted.len() < 100, "{}", noted.len());
        assert!(noted.iter().all(|event| event.kind == "admin-refused"));
        entry(Some("ops")).note(&app, StatusCode::OK);
        let last = daemon.noted().pop().unwrap();
        assert_eq!(
            (last.kind.as_str(), last.author.as_deref()),
            ("admin-change", Some("ops"))
        );
    }
}
