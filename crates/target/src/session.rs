//! A session and its connections as a core keeps them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::SessionKey;
use engine::table::Key;
use front::iscsi::{SessionPort, SessionProfile};
use iscsi::pdu::{Cid, Tsih};
use memory::Message;
use reactor::Socket;

use crate::handle::Receipt;
use crate::trace::{Taps, Trace};
use crate::watcher::Who;
use front::SessionId;

/// Names a socket in full-feature phase.
pub(crate) type ConnectionKey = Key<Connection>;

/// A session as the engine keeps it.
pub(crate) type SessionEntry = engine::Session<SessionPort<Detail>>;

/// What a core keeps beside the protocol of a session.
#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) id: SessionId,
    pub(crate) tsih: Tsih,
    pub(crate) profile: SessionProfile,
    /// Connections in the order of the session's own indices.
    pub(crate) connections: Vec<Option<ConnectionKey>>,
    /// The turn in which it began.
    pub(crate) began: Duration,
    /// An administrator ends it: why, and when at the latest. The initiator is told first.
    pub(crate) dismissal: Option<(&'static str, Duration)>,
    /// Why, once its end has begun.
    pub(crate) end_reason: Option<&'static str>,
    /// How often this pair of ports has replaced a session of its own.
    pub(crate) reinstatements: u32,
    /// Digests of headers and of data, as the first connection has them.
    pub(crate) digests: (bool, bool),
    /// Of those who wait for its end.
    pub(crate) receipts: Vec<Receipt>,
    /// Those that its connections are followed for.
    pub(crate) traces: Vec<Arc<Trace>>,
    /// Violations so far, so that the log tells of the first few only.
    pub(crate) violations: u32,
}

impl Detail {
    /// Who is behind it, for those who hear of it.
    pub(crate) fn who(&self) -> Who<'_> {
        Who {
            session: self.id,
            initiator: &self.profile.initiator_name,
            peer: self.profile.peer,
            target: self.profile.target_name.as_deref(),
        }
    }

    /// The connection with this index in the session.
    pub(crate) fn connection(&self, index: usize) -> Option<ConnectionKey> {
        self.connections.get(index).copied().flatten()
    }

    /// All connections.
    pub(crate) fn open_connections(&self) -> Vec<ConnectionKey> {
        self.connections.iter().copied().flatten().collect()
    }
}

/// A socket in full-feature phase.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) session: SessionKey,
    /// Index in the session.
    pub(crate) index: usize,
    pub(crate) cid: Cid,
    /// The address of ours that it reached.
    pub(crate) portal: SocketAddr,
    pub(crate) is_receiving: bool,
    pub(crate) is_sending: bool,
    /// The turn in which the last send began.
    pub(crate) sending_since: Duration,
    /// The size of what is being sent, in bytes.
    pub(crate) sending_bytes: usize,
    /// How much of that is on the heap, in bytes.
    pub(crate) sending_heap_bytes: usize,
    /// Output on the heap, in bytes, as the core has counted it.
    pub(crate) heap_counted: usize,
    /// It is in the list of connections with output.
    pub(crate) is_dirty: bool,
    /// The socket held more when it was last received from.
    pub(crate) has_more: bool,
    /// Receiving waits for output to be sent.
    pub(crate) is_throttled: bool,
    /// No more is received; the socket goes when its operations have ended.
    pub(crate) is_closing: bool,
    /// Close when all output is sent.
    pub(crate) close_when_sent: bool,
    /// The peer is gone, and why; its turn to be closed comes.
    pub(crate) lost: Option<&'static str>,
    /// What follows it.
    pub(crate) taps: Taps,
    /// An emptied message, kept for its room.
    pub(crate) spare: Option<Message>,
}
