//! Log devices: the product's own journal (`store::Journal`) on simulated media, which stop after every step.
//!
//! Here nothing stands in for the code that ships: cores change a store through the handles of a journal, with rings
//! and limits so small that laps, checkpoints,
//! dropped changes and writes past the log are frequent. After every step in
//! which something happened to the store, its log or what is noted of it, the machine stops: of what was not synced
//! any part may be there ([`medium`]), a start brings the store to where the log ends, now and then stops and begins
//! again, and each sector is compared with what was answered ([`ledger`]). Or only the process is killed, and the
//! machine goes on with what it has in its memory. Then the life goes on as if nothing had been.
//!
//! | Rule | What must hold |
//! | --- | --- |
//! | `what-was-answered-is-there` | nothing older than what was durable comes back |
//! | `what-was-given-up-stays-away` | a change that ended as failed before the store had it is never there |
//! | `sectors-are-whole` | a sector holds what one change made of it |
//! | `the-log-is-found` | a start finds the log and can read it |
//! | `one-answer` | each request is answered once |
//! | `every-failure-has-a-reason` | without faults and cancels every request ends well |
//! | `it-ends` | every request ends when the media carry out all |
//! | `no-panic` | nothing panics |
//!
//! Durable is what was answered as that, and what was answered before a flush began that ended well. Where only the
//! process is killed, everything is there that was answered as good, also where a sync of the store had failed, or that
//! a log is left could not be noted: from then on writes fail where the log has data.

mod ledger;
pub(crate) mod medium;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memory::Payload;
use store::{
    Backstore, Bias, Binding, HelperOperation, IoRequest, IoResult, IoTag, Journal, Known, Limits,
    LogOptions, Noted, Order, Outlet, PartTag, Replayed, Shape, Submitted, Use, Waker,
};

use self::ledger::{End, Ledger, sector_of};
pub use self::medium::Wrong;
use self::medium::{Fate, Kept, Medium, SECTOR};
use crate::flush::Breach;
use crate::prng::Prng;

const CORES: usize = 3;
/// Few, so that changes meet.
const SECTORS: usize = 96;
pub(crate) const BLOCK: usize = 4096;
/// Of the log before its ring.
pub(crate) const HEADERS: u64 = 2 * BLOCK as u64;
/// How many requests are under way at a time.
const OPEN_MAX: usize = 24;

/// What one seed has shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// How often the machine stopped.
    pub crashes: u64,
    /// How often only the process was killed, of these.
    pub kills: u64,
    /// How many records starts have replayed, in all.
    pub records: u64,
    /// How many requests ended well.
    pub good: u64,
    /// How often the longest log went round.
    pub laps: u64,
    /// How many logs were left.
    pub left: u64,
    /// How many syncs of the store failed.
    pub unsynced: u64,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// With its machine. So much of what was not synced is there.
    Power { store: Kept, log: Kept },
    /// It is killed, and the machine goes on.
    Killed,
}

/// What goes wrong besides what a seed draws: no seed ever draws it; tests put it in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Planted {
    /// In the store.
    pub store: Option<Wrong>,
    /// In the log device.
    pub log: Option<Wrong>,
}

/// What is kept outside of the log.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Saved>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) known: Option<Known>,
    /// The next save fails; with true it is there all the same.
    fails: Option<bool>,
    count: u64,
}

impl Notes {
    pub(crate) fn saved(&self) -> MutexGuard<'_, Saved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted for Notes {
    fn note(&self, log: Binding, how: Use) -> io::Result<()> {
        let mut saved = self.saved();
        saved.count += 1;
        let fails = saved.fails.take();
        if fails != Some(false) {
            saved.known = Some(Known { log, how });
        }
        match fails {
            Some(_) => Err(io::Error::other("it may not be saved")),
            None => Ok(()),
        }
    }
}

/// What may happen, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    log: u32,
    store: u32,
    sync: u32,
    lost: u32,
    note: u32,
    cancel: u32,
}

impl Faults {
    fn draw(prng: &mut Prng) -> Self {
        let mut one = |most| {
            if prng.chance(300) {
                prng.size(1, most)
            } else {
                0
            }
        };
        let mut draw = |most| u32::try_from(one(most)).unwrap_or(0);
        Self {
            log: draw(40),
            store: draw(30),
            sync: draw(300),
            lost: draw(10),
            note: draw(900),
            cancel: draw(900),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Change(usize),
    Flush { begun: u64 },
    Read,
}

#[derive(Debug)]
struct Core {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    is_woken: Arc<AtomicBool>,
    helps: Vec<(PartTag, HelperOperation)>,
    timers: Vec<u64>,
}

#[derive(Debug)]
struct World {
    seed: u64,
    prng: Prng,
    store: Medium,
    log: Medium,
    notes: Arc<Notes>,
    bias: Bias,
    shape: Shape,
    faults: Faults,
    planted: Planted,
    ledger: Ledger,
    cores: Vec<Core>,
    asked: BTreeMap<u64, (usize, Asked)>,
    is_spoiled: bool,
    has_lost: bool,
    /// The marks of changes that ended as failed before the store had anything of them.
    given_up: BTreeSet<u64>,
    now: u64,
    report: Report,
    diary: Option<Vec<String>>,
}

/// Lives one seed through.
///
/// # Errors
///
/// A rule was broken.
pub fn run(seed: u64, planted: Planted) -> Result<Report, Breach> {
    live(seed, planted, false).0
}

/// The same, with what happened, line by line.
pub fn run_noted(seed: u64, planted: Planted) -> (Result<Report, Breach>, Vec<String>) {
    live(seed, planted, true)
}

fn live(seed: u64, planted: Planted, tells: bool) -> (Result<Report, Breach>, Vec<String>) {
    let mut world = World::new(seed, planted);
    world.diary = tells.then(Vec::new);
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    let result = lived.unwrap_or_else(|panic| {
        let detail = crate::world::words(&*panic);
        let rule = "no-panic";
        Err(Breach { rule, seed, detail })
    });
    (
        result.map(|()| world.report),
        world.diary.take().unwrap_or_default(),
    )
}

impl World {
    fn new(seed: u64, planted: Planted) -> Self {
        let mut prng = Prng::stream(seed, "log");
        let record_bytes = BLOCK * prng.size(2, 4);
        let ring_bytes = (record_bytes * prng.size(4, 8)) as u64;
        let limits = Limits {
            loose_bytes: SECTOR * prng.size(8, 200),
            loose_changes: prng.size(4, 40),
            live_records: prng.size(2, 20),
            pass_bytes: SECTOR * prng.size(8, 32),
        };
        let is_calm = prng.chance(400);
        let store = Medium::new(vec![0; SECTORS * SECTOR]);
        let log_len = usize::try_from(HEADERS + ring_bytes).unwrap_or(0);
        Self {
            seed,
            ledger: Ledger::new(&store),
            store,
            log: Medium::new(vec![0; log_len]),
            notes: Arc::default(),
            bias: match prng.chance(500) {
                true => Bias::Latency,
                false => Bias::Throughput,
            },
            shape: Shape {
                ring_bytes,
                record_bytes,
                limits,
            },
            faults: match is_calm {
                true => Faults::default(),
                false => Faults::draw(&mut prng),
            },
            planted,
            prng,
            cores: Vec::new(),
            asked: BTreeMap::new(),
            is_spoiled: false,
            has_lost: false,
            given_up: BTreeSet::new(),
            now: 0,
            report: Report::default(),
            diary: None,
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{:>6} {}", self.now, what()));
        }
    }

    fn breach<T>(&self, rule: &'static str, detail: String) -> Result<T, Breach> {
        let seed = self.seed;
        let detail = format!("step {}: {detail}", self.now);
        Err(Breach { rule, seed, detail })
    }

    fn live(&mut self) -> Result<(), Breach> {
        for _ in 0..self.prng.size(1, 3) {
            self.start()?;
            for _ in 0..self.prng.size(20, 600) {
                self.step()?;
            }
            if self.prng.chance(300) {
                self.run_out()?;
            }
            self.asked.clear();
            self.cores.clear();
            let how = self.draw_end();
            self.note(|| format!("the end: {how:?}"));
            (self.store, self.log) = self.end_with(how);
        }
        Ok(())
    }

    /// One life begins.
    fn start(&mut self) -> Result<(), Breach> {
        self.now += 1;
        let (store, log, notes) = (
            self.store.clone(),
            self.log.clone(),
            Arc::clone(&self.notes),
        );
        self.draw_failure(&notes);
        let (journal, done) = self.open(&log, &store, &notes)?;
        self.note(|| format!("a start: {done:?}"));
        self.store.set_wrong(self.planted.store);
        self.log.set_wrong(self.planted.log);
        self.ledger = Ledger::new(&self.store);
        self.is_spoiled = false;
        self.has_lost = false;
        self.cores = (0..CORES).map(|core| self.core(&journal, core)).collect();
        Ok(())
    }

    /// Starts with a log, as the product does.
    fn open(
        &self,
        log: &Medium,
        store: &Medium,
        notes: &Arc<Notes>,
    ) -> Result<(Journal, Replayed), Breach> {
        let known = notes.saved().known;
        let options = LogOptions {
            unit: *b"unit of the sim.",
            known,
            new_id: [7; 16],
            bias: self.bias,
            medium: Vec::new(),
            noted: Arc::clone(notes) as Arc<dyn Noted>,
        };
        let (log_bytes, store_bytes) = (log.len(), store.len());
        Journal::start(log, log_bytes, store, store_bytes, &options, self.shape)
            .or_else(|error| self.breach("the-log-is-found", error.to_string()))
    }

    fn core(&self, journal: &Journal, core: usize) -> Core {
        let mut store = journal.handle(self.store.handle(core), self.log.handle(core));
        let mut outlet = Outlet::default();
        let is_woken = Arc::new(AtomicBool::new(false));
        let make_waker = || {
            let flag = Arc::clone(&is_woken);
            Waker::new(move || flag.store(true, Ordering::SeqCst))
        };
        store.start(&make_waker, &mut outlet);
        Core {
            store,
            outlet,
            is_woken,
            helps: Vec::new(),
            timers: Vec::new(),
        }
    }
}

/// What happens.
impl World {
    fn step(&mut self) -> Result<(), Breach> {
        self.now += 1;
        let before = self.happenings();
        match self.prng.below(100) {
            0..20 if self.asked.len() < OPEN_MAX => self.submit()?,
            0..50 => self.complete(true),
            50..76 => self.complete(false),
            76..90 => self.wake()?,
            90..92 => self.cancel()?,
            92..97 => self.help()?,
            _ => self.fire()?,
        }
        if self.happenings() == before {
            return Ok(());
        }
        for _ in 0..2 {
            self.stop_and_start()?;
        }
        Ok(())
    }

    /// Counts what may make a difference after a crash.
    fn happenings(&self) -> u64 {
        let saved = self.notes.saved().count;
        self.store.events() + self.log.events() + saved + self.report.good
    }

    fn submit(&mut self) -> Result<(), Breach> {
        let prng = &mut self.prng;
        let core = prng.size(0, CORES - 1);
        let count = match prng.chance(100) {
            true => prng.within(1, SECTORS as u64),
            false => prng.within(1, 7),
        };
        let start = prng.below(SECTORS as u64 - count + 1);
        let sectors = start..start + count;
        let range = start * SECTOR as u64..(start + count) * SECTOR as u64;
        let durable = prng.chance(400);
        let kind = prng.below(100);
        let mark = if kind < 66 { self.now } else { 0 };
        let request = match kind {
            0..66 => {
                let bytes = sectors.clone().flat_map(|at| sector_of(mark, at));
                IoRequest::Write {
                    offset: range.start,
                    data: Payload::Heap(bytes.collect()),
                    durable,
                }
            }
            66..76 => IoRequest::WriteZeros { range, durable },
            76..85 => IoRequest::Unmap { range },
            85..95 => IoRequest::Flush,
            _ => IoRequest::Read {
                offset: range.start,
                len: usize::try_from(range.end - range.start).unwrap_or(0),
                buffer: None,
            },
        };
        let (tag, now) = (self.now, self.now);
        let durable = durable && kind < 76;
        let asked = match kind {
            0..85 => Asked::Change(self.ledger.begin(sectors.clone(), mark, durable, now)),
            85..95 => Asked::Flush { begun: now },
            _ => Asked::Read,
        };
        self.note(|| format!("core{core} {asked:?} {sectors:?} mark {mark} durable {durable}"));
        self.asked.insert(tag, (core, asked));
        let Some(one) = self.cores.get_mut(core) else {
            return Ok(());
        };
        let submitted = one.store.submit(IoTag(tag), request, &mut one.outlet);
        if one.outlet.take_returned().is_some() {
            return self.breach("one-answer", "a request came back".to_owned());
        }
        if let Submitted::Done(result) = submitted {
            self.answered(tag, &result)?;
        }
        self.settle(core)
    }

    fn answered(&mut self, tag: u64, result: &IoResult) -> Result<(), Breach> {
        let Some((_, asked)) = self.asked.remove(&tag) else {
            return self.breach("one-answer", format!("{tag} is not asked: {result:?}"));
        };
        let is_good = result.is_ok();
        self.note(|| format!("{tag} ends: {:?}", result.as_ref().err()));
        self.report.good += u64::from(is_good);
        if !is_good && !self.is_spoiled {
            return self.breach("every-failure-has-a-reason", format!("{tag}: {result:?}"));
        }
        match asked {
            Asked::Change(number) => {
                self.ledger.end(number, is_good, self.now);
                let mark = self.ledger.mark(number).filter(|_| !is_good);
                let nowhere = mark.filter(|mark| !self.store.has_had(*mark));
                self.given_up.extend(nowhere);
            }
            Asked::Flush { begun } if is_good => self.ledger.flushed(begun),
            Asked::Flush { .. } | Asked::Read => {}
        }
        Ok(())
    }

    fn settle(&mut self, core: usize) -> Result<(), Breach> {
        while let Some(one) = self.cores.get_mut(core)
            && let Some(order) = one.outlet.next_order()
        {
            match order {
                Order::Answer { tag, result } => self.answered(tag.0, &result)?,
                Order::Helper { part, operation } => one.helps.push((part, operation)),
                Order::Timer { number, .. } => one.timers.push(number),
                other @ (Order::Ring { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => {
                    return self.breach("one-answer", format!("nobody asked for {other:?}"));
                }
            }
        }
        Ok(())
    }

    /// A medium carries one request out.
    fn complete(&mut self, is_store: bool) {
        let medium = if is_store { &self.store } else { &self.log }.clone();
        let waiting = medium.waiting();
        if waiting == 0 {
            return;
        }
        let at = self.prng.size(0, waiting - 1);
        let what = medium.describe(at);
        let fails = match is_store {
            true if what == "flush" => self.faults.sync,
            true => self.faults.store,
            false => self.faults.log,
        };
        let fate = match () {
            () if self.prng.chance(fails) => Fate::Failed,
            () if self.prng.chance(self.faults.lost) => Fate::Lost,
            () => Fate::Good,
        };
        self.is_spoiled |= fate == Fate::Failed;
        self.has_lost |= fate == Fate::Lost;
        self.report.unsynced += u64::from(fate == Fate::Failed && is_store && what == "flush");
        let name = if is_store { "store" } else { "log" };
        self.note(|| format!("{name} {what}: {fate:?}"));
        let core = medium.complete(at, fate, self.now, &mut self.prng);
        if let Some(one) = core.and_then(|core| self.cores.get(core)) {
            one.is_woken.store(true, Ordering::SeqCst);
        }
    }

    fn wake(&mut self) -> Result<(), Breach> {
        let core = self.prng.size(0, CORES - 1);
        if let Some(one) = self.cores.get_mut(core)
            && one.is_woken.swap(false, Ordering::SeqCst)
        {
            one.store.handle_wake(&mut one.outlet);
        }
        self.settle(core)
    }

    fn cancel(&mut self) -> Result<(), Breach> {
        let tags: Vec<u64> = self.asked.keys().copied().collect();
        let Some(tag) = self.prng.pick(&tags) else {
            return Ok(());
        };
        let core = self.asked.get(&tag).map_or(0, |(core, _)| *core);
        if !self.prng.chance(self.faults.cancel) {
            return Ok(());
        }
        self.is_spoiled = true;
        self.note(|| format!("core{core} cancels {tag}"));
        if let Some(one) = self.cores.get_mut(core) {
            one.store.cancel(IoTag(tag), &mut one.outlet);
        }
        self.settle(core)
    }

    fn help(&mut self) -> Result<(), Breach> {
        let core = self.prng.size(0, CORES - 1);
        let fails = self.prng.chance(self.faults.note);
        let Some(one) = self.cores.get_mut(core) else {
            return Ok(());
        };
        if let Some((part, operation)) = one.helps.pop() {
            self.notes.saved().fails = fails.then(|| self.prng.chance(500));
            let result = (operation.work)();
            self.report.left += u64::from(result.is_ok());
            one.store
                .handle_helper_result(part, result, &mut one.outlet);
            self.note(|| format!("core{core} has noted that the log is left: fails {fails}"));
        }
        self.settle(core)
    }

    fn fire(&mut self) -> Result<(), Breach> {
        let core = self.prng.size(0, CORES - 1);
        if let Some(one) = self.cores.get_mut(core)
            && let Some(number) = one.timers.pop()
        {
            one.store.handle_timer(number, &mut one.outlet);
        }
        self.settle(core)
    }

    /// Everything goes well until nothing is under way.
    fn run_out(&mut self) -> Result<(), Breach> {
        let faults = std::mem::take(&mut self.faults);
        for _ in 0..200_000 {
            if self.asked.is_empty() || self.has_lost {
                self.faults = faults;
                return Ok(());
            }
            self.now += 1;
            match self.prng.below(5) {
                0 => self.complete(true),
                1 => self.complete(false),
                2 => self.help()?,
                _ => self.wake()?,
            }
        }
        self.breach("it-ends", format!("{:?}", self.asked))
    }
}

/// What would be left if the machine stopped now.
impl World {
    fn draw_end(&mut self) -> Stop {
        if self.prng.chance(300) {
            return Stop::Killed;
        }
        let all = [
            (Kept::Nothing, Kept::Nothing),
            (Kept::Nothing, Kept::Asked),
            (Kept::Nothing, Kept::Sectors),
            (Kept::Done, Kept::Nothing),
            (Kept::Asked, Kept::Blocks),
            (Kept::Sectors, Kept::Sectors),
            (Kept::Sectors, Kept::Blocks),
            (Kept::Blocks, Kept::Done),
        ];
        let drawn = self.prng.pick(&all);
        let (store, log) = drawn.unwrap_or((Kept::Nothing, Kept::Nothing));
        Stop::Power { store, log }
    }

    /// The store and the log after that.
    fn end_with(&mut self, how: Stop) -> (Medium, Medium) {
        let (of_store, of_log, prng) = (&self.store, &self.log, &mut self.prng);
        match how {
            Stop::Killed => (of_store.after_kill(prng), of_log.after_kill(prng)),
            Stop::Power { store, log } => (
                Medium::new(of_store.after_crash(store, prng)),
                Medium::new(of_log.after_crash(log, prng)),
            ),
        }
    }

    /// Whether the next save fails.
    fn draw_failure(&mut self, notes: &Notes) {
        let fails = self.prng.chance(self.faults.note);
        notes.saved().fails = fails.then(|| self.prng.chance(500));
    }

    fn stop_and_start(&mut self) -> Result<(), Breach> {
        let how = self.draw_end();
        let (mut store, mut log) = self.end_with(how);
        let notes = Arc::new(Notes::default());
        *notes.saved() = *self.notes.saved();
        self.report.crashes += 1;
        self.report.kills += u64::from(how == Stop::Killed);
        if self.prng.chance(150) {
            // The process is stopped again in the middle of the start, or the machine.
            store.set_fuel(Some(self.prng.below(12)));
            log.set_fuel(Some(self.prng.below(3)));
            self.draw_failure(&notes);
            drop(self.open(&log, &store, &notes));
            (store, log) = match how {
                Stop::Killed => (
                    store.after_kill(&mut self.prng),
                    log.after_kill(&mut self.prng),
                ),
                Stop::Power { .. } => self.cut(&store, &log),
            };
        }
        self.draw_failure(&notes);
        let (_, done) = self.open(&log, &store, &notes)?;
        self.report.records += done.records;
        self.report.laps = self.report.laps.max(done.end / self.shape.ring_bytes);
        self.judge(&store, how)?;
        if how == Stop::Killed && self.prng.chance(500) {
            // A flush that is asked for now is answered at once: all of it is durable.
            let (store, log) = self.cut(&store, &log);
            self.open(&log, &store, &notes)?;
            self.judge(&store, how)?;
        }
        Ok(())
    }

    /// The power fails while two media are used by nobody.
    fn cut(&mut self, store: &Medium, log: &Medium) -> (Medium, Medium) {
        let store = store.after_crash(Kept::Sectors, &mut self.prng);
        let log = log.after_crash(Kept::Sectors, &mut self.prng);
        (Medium::new(store), Medium::new(log))
    }

    fn judge(&self, found: &Medium, how: Stop) -> Result<(), Breach> {
        let end = End {
            lived: &self.store,
            is_killed: how == Stop::Killed,
            given_up: &self.given_up,
        };
        match self.ledger.judge(found, &end) {
            None => Ok(()),
            Some((rule, detail)) => self.breach(rule, format!("after {how:?}: {detail}")),
        }
    }
}
