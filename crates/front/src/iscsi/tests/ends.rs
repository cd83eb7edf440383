//! How sessions end.

use std::time::Duration;

use ::iscsi::pdu::{Opcode, Tsih};
use engine::TargetIndex;
use engine::testing::disk::Take;

use super::super::FrontLetter;
use crate::testing::Mail;
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
fn the_commands_of_a_dismissed_session_are_not_answered() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    bench.set_silent(line, true);
    let receipt = bench.dismiss(line);
    bench.finish_pending();
    assert!(!bench.is_shut(line) && !is_done(&receipt));
    bench.set_silent(line, false);
    let heard: Vec<_> = bench
        .heard(line)
        .into_iter()
        .map(|(opcode, _)| opcode)
        .collect();
    assert_eq!(heard, [Opcode::AsyncMessage]);
    assert!(bench.is_shut(line) && is_done(&receipt));
    bench.end_all();
}

#[test]
fn a_number_that_does_not_come_ends_the_session() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.ping_behind_gap(line);
    // It was missing since a quarter past the second, and may be for one.
    let due = Duration::from_secs(BEGIN.as_secs() + 2);
    let mut next = bench.sessions.poll_timeout(&bench.engine).unwrap();
    while next < due {
        next = bench.pass_to(next).unwrap();
    }
    bench.pass_to(due - MOMENT);
    assert!(!bench.is_shut(line));
    bench.pass_to(due);
    assert_eq!(bench.ended(), ["the initiator broke the protocol"]);
    assert_eq!(bench.noticed("violation"), 1);
    bench.end_all();
}

/// It is there until what is under way on its line has ended.
#[test]
fn a_connection_goes_when_nothing_is_under_way_on_its_line() {
    for receives_last in [false, true] {
        let mut bench = Bench::new();
        let line = bench.ready(1);
        bench.set_silent(line, true);
        bench.read(line);
        bench.sessions.end_all(&mut bench.engine, "the end");
        for is_receive in [!receives_last, receives_last] {
            assert!(!bench.sessions.is_quiet());
            assert_eq!(bench.noticed("connection is gone"), 0);
            match is_receive {
                true => bench.end_receive(line, &[0; 48]),
                false => bench.end_send(line),
            }
        }
        assert!(bench.sessions.is_quiet());
        assert_eq!(bench.noticed("connection is gone"), 1);
        assert_eq!(
            (bench.ended(), bench.noticed("violation")),
            (vec!["the end"], 0)
        );
        bench.end_all();
    }
}

#[test]
fn what_is_left_of_sessions_is_counted() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let mut expected = vec![
        "1 sessions by number",
        "1 sessions by name",
        "1 connections",
        "a front that is not idle",
    ];
    assert_eq!(bench.sessions.leftovers(), expected);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    let receipt = bench.dismiss(line);
    expected[2] = "1 receipts";
    assert_eq!(bench.sessions.leftovers(), expected);
    assert!(bench.sessions.is_quiet());
    bench.finish_pending();
    assert!(is_done(&receipt));
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
fn each_function_is_answered_with_what_became_of_it() {
    const COMPLETE: u8 = 0;
    const NO_SUCH_TASK: u8 = 1;
    const NO_SUCH_LUN: u8 = 2;
    const NOT_SUPPORTED: u8 = 5;
    const AUTHORIZATION_FAILED: u8 = 6;
    // The function, the LUN, the response, and whether the other initiator learns of it.
    #[rustfmt::skip]
    let cases = [
        ("ABORT TASK", 1, 0, NO_SUCH_TASK, false),
        ("ABORT TASK SET", 2, 0, COMPLETE, false),
        ("ABORT TASK SET", 2, 9, NO_SUCH_LUN, false),
        ("CLEAR ACA", 3, 0, NOT_SUPPORTED, false),
        ("CLEAR TASK SET", 4, 0, COMPLETE, false),
        ("LOGICAL UNIT RESET", 5, 0, COMPLETE, true),
        ("LOGICAL UNIT RESET", 5, 9, NO_SUCH_LUN, false),
        ("TARGET WARM RESET", 6, 0, COMPLETE, true),
        ("TARGET COLD RESET", 7, 0, AUTHORIZATION_FAILED, false),
    ];
    let mut bench = Bench::new();
    let lines = [bench.ready(0), bench.ready(1)];
    let mut taken = 0;
    for (name, function, lun, response, is_reset) in cases {
        assert_eq!(
            bench.manage(lines[0], function, lun),
            response,
            "{name} of LUN {lun}"
        );
        bench.read(lines[1]);
        assert_eq!(
            bench.answer(lines[1]) != GOOD,
            is_reset,
            "{name} of LUN {lun}"
        );
        if is_reset {
            bench.read(lines[0]);
            bench.heard(lines[0]);
        }
        bench.read(lines[0]);
        assert_eq!(bench.answer(lines[0]), GOOD, "{name} of LUN {lun}");
        // What names no task, or is not known, is nothing to the engine.
        taken += u32::from(!matches!(name, "ABORT TASK" | "CLEAR ACA"));
        assert_eq!(bench.noticed("task management"), taken);
    }
    assert_eq!(bench.ended(), [""; 0]);
    bench.end_all();
}

/// Each is told so by its next session, once.
#[test]
fn the_sessions_of_a_target_that_is_reset_cold_end() {
    const TARGET_RESET: Answer = (2, Some((6, 0x29, 2)));
    let mut bench = Bench::new();
    let lines = [bench.ready(1), bench.ready(2)];
    let end = |bench: &mut Bench, target| {
        let letter = FrontLetter::EndTarget { target };
        bench.sessions.handle_letter(&mut bench.engine, letter);
        bench.settle();
    };
    end(&mut bench, TargetIndex(1));
    assert_eq!(lines.map(|line| bench.is_shut(line)), [false; 2]);
    let lines = [lines[0], bench.log_in(2)];
    bench.read(lines[1]);
    assert_eq!(
        bench.answer(lines[1]),
        NEXUS_LOSS,
        "another target was reset"
    );
    assert_eq!(bench.ended().len(), 1);
    end(&mut bench, TargetIndex(0));
    assert_eq!(lines.map(|line| bench.is_shut(line)), [true; 2]);
    assert_eq!(bench.ended(), ["logged out"; 2]);
    for expected in [TARGET_RESET, NEXUS_LOSS] {
        let line = bench.log_in(1);
        bench.read(line);
        assert_eq!(bench.answer(line), expected);
    }
    bench.end_all();
}

/// It has ended by itself meanwhile.
#[test]
fn the_end_of_a_session_that_is_not_there_is_reported_as_well() {
    let mut bench = Bench::new();
    let tsih = Tsih(0x4321);
    for letter in [
        FrontLetter::EndDiscovery { tsih },
        FrontLetter::EndSession { tsih },
    ] {
        bench.sessions.handle_letter(&mut bench.engine, letter);
    }
    let posted: Vec<_> = bench.engine.carrier.posted.drain(..).collect();
    let [(0, Mail::Iscsi(FrontLetter::SessionEnded { tsih: ended }))] = &posted[..] else {
        panic!("{posted:?}");
    };
    assert_eq!(*ended, tsih);
    bench.end_all();
}

#[test]
fn the_first_ten_violations_of_a_session_are_reported_and_all_are_counted() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.skip(line, 1000);
    for count in 1..=12 {
        bench.read(line);
        assert_eq!(bench.heard(line), [], "it is outside the window");
        assert_eq!(bench.noticed("violation"), count.min(10));
        let TransportDetails::Iscsi { violations, .. } = bench.report()[0].transport else {
            panic!("another transport");
        };
        assert_eq!(violations, count);
    }
    assert!(!bench.is_shut(line));
    bench.end_all();
}

#[test]
fn a_connection_that_ends_within_data_or_breaks_the_protocol_ends_its_session() {
    let mut bench = Bench::new();
    let other = bench.ready(2);
    // The second command: a WRITE (10) of 32 KiB, of which little comes.
    let mut write = vec![0; 48 + 100];
    (write[0], write[1], write[6]) = (0x01, 0xa1, 128);
    (write[19], write[22], write[27]) = (7, 128, 2);
    (write[32], write[40]) = (0x2a, 64);
    let line = bench.enter(1);
    bench.send(line, &write);
    assert!(!bench.is_shut(line));
    bench.vanish(line);
    assert_eq!(
        bench.ended(),
        ["the connection ended within a data segment"]
    );
    // A data segment that is larger than any.
    let line = bench.enter(1);
    write[5] = 0xff;
    bench.send(line, &write[..48]);
    assert_eq!(bench.ended(), ["the initiator broke the protocol"]);
    assert!(bench.is_shut(line));
    assert_eq!(bench.noticed("violation"), 1);
    // Its answer cannot be sent.
    let line = bench.enter(1);
    bench.set_silent(line, true);
    bench.read(line);
    bench.vanish(line);
    assert_eq!(bench.ended().len(), 1);
    assert!(!bench.is_shut(other));
    bench.end_all();
}

/// How an initiator goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    LogOut,
    /// Of the connection, with this CID.
    LogOutOf(u16),
    Close,
    HangUp,
}

/// One that had a report of a loss gets it once more, unless it has said farewell and is long away.
#[test]
fn an_initiator_has_said_farewell_that_logs_out_or_had_all() {
    const LOST: Answer = (2, Some((4, 0x0c, 0)));
    const HOUR: Duration = Duration::from_secs(3600);
    // How it goes, whether all is acknowledged, with how many connections, and with an answer that it has not read.
    let cases = [
        (Way::LogOut, false, 1, false, true),
        (Way::LogOut, false, 2, false, true),
        (Way::LogOutOf(1), false, 1, false, true),
        (Way::LogOutOf(1), false, 2, false, false),
        (Way::Close, true, 1, false, true),
        (Way::Close, false, 1, false, false),
        (Way::Close, true, 2, false, false),
        (Way::Close, true, 1, true, false),
        (Way::HangUp, true, 1, false, false),
    ];
    for (way, has_had_all, connections, is_unread, is_farewell) in cases {
        let case = format!("{way:?}, {has_had_all}, {connections}, {is_unread}");
        let mut bench = Bench::forgetful();
        bench.has_had_all = has_had_all;
        let line = bench.ready(1);
        let second = (connections > 1).then(|| bench.join(1, line, 2));
        bench.write(line);
        assert_eq!(bench.answer(line), GOOD);
        bench.disk.set_lost(1);
        bench.synchronize(line);
        assert_eq!(bench.answer(line), LOST, "{case}");
        if is_unread {
            bench.set_silent(line, true);
            bench.read(line);
        }
        match way {
            Way::LogOut => {
                bench.log_out(line, None);
            }
            Way::LogOutOf(cid) => {
                bench.log_out(line, Some(cid));
            }
            Way::Close => bench.close(line),
            Way::HangUp => bench.hang_up(line),
        }
        bench.settle();
        assert!(bench.is_shut(line), "{case}");
        // The other one goes without a word.
        if let Some(second) = second.filter(|second| !bench.is_shut(*second)) {
            bench.hang_up(second);
            bench.settle();
        }
        assert!(bench.report().is_empty(), "{case}");
        bench.pass_to(BEGIN + HOUR);
        let line = bench.enter(1);
        bench.synchronize(line);
        let expected = if is_farewell { GOOD } else { LOST };
        assert_eq!(bench.answer(line), expected, "{case}");
        bench.end_all();
    }
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

/// The answer is sent before its own connection closes.
#[test]
fn a_logout_of_a_session_closes_all_of_its_connections() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let other = bench.join(1, line, 2);
    bench.set_silent(line, true);
    let tag = bench.log_out(line, None);
    assert_eq!([line, other].map(|line| bench.is_shut(line)), [false, true]);
    bench.set_silent(line, false);
    assert_eq!(bench.heard(line), [(Opcode::LogoutResponse, tag)]);
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["logged out"]);
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
