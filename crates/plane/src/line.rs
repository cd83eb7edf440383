//! A connection: its socket, and the traces that follow it.

use std::net::SocketAddr;
use std::sync::Arc;

use front::iscsi::{Detail, FrontLetter, Line};
use front::nbd;
use iscsi::framing::Pdu;
use iscsi::names::IscsiName;
use iscsi::negotiate::ConnectionParameters;
use memory::Message;
use reactor::{ParkedSocket, Socket};

use crate::trace::{Taps, Trace};

/// A connection on its core.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    pub(crate) taps: Taps,
}

impl Line for Link {
    type Context = [Arc<Trace>];

    fn peer(&self) -> SocketAddr {
        self.taps.peer()
    }

    fn portal(&self) -> SocketAddr {
        self.taps.portal()
    }

    fn has_had_all(&self) -> bool {
        self.socket.is_acknowledged()
    }

    fn note_login(&mut self, pdu: &Pdu, initiator: Option<&IscsiName>, traces: &[Arc<Trace>]) {
        self.taps.receive_login(pdu, initiator, traces);
    }

    fn enter(
        &mut self,
        session: &Detail,
        parameters: &ConnectionParameters,
        traces: &[Arc<Trace>],
    ) {
        let name = &session.profile.initiator_name;
        let own = traces
            .iter()
            .filter(|trace| trace.is_of_session(session.id, name));
        self.taps.enter_session(own, parameters);
    }

    #[inline]
    fn note_received(&mut self, bytes: &[u8]) {
        if self.taps.is_open() {
            self.taps.receive(bytes);
        }
    }

    #[inline]
    fn note_sent(&mut self, message: &Message) {
        if self.taps.is_open() {
            self.taps.send(message);
        }
    }
}

/// A connection on its way to another core. Nothing is under way on it.
#[derive(Debug)]
pub(crate) struct ParkedLink {
    socket: ParkedSocket,
    taps: Taps,
}

impl Link {
    /// `None` when an operation is under way on it, which is a bug of ours.
    pub(crate) fn park(self) -> Option<ParkedLink> {
        let Self { socket, taps } = self;
        let socket = socket.park().ok();
        debug_assert!(
            socket.is_some(),
            "an operation is under way on a login that has ended"
        );
        socket.map(|socket| ParkedLink { socket, taps })
    }
}

impl From<ParkedLink> for Link {
    fn from(ParkedLink { socket, taps }: ParkedLink) -> Self {
        Self {
            socket: socket.into(),
            taps,
        }
    }
}

/// A letter of front or sessions, with lines that may change their core.
pub(crate) fn with_line<L, M>(
    letter: FrontLetter<L>,
    change: impl FnOnce(L) -> Option<M>,
) -> Option<FrontLetter<M>> {
    Some(match letter {
        FrontLetter::Adopt(adoption) => FrontLetter::Adopt(Box::new(adoption.with_line(change)?)),
        FrontLetter::EndSession { tsih } => FrontLetter::EndSession { tsih },
        FrontLetter::EndDiscovery { tsih } => FrontLetter::EndDiscovery { tsih },
        FrontLetter::SessionEnded { tsih } => FrontLetter::SessionEnded { tsih },
        FrontLetter::EndTarget { target } => FrontLetter::EndTarget { target },
    })
}

/// A connection of NBD on its core.
#[derive(Debug)]
pub(crate) struct NbdLink {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    pub(crate) portal: SocketAddr,
}

impl nbd::Line for NbdLink {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn portal(&self) -> SocketAddr {
        self.portal
    }

    fn has_had_all(&self) -> bool {
        self.socket.is_acknowledged()
    }
}

/// The same on its way to another core. Nothing is under way on it.
#[derive(Debug)]
pub(crate) struct ParkedNbdLink {
    socket: ParkedSocket,
    peer: SocketAddr,
    portal: SocketAddr,
}

impl NbdLink {
    /// `None` when an operation is under way on it, which is a bug of ours.
    pub(crate) fn park(self) -> Option<ParkedNbdLink> {
        let Self {
            socket,
            peer,
            portal,
        } = self;
        let socket = socket.park().ok();
        debug_assert!(
            socket.is_some(),
            "an operation is under way on a handshake that has ended"
        );
        socket.map(|socket| ParkedNbdLink {
            socket,
            peer,
            portal,
        })
    }
}

impl From<ParkedNbdLink> for NbdLink {
    fn from(parked: ParkedNbdLink) -> Self {
        let ParkedNbdLink {
            socket,
            peer,
            portal,
        } = parked;
        Self {
            socket: socket.into(),
            peer,
            portal,
        }
    }
}
