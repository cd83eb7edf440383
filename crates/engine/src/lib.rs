//! What the cores of one machine do for their units, and agree on: a pure machine, which holds no
//! thread, no socket and no clock. Events and the time go in, what is to be done comes out.
//!
//! The data plane carries what comes out over threads, rings and mail; the simulated world carries
//! the same with seeded delays and failures.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `table`, `deadlines` | entries whose keys are never given twice; when they are due |
//! | `keys`, `luns`, `view_change` | the keys of a core's tables; which units a session sees, and how that changes |
//! | `life`, `owed` | what a command waits for, and how long; what must happen exactly once |
//! | `authority` | where the state of a unit is saved, with which version |
//! | `agree` | one unit for all cores: the order of its changes, fences, the refusal of access |
//! | `losses` | who gets a report of what a store has lost, by the names of SCSI |
//! | `port`, `carrier` | what a transport must do; what leaves a core |
//! | `unit`, `session`, `task`, `report` | what the tables hold |
//! | `stores` | what stores have and have ordered: requests, their parts, timers, connections |
//! | `pieces` | tasks, resets and changes that wait for a turn, and whose is next |
//! | `engine` | one core: its tables and queues, what is taken out of it, questions to other cores |
//! | `room` | buffers for data: who gets them, who waits |
//! | `turn` | work of which a turn begins only so much |
//! | `execute`, `submit` | commands on their way to their answer, and by way of their store |
//! | `abort`, `management` | tasks that end early, who waits for that; task management |
//! | `change`, `fence`, `refusal` | what the owner of a unit has decided, done on every core |
//! | `units`, `grant` | units come and go; sessions begin and end, and are given and lose units |
//! | `medium`, `cache` | an administrator ejects a medium, or loads it; has a unit write through, or not |
//! | `time` | what is due |
//! | `check` | what must hold between events |
//!
//! Each names only those above it. From `room` on they are parts of one machine, [`Engine`], whose methods call
//! each other.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod abort;
pub mod agree;
mod authority;
mod cache;
mod carrier;
mod change;
mod check;
pub mod deadlines;
mod engine;
mod execute;
mod fence;
mod grant;
mod keys;
mod life;
mod look;
mod losses;
mod luns;
mod management;
mod medium;
mod owed;
mod pieces;
mod port;
mod refusal;
mod report;
mod room;
mod session;
mod space;
mod stores;
mod submit;
pub mod table;
mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod time;
mod turn;
mod unit;
mod units;
mod view_change;

pub use authority::{Save, SaveError, SavedState, StateAuthority, Version};
pub use carrier::{Carrier, Letter, News, StoreWork};
pub use engine::{Engine, Limits, Settings};
pub use keys::{PartKey, SessionKey, TaskKey};
pub use life::{Ending, Life, Phase, PhaseTime};
pub use losses::{Initiator, Losses};
pub use luns::{LunMap, MappedLun, NO_SERIES, VisibleLun};
pub use management::Management;
pub use medium::MediumOrder;
pub use owed::Owed;
pub use port::{ManagementOutcome, Port, Response};
pub use report::{MediumFailure, Report};
pub use session::Session;
pub use space::Space;
pub use store::FlushFailure;
pub use task::Orphan;
pub use unit::NoStore;

use std::fmt;

/// A logical unit. The unit is one, however many targets and numbers show it, and the index is not
/// given to another one for as long as the process runs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UnitIndex(pub u32);

const _: () = assert!(
    u32::BITS <= usize::BITS,
    "the number of a unit may be no index"
);

impl UnitIndex {
    /// As an index into a table of all units.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// The core that owns the unit, of so many.
    pub const fn owner(self, cores: usize) -> usize {
        debug_assert!(cores > 0, "a unit has an owner");
        self.as_usize() % cores
    }
}

/// A target. An index names one target for as long as the process runs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetIndex(pub u32);

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
    /// For a question without an answer. A session asks one question for each of its units when it begins and
    /// when it ends: nothing is kept for them, nor sent back.
    pub const NOBODY: Self = Self {
        core: usize::MAX,
        request: RequestNumber(u64::MAX),
    };
}

// The bits of a key are 56.
const _: () = assert!(
    Ticket::NOBODY.request.0 >> 56 > 0,
    "a question may be nobody's"
);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NOBODY => f.write_str("nobody"),
            Self { core, request } => write!(f, "{core}/{:x}", request.0),
        }
    }
}
