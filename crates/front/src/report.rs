//! What a core reports about its sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ::hyperscsi::Level;
use ::iscsi::pdu::{Isid, Tsih};
use engine::{TargetIndex, VisibleLun};

use crate::hyperscsi::Place;
use crate::identity::SessionId;
use crate::policy::Asker;
use crate::station::Station;

/// A session at one moment.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Names it.
    pub id: SessionId,
    /// What only sessions of its transport have.
    pub transport: TransportDetails,
    /// The core it lives on.
    pub core: usize,
    /// InitiatorName.
    pub initiator_name: String,
    /// Where the first connection came from.
    pub peer: Station,
    /// The address of ours that it reached.
    pub portal: SocketAddr,
    /// The user that CHAP has proved.
    pub user: Option<String>,
    /// `None` for discovery.
    pub target: Option<TargetIndex>,
    /// When it began.
    pub since: SystemTime,
    /// What it sees.
    pub luns: Vec<VisibleLun>,
    /// Commands under way.
    pub commands: usize,
    /// How many may be.
    pub window: u32,
    /// It was told to end, or is over but for commands that its store has.
    pub is_ending: bool,
}

/// What only sessions of one transport have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransportDetails {
    /// iSCSI.
    Iscsi {
        /// The target's part of the session identifier. Another session gets it later.
        tsih: Tsih,
        /// The initiator's part.
        isid: Isid,
        /// TargetPortalGroupTag.
        portal_group_tag: u16,
        /// Its connections, as they are now; the first may be gone.
        connections: Vec<ConnectionReport>,
        /// Violations of the protocol by the initiator.
        violations: u32,
        /// How often the initiator port has replaced a session of its own with this target, in the life of the plane.
        reinstatements: u32,
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

/// A connection of a session of iSCSI.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionReport {
    /// CID.
    pub cid: u16,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The address of ours that it reached.
    pub portal: SocketAddr,
    /// Digests of headers were negotiated.
    pub header_digest: bool,
    /// Digests of data were negotiated.
    pub data_digest: bool,
}

impl SessionReport {
    /// Who is behind it, for the rules of access.
    pub fn asker(&self) -> Asker<'_> {
        Asker {
            initiator_name: &self.initiator_name,
            address: self.peer.ip(),
            portal: self.portal,
            user: self.user.as_deref(),
        }
    }

    /// The same user at the other end of a connection of its own.
    pub fn asker_of(&self, connection: &ConnectionReport) -> Asker<'_> {
        Asker {
            address: connection.peer.ip(),
            portal: connection.portal,
            ..self.asker()
        }
    }
}
