//! A unit refuses access while a request of the past may still land.

use super::bench::{ABORT, Bench, UNIT, in_every_order};
use super::cdb;
use super::disk::Take;
use super::fence::choose_way;
use super::outside::{GOOD, REFUSED};
use crate::ManagementOutcome;

#[test]
fn nothing_ends_before_all_cores_refuse_access_whatever_the_order_of_letters() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3);
        let (aborting, ending) = (bench.log_in(1), bench.log_in(2));
        for (core, who, lba) in [(1, aborting, 0), (2, ending, 1)] {
            bench.disk(core).take_next([Take::Ring]);
            bench.send(who, cdb::write(lba, 1, 1));
        }
        bench.cores[1].handle_management(aborting.key, 4, crate::Management::AbortTask(Some(0)));
        bench.cores[2].end_session(ending.key);
        bench.pass_only(ABORT);
        let mut choices = 0;
        while let Some(way) = choose_way(&bench, &mut choices, choose) {
            bench.deliver(way);
            let is_answered = !bench.port(aborting).managed.is_empty();
            if is_answered || bench.is_over(ending) {
                assert_eq!(bench.refusing(), [0, 1, 2]);
            }
        }
        assert_eq!(bench.managed(aborting), [(4, ManagementOutcome::Rejected)]);
        assert!(bench.is_over(ending));
        bench.finish(1, 0);
        assert_eq!(bench.refusing(), [0, 1, 2], "core 2 has one more");
        bench.finish(2, 0);
        assert_eq!(bench.refusing(), [0; 0]);
        bench.end();
    });
    assert!(orders > 50, "{orders} orders");
}

#[test]
fn orphans_that_come_back_at_any_moment_end_every_wait_and_the_refusal() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3);
        let who = bench.log_in(1);
        bench.disk(1).take(Take::Ring);
        bench.send(who, cdb::write(0, 1, 1));
        bench.cores[1].end_session(who.key);
        bench.pass_only(ABORT);
        let (mut choices, mut is_back) = (0, false);
        loop {
            let ways = bench.ways().len();
            if !is_back && (ways == 0 || choices < 6 && choose(2) == 1) {
                is_back = true;
                bench.finish_only(1, 0);
            }
            let Some(way) = choose_way(&bench, &mut choices, choose) else {
                break;
            };
            bench.deliver(way);
        }
        assert!(bench.is_over(who));
        assert_eq!(bench.refusing(), [0; 0]);
        bench.end();
    });
    assert!(orders > 50, "{orders} orders");
}

#[test]
fn the_core_of_an_orphan_refuses_before_any_letter() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    bench.cores[1].end_session(who.key);
    bench.pass_only(ABORT);
    assert_eq!(bench.refusing(), [1]);
    bench.send_only(other, cdb::write(0, 1, 2));
    assert_eq!(bench.answer(other).end(), REFUSED);
    bench.settle();
    assert_eq!(bench.refusing(), [0, 1]);
    bench.finish_all(1);
    bench.send(other, cdb::write(0, 1, 2));
    assert_eq!(bench.answer(other).end(), GOOD);
    assert_eq!(bench.disk(0).byte(0), 2);
    bench.end();
}

#[test]
fn a_unit_that_refuses_does_not_keep_others_from_working() {
    let mut bench = Bench::with_units(2, 2);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1)]);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.pass(ABORT);
    assert_eq!(bench.refusing(), [0, 1]);
    bench.send(who, cdb::read(0, 1).to(1));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_session_that_begins_while_access_is_refused_is_refused_too() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.pass(ABORT);
    let next = bench.log_in(1);
    bench.send(next, cdb::read(0, 1));
    assert_eq!(bench.answer(next).end(), REFUSED);
    bench.send(next, cdb::inquiry());
    assert_eq!(bench.answer(next).end(), GOOD);
    bench.finish_all(0);
    bench.send(next, cdb::read(0, 1));
    assert_eq!(bench.answer(next).end(), GOOD);
    bench.end();
}

#[test]
fn the_second_orphan_of_a_core_asks_nobody_and_waits_for_the_same_answer() {
    let mut bench = Bench::new(2);
    let (one, other) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take(Take::Ring);
    bench.send(one, cdb::write(0, 1, 1));
    bench.send(other, cdb::write(1, 1, 1));
    bench.cores[1].end_session(one.key);
    bench.cores[1].end_session(other.key);
    bench.pass_only(ABORT);
    assert_eq!(bench.letters(1, 0), ["RefuseAccess"]);
    assert!(!bench.is_over(one) && !bench.is_over(other));
    bench.settle();
    assert!(bench.is_over(one) && bench.is_over(other));
    bench.finish(1, 0);
    assert_eq!(bench.refusing(), [0, 1]);
    bench.finish(1, 1);
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}

#[test]
fn a_unit_may_refuse_any_number_of_times() {
    let mut bench = Bench::new(3);
    bench.disk(2).take(Take::Ring);
    for round in 0..3 {
        let who = bench.log_in(2);
        bench.send(who, cdb::write(0, 1, 1));
        bench.end_session(who);
        bench.pass(ABORT);
        assert!(bench.is_over(who), "round {round}");
        assert_eq!(bench.refusing(), [0, 1, 2]);
        bench.finish_all(2);
        assert_eq!(bench.refusing(), [0; 0]);
    }
    bench.end();
}

#[test]
fn where_the_owner_has_gone_with_its_unit_nobody_waits_for_it() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.disk(1).take(Take::Ring);
    bench.send(who, cdb::write(0, 1, 1));
    bench.cores[0].close_unit(UNIT);
    assert!(bench.cores[0].owner(UNIT).is_none());
    bench.end_session(who);
    bench.pass(ABORT);
    assert!(bench.is_over(who));
    bench.finish_all(1);
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}
