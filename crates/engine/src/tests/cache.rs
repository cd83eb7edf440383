//! An administrator has a unit write through, or lets it have a write cache again.

use std::time::Duration;

use scsi::Status;
use store::IoFailure;

use super::bench::{Bench, MOMENT, UNIT};
use super::cdb;
use super::disk::Take;
use super::medium::{eject, moved};
use super::outside::GOOD;
use crate::{FlushFailure, MediumFailure, MediumOrder, Report};

const LIMIT: Duration = Duration::from_secs(5);
/// How long a last flush may take.
const LAST: Duration = Duration::from_secs(9);
/// MODE PARAMETERS CHANGED.
const CHANGED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((6, 0x2a, 1)));

fn order(bench: &mut Bench, order: MediumOrder) {
    bench.cores[0].move_medium(UNIT, order);
    bench.settle();
}

fn write_through(bench: &mut Bench) {
    order(bench, MediumOrder::WriteThrough { limit: LIMIT });
}

fn has_cache(bench: &Bench) -> bool {
    bench.cores[0]
        .owner(UNIT)
        .unwrap()
        .shared()
        .cache
        .is_there()
}

/// Whether writes on a core are answered before they are durable.
fn is_cached(bench: &Bench, core: usize) -> bool {
    bench.cores[core].units[UNIT].view.shared().cache.is_on()
}

#[test]
fn every_core_writes_through_before_the_flush_and_initiators_learn_of_it_after() {
    let mut bench = Bench::new(2);
    let whos = [bench.log_in(0), bench.log_in(1)];
    bench.disk(0).take_next([Take::Ring]);
    write_through(&mut bench);
    assert!(!is_cached(&bench, 0) && !is_cached(&bench, 1));
    assert_eq!(bench.disk(0).log(), ["flush"]);
    for who in whos {
        bench.send(who, cdb::test_unit_ready());
        assert_eq!(bench.answer(who).end(), GOOD, "not yet");
    }
    assert_eq!(moved(&mut bench), []);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), [Ok(())]);
    for who in whos {
        bench.send(who, cdb::test_unit_ready());
        assert_eq!(bench.answer(who).end(), CHANGED);
    }
    order(&mut bench, MediumOrder::WriteBack);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(is_cached(&bench, 0) && is_cached(&bench, 1));
    for who in whos {
        bench.send(who, cdb::test_unit_ready());
        assert_eq!(bench.answer(who).end(), CHANGED);
    }
    bench.end();
}

#[test]
fn a_write_that_is_under_way_is_flushed_when_it_ends() {
    let mut bench = Bench::new(2);
    let writer = bench.log_in(1);
    bench.disk(1).take_next([Take::Ring]);
    bench.send(writer, cdb::write(0, 1, 7));
    write_through(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())], "nobody waits for it");
    assert_eq!(bench.disk(1).log(), ["write 0+1"]);
    bench.finish_all(1);
    assert_eq!(bench.disk(1).log().last().unwrap(), "flush");
    assert_eq!(bench.answer(writer).end(), GOOD);
    bench.end();
}

#[test]
fn a_flush_that_fails_leaves_the_cache_and_nobody_is_told() {
    let failure = IoFailure::Hardware { errno: 5 };
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.disk(0).take_next([Take::Fail(failure.clone())]);
    write_through(&mut bench);
    let unflushed = MediumFailure::Unflushed(FlushFailure::Store(failure));
    assert_eq!(moved(&mut bench), [Err(unflushed)]);
    assert!(has_cache(&bench) && is_cached(&bench, 1));
    bench.send(who, cdb::test_unit_ready());
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_flush_that_hangs_is_given_up_at_the_limit_and_not_before_and_commands_go_on() {
    let mut bench = Bench::new(2);
    let writer = bench.log_in(1);
    bench.disk(0).take_next([Take::Ring]);
    write_through(&mut bench);
    bench.pass(LIMIT - MOMENT);
    bench.send(writer, cdb::write(0, 1, 7));
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert_eq!(moved(&mut bench), []);
    bench.pass(MOMENT);
    let unflushed = MediumFailure::Unflushed(FlushFailure::NotInTime);
    assert_eq!(moved(&mut bench), [Err(unflushed)]);
    assert!(is_cached(&bench, 0) && is_cached(&bench, 1));
    // It hangs still.
    write_through(&mut bench);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
    assert!(is_cached(&bench, 0) && is_cached(&bench, 1));
    bench.finish_all(0);
    write_through(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(!has_cache(&bench));
    order(&mut bench, MediumOrder::NotWriteThrough);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert!(is_cached(&bench, 0) && is_cached(&bench, 1));
    bench.end();
}

#[test]
fn an_eject_meanwhile_is_refused_and_one_that_is_out_is_flushed_all_the_same() {
    let mut bench = Bench::new(1).saving();
    bench.disk(0).take_next([Take::Ring]);
    write_through(&mut bench);
    eject(&mut bench, true);
    assert_eq!(moved(&mut bench), [Err(MediumFailure::Busy)]);
    bench.finish_all(0);
    assert_eq!(moved(&mut bench), [Ok(())]);
    order(&mut bench, MediumOrder::WriteBack);
    eject(&mut bench, false);
    write_through(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(()), Ok(()), Ok(())]);
    assert!(!has_cache(&bench));
    bench.end();
}

/// The end of the last flush of a store that does not answer.
fn hang(bench: &mut Bench) -> Option<FlushFailure> {
    bench.disk(0).take_next([Take::Pending]);
    bench.cores[0].flush_unit(UNIT);
    bench.settle();
    bench.pass(LAST);
    bench.finish_pending(0);
    let (_, report) = bench.reports.pop().expect("an end");
    assert!(bench.reports.is_empty(), "{:?}", bench.reports);
    let Report::Flushed { failure, .. } = report else {
        panic!("{report:?}");
    };
    failure
}

/// The cache is on after a restart, too, so that has to be saved.
#[test]
fn a_cache_whose_state_cannot_be_saved_does_not_come() {
    for is_safe in [false, true] {
        let mut bench = Bench::with_store(2, |store| store.writes_through = true);
        order(&mut bench, MediumOrder::WriteBack);
        assert_eq!(moved(&mut bench), []);
        assert!(!has_cache(&bench));
        bench.keep(is_safe);
        let expected = match is_safe {
            true => Ok(()),
            false => Err(MediumFailure::Gone),
        };
        // What the save may have left is replaced before the answer.
        while !bench.to_keep().is_empty() {
            bench.keep(true);
        }
        assert_eq!(moved(&mut bench), [expected]);
        assert_eq!(has_cache(&bench), is_safe);
        let late = is_safe.then_some(FlushFailure::NotInTime);
        assert_eq!(hang(&mut bench), late, "one that came may hold something");
        bench.end();
    }
}

#[test]
fn a_hung_last_flush_is_named_unless_an_order_has_written_all_through() {
    let mut bench = Bench::with_store(1, |one| one.volatile_cache = true);
    bench.disk(0).take_next([Take::Pending]);
    write_through(&mut bench);
    bench.pass(LIMIT);
    let late = FlushFailure::NotInTime;
    let unflushed = MediumFailure::Unflushed(late.clone());
    assert_eq!(moved(&mut bench), [Err(unflushed)]);
    bench.finish_pending(0);
    assert_eq!(hang(&mut bench), Some(late.clone()));
    write_through(&mut bench);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert_eq!(hang(&mut bench), None);
    order(&mut bench, MediumOrder::WriteBack);
    assert_eq!(moved(&mut bench), [Ok(())]);
    assert_eq!(hang(&mut bench), Some(late));
    bench.end();
}

/// The store has no cache for initiators any more, and still holds what they wrote before.
#[test]
fn a_last_flush_that_hangs_beside_that_of_an_order_is_named() {
    let mut bench = Bench::with_store(1, |one| one.volatile_cache = true);
    bench.disk(0).take_next([Take::Pending]);
    let limit = LAST * 2;
    order(&mut bench, MediumOrder::WriteThrough { limit });
    assert!(!has_cache(&bench));
    bench.cores[0].flush_unit(UNIT);
    bench.settle();
    bench.pass(LAST);
    let unflushed = MediumFailure::Unflushed(FlushFailure::NotInTime);
    assert_eq!(moved(&mut bench), [Err(unflushed)]);
    let failure = Some(FlushFailure::NotInTime);
    assert!(
        matches!(&bench.reports[..], [(_, Report::Flushed { failure: it, .. })] if *it == failure),
        "{:?}",
        bench.reports
    );
    bench.reports.clear();
    bench.finish_pending(0);
    bench.end();
}

#[test]
fn the_flush_of_a_mode_select_needs_no_right_to_write_any_more() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.send(who, cdb::of_bytes(&[0x1a, 0x08, 0x08, 0, 255, 0], 255));
    let mut modes = bench.answer(who).data;
    // Header; page code, page length, WCE.
    modes[..4].fill(0);
    modes[4] &= 0x3f;
    modes[6] &= !0x04;
    let length = u8::try_from(modes.len()).unwrap();
    let select = cdb::with_data(&[0x15, 0x10, 0, 0, length, 0], modes);
    bench.send_only(who, select);
    bench.cores[1].set_read_only(who.key, 0, true, std::rc::Rc::new(()));
    bench.settle();
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["flush"]);
    bench.end();
}
