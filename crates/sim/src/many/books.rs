//! Which commands are under way, which units they may concern, who sees what, and what each nexus must be notified of.

mod changes;
mod judging;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::{TargetIndex, VisibleLun};
use reference::Event;

use super::book::{Book, End, key_of};
use super::known::Change;
use super::outcomes::{KINDS, Kind, NO_SPACE, Outcomes};
use super::seat::{Answer, Door, Seat};
use crate::initiator::{Breach, Operation, is_refused};
use crate::ledger::{Handle, WriteId};
use crate::plan::{Plan, initiator_name};
use crate::prng::Prng;

/// A command that has no answer yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) door: Door,
    pub(super) operation: Operation,
    /// Where its number may lead, while it is under way.
    pub(super) units: BTreeSet<usize>,
    /// Its number may lead nowhere.
    pub(super) may_miss: bool,
    /// It may end without an answer.
    may_vanish: bool,
    /// Nobody will answer it. It may come to pass until the next session of its player begins.
    is_lost: bool,
}

impl Open {
    /// What an answer says of it.
    fn end(&self, (status, sense): Answer) -> End {
        // Of a longer write, what came first may have had space.
        let written = self.operation.written();
        let is_long = written.is_some_and(|blocks| blocks.len() > 1);
        let is_begun = sense == Some(NO_SPACE) && is_long;
        match status == 0 {
            true => End::Good,
            false if is_refused(status, sense) && !is_begun => End::Refused,
            false => End::Uncertain,
        }
    }

    /// A write to this unit and no other, of players with this key.
    fn is_write_of(&self, key: u64, unit: usize) -> bool {
        let is_here = self.units.len() == 1 && self.units.contains(&unit);
        is_here && key_of(self.door.0) == key && self.operation.writes()
    }
}

/// A reset that has no answer yet.
#[derive(Debug)]
pub(super) struct Reset {
    player: usize,
    /// The number that it was sent by, if it is for one.
    number: Option<u16>,
    /// What it may reset.
    pub(super) units: Vec<(usize, Change<bool>)>,
}

/// See above.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) units: Vec<Book>,
    pub(super) seats: Vec<Seat>,
    pub(super) plan: Plan,
    /// What was in force before, while a change is under way.
    before: Option<Plan>,
    changed: Handle,
    /// Devices that have been away, perhaps since their client has opened them.
    shut: BTreeSet<Door>,
    pub(super) open: BTreeMap<Handle, Open>,
    pub(super) next_handle: Handle,
    /// How many unit attentions of each kind a nexus may still report.
    pub(super) nexuses: BTreeMap<Door, [u32; KINDS]>,
    /// Players that have a session, or are about to.
    pub(super) present: BTreeSet<usize>,
    /// Those whose login is over.
    joined: BTreeSet<usize>,
    pub(super) resets: BTreeMap<Handle, Reset>,
    /// Units whose media an administrator loads.
    pub(super) loads: BTreeSet<usize>,
    /// What other orders of an administrator bring: how many of which attentions, of which unit.
    pub(super) expected: Vec<(Kind, u32, usize)>,
    /// Players whose sessions the target may end.
    may_end: BTreeSet<usize>,
    cold: BTreeSet<TargetIndex>,
    pub(super) outcomes: Outcomes,
    /// Writes that were preempted since somebody looked, and their units.
    pub(super) preempted: Vec<(usize, WriteId)>,
    /// For the diary, if there is one.
    pub(super) notes: Option<Vec<String>>,
}

impl Books {
    pub(super) fn new(units: Vec<Book>, plan: Plan, seats: Vec<Seat>) -> Self {
        Self {
            units,
            seats,
            plan,
            before: None,
            changed: 0,
            shut: BTreeSet::new(),
            open: BTreeMap::new(),
            next_handle: 1,
            nexuses: BTreeMap::new(),
            present: BTreeSet::new(),
            joined: BTreeSet::new(),
            resets: BTreeMap::new(),
            loads: BTreeSet::new(),
            expected: Vec::new(),
            may_end: BTreeSet::new(),
            cold: BTreeSet::new(),
            outcomes: Outcomes::default(),
            preempted: Vec::new(),
            notes: None,
        }
    }

    pub(super) const fn new_handle(&mut self) -> Handle {
        let handle = self.next_handle;
        self.next_handle += 1;
        handle
    }

    // ---- who sees what -----------------------------------------------------------------------

    /// What a player sees. `None`: it has no access.
    fn luns(&self, plan: &Plan, player: usize) -> Option<Vec<VisibleLun>> {
        match &self.seats[player] {
            Seat::Iscsi { host, target } => plan.luns(&initiator_name(*host), *target),
            Seat::Hyperscsi => Some(plan.devices.clone()),
            Seat::Nbd { export } => {
                let mut all = plan.exports.iter();
                let found = all.find(|one| one.name == *export)?;
                Some(vec![VisibleLun {
                    lun: 0,
                    ..found.lun
                }])
            }
        }
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        std::iter::once(&self.plan).chain(&self.before)
    }

    /// What a number may lead to, by each plan that may be in force.
    pub(super) fn views(&self, (player, number): Door) -> Vec<Option<VisibleLun>> {
        let view = |plan: &Plan| {
            let luns = self.luns(plan, player)?;
            luns.into_iter().find(|lun| lun.lun == number)
        };
        self.plans().map(view).collect()
    }

    /// The numbers that a player may ask by.
    pub(super) fn numbers(&self, player: usize) -> Vec<u16> {
        let luns = self.plans().filter_map(|plan| self.luns(plan, player));
        let numbers: BTreeSet<u16> = luns.flatten().map(|lun| lun.lun).collect();
        numbers.into_iter().collect()
    }

    /// The only unit that a number may lead to.
    pub(super) fn unit_of(&self, door: Door) -> Option<usize> {
        let views = self.views(door);
        let mut units = views
            .iter()
            .map(|view| view.map(|view| view.unit.as_usize()));
        let first = units.next()??;
        units.all(|unit| unit == Some(first)).then_some(first)
    }

    /// All that a player may see.
    fn units_of(&self, player: usize) -> Vec<usize> {
        let luns = self.plans().filter_map(|plan| self.luns(plan, player));
        let units: BTreeSet<usize> = luns.flatten().map(|lun| lun.unit.as_usize()).collect();
        units.into_iter().collect()
    }

    /// Whether the target may end the session of a player, or its login, for no reason of its own.
    pub(super) fn may_end(&self, player: usize) -> bool {
        self.may_end.contains(&player) || self.luns(&self.plan, player).is_none()
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// A player begins to log in.
    pub(super) fn open_session(&mut self, player: usize) {
        self.present.insert(player);
        self.joined.remove(&player);
        self.seat(player);
        self.nexuses.retain(|(whose, _), _| *whose != player);
        self.credit(Kind::Reset, 1, |door, _| door.0 == player);
        self.credit_under_way(|door| door.0 == player);
        if self.before.is_some() {
            self.credit_change(player);
        }
        if let Seat::Iscsi { target, .. } = &self.seats[player]
            && self.cold.contains(target)
        {
            self.may_end.insert(player);
        }
    }

    /// An administrator loads the medium of a unit.
    pub(super) fn begin_load(&mut self, unit: usize) {
        self.loads.insert(unit);
        self.credit(Kind::Medium, 1, |_, at| at == unit);
    }

    pub(super) fn end_load(&mut self, unit: usize) {
        self.loads.remove(&unit);
    }

    /// An order begins that brings the nexuses of a unit so many attentions at most.
    pub(super) fn expect(&mut self, kind: Kind, count: u32, unit: usize) {
        self.expected.push((kind, count, unit));
        self.credit(kind, count, |_, at| at == unit);
    }

    /// No order brings any more of these.
    pub(super) fn end_expected(&mut self, kind: Kind, unit: usize) {
        self.expected
            .retain(|(of, _, at)| *of != kind || *at != unit);
    }

    /// Whether an order brings a unit attentions; those of a quota are in nobody's way.
    pub(super) fn is_expected(&self, unit: usize) -> bool {
        let mut expected = self.expected.iter();
        expected.any(|(kind, _, at)| *at == unit && *kind != Kind::Space)
    }

    /// A session of a player begins: all that was under way of its last one is over.
    pub(super) fn rejoin(&mut self, player: usize) {
        for book in &mut self.units {
            book.note_left(player);
        }
        let of_player = self.open.iter().filter(|(_, open)| open.door.0 == player);
        let over: Vec<Handle> = of_player.map(|(handle, _)| *handle).collect();
        for handle in over {
            self.forget(handle);
        }
        self.joined.insert(player);
        // What a change brings it may come later.
        if let (Seat::Iscsi { .. }, None) = (&self.seats[player], &self.before) {
            self.note_come(|door| door.0 == player);
        }
    }

    /// The session of a player may be over.
    pub(super) fn leave(&mut self, player: usize) {
        self.present.remove(&player);
        self.joined.remove(&player);
        self.note_leaving(player);
        self.units
            .iter_mut()
            .for_each(|book| book.judge.leave(player));
    }

    /// It will be over.
    pub(super) fn note_leaving(&mut self, player: usize) {
        for book in &mut self.units {
            book.note_leaving(player);
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// A command that a player may give by this number.
    pub(super) fn draw(&mut self, door: Door, prng: &mut Prng) -> Option<Operation> {
        let unit = self.unit_of(door)?;
        let book = &self.units[unit];
        let is_nbd = matches!(self.seats[door.0], Seat::Nbd { .. });
        match prng.below(100) {
            0..8 if !is_nbd => book.draw_reservation(door.0, prng),
            8..13 if !is_nbd => Some(book.draw_mode(prng)),
            _ => Some(book.draw(self.next_handle, prng)),
        }
    }

    /// The first unit that two players may write, and by which numbers.
    pub(super) fn meeting(&self, [one, other]: [usize; 2]) -> Option<(usize, [Door; 2])> {
        let door = |player: usize, unit: usize| {
            let doors = self.numbers(player).into_iter();
            let mut doors = doors.map(|number| (player, number));
            doors.find(|door| {
                let mut views = self.views(*door).into_iter().flatten();
                self.unit_of(*door) == Some(unit) && views.all(|view| !view.read_only)
            })
        };
        let mut units = 0..self.units.len();
        units.find_map(|unit| Some((unit, [door(one, unit)?, door(other, unit)?])))
    }

    /// Writes of players with a key that are under way to a unit and no other.
    pub(super) fn writes_of(&self, key: u64, unit: usize) -> impl Iterator<Item = WriteId> {
        let theirs = self.open.values();
        let theirs = theirs.filter(move |open| open.is_write_of(key, unit));
        theirs.filter_map(|open| open.operation.write_id())
    }

    /// A command is about to be sent.
    pub(super) fn begin(&mut self, door: Door, operation: Operation) -> Handle {
        let handle = self.new_handle();
        let views = self.views(door);
        let mut open = Open {
            door,
            operation,
            units: BTreeSet::new(),
            may_miss: false,
            may_vanish: false,
            is_lost: false,
        };
        // What comes while a number changes is aborted with what was there before.
        open.may_vanish = views.iter().any(|view| *view != views[0]);
        for view in views {
            self.note_view(handle, &mut open, view);
        }
        let key = key_of(door.0);
        let preempted = |other: &Open| {
            let is_meant = matches!(&other.operation, Operation::PreemptAndAbort { other, .. } if *other == key);
            is_meant && !other.units.is_disjoint(&open.units)
        };
        let is_preempted = self.open.values().any(preempted);
        let is_reset = open.units.iter().any(|unit| self.units[*unit].resets > 0);
        open.may_vanish |= is_preempted || is_reset;
        self.note_beginning(&open);
        self.judge_beginning(handle, &open);
        self.open.insert(handle, open);
        handle
    }

    /// Its number may lead there.
    fn note_view(&mut self, handle: Handle, open: &mut Open, view: Option<VisibleLun>) {
        let Some(view) = view else {
            open.may_miss = true;
            return;
        };
        let unit = view.unit.as_usize();
        if open.units.insert(unit) {
            self.units[unit].begin(handle, open.door.0, &open.operation);
        }
    }

    /// What a command may do to others.
    fn note_beginning(&mut self, open: &Open) {
        if let Some((kind, count, units)) = open.notice() {
            self.credit(kind, count, |_, unit| units.contains(&unit));
        }
        let units = &open.units;
        if let Operation::PreemptAndAbort { other, .. } = &open.operation {
            let mut units_of = units.iter();
            let writes = units_of.any(|unit| self.writes_of(*other, *unit).next().is_some());
            self.outcomes.preempted_writing += u64::from(writes);
            self.excuse(|of| key_of(of.door.0) == *other && !of.units.is_disjoint(units));
        }
    }

    /// Commands that may end without an answer from now on.
    fn excuse(&mut self, is_meant: impl Fn(&Open) -> bool) {
        for open in self.open.values_mut() {
            open.may_vanish |= is_meant(open);
        }
    }

    /// A player has asked for the end of this command.
    pub(super) fn excuse_one(&mut self, handle: Handle) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.may_vanish = true;
        }
    }

    /// A player has asked for the end of its commands by this number.
    pub(super) fn excuse_by(&mut self, door: Door) {
        self.excuse(|open| open.door == door);
    }

    /// Whether a command may end without an answer.
    pub(super) fn may_vanish(&self, handle: Handle) -> bool {
        self.open.get(&handle).is_none_or(|open| open.may_vanish)
    }

    /// Whether its number may lead nowhere.
    pub(super) fn may_miss(&self, handle: Handle) -> bool {
        let open = self.open.get(&handle);
        open.is_none_or(|open| open.may_miss || self.shut.contains(&open.door))
    }

    /// Whether its number has led elsewhere since it was sent, or just before.
    pub(super) fn has_moved(&self, handle: Handle) -> bool {
        let open = self.open.get(&handle);
        open.is_some_and(|open| open.may_miss || open.units.len() > 1)
    }

    /// A device is open now.
    pub(super) fn note_opened(&mut self, door: Door) {
        self.shut.remove(&door);
        self.note_come(|other| other == door);
    }

    /// The device server has answered. What was given up before is not looked at.
    pub(super) fn answer(
        &mut self,
        handle: Handle,
        answer: Answer,
        data: &[u8],
    ) -> Result<(), Breach> {
        for book in &mut self.units {
            book.note_answer(handle);
        }
        let Some(open) = self.open.remove(&handle) else {
            return Ok(());
        };
        let (status, sense) = answer;
        if let Some(notes) = &mut self.notes {
            let (door, operation) = (open.door, &open.operation);
            notes.push(format!(
                "{door:?} {handle} {operation:?} ends: {status:#04x} {sense:x?}"
            ));
        }
        let (is_good, end) = (status == 0, open.end(answer));
        self.outcomes.no_space += u64::from(sense == Some(NO_SPACE));
        self.outcomes.good += u64::from(is_good);
        self.outcomes.failed += u64::from(!is_good);
        self.outcomes.kept_out += u64::from(status == 0x18);
        let Open {
            door, operation, ..
        } = &open;
        let found = |what: &str| {
            format!("{what}: {status:#04x} {sense:x?} for {operation:?} of {door:?}, {open:?}")
        };
        if !self.is_explained(handle, &open, answer) {
            let detail = found("unexplained");
            return Err(Breach::new("every-status-has-a-reason", detail));
        }
        if let Some((6, asc, ascq)) = sense
            && let Some(kind) = Kind::of(asc, ascq)
        {
            self.take_attention(*door, kind, &found)?;
        }
        let mut units = open.units.iter();
        if let (Some(unit), None) = (units.next(), units.next()) {
            self.units[*unit].answer(handle, door.0, operation, end, data)?;
        } else {
            self.end_moved(handle, &open, end, data)?;
        }
        for unit in &open.units {
            self.units[*unit].judge.answer(handle, answer, data);
        }
        if let Operation::PreemptAndAbort { other, .. } = &open.operation
            && is_good
        {
            self.end_preempted(&open.units, *other);
        }
        Ok(())
    }

    /// A command has ended whose number leads elsewhere than when it was sent.
    fn end_moved(
        &mut self,
        handle: Handle,
        open: &Open,
        end: End,
        data: &[u8],
    ) -> Result<(), Breach> {
        self.outcomes.moved += 1;
        let is_read = matches!(open.operation, Operation::Read { .. });
        let mut can_be = !is_read || end != End::Good;
        for unit in &open.units {
            let book = &mut self.units[*unit];
            can_be |= is_read && book.could_give(handle, data);
            let end = match end {
                End::Refused => End::Refused,
                End::Good | End::Uncertain => End::Uncertain,
            };
            book.end(handle, open.door.0, &open.operation, end);
        }
        match can_be {
            true => Ok(()),
            false => {
                let detail = format!("{open:?} gives what is on none of them");
                Err(Breach::new("reads-give-what-was-written", detail))
            }
        }
    }

    /// Blocks that commands may change of a unit.
    pub(super) fn written(&self, unit: usize) -> Vec<Range<usize>> {
        let open = self.open.values();
        let here = open.filter(|open| open.units.contains(&unit));
        here.filter_map(|open| open.operation.written()).collect()
    }

    /// What was under way of players that were preempted is over, as long as somebody else has a reservation.
    fn end_preempted(&mut self, units: &BTreeSet<usize>, key: u64) {
        let mut units = units.iter();
        let (Some(&unit), None) = (units.next(), units.next()) else {
            return;
        };
        if !self.units[unit].keeps_out(key) {
            return;
        }
        let ids: Vec<WriteId> = self.writes_of(key, unit).collect();
        self.preempted.extend(ids.into_iter().map(|id| (unit, id)));
        let theirs = self.open.iter();
        let theirs = theirs.filter(|(_, open)| open.is_write_of(key, unit));
        let theirs: Vec<_> = theirs
            .map(|(handle, open)| (*handle, open.door.0))
            .collect();
        for (handle, player) in theirs {
            self.forget(handle);
            self.units[unit].note_overdue(handle, player);
        }
    }

    /// A command ends without an answer, and nothing of it comes to pass from now on.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.end_without_answer(handle, End::Uncertain);
    }

    /// A command was not carried out, and will not be.
    pub(super) fn refuse(&mut self, handle: Handle) {
        self.end_without_answer(handle, End::Refused);
    }

    fn end_without_answer(&mut self, handle: Handle, end: End) {
        let Some(open) = self.open.remove(&handle) else {
            return;
        };
        for unit in &open.units {
            let book = &mut self.units[*unit];
            book.note_answer(handle);
            book.end(handle, open.door.0, &open.operation, end);
            match end {
                End::Refused => book.judge.refuse(handle),
                End::Good | End::Uncertain => book.judge.lose(handle),
            }
        }
    }

    /// Nobody will answer a command. It may come to pass until the next session of its player begins.
    pub(super) fn lose(&mut self, handle: Handle) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.is_lost = true;
            self.outcomes.lost += 1;
        }
    }

    // ---- resets ------------------------------------------------------------------------------

    /// A player is about to reset what it sees, or the unit of one number.
    pub(super) fn begin_reset(&mut self, player: usize, number: Option<u16>) -> Handle {
        let units = self.units_to_reset(player, number);
        let handle = self.new_handle();
        let reset = Reset {
            player,
            number,
            units: Vec::new(),
        };
        self.resets.insert(handle, reset);
        for unit in units {
            self.extend_reset(handle, unit);
        }
        handle
    }

    fn units_to_reset(&self, player: usize, number: Option<u16>) -> Vec<usize> {
        let Some(number) = number else {
            return self.units_of(player);
        };
        let views = self.views((player, number)).into_iter().flatten();
        let units: BTreeSet<usize> = views.map(|view| view.unit.as_usize()).collect();
        units.into_iter().collect()
    }

    /// Whether a reset by this number, or of all that the player sees, comes to the unit by each plan that may be in
    /// force. Only what the player may write by a number is reset.
    fn is_reset_by(&self, (player, number): (usize, Option<u16>), unit: usize) -> bool {
        let numbers = number.map_or_else(|| self.numbers(player), |number| vec![number]);
        numbers.into_iter().any(|number| {
            let mut views = self.views((player, number)).into_iter();
            views.all(|view| {
                view.is_some_and(|view| view.unit.as_usize() == unit && !view.read_only)
            })
        })
    }

    /// A reset may come to a unit.
    fn extend_reset(&mut self, handle: Handle, unit: usize) {
        self.credit(Kind::Reset, 1, |_, at| at == unit);
        self.excuse(|open| open.units.contains(&unit));
        let is_of_all = self
            .resets
            .get(&handle)
            .is_some_and(|it| it.number.is_none());
        self.units[unit].judge.event_begins(
            handle,
            match is_of_all {
                true => Event::TargetReset,
                false => Event::LogicalUnitReset,
            },
        );
        let change = self.units[unit].begin_reset();
        if let Some(reset) = self.resets.get_mut(&handle) {
            reset.units.push((unit, change));
        }
    }

    /// It was answered. One that has failed may come to pass at any time until nothing is under way.
    pub(super) fn end_reset(&mut self, handle: Handle, is_done: bool) {
        if is_done {
            self.close_reset(handle, true);
        }
    }

    fn close_reset(&mut self, handle: Handle, is_done: bool) {
        let Some(reset) = self.resets.remove(&handle) else {
            return;
        };
        let (player, number) = (reset.player, reset.number);
        let is_kept = self.changed < handle;
        self.outcomes.resets += u64::from(is_done);
        for (unit, change) in reset.units {
            let is_done = is_done && is_kept && self.is_reset_by((player, number), unit);
            self.units[unit].end_reset(change);
            match is_done {
                true => self.units[unit].judge.event_ends(handle, true),
                false => self.units[unit].judge.gone(handle),
            }
        }
    }

    /// All sessions of the target of a player may end.
    pub(super) fn note_cold(&mut self, player: usize) {
        let Seat::Iscsi { target, .. } = self.seats[player] else {
            return;
        };
        self.cold.insert(target);
        let is_of_it =
            |seat: &Seat| matches!(seat, Seat::Iscsi { target: its, .. } if *its == target);
        let seats = self.seats.iter().enumerate();
        let meant = seats.filter(|(_, seat)| is_of_it(seat));
        self.may_end.extend(meant.map(|(player, _)| player));
        let ending = self.may_end.clone();
        self.excuse(|open| ending.contains(&open.door.0));
        ending
            .into_iter()
            .for_each(|player| self.note_closed(player));
    }

    // ---- the end -----------------------------------------------------------------------------

    /// Nothing is under way.
    pub(super) fn settle(&mut self) {
        let left: Vec<Handle> = self.open.keys().copied().collect();
        for handle in left {
            self.forget(handle);
        }
        let resets: Vec<Handle> = self.resets.keys().copied().collect();
        for handle in resets {
            self.close_reset(handle, false);
        }
        for player in 0..self.seats.len() {
            if !self.present.contains(&player) {
                self.units
                    .iter_mut()
                    .for_each(|book| book.note_left(player));
            }
        }
        let logs_in = |player| self.present.contains(&player) && !self.joined.contains(&player);
        for book in &mut self.units {
            book.judge.settle(logs_in);
        }
        self.expected.clear();
        self.may_end.clear();
        self.cold.clear();
    }

    /// The machine of the target has stopped.
    pub(super) fn crash(&mut self) {
        self.units.iter_mut().for_each(Book::crash);
        self.open.clear();
        self.nexuses.clear();
        // Logins of HyperSCSI go on with the new machine.
        self.credit(Kind::Reset, 1, |_, _| true);
        self.resets.clear();
        self.loads.clear();
        self.expected.clear();
        self.before = None;
        for player in self.present.clone() {
            if let Seat::Hyperscsi = self.seats[player] {
                self.seat(player);
            }
        }
        self.may_end.clear();
        self.cold.clear();
        self.changed = self.new_handle();
    }
}
