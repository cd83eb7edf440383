//! Requests of the past: what the store has not given back although those it was for were told that it is
//! over. Nothing new may touch the blocks that they may still write; all other blocks go on being served.
//!
//! And the administrator, who takes LUNs from sessions, and the right to write, while stores are late.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use iscsi::pdu::{TaskManagementFunction, TaskManagementResponse, Tsih};

use engine::agree::RANGES_MAX;

use super::known::{Past, Pending, Rights};
use super::{Event, World};
use crate::disk::Begun;
use crate::initiator::{Breach, Operation};
use crate::inspect::LeftBehind;
use crate::ledger::Handle;
use crate::letter::Receipt;
use crate::plan::{LUN, UNIT};
use crate::trace::Actor;

/// A refusal may reach its initiator so long after the orphan that it was for has come back: letters, the network
/// and the initiator take their time.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(20);

/// Whether ranges have a block in common.
fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

impl World {
    /// Whether stores may hang in this world.
    const fn may_hang(&self) -> bool {
        self.scenario.disk_hangs > 0 || self.scenario.outages > 0
    }

    /// Looks at what the cores gave to the disk in this event.
    pub(super) fn check_the_past(&mut self) -> Result<(), Breach> {
        if let Some(what) = self.host.broken() {
            return Err(Breach::new("nothing-is-broken", what.to_owned()));
        }
        let begun = self.disk.take_begun();
        if !self.may_hang() {
            return Ok(());
        }
        let left = self.host.left_behind();
        let past = &mut self.past;
        past.feared.retain(|one| left.contains_key(one));
        past.orphans.retain(|one| left.contains_key(one));
        for Begun { core, blocks } in begun {
            let meets = |(of, tag): &(usize, u64)| {
                let written = self.disk.writing(*of, *tag);
                written.is_some_and(|written| meet(&written, &blocks))
            };
            let mut own = past.orphans.iter().filter(|one| one.0 == core);
            if let Some((_, tag)) = own.find(|one| meets(one)) {
                let detail = format!("core {core} begins {blocks:?} beside its request {tag:#x}");
                return Err(Breach::new("nothing-begins-beside-an-orphan", detail));
            }
            if let Some((other, tag)) = past.feared.iter().find(|one| meets(one)) {
                let detail = format!(
                    "core {core} begins {blocks:?} beside request {tag:#x} of core {other}, which is over"
                );
                return Err(Breach::new("nothing-begins-beside-the-old", detail));
            }
            self.beside_orphans += usize::from(!past.orphans.is_empty());
        }
        past.orphans = left.keys().copied().collect();
        self.note_written();
        self.take_receipts(&left);
        let over = self.take_dismissed();
        let meant = left.iter().filter(|(_, whose)| over.contains(*whose));
        self.past.feared.extend(meant.map(|(one, _)| *one));
        Ok(())
    }

    /// Notes what orphans may write now.
    fn note_written(&mut self) {
        let (now, past) = (self.agenda.now(), &mut self.past);
        let writing = |one: &(usize, u64)| Some((*one, self.disk.writing(one.0, one.1)?));
        let written = past.orphans.iter().filter_map(writing);
        let written: Vec<((usize, u64), Range<usize>)> = written.collect();
        if written.len() > RANGES_MAX {
            let first = written.iter().map(|(_, blocks)| blocks.start).min();
            let last = written.iter().map(|(_, blocks)| blocks.end).max();
            past.crowd = first.zip(last).map(|(first, last)| (first..last, now));
        }
        let seen = written
            .into_iter()
            .map(|(one, blocks)| (one, (blocks, now)));
        past.written.extend(seen);
    }

    /// A command was refused. It must have touched what an orphan might write not long before.
    pub(super) fn is_refusal_explained(&self, operation: &Operation) -> bool {
        let blocks = match operation {
            Operation::Read { blocks, .. }
            | Operation::Write { blocks, .. }
            | Operation::Zero { blocks, .. } => blocks.clone(),
            Operation::CompareAndWrite { block, .. } => *block..*block + 1,
            Operation::Eject => 0..usize::MAX,
            Operation::Flush
            | Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Load
            | Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. }
            | Operation::Prevent { .. }
            | Operation::SetWriteCache { .. } => return false,
        };
        let now = self.agenda.now();
        let mut seen = self.past.written.values().chain(&self.past.crowd);
        seen.any(|(written, last)| *last + ON_ITS_WAY_MAX >= now && meet(written, &blocks))
    }

    /// The machine starts anew.
    pub(super) fn forget_the_past(&mut self) {
        self.past = Past::default();
        for player in &mut self.players {
            player.rights = Rights::default();
        }
        self.forget_administration();
    }

    /// Somebody was told that these are over.
    fn fear(&mut self, is_meant: impl Fn(Option<Tsih>) -> bool) {
        if self.may_hang() {
            let left = self.host.left_behind().into_iter();
            let meant = left.filter(|(_, whose)| is_meant(*whose));
            self.past.feared.extend(meant.map(|(one, _)| one));
        }
    }

    /// An initiator knows that these sessions are over. Every core refuses access to what requests of theirs may write.
    fn fear_sessions(&mut self, is_meant: impl Fn(Option<Tsih>) -> bool) -> Result<(), Breach> {
        let left = self.host.left_behind().into_iter();
        let meant = left.filter(|(_, whose)| is_meant(*whose));
        for ((core, tag), _) in meant {
            let written = self.disk.writing(core, tag);
            let blocks = written.map(|blocks| blocks.start as u64..blocks.end as u64);
            if let Some(open) = blocks.and_then(|blocks| self.host.open_core(UNIT, &blocks)) {
                let detail = format!(
                    "the session of request {tag:#x} of core {core} is over, and core {open} does not refuse its blocks"
                );
                return Err(Breach::new("what-is-over-is-refused", detail));
            }
        }
        self.fear(is_meant);
        Ok(())
    }

    /// A login is complete: the sessions that this initiator had before are over.
    pub(super) fn fear_lost_sessions(&mut self, initiator: usize) -> Result<(), Breach> {
        let lost = self.players[initiator].lost.iter();
        let lost: Vec<Tsih> = lost.map(|(tsih, _)| *tsih).collect();
        self.fear_sessions(|whose| whose.is_some_and(|tsih| lost.contains(&tsih)))
    }

    /// The session of an initiator has logged out.
    pub(super) fn note_logged_out(
        &mut self,
        initiator: usize,
        is_complete: bool,
    ) -> Result<(), Breach> {
        let tsih = self.players[initiator].tsih;
        let left = self.host.left_behind();
        if is_complete && left.values().any(|whose| *whose == Some(tsih)) {
            let detail = format!("session {} has ended and has a request in the disk", tsih.0);
            return Err(Breach::new("what-is-complete-is-over", detail));
        }
        self.fear_sessions(|whose| whose == Some(tsih))
    }

    /// A task management request is about to be sent.
    pub(super) fn note_managing(&mut self, initiator: usize, function: TaskManagementFunction) {
        if !self.may_hang() || function != TaskManagementFunction::LogicalUnitReset {
            return;
        }
        let left: BTreeSet<(usize, u64)> = self.host.left_behind().into_keys().collect();
        let player = &mut self.players[initiator];
        player.resets += 1;
        if player.resets == 1 {
            player.left_before_reset = left;
        } else {
            player.left_before_reset.retain(|one| left.contains(one));
        }
    }

    /// A task management request was answered.
    pub(super) fn note_managed(
        &mut self,
        initiator: usize,
        function: TaskManagementFunction,
        response: u8,
    ) -> Result<(), Breach> {
        if !self.may_hang() {
            return Ok(());
        }
        let player = &mut self.players[initiator];
        let tsih = player.tsih;
        if function == TaskManagementFunction::LogicalUnitReset {
            player.resets = player.resets.saturating_sub(1);
            let is_complete = response == TaskManagementResponse::Complete.code();
            let left = self.host.left_behind();
            let mut before = self.players[initiator].left_before_reset.iter();
            if is_complete && let Some((core, tag)) = before.find(|one| left.contains_key(one)) {
                let detail =
                    format!("a reset is complete, and request {tag:#x} of core {core} is there");
                return Err(Breach::new("what-is-complete-is-over", detail));
            }
        } else if response == TaskManagementResponse::Rejected.code() {
            // They did not end in time: the answer came when every core refused access to what they may write.
            self.fear(|whose| whose == Some(tsih));
        }
        Ok(())
    }

    /// A command that would write was answered as done.
    pub(super) fn check_right_to_write(
        &self,
        initiator: usize,
        handle: Handle,
    ) -> Result<(), Breach> {
        let rights = &self.players[initiator].rights;
        if rights
            .writes_nothing_from
            .is_some_and(|from| handle >= from)
        {
            let detail = format!("command {handle} has written without the right to");
            return Err(Breach::new("who-may-not-write-does-not", detail));
        }
        Ok(())
    }

    // ---- the administrator -------------------------------------------------------------------

    /// Takes the LUN of a session, or gives it back; takes the right to write, or gives that back.
    pub(super) fn administer(&mut self, initiator: usize) {
        let now = self.agenda.now();
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            return;
        };
        let (tsih, rights) = (player.tsih, &mut player.rights);
        let receipt = Receipt::default();
        let weak = Rc::downgrade(&receipt);
        if rights.is_taken {
            rights.is_taken = false;
            (rights.is_narrow, rights.writes_nothing_from) = (false, None);
            self.host.administer(tsih, now, |engine, key| {
                engine.give_lun(key, LUN, receipt);
            });
            self.note(
                Actor::World,
                format_args!("init{initiator} is given its LUN again"),
            );
        } else if self.past_prng.chance(300) {
            rights.is_narrow = !rights.is_narrow;
            rights.writes_nothing_from = None;
            let is_narrow = rights.is_narrow;
            if is_narrow {
                rights.pending.push((weak.clone(), Pending::Narrow));
            }
            self.host.administer(tsih, now, |engine, key| {
                engine.set_read_only(key, LUN.lun, is_narrow, receipt);
            });
            self.note(
                Actor::World,
                format_args!("init{initiator} may write: {}", !is_narrow),
            );
        } else {
            rights.is_taken = true;
            rights.pending.push((weak.clone(), Pending::Take));
            session.allow_vanishing();
            self.host.administer(tsih, now, |engine, key| {
                engine.take_lun(key, LUN.lun, receipt);
            });
            self.note(Actor::World, format_args!("init{initiator} loses its LUN"));
            let millis = self.past_prng.within(0, 9_000);
            let after = Duration::from_millis(millis);
            self.agenda
                .after(after, Event::GiveBack { initiator, tsih });
        }
        self.past.receipts.push(weak);
    }

    /// The LUN that was taken comes back, if its session is still there.
    pub(super) fn give_back(&mut self, initiator: usize, tsih: Tsih) {
        let player = &self.players[initiator];
        if player.tsih == tsih && player.session.is_some() && player.rights.is_taken {
            self.administer(initiator);
        }
    }

    /// What the administrator asked for is done where the receipt has gone.
    fn take_receipts(&mut self, left: &BTreeMap<(usize, u64), LeftBehind>) {
        let next = self.next_handle;
        for player in &mut self.players {
            let rights = &mut player.rights;
            let is_narrow = rights.is_narrow;
            let done = rights
                .pending
                .extract_if(.., |(receipt, _)| receipt.strong_count() == 0);
            for (_, pending) in done.collect::<Vec<_>>() {
                let tsih = player.tsih;
                let is_meant = |whose: &Option<Tsih>| match pending {
                    // What it has left behind is no session's any more.
                    Pending::Take => whose.is_none(),
                    Pending::Narrow => *whose == Some(tsih),
                };
                let meant = left.iter().filter(|(_, whose)| is_meant(whose));
                self.past.feared.extend(meant.map(|(one, _)| *one));
                if pending == Pending::Narrow && is_narrow {
                    rights.writes_nothing_from = Some(next);
                }
            }
        }
    }

    /// Every receipt must have gone in the end.
    pub(super) fn receipts_left(&self) -> usize {
        let receipts = self.past.receipts.iter();
        receipts
            .filter(|receipt| receipt.strong_count() > 0)
            .count()
    }
}
