//! The identity of a session, whatever carries it.

use std::fmt;
use std::sync::Arc;

use ::hyperscsi::Level;
use iscsi::pdu::{Isid, Tsih};

use crate::hyperscsi::Place;

/// Names a session for administrators. It is given when the session is placed, from 1, and never
/// again while the process runs; zero names none.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the transport of a session calls it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransportDetails {
    /// iSCSI: both are on the wire, and another session gets them later.
    Iscsi {
        /// The target's part of the session identifier.
        tsih: Tsih,
        /// The initiator's part.
        isid: Isid,
    },
    /// NBD.
    Nbd {
        /// The name of the export.
        export: String,
        /// The place where the client came in, as the configuration calls it.
        service: Arc<str>,
        /// The names that its certificate proves.
        names: Arc<[String]>,
    },
    /// HyperSCSI.
    Hyperscsi {
        /// The group.
        group: Arc<str>,
        /// The place where the client came in.
        place: Place,
        /// The devices that it has opened, each with its level of protection.
        levels: Vec<(u16, Level)>,
    },
}
