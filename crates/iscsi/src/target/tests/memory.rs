//! What happens when the pool has nothing left.

use std::time::Duration;

use super::*;

/// Others take all memory: the session itself holds nothing.
fn exhaust(rig: &Rig) -> Vec<Buffer> {
    let others = rig.pool.account();
    std::iter::from_fn(|| others.allocate(::memory::PIECE_BYTES).ok()).collect()
}

/// Gives back what the session leaves to others, and this many pieces more.
fn release(rig: &Rig, held: &mut Vec<Buffer>, pieces: usize) {
    let reserve = rig.pool.capacity_bytes() / 16 / ::memory::PIECE_BYTES;
    held.truncate(held.len() - reserve - pieces);
}

fn rig() -> Rig {
    let mut config = config_of_bursts(65_536, 1000);
    config.parameters.initial_r2t = false;
    config.parameters.max_outstanding_r2t = 2;
    Rig::new(config)
}

#[test]
fn data_that_comes_unasked_without_room_fails_its_task_only() {
    #[rustfmt::skip]
    let cases = [
        // Immediate data in pieces, and before its turn.
        (vec![write(1, 1, 512).with_data(&[1; 512])], 100),
        (vec![write(1, 2, 512).with_data(&[1; 512]), nop(2, 1)], usize::MAX),
        // Unsolicited data, with and without immediate data.
        (vec![write(1, 1, 512).not_final(), data_out(1, RESERVED_TAG, 0, 0, &[1; 512])], 1 << 20),
        (vec![write(1, 1, 512).with_data(&[1; 100]).not_final(), data_out(1, RESERVED_TAG, 0, 100, &[1; 412])], usize::MAX),
    ];
    for (pdus, step) in cases {
        let mut rig = rig();
        rig.step = step;
        let held = exhaust(&rig);
        let mut events = rig.events(0, &pdus);
        if events.contains(&"command 1".to_owned()) {
            // Said when somebody asks for the data, and not before.
            let id = rig.session.tasks()[0];
            assert!(rig.session.request_data(id, 512, &rig.pool).is_none());
            let event = rig.session.poll_event();
            events = event.iter().map(|event| rig.story(event)).collect();
        }
        assert!(
            events.contains(&"fault 1 NoMemory".to_owned()),
            "{events:?}"
        );
        assert!(!events[1..].contains(&"command 1".to_owned()), "{events:?}");
        drop(held);
        let id = rig.session.tasks()[0];
        let response = Response {
            status: 0x28,
            sense: &[],
            data: Payload::Empty,
            transfer_length: 0,
        };
        rig.session.respond(id, response);
        assert_eq!(rig.answers(0).last().unwrap(), "response 1 28");
        rig.assert_alive(0);
        assert_eq!(rig.pool.free_bytes(), rig.pool.capacity_bytes());
    }
}

#[test]
fn immediate_data_that_lies_whole_in_its_chunk_needs_no_memory() {
    let mut rig = rig();
    let _held = exhaust(&rig);
    let id = rig.start(0, write(1, 1, 512).with_data(&pattern(512)));
    let data = rig.session.request_data(id, 512, &rig.pool).unwrap();
    assert_eq!(data.to_vec(), pattern(512));
}

#[test]
fn without_room_nothing_is_asked_for_until_memory_is_back() {
    let mut rig = rig();
    let held = exhaust(&rig);
    let one = rig.start(0, write(1, 1, 2000));
    let two = rig.start(0, write(2, 2, 500));
    for (id, length) in [(one, 2000), (two, 500)] {
        assert!(rig.session.request_data(id, length, &rig.pool).is_none());
    }
    assert_eq!(rig.answers(0), [""; 0]);
    assert!(rig.session.is_starving());
    rig.session.handle_memory(&rig.pool);
    assert!(rig.session.is_starving(), "there is still nothing");
    assert_eq!(rig.answers(0), [""; 0]);

    drop(held);
    rig.session.handle_memory(&rig.pool);
    assert!(!rig.session.is_starving());
    // Who came first is served first.
    assert_eq!(
        rig.answers(0),
        ["r2t 1 0 0+1000", "r2t 1 1 1000+1000", "r2t 2 0 0+500"]
    );
}

#[test]
fn the_first_in_the_queue_is_not_overtaken() {
    let mut rig = rig();
    let mut held = exhaust(&rig);
    let one = rig.start(0, write(1, 1, 20_000));
    let two = rig.start(0, write(2, 2, 500));
    rig.session.request_data(one, 20_000, &rig.pool);
    rig.session.request_data(two, 500, &rig.pool);
    // Room for the second only, beside what is kept for others.
    release(&rig, &mut held, 1);
    rig.session.handle_memory(&rig.pool);
    assert_eq!(rig.answers(0), [""; 0]);
    // The first gives up; its place goes with it.
    rig.session.abandon(one);
    rig.session.handle_memory(&rig.pool);
    assert_eq!(rig.answers(0), ["r2t 2 0 0+500"]);
    assert!(!rig.session.is_starving());
}

#[test]
fn a_task_never_gets_room_for_half_of_its_data() {
    let mut rig = rig();
    let mut held = exhaust(&rig);
    // One piece, where two are needed: not even the first burst is asked for.
    release(&rig, &mut held, 1);
    let id = rig.start(0, write(1, 1, 5000));
    rig.session.request_data(id, 5000, &rig.pool);
    assert_eq!(rig.answers(0), [""; 0]);
    assert!(rig.session.is_starving());
}

#[test]
fn memory_comes_back_when_tasks_end_in_whatever_way() {
    let mut rig = rig();
    let free = rig.pool.free_bytes();
    let ids: Vec<_> = (1..=4)
        .map(|n| rig.start(0, write(n, n, 5000).not_final()))
        .collect();
    for (n, id) in (1..).zip(&ids) {
        rig.session.request_data(*id, 5000, &rig.pool);
        rig.send(
            0,
            &[data_out(n, RESERVED_TAG, 0, 0, &[0; 1000]).not_final()],
        );
    }
    assert!(rig.pool.free_bytes() < free);
    rig.session.abandon(ids[0]);
    rig.good(ids[1]);
    // A fault gives the memory back at once.
    rig.send(0, &[data_out(3, RESERVED_TAG, 9, 0, &[0; 10])]);
    rig.send(0, &[data_out(4, RESERVED_TAG, 1, 1000, &[0; 4000])]);
    assert_eq!(rig.pool.free_bytes(), free);
}

#[test]
fn a_write_waits_for_room_up_to_its_deadline_and_not_beyond() {
    let mut rig = rig();
    let held = exhaust(&rig);
    for n in [1, 2] {
        let id = rig.start(0, write(n, n, 5000));
        rig.session.request_data(id, 5000, &rig.pool);
    }
    let deadline = rig.session.poll_timeout().unwrap();
    rig.session
        .handle_timeout(deadline - Duration::from_nanos(1));
    assert!(rig.session.poll_event().is_none());
    rig.session.handle_timeout(deadline);
    let events: Vec<_> = std::iter::from_fn(|| rig.session.poll_event()).collect();
    let events: Vec<_> = events.iter().map(|event| rig.story(event)).collect();
    assert_eq!(events, ["fault 1 NoMemory", "fault 2 NoMemory"]);
    assert!(!rig.session.is_starving());
    drop(held);
}

#[test]
fn writes_that_hold_what_each_other_needs_do_not_wait_for_ever() {
    let mut rig = rig();
    // A pool of eight pieces, of which a session that holds one may have two.
    let mut ballast = exhaust(&rig);
    ballast.truncate(ballast.len() - 8);
    rig.pool.set_base();
    let mut others = exhaust(&rig);
    others.truncate(others.len() - 5);
    for n in [1, 2] {
        let id = rig.start(0, write(n, n, 20_000).with_data(&[1; 100]));
        assert!(rig.session.request_data(id, 20_000, &rig.pool).is_none());
    }
    drop(others);
    rig.session.handle_memory(&rig.pool);
    assert_eq!(rig.answers(0), [""; 0]);
    let held = rig.pool.held_bytes();
    assert_eq!(held, 2 * ::memory::PIECE_BYTES, "what came with them");
    let deadline = rig.session.poll_timeout().unwrap();
    rig.session.handle_timeout(deadline);
    assert_eq!(rig.pool.held_bytes(), 0);
}
