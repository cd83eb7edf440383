//! What outlives a restart.

use super::*;

fn aptpl_unit(kind: u8) -> Unit {
    let mut unit = Unit::held_by_a(kind);
    unit.good(A, &out(REGISTER, 0xa1, 0xa1).flags(APTPL));
    unit
}

#[test]
fn with_aptpl_everything_but_the_generation_comes_back() {
    for kind in TYPES {
        let unit = aptpl_unit(kind);
        let decoded = Reservations::decode(&unit.state.encode()).unwrap();
        let expected = Reservations {
            generation: 0,
            ..unit.state.clone()
        };
        assert_eq!(decoded, expected);
    }
    let mut registered = Unit::default();
    registered.good(A, &out(REGISTER, 0, 5).flags(APTPL | ALL_TG_PT));
    let decoded = Reservations::decode(&registered.state.encode()).unwrap();
    assert_eq!(decoded.registration_count(), 2);
    assert_eq!(decoded.held_type(), None);
}

#[test]
fn ports_of_another_device_are_put_in_the_place_of_those_that_are_kept() {
    let mut unit = aptpl_unit(WE);
    unit.good(C, &out(REGISTER, 0, 5).flags(APTPL | ALL_TG_PT));
    let moved = unit
        .state
        .clone()
        .with_ports(|port| Some(port + 6))
        .unwrap();
    assert_eq!(moved.registration_count(), 4);
    assert!(moved.is_holder(&through(A, 7)) && !moved.is_holder(&nexus(A)));
    let decoded = Reservations::decode(&moved.encode()).unwrap();
    let back = decoded.with_ports(|port| Some(port - 6)).unwrap();
    assert_eq!(back, Reservations::decode(&unit.state.encode()).unwrap());
    assert_eq!(back.with_ports(|port| (port == 1).then_some(1)), Err(2));
}

#[test]
fn without_aptpl_nothing_comes_back() {
    let unit = Unit::held_by_a(WE);
    assert_eq!(
        Reservations::decode(&unit.state.encode()),
        Ok(Reservations::default())
    );
}

#[test]
fn the_last_registering_command_decides_and_others_do_not() {
    let mut unit = Unit::default();
    let persists = |unit: &mut Unit, command: Out| unit.good(A, &command).persist;
    // Off, and nothing was kept: nothing to write.
    assert!(!persists(&mut unit, out(REGISTER, 0, 5)));
    assert!(persists(&mut unit, out(REGISTER, 5, 5).flags(APTPL)));
    assert!(!persists(&mut unit, out(REGISTER, 5, 5).flags(APTPL)));
    assert!(persists(&mut unit, out(RESERVE, 5, 0).kind(WE)));
    assert!(!persists(&mut unit, out(RESERVE, 5, 0).kind(WE)));
    assert!(persists(&mut unit, out(PREEMPT, 5, 5).kind(EA)));
    assert!(persists(&mut unit, out(RELEASE, 5, 0).kind(EA)));
    // Off again: what is on disk must go.
    assert!(persists(&mut unit, out(REGISTER, 5, 5)));
    assert!(!persists(&mut unit, out(RESERVE, 5, 0).kind(WE)));
    assert!(persists(
        &mut unit,
        out(REGISTER_AND_IGNORE, 0, 6).flags(APTPL)
    ));
    assert!(persists(&mut unit, out(CLEAR, 6, 0)));
    assert!(persists(&mut unit, out(REGISTER, 0, 6).flags(APTPL)));
}

#[test]
fn aptpl_is_refused_where_nothing_can_be_kept() {
    for action in [REGISTER, REGISTER_AND_IGNORE] {
        let mut unit = Unit {
            cannot_persist: true,
            ..Unit::default()
        };
        let refusal = unit.send(A, &out(action, 0, 5).flags(APTPL)).unwrap_err();
        assert_eq!(told(refusal), wrong_parameter(20, 0));
        unit.good(A, &out(action, 0, 5));
        // Where the bit is ignored it does no harm.
        unit.good(A, &out(RESERVE, 5, 0).kind(WE).flags(APTPL));
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let record = aptpl_unit(WERO).state.encode();
    for length in 0..record.len() {
        assert!(
            Reservations::decode(&record[..length]).is_err(),
            "{length} bytes"
        );
    }
    for at in 0..record.len() * 8 {
        let mut flipped = record.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert!(Reservations::decode(&flipped).is_err(), "bit {at}");
    }
    let longer = [record.as_slice(), &[0]].concat();
    assert!(Reservations::decode(&longer).is_err());
}

#[test]
fn errors_say_what_is_wrong() {
    let record = aptpl_unit(WE).state.encode();
    let mut newer = record.clone();
    newer[7] = 3;
    let version = KeptError::Version { got: 3, known: 2 };
    assert_eq!(Reservations::decode(&newer), Err(version));
    assert_eq!(Reservations::decode(b"garbage"), Err(KeptError::NotARecord));
    let mut damaged = record;
    *damaged.last_mut().unwrap() ^= 1;
    let error = Reservations::decode(&damaged).unwrap_err();
    assert!(matches!(error, KeptError::Checksum { .. }), "{error}");
}

/// Two registrations: key and port of each.
const TWO: &[(u8, u8)] = &[(1, 1), (2, 2)];

type Record = (&'static str, [u8; 6], &'static [(u8, u8)], bool);

/// Persistent, type, holder (two bytes), number of registrations (two bytes); the registrations; whether it can be.
#[rustfmt::skip]
const RECORDS: &[Record] = &[
    ("good",                [1, WE, 0, 1, 0, 2],         TWO, true),
    ("good, all",           [1, WEAR, 0xff, 0xff, 0, 2], TWO, true),
    ("good, none",          [1, 0, 0xff, 0xff, 0, 2],    TWO, true),
    ("no such holder",      [1, WE, 0, 2, 0, 2],         TWO, false),
    ("no holder",           [1, WE, 0xff, 0xff, 0, 2],   TWO, false),
    ("a holder of nothing", [1, 0, 0, 1, 0, 2],          TWO, false),
    ("one of all",          [1, WEAR, 0, 1, 0, 2],       TWO, false),
    ("no such type",        [1, 2, 0, 1, 0, 2],          TWO, false),
    ("twice registered",    [1, 0, 0xff, 0xff, 0, 2],    &[(1, 1), (2, 1)], false),
    ("key zero",            [1, 0, 0xff, 0xff, 0, 1],    &[(0, 1)], false),
    ("kept while off",      [0, 0, 0xff, 0xff, 0, 2],    TWO, false),
];

/// A record with a right checksum is still not trusted.
#[test]
fn states_that_cannot_be_are_refused() {
    for &(what, head, registrations, is_good) in RECORDS {
        let mut body = head.to_vec();
        for &(key, port) in registrations {
            body.extend([0, 0, 0, 0, 0, 0, 0, key, 0, port, 0, 1, 0x06]);
        }
        let mut record = b"TarnPR\0\x01".to_vec();
        let sum = body.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        record.extend_from_slice(&sum.to_be_bytes());
        record.extend_from_slice(&body);
        let expected = (!is_good).then_some(KeptError::Inconsistent);
        assert_eq!(Reservations::decode(&record).err(), expected, "{what}");
    }
}
