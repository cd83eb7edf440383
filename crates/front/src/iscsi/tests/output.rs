//! What waits to be sent, and who is looked at when.

use std::time::Duration;

use ::iscsi::pdu::Opcode;
use engine::testing::disk::Take;

use crate::SendEnd;

use super::super::Coalescing;
use super::bench::{BEGIN, Bench, GOOD, NOP_INTERVAL, NOP_TIMEOUT, PING_BYTES};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_micros(1);
/// Output on the heap that a connection may have and still be received from, in bytes.
const OUTPUT_HEAP_MAX_BYTES: usize = 64 * 1024;

/// Sends pings to a target whose answers nobody takes, until it receives no more. Gives how many.
fn pings_until_throttled(bench: &mut Bench, line: usize) -> usize {
    for count in 1..100 {
        bench.ping(line);
        if !bench.is_receiving(line) {
            return count;
        }
    }
    panic!("pings are taken without end");
}

#[test]
fn output_that_nobody_takes_stops_receiving_at_its_limit() {
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    bench.set_silent(line, true);
    let count = pings_until_throttled(&mut bench, line);
    // The headers of the answers count as well, so that the last one is over the limit.
    assert_eq!(count, OUTPUT_HEAP_MAX_BYTES / PING_BYTES);
    bench.end_all();
}

/// 64 answers of a KiB each, with their headers.
#[test]
fn as_much_output_as_its_limit_stops_nothing() {
    const HEADER_BYTES: usize = 48;
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    bench.set_silent(line, true);
    for is_over in [false, true] {
        for _ in 0..if is_over {
            1
        } else {
            OUTPUT_HEAP_MAX_BYTES / 1024
        } {
            bench.ping_with(line, 1024 - HEADER_BYTES);
        }
        assert_eq!(bench.is_receiving(line), !is_over);
    }
    bench.end_all();
}

#[test]
fn receiving_goes_on_when_the_output_is_taken() {
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    bench.set_silent(line, true);
    let count = pings_until_throttled(&mut bench, line);
    let late = bench.ping(line);
    assert_eq!(bench.heard(line), []);
    bench.set_silent(line, false);
    assert!(bench.is_receiving(line));
    let heard = bench.heard(line);
    assert_eq!(heard.len(), count + 1);
    assert_eq!(heard[count], (Opcode::NopIn, late));
    bench.end_all();
}

#[test]
fn one_connection_that_is_throttled_holds_no_other() {
    let mut bench = Bench::new();
    let (line, other) = (bench.log_in(1), bench.ready(2));
    bench.set_silent(line, true);
    pings_until_throttled(&mut bench, line);
    bench.read(other);
    assert_eq!(bench.answer(other), GOOD);
    bench.end_all();
}

/// Nothing waits for the end of an answer, but a connection that is closed behind it does, and one that is
/// received from again when its output is sent.
#[test]
fn the_end_of_a_send_is_waited_for_where_something_follows() {
    let mut bench = Bench::new();
    let (line, throttled) = (bench.ready(1), bench.log_in(2));
    bench.read(line);
    assert_eq!(bench.answer(line), GOOD);
    assert_eq!(bench.last_end(line), Some(SendEnd::Waits));
    bench.set_silent(throttled, true);
    pings_until_throttled(&mut bench, throttled);
    // The first of the answers is on its way; the rest follows it.
    bench.set_silent(throttled, false);
    bench.settle();
    assert_eq!(bench.last_end(throttled), Some(SendEnd::Wakes));
    bench.ping(throttled);
    assert_eq!(bench.last_end(throttled), Some(SendEnd::Waits));
    bench.log_out(line, None);
    assert_eq!(bench.last_end(line), Some(SendEnd::Wakes));
    bench.end_all();
}

#[test]
fn a_session_is_looked_at_in_whole_seconds() {
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    let soon = Duration::from_secs(BEGIN.as_secs() + 1);
    assert_eq!(bench.sessions.poll_timeout(&bench.engine), Some(soon));
    // Nothing is under way: the next look is that of the ping, in the second that follows its moment.
    let ping = Duration::from_secs((BEGIN + NOP_INTERVAL).as_secs() + 1);
    assert_eq!(bench.pass_to(soon), Some(ping));
    assert_eq!(bench.pass_to(ping - MOMENT), Some(ping));
    assert_eq!(bench.heard(line), []);
    bench.pass_to(ping);
    assert_eq!(bench.heard(line)[0].0, Opcode::NopIn);
    bench.end_all();
}

#[test]
fn a_session_with_a_command_under_way_is_looked_at_every_second() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.read(line);
    let second = Duration::from_secs(BEGIN.as_secs() + 1);
    assert_eq!(bench.pass_to(second), Some(second + SECOND));
    assert_eq!(bench.pass_to(second + SECOND), Some(second + 2 * SECOND));
    bench.finish_pending();
    assert_eq!(bench.answer(line), GOOD);
    bench.end_all();
}

#[test]
fn a_silent_peer_is_dropped_at_the_deadline_and_not_before() {
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    bench.set_silent(line, true);
    let mut next = bench.sessions.poll_timeout(&bench.engine).unwrap();
    let ping = Duration::from_secs((BEGIN + NOP_INTERVAL).as_secs() + 1);
    let deadline = ping + NOP_TIMEOUT;
    while next < deadline {
        assert!(!bench.is_shut(line), "at {next:?}");
        next = bench.pass_to(next).unwrap();
    }
    bench.pass_to(deadline - MOMENT);
    assert!(!bench.is_shut(line));
    bench.pass_to(deadline);
    assert!(bench.is_shut(line));
    assert_eq!(bench.ended(), ["no answer to a ping"]);
    bench.end_all();
}

/// A little output waits for more, where that is on its way.
#[test]
fn answers_wait_for_others_where_coalescing_says_so() {
    const HOLD: Duration = Duration::from_micros(30);
    let nano = Duration::from_nanos(1);
    // How it is set, whether the socket holds more, blocks that are read, and whether the answer is held.
    for (coalescing, has_more, blocks, is_held) in [
        (Coalescing::Off, true, 1, false),
        (Coalescing::Adaptive, false, 1, false),
        (Coalescing::Adaptive, true, 1, true),
        (Coalescing::Always, false, 1, true),
        (Coalescing::Always, false, 120, true),
        (Coalescing::Always, false, 128, false),
    ] {
        let case = format!("{coalescing:?}, {has_more}, {blocks} blocks");
        let mut bench = Bench::new();
        let line = bench.ready(1);
        (bench.sessions.settings.coalescing, bench.has_more) = (coalescing, has_more);
        bench.read_blocks(line, blocks);
        assert_eq!(bench.heard(line).is_empty(), is_held, "{case}");
        if is_held {
            assert_eq!(
                bench.sessions.poll_timeout(&bench.engine),
                Some(BEGIN + HOLD),
                "{case}"
            );
            bench.pass_to(BEGIN + HOLD - nano);
            assert_eq!(bench.heard(line), [], "{case}");
            // The second one does not hold the first any longer.
            bench.read(line);
            assert_eq!(bench.heard(line), [], "{case}");
            bench.pass_to(BEGIN + HOLD);
            let answers = bench.heard(line).len();
            assert!(answers >= 2, "{case}: {answers}");
        }
        let next = bench.sessions.poll_timeout(&bench.engine).unwrap();
        assert!(next > BEGIN + HOLD, "{case}: {next:?}");
        bench.end_all();
    }
}

/// Nothing more comes from one that is not received from: its answers do not wait.
#[test]
fn the_answers_of_a_throttled_connection_do_not_wait() {
    let mut bench = Bench::new();
    let line = bench.log_in(1);
    bench.set_silent(line, true);
    let count = pings_until_throttled(&mut bench, line);
    bench.sessions.settings.coalescing = Coalescing::Always;
    bench.set_silent(line, false);
    assert_eq!(bench.heard(line).len(), count);
    assert!(bench.is_receiving(line));
    bench.end_all();
}

#[test]
fn a_line_learns_of_all_that_goes_over_it() {
    const HEADER: usize = 48;
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let begin = bench.noted(line);
    assert_eq!((begin.logins, begin.has_entered), (1, true));
    let (mut received, mut sent) = (begin.received, begin.sent);
    let mut expect = |bench: &mut Bench, more, answer| {
        (received, sent) = (received + more, sent + answer);
        let noted = bench.noted(line);
        assert_eq!((noted.received, noted.sent), (received, sent));
    };
    bench.ping(line);
    expect(&mut bench, HEADER + PING_BYTES, HEADER + PING_BYTES);
    bench.write(line);
    expect(&mut bench, HEADER + 512, HEADER);
    // A WRITE (10) of 32 KiB, the rest of which is received into its buffer.
    let mut write = vec![0; HEADER + (32 << 10)];
    (write[0], write[1], write[6]) = (0x01, 0xa1, 128);
    (write[19], write[22], write[27]) = (77, 128, 3);
    (write[32], write[40]) = (0x2a, 64);
    bench.send(line, &write[..100]);
    expect(&mut bench, 100, 0);
    bench.send(line, &write[100..]);
    expect(&mut bench, write.len() - 100, HEADER);
    bench.end_all();
}

/// The first ping is due in a whole second.
#[test]
fn what_is_due_in_a_whole_second_is_done_in_it() {
    let mut bench = Bench::new();
    let begin = Duration::from_secs(BEGIN.as_secs() + 1);
    bench.pass_to(begin);
    let line = bench.log_in(1);
    let due = begin + NOP_INTERVAL;
    assert_eq!(bench.pass_to(begin + SECOND), Some(due));
    bench.pass_to(due - MOMENT);
    assert_eq!(bench.heard(line), []);
    bench.pass_to(due);
    assert_eq!(bench.heard(line).len(), 1);
    bench.end_all();
}
