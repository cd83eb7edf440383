//! Sessions begin and end, and what they see may change while they run.
//!
//! Commands on a unit that a session no longer sees get the time to end by themselves; those that
//! do not are aborted. Only then does the nexus leave the unit.

use marks::sometimes;
use memory::Pool;
use scsi::{Change, ChangeKind, Nexus, NexusId, NexusSlot, PortName, UnitAttention};

use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::{LeavingKey, SessionKey, TaskKey, ViewChangeKey};
use crate::luns::{MappedLun, NO_SERIES, VisibleLun};
use crate::port::Port;
use crate::report::Report;
use crate::session::Session;
use crate::task::{Leaving, Request, Then};
use crate::view_change::{Step, ViewChange};
use crate::{Ticket, UnitIndex};

/// What a piece of a change of all that a session sees costs, in bytes that are copied in the same time; its last step
/// may go beyond.
const PIECE_BYTES: usize = 64 * 1024;
/// The same of looking at a number.
const LOOK_BYTES: usize = 64;
/// The same of a unit attention for it.
const NOTICE_BYTES: usize = 512;
/// The same of giving or taking its unit, or the right to write.
const CHANGE_BYTES: usize = 4096;
/// The same of each task of the core, which is looked at for what is taken.
const TASK_BYTES: usize = 32;

impl<C: Carrier> Engine<C> {
    /// A session begins, with an account of [`Engine::pool`] for its data. The first command to each of its units gets
    /// `attention`, if there is any.
    pub fn begin_session(
        &mut self,
        mut port: C::Port,
        pool: Pool,
        (nexus, name): (NexusId, PortName),
        luns: &[VisibleLun],
        attention: Option<UnitAttention>,
    ) -> SessionKey {
        if self.is_short_of_memory {
            port.set_queue_limit(1);
        }
        let mut session = Session::new(port, nexus, name, pool);
        for visible in luns {
            if let Some(unit) = self.units.get_mut(visible.unit) {
                let nexus = Nexus {
                    read_only: visible.read_only,
                    ..session.nexus()
                };
                let slot = unit.view.attach(nexus, attention);
                debug_assert!(
                    session.luns.get(visible.lun).is_none(),
                    "LUN {} leads to two units",
                    visible.lun
                );
                session.luns.insert(visible.lun, mapped(visible.unit, slot));
            }
        }
        let from = session.nexus();
        let units: Vec<UnitIndex> = session.luns.iter().map(|mapped| mapped.unit).collect();
        let key = self.sessions.insert(session);
        for unit in units {
            self.notify_owner(unit, &from, ChangeKind::NexusAttached);
        }
        key
    }

    /// A session ends, which [`Report::SessionOver`] reports: its commands end first, or every core
    /// refuses access to the units that do not give them back.
    pub fn end_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.is_ending = true;
        let tasks = session.all_tasks();
        self.abort_tasks(&tasks, Then::SessionEnd { session: key });
        // A store may answer at once what was cancelled.
        self.settle_answers();
    }

    /// The tasks of a session have ended, or are given up: it leaves its units.
    pub(crate) fn remove_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let mut left = session.all_tasks();
        left.retain(|&task| self.tasks.get(task).is_some());
        for &task in &left {
            debug_assert!(
                self.tasks[task].is_aborted && self.tasks[task].stage.is_elsewhere(),
                "{task:?} is left by its session and goes on in {:?}",
                self.tasks[task].stage
            );
            sometimes!("a session ends and its store has a request");
            self.tasks[task].session = None;
        }
        let from = session.nexus();
        for mapped in session.luns.iter() {
            let unit = &mut self.units[mapped.unit];
            unit.view.detach(mapped.nexus);
            unit.note_departure(from.id, session.has_said_farewell, self.now);
            self.notify_owner(mapped.unit, &from, ChangeKind::NexusLost);
        }
        let session = Box::new(session);
        self.reports
            .push_back(Report::SessionOver { key, session, left });
    }

    /// Notifies the owner of a unit of a nexus, without an answer.
    fn notify_owner(&mut self, unit: UnitIndex, nexus: &Nexus, kind: ChangeKind) {
        let from = Some(nexus.clone());
        self.ask_change(unit, Ticket::NOBODY, Change { from, kind });
    }

    // ---- what a session sees -----------------------------------------------------------------

    /// Gives a session what it sees now and did not before, and takes what it does not see any more, when its turn
    /// comes. Units that it saw and still sees have a unit attention for that, and for another right to write. The
    /// receipt is kept until all of it is done and commands on what was taken are over.
    pub fn change_view(
        &mut self,
        session: SessionKey,
        (before, now): (Vec<VisibleLun>, Vec<VisibleLun>),
        receipt: C::Receipt,
    ) {
        let numbers = before.len().max(now.len());
        self.pieces.note_beside(numbers * LOOK_BYTES);
        if before == now {
            return;
        }
        let change = ViewChange::new(session, (before, now), receipt);
        let change = self.view_changes.insert(change);
        self.pieces.push_view_change(session, change);
        self.carry_on_pieces();
    }

    /// The turn of a change has come.
    pub(crate) fn carry_on_view_change(&mut self, key: ViewChangeKey) {
        let mut cost = 0;
        while cost < PIECE_BYTES {
            let Some(change) = self.view_changes.get_mut(key) else {
                return;
            };
            let session = change.session;
            let is_there = self.sessions.get(session).is_some_and(|it| !it.is_ending);
            // A session that ends loses all it sees.
            let Some(step) = change.next().filter(|_| is_there) else {
                self.view_changes.remove(key);
                self.pieces.note_begun(cost);
                return;
            };
            let receipt = change.receipt.clone();
            cost += self.change_lun(session, step, receipt);
        }
        if let Some(change) = self.view_changes.get(key) {
            sometimes!("a change of a view takes more than one turn");
            self.pieces.put_back_view_change(change.session, key);
        }
        self.pieces.note_begun(cost);
    }

    /// Gives what it costs.
    fn change_lun(&mut self, key: SessionKey, step: Step, receipt: C::Receipt) -> usize {
        let of_tasks = self.tasks.len() * TASK_BYTES;
        match step {
            Step::Look => LOOK_BYTES,
            Step::Take(old) => {
                self.take_lun(key, old.lun, receipt);
                CHANGE_BYTES + of_tasks
            }
            Step::Give(new) => {
                self.give_lun(key, new, receipt);
                CHANGE_BYTES
            }
            Step::SetReadOnly(new) => {
                self.set_read_only(key, new.lun, new.read_only, receipt);
                CHANGE_BYTES + of_tasks
            }
            Step::Notify(new) => {
                self.notify_luns_changed(key, new.lun);
                NOTICE_BYTES
            }
        }
    }

    /// A number of a session leads to a unit from now on. The receipt is kept until every core knows
    /// the nexus.
    pub fn give_lun(&mut self, key: SessionKey, lun: VisibleLun, receipt: C::Receipt) {
        self.end_what_was_held(key, lun.unit);
        let (Some(session), Some(unit)) =
            (self.sessions.get_mut(key), self.units.get_mut(lun.unit))
        else {
            return;
        };
        let nexus = Nexus {
            read_only: lun.read_only,
            ..session.nexus()
        };
        debug_assert!(
            session.luns.get(lun.lun).is_none(),
            "LUN {} leads to a unit already, whose nexus nobody would end",
            lun.lun
        );
        let attention = Some(UnitAttention::PowerOnOrReset);
        let slot = unit.view.attach(nexus.clone(), attention);
        session.luns.insert(lun.lun, mapped(lun.unit, slot));
        let ticket = self.open_request(Request::Administrator { _receipt: receipt });
        let change = Change {
            from: Some(nexus),
            kind: ChangeKind::NexusAttached,
        };
        self.ask_change(lun.unit, ticket, change);
    }

    /// A session that saw a unit by no number any more gets it by another one while commands of before are under way:
    /// its reservation and its PREVENT end first, as they do where no command is.
    fn end_what_was_held(&mut self, key: SessionKey, unit: UnitIndex) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let nexus = session.nexus();
        let is_leaving = |one: &Leaving<C>| one.unit == unit && one.nexus.id == nexus.id;
        let is_lost = self.leaving.iter().any(|(_, one)| is_leaving(one))
            && session.luns.iter().all(|mapped| mapped.unit != unit);
        if is_lost {
            self.notify_owner(unit, &nexus, ChangeKind::NexusLost);
        }
    }

    /// A number of a session leads nowhere from now on. The receipt is kept until every core knows
    /// that the nexus is gone.
    pub fn take_lun(&mut self, key: SessionKey, lun: u16, receipt: C::Receipt) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(mapped) = session.luns.remove(lun) else {
            return;
        };
        let leaving = self.leaving.insert(Leaving {
            unit: mapped.unit,
            slot: mapped.nexus,
            nexus: session.nexus(),
            receipt,
        });
        let tasks = self.tasks_of_leaving(leaving);
        self.await_tasks(&tasks, Then::Drained { leaving });
    }

    /// A session may write to a unit from now on, or not. It gets a unit attention, because the mode parameter
    /// header says so. The receipt is kept until the store has nothing that was written before.
    ///
    /// Spec: SBC-4, the WP bit.
    pub fn set_read_only(
        &mut self,
        key: SessionKey,
        lun: u16,
        read_only: bool,
        receipt: C::Receipt,
    ) {
        let Some(mapped) = self.mapped(key, lun) else {
            return;
        };
        let view = &mut self.units[mapped.unit].view;
        let was_read_only = view.is_read_only(mapped.nexus);
        if was_read_only == read_only {
            return;
        }
        view.set_read_only(mapped.nexus, read_only);
        view.notify(mapped.nexus, UnitAttention::ModeParametersChanged);
        if read_only {
            self.await_narrowed(mapped, receipt);
        }
    }

    /// A unit attention: other units of the session came or went.
    ///
    /// Spec: SPC-4, REPORTED LUNS DATA HAS CHANGED.
    pub fn notify_luns_changed(&mut self, key: SessionKey, lun: u16) {
        if let Some(mapped) = self.mapped(key, lun) {
            let view = &mut self.units[mapped.unit].view;
            view.notify(mapped.nexus, UnitAttention::ReportedLunsChanged);
        }
    }

    fn mapped(&self, key: SessionKey, lun: u16) -> Option<MappedLun> {
        self.sessions.get(key)?.luns.get(lun)
    }

    /// A nexus may no longer write. What has not reached the store is refused there
    /// ([`Engine::submit`]); the change is confirmed when the store has nothing more of it, or when
    /// every core refuses access because it does not give it back.
    fn await_narrowed(&mut self, mapped: MappedLun, receipt: C::Receipt) {
        let in_store = self.tasks.iter().filter(|(_, running)| {
            running.unit == mapped.unit && running.nexus == mapped.nexus && running.is_in_store()
        });
        let tasks: Vec<TaskKey> = in_store.map(|(key, _)| key).collect();
        if tasks.is_empty() {
            return;
        }
        sometimes!("a nexus loses the right to write with writes in the store");
        let narrowing = self.narrowing.insert(receipt);
        self.await_tasks(&tasks, Then::Narrowed { narrowing });
    }

    fn tasks_of_leaving(&self, leaving: LeavingKey) -> Vec<TaskKey> {
        let Some(leaving) = self.leaving.get(leaving) else {
            return Vec::new();
        };
        self.tasks
            .iter()
            .filter(|(_, running)| {
                running.session.is_some()
                    && running.unit == leaving.unit
                    && running.nexus == leaving.slot
            })
            .map(|(key, _)| key)
            .collect()
    }

    /// The commands of a nexus that leaves have ended, or have had their time.
    pub(crate) fn handle_drained(&mut self, leaving: LeavingKey) {
        let left = self.tasks_of_leaving(leaving);
        self.abort_tasks(&left, Then::Left { leaving });
    }

    /// None of them is left, or what is left is the unit's trouble: the nexus goes.
    pub(crate) fn handle_left(&mut self, leaving: LeavingKey) {
        let Some(Leaving {
            unit,
            slot,
            nexus,
            receipt,
        }) = self.leaving.remove(leaving)
        else {
            return;
        };
        for (_, running) in self.tasks.iter_mut() {
            if running.unit != unit || running.nexus != slot {
                continue;
            }
            debug_assert!(running.is_aborted, "a nexus leaves a task behind");
            // The slot may be given to another nexus, so that the end of the task is nothing to its
            // session any more: the command ends for that now.
            if let Some(session) = running.session.take()
                && let Some(entry) = self.sessions.get_mut(session)
                && let Some(answer) = running.answer.take()
            {
                sometimes!("a nexus leaves a unit and its store has a request");
                entry.set_task_key(running.id, None);
                entry.port.abandon(answer.spend());
                self.ready.push((session, None));
            }
        }
        self.units[unit].view.detach(slot);
        if self.units[unit].view.slot_of(nexus.id).is_some() {
            // The session sees the unit by another number.
            sometimes!("a nexus has left a number of a unit that it sees by another");
            return;
        }
        // Its session goes on.
        self.units[unit].note_departure(nexus.id, true, self.now);
        let ticket = self.open_request(Request::Administrator { _receipt: receipt });
        let change = Change {
            from: Some(nexus),
            kind: ChangeKind::NexusLost,
        };
        self.ask_change(unit, ticket, change);
    }
}

const fn mapped(unit: UnitIndex, nexus: NexusSlot) -> MappedLun {
    MappedLun {
        unit,
        nexus,
        series: NO_SERIES,
    }
}
