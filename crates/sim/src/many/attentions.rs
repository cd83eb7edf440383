//! How many unit attentions a nexus may report. The reference judges which it must.

use std::collections::BTreeSet;

use super::book::is_change;
use super::books::{Books, Open};
use super::outcomes::Kind;
use super::seat::Door;
use crate::initiator::{Breach, Operation};

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
        for player in self.present.clone() {
            for number in self.numbers(player) {
                let door = (player, number);
                let views = self.views(door);
                let mut units = views.iter().flatten();
                if units.any(|view| is_meant(door, view.unit.as_usize())) {
                    self.nexuses.entry(door).or_default()[kind as usize] += count;
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
        let Some(nexus) = self.nexuses.get_mut(&door) else {
            return Ok(());
        };
        let credit = &mut nexus[kind as usize];
        match credit.checked_sub(1) {
            Some(left) => {
                *credit = left;
                Ok(())
            }
            None => Err(Breach::new("an-attention-comes-once", found("again"))),
        }
    }
}
