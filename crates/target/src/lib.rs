//! The data plane: binds protocol machines to reactors, places sessions on cores, keeps the
//! shared state of units the same on all of them.
//!
//! A [`Plan`] says what is served; [`DataPlane::start`] runs one thread per core. A session lives
//! on one core with all its connections. A logical unit has no core: every core has a view of it
//! and a handle of its store, and one core owns its changeable state.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `plan`, `policy` | what it is started with; what it asks of the configuration |
//! | `plane` | the threads, started and stopped together |
//! | `core` | the turn of a core, mail, time |
//! | `letter` | mail between cores |
//! | `token` | what an operation of the reactor was for |
//! | `link` | sockets |
//! | `desk` | sockets of the front: what it decides, carried out |
//! | `logins` | how logins end |
//! | `sessions`, `session` | sessions from login to end; one of them, as its core keeps it |
//! | `outside` | what leaves the engine of a core, over mail, ring and helpers |
//! | `stop` | the end of a core: writes become durable |
//! | `handle` | what an administrator may change, and waits for |
//! | `change`, `grant` | what that means for units and sessions |
//! | `counters`, `report` | what is counted; what is told of sessions |
//! | `slow` | which commands are told of, because they take long |
//! | `bucket` | how much is told of what may happen very often |
//! | `lines` | limits on the lines of the log that peers can cause |
//! | `watchdog` | that every core turns |
//! | `watcher` | what an administrator hears of |
//! | `trace` | what goes over connections, for those who look for a fault |
//!
//! No file and no format of a configuration is named here.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accept;
mod bucket;
mod change;
mod core;
mod counters;
mod grant;
mod handle;
mod letter;
mod lines;
mod link;
mod logins;
mod outside;
mod plan;
mod plane;
mod report;
mod session;
mod sessions;
mod slow;
mod stop;
mod token;
mod trace;
mod watchdog;
mod watcher;

pub use engine::{Ending, Phase, PhaseTime, VisibleLun};
pub use front::iscsi::LoginCause;
pub use front::{Asker, Authorization, Policy, SessionId, TransportDetails, VisibleTarget};

pub use counters::{CoreCounts, KindCounts, LATENCY_BUCKETS, SeriesCounts, latency_bucket};
pub use handle::{Access, Confirmation, Grant, Handle, NoAnswer};
pub use logins::{FailedLogin, Guessing, LoginCounts};
pub use plan::{
    Coalescing, Keeper, Plan, PortPlan, PortalIndex, Settings, TargetIndex, TargetPlan,
    UnitDescription, UnitIndex, UnitPlan,
};
pub use plane::{DataPlane, StartError, Stopped};
pub use report::{ConnectionReport, SessionReport};
pub use slow::SlowCommand;
pub use trace::{
    DATA_BYTES_MAX, KEEP_BYTES_MAX, KEEP_BYTES_MIN, NoTrace, Subject, TRACES_MAX, TraceLimits,
    TraceReport,
};
pub use watcher::{Happening, Watcher, Who};

/// The core that listens, logs in, and keeps the directory of sessions.
pub(crate) const FRONT_CORE: usize = 0;
