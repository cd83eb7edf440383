//! The listening sockets: opened, closed, changed while the plane runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use front::iscsi::{Descriptors, LoginRandom};
use iscsi::login::RANDOM_BYTES;
use reactor::net;
use reactor::{Errno, Socket};

use super::KEEP_ALIVE;
use crate::core::Core;
use crate::line::Link;
use crate::plan::Access;
use crate::token::Purpose;
use crate::trace::Taps;

/// How often a closed listener is tried again when no descriptor is left.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

impl Core {
    fn accept(&mut self, portal: usize) {
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        if !entrance.is_closed
            && let Some(Some(listener)) = entrance.portals.get(portal)
        {
            let token = Purpose::Accept(portal).token();
            let operation = self.engine.carrier.reactor.accept(listener, token);
            entrance.accepts[portal] = Some(operation);
        }
    }

    /// No new connection comes in from now on.
    pub(crate) fn stop_listening(&mut self) {
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        entrance.is_closed = true;
        for operation in entrance.accepts.iter_mut().filter_map(Option::take) {
            self.engine.carrier.reactor.cancel(operation);
        }
        // A connection that arrives now is refused by the kernel, not left waiting.
        entrance.portals.clear();
    }

    /// The rules, targets and portals are others from now on. Logins that are under way meet the
    /// new ones when they end.
    pub(crate) fn handle_set_access(&mut self, access: Access) {
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        if let Some(front) = &mut self.sessions.front {
            front.set_access(access.policy, access.targets.into_iter());
            self.engine.carrier.cold_resets.allow(front.targets());
        }
        for portal in access.close {
            let portal = portal.0 as usize;
            if let Some(listener) = entrance.portals.get_mut(portal) {
                *listener = None;
            }
            if let Some(operation) = entrance.accepts.get_mut(portal).and_then(Option::take) {
                self.engine.carrier.reactor.cancel(operation);
            }
        }
        let first = entrance.portals.len();
        entrance.portals.extend(access.open.into_iter().map(Some));
        entrance.accepts.resize(entrance.portals.len(), None);
        for portal in first..entrance.portals.len() {
            self.accept(portal);
        }
    }

    /// Listeners that were closed for want of descriptors are tried again.
    pub(crate) fn retry_doors(&mut self, now: Duration) {
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        if entrance.retry_at.is_none_or(|at| now < at) {
            return;
        }
        entrance.retry_at = None;
        let closed = (0..entrance.portals.len()).filter(|&n| entrance.accepts[n].is_none());
        for portal in closed.collect::<Vec<_>>() {
            self.accept(portal);
        }
    }

    fn begin_login(&mut self, fd: OwnedFd, peer: SocketAddr) {
        let now = self.now();
        let options = net::set_options(&fd, Some(KEEP_ALIVE));
        let (Ok(()), Some(random), Ok(portal), Ok(socket)) =
            (options, random(), net::local_address(&fd), Socket::new(fd))
        else {
            tracing::debug!(%peer, "a connection ended before its login began");
            return;
        };
        let taps = Taps::new(peer, portal);
        if let Some(front) = &mut self.sessions.front {
            front.accept(Link { socket, taps }, random, now);
        }
    }

    /// Sees to it that a new connection leaves enough descriptors for stores and the
    /// administration: one that has proved nothing goes for it. False when there is none.
    fn find_descriptor(&mut self, peer: SocketAddr) -> bool {
        let now = self.now();
        let in_use = self.engine.carrier.connection_count.load(Ordering::Relaxed);
        let (Some(entrance), Some(front)) = (&mut self.entrance, &mut self.sessions.front) else {
            return false;
        };
        let (is_taken, most) = match front.find_descriptor(in_use) {
            Descriptors::Enough => return true,
            Descriptors::MadeRoom(most) => (true, most),
            Descriptors::NotEnough(most) => (false, most),
        };
        if let Some(untold) = entrance.refusals.take(now) {
            tracing::warn!(%peer, most, untold, "more connections than leave descriptors for the administration");
        }
        is_taken
    }

    pub(crate) fn handle_accepted(
        &mut self,
        portal: usize,
        result: Result<(OwnedFd, SocketAddr), Errno>,
    ) {
        let now = self.engine.carrier.reactor.now();
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        entrance.accepts[portal] = None;
        match result {
            // One that came while its portal was being closed came too late.
            Ok((fd, peer)) if !entrance.is_closed && entrance.portals[portal].is_some() => {
                self.engine.carrier.login_log.accept();
                if self.find_descriptor(peer) {
                    self.begin_login(fd, peer);
                }
                self.accept(portal);
            }
            Ok(_) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                if let Some(untold) = entrance.refusals.take(now) {
                    tracing::warn!(
                        untold,
                        "no more connections: the limit on open files is reached"
                    );
                }
                entrance.retry_at = Some(now + ACCEPT_RETRY);
            }
            Err(errno) => {
                if !entrance.is_closed {
                    tracing::debug!(%errno, "accept failed");
                    self.accept(portal);
                }
            }
        }
    }
}

/// Random bytes of the system's for one login.
fn random() -> Option<LoginRandom> {
    let (mut challenges, mut tsih) = ([0; RANDOM_BYTES], [0; 2]);
    getrandom::fill(&mut challenges).ok()?;
    getrandom::fill(&mut tsih).ok()?;
    Some(LoginRandom {
        challenges,
        tsih: u16::from_ne_bytes(tsih),
    })
}
