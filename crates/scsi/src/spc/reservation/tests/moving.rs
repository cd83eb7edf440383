//! REGISTER AND MOVE, and REPLACE LOST RESERVATION.

use super::*;

const UNREG: u8 = 0x02;

struct Moving {
    key: u64,
    action_key: u64,
    flags: u8,
    target_port: u16,
    to: Vec<u8>,
}

fn to(number: usize) -> Moving {
    Moving {
        key: 0xa1,
        action_key: 0xd1,
        flags: 0,
        target_port: 1,
        to: initiator(number).to_vec(),
    }
}

impl Moving {
    fn list(&self) -> Vec<u8> {
        let mut list = [self.key.to_be_bytes(), self.action_key.to_be_bytes()].concat();
        list.extend_from_slice(&[0, self.flags]);
        list.extend_from_slice(&self.target_port.to_be_bytes());
        list.extend_from_slice(&u32::try_from(self.to.len()).unwrap().to_be_bytes());
        list.extend_from_slice(&self.to);
        list
    }

    fn send(&self, unit: &mut Unit, from: usize) -> Result<Effects, Refusal> {
        let list = self.list();
        // Scope and type are ignored.
        let cdb = cdb(REGISTER_AND_MOVE, 0xf, 0xf, list.len());
        unit.raw(&nexus(from), &cdb, &list)
    }
}

#[test]
fn the_reservation_moves_and_the_receiver_is_registered() {
    for kind in [WE, EA, WERO, EARO] {
        let mut unit = Unit::held_by_a(kind);
        let generation = unit.generation();
        let effects = to(C).send(&mut unit, A).unwrap();
        assert_eq!(effects.attentions, []);
        assert_eq!(unit.reservation(), Some((0xd1, kind)));
        assert_eq!(unit.keys(), [0xa1, 0xb1, 0xd1]);
        assert_eq!(unit.generation(), generation + 1);
        assert_eq!(unit.blocked(C), Blocked::NONE);
        let is_plain = kind == WE || kind == EA;
        assert_eq!(unit.blocked(A) != Blocked::NONE, is_plain);
    }
}

#[test]
fn unreg_removes_the_sender_and_a_registered_receiver_gets_the_new_key() {
    for kind in [WE, EA, WERO, EARO] {
        let mut unit = Unit::held_by_a(kind);
        let moving = Moving {
            flags: UNREG,
            ..to(B)
        };
        assert_eq!(moving.send(&mut unit, A).unwrap().attentions, []);
        assert_eq!(unit.keys(), [0xd1]);
        assert_eq!(unit.reservation(), Some((0xd1, kind)));
    }
}

#[test]
fn a_device_is_a_receiver_if_one_port_of_it_is_known() {
    let device = id("iqn.2026-11.example:host2").to_vec();
    let moving = Moving {
        to: device,
        ..to(C)
    };
    for (known, is_good) in [(0, false), (1, true), (2, false)] {
        let mut unit = Unit::held_by_a(WE);
        let ports = [initiator(2), id("iqn.2026-11.example:host2,i,0x77")];
        unit.logged_in = ports[..known].to_vec();
        match moving.send(&mut unit, A) {
            Ok(_) => assert!(is_good),
            Err(refusal) => {
                assert!(!is_good);
                assert_eq!(told(refusal), wrong_parameter(24, None));
            }
        }
    }
}

#[test]
fn who_may_not_move_conflicts() {
    // Not registered, wrong key, not the holder.
    for (from, key) in [(C, 0), (C, 0xa1), (A, 0xb1), (B, 0xb1)] {
        let mut unit = Unit::held_by_a(WE);
        let moving = Moving { key, ..to(3) };
        assert_eq!(moving.send(&mut unit, from), Err(Refusal::Conflict));
    }
    for kind in [WEAR, EAAR] {
        let mut unit = Unit::held_by_a(kind);
        assert_eq!(to(3).send(&mut unit, A), Err(Refusal::Conflict));
    }
    // Nothing to move.
    let mut unit = Unit::with_keys(&[0xa1]);
    assert_eq!(told(to(3).send(&mut unit, A).unwrap_err()), wrong_cdb(1, 4));
}

type Spoil = fn(&mut Moving);

/// A field that is wrong, the receiver, how it is made wrong, where the sense data points.
#[rustfmt::skip]
const WRONG: &[(&str, usize, Spoil, u16)] = &[
    ("no key for the receiver",   C, |moving| moving.action_key = 0, 8),
    ("an unknown target port",    C, |moving| moving.target_port = 3, 18),
    ("to itself",                 A, |_| {}, 24),
    ("to itself by another path", A, |moving| moving.target_port = 2, 24),
    ("cut short",                 C, |moving| moving.to.truncate(20), 24),
    ("two receivers",             C, |moving| moving.to = moving.to.repeat(2), 24),
    ("another protocol",          C, |moving| moving.to = vec![0; 24], 24),
    ("nobody",                    C, |moving| moving.to.clear(), 24),
];

#[test]
fn fields_of_the_move_are_checked() {
    for &(what, receiver, spoil, byte) in WRONG {
        let mut unit = Unit::held_by_a(WE);
        let mut moving = to(receiver);
        spoil(&mut moving);
        let refusal = moving.send(&mut unit, A).unwrap_err();
        assert_eq!(told(refusal), wrong_parameter(byte, None), "{what}");
    }
    let mut unit = Unit::held_by_a(WE);
    unit.cannot_persist = true;
    let moving = Moving {
        flags: APTPL,
        ..to(C)
    };
    assert_eq!(
        told(moving.send(&mut unit, A).unwrap_err()),
        wrong_parameter(17, 0)
    );
}

#[test]
fn the_length_of_the_transport_id_must_agree() {
    let list = to(C).list();
    for (length, at) in [(list.len() - 1, 0), (list.len(), 23), (24, 0)] {
        let mut wrong = list.clone();
        if at != 0 {
            wrong[at] ^= 4;
        }
        let mut unit = Unit::held_by_a(WE);
        let result = unit.raw(&nexus(A), &cdb(REGISTER_AND_MOVE, 0, 0, length), &wrong);
        assert_eq!(code(result), "5/1a/00");
    }
}

#[test]
fn a_full_unit_takes_no_receiver() {
    let mut unit = Unit::with_keys(&[0xa1; REGISTRATIONS_MAX]);
    unit.good(A, &out(RESERVE, 0xa1, 0).kind(WE));
    assert_eq!(code(to(REGISTRATIONS_MAX).send(&mut unit, A)), "5/55/04");
    to(B).send(&mut unit, A).unwrap();
}

#[test]
fn replace_lost_is_an_invalid_release_where_nothing_is_lost() {
    let mut unit = Unit::with_keys(&[0xa1]);
    let result = unit.send(A, &out(REPLACE_LOST, 0, 5).kind(WE));
    assert_eq!(code(result), "5/26/04");
}

#[test]
fn a_lost_unit_answers_nothing_but_replace_lost() {
    let lost = Unit {
        state: Reservations::lost(),
        ..Unit::default()
    };
    assert_eq!(lost.state.lost_sense(), Some(INFORMATION_LOST));
    for action in REGISTER..REPLACE_LOST {
        let mut unit = lost.clone();
        let result = if action == REGISTER_AND_MOVE {
            to(C).send(&mut unit, A)
        } else {
            unit.send(A, &out(action, 0, 5).kind(WE))
        };
        assert_eq!(code(result), "7/44/01", "action {action}");
    }
    for action in 0..4 {
        let result = lost
            .state
            .persistent_reserve_in(Some(action), &lost.surroundings());
        assert_eq!(result, Err(Refusal::Check(INFORMATION_LOST)));
    }
    let mut unit = lost.clone();
    let refusal = unit.state.reserve(NexusId(0), &nexus(A)).unwrap_err();
    assert_eq!(told(refusal).0, "7/44/01");

    for kind in TYPES {
        let mut unit = lost.clone();
        let effects = unit.good(A, &out(REPLACE_LOST, 0, 5).kind(kind).flags(APTPL));
        let persist = true;
        assert_eq!(
            effects,
            Effects {
                persist,
                ..Effects::default()
            }
        );
        assert_eq!(unit.state.lost_sense(), None);
        assert_eq!(unit.generation(), 0);
        assert_eq!(unit.keys(), [5]);
        let key = if kind == WEAR || kind == EAAR { 0 } else { 5 };
        assert_eq!(unit.reservation(), Some((key, kind)));
    }
    // The unreadable record must go, also when nothing is to be kept.
    let mut unit = lost.clone();
    assert!(unit.good(A, &out(REPLACE_LOST, 0, 5).kind(WE)).persist);
}

#[test]
fn fields_of_replace_lost_are_checked() {
    let good = out(REPLACE_LOST, 0, 5).kind(WE);
    let scope = Out {
        scope: 1,
        ..good.clone()
    };
    #[rustfmt::skip]
    let cases = [
        ("a key", out(REPLACE_LOST, 5, 5).kind(WE), wrong_parameter(0, None)),
        ("no new key", out(REPLACE_LOST, 0, 0).kind(WE), wrong_parameter(8, None)),
        ("all target ports", good.clone().flags(ALL_TG_PT), wrong_parameter(20, 2)),
        ("a type that is none", good.clone().kind(4), wrong_cdb(2, 3)),
        ("another scope", scope, wrong_cdb(2, 7)),
    ];
    for (what, command, expected) in cases {
        let mut unit = Unit {
            state: Reservations::lost(),
            ..Unit::default()
        };
        assert_eq!(
            told(unit.send(A, &command).unwrap_err()),
            expected,
            "{what}"
        );
    }
}
