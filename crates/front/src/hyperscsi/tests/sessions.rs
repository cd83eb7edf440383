//! Discovery, logins, and sessions from beginning to end.

use std::time::{Duration, SystemTime};

use ::hyperscsi::{ClientEvent, EndReason, Entropy, Level, LoginError, Outcome, Search};
use engine::testing::disk::{Take, capabilities};
use engine::testing::outside::Receipt;

use super::super::sessions::{SENDING_MAX, port_of};
use super::bench::*;
use crate::identity::SessionId;
use crate::report::TransportDetails;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_client_logs_in_and_has_its_data_back() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    let written = bench.write(client, 8, vec![7; 4096]);
    assert_eq!(bench.answer(client, written), (Outcome::Status(0), vec![]));
    let read = bench.read(client, 8, 4096);
    assert_eq!(
        bench.answer(client, read),
        (Outcome::Status(0), vec![7; 4096])
    );
    bench.disk.take(Take::Pending);
    bench.read(client, 0, 512);

    let reports = bench.hyperscsi.report(&bench.engine);
    assert_eq!(reports.len(), 1);
    let report = &reports[0];
    let details = TransportDetails::Hyperscsi {
        group: GROUP.into(),
        place: place(0),
        levels: vec![(DEVICE, Level::Crc)],
    };
    assert_eq!(report.transport, details);
    assert_eq!(
        report.initiator_name,
        format!("hyperscsi:{}", "01".repeat(16))
    );
    assert_eq!((report.peer, report.core), (station(1), 0));
    assert_eq!(
        (report.portal.port(), report.since),
        (0, SystemTime::UNIX_EPOCH)
    );
    assert_eq!((report.commands, report.window), (1, DEPTH - 1));
    assert_eq!((report.luns.len(), report.luns[0].lun), (1, DEVICE));
    assert!(!report.is_ending);

    let counts = bench.hyperscsi.counts(&bench.engine);
    assert_eq!((counts.proved, counts.refused, counts.unproved), (1, 0, 0));
    // The first one has no cookie yet.
    assert_eq!((counts.login_steps, counts.questions), (3, 0));
    assert_eq!(
        (counts.strange, counts.misplaced, counts.unknown_tag),
        (0, 0, 0)
    );
    let sent = counts.sessions;
    assert_eq!(counts.frames_in, sent.frames_in + 3);
    assert_eq!(counts.frames_out, sent.frames_out + 3);
    bench.finish_pending();
    bench.end_all();
}

#[test]
fn what_sessions_have_counted_stays_when_they_are_over() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    let read = bench.read(client, 0, 512);
    assert!(bench.answer(client, read).0 == Outcome::Status(0));
    let before = bench.hyperscsi.counts(&bench.engine).sessions;
    assert!(before.frames_in > 2 && before.frames_out > 2);
    bench.in_session(client).close();
    bench.settle();
    assert!(bench.hyperscsi.is_quiet());
    let after = bench.hyperscsi.counts(&bench.engine).sessions;
    assert!(after.frames_in > before.frames_in && after.frames_out >= before.frames_out);
    assert_eq!(bench.lines().ended, ["the client has disconnected"]);
    bench.end_all();
}

#[test]
fn a_wrong_password_is_reported_and_many_are_a_guess() {
    let mut bench = Bench::new();
    for number in 1..=12 {
        let client = bench.log_in_with(station(1), number, (GROUP, b"sesame", 64));
        bench.pass(3 * SECOND);
        assert_eq!(bench.clients[client].failed, Some(LoginError::Password));
        bench.hyperscsi.look(&mut bench.engine);
    }
    bench.pass(20 * SECOND);
    bench.hyperscsi.look(&mut bench.engine);
    let counts = bench.hyperscsi.counts(&bench.engine);
    assert_eq!((counts.unproved, counts.proved), (12, 0));
    assert_eq!(bench.lines().failed, vec!["ABC: unproved"; 12]);
    // From the eighth on.
    assert_eq!(bench.lines().guessed, ["hyperscsi:ABC"; 5]);
    bench.end_all();
}

#[test]
fn a_question_is_answered_a_little_later() {
    let mut bench = Bench::new();
    let client = [1; 16];
    let entropy = Entropy::new(&[1; 32]);
    let mut search = Search::new(bench.now, client, vec![GROUP.to_owned()], entropy);
    let question = search.poll_frame(bench.now).unwrap();
    bench.is_stuck = true;
    bench.frame(station(1), 0, &question);
    let due = bench.hyperscsi.poll_timeout(&bench.engine).unwrap();
    assert!(due <= bench.now + Duration::from_millis(20), "{due:?}");
    bench.pass(Duration::from_millis(21));
    let frames = std::mem::take(&mut bench.lines().frames);
    assert_eq!(frames.len(), 1);
    let (key, to, answer) = &frames[0];
    assert_eq!((*key, *to), (bench.key(0), station(1)));
    let found = search.handle_frame(b"bench", answer).unwrap();
    assert_eq!((&*found.answer.name, found.answer.open), ("bench", 0));
    assert_eq!(bench.hyperscsi.poll_timeout(&bench.engine), None);
    let counts = bench.hyperscsi.counts(&bench.engine);
    assert_eq!(
        (counts.questions, counts.answers, counts.login_steps),
        (1, 1, 0)
    );

    // A question for a group of another place has no answer.
    let groups = vec!["DEF".to_owned()];
    let mut search = Search::new(bench.now, client, groups, Entropy::new(&[1; 32]));
    let question = search.poll_frame(bench.now).unwrap();
    bench.frame(station(1), 0, &question);
    assert_eq!(bench.hyperscsi.poll_timeout(&bench.engine), None);
}

#[test]
fn of_a_storm_of_questions_some_have_no_answer() {
    let mut bench = Bench::new();
    for last in 0..=u8::MAX {
        for more in 0..2 {
            let entropy = Entropy::new(&[last; 32]);
            let groups = vec![GROUP.to_owned()];
            let mut search = Search::new(bench.now, [last; 16], groups, entropy);
            let question = search.poll_frame(bench.now).unwrap();
            let from = crate::Station::Link([2, 0, 0, 0, more, last]);
            bench.frame(from, 0, &question);
        }
    }
    let counts = bench.hyperscsi.counts(&bench.engine);
    assert_eq!((counts.questions, counts.answers_dropped), (512, 256));
    bench.pass(Duration::from_millis(30));
    assert_eq!(bench.hyperscsi.counts(&bench.engine).answers, 256);
    bench.end_all();
}

#[test]
fn frames_of_no_session_are_counted_and_answered_within_a_rate() {
    let mut bench = Bench::new();
    bench.frame(station(1), 0, &[9, 9]);
    assert_eq!(bench.hyperscsi.counts(&bench.engine).strange, 1);
    // Tag 5, and whatever is behind the header.
    let mut frame = vec![0; 46];
    frame[..3].copy_from_slice(&::hyperscsi::unknown_session(0)[..3]);
    let header = ::hyperscsi::FragmentHeader {
        tag: 5,
        ..::hyperscsi::FragmentHeader::decode(*frame.first_chunk().unwrap())
    };
    frame[..3].copy_from_slice(&header.encode());
    bench.is_stuck = true;
    bench.frame(station(1), 0, &frame[..45]);
    assert!(
        bench.lines().frames.is_empty(),
        "it is shorter than its answer"
    );
    for _ in 0..60 {
        bench.frame(station(1), 0, &frame);
    }
    assert_eq!(bench.hyperscsi.counts(&bench.engine).unknown_tag, 61);
    let frames = std::mem::take(&mut bench.lines().frames);
    assert_eq!(frames.len(), 50);
    let answers = frames
        .iter()
        .map(|(_, to, answer)| (*to, ::hyperscsi::read_unknown_session(answer)));
    assert!(answers.into_iter().all(|one| one == (station(1), Some(5))));
}

#[test]
fn a_frame_of_a_client_of_another_core_is_left_to_it() {
    let mut bench = Bench::bare(2, (8, 8), &capabilities());
    bench.serve(&[group()]);
    let foreign = bench.log_in(station(1), 1);
    let counts = bench.hyperscsi.counts(&bench.engine);
    assert_eq!((counts.misplaced, counts.login_steps), (1, 0));
    assert!(bench.clients[foreign].session.is_none());
    bench.clients.clear();
    let own = bench.log_in(station(2), 2);
    assert!(bench.clients[own].session.is_some());
    bench.end_all();
}

#[test]
fn a_client_that_logs_in_again_waits_for_the_tasks_of_its_older_session() {
    let mut bench = Bench::new();
    let old = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(old, 0, vec![1; 512]);
    let new = bench.log_in(station(2), 1);
    assert!(bench.clients[new].session.is_none());
    assert_eq!(bench.lines().ended, ["its client has logged in again"]);
    let ended = ClientEvent::Ended(EndReason::Disconnected);
    assert!(bench.events(old).contains(&ended));
    // It asks once more, from somewhere else: who asked before waits in vain.
    let newest = bench.log_in(station(3), 1);
    assert_eq!(bench.clients[new].failed, Some(LoginError::NoPlace));
    assert!(bench.clients[newest].session.is_none());
    bench.finish_pending();
    bench.settle();
    assert!(bench.clients[newest].session.is_some());
    assert_eq!(bench.hyperscsi.report(&bench.engine).len(), 1);
    let refused = "ABC: there are as many sessions as there may be";
    assert_eq!(bench.lines().failed, [refused]);
    bench.end_all();
}

/// Of a client in two groups none ends.
#[test]
fn a_client_has_a_session_in_each_group() {
    let mut bench = Bench::new();
    let mut other = group();
    other.place = place(1);
    bench.serve(&[group(), other]);
    let first = bench.log_in(station(1), 1);
    bench.next_place = 1;
    let second = bench.log_in(station(1), 1);
    assert!(bench.clients[first].session.is_some());
    assert!(bench.clients[second].session.is_some());
    assert_eq!(bench.lines().ended, [""; 0]);
    bench.end_all();
}

#[test]
fn sessions_of_one_station_have_their_own_frames() {
    let mut bench = Bench::new();
    let clients = [1, 2].map(|number| {
        let client = bench.log_in(station(1), number);
        bench.open(client, DEVICE, Level::Crc);
        client
    });
    for (client, byte) in clients.into_iter().zip(1_u8..) {
        let written = bench.write(client, u32::from(byte), vec![byte; 512]);
        assert_eq!(bench.answer(client, written).0, Outcome::Status(0));
    }
    let ids: Vec<SessionId> = bench
        .hyperscsi
        .report(&bench.engine)
        .iter()
        .map(|one| one.id)
        .collect();
    let frames = ids
        .iter()
        .map(|id| bench.hyperscsi.frames_of(&bench.engine, *id).unwrap());
    let tags: Vec<_> = frames
        .map(|(key, from, tags)| {
            assert_eq!((key, from), (bench.key(0), station(1)));
            tags
        })
        .collect();
    // One for each command of the depth, one for functions, one for what is of no slot.
    assert_eq!(tags, [1..=6, 7..=12]);
    assert_eq!(
        bench.hyperscsi.frames_of(&bench.engine, SessionId(99)),
        None
    );
    // The first one leaves, and the other one goes on.
    bench.in_session(clients[0]).close();
    bench.settle();
    let read = bench.read(clients[1], 1, 512);
    assert_eq!(
        bench.answer(clients[1], read),
        (Outcome::Status(0), vec![1; 512])
    );
    bench.end_all();
}

#[test]
fn a_host_has_no_more_sessions_than_it_may() {
    let mut bench = Bench::with(3, 1);
    let first = bench.log_in(station(1), 1);
    let second = bench.log_in(station(1), 2);
    assert!(bench.clients[first].session.is_some());
    assert_eq!(bench.clients[second].failed, Some(LoginError::NoPlace));
    assert_eq!(bench.hyperscsi.counts(&bench.engine).refused, 1);
    for last in 2..=3 {
        let client = bench.log_in(station(last), last + 1);
        assert!(bench.clients[client].session.is_some(), "another host");
    }
    let more = bench.log_in(station(4), 9);
    assert_eq!(
        bench.clients[more].failed,
        Some(LoginError::NoPlace),
        "all are taken"
    );
    bench.in_session(first).close();
    bench.settle();
    let again = bench.log_in(station(1), 2);
    assert!(
        bench.clients[again].session.is_some(),
        "there is room again"
    );
    bench.end_all();
}

#[test]
fn a_client_that_says_nothing_is_gone() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.rest();
    bench.clients[client].session = None;
    bench.pass(59 * SECOND);
    assert_eq!(bench.lines().ended, [""; 0]);
    bench.pass(3 * SECOND);
    assert_eq!(
        bench.lines().ended,
        ["nothing came from the client for too long"]
    );
    assert_eq!(bench.hyperscsi.poll_timeout(&bench.engine), None);
    bench.end_all();
}

/// Both sides ask now and then whether the other is there.
#[test]
fn a_client_that_has_nothing_to_say_stays() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.pass(300 * SECOND);
    assert_eq!(bench.lines().ended, [""; 0]);
    let read = bench.read(client, 1, 512);
    assert_eq!(bench.answer(client, read).0, Outcome::Status(0));
    bench.end_all();
}

#[test]
fn an_administrator_ends_a_session_and_hears_when_it_is_gone() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(client, 0, vec![1; 512]);
    let id = bench.hyperscsi.report(&bench.engine)[0].id;
    let receipt = Receipt::default();
    let (engine, none) = (&mut bench.engine, SessionId(99));
    bench
        .hyperscsi
        .dismiss(engine, none, "no session", receipt.clone());
    assert!(!is_kept(&receipt));
    bench
        .hyperscsi
        .dismiss(engine, id, "an administrator", receipt.clone());
    bench.settle();
    assert_eq!(bench.lines().ended, ["an administrator"]);
    assert!(is_kept(&receipt), "its command is with the store");
    assert!(bench.hyperscsi.report(&bench.engine)[0].is_ending);
    bench.finish_pending();
    assert!(!is_kept(&receipt));
    assert!(bench.hyperscsi.is_quiet());
    bench.end_all();
}

#[test]
fn a_target_that_stops_gives_last_replies_and_takes_no_more() {
    let mut bench = Bench::new();
    let (busy, idle) = (bench.ready(1), bench.ready(2));
    bench.rest();
    bench.disk.take_next([Take::Pending]);
    let last = bench.read(busy, 0, 512);
    bench.hyperscsi.stop(&mut bench.engine);
    bench.settle();
    assert_eq!(bench.lines().ended, ["the target stops"]);
    let more = bench.read(busy, 0, 512);
    assert_eq!(bench.answer(busy, more).0, Outcome::Status(8), "BUSY");
    let steps = bench.hyperscsi.counts(&bench.engine).login_steps;
    let late = bench.log_in(station(3), 3);
    assert_eq!(bench.hyperscsi.counts(&bench.engine).login_steps, steps);
    assert!(bench.clients[late].session.is_none());
    bench.finish_pending();
    assert_eq!(bench.answer(busy, last).0, Outcome::Status(0));
    bench.rest();
    assert!(bench.hyperscsi.is_quiet());
    assert!(
        bench
            .events(idle)
            .contains(&ClientEvent::Ended(EndReason::Disconnected))
    );
    bench.end_all();
}

#[test]
fn no_more_frames_are_with_the_system_than_may_be() {
    let mut bench = Bench::new();
    let clients = [1, 2].map(|last| bench.ready(last));
    // The more is acknowledged, the more may be under way.
    for client in clients.into_iter().cycle().take(16) {
        let token = bench.read(client, 0, 512 << 10);
        bench.pass(SECOND);
        assert_eq!(bench.answer(client, token).0, Outcome::Status(0));
    }
    bench.is_stuck = true;
    let tokens = clients.map(|client| bench.read(client, 0, 512 << 10));
    bench.settle();
    assert_eq!(bench.lines().frames.len(), SENDING_MAX);
    assert!(bench.hyperscsi.waits_for_places() && !bench.hyperscsi.has_more());
    // What is of no session is lost instead.
    let unsent = bench.hyperscsi.counts(&bench.engine).unsent;
    bench.log_in(station(3), 3);
    assert_eq!(bench.lines().frames.len(), SENDING_MAX);
    assert_eq!(bench.hyperscsi.counts(&bench.engine).unsent, unsent + 1);
    // The system reports that it could not send some.
    let key = bench.key(0);
    bench.lines().frames.truncate(SENDING_MAX - 9);
    bench.hyperscsi.handle_sent(key, 0, 9);
    assert_eq!(bench.hyperscsi.counts(&bench.engine).unsent, unsent + 10);
    bench.settle();
    assert_eq!(bench.lines().frames.len(), SENDING_MAX);
    bench.is_stuck = false;
    bench.settle();
    bench.pass(SECOND);
    for (client, token) in clients.into_iter().zip(tokens) {
        let (outcome, data) = bench.answer(client, token);
        assert_eq!((outcome, data.len()), (Outcome::Status(0), 512 << 10));
    }
    assert!(!bench.hyperscsi.waits_for_places());
    bench.end_all();
}

#[test]
fn a_new_depth_is_that_of_sessions_that_begin_after_it() {
    let mut bench = Bench::new();
    let old = bench.ready(1);
    bench.hyperscsi.set_queue_depth(2);
    let new = bench.ready(2);
    let limits: Vec<u32> = bench
        .engine
        .sessions()
        .map(|(_, entry)| entry.port.hyperscsi().unwrap().limit())
        .collect();
    assert_eq!(limits, [DEPTH, 2]);
    let slots = [old, new].map(|client| {
        let station = bench.clients[client].station;
        let reports = bench.hyperscsi.report(&bench.engine);
        let id = reports.iter().find(|one| one.peer == station).unwrap().id;
        bench
            .hyperscsi
            .frames_of(&bench.engine, id)
            .unwrap()
            .2
            .count()
    });
    assert_eq!(slots, [6, 4]);
    bench.end_all();
}

#[test]
fn a_client_gets_as_many_slots_as_it_asks_for_and_there_are() {
    let mut bench = Bench::new();
    bench.hyperscsi.set_queue_depth(1000);
    for (number, asked, had) in [(1, 8, 8), (2, 256, 256), (3, 128, 128), (4, 128, 64)] {
        let client = bench.log_in_with(station(1), number, (GROUP, PASSWORD, asked));
        assert!(bench.clients[client].session.is_some());
        let id = bench
            .hyperscsi
            .report(&bench.engine)
            .iter()
            .map(|one| one.id.0)
            .max()
            .unwrap();
        let tags = bench
            .hyperscsi
            .frames_of(&bench.engine, SessionId(id))
            .unwrap()
            .2;
        assert_eq!(tags.count(), had + 1, "slots of {asked}");
    }
    bench.end_all();
}

#[test]
fn a_session_tells_who_is_behind_it() {
    let mut bench = Bench::new();
    bench.ready(1);
    let key = bench.engine.sessions().next().unwrap().0;
    let port = port_of(&mut bench.engine, key).unwrap();
    let who = port.detail.who();
    assert_eq!((who.initiator.len(), who.target), (42, Some(GROUP)));
    assert_eq!((who.peer, who.user), (station(1), None));
    let id = who.session;
    let report = bench.hyperscsi.report(&bench.engine).remove(0);
    let details = TransportDetails::Hyperscsi {
        group: GROUP.into(),
        place: place(0),
        levels: vec![(DEVICE, Level::Crc)],
    };
    assert_eq!((report.id, report.transport), (id, details));
    assert_eq!((report.core, report.peer), (0, station(1)));
    assert_eq!(report.portal, "0.0.0.0:0".parse().unwrap());
    assert_eq!((report.user, report.target), (None, None));
    assert_eq!(report.luns.len(), 1);
    let state = (report.commands, report.window, report.is_ending);
    assert_eq!(state, (0, DEPTH, false));
    bench.end_all();
}

/// One that had a report of a loss gets it once more, unless it had all that it waited for and is long away.
#[test]
fn a_client_has_said_farewell_that_leaves_with_nothing_under_way() {
    const HOUR: Duration = Duration::from_secs(3600);
    let synchronize = |bench: &mut Bench, client| {
        let cdb = [&[0x35][..], &[0; 9]].concat();
        let token = bench.submit(client, cdb, 0, Vec::new());
        bench.answer(client, token).0
    };
    let [good, lost] = [0, 2].map(Outcome::Status);
    for (is_busy, expected) in [(false, good), (true, lost)] {
        let mut bench = Bench::forgetful();
        let client = bench.ready(1);
        let token = bench.write(client, 0, vec![7; 512]);
        assert_eq!(bench.answer(client, token).0, good);
        bench.disk.set_lost(1);
        assert_eq!(synchronize(&mut bench, client), lost);
        bench.rest();
        if is_busy {
            bench.disk.take_next([Take::Pending]);
            bench.read(client, 0, 512);
        }
        bench.in_session(client).close();
        bench.settle();
        assert_eq!(bench.lines().ended, ["the client has disconnected"]);
        bench.clients[client].session = None;
        if is_busy {
            bench.finish_pending();
        }
        assert!(bench.hyperscsi.is_quiet());
        bench.pass(HOUR);
        let client = bench.ready(1);
        assert_eq!(synchronize(&mut bench, client), expected, "busy: {is_busy}");
        bench.end_all();
    }
}
