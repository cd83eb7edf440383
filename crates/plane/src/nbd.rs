//! NBD on a core: carries out what its sessions ask for, and gives them what has come.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use front::nbd::{
    ConnectionKey, HandshakeKey, Letter as NbdLetter, LineKey, Notice, Receive, Wire,
};
use memory::{Buffer, Message};
use reactor::{Errno, Received, Token};

use crate::core::{Core, was_sent};
use crate::events::Event;
use crate::letter::Letter;
use crate::line::{NbdLink, ParkedNbdLink};
use crate::lines::LineKind;
use crate::outside::Outside;
use crate::token::Purpose;
use crate::wire::end_of;
use front::SendEnd;

const fn receive_token(key: LineKey) -> Token {
    match key {
        LineKey::Handshake(key) => Purpose::HandshakeReceive(key).token(),
        LineKey::Connection(key) => Purpose::NbdReceive(key).token(),
    }
}

const fn send_token(key: LineKey) -> Token {
    match key {
        LineKey::Handshake(key) => Purpose::HandshakeSend(key).token(),
        LineKey::Connection(key) => Purpose::NbdSend(key).token(),
    }
}

impl Wire for Outside {
    type NbdLine = NbdLink;

    #[inline]
    fn receive(&mut self, line: &NbdLink, key: LineKey, how: Receive) {
        let (socket, token) = (&line.socket, receive_token(key));
        match how {
            Receive::Chunk { limit_bytes } => {
                self.reactor.receive_at_most(socket, token, limit_bytes)
            }
            Receive::Exact { buffer, range } => {
                self.reactor.receive_exact(socket, token, buffer, range)
            }
        };
    }

    #[inline]
    fn send(&mut self, line: &NbdLink, key: LineKey, message: Message, end: SendEnd) {
        let (socket, token) = (&line.socket, send_token(key));
        self.reactor.send(socket, token, message, end_of(end));
    }

    fn shut(&mut self, line: &NbdLink) {
        line.socket.shutdown();
    }

    fn post_letter(&mut self, core: usize, letter: NbdLetter<NbdLink>) {
        if let Some(letter) = letter.with_line(NbdLink::park) {
            Self::send(self, core, Letter::Nbd(letter));
        }
    }

    fn report(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::SessionBegins { session } => {
                self.connection_count.fetch_add(1, Ordering::Relaxed);
                self.login_log.succeed();
                let who = session.who();
                if self.admits(LineKind::SessionBegins) {
                    tracing::info!(
                        client = %who.initiator,
                        peer = %who.peer,
                        session = session.id.0,
                        export = %session.export,
                        core = self.index,
                        "NBD session begins"
                    );
                }
                self.events.emit(&Event::SessionBegan { who });
            }
            Notice::SessionEnds {
                session,
                reason,
                under_way,
                unsent_bytes,
            } => {
                let who = session.who();
                if self.admits(LineKind::SessionEnds) {
                    tracing::info!(
                        client = %who.initiator,
                        session = session.id.0,
                        under_way,
                        unsent_bytes,
                        "NBD session ends: {reason}"
                    );
                }
                self.events.emit(&Event::SessionEnded { who, reason });
            }
            Notice::ConnectionIsGone => {
                self.connection_count.fetch_sub(1, Ordering::Relaxed);
            }
            Notice::HandshakeFailed { peer, failure } => {
                if self.admits(LineKind::HandshakeFails) {
                    tracing::info!(%peer, "NBD handshake failed: {failure}");
                }
            }
        }
    }
}

impl Core {
    pub(crate) fn handle_nbd_received(
        &mut self,
        key: ConnectionKey,
        result: Result<Received, Errno>,
    ) {
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        match result {
            Ok(received) if received.len > 0 => nbd.handle_received(engine, key, &received.chunk),
            Ok(_) => nbd.handle_close(engine, key, "closed by the client"),
            Err(errno) => {
                tracing::debug!(%errno, "receive failed");
                nbd.handle_end(engine, key, "the connection failed");
            }
        }
    }

    pub(crate) fn handle_nbd_data(
        &mut self,
        key: ConnectionKey,
        buffer: Buffer,
        result: Result<usize, Errno>,
    ) {
        let (engine, received) = (&mut self.engine, result.unwrap_or(0));
        self.nbd
            .handle_received_exact(engine, key, buffer, received);
    }

    pub(crate) fn handle_nbd_sent(
        &mut self,
        key: ConnectionKey,
        message: Message,
        result: Result<(), Errno>,
    ) {
        let (engine, is_sent) = (&mut self.engine, was_sent(result));
        self.nbd.handle_sent(engine, key, message, is_sent);
    }

    pub(crate) fn handle_handshake(&mut self, key: HandshakeKey, result: Result<Received, Errno>) {
        let received = result.ok().filter(|received| received.len > 0);
        let bytes = received.as_ref().map(|received| &received.chunk[..]);
        self.nbd
            .handle_handshake_received(&mut self.engine, key, bytes);
    }

    pub(crate) fn handle_handshake_sent(&mut self, key: HandshakeKey, result: Result<(), Errno>) {
        let (is_sent, clock) = (was_sent(result), SystemTime::now());
        let means = (self.sessions.front.as_mut(), clock);
        self.nbd
            .handle_handshake_sent(&mut self.engine, key, is_sent, means);
    }

    pub(crate) fn handle_nbd_letter(&mut self, letter: NbdLetter<ParkedNbdLink>) {
        if let Some(letter) = letter.with_line(|line| Some(NbdLink::from(line))) {
            let places = self.sessions.front.as_mut();
            self.nbd.handle_letter(&mut self.engine, letter, places);
        }
    }
}
