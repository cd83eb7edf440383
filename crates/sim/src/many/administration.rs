//! The administrator: changes who sees what, and moves media. It sends letters to cores, as the administration of the
//! program does, and waits for its receipts.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use engine::{FlushFailure, MediumFailure, MediumOrder, UnitIndex};
use front::iscsi::Grant;
use front::{Policy as _, SessionReport, TransportDetails};

use super::World;
use super::administrator::{Moving, Stage};
use super::quota::Quota;
use super::served::draw_change;
use crate::initiator::Breach;
use crate::letter::{Letter, Order, Receipt};
use crate::plan::Plan;
use crate::setup::Rules;

impl World {
    pub(super) fn is_administered(&self) -> bool {
        let administrator = &self.administrator;
        administrator.stage.is_some()
            || !administrator.moving.is_empty()
            || !administrator.orders.is_idle()
            || self.quota.as_ref().is_some_and(Quota::is_setting)
    }

    pub(super) fn administer(&mut self) {
        if self.prng.chance(self.administrator.changes) {
            self.change_plan();
        }
        if self.prng.chance(self.administrator.moves) {
            self.move_medium();
        }
        if self.prng.chance(self.administrator.others) {
            self.order_something();
        }
    }

    pub(super) fn order(&mut self, core: usize, order: Order) {
        self.post(self.settings.cores, core, Letter::Order(order));
    }

    /// What follows for the administrator.
    pub(super) fn check_administration(&mut self) -> Result<(), Breach> {
        for (unit, outcome) in self.host.take_moved() {
            match self.take_ordered(unit, &outcome) {
                Some(taken) => taken?,
                None => self.take_moved(unit, &outcome)?,
            }
        }
        self.check_orders()?;
        self.keep_quota()?;
        self.check_media()?;
        self.advance_change()
    }

    // ---- who sees what -----------------------------------------------------------------------

    /// The cores learn what is served, first, or from now on.
    pub(super) fn serve(&mut self) -> Receipt {
        let receipt = Receipt::default();
        self.receipts.push(Rc::downgrade(&receipt));
        let rules = Arc::new(self.rules());
        let groups = self.served.groups(&rules.plan);
        for core in 0..self.settings.cores {
            let (rules, groups) = (Arc::clone(&rules), Arc::clone(&groups));
            let (server, receipt) = (self.served.server.clone(), Rc::clone(&receipt));
            let (place, sizes) = (self.served.place().clone(), self.served.sizes);
            let act = Order::new(move |core| {
                if let Some(front) = &mut core.sessions.front {
                    rules.put_in_force(front);
                }
                if let Some(front) = &mut core.nbd.front {
                    front.set_policy(rules);
                }
                let door = vec![(place, (), sizes)];
                let engine = &mut core.engine;
                let changed = (core.hyperscsi).set_groups(engine, (server, groups), door, &receipt);
                for key in changed.opened {
                    core.hyperscsi.set_sizes(&mut core.engine, key, sizes);
                }
            });
            self.order(core, act);
        }
        receipt
    }

    fn rules(&self) -> Rules {
        Rules {
            plan: self.books.plan.clone(),
            ..self.settings.rules()
        }
    }

    fn change_plan(&mut self) {
        if self.administrator.stage.is_some() {
            return;
        }
        let (plan, seats) = (&self.books.plan, &self.books.seats);
        let plan: Plan = draw_change(plan, seats, &mut self.prng);
        self.put_in_force(plan);
    }

    /// Everybody is to see this.
    pub(super) fn put_in_force(&mut self, plan: Plan) {
        self.report.changes += 1;
        self.books.begin_change(plan);
        self.note_plan();
        let receipt = self.serve();
        self.administrator.stage = Some((Rc::downgrade(&receipt), Stage::Access));
    }

    fn begin_stage(&mut self, stage: Stage) -> Receipt {
        let receipt = Receipt::default();
        self.administrator.stage = Some((Rc::downgrade(&receipt), stage));
        receipt
    }

    /// Goes on with a change when the receipt of its stage has gone.
    fn advance_change(&mut self) -> Result<(), Breach> {
        let is_done = |(receipt, _): &mut (Weak<()>, Stage)| receipt.strong_count() == 0;
        let Some((_, stage)) = self.administrator.stage.take_if(is_done) else {
            return Ok(());
        };
        match stage {
            Stage::Access => {
                let reports = Rc::default();
                let receipt = self.begin_stage(Stage::Report(Rc::clone(&reports)));
                for core in 0..self.settings.cores {
                    let (reports, receipt) = (Rc::clone(&reports), Rc::clone(&receipt));
                    let act = Order::new(move |core| {
                        let mut found = core.sessions.report(&core.engine);
                        found.extend(core.nbd.report(&core.engine));
                        reports.borrow_mut().extend(found);
                        drop(receipt);
                    });
                    self.order(core, act);
                }
                Ok(())
            }
            Stage::Report(reports) => {
                self.judge(reports.take());
                Ok(())
            }
            Stage::Leave => {
                self.note(|| "all see what the plan says".to_owned());
                self.books.end_change();
                self.check_change()
            }
        }
    }

    /// What the rules say of sessions that are there.
    fn judge(&mut self, sessions: Vec<SessionReport>) {
        let rules = self.rules();
        let receipt = self.begin_stage(Stage::Leave);
        self.leave_unit(&receipt);
        for session in sessions.into_iter().filter(|session| !session.is_ending) {
            let (id, receipt) = (session.id, Rc::clone(&receipt));
            let luns = match (&session.transport, session.target) {
                (TransportDetails::Iscsi { .. }, Some(target)) => {
                    rules.luns(&session.asker(), target).ok()
                }
                (TransportDetails::Nbd { export, .. }, _) => {
                    let is_as_before = is_shown(&rules.plan, export, &session);
                    if is_as_before {
                        continue;
                    }
                    None
                }
                (_, _) => continue,
            };
            let act = match luns {
                Some(luns) => {
                    let grant = Grant {
                        session: id,
                        core: session.core,
                        luns,
                        targets: Vec::new(),
                    };
                    Order::new(move |core| core.sessions.grant(&mut core.engine, grant, &receipt))
                }
                None => Order::new(move |core| {
                    let engine = &mut core.engine;
                    if core.nbd.session(id).is_some() {
                        core.nbd.dismiss(engine, id, "dismissed", receipt);
                    } else {
                        core.sessions.dismiss(engine, id, "dismissed", receipt);
                    }
                }),
            };
            self.order(session.core, act);
        }
    }

    /// A change has reached every session: each sees what it may.
    fn check_change(&self) -> Result<(), Breach> {
        let rules = self.rules();
        for session in self.host.report().iter().filter(|one| !one.is_ending) {
            let Some(target) = session.target else {
                continue;
            };
            // The end of others has begun with a message to their initiator.
            let luns = rules.luns(&session.asker(), target);
            if luns.is_ok_and(|luns| luns != session.luns) {
                let detail = format!("{session:?} under {:?}", rules.plan);
                return Err(Breach::new("a-change-reaches-every-session", detail));
            }
        }
        Ok(())
    }

    // ---- media -------------------------------------------------------------------------------

    fn move_medium(&mut self) {
        let units: Vec<UnitIndex> = self.books.plan.present_units().collect();
        let Some(unit) = self.prng.pick(&units) else {
            return;
        };
        let book = &self.books.units[unit.as_usize()];
        let is_moving = self.administrator.moving.contains_key(&unit);
        if !book.is_removable || is_moving || self.is_ordered(unit) {
            return;
        }
        let is_eject = match book.is_in() {
            Some(is_in) => is_in,
            None => self.prng.chance(500),
        };
        let order = match is_eject {
            true => MediumOrder::Eject {
                force: self.prng.chance(400),
            },
            false => MediumOrder::Load,
        };
        let handle = self.books.new_handle();
        if !is_eject {
            self.books.begin_load(unit.as_usize());
        }
        let change = self.books.units[unit.as_usize()].begin_move(handle, order);
        self.administrator.left_alone.remove(&unit);
        let moving = Moving {
            order,
            handle,
            change,
        };
        self.administrator.moving.insert(unit, moving);
        self.note(|| format!("the medium of {unit:?}: {order:?}"));
        let act = Order::new(move |core| core.engine.move_medium(unit, order));
        self.order(unit.owner(self.settings.cores), act);
    }

    /// A medium has moved, or has not, for which there must be a reason.
    fn take_moved(
        &mut self,
        unit: UnitIndex,
        outcome: &Result<(), MediumFailure>,
    ) -> Result<(), Breach> {
        self.note(|| format!("the medium of {unit:?}: {outcome:?}"));
        let Some(moving) = self.administrator.moving.remove(&unit) else {
            let detail = format!("the medium of {unit:?} ended a move that was not ordered");
            return Err(Breach::new("one-outcome", detail));
        };
        self.books.end_load(unit.as_usize());
        let book = &mut self.books.units[unit.as_usize()];
        let Moving {
            order,
            handle,
            change,
        } = moving;
        let is_eject = matches!(order, MediumOrder::Eject { .. });
        let is_explained = match outcome {
            Ok(()) => true,
            Err(MediumFailure::Prevented) => {
                book.judge.note_prevented(handle);
                order == MediumOrder::Eject { force: false }
            }
            // What was saved before it took too long.
            Err(MediumFailure::Busy) => true,
            Err(MediumFailure::Unflushed(FlushFailure::NotInTime)) => is_eject,
            Err(MediumFailure::Unflushed(_)) => is_eject && book.faults.has_some(),
            // Its state could not be saved.
            Err(MediumFailure::Gone) => true,
            Err(MediumFailure::Fixed) => false,
        };
        book.end_move(handle, change, (is_eject, outcome.is_ok()));
        if outcome.is_ok() && book.is_in() == Some(false) {
            let touched = self.stores[unit.as_usize()].disk.touched();
            self.administrator.left_alone.insert(unit, touched);
        }
        match is_explained {
            true => Ok(()),
            false => {
                let detail = format!("{order:?} of {unit:?}: {outcome:?}");
                Err(Breach::new("every-status-has-a-reason", detail))
            }
        }
    }

    /// The disk of a medium that is out is asked for nothing but flushes.
    fn check_media(&mut self) -> Result<(), Breach> {
        let books = &self.books;
        self.administrator
            .left_alone
            .retain(|unit, _| books.units[unit.as_usize()].is_in() == Some(false));
        for (unit, touched) in &self.administrator.left_alone {
            if self.stores[unit.as_usize()].disk.touched() != *touched {
                let detail = format!("the disk of {unit:?} was asked for something");
                return Err(Breach::new("an-ejected-medium-is-left-alone", detail));
            }
        }
        Ok(())
    }
}

/// Whether a session of NBD has what it would have now.
fn is_shown(plan: &Plan, export: &str, session: &SessionReport) -> bool {
    let mut exports = plan.exports.iter();
    let now = exports.find(|one| one.name == export);
    now.is_some_and(|now| session.luns == [now.lun])
}
