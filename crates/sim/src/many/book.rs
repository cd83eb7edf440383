//! What is known of one unit, and what the answers of commands to it may be.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::MediumOrder;
use reference::Event;

use super::judge::Judge;
use super::known::{Change, Known};
use super::stores::Faults;
use crate::initiator::{Breach, Operation};
use crate::ledger::{Ended, Handle, Ledger, WrongData};
use crate::prng::Prng;

/// WRITE EXCLUSIVE and EXCLUSIVE ACCESS.
const KINDS: [u8; 2] = [1, EXCLUSIVE_ACCESS];
const EXCLUSIVE_ACCESS: u8 = 3;
/// That of RESERVE (6), which is none.
const LEGACY: u8 = 0;

/// A unit that has more blocks is now and then read or written as a whole.
const LARGE: usize = 1000;
/// On one that has fewer, more commands compare, and more are long: its cores have less memory.
const SMALL: usize = 64;

/// How a command ended, as far as the unit is concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Good,
    /// It was not carried out, and will not be.
    Refused,
    /// Some of it may have been carried out.
    Uncertain,
}

/// Who is registered and who has the reservation, of which type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Reservations {
    registered: BTreeSet<usize>,
    holder: Option<(usize, u8)>,
}

/// A command about reservations that has no answer yet, and what was known before it. There is one at a time.
#[derive(Debug)]
struct ReservationChange {
    handle: Handle,
    player: usize,
    before: Option<Reservations>,
}

/// What was the case when a command was sent.
#[derive(Debug)]
struct Begun {
    cache: u64,
    full: u64,
    medium_change: Option<Change<bool>>,
    cache_change: Option<Change<bool>>,
}

/// See above.
#[derive(Debug)]
pub(super) struct Book {
    ledger: Ledger,
    blocks: usize,
    has_volatile_cache: bool,
    begun: BTreeMap<Handle, Begun>,
    /// `None` where it cannot be known.
    known: Option<Reservations>,
    change: Option<ReservationChange>,
    /// Writes that a preemption has ended, by player, whose end the player does not know yet. They may not have reached
    /// the target yet, and be carried out if the reservation that keeps them out goes: so nobody changes it meanwhile.
    overdue: BTreeMap<Handle, usize>,
    /// The medium is in.
    medium: Known<bool>,
    /// The write cache is on.
    cache: Known<bool>,
    /// It gets no more space.
    full: Known<bool>,
    /// An administrator may have the unit write through.
    pub(super) is_cache_ordered: bool,
    pub(super) is_removable: bool,
    /// What of its store may fail.
    pub(super) faults: Faults,
    pub(super) judge: Judge,
    /// Resets under way, or with an outcome that nobody knows.
    pub(super) resets: usize,
    /// Preemptions.
    pub(super) preempted: u64,
}

/// What leads to a preemption.
#[derive(Debug)]
pub(super) enum Feud {
    /// First a player gives this command.
    Prepare(usize, Operation),
    /// One has the reservation, and the other one is registered.
    Ready {
        /// Who has it.
        holder: usize,
        /// Who may preempt it.
        rival: usize,
    },
}

/// The reservation key of a player.
pub(super) const fn key_of(player: usize) -> u64 {
    0x1000 + player as u64
}

impl Book {
    pub(super) fn new(blocks: usize, has_volatile_cache: bool, is_removable: bool) -> Self {
        Self {
            ledger: Ledger::new(blocks),
            blocks,
            has_volatile_cache,
            begun: BTreeMap::new(),
            known: Some(Reservations::default()),
            change: None,
            overdue: BTreeMap::new(),
            medium: Known::new(true),
            cache: Known::new(has_volatile_cache),
            full: Known::new(false),
            is_cache_ordered: false,
            is_removable,
            faults: Faults::default(),
            judge: Judge::new(blocks, has_volatile_cache, is_removable),
            resets: 0,
            preempted: 0,
        }
    }

    // ---- what to ask for ---------------------------------------------------------------------

    /// A command on blocks, which would write this.
    pub(super) fn draw(&self, id: Handle, prng: &mut Prng) -> Operation {
        let start = prng.size(0, self.blocks - 1);
        let is_small = self.blocks < SMALL;
        let is_long = prng.chance(if is_small { 150 } else { 60 });
        let longest = if is_long { self.blocks } else { 8 };
        let mut blocks = start..start + prng.size(1, (self.blocks - start).min(longest));
        if self.blocks > LARGE && prng.chance(40) {
            blocks = 0..self.blocks;
        }
        match prng.below(100) {
            _ if is_small && prng.chance(200) => Operation::CompareAndWrite {
                block: start,
                old: self.ledger.guess(start),
                id,
            },
            0..36 => {
                let room = match prng.chance(60) {
                    true => prng.size(1, blocks.len() + 2),
                    false => blocks.len(),
                };
                Operation::Read { blocks, room }
            }
            36..76 => Operation::Write {
                blocks,
                id,
                fua: prng.chance(200),
            },
            76..81 => Operation::Zero {
                blocks,
                unmap: prng.chance(500),
            },
            81..88 => Operation::CompareAndWrite {
                block: start,
                old: self.ledger.guess(start),
                id,
            },
            88..93 => Operation::Flush,
            93 | 94 => Operation::Inquiry,
            _ => Operation::TestUnitReady,
        }
    }

    /// A command about the medium or the cache.
    pub(super) fn draw_mode(&self, prng: &mut Prng) -> Operation {
        match prng.below(10) {
            0..2 if self.is_removable => Operation::Eject,
            2..5 if self.is_removable => Operation::Load,
            5..8 if self.is_removable => Operation::Prevent {
                on: prng.chance(600),
            },
            _ => Operation::SetWriteCache {
                on: self.has_volatile_cache && prng.chance(500),
            },
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
        if let Some((holder, LEGACY)) = known.holder {
            return (holder == player).then_some(Operation::Release);
        }
        if known.registered.is_empty() && prng.chance(200) {
            return Some(Operation::Reserve);
        }
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

    /// What two players do next so that one may preempt the other; nothing while that is not known.
    pub(super) fn towards_preemption(&self, players: [usize; 2], prng: &mut Prng) -> Option<Feud> {
        if self.change.is_some() || !self.overdue.is_empty() {
            return None;
        }
        let [one, other] = players;
        let register = |player| Operation::Register {
            key: key_of(player),
            aptpl: false,
        };
        let Some(known) = &self.known else {
            let key = key_of(one);
            return Some(Feud::Prepare(
                one,
                match prng.chance(500) {
                    true => register(one),
                    false => Operation::Clear { key },
                },
            ));
        };
        if let Some((holder, LEGACY)) = known.holder {
            let is_theirs = players.contains(&holder);
            return is_theirs.then_some(Feud::Prepare(holder, Operation::Release));
        }
        let mut players = players.into_iter();
        if let Some(player) = players.find(|player| !known.registered.contains(player)) {
            return Some(Feud::Prepare(player, register(player)));
        }
        match known.holder {
            None => {
                let (key, kind) = (key_of(one), 1);
                Some(Feud::Prepare(
                    one,
                    Operation::PersistentReserve { key, kind },
                ))
            }
            Some((holder, _)) if holder == one => Some(Feud::Ready {
                holder,
                rival: other,
            }),
            Some((holder, _)) if holder == other => Some(Feud::Ready { holder, rival: one }),
            Some(_) => None,
        }
    }

    /// A write of few blocks.
    pub(super) fn draw_write(&self, id: Handle, prng: &mut Prng) -> Operation {
        let start = prng.size(0, self.blocks - 1);
        let blocks = start..self.blocks.min(start + prng.size(1, 4));
        Operation::Write {
            blocks,
            id,
            fua: false,
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// A command is about to be sent, or may come here after all because its number leads here now.
    pub(super) fn begin(&mut self, handle: Handle, player: usize, operation: &Operation) {
        let ledger = &mut self.ledger;
        // It may have been meant for a unit that has more blocks.
        let within = clip(ledger.len());
        let mut begun = Begun {
            cache: self.cache.stamp(),
            full: self.full.stamp(),
            medium_change: None,
            cache_change: None,
        };
        match operation {
            Operation::Read { blocks, room } => {
                let seen = blocks.start..blocks.start + (*room).min(blocks.len());
                ledger.begin_read(handle, within(&seen));
            }
            Operation::Write { blocks, id, .. } => ledger.begin_write(handle, *id, within(blocks)),
            Operation::Zero { blocks, .. } => ledger.begin_write(handle, 0, within(blocks)),
            Operation::CompareAndWrite { block, id, .. } => {
                let blocks = within(&(*block..*block + 1));
                ledger.begin_read(handle, blocks.clone());
                ledger.begin_write(handle, *id, blocks);
            }
            Operation::Flush => ledger.begin_flush(handle),
            Operation::Eject => {
                ledger.begin_flush(handle);
                begun.medium_change = Some(self.medium.begin());
            }
            Operation::Load => begun.medium_change = Some(self.medium.begin()),
            Operation::SetWriteCache { on } => {
                if !on {
                    ledger.begin_flush(handle);
                }
                begun.cache_change = Some(self.cache.begin());
            }
            Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. }
            | Operation::Reserve
            | Operation::Release => {
                let before = self.known.take();
                self.change = Some(ReservationChange {
                    handle,
                    player,
                    before,
                });
            }
            Operation::Prevent { .. } | Operation::TestUnitReady | Operation::Inquiry => {}
        }
        self.begun.insert(handle, begun);
    }

    /// The unit may have got no more space while this command was under way.
    pub(super) fn may_be_full(&self, handle: Handle) -> bool {
        let begun = self.begun.get(&handle);
        begun.is_none_or(|begun| self.full.since(begun.full) != Some(false))
    }

    /// The store may have failed this command: a read only if it has blocks of what fails. All others may flush.
    pub(super) fn may_fail(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Read { blocks, .. } => self.faults.may_befall(blocks.clone()),
            Operation::Write { .. }
            | Operation::CompareAndWrite { .. }
            | Operation::Zero { .. }
            | Operation::Flush
            | Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. }
            | Operation::Eject
            | Operation::Load
            | Operation::Prevent { .. }
            | Operation::SetWriteCache { .. } => self.faults.has_some(),
        }
    }

    /// What a player cannot know yet may be answered at last.
    pub(super) fn note_answer(&mut self, handle: Handle) {
        self.overdue.remove(&handle);
    }

    /// The device server of this very unit has answered.
    pub(super) fn answer(
        &mut self,
        handle: Handle,
        player: usize,
        operation: &Operation,
        end: End,
        data: &[u8],
    ) -> Result<(), Breach> {
        if end == End::Good {
            let checked = if let Operation::CompareAndWrite { block, old, .. } = operation {
                let found = crate::ledger::content(*old, *block..*block + 1);
                self.ledger.end_read(handle, Some(&found))
            } else {
                self.ledger.end_read(handle, Some(data))
            };
            checked.map_err(wrong)?;
        }
        self.end(handle, player, operation, end);
        Ok(())
    }

    /// Whether what a read has given could have been read here.
    pub(super) fn could_give(&mut self, handle: Handle, data: &[u8]) -> bool {
        self.ledger.end_read(handle, Some(data)).is_ok()
    }

    /// A command is over, or nothing of it comes to pass from now on.
    pub(super) fn end(&mut self, handle: Handle, player: usize, operation: &Operation, end: End) {
        let Some(begun) = self.begun.remove(&handle) else {
            return;
        };
        drop(self.ledger.end_read(handle, None));
        let is_good = end == End::Good;
        if operation.writes() {
            let fua = matches!(operation, Operation::Write { fua: true, .. });
            let is_through = self.cache.since(begun.cache) == Some(false);
            let durable = fua || is_through || !self.has_volatile_cache;
            self.ledger.end_write(
                handle,
                match end {
                    End::Good => Ended::Good { durable },
                    End::Refused => Ended::Refused,
                    End::Uncertain => Ended::Uncertain,
                },
            );
        }
        self.ledger.end_flush(handle, is_good);
        let value = |change: &Change<bool>, new: bool| match end {
            End::Good => Some(new),
            End::Refused => change.before,
            End::Uncertain => None,
        };
        if let Some(change) = begun.medium_change {
            let new = value(&change, matches!(operation, Operation::Load));
            self.medium.end(change, new);
        }
        if let Some(change) = begun.cache_change {
            let new = value(
                &change,
                matches!(operation, Operation::SetWriteCache { on: true }),
            );
            self.cache.end(change, new);
        }
        self.end_change(player, handle, operation, end);
    }

    // ---- reservations ------------------------------------------------------------------------

    fn end_change(&mut self, player: usize, handle: Handle, operation: &Operation, end: End) {
        let change = self.change.take_if(|change| change.handle == handle);
        let Some(ReservationChange { before, .. }) = change else {
            return;
        };
        self.known = match end {
            End::Good => after(before, player, operation),
            End::Refused => before,
            // It may have come into force.
            End::Uncertain => None,
        };
        // A reset may have ended it already.
        let is_at_risk = self.resets > 0;
        self.known
            .take_if(|known| is_at_risk && matches!(known.holder, Some((_, LEGACY))));
        if let Operation::PreemptAndAbort { .. } = operation
            && end == End::Good
        {
            self.preempted += 1;
        }
    }

    /// Whether what was under way of players with this key is over: nothing of it comes to pass, as long as somebody
    /// else has a reservation.
    pub(super) fn keeps_out(&self, key: u64) -> bool {
        let holder = self.known.as_ref().and_then(|known| known.holder);
        holder.is_some_and(|(holder, _)| key_of(holder) != key)
    }

    pub(super) fn note_overdue(&mut self, handle: Handle, player: usize) {
        self.overdue.insert(handle, player);
    }

    // ---- what happens to all nexuses ---------------------------------------------------------

    /// A nexus may be over: what was RESERVEd by it may not be.
    pub(super) fn note_leaving(&mut self, player: usize) {
        let holder = Some((player, LEGACY));
        if let Some(change) = &mut self.change {
            let is_own = change.player == player;
            let before = &mut change.before;
            before.take_if(|before| is_own || before.holder == holder);
        }
        self.known.take_if(|known| known.holder == holder);
    }

    /// All that a session of a player had is over.
    pub(super) fn note_left(&mut self, player: usize) {
        self.overdue.retain(|_, whose| *whose != player);
    }

    /// A reset may come to pass.
    pub(super) fn begin_reset(&mut self) -> Change<bool> {
        self.resets += 1;
        if let Some(change) = &mut self.change {
            change.before = None;
        }
        let is_legacy = |known: &mut Reservations| matches!(known.holder, Some((_, LEGACY)));
        self.known.take_if(is_legacy);
        self.cache.begin()
    }

    /// It has come to pass, or is not known to have.
    pub(super) fn end_reset(&mut self, change: Change<bool>) {
        self.resets = self.resets.saturating_sub(1);
        // It goes back to what was saved where that is on.
        let stays = change.before == Some(true);
        self.cache.end(change, stays.then_some(true));
    }

    /// An administrator moves the medium.
    pub(super) fn begin_move(&mut self, handle: Handle, order: MediumOrder) -> Change<bool> {
        if matches!(order, MediumOrder::Eject { .. }) {
            self.ledger.begin_flush(handle);
        }
        self.judge.begin_move(handle, order);
        self.medium.begin()
    }

    pub(super) fn end_move(
        &mut self,
        handle: Handle,
        change: Change<bool>,
        (is_eject, is_good): (bool, bool),
    ) {
        self.ledger.end_flush(handle, is_eject && is_good);
        self.judge.end_move(handle, is_good);
        // What has failed has changed nothing.
        let now = if is_good {
            Some(!is_eject)
        } else {
            change.before
        };
        self.medium.end(change, now);
    }

    /// An administrator has the store flushed, perhaps.
    pub(super) fn begin_flush(&mut self, handle: Handle) {
        self.ledger.begin_flush(handle);
    }

    pub(super) fn end_flush(&mut self, handle: Handle, is_good: bool) {
        self.ledger.end_flush(handle, is_good);
    }

    /// An administrator has the unit write through, or lets it have a cache.
    pub(super) fn begin_cache_order(&mut self) -> Change<bool> {
        self.is_cache_ordered = true;
        self.cache.begin()
    }

    pub(super) fn end_cache_order(&mut self, change: Change<bool>, now: Option<bool>) {
        self.cache.end(change, now);
    }

    /// The cores learn whether the unit gets more space.
    pub(super) fn begin_space(&mut self) -> Change<bool> {
        self.full.begin()
    }

    pub(super) fn end_space(&mut self, change: Change<bool>, is_full: bool) {
        self.full.end(change, Some(is_full));
    }

    /// The store becomes larger. Nobody uses what it has gained before all cores know.
    pub(super) fn grow(&mut self, handle: Handle, blocks: usize) {
        self.ledger.grow(blocks);
        self.judge
            .event_begins(handle, Event::Resize(blocks as u64));
    }

    pub(super) fn take_growth(&mut self, handle: Handle) {
        self.blocks = self.ledger.len();
        self.judge.event_ends(handle, true);
    }

    /// The cache of the store has gone.
    pub(super) fn lose_cache(&mut self, before: &[u8], content: &[u8]) {
        self.ledger.lose_cache(before, content);
        self.judge.lose_cache();
    }

    pub(super) const fn is_in(&self) -> Option<bool> {
        self.medium.now()
    }

    /// The machine of the target has stopped.
    pub(super) fn crash(&mut self) {
        self.ledger.crash();
        self.judge.crash(self.is_removable);
        if self.is_cache_ordered {
            // What is left of it is not known.
            self.judge.doubt_cache();
        }
        self.blocks = self.ledger.len();
        self.is_cache_ordered = false;
        self.begun.clear();
        self.overdue.clear();
        (self.known, self.change) = (None, None);
        self.medium.forget();
        self.cache.forget();
        self.full = Known::new(false);
        self.resets = 0;
    }

    /// Holds the medium against the book.
    pub(super) fn check(&mut self, content: &[u8]) -> Result<(), Breach> {
        self.judge.check(content);
        self.ledger.check_all(content).map_err(wrong)
    }
}

/// It changes what is saved.
pub(super) const fn is_saved(operation: &Operation) -> bool {
    is_change(operation) || matches!(operation, Operation::Eject | Operation::Load)
}

/// It changes reservations.
pub(super) const fn is_change(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. }
            | Operation::Reserve
            | Operation::Release
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
    if let Operation::Register { key: 0, .. } = operation {
        known.registered.remove(&player);
        known.holder.take_if(|(holder, _)| *holder == player);
    } else if let Operation::Register { .. } = operation {
        known.registered.insert(player);
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
    if let Operation::Reserve = operation {
        known.holder = Some((player, LEGACY));
    }
    if let Operation::Release = operation {
        known.holder.take_if(|holder| *holder == (player, LEGACY));
    }
    Some(known)
}

/// What is left of blocks where there are so many.
fn clip(most: usize) -> impl Fn(&Range<usize>) -> Range<usize> {
    move |blocks| blocks.start.min(most)..blocks.end.min(most)
}

fn wrong(found: WrongData) -> Breach {
    let WrongData { lba, got, possible } = found;
    let detail = format!("block {lba} holds {got}, possible are {possible:?}");
    Breach::new("reads-give-what-was-written", detail)
}
