//! Commands and events at the same time.

use super::*;

#[test]
fn of_two_reserves_at_once_one_conflicts_whichever() {
    for answers in [[true, false], [false, true], [true, true], [false, false]] {
        let mut world = World::new();
        let tags = [world.begin(A, &RESERVE), world.begin(B, &RESERVE)];
        let ends = [0, 1].map(|index| {
            let outcome = if answers[index] { GOOD } else { CONFLICT };
            world.unit.end(tags[index], outcome)
        });
        assert_eq!(
            ends.iter().all(Result::is_ok),
            answers[0] != answers[1],
            "{answers:?}"
        );
    }
}

#[test]
fn what_was_seen_of_a_change_stays_seen() {
    let mut world = World::new();
    let reserve = world.begin(A, &RESERVE);
    world.ready(B).unwrap();
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    assert!(world.ready(B).is_err());
    let mut world = World::new();
    let lost = world.begin(A, &RESERVE);
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    assert!(world.unit.end(lost, CONFLICT).is_err());
    assert_ne!(reserve, Tag(0));
}

#[test]
fn an_answer_may_be_older_than_a_change_that_ended_before_it() {
    let mut world = World::new();
    let slow = world.begin(B, &TEST_UNIT_READY);
    world.run(A, &RESERVE, GOOD).unwrap();
    world.good(slow).unwrap();
    let slow = world.begin(B, &TEST_UNIT_READY);
    assert!(world.good(slow).is_err());
}

#[test]
fn a_write_beside_a_preempt_may_pass_before_it_only() {
    let preempted = || {
        let mut world = World::registered();
        world.out(B, persistent(1, 5, 2, 0), GOOD).unwrap();
        let preempt = world.persist(A, persistent(4, 1, 1, 2));
        let writer = world.begin_with(C, (&write(0, 1, false), &[5; BLOCK]));
        (world, preempt, writer)
    };
    // Before it.
    let (mut world, preempt, writer) = preempted();
    world.good(preempt).unwrap();
    world.good(writer).unwrap();
    world.attention(C, 0x2a04).unwrap();
    // After it, a WRITE exclusive reservation of A conflicts, which is reported before the attention.
    let (mut world, preempt, writer) = preempted();
    world.unit.end(writer, CONFLICT).unwrap();
    world.good(preempt).unwrap();
    world.attention(C, 0x2a04).unwrap();
    // A WRITE that conflicts shows that the preempt has taken effect.
    let (mut world, _, writer) = preempted();
    world.unit.end(writer, CONFLICT).unwrap();
    let tag = world.begin_with(C, (&write(0, 1, false), &[6; BLOCK]));
    assert!(world.good(tag).is_err());
}

#[test]
fn a_lost_command_takes_effect_later_or_never_but_not_after_it_is_gone() {
    let mut world = World::new();
    let lost = world.begin(A, &RESERVE);
    world.ready(B).unwrap();
    let mut late = World {
        unit: world.unit.clone(),
        tag: world.tag,
    };
    late.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    world.unit.gone(lost).unwrap();
    let mut after = World {
        unit: world.unit.clone(),
        tag: world.tag,
    };
    after.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    assert!(after.ready(B).is_err());
    world.ready(B).unwrap();
    assert!(world.run(B, &TEST_UNIT_READY, CONFLICT).is_err());
}

#[test]
fn a_reset_beside_writes() {
    let mut world = World::new();
    let writer = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
    let aborted = world.begin_with(A, (&write(1, 1, false), &[5; BLOCK]));
    let reset = world.next();
    world.unit.event_begins(reset, Event::LogicalUnitReset);
    world.good(writer).unwrap();
    world.unit.gone(aborted).unwrap();
    world.unit.event_ends(reset, true).unwrap();
    // The aborted one may have taken the attention of A.
    let mut other = World {
        unit: world.unit.clone(),
        tag: world.tag,
    };
    other.get(A, 0, &[5, 0]).unwrap();
    assert!(other.ready(B).is_err());
    world.attention(A, 0x2903).unwrap();
    world.get(A, 0, &[5, 5]).unwrap();
    world.attention(B, 0x2903).unwrap();
}

#[test]
fn an_attention_during_a_reset_is_of_it_and_comes_once() {
    let mut world = World::new();
    let reset = world.next();
    world.unit.event_begins(reset, Event::LogicalUnitReset);
    world.attention(B, 0x2903).unwrap();
    world.unit.event_ends(reset, true).unwrap();
    world.ready(B).unwrap();
    assert!(world.ready(A).is_err());
}

#[test]
fn an_eject_beside_a_prevent() {
    for (prevented, ejected) in [(true, true), (true, false)] {
        let mut world = World::new();
        let prevent = world.begin(A, &PREVENT);
        let eject = world.begin(B, &EJECT);
        if ejected {
            world.good(eject).unwrap();
        } else {
            world.check(eject, 5, 0x5302).unwrap();
        }
        if prevented {
            world.good(prevent).unwrap();
        }
        let tag = world.begin(C, &TEST_UNIT_READY);
        let is_out = world.check(tag, 2, 0x3a00).is_ok();
        assert_eq!(is_out, ejected);
    }
}

#[test]
fn an_ejected_medium_may_be_read_only_by_what_was_under_way() {
    let mut world = World::new();
    let slow = world.begin(A, &read(0, 1));
    world.run(B, &EJECT, GOOD).unwrap();
    world.got(slow, &[0]).unwrap();
    let tag = world.begin(A, &read(0, 1));
    assert!(world.got(tag, &[0]).is_err());
}

#[test]
fn an_ending_nexus_keeps_its_reservation_until_it_has_ended() {
    let mut world = World::new();
    world.run(A, &RESERVE, GOOD).unwrap();
    let ending = world.next();
    world.unit.event_begins(ending, Event::NexusEnds(A));
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    world.ready(B).unwrap();
    assert!(
        World {
            unit: world.unit.clone(),
            tag: 99
        }
        .run(B, &TEST_UNIT_READY, CONFLICT)
        .is_err()
    );
    world.unit.event_ends(ending, true).unwrap();
}

#[test]
fn a_refused_event_has_no_effect() {
    let mut world = World::new();
    let tag = world.next();
    world.unit.event_begins(tag, Event::Eject { force: true });
    world.unit.event_ends(tag, false).unwrap();
    world.ready(A).unwrap();
    let tag = world.begin(A, &TEST_UNIT_READY);
    assert!(world.check(tag, 2, 0x3a00).is_err());
}

#[test]
fn more_than_can_be_kept_is_an_error_of_its_own() {
    let mut world = World::new();
    let mut last = Tag(0);
    for nexus in 10..30 {
        world
            .unit
            .nexus_begins(Nexus(nexus), &port(Nexus(nexus)), View::default());
        world.attention(Nexus(nexus), 0x2900).unwrap();
    }
    for nexus in 10..30 {
        last = world.begin(Nexus(nexus), &PREVENT);
    }
    world.ready(A).unwrap();
    assert!(matches!(world.good(last), Err(Breach::TooManyStates(_))));
}
