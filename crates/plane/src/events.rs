//! Events for administrators.

use std::fmt;
use std::time::Duration;

use engine::SaveError;
use front::Station;
use front::iscsi::{LoginCause, Who};
use store::{Cause, IoFailure};

use crate::reserved::ReservationReport;
use crate::slow::SlowCommand;

/// Takes the events of the plane. Called on the cores, so it must not wait. Only rare events are emitted.
pub trait EventSink: Send + Sync + fmt::Debug {
    /// Takes one event.
    fn emit(&self, event: &Event<'_>);

    /// Every core has taken turns. Called once a second by the watchdog, and not while a core is stuck: what ends a
    /// process that is silent may go by this.
    fn turned(&self) {}
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A session began.
    SessionBegan {
        /// Who is behind it.
        who: Who<'a>,
    },
    /// A session has got another connection.
    ConnectionJoined {
        /// Who is behind the session, and where this connection comes from.
        who: Who<'a>,
        /// CID.
        cid: u16,
        /// The session had a connection of this CID, which goes.
        replaces: bool,
    },
    /// A session is being ended.
    SessionEnded {
        /// Who was behind it.
        who: Who<'a>,
        /// Why, for people.
        reason: &'a str,
    },
    /// A login failed.
    LoginFailed(&'a FailedLogin<'a>),
    /// The size of a unit is another one.
    UnitResized {
        /// The unit.
        unit: &'a str,
        /// Its blocks until now.
        before: u64,
        /// Its blocks now.
        blocks: u64,
    },
    /// The medium of a unit was ejected or loaded, by an initiator or an administrator.
    MediumMoved {
        /// The unit.
        unit: &'a str,
        /// It is in now.
        is_in: bool,
    },
    /// A store does not give a request back; what that may write is refused until it does.
    StoreStuck {
        /// The unit.
        unit: &'a str,
    },
    /// A store has given back every request on a core of which [`Event::StoreStuck`] came.
    StoreFreed {
        /// The unit.
        unit: &'a str,
        /// The core.
        core: usize,
    },
    /// A command failed because of its store. Of each cause of a unit only some are reported.
    StoreFailed {
        /// The unit.
        unit: &'a str,
        /// The cause.
        cause: Cause,
        /// What failed.
        failure: &'a IoFailure,
        /// How many failures of this cause, unit and core were not reported since the last one that was.
        unreported: u64,
    },
    /// A command ended with RESERVATION CONFLICT. Of those of a unit only some are reported.
    ReservationConflict {
        /// The unit.
        unit: &'a str,
        /// InitiatorName.
        initiator: &'a str,
        /// The reservations of the unit.
        reserved: &'a ReservationReport,
        /// How many of this unit and core were not reported since the last one that was.
        unreported: u64,
    },
    /// On one core a store begins to end commands with NOT READY, because who has the data cannot be reached, or
    /// carries them out again.
    StoreReach {
        /// The unit.
        unit: &'a str,
        /// The core.
        core: usize,
        /// It carries them out.
        is_reached: bool,
    },
    /// A command took longer than the limit, or hangs.
    SlowCommand(&'a SlowCommand<'a>),
    /// The initiator, or the network, took longer than the limit to take what was sent.
    SlowSend {
        /// Who is behind the session.
        who: Who<'a>,
        /// From the moment it was given to the kernel until all of it was in the socket.
        took: Duration,
        /// How much it was.
        bytes: usize,
        /// How many slow commands and sends of the core were not reported since the last that was.
        unreported: u64,
    },
    /// A core has not taken a turn for so long.
    CoreStalled {
        /// Its number.
        core: usize,
        /// For how long.
        seconds: u64,
    },
    /// The state of a unit could not be made safe; the command that wanted that has failed.
    StateNotKept {
        /// The unit.
        unit: &'a str,
        /// Why.
        error: &'a SaveError,
    },
}

/// A login that failed, to be reported.
#[derive(Clone, Copy, Debug)]
pub struct FailedLogin<'a> {
    /// Where it came from.
    pub peer: Station,
    /// InitiatorName as it was claimed, if it was.
    pub initiator: Option<&'a str>,
    /// TargetName as it was asked for, if it was.
    pub target: Option<&'a str>,
    /// Why, for programs.
    pub cause: LoginCause,
    /// Why, for people.
    pub reason: &'a str,
    /// How many failed logins of the core were not reported since the last that was.
    pub unreported: u64,
}
