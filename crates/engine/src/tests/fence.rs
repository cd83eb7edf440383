//! Blocks that belong to one task alone.

use super::bench::{ABORT, Bench, Way, Who, in_every_order};
use super::cdb;
use super::disk::Take;
use super::outside::GOOD;

const MISCOMPARE: Option<(u8, u8, u8)> = Some((0x0e, 0x1d, 0));

#[test]
fn of_two_that_compare_at_once_on_three_cores_one_writes_whatever_the_order_of_letters() {
    let orders = in_every_order(|choose| {
        let mut bench = Bench::new(3);
        let one = bench.log_in(1);
        let other = bench.log_in(2);
        bench.send_only(one, cdb::compare_and_write(0, 1, 0, 1));
        bench.send_only(other, cdb::compare_and_write(0, 1, 0, 2));
        let mut choices = 0;
        while let Some(way) = choose_way(&bench, &mut choices, choose) {
            bench.deliver(way);
        }
        let (first, second) = (bench.answer(one), bench.answer(other));
        let good = [&first, &second]
            .iter()
            .filter(|answer| answer.is_good())
            .count();
        assert_eq!(good, 1, "{first:?} {second:?}");
        let lost = if first.is_good() { &second } else { &first };
        assert_eq!(lost.sense, MISCOMPARE);
        let winner = if first.is_good() { 1 } else { 2 };
        assert_eq!(bench.disk(0).byte(0), winner);
        bench.end();
    });
    assert!(orders > 50, "{orders} orders");
}

/// The next way to deliver a letter on. Only the first choices are free, or there would be no end.
pub(super) fn choose_way(
    bench: &Bench,
    choices: &mut usize,
    choose: &mut dyn FnMut(usize) -> usize,
) -> Option<Way> {
    const CHOICES_MAX: usize = 7;
    let ways = bench.ways();
    if ways.is_empty() {
        return None;
    }
    *choices += 1;
    let at = if *choices <= CHOICES_MAX {
        choose(ways.len())
    } else {
        0
    };
    Some(ways[at])
}

#[test]
fn a_fence_waits_for_writes_at_work_on_any_core_and_stops_those_that_come() {
    let mut bench = Bench::new(2);
    let (writer, late, swapper) = (bench.log_in(0), bench.log_in(0), bench.log_in(1));
    bench.disk(0).take(Take::Ring);
    bench.send(writer, cdb::write(4, 2, 9));
    bench.send(swapper, cdb::compare_and_write(4, 1, 9, 1));
    assert_eq!(bench.disk(1).log(), [""; 0], "it waits for the write");
    bench.send(late, cdb::write(4, 1, 5));
    bench.send(late, cdb::write(6, 1, 5));
    assert_eq!(
        bench.disk(0).log(),
        ["write 4+2", "write 6+1"],
        "one is parked"
    );
    bench.finish(0, 0);
    assert_eq!(bench.answer(swapper).end(), GOOD);
    assert_eq!(bench.disk(0).log(), ["write 4+1"], "the fence is down");
    bench.finish_all(0);
    assert_eq!(bench.disk(0).byte(4), 5);
    assert_eq!(bench.answers(late).len(), 2);
    bench.end();
}

#[test]
fn reads_wait_for_a_fence_as_well() {
    let mut bench = Bench::new(2);
    let (reader, swapper) = (bench.log_in(0), bench.log_in(1));
    bench.disk(1).take_next([Take::Now, Take::Ring]);
    bench.send(swapper, cdb::compare_and_write(0, 1, 0, 3));
    bench.send(reader, cdb::read(0, 1));
    assert_eq!(bench.answers(reader), []);
    bench.finish_all(1);
    assert_eq!(bench.answer(reader).data[0], 3);
    bench.end();
}

#[test]
fn fences_on_other_blocks_do_not_meet() {
    let mut bench = Bench::new(1);
    let (one, other) = (bench.log_in(0), bench.log_in(0));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(one, cdb::compare_and_write(0, 2, 0, 1));
    bench.send(other, cdb::compare_and_write(2, 2, 0, 1));
    assert_eq!(bench.answer(other).end(), GOOD);
    assert_eq!(bench.answers(one), []);
    bench.finish_all(0);
    assert_eq!(bench.answer(one).end(), GOOD);
    bench.end();
}

#[test]
fn those_who_were_parked_by_two_fences_wait_for_both() {
    let mut bench = Bench::new(1);
    let whos: Vec<Who> = (0..3).map(|_| bench.log_in(0)).collect();
    bench.disk(0).take_next([Take::Ring, Take::Ring]);
    bench.send(whos[0], cdb::compare_and_write(0, 1, 0, 1));
    bench.send(whos[1], cdb::compare_and_write(1, 1, 0, 1));
    bench.send(whos[2], cdb::write(0, 2, 9));
    bench.finish(0, 0);
    assert_eq!(bench.answers(whos[2]), []);
    bench.finish_all(0);
    assert_eq!(bench.answer(whos[2]).end(), GOOD);
    assert_eq!(bench.disk(0).byte(1), 9);
    bench.end();
}

#[test]
fn a_holder_that_is_aborted_gives_its_fence_back_when_the_store_is_done() {
    let mut bench = Bench::new(2);
    let (swapper, writer) = (bench.log_in(1), bench.log_in(0));
    bench.disk(1).take_next([Take::Now, Take::Ring]);
    let id = bench.send(swapper, cdb::compare_and_write(0, 1, 0, 3));
    bench.send(writer, cdb::write(0, 1, 7));
    bench.abort(swapper, id);
    assert_eq!(
        bench.answers(writer),
        [],
        "the write of the holder may still land"
    );
    bench.finish_all(1);
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert_eq!(bench.disk(0).byte(0), 7);
    bench.end();
}

#[test]
fn a_fence_that_comes_for_a_task_that_is_over_is_given_back() {
    let mut bench = Bench::new(2);
    let (swapper, other) = (bench.log_in(1), bench.log_in(0));
    let id = bench.send_only(swapper, cdb::compare_and_write(0, 1, 0, 3));
    let to_owner = Way { from: 1, to: 0 };
    bench.deliver(to_owner);
    bench.cores[1].abort_commands(swapper.key, vec![id]);
    bench.settle();
    assert_eq!(bench.port(swapper).abandoned, [id]);
    assert_eq!(bench.disk(1).log(), [""; 0]);
    bench.send(other, cdb::write(0, 1, 1));
    assert_eq!(bench.answer(other).end(), GOOD);
    bench.end();
}

#[test]
fn an_orphan_under_a_fence_keeps_it_from_rising() {
    let mut bench = Bench::new(2);
    let (writer, swapper) = (bench.log_in(0), bench.log_in(1));
    bench.disk(0).take_next([Take::Ring]);
    bench.send(writer, cdb::write(0, 1, 9));
    bench.end_session(writer);
    bench.pass(ABORT - super::bench::MOMENT);
    bench.send(swapper, cdb::compare_and_write(0, 1, 0, 1));
    bench.pass(super::bench::MOMENT);
    assert!(bench.is_over(writer));
    assert_eq!(bench.answers(swapper), []);
    bench.finish_all(0);
    // The orphan has landed: what is compared is what it wrote.
    assert_eq!(bench.answer(swapper).sense, MISCOMPARE);
    assert_eq!(bench.disk(0).byte(0), 9);
    bench.end();
}
