//! A client and a target with a disk, and what must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::prng::Prng;
use super::wire::{Faults, To, Wire};
use crate::client::{ClientEvent, ClientSession};
use crate::command::{Attribute, Command, Function, Outcome, Reply};
use crate::device::{Device, Opening};
use crate::keys::Keys;
use crate::link::{EndReason, Retransmit, Settings, Terms};
use crate::pdu::Level;
use crate::target::{TargetEvent, TargetSession, TaskId};
use crate::testing::terms;

const MS: Duration = Duration::from_millis(1);
const BLOCKS: u64 = 256;
const BLOCK_BYTES: usize = 512;
/// After the wire has healed, everything ends within this.
const PATIENCE: Duration = Duration::from_secs(20);
const DEVICE: u16 = 3;

/// What a seed means.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seed: u64,
    faults: Faults,
    level: Level,
    settings: Settings,
    slots: u16,
    pub(crate) operations: u64,
    restarts_at: Option<Duration>,
    aborts: u64,
    window_changes: u64,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let level = Level::ALL[usize::try_from(prng.below(4)).unwrap()];
        let is_bare = level == Level::None;
        let heals_at = MS * 1500;
        let rate = |prng: &mut Prng| [0, 5, 20, 100][usize::try_from(prng.below(4)).unwrap()];
        let sizes = [1500, 4096, 9000];
        let size = |prng: &mut Prng| sizes[usize::try_from(prng.below(3)).unwrap()];
        let hole = MS * u32::try_from(prng.below(1000)).unwrap();
        let faults = Faults {
            loss: rate(&mut prng) * 2,
            duplicate: rate(&mut prng),
            // Level `none` promises nothing against these.
            delay: if is_bare { 0 } else { rate(&mut prng) },
            flip: if is_bare { 0 } else { rate(&mut prng) },
            replay: if is_bare { 0 } else { rate(&mut prng) },
            frame_bytes_max: (size(&mut prng), size(&mut prng)),
            blackhole: prng.happens(300).then(|| (hole, hole + MS * 300)),
            heals_at,
            narrows_at: MS * 400,
        };
        let settings = Settings {
            retransmit: if prng.happens(500) {
                Retransmit::Selective
            } else {
                Retransmit::Window
            },
            window: [8, 64, 256][usize::try_from(prng.below(3)).unwrap()],
            profile: if prng.happens(800) {
                crate::Profile::WIRED
            } else {
                crate::Profile::WIRELESS
            },
            ..Settings::default()
        };
        Self {
            seed,
            faults,
            level,
            settings,
            slots: [2, 5, 32][usize::try_from(prng.below(3)).unwrap()],
            operations: 60,
            restarts_at: (prng.happens(200) && !is_bare).then_some(MS * 500),
            aborts: if prng.happens(300) { 100 } else { 0 },
            window_changes: if prng.happens(300) { 50 } else { 0 },
        }
    }

    pub(crate) fn good(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        plan.faults = Faults {
            frame_bytes_max: (9000, 9000),
            ..Faults::default()
        };
        plan.settings.window = 256;
        plan.restarts_at = None;
        plan
    }
}

/// What the client knows of a command.
#[derive(Clone, Debug)]
struct Operation {
    is_write: bool,
    block: u64,
    count: u64,
}

/// A command at the target: its name there and here, and its data.
type Work = (TaskId, u64, Command, Vec<u8>);

/// See above.
#[derive(Debug)]
pub(crate) struct World {
    plan: Plan,
    prng: Prng,
    wire: Wire,
    pub(crate) now: Duration,
    pub(crate) client: ClientSession<Vec<u8>>,
    pub(crate) target: TargetSession<Vec<u8>>,
    generation: u64,
    is_open: bool,
    /// The token of the write that each block holds.
    disk: Vec<u64>,
    /// The tokens that each block may hold: one, or two where a write was lost.
    known: Vec<BTreeSet<u64>>,
    /// Blocks that a command under way reads or writes.
    locked: BTreeSet<u64>,
    operations: BTreeMap<u64, Operation>,
    functions: BTreeSet<u64>,
    next_token: u64,
    begun: u64,
    /// What the target is at: when it is done.
    work: BTreeMap<(Duration, u64), Work>,
    works: u64,
    executed: BTreeSet<u64>,
    pub(crate) drop_last_of_next_write: bool,
    /// When a command may begin though nothing else happens.
    tick: Duration,
    failure: Option<String>,
    buffer: Vec<u8>,
}

/// What a block holds after a write.
fn content(token: u64, block: u64) -> Vec<u8> {
    let mut prng = Prng::new(token << 16 | block);
    let word = prng.next().to_be_bytes();
    word.iter().copied().cycle().take(BLOCK_BYTES).collect()
}

fn table(level: Level) -> Vec<Device> {
    vec![Device {
        handle: DEVICE,
        level,
        is_read_only: false,
        is_removable: false,
        peripheral_type: 0,
        block_bytes: 512,
        blocks: BLOCKS,
        data_max_bytes: 1 << 20,
        designator: [1; 16],
        name: "disk".to_owned(),
    }]
}

type Ends = (ClientSession<Vec<u8>>, TargetSession<Vec<u8>>);

/// Both ends of a session, as a login leaves them.
fn ends(plan: &Plan, now: Duration, generation: u64) -> Ends {
    let keys = Keys::new(&[plan.seed.to_be_bytes(), generation.to_be_bytes()].concat());
    let terms = Terms {
        session: u32::try_from(generation).unwrap() + 77,
        first_tag: 1 + u16::try_from(plan.seed % 100).unwrap(),
        slots: plan.slots,
        frame_bytes_max: 9000,
        bundles: plan.seed % 4 != 3,
        ..terms(&plan.settings)
    };
    let client = ClientSession::new(now, &keys, terms, plan.settings);
    let target = TargetSession::new(now, &keys, terms, plan.settings, table(plan.level));
    (client, target)
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let prng = Prng::new(plan.seed ^ 0x5555);
        let (client, target) = ends(&plan, Duration::ZERO, 0);
        Self {
            wire: Wire::new(plan.faults.clone(), Prng::new(plan.seed ^ 0xaaaa)),
            prng,
            now: Duration::ZERO,
            client,
            target,
            generation: 0,
            is_open: false,
            disk: vec![0; 256],
            known: vec![BTreeSet::from([0]); 256],
            locked: BTreeSet::new(),
            operations: BTreeMap::new(),
            functions: BTreeSet::new(),
            next_token: 1,
            begun: 0,
            work: BTreeMap::new(),
            works: 0,
            executed: BTreeSet::new(),
            drop_last_of_next_write: false,
            tick: Duration::ZERO,
            failure: None,
            buffer: vec![0; 9100],
            plan,
        }
    }

    fn fail(&mut self, text: String) {
        self.failure.get_or_insert(text);
    }

    /// Until all commands have ended.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        self.start();
        let end = self.plan.faults.heals_at + PATIENCE;
        while self.begun < self.plan.operations
            || !self.operations.is_empty()
            || !self.functions.is_empty()
        {
            if !self.step(end) {
                let (client, target) = (self.client.counters(), self.target.counters());
                return Err(format!(
                    "{} of {} commands, {} left at {:?}; {client:?}; {target:?}\n{}\n{}\n{:?}",
                    self.begun,
                    self.plan.operations,
                    self.operations.len(),
                    self.now,
                    self.client.state(),
                    self.target.state(),
                    self.plan
                ));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
        // All are answered: the disk holds what the client believes, and late frames change nothing.
        let quiet = self.now + MS * 2500;
        while self.step(quiet) {}
        for block in 0..256 {
            if !self.known[block].contains(&self.disk[block]) {
                let (known, is) = (&self.known[block], self.disk[block]);
                return Err(format!("block {block} has write {is} instead of {known:?}"));
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.start();
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
        assert_eq!(self.failure, None);
    }

    pub(crate) fn run_until_idle(&mut self) -> Duration {
        let end = self.now + PATIENCE;
        while !self.operations.is_empty() && self.step(end) {}
        self.now
    }

    fn start(&mut self) {
        if !self.is_open {
            self.client.open(self.now, DEVICE, self.plan.level);
            self.flush();
        }
    }

    /// Goes on to whatever comes next, if that is not after `end`.
    fn step(&mut self, end: Duration) -> bool {
        let next = [
            self.wire.next_at(),
            self.client.deadline(),
            self.target.deadline(),
            self.work.keys().next().map(|&(at, _)| at),
            self.plan.restarts_at,
            (self.begun < self.plan.operations).then_some(self.tick),
        ];
        let Some(at) = next.into_iter().flatten().min() else {
            return false;
        };
        if at > end {
            return false;
        }
        self.now = self.now.max(at);
        if self.tick <= self.now {
            self.tick = self.now + MS;
        }
        if self.plan.restarts_at.is_some_and(|at| at <= self.now) {
            self.plan.restarts_at = None;
            self.restart();
        }
        while let Some((to, frame)) = self.wire.take(self.now) {
            match to {
                To::Client => self.client.handle_frame(self.now, &frame),
                To::Target => self.target.handle_frame(self.now, &frame),
            }
        }
        self.client.handle_deadline(self.now);
        self.target.handle_deadline(self.now);
        self.work_on();
        self.settle();
        self.flush();
        true
    }

    /// The target loses all it knows but its disk; the client learns that and logs in again.
    fn restart(&mut self) {
        self.work.clear();
        self.client.close();
        self.take_client_events();
        self.generation += 1;
        self.is_open = false;
        (self.client, self.target) = ends(&self.plan, self.now, self.generation);
        self.start();
    }

    fn settle(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Command {
                    id, command, data, ..
                } => {
                    let token = u64::from_be_bytes(command.cdb[1..9].try_into().unwrap());
                    if !self.executed.insert(token) {
                        self.fail(format!("write or read {token} is executed twice"));
                    }
                    self.works += 1;
                    let is_quick = self.plan.operations == 0 || self.prng.happens(500);
                    let most = if is_quick { 10 } else { 5000 };
                    let takes = self.prng.below(most);
                    let at = self.now + Duration::from_micros(takes);
                    self.work
                        .insert((at, self.works), (id, token, command, data.to_vec()));
                }
                TargetEvent::Management { id, task, .. } => {
                    let found = self.work.iter().find(|(_, work)| Some(work.0) == task);
                    let outcome = if let Some((&key, _)) = found {
                        let (task, ..) = self.work.remove(&key).unwrap();
                        self.target.respond(
                            self.now,
                            task,
                            Reply::of(Outcome::Aborted),
                            Vec::new(),
                        );
                        Outcome::FunctionComplete
                    } else {
                        Outcome::FunctionRejected
                    };
                    self.target
                        .respond(self.now, id, Reply::of(outcome), Vec::new());
                }
                TargetEvent::Opened { device, level } => {
                    assert_eq!((device, level), (DEVICE, self.plan.level))
                }
                TargetEvent::Ended(reason) => {
                    self.fail(format!("the target's session ended: {reason:?}"))
                }
            }
        }
        self.take_client_events();
        if self.prng.happens(self.plan.window_changes) {
            let frames = u16::try_from(self.prng.below(40)).unwrap();
            self.target.set_window(frames.max(1));
        }
        if self.is_open && self.begun < self.plan.operations && self.prng.happens(300) {
            let block = self.prng.below(BLOCKS - 1);
            let most = [1, 8, 150][usize::try_from(self.prng.below(3)).unwrap()];
            let count = 1 + self.prng.below(most);
            let is_write = self.prng.happens(500);
            self.begin(is_write, block, count.min(BLOCKS - block));
        }
    }

    pub(crate) fn write(&mut self, block: u64, count: u64, blocks: u64) {
        self.begin(true, block, count * blocks);
        self.flush();
    }

    fn begin(&mut self, is_write: bool, block: u64, count: u64) {
        if (block..block + count).any(|block| self.locked.contains(&block)) {
            return;
        }
        self.begun += 1;
        let token = self.next_token;
        self.next_token += 1;
        self.locked.extend(block..block + count);
        let bytes = u32::try_from(count).unwrap() * 512;
        let mut cdb = vec![u8::from(is_write)];
        cdb.extend(token.to_be_bytes());
        cdb.extend([u8::try_from(block).unwrap(), u8::try_from(count).unwrap()]);
        let command = Command {
            attribute: Attribute::Simple,
            cdb,
            data_in_bytes: if is_write { 0 } else { bytes },
            data_out_bytes: if is_write { bytes } else { 0 },
        };
        let blocks = block..block + count;
        let data = if is_write {
            blocks.flat_map(|block| content(token, block)).collect()
        } else {
            Vec::new()
        };
        self.client
            .submit(self.now, token, DEVICE, command, data)
            .unwrap();
        let operation = Operation {
            is_write,
            block,
            count,
        };
        self.operations.insert(token, operation);
        if self.prng.happens(self.plan.aborts)
            && let Some(name) = self.client.name_of(token)
        {
            let function = Function::AbortTask(name);
            self.functions.insert(self.next_token);
            self.client
                .manage(self.now, self.next_token, DEVICE, function)
                .unwrap();
            self.next_token += 1;
        }
    }

    /// Commands that are due take effect, and are answered.
    fn work_on(&mut self) {
        while let Some(first) = self
            .work
            .first_entry()
            .filter(|first| first.key().0 <= self.now)
        {
            let (id, token, command, data) = first.remove();
            let (block, count) = (u64::from(command.cdb[9]), u64::from(command.cdb[10]));
            let mut read = Vec::new();
            for (block, at) in (block..block + count).zip(0..) {
                let place = usize::try_from(block).unwrap();
                if command.cdb[0] == 0 {
                    read.extend(content(self.disk[place], block));
                } else if data[at * BLOCK_BYTES..][..BLOCK_BYTES] == content(token, block) {
                    self.disk[place] = token;
                } else {
                    self.fail(format!("write {token} has wrong bytes for block {block}"));
                }
            }
            self.target
                .respond(self.now, id, Reply::of(Outcome::Status(0)), read);
        }
    }

    fn take_client_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Answer { token, reply, data } => {
                    self.handle_answer(token, &reply, &data)
                }
                ClientEvent::Lost { token, was_sent } => self.handle_lost(token, was_sent),
                ClientEvent::Opening { opening, .. } => match opening {
                    Opening::Open(_) => self.is_open = true,
                    Opening::TooLow(_) | Opening::OtherLevel(_) | Opening::Unknown => {
                        self.fail(format!("{opening:?}"));
                    }
                },
                ClientEvent::Devices(_) => {}
                ClientEvent::Ended(EndReason::Closed) => {}
                ClientEvent::Ended(reason) => {
                    self.fail(format!("the client's session ended: {reason:?}"))
                }
            }
        }
    }

    fn handle_answer(&mut self, token: u64, reply: &Reply, data: &[u8]) {
        if self.functions.remove(&token) {
            return;
        }
        let Some(operation) = self.operations.remove(&token) else {
            self.fail(format!("an answer for {token}, which has ended"));
            return;
        };
        if reply.outcome == Outcome::Status(0) && !self.executed.contains(&token) {
            self.fail(format!("{token} was answered and not executed"));
        }
        for (block, at) in (operation.block..operation.block + operation.count).zip(0..) {
            self.locked.remove(&block);
            let known = &mut self.known[usize::try_from(block).unwrap()];
            match reply.outcome {
                Outcome::Status(_) if operation.is_write => *known = BTreeSet::from([token]),
                Outcome::Status(_) => {
                    let found = data
                        .get(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES)
                        .unwrap_or_default();
                    let held = known
                        .iter()
                        .copied()
                        .find(|&token| content(token, block) == found);
                    match held {
                        Some(held) => *known = BTreeSet::from([held]),
                        None => {
                            self.failure =
                                Some(format!("read {token} has wrong bytes of block {block}"))
                        }
                    }
                }
                Outcome::Aborted => {}
                Outcome::NotOpen
                | Outcome::Malformed
                | Outcome::FunctionComplete
                | Outcome::FunctionRejected => {
                    self.failure = Some(format!("{token} ended with {:?}", reply.outcome));
                }
            }
        }
    }

    fn handle_lost(&mut self, token: u64, was_sent: bool) {
        self.functions.remove(&token);
        let Some(operation) = self.operations.remove(&token) else {
            return;
        };
        for block in operation.block..operation.block + operation.count {
            self.locked.remove(&block);
            if was_sent && operation.is_write {
                self.known[usize::try_from(block).unwrap()].insert(token);
            }
        }
    }

    /// All that is to be sent goes onto the wire.
    fn flush(&mut self) {
        let mut frames = Vec::new();
        while let Some(length) = self.client.poll_frame(self.now, &mut self.buffer) {
            frames.push(self.buffer[..length].to_vec());
        }
        if self.drop_last_of_next_write && frames.len() > 1 {
            self.drop_last_of_next_write = false;
            frames.pop();
        }
        for frame in frames {
            self.check_frame(&frame);
            self.wire.send(self.now, To::Target, &frame);
        }
        while let Some(length) = self.target.poll_frame(self.now, &mut self.buffer) {
            let frame = self.buffer[..length].to_vec();
            self.check_frame(&frame);
            self.wire.send(self.now, To::Client, &frame);
        }
    }

    /// Spec: docs/internals/hyperscsi.md, frames.
    fn check_frame(&mut self, frame: &[u8]) {
        if !(46..=9000).contains(&frame.len()) {
            self.fail(format!("a frame of {} bytes", frame.len()));
        }
    }
}
