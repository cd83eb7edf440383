//! An administrator holds a medium, so that a copy of it can be made while nobody is at work on it.

use std::time::Duration;

use scsi::Status;

use super::bench::{ABORT, Bench, FENCE, MOMENT, UNIT};
use super::cdb;
use super::disk::Take;
use super::medium::{eject, moved};
use super::outside::GOOD;
use crate::{MediumFailure, MediumOrder};

const LIMIT: Duration = Duration::from_secs(2);

fn hold(bench: &mut Bench) {
    let order = MediumOrder::Hold {
        limit: LIMIT,
        number: 1,
    };
    bench.cores[0].move_medium(UNIT, order);
    bench.settle();
}

fn release(bench: &mut Bench) -> bool {
    let stood = bench.cores[0].release_medium(UNIT, 1);
    bench.settle();
    stood
}

#[test]
fn a_held_medium_waits_for_what_is_at_work_and_stops_what_comes_until_it_is_released() {
    let mut bench = Bench::new(2);
    let (writer, late) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(writer, cdb::write(4, 2, 9));
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [], "the write is at work");
    bench.send(late, cdb::write(900, 1, 5));
    bench.finish_all(1);
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert_eq!(bench.answers(late), [], "it is parked");
    assert_eq!(bench.disk(1).log(), ["write 4+2"]);
    assert!(
        !bench.cores[0].is_unit_idle(UNIT),
        "it is not closed meanwhile"
    );
    assert!(release(&mut bench), "it stood until now");
    assert_eq!(bench.answer(late).end(), GOOD);
    assert!(!release(&mut bench), "it is released once");
    bench.end();
}

#[test]
fn a_hold_falls_at_its_deadline_and_not_before_and_who_releases_it_learns_that() {
    let mut bench = Bench::new(2);
    let writer = bench.log_in(1);
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.send(writer, cdb::write(0, 1, 9));
    bench.pass(LIMIT - MOMENT);
    assert_eq!(bench.answers(writer), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert!(!release(&mut bench));
    assert_eq!(moved(&mut bench), []);
    bench.end();
}

/// Whether its deadline comes or it is released before.
#[test]
fn a_hold_that_waits_for_a_store_that_hangs_is_given_up() {
    for is_released in [false, true] {
        let mut bench = Bench::new(2);
        let (writer, late) = (bench.log_in(1), bench.log_in(1));
        bench.disk(1).take_next([Take::Ring]);
        bench.send(writer, cdb::write(0, 1, 9));
        hold(&mut bench);
        bench.send(late, cdb::write(9, 1, 5));
        if is_released {
            assert!(!release(&mut bench), "it was never up");
        } else {
            bench.pass(LIMIT - MOMENT);
            assert_eq!(moved(&mut bench), []);
            bench.pass(MOMENT);
        }
        assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
        assert_eq!(bench.answer(late).end(), GOOD, "the fence is gone");
        bench.finish_all(1);
        assert_eq!(bench.answer(writer).end(), GOOD);
        bench.end();
    }
}

/// Whether it is given up before the order or while the fence is awaited.
#[test]
fn a_medium_to_which_a_request_of_the_past_may_write_is_not_held() {
    for is_given_up_before in [true, false] {
        let mut bench = Bench::new(2);
        let writer = bench.log_in(1);
        bench.disk(1).take_next([Take::Ring]);
        bench.send(writer, cdb::write(0, 1, 9));
        bench.end_session(writer);
        if is_given_up_before {
            bench.pass(ABORT);
        }
        hold(&mut bench);
        bench.pass(FENCE);
        assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
        bench.finish_all(1);
        hold(&mut bench);
        assert_eq!(moved(&mut bench), [Ok(())]);
        assert!(release(&mut bench));
        bench.end();
    }
}

#[test]
fn a_medium_is_held_by_one_and_does_not_move_meanwhile() {
    let mut bench = Bench::new(2).saving();
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(
        !bench.cores[0].release_medium(UNIT, 2),
        "a hold of somebody else"
    );
    hold(&mut bench);
    eject(&mut bench, true);
    let busy = || Err(MediumFailure::Busy);
    assert_eq!(moved(&mut bench), [busy(), busy()]);
    assert!(release(&mut bench));
    eject(&mut bench, true);
    assert_eq!(moved(&mut bench), [Ok(())]);
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())], "also one that is out");
    assert!(release(&mut bench));
    bench.reports.clear();
    bench.end();
}

#[test]
fn a_unit_that_is_leaving_is_not_held_any_more_and_a_hold_of_before_ends_by_itself() {
    let mut bench = Bench::new(2);
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.cores[0].leave_unit(UNIT);
    assert!(!bench.cores[0].is_unit_idle(UNIT), "it is held");
    assert!(release(&mut bench));
    bench.reports.clear();
    assert!(bench.cores[0].is_unit_idle(UNIT));
    hold(&mut bench);
    eject(&mut bench, true);
    let gone = || Err(MediumFailure::Gone);
    assert_eq!(moved(&mut bench), [gone(), gone()]);
    assert!(bench.cores[0].is_unit_idle(UNIT), "and stays so");
    bench.end();
}

/// Another unit has its place by then, and what is written to this one is lost.
#[test]
fn what_was_parked_before_a_unit_that_leaves_is_not_carried_out() {
    let mut bench = Bench::new(2);
    let late = bench.log_in(1);
    hold(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.send(late, cdb::write(900, 1, 5));
    for core in &mut bench.cores {
        core.leave_unit(UNIT);
    }
    assert!(release(&mut bench));
    assert_eq!(bench.answer(late).end(), (Status::Busy, None));
    assert_eq!(bench.disk(1).log(), Vec::<String>::new());
    bench.end();
}
