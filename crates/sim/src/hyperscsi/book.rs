//! What both transports ask of the one unit, and what the answers may be.

use std::collections::{BTreeMap, BTreeSet};

use crate::initiator::{Breach, Operation, is_refused};
use crate::ledger::{Ended, Handle, Ledger, WrongData};
use crate::prng::Prng;

/// WRITE EXCLUSIVE and EXCLUSIVE ACCESS.
const KINDS: [u8; 2] = [1, EXCLUSIVE_ACCESS];
const EXCLUSIVE_ACCESS: u8 = 3;

/// What came of commands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcomes {
    /// They ended with GOOD.
    pub good: u64,
    /// They ended otherwise.
    pub failed: u64,
    /// Of those, with RESERVATION CONFLICT where it had to be.
    pub kept_out: u64,
    /// PREEMPT AND ABORT that took a reservation from somebody.
    pub preempted: u64,
    /// They have no answer.
    pub lost: u64,
}

/// Who is registered and who has the reservation, of which type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Reservations {
    registered: BTreeSet<usize>,
    holder: Option<(usize, u8)>,
}

/// A command about reservations that has no answer yet, and what was known before it. There is one at a time.
#[derive(Debug)]
struct Change {
    handle: Handle,
    before: Option<Reservations>,
}

/// See above.
#[derive(Debug)]
pub(super) struct Book {
    ledger: Ledger,
    next_handle: Handle,
    blocks: usize,
    volatile_cache: bool,
    /// Commands that have no answer, and whose they are.
    open: BTreeMap<Handle, (usize, Operation)>,
    /// Those of them that will have none, until the next session of their player begins.
    lost: BTreeMap<Handle, usize>,
    /// `None` where nobody can know.
    known: Option<Reservations>,
    change: Option<Change>,
    /// Commands that were sent while a reservation of somebody else was in force, which still is.
    kept_out: BTreeSet<Handle>,
    /// Writes that a preemption has ended, by player, whose end the player does not know yet. They may not have reached
    /// the target yet, and be carried out if the reservation that keeps them out goes: so nobody changes it meanwhile.
    overdue: BTreeMap<Handle, usize>,
    /// Somebody has asked for a reset, an abort or a preemption, or has taken a device away.
    pub(super) has_aborts: bool,
    pub(super) outcomes: Outcomes,
}

/// The reservation key of a player.
const fn key_of(player: usize) -> u64 {
    0x1000 + player as u64
}

impl Book {
    pub(super) fn new(blocks: usize, volatile_cache: bool) -> Self {
        Self {
            ledger: Ledger::new(blocks),
            next_handle: 1,
            blocks,
            volatile_cache,
            open: BTreeMap::new(),
            lost: BTreeMap::new(),
            known: Some(Reservations::default()),
            change: None,
            kept_out: BTreeSet::new(),
            overdue: BTreeMap::new(),
            has_aborts: false,
            outcomes: Outcomes::default(),
        }
    }

    /// A command on blocks.
    pub(super) fn draw(&self, prng: &mut Prng) -> Operation {
        let start = prng.size(0, self.blocks - 1);
        let blocks = start..start + prng.size(1, (self.blocks - start).min(8));
        let id = self.next_handle;
        match prng.below(100) {
            0..38 => {
                let room = match prng.chance(60) {
                    true => prng.size(1, blocks.len() + 2),
                    false => blocks.len(),
                };
                Operation::Read { blocks, room }
            }
            38..82 => Operation::Write {
                blocks,
                id,
                fua: prng.chance(200),
            },
            82..88 => Operation::Zero {
                blocks,
                unmap: prng.chance(500),
            },
            88..93 => Operation::CompareAndWrite {
                block: start,
                old: self.ledger.guess(start),
                id,
            },
            93..98 => Operation::Flush,
            _ => Operation::TestUnitReady,
        }
    }

    /// A command about reservations that this player may give now.
    pub(super) fn draw_reservation(&self, player: usize, prng: &mut Prng) -> Option<Operation> {
        if self.change.is_some() || !self.overdue.is_empty() {
            return None;
        }
        let (key, kind) = (key_of(player), prng.pick(&KINDS).unwrap_or(1));
        let aptpl = prng.chance(300);
        let register = Operation::Register { key, aptpl };
        let Some(known) = &self.known else {
            return Some(match prng.chance(500) {
                true => register,
                false => Operation::Clear { key },
            });
        };
        if !known.registered.contains(&player) {
            return Some(register);
        }
        match known.holder {
            None if prng.chance(800) => Some(Operation::PersistentReserve { key, kind }),
            Some((holder, _)) if holder != player && prng.chance(700) => {
                let other = key_of(holder);
                Some(Operation::PreemptAndAbort { key, other, kind })
            }
            Some((holder, _)) if holder == player && prng.chance(500) => None,
            None | Some(_) => Some(match prng.chance(500) {
                true => Operation::Clear { key },
                false => Operation::Register { key: 0, aptpl },
            }),
        }
    }

    /// A command is about to be sent.
    pub(super) fn begin(&mut self, player: usize, operation: Operation) -> Handle {
        let handle = self.next_handle;
        self.next_handle += 1;
        let ledger = &mut self.ledger;
        match &operation {
            Operation::Read { blocks, room } => {
                let seen = blocks.start..blocks.start + (*room).min(blocks.len());
                ledger.begin_read(handle, seen);
            }
            Operation::Write { blocks, id, .. } => ledger.begin_write(handle, *id, blocks.clone()),
            Operation::Zero { blocks, .. } => ledger.begin_write(handle, 0, blocks.clone()),
            Operation::CompareAndWrite { block, id, .. } => {
                ledger.begin_read(handle, *block..*block + 1);
                ledger.begin_write(handle, *id, *block..*block + 1);
            }
            Operation::Flush => ledger.begin_flush(handle),
            Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. } => {
                let before = self.known.take();
                self.change = Some(Change { handle, before });
                self.kept_out.clear();
                let aborts = matches!(operation, Operation::PreemptAndAbort { .. });
                self.has_aborts |= aborts;
            }
            Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Eject
            | Operation::Load
            | Operation::Prevent { .. }
            | Operation::SetWriteCache { .. } => {}
        }
        let holder = self.known.as_ref().and_then(|known| known.holder);
        if let Some((_, kind)) = holder.filter(|(holder, _)| *holder != player) {
            let reads = matches!(operation, Operation::Read { .. });
            if operation.writes() || reads && kind == EXCLUSIVE_ACCESS {
                self.kept_out.insert(handle);
            }
        }
        self.open.insert(handle, (player, operation));
        handle
    }

    /// A preemption or a reset may take commands of others along.
    pub(super) fn aborts_others(&self) -> bool {
        let change = self.change.as_ref();
        let operation = change.and_then(|change| self.open.get(&change.handle));
        let is_it = |(_, operation): &(usize, Operation)| {
            matches!(operation, Operation::PreemptAndAbort { .. })
        };
        operation.is_some_and(is_it)
    }

    /// The device server has answered. What was given up before is not looked at.
    pub(super) fn answer(
        &mut self,
        handle: Handle,
        (status, sense): (u8, Option<(u8, u8, u8)>),
        data: &[u8],
    ) -> Result<(), Breach> {
        self.overdue.remove(&handle);
        let Some((player, operation)) = self.open.remove(&handle) else {
            return Ok(());
        };
        self.lost.remove(&handle);
        let is_good = status == 0;
        let is_refused = is_refused(status, sense);
        self.outcomes.good += u64::from(is_good);
        self.outcomes.failed += u64::from(!is_good);
        let is_explained = match (status, sense) {
            (0x02, Some((5, 0x25, _))) => self.has_aborts,
            (0x02, Some((5 | 7, ..) | (0x0b, 0x0c | 0x47, _))) => false,
            (0x00 | 0x02 | 0x08 | 0x18 | 0x28, _) => true,
            (_, _) => false,
        };
        if !is_explained {
            let detail = format!("{status:#04x} {sense:x?} for {operation:?} of player {player}");
            return Err(Breach::new("every-status-has-a-reason", detail));
        }
        if self.kept_out.remove(&handle) {
            self.outcomes.kept_out += u64::from(status == 0x18);
            if is_good {
                let detail = format!("{operation:?} of player {player} in spite of a reservation");
                return Err(Breach::new("reservations-hold", detail));
            }
        }
        if is_change(&operation) {
            return self.end_change(player, handle, &operation, (is_good, is_refused, status));
        }
        let ended = |durable| match (is_good, is_refused) {
            (true, _) => Ended::Good { durable },
            (false, true) => Ended::Refused,
            (false, false) => Ended::Uncertain,
        };
        let is_durable = !self.volatile_cache;
        if let Operation::Read { .. } = operation {
            let checked = self.ledger.end_read(handle, is_good.then_some(data));
            checked.map_err(wrong)?;
        }
        if let Operation::CompareAndWrite { block, old, .. } = operation {
            let found = crate::ledger::content(old, block..block + 1);
            let found = is_good.then_some(found.as_slice());
            self.ledger.end_read(handle, found).map_err(wrong)?;
        }
        if operation.writes() {
            let fua = matches!(operation, Operation::Write { fua: true, .. });
            self.ledger.end_write(handle, ended(fua || is_durable));
        }
        if operation == Operation::Flush {
            self.ledger.end_flush(handle, is_good);
        }
        Ok(())
    }

    /// A command about reservations has ended.
    fn end_change(
        &mut self,
        player: usize,
        handle: Handle,
        operation: &Operation,
        (is_good, is_refused, status): (bool, bool, u8),
    ) -> Result<(), Breach> {
        let Some(Change { before, .. }) = self.change.take_if(|change| change.handle == handle)
        else {
            return Ok(());
        };
        let must_be_good = before.as_ref().is_some_and(|before| {
            let is_registered = before.registered.contains(&player);
            is_registered || matches!(operation, Operation::Register { .. })
        });
        if must_be_good && status == 0x18 {
            let detail = format!("{operation:?} of player {player} conflicts with {before:?}");
            return Err(Breach::new("reservations-are-as-they-were-made", detail));
        }
        self.known = match (is_good, is_refused) {
            (true, _) => after(before, player, operation),
            (false, true) => before,
            // It may have come into force.
            (false, false) => None,
        };
        if let Operation::PreemptAndAbort { other, .. } = operation
            && is_good
        {
            self.outcomes.preempted += 1;
            self.end_preempted(*other);
        }
        Ok(())
    }

    /// What was under way of a player that was preempted is over: nothing of it comes to pass after that, as long as
    /// somebody else has a reservation.
    fn end_preempted(&mut self, key: u64) {
        let holder = self.known.as_ref().and_then(|known| known.holder);
        if holder.is_none_or(|(holder, _)| key_of(holder) == key) {
            return;
        }
        let is_theirs =
            |player: usize, operation: &Operation| key_of(player) == key && operation.writes();
        let open = self.open.iter();
        let theirs = open.filter(|(_, (player, operation))| is_theirs(*player, operation));
        let theirs: Vec<_> = theirs
            .map(|(handle, (player, _))| (*handle, *player))
            .collect();
        for (handle, player) in theirs {
            self.forget(handle);
            self.overdue.insert(handle, player);
        }
    }

    /// A command ends without an answer, and nothing of it comes to pass from now on.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.end_without_answer(handle, Ended::Uncertain);
    }

    /// A command was not carried out, and will not be.
    pub(super) fn refuse(&mut self, handle: Handle) {
        self.end_without_answer(handle, Ended::Refused);
    }

    fn end_without_answer(&mut self, handle: Handle, ended: Ended) {
        self.lost.remove(&handle);
        self.kept_out.remove(&handle);
        self.overdue.remove(&handle);
        let Some((_, operation)) = self.open.remove(&handle) else {
            return;
        };
        if let Some(Change { before, .. }) = self.change.take_if(|change| change.handle == handle) {
            self.known = before.filter(|_| ended == Ended::Refused);
        }
        drop(self.ledger.end_read(handle, None));
        if operation.writes() {
            self.ledger.end_write(handle, ended);
        }
        self.ledger.end_flush(handle, false);
    }

    /// Nobody will answer a command. It may come to pass until the next session of its player begins.
    pub(super) fn lose(&mut self, handle: Handle) {
        if let Some((player, _)) = self.open.get(&handle) {
            self.lost.insert(handle, *player);
            self.outcomes.lost += 1;
        }
    }

    /// A session of a player begins: all that was under way of its last one is over.
    pub(super) fn rejoin(&mut self, player: usize) {
        self.overdue.retain(|_, whose| *whose != player);
        let of_player = self.lost.iter().filter(|(_, whose)| **whose == player);
        let over: Vec<Handle> = of_player.map(|(handle, _)| *handle).collect();
        for handle in over {
            self.forget(handle);
        }
    }

    /// All sessions are over.
    pub(super) fn end_all(&mut self) {
        let left: Vec<Handle> = self.open.keys().copied().collect();
        for handle in left {
            self.forget(handle);
        }
    }

    /// The machine of the target has stopped.
    pub(super) fn crash(&mut self) {
        self.ledger.crash();
        self.open.clear();
        self.lost.clear();
        self.kept_out.clear();
        self.overdue.clear();
        (self.known, self.change) = (None, None);
    }

    /// Holds the medium against the book.
    pub(super) fn check(&mut self, content: &[u8]) -> Result<(), Breach> {
        self.ledger.check_all(content).map_err(wrong)
    }
}

/// It changes reservations.
const fn is_change(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. }
    )
}

/// What is known after a command that ended with GOOD.
fn after(
    before: Option<Reservations>,
    player: usize,
    operation: &Operation,
) -> Option<Reservations> {
    if let Operation::Clear { .. } = operation {
        return Some(Reservations::default());
    }
    let mut known = before?;
    if let Operation::Register { key, .. } = operation {
        if *key != 0 {
            known.registered.insert(player);
        } else if known.registered.remove(&player) {
            known.holder.take_if(|(holder, _)| *holder == player);
        }
    }
    if let Operation::PersistentReserve { kind, .. } = operation {
        known.holder = Some((player, *kind));
    }
    if let Operation::PreemptAndAbort { other, kind, .. } = operation {
        known.registered.retain(|one| key_of(*one) != *other);
        let is_theirs = |(holder, _): (usize, u8)| key_of(holder) == *other;
        if known.holder.is_some_and(is_theirs) {
            known.holder = Some((player, *kind));
        }
    }
    Some(known)
}

/// Sense key, ASC and ASCQ.
pub(super) fn sense_of(sense: &[u8]) -> Option<(u8, u8, u8)> {
    match sense.first()? & 0x7f {
        0x70 | 0x71 => Some((sense.get(2)? & 0x0f, *sense.get(12)?, *sense.get(13)?)),
        0x72 | 0x73 => Some((sense.get(1)? & 0x0f, *sense.get(2)?, *sense.get(3)?)),
        _ => None,
    }
}

fn wrong(found: WrongData) -> Breach {
    let WrongData { lba, got, possible } = found;
    let detail = format!("block {lba} holds {got}, possible are {possible:?}");
    Breach::new("reads-give-what-was-written", detail)
}
