//! What the cores of one machine do for a unit, and agree on: pure machines, which hold no thread,
//! no socket and no clock. Events and the time go in, what is to be done comes out.
//!
//! The data plane carries what comes out over threads, rings and mail; the simulated world carries
//! the same with seeded delays and failures.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `agree` | one unit for all cores: the order of its changes, fences, the refusal of access |
//! | `table`, `deadlines` | entries whose keys are never given twice; when they are due |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agree;
pub mod deadlines;
pub mod table;

use std::fmt;

/// A logical unit. The unit is one, however many targets and numbers show it, and the index is not
/// given to another one for as long as the process runs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UnitIndex(pub u32);

impl UnitIndex {
    /// As an index into a table of all units.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Names a question that a core has put to the owner of a unit; what is behind it, the core knows.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestNumber(pub u64);

/// Where an answer belongs: a question of one core.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket {
    /// The core that asks.
    pub core: usize,
    /// Its question.
    pub request: RequestNumber,
}

impl Ticket {
    /// Of who wants no answer. A session asks one question for each of its units when it begins and
    /// when it ends: nothing is kept for them, nor sent back.
    pub const NOBODY: Self = Self {
        core: usize::MAX,
        request: RequestNumber(u64::MAX),
    };
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NOBODY => f.write_str("nobody"),
            Self { core, request } => write!(f, "{core}/{:x}", request.0),
        }
    }
}
