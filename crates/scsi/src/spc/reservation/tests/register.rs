//! REGISTER, REGISTER AND IGNORE EXISTING KEY, and the layout of the basic parameter list.

use super::*;

/// Spec: SPC-4, tables of register behaviors.
#[test]
fn register_behaves_as_the_tables_say() {
    // Key of A before, action, RESERVATION KEY, SERVICE ACTION RESERVATION KEY, keys after or
    // conflict, does the generation count.
    type Row = (u64, u8, u64, u64, Option<&'static [u64]>, bool);
    let table: &[Row] = &[
        (0, REGISTER, 0, 0, Some(&[]), false),
        (0, REGISTER, 0, 5, Some(&[5]), true),
        (0, REGISTER, 5, 0, None, false),
        (0, REGISTER, 5, 5, None, false),
        (5, REGISTER, 0, 6, None, false),
        (5, REGISTER, 6, 6, None, false),
        (5, REGISTER, 6, 0, None, false),
        (5, REGISTER, 5, 0, Some(&[]), true),
        (5, REGISTER, 5, 6, Some(&[6]), true),
        (5, REGISTER, 5, 5, Some(&[5]), true),
        (0, REGISTER_AND_IGNORE, 9, 0, Some(&[]), false),
        (0, REGISTER_AND_IGNORE, 9, 5, Some(&[5]), true),
        (5, REGISTER_AND_IGNORE, 9, 6, Some(&[6]), true),
        (5, REGISTER_AND_IGNORE, 0, 0, Some(&[]), true),
    ];
    for &(before, action, key, action_key, after, counts) in table {
        let case = format!("{before} {action} {key} {action_key}");
        let mut unit = Unit::default();
        if before != 0 {
            unit.good(A, &out(REGISTER, 0, before));
        }
        let generation = unit.generation();
        // Scope and type are ignored.
        let mut command = out(action, key, action_key).kind(0xf);
        command.scope = 0xf;
        let result = unit.send(A, &command);
        match after {
            Some(keys) => {
                assert_eq!(
                    result.map(|effects| effects.attentions),
                    Ok(vec![]),
                    "{case}"
                );
                assert_eq!(unit.keys(), keys, "{case}");
            }
            None => assert_eq!(result, Err(Refusal::Conflict), "{case}"),
        }
        assert_eq!(unit.generation(), generation + u32::from(counts), "{case}");
    }
}

/// The nexus that unregisters may get no unit attention, and for the plain types no nexus may.
#[test]
fn unregistering_the_holder_releases_and_tells_registrants_where_they_took_part() {
    for (action, key) in [(REGISTER, 0xa1), (REGISTER_AND_IGNORE, 0)] {
        for kind in [WE, EA, WERO, EARO] {
            let mut unit = Unit::held_by_a(kind);
            let effects = unit.good(A, &out(action, key, 0));
            let expected = if kind == WE || kind == EA {
                vec![]
            } else {
                vec![(nexus(B), ReservationsReleased)]
            };
            assert_eq!(effects.attentions, expected, "type {kind}");
            assert_eq!(unit.reservation(), None);
            assert_eq!(unit.keys(), [0xb1]);
        }
    }
}

#[test]
fn an_all_registrants_reservation_ends_with_its_last_registrant() {
    for kind in [WEAR, EAAR] {
        let mut unit = Unit::held_by_a(kind);
        let effects = unit.good(A, &out(REGISTER, 0xa1, 0));
        assert_eq!(effects.attentions, []);
        assert_eq!(unit.reservation(), Some((0, kind)));
        let effects = unit.good(B, &out(REGISTER, 0xb1, 0));
        assert_eq!(effects.attentions, []);
        assert_eq!(unit.reservation(), None);
    }
}

#[test]
fn changing_the_key_of_the_holder_leaves_the_reservation() {
    for kind in TYPES {
        let mut unit = Unit::held_by_a(kind);
        let effects = unit.good(A, &out(REGISTER, 0xa1, 0xa2));
        assert_eq!(effects, Effects::default());
        let key = if kind == WEAR || kind == EAAR {
            0
        } else {
            0xa2
        };
        assert_eq!(unit.reservation(), Some((key, kind)));
        assert_eq!(unit.blocked(A), Blocked::NONE);
    }
}

#[test]
fn all_target_ports_registers_and_unregisters_every_path_of_the_initiator() {
    let mut unit = Unit::default();
    unit.good(A, &out(REGISTER, 0, 5).flags(ALL_TG_PT));
    assert_eq!(unit.state.key_of(&through(A, 1)), Some(5));
    assert_eq!(unit.state.key_of(&through(A, 2)), Some(5));
    unit.good(A, &out(REGISTER, 5, 6));
    assert_eq!(unit.keys(), [6, 5]);
    // The other path has another key by now: as if it had been sent there, it conflicts.
    for action_key in [0, 7] {
        let command = out(REGISTER, 6, action_key).flags(ALL_TG_PT);
        assert_eq!(unit.send(A, &command), Err(Refusal::Conflict));
    }
    unit.good(A, &out(RESERVE, 6, 0).kind(WERO));
    let effects = unit.good(A, &out(REGISTER_AND_IGNORE, 0, 0).flags(ALL_TG_PT));
    assert_eq!(effects.attentions, []);
    assert_eq!(unit.keys(), []);
}

#[test]
fn spec_i_pt_registers_ports_and_all_known_ports_of_a_device() {
    let mut unit = Unit {
        logged_in: vec![
            initiator(7),
            id("iqn.2026-11.example:host7,i,0x1"),
            initiator(8),
        ],
        ..Unit::default()
    };
    let device = id("iqn.2026-11.example:host7");
    let command = out(REGISTER, 0, 5).ids(&[&initiator(3), &device, &initiator(3)]);
    unit.good(A, &command);
    assert_eq!(unit.keys(), [5; 4]);
    for port in [
        &initiator(A),
        &initiator(3),
        &unit.logged_in[0],
        &unit.logged_in[1],
    ] {
        let port = PortName {
            transport_id: Arc::clone(port),
            target_port: 1,
            principal: Principal::Unknown,
        };
        assert_eq!(unit.state.key_of(&port), Some(5));
    }
}

#[test]
fn spec_i_pt_with_all_target_ports_registers_every_pair() {
    let mut unit = Unit::default();
    unit.good(
        A,
        &out(REGISTER, 0, 5).flags(ALL_TG_PT).ids(&[&initiator(B)]),
    );
    assert_eq!(unit.keys(), [5; 4]);
    assert_eq!(unit.state.key_of(&through(B, 2)), Some(5));
}

#[test]
fn spec_i_pt_is_refused_where_it_does_not_belong() {
    let list = [out(REGISTER, 0, 5).ids(&[&initiator(C)])];
    for command in &list {
        // Someone in the list is registered already.
        let mut unit = Unit::default();
        unit.good(C, &out(REGISTER, 0, 9));
        let refusal = unit.send(A, command).unwrap_err();
        assert_eq!(told(refusal), wrong_parameter(20, 3));
    }
    // The sender is registered already.
    for action_key in [0, 6] {
        let mut unit = Unit::with_keys(&[5]);
        let command = out(REGISTER, 5, action_key).ids(&[&initiator(C)]);
        assert_eq!(
            told(unit.send(A, &command).unwrap_err()),
            wrong_parameter(20, 3)
        );
    }
    // Nobody knows a port of this device.
    let mut unit = Unit::default();
    let command = out(REGISTER, 0, 5).ids(&[&id("iqn.2026-11.example:unknown")]);
    assert_eq!(
        told(unit.send(A, &command).unwrap_err()),
        wrong_parameter(20, 3)
    );
    // Any other service action.
    for action in [
        RESERVE,
        RELEASE,
        CLEAR,
        PREEMPT,
        PREEMPT_AND_ABORT,
        REGISTER_AND_IGNORE,
        REPLACE_LOST,
    ] {
        let mut unit = Unit::with_keys(&[5]);
        let command = out(action, 5, 5).kind(WE).flags(SPEC_I_PT);
        assert_eq!(
            told(unit.send(A, &command).unwrap_err()),
            wrong_parameter(20, 3)
        );
    }
}

#[test]
fn transport_ids_that_make_no_sense_are_pointed_at() {
    let good = initiator(B);
    let mut no_null = good.to_vec();
    no_null[4..].fill(b'x');
    let fixed = [0x00u8; 24];
    let bad: [(&str, Vec<&[u8]>, usize); 4] = [
        (
            "the second is cut short",
            vec![&good, &good[..8]],
            good.len(),
        ),
        ("no end of the name", vec![&no_null], 0),
        ("another protocol", vec![&good, &fixed], good.len()),
        ("no id at all", vec![&[1, 2, 3]], 0),
    ];
    for (what, ids, at) in bad {
        let mut unit = Unit::default();
        let refusal = unit.send(A, &out(REGISTER, 0, 5).ids(&ids)).unwrap_err();
        let byte = u16::try_from(28 + at).unwrap();
        assert_eq!(told(refusal), wrong_parameter(byte, None), "{what}");
    }
}

#[test]
fn there_is_room_for_so_many_registrations_and_no_more() {
    let mut unit = Unit::default();
    for number in 0..REGISTRATIONS_MAX {
        unit.good(number, &out(REGISTER, 0, 1));
    }
    let one_more = REGISTRATIONS_MAX;
    assert_eq!(code(unit.send(one_more, &out(REGISTER, 0, 1))), "5/55/04");
    assert_eq!(
        code(unit.send(one_more, &out(REGISTER_AND_IGNORE, 0, 1))),
        "5/55/04"
    );
    // Those who are in may still change.
    unit.good(A, &out(REGISTER, 1, 2));
    unit.good(B, &out(REGISTER, 1, 0));
    unit.good(one_more, &out(REGISTER, 0, 1));
}

#[test]
fn who_registers_others_leaves_room_to_all() {
    // All or nothing: a list for which there is no room registers nobody.
    const MOST: usize = REGISTRATIONS_MAX - REGISTRATIONS_KEPT;
    let ids: Vec<_> = (1..=MOST).map(initiator).collect();
    let ids: Vec<&[u8]> = ids.iter().map(|id| &**id).collect();
    let mut unit = Unit::default();
    assert_eq!(
        code(unit.send(A, &out(REGISTER, 0, 1).ids(&ids))),
        "5/55/04"
    );
    assert_eq!(unit.keys(), []);
    unit.good(A, &out(REGISTER, 0, 1).ids(&ids[1..]));
    assert_eq!(unit.state.registration_count(), MOST);
    // Others register themselves.
    for number in MOST + 1..=REGISTRATIONS_MAX {
        unit.good(number, &out(REGISTER, 0, 1));
    }
    assert_eq!(
        code(unit.send(REGISTRATIONS_MAX + 1, &out(REGISTER, 0, 1))),
        "5/55/04"
    );
}

/// A port of a device, of a user or of nobody.
fn port(device: &str, number: usize, user: Option<&str>) -> PortName {
    PortName {
        transport_id: id(&format!("iqn.2026-11.example:{device},i,0x{number:012x}")),
        target_port: 1,
        principal: user.map_or(Principal::Nobody, |user| Principal::User(user.into())),
    }
}

/// How many ports of a kind get registered, one after the other.
fn registered(unit: &mut Unit, port: impl Fn(usize) -> PortName) -> usize {
    let out = out(REGISTER, 0, 1);
    let cdb = cdb(REGISTER, 0, 0, out.list().len());
    let full = |number: &usize| unit.raw(&port(*number), &cdb, &out.list()).is_err();
    (0..=REGISTRATIONS_MAX).find(full).unwrap_or(0)
}

#[test]
fn one_device_or_user_leaves_room_to_the_others() {
    let mut unit = Unit::default();
    // 228 are fewer than 8 times the 28 that are free then, and 227 are not more.
    assert_eq!(registered(&mut unit, |n| port("many", n, None)), 228);
    assert_eq!(registered(&mut unit, |n| port("more", n, None)), 25);
    assert_eq!(registered(&mut unit, |n| port("last", n, None)), 3);

    let of_user = |n: usize| port(&format!("host{n}"), n, Some("backup"));
    let mut unit = Unit::default();
    assert_eq!(registered(&mut unit, of_user), 228);
    let own = |n| port("host0", n, Some("other"));
    assert_eq!(registered(&mut unit, own), 25);
}

#[test]
fn the_list_is_24_bytes_long_to_the_byte() {
    for action in REGISTER..=REPLACE_LOST {
        for length in [0, 8, 23, 25, 28] {
            let mut unit = Unit::held_by_a(WE);
            let result = unit.raw(&nexus(A), &cdb(action, 0, WE, length), &[0; 28]);
            assert_eq!(code(result), "5/1a/00", "action {action} length {length}");
        }
        // Fewer bytes came than the CDB says.
        let mut unit = Unit::held_by_a(WE);
        let result = unit.raw(&nexus(A), &cdb(action, 0, WE, 24), &[0; 23]);
        assert_eq!(code(result), "5/1a/00", "action {action}");
    }
}

#[test]
fn the_lengths_of_a_spec_i_pt_list_must_agree() {
    let command = out(REGISTER, 0, 5).ids(&[&initiator(B)]);
    let list = command.list();
    let announced = cdb(REGISTER, 0, 0, list.len());
    for at in [24, 27] {
        let mut wrong = list.clone();
        wrong[at] ^= 4;
        let result = Unit::default().raw(&nexus(A), &announced, &wrong);
        assert_eq!(code(result), "5/1a/00");
    }
    for length in [24, 27, list.len() - 1] {
        let result = Unit::default().raw(&nexus(A), &cdb(REGISTER, 0, 0, length), &list);
        assert_eq!(code(result), "5/1a/00", "length {length}");
    }
    // An empty list of ports is fine.
    Unit::default().good(A, &out(REGISTER, 0, 5).ids(&[]));
}

#[test]
fn service_actions_beyond_the_last_are_refused() {
    for action in REPLACE_LOST + 1..=0x1f {
        let mut unit = Unit::with_keys(&[5]);
        let refusal = unit.send(A, &out(action, 5, 5)).unwrap_err();
        assert_eq!(told(refusal), wrong_cdb(1, 4), "action {action}");
    }
}

#[test]
fn a_cut_cdb_is_refused() {
    for length in 0..9 {
        let cdb = &cdb(REGISTER, 0, 0, 24)[..length];
        let result = Unit::default().raw(&nexus(A), cdb, &[0; 24]);
        assert_eq!(code(result), "5/24/00");
    }
}
