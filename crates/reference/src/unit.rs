//! The unit: possible states, what is under way, and the judgement of each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::answer::{Answer, sense};
use crate::command::{Command, Kind};
use crate::medium::{Content, Ended, Medium};
use crate::state::{NEW, Shared, State, Step, reset_level};
use crate::turn;
use crate::types::{Breach, Event, Nexus, Outcome, Plan, Port, Tag, View};

/// More possible states than this are an error: a history with that many changes at once proves nothing.
const STATES_MAX: usize = 4096;
const STATES_OF_CROWD_MAX: usize = 128;

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
    /// Nexuses that have come since.
    newcomers: BTreeSet<Nexus>,
}

impl UnderWay {
    /// Unit attentions that it may establish for others.
    fn codes(&self) -> Vec<u16> {
        match &self.work {
            Work::Command(_, command) if command.kind == Kind::PersistentOut => {
                vec![0x2a03, 0x2a04, 0x2a05]
            }
            Work::Command(_, command) if command.kind == Kind::StartStop => vec![0x2800],
            Work::Command(_, command) if command.kind == Kind::ModeSelect => vec![0x2a01],
            Work::Command(..) => Vec::new(),
            Work::Event(event) => match event {
                Event::LogicalUnitReset => vec![0x2903],
                Event::TargetReset => vec![0x2902],
                Event::Load => vec![0x2800],
                Event::Resize(_) => vec![0x2a09],
                Event::WriteCache(_) => vec![0x2a01],
                Event::ClearReservations => vec![0x2a03],
                Event::Attention { code, .. } => vec![*code],
                Event::NexusReset(_)
                | Event::NexusEnds(_)
                | Event::ClearTaskSet(_)
                | Event::Eject { .. }
                | Event::View(..) => Vec::new(),
            },
        }
    }
}

/// A possible state.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Branch {
    state: State,
    /// Commands under way that have changed it, and their answer.
    done: BTreeMap<Tag, Answer>,
    /// For the other ones: answers of states since they began, which they do not change.
    seen: BTreeMap<Tag, BTreeSet<Answer>>,
    /// What commands shared before those that have changed it, as not every nexus may have learnt of that.
    before: BTreeMap<Tag, Shared>,
}

impl Branch {
    fn without(mut self, tag: Tag) -> Self {
        self.done.remove(&tag);
        self.seen.remove(&tag);
        self.before.remove(&tag);
        self.state.settle(tag, false);
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
    /// It follows which command under way reports an attention.
    is_exact: bool,
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
            before: BTreeMap::new(),
        };
        Self {
            plan,
            branches: BTreeSet::from([branch]),
            under_way: BTreeMap::new(),
            medium: Medium::new(block_bytes, ZEROS),
            may_fail: false,
            is_exact: true,
            losses: BTreeSet::new(),
        }
    }

    /// The same for many commands at once, which make too many states: whoever has several commands under way may have
    /// reported by any of them what it is owed.
    pub fn crowded(plan: Plan) -> Self {
        let is_exact = false;
        Self {
            is_exact,
            ..Self::new(plan)
        }
    }

    /// A nexus begins.
    pub fn nexus_begins(&mut self, nexus: Nexus, port: &Port, view: View) {
        self.change(|branch| branch.state.begin_nexus(nexus, port.clone(), view));
    }

    /// A nexus is about to begin: it learns of what happens from now on if it is there already, and of its beginning.
    pub fn nexus_comes(&mut self, nexus: Nexus, port: &Port, view: View) {
        let codes: Vec<u16> = self.under_way.values().flat_map(UnderWay::codes).collect();
        self.note_newcomer(nexus);
        self.change(|branch| {
            branch.state.begin_nexus(nexus, port.clone(), view);
            branch.state.coming.insert(nexus);
            // Of what is under way it may learn, too, although it has happened.
            codes
                .iter()
                .for_each(|&code| branch.state.owe(nexus, code, true));
        });
    }

    /// It may have come before or after what is under way.
    fn note_newcomer(&mut self, nexus: Nexus) {
        let all = self.under_way.values_mut();
        all.for_each(|it| it.newcomers.extend([nexus]));
    }

    /// A nexus that was about to begin has begun.
    pub fn nexus_has_come(&mut self, nexus: Nexus) {
        self.note_newcomer(nexus);
        self.change(|branch| branch.state.coming.retain(|coming| *coming != nexus));
    }

    /// A command of another nexus may have reported what this one is owed.
    pub fn may_have_reported(&mut self, nexus: Nexus) {
        self.excuse(nexus, |_| true);
    }

    fn excuse(&mut self, nexus: Nexus, is_meant: impl Fn(u16) -> bool) {
        self.change(|branch| {
            let owed = branch.state.owed.get_mut(&nexus).into_iter().flatten();
            let meant = owed.filter(|it| is_meant(it.code));
            meant.for_each(|it| it.is_optional = true);
        });
    }

    /// Whether others may notice when a nexus ends, as it holds something or is about to.
    pub fn may_hold(&self, nexus: Nexus) -> bool {
        let is_its = |it: &UnderWay| match &it.work {
            Work::Event(Event::NexusEnds(of) | Event::View(of, _)) => *of == nexus,
            Work::Command(of, _) => *of == nexus && it.work.may_share(),
            Work::Event(_) => false,
        };
        let mut branches = self.branches.iter();
        self.under_way.values().any(is_its)
            || branches.any(|branch| branch.state.holds_anything(nexus))
    }

    /// The initiator of a nexus is gone. False if nobody can notice when the nexus ends, apart from its commands under
    /// way: it has ended. Otherwise it ends with [`Event::NexusEnds`].
    pub fn nexus_leaves(&mut self, nexus: Nexus) -> bool {
        let holds = self.may_hold(nexus);
        self.change(|branch| match holds {
            true => branch.state.abandon(nexus),
            false => branch.state.remove(nexus),
        });
        holds
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
            // A store that fails is not a medium that is out.
            let is_failure = sensed.is_some_and(|(key, code)| {
                matches!(key, 2..=4) && code >> 8 != 0x3a || (key, code) == (7, 0x2707)
            });
            let is_loss = sensed == Some((4, 0x0c00)) && self.losses.remove(&nexus);
            // A crowd may report an attention several times, and have done so before others changed anything.
            let is_attention = sensed.is_some_and(|(key, _)| key == 6);
            if let Some((6, seen)) = sensed.filter(|_| !self.is_exact) {
                let is_reset = |code| reset_level(code).is_some();
                self.excuse(nexus, |code| {
                    code == seen || is_reset(code) && is_reset(seen)
                });
            }
            if is_loss || is_failure && may_fail || is_attention && !self.is_exact {
                return self.gone(tag);
            }
            return Err(self.unexplained(tag, &command, &outcome));
        }
        self.branches = found;
        let Some(ended) = self.remove(tag) else {
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
            self.remove(tag);
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
        self.end_event(tag, &Answer::Happens(happened))
    }

    /// It was refused because initiators prevent it.
    ///
    /// # Errors
    ///
    /// No order of what was under way allows this.
    pub fn event_is_prevented(&mut self, tag: Tag) -> Result<(), Breach> {
        self.end_event(tag, &Answer::Prevented)
    }

    fn end_event(&mut self, tag: Tag, wanted: &Answer) -> Result<(), Breach> {
        let Some(ended) = self.under_way.get(&tag) else {
            return Ok(());
        };
        let seen = format!("{:?}: {wanted:?}", ended.work);
        let found = self.resolve(tag, &|answer| answer == wanted, true)?;
        self.under_way.remove(&tag);
        if found.is_empty() {
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
        let changed = branches.map(|mut branch| {
            change(&mut branch);
            branch.state.settle(NEW, self.is_exact);
            self.look(&mut branch);
            branch
        });
        self.branches = changed.collect();
    }

    /// Notes what the state allows to commands under way that have not changed it.
    fn look(&self, branch: &mut Branch) {
        self.look_for(branch, |_| true);
    }

    fn look_for(&self, branch: &mut Branch, is_meant: impl Fn(Tag) -> bool) {
        let mut after = BTreeMap::new();
        let mut befores = Vec::new();
        for shared in branch.before.values() {
            // Who has come or gone since then is as it is.
            let (mut shared, nexuses) = (shared.clone(), branch.state.shared.nexuses.clone());
            shared.nexuses = nexuses;
            let state = branch.state.clone();
            befores.push(State { shared, ..state });
        }
        for (tag, seen) in branch.seen.iter_mut().filter(|(tag, _)| is_meant(**tag)) {
            let Some(under_way) = self.under_way.get(tag) else {
                continue;
            };
            let nexus = under_way.work.nexus();
            for (at, state) in std::iter::once(&branch.state).chain(&befores).enumerate() {
                self.note_still(state, under_way, seen);
                let after = after
                    .entry((nexus, at))
                    .or_insert_with(|| self.after_others(state, under_way));
                if let Some(after) = after {
                    self.note_still(after, under_way, seen);
                }
            }
        }
    }

    /// Notes the answers that leave the state as it is.
    fn note_still(&self, state: &State, under_way: &UnderWay, seen: &mut BTreeSet<Answer>) {
        let steps = match &under_way.work {
            Work::Command(nexus, command) => turn::looks(state, *nexus, command, &self.plan),
            Work::Event(event) => state.happen(event),
        };
        let still = steps.into_iter().filter(|(state, _)| state.is_none());
        seen.extend(still.map(|(_, answer)| answer));
    }

    fn add(&mut self, tag: Tag, work: Work, room: usize) {
        let writes_through = self.writes_through();
        let nexus = work.nexus();
        let under_way = UnderWay {
            work,
            room,
            may_fail: self.may_fail,
            writes_through,
            newcomers: BTreeSet::new(),
        };
        self.under_way.insert(tag, under_way);
        let branches = std::mem::take(&mut self.branches).into_iter();
        let begun = branches.map(|mut branch| {
            branch.seen.insert(tag, BTreeSet::new());
            branch.state.busy.extend(nexus);
            // Those of the same nexus may be answered after it.
            let is_its = |other| nexus.is_some() && self.nexus_of(other) == nexus;
            self.look_for(&mut branch, |other| other == tag || is_its(other));
            branch
        });
        self.branches = begun.collect();
    }

    fn remove(&mut self, tag: Tag) -> Option<UnderWay> {
        let ended = self.under_way.remove(&tag)?;
        let own = ended.work.nexus();
        let mut others = self.under_way.values().map(|it| it.work.nexus());
        if let Some(nexus) = own.filter(|_| !others.any(|other| other == own)) {
            let branches = std::mem::take(&mut self.branches).into_iter();
            let idle = branches.map(|mut branch| {
                branch.state.note_idle(nexus);
                branch
            });
            self.branches = idle.collect();
        }
        Some(ended)
    }

    fn writes_through(&self) -> bool {
        self.branches
            .iter()
            .all(|branch| !branch.state.shared.mode.write_cache)
    }

    fn nexus_of(&self, tag: Tag) -> Option<Nexus> {
        self.under_way.get(&tag).and_then(|it| it.work.nexus())
    }

    /// The state in which other commands of the same nexus that are under way have reported what it is owed.
    fn after_others(&self, state: &State, under_way: &UnderWay) -> Option<State> {
        let nexus = under_way.work.nexus()?;
        let new = state.with_reported(nexus)?;
        let its = |it: &&UnderWay| it.work.nexus() == Some(nexus);
        let is_crowded = !self.is_exact && self.under_way.values().filter(its).count() > 1;
        is_crowded.then_some(new)
    }

    fn steps(&self, state: &State, under_way: &UnderWay) -> Vec<Step> {
        match &under_way.work {
            Work::Command(nexus, command) => turn::steps(state, *nexus, command, &self.plan),
            Work::Event(event) => state.happen(event),
        }
    }

    /// Whether this is the end of a nexus that holds nothing: it may as well come later.
    fn is_unnoticed(&self, branch: &Branch, tag: Tag) -> bool {
        let work = self.under_way.get(&tag).map(|it| &it.work);
        matches!(work, Some(Work::Event(Event::NexusEnds(of))) if !branch.state.holds_anything(*of))
    }

    /// Whether this changes nothing but what another nexus may do, which changes nothing itself.
    fn is_beside(&self, it: &UnderWay, own: Option<Nexus>) -> bool {
        let Work::Event(Event::View(nexus, _)) = &it.work else {
            return false;
        };
        let mut all = self.under_way.values();
        own != Some(*nexus) && !all.any(|it| it.work.nexus() == Some(*nexus) && it.work.may_share())
    }

    /// The branches that `tag` leads to by changing this one.
    fn grow(&self, branch: &Branch, tag: Tag, fits: &Fits<'_>) -> Vec<Branch> {
        let Some(under_way) = self.under_way.get(&tag) else {
            return Vec::new();
        };
        let is_sharing = under_way.work.may_share();
        let owed = under_way
            .work
            .nexus()
            .and_then(|it| branch.state.owed.get(&it));
        if !is_sharing && owed.is_none_or(Vec::is_empty) {
            return Vec::new();
        }
        let from = |state: &State| -> Vec<(State, Answer)> {
            let steps = self.steps(state, under_way).into_iter();
            let fitting = steps.filter(|(_, answer)| fits(answer));
            let changes = fitting.filter_map(|(state, answer)| Some((state?, answer)));
            changes
                .filter(|(state, _)| *state != branch.state)
                .collect()
        };
        let mut changes = from(&branch.state);
        if is_sharing || changes.is_empty() {
            let after = self.after_others(&branch.state, under_way);
            changes.extend(after.iter().flat_map(from));
        }
        if let Some(nexus) = under_way
            .work
            .nexus()
            .filter(|_| is_sharing && !self.is_exact)
        {
            changes.extend(self.admitted(branch, nexus, from));
        }
        let children = changes.into_iter();
        children
            .map(|(state, answer)| self.child(branch, tag, state, answer))
            .collect()
    }

    /// What a command leads to that was let in before its nexus was owed what it is owed now.
    fn admitted(
        &self,
        branch: &Branch,
        nexus: Nexus,
        from: impl Fn(&State) -> Vec<(State, Answer)>,
    ) -> Vec<(State, Answer)> {
        let mut free = branch.state.clone();
        let owed = free.owed.insert(nexus, Vec::new()).unwrap_or_default();
        if owed.is_empty() {
            return Vec::new();
        }
        let mut changes = from(&free);
        for (state, _) in &mut changes {
            let new = state.owed.entry(nexus).or_default();
            new.splice(..0, owed.iter().copied());
        }
        changes
    }

    fn child(&self, branch: &Branch, tag: Tag, state: State, answer: Answer) -> Branch {
        let (mut done, mut seen) = (branch.done.clone(), branch.seen.clone());
        done.insert(tag, answer);
        seen.remove(&tag);
        let mut before = branch.before.clone();
        if !self.is_exact && state.shared != branch.state.shared {
            before.insert(tag, branch.state.shared.clone());
        }
        let mut child = Branch {
            state,
            done,
            seen,
            before,
        };
        match self.under_way.get(&tag) {
            Some(it) if !self.is_exact => child.state.note_cause(tag, &it.newcomers),
            Some(_) | None => child.state.settle(NEW, true),
        }
        self.look(&mut child);
        child
    }

    /// The branches in which `tag` is over with an answer that fits, without it. `is_certain`: what fits is one answer.
    fn resolve(
        &mut self,
        tag: Tag,
        fits: &Fits<'_>,
        is_certain: bool,
    ) -> Result<BTreeSet<Branch>, Breach> {
        let is_sharing = |it: &UnderWay| it.work.may_share();
        // What only looks and fits may have looked before others changed anything.
        let is_over = is_certain && !self.under_way.get(&tag).is_some_and(is_sharing);
        let has_fit = |branch: &Branch| {
            let seen = branch.seen.get(&tag);
            seen.is_some_and(|seen| seen.iter().any(fits))
        };
        let (over, rest): (Vec<Branch>, Vec<Branch>) = std::mem::take(&mut self.branches)
            .into_iter()
            .partition(|branch| is_over && has_fit(branch));
        let mut found: BTreeSet<Branch> = over.into_iter().map(|it| it.without(tag)).collect();
        let own = self.nexus_of(tag);
        let anything_changes = self.under_way.values().any(is_sharing);
        // Who takes an attention of another nexus matters only beside what changes more than that.
        let reports = |it: &UnderWay| anything_changes || it.work.nexus() == own;
        let matters = |it: &UnderWay| is_sharing(it) || self.is_exact && reports(it);
        let others = self.under_way.iter();
        let others = others.filter(|(other, it)| **other != tag && matters(it));
        let others = others.filter(|(_, it)| !self.is_beside(it, own));
        let others: Vec<Tag> = others.map(|(&other, _)| other).collect();
        let most = if self.is_exact {
            STATES_MAX
        } else {
            STATES_OF_CROWD_MAX
        };
        let mut known: BTreeSet<_> = rest.iter().map(|it| (it.clone(), false)).collect();
        let mut queue: Vec<(Branch, bool)> = known.iter().cloned().collect();
        self.branches = rest.into_iter().collect();
        while let Some((branch, had_fit)) = queue.pop() {
            if let Some(answer) = branch.done.get(&tag) {
                found.extend(fits(answer).then(|| branch.without(tag)));
                continue;
            }
            let fits_here = has_fit(&branch);
            let own_changes = self.grow(&branch, tag, fits).into_iter();
            found.extend(own_changes.map(|child| child.without(tag)));
            for &other in others
                .iter()
                .filter(|other| !(branch.done.contains_key(other) || is_over && fits_here))
                .filter(|other| !self.is_unnoticed(&branch, **other))
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
            if states > most {
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
                .map(|under_way| self.steps(&branch.state, under_way));
            allowed.extend(steps.into_iter().flatten().map(|(_, answer)| answer));
        }
        Breach::Answer {
            tag,
            seen,
            allowed: format!("{allowed:02x?}"),
        }
    }
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
        // In a crowd the order of changes of the cache is not certain.
        let is_through = self.is_exact && ended.writes_through && self.writes_through();
        let durable = command.forces_unit_access() || is_through;
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
