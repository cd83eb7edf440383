//! Changes of the plan: who sees what before, after and meanwhile.

use std::collections::BTreeSet;

use super::Books;
use crate::ledger::Handle;
use crate::many::outcomes::Kind;
use crate::many::seat::Seat;
use crate::plan::Plan;

impl Books {
    /// An administrator changes who sees what.
    pub(in crate::many) fn begin_change(&mut self, plan: Plan) {
        self.before = Some(std::mem::replace(&mut self.plan, plan));
        self.changed = self.new_handle();
        for player in self.present.clone() {
            self.credit_change(player);
        }
        self.judge_change();
        for player in 0..self.seats.len() {
            let mut views = self.plans().map(|plan| self.luns(plan, player));
            let is_whole = matches!(self.seats[player], Seat::Nbd { .. });
            let (now, before) = (views.next().flatten(), views.next().flatten());
            let is_other = now != before;
            drop(views);
            if now.is_none() || before.is_none() || is_whole && is_other {
                self.may_end.insert(player);
            }
            if is_other {
                self.note_leaving(player);
            }
        }
        let mut others = BTreeSet::new();
        for player in 0..self.seats.len() {
            for number in self.numbers(player) {
                let (door, views) = ((player, number), self.views((player, number)));
                if views.contains(&None) {
                    self.shut.insert(door);
                }
                if views.iter().any(|view| *view != views[0]) {
                    others.insert(door);
                }
            }
        }
        self.credit_under_way(|door| others.contains(&door));
        // Resets may come to what their numbers lead to now.
        let resets = self.resets.iter().map(|(handle, reset)| {
            let known = reset.units.iter().map(|(unit, ..)| *unit);
            (*handle, reset.player, reset.number, known.collect())
        });
        let resets: Vec<(Handle, usize, Option<u16>, Vec<usize>)> = resets.collect();
        for (handle, player, number, known) in resets {
            let units = self.units_to_reset(player, number);
            for unit in units.into_iter().filter(|unit| !known.contains(unit)) {
                self.extend_reset(handle, unit);
            }
        }
        self.redirect_open();
    }

    /// Commands under way may come to what their numbers lead to now.
    pub(super) fn redirect_open(&mut self) {
        let handles: Vec<Handle> = self.open.keys().copied().collect();
        for handle in handles {
            let Some(mut open) = self.open.remove(&handle) else {
                continue;
            };
            let views = self.views(open.door);
            open.may_vanish |= views.iter().any(|view| *view != views[0]);
            open.may_vanish |= self.may_end.contains(&open.door.0);
            let known = open.units.clone();
            self.note_view(handle, &mut open, views[0]);
            if open.may_miss || open.units.len() > 1 {
                self.judge_beginning(handle, &open);
            }
            // What it brings the nexuses of another unit it may bring those of this one.
            if let Some((kind, count, units)) = open.notice() {
                self.credit(kind, count, |_, unit| {
                    units.contains(&unit) && !known.contains(&unit)
                });
            }
            self.open.insert(handle, open);
        }
    }

    /// What a change may bring a player.
    pub(super) fn credit_change(&mut self, player: usize) {
        for number in self.numbers(player) {
            let views = self.views((player, number));
            if views.iter().any(|view| *view != views[0]) {
                self.credit(Kind::Mode, 1, |door, _| door == (player, number));
                self.credit(Kind::Reset, 1, |door, _| door == (player, number));
            }
        }
        self.credit(Kind::Luns, 1, |door, _| door.0 == player);
    }

    /// Everybody sees what the plan says.
    pub(in crate::many) fn end_change(&mut self) {
        self.before = None;
        let is_joined = |player: usize| {
            let is_device = matches!(self.seats[player], Seat::Hyperscsi);
            self.joined.contains(&player) && !is_device
        };
        let books = self.units.iter_mut();
        books.for_each(|book| book.judge.end_change(is_joined));
        self.changed = self.new_handle();
    }
}
