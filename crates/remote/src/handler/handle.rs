//! A handler as one core sees it: its connection, and the commands that wait for it or are in its ring.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use handler::{CDB_BYTES_MAX, Command, Completion, DATA_BYTES, Ring, SLOTS, Violation};
use memory::{Buffer, Message, Payload};
use store::{
    Backstore, Capabilities, DeviceAnswer, DeviceRequest, Durability, HelperAnswer,
    HelperOperation, HelperResult, IoAnswer, IoFailure, IoRequest, IoTag, Outlet, PartTag,
    SocketResult, SocketTag, SocketWork, Submitted, Waker,
};

use super::meet::Area;
use super::options::MEET_MAX;
use super::shared::{Made, Shared};
use crate::device::handle::{
    DURABILITY, NOT_SUPPORTED, REQUESTS_MAX, answer, capabilities, command_of,
};
use crate::device::shared::{BYTES_MAX, Ended, SHARE_MAX, reports_attentions, unseen};
use crate::device::turns::Turns;
use crate::lock;
use crate::scsi::command::{CHECK_CONDITION, GOOD, KEY_ATTENTION, Sense};

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of a timer: to connect, or the outage whose end it is.
const TIMER_CONNECT: u64 = 0;
/// The numbers of the operations on a socket.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
/// Ends of commands that are taken in one go: a handler that writes them as fast as they are taken must not hold the
/// core.
const ENDS_MAX: usize = 2 * SLOTS;
/// ABORTED COMMAND, I/O PROCESS TERMINATED: the handler is gone with the command.
const ABORTED: (u8, (u8, u8)) = (0x0b, (0x00, 0x06));

/// A command that was not handed over.
#[derive(Debug)]
struct Waiting {
    tag: IoTag,
    request: Box<DeviceRequest>,
}

/// A command that the handler has.
#[derive(Debug)]
struct Open {
    tag: IoTag,
    buffer: Option<Buffer>,
    bytes: u64,
    nexus: u64,
    opcode: u8,
    /// Nobody sees its answer.
    is_cancelled: bool,
}

/// A connection that takes commands.
#[derive(Debug)]
struct Up {
    socket: SocketTag,
    ring: Ring<Area>,
    life: u64,
    is_sending: bool,
    /// The handler is owed a byte when the one that is being sent has gone.
    owes_wake: bool,
}

impl Up {
    /// Sends the byte that the handler is owed. One at a time is enough.
    fn send_wake(&mut self, outlet: &mut Outlet) {
        if self.owes_wake && !self.is_sending {
            (self.owes_wake, self.is_sending) = (false, true);
            let mut message = Message::default();
            message.push_bytes(&[0]);
            outlet.on_socket(self.socket, SEND, SocketWork::Send(message));
        }
    }
}

#[derive(Debug)]
enum Line {
    /// Until a timer.
    Down,
    Connecting,
    Up(Box<Up>),
}

/// How long there has been no connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    Up,
    /// Since the outage of this number began; what comes waits.
    Outage(u64),
    /// For too long; what comes fails.
    Lost,
}

/// A handler as one core sees it.
#[derive(Debug)]
pub(super) struct HandlerHandle {
    shared: Arc<Shared>,
    number: usize,
    capabilities: Capabilities,
    waker: Option<Waker>,
    line: Line,
    made: Arc<Mutex<Option<Made>>>,
    sockets: u64,
    reach: Reach,
    outages: u64,
    waiting: Turns<Waiting>,
    /// By slot of the ring.
    open: Vec<Option<Open>>,
    /// Data of all that wait or are open.
    bytes: u64,
    /// How many wait for a connection, as it was noted last.
    held: u64,
}

fn bytes_of(request: &DeviceRequest) -> u64 {
    request.data_out.len().max(request.data_in_bytes) as u64
}

impl HandlerHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            number: shared.next_number(),
            capabilities: capabilities(),
            waker: None,
            line: Line::Down,
            made: Arc::default(),
            sockets: 0,
            reach: Reach::Up,
            outages: 0,
            waiting: Turns::default(),
            open: (0..SLOTS).map(|_| None).collect(),
            bytes: 0,
            held: 0,
            shared,
        }
    }

    // ---- the connection ----------------------------------------------------------------------

    fn connect(&mut self, outlet: &mut Outlet) {
        if !matches!(self.line, Line::Down) {
            return;
        }
        self.line = Line::Connecting;
        let (shared, place) = (Arc::clone(&self.shared), Arc::clone(&self.made));
        let operation = HelperOperation {
            name: "connect to a handler",
            work: Box::new(move || shared.connect(&place)),
        };
        outlet.help(PartTag::own(0), operation);
    }

    /// A helper has connected.
    fn link(&mut self, made: Made, descriptor: store::Descriptor, outlet: &mut Outlet) {
        let Made { ring, life } = made;
        self.line = Line::Down;
        if life != self.shared.life() {
            // It may have been made before the loss of another.
            self.connect(outlet);
            return;
        }
        self.sockets += 1;
        let socket = SocketTag(self.sockets);
        outlet.open_socket(socket, descriptor);
        outlet.on_socket(socket, RECEIVE, SocketWork::Receive);
        self.line = Line::Up(Box::new(Up {
            socket,
            ring,
            life,
            is_sending: false,
            owes_wake: false,
        }));
        self.shared.begin(life);
        self.set_reach(Reach::Up, outlet);
        if life > 0 {
            self.refuse_what_waits(outlet);
        }
        // The look has left the ring awake.
        self.collect(outlet);
    }

    /// What waits was sent in ignorance of a loss: one command reports it, the others come again.
    fn refuse_what_waits(&mut self, outlet: &mut Outlet) {
        for Waiting { tag, request } in self.waiting.drain() {
            self.bytes -= bytes_of(&request);
            let owed = match reports_attentions(&request.cdb) {
                true => self.shared.take_owed(request.nexus),
                false => None,
            };
            let ended = owed.map_or_else(Ended::busy, Ended::attention);
            outlet.answer(tag, Ok(answer(ended, None)));
        }
    }

    /// The connection is of no more use: what the handler has ends, what it has not waits.
    fn lose(&mut self, reason: &str, outlet: &mut Outlet) {
        let Line::Up(up) = std::mem::replace(&mut self.line, Line::Down) else {
            return;
        };
        outlet.close_socket(up.socket);
        self.shared.end(up.life, reason);
        for open in self.open.iter_mut().filter_map(Option::take) {
            self.bytes -= open.bytes;
            let ended = Ended::check(ABORTED.0, ABORTED.1);
            outlet.answer(open.tag, Ok(answer(ended, None)));
        }
        self.begin_outage(self.shared.options.retry, outlet);
        outlet.set_timer(TIMER_CONNECT, PAUSE);
    }

    /// There is no connection. What comes waits so long.
    fn begin_outage(&mut self, retry: Duration, outlet: &mut Outlet) {
        if retry.is_zero() {
            self.set_reach(Reach::Lost, outlet);
            return;
        }
        self.outages += 1;
        self.set_reach(Reach::Outage(self.outages), outlet);
        outlet.set_timer(self.outages, retry);
    }

    fn set_reach(&mut self, reach: Reach, outlet: &mut Outlet) {
        let was_lost = std::mem::replace(&mut self.reach, reach) == Reach::Lost;
        let is_lost = reach == Reach::Lost;
        if was_lost != is_lost && self.shared.note_lost(self.number, is_lost) {
            outlet.report_reach(was_lost);
        }
        if is_lost {
            for Waiting { tag, request } in self.waiting.drain() {
                self.bytes -= bytes_of(&request);
                outlet.answer(tag, Err(IoFailure::NotReady));
            }
        }
    }

    /// The connection, unless that of another core is lost, and this one with it.
    fn up(&mut self, outlet: &mut Outlet) -> Option<&mut Up> {
        let Line::Up(up) = &self.line else {
            return None;
        };
        if up.life != self.shared.life() {
            self.lose("a connection of another core is lost", outlet);
        }
        match &mut self.line {
            Line::Up(up) => Some(up),
            Line::Down | Line::Connecting => None,
        }
    }

    /// After something was put into the ring: sends the handler a byte if it waits for one.
    fn wake_handler(&mut self, outlet: &mut Outlet) {
        if let Line::Up(up) = &mut self.line {
            up.owes_wake |= up.ring.must_wake();
            up.send_wake(outlet);
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Whether a command can go into the ring when there is room.
    fn may_begin(&self) -> bool {
        let under_way = match &self.line {
            Line::Up(up) => up.ring.under_way(),
            Line::Down | Line::Connecting => return false,
        };
        under_way == 0 || !self.shared.known.is_sequential()
    }

    /// Hands a command over; it comes back where there is no room.
    fn hand_over(&mut self, waiting: Waiting) -> Result<(), Waiting> {
        let is_free = self.may_begin();
        let Line::Up(up) = &mut self.line else {
            return Err(waiting);
        };
        let Waiting { tag, mut request } = waiting;
        let copied;
        let data_out = match request.data_out.as_slice() {
            Some(bytes) => bytes,
            None => {
                copied = request.data_out.to_vec();
                &copied
            }
        };
        let command = Command {
            cdb: &request.cdb,
            nexus: request.nexus,
            data_out,
            // It fits: longer ones were refused.
            data_in_bytes: u32::try_from(request.data_in_bytes).unwrap_or(0),
        };
        let slot = if is_free { up.ring.put(&command) } else { None };
        let Some(place) = slot.and_then(|slot| self.open.get_mut(slot)) else {
            return Err(Waiting { tag, request });
        };
        *place = Some(Open {
            tag,
            buffer: request.buffer.take(),
            bytes: bytes_of(&request),
            nexus: request.nexus,
            opcode: request.cdb.first().copied().unwrap_or_default(),
            is_cancelled: false,
        });
        Ok(())
    }

    fn fill(&mut self, outlet: &mut Outlet) {
        let before = self.waiting.len();
        while self.may_begin()
            && let Some(next) = self.waiting.take()
        {
            let nexus = next.request.nexus;
            let is_asked = reports_attentions(&next.request.cdb);
            if is_asked && self.shared.telling.keeps_out(nexus) {
                self.bytes -= bytes_of(&next.request);
                outlet.answer(next.tag, Ok(answer(Ended::busy(), None)));
                continue;
            }
            if let Err(next) = self.hand_over(next) {
                self.waiting.put_back(nexus, next);
                break;
            }
        }
        if self.waiting.len() < before {
            self.wake_handler(outlet);
        }
    }

    /// Hands over what waits, in turn, as far as there is room.
    fn hand_out(&mut self, outlet: &mut Outlet) {
        if self.waiting.len() > 0 && self.up(outlet).is_some() {
            self.fill(outlet);
        }
        let held = match &self.line {
            Line::Up(_) => 0,
            Line::Down | Line::Connecting => self.waiting.len() as u64,
        };
        if std::mem::replace(&mut self.held, held) != held {
            self.shared.note_held(self.number, held);
        }
    }

    /// Takes the ends of commands, until there are none or it is the turn of others.
    fn collect(&mut self, outlet: &mut Outlet) {
        let mut budget = ENDS_MAX;
        loop {
            let Some(up) = self.up(outlet) else {
                return;
            };
            if budget == 0 {
                self.waker.iter().for_each(Waker::wake);
                return;
            }
            budget -= 1;
            match up.ring.take() {
                Ok(Some(completion)) => self.end(completion, outlet),
                Ok(None) if up.ring.sleep() => return,
                Ok(None) => {}
                Err(violation) => {
                    self.break_off(violation, outlet);
                    return;
                }
            }
        }
    }

    fn break_off(&mut self, violation: Violation, outlet: &mut Outlet) {
        let reason = format!("the handler broke the protocol: {violation}");
        self.lose(&reason, outlet);
    }

    fn end(&mut self, completion: Completion, outlet: &mut Outlet) {
        let Line::Up(up) = &mut self.line else {
            return;
        };
        let open = self.open.get_mut(completion.slot).and_then(Option::take);
        let Some(mut open) = open else {
            debug_assert!(false, "{completion:?}");
            return;
        };
        self.bytes -= open.bytes;
        let memory = open.buffer.as_deref_mut();
        let length = up.ring.end(&completion, memory.unwrap_or_default());
        let (status, sense) = (completion.status, completion.sense);
        self.note(&open, status, &sense, outlet);
        let data = match open.buffer {
            Some(buffer) if length == buffer.len() => Payload::from(buffer),
            Some(buffer) => Payload::from(buffer).into_shareable().part(0, length),
            None => Payload::Empty,
        };
        let given = DeviceAnswer {
            status,
            sense,
            data,
            transfer_bytes: completion.transfer_bytes.into(),
        };
        outlet.answer(open.tag, Ok(IoAnswer::Device(Box::new(given))));
    }

    /// What the others have to know of the end of a command.
    fn note(&mut self, open: &Open, status: u8, sense: &[u8], outlet: &mut Outlet) {
        let sensed = Sense::parse(sense);
        let is_attention = status == CHECK_CONDITION && sensed.key == KEY_ATTENTION;
        if open.is_cancelled {
            let done = unseen(open.opcode).filter(|_| status == GOOD);
            let said = is_attention.then_some((sensed.code, sensed.qualifier));
            said.or(done)
                .into_iter()
                .for_each(|code| self.shared.owe(code));
        } else if is_attention {
            self.shared.telling.begin(open.nexus);
            // It was sent in ignorance of it.
            self.refuse_what_waits(outlet);
        }
    }

    /// What is answered to a command at once, if it does not go to the handler.
    fn refuse(&mut self, request: &DeviceRequest, outlet: &mut Outlet) -> Option<Submitted> {
        let is_too_long =
            bytes_of(request) > DATA_BYTES as u64 || request.cdb.len() > CDB_BYTES_MAX;
        if is_too_long {
            return Some(Submitted::Done(Err(NOT_SUPPORTED)));
        }
        let is_up = self.up(outlet).is_some();
        if self.reach == Reach::Lost {
            return Some(Submitted::Done(Err(IoFailure::NotReady)));
        }
        if self.waiting.len_of(request.nexus) >= SHARE_MAX {
            return Some(Submitted::Done(Ok(answer(Ended::busy(), None))));
        }
        if !is_up || !reports_attentions(&request.cdb) {
            return None;
        }
        if let Some(attention) = self.shared.take_owed(request.nexus) {
            self.refuse_what_waits(outlet);
            let ended = Ended::attention(attention);
            return Some(Submitted::Done(Ok(answer(ended, None))));
        }
        let is_kept_out = self.shared.telling.keeps_out(request.nexus);
        is_kept_out.then(|| Submitted::Done(Ok(answer(Ended::busy(), None))))
    }
}

impl Backstore for HandlerHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        DURABILITY
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        let waker = make_waker();
        self.shared.add(self.number, waker.clone());
        self.waker = Some(waker);
        // It was reached when it was opened.
        self.begin_outage(self.shared.options.retry.max(MEET_MAX), outlet);
        self.connect(outlet);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let request = match command_of(request) {
            Ok(request) => request,
            Err(answer) => return answer,
        };
        if let Some(answer) = self.refuse(&request, outlet) {
            return answer;
        }
        let bytes = bytes_of(&request);
        let is_too_much = self.bytes > 0 && self.bytes + bytes > BYTES_MAX;
        if self.waiting.len() >= REQUESTS_MAX || is_too_much {
            outlet.give_back(IoRequest::Device(request));
            return Submitted::Taken;
        }
        self.bytes += bytes;
        let waiting = Waiting { tag, request };
        let direct = match self.waiting.len() {
            0 => self.hand_over(waiting),
            _ => Err(waiting),
        };
        match direct {
            Ok(()) => self.wake_handler(outlet),
            Err(waiting) => {
                self.waiting.push(waiting.request.nexus, waiting);
                self.hand_out(outlet);
            }
        }
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        // One that the handler has is answered when it has ended.
        if let Some(waiting) = self.waiting.remove(|waiting| waiting.tag == tag) {
            self.bytes -= bytes_of(&waiting.request);
            outlet.answer(tag, Err(IoFailure::Cancelled));
            self.hand_out(outlet);
            return;
        }
        let mut open = self.open.iter_mut().flatten();
        if let Some(open) = open.find(|open| open.tag == tag) {
            open.is_cancelled = true;
        }
    }

    fn handle_helper_result(&mut self, _part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let made = lock(&self.made).take();
        match (result, made) {
            (Ok(HelperAnswer::Socket(descriptor)), Some(made)) => {
                self.link(made, descriptor, outlet);
            }
            (Ok(HelperAnswer::Socket(_) | HelperAnswer::Done) | Err(_), _) => {
                self.line = Line::Down;
                outlet.set_timer(TIMER_CONNECT, PAUSE);
            }
        }
        self.hand_out(outlet);
    }

    fn handle_socket(
        &mut self,
        socket: SocketTag,
        _number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        let Line::Up(up) = &mut self.line else {
            return;
        };
        if up.socket != socket {
            return;
        }
        match result {
            SocketResult::Received(Ok((_, count))) if count > 0 => {
                outlet.on_socket(socket, RECEIVE, SocketWork::Receive);
                self.collect(outlet);
            }
            SocketResult::Sent { result: Ok(()), .. } => {
                up.is_sending = false;
                up.send_wake(outlet);
            }
            SocketResult::Received(_)
            | SocketResult::ReceivedExact { .. }
            | SocketResult::Sent { .. } => {
                // What it had ended before is ended.
                self.collect(outlet);
                self.lose("the handler closed the connection", outlet);
            }
        }
        self.hand_out(outlet);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        self.collect(outlet);
        self.hand_out(outlet);
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        if number == TIMER_CONNECT {
            self.connect(outlet);
        } else if self.reach == Reach::Outage(number) {
            self.set_reach(Reach::Lost, outlet);
        }
        self.hand_out(outlet);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

impl Drop for HandlerHandle {
    fn drop(&mut self) {
        self.shared.remove(self.number);
    }
}
