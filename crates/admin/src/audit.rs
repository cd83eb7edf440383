//! Who did what from where, and with what outcome: to the log (target `audit`) and to the events.
//! Never a body, so never a secret.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::event::{Event, Severity};
use axum::http::{Method, StatusCode};

use crate::bucket::{Bucket, Rate};

/// How many entries of one kind are noted.
const OF_A_KIND: Rate = Rate {
    burst: 20,
    every: Duration::from_secs(5),
};

/// Kinds of entries that are remembered. At the limit the one that was used longest ago is dropped.
const KINDS_MAX: usize = 1024;

/// What is noted so often only: whatever one caller did not get done, and each of its deeds, by method and path.
/// Those who are not known are one caller.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Kind {
    author: Option<String>,
    deed: Option<String>,
}

/// How many entries of each kind there were recently.
#[derive(Debug, Default)]
pub(crate) struct Book(HashMap<Kind, Page>);

#[derive(Debug)]
struct Page {
    bucket: Bucket,
    left_out: u64,
}

impl Book {
    /// Whether an entry of this kind is noted, with how many before it were not.
    pub(crate) fn admit(&mut self, kind: Kind, now: Instant) -> Option<u64> {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            let oldest = self.0.iter().min_by_key(|(_, page)| page.bucket.filled());
            if let Some(oldest) = oldest.map(|(kind, _)| kind.clone()) {
                self.0.remove(&oldest);
            }
        }
        let page = self.0.entry(kind).or_insert_with(|| Page {
            bucket: Bucket::new(OF_A_KIND, now),
            left_out: 0,
        });
        if page.bucket.take(now) {
            return Some(std::mem::take(&mut page.left_out));
        }
        page.left_out += 1;
        None
    }
}

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
    /// What is noted of the outcome: that of a change, of a request for a file, or of any request that was refused to
    /// this caller.
    pub(crate) fn kind(&self, status: StatusCode) -> Option<Kind> {
        if !self.is_refused(status) && self.purpose == Purpose::Question {
            return None;
        }
        // Nobody fills the log with what fails, or with the same again and again.
        let deed = || format!("{} {}", self.method, self.path);
        Some(Kind {
            author: self.author.clone(),
            deed: status.is_success().then(deed),
        })
    }

    /// Whatever has no author is a refusal: nobody changes anything without a name.
    fn is_refused(&self, status: StatusCode) -> bool {
        matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        ) || self.author.is_none()
    }

    /// Logs it, and gives the event of it. So many like it before were left out.
    pub(crate) fn log(self, status: StatusCode, left_out: u64) -> Event {
        let path: String = self.path.chars().take(PATH_MAX).collect();
        tracing::info!(
            target: "audit",
            author = self.author.as_deref().unwrap_or("unknown"),
            peer = self.peer,
            method = %self.method,
            path,
            status = status.as_u16(),
            left_out = (left_out > 0).then_some(left_out),
        );
        let mut event = self.event(status);
        if left_out > 0 {
            event.message += &format!("; {left_out} more like it are not listed");
        }
        event
    }

    fn event(self, status: StatusCode) -> Event {
        let is_refusal = self.is_refused(status);
        let (kind, severity) = match (is_refusal, self.purpose) {
            (true, _) => ("admin-refused", Severity::Warning),
            (false, Purpose::Change) => ("admin-change", Severity::Info),
            (false, Purpose::Question | Purpose::File) => ("admin-read", Severity::Info),
        };
        let done = match (is_refusal, self.purpose) {
            (true, _) => "refused to",
            (false, Purpose::Change) if status.is_success() => "done by",
            (false, Purpose::Change) => "tried by",
            (false, Purpose::Question | Purpose::File) => "read by",
        };
        let who = self.author.as_deref().unwrap_or("unknown caller");
        let path: String = self.path.chars().take(PATH_MAX).collect();
        Event {
            number: 0,
            at_ms: now_ms(),
            severity,
            kind: kind.to_owned(),
            message: format!(
                "{} {path} was {done} {who} from {}: {}",
                self.method,
                self.peer,
                status.as_u16()
            ),
            lun: None,
            target: None,
            initiator: None,
            user: None,
            author: self.author,
            command: None,
        }
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
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
    async fn the_same_again_and_again_is_counted_and_costs_no_other_its_entry() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::default());
        let app = app(&daemon, &scratch);
        for _ in 0..1000 {
            app.note(entry(Some("loud")), StatusCode::OK);
            app.note(entry(Some("loud")), StatusCode::FORBIDDEN);
        }
        // Some more may fit in while the test runs on a slow machine.
        assert!(daemon.noted().len() < 100, "{}", daemon.noted().len());
        app.note(entry(Some("calm")), StatusCode::FORBIDDEN);
        let mut other = entry(Some("loud"));
        other.path = "/api/v1/luns/a/resize".to_owned();
        app.note(other, StatusCode::OK);
        let noted = daemon.noted();
        let last = |back: usize| noted[noted.len() - back].author.as_deref();
        assert_eq!((last(2), last(1)), (Some("calm"), Some("loud")));
    }

    #[test]
    fn an_entry_tells_how_many_like_it_were_left_out() {
        let (mut book, start) = (Book::default(), Instant::now());
        let kind = |author: u32| Kind {
            author: Some(author.to_string()),
            deed: None,
        };
        for _ in 0..OF_A_KIND.burst {
            assert_eq!(book.admit(kind(0), start), Some(0));
        }
        assert_eq!(book.admit(kind(0), start), None);
        assert_eq!(book.admit(kind(0), start), None);
        assert_eq!(book.admit(kind(0), start + OF_A_KIND.every), Some(2));
        for author in 0..2 * u32::try_from(KINDS_MAX).unwrap() {
            book.admit(kind(author), start);
        }
        assert_eq!(book.0.len(), KINDS_MAX);
    }

    #[tokio::test]
    async fn whoever_is_not_known_cannot_wash_the_events_away() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::default());
        let app = app(&daemon, &scratch);
        for _ in 0..5000 {
            app.note(entry(None), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let noted = daemon.noted();
        // Some more may fit in while the test runs on a slow machine.
        assert!(noted.len() < 100, "{}", noted.len());
        assert!(noted.iter().all(|event| event.kind == "admin-refused"));
        app.note(entry(Some("ops")), StatusCode::OK);
        let last = daemon.noted().pop().unwrap();
        assert_eq!(
            (last.kind.as_str(), last.author.as_deref()),
            ("admin-change", Some("ops"))
        );
    }
}
