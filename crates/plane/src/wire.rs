//! Carries out what the sessions of a core ask for, on sockets and by mail; logs and reports what happens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use front::SendEnd;
use front::iscsi::{Detail, FrontLetter, LineKey, Notice, Wire};
use iscsi::target::Receive;
use memory::Message;
use reactor::{Token, net};
use scsi::Lun;

use crate::events::Event;
use crate::letter::Letter;
use crate::line::{Link, with_line};
use crate::lines::LineKind;
use crate::outside::Outside;
use crate::plan::TargetIndex;
use crate::token::Purpose;
use crate::trace::Trace;
use front::iscsi::Who;

const fn receive_token(key: LineKey) -> Token {
    match key {
        LineKey::Login(key) => Purpose::LoginReceive(key).token(),
        LineKey::Connection(key) => Purpose::Receive(key).token(),
    }
}

const fn send_token(key: LineKey) -> Token {
    match key {
        LineKey::Login(key) => Purpose::LoginSend(key).token(),
        LineKey::Connection(key) => Purpose::Send(key).token(),
    }
}

/// What the reactor calls it.
pub(crate) const fn end_of(end: SendEnd) -> reactor::SendEnd {
    match end {
        SendEnd::Wakes => reactor::SendEnd::Wakes,
        SendEnd::Waits => reactor::SendEnd::Waits,
    }
}

impl Wire for Outside {
    type Line = Link;

    fn context(&self) -> &[Arc<Trace>] {
        &self.traces
    }

    #[inline]
    fn receive(&mut self, line: &Link, key: LineKey, how: Receive) {
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
    fn send(&mut self, line: &Link, key: LineKey, message: Message, end: SendEnd) {
        let (socket, token) = (&line.socket, send_token(key));
        self.reactor.send(socket, token, message, end_of(end));
    }

    fn shut(&mut self, line: &Link) {
        line.socket.shutdown();
    }

    fn send_last(&mut self, line: Link, message: &Message) {
        if let Err(error) = net::send_now(&line.socket, &message.to_vec()) {
            tracing::debug!(%error, "a refusal could not be sent");
        }
    }

    fn post_letter(&mut self, core: usize, letter: FrontLetter<Link>) {
        if let Some(letter) = with_line(letter, Link::park) {
            Self::send(self, core, Letter::Front(letter));
        }
    }

    fn takes_cold_reset(&self, target: TargetIndex) -> bool {
        self.cold_resets.are_allowed(target)
    }

    /// A slow send delays the answers in it: the network or the initiator is slow, not a store.
    #[inline]
    fn note_send(&mut self, session: &Detail, took: Duration, bytes: usize) {
        if took.as_micros() >= u128::from(self.tally.slow.limit_us()) {
            self.report_slow_send(session, took, bytes);
        }
    }

    fn report(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::SessionBegins { session } => self.report_beginning(session),
            Notice::ConnectionOpens => {
                self.connection_count.fetch_add(1, Ordering::Relaxed);
            }
            Notice::ConnectionIsGone => {
                self.connection_count.fetch_sub(1, Ordering::Relaxed);
            }
            Notice::ConnectionJoins {
                session,
                ends,
                cid,
                replaces,
            } => self.report_join(session, ends, cid, replaces),
            Notice::SessionEnds { session, reason } => {
                let who = session.who();
                if self.admits(LineKind::SessionEnds) {
                    tracing::info!(
                        initiator = %who.initiator,
                        session = session.id.0,
                        violations = session.violations,
                        "session ends: {reason}"
                    );
                }
                self.events.emit(&Event::SessionEnded { who, reason });
            }
            Notice::TaskManagement {
                session,
                function,
                lun,
            } => {
                if self.admits(LineKind::TaskManagement) {
                    let initiator = &session.profile.initiator_name;
                    let lun = Lun::decode(lun).map_or_else(
                        |unsupported| unsupported.to_string(),
                        |lun| lun.number().to_string(),
                    );
                    tracing::info!(%initiator, ?function, %lun, "task management");
                }
            }
            Notice::Violation { session, violation } => {
                if self.admits(LineKind::ProtocolViolation) {
                    let initiator = &session.profile.initiator_name;
                    let peer = session.profile.peer;
                    tracing::warn!(%initiator, %peer, %violation, "protocol violation");
                }
            }
            Notice::LoginSucceeded => self.login_log.succeed(),
            Notice::LoginFailed {
                peer,
                initiator,
                target,
                failure,
            } => {
                let (events, now) = (&*self.events, self.reactor.now());
                let whose = (peer.into(), initiator, target);
                self.login_log.fail(events, now, whose, failure);
            }
            Notice::Guessing { address, user } => {
                let from = SocketAddr::new(address, 0).into();
                self.login_log.note_guessing(from, user);
            }
            Notice::Displaced => self.login_log.displace(),
        }
    }
}

impl Outside {
    /// Whether a line of this kind may be written now.
    pub(crate) fn admits(&mut self, kind: LineKind) -> bool {
        self.line_limits.admit(kind, self.reactor.now())
    }

    fn report_beginning(&mut self, session: &Detail) {
        let who = session.who();
        if self.admits(LineKind::SessionBegins) {
            tracing::info!(
                initiator = %who.initiator,
                peer = %who.peer,
                session = session.id.0,
                tsih = session.tsih.0,
                core = self.index,
                discovery = session.profile.target.is_none(),
                "session begins"
            );
        }
        self.events.emit(&Event::SessionBegan { who });
    }

    fn report_join(
        &mut self,
        session: &Detail,
        (peer, portal): (SocketAddr, SocketAddr),
        cid: u16,
        replaces: bool,
    ) {
        let who = Who {
            peer: peer.into(),
            ..session.who()
        };
        if self.admits(LineKind::ConnectionJoins) {
            tracing::info!(
                initiator = %who.initiator,
                user = session.profile.user.as_deref(),
                %peer,
                %portal,
                session = session.id.0,
                cid,
                replaces,
                "connection joins a session"
            );
        }
        self.events
            .emit(&Event::ConnectionJoined { who, cid, replaces });
    }

    #[cold]
    fn report_slow_send(&mut self, session: &Detail, took: Duration, bytes: usize) {
        let Some(unreported) = self.tally.slow.take(self.reactor.now()) else {
            return;
        };
        let who = session.who();
        let seconds = took.as_secs_f64();
        tracing::warn!(initiator = who.initiator, peer = %who.peer, seconds, bytes, "slow send");
        self.events.emit(&Event::SlowSend {
            who,
            took,
            bytes,
            unreported,
        });
    }
}
