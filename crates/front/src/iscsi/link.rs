//! Connections in full-feature phase: bytes in, messages out.

use std::rc::Rc;
use std::time::Duration;

use ::iscsi::target::Violation;
use engine::{Engine, Port as _, SessionKey};
use memory::{Buffer, Message};

use super::events::note_violation;
use super::port::SessionPort;
use super::session::ConnectionKey;
use super::sessions::{Coalescing, Sessions};
use super::wire::{Line, LineKey, Notice, Wire};
use crate::others::Others;
use crate::sending::{SendEnd, Sent, UNWATCHED_BYTES_MAX};

/// With more than this waiting to be sent, in bytes, nothing more is received.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The same for output that is on the heap and in no account of a pool: echoed pings, answers that are made.
const OUTPUT_HEAP_MAX_BYTES: usize = 64 * 1024;

/// With more of that on a core, in bytes, nothing is received on a connection that has any.
const OUTPUT_HEAP_OF_CORE_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Output of this size is sent at once, in bytes.
const HOLD_BYTES_MAX: usize = 64 * 1024;

/// How long output may be held for more of it.
const HOLD_TIME_MAX: Duration = Duration::from_micros(30);

/// How much room an emptied message keeps for its next use, in bytes. One message is in flight per
/// busy connection; less room makes the allocator give pages back and fault them in at each turn.
const MESSAGE_ROOM_BYTES: usize = 128 * 1024;

/// With more connections than these they keep less room.
const CONNECTIONS_FEW: usize = 256;
const CROWD_ROOM_BYTES: usize = 4 * 1024;

/// How many lost connections are closed in one turn.
const LOST_MAX: usize = 64;

impl<C: Wire> Sessions<C> {
    /// Receives the next bytes of a connection, as its session wants them.
    pub(super) fn receive(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_receiving || connection.is_closing {
            return;
        }
        let Some((entry, wire)) = engine.session_and_carrier(connection.session) else {
            return;
        };
        let Some(SessionPort { session, .. }) = entry.port.iscsi_mut() else {
            return;
        };
        // Who does not take answers gets no more questions in; receiving goes on when they are
        // sent. The kernel ends a connection that takes nothing for too long.
        let unread = session.output_bytes(connection.index);
        let queued = session.output_heap_bytes(connection.index);
        let heap = queued + connection.sending_heap_bytes;
        self.output_heap = self.output_heap + heap - connection.heap_counted;
        connection.heap_counted = heap;
        let is_core_full = self.output_heap > OUTPUT_HEAP_OF_CORE_MAX_BYTES;
        let is_much = heap > OUTPUT_HEAP_MAX_BYTES || heap > 0 && is_core_full;
        // A discovery session asks its next question when it has the last answer.
        let is_waiting = session.config().is_discovery && (unread > 0 || connection.is_sending);
        if is_waiting || is_much || unread > OUTPUT_BYTES_MAX {
            connection.is_throttled = true;
            return;
        }
        connection.is_receiving = true;
        let how = session.poll_receive(connection.index);
        wire.receive(&connection.line, LineKey::Connection(key), how);
    }

    /// A receive into a chunk has brought this; `more` says that the socket holds further bytes.
    pub fn handle_received(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        chunk: &Rc<Buffer>,
        more: bool,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        if connection.is_closing {
            self.bury_connection(engine, key);
            return;
        }
        connection.has_more = more;
        self.handle_bytes(engine, key, chunk);
    }

    /// The peer has closed the connection. One that has had everything, and has no other connection, has said farewell:
    /// nothing that would be answered now reaches it.
    pub fn handle_close(&mut self, engine: &mut Engine<C>, key: ConnectionKey, why: &'static str) {
        if let Some(connection) = self.connections.get(key)
            && connection.line.has_had_all()
            && let Some(entry) = engine.session_mut(connection.session)
            && let Some(port) = entry.port.iscsi()
            && port.detail.open_connections().len() == 1
            && entry.port.unsent_bytes() == 0
        {
            entry.note_farewell();
            engine.close_to_commands(connection.session);
        }
        self.handle_end(engine, key, why);
    }

    /// A receive into a chunk has brought nothing, for this reason: the peer is gone.
    pub fn handle_end(&mut self, engine: &mut Engine<C>, key: ConnectionKey, why: &'static str) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        if connection.is_closing {
            self.bury_connection(engine, key);
            return;
        }
        // Thousands may be lost at once, and those that are not have pings and commands: each is
        // closed when its turn comes.
        connection.lost = Some(why);
        self.lost.push_back(key);
    }

    /// Passes bytes to the session.
    pub(super) fn handle_bytes(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        chunk: &Rc<Buffer>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.line.note_received(chunk);
        let (session, index) = (connection.session, connection.index);
        let now = engine.now();
        let Some(entry) = engine.session_mut(session) else {
            return;
        };
        let (port, pool) = entry.port_and_pool();
        let Some(SessionPort {
            session: protocol,
            detail,
            ..
        }) = port.iscsi_mut()
        else {
            return;
        };
        let outcome = protocol.handle_chunk(index, chunk, pool, now);
        let is_looked_at = detail.is_looked_at_soon(now);
        if !is_looked_at {
            self.look_soon(engine, session);
        }
        self.settle_received(engine, key, (session, index), outcome);
    }

    /// Does what the bytes asked for, and asks for more.
    fn settle_received(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        (session, index): (SessionKey, usize),
        outcome: Result<(), Violation>,
    ) {
        self.handle_events(engine, session);
        engine.note_ready(session, Some(index));
        engine.note_starving(session);
        match outcome {
            Ok(()) => self.receive(engine, key),
            Err(violation) => {
                note_violation(engine, session, &violation);
                self.lose_connection(engine, key, "the initiator broke the protocol");
            }
        }
    }

    /// A receive into the buffer of a task has ended, with so many bytes; with none the peer is gone.
    pub fn handle_received_exact(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        buffer: Buffer,
        received: usize,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        let (session, index) = (connection.session, connection.index);
        if connection.is_closing {
            drop(buffer);
            self.bury_connection(engine, key);
            return;
        }
        let now = engine.now();
        let Some(entry) = engine.session_mut(session) else {
            return;
        };
        let (port, pool) = entry.port_and_pool();
        let Some(SessionPort {
            session: protocol, ..
        }) = port.iscsi_mut()
        else {
            return;
        };
        let begin = protocol.exact_offset(index);
        let bytes = buffer.get(begin..begin.saturating_add(received));
        connection.line.note_received(bytes.unwrap_or_default());
        let outcome = protocol.handle_exact(index, buffer, received, pool, now);
        if received == 0 {
            let reason = "the connection ended within a data segment";
            self.lose_connection(engine, key, reason);
        } else {
            self.look_soon(engine, session);
            self.settle_received(engine, key, (session, index), outcome);
        }
    }

    // ---- output ------------------------------------------------------------------------------

    /// When output that is held must go, at the latest.
    pub(super) const fn held_until(&self) -> Option<Duration> {
        self.hold_until
    }

    /// Notes which connections have something to send.
    fn gather_output(&mut self, engine: &mut Engine<C>, others: &mut impl Others<C>) {
        while let Some((session, index)) = engine.poll_ready() {
            let Some(entry) = engine.session(session) else {
                continue;
            };
            let Some(SessionPort { detail, .. }) = entry.port.iscsi() else {
                others.note_ready(engine, session);
                continue;
            };
            let connections = &detail.connections;
            let meant = match index {
                Some(index) => connections.get(index..=index).unwrap_or_default(),
                None => connections,
            };
            for &key in meant.iter().flatten() {
                if let Some(connection) = self.connections.get_mut(key)
                    && !connection.is_dirty
                {
                    connection.is_dirty = true;
                    self.dirty.push(key);
                }
            }
        }
    }

    /// Sends all that became ready in this turn: one send per connection. Called at the end of each turn. `others`
    /// learn which of their sessions have something to send.
    pub fn flush(&mut self, engine: &mut Engine<C>, others: &mut impl Others<C>) {
        self.gather_output(engine, others);
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            if self.may_hold(engine, key) {
                self.held.push(key);
            } else {
                self.flush_connection(engine, key);
            }
        }
        self.hold_until = match self.hold_until {
            _ if self.held.is_empty() => None,
            Some(until) => Some(until),
            None => Some(engine.now() + HOLD_TIME_MAX),
        };
        // What is held is looked at again in the next turn.
        if !self.dirty.is_empty() {
            dirty.append(&mut self.dirty);
        }
        if !self.held.is_empty() {
            dirty.append(&mut self.held);
        }
        self.dirty = dirty;
        if !self.throttled.is_empty() {
            self.receive_again(engine);
        }
    }

    /// Receives again where receiving waited for output to be sent.
    #[inline(never)]
    fn receive_again(&mut self, engine: &mut Engine<C>) {
        for key in std::mem::take(&mut self.throttled) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.is_throttled = false;
            }
            self.receive(engine, key);
        }
    }

    /// Whether a little output waits for the next turn. If coalescing is adaptive: when the socket
    /// holds further commands already, whose answers can go with it. Then this core will not be
    /// idle before they are there, so nobody waits for nothing; with few commands under way it
    /// never happens.
    fn may_hold(&self, engine: &Engine<C>, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let is_wanted = match self.settings.coalescing {
            Coalescing::Off => false,
            Coalescing::Adaptive => connection.has_more,
            Coalescing::Always => true,
        };
        if !is_wanted || !connection.is_receiving || connection.is_sending {
            return false;
        }
        let entry = engine.session(connection.session);
        let port = entry.and_then(|entry| entry.port.iscsi());
        let bytes = port.map_or(0, |port| port.session.output_bytes(connection.index));
        bytes > 0
            && bytes < HOLD_BYTES_MAX
            && self.hold_until.is_none_or(|until| engine.now() < until)
    }

    fn flush_connection(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_dirty = false;
        if connection.is_sending || connection.is_closing {
            return;
        }
        let now = engine.now();
        let is_short = engine.is_short_of_memory() || connection.close_when_sent;
        let Some((entry, wire)) = engine.session_and_carrier(connection.session) else {
            return;
        };
        let Some(port) = entry.port.iscsi_mut() else {
            return;
        };
        if port.session.has_output(connection.index) {
            let spare = connection.spare.take().unwrap_or_default();
            let message = port.session.take_message(connection.index, spare);
            port.sending_bytes += message.len();
            connection.line.note_sent(&message);
            connection.is_sending = true;
            connection.sending_since = now;
            connection.sending_bytes = message.len();
            connection.sending_heap_bytes = message.heap_bytes();
            let is_last = !port.session.has_output(connection.index) && !connection.is_throttled;
            let end = if is_last && !is_short && message.len() <= UNWATCHED_BYTES_MAX {
                SendEnd::Waits
            } else {
                SendEnd::Wakes
            };
            wire.send(&connection.line, LineKey::Connection(key), message, end);
        } else if connection.close_when_sent {
            self.close_connection(engine, key);
        }
    }

    /// A send has ended: all is sent, or the connection is of no use.
    pub fn handle_sent(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        mut message: Message,
        sent: Sent,
    ) {
        let is_crowd = self.connections.len() > CONNECTIONS_FEW;
        message.clear(if is_crowd {
            CROWD_ROOM_BYTES
        } else {
            MESSAGE_ROOM_BYTES
        });
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let took = match sent {
            Sent::AtOnce => Duration::ZERO,
            Sent::Now | Sent::Not => engine.now().saturating_sub(connection.sending_since),
        };
        if let Some((entry, wire)) = engine.session_and_carrier(connection.session)
            && let Some(port) = entry.port.iscsi_mut()
        {
            port.sending_bytes -= connection.sending_bytes;
            wire.note_send(&port.detail, took, connection.sending_bytes);
        }
        connection.is_sending = false;
        connection.sending_bytes = 0;
        self.output_heap -= connection.sending_heap_bytes.min(connection.heap_counted);
        connection.heap_counted = connection
            .heap_counted
            .saturating_sub(connection.sending_heap_bytes);
        connection.sending_heap_bytes = 0;
        connection.spare = Some(message);
        if connection.is_closing {
            self.bury_connection(engine, key);
        } else if sent != Sent::Not {
            if !connection.is_dirty {
                connection.is_dirty = true;
                self.dirty.push(key);
            }
            // Until that is looked at, the end of the next send is waited for.
            if connection.is_throttled {
                self.throttled.push(key);
            }
        } else {
            self.lose_connection(engine, key, "the connection failed");
        }
    }

    // ---- the end of a connection -------------------------------------------------------------

    /// A connection ended without logout: at ErrorRecoveryLevel 0 the session goes with it.
    pub(super) fn lose_connection(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        reason: &'static str,
    ) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        self.end_session(engine, connection.session, reason);
        self.close_connection(engine, key);
    }

    /// Ends some of the connections that were lost; one while lines have more to tell: there may be
    /// thousands of ends in front of a ping.
    pub fn lose_some(&mut self, engine: &mut Engine<C>, is_busy: bool) {
        for _ in 0..if is_busy { 1 } else { LOST_MAX } {
            let Some(key) = self.lost.pop_front() else {
                return;
            };
            // Another one may have its place already; that one is not lost.
            let connection = self.connections.get_mut(key);
            if let Some(reason) = connection.and_then(|connection| connection.lost.take()) {
                self.lose_connection(engine, key, reason);
            }
        }
    }

    /// These connections are closed when what they have to send is sent.
    pub(super) fn close_when_sent(&mut self, connections: Vec<ConnectionKey>) {
        for key in connections {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.close_when_sent = true;
            }
        }
    }

    /// Shuts the line; the connection goes when what is under way on it has ended.
    pub(super) fn close_connection(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_closing {
            return;
        }
        connection.is_closing = true;
        engine.carrier.shut(&connection.line);
        let (session, index) = (connection.session, connection.index);
        let entry = engine.session_mut(session);
        if let Some(port) = entry.and_then(|entry| entry.port.iscsi_mut()) {
            port.session.remove_connection(index);
            if let Some(slot) = port.detail.connections.get_mut(index) {
                *slot = None;
            }
            if port.detail.connections.iter().all(Option::is_none) {
                self.end_session(engine, session, "logged out");
            }
        }
        self.bury_connection(engine, key);
    }

    fn bury_connection(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let is_over = self
            .connections
            .get(key)
            .is_some_and(|c| c.is_closing && !c.is_receiving && !c.is_sending);
        if is_over && let Some(connection) = self.connections.remove(key) {
            self.output_heap -= connection.heap_counted;
            engine.carrier.report(Notice::ConnectionIsGone);
        }
    }
}
