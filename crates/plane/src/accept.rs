//! The listening sockets. One core has them.

mod listeners;

use std::sync::Arc;
use std::time::Duration;

use reactor::net::KeepAlive;
use reactor::{Listener, OperationId};

use crate::bucket::Bucket;

/// Probes of the kernel, for peers that vanish while no command is under way.
///
/// Sessions that began together are probed together, and of such a burst a device may drop all but
/// what its queue holds, by default 1,000 packets: so many probes that 10,000 sessions get through.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(40),
    interval: Duration::from_secs(1),
    probes_max: 20,
    patience: Duration::from_secs(60),
};

// The kernel counts patience from the last sign of life and ends a connection that has spent it
// with one probe unanswered: all of them must fit in, or one lost packet ends a session.
const _: () = assert!(
    KEEP_ALIVE.idle.as_secs() + KEEP_ALIVE.interval.as_secs() * KEEP_ALIVE.probes_max as u64
        <= KEEP_ALIVE.patience.as_secs()
);

/// How many connections that were not taken are logged at once, and how often one more.
const REFUSALS_MAX: u32 = 4;
const REFUSALS_EVERY: Duration = Duration::from_secs(60);

/// Accepts connections on all portals.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// By index; `None` where a portal was closed.
    portals: Vec<Option<Listener>>,
    /// By index; what the rules call it where it is one of NBD.
    services: Vec<Option<Arc<str>>>,
    accepts: Vec<Option<OperationId>>,
    /// Lines about connections that were not taken.
    refusals: Bucket,
    /// The plane ends: nothing is accepted any more.
    is_closed: bool,
    /// Portals to try again, since when.
    retry_at: Option<Duration>,
}

impl Acceptor {
    /// Without a portal.
    pub(crate) const fn new() -> Self {
        Self {
            portals: Vec::new(),
            services: Vec::new(),
            accepts: Vec::new(),
            refusals: Bucket::new(REFUSALS_MAX, REFUSALS_EVERY),
            is_closed: false,
            retry_at: None,
        }
    }

    /// When portals are tried again.
    pub(crate) const fn poll_timeout(&self) -> Option<Duration> {
        self.retry_at
    }
}
