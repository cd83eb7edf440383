//! Work that no initiator sends or gets: how much of it a turn begins, and whose.

use std::rc::Rc;

use super::bench::{ABORT, Bench, MOMENT, TURN_BYTES, Who};
use super::cdb::{self, BLOCK, Cdb};
use super::disk::Take;
use super::outside::{GOOD, Receipt, STOPPED};
use crate::{Management, ManagementOutcome};

/// Blocks of one piece of WRITE SAME, which is all that a turn begins here.
const PIECE: u16 = 128;
const _: () = assert!(PIECE as usize * BLOCK == TURN_BYTES);

/// A WRITE SAME of so many pieces from a block on.
fn pieces(first: u32, count: u16) -> Cdb {
    cdb::write_same(first, PIECE * count, 7)
}

/// What the store was asked for in one more turn, letters waiting.
fn turn(bench: &mut Bench) -> Vec<String> {
    bench.turn(0);
    bench.disk(0).log()
}

fn written(first: u32) -> String {
    format!("write {first}+{PIECE}")
}

/// Two sessions, and a command of the first that waits for its second piece.
fn begun(count: u16) -> (Bench, [Who; 2], u32) {
    let mut bench = Bench::new(1);
    let (who, neighbour) = (bench.log_in(0), bench.log_in(0));
    let id = bench.send_only(who, pieces(0, count));
    assert_eq!(bench.disk(0).log(), [written(0)]);
    assert!(bench.cores[0].has_pieces());
    (bench, [who, neighbour], id)
}

#[test]
fn a_neighbours_commands_are_answered_between_the_pieces_of_a_long_one() {
    let (mut bench, [who, neighbour], _) = begun(4);
    for piece in 1..4 {
        bench.send_only(neighbour, cdb::test_unit_ready());
        assert_eq!(bench.answers(neighbour).len(), 1);
        assert_eq!(bench.answers(who), []);
        assert_eq!(turn(&mut bench), [written(piece * u32::from(PIECE))]);
    }
    assert_eq!(bench.answer(who).end(), GOOD);
    assert!(!bench.cores[0].has_pieces());
    bench.end();
}

#[test]
fn many_long_commands_of_one_turn_begin_one_piece_together() {
    let mut bench = Bench::new(1);
    let whos = [bench.log_in(0), bench.log_in(0)];
    for _ in 0..8 {
        for who in whos {
            bench.send_only(who, pieces(0, 1));
        }
    }
    assert_eq!(bench.disk(0).log(), [written(0)]);
    for _ in 1..16 {
        assert_eq!(turn(&mut bench), [written(0)]);
    }
    assert!(!bench.cores[0].has_pieces());
    assert!(whos.map(|who| bench.answers(who).len()) == [8, 8]);
    bench.end();
}

#[test]
fn sessions_take_turns_however_many_commands_one_has() {
    let mut bench = Bench::new(1);
    let (greedy, modest) = (bench.log_in(0), bench.log_in(0));
    for number in 0..4 {
        bench.send_only(greedy, pieces(number * 1000, 2));
    }
    bench.send_only(modest, pieces(9000, 2));
    let mut begun = bench.disk(0).log();
    while bench.answers(modest).is_empty() {
        begun.extend(turn(&mut bench));
    }
    let expected = [0, PIECE.into(), 9000, 1000, 9000 + u32::from(PIECE)];
    assert_eq!(begun, expected.map(written));
    bench.end();
}

#[test]
fn what_a_store_works_on_elsewhere_counts_for_the_turn_that_began_it() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    for number in 0..3 {
        bench.send_only(who, pieces(number * 1000, 1));
    }
    assert_eq!(bench.under_way(0).len(), 1);
    bench.turn(0);
    assert_eq!(bench.under_way(0).len(), 2);
    bench.end();
}

#[test]
fn commands_without_much_work_wait_for_no_turn() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    for _ in 0..TURN_BYTES / 4096 {
        bench.send_only(who, cdb::unmap(0, 8));
    }
    assert!(!bench.cores[0].has_pieces());
    bench.send_only(who, cdb::unmap(0, 8));
    assert!(bench.cores[0].has_pieces(), "each costs something");
    bench.send_only(who, cdb::read(0, 256));
    bench.send_only(who, cdb::write(0, 8, 1));
    assert_eq!(bench.answers(who).len(), TURN_BYTES / 4096 + 2);
    bench.end();
}

#[test]
fn a_command_that_waits_for_its_turn_is_aborted_at_once() {
    let (mut bench, [who, _], id) = begun(4);
    bench.cores[0].handle_management(who.key, 1, Management::AbortTask(Some(id)));
    bench.step(0);
    assert_eq!(bench.managed(who).len(), 1);
    assert_eq!(bench.cores[0].task_count(), 0);
    assert_eq!(turn(&mut bench), [""; 0]);
    assert_eq!(bench.answers(who), []);
    bench.end();
}

#[test]
fn the_turns_of_others_stay_when_a_session_ends() {
    let (mut bench, [who, other], _) = begun(3);
    bench.send_only(other, pieces(5000, 1));
    bench.cores[0].end_session(who.key);
    bench.step(0);
    assert!(bench.is_over(who));
    assert_eq!(turn(&mut bench), [written(5000)]);
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.end();
}

#[test]
fn a_unit_that_is_taken_stays_for_the_pieces_of_what_has_begun() {
    let (mut bench, [who, _], _) = begun(3);
    let receipt = Receipt::default();
    bench.cores[0].take_lun(who.key, 0, Rc::clone(&receipt));
    bench.step(0);
    assert_eq!(Rc::strong_count(&receipt), 2);
    turn(&mut bench);
    turn(&mut bench);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.settle();
    assert_eq!(Rc::strong_count(&receipt), 1);
    bench.end();
}

#[test]
fn a_unit_that_is_taken_goes_at_its_deadline_although_pieces_wait() {
    let (mut bench, [who, _], _) = begun(500);
    let receipt = Receipt::default();
    bench.cores[0].take_lun(who.key, 0, Rc::clone(&receipt));
    bench.pass_only(ABORT - MOMENT);
    assert_eq!(Rc::strong_count(&receipt), 2);
    bench.pass_only(MOMENT);
    assert!(!bench.cores[0].has_pieces());
    bench.settle();
    assert_eq!(Rc::strong_count(&receipt), 1);
    assert_eq!(bench.answers(who), []);
    bench.end();
}

#[test]
fn a_right_to_write_that_is_taken_stops_the_pieces_that_wait() {
    let (mut bench, [who, _], _) = begun(4);
    bench.cores[0].set_read_only(who.key, 0, true, Receipt::default());
    assert_eq!(turn(&mut bench), [""; 0]);
    assert_eq!(bench.answer(who).end(), STOPPED);
    bench.end();
}

#[test]
fn a_fence_of_another_is_raised_between_pieces_and_holds_the_next_up() {
    let mut bench = Bench::new(2);
    let (long, swapper) = (bench.log_in(0), bench.log_in(1));
    bench.send_only(long, pieces(0, 4));
    bench.send_only(swapper, cdb::compare_and_write(u32::from(PIECE), 1, 0, 1));
    bench.disk(1).take(Take::Ring);
    bench.deliver_all();
    assert_eq!(bench.under_way(1).len(), 1, "the fence is up");
    assert_eq!(bench.disk(0).log(), [written(0)]);
    assert_eq!(turn(&mut bench), [""; 0]);
    bench.disk(1).take(Take::Now);
    bench.finish_all(1);
    assert_eq!(bench.answer(swapper).end(), GOOD);
    assert_eq!(bench.answer(long).end(), GOOD);
    assert_eq!(bench.disk(0).byte(PIECE.into()), 7, "it came later");
    bench.end();
}

// ---- resets ----------------------------------------------------------------------------------

const WARM: Management<u32> = Management::TargetReset { cold: None };
/// Units with one nexus of which a turn asks for the reset.
const UNITS: usize = TURN_BYTES / 4096;

/// A session that sees so many units.
fn with_units(units: usize) -> (Bench, Who) {
    let mut bench = Bench::with_units(1, units);
    let luns: Vec<(u16, u32)> = (0..u16::try_from(units).unwrap())
        .map(|lun| (lun, lun.into()))
        .collect();
    let who = bench.log_in_to(0, &luns);
    (bench, who)
}

/// It asks for a target reset; letters wait. How many changes are asked for then.
fn reset(bench: &mut Bench, who: Who, id: u32) -> usize {
    bench.cores[0].handle_management(who.key, id, WARM);
    bench.step(0);
    bench.letters(0, 0).len()
}

#[test]
fn a_target_reset_goes_on_from_turn_to_turn_and_is_answered_after_the_last_unit() {
    let (mut bench, who) = with_units(2 * UNITS + 3);
    assert_eq!(reset(&mut bench, who, 8), UNITS);
    for more in [UNITS, 3] {
        assert!(bench.cores[0].has_pieces());
        bench.deliver_all();
        assert_eq!(bench.managed(who), []);
        bench.cores[0].begin_turn(bench.now);
        bench.step(0);
        assert_eq!(bench.letters(0, 0), vec!["Change"; more]);
    }
    assert!(!bench.cores[0].has_pieces());
    bench.settle();
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn a_target_reset_resets_a_unit_with_two_numbers_once() {
    let mut bench = Bench::with_units(1, 2);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1), (2, 0)]);
    assert_eq!(reset(&mut bench, who, 8), 2);
    bench.settle();
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn the_reset_of_a_unit_with_many_nexuses_costs_more() {
    let (mut bench, who) = with_units(3);
    for _ in 0..TURN_BYTES / 512 {
        bench.log_in_to(0, &[(0, 0), (1, 1), (2, 2)]);
    }
    assert_eq!(reset(&mut bench, who, 8), 1);
    bench.settle();
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn a_target_reset_that_was_answered_as_failed_goes_no_further() {
    let (mut bench, who) = with_units(5 * UNITS);
    assert_eq!(reset(&mut bench, who, 8), UNITS);
    bench.pass_only(2 * ABORT);
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Rejected)]);
    bench.turn(0);
    assert!(!bench.cores[0].has_pieces());
    assert_eq!(bench.letters(0, 0).len(), 2 * UNITS);
    bench.settle();
    assert_eq!(bench.managed(who), []);
    bench.end();
}

#[test]
fn a_target_reset_goes_no_further_when_its_session_is_over() {
    let (mut bench, who) = with_units(5 * UNITS);
    reset(&mut bench, who, 8);
    bench.end_session(who);
    assert!(bench.is_over(who));
    bench.end();
}

#[test]
fn the_resets_of_a_session_come_one_after_the_other_and_sessions_take_turns() {
    let (mut bench, greedy) = with_units(2 * UNITS);
    let modest = bench.log_in(0);
    for id in 0..3 {
        reset(&mut bench, greedy, id);
    }
    reset(&mut bench, modest, 9);
    bench.deliver_all();
    bench.turn(0);
    bench.deliver_all();
    assert_eq!(
        bench.managed(modest).len(),
        1,
        "its turn was among the next"
    );
    assert_eq!(bench.managed(greedy), []);
    bench.settle();
    let answered: Vec<u32> = bench.managed(greedy).iter().map(|(id, _)| *id).collect();
    assert_eq!(answered, [0, 1, 2]);
    bench.end();
}
