//! The listening sockets: opened, closed, changed while the plane runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use reactor::Errno;

use crate::core::Core;
use crate::front::LoginKey;
use crate::handle::Access;
use crate::token::Purpose;

/// How often a closed door is tried again when no descriptor is left.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

impl Core {
    /// Opens the doors.
    pub(crate) fn handle_go(&mut self) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        front.is_open = true;
        for portal in 0..front.portals.len() {
            self.accept(portal);
        }
    }

    pub(super) fn accept(&mut self, portal: usize) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        if front.is_open
            && let Some(Some(listener)) = front.portals.get(portal)
        {
            let token = Purpose::Accept(portal).token();
            let operation = self.engine.carrier.reactor.accept(listener, token);
            front.accepts[portal] = Some(operation);
        }
    }

    /// No new connection comes in from now on.
    pub(crate) fn stop_listening(&mut self) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        front.is_open = false;
        for operation in front.accepts.iter_mut().filter_map(Option::take) {
            self.engine.carrier.reactor.cancel(operation);
        }
        // Who comes now is refused by the kernel, not left waiting.
        front.portals.clear();
        let logins: Vec<LoginKey> = front.logins.keys().collect();
        for key in logins {
            self.close_login(key);
        }
    }

    /// The rules, targets and portals are others from now on. Logins that are under way meet the
    /// new ones when they end.
    pub(crate) fn handle_set_access(&mut self, access: Access) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        front.policy = access.policy;
        front.targets = access.targets.into_iter().collect();
        let targets = front.targets.iter();
        self.cold_resets
            .allow(targets.map(|(index, plan)| (*index, plan)));
        for portal in access.close {
            let portal = portal.0 as usize;
            if let Some(listener) = front.portals.get_mut(portal) {
                *listener = None;
            }
            if let Some(operation) = front.accepts.get_mut(portal).and_then(Option::take) {
                self.engine.carrier.reactor.cancel(operation);
            }
        }
        let first = front.portals.len();
        front.portals.extend(access.open.into_iter().map(Some));
        front.accepts.resize(front.portals.len(), None);
        for portal in first..front.portals.len() {
            self.accept(portal);
        }
    }

    pub(crate) fn handle_accepted(
        &mut self,
        portal: usize,
        result: Result<(OwnedFd, SocketAddr), Errno>,
    ) {
        let now = self.engine.carrier.reactor.now();
        let Some(front) = self.front.as_mut() else {
            return;
        };
        front.accepts[portal] = None;
        match result {
            // One that came while its portal was being closed came too late.
            Ok((fd, peer)) if front.is_open && front.portals[portal].is_some() => {
                self.login_log.accept();
                if self.find_descriptor(peer) {
                    self.begin_login(fd, peer);
                }
                self.accept(portal);
            }
            Ok(_) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                if let Some(untold) = front.refusals.take(now) {
                    tracing::warn!(
                        untold,
                        "no more connections: the limit on open files is reached"
                    );
                }
                front.retry_at = Some(now + ACCEPT_RETRY);
            }
            Err(errno) => {
                if front.is_open {
                    tracing::debug!(%errno, "accept failed");
                    self.accept(portal);
                }
            }
        }
    }
}
