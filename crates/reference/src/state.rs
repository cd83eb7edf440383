//! The state of a unit that commands share, the unit attentions it owes, and what each command and event makes of it.
//!
//! `steps` is the standards in executable form: given a state, everything that a command may do to it, with the answer
//! that goes with it. It knows no concurrency and no data of the medium.
//!
//! Spec: SPC-4 5.13 (reservations), SAM-5 5.14 (unit attentions), SPC-2 5.5.1 (RESERVE).

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::Answer;
use crate::command::{Access, Command, Kind, number};
use crate::mode::{Mode, mode_pages};
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

impl Reservation {
    pub(crate) const fn excludes_readers(&self) -> bool {
        matches!(self.kind, 3 | 6 | 8)
    }

    const fn is_for_registrants(&self) -> bool {
        self.kind >= 5
    }
}

/// What commands of all nexuses share.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct State {
    pub(crate) shared: Shared,
    pub(crate) owed: BTreeMap<Nexus, Vec<Attention>>,
}

/// One thing that may happen: the new state, if it changes, and the answer.
pub(crate) type Step = (Option<State>, Answer);

impl State {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mode = Mode {
            write_cache: plan.write_cache,
            ..Mode::default()
        };
        let shared = Shared {
            blocks: plan.blocks,
            medium_in: true,
            stopped: false,
            mode,
            saved: mode,
            registrations: BTreeMap::new(),
            reservation: None,
            generation: 0,
            persists: false,
            reserved: None,
            prevents: BTreeSet::new(),
            nexuses: BTreeMap::new(),
        };
        Self {
            shared,
            owed: BTreeMap::new(),
        }
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
        shared.generation = 0;
        (shared.medium_in, shared.stopped, shared.mode) = (true, false, shared.saved);
        shared.reserved = None;
        shared.prevents.clear();
        shared.nexuses.clear();
        self.owed.clear();
    }

    /// Establishes a unit attention. One of a reset replaces all older ones but stronger ones.
    pub(crate) fn owe(&mut self, nexus: Nexus, code: u16, is_optional: bool) {
        let hides = self
            .shared
            .nexuses
            .get(&nexus)
            .is_none_or(|(_, view)| view.hides_attentions);
        let Some(owed) = self.owed.get_mut(&nexus).filter(|_| !hides) else {
            return;
        };
        let mut code = code;
        if !is_optional && let Some(level) = reset_level(code) {
            let older = owed.iter().filter(|old| {
                !old.is_optional && reset_level(old.code).is_some_and(|old| old <= level)
            });
            code = older.map(|old| old.code).min().unwrap_or(code);
            owed.clear();
        }
        match owed.iter_mut().find(|old| old.code == code) {
            Some(old) => old.is_optional &= is_optional,
            None => owed.push(Attention { code, is_optional }),
        }
    }

    fn owe_all(&mut self, code: u16, is_optional: bool, but: Option<Nexus>) {
        let all: Vec<Nexus> = self
            .shared
            .nexuses
            .keys()
            .copied()
            .filter(|&nexus| Some(nexus) != but)
            .collect();
        all.into_iter()
            .for_each(|nexus| self.owe(nexus, code, is_optional));
    }

    /// Owes to the nexuses of these ports, but `but`.
    pub(crate) fn owe_ports(&mut self, ports: &BTreeSet<Port>, code: u16, but: Option<Nexus>) {
        let there = self
            .shared
            .nexuses
            .iter()
            .filter(|(nexus, (port, _))| ports.contains(port) && Some(**nexus) != but);
        let there: Vec<Nexus> = there.map(|(&nexus, _)| nexus).collect();
        there
            .into_iter()
            .for_each(|nexus| self.owe(nexus, code, false));
    }

    pub(crate) fn holds(&self, port: &Port) -> bool {
        let is_held = |held: &Reservation| {
            held.holder
                .as_ref()
                .map_or(held.kind >= 7, |holder| holder == port)
        };
        self.shared.registrations.contains_key(port)
            && self.shared.reservation.as_ref().is_some_and(is_held)
    }

    /// A copy, changed.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Self)) -> Option<Self> {
        let mut state = self.clone();
        change(&mut state);
        Some(state)
    }

    /// Everything that this command of `nexus` may do in this state. Empty if the nexus has ended.
    pub(crate) fn steps(&self, nexus: Nexus, command: &Command, plan: &Plan) -> Vec<Step> {
        let Some((port, view)) = self.shared.nexuses.get(&nexus) else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        let is_missing = command.kind == Kind::Unknown
            || command.kind == Kind::Unmap && !plan.thin
            || command.kind == Kind::Prevent && !plan.removable;
        if is_missing {
            steps.push((None, Answer::Check(5, 0x2000)));
        }
        if command.access != Access::Always && self.report(nexus, true, &mut steps) {
            return steps;
        }
        match self.conflict(nexus, port, command) {
            Some(true) => {
                steps.push((None, Answer::Conflict));
                return steps;
            }
            Some(false) => {}
            None => steps.push((None, Answer::Conflict)),
        }
        if command.access != Access::Always && self.report(nexus, false, &mut steps) {
            return steps;
        }
        if self.is_ready(command, &mut steps) {
            self.serve(nexus, port, *view, command, plan, &mut steps);
        }
        steps
    }

    /// Attentions that may be reported now: of resets, or all. Whether one of them must be.
    fn report(&self, nexus: Nexus, of_resets: bool, steps: &mut Vec<Step>) -> bool {
        let owed = self.owed.get(&nexus).map_or(&[][..], Vec::as_slice);
        let first = owed
            .iter()
            .any(|owed| !owed.is_optional && reset_level(owed.code).is_some());
        let due = |owed: &&Attention| reset_level(owed.code).is_some() || !of_resets && !first;
        for attention in owed.iter().filter(due) {
            steps.push((
                self.without(nexus, *attention),
                Answer::Attention(attention.code),
            ));
        }
        owed.iter().filter(due).any(|owed| !owed.is_optional)
    }

    fn without(&self, nexus: Nexus, attention: Attention) -> Option<Self> {
        self.with(|state| {
            let owed = state.owed.entry(nexus).or_default();
            owed.retain(|owed| *owed != attention);
        })
    }

    /// Whether a reservation of others forbids a command; `None` if the standards leave it open.
    fn conflict(&self, nexus: Nexus, port: &Port, command: &Command) -> Option<bool> {
        let access = match (command.kind, command.cdb[4]) {
            (Kind::Prevent, 0) => Access::Report,
            (Kind::StartStop, how) if how & 0xf1 == 1 => Access::Report,
            (Kind::Prevent | Kind::StartStop, _) => Access::Writes,
            _ => command.access,
        };
        if matches!(command.kind, Kind::PersistentIn | Kind::PersistentOut) {
            return Some(self.shared.reserved.is_some());
        }
        if self.shared.reserved.is_some_and(|holder| holder != nexus) {
            return match access {
                Access::Always => Some(false),
                Access::Ready | Access::Reads | Access::Writes => Some(true),
                Access::Report | Access::Doubtful => None,
                Access::Own => Some(command.kind == Kind::Reserve),
            };
        }
        let Some(held) = &self.shared.reservation else {
            return Some(false);
        };
        if self.holds(port)
            || held.is_for_registrants() && self.shared.registrations.contains_key(port)
        {
            return Some(false);
        }
        match access {
            Access::Always | Access::Ready | Access::Report | Access::Own => Some(false),
            Access::Doubtful => None,
            Access::Reads => Some(held.excludes_readers()),
            Access::Writes => Some(true),
        }
    }

    /// Whether the medium is there, for a command that needs it.
    fn is_ready(&self, command: &Command, steps: &mut Vec<Step>) -> bool {
        let needs = command.means_blocks()
            || matches!(
                command.kind,
                Kind::TestUnitReady | Kind::ReadCapacity10 | Kind::ReadCapacity16 | Kind::Unmap
            );
        let may_need = needs
            || matches!(
                command.kind,
                Kind::Other | Kind::Unknown | Kind::ModeSense | Kind::ModeSelect
            );
        let not_ready = match (self.shared.medium_in, self.shared.stopped) {
            (false, _) => 0x3aff,
            (true, true) => 0x0402,
            (true, false) => return true,
        };
        if may_need {
            steps.push((None, Answer::Check(2, not_ready)));
        }
        // A stopped unit may report its capacity.
        !needs
            || self.shared.medium_in
                && matches!(command.kind, Kind::ReadCapacity10 | Kind::ReadCapacity16)
    }

    fn serve(
        &self,
        nexus: Nexus,
        port: &Port,
        view: View,
        command: &Command,
        plan: &Plan,
        steps: &mut Vec<Step>,
    ) {
        match command.kind {
            Kind::RequestSense => {
                if !self.request_sense(nexus, steps) {
                    steps.push((None, Answer::Sense(None)));
                }
            }
            Kind::Inquiry | Kind::Other => {
                steps.extend([(None, Answer::Done), (None, Answer::Refused)])
            }
            Kind::ReportLuns => {
                steps.extend([(None, Answer::Done), (None, Answer::Refused)]);
                let changed = self
                    .owed
                    .get(&nexus)
                    .and_then(|owed| owed.iter().find(|owed| owed.code == 0x3f0e));
                steps.extend(changed.map(|&changed| (self.without(nexus, changed), Answer::Done)));
            }
            Kind::Unknown => steps.push((None, Answer::Anything)),
            Kind::TestUnitReady => self.plain(command, Answer::Done, steps),
            Kind::ReadCapacity10 | Kind::ReadCapacity16 => {
                let last = self.shared.blocks.saturating_sub(1);
                let short = u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes();
                let is_long = command.kind == Kind::ReadCapacity16;
                let mut data = if is_long {
                    last.to_be_bytes().to_vec()
                } else {
                    short.to_vec()
                };
                data.extend_from_slice(&plan.block_bytes.to_be_bytes());
                self.plain(command, Answer::Data(data), steps);
            }
            Kind::ModeSense => {
                let mode = self.shared.mode;
                let is_protected = view.read_only || mode.write_protect;
                steps.extend([
                    (None, Answer::Mode(mode, is_protected)),
                    (None, Answer::Refused),
                ]);
            }
            Kind::ModeSelect => self.mode_select(nexus, view, command, steps),
            Kind::PersistentIn => self.persistent_in(command, steps),
            Kind::PersistentOut if view.read_only => {
                steps.extend([(None, Answer::Check(7, 0x27ff)), (None, Answer::Refused)])
            }
            Kind::PersistentOut => self.persistent_out(nexus, port, command, steps),
            Kind::Reserve | Kind::Release => self.reserve(nexus, port, view, command, steps),
            Kind::Prevent => self.prevent(nexus, view, command, plan, steps),
            Kind::StartStop => self.start_stop(nexus, view, command, plan, steps),
            Kind::Read
            | Kind::Write
            | Kind::Verify
            | Kind::CompareAndWrite
            | Kind::OrWrite
            | Kind::WriteSame
            | Kind::Unmap
            | Kind::Flush
            | Kind::Prefetch
            | Kind::LbaStatus => self.medium(view, command, plan, steps),
        }
    }

    #[expect(clippy::unused_self, reason = "like the others of `serve`")]
    fn plain(&self, command: &Command, answer: Answer, steps: &mut Vec<Step>) {
        steps.push((None, answer));
        if command.is_odd {
            steps.push((None, Answer::Refused));
        }
    }

    /// What is owed as data of REQUEST SENSE. Whether something must be.
    fn request_sense(&self, nexus: Nexus, steps: &mut Vec<Step>) -> bool {
        let mut due = Vec::new();
        let must = self.report(nexus, false, &mut due);
        for (state, answer) in due {
            if let Answer::Attention(code) = answer {
                steps.push((state, Answer::Sense(Some(code))));
            }
        }
        must
    }

    /// Fields and rights of a command on blocks.
    fn medium(&self, view: View, command: &Command, plan: &Plan, steps: &mut Vec<Step>) {
        let before = steps.len();
        let block = u64::from(plan.block_bytes);
        let out_bytes = u64::try_from(command.data_out.len()).unwrap_or(u64::MAX);
        let beyond = |lba: u64, blocks: u64| {
            lba.checked_add(blocks)
                .is_none_or(|end| end > self.shared.blocks)
        };
        let ranges = unmapped(command);
        let is_beyond = ranges.iter().any(|&(lba, blocks)| beyond(lba, blocks))
            || command.means_blocks()
                && (command.lba >= self.shared.blocks || beyond(command.lba, command.blocks));
        if command.protects {
            steps.push((None, Answer::Check(5, 0x2400)));
        }
        if is_beyond {
            steps.push((None, Answer::Check(5, 0x2100)));
        }
        // The last whole block of a WRITE may be missing, but none may be cut.
        let is_short = out_bytes < command.blocks_out().saturating_mul(block);
        let whole_needed = !matches!(command.kind, Kind::Write);
        if is_short && (whole_needed || out_bytes % block != 0) {
            steps.push((None, Answer::Refused));
        }
        if command.writes() && (view.read_only || self.shared.mode.write_protect) {
            steps.push((None, Answer::Check(7, 0x27ff)));
        }
        if steps.len() == before {
            steps.push((None, Answer::Go));
        }
        let may_be_long = command.blocks.saturating_mul(block) > 1 << 20
            || matches!(command.kind, Kind::CompareAndWrite);
        let may_be_excess = out_bytes > command.blocks_out().saturating_mul(block);
        let is_whole_medium = matches!(command.kind, Kind::WriteSame) && command.blocks == 0;
        let may_be_wrong = command.kind == Kind::Unmap;
        if command.is_odd || may_be_long || may_be_excess || is_whole_medium || may_be_wrong {
            steps.push((None, Answer::Refused));
        }
    }

    fn mode_select(&self, nexus: Nexus, view: View, command: &Command, steps: &mut Vec<Step>) {
        steps.push((None, Answer::Refused));
        if view.read_only {
            steps.push((None, Answer::Check(7, 0x27ff)));
            return;
        }
        let mut mode = self.shared.mode;
        for (page, data) in mode_pages(&command.data_out, command.cdb[0] == 0x15) {
            let bit = |at: usize, mask: u8| data.get(at).is_some_and(|byte| byte & mask != 0);
            match page {
                0x08 => mode.write_cache = bit(2, 0x04),
                0x0a => (mode.descriptor_sense, mode.write_protect) = (bit(2, 0x04), bit(4, 0x08)),
                _ => {}
            }
        }
        let saves = command.cdb[1] & 1 != 0;
        let changes = mode != self.shared.mode;
        let new = self.with(|state| {
            state.shared.mode = mode;
            if saves {
                state.shared.saved = mode;
            }
            // Other fields may have changed.
            state.owe_all(0x2a01, !changes, Some(nexus));
        });
        steps.push((new, Answer::Done));
    }

    fn reserve(
        &self,
        nexus: Nexus,
        port: &Port,
        view: View,
        command: &Command,
        steps: &mut Vec<Step>,
    ) {
        if command.cdb[1] & 0x1f != 0 || command.is_odd {
            steps.push((None, Answer::Refused));
        }
        let is_reserve = command.kind == Kind::Reserve;
        if is_reserve && view.read_only {
            steps.push((None, Answer::Check(7, 0x27ff)));
        } else if !self.shared.registrations.is_empty() {
            // Spec: SPC-4 5.13.3: registered nexuses may be answered with GOOD, and nothing happens.
            steps.push((None, Answer::Conflict));
            if self.shared.registrations.contains_key(port) {
                steps.push((None, Answer::Done));
            }
        } else {
            let mine = self.shared.reserved == Some(nexus);
            let new = |held| self.with(|state| state.shared.reserved = held);
            let state = if mine == is_reserve {
                None
            } else {
                new(is_reserve.then_some(nexus))
            };
            let is_others = !is_reserve && !mine;
            steps.push((state.filter(|_| !is_others), Answer::Done));
        }
    }

    fn prevent(
        &self,
        nexus: Nexus,
        view: View,
        command: &Command,
        plan: &Plan,
        steps: &mut Vec<Step>,
    ) {
        let prevents = command.cdb[4] & 3;
        if !plan.removable {
            steps.extend([(None, Answer::Done), (None, Answer::Refused)]);
        } else if prevents > 1 || command.is_odd {
            steps.push((None, Answer::Refused));
        } else if prevents == 1 && view.read_only {
            steps.push((None, Answer::Check(7, 0x27ff)));
        } else {
            let new = self.with(|state| {
                state.shared.prevents.remove(&nexus);
                state
                    .shared
                    .prevents
                    .extend((prevents == 1).then_some(nexus));
            });
            steps.push((new, Answer::Done));
        }
    }

    fn start_stop(
        &self,
        nexus: Nexus,
        view: View,
        command: &Command,
        plan: &Plan,
        steps: &mut Vec<Step>,
    ) {
        let how = command.cdb[4];
        let (starts, loads) = (how & 1 != 0, how & 2 != 0);
        let shared = &self.shared;
        if how & 0xf0 != 0 || command.is_odd || loads && !plan.removable {
            steps.push((None, Answer::Refused));
            return;
        }
        let new = self.with(|state| {
            state.shared.stopped = !starts && !loads;
            if loads {
                state.shared.medium_in = starts;
            }
            if loads && starts && !shared.medium_in {
                state.owe_all(0x2800, false, Some(nexus));
                state.owe(nexus, 0x2800, true);
            }
        });
        let has_effect = new.as_ref() != Some(self);
        if loads && !shared.prevents.is_empty() {
            steps.push((None, Answer::Check(5, 0x5302)));
            if !has_effect {
                steps.push((None, Answer::Done));
            }
        } else if !loads && !shared.medium_in {
            steps.push((None, Answer::Check(2, 0x3aff)));
        } else if !view.read_only || !has_effect {
            steps.push((new, Answer::Done));
        }
        if view.read_only && has_effect {
            steps.push((None, Answer::Check(7, 0x27ff)));
        }
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
        let shared = &mut self.shared;
        let ports: BTreeSet<Port> = std::mem::take(&mut shared.registrations)
            .into_keys()
            .collect();
        shared.generation = shared.generation.wrapping_add(u32::from(!ports.is_empty()));
        let holder = shared.reserved.take();
        shared.reservation = None;
        self.owe_ports(&ports, 0x2a03, None);
        holder
            .into_iter()
            .for_each(|holder| self.owe(holder, 0x2a03, true));
    }

    /// What ends with a nexus.
    fn leave(&mut self, nexus: Nexus) {
        self.shared.prevents.remove(&nexus);
        self.shared.reserved.take_if(|holder| *holder == nexus);
    }
}

/// The ranges that an UNMAP names.
pub(crate) fn unmapped(command: &Command) -> Vec<(u64, u64)> {
    if command.kind != Kind::Unmap {
        return Vec::new();
    }
    let list = command.data_out.get(8..).unwrap_or_default();
    let length = number(command.data_out.get(2..4).unwrap_or_default());
    let list = list
        .get(..usize::try_from(length).unwrap_or(0))
        .unwrap_or(list);
    let range = |entry: &[u8]| (number(&entry[..8]), number(&entry[8..12]));
    list.chunks_exact(16).map(range).collect()
}
