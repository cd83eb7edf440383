//! RESERVE, RELEASE, CLEAR.

use super::*;

#[test]
fn reserve_makes_the_sender_the_holder_with_every_type() {
    for kind in TYPES {
        let unit = Unit::held_by_a(kind);
        let key = if kind == WEAR || kind == EAAR {
            0
        } else {
            0xa1
        };
        assert_eq!(unit.reservation(), Some((key, kind)));
    }
}

#[test]
fn reserve_needs_registration_and_the_right_key_before_anything_else() {
    let mut unit = Unit::with_keys(&[0xa1]);
    for (from, key) in [(A, 0xa2), (A, 0), (B, 0xa1), (B, 0)] {
        let mut command = out(RESERVE, key, 0).kind(0xf);
        command.scope = 2;
        assert_eq!(unit.send(from, &command), Err(Refusal::Conflict));
    }
}

#[test]
fn scope_and_type_are_checked() {
    for action in [RESERVE, RELEASE] {
        for kind in (0..=0xf).filter(|kind| !TYPES.contains(kind)) {
            let mut unit = Unit::with_keys(&[0xa1]);
            let refusal = unit.send(A, &out(action, 0xa1, 0).kind(kind)).unwrap_err();
            assert_eq!(told(refusal), wrong_cdb(2, 3), "type {kind}");
        }
        for scope in 1..=0xf {
            let mut unit = Unit::with_keys(&[0xa1]);
            let mut command = out(action, 0xa1, 0).kind(WE);
            command.scope = scope;
            assert_eq!(told(unit.send(A, &command).unwrap_err()), wrong_cdb(2, 7));
        }
    }
}

/// Reserving again: by a holder with the same type it is good, anything else conflicts.
#[test]
fn reserving_a_reserved_unit_conflicts_unless_nothing_would_change() {
    for held in TYPES {
        for asked in TYPES {
            let unit = Unit::held_by_a(held);
            let same = held == asked;
            let all = held == WEAR || held == EAAR;
            for (from, key, is_holder) in [(A, 0xa1, true), (B, 0xb1, all)] {
                let mut unit = unit.clone();
                let result = unit.send(from, &out(RESERVE, key, 0).kind(asked));
                if same && is_holder {
                    assert_eq!(result, Ok(Effects::default()), "{held} {asked} from {from}");
                } else {
                    assert_eq!(result, Err(Refusal::Conflict), "{held} {asked} from {from}");
                }
            }
        }
    }
}

/// Unit attentions of RELEASE: for registrants only and all registrants types, to all registered
/// nexuses but the sender.
#[test]
fn release_tells_the_other_registrants_only_where_registration_mattered() {
    for kind in TYPES {
        let mut unit = Unit::held_by_a(kind);
        unit.good(C, &out(REGISTER, 0, 0xc1));
        let generation = unit.generation();
        let effects = unit.good(A, &out(RELEASE, 0xa1, 0).kind(kind));
        let expected = if kind == WE || kind == EA {
            vec![]
        } else {
            vec![
                (nexus(B), ReservationsReleased),
                (nexus(C), ReservationsReleased),
            ]
        };
        assert_eq!(effects.attentions, expected, "type {kind}");
        assert_eq!(unit.reservation(), None);
        assert_eq!(unit.keys(), [0xa1, 0xb1, 0xc1]);
        assert_eq!(unit.generation(), generation);
    }
}

#[test]
fn release_by_any_registrant_ends_an_all_registrants_reservation() {
    for kind in [WEAR, EAAR] {
        let mut unit = Unit::held_by_a(kind);
        let effects = unit.good(B, &out(RELEASE, 0xb1, 0).kind(kind));
        assert_eq!(effects.attentions, [(nexus(A), ReservationsReleased)]);
        assert_eq!(unit.reservation(), None);
    }
}

#[test]
fn release_of_what_the_sender_does_not_hold_is_good_and_does_nothing() {
    let mut free = Unit::with_keys(&[0xa1]);
    assert_eq!(
        free.good(A, &out(RELEASE, 0xa1, 0).kind(WE)),
        Effects::default()
    );
    for kind in [WE, EA, WERO, EARO] {
        let mut unit = Unit::held_by_a(kind);
        let before = unit.state.clone();
        assert_eq!(
            unit.good(B, &out(RELEASE, 0xb1, 0).kind(kind)),
            Effects::default()
        );
        assert_eq!(unit.state, before);
    }
}

#[test]
fn release_with_another_type_by_the_holder_is_an_invalid_release() {
    for held in TYPES {
        for asked in TYPES.into_iter().filter(|&asked| asked != held) {
            let mut unit = Unit::held_by_a(held);
            let result = unit.send(A, &out(RELEASE, 0xa1, 0).kind(asked));
            assert_eq!(code(result), "5/26/04");
        }
    }
}

#[test]
fn release_and_clear_need_the_right_key() {
    let mut unit = Unit::held_by_a(WE);
    for action in [RELEASE, CLEAR] {
        for (from, key) in [(A, 0xb1), (C, 0xa1), (C, 0)] {
            let result = unit.send(from, &out(action, key, 0).kind(WE));
            assert_eq!(result, Err(Refusal::Conflict));
        }
    }
}

#[test]
fn clear_by_any_registrant_removes_all_and_tells_all_others() {
    for kind in TYPES {
        let mut unit = Unit::held_by_a(kind);
        let generation = unit.generation();
        // Scope and type are ignored.
        let mut command = out(CLEAR, 0xb1, 0).kind(0xf);
        command.scope = 0xf;
        let effects = unit.good(B, &command);
        assert_eq!(effects.attentions, [(nexus(A), ReservationsPreempted)]);
        assert_eq!(unit.reservation(), None);
        assert_eq!(unit.keys(), []);
        assert_eq!(unit.generation(), generation + 1);
    }
}
