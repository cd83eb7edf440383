//! The rules hold, and notice what is wrong.

use engine::{TargetIndex, UnitIndex, VisibleLun};

use super::book::Book;
use super::books::Books;
use super::seat::Seat;
use super::{Planted, Report, run, run_noted};
use crate::initiator::{Breach, Operation};
use crate::plan::Plan;
use crate::sabotage::Sabotage;

#[test]
fn more_than_one_of_each_thing_keeps_the_rules() {
    let mut all = Report::default();
    for seed in 0..60 {
        let report = run(seed, None).unwrap_or_else(|breach| {
            let (_, diary) = run_noted(seed, None);
            let last = diary.len().saturating_sub(60);
            panic!("seed {seed}: {breach:?}\n{}", diary[last..].join("\n"))
        });
        let (sum, one) = (&mut all.outcomes, report.outcomes);
        sum.good += one.good;
        sum.failed += one.failed;
        sum.kept_out += one.kept_out;
        sum.preempted += one.preempted;
        sum.preempted_writing += one.preempted_writing;
        sum.no_space += one.no_space;
        sum.lost += one.lost;
        sum.attentions += one.attentions;
        sum.resets += one.resets;
        sum.moved += one.moved;
        all.harmed += report.harmed;
        all.logins += report.logins;
        all.crashes += report.crashes;
        all.changes += report.changes;
        all.outages += report.outages;
        all.full += report.full;
        all.replayed += report.replayed;
        all.idle_wakes += report.idle_wakes;
    }
    let of = all.outcomes;
    assert!(
        of.good > 3000 && of.failed > 500 && of.lost > 200,
        "{all:?}"
    );
    assert!(of.kept_out > 20 && of.preempted > 0, "{all:?}");
    assert!(of.preempted_writing > 2, "{all:?}");
    assert!(of.attentions > 500 && of.resets > 15, "{all:?}");
    assert!(of.moved > 20 && all.changes > 100, "{all:?}");
    assert!(all.harmed > 1000 && all.logins > 300, "{all:?}");
    assert!(all.crashes > 5 && all.outages > 50, "{all:?}");
    assert!(all.full > 20 && of.no_space > 50, "{all:?}");
    assert!(all.replayed > 0, "{all:?}");
    assert!(all.idle_wakes > 100, "{all:?}");
}

#[test]
fn what_is_planted_is_noticed() {
    // By whichever rule is first: some of what is planted shows in several. A client of HyperSCSI whose command is not
    // answered gives up and logs in again, as after a loss; the world of the target notices lost answers.
    let sabotages = Sabotage::ALL.into_iter().map(|(sabotage, _)| sabotage);
    let sabotages = sabotages.filter(|sabotage| *sabotage != Sabotage::ForgetAnswers);
    let others = [Planted::LosesBytes, Planted::NoReservations];
    for planted in sabotages.map(Planted::Target).chain(others) {
        let found = (0..60).find_map(|seed| run(seed, Some(planted)).err());
        assert!(found.is_some(), "{planted:?}");
    }
}

#[test]
fn equal_seeds_give_equal_lives() {
    for seed in 0..5 {
        let noted = run_noted(seed, None);
        assert_eq!(noted, run_noted(seed, None));
        assert_eq!(noted.0, run(seed, None));
    }
}

/// Two units. Player 0 sees the first one as LUN 2 and by LUN 5 what is said here; player 1 sees both, as 0 and 1.
fn plan(by_five: u32) -> Plan {
    let lun = |lun, unit| VisibleLun {
        lun,
        unit: UnitIndex(unit),
        read_only: false,
    };
    Plan {
        removable: vec![true, true],
        targets: vec![vec![lun(2, 0), lun(5, by_five)], vec![lun(0, 0), lun(1, 1)]],
        exports: Vec::new(),
        ..Plan::one()
    }
}

/// Books of two players that have sessions, where LUN 5 leads to the second unit.
fn books() -> Books {
    let seat = |target| Seat::Iscsi {
        host: 0,
        target: TargetIndex(target),
    };
    let units = vec![Book::new(8, true, true), Book::new(8, true, true)];
    let mut books = Books::new(units, plan(1), vec![seat(0), seat(1)]);
    books.open_session(0);
    books.open_session(1);
    books
}

/// Player 1 gives a command by a number, and it ends with GOOD.
fn carry_out(books: &mut Books, number: u16, operation: Operation) -> Result<(), Breach> {
    let handle = books.begin((1, number), operation);
    books.answer(handle, (0, None), &[])
}

/// Both players have joined, and player 1 has reported that its nexuses have begun.
fn joined() -> Books {
    let mut books = books();
    books.rejoin(0);
    books.rejoin(1);
    for number in [0, 1] {
        let handle = books.begin((1, number), Operation::TestUnitReady);
        let began = books.answer(handle, (2, Some((6, 0x29, 0))), &[]);
        assert!(began.is_ok(), "{began:?}");
    }
    books
}

/// Whether player 1 may be served by a number as if nothing had happened.
fn is_served(books: &mut Books, number: u16) -> bool {
    let ready = carry_out(books, number, Operation::TestUnitReady);
    assert!(ready.is_ok(), "{ready:?}");
    books.check_judges().is_ok()
}

#[test]
fn a_reset_is_owed_of_the_unit_that_its_number_leads_to() {
    let mut books = joined();
    assert!(is_served(&mut books, 1));
    let reset = books.begin_reset(0, Some(5));
    books.end_reset(reset, true);
    assert!(is_served(&mut books, 0));
    assert!(!is_served(&mut books, 1));
}

#[test]
fn a_reset_by_a_number_that_changes_may_have_come_to_either_unit() {
    let mut books = joined();
    let early = books.begin_reset(0, Some(5));
    books.begin_change(plan(0));
    books.end_reset(early, true);
    let late = books.begin_reset(0, Some(5));
    books.end_reset(late, true);
    assert!(is_served(&mut books, 0) && is_served(&mut books, 1));
    books.end_change();
    let reset = books.begin_reset(0, Some(5));
    books.end_reset(reset, true);
    assert!(is_served(&mut books, 1));
    assert!(!is_served(&mut books, 0));
}

#[test]
fn the_reference_judges_what_the_books_do_not() {
    // The books do not ask for the attention of a nexus that has begun.
    let mut books = books();
    books.rejoin(1);
    let silent = carry_out(&mut books, 0, Operation::TestUnitReady);
    assert!(silent.is_ok(), "{silent:?}");
    let rule = books.check_judges().map_err(|breach| breach.rule);
    assert_eq!(rule, Err("the-reference-allows-it"));
}

#[test]
fn what_the_reference_allows_is_no_breach() {
    let mut books = joined();
    assert!(is_served(&mut books, 0) && is_served(&mut books, 1));
    // A lost medium that nobody has ejected.
    let handle = books.begin((1, 0), Operation::Flush);
    let lost = books.answer(handle, (2, Some((2, 0x3a, 0))), &[]);
    assert!(lost.is_ok() && books.check_judges().is_err());
}
