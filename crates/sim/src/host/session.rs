//! Sessions on their core, from adoption to burial.

use std::rc::Rc;
use std::sync::Arc;

use engine::agree::ToOwner;
use iscsi::discovery::TextRecords;
use iscsi::login::LoginAction;
use iscsi::pdu::{Isid, LoginStatus, Tsih};
use iscsi::target::{
    Budget, ConnectionConfig, Event, HoldLimits, Receive, Session, SessionConfig, Violation,
};
use memory::{Buffer, Pool};
use scsi::reservation::canonical_transport_id;
use scsi::{Change, ChangeKind, Nexus, NexusId, NexusSlot, PortName, Principal, UnitAttention};

use super::core::{Core, Request, Then};
use super::{Adoption, Letter, admission};
use crate::network::Arrival;
use crate::sabotage::Sabotage;

/// What a session may hold of requests before their turn, in bytes: so little that it is often
/// reached.
const HELD_MAX_BYTES: usize = 8 * 1024;

/// A session.
#[derive(Debug)]
pub(super) struct SessionEntry {
    pub(super) session: Session,
    /// Its account of the core's pool.
    pub(super) pool: Pool,
    pub(super) nexus: NexusId,
    pub(super) port: PortName,
    pub(super) slot: NexusSlot,
    pub(super) is_ending: bool,
    is_buried_soon: bool,
}

impl SessionEntry {
    pub(super) fn nexus(&self) -> Nexus {
        Nexus {
            id: self.nexus,
            port: self.port.clone(),
            read_only: false,
        }
    }
}

/// A link in full-feature phase.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tsih: Tsih,
    pub(super) index: usize,
    pub(super) close_when_sent: bool,
    /// Where the next bytes go, once that was asked.
    receive: Option<Receive>,
}

/// How much one receive into a chunk takes, in bytes.
const CHUNK_BYTES: usize = 8192;

impl Core {
    pub(super) fn adopt(&mut self, adoption: Adoption) {
        let Adoption {
            mut connection,
            negotiated,
            tsih,
            nexus,
        } = adoption;
        let link = connection.link;
        self.outgoing.entry(link).or_default();
        if negotiated.tsih.is_none() && !self.sessions.contains_key(&tsih.0) {
            self.found(&negotiated, tsih, nexus);
        }
        let max = usize::from(self.settings.preferences.max_connections);
        let joined = self.sessions.get(&tsih.0).is_some_and(|entry| {
            let cid_is_free = entry.session.connection_by_cid(negotiated.cid).is_none();
            !entry.is_ending && cid_is_free && entry.session.connection_count() < max
        });
        let window = self
            .sessions
            .get(&tsih.0)
            .map(|entry| entry.session.window());
        match window.filter(|_| joined) {
            Some(window) => connection
                .login
                .admit_reply(Ok::<_, LoginStatus>(admission(tsih, window))),
            None => connection
                .login
                .admit_reply(Err(LoginStatus::CannotIncludeInSession)),
        }
        let mut answer = Vec::new();
        let mut is_complete = false;
        while let Some(action) = connection.login.poll_action() {
            match action {
                LoginAction::Send(pdu) => answer.extend(pdu.to_bytes(false, false)),
                LoginAction::Complete(_) => is_complete = true,
                LoginAction::Authorize(_) | LoginAction::Admit(_) | LoginAction::Close(_) => {}
            }
        }
        if let Some(outgoing) = self.outgoing.get_mut(&link) {
            outgoing.push_bytes(&answer);
        }
        let Some(entry) = self.sessions.get_mut(&tsih.0).filter(|_| is_complete) else {
            // The answer is lost with the link, as it may be in life.
            self.close_link(link);
            return;
        };
        let config = ConnectionConfig {
            cid: negotiated.cid,
            parameters: negotiated.connection,
            stat_sn: negotiated.next_stat_sn,
        };
        let index = entry.session.add_connection(&config, self.now);
        let state = Connection {
            tsih,
            index,
            close_when_sent: false,
            receive: None,
        };
        self.connections.insert(link, state);
        let unread = connection.buffer.into_unread();
        if !unread.is_empty() {
            self.arrive_at_session(link, Arrival::Bytes(unread));
        }
    }

    fn found(&mut self, negotiated: &iscsi::login::NegotiatedLogin, tsih: Tsih, nexus: NexusId) {
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
        let initiator = negotiated.initiator_name.to_string();
        let port = PortName {
            transport_id: transport_id(&initiator, negotiated.isid),
            target_port: 1,
            principal: Principal::Nobody,
        };
        let attached = Nexus {
            id: nexus,
            port: port.clone(),
            read_only: false,
        };
        let slot = self
            .view
            .attach(attached.clone(), Some(UnitAttention::PowerOnOrReset));
        let ticket = self.open_request(Request::Nobody);
        let change = Change {
            from: Some(attached),
            kind: ChangeKind::NexusAttached,
        };
        self.ask_owner(ToOwner::Change { ticket, change });
        self.sessions.insert(
            tsih.0,
            SessionEntry {
                session: Session::new(config),
                pool: self.pool.account(),
                nexus,
                port,
                slot,
                is_ending: false,
                is_buried_soon: false,
            },
        );
    }

    // ---- bytes -------------------------------------------------------------------------------

    pub(super) fn session_appetite(&mut self, link: usize) -> usize {
        let Some(connection) = self.connections.get_mut(&link) else {
            return 0;
        };
        let Some(entry) = self.sessions.get_mut(&connection.tsih.0) else {
            return 0;
        };
        let receive = connection
            .receive
            .take()
            .unwrap_or_else(|| entry.session.poll_receive(connection.index));
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
        let (tsih, index) = (connection.tsih, connection.index);
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
                self.give_back(tsih, index, buffer, bytes.len())
            }
            Some(Receive::Chunk { .. }) | None => {
                let chunk: Option<Rc<Buffer>> = self.chunk(&bytes);
                let entry = self.sessions.get_mut(&tsih.0);
                match (entry, chunk) {
                    (Some(entry), Some(chunk)) => {
                        entry
                            .session
                            .handle_chunk(index, &chunk, &entry.pool, self.now)
                    }
                    (_, _) => Ok(()),
                }
            }
        };
        self.handle_session_events(tsih);
        if outcome.is_err() || self.is_time_for(Sabotage::HangUp) {
            self.lose_connection(link);
        }
    }

    fn give_back(
        &mut self,
        tsih: Tsih,
        index: usize,
        buffer: Buffer,
        received: usize,
    ) -> Result<(), Violation> {
        match self.sessions.get_mut(&tsih.0) {
            Some(entry) => {
                let (pool, now) = (&entry.pool, self.now);
                entry
                    .session
                    .handle_exact(index, buffer, received, pool, now)
            }
            None => Ok(()),
        }
    }

    pub(super) fn handle_session_events(&mut self, tsih: Tsih) {
        while let Some(entry) = self.sessions.get_mut(&tsih.0)
            && let Some(event) = entry.session.poll_event()
        {
            match event {
                Event::Command(id, command) => self.handle_command(tsih, id, command),
                Event::DataOut(id, data) => self.handle_data_out(tsih, id, data),
                Event::DataFault(id, fault) => self.handle_data_fault(tsih, id, fault),
                Event::TaskManagement(event) => self.handle_management(tsih, event),
                Event::Logout(event) => self.handle_logout(tsih, event),
                Event::PeerSilent { connection } | Event::Broken { connection } => {
                    let is_it =
                        |state: &Connection| state.tsih == tsih && state.index == connection;
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

    // ---- the end -----------------------------------------------------------------------------

    /// At ErrorRecoveryLevel 0 a session goes with any of its connections.
    pub(super) fn lose_connection(&mut self, link: usize) {
        let Some(connection) = self.connections.get(&link) else {
            return;
        };
        let tsih = connection.tsih;
        self.close_connection(link);
        self.end_session(tsih);
    }

    pub(super) fn close_connection(&mut self, link: usize) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        self.close_link(link);
        let (tsih, index) = (connection.tsih, connection.index);
        if let Some(Receive::Exact { buffer, .. }) = connection.receive {
            // Nothing was received, and nothing can come of that.
            let given = self.give_back(tsih, index, buffer, 0);
            debug_assert!(given.is_ok(), "{given:?}");
        }
        if let Some(entry) = self.sessions.get_mut(&tsih.0) {
            entry.session.remove_connection(index);
            if entry.session.connection_count() == 0 {
                self.end_session(tsih);
            }
        }
    }

    pub(super) fn end_session_or_say_so(&mut self, tsih: Tsih) {
        if self.sessions.contains_key(&tsih.0) {
            self.end_session(tsih);
        } else {
            self.post(0, Letter::SessionEnded(tsih));
        }
    }

    fn end_session(&mut self, tsih: Tsih) {
        let Some(entry) = self.sessions.get_mut(&tsih.0) else {
            return;
        };
        if std::mem::replace(&mut entry.is_buried_soon, true) {
            return;
        }
        entry.is_ending = true;
        let tasks = entry.session.tasks();
        let links = self.connections.iter();
        let links = links.filter(|(_, state)| state.tsih == tsih);
        let links: Vec<usize> = links.map(|(&link, _)| link).collect();
        for link in links {
            self.close_connection(link);
        }
        let keys = tasks.into_iter().filter_map(|id| self.key_of(tsih, id));
        let keys: Vec<u64> = keys.collect();
        self.abort_tasks(&keys, Then::SessionEnd(tsih));
    }

    pub(super) fn bury_session(&mut self, tsih: Tsih) {
        let Some(entry) = self.sessions.remove(&tsih.0) else {
            return;
        };
        for running in self.tasks.values_mut() {
            running.is_forgotten |= running.tsih == tsih;
        }
        self.view.detach(entry.slot);
        let ticket = self.open_request(Request::Nobody);
        let change = Change {
            from: Some(entry.nexus()),
            kind: ChangeKind::NexusLost,
        };
        self.ask_owner(ToOwner::Change { ticket, change });
        self.post(0, Letter::SessionEnded(tsih));
    }
}

/// The TransportID of an initiator port, as SPC lays it out for this transport.
fn transport_id(initiator: &str, isid: Isid) -> Arc<[u8]> {
    let hex: String = isid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{initiator},i,0x{hex}");
    let additional = (text.len() + 1).next_multiple_of(4).max(20);
    let mut id = vec![0x45, 0x00];
    id.extend_from_slice(&u16::try_from(additional).unwrap_or(0).to_be_bytes());
    id.extend_from_slice(text.as_bytes());
    id.resize(4 + additional, 0);
    canonical_transport_id(&id).unwrap_or_else(|| id.into())
}
