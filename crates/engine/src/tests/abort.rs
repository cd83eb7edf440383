//! Tasks that end early, in every stage, and those who wait for that.

use std::time::Duration;

use super::bench::{ABORT, Bench, FENCE, MOMENT, UNIT, Way, Who};
use super::cdb::{self, BLOCK};
use super::disk::Take;
use super::outside::{BUSY, Came, FULL, GOOD};
use crate::{Management, ManagementOutcome, News, Report};

/// A command of `who` in one stage, and another session that helps.
type Enter = fn(&mut Bench, Who, Who) -> u32;

/// How a task comes into each stage in which it can be found, and whether an abort ends it there.
const STAGES: [(&str, Enter, bool); 10] = [
    (
        "dormant",
        |bench, who, _| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::read(90, 1));
            bench.send(who, cdb::write(0, 1, 1).ordered())
        },
        true,
    ),
    (
        "data-out",
        |bench, who, _| bench.send(who, cdb::write(0, 1, 1).coming(Came::Later)),
        true,
    ),
    (
        "ring",
        |bench, who, _| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::write(0, 1, 1))
        },
        false,
    ),
    (
        "helper",
        |bench, who, _| {
            bench.disk(0).take_next([Take::Helper]);
            bench.send(who, cdb::write(0, 1, 1))
        },
        false,
    ),
    (
        "store full",
        |bench, who, _| {
            bench.disk(0).take_next([Take::Full]);
            bench.send(who, cdb::write(0, 1, 1))
        },
        true,
    ),
    (
        "parked",
        |bench, who, other| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(other, cdb::compare_and_write(0, 1, 0, 7));
            bench.send(who, cdb::write(0, 1, 1))
        },
        true,
    ),
    (
        "memory",
        |bench, who, _| {
            bench.leave_memory(0, 0);
            bench.send(who, cdb::read(0, 1))
        },
        true,
    ),
    (
        "owner",
        |bench, who, _| bench.send(who, cdb::register(1)),
        false,
    ),
    (
        "fence",
        |bench, who, other| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(other, cdb::write(0, 1, 7));
            bench.send(who, cdb::compare_and_write(0, 1, 0, 1))
        },
        true,
    ),
    (
        "fence held",
        |bench, who, _| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::compare_and_write(0, 1, 0, 1))
        },
        false,
    ),
];

/// Everything that is under way comes to its end.
fn let_all_end(bench: &mut Bench) {
    bench.finish_all(0);
    while !bench.to_keep().is_empty() {
        bench.keep(true);
    }
    bench.give_memory_back();
    bench.finish_all(0);
}

#[test]
fn an_abort_is_answered_when_the_task_is_over_and_not_before() {
    for (name, enter, is_at_once) in STAGES {
        let mut bench = Bench::new(1);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        let id = enter(&mut bench, who, other);
        assert_eq!(bench.answers(who), [], "{name}");
        bench.abort(who, id);
        let done = [(id, ManagementOutcome::Complete)];
        if is_at_once {
            assert_eq!(bench.managed(who), done, "{name}");
        } else {
            assert_eq!(bench.managed(who), [], "{name}");
            assert_eq!(bench.port(who).abandoned, [0; 0], "{name}");
            let_all_end(&mut bench);
            assert_eq!(bench.managed(who), done, "{name}");
        }
        assert_eq!(bench.port(who).abandoned, [id], "{name}");
        let_all_end(&mut bench);
        assert!(bench.answers(who).iter().all(|(other, _)| *other != id));
        assert_eq!(bench.managed(who), [], "{name}: answered once");
        bench.end();
    }
}

#[test]
fn every_stage_ends_well_by_itself() {
    for (name, enter, _) in STAGES {
        let mut bench = Bench::new(1);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        let id = enter(&mut bench, who, other);
        if name == "data-out" {
            bench.bring_data(who, id, &[1; BLOCK]);
        }
        if name == "store full" {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(other, cdb::read(50, 1));
        }
        let_all_end(&mut bench);
        let answers = bench.answers(who);
        let (_, answer) = answers.iter().find(|(other, _)| *other == id).unwrap();
        let is_changed = ["fence", "parked"].contains(&name);
        assert!(answer.is_good() || is_changed, "{name}: {answer:?}");
        bench.end();
    }
}

#[test]
fn a_session_ends_from_every_stage() {
    for (name, enter, is_at_once) in STAGES {
        let mut bench = Bench::new(1);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        let id = enter(&mut bench, who, other);
        bench.end_session(who);
        // A dormant one waits behind a read of its own session, which is in the store.
        let is_over = is_at_once && name != "dormant";
        assert_eq!(bench.is_over(who), is_over, "{name}");
        let_all_end(&mut bench);
        assert!(bench.is_over(who), "{name}");
        assert!(bench.port(who).abandoned.contains(&id), "{name}");
        assert_eq!(bench.answers(who), [], "{name}");
        bench.end();
    }
}

#[test]
fn what_is_in_the_store_is_cancelled_once_and_keeps_its_place() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    assert_eq!(bench.cancelled(0), [0]);
    assert_eq!(bench.cores[0].task_count(), 1);
    // The next one gets another place.
    bench.send(who, cdb::write(1, 1, 2));
    assert_eq!(bench.cores[0].task_count(), 2);
    bench.finish(0, 0);
    assert_eq!(
        bench.answers(who),
        [],
        "the completion is of the aborted one"
    );
    assert_eq!(bench.cores[0].task_count(), 1);
    bench.finish_all(0);
    assert_eq!(bench.answers(who).len(), 1);
    bench.end();
}

#[test]
fn a_store_that_cannot_be_asked_to_cancel_is_waited_for() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Pending);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    assert_eq!(bench.managed(who), []);
    bench.finish_pending(0);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn the_rest_of_an_aborted_transfer_is_not_begun() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 8, 1));
    bench.abort(who, id);
    bench.finish_with(0, 0, 512);
    assert_eq!(bench.under_way(0), [0; 0]);
    assert_eq!(bench.disk(0).cancelled().len(), 1);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Complete)]);
    bench.end();
}

#[test]
fn two_aborts_of_one_command_are_both_answered() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    for number in [70, 71] {
        bench.manage(who, number, Management::AbortTask(Some(id)));
    }
    bench.finish(0, 0);
    let outcome = ManagementOutcome::Complete;
    assert_eq!(bench.managed(who), [(70, outcome), (71, outcome)]);
    assert_eq!(bench.port(who).abandoned, [id]);
    bench.end();
}

#[test]
fn an_abort_of_nothing_is_complete() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.manage(who, 1, Management::AbortTask(None));
    bench.manage(who, 2, Management::AbortTask(Some(99)));
    let outcome = ManagementOutcome::Complete;
    assert_eq!(bench.managed(who), [(1, outcome), (2, outcome)]);
    bench.end();
}

#[test]
fn the_end_of_one_task_does_not_start_another_that_is_to_end_as_well() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let first = bench.send(who, cdb::write(0, 1, 1).coming(Came::Later));
    let second = bench.send(who, cdb::write(1, 1, 2).ordered());
    let third = bench.send(who, cdb::write(2, 1, 3));
    let commands = vec![first, second, third];
    bench.manage(who, 9, Management::AbortTaskSet { lun: 0, commands });
    assert_eq!(bench.managed(who), [(9, ManagementOutcome::Complete)]);
    assert_eq!(bench.disk(0).log(), [""; 0]);
    assert_eq!(bench.port(who).abandoned.len(), 3);
    bench.end();
}

#[test]
fn a_farewell_is_reported_when_its_tasks_are_over() {
    for is_in_time in [true, false] {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take(Take::Ring);
        let id = bench.send(who, cdb::write(0, 1, 1));
        bench.cores[0].abort_before(who.key, vec![id], 5);
        bench.settle();
        assert!(bench.reports.is_empty());
        if is_in_time {
            bench.finish_all(0);
        } else {
            bench.pass(ABORT);
        }
        let (_, report) = bench.reports.pop().unwrap();
        assert!(
            matches!(report, Report::Farewell { session, farewell: 5, is_complete }
                if session == who.key && is_complete == is_in_time),
            "{report:?}"
        );
        bench.end();
    }
}

#[test]
fn commands_can_end_without_anybody_waiting_for_that() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let ids = vec![bench.send(who, cdb::write(0, 1, 1)), 99];
    bench.cores[0].abort_commands(who.key, ids);
    bench.finish_all(0);
    assert_eq!((bench.answers(who), bench.managed(who)), (vec![], vec![]));
    assert_eq!(bench.port(who).abandoned.len(), 1);
    bench.end();
}

// ---- deadlines -------------------------------------------------------------------------------

#[test]
fn at_the_deadline_an_abort_is_rejected_and_access_refused_until_the_store_gives_it_back() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.pass(ABORT - MOMENT);
    assert_eq!((bench.managed(who), bench.refusing()), (vec![], vec![]));
    bench.pass(MOMENT);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Rejected)]);
    assert_eq!(bench.refusing(), [0]);
    assert_eq!(bench.news(0), [News::StoreStuck { unit: UNIT }]);
    assert_eq!(bench.cores[0].orphans().count(), 1);
    assert!(bench.cores[0].has_orphans());
    bench.finish_all(0);
    assert_eq!(bench.news(0), [News::StoreFreed { unit: UNIT }]);
    assert_eq!(bench.refusing(), [0; 0]);
    assert_eq!((bench.answers(who), bench.managed(who)), (vec![], vec![]));
    assert_eq!(bench.port(who).abandoned, [id]);
    bench.end();
}

#[test]
fn what_ends_at_the_last_moment_is_no_orphan() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.pass(ABORT - MOMENT);
    bench.finish(0, 0);
    bench.pass(MOMENT);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Complete)]);
    assert_eq!(bench.news(0), []);
    bench.end();
}

#[test]
fn a_task_at_the_owner_is_no_orphan_and_its_abort_ends_at_the_deadline() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let id = bench.send(who, cdb::register(1));
    bench.abort(who, id);
    bench.pass(ABORT);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Rejected)]);
    assert_eq!((bench.news(0), bench.refusing()), (vec![], vec![]));
    assert_eq!(bench.cores[0].task_count(), 1, "its answer finds it");
    bench.keep(true);
    assert_eq!(bench.cores[0].task_count(), 0);
    assert_eq!(bench.answers(who), []);
    bench.end();
}

#[test]
fn a_session_ends_at_the_deadline_and_leaves_what_the_store_keeps() {
    let mut bench = Bench::new(1);
    let (who, next) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::write(0, 1, 1));
    bench.end_session(who);
    bench.pass(ABORT - MOMENT);
    assert!(!bench.is_over(who));
    bench.pass(MOMENT);
    assert!(bench.is_over(who));
    let left = bench.over[0].left.clone();
    assert_eq!(left.len(), 1);
    assert!(bench.cores[0].has_task(left[0]));
    assert!(!bench.cores[0].is_unit_idle(UNIT));
    // Its place is given to nobody else.
    bench.send(next, cdb::write(5, 1, 2).coming(Came::Later));
    assert!(bench.cores[0].has_task(left[0]));
    bench.finish(0, 0);
    assert!(!bench.cores[0].has_task(left[0]));
    bench.end();
}

#[test]
fn two_hanging_commands_both_have_to_come_back() {
    let mut bench = Bench::new(1);
    let (one, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take(Take::Ring);
    bench.send(one, cdb::write(0, 1, 1));
    let second = bench.send(other, cdb::write(1, 1, 1));
    bench.end_session(one);
    bench.pass(Duration::from_secs(1));
    bench.abort(other, second);
    bench.pass(ABORT - Duration::from_secs(1));
    assert!(bench.is_over(one));
    assert_eq!(bench.managed(other), []);
    bench.pass(Duration::from_secs(1));
    assert_eq!(
        bench.managed(other),
        [(second, ManagementOutcome::Rejected)]
    );
    assert_eq!(bench.cores[0].orphans().count(), 2);
    bench.news(0);
    bench.finish(0, 0);
    assert_eq!(bench.refusing(), [0], "one may still land");
    assert_eq!(bench.news(0), [], "the store has one still");
    bench.finish(0, 1);
    assert_eq!(bench.refusing(), [0; 0]);
    assert_eq!(bench.news(0), [News::StoreFreed { unit: UNIT }]);
    bench.end();
}

#[test]
fn an_orphan_that_is_aborted_again_is_refused_already() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.pass(ABORT);
    bench.managed(who);
    bench.manage(who, 7, Management::AbortTask(Some(id)));
    bench.pass(ABORT);
    assert_eq!(bench.managed(who), [(7, ManagementOutcome::Rejected)]);
    assert_eq!(bench.cores[0].orphans().count(), 1);
    assert_eq!(bench.news(0).len(), 1, "it is stuck once");
    bench.finish_all(0);
    bench.end();
}

#[test]
fn an_orphan_that_comes_back_before_the_owner_has_answered_ends_the_wait() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench.disk(1).take(Take::Ring);
    bench.send(who, cdb::write(0, 1, 1));
    bench.end_session(who);
    bench.pass_only(ABORT);
    assert_eq!(bench.letters(1, 0), ["RefuseAccess"]);
    assert!(!bench.is_over(who));
    bench.finish_only(1, 0);
    assert!(bench.is_over(who), "nothing may land any more");
    assert!(bench.over[0].left.is_empty());
    assert_eq!(bench.letters(1, 0)[..2], ["RefuseAccess", "RefuseLess"]);
    bench.settle();
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}

#[test]
fn a_core_that_does_not_confirm_holds_sessions_but_no_answers() {
    let mut bench = Bench::new(2);
    let (aborting, ending) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take(Take::Ring);
    let id = bench.send(aborting, cdb::write(0, 1, 1));
    bench.send(ending, cdb::write(1, 1, 1));
    bench.cores[0].handle_management(aborting.key, 4, Management::AbortTask(Some(id)));
    bench.cores[0].end_session(ending.key);
    bench.pass_only(ABORT);
    bench.deliver_own(0);
    bench.pass_only(ABORT - MOMENT);
    assert_eq!(bench.managed(aborting), []);
    bench.pass_only(MOMENT);
    assert_eq!(bench.managed(aborting), [(4, ManagementOutcome::Rejected)]);
    assert!(
        !bench.is_over(ending),
        "its writes might land beside newer ones"
    );
    assert!(bench.news(0).contains(&News::RefusalUnconfirmed));
    bench.pass_only(ABORT);
    assert!(!bench.is_over(ending));
    bench.deliver_all();
    assert!(bench.is_over(ending));
    assert_eq!(bench.managed(aborting), []);
    bench.finish_all(0);
    bench.end();
}

// ---- queues ----------------------------------------------------------------------------------

#[test]
fn who_waits_too_long_in_a_queue_ends_with_the_status_of_the_queue() {
    let answer_memory: Enter = |bench, who, _| {
        bench.port(who).needs_stable_data = true;
        bench.leave_memory(0, 0);
        bench.send(who, cdb::read(0, 1))
    };
    let enter_of = |name: &str| STAGES.iter().find(|row| row.0 == name).unwrap().1;
    let seconds = Duration::from_secs;
    let table = [
        (enter_of("parked"), false, FENCE, BUSY, true),
        (enter_of("memory"), false, seconds(10), FULL, false),
        (answer_memory, true, seconds(10), BUSY, false),
        (enter_of("store full"), false, seconds(20), FULL, true),
    ];
    for (enter, in_place, patience, end, is_write) in table {
        let mut bench = Bench::with_store(1, |store| store.reads_in_place = in_place);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        enter(&mut bench, who, other);
        bench.pass(patience - MOMENT);
        assert_eq!(bench.answers(who), [], "{end:?}");
        bench.pass(MOMENT);
        assert_eq!(bench.answer(who).end(), end);
        let data = is_write.then_some(BLOCK);
        assert_eq!(bench.port(who).returned.pop().map(|one| one.1), data);
        assert_eq!(
            bench.cores[0]
                .leftovers()
                .iter()
                .any(|left| left.contains("tasks")),
            {
                // The holder of the fence is the other session's.
                bench.cores[0].task_count() > 0
            }
        );
        let_all_end(&mut bench);
        assert_eq!(bench.answers(who), [], "it has left its queue");
        bench.end();
    }
}

#[test]
fn a_fence_that_is_long_in_coming_ends_in_busy() {
    let mut bench = Bench::new(1);
    let (who, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(other, cdb::write(0, 1, 7));
    bench.send(who, cdb::compare_and_write(0, 1, 0, 1));
    bench.pass(FENCE - MOMENT);
    assert_eq!(bench.answers(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(who).end(), BUSY);
    bench.finish_all(0);
    bench.send(who, cdb::compare_and_write(0, 1, 7, 1));
    assert_eq!(bench.answer(who).end(), GOOD, "the old fence is down");
    bench.end();
}

#[test]
fn a_wait_in_a_queue_begins_anew_for_each_queue() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.leave_memory(0, 0);
    bench.send(who, cdb::read(0, 1));
    bench.pass(Duration::from_secs(9));
    bench.disk(0).take(Take::Full);
    bench.give_memory_back();
    bench.pass(Duration::from_secs(20) - MOMENT);
    assert_eq!(bench.answers(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(who).end(), FULL);
    bench.end();
}

impl Bench {
    /// Delivers the letters of a core to itself.
    fn deliver_own(&mut self, core: usize) {
        let own = Way {
            from: core,
            to: core,
        };
        self.step(core);
        while self.ways().contains(&own) {
            self.deliver(own);
        }
    }
}
