//! How sessions end.

use std::time::Duration;

use ::iscsi::pdu::Opcode;
use engine::testing::disk::Take;

use crate::{SessionReport, TransportDetails};

use super::bench::{ABORT, Answer, BEGIN, Bench, GOOD, is_done};

const MOMENT: Duration = Duration::from_micros(1);
const NEXUS_LOSS: Answer = (2, Some((6, 0x29, 7)));

/// The whole second after a dismissal's patience of one second.
fn dismissed_at() -> Duration {
    Duration::from_secs(BEGIN.as_secs() + 2)
}

/// How many connections a session has, and how often its port has replaced one.
fn of_iscsi(report: &SessionReport) -> (usize, u32) {
    let TransportDetails::Iscsi {
        connections,
        reinstatements,
        ..
    } = &report.transport
    else {
        panic!("{report:?}");
    };
    (connections.len(), *reinstatements)
}

#[test]
fn a_dismissed_session_is_told_first_and_ends_at_once() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let receipt = bench.dismiss(line);
    assert!(is_done(&receipt));
    assert_eq!(bench.heard(line)[0].0, Opcode::AsyncMessage);
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["dismissed"]);
    assert!(bench.report().is_empty());
    bench.end_all();
}

#[test]
fn a_dismissed_session_whose_peer_reads_nothing_ends_after_a_second_and_not_before() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.set_silent(line, true);
    let receipt = bench.dismiss(line);
    let mut next = bench.sessions.poll_timeout(&bench.engine).unwrap();
    while next < dismissed_at() {
        next = bench.pass_to(next).unwrap();
    }
    bench.pass_to(dismissed_at() - MOMENT);
    assert!(!bench.is_shut(line) && !is_done(&receipt));
    bench.pass_to(dismissed_at());
    assert!(bench.is_shut(line) && is_done(&receipt));
    assert_eq!(bench.ended(), ["dismissed"]);
    bench.end_all();
}

#[test]
fn the_commands_of_a_dismissed_session_end_with_it() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    let receipt = bench.dismiss(line);
    assert!(!is_done(&receipt), "the store has its write");
    bench.finish_pending();
    assert!(is_done(&receipt));
    let heard = bench.heard(line);
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].0, Opcode::AsyncMessage);
    bench.end_all();
}

#[test]
fn a_session_that_is_dismissed_twice_ends_once_and_answers_both() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.set_silent(line, true);
    let receipts = [bench.dismiss(line), bench.dismiss(line)];
    bench.pass_to(dismissed_at());
    assert!(receipts.iter().all(is_done));
    assert_eq!(bench.ended(), ["dismissed"]);
    bench.end_all();
}

#[test]
fn a_lost_connection_ends_its_session_with_its_commands() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    bench.hang_up(line);
    bench.settle();
    assert_eq!(bench.ended(), ["closed by the initiator"]);
    assert!(bench.is_shut(line));
    assert!(bench.report()[0].is_ending, "the store has its write");
    bench.finish_pending();
    assert!(bench.report().is_empty());
    assert_eq!(bench.heard(line), []);
    bench.end_all();
}

#[test]
fn of_many_lost_connections_one_is_closed_in_a_busy_turn() {
    let mut bench = Bench::new();
    let lines: Vec<usize> = (0..5).map(|host| bench.log_in(host)).collect();
    for &line in &lines {
        bench.hang_up(line);
    }
    assert!(bench.ended().is_empty() && bench.sessions.has_more());
    bench.sessions.lose_some(&mut bench.engine, true);
    assert_eq!(bench.ended().len(), 1);
    bench.sessions.lose_some(&mut bench.engine, false);
    assert_eq!(bench.ended().len(), 4);
    assert!(!bench.sessions.has_more());
    bench.settle();
    bench.end_all();
}

#[test]
fn a_new_session_of_a_port_waits_until_the_old_one_has_left_the_store() {
    let mut bench = Bench::new();
    let old = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(old);
    let new = bench.log_in(1);
    assert!(bench.is_shut(old) && !bench.is_in(new));
    assert_eq!(bench.ended(), ["another session of the same port begins"]);
    bench.finish_pending();
    assert!(bench.is_in(new));
    let report = bench.report();
    assert_eq!((report.len(), of_iscsi(&report[0])), (1, (1, 1)));
    bench.read(new);
    assert_eq!(bench.answer(new), NEXUS_LOSS);
    assert_eq!(bench.heard(old), []);
    bench.end_all();
}

#[test]
fn a_connection_with_the_cid_of_another_replaces_it_and_the_session_lives_on() {
    let mut bench = Bench::new();
    let old = bench.ready(1);
    let id = bench.id_of(old);
    bench.disk.take_next([Take::Pending]);
    bench.read(old);
    let new = bench.join(1, old, 1);
    assert!(bench.is_shut(old) && bench.is_in(new));
    assert!(bench.ended().is_empty());
    let report = bench.report();
    assert_eq!((report[0].id, of_iscsi(&report[0])), (id, (1, 0)));
    bench.finish_pending();
    assert_eq!(bench.heard(new), [], "the command went with its connection");
    bench.end_all();
}

/// Spec: RFC 7143 sections 11.5.1 and 11.6.1.
#[test]
fn a_function_that_is_not_allowed_or_unknown_is_refused_and_ends_nothing() {
    const LOGICAL_UNIT_RESET: u8 = 5;
    const TARGET_COLD_RESET: u8 = 7;
    const CLEAR_ACA: u8 = 3;
    const COMPLETE: u8 = 0;
    const NOT_SUPPORTED: u8 = 5;
    const AUTHORIZATION_FAILED: u8 = 6;
    let mut bench = Bench::new();
    let lines = [bench.ready(0), bench.ready(1)];
    for (function, response) in [
        (TARGET_COLD_RESET, AUTHORIZATION_FAILED),
        (CLEAR_ACA, NOT_SUPPORTED),
    ] {
        assert_eq!(bench.manage(lines[0], function), response);
        for line in lines {
            bench.read(line);
            assert_eq!(bench.answer(line), GOOD, "after {function}");
        }
    }
    assert_eq!(bench.manage(lines[0], LOGICAL_UNIT_RESET), COMPLETE);
    bench.read(lines[1]);
    assert_ne!(bench.answer(lines[1]), GOOD, "a unit attention");
    bench.end_all();
}

#[test]
fn a_logout_is_answered_when_the_commands_of_the_session_have_ended() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    let tag = bench.log_out(line, None);
    assert_eq!(bench.heard(line), []);
    bench.finish_pending();
    assert_eq!(bench.heard(line), [(Opcode::LogoutResponse, tag)]);
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["logged out"]);
    assert!(bench.report().is_empty());
    bench.end_all();
}

#[test]
fn a_logout_whose_commands_hang_is_answered_after_the_time_of_an_abort() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    let tag = bench.log_out(line, None);
    bench.pass_to(BEGIN + ABORT - MOMENT);
    assert_eq!(bench.heard(line), []);
    bench.pass_to(BEGIN + ABORT);
    assert_eq!(bench.heard(line), [(Opcode::LogoutResponse, tag)]);
    bench.finish_pending();
    bench.end_all();
}

#[test]
fn a_connection_that_logs_out_leaves_the_others() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let other = bench.join(1, line, 2);
    assert!(bench.is_in(other));
    let tag = bench.log_out(line, Some(2));
    assert_eq!(bench.heard(line), [(Opcode::LogoutResponse, tag)]);
    assert!(bench.is_shut(other) && !bench.is_shut(line));
    assert_eq!(of_iscsi(&bench.report()[0]), (1, 0));
    bench.read(line);
    assert_eq!(bench.answer(line), GOOD);
    assert!(bench.ended().is_empty());
    bench.end_all();
}
