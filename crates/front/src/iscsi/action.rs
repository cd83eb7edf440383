//! What the front wants done, and what it does that with.

use std::net::{IpAddr, SocketAddr};

use ::iscsi::login::{LoginTarget, NegotiatedLogin};
use ::iscsi::pdu::{LoginStatus, Tsih};
use memory::Message;

use super::directory::Placement;
use super::failure::LoginFailure;
use super::profile::SessionProfile;
use super::unproved::LoginKey;

/// A line on its way to the core of its session.
#[derive(Debug)]
pub struct Adoption<L> {
    /// Nothing is under way on it.
    pub line: L,
    /// Waits to learn which session it is in.
    pub machine: LoginTarget,
    /// What the login has agreed on.
    pub negotiated: Box<NegotiatedLogin>,
    /// Bytes that came behind the last login request.
    pub unread: Vec<u8>,
    /// How it gets into its session.
    pub entry: Entry,
}

impl<L> Adoption<L> {
    /// The same on a line of another kind; `None` where there is none.
    pub fn with_line<M>(self, change: impl FnOnce(L) -> Option<M>) -> Option<Adoption<M>> {
        Some(Adoption {
            line: change(self.line)?,
            machine: self.machine,
            negotiated: self.negotiated,
            unread: self.unread,
            entry: self.entry,
        })
    }
}

/// How a connection gets into its session.
#[derive(Debug)]
pub enum Entry {
    /// It is the first one.
    Found {
        /// Where the session goes.
        placement: Placement,
        /// What is known of it.
        profile: Box<SessionProfile>,
    },
    /// The session is there, and the front has found that the login may join it.
    Join {
        /// Which.
        tsih: Tsih,
    },
}

/// What the front wants done. Those about one login stand in the order in which they are to be
/// done.
#[derive(Debug)]
pub enum Action<L> {
    /// Receive on this line; then comes [`Front::handle_bytes`] or [`Front::handle_end`].
    Receive(LoginKey),
    /// Send this on the line; then comes [`Front::handle_sent`].
    Send(LoginKey, Message),
    /// Shut the line: what is under way on it ends.
    Shut(LoginKey),
    /// The login is over. Close the line.
    Close(L),
    /// Send the line to this core.
    Adopt {
        /// Which.
        core: usize,
        /// The line, and what it needs.
        adoption: Box<Adoption<L>>,
    },
    /// The login ended well, but there is no session for it: say so on the line, and close it.
    TurnAway {
        /// Nothing is under way on it.
        line: L,
        /// Makes the answer.
        machine: Box<LoginTarget>,
        /// Which.
        status: LoginStatus,
    },
    /// The session must end first; then comes [`Front::handle_session_ended`].
    EndSession {
        /// Its core.
        core: usize,
        /// Which.
        tsih: Tsih,
    },
    /// The discovery session must go for others.
    EndDiscovery {
        /// Its core.
        core: usize,
        /// Which.
        tsih: Tsih,
    },
    /// A login failed, for the log.
    Failed {
        /// Where it came from.
        peer: SocketAddr,
        /// InitiatorName as it was claimed, if it was.
        initiator: Option<String>,
        /// TargetName as it was asked for, if it was.
        target: Option<String>,
        /// Why.
        failure: LoginFailure,
    },
    /// Wrong proofs for a user come from an address again and again.
    Guessing {
        /// Where from.
        address: IpAddr,
        /// Who need not exist.
        user: String,
    },
    /// Something of a peer was displaced that was no login, or never became one.
    Displaced,
}
