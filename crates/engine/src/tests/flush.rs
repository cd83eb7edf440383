//! The last flush of a unit.

use std::time::Duration;

use store::IoFailure;

use super::bench::{Bench, MOMENT, UNIT};
use super::disk::Take;
use crate::{FlushFailure, Report};

/// How long a store that takes no flush is left alone.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a last flush may take.
const PATIENCE: Duration = Duration::from_secs(9);

/// How the last flush of unit 0 ended.
fn flushed(bench: &mut Bench) -> Option<Option<FlushFailure>> {
    assert!(bench.reports.len() <= 1, "{:?}", bench.reports);
    let (_, report) = bench.reports.pop()?;
    let Report::Flushed { unit, failure } = report else {
        panic!("{report:?}");
    };
    assert_eq!(unit, UNIT);
    Some(failure)
}

fn begin(bench: &mut Bench) {
    bench.cores[0].flush_unit(UNIT);
    bench.settle();
}

#[test]
fn a_last_flush_ends_as_the_store_says_however_it_says_it() {
    let failure = IoFailure::Hardware { errno: 5 };
    for take in [Take::Now, Take::Ring, Take::Helper, Take::Pending] {
        let mut bench = Bench::new(1);
        bench.disk(0).take(take.clone());
        begin(&mut bench);
        if take != Take::Now {
            assert_eq!(flushed(&mut bench), None, "{take:?}");
            assert_eq!(bench.cores[0].flushing_units().count(), 1);
        }
        bench.end_what_hangs(&take);
        assert_eq!(flushed(&mut bench), Some(None), "{take:?}");
        assert_eq!(bench.disk(0).log(), ["flush"]);
        assert_eq!(bench.cores[0].flushing_units().count(), 0);
        bench.end();
    }
    for take in [Take::Fail(failure.clone()), Take::Ring, Take::Helper] {
        let mut bench = Bench::new(1);
        bench.disk(0).take(take.clone());
        begin(&mut bench);
        match take {
            Take::Ring => bench.finish_with(0, 0, -5),
            Take::Helper => bench.finish_with(0, 0, 5),
            Take::Fail(_) | Take::Now | Take::Pending | Take::Full => {}
        }
        let expected = FlushFailure::Store(failure.clone());
        assert_eq!(flushed(&mut bench), Some(Some(expected)), "{take:?}");
        bench.end();
    }
}

/// As an image that another client has taken over: what was answered is on the disks of its cluster.
#[test]
fn a_store_that_is_out_of_reach_and_has_no_cache_loses_nothing() {
    for volatile_cache in [false, true] {
        for (failure, is_doubtful) in [
            (IoFailure::NotReady, false),
            (IoFailure::HeldElsewhere, false),
            (IoFailure::FlushLatched, true),
            (IoFailure::Hardware { errno: 5 }, true),
        ] {
            let mut bench = Bench::with_store(1, |one| one.volatile_cache = volatile_cache);
            bench.disk(0).take(Take::Fail(failure.clone()));
            begin(&mut bench);
            let named = is_doubtful || volatile_cache;
            let expected = named.then_some(FlushFailure::Store(failure));
            assert_eq!(flushed(&mut bench), Some(expected));
            bench.end();
        }
        let mut bench = Bench::with_store(1, |one| one.volatile_cache = volatile_cache);
        bench.disk(0).take(Take::Pending);
        begin(&mut bench);
        bench.pass(PATIENCE);
        let expected = volatile_cache.then_some(FlushFailure::NotInTime);
        assert_eq!(flushed(&mut bench), Some(expected));
        bench.end_what_hangs(&Take::Pending);
        bench.end();
    }
}

/// As a disk of a server that is gone, of which programs have only read.
#[test]
fn a_store_that_knows_that_all_is_flushed_loses_nothing_but_by_a_flush_that_failed() {
    for (take, is_doubtful) in [
        (Take::Fail(IoFailure::NotReady), false),
        (Take::Pending, false),
        (Take::Full, false),
        (Take::Fail(IoFailure::FlushLatched), true),
        (Take::Fail(IoFailure::Hardware { errno: 5 }), true),
    ] {
        let mut bench = Bench::new(1);
        bench.disk(0).know_all_flushed();
        bench.disk(0).take(take.clone());
        begin(&mut bench);
        for _ in 0..PATIENCE.as_micros() / PAUSE.as_micros() {
            bench.pass(PAUSE);
        }
        let failure = flushed(&mut bench).expect("an end");
        assert_eq!(failure.is_some(), is_doubtful, "{take:?}");
        bench.end_what_hangs(&take);
        bench.end();
    }
}

#[test]
fn a_store_that_takes_no_flush_for_a_while_is_asked_again() {
    let mut bench = Bench::new(1);
    bench.disk(0).take_next([Take::Full, Take::Full]);
    begin(&mut bench);
    assert_eq!(bench.cores[0].poll_timeout(), Some(bench.now + PAUSE));
    bench.pass(PAUSE - MOMENT);
    assert_eq!(bench.disk(0).log(), [""; 0]);
    bench.pass(MOMENT);
    assert_eq!(flushed(&mut bench), None);
    bench.pass(PAUSE);
    assert_eq!(flushed(&mut bench), Some(None));
    assert_eq!(bench.disk(0).log(), ["flush"]);
    bench.end();
}

#[test]
fn a_store_that_never_takes_a_flush_is_given_up_at_the_deadline_and_not_before() {
    let mut bench = Bench::new(1);
    bench.disk(0).take(Take::Full);
    begin(&mut bench);
    let pauses = u32::try_from(PATIENCE.as_micros() / PAUSE.as_micros()).unwrap();
    for _ in 1..pauses {
        bench.pass(PAUSE);
        assert_eq!(flushed(&mut bench), None);
    }
    bench.pass(PAUSE - MOMENT);
    assert_eq!(flushed(&mut bench), None);
    bench.pass(MOMENT);
    assert_eq!(flushed(&mut bench), Some(Some(FlushFailure::NotTaken)));
    assert_eq!(bench.cores[0].poll_timeout(), None);
    bench.end();
}

/// It is cancelled then, and its answer goes nowhere when it comes.
#[test]
fn a_flush_that_does_not_end_is_given_up_at_its_deadline() {
    for take in [Take::Ring, Take::Pending] {
        let mut bench = Bench::new(1);
        bench.disk(0).take(take.clone());
        begin(&mut bench);
        bench.pass(PATIENCE - MOMENT);
        assert_eq!(flushed(&mut bench), None);
        assert_eq!(bench.disk(0).cancelled(), []);
        bench.pass(MOMENT);
        assert_eq!(flushed(&mut bench), Some(Some(FlushFailure::NotInTime)));
        assert_eq!(bench.disk(0).cancelled().len(), 1);
        assert_eq!(bench.cores[0].flushing_units().count(), 0);
        bench.end_what_hangs(&take);
        assert_eq!(flushed(&mut bench), None);
        bench.end();
    }
}

#[test]
fn units_are_flushed_independently() {
    let mut bench = Bench::with_units(1, 2);
    bench.disk_of(0, 0).take_next([Take::Full]);
    bench.disk_of(1, 0).take_next([Take::Ring]);
    for unit in [UNIT, crate::UnitIndex(1)] {
        bench.cores[0].flush_unit(unit);
    }
    bench.pass(PAUSE);
    assert_eq!(flushed(&mut bench), Some(None));
    bench.finish_all(0);
    let (_, report) = bench.reports.pop().unwrap();
    assert!(matches!(report, Report::Flushed { unit, failure: None } if unit.0 == 1));
    bench.end();
}

#[test]
fn every_failure_says_what_it_is() {
    let store = FlushFailure::Store(IoFailure::FlushLatched).to_string();
    assert_eq!(store, IoFailure::FlushLatched.to_string());
    assert_eq!(
        FlushFailure::NotTaken.to_string(),
        "the store takes no flush"
    );
    assert_eq!(
        FlushFailure::NotInTime.to_string(),
        "it did not end in time"
    );
}

/// As when the program ends, and flushes all units, while one that is removed was flushed and is to be closed.
#[test]
fn a_flush_of_a_unit_that_is_closed_meanwhile_is_neither_waited_for_nor_reported() {
    let mut bench = Bench::with_store(1, |one| one.volatile_cache = true);
    begin(&mut bench);
    assert_eq!(flushed(&mut bench), Some(None));
    bench.disk(0).take(Take::Pending);
    begin(&mut bench);
    bench.cores[0].close_unit(UNIT);
    assert_eq!(bench.cores[0].flushing_units().count(), 0);
    bench.pass(PATIENCE);
    assert_eq!(flushed(&mut bench), None);
    bench.end();
}
