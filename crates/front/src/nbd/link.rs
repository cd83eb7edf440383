//! Connections of sessions: bytes in, messages out.

use std::rc::Rc;
use std::time::Duration;

use engine::{Engine, Port as _};
use memory::{Buffer, Message};

use super::keys::ConnectionKey;
use super::session::Taken;
use super::sessions::{Connection, Sessions, nbd_port};
use super::source::Source;
use super::tls::Sealing;
use super::wire::{Line as _, LineKey, Notice, Receive, Wire};
use crate::sending::{SendEnd, UNWATCHED_BYTES_MAX};

/// How much room an emptied message keeps for its next use, in bytes.
const MESSAGE_ROOM_BYTES: usize = 128 * 1024;

/// How much is received while nothing can be taken, to notice the end of a connection, in bytes.
const LOOK_BYTES: usize = 4096;

/// How long the data of one command of a write may take to come.
const DATA_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may take to take what is sent at once.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

impl<C: Wire> Sessions<C> {
    /// A receive into a chunk has brought this.
    pub fn handle_received(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        chunk: &Rc<Buffer>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        if connection.is_closing {
            self.bury(engine, key);
            return;
        }
        self.carry_chunk(engine, key, chunk);
    }

    /// The client has closed the connection. One that has had everything has said farewell.
    pub fn handle_close(&mut self, engine: &mut Engine<C>, key: ConnectionKey, why: &'static str) {
        self.note_close(engine, key);
        self.handle_end(engine, key, why);
    }

    fn note_close(&self, engine: &mut Engine<C>, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key)
            && connection.line.has_had_all()
            && let Some(entry) = engine.session_mut(connection.session)
            && entry.port.unsent_bytes() == 0
        {
            entry.note_farewell();
        }
    }

    /// A receive into a chunk has brought nothing: the client is gone.
    pub fn handle_end(&mut self, engine: &mut Engine<C>, key: ConnectionKey, why: &'static str) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_receiving = false;
        let session = connection.session;
        self.end(engine, session, why);
        self.bury(engine, key);
    }

    /// A receive into the buffer of a write has ended, with so many bytes.
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
        let (session, wanted) = (connection.session, connection.lent_bytes.take());
        if connection.is_closing {
            drop(buffer);
            self.bury(engine, key);
            return;
        }
        let Some(port) = nbd_port(engine, session) else {
            return;
        };
        match port.take_back(buffer, wanted == Some(received)) {
            Taken::Command(id, command) => {
                engine.handle_command(session, id, command);
            }
            Taken::Nothing => {}
            Taken::Broken(why) => {
                self.end(engine, session, why);
                return;
            }
        }
        self.carry_on(engine, key, Source::NOTHING);
    }

    /// Takes what a receive has brought, by way of TLS if there is any.
    fn carry_chunk(&mut self, engine: &mut Engine<C>, key: ConnectionKey, chunk: &Rc<Buffer>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(tls) = &mut connection.tls else {
            self.carry_on(engine, key, Source::of_chunk(chunk));
            return;
        };
        let session = connection.session;
        match tls.open(chunk) {
            Ok(opened) => {
                self.carry_on(engine, key, Source::of(&opened.bytes));
                if opened.is_end {
                    self.note_close(engine, key);
                    self.end(engine, session, "closed by the client");
                }
            }
            Err(_) => self.end(engine, session, "TLS failed"),
        }
    }

    /// Takes what is there, gives the commands that it leads to, and asks for more.
    pub(super) fn carry_on(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        mut source: Source<'_>,
    ) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let session = connection.session;
        let now = engine.now();
        loop {
            let Some(entry) = engine.session_mut(session) else {
                return;
            };
            if entry.is_ending() {
                return;
            }
            let (port, pool) = entry.port_and_pool();
            let Some(port) = port.nbd_mut() else {
                return;
            };
            match port.take(&mut source, pool, now) {
                Taken::Command(id, command) => {
                    engine.handle_command(session, id, command);
                }
                Taken::Nothing => {
                    port.hold(source.left());
                    break;
                }
                Taken::Broken(why) => {
                    self.end(engine, session, why);
                    return;
                }
            }
        }
        engine.note_starving(session);
        self.note_dirty(key);
        self.receive(engine, key);
    }

    /// Receives the next bytes, if the session wants any.
    fn receive(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_receiving || connection.is_closing {
            return;
        }
        let now = engine.now();
        let Some((entry, wire)) = engine.session_and_carrier(connection.session) else {
            return;
        };
        let Some(port) = entry.port.nbd_mut() else {
            return;
        };
        let limit_bytes = if port.wants_bytes() {
            usize::MAX
        } else if port.may_look_ahead() {
            LOOK_BYTES
        } else {
            return;
        };
        connection.is_receiving = true;
        let is_plain = connection.tls.is_none();
        if !is_plain {
            let part = port.awaited_part();
            if part != std::mem::replace(&mut connection.part, part) {
                connection.lent_since = now;
            }
        }
        let how = match is_plain.then(|| port.lend()).flatten() {
            Some((buffer, range)) => {
                connection.lent_bytes = Some(range.len());
                connection.lent_since = now;
                Receive::Exact { buffer, range }
            }
            None => Receive::Chunk { limit_bytes },
        };
        wire.receive(&connection.line, LineKey::Connection(key), how);
    }

    // ---- output ------------------------------------------------------------------------------

    /// It has something to send, or to do.
    #[inline]
    pub(super) fn note_dirty(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(key);
        }
    }

    /// Sends all that became ready in this turn: one send per connection. Called at the end of each turn.
    pub fn flush(&mut self, engine: &mut Engine<C>) {
        if let Some(front) = &mut self.front {
            front.take_turn(engine);
        }
        if self.dirty.is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for &key in &dirty {
            if let Some(connection) = self.connections.get_mut(key) {
                // What it leads to is sent now, too.
                let session = connection.session;
                if nbd_port(engine, session).is_some_and(|port| port.has_event()) {
                    self.carry_on(engine, key, Source::NOTHING);
                }
                self.flush_connection(engine, key);
            }
        }
        dirty.clear();
        // Nobody has put anything in there: all of them were dirty already.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn flush_connection(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let now = engine.now();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_dirty = false;
        if connection.is_sending || connection.is_closing {
            return;
        }
        let session = connection.session;
        let is_short = engine.is_short_of_memory();
        let Some((entry, wire)) = engine.session_and_carrier(session) else {
            return;
        };
        let Some(port) = entry.port.nbd_mut() else {
            return;
        };
        if connection.sealing.is_none() && port.has_output() {
            let message = port.take_message(connection.spare.take().unwrap_or_default());
            // Once this is sent the session ends. Asked before its bytes count as not sent.
            let is_end = port.is_over();
            port.sending_bytes = message.len();
            connection.sending_since = now;
            if connection.tls.is_none() {
                connection.is_sending = true;
                let is_last = !port.has_output() && !is_end;
                let end = if is_last && !is_short && message.len() <= UNWATCHED_BYTES_MAX {
                    SendEnd::Waits
                } else {
                    SendEnd::Wakes
                };
                wire.send(&connection.line, LineKey::Connection(key), message, end);
                return;
            }
            connection.sealing = Some(Sealing::new(message));
        }
        if let Some(message) = connection.seal_next() {
            connection.is_sending = true;
            let key = LineKey::Connection(key);
            wire.send(&connection.line, key, message, SendEnd::Wakes);
        } else if port.is_over() {
            if !port.is_heedless() && connection.line.has_had_all() {
                entry.note_farewell();
            }
            self.end(engine, session, "the client has disconnected");
        }
    }

    /// A send has ended: all is sent, or the connection is of no use.
    pub fn handle_sent(
        &mut self,
        engine: &mut Engine<C>,
        key: ConnectionKey,
        mut message: Message,
        is_sent: bool,
    ) {
        message.clear(MESSAGE_ROOM_BYTES);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.is_sending = false;
        let session = connection.session;
        if connection.is_closing {
            self.bury(engine, key);
            return;
        }
        if !is_sent {
            self.end(engine, session, "the connection failed");
            self.bury(engine, key);
            return;
        }
        match connection.sealing.take().map(Sealing::into_message) {
            // There is more of it; its next part goes at the end of the turn.
            Some(Err(sealing)) => {
                connection.sealing = Some(sealing);
                self.note_dirty(key);
                return;
            }
            Some(Ok(mut sealed)) => {
                sealed.clear(MESSAGE_ROOM_BYTES);
                connection.spare = Some(sealed);
            }
            None => connection.spare = Some(message),
        }
        if let Some(port) = nbd_port(engine, session) {
            port.sending_bytes = 0;
        }
        // Receiving may have waited for this.
        self.carry_on(engine, key, Source::NOTHING);
    }

    /// To be called every second: clients end that keep buffers waiting.
    pub fn look(&mut self, engine: &mut Engine<C>) {
        let now = engine.now();
        let all: Vec<ConnectionKey> = self.connections.keys().collect();
        for key in all {
            let Some(connection) = self.connections.get(key) else {
                continue;
            };
            let session = connection.session;
            let waited = now.saturating_sub(connection.lent_since);
            let is_lent = connection.lent_bytes.is_some();
            let part = connection.part;
            let port = nbd_port(engine, session);
            let is_awaited = part.is_some() && port.is_some_and(|port| port.awaited_part() == part);
            if (is_lent || is_awaited) && waited >= DATA_TIMEOUT {
                self.end(engine, session, "the data of a write does not come");
                continue;
            }
            let Some(connection) = self.connections.get(key) else {
                continue;
            };
            let waited = now.saturating_sub(connection.sending_since);
            if connection.is_sending && waited >= OUTPUT_TIMEOUT {
                self.end(engine, session, "the client does not take its answers");
            }
        }
    }

    // ---- the end of a connection -------------------------------------------------------------

    /// Shuts the line; the connection goes when what is under way on it has ended.
    pub(super) fn close_connection(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut connection.is_closing, true) {
            return;
        }
        engine.carrier.shut(&connection.line);
        self.bury(engine, key);
    }

    fn bury(&mut self, engine: &mut Engine<C>, key: ConnectionKey) {
        let is_over = self.connections.get(key).is_some_and(|connection| {
            connection.is_closing && !connection.is_receiving && !connection.is_sending
        });
        if is_over && self.connections.remove(key).is_some() {
            engine.carrier.report(Notice::ConnectionIsGone);
        }
    }
}

impl<L> Connection<L> {
    /// The next part of what is sent over TLS, and what TLS has to send by itself.
    fn seal_next(&mut self) -> Option<Message> {
        let tls = self.tls.as_mut()?;
        let sealed = match &mut self.sealing {
            Some(sealing) => sealing.next(tls),
            None => tls.seal(&[]),
        };
        let mut message = Message::default();
        message.push_bytes(&sealed);
        (!sealed.is_empty()).then_some(message)
    }
}
