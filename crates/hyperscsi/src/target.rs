//! A session as its target has it: requests come out once, replies go in.

use std::collections::VecDeque;
use std::time::Duration;

use crate::bytes::size;
use crate::command::{Command, Function, Outcome, Reply, Request};
use crate::data::Data;
use crate::device::{Device, Inquiry, Opening};
use crate::keys::{Keys, Side};
use crate::link::{Arrival, Counters, EndReason, Frame, Held, Link, Settings, Terms};
use crate::outgoing::Outgoing;
use crate::pdu::{HEADER_BYTES, Header, Level, Opcode};

/// Names a request of a session. Never given twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskId {
    /// Its place in the table of commands of the session: small numbers, used again.
    pub slot: u16,
    /// How often the place was used.
    pub sequence: u64,
}

/// What a client wants.
#[derive(Debug, Eq, PartialEq)]
pub enum TargetEvent {
    /// A command. It comes once, and wants one reply.
    Command {
        /// Its name.
        id: TaskId,
        /// The device.
        device: u16,
        /// What it is.
        command: Command,
        /// Its data.
        data: Data,
    },
    /// A task management function. It comes once, and wants one reply.
    Management {
        /// Its name.
        id: TaskId,
        /// The device.
        device: u16,
        /// What it is.
        function: Function,
        /// The command that it names, if that waits for its reply.
        task: Option<TaskId>,
    },
    /// A device was opened at this level.
    Opened {
        /// The device.
        device: u16,
        /// Of all its PDUs.
        level: Level,
    },
    /// The session is over. Commands without a reply need none.
    Ended(EndReason),
}

/// What a slot is busy with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Busy {
    sequence: u64,
    device: u16,
    level: Level,
    /// What its client has room for.
    data_in_bytes: usize,
}

/// A session.
#[derive(Debug)]
pub struct TargetSession<D> {
    link: Link<D>,
    devices: Vec<Device>,
    busy: Vec<Option<Busy>>,
    /// Each slot has one request at most, and a client one question at a time; opening is bounded by the devices.
    events: VecDeque<TargetEvent>,
    /// Room for what a frame completes, empty.
    arrivals: Vec<Arrival>,
    /// A question for the table from this place on, with its number, which is answered when a frame may leave: a frame
    /// can have many.
    list: Option<(u32, u16)>,
    ended: bool,
}

impl<D: AsRef<[u8]> + Default> TargetSession<D> {
    /// A session that a login has led to.
    pub(crate) fn new(
        now: Duration,
        keys: &Keys,
        terms: Terms,
        settings: Settings,
        devices: Vec<Device>,
    ) -> Self {
        Self {
            link: Link::new(now, Side::Target, keys, terms, settings),
            busy: vec![None; usize::from(terms.slots)],
            devices,
            events: VecDeque::new(),
            arrivals: Vec::new(),
            list: None,
            ended: false,
        }
    }

    /// The frame that its peer gets without trying, behind the Ethernet header.
    #[must_use]
    pub const fn frame_bytes(&self) -> u16 {
        self.link.base_bytes()
    }

    /// Its terms.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.link.terms
    }

    /// Takes a frame from behind its Ethernet header, of the client's address, with a tag of this session.
    pub fn handle_frame(&mut self, now: Duration, frame: &[u8]) {
        self.handle(now, Frame::passing(frame));
    }

    /// The same for a frame that is there until its events are taken, which the caller does before it handles another
    /// one: data of commands may be in it ([`Data::is_in_frame`]).
    pub fn handle_lent_frame(&mut self, now: Duration, frame: &[u8]) {
        self.handle(now, Frame::lent(frame));
    }

    fn handle(&mut self, now: Duration, frame: Frame<'_>) {
        if self.ended {
            return;
        }
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.link.receive(now, frame.bytes, &mut arrivals);
        for arrival in arrivals.drain(..) {
            // What is behind the end of a session is for nobody.
            if self.link.ended.is_some() {
                break;
            }
            match arrival {
                Arrival::Pdu {
                    slot,
                    sequence,
                    header,
                    level,
                    pdu,
                } => {
                    let id = TaskId { slot, sequence };
                    self.handle_request(now, id, (&header, level), pdu, frame);
                }
                Arrival::Control(opcode, body) => self.handle_control(opcode, &body),
            }
        }
        self.arrivals = arrivals;
        self.note_end();
    }

    fn handle_request(
        &mut self,
        now: Duration,
        id: TaskId,
        (header, level): (&Header, Level),
        pdu: Held,
        frame: Frame<'_>,
    ) {
        // Its client has used the tag again, so it has the last reply.
        self.link.drop_outgoing(id.slot);
        let decoded = header.body(frame.pdu(&pdu)).and_then(Request::decode);
        let decoded = decoded.map(|(request, data)| (request, data.len()));
        let data_in_bytes = match &decoded {
            Some((Request::Command(command), _)) => size(command.data_in_bytes),
            Some((Request::Management(_), _)) | None => 0,
        };
        let device = header.device;
        if let Some(place) = self.busy.get_mut(usize::from(id.slot)) {
            *place = Some(Busy {
                sequence: id.sequence,
                device,
                level,
                data_in_bytes,
            });
        }
        // It may ask for more now than when it was opened.
        let is_open = |known: &Device| known.handle == device && known.level <= level;
        if !self.devices.iter().any(is_open) {
            self.respond(now, id, Reply::of(Outcome::NotOpen), D::default());
            return;
        }
        match decoded {
            Some((Request::Command(command), length)) => {
                let data = self.link.data(frame, pdu, header, length);
                self.events.push_back(TargetEvent::Command {
                    id,
                    device,
                    command,
                    data,
                });
            }
            Some((Request::Management(function), _)) => {
                let task = self.task_of(function);
                self.events.push_back(TargetEvent::Management {
                    id,
                    device,
                    function,
                    task,
                });
            }
            None => self.respond(now, id, Reply::of(Outcome::Malformed), D::default()),
        }
    }

    /// The task that a function names.
    fn task_of(&self, function: Function) -> Option<TaskId> {
        let name = match function {
            Function::AbortTask(name) => name,
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                return None;
            }
        };
        let slot = self.link.slot_of_task(name)?;
        let busy = self.busy.get(usize::from(slot))?.as_ref()?;
        let is_it = self.link.task_name(slot, busy.sequence) == name;
        is_it.then_some(TaskId {
            slot,
            sequence: busy.sequence,
        })
    }

    /// Answers a request, once. A command that was aborted is answered, too, with [`Outcome::Aborted`]: it frees its
    /// slot. Data that its client has no room for are left out by the caller.
    pub fn respond(&mut self, now: Duration, id: TaskId, reply: Reply, data: D) {
        let place = self.busy.get_mut(usize::from(id.slot));
        let Some(busy) = place.and_then(|place| place.take_if(|busy| busy.sequence == id.sequence))
        else {
            // The session that it was of is over, or it was answered.
            return;
        };
        debug_assert!(
            data.as_ref().len() <= busy.data_in_bytes,
            "more data than there is room for"
        );
        let mut head = self.link.head();
        reply.encode_to(data.as_ref().len(), &mut head);
        let length = head.len() - HEADER_BYTES + data.as_ref().len();
        let header = self
            .link
            .header(Opcode::Reply, busy.device, id.sequence, length);
        let pdu = Outgoing::new(header, id.sequence, busy.level, head, data);
        self.link.submit(now, id.slot, pdu);
        self.link.expect(id.slot);
    }

    fn handle_control(&mut self, opcode: Opcode, body: &[u8]) {
        match opcode {
            Opcode::Negotiation => {
                let answer = match Inquiry::decode(body) {
                    Some(Inquiry::List { id, first }) => {
                        self.link.control.clear();
                        self.list = Some((id, first));
                        return;
                    }
                    Some(Inquiry::Open { id, handle, level }) => {
                        let opening = self.open(handle, level);
                        Inquiry::Opened {
                            id,
                            handle,
                            opening,
                        }
                    }
                    Some(Inquiry::Listed { .. } | Inquiry::Opened { .. }) | None => return,
                };
                self.answer(Opcode::NegotiationAnswer, answer.encode());
            }
            Opcode::Disconnect => {
                self.answer(Opcode::DisconnectAnswer, Vec::new());
                self.link.end(EndReason::Disconnected);
            }
            Opcode::Request
            | Opcode::Reply
            | Opcode::Discovery
            | Opcode::DiscoveryAnswer
            | Opcode::NegotiationAnswer
            | Opcode::DisconnectAnswer
            | Opcode::Probe
            | Opcode::Ack => {}
        }
    }

    /// Opens a device, if its client asks for as much as its server does.
    fn open(&mut self, handle: u16, level: Level) -> Opening {
        let Some(device) = self.devices.iter().find(|device| device.handle == handle) else {
            return Opening::Unknown;
        };
        if level < device.level {
            return Opening::TooLow(device.level);
        }
        match self.link.levels.get(&handle) {
            Some(&open) if open != level => Opening::OtherLevel(open),
            Some(_) => Opening::Open(level),
            None => {
                self.link.levels.insert(handle, level);
                self.events.push_back(TargetEvent::Opened {
                    device: handle,
                    level,
                });
                Opening::Open(level)
            }
        }
    }

    /// One answer waits at a time: what comes faster is asked again.
    fn answer(&mut self, opcode: Opcode, body: Vec<u8>) {
        self.list = None;
        self.link.control.clear();
        self.link.control.push_back((opcode, body));
    }

    /// Devices that the client sees from now on. Commands on one that is gone are not ended here.
    pub fn set_devices(&mut self, devices: Vec<Device>) {
        self.devices = devices;
    }

    /// The devices that are open, each with its level.
    pub fn levels(&self) -> impl Iterator<Item = (u16, Level)> {
        self.link
            .levels
            .iter()
            .map(|(&device, &level)| (device, level))
    }

    /// No request waits for its reply, and no reply for its acknowledgement.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.events.is_empty() && self.busy.iter().all(Option::is_none) && self.link.is_idle()
    }

    /// Grants so many frames from now on. What is under way stays so.
    pub fn set_window(&mut self, frames: u16) {
        self.link.set_window(frames);
    }

    /// When [`Self::handle_deadline`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.link.deadline()
    }

    /// Time has passed.
    pub fn handle_deadline(&mut self, now: Duration) {
        self.link.handle_deadline(now);
        self.note_end();
    }

    /// Ends the session. A frame for its client may be left to send.
    pub fn close(&mut self, reason: EndReason) {
        if self.link.ended.is_none() {
            self.answer(Opcode::Disconnect, vec![0]);
            self.link.end(reason);
        }
        self.note_end();
    }

    fn note_end(&mut self) {
        if let Some(reason) = self.link.ended
            && !self.ended
        {
            self.ended = true;
            self.busy.fill(None);
            self.events.push_back(TargetEvent::Ended(reason));
        }
    }

    /// Takes back data that nobody needs any more: its memory is used for what comes next.
    pub fn recycle(&mut self, data: Data) {
        self.link.recycle(data.into_room());
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    /// Writes the next frame to send, from behind its Ethernet header, and gives its length. `to` has room for the
    /// largest.
    pub fn poll_frame(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        if let Some((id, first)) = self.list.take().filter(|_| !self.ended) {
            let page = Inquiry::page(&self.devices, first);
            let listed = Inquiry::Listed { id, page };
            self.answer(Opcode::NegotiationAnswer, listed.encode());
        }
        self.link.poll_frame(now, to)
    }

    /// What is under way, for messages of tests.
    #[cfg(test)]
    pub(crate) fn state(&self) -> String {
        self.link.state()
    }

    /// See there.
    #[cfg(test)]
    pub(crate) fn check(&self) -> usize {
        self.link.check()
    }

    /// Memory that was made for heads of PDUs.
    #[cfg(test)]
    pub(crate) const fn heads_made(&self) -> usize {
        self.link.heads_made
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.link.counters
    }
}
