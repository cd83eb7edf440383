//! Media move, on the core that owns their unit.

use std::sync::mpsc::Sender;
use std::time::SystemTime;

use engine::{MediumFailure, MediumOrder};
use front::iscsi::initiator_name;

use super::MediumReport;
use crate::core::Core;
use crate::plan::UnitIndex;

impl Core {
    /// One order at a time for each unit: another one is answered at once.
    pub(crate) fn handle_move_medium(
        &mut self,
        unit: UnitIndex,
        order: MediumOrder,
        answer: Sender<Result<(), MediumFailure>>,
    ) {
        if self.media.place(unit).is_some() {
            // The caller may have given up waiting.
            drop(answer.send(Err(MediumFailure::Busy)));
            return;
        }
        self.media.moving.push((unit, answer));
        self.engine.move_medium(unit, order);
    }

    pub(crate) fn handle_release_medium(
        &mut self,
        (unit, number): (UnitIndex, u64),
        answer: &Sender<bool>,
    ) {
        // The caller may have given up waiting.
        let _given_up = answer.send(self.engine.release_medium(unit, number));
    }

    pub(crate) fn handle_medium_moved(
        &mut self,
        unit: UnitIndex,
        outcome: Result<(), MediumFailure>,
    ) {
        let Some(at) = self.media.place(unit) else {
            debug_assert!(false, "no caller waits for {unit:?}");
            return;
        };
        let (_, answer) = self.media.moving.swap_remove(at);
        if let Err(failure @ MediumFailure::Unflushed(_)) = &outcome {
            // Also where the answer reaches nobody.
            let name = &self.engine.carrier.units[unit].name;
            tracing::error!(unit = %name, %failure, "the flush of an order for its medium failed");
        }
        let loss = outcome.as_ref().err().and_then(MediumFailure::loss);
        // The caller may have given up waiting. Once the program ends, an answer may reach nobody.
        let is_delivered = answer.send(outcome).is_ok() && self.stop_at.is_none();
        if let Some(lost) = loss.filter(|_| is_delivered) {
            self.engine.note_loss_delivered(unit, lost);
        }
    }

    /// Shows administrators the state of a unit that this core owns.
    pub(crate) fn publish_state(&self, unit: UnitIndex) {
        let Some(owner) = self.engine.owner(unit) else {
            return;
        };
        let now = SystemTime::now();
        self.media.shared.reserved.publish(unit, owner, now);
        if let Some(medium) = owner.medium() {
            let names = medium.prevented_by.iter();
            let report = MediumReport {
                is_in: medium.is_in,
                prevented_by: names
                    .map(|port| initiator_name(&port.transport_id))
                    .collect(),
            };
            self.media.shared.set(unit, report);
        }
    }
}
