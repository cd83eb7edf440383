//! What the judges of units learn: who sees what, and what happens. See [`crate::many`].

use engine::VisibleLun;

use super::{Books, Open};
use crate::initiator::Breach;
use crate::ledger::Handle;
use crate::many::seat::{Door, Seat};

impl Books {
    /// The reference learns which nexuses a session has that is about to begin.
    pub(super) fn seat(&mut self, player: usize) {
        self.units
            .iter_mut()
            .for_each(|book| book.judge.leave(player));
        for number in self.numbers(player) {
            let door = (player, number);
            let views = self.views(door);
            let first = views.last().copied().flatten();
            if let Some(lun) = first {
                let judge = &mut self.units[lun.unit.as_usize()].judge;
                judge.nexus_comes(door, &self.seats[player], lun);
            }
            self.take_door(door, (first, views[0]));
            self.give_door(door, (first, views[0]));
        }
    }

    /// A number does not lead where it did, or not as it did, from now on, or soon.
    fn take_door(&mut self, door: Door, (old, new): (Option<VisibleLun>, Option<VisibleLun>)) {
        let seat = &self.seats[door.0];
        let is_kept = is_kept((old, new));
        if let Some(old) = old.filter(|_| old != new) {
            let judge = &mut self.units[old.unit.as_usize()].judge;
            match seat {
                Seat::Iscsi { .. } if is_kept => judge.begin_view(door, !old.read_only),
                // It may be another nexus.
                Seat::Hyperscsi if is_kept => judge.end(),
                Seat::Iscsi { .. } | Seat::Hyperscsi | Seat::Nbd { .. } => judge.move_away(door),
            }
        }
    }

    /// It leads there.
    fn give_door(&mut self, door: Door, (old, new): (Option<VisibleLun>, Option<VisibleLun>)) {
        let seat = &self.seats[door.0];
        // A session of NBD ends with what it is for.
        let is_new = !is_kept((old, new)) && !matches!(seat, Seat::Nbd { .. });
        if let Some(new) = new.filter(|_| is_new) {
            let judge = &mut self.units[new.unit.as_usize()].judge;
            judge.nexus_comes(door, seat, new);
        }
    }

    /// Nexuses have begun.
    pub(super) fn note_come(&mut self, is_meant: impl Fn(Door) -> bool) {
        let books = self.units.iter_mut();
        books.for_each(|book| book.judge.nexus_has_come(&is_meant));
    }

    /// The reference judges what can come to one unit only.
    pub(super) fn judge_beginning(&mut self, handle: Handle, open: &Open) {
        let is_sure = open.units.len() == 1 && !open.may_miss;
        for unit in &open.units {
            let judge = &mut self.units[*unit].judge;
            match is_sure {
                true => {
                    let from = (open.door, &self.seats[open.door.0]);
                    judge.begin(handle, from, &open.operation);
                }
                false => judge.begin_perhaps(handle, open.door, &open.operation),
            }
        }
    }

    /// The reference learns what a change may bring.
    pub(super) fn judge_change(&mut self) {
        for player in self.present.clone() {
            let numbers = self.numbers(player).into_iter();
            let moves = numbers.map(|number| {
                let (door, views) = ((player, number), self.views((player, number)));
                (door, (views[1], views[0]))
            });
            let moves: Vec<_> = moves.collect();
            // A session loses what it loses before it gets anything.
            moves
                .iter()
                .for_each(|&(door, views)| self.take_door(door, views));
            moves
                .iter()
                .for_each(|&(door, views)| self.give_door(door, views));
        }
    }

    /// What the reference does not allow.
    pub(in crate::many) fn check_judges(&mut self) -> Result<(), Breach> {
        let mut books = self.units.iter_mut();
        match books.find_map(|book| book.judge.take_breach()) {
            Some(breach) => Err(breach),
            None => Ok(()),
        }
    }

    /// The target ends the session of a player, or may.
    pub(in crate::many) fn note_closed(&mut self, player: usize) {
        self.note_leaving(player);
        let books = self.units.iter_mut();
        books.for_each(|book| book.judge.may_end(player));
    }
}

/// Whether a number leads to the same unit before and after.
fn is_kept((old, new): (Option<VisibleLun>, Option<VisibleLun>)) -> bool {
    let unit = |lun: Option<VisibleLun>| lun.map(|lun| lun.unit);
    old.is_some() && unit(old) == unit(new)
}
