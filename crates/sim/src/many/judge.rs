//! The reference judges what one unit answers: it is written from the standards and knows no code of the target.
//!
//! It learns what the books learn. Where it cannot follow what happens, its judging of that unit ends: mostly with too
//! many possible states. Commands whose LUN leads elsewhere while they are under way may have any effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::{MediumOrder, VisibleLun};
use reference::{Event, Nexus, Outcome, Plan, Port, Tag, Unit, View};

use super::seat::{Answer, Door, Seat};
use crate::disk::BLOCK_BYTES;
use crate::initiator::{Breach, Operation};
use crate::ledger::Handle;

/// The rule that is broken by an answer that no order of what was under way explains.
const RULE: &str = "the-reference-allows-it";

/// Unit attentions of what the reference does not know: REPORTED LUNS DATA HAS CHANGED and THIN PROVISIONING SOFT
/// THRESHOLD REACHED.
const OF_OTHERS: [(u8, u8, u8); 2] = [(6, 0x3f, 0x0e), (6, 0x38, 7)];

/// How much was judged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Score {
    /// Answers that were judged.
    pub judged: u64,
    /// Answers that were not.
    pub passed_over: u64,
    /// Units whose judging has ended before the life did.
    pub ended: u64,
    /// Units that lived.
    pub units: u64,
}

impl Score {
    /// Adds another one.
    pub const fn add(&mut self, other: Self) {
        self.judged += other.judged;
        self.passed_over += other.passed_over;
        self.ended += other.ended;
        self.units += other.units;
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.judged + self.passed_over;
        let percent = 100 * self.judged / all.max(1);
        let Self {
            judged,
            ended,
            units,
            ..
        } = self;
        write!(
            f,
            "reference: {judged} of {all} answers judged ({percent} %), "
        )?;
        write!(f, "up to the end of {} of {units} units", units - ended)
    }
}

/// A nexus, and whether its end is under way.
#[derive(Clone, Copy, Debug)]
struct Seated {
    nexus: Nexus,
    view: View,
    is_ending: bool,
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct Begun {
    door: Door,
    /// It can come here only.
    is_sure: bool,
    /// It may change more than blocks.
    is_sharing: bool,
}

/// See above.
#[derive(Debug)]
pub(super) struct Judge {
    /// `None`: its judging has ended.
    unit: Option<Unit>,
    nexuses: BTreeMap<Door, Seated>,
    /// Those that a number led to before a change that is under way.
    moved: BTreeMap<Door, Seated>,
    /// Changes of views that are under way.
    views: Vec<Tag>,
    /// Ends of nexuses that not all may know of.
    ends: Vec<(Tag, Door, Nexus)>,
    /// Players whose sessions the target may end.
    may_end: BTreeSet<usize>,
    /// Orders and commands that are over without an answer of which all cores know.
    late: Vec<Handle>,
    /// A medium was not moved, as that could not be saved; it may be after the next start.
    has_unsaved_move: bool,
    /// Commands under way.
    begun: BTreeMap<Handle, Begun>,
    last_nexus: u64,
    last_tag: u64,
    pub(super) score: Score,
    breach: Option<Breach>,
}

impl Judge {
    pub(super) fn new(blocks: usize, has_volatile_cache: bool, is_removable: bool) -> Self {
        let mut unit = Unit::crowded(Plan {
            blocks: blocks as u64,
            block_bytes: u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX),
            removable: is_removable,
            thin: true,
            write_cache: has_volatile_cache,
        });
        // What cannot be done in time fails as what the store cannot do.
        unit.store_may_fail(true);
        Self {
            unit: Some(unit),
            nexuses: BTreeMap::new(),
            moved: BTreeMap::new(),
            views: Vec::new(),
            ends: Vec::new(),
            may_end: BTreeSet::new(),
            late: Vec::new(),
            has_unsaved_move: false,
            begun: BTreeMap::new(),
            last_nexus: 0,
            last_tag: 1 << 60,
            score: Score {
                units: 1,
                ..Score::default()
            },
            breach: None,
        }
    }

    /// Its judging ends: the reference does not know what happens now.
    pub(super) fn end(&mut self) {
        self.score.ended += u64::from(self.unit.take().is_some());
    }

    /// The first breach since the last time.
    pub(super) const fn take_breach(&mut self) -> Option<Breach> {
        self.breach.take()
    }

    fn note<T>(&mut self, judged: Result<T, reference::Breach>) {
        match judged {
            Ok(_) => return,
            Err(reference::Breach::TooManyStates(_)) => {}
            Err(breach) => {
                let found = Breach::new(RULE, breach.to_string());
                self.breach.get_or_insert(found);
            }
        }
        self.end();
    }

    fn on(&mut self, act: impl FnOnce(&mut Unit) -> Result<(), reference::Breach>) {
        if let Some(unit) = &mut self.unit {
            let judged = act(unit);
            self.note(judged);
        }
    }

    // ---- nexuses -----------------------------------------------------------------------------

    /// A session of a player that sees the unit by this number is about to begin.
    pub(super) fn nexus_comes(&mut self, door: Door, seat: &Seat, lun: VisibleLun) {
        let mut others = self.nexuses.iter();
        let first = others.find(|(other, _)| other.0 == door.0);
        let view = View {
            read_only: lun.read_only,
            hides_attentions: matches!(seat, Seat::Nbd { .. }),
            twin_of: first.map(|(_, it)| it.view.twin_of.unwrap_or(it.nexus)),
        };
        self.last_nexus += 1;
        let nexus = Nexus(self.last_nexus);
        let is_ending = false;
        self.nexuses.insert(
            door,
            Seated {
                nexus,
                view,
                is_ending,
            },
        );
        self.on(|unit| {
            unit.nexus_comes(nexus, &port_of(door.0, seat), view);
            Ok(())
        });
    }

    /// It has begun.
    pub(super) fn nexus_has_come(&mut self, is_meant: impl Fn(Door) -> bool) {
        let meant = self.nexuses.iter().filter(|(door, _)| is_meant(**door));
        for nexus in meant.map(|(_, it)| it.nexus).collect::<Vec<_>>() {
            self.on(|unit| {
                unit.nexus_has_come(nexus);
                Ok(())
            });
        }
    }

    /// The session of a player may be over.
    pub(super) fn leave(&mut self, player: usize) {
        let (its, others) = std::mem::take(&mut self.nexuses)
            .into_iter()
            .partition(|(door, _)| door.0 == player);
        self.nexuses = others;
        self.may_end.remove(&player);
        let its: BTreeMap<Door, Seated> = its;
        for (door, seated) in its {
            let (nexus, is_ending) = (seated.nexus, seated.is_ending);
            let unit = self.unit.as_mut();
            let holds = unit.is_some_and(|unit| unit.nexus_leaves(nexus));
            if holds && !is_ending {
                self.begin_end(door, nexus);
            }
        }
    }

    fn new_tag(&mut self) -> Tag {
        self.last_tag -= 1;
        Tag(self.last_tag)
    }

    fn begin_end(&mut self, door: Door, nexus: Nexus) {
        let tag = self.new_tag();
        self.ends.push((tag, door, nexus));
        self.event_begins(tag.0, Event::NexusEnds(nexus));
    }

    /// The target may end the session of a player.
    pub(super) fn may_end(&mut self, player: usize) {
        self.may_end.insert(player);
        let doors: Vec<Door> = self.nexuses.keys().copied().collect();
        for door in doors.into_iter().filter(|door| door.0 == player) {
            self.note_end(door);
        }
    }

    /// The end of this nexus is under way, if others may notice it.
    fn note_end(&mut self, door: Door) {
        let seated = self.nexuses.get_mut(&door).filter(|it| !it.is_ending);
        if let (Some(seated), Some(unit)) = (seated, &self.unit)
            && unit.may_hold(seated.nexus)
        {
            seated.is_ending = true;
            let nexus = seated.nexus;
            self.begin_end(door, nexus);
        }
    }

    // ---- changes of the plan -----------------------------------------------------------------

    /// A number leads elsewhere from now on, or soon.
    pub(super) fn move_away(&mut self, door: Door) {
        let Some(seated) = self.nexuses.remove(&door) else {
            return;
        };
        self.moved.insert(door, seated);
        let nexus = seated.nexus;
        if !seated.is_ending {
            self.begin_end(door, nexus);
        }
        self.on(|unit| {
            unit.nexus_leaves(nexus);
            Ok(())
        });
    }

    /// A view may write from now on, or may not any more, or soon.
    pub(super) fn begin_view(&mut self, door: Door, read_only: bool) {
        let tag = self.new_tag();
        if let Some(seated) = self.nexuses.get_mut(&door) {
            seated.view.read_only = read_only;
            let event = Event::View(seated.nexus, seated.view);
            self.views.push(tag);
            self.event_begins(tag.0, event);
        }
    }

    /// Everybody sees what the plan says. `is_joined`: players that have sessions.
    pub(super) fn end_change(&mut self, is_joined: impl Fn(usize) -> bool) {
        for tag in std::mem::take(&mut self.views) {
            self.event_ends(tag.0, true);
        }
        for seated in std::mem::take(&mut self.moved).into_values() {
            let is_its = |(.., nexus): &mut (Tag, Door, Nexus)| *nexus == seated.nexus;
            let its: Vec<_> = self.ends.extract_if(.., is_its).collect();
            for (tag, ..) in its {
                self.event_ends(tag.0, true);
            }
        }
        self.nexus_has_come(|door| is_joined(door.0));
    }

    // ---- commands ----------------------------------------------------------------------------

    /// A command is about to be sent to this unit and no other.
    pub(super) fn begin(
        &mut self,
        handle: Handle,
        (door, seat): (Door, &Seat),
        operation: &Operation,
    ) {
        let is_nbd = matches!(seat, Seat::Nbd { .. });
        if is_nbd {
            self.nexus_has_come(|other| other == door);
        }
        // What NBD has instead is none of the commands that the reference knows.
        if is_nbd && *operation == Operation::TestUnitReady {
            return;
        }
        let Some(Seated { nexus, .. }) = self.nexuses.get(&door).copied() else {
            return self.begin_perhaps(handle, door, operation);
        };
        self.begin_by(handle, nexus, operation);
        self.note_begun(handle, door, operation, true);
        let may_hold = matches!(
            operation,
            Operation::Prevent { on: true } | Operation::Reserve
        );
        if may_hold && self.may_end.contains(&door.0) {
            self.note_end(door);
        }
    }

    fn note_begun(&mut self, handle: Handle, door: Door, operation: &Operation, is_sure: bool) {
        let begun = Begun {
            door,
            is_sure,
            is_sharing: is_sharing(operation),
        };
        self.begun.insert(handle, begun);
    }

    fn begin_by(&mut self, handle: Handle, nexus: Nexus, operation: &Operation) {
        if let Some(unit) = &mut self.unit {
            let (cdb, data) = (operation.cdb(), operation.data_out());
            let cdb = &cdb[..length_of(cdb[0])];
            unit.begin(Tag(handle), nexus, cdb, &data, operation.room_bytes());
        }
    }

    /// A command may come to this unit or to another, as its number may lead to either.
    pub(super) fn begin_perhaps(&mut self, handle: Handle, door: Door, operation: &Operation) {
        if let Some(begun) = self.begun.get_mut(&handle) {
            begun.is_sure = false;
            return;
        }
        let seated = self.moved.get(&door).or_else(|| self.nexuses.get(&door));
        let nexus = match seated {
            Some(seated) => seated.nexus,
            // Of a session that is over, without a nexus that could take attentions.
            None if !is_sharing(operation) => Nexus(0),
            None => return self.end(),
        };
        self.begin_by(handle, nexus, operation);
        self.note_begun(handle, door, operation, false);
    }

    /// It was answered. An error of NBD without sense data may be any.
    pub(super) fn answer(&mut self, handle: Handle, (status, sense): Answer, data: &[u8]) {
        if sense.is_some_and(|sense| OF_OTHERS.contains(&sense)) {
            self.score.passed_over += 1;
            return self.refuse(handle);
        }
        self.has_unsaved_move |= sense == Some((4, 0x44, 0));
        let begun = self.begun.get(&handle);
        let is_judged = begun.is_some_and(|begun| begun.is_sure)
            && self.unit.is_some()
            && (status, sense) != (2, None);
        self.score.judged += u64::from(is_judged);
        self.score.passed_over += u64::from(!is_judged);
        if !is_judged {
            let is_attention = sense.is_some_and(|(key, ..)| key == 6);
            return self.end_unsure(handle, is_attention);
        }
        self.begun.remove(&handle);
        let sense = sense.map(|(key, asc, ascq)| {
            [
                0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0,
            ]
        });
        let outcome = Outcome {
            status,
            sense: sense.as_ref().map_or(&[], |sense| &sense[..]),
            data_in: data,
        };
        self.on(|unit| unit.end(Tag(handle), outcome));
    }

    /// A command was not carried out, and will not be.
    pub(super) fn refuse(&mut self, handle: Handle) {
        self.begun.remove(&handle);
        let outcome = Outcome {
            status: 0x08,
            sense: &[],
            data_in: &[],
        };
        self.on(|unit| unit.end(Tag(handle), outcome));
    }

    /// A command is over without an answer. It may have come to pass, which not all cores may know.
    pub(super) fn lose(&mut self, handle: Handle) {
        match self.begun.get(&handle).is_some_and(|it| it.is_sharing) {
            true => self.late.push(handle),
            false => self.gone(handle),
        }
    }

    /// A command or an event is over. It may have come to pass.
    pub(super) fn gone(&mut self, handle: Handle) {
        self.end_unsure(handle, true);
    }

    /// The same. It may have come by what its number leads to now, and have reported what that is owed.
    fn end_unsure(&mut self, handle: Handle, may_have_reported: bool) {
        let begun = self.begun.remove(&handle);
        let unsure = begun.filter(|begun| !begun.is_sure);
        let seated = unsure.and_then(|begun| self.nexuses.get(&begun.door));
        if let Some(Seated { nexus, .. }) = seated.copied().filter(|_| may_have_reported) {
            self.on(|unit| {
                unit.may_have_reported(nexus);
                Ok(())
            });
        }
        self.on(|unit| unit.gone(Tag(handle)));
    }

    // ---- events ------------------------------------------------------------------------------

    pub(super) fn event_begins(&mut self, handle: Handle, event: Event) {
        self.on(|unit| {
            unit.event_begins(Tag(handle), event);
            Ok(())
        });
    }

    pub(super) fn event_ends(&mut self, handle: Handle, has_happened: bool) {
        self.on(|unit| unit.event_ends(Tag(handle), has_happened));
    }

    /// An administrator moves the medium.
    pub(super) fn begin_move(&mut self, handle: Handle, order: MediumOrder) {
        let event = match order {
            MediumOrder::Eject { force } => Event::Eject { force },
            MediumOrder::WriteThrough { .. } => Event::WriteCache(false),
            MediumOrder::NotWriteThrough | MediumOrder::WriteBack => Event::WriteCache(true),
            MediumOrder::Load
            | MediumOrder::LoadAnother
            | MediumOrder::Hold { .. }
            | MediumOrder::ClearReservations => Event::Load,
        };
        self.event_begins(handle, event);
    }

    /// An administrator has the unit write through, or lets it have a cache. `is_good`: the order has ended well.
    pub(super) fn end_cache_order(&mut self, handle: Handle, order: MediumOrder, is_good: bool) {
        if !is_good {
            // It may have been another one for a while.
            let back = self.new_tag();
            let is_through = matches!(order, MediumOrder::WriteThrough { .. });
            self.event_begins(back.0, Event::WriteCache(is_through));
            self.late.extend([handle, back.0]);
        } else if matches!(order, MediumOrder::WriteThrough { .. }) {
            self.event_ends(handle, true);
        } else {
            self.gone(handle);
        }
    }

    /// The write cache may be on or off.
    pub(super) fn doubt_cache(&mut self) {
        self.may_have_happened([Event::WriteCache(false), Event::WriteCache(true)]);
    }

    fn may_have_happened(&mut self, events: [Event; 2]) {
        for event in events {
            let tag = self.new_tag();
            self.event_begins(tag.0, event);
            self.gone(tag.0);
        }
    }

    /// An initiator keeps the medium in.
    pub(super) fn note_prevented(&mut self, handle: Handle) {
        self.on(|unit| unit.event_is_prevented(Tag(handle)));
    }

    /// An administrator has moved the medium, or has not.
    pub(super) fn end_move(&mut self, handle: Handle, is_good: bool) {
        self.has_unsaved_move |= !is_good;
        self.event_ends(handle, is_good);
    }

    pub(super) fn lose_cache(&mut self) {
        self.on(|unit| {
            unit.cache_lost();
            Ok(())
        });
    }

    /// Nothing is under way but logins, which may find a session of their player still there.
    pub(super) fn settle(&mut self, logs_in: impl Fn(usize) -> bool) {
        self.may_end.clear();
        let late = std::mem::take(&mut self.late);
        late.into_iter().for_each(|handle| self.gone(handle));
        for (tag, door, nexus) in std::mem::take(&mut self.ends) {
            if logs_in(door.0) {
                self.ends.push((tag, door, nexus));
                continue;
            }
            let mut seated = self.nexuses.values_mut();
            match seated.find(|it| it.nexus == nexus) {
                // It may go on.
                Some(seated) => {
                    seated.is_ending = false;
                    self.gone(tag.0);
                }
                None => self.event_ends(tag.0, true),
            }
        }
    }

    /// The machine of the target has stopped.
    pub(super) fn crash(&mut self, is_removable: bool) {
        self.nexuses.clear();
        self.moved.clear();
        self.views.clear();
        self.ends.clear();
        self.may_end.clear();
        self.late.clear();
        self.begun.clear();
        self.on(Unit::restart);
        if std::mem::take(&mut self.has_unsaved_move) && is_removable {
            self.may_have_happened([Event::Eject { force: true }, Event::Load]);
        }
    }

    /// Holds the medium against what it may hold.
    pub(super) fn check(&mut self, content: &[u8]) {
        if self.ends.is_empty() {
            self.on(|unit| unit.check_medium(content));
        }
    }
}

/// Whether a command may change more than blocks.
const fn is_sharing(operation: &Operation) -> bool {
    !operation.writes()
        && !matches!(
            operation,
            Operation::Read { .. }
                | Operation::Flush
                | Operation::TestUnitReady
                | Operation::Inquiry
        )
}

/// The bytes of a CDB with this operation code.
const fn length_of(opcode: u8) -> usize {
    match opcode >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    }
}

fn port_of(player: usize, seat: &Seat) -> Port {
    match seat {
        Seat::Iscsi { host, target } => {
            Port::new(&format!("{host}, {player}"), &format!("{target:?}"))
        }
        Seat::Hyperscsi => Port::new(&player.to_string(), "HyperSCSI"),
        Seat::Nbd { export } => Port::new(&player.to_string(), export),
    }
}
