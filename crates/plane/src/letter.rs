//! Mail between cores. Every exchange is bounded by what the sender has under way, so a mailbox
//! needs no limit of its own.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use engine::{MediumFailure, MediumOrder, Space};
use front::iscsi::{FrontLetter, Grant};
use front::{SessionId, SessionReport};
use front::{hyperscsi, nbd};
use reactor::SiteSocket;

use crate::counters::HyperscsiReport;
use crate::line::{ParkedLink, ParkedNbdLink};
use crate::plan::{Access, Exchange, Settings, UnitDescription, UnitIndex, UnitPlan};
use crate::receipt::{AddUnitError, Receipt};
use crate::trace::Trace;

/// One letter.
#[derive(Debug)]
pub(crate) enum Letter {
    /// Between the front and the sessions of a core.
    Front(FrontLetter<ParkedLink>),
    /// The same of NBD.
    Nbd(nbd::Letter<ParkedNbdLink>),
    /// The same of HyperSCSI.
    Hyperscsi(hyperscsi::Letter),
    /// Between the owner of this unit and a core.
    Unit {
        unit: UnitIndex,
        letter: engine::Letter,
    },
    /// From any thread: the store of this unit has something to do.
    StoreWake { unit: UnitIndex },
    /// A core to every core, after [`Letter::Stop`]: no session is left here.
    Quiet,
    /// A core to every core, after [`Letter::Stop`]: the last flushes of the units that it owns are over. Until then a
    /// flush may need a connection that another core has.
    Flushed,
    /// Administrator to every core: the next unit, which no session sees yet.
    AddUnit {
        unit: UnitIndex,
        plan: Arc<UnitPlan>,
        report: Sender<Result<(), AddUnitError>>,
    },
    /// Administrator to every core: keep the receipt until nothing uses these units.
    DrainUnits {
        units: Arc<[UnitIndex]>,
        receipt: Receipt,
    },
    /// Administrator to every core: close the stores of these units, which no core uses. Only the owner of each does
    /// something, a last flush at first, which may need a connection that another core has.
    CloseUnits {
        units: Arc<[UnitIndex]>,
        receipt: Receipt,
    },
    /// The owner of a unit to every core: close its store, which was flushed.
    CloseStore { unit: UnitIndex, receipt: Receipt },
    /// Administrator to every core: another store stands for the medium of a unit, which is held.
    Exchange {
        exchange: Arc<Exchange>,
        report: Sender<Result<(), AddUnitError>>,
    },
    /// Administrator to every core: new names and profiles of units.
    DescribeUnits {
        units: Arc<[UnitDescription]>,
        receipt: Receipt,
    },
    /// Administrator to every core: limits from now on.
    SetLimits {
        settings: Arc<Settings>,
        receipt: Receipt,
    },
    /// Administrator to the front: rules, targets and portals from now on.
    SetAccess {
        access: Box<Access>,
        receipt: Receipt,
    },
    /// Administrator to every core: what HyperSCSI serves from now on, with the sockets of new places.
    SetHyperscsi {
        server: hyperscsi::Server,
        groups: Arc<[hyperscsi::Group]>,
        sockets: Vec<(hyperscsi::Place, SiteSocket)>,
        receipt: Receipt,
    },
    /// Administrator to every core: what has HyperSCSI counted?
    ReportHyperscsi(Sender<HyperscsiReport>),
    /// Administrator to every core: report your sessions.
    Report(Sender<Vec<SessionReport>>),
    /// Administrator to the core of a session: what it sees from now on.
    Grant { grant: Box<Grant>, receipt: Receipt },
    /// Administrator to the core of a session: end it.
    Dismiss {
        session: SessionId,
        reason: &'static str,
        receipt: Receipt,
    },
    /// Administrator to the owner of a unit: its store has another size.
    SizeChanged { unit: UnitIndex, receipt: Receipt },
    /// Administrator to every core: how much space a unit may take.
    SetSpace { unit: UnitIndex, space: Space },
    /// Administrator to the owner of a unit: move its medium.
    MoveMedium {
        unit: UnitIndex,
        order: MediumOrder,
        answer: Sender<Result<(), MediumFailure>>,
    },
    /// Administrator to the owner of a unit: its medium need not be held any longer. Answered with whether it was held
    /// until now.
    ReleaseMedium {
        hold: (UnitIndex, u64),
        answer: Sender<bool>,
    },
    /// Administrator to every core: record the connections of this trace.
    StartTrace { trace: Arc<Trace>, receipt: Receipt },
    /// Administrator to every core: stop recording for this trace.
    StopTrace { trace: Arc<Trace>, receipt: Receipt },
    /// Ask initiators to log out, end what is left at the deadline, flush, and stop.
    Stop,
}
