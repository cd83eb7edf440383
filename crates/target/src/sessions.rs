//! Sessions on their core: from the end of a login to the last task.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Report, SessionKey, TargetIndex};
use front::iscsi::{
    Entry, LoginFailure, Placement, SessionPort, SessionProfile, hold_limits, management_of,
    outcome_of,
};
use iscsi::limits::DISCOVERY_QUEUE_DEPTH;
use iscsi::login::{Admission, LoginAction, LoginTarget, NegotiatedLogin};
use iscsi::pdu::{
    LoginStatus, LogoutResponseCode, TaskManagementFunction, TaskManagementResponse, Tsih,
};
use iscsi::target::{
    ConnectionConfig, Event, LogoutEvent, ManagementEvent, Session, SessionConfig,
};
use memory::{Message, Need};
use reactor::{Socket, net};
use scsi::UnitAttention;

use crate::FRONT_CORE;
use crate::core::Core;
use crate::letter::{Adoption, Letter};
use crate::lines::LineKind;
use crate::session::{Connection, ConnectionKey, Detail, SessionEntry};
use crate::trace::Taps;
use crate::watcher::{Happening, Who};

/// How long an answer in a discovery session may wait to be read.
const DISCOVERY_READ_TIMEOUT: Duration = Duration::from_secs(10);

impl Core {
    /// A connection arrives at the core of its session, with its login not yet answered.
    pub(crate) fn handle_adoption(&mut self, adoption: Adoption) {
        let Adoption {
            fd,
            mut machine,
            negotiated,
            portal,
            unread,
            mut taps,
            entry,
        } = adoption;
        let is_join = matches!(entry, Entry::Join { .. });
        let found = match entry {
            Entry::Found { placement, profile } => {
                Ok(self.found_session(&negotiated, &placement, *profile))
            }
            Entry::Join { tsih } => self.joinable_session(tsih, &negotiated),
        };
        let session = match found {
            Ok(session) => session,
            Err(status) => {
                self.turn_away(fd, machine, taps, status);
                return;
            }
        };
        let Some(entry) = self.engine.session_mut(session) else {
            return;
        };
        let port = &mut entry.port;
        taps.enter_session(&port.detail.traces, &negotiated.connection);
        let (exp_cmd_sn, max_cmd_sn) = port.session.window();
        let admission = Admission {
            tsih: port.detail.tsih,
            exp_cmd_sn,
            max_cmd_sn,
        };
        machine.admit_reply(Ok::<_, LoginStatus>(admission));
        let mut answer = Vec::new();
        while let Some(action) = machine.poll_action() {
            if let LoginAction::Send(pdu) = action {
                answer.extend_from_slice(&pdu.to_bytes(false, false));
            }
        }
        // Spec: RFC 7143 section 6.3.4; a CID in use is a connection its initiator has given up.
        let old = port.session.connection_by_cid(negotiated.cid);
        let old = old.and_then(|old| port.detail.connection(old));
        let Ok(socket) = Socket::new(fd) else {
            self.fail_login(whose(&taps, &machine), &LoginFailure::Socket);
            self.end_session(session, "the socket is of no use");
            return;
        };
        if is_join {
            self.note_join(session, &negotiated, (taps.peer(), portal), old.is_some());
        }
        // The new connection first: a session without any would be over.
        let Some(new) = self.connect(session, (socket, portal), taps, &negotiated, &answer) else {
            return;
        };
        self.login_log.succeed();
        if let Some(old) = old {
            self.reinstate_connection(session, old);
        }
        self.feed_unread(new, &unread);
    }

    /// Says no at the very end of a login. The few bytes fit in the empty buffer of the socket; if
    /// they do not, the initiator sees the connection end.
    pub(crate) fn turn_away(
        &mut self,
        fd: OwnedFd,
        mut machine: LoginTarget,
        mut taps: Taps,
        status: LoginStatus,
    ) {
        machine.admit_reply(Err(status));
        let mut answer = Message::default();
        while let Some(action) = machine.poll_action() {
            match action {
                LoginAction::Send(pdu) => answer.push_bytes(&pdu.to_bytes(false, false)),
                LoginAction::Close(violation) => {
                    self.fail_login(whose(&taps, &machine), &violation.into());
                }
                // A login that was to be admitted asks for nothing more.
                LoginAction::Authorize(_) | LoginAction::Admit(_) | LoginAction::Complete(_) => {}
            }
        }
        taps.send(&answer);
        if let Err(error) = net::send_now(&fd, &answer.to_vec()) {
            tracing::debug!(%error, "a refusal could not be sent");
        }
    }

    /// A login has failed for good: see [`LoginLog::fail`](crate::logins::LoginLog::fail).
    pub(crate) fn fail_login(
        &mut self,
        whose: (SocketAddr, Option<&str>, Option<&str>),
        failure: &LoginFailure,
    ) {
        let now = self.now();
        let watcher = &*self.engine.carrier.watcher;
        self.login_log.fail(watcher, now, whose, failure);
    }

    /// Adds a connection to a session, with the last answer of its login to send.
    fn connect(
        &mut self,
        session: SessionKey,
        (socket, portal): (Socket, SocketAddr),
        taps: Taps,
        negotiated: &NegotiatedLogin,
        answer: &[u8],
    ) -> Option<ConnectionKey> {
        let now = self.now();
        let port = &mut self.engine.session_mut(session)?.port;
        let config = ConnectionConfig {
            cid: negotiated.cid,
            parameters: negotiated.connection,
            stat_sn: negotiated.next_stat_sn,
        };
        let index = port.session.add_connection(&config, now);
        port.session.push_login_answer(index, answer);
        self.connection_count.fetch_add(1, Ordering::Relaxed);
        let key = self.connections.insert(Connection {
            socket,
            session,
            index,
            cid: negotiated.cid,
            portal,
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
            taps,
            spare: None,
        });
        let connections = &mut port.detail.connections;
        if connections.len() <= index {
            connections.resize(index + 1, None);
        }
        connections[index] = Some(key);
        self.engine.note_ready(session, Some(index));
        Some(key)
    }

    /// Logs and reports another connection of a session.
    fn note_join(
        &mut self,
        session: SessionKey,
        negotiated: &NegotiatedLogin,
        (peer, portal): (SocketAddr, SocketAddr),
        replaces: bool,
    ) {
        let Some(entry) = self.engine.session(session) else {
            return;
        };
        let detail = &entry.port.detail;
        let cid = negotiated.cid.0;
        let now = self.now();
        if self.line_limits.admit(LineKind::ConnectionJoins, now) {
            tracing::info!(
                initiator = %detail.profile.initiator_name,
                user = detail.profile.user.as_deref(),
                %peer,
                %portal,
                session = detail.id.0,
                cid,
                replaces,
                "connection joins a session"
            );
        }
        let who = Who {
            peer,
            ..detail.who()
        };
        self.engine
            .carrier
            .watcher
            .hear(&Happening::ConnectionJoined { who, cid, replaces });
    }

    /// The session that a connection wants to join, if it may. The front knows who began it;
    /// here it may be ending, or full.
    fn joinable_session(
        &self,
        tsih: Tsih,
        negotiated: &NegotiatedLogin,
    ) -> Result<SessionKey, LoginStatus> {
        let cid = negotiated.cid;
        let key = *self
            .by_tsih
            .get(&tsih)
            .ok_or(LoginStatus::SessionDoesNotExist)?;
        let entry = self.engine.session(key);
        let entry = entry.ok_or(LoginStatus::SessionDoesNotExist)?;
        let session = &entry.port.session;
        let connections_max = usize::from(session.config().parameters.max_connections);
        let replaces = session.connection_by_cid(cid).is_some();
        if entry.is_ending() {
            Err(LoginStatus::SessionDoesNotExist)
        } else if entry.port.detail.profile.user != negotiated.chap_user {
            Err(LoginStatus::AuthorizationFailure)
        } else if !replaces && session.connection_count() >= connections_max {
            Err(LoginStatus::TooManyConnections)
        } else {
            Ok(key)
        }
    }

    /// Bytes that came behind the last login request are the first of the full-feature phase.
    fn feed_unread(&mut self, key: ConnectionKey, unread: &[u8]) {
        if unread.is_empty() {
            self.receive(key);
        } else if let Ok(mut buffer) = self.engine.pool().allocate_for(Need::GoOn, unread.len()) {
            buffer.copy_from_slice(unread);
            self.handle_bytes(key, &Rc::new(buffer));
        } else {
            self.lose_connection(key, "no memory for what came with the login");
        }
    }

    /// The old connection of a CID goes, with its tasks; the session lives on with the new one.
    fn reinstate_connection(&mut self, session: SessionKey, old: ConnectionKey) {
        let Some(connection) = self.connections.get(old) else {
            return;
        };
        let Some(entry) = self.engine.session(session) else {
            return;
        };
        let tasks = entry.port.session.tasks_of_connection(connection.index);
        self.engine.abort_commands(session, tasks);
        self.close_connection(old);
    }

    fn session_config(
        &self,
        negotiated: &NegotiatedLogin,
        profile: &SessionProfile,
    ) -> SessionConfig {
        let is_discovery = profile.target.is_none();
        SessionConfig {
            is_discovery,
            parameters: negotiated.session.clone(),
            exp_cmd_sn: negotiated.cmd_sn,
            queue_depth: if is_discovery {
                self.settings.queue_depth.min(DISCOVERY_QUEUE_DEPTH)
            } else {
                self.settings.queue_depth
            },
            text: profile.text.clone(),
            nop_interval: self.settings.nop_interval,
            nop_timeout: self.settings.nop_timeout,
            hold: hold_limits(
                &self.settings.holding(),
                is_discovery,
                profile.user.is_some(),
                &negotiated.session,
            ),
        }
    }

    fn found_session(
        &mut self,
        negotiated: &NegotiatedLogin,
        placement: &Placement,
        profile: SessionProfile,
    ) -> SessionKey {
        let config = self.session_config(negotiated, &profile);
        let attention = if placement.was_reset {
            UnitAttention::TargetReset
        } else if placement.is_return {
            UnitAttention::NexusLoss
        } else {
            UnitAttention::PowerOnOrReset
        };
        let now = self.now();
        if self.line_limits.admit(LineKind::SessionBegins, now) {
            tracing::info!(
                initiator = %profile.initiator_name,
                peer = %profile.peer,
                session = placement.id.0,
                tsih = placement.tsih.0,
                core = self.index,
                discovery = config.is_discovery,
                "session begins"
            );
        }
        if self.engine.session_count() == 0 {
            self.next_tick = now;
        }
        let traces = self.traces_of(&profile.initiator_name);
        let (name, luns) = (profile.port.clone(), profile.luns.clone());
        let detail = Detail {
            id: placement.id,
            tsih: placement.tsih,
            profile,
            connections: Vec::new(),
            began: now,
            dismissal: None,
            end_reason: None,
            reinstatements: placement.reinstatements,
            digests: (
                negotiated.connection.header_digest,
                negotiated.connection.data_digest,
            ),
            receipts: Vec::new(),
            traces,
            violations: 0,
        };
        let who = detail.who();
        self.engine
            .carrier
            .watcher
            .hear(&Happening::SessionBegan { who });
        let port = SessionPort::new(Session::new(config), detail);
        let nexus = (placement.nexus, name);
        let key = self
            .engine
            .begin_session(port, nexus, &luns, Some(attention));
        self.by_id.insert(placement.id, key);
        self.by_tsih.insert(placement.tsih, key);
        key
    }

    /// Takes everything that happened in a session.
    pub(crate) fn handle_session_events(&mut self, key: SessionKey) {
        while let Some(entry) = self.engine.session_mut(key)
            && let Some(event) = entry.port.session.poll_event()
        {
            match event {
                Event::Command(id, command) => self.engine.handle_command(key, id, command),
                Event::DataOut(id, data) => self.engine.handle_data_out(key, id, data),
                Event::DataFault(id, fault) => {
                    self.engine.handle_data_fault(key, id, outcome_of(fault));
                }
                Event::TaskManagement(event) => self.handle_management(key, &event),
                Event::Logout(event) => self.handle_logout(key, event),
                Event::PeerSilent { connection } => {
                    self.lose_connection_of(key, connection, "no answer to a ping");
                }
                Event::Broken { connection } => {
                    let reason = "the initiator broke the protocol";
                    self.lose_connection_of(key, connection, reason);
                }
                Event::Violation { violation, .. } => self.note_violation(key, violation),
            }
        }
    }

    fn lose_connection_of(&mut self, key: SessionKey, index: usize, reason: &'static str) {
        let entry = self.engine.session(key);
        if let Some(connection) = entry.and_then(|entry| entry.port.detail.connection(index)) {
            self.lose_connection(connection, reason);
        }
    }

    /// A task management request.
    fn handle_management(&mut self, key: SessionKey, event: &ManagementEvent) {
        let now = self.now();
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        let SessionPort {
            session, detail, ..
        } = &mut entry.port;
        if self.line_limits.admit(LineKind::TaskManagement, now) {
            let (initiator, function) = (&detail.profile.initiator_name, event.function);
            tracing::info!(%initiator, ?function, lun = event.lun, "task management");
        }
        let target = detail.profile.target;
        let is_cold = event.function == TaskManagementFunction::TargetColdReset;
        let is_allowed = !is_cold || target.is_some_and(|one| self.cold_resets.are_allowed(one));
        let refusal = match management_of(session, event, target) {
            Some(request) if is_allowed => {
                self.engine.handle_management(key, event.id, request);
                return;
            }
            Some(_) => TaskManagementResponse::AuthorizationFailed,
            None => TaskManagementResponse::NotSupported,
        };
        session.respond_management(event.id, refusal);
        self.engine.note_ready(key, Some(event.id.connection));
    }

    /// A logout request: the tasks it concerns end first.
    fn handle_logout(&mut self, key: SessionKey, event: LogoutEvent) {
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        let session = &entry.port.session;
        let tasks = match event.closing {
            Some(connection) => session.tasks_of_connection(connection),
            None => session.tasks(),
        };
        if event.closing.is_none() {
            self.engine.close_to_commands(key);
        }
        self.engine.abort_before(key, tasks, event);
    }

    // ---- what has come to an end -------------------------------------------------------------

    pub(crate) fn handle_report(&mut self, report: Report<SessionPort<Detail>>) {
        match report {
            Report::Farewell {
                session,
                farewell,
                is_complete,
            } => self.answer_logout(session, farewell, is_complete),
            Report::SessionOver { session, .. } => self.forget_session(&session.port.detail),
            Report::TargetReset(target) => self.post_to_all(|| Letter::EndTarget { target }),
            Report::Flushed { unit, failure } => self.handle_flushed(unit, failure.as_ref()),
        }
    }

    fn answer_logout(&mut self, key: SessionKey, event: LogoutEvent, is_complete: bool) {
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        let code = if is_complete {
            LogoutResponseCode::Success
        } else {
            LogoutResponseCode::CleanupFailed
        };
        entry.port.session.respond_logout(event.id, code);
        self.close_after_output(key, event);
    }

    /// A session and its tasks are gone: it leaves the directory.
    fn forget_session(&mut self, detail: &Detail) {
        self.by_id.remove(&detail.id);
        self.by_tsih.remove(&detail.tsih);
        let tsih = detail.tsih;
        self.post(FRONT_CORE, Letter::SessionEnded { tsih });
    }

    /// The sessions of a target end, with what is still to be said on them.
    pub(crate) fn end_target(&mut self, target: TargetIndex) {
        if let Some(entrance) = self.entrance.as_mut() {
            entrance.front.note_reset(target);
        }
        let is_of_target = |(_, entry): &(SessionKey, &SessionEntry)| {
            entry.port.detail.profile.target == Some(target)
        };
        let sessions = self.engine.sessions().filter(is_of_target);
        let sessions: Vec<(SessionKey, Vec<ConnectionKey>)> = sessions
            .map(|(key, entry)| (key, entry.port.detail.open_connections()))
            .collect();
        for (session, connections) in sessions {
            self.engine.close_to_commands(session);
            self.close_when_sent(connections);
            self.engine.note_ready(session, None);
        }
    }

    /// These connections are closed when what they have to send is sent.
    pub(crate) fn close_when_sent(&mut self, connections: Vec<ConnectionKey>) {
        for key in connections {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.close_when_sent = true;
            }
        }
    }

    // ---- the end of a session ----------------------------------------------------------------

    /// Begins the end of a session: sockets close, tasks end, then it is gone.
    pub(crate) fn end_session(&mut self, key: SessionKey, reason: &'static str) {
        let now = self.now();
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        let detail = &mut entry.port.detail;
        let reason = detail.dismissal.map_or(reason, |(reason, _)| reason);
        if detail.end_reason.replace(reason).is_some() {
            return;
        }
        if self.line_limits.admit(LineKind::SessionEnds, now) {
            tracing::info!(
                initiator = %detail.profile.initiator_name,
                session = detail.id.0,
                violations = detail.violations,
                "session ends: {reason}"
            );
        }
        let connections = detail.open_connections();
        if let Some(entry) = self.engine.session(key) {
            let who = entry.port.detail.who();
            let watcher = &self.engine.carrier.watcher;
            watcher.hear(&Happening::SessionEnded { who, reason });
        }
        self.engine.close_to_commands(key);
        for connection in connections {
            self.close_connection(connection);
        }
        self.engine.end_session(key);
    }

    /// Ends discovery sessions that have lasted long enough, or whose answers nobody reads.
    pub(crate) fn end_old_discovery(&mut self, now: Duration) {
        let mut due = Vec::new();
        for (key, entry) in self.engine.sessions() {
            let detail = &entry.port.detail;
            if detail.profile.target.is_some() || entry.is_ending() {
                continue;
            }
            let connections = detail.connections.iter().copied().flatten();
            let is_unread = connections
                .filter_map(|key| self.connections.get(key))
                .any(|c| {
                    c.is_sending && now.saturating_sub(c.sending_since) >= DISCOVERY_READ_TIMEOUT
                });
            if now.saturating_sub(detail.began) >= self.settings.discovery_lifetime {
                due.push((key, "a discovery session lasts no longer"));
            } else if is_unread {
                due.push((key, "the initiator does not read its answers"));
            }
        }
        for (key, reason) in due {
            self.end_session(key, reason);
        }
    }
}

/// Whose login it was.
fn whose<'a>(
    taps: &Taps,
    machine: &'a LoginTarget,
) -> (SocketAddr, Option<&'a str>, Option<&'a str>) {
    let initiator = machine.initiator_name().map(|name| name.as_str());
    let target = machine.target_name().map(|name| name.as_str());
    (taps.peer(), initiator, target)
}
