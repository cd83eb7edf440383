//! Units that get no more space.

use scsi::Status;
use store::IoFailure;

use super::bench::{Bench, UNIT, in_every_order};
use super::cdb;
use super::disk::Take;
use super::fence::choose_way;
use super::outside::GOOD;
use crate::Space;

type End = (Status, Option<(u8, u8, u8)>);
const NO_SPACE: End = (Status::CheckCondition, Some((7, 0x27, 7)));
const LITTLE_SPACE: End = (Status::CheckCondition, Some((6, 0x38, 7)));

fn set_space(bench: &mut Bench, space: Space) {
    for core in 0..bench.cores.len() {
        bench.cores[core].set_space(UNIT, space);
        bench.step(core);
    }
    bench.settle();
}

/// A unit whose blocks 0 to 7 have space, and that gets no more.
fn full() -> (Bench, super::bench::Who) {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.send(who, cdb::write(0, 8, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    set_space(&mut bench, Space::Full);
    bench.send(who, cdb::test_unit_ready());
    assert_eq!(bench.answer(who).end(), LITTLE_SPACE);
    bench.disk(0).log();
    (bench, who)
}

#[test]
fn initiators_learn_once_that_little_is_left() {
    let mut bench = Bench::new(2);
    let all = [bench.log_in(0), bench.log_in(1)];
    let reported = |bench: &mut Bench| {
        all.map(|who| {
            bench.send(who, cdb::test_unit_ready());
            bench.answer(who).end()
        })
    };
    for (space, end) in [
        (Space::Free, GOOD),
        (Space::Low, LITTLE_SPACE),
        (Space::Low, GOOD),
        (Space::Full, GOOD),
        (Space::Low, GOOD),
        (Space::Free, GOOD),
        (Space::Full, LITTLE_SPACE),
    ] {
        set_space(&mut bench, space);
        assert_eq!(reported(&mut bench), [end, end], "{space:?}");
        assert_eq!(reported(&mut bench), [GOOD, GOOD], "{space:?}, again");
    }
    bench.end();
}

#[test]
fn what_has_space_is_written_and_nothing_else() {
    let (mut bench, who) = full();
    let cases = [
        (cdb::write(2, 6, 3), GOOD, 2),
        (cdb::write(8, 1, 4), NO_SPACE, 8),
        (cdb::write(7, 2, 5), NO_SPACE, 7),
        (cdb::write_same(4, 3, 6), GOOD, 4),
        (cdb::write_same(6, 8, 7), NO_SPACE, 9),
        (cdb::compare_and_write(5, 1, 6, 8), GOOD, 5),
        (cdb::compare_and_write(9, 1, 0, 8), NO_SPACE, 9),
        (cdb::read(7, 2), GOOD, 9),
        (cdb::synchronize(), GOOD, 9),
        (cdb::unmap(5, 2), GOOD, 5),
        (cdb::write(5, 1, 9), NO_SPACE, 5),
    ];
    for (command, end, block) in cases {
        let before = bench.disk(0).byte(block);
        let what = format!("{command:?}");
        bench.send(who, command);
        assert_eq!(bench.answer(who).end(), end, "{what}");
        if end == NO_SPACE {
            assert_eq!(bench.disk(0).byte(block), before, "{what}");
        }
    }
    set_space(&mut bench, Space::Low);
    bench.send(who, cdb::write(100, 8, 9));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn one_that_waits_for_the_look_can_be_aborted_and_has_written_nothing() {
    let (mut bench, who) = full();
    bench.disk(0).take(Take::Pending);
    let id = bench.send(who, cdb::write(0, 4, 7));
    assert_eq!(bench.answers(who), [], "the store is being asked");
    bench.abort(who, id);
    bench.finish_pending(0);
    bench.disk(0).take(Take::Now);
    bench.settle();
    assert_eq!(bench.disk(0).byte(0), 1);
    bench.send(who, cdb::write(0, 4, 8));
    assert_eq!(bench.answers(who).last().unwrap().1.end(), GOOD);
    bench.end();
}

#[test]
fn a_store_that_cannot_say_it_fails_the_write() {
    let (mut bench, who) = full();
    bench.disk(0).take_next([Take::Fail(IoFailure::NotReady)]);
    bench.send(who, cdb::write(0, 1, 7));
    let not_ready = (Status::CheckCondition, Some((2, 4, 1)));
    assert_eq!(bench.answer(who).end(), not_ready);
    bench.end();
}

#[test]
fn the_look_and_the_write_wait_for_room_in_the_store() {
    let (mut bench, who) = full();
    // The look finds no room, then the write finds none, then both do.
    let takes = [Take::Full, Take::Ring, Take::Now, Take::Full, Take::Ring];
    bench.disk(0).take_next(takes);
    bench.send(who, cdb::write(0, 1, 7));
    for _ in 0..2 {
        assert_eq!(bench.disk(0).byte(0), 1, "it waits");
        bench.send(who, cdb::read(3, 1));
        bench.finish_all(0);
    }
    let ends = bench
        .answers(who)
        .into_iter()
        .map(|(_, answer)| answer.end());
    assert_eq!(ends.collect::<Vec<End>>(), [GOOD; 3]);
    assert_eq!(bench.disk(0).byte(0), 7);
    bench.end();
}

#[test]
fn fences_hold_in_every_order() {
    in_every_order(|choose| {
        let mut bench = Bench::new(2);
        let (first, other) = (bench.log_in(0), bench.log_in(1));
        bench.send(first, cdb::write(0, 2, 1));
        bench.answers(first);
        set_space(&mut bench, Space::Full);
        for who in [first, other] {
            bench.send(who, cdb::test_unit_ready());
            bench.answers(who);
        }
        bench.send_only(first, cdb::compare_and_write(0, 1, 1, 2));
        bench.send_only(other, cdb::write(0, 1, 3));
        let mut choices = 0;
        while let Some(way) = choose_way(&bench, &mut choices, choose) {
            bench.deliver(way);
        }
        bench.settle();
        let ends = [first, other].map(|who| bench.answer(who).end());
        assert_eq!(ends[1], GOOD);
        let lost = (Status::CheckCondition, Some((0xe, 0x1d, 0)));
        assert!(ends[0] == GOOD || ends[0] == lost, "{ends:?}");
        assert_eq!(bench.disk(0).byte(0), 3);
        bench.end();
    });
}
