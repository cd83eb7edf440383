//! Changes of a unit's shared state: what its owner decides ([`crate::agree`]) is carried to every
//! core, and done there.

use std::mem;
use std::sync::Arc;

use marks::sometimes;
use scsi::{Change, ChangeKind, Nexus, NexusSlot, Shared, Who};

use crate::agree::{Order, ToCore, ToOwner, Update};
use crate::authority::{SaveError, Version};
use crate::carrier::{Carrier, Letter, News};
use crate::engine::Engine;
use crate::keys::TaskKey;
use crate::task::{Request, Stage, Then};
use crate::{Ticket, UnitIndex};

/// How many stores are looked at per call, so that many units cost no more than few.
const PROBES_MAX: usize = 8;

impl<C: Carrier> Engine<C> {
    /// A letter of another core, or of this one.
    pub fn handle_letter(&mut self, unit: UnitIndex, letter: Letter) {
        match letter {
            Letter::ToOwner(message) => self.handle_to_owner(unit, message),
            Letter::ToCore(message) => self.handle_from_owner(unit, message),
        }
    }

    // ---- the owner's side --------------------------------------------------------------------

    fn handle_to_owner(&mut self, unit: UnitIndex, message: ToOwner) {
        debug_assert_eq!(
            self.owner_of(unit),
            self.settings.core,
            "{message:?} of {unit:?} came to another core than its owner"
        );
        let now = self.now;
        if let Some(owner) = &mut self.units[unit].owner {
            owner.handle(message, now);
            self.carry_orders_out(unit);
        } else if let Some((core, message)) = message.answer_of_the_gone() {
            self.carrier.post(core, unit, Letter::ToCore(message));
        }
    }

    fn carry_orders_out(&mut self, unit: UnitIndex) {
        let Some(owner) = &mut self.units[unit].owner else {
            return;
        };
        while let Some(order) = owner.poll_order() {
            match order {
                Order::Post { core, message } => {
                    self.carrier.post(core, unit, Letter::ToCore(message));
                }
                Order::PostToAll(message) => {
                    for core in 0..self.settings.cores {
                        let letter = Letter::ToCore(message.clone());
                        self.carrier.post(core, unit, letter);
                    }
                }
                Order::Save(save) => self.carrier.save(unit, save),
            }
        }
        if let Some(at) = owner.poll_timeout() {
            self.owner_deadlines.insert((at, unit));
        }
    }

    /// The authority has saved the state of a unit, or has not.
    pub fn handle_saved(&mut self, unit: UnitIndex, outcome: &Result<Version, SaveError>) {
        let now = self.now;
        if let Some(owner) = &mut self.units[unit].owner {
            owner.handle_saved(outcome, now);
            self.carry_orders_out(unit);
        }
    }

    /// Answers changes that have waited too long.
    pub(crate) fn end_overdue_changes(&mut self) {
        let now = self.now;
        while let Some(&(at, unit)) = self.owner_deadlines.first()
            && at <= now
        {
            self.owner_deadlines.pop_first();
            // The change that this was for may be over, and another one be under way.
            if let Some(owner) = &mut self.units[unit].owner {
                owner.handle_timeout(now);
                self.carry_orders_out(unit);
            }
        }
    }

    // ---- every core's side -------------------------------------------------------------------

    fn handle_from_owner(&mut self, unit: UnitIndex, message: ToCore) {
        debug_assert!(
            !matches!(
                &message,
                ToCore::Changed { ticket, .. }
                | ToCore::AccessRefused { ticket }
                | ToCore::FenceGranted { ticket }
                    if ticket.core != self.settings.core
            ),
            "{message:?} answers another core"
        );
        match message {
            ToCore::Changed {
                ticket,
                reply,
                is_complete,
            } => self.handle_changed(ticket, reply, is_complete),
            ToCore::Install { shared, update } => self.handle_install(unit, &shared, &update),
            ToCore::SetAccessRefused { blocks, round } => {
                self.handle_set_access_refused(unit, blocks, round);
            }
            ToCore::AccessRefused { ticket } => self.handle_access_refused(ticket),
            ToCore::FenceRaise {
                fence,
                holder,
                blocks,
            } => self.handle_fence_raise(unit, fence, holder, blocks),
            ToCore::FenceGranted { ticket } => self.handle_fence_granted(ticket),
            ToCore::FenceLower { fence } => self.handle_fence_lower(unit, fence),
        }
    }

    fn handle_install(&mut self, unit: UnitIndex, shared: &Arc<Shared>, update: &Update) {
        // Every core has had all states before this one, in order.
        debug_assert!(
            shared
                .generation
                .wrapping_sub(self.units[unit].view.shared().generation)
                <= u64::from(update.changes_state),
            "{unit:?} is given a state that does not follow its own"
        );
        if update.changes_state {
            self.note_state(unit, shared);
            let unit = &mut self.units[unit];
            unit.view.install(shared, &update.notices);
            // The size of the store is part of what every core must know.
            unit.refresh_size();
        }
        let keys = if update.abort.is_empty() {
            Vec::new()
        } else {
            sometimes!("a change ends commands of others");
            self.tasks_to_end(unit, update)
        };
        self.abort_tasks(&keys, Then::Installed { unit });
    }

    /// The tasks that must have ended before an update counts as installed here.
    fn tasks_to_end(&mut self, unit: UnitIndex, update: &Update) -> Vec<TaskKey> {
        let is_meant = |nexus: &Nexus| update.abort.iter().any(|who: &Who| who.is(nexus));
        let nexuses = self.units[unit].view.nexuses();
        let nexuses = nexuses.filter(|(_, nexus)| is_meant(nexus));
        let slots: Vec<NexusSlot> = nexuses.map(|(slot, _)| slot).collect();
        let is_own = update.ticket.core == self.settings.core;
        let own = match self.request_mut(update.ticket) {
            Some(Request::Task(key)) if is_own => Some(*key),
            Some(_) | None => None,
        };
        let mut keys = Vec::new();
        for (key, running) in self.tasks.iter_mut().filter(|(_, one)| one.unit == unit) {
            // What a session that is gone has left in the store counts as well.
            if let Some(port) = &running.orphan {
                if update.abort.iter().any(|who| who.is_port(port)) {
                    sometimes!("an orphan is to end with the reservation of its port");
                    keys.push(key);
                }
                continue;
            }
            let is_of_nexus = running.session.is_some() && slots.contains(&running.nexus);
            if !is_of_nexus || Some(key) == own {
                continue;
            }
            if matches!(running.stage, Stage::Owner) {
                // It waits behind this change, so this change cannot wait for it. It ends
                // with its answer, which goes nowhere.
                sometimes!("a change ends a command that waits behind it");
                running.is_aborted = true;
            } else {
                keys.push(key);
            }
        }
        keys
    }

    // ---- size --------------------------------------------------------------------------------

    /// Looks at the size of a few stores whose units this core owns. A store has one such operation under way
    /// at most, so that a stuck file system stops neither the core nor the questions to others.
    pub fn probe_some(&mut self) {
        for _ in 0..PROBES_MAX.min(self.units.len()) {
            let index = self.next_probe;
            let next = UnitIndex(index.0 + 1);
            self.next_probe = if next == self.units.next() {
                UnitIndex(0)
            } else {
                next
            };
            let unit = &mut self.units[index];
            if unit.owner.is_none() {
                continue;
            }
            unit.store.probe(&mut unit.outlet);
            self.carry_orders(index);
        }
    }

    /// An administrator says that the store of a unit has another size. The receipt is kept until
    /// every core knows it.
    pub fn handle_size_changed(&mut self, unit: UnitIndex, receipt: C::Receipt) {
        self.take_size(unit, Some(receipt));
    }

    /// Takes over the size that the store was found to have, and announces a new one to all cores.
    pub(crate) fn take_size(&mut self, index: UnitIndex, receipt: Option<C::Receipt>) {
        let unit = &mut self.units[index];
        let Some(owner) = &unit.owner else {
            return;
        };
        // What is in force may not be with every core yet.
        let known = Some(owner.shared().blocks).filter(|_| !owner.is_installing());
        unit.refresh_size();
        let capabilities = unit.store.capabilities();
        let blocks = capabilities.size_bytes / u64::from(capabilities.block_bytes);
        let before = mem::replace(&mut unit.blocks_asked, blocks);
        if blocks != before {
            sometimes!("a store has another size");
            self.carrier.notify(News::UnitResized {
                unit: index,
                before,
                blocks,
            });
        } else if known == Some(blocks) || receipt.is_none() {
            return;
        }
        let ticket = receipt.map_or(Ticket::NOBODY, |receipt| {
            self.open_request(Request::Administrator { _receipt: receipt })
        });
        let kind = ChangeKind::CapacityChanged { blocks };
        self.ask_change(index, ticket, Change { from: None, kind });
    }
}
