//! Commands on their way to their answer: every stage, and each of its ends.

use scsi::{Status, TaskAttribute};
use store::IoFailure;

use super::bench::{Bench, MOMENT, UNIT, Who};
use super::cdb::{self, BLOCK, Cdb};
use super::disk::Take;
use super::outside::{Came, FULL, GOOD, REFUSED, STOPPED};
use crate::{Ending, Phase};

#[test]
fn a_simple_command_that_need_not_wait_has_no_place_in_any_table() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    for command in [
        cdb::test_unit_ready(),
        cdb::read(0, 1),
        cdb::write(8, 2, 7),
        cdb::synchronize(),
        cdb::inquiry(),
    ] {
        bench.send(who, command);
        assert_eq!(bench.answer(who).end(), GOOD);
    }
    let counts = bench.cores[0].carrier.hooks.counts;
    assert_eq!(counts, (5, 0, 0), "answered at once, waited, ended");
    assert_eq!(bench.cores[0].task_places(), 0);
    assert_eq!(bench.disk(0).log(), ["read 0+1", "write 8+2", "flush"]);
    bench.end();
}

#[test]
fn a_read_gives_what_was_written_however_the_store_answers() {
    for (number, take) in [Take::Now, Take::Ring, Take::Helper, Take::Pending]
        .into_iter()
        .enumerate()
    {
        let fill = u8::try_from(number).unwrap() + 1;
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take(take.clone());
        bench.send(who, cdb::write(3, 2, fill));
        bench.end_what_hangs(&take);
        assert_eq!(bench.answer(who).end(), GOOD, "{take:?}");
        bench.send(who, cdb::read(3, 3));
        bench.end_what_hangs(&take);
        let answer = bench.answer(who);
        assert_eq!(answer.end(), GOOD, "{take:?}");
        let expected = [vec![fill; 2 * BLOCK], vec![0; BLOCK]].concat();
        assert_eq!(answer.data, expected, "{take:?}");
        bench.end();
    }
}

#[test]
fn a_transfer_in_pieces_is_answered_after_its_last_one() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    for command in [cdb::write(0, 8, 9), cdb::read(0, 8)] {
        bench.send(who, command);
        for piece in [BLOCK, 3 * BLOCK] {
            let [operation] = bench.under_way(0)[..] else {
                panic!("one operation at a time");
            };
            bench.finish_with(0, operation, i32::try_from(piece).unwrap());
            assert_eq!(bench.answers(who), []);
        }
        bench.finish_all(0);
        assert_eq!(bench.answer(who).end(), GOOD);
    }
    assert_eq!(bench.disk(0).byte(7), 9);
    bench.end();
}

#[test]
fn failures_of_the_store_are_counted_by_cause_and_other_refusals_are_not() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let full = IoFailure::NoSpace { offset: 0 };
    for failure in [full.clone(), full.clone(), IoFailure::FlushLatched] {
        bench.disk(0).take_next([Take::Fail(failure)]);
        bench.send(who, cdb::write(0, 1, 1));
        assert!(!bench.answer(who).is_good());
    }
    let failures = bench.cores[0].take_store_failures(UNIT);
    let counts = failures.iter().map(|one| (&one.first, one.count));
    let expected = [(&full, 2), (&IoFailure::FlushLatched, 1)];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
    // Behind the last block, which is the initiator's mistake; then nothing is wrong.
    bench.send(who, cdb::read(u32::MAX, 1));
    assert!(!bench.answer(who).is_good());
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.cores[0].take_store_failures(UNIT), []);
    bench.end();
}

#[test]
fn a_failure_of_the_store_is_the_answer_wherever_it_comes() {
    let failure = IoFailure::Hardware { errno: 5 };
    for take in [Take::Fail(failure), Take::Ring, Take::Helper] {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take_next([take.clone()]);
        bench.send(who, cdb::read(0, 1));
        match take {
            Take::Ring => bench.finish_with(0, 0, -5),
            Take::Helper => bench.finish_with(0, 0, 5),
            Take::Fail(_) | Take::Now | Take::Pending | Take::Full => {}
        }
        let answer = bench.answer(who);
        assert_eq!(answer.status, Status::CheckCondition, "{take:?}");
        assert!(matches!(answer.sense, Some((4, ..))), "{answer:?}");
        bench.end();
    }
}

#[test]
fn a_command_for_no_unit_is_answered_without_one() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.send(who, cdb::read(0, 1).to(1));
    let answer = bench.answer(who);
    assert_eq!(answer.sense, Some((5, 0x25, 0)));
    bench.send(who, cdb::inquiry().to(1));
    let answer = bench.answer(who);
    assert_eq!((answer.end(), answer.data[0]), (GOOD, 0x7f));
    assert_eq!(bench.disk(0).log(), [""; 0]);
    bench.end();
}

#[test]
fn an_attribute_that_no_command_may_have_is_refused_before_the_command_begins() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.send(who, cdb::write(0, 1, 1).attribute(None));
    assert_eq!(bench.answer(who).sense, Some((5, 0x49, 0)));
    assert_eq!(bench.disk(0).log(), [""; 0]);
    assert_eq!(bench.cores[0].carrier.hooks.counts, (1, 0, 0));
    bench.end();
}

#[test]
fn commands_of_a_session_that_ends_or_is_gone_do_not_begin() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.cores[0].close_to_commands(who.key);
    assert!(bench.cores[0].session(who.key).unwrap().is_ending());
    let id = bench.send(who, cdb::write(0, 1, 1));
    assert_eq!(bench.port(who).abandoned, [id]);
    bench.end_session(who);
    assert!(bench.is_over(who));
    bench.cores[0].handle_command(who.key, 7, cdb::write(0, 1, 1));
    assert_eq!(bench.disk(0).log(), [""; 0]);
    assert_eq!(bench.port(who).answers, []);
    bench.end();
}

#[test]
fn a_series_is_made_once_for_each_number_of_a_session() {
    let mut bench = Bench::with_units(1, 2);
    let who = bench.log_in_to(0, &[(0, 0), (1, 1), (70, 1)]);
    for lun in [0, 1, 0, 1, 70, 70] {
        let mut command = cdb::test_unit_ready();
        // A number as large as this is found by its flat address.
        command.lun = if lun < 64 { lun } else { 0x4000 | lun };
        bench.send(who, command);
    }
    let made = bench.cores[0].carrier.series.len();
    assert_eq!((made, bench.answers(who).len()), (3, 6));
    bench.end();
}

// ---- data from the initiator -----------------------------------------------------------------

#[test]
fn data_that_comes_later_is_asked_for_once_and_awaited() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let id = bench.send(who, cdb::write(0, 2, 0).coming(Came::Later));
    assert_eq!(bench.port(who).asked, [(id, 1024)]);
    assert_eq!(bench.cores[0].task_count(), 1);
    assert_eq!(
        bench.cores[0].session(who.key).unwrap().waiting_commands(),
        1
    );
    bench.bring_data(who, id, &[5; 1024]);
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(0).byte(1), 5);
    assert_eq!(bench.cores[0].task_count(), 0);
    bench.end();
}

#[test]
fn data_for_a_command_that_awaits_none_goes_nowhere() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let id = bench.send(who, cdb::write(0, 1, 0).coming(Came::Later));
    bench.abort(who, id);
    bench.bring_data(who, id, &[5; BLOCK]);
    bench.bring_data(who, 99, &[5; BLOCK]);
    assert_eq!(bench.answers(who), []);
    bench.disk(0).take(Take::Ring);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.bring_data(who, id, &[5; BLOCK]);
    bench.finish_all(0);
    assert_eq!(bench.disk(0).log(), ["write 0+1"]);
    assert_eq!(bench.disk(0).byte(0), 1);
    bench.end();
}

#[test]
fn a_fault_of_its_data_ends_a_command_with_what_the_transport_says() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let fault = || scsi::Outcome::status(Status::TaskSetFull);
    let waiting = bench.send(who, cdb::write(0, 1, 0).coming(Came::Later));
    bench.cores[0].handle_data_fault(who.key, waiting, fault());
    bench.settle();
    // One that was never given out has no task.
    bench.cores[0].handle_data_fault(who.key, 50, fault());
    bench.settle();
    let ends: Vec<_> = bench.answers(who);
    let ends: Vec<_> = ends
        .iter()
        .map(|(id, answer)| (*id, answer.end()))
        .collect();
    assert_eq!(ends, [(waiting, FULL), (50, FULL)]);
    bench.end();
}

#[test]
fn bad_data_that_has_come_already_is_looked_at_when_it_is_asked_for() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.port(who).has_event = true;
    let command = cdb::write(0, 1, 0).coming(Came::Later);
    bench.cores[0].handle_command(who.key, 0, command);
    assert_eq!(bench.cores[0].poll_eventful(), Some(who.key));
    let engine = &mut bench.cores[0];
    assert!(engine.is_settled() && engine.has_more());
    assert!(engine.poll_ready().is_some(), "an R2T is sent");
    assert!(!engine.has_more());
    bench.end();
}

// ---- the order of a nexus --------------------------------------------------------------------

fn started(bench: &Bench) -> Vec<String> {
    bench.disk(0).log()
}

#[test]
fn task_attributes_decide_who_starts() {
    use TaskAttribute::{HeadOfQueue, Ordered, Simple};
    // Commands in the order they come; what has started when all are there; what starts when the
    // oldest under way ends, one after the other.
    let table: [(&[TaskAttribute], &[&str]); 5] = [
        (&[Simple, Simple, Simple], &["0 1 2", "", "", ""]),
        (&[Simple, Ordered, Simple], &["0", "1", "2", ""]),
        (
            &[Ordered, Ordered, Simple, Simple],
            &["0", "1", "2 3", "", ""],
        ),
        (&[Ordered, Simple, HeadOfQueue], &["0 2", "", "1", ""]),
        (&[Simple, HeadOfQueue, Simple], &["0 1", "", "2", ""]),
    ];
    for (attributes, expected) in table {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take(Take::Ring);
        for (number, attribute) in (0..).zip(attributes) {
            let command = cdb::read(number, 1).attribute(Some(*attribute));
            bench.send(who, command);
        }
        let mut found = Vec::new();
        for _ in expected {
            let numbers = started(&bench);
            let numbers = numbers.iter().map(|log| log[5..6].to_owned());
            found.push(numbers.collect::<Vec<_>>().join(" "));
            if let Some(&oldest) = bench.under_way(0).first() {
                bench.finish(0, oldest);
            }
        }
        assert_eq!(found, expected, "{attributes:?}");
        assert_eq!(bench.answers(who).len(), attributes.len());
        bench.end();
    }
}

#[test]
fn the_order_of_one_nexus_holds_nobody_else() {
    let mut bench = Bench::new(1);
    let (one, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take(Take::Ring);
    bench.send(one, cdb::read(0, 1).ordered());
    let dormant = bench.send(one, cdb::read(1, 1));
    bench.send(other, cdb::read(2, 1));
    assert_eq!(started(&bench), ["read 0+1", "read 2+1"]);
    assert_eq!(
        bench.port(one).left_chunks,
        [dormant],
        "it waits without a chunk"
    );
    bench.finish_all(0);
    assert_eq!(bench.answers(one).len(), 2);
    bench.end();
}

#[test]
fn a_dormant_task_that_is_aborted_lets_the_next_start() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    bench.send(who, cdb::read(0, 1));
    let ordered = bench.send(who, cdb::read(1, 1).ordered());
    bench.send(who, cdb::read(2, 1));
    assert_eq!(started(&bench), ["read 0+1"]);
    bench.abort(who, ordered);
    assert_eq!(started(&bench), ["read 2+1"]);
    assert_eq!(bench.port(who).abandoned, [ordered]);
    bench.end();
}

#[test]
fn a_long_queue_of_short_commands_is_no_recursion() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    for _ in 0..20_000 {
        bench.send_only(who, cdb::test_unit_ready().ordered());
        if bench.under_way(0).is_empty() {
            bench.send_only(who, cdb::read(0, 1).ordered());
        }
    }
    bench.finish_all(0);
    assert_eq!(bench.answers(who).len(), 20_001);
    bench.end();
}

// ---- memory that others may change -----------------------------------------------------------

#[test]
fn data_that_must_not_change_is_copied_and_all_other_is_not() {
    for stable in [false, true] {
        let mut bench = Bench::with_store(1, |store| store.reads_in_place = true);
        let who = bench.log_in(0);
        let port = bench.port(who);
        (port.needs_stable_data, port.keeps_answers) = (stable, true);
        bench.send(who, cdb::read(0, 8));
        assert_eq!(bench.answer(who).end(), GOOD);
        let held = bench.cores[0].session(who.key).unwrap().pool().held_bytes();
        assert_eq!(held, if stable { 8 * BLOCK } else { 0 });
        bench.port(who).kept_answers.clear();
        bench.end();
    }
}

#[test]
fn a_read_across_the_unit_of_a_store_with_memory_of_its_own_gets_a_buffer() {
    for (block, blocks, held) in [(0, 8, 0), (8, 8, 0), (7, 1, 0), (7, 2, 4096), (0, 9, 8192)] {
        let mut bench = Bench::with_store(1, |store| {
            store.reads_in_place = true;
            store.in_place_unit_bytes = 8 * BLOCK as u64;
        });
        let who = bench.log_in(0);
        bench.port(who).keeps_answers = true;
        bench.send(who, cdb::read(block, blocks));
        assert_eq!(bench.answer(who).end(), GOOD);
        let found = bench.cores[0].session(who.key).unwrap().pool().held_bytes();
        assert_eq!(found, held, "{blocks} blocks from {block}");
        bench.port(who).kept_answers.clear();
        bench.end();
    }
}

#[test]
fn an_answer_waits_for_memory_to_be_copied_to() {
    let mut bench = Bench::with_store(1, |store| store.reads_in_place = true);
    let who = bench.log_in(0);
    bench.port(who).needs_stable_data = true;
    bench.leave_memory(0, 0);
    bench.send(who, cdb::read(0, 8));
    assert_eq!(bench.answers(who), []);
    assert_eq!(bench.cores[0].carrier.hooks.starved, 1);
    bench.give_memory_back();
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(0).log(), ["read 0+8"], "it is read once");
    bench.end();
}

// ---- altered, and cannot go on ---------------------------------------------------------------

/// A WRITE AND VERIFY whose write is done, and whose read back waits.
fn written_and_not_verified(take: Take) -> (Bench, Who) {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take_next([Take::Now, take]);
    bench.send(who, cdb::write_and_verify(0, 1, 1));
    assert_eq!(bench.answers(who), []);
    (bench, who)
}

#[test]
fn a_command_that_has_altered_something_is_not_said_to_have_never_begun() {
    // The store stays full for it.
    let (mut bench, who) = written_and_not_verified(Take::Full);
    bench.pass(std::time::Duration::from_secs(20) - MOMENT);
    assert_eq!(bench.answers(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.answer(who).end(), STOPPED);
    assert_eq!(bench.disk(0).byte(0), 1);
    bench.end();
    // Access is refused meanwhile.
    let (mut bench, who) = written_and_not_verified(Take::Full);
    let hanging = bench.log_in(0);
    bench.disk(0).take_next([Take::Ring]);
    bench.send(hanging, cdb::write(0, 1, 1));
    bench.disk(0).take(Take::Full);
    bench.end_session(hanging);
    bench.pass(super::bench::ABORT);
    assert_eq!(bench.refusing(), [0]);
    bench.finish_all(0);
    bench.settle();
    assert_eq!(bench.refusing(), [0; 0]);
    bench.disk(0).take(Take::Now);
    bench.pass(std::time::Duration::from_secs(20));
    assert_eq!(bench.answer(who).end(), STOPPED);
    bench.end();
}

#[test]
fn what_was_refused_by_a_full_store_has_altered_nothing() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Full);
    bench.send(who, cdb::write(0, 1, 1));
    bench.pass(std::time::Duration::from_secs(20));
    assert_eq!(bench.answer(who).end(), FULL);
    assert_eq!(bench.disk(0).byte(0), 0);
    bench.end();
}

#[test]
fn a_write_that_failed_may_have_altered_something() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    // WRITE SAME in pieces: the first is written, the second waits.
    bench.disk(0).take_next([Take::Ring]);
    bench.disk(0).take(Take::Full);
    bench.send(who, cdb::write_same(0, 4096, 3));
    bench.finish(0, 0);
    assert_eq!(bench.answers(who), []);
    bench.pass(std::time::Duration::from_secs(20));
    assert_eq!(bench.answer(who).end(), STOPPED);
    bench.end();
}

#[test]
fn access_that_is_refused_while_a_command_waits_is_its_answer() {
    let mut bench = Bench::new(1);
    let (who, hanging) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(hanging, cdb::write(0, 10, 1));
    let id = bench.send(who, cdb::write(0, 1, 0).coming(Came::Later));
    bench.end_session(hanging);
    bench.pass(super::bench::ABORT);
    assert_eq!(bench.refusing(), [0]);
    bench.bring_data(who, id, &[1; BLOCK]);
    assert_eq!(bench.answer(who).end(), REFUSED);
    assert_eq!(bench.disk(0).log(), ["write 0+10"]);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(
        bench.answer(who).end(),
        REFUSED,
        "new ones are refused, too"
    );
    bench.finish_all(0);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

// ---- for those who look on -------------------------------------------------------------------

#[test]
fn a_command_that_hangs_is_shown_once_with_its_life_so_far() {
    let patience = std::time::Duration::from_secs(2);
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    bench.send(who, cdb::read(0, 1));
    bench.pass(patience - MOMENT);
    assert_eq!(bench.cores[0].hanging_task(0, patience), None);
    bench.pass(MOMENT);
    let key = bench.cores[0].hanging_task(0, patience).unwrap();
    let (account, life) = bench.cores[0].note_hanging(key).unwrap();
    assert_eq!(account, UNIT.0);
    assert_eq!(life.phases()[0].phase, Phase::Store);
    assert_eq!(life.phases()[0].took, patience);
    assert_eq!(bench.cores[0].hanging_task(0, patience), None);
    bench.finish_all(0);
    let (ending, life) = bench.cores[0].carrier.hooks.endings[0];
    assert_eq!(ending, Ending::Answered(Status::Good));
    assert_eq!(life.phases()[0].took, patience);
    assert!(bench.cores[0].note_hanging(key).is_none());
    bench.end();
}

#[test]
fn every_wait_is_counted_as_what_it_was() {
    // What a command waits for, and how it is made to.
    type Enter = fn(&mut Bench, Who);
    let table: [(Phase, Enter); 5] = [
        (Phase::Data, |bench, who| {
            bench.send(who, cdb::write(0, 1, 0).coming(Came::Later));
        }),
        (Phase::Store, |bench, who| {
            bench.disk(0).take_next([Take::Ring]);
            bench.send(who, cdb::read(0, 1));
        }),
        (Phase::Store, |bench, who| {
            bench.disk(0).take_next([Take::Full]);
            bench.send(who, cdb::read(0, 1));
        }),
        (Phase::Memory, |bench, who| {
            bench.leave_memory(0, 0);
            bench.send(who, cdb::read(0, 1));
        }),
        (Phase::Owner, |bench, who| {
            bench.send(who, cdb::register(1));
        }),
    ];
    for (phase, wait) in table {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        wait(&mut bench, who);
        bench.now += MOMENT;
        let now = bench.now;
        bench.cores[0].begin_turn(now);
        bench.end_session(who);
        bench.finish_all(0);
        let _kept = bench.to_keep().first().is_some_and(|_| {
            bench.keep(true);
            true
        });
        let (ending, life) = bench.cores[0].carrier.hooks.endings[0];
        assert_eq!(ending, Ending::Aborted);
        let phases: Vec<Phase> = life.phases().iter().map(|one| one.phase).collect();
        assert_eq!(phases, [phase]);
        bench.end();
    }
}

impl Bench {
    /// Lets end what hangs after a store has taken a request in this way.
    pub(super) fn end_what_hangs(&mut self, take: &Take) {
        match take {
            Take::Ring | Take::Helper => self.finish_all(0),
            Take::Pending => {
                self.finish_pending(0);
            }
            Take::Now | Take::Fail(_) | Take::Full => {}
        }
    }
}

/// A command of each kind that a store is asked to do something for, and what that is.
pub(super) fn every_store_request() -> Vec<(Cdb, &'static str)> {
    vec![
        (cdb::read(0, 1), "read 0+1"),
        (cdb::write(0, 1, 1), "write 0+1"),
        (cdb::synchronize(), "flush"),
        (cdb::unmap(4, 2), "unmap 4..6"),
        (cdb::write_same(0, 8, 0), "zero 0..8"),
        (cdb::lba_status(), "extents"),
    ]
}

#[test]
fn every_request_is_asked_for_once_and_ends_well_on_the_ring() {
    for (command, request) in every_store_request() {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take(Take::Ring);
        bench.send(who, command);
        bench.finish_all(0);
        assert_eq!(bench.answer(who).end(), GOOD, "{request}");
        assert_eq!(bench.disk(0).log(), [request]);
        bench.end();
    }
}
