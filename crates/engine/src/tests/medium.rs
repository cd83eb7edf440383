//! A medium is ejected and loaded, by initiators and by an administrator.

use std::sync::Arc;

use scsi::Status;
use store::{Capabilities, IoFailure};

use super::bench::{ABORT, Bench, FENCE, MOMENT, UNIT, in_every_order, profile, visible};
use super::cdb;
use super::disk::{Disk, Take, capabilities};
use super::fence::choose_way;
use super::outside::{GOOD, Receipt};
use crate::{FlushFailure, Limits, MediumFailure, MediumOrder, News, Report};

pub(super) const EJECT: u8 = 0x02;
pub(super) const LOAD: u8 = 0x03;
const NO_MEDIUM: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((2, 0x3a, 0)));
const NOW_READY: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((6, 0x28, 0)));
const PREVENTED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((5, 0x53, 2)));

fn order(bench: &mut Bench, order: MediumOrder) {
    bench.cores[0].move_medium(UNIT, order);
    bench.settle();
}

pub(super) fn eject(bench: &mut Bench, force: bool) {
    order(bench, MediumOrder::Eject { force });
}

/// The outcomes of orders since the last call.
pub(super) fn moved(bench: &mut Bench) -> Vec<Result<(), MediumFailure>> {
    let mut outcomes = Vec::new();
    bench.reports.retain(|(core, report)| {
        let Report::MediumMoved { unit, outcome } = report else {
            return true;
        };
        assert_eq!((*core, *unit), (0, UNIT));
        outcomes.push(outcome.clone());
        false
    });
    outcomes
}

/// How often the owner has said that the medium is another, since the last call.
fn changes(bench: &mut Bench) -> usize {
    let before = bench.reports.len();
    bench.reports.retain(|(core, report)| {
        assert_eq!(*core, 0, "the owner reports it");
        !matches!(report, Report::StateChanged { unit: UNIT })
    });
    before - bench.reports.len()
}

fn is_in(bench: &Bench) -> bool {
    let owner = bench.cores[0].owner(UNIT).unwrap();
    owner.medium().unwrap().is_in
}

#[test]
fn an_eject_waits_for_what_is_at_work_and_stops_what_comes() {
    for by_administrator in [false, true] {
        let mut bench = Bench::new(2).saving();
        let (ejector, writer, late) = (bench.log_in(0), bench.log_in(1), bench.log_in(1));
        bench.disk(1).take(Take::Ring);
        bench.send(writer, cdb::write(4, 2, 9));
        if by_administrator {
            eject(&mut bench, false);
        } else {
            bench.send(ejector, cdb::start_stop(EJECT));
        }
        bench.send(late, cdb::write(900, 1, 5));
        assert_eq!(bench.disk(0).log(), [""; 0], "the write is at work");
        assert_eq!(bench.answers(late), [], "it is parked");
        assert!(is_in(&bench));
        bench.finish(1, 0);
        assert_eq!(bench.answer(writer).end(), GOOD);
        if by_administrator {
            assert_eq!(moved(&mut bench), [Ok(())]);
        } else {
            assert_eq!(bench.answer(ejector).end(), GOOD);
        }
        assert_eq!(bench.disk(0).log(), ["flush"]);
        assert_eq!(bench.answer(late).end(), NO_MEDIUM);
        assert_eq!(bench.disk(1).log(), ["write 4+2"]);
        assert_eq!(changes(&mut bench), 1);
        let news = News::MediumMoved {
            unit: UNIT,
            is_in: false,
        };
        assert_eq!(bench.news(0), [news]);
        assert_eq!(bench.news(1), []);
        bench.end();
    }
}

/// It was let pass before, and finds the medium gone when its data is there.
#[test]
fn a_write_whose_data_comes_after_the_eject_does_not_land() {
    for is_loaded_before in [false, true] {
        write_after_eject(is_loaded_before);
    }
}

fn write_after_eject(is_loaded_before: bool) {
    let mut bench = Bench::new(2).saving();
    let (ejector, writer) = (bench.log_in(0), bench.log_in(1));
    let id = bench.send(
        writer,
        cdb::write(0, 1, 7).coming(super::outside::Came::Later),
    );
    bench.send(ejector, cdb::start_stop(EJECT));
    assert_eq!(bench.answer(ejector).end(), GOOD);
    if is_loaded_before {
        // What is in then may be another medium.
        bench.send(ejector, cdb::start_stop(LOAD));
        assert_eq!(bench.answer(ejector).end(), GOOD);
    }
    bench.bring_data(writer, id, &[7; cdb::BLOCK]);
    assert_eq!(bench.answer(writer).end(), NO_MEDIUM);
    assert_eq!(bench.disk(1).log(), [""; 0]);
    bench.end();
}

#[test]
fn a_loaded_medium_has_its_data_and_everybody_is_told() {
    for by_administrator in [false, true] {
        let mut bench = Bench::new(2).saving();
        let (loader, other) = (bench.log_in(0), bench.log_in(1));
        bench.send(other, cdb::write(3, 1, 8));
        bench.send(other, cdb::start_stop(EJECT));
        assert_eq!(bench.answers(other).len(), 2);
        if by_administrator {
            order(&mut bench, MediumOrder::Load);
            assert_eq!(moved(&mut bench), [Ok(())]);
            bench.send(loader, cdb::test_unit_ready());
            assert_eq!(bench.answer(loader).end(), NOW_READY);
        } else {
            bench.send(loader, cdb::start_stop(LOAD));
            assert_eq!(bench.answer(loader).end(), GOOD);
        }
        bench.send(other, cdb::read(3, 1));
        assert_eq!(bench.answer(other).end(), NOW_READY);
        bench.send(other, cdb::read(3, 1));
        assert_eq!(bench.answer(other).data[0], 8);
        assert_eq!(changes(&mut bench), 2);
        bench.end();
    }
}

#[test]
fn an_administrator_is_refused_while_somebody_prevents_and_holds_nobody_up() {
    let mut bench = Bench::new(2).saving();
    let (holder, other) = (bench.log_in(1), bench.log_in(0));
    bench.send(holder, cdb::prevent(true));
    assert_eq!(bench.answer(holder).end(), GOOD);
    assert_eq!(changes(&mut bench), 1);
    bench.cores[0].move_medium(UNIT, MediumOrder::Eject { force: false });
    bench.step(0);
    assert!(bench.ways().is_empty(), "no fence is asked for");
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Prevented)]);
    bench.send(other, cdb::start_stop(EJECT));
    assert_eq!(bench.answer(other).end(), PREVENTED);
    eject(&mut bench, true);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.send(other, cdb::test_unit_ready());
    assert_eq!(bench.answer(other).end(), NO_MEDIUM);
    bench.end();
}

/// The owner has the last word: PREVENT came while the medium was flushed.
#[test]
fn prevention_that_comes_during_an_eject_wins() {
    let mut bench = Bench::new(2).saving();
    let holder = bench.log_in(1);
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.send(holder, cdb::prevent(true));
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Prevented)]);
    assert!(is_in(&bench));
    bench.end();
}

#[test]
fn the_end_of_a_session_ends_what_it_prevents() {
    let mut bench = Bench::new(2).saving();
    let holder = bench.log_in(1);
    bench.send(holder, cdb::prevent(true));
    bench.end_session(holder);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.end();
}

/// How many nexuses prevent the removal.
fn preventing(bench: &Bench) -> usize {
    let owner = bench.cores[0].owner(UNIT).unwrap();
    owner.medium().unwrap().prevented_by.len()
}

/// The nexus loses the unit with its number, whether a command of it waits or not.
#[test]
fn prevention_and_reservation_end_when_the_unit_gets_another_number() {
    for waits in [false, true] {
        let mut bench = Bench::new(2).saving();
        let (holder, other) = (bench.log_in(1), bench.log_in(0));
        for cdb in [cdb::prevent(true), cdb::reserve()] {
            bench.send(holder, cdb);
            assert_eq!(bench.answer(holder).end(), GOOD);
        }
        if waits {
            bench.disk(1).take(Take::Ring);
            bench.send(holder, cdb::write(0, 1, 1));
        }
        bench.cores[1].take_lun(holder.key, 0, Receipt::default());
        bench.cores[1].give_lun(holder.key, visible(3, 0), Receipt::default());
        bench.settle();
        assert_eq!(preventing(&bench), 0, "a command waits: {waits}");
        bench.send(other, cdb::read(4, 1));
        assert_eq!(bench.answer(other).end(), GOOD, "it is not reserved");
        // What it prevents by the new number stays when the last command of before has ended.
        bench.disk(1).take(Take::Now);
        bench.send(holder, cdb::test_unit_ready().to(3));
        bench.answer(holder);
        bench.send(holder, cdb::prevent(true).to(3));
        assert_eq!(bench.answer(holder).end(), GOOD);
        bench.finish_all(1);
        bench.settle();
        assert_eq!(preventing(&bench), 1);
        bench.answers(holder);
        bench.end();
    }
}

#[test]
fn an_order_that_moves_nothing_is_carried_out() {
    let mut bench = Bench::new(1).saving();
    order(&mut bench, MediumOrder::Load);
    eject(&mut bench, false);
    eject(&mut bench, true);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(bench.disk(0).log(), ["flush"; 3]);
    assert_eq!(changes(&mut bench), 1, "one of them has moved it");
    bench.end();
}

#[test]
fn commands_that_do_not_end_keep_the_medium_in_at_the_deadline_and_not_before() {
    let mut bench = Bench::new(2).saving();
    let (writer, late) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(writer, cdb::write(0, 1, 9));
    eject(&mut bench, false);
    bench.pass(FENCE - MOMENT);
    bench.send(late, cdb::write(9, 1, 5));
    assert_eq!((moved(&mut bench), bench.answers(late)), (vec![], vec![]));
    bench.pass(MOMENT);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
    assert_eq!(bench.answer(late).end(), GOOD, "the fence is gone");
    bench.finish_all(1);
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert!(is_in(&bench));
    assert_eq!(bench.disk(0).log(), [""; 0]);
    bench.end();
}

/// Whether it is given up before the order or while its fence is awaited.
#[test]
fn a_request_that_may_still_land_keeps_the_medium_in() {
    for is_given_up_before in [true, false] {
        let mut bench = Bench::new(2).saving();
        let writer = bench.log_in(1);
        bench.disk(1).take_next([Take::Ring]);
        bench.send(writer, cdb::write(0, 1, 9));
        bench.end_session(writer);
        if is_given_up_before {
            bench.pass(ABORT);
            eject(&mut bench, true);
        } else {
            eject(&mut bench, true);
            bench.pass(ABORT);
            assert_eq!(moved(&mut bench), []);
            bench.pass(FENCE - ABORT);
        }
        assert_eq!(bench.refusing(), [0, 1]);
        assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
        assert!(is_in(&bench));
        assert_eq!(bench.disk(0).log(), [""; 0], "nothing begins beside it");
        bench.finish_all(1);
        eject(&mut bench, false);
        assert_eq!(moved(&mut bench), [Ok(())]);
        bench.end();
    }
}

#[test]
fn a_medium_that_cannot_be_flushed_stays_in() {
    let failure = IoFailure::Hardware { errno: 5 };
    let mut bench = Bench::new(1).saving();
    let other = bench.log_in(0);
    bench.disk(0).take_next([Take::Fail(failure.clone())]);
    eject(&mut bench, true);
    let unflushed = MediumFailure::Unflushed(FlushFailure::Store(failure));
    assert_eq!(moved(&mut bench), [Err(unflushed)]);
    bench.send(other, cdb::write(0, 1, 9));
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.end();
}

#[test]
fn a_flush_that_hangs_keeps_the_medium_in_at_the_deadline_and_not_before() {
    let mut bench = Bench::new(1).saving();
    let other = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.send(other, cdb::write(0, 1, 9));
    bench.pass(ABORT - MOMENT);
    assert_eq!((moved(&mut bench), bench.answers(other)), (vec![], vec![]));
    bench.pass(MOMENT);
    let late = MediumFailure::Unflushed(FlushFailure::NotInTime);
    assert_eq!(moved(&mut bench), [Err(late)]);
    assert_eq!(bench.answer(other).end(), GOOD);
    // The flush is still there, and is no answer to the next order.
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), []);
    assert!(is_in(&bench));
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Ok(())]);
    bench.end();
}

/// Then the store is free for the next one, and what it answers late is nobody's.
#[test]
fn the_flush_of_an_eject_is_given_up_when_it_hangs_on() {
    for take in [Take::Ring, Take::Pending] {
        let mut bench = Bench::new(1).saving();
        bench.disk(0).take_next([take.clone()]);
        eject(&mut bench, false);
        bench.pass(ABORT);
        let late = MediumFailure::Unflushed(FlushFailure::NotInTime);
        assert_eq!(moved(&mut bench), [Err(late)]);
        bench.pass(ABORT * 2 - MOMENT);
        assert_eq!(bench.disk(0).cancelled(), []);
        bench.pass(MOMENT);
        assert_eq!(bench.disk(0).cancelled().len(), 1);
        eject(&mut bench, false);
        assert_eq!(moved(&mut bench), [Ok(())]);
        bench.end_what_hangs(&take);
        assert_eq!(moved(&mut bench), []);
        bench.end();
    }
}

#[test]
fn an_eject_that_is_not_safe_has_not_happened() {
    let mut bench = Bench::new(1);
    let ejector = bench.log_in(0);
    bench.send(ejector, cdb::start_stop(EJECT));
    assert_eq!(bench.answers(ejector), []);
    bench.keep(false);
    assert_eq!(bench.answer(ejector).status, Status::CheckCondition);
    assert!(is_in(&bench));
    eject(&mut bench, false);
    bench.keep(true);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(!is_in(&bench));
    bench.end();
}

/// Puts another store, which is empty, in the place of that of each core.
fn exchange(bench: &mut Bench, size_bytes: u64) -> Vec<bool> {
    let capabilities = Capabilities {
        size_bytes,
        ..capabilities()
    };
    let (disk, profile) = (
        Disk::new(&capabilities),
        Arc::new(profile(capabilities.clone())),
    );
    let exchanged = bench.cores.iter_mut().map(|core| {
        let store = disk.other_handle().store();
        core.exchange_store(UNIT, &profile, store)
    });
    let exchanged = exchanged.collect();
    bench.settle();
    exchanged
}

#[test]
fn an_exchanged_medium_is_reported_and_reservations_stay() {
    let mut bench = Bench::new(2).saving();
    let (holder, other) = (bench.log_in(0), bench.log_in(1));
    bench.send(holder, cdb::write(3, 1, 8));
    assert_eq!(bench.answer(holder).end(), GOOD);
    bench.send(holder, cdb::reserve());
    assert_eq!(bench.answer(holder).end(), GOOD);
    assert_eq!(changes(&mut bench), 1);
    eject(&mut bench, false);
    assert_eq!(exchange(&mut bench, 4096 * cdb::BLOCK as u64), [true, true]);
    assert!(!is_in(&bench));
    order(&mut bench, MediumOrder::LoadAnother);
    assert_eq!(moved(&mut bench), [Ok(()), Ok(())]);
    assert_eq!(changes(&mut bench), 2);
    assert_eq!(bench.cores[0].owner(UNIT).unwrap().shared().blocks, 4096);
    bench.send(holder, cdb::read(3, 1));
    assert_eq!(bench.answer(holder).end(), NOW_READY);
    bench.send(holder, cdb::read(3, 1));
    let read = bench.answer(holder);
    assert_eq!((read.end(), read.data), (GOOD, vec![0; cdb::BLOCK]));
    bench.send(other, cdb::read(3, 1));
    assert_eq!(bench.answer(other).end().0, Status::ReservationConflict);
    bench.end();
}

/// Although that of an eject hangs before it.
#[test]
fn a_last_flush_has_its_whole_time() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring, Take::Ring]);
    eject(&mut bench, false);
    bench.pass(ABORT);
    assert_eq!(moved(&mut bench).len(), 1);
    bench.cores[0].flush_unit(UNIT);
    bench.pass(ABORT * 3 - MOMENT);
    assert_eq!(bench.cores[0].flushing_units().count(), 1);
    bench.pass(MOMENT);
    assert_eq!(bench.cores[0].flushing_units().count(), 0);
    bench.finish_all(0);
    bench.reports.clear();
    bench.end();
}

#[test]
fn of_two_orders_at_once_one_is_carried_out() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    order(&mut bench, MediumOrder::Load);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(!is_in(&bench));
    bench.end();
}

/// It is not closed before the order has an answer.
#[test]
fn a_unit_whose_medium_is_being_moved_is_not_idle() {
    let mut bench = Bench::new(1).saving();
    bench.cores[0].move_medium(UNIT, MediumOrder::Load);
    assert!(!bench.cores[0].is_unit_idle(UNIT));
    bench.settle();
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(bench.cores[0].is_unit_idle(UNIT));
    bench.end();
}

/// The order was given up, so commands went on, and what they wrote is not covered by its flush.
#[test]
fn the_last_flush_begins_when_that_of_an_eject_is_over() {
    let mut bench = Bench::new(1).saving();
    let writer = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.pass(ABORT);
    assert_eq!(moved(&mut bench).len(), 1);
    bench.send(writer, cdb::write(0, 1, 9));
    assert_eq!(bench.answer(writer).end(), GOOD);
    bench.disk(0).take_next([Take::Ring]);
    bench.cores[0].flush_unit(UNIT);
    assert_eq!(bench.cores[0].flushing_units().count(), 1);
    bench.disk(0).log();
    for (flushes, left) in [(1, 1), (0, 0)] {
        let number = bench.under_way(0)[0];
        bench.finish(0, number);
        assert_eq!(bench.disk(0).log(), vec!["flush"; flushes]);
        assert_eq!(bench.cores[0].flushing_units().count(), left);
        assert_eq!(bench.reports.len(), 1 - left, "{:?}", bench.reports);
    }
    bench.reports.clear();
    bench.end();
}

/// As one of a store that had no room until now.
#[test]
fn a_flush_that_no_store_has_becomes_the_last_one() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Full]);
    eject(&mut bench, false);
    bench.cores[0].flush_unit(UNIT);
    assert_eq!(bench.disk(0).log(), [""; 0]);
    bench.pass(MOMENT * 10_000);
    assert_eq!(bench.disk(0).log(), ["flush"]);
    assert_eq!(bench.cores[0].flushing_units().count(), 0);
    bench.reports.clear();
    bench.end();
}

/// Also where deadlines were made shorter since the one before it began.
#[test]
fn a_last_flush_ends_at_its_own_deadline_and_not_at_that_of_the_one_before() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.cores[0].set_limits(&Limits {
        queue_depth: 16,
        abort_timeout: ABORT / 3,
        fence_timeout: FENCE,
    });
    bench.cores[0].flush_unit(UNIT);
    bench.pass(ABORT - MOMENT);
    assert_eq!(bench.cores[0].flushing_units().count(), 1);
    bench.pass(MOMENT);
    assert_eq!(bench.cores[0].flushing_units().count(), 0);
    bench.finish_all(0);
    bench.reports.clear();
    bench.end();
}

/// However late the core sees that.
#[test]
fn a_last_flush_that_waits_for_another_ends_at_its_deadline() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.cores[0].flush_unit(UNIT);
    bench.disk(0).log();
    bench.pass(ABORT * 4);
    assert_eq!(bench.cores[0].flushing_units().count(), 0);
    assert_eq!(bench.disk(0).log(), [""; 0], "it is too late for it");
    bench.finish_all(0);
    bench.reports.clear();
    bench.end();
}

#[test]
fn the_last_flush_of_a_unit_follows_that_of_an_eject() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring]);
    eject(&mut bench, false);
    bench.cores[0].flush_unit(UNIT);
    assert_eq!(bench.cores[0].flushing_units().count(), 1);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), [Ok(())]);
    let flushed = |(_, report): &(usize, Report<_>)| matches!(report, Report::Flushed { .. });
    assert_eq!(bench.reports.iter().filter(|one| flushed(one)).count(), 1);
    assert_eq!(bench.disk(0).log(), ["flush", "flush"]);
    // No eject begins while the last flush is under way.
    bench.disk(0).take_next([Take::Ring]);
    order(&mut bench, MediumOrder::Load);
    bench.cores[0].flush_unit(UNIT);
    eject(&mut bench, false);
    assert_eq!(moved(&mut bench), [Ok(()), Err(MediumFailure::Busy)]);
    bench.finish_all(0);
    bench.end();
}

#[test]
fn nothing_is_written_to_a_medium_that_was_ejected_whatever_the_order_of_letters() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3).saving();
        let (ejector, writer) = (bench.log_in(1), bench.log_in(2));
        bench.send_only(ejector, cdb::start_stop(EJECT));
        bench.send_only(writer, cdb::compare_and_write(0, 1, 0, 2));
        let (mut choices, mut is_out) = (0, false);
        while let Some(way) = choose_way(&bench, &mut choices, choose) {
            bench.deliver(way);
            let written: Vec<String> = bench.disk(2).log();
            assert!(!is_out || written.is_empty(), "{written:?}");
            is_out |= !bench.port(ejector).answers.is_empty();
        }
        assert_eq!(bench.answer(ejector).end(), GOOD);
        let end = bench.answer(writer).end();
        assert!(end == GOOD || end == NO_MEDIUM, "{end:?}");
        bench.end();
    });
    assert!(orders > 50, "{orders} orders");
}
