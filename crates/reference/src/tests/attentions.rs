//! Unit attentions: each once, to whom it belongs, and no others.

use super::*;

/// A history, and the code that each of A, B and C gets after it; zero for none.
fn owes(make: impl Fn(&mut World), wanted: [u16; 3]) {
    for (nexus, code) in [A, B, C].into_iter().zip(wanted) {
        let fresh = || {
            let mut world = World::registered();
            make(&mut world);
            world
        };
        let mut world = fresh();
        if code == 0 {
            world.ready(nexus).unwrap();
            assert!(fresh().attention(nexus, 0x2a01).is_err());
        } else {
            assert!(
                fresh().ready(nexus).is_err(),
                "{nexus:?} is owed {code:04x}"
            );
            assert!(fresh().attention(nexus, 0x3f03).is_err());
            world.attention(nexus, code).unwrap();
            world.ready(nexus).unwrap();
            assert!(
                world.attention(nexus, code).is_err(),
                "{nexus:?} got {code:04x} twice"
            );
        }
    }
}

#[test]
fn resets_are_reported_to_all() {
    owes(
        |world| world.event(Event::LogicalUnitReset).unwrap(),
        [0x2903; 3],
    );
    owes(
        |world| world.event(Event::TargetReset).unwrap(),
        [0x2902; 3],
    );
    owes(
        |world| world.event(Event::NexusReset(B)).unwrap(),
        [0, 0x2907, 0],
    );
}

#[test]
fn a_reset_replaces_older_attentions_but_stronger_ones() {
    let resize_and_reset = |world: &mut World| {
        world.event(Event::Resize(80)).unwrap();
        world.event(Event::LogicalUnitReset).unwrap();
    };
    owes(resize_and_reset, [0x2903; 3]);
    let two_resets = |world: &mut World| {
        world.event(Event::TargetReset).unwrap();
        world.event(Event::LogicalUnitReset).unwrap();
    };
    owes(two_resets, [0x2902; 3]);
}

#[test]
fn changes_of_mode_and_capacity_are_reported() {
    let select = |world: &mut World| {
        let (cdb, list) = cache(false);
        let tag = world.begin_with(A, (&cdb, &list));
        world.good(tag).unwrap();
    };
    owes(select, [0, 0x2a01, 0x2a01]);
    owes(
        |world| world.event(Event::WriteCache(false)).unwrap(),
        [0x2a01; 3],
    );
    owes(
        |world| world.event(Event::Resize(100)).unwrap(),
        [0x2a09; 3],
    );
}

#[test]
fn a_loaded_medium_is_reported() {
    let by_administrator = |world: &mut World| {
        world.event(Event::Eject { force: false }).unwrap();
        world.event(Event::Load).unwrap();
    };
    owes(by_administrator, [0x2800; 3]);
    let by_initiator = |world: &mut World| {
        world.run(A, &EJECT, GOOD).unwrap();
        let tag = world.begin(B, &TEST_UNIT_READY);
        world.check(tag, 2, 0x3a00).unwrap();
        world.run(A, &LOAD, GOOD).unwrap();
    };
    owes(by_initiator, [0, 0x2800, 0x2800]);
}

#[test]
fn reservations_that_end_are_reported_to_those_that_had_access() {
    for (kind, code) in [
        (1, 0),
        (3, 0),
        (5, 0x2a04),
        (6, 0x2a04),
        (7, 0x2a04),
        (8, 0x2a04),
    ] {
        let release = |world: &mut World| {
            world.out(A, persistent(1, kind, 1, 0), GOOD).unwrap();
            world.out(A, persistent(2, kind, 1, 0), GOOD).unwrap();
        };
        owes(release, [0, code, code]);
    }
    owes(
        |world| world.out(A, persistent(3, 0, 1, 0), GOOD).unwrap(),
        [0, 0x2a03, 0x2a03],
    );
    owes(
        |world| world.out(A, persistent(4, 1, 1, 2), GOOD).unwrap(),
        [0, 0x2a05, 0],
    );
    owes(
        |world| world.event(Event::ClearReservations).unwrap(),
        [0x2a03; 3],
    );
}

#[test]
fn a_preempted_reservation_of_another_type_is_reported_to_the_others() {
    let preempt = |world: &mut World| {
        world.out(B, persistent(1, 5, 2, 0), GOOD).unwrap();
        world.out(A, persistent(4, 1, 1, 2), GOOD).unwrap();
    };
    owes(preempt, [0, 0x2a05, 0x2a04]);
}

#[test]
fn some_commands_report_no_attention() {
    let mut world = World::new();
    world.event(Event::LogicalUnitReset).unwrap();
    world.run(A, &[0x12, 0, 0, 0, 36, 0], GOOD).unwrap();
    world
        .run(A, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], GOOD)
        .unwrap();
    assert!(world.run(A, &[0x12, 0, 0, 0, 36, 0], CONFLICT).is_err());
    world.attention(A, 0x2903).unwrap();
}

#[test]
fn request_sense_gives_an_attention_as_data() {
    let ask = [0x03, 0, 0, 0, 18, 0];
    let with = |data: &'static [u8]| Outcome {
        data_in: data,
        ..GOOD
    };
    let attention: &'static [u8] = Box::leak(Box::new(sense(6, 0x2903)));
    let nothing: &'static [u8] = Box::leak(Box::new(sense(0, 0)));
    let mut world = World::new();
    world.event(Event::LogicalUnitReset).unwrap();
    world.run(A, &ask, with(attention)).unwrap();
    world.run(A, &ask, with(nothing)).unwrap();
    world.ready(A).unwrap();
    assert!(world.run(B, &ask, with(nothing)).is_err());
}

#[test]
fn of_commands_under_way_one_gets_the_attention() {
    for first in [0, 1] {
        let mut world = World::new();
        world.event(Event::Resize(80)).unwrap();
        let tags = [
            world.begin(A, &TEST_UNIT_READY),
            world.begin(A, &TEST_UNIT_READY),
        ];
        world.check(tags[first], 6, 0x2a09).unwrap();
        world.good(tags[1 - first]).unwrap();
    }
    let mut world = World::new();
    world.event(Event::Resize(80)).unwrap();
    let tags = [
        world.begin(A, &TEST_UNIT_READY),
        world.begin(A, &TEST_UNIT_READY),
    ];
    world.good(tags[0]).unwrap();
    assert!(world.good(tags[1]).is_err());
}

#[test]
fn many_commands_of_many_nexuses_make_few_states() {
    let mut world = World::new();
    world.event(Event::Resize(80)).unwrap();
    let mut tags = Vec::new();
    for nexus in [A, B, C] {
        tags.extend((0..20).map(|_| (nexus, world.begin(nexus, &read(0, 1)))));
    }
    for (index, &(_, tag)) in tags.iter().enumerate() {
        if index % 20 == 19 {
            world.check(tag, 6, 0x2a09).unwrap();
        } else {
            world.got(tag, &[0]).unwrap();
        }
    }
    assert_eq!(world.unit.states(), 1);
}

#[test]
fn a_nexus_that_hides_attentions_gets_none() {
    let mut world = World::new();
    let hides = View {
        hides_attentions: true,
        ..View::default()
    };
    world.unit.nexus_begins(Nexus(9), &port(Nexus(9)), hides);
    world.ready(Nexus(9)).unwrap();
    world.event(Event::LogicalUnitReset).unwrap();
    world.ready(Nexus(9)).unwrap();
}

#[test]
fn a_nexus_that_comes_may_learn_of_what_happens_meanwhile() {
    let come = || {
        let mut world = World::new();
        world
            .unit
            .nexus_comes(Nexus(9), &port(Nexus(9)), View::default());
        world.event(Event::Resize(70)).unwrap();
        world.unit.nexus_has_come(Nexus(9));
        world.attention(Nexus(9), 0x2900).unwrap();
        world
    };
    come().ready(Nexus(9)).unwrap();
    let mut world = come();
    world.attention(Nexus(9), 0x2a09).unwrap();
    world.event(Event::Resize(80)).unwrap();
    assert!(world.ready(Nexus(9)).is_err());
}

#[test]
fn in_a_crowd_a_change_is_known_to_all_when_it_is_over() {
    let mut world = World::new();
    world.unit = Unit::crowded(plan());
    for nexus in [A, B, C] {
        world
            .unit
            .nexus_begins(nexus, &port(nexus), View::default());
        world.attention(nexus, 0x2900).unwrap();
    }
    let (cdb, list) = cache(false);
    let change = world.begin_with(A, (&cdb, &list));
    world.attention(B, 0x2a01).unwrap();
    // On another core.
    world.ready(C).unwrap();
    world.good(change).unwrap();
    world.ready(B).unwrap();
    assert!(world.ready(C).is_err());
}

#[test]
fn what_a_command_of_another_nexus_may_have_reported_need_not_be_reported() {
    let mut world = World::new();
    world.event(Event::Resize(65)).unwrap();
    world.unit.may_have_reported(A);
    world.clone().ready(A).unwrap();
    world.attention(A, 0x2a09).unwrap();
    assert!(world.ready(B).is_err());
}
