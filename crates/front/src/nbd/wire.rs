//! What sessions and handshakes of NBD ask for outside their core.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;

use ::nbd::server::HandshakeError;
use engine::Carrier;
use memory::{Buffer, Message};

use super::adoption::Adoption;
use super::keys::{ConnectionKey, HandshakeKey};
use super::session::Detail;
use crate::identity::SessionId;
use crate::port::Port;
use crate::sending::SendEnd;

/// A connection, as the owner of its socket sees it.
pub trait Line: Debug {
    /// The address of the client.
    fn peer(&self) -> SocketAddr;

    /// The address of ours that was reached.
    fn portal(&self) -> SocketAddr;

    /// The other end has acknowledged all that was sent. One that cannot say so has not.
    fn has_had_all(&self) -> bool;
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineKey {
    /// A handshake at the front.
    Handshake(HandshakeKey),
    /// A connection of a session.
    Connection(ConnectionKey),
}

/// How to receive next.
#[derive(Debug)]
pub enum Receive {
    /// What is there, and no more than so many bytes.
    Chunk {
        /// In bytes.
        limit_bytes: usize,
    },
    /// Exactly this range of the buffer.
    Exact {
        /// Comes back when the receive has ended.
        buffer: Buffer,
        /// Where to.
        range: Range<usize>,
    },
}

/// Mail between the front and the cores of sessions.
#[derive(Debug)]
pub enum Letter<L> {
    /// To a core: this session is yours.
    Adopt(Box<Adoption<L>>),
    /// To the front: the session is gone, with all its tasks.
    SessionEnded(SessionId),
}

impl<L> Letter<L> {
    /// The same on a line of another kind; `None` where there is none.
    pub fn with_line<M>(self, change: impl FnOnce(L) -> Option<M>) -> Option<Letter<M>> {
        Some(match self {
            Self::Adopt(adoption) => Letter::Adopt(Box::new(adoption.with_line(change)?)),
            Self::SessionEnded(id) => Letter::SessionEnded(id),
        })
    }
}

/// What happens, for logs, events and counters.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A session begins.
    SessionBegins {
        /// Which.
        session: &'a Detail,
    },
    /// The end of a session begins.
    SessionEnds {
        /// Which.
        session: &'a Detail,
        /// Why, for people.
        reason: &'static str,
        /// Requests that are under way.
        under_way: u32,
        /// Bytes of answers that the client has not taken.
        unsent_bytes: usize,
    },
    /// The connection of a session is closed.
    ConnectionIsGone,
    /// A handshake led nowhere.
    HandshakeFailed {
        /// Where it came from.
        peer: SocketAddr,
        /// Why.
        failure: Failure<'a>,
    },
}

/// Why a handshake led nowhere.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Failure<'a> {
    /// The client broke the protocol, or there is nothing for it.
    #[error("{0}")]
    Protocol(&'a HandshakeError),
    /// TLS failed: the client has no certificate, say, or does not trust ours.
    #[error("TLS: {0}")]
    Tls(&'a rustls::Error),
    /// It took too long.
    #[error("the handshake takes too long")]
    Late,
    /// Others need its place.
    #[error("{0}")]
    Displaced(crate::iscsi::Crowding),
    /// There are as many sessions as there may be.
    #[error("there are as many sessions as there may be")]
    NoPlace,
}

/// Carries handshakes and sessions on one core. None of this calls them or the engine back.
pub trait Wire: Carrier<Port = Port> {
    /// A connection.
    type NbdLine: Line;

    /// Receives the next bytes of a line; one receive is under way on a line at a time. It ends exactly once, with
    /// `handle_received`, `handle_received_exact` or `handle_end`.
    fn receive(&mut self, line: &Self::NbdLine, key: LineKey, how: Receive);

    /// Sends all of a message; one send is under way on a line at a time. It ends exactly once, with `handle_sent`.
    fn send(&mut self, line: &Self::NbdLine, key: LineKey, message: Message, end: SendEnd);

    /// Ends the connection both ways: what is under way on it ends soon. The line is closed when it is dropped.
    fn shut(&mut self, line: &Self::NbdLine);

    /// Sends a letter to a core, which may be this one. Letters from one core to another do not overtake each other,
    /// and none is lost. One to this core is read after the call that sends it has returned.
    fn post_letter(&mut self, core: usize, letter: Letter<Self::NbdLine>);

    /// Reports what has happened.
    fn report(&mut self, notice: Notice<'_>);
}
