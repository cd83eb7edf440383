//! The book, call by call.

use super::*;

const A: NexusId = NexusId(1);
const B: NexusId = NexusId(2);
const C: NexusId = NexusId(3);

fn name(n: u16) -> PortName {
    PortName {
        transport_id: Arc::from(n.to_be_bytes()),
        target_port: 1,
        principal: Principal::Nobody,
    }
}

/// A flush that the store answers as good: whether a loss is reported.
fn flush(book: &Uncovered, nexus: NexusId, of: u16, lost: u64) -> bool {
    flush_at(book, nexus, of, lost, Duration::ZERO)
}

fn flush_at(book: &Uncovered, nexus: NexusId, of: u16, lost: u64, now: Duration) -> bool {
    let name = &name(of);
    let mark = book.mark(Actor { nexus, name, now }, lost);
    settle(book, nexus, of, (mark, lost, now))
}

fn write(book: &Uncovered, nexus: NexusId, of: u16, since: u64) {
    let (name, now) = (&name(of), Duration::ZERO);
    book.note_write(Actor { nexus, name, now }, since);
}

fn mark_of(book: &Uncovered, nexus: NexusId, of: u16, lost: u64) -> Mark {
    let (name, now) = (&name(of), Duration::ZERO);
    book.mark(Actor { nexus, name, now }, lost)
}

fn settle(
    book: &Uncovered,
    nexus: NexusId,
    of: u16,
    (mark, lost, now): (Mark, u64, Duration),
) -> bool {
    let name = &name(of);
    book.settle(Actor { nexus, name, now }, mark, lost)
}

fn cover(book: &Uncovered, mark: Mark, lost: u64) {
    let (nexus, name, now) = (A, &name(1), Duration::ZERO);
    book.cover(Actor { nexus, name, now }, mark, lost);
}

/// A nexus goes without a farewell.
fn break_off(book: &Uncovered, nexus: NexusId, lost: u64, now: Duration) {
    let (is_covered, is_farewell) = (false, false);
    let departure = Departure {
        is_covered,
        lost,
        is_farewell,
        now,
    };
    book.depart(nexus, departure);
}

/// One whose writes are never covered has a part in each loss.
fn beside_another() -> Uncovered {
    let book = Uncovered::default();
    write(&book, NexusId(99), 99, 0);
    book
}

/// A nexus goes with a farewell.
fn depart(book: &Uncovered, nexus: NexusId, lost: u64, is_covered: bool) {
    let departure = Departure {
        is_covered,
        lost,
        is_farewell: true,
        now: Duration::ZERO,
    };
    book.depart(nexus, departure);
}

#[test]
fn a_loss_is_reported_to_each_initiator_that_wrote_once() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    write(&book, B, 2, 0);
    assert!(!flush(&book, C, 3, 1), "it wrote nothing");
    assert!(flush(&book, B, 2, 1));
    assert!(flush(&book, A, 1, 1), "what was reported to B was not to A");
    assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 2, 1));
    write(&book, A, 1, 1);
    assert!(!flush(&book, A, 1, 1), "nothing was lost since");
}

/// As a host with several paths, and as several programs that look like one.
#[test]
fn a_loss_of_one_session_is_reported_to_each_of_its_initiator() {
    let book = beside_another();
    write(&book, A, 1, 0);
    assert!(flush(&book, B, 1, 1), "it flushes what A has written");
    assert!(flush(&book, A, 1, 1));
    assert!(!flush(&book, A, 1, 1) && !flush(&book, B, 1, 1));
    assert!(flush(&book, C, 1, 1), "nobody knows whether it has come");
    let d = NexusId(4);
    assert!(
        !flush_at(&book, d, 1, 1, RECEIPT),
        "its initiator knows by then"
    );
    // A write by one is covered by a flush of the other.
    write(&book, A, 1, 1);
    assert!(!flush(&book, B, 1, 1) && !flush(&book, A, 1, 2));
}

#[test]
fn what_a_good_flush_has_covered_is_not_reported_and_what_came_during_it_is() {
    let book = beside_another();
    write(&book, A, 1, 0);
    let mark = mark_of(&book, A, 1, 0);
    write(&book, A, 1, 0);
    assert!(!settle(&book, A, 1, (mark, 0, Duration::ZERO)));
    assert!(flush(&book, A, 1, 1), "the second write");
    write(&book, A, 1, 1);
    assert!(!flush(&book, A, 1, 1));
    assert!(!flush(&book, A, 1, 2), "it was covered before");
    // Two losses between two flushes are one.
    write(&book, A, 1, 2);
    write(&book, A, 1, 3);
    assert!(flush(&book, A, 1, 4) && !flush(&book, A, 1, 4));
}

#[test]
fn what_was_not_reported_to_the_last_session_is_to_the_next_one() {
    let book = beside_another();
    write(&book, A, 1, 0);
    depart(&book, A, 0, false);
    assert!(!flush(&book, B, 2, 1));
    assert!(flush(&book, C, 1, 1));
    depart(&book, C, 1, true);
    assert!(!flush(&book, NexusId(4), 1, 1));
    depart(&book, NexusId(4), 1, true);
    // It was reported to another session, but not to this one.
    let (a, b) = (NexusId(5), NexusId(6));
    write(&book, a, 1, 1);
    assert!(flush(&book, b, 1, 2));
    depart(&book, a, 2, true);
    assert!(flush(&book, NexusId(7), 1, 2));
    // Nothing is left of writes that somebody has flushed.
    write(&book, B, 2, 2);
    depart(&book, B, 2, true);
    assert!(!flush(&book, NexusId(8), 2, 3));
}

#[test]
fn initiators_without_a_session_are_bounded_and_none_of_them_is_forgotten() {
    let book = Uncovered::default();
    for n in 0..1000 {
        write(&book, A, n, 0);
        depart(&book, A, 0, false);
    }
    assert_eq!(book.book().absent.len(), ABSENT_MAX);
    assert_eq!(book.book().initiators.len(), ABSENT_MAX);
    for n in [999, 0, 1] {
        let nexus = NexusId(u32::from(n) + 4);
        assert!(flush(&book, nexus, n, 1), "{n}, known or not");
        assert!(!flush(&book, nexus, n, 1), "{n}, once");
        depart(&book, nexus, 1, true);
        let next = NexusId(u32::from(n) + 2000);
        assert!(!flush(&book, next, n, 1), "{n}, in no other session");
        depart(&book, next, 1, true);
    }
    assert_eq!(book.book().absent.len(), ABSENT_MAX);
}

/// Where nobody has found no place, a flush that has covered everything leaves nothing for strangers.
#[test]
fn what_a_whole_flush_has_covered_is_nothing_to_those_who_found_no_place() {
    let book = beside_another();
    for n in 0..300 {
        write(&book, A, n, 0);
        depart(&book, A, 0, false);
    }
    assert!(!flush(&book, B, 500, 0));
    assert!(!flush(&book, C, 0, 1), "it is covered");
    assert!(flush(&book, NexusId(4), 299, 1), "its own flush it had not");
}

/// Coming and going makes no place free, and takes none.
#[test]
fn one_initiator_that_comes_again_and_again_displaces_nobody() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    depart(&book, A, 0, false);
    for _ in 0..1000 {
        write(&book, B, 2, 0);
        depart(&book, B, 0, false);
        assert!(!flush(&book, C, 2, 0));
        depart(&book, C, 0, false);
    }
    assert!(book.book().absent.len() == 1 && book.book().anyone.is_none());
    assert!(flush(&book, NexusId(4), 1, 1));
}

#[test]
fn what_initiators_do_not_know_is_reported_to_an_administrator_once() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    assert!(!book.is_owed(0));
    assert!(book.is_owed(1) && book.report_to_administrator(1));
    assert!(!book.is_owed(1) && !book.report_to_administrator(1));
    assert!(book.report_to_administrator(2));
    assert!(flush(&book, A, 1, 2), "to the initiator, all the same");
    write(&book, A, 1, 2);
    write(&book, B, 2, 2);
    assert!(flush(&book, A, 1, 3));
    assert!(flush(&book, B, 2, 3) && !book.is_owed(3));
    assert!(
        !book.report_to_administrator(3),
        "there is nothing to report"
    );
    write(&book, A, 1, 3);
    assert!(flush(&book, C, 1, 4));
    assert!(!book.report_to_administrator(4), "A may ask yet");
    depart(&book, A, 4, true);
    assert!(book.report_to_administrator(4), "it has not");
}

/// As after a restart, beside which a server reports what it has lost.
#[test]
fn a_loss_of_what_nobody_here_has_written_is_reported_to_everybody() {
    let book = Uncovered::default();
    assert!(!flush(&book, A, 1, 0));
    assert!(!flush(&book, A, 1, 1), "no loss of a former time");
    for _ in 0..2 {
        book.see(1, 2);
    }
    assert!(flush(&book, A, 1, 2) && !flush(&book, A, 1, 2));
    assert!(book.is_owed(2), "to those who are not here");
    assert!(flush(&book, B, 2, 2) && !flush(&book, B, 2, 2));
    depart(&book, B, 2, true);
    assert!(!flush(&book, C, 2, 2), "it knows");
}

#[test]
fn a_write_under_way_during_a_flush_is_not_covered_by_it() {
    let book = Uncovered::default();
    let mark = mark_of(&book, A, 1, 0);
    // It began before the flush, and is answered after it.
    assert!(!settle(&book, A, 1, (mark, 0, Duration::ZERO)));
    write(&book, A, 1, 0);
    assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
    // One that was under way at a loss that was reported since.
    write(&book, A, 1, 0);
    assert!(flush(&book, A, 1, 1) && !flush(&book, A, 1, 1));
}

/// As one of several connections of a client.
#[test]
fn a_session_that_wrote_nothing_and_goes_is_owed_nothing() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    let mark = mark_of(&book, B, 1, 0);
    depart(&book, B, 1, false);
    assert!(mark.writes == 1 && flush(&book, A, 1, 1));
    depart(&book, A, 1, true);
    assert!(!book.is_owed(1) && !flush(&book, C, 1, 1));
}

/// Two programs of one name.
#[test]
fn each_session_that_is_away_gets_what_it_does_not_know_when_it_is_back() {
    for leaves_first in [true, false] {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        write(&book, B, 1, 0);
        if leaves_first {
            depart(&book, B, 0, false);
        }
        assert!(flush(&book, A, 1, 1));
        if !leaves_first {
            depart(&book, B, 1, true);
        }
        assert!(book.is_owed(1));
        assert!(flush(&book, C, 1, 1) && !flush(&book, C, 1, 1));
        let d = NexusId(4);
        assert!(!flush_at(&book, d, 1, 1, RECEIPT), "one was away");
    }
}

#[test]
fn a_report_that_may_not_have_come_is_made_again() {
    for (is_farewell, after, is_again) in [
        (false, Duration::ZERO, true),
        (false, RECEIPT - Duration::from_secs(1), true),
        (false, RECEIPT, false),
        (true, Duration::ZERO, false),
    ] {
        let book = Uncovered::default();
        let at = Duration::from_secs(1000);
        write(&book, A, 1, 0);
        let mark = mark_of(&book, A, 1, 1);
        assert!(settle(&book, A, 1, (mark, 1, at)));
        let departure = Departure {
            is_covered: true,
            lost: 1,
            is_farewell,
            now: at + after,
        };
        book.depart(A, departure);
        assert_eq!(flush_at(&book, B, 1, 1, at + after), is_again);
        assert!(!flush_at(&book, B, 1, 1, at + after));
    }
}

#[test]
fn a_flush_for_one_command_covers_and_is_no_report() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    let mark = mark_of(&book, A, 1, 0);
    cover(&book, mark, 0);
    assert!(!flush(&book, A, 1, 1), "it was covered before the loss");
    write(&book, A, 1, 1);
    let mark = mark_of(&book, A, 1, 2);
    cover(&book, mark, 2);
    assert!(flush(&book, A, 1, 2) && !flush(&book, A, 1, 2));
}

/// As a host whose path hangs, which Tarn does not know yet.
#[test]
fn a_session_that_begins_while_a_report_may_be_stuck_gets_it() {
    for has_read in [false, true] {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        if has_read {
            assert!(!flush(&book, B, 1, 0));
            write(&book, A, 1, 0);
        }
        assert!(flush(&book, A, 1, 1), "it is stuck");
        assert!(flush(&book, B, 1, 1) && !flush(&book, B, 1, 1));
        assert!(!book.is_owed(1));
    }
}

/// As a connection that breaks before the answer to its flush.
#[test]
fn a_debt_stays_until_a_session_has_had_its_report() {
    for is_reported in [false, true] {
        let book = Uncovered::default();
        write(&book, A, 1, 0);
        assert!(flush(&book, A, 1, 1));
        break_off(&book, A, 1, Duration::ZERO);
        for n in 4..8 {
            let nexus = NexusId(n);
            assert!(book.is_owed(1));
            mark_of(&book, nexus, 1, 1);
            assert!(!is_reported || flush(&book, nexus, 1, 1) && !book.is_owed(1));
            break_off(&book, nexus, 1, RECEIPT / 2);
        }
        assert!(flush(&book, B, 1, 1));
        break_off(&book, B, 1, RECEIPT);
        assert!(!book.is_owed(1) && !flush_at(&book, C, 1, 1, RECEIPT));
    }
}

/// As a host that is back with two paths, and writes by one and flushes by the other.
#[test]
fn what_one_session_is_to_pay_others_get_too_until_it_has() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    break_off(&book, A, 1, Duration::ZERO);
    write(&book, B, 1, 1);
    assert!(flush(&book, C, 1, 1) && !flush(&book, C, 1, 1));
    break_off(&book, C, 1, Duration::ZERO);
    assert!(flush(&book, B, 1, 1));
    // C may not have had it, and B has.
    depart(&book, B, 1, true);
    assert!(flush(&book, NexusId(4), 1, 1));
    depart(&book, NexusId(4), 1, true);
    assert!(!flush(&book, NexusId(5), 1, 1) && !book.is_owed(1));
}

#[test]
fn debts_that_nobody_pays_and_reports_that_nobody_has_had_are_bounded() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    break_off(&book, A, 1, Duration::ZERO);
    for n in 0..10_000 {
        let nexus = NexusId(n + 4);
        assert!(flush(&book, nexus, 1, 1));
        break_off(&book, nexus, 1, Duration::ZERO);
    }
    assert!(book.book().unheard.len() <= ABSENT_MAX + 2);
    assert!(book.book().initiators.values().all(|one| one.away <= 1));
    assert!(flush(&book, A, 1, 1));
    depart(&book, A, 1, true);
    assert!(!flush(&book, B, 1, 1));
}

/// As one that is back and breaks off before the answer to its flush, while another one stays.
#[test]
fn who_breaks_off_before_a_loss_takes_no_debt_along() {
    let book = Uncovered::default();
    let other = NexusId(9);
    assert!(!flush(&book, other, 1, 0));
    write(&book, A, 1, 0);
    break_off(&book, A, 0, Duration::ZERO);
    mark_of(&book, B, 1, 0);
    break_off(&book, B, 0, Duration::ZERO);
    assert!(flush(&book, other, 1, 1));
    depart(&book, other, 1, true);
    assert!(flush(&book, C, 1, 1));
}

/// Else each new session would get a report that is none of its concern.
#[test]
fn a_debt_that_a_flush_has_covered_is_paid() {
    let book = Uncovered::default();
    write(&book, A, 1, 0);
    break_off(&book, A, 0, Duration::ZERO);
    assert!(!flush(&book, B, 1, 0), "it covers everything");
    write(&book, C, 1, 0);
    assert!(flush(&book, C, 1, 1));
    assert!(!book.is_owed(1));
    let next = NexusId(4);
    assert!(!flush_at(&book, next, 1, 1, RECEIPT));
}

#[test]
fn an_heir_with_nothing_to_learn_has_paid_when_all_is_covered() {
    let book = Uncovered::default();
    let (path, other, heirs) = (NexusId(4), NexusId(5), [NexusId(6), NexusId(7)]);
    write(&book, path, 1, 0);
    write(&book, other, 1, 0);
    assert!(flush_at(&book, path, 1, 1, Duration::ZERO));
    write(&book, path, 1, 1);
    break_off(&book, path, 1, RECEIPT);
    break_off(&book, other, 1, RECEIPT);
    for heir in heirs {
        flush_at(&book, heir, 1, 1, RECEIPT);
    }
    for heir in heirs {
        flush_at(&book, heir, 1, 1, RECEIPT * 2);
    }
    assert!(!book.is_owed(1));
    assert!(book.book().initiators.values().all(|one| one.away == 0));
}
