//! What sessions and logins of HyperSCSI ask for outside their core.

use std::fmt::Debug;
use std::sync::Arc;

use engine::Carrier;
use scsi::NexusId;

use super::keys::PlaceKey;
use super::plan::Place;
use super::session::Detail;
use crate::identity::SessionId;
use crate::iscsi::Shares;
use crate::port::Port;
use crate::station::Station;

/// Mail between the front and the cores of sessions.
#[derive(Debug)]
pub enum Letter {
    /// To the front: a client has authenticated, and wants a session.
    Ask(Box<Ask>),
    /// To a core: there is a place for that session, or none.
    Placed {
        /// That of [`Ask`].
        ticket: u64,
        /// The place.
        granted: Option<Granted>,
    },
    /// To a core: the client of this session has logged in again.
    Replace(SessionId),
    /// To the front: the session is gone with all its tasks, or did not begin.
    SessionEnded(SessionId),
}

/// A client that wants a session.
#[derive(Debug)]
pub struct Ask {
    /// The core that it speaks with.
    pub core: usize,
    /// Names it there.
    pub ticket: u64,
    /// The number by which it calls itself.
    pub client: [u8; 16],
    /// The group, with its place.
    pub group: Arc<str>,
    /// Where it is.
    pub station: Station,
}

/// A place for a session.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What the session is called.
    pub id: SessionId,
    /// Its I_T nexus.
    pub nexus: NexusId,
    /// What its host has of what all sessions share.
    pub shares: Shares,
}

/// What happens, for logs and events.
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
    },
    /// A client has authenticated, and got no session.
    LoginRefused {
        /// Where it is.
        station: Station,
        /// The group.
        group: &'a str,
        /// Why, for people.
        reason: &'static str,
    },
    /// A login has ended, and its client has not shown that it knows the password.
    LoginUnproved {
        /// Where it was.
        station: Station,
        /// The group, as it was asked for.
        group: &'a str,
    },
    /// Logins of a user come from a station again and again without that.
    Guessing {
        /// Where the last one was.
        station: Station,
        /// The user, or the group, as `hyperscsi:GROUP`.
        user: &'a str,
    },
    /// A group cannot be served.
    GroupAway {
        /// The group.
        group: &'a str,
        /// Its place.
        place: &'a Place,
    },
}

/// Carries logins and sessions on one core. None of this calls them or the engine back.
pub trait Wire: Carrier<Port = Port> {
    /// The socket of a place on this core. It is closed when it is dropped.
    type HyperscsiSocket: Debug;

    /// Sends the frame that `write` puts into the room that it gets, which is that of the largest; false where it puts
    /// none there. A frame ends exactly once, with `handle_sent`.
    fn send_frame(
        &mut self,
        socket: &Self::HyperscsiSocket,
        key: PlaceKey,
        to: Station,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool;

    /// Sends a letter to a core, which may be this one. Letters from one core to another do not overtake each other,
    /// and none is lost. One to this core is read after the call that sends it has returned.
    fn post_letter(&mut self, core: usize, letter: Letter);

    /// Reports what has happened.
    fn report(&mut self, notice: Notice<'_>);
}
