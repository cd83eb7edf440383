//! What sessions see changes while they run.

use std::rc::Rc;

use scsi::{NexusId, UnitAttention};

use super::bench::{ABORT, Bench, MOMENT, UNIT, Who, visible};
use super::cdb;
use super::disk::Take;
use super::outside::{Came, GOOD, PROTECTED, Receipt};
use crate::VisibleLun;

const NO_UNIT: Option<(u8, u8, u8)> = Some((5, 0x25, 0));
const NEW_HERE: Option<(u8, u8, u8)> = Some((6, 0x29, 0));

fn is_done(receipt: &Receipt) -> bool {
    Rc::strong_count(receipt) == 1
}

fn take(bench: &mut Bench, who: Who, lun: u16) -> Receipt {
    let receipt = Receipt::default();
    bench.cores[who.core].take_lun(who.key, lun, Rc::clone(&receipt));
    bench.settle();
    receipt
}

fn give(bench: &mut Bench, who: Who, lun: VisibleLun) -> Receipt {
    let receipt = Receipt::default();
    bench.cores[who.core].give_lun(who.key, lun, Rc::clone(&receipt));
    bench.settle();
    receipt
}

fn narrow(bench: &mut Bench, who: Who, read_only: bool) -> Receipt {
    let receipt = Receipt::default();
    bench.cores[who.core].set_read_only(who.key, 0, read_only, Rc::clone(&receipt));
    bench.settle();
    receipt
}

#[test]
fn a_session_learns_first_what_its_units_have_for_it() {
    let mut bench = Bench::new(1);
    let attention = Some(UnitAttention::NexusLoss);
    let who = bench.log_in_seeing(0, &[visible(0, 0), visible(3, 9)], attention);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).sense, Some((6, 0x29, 7)));
    bench.send(who, cdb::read(0, 1).to(3));
    assert_eq!(bench.answer(who).sense, NO_UNIT, "there is no unit 9");
    bench.end();
}

#[test]
fn a_unit_that_is_given_is_seen_from_then_on() {
    let mut bench = Bench::with_units(2, 2);
    let who = bench.log_in_to(0, &[(0, 0)]);
    let receipt = Receipt::default();
    let lun = visible(4, 1);
    bench.cores[0].give_lun(who.key, lun, Rc::clone(&receipt));
    bench.step(0);
    assert!(!is_done(&receipt), "its owner does not know the nexus yet");
    bench.settle();
    assert!(is_done(&receipt));
    bench.send(who, cdb::read(0, 1).to(4));
    assert_eq!(bench.answer(who).sense, NEW_HERE);
    bench.send(who, cdb::read(0, 1).to(4));
    assert_eq!(bench.answer(who).end(), GOOD);
    // For a unit, or a session, that is not there it is done at once.
    assert!(is_done(&give(&mut bench, who, visible(5, 7))));
    bench.end();
}

#[test]
fn a_unit_that_is_taken_lets_its_commands_end_by_themselves() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.disk(1).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    let receipt = take(&mut bench, who, 0);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).sense, NO_UNIT, "nothing new begins");
    assert_eq!(bench.cancelled(1), [0; 0]);
    assert!(!is_done(&receipt));
    bench.finish_all(1);
    let answers = bench.answers(who);
    assert_eq!((answers[0].0, answers[0].1.end()), (id, GOOD));
    assert!(is_done(&receipt));
    assert_eq!(bench.cores[1].view(UNIT).unwrap().nexuses().count(), 0);
    bench.end();
}

#[test]
fn commands_that_do_not_end_by_themselves_are_aborted_and_then_left() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let stuck = bench.send(who, cdb::write(0, 1, 1));
    let waiting = bench.send(who, cdb::write(1, 1, 1).coming(Came::Later));
    let receipt = take(&mut bench, who, 0);
    bench.pass(ABORT - MOMENT);
    assert_eq!(bench.port(who).abandoned, [0; 0]);
    bench.pass(MOMENT);
    assert_eq!(bench.port(who).abandoned, [waiting]);
    assert_eq!(bench.cancelled(0), [0]);
    assert!(!is_done(&receipt));
    bench.pass(ABORT);
    assert!(is_done(&receipt));
    assert_eq!(bench.refusing(), [0]);
    let both = [waiting, stuck];
    assert_eq!(
        bench.port(who).abandoned,
        both,
        "its session waits for none of them"
    );
    bench.finish_all(0);
    assert_eq!(bench.refusing(), [0; 0]);
    assert!(bench.answers(who).is_empty());
    assert_eq!(bench.port(who).abandoned, both);
    bench.end();
}

/// Delivers all letters but those to one core.
fn settle_without(bench: &mut Bench, core: usize) {
    while let Some(way) = bench.ways().into_iter().find(|way| way.to != core) {
        bench.deliver(way);
    }
}

#[test]
fn a_unit_is_not_left_before_every_core_refuses_access_however_long_that_takes() {
    let mut bench = Bench::new(3);
    let who = bench.log_in(1);
    bench.disk(1).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    let receipt = take(&mut bench, who, 0);
    // Its time to end by itself, then that of the abort, each followed by one for the refusal.
    for _ in 0..5 {
        bench.pass_only(ABORT);
        settle_without(&mut bench, 2);
        assert!(!is_done(&receipt), "core 2 still takes commands");
        assert_eq!(bench.refusing(), [0, 1]);
    }
    bench.settle();
    bench.pass(ABORT);
    assert_eq!(bench.refusing(), [0, 1, 2]);
    assert!(is_done(&receipt));
    bench.finish_all(1);
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}

#[test]
fn a_write_that_ends_before_every_core_refuses_access_is_aborted_once() {
    let mut bench = Bench::new(3);
    let who = bench.log_in(1);
    bench.disk(1).take_next([Take::Ring]);
    let late = bench.send(who, cdb::write(0, 1, 1));
    let receipt = take(&mut bench, who, 0);
    bench.pass_only(ABORT);
    settle_without(&mut bench, 2);
    assert_eq!(bench.refusing(), [0, 1]);
    // That no orphan is left ends the wait for it, and the abort that follows finds this very task.
    bench.finish_all(1);
    assert!(is_done(&receipt));
    assert_eq!(bench.port(who).abandoned, [late]);
    assert!(bench.answers(who).is_empty());
    bench.settle();
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}

#[test]
fn a_write_that_ends_after_its_unit_was_left_disturbs_no_later_nexus() {
    let mut bench = Bench::new(1);
    let (who, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    let receipt = take(&mut bench, who, 0);
    bench.pass(ABORT);
    bench.pass(ABORT);
    assert!(is_done(&receipt));
    // The slot of the nexus is given to another one.
    let next = bench.log_in(0);
    bench.finish_all(0);
    bench.send(next, cdb::read(0, 1).ordered());
    assert_eq!(bench.answer(next).end(), GOOD);
    bench.send(other, cdb::read(0, 1));
    assert_eq!(bench.answer(other).data[0], 1);
    bench.end();
}

#[test]
fn a_unit_that_is_seen_by_two_numbers_is_left_with_the_last() {
    let mut bench = Bench::new(1);
    let who = bench.log_in_to(0, &[(0, 0), (1, 0)]);
    assert_eq!(bench.cores[0].view(UNIT).unwrap().nexuses().count(), 2);
    bench.send(who, cdb::reserve());
    assert_eq!(bench.answer(who).end(), GOOD);
    assert!(is_done(&take(&mut bench, who, 0)));
    bench.send(who, cdb::write(0, 1, 1).to(1));
    assert_eq!(
        bench.answer(who).end(),
        GOOD,
        "its reservation is still there"
    );
    let nexus = NexusId(1);
    assert!(bench.cores[0].view(UNIT).unwrap().slot_of(nexus).is_some());
    assert!(is_done(&take(&mut bench, who, 1)));
    assert!(bench.cores[0].view(UNIT).unwrap().slot_of(nexus).is_none());
    let other = bench.log_in(0);
    bench.send(other, cdb::write(0, 1, 1));
    assert_eq!(
        bench.answer(other).end(),
        GOOD,
        "the reservation went with it"
    );
    bench.end();
}

#[test]
fn a_number_that_moves_loses_what_it_had_reserved_whether_a_command_waits_or_not() {
    for waits in [false, true] {
        let mut bench = Bench::new(1);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        bench.send(who, cdb::reserve());
        assert_eq!(bench.answer(who).end(), GOOD);
        if waits {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::write(0, 1, 1));
        }
        let (before, now) = (vec![visible(0, 0)], vec![visible(1, 0)]);
        let receipt = Receipt::default();
        bench.cores[0].change_view(who.key, (before, now), Rc::clone(&receipt));
        bench.settle();
        assert_eq!(is_done(&receipt), !waits);
        bench.finish_all(0);
        assert!(is_done(&receipt));
        bench.send(other, cdb::write(0, 1, 1));
        assert_eq!(bench.answer(other).end(), GOOD);
        assert!(bench.cores[0].view(UNIT).unwrap().nexuses().count() == 2);
        bench.end();
    }
}

#[test]
fn what_is_not_there_is_taken_at_once() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    assert!(is_done(&take(&mut bench, who, 3)));
    bench.end_session(who);
    assert!(is_done(&take(&mut bench, who, 0)));
    assert!(is_done(&give(&mut bench, who, visible(0, 0))));
    assert!(is_done(&narrow(&mut bench, who, true)));
    bench.cores[0].notify_luns_changed(who.key, 0);
    bench.end();
}

#[test]
fn a_session_that_ends_while_a_unit_is_taken_from_it_ends_once() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    bench.send(who, cdb::write(0, 1, 1));
    let receipt = take(&mut bench, who, 0);
    bench.end_session(who);
    assert!(!bench.is_over(who));
    bench.finish_all(0);
    assert!(bench.is_over(who));
    assert!(is_done(&receipt));
    bench.end();
}

#[test]
fn the_right_to_write_is_taken_when_the_store_has_nothing_more() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    let first = bench.send(who, cdb::write(0, 1, 1));
    let waiting = bench.send(who, cdb::write(1, 1, 1).coming(Came::Later));
    let receipt = narrow(&mut bench, who, true);
    assert!(!is_done(&receipt));
    bench.bring_data(who, waiting, &[1; 512]);
    let answers = bench.answers(who);
    assert_eq!((answers[0].0, answers[0].1.end()), (waiting, PROTECTED));
    bench.finish_all(0);
    let answers = bench.answers(who);
    assert_eq!((answers[0].0, answers[0].1.end()), (first, GOOD));
    assert!(is_done(&receipt));
    assert_eq!(bench.disk(0).log(), ["write 0+1"]);
    bench.send(who, cdb::write(2, 1, 1));
    assert_eq!(
        bench.answer(who).sense,
        Some((6, 0x2a, 1)),
        "it is notified"
    );
    bench.send(who, cdb::write(2, 1, 1));
    assert_eq!(bench.answer(who).end(), PROTECTED);
    assert!(is_done(&narrow(&mut bench, who, true)), "it is so already");
    assert!(
        is_done(&narrow(&mut bench, who, false)),
        "more rights come at once"
    );
    bench.send(who, cdb::test_unit_ready());
    bench.send(who, cdb::write(2, 1, 1));
    assert_eq!(bench.answers(who)[1].1.end(), GOOD);
    bench.end();
}

#[test]
fn a_narrowing_and_a_hang_end_with_the_refusal_of_access() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    let receipt = narrow(&mut bench, who, true);
    bench.pass_only(ABORT);
    assert!(!is_done(&receipt), "not every core refuses yet");
    bench.settle();
    assert!(is_done(&receipt));
    assert_eq!(bench.refusing(), [0, 1]);
    bench.finish_all(1);
    assert_eq!(bench.refusing(), [0; 0]);
    assert_eq!(bench.answer(who).end(), GOOD, "nobody aborted it");
    bench.send(other, cdb::write(0, 1, 1));
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.end();
}

#[test]
fn a_narrowing_waits_for_its_own_nexus_only() {
    let mut bench = Bench::new(1);
    let (who, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 1));
    assert!(is_done(&narrow(&mut bench, who, true)));
    bench.end();
}

#[test]
fn other_luns_are_told_of_by_unit_attention() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.cores[0].notify_luns_changed(who.key, 0);
    bench.cores[0].notify_luns_changed(who.key, 9);
    bench.send(who, cdb::test_unit_ready());
    assert_eq!(bench.answer(who).sense, Some((6, 0x3f, 0x0e)));
    bench.end();
}

#[test]
fn sessions_and_units_can_be_counted_and_walked() {
    let mut bench = Bench::with_units(2, 3);
    let who = bench.log_in_to(0, &[(0, 0)]);
    let core = &mut bench.cores[0];
    assert_eq!((core.core(), core.session_count()), (0, 1));
    assert_eq!(core.next_unit(), crate::UnitIndex(3));
    let owned: Vec<u32> = core.owned_units().map(|unit| unit.0).collect();
    assert_eq!(owned, [0, 2]);
    assert_eq!(core.capabilities(UNIT).unwrap().block_bytes, 512);
    assert!(core.view(crate::UnitIndex(3)).is_none() && core.owner(crate::UnitIndex(1)).is_none());
    assert_eq!(
        core.sessions().map(|(key, _)| key).collect::<Vec<_>>(),
        [who.key]
    );
    let (port, pool) = core.session_mut(who.key).unwrap().port_and_pool();
    assert_eq!((port.answers.len(), pool.held_bytes()), (0, 0));
    core.shrink();
    bench.end();
}
