//! Who is at the other end of a command.

use std::sync::Arc;

/// One live I_T nexus (a session) of this process. Never used again while the process lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NexusId(pub u32);

/// Who is behind an initiator port. Its name is a claim of the initiator; this is what the transport
/// knows of it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Principal {
    /// Not known: others have named the port (SPEC_I_PT, REGISTER AND MOVE), or the transport proves
    /// nothing.
    #[default]
    Unknown,
    /// It was let in without a proof.
    Nobody,
    /// It has proved to be this user.
    User(Arc<str>),
}

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
    /// Who is behind the initiator port. A registration belongs to port and principal: another one
    /// that claims the same port does not inherit it.
    pub principal: Principal,
}

impl PortName {
    /// Both name the same two ports, of whatever users.
    pub fn has_same_ports(&self, other: &Self) -> bool {
        self.target_port == other.target_port && self.transport_id == other.transport_id
    }

    /// What belongs to this name is the nexus' own. A name without a known principal is that of
    /// every nexus with its ports.
    pub fn admits(&self, nexus: &Self) -> bool {
        self.has_same_ports(nexus)
            && (self.principal == Principal::Unknown || self.principal == nexus.principal)
    }
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

/// Names an attached nexus on one core. Valid from [`LogicalUnit::attach`](crate::LogicalUnit::attach) to
/// [`LogicalUnit::detach`](crate::LogicalUnit::detach).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct NexusSlot(pub(crate) usize);
