//! The data plane: binds protocol machines to reactors, places sessions on cores, keeps the
//! shared state of units the same on all of them.
//!
//! [`DataPlane::start`] runs one thread per core. They serve nothing until [`Handle`] gives them units
//! and targets. A session lives on one core with all its connections. A logical unit has no core: every core has a view of it
//! and a handle of its store, and one core owns its changeable state.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `plan` | settings, units and targets, as they are given |
//! | `plane` | the threads, started and stopped together |
//! | `core` | the turn of a core, mail, time |
//! | `letter` | mail between cores |
//! | `token` | what an operation of the reactor was for |
//! | `accept` | the listening sockets |
//! | `line` | a connection: its socket, and what follows it |
//! | `outside` | what leaves the engine of a core, over mail, ring and helpers |
//! | `wire` | what leaves the sessions of a core, over sockets and mail, to logs and administrators |
//! | `logins` | how logins end |
//! | `stop` | the end of a core: writes become durable |
//! | `handle` | what an administrator may change, and waits for |
//! | `change` | what that means for units |
//! | `counters` | what is counted |
//! | `slow` | which commands are told of, because they take long |
//! | `bucket` | how much is told of what may happen very often |
//! | `lines` | limits on the lines of the log that peers can cause |
//! | `watchdog` | that every core turns |
//! | `watcher` | events for an administrator |
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
mod handle;
mod letter;
mod line;
mod lines;
mod logins;
mod medium;
mod outside;
mod plan;
mod plane;
mod slow;
mod stop;
mod token;
mod trace;
mod watchdog;
mod watcher;
mod wire;

pub use engine::{Ending, MediumFailure, MediumOrder, Phase, PhaseTime, VisibleLun};
pub use front::iscsi::{Coalescing, Grant, LoginCause, Who};
pub use front::{
    Asker, Authorization, ConnectionReport, Policy, SessionId, SessionReport, TransportDetails,
    VisibleTarget,
};

pub use counters::{CoreCounts, KindCounts, LATENCY_BUCKETS, SeriesCounts, latency_bucket};
pub use handle::{Access, AddUnitError, Confirmation, Handle, NoAnswer};
pub use logins::{FailedLogin, Guessing, LoginCounts};
pub use medium::{MEDIUM_PATIENCE, MediumReport};
pub use plan::{
    Keeper, PortPlan, PortalIndex, Settings, TargetIndex, TargetPlan, UnitDescription, UnitIndex,
    UnitPlan,
};
pub use plane::{DataPlane, StartError, Stopped};
pub use slow::SlowCommand;
pub use trace::{
    DATA_BYTES_MAX, KEEP_BYTES_MAX, KEEP_BYTES_MIN, NoTrace, Subject, TRACES_MAX, TraceLimits,
    TraceReport,
};
pub use watcher::{Happening, Watcher};
