//! What once went wrong at the edges of sessions: data of another length, twins, short frames, stores that hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hyperscsi::{EndReason, Level, Outcome};
use store::testing::{ForeignDisk, Manner};

use crate::client::{Client, Session};
use crate::host::{BLOCK_BYTES, Keys, device, serve, start, start_with, total, udp};
use crate::udp::{
    CHECK_CONDITION, GOOD, RESERVATION_CONFLICT, blocks, exercise, login, pattern, plane_with,
    reserve,
};
use crate::{PATIENCE, wait_until};

fn read(session: &mut Session, lba: u8, count: u16) -> Vec<u8> {
    let room = u32::from(count) * u32::try_from(BLOCK_BYTES).unwrap();
    let done = session.run_ready(1, &blocks(0x28, lba, count), &[], room);
    assert_eq!(done.status(), GOOD);
    done.data
}

#[test]
fn data_that_are_longer_or_shorter_than_their_command_harm_nothing_beside() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    let mut expected = pattern(1, 6 * BLOCK_BYTES);
    let done = session.run_ready(1, &blocks(0x2a, 0, 6), &expected, 0);
    assert_eq!(done.status(), GOOD);
    for longer in [BLOCK_BYTES + 1, 3 * BLOCK_BYTES] {
        let data = pattern(u8::try_from(longer % 251).unwrap(), longer);
        let done = session.run(1, &blocks(0x2a, 1, 1), &data, 0);
        let more = i32::try_from(longer - BLOCK_BYTES).unwrap();
        assert_eq!((done.status(), done.reply.residual), (GOOD, -more));
        expected[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&data[..BLOCK_BYTES]);
        assert!(read(&mut session, 0, 6) == expected, "{longer} bytes");
    }
    for shorter in [1, BLOCK_BYTES - 1, 2 * BLOCK_BYTES - 1] {
        let data = pattern(9, shorter);
        let done = session.run(1, &blocks(0x2a, 2, 2), &data, 0);
        assert_eq!(done.status(), CHECK_CONDITION, "{shorter} bytes");
        // ILLEGAL REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT.
        assert_eq!(done.sense(), (0x05, 0x0e, 0x03), "{shorter} bytes");
        assert!(read(&mut session, 0, 6) == expected, "{shorter} bytes");
    }
    // Without any data nothing is to be written.
    let none = session.run(1, &blocks(0x2a, 2, 2), &[], 0);
    assert_eq!(none.status(), GOOD);
    assert!(
        read(&mut session, 0, 6) == expected,
        "a command without data"
    );
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn groups_of_one_name_at_two_places_are_two() {
    let (plane, keys) = (start(), Keys::new());
    let (first, place, site) = udp("127.0.0.1:0".parse().unwrap());
    let (second, other_place, other_site) = udp("127.0.0.1:0".parse().unwrap());
    let groups = [&place, &other_place].map(|place| keys.group("ABC", "secret", place));
    let open = vec![(place, site), (other_place, other_site)];
    serve(&plane, &keys, groups.to_vec(), open);
    let client = Client::udp([127, 0, 0, 1], first);
    let number = client.number;
    let mut one = login(client, "ABC", "secret");
    one.open(1, Level::Crc);
    let mut client = Client::udp([127, 0, 0, 1], second);
    client.number = number;
    let mut two = login(client, "ABC", "secret");
    two.open(1, Level::Crc);
    // The session at the other place goes on.
    exercise(&mut one, 1, 4);
    let reports = plane.handle().sessions().unwrap();
    assert_eq!(reports.iter().filter(|one| !one.is_ending).count(), 2);
    // And they are two ports: REGISTER, RESERVE.
    assert_eq!(reserve(&mut one, 0, 0, 5), GOOD);
    assert_eq!(reserve(&mut one, 1, 5, 0), GOOD);
    let done = two.run_ready(1, &blocks(0x28, 0, 1), &[], 512);
    assert_eq!(done.status(), RESERVATION_CONFLICT);
    assert_eq!(read(&mut one, 0, 1).len(), BLOCK_BYTES);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_frame_below_the_least_size_is_counted_and_not_answered() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let mut client = Client::udp([127, 0, 0, 1], address);
    // Tag 8, of no session.
    let frame = [&[0, 64, 0][..], &[7; 60]].concat();
    for length in [3, 13, 45, 45, 45] {
        client.send(&frame[..length]);
    }
    client.send(&frame[..46]);
    let is_counted = || total(&plane, |counts| counts.unknown_tag) >= 6;
    wait_until("the frames are counted", is_counted, || {
        client.receive(client.now() + Duration::from_millis(1));
    });
    assert_eq!(total(&plane, |counts| counts.frames_out), 1);
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_session_begins_when_the_commands_of_the_one_before_are_over() {
    let disk = ForeignDisk::new(4 << 20, 0);
    let (plane, keys) = (
        start_with(Arc::new(disk.clone()), 2 * PATIENCE),
        Keys::new(),
    );
    let (address, place, site) = udp("127.0.0.1:0".parse().unwrap());
    let groups = vec![keys.group("ABC", "secret", &place)];
    serve(&plane, &keys, groups, vec![(place, site)]);
    let client = Client::udp([127, 0, 0, 1], address);
    let number = client.number;
    let mut first = login(client, "ABC", "secret");
    first.open(1, Level::Crc);
    first.run_ready(1, &[0; 6], &[], 0);
    disk.treat_next([Manner::Late]);
    first.submit(1, &blocks(0x2a, 0, 1), &[1; BLOCK_BYTES], 0);
    let under_way = |plane: &plane::DataPlane| {
        let reports = plane.handle().sessions().unwrap();
        reports.iter().map(|one| one.commands).sum::<usize>()
    };
    wait_until(
        "the command has begun",
        || under_way(&plane) > 0,
        || {
            first.pause(Duration::from_millis(1));
        },
    );
    let is_in = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_in);
    let second = thread::spawn(move || {
        // On the other core.
        let mut client = Client::udp([127, 0, 0, 2], address);
        client.number = number;
        let mut session = login(client, "ABC", "secret");
        seen.store(true, Ordering::SeqCst);
        session.open(1, Level::Crc);
        let done = session.run_ready(1, &blocks(0x2a, 0, 1), &[2; BLOCK_BYTES], 0);
        assert_eq!(done.status(), GOOD);
        session.close();
    });
    assert_eq!(first.end(), EndReason::Disconnected);
    // Each of these waits for all cores, so what they had to do is done.
    for _ in 0..100 {
        let reports = plane.handle().sessions().unwrap();
        assert!(reports.iter().all(|one| one.is_ending), "{reports:?}");
    }
    assert!(!is_in.load(Ordering::SeqCst), "the old write is under way");
    disk.release();
    second.join().unwrap();
    assert_eq!(disk.byte(0), 2, "the old write came after the new one");
    assert!(!plane.stop().is_core_lost);
}

#[test]
fn a_command_on_a_device_that_leaves_is_answered_though_its_store_hangs() {
    let disk = ForeignDisk::new(4 << 20, 0);
    let plane = start_with(Arc::new(disk.clone()), Duration::from_millis(200));
    let keys = Keys::new();
    let (address, place, site) = udp("127.0.0.1:0".parse().unwrap());
    let mut group = keys.group("ABC", "secret", &place);
    serve(&plane, &keys, vec![group.clone()], vec![(place, site)]);
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    session.open(2, Level::Encrypt);
    session.run_ready(1, &[0; 6], &[], 0);
    disk.treat_next([Manner::Late]);
    let token = session.submit(1, &blocks(0x2a, 0, 1), &[1; BLOCK_BYTES], 0);
    let has_begun = || plane.handle().sessions().unwrap()[0].commands > 0;
    wait_until("the command has begun", has_begun, || {
        session.pause(Duration::from_millis(1));
    });
    group.devices = vec![device(2, 1, Level::Encrypt)];
    serve(&plane, &keys, vec![group], Vec::new());
    assert_eq!(session.answer(token).reply.outcome, Outcome::Aborted);
    assert_eq!(disk.byte(0), 0, "it hangs still");
    exercise(&mut session, 2, 4);
    disk.release();
    assert!(!plane.stop().is_core_lost);
}
