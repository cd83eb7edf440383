//! A model: each initiator keeps all losses that concern it, each session how many of them were reported to it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const INITIATORS: u8 = 3;
const SESSIONS: u8 = 6;

#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    /// A flush begins.
    Flush(u8),
    /// The oldest flush of the session ends, as a flush of all or as that of one command.
    End(u8, bool),
    Lose,
    Depart(u8, bool),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = || 0..SESSIONS;
    let step = prop_oneof![
        4 => session().prop_map(Step::Write),
        4 => session().prop_map(Step::Flush),
        4 => (session(), any::<bool>()).prop_map(|(session, is_whole)| Step::End(session, is_whole)),
        2 => Just(Step::Lose),
        2 => (session(), any::<bool>()).prop_map(|(session, is_logout)| Step::Depart(session, is_logout)),
        2 => prop_oneof![Just(1), Just(60), Just(119), Just(120), Just(1800), Just(3600)].prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What the module promises, without a thought of memory or time.
#[derive(Default)]
struct Model {
    lost: usize,
    writes: Vec<u64>,
    /// Of each initiator: losses when its first uncovered write began.
    since: BTreeMap<u8, usize>,
    /// Of each initiator: when each loss that concerns it was noticed, and whether a session has fetched it.
    losses: BTreeMap<u8, Vec<(u64, bool)>>,
    /// Of each session: how many of those it knows, and when they were reported.
    sessions: BTreeMap<u8, (usize, Option<u64>)>,
}

/// Two sessions of each initiator.
const fn initiator_of(session: u8) -> u8 {
    session % INITIATORS
}

impl Model {
    fn enter(&mut self, session: u8, lost: usize, now: u64) -> &mut Vec<(u64, bool)> {
        let of = initiator_of(session);
        let losses = self.losses.entry(of).or_default();
        if let Some(since) = self.since.get_mut(&of).filter(|since| **since < lost) {
            *since = lost;
            losses.push((now, false));
        }
        for (&other, &(known, at)) in &self.sessions {
            if initiator_of(other) == of && at.is_some_and(|at| now - at >= 120) {
                losses[..known]
                    .iter_mut()
                    .for_each(|(_, fetched)| *fetched = true);
            }
        }
        let over = |&&(at, is_fetched): &&(u64, bool)| is_fetched && now - at >= 3600;
        let known = losses.iter().take_while(over).count();
        self.sessions.entry(session).or_insert((known, None));
        losses
    }

    fn end_flush(&mut self, session: u8, lost: usize, now: u64) -> bool {
        let count = self.enter(session, lost, now).len();
        let (known, at) = self.sessions.get_mut(&session).unwrap();
        let is_report = *known < count;
        if is_report {
            (*known, *at) = (count, Some(now));
        }
        is_report
    }

    fn depart(&mut self, session: u8, is_logout: bool, now: u64) {
        if self.sessions.contains_key(&session) {
            let lost = self.lost;
            self.enter(session, lost, now);
            let (known, at) = self.sessions.remove(&session).unwrap();
            if at.is_some_and(|at| is_logout || now - at >= 120) {
                let losses = self.losses.get_mut(&initiator_of(session)).unwrap();
                losses[..known]
                    .iter_mut()
                    .for_each(|(_, fetched)| *fetched = true);
            }
        }
    }
}

fn party(session: u8, now: u64) -> Party<u8, impl Fn() -> u8> {
    Party {
        session,
        initiator: move || initiator_of(session),
        now: Duration::from_secs(now),
    }
}

proptest! {
    #[test]
    fn each_session_gets_a_report_of_the_losses_that_concern_its_initiator(steps in steps()) {
        let losses = Losses::<u8, u8>::default();
        let mut model = Model { writes: vec![0; INITIATORS.into()], ..Model::default() };
        let mut flushes: Vec<(u8, Mark, u64)> = Vec::new();
        let mut now = 0;
        for step in steps {
            let lost = model.lost;
            match step {
                Step::Write(session) => {
                    losses.note_write(party(session, now), lost as u64);
                    model.enter(session, lost, now);
                    model.since.entry(initiator_of(session)).or_insert(lost);
                    model.writes[usize::from(initiator_of(session))] += 1;
                }
                Step::Flush(session) => {
                    let mark = losses.begin_flush(party(session, now), lost as u64);
                    model.enter(session, lost, now);
                    flushes.push((session, mark, model.writes[usize::from(initiator_of(session))]));
                }
                Step::End(session, is_whole) => {
                    let Some(at) = flushes.iter().position(|(of, ..)| *of == session) else { continue };
                    let (_, mark, writes) = flushes.remove(at);
                    if is_whole {
                        let is_report = losses.end_flush(party(session, now), mark, lost as u64);
                        prop_assert_eq!(is_report, model.end_flush(session, lost, now));
                    } else {
                        losses.cover(party(session, now), mark, lost as u64);
                        model.enter(session, lost, now);
                    }
                    if model.writes[usize::from(initiator_of(session))] == writes {
                        model.since.remove(&initiator_of(session));
                    }
                }
                Step::Lose => model.lost += 1,
                Step::Depart(session, is_logout) => {
                    flushes.retain(|(of, ..)| *of != session);
                    losses.depart(session, Departure {
                        is_covered: false,
                        lost: lost as u64,
                        is_logout,
                        now: Duration::from_secs(now),
                    });
                    model.depart(session, is_logout, now);
                }
                Step::Wait(seconds) => now += seconds,
            }
        }
    }
}

/// Sessions of one initiator each, with their number as its name.
fn of(session: u16) -> Party<u16, impl Fn() -> u16 + Copy> {
    named(session, session)
}

fn named(session: u16, name: u16) -> Party<u16, impl Fn() -> u16 + Copy> {
    Party {
        session,
        initiator: move || name,
        now: Duration::ZERO,
    }
}

fn flush(losses: &Losses<u16, u16>, party: Party<u16, impl Fn() -> u16 + Copy>, lost: u64) -> bool {
    let mark = losses.begin_flush(party, lost);
    losses.end_flush(party, mark, lost)
}

fn log_out(losses: &Losses<u16, u16>, session: u16, lost: u64) {
    let departure = Departure {
        is_covered: false,
        lost,
        is_logout: true,
        now: Duration::ZERO,
    };
    losses.depart(session, departure);
}

#[test]
fn initiators_without_a_session_are_bounded_and_none_of_them_is_forgotten() {
    let losses = Losses::default();
    for n in 0..1000 {
        losses.note_write(of(n), 0);
        log_out(&losses, n, 0);
    }
    assert_eq!(losses.book().absent.len(), ABSENT_MAX);
    assert_eq!(losses.book().initiators.len(), ABSENT_MAX);
    for n in [999, 0, 1] {
        assert!(flush(&losses, of(n), 1), "{n}, known or not");
        assert!(!flush(&losses, of(n), 1), "{n}, once");
        log_out(&losses, n, 1);
    }
    assert_eq!(losses.book().absent.len(), ABSENT_MAX);
}

/// With that of its writes since then.
#[test]
fn a_report_that_may_not_have_come_to_one_without_a_place_goes_to_all_that_are_not_known() {
    let losses = Losses::default();
    losses.note_write(of(999), 0);
    assert!(flush(&losses, of(999), 1));
    losses.note_write(of(999), 1);
    let departure = Departure {
        is_covered: false,
        lost: 1,
        is_logout: false,
        now: Duration::ZERO,
    };
    losses.depart(999, departure);
    for n in 0..256 {
        losses.note_write(of(n), 1);
        log_out(&losses, n, 1);
    }
    assert!(!losses.book().initiators.contains_key(&999));
    assert!(flush(&losses, of(500), 1) && !flush(&losses, of(500), 1));
    assert!(!flush(&losses, of(0), 1), "it is known");
}

#[test]
fn a_flush_of_everything_leaves_nothing_for_those_who_found_no_place() {
    let losses = Losses::default();
    losses.note_write(of(999), 0);
    for n in 0..300 {
        losses.note_write(of(n), 0);
        log_out(&losses, n, 0);
    }
    assert!(!flush(&losses, of(500), 0));
    assert!(!flush(&losses, of(0), 1), "it is covered");
    assert!(flush(&losses, of(299), 1), "its own flush it had not");
    assert!(flush(&losses, of(999), 1), "nor had this one");
}

#[test]
fn one_initiator_that_comes_again_and_again_displaces_nobody() {
    let losses = Losses::default();
    losses.note_write(of(1), 0);
    log_out(&losses, 1, 0);
    for _ in 0..1000 {
        losses.note_write(of(2), 0);
        log_out(&losses, 2, 0);
        assert!(!flush(&losses, named(3, 2), 0));
        log_out(&losses, 3, 0);
    }
    assert!(losses.book().absent.len() == 1 && losses.book().anyone.is_none());
    assert!(flush(&losses, named(4, 1), 1));
}

#[test]
fn what_no_initiator_knows_is_reported_to_an_administrator_once() {
    let losses = Losses::default();
    assert!(!losses.is_owed(1), "nobody has written");
    losses.note_write(of(1), 0);
    assert!(!losses.is_owed(0));
    assert!(losses.is_owed(1) && losses.report_to_administrator(1));
    assert!(!losses.is_owed(1) && !losses.report_to_administrator(1));
    assert!(losses.report_to_administrator(2));
    assert!(flush(&losses, of(1), 2), "to the initiator, all the same");
    losses.note_write(of(1), 2);
    losses.note_write(of(2), 2);
    assert!(flush(&losses, of(1), 3) && losses.is_owed(3));
    assert!(flush(&losses, of(2), 3) && !losses.is_owed(3));
    losses.note_write(of(1), 3);
    assert!(flush(&losses, named(3, 1), 4));
    let departure = Departure {
        is_covered: false,
        lost: 4,
        is_logout: false,
        now: Duration::ZERO,
    };
    losses.depart(3, departure);
    assert!(losses.report_to_administrator(4), "it may not have come");
}

#[test]
fn a_session_that_begins_is_told_of_a_loss_for_an_hour_and_longer_where_nobody_has_the_report() {
    let told_after = |seconds, is_logout| {
        let losses = Losses::default();
        losses.note_write(named(1, 9), 0);
        assert!(flush(&losses, named(1, 9), 1));
        if is_logout {
            log_out(&losses, 1, 1);
        }
        let now = Duration::from_secs(seconds);
        let later = Party { now, ..named(2, 9) };
        let mark = losses.begin_flush(later, 1);
        losses.end_flush(later, mark, 1)
    };
    assert!(told_after(0, false) && told_after(0, true));
    assert!(told_after(3599, true) && !told_after(3600, true));
    // The first one is still there, and has the report, once two minutes are over.
    assert!(told_after(119, false) && told_after(3599, false));
}

/// Each core counts the losses that it has heard of.
#[test]
fn a_core_that_has_heard_of_fewer_losses_takes_no_report_from_others() {
    let losses = Losses::default();
    let (ahead, third, behind) = (named(1, 9), named(2, 9), named(3, 9));
    for party in [ahead, third, behind] {
        losses.note_write(party, 0);
    }
    assert!(flush(&losses, ahead, 2));
    losses.note_write(behind, 0);
    assert!(flush(&losses, behind, 1));
    assert!(flush(&losses, third, 2), "nobody has told it");
    for party in [ahead, third, behind] {
        assert!(!flush(&losses, party, 2), "each is told once");
    }
}

/// As after a restart, beside which a server reports what it has lost.
#[test]
fn a_loss_of_what_nobody_here_has_written_is_reported_to_everybody() {
    let losses = Losses::default();
    assert!(!flush(&losses, of(1), 0));
    assert!(!flush(&losses, of(1), 1), "no loss of a former time");
    for _ in 0..2 {
        losses.note_earlier(1, 2);
    }
    assert!(flush(&losses, of(1), 2) && !flush(&losses, of(1), 2));
    assert!(losses.is_owed(2), "to those who are not here");
    assert!(flush(&losses, of(2), 2) && !flush(&losses, of(2), 2));
}
