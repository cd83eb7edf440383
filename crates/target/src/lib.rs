//! The data plane: binds protocol machines to reactors, places sessions on cores, keeps the
//! shared state of units the same on all of them.
//!
//! A [`Plan`] says what is served; [`DataPlane::start`] runs one thread per core. A session lives
//! on one core with all its connections. A logical unit has no core: every core has a view of it
//! and a handle of its store, and one core owns its changeable state.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `core` | the turn of a core, mail, time |
//! | `link` | sockets |
//! | `sessions` | sessions from login to end |
//! | `exec` | commands |
//! | `abort` | tasks that end early, task management |
//! | `owner` | changes of units, fences |
//! | `front` | accepting and login, on one core |
//! | `directory` | which session is where |
//! | `counters` | what is counted |
//! | `logins` | how logins end |
//! | `bucket` | how much is told of what may happen very often |
//! | `life`, `slow` | what a command waits for, which of them are told of |
//! | `watcher` | what an administrator hears of |
//! | `handle` | what an administrator may change, and waits for |
//! | `trace` | what goes over connections, for those who look for a fault |
//! | `change`, `grant` | what that means for units and sessions |
//!
//! No file and no format of a configuration is named here.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod abort;
mod bucket;
mod change;
mod core;
mod counters;
mod directory;
mod exec;
mod front;
mod grant;
mod handle;
mod letter;
mod life;
mod link;
mod logins;
mod owner;
mod plan;
mod plane;
mod policy;
mod report;
mod running;
mod session;
mod sessions;
mod slow;
mod stop;
mod token;
mod trace;
mod unit;
mod watcher;

pub use counters::{CoreCounts, KindCounts, LATENCY_BUCKETS, SeriesCounts, latency_bucket};
pub use handle::{Access, Grant, Handle, NoAnswer};
pub use life::{Phase, PhaseTime};
pub use logins::{FailedLogin, LoginCause, LoginCounts};
pub use plan::{
    Coalescing, Keeper, Plan, PortPlan, PortalIndex, Settings, TargetIndex, TargetPlan,
    UnitDescription, UnitIndex, UnitPlan,
};
pub use plane::{DataPlane, StartError};
pub use policy::{Asker, Authorization, Policy, VisibleLun, VisibleTarget};
pub use report::SessionReport;
pub use slow::{Ending, SlowCommand};
pub use trace::{
    DATA_BYTES_MAX, KEEP_BYTES_MAX, KEEP_BYTES_MIN, NoTrace, Subject, TRACES_MAX, TraceLimits,
    TraceReport,
};
pub use watcher::{Happening, Watcher, Who};

/// The core that listens, logs in, and keeps the directory of sessions.
pub(crate) const FRONT_CORE: usize = 0;
