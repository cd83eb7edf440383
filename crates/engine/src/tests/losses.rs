//! A store that is somewhere else loses what it had answered: each that wrote learns of it, once.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scsi::Status;

use super::bench::{ABORT, Bench, UNIT, Who, port_name, visible};
use super::cdb;
use super::disk::Take;
use super::medium::{eject, moved};
use super::outside::{GOOD, Receipt};
use crate::{FlushFailure, MediumFailure, Report};

/// WRITE ERROR, with a sense key that no initiator takes for a reason to try again.
const LOST: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((4, 0x0c, 0)));

fn write(bench: &mut Bench, who: Who) {
    bench.send(who, cdb::write(0, 1, 9));
    assert_eq!(bench.answer(who).end(), GOOD);
}

fn flush(bench: &mut Bench, who: Who) -> (Status, Option<(u8, u8, u8)>) {
    bench.send(who, cdb::synchronize());
    bench.answer(who).end()
}

/// What the flush of an order, or the last one, reports of a loss.
const CACHE_LOST: FlushFailure = FlushFailure::CacheLost { lost: 1 };
const UNFLUSHED: MediumFailure = MediumFailure::Unflushed(CACHE_LOST);

/// A far store has answered a write, which no flush has covered.
fn written() -> (Bench, Who) {
    let mut bench = Bench::with_far_store(1);
    let who = bench.log_in(0);
    write(&mut bench, who);
    (bench, who)
}

fn last_flush(bench: &mut Bench) -> Option<FlushFailure> {
    bench.cores[0].flush_unit(UNIT);
    bench.settle();
    match bench.reports.pop() {
        Some((_, Report::Flushed { failure, .. })) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_initiator_that_wrote_learns_of_it_by_its_own_flush_on_any_core() {
    let mut bench = Bench::with_far_store(2);
    let (a, b, reader) = (bench.log_in(0), bench.log_in(1), bench.log_in(1));
    write(&mut bench, a);
    write(&mut bench, b);
    bench.lose_cache(1);
    assert_eq!(flush(&mut bench, reader), GOOD);
    assert_eq!(flush(&mut bench, b), LOST);
    assert_eq!(flush(&mut bench, b), GOOD);
    assert_eq!(flush(&mut bench, a), LOST);
    assert_eq!(flush(&mut bench, a), GOOD);
    assert_eq!(last_flush(&mut bench), None);
    bench.end();
}

/// The program ends, so nobody may be left to read the answer to the order.
#[test]
fn a_loss_that_the_flush_of_an_eject_meets_is_reported_by_the_last_one_too() {
    let (mut bench, _) = written();
    bench.lose_cache(1);
    bench.disk(0).take_next([Take::Ring, Take::Ring]);
    eject(&mut bench, true);
    bench.cores[0].flush_unit(UNIT);
    bench.finish(0, 0);
    assert_eq!(moved(&mut bench), [Err(UNFLUSHED)]);
    bench.cores[0].note_loss_delivered(UNIT, 1);
    bench.finish_all(0);
    assert!(
        matches!(
            &bench.reports[..],
            [(_, Report::Flushed { failure: Some(failure), .. })] if *failure == CACHE_LOST
        ),
        "{:?}",
        bench.reports
    );
    bench.reports.clear();
    bench.end();
}

/// A loss during the flush, whose request the store repeats.
#[test]
fn a_flush_that_is_under_way_reports_what_is_lost_meanwhile() {
    let mut bench = Bench::with_far_store(1);
    let who = bench.log_in(0);
    write(&mut bench, who);
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::synchronize());
    bench.lose_cache(1);
    bench.finish_all(0);
    assert_eq!(bench.answer(who).end(), LOST);
    write(&mut bench, who);
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.end();
}

#[test]
fn an_initiator_that_left_learns_of_it_when_it_is_back_and_an_abort_is_no_report() {
    let mut bench = Bench::with_far_store(2);
    let name = port_name(77);
    let who = bench.log_in_as(0, name.clone(), &[visible(0, 0)], None);
    write(&mut bench, who);
    bench.lose_cache(1);
    // It asks, and is gone before the answer.
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::synchronize());
    bench.end_session(who);
    bench.finish_everything();
    let other = bench.log_in(1);
    assert_eq!(flush(&mut bench, other), GOOD);
    let back = bench.log_in_as(1, name, &[visible(0, 0)], None);
    assert_eq!(flush(&mut bench, back), LOST);
    assert_eq!(flush(&mut bench, back), GOOD);
    bench.end();
}

#[test]
fn the_last_flush_reports_to_an_administrator_what_no_initiator_knows() {
    for is_back in [false, true] {
        let mut bench = Bench::with_far_store(2);
        let name = port_name(77);
        let who = bench.log_in_as(1, name.clone(), &[visible(0, 0)], None);
        write(&mut bench, who);
        bench.disk(0).know_all_flushed();
        bench.lose_cache(1);
        bench.end_session(who);
        assert!(bench.cores[0].may_have_unflushed(UNIT));
        if is_back {
            let back = bench.log_in_as(0, name, &[visible(0, 0)], None);
            assert_eq!(flush(&mut bench, back), LOST);
        }
        let expected = (!is_back).then_some(CACHE_LOST);
        assert_eq!(bench.cores[0].may_have_unflushed(UNIT), !is_back);
        assert_eq!(last_flush(&mut bench), expected);
        bench.end();
    }
}

/// As a composition that keeps to what its members keep; a write that is durable is no concern.
#[test]
fn a_durable_write_and_a_good_flush_leave_nothing_to_report() {
    let mut bench = Bench::with_far_store(1);
    let who = bench.log_in(0);
    // Its writes are what is lost.
    let other = bench.log_in(0);
    write(&mut bench, other);
    let mut durable = cdb::write(0, 1, 9);
    durable.bytes[1] |= 0x08;
    bench.send(who, durable);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.lose_cache(1);
    assert_eq!(flush(&mut bench, who), GOOD);
    write(&mut bench, who);
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.lose_cache(2);
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.end();
}

/// W is sent, then F; F is answered first.
#[test]
fn a_write_that_ends_after_a_flush_is_not_covered_by_it() {
    let mut bench = Bench::with_far_store(1);
    let who = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 9));
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.finish_all(0);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.lose_cache(1);
    assert_eq!(flush(&mut bench, who), LOST);
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.end();
}

/// READ and VERIFY of what the medium holds have dirty data written back first, and say nothing of it.
#[test]
fn what_reads_the_medium_takes_no_report() {
    let mut bench = Bench::with_far_store(1);
    let who = bench.log_in(0);
    write(&mut bench, who);
    bench.lose_cache(1);
    let mut read = cdb::read(0, 1);
    read.bytes[1] |= 0x08;
    bench.send(who, read);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.send(who, cdb::verify(0, 1, 9));
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(flush(&mut bench, who), LOST);
    bench.end();
}

#[test]
fn a_report_is_made_again_to_who_is_back_within_the_hour_or_broke_off() {
    let hour = Duration::from_secs(3600);
    for (is_farewell, away) in [(true, ABORT), (false, ABORT), (true, hour), (false, hour)] {
        let mut bench = Bench::with_far_store(1);
        let name = port_name(77);
        let who = bench.log_in_as(0, name.clone(), &[visible(0, 0)], None);
        write(&mut bench, who);
        bench.lose_cache(1);
        assert_eq!(flush(&mut bench, who), LOST);
        if is_farewell {
            let session = bench.cores[0].session_mut(who.key);
            session.unwrap().note_farewell();
        }
        bench.end_session(who);
        bench.pass(away);
        let back = bench.log_in_as(0, name, &[visible(0, 0)], None);
        let is_over = is_farewell && away == hour;
        let expected = if is_over { GOOD } else { LOST };
        assert_eq!(flush(&mut bench, back), expected);
        assert_eq!(flush(&mut bench, back), GOOD);
        bench.end();
    }
}

/// As a concat of files that gets a part which is somewhere else.
#[test]
fn a_store_that_grows_by_a_part_that_may_lose_something_has_a_book_from_then_on() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.lose_cache(0);
    for disk in [bench.disk(0), bench.disk(1)] {
        disk.resize(1 << 21);
    }
    let receipt: Receipt = Rc::default();
    bench.cores[0].handle_size_changed(UNIT, receipt);
    bench.settle();
    let losses = Arc::default();
    for core in &mut bench.cores {
        core.share_losses(UNIT, &losses);
    }
    let capacity = (Status::CheckCondition, Some((6, 0x2a, 9)));
    assert_eq!(flush(&mut bench, who), capacity, "it has changed");
    write(&mut bench, who);
    bench.lose_cache(1);
    assert_eq!(flush(&mut bench, who), LOST);
    assert_eq!(flush(&mut bench, who), GOOD);
    bench.end();
}

/// Its flush goes on without it, and there is nobody to say it to.
#[test]
fn a_loss_that_is_met_after_an_eject_was_given_up_is_reported_by_the_next_one() {
    let (mut bench, who) = written();
    bench.saves_at_once = true;
    bench.end_session(who);
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.pass(ABORT);
    let late = MediumFailure::Unflushed(FlushFailure::NotInTime);
    assert_eq!(moved(&mut bench), [Err(late)]);
    bench.lose_cache(1);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), []);
    for _ in 0..2 {
        eject(&mut bench, false);
        assert_eq!(moved(&mut bench), [Err(UNFLUSHED)], "nobody has it");
    }
    bench.cores[0].note_loss_delivered(UNIT, 1);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.end();
}

/// Its caller may have given up waiting, or the program ends and drops it.
#[test]
fn a_loss_that_an_order_reports_is_reported_by_the_last_flush_unless_its_caller_has_it() {
    for is_delivered in [false, true] {
        let (mut bench, who) = written();
        bench.end_session(who);
        bench.disk(0).take_next([Take::Ring]);
        eject(&mut bench, false);
        bench.lose_cache(1);
        bench.finish_all(0);
        assert_eq!(moved(&mut bench), [Err(UNFLUSHED)]);
        if is_delivered {
            bench.cores[0].note_loss_delivered(UNIT, 1);
        }
        assert_eq!(
            last_flush(&mut bench),
            (!is_delivered).then_some(CACHE_LOST)
        );
        bench.end();
    }
}

/// Between the flush of an order and the moment in which its caller has the outcome.
#[test]
fn a_loss_that_comes_after_the_flush_of_an_order_counts_as_reported_to_nobody() {
    let (mut bench, who) = written();
    bench.lose_cache(1);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench).len(), 1);
    write(&mut bench, who);
    bench.lose_cache(2);
    bench.cores[0].note_loss_delivered(UNIT, 1);
    eject(&mut bench, false);
    let again = FlushFailure::CacheLost { lost: 2 };
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Unflushed(again))]);
    // An order that ends before its flush reports none.
    bench.cores[0].leave_unit(UNIT);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Gone)]);
    assert_eq!(MediumFailure::Gone.loss(), None);
    assert!(last_flush(&mut bench).is_some());
    bench.end();
}
