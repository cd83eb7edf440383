//! The unit: possible states, what is under way, and the judgement of each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::answer::{Answer, sense};
use crate::command::{Command, Kind};
use crate::medium::{Content, Ended, Medium};
use crate::state::{State, Step};
use crate::turn;
use crate::types::{Breach, Event, Nexus, Outcome, Plan, Port, Tag, View};

/// More possible states than this are an error: a history with that many changes at once proves nothing.
const STATES_MAX: usize = 4096;

/// Tags of the unit's own.
const ZEROS: Tag = Tag(u64::MAX - 1);
const ENDING: Tag = Tag(u64::MAX - 2);

/// Whether the reference knows this command; it judges one that it does not know by unit attentions alone.
pub fn knows(cdb: &[u8]) -> bool {
    Command::new(cdb, &[]).kind != Kind::Unknown
}

/// Whether an answer is the one that was seen.
type Fits<'a> = dyn Fn(&Answer) -> bool + 'a;

#[derive(Clone, Debug)]
enum Work {
    Command(Nexus, Command),
    Event(Event),
}

impl Work {
    const fn nexus(&self) -> Option<Nexus> {
        match self {
            Self::Command(nexus, _) => Some(*nexus),
            Self::Event(_) => None,
        }
    }

    /// Whether it may change more than which attentions are owed to its own nexus.
    const fn may_share(&self) -> bool {
        match self {
            Self::Command(_, command) => matches!(
                command.kind,
                Kind::PersistentOut
                    | Kind::Reserve
                    | Kind::Release
                    | Kind::Prevent
                    | Kind::StartStop
                    | Kind::ModeSelect
                    | Kind::ReportLuns
            ),
            Self::Event(_) => true,
        }
    }
}

#[derive(Clone, Debug)]
struct UnderWay {
    work: Work,
    /// The most data that its initiator takes, in bytes.
    room: usize,
    /// The store may fail it.
    may_fail: bool,
    /// There was no write cache when it began.
    writes_through: bool,
}

/// A possible state.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Branch {
    state: State,
    /// Commands under way that have changed it, and their answer.
    done: BTreeMap<Tag, Answer>,
    /// For the other ones: answers of states since they began, which they do not change.
    seen: BTreeMap<Tag, BTreeSet<Answer>>,
}

impl Branch {
    fn without(mut self, tag: Tag) -> Self {
        self.done.remove(&tag);
        self.seen.remove(&tag);
        self
    }
}

/// A logical unit, and all that is known of it.
#[derive(Clone, Debug)]
pub struct Unit {
    plan: Plan,
    branches: BTreeSet<Branch>,
    under_way: BTreeMap<Tag, UnderWay>,
    medium: Medium,
    may_fail: bool,
    /// Nexuses that may get the report of a lost cache.
    losses: BTreeSet<Nexus>,
}

impl Unit {
    /// A unit of zeros that nobody uses.
    pub fn new(plan: Plan) -> Self {
        let block_bytes = usize::try_from(plan.block_bytes).unwrap_or(usize::MAX);
        let branch = Branch {
            state: State::new(&plan),
            done: BTreeMap::new(),
            seen: BTreeMap::new(),
        };
        Self {
            plan,
            branches: BTreeSet::from([branch]),
            under_way: BTreeMap::new(),
            medium: Medium::new(block_bytes, ZEROS),
            may_fail: false,
            losses: BTreeSet::new(),
        }
    }

    /// A nexus begins.
    pub fn nexus_begins(&mut self, nexus: Nexus, port: &Port, view: View) {
        self.change(|branch| branch.state.begin_nexus(nexus, port.clone(), view));
    }

    /// A nexus has ended, at once and with all its commands. See [`Event::NexusEnds`] for one that takes its time.
    ///
    /// # Errors
    ///
    /// Too many states.
    pub fn nexus_ends(&mut self, nexus: Nexus) -> Result<(), Breach> {
        let of_nexus = |under_way: &&UnderWay| under_way.work.nexus() == Some(nexus);
        let tags: Vec<Tag> = self
            .under_way
            .iter()
            .filter(|(_, it)| of_nexus(it))
            .map(|(&tag, _)| tag)
            .collect();
        tags.into_iter().try_for_each(|tag| self.gone(tag))?;
        self.event_begins(ENDING, Event::NexusEnds(nexus));
        self.event_ends(ENDING, true)
    }

    /// A command is about to be sent, with this Data-Out; its initiator takes `room` bytes of Data-In.
    pub fn begin(&mut self, tag: Tag, nexus: Nexus, cdb: &[u8], data_out: &[u8], room: usize) {
        let command = Command::new(cdb, data_out);
        self.touch(tag, &command);
        self.add(tag, Work::Command(nexus, command), room);
    }

    /// A command was answered.
    ///
    /// # Errors
    ///
    /// No order of what was under way allows this answer, or the data is wrong. The unit is of no use after that.
    pub fn end(&mut self, tag: Tag, outcome: Outcome<'_>) -> Result<(), Breach> {
        let Some(UnderWay {
            work: Work::Command(nexus, command),
            may_fail,
            ..
        }) = self.under_way.get(&tag)
        else {
            return Ok(());
        };
        let (nexus, command, may_fail) = (*nexus, command.clone(), *may_fail);
        let sensed = sense(outcome.sense).filter(|_| outcome.status == 0x02);
        let had_no_turn = matches!(outcome.status, 0x08 | 0x28);
        if outcome.status == 0x40 || sensed.is_some_and(|sensed| sensed.0 == 0xb) {
            return self.gone(tag);
        }
        let found = if had_no_turn {
            let waiting = self
                .branches
                .iter()
                .filter(|branch| !branch.done.contains_key(&tag));
            waiting.map(|branch| branch.clone().without(tag)).collect()
        } else {
            self.resolve(tag, &|answer| answer.allows(&outcome, &command.cdb), true)?
        };
        if found.is_empty() {
            let is_failure = sensed
                .is_some_and(|(key, code)| matches!(key, 2..=4) || (key, code) == (7, 0x2707));
            let is_loss = sensed == Some((4, 0x0c00)) && self.losses.remove(&nexus);
            if is_loss || is_failure && may_fail {
                return self.gone(tag);
            }
            return Err(self.unexplained(tag, &command, &outcome));
        }
        self.branches = found;
        let Some(ended) = self.under_way.remove(&tag) else {
            return Ok(());
        };
        if matches!(outcome.status, 0 | 4) {
            self.judge_good(tag, &command, &ended, outcome.data_in)
        } else if sensed.is_some_and(|sensed| sensed.0 == 0xe) {
            self.settle(tag, Ended::Refused, false);
            self.compare(tag, &command, false)
        } else {
            self.settle(tag, Ended::Refused, true);
            Ok(())
        }
    }

    /// Nobody will answer this command or event, and it takes no effect any more; it may have taken effect.
    ///
    /// A command whose answer is lost stays under way, and may take effect, until this is called.
    ///
    /// # Errors
    ///
    /// Too many states.
    pub fn gone(&mut self, tag: Tag) -> Result<(), Breach> {
        if self.under_way.contains_key(&tag) {
            let mut found = self.resolve(tag, &|_| true, false)?;
            let without = self
                .branches
                .iter()
                .filter(|branch| !branch.done.contains_key(&tag));
            found.extend(without.map(|branch| branch.clone().without(tag)));
            self.branches = found;
            self.under_way.remove(&tag);
            self.settle(tag, Ended::Uncertain, true);
        }
        Ok(())
    }

    /// Something is about to happen to the unit.
    pub fn event_begins(&mut self, tag: Tag, event: Event) {
        self.add(tag, Work::Event(event), 0);
    }

    /// It has happened, or was refused.
    ///
    /// # Errors
    ///
    /// No order of what was under way allows this.
    pub fn event_ends(&mut self, tag: Tag, happened: bool) -> Result<(), Breach> {
        let found = self.resolve(tag, &|answer| *answer == Answer::Happens(happened), true)?;
        let Some(ended) = self.under_way.remove(&tag) else {
            return Ok(());
        };
        if found.is_empty() {
            let seen = format!(
                "{:?} {}",
                ended.work,
                if happened { "happened" } else { "was refused" }
            );
            return Err(Breach::Answer {
                tag,
                seen,
                allowed: String::new(),
            });
        }
        self.branches = found;
        Ok(())
    }

    /// From now on the store may fail commands, with NOT READY, MEDIUM ERROR, HARDWARE ERROR or SPACE ALLOCATION
    /// FAILED; or no longer those that begin now.
    pub fn store_may_fail(&mut self, may_fail: bool) {
        self.may_fail = may_fail;
        self.under_way
            .values_mut()
            .for_each(|under_way| under_way.may_fail |= may_fail);
    }

    /// The store lost its write cache and goes on. The next flush of each nexus may say so (4h/0Ch/00h).
    pub fn cache_lost(&mut self) {
        self.medium.lose_cache();
        let nexuses = self
            .branches
            .iter()
            .flat_map(|branch| branch.state.shared.nexuses.keys());
        self.losses.extend(nexuses);
    }

    /// Power went and came back: nothing is under way, no nexus is left, what was not durable may be lost.
    ///
    /// # Errors
    ///
    /// Too many states.
    pub fn restart(&mut self) -> Result<(), Breach> {
        let tags: Vec<Tag> = self.under_way.keys().copied().collect();
        self.medium.crash();
        tags.into_iter().try_for_each(|tag| self.gone(tag))?;
        self.losses.clear();
        self.change(|branch| branch.state.restart());
        Ok(())
    }

    /// Nothing is under way, and the medium holds `content`.
    ///
    /// # Errors
    ///
    /// Something is, or a block holds what it cannot.
    pub fn check_medium(&mut self, content: &[u8]) -> Result<(), Breach> {
        if let Some(&tag) = self.under_way.keys().next() {
            return Err(Breach::UnderWay(tag));
        }
        self.medium
            .check(content)
            .map_err(|lba| Breach::Data { tag: None, lba })
    }

    /// What block `lba` holds, as a guess; `None` if nothing is known.
    pub fn guess(&self, lba: u64) -> Option<&[u8]> {
        self.medium.guess(lba)
    }

    /// In how many states the unit may be.
    pub fn states(&self) -> usize {
        self.branches.len()
    }

    fn change(&mut self, change: impl Fn(&mut Branch)) {
        let branches = std::mem::take(&mut self.branches).into_iter();
        self.branches = branches
            .map(|mut branch| {
                change(&mut branch);
                branch
            })
            .collect();
    }

    fn add(&mut self, tag: Tag, work: Work, room: usize) {
        let writes_through = self.writes_through();
        let under_way = UnderWay {
            work,
            room,
            may_fail: self.may_fail,
            writes_through,
        };
        let look = |branch: &Branch| still(self.steps(branch, &under_way));
        let branches = self.branches.iter().map(|branch| {
            let mut new = branch.clone();
            new.seen.insert(tag, look(branch));
            new
        });
        self.branches = branches.collect();
        self.under_way.insert(tag, under_way);
    }

    fn writes_through(&self) -> bool {
        self.branches
            .iter()
            .all(|branch| !branch.state.shared.mode.write_cache)
    }

    fn steps(&self, branch: &Branch, under_way: &UnderWay) -> Vec<Step> {
        match &under_way.work {
            Work::Command(nexus, command) => {
                turn::steps(&branch.state, *nexus, command, &self.plan)
            }
            Work::Event(event) => branch.state.happen(event),
        }
    }

    /// The branches that `tag` leads to by changing this one.
    fn grow(&self, branch: &Branch, tag: Tag, fits: &Fits<'_>) -> Vec<Branch> {
        let Some(under_way) = self.under_way.get(&tag) else {
            return Vec::new();
        };
        let owes = |nexus: &Nexus| {
            branch
                .state
                .owed
                .get(nexus)
                .is_some_and(|owed| !owed.is_empty())
        };
        if !under_way.work.may_share() && under_way.work.nexus().is_some_and(|nexus| !owes(&nexus))
        {
            return Vec::new();
        }
        let steps = self.steps(branch, under_way).into_iter();
        let changes = steps
            .filter(|(_, answer)| fits(answer))
            .filter_map(|(state, answer)| Some((state?, answer)));
        changes
            .filter(|(state, _)| *state != branch.state)
            .map(|(state, answer)| self.child(branch, tag, state, answer))
            .collect()
    }

    fn child(&self, branch: &Branch, tag: Tag, state: State, answer: Answer) -> Branch {
        let (mut done, mut seen) = (branch.done.clone(), branch.seen.clone());
        done.insert(tag, answer);
        seen.remove(&tag);
        let mut child = Branch { state, done, seen };
        for (other, seen) in &mut child.seen {
            if let Some(under_way) = self.under_way.get(other) {
                let probe = Branch {
                    state: child.state.clone(),
                    done: BTreeMap::new(),
                    seen: BTreeMap::new(),
                };
                seen.extend(still(self.steps(&probe, under_way)));
            }
        }
        child
    }

    /// The branches in which `tag` is over with an answer that fits, without it. `is_certain`: what fits is one answer.
    fn resolve(
        &self,
        tag: Tag,
        fits: &Fits<'_>,
        is_certain: bool,
    ) -> Result<BTreeSet<Branch>, Breach> {
        let own = self.under_way.get(&tag).and_then(|it| it.work.nexus());
        let changes = |tag: &Tag| {
            self.under_way
                .get(tag)
                .is_some_and(|it| it.work.may_share())
        };
        let anything_changes = self.under_way.keys().any(changes);
        // Who takes an attention of another nexus matters only beside what changes more than that.
        let matters =
            |other: &UnderWay| anything_changes || own.is_none() || other.work.nexus() == own;
        let others = self
            .under_way
            .iter()
            .filter(|(other, it)| **other != tag && matters(it));
        let others: Vec<Tag> = others.map(|(&other, _)| other).collect();
        let mut found = BTreeSet::new();
        let mut known: BTreeSet<_> = self.branches.iter().map(|it| (it.clone(), false)).collect();
        let mut queue: Vec<(Branch, bool)> = known.iter().cloned().collect();
        while let Some((branch, had_fit)) = queue.pop() {
            if let Some(answer) = branch.done.get(&tag) {
                found.extend(fits(answer).then(|| branch.without(tag)));
                continue;
            }
            let fits_here = branch
                .seen
                .get(&tag)
                .is_some_and(|seen| seen.iter().any(fits));
            let own_changes = self.grow(&branch, tag, fits).into_iter();
            found.extend(own_changes.map(|child| child.without(tag)));
            // What only looks and fits may have looked before others changed anything.
            let is_over = is_certain && fits_here && !changes(&tag);
            for &other in others
                .iter()
                .filter(|other| !is_over && !branch.done.contains_key(other))
            {
                for child in self.grow(&branch, other, &|_| true) {
                    let child = (child, had_fit || fits_here);
                    if known.insert(child.clone()) {
                        queue.push(child);
                    }
                }
            }
            // Where it has fitted before, what others change may as well come later.
            found.extend((fits_here && !had_fit).then(|| branch.without(tag)));
            let states = known.len().max(found.len());
            if states > STATES_MAX {
                return Err(Breach::TooManyStates(states));
            }
        }
        Ok(found)
    }

    fn unexplained(&self, tag: Tag, command: &Command, outcome: &Outcome<'_>) -> Breach {
        let Outcome {
            status,
            sense,
            data_in,
        } = outcome;
        let start = &data_in[..data_in.len().min(64)];
        let (kind, cdb) = (command.kind, command.cdb);
        let seen = format!(
            "{kind:?} {cdb:02x?} ended with status {status:02x}h, sense {sense:02x?}, data {start:02x?}"
        );
        let mut allowed = BTreeSet::new();
        for branch in &self.branches {
            allowed.extend(branch.done.get(&tag).cloned());
            allowed.extend(branch.seen.get(&tag).into_iter().flatten().cloned());
            let steps = self
                .under_way
                .get(&tag)
                .map(|under_way| self.steps(branch, under_way));
            allowed.extend(steps.into_iter().flatten().map(|(_, answer)| answer));
        }
        Breach::Answer {
            tag,
            seen,
            allowed: format!("{allowed:02x?}"),
        }
    }
}

/// The answers that leave the state as it is.
fn still(steps: Vec<Step>) -> BTreeSet<Answer> {
    steps
        .into_iter()
        .filter(|(state, _)| state.is_none())
        .map(|(_, answer)| answer)
        .collect()
}

/// Data.
impl Unit {
    fn block_bytes(&self) -> usize {
        usize::try_from(self.plan.block_bytes).unwrap_or(usize::MAX)
    }

    /// Notes what a command reads, compares and writes.
    fn touch(&mut self, tag: Tag, command: &Command) {
        let block_bytes = self.block_bytes();
        let (lba, data) = (command.lba, &command.data_out);
        let Some(end) = lba.checked_add(command.blocks) else {
            return;
        };
        let there = u64::try_from(data.len() / block_bytes).unwrap_or(u64::MAX);
        let is_whole = there >= command.blocks_out();
        let compares = command.kind == Kind::Verify && command.byte_check() & 1 != 0;
        if command.kind == Kind::Read
            || is_whole && (compares || command.kind == Kind::CompareAndWrite)
        {
            self.medium.begin_read(tag, lba..end);
        }
        if command.kind == Kind::Flush {
            let end = if command.blocks == 0 { u64::MAX } else { end };
            self.medium.begin_flush(tag, lba..end);
        }
        let (blocks, content) = if command.kind == Kind::Write {
            (
                lba..lba + there.min(command.blocks),
                whole(data, block_bytes, lba),
            )
        } else if command.kind == Kind::CompareAndWrite && is_whole {
            (lba..end, whole(&data[data.len() / 2..], block_bytes, lba))
        } else if command.kind == Kind::OrWrite && is_whole {
            (lba..end, self.medium.or(&(lba..end), data))
        } else if command.kind == Kind::WriteSame && is_whole {
            self.same(command, end)
        } else if command.kind == Kind::Unmap {
            let ranges = command.ranges().into_iter();
            let ranges = ranges.filter_map(|(lba, blocks)| Some(lba..lba.checked_add(blocks)?));
            let zeros = whole(&vec![0; block_bytes], block_bytes, 0);
            self.medium
                .begin_write(tag, ranges.collect(), &zeros, false);
            return;
        } else {
            return;
        };
        self.medium
            .begin_write(tag, vec![blocks], &content, command.kind == Kind::OrWrite);
    }

    /// What a WRITE SAME writes.
    fn same(&self, command: &Command, end: u64) -> (Range<u64>, Content) {
        let block_bytes = self.block_bytes();
        let to_the_end = command.blocks == 0;
        let last = self
            .branches
            .iter()
            .map(|branch| branch.state.shared.blocks)
            .max();
        let end = if to_the_end {
            last.unwrap_or(0).max(command.lba)
        } else {
            end
        };
        let zeros = vec![0; block_bytes];
        let block = if command.blocks_out() == 0 {
            &zeros
        } else {
            &command.data_out
        };
        // To the end of the medium, UNMAP is not bound to the data.
        let is_any = to_the_end && command.cdb[1] & 0x08 != 0;
        let content = whole(&block[..block_bytes], block_bytes, command.lba);
        (
            command.lba..end,
            if is_any { Content::Any } else { content },
        )
    }

    fn settle(&mut self, tag: Tag, ended: Ended, forgets_reads: bool) {
        self.medium.end_write(tag, ended);
        self.medium
            .end_flush(tag, matches!(ended, Ended::Good { .. }));
        if forgets_reads {
            self.medium.forget_read(tag);
        }
    }

    fn judge_good(
        &mut self,
        tag: Tag,
        command: &Command,
        ended: &UnderWay,
        data_in: &[u8],
    ) -> Result<(), Breach> {
        let durable = command.forces_unit_access() || ended.writes_through && self.writes_through();
        // Blocks that UNMAP leaves mapped keep their data.
        let is_hint = command.kind == Kind::Unmap;
        self.settle(
            tag,
            if is_hint {
                Ended::Uncertain
            } else {
                Ended::Good { durable }
            },
            false,
        );
        if command.kind != Kind::Read {
            return self.compare(tag, command, true);
        }
        let all = usize::try_from(command.blocks)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.block_bytes());
        let wanted = all.min(ended.room);
        if data_in.len() != wanted {
            return Err(Breach::Length {
                tag,
                got: data_in.len(),
                wanted,
            });
        }
        self.medium
            .end_read(tag, data_in)
            .map_err(|lba| Breach::Data {
                tag: Some(tag),
                lba,
            })
    }

    fn compare(&mut self, tag: Tag, command: &Command, is_equal: bool) -> Result<(), Breach> {
        let is_half = command.kind == Kind::CompareAndWrite;
        let data = &command.data_out[..command.data_out.len() / if is_half { 2 } else { 1 }];
        self.medium
            .end_compare(tag, data, is_equal)
            .map_err(|lba| Breach::Data {
                tag: Some(tag),
                lba,
            })
    }
}

/// The whole blocks of `data`, from block `base` on.
fn whole(data: &[u8], block_bytes: usize, base: u64) -> Content {
    Content::Bytes {
        data: data[..data.len() / block_bytes * block_bytes].into(),
        base,
    }
}
