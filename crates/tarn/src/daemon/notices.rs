//! Sends events to web servers (`[[notify]]`).
//!
//! Each server has a queue and a thread, so one that is slow, silent or gone costs the others nothing, and a core a
//! moment. What a server does not take is sent again, with pauses that grow to [`PAUSE_MAX`], until it does; it may get
//! an event twice, which the number of the event shows. While it does not, the oldest events beyond [`WAITING_MAX`] are
//! dropped; the next message says how many, as do the log and a finding.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::event::Event;
use config::Model;
use notify::{PostError, Webhook};
use serde::Serialize;

use crate::StartError;
use crate::secret::{Secret, Secrets};

/// How many events wait for a server. Beyond that the oldest is dropped and counted.
const WAITING_MAX: usize = 1024;

/// How many events go with one message.
const MESSAGE_MAX: usize = 64;

/// After a first failure. Each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Between two attempts, at most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Serialize)]
struct Message<'a> {
    /// The name of the machine.
    host: &'a str,
    /// How many events were dropped since the last message that was taken.
    dropped: u64,
    events: &'a [Event],
}

/// What waits for a server.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Event>,
    dropped: u64,
    /// Why the last attempt failed, while none has succeeded since.
    failure: Option<String>,
}

impl Queue {
    fn push(&mut self, event: Event) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(event);
    }
}

/// A server, and what it is to get.
pub(crate) struct Receiver {
    /// Scheme, host and port of the URL: for those who may not see the rest.
    origin: String,
    kinds: Vec<String>,
    webhook: Webhook,
    secret: Secret,
    host: String,
    queue: Mutex<Queue>,
    came: Condvar,
}

impl Receiver {
    /// A step under the lock leaves a whole queue behind, also where its thread panicked.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event if the server is to get it.
    fn offer(&self, event: &Event) {
        if self.kinds.contains(&event.kind) {
            self.lock().push(event.clone());
            self.came.notify_one();
        }
    }

    /// Waits until there are events, and takes some of them out, with the number of those that were dropped.
    fn take(&self) -> (Vec<Event>, u64) {
        let queue = self.lock();
        let queue = self
            .came
            .wait_while(queue, |queue| queue.waiting.is_empty());
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let count = queue.waiting.len().min(MESSAGE_MAX);
        let events = queue.waiting.drain(..count).collect();
        (events, std::mem::take(&mut queue.dropped))
    }

    fn send(&self, events: &[Event], dropped: u64) -> Result<(), PostError> {
        let message = Message {
            host: &self.host,
            dropped,
            events,
        };
        // These types have no maps and no floats: they always become JSON.
        let body = serde_json::to_vec(&message).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        self.webhook.post(self.secret.as_bytes(), now, &body)
    }

    /// Sends until the process ends.
    fn run(&self) {
        loop {
            let (events, dropped) = self.take();
            let mut pause = PAUSE_MIN;
            while let Err(error) = self.send(&events, dropped) {
                let error = error.to_string();
                let before = self.lock().failure.replace(error.clone());
                if before.is_none() {
                    tracing::warn!(
                        server = self.origin,
                        error,
                        "events cannot be sent; they are sent again"
                    );
                }
                // Nobody unparks this thread; a wake-up without cause only sends a little earlier.
                thread::park_timeout(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            if self.lock().failure.take().is_some() || dropped > 0 {
                tracing::info!(server = self.origin, dropped, "events are sent again");
            }
        }
    }

    /// What is the matter, in words.
    fn trouble(&self) -> Option<String> {
        let queue = self.lock();
        let failure = queue.failure.as_ref()?;
        let (waiting, dropped) = (queue.waiting.len(), queue.dropped);
        Some(format!(
            "{failure}; {waiting} more events wait, {dropped} were dropped"
        ))
    }
}

/// All servers that get events.
#[derive(Clone, Default)]
pub(crate) struct Receivers(Vec<Arc<Receiver>>);

impl std::fmt::Debug for Receivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|one| &one.origin))
            .finish()
    }
}

impl Receivers {
    /// Those of a model, with their secrets. `uid` is the user this process runs as, `host` the name of the machine.
    ///
    /// # Errors
    ///
    /// A secret that cannot be used, or TLS that cannot be set up.
    pub(crate) fn of(model: &Model, uid: u32, host: &str) -> Result<Self, StartError> {
        let receiver = |one: &config::Notify| {
            let url = &one.url;
            let webhook = Webhook::new(&url.host, url.port, &url.path, url.is_tls);
            Ok(Arc::new(Receiver {
                origin: url.origin().to_owned(),
                kinds: one.events.clone(),
                webhook: webhook.map_err(|error| StartError::Notify {
                    place: one.place.clone(),
                    reason: error.to_string(),
                })?,
                secret: Secrets::read_one(&one.secret, uid)?,
                host: host.to_owned(),
                queue: Mutex::default(),
                came: Condvar::new(),
            }))
        };
        let all: Result<_, StartError> = model.notify().iter().map(receiver).collect();
        Ok(Self(all?))
    }

    /// Starts a thread for each. They end with the process: what is not sent by then is lost.
    pub(crate) fn start(&self) -> io::Result<()> {
        for one in &self.0 {
            let receiver = Arc::clone(one);
            let thread = thread::Builder::new().name("notify".to_owned());
            thread.spawn(move || receiver.run())?;
        }
        Ok(())
    }

    /// Hands an event on. Takes a moment.
    pub(crate) fn offer(&self, event: &Event) {
        self.0.iter().for_each(|one| one.offer(event));
    }

    /// Those that do not take what is sent, and why.
    pub(crate) fn troubles(&self) -> Vec<(String, String)> {
        let one = |receiver: &Arc<Receiver>| Some((receiver.origin.clone(), receiver.trouble()?));
        self.0.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, number: u64) -> Event {
        Event {
            number,
            at_ms: 0,
            severity: api::event::Severity::Info,
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

    fn receiver() -> Receiver {
        Receiver {
            origin: "http://127.0.0.1:1".to_owned(),
            kinds: vec!["finding-began".to_owned()],
            webhook: Webhook::new("127.0.0.1", 1, "/", false).unwrap(),
            secret: Secret::from_text("a secret of the test"),
            host: "san".to_owned(),
            queue: Mutex::default(),
            came: Condvar::new(),
        }
    }

    #[test]
    fn only_what_is_asked_for_waits_and_goes_in_parts() {
        let receiver = receiver();
        receiver.offer(&event("session-began", 1));
        for number in 2..MESSAGE_MAX as u64 + 4 {
            receiver.offer(&event("finding-began", number));
        }
        let (first, dropped) = receiver.take();
        assert_eq!((first.len(), first[0].number, dropped), (MESSAGE_MAX, 2, 0));
        assert_eq!(receiver.take().0.len(), 2);
    }

    #[test]
    fn beyond_the_limit_the_oldest_are_dropped_and_counted() {
        let receiver = receiver();
        for number in 0..WAITING_MAX as u64 + 3 {
            receiver.offer(&event("finding-began", number));
        }
        let (events, dropped) = receiver.take();
        assert_eq!((events[0].number, dropped), (3, 3));
        assert_eq!(receiver.take().1, 0, "they are counted once");
    }

    /// The table of docs/API.md has exactly the kinds that `events` may name.
    #[test]
    fn the_kinds_are_those_of_the_document() {
        let document = include_str!("../../../../docs/API.md");
        let table = document.split("| `kind` | event |").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let kinds: Vec<_> = cells
            .flat_map(|cell| cell.split(", "))
            .map(|kind| kind.trim().trim_matches('`'))
            .collect();
        assert_eq!(kinds, config::EVENT_KINDS);
    }
}
