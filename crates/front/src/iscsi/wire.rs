//! What the sessions of iSCSI ask for outside their core: sockets, mail, and reports of what happens.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::iscsi::framing::Pdu;
use ::iscsi::names::IscsiName;
use ::iscsi::negotiate::ConnectionParameters;
use ::iscsi::pdu::{TaskManagementFunction, Tsih};
use ::iscsi::target::{Receive, Violation};
use engine::{Carrier, TargetIndex};
use memory::Message;

use super::action::Adoption;
use super::failure::LoginFailure;
use super::session::{ConnectionKey, Detail};
use super::unproved::LoginKey;
use crate::port::Port;
use crate::sending::SendEnd;

/// A connection, as the owner of its socket sees it.
pub trait Line: Debug {
    /// What is looked up when something is noted: for example, which traces follow which connections.
    type Context: ?Sized;

    /// The address of the initiator.
    fn peer(&self) -> SocketAddr;

    /// The address of ours that was reached.
    fn portal(&self) -> SocketAddr;

    /// The other end has acknowledged all that was sent. One that cannot say so has not.
    fn has_had_all(&self) -> bool;

    /// A login request has been read, by which the initiator may have given its name.
    fn note_login(&mut self, pdu: &Pdu, initiator: Option<&IscsiName>, context: &Self::Context);

    /// The login is over: the line belongs to this session.
    fn enter(
        &mut self,
        session: &Detail,
        parameters: &ConnectionParameters,
        context: &Self::Context,
    );

    /// These bytes have been received for the session.
    fn note_received(&mut self, bytes: &[u8]);

    /// This is about to be sent.
    fn note_sent(&mut self, message: &Message);
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineKey {
    /// A login at the front.
    Login(LoginKey),
    /// A connection of a session.
    Connection(ConnectionKey),
}

/// Mail between the front and the cores of sessions.
#[derive(Debug)]
pub enum FrontLetter<L> {
    /// To a core: this connection is yours.
    Adopt(Box<Adoption<L>>),
    /// To a core: end this session, another one takes its place.
    EndSession {
        /// Which.
        tsih: Tsih,
    },
    /// To a core: end this discovery session, others need its place.
    EndDiscovery {
        /// Which.
        tsih: Tsih,
    },
    /// To the front: the session is gone, with all its tasks.
    SessionEnded {
        /// Which.
        tsih: Tsih,
    },
    /// To every core: the target was reset cold, its sessions are over.
    EndTarget {
        /// Which.
        target: TargetIndex,
    },
}

/// What happens in sessions, for logs, events and counters.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A session begins.
    SessionBegins {
        /// Which.
        session: &'a Detail,
    },
    /// A connection is in full-feature phase.
    ConnectionOpens,
    /// A session gets another connection.
    ConnectionJoins {
        /// Which session.
        session: &'a Detail,
        /// Where the connection comes from, and the address of ours that it reached.
        ends: (SocketAddr, SocketAddr),
        /// CID.
        cid: u16,
        /// The session had a connection of this CID, which goes.
        replaces: bool,
    },
    /// The connection of a [`Notice::ConnectionOpens`] is closed.
    ConnectionIsGone,
    /// The end of a session begins.
    SessionEnds {
        /// Which.
        session: &'a Detail,
        /// Why, for people.
        reason: &'static str,
    },
    /// A task management request has come.
    TaskManagement {
        /// On which session.
        session: &'a Detail,
        /// What it asks for.
        function: TaskManagementFunction,
        /// The eight bytes of the LUN field.
        lun: u64,
    },
    /// An initiator broke a rule of the protocol. Only the first few of a session are reported.
    Violation {
        /// On which session.
        session: &'a Detail,
        /// Which rule.
        violation: &'a Violation,
    },
    /// A login has led to its session.
    LoginSucceeded,
    /// A login failed.
    LoginFailed {
        /// Where it came from.
        peer: SocketAddr,
        /// InitiatorName as it was claimed, if it was.
        initiator: Option<&'a str>,
        /// TargetName as it was asked for, if it was.
        target: Option<&'a str>,
        /// Why.
        failure: &'a LoginFailure,
    },
    /// Many wrong responses to CHAP for one user came from one address.
    Guessing {
        /// Where from.
        address: IpAddr,
        /// The user, who need not exist.
        user: &'a str,
    },
    /// A connection was displaced that was no login, or never became one.
    Displaced,
}

/// Carries the sessions of iSCSI on one core: over sockets where Tarn serves, over a seeded world where
/// it is simulated. None of this calls sessions or engine back.
pub trait Wire: Carrier<Port = Port> {
    /// A connection.
    type Line: Line;

    /// What lines look up; see [`Line::Context`].
    fn context(&self) -> &<Self::Line as Line>::Context;

    /// Receives the next bytes of a line; one receive is under way on a line at a time. It ends exactly
    /// once, with [`handle_received`](super::Sessions::handle_received),
    /// [`handle_received_exact`](super::Sessions::handle_received_exact),
    /// [`handle_end`](super::Sessions::handle_end) or, for a login, with
    /// [`handle_login_received`](super::Sessions::handle_login_received).
    fn receive(&mut self, line: &Self::Line, key: LineKey, how: Receive);

    /// Sends all of a message; one send is under way on a line at a time. It ends exactly once, with
    /// [`handle_sent`](super::Sessions::handle_sent) or
    /// [`handle_login_sent`](super::Sessions::handle_login_sent).
    fn send(&mut self, line: &Self::Line, key: LineKey, message: Message, end: SendEnd);

    /// Ends the connection both ways: what is under way on it ends soon. The line is closed when it is
    /// dropped.
    fn shut(&mut self, line: &Self::Line);

    /// Sends a last few bytes, as far as the line takes them at once, and closes it.
    fn send_last(&mut self, line: Self::Line, message: &Message);

    /// Sends a letter to a core, which may be this one. Letters from one core to another do not overtake
    /// each other, and none is lost. One to this core is read after the call that sends it has returned.
    fn post_letter(&mut self, core: usize, letter: FrontLetter<Self::Line>);

    /// Whether initiators may reset this target cold.
    fn takes_cold_reset(&self, target: TargetIndex) -> bool;

    /// A send of a session has ended.
    fn note_send(&mut self, session: &Detail, took: Duration, bytes: usize);

    /// Reports what has happened.
    fn report(&mut self, notice: Notice<'_>);
}

/// The core that has the front.
pub const FRONT_CORE: usize = 0;
