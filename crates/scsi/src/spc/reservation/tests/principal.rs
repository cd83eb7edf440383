//! Two who claim the same initiator port: registrations belong to the one who made them.

use super::*;

fn user(name: &str) -> PortName {
    PortName {
        principal: Principal::User(name.into()),
        ..nexus(1)
    }
}

fn nobody() -> PortName {
    PortName {
        principal: Principal::Nobody,
        ..nexus(1)
    }
}

/// Alice is registered with key a and holds the unit.
fn held_by_alice(kind: u8, flags: u8) -> Unit {
    let mut unit = Unit::default();
    unit.send_as(&user("alice"), &out(REGISTER, 0, 0xa).flags(flags))
        .unwrap();
    unit.send_as(&user("alice"), &out(RESERVE, 0xa, 0).kind(kind))
        .unwrap();
    unit
}

fn blocks(unit: &Unit, port: &PortName) -> bool {
    unit.state.blocked(NexusId(9), port) != Blocked::NONE
}

#[test]
fn only_who_registered_is_admitted() {
    for kind in TYPES {
        let unit = held_by_alice(kind, 0);
        assert!(!blocks(&unit, &user("alice")), "{kind:x}");
        for other in [user("bob"), nobody()] {
            assert!(blocks(&unit, &other), "{kind:x} {other:?}");
        }
    }
}

#[test]
fn another_user_of_the_port_changes_nothing_of_the_first() {
    for other in [user("bob"), nobody()] {
        let mut unit = held_by_alice(WE, APTPL);
        for command in [
            out(RELEASE, 0xa, 0).kind(WE),
            out(CLEAR, 0xa, 0),
            out(REGISTER, 0xa, 0),
            out(PREEMPT, 0xa, 0xa).kind(EA),
        ] {
            let before = unit.state.clone();
            let refused = unit.send_as(&other, &command);
            assert_eq!(refused, Err(Refusal::Conflict), "{other:?}");
            assert_eq!(unit.state, before);
        }
        // It registers for itself, as another nexus, and preempts as any other would.
        unit.send_as(&other, &out(REGISTER, 0, 0xb)).unwrap();
        assert_eq!(unit.state.registration_count(), 2);
        assert!(blocks(&unit, &other) && !blocks(&unit, &user("alice")));
        let preempt = out(PREEMPT_AND_ABORT, 0xb, 0xa).kind(WE);
        let effects = unit.send_as(&other, &preempt).unwrap();
        assert_eq!(effects.abort_tasks_of, [user("alice")]);
        assert_eq!(
            effects.attentions,
            [(user("alice"), RegistrationsPreempted)]
        );
        assert!(!blocks(&unit, &other) && blocks(&unit, &user("alice")));
    }
}

#[test]
fn principals_outlive_a_restart() {
    let mut unit = held_by_alice(WERO, APTPL);
    unit.send_as(&nobody(), &out(REGISTER, 0, 0xb).flags(APTPL))
        .unwrap();
    unit.state = Reservations::decode(&unit.state.encode()).unwrap();
    assert!(!blocks(&unit, &user("alice")) && !blocks(&unit, &nobody()));
    assert!(blocks(&unit, &user("bob")));
    let record = unit.state.encode();
    for at in 0..record.len() * 8 {
        let mut flipped = record.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert!(Reservations::decode(&flipped).is_err(), "bit {at}");
    }
}

/// What others made for a port, and what an older record has, is the port's until its nexus sends
/// its first command.
#[test]
fn a_registration_without_a_principal_belongs_to_the_first_who_uses_it() {
    let mut unit = Unit::default();
    unit.good(A, &out(REGISTER, 0, 0xa).flags(APTPL));
    unit.good(A, &out(RESERVE, 0xa, 0).kind(WE));
    let claimed = |name: &str| PortName {
        principal: Principal::User(name.into()),
        ..nexus(A)
    };
    unit.state = Reservations::decode(&unit.state.encode()).unwrap();
    assert!(!blocks(&unit, &claimed("alice")) && !blocks(&unit, &claimed("bob")));
    let reserve = out(RESERVE, 0xa, 0).kind(WE);
    unit.send_as(&claimed("alice"), &reserve).unwrap();
    assert!(!blocks(&unit, &claimed("alice")) && blocks(&unit, &claimed("bob")));
    unit.state = Reservations::decode(&unit.state.encode()).unwrap();
    assert!(!blocks(&unit, &claimed("alice")) && blocks(&unit, &claimed("bob")));
}
