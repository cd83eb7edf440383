//! HyperSCSI: one session for each lane, driven by the ring of its thread.
//!
//! `remote` finds the device and opens it, in blocking calls; the session and its socket are the lane's from then on.
//! So what is measured is the protocol and the target, not the thread that a store or `tarn attach` has for its
//! session. Sessions share nothing but the ring and its frames: one that is silent ends by itself, others go on.

use std::time::{Duration, Instant};

use hyperscsi::{
    Attribute, ClientEvent, ClientSession, Command, EndReason, FragmentHeader, Outcome, Reply,
    SubmitError,
};
use reactor::{Address, DatagramSocket, Event, Reactor};
use remote::{HyperscsiConnection, HyperscsiOptions};

use super::{Data, Finished, Geometry, IoError, Lane, LaneSettings, Operation, token};
use crate::error::BenchError;
use crate::scsi;

/// Frames that datagrams of a thread are received into, and the largest of them.
const FRAMES: usize = 256;
const FRAME_BYTES: usize = 9000;
/// Frames of a lane that the ring has, at most; others wait in the session.
const SENDING_MAX: usize = 256;
/// Parts of tokens.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;

/// Everything needed to open a device.
#[derive(Clone, Debug)]
pub struct HyperscsiConnector {
    /// What reports call the target.
    pub label: String,
    /// Where it is.
    pub options: HyperscsiOptions,
}

/// One session.
#[derive(Debug)]
pub struct HyperscsiLane {
    session: Box<ClientSession<remote::Bytes>>,
    began: Instant,
    /// The clock of the session and that of the ring, read at the same moment.
    clocks: (Duration, Duration),
    socket: DatagramSocket,
    target: Address,
    device: u16,
    geometry: Geometry,
    transfer_bytes_max: u32,
    lane: u32,
    is_receiving: bool,
    sending: usize,
    /// More is to be sent when what leaves now is over.
    is_held: bool,
    /// What came with each I/O under way, by tag.
    under_way: Vec<Operation>,
    /// Ends of I/Os that the session did not take.
    refused: Vec<Finished>,
    is_closed: bool,
}

impl Lane for HyperscsiLane {
    type Connector = HyperscsiConnector;

    fn open(connector: &HyperscsiConnector, settings: LaneSettings) -> Result<Self, BenchError> {
        let connected = connector.options.connect();
        let connected = connected.map_err(|error| BenchError::Login {
            target: connector.label.clone(),
            problem: error.to_string(),
        })?;
        let HyperscsiConnection {
            session,
            began,
            socket,
            target,
            device,
            size_bytes,
            block_bytes,
            transfer_bytes_max,
        } = connected;
        let socket = DatagramSocket::new(socket);
        Ok(Self {
            session,
            began,
            clocks: (began.elapsed(), Duration::MAX),
            socket: socket.map_err(BenchError::system("use the socket of a session"))?,
            target,
            device,
            geometry: Geometry {
                size_bytes,
                block_bytes,
            },
            transfer_bytes_max,
            lane: settings.lane,
            is_receiving: false,
            sending: 0,
            is_held: false,
            under_way: (0..settings.depth).map(|_| nothing()).collect(),
            refused: Vec::new(),
            is_closed: false,
        })
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn io_bytes_max(&self) -> Option<u32> {
        Some(self.transfer_bytes_max)
    }

    fn submit(&mut self, reactor: &mut Reactor, tag: u32, operation: Operation) {
        let begun = self.begin(self.now(reactor), tag, &operation);
        if let Some(place) = slot(&mut self.under_way, tag) {
            *place = operation;
        }
        if let Err(problem) = begun {
            let finished = self.finish(tag, Err(IoError::Other(problem)));
            self.refused.push(finished);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor, finished: &mut Vec<Finished>) {
        self.receive(reactor);
        finished.append(&mut self.refused);
        let now = self.now(reactor);
        if self.session.deadline().is_some_and(|at| at <= now) {
            self.session.handle_deadline(now);
        }
        let (token, to) = (token(self.lane, SEND), Some(self.target));
        let session = &mut self.session;
        while self.sending < SENDING_MAX {
            let write = |room: &mut [u8]| session.poll_frame(now, room);
            if !reactor.send_datagram(&self.socket, token, to, write) {
                break;
            }
            self.sending += 1;
        }
        // Frames that leave as this turn ends are over without an event that would end its sleep.
        self.is_held = self.sending >= SENDING_MAX && reactor.has_unwatched();
    }

    fn handle(
        &mut self,
        reactor: &mut Reactor,
        _part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        let now = self.now(reactor);
        match event {
            Event::Datagram { result, .. } => match result {
                Ok(datagram) => {
                    let frame = datagram.bytes();
                    if datagram.sender().is_some_and(|from| self.is_target(from))
                        && tag_of(frame).is_some_and(|tag| self.session.has_tag(tag))
                    {
                        self.session.handle_lent_frame(now, frame);
                        self.take_events(now, frame, finished)?;
                    }
                }
                Err(_) if self.is_closed => {}
                Err(errno) => return Err(format!("the socket fails: {errno}")),
            },
            // A frame that could not be sent is lost, as any frame may be.
            Event::DatagramsSent { sent, lost, .. } => {
                let over = usize::try_from(sent.saturating_add(lost)).unwrap_or(usize::MAX);
                self.sending = self.sending.saturating_sub(over);
            }
            Event::Sent { .. }
            | Event::Accepted { .. }
            | Event::Received { .. }
            | Event::ReceivedExact { .. }
            | Event::Store { .. }
            | Event::Helper { .. }
            | Event::Mail { .. } => return Err("an event that was not asked for".to_owned()),
        }
        self.take_events(now, &[], finished)
    }

    fn deadline(&self) -> Option<Instant> {
        let at = self.session.deadline()?;
        Some(if self.is_held {
            self.began
        } else {
            self.began + at
        })
    }

    fn close(&mut self) {
        self.session.close();
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed && self.sending == 0
    }
}

impl HyperscsiLane {
    /// The time of the session. What happens in a turn happens at its begin: no clock is asked for each frame.
    fn now(&self, reactor: &Reactor) -> Duration {
        let (session, ring) = self.clocks;
        session + reactor.now().saturating_sub(ring)
    }

    /// Has the ring receive, which it does until the end.
    fn receive(&mut self, reactor: &mut Reactor) {
        if self.is_receiving {
            return;
        }
        self.is_receiving = true;
        self.clocks = (self.began.elapsed(), reactor.clock());
        match reactor.prepare_frames(FRAMES, FRAME_BYTES) {
            Ok(()) => {
                reactor.receive_datagrams(&self.socket, token(self.lane, RECEIVE));
            }
            // Its I/Os have no answer then, which is reported.
            Err(error) => {
                let problem = IoError::Other(error.to_string());
                let tags = 0..u32::try_from(self.under_way.len()).unwrap_or(u32::MAX);
                for tag in tags {
                    let finished = self.finish(tag, Err(problem.clone()));
                    self.refused.push(finished);
                }
            }
        }
    }

    fn is_target(&self, from: Address) -> bool {
        match (from, self.target) {
            (Address::Inet(from), Address::Inet(target)) => {
                (from.ip(), from.port()) == (target.ip(), target.port())
            }
            (Address::Link { hardware, .. }, Address::Link { hardware: of, .. }) => hardware == of,
            (Address::Inet(_), Address::Link { .. }) | (Address::Link { .. }, Address::Inet(_)) => {
                false
            }
        }
    }

    /// Gives the session a command.
    fn begin(&mut self, now: Duration, tag: u32, operation: &Operation) -> Result<(), String> {
        let length = operation.length;
        let (data, is_write) = match &operation.data {
            Data::Discard | Data::Keep(_) => (remote::Bytes::default(), false),
            Data::Write(bytes) => (remote::Bytes::from(std::sync::Arc::clone(bytes)), true),
        };
        let shift = self.geometry.block_bytes.trailing_zeros();
        let cdb = scsi::transfer_cdb(is_write, operation.offset >> shift, length >> shift);
        let cdb_bytes = match cdb[0] >> 5 {
            1 => 10,
            _ => 16,
        };
        let command = Command {
            attribute: Attribute::Simple,
            cdb: cdb[..cdb_bytes].to_vec(),
            data_in_bytes: if is_write { 0 } else { length },
            data_out_bytes: if is_write { length } else { 0 },
        };
        let device = self.device;
        match self.session.submit(now, tag.into(), device, command, data) {
            // The end of the session is reported by itself.
            Ok(()) | Err(SubmitError::Ended) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Takes what happened, with data that are in this frame.
    fn take_events(
        &mut self,
        now: Duration,
        frame: &[u8],
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        while let Some(event) = self.session.poll_event() {
            match event {
                ClientEvent::Answer { token, reply, data } => {
                    let tag = u32::try_from(token).unwrap_or(u32::MAX);
                    self.take_answer(now, tag, (&reply, data.within(frame)), finished);
                    self.session.recycle(data);
                }
                ClientEvent::Ended(_) if self.is_closed => {}
                ClientEvent::Ended(reason) => return Err(in_words(reason).to_owned()),
                // They come before the end, or were not asked for.
                ClientEvent::Lost { .. }
                | ClientEvent::Devices(_)
                | ClientEvent::Opening { .. } => {}
            }
        }
        Ok(())
    }

    fn take_answer(
        &mut self,
        now: Duration,
        tag: u32,
        (reply, read): (&Reply, &[u8]),
        finished: &mut Vec<Finished>,
    ) {
        let result = match reply.outcome {
            Outcome::Status(0) => Ok(()),
            Outcome::Status(status) => {
                let sense = scsi::sense_code(&reply.sense);
                if status == 0x02 && sense.is_some_and(|[key, ..]| key == 0x06) {
                    // It was not carried out. For the generator, a device that does so for ever does not answer.
                    if let Some(place) = slot(&mut self.under_way, tag) {
                        let operation = std::mem::replace(place, nothing());
                        let begun = self.begin(now, tag, &operation);
                        if let Some(place) = slot(&mut self.under_way, tag) {
                            *place = operation;
                        }
                        if begun.is_ok() {
                            return;
                        }
                    }
                }
                Err(IoError::Scsi { status, sense })
            }
            Outcome::Aborted
            | Outcome::NotOpen
            | Outcome::Malformed
            | Outcome::FunctionComplete
            | Outcome::FunctionRejected => Err(IoError::Other(format!(
                "the target refuses it: {:?}",
                reply.outcome
            ))),
        };
        let length = match slot(&mut self.under_way, tag) {
            Some(operation) => match &mut operation.data {
                Data::Keep(buffer) if buffer.len() == read.len() => {
                    buffer.copy_from_slice(read);
                    operation.length
                }
                Data::Keep(_) | Data::Discard => operation.length,
                Data::Write(_) => 0,
            },
            None => return,
        };
        let is_short = result.is_ok() && read.len() as u64 != u64::from(length);
        let result = match is_short {
            true => Err(IoError::Other(format!(
                "{} bytes came, not {length}",
                read.len()
            ))),
            false => result,
        };
        finished.push(self.finish(tag, result));
    }

    fn finish(&mut self, tag: u32, result: Result<(), IoError>) -> Finished {
        let operation = slot(&mut self.under_way, tag);
        let data = operation.map(|place| std::mem::replace(place, nothing()).data);
        Finished {
            tag,
            result,
            data: data.unwrap_or(Data::Discard),
        }
    }
}

fn slot(under_way: &mut [Operation], tag: u32) -> Option<&mut Operation> {
    under_way.get_mut(usize::try_from(tag).ok()?)
}

const fn nothing() -> Operation {
    Operation {
        offset: 0,
        length: 0,
        data: Data::Discard,
    }
}

fn tag_of(frame: &[u8]) -> Option<u16> {
    Some(FragmentHeader::decode(*frame.first_chunk()?).tag)
}

const fn in_words(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Silent => "the target does not answer",
        EndReason::Disconnected => "the target has ended the session",
        EndReason::Unknown => "the target does not know the session any more",
        EndReason::Closed | EndReason::Replaced => "the session was closed",
        EndReason::Forged => "too many frames were forged",
    }
}
