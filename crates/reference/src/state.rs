//! The state of a unit that commands share, the unit attentions it owes, and what events make of it.
//!
//! Spec: SAM-5 5.14 (unit attentions and their precedence).

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::Answer;
use crate::mode::Mode;
use crate::types::{Event, Nexus, Plan, Port, Tag, View};

/// A unit attention that is owed to a nexus.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Attention {
    /// ASC and ASCQ.
    pub(crate) code: u16,
    /// It need not be reported.
    pub(crate) is_optional: bool,
    /// It is over, but a command that is still under way may have reported it before.
    pub(crate) is_past: bool,
    /// It is of this command or event, which is not over: not every nexus may have learnt of it.
    pub(crate) cause: Option<Tag>,
}

/// A nexus that has commands under way may still report an attention that is established again, so often at most.
const TIMES_MAX: usize = 3;

/// The cause of attentions that have just been established.
pub(crate) const NEW: Tag = Tag(u64::MAX);

impl Attention {
    pub(crate) fn must_be_reported(&self) -> bool {
        !self.is_optional && self.cause.is_none()
    }

    /// It is over because of what has just been established.
    const fn pass(&mut self) {
        (self.is_optional, self.is_past, self.cause) = (true, true, Some(NEW));
    }
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

/// Whether this attention is of a reset that is at least as strong.
const fn covers(code: u16, level: u8) -> bool {
    match reset_level(code) {
        Some(other) => other <= level,
        None => false,
    }
}

/// Removes what is over, and what is reported together with something else.
fn tidy(owed: &mut Vec<Attention>) {
    let must = owed.iter().filter(|it| it.must_be_reported());
    let must: Vec<u16> = must.map(|it| it.code).collect();
    owed.retain(|it| {
        let is_same = |code: &u16| {
            let level = reset_level(it.code);
            *code == it.code || level.is_some_and(|level| covers(*code, level))
        };
        let is_double = it.is_optional && must.iter().any(is_same);
        it.cause.is_some() || !it.is_past && !is_double
    });
    // None waits twice.
    let mut codes = BTreeSet::new();
    owed.retain(|it| it.cause.is_some() || codes.insert(it.code));
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
    /// Those with commands under way.
    pub(crate) busy: BTreeSet<Nexus>,
    /// Those that have perhaps not begun yet: of what happens they may learn.
    pub(crate) coming: BTreeSet<Nexus>,
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

    /// Power goes and comes back. A medium that is out stays out: nobody has put it in.
    pub(crate) fn restart(&mut self) {
        let shared = &mut self.shared;
        if !shared.persists {
            shared.registrations.clear();
            shared.reservation = None;
        }
        (shared.stopped, shared.mode) = (false, shared.saved);
        (shared.generation, shared.reserved) = (0, None);
        shared.prevents.clear();
        shared.nexuses.clear();
        self.owed.clear();
        self.busy.clear();
        self.coming.clear();
    }

    /// Establishes a unit attention, which each nexus learns of when its turn comes, until the cause is over. One of a
    /// reset replaces all older ones but stronger ones.
    pub(crate) fn owe(&mut self, nexus: Nexus, code: u16, is_optional: bool) {
        let seat = self.shared.nexuses.get(&nexus);
        let hides = seat.is_none_or(|(_, view)| view.hides_attentions);
        let Some(owed) = self.owed.get_mut(&nexus).filter(|_| !hides) else {
            return;
        };
        let mut is_optional = is_optional || self.coming.contains(&nexus);
        if let Some(level) = reset_level(code) {
            let is_stronger = |old: &Attention| old.must_be_reported() && covers(old.code, level);
            let is_covered = owed.iter().any(is_stronger);
            if !is_optional {
                // What is not over may come after this, too.
                let later = owed.iter().filter(|it| it.cause.is_some() && !it.is_past);
                let later: Vec<Attention> = later.copied().collect();
                let others = owed.iter_mut().filter(|old| !is_stronger(old));
                others.for_each(Attention::pass);
                owed.extend(later.into_iter().map(|it| Attention {
                    is_optional: true,
                    ..it
                }));
            }
            is_optional |= is_covered;
        }
        let is_same = |old: &Attention| old.code == code && !old.is_past;
        // It is reported once for both, or twice.
        is_optional |= owed.iter().any(|old| is_same(old) && !old.is_optional);
        if owed.iter().filter(|old| is_same(old)).count() < TIMES_MAX {
            owed.push(Attention {
                code,
                is_optional,
                is_past: false,
                cause: Some(NEW),
            });
        }
    }

    /// Attentions that have just been established are those of this command or event. Those who came after it had begun
    /// may have come after it.
    pub(crate) fn note_cause(&mut self, tag: Tag, newcomers: &BTreeSet<Nexus>) {
        for (nexus, owed) in &mut self.owed {
            let is_new = |attention: &&mut Attention| attention.cause == Some(NEW);
            for attention in owed.iter_mut().filter(is_new) {
                attention.cause = Some(tag);
                attention.is_optional |= newcomers.contains(nexus);
            }
        }
    }

    /// All nexuses have learnt what this command or event has established.
    pub(crate) fn settle(&mut self, tag: Tag, is_exact: bool) {
        for (nexus, owed) in &mut self.owed {
            let is_its = |attention: &&mut Attention| attention.cause == Some(tag);
            let mut its = owed.iter_mut().filter(is_its).peekable();
            let is_any = its.peek().is_some();
            its.for_each(|attention| attention.cause = None);
            if is_any && (is_exact || !self.busy.contains(nexus)) {
                tidy(owed);
            }
        }
    }

    pub(crate) fn owe_all(&mut self, code: u16, is_optional: bool, but: Option<Nexus>) {
        let all: Vec<Nexus> = self.shared.nexuses.keys().copied().collect();
        for nexus in all {
            if Some(nexus) != but {
                let is_own = but.is_some_and(|but| self.session_of(but) == self.session_of(nexus));
                self.owe(nexus, code, is_optional || is_own);
            }
        }
    }

    /// The nexus that holds what the session of this one holds.
    pub(crate) fn session_of(&self, nexus: Nexus) -> Nexus {
        let seat = self.shared.nexuses.get(&nexus);
        seat.and_then(|(_, view)| view.twin_of).unwrap_or(nexus)
    }

    /// The initiator of a nexus is gone, and will see no more answers.
    pub(crate) fn abandon(&mut self, nexus: Nexus) {
        let seat = self.shared.nexuses.get_mut(&nexus);
        seat.into_iter()
            .for_each(|(_, view)| view.hides_attentions = true);
        self.owed.entry(nexus).and_modify(Vec::clear);
    }

    /// None of its commands is under way.
    pub(crate) fn note_idle(&mut self, nexus: Nexus) {
        self.busy.remove(&nexus);
        self.owed.get_mut(&nexus).into_iter().for_each(tidy);
    }

    /// The same where commands of this nexus that are under way have reported what it is owed, if it is owed anything.
    pub(crate) fn with_reported(&self, nexus: Nexus) -> Option<Self> {
        let owed = self.owed.get(&nexus)?;
        owed.iter().find(|it| it.must_be_reported())?;
        let mut new = self.clone();
        let owed = new.owed.get_mut(&nexus).into_iter().flatten();
        let must = owed.filter(|it| it.must_be_reported());
        must.for_each(|it| (it.is_optional, it.is_past) = (true, true));
        Some(new)
    }

    /// Nothing is left of a nexus.
    pub(crate) fn remove(&mut self, nexus: Nexus) {
        self.shared.nexuses.remove(&nexus);
        self.owed.remove(&nexus);
        self.busy.remove(&nexus);
        self.coming.remove(&nexus);
    }

    /// Whether the end of this nexus is the end of something that others see.
    pub(crate) fn holds_anything(&self, nexus: Nexus) -> bool {
        let session = self.session_of(nexus);
        self.shared.reserved == Some(session) || self.shared.prevents.contains(&session)
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
            let is_own = but.is_some_and(|but| self.session_of(but) == self.session_of(nexus));
            self.owe(nexus, code, is_own);
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
        if *event == (Event::Eject { force: false }) && is_prevented && self.shared.medium_in {
            return vec![refused, (None, Answer::Prevented)];
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
                self.leave(self.session_of(*nexus));
                self.owe(*nexus, 0x2907, false);
            }
            Event::NexusEnds(nexus) => {
                let session = self.session_of(*nexus);
                self.remove(*nexus);
                let mut others = self.shared.nexuses.keys();
                // By its other LUNs it goes on.
                if !others.any(|&other| self.session_of(other) == session) {
                    self.leave(session);
                }
            }
            Event::ClearTaskSet(nexus) => self.owe_all(0x2f00, true, Some(*nexus)),
            // Who prevents it goes on to do so for the time when the medium is in again.
            Event::Eject { .. } => {
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
                // The bit WP of the mode parameter header may say something else now.
                self.owe(*nexus, 0x2a01, true);
            }
            Event::ClearReservations => self.clear_reservations(),
            Event::Attention {
                code,
                to,
                is_optional,
            } => match to {
                Some(nexuses) => nexuses
                    .iter()
                    .for_each(|&nexus| self.owe(nexus, *code, *is_optional)),
                None => self.owe_all(*code, *is_optional, None),
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

    /// What ends with a session.
    fn leave(&mut self, nexus: Nexus) {
        self.shared.prevents.remove(&nexus);
        self.release_of(nexus);
    }
}
