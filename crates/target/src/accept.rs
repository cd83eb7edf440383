//! What the front decides ([`front::iscsi::Front`]) is carried out on sockets. One core has it.

mod listeners;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use front::iscsi::{
    Action, Adoption as Leaving, Front, FrontSettings, Line, LoginKey, SharedLists,
};
use front::{Policy, TargetPlan};
use iscsi::framing::Pdu;
use iscsi::names::IscsiName;
use memory::Message;
use reactor::net::KeepAlive;
use reactor::{Errno, Listener, OperationId, Received, Socket};

use crate::bucket::Bucket;
use crate::core::Core;
use crate::letter::{Adoption, Letter};
use crate::plan::{Settings, TargetIndex};
use crate::token::Purpose;
use crate::trace::{Taps, Trace};

/// Probes of the kernel, for peers that vanish without a word while nothing is asked of them.
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

/// How much of a login is received at a time, in bytes: what is not the login's goes to a session
/// that takes no more than it needs.
const LOGIN_RECEIVE_BYTES: usize = 4096;

/// A connection in its login phase.
#[derive(Debug)]
pub(crate) struct LoginLine {
    socket: Socket,
    portal: SocketAddr,
    taps: Taps,
}

impl Line for LoginLine {
    type Context = [Arc<Trace>];

    fn peer(&self) -> SocketAddr {
        self.taps.peer()
    }

    fn portal(&self) -> SocketAddr {
        self.portal
    }

    fn note_received(&mut self, pdu: &Pdu, initiator: Option<&IscsiName>, traces: &[Arc<Trace>]) {
        self.taps.receive_login(pdu, initiator, traces);
    }

    fn note_sent(&mut self, message: &Message) {
        self.taps.send(message);
    }
}

/// The front and its listeners.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) front: Front<LoginLine>,
    /// By index; `None` where nothing is listened on any more.
    portals: Vec<Option<Listener>>,
    accepts: Vec<Option<OperationId>>,
    /// Lines about connections that were not taken.
    refusals: Bucket,
    is_open: bool,
    /// Portals to try again, since when.
    retry_at: Option<Duration>,
}

impl Entrance {
    pub(crate) fn new(
        policy: Arc<dyn Policy>,
        targets: Vec<TargetPlan>,
        portals: Vec<Listener>,
        settings: &Settings,
        cores: usize,
        lists: Arc<SharedLists>,
    ) -> Self {
        let front_settings = FrontSettings {
            cores,
            sessions_max: settings.sessions_max,
            logins_max: settings.logins_max,
            discovery_max: settings.discovery_max,
            unproved_per_address_max: settings.unproved_per_address_max,
            connections_max: settings.connections_max,
            unproved: Arc::clone(&settings.unproved),
            login_timeout: settings.login_timeout,
        };
        let mut front = Front::new(&front_settings, Arc::clone(&policy), lists);
        front.set_access(policy, (0..).map(TargetIndex).zip(targets));
        Self {
            front,
            accepts: vec![None; portals.len()],
            portals: portals.into_iter().map(Some).collect(),
            refusals: Bucket::new(REFUSALS_MAX, REFUSALS_EVERY),
            is_open: false,
            retry_at: None,
        }
    }

    /// What follows connections that have not finished their login.
    pub(crate) fn taps_of_logins(&mut self) -> impl Iterator<Item = &mut Taps> {
        self.front.lines_mut().map(|line| &mut line.taps)
    }

    /// When something is to be done by itself.
    pub(crate) fn poll_timeout(&mut self) -> Option<Duration> {
        let retry = self.retry_at.into_iter();
        retry.chain(self.front.poll_timeout()).min()
    }
}

impl Core {
    pub(crate) fn handle_login_bytes(&mut self, key: LoginKey, result: Result<Received, Errno>) {
        let times = (self.now(), SystemTime::now());
        let Some(entrance) = self.entrance.as_mut() else {
            return;
        };
        match result {
            Ok(received) if received.len > 0 => {
                let bytes = received.chunk.get(..received.len).unwrap_or_default();
                entrance.front.handle_bytes(key, bytes, &self.traces, times);
            }
            Ok(_) | Err(_) => entrance.front.handle_end(key),
        }
    }

    pub(crate) fn handle_login_sent(&mut self, key: LoginKey, result: Result<(), Errno>) {
        let times = (self.now(), SystemTime::now());
        if let Some(entrance) = self.entrance.as_mut() {
            entrance.front.handle_sent(key, result.is_ok(), times);
        }
    }

    pub(crate) fn handle_login_timeouts(&mut self, now: Duration) {
        self.retry_doors(now);
        if let Some(entrance) = self.entrance.as_mut()
            && entrance.front.poll_timeout().is_some_and(|at| now >= at)
        {
            entrance.front.handle_timeout((now, SystemTime::now()));
        }
    }

    /// Does what the front wants done next. False when there is nothing.
    pub(crate) fn carry_front(&mut self) -> bool {
        let Some(action) = self.entrance.as_mut().and_then(|it| it.front.poll_action()) else {
            return false;
        };
        match action {
            Action::Receive(key) => {
                let (entrance, reactor) = (&self.entrance, &mut self.engine.carrier.reactor);
                if let Some(line) = entrance
                    .as_ref()
                    .and_then(|entrance| entrance.front.line(key))
                {
                    let token = Purpose::LoginReceive(key).token();
                    reactor.receive_at_most(&line.socket, token, LOGIN_RECEIVE_BYTES);
                }
            }
            Action::Send(key, message) => {
                let (entrance, reactor) = (&self.entrance, &mut self.engine.carrier.reactor);
                if let Some(line) = entrance
                    .as_ref()
                    .and_then(|entrance| entrance.front.line(key))
                {
                    reactor.send(&line.socket, Purpose::LoginSend(key).token(), message);
                }
            }
            Action::Shut(key) => {
                let entrance = self.entrance.as_ref();
                if let Some(line) = entrance.and_then(|entrance| entrance.front.line(key)) {
                    line.socket.shutdown();
                }
            }
            Action::Close(line) => line.socket.shutdown(),
            Action::Adopt { core, adoption } => self.send_adoption(core, *adoption),
            Action::TurnAway {
                line,
                machine,
                status,
            } => {
                if let Some(fd) = into_fd(line.socket) {
                    self.turn_away(fd, *machine, line.taps, status);
                }
            }
            Action::EndSession { core, tsih } => self.post(core, Letter::EndSession { tsih }),
            Action::EndDiscovery { core, tsih } => self.post(core, Letter::EndDiscovery { tsih }),
            Action::Failed {
                peer,
                initiator,
                target,
                failure,
            } => {
                let whose = (peer, initiator.as_deref(), target.as_deref());
                self.fail_login(whose, &failure);
            }
            Action::Guessing { address, user } => self.login_log.note_guessing(address, &user),
            Action::Displaced => self.login_log.displace(),
        }
        true
    }

    fn send_adoption(&mut self, core: usize, adoption: Leaving<LoginLine>) {
        let Leaving {
            line,
            machine,
            negotiated,
            unread,
            entry,
        } = adoption;
        let LoginLine {
            socket,
            portal,
            taps,
        } = line;
        let Some(fd) = into_fd(socket) else {
            return;
        };
        let adoption = Adoption {
            fd,
            machine,
            negotiated,
            portal,
            unread,
            taps,
            entry,
        };
        self.post(core, Letter::Adopt(Box::new(adoption)));
    }
}

/// The descriptor of a socket on which nothing is under way.
fn into_fd(socket: Socket) -> Option<OwnedFd> {
    let fd = socket.into_fd().ok();
    debug_assert!(
        fd.is_some(),
        "an operation is under way on a login that has ended"
    );
    fd
}
