//! Every PERSISTENT RESERVE OUT, from every kind of sender, in every kind of state, with several
//! nexuses on one core: what is answered, what the state is then, which nexus gets which unit attention,
//! whose tasks end. The expected side is typed from the standard, not from the code.
//!
//! Spec: SPC-4, Registering, Unregistering, Reserving, Releasing, Clearing, Preempting, Preempting and
//! aborting, Registering and moving.

use super::*;
use ReservationType as Type;

/// The nexuses, three of them on one core. B and D registered the same key; C is a stranger.
const NEXUSES: [(usize, u32); 4] = [(0, 1), (0, 2), (1, 3), (0, 4)];
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
/// A port without a session, to which a reservation can be moved.
const ELSEWHERE: usize = 4;

const KEY_A: u64 = 0xa1;
const KEY_BD: u64 = 0xb1;
const KEY_NEW: u64 = 0xe1;
const KEY_UNKNOWN: u64 = 0xf1;

/// Who holds what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Held {
    kind: Type,
    /// `None`: all registrants.
    by: Option<usize>,
}

/// The state as PERSISTENT RESERVE IN shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct State {
    keys: [Option<u64>; 5],
    held: Option<Held>,
    /// Counted from the beginning of the case.
    generation: u32,
}

/// A command.
#[derive(Clone, Copy, Debug)]
enum Action {
    Register(u64),
    RegisterAndIgnore(u64),
    Reserve(Type),
    Release(Type),
    Clear,
    Preempt {
        kind: Type,
        victim: u64,
        aborts: bool,
    },
    Move {
        key: u64,
        unregister: bool,
    },
    ReplaceLost(Type),
}

/// How a command ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Good,
    Conflict,
    Check(Codes),
}

const BAD_PARAMETER: End = End::Check((5, 0x26, 0x00));
const BAD_CDB: End = End::Check((5, 0x24, 0x00));
const BAD_RELEASE: End = End::Check((5, 0x26, 0x04));

const PREEMPTED: Codes = (6, 0x2a, 0x03);
const RELEASED: Codes = (6, 0x2a, 0x04);
const UNREGISTERED: Codes = (6, 0x2a, 0x05);

/// Everything that follows from a command.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Outcomes {
    end: End,
    state: State,
    told: [Option<Codes>; 4],
    aborted: Vec<usize>,
}

const fn is_all_registrants(kind: Type) -> bool {
    matches!(
        kind,
        Type::WriteExclusiveAllRegistrants | Type::ExclusiveAccessAllRegistrants
    )
}

/// Releasing these is reported to the registrants, who lose what they had by them.
const fn serves_registrants(kind: Type) -> bool {
    !matches!(kind, Type::WriteExclusive | Type::ExclusiveAccess)
}

const fn held_by(kind: Type, by: usize) -> Held {
    Held {
        kind,
        by: if is_all_registrants(kind) {
            None
        } else {
            Some(by)
        },
    }
}

impl State {
    fn is_holder(&self, who: usize) -> bool {
        let registered = self.keys[who].is_some();
        self.held
            .is_some_and(|held| held.by.map_or(registered, |by| by == who))
    }
}

/// The standard, as a calculation.
struct Standard {
    sender: usize,
    state: State,
    told: [Option<Codes>; 4],
    aborted: Vec<usize>,
}

impl Standard {
    /// What must come of a command that gives this RESERVATION KEY.
    fn expects(before: &State, sender: usize, key: u64, action: Action) -> Outcomes {
        let mut run = Self {
            sender,
            state: before.clone(),
            told: [None; 4],
            aborted: Vec::new(),
        };
        let end = run.apply(key, action);
        if end == End::Good {
            let Self {
                state,
                told,
                mut aborted,
                ..
            } = run;
            aborted.sort_unstable();
            return Outcomes {
                end,
                state,
                told,
                aborted,
            };
        }
        Outcomes {
            end,
            state: before.clone(),
            told: [None; 4],
            aborted: Vec::new(),
        }
    }

    fn apply(&mut self, key: u64, action: Action) -> End {
        let own = self.state.keys[self.sender];
        match action {
            Action::Register(new) if own.unwrap_or(0) == key => self.register(new),
            Action::Register(_) => End::Conflict,
            Action::RegisterAndIgnore(new) => self.register(new),
            Action::ReplaceLost(_) => BAD_RELEASE,
            _ if own != Some(key) => End::Conflict,
            Action::Reserve(kind) => self.reserve(kind),
            Action::Release(kind) => self.release(kind),
            Action::Clear => self.clear(),
            Action::Preempt {
                kind,
                victim,
                aborts,
            } => self.preempt(kind, victim, aborts),
            Action::Move { key, unregister } => self.move_to_elsewhere(key, unregister),
        }
    }

    fn register(&mut self, new: u64) -> End {
        let registered = self.state.keys[self.sender].is_some();
        if new == 0 && !registered {
            return End::Good;
        }
        self.state.generation += 1;
        if new != 0 {
            self.state.keys[self.sender] = Some(new);
            return End::Good;
        }
        let was_holder = self.state.is_holder(self.sender);
        self.state.keys[self.sender] = None;
        let Some(held) = self.state.held.filter(|_| was_holder) else {
            return End::Good;
        };
        let is_last = self.state.keys.iter().all(Option::is_none);
        if held.by.is_some() || is_last {
            self.state.held = None;
            if serves_registrants(held.kind) {
                self.tell_registrants(RELEASED);
            }
        }
        End::Good
    }

    fn reserve(&mut self, kind: Type) -> End {
        match self.state.held {
            None => {
                self.state.held = Some(held_by(kind, self.sender));
                End::Good
            }
            Some(held) if held.kind == kind && self.state.is_holder(self.sender) => End::Good,
            Some(_) => End::Conflict,
        }
    }

    fn release(&mut self, kind: Type) -> End {
        let Some(held) = self
            .state
            .held
            .filter(|_| self.state.is_holder(self.sender))
        else {
            return End::Good;
        };
        if held.kind != kind {
            return BAD_RELEASE;
        }
        self.state.held = None;
        if serves_registrants(kind) {
            self.tell_registrants(RELEASED);
        }
        End::Good
    }

    fn clear(&mut self) -> End {
        self.tell_registrants(PREEMPTED);
        self.state.keys = [None; 5];
        self.state.held = None;
        self.state.generation += 1;
        End::Good
    }

    fn preempt(&mut self, kind: Type, victim: u64, aborts: bool) -> End {
        let holder_key = self
            .state
            .held
            .and_then(|held| held.by)
            .map(|by| self.state.keys[by].unwrap());
        let takes_over = match (self.state.held, holder_key) {
            (Some(_), Some(_)) if victim == 0 => return BAD_PARAMETER,
            (Some(_), Some(key)) => key == victim,
            (Some(_), None) => victim == 0,
            (None, _) => false,
        };
        let is_hit = |key: &Option<u64>| key.is_some_and(|key| victim == 0 || key == victim);
        let hit: Vec<usize> = (0..4)
            .filter(|&who| is_hit(&self.state.keys[who]))
            .collect();
        if !takes_over && (victim == 0 || hit.is_empty()) {
            return End::Conflict;
        }
        if aborts {
            self.aborted.clone_from(&hit);
        }
        for who in hit {
            // Who takes over stays registered; who names its own key otherwise goes with the rest.
            if who != self.sender {
                self.told[who] = Some(UNREGISTERED);
            } else if takes_over {
                continue;
            }
            self.state.keys[who] = None;
        }
        if takes_over {
            let before = self.state.held.replace(held_by(kind, self.sender));
            if before.is_some_and(|held| held.kind != kind) {
                self.tell_registrants(RELEASED);
            }
        } else if self.state.keys.iter().all(Option::is_none) {
            self.state.held = None;
        }
        self.state.generation += 1;
        End::Good
    }

    fn move_to_elsewhere(&mut self, key: u64, unregister: bool) -> End {
        let Some(held) = self.state.held else {
            return BAD_CDB;
        };
        if held.by != Some(self.sender) {
            return End::Conflict;
        }
        if key == 0 {
            return BAD_PARAMETER;
        }
        self.state.keys[ELSEWHERE] = Some(key);
        self.state.held = Some(Held {
            kind: held.kind,
            by: Some(ELSEWHERE),
        });
        if unregister {
            self.state.keys[self.sender] = None;
        }
        self.state.generation += 1;
        End::Good
    }

    /// All who are registered now, except the sender.
    fn tell_registrants(&mut self, what: Codes) {
        for who in 0..4 {
            if who != self.sender && self.state.keys[who].is_some() {
                self.told[who] = Some(what);
            }
        }
    }
}

/// The initiator port of [`ELSEWHERE`].
const PORT_ELSEWHERE: &[u8; 24] = b"iqn.2026-11.test:9,i,0x1";

/// The CDB and the parameter list.
fn bytes(action: Action, key: u64) -> ([u8; 10], Vec<u8>) {
    let (code, kind, action_key) = match action {
        Action::Register(new) => (0x00, 0, new),
        Action::Reserve(kind) => (0x01, kind as u8, 0),
        Action::Release(kind) => (0x02, kind as u8, 0),
        Action::Clear => (0x03, 0, 0),
        Action::Preempt {
            kind,
            victim,
            aborts,
        } => (0x04 + u8::from(aborts), kind as u8, victim),
        Action::RegisterAndIgnore(new) => (0x06, 0, new),
        Action::Move { key, .. } => (0x07, 0, key),
        Action::ReplaceLost(kind) => (0x08, kind as u8, KEY_NEW),
    };
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    if let Action::Move { unregister, .. } = action {
        list.extend_from_slice(&[0, 2 * u8::from(unregister), 0, 1, 0, 0, 0, 32]);
        list.extend_from_slice(&[0x45, 0, 0, 28]);
        list.extend_from_slice(PORT_ELSEWHERE);
        list.extend_from_slice(&[0; 4]);
    }
    list.resize(list.len().max(24), 0);
    let length = u8::try_from(list.len()).unwrap();
    ([0x5f, code, kind, 0, 0, 0, 0, 0, length, 0], list)
}

/// A unit with its nexuses.
struct Unit {
    rig: Rig,
    at: [At; 4],
    generation: u32,
}

impl Unit {
    /// A, B and D are registered if anybody is, and `held` is held.
    fn new(is_registered: bool, held: Option<Held>) -> Self {
        let mut rig = Rig::new(profile());
        let at = NEXUSES.map(|(core, number)| {
            rig.change(Some(number), ChangeKind::NexusAttached);
            rig.attach(core, number)
        });
        let mut unit = Self {
            rig,
            at,
            generation: 0,
        };
        for (who, key) in [(A, KEY_A), (B, KEY_BD), (D, KEY_BD)] {
            if is_registered {
                assert_eq!(unit.send(who, 0, Action::Register(key)), End::Good);
            }
        }
        if let Some(Held { kind, by }) = held {
            let by = by.unwrap_or(A);
            let key = if by == A { KEY_A } else { KEY_BD };
            assert_eq!(unit.send(by, key, Action::Reserve(kind)), End::Good);
        }
        unit.generation = unit.read().generation;
        unit
    }

    fn send(&mut self, who: usize, key: u64, action: Action) -> End {
        let (cdb, list) = bytes(action, key);
        let outcome = self.rig.run(self.at[who], &cdb, &list);
        match outcome.status {
            Status::Good => End::Good,
            Status::ReservationConflict => End::Conflict,
            Status::CheckCondition => End::Check(sense(&outcome)),
            other @ (Status::ConditionMet
            | Status::Busy
            | Status::TaskSetFull
            | Status::AcaActive
            | Status::TaskAborted) => panic!("{action:?}: {other:?}"),
        }
    }

    /// READ FULL STATUS, which no attention waits for: it is read through a nexus of its own.
    fn read(&mut self) -> State {
        let reader = self.rig.attach(1, 77);
        let cdb = [0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
        let data = data(self.rig.run(reader, &cdb, &[]));
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let mut state = State {
            keys: [None; 5],
            held: None,
            generation: number(&data[..4]).wrapping_sub(self.generation),
        };
        let (mut rest, mut holders) = (&data[8..], Vec::new());
        while let Some((descriptor, behind)) = rest.split_at_checked(24) {
            let (id, behind) = behind.split_at(number(&descriptor[20..]) as usize);
            let who = if id.windows(24).any(|window| window == PORT_ELSEWHERE) {
                ELSEWHERE
            } else {
                let port = |(_, n): &(usize, u32)| nexus(*n).port.transport_id[..] == *id;
                NEXUSES.iter().position(port).unwrap()
            };
            let key = u64::from_be_bytes(descriptor[..8].try_into().unwrap());
            assert_eq!(state.keys[who].replace(key), None, "registered twice");
            if descriptor[12] & 1 != 0 {
                holders.push((who, descriptor[13]));
            }
            rest = behind;
        }
        state.held = holders.first().map(|&(who, code)| {
            let kind = Type::ALL.into_iter().find(|kind| *kind as u8 == code);
            held_by(kind.unwrap(), who)
        });
        let registered = state.keys.iter().flatten().count();
        let expected = match state.held {
            Some(held) if held.by.is_none() => registered,
            Some(_) => 1,
            None => 0,
        };
        assert_eq!(holders.len(), expected, "who holds it");
        state
    }

    /// The unit attention that each nexus gets at its next command.
    fn told(&mut self) -> [Option<Codes>; 4] {
        self.at.map(|at| {
            let outcome = self.rig.run(at, &[0; 6], &[]);
            (outcome.status == Status::CheckCondition).then(|| sense(&outcome))
        })
    }

    fn aborted(&self) -> Vec<usize> {
        let is = |number: u32| self.rig.aborted.iter().any(|who| who.is(&nexus(number)));
        (0..4).filter(|&who| is(NEXUSES[who].1)).collect()
    }
}

/// Every command that a sender may give in these states.
fn actions() -> Vec<Action> {
    let mut all = vec![Action::Clear];
    for key in [0, KEY_NEW] {
        all.extend([Action::Register(key), Action::RegisterAndIgnore(key)]);
        let moves = [false, true].map(|unregister| Action::Move { key, unregister });
        all.extend(moves);
    }
    for kind in Type::ALL {
        all.extend([
            Action::Reserve(kind),
            Action::Release(kind),
            Action::ReplaceLost(kind),
        ]);
        for victim in [0, KEY_A, KEY_BD, KEY_UNKNOWN] {
            all.extend([false, true].map(|aborts| Action::Preempt {
                kind,
                victim,
                aborts,
            }));
        }
    }
    all
}

/// Nobody registered, nothing held, every type held by A, every type with one holder held by B, whose
/// key D has, too.
fn states() -> Vec<(bool, Option<Held>)> {
    let mut all = vec![(false, None), (true, None)];
    for kind in Type::ALL {
        for by in [A, B] {
            let held = held_by(kind, by);
            if by == A || held.by.is_some() {
                all.push((true, Some(held)));
            }
        }
    }
    all
}

#[test]
fn every_action_from_every_sender_in_every_state_is_answered_as_the_standard_says() {
    let (mut wrong, mut cells, mut good) = (Vec::new(), 0, 0);
    for (is_registered, held) in states() {
        for sender in [A, B, C, D] {
            let own = match sender {
                _ if !is_registered => 0,
                A => KEY_A,
                C => 0,
                _ => KEY_BD,
            };
            for action in actions() {
                for key in [own, KEY_UNKNOWN] {
                    let mut unit = Unit::new(is_registered, held);
                    let before = unit.read();
                    let expected = Standard::expects(&before, sender, key, action);
                    let end = unit.send(sender, key, action);
                    let got = Outcomes {
                        end,
                        state: unit.read(),
                        aborted: unit.aborted(),
                        told: unit.told(),
                    };
                    cells += 1;
                    good += usize::from(end == End::Good);
                    if got != expected {
                        wrong.push(format!(
                            "{held:?}, {sender} gives {key:x}: {action:?}\n  got {got:?}\n  not {expected:?}"
                        ));
                    }
                }
            }
        }
    }
    assert_eq!(cells, states().len() * 4 * actions().len() * 2);
    assert!(good > cells / 8, "{good} of {cells} were carried out");
    assert!(
        wrong.is_empty(),
        "{} of {cells}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}
