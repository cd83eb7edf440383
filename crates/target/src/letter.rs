//! Mail between cores. Every exchange is bounded by what the sender has under way, so a mailbox
//! needs no limit of its own.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use iscsi::login::{LoginTarget, NegotiatedLogin};
use iscsi::pdu::Tsih;
use scsi::{Change, Notice, Reply, Shared, Who};

use crate::directory::Placement;
use crate::handle::{Access, Grant, Receipt};
use crate::plan::{TargetIndex, UnitDescription, UnitIndex, UnitPlan};
use crate::plane::StartError;
use crate::report::SessionReport;
use crate::running::RequestKey;
use crate::session::SessionProfile;
use crate::trace::{Taps, Trace};

/// Where an answer belongs: a request of one core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ticket {
    pub(crate) core: usize,
    pub(crate) request: RequestKey,
}

impl Ticket {
    /// Of who wants no answer. A session asks one question for each of its units when it begins and
    /// when it ends: nothing is kept for them, nor sent back.
    pub(crate) const NOBODY: Self = Self {
        core: usize::MAX,
        request: RequestKey::NONE,
    };
}

/// Names a fence of one unit; given by the owner of the unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FenceNumber(pub(crate) u64);

/// What a change means for every core.
#[derive(Debug)]
pub(crate) struct Update {
    /// Of the request behind it, which is not to be aborted by it.
    pub(crate) ticket: Ticket,
    /// The state of the unit is another from now on, or unit attentions come with it.
    pub(crate) changes_state: bool,
    pub(crate) notices: Vec<Notice>,
    /// Whose tasks must have ended before the core confirms.
    pub(crate) abort: Vec<Who>,
}

/// A connection on its way to the core of its session.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) fd: OwnedFd,
    /// Waits to be told which session it is in.
    pub(crate) machine: LoginTarget,
    pub(crate) negotiated: Box<NegotiatedLogin>,
    /// The address of ours that it reached.
    pub(crate) portal: SocketAddr,
    /// Bytes that came behind the last login request.
    pub(crate) unread: Vec<u8>,
    pub(crate) taps: Taps,
    pub(crate) entry: Entry,
}

/// How the connection gets into its session.
#[derive(Debug)]
pub(crate) enum Entry {
    /// It is the first one.
    Found {
        placement: Placement,
        profile: Box<SessionProfile>,
    },
    /// The session is there, and the front desk has found that the login may join it.
    Join { tsih: Tsih },
}

/// One letter.
#[derive(Debug)]
pub(crate) enum Letter {
    /// All cores are up: listen.
    Go,
    /// Front desk to a core: this connection is yours.
    Adopt(Box<Adoption>),
    /// Front desk to a core: end this session, another takes its place.
    EndSession { tsih: Tsih },
    /// Front desk to a core: end this discovery session, others need its place.
    EndDiscovery { tsih: Tsih },
    /// A core to the front desk: the session is gone, with all its tasks.
    SessionEnded { tsih: Tsih },
    /// To the owner of a unit: change its state.
    Change {
        unit: UnitIndex,
        ticket: Ticket,
        change: Change,
    },
    /// To the owner: a request of this core is not accounted for, so nothing new may touch the
    /// medium. Answered when every core refuses access.
    RefuseAccess { unit: UnitIndex, ticket: Ticket },
    /// To the owner: all requests of this core are accounted for again.
    AllowAccess { unit: UnitIndex, core: usize },
    /// The owner to every core: refuse access, and confirm that; or allow it.
    SetAccessRefused {
        unit: UnitIndex,
        refuse: bool,
        round: u64,
    },
    /// A core to the owner: it refuses access since this round.
    RefusalConfirmed { unit: UnitIndex, round: u64 },
    /// The owner to a core that asked for it: every core refuses access.
    AccessRefused { ticket: Ticket },
    /// The owner to the one who asked: it is done everywhere.
    Changed {
        ticket: Ticket,
        reply: Reply,
        is_complete: bool,
    },
    /// The owner to every core, which confirms.
    Install {
        unit: UnitIndex,
        shared: Arc<Shared>,
        update: Arc<Update>,
    },
    /// A core to the owner: installed; `is_complete` unless a task that had to end did not.
    Installed { unit: UnitIndex, is_complete: bool },
    /// To the owner: these blocks for me alone.
    FenceWanted {
        unit: UnitIndex,
        ticket: Ticket,
        blocks: Range<u64>,
    },
    /// The owner to every core: nobody but the holder starts on these blocks.
    FenceRaise {
        unit: UnitIndex,
        fence: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
    },
    /// A core to the owner: nobody but the holder is at work on them here.
    FenceRaised { unit: UnitIndex, fence: FenceNumber },
    /// The owner to the holder.
    FenceGranted { ticket: Ticket },
    /// The holder to the owner: no longer needed, granted or not.
    FenceDone { unit: UnitIndex, ticket: Ticket },
    /// The owner to every core.
    FenceLower { unit: UnitIndex, fence: FenceNumber },
    /// To every core: the target was reset cold, its sessions are over.
    EndTarget { target: TargetIndex },
    /// A core to every core, when told to stop: no session is left here.
    Quiet,
    /// Administrator to every core: these units, which nobody sees yet.
    AddUnits {
        units: Arc<[(UnitIndex, UnitPlan)]>,
        report: Sender<Result<(), StartError>>,
    },
    /// Administrator to every core: keep the receipt until nothing here uses these units.
    RetireUnits {
        units: Arc<[UnitIndex]>,
        receipt: Receipt,
    },
    /// Administrator to every core: close the stores of these units, which no core uses.
    ForgetUnits {
        units: Arc<[UnitIndex]>,
        receipt: Receipt,
    },
    /// Administrator to every core: what these units are called and say of themselves.
    DescribeUnits {
        units: Arc<[UnitDescription]>,
        receipt: Receipt,
    },
    /// Administrator to the front desk: rules, targets and portals from now on.
    SetAccess {
        access: Box<Access>,
        receipt: Receipt,
    },
    /// Administrator to every core: your sessions?
    Report(Sender<Vec<SessionReport>>),
    /// Administrator to the core of a session: what it sees from now on.
    Grant { grant: Box<Grant>, receipt: Receipt },
    /// Administrator to the core of a session: end it.
    Dismiss {
        session: u16,
        reason: &'static str,
        receipt: Receipt,
    },
    /// Administrator to the owner of a unit: its store has another size.
    SizeChanged { unit: UnitIndex, receipt: Receipt },
    /// Administrator to every core: note what goes over the connections of this trace.
    StartTrace { trace: Arc<Trace>, receipt: Receipt },
    /// Administrator to every core: note nothing for this trace any more.
    StopTrace { trace: Arc<Trace>, receipt: Receipt },
    /// Ask initiators to log out, end what is left at the deadline, flush, and stop.
    Stop,
}
