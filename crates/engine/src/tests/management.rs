//! Task management, and resets over all cores.

use scsi::UnitAttention;

use super::bench::{ABORT, Bench, MOMENT, visible};
use super::cdb;
use super::disk::Take;
use super::outside::{Came, GOOD};
use crate::{Management, ManagementOutcome, Report, TargetIndex, VisibleLun};

const LUN_0: Management<u32> = Management::LogicalUnitReset { lun: 0 };
const WARM: Management<u32> = Management::TargetReset { cold: None };

#[test]
fn what_cannot_be_done_is_answered_at_once() {
    let read_only = VisibleLun {
        read_only: true,
        ..visible(0, 0)
    };
    let set = || Management::AbortTaskSet {
        lun: 1 << 48,
        commands: vec![],
    };
    let no_lun = Management::LogicalUnitReset { lun: 1 << 48 };
    let table = [
        (vec![visible(0, 0)], no_lun, ManagementOutcome::NoSuchUnit),
        (vec![visible(0, 0)], set(), ManagementOutcome::NoSuchUnit),
        (vec![read_only], LUN_0, ManagementOutcome::NotAllowed),
        (vec![read_only], WARM, ManagementOutcome::NotAllowed),
        (vec![], WARM, ManagementOutcome::Complete),
    ];
    for (luns, request, outcome) in table {
        let mut bench = Bench::new(1);
        let who = bench.log_in_seeing(0, &luns, None);
        let key = who.key;
        bench.cores[0].handle_management(key, 3, request.clone());
        assert_eq!(bench.managed(who), [(3, outcome)], "{request:?}");
        bench.end();
    }
}

#[test]
fn a_read_only_view_may_abort_its_own_task_set() {
    let mut bench = Bench::new(1);
    let read_only = VisibleLun {
        read_only: true,
        ..visible(0, 0)
    };
    let who = bench.log_in_seeing(0, &[read_only], None);
    let commands = vec![];
    bench.manage(who, 3, Management::AbortTaskSet { lun: 0, commands });
    assert_eq!(bench.managed(who), [(3, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn a_reset_ends_commands_on_all_cores_and_is_answered_after_the_last() {
    let mut bench = Bench::new(3);
    let whos = [0, 1, 2].map(|core| bench.log_in(core));
    for (core, who) in whos.into_iter().enumerate() {
        bench.disk(core).take_next([Take::Ring]);
        bench.send(who, cdb::write(0, 1, 1));
        bench.send(who, cdb::write(1, 1, 1).coming(Came::Later));
    }
    bench.manage(whos[1], 5, LUN_0);
    for core in 0..3 {
        assert_eq!(
            bench.port(whos[core]).abandoned.len(),
            1,
            "the other is in the store"
        );
        assert_eq!(bench.cancelled(core), [0]);
        assert_eq!(bench.managed(whos[1]), []);
        bench.finish_all(core);
    }
    assert_eq!(bench.managed(whos[1]), [(5, ManagementOutcome::Complete)]);
    for who in whos {
        assert_eq!(bench.port(who).abandoned.len(), 2);
        bench.send(who, cdb::test_unit_ready());
        let reset = UnitAttention::LogicalUnitReset.code();
        assert_eq!(bench.answer(who).sense, Some((6, reset.asc, reset.ascq)));
    }
    bench.end();
}

#[test]
fn a_reset_ends_the_commands_of_every_nexus_of_a_core() {
    let mut bench = Bench::new(1);
    let whos = [0, 0, 0].map(|core| bench.log_in(core));
    bench.disk(0).take(Take::Ring);
    for who in whos {
        bench.send(who, cdb::write(0, 1, 1));
    }
    bench.manage(whos[0], 5, LUN_0);
    assert_eq!(bench.cancelled(0), [0, 1, 2]);
    for operation in 0..3 {
        assert_eq!(bench.managed(whos[0]), []);
        bench.finish(0, operation);
    }
    assert_eq!(bench.managed(whos[0]), [(5, ManagementOutcome::Complete)]);
    for who in whos {
        assert_eq!(bench.port(who).abandoned.len(), 1);
    }
    bench.end();
}

#[test]
fn a_change_that_waits_for_its_owner_when_its_unit_is_reset_is_not_answered() {
    let mut bench = Bench::new(2);
    let [one, other, third] = [0, 0, 1].map(|core| bench.log_in(core));
    bench.send(one, cdb::register(1));
    // Both wait behind the change whose state is being made safe.
    bench.manage(other, 5, LUN_0);
    bench.send(third, cdb::register(2));
    bench.keep(true);
    assert_eq!(bench.answer(one).end(), GOOD);
    assert_eq!(bench.managed(other), [(5, ManagementOutcome::Complete)]);
    bench.keep(true);
    assert_eq!(bench.answers(third), []);
    assert_eq!(bench.port(third).abandoned.len(), 1);
    bench.end();
}

#[test]
fn a_reset_of_one_unit_that_is_incomplete_stays_so_when_the_last_is_complete() {
    let mut bench = Bench::with_units(1, 2);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1)]);
    bench.disk_of(0, 0).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    // The reset of the other unit waits behind a change whose state is being made safe.
    bench.send(who, cdb::register(1).to(1));
    bench.manage(who, 8, WARM);
    bench.pass(ABORT);
    assert_eq!(bench.managed(who), [], "one unit is not reset yet");
    bench.keep(true);
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Rejected)]);
    bench.end();
}

#[test]
fn a_reset_that_the_store_holds_up_is_rejected_at_its_deadline() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(0), bench.log_in(1));
    bench.disk(1).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 1));
    bench.manage(who, 5, LUN_0);
    bench.pass(ABORT - MOMENT);
    assert_eq!(bench.managed(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.managed(who), [(5, ManagementOutcome::Rejected)]);
    assert_eq!(bench.refusing(), [0, 1]);
    bench.finish_all(1);
    assert_eq!(bench.managed(who), []);
    bench.end();
}

#[test]
fn a_reset_whose_owner_does_not_answer_is_rejected_and_not_answered_again() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.cores[1].handle_management(who.key, 5, LUN_0);
    bench.pass_only(2 * ABORT - MOMENT);
    assert_eq!(bench.managed(who), []);
    bench.pass_only(MOMENT);
    assert_eq!(bench.managed(who), [(5, ManagementOutcome::Rejected)]);
    bench.settle();
    assert_eq!(bench.managed(who), []);
    bench.end();
}

#[test]
fn a_reset_outlives_the_session_that_asked() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 1));
    bench.manage(who, 5, LUN_0);
    bench.end_session(who);
    assert!(bench.is_over(who));
    bench.finish_all(0);
    assert_eq!(bench.port(who).managed, []);
    assert_eq!(bench.port(other).abandoned.len(), 1);
    bench.end();
}

#[test]
fn a_session_is_not_over_before_a_reset_of_its_own_is_forgiven() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.cores[0].handle_management(who.key, 1, LUN_0);
    bench.cores[0].end_session(who.key);
    bench.settle();
    assert!(bench.is_over(who));
    // Requests of one that is gone lead nowhere.
    bench.cores[0].handle_management(who.key, 2, LUN_0);
    bench.end();
}

#[test]
fn a_target_reset_waits_for_every_unit_and_each_only_once() {
    let mut bench = Bench::with_units(2, 3);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1), (5, 2)]);
    for unit in 0..3 {
        bench.disk_of(unit, 0).take_next([Take::Ring]);
    }
    for lun in [0, 1, 5] {
        bench.send(who, cdb::write(0, 1, 1).to(lun));
    }
    bench.manage(who, 8, WARM);
    for operation in 0..3 {
        assert_eq!(bench.managed(who), []);
        bench.finish(0, operation);
    }
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Complete)]);
    assert!(bench.reports.is_empty(), "sessions stay");
    bench.end();
}

#[test]
fn a_target_reset_is_for_the_units_that_its_nexus_may_write() {
    let mut bench = Bench::with_units(1, 2);
    let read_only = VisibleLun {
        read_only: true,
        ..visible(1, 1)
    };
    let who = bench.log_in_seeing(0, &[visible(0, 0), read_only], None);
    let other = bench.log_in_to(0, &[(0, 0), (1, 1)]);
    bench.manage(who, 8, WARM);
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Complete)]);
    bench.send(other, cdb::write(0, 1, 1));
    assert_ne!(bench.answer(other).end(), GOOD, "the unit was reset");
    bench.send(other, cdb::write(0, 1, 1).to(1));
    assert_eq!(bench.answer(other).end(), GOOD, "it may only be read");
    // All sessions end, whatever this one may write.
    let cold = Some(TargetIndex(7));
    bench.manage(who, 9, Management::TargetReset { cold });
    assert_eq!(bench.managed(who), [(9, ManagementOutcome::Complete)]);
    bench.send(other, cdb::write(0, 1, 1).to(1));
    assert_ne!(
        bench.answer(other).end(),
        GOOD,
        "the other unit was reset, too"
    );
    bench.reports.clear();
    bench.end();
}

#[test]
fn one_unit_that_is_not_reset_well_makes_the_answer_no_success() {
    let mut bench = Bench::with_units(1, 2);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1)]);
    bench.disk_of(0, 0).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    bench.manage(who, 8, WARM);
    bench.pass(ABORT);
    assert_eq!(bench.managed(who), [(8, ManagementOutcome::Rejected)]);
    bench.end();
}

#[test]
fn a_cold_reset_is_reported_when_it_is_done() {
    for is_slow in [false, true] {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        let cold = Some(TargetIndex(7));
        if is_slow {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::write(0, 1, 1));
        }
        bench.manage(who, 8, Management::TargetReset { cold });
        assert_eq!(bench.reports.len(), usize::from(!is_slow));
        bench.pass(ABORT);
        let (_, report) = bench.reports.pop().unwrap();
        assert!(matches!(report, Report::TargetReset(TargetIndex(7))));
        bench.end();
    }
}

#[test]
fn a_reset_ends_a_command_that_waits_at_the_owner_with_its_answer() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    let first = bench.send(who, cdb::register(1));
    let second = bench.send(who, cdb::register(2));
    bench.manage(other, 5, LUN_0);
    assert_eq!(bench.managed(other), [], "changes come one after the other");
    bench.keep(true);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.keep(true);
    let _ids = (first, second);
    assert_eq!(bench.managed(other), [(5, ManagementOutcome::Complete)]);
    bench.end();
}
