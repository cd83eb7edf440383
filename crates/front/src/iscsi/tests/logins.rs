//! Logins that are refused, or go for others.

use std::time::Duration;

use ::iscsi::pdu::Opcode;

use super::super::Descriptors;
use super::bench::{BEGIN, Bench, USER};

const SECRET: &[u8] = b"a secret of 20 bytes";

#[test]
fn each_guess_of_a_secret_is_refused_later_and_many_are_reported() {
    let mut bench = Bench::new();
    bench.require_chap(SECRET, b"a guess for 20 bytes");
    let mut now = BEGIN;
    for (guess, delay_ms) in (1..).zip([0, 0, 0, 500, 1000, 2000, 4000, 8000]) {
        let line = bench.log_in(1);
        let delay = Duration::from_millis(delay_ms);
        if !delay.is_zero() {
            bench.pass_to(now + delay - Duration::from_nanos(1));
            assert_eq!(bench.refused(line), None, "guess {guess}");
            assert!(!bench.is_shut(line));
        }
        now += delay;
        bench.pass_to(now);
        assert!(bench.refused(line).is_some(), "guess {guess}");
        assert!(bench.is_shut(line));
        let reported = usize::from(guess >= 8);
        assert_eq!(bench.engine.carrier.lines.guessed.len(), reported);
    }
    assert_eq!(bench.engine.carrier.lines.guessed, [USER]);
    // Who knows it does not pay for them.
    bench.require_chap(SECRET, SECRET);
    let line = bench.log_in(1);
    assert!(bench.is_in(line));
    bench.end_all();
}

#[test]
fn what_comes_behind_the_last_request_of_a_login_is_the_first_of_the_session() {
    let mut bench = Bench::new();
    let line = bench.log_in_with_ping(1);
    assert!(bench.is_in(line));
    assert_eq!(bench.heard(line), [(Opcode::NopIn, 0)]);
    bench.end_all();
}

#[test]
fn a_connection_that_leaves_no_descriptors_ends_a_login_or_does_not_come() {
    let mut bench = Bench::with(|settings| settings.connections_max = 3);
    let session = bench.ready(0);
    let logins = [bench.connect(1), bench.connect(2)];
    let find = |bench: &mut Bench, in_use| {
        let found = bench
            .sessions
            .front
            .as_mut()
            .unwrap()
            .find_descriptor(in_use);
        bench.settle();
        (found, logins.map(|line| bench.is_shut(line)))
    };
    assert_eq!(find(&mut bench, 0), (Descriptors::Enough, [false, false]));
    let made_room = Descriptors::MadeRoom(3);
    assert_eq!(find(&mut bench, 1), (made_room, [true, false]));
    assert_eq!(find(&mut bench, 1), (Descriptors::Enough, [true, false]));
    assert_eq!(find(&mut bench, 2), (made_room, [true, true]));
    let none = Descriptors::NotEnough(3);
    assert_eq!(find(&mut bench, 3), (none, [true, true]));
    assert!(!bench.is_shut(session));
    bench.end_all();
}
