//! The data plane: runs protocol machines on reactors, one per core.
//!
//! [`DataPlane::start`] runs one thread per core. They serve nothing until [`Handle`] gives them units and
//! targets. A session lives on one core with all its connections. A logical unit has no core: every core has
//! a view of it and a handle of its store, and one core owns its changeable state.
//!
//! A module imports only from modules above it in this table:
//!
//! | Module | Owns |
//! | --- | --- |
//! | `plan` | settings, units and targets, as they are given |
//! | `receipt` | how an administrator learns that cores have done what they were asked for |
//! | `bucket` | a limit on the rate of reports |
//! | `due` | until when a core may sleep |
//! | `slow` | which commands are slow, and what is reported of one |
//! | `events` | events for an administrator |
//! | `lines`, `logins` | limits on lines of the log that peers can cause; how logins end |
//! | `counters` | what is counted |
//! | `medium` | removable media |
//! | `reserved` | reservations, as administrators see them |
//! | `trace` | copies of what goes over connections, to look for a fault |
//! | `line` | a connection: its socket, and its traces |
//! | `letter` | mail between cores |
//! | `token` | what an operation of the reactor was for |
//! | `outside` | carries out what the engine of a core asks for: mail, ring, helpers |
//! | `wire` | the same for its sessions of iSCSI: sockets, mail, logs, events |
//! | `accept` | the listening sockets |
//! | `core` | the turn of a core, mail, time |
//! | `nbd`, `hyperscsi` | a core carries out what its sessions of these ask for, and gives them what comes |
//! | `accept::listeners` | a core accepts connections |
//! | `accounts` | a core counts what a turn has completed, and reports slow commands |
//! | `change` | a core adds and removes units |
//! | `medium::core`, `trace::core` | a core moves media, and follows connections |
//! | `stop` | the end of a core: its last flushes |
//! | `handle`; `handle` of `medium`, `trace`, `hyperscsi` | what an administrator may change, and waits for |
//! | `watchdog` | that every core turns |
//! | `plane` | the threads, started and stopped together |
//!
//! No file and no format of a configuration is named here.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accept;
mod accounts;
mod bucket;
mod change;
mod core;
mod counters;
mod due;
mod events;
mod handle;
mod hyperscsi;
mod letter;
mod line;
mod lines;
mod logins;
mod medium;
mod nbd;
mod outside;
mod plan;
mod plane;
mod receipt;
mod reserved;
mod slow;
mod stop;
mod times;
mod token;
mod trace;
mod troubles;
mod watchdog;
mod wire;

pub use engine::{Ending, MediumFailure, MediumOrder, Phase, PhaseTime, VisibleLun};
pub use engine::{Losses, Save, SaveError, SavedState, Space, StateAuthority, Version};
pub use front::hyperscsi::Counts as HyperscsiCounts;
pub use front::iscsi::{Coalescing, Grant, Holding, LoginCause, Who};
pub use front::nbd::TlsConfig;
pub use front::{
    Asker, Authorization, ConnectionReport, ExportAsker, InitiatorPort, Policy, SessionId,
    SessionReport, Station, TransportDetails, VisibleExport, VisibleTarget,
};

pub use counters::{
    CoreCounts, HyperscsiReport, KindCounts, LATENCY_BUCKETS, SeriesCounts, latency_bucket,
};
pub use events::{Event, EventSink, FailedLogin};
pub use handle::Handle;
pub use logins::{GUESSING_KEPT, Guessing, LoginCounts};
pub use medium::{Closed, ExchangeError, Hold, MEDIUM_PATIENCE, MediumReport, NotHeld};
pub use plan::{
    Access, Exchange, Group, GroupDevice, Hyperscsi, Place, PortPlan, PortalIndex, Restored,
    Server, Settings, TargetIndex, TargetPlan, UnitDescription, UnitIndex, UnitPlan,
};
pub use plane::{DataPlane, StartError, Stopped};
pub use receipt::{AddUnitError, Confirmation, NoAnswer};
pub use reserved::{NexusReport, RegistrationReport, ReservationReport};
pub use scsi::reservation::ReservationType;
pub use slow::SlowCommand;
pub use store::Cause;
pub use trace::{
    DATA_BYTES_MAX, KEEP_BYTES_MAX, KEEP_BYTES_MIN, NoTrace, Subject, TRACES_MAX, TraceLimits,
    TraceReport,
};
pub use troubles::{Conflict, StoreFailing, StoreTrouble};
