//! Who is at the other end of a command.

use std::sync::Arc;

/// One live I_T nexus (a session) of this process. Never used again while the process lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NexusId(pub u32);

/// The names of both ends of an I_T nexus, which survive its sessions: what a persistent
/// reservation is registered under.
///
/// Spec: SPC-5, Persistent reservations (registered I_T nexus); SAM-6, I_T nexus.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PortName {
    /// The TransportID of the initiator port, laid out by the transport and opaque here.
    pub transport_id: Arc<[u8]>,
    /// The relative target port identifier.
    pub target_port: u16,
}

/// One I_T nexus as a logical unit sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nexus {
    /// Its number while it lives.
    pub id: NexusId,
    /// Its names.
    pub port: PortName,
    /// This nexus may not write, whatever others may.
    pub read_only: bool,
}
