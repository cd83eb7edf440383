//! The listening sockets: opened, closed, changed while the plane runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use front::iscsi::{Descriptors, LoginRandom};
use iscsi::login::RANDOM_BYTES;
use reactor::net;
use reactor::{Errno, Listener, Socket};

use super::KEEP_ALIVE;
use crate::core::Core;
use crate::line::{Link, NbdLink};
use crate::plan::Access;
use crate::token::Purpose;
use crate::trace::Taps;

/// How often a closed listener is tried again when no descriptor is left.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

impl Core {
    fn accept(&mut self, portal: usize) {
        let Some(acceptor) = self.acceptor.as_mut() else {
            return;
        };
        if !acceptor.is_closed
            && let Some(Some(listener)) = acceptor.portals.get(portal)
        {
            let token = Purpose::Accept(portal).token();
            let operation = self.engine.carrier.reactor.accept(listener, token);
            acceptor.accepts[portal] = Some(operation);
        }
    }

    /// No new connection comes in from now on.
    pub(crate) fn stop_listening(&mut self) {
        let Some(acceptor) = self.acceptor.as_mut() else {
            return;
        };
        acceptor.is_closed = true;
        for operation in acceptor.accepts.iter_mut().filter_map(Option::take) {
            self.engine.carrier.reactor.cancel(operation);
        }
        // The kernel refuses connections that arrive from here on.
        acceptor.portals.clear();
    }

    /// Changes rules, targets and portals. Logins that are under way are judged by the new ones when they end.
    pub(crate) fn handle_set_access(&mut self, access: Access) {
        let Some(acceptor) = self.acceptor.as_mut() else {
            return;
        };
        if let Some(front) = &mut self.nbd.front {
            front.set_policy(Arc::clone(&access.policy));
        }
        if let Some(front) = &mut self.sessions.front {
            front.set_access(access.policy, access.targets.into_iter());
            self.engine.carrier.cold_resets.allow(front.targets());
        }
        for portal in access.close {
            let portal = portal.0 as usize;
            if let Some(listener) = acceptor.portals.get_mut(portal) {
                *listener = None;
            }
            if let Some(operation) = acceptor.accepts.get_mut(portal).and_then(Option::take) {
                self.engine.carrier.reactor.cancel(operation);
            }
        }
        let first = acceptor.portals.len();
        let iscsi = access.open.into_iter().map(|portal| (portal, None));
        let nbd = access.open_nbd.into_iter();
        for (portal, service) in iscsi.chain(nbd.map(|(portal, name)| (portal, Some(name)))) {
            acceptor.portals.push(Some(portal));
            acceptor.services.push(service);
        }
        acceptor.accepts.resize(acceptor.portals.len(), None);
        for portal in first..acceptor.portals.len() {
            self.accept(portal);
        }
    }

    /// Listeners that were closed for want of descriptors are tried again.
    pub(crate) fn retry_listeners(&mut self, now: Duration) {
        let Some(acceptor) = self.acceptor.as_mut() else {
            return;
        };
        if acceptor.retry_at.is_none_or(|at| now < at) {
            return;
        }
        acceptor.retry_at = None;
        let closed = (0..acceptor.portals.len()).filter(|&n| acceptor.accepts[n].is_none());
        for portal in closed.collect::<Vec<_>>() {
            self.accept(portal);
        }
    }

    fn begin_handshake(
        &mut self,
        fd: OwnedFd,
        (peer, is_unix): (SocketAddr, bool),
        service: Arc<str>,
    ) {
        let portal = if is_unix {
            Ok(net::UNIX_ADDRESS)
        } else {
            let options = net::set_options(&fd, Some(KEEP_ALIVE));
            options.and_then(|()| net::local_address(&fd))
        };
        let (Ok(portal), Ok(socket)) = (portal, Socket::new(fd)) else {
            tracing::debug!(%peer, "a connection ended before its handshake began");
            return;
        };
        let line = NbdLink {
            socket,
            peer,
            portal,
        };
        if let Some(front) = &mut self.nbd.front {
            front.accept(&mut self.engine, line, service);
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

    /// Makes sure that a new connection leaves enough descriptors for stores and the administration: a
    /// connection that has not authenticated is closed for it. False when there is none.
    fn find_descriptor(&mut self, peer: SocketAddr) -> bool {
        let now = self.now();
        let in_use = self.engine.carrier.connection_count.load(Ordering::Relaxed);
        let in_use = in_use + self.nbd.handshakes();
        let (Some(acceptor), Some(front)) = (&mut self.acceptor, &mut self.sessions.front) else {
            return false;
        };
        let (is_taken, most) = match front.find_descriptor(in_use) {
            Descriptors::Enough => return true,
            Descriptors::MadeRoom(most) => (true, most),
            Descriptors::NotEnough(most) => (false, most),
        };
        if let Some(unreported) = acceptor.refusals.take(now) {
            tracing::warn!(%peer, most, unreported, "more connections than leave descriptors for the administration");
        }
        is_taken
    }

    pub(crate) fn handle_accepted(
        &mut self,
        portal: usize,
        result: Result<(OwnedFd, SocketAddr), Errno>,
    ) {
        let now = self.engine.carrier.reactor.now();
        let Some(acceptor) = self.acceptor.as_mut() else {
            return;
        };
        acceptor.accepts[portal] = None;
        match result {
            // A connection that arrives while its portal is being closed is dropped.
            Ok((fd, peer)) if !acceptor.is_closed && acceptor.portals[portal].is_some() => {
                self.engine.carrier.login_log.accept();
                let service = acceptor.services.get(portal).cloned().flatten();
                let listener = acceptor.portals.get(portal).and_then(Option::as_ref);
                let is_unix = listener.is_some_and(Listener::is_unix);
                if self.find_descriptor(peer) {
                    match service {
                        Some(service) => self.begin_handshake(fd, (peer, is_unix), service),
                        None => self.begin_login(fd, peer),
                    }
                }
                self.accept(portal);
            }
            Ok(_) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                if let Some(unreported) = acceptor.refusals.take(now) {
                    tracing::warn!(
                        unreported,
                        "no more connections: the limit on open files is reached"
                    );
                }
                acceptor.retry_at = Some(now + ACCEPT_RETRY);
            }
            Err(errno) => {
                if !acceptor.is_closed {
                    tracing::debug!(%errno, "accept failed");
                    self.accept(portal);
                }
            }
        }
    }
}

/// Random bytes of the system for one login.
fn random() -> Option<LoginRandom> {
    let (mut challenges, mut tsih) = ([0; RANDOM_BYTES], [0; 2]);
    getrandom::fill(&mut challenges).ok()?;
    getrandom::fill(&mut tsih).ok()?;
    Some(LoginRandom {
        challenges,
        tsih: u16::from_ne_bytes(tsih),
    })
}
