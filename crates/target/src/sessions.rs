//! Sessions on their core: from the end of a login to the last task.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Ticket;
use iscsi::limits::DISCOVERY_QUEUE_DEPTH;
use iscsi::login::{Admission, LoginAction, LoginTarget, NegotiatedLogin};
use iscsi::pdu::{LoginStatus, Tsih};
use iscsi::target::{ConnectionConfig, Event, Session, SessionConfig};
use memory::{Message, Need};
use reactor::{Socket, net};
use scsi::{Change, ChangeKind, Nexus, UnitAttention};

use crate::FRONT_CORE;
use crate::core::Core;
use crate::counters::NO_SERIES;
use crate::directory::Placement;
use crate::letter::{Adoption, Entry, Letter};
use crate::lines::LineKind;
use crate::logins::LoginFailure;
use crate::plan::UnitIndex;
use crate::running::{Request, TaskKey, Then};
use crate::session::{
    Connection, ConnectionKey, LunMap, MappedLun, SessionEntry, SessionKey, SessionProfile,
};
use crate::trace::Taps;
use crate::unproved::hold_limits;
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
        let entry = &mut self.sessions[session];
        taps.enter_session(&entry.traces, &negotiated.connection);
        let (exp_cmd_sn, max_cmd_sn) = entry.session.window();
        let admission = Admission {
            tsih: entry.tsih,
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
        let old = entry.session.connection_by_cid(negotiated.cid);
        let old = old.and_then(|old| entry.connections.get(old).copied().flatten());
        let Ok(socket) = Socket::new(fd) else {
            self.fail_login((taps.peer(), &machine), &LoginFailure::Socket);
            self.end_session(session, "the socket is of no use");
            return;
        };
        if is_join {
            self.note_join(session, &negotiated, (taps.peer(), portal), old.is_some());
        }
        // The new connection first: a session without any would be over.
        let new = self.connect(session, (socket, portal), taps, &negotiated, &answer);
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
                    self.fail_login((taps.peer(), &machine), &violation.into());
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
    pub(crate) fn fail_login(&mut self, whose: (SocketAddr, &LoginTarget), failure: &LoginFailure) {
        let now = self.reactor.now();
        self.login_log.fail(&*self.watcher, now, whose, failure);
    }

    /// Adds a connection to a session, with the last answer of its login to send.
    fn connect(
        &mut self,
        session: SessionKey,
        (socket, portal): (Socket, SocketAddr),
        taps: Taps,
        negotiated: &NegotiatedLogin,
        answer: &[u8],
    ) -> ConnectionKey {
        let entry = &mut self.sessions[session];
        let config = ConnectionConfig {
            cid: negotiated.cid,
            parameters: negotiated.connection,
            stat_sn: negotiated.next_stat_sn,
        };
        let index = entry.session.add_connection(&config, self.reactor.now());
        entry.session.push_login_answer(index, answer);
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
        if entry.connections.len() <= index {
            entry.connections.resize(index + 1, None);
        }
        entry.connections[index] = Some(key);
        self.mark_dirty(session, index);
        key
    }

    /// Logs and reports another connection of a session.
    fn note_join(
        &mut self,
        session: SessionKey,
        negotiated: &NegotiatedLogin,
        (peer, portal): (SocketAddr, SocketAddr),
        replaces: bool,
    ) {
        let entry = &self.sessions[session];
        let cid = negotiated.cid.0;
        let now = self.reactor.now();
        if self.line_limits.admit(LineKind::ConnectionJoins, now) {
            tracing::info!(
                initiator = %entry.profile.initiator_name,
                user = entry.profile.user.as_deref(),
                %peer,
                %portal,
                session = entry.id.0,
                cid,
                replaces,
                "connection joins a session"
            );
        }
        let who = Who {
            peer,
            ..entry.who()
        };
        self.watcher
            .hear(&Happening::ConnectionJoined { who, cid, replaces });
    }

    /// The session that a connection wants to join, if it may. The front desk knows who began it;
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
        let entry = &self.sessions[key];
        let connections_max = usize::from(entry.session.config().parameters.max_connections);
        let replaces = entry.session.connection_by_cid(cid).is_some();
        if entry.is_ending {
            Err(LoginStatus::SessionDoesNotExist)
        } else if entry.profile.user != negotiated.chap_user {
            Err(LoginStatus::AuthorizationFailure)
        } else if !replaces && entry.session.connection_count() >= connections_max {
            Err(LoginStatus::TooManyConnections)
        } else {
            Ok(key)
        }
    }

    /// Bytes that came behind the last login request are the first of the full-feature phase.
    fn feed_unread(&mut self, key: ConnectionKey, unread: &[u8]) {
        if unread.is_empty() {
            self.receive(key);
        } else if let Ok(mut buffer) = self.pool.allocate_for(Need::GoOn, unread.len()) {
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
        let entry = &self.sessions[session];
        let tasks = entry.session.tasks_of_connection(connection.index);
        let keys: Vec<TaskKey> = tasks
            .into_iter()
            .filter_map(|task| entry.task_key(task))
            .collect();
        for key in keys {
            self.abort_unheard(key);
        }
        self.close_connection(old);
    }

    fn found_session(
        &mut self,
        negotiated: &NegotiatedLogin,
        placement: &Placement,
        profile: SessionProfile,
    ) -> SessionKey {
        let is_discovery = profile.target.is_none();
        let config = SessionConfig {
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
                &self.settings,
                is_discovery,
                profile.user.is_some(),
                &negotiated.session,
            ),
        };
        let mut session = Session::new(config);
        if self.is_short_of_memory {
            session.set_queue_limit(1);
        }
        let mut luns = LunMap::default();
        let attention = if placement.was_reset {
            UnitAttention::TargetReset
        } else if placement.is_return {
            UnitAttention::NexusLoss
        } else {
            UnitAttention::PowerOnOrReset
        };
        for visible in &profile.luns {
            let Some(unit) = self.units.get_mut(visible.unit) else {
                continue;
            };
            let nexus = Nexus {
                id: placement.nexus,
                port: profile.port.clone(),
                read_only: visible.read_only,
            };
            let slot = unit.view.attach(nexus, Some(attention));
            luns.insert(
                visible.lun,
                MappedLun {
                    unit: visible.unit,
                    nexus: slot,
                    series: NO_SERIES,
                },
            );
        }
        let now = self.reactor.now();
        if self.line_limits.admit(LineKind::SessionBegins, now) {
            tracing::info!(
                initiator = %profile.initiator_name,
                peer = %profile.peer,
                session = placement.id.0,
                tsih = placement.tsih.0,
                core = self.index,
                discovery = is_discovery,
                "session begins"
            );
        }
        if self.sessions.is_empty() {
            self.next_tick = self.reactor.now();
        }
        let traces = self.traces_of(&profile.initiator_name);
        let key = self.sessions.insert(SessionEntry {
            session,
            id: placement.id,
            tsih: placement.tsih,
            nexus: placement.nexus,
            profile,
            luns,
            pool: self.pool.account(),
            waiting: VecDeque::new(),
            is_sharing: false,
            tasks: Vec::new(),
            connections: Vec::new(),
            began: self.reactor.now(),
            is_ending: false,
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
        });
        self.by_id.insert(placement.id, key);
        self.by_tsih.insert(placement.tsih, key);
        let who = self.sessions[key].who();
        self.watcher.hear(&Happening::SessionBegan { who });
        let units: Vec<UnitIndex> = self.sessions[key]
            .luns
            .iter()
            .map(|mapped| mapped.unit)
            .collect();
        for unit in units {
            let from = Some(self.sessions[key].nexus());
            self.ask_change(
                unit,
                Ticket::NOBODY,
                Change {
                    from,
                    kind: ChangeKind::NexusAttached,
                },
            );
        }
        key
    }

    /// Takes everything that happened in a session.
    pub(crate) fn handle_session_events(&mut self, key: SessionKey) {
        while let Some(entry) = self.sessions.get_mut(key)
            && let Some(event) = entry.session.poll_event()
        {
            match event {
                Event::Command(id, command) => self.handle_command(key, id, command),
                Event::DataOut(id, data) => self.handle_data_out(key, id, data),
                Event::DataFault(id, fault) => self.handle_data_fault(key, id, fault),
                Event::TaskManagement(event) => self.handle_management(key, event),
                Event::Logout(event) => self.handle_logout(key, event),
                Event::PeerSilent { connection } => {
                    let connections = &self.sessions[key].connections;
                    if let Some(connection) = connections.get(connection).copied().flatten() {
                        self.lose_connection(connection, "no answer to a ping");
                    }
                }
                Event::Broken { connection } => {
                    let connections = &self.sessions[key].connections;
                    if let Some(connection) = connections.get(connection).copied().flatten() {
                        self.lose_connection(connection, "the initiator broke the protocol");
                    }
                }
                Event::Violation { violation, .. } => self.note_violation(key, violation),
            }
        }
    }

    /// Begins the end of a session: sockets close, tasks end, then it is gone.
    pub(crate) fn end_session(&mut self, key: SessionKey, reason: &'static str) {
        let Some(entry) = self.sessions.get_mut(key) else {
            return;
        };
        let reason = entry.dismissal.map_or(reason, |(reason, _)| reason);
        if entry.end_reason.replace(reason).is_some() {
            return;
        }
        entry.is_ending = true;
        let now = self.reactor.now();
        if self.line_limits.admit(LineKind::SessionEnds, now) {
            tracing::info!(
                initiator = %entry.profile.initiator_name,
                session = entry.id.0,
                violations = entry.violations,
                "session ends: {reason}"
            );
        }
        let who = entry.who();
        self.watcher.hear(&Happening::SessionEnded { who, reason });
        let connections: Vec<ConnectionKey> = entry.connections.iter().copied().flatten().collect();
        let tasks = entry.session.tasks();
        let tasks: Vec<TaskKey> = tasks
            .into_iter()
            .filter_map(|task| entry.task_key(task))
            .collect();
        for connection in connections {
            self.close_connection(connection);
        }
        self.abort_tasks(&tasks, Then::SessionEnd { session: key });
    }

    /// Ends discovery sessions that have lasted long enough, or whose answers nobody reads.
    pub(crate) fn end_old_discovery(&mut self, now: Duration) {
        let mut due = Vec::new();
        for (key, entry) in self.sessions.iter() {
            if entry.profile.target.is_some() || entry.is_ending {
                continue;
            }
            let connections = entry.connections.iter().copied().flatten();
            let is_unread = connections
                .filter_map(|key| self.connections.get(key))
                .any(|c| {
                    c.is_sending && now.saturating_sub(c.sending_since) >= DISCOVERY_READ_TIMEOUT
                });
            if now.saturating_sub(entry.began) >= self.settings.discovery_lifetime {
                due.push((key, "a discovery session lasts no longer"));
            } else if is_unread {
                due.push((key, "the initiator does not read its answers"));
            }
        }
        for (key, reason) in due {
            self.end_session(key, reason);
        }
    }

    /// The tasks of a session have ended, or are given up: it leaves the units and the directory.
    pub(crate) fn bury_session(&mut self, key: SessionKey) {
        let Some(mut entry) = self.sessions.remove(key) else {
            debug_assert!(false, "a session that is gone is buried");
            return;
        };
        self.by_id.remove(&entry.id);
        self.by_tsih.remove(&entry.tsih);
        self.forget_session(key, std::mem::take(&mut entry.tasks));
        for mapped in entry.luns.iter() {
            let unit = mapped.unit;
            self.units[unit].view.detach(mapped.nexus);
            let change = Change {
                from: Some(entry.nexus()),
                kind: ChangeKind::NexusLost,
            };
            self.ask_change(unit, Ticket::NOBODY, change);
        }
        self.post(FRONT_CORE, Letter::SessionEnded { tsih: entry.tsih });
    }

    /// Its place in the table may be used again: nothing may refer to it any more.
    fn forget_session(&mut self, key: SessionKey, tasks: Vec<Option<TaskKey>>) {
        for task in tasks.into_iter().flatten() {
            if let Some(running) = self.tasks.get_mut(task) {
                running.session = None;
            }
        }
        for (_, wait) in self.waits.iter_mut() {
            match wait.then {
                Then::Management { session, .. } | Then::Logout { session, .. }
                    if session == key =>
                {
                    wait.then = Then::Nothing;
                }
                Then::Management { .. }
                | Then::Logout { .. }
                | Then::Installed { .. }
                | Then::SessionEnd { .. }
                | Then::Drained { .. }
                | Then::Left { .. }
                | Then::Narrowed { .. }
                | Then::Nothing => {}
            }
        }
        for (_, request) in self.requests.iter_mut() {
            match request {
                Request::Management { session, .. } if *session == Some(key) => *session = None,
                Request::Management { .. }
                | Request::Task(_)
                | Request::Fence { .. }
                | Request::Refusal { .. }
                | Request::Administrator { .. }
                | Request::Nobody => {}
            }
        }
        self.starved_sessions.retain(|&session| session != key);
        self.sharing.retain(|&session| session != key);
    }
}
