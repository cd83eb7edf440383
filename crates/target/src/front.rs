//! The front desk: accepts connections, carries logins to their end, knows where every session
//! is. One core has it.
//!
//! A login is a plain socket with one receive or one send under way. At its end the socket moves
//! to the core of its session, which sends the final response.

mod doors;

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use iscsi::discovery::{TargetRecord, TextRecords};
use iscsi::framing::PduBuffer;
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{LoginAction, LoginTarget, LoginViolation, NegotiatedLogin, RANDOM_BYTES};
use iscsi::pdu::{Isid, LoginStatus, Tsih};
use memory::Message;
use reactor::net::{self, KeepAlive};
use reactor::{Errno, Listener, OperationId, Received, Socket};
use scsi::reservation::canonical_transport_id;
use scsi::{PortName, Principal};

use crate::bucket::Bucket;
use crate::core::Core;
use crate::directory::{Decision, Directory, NexusKey};
use crate::letter::{Adoption, Entry, Letter};
use crate::logins::LoginFailure;
use crate::plan::{Settings, TargetIndex, TargetPlan};
use crate::plane::StartError;
use crate::policy::{Asker, Policy};
use crate::proof::Member;
use crate::session::SessionProfile;
use crate::throttle::{GuessLimiter, JoinLimiter};
use crate::token::Purpose;
use crate::trace::Taps;
use crate::unproved::{Crowding, Peer, SharedLists, Unproved, UnprovedLimits};
use engine::deadlines::Deadlines;
use engine::table::{Key, Table};

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

/// A login that has ended well and waits for the session it replaces to end.
#[derive(Debug)]
pub(crate) struct Waiting {
    fd: OwnedFd,
    machine: LoginTarget,
    negotiated: Box<NegotiatedLogin>,
    unread: Vec<u8>,
    taps: Taps,
    profile: Box<SessionProfile>,
}

/// Names a connection in its login phase.
pub(crate) type LoginKey = Key<Login>;

/// A connection that has not finished its login.
#[derive(Debug)]
pub(crate) struct Login {
    socket: Socket,
    machine: LoginTarget,
    buffer: PduBuffer,
    peer: SocketAddr,
    portal: SocketAddr,
    target: Option<TargetIndex>,
    is_receiving: bool,
    is_sending: bool,
    /// No more is received; it goes when its operations have ended.
    is_closing: bool,
    /// Answers that wait for the one being sent.
    output: VecDeque<Message>,
    close_when_sent: bool,
    /// Its refusal is not sent before.
    hold_until: Option<Duration>,
    taps: Taps,
    /// The login has ended well; the session is to be found when nothing is under way.
    negotiated: Option<Box<NegotiatedLogin>>,
}

impl Login {
    /// Nobody has put an end to it yet.
    const fn is_under_way(&self) -> bool {
        !self.is_closing && !self.close_when_sent
    }
}

/// What the front desk keeps.
#[derive(Debug)]
pub(crate) struct Front {
    policy: Arc<dyn Policy>,
    targets: BTreeMap<TargetIndex, TargetPlan>,
    /// By index; `None` where nothing is listened on any more.
    portals: Vec<Option<Listener>>,
    accepts: Vec<Option<OperationId>>,
    directory: Directory<Waiting>,
    /// Joins that failed, by where they came from.
    joins: JoinLimiter,
    /// Wrong proofs of CHAP.
    guesses: GuessLimiter,
    logins: Table<Login>,
    login_deadlines: Deadlines<LoginKey>,
    /// Logins and discovery sessions, by where they come from.
    unproved: Unproved,
    lists: Arc<SharedLists>,
    /// How many connections leave enough descriptors for all else.
    connections_max: usize,
    /// Lines about connections that were not taken.
    refusals: Bucket,
    login_timeout: Duration,
    is_open: bool,
    /// Portals to try again, since when.
    retry_at: Option<Duration>,
}

impl Login {
    /// When something is to be done for it by itself.
    fn deadline(&self) -> Option<Duration> {
        if self.is_closing {
            return None;
        }
        let late = self.machine.poll_timeout();
        self.hold_until.into_iter().chain(late).min()
    }
}

impl Front {
    pub(crate) fn new(
        policy: Arc<dyn Policy>,
        targets: Vec<TargetPlan>,
        portals: Vec<Listener>,
        settings: &Settings,
        cores: usize,
        lists: Arc<SharedLists>,
    ) -> Result<Self, StartError> {
        let accepts = vec![None; portals.len()];
        Ok(Self {
            policy,
            targets: (0..).map(TargetIndex).zip(targets).collect(),
            portals: portals.into_iter().map(Some).collect(),
            accepts,
            directory: Directory::new(cores, settings.sessions_max),
            joins: JoinLimiter::default(),
            guesses: GuessLimiter::default(),
            logins: Table::default(),
            login_deadlines: Deadlines::default(),
            unproved: Unproved::new(
                UnprovedLimits {
                    per_address_max: settings.unproved_per_address_max,
                    logins_max: settings.logins_max,
                    discovery_max: settings.discovery_max,
                },
                Arc::clone(&settings.unproved),
            ),
            lists,
            connections_max: settings.connections_max,
            refusals: Bucket::new(REFUSALS_MAX, REFUSALS_EVERY),
            login_timeout: settings.login_timeout,
            is_open: false,
            retry_at: None,
        })
    }

    /// A target was reset, as its initiators learn with their next login.
    pub(crate) fn note_reset(&mut self, target: TargetIndex) {
        self.directory.note_reset(target);
    }

    /// What follows connections that have not finished their login.
    pub(crate) fn taps_of_logins(&mut self) -> impl Iterator<Item = &mut Taps> {
        self.logins.iter_mut().map(|(_, login)| &mut login.taps)
    }

    /// How many logins are under way.
    pub(crate) fn logins(&self) -> usize {
        self.logins.len()
    }

    /// Gives back what tables have room for beyond need.
    pub(crate) fn shrink(&mut self) {
        self.logins.shrink_to_fit();
        self.directory.shrink();
    }

    /// When the next login runs out of time.
    pub(crate) fn next_deadline(&mut self) -> Option<Duration> {
        let logins = &self.logins;
        let of = |key| logins.get(key)?.deadline();
        let next = self.login_deadlines.next(logins.len(), of);
        next.into_iter().chain(self.retry_at).min()
    }

    fn profile(
        &self,
        login: &Login,
        negotiated: &NegotiatedLogin,
    ) -> Result<(Option<Member>, SessionProfile), LoginStatus> {
        let mut profile = SessionProfile {
            initiator_name: negotiated.initiator_name.as_str().to_owned(),
            target_name: negotiated
                .target_name
                .as_ref()
                .map(|name| name.as_str().to_owned()),
            isid: negotiated.isid,
            peer: login.peer,
            portal: login.portal,
            user: negotiated.chap_user.clone(),
            target: login.target,
            portal_group_tag: negotiated.portal_group_tag,
            since: SystemTime::now(),
            port: PortName {
                transport_id: Arc::from([]),
                target_port: 0,
                principal: Principal::Unknown,
            },
            luns: Vec::new(),
            text: TextRecords::for_discovery(Vec::new()),
        };
        let member = self.grant(&mut profile)?;
        Ok((member, profile))
    }

    /// The core of the session that a login wants to join.
    fn join(&mut self, tsih: Tsih, newcomer: &Member, now: Duration) -> Result<usize, LoginStatus> {
        let address = newcomer.peer.ip();
        if !self.joins.allows(address, now) {
            return Err(LoginStatus::OutOfResources);
        }
        let found = self.directory.join(tsih, newcomer, &*self.policy);
        if found.is_err() {
            self.joins.note_failure(address, now);
        }
        found
    }

    /// Fills in what the rules, as they are now, give whoever is behind a session.
    /// `None` for discovery.
    fn grant(&self, profile: &mut SessionProfile) -> Result<Option<Member>, LoginStatus> {
        let asker = profile.asker();
        let records = |only| {
            let visible = self.policy.targets(&asker, only).into_iter();
            visible.map(|target| TargetRecord {
                name: target.name,
                addresses: target.addresses,
            })
        };
        let Some(target) = profile.target else {
            if !self.policy.may_discover(&asker) {
                return Err(LoginStatus::AuthorizationFailure);
            }
            let list = self.lists.share(records(None).collect());
            profile.text = TextRecords::for_discovery_shared(list);
            return Ok(None);
        };
        let tag = profile.portal_group_tag;
        let ports = self.targets.get(&target).map(|plan| &plan.ports);
        let port = ports.and_then(|ports| ports.iter().find(|port| port.portal_group_tag == tag));
        let target_port = port.ok_or(LoginStatus::TargetError)?.relative_id;
        let own = records(Some(target)).next().ok_or(LoginStatus::NotFound)?;
        let luns = self.policy.luns(&asker, target)?;
        profile.port = PortName {
            transport_id: transport_id(&profile.initiator_name, profile.isid),
            target_port,
            principal: match profile.user.as_deref() {
                Some(user) => Principal::User(user.into()),
                None => Principal::Nobody,
            },
        };
        profile.luns = luns;
        profile.text = TextRecords::for_target(own);
        Ok(Some(Member {
            nexus: NexusKey {
                initiator_name: profile.initiator_name.clone(),
                isid: profile.isid,
                target,
                portal_group_tag: tag,
            },
            user: profile.user.clone(),
            peer: profile.peer,
            portal: profile.portal,
        }))
    }
}

/// Bytes from the system's random source.
fn random(bytes: &mut [u8]) -> Result<(), StartError> {
    getrandom::fill(bytes).map_err(|error| StartError::System {
        action: "read random bytes",
        source: std::io::Error::other(error),
    })
}

/// What the number of a new session comes from.
fn random_number() -> Result<u16, StartError> {
    let mut bytes = [0; 2];
    random(&mut bytes)?;
    Ok(u16::from_ne_bytes(bytes))
}

/// The TransportID of an initiator port.
///
/// Format code 01b and protocol identifier 5h, then the name, `,i,0x` and the ISID in 12
/// hexadecimal digits, ended by zeros up to a multiple of four and at least 24 bytes in all.
///
/// Spec: SPC-4, iSCSI initiator port TransportIDs; RFC 7143 section 4.2.7.
pub(crate) fn transport_id(initiator_name: &str, isid: Isid) -> Arc<[u8]> {
    let digits: String = isid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{initiator_name},i,0x{digits}");
    let length = (name.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![0x45, 0];
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(4 + length, 0);
    canonical_transport_id(&bytes).unwrap_or_else(|| bytes.into())
}

impl Core {
    fn begin_login(&mut self, fd: OwnedFd, peer: SocketAddr) {
        let now = self.engine.carrier.reactor.now();
        let mut bytes = [0; RANDOM_BYTES];
        let options = net::set_options(&fd, Some(KEEP_ALIVE));
        let (Ok(()), Ok(()), Ok(portal), Ok(socket)) = (
            options,
            random(&mut bytes),
            net::local_address(&fd),
            Socket::new(fd),
        ) else {
            tracing::debug!(%peer, "a connection ended before its login began");
            return;
        };
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let key = front.logins.insert(Login {
            socket,
            machine: LoginTarget::new(now, front.login_timeout, bytes),
            buffer: PduBuffer::new(),
            peer,
            portal,
            target: None,
            is_receiving: false,
            is_sending: false,
            is_closing: false,
            output: VecDeque::new(),
            close_when_sent: false,
            hold_until: None,
            taps: Taps::new(peer, portal),
            negotiated: None,
        });
        if let Some(deadline) = front.logins[key].deadline() {
            front.login_deadlines.set(key, deadline);
        }
        let gone = front.unproved.begin(Peer::Login(key), peer.ip());
        if let Some((gone, crowding)) = gone {
            self.displace(gone, crowding);
        }
        self.receive_login(key);
    }

    /// Sees to it that a new connection leaves enough descriptors for stores and the
    /// administration: one that has proved nothing goes for it. False when there is none.
    fn find_descriptor(&mut self, peer: SocketAddr) -> bool {
        let now = self.engine.carrier.reactor.now();
        let in_use = self.connection_count.load(Ordering::Relaxed);
        let Some(front) = self.front.as_mut() else {
            return false;
        };
        let most = front.connections_max;
        if in_use.saturating_add(front.logins.len()) < most {
            return true;
        }
        if let Some(untold) = front.refusals.take(now) {
            tracing::warn!(%peer, most, untold, "more connections than leave descriptors for the administration");
        }
        if let Some(gone) = front.unproved.displace() {
            self.displace(gone, Crowding::Descriptors(most));
            return true;
        }
        self.login_log.displace();
        false
    }

    /// Ends a login or a discovery session that must go for another.
    fn displace(&mut self, peer: Peer, crowding: Crowding) {
        match peer {
            Peer::Login(key) => self.end_login(key, &LoginFailure::Displaced(crowding)),
            Peer::Discovery(tsih) => {
                self.login_log.displace();
                let front = self.front.as_ref();
                if let Some(core) = front.and_then(|front| front.directory.core_with(tsih)) {
                    self.post(core, Letter::EndDiscovery { tsih });
                }
            }
        }
    }

    fn receive_login(&mut self, key: LoginKey) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        // The next request answers what was sent last.
        let is_its_turn = !login.is_sending && login.output.is_empty();
        let is_needed = login.is_under_way() && login.negotiated.is_none();
        if is_its_turn && is_needed && !login.is_receiving {
            login.is_receiving = true;
            let token = Purpose::LoginReceive(key).token();
            self.engine
                .carrier
                .reactor
                .receive_at_most(&login.socket, token, LOGIN_RECEIVE_BYTES);
        }
    }

    pub(crate) fn handle_login_bytes(&mut self, key: LoginKey, result: Result<Received, Errno>) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        login.is_receiving = false;
        match result {
            Ok(received) if received.len > 0 && !login.is_closing => {
                login.buffer.push(&received.chunk[..received.len]);
                self.advance_login(key);
            }
            Ok(_) | Err(_) => self.lose_login(key),
        }
    }

    /// Takes PDUs for as long as it is the initiator's turn.
    fn advance_login(&mut self, key: LoginKey) {
        loop {
            let Some(front) = self.front.as_mut() else {
                return;
            };
            let Some(login) = front.logins.get_mut(key) else {
                return;
            };
            if login.is_closing || login.close_when_sent || login.negotiated.is_some() {
                return;
            }
            match login.buffer.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
                Ok(Some(pdu)) => {
                    login.machine.handle_pdu(&pdu.header, &pdu.data);
                    let name = login.machine.initiator_name();
                    login.taps.receive_login(&pdu, name, &self.traces);
                    self.act_on_login(key);
                }
                Ok(None) => {
                    self.receive_login(key);
                    return;
                }
                Err(error) => {
                    self.end_login(key, &error.into());
                    return;
                }
            }
        }
    }

    /// Does what the login machine asks for.
    fn act_on_login(&mut self, key: LoginKey) {
        loop {
            let Some(front) = self.front.as_mut() else {
                return;
            };
            let Some(login) = front.logins.get_mut(key) else {
                return;
            };
            let Some(action) = login.machine.poll_action() else {
                break;
            };
            match action {
                LoginAction::Send(pdu) => {
                    let mut message = Message::default();
                    message.push_bytes(&pdu.to_bytes(false, false));
                    login.taps.send(&message);
                    login.output.push_back(message);
                }
                LoginAction::Authorize(request) => {
                    let initiator_name = request.initiator_name.as_str();
                    let asker = Asker {
                        initiator_name,
                        address: login.peer.ip(),
                        portal: login.portal,
                        user: None,
                    };
                    let target_name = request.target_name.as_ref().map(|name| name.as_str());
                    match front.policy.authorize(&asker, target_name) {
                        Ok(authorization) => {
                            login.target = authorization.target;
                            login
                                .machine
                                .authorize_reply(Ok::<_, LoginStatus>(authorization.policy));
                        }
                        Err(status) => login.machine.authorize_reply(Err(status)),
                    }
                }
                LoginAction::Admit(negotiated) => login.negotiated = Some(negotiated),
                // Said only after an admission, which happens on the core of the session.
                LoginAction::Complete(_) => debug_assert!(false, "complete before admitted"),
                LoginAction::Close(violation) => {
                    login.close_when_sent = true;
                    let whose = (login.peer, &login.machine);
                    let now = self.engine.carrier.reactor.now();
                    self.login_log.fail(
                        &*self.engine.carrier.watcher,
                        now,
                        whose,
                        &violation.into(),
                    );
                    if violation.is_wrong_proof() {
                        self.hold_refusal(key);
                    }
                }
            }
        }
        self.send_login(key);
        self.settle_login(key);
    }

    /// A wrong proof of CHAP costs who guesses some time: its refusal waits. Nothing else does.
    fn hold_refusal(&mut self, key: LoginKey) {
        let now = self.engine.carrier.reactor.now();
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        let user = login.machine.claimed_user().unwrap_or_default();
        let wrong = front.guesses.note(login.peer.ip(), user, now);
        if !wrong.delay.is_zero() {
            login.hold_until = Some(now + wrong.delay);
            front.login_deadlines.set(key, now + wrong.delay);
        }
        if wrong.is_guessing {
            self.login_log.note_guessing(login.peer.ip(), user);
        }
    }

    fn send_login(&mut self, key: LoginKey) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        if !login.is_sending
            && !login.is_closing
            && login.hold_until.is_none()
            && let Some(message) = login.output.pop_front()
        {
            login.is_sending = true;
            self.engine.carrier.reactor.send(
                &login.socket,
                Purpose::LoginSend(key).token(),
                message,
            );
        }
    }

    pub(crate) fn handle_login_sent(
        &mut self,
        key: LoginKey,
        message: Message,
        result: Result<(), Errno>,
    ) {
        drop(message);
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        login.is_sending = false;
        if result.is_err() || login.is_closing {
            self.lose_login(key);
            return;
        }
        self.send_login(key);
        self.settle_login(key);
        self.receive_login(key);
    }

    /// When nothing is under way: closes, or finds the session.
    fn settle_login(&mut self, key: LoginKey) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        if login.is_sending || login.is_receiving || !login.output.is_empty() {
            return;
        }
        if login.close_when_sent {
            self.close_login(key);
        } else if let Some(negotiated) = login.negotiated.take() {
            self.place_login(key, negotiated);
        }
    }

    /// Finds or makes the session of a login that ended well.
    fn place_login(&mut self, key: LoginKey, negotiated: Box<NegotiatedLogin>) {
        let now = self.engine.carrier.reactor.now();
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get(key) else {
            return;
        };
        let tsih = negotiated.tsih;
        let placed = front
            .profile(login, &negotiated)
            .and_then(|(member, profile)| {
                if tsih.is_none() {
                    return Ok((member, profile, None));
                }
                let newcomer = member.ok_or(LoginStatus::SessionDoesNotExist)?;
                let core = front.join(tsih, &newcomer, now)?;
                Ok((Some(newcomer), profile, Some(core)))
            });
        let (member, profile, joined) = match placed {
            Ok(placed) => placed,
            Err(status) => {
                self.refuse_login(key, status);
                return;
            }
        };
        let Some(login) = front.logins.remove(key) else {
            return;
        };
        front.unproved.end(Peer::Login(key));
        let Ok(fd) = login.socket.into_fd() else {
            debug_assert!(false, "an operation is under way on a login that has ended");
            return;
        };
        let waiting = Waiting {
            fd,
            machine: login.machine,
            unread: login.buffer.into_unread(),
            taps: login.taps,
            profile: Box::new(profile),
            negotiated,
        };
        match joined {
            Some(core) => self.send_away(core, waiting, Entry::Join { tsih }),
            None => self.admit(member, waiting),
        }
    }

    fn refuse_login(&mut self, key: LoginKey, status: LoginStatus) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        login.machine.admit_reply(Err(status));
        self.act_on_login(key);
    }

    fn admit(&mut self, member: Option<Member>, waiting: Waiting) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let decision = match random_number() {
            Ok(random) => front
                .directory
                .admit(member, waiting, &*front.policy, random),
            Err(_) => Decision::Refuse(LoginStatus::TargetError, waiting),
        };
        self.carry_out(decision);
    }

    /// As [`Core::admit`], for a login that waited for a session of its own ports to end.
    fn admit_after(&mut self, member: Member, waiting: Waiting) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let decision = match random_number() {
            Ok(random) => front
                .directory
                .admit_after(member, waiting, &*front.policy, random),
            Err(_) => Decision::Refuse(LoginStatus::TargetError, waiting),
        };
        self.carry_out(decision);
    }

    fn carry_out(&mut self, decision: Decision<Waiting>) {
        match decision {
            Decision::Place(placement, waiting) => {
                let core = placement.core;
                let profile = waiting.profile.clone();
                let peer = waiting.profile.peer.ip();
                let discovery = profile.target.is_none().then_some(placement.tsih);
                self.send_away(core, waiting, Entry::Found { placement, profile });
                if let Some(tsih) = discovery {
                    self.begin_discovery(tsih, peer);
                }
            }
            Decision::EndFirst { core, tsih } => self.post(core, Letter::EndSession { tsih }),
            Decision::Wait(None) => {}
            Decision::Wait(Some(older)) => {
                let status = LoginStatus::ServiceUnavailable;
                self.turn_away(older.fd, older.machine, older.taps, status);
            }
            Decision::Refuse(status, waiting) => {
                self.turn_away(waiting.fd, waiting.machine, waiting.taps, status);
            }
        }
    }

    fn begin_discovery(&mut self, tsih: Tsih, address: IpAddr) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let gone = front.unproved.begin(Peer::Discovery(tsih), address);
        if let Some((gone, crowding)) = gone {
            self.displace(gone, crowding);
        }
    }

    fn send_away(&mut self, core: usize, waiting: Waiting, entry: Entry) {
        let Waiting {
            fd,
            machine,
            negotiated,
            unread,
            taps,
            profile,
        } = waiting;
        let adoption = Adoption {
            fd,
            machine,
            negotiated,
            portal: profile.portal,
            unread,
            taps,
            entry,
        };
        self.post(core, Letter::Adopt(Box::new(adoption)));
    }

    pub(crate) fn handle_session_ended(&mut self, tsih: Tsih) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        front.unproved.end(Peer::Discovery(tsih));
        let Some(mut login) = front.directory.ended(tsih) else {
            return;
        };
        // The rules may be others than when it began to wait.
        match front.grant(&mut login.profile) {
            Ok(Some(member)) => self.admit_after(member, login),
            // Discovery sessions replace none.
            Ok(None) => {}
            Err(status) => self.turn_away(login.fd, login.machine, login.taps, status),
        }
    }

    pub(crate) fn handle_login_timeouts(&mut self, now: Duration) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        if front.retry_at.is_some_and(|at| now >= at) {
            front.retry_at = None;
            let closed = (0..front.portals.len()).filter(|&n| front.accepts[n].is_none());
            for portal in closed.collect::<Vec<_>>() {
                self.accept(portal);
            }
        }
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let logins = &front.logins;
        let of = |key| logins.get(key)?.deadline();
        let due: Vec<LoginKey> = iter::from_fn(|| front.login_deadlines.due(now, of)).collect();
        for key in due {
            let Some(front) = self.front.as_mut() else {
                return;
            };
            let Some(login) = front.logins.get_mut(key) else {
                continue;
            };
            if login.machine.poll_timeout().is_some_and(|at| now >= at) {
                self.end_login(key, &LoginViolation::DeadlinePassed.into());
                continue;
            }
            login.hold_until = None;
            if let Some(deadline) = login.deadline() {
                front.login_deadlines.set(key, deadline);
            }
            self.send_login(key);
        }
    }

    /// Refuses logins that have waited too long for the session they replace. Called once a tick.
    pub(crate) fn end_overdue_waiting(&mut self, now: Duration) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let is_late = |login: &Waiting| login.machine.poll_timeout().is_some_and(|at| now >= at);
        for login in front.directory.take_overdue(is_late) {
            let Waiting {
                fd, machine, taps, ..
            } = login;
            self.turn_away(fd, machine, taps, LoginStatus::ServiceUnavailable);
        }
    }

    /// The connection of a login is gone. One that ends before it says who it is was none: ports
    /// are tried like that, to see whether somebody listens.
    fn lose_login(&mut self, key: LoginKey) {
        let front = self.front.as_ref();
        let login = front.and_then(|front| front.logins.get(key));
        if login.is_some_and(|login| login.machine.initiator_name().is_some()) {
            self.end_login(key, &LoginFailure::Abandoned);
        } else {
            self.close_login(key);
        }
    }

    /// Ends a login from outside, without a word to its initiator.
    fn end_login(&mut self, key: LoginKey, failure: &LoginFailure) {
        if let Some(front) = &self.front
            && let Some(login) = front.logins.get(key)
            && login.is_under_way()
        {
            let whose = (login.peer, &login.machine);
            let now = self.engine.carrier.reactor.now();
            self.login_log
                .fail(&*self.engine.carrier.watcher, now, whose, failure);
        }
        self.close_login(key);
    }

    fn close_login(&mut self, key: LoginKey) {
        let Some(front) = self.front.as_mut() else {
            return;
        };
        let Some(login) = front.logins.get_mut(key) else {
            return;
        };
        if !login.is_closing {
            login.is_closing = true;
            login.socket.shutdown();
            front.unproved.end(Peer::Login(key));
        }
        if !login.is_receiving && !login.is_sending {
            front.logins.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_id_is_padded_to_words_and_never_shorter_than_24() {
        let id = transport_id("iqn.a", Isid([0x80, 0, 0, 0x12, 0x34, 0xab]));
        assert_eq!(&id[..4], &[0x45, 0, 0, 24]);
        assert_eq!(&id[4..], b"iqn.a,i,0x8000001234ab\0\0");
        let id = transport_id("i", Isid([0; 6]));
        assert_eq!(&id[..4], &[0x45, 0, 0, 20]);
        assert_eq!(&id[4..], b"i,i,0x000000000000\0\0");
    }
}
