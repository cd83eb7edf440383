//! Over UDP on the loopback.

use std::time::Duration;

use hyperscsi::{EndReason, Function, Level, LoginError, Opening, Outcome, Profile};
use plane::{DataPlane, Place, SessionReport, Subject, TraceLimits, TransportDetails};

use crate::client::{Client, Session};
use crate::host::{BLOCK_BYTES, Keys, device, listen, serve, start, total, udp};
use crate::initiator::Initiator;
use crate::wait_until;

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
pub(crate) const GOOD: u8 = 0;
pub(crate) const CHECK_CONDITION: u8 = 2;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// READ (10) or WRITE (10).
pub(crate) fn blocks(opcode: u8, lba: u8, count: u16) -> [u8; 10] {
    let [high, low] = count.to_be_bytes();
    [opcode, 0, 0, 0, 0, lba, 0, high, low, 0]
}

pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    let numbers = (0..bytes).map(|n| seed.wrapping_add(u8::try_from(n % 251).unwrap()));
    numbers.collect()
}

/// Writes and reads back.
pub(crate) fn exercise(session: &mut Session, device: u16, count: u16) {
    let seed = u8::try_from(device).unwrap();
    let bytes = usize::from(count) * BLOCK_BYTES;
    let data = pattern(seed, bytes);
    let done = session.run_ready(device, &blocks(0x2a, seed, count), &data, 0);
    assert_eq!((done.status(), done.reply.residual), (GOOD, 0), "{done:?}");
    let room = u32::try_from(bytes).unwrap();
    let done = session.run(device, &blocks(0x28, seed, count), &[], room);
    assert_eq!((done.status(), done.reply.residual), (GOOD, 0));
    assert!(done.data == data, "device {device} gives something else");
}

pub(crate) fn plane_with(
    groups: &[(&str, &str)],
) -> (DataPlane, Keys, std::net::SocketAddr, Place) {
    let (plane, keys) = (start(), Keys::new());
    let (address, place, site) = udp("127.0.0.1:0".parse().unwrap());
    let groups = groups
        .iter()
        .map(|(name, password)| keys.group(name, password, &place));
    serve(&plane, &keys, groups.collect(), vec![(place.clone(), site)]);
    (plane, keys, address, place)
}

pub(crate) fn login(client: Client, group: &str, password: &str) -> Session {
    match client.login(group, password) {
        Ok(session) => session,
        Err((error, _)) => panic!("{error}"),
    }
}

/// What a session of HyperSCSI is reported with: its group, and its open devices.
fn group_and_levels(report: &SessionReport) -> (&str, &[(u16, Level)]) {
    let TransportDetails::Hyperscsi { group, levels, .. } = &report.transport else {
        panic!("{report:?}");
    };
    (&**group, levels.as_slice())
}

#[test]
fn a_client_finds_its_group_proves_the_password_and_gets_back_what_it_wrote() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret"), ("open", "")]);
    // One for each core.
    for (host, group, password) in [(1, "ABC", "secret"), (2, "open", "")] {
        let mut client = Client::udp([127, 0, 0, host], address);
        let found = client.find(group);
        assert_eq!(found.answer.name, "tarn");
        assert_eq!(found.answer.open, u16::from(group == "open"));
        let Err((error, client)) = client.login(group, "wrong") else {
            panic!("a wrong password is taken");
        };
        assert_eq!(error, LoginError::Password);
        let mut session = login(client, group, password);
        let page = session.devices();
        let devices = page.devices.iter();
        let shown: Vec<_> = devices
            .map(|one| (one.handle, one.blocks, one.level))
            .collect();
        assert_eq!(
            shown,
            [(1, 8192, Level::Crc), (2, 8192, Level::Encrypt)],
            "{page:?}"
        );
        assert_eq!(
            session.open(2, Level::Hash),
            Opening::TooLow(Level::Encrypt)
        );
        assert_eq!(
            session.open(2, Level::Encrypt),
            Opening::Open(Level::Encrypt)
        );
        assert_eq!(session.open(1, Level::Crc), Opening::Open(Level::Crc));
        assert_eq!(session.open(9, Level::Crc), Opening::Unknown);
        let first = session.run(1, &[0; 6], &[], 0);
        assert_eq!(
            (first.status(), first.sense()),
            (CHECK_CONDITION, (6, 0x29, 0))
        );
        let inquiry = session.run(1, &INQUIRY, &[], 96);
        assert_eq!(inquiry.status(), GOOD);
        assert_eq!(&inquiry.data[8..21], b"TARN    first");
        for (device, count) in [(1, 1), (2, 1), (1, 300), (2, 300), (1, 2048)] {
            exercise(&mut session, device, count);
        }
        // Less than there is room for, and more.
        let done = session.run(1, &blocks(0x28, 0, 1), &[], 1024);
        assert_eq!((done.data.len(), done.reply.residual), (512, -512));
        let done = session.run(1, &blocks(0x28, 0, 2), &[], 512);
        assert_eq!((done.data.len(), done.reply.residual), (512, 512));
        let reply = session.manage(1, Function::LogicalUnitReset);
        assert_eq!(reply.outcome, Outcome::FunctionComplete);
        let reply = session.manage(1, Function::AbortTaskSet);
        assert_eq!(reply.outcome, Outcome::FunctionComplete);
        let reports = plane.handle().sessions().unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        let (own, levels) = group_and_levels(&reports[0]);
        assert_eq!(levels, [(1, Level::Crc), (2, Level::Encrypt)]);
        assert_eq!((own, reports[0].core), (group, usize::from(host % 2)));
        session.close();
        let is_over = || plane.handle().sessions().unwrap().is_empty();
        wait_until("the session is over", is_over, std::thread::yield_now);
    }
    assert_eq!(total(&plane, |counts| counts.proved), 2);
    assert_eq!(total(&plane, |counts| counts.refused), 0);
    assert!(total(&plane, |counts| counts.answers) >= 2);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn many_commands_at_once_are_each_answered_once() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    session.run(1, &[0; 6], &[], 0);
    // More than there are slots, and more data than the window of a session has room for.
    let data = pattern(9, 2048 * BLOCK_BYTES);
    let tokens: Vec<u64> = (0..24)
        .map(|n| session.submit(1, &blocks(0x2a, n, 2048), &data, 0))
        .collect();
    let mut left: std::collections::BTreeSet<u64> = tokens.into_iter().collect();
    while !left.is_empty() {
        let (token, reply) = session.wait(|event| match event {
            hyperscsi::ClientEvent::Answer { token, reply, .. } => Some((token, reply)),
            other => panic!("{other:?}"),
        });
        assert_eq!(reply.outcome, Outcome::Status(GOOD));
        assert!(left.remove(&token), "{token} is answered twice");
    }
    assert_eq!(total(&plane, |counts| counts.sessions.no_room), 0);
    assert!(!plane.stop().is_core_lost);
}

/// PERSISTENT RESERVE OUT with a service action and type EXCLUSIVE ACCESS.
pub(crate) fn reserve(session: &mut Session, action: u8, key: u8, new: u8) -> u8 {
    let cdb = [0x5f, action, 3, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [0; 24];
    (list[7], list[15]) = (key, new);
    session.run_ready(1, &cdb, &list, 0).status()
}

#[test]
fn a_unit_is_one_through_both_transports() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret"), ("other", "secret")]);
    let mut initiator = Initiator::login(listen(&plane));
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    let data = pattern(77, BLOCK_BYTES);
    let done = session.run_ready(1, &blocks(0x2a, 0, 1), &data, 0);
    assert_eq!(done.status(), GOOD);
    assert_eq!(initiator.read_block(), (GOOD, data.clone()));
    // REGISTER, RESERVE.
    assert_eq!(reserve(&mut session, 0, 0, 5), GOOD);
    assert_eq!(reserve(&mut session, 1, 5, 0), GOOD);
    assert_eq!(initiator.read_block().0, RESERVATION_CONFLICT);
    // The same client is the same port in its next session, whatever its address is; in another group it is somebody
    // else.
    let number = session.client.number;
    session.close();
    let mut client = Client::udp([127, 0, 0, 2], address);
    client.number = number;
    let mut session = login(client, "ABC", "secret");
    session.open(1, Level::Crc);
    assert_eq!(
        session.run_ready(1, &blocks(0x28, 0, 1), &[], 512).data,
        data
    );
    let mut client = Client::udp([127, 0, 0, 3], address);
    client.number = number;
    let mut other = login(client, "other", "secret");
    other.open(1, Level::Crc);
    let done = other.run_ready(1, &blocks(0x28, 0, 1), &[], 512);
    assert_eq!(done.status(), RESERVATION_CONFLICT);
    // RELEASE.
    assert_eq!(reserve(&mut session, 2, 5, 0), GOOD);
    assert_eq!(initiator.read_block(), (GOOD, data));
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_client_that_logs_in_again_has_one_session() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let first = Client::udp([127, 0, 0, 1], address);
    let number = first.number;
    let mut first = login(first, "ABC", "secret");
    // On the other core.
    let mut second = Client::udp([127, 0, 0, 2], address);
    second.number = number;
    let mut second = login(second, "ABC", "secret");
    assert_eq!(first.end(), EndReason::Disconnected);
    second.open(1, Level::Crc);
    exercise(&mut second, 1, 8);
    let reports = plane.handle().sessions().unwrap();
    assert_eq!(reports.iter().filter(|one| !one.is_ending).count(), 1);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn questions_and_frames_of_strangers_are_bounded_and_counted() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let mut flood = Client::udp([127, 0, 0, 1], address);
    let question = hyperscsi::Question {
        client: [1; 16],
        nonce: [2; 8],
        groups: vec!["ABC".to_owned()],
    };
    let question = question.encode();
    let sent = 1000_u32;
    for n in 0..sent {
        flood.send(&question);
        // Neither a question nor a step of a login, too short, and with a tag.
        flood.send(&[0, 4, 0, 0x20, 0x33, n.to_be_bytes()[3]]);
        flood.send(&[0]);
        let [_, _, _, low] = u32::to_be_bytes(n);
        flood.send(&[&[0x01, low | 8, 0][..], &[low; 60]].concat());
        flood.receive(flood.now());
    }
    let begin = flood.now();
    let seen = |plane: &DataPlane| {
        total(plane, |counts| {
            counts.questions + counts.login_steps + counts.strange + counts.unknown_tag
        })
    };
    // What the sockets had no room for is gone; the rest comes to an end.
    let mut before = 0;
    let is_over = || seen(&plane) == std::mem::replace(&mut before, seen(&plane)) && before > 0;
    wait_until("all of it is counted", is_over, || {
        flood.receive(flood.now() + Duration::from_millis(100));
    });
    assert!(total(&plane, |counts| counts.strange) > 0);
    assert!(total(&plane, |counts| counts.unknown_tag) > 0);
    assert!(total(&plane, |counts| counts.login_steps) > 0);
    let seconds = (flood.now() - begin).as_secs() + 60;
    let answers = total(&plane, |counts| counts.answers);
    assert!((1..=20 + 10 * seconds).contains(&answers), "{answers}");
    let left = total(&plane, |counts| counts.frames_out);
    assert!(left <= answers + 50 + 50 * seconds, "{left} frames left");
    let mut session = login(Client::udp([127, 0, 0, 3], address), "ABC", "secret");
    session.open(1, Level::Crc);
    exercise(&mut session, 1, 8);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_change_ends_sessions_of_what_is_gone_and_leaves_others() {
    let (plane, keys, address, place) = plane_with(&[("ABC", "secret"), ("gone", "secret")]);
    let mut stays = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    let mut goes = login(Client::udp([127, 0, 0, 2], address), "gone", "secret");
    stays.open(1, Level::Crc);
    stays.open(2, Level::Encrypt);
    exercise(&mut stays, 1, 4);
    let (_, second, site) = udp("127.0.0.1:0".parse().unwrap());
    let mut group = keys.group("ABC", "another", &place);
    group.devices = vec![device(2, 1, Level::Encrypt), device(3, 0, Level::Crc)];
    let fresh = keys.group("fresh", "", &second);
    serve(
        &plane,
        &keys,
        vec![group.clone(), fresh],
        vec![(second.clone(), site)],
    );
    assert_eq!(goes.end(), EndReason::Disconnected);
    let page = stays.devices();
    let handles: Vec<u16> = page.devices.iter().map(|one| one.handle).collect();
    assert_eq!(handles, [2, 3]);
    let done = stays.run(1, &INQUIRY, &[], 96);
    assert_eq!(done.reply.outcome, Outcome::NotOpen);
    exercise(&mut stays, 2, 4);
    assert_eq!(stays.open(3, Level::Crc), Opening::Open(Level::Crc));
    exercise(&mut stays, 3, 4);
    let Place::Udp(second) = second else {
        panic!("it is of UDP");
    };
    login(Client::udp([127, 0, 0, 4], second), "fresh", "").close();
    // A higher level is no wish.
    group.devices[1].level = Level::Hash;
    serve(&plane, &keys, vec![group], Vec::new());
    assert_eq!(stays.end(), EndReason::Disconnected);
    let client = Client::udp([127, 0, 0, 1], address);
    let Err((error, client)) = client.login("ABC", "secret") else {
        panic!("the old password is taken");
    };
    assert_eq!(error, LoginError::Password);
    login(client, "ABC", "another").close();
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_client_takes_the_profile_of_its_group() {
    let (plane, keys, address, place) = plane_with(&[("ABC", "secret")]);
    for profile in [Profile::WIRED, Profile::WIRELESS] {
        let mut group = keys.group("ABC", "secret", &place);
        group.profile = profile;
        serve(&plane, &keys, vec![group], Vec::new());
        let session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
        assert_eq!(session.terms().profile, profile);
        session.close();
    }
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_trace_has_the_frames_of_its_session_until_that_ends() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    // Both on one core.
    let mut traced = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    let mut other = login(Client::udp([127, 0, 0, 3], address), "ABC", "secret");
    traced.open(1, Level::Crc);
    other.open(1, Level::Crc);
    let sessions = plane.handle().sessions().unwrap();
    let of_it = |report: &&SessionReport| report.peer.ip().to_string() == "127.0.0.1";
    let subject = Subject::Session(sessions.iter().find(of_it).unwrap().id);
    let limits = TraceLimits {
        data_bytes: 0,
        keep_bytes: 1 << 20,
    };
    assert_eq!(plane.handle().start_trace(&subject, limits), Ok(true));
    exercise(&mut other, 1, 4);
    let count = || plane.handle().trace_reports()[0].pdus;
    // A frame that is sent again, or a probe, may come late; so it is looked whose frames there are.
    let before = count();
    exercise(&mut traced, 1, 4);
    assert!(count() > before + 6, "{before} and {} frames", count());
    let file = plane.handle().read_trace(&subject).unwrap();
    let is_of_other = file.windows(6).any(|bytes| bytes == [2, 0, 127, 0, 0, 3]);
    assert!(!is_of_other, "frames of another session");
    // The link type, and the first frame: to the target, which has a made-up address as its client has.
    assert_eq!(file[20..24], [1, 0, 0, 0]);
    let frame = &file[24 + 16..];
    assert_eq!(
        frame[..14],
        [2, 0, 127, 0, 0, 1, 2, 0, 127, 0, 0, 1, 0x88, 0x9a]
    );
    assert!(!file.windows(16).any(|bytes| bytes == &pattern(1, 16)[..]));
    traced.close();
    let is_over = || plane.handle().sessions().unwrap().len() == 1;
    wait_until(
        "the traced session is over",
        is_over,
        std::thread::yield_now,
    );
    let last = count();
    exercise(&mut other, 1, 4);
    assert_eq!(count(), last);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn the_client_of_a_target_that_was_restarted_learns_it() {
    let (plane, keys, address, place) = plane_with(&[("ABC", "secret")]);
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    exercise(&mut session, 1, 4);
    assert!(!plane.stop().is_core_lost);
    let plane = start();
    let (_, _, site) = udp(address);
    let groups = vec![keys.group("ABC", "secret", &place)];
    serve(&plane, &keys, groups, vec![(place, site)]);
    let token = session.submit(1, &[0; 6], &[], 0);
    let end = session.wait(|event| match event {
        hyperscsi::ClientEvent::Ended(reason) => Some(reason),
        hyperscsi::ClientEvent::Lost { token: lost, .. } if lost == token => None,
        other => panic!("{other:?}"),
    });
    // It learnt it at the end, or after that.
    assert!(
        matches!(end, EndReason::Disconnected | EndReason::Unknown),
        "{end:?}"
    );
    let mut session = login(session.client, "ABC", "secret");
    session.open(1, Level::Crc);
    exercise(&mut session, 1, 4);
    assert!(!plane.stop().is_core_lost);
}
