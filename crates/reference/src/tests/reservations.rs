//! RESERVE, persistent reservations, prevention of removal.

use super::*;

#[test]
fn a_reservation_keeps_others_out_until_it_is_released() {
    let mut world = World::new();
    world.run(A, &RESERVE, GOOD).unwrap();
    world.run(A, &RESERVE, GOOD).unwrap();
    world.ready(A).unwrap();
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    world.run(B, &RESERVE, CONFLICT).unwrap();
    world.run(B, &[0x12, 0, 0, 0, 36, 0], GOOD).unwrap();
    world.run(B, &RELEASE, GOOD).unwrap();
    assert!(
        World {
            unit: world.unit.clone(),
            tag: 99
        }
        .ready(B)
        .is_err()
    );
    world.run(A, &RELEASE, GOOD).unwrap();
    world.ready(B).unwrap();
    assert!(world.run(B, &TEST_UNIT_READY, CONFLICT).is_err());
}

#[test]
fn a_reservation_ends_with_its_nexus_and_by_a_reset() {
    let ends: [fn(&mut World); 3] = [
        |world| world.unit.nexus_ends(A).unwrap(),
        |world| world.event(Event::NexusReset(A)).unwrap(),
        |world| {
            world.event(Event::LogicalUnitReset).unwrap();
            world.attention(B, 0x2903).unwrap();
        },
    ];
    for end in ends {
        let mut world = World::new();
        world.run(A, &RESERVE, GOOD).unwrap();
        end(&mut world);
        world.ready(B).unwrap();
    }
}

#[test]
fn each_type_lets_in_whom_it_lets_in() {
    // Type; whether a registrant reads and writes, whether others read. Nobody else writes.
    let types = [
        (1, [false, true]),
        (3, [false, false]),
        (5, [true, true]),
        (6, [true, false]),
        (7, [true, true]),
        (8, [true, false]),
    ];
    for (kind, [registrant, stranger]) in types {
        let mut world = World::new();
        for nexus in [A, B] {
            world
                .out(nexus, persistent(0, 0, 0, nexus.0), GOOD)
                .unwrap();
        }
        world.out(A, persistent(1, kind, 1, 0), GOOD).unwrap();
        let cases = [
            (A, true, true),
            (B, registrant || matches!(kind, 1), registrant),
            (C, stranger, false),
        ];
        for (nexus, reads, writes) in cases {
            for (is_write, allowed) in [(false, reads), (true, writes)] {
                for claims_good in [true, false] {
                    let before = world.unit.clone();
                    let tag = if is_write {
                        world.begin_with(nexus, (&write(0, 1, false), &[0; BLOCK]))
                    } else {
                        world.begin(nexus, &read(0, 1))
                    };
                    let fits = match (claims_good, is_write) {
                        (true, true) => world.good(tag),
                        (true, false) => world.got(tag, &[0]),
                        (false, _) => world.unit.end(tag, CONFLICT),
                    };
                    assert_eq!(
                        fits.is_ok(),
                        claims_good == allowed,
                        "type {kind}, {nexus:?}, write {is_write}"
                    );
                    world.unit = before;
                }
            }
        }
    }
}

#[test]
fn only_with_the_right_key() {
    let mut world = World::registered();
    world.out(A, persistent(1, 1, 9, 0), CONFLICT).unwrap();
    assert!(
        World::registered()
            .out(A, persistent(1, 1, 9, 0), GOOD)
            .is_err()
    );
    world.out(A, persistent(0, 0, 9, 1), CONFLICT).unwrap();
    world.out(A, persistent(1, 1, 1, 0), GOOD).unwrap();
    world.out(B, persistent(1, 1, 2, 0), CONFLICT).unwrap();
    let tag = world.persist(A, persistent(2, 3, 1, 0));
    world.check(tag, 5, 0x2604).unwrap();
    world.out(B, persistent(2, 1, 2, 0), GOOD).unwrap();
    world.out(B, persistent(4, 1, 2, 7), CONFLICT).unwrap();
}

#[test]
fn keys_generation_and_holder_are_shown() {
    let mut world = World::registered();
    world.out(A, persistent(1, 5, 1, 0), GOOD).unwrap();
    let keys = |generation: u8, keys: &[u8]| {
        let length = u8::try_from(8 * keys.len()).unwrap();
        let mut data = vec![0, 0, 0, generation, 0, 0, 0, length];
        keys.iter()
            .for_each(|&key| data.extend_from_slice(&u64::from(key).to_be_bytes()));
        data
    };
    let ask = |world: &World, action: u8, data: &[u8]| {
        let mut copy = World {
            unit: world.unit.clone(),
            tag: world.tag,
        };
        copy.run(
            B,
            &[0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0],
            Outcome {
                data_in: data,
                ..GOOD
            },
        )
        .is_ok()
    };
    assert!(ask(&world, 0, &keys(3, &[3, 1, 2])));
    for wrong in [
        keys(3, &[1, 2]),
        keys(2, &[1, 2, 3]),
        keys(3, &[1, 2, 4]),
        keys(3, &[1, 2, 3, 3]),
    ] {
        assert!(!ask(&world, 0, &wrong));
    }
    let holder = |key: u8, kind: u8| {
        vec![
            0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, 0, kind, 0, 0,
        ]
    };
    assert!(ask(&world, 1, &holder(1, 5)));
    assert!(!ask(&world, 1, &holder(2, 5)));
    assert!(!ask(&world, 1, &holder(1, 6)));
    assert!(!ask(&world, 1, &keys(3, &[])));
}

#[test]
fn registrations_survive_sessions_and_power_as_they_were_asked_to() {
    for persists in [1, 0] {
        let mut world = World::new();
        let (cdb, mut list) = persistent(6, 0, 0, 1);
        list[20] = persists;
        world.out(A, (cdb, list), GOOD).unwrap();
        world.out(A, persistent(1, 3, 1, 0), GOOD).unwrap();
        world.unit.nexus_ends(A).unwrap();
        world.run(B, &read(0, 1), CONFLICT).unwrap();
        world.unit.restart().unwrap();
        world.unit.nexus_begins(B, &port(B), View::default());
        world.attention(B, 0x2900).unwrap();
        assert_eq!(world.run(B, &read(0, 1), CONFLICT).is_ok(), persists == 1);
    }
}

#[test]
fn the_last_of_all_registrants_ends_the_reservation() {
    let mut world = World::registered();
    world.out(A, persistent(1, 8, 1, 0), GOOD).unwrap();
    world.out(A, persistent(0, 0, 1, 0), GOOD).unwrap();
    world.run(A, &read(0, 1), CONFLICT).unwrap();
    world.out(B, persistent(0, 0, 2, 0), GOOD).unwrap();
    world.out(C, persistent(0, 0, 3, 0), GOOD).unwrap();
    world.get(A, 0, &[0]).unwrap();
}

#[test]
fn prevented_removal_is_refused_until_all_allow_it() {
    let mut world = World::new();
    world.run(A, &PREVENT, GOOD).unwrap();
    world.run(B, &PREVENT, GOOD).unwrap();
    world.run(A, &ALLOW, GOOD).unwrap();
    let tag = world.begin(A, &EJECT);
    world.check(tag, 5, 0x5302).unwrap();
    let tag = world.next();
    world.unit.event_begins(tag, Event::Eject { force: false });
    world.unit.event_ends(tag, false).unwrap();
    world.unit.nexus_ends(B).unwrap();
    world.run(A, &EJECT, GOOD).unwrap();
    assert!(world.ready(C).is_err());
}

#[test]
fn preempt_and_abort_ends_prevention() {
    let mut world = World::registered();
    world.run(B, &PREVENT, GOOD).unwrap();
    world.out(A, persistent(4, 1, 1, 3), GOOD).unwrap();
    let tag = world.begin(A, &EJECT);
    world.check(tag, 5, 0x5302).unwrap();
    world.out(A, persistent(5, 1, 1, 2), GOOD).unwrap();
    world.run(A, &EJECT, GOOD).unwrap();
}

#[test]
fn a_read_only_view_changes_nothing() {
    let mut world = World::registered();
    world
        .event(Event::View(
            B,
            View {
                read_only: true,
                ..View::default()
            },
        ))
        .unwrap();
    for cdb in [&RESERVE, &PREVENT, &EJECT] {
        let tag = world.begin(B, cdb);
        if cdb != &RESERVE {
            world.check(tag, 7, 0x2700).unwrap();
        }
    }
    let tag = world.persist(B, persistent(1, 1, 2, 0));
    world.check(tag, 7, 0x2700).unwrap();
    assert!(world.out(B, persistent(1, 1, 2, 0), GOOD).is_err());
}

#[test]
fn what_a_session_holds_it_holds_by_each_of_its_luns() {
    // SPC-2 5.5.1, SPC-4 6.13: of an I_T nexus.
    let mut world = World::new();
    let twin = View {
        twin_of: Some(A),
        ..View::default()
    };
    world.unit.nexus_begins(Nexus(9), &port(A), twin);
    world.attention(Nexus(9), 0x2900).unwrap();
    world.run(A, &RESERVE, GOOD).unwrap();
    world.ready(Nexus(9)).unwrap();
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    world.run(Nexus(9), &RELEASE, GOOD).unwrap();
    world.run(Nexus(9), &PREVENT, GOOD).unwrap();
    world.ready(B).unwrap();
    assert!(world.unit.may_hold(A) && world.unit.may_hold(Nexus(9)));
    world.unit.nexus_ends(A).unwrap();
    assert!(world.clone().run(B, &EJECT, GOOD).is_err());
    world.unit.nexus_ends(Nexus(9)).unwrap();
    world.run(B, &EJECT, GOOD).unwrap();
}

#[test]
fn who_is_gone_holds_what_it_held_until_its_nexus_ends() {
    let mut world = World::new();
    world.run(A, &PREVENT, GOOD).unwrap();
    assert!(world.unit.nexus_leaves(A) && !world.unit.nexus_leaves(C));
    assert!(world.run(B, &EJECT, GOOD).is_err());
    let mut world = World::new();
    world.run(A, &PREVENT, GOOD).unwrap();
    assert!(world.unit.nexus_leaves(A));
    world.event(Event::NexusEnds(A)).unwrap();
    world.run(B, &EJECT, GOOD).unwrap();
}

#[test]
fn an_eject_is_prevented_only_while_somebody_prevents_it() {
    let mut world = World::new();
    for (command, is_prevented) in [(PREVENT, true), (ALLOW, false)] {
        world.run(A, &command, GOOD).unwrap();
        let tag = world.next();
        world.unit.event_begins(tag, Event::Eject { force: false });
        assert_eq!(world.unit.event_is_prevented(tag).is_ok(), is_prevented);
    }
}

#[test]
fn ends_of_nexuses_that_hold_nothing_make_no_states() {
    let mut world = World::new();
    for number in 10..40 {
        let (nexus, tag) = (Nexus(number), world.next());
        world
            .unit
            .nexus_begins(nexus, &port(nexus), View::default());
        world.unit.event_begins(tag, Event::NexusEnds(nexus));
    }
    world.run(A, &RESERVE, GOOD).unwrap();
    world.run(B, &TEST_UNIT_READY, CONFLICT).unwrap();
    assert_eq!(world.unit.states(), 1);
    // One that holds something is noticed, at any time.
    let ending = world.next();
    world.unit.event_begins(ending, Event::NexusEnds(A));
    world.ready(B).unwrap();
    world.unit.event_ends(ending, true).unwrap();
    assert!(world.run(B, &TEST_UNIT_READY, CONFLICT).is_err());
}
