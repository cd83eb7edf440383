//! A transport that records what the engine asks of it, and the carrier of all tests and simulated worlds.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use memory::{Buffer, NoRoom, Payload, Pool};
use scsi::{Command, Status, TaskAttribute};
use store::{Descriptor, SocketTag, Waker};

pub use super::cdb::Came;
use super::cdb::Cdb;
use crate::{
    Carrier, Ending, Letter, Life, LunMap, ManagementOutcome, News, PartKey, Port, Response, Save,
    StoreWork, UnitIndex,
};

/// An answer, as an initiator sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    pub status: Status,
    /// Sense key, ASC, ASCQ.
    pub sense: Option<(u8, u8, u8)>,
    pub data: Vec<u8>,
    pub transfer_length: u64,
}

impl Answer {
    pub fn is_good(&self) -> bool {
        self.status == Status::Good
    }

    /// Status and sense.
    pub const fn end(&self) -> (Status, Option<(u8, u8, u8)>) {
        (self.status, self.sense)
    }
}

/// ABORTED COMMAND without more: something may have changed.
pub const STOPPED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((0x0b, 0, 0)));
/// NOT READY: access is refused.
pub const REFUSED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((2, 4, 0)));
/// DATA PROTECT.
pub const PROTECTED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((7, 0x27, 0)));
/// INTERNAL TARGET FAILURE.
pub const FAILED: (Status, Option<(u8, u8, u8)>) = (Status::CheckCondition, Some((4, 0x44, 0)));
pub const GOOD: (Status, Option<(u8, u8, u8)>) = (Status::Good, None);
pub const BUSY: (Status, Option<(u8, u8, u8)>) = (Status::Busy, None);
pub const FULL: (Status, Option<(u8, u8, u8)>) = (Status::TaskSetFull, None);

/// A session's transport.
#[derive(Debug, Default)]
pub struct TestPort {
    pub answers: Vec<(u32, Answer)>,
    pub managed: Vec<(u32, ManagementOutcome)>,
    pub abandoned: Vec<u32>,
    /// Data that was asked for: command, bytes.
    pub asked: Vec<(u32, u32)>,
    /// Data that came with commands.
    pub came: HashMap<u32, Payload>,
    pub left_chunks: Vec<u32>,
    /// Writes whose data came back, with its length.
    pub returned: Vec<(u32, usize)>,
    pub queue_limits: Vec<u32>,
    pub queue_depths: Vec<u32>,
    /// Why it cannot ask for data.
    pub starves: VecDeque<NoRoom>,
    /// How often it was given memory.
    pub fed: usize,
    pub unsent_bytes: usize,
    pub needs_stable_data: bool,
    /// Answers keep their data until this is emptied.
    pub keeps_answers: bool,
    pub kept_answers: Vec<Payload>,
    pub has_event: bool,
    pub arrived: Duration,
}

impl Port for TestPort {
    type CommandId = u32;
    type Command = Cdb;
    type ManagementId = u32;
    type Farewell = u32;
    type Connection = u8;

    fn lun_of(command: &Cdb) -> u64 {
        u64::from(command.lun) << 48
    }

    fn attribute_of(command: &Cdb) -> Option<TaskAttribute> {
        command.attribute
    }

    fn scsi_command<'a>(command: &'a Cdb, luns: &'a LunMap, long: &'a mut Vec<u8>) -> Command<'a> {
        long.extend_from_slice(&command.bytes);
        Command {
            cdb: long,
            data_out_length: command.out_bytes,
            data_in_length: command.in_bytes,
            luns,
        }
    }

    fn place_of(id: u32) -> usize {
        id as usize
    }

    fn arrival_of(&self, _: u32) -> Duration {
        self.arrived
    }

    fn request_data(&mut self, id: u32, length: u32, _: &Pool) -> Option<Payload> {
        self.asked.push((id, length));
        self.came.remove(&id)
    }

    fn leave_chunk(&mut self, id: u32, _: &Pool) {
        self.left_chunks.push(id);
    }

    fn needs_stable_data(&self, _: u32) -> bool {
        self.needs_stable_data
    }

    fn respond(&mut self, id: u32, response: Response<'_>) -> Option<u8> {
        let sense = (!response.sense.is_empty()).then(|| {
            let sense = response.sense;
            match sense[0] & 0x7f {
                0x72 => (sense[1] & 0xf, sense[2], sense[3]),
                _ => (sense[2] & 0xf, sense[12], sense[13]),
            }
        });
        let answer = Answer {
            status: response.status,
            sense,
            data: response.data.to_vec(),
            transfer_length: response.transfer_length,
        };
        self.answers.push((id, answer));
        if self.keeps_answers {
            self.kept_answers.push(response.data);
        }
        Some(0)
    }

    fn return_data(&mut self, id: u32, data: Payload) {
        self.returned.push((id, data.len()));
    }

    fn abandon(&mut self, id: u32) {
        self.came.remove(&id);
        self.abandoned.push(id);
    }

    fn respond_management(&mut self, id: u32, outcome: ManagementOutcome) -> Option<u8> {
        self.managed.push((id, outcome));
        Some(0)
    }

    fn has_event(&self) -> bool {
        self.has_event
    }

    fn starves_for(&self) -> Option<NoRoom> {
        self.starves.front().copied()
    }

    fn handle_memory(&mut self, _: &Pool) {
        self.fed += 1;
        self.starves.pop_front();
    }

    fn set_queue_depth(&mut self, commands: u32) {
        self.queue_depths.push(commands);
    }

    fn set_queue_limit(&mut self, commands: u32) -> bool {
        self.queue_limits.push(commands);
        true
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }
}

/// Something that is done for a store.
#[derive(Debug)]
pub struct Begun {
    pub part: PartKey,
    /// Until it is over.
    pub work: Option<StoreWork>,
}

/// Kept until what an administrator has asked for is done.
pub type Receipt = Rc<()>;

/// Mail about a unit.
pub type UnitMail = (UnitIndex, Letter);

/// What of a carrier a test or a simulated world decides; all else is put down in [`Outside`].
pub trait Hooks: Debug {
    /// The transports of its sessions.
    type Port: Port;
    /// Mail from core to core: about units, and that of the transports.
    type Mail: Debug + From<UnitMail>;
    /// What the transports have put down.
    type Lines: Debug + Default;

    /// Whether a store may keep the chunk that data came in.
    fn lends_chunk(&mut self) -> bool {
        true
    }

    /// By default a bug that the engine has found in itself ends the test.
    fn notify(&mut self, news: News) {
        assert!(!matches!(news, News::Broken(_)), "{news:?}");
    }

    /// A command that never waited is answered.
    fn note_answer(&mut self, _: Status) {}

    /// A command begins to wait.
    fn note_wait(&mut self) {}

    /// A command that has waited is over.
    fn note_end(&mut self, _: Ending, _: Life) {}

    /// A command waits for memory, or is refused for want of it.
    fn note_starved(&mut self) {}
}

/// Those of tests of the engine alone: what happens to commands is counted.
#[derive(Debug)]
pub struct Books {
    pub news: Vec<News>,
    /// A store may keep the chunk that data came in.
    pub lends_chunks: bool,
    pub lent: usize,
    /// Commands that never waited, those that began to wait, and those of them that are over.
    pub counts: (usize, usize, usize),
    pub endings: Vec<(Ending, Life)>,
    pub starved: usize,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            news: Vec::new(),
            lends_chunks: true,
            lent: 0,
            counts: (0, 0, 0),
            endings: Vec::new(),
            starved: 0,
        }
    }
}

impl Hooks for Books {
    type Port = TestPort;
    type Mail = UnitMail;
    type Lines = ();

    fn lends_chunk(&mut self) -> bool {
        self.lent += usize::from(self.lends_chunks);
        self.lends_chunks
    }

    fn notify(&mut self, news: News) {
        self.news.push(news);
    }

    fn note_answer(&mut self, _: Status) {
        self.counts.0 += 1;
    }

    fn note_wait(&mut self) {
        self.counts.1 += 1;
    }

    fn note_end(&mut self, ending: Ending, life: Life) {
        self.counts.2 += 1;
        self.endings.push((ending, life));
    }

    fn note_starved(&mut self) {
        self.starved += 1;
    }
}

/// What leaves one core: the one carrier that is not that of the data plane.
#[derive(Debug)]
pub struct Outside<H: Hooks = Books> {
    /// Mail and to whom, in the order in which it was sent.
    pub posted: VecDeque<(usize, H::Mail)>,
    pub begun: Vec<Begun>,
    pub cancelled: Vec<usize>,
    /// From any thread: whose store wants to be looked after.
    pub wakes: (mpsc::Sender<UnitIndex>, mpsc::Receiver<UnitIndex>),
    /// Open connections of stores.
    pub sockets: Vec<(UnitIndex, SocketTag)>,
    pub to_keep: Vec<(UnitIndex, Save)>,
    /// Series that were made: unit.
    pub series: Vec<UnitIndex>,
    pub lines: H::Lines,
    pub hooks: H,
}

impl<H: Hooks> Outside<H> {
    pub fn new(hooks: H) -> Self {
        Self {
            posted: VecDeque::new(),
            begun: Vec::new(),
            cancelled: Vec::new(),
            wakes: mpsc::channel(),
            sockets: Vec::new(),
            to_keep: Vec::new(),
            series: Vec::new(),
            lines: H::Lines::default(),
            hooks,
        }
    }
}

impl<H: Hooks + Default> Default for Outside<H> {
    fn default() -> Self {
        Self::new(H::default())
    }
}

impl<H: Hooks> Carrier for Outside<H> {
    type Port = H::Port;
    type Operation = usize;
    type Receipt = Receipt;
    type Account = u32;

    fn post(&mut self, core: usize, unit: UnitIndex, letter: Letter) {
        self.posted.push_back((core, (unit, letter).into()));
    }

    fn begin(&mut self, part: PartKey, work: StoreWork) -> usize {
        let work = Some(work);
        self.begun.push(Begun { part, work });
        self.begun.len() - 1
    }

    fn waker(&self, unit: UnitIndex) -> Waker {
        let wakes = self.wakes.0.clone();
        Waker::new(move || wakes.send(unit).unwrap_or_default())
    }

    fn open_socket(&mut self, unit: UnitIndex, socket: SocketTag, descriptor: Descriptor) -> bool {
        drop(descriptor);
        self.sockets.push((unit, socket));
        true
    }

    fn close_socket(&mut self, unit: UnitIndex, socket: SocketTag) {
        let at = self.sockets.iter().position(|one| *one == (unit, socket));
        self.sockets.remove(at.expect("an open connection"));
    }

    fn cancel(&mut self, operation: usize) {
        assert!(
            self.begun[operation].work.is_some(),
            "what is over is cancelled"
        );
        self.cancelled.push(operation);
    }

    fn save(&mut self, unit: UnitIndex, save: Save) {
        assert!(self.to_keep.iter().all(|(other, _)| *other != unit));
        self.to_keep.push((unit, save));
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        self.hooks.lends_chunk()
    }

    fn notify(&mut self, news: News) {
        self.hooks.notify(news);
    }

    fn series(&mut self, unit: UnitIndex, _: &H::Port) -> u32 {
        self.series.push(unit);
        unit.0
    }

    fn account(
        series: u32,
        _: &H::Port,
        _: <H::Port as Port>::CommandId,
        _: &<H::Port as Port>::Command,
    ) -> u32 {
        series
    }

    fn note_answer(&mut self, _: u32, status: Status) {
        self.hooks.note_answer(status);
    }

    fn note_wait(&mut self, _: u32) {
        self.hooks.note_wait();
    }

    fn note_end(&mut self, _: u32, ending: Ending, life: Life) {
        self.hooks.note_end(ending, life);
    }

    fn note_starved(&mut self) {
        self.hooks.note_starved();
    }
}
