//! PERSISTENT RESERVE IN and OUT.
//!
//! Spec: SPC-4 5.13, 6.15, 6.16.

use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::command::{Command, number};
use crate::state::{Reservation, State, Step};
use crate::types::{Nexus, Port};

/// What a PERSISTENT RESERVE OUT carries.
struct Order {
    kind: u8,
    scope: u8,
    key: u64,
    action_key: u64,
    persists: bool,
}

impl State {
    pub(crate) fn persistent_in(&self, command: &Command, steps: &mut Vec<Step>) {
        let generation = self.shared.generation;
        let registrations = self.shared.registrations.iter();
        let held = self.shared.reservation.as_ref();
        let answer = match command.cdb[1] & 0x1f {
            0 => Answer::Keys(
                generation,
                registrations.map(|(_, &key)| (key, 0)).collect(),
            ),
            1 => {
                let mut data = generation.to_be_bytes().to_vec();
                data.extend_from_slice(&(if held.is_some() { 16_u32 } else { 0 }).to_be_bytes());
                if let Some(held) = held {
                    let key = held
                        .holder
                        .as_ref()
                        .and_then(|holder| self.shared.registrations.get(holder));
                    data.extend_from_slice(&key.copied().unwrap_or(0).to_be_bytes());
                    data.extend_from_slice(&[0, 0, 0, 0, 0, held.kind, 0, 0]);
                }
                Answer::Data(data)
            }
            2 => Answer::Done,
            3 => {
                let kind = |port: &Port| {
                    if self.holds(port) {
                        held.map_or(0, |held| held.kind)
                    } else {
                        0
                    }
                };
                Answer::FullStatus(
                    generation,
                    registrations
                        .map(|(port, &key)| (key, kind(port)))
                        .collect(),
                )
            }
            _ => Answer::Refused,
        };
        steps.push((None, answer));
        if command.is_odd {
            steps.push((None, Answer::Refused));
        }
    }

    pub(crate) fn persistent_out(
        &self,
        nexus: Nexus,
        port: &Port,
        command: &Command,
        steps: &mut Vec<Step>,
    ) {
        let list = &command.data_out;
        let action = command.cdb[1] & 0x1f;
        if command.field(5..9) != 24 || list.len() < 24 || command.is_odd || list[20] & 0x0c != 0 {
            // Another length, SPEC_I_PT or ALL_TG_PT.
            steps.push((None, Answer::Refused));
            if list.len() < 24 || list[20] & 0x0c != 0 || command.field(5..9) != 24 {
                return;
            }
        }
        let order = Order {
            kind: command.cdb[2] & 0x0f,
            scope: command.cdb[2] >> 4,
            key: number(&list[..8]),
            action_key: number(&list[8..16]),
            persists: list[20] & 1 != 0,
        };
        let registered = self.shared.registrations.get(port).copied();
        let key_fits = registered == Some(order.key);
        match action {
            0 if registered.unwrap_or(0) != order.key => steps.push((None, Answer::Conflict)),
            0 | 6 => self.register(nexus, port, &order, steps),
            1..=5 if !key_fits => steps.push((None, Answer::Conflict)),
            1 => self.reserve_persistently(port, &order, steps),
            2 => self.release(nexus, port, &order, steps),
            3 => {
                let others = self.shared.registrations.keys().cloned().collect();
                let new = self.with(|state| {
                    state.shared.registrations.clear();
                    state.shared.reservation = None;
                    state.count();
                    state.owe_ports(&others, 0x2a03, Some(nexus));
                });
                steps.push((new, Answer::Done));
            }
            4 | 5 => self.preempt(nexus, port, &order, action == 5, steps),
            // What it moves is not known.
            7 => steps.push((None, Answer::Refused)),
            _ => steps.push((None, Answer::Refused)),
        }
    }

    fn register(&self, nexus: Nexus, port: &Port, order: &Order, steps: &mut Vec<Step>) {
        let is_registered = self.shared.registrations.contains_key(port);
        if order.action_key == 0 && !is_registered {
            // The standard does not say whether what changes nothing counts.
            let counted = self.with(|state| {
                state.count();
                state.shared.persists = order.persists;
            });
            steps.extend([(counted, Answer::Done), (None, Answer::Done)]);
            let unsaved = self.with(|state| state.shared.persists = order.persists);
            steps.push((unsaved.filter(|new| new != self), Answer::Done));
            return;
        }
        let new = self.with(|state| {
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
        steps.push((new, Answer::Done));
        if order.action_key != 0 && !is_registered {
            // INSUFFICIENT REGISTRATION RESOURCES
            steps.push((None, Answer::Check(5, 0x5504)));
        }
    }

    fn unregister(&mut self, nexus: Nexus, port: &Port) {
        let held = self.holds(port);
        self.shared.registrations.remove(port);
        let is_for_all = self
            .shared
            .reservation
            .as_ref()
            .is_some_and(|held| held.kind >= 7);
        if held && (!is_for_all || self.shared.registrations.is_empty()) {
            self.end_reservation(nexus);
        }
    }

    /// Releases, and says so to those that had access by it.
    fn end_reservation(&mut self, nexus: Nexus) {
        let kind = self.shared.reservation.take().map_or(0, |held| held.kind);
        if kind >= 5 {
            let others: BTreeSet<Port> = self.shared.registrations.keys().cloned().collect();
            self.owe_ports(&others, 0x2a04, Some(nexus));
        }
    }

    fn reserve_persistently(&self, port: &Port, order: &Order, steps: &mut Vec<Step>) {
        let held = self.shared.reservation.as_ref();
        if order.scope != 0 || !matches!(order.kind, 1 | 3 | 5..=8) {
            steps.push((None, Answer::Refused));
        }
        match held {
            Some(held) if self.holds(port) && held.kind == order.kind => {
                steps.push((None, Answer::Done))
            }
            Some(_) => steps.push((None, Answer::Conflict)),
            None if order.scope != 0 || !matches!(order.kind, 1 | 3 | 5..=8) => {}
            None => {
                let holder = (order.kind < 7).then(|| port.clone());
                let new = self.with(|state| {
                    state.shared.reservation = Some(Reservation {
                        holder,
                        kind: order.kind,
                    })
                });
                steps.push((new, Answer::Done));
            }
        }
    }

    fn release(&self, nexus: Nexus, port: &Port, order: &Order, steps: &mut Vec<Step>) {
        let held = self
            .shared
            .reservation
            .as_ref()
            .filter(|_| self.holds(port));
        match held {
            None => steps.push((None, Answer::Done)),
            Some(held) if held.kind != order.kind || order.scope != 0 => {
                steps.extend([
                    (None, Answer::Check(5, 0x2604)),
                    (None, Answer::Check(5, 0x2400)),
                ]);
            }
            Some(_) => steps.push((
                self.with(|state| state.end_reservation(nexus)),
                Answer::Done,
            )),
        }
    }

    fn preempt(
        &self,
        nexus: Nexus,
        port: &Port,
        order: &Order,
        aborts: bool,
        steps: &mut Vec<Step>,
    ) {
        let held = self.shared.reservation.as_ref();
        let holder = held.and_then(|held| held.holder.as_ref());
        let is_for_all = held.is_some() && holder.is_none();
        if order.action_key == 0 && !is_for_all {
            steps.extend([(None, Answer::Refused), (None, Answer::Conflict)]);
            return;
        }
        let registrations = &self.shared.registrations;
        let takes = if is_for_all {
            order.action_key == 0
        } else {
            holder.and_then(|holder| registrations.get(holder)) == Some(&order.action_key)
        };
        let hit = |key: u64| key == order.action_key || is_for_all && order.action_key == 0;
        if !registrations.values().any(|&key| hit(key)) {
            steps.push((None, Answer::Conflict));
            return;
        }
        let is_wrong = order.scope != 0 || !matches!(order.kind, 1 | 3 | 5..=8);
        if is_wrong {
            steps.push((None, Answer::Refused));
            if takes {
                return;
            }
        }
        let gone = registrations
            .iter()
            .filter(|&(other, &key)| hit(key) && other != port);
        let gone: BTreeSet<Port> = gone.map(|(other, _)| other.clone()).collect();
        let new = self.with(|state| {
            state.count();
            state
                .shared
                .registrations
                .retain(|other, _| !gone.contains(other));
            state.owe_ports(&gone, 0x2a05, Some(nexus));
            if takes {
                let old = state.shared.reservation.replace(Reservation {
                    holder: (order.kind < 7).then(|| port.clone()),
                    kind: order.kind,
                });
                if old.is_some_and(|old| old.kind != order.kind) {
                    let others = state.shared.registrations.keys().cloned().collect();
                    state.owe_ports(&others, 0x2a04, Some(nexus));
                }
            }
            if aborts {
                state.abort(&gone);
            }
        });
        steps.push((new, Answer::Done));
    }

    /// Ends what PREEMPT AND ABORT ends beside registrations: the prevention of removal, and tasks.
    fn abort(&mut self, ports: &BTreeSet<Port>) {
        let there = self
            .shared
            .nexuses
            .iter()
            .filter(|(_, (port, _))| ports.contains(port));
        let there: Vec<Nexus> = there.map(|(&nexus, _)| nexus).collect();
        for nexus in there {
            self.shared.prevents.remove(&nexus);
            self.owe(nexus, 0x2f00, true);
        }
    }

    const fn count(&mut self) {
        self.shared.generation = self.shared.generation.wrapping_add(1);
    }
}
