//! What comes of commands: how they end, and which attentions.

/// What came of commands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcomes {
    /// They ended with GOOD.
    pub good: u64,
    /// They ended otherwise.
    pub failed: u64,
    /// Of those, with RESERVATION CONFLICT.
    pub kept_out: u64,
    /// PREEMPT AND ABORT that ended with GOOD.
    pub preempted: u64,
    /// Preemptions of players whose writes were under way.
    pub preempted_writing: u64,
    /// Writes that ended for want of space.
    pub no_space: u64,
    /// They have no answer.
    pub lost: u64,
    /// Unit attentions.
    pub attentions: u64,
    /// Resets that were answered as done.
    pub resets: u64,
    /// Commands whose number led elsewhere while they were under way.
    pub moved: u64,
}

/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
pub(super) const NO_SPACE: (u8, u8, u8) = (7, 0x27, 7);

/// Kinds of unit attentions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Reset,
    Medium,
    Mode,
    Reservations,
    Luns,
    Capacity,
    Space,
}

pub(super) const KINDS: usize = 7;

impl Kind {
    pub(super) const fn of(asc: u8, ascq: u8) -> Option<Self> {
        match (asc, ascq) {
            (0x29, _) => Some(Self::Reset),
            (0x28, 0) => Some(Self::Medium),
            (0x2a, 1) => Some(Self::Mode),
            (0x2a, 9) => Some(Self::Capacity),
            (0x2a, 3..=5) => Some(Self::Reservations),
            (0x38, 7) => Some(Self::Space),
            (0x3f, 0x0e) => Some(Self::Luns),
            _ => None,
        }
    }
}
