//! What one command may do in one state: the standards in executable form.
//!
//! It knows no concurrency and no data of the medium. Spec: SPC-4, SBC-3; SPC-2 5.5.1 for RESERVE.

use crate::answer::Answer;
use crate::command::{Access, Command, Kind};
use crate::mode::mode_pages;
use crate::state::{Attention, State, Step, reset_level};
use crate::types::{Nexus, Plan, Port, View};

/// A command in a state, and what it may do there.
pub(crate) struct Turn<'a> {
    pub(crate) state: &'a State,
    pub(crate) nexus: Nexus,
    pub(crate) port: &'a Port,
    pub(crate) command: &'a Command,
    view: View,
    plan: &'a Plan,
    /// Attentions are not of interest.
    only_looks: bool,
    steps: Vec<Step>,
}

/// Everything that this command of `nexus` may do in this state. Empty if the nexus has ended.
pub(crate) fn steps(state: &State, nexus: Nexus, command: &Command, plan: &Plan) -> Vec<Step> {
    run(state, nexus, command, (plan, false))
}

/// The same without unit attentions, which always change the state.
pub(crate) fn looks(state: &State, nexus: Nexus, command: &Command, plan: &Plan) -> Vec<Step> {
    run(state, nexus, command, (plan, true))
}

fn run(
    state: &State,
    nexus: Nexus,
    command: &Command,
    (plan, only_looks): (&Plan, bool),
) -> Vec<Step> {
    let Some((port, view)) = state.shared.nexuses.get(&nexus) else {
        return Vec::new();
    };
    let (view, steps) = (*view, Vec::new());
    let mut turn = Turn {
        state,
        nexus,
        port,
        command,
        view,
        plan,
        only_looks,
        steps,
    };
    turn.run();
    turn.steps
}

impl Turn<'_> {
    /// It may end so, and change nothing.
    pub(crate) fn may(&mut self, answer: Answer) {
        self.steps.push((None, answer));
    }

    /// It may end so, and change this.
    pub(crate) fn change(&mut self, answer: Answer, change: impl FnOnce(&mut State)) {
        let mut new = self.state.clone();
        change(&mut new);
        let new = Some(new).filter(|new| new != self.state);
        self.steps.push((new, answer));
    }

    fn run(&mut self) {
        let kind = self.command.kind;
        let lacks_unmap = kind == Kind::Unmap && !self.plan.thin;
        let lacks_prevent = kind == Kind::Prevent && !self.plan.removable;
        if kind == Kind::Unknown || lacks_unmap || lacks_prevent {
            self.may(Answer::Check(5, 0x2000));
        }
        let is_reported = self.command.access != Access::Always;
        if is_reported && self.report(true, Answer::Attention) {
            return;
        }
        let conflict = self.conflict();
        if conflict != Some(false) {
            self.may(Answer::Conflict);
            // Which of the two comes first is open.
            if self.view.read_only && kind == Kind::PersistentOut {
                self.may(Answer::Check(7, 0x27ff));
            }
        }
        if conflict == Some(true) {
            // Nor that of a medium that is out.
            self.is_ready();
            return;
        }
        if is_reported && self.report(false, Answer::Attention) {
            return;
        }
        if self.is_ready() {
            self.serve();
        }
    }

    /// Attentions that are pending for the nexus, in the order in which they were established.
    fn owed(&self) -> Vec<Attention> {
        self.state
            .owed
            .get(&self.nexus)
            .cloned()
            .unwrap_or_default()
    }

    /// Attentions that may be reported now: of resets, or all. Whether one of them must be.
    fn report(&mut self, of_resets: bool, answer: fn(u16) -> Answer) -> bool {
        let owed = self.owed();
        let is_reset = |owed: &Attention| reset_level(owed.code).is_some();
        let has_reset = owed
            .iter()
            .any(|owed| owed.must_be_reported() && is_reset(owed));
        let mut must = false;
        for attention in owed {
            if attention.is_past || is_reset(&attention) || !of_resets && !has_reset {
                must |= attention.must_be_reported();
                self.take(attention, answer(attention.code));
            }
        }
        must
    }

    fn take(&mut self, attention: Attention, answer: Answer) {
        let nexus = self.nexus;
        if self.only_looks {
            return;
        }
        self.change(answer, |state| {
            let owed = state.owed.entry(nexus).or_default();
            if let Some(at) = owed.iter().position(|owed| *owed == attention) {
                owed.remove(at);
            }
        });
    }

    /// Whether a reservation of others forbids a command; `None` if the standards leave it open.
    fn conflict(&self) -> Option<bool> {
        let (shared, kind) = (&self.state.shared, self.command.kind);
        let how = self.command.cdb[4];
        let access = if kind == Kind::Prevent || kind == Kind::StartStop {
            let is_mild = if kind == Kind::Prevent {
                how == 0
            } else {
                how & 0xf1 == 1
            };
            if is_mild {
                Access::Report
            } else {
                Access::Writes
            }
        } else {
            self.command.access
        };
        if matches!(kind, Kind::PersistentIn | Kind::PersistentOut) {
            return Some(shared.reserved.is_some());
        }
        let session = self.state.session_of(self.nexus);
        if shared.reserved.is_some_and(|holder| holder != session) {
            return match access {
                Access::Always => Some(false),
                Access::Ready | Access::Reads | Access::Writes => Some(true),
                Access::Report | Access::Doubtful => None,
                Access::Own => Some(kind == Kind::Reserve),
            };
        }
        let registered = shared.registrations.contains_key(self.port);
        match (&shared.reservation, access) {
            (None, _) => Some(false),
            (Some(held), _) if self.state.holds(self.port) || held.kind >= 5 && registered => {
                Some(false)
            }
            (_, Access::Always | Access::Ready | Access::Report | Access::Own) => Some(false),
            (_, Access::Doubtful) => None,
            (Some(held), Access::Reads) => Some(matches!(held.kind, 3 | 6 | 8)),
            (_, Access::Writes) => Some(true),
        }
    }

    /// Whether the medium is there, for a command that needs it.
    fn is_ready(&mut self) -> bool {
        let (shared, kind) = (&self.state.shared, self.command.kind);
        let (is_in, is_stopped) = (shared.medium_in, shared.stopped);
        if is_in && !is_stopped {
            return true;
        }
        let is_capacity = matches!(kind, Kind::ReadCapacity10 | Kind::ReadCapacity16);
        let is_other = matches!(kind, Kind::TestUnitReady | Kind::Unmap);
        let needs = self.command.means_blocks() || is_capacity || is_other;
        let is_mode = matches!(kind, Kind::ModeSense | Kind::ModeSelect);
        if needs || is_mode || matches!(kind, Kind::Other | Kind::Unknown) {
            self.may(Answer::Check(2, if is_in { 0x0402 } else { 0x3aff }));
        }
        // A stopped unit may report its capacity.
        !needs || is_in && is_capacity
    }

    fn serve(&mut self) {
        match self.command.kind {
            Kind::RequestSense => {
                if !self.report(false, |code| Answer::Sense(Some(code))) {
                    self.may(Answer::Sense(None));
                }
            }
            Kind::Inquiry | Kind::Other => self.open(Answer::Done),
            Kind::ReportLuns => {
                self.open(Answer::Done);
                for changed in self.owed().into_iter().filter(|owed| owed.code == 0x3f0e) {
                    self.take(changed, Answer::Done);
                }
            }
            Kind::Unknown => self.may(Answer::Anything),
            Kind::TestUnitReady => self.plain(Answer::Done),
            Kind::ReadCapacity10 | Kind::ReadCapacity16 => self.capacity(),
            Kind::ModeSense => {
                let mode = self.state.shared.mode;
                let is_protected = self.view.read_only || mode.write_protect;
                self.open(Answer::Mode(mode, is_protected));
            }
            Kind::ModeSelect => self.mode_select(),
            Kind::PersistentIn => self.persistent_in(),
            Kind::PersistentOut if self.view.read_only => self.open(Answer::Check(7, 0x27ff)),
            Kind::PersistentOut => self.persistent_out(),
            Kind::Reserve => self.reserve(),
            Kind::Release => self.release(),
            Kind::Prevent => self.prevent(),
            Kind::StartStop => self.start_stop(),
            Kind::Read
            | Kind::Write
            | Kind::Verify
            | Kind::CompareAndWrite
            | Kind::OrWrite
            | Kind::WriteSame
            | Kind::Unmap
            | Kind::Flush
            | Kind::Prefetch
            | Kind::LbaStatus => self.medium(),
        }
    }

    /// It ends so, or its fields are refused: which values a unit has is its own.
    pub(crate) fn open(&mut self, answer: Answer) {
        self.may(answer);
        self.may(Answer::Refused);
    }

    /// It ends so, or is refused if it has odd bits.
    pub(crate) fn plain(&mut self, answer: Answer) {
        self.may(answer);
        if self.command.is_odd {
            self.may(Answer::Refused);
        }
    }

    fn capacity(&mut self) {
        let last = self.state.shared.blocks.saturating_sub(1);
        let mut data = last.to_be_bytes().to_vec();
        if self.command.kind == Kind::ReadCapacity10 {
            let last = u32::try_from(last).unwrap_or(u32::MAX);
            data = last.to_be_bytes().to_vec();
        }
        data.extend_from_slice(&self.plan.block_bytes.to_be_bytes());
        self.plain(Answer::Data(data));
    }

    /// Fields and rights of a command on blocks.
    fn medium(&mut self) {
        let (before, command, shared) = (self.steps.len(), self.command, &self.state.shared);
        let block = u64::from(self.plan.block_bytes);
        let out_bytes = u64::try_from(command.data_out.len()).unwrap_or(u64::MAX);
        let beyond = |&(lba, blocks): &(u64, u64)| shared.blocks < lba.saturating_add(blocks);
        let starts_beyond = command.means_blocks() && command.lba >= shared.blocks;
        if command.protects {
            self.may(Answer::Check(5, 0x2400));
        }
        if starts_beyond || command.ranges().iter().any(beyond) {
            self.may(Answer::Check(5, 0x2100));
        }
        let unmaps = command.kind == Kind::WriteSame && command.cdb[1] & 0x08 != 0;
        if unmaps && !self.plan.thin {
            self.may(Answer::Check(5, 0x2400));
        }
        let wanted = command.blocks_out().saturating_mul(block);
        // Whole blocks of a WRITE may be missing.
        let may_lack = command.kind == Kind::Write && out_bytes % block == 0;
        if out_bytes < wanted && !may_lack {
            self.may(Answer::Refused);
        }
        if command.writes() && (self.view.read_only || shared.mode.write_protect) {
            self.may(Answer::Check(7, 0x27ff));
        }
        if self.steps.len() == before {
            self.may(Answer::Go);
        }
        // Limits that a unit sets for itself.
        let is_large = command.blocks.saturating_mul(block) > 1 << 20;
        let is_limited = matches!(command.kind, Kind::CompareAndWrite | Kind::Unmap);
        let is_to_the_end = command.kind == Kind::WriteSame && command.blocks == 0;
        if command.is_odd || is_large || is_limited || is_to_the_end || out_bytes > wanted {
            self.may(Answer::Refused);
        }
    }

    fn mode_select(&mut self) {
        if self.view.read_only {
            return self.open(Answer::Check(7, 0x27ff));
        }
        self.may(Answer::Refused);
        let mut mode = self.state.shared.mode;
        for (page, data) in mode_pages(&self.command.data_out, self.command.cdb[0] == 0x15) {
            let bit = |at: usize, mask: u8| data.get(at).is_some_and(|byte| byte & mask != 0);
            if page == 0x08 {
                mode.write_cache = bit(2, 0x04);
            } else if page == 0x0a {
                (mode.descriptor_sense, mode.write_protect) = (bit(2, 0x04), bit(4, 0x08));
            }
        }
        let (nexus, saves) = (self.nexus, self.command.cdb[1] & 1 != 0);
        self.change(Answer::Done, |state| {
            let changes = state.shared.mode != mode;
            state.shared.mode = mode;
            if saves {
                state.shared.saved = mode;
            }
            // Other fields may have changed.
            state.owe_all(0x2a01, !changes, Some(nexus));
        });
    }

    fn reserve(&mut self) {
        let (shared, nexus) = (&self.state.shared, self.state.session_of(self.nexus));
        if self.view.read_only {
            self.may(Answer::Check(7, 0x27ff));
        } else if self.command.is_odd || self.command.cdb[1] != 0 {
            self.may(Answer::Refused);
        } else if shared.registrations.is_empty() {
            self.change(Answer::Done, |state| state.shared.reserved = Some(nexus));
        } else {
            self.beside_registrations();
        }
    }

    fn release(&mut self) {
        let (shared, nexus) = (&self.state.shared, self.state.session_of(self.nexus));
        if self.command.is_odd || self.command.cdb[1] != 0 {
            self.may(Answer::Refused);
        }
        if shared.registrations.is_empty() {
            self.change(Answer::Done, |state| state.release_of(nexus));
        } else {
            self.beside_registrations();
        }
    }

    /// Registered nexuses may be answered with GOOD, and nothing happens. Spec: SPC-4 5.13.3.
    fn beside_registrations(&mut self) {
        self.may(Answer::Conflict);
        if self.state.shared.registrations.contains_key(self.port) {
            self.may(Answer::Done);
        }
    }

    fn prevent(&mut self) {
        let (nexus, prevents) = (self.state.session_of(self.nexus), self.command.cdb[4] & 3);
        if !self.plan.removable {
            self.open(Answer::Done);
        } else if prevents > 1 || self.command.is_odd {
            self.may(Answer::Refused);
        } else if prevents == 1 && self.view.read_only {
            self.may(Answer::Check(7, 0x27ff));
        } else if prevents == 1 {
            self.change(Answer::Done, |state| {
                state.shared.prevents.insert(nexus);
            });
        } else {
            self.change(Answer::Done, |state| {
                state.shared.prevents.remove(&nexus);
            });
        }
    }

    fn start_stop(&mut self) {
        let (shared, nexus, how) = (&self.state.shared, self.nexus, self.command.cdb[4]);
        let (starts, loads) = (how & 1 != 0, how & 2 != 0);
        if how & 0xf0 != 0 || self.command.is_odd || loads && !self.plan.removable {
            return self.may(Answer::Refused);
        }
        if !loads && !shared.medium_in {
            return self.may(Answer::Check(2, 0x3aff));
        }
        let stops = !starts && !loads;
        let moves = loads && shared.medium_in != starts;
        let has_effect = moves || shared.stopped != stops;
        let is_prevented = loads && !shared.prevents.is_empty();
        if is_prevented {
            self.may(Answer::Check(5, 0x5302));
        }
        if self.view.read_only {
            self.may(Answer::Check(7, 0x27ff));
        }
        let is_allowed = !is_prevented && !self.view.read_only;
        if is_allowed || !has_effect {
            self.change(Answer::Done, |state| {
                state.shared.stopped = stops;
                state.shared.medium_in ^= moves;
                if moves && starts {
                    state.owe_all(0x2800, false, Some(nexus));
                    state.owe(nexus, 0x2800, true);
                }
            });
        }
    }
}
