//! Sequences of clients, on one core.

mod bench;
mod handshakes;
mod raw;
mod tls;
mod work;

use std::time::Duration;

use ::nbd::{Piece, Request, ServerError, Work};
use engine::testing::disk::{Take, capabilities};
use proptest::prelude::*;
use store::{Capabilities, IoFailure};

use crate::{CommandId, SendEnd};
use bench::*;

#[test]
fn a_request_longer_than_a_command_is_several_of_them() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    let bytes: Vec<u8> = (0..5_u32 << 20)
        .map(|at| (at / 4096).to_be_bytes()[3])
        .collect();
    client.submit(write(1, 4096, bytes.clone())).unwrap();
    client.submit(read(2, 4096, 5 << 20)).unwrap();
    client.submit(read(3, 4096, 4096)).unwrap();
    let done = bench.completions(line, &mut client);
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|one| one.result == Ok(())));
    let again = done.iter().find(|one| one.tag == 2).unwrap();
    assert!(data_of(again) == bytes);
    bench.end_all();
}

#[test]
fn a_write_that_fails_half_way_leaves_the_next_request_alone() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench
        .disk
        .take_next([Take::Fail(IoFailure::NoSpace { offset: 0 })]);
    client.submit(write(1, 0, vec![7; 5 << 20])).unwrap();
    client.submit(read(2, 0, 4096)).unwrap();
    let done = bench.completions(line, &mut client);
    let results: Vec<_> = done.iter().map(|one| (one.tag, one.result)).collect();
    assert_eq!(results, [(1, Err(ServerError::NO_SPACE)), (2, Ok(()))]);
    bench.end_all();
}

#[test]
fn no_more_requests_are_under_way_than_may_be() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 0..20 {
        client.submit(read(tag, tag * 4096, 4096)).unwrap();
    }
    assert!(bench.completions(line, &mut client).is_empty());
    let mut done = 0;
    while bench.disk.has_pending() {
        let under_way = bench.port().under_way();
        assert!(under_way <= DEPTH, "{under_way}");
        bench.finish_pending();
        done += bench.completions(line, &mut client).len();
    }
    assert_eq!(done, 20);
    bench.end_all();
}

/// Nothing is answered meanwhile.
#[test]
fn a_larger_limit_is_used_at_once() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 0..u64::from(DEPTH) + 3 {
        client.submit(read(tag, 0, 512)).unwrap();
    }
    assert!(bench.completions(line, &mut client).is_empty());
    assert_eq!(under_way(&mut bench), DEPTH);
    bench.engine.set_limits(&engine::Limits {
        queue_depth: DEPTH + 2,
        abort_timeout: Duration::from_secs(3),
        fence_timeout: Duration::from_secs(3),
    });
    bench.settle();
    assert_eq!(under_way(&mut bench), DEPTH + 2);
    bench.disk.take(Take::Now);
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    let done = bench.completions(line, &mut client);
    assert_eq!(done.len(), usize::try_from(DEPTH + 3).unwrap());
    bench.end_all();
}

#[test]
fn a_unit_attention_is_nothing_to_a_client() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    for tag in 0..3 {
        let key = bench.engine.sessions().next().unwrap().0;
        bench.engine.notify_luns_changed(key, 0);
        client.submit(write(tag, 0, vec![1; 4096])).unwrap();
        let done = bench.completions(line, &mut client);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].result, Ok(()));
    }
    bench.end_all();
}

#[test]
fn what_a_reset_of_others_ends_is_begun_again_or_fails() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take_next([Take::Pending, Take::Pending]);
    client.submit(read(1, 0, 4096)).unwrap();
    client.submit(write(2, 8192, vec![3; 4096])).unwrap();
    assert!(bench.completions(line, &mut client).is_empty());
    let key = bench.engine.sessions().next().unwrap().0;
    let places = [0, 1].map(|place| CommandId { place, serial: 1 });
    bench.engine.abort_commands(key, places.to_vec());
    bench.settle();
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    let mut done = bench.completions(line, &mut client);
    done.sort_by_key(|one| one.tag);
    let results: Vec<_> = done.iter().map(|one| one.result).collect();
    // The data of the write went with its command.
    assert_eq!(results, [Ok(()), Err(ServerError::IO)]);
    bench.end_all();
}

#[test]
fn a_client_that_says_goodbye_gets_its_answers_first() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    client.submit(read(1, 0, 4096)).unwrap();
    client.disconnect();
    assert!(bench.completions(line, &mut client).is_empty());
    assert!(!bench.is_shut(line));
    bench.finish_pending();
    let heard = bench.heard(line);
    client.handle_bytes(&heard).unwrap();
    assert_eq!(client.poll_completion().unwrap().result, Ok(()));
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["the client has disconnected"]);
    bench.end_all();
}

fn under_way(bench: &mut Bench) -> u32 {
    bench.port().under_way()
}

#[test]
fn nothing_is_begun_after_the_goodbye() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    client.submit(read(1, 0, 4096)).unwrap();
    client.disconnect();
    bench.transmit(line, &mut client);
    bench.send(line, &header(0, 0, 2, (0, 4096)));
    assert_eq!(under_way(&mut bench), 1);
    bench.finish_pending();
    bench.end_all();
}

#[test]
fn nothing_is_begun_beside_a_long_read_in_one_piece() {
    const DONT_FRAGMENT: u16 = 1 << 2;
    let mut bench = Bench::new();
    let (line, _) = bench.ready();
    bench.disk.take(Take::Pending);
    bench.send(line, &header(DONT_FRAGMENT, 0, 1, (0, 5 << 20)));
    bench.send(line, &header(0, 0, 2, (0, 4096)));
    assert_eq!(under_way(&mut bench), 1);
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    assert_eq!(under_way(&mut bench), 0);
    bench.end_all();
}

#[test]
fn when_the_target_stops_requests_are_refused_and_idle_sessions_end() {
    let mut bench = Bench::new();
    let (idle, _) = bench.ready();
    let (busy, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    client.submit(read(1, 0, 4096)).unwrap();
    bench.transmit(busy, &mut client);
    bench.nbd.stop(&mut bench.engine);
    bench.settle();
    assert!(bench.is_shut(idle) && !bench.is_shut(busy));
    client.submit(read(2, 0, 4096)).unwrap();
    let done = bench.completions(busy, &mut client);
    assert_eq!(done[0].result, Err(ServerError::SHUTTING_DOWN));
    bench.finish_pending();
    assert!(bench.is_shut(busy));
    bench.end_all();
}

#[test]
fn what_breaks_the_protocol_ends_the_session() {
    let mut header = [0; 28];
    header[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    header[7] = 1;
    header[24..].copy_from_slice(&(33_u32 << 20).to_be_bytes());
    for (bytes, reason) in [
        (vec![0; 28], "no request where one should begin"),
        (header.to_vec(), "more data than a request may have"),
    ] {
        let mut bench = Bench::new();
        let (line, _) = bench.ready();
        bench.send(line, &bytes);
        assert_eq!(bench.ended(), [reason]);
        assert!(bench.is_shut(line));
        bench.end_all();
    }
}

#[test]
fn a_client_that_goes_within_the_data_of_a_write_leaves_nothing() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    client.submit(write(1, 0, vec![7; 1 << 20])).unwrap();
    let mut bytes = Vec::new();
    client.transmit(usize::MAX, |piece| match piece {
        Piece::Header(header) => bytes.extend_from_slice(header),
        Piece::Data(data) => bytes.extend_from_slice(data),
    });
    bench.send(line, &bytes[..1 << 19]);
    bench.end(line).is_gone = true;
    bench.settle();
    assert_eq!(bench.ended().len(), 1);
    assert_eq!(bench.disk.byte(0), 0);
    bench.end_all();
}

/// The connection is closed when the last answer is sent, so the end of that send is waited for.
#[test]
fn the_end_of_the_last_answer_is_waited_for_and_that_of_others_is_not() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    client.submit(read(1, 0, 512)).unwrap();
    bench.transmit(line, &mut client);
    assert_eq!(bench.last_end(line), Some(SendEnd::Waits));
    client.submit(read(2, 0, 512)).unwrap();
    client.disconnect();
    bench.transmit(line, &mut client);
    assert_eq!(bench.last_end(line), Some(SendEnd::Wakes));
    assert!(bench.is_shut(line));
    bench.end_all();
}

#[test]
fn the_end_of_much_data_is_waited_for() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    client.submit(read(1, 0, 128 * 1024)).unwrap();
    bench.transmit(line, &mut client);
    assert_eq!(bench.last_end(line), Some(SendEnd::Wakes));
    bench.end_all();
}

#[test]
fn data_that_does_not_come_ends_the_session_after_a_minute() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    client.submit(write(1, 0, vec![7; 1 << 20])).unwrap();
    client.transmit(usize::MAX, |piece| {
        if let Piece::Header(header) = piece {
            bench.end(line).outbound.extend(header);
        }
    });
    bench.settle();
    bench.pass_to(BEGIN + Duration::from_secs(59));
    assert!(!bench.is_shut(line));
    bench.pass_to(BEGIN + Duration::from_secs(60));
    let ended = bench.ended();
    assert_eq!(ended, &["the data of a write does not come"]);
    assert_eq!(bench.engine.carrier.lines.left, (1, 0));
    bench.end_all();
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.end(line).is_silent = true;
    let mut sent = 0;
    for round in 0..100 {
        for tag in 0..4 {
            client.submit(read(round * 4 + tag, 0, 1 << 20)).unwrap();
        }
        bench.transmit(line, &mut client);
        sent += 4;
        if !bench.end(line).outbound.is_empty() || sent > 40 {
            break;
        }
    }
    let unsent_bytes = bench.port().unsent_bytes();
    assert!(unsent_bytes < 16 << 20, "{unsent_bytes}");
    bench.end(line).is_silent = false;
    let done = bench.completions(line, &mut client);
    assert_eq!(done.len(), sent);
    bench.end_all();
}

#[test]
fn a_read_that_finds_no_room_is_begun_again() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.end(line).is_silent = true;
    for tag in 0..4 {
        client.submit(read(tag, 0, 4 << 20)).unwrap();
    }
    bench.transmit(line, &mut client);
    for seconds in [11, 22, 33] {
        bench.pass_to(BEGIN + Duration::from_secs(seconds));
    }
    bench.end(line).is_silent = false;
    let done = bench.completions(line, &mut client);
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|one| one.result == Ok(())), "{done:?}");
    bench.end_all();
}

#[test]
fn a_write_that_finds_its_store_full_is_begun_again_with_its_data() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Full);
    for tag in 0..4 {
        client.submit(write(tag, tag << 12, vec![7; 4096])).unwrap();
    }
    for seconds in [0, 21, 42] {
        bench.pass_to(BEGIN + Duration::from_secs(seconds));
        assert!(bench.completions(line, &mut client).is_empty());
    }
    bench.disk.take(Take::Now);
    bench.pass_to(BEGIN + Duration::from_secs(63));
    let done = bench.completions(line, &mut client);
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|one| one.result == Ok(())), "{done:?}");
    client.submit(read(9, 0, 16 << 10)).unwrap();
    let done = bench.completions(line, &mut client);
    assert!(data_of(&done[0]).iter().all(|byte| *byte == 7));
    bench.end_all();
}

/// A store that has memory of its own copies what it writes by itself.
#[test]
fn a_write_that_is_whole_in_its_chunk_is_taken_from_there() {
    let in_place = Capabilities {
        reads_in_place: true,
        ..capabilities()
    };
    let mut bench = Bench::of(&in_place, 8);
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 1..=3 {
        let data = vec![u8::try_from(tag).unwrap(); 4096];
        client.submit(write(tag, tag << 12, data)).unwrap();
    }
    let mut bytes = Vec::new();
    client.transmit(usize::MAX, |piece| match piece {
        Piece::Header(header) => bytes.extend_from_slice(header),
        Piece::Data(data) => bytes.extend_from_slice(data),
    });
    let (most, rest) = bytes.split_at(bytes.len() - 100);
    let copied = |bench: &Bench| {
        let pool = bench.engine.pool();
        pool.capacity_bytes() - pool.free_bytes()
    };
    let before = copied(&bench);
    bench.send(line, most);
    assert_eq!(under_way(&mut bench), 3);
    let of_one = copied(&bench) - before;
    assert!((4096..8192).contains(&of_one), "{of_one} bytes");
    assert!(bench.chunks.free_bytes() < bench.chunks.capacity_bytes());
    bench.send(line, rest);
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    assert_eq!(bench.completions(line, &mut client).len(), 3);
    assert_eq!(bench.chunks.free_bytes(), bench.chunks.capacity_bytes());
    assert_eq!(
        [0, 8, 16, 24, 31, 32].map(|block| bench.disk.byte(block)),
        [0, 1, 2, 3, 3, 0]
    );
    bench.end_all();
}

#[test]
fn no_more_is_written_at_once_than_may_be_unsent() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 0..3 {
        client
            .submit(write(tag, tag << 22, vec![7; 4 << 20]))
            .unwrap();
    }
    // A request of 4 MiB is two commands, and one of them is under way.
    assert!(bench.completions(line, &mut client).is_empty());
    assert_eq!(under_way(&mut bench), 1);
    let mut done = 0;
    while bench.disk.has_pending() {
        bench.finish_pending();
        done += bench.completions(line, &mut client).len();
    }
    assert_eq!(done, 3);
    bench.end_all();
}

#[test]
fn no_more_is_read_at_once_than_may_be_unsent() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 0..4 {
        client.submit(read(tag, 0, 6 << 20)).unwrap();
    }
    assert!(bench.completions(line, &mut client).is_empty());
    assert_eq!(under_way(&mut bench), 2);
    let mut done = 0;
    while bench.disk.has_pending() {
        bench.finish_pending();
        done += bench.completions(line, &mut client).len();
    }
    assert_eq!(done, 4);
    bench.end_all();
}

#[test]
fn answers_that_are_not_taken_end_the_session_after_a_minute() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.end(line).is_silent = true;
    client.submit(read(1, 0, 1 << 20)).unwrap();
    bench.transmit(line, &mut client);
    bench.pass_to(BEGIN + Duration::from_secs(59));
    assert!(!bench.is_shut(line));
    bench.pass_to(BEGIN + Duration::from_secs(60));
    let ended = bench.ended();
    assert_eq!(ended, &["the client does not take its answers"]);
    assert!(bench.engine.carrier.lines.left.1 > 0);
    bench.end_all();
}

#[test]
fn a_handshake_has_a_deadline_as_a_whole() {
    let mut bench = Bench::new();
    let line = bench.connect();
    bench.pass_to(BEGIN + TIMEOUT - Duration::from_nanos(1));
    bench.send(line, &[0, 0, 0]);
    assert!(!bench.is_shut(line));
    bench.pass_to(BEGIN + TIMEOUT);
    assert!(bench.is_shut(line));
    assert_eq!(
        bench.engine.carrier.lines.failed,
        ["the handshake takes too long"]
    );
    bench.end_all();
}

/// Spec: NBD protocol, NBD_OPT_LIST and NBD_OPT_ABORT.
#[test]
fn a_client_may_ask_what_there_is_and_leave() {
    let list = [&[0, 0, 0, 3], &option(3, b"")[..]].concat();
    for is_there in [true, false] {
        let mut bench = Bench::new();
        let line = bench.connect();
        bench.heard(line);
        bench.send(line, &list);
        let heard = bench.heard(line);
        // The name is in the first of two replies.
        assert_eq!(heard.len(), 20 + 8 + 20);
        assert_eq!(&heard[12..28], b"\0\0\0\x02\0\0\0\x08\0\0\0\x04disk");
        assert!(!bench.is_shut(line));
        bench.end(line).is_silent = true;
        bench.send(line, &option(2, b""));
        assert!(!bench.is_shut(line), "the answer comes first");
        bench.end(line).is_silent = false;
        bench.end(line).is_gone = !is_there;
        bench.settle();
        assert_eq!(bench.heard(line).len(), if is_there { 20 } else { 0 });
        assert!(bench.is_shut(line));
        let front = bench.nbd.front.as_mut().unwrap();
        assert_eq!(front.handshakes(), 0);
        assert_eq!(bench.engine.carrier.lines.failed, [""; 0]);
        bench.end_all();
    }
}

#[test]
fn one_handshake_too_many_ends_the_oldest_of_its_address() {
    let mut bench = Bench::with(2);
    let lines = [bench.connect(), bench.connect(), bench.connect()];
    let shut = lines.map(|line| bench.is_shut(line));
    assert_eq!(shut, [true, false, false]);
    bench.end_all();
}

#[test]
fn sessions_take_places_and_give_them_back() {
    let mut bench = Bench::with(2);
    let (first, _) = bench.ready();
    let _second = bench.ready();
    bench.raw(false, b"");
    let failed = &bench.engine.carrier.lines.failed;
    assert_eq!(failed, &["there are as many sessions as there may be"]);
    bench.end(first).is_gone = true;
    bench.settle();
    bench.ready();
    bench.end_all();
}

#[test]
fn a_session_that_comes_when_the_target_stops_ends_at_once() {
    let mut bench = Bench::new();
    bench.nbd.stop(&mut bench.engine);
    let (line, _) = bench.ready();
    assert!(bench.is_shut(line));
    bench.end_all();
}

#[test]
fn a_client_that_goes_while_its_requests_hang_is_noticed() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    bench.disk.take(Take::Pending);
    for tag in 0..u64::from(DEPTH) {
        client.submit(read(tag, 0, 512)).unwrap();
    }
    assert!(bench.completions(line, &mut client).is_empty());
    bench.end(line).is_gone = true;
    bench.settle();
    assert_eq!(bench.ended(), ["closed by the client"]);
    for _ in 0..DEPTH {
        bench.finish_pending();
    }
    bench.end_all();
}

/// The flush of a trim with FUA says that writes are lost; a client may not heed what becomes of trims.
#[test]
fn a_report_that_a_trim_has_had_is_one_of_the_next_flush() {
    for is_trim in [true, false] {
        let mut bench = Bench::new();
        let (line, mut client) = bench.ready();
        let mut ask = |bench: &mut Bench, work| {
            let (tag, offset) = (1, 0);
            client.submit(Request { tag, offset, work }).unwrap();
            let mut done = bench.completions(line, &mut client);
            assert_eq!(done.len(), 1);
            done.remove(0).result
        };
        let (length, fua) = (512, true);
        let work = match is_trim {
            true => Work::Trim { length, fua },
            false => Work::WriteZeroes {
                length,
                fua,
                no_hole: false,
                fast: false,
            },
        };
        bench
            .disk
            .take_next([Take::Now, Take::Fail(IoFailure::CacheLost)]);
        assert_eq!(ask(&mut bench, work), Err(ServerError::CACHE_LOST));
        assert_eq!(ask(&mut bench, Work::Flush), Err(ServerError::CACHE_LOST));
        assert_eq!(ask(&mut bench, Work::Flush), Ok(()));
        bench.end_all();
    }
}

/// Spec: NBD protocol, NBD_CMD_FLAG_FAST_ZERO: an error where zeros are not written faster than as data.
#[test]
fn zeros_that_may_leave_no_hole_are_not_fast() {
    let mut bench = Bench::new();
    let (line, mut client) = bench.ready();
    let (tag, offset) = (1, 0);
    client.submit(write(tag, offset, vec![7; 512])).unwrap();
    for (no_hole, fast, expected) in [
        (true, true, Err(ServerError::NOT_SUPPORTED)),
        (true, false, Ok(())),
        (false, true, Ok(())),
    ] {
        let (length, fua) = (512, false);
        let work = Work::WriteZeroes {
            length,
            fua,
            no_hole,
            fast,
        };
        client.submit(Request { tag, offset, work }).unwrap();
        let done = bench.completions(line, &mut client);
        let done: Vec<_> = done.iter().map(|one| one.result).rev().take(1).collect();
        assert_eq!(done, [expected], "no hole: {no_hole}, fast: {fast}");
        let byte = if expected.is_ok() { 0 } else { 7 };
        assert_eq!(bench.disk.byte(0), byte, "no hole: {no_hole}, fast: {fast}");
    }
    bench.end_all();
}

#[test]
fn extents_end_with_the_range_that_was_asked_for() {
    type Case<'a> = (&'a [(u32, u8)], u32, &'a [(u32, bool)]);
    let answer = |descriptors: &[(u32, u8)]| {
        let mut bytes = vec![0; 8];
        for (blocks, status) in descriptors {
            bytes.extend([0; 8]);
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([*status, 0, 0, 0]);
        }
        bytes
    };
    #[rustfmt::skip]
    let cases: [Case<'_>; 6] = [
        (&[(2, 0), (3, 1)], 2560, &[(1024, false), (1536, true)]),
        (&[(2, 0), (3, 1)], 2559, &[(1024, false), (1535, true)]),
        (&[(2, 0), (3, 1)], 1024, &[(1024, false)]),
        (&[(0, 1), (u32::MAX, 2)], 4096, &[(4096, true)]),
        (&[(1, 0x10)], 4096, &[(512, false)]),
        (&[], 4096, &[]),
    ];
    for (descriptors, length, expected) in cases {
        let found = super::work::extents(&answer(descriptors), 512, length);
        assert_eq!(found, expected, "{descriptors:?}, {length} bytes");
    }
    assert_eq!(super::work::extents(&[0; 7], 512, 4096), []);
}

#[derive(Clone, Debug)]
enum Doing {
    Write(u64, u32),
    Read(u64, u32),
    Zero(u64, u32),
    Trim(u64, u32),
    Flush,
}

fn doing() -> impl Strategy<Value = Doing> {
    let range = || (0_u64..4096, 1_u32..700);
    prop_oneof![
        range().prop_map(|(at, blocks)| Doing::Write(at, blocks)),
        range().prop_map(|(at, blocks)| Doing::Read(at, blocks)),
        range().prop_map(|(at, blocks)| Doing::Zero(at, blocks)),
        range().prop_map(|(at, blocks)| Doing::Trim(at, blocks)),
        Just(Doing::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_client_reads_what_it_wrote(
        doings in proptest::collection::vec(doing(), 1..12),
        piece_len in 1_usize..70_000,
    ) {
        let mut bench = Bench::new();
        let (line, mut client) = bench.ready();
        bench.piece_len = piece_len;
        let mut model = vec![0_u8; 4096 * 512 + 700 * 512];
        for (tag, doing) in (1..).zip(&doings) {
            let (range, work) = match *doing {
                Doing::Write(at, blocks) => {
                    let data = vec![u8::try_from(tag).unwrap(); blocks as usize * 512];
                    (Some((at, blocks)), write(tag, 0, data).work)
                }
                Doing::Read(at, blocks) => (Some((at, blocks)), read(tag, 0, blocks * 512).work),
                Doing::Zero(at, blocks) => {
                    let length = blocks * 512;
                    let work = Work::WriteZeroes { length, fua: true, no_hole: false, fast: true };
                    (Some((at, blocks)), work)
                }
                Doing::Trim(at, blocks) => {
                    (Some((at, blocks)), Work::Trim { length: blocks * 512, fua: false })
                }
                Doing::Flush => (None, Work::Flush),
            };
            let offset = range.map_or(0, |(at, _)| at * 512);
            client.submit(Request { tag, offset, work }).unwrap();
            let done = bench.completions(line, &mut client);
            prop_assert_eq!(done.len(), 1);
            prop_assert_eq!(done[0].result, Ok(()));
            let Some((at, blocks)) = range else {
                continue;
            };
            let start = usize::try_from(at).unwrap() * 512;
            let bytes = &mut model[start..start + blocks as usize * 512];
            match doing {
                Doing::Write(..) => bytes.fill(u8::try_from(tag).unwrap()),
                Doing::Read(..) => prop_assert!(data_of(&done[0]) == bytes),
                // An unmapped block reads zeros here.
                Doing::Zero(..) | Doing::Trim(..) => bytes.fill(0),
                Doing::Flush => {}
            }
        }
        bench.end_all();
    }
}
