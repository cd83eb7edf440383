//! A session: one client, one export, one connection. Bytes in, commands out, replies.
//!
//! Requests are taken as long as fewer than the limit are under way; then what has come is held, and nothing more is
//! received. The data of a write is whole before its command is given, so the command never waits for it. A request
//! longer than [`PART_BYTES_MAX`] becomes several commands, one after the other.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::target::Command;
use ::nbd::server::{
    Command as Asked, PAYLOAD_MAX_BYTES, REQUEST_BYTES, Request, Terms, block_status_chunk,
    cache_lost_chunk, data_chunk, error_chunk, none_chunk, simple_reply,
};
use ::nbd::{ServerError, TransmissionFlags};
use engine::VisibleLun;
use marks::sometimes;
use memory::{Buffer, Message, Need, NoRoom, Payload, Pool};

use super::answer::{Verdict, is_report, verdict};
use super::keys::ConnectionKey;
use super::source::Source;
use super::work::{PART_BYTES_MAX, Task, extents, moving_bytes};
use crate::identity::SessionId;
use crate::iscsi::{Shares, Who};
use crate::names::CommandId;

/// With more than this waiting to be sent, being read or being written, in bytes, no further request is taken.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The same for what of it is on the heap.
const OUTPUT_HEAP_MAX_BYTES: usize = 64 * 1024;

/// What is kept beside the protocol of a session.
#[derive(Debug)]
pub struct Detail {
    /// Names it.
    pub id: SessionId,
    /// The name of the export.
    pub export: String,
    /// The name under which the client is shown and counted: its address, or that of its certificate.
    pub client: String,
    /// The names that its certificate proves.
    pub names: Arc<[String]>,
    /// Where the client comes from.
    pub peer: SocketAddr,
    /// The address of ours that was reached.
    pub portal: SocketAddr,
    /// Which of the places where clients come in.
    pub service: Arc<str>,
    /// When it began.
    pub since: SystemTime,
    /// What it sees: one unit.
    pub lun: VisibleLun,
    /// What the client's address has of what all sessions share.
    pub shares: Shares,
}

impl Detail {
    /// Who is behind it, for those who are notified.
    pub fn who(&self) -> Who<'_> {
        Who {
            session: self.id,
            initiator: &self.client,
            peer: self.peer.into(),
            target: Some(&self.export),
            user: None,
        }
    }
}

/// The TransportID of a client: no specific protocol, and the address.
///
/// Spec: SPC-5, PROTOCOL IDENTIFIER values, TransportID identifiers.
pub fn transport_id(address: IpAddr) -> Arc<[u8]> {
    const NO_SPECIFIC_PROTOCOL: u8 = 0x0f;
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let head = [NO_SPECIFIC_PROTOCOL, 0, 0, 0, 0, 0, 0, 0];
    [&head[..], &address.octets()].concat().into()
}

/// A place in the table of requests.
#[derive(Debug, Default)]
struct Slot {
    /// Changes with each use.
    serial: u32,
    task: Option<Task>,
}

/// What comes next.
#[derive(Debug)]
enum Incoming {
    /// A header, of which so many bytes are here.
    Header {
        bytes: [u8; REQUEST_BYTES],
        have: usize,
    },
    /// The data of the next command of a write, of which so much is here.
    Data {
        place: u32,
        buffer: Buffer,
        have: usize,
    },
    /// The same, and there is no memory for it yet.
    Starved { place: u32, why: NoRoom },
    /// The buffer of that is lent to be received into.
    Lent { place: u32 },
    /// A command of a write is under way, and then comes data for the next one.
    Paused,
    /// The data of a write that has failed.
    Dropped { left: u32 },
}

impl Incoming {
    const fn header() -> Self {
        Self::Header {
            bytes: [0; REQUEST_BYTES],
            have: 0,
        }
    }
}

/// What a call of [`SessionPort::take`] has come to.
#[derive(Debug)]
pub(super) enum Taken {
    /// A command is to be given to the engine.
    Command(CommandId, Command),
    /// Nothing more can be taken now.
    Nothing,
    /// The client broke the protocol, or cannot be answered any more.
    Broken(&'static str),
}

/// A session, and what is kept beside it.
#[derive(Debug)]
pub struct SessionPort {
    /// What is kept beside the protocol.
    pub detail: Detail,
    /// While it has one.
    pub(super) connection: Option<ConnectionKey>,
    terms: Terms,
    block_bytes: u32,
    /// The store takes what is written at once, so that it may lie where it was received.
    takes_at_once: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    under_way: u32,
    limit: u32,
    incoming: Incoming,
    /// Bytes that could not be taken when they came.
    held: VecDeque<u8>,
    /// Commands that are to be given.
    again: VecDeque<CommandId>,
    /// A read in several parts whose reply has one header is under way: no other reply may come between.
    is_alone: bool,
    /// The header of such a read, until nothing else is under way.
    postponed: Option<[u8; REQUEST_BYTES]>,
    output: Message,
    /// Data of reads under way that is not in the output yet, and of commands of writes, in bytes.
    moving_bytes: usize,
    /// What the socket has not taken yet, in bytes.
    pub sending_bytes: usize,
    /// Parts of writes whose data has come.
    parts: u64,
    /// The client says goodbye, or is to go: nothing more is taken.
    is_leaving: bool,
    /// It said so before all answers were given to the socket, and does not wait for the rest.
    is_heedless: bool,
    /// A request that was to be durable has had the report of a lost cache, which is one of the next flush.
    is_report_kept: bool,
    /// Requests are refused.
    is_stopping: bool,
    broken: Option<&'static str>,
}

impl SessionPort {
    /// A session in which nothing is under way.
    pub(super) fn new(detail: Detail, terms: Terms, unit: (u32, bool), limit: u32) -> Self {
        let (block_bytes, takes_at_once) = unit;
        Self {
            detail,
            connection: None,
            terms,
            block_bytes,
            takes_at_once,
            slots: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            limit,
            incoming: Incoming::header(),
            held: VecDeque::new(),
            again: VecDeque::new(),
            is_alone: false,
            postponed: None,
            output: Message::default(),
            moving_bytes: 0,
            sending_bytes: 0,
            parts: 0,
            is_leaving: false,
            is_heedless: false,
            is_report_kept: false,
            is_stopping: false,
            broken: None,
        }
    }

    /// Requests under way.
    pub const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// How many may be.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// True where requests that have come may be taken now.
    pub(crate) fn set_limit(&mut self, limit: u32) -> bool {
        self.limit = limit;
        self.may_take_held()
    }

    /// Why no memory is there for what comes next.
    pub(crate) const fn starves_for(&self) -> Option<NoRoom> {
        match self.incoming {
            Incoming::Starved { why, .. } => Some(why),
            Incoming::Header { .. }
            | Incoming::Data { .. }
            | Incoming::Lent { .. }
            | Incoming::Paused
            | Incoming::Dropped { .. } => None,
        }
    }

    /// Commands are to be given, or bytes to be taken.
    pub(crate) fn has_event(&self) -> bool {
        let wants_memory = self.starves_for().is_some();
        !self.again.is_empty() || self.broken.is_some() || wants_memory || self.may_take_held()
    }

    fn may_take_held(&self) -> bool {
        (!self.held.is_empty() || self.postponed.is_some()) && self.may_take()
    }

    /// A client that does not read its answers gets no more.
    const fn has_room_for_output(&self) -> bool {
        let unsent = self.sending_bytes.saturating_add(self.output.len());
        let expected = unsent.saturating_add(self.moving_bytes);
        expected < OUTPUT_BYTES_MAX && self.output.heap_bytes() < OUTPUT_HEAP_MAX_BYTES
    }

    /// Bytes would lead to something now.
    pub(super) const fn may_take(&self) -> bool {
        match &self.incoming {
            Incoming::Header { .. } => {
                let is_free = !self.is_leaving && !self.is_alone && self.under_way < self.limit;
                is_free && self.has_room_for_output()
            }
            Incoming::Data { .. } | Incoming::Dropped { .. } => true,
            Incoming::Starved { .. } | Incoming::Lent { .. } | Incoming::Paused => false,
        }
    }

    /// The client may send more: nothing is held.
    pub(super) fn wants_bytes(&self) -> bool {
        self.held.is_empty() && self.postponed.is_none() && self.may_take()
    }

    /// It takes nothing now, but an end of the connection is to be noticed. What comes instead is held.
    pub(super) fn may_look_ahead(&self) -> bool {
        let is_between = matches!(self.incoming, Incoming::Header { .. });
        let is_last = self.is_leaving || self.is_stopping;
        is_between && !is_last && self.held.is_empty() && self.postponed.is_none()
    }

    /// All further requests are refused.
    pub(super) const fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Nothing is under way any more and nothing more is taken.
    pub(super) fn is_over(&self) -> bool {
        let is_last = self.is_leaving || self.is_stopping;
        is_last && self.under_way == 0 && self.output.is_empty() && self.sending_bytes == 0
    }

    /// Its client has sent NBD_CMD_DISC and waits for no answer.
    pub(super) const fn is_heedless(&self) -> bool {
        self.is_heedless
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.sending_bytes.saturating_add(self.output.len())
    }

    /// What is to be sent; an emptied message is taken in its place.
    pub(super) fn take_message(&mut self, spare: Message) -> Message {
        std::mem::replace(&mut self.output, spare)
    }

    // ---- bytes -------------------------------------------------------------------------------

    /// The buffer that the next bytes go to, and where: to receive straight into it.
    pub(super) fn lend(&mut self) -> Option<(Buffer, std::ops::Range<usize>)> {
        let Incoming::Data { place, have, .. } = self.incoming else {
            return None;
        };
        debug_assert!(self.held.is_empty(), "what was held comes before");
        let lent = Incoming::Lent { place };
        let Incoming::Data { buffer, .. } = std::mem::replace(&mut self.incoming, lent) else {
            return None;
        };
        let range = have..buffer.len();
        Some((buffer, range))
    }

    /// Names the data that it waits for with a buffer, if it does.
    pub(super) const fn awaited_part(&self) -> Option<u64> {
        match self.incoming {
            Incoming::Data { .. } => Some(self.parts),
            Incoming::Header { .. }
            | Incoming::Starved { .. }
            | Incoming::Lent { .. }
            | Incoming::Paused
            | Incoming::Dropped { .. } => None,
        }
    }

    /// A lent buffer is back, with all of it or less, if the connection has ended.
    pub(super) fn take_back(&mut self, buffer: Buffer, is_whole: bool) -> Taken {
        let Incoming::Lent { place } = self.incoming else {
            return Taken::Nothing;
        };
        if is_whole {
            self.give_write(place, buffer.into())
        } else {
            Taken::Broken("the connection ended within the data of a write")
        }
    }

    /// Keeps what could not be taken.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
    }

    /// Takes what there is up to the next command.
    #[inline]
    pub(super) fn take(&mut self, source: &mut Source<'_>, pool: &Pool, now: Duration) -> Taken {
        loop {
            if let Some(id) = self.again.pop_front() {
                if let Some(command) = self.command_of(id) {
                    return Taken::Command(id, command);
                }
                continue;
            }
            if let Some(why) = self.broken {
                return Taken::Broken(why);
            }
            self.handle_memory(pool);
            if !self.may_take() {
                return Taken::Nothing;
            }
            // What was held came before.
            if let Some(header) = self.postponed.take() {
                match self.begin(&header, None, pool, now) {
                    Some(taken) => return taken,
                    None => continue,
                }
            }
            if !self.held.is_empty() {
                match self.take_held(pool, now) {
                    Some(taken) => return taken,
                    None => continue,
                }
            }
            let bytes = source.left();
            if bytes.is_empty() {
                return Taken::Nothing;
            }
            if let Some((used, header)) = self.header_in(bytes) {
                source.at = source.at.saturating_add(used);
                let Some(header) = header else {
                    return Taken::Nothing;
                };
                if let Some(taken) = self.begin(&header, Some(source), pool, now) {
                    return taken;
                }
                continue;
            }
            let (used, taken) = self.fill(bytes);
            source.at = source.at.saturating_add(used);
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// Takes of what was held up to the end of one header or one part.
    #[inline(never)]
    fn take_held(&mut self, pool: &Pool, now: Duration) -> Option<Taken> {
        let held = std::mem::take(&mut self.held);
        sometimes!("bytes of a client of NBD were held");
        let (bytes, _) = held.as_slices();
        let (used, taken) = match self.header_in(bytes) {
            Some((used, header)) => {
                let begun = header.and_then(|header| self.begin(&header, None, pool, now));
                (used, begun)
            }
            None => self.fill(bytes),
        };
        self.held = held;
        self.held.drain(..used);
        if self.held.is_empty() {
            self.held = VecDeque::new();
        }
        taken
    }

    /// How many of these bytes belong to a header, if one is awaited, and the header if it is whole.
    #[inline]
    fn header_in(&mut self, new: &[u8]) -> Option<(usize, Option<[u8; REQUEST_BYTES]>)> {
        let Incoming::Header { bytes, have } = &mut self.incoming else {
            return None;
        };
        if *have == 0
            && let Some(whole) = new.first_chunk()
        {
            return Some((REQUEST_BYTES, Some(*whole)));
        }
        let used = REQUEST_BYTES.saturating_sub(*have).min(new.len());
        let places = bytes.iter_mut().skip(*have);
        for (place, byte) in places.zip(new) {
            *place = *byte;
        }
        *have = have.saturating_add(used);
        let whole = (*have == REQUEST_BYTES).then_some(*bytes);
        if whole.is_some() {
            self.incoming = Incoming::header();
        }
        Some((used, whole))
    }

    /// Bytes of data: into the buffer of a write, or away. Gives how many were used.
    fn fill(&mut self, new: &[u8]) -> (usize, Option<Taken>) {
        match std::mem::replace(&mut self.incoming, Incoming::header()) {
            Incoming::Data {
                place,
                mut buffer,
                have,
            } => {
                let room = buffer.get_mut(have..).unwrap_or_default();
                let used = room.len().min(new.len());
                let (room, _) = room.split_at_mut(used);
                let (new, _) = new.split_at(used);
                room.copy_from_slice(new);
                let have = have.saturating_add(used);
                if have == buffer.len() {
                    return (used, Some(self.give_write(place, buffer.into())));
                }
                self.incoming = Incoming::Data {
                    place,
                    buffer,
                    have,
                };
                (used, None)
            }
            Incoming::Dropped { left } => {
                let used = usize::try_from(left).unwrap_or(usize::MAX).min(new.len());
                let left = left.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX));
                if left > 0 {
                    self.incoming = Incoming::Dropped { left };
                }
                (used, None)
            }
            other @ (Incoming::Header { .. }
            | Incoming::Starved { .. }
            | Incoming::Lent { .. }
            | Incoming::Paused) => {
                self.incoming = other;
                (0, None)
            }
        }
    }

    // ---- requests ----------------------------------------------------------------------------

    /// A header has come. `None`: go on with what follows it.
    #[inline]
    fn begin(
        &mut self,
        header: &[u8; REQUEST_BYTES],
        source: Option<&mut Source<'_>>,
        pool: &Pool,
        now: Duration,
    ) -> Option<Taken> {
        let Ok(mut request) = Request::parse(header) else {
            return Some(Taken::Broken("no request where one should begin"));
        };
        if request.command == Asked::Disconnect {
            self.is_leaving = true;
            sometimes!("a client of NBD disconnects");
            self.is_heedless = self.under_way > 0 || !self.output.is_empty();
            return Some(Taken::Nothing);
        }
        if request.data_bytes() > PAYLOAD_MAX_BYTES {
            return Some(Taken::Broken("more data than a request may have"));
        }
        if let Err(error) = self.check(&request) {
            sometimes!("a request of NBD is refused at its header");
            self.refuse(request.cookie, error);
            self.drop_data(request.data_bytes());
            return None;
        }
        if let Asked::WriteZeroes { no_hole, .. } = &mut request.command {
            // A unit that is not thin has none, and refuses to make one.
            *no_hole |= !self.terms.flags.can_trim();
        }
        let is_alone = self.has_one_header(&request);
        if is_alone && self.under_way > 0 {
            self.postponed = Some(*header);
            self.is_alone = true;
            return Some(Taken::Nothing);
        }
        self.is_alone = is_alone;
        let id = self.insert(Task::new(request, now));
        self.moving_bytes = self.moving_bytes.saturating_add(moving_bytes(&request, 0));
        if request.command == Asked::Write {
            return self.begin_write(id, source, pool);
        }
        let command = self.command_of(id)?;
        Some(Taken::Command(id, command))
    }

    /// Several parts of its reply have one header.
    const fn has_one_header(&self, request: &Request) -> bool {
        let is_long_read =
            matches!(request.command, Asked::Read) && request.length > PART_BYTES_MAX;
        is_long_read && (request.is_whole || !self.terms.has_structured_replies)
    }

    #[inline]
    fn check(&self, request: &Request) -> Result<(), ServerError> {
        if self.is_stopping {
            return Err(ServerError::SHUTTING_DOWN);
        }
        self.terms.check(request)?;
        // Only a hole is fast everywhere.
        if let Asked::WriteZeroes {
            no_hole: true,
            fast: true,
        } = request.command
        {
            return Err(ServerError::NOT_SUPPORTED);
        }
        Ok(())
    }

    #[inline]
    fn begin_write(
        &mut self,
        id: CommandId,
        source: Option<&mut Source<'_>>,
        pool: &Pool,
    ) -> Option<Taken> {
        let length = self.task(id)?.part_bytes(self.block_bytes);
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        if self.takes_at_once
            && let Some(source) = source
            && let Some(chunk) = source.chunk
            && len <= source.left().len()
        {
            let data = Payload::Received {
                chunk: Rc::clone(chunk),
                offset: source.at,
                len,
            };
            source.at = source.at.saturating_add(len);
            return Some(self.give_write(id.place, data));
        }
        self.await_data(id.place, pool);
        None
    }

    /// The data of the next command of a write comes now.
    fn await_data(&mut self, place: u32, pool: &Pool) {
        let Some(task) = self.task_in(place) else {
            return;
        };
        let length = task.part_bytes(self.block_bytes);
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        self.incoming = match pool.allocate_for(Need::Begin, len) {
            Ok(buffer) => Incoming::Data {
                place,
                buffer,
                have: 0,
            },
            Err(why) => Incoming::Starved { place, why },
        };
    }

    /// Memory came back.
    pub(crate) fn handle_memory(&mut self, pool: &Pool) {
        if let Incoming::Starved { place, .. } = self.incoming {
            sometimes!("a write of NBD waits for memory");
            self.await_data(place, pool);
        }
    }

    /// The data of a write is whole.
    #[inline]
    fn give_write(&mut self, place: u32, data: Payload) -> Taken {
        let block_bytes = self.block_bytes;
        self.parts = self.parts.wrapping_add(1);
        let Some(slot) = self.slots.get_mut(place as usize) else {
            return Taken::Broken("a request is gone");
        };
        let serial = slot.serial;
        let Some(task) = &mut slot.task else {
            return Taken::Broken("a request is gone");
        };
        task.data = data;
        let is_last = task.done.saturating_add(task.part_bytes(block_bytes)) >= task.request.length;
        self.incoming = if is_last {
            Incoming::header()
        } else {
            Incoming::Paused
        };
        let command = task.command(block_bytes);
        Taken::Command(CommandId { place, serial }, command)
    }

    /// So many bytes that come next are of no use.
    fn drop_data(&mut self, left: u32) {
        self.incoming = if left > 0 {
            Incoming::Dropped { left }
        } else {
            Incoming::header()
        };
    }

    // ---- the table of requests ---------------------------------------------------------------

    #[inline]
    fn insert(&mut self, task: Task) -> CommandId {
        self.under_way = self.under_way.saturating_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            let place = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.slots.push(Slot::default());
            place
        });
        let mut serial = 0;
        if let Some(slot) = self.slots.get_mut(place as usize) {
            slot.serial = slot.serial.wrapping_add(1);
            slot.task = Some(task);
            serial = slot.serial;
        }
        CommandId { place, serial }
    }

    fn task_in(&self, place: u32) -> Option<&Task> {
        self.slots.get(place as usize)?.task.as_ref()
    }

    /// The request of a command.
    #[inline]
    pub(super) fn task(&self, id: CommandId) -> Option<&Task> {
        let slot = self.slots.get(id.place as usize)?;
        slot.task.as_ref().filter(|_| slot.serial == id.serial)
    }

    #[inline]
    pub(super) fn task_mut(&mut self, id: CommandId) -> Option<&mut Task> {
        let slot = self.slots.get_mut(id.place as usize)?;
        slot.task.as_mut().filter(|_| slot.serial == id.serial)
    }

    #[inline]
    fn command_of(&mut self, id: CommandId) -> Option<Command> {
        let block_bytes = self.block_bytes;
        Some(self.task_mut(id)?.command(block_bytes))
    }

    #[inline]
    fn remove(&mut self, id: CommandId) -> Option<Task> {
        let slot = self.slots.get_mut(id.place as usize)?;
        let task = slot.task.take_if(|_| slot.serial == id.serial)?;
        self.free.push(id.place);
        debug_assert!(self.under_way > 0, "{id:?} was not counted");
        self.under_way = self.under_way.saturating_sub(1);
        let moving = moving_bytes(&task.request, task.done);
        self.moving_bytes = self.moving_bytes.saturating_sub(moving);
        if self.under_way == 0 {
            self.is_alone = false;
        }
        Some(task)
    }

    // ---- the end of commands -----------------------------------------------------------------

    /// A command has ended well, with this for the client.
    #[inline]
    pub(super) fn handle_good(&mut self, id: CommandId, data: Payload) {
        let block_bytes = self.block_bytes;
        let Some(task) = self.task_mut(id) else {
            return;
        };
        let (request, done) = (task.request, task.done);
        let part = task.part_bytes(block_bytes);
        let goes_on = task.advance(block_bytes);
        if request.command == Asked::Flush && std::mem::take(&mut self.is_report_kept) {
            self.fail(id, ServerError::CACHE_LOST);
            return;
        }
        if request.command == Asked::Read {
            self.moving_bytes = self.moving_bytes.saturating_sub(part as usize);
        }
        match request.command {
            Asked::Read if data.len() != part as usize => {
                self.fail(id, ServerError::IO);
                return;
            }
            Asked::Read => {
                let is_last = !goes_on;
                self.reply_read(&request, (done, part, is_last), data);
            }
            Asked::BlockStatus { .. } => {
                let extents = extents(
                    data.as_slice().unwrap_or_default(),
                    block_bytes,
                    request.length,
                );
                if extents.is_empty() {
                    self.fail(id, ServerError::IO);
                    return;
                }
                let reply = block_status_chunk(request.cookie, &extents);
                self.output.push_bytes(&reply);
                self.remove(id);
                return;
            }
            Asked::Write
            | Asked::Flush
            | Asked::Trim
            | Asked::WriteZeroes { .. }
            | Asked::Disconnect
            | Asked::Unknown(_) => {}
        }
        if !goes_on {
            self.remove(id);
            if request.command != Asked::Read {
                self.acknowledge(request.cookie);
            }
        } else if request.command == Asked::Write {
            // Its data is next on the connection.
            self.incoming = Incoming::Starved {
                place: id.place,
                why: NoRoom::Share,
            };
        } else {
            self.again.push_back(id);
        }
    }

    /// A part of a read: how much came before it, and how much it is.
    #[inline]
    fn reply_read(
        &mut self,
        request: &Request,
        (done, part, is_last): (u32, u32, bool),
        data: Payload,
    ) {
        let is_alone = self.has_one_header(request);
        if !is_alone || done == 0 {
            let cookie = request.cookie;
            if !self.terms.has_structured_replies {
                self.output.push_array(&simple_reply(cookie, None));
            } else if is_alone {
                let header = data_chunk(cookie, true, request.offset, request.length);
                self.output.push_array(&header);
            } else {
                let position = request.offset.saturating_add(u64::from(done));
                let header = data_chunk(cookie, is_last, position, part);
                self.output.push_array(&header);
            }
        }
        let len = data.len();
        let index = self.output.push_payload(data);
        self.output.push_part(index, 0, len);
    }

    /// A command has ended badly.
    pub(super) fn handle_failure(&mut self, id: CommandId, status: scsi::Status, sense: &[u8]) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        // A client need not heed that a trim has failed.
        let is_kept = task.is_flushing() && is_report(sense);
        let verdict = verdict(status, sense, task.changes());
        let may_try_again = matches!(verdict, Verdict::Again(_)) && task.may_try_again();
        self.is_report_kept |= is_kept;
        match verdict {
            Verdict::Again(_) if may_try_again => self.again.push_back(id),
            Verdict::Again(error) | Verdict::Fail(error) => self.fail(id, error),
        }
    }

    /// A command has ended without an answer, because somebody has aborted it.
    pub(crate) fn handle_abort(&mut self, id: CommandId) {
        self.handle_failure(id, scsi::Status::TaskAborted, &[]);
    }

    /// A request has failed. What its client sends for it is dropped.
    fn fail(&mut self, id: CommandId, error: ServerError) {
        let block_bytes = self.block_bytes;
        let Some(task) = self.remove(id) else {
            return;
        };
        let part = task.part_bytes(block_bytes);
        if task.request.command == Asked::Write && matches!(self.incoming, Incoming::Paused) {
            sometimes!("a long write of NBD fails before its end");
            let left = task.request.length.saturating_sub(task.done);
            self.drop_data(left.saturating_sub(part));
        }
        if task.done > 0 && self.has_one_header(&task.request) {
            // The header said that all is well.
            self.broken = Some("a read failed whose reply had begun");
            return;
        }
        self.refuse(task.request.cookie, error);
    }

    fn acknowledge(&mut self, cookie: u64) {
        if self.terms.has_structured_replies {
            self.output.push_array(&none_chunk(cookie));
        } else {
            self.output.push_array(&simple_reply(cookie, None));
        }
    }

    fn refuse(&mut self, cookie: u64, error: ServerError) {
        match error {
            ServerError::CACHE_LOST if self.terms.has_structured_replies => {
                sometimes!("a client of NBD is told of a lost cache");
                self.output.push_array(&cache_lost_chunk(cookie));
            }
            error if self.terms.has_structured_replies => {
                self.output.push_array(&error_chunk(cookie, error));
            }
            error => {
                self.output.push_array(&simple_reply(cookie, Some(error)));
            }
        }
    }
}

/// What an export of a unit can do.
pub(super) const fn flags_of(is_thin: bool, is_read_only: bool) -> TransmissionFlags {
    type Flags = TransmissionFlags;
    let all = Flags::HAS_FLAGS
        .with(Flags::SEND_FLUSH)
        .with(Flags::SEND_FUA)
        .with(Flags::SEND_DF)
        .with(Flags::SEND_WRITE_ZEROES)
        .with(Flags::CAN_MULTI_CONN);
    let all = if is_thin {
        all.with(Flags::SEND_TRIM).with(Flags::SEND_FAST_ZERO)
    } else {
        all
    };
    if is_read_only {
        all.with(Flags::READ_ONLY)
    } else {
        all
    }
}

const _: () = assert!(PAYLOAD_MAX_BYTES >= PART_BYTES_MAX);
