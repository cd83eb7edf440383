//! Who has what of what all sessions at targets share: places, connections, and memory for
//! what waits.
//!
//! Each holder has a share of each, and none can take so much that the next one finds nothing.

use std::net::IpAddr;
use std::sync::Arc;

use ::iscsi::target::{Budget, Share};

use super::member::Member;
use super::throttle::origin;
use super::unproved::Holding;

/// Among whom it is shared.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Holder {
    /// A user, wherever it logs in from.
    User(String),
    /// Initiators that have not authenticated: they choose their names, so their address counts.
    Origin(IpAddr),
}

impl Holder {
    pub(super) fn of(member: &Member) -> Self {
        let user = member.user.clone().map(Self::User);
        user.unwrap_or_else(|| Self::Origin(origin(member.peer.ip())))
    }
}

/// What there is in all.
#[derive(Debug)]
pub(super) struct Common {
    sessions: Arc<Budget>,
    connections: Arc<Budget>,
    holding: Holding,
}

impl Common {
    /// So many sessions, so many connections of them, and memory.
    pub(super) fn new(sessions_max: usize, connections_max: usize, holding: Holding) -> Self {
        Self {
            sessions: Arc::new(Budget::new(sessions_max)),
            connections: Arc::new(Budget::new(connections_max)),
            holding,
        }
    }

    /// What one that has nothing yet gets its part by.
    pub(super) fn shares(&self, holder: &Holder) -> Shares {
        let share = |budget: &Arc<Budget>| Arc::new(Share::new(Arc::clone(budget)));
        Shares {
            sessions: share(&self.sessions),
            connections: share(&self.connections),
            held: share(match holder {
                Holder::User(_) => &self.holding.proved,
                Holder::Origin(_) => &self.holding.unproved,
            }),
        }
    }
}

/// What one holder has of it.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Sessions at targets.
    pub(super) sessions: Arc<Share>,
    /// Connections of those.
    connections: Arc<Share>,
    /// Bytes of requests that wait.
    pub(super) held: Arc<Share>,
}

impl Shares {
    /// Whether the holder may have one more session.
    pub(super) fn have_place(&self) -> bool {
        self.sessions.has_room() && self.may_connect()
    }

    /// Whether the holder may have one more connection.
    pub(super) fn may_connect(&self) -> bool {
        self.connections.has_room()
    }

    /// Counts a connection for as long as the value is there.
    pub(super) fn count_connection(&self) -> ConnectionPlace {
        self.connections.count();
        ConnectionPlace(Arc::clone(&self.connections))
    }
}

/// Those of one holder are the same.
impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sessions, &other.sessions)
    }
}

impl Eq for Shares {}

/// A connection that counts for its holder.
#[derive(Debug)]
pub(super) struct ConnectionPlace(Arc<Share>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.give_back(1);
    }
}
