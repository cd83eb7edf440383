//! Sockets in full-feature phase: bytes in, messages out.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::SessionKey;
use iscsi::target::{LogoutEvent, Receive, Violation};
use memory::{Buffer, Message};
use reactor::{Errno, Received};

use crate::core::Core;
use crate::lines::LineKind;
use crate::plan::Coalescing;
use crate::session::ConnectionKey;
use crate::token::Purpose;

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

impl Core {
    /// Receives the next bytes of a connection, as its session wants them.
    pub(crate) fn receive(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_receiving || connection.is_closing {
            return;
        }
        let Some(entry) = self.engine.session_mut(connection.session) else {
            return;
        };
        let session = &mut entry.port.session;
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
        let token = Purpose::Receive(key).token();
        connection.is_receiving = true;
        match session.poll_receive(connection.index) {
            Receive::Chunk { limit_bytes } => {
                self.engine
                    .carrier
                    .reactor
                    .receive_at_most(&connection.socket, token, limit_bytes)
            }
            Receive::Exact { buffer, range } => {
                self.engine
                    .carrier
                    .reactor
                    .receive_exact(&connection.socket, token, buffer, range)
            }
        };
    }

    pub(crate) fn handle_received(&mut self, key: ConnectionKey, result: Result<Received, Errno>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        if connection.is_closing {
            self.bury_connection(key);
            return;
        }
        match result {
            Ok(received) if received.len > 0 => {
                connection.has_more = received.more;
                self.handle_bytes(key, &received.chunk);
            }
            Ok(_) => self.lose_in_turn(key, "closed by the initiator"),
            Err(errno) => {
                tracing::debug!(%errno, "receive failed");
                self.lose_in_turn(key, "the connection failed");
            }
        }
    }

    /// Passes bytes to the session.
    pub(crate) fn handle_bytes(&mut self, key: ConnectionKey, chunk: &Rc<Buffer>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.taps.is_open() {
            connection.taps.receive(chunk);
        }
        let (session, index) = (connection.session, connection.index);
        let now = self.engine.carrier.reactor.now();
        let Some(entry) = self.engine.session_mut(session) else {
            return;
        };
        let (port, pool) = entry.port_and_pool();
        let outcome = port.session.handle_chunk(index, chunk, pool, now);
        self.settle_received(key, session, index, outcome);
    }

    /// Does what the bytes asked for, and asks for more.
    fn settle_received(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        index: usize,
        outcome: Result<(), Violation>,
    ) {
        self.handle_session_events(session);
        self.engine.note_ready(session, Some(index));
        self.engine.note_starving(session);
        match outcome {
            Ok(()) => self.receive(key),
            Err(violation) => {
                self.note_violation(session, violation);
                self.lose_connection(key, "the initiator broke the protocol");
            }
        }
    }

    pub(crate) fn handle_received_exact(
        &mut self,
        key: ConnectionKey,
        buffer: Buffer,
        result: Result<usize, Errno>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        let (session, index) = (connection.session, connection.index);
        if connection.is_closing {
            drop(buffer);
            self.bury_connection(key);
            return;
        }
        let received = result.unwrap_or(0);
        let now = self.engine.carrier.reactor.now();
        let Some(entry) = self.engine.session_mut(session) else {
            return;
        };
        let (port, pool) = entry.port_and_pool();
        if connection.taps.is_open() {
            let begin = port.session.exact_offset(index);
            let bytes = buffer.get(begin..begin.saturating_add(received));
            connection.taps.receive(bytes.unwrap_or_default());
        }
        let outcome = port
            .session
            .handle_exact(index, buffer, received, pool, now);
        if received == 0 {
            self.lose_connection(key, "the connection ended within a data segment");
        } else {
            self.settle_received(key, session, index, outcome);
        }
    }

    pub(crate) fn note_violation(&mut self, session: SessionKey, violation: Violation) {
        const TOLD_MAX: u32 = 10;
        let now = self.now();
        let Some(entry) = self.engine.session_mut(session) else {
            return;
        };
        let detail = &mut entry.port.detail;
        detail.violations = detail.violations.saturating_add(1);
        if detail.violations <= TOLD_MAX && self.line_limits.admit(LineKind::ProtocolViolation, now)
        {
            let initiator = &detail.profile.initiator_name;
            let peer = detail.profile.peer;
            tracing::warn!(%initiator, %peer, %violation, "protocol violation");
        }
    }

    // ---- output ------------------------------------------------------------------------------

    /// Notes which connections have something to send.
    fn gather_output(&mut self) {
        while let Some((session, index)) = self.engine.poll_ready() {
            let Some(entry) = self.engine.session(session) else {
                continue;
            };
            let connections = &entry.port.detail.connections;
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

    /// Sends all that became ready in this turn: one send per connection.
    pub(crate) fn flush_output(&mut self) {
        self.gather_output();
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            if self.may_hold(key) {
                self.held.push(key);
            } else {
                self.flush_connection(key);
            }
        }
        self.hold_until = match self.hold_until {
            _ if self.held.is_empty() => None,
            Some(until) => Some(until),
            None => Some(self.engine.carrier.reactor.now() + HOLD_TIME_MAX),
        };
        // What is held is looked at again in the next turn.
        dirty.append(&mut self.dirty);
        dirty.append(&mut self.held);
        self.dirty = dirty;
        for key in std::mem::take(&mut self.throttled) {
            self.receive(key);
        }
    }

    /// Whether a little output waits for the next turn. If coalescing is adaptive: when the socket
    /// holds further commands already, whose answers can go with it. Then this core will not be
    /// idle before they are there, so nobody waits for nothing; with few commands under way it
    /// never happens.
    fn may_hold(&self, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let entry = self.engine.session(connection.session);
        let bytes = entry.map_or(0, |entry| entry.port.session.output_bytes(connection.index));
        let is_wanted = match self.settings.coalescing {
            Coalescing::Off => false,
            Coalescing::Adaptive => connection.has_more,
            Coalescing::Always => true,
        };
        is_wanted
            && connection.is_receiving
            && !connection.is_sending
            && bytes > 0
            && bytes < HOLD_BYTES_MAX
            && self
                .hold_until
                .is_none_or(|until| self.engine.carrier.reactor.now() < until)
    }

    fn flush_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_dirty = false;
        if connection.is_sending || connection.is_closing {
            return;
        }
        let Some(entry) = self.engine.session_mut(connection.session) else {
            return;
        };
        let port = &mut entry.port;
        if port.session.has_output(connection.index) {
            let spare = connection.spare.take().unwrap_or_default();
            let message = port.session.take_message(connection.index, spare);
            port.sending_bytes += message.len();
            if connection.taps.is_open() {
                connection.taps.send(&message);
            }
            connection.is_sending = true;
            connection.sending_since = self.engine.carrier.reactor.now();
            connection.sending_bytes = message.len();
            connection.sending_heap_bytes = message.heap_bytes();
            self.engine.carrier.reactor.send(
                &connection.socket,
                Purpose::Send(key).token(),
                message,
            );
        } else if connection.close_when_sent {
            self.close_connection(key);
        }
    }

    pub(crate) fn handle_sent(
        &mut self,
        key: ConnectionKey,
        mut message: Message,
        result: Result<(), Errno>,
    ) {
        if let Some(connection) = self.connections.get(key) {
            let (session, bytes) = (connection.session, connection.sending_bytes);
            self.note_send(session, connection.sending_since, bytes);
            if let Some(entry) = self.engine.session_mut(session) {
                entry.port.sending_bytes -= bytes;
            }
        }
        let is_crowd = self.connections.len() > CONNECTIONS_FEW;
        message.clear(if is_crowd {
            CROWD_ROOM_BYTES
        } else {
            MESSAGE_ROOM_BYTES
        });
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_sending = false;
        connection.sending_bytes = 0;
        self.output_heap -= connection.sending_heap_bytes.min(connection.heap_counted);
        connection.heap_counted = connection
            .heap_counted
            .saturating_sub(connection.sending_heap_bytes);
        connection.sending_heap_bytes = 0;
        connection.spare = Some(message);
        if connection.is_closing {
            self.bury_connection(key);
        } else if let Err(errno) = result {
            tracing::debug!(%errno, "send failed");
            self.lose_connection(key, "the connection failed");
        } else {
            if !connection.is_dirty {
                connection.is_dirty = true;
                self.dirty.push(key);
            }
            if std::mem::take(&mut connection.is_throttled) {
                self.throttled.push(key);
            }
        }
    }

    // ---- the end of a connection -------------------------------------------------------------

    /// A connection ended without logout: at ErrorRecoveryLevel 0 the session goes with it,
    /// unless others of it live on and it was closed in order.
    pub(crate) fn lose_connection(&mut self, key: ConnectionKey, reason: &'static str) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        self.end_session(connection.session, reason);
        self.close_connection(key);
    }

    /// As [`Core::lose_connection`], but when its turn comes: thousands may be lost at once, and
    /// those that are not have pings and commands.
    fn lose_in_turn(&mut self, key: ConnectionKey, reason: &'static str) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.lost = Some(reason);
            self.lost.push_back(key);
        }
    }

    /// Some of the connections that were lost; one while the kernel has more to tell: there may be
    /// thousands of ends in front of a ping.
    pub(crate) fn lose_some(&mut self, is_busy: bool) {
        for _ in 0..if is_busy { 1 } else { LOST_MAX } {
            let Some(key) = self.lost.pop_front() else {
                return;
            };
            // Another one may have its place already; that one is not lost.
            let connection = self.connections.get_mut(key);
            if let Some(reason) = connection.and_then(|connection| connection.lost.take()) {
                self.lose_connection(key, reason);
            }
        }
    }

    /// Closes the socket; the connection goes when its operations have ended.
    pub(crate) fn close_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_closing {
            return;
        }
        connection.is_closing = true;
        connection.socket.shutdown();
        let (session, index) = (connection.session, connection.index);
        if let Some(entry) = self.engine.session_mut(session) {
            let port = &mut entry.port;
            port.session.remove_connection(index);
            if let Some(slot) = port.detail.connections.get_mut(index) {
                *slot = None;
            }
            if port.detail.connections.iter().all(Option::is_none) {
                self.end_session(session, "logged out");
            }
        }
        self.bury_connection(key);
    }

    fn bury_connection(&mut self, key: ConnectionKey) {
        let is_over = self
            .connections
            .get(key)
            .is_some_and(|c| c.is_closing && !c.is_receiving && !c.is_sending);
        if is_over && let Some(connection) = self.connections.remove(key) {
            self.output_heap -= connection.heap_counted;
            self.connection_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// After the answer to a logout is sent, the connections it concerns are closed.
    pub(crate) fn close_after_output(&mut self, session: SessionKey, event: LogoutEvent) {
        let Some(entry) = self.engine.session(session) else {
            return;
        };
        let detail = &entry.port.detail;
        let answered = detail.connection(event.id.connection);
        let closing: Vec<ConnectionKey> = match event.closing {
            Some(index) => detail.connection(index).into_iter().collect(),
            None => detail.open_connections(),
        };
        for key in closing {
            if Some(key) == answered {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.close_when_sent = true;
                }
            } else {
                self.close_connection(key);
            }
        }
        self.engine.note_ready(session, Some(event.id.connection));
    }
}
