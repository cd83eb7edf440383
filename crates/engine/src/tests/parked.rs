//! Tasks that wait for the fences of others, and fences that wait for them.

use std::time::Duration;

use super::bench::{BALLAST_BYTES, Bench, FENCE, MOMENT, TURN_BYTES, Who, in_every_order};
use super::cdb::{self, BLOCK};
use super::disk::Take;
use super::fence::choose_way;
use super::outside::{BUSY, GOOD};

const SECOND: Duration = Duration::from_secs(1);
/// Blocks of one piece of WRITE SAME, which is all that a turn begins here.
const PIECE: u16 = 128;
const _: () = assert!(PIECE as usize * BLOCK == TURN_BYTES);
const NOTHING: [&str; 0] = [];

/// Two cores whose stores take their time. The holder of a fence on block 0 is at work on core 0, and a reader of
/// 64 blocks is parked there; the last is a session of core 1.
fn parked() -> (Bench, [Who; 3]) {
    let mut bench = Bench::new(2);
    let whos = [0, 0, 1].map(|core| bench.log_in(core));
    bench.disk(0).take(Take::Ring);
    bench.disk(1).take(Take::Ring);
    bench.send(whos[0], cdb::compare_and_write(0, 1, 0, 1));
    bench.send(whos[1], cdb::read(0, 64));
    assert_eq!(bench.disk(0).log(), ["read 0+1"]);
    (bench, whos)
}

/// The holder is done.
fn lower(bench: &mut Bench, holder: Who) {
    bench.finish(0, 0);
    bench.finish(0, 1);
    assert_eq!(bench.answer(holder).end(), GOOD);
}

#[test]
fn fences_that_come_later_let_a_parked_command_pass() {
    let (mut bench, [holder, reader, other]) = parked();
    bench.send(other, cdb::compare_and_write(4, 1, 0, 1));
    assert_eq!(bench.disk(1).log(), NOTHING, "the reader was there before");
    lower(&mut bench, holder);
    assert_eq!(bench.disk(0).log(), ["write 0+1", "read 0+64"]);
    bench.send(other, cdb::compare_and_write(6, 1, 0, 1));
    assert_eq!(bench.disk(1).log(), NOTHING);
    bench.finish_all(0);
    assert_eq!(bench.answer(reader).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["read 4+1", "read 6+1"]);
    bench.finish_all(1);
    assert_eq!(bench.answers(other).len(), 2);
    bench.end();
}

#[test]
fn who_parks_behind_two_fences_keeps_its_deadline_when_one_is_lowered() {
    let (mut bench, [holder, ..]) = parked();
    bench.send(holder, cdb::compare_and_write(9, 1, 0, 1));
    // Behind the fences on blocks 0 and 9.
    let late = bench.log_in(0);
    bench.send(late, cdb::read(0, 10));
    bench.pass(3 * SECOND);
    lower(&mut bench, holder);
    bench.pass(FENCE - 3 * SECOND - MOMENT);
    assert_eq!(bench.answers(late), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(late).end(), BUSY);
    bench.finish_all(0);
    bench.end();
}

#[test]
fn a_parked_command_that_waits_for_memory_holds_no_fence_up_and_gets_no_more_time() {
    let (mut bench, [holder, reader, other]) = parked();
    bench.send(other, cdb::compare_and_write(4, 1, 0, 1));
    bench.finish(0, 0);
    bench.pass(3 * SECOND);
    bench.leave_memory(0, 0);
    assert_eq!(bench.disk(1).log(), NOTHING);
    bench.finish(0, 1);
    assert_eq!(bench.answer(holder).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["read 4+1"]);
    bench.pass(2 * SECOND);
    bench.free_memory(BALLAST_BYTES);
    bench.give_memory_back();
    assert_eq!(bench.disk(0).log(), ["write 0+1"], "it is parked again");
    bench.pass(FENCE - 5 * SECOND - MOMENT);
    assert_eq!(bench.answers(reader), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(reader).end(), BUSY);
    bench.end();
}

#[test]
fn a_command_in_pieces_holds_a_fence_up_for_one_of_them() {
    let mut bench = Bench::new(2);
    let (long, swapper) = (bench.log_in(0), bench.log_in(1));
    bench.disk(0).take(Take::Ring);
    bench.disk(1).take(Take::Ring);
    bench.send(long, cdb::write_same(0, 4 * PIECE, 7));
    bench.send(swapper, cdb::compare_and_write(0, 1, 7, 1));
    assert_eq!(bench.disk(1).log(), NOTHING);
    bench.finish(0, 0);
    assert_eq!(bench.disk(1).log(), ["read 0+1"], "the fence is up");
    assert_eq!(bench.disk(0).log(), ["write 0+128"], "the next is parked");
    bench.finish_all(1);
    assert_eq!(bench.answer(swapper).end(), GOOD);
    bench.finish_all(0);
    assert_eq!(bench.answer(long).end(), GOOD);
    assert_eq!((bench.disk(0).byte(0), bench.disk(0).byte(511)), (1, 7));
    bench.end();
}

#[test]
fn every_piece_has_the_whole_time() {
    let mut bench = Bench::new(2);
    let (long, swapper) = (bench.log_in(0), bench.log_in(1));
    bench.disk(0).take(Take::Ring);
    bench.disk(1).take(Take::Ring);
    bench.send(long, cdb::write_same(0, 4 * PIECE, 7));
    for piece in 0..3 {
        bench.send(swapper, cdb::compare_and_write(0, 1, 7, 7));
        bench.finish(0, piece);
        bench.pass(FENCE - MOMENT);
        assert_eq!(bench.answers(long), [], "piece {piece}");
        bench.finish_all(1);
    }
    bench.finish_all(0);
    assert_eq!(bench.answer(long).end(), GOOD);
    bench.end();
}

#[test]
fn a_parked_command_that_ends_holds_no_fence_up() {
    for ending in ["abort", "session", "deadline"] {
        let mut bench = Bench::new(2);
        let [holder, reader] = [0, 0].map(|core| bench.log_in(core));
        let other = bench.log_in(1);
        bench.disk(0).take(Take::Ring);
        bench.send(holder, cdb::compare_and_write(0, 1, 0, 1));
        let id = bench.send(reader, cdb::read(0, 8));
        bench.pass(SECOND);
        bench.send(other, cdb::compare_and_write(4, 1, 0, 1));
        assert_eq!(bench.answers(other), [], "{ending}");
        match ending {
            "abort" => bench.abort(reader, id),
            "session" => bench.end_session(reader),
            _ => {
                bench.pass(FENCE - SECOND);
                assert_eq!(bench.answer(reader).end(), BUSY);
            }
        }
        assert_eq!(bench.answer(other).end(), GOOD, "{ending}");
        bench.end();
    }
}

#[test]
fn a_flush_passes_a_fence() {
    let (mut bench, [_, verifier, _]) = parked();
    bench.send(verifier, cdb::verify(0, 1, 0));
    assert_eq!(bench.disk(0).log(), ["flush"]);
    bench.end();
}

#[test]
fn two_fences_and_who_meets_both_end_whatever_the_order_of_letters() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3);
        let whos = [0, 1, 2].map(|core| bench.log_in(core));
        let spanning = [1, 2].map(|core| bench.log_in(core));
        bench.send_only(whos[1], cdb::compare_and_write(0, 1, 0, 1));
        bench.send_only(whos[2], cdb::compare_and_write(1, 1, 0, 1));
        let mut choices = 0;
        while let Some(way) = choose_way(&bench, &mut choices, choose) {
            if choices == 4 {
                for who in spanning {
                    bench.send_only(who, cdb::read(0, 2));
                }
            }
            bench.deliver(way);
        }
        bench.settle();
        for who in [whos[1], whos[2], spanning[0], spanning[1]] {
            assert_eq!(bench.answer(who).end(), GOOD);
        }
        bench.end();
    });
    assert!(orders > 50, "{orders} orders");
}
