//! Which unit attentions a nexus may report, and which it must.

use std::collections::BTreeSet;

use super::book::{is_change, key_of};
use super::books::{Books, Nexus, Open};
use super::outcomes::{KINDS, Kind};
use super::seat::{Door, Seat};
use crate::initiator::{Breach, Operation};
use crate::ledger::Handle;

impl Open {
    /// Of which unit attentions it is the reason, how many and of which units.
    pub(super) fn notice(&self) -> Option<(Kind, u32, BTreeSet<usize>)> {
        let (kind, count) = if self.operation == Operation::Load {
            (Kind::Medium, 1)
        } else if let Operation::SetWriteCache { .. } = self.operation {
            (Kind::Mode, 2)
        } else if is_change(&self.operation) {
            (Kind::Reservations, 2)
        } else {
            return None;
        };
        Some((kind, count, self.units.clone()))
    }
}

impl Books {
    /// Of what is under way a nexus may be notified that has just begun.
    pub(super) fn credit_under_way(&mut self, is_meant: impl Fn(Door) -> bool) {
        let resets = self.resets.values().map(|reset| {
            let units = reset.units.iter().map(|(unit, ..)| *unit);
            (Kind::Reset, 1, units.collect())
        });
        let loads = self.loads.iter();
        let loads = loads.map(|unit| (Kind::Medium, 1, BTreeSet::from([*unit])));
        let expected = self.expected.iter();
        let expected = expected.map(|(kind, count, unit)| (*kind, *count, BTreeSet::from([*unit])));
        let notices = self.open.values().filter_map(Open::notice);
        let all = notices.chain(resets).chain(loads).chain(expected);
        for (kind, count, units) in all.collect::<Vec<_>>() {
            self.credit(kind, count, |door, unit| {
                is_meant(door) && units.contains(&unit)
            });
        }
    }

    /// Nexuses that are meant may report so many more unit attentions of a kind.
    pub(super) fn credit(
        &mut self,
        kind: Kind,
        count: u32,
        is_meant: impl Fn(Door, usize) -> bool,
    ) {
        let now = self.next_handle;
        for player in self.present.clone() {
            for number in self.numbers(player) {
                let door = (player, number);
                let views = self.views(door);
                let mut units = views.iter().flatten();
                if units.any(|view| is_meant(door, view.unit.as_usize())) {
                    let nexus = self.nexuses.entry(door).or_insert_with(|| Nexus {
                        since: now,
                        credits: [0; KINDS],
                        reported: 0,
                        owes_from: None,
                        reported_reservations: 0,
                        owes_preempted_from: None,
                    });
                    nexus.credits[kind as usize] += count;
                }
            }
        }
    }

    pub(super) fn take_attention(
        &mut self,
        door: Door,
        kind: Kind,
        found: &impl Fn(&str) -> String,
    ) -> Result<(), Breach> {
        self.outcomes.attentions += 1;
        let now = self.next_handle;
        let Some(nexus) = self.nexuses.get_mut(&door) else {
            return Ok(());
        };
        if kind == Kind::Reset {
            (nexus.reported, nexus.owes_from) = (now, None);
        }
        if let Kind::Reset | Kind::Reservations = kind {
            (nexus.reported_reservations, nexus.owes_preempted_from) = (now, None);
        }
        let credit = &mut nexus.credits[kind as usize];
        match credit.checked_sub(1) {
            Some(left) => {
                *credit = left;
                Ok(())
            }
            None => Err(Breach::new("an-attention-comes-once", found("again"))),
        }
    }

    /// A nexus that has not reported a reset does not carry out commands that were sent after it.
    pub(super) fn check_owed(
        &self,
        handle: Handle,
        door: Door,
        found: &impl Fn(&str) -> String,
    ) -> Result<(), Breach> {
        let Some(nexus) = self.nexuses.get(&door) else {
            return Ok(());
        };
        // One that was carried out before it may have got the attention, and its answer be on its way: one that was
        // sent before it, or any where what was sent first may come last.
        let is_reordered = matches!(self.seats[door.0], Seat::Hyperscsi);
        let mut others = self.open.iter().filter(|(_, open)| open.door == door);
        let is_first = !others.any(|(other, _)| *other < handle || is_reordered && *other > handle);
        for (owes_from, rule) in [
            (nexus.owes_from, "a-reset-is-reported-to-each-nexus"),
            (nexus.owes_preempted_from, "a-preemption-is-reported"),
        ] {
            if owes_from.is_some_and(|from| handle >= from) && is_first {
                return Err(Breach::new(rule, found("before the attention")));
            }
        }
        Ok(())
    }

    /// Who was preempted is to report it, by the only number that leads to the unit.
    pub(super) fn owe_preempted(&mut self, handle: Handle, by: &Open) {
        let Operation::PreemptAndAbort { other, .. } = by.operation else {
            return;
        };
        let mut units = by.units.iter();
        let (Some(&unit), None) = (units.next(), units.next()) else {
            return;
        };
        let theirs = self.nexuses.keys().copied();
        let theirs = theirs.filter(|door| key_of(door.0) == other && self.may_lead(*door, unit));
        let theirs: Vec<Door> = theirs.collect();
        let now = self.new_handle();
        if let [door] = theirs[..]
            && self.unit_of(door) == Some(unit)
            && self.units[unit].resets == 0
            && let Some(nexus) = self.nexuses.get_mut(&door)
            && nexus.since < handle
            && nexus.reported_reservations < handle
        {
            nexus.owes_preempted_from = Some(now);
        }
    }

    fn may_lead(&self, door: Door, unit: usize) -> bool {
        let mut views = self.views(door).into_iter().flatten();
        views.any(|view| view.unit.as_usize() == unit)
    }
}
