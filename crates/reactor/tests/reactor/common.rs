//! What the tests of the reactor share.

use std::time::Duration;

use reactor::{Event, Reactor, Settings, Wait};

/// No test waits so long; one that would hang fails here instead.
pub(crate) const HANG: Duration = Duration::from_secs(30);

pub(crate) fn settings() -> Settings {
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
