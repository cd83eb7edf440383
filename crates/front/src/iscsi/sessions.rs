//! Sessions on the core that they live on: from the end of a login to the last task.
//!
//! What a line brings and the time go in; what is to be done with lines, and told to others, goes to the
//! [`Wire`]. The engine, which has the tasks, is lent to every call: other transports have theirs on the
//! same one. On one core the front is here, too.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::limits::DISCOVERY_QUEUE_DEPTH;
use ::iscsi::login::{Admission, LoginAction, LoginTarget, NegotiatedLogin};
use ::iscsi::pdu::{LoginStatus, Tsih};
use ::iscsi::target::{ConnectionConfig, Receive, Session, SessionConfig};
use engine::deadlines::Deadlines;
use engine::table::Table;
use engine::{Engine, SessionKey, TargetIndex};
use marks::sometimes;
use memory::{Message, Need};
use scsi::UnitAttention;

use super::action::{Action, Adoption, Entry};
use super::directory::Placement;
use super::failure::LoginFailure;
use super::front::{Front, FrontSettings};
use super::holder::{Holder, Parties, Shares, hold_limits};
use super::port::{SessionPort, names_of};
use super::profile::SessionProfile;
use super::session::{Connection, ConnectionKey, Detail, Grant, OfConnection};
use super::unproved::{LoginKey, SharedLists};
use super::wire::{FRONT_CORE, FrontLetter, Line, LineKey, Notice, Wire};
use crate::identity::SessionId;
use crate::port::Port;
use crate::sending::SendEnd;

/// How much of a login is received at a time, in bytes: what is not the login's goes to a session
/// that takes no more than it needs.
const LOGIN_RECEIVE_BYTES: usize = 4096;

/// A session as the engine keeps it.
pub(super) type SessionEntry = engine::Session<Port>;

/// Whether answers wait for further ones, to go in one send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Coalescing {
    /// Never.
    Off,
    /// While the socket holds further commands already.
    Adaptive,
    /// Always, for some tens of microseconds.
    Always,
}

/// Sizes and times of sessions.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Commands of one session under way.
    pub queue_depth: u32,
    /// Silence after which an initiator is pinged.
    pub nop_interval: Option<Duration>,
    /// How long a ping may stay unanswered.
    pub nop_timeout: Duration,
    /// How long a discovery session may last.
    pub discovery_lifetime: Duration,
    /// How long a CmdSN may be missing that later requests wait for.
    pub gap_timeout: Duration,
    /// Whether answers wait for further ones.
    pub coalescing: Coalescing,
}

/// The sessions of iSCSI on one core.
#[derive(Debug)]
pub struct Sessions<C: Wire> {
    pub(super) settings: SessionSettings,
    pub(super) by_id: HashMap<SessionId, SessionKey>,
    /// As the front names sessions.
    pub(super) by_tsih: HashMap<Tsih, SessionKey>,
    pub(super) connections: Table<Connection<C::Line>, OfConnection>,
    /// Those who wait for the end of a session.
    pub(super) receipts: HashMap<SessionId, Vec<C::Receipt>>,
    /// What sessions are to see and wait to begin, oldest first.
    pub(super) grants: VecDeque<(Grant, C::Receipt)>,
    /// Output on the heap that waits for peers, in bytes.
    pub(super) output_heap: usize,
    /// Connections whose peers are gone, oldest first; one may have been closed meanwhile.
    pub(super) lost: VecDeque<ConnectionKey>,
    /// Connections with output that is not being sent.
    pub(super) dirty: Vec<ConnectionKey>,
    /// Room for connections whose output is held; empty between turns.
    pub(super) held: Vec<ConnectionKey>,
    /// When held output must go.
    pub(super) hold_until: Option<Duration>,
    /// Connections whose output was sent after receiving had waited for that.
    pub(super) throttled: Vec<ConnectionKey>,
    /// When sessions are looked at.
    pub(super) looks: Deadlines<SessionKey>,
    /// Who shares the core's buffers.
    parties: Parties,
    pub(super) lists: Arc<SharedLists>,
    /// Carries logins to their end; one core has it.
    pub front: Option<Front<C::Line>>,
}

impl<C: Wire> Sessions<C> {
    /// No session yet. `lists` is shared by all cores.
    pub fn new(
        settings: SessionSettings,
        lists: Arc<SharedLists>,
        front: Option<Front<C::Line>>,
    ) -> Self {
        Self {
            settings,
            by_id: HashMap::new(),
            by_tsih: HashMap::new(),
            connections: Table::default(),
            receipts: HashMap::new(),
            grants: VecDeque::new(),
            output_heap: 0,
            lost: VecDeque::new(),
            dirty: Vec::new(),
            held: Vec::new(),
            hold_until: None,
            throttled: Vec::new(),
            looks: Deadlines::default(),
            parties: Parties::default(),
            lists,
            front,
        }
    }

    /// Sizes and times of sessions that begin from now on, and limits at the front, if it is here.
    pub fn set_limits(&mut self, settings: SessionSettings, at_front: &FrontSettings) {
        self.settings = settings;
        if let Some(front) = &mut self.front {
            front.set_limits(at_front);
        }
    }

    /// The session that administrators call so.
    pub fn session(&self, id: SessionId) -> Option<SessionKey> {
        self.by_id.get(&id).copied()
    }

    /// How many logins are under way.
    pub fn logins(&self) -> usize {
        self.front.as_ref().map_or(0, Front::logins)
    }

    /// No connection is left, not even one that only waits for what is under way on it.
    pub fn is_quiet(&self) -> bool {
        self.connections.is_empty()
    }

    /// All connections that their sessions have.
    pub fn connections_mut(&mut self) -> impl Iterator<Item = &mut Connection<C::Line>> {
        let all = self
            .connections
            .iter_mut()
            .map(|(_, connection)| connection);
        all.filter(|connection| !connection.is_closing)
    }

    /// There is something to do at once, although nothing comes in.
    pub fn has_more(&self) -> bool {
        !self.lost.is_empty() || self.has_grants()
    }

    /// Grants wait. What one of them gives may be what the next takes.
    pub fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Gives back what tables have room for beyond need.
    pub fn shrink(&mut self) {
        self.connections.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.by_tsih.shrink_to_fit();
        self.lost.shrink_to_fit();
        self.parties.sweep();
        self.grants.shrink_to_fit();
        if let Some(front) = &mut self.front {
            front.shrink();
        }
    }

    /// What is left although every session is over, as "so many of what".
    pub fn leftovers(&self) -> Vec<String> {
        let counts = [
            ("sessions by number", self.by_tsih.len()),
            ("sessions by name", self.by_id.len()),
            ("connections", self.connections.len()),
            ("receipts", self.receipts.len()),
            ("grants", self.grants.len()),
            ("bytes of output on the heap", self.output_heap),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let mut left: Vec<String> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if self.front.as_ref().is_some_and(|front| !front.is_idle()) {
            left.push("a front that is not idle".to_owned());
        }
        left
    }

    // ---- letters -----------------------------------------------------------------------------

    /// A letter has come.
    pub fn handle_letter(&mut self, engine: &mut Engine<C>, letter: FrontLetter<C::Line>) {
        match letter {
            FrontLetter::Adopt(adoption) => self.adopt(engine, *adoption),
            FrontLetter::EndSession { tsih } => match self.by_tsih.get(&tsih) {
                Some(&key) => {
                    self.end_session(engine, key, "another session of the same port begins");
                }
                None => {
                    let letter = FrontLetter::SessionEnded { tsih };
                    engine.carrier.post_letter(FRONT_CORE, letter);
                }
            },
            FrontLetter::EndDiscovery { tsih } => {
                if let Some(&key) = self.by_tsih.get(&tsih) {
                    self.end_session(engine, key, "displaced by other discovery sessions");
                }
            }
            FrontLetter::SessionEnded { tsih } => {
                if let Some(front) = &mut self.front {
                    front.handle_session_ended(tsih);
                }
            }
            FrontLetter::EndTarget { target } => self.end_target(engine, target),
        }
    }

    // ---- logins ------------------------------------------------------------------------------

    /// Does what the front wants done next. False when there is nothing.
    pub(super) fn carry_front(&mut self, engine: &mut Engine<C>) -> bool {
        let Some(front) = &mut self.front else {
            return false;
        };
        let Some(action) = front.poll_action() else {
            return false;
        };
        let wire = &mut engine.carrier;
        match action {
            Action::Receive(key) => {
                let how = Receive::Chunk {
                    limit_bytes: LOGIN_RECEIVE_BYTES,
                };
                if let Some(line) = front.line(key) {
                    wire.receive(line, LineKey::Login(key), how);
                }
            }
            Action::Send(key, message) => {
                if let Some(line) = front.line(key) {
                    wire.send(line, LineKey::Login(key), message, SendEnd::Wakes);
                }
            }
            Action::Shut(key) => {
                if let Some(line) = front.line(key) {
                    wire.shut(line);
                }
            }
            Action::Close(line) => wire.shut(&line),
            Action::Adopt { core, adoption } => {
                wire.post_letter(core, FrontLetter::Adopt(adoption));
            }
            Action::TurnAway {
                line,
                machine,
                status,
            } => turn_away(wire, line, *machine, status),
            Action::EndSession { core, tsih } => {
                wire.post_letter(core, FrontLetter::EndSession { tsih });
            }
            Action::EndDiscovery { core, tsih } => {
                wire.post_letter(core, FrontLetter::EndDiscovery { tsih });
            }
            Action::Failed {
                peer,
                initiator,
                target,
                failure,
            } => wire.report(Notice::LoginFailed {
                peer,
                initiator: initiator.as_deref(),
                target: target.as_deref(),
                failure: &failure,
            }),
            Action::Guessing { address, user } => wire.report(Notice::Guessing {
                address,
                user: &user,
            }),
            Action::Displaced => wire.report(Notice::Displaced),
        }
        true
    }

    /// The receive of a login has ended: with bytes, or with the end of the connection.
    pub fn handle_login_received(
        &mut self,
        engine: &Engine<C>,
        key: LoginKey,
        bytes: Option<&[u8]>,
        clock: SystemTime,
    ) {
        let times = (engine.now(), clock);
        let Some(front) = &mut self.front else {
            return;
        };
        match bytes {
            Some(bytes) => front.handle_bytes(key, bytes, engine.carrier.context(), times),
            None => front.handle_end(key),
        }
    }

    /// The send of a login has ended: all is sent, or the connection is of no use.
    pub fn handle_login_sent(
        &mut self,
        engine: &Engine<C>,
        key: LoginKey,
        is_sent: bool,
        clock: SystemTime,
    ) {
        if let Some(front) = &mut self.front {
            front.handle_sent(key, is_sent, (engine.now(), clock));
        }
    }

    // ---- the beginning of a session ----------------------------------------------------------

    /// A connection arrives at the core of its session, with its login not yet answered.
    fn adopt(&mut self, engine: &mut Engine<C>, adoption: Adoption<C::Line>) {
        let Adoption {
            mut line,
            mut machine,
            negotiated,
            unread,
            entry,
        } = adoption;
        let is_join = matches!(entry, Entry::Join { .. });
        let found = match entry {
            Entry::Found { placement, profile } => {
                Ok(self.found(engine, &negotiated, &placement, *profile))
            }
            Entry::Join { tsih } => self.joinable(engine, tsih, &negotiated),
        };
        let session = match found {
            Ok(session) => session,
            Err(status) => {
                sometimes!("a login is refused on the core of its session");
                turn_away(&mut engine.carrier, line, machine, status);
                return;
            }
        };
        let Some(SessionPort {
            session: protocol,
            detail,
            ..
        }) = engine.session(session).and_then(|entry| entry.port.iscsi())
        else {
            return;
        };
        line.enter(detail, &negotiated.connection, engine.carrier.context());
        let (exp_cmd_sn, max_cmd_sn) = protocol.window();
        machine.admit_reply(Ok::<_, LoginStatus>(Admission {
            tsih: detail.tsih,
            exp_cmd_sn,
            max_cmd_sn,
        }));
        let mut answer = Vec::new();
        while let Some(action) = machine.poll_action() {
            if let LoginAction::Send(pdu) = action {
                answer.extend_from_slice(&pdu.to_bytes(false, false));
            }
        }
        // Spec: RFC 7143 section 6.3.4; a CID in use is a connection its initiator has given up.
        let old = protocol.connection_by_cid(negotiated.cid);
        let old = old.and_then(|old| detail.connection(old));
        if is_join
            && let Some((entry, wire)) = engine.session_and_carrier(session)
            && let Some(port) = entry.port.iscsi()
        {
            wire.report(Notice::ConnectionJoins {
                session: &port.detail,
                ends: (line.peer(), line.portal()),
                cid: negotiated.cid.0,
                replaces: old.is_some(),
            });
        }
        // The new connection first: a session without any would be over.
        let Some(new) = self.connect(engine, session, line, &negotiated, &answer) else {
            return;
        };
        engine.carrier.report(Notice::LoginSucceeded);
        if let Some(old) = old {
            sometimes!("a connection is reinstated");
            self.reinstate_connection(engine, session, old);
        }
        self.feed_unread(engine, new, &unread);
    }

    /// Adds a connection to a session, with the last answer of its login to send.
    fn connect(
        &mut self,
        engine: &mut Engine<C>,
        session: SessionKey,
        line: C::Line,
        negotiated: &NegotiatedLogin,
        answer: &[u8],
    ) -> Option<ConnectionKey> {
        let now = engine.now();
        let port = engine.session_mut(session)?.port.iscsi_mut()?;
        let config = ConnectionConfig {
            cid: negotiated.cid,
            parameters: negotiated.connection,
            stat_sn: negotiated.next_stat_sn,
        };
        let index = port.session.add_connection(&config, now);
        port.session.push_login_answer(index, answer);
        let place = port.detail.shares.as_ref().map(Shares::count_connection);
        let digests = (
            config.parameters.header_digest,
            config.parameters.data_digest,
        );
        let connection = Connection::new(line, (session, index), (negotiated.cid, digests), place);
        let key = self.connections.insert(connection);
        let connections = &mut port.detail.connections;
        if connections.len() <= index {
            connections.resize(index + 1, None);
        }
        connections[index] = Some(key);
        engine.carrier.report(Notice::ConnectionOpens);
        engine.note_ready(session, Some(index));
        self.look_soon(engine, session);
        Some(key)
    }

    /// The session that a connection wants to join, if it may. The front knows who began it;
    /// here it may be ending, or full.
    fn joinable(
        &self,
        engine: &Engine<C>,
        tsih: Tsih,
        negotiated: &NegotiatedLogin,
    ) -> Result<SessionKey, LoginStatus> {
        let cid = negotiated.cid;
        let key = self.by_tsih.get(&tsih);
        let key = *key.ok_or(LoginStatus::SessionDoesNotExist)?;
        let entry = engine.session(key);
        let entry: &SessionEntry = entry.ok_or(LoginStatus::SessionDoesNotExist)?;
        let port = entry.port.iscsi();
        let SessionPort {
            session, detail, ..
        } = port.ok_or(LoginStatus::SessionDoesNotExist)?;
        let connections_max = usize::from(session.config().parameters.max_connections);
        let replaces = session.connection_by_cid(cid).is_some();
        if entry.is_ending() {
            Err(LoginStatus::SessionDoesNotExist)
        } else if detail.profile.user != negotiated.chap_user {
            Err(LoginStatus::AuthorizationFailure)
        } else if !replaces && session.connection_count() >= connections_max {
            Err(LoginStatus::TooManyConnections)
        } else if !replaces && !detail.shares.as_ref().is_none_or(Shares::may_connect) {
            Err(LoginStatus::OutOfResources)
        } else {
            Ok(key)
        }
    }

    /// Bytes that came behind the last login request are the first of the full-feature phase.
    fn feed_unread(&mut self, engine: &mut Engine<C>, key: ConnectionKey, unread: &[u8]) {
        if unread.is_empty() {
            self.receive(engine, key);
        } else if let Ok(mut buffer) = engine.pool().allocate_for(Need::GoOn, unread.len()) {
            buffer.copy_from_slice(unread);
            self.handle_bytes(engine, key, &Rc::new(buffer));
        } else {
            self.lose_connection(engine, key, "no memory for what came with the login");
        }
    }

    /// The old connection of a CID goes, with its tasks; the session lives on with the new one.
    fn reinstate_connection(
        &mut self,
        engine: &mut Engine<C>,
        session: SessionKey,
        old: ConnectionKey,
    ) {
        let Some(connection) = self.connections.get(old) else {
            return;
        };
        let port = engine.session(session).and_then(|entry| entry.port.iscsi());
        let Some(port) = port else {
            return;
        };
        let tasks = port.session.tasks_of_connection(connection.index);
        engine.abort_commands(session, names_of(tasks));
        self.close_connection(engine, old);
    }

    fn session_config(
        &self,
        negotiated: &NegotiatedLogin,
        profile: &SessionProfile,
        shares: Option<&Shares>,
    ) -> SessionConfig {
        let is_discovery = profile.target.is_none();
        let depth = self.settings.queue_depth;
        SessionConfig {
            is_discovery,
            parameters: negotiated.session.clone(),
            exp_cmd_sn: negotiated.cmd_sn,
            queue_depth: if is_discovery {
                depth.min(DISCOVERY_QUEUE_DEPTH)
            } else {
                depth
            },
            text: profile.text.clone(),
            nop_interval: self.settings.nop_interval,
            nop_timeout: self.settings.nop_timeout,
            hold: hold_limits(
                shares,
                profile.user.is_some(),
                &negotiated.session,
                self.settings.gap_timeout,
            ),
        }
    }

    /// A session begins.
    fn found(
        &mut self,
        engine: &mut Engine<C>,
        negotiated: &NegotiatedLogin,
        placement: &Placement,
        profile: SessionProfile,
    ) -> SessionKey {
        let config = self.session_config(negotiated, &profile, placement.shares.as_ref());
        let attention = if placement.was_reset {
            UnitAttention::TargetReset
        } else if placement.is_return {
            UnitAttention::NexusLoss
        } else {
            UnitAttention::PowerOnOrReset
        };
        let (name, luns) = (profile.port.clone(), profile.luns.clone());
        let holder = Holder::new(profile.user.as_deref(), profile.peer.ip());
        let now = engine.now();
        let discovery_ends = now.saturating_add(self.settings.discovery_lifetime);
        let detail = Detail {
            reinstatements: placement.reinstatements,
            shares: placement.shares.clone(),
            luns_held: placement.luns_held.clone(),
            ..Detail::new(placement.id, placement.tsih, profile, discovery_ends)
        };
        let notice = Notice::SessionBegins { session: &detail };
        engine.carrier.report(notice);
        let port = Port::Iscsi(SessionPort::new(Session::new(config), detail));
        let nexus = (placement.nexus, name);
        let pool = self.parties.account(holder, engine.pool());
        let key = engine.begin_session(port, pool, nexus, &luns, Some(attention));
        self.by_id.insert(placement.id, key);
        self.by_tsih.insert(placement.tsih, key);
        key
    }

    // ---- the end of a session ----------------------------------------------------------------

    /// Begins the end of a session: its lines close, its tasks end, then it is gone.
    pub(super) fn end_session(
        &mut self,
        engine: &mut Engine<C>,
        key: SessionKey,
        reason: &'static str,
    ) {
        let Some((entry, wire)) = engine.session_and_carrier(key) else {
            return;
        };
        let Some(SessionPort { detail, .. }) = entry.port.iscsi_mut() else {
            return;
        };
        let reason = detail.dismissal.map_or(reason, |(reason, _)| reason);
        if detail.end_reason.replace(reason).is_some() {
            sometimes!("a session ends a second time");
            return;
        }
        let connections = detail.open_connections();
        wire.report(Notice::SessionEnds {
            session: detail,
            reason,
        });
        engine.close_to_commands(key);
        for connection in connections {
            self.close_connection(engine, connection);
        }
        engine.end_session(key);
    }

    /// Ends all sessions.
    pub fn end_all(&mut self, engine: &mut Engine<C>, reason: &'static str) {
        for key in session_keys(engine) {
            self.end_session(engine, key, reason);
        }
    }

    /// Asks all initiators to log out within so many seconds, and takes no more logins.
    pub fn request_logouts(&mut self, engine: &mut Engine<C>, seconds: u16) {
        if let Some(front) = &mut self.front {
            front.close_all();
        }
        for key in session_keys(engine) {
            let entry = engine.session_mut(key);
            if let Some(port) = entry.and_then(|entry| entry.port.iscsi_mut()) {
                port.session.request_logout(seconds);
            }
            engine.note_ready(key, None);
        }
    }

    /// The sessions of a target end, with what is still to be said on them.
    fn end_target(&mut self, engine: &mut Engine<C>, target: TargetIndex) {
        if let Some(front) = &mut self.front {
            front.note_reset(target);
        }
        let of_target = |(key, entry): (SessionKey, &SessionEntry)| {
            let detail = &entry.port.iscsi()?.detail;
            (detail.profile.target == Some(target)).then(|| (key, detail.open_connections()))
        };
        let sessions: Vec<_> = engine.sessions().filter_map(of_target).collect();
        for (session, connections) in sessions {
            sometimes!("a session ends with its target");
            engine.close_to_commands(session);
            self.close_when_sent(connections);
            engine.note_ready(session, None);
        }
    }
}

/// All sessions of iSCSI on a core.
pub(super) fn session_keys<C: Wire>(engine: &Engine<C>) -> Vec<SessionKey> {
    let own = engine
        .sessions()
        .filter(|(_, entry)| entry.port.iscsi().is_some());
    own.map(|(key, _)| key).collect()
}

/// Says no at the very end of a login. The few bytes fit in the empty buffer of a socket; if they do
/// not, the initiator sees the connection end.
fn turn_away<C: Wire>(
    wire: &mut C,
    mut line: C::Line,
    mut machine: LoginTarget,
    status: LoginStatus,
) {
    machine.admit_reply(Err(status));
    let mut answer = Message::default();
    while let Some(action) = machine.poll_action() {
        match action {
            LoginAction::Send(pdu) => answer.push_bytes(&pdu.to_bytes(false, false)),
            LoginAction::Close(violation) => {
                let failure = LoginFailure::from(violation);
                wire.report(Notice::LoginFailed {
                    peer: line.peer(),
                    initiator: machine.initiator_name().map(|name| name.as_str()),
                    target: machine.target_name().map(|name| name.as_str()),
                    failure: &failure,
                });
            }
            // A login that was to be admitted asks for nothing more.
            LoginAction::Authorize(_) | LoginAction::Admit(_) | LoginAction::Complete(_) => {}
        }
    }
    line.note_sent(&answer);
    wire.send_last(line, &answer);
}
