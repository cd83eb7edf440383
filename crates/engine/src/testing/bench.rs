//! The test bench: several engines, the letters between them, transports and stores that record
//! what they were asked for and do what the test says. Time is a number that the test moves.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memory::{Buffer, Payload, Pool};
use scsi::{DeviceType, NexusId, Owner, PortName, Principal, Profile, UnitAttention};
use store::{HelperAnswer, IoFailure, IoTag};

use super::cdb::Cdb;
use super::disk::{Disk, capabilities};
use super::outside::{Answer, Came, Outside, TestPort};
use crate::agree::{ToCore, ToOwner};
use crate::{
    Engine, Letter, Management, News, Report, Save, SaveError, Session, SessionKey, Settings,
    StoreWork, TaskKey, UnitIndex, Version, VisibleLun,
};

/// How long an abort waits for the store here.
pub const ABORT: Duration = Duration::from_secs(3);
/// How long a command waits for its fence here.
pub const FENCE: Duration = Duration::from_secs(7);
/// The unit of tests with one.
pub const UNIT: UnitIndex = UnitIndex(0);
/// The smallest difference of time.
pub const MOMENT: Duration = Duration::from_micros(1);
/// In what pieces memory is taken away.
pub const BALLAST_BYTES: usize = 256 * 1024;
/// How much work that no initiator sends or gets a turn begins here, in bytes.
pub const TURN_BYTES: usize = 64 * 1024;
/// Commands of one session under way.
pub const QUEUE_DEPTH: u32 = 32;

/// A session, and where it lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Who {
    pub core: usize,
    pub key: SessionKey,
}

/// A letter on its way.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Way {
    pub from: usize,
    pub to: usize,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Over {
    pub who: Who,
    pub session: Box<Session<TestPort>>,
    pub left: Vec<TaskKey>,
}

/// Everything.
#[derive(Debug)]
pub struct Bench {
    pub cores: Vec<Engine<Outside>>,
    /// The stores, by unit and core.
    disks: Vec<Vec<Disk>>,
    mail: BTreeMap<Way, VecDeque<(UnitIndex, Letter)>>,
    pub now: Duration,
    next_command: u32,
    next_nexus: u32,
    /// What commands bring along is received here.
    chunks: Pool,
    pub over: Vec<Over>,
    /// Other reports than the ends of sessions, by core.
    pub reports: Vec<(usize, Report<TestPort>)>,
    /// Memory that the tests take away.
    ballast: Vec<Buffer>,
    /// States are safe when a core is asked to save them, and the test has nothing to do with that.
    pub saves_at_once: bool,
}

impl Bench {
    /// So many cores with one unit, which core 0 owns.
    pub fn new(cores: usize) -> Self {
        Self::with_units(cores, 1)
    }

    pub fn with_units(cores: usize, units: usize) -> Self {
        Self::with_memory(cores, units, 0)
    }

    /// The same, each core with so much memory for data, in bytes; the least there is with 0.
    pub fn with_memory(cores: usize, units: usize, bytes: usize) -> Self {
        let now = Duration::from_secs(100);
        let engines = (0..cores).map(|core| {
            let settings = Settings {
                core,
                cores,
                queue_depth: QUEUE_DEPTH,
                abort_timeout: ABORT,
                fence_timeout: FENCE,
                turn_bytes: TURN_BYTES,
            };
            let mut engine = Engine::new(settings, Pool::new(bytes).unwrap(), Outside::default());
            engine.begin_turn(now);
            engine
        });
        let mut bench = Self {
            cores: engines.collect(),
            disks: Vec::new(),
            mail: BTreeMap::new(),
            now,
            next_command: 0,
            next_nexus: 1,
            chunks: Pool::new(0).unwrap(),
            over: Vec::new(),
            reports: Vec::new(),
            ballast: Vec::new(),
            saves_at_once: false,
        };
        for _ in 0..units {
            bench.add_unit(|_| {});
        }
        bench
    }

    /// The same, whose states are safe at once.
    pub fn saving(self) -> Self {
        Self {
            saves_at_once: true,
            ..self
        }
    }

    /// One unit, whose store is as `change` makes it.
    pub fn with_store(cores: usize, change: impl Fn(&mut store::Capabilities)) -> Self {
        let mut bench = Self::with_units(cores, 0);
        bench.add_unit(change);
        bench
    }

    /// One unit, whose store is somewhere else and may lose what it has answered.
    pub fn with_far_store(cores: usize) -> Self {
        let mut bench = Self::with_units(cores, 0);
        let capabilities = capabilities();
        let disk = Disk::new(&capabilities);
        let disks = (0..cores).map(|_| disk.other_handle()).collect();
        bench.disks.push(disks);
        bench.lose_cache(0);
        bench.add_stores(&capabilities);
        let losses = Arc::default();
        for core in &mut bench.cores {
            core.share_losses(UNIT, &losses);
        }
        bench
    }

    /// The store has lost what it had answered so many times.
    pub fn lose_cache(&self, lost: u64) {
        for disk in self.disks.iter().flatten() {
            disk.set_lost(lost);
        }
    }

    /// One unit, whose store has another size by now than when it was looked at.
    pub fn with_resized_store(cores: usize, bytes: u64) -> Self {
        let mut bench = Self::with_units(cores, 0);
        let capabilities = capabilities();
        let disk = Disk::new(&capabilities);
        let disks: Vec<Disk> = (0..cores).map(|_| disk.other_handle()).collect();
        disks.iter().for_each(|disk| disk.resize(bytes));
        bench.disks.push(disks);
        bench.add_stores(&capabilities);
        bench
    }

    fn add_unit(&mut self, change: impl Fn(&mut store::Capabilities)) {
        let mut capabilities = capabilities();
        change(&mut capabilities);
        let disk = Disk::new(&capabilities);
        let disks: Vec<Disk> = self.cores.iter().map(|_| disk.other_handle()).collect();
        self.disks.push(disks);
        self.add_stores(&capabilities);
    }

    fn add_stores(&mut self, capabilities: &store::Capabilities) {
        let disks = self.disks.last().expect("the disks of a unit");
        for (core, disk) in self.cores.iter_mut().zip(disks) {
            let owner = Owner::new(profile(capabilities.clone()), None).unwrap();
            core.add_unit(owner, None, disk.store());
        }
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// A session on a core that sees unit 0 as LUN 0.
    pub fn log_in(&mut self, core: usize) -> Who {
        self.log_in_to(core, &[(0, 0)])
    }

    /// A session that sees units by these numbers: LUN, unit.
    pub fn log_in_to(&mut self, core: usize, luns: &[(u16, u32)]) -> Who {
        let visible: Vec<VisibleLun> = luns.iter().map(|&(lun, unit)| visible(lun, unit)).collect();
        self.log_in_seeing(core, &visible, None)
    }

    pub fn log_in_seeing(
        &mut self,
        core: usize,
        luns: &[VisibleLun],
        attention: Option<UnitAttention>,
    ) -> Who {
        let name = port_name(self.next_nexus);
        self.log_in_as(core, name, luns, attention)
    }

    /// A session of an initiator that may have had one before.
    pub fn log_in_as(
        &mut self,
        core: usize,
        name: PortName,
        luns: &[VisibleLun],
        attention: Option<UnitAttention>,
    ) -> Who {
        let pool = self.cores[core].pool().account();
        self.begin_session(core, pool, (name, luns), attention)
    }

    /// A session that has the first unit, and an account with others.
    pub fn log_in_with(&mut self, core: usize, pool: Pool) -> Who {
        let name = port_name(self.next_nexus);
        self.begin_session(core, pool, (name, &[visible(0, 0)]), None)
    }

    fn begin_session(
        &mut self,
        core: usize,
        pool: Pool,
        (name, luns): (PortName, &[VisibleLun]),
        attention: Option<UnitAttention>,
    ) -> Who {
        let number = self.next_nexus;
        self.next_nexus += 1;
        let nexus = (NexusId(number), name);
        let key = self.cores[core].begin_session(TestPort::default(), pool, nexus, luns, attention);
        self.settle();
        Who { core, key }
    }

    /// The transport of a session, also when that has ended.
    pub fn port(&mut self, who: Who) -> &mut TestPort {
        if let Some(at) = self.over.iter().position(|over| over.who == who) {
            return &mut self.over[at].session.port;
        }
        let session = self.cores[who.core].session_mut(who.key);
        &mut session.expect("the session is there").port
    }

    pub fn is_over(&self, who: Who) -> bool {
        self.over.iter().any(|over| over.who == who)
    }

    /// The answers that have come since the last call.
    pub fn answers(&mut self, who: Who) -> Vec<(u32, Answer)> {
        std::mem::take(&mut self.port(who).answers)
    }

    /// The one answer that has come since the last call.
    #[track_caller]
    pub fn answer(&mut self, who: Who) -> Answer {
        let answers = self.answers(who);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers[0].1.clone()
    }

    /// The answers to task management requests since the last call.
    pub fn managed(&mut self, who: Who) -> Vec<(u32, crate::ManagementOutcome)> {
        std::mem::take(&mut self.port(who).managed)
    }

    // ---- commands ----------------------------------------------------------------------------

    /// A command, with all its data where it has any. Letters are delivered.
    pub fn send(&mut self, who: Who, command: Cdb) -> u32 {
        let id = self.send_only(who, command);
        self.settle();
        id
    }

    /// A command; letters wait.
    pub fn send_only(&mut self, who: Who, command: Cdb) -> u32 {
        let id = self.next_command;
        self.next_command += 1;
        let came = match command.came {
            _ if command.out_bytes == 0 => None,
            Came::Later => None,
            Came::Chunk => Some(self.chunk(&command.data)),
            Came::Heap => Some(Payload::Heap(command.data.clone())),
        };
        let now = self.now;
        let port = self.port(who);
        port.arrived = now;
        if let Some(came) = came {
            port.came.insert(id, came);
        }
        self.cores[who.core].handle_command(who.key, id, command);
        self.step(who.core);
        id
    }

    fn chunk(&self, bytes: &[u8]) -> Payload {
        let mut buffer = self.chunks.allocate(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        Payload::Received {
            chunk: Rc::new(buffer),
            offset: 0,
            len: bytes.len(),
        }
    }

    /// The data that a command has waited for.
    pub fn bring_data(&mut self, who: Who, id: u32, bytes: &[u8]) {
        let data = self.chunk(bytes);
        self.cores[who.core].handle_data_out(who.key, id, data);
        self.settle();
    }

    pub fn manage(&mut self, who: Who, id: u32, request: Management<u32>) {
        self.cores[who.core].handle_management(who.key, id, request);
        self.settle();
    }

    /// An ABORT TASK; its answer has the number of the command.
    pub fn abort(&mut self, who: Who, id: u32) {
        self.manage(who, id, Management::AbortTask(Some(id)));
    }

    pub fn end_session(&mut self, who: Who) {
        self.cores[who.core].end_session(who.key);
        self.settle();
    }

    // ---- what leaves the cores ---------------------------------------------------------------

    /// Takes what a core has put down.
    pub fn step(&mut self, core: usize) {
        loop {
            let engine = &mut self.cores[core];
            engine.start_waiting();
            for (to, (unit, letter)) in engine.carrier.posted.drain(..) {
                let way = Way { from: core, to };
                self.mail.entry(way).or_default().push_back((unit, letter));
            }
            match engine.poll_report() {
                Some(Report::SessionOver { key, session, left }) => {
                    let who = Who { core, key };
                    self.over.push(Over { who, session, left });
                }
                Some(report) => self.reports.push((core, report)),
                None if self.saves_at_once && self.save_next(core) => {}
                None => break,
            }
        }
        let engine = &mut self.cores[core];
        while engine.poll_eventful().is_some() {}
        while engine.poll_ready().is_some() {}
        assert!(!engine.has_more(), "something is left after a turn");
    }

    /// Between which cores letters are on their way.
    pub fn ways(&self) -> Vec<Way> {
        let full = self.mail.iter().filter(|(_, queue)| !queue.is_empty());
        full.map(|(way, _)| *way).collect()
    }

    /// The letters on their way from one core to another, in words.
    pub fn letters(&self, from: usize, to: usize) -> Vec<String> {
        let queue = self.mail.get(&Way { from, to });
        let letters = queue.into_iter().flatten();
        letters.map(|(_, letter)| name_of(letter)).collect()
    }

    /// Delivers the first letter from one core to another.
    pub fn deliver(&mut self, way: Way) {
        let queue = self.mail.get_mut(&way).expect("letters go this way");
        let (unit, letter) = queue.pop_front().expect("a letter");
        self.cores[way.to].handle_letter(unit, letter);
        self.step(way.to);
    }

    /// Delivers all letters, and what these lead to.
    pub fn deliver_all(&mut self) {
        while let Some(&way) = self.ways().first() {
            self.deliver(way);
        }
    }

    /// Turns end: letters, and memory for those who wait.
    pub fn settle(&mut self) {
        loop {
            for core in 0..self.cores.len() {
                self.step(core);
            }
            self.deliver_all();
            for core in 0..self.cores.len() {
                self.cores[core].handle_memory();
                self.step(core);
            }
            let has_pieces = |core: &usize| self.cores[*core].has_pieces();
            if let Some(core) = (0..self.cores.len()).find(has_pieces) {
                self.turn(core);
            } else if self.ways().is_empty() {
                break;
            }
        }
    }

    /// A core has its next turn, at the same time; letters wait.
    pub fn turn(&mut self, core: usize) {
        self.cores[core].begin_turn(self.now);
        self.step(core);
        self.cores[core].handle_memory();
        self.step(core);
    }

    // ---- time --------------------------------------------------------------------------------

    /// Time passes; what is due happens.
    pub fn pass(&mut self, time: Duration) {
        self.pass_only(time);
        self.settle();
    }

    /// The same; letters wait.
    pub fn pass_only(&mut self, time: Duration) {
        self.now += time;
        for core in 0..self.cores.len() {
            let engine = &mut self.cores[core];
            engine.begin_turn(self.now);
            if engine.poll_timeout().is_some_and(|due| due <= self.now) {
                engine.handle_timeout(self.now);
            }
            let due = engine.poll_timeout();
            assert!(due.is_none_or(|due| due > self.now), "a deadline stays due");
            self.step(core);
        }
    }

    // ---- stores ------------------------------------------------------------------------------

    pub fn disk(&self, core: usize) -> &Disk {
        &self.disks[0][core]
    }

    pub fn disk_of(&self, unit: usize, core: usize) -> &Disk {
        &self.disks[unit][core]
    }

    /// What is under way for the stores of a core: operations by number, oldest first.
    pub fn under_way(&self, core: usize) -> Vec<usize> {
        let begun = self.cores[core].carrier.begun.iter().enumerate();
        let open = begun.filter(|(_, one)| one.work.is_some());
        open.map(|(number, _)| number).collect()
    }

    pub fn cancelled(&self, core: usize) -> Vec<usize> {
        self.cores[core].carrier.cancelled.clone()
    }

    /// An operation ends as it should; letters wait.
    pub fn finish_only(&mut self, core: usize, number: usize) {
        self.end_operation(core, number, None);
    }

    pub fn finish(&mut self, core: usize, number: usize) {
        self.finish_only(core, number);
        self.settle();
    }

    /// An operation ends with this result of the kernel.
    pub fn finish_with(&mut self, core: usize, number: usize, result: i32) {
        self.end_operation(core, number, Some(result));
        self.settle();
    }

    /// The same; letters wait.
    pub fn finish_with_only(&mut self, core: usize, number: usize, result: i32) {
        self.end_operation(core, number, Some(result));
    }

    fn end_operation(&mut self, core: usize, number: usize, result: Option<i32>) {
        let engine = &mut self.cores[core];
        let begun = &mut engine.carrier.begun[number];
        let work = begun.work.take().expect("the operation is under way");
        let part = begun.part;
        match work {
            StoreWork::Ring(operation) => {
                let result = result.unwrap_or_else(|| super::disk::whole(&operation));
                engine.handle_ring_result(part, operation, result);
            }
            StoreWork::Helper(operation) => {
                let answer = match result {
                    None => (operation.work)(),
                    Some(errno) => Err(IoFailure::Hardware { errno }),
                };
                assert!(matches!(answer, Ok(HelperAnswer::Done) | Err(_)));
                engine.handle_helper_result(part, answer);
            }
            StoreWork::Socket { work, .. } => panic!("{work:?} is for the test to end"),
        }
        self.step(core);
    }

    /// Everything under way for the stores of a core ends as it should.
    pub fn finish_all(&mut self, core: usize) {
        while let Some(&number) = self.under_way(core).first() {
            self.finish(core, number);
        }
    }

    /// A request that a store has kept to itself ends.
    pub fn finish_pending(&mut self, core: usize) -> IoTag {
        let tag = self.disk(core).finish_pending();
        self.wake(core);
        tag
    }

    /// A store answers what it has kept for that.
    pub fn wake(&mut self, core: usize) {
        self.cores[core].handle_store_wake(UNIT);
        self.step(core);
        self.settle();
    }

    /// States that wait to be made safe: core, unit.
    pub fn to_keep(&self) -> Vec<(usize, UnitIndex)> {
        let cores = self.cores.iter().enumerate();
        let all = cores.flat_map(|(core, engine)| {
            let kept = engine.carrier.to_keep.iter();
            kept.map(move |(unit, _)| (core, *unit))
        });
        all.collect()
    }

    /// The oldest state is safe, or could not be made so.
    pub fn keep(&mut self, is_safe: bool) {
        self.keep_only(is_safe);
        self.settle();
    }

    fn save_next(&mut self, core: usize) -> bool {
        let engine = &mut self.cores[core];
        let Some((unit, save)) = engine.carrier.to_keep.pop() else {
            return false;
        };
        engine.handle_saved(unit, &Ok(next_version(&save)));
        true
    }

    /// The same; letters wait.
    pub fn keep_only(&mut self, is_safe: bool) {
        let save = |save: &Save| {
            let version = next_version(save);
            let failed = || SaveError::Failed(io::Error::other("full"));
            is_safe.then_some(version).ok_or_else(failed)
        };
        self.end_save(save);
    }

    /// Somebody else has saved before the oldest state; letters wait.
    pub fn save_too_late(&mut self) {
        let found = Version(u64::MAX);
        let advice = "somebody else has saved".to_owned();
        self.end_save(|_| Err(SaveError::Conflict { found, advice }));
    }

    fn end_save(&mut self, outcome: impl FnOnce(&Save) -> Result<Version, SaveError>) {
        let (core, unit) = self.to_keep()[0];
        let (_, save) = self.cores[core].carrier.to_keep.remove(0);
        self.cores[core].handle_saved(unit, &outcome(&save));
        self.step(core);
    }

    /// The news of a core since the last call.
    pub fn news(&mut self, core: usize) -> Vec<News> {
        std::mem::take(&mut self.cores[core].carrier.hooks.news)
    }

    /// Which cores refuse access to blocks of unit 0.
    pub fn refusing(&self) -> Vec<usize> {
        let refuses = |core: &usize| !self.cores[*core].refused_blocks(UNIT).is_empty();
        (0..self.cores.len()).filter(refuses).collect()
    }

    // ---- memory ------------------------------------------------------------------------------

    /// Takes memory of a core away until so much is left.
    pub fn leave_memory(&mut self, core: usize, bytes: usize) {
        let pool = self.cores[core].pool().clone();
        while pool.free_bytes() > bytes {
            let most = (pool.free_bytes() - bytes).min(BALLAST_BYTES);
            let piece = 1 << most.ilog2();
            self.ballast.push(pool.allocate(piece).unwrap());
        }
        assert_eq!(pool.free_bytes(), bytes);
    }

    /// Gives so much of it back.
    pub fn free_memory(&mut self, bytes: usize) {
        assert_eq!(bytes % BALLAST_BYTES, 0);
        let left = self.ballast.len() - bytes / BALLAST_BYTES;
        self.ballast.truncate(left);
        self.settle();
    }

    /// Gives all of it back.
    pub fn give_memory_back(&mut self) {
        self.ballast.clear();
        self.settle();
    }

    // ---- the end -----------------------------------------------------------------------------

    /// All that stores and keepers have begun ends as it should, and every deadline comes.
    pub fn finish_everything(&mut self) {
        for _ in 0..3 {
            for core in 0..self.cores.len() {
                self.finish_all(core);
                while self.disks.iter().any(|disks| disks[core].has_pending()) {
                    self.finish_pending(core);
                }
            }
            while !self.to_keep().is_empty() {
                self.keep(true);
            }
        }
        // Deadlines of changes that are over stay until their time comes.
        self.pass(Duration::from_secs(60));
    }

    /// How many requests a session that is over has left in stores.
    pub fn left_by(&self, who: Who) -> usize {
        let over = self.over.iter().filter(|over| over.who == who);
        over.map(|over| over.left.len()).sum()
    }

    /// All sessions end, and nothing is left: no task, wait, question, fence, timer, buffer.
    #[track_caller]
    pub fn end(mut self) {
        self.ballast.clear();
        for core in 0..self.cores.len() {
            let keys: Vec<SessionKey> = self.cores[core].sessions().map(|(key, _)| key).collect();
            for key in keys {
                self.end_session(Who { core, key });
            }
        }
        self.finish_everything();
        self.over.clear();
        self.reports.clear();
        for engine in &mut self.cores {
            assert_eq!(engine.leftovers(), [""; 0], "core {}", engine.core());
            assert_eq!(engine.poll_timeout(), None, "core {}", engine.core());
            let pool = engine.pool();
            assert_eq!(pool.free_bytes(), pool.capacity_bytes(), "memory is lost");
            for unit in 0..self.disks.len() {
                let unit = UnitIndex(u32::try_from(unit).unwrap());
                assert!(engine.is_unit_idle(unit));
                assert_eq!(engine.refused_blocks(unit), []);
                assert!(engine.owner(unit).is_none_or(|owner| owner.allows_access()));
            }
        }
    }
}

/// Plays a story once for every order in which its letters can be delivered. The story asks `choose`
/// for one of so many whenever it has a choice.
pub fn in_every_order(story: impl Fn(&mut dyn FnMut(usize) -> usize)) -> usize {
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    let mut count = 0;
    loop {
        let mut at = 0;
        story(&mut |options| {
            if at == chosen.len() {
                chosen.push((0, options));
            }
            let (choice, known) = chosen[at];
            assert_eq!(known, options, "a story must be the same each time");
            at += 1;
            choice
        });
        count += 1;
        while let Some((choice, options)) = chosen.pop() {
            if choice + 1 < options {
                chosen.push((choice + 1, options));
                break;
            }
        }
        if chosen.is_empty() {
            return count;
        }
    }
}

pub const fn visible(lun: u16, unit: u32) -> VisibleLun {
    VisibleLun {
        lun,
        unit: UnitIndex(unit),
        read_only: false,
    }
}

/// The version that a save makes.
fn next_version(save: &Save) -> Version {
    Version(save.replaces.map_or(0, |replaced| replaced.0) + 1)
}

pub fn port_name(number: u32) -> PortName {
    let mut transport_id = [0; 24];
    transport_id[0] = 0x45;
    let name = format!("i{number:06},i,0x{number:06}");
    transport_id[4..4 + name.len()].copy_from_slice(name.as_bytes());
    PortName {
        transport_id: transport_id.into(),
        target_port: 1,
        principal: Principal::Nobody,
    }
}

pub fn profile(capabilities: store::Capabilities) -> Profile {
    Profile {
        device_type: DeviceType::Disk,
        identity: scsi::Identity {
            vendor: "TARN".to_owned(),
            product: "TEST".to_owned(),
            revision: "1".to_owned(),
            serial: "test".to_owned(),
            naa: vec![0x30, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            target_ports: vec![scsi::TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: "iqn.2026-11.example.tarn:test,t,0x0001".to_owned(),
                device_name: "iqn.2026-11.example.tarn:test".to_owned(),
                protocol_identifier: 5,
                protocol_version: 0x0960,
            }],
            task_management: [0xf8, 0],
            removable: true,
        },
        limits: scsi::Limits::default(),
        capabilities,
        keeps_state: true,
    }
}

fn name_of(letter: &Letter) -> String {
    let name = match letter {
        Letter::ToOwner(message) => match message {
            ToOwner::Change { .. } => "Change",
            ToOwner::Installed { is_complete: true } => "Installed",
            ToOwner::Installed { is_complete: false } => "Installed, incomplete",
            ToOwner::RefuseAccess {
                ticket: Some(_), ..
            } => "RefuseAccess",
            ToOwner::RefuseAccess { ticket: None, .. } => "RefuseLess",
            ToOwner::RefusalConfirmed { .. } => "RefusalConfirmed",
            ToOwner::FenceWanted { .. } => "FenceWanted",
            ToOwner::FenceRaised { .. } => "FenceRaised",
            ToOwner::FenceDone { .. } => "FenceDone",
        },
        Letter::ToCore(message) => match message {
            ToCore::Changed { .. } => "Changed",
            ToCore::Install { .. } => "Install",
            ToCore::SetAccessRefused { blocks, .. } if blocks.is_empty() => "Allow",
            ToCore::SetAccessRefused { .. } => "Refuse",
            ToCore::AccessRefused { .. } => "AccessRefused",
            ToCore::FenceRaise { .. } => "FenceRaise",
            ToCore::FenceGranted { .. } => "FenceGranted",
            ToCore::FenceLower { .. } => "FenceLower",
        },
    };
    name.to_owned()
}
