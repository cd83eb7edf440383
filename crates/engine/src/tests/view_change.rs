//! What a session sees changes, in pieces.

use std::rc::Rc;

use super::bench::{Bench, TURN_BYTES, Who, visible};
use super::cdb;
use super::outside::{GOOD, PROTECTED, Receipt};
use crate::{UnitIndex, VisibleLun};

const NO_UNIT: Option<(u8, u8, u8)> = Some((5, 0x25, 0));
const NEW_HERE: Option<(u8, u8, u8)> = Some((6, 0x29, 0));
const LUNS_CHANGED: Option<(u8, u8, u8)> = Some((6, 0x3f, 0x0e));
const MODE_CHANGED: Option<(u8, u8, u8)> = Some((6, 0x2a, 1));

/// Numbers that have their notices in one turn.
const NOTICES: u16 = 128;
const _: () = assert!(NOTICES as usize * 512 == TURN_BYTES);

fn is_done(receipt: &Receipt) -> bool {
    Rc::strong_count(receipt) == 1
}

/// The units of these numbers, each by its own.
fn all(luns: impl IntoIterator<Item = u16>) -> Vec<VisibleLun> {
    luns.into_iter()
        .map(|lun| visible(lun, lun.into()))
        .collect()
}

fn log_in(bench: &mut Bench, luns: &[VisibleLun]) -> Who {
    let who = bench.log_in_seeing(0, luns, None);
    bench.settle();
    who
}

fn change(bench: &mut Bench, who: Who, before: &[VisibleLun], now: &[VisibleLun]) -> Receipt {
    let receipt = Receipt::default();
    let lists = (before.to_vec(), now.to_vec());
    bench.cores[0].change_view(who.key, lists, Rc::clone(&receipt));
    bench.step(0);
    receipt
}

/// How many further turns the pieces take.
fn turns(bench: &mut Bench) -> usize {
    let mut turns = 0;
    while bench.cores[0].has_pieces() {
        bench.turn(0);
        turns += 1;
    }
    turns
}

#[track_caller]
fn expect(bench: &mut Bench, who: Who, lun: u16, sense: Option<(u8, u8, u8)>) {
    // Numbers from 256 on are sent as flat ones.
    let field = if lun < 256 { lun } else { 0x4000 | lun };
    bench.send(who, cdb::read(0, 1).to(field));
    assert_eq!(bench.answer(who).sense, sense, "of LUN {lun}");
}

/// A session with so many numbers of which one goes: how many turns that takes.
fn turns_of(numbers: u16) -> usize {
    let mut bench = Bench::with_units(1, numbers.into());
    let before = all(0..numbers);
    let who = log_in(&mut bench, &before);
    let now = all((0..numbers).filter(|&lun| lun != 7));
    let receipt = change(&mut bench, who, &before, &now);
    bench.deliver_all();
    assert!(!is_done(&receipt), "others have no notice yet");
    let turns = turns(&mut bench);
    bench.settle();
    assert!(is_done(&receipt));
    expect(&mut bench, who, 7, NO_UNIT);
    for lun in [0, 6, 8, numbers - 1] {
        expect(&mut bench, who, lun, LUNS_CHANGED);
        expect(&mut bench, who, lun, None);
    }
    bench.end();
    turns
}

#[test]
fn a_change_of_many_numbers_goes_on_from_turn_to_turn_and_is_done_after_the_last() {
    assert_eq!(turns_of(2 * NOTICES), 2);
    assert_eq!(turns_of(4 * NOTICES), 5, "it grows with the numbers alone");
    assert_eq!(turns_of(8 * NOTICES), 11);
}

#[test]
fn sessions_take_turns_however_much_of_the_view_of_one_changes() {
    let mut bench = Bench::with_units(1, 4 * usize::from(NOTICES));
    let before = all(0..4 * NOTICES);
    let (greedy, modest) = (log_in(&mut bench, &before), log_in(&mut bench, &all([0])));
    let much = change(&mut bench, greedy, &before, &before[1..]);
    let little = change(&mut bench, modest, &all([0]), &[]);
    assert!(!is_done(&little));
    bench.turn(0);
    bench.turn(0);
    bench.deliver_all();
    assert!(is_done(&little) && !is_done(&much));
    turns(&mut bench);
    bench.end();
}

#[test]
fn units_that_come_go_and_move_do_so_in_one_change() {
    let mut bench = Bench::with_units(1, 4);
    // In no order.
    let before = [visible(9, 3), visible(0, 0), visible(2, 1)];
    let who = log_in(&mut bench, &before);
    let reading = VisibleLun {
        read_only: true,
        ..visible(0, 0)
    };
    let now = [visible(2, 2), visible(5, 1), reading];
    let receipt = change(&mut bench, who, &before, &now);
    bench.settle();
    assert!(is_done(&receipt));
    expect(&mut bench, who, 0, MODE_CHANGED);
    expect(&mut bench, who, 0, LUNS_CHANGED);
    bench.send(who, cdb::write(0, 1, 1));
    assert_eq!(bench.answer(who).end(), PROTECTED);
    for lun in [2, 5] {
        expect(&mut bench, who, lun, NEW_HERE);
        bench.send(who, cdb::write(0, 1, 1).to(lun));
        assert_eq!(bench.answer(who).end(), GOOD);
    }
    expect(&mut bench, who, 9, NO_UNIT);
    // Others neither come nor go.
    change(&mut bench, who, &now, &[visible(0, 0), now[0], now[1]]);
    expect(&mut bench, who, 0, MODE_CHANGED);
    expect(&mut bench, who, 5, None);
    bench.end();
}

#[test]
fn what_a_session_was_to_see_is_over_with_it() {
    let mut bench = Bench::with_units(1, 2 * usize::from(NOTICES));
    let before = all(0..2 * NOTICES);
    let who = log_in(&mut bench, &before);
    let receipt = change(&mut bench, who, &before, &before[1..]);
    bench.end_session(who);
    bench.turn(0);
    bench.settle();
    assert!(bench.is_over(who) && is_done(&receipt));
    assert!(is_done(&change(&mut bench, who, &before, &[])));
    bench.end();
}

#[test]
fn a_unit_is_not_idle_while_a_change_may_give_it() {
    let mut bench = Bench::with_units(1, 2 * usize::from(NOTICES));
    let now = all(0..2 * NOTICES);
    let who = log_in(&mut bench, &[]);
    change(&mut bench, who, &[], &now);
    let last = UnitIndex(now[now.len() - 1].unit.0);
    assert!(!bench.cores[0].is_unit_idle(last));
    turns(&mut bench);
    bench.settle();
    expect(&mut bench, who, now[now.len() - 1].lun, NEW_HERE);
    bench.end();
}
