//! The administrator: moves the medium, ends sessions, changes the rules of access. It sends letters to
//! cores, as the administration of the program does, and waits for its receipts.

use std::mem;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use engine::{FlushFailure, MediumFailure, MediumOrder};
use front::iscsi::{FRONT_CORE, Grant};
use front::{Policy as _, SessionId, SessionReport};
use iscsi::pdu::Tsih;

use super::known::{Administrator, Stage};
use super::{Event, World};
use crate::initiator::Breach;
use crate::inspect::LeftBehind;
use crate::letter::{Letter, Order, Receipt};
use crate::network::Side;
use crate::plan::{TARGET, UNIT};
use crate::trace::Actor;

/// How long the end of a dismissed session takes at most: its peer has a second, rounded up, its requests
/// the time of an abort and that of a refusal of access (2 s each); the rest is for letters that are slow.
const DISMISSAL_MAX: Duration = Duration::from_secs(8);

/// When an initiator that reads nothing finds out that its session is gone.
const SILENCE: Duration = Duration::from_secs(9);

/// Of 1000 initiators whose links are cut at one moment.
const CUT: u32 = 800;

impl World {
    /// What the administrator does beside the action of an initiator.
    pub(super) fn administrate(&mut self, initiator: usize) {
        let scenario = &self.scenario;
        let (storms, changes) = (scenario.storms, scenario.changes);
        let (moves, dismissals) = (scenario.medium_moves, scenario.dismissals);
        if self.administrator.prng.chance(moves) {
            self.move_medium();
        }
        if self.administrator.prng.chance(dismissals) {
            self.dismiss(initiator);
        }
        let is_storm = self.administrator.prng.chance(storms);
        if is_storm {
            self.cut_many_links();
        }
        if is_storm || self.administrator.prng.chance(changes) {
            self.begin_change();
        }
    }

    /// The machine starts again, with the rules it had first.
    pub(super) fn forget_administration(&mut self) {
        let prng = self.administrator.prng.clone();
        self.administrator = Administrator::new(prng, self.scenario.target.rules());
    }

    /// Sends an order to a core. It does not overtake what others have sent there before.
    fn order(&mut self, core: usize, order: Order) {
        let delay = self.scenario.mail_delay_max;
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let delay = Duration::from_micros(self.administrator.prng.within(0, micros));
        let cores = self.scenario.target.cores;
        let before = (0..=cores).map(|from| self.last_mail[from * cores + core]);
        let when = before.fold(self.agenda.now() + delay, Duration::max);
        self.last_mail[cores * cores + core] = when;
        let letter = Box::new(Letter::Order(order));
        self.agenda.at(when, Event::Deliver { core, letter });
    }

    /// The medium is being moved, or a change is under way.
    pub(super) const fn is_administered(&self) -> bool {
        self.administrator.moving.is_some() || self.administrator.change.is_some()
    }

    /// What followed from the last event for the administrator.
    pub(super) fn check_administration(&mut self) -> Result<(), Breach> {
        for (_, outcome) in self.host.take_moved() {
            self.take_moved(&outcome)?;
        }
        let touched = self.disk.touched();
        if self
            .administrator
            .left_alone
            .is_some_and(|at| at != touched)
        {
            let detail = "the disk was asked for something else than a flush".to_owned();
            return Err(Breach::new("an-ejected-medium-is-left-alone", detail));
        }
        self.advance_change()
    }

    // ---- the medium --------------------------------------------------------------------------

    fn move_medium(&mut self) {
        if self.administrator.moving.is_some() {
            return;
        }
        let handle = self.new_handle();
        let administrator = &mut self.administrator;
        let order = if administrator.medium_is_out {
            administrator.left_alone = None;
            MediumOrder::Load
        } else {
            let force = administrator.prng.chance(400);
            self.ledger.begin_flush(handle);
            MediumOrder::Eject { force }
        };
        self.administrator.moving = Some((order, handle));
        self.note(Actor::World, format_args!("the medium: {order:?}"));
        let act = Order::new(move |core| core.engine.move_medium(UNIT, order));
        self.order(0, act);
    }

    /// The medium has moved, or has not, for which there must be a reason.
    fn take_moved(&mut self, outcome: &Result<(), MediumFailure>) -> Result<(), Breach> {
        self.note(Actor::World, format_args!("the medium: {outcome:?}"));
        let Some((order, handle)) = self.administrator.moving.take() else {
            let detail = "the medium was moved for nobody".to_owned();
            return Err(Breach::new("one-outcome", detail));
        };
        let is_eject = matches!(order, MediumOrder::Eject { .. });
        self.ledger.end_flush(handle, is_eject && outcome.is_ok());
        let scenario = &self.scenario;
        let is_explained = match outcome {
            Ok(()) => true,
            Err(MediumFailure::Prevented) => order == MediumOrder::Eject { force: false },
            Err(MediumFailure::Busy) => is_eject || scenario.keeps_slowly(),
            Err(MediumFailure::Unflushed(FlushFailure::CacheLost { .. })) => {
                is_eject && scenario.losses > 0
            }
            Err(MediumFailure::Unflushed(_)) => {
                is_eject && (scenario.disk_errors > 0 || scenario.disk_hangs > 0)
            }
            // Its state could not be saved, or not in time.
            Err(MediumFailure::Gone) => {
                scenario.keep_failures + scenario.keep_conflicts > 0 || scenario.keeps_slowly()
            }
            Err(MediumFailure::Fixed) => false,
        };
        if !is_explained {
            let detail = format!("{order:?}: {outcome:?}");
            return Err(Breach::new("every-status-has-a-reason", detail));
        }
        if outcome.is_ok() {
            let administrator = &mut self.administrator;
            administrator.medium_is_out = is_eject;
            let is_certain = is_eject && administrator.loads.is_empty();
            administrator.left_alone = is_certain.then(|| self.disk.touched());
        }
        Ok(())
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// Ends the session of an initiator, which may read nothing from now on.
    fn dismiss(&mut self, initiator: usize) {
        let player = &self.players[initiator];
        let tsih = player.tsih;
        if player.session.is_none() {
            return;
        }
        let Some((core, id)) = self.host.session(tsih) else {
            return;
        };
        if self.administrator.prng.chance(400) {
            self.silence(initiator);
        }
        self.dismiss_session(core, id, tsih);
    }

    /// An initiator takes nothing any more, for longer than anybody waits for it.
    fn silence(&mut self, initiator: usize) {
        let Some(session) = &mut self.players[initiator].session else {
            return;
        };
        for index in session.live_connections() {
            let Some(connection) = session.connection(index) else {
                continue;
            };
            connection.is_deaf = true;
            let link = connection.link;
            self.lines[link].link.close_window(Side::Target);
            self.agenda.after(SILENCE, Event::Listen { link });
            self.trace
                .note(Actor::Link(link), format_args!("takes nothing any more"));
        }
    }

    fn dismiss_session(&mut self, core: usize, id: SessionId, tsih: Tsih) {
        let receipt = Receipt::default();
        let weak = Rc::downgrade(&receipt);
        self.note(
            Actor::World,
            format_args!("session {} of core {core} is dismissed", tsih.0),
        );
        self.past.note_receipt(&receipt);
        let administrator = &mut self.administrator;
        administrator.dismissed.insert(tsih);
        administrator.leaving.push((weak.clone(), tsih));
        let receipt_due = Event::ReceiptDue { receipt: weak };
        self.agenda.after(DISMISSAL_MAX, receipt_due);
        let act = Order::new(move |core| {
            core.sessions
                .dismiss(&mut core.engine, id, "dismissed", receipt);
        });
        self.order(core, act);
    }

    /// The administrator has had this session ended.
    pub(super) fn is_dismissed(&self, tsih: Tsih) -> bool {
        self.administrator.dismissed.contains(&tsih)
    }

    /// The session of this receipt must be over by now.
    pub(super) fn check_receipt(&self, receipt: &Weak<()>) -> Result<(), Breach> {
        if receipt.strong_count() == 0 {
            return Ok(());
        }
        let detail = format!("one lasts longer than {DISMISSAL_MAX:?}");
        Err(Breach::new("a-dismissed-session-ends-in-time", detail))
    }

    /// Sessions that were dismissed and are over since the last call.
    pub(super) fn take_dismissed(&mut self) -> Vec<LeftBehind> {
        let leaving = &mut self.administrator.leaving;
        let over = leaving.extract_if(.., |(receipt, _)| receipt.strong_count() == 0);
        over.map(|(_, tsih)| Some(tsih)).collect()
    }

    /// Most initiators lose all their links at one moment.
    fn cut_many_links(&mut self) {
        self.note(Actor::World, format_args!("many links are cut"));
        for initiator in 0..self.players.len() {
            let is_cut = self.administrator.prng.chance(CUT);
            let Some(session) = self.players[initiator].session.as_mut().filter(|_| is_cut) else {
                continue;
            };
            for index in session.live_connections() {
                if let Some(connection) = session.connection(index) {
                    let line = &mut self.lines[connection.link];
                    line.is_excused = true;
                    line.link.reset();
                }
            }
        }
    }

    // ---- a change of the rules ---------------------------------------------------------------

    /// Begins a change, unless one is under way: it is in force when the front has it.
    fn begin_change(&mut self) {
        if self.administrator.change.is_some() {
            return;
        }
        let mut rules = self.scenario.target.rules();
        for initiator in 0..self.players.len() {
            rules
                .plan
                .draw_view(initiator, &mut self.administrator.prng);
        }
        let rules = Arc::new(rules);
        self.note(
            Actor::World,
            format_args!("a change: {:?}", rules.plan.views),
        );
        self.administrator.rules = Arc::clone(&rules);
        let receipt = self.change_stage(Stage::Access);
        let act = Order::new(move |core| {
            if let Some(front) = &mut core.sessions.front {
                rules.put_in_force(front);
            }
            drop(receipt);
        });
        self.order(FRONT_CORE, act);
    }

    /// The change goes on to this stage.
    fn change_stage(&mut self, stage: Stage) -> Receipt {
        let receipt = Receipt::default();
        self.past.note_receipt(&receipt);
        self.administrator.change = Some((Rc::downgrade(&receipt), stage));
        receipt
    }

    /// Goes on with a change when the receipt of its stage has gone.
    fn advance_change(&mut self) -> Result<(), Breach> {
        let change = &mut self.administrator.change;
        let is_done = |(receipt, _): &mut (Weak<()>, Stage)| receipt.strong_count() == 0;
        let Some((_, stage)) = change.take_if(is_done) else {
            return Ok(());
        };
        match stage {
            Stage::Access => {
                let reports = Rc::default();
                let receipt = self.change_stage(Stage::Report(Rc::clone(&reports)));
                for core in 0..self.scenario.target.cores {
                    let (reports, receipt) = (Rc::clone(&reports), Rc::clone(&receipt));
                    let act = Order::new(move |core| {
                        let found = core.sessions.report(&core.engine);
                        reports.borrow_mut().extend(found);
                        drop(receipt);
                    });
                    self.order(core, act);
                }
                Ok(())
            }
            Stage::Report(reports) => {
                self.judge(mem::take(&mut *reports.borrow_mut()));
                Ok(())
            }
            Stage::Leave => self.check_change(),
        }
    }

    /// What the rules say of sessions that are there.
    fn judge(&mut self, sessions: Vec<SessionReport>) {
        let rules = Arc::clone(&self.administrator.rules);
        let receipt = self.change_stage(Stage::Leave);
        for session in sessions.into_iter().filter(|session| !session.is_ending) {
            let front::TransportDetails::Iscsi { tsih, .. } = session.transport else {
                continue;
            };
            match rules.luns(&session.asker(), TARGET) {
                Err(_) => self.dismiss_session(session.core, session.id, tsih),
                Ok(luns) => {
                    let grant = Grant {
                        session: session.id,
                        core: session.core,
                        luns,
                        targets: Vec::new(),
                    };
                    let receipt = Rc::clone(&receipt);
                    let act = Order::new(move |core| {
                        core.sessions.grant(&mut core.engine, grant, &receipt);
                    });
                    self.order(session.core, act);
                }
            }
        }
    }

    /// A change has reached every session: none is there that may not be, and each sees what it may.
    fn check_change(&self) -> Result<(), Breach> {
        for session in self.host.report().iter().filter(|one| !one.is_ending) {
            let luns = self.administrator.rules.luns(&session.asker(), TARGET);
            let is_right = match luns {
                Ok(luns) => luns == session.luns,
                // Its end has begun with a message to its initiator.
                Err(_) => {
                    matches!(session.transport, front::TransportDetails::Iscsi { tsih, .. } if self.is_dismissed(tsih))
                }
            };
            if !is_right {
                let detail = format!("{session:?} under {:?}", self.administrator.rules);
                return Err(Breach::new("a-change-reaches-every-session", detail));
            }
        }
        Ok(())
    }

    /// An order has come to a core: what it takes from sessions ends their commands, also those on
    /// their way.
    pub(super) fn excuse_commands(&mut self) {
        if self.scenario.changes_rules() {
            for player in &mut self.players {
                if let Some(session) = &mut player.session {
                    session.allow_vanishing();
                }
            }
        }
    }
}
