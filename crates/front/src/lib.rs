//! Where initiators come in: logins, sessions, and what each transport does for the engine. Pure: no
//! socket, thread or clock.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `policy` | what is asked of the configuration: who may log in, and what they see |
//! | `identity` | how a session is called, whatever carries it |
//! | `report` | what is told of sessions |
//! | `names` | names of commands and requests of a session |
//! | `port` | a session of any transport, as the engine keeps it |
//! | `station` | where a client is: an address of IP or of Ethernet |
//! | `sending` | how a send ends, and whether that wakes its core |
//! | `others` | what iSCSI hands on to other transports |
//! | `iscsi` | iSCSI: the front, and the sessions of a core with their connections |
//! | `nbd` | NBD: the same |
//! | `hyperscsi` | HyperSCSI: the same, with its logins on every core |
//! | `testing` | lines and the carrier of tests and simulated worlds |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod hyperscsi;
mod identity;
pub mod iscsi;
mod names;
pub mod nbd;
mod others;
mod policy;
mod port;
mod report;
mod sending;
mod station;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use identity::{InitiatorPort, SessionId};
pub use names::{CommandId, ManagementId};
pub use others::{OtherSessions, Others};
pub use policy::{
    Asker, Authorization, ExportAsker, Policy, PortPlan, TargetPlan, VisibleExport, VisibleTarget,
};
pub use port::{Command, Farewell, Port};
pub use report::{ConnectionReport, SessionReport, TransportDetails};
pub use sending::{SendEnd, Sent};
pub use station::Station;
