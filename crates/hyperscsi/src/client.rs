//! A session as its client has it: commands go in, answers come out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::bytes::size;
use crate::command::{Command, Function, Reply, Request, TaskName};
use crate::data::Data;
use crate::device::{Inquiry, Opening, Page};
use crate::keys::{Keys, Side};
use crate::limits::{DATA_MAX_BYTES, PROBE_MAX};
use crate::link::{Arrival, Counters, EndReason, Frame, Held, Link, Settings, Terms};
use crate::outgoing::Outgoing;
use crate::pdu::{HEADER_BYTES, Header, Level, Opcode};

/// Commands that wait for a slot.
pub const WAITING_MAX: usize = 1024;
/// A question is asked again after so long, at first.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What happened in a session.
#[derive(Debug, Eq, PartialEq)]
pub enum ClientEvent {
    /// A command or a function is over.
    Answer {
        /// The caller's name of it.
        token: u64,
        /// How it ended.
        reply: Reply,
        /// Its data.
        data: Data,
    },
    /// A command or a function has no answer, because the session is over. It may have had any part of its effect, if
    /// it `was_sent`.
    Lost {
        /// The caller's name of it.
        token: u64,
        /// Its target may have seen it.
        was_sent: bool,
    },
    /// A part of the table of devices.
    Devices(Page),
    /// Whether a device is open now.
    Opening {
        /// The device.
        device: u16,
        /// Whether it is.
        opening: Opening,
    },
    /// The session is over. All commands have been answered or lost.
    Ended(EndReason),
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// Too many wait.
    #[error("{WAITING_MAX} commands wait for their turn, which is the limit")]
    Full,
    /// Its device is not open.
    #[error("device {0} is not open; open it first")]
    NotOpen(u16),
    /// Its data are too long, or not as long as it says; or its CDB is not one.
    #[error("{0} bytes of data do not fit the command; the limit is {DATA_MAX_BYTES}")]
    Length(usize),
    /// The session is over.
    #[error("the session is over")]
    Ended,
}

/// A command, before it has a slot.
#[derive(Debug)]
struct Waiting<D> {
    token: u64,
    device: u16,
    request: Request,
    data: D,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sequence: u64,
    /// What waits for its reply.
    busy: Option<(u64, u16, u32)>,
}

/// A question under way.
#[derive(Debug)]
struct Asked {
    id: u32,
    /// The device that is to be opened, and its least level.
    opens: Option<(u16, Level)>,
    body: Vec<u8>,
    at: Duration,
    again: Duration,
}

/// A session.
#[derive(Debug)]
pub struct ClientSession<D> {
    link: Link<D>,
    slots: Vec<Slot>,
    /// Slots are used in turn, so that a tag rests as long as possible.
    next_slot: usize,
    waiting: VecDeque<Waiting<D>>,
    /// They use the last slot, which commands do not.
    functions: VecDeque<Waiting<D>>,
    asked: Option<Asked>,
    next_id: u32,
    /// As many as there are commands and questions.
    events: VecDeque<ClientEvent>,
    /// Room for what a frame completes, empty.
    arrivals: Vec<Arrival>,
    ended: bool,
}

impl<D: AsRef<[u8]> + Default> ClientSession<D> {
    /// A session that a login has led to.
    pub(crate) fn new(now: Duration, keys: &Keys, terms: Terms, settings: Settings) -> Self {
        Self {
            link: Link::new(now, Side::Client, keys, terms, settings),
            slots: vec![Slot::default(); usize::from(terms.slots)],
            next_slot: 0,
            waiting: VecDeque::new(),
            functions: VecDeque::new(),
            asked: None,
            next_id: 1,
            events: VecDeque::new(),
            arrivals: Vec::new(),
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

    /// Whether frames with this tag are those of this session.
    #[must_use]
    pub fn has_tag(&self, tag: u16) -> bool {
        self.link.has_tag(tag)
    }

    /// Takes a command on a device that is open. The answer has the caller's `token`.
    ///
    /// # Errors
    ///
    /// It was not taken.
    pub fn submit(
        &mut self,
        now: Duration,
        token: u64,
        device: u16,
        command: Command,
        data: D,
    ) -> Result<(), SubmitError> {
        let length = data.as_ref().len();
        let fits = size(command.data_out_bytes) == length
            && command.data_out_bytes <= DATA_MAX_BYTES
            && command.data_in_bytes <= DATA_MAX_BYTES
            && (6..=crate::limits::CDB_MAX_BYTES).contains(&command.cdb.len());
        if !fits {
            return Err(SubmitError::Length(length));
        }
        self.check(device, self.waiting.len())?;
        self.waiting.push_back(Waiting {
            token,
            device,
            request: Request::Command(command),
            data,
        });
        self.begin(now);
        Ok(())
    }

    /// Takes a task management function on a device that is open.
    ///
    /// # Errors
    ///
    /// It was not taken.
    pub fn manage(
        &mut self,
        now: Duration,
        token: u64,
        device: u16,
        function: Function,
    ) -> Result<(), SubmitError> {
        self.check(device, self.functions.len())?;
        self.functions.push_back(Waiting {
            token,
            device,
            request: Request::Management(function),
            data: D::default(),
        });
        self.begin(now);
        Ok(())
    }

    fn check(&self, device: u16, waiting: usize) -> Result<(), SubmitError> {
        if self.ended {
            Err(SubmitError::Ended)
        } else if !self.link.levels.contains_key(&device) {
            Err(SubmitError::NotOpen(device))
        } else if waiting >= WAITING_MAX {
            Err(SubmitError::Full)
        } else {
            Ok(())
        }
    }

    /// The name of a command for [`Function::AbortTask`]; `None` if it is over. One that still waits for a slot is
    /// lost instead, and never sent.
    pub fn name_of(&mut self, token: u64) -> Option<TaskName> {
        if let Some(at) = self
            .waiting
            .iter()
            .position(|waiting| waiting.token == token)
        {
            self.waiting.remove(at);
            let was_sent = false;
            self.events.push_back(ClientEvent::Lost { token, was_sent });
            return None;
        }
        let is_it = |slot: &Slot| slot.busy.is_some_and(|(busy, _, _)| busy == token);
        let at = self.slots.iter().position(is_it)?;
        let slot = self.slots.get(at)?;
        Some(self.link.task_name(crate::bytes::short(at), slot.sequence))
    }

    /// Gives slots to what waits.
    fn begin(&mut self, now: Duration) {
        let last = self.slots.len().saturating_sub(1);
        let is_free = |slot: Option<&Slot>| slot.is_some_and(|slot| slot.busy.is_none());
        if is_free(self.slots.get(last))
            && let Some(function) = self.functions.pop_front()
        {
            self.send(now, last, function);
        }
        for _ in 0..last {
            if self.waiting.is_empty() {
                return;
            }
            let at = self.next_slot % last;
            self.next_slot = (at + 1) % last;
            if is_free(self.slots.get(at))
                && let Some(command) = self.waiting.pop_front()
            {
                self.send(now, at, command);
            }
        }
    }

    fn send(&mut self, now: Duration, at: usize, waiting: Waiting<D>) {
        let Waiting {
            token,
            device,
            request,
            data,
        } = waiting;
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let level = self
            .link
            .levels
            .get(&device)
            .copied()
            .unwrap_or(Level::Encrypt);
        let room = match &request {
            Request::Command(command) => command.data_in_bytes,
            Request::Management(_) => 0,
        };
        slot.sequence += 1;
        slot.busy = Some((token, device, room));
        let sequence = slot.sequence;
        let mut head = self.link.head();
        request.encode_to(&mut head);
        let length = head.len() - HEADER_BYTES + data.as_ref().len();
        let header = self.link.header(Opcode::Request, device, sequence, length);
        let pdu = Outgoing::new(header, sequence, level, head, data);
        let number = crate::bytes::short(at);
        self.link.submit(now, number, pdu);
        self.link.expect(number);
    }

    /// Asks for the table of devices from this place on; an earlier question is dropped.
    pub fn list(&mut self, now: Duration, first: u16) {
        self.ask(now, None, |id| Inquiry::List { id, first });
    }

    /// Asks to open a device; an earlier question is dropped.
    pub fn open(&mut self, now: Duration, device: u16, level: Level) {
        self.ask(now, Some((device, level)), |id| Inquiry::Open {
            id,
            handle: device,
            level,
        });
    }

    fn ask(
        &mut self,
        now: Duration,
        opens: Option<(u16, Level)>,
        question: impl FnOnce(u32) -> Inquiry,
    ) {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.asked = Some(Asked {
            id,
            opens,
            body: question(id).encode(),
            at: now,
            again: ASK_AGAIN,
        });
        self.ask_now(now);
    }

    /// Sends the question, if its time has come.
    fn ask_now(&mut self, now: Duration) {
        if let Some(asked) = &mut self.asked
            && asked.at <= now
            && !self.ended
        {
            self.link.control.clear();
            self.link
                .control
                .push_back((Opcode::Negotiation, asked.body.clone()));
            asked.at = now + asked.again;
            asked.again = (asked.again * 2).min(PROBE_MAX);
        }
    }

    /// Takes a frame from behind its Ethernet header, of the target's address, with a tag of this session.
    pub fn handle_frame(&mut self, now: Duration, frame: &[u8]) {
        self.handle(now, Frame::passing(frame));
    }

    /// The same for a frame that is there until its events are taken, which the caller does before it handles another
    /// one: data of answers may be in it ([`Data::is_in_frame`]).
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
                    slot, header, pdu, ..
                } => self.handle_reply(slot, &header, pdu, frame),
                Arrival::Control(Opcode::NegotiationAnswer, body) => self.handle_answer(&body),
                Arrival::Control(Opcode::Disconnect, _) => self.link.end(EndReason::Disconnected),
                Arrival::Control(..) => {}
            }
        }
        self.arrivals = arrivals;
        if self.link.ended.is_none() {
            self.begin(now);
        }
        self.note_end();
    }

    fn handle_reply(&mut self, number: u16, header: &Header, pdu: Held, frame: Frame<'_>) {
        self.link.drop_outgoing(number);
        let place = self.slots.get_mut(usize::from(number));
        let Some((token, device, room)) = place.and_then(|slot| slot.busy.take()) else {
            return;
        };
        let decoded = header.body(frame.pdu(&pdu)).and_then(Reply::decode);
        let decoded = decoded.map(|(reply, data)| (reply, data.len()));
        match decoded {
            Some((reply, length)) if length <= size(room) && header.device == device => {
                let data = self.link.data(frame, pdu, header, length);
                self.events
                    .push_back(ClientEvent::Answer { token, reply, data });
            }
            Some(_) | None => {
                let was_sent = true;
                self.events.push_back(ClientEvent::Lost { token, was_sent });
            }
        }
    }

    fn handle_answer(&mut self, body: &[u8]) {
        let asked = self.asked.as_ref().map(|asked| (asked.id, asked.opens));
        let Some((asked, opens)) = asked else {
            return;
        };
        match Inquiry::decode(body) {
            Some(Inquiry::Listed { id, page }) if id == asked => {
                self.asked = None;
                self.events.push_back(ClientEvent::Devices(page));
            }
            Some(Inquiry::Opened {
                id,
                handle,
                opening,
            }) if id == asked
                && let Some((device, least)) = opens
                && device == handle =>
            {
                self.asked = None;
                let opening = match opening {
                    // The level is this side's choice: a target may ask for more, and grant nothing less.
                    Opening::Open(level) if level < least => Opening::OtherLevel(level),
                    Opening::Open(_)
                    | Opening::TooLow(_)
                    | Opening::OtherLevel(_)
                    | Opening::Unknown => opening,
                };
                if let Opening::Open(level) = opening {
                    self.link.levels.insert(handle, level);
                }
                self.events.push_back(ClientEvent::Opening {
                    device: handle,
                    opening,
                });
            }
            Some(
                Inquiry::Listed { .. }
                | Inquiry::Opened { .. }
                | Inquiry::List { .. }
                | Inquiry::Open { .. },
            )
            | None => {}
        }
    }

    /// The target answered that it has no session with this tag ([`unknown_session`](crate::unknown_session)). Anybody
    /// could have sent that: it counts only where the target does not answer what is sealed.
    pub fn handle_unknown(&mut self, tag: u16) {
        if self.link.has_tag(tag) && self.link.is_unanswered() {
            self.link.end(EndReason::Unknown);
        }
        self.note_end();
    }

    /// When [`Self::handle_deadline`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let asked = self.asked.as_ref().filter(|_| !self.ended);
        let asked = asked.map(|asked| asked.at);
        self.link.deadline().into_iter().chain(asked).min()
    }

    /// Time has passed.
    pub fn handle_deadline(&mut self, now: Duration) {
        self.link.handle_deadline(now);
        self.ask_now(now);
        self.note_end();
    }

    /// Grants so many frames from now on. What is under way stays so.
    pub fn set_window(&mut self, frames: u16) {
        self.link.set_window(frames);
    }

    /// Ends the session. A frame for its target is left to send.
    pub fn close(&mut self) {
        if self.link.ended.is_none() {
            self.link.control.clear();
            self.link.control.push_back((Opcode::Disconnect, vec![0]));
            self.link.end(EndReason::Closed);
        }
        self.note_end();
    }

    fn note_end(&mut self) {
        let Some(reason) = self.link.ended.filter(|_| !self.ended) else {
            return;
        };
        self.ended = true;
        let sent = self.slots.iter_mut().filter_map(|slot| slot.busy.take());
        let sent = sent.map(|(token, _, _)| (token, true));
        let functions = self.functions.drain(..).map(|function| function.token);
        let waiting = self.waiting.drain(..).map(|command| command.token);
        let unsent = functions.chain(waiting).map(|token| (token, false));
        for (token, was_sent) in sent.chain(unsent) {
            self.events.push_back(ClientEvent::Lost { token, was_sent });
        }
        self.events.push_back(ClientEvent::Ended(reason));
    }

    /// Takes back data that nobody needs any more: its memory is used for what comes next.
    pub fn recycle(&mut self, data: Data) {
        self.link.recycle(data.into_room());
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Writes the next frame to send, from behind its Ethernet header, and gives its length. `to` has room for the
    /// largest.
    pub fn poll_frame(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        self.link.poll_frame(now, to)
    }

    /// What is under way, for messages of tests.
    #[cfg(test)]
    pub(crate) fn state(&self) -> String {
        self.link.state()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::terms;

    fn session() -> ClientSession<Vec<u8>> {
        let settings = Settings::default();
        let terms = Terms {
            slots: 4,
            ..terms(&settings)
        };
        let keys = Keys::new(b"secret");
        ClientSession::new(Duration::ZERO, &keys, terms, settings)
    }

    #[test]
    fn a_device_is_open_as_it_was_asked_for_or_not_at_all() {
        let mut session = session();
        let mut answer = |asked: Level, handle: u16, opening: Opening| {
            session.open(Duration::ZERO, 3, asked);
            let id = session
                .asked
                .as_ref()
                .map(|asked| asked.id)
                .unwrap_or_default();
            let opened = Inquiry::Opened {
                id,
                handle,
                opening,
            };
            session.handle_answer(&opened.encode());
            let level = session.link.levels.get(&3).copied();
            (session.poll_event(), level, session.link.levels.len())
        };
        // Another device than the one that was asked for.
        let other = answer(Level::Hash, 4, Opening::Open(Level::Encrypt));
        assert_eq!(other, (None, None, 0));
        // A level below.
        for level in [Level::None, Level::Crc] {
            let opening = Opening::OtherLevel(level);
            let event = ClientEvent::Opening { device: 3, opening };
            let lower = answer(Level::Hash, 3, Opening::Open(level));
            assert_eq!(lower, (Some(event), None, 0));
        }
        for level in [Level::Hash, Level::Encrypt] {
            let opening = Opening::Open(level);
            let event = ClientEvent::Opening { device: 3, opening };
            let open = answer(Level::Hash, 3, opening);
            assert_eq!(open, (Some(event), Some(level), 1));
        }
    }
}
