//! A session of iSCSI and its connections, as the core keeps them that they live on.

use std::sync::Arc;
use std::time::Duration;

use ::iscsi::pdu::{Cid, Tsih};
use engine::table::Key;
use engine::{SessionKey, VisibleLun};
use memory::Message;

use super::holder::{ConnectionPlace, LunsHeld, Shares};
use super::profile::SessionProfile;
use crate::identity::SessionId;
use crate::policy::VisibleTarget;
use crate::station::Station;

/// What a [`ConnectionKey`] names.
#[derive(Debug)]
pub enum OfConnection {}

/// Names a connection in full-feature phase.
pub type ConnectionKey = Key<OfConnection>;

/// What is kept beside the protocol of a session.
#[derive(Debug)]
pub struct Detail {
    /// Names it.
    pub id: SessionId,
    /// The target's part of the session identifier.
    pub tsih: Tsih,
    /// What is known of it.
    pub profile: SessionProfile,
    /// How often this pair of ports has replaced a session of its own.
    pub reinstatements: u32,
    /// Violations so far, so that the first few only are told.
    pub violations: u32,
    /// Connections in the order of the session's own indices.
    pub(super) connections: Vec<Option<ConnectionKey>>,
    /// When it ends, if it is a discovery session.
    pub(super) discovery_ends: Duration,
    /// An administrator ends it: why, and when at the latest. The initiator is told first.
    pub(super) dismissal: Option<(&'static str, Duration)>,
    /// Why, once its end has begun.
    pub(super) end_reason: Option<&'static str>,
    /// What its holder has; `None` for a discovery session.
    pub(super) shares: Option<Shares>,
    /// What it sees, as it counts for its holder; `None` for a discovery session.
    pub(super) luns_held: Option<Arc<LunsHeld>>,
    /// When it is looked at next, see [`super::Sessions::handle_timeout`].
    pub(super) look_at: Option<Duration>,
}

impl Detail {
    /// A session without a connection.
    pub const fn new(
        id: SessionId,
        tsih: Tsih,
        profile: SessionProfile,
        discovery_ends: Duration,
    ) -> Self {
        Self {
            id,
            tsih,
            profile,
            reinstatements: 0,
            violations: 0,
            connections: Vec::new(),
            discovery_ends,
            dismissal: None,
            end_reason: None,
            shares: None,
            luns_held: None,
            look_at: None,
        }
    }

    /// Who is behind it, for those who are notified.
    pub fn who(&self) -> Who<'_> {
        Who {
            session: self.id,
            initiator: &self.profile.initiator_name,
            peer: self.profile.peer.into(),
            target: self.profile.target_name.as_deref(),
            user: self.profile.user.as_deref(),
        }
    }

    /// The connection with this index in the session.
    pub(super) fn connection(&self, index: usize) -> Option<ConnectionKey> {
        self.connections.get(index).copied().flatten()
    }

    /// All connections.
    pub(super) fn open_connections(&self) -> Vec<ConnectionKey> {
        self.connections.iter().copied().flatten().collect()
    }
}

/// The initiator of a session, and what it is logged in to.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The session.
    pub session: SessionId,
    /// InitiatorName.
    pub initiator: &'a str,
    /// Where it comes from.
    pub peer: Station,
    /// TargetName; `None` for discovery.
    pub target: Option<&'a str>,
    /// The user that it has proved to be.
    pub user: Option<&'a str>,
}

/// What one session may see from now on.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The session.
    pub session: SessionId,
    /// The core it lives on.
    pub core: usize,
    /// All it sees.
    pub luns: Vec<VisibleLun>,
    /// What SendTargets tells.
    pub targets: Vec<VisibleTarget>,
}

/// A connection in full-feature phase.
#[derive(Debug)]
pub struct Connection<L> {
    /// What carries it.
    pub line: L,
    /// Its session.
    pub session: SessionKey,
    /// Its index in the session.
    pub index: usize,
    /// The initiator's name of it.
    pub cid: Cid,
    /// Digests of headers and of data.
    pub(super) digests: (bool, bool),
    pub(super) is_receiving: bool,
    pub(super) is_sending: bool,
    /// The turn in which the last send began.
    pub(super) sending_since: Duration,
    /// The size of what is being sent, in bytes.
    pub(super) sending_bytes: usize,
    /// How much of that is on the heap, in bytes.
    pub(super) sending_heap_bytes: usize,
    /// Output on the heap, in bytes, as the core has counted it.
    pub(super) heap_counted: usize,
    /// It is in the list of connections with output.
    pub(super) is_dirty: bool,
    /// The line held more when it was last received from.
    pub(super) has_more: bool,
    /// Receiving waits for output to be sent.
    pub(super) is_throttled: bool,
    /// No more is received; the line goes when what is under way on it has ended.
    pub(super) is_closing: bool,
    /// Close when all output is sent.
    pub(super) close_when_sent: bool,
    /// The peer is gone, and why; its turn to be closed comes.
    pub(super) lost: Option<&'static str>,
    /// An emptied message, kept for its room.
    pub(super) spare: Option<Message>,
    /// By it the connection counts for its holder.
    _place: Option<ConnectionPlace>,
}

impl<L> Connection<L> {
    /// One on which nothing is under way.
    pub(super) const fn new(
        line: L,
        (session, index): (SessionKey, usize),
        (cid, digests): (Cid, (bool, bool)),
        place: Option<ConnectionPlace>,
    ) -> Self {
        Self {
            line,
            session,
            index,
            cid,
            digests,
            is_receiving: false,
            is_sending: false,
            sending_since: Duration::ZERO,
            sending_bytes: 0,
            sending_heap_bytes: 0,
            heap_counted: 0,
            is_dirty: false,
            has_more: false,
            is_throttled: false,
            is_closing: false,
            close_when_sent: false,
            lost: None,
            spare: None,
            _place: place,
        }
    }
}
