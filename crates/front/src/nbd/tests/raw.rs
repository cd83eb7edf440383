//! Clients that write their bytes themselves: what they are answered to the byte, and when they are received from.

use ::nbd::server::{
    block_status_chunk, cache_lost_chunk, data_chunk, error_chunk, none_chunk, simple_reply,
};
use engine::testing::disk::SIZE;
use memory::Payload;

use super::super::LineKey;
use super::*;
use crate::testing::LineKey as AnyKey;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1 << 0;
const NO_HOLE: u16 = 1 << 1;
const DONT_FRAGMENT: u16 = 1 << 2;
const REQ_ONE: u16 = 1 << 3;
const FAST_ZERO: u16 = 1 << 4;

/// The most that one command moves, in bytes.
const PART: u32 = 2 << 20;
/// What is received while no request may begin, in bytes.
const LOOK: usize = 4096;
const ALL: Wants = Wants::Chunk(usize::MAX);
const FAILED: Take = Take::Fail(IoFailure::Medium { offset: 0 });

/// What a request is answered.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Done,
    /// The whole range is full of this.
    Data(u8),
    Failed(ServerError),
    /// Lengths, and whether each is a hole; only where replies are structured.
    Extents(&'static [(u32, bool)]),
}

fn reply(is_structured: bool, cookie: u64, range: (u64, u32), expected: Expected) -> Vec<u8> {
    let (offset, length) = range;
    let header = match (is_structured, expected) {
        (false, Expected::Done | Expected::Data(_)) => simple_reply(cookie, None).to_vec(),
        (false, Expected::Failed(error)) => simple_reply(cookie, Some(error)).to_vec(),
        (false, Expected::Extents(_)) => simple_reply(cookie, Some(ServerError::INVALID)).to_vec(),
        (true, Expected::Done) => none_chunk(cookie).to_vec(),
        (true, Expected::Data(_)) => data_chunk(cookie, true, offset, length).to_vec(),
        (true, Expected::Failed(ServerError::CACHE_LOST)) => cache_lost_chunk(cookie).to_vec(),
        (true, Expected::Failed(error)) => error_chunk(cookie, error).to_vec(),
        (true, Expected::Extents(extents)) => block_status_chunk(cookie, extents),
    };
    match expected {
        Expected::Data(byte) => [header, vec![byte; length as usize]].concat(),
        Expected::Done | Expected::Failed(_) | Expected::Extents(_) => header,
    }
}

/// READs of one block, from this cookie on.
fn reads(cookies: std::ops::Range<u64>) -> Vec<u8> {
    let all = cookies.map(|cookie| header(0, READ, cookie, (0, 512)));
    all.collect::<Vec<_>>().concat()
}

fn finish_all(bench: &mut Bench) {
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
}

#[test]
fn each_request_is_answered_in_the_form_that_was_agreed_on() {
    type Case<'a> = (u16, u16, (u64, u32), &'a [&'a str], Expected);
    const INVALID: Expected = Expected::Failed(ServerError::INVALID);
    const NO_SPACE: Expected = Expected::Failed(ServerError::NO_SPACE);
    const NOT_SUPPORTED: Expected = Expected::Failed(ServerError::NOT_SUPPORTED);
    #[rustfmt::skip]
    let cases: &[Case<'_>] = &[
        (0, WRITE, (512, 1024), &["write 1+2"], Expected::Done),
        (FUA, WRITE, (1536, 512), &["write 3+1 durably"], Expected::Done),
        (0, READ, (512, 1536), &["read 1+3"], Expected::Data(7)),
        (DONT_FRAGMENT, READ, (1024, 512), &["read 2+1"], Expected::Data(7)),
        (0, FLUSH, (0, 0), &["flush"], Expected::Done),
        (FUA, FLUSH, (0, 0), &["flush"], Expected::Done),
        (NO_HOLE, FLUSH, (0, 0), &[], INVALID),
        (0, BLOCK_STATUS, (512, 4096), &["extents"], Expected::Extents(&[(1536, false), (2560, true)])),
        (REQ_ONE, BLOCK_STATUS, (512, 4096), &["extents"], Expected::Extents(&[(1536, false)])),
        (0, TRIM, (512, 512), &["unmap 1..2"], Expected::Done),
        (FUA, TRIM, (1024, 512), &["unmap 2..3", "flush"], Expected::Done),
        (0, READ, (512, 1024), &["read 1+2"], Expected::Data(0)),
        (FUA | FAST_ZERO, WRITE_ZEROES, (1536, 512), &["unmap 3..4", "flush"], Expected::Done),
        (NO_HOLE, WRITE_ZEROES, (1536, 1024), &["zero 3..5"], Expected::Done),
        (NO_HOLE | FAST_ZERO, WRITE_ZEROES, (0, 512), &[], NOT_SUPPORTED),
        (0, READ, (1536, 512), &["read 3+1"], Expected::Data(0)),
        (0, READ, (1, 512), &[], INVALID),
        (0, READ, (0, 511), &[], INVALID),
        (0, READ, (0, 0), &[], INVALID),
        (0, READ, (SIZE - 512, 512), &["read 131071+1"], Expected::Data(0)),
        (0, READ, (SIZE - 512, 1024), &[], INVALID),
        (0, WRITE, (SIZE - 512, 1024), &[], NO_SPACE),
        (0, WRITE, (1, 0), &[], INVALID),
        (0, TRIM, (SIZE, 512), &[], INVALID),
        (0, 9, (0, 512), &[], INVALID),
    ];
    for is_structured in [false, true] {
        let mut bench = Bench::new();
        let line = bench.raw(is_structured, b"");
        bench.heard(line);
        bench.disk.log();
        for (cookie, &(flags, kind, range, log, expected)) in (1 << 40..).zip(cases) {
            let mut bytes = header(flags, kind, cookie, range);
            if kind == WRITE {
                bytes.extend(vec![7; range.1 as usize]);
            }
            bench.send(line, &bytes);
            let case = format!("{kind} {range:?} with {flags:#x}, structured: {is_structured}");
            let heard = bench.heard(line);
            let reply = reply(is_structured, cookie, range, expected);
            assert!(
                heard == reply,
                "{case}: {:?}",
                &heard[..heard.len().min(64)]
            );
            let is_refused = !is_structured && matches!(expected, Expected::Extents(_));
            let log = if is_refused { &[] } else { log };
            assert_eq!(bench.disk.log(), log, "{case}");
            assert_eq!(
                (under_way(&mut bench), bench.wants(line)),
                (0, ALL),
                "{case}"
            );
        }
        bench.end_all();
    }
}

/// Nothing may come between its parts, so it begins when nothing else is under way.
#[test]
fn a_long_read_whose_reply_has_one_header_is_alone() {
    #[rustfmt::skip]
    let cases = [
        (false, 0, PART, false),
        (false, 0, PART + 512, true),
        (false, 0, 2 * PART, true),
        (true, 0, PART + 512, false),
        (true, DONT_FRAGMENT, PART, false),
        (true, DONT_FRAGMENT, PART + 512, true),
    ];
    for (is_structured, flags, length, is_alone) in cases {
        let case = format!("{length} bytes with {flags:#x}, structured: {is_structured}");
        let mut bench = Bench::new();
        let line = bench.raw(is_structured, b"");
        bench.heard(line);
        bench.disk.take(Take::Pending);
        let long = header(flags, READ, 2, (4096, length));
        let all = [reads(1..2), long, reads(3..4)].concat();
        bench.send(line, &all);
        let (begun, wants) = if is_alone {
            (1, Wants::Nothing)
        } else {
            (3, ALL)
        };
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (begun, wants),
            "{case}"
        );
        bench.finish_pending();
        let first = reply(is_structured, 1, (0, 512), Expected::Data(0));
        assert!(bench.heard(line) == first, "{case}");
        // The last one is held.
        let (begun, wants) = if is_alone {
            (1, Wants::Nothing)
        } else {
            (2, ALL)
        };
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (begun, wants),
            "{case}"
        );
        finish_all(&mut bench);
        let last = reply(is_structured, 3, (0, 512), Expected::Data(0));
        let whole = reply(is_structured, 2, (4096, length), Expected::Data(0));
        let expected = if is_alone || length == PART {
            [whole, last].concat()
        } else {
            let begin = [
                &data_chunk(2, false, 4096, PART)[..],
                &vec![0; PART as usize],
            ]
            .concat();
            let rest = (4096 + u64::from(PART), length - PART);
            [begin, last, reply(true, 2, rest, Expected::Data(0))].concat()
        };
        assert!(bench.heard(line) == expected, "{case}");
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (0, ALL),
            "{case}"
        );
        bench.end_all();
    }
}

#[test]
fn a_read_that_fails_behind_its_header_ends_the_session_and_others_do_not() {
    const BROKEN: &str = "a read failed whose reply had begun";
    let range = (0, PART + 512);
    #[rustfmt::skip]
    let cases = [
        (false, 0, 0, false), (false, 0, 1, true),
        (true, 0, 0, false), (true, 0, 1, false),
        (true, DONT_FRAGMENT, 0, false), (true, DONT_FRAGMENT, 1, true),
    ];
    for (is_structured, flags, good, is_broken) in cases {
        let case = format!("after {good} with {flags:#x}, structured: {is_structured}");
        let mut bench = Bench::new();
        let line = bench.raw(is_structured, b"");
        bench.heard(line);
        let takes = vec![Take::Now; good].into_iter().chain([FAILED]);
        bench.disk.take_next(takes);
        let long = header(flags, READ, 1, range);
        bench.send(line, &long);
        let ended: &[&str] = if is_broken { &[BROKEN] } else { &[] };
        assert_eq!(bench.ended(), ended, "{case}");
        assert_eq!(bench.is_shut(line), is_broken, "{case}");
        if !is_broken {
            bench.send(line, &reads(2..3));
            let failed = Expected::Failed(ServerError::IO);
            let begun = match good {
                0 => Vec::new(),
                _ => [&data_chunk(1, false, 0, PART)[..], &vec![0; PART as usize]].concat(),
            };
            let next = reply(is_structured, 2, (0, 512), Expected::Data(0));
            let expected = [begun, reply(is_structured, 1, range, failed), next].concat();
            assert!(bench.heard(line) == expected, "{case}");
        }
        bench.end_all();
    }
}

/// No request may begin: little is received, to notice the end of the connection.
#[test]
fn what_comes_while_no_request_may_begin_is_held() {
    let mut write = header(0, WRITE, 5, (512, 1024));
    write.extend([[7; 512], [8; 512]].concat());
    // How much of the write comes at first, how it is received then, and how its rest is when it may begin.
    for (first, then) in [
        (1, ALL),
        (27, ALL),
        (28, Wants::Exact(0..1024)),
        (28 + 512, Wants::Exact(512..1024)),
        (28 + 1023, Wants::Exact(1023..1024)),
    ] {
        let mut bench = Bench::new();
        let line = bench.raw(false, b"");
        bench.heard(line);
        bench.disk.take(Take::Pending);
        bench.send(line, &reads(1..u64::from(DEPTH)));
        assert_eq!((under_way(&mut bench), bench.wants(line)), (DEPTH - 1, ALL));
        bench.send(line, &reads(4..5));
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (DEPTH, Wants::Chunk(LOOK))
        );
        bench.send(line, &write[..first]);
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (DEPTH, Wants::Nothing)
        );
        bench.finish_pending();
        let begun = if first < 28 { DEPTH - 1 } else { DEPTH };
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (begun, then),
            "{first} bytes"
        );
        bench.send(line, &write[first..]);
        assert_eq!(
            (under_way(&mut bench), bench.wants(line)),
            (DEPTH, Wants::Chunk(LOOK))
        );
        finish_all(&mut bench);
        assert_eq!(
            [0, 1, 2, 3].map(|block| bench.disk.byte(block)),
            [0, 7, 8, 0]
        );
        let heard = bench.heard(line);
        let read = |cookie| reply(false, cookie, (0, 512), Expected::Data(0));
        let write = reply(false, 5, (0, 0), Expected::Done);
        assert!(
            heard == [read(1), read(2), read(3), read(4), write].concat(),
            "{first} bytes"
        );
        assert_eq!(bench.wants(line), Wants::Chunk(LOOK));
        bench.end_all();
    }
}

#[test]
fn several_requests_that_are_held_begin_as_soon_as_they_may() {
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.heard(line);
    bench.disk.take(Take::Pending);
    bench.send(line, &reads(1..5));
    let mut held = Vec::new();
    for cookie in 5..7 {
        held.extend(header(0, WRITE, cookie, (512 * cookie, 512)));
        held.extend([u8::try_from(cookie).unwrap(); 512]);
    }
    // One that is refused needs no place.
    held.extend(
        [
            header(0, READ, 7, (1, 512)),
            header(0, DISCONNECT, 8, (0, 0)),
        ]
        .concat(),
    );
    bench.send(line, &held);
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (DEPTH, Wants::Nothing)
    );
    bench.finish_pending();
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (DEPTH, Wants::Nothing)
    );
    bench.finish_pending();
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (DEPTH, Wants::Nothing)
    );
    assert_eq!(bench.ended(), [""; 0]);
    bench.finish_pending();
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (DEPTH - 1, Wants::Nothing)
    );
    finish_all(&mut bench);
    let read = |cookie| reply(false, cookie, (0, 512), Expected::Data(0));
    let invalid = reply(false, 7, (0, 0), Expected::Failed(ServerError::INVALID));
    let [five, six] = [5, 6].map(|cookie| reply(false, cookie, (0, 0), Expected::Done));
    let expected = [read(1), read(2), read(3), invalid, read(4), five, six].concat();
    assert!(bench.heard(line) == expected);
    assert_eq!(
        [4, 5, 6, 7].map(|block| bench.disk.byte(block)),
        [0, 5, 6, 0]
    );
    assert_eq!(bench.ended(), ["the client has disconnected"]);
    bench.end_all();
}

#[test]
fn what_comes_with_the_last_option_is_the_first_request() {
    for behind in [10, 28, 28 + 512] {
        let mut first = header(0, WRITE, 1, (512, 1024));
        first.extend([7; 1024]);
        let mut bench = Bench::new();
        let line = bench.raw(false, &first[..behind]);
        bench.heard(line);
        bench.send(line, &first[behind..]);
        assert_eq!(bench.heard(line), simple_reply(1, None), "{behind} bytes");
        assert_eq!([1, 2, 3].map(|block| bench.disk.byte(block)), [7, 7, 0]);
        bench.end_all();
    }
}

/// Errors are on the heap, 16 bytes each.
#[test]
fn no_request_begins_with_many_answers_unsent() {
    const ANSWERS: u64 = 64 * 1024 / 16;
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.heard(line);
    bench.end(line).is_silent = true;
    let refused = |cookie| header(0, READ, cookie, (1, 512));
    bench.send(line, &refused(0));
    let many: Vec<u8> = (1..ANSWERS).flat_map(refused).collect();
    bench.send(line, &many);
    assert_eq!(bench.wants(line), ALL);
    assert_eq!(bench.port().unsent_bytes(), 64 * 1024);
    bench.send(line, &refused(ANSWERS));
    assert_eq!(bench.wants(line), Wants::Chunk(LOOK));
    bench.send(line, &refused(ANSWERS + 1));
    assert_eq!(bench.wants(line), Wants::Nothing);
    assert_eq!(bench.port().unsent_bytes(), 64 * 1024 + 16);
    bench.end(line).is_silent = false;
    bench.settle();
    let all = (0..ANSWERS + 2).flat_map(|cookie| simple_reply(cookie, Some(ServerError::INVALID)));
    assert!(bench.heard(line) == all.collect::<Vec<_>>());
    assert_eq!((bench.port().unsent_bytes(), bench.wants(line)), (0, ALL));
    bench.end_all();
}

/// Reads count from when they begin, writes with one command.
#[test]
fn no_request_begins_with_much_data_on_its_way() {
    const MOST: u32 = 8 << 20;
    #[rustfmt::skip]
    let cases: [(&[(u16, u32)], u32); 6] = [
        (&[(READ, MOST - 512), (READ, 512)], 2),
        (&[(READ, MOST), (READ, 512)], 1),
        (&[(READ, MOST - 512), (READ, 512), (READ, 512)], 2),
        (&[(READ, 3 * PART + 512), (WRITE, PART - 512)], 2),
        (&[(READ, 3 * PART), (WRITE, 1024), (WRITE, PART - 1024), (READ, 512)], 3),
        (&[(READ, 3 * PART), (WRITE, 1024), (WRITE, PART - 1536), (READ, 512)], 4),
    ];
    for (requests, begun) in cases {
        let mut bench = Bench::new();
        let line = bench.raw(true, b"");
        bench.heard(line);
        bench.disk.take(Take::Pending);
        for (cookie, &(kind, length)) in (1..).zip(requests) {
            let mut bytes = header(0, kind, cookie, (0, length));
            if kind == WRITE {
                bytes.extend(vec![7; length as usize]);
            }
            bench.send(line, &bytes);
        }
        assert_eq!(under_way(&mut bench), begun, "{requests:?}");
        finish_all(&mut bench);
        assert_eq!(under_way(&mut bench), 0, "{requests:?}");
        // What has ended counts no more.
        for length in [MOST - 512, 512, 512] {
            bench.send(line, &header(0, READ, 9, (0, length)));
        }
        assert_eq!(under_way(&mut bench), 2, "{requests:?}");
        finish_all(&mut bench);
        bench.end_all();
    }
}

#[test]
fn the_data_of_a_refused_write_is_passed_over() {
    for (length, error) in [(512, ServerError::INVALID), (70_000, ServerError::INVALID)] {
        for piece_len in [usize::MAX, 511, 512, 513] {
            let mut bench = Bench::new();
            let line = bench.raw(false, b"");
            bench.heard(line);
            bench.piece_len = piece_len;
            let mut bytes = header(0, WRITE, 1, (1, length));
            bytes.extend(vec![7; length as usize]);
            bench.send(line, &[bytes, reads(2..3)].concat());
            let refused = reply(false, 1, (0, 0), Expected::Failed(error));
            let read = reply(false, 2, (0, 512), Expected::Data(0));
            assert!(
                bench.heard(line) == [refused, read].concat(),
                "{length} by {piece_len}"
            );
            bench.end_all();
        }
    }
}

#[test]
fn a_long_write_is_received_into_its_buffers_one_after_the_other() {
    let length = 2 * PART + 1024;
    for fails_at in [None, Some(0), Some(1), Some(2)] {
        let mut bench = Bench::new();
        let line = bench.raw(false, b"");
        bench.heard(line);
        bench.disk.log();
        let takes = fails_at.map(|at| vec![Take::Now; at].into_iter().chain([FAILED]));
        bench.disk.take_next(takes.into_iter().flatten());
        bench.send(line, &header(FUA, WRITE, 1, (512, length)));
        let mut written = Vec::new();
        for (at, part) in [PART, PART, 1024].into_iter().enumerate() {
            let is_wanted = fails_at.is_none_or(|failed| at <= failed);
            let whole = Wants::Exact(0..part as usize);
            assert_eq!(bench.wants(line), if is_wanted { whole } else { ALL });
            bench.send(line, &vec![7; part as usize]);
            let first = 1 + u32::try_from(at).unwrap() * PART / 512;
            written.extend(is_wanted.then(|| format!("write {first}+{} durably", part / 512)));
        }
        assert_eq!(bench.disk.log(), written, "{fails_at:?}");
        let error = fails_at.map(|_| ServerError::IO);
        assert_eq!(bench.heard(line), simple_reply(1, error));
        assert_eq!((under_way(&mut bench), bench.wants(line)), (0, ALL));
        bench.send(line, &reads(2..3));
        assert_eq!(bench.heard(line).len(), 16 + 512);
        bench.end_all();
    }
}

#[test]
fn a_command_that_was_aborted_is_given_again_sixteen_times() {
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.heard(line);
    bench.disk.take(Take::Pending);
    bench.send(line, &reads(1..2));
    let key = bench.engine.sessions().next().unwrap().0;
    let id = CommandId {
        place: 0,
        serial: 1,
    };
    for again in 0..=16 {
        assert_eq!(
            (under_way(&mut bench), bench.heard(line)),
            (1, vec![]),
            "{again}"
        );
        bench.engine.abort_commands(key, vec![id]);
        bench.settle();
        bench.finish_pending();
    }
    assert_eq!(bench.heard(line), simple_reply(1, Some(ServerError::IO)));
    assert!(!bench.disk.has_pending());
    bench.end_all();
}

#[test]
fn a_write_without_memory_waits_for_it() {
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.heard(line);
    let pool = bench.engine.pool().clone();
    let mut held: Vec<_> = std::iter::from_fn(|| pool.allocate(1 << 20).ok()).collect();
    held.extend(std::iter::from_fn(|| pool.allocate(512).ok()));
    let mut bytes = header(0, WRITE, 1, (512, 512));
    bytes.extend([7; 100]);
    bench.send(line, &bytes);
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (1, Wants::Nothing)
    );
    assert!(bench.port().starves_for().is_some());
    drop(held);
    bench.settle();
    assert_eq!(bench.wants(line), Wants::Exact(100..512));
    assert_eq!(bench.port().starves_for(), None);
    bench.send(line, &[7; 412]);
    assert_eq!(bench.heard(line), simple_reply(1, None));
    bench.end_all();
}

/// A longer message keeps buffers.
#[test]
fn the_end_of_a_message_of_64_kib_is_not_waited_for() {
    for (refused, end) in [(31, SendEnd::Waits), (32, SendEnd::Wakes)] {
        let mut bench = Bench::new();
        let line = bench.raw(false, b"");
        bench.heard(line);
        let length = 127 * 512;
        let mut bytes = header(0, READ, 1, (0, length));
        bytes.extend((2..refused + 2).flat_map(|cookie| header(0, READ, cookie, (1, 512))));
        bench.send(line, &bytes);
        let heard = bench.heard(line).len();
        assert_eq!(
            heard,
            length as usize + 16 * usize::try_from(1 + refused).unwrap()
        );
        assert_eq!(bench.last_end(line), Some(end), "{heard} bytes");
        bench.end_all();
    }
}

/// What is left when a client leaves.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    /// A request is in its store.
    Pending,
    /// So many answers, the first of which is being sent.
    Unsent(u64),
}

/// One that had a report of a loss gets it once more, unless it had all that it waited for and is long away.
#[test]
fn a_client_has_said_farewell_that_had_all_and_waited_for_none() {
    const HOUR: Duration = Duration::from_secs(3600);
    type Leave = fn(&mut Bench, usize);
    let disconnect: Leave = |bench, line| bench.send(line, &header(0, DISCONNECT, 9, (0, 0)));
    let close: Leave = |bench, line| {
        let Some((AnyKey::Nbd(LineKey::Connection(key)), _)) =
            bench.under_way(line).receiving.take()
        else {
            panic!("it is not received from");
        };
        bench.nbd.handle_close(&mut bench.engine, key, "closed");
        bench.settle();
    };
    let cases = [
        (disconnect, true, Left::Nothing, true),
        (disconnect, false, Left::Nothing, false),
        (disconnect, true, Left::Pending, false),
        (disconnect, true, Left::Unsent(1), true),
        (disconnect, true, Left::Unsent(2), false),
        (close, true, Left::Nothing, true),
        (close, false, Left::Nothing, false),
        (close, true, Left::Pending, true),
        (close, true, Left::Unsent(1), false),
    ];
    for (number, (leave, has_had_all, left, is_farewell)) in cases.into_iter().enumerate() {
        let mut bench = Bench::forgetful();
        bench.has_had_all = has_had_all;
        let line = bench.raw(false, b"");
        bench.heard(line);
        let write = [header(0, WRITE, 1, (0, 512)), vec![7; 512]].concat();
        bench.send(line, &write);
        bench.disk.set_lost(1);
        bench.send(line, &header(0, FLUSH, 2, (0, 0)));
        let lost = simple_reply(2, Some(ServerError::CACHE_LOST));
        assert_eq!(bench.heard(line), [simple_reply(1, None), lost].concat());
        match left {
            Left::Nothing => {}
            Left::Pending => {
                bench.disk.take_next([Take::Pending]);
                bench.send(line, &reads(3..4));
            }
            Left::Unsent(count) => {
                bench.end(line).is_silent = true;
                for cookie in 3..3 + count {
                    bench.send(line, &reads(cookie..cookie + 1));
                }
            }
        }
        leave(&mut bench, line);
        bench.end(line).is_silent = false;
        bench.settle();
        finish_all(&mut bench);
        assert_eq!(
            (bench.ended().len(), bench.is_shut(line)),
            (1, true),
            "{number}"
        );
        assert_eq!(bench.engine.sessions().count(), 0, "{number}");
        bench.pass_to(BEGIN + HOUR);
        let line = bench.raw(false, &header(0, FLUSH, 1, (0, 0)));
        let error = (!is_farewell).then_some(ServerError::CACHE_LOST);
        let heard = bench.heard(line);
        assert_eq!(
            heard[heard.len() - 16..],
            simple_reply(1, error),
            "{number}: {left:?}"
        );
        bench.end_all();
    }
}

/// A store with memory of its own copies what it writes.
#[test]
fn a_write_that_ends_with_its_chunk_is_taken_from_there() {
    let in_place = Capabilities {
        reads_in_place: true,
        ..capabilities()
    };
    for (missing, is_in_place) in [(0, true), (1, false)] {
        let mut bench = Bench::of(&in_place, 8);
        let line = bench.raw(false, b"");
        bench.heard(line);
        bench.disk.take(Take::Pending);
        let bytes = [header(0, WRITE, 1, (512, 4096)), vec![7; 4096]].concat();
        let (most, rest) = bytes.split_at(bytes.len() - missing);
        let before = bench.engine.pool().free_bytes();
        bench.send(line, most);
        assert_eq!(bench.engine.pool().free_bytes() == before, is_in_place);
        bench.send(line, rest);
        finish_all(&mut bench);
        assert_eq!(bench.heard(line), simple_reply(1, None));
        assert_eq!(
            [0, 1, 8, 9].map(|block| bench.disk.byte(block)),
            [0, 7, 7, 0]
        );
        bench.end_all();
    }
}

/// No unit answers so.
#[test]
fn data_that_do_not_fit_their_request_are_an_error() {
    let mut bench = Bench::new();
    let line = bench.raw(true, b"");
    bench.heard(line);
    bench.disk.take(Take::Pending);
    let status = header(0, BLOCK_STATUS, 1, (0, 512));
    bench.send(line, &[status, reads(2..4)].concat());
    for (place, len) in [(0, 8), (1, 511)] {
        let (serial, data) = (1, Payload::Heap(vec![0; len]));
        bench.port().handle_good(CommandId { place, serial }, data);
    }
    let key = bench.engine.sessions().next().unwrap().0;
    bench.engine.note_ready(key, None);
    bench.settle();
    let errors = [1, 2].map(|cookie| error_chunk(cookie, ServerError::IO));
    assert_eq!(bench.heard(line), errors.concat());
    assert_eq!(under_way(&mut bench), 1);
    // What the store answers comes too late.
    finish_all(&mut bench);
    assert!(bench.heard(line) == reply(true, 3, (0, 512), Expected::Data(0)));
    bench.end_all();
}

/// What is coming in then is of another request.
#[test]
fn a_write_that_fails_when_its_data_is_there_leaves_what_follows_alone() {
    let next = [header(0, WRITE, 2, (512, 512)), vec![7; 512]].concat();
    for begun in [0, 10, 28, 28 + 100] {
        let mut bench = Bench::new();
        let line = bench.raw(false, b"");
        bench.heard(line);
        bench.disk.take_next([Take::Pending]);
        let first = [header(0, WRITE, 1, (0, 512)), vec![9; 512]].concat();
        bench.send(line, &[&first, &next[..begun]].concat());
        let (place, serial) = (0, 1);
        let key = bench.engine.sessions().next().unwrap().0;
        bench
            .engine
            .abort_commands(key, vec![CommandId { place, serial }]);
        bench.settle();
        finish_all(&mut bench);
        let failed = simple_reply(1, Some(ServerError::IO));
        assert_eq!(bench.heard(line), failed, "{begun} bytes");
        bench.send(line, &next[begun..]);
        assert_eq!(bench.heard(line), simple_reply(2, None), "{begun} bytes");
        assert_eq!(bench.disk.byte(1), 7);
        bench.end_all();
    }
}

/// A flush and a write say so themselves.
#[test]
fn a_loss_that_a_flush_or_a_write_has_reported_is_reported_once() {
    for (flags, kind, length) in [(0, FLUSH, 0), (FUA, WRITE, 512)] {
        let mut bench = Bench::new();
        let line = bench.raw(true, b"");
        bench.heard(line);
        bench.disk.take_next([Take::Fail(IoFailure::CacheLost)]);
        let mut bytes = header(flags, kind, 1, (0, length));
        bytes.extend(vec![7; length as usize]);
        bench.send(line, &bytes);
        assert_eq!(bench.heard(line), cache_lost_chunk(1));
        bench.send(line, &header(0, FLUSH, 2, (0, 0)));
        assert_eq!(bench.heard(line), none_chunk(2));
        bench.end_all();
    }
}

/// Neither a request nor the rest of a long write is taken, while a command of that is under way.
#[test]
fn nothing_is_received_while_a_part_of_a_write_is_under_way() {
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.heard(line);
    bench.disk.take(Take::Pending);
    bench.send(line, &header(0, WRITE, 1, (0, PART + 512)));
    bench.send(line, &vec![7; PART as usize]);
    assert_eq!(
        (under_way(&mut bench), bench.wants(line)),
        (1, Wants::Nothing)
    );
    bench.finish_pending();
    assert_eq!(bench.wants(line), Wants::Exact(0..512));
    bench.send(line, &[7; 512]);
    finish_all(&mut bench);
    assert_eq!(bench.heard(line), simple_reply(1, None));
    bench.end_all();
}

/// They lie where they are until the client has them.
#[test]
fn data_of_a_store_with_memory_of_its_own_are_not_copied() {
    let in_place = Capabilities {
        reads_in_place: true,
        ..capabilities()
    };
    let mut bench = Bench::of(&in_place, 8);
    let line = bench.raw(false, b"");
    bench.heard(line);
    bench.end(line).is_silent = true;
    let before = bench.engine.pool().free_bytes();
    bench.send(line, &header(0, READ, 1, (0, 64 << 10)));
    assert_eq!(bench.port().unsent_bytes(), 16 + (64 << 10));
    assert_eq!(bench.engine.pool().free_bytes(), before);
    bench.end(line).is_silent = false;
    bench.settle();
    assert_eq!(bench.heard(line).len(), 16 + (64 << 10));
    bench.end_all();
}
