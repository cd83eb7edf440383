use super::*;
use crate::table::access::AccessClass;

/// What a nexus is to the reservation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    Holder,
    Registered,
    Stranger,
}

/// Typed from the standard's table, not from the code: may this nexus read, and write?
///
/// Spec: SPC-4, Commands that are allowed in the presence of various reservations; SBC-3, same.
#[test]
fn every_type_shuts_out_whom_the_standard_says() {
    use Who::{Holder, Registered, Stranger};
    let table = [
        (WE, Holder, true, true),
        (WE, Registered, true, false),
        (WE, Stranger, true, false),
        (EA, Holder, true, true),
        (EA, Registered, false, false),
        (EA, Stranger, false, false),
        (WERO, Holder, true, true),
        (WERO, Registered, true, true),
        (WERO, Stranger, true, false),
        (EARO, Holder, true, true),
        (EARO, Registered, true, true),
        (EARO, Stranger, false, false),
        (WEAR, Holder, true, true),
        (WEAR, Registered, true, true),
        (WEAR, Stranger, true, false),
        (EAAR, Holder, true, true),
        (EAAR, Registered, true, true),
        (EAAR, Stranger, false, false),
    ];
    for (kind, who, may_read, may_write) in table {
        let unit = Unit::held_by_a(kind);
        let number = match who {
            Holder => A,
            Registered => B,
            Stranger => C,
        };
        let blocked = unit.blocked(number);
        assert_eq!(
            !blocked.contains(AccessClass::Read),
            may_read,
            "type {kind} {who:?}"
        );
        assert_eq!(
            !blocked.contains(AccessClass::Write),
            may_write,
            "type {kind} {who:?}"
        );
        // TEST UNIT READY goes through every persistent reservation.
        assert!(
            !blocked.contains(AccessClass::Status),
            "type {kind} {who:?}"
        );
        assert!(
            !blocked.contains(AccessClass::Always),
            "type {kind} {who:?}"
        );
    }
}

#[test]
fn registrations_alone_shut_nobody_out() {
    let unit = Unit::with_keys(&[1, 2]);
    for number in [A, B, C] {
        assert_eq!(unit.blocked(number), Blocked::NONE);
    }
}

#[test]
fn the_same_initiator_through_another_target_port_is_another_nexus() {
    let unit = Unit::held_by_a(EA);
    let other_path = through(A, 2);
    assert_eq!(
        unit.state.blocked(NexusId(9), &other_path),
        Blocked::READ_AND_WRITE
    );
}

#[test]
fn persistent_reservations_outlive_nexus_loss_and_resets() {
    for kind in TYPES {
        let mut unit = Unit::held_by_a(kind);
        let before = unit.state.clone();
        unit.state.nexus_lost(NexusId(0));
        unit.state.reset();
        assert_eq!(unit.state, before);
    }
}
