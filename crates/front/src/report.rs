//! What a core reports about its sessions.

use std::net::SocketAddr;
use std::time::SystemTime;

use engine::{TargetIndex, VisibleLun};

use crate::identity::{SessionId, TransportDetails};
use crate::policy::Asker;
use crate::station::Station;

/// A session at one moment.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Names it.
    pub id: SessionId,
    /// What its transport calls it.
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
    /// TargetPortalGroupTag.
    pub portal_group_tag: u16,
    /// When it began.
    pub since: SystemTime,
    /// What it sees.
    pub luns: Vec<VisibleLun>,
    /// Its connections, as they are now; the first may be gone.
    pub connections: Vec<ConnectionReport>,
    /// Digests of headers were negotiated for the first connection.
    pub header_digest: bool,
    /// Digests of data were negotiated for the first connection.
    pub data_digest: bool,
    /// Commands under way.
    pub commands: usize,
    /// How many may be.
    pub window: u32,
    /// Violations of the protocol by the initiator.
    pub violations: u32,
    /// It was told to end, or is over but for commands that its store has.
    pub is_ending: bool,
    /// How often the initiator port has replaced a session of its own with this target, in the life
    /// of the plane.
    pub reinstatements: u32,
}

/// A connection of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionReport {
    /// CID.
    pub cid: u16,
    /// Where it comes from.
    pub peer: Station,
    /// The address of ours that it reached.
    pub portal: SocketAddr,
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

    /// The same user at the other end of one of its connections.
    pub fn asker_of(&self, connection: &ConnectionReport) -> Asker<'_> {
        Asker {
            address: connection.peer.ip(),
            portal: connection.portal,
            ..self.asker()
        }
    }
}
