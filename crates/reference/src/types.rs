//! What callers say to the unit and get from it.

use std::fmt;
use std::sync::Arc;

/// Names a command or an event under way.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tag(pub u64);

/// Names an I_T nexus: one session with one LUN. It is never used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Nexus(pub u64);

/// The two ports of a nexus. Registrations belong to them, so they survive a session.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Port {
    /// The initiator port: what its TransportID says (name and ISID), and the user behind it.
    pub initiator: Arc<str>,
    /// The target port.
    pub target: Arc<str>,
}

impl Port {
    /// A nexus between these.
    pub fn new(initiator: &str, target: &str) -> Self {
        Self {
            initiator: initiator.into(),
            target: target.into(),
        }
    }
}

/// What a nexus may do, and what it sees.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct View {
    /// The unit is read-only here.
    pub read_only: bool,
    /// Unit attentions are never reported here, as to clients of NBD.
    pub hides_attentions: bool,
    /// The first LUN of the same session that has led here: what the session holds is held by that one, until the
    /// last of its nexuses ends.
    ///
    /// Spec: SPC-2 5.5.1, SPC-4 6.13: reservations and prevention of removal are of an I_T nexus, not of a LUN.
    pub twin_of: Option<Nexus>,
}

/// What a unit is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its capacity.
    pub blocks: u64,
    /// Bytes of a block, at least one.
    pub block_bytes: u32,
    /// The medium can be removed.
    pub removable: bool,
    /// It has UNMAP.
    pub thin: bool,
    /// WCE at the start.
    pub write_cache: bool,
}

/// What happens to a unit and is no command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// TARGET RESET, warm or cold.
    TargetReset,
    /// I_T NEXUS RESET: what ends with a nexus ends, and the nexus goes on.
    NexusReset(Nexus),
    /// The nexus ends. None of its commands takes effect after this.
    NexusEnds(Nexus),
    /// CLEAR TASK SET by this nexus.
    ClearTaskSet(Nexus),
    /// An administrator ejects the medium.
    Eject {
        /// Although initiators prevent it.
        force: bool,
    },
    /// An administrator loads the medium, with the same data.
    Load,
    /// The unit has this many blocks now.
    Resize(u64),
    /// An administrator turns the write cache on or off.
    WriteCache(bool),
    /// A nexus may do this now.
    View(Nexus, View),
    /// An administrator ends all reservations and registrations.
    ClearReservations,
    /// This unit attention (ASC and ASCQ) is established.
    Attention {
        /// ASC and ASCQ.
        code: u16,
        /// For these; `None` for all.
        to: Option<Vec<Nexus>>,
        /// It need not be reported.
        is_optional: bool,
    },
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The SCSI status.
    pub status: u8,
    /// Sense data, in either format; empty if there is none.
    pub sense: &'a [u8],
    /// Data for the initiator, as far as it wanted it.
    pub data_in: &'a [u8],
}

/// What no order of commands and events explains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Breach {
    /// An answer that no possible state allows.
    Answer {
        /// Of this command or event.
        tag: Tag,
        /// What was sent and what came, in words.
        seen: String,
        /// What the possible states allow, in words.
        allowed: String,
    },
    /// A block that holds what it cannot.
    Data {
        /// Found by this command; `None` on the medium itself.
        tag: Option<Tag>,
        /// Which block, the first of several.
        lba: u64,
    },
    /// A read gave this many bytes.
    Length {
        /// Which read.
        tag: Tag,
        /// How much it gave.
        got: usize,
        /// How much it must give.
        wanted: usize,
    },
    /// More states are possible than are kept: too many changes at once.
    TooManyStates(usize),
    /// Something is still under way that must be over.
    UnderWay(Tag),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { tag, seen, allowed } => {
                write!(f, "{}: {seen}; allowed: {allowed}", tag.0)
            }
            Self::Data {
                tag: Some(tag),
                lba,
            } => write!(f, "{}: block {lba} cannot hold this", tag.0),
            Self::Data { tag: None, lba } => {
                write!(f, "block {lba} of the medium cannot hold this")
            }
            Self::Length { tag, got, wanted } => {
                write!(f, "{}: {got} bytes of data, not {wanted}", tag.0)
            }
            Self::TooManyStates(count) => write!(f, "{count} possible states"),
            Self::UnderWay(tag) => write!(f, "{} is still under way", tag.0),
        }
    }
}

impl std::error::Error for Breach {}
