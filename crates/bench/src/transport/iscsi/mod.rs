//! iSCSI: one session of one connection for each lane.

mod setup;

use std::ops::Range;
use std::sync::Arc;

use iscsi::initiator::{
    Command, Completion, Event as SessionEvent, Outcome, Output, ReadBuffer, Session,
};
use iscsi::pdu::{LogoutReason, TaskAttribute};
use memory::Message;
use reactor::{Event, Reactor};

use super::socket::{Gather, Heard, Pipe, SEND_BYTES_MAX};
use super::{Data, Finished, Geometry, IoError, Lane, LaneSettings, Operation, Pattern};
use crate::error::BenchError;
use crate::scsi;
use crate::url::Login;
use setup::Setup;

/// The name this generator goes by.
pub const INITIATOR_NAME: &str = "iqn.2026-11.example.tarn:bench";
/// The first session and its only connection.
const CONNECTION: usize = 0;

/// Everything needed to log in.
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct IscsiConnector {
    /// What reports call the target.
    pub label: String,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TargetName.
    pub target: String,
    /// Flat logical unit number.
    pub lun: u16,
    /// InitiatorName.
    pub initiator: String,
    /// For CHAP.
    pub login: Option<Login>,
    /// Insist on CRC32C over headers.
    pub header_digest: bool,
    /// Insist on CRC32C over data.
    pub data_digest: bool,
    /// Part of every ISID, so that two generators do not replace each other's sessions.
    pub isid: [u8; 3],
}

/// One session.
#[derive(Debug)]
pub struct IscsiLane {
    session: Session,
    pipe: Pipe,
    pattern: Option<Pattern>,
    lun: u64,
    geometry: Geometry,
    block_shift: u32,
    /// Where the I/O of each tag begins, to ask again after a unit attention.
    offsets: Vec<u64>,
    /// How long each of them is; all of a point are.
    length_bytes: u32,
    is_closed: bool,
}

impl Lane for IscsiLane {
    type Connector = IscsiConnector;

    fn open(connector: &IscsiConnector, settings: LaneSettings) -> Result<Self, BenchError> {
        let mut setup = Setup::connect(connector, &settings)?;
        setup.wait_until_ready()?;
        let geometry = setup.read_capacity()?;
        let lost = setup.lost_during("set-up");
        let Setup {
            stream,
            session,
            lun,
            ..
        } = setup;
        let pipe = Pipe::new(stream, settings.lane).map_err(|error| lost(error.to_string()))?;
        Ok(Self {
            session,
            pipe,
            pattern: settings.pattern,
            lun,
            geometry,
            block_shift: geometry.block_bytes.trailing_zeros(),
            offsets: Vec::new(),
            length_bytes: 0,
            is_closed: false,
        })
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, _reactor: &mut Reactor, tag: u32, operation: Operation) {
        let Operation {
            offset,
            length,
            data,
        } = operation;
        let (is_write, read, write) = match data {
            Data::Discard => (
                false,
                ReadBuffer::Discard {
                    length_bytes: length,
                },
                None,
            ),
            Data::Keep(buffer) => (false, ReadBuffer::Into(buffer), None),
            Data::Write(data) => (true, ReadBuffer::None, Some(data)),
        };
        let number = usize::try_from(tag).unwrap_or(usize::MAX);
        if number >= self.offsets.len() {
            self.offsets.resize(number.saturating_add(1), 0);
        }
        if let Some(place) = self.offsets.get_mut(number) {
            *place = offset;
        }
        self.length_bytes = length;
        let (lba, blocks) = (offset >> self.block_shift, length >> self.block_shift);
        let taken = self.session.submit(Command {
            tag: tag.into(),
            lun: self.lun,
            cdb: scsi::transfer_cdb(is_write, lba, blocks),
            extended_cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            write,
            read,
        });
        // `handle` has reported a lost connection; the depth is within the table of tasks.
        debug_assert!(taken.is_ok() || !self.session.is_alive());
    }

    fn flush(&mut self, reactor: &mut Reactor, _finished: &mut Vec<Finished>) {
        let (session, pattern) = (&mut self.session, self.pattern.as_ref());
        self.pipe.flush(reactor, |message: &mut Message| {
            session.transmit(CONNECTION, &mut Gather { message, pattern }, SEND_BYTES_MAX);
        });
    }

    fn handle(
        &mut self,
        reactor: &mut Reactor,
        _part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        match self.pipe.handle(event) {
            Ok(Heard::Bytes { chunk, len }) => {
                let bytes = chunk.get(..len).unwrap_or_default();
                self.session.handle_bytes(CONNECTION, bytes);
            }
            Ok(Heard::Sent) => return Ok(()),
            Err(_) if self.is_closed => return Ok(()),
            Err(problem) => return Err(problem),
        }
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Completed(done) if is_unit_attention(&done) => {
                    self.submit_again(reactor, finish(done));
                }
                SessionEvent::Completed(done) => finished.push(finish(done)),
                SessionEvent::LoggedOut { .. } => self.is_closed = true,
                SessionEvent::Failed { violation, .. } => return Err(violation.to_string()),
                // Nothing that these concern was asked for.
                SessionEvent::ManagementDone { .. }
                | SessionEvent::Pong { .. }
                | SessionEvent::Text { .. }
                | SessionEvent::Async { .. }
                | SessionEvent::Rejected { .. }
                | SessionEvent::RequestLost { .. } => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        let asked = self
            .session
            .logout(CONNECTION, 0, LogoutReason::CloseSession, CONNECTION);
        self.is_closed = asked.is_err();
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl IscsiLane {
    /// The target reported a unit attention instead of executing the command, which has to be sent again.
    /// For the generator, one that never stops doing so does not answer.
    fn submit_again(&mut self, reactor: &mut Reactor, told: Finished) {
        let number = usize::try_from(told.tag).unwrap_or(usize::MAX);
        let operation = Operation {
            offset: self.offsets.get(number).copied().unwrap_or_default(),
            length: self.length_bytes,
            data: told.data,
        };
        self.submit(reactor, told.tag, operation);
    }
}

/// CHECK CONDITION with sense key UNIT ATTENTION.
fn is_unit_attention(done: &Completion) -> bool {
    matches!(done.outcome, Outcome::Status(0x02))
        && scsi::sense_code(&done.sense).is_some_and(|[key, ..]| key == 0x06)
}

impl Output for Gather<'_> {
    fn len(&self) -> usize {
        self.message.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.message.push_bytes(bytes);
    }

    fn put_shared(&mut self, data: &Arc<[u8]>, range: Range<usize>) {
        if !self.refer(data, &range) {
            self.put(data.get(range).unwrap_or_default());
        }
    }
}

fn finish(done: Completion) -> Finished {
    let result = match done.outcome {
        Outcome::Status(0) => Ok(()),
        Outcome::Status(status) => Err(IoError::Scsi {
            status,
            sense: scsi::sense_code(&done.sense),
        }),
        Outcome::TargetFailure => Err(IoError::Other("target failure".to_owned())),
        Outcome::Aborted => Err(IoError::Other("aborted".to_owned())),
        Outcome::Rejected(reason) => Err(IoError::Other(format!(
            "rejected for reason {reason:#04x} (RFC 7143 section 11.17.1)"
        ))),
        Outcome::ConnectionLost => Err(IoError::Other("connection lost".to_owned())),
    };
    let data = match (done.read, done.write) {
        (ReadBuffer::Into(buffer), _) => Data::Keep(buffer),
        (_, Some(data)) => Data::Write(data),
        (ReadBuffer::None | ReadBuffer::Discard { .. }, None) => Data::Discard,
    };
    Finished {
        // Tags are given out by `submit`, from 32 bits.
        tag: u32::try_from(done.tag).unwrap_or(u32::MAX),
        result,
        data,
    }
}
