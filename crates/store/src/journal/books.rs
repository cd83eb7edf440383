//! What all cores know of a log together: which changes of the store are under way, what has to go to the log, and
//! how far the store has it. Pure: it says what is to be done next ([`Work`]), and learns what came of it.
//!
//! # Order
//!
//! Changes of bytes in common follow one after the other: the next one goes when the one before is over, in the store
//! and in the log. So the log has them in the order in which the store had them, and a read never shows what a replay
//! takes back. All others are under way beside each other. Each change has a *number*, given when it goes; so all that
//! is in the log has lower numbers than what waits for room in it.
//!
//! # What is kept where
//!
//! * A change that is answered as durable is *forced*: it waits for the record that has it. One record is written at a
//!   time, so that all records before one that is whole are whole; while it is written the next one collects.
//! * Other changes are kept in memory, in order, as long as they are few ([`Limits`]): a flush forces them.
//!   When they are more, they are dropped, and the next flush syncs the store. No two of them have bytes in common: of
//!   two that are answered, a record could have the first alone. A later one takes the place of those that it covers.
//! * A *checkpoint* syncs the store, then moves the tail of the log in its header. It covers the changes with numbers
//!   below all that are under way when it begins. Meanwhile no record gets a change that is covered: a replay of it
//!   would undo what the store has from later ones.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use marks::sometimes;

use super::format::{Address, Entry, Header, encode_record, place};
use super::ranges::Ranges;
use super::replay::Binding;

/// How much is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of changes that are kept for a flush.
    pub loose_bytes: usize,
    /// How many changes are kept for a flush, at most.
    pub loose_changes: usize,
    /// How many records may be in the log before the store is synced.
    pub live_records: usize,
    /// With [`Bias::Throughput`], durable writes of this size or more pass by the log.
    pub pass_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            loose_bytes: 8 << 20,
            loose_changes: 4096,
            live_records: 16 << 10,
            pass_bytes: 64 << 10,
        }
    }
}

/// What the log is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bias {
    /// Everything that has to be durable goes to the log.
    Latency,
    /// Large writes go to the store at once, which is then written once.
    Throughput,
}

/// How the log is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Condition {
    Working,
    /// A write to it failed: the store is to be synced.
    Broken,
    /// The store has everything; that the log has nothing is to be noted.
    Leaving,
    /// Noted: the store serves alone.
    Left,
    /// That could not be noted. Nothing is durable any more, and what the log has data for does not change: a replay
    /// would undo that.
    Stuck,
    /// A sync of the store failed. The log keeps what it has for the next start, and that does not change.
    Frozen,
}

/// What is to be done next. One of each kind is under way at a time, on any core.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Work {
    /// Write a record to the log, durably.
    Record { at: u64, bytes: Vec<u8> },
    /// Sync the store, for a checkpoint.
    Sync,
    /// Write a header to the log, durably.
    Header { at: u64, bytes: Vec<u8> },
    /// Sync the store, because the log is broken.
    LastSync,
    /// Note that the log is not to be replayed.
    Leave,
}

/// How a change becomes durable, or a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wait {
    /// It is, or does not have to.
    Nothing,
    /// When so many entries are in the log.
    Committed(u64),
    /// When a checkpoint covers all changes below this number.
    Synced(u64),
    /// By a flush of the store.
    Flush,
    /// Not at all, for [`Condition::Stuck`]: it fails.
    Stuck,
    /// Not at all, for [`Condition::Frozen`]: it fails.
    Frozen,
}

/// A change that is under way, or waits for one before it.
#[derive(Debug)]
struct Running {
    /// Counts the changes as they come.
    place: u64,
    /// `None` as long as the store has not carried it out.
    number: Option<u64>,
    range: Range<u64>,
}

/// A change that is not in the log yet.
#[derive(Debug)]
struct Pending {
    number: u64,
    /// `None` when a checkpoint has covered it meanwhile.
    entry: Option<Entry>,
}

impl Pending {
    fn is_within(&self, range: &Range<u64>) -> bool {
        self.entry
            .as_ref()
            .is_some_and(|it| range.start <= it.range.start && it.range.end <= range.end)
    }

    fn data_bytes(&self) -> usize {
        self.entry.as_ref().map_or(0, |it| it.data.len())
    }

    fn meets(&self, range: &Range<u64>) -> bool {
        self.entry
            .as_ref()
            .is_some_and(|it| have_common(&it.range, range))
    }
}

/// A record of the log that a replay would read.
#[derive(Debug)]
struct Live {
    position: u64,
    end: u64,
    sequence: u64,
    /// The lowest and the highest number of its changes.
    lowest: u64,
    highest: u64,
    /// How many forced entries are in the log with it.
    count: u64,
    ranges: Vec<Range<u64>>,
}

/// A checkpoint that is under way.
#[derive(Debug)]
struct Checkpoint {
    covered: u64,
    /// The header that is being written.
    header: Option<Header>,
}

#[derive(Debug)]
pub(super) struct Books {
    bias: Bias,
    limits: Limits,
    condition: Condition,
    /// The one on the log device.
    header: Header,
    /// The number of the next change.
    next: u64,
    places: u64,
    /// In the order in which they came.
    running: VecDeque<Running>,
    /// Places of changes that are answered and end when so many entries are in the log: theirs are among them.
    ending: Vec<(u64, u64)>,
    forced: VecDeque<Pending>,
    loose: VecDeque<Pending>,
    loose_bytes: usize,
    /// Above the number of each change that was dropped from `loose`.
    lost: u64,
    /// The store has all changes below, durably, and no replay takes them back.
    synced: u64,
    /// How many entries were forced, and how many of them are in the log.
    appended: u64,
    committed: u64,
    /// The position and the sequence number of the next record.
    head: u64,
    sequence: u64,
    record: Option<Live>,
    live: VecDeque<Live>,
    /// What is in the log, or on its way there.
    logged: Ranges,
    checkpoint: Option<Checkpoint>,
    /// Flushes wait until all changes below these numbers are synced.
    wanted: BTreeSet<u64>,
    /// The next record finds no room.
    is_full: bool,
    /// What is in the log has been there for a while.
    is_aged: bool,
    is_leaving: bool,
    /// Something has changed that other cores may wait for.
    news: bool,
}

impl Books {
    /// Of a log with this header, which has no records.
    pub(super) fn new(header: Header, bias: Bias, limits: Limits) -> Self {
        Self {
            bias,
            limits,
            condition: Condition::Working,
            next: 1,
            places: 0,
            running: VecDeque::new(),
            ending: Vec::new(),
            forced: VecDeque::new(),
            loose: VecDeque::new(),
            loose_bytes: 0,
            lost: 0,
            synced: 0,
            appended: 0,
            committed: 0,
            head: header.tail,
            sequence: header.sequence,
            record: None,
            live: VecDeque::new(),
            logged: Ranges::default(),
            checkpoint: None,
            wanted: BTreeSet::new(),
            is_full: false,
            is_aged: false,
            is_leaving: false,
            news: false,
            header,
        }
    }

    /// The store serves alone from the start.
    pub(super) const fn leave_unused(&mut self) {
        self.condition = Condition::Left;
    }

    pub(super) const fn condition(&self) -> Condition {
        self.condition
    }

    /// What the log is known by.
    pub(super) const fn binding(&self) -> Binding {
        Binding {
            id: self.header.id,
            generation: self.header.generation,
        }
    }

    /// The header of a log that is closed now, of which the store has everything. `None` for one that has to be
    /// replayed or left.
    pub(super) fn last_header(&self) -> Option<Header> {
        let is_empty = self.forced.is_empty() && self.running.is_empty();
        let is_still = self.record.is_none() && self.checkpoint.is_none();
        (self.condition == Condition::Working && is_empty && is_still).then(|| Header {
            turn: self.header.turn + 1,
            tail: self.head,
            sequence: self.sequence,
            is_clean: true,
            ..self.header.clone()
        })
    }

    /// Whether something has changed that other cores may wait for, since the last call.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }
}

/// Changes.
impl Books {
    /// A change comes. Its place among all.
    pub(super) fn begin(&mut self, range: Range<u64>) -> u64 {
        let place = self.places;
        self.places += 1;
        self.running.push_back(Running {
            place,
            number: None,
            range,
        });
        place
    }

    /// Whether a change may go: none before it has bytes in common with it.
    pub(super) fn may_go(&self, place: u64) -> bool {
        let Some(at) = self.running.iter().position(|one| one.place == place) else {
            return false;
        };
        let mut before = self.running.iter().take(at);
        self.running
            .get(at)
            .is_some_and(|own| !before.any(|one| have_common(&one.range, &own.range)))
    }

    /// The store has carried a change out: its number.
    pub(super) fn carried_out(&mut self, place: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Some(one) = self.running.iter_mut().find(|one| one.place == place) {
            one.number = Some(number);
        }
        number
    }

    /// The store has failed to carry a change out, and may have done some of it. What the log has of its bytes is not
    /// to be replayed for longer than need be.
    pub(super) fn failed(&mut self, place: u64) {
        let one = self.running.iter().find(|one| one.place == place);
        let is_logged = one.is_some_and(|one| self.logged.meet(&one.range));
        let number = self.carried_out(place);
        if self.condition == Condition::Working {
            sometimes!("a change of a store with a log fails");
            self.lose(number);
            self.is_aged |= is_logged;
        }
        self.end(place);
    }

    /// Whether the log has, or will have, data for some of these bytes.
    pub(super) fn has_changes_of(&self, range: &Range<u64>) -> bool {
        self.logged.meet(range)
    }

    /// A change is over, or does not take place.
    pub(super) fn end(&mut self, place: u64) {
        self.running.retain(|one| one.place != place);
        // A checkpoint or a change behind it may begin.
        self.news = true;
    }

    /// A change is answered, of which entries may still be on their way to the log.
    pub(super) fn end_after(&mut self, place: u64, wait: Wait) {
        match self.is_over(wait) {
            Wait::Committed(count) => self.ending.push((place, count)),
            Wait::Nothing | Wait::Synced(_) | Wait::Flush | Wait::Stuck | Wait::Frozen => {
                self.end(place)
            }
        }
    }

    /// Ends what waited for entries that are in the log now, or never get there.
    fn end_answered(&mut self) {
        let waits = |count: u64, books: &Self| {
            books.is_over(Wait::Committed(count)) == Wait::Committed(count)
        };
        for (place, count) in std::mem::take(&mut self.ending) {
            match waits(count, self) {
                true => self.ending.push((place, count)),
                false => self.end(place),
            }
        }
    }

    /// The most data of an entry, in bytes.
    pub(super) const fn entry_bytes(&self) -> usize {
        self.header.entry_bytes()
    }

    /// Whether a durable write of so many bytes has room in the log beside others.
    pub(super) const fn fits(&self, len: usize) -> bool {
        len as u64 <= self.header.ring_bytes / 4
    }

    /// Whether a durable write goes to the store alone.
    pub(super) fn passes(&self, range: &Range<u64>) -> bool {
        let is_large = range.end - range.start >= self.limits.pass_bytes as u64;
        self.bias == Bias::Throughput
            && is_large
            && !self.logged.meet(range)
            && !self.loose.iter().any(|one| one.meets(range))
    }

    /// Whether a change of this range that need not be durable yet is kept, with so many bytes of data. Else it is lost
    /// to the log.
    pub(super) fn keeps(&self, range: &Range<u64>, len: usize) -> bool {
        let is_cut = |one: &Pending| one.meets(range) && !one.is_within(range);
        self.condition == Condition::Working
            && self.lost <= self.synced
            && self.loose_bytes + len <= self.limits.loose_bytes
            && self.loose.len() < self.limits.loose_changes
            && !self.loose.iter().any(is_cut)
    }

    /// A change that the store has is not kept, so that the next flush has to sync the store, which has all others,
    /// too.
    pub(super) fn lose(&mut self, number: u64) {
        self.loose.clear();
        self.loose_bytes = 0;
        self.lost = number + 1;
    }

    /// Keeps a change for the next flush, after [`Books::keeps`].
    pub(super) fn keep(&mut self, number: u64, range: &Range<u64>, entries: Vec<Entry>) {
        let bytes = &mut self.loose_bytes;
        self.loose.retain(|one| {
            let is_replaced = one.is_within(range);
            *bytes -= if is_replaced { one.data_bytes() } else { 0 };
            !is_replaced
        });
        for entry in entries {
            self.loose_bytes += entry.data.len();
            let entry = Some(entry);
            self.loose.push_back(Pending { number, entry });
        }
    }

    /// A change goes to the log.
    pub(super) fn force(&mut self, number: u64, entries: Vec<Entry>) -> Wait {
        let meets = |one: &Pending| entries.iter().any(|it| one.meets(&it.range));
        if self.loose.iter().any(meets) {
            sometimes!("a durable write forces what was kept for the next flush");
            self.force_loose();
        }
        for entry in entries {
            let entry = Some(entry);
            self.push(Pending { number, entry });
        }
        self.news = true;
        Wait::Committed(self.appended)
    }

    /// All that was answered before is to be durable.
    pub(super) fn flush(&mut self) -> Wait {
        match self.condition {
            Condition::Stuck => Wait::Stuck,
            Condition::Frozen => Wait::Frozen,
            Condition::Left => Wait::Flush,
            Condition::Broken | Condition::Leaving => Wait::Synced(self.next),
            Condition::Working if self.lost <= self.synced => {
                self.force_loose();
                self.is_over(Wait::Committed(self.appended))
            }
            Condition::Working => {
                sometimes!("a flush needs a checkpoint");
                self.wanted.insert(self.next);
                Wait::Synced(self.next)
            }
        }
    }

    /// What is left of a wait.
    pub(super) fn is_over(&self, wait: Wait) -> Wait {
        let is_met = match wait {
            Wait::Nothing | Wait::Flush | Wait::Stuck | Wait::Frozen => return wait,
            Wait::Committed(count) => self.committed >= count,
            Wait::Synced(bound) => self.synced >= bound,
        };
        match self.condition {
            _ if is_met => Wait::Nothing,
            Condition::Working | Condition::Broken | Condition::Leaving => wait,
            Condition::Left => Wait::Flush,
            Condition::Stuck => Wait::Stuck,
            // A record that is being written counts if it gets there.
            Condition::Frozen if self.record.is_some() => wait,
            Condition::Frozen => Wait::Frozen,
        }
    }

    fn force_loose(&mut self) {
        self.loose_bytes = 0;
        self.news |= !self.loose.is_empty();
        for pending in std::mem::take(&mut self.loose) {
            self.push(pending);
        }
    }

    fn push(&mut self, pending: Pending) {
        self.appended += 1;
        if let Some(entry) = &pending.entry {
            self.logged.add(&entry.range);
        }
        self.forced.push_back(pending);
    }
}

/// Records and checkpoints.
impl Books {
    /// What is to be done now, by the core that asks.
    pub(super) fn next_work(&mut self) -> Option<Work> {
        match self.condition {
            Condition::Working => self.next_checkpoint().or_else(|| self.next_record()),
            Condition::Broken | Condition::Leaving => self.next_of_leaving(),
            Condition::Left | Condition::Stuck | Condition::Frozen => None,
        }
    }

    fn next_record(&mut self) -> Option<Work> {
        if self.record.is_some() {
            return None;
        }
        let covered = self
            .forced
            .iter()
            .take_while(|one| one.entry.is_none())
            .count();
        if covered > 0 {
            self.forced.drain(..covered);
            self.committed += covered as u64;
            self.news = true;
            self.end_answered();
        }
        // Before it is encoded: at most so long.
        let longest = self.header.record_bytes as u64;
        let ring_bytes = self.header.ring_bytes;
        let taken = self.next_entries();
        self.is_full = taken > 0 && self.head + longest - self.header.tail > ring_bytes;
        if self.is_full || taken == 0 {
            return None;
        }
        let count = taken as u64;
        let taken = self.forced.drain(..taken);
        let taken: Vec<(u64, Entry)> = taken
            .filter_map(|one| Some((one.number, one.entry?)))
            .collect();
        let numbers = || taken.iter().map(|(number, _)| *number);
        let lowest = numbers().min().unwrap_or_default();
        let highest = numbers().max().unwrap_or_default();
        let entries: Vec<Entry> = taken.into_iter().map(|(_, entry)| entry).collect();
        let address = Address {
            id: self.header.id,
            generation: self.header.generation,
            sequence: self.sequence,
            position: self.head,
        };
        let bytes = encode_record(&address, &entries);
        let ranges = entries.into_iter().map(|it| it.range).collect();
        self.record = Some(Live {
            position: self.head,
            end: self.head + bytes.len() as u64,
            sequence: self.sequence,
            lowest,
            highest,
            count,
            ranges,
        });
        Some(Work::Record {
            at: place(self.head, ring_bytes),
            bytes,
        })
    }

    /// How many forced entries the next record takes.
    fn next_entries(&self) -> usize {
        let covered = self.checkpoint.as_ref().map_or(0, |one| one.covered);
        let mut used = 0;
        let fits = |one: &&Pending| {
            let Some(entry) = &one.entry else {
                return true;
            };
            used += entry.record_bytes();
            used <= self.header.room() && one.number >= covered
        };
        self.forced.iter().take_while(fits).count()
    }

    /// The record is durable, or may not be.
    pub(super) fn record_written(&mut self, is_good: bool) {
        let Some(record) = self.record.take() else {
            return;
        };
        self.news = true;
        if !is_good {
            // One of a frozen log is just not there.
            sometimes!("a record is not written");
            if self.condition == Condition::Working {
                self.condition = Condition::Broken;
            }
            self.end_answered();
            return;
        }
        self.committed += record.count;
        self.head = self.header.after(record.end);
        self.sequence += 1;
        self.live.push_back(record);
        self.end_answered();
    }

    /// Below this number all changes are over.
    fn coverable(&self) -> u64 {
        let numbers = self.running.iter().filter_map(|one| one.number);
        numbers.min().unwrap_or(self.next)
    }

    fn next_checkpoint(&mut self) -> Option<Work> {
        let covered = self.coverable();
        let is_covered = |one: &Live| one.lowest >= covered;
        if self.checkpoint.is_some() || !self.record.as_ref().is_none_or(is_covered) {
            return None;
        }
        let used = self.head - self.header.tail;
        let is_due = self.is_full
            || self.is_aged
            || used > self.header.ring_bytes / 2
            || self.live.len() > self.limits.live_records;
        let moves = self.live.front().is_some_and(|one| one.highest < covered);
        let is_begun = is_due && moves || self.meets_wanted(covered);
        if !is_begun {
            return None;
        }
        self.is_aged = false;
        self.checkpoint = Some(Checkpoint {
            covered,
            header: None,
        });
        Some(Work::Sync)
    }

    /// Whether a checkpoint that covers so much is all that the first flush waits for.
    fn meets_wanted(&self, covered: u64) -> bool {
        let Some(&bound) = self.wanted.first() else {
            return false;
        };
        let last = self.live.iter().rposition(|one| one.lowest < bound);
        let mut stay = self.live.iter().take(last.map_or(0, |at| at + 1));
        bound <= covered && stay.all(|one| one.highest < covered)
    }

    /// The store was synced for the checkpoint, or that failed. What comes next for it.
    pub(super) fn store_synced(&mut self, is_good: bool) -> Option<Work> {
        let covered = self.checkpoint.as_ref()?.covered;
        self.news = true;
        if !is_good {
            self.checkpoint = None;
            sometimes!("a store cannot be synced for a checkpoint");
            self.condition = Condition::Frozen;
            self.end_answered();
            return None;
        }
        if self.condition != Condition::Working {
            self.checkpoint = None;
            return None;
        }
        let mut left = self.live.iter().skip_while(|one| one.highest < covered);
        let first = left.next().or(self.record.as_ref());
        let (tail, sequence) = first.map_or((self.head, self.sequence), |one| {
            (one.position, one.sequence)
        });
        if tail == self.header.tail {
            sometimes!("a checkpoint covers nothing new");
            self.end_checkpoint(covered);
            return None;
        }
        let header = Header {
            turn: self.header.turn + 1,
            tail,
            sequence,
            is_clean: false,
            ..self.header.clone()
        };
        let work = Work::Header {
            at: header.place(),
            bytes: header.encode(),
        };
        self.checkpoint = Some(Checkpoint {
            covered,
            header: Some(header),
        });
        Some(work)
    }

    /// The header is durable, or may not be.
    pub(super) fn header_written(&mut self, is_good: bool) {
        let Some(Checkpoint { covered, header }) = self.checkpoint.take() else {
            return;
        };
        self.news = true;
        match header {
            Some(header) if is_good => {
                self.header = header;
                self.is_full = false;
                self.end_checkpoint(covered);
            }
            Some(_) | None if self.condition == Condition::Working => {
                sometimes!("the header of a log is not written");
                self.condition = Condition::Broken;
            }
            Some(_) | None => {}
        }
    }

    fn end_checkpoint(&mut self, covered: u64) {
        self.checkpoint = None;
        while let Some(one) = self
            .live
            .pop_front_if(|one| one.position < self.header.tail)
        {
            one.ranges
                .iter()
                .for_each(|range| self.logged.remove(range));
        }
        // What is still in the log must not undo what counts as synced.
        let lowest = self.live.iter().map(|one| one.lowest).min();
        let synced = covered.min(lowest.unwrap_or(covered));
        for one in self.forced.iter_mut().filter(|one| one.number < synced) {
            if let Some(entry) = one.entry.take() {
                sometimes!("an entry is dropped that the store has");
                self.logged.remove(&entry.range);
            }
        }
        let waiting = self.forced.iter().filter(|one| one.entry.is_some());
        let synced = synced.min(waiting.map(|one| one.number).min().unwrap_or(synced));
        self.synced = self.synced.max(synced);
        self.loose.retain(|one| one.number >= synced);
        self.loose_bytes = self.loose.iter().map(Pending::data_bytes).sum();
        self.wanted = self.wanted.split_off(&(self.synced + 1));
    }

    /// Some time has passed: what is in the log goes to the store, so that a replay is short.
    pub(super) fn age(&mut self) {
        self.is_aged = !self.live.is_empty();
    }

    /// A broken log: the store gets what is in it, then that is noted, so that a later start does not replay it.
    fn next_of_leaving(&mut self) -> Option<Work> {
        if self.is_leaving || self.record.is_some() || self.checkpoint.is_some() {
            return None;
        }
        sometimes!("a broken log is left");
        self.is_leaving = true;
        Some(match self.condition {
            Condition::Leaving => Work::Leave,
            Condition::Working
            | Condition::Broken
            | Condition::Left
            | Condition::Stuck
            | Condition::Frozen => Work::LastSync,
        })
    }

    /// The store was synced because the log is broken, or that failed.
    pub(super) fn last_synced(&mut self, is_good: bool) {
        self.is_leaving = false;
        self.news = true;
        self.condition = match is_good {
            true => Condition::Leaving,
            false => Condition::Frozen,
        };
        self.end_answered();
    }

    /// That the log is not to be replayed is noted, or could not be.
    pub(super) fn left(&mut self, is_noted: bool) {
        self.is_leaving = false;
        self.news = true;
        self.forced.clear();
        self.loose.clear();
        self.live.clear();
        self.condition = match is_noted {
            true => {
                self.logged = Ranges::default();
                Condition::Left
            }
            // A later start replays what the log has.
            false => Condition::Stuck,
        };
        self.end_answered();
    }
}

/// Whether two ranges have a byte in common.
const fn have_common(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
