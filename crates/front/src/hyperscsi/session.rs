//! A session: requests out, once each; replies in.
//!
//! A command has all its data when it comes. They are copied into the core's pool before the engine gets the command,
//! from the frame that they came in, if it is one and the command need not wait. While there is no room for them, or as
//! many commands are under way as may be, commands wait in their order, and the window of the client is shut. A client
//! that goes on all the same is answered TASK SET FULL.
//!
//! Data of replies are in buffers of the pool, of which a host has its share, or in copies on the heap, where the store
//! gives memory that others write. No command is given while a session has too much in such copies, which only its
//! client's acknowledgements end; so that needs no sign but what comes from the client.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::hyperscsi::limits::WINDOW_DEFAULT;
use ::hyperscsi::{
    Attribute, Command as Asked, Data, EndReason, Function, Outcome, Reply, TargetEvent,
    TargetSession, TaskId,
};
use ::iscsi::pdu::TaskAttribute;
use ::iscsi::target::Command;
use engine::{Management, ManagementOutcome, Response, VisibleLun};
use marks::sometimes;
use memory::{Buffer, Need, NoRoom, Payload, Pool};
use scsi::{Lun, Status};

use super::keys::PlaceKey;
use super::stock::Stock;
use crate::identity::SessionId;
use crate::iscsi::{ConnectionPlace, Shares, Who};
use crate::names::{CommandId, ManagementId};
use crate::station::Station;

/// The data of commands that wait, in bytes: so much may have been under way before the client saw a shut window.
const WAITING_BYTES_MAX: usize = 2 << 20;

/// Data of replies on the heap, in bytes, with which no further command is given.
const COPIED_MAX: usize = 4 << 20;

/// The same for replies of commands that were given together: beyond it they end with BUSY.
const COPIED_FULL: usize = 16 << 20;

/// The bytes of a CDB that every command has room for.
const CDB_BYTES: usize = 16;

/// What is kept beside the protocol of a session.
#[derive(Debug)]
pub struct Detail {
    /// Names it.
    pub id: SessionId,
    /// The group.
    pub group: Arc<str>,
    /// The number by which the client calls itself.
    pub client: [u8; 16],
    /// The name under which the client is shown and counted.
    pub name: String,
    /// Where it is.
    pub station: Station,
    /// The place where it came in.
    pub place: PlaceKey,
    /// When it began.
    pub since: SystemTime,
    /// What it sees.
    pub luns: Vec<VisibleLun>,
    /// What the client's host has of what all sessions share.
    pub shares: Shares,
}

impl Detail {
    /// Who is behind it, for those who are notified.
    pub fn who(&self) -> Who<'_> {
        Who {
            session: self.id,
            initiator: &self.name,
            peer: self.station,
            target: Some(&self.group),
            user: None,
        }
    }
}

/// The TransportID of a client: no specific protocol, and its number. The second byte sets it apart from clients of
/// NBD, which have addresses there.
///
/// Spec: SPC-5, PROTOCOL IDENTIFIER values, TransportID identifiers.
pub fn transport_id(client: &[u8; 16]) -> Arc<[u8]> {
    const NO_SPECIFIC_PROTOCOL: u8 = 0x0f;
    const CLIENT: u8 = 1;
    let head = [NO_SPECIFIC_PROTOCOL, CLIENT, 0, 0, 0, 0, 0, 0];
    [&head[..], client].concat().into()
}

/// Data of a reply, which stay until the client has them.
#[derive(Debug)]
pub(super) struct ReplyData {
    payload: Payload,
    /// Who gets its memory back, if it is on the heap, and what the session has of that.
    copy: Option<(Rc<Stock>, Rc<Copied>)>,
}

/// The data of a session's replies that are on the heap, in bytes.
type Copied = Cell<usize>;

impl Default for ReplyData {
    fn default() -> Self {
        Self {
            payload: Payload::Empty,
            copy: None,
        }
    }
}

impl AsRef<[u8]> for ReplyData {
    fn as_ref(&self) -> &[u8] {
        self.payload.as_slice().unwrap_or_default()
    }
}

impl Drop for ReplyData {
    fn drop(&mut self) {
        if let Some((stock, copied)) = &self.copy
            && let Payload::Heap(room) = std::mem::replace(&mut self.payload, Payload::Empty)
        {
            copied.set(copied.get().saturating_sub(room.len()));
            stock.give_back(room);
        }
    }
}

impl ReplyData {
    /// No more than there is room for, and nothing that others may write: it may be sent again, and is protected once.
    /// `None` where the session has too much on the heap.
    fn new(
        payload: Payload,
        room: usize,
        (stock, copied): (&Rc<Stock>, &Rc<Copied>),
    ) -> Option<Self> {
        let payload = match payload {
            Payload::Mapped(range) => {
                let length = range.len().min(room);
                if copied.get().saturating_add(length) > COPIED_FULL {
                    return None;
                }
                let mut bytes = stock.take(length);
                range.copy_to(0, &mut bytes);
                Payload::Heap(bytes)
            }
            payload @ (Payload::Empty
            | Payload::Pool(_)
            | Payload::Received { .. }
            | Payload::Heap(_)) => match payload.len() {
                length if length <= room => payload,
                _ => payload.into_shareable().part(0, room),
            },
        };
        let copy = match &payload {
            Payload::Heap(bytes) => {
                copied.set(copied.get().saturating_add(bytes.len()));
                Some((Rc::clone(stock), Rc::clone(copied)))
            }
            Payload::Empty | Payload::Pool(_) | Payload::Received { .. } | Payload::Mapped(_) => {
                None
            }
        };
        Some(Self { payload, copy })
    }
}

/// A command that the engine has.
#[derive(Debug)]
struct Task {
    id: TaskId,
    device: u16,
    arrival: Duration,
    /// Until the engine takes it.
    data: Payload,
    /// What the client has room for, in bytes.
    room: usize,
    /// What it expects to be moved, in bytes.
    expected: u32,
}

/// A place in the table of commands.
#[derive(Debug, Default)]
struct Slot {
    /// Changes with each use.
    serial: u32,
    task: Option<Task>,
}

/// A command that waits for its turn.
#[derive(Debug)]
struct Waiting {
    id: TaskId,
    device: u16,
    command: Asked,
    data: Data,
    /// With the data, once there was room.
    buffer: Option<Buffer>,
    arrival: Duration,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Taken {
    /// A command is to be given to the engine.
    Command(CommandId, Command),
    /// A command that the engine has came with less data than it takes.
    TooShort(CommandId),
    /// A function is to be carried out by the engine.
    Management(ManagementId, Management<CommandId>),
    /// The session is over.
    Ended(EndReason),
}

/// A session, and what is kept beside it.
#[derive(Debug)]
pub struct SessionPort {
    /// What is kept beside the protocol.
    pub detail: Detail,
    pub(super) session: TargetSession<ReplyData>,
    slots: Vec<Slot>,
    /// Memory for data of replies.
    stock: Rc<Stock>,
    copied: Rc<Copied>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    starves: Option<NoRoom>,
    /// Commands that want more data than came with them.
    too_short: Vec<CommandId>,
    under_way: u32,
    limit: u32,
    /// To be given to the protocol, which wants to know the time.
    replies: Vec<(TaskId, Reply, ReplyData)>,
    reply_bytes: usize,
    /// Functions under way.
    functions: Vec<(u32, TaskId)>,
    next_function: u32,
    is_shut: bool,
    is_stopping: bool,
    /// It is in the list of sessions with something to send.
    pub(super) is_dirty: bool,
    /// When it wants to know that time has passed.
    pub(super) due: Option<Duration>,
    /// By it the session counts for its host.
    _place: ConnectionPlace,
}

/// The eight bytes of the LUN field that a device has.
pub(super) fn address_of(device: u16) -> u64 {
    Lun::new(u32::from(device)).map_or(0, Lun::encode)
}

impl SessionPort {
    /// A session in which nothing is under way.
    pub(super) fn new(
        detail: Detail,
        session: TargetSession<ReplyData>,
        limit: u32,
        stock: Rc<Stock>,
    ) -> Self {
        let slots = usize::from(session.terms().slots);
        Self {
            _place: detail.shares.count_connection(),
            detail,
            session,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            stock,
            copied: Rc::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            starves: None,
            too_short: Vec::new(),
            under_way: 0,
            limit,
            replies: Vec::new(),
            reply_bytes: 0,
            functions: Vec::new(),
            next_function: 0,
            is_shut: false,
            is_stopping: false,
            is_dirty: false,
            due: None,
        }
    }

    /// Commands that the engine has.
    pub const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// How many it may have.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// True where commands that have come may be given now.
    pub(crate) fn set_limit(&mut self, limit: u32) -> bool {
        self.limit = limit;
        self.may_give()
    }

    pub(crate) const fn starves_for(&self) -> Option<NoRoom> {
        self.starves
    }

    /// All further commands are refused.
    pub(super) const fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Nothing is under way, and nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopping && self.is_idle()
    }

    /// Nothing is under way: the client has had all replies.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = self.under_way == 0 && self.waiting.is_empty() && self.replies.is_empty();
        is_idle && self.functions.is_empty() && self.session.is_idle()
    }

    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.reply_bytes
    }

    // ---- what comes --------------------------------------------------------------------------

    /// A command that waits may be given.
    pub(crate) fn has_event(&self) -> bool {
        !self.too_short.is_empty() || self.starves.is_none() && self.may_give()
    }

    fn may_give(&self) -> bool {
        !self.waiting.is_empty() && self.under_way < self.limit && !self.is_backlogged()
    }

    /// The client has not acknowledged what it was sent.
    fn is_backlogged(&self) -> bool {
        self.copied.get() > COPIED_MAX
    }

    /// Takes what there is, up to what is to be done about it. `frame` is the one that has just come, if one has; it is
    /// called until there is nothing more before the frame goes.
    pub(super) fn take(&mut self, pool: &Pool, now: Duration, frame: &[u8]) -> Option<Taken> {
        loop {
            if let Some(id) = self.too_short.pop() {
                return Some(Taken::TooShort(id));
            }
            if let Some(taken) = self.take_waiting(pool) {
                return Some(taken);
            }
            match self.session.poll_event()? {
                TargetEvent::Command {
                    id,
                    device,
                    command,
                    data,
                } => {
                    let waiting = Waiting {
                        id,
                        device,
                        command,
                        data,
                        buffer: None,
                        arrival: now,
                    };
                    self.hold(waiting, pool, frame);
                }
                TargetEvent::Management {
                    id,
                    device,
                    function,
                    task,
                } => return Some(self.begin_function(id, device, function, task)),
                TargetEvent::Opened { .. } => {}
                TargetEvent::Ended(reason) => return Some(Taken::Ended(reason)),
            }
        }
    }

    fn hold(&mut self, mut waiting: Waiting, pool: &Pool, frame: &[u8]) {
        let bytes = self.waiting_bytes.saturating_add(waiting.data.len());
        let refusal = if self.is_stopping {
            Some(Status::Busy)
        } else if bytes > WAITING_BYTES_MAX && !self.waiting.is_empty() {
            Some(Status::TaskSetFull)
        } else {
            None
        };
        match refusal {
            Some(status) => {
                let reply = Reply::of(Outcome::Status(status as u8));
                self.reply(waiting.id, reply, ReplyData::default());
            }
            None => {
                if waiting.data.is_in_frame() {
                    self.take_from_frame(&mut waiting, pool, frame);
                }
                self.waiting_bytes = self.waiting_bytes.saturating_add(waiting.data.len());
                self.waiting.push_back(waiting);
            }
        }
    }

    /// Copies data out of their frame: into the core's pool, if the command is the next one and there is room, so that
    /// they are copied once.
    fn take_from_frame(&self, waiting: &mut Waiting, pool: &Pool, frame: &[u8]) {
        let is_next =
            self.waiting.is_empty() && self.under_way < self.limit && !self.is_backlogged();
        let bytes = waiting.data.within(frame);
        match is_next.then(|| pool.allocate_for(Need::Begin, bytes.len())) {
            Some(Ok(mut buffer)) => {
                buffer.copy_from_slice(bytes);
                waiting.data = Data::default();
                waiting.buffer = Some(buffer);
            }
            // It has to wait, and will be looked at again.
            Some(Err(_)) | None => waiting.data.leave(frame),
        }
    }

    /// Has the first command that waits get room for its data.
    pub(crate) fn handle_memory(&mut self, pool: &Pool) {
        self.starves = None;
        if !self.may_give() {
            return;
        }
        let Some(first) = self.waiting.front_mut() else {
            return;
        };
        if first.data.is_empty() || first.buffer.is_some() {
            return;
        }
        match pool.allocate_for(Need::Begin, first.data.len()) {
            Ok(mut buffer) => {
                buffer.copy_from_slice(&first.data);
                self.waiting_bytes = self.waiting_bytes.saturating_sub(first.data.len());
                self.session.recycle(std::mem::take(&mut first.data));
                first.buffer = Some(buffer);
            }
            Err(why) => self.starves = Some(why),
        }
    }

    fn take_waiting(&mut self, pool: &Pool) -> Option<Taken> {
        if !self.may_give() {
            return None;
        }
        self.handle_memory(pool);
        if self.starves.is_some() {
            sometimes!("a command of HyperSCSI waits for memory");
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        self.give(waiting)
    }

    fn give(&mut self, waiting: Waiting) -> Option<Taken> {
        let Waiting {
            id,
            device,
            command,
            data,
            buffer,
            arrival,
        } = waiting;
        self.session.recycle(data);
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        slot.serial = slot.serial.wrapping_add(1);
        slot.task = Some(Task {
            id,
            device,
            arrival,
            data: buffer.map_or(Payload::Empty, Payload::Pool),
            room: usize::try_from(command.data_in_bytes).unwrap_or(usize::MAX),
            expected: command.data_out_bytes.max(command.data_in_bytes),
        });
        self.under_way = self.under_way.saturating_add(1);
        let name = CommandId {
            place: u32::from(id.slot),
            serial: slot.serial,
        };
        Some(Taken::Command(name, command_of(device, &command)))
    }

    fn begin_function(
        &mut self,
        id: TaskId,
        device: u16,
        function: Function,
        task: Option<TaskId>,
    ) -> Taken {
        self.next_function = self.next_function.wrapping_add(1);
        let tag = self.next_function;
        self.functions.push((tag, id));
        let lun = address_of(device);
        // The engine does not know those that wait.
        let is_meant = |one: &Waiting| match function {
            Function::AbortTask(_) => Some(one.id) == task,
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                one.device == device
            }
        };
        let (gone, left): (VecDeque<_>, _) = self.waiting.drain(..).partition(is_meant);
        self.waiting = left;
        for waiting in gone {
            sometimes!("a function of HyperSCSI ends commands that wait");
            self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting.data.len());
            self.reply(
                waiting.id,
                Reply::of(Outcome::Aborted),
                ReplyData::default(),
            );
        }
        if self.waiting.is_empty() {
            self.starves = None;
        }
        let request = match function {
            Function::AbortTask(_) => {
                let name = task.and_then(|task| self.name_of(task));
                Management::AbortTask(name)
            }
            Function::AbortTaskSet | Function::ClearTaskSet => Management::AbortTaskSet {
                lun,
                commands: self.names_on(device),
            },
            Function::LogicalUnitReset => Management::LogicalUnitReset { lun },
        };
        Taken::Management(ManagementId { connection: 0, tag }, request)
    }

    fn names(&self) -> impl Iterator<Item = (CommandId, &Task)> {
        (0_u32..).zip(&self.slots).filter_map(|(place, slot)| {
            let serial = slot.serial;
            let task = slot.task.as_ref()?;
            Some((CommandId { place, serial }, task))
        })
    }

    fn name_of(&self, id: TaskId) -> Option<CommandId> {
        let mut names = self.names();
        names.find(|(_, task)| task.id == id).map(|(name, _)| name)
    }

    fn names_on(&self, device: u16) -> Vec<CommandId> {
        let names = self.names().filter(|(_, task)| task.device == device);
        names.map(|(name, _)| name).collect()
    }

    // ---- what the engine has -----------------------------------------------------------------

    fn task(&self, id: CommandId) -> Option<&Task> {
        let slot = self.slots.get(id.place as usize)?;
        slot.task.as_ref().filter(|_| slot.serial == id.serial)
    }

    pub(crate) fn arrival_of(&self, id: CommandId) -> Duration {
        self.task(id).map_or(Duration::ZERO, |task| task.arrival)
    }

    /// It was there before the command was given. What is more than the command takes is left out, as the residual
    /// says.
    pub(crate) fn request_data(&mut self, id: CommandId, length: u32) -> Option<Payload> {
        let slot = self.slots.get_mut(id.place as usize)?;
        let task = slot.task.as_mut().filter(|_| slot.serial == id.serial)?;
        let length = length as usize;
        if task.data.len() < length {
            self.too_short.push(id);
            return None;
        }
        let data = std::mem::replace(&mut task.data, Payload::Empty);
        if data.len() > length {
            sometimes!("a command of HyperSCSI has too much data");
            return Some(data.into_shareable().part(0, length));
        }
        Some(data)
    }

    fn end_task(&mut self, id: CommandId) -> Option<Task> {
        let slot = self.slots.get_mut(id.place as usize)?;
        let task = slot.task.take_if(|_| slot.serial == id.serial)?;
        debug_assert!(self.under_way > 0, "{id:?} was not counted");
        self.under_way = self.under_way.saturating_sub(1);
        Some(task)
    }

    pub(crate) fn respond(&mut self, id: CommandId, response: Response<'_>) {
        let Some(task) = self.end_task(id) else {
            return;
        };
        let moved = i64::try_from(response.transfer_length).unwrap_or(i64::MAX);
        let residual = moved.saturating_sub(i64::from(task.expected));
        let residual = residual.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        let reply = Reply {
            outcome: Outcome::Status(response.status as u8),
            residual: i32::try_from(residual).unwrap_or_default(),
            sense: response.sense.to_vec(),
        };
        let memory = (&self.stock, &self.copied);
        match ReplyData::new(response.data, task.room, memory) {
            Some(data) => self.reply(task.id, reply, data),
            None => {
                let busy = Reply::of(Outcome::Status(Status::Busy as u8));
                self.reply(task.id, busy, ReplyData::default());
            }
        }
    }

    /// A command ends without an answer of the device: the client gets its tag back.
    pub(crate) fn abandon(&mut self, id: CommandId) {
        if let Some(task) = self.end_task(id) {
            self.reply(task.id, Reply::of(Outcome::Aborted), ReplyData::default());
        }
    }

    pub(crate) fn respond_management(&mut self, id: ManagementId, outcome: ManagementOutcome) {
        let outcome = match outcome {
            ManagementOutcome::Complete => Outcome::FunctionComplete,
            ManagementOutcome::Rejected
            | ManagementOutcome::NoSuchUnit
            | ManagementOutcome::NotAllowed => Outcome::FunctionRejected,
        };
        let at = self.functions.iter().position(|(tag, _)| *tag == id.tag);
        if let Some(at) = at {
            let (_, task) = self.functions.swap_remove(at);
            self.reply(task, Reply::of(outcome), ReplyData::default());
        }
    }

    fn reply(&mut self, id: TaskId, reply: Reply, data: ReplyData) {
        self.reply_bytes = self.reply_bytes.saturating_add(data.as_ref().len());
        self.replies.push((id, reply, data));
    }

    // ---- what leaves -------------------------------------------------------------------------

    /// Hands replies to the protocol, and grants the client as much as there is room for.
    pub(super) fn settle(&mut self, now: Duration) {
        for (id, reply, data) in self.replies.drain(..) {
            self.session.respond(now, id, reply, data);
        }
        self.reply_bytes = 0;
        // What waits for acknowledgements alone needs no room.
        let has_room = self.waiting_bytes == 0 && self.is_backlogged();
        let is_shut = !self.waiting.is_empty() && !has_room;
        if is_shut != std::mem::replace(&mut self.is_shut, is_shut) {
            sometimes!("the window of a client of HyperSCSI changes");
            self.session
                .set_window(if is_shut { 0 } else { WINDOW_DEFAULT });
        }
    }
}

/// A command in the form that all transports have.
fn command_of(device: u16, asked: &Asked) -> Command {
    let mut cdb = [0; CDB_BYTES];
    for (place, byte) in cdb.iter_mut().zip(&asked.cdb) {
        *place = *byte;
    }
    Command {
        lun: address_of(device),
        cdb,
        extended_cdb: asked.cdb.get(CDB_BYTES..).unwrap_or_default().to_vec(),
        attribute: Some(match asked.attribute {
            Attribute::Simple => TaskAttribute::Simple,
            Attribute::Ordered => TaskAttribute::Ordered,
            Attribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
        }),
        data_out_length: asked.data_out_bytes,
        data_in_length: asked.data_in_bytes,
    }
}

#[cfg(test)]
mod tests;
