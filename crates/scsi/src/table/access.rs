//! What a command needs of the unit, in the eyes of a reservation.

/// How far a reservation of another I_T nexus stands in the way of a command. A column of the
/// command table.
///
/// Spec: SPC-4, Commands that are allowed in the presence of various reservations; SBC-3 and SPC-2,
/// the tables of the same name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum AccessClass {
    /// Never in the way, or (PERSISTENT RESERVE OUT, RESERVE, RELEASE) decided where the command
    /// is executed.
    Always = 0x00,
    /// Allowed under every persistent reservation, refused under an SPC-2 reservation.
    Status = 0x01,
    /// Allowed under Write Exclusive types, refused under Exclusive Access types to those whom
    /// the reservation shuts out: reads, MODE SENSE, reports about the device server.
    Read = 0x02,
    /// Refused to everyone whom the reservation shuts out: writes, mode changes and the like.
    Write = 0x04,
}

/// The access classes that an I_T nexus may not use now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Blocked(u8);

impl Blocked {
    /// Nothing is in the way.
    pub const NONE: Self = Self(0);
    /// Shut out by a Write Exclusive type.
    pub const WRITE: Self = Self(AccessClass::Write as u8);
    /// Shut out by an Exclusive Access type.
    pub const READ_AND_WRITE: Self = Self(AccessClass::Write as u8 | AccessClass::Read as u8);
    /// Shut out by an SPC-2 reservation.
    pub const ALL: Self = Self(Self::READ_AND_WRITE.0 | AccessClass::Status as u8);

    /// Whether commands of that class end in RESERVATION CONFLICT.
    pub const fn contains(self, class: AccessClass) -> bool {
        self.0 & class as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_always_goes_is_never_blocked() {
        assert!(!Blocked::ALL.contains(AccessClass::Always));
        assert!(Blocked::ALL.contains(AccessClass::Status));
        assert!(!Blocked::READ_AND_WRITE.contains(AccessClass::Status));
        assert!(Blocked::READ_AND_WRITE.contains(AccessClass::Read));
        assert!(!Blocked::WRITE.contains(AccessClass::Read));
        assert!(Blocked::WRITE.contains(AccessClass::Write));
    }
}
