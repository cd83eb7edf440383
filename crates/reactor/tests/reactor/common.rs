//! What the tests of the reactor share.

use std::cell::RefCell;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use reactor::{Event, Reactor, Settings, Wait};

/// No test waits so long; one that would hang fails here instead.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// What a test may take in all. Past it the process ends, whatever waits for what.
const LIMIT: Duration = Duration::from_secs(120);

thread_local! {
    /// Held by the thread of a test until it ends or begins the next one.
    static UNDER_WAY: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// Begins the time of the test that runs on this thread.
fn limit() {
    let (under_way, over) = channel();
    let test = thread::current().name().unwrap_or("a test").to_owned();
    thread::spawn(move || end_at(LIMIT, &test, &over));
    UNDER_WAY.set(Some(under_way));
}

fn end_at(limit: Duration, test: &str, over: &Receiver<()>) {
    if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        // Not captured: what a process prints that aborts is never shown.
        let _said = writeln!(std::io::stderr(), "{test} does not end within {limit:?}");
        std::process::abort();
    }
}

/// What all tests here use, and so what they have a limit by.
pub(crate) fn settings() -> Settings {
    limit();
    Settings {
        pool_bytes: 32 << 20,
        ring_entries: 8,
        receive_chunks: 4,
        in_flight_max: 16,
        ..Settings::default()
    }
}

pub(crate) fn reactor() -> Reactor {
    Reactor::new(&settings()).unwrap()
}

/// Turns until there is an event.
pub(crate) fn events(reactor: &mut Reactor) -> Vec<Event> {
    let mut events = Vec::new();
    let deadline = reactor.now() + HANG;
    while events.is_empty() {
        assert!(reactor.now() < deadline, "nothing happens");
        reactor.turn(Wait::Until(deadline), &mut events).unwrap();
    }
    events
}

/// The next event, which must be alone.
pub(crate) fn event(reactor: &mut Reactor) -> Event {
    let mut events = events(reactor);
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

/// Turns without waiting, as often as the kernel could need for what is ready, and expects
/// nothing.
pub(crate) fn expect_quiet(reactor: &mut Reactor) {
    let mut events = Vec::new();
    for _ in 0..10 {
        reactor.turn(Wait::Poll, &mut events).unwrap();
    }
    assert!(events.is_empty(), "{events:?}");
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n * 7 + n / 251) % 256).unwrap())
        .collect()
}
