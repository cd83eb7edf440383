//! A unit refuses access while a request of the past may still land.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "sets of blocks, of one range"
)]

use std::ops::Range;

use super::bench::{ABORT, Bench, FENCE, UNIT, Who, in_every_order};
use super::cdb;
use super::disk::Take;
use super::fence::choose_way;
use super::medium::{EJECT, LOAD};
use super::outside::{Came, GOOD, REFUSED};
use crate::{ManagementOutcome, MediumFailure, MediumOrder, Report};

/// The blocks of unit 0 to which each core refuses access.
fn refused(bench: &Bench) -> Vec<Vec<Range<u64>>> {
    let cores = bench.cores.iter();
    cores
        .map(|core| core.refused_blocks(UNIT).to_vec())
        .collect()
}

/// A write to blocks 8..16 that hangs in the store of core 1 and was aborted.
fn with_orphan(bench: &mut Bench) -> Who {
    let who = bench.log_in(1);
    bench.disk(1).take_next([Take::Ring]);
    let id = bench.send(who, cdb::write(8, 8, 1));
    bench.abort(who, id);
    bench.pass(ABORT);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Rejected)]);
    who
}

#[test]
fn only_commands_on_blocks_of_an_orphan_are_refused_on_every_core() {
    let mut bench = Bench::new(2);
    with_orphan(&mut bench);
    assert_eq!(refused(&bench), [vec![8..16], vec![8..16]]);
    for core in [0, 1] {
        let who = bench.log_in(core);
        for (lba, end) in [(7, GOOD), (8, REFUSED), (15, REFUSED), (16, GOOD)] {
            let other = if lba < 8 { 0 } else { lba };
            for command in [
                cdb::read(lba, 1),
                cdb::write(lba, 1, 0),
                cdb::write(lba, 1, 0).ordered(),
                cdb::verify(lba, 1, 0),
                cdb::write_and_verify(lba, 1, 0),
                cdb::write_same(lba, 1, 0),
                cdb::compare_and_write(lba, 1, 0, 0),
                cdb::unmap(lba, 1),
                cdb::read(other, u16::try_from(lba - other).unwrap() + 1),
            ] {
                bench.send(who, command.clone());
                assert_eq!(bench.answer(who).end(), end, "core {core}: {command:?}");
            }
        }
        bench.send(who, cdb::read(0, 32));
        assert_eq!(bench.answer(who).end(), REFUSED);
    }
    assert_eq!(bench.disk(1).log()[0], "write 8+8");
    bench.finish_all(1);
    bench.end();
}

#[test]
fn commands_that_touch_no_blocks_go_on_beside_an_orphan() {
    let mut bench = Bench::new(2);
    with_orphan(&mut bench);
    let who = bench.log_in(0);
    for command in [
        cdb::test_unit_ready(),
        cdb::inquiry(),
        cdb::synchronize(),
        cdb::lba_status(),
        cdb::reserve(),
        cdb::release(),
        cdb::prevent(true),
        cdb::prevent(false),
        cdb::stop(),
        cdb::start(),
    ] {
        bench.send(who, command.clone());
        assert_eq!(bench.answer(who).end(), GOOD, "{command:?}");
    }
    bench.finish_all(1);
    bench.end();
}

#[test]
fn an_orphan_that_comes_back_lifts_its_range_and_no_other() {
    let mut bench = Bench::new(2);
    let who = bench.log_in(1);
    bench
        .disk(1)
        .take_next([Take::Ring, Take::Ring, Take::Ring]);
    for (lba, blocks) in [(0, 4), (20, 1), (2, 4)] {
        bench.send(who, cdb::write(lba, blocks, 1));
    }
    bench.end_session(who);
    bench.pass(ABORT);
    assert_eq!(refused(&bench), [[0..6, 20..21], [0..6, 20..21]]);
    bench.finish(1, 0);
    assert_eq!(refused(&bench), [[2..6, 20..21], [2..6, 20..21]]);
    bench.finish(1, 2);
    assert_eq!(refused(&bench), [vec![20..21], vec![20..21]]);
    bench.finish(1, 1);
    assert_eq!(bench.refusing(), [0; 0]);
    bench.end();
}

#[test]
fn a_write_to_blocks_of_an_orphan_is_refused_before_its_data_is_asked_for() {
    let mut bench = Bench::new(2);
    with_orphan(&mut bench);
    let who = bench.log_in(0);
    bench.send(who, cdb::write(8, 1, 1).coming(Came::Later));
    assert_eq!(bench.answer(who).end(), REFUSED);
    assert_eq!(bench.port(who).asked, []);
    // Which blocks an UNMAP touches is in its data.
    for (lba, end) in [(8, REFUSED), (2, GOOD)] {
        let command = cdb::unmap(lba, 1);
        let data = command.data.clone();
        let id = bench.send(who, command.coming(Came::Later));
        bench.bring_data(who, id, &data);
        assert_eq!(bench.answer(who).end(), end);
    }
    assert_eq!(bench.disk(0).log(), ["unmap 2..3"]);
    bench.finish_all(1);
    bench.end();
}

#[test]
fn an_unmap_beside_orphans_is_refused_from_its_first_block_to_its_last() {
    let mut bench = Bench::new(1);
    let (who, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(who, cdb::unmap(100, 8));
    bench.end_session(who);
    bench.pass(ABORT);
    assert_eq!(refused(&bench), [[100..108]]);
    bench.send(other, cdb::write(99, 1, 1));
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.send(other, cdb::write(107, 1, 1));
    assert_eq!(bench.answer(other).end(), REFUSED);
    bench.finish_all(0);
    bench.end();
}

#[test]
fn a_medium_that_may_still_be_written_is_not_ejected() {
    let mut bench = Bench::new(2).saving();
    with_orphan(&mut bench);
    let who = bench.log_in(0);
    bench.send(who, cdb::start_stop(EJECT));
    assert_eq!(bench.answer(who).end(), REFUSED);
    bench.cores[0].move_medium(UNIT, MediumOrder::Eject { force: true });
    bench.step(0);
    bench.settle();
    bench.pass(FENCE);
    let is_busy = |(_, report): &(usize, Report<_>)| {
        matches!(
            report,
            Report::MediumMoved {
                outcome: Err(MediumFailure::Busy),
                ..
            }
        )
    };
    assert_eq!(bench.reports.iter().filter(|one| is_busy(one)).count(), 1);
    assert!(!bench.cores[0].view(UNIT).unwrap().shared().is_ejected);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.finish_all(1);
    bench.send(who, cdb::start_stop(EJECT));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.send(who, cdb::start_stop(LOAD));
    bench.end();
}

#[test]
fn a_read_that_hangs_refuses_nothing_and_holds_no_fence_up() {
    let mut bench = Bench::new(2).saving();
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    bench
        .disk(1)
        .take_next([Take::Ring, Take::Ring, Take::Ring]);
    bench.send(who, cdb::read(8, 8));
    bench.send(who, cdb::synchronize());
    // It has its fence, and hangs where it reads.
    bench.send(who, cdb::compare_and_write(32, 1, 0, 9));
    bench.end_session(who);
    // This one waits for the fence, and for the read.
    bench.send(other, cdb::compare_and_write(32, 1, 0, 1));
    bench.send(other, cdb::compare_and_write(8, 1, 0, 1));
    bench.pass(ABORT);
    assert!(bench.is_over(who));
    assert_eq!(bench.refusing(), [0; 0]);
    assert_eq!(bench.cores[1].orphans().count(), 3);
    let answers = bench.answers(other);
    assert_eq!(answers.len(), 2);
    assert!(
        answers.iter().all(|(_, answer)| answer.is_good()),
        "{answers:?}"
    );
    for command in [
        cdb::read(8, 8),
        cdb::compare_and_write(9, 1, 0, 2),
        cdb::start_stop(EJECT),
        cdb::start_stop(LOAD),
    ] {
        bench.send(other, command.clone());
        assert_eq!(bench.answer(other).end(), GOOD, "{command:?}");
    }
    assert!(!bench.cores[1].is_unit_idle(UNIT), "they are still there");
    bench.finish_all(1);
    assert_eq!((bench.disk(0).byte(32), bench.disk(0).byte(9)), (1, 2));
    bench.end();
}

#[test]
fn a_command_that_waits_for_a_fence_of_an_orphan_is_refused_in_the_end() {
    let mut bench = Bench::new(2);
    let (who, late) = (bench.log_in(1), bench.log_in(0));
    bench.disk(1).take_next([Take::Now, Take::Ring]);
    bench.send(who, cdb::compare_and_write(8, 1, 0, 1));
    bench.send(late, cdb::write(8, 1, 3));
    assert_eq!(bench.answers(late), [], "it is parked");
    bench.end_session(who);
    bench.pass(ABORT);
    assert_eq!(refused(&bench), [vec![8..9], vec![8..9]]);
    bench.send(late, cdb::compare_and_write(8, 1, 0, 1));
    assert_eq!(bench.answer(late).end(), REFUSED, "it asks for no fence");
    bench.finish_all(1);
    assert_eq!(bench.answer(late).end(), GOOD);
    assert_eq!(bench.disk(0).byte(8), 3, "it comes after the old one");
    bench.end();
}

#[test]
fn a_narrowed_task_that_hangs_where_it_reads_holds_no_fence_up_once_it_is_aborted() {
    let mut bench = Bench::new(2);
    let (who, other) = (bench.log_in(1), bench.log_in(0));
    bench.disk(1).take_next([Take::Ring]);
    let id = bench.send(who, cdb::compare_and_write(8, 1, 0, 7));
    bench.cores[1].set_read_only(who.key, 0, true, std::rc::Rc::new(()));
    bench.pass(ABORT);
    assert_eq!(bench.cores[1].orphans().count(), 1);
    bench.abort(who, id);
    bench.pass(ABORT);
    bench.send(other, cdb::compare_and_write(8, 1, 0, 1));
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.finish_all(1);
    assert_eq!(bench.disk(1).log(), ["read 8+1"]);
    bench.end();
}

/// A task that nobody has aborted goes on when the store gives its request back.
#[test]
fn what_a_narrowed_task_asks_for_next_is_its_own_again() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring, Take::Ring]);
    let id = bench.send(who, cdb::compare_and_write(8, 1, 0, 7));
    for read_only in [true, false] {
        bench.cores[0].set_read_only(who.key, 0, read_only, std::rc::Rc::new(()));
    }
    bench.pass(ABORT);
    assert_eq!(bench.refusing(), [0; 0], "it reads what it compares with");
    assert_eq!(bench.cores[0].orphans().count(), 1);
    bench.finish(0, 0);
    assert_eq!(bench.cores[0].orphans().count(), 0);
    assert_eq!(bench.disk(0).log(), ["read 8+1", "write 8+1"]);
    bench.abort(who, id);
    bench.pass(ABORT);
    assert_eq!(refused(&bench), [[8..9]], "and now it may write");
    bench.finish_all(0);
    bench.end();
}

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
            for (is_over, block) in [(is_answered, 0), (bench.is_over(ending), 1)] {
                let cores = if is_over { 3 } else { 0 };
                for core in 0..cores {
                    let refused = bench.cores[core].refused_blocks(UNIT);
                    let is_refused = refused.iter().any(|range| range.contains(&block));
                    assert!(is_refused, "block {block} on core {core}: {refused:?}");
                }
            }
        }
        assert_eq!(bench.managed(aborting), [(4, ManagementOutcome::Rejected)]);
        assert!(bench.is_over(ending));
        bench.finish(1, 0);
        assert_eq!(refused(&bench), [vec![1..2], vec![1..2], vec![1..2]]);
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

/// A core that is idle once counts as idle, and when all are, the unit is closed on all: before any answer that one of
/// them waits for, that answer would not come.
#[test]
fn a_unit_that_is_removed_is_there_until_the_questions_of_its_orphans_have_answers() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3);
        let who = bench.log_in(1);
        bench.disk(1).take(Take::Ring);
        bench.send(who, cdb::write(0, 1, 1));
        (0..3).for_each(|core| bench.cores[core].leave_unit(UNIT));
        bench.cores[1].end_session(who.key);
        bench.pass_only(ABORT);
        bench.finish_only(1, 0);
        let (mut choices, mut idle, mut is_closed) = (0, [false; 3], false);
        loop {
            for (core, is_idle) in idle.iter_mut().enumerate() {
                *is_idle |= bench.cores[core].is_unit_idle(UNIT);
            }
            if idle == [true; 3] && !is_closed {
                is_closed = true;
                (0..3).for_each(|core| bench.cores[core].close_unit(UNIT));
            }
            let Some(way) = choose_way(&bench, &mut choices, choose) else {
                break;
            };
            bench.deliver(way);
        }
        assert!(is_closed && bench.is_over(who));
        let asks = bench.cores.iter().any(|core| core.asks_to_refuse(UNIT));
        assert!(!asks, "a question is open for ever");
        bench.end();
    });
    assert!(orders > 10, "{orders} orders");
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
    bench.send_only(other, cdb::write(1, 1, 2));
    assert_eq!(bench.answer(other).end(), GOOD);
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
fn each_orphan_of_a_core_asks_and_the_answer_to_the_last_is_that_to_all() {
    let mut bench = Bench::new(2);
    let (one, other) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take(Take::Ring);
    bench.send(one, cdb::write(0, 1, 1));
    bench.send(other, cdb::write(1, 1, 1));
    bench.cores[1].end_session(one.key);
    bench.cores[1].end_session(other.key);
    bench.pass_only(ABORT);
    assert_eq!(bench.letters(1, 0), ["RefuseAccess", "RefuseAccess"]);
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
