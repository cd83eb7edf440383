//! Room for data: who gets it, who waits, and in which order.

use memory::NoRoom;

use super::bench::{ABORT, BALLAST_BYTES, Bench, FENCE, QUEUE_DEPTH, Who};
use super::cdb;
use super::disk::Take;
use super::outside::{Came, FULL, GOOD};
use crate::Limits;

const MIB: usize = 1 << 20;
/// Blocks of a MiB.
const MIB_BLOCKS: u16 = 2048;
/// The memory of a core.
const ALL: usize = 16 * MIB;

/// So many sessions on one core.
fn sessions(bench: &mut Bench, count: usize) -> Vec<Who> {
    (0..count).map(|_| bench.log_in(0)).collect()
}

/// Which of these sessions have been answered, in order, since the last call.
fn answered(bench: &mut Bench, whos: &[Who]) -> Vec<usize> {
    let all = whos.iter().enumerate();
    all.filter(|(_, who)| !bench.answers(**who).is_empty())
        .map(|(at, _)| at)
        .collect()
}

#[test]
fn tasks_get_memory_in_the_order_in_which_they_came() {
    // Each on a unit of its own, which would have its own share.
    let mut bench = Bench::with_units(1, 3);
    let whos: Vec<Who> = (0..3)
        .map(|unit| bench.log_in_to(0, &[(0, unit)]))
        .collect();
    bench.leave_memory(0, 0);
    for (unit, who) in whos.iter().enumerate() {
        bench.disk_of(unit, 0).take(Take::Ring);
        bench.send(*who, cdb::read(0, MIB_BLOCKS));
    }
    assert_eq!(bench.cores[0].carrier.hooks.starved, 3);
    // One MiB for each, beside the half of the reserve that new work leaves.
    for (at, who) in whos.iter().enumerate() {
        let needed = if at == 0 { 2 * MIB } else { MIB };
        bench.free_memory(needed - BALLAST_BYTES);
        assert_eq!(bench.under_way(0).len(), at, "{who:?}");
        bench.free_memory(BALLAST_BYTES);
        assert_eq!(bench.under_way(0).len(), at + 1);
    }
    for at in 0..3 {
        bench.finish(0, at);
        assert_eq!(answered(&mut bench, &whos), [at]);
    }
    bench.end();
}

#[test]
fn small_reads_do_not_wait_behind_a_large_one_and_others_do() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 4);
    bench.leave_memory(0, 0);
    bench.send(whos[0], cdb::read(0, 4 * MIB_BLOCKS));
    bench.send(whos[1], cdb::read(0, MIB_BLOCKS));
    bench.send(whos[2], cdb::read(0, 8));
    assert_eq!(answered(&mut bench, &whos), [0; 0]);
    bench.free_memory(3 * MIB);
    assert_eq!(answered(&mut bench, &whos), [2]);
    // A newcomer does not pass those who wait, unless it is small.
    bench.send(whos[3], cdb::read(0, MIB_BLOCKS));
    assert_eq!(answered(&mut bench, &whos), [0; 0]);
    bench.free_memory(2 * MIB);
    assert_eq!(answered(&mut bench, &whos), [0, 1, 3]);
    bench.end();
}

#[test]
fn a_session_that_has_its_share_waits_behind_itself_and_before_nobody() {
    let mut bench = Bench::new(1);
    let (greedy, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take(Take::Ring);
    for _ in 0..3 {
        bench.send(greedy, cdb::read(0, 2 * MIB_BLOCKS));
    }
    assert_eq!(bench.under_way(0).len(), 2, "two have 4 MiB, its share");
    assert_eq!(
        bench.cores[0].carrier.hooks.starved, 0,
        "the supply is not short"
    );
    bench.send(other, cdb::read(0, 2 * MIB_BLOCKS));
    assert_eq!(bench.under_way(0).len(), 3);
    bench.finish(0, 0);
    assert_eq!(bench.under_way(0).len(), 3, "its third has begun");
    bench.finish_all(0);
    assert_eq!(bench.answers(greedy).len(), 3);
    bench.end();
}

#[test]
fn tasks_of_one_session_keep_their_order_while_they_wait_for_its_share() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Ring);
    for lba in 0..5 {
        bench.send(who, cdb::read(lba, 3 * MIB_BLOCKS));
    }
    for _ in 0..5 {
        let operation = bench.under_way(0)[0];
        bench.finish(0, operation);
    }
    let log = bench.disk(0).log();
    let order: Vec<&str> = log.iter().map(|line| &line[5..6]).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4"]);
    bench.end();
}

#[test]
fn one_that_holds_data_stands_before_new_work() {
    let mut bench = Bench::new(1);
    let (reader, comparer) = (bench.log_in(0), bench.log_in(0));
    bench.leave_memory(0, 0);
    bench.send(reader, cdb::read(100, 8));
    let heap = cdb::verify(0, 8, 0).coming(Came::Heap);
    bench.send(comparer, heap);
    assert_eq!(
        bench.disk(0).log(),
        ["flush"],
        "what it compares is on the medium"
    );
    bench.disk(0).take(Take::Ring);
    bench.free_memory(BALLAST_BYTES);
    assert_eq!(
        bench.disk(0).log(),
        ["read 0+8"],
        "new work leaves the reserve"
    );
    bench.finish_all(0);
    assert_eq!(bench.answer(comparer).end(), GOOD);
    bench.give_memory_back();
    bench.finish_all(0);
    assert_eq!(bench.answer(reader).end(), GOOD);
    bench.end();
}

#[test]
fn a_writer_without_memory_is_served_when_some_comes_back() {
    // Data on the heap needs a buffer where the store wants one of its own.
    let mut bench = Bench::with_store(1, |store| store.needs_own_buffer = true);
    let who = bench.log_in(0);
    bench.leave_memory(0, 0);
    bench.send(who, cdb::write(0, 8, 7).coming(Came::Heap));
    assert_eq!(bench.answers(who), []);
    bench.free_memory(2 * MIB);
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(0).byte(7), 7);
    bench.end();
}

#[test]
fn data_in_a_chunk_that_has_no_place_to_wait_ends_its_command() {
    for (needs_own, lends, is_refused) in [
        (false, true, false),
        (false, false, true),
        (true, true, true),
    ] {
        let mut bench = Bench::with_store(1, |store| store.needs_own_buffer = needs_own);
        let who = bench.log_in(0);
        bench.cores[0].carrier.hooks.lends_chunks = lends;
        bench.leave_memory(0, 0);
        bench.send(who, cdb::write(0, 8, 7));
        let end = if is_refused { FULL } else { GOOD };
        assert_eq!(bench.answer(who).end(), end, "{needs_own} {lends}");
        assert_eq!(
            bench.cores[0].carrier.hooks.starved,
            usize::from(is_refused)
        );
        bench.end();
    }
}

#[test]
fn data_that_a_task_keeps_leaves_its_chunk_or_has_no_place() {
    for free in [0, ALL] {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.leave_memory(0, free);
        bench.send(who, cdb::compare_and_write(0, 1, 0, 1));
        let end = if free == 0 { FULL } else { GOOD };
        assert_eq!(bench.answer(who).end(), end);
        // The same for data that comes later.
        let late = cdb::compare_and_write(1, 1, 0, 1).ordered();
        bench.send(who, late);
        assert_eq!(bench.answer(who).end(), end);
        bench.end();
    }
}

#[test]
fn what_waits_for_the_store_or_a_fence_leaves_its_chunk_or_has_no_place() {
    for (free, end) in [(0, Some(FULL)), (ALL, None)] {
        let mut bench = Bench::new(1);
        let (who, other) = (bench.log_in(0), bench.log_in(0));
        bench.disk(0).take_next([Take::Ring]);
        bench.send(other, cdb::compare_and_write(9, 1, 0, 1));
        let left = bench.cores[0].pool().free_bytes().min(free);
        bench.leave_memory(0, left);
        bench.send(who, cdb::write(9, 1, 1));
        let parked = bench.answers(who).pop().map(|(_, answer)| answer.end());
        assert_eq!(parked, end, "parked");
        bench.disk(0).take_next([Take::Full]);
        bench.send(who, cdb::write(0, 1, 1));
        let full = bench.answers(who).pop().map(|(_, answer)| answer.end());
        assert_eq!(full, end, "before a full store");
        bench.end();
    }
}

#[test]
fn a_unit_whose_store_holds_its_share_leaves_room_for_others() {
    let mut bench = Bench::with_units(1, 2);
    let whos: Vec<Who> = (0..4)
        .map(|_| bench.log_in_to(0, &[(0, 0), (1, 1)]))
        .collect();
    bench.disk(0).take(Take::Ring);
    for who in &whos[..3] {
        bench.send(*who, cdb::read(0, 4 * MIB_BLOCKS));
    }
    assert_eq!(bench.under_way(0).len(), 2, "8 MiB of one unit are enough");
    bench.send(whos[3], cdb::read(0, 4 * MIB_BLOCKS).to(1));
    assert_eq!(answered(&mut bench, &whos), [3], "another unit goes on");
    bench.finish(0, 0);
    assert_eq!(bench.under_way(0).len(), 2, "the third has begun");
    bench.finish_all(0);
    assert_eq!(answered(&mut bench, &whos), [0, 1, 2]);
    bench.end();
}

#[test]
fn a_store_that_was_full_is_asked_again_in_the_order_of_those_who_wait() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 4);
    bench.disk(0).take_next([Take::Ring]);
    bench.send(whos[0], cdb::read(0, 1));
    bench.disk(0).take(Take::Full);
    for (lba, who) in (1..).zip(&whos[1..]) {
        bench.send(*who, cdb::read(lba, 1));
    }
    // It has room for one and is full again.
    bench.disk(0).take_next([Take::Ring]);
    bench.finish(0, 0);
    assert_eq!(bench.disk(0).log(), ["read 0+1", "read 1+1"]);
    bench.disk(0).take(Take::Now);
    bench.finish_all(0);
    assert_eq!(bench.disk(0).log(), ["read 2+1", "read 3+1"]);
    assert_eq!(answered(&mut bench, &whos), [0, 1, 2, 3]);
    bench.end();
}

#[test]
fn no_read_begins_for_an_initiator_that_takes_no_output() {
    let mut bench = Bench::with_memory(1, 1, 64 * MIB);
    let who = bench.log_in(0);
    bench.port(who).keeps_answers = true;
    for _ in 0..9 {
        bench.send(who, cdb::read(0, MIB_BLOCKS / 2));
    }
    assert_eq!(bench.answers(who).len(), 9);
    let held = bench.cores[0].session(who.key).unwrap().pool().held_bytes();
    assert!(held > 4 * MIB, "{held} bytes are held");
    bench.send(who, cdb::read(0, 8));
    assert_eq!(bench.answers(who).len(), 1, "its output is taken");
    bench.port(who).unsent_bytes = 5 * MIB;
    bench.send(who, cdb::read(0, 8));
    assert_eq!(bench.answers(who), [], "its output is not taken");
    bench.port(who).kept_answers.clear();
    bench.port(who).unsent_bytes = 0;
    bench.settle();
    assert_eq!(bench.cores[0].task_count(), 0);
    bench.end();
}

#[test]
fn a_party_of_many_sessions_leaves_a_buffer_to_another_and_is_served_when_its_own_come_back() {
    let mut bench = Bench::with_memory(1, 1, 64 * MIB);
    let party = bench.cores[0].pool().party();
    let whos: Vec<Who> = (0..120)
        .map(|_| bench.log_in_with(0, party.account()))
        .collect();
    for who in &whos {
        bench.port(*who).keeps_answers = true;
        bench.send(*who, cdb::read(0, MIB_BLOCKS));
    }
    let served = |bench: &mut Bench| {
        whos.iter()
            .filter(|who| !bench.port(**who).kept_answers.is_empty())
            .count()
    };
    let first = served(&mut bench);
    assert!((40..=52).contains(&first), "{first}");
    assert_eq!(
        bench.cores[0].carrier.hooks.starved,
        120 - first,
        "they have nothing"
    );
    assert!(!bench.cores[0].pool().is_crowded(), "they wait apart");
    let other = bench.log_in(0);
    for _ in 0..3 {
        bench.send(other, cdb::read(0, 4 * MIB_BLOCKS));
        assert_eq!(bench.answer(other).status, scsi::Status::Good);
    }
    assert_eq!(served(&mut bench), first);
    for who in &whos {
        let port = bench.port(*who);
        port.keeps_answers = false;
        port.kept_answers.clear();
    }
    // Each turn looks at some of those that wait.
    bench.settle();
    bench.settle();
    assert_eq!(bench.cores[0].task_count(), 0);
    bench.end();
}

#[test]
fn sessions_that_wait_for_data_out_get_memory_first_come_first() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 2);
    for (who, starves) in whos
        .iter()
        .zip([vec![NoRoom::Supply, NoRoom::Supply], vec![NoRoom::Supply]])
    {
        bench.port(*who).starves.extend(starves);
        bench.cores[0].note_starving(who.key);
        bench.cores[0].note_starving(who.key);
    }
    let fed = |bench: &mut Bench| [bench.port(whos[0]).fed, bench.port(whos[1]).fed];
    bench.cores[0].handle_memory();
    assert_eq!(fed(&mut bench), [1, 0], "the first keeps its place");
    assert!(bench.cores[0].pool().is_crowded());
    bench.cores[0].handle_memory();
    assert_eq!(fed(&mut bench), [2, 1]);
    bench.cores[0].handle_memory();
    assert_eq!(fed(&mut bench), [2, 1], "nobody waits any more");
    assert!(!bench.cores[0].pool().is_crowded());
    bench.settle();
    bench.end();
}

#[test]
fn a_session_that_waits_for_its_share_lets_the_next_pass() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 2);
    bench.port(whos[0]).starves.extend([NoRoom::Share; 2]);
    bench.port(whos[1]).starves.extend([NoRoom::Supply]);
    for who in &whos {
        bench.cores[0].note_starving(who.key);
    }
    bench.cores[0].handle_memory();
    assert_eq!((bench.port(whos[0]).fed, bench.port(whos[1]).fed), (1, 1));
    bench.settle();
    bench.end();
}

#[test]
fn tasks_and_sessions_take_turns_in_being_first() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 3);
    bench.leave_memory(0, 0);
    bench.send(whos[0], cdb::read(0, MIB_BLOCKS));
    bench.port(whos[1]).starves.extend([NoRoom::Supply; 9]);
    bench.cores[0].note_starving(whos[1].key);
    bench.cores[0].handle_memory();
    assert_eq!(
        bench.port(whos[1]).fed,
        0,
        "a task was refused and stands first"
    );
    bench.free_memory(2 * MIB);
    assert_eq!(answered(&mut bench, &whos), [0]);
    let fed = bench.port(whos[1]).fed;
    assert!(fed > 0);
    // Now the session was refused, and stands before tasks.
    bench.send(whos[2], cdb::read(0, MIB_BLOCKS));
    assert_eq!(answered(&mut bench, &whos), [0; 0], "it does not pass");
    bench.port(whos[1]).starves.clear();
    bench.settle();
    assert_eq!(answered(&mut bench, &whos), [2]);
    bench.end();
}

#[test]
fn a_starved_session_that_ends_is_passed_over() {
    let mut bench = Bench::new(1);
    let whos = sessions(&mut bench, 2);
    for who in &whos {
        bench.port(*who).starves.extend([NoRoom::Supply]);
        bench.cores[0].note_starving(who.key);
    }
    bench.cores[0].end_session(whos[0].key);
    bench.cores[0].note_starving(whos[0].key);
    bench.settle();
    assert_eq!(bench.port(whos[1]).fed, 1);
    bench.end();
}

#[test]
fn windows_are_small_while_memory_is_short_and_not_for_a_moment_more_or_less() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let limits = |bench: &mut Bench| std::mem::take(&mut bench.port(who).queue_limits);
    bench.leave_memory(0, ALL / 4);
    bench.settle();
    assert_eq!(limits(&mut bench), [0; 0]);
    bench.leave_memory(0, ALL / 4 - BALLAST_BYTES);
    bench.settle();
    assert_eq!(limits(&mut bench), [1]);
    let next = bench.log_in(0);
    assert_eq!(bench.port(next).queue_limits, [1]);
    bench.free_memory(ALL / 4);
    assert_eq!(limits(&mut bench), [0; 0]);
    bench.free_memory(BALLAST_BYTES);
    assert_eq!(limits(&mut bench), [QUEUE_DEPTH]);
    bench.end();
}

#[test]
fn another_queue_depth_is_in_force_at_once_and_while_memory_is_short_when_there_is_more() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    let limits = |bench: &mut Bench| {
        let port = bench.port(who);
        let depths = std::mem::take(&mut port.queue_depths);
        (depths, std::mem::take(&mut port.queue_limits))
    };
    let set = |bench: &mut Bench, queue_depth| {
        bench.cores[0].set_limits(&Limits {
            queue_depth,
            abort_timeout: ABORT,
            fence_timeout: FENCE,
        });
    };
    set(&mut bench, 7);
    assert_eq!(limits(&mut bench), (vec![7], vec![7]));
    bench.leave_memory(0, ALL / 4 - BALLAST_BYTES);
    bench.settle();
    set(&mut bench, 9);
    assert_eq!(limits(&mut bench), (vec![9], vec![1, 1]));
    bench.free_memory(ALL / 4);
    bench.free_memory(BALLAST_BYTES);
    assert_eq!(limits(&mut bench), (vec![], vec![9]));
    bench.end();
}

#[test]
fn what_a_store_works_on_is_counted_until_it_is_back() {
    for command in [cdb::read(0, 8), cdb::write(0, 8, 1)] {
        let mut bench = Bench::new(1);
        let who = bench.log_in(0);
        bench.disk(0).take(Take::Ring);
        bench.send(who, command);
        assert!(bench.leftovers(0, "4096 bytes in stores"));
        bench.finish_with(0, 0, 512);
        assert!(
            bench.leftovers(0, "4096 bytes in stores"),
            "a piece keeps it"
        );
        bench.finish_all(0);
        assert!(!bench.leftovers(0, "bytes in stores"));
        bench.end();
    }
}

impl Bench {
    /// Whether this is among what is left on a core.
    fn leftovers(&self, core: usize, what: &str) -> bool {
        let left = self.cores[core].leftovers();
        left.iter().any(|one| one.contains(what))
    }
}
