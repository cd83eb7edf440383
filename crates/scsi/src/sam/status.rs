//! How a command ended.

/// Status codes.
///
/// Spec: SAM-6, Status codes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Status {
    /// It went well.
    Good = 0x00,
    /// Look at the sense data.
    CheckCondition = 0x02,
    /// The condition asked for holds (PRE-FETCH).
    ConditionMet = 0x04,
    /// Not now.
    Busy = 0x08,
    /// Another I_T nexus holds a reservation.
    ReservationConflict = 0x18,
    /// No room for another task.
    TaskSetFull = 0x28,
    /// An auto contingent allegiance is in the way.
    AcaActive = 0x30,
    /// Another I_T nexus aborted it.
    TaskAborted = 0x40,
}

impl Status {
    /// All of them.
    const ALL: [Self; 8] = [
        Self::Good,
        Self::CheckCondition,
        Self::ConditionMet,
        Self::Busy,
        Self::ReservationConflict,
        Self::TaskSetFull,
        Self::AcaActive,
        Self::TaskAborted,
    ];

    /// The status of this code, if it is one.
    pub(crate) fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == code)
    }

    /// Its name in the standard.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "GOOD",
            Self::CheckCondition => "CHECK CONDITION",
            Self::ConditionMet => "CONDITION MET",
            Self::Busy => "BUSY",
            Self::ReservationConflict => "RESERVATION CONFLICT",
            Self::TaskSetFull => "TASK SET FULL",
            Self::AcaActive => "ACA ACTIVE",
            Self::TaskAborted => "TASK ABORTED",
        }
    }
}
