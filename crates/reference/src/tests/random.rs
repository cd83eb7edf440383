//! Histories of a unit that does one thing after the other, with answers that take their time, are never refused; such
//! with one wrong answer are, of each kind in some seed.

use super::*;
use crate::answer::Answer;
use crate::command::{Command, Kind};
use crate::state::{NEW, State};

/// What the unit does wrong, once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    StaleRead,
    LostWrite,
    ReservationIgnored,
    AttentionMissing,
    AttentionTwice,
    WrongOrder,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn byte(&mut self, bound: usize) -> u8 {
        u8::try_from(self.below(bound)).unwrap()
    }
}

/// An answer, as the initiator gets it.
#[derive(Clone, Default)]
struct Reply {
    status: u8,
    sense: Vec<u8>,
    data: Vec<u8>,
}

impl Reply {
    fn outcome(&self) -> Outcome<'_> {
        Outcome {
            status: self.status,
            sense: &self.sense,
            data_in: &self.data,
        }
    }

    fn of(answer: &Answer) -> Self {
        let check = |key: u8, code: u16| {
            let code = if code & 0xff == 0xff {
                code & 0xff00
            } else {
                code
            };
            Self {
                status: 2,
                sense: sense(key, code).to_vec(),
                data: Vec::new(),
            }
        };
        match answer {
            Answer::Attention(code) => check(6, *code),
            Answer::Conflict => Self {
                status: 0x18,
                ..Self::default()
            },
            Answer::Check(key, code) => check(*key, *code),
            Answer::Refused => check(5, 0x2400),
            Answer::Data(data) => Self {
                data: data.clone(),
                ..Self::default()
            },
            Answer::Keys(generation, keys) => {
                let length = u32::try_from(8 * keys.len()).unwrap();
                let mut data = [generation.to_be_bytes(), length.to_be_bytes()].concat();
                keys.iter()
                    .for_each(|(key, _)| data.extend_from_slice(&key.to_be_bytes()));
                Self {
                    data,
                    ..Self::default()
                }
            }
            Answer::Go
            | Answer::Done
            | Answer::Mode(..)
            | Answer::Sense(_)
            | Answer::FullStatus(..)
            | Answer::Anything
            | Answer::Happens(_)
            | Answer::Prevented => Self::default(),
        }
    }
}

/// The unit: its state, and a byte for each block.
struct Machine {
    state: State,
    medium: Vec<u8>,
    /// What each block held before.
    before: Vec<u8>,
    /// A state that is older than every command under way.
    old: State,
    fault: Option<Fault>,
}

impl Machine {
    /// The command takes effect.
    fn apply(&mut self, random: &mut Random, nexus: Nexus, command: &Command) -> Reply {
        let is_stale =
            self.fault == Some(Fault::WrongOrder) && self.old != self.state && random.below(3) == 0;
        let before = if is_stale { &self.old } else { &self.state };
        let steps = crate::turn::steps(before, nexus, command, &plan());
        let (state, answer) = steps[random.below(steps.len())].clone();
        let mut reply = Reply::of(&answer);
        let mut works = answer == Answer::Go;
        if is_stale {
            self.fault = None;
        } else if answer == Answer::Conflict && self.fault == Some(Fault::ReservationIgnored) {
            (self.fault, reply, works) = (None, Reply::default(), command.means_blocks());
        } else if matches!(answer, Answer::Attention(_))
            && self.fault == Some(Fault::AttentionMissing)
        {
            (self.fault, reply, works) = (None, Reply::default(), command.means_blocks());
            self.state = state.unwrap();
        } else if matches!(answer, Answer::Attention(_))
            && self.fault == Some(Fault::AttentionTwice)
        {
            self.fault = None;
        } else if let Some(state) = state {
            self.state = state;
        }
        self.state.settle(NEW, true);
        let lba = usize::try_from(command.lba).unwrap();
        if works && command.kind == Kind::Read {
            let is_stale =
                self.fault == Some(Fault::StaleRead) && self.before[lba] != self.medium[lba];
            self.fault.take_if(|_| is_stale);
            reply.data = vec![
                if is_stale {
                    self.before[lba]
                } else {
                    self.medium[lba]
                };
                BLOCK
            ];
        }
        if works && command.kind == Kind::Write {
            if self.fault == Some(Fault::LostWrite) {
                self.fault = None;
            } else {
                (self.before[lba], self.medium[lba]) = (self.medium[lba], command.data_out[0]);
            }
        }
        reply
    }
}

fn some_command(random: &mut Random, nexus: Nexus) -> (Vec<u8>, Vec<u8>) {
    let own = nexus.0;
    let persistent = |(cdb, list): ([u8; 10], Vec<u8>)| (cdb.to_vec(), list);
    match random.below(20) {
        0..=5 => (
            write(random.byte(4), 1, false).to_vec(),
            vec![random.byte(200) + 1; BLOCK],
        ),
        6..=10 => (read(random.byte(4), 1).to_vec(), Vec::new()),
        11 => (RESERVE.to_vec(), Vec::new()),
        12 => (RELEASE.to_vec(), Vec::new()),
        13 => (
            if random.below(2) == 0 { PREVENT } else { ALLOW }.to_vec(),
            Vec::new(),
        ),
        14 => (
            if random.below(3) == 0 { EJECT } else { LOAD }.to_vec(),
            Vec::new(),
        ),
        15 => {
            let (cdb, list) = cache(random.below(2) == 0);
            (cdb.to_vec(), list)
        }
        16 => persistent(super::persistent(
            6,
            0,
            0,
            if random.below(3) == 0 { 0 } else { own },
        )),
        17 => persistent(super::persistent(1 + random.byte(2), 5, own, 0)),
        18 => persistent(super::persistent(4, 1, own, 1 + u64::from(random.byte(3)))),
        _ => (vec![0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], Vec::new()),
    }
}

/// One history. Whether the fault was planted, and what the reference says.
fn history(mut unit: Unit, seed: u64, fault: Option<Fault>) -> (bool, Result<(), Breach>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
    let mut state = State::new(&plan());
    for nexus in [A, B, C] {
        unit.nexus_begins(nexus, &port(nexus), View::default());
        state.begin_nexus(nexus, port(nexus), View::default());
        state.settle(NEW, true);
    }
    let mut machine = Machine {
        old: state.clone(),
        state,
        medium: vec![0; 64],
        before: vec![0; 64],
        fault: None,
    };
    // Commands that have no effect yet, and answers that are under way.
    let mut waiting: Vec<(Tag, Nexus, Command)> = Vec::new();
    let mut answers: Vec<(Tag, Reply)> = Vec::new();
    for turn in 0..400_u64 {
        if turn == 60 {
            machine.fault = fault;
        }
        if waiting.is_empty() && answers.is_empty() {
            machine.old = machine.state.clone();
        }
        let tag = Tag(turn);
        match random.below(7) {
            0..=2 if waiting.len() + answers.len() < 6 && turn < 360 && turn % 40 < 32 => {
                let nexus = [A, B, C][random.below(3)];
                let (cdb, data) = some_command(&mut random, nexus);
                unit.begin(tag, nexus, &cdb, &data, usize::MAX);
                waiting.push((tag, nexus, Command::new(&cdb, &data)));
            }
            3 if random.below(8) == 0 => {
                unit.event_begins(tag, Event::LogicalUnitReset);
                let (state, _) = machine
                    .state
                    .happen(&Event::LogicalUnitReset)
                    .pop()
                    .unwrap();
                machine.state = state.unwrap_or_else(|| machine.state.clone());
                machine.state.settle(NEW, true);
                if let Err(breach) = unit.event_ends(tag, true) {
                    return (machine.fault.is_none(), Err(breach));
                }
            }
            0..=4 if !waiting.is_empty() => {
                let (tag, nexus, command) = waiting.swap_remove(random.below(waiting.len()));
                answers.push((tag, machine.apply(&mut random, nexus, &command)));
            }
            _ if !answers.is_empty() => {
                let (tag, reply) = answers.swap_remove(random.below(answers.len()));
                if let Err(breach) = unit.end(tag, reply.outcome()) {
                    return (machine.fault.is_none(), Err(breach));
                }
            }
            _ => {}
        }
    }
    let judged = finish(&mut unit, &machine.medium, waiting, answers);
    (machine.fault.is_none(), judged)
}

/// Commands that wait are lost, answers come, and the medium is compared.
fn finish(
    unit: &mut Unit,
    medium: &[u8],
    waiting: Vec<(Tag, Nexus, Command)>,
    answers: Vec<(Tag, Reply)>,
) -> Result<(), Breach> {
    waiting.iter().try_for_each(|(tag, ..)| unit.gone(*tag))?;
    for (tag, reply) in answers {
        unit.end(tag, reply.outcome())?;
    }
    let content: Vec<u8> = medium.iter().flat_map(|&byte| [byte; BLOCK]).collect();
    unit.check_medium(&content)
}

#[test]
fn right_histories_are_never_refused() {
    for seed in 0..300 {
        let (_, judged) = history(Unit::new(plan()), seed, None);
        assert_eq!(judged, Ok(()), "seed {seed}");
        let (_, judged) = history(Unit::crowded(plan()), seed, None);
        let is_followed = !matches!(judged, Err(Breach::TooManyStates(_)));
        assert!(
            judged.is_ok() || !is_followed,
            "seed {seed}, crowded: {judged:?}"
        );
    }
}

#[test]
fn each_kind_of_wrong_answer_is_refused_in_some_seed() {
    let faults = [
        Fault::StaleRead,
        Fault::LostWrite,
        Fault::ReservationIgnored,
        Fault::AttentionMissing,
        Fault::AttentionTwice,
        Fault::WrongOrder,
    ];
    for fault in faults {
        let ends = (0..60).map(|seed| history(Unit::new(plan()), seed, Some(fault)));
        let planted: Vec<_> = ends.filter(|(is_planted, _)| *is_planted).collect();
        let refused = planted.iter().filter(|(_, judged)| judged.is_err()).count();
        assert!(
            refused > 0 && 4 * refused >= planted.len(),
            "{fault:?}: {refused} of {}",
            planted.len()
        );
    }
}
