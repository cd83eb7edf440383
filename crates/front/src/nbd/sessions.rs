//! The sessions of NBD on one core.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::deadlines::Moment;
use engine::table::Table;
use engine::{Engine, SessionKey};
use memory::{Crowd, Message, Party, Pool};
use scsi::{PortName, Principal};

use super::adoption::Adoption;
use super::front::{Front, FrontSettings};
use super::keys::{ConnectionKey, HandshakeKey, OfConnection};
use super::session::{SessionPort, transport_id};
use super::source::Source;
use super::tls::{Sealing, Tls};
use super::wire::{Letter, Line, Notice, Wire};
use crate::identity::SessionId;
use crate::iscsi::{ConnectionPlace, FRONT_CORE, Front as IscsiFront, Line as IscsiLine, origin};
use crate::others::Others;
use crate::port::Port;
use crate::report::{SessionReport, TransportDetails};

/// The relative target port of all clients: none that SCSI initiators could name.
const NO_TARGET_PORT: u16 = 0;

/// Sizes of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Requests of one session under way.
    pub queue_depth: u32,
}

/// The connection of a session; it may be there a little longer.
#[derive(Debug)]
pub(super) struct Connection<L> {
    pub(super) line: L,
    pub(super) session: SessionKey,
    pub(super) is_receiving: bool,
    pub(super) is_sending: bool,
    /// The turn in which that began last.
    pub(super) sending_since: Duration,
    /// So many bytes are being received straight into a buffer.
    pub(super) lent_bytes: Option<usize>,
    /// The part of a write whose data is awaited over TLS.
    pub(super) part: Option<u64>,
    /// The turn in which either began last.
    pub(super) lent_since: Duration,
    /// What all goes through.
    pub(super) tls: Option<Tls>,
    /// What is being sent over that.
    pub(super) sealing: Option<Sealing>,
    /// It is in the list of connections with output.
    pub(super) is_dirty: bool,
    /// No more is received; the line goes when what is under way on it has ended.
    pub(super) is_closing: bool,
    /// An emptied message, kept for its room.
    pub(super) spare: Option<Message>,
    /// By it the connection counts for its address.
    _place: ConnectionPlace,
}

/// The sessions of NBD on one core.
#[derive(Debug)]
pub struct Sessions<C: Wire> {
    settings: SessionSettings,
    by_id: HashMap<SessionId, SessionKey>,
    pub(super) connections: Table<Connection<C::NbdLine>, OfConnection>,
    /// Those who wait for the end of a session.
    receipts: HashMap<SessionId, Vec<C::Receipt>>,
    /// Connections with output that is not being sent, or commands to be given.
    pub(super) dirty: Vec<ConnectionKey>,
    /// All clients hold data in this part of the core's memory.
    crowd: Option<Crowd>,
    /// They share it by where they come from; how many sessions are from there.
    parties: HashMap<IpAddr, (Party, usize)>,
    /// All requests are refused, also in sessions that come now.
    is_stopping: bool,
    /// Handshakes; one core has them.
    pub front: Option<Front<C::NbdLine>>,
}

impl<C: Wire> Sessions<C> {
    /// No session yet.
    pub fn new(settings: SessionSettings, front: Option<Front<C::NbdLine>>) -> Self {
        Self {
            settings,
            by_id: HashMap::new(),
            connections: Table::default(),
            receipts: HashMap::new(),
            dirty: Vec::new(),
            crowd: None,
            parties: HashMap::new(),
            is_stopping: false,
            front,
        }
    }

    /// Sizes of sessions that begin from now on, and limits of handshakes, if they are here.
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

    /// How many handshakes are under way.
    pub fn handshakes(&self) -> usize {
        self.front.as_ref().map_or(0, Front::handshakes)
    }

    /// No connection is left, not even one that only waits for what is under way on it.
    pub fn is_quiet(&self) -> bool {
        self.connections.is_empty()
    }

    /// Gives back what tables have room for beyond need.
    pub fn shrink(&mut self) {
        self.connections.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.parties.shrink_to_fit();
        if let Some(front) = &mut self.front {
            front.shrink();
        }
    }

    /// A letter has come.
    pub fn handle_letter(
        &mut self,
        engine: &mut Engine<C>,
        letter: Letter<C::NbdLine>,
        places: Option<&mut IscsiFront<impl IscsiLine>>,
    ) {
        match letter {
            Letter::Adopt(adoption) => self.adopt(engine, *adoption),
            Letter::SessionEnded(id) => {
                if let (Some(front), Some(places)) = (&mut self.front, places) {
                    front.handle_session_ended(id, places);
                }
            }
        }
    }

    fn adopt(&mut self, engine: &mut Engine<C>, adoption: Adoption<C::NbdLine>) {
        let Adoption {
            line,
            tls,
            detail,
            terms,
            takes_at_once,
            nexus,
            unread,
        } = adoption;
        let (id, lun) = (detail.id, detail.lun);
        let name = PortName {
            transport_id: transport_id(line.peer().ip()),
            target_port: NO_TARGET_PORT,
            principal: Principal::Nobody,
        };
        engine
            .carrier
            .report(Notice::SessionBegins { session: &detail });
        let place = detail.shares.count_connection();
        let pool = self.account(engine, detail.peer.ip());
        let unit = (terms.block_min_bytes, takes_at_once);
        let mut port = SessionPort::new(detail, terms, unit, self.settings.queue_depth);
        port.hold(&unread);
        if self.is_stopping {
            port.stop();
        }
        // The protocol has no unit attentions, so there is none to begin with.
        let session = engine.begin_session(Port::Nbd(port), pool, (nexus, name), &[lun], None);
        let key = self.connections.insert(Connection {
            line,
            session,
            is_receiving: false,
            is_sending: false,
            sending_since: Duration::ZERO,
            lent_bytes: None,
            part: None,
            lent_since: Duration::ZERO,
            tls,
            sealing: None,
            is_dirty: false,
            is_closing: false,
            spare: None,
            _place: place,
        });
        if let Some(port) = nbd_port(engine, session) {
            port.connection = Some(key);
        }
        self.by_id.insert(id, session);
        self.carry_on(engine, key, Source::NOTHING);
    }

    /// An account for a client from there.
    fn account(&mut self, engine: &Engine<C>, address: IpAddr) -> Pool {
        let crowd = self.crowd.get_or_insert_with(|| engine.pool().crowd());
        let party = self.parties.entry(origin(address));
        let (party, sessions) = party.or_insert_with(|| (crowd.party(), 0));
        *sessions = sessions.saturating_add(1);
        party.account()
    }

    /// One session from there is gone.
    fn leave_party(&mut self, address: IpAddr) {
        if let Entry::Occupied(mut party) = self.parties.entry(origin(address)) {
            let sessions = &mut party.get_mut().1;
            debug_assert!(*sessions > 0, "a party without sessions");
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                party.remove();
            }
        }
    }

    /// Begins the end of a session: its line closes, its tasks end, then it is gone.
    pub(super) fn end(
        &mut self,
        engine: &mut Engine<C>,
        session: SessionKey,
        reason: &'static str,
    ) {
        let Some((entry, wire)) = engine.session_and_carrier(session) else {
            return;
        };
        if entry.is_ending() {
            return;
        }
        let Some(port) = entry.port.nbd() else {
            return;
        };
        wire.report(Notice::SessionEnds {
            session: &port.detail,
            reason,
            under_way: port.under_way(),
            unsent_bytes: port.unsent_bytes(),
        });
        let connection = port.connection;
        engine.close_to_commands(session);
        if let Some(key) = connection {
            self.close_connection(engine, key);
        }
        engine.end_session(session);
    }

    /// Ends all sessions.
    pub fn end_all(&mut self, engine: &mut Engine<C>, reason: &'static str) {
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for session in all {
            self.end(engine, session, reason);
        }
    }

    /// Refuses all further requests and handshakes; each session ends when its last one is answered.
    pub fn stop(&mut self, engine: &mut Engine<C>) {
        self.is_stopping = true;
        if let Some(front) = &mut self.front {
            front.close_all(engine);
        }
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for session in all {
            if let Some(port) = nbd_port(engine, session) {
                port.stop();
            }
            engine.note_ready(session, None);
        }
    }

    /// Ends a session for an administrator. The receipt is kept until it is gone.
    pub fn dismiss(
        &mut self,
        engine: &mut Engine<C>,
        id: SessionId,
        reason: &'static str,
        receipt: C::Receipt,
    ) {
        if let Some(&session) = self.by_id.get(&id) {
            self.receipts.entry(id).or_default().push(receipt);
            self.end(engine, session, reason);
        }
    }

    /// Every session that lives here.
    pub fn report(&self, engine: &Engine<C>) -> Vec<SessionReport> {
        let report = |(_, entry): (SessionKey, &engine::Session<Port>)| {
            let port = entry.port.nbd()?;
            let detail = &port.detail;
            Some(SessionReport {
                id: detail.id,
                transport: TransportDetails::Nbd {
                    export: detail.export.clone(),
                    service: Arc::clone(&detail.service),
                    names: Arc::clone(&detail.names),
                },
                core: engine.core(),
                initiator_name: detail.client.clone(),
                peer: detail.peer.into(),
                portal: detail.portal,
                user: None,
                target: None,
                since: detail.since,
                luns: vec![detail.lun],
                commands: entry.waiting_commands(),
                window: port.limit().saturating_sub(port.under_way()),
                is_ending: entry.is_ending(),
            })
        };
        engine.sessions().filter_map(report).collect()
    }

    /// Handshakes wait for the next turn.
    pub fn has_more(&self) -> bool {
        self.front.as_ref().is_some_and(Front::has_more)
    }

    /// Time has come: handshakes that take too long end.
    pub fn handle_timeout(&mut self, engine: &mut Engine<C>) {
        if let Some(front) = &mut self.front
            && front.poll_timeout().is_some_and(|at| engine.now() >= at)
        {
            front.handle_timeout(engine);
        }
    }

    /// Before this moment [`Sessions::poll_timeout`] is not.
    #[inline]
    pub fn soonest(&self) -> Moment {
        self.front.as_ref().map_or(Moment::NEVER, Front::soonest)
    }

    /// When [`Sessions::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        self.front.as_mut().and_then(Front::poll_timeout)
    }

    // ---- handshakes --------------------------------------------------------------------------

    /// The receive of a handshake has ended: with bytes, or with the end of the connection.
    pub fn handle_handshake_received(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        bytes: Option<&[u8]>,
    ) {
        if let Some(front) = &mut self.front {
            front.handle_received(engine, key, bytes);
        }
    }

    /// The send of a handshake has ended: all is sent, or the connection is of no use.
    pub fn handle_handshake_sent(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        is_sent: bool,
        (places, clock): (Option<&mut IscsiFront<impl IscsiLine>>, SystemTime),
    ) {
        if let (Some(front), Some(places)) = (&mut self.front, places) {
            front.handle_sent(engine, key, is_sent, (places, clock));
        }
    }

    /// What is left although every session is over, as "so many of what".
    pub fn leftovers(&self) -> Vec<String> {
        let counts = [
            ("sessions by name", self.by_id.len()),
            ("connections", self.connections.len()),
            ("receipts", self.receipts.len()),
            ("addresses", self.parties.len()),
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
}

impl<C: Wire> Others<C> for Sessions<C> {
    fn handle_events(&mut self, engine: &mut Engine<C>, session: SessionKey) {
        let connection = nbd_port(engine, session).and_then(|port| port.connection);
        if let Some(key) = connection {
            self.carry_on(engine, key, Source::NOTHING);
        }
    }

    fn note_ready(&mut self, engine: &Engine<C>, session: SessionKey) {
        let port = engine.session(session).and_then(|entry| entry.port.nbd());
        if let Some(key) = port.and_then(|port| port.connection) {
            self.note_dirty(key);
        }
    }

    fn handle_over(&mut self, engine: &mut Engine<C>, port: Port) {
        let Port::Nbd(port) = port else {
            return;
        };
        let id = port.detail.id;
        self.by_id.remove(&id);
        self.leave_party(port.detail.peer.ip());
        drop(self.receipts.remove(&id));
        let letter = Letter::SessionEnded(id);
        engine.carrier.post_letter(FRONT_CORE, letter);
    }
}

/// The session, as NBD has it.
pub(super) fn nbd_port<C: Wire>(
    engine: &mut Engine<C>,
    session: SessionKey,
) -> Option<&mut SessionPort> {
    engine.session_mut(session)?.port.nbd_mut()
}
