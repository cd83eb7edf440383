//! Cores, a store and a log device, which crash again and again: what was answered as durable is there.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memory::{Payload, Pool};

use super::disk::{Chance, Disk, End, SECTOR};
use crate::journal::books::Bias;
use crate::journal::format::{BLOCK_BYTES, RING_OFFSET};
use crate::journal::replay::{Medium, Misfit, Replayed, read_head};
use crate::journal::start::{Known, LogOptions, Shape};
use crate::journal::{Binding, Journal, Limits, Noted, Use};
use crate::{
    Backstore, HelperOperation, IoAnswer, IoRequest, IoResult, IoTag, Order, Outlet, PartTag,
    Submitted, Waker,
};

const CORES: usize = 3;

/// Few, so that requests meet.
const SECTORS: usize = 96;
const RECORD_BYTES: usize = 4 * BLOCK_BYTES;
const RING_BYTES: u64 = 8 * RECORD_BYTES as u64;
const UNIT: [u8; 16] = *b"unit of the test";

/// What is kept outside of the log.
#[derive(Debug, Default)]
struct Notes(Mutex<Option<Known>>);

impl Noted for Notes {
    fn note(&self, log: Binding, how: Use) -> std::io::Result<()> {
        *self.0.lock().unwrap() = Some(Known { log, how });
        Ok(())
    }
}

/// A request for sectors.
#[derive(Clone, Copy, Debug)]
struct Change {
    start: u64,
    count: u64,
    /// What each sector holds, besides its number; 0 for zeros.
    mark: u64,
    begun: u64,
    /// When it was answered as good.
    ended: Option<u64>,
    durable: bool,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Change(usize),
    Flush { begun: u64 },
    Read { start: u64, count: u64 },
}

struct Core {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    is_woken: Arc<AtomicBool>,
    helps: Vec<(PartTag, HelperOperation)>,
    timers: Vec<u64>,
}

struct World {
    chance: Chance,
    pool: Pool,
    disk: Disk,
    log: Disk,
    notes: Arc<Notes>,
    bias: Bias,
    /// How often in a thousand times an operation fails: of the log, of the store.
    faults: (usize, usize),
    cores: Vec<Core>,
    journal: Option<Journal>,
    /// What is recorded of the medium of the store.
    medium: u64,
    asked: HashMap<u64, (usize, Asked)>,
    changes: Vec<Change>,
    /// What each sector became before the crash, in order.
    past: HashMap<u64, Vec<[u8; SECTOR]>>,
    /// What was ever kept outside of the log, and how often an administrator had to decide because of a backup of that.
    backups: Vec<Known>,
    decided: u64,
    new_id: u8,
    /// Changes that ended as failed before the store had anything of them, by their marks.
    nowhere: HashSet<u64>,
    now: u64,
    records: u64,
    laps: u64,
}

fn sector(mark: u64, at: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if mark > 0 {
        bytes[..8].copy_from_slice(&mark.to_le_bytes());
        bytes[8..16].copy_from_slice(&at.to_le_bytes());
        bytes[SECTOR - 8..].copy_from_slice(&mark.to_le_bytes());
    }
    bytes
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let bias = if chance.hits(500) {
            Bias::Latency
        } else {
            Bias::Throughput
        };
        let is_faulty = chance.hits(300);
        Self {
            faults: if is_faulty {
                (chance.below(30), chance.below(10))
            } else {
                (0, 0)
            },
            chance,
            pool: Pool::new(64 << 20).unwrap(),
            disk: Disk::new((SECTORS * SECTOR) as u64),
            log: Disk::new(RING_OFFSET + RING_BYTES),
            notes: Arc::default(),
            bias,
            cores: Vec::new(),
            journal: None,
            medium: 0,
            asked: HashMap::new(),
            changes: Vec::new(),
            past: HashMap::new(),
            backups: Vec::new(),
            decided: 0,
            new_id: 0,
            nowhere: HashSet::new(),
            now: 0,
            records: 0,
            laps: 0,
        }
    }

    /// Opens the log as a start does, now and then with what is kept outside of it put back from a backup.
    fn start(&mut self) {
        let known = *self.notes.0.lock().unwrap();
        let last = known.map(|it| it.log);
        let older = |one: &&Known| {
            last.is_some_and(|it| it.id != one.log.id || it.generation > one.log.generation)
        };
        let older: Vec<Known> = self.backups.iter().filter(older).copied().collect();
        let put_back = match self.chance.hits(300) && !older.is_empty() {
            true => Some(older[self.chance.below(older.len())]),
            false => known,
        };
        let (journal, done) = self.open(put_back).unwrap_or_else(|misfit| {
            assert_ne!(put_back, known, "{misfit}");
            let is_unknown = matches!(misfit, Misfit::Newer { .. } | Misfit::OtherLog);
            assert!(is_unknown, "{misfit}");
            self.decided += 1;
            // The administrator knows whether the log had failed.
            let head = read_head(&self.log, RING_OFFSET + RING_BYTES).unwrap();
            let head = head.expect("a log");
            let log = Binding {
                id: head.id,
                generation: head.generation,
            };
            let is_left = known.is_some_and(|it| it.how == Use::Left);
            let how = if is_left {
                Use::Discarded
            } else {
                Use::Serving
            };
            self.open(Some(Known { log, how })).unwrap()
        });
        self.backups.extend(*self.notes.0.lock().unwrap());
        self.records += done.records;
        self.laps = self.laps.max(done.end / RING_BYTES);
        self.cores = (0..CORES).map(|core| self.core(&journal, core)).collect();
        self.journal = Some(journal);
    }

    fn open(&mut self, known: Option<Known>) -> Result<(Journal, Replayed), Misfit> {
        self.new_id += 1;
        let options = LogOptions {
            unit: UNIT,
            known,
            new_id: [self.new_id; 16],
            bias: self.bias,
            medium: self.medium.to_le_bytes().to_vec(),
            noted: Arc::clone(&self.notes) as Arc<dyn Noted>,
        };
        let log_bytes = RING_OFFSET + RING_BYTES;
        let size = (SECTORS * SECTOR) as u64;
        let shape = Shape {
            ring_bytes: RING_BYTES,
            record_bytes: RECORD_BYTES,
            limits: Limits::default(),
        };
        Journal::start(&self.log, log_bytes, &self.disk, size, &options, shape)
    }

    /// Ends in order, as far as it can.
    fn close(&mut self) {
        self.run_out();
        let journal = self.journal.as_ref().expect("it is started");
        let header = journal.0.books().last_header();
        if let Some(header) = header {
            self.disk.sync().unwrap();
            self.log.write(header.place(), &header.encode()).unwrap();
            self.log.sync().unwrap();
            let (id, generation) = (header.id, header.generation);
            let log = Binding { id, generation };
            self.notes.note(log, Use::Closed).unwrap();
            self.backups.extend(*self.notes.0.lock().unwrap());
        }
    }

    fn core(&self, journal: &Journal, core: usize) -> Core {
        let mut store = journal.handle(self.disk.handle(core), self.log.handle(core));
        let mut outlet = Outlet::default();
        let is_woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_woken);
        store.start(
            &|| {
                let flag = Arc::clone(&flag);
                Waker::new(move || flag.store(true, Ordering::SeqCst))
            },
            &mut outlet,
        );
        Core {
            store,
            outlet,
            is_woken,
            helps: Vec::new(),
            timers: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now += 1;
        match self.chance.below(100) {
            0..20 if self.asked.len() < 24 => self.submit(),
            0..50 => self.complete_store(),
            50..75 => self.complete_log(),
            75..90 => self.wake(),
            90..92 => self.cancel(),
            92..96 => self.help(),
            _ => self.fire(),
        }
    }

    fn submit(&mut self) {
        let core = self.chance.below(CORES);
        let tag = self.now;
        let is_large = self.chance.hits(100);
        let count = 1 + self.chance.below(if is_large { SECTORS - 1 } else { 6 });
        let start = self.chance.below(SECTORS - count + 1) as u64;
        let range = start * SECTOR as u64..(start + count as u64) * SECTOR as u64;
        let durable = self.chance.hits(400);
        let kind = self.chance.below(100);
        let mark = if kind < 70 { self.now } else { 0 };
        let change = Change {
            start,
            count: count as u64,
            mark,
            begun: self.now,
            ended: None,
            durable: durable && kind < 78,
        };
        let request = match kind {
            0..70 => {
                let sectors = (start..start + count as u64).flat_map(|at| sector(mark, at));
                let bytes: Vec<u8> = sectors.collect();
                let mut buffer = self.pool.allocate(bytes.len()).unwrap();
                buffer.copy_from_slice(&bytes);
                IoRequest::Write {
                    offset: range.start,
                    data: Payload::Pool(buffer),
                    durable,
                }
            }
            70..78 => IoRequest::WriteZeros { range, durable },
            78..84 => IoRequest::Unmap { range },
            84..92 => IoRequest::Flush,
            _ => {
                let len = count * SECTOR;
                let buffer = Some(self.pool.allocate(len).unwrap());
                IoRequest::Read {
                    offset: range.start,
                    len,
                    buffer,
                }
            }
        };
        let asked = match request {
            IoRequest::Flush => Asked::Flush { begun: self.now },
            IoRequest::Read { .. } => Asked::Read {
                start,
                count: count as u64,
            },
            IoRequest::Write { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::Unmap { .. }
            | IoRequest::CompareAndWrite { .. }
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => {
                self.changes.push(change);
                Asked::Change(self.changes.len() - 1)
            }
        };
        self.asked.insert(tag, (core, asked));
        let one = &mut self.cores[core];
        let submitted = one.store.submit(IoTag(tag), request, &mut one.outlet);
        assert!(one.outlet.take_returned().is_none(), "it holds what waits");
        if let Submitted::Done(result) = submitted {
            self.answered(tag, result);
        }
        self.settle(core);
    }

    fn answered(&mut self, tag: u64, result: IoResult) {
        let (_, asked) = self.asked.remove(&tag).expect("one answer");
        match (asked, result) {
            (Asked::Change(at), Ok(_)) => self.changes[at].ended = Some(self.now),
            (Asked::Flush { begun }, Ok(_)) => {
                let before = |it: &&mut Change| it.ended.is_some_and(|ended| ended < begun);
                self.changes
                    .iter_mut()
                    .filter(before)
                    .for_each(|it| it.durable = true);
            }
            (Asked::Read { start, count }, Ok(IoAnswer::Data(data))) => {
                assert_eq!(data.len() as u64, count * SECTOR as u64, "at {start}");
            }
            (Asked::Read { .. }, Ok(other)) => panic!("{other:?}"),
            (Asked::Change(at), Err(_)) => {
                let change = &self.changes[at];
                if change.mark > 0 && !self.disk.has_had(change.mark) {
                    self.nowhere.insert(change.mark);
                }
            }
            (Asked::Flush { .. } | Asked::Read { .. }, Err(_)) => {}
        }
    }

    fn settle(&mut self, core: usize) {
        while let Some(order) = self.cores[core].outlet.next_order() {
            match order {
                Order::Answer { tag, result } => self.answered(tag.0, result),
                Order::Helper { part, operation } => self.cores[core].helps.push((part, operation)),
                Order::Timer { number, .. } => self.cores[core].timers.push(number),
                other @ (Order::Ring { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => panic!("{other:?}"),
            }
        }
    }

    fn complete_store(&mut self) {
        let waiting = self.disk.waiting();
        if waiting > 0 {
            let at = self.chance.below(waiting);
            let fails = self.chance.hits(self.faults.1);
            let core = self.disk.complete(at, fails);
            self.cores[core].is_woken.store(true, Ordering::SeqCst);
        }
    }

    fn complete_log(&mut self) {
        let waiting = self.log.waiting();
        if waiting > 0 {
            let at = self.chance.below(waiting);
            let fails = self.chance.hits(self.faults.0);
            let core = self.log.complete(at, fails);
            self.cores[core].is_woken.store(true, Ordering::SeqCst);
        }
    }

    fn wake(&mut self) {
        let core = self.chance.below(CORES);
        let one = &mut self.cores[core];
        if one.is_woken.swap(false, Ordering::SeqCst) {
            one.store.handle_wake(&mut one.outlet);
            self.settle(core);
        }
    }

    fn cancel(&mut self) {
        let mut tags: Vec<u64> = self.asked.keys().copied().collect();
        tags.sort_unstable();
        if tags.is_empty() {
            return;
        }
        let tag = tags[self.chance.below(tags.len())];
        let core = self.asked[&tag].0;
        let one = &mut self.cores[core];
        one.store.cancel(IoTag(tag), &mut one.outlet);
        self.settle(core);
    }

    fn help(&mut self) {
        let core = self.chance.below(CORES);
        let one = &mut self.cores[core];
        if let Some((part, operation)) = one.helps.pop() {
            let result = (operation.work)();
            one.store
                .handle_helper_result(part, result, &mut one.outlet);
            self.settle(core);
        }
    }

    fn fire(&mut self) {
        let core = self.chance.below(CORES);
        let one = &mut self.cores[core];
        if let Some(number) = one.timers.pop() {
            one.store.handle_timer(number, &mut one.outlet);
            self.settle(core);
        }
    }

    /// Everything goes well until nothing is under way.
    fn run_out(&mut self) {
        self.faults = (0, 0);
        for _ in 0..200_000 {
            if self.asked.is_empty() {
                return;
            }
            self.now += 1;
            match self.chance.below(5) {
                0 => self.complete_store(),
                1 => self.complete_log(),
                2 => self.help(),
                _ => self.wake(),
            }
        }
        panic!("it does not come to an end: {:?}", self.asked);
    }

    fn crash(&mut self) {
        self.asked.clear();
        self.cores.clear();
        self.journal = None;
        self.past = self.disk.state.borrow().past.clone();
        // Where only the process ends, nothing that was answered may be missing. So it is, too, where the unit is
        // removed and added again.
        let is_killed = self.chance.hits(300);
        if is_killed {
            let answered = self.changes.iter_mut().filter(|it| it.ended.is_some());
            answered.for_each(|it| it.durable = true);
        }
        let end = if is_killed { End::Process } else { End::Power };
        self.disk.crash(&mut self.chance, end);
        self.log.crash(&mut self.chance, end);
    }

    /// Each sector holds what the last durable change made of it, or a later one, in the order of the store.
    fn check(&mut self, seed: u64) {
        for at in 0..SECTORS as u64 {
            self.check_sector(seed, at);
        }
        // From here on the store has what was found.
        self.changes.clear();
        let all: Vec<[u8; SECTOR]> = (0..SECTORS as u64).map(|at| self.disk.sector(at)).collect();
        let past = (0..)
            .zip(all)
            .map(|(at, bytes)| (at, vec![bytes]))
            .collect();
        self.disk.state.borrow_mut().past = past;
    }

    fn check_sector(&self, seed: u64, at: u64) {
        let found = self.disk.sector(at);
        let mark = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert_eq!(found, sector(mark, at), "seed {seed}: sector {at} is torn");
        let is_nowhere = self.nowhere.contains(&mark);
        assert!(
            !is_nowhere,
            "seed {seed}: sector {at} has {mark}, which was given up"
        );
        let touches = |it: &&Change| (it.start..it.start + it.count).contains(&at);
        let changes: Vec<&Change> = self.changes.iter().filter(touches).collect();
        let past = self.past.get(&at).cloned().unwrap_or_default();
        let last_of = |mark: u64| past.iter().rposition(|it| *it == sector(mark, at));
        let durable = changes.iter().filter(|it| it.durable && it.ended.is_some());
        // A sector of zeros may be any change to zeros.
        let bound = durable
            .clone()
            .filter(|it| it.mark > 0)
            .filter_map(|it| last_of(it.mark))
            .max();
        let bound = bound.unwrap_or(0);
        let is_under_way = changes
            .iter()
            .any(|it| it.mark == mark && it.ended.is_none());
        let is_later =
            past.is_empty() || is_under_way || last_of(mark).is_some_and(|last| last >= bound);
        assert!(
            is_later,
            "seed {seed}: sector {at} has {mark}, and lost what was durable"
        );
        for zero in durable.filter(|it| it.mark == 0 && mark > 0) {
            let own = changes.iter().find(|it| it.mark == mark);
            let is_before = own.is_none_or(|it| it.ended.is_some_and(|ended| ended < zero.begun));
            assert!(
                !is_before,
                "seed {seed}: sector {at} has {mark}, which was cleared durably"
            );
        }
    }

    fn run(mut self, seed: u64) -> (u64, u64, u64) {
        for _ in 0..4 {
            self.start();
            self.check(seed);
            for _ in 0..self.chance.below(1500) {
                self.step();
            }
            match self.chance.below(10) {
                0 | 1 => self.run_out(),
                2 | 3 => self.close(),
                _ => {}
            }
            self.crash();
            let head = read_head(&self.log, RING_OFFSET + RING_BYTES).unwrap();
            let medium = head.expect("a log").medium;
            assert_eq!(medium, self.medium.to_le_bytes(), "seed {seed}");
        }
        self.start();
        self.check(seed);
        (self.records, self.laps, self.decided)
    }
}

#[test]
fn nothing_that_was_answered_as_durable_is_lost_in_a_crash() {
    let (mut records, mut laps, mut decided) = (0, 0, 0);
    for seed in 1..=1000 {
        let (more, most, unknown) = World::new(seed).run(seed);
        records += more;
        decided += unknown;
        laps = laps.max(most);
    }
    assert!(records > 1000, "{records} records were replayed");
    assert!(laps > 1, "the ring was not wrapped");
    assert!(decided > 100, "{decided} logs had to be decided about");
}
