//! Logins that are refused, or go for others.

use std::time::Duration;

use ::iscsi::pdu::{LoginStatus, Opcode, Tsih};
use engine::testing::disk::Take;

use super::super::Descriptors;
use super::bench::{BEGIN, Bench, GOOD, HOSTS_OF_ADDRESS, Rules, USER};
use crate::SendEnd;

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

/// What the rules say when a login ends decides.
#[test]
fn a_login_that_the_rules_do_not_let_in_is_refused_with_their_status() {
    type Change = fn(&mut Rules);
    let cases: [(Change, bool, u16); 5] = [
        (
            |rules| rules.luns = Err(LoginStatus::AuthorizationFailure),
            false,
            0x0202,
        ),
        (
            |rules| rules.luns = Err(LoginStatus::TargetRemoved),
            false,
            0x0204,
        ),
        (|rules| rules.is_listed = false, false, 0x0203),
        // It has no such portal group.
        (|rules| rules.tag = 2, false, 0x0300),
        (|rules| rules.may_discover = false, true, 0x0202),
    ];
    for (number, (change, is_discovery, status)) in cases.into_iter().enumerate() {
        let mut bench = Bench::new();
        let mut rules = Rules::new();
        change(&mut rules);
        bench.set_rules(rules);
        let line = match is_discovery {
            true => bench.discover(1),
            false => bench.log_in(1),
        };
        let [class, detail] = status.to_be_bytes();
        let why = format!("target refused the login with status {class:#04x}/{detail:#04x}");
        assert_eq!(bench.refused(line), Some(&*why), "{number}");
        assert_eq!(bench.failed().len(), 1);
        assert!(bench.is_shut(line) && bench.sessions.logins() == 0);
        assert_eq!(
            (
                bench.noticed("login fails"),
                bench.noticed("login succeeds")
            ),
            (1, 0)
        );
        // The others are let in by other rules.
        bench.set_rules(Rules::new());
        let other = bench.log_in(1);
        assert!(bench.is_in(other));
        bench.end_all();
    }
}

#[test]
fn the_user_that_an_initiator_has_proved_is_reported() {
    let mut bench = Bench::new();
    bench.log_in(1);
    bench.require_chap(SECRET, SECRET);
    bench.log_in(2);
    let users: Vec<_> = bench.report().into_iter().map(|one| one.user).collect();
    assert_eq!(users, [None, Some(USER.to_owned())]);
    bench.end_all();
}

/// One failure less counts every two seconds, for the origin alone.
#[test]
fn joins_that_fail_are_not_looked_at_for_a_while() {
    const FAILED_MAX: u32 = 32;
    const NO_SESSION: &str = "login refused with status 0x020a";
    const OUT_OF_RESOURCES: &str = "login refused with status 0x0302";
    let mut bench = Bench::new();
    let [line, elsewhere] = [1, HOSTS_OF_ADDRESS].map(|host| bench.ready(host));
    for _ in 0..FAILED_MAX {
        bench.begin_login(2, Tsih(0x7777), 1);
        assert_eq!(bench.failed(), [NO_SESSION]);
    }
    for (now, is_allowed) in [(0, false), (1, false), (2, true)] {
        bench.pass_to(BEGIN + Duration::from_secs(now));
        let join = bench.join(1, line, 2);
        assert_eq!(bench.is_in(join), is_allowed, "after {now} s");
        let why: &[&str] = if is_allowed { &[] } else { &[OUT_OF_RESOURCES] };
        assert_eq!(bench.failed(), why);
        // Others join, and everybody may lead.
        let others = [bench.join(HOSTS_OF_ADDRESS, elsewhere, 2), bench.log_in(3)];
        assert_eq!(others.map(|line| bench.is_in(line)), [true; 2]);
    }
    bench.begin_login(2, Tsih(0x7777), 1);
    assert_eq!(bench.failed(), [NO_SESSION]);
    bench.begin_login(2, Tsih(0x7777), 1);
    assert_eq!(bench.failed(), [OUT_OF_RESOURCES]);
    bench.end_all();
}

#[test]
fn a_session_has_as_many_connections_as_were_agreed_on() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let second = bench.join(1, line, 2);
    let third = bench.join(1, line, 3);
    assert_eq!([second, third].map(|line| bench.is_in(line)), [true, false]);
    assert_eq!(bench.failed(), ["login refused with status 0x0206"]);
    let words = bench.last_words(third);
    assert_eq!(
        (words.len(), words[0], &words[36..38]),
        (48, 0x23, &[2, 6][..])
    );
    let names = [
        "login succeeds",
        "connection opens",
        "connection joins",
        "connection replaces another",
    ];
    assert_eq!(names.map(|name| bench.noticed(name)), [2, 2, 1, 0]);
    let again = bench.join(1, line, 2);
    assert!(bench.is_in(again) && bench.is_shut(second) && !bench.is_shut(line));
    assert_eq!(names.map(|name| bench.noticed(name)), [3, 3, 1, 1]);
    bench.read(line);
    assert_eq!(bench.answer(line), GOOD);
    // One that is ending takes none.
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    bench.hang_up(line);
    bench.settle();
    let late = bench.join(1, line, 2);
    assert!(!bench.is_in(late) && bench.is_shut(late));
    assert_eq!(bench.failed(), ["login refused with status 0x020a"]);
    bench.finish_pending();
    bench.end_all();
}

/// A port is tried by who wants to see whether somebody listens: that is no login.
#[test]
fn a_login_that_is_lost_has_failed_if_it_has_a_name() {
    let mut bench = Bench::new();
    let tried = bench.connect(1);
    bench.vanish(tried);
    assert_eq!((bench.failed().len(), bench.is_shut(tried)), (0, true));
    bench.require_chap(SECRET, SECRET);
    // It takes no challenge.
    let line = bench.connect(2);
    bench.set_silent(line, true);
    bench.log_in_on(line, 2);
    assert!(!bench.is_shut(line));
    bench.vanish(line);
    assert_eq!(
        bench.failed(),
        ["the connection ended before the login was complete"]
    );
    assert!(bench.is_shut(line));
    // One whose header lies about its data.
    let line = bench.connect(3);
    let mut header = [0; 48];
    (header[0], header[5]) = (0x43, 0xff);
    bench.send(line, &header);
    let limit = ::iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
    let why = format!("data segment of {} bytes, limit is {limit}", 0xff_0000);
    assert_eq!(bench.failed(), [why]);
    assert!(bench.is_shut(line));
    let line = bench.connect(3);
    bench.send(line, &[0; 48]);
    assert_eq!(bench.failed(), ["connection begins with opcode 0x00"]);
    assert!(bench.is_shut(line) && bench.sessions.logins() == 0);
    bench.end_all();
}

#[test]
fn each_login_has_the_time_that_there_was_when_it_began() {
    let mut bench = Bench::with(|settings| settings.login_timeout = Duration::from_secs(9));
    let lines = [bench.connect(1), bench.connect(2)];
    bench.set_front(|settings| settings.login_timeout = Duration::from_secs(2));
    let soon = bench.connect(3);
    let shut = |bench: &mut Bench| [lines[0], lines[1], soon].map(|line| bench.is_shut(line));
    let moment = Duration::from_nanos(1);
    let due = BEGIN + Duration::from_secs(2);
    assert_eq!(bench.sessions.poll_timeout(&bench.engine), Some(due));
    bench.pass_to(due - moment);
    assert_eq!(shut(&mut bench), [false; 3]);
    let next = bench.pass_to(due);
    assert_eq!(shut(&mut bench), [false, false, true]);
    assert_eq!(next, Some(BEGIN + Duration::from_secs(9)));
    bench.pass_to(BEGIN + Duration::from_secs(9));
    assert_eq!(shut(&mut bench), [true; 3]);
    assert_eq!(bench.failed(), ["login not complete in time"; 3]);
    bench.end_all();
}

#[test]
fn limits_are_those_of_what_begins_from_now_on() {
    let mut bench = Bench::new();
    let lines = [bench.ready(1), bench.discover(1), bench.discover(2)];
    bench.set_front(|settings| (settings.sessions_max, settings.discovery_max) = (2, 2));
    assert_eq!(lines.map(|line| bench.is_shut(line)), [false; 3]);
    let next = [
        bench.discover(3),
        bench.log_in(HOSTS_OF_ADDRESS),
        bench.log_in(2),
    ];
    assert_eq!(next.map(|line| bench.is_in(line)), [true, true, false]);
    assert_eq!(bench.failed(), ["login refused with status 0x0302"]);
    assert_eq!(lines.map(|line| bench.is_shut(line)), [false, true, false]);
    bench.end_all();
}

/// Such a login has had its answer: that it may take no longer is nothing to it.
#[test]
fn a_refusal_is_held_longer_than_a_login_may_take() {
    let mut bench = Bench::with(|settings| settings.login_timeout = Duration::from_secs(3));
    bench.require_chap(SECRET, b"a guess for 20 bytes");
    let mut now = BEGIN;
    let mut last = 0;
    for _ in 0..7 {
        last = bench.log_in(1);
        now += Duration::from_secs(2);
        bench.pass_to(now);
    }
    // It waits for four seconds, two of which have passed.
    bench.pass_to(now + Duration::from_secs(2) - Duration::from_nanos(1));
    assert!(!bench.is_shut(last) && bench.refused(last).is_none());
    bench.pass_to(now + Duration::from_secs(2));
    assert!(bench.is_shut(last) && bench.refused(last).is_some());
    bench.end_all();
}

#[test]
fn a_login_waits_for_the_session_that_it_replaces_as_long_as_it_may_take() {
    let mut bench = Bench::with(|settings| settings.login_timeout = Duration::from_secs(2));
    let old = bench.enter(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(old);
    let first = bench.log_in(1);
    let half = Duration::from_millis(500);
    bench.pass_to(BEGIN + half);
    let silent = bench.connect(5);
    let front = bench.sessions.front.as_mut().unwrap();
    assert_eq!(front.poll_timeout(), Some(BEGIN + 4 * half));
    bench.vanish(silent);
    // A second one takes its place.
    let second = bench.log_in(1);
    assert_eq!(
        [old, first, second].map(|line| bench.is_shut(line)),
        [true, true, false]
    );
    assert_eq!(bench.failed(), ["login refused with status 0x0301"]);
    let due = BEGIN + Duration::from_millis(2500);
    bench.pass_to(due - Duration::from_nanos(1));
    assert!(!bench.is_shut(second));
    bench.pass_to(due);
    assert!(bench.is_shut(second) && !bench.is_in(second));
    assert_eq!(bench.failed(), ["login refused with status 0x0301"]);
    bench.finish_pending();
    // The rules have changed while it waited.
    let old = bench.enter(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(old);
    let new = bench.log_in(1);
    bench.set_rules(Rules {
        luns: Err(LoginStatus::AuthorizationFailure),
        ..Rules::new()
    });
    bench.finish_pending();
    assert!(bench.is_shut(new) && !bench.is_in(new));
    assert_eq!(bench.failed(), ["login refused with status 0x0202"]);
    bench.end_all();
}

#[test]
fn a_target_that_stops_ends_its_logins_and_asks_for_logouts() {
    let mut bench = Bench::new();
    let session = bench.ready(1);
    let login = bench.connect(2);
    bench.sessions.request_logouts(&mut bench.engine, 5);
    bench.settle();
    assert!(bench.is_shut(login) && !bench.is_shut(session));
    assert_eq!((bench.failed().len(), bench.sessions.logins()), (0, 0));
    let heard = bench.heard(session);
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].0, Opcode::AsyncMessage);
    bench.end_all();
}

/// What is under way on a line that is shut ends once more.
#[test]
fn nothing_comes_of_what_ends_on_a_line_that_is_shut() {
    let mut bench = Bench::new();
    bench.require_chap(SECRET, SECRET);
    let receiving = bench.connect(1);
    let sending = bench.connect(2);
    bench.set_silent(sending, true);
    bench.log_in_on(sending, 2);
    assert_eq!(bench.last_end(sending), Some(SendEnd::Wakes));
    bench.sessions.request_logouts(&mut bench.engine, 5);
    while bench.sessions.carry_front(&mut bench.engine) {}
    assert_eq!(bench.sessions.logins(), 2);
    assert_eq!(
        [receiving, sending].map(|line| bench.is_shut(line)),
        [true; 2]
    );
    assert_eq!(bench.sessions.poll_timeout(&bench.engine), None);
    bench.end_login_receive(receiving, &[0; 48]);
    assert_eq!(bench.sessions.logins(), 1);
    bench.end_login_send(sending);
    assert_eq!(bench.sessions.logins(), 0);
    bench.settle();
    assert_eq!((bench.failed().len(), bench.noticed("login fails")), (0, 0));
    assert_eq!(bench.engine.carrier.lines.shut, [receiving, sending]);
    bench.end_all();
}

/// Each as long as its login may take, whichever began first.
#[test]
fn several_logins_wait_each_for_its_session() {
    let mut bench = Bench::with(|settings| settings.login_timeout = Duration::from_secs(2));
    let hosts = [1, 2, 3];
    for host in hosts {
        let line = bench.enter(host);
        bench.disk.take_next([Take::Pending]);
        bench.write(line);
    }
    let step = Duration::from_millis(300);
    let mut now = BEGIN;
    let lines = hosts.map(|host| {
        let line = bench.log_in(host);
        now += step;
        bench.pass_to(now);
        line
    });
    let mut due = BEGIN + Duration::from_secs(2);
    for count in 1..=3 {
        let front = bench.sessions.front.as_mut().unwrap();
        assert_eq!(front.poll_timeout(), Some(due));
        bench.pass_to(due);
        let shut = lines.map(|line| bench.is_shut(line));
        assert_eq!(shut.iter().filter(|is_shut| **is_shut).count(), count);
        assert!(shut[count - 1]);
        due += step;
    }
    assert_eq!(bench.failed(), ["login refused with status 0x0301"; 3]);
    for _ in hosts {
        bench.finish_pending();
    }
    bench.end_all();
}
