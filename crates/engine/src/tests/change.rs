//! Changes of a unit's shared state, and of its size.

use std::rc::Rc;
use std::time::Duration;

use super::bench::{ABORT, Bench, MOMENT, UNIT, Way};
use super::cdb;
use super::disk::{SIZE, Take};
use super::outside::{BUSY, Came, FAILED, GOOD, Receipt};
use crate::{ManagementOutcome, News, Version};

/// What a change may wait for.
const PATIENCE: Duration = Duration::from_secs(9);
const CAPACITY_CHANGED: Option<(u8, u8, u8)> = Some((6, 0x2a, 9));

fn registrations(bench: &Bench, core: usize) -> usize {
    let view = bench.cores[core].view(UNIT).unwrap();
    view.shared().reservations.registration_count()
}

#[test]
fn a_change_is_answered_when_it_is_safe_and_every_core_has_it() {
    let mut bench = Bench::new(3);
    let who = bench.log_in(1);
    bench.send(who, cdb::register(1));
    assert_eq!(bench.to_keep(), [(0, UNIT)]);
    assert_eq!(bench.answers(who), []);
    assert!((0..3).all(|core| registrations(&bench, core) == 0));
    bench.keep(true);
    assert_eq!(bench.answer(who).end(), GOOD);
    assert!((0..3).all(|core| registrations(&bench, core) == 1));
    bench.end();
}

#[test]
fn a_change_that_could_not_be_kept_is_in_force_nowhere() {
    let mut bench = Bench::new(3);
    let who = bench.log_in(1);
    bench.send(who, cdb::register(1));
    bench.keep(false);
    assert_eq!(bench.answer(who).end(), FAILED);
    assert!((0..3).all(|core| registrations(&bench, core) == 0));
    bench.send(who, cdb::register(1));
    bench.keep(true);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_change_on_top_of_what_somebody_else_has_saved_is_refused() {
    let mut bench = Bench::new(3);
    let who = bench.log_in(1);
    bench.send(who, cdb::register(1));
    bench.save_too_late();
    bench.settle();
    assert_eq!(bench.answer(who).end(), FAILED);
    bench.send(who, cdb::register(1));
    assert_eq!(bench.to_keep(), [], "what is saved stays");
    assert_eq!(bench.answer(who).end(), FAILED);
    assert!((0..3).all(|core| registrations(&bench, core) == 0));
    bench.send(who, cdb::write(0, 1, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_state_that_is_kept_too_late_is_answered_as_failed_and_those_behind_it_as_busy() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    bench.send(who, cdb::register(1));
    bench.send(other, cdb::reserve());
    bench.pass(PATIENCE - MOMENT);
    assert_eq!((bench.answers(who), bench.answers(other)), (vec![], vec![]));
    bench.pass(MOMENT);
    assert_eq!(bench.answer(who).end(), FAILED);
    assert_eq!(bench.answer(other).end(), BUSY);
    // It is safe now, and must be taken back.
    bench.keep(true);
    assert_eq!(bench.to_keep().len(), 1, "the state in force is kept anew");
    bench.keep(true);
    assert!((0..2).all(|core| registrations(&bench, core) == 0));
    bench.end();
}

#[test]
fn deadlines_of_changes_that_are_over_disturb_no_others() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.send(who, cdb::register(1));
    bench.pass(PATIENCE / 2);
    bench.keep(true);
    bench.send(who, cdb::register(2));
    bench.pass(PATIENCE / 2);
    assert_eq!(bench.answers(who).len(), 1);
    bench.pass(PATIENCE / 2 - MOMENT);
    assert_eq!(bench.answers(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(who).end(), FAILED);
    bench.end();
}

/// Two registrants on two cores; one has a write in the store, and one that awaits its data.
fn registrants() -> (Bench, super::bench::Who, super::bench::Who) {
    let mut bench = Bench::new(2);
    let (one, other) = (bench.log_in(0), bench.log_in(1));
    for (who, key) in [(one, 1), (other, 2)] {
        bench.send(who, cdb::register(key));
        bench.keep(true);
        assert_eq!(bench.answer(who).end(), GOOD);
    }
    bench.disk(1).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 1));
    bench.send(other, cdb::write(1, 1, 1).coming(Came::Later));
    (bench, one, other)
}

#[test]
fn preempt_and_abort_is_answered_when_the_tasks_of_the_victim_are_over() {
    let (mut bench, one, other) = registrants();
    bench.disk(0).take_next([Take::Ring]);
    let own = bench.send(one, cdb::write(8, 1, 1));
    bench.send(one, cdb::preempt_and_abort(1, 2));
    bench.keep(true);
    assert_eq!(bench.answers(one), []);
    assert_eq!(bench.port(other).abandoned.len(), 1);
    assert_eq!((bench.cancelled(0), bench.cancelled(1)), (vec![], vec![0]));
    bench.finish_all(1);
    assert_eq!(bench.port(other).abandoned.len(), 2);
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.finish_all(0);
    let answers = bench.answers(one);
    assert_eq!(answers[0].0, own, "commands of its own go on");
    assert_eq!(registrations(&bench, 1), 1);
    bench.end();
}

#[test]
fn a_preempted_write_that_the_store_keeps_makes_the_answer_no_success() {
    let (mut bench, one, _) = registrants();
    bench.send(one, cdb::preempt_and_abort(1, 2));
    bench.keep(true);
    bench.pass(ABORT - MOMENT);
    assert_eq!(bench.answers(one), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(one).end(), FAILED);
    assert_eq!(bench.refusing(), [0, 1]);
    bench.end();
}

#[test]
fn what_a_session_that_is_gone_has_left_in_the_store_is_preempted_as_well() {
    let (mut bench, one, other) = registrants();
    bench.end_session(other);
    bench.pass(ABORT);
    assert!(bench.is_over(other));
    assert_eq!(bench.refusing(), [0, 1]);
    bench.send(one, cdb::preempt_and_abort(1, 2));
    bench.keep(true);
    assert_eq!(bench.answers(one), [], "its write may still land");
    bench.finish_all(1);
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.end();
}

#[test]
fn an_update_that_ends_nobody_waits_for_nobody() {
    let mut bench = Bench::new(2);
    let (one, other) = (bench.log_in(0), bench.log_in(1));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 1));
    bench.send(one, cdb::register(1));
    bench.keep(true);
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.end();
}

#[test]
fn a_command_whose_data_comes_in_a_chunk_is_carried_to_the_owner() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    let id = bench.send(who, cdb::register(1).coming(Came::Later));
    let list = cdb::register(1).data;
    bench.bring_data(who, id, &list);
    bench.keep(true);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_stop_is_followed_by_a_flush_and_what_fails_after_the_change_is_said() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.send(who, cdb::stop());
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["flush"]);
    bench.send(who, cdb::start());
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_change_that_was_made_is_not_said_to_be_busy() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Full);
    bench.send(who, cdb::stop());
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.answer(who).end(), super::outside::STOPPED);
    bench.end();
}

#[test]
fn a_command_that_the_owner_refused_has_altered_nothing() {
    let mut bench = Bench::new(2);
    let (one, other) = (bench.log_in(0), bench.log_in(1));
    bench.send(one, cdb::reserve());
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.send(other, cdb::reserve());
    let answer = bench.answer(other);
    assert_eq!(answer.status, scsi::Status::ReservationConflict);
    bench.send(one, cdb::release());
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.end();
}

// ---- a unit that is gone ---------------------------------------------------------------------

#[test]
fn where_the_unit_has_gone_questions_are_answered() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.cores[0].close_unit(UNIT);
    bench.send(who, cdb::reserve());
    assert_eq!(bench.answer(who).end(), FAILED);
    let reset = crate::Management::LogicalUnitReset { lun: 0 };
    bench.manage(who, 3, reset);
    assert_eq!(bench.managed(who), [(3, ManagementOutcome::Complete)]);
    bench.cores[1].close_unit(UNIT);
    bench.send(who, cdb::read(0, 1));
    assert!(!bench.answer(who).is_good());
    assert_eq!(bench.disk(1).log(), [""; 0]);
    bench.cores[0].handle_saved(UNIT, &Ok(Version(1)));
    bench.end();
}

/// As by a nexus that leaves another core while the last flush is under way.
#[test]
fn what_an_owner_has_when_its_unit_goes_is_answered() {
    for is_kept in [None, Some(false), Some(true)] {
        let mut bench = Bench::new(2);
        let who = bench.log_in(1);
        bench.send(who, cdb::register(1));
        let reset = crate::Management::LogicalUnitReset { lun: 0 };
        bench.manage(who, 3, reset);
        assert_eq!(bench.managed(who), [], "it waits for its turn");
        if let Some(is_safe) = is_kept {
            bench.keep_only(is_safe);
        }
        bench.cores[0].close_unit(UNIT);
        bench.settle();
        assert_eq!(
            bench.managed(who),
            [(3, ManagementOutcome::Complete)],
            "{is_kept:?}"
        );
        assert_eq!(bench.answers(who).len(), 1);
        bench.cores[1].close_unit(UNIT);
        bench.end();
    }
}

// ---- size ------------------------------------------------------------------------------------

#[test]
fn a_new_size_is_found_by_the_owner_and_reported_on_every_core() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    for core in 0..2 {
        bench.disk(core).resize(2 * SIZE);
        bench.cores[core].probe_some();
    }
    bench.settle();
    assert_eq!((bench.disk(0).probes(), bench.disk(1).probes()), (1, 0));
    let (before, blocks) = (SIZE / 512, 2 * SIZE / 512);
    let news = News::UnitResized {
        unit: UNIT,
        before,
        blocks,
    };
    assert_eq!(bench.news(0), [news]);
    bench.send(who, cdb::test_unit_ready());
    assert_eq!(bench.answer(who).sense, CAPACITY_CHANGED);
    let last = u32::try_from(blocks).unwrap() - 1;
    bench.send(who, cdb::read(last, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.cores[0].probe_some();
    assert_eq!(bench.news(0), [], "the same size is no news");
    bench.end();
}

/// As the export of a server that has grown since Tarn opened it, before its owner can see that it grows.
#[test]
fn a_store_that_has_another_size_when_its_unit_is_added_is_shown_with_it() {
    let mut bench = Bench::with_resized_store(2, 2 * SIZE);
    bench.settle();
    let (before, blocks) = (SIZE / 512, 2 * SIZE / 512);
    for core in &bench.cores {
        assert_eq!(core.view(UNIT).unwrap().shared().blocks, blocks);
    }
    let news = News::UnitResized {
        unit: UNIT,
        before,
        blocks,
    };
    assert_eq!(bench.news(0), [news]);
    assert_eq!(bench.news(1), []);
    bench.end();
}

#[test]
fn one_look_at_a_size_is_under_way_at_a_time() {
    let mut bench = Bench::new(1);
    bench.disk(0).probe_on_ring();
    bench.disk(0).resize(SIZE / 2);
    for _ in 0..3 {
        bench.cores[0].probe_some();
    }
    assert_eq!(bench.disk(0).probes(), 1);
    bench.finish_all(0);
    assert_eq!(bench.news(0).len(), 1);
    bench.cores[0].probe_some();
    assert_eq!(bench.disk(0).probes(), 2);
    bench.finish_all(0);
    bench.end();
}

#[test]
fn many_units_are_looked_at_in_turns() {
    let mut bench = Bench::with_units(1, 20);
    let probes = |bench: &Bench| -> Vec<usize> {
        let units = 0..20;
        units.map(|unit| bench.disk_of(unit, 0).probes()).collect()
    };
    bench.cores[0].probe_some();
    assert_eq!(probes(&bench).iter().sum::<usize>(), 8);
    bench.cores[0].probe_some();
    bench.cores[0].probe_some();
    assert!(probes(&bench).iter().all(|&count| count >= 1));
    bench.end();
}

#[test]
fn an_administrator_who_resizes_has_an_answer_when_every_core_knows() {
    let mut bench = Bench::new(3);
    for core in 0..3 {
        bench.disk(core).resize(2 * SIZE);
    }
    let receipt: Receipt = Rc::default();
    bench.cores[0].handle_size_changed(UNIT, Rc::clone(&receipt));
    bench.step(0);
    bench.pass_only(ABORT);
    assert_eq!(Rc::strong_count(&receipt), 2, "letters are on their way");
    bench.deliver(Way { from: 0, to: 0 });
    let in_force = bench.cores[0].owner(UNIT).unwrap().shared().blocks;
    assert_eq!(in_force, 2 * SIZE / 512);
    bench.cores[0].handle_size_changed(UNIT, Rc::clone(&receipt));
    assert_eq!(
        Rc::strong_count(&receipt),
        3,
        "it is in force and not everywhere"
    );
    bench.settle();
    assert_eq!(Rc::strong_count(&receipt), 1);
    assert!((0..3).all(|core| {
        let shared = bench.cores[core].view(UNIT).unwrap().shared().blocks;
        shared == 2 * SIZE / 512
    }));
    // The same size again, or a core that does not own the unit: done at once.
    for core in [0, 1] {
        bench.cores[core].handle_size_changed(UNIT, Rc::clone(&receipt));
        assert_eq!(Rc::strong_count(&receipt), 1);
    }
    bench.end();
}

/// As by a look each second while what the owner saves hangs.
#[test]
fn a_size_that_the_owner_is_asked_for_is_reported_once_until_it_has_it() {
    let mut bench = Bench::new(2);
    for core in 0..2 {
        bench.disk(core).resize(2 * SIZE);
    }
    let receipt: Receipt = Rc::default();
    for _ in 0..3 {
        bench.cores[0].handle_size_changed(UNIT, Rc::clone(&receipt));
    }
    assert_eq!(
        Rc::strong_count(&receipt),
        4,
        "each has its answer after it"
    );
    let (small, large) = (SIZE / 512, 2 * SIZE / 512);
    let news = |before, blocks| News::UnitResized {
        unit: UNIT,
        before,
        blocks,
    };
    assert_eq!(bench.news(0), [news(small, large)]);
    // It is as it was before the owner has taken the other size.
    for core in 0..2 {
        bench.disk(core).resize(SIZE);
    }
    bench.cores[0].handle_size_changed(UNIT, Rc::clone(&receipt));
    assert_eq!(bench.news(0), [news(large, small)]);
    bench.settle();
    assert_eq!(Rc::strong_count(&receipt), 1);
    for core in &bench.cores {
        assert_eq!(core.view(UNIT).unwrap().shared().blocks, small);
    }
    bench.end();
}

#[test]
fn a_profile_is_another_one_without_a_change_of_state() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(0);
    let view = bench.cores[0].view(UNIT).unwrap();
    let mut profile = scsi::Profile::clone(view.profile());
    profile.identity.product = "ANOTHER".to_owned();
    let (profile, before) = (profile.into(), view.shared().generation);
    for core in 0..2 {
        bench.cores[core].set_profile(UNIT, &profile);
    }
    bench.send(who, cdb::inquiry());
    assert_eq!(&bench.answer(who).data[16..23], b"ANOTHER");
    assert_eq!(
        bench.cores[0].view(UNIT).unwrap().shared().generation,
        before
    );
    bench.end();
}
