//! Sessions on their core, from adoption to burial.

use std::rc::Rc;
use std::sync::Arc;

use engine::{Report, SessionKey};
use front::iscsi::{
    Adoption, Entry, Placement, SessionPort, SessionProfile, management_of, outcome_of,
};
use iscsi::discovery::TextRecords;
use iscsi::login::{LoginAction, NegotiatedLogin};
use iscsi::pdu::{LoginStatus, LogoutResponseCode, TaskManagementResponse, Tsih};
use iscsi::target::{
    Budget, ConnectionConfig, Event, HoldLimits, LogoutEvent, ManagementEvent, Receive, Session,
    SessionConfig, Violation,
};
use memory::Buffer;
use scsi::UnitAttention;

use super::core::Core;
use super::login::LoginLine;
use super::{Letter, Outgoing, admission};
use crate::network::Arrival;
use crate::sabotage::Sabotage;

/// What a session may hold of requests before their turn, in bytes: so little that it is often
/// reached.
const HELD_MAX_BYTES: usize = 8 * 1024;

/// What this host keeps beside a session.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) tsih: Tsih,
    is_buried_soon: bool,
}

/// A link in full-feature phase.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: SessionKey,
    pub(super) index: usize,
    pub(super) close_when_sent: bool,
    /// Where the next bytes go, once that was asked.
    receive: Option<Receive>,
}

/// How much one receive into a chunk takes, in bytes.
const CHUNK_BYTES: usize = 8192;

impl Core {
    pub(super) fn adopt(&mut self, adoption: Adoption<LoginLine>) {
        let Adoption {
            line: LoginLine(link),
            mut machine,
            negotiated,
            unread,
            entry,
        } = adoption;
        self.outgoing.entry(link).or_default();
        let tsih = match entry {
            Entry::Found { placement, profile } => {
                self.found(&negotiated, &placement, &profile);
                placement.tsih
            }
            Entry::Join { tsih } => tsih,
        };
        let max = usize::from(self.settings.preferences.max_connections);
        let key = self.by_tsih.get(&tsih.0).copied();
        let session = key.and_then(|key| self.engine.session(key));
        let window = session.and_then(|entry| {
            let session = &entry.port.session;
            let cid_is_free = session.connection_by_cid(negotiated.cid).is_none();
            let joins = !entry.is_ending() && cid_is_free && session.connection_count() < max;
            joins.then(|| session.window())
        });
        machine.admit_reply(match window {
            Some(window) => Ok::<_, LoginStatus>(admission(tsih, window)),
            None => Err(LoginStatus::CannotIncludeInSession),
        });
        let mut answer = Vec::new();
        let mut is_complete = false;
        while let Some(action) = machine.poll_action() {
            match action {
                LoginAction::Send(pdu) => answer.extend(pdu.to_bytes(false, false)),
                LoginAction::Complete(_) => is_complete = true,
                LoginAction::Authorize(_) | LoginAction::Admit(_) | LoginAction::Close(_) => {}
            }
        }
        if let Some(outgoing) = self.outgoing.get_mut(&link) {
            outgoing.push_bytes(&answer);
        }
        let Some(key) = key.filter(|_| is_complete) else {
            // The answer is lost with the link, as it may be in life.
            self.close_link(link);
            return;
        };
        let config = ConnectionConfig {
            cid: negotiated.cid,
            parameters: negotiated.connection,
            stat_sn: negotiated.next_stat_sn,
        };
        let (now, answers) = (self.now, self.outgoing.get(&link).map_or(0, Outgoing::len));
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        entry.port.sending_bytes += answers;
        let state = Connection {
            session: key,
            index: entry.port.session.add_connection(&config, now),
            close_when_sent: false,
            receive: None,
        };
        self.connections.insert(link, state);
        if !unread.is_empty() {
            self.arrive_at_session(link, Arrival::Bytes(unread));
        }
    }

    fn found(
        &mut self,
        negotiated: &NegotiatedLogin,
        placement: &Placement,
        profile: &SessionProfile,
    ) {
        let config = SessionConfig {
            is_discovery: false,
            parameters: negotiated.session.clone(),
            exp_cmd_sn: negotiated.cmd_sn,
            queue_depth: self.settings.queue_depth,
            text: TextRecords::default(),
            nop_interval: Some(self.settings.nop_interval),
            nop_timeout: self.settings.nop_timeout,
            hold: HoldLimits {
                budget: Arc::new(Budget::new(HELD_MAX_BYTES)),
                session_max_bytes: HELD_MAX_BYTES,
                ..HoldLimits::default()
            },
        };
        let detail = Detail {
            tsih: placement.tsih,
            is_buried_soon: false,
        };
        let port = SessionPort::new(Session::new(config), detail);
        let nexus = (placement.nexus, profile.port.clone());
        let attention = Some(UnitAttention::PowerOnOrReset);
        let engine = &mut self.engine;
        let key = engine.begin_session(port, nexus, &profile.luns, attention);
        self.by_tsih.insert(placement.tsih.0, key);
    }

    /// The protocol of a session.
    fn session(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.engine
            .session_mut(key)
            .map(|one| &mut one.port.session)
    }

    // ---- bytes -------------------------------------------------------------------------------

    pub(super) fn session_appetite(&mut self, link: usize) -> usize {
        let Some(connection) = self.connections.get_mut(&link) else {
            return 0;
        };
        let Some(entry) = self.engine.session_mut(connection.session) else {
            return 0;
        };
        let receive = connection
            .receive
            .take()
            .unwrap_or_else(|| entry.port.session.poll_receive(connection.index));
        let appetite = match &receive {
            Receive::Chunk { limit_bytes } => CHUNK_BYTES.min(*limit_bytes),
            Receive::Exact { range, .. } => range.len(),
        };
        connection.receive = Some(receive);
        appetite
    }

    pub(super) fn arrive_at_session(&mut self, link: usize, arrival: Arrival) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        let receive = connection.receive.take();
        let (key, index) = (connection.session, connection.index);
        let bytes = match arrival {
            Arrival::Bytes(bytes) => bytes,
            Arrival::End | Arrival::Reset => {
                self.lose_connection(link);
                return;
            }
        };
        let outcome = match receive {
            Some(Receive::Exact { mut buffer, range }) => {
                buffer[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
                self.give_back(key, index, buffer, bytes.len())
            }
            Some(Receive::Chunk { .. }) | None => {
                let chunk: Option<Rc<Buffer>> = self.chunk(&bytes);
                let entry = self.engine.session_mut(key);
                match (entry, chunk) {
                    (Some(entry), Some(chunk)) => {
                        let (port, pool) = entry.port_and_pool();
                        port.session.handle_chunk(index, &chunk, pool, self.now)
                    }
                    (_, _) => Ok(()),
                }
            }
        };
        self.handle_session_events(key);
        self.engine.note_starving(key);
        if outcome.is_err() || self.is_time_for(Sabotage::HangUp) {
            self.lose_connection(link);
        }
    }

    fn give_back(
        &mut self,
        key: SessionKey,
        index: usize,
        buffer: Buffer,
        received: usize,
    ) -> Result<(), Violation> {
        let now = self.now;
        self.engine.session_mut(key).map_or(Ok(()), |entry| {
            let (port, pool) = entry.port_and_pool();
            port.session
                .handle_exact(index, buffer, received, pool, now)
        })
    }

    pub(super) fn handle_session_events(&mut self, key: SessionKey) {
        while let Some(event) = self.session(key).and_then(Session::poll_event) {
            match event {
                Event::Command(id, _) if self.is_time_for(Sabotage::ForgetAnswers) => {
                    if let Some(session) = self.session(key) {
                        session.abandon(id);
                    }
                }
                Event::Command(id, command) => self.engine.handle_command(key, id, command),
                Event::DataOut(id, data) => self.engine.handle_data_out(key, id, data),
                Event::DataFault(id, fault) => {
                    self.engine.handle_data_fault(key, id, outcome_of(fault));
                }
                Event::TaskManagement(event) => self.handle_management(key, &event),
                Event::Logout(event) => self.handle_logout(key, event),
                Event::PeerSilent { connection } | Event::Broken { connection } => {
                    let is_it =
                        |state: &Connection| state.session == key && state.index == connection;
                    let mut links = self.connections.iter();
                    let silent = links.find(|(_, state)| is_it(state)).map(|(&link, _)| link);
                    if let Some(link) = silent {
                        self.lose_connection(link);
                    }
                }
                Event::Violation { .. } => {}
            }
        }
    }

    fn handle_management(&mut self, key: SessionKey, event: &ManagementEvent) {
        let Some(session) = self.session(key) else {
            return;
        };
        match management_of(session, event, None) {
            Some(request) => self.engine.handle_management(key, event.id, request),
            None => session.respond_management(event.id, TaskManagementResponse::NotSupported),
        }
    }

    fn handle_logout(&mut self, key: SessionKey, event: LogoutEvent) {
        let Some(session) = self.session(key) else {
            return;
        };
        let tasks = match event.closing {
            Some(connection) => session.tasks_of_connection(connection),
            None => session.tasks(),
        };
        if event.closing.is_none() {
            self.engine.close_to_commands(key);
        }
        self.engine.abort_before(key, tasks, event);
    }

    // ---- the end -----------------------------------------------------------------------------

    pub(super) fn handle_report(&mut self, report: Report<SessionPort<Detail>>) {
        match report {
            Report::Farewell {
                session,
                farewell,
                is_complete,
            } => self.answer_logout(session, farewell, is_complete),
            Report::SessionOver { session, left, .. } => {
                let tsih = session.port.detail.tsih;
                self.by_tsih.remove(&tsih.0);
                self.note_left(tsih, left);
                self.post(0, Letter::SessionEnded(tsih));
            }
            // No target is reset cold here, and nothing stops.
            Report::TargetReset(_) | Report::Flushed { .. } => {
                debug_assert!(false, "{report:?}");
            }
        }
    }

    fn answer_logout(&mut self, key: SessionKey, event: LogoutEvent, is_complete: bool) {
        let Some(session) = self.session(key) else {
            return;
        };
        let code = if is_complete {
            LogoutResponseCode::Success
        } else {
            LogoutResponseCode::CleanupFailed
        };
        session.respond_logout(event.id, code);
        let answered = event.id.connection;
        let mut others = Vec::new();
        for (&link, connection) in &mut self.connections {
            let is_meant = event.closing.is_none_or(|index| index == connection.index);
            if connection.session != key || !is_meant {
                continue;
            }
            if connection.index == answered {
                connection.close_when_sent = true;
            } else {
                others.push(link);
            }
        }
        for link in others {
            self.close_connection(link);
        }
    }

    /// At ErrorRecoveryLevel 0 a session goes with any of its connections.
    pub(super) fn lose_connection(&mut self, link: usize) {
        let Some(connection) = self.connections.get(&link) else {
            return;
        };
        let key = connection.session;
        self.close_connection(link);
        self.end_session(key);
    }

    pub(super) fn close_connection(&mut self, link: usize) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        let unsent = self.outgoing.get(&link).map_or(0, Outgoing::len);
        self.close_link(link);
        let (key, index) = (connection.session, connection.index);
        if let Some(Receive::Exact { buffer, .. }) = connection.receive {
            // Nothing was received, and nothing can come of that.
            let given = self.give_back(key, index, buffer, 0);
            debug_assert!(given.is_ok(), "{given:?}");
        }
        if let Some(entry) = self.engine.session_mut(key) {
            entry.port.sending_bytes -= unsent;
            entry.port.session.remove_connection(index);
            if entry.port.session.connection_count() == 0 {
                self.end_session(key);
            }
        }
    }

    pub(super) fn end_session_or_say_so(&mut self, tsih: Tsih) {
        match self.by_tsih.get(&tsih.0) {
            Some(&key) => self.end_session(key),
            None => self.post(0, Letter::SessionEnded(tsih)),
        }
    }

    fn end_session(&mut self, key: SessionKey) {
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        if std::mem::replace(&mut entry.port.detail.is_buried_soon, true) {
            return;
        }
        let links = self.connections.iter();
        let links = links.filter(|(_, state)| state.session == key);
        let links: Vec<usize> = links.map(|(&link, _)| link).collect();
        for link in links {
            self.close_connection(link);
        }
        self.engine.end_session(key);
    }
}
