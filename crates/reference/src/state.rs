//! The state of a unit that commands share, the unit attentions it owes, and what events make of it.
//!
//! Spec: SAM-5 5.14 (unit attentions and their precedence).

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::Answer;
use crate::mode::Mode;
use crate::types::{Event, Nexus, Plan, Port, View};

/// A unit attention that is owed to a nexus.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Attention {
    /// ASC and ASCQ.
    pub(crate) code: u16,
    /// It need not be reported.
    pub(crate) is_optional: bool,
}

/// The precedence of attentions of resets, the strongest first; `None` for others.
pub(crate) const fn reset_level(code: u16) -> Option<u8> {
    match code {
        0x2900 | 0x2901 => Some(0),
        0x2902 => Some(1),
        0x2903 => Some(2),
        0x2904 => Some(3),
        0x2907 => Some(4),
        _ => None,
    }
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Reservation {
    /// Who holds it, unless all registrants do.
    pub(crate) holder: Option<Port>,
    pub(crate) kind: u8,
}

/// What commands of all nexuses share.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Shared {
    pub(crate) blocks: u64,
    pub(crate) medium_in: bool,
    pub(crate) stopped: bool,
    pub(crate) mode: Mode,
    pub(crate) saved: Mode,
    pub(crate) registrations: BTreeMap<Port, u64>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) generation: u32,
    /// APTPL of the last registration.
    pub(crate) persists: bool,
    /// Holder of an SPC-2 reservation.
    pub(crate) reserved: Option<Nexus>,
    pub(crate) prevents: BTreeSet<Nexus>,
    pub(crate) nexuses: BTreeMap<Nexus, (Port, View)>,
}

/// The state of a unit.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct State {
    pub(crate) shared: Shared,
    pub(crate) owed: BTreeMap<Nexus, Vec<Attention>>,
}

/// One thing that may happen: the new state, if it changes, and the answer.
pub(crate) type Step = (Option<State>, Answer);

impl State {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut state = Self::default();
        (state.shared.blocks, state.shared.medium_in) = (plan.blocks, true);
        state.shared.mode.write_cache = plan.write_cache;
        state.shared.saved = state.shared.mode;
        state
    }

    pub(crate) fn begin_nexus(&mut self, nexus: Nexus, port: Port, view: View) {
        self.shared.nexuses.insert(nexus, (port, view));
        self.owed.insert(nexus, Vec::new());
        self.owe(nexus, 0x2900, false);
    }

    /// Power goes and comes back.
    pub(crate) fn restart(&mut self) {
        let shared = &mut self.shared;
        if !shared.persists {
            shared.registrations.clear();
            shared.reservation = None;
        }
        (shared.medium_in, shared.stopped, shared.mode) = (true, false, shared.saved);
        (shared.generation, shared.reserved) = (0, None);
        shared.prevents.clear();
        shared.nexuses.clear();
        self.owed.clear();
    }

    /// Establishes a unit attention. One of a reset replaces all older ones but stronger ones.
    pub(crate) fn owe(&mut self, nexus: Nexus, mut code: u16, is_optional: bool) {
        let seat = self.shared.nexuses.get(&nexus);
        let hides = seat.is_none_or(|(_, view)| view.hides_attentions);
        let Some(owed) = self.owed.get_mut(&nexus).filter(|_| !hides) else {
            return;
        };
        if !is_optional && reset_level(code).is_some() {
            let is_stronger = |old: &Attention| {
                let level = reset_level(old.code);
                !old.is_optional && level.is_some() && level <= reset_level(code)
            };
            let stronger = owed.iter().find(|old| is_stronger(old));
            code = stronger.map_or(code, |old| old.code);
            owed.clear();
        }
        match owed.iter_mut().find(|old| old.code == code) {
            Some(old) => old.is_optional &= is_optional,
            None => owed.push(Attention { code, is_optional }),
        }
    }

    pub(crate) fn owe_all(&mut self, code: u16, is_optional: bool, but: Option<Nexus>) {
        let all: Vec<Nexus> = self.shared.nexuses.keys().copied().collect();
        for nexus in all {
            if Some(nexus) != but {
                self.owe(nexus, code, is_optional);
            }
        }
    }

    /// The nexuses of these ports, but `but`.
    pub(crate) fn nexuses_of(&self, ports: &BTreeSet<Port>, but: Option<Nexus>) -> Vec<Nexus> {
        let all = self.shared.nexuses.iter();
        let there = all.filter(|(nexus, (port, _))| ports.contains(port) && Some(**nexus) != but);
        there.map(|(&nexus, _)| nexus).collect()
    }

    /// Owes to the nexuses of these ports, but `but`.
    pub(crate) fn owe_ports(&mut self, ports: &BTreeSet<Port>, code: u16, but: Option<Nexus>) {
        for nexus in self.nexuses_of(ports, but) {
            self.owe(nexus, code, false);
        }
    }

    /// Who is registered.
    pub(crate) fn registrants(&self) -> BTreeSet<Port> {
        self.shared.registrations.keys().cloned().collect()
    }

    /// Whether a port holds the persistent reservation.
    pub(crate) fn holds(&self, port: &Port) -> bool {
        let registered = self.shared.registrations.contains_key(port);
        let Some(held) = &self.shared.reservation else {
            return false;
        };
        registered && held.holder.as_ref().is_none_or(|holder| holder == port)
    }

    /// Ends the SPC-2 reservation of a nexus.
    pub(crate) fn release_of(&mut self, nexus: Nexus) {
        let reserved = &mut self.shared.reserved;
        reserved.take_if(|holder| *holder == nexus);
    }

    /// What this event may do; `Happens(false)`: nothing, as it was refused.
    pub(crate) fn happen(&self, event: &Event) -> Vec<Step> {
        let refused = (None, Answer::Happens(false));
        let is_prevented = !self.shared.prevents.is_empty();
        if *event == (Event::Eject { force: false }) && is_prevented {
            return vec![refused];
        }
        let mut new = self.clone();
        new.apply(event);
        vec![
            refused,
            (Some(new).filter(|new| new != self), Answer::Happens(true)),
        ]
    }

    fn apply(&mut self, event: &Event) {
        let shared = &mut self.shared;
        match event {
            Event::LogicalUnitReset | Event::TargetReset => {
                shared.reserved = None;
                shared.prevents.clear();
                (shared.mode, shared.stopped) = (shared.saved, false);
                let is_hard = *event == Event::TargetReset;
                self.owe_all(if is_hard { 0x2902 } else { 0x2903 }, false, None);
            }
            Event::NexusReset(nexus) => {
                self.leave(*nexus);
                self.owe(*nexus, 0x2907, false);
            }
            Event::NexusEnds(nexus) => {
                self.leave(*nexus);
                self.shared.nexuses.remove(nexus);
                self.owed.remove(nexus);
            }
            Event::ClearTaskSet(nexus) => self.owe_all(0x2f00, true, Some(*nexus)),
            Event::Eject { .. } => {
                shared.prevents.clear();
                (shared.medium_in, shared.stopped) = (false, false);
            }
            Event::Load if shared.medium_in => {}
            Event::Load => {
                (shared.medium_in, shared.stopped) = (true, false);
                self.owe_all(0x2800, false, None);
            }
            Event::Resize(blocks) => {
                shared.blocks = *blocks;
                self.owe_all(0x2a09, false, None);
            }
            Event::WriteCache(on) => {
                let changes = shared.mode.write_cache != *on;
                (shared.mode.write_cache, shared.saved.write_cache) = (*on, *on);
                self.owe_all(0x2a01, !changes, None);
            }
            Event::View(nexus, view) => {
                shared
                    .nexuses
                    .entry(*nexus)
                    .and_modify(|(_, old)| *old = *view);
            }
            Event::ClearReservations => self.clear_reservations(),
            Event::Attention { code, to } => match to {
                Some(nexuses) => nexuses
                    .iter()
                    .for_each(|&nexus| self.owe(nexus, *code, false)),
                None => self.owe_all(*code, false, None),
            },
        }
    }

    fn clear_reservations(&mut self) {
        let ports = self.registrants();
        let shared = &mut self.shared;
        shared.registrations.clear();
        shared.reservation = None;
        shared.generation = shared.generation.wrapping_add(u32::from(!ports.is_empty()));
        let holder = shared.reserved.take();
        self.owe_ports(&ports, 0x2a03, None);
        if let Some(holder) = holder {
            self.owe(holder, 0x2a03, true);
        }
    }

    /// What ends with a nexus.
    fn leave(&mut self, nexus: Nexus) {
        self.shared.prevents.remove(&nexus);
        self.release_of(nexus);
    }
}
