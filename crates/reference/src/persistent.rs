//! PERSISTENT RESERVE IN and OUT.
//!
//! Spec: SPC-4 5.13, 6.15, 6.16.

use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::command::number;
use crate::state::{Reservation, State};
use crate::turn::Turn;
use crate::types::{Nexus, Port};

/// What a PERSISTENT RESERVE OUT carries.
struct Order {
    kind: u8,
    is_whole_unit: bool,
    key: u64,
    action_key: u64,
    persists: bool,
}

impl Order {
    const fn has_valid_type(&self) -> bool {
        self.is_whole_unit && matches!(self.kind, 1 | 3 | 5..=8)
    }

    fn reservation(&self, port: &Port) -> Reservation {
        let holder = (self.kind < 7).then(|| port.clone());
        Reservation {
            holder,
            kind: self.kind,
        }
    }
}

impl Turn<'_> {
    pub(crate) fn persistent_in(&mut self) {
        let (state, shared) = (self.state, &self.state.shared);
        let held = shared.reservation.as_ref();
        let mut list = Vec::new();
        for (port, &key) in &shared.registrations {
            let held = held.filter(|_| state.holds(port));
            list.push((key, held.map_or(0, |held| held.kind)));
        }
        let answer = match self.command.cdb[1] & 0x1f {
            0 => Answer::Keys(
                shared.generation,
                list.iter().map(|&(key, _)| (key, 0)).collect(),
            ),
            1 => {
                let mut data = shared.generation.to_be_bytes().to_vec();
                data.extend_from_slice(&[0, 0, 0, if held.is_some() { 16 } else { 0 }]);
                if let Some(Reservation { holder, kind }) = held {
                    let key = holder
                        .as_ref()
                        .and_then(|holder| shared.registrations.get(holder));
                    data.extend_from_slice(&key.copied().unwrap_or(0).to_be_bytes());
                    data.extend_from_slice(&[0, 0, 0, 0, 0, *kind, 0, 0]);
                }
                Answer::Data(data)
            }
            2 => Answer::Done,
            3 => Answer::FullStatus(shared.generation, list),
            _ => Answer::Refused,
        };
        self.plain(answer);
    }

    pub(crate) fn persistent_out(&mut self) {
        let (command, list) = (self.command, &self.command.data_out);
        // SPEC_I_PT and ALL_TG_PT are not known.
        if command.field(5..9) != 24 || list.len() < 24 || list[20] & 0x0c != 0 {
            return self.may(Answer::Refused);
        }
        if command.is_odd {
            self.may(Answer::Refused);
        }
        let order = Order {
            kind: command.cdb[2] & 0x0f,
            is_whole_unit: command.cdb[2] >> 4 == 0,
            key: number(&list[..8]),
            action_key: number(&list[8..16]),
            persists: list[20] & 1 != 0,
        };
        let registered = self.state.shared.registrations.get(self.port).copied();
        match command.cdb[1] & 0x1f {
            0 if registered.unwrap_or(0) != order.key => self.may(Answer::Conflict),
            0 | 6 => self.register(&order),
            1..=5 if registered != Some(order.key) => self.may(Answer::Conflict),
            1 => self.reserve_persistently(&order),
            2 => self.release_persistently(&order),
            3 => self.clear(),
            4 => self.preempt(&order, false),
            5 => self.preempt(&order, true),
            _ => self.may(Answer::Refused),
        }
    }

    fn register(&mut self, order: &Order) {
        let (nexus, port) = (self.nexus, self.port);
        let is_registered = self.state.shared.registrations.contains_key(port);
        if order.action_key == 0 && !is_registered {
            // The standard does not say whether what changes nothing counts, nor of APTPL.
            self.may(Answer::Done);
            self.change(Answer::Done, State::count);
            self.change(Answer::Done, |state| state.shared.persists = order.persists);
        }
        self.change(Answer::Done, |state| {
            state.count();
            state.shared.persists = order.persists;
            if order.action_key == 0 {
                state.unregister(nexus, port);
            } else {
                state
                    .shared
                    .registrations
                    .insert(port.clone(), order.action_key);
            }
        });
        if order.action_key != 0 && !is_registered {
            // INSUFFICIENT REGISTRATION RESOURCES
            self.may(Answer::Check(5, 0x5504));
        }
    }

    fn reserve_persistently(&mut self, order: &Order) {
        let (state, port) = (self.state, self.port);
        if !order.has_valid_type() {
            self.may(Answer::Refused);
        }
        match &state.shared.reservation {
            Some(held) if state.holds(port) && held.kind == order.kind => self.may(Answer::Done),
            Some(_) => self.may(Answer::Conflict),
            None if !order.has_valid_type() => {}
            None => self.change(Answer::Done, |state| {
                state.shared.reservation = Some(order.reservation(port));
            }),
        }
    }

    fn release_persistently(&mut self, order: &Order) {
        let (state, nexus) = (self.state, self.nexus);
        let held = state.shared.reservation.as_ref();
        match held.filter(|_| state.holds(self.port)) {
            None => self.may(Answer::Done),
            Some(held) if held.kind != order.kind || !order.is_whole_unit => {
                self.may(Answer::Check(5, 0x2604));
                self.may(Answer::Check(5, 0x2400));
            }
            Some(_) => self.change(Answer::Done, |state| state.end_reservation(nexus)),
        }
    }

    fn clear(&mut self) {
        let nexus = self.nexus;
        self.change(Answer::Done, |state| {
            let ports = state.registrants();
            state.shared.registrations.clear();
            state.shared.reservation = None;
            state.count();
            state.owe_ports(&ports, 0x2a03, Some(nexus));
        });
    }

    fn preempt(&mut self, order: &Order, aborts: bool) {
        let (shared, port, nexus) = (&self.state.shared, self.port, self.nexus);
        let held = shared.reservation.as_ref();
        let holder = held.and_then(|held| held.holder.as_ref());
        let is_for_all = held.is_some() && holder.is_none();
        let is_all = is_for_all && order.action_key == 0;
        if order.action_key == 0 && !is_for_all {
            self.may(Answer::Refused);
            return self.may(Answer::Conflict);
        }
        let holders_key = holder.and_then(|holder| shared.registrations.get(holder));
        let takes = is_all || holders_key == Some(&order.action_key);
        let hit = |key: u64| is_all || key == order.action_key;
        if !shared.registrations.values().any(|&key| hit(key)) {
            return self.may(Answer::Conflict);
        }
        if !order.has_valid_type() {
            self.may(Answer::Refused);
            if takes {
                return;
            }
        }
        let mut gone = self.state.registrants();
        gone.retain(|other| other != port && hit(shared.registrations[other]));
        self.change(Answer::Done, |state| {
            state.count();
            state
                .shared
                .registrations
                .retain(|other, _| !gone.contains(other));
            state.owe_ports(&gone, 0x2a05, Some(nexus));
            if takes {
                state.take_reservation(order.reservation(port), nexus);
            }
            if aborts {
                state.abort(&gone);
            }
        });
    }
}

impl State {
    fn unregister(&mut self, nexus: Nexus, port: &Port) {
        let held = self.holds(port);
        let shared = &mut self.shared;
        shared.registrations.remove(port);
        let is_for_all = shared
            .reservation
            .as_ref()
            .is_some_and(|held| held.kind >= 7);
        if held && (!is_for_all || shared.registrations.is_empty()) {
            self.end_reservation(nexus);
        }
    }

    /// Releases, and says so to those that had access by it.
    fn end_reservation(&mut self, nexus: Nexus) {
        let old = self.shared.reservation.take();
        if old.is_some_and(|old| old.kind >= 5) {
            self.owe_ports(&self.registrants(), 0x2a04, Some(nexus));
        }
    }

    /// Replaces a reservation, and says so if its type changes.
    fn take_reservation(&mut self, new: Reservation, nexus: Nexus) {
        let kind = new.kind;
        let old = self.shared.reservation.replace(new);
        if old.is_some_and(|old| old.kind != kind) {
            self.owe_ports(&self.registrants(), 0x2a04, Some(nexus));
        }
    }

    /// Ends what PREEMPT AND ABORT ends beside registrations: prevention of removal, and tasks.
    fn abort(&mut self, ports: &BTreeSet<Port>) {
        for nexus in self.nexuses_of(ports, None) {
            let session = self.session_of(nexus);
            self.shared.prevents.remove(&session);
            self.owe(nexus, 0x2f00, true);
        }
    }

    const fn count(&mut self) {
        self.shared.generation = self.shared.generation.wrapping_add(1);
    }
}
