//! Discovery sessions: what they are answered, and how long they last.

use std::time::Duration;

use ::iscsi::limits::DISCOVERY_QUEUE_DEPTH;
use ::iscsi::pdu::Opcode;

use super::bench::{ABORT, BEGIN, Bench, HOSTS_OF_ADDRESS, Rules};

const MOMENT: Duration = Duration::from_micros(1);
const LISTED: &[u8] = b"TargetName=iqn.2026-11.example.tarn:test\0TargetAddress=192.0.2.1:3260,1\0";

#[test]
fn what_the_rules_list_is_reported() {
    let mut bench = Bench::new();
    let line = bench.discover(1);
    assert!(bench.is_in(line));
    assert_eq!(bench.ask_targets(line), LISTED);
    let report = bench.report();
    assert_eq!((report[0].target, report[0].luns.len()), (None, 0));
    assert_eq!(report[0].window, 8);
    // Those that begin later see what is there then, and may have more commands under way.
    bench.set_rules(Rules {
        is_listed: false,
        ..Rules::new()
    });
    bench.sessions.settings.queue_depth = DISCOVERY_QUEUE_DEPTH + 1;
    let later = bench.discover(1);
    assert_eq!(bench.ask_targets(later), b"");
    assert_eq!(bench.ask_targets(line), LISTED);
    assert_eq!(bench.report()[1].window, DISCOVERY_QUEUE_DEPTH);
    bench.set_rules(Rules::new());
    bench.ready(2);
    bench.engine.set_limits(&engine::Limits {
        queue_depth: 3 * DISCOVERY_QUEUE_DEPTH,
        abort_timeout: ABORT,
        fence_timeout: ABORT,
    });
    bench.settle();
    let windows: Vec<_> = bench.report().iter().map(|one| one.window).collect();
    let own = DISCOVERY_QUEUE_DEPTH;
    assert_eq!(windows, [own, own, 3 * own]);
    bench.end_all();
}

#[test]
fn one_discovery_session_too_many_ends_the_oldest() {
    let mut bench = Bench::with(|settings| settings.discovery_max = 2);
    let lines = [1, 2, HOSTS_OF_ADDRESS].map(|host| bench.discover(host));
    assert_eq!(lines.map(|line| bench.is_shut(line)), [true, false, false]);
    assert_eq!(bench.ended(), ["displaced by other discovery sessions"]);
    assert_eq!((bench.noticed("displaced"), bench.failed().len()), (1, 0));
    // One that ends makes room.
    bench.log_out(lines[1], None);
    let next = bench.discover(1);
    assert!(bench.is_in(next));
    assert_eq!(bench.ended(), ["logged out"]);
    assert_eq!(lines.map(|line| bench.is_shut(line)), [true, true, false]);
    // Those with a target are not among them.
    for host in 3..6 {
        bench.ready(host);
    }
    assert_eq!((bench.ended().len(), bench.noticed("displaced")), (0, 1));
    bench.end_all();
}

#[test]
fn a_discovery_session_lasts_as_long_as_it_may() {
    let mut bench = Bench::new();
    bench.sessions.settings.discovery_lifetime = Duration::from_millis(3750);
    let line = bench.discover(1);
    // Looked at in whole seconds.
    let due = BEGIN + Duration::from_millis(3750);
    assert_eq!(due.subsec_nanos(), 0);
    let other = bench.ready(2);
    let mut next = bench.sessions.poll_timeout(&bench.engine).unwrap();
    while next < due {
        next = bench.pass_to(next).unwrap();
        assert!(!bench.is_shut(line));
    }
    bench.pass_to(due - MOMENT);
    assert!(!bench.is_shut(line));
    bench.pass_to(due);
    assert!(bench.is_shut(line) && !bench.is_shut(other));
    assert_eq!(bench.ended(), ["a discovery session lasts no longer"]);
    bench.end_all();
}

/// It asks its next question when it has the last answer.
#[test]
fn an_answer_that_nobody_reads_ends_a_discovery_session() {
    let mut bench = Bench::new();
    let line = bench.discover(1);
    bench.set_silent(line, true);
    assert!(bench.is_receiving(line));
    assert_eq!(bench.ask_targets(line), b"");
    assert!(!bench.is_receiving(line));
    bench.set_silent(line, false);
    assert!(bench.is_receiving(line));
    assert_eq!(bench.heard(line).len(), 1);
    bench.set_silent(line, true);
    bench.ask_targets(line);
    // It was sent at a quarter past the second.
    let due = Duration::from_secs((BEGIN + Duration::from_secs(10)).as_secs() + 1);
    let mut next = bench.sessions.poll_timeout(&bench.engine).unwrap();
    while next < due {
        next = bench.pass_to(next).unwrap();
        assert!(!bench.is_shut(line), "at {next:?}");
    }
    bench.pass_to(due);
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["the initiator does not read its answers"]);
    bench.end_all();
}

/// No commands, and no task management.
#[test]
fn a_discovery_session_is_only_asked_for_texts() {
    let mut bench = Bench::new();
    let line = bench.discover(1);
    bench.read(line);
    assert_eq!(bench.heard(line)[0].0, Opcode::Reject);
    bench.end_all();
}
