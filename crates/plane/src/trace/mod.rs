//! Traces: copies of what goes over the connections of a session or an initiator, for an administrator who looks
//! for a fault.
//!
//! All cores share a trace. Each connection that it follows has a tap, which cuts the bytes into PDUs and records
//! them; any other connection costs one check for a tap. A session of HyperSCSI has no connection: its core has a tap
//! that knows its frames by station and tag, and every frame costs one check for taps. Records are packets of a capture
//! file, in blocks of which the oldest are dropped first.

mod core;
mod frames;
mod handle;
mod record;
mod tap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use iscsi::excerpt::EXCERPT_MAX_BYTES;
use pcap::{Frame, Segment};

pub(crate) use self::frames::FrameTaps;
pub use self::handle::NoTrace;
use self::record::{Block, Record};
pub(crate) use self::tap::Taps;
use front::SessionId;

/// Traces at a time. One more is refused.
pub const TRACES_MAX: usize = 8;

/// The least that a trace keeps, in bytes of its file.
pub const KEEP_BYTES_MIN: usize = 64 * 1024;

/// The most that a trace keeps, in bytes of its file. The oldest PDUs are dropped for new ones.
pub const KEEP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most that a trace keeps of the data of a PDU, in bytes.
pub const DATA_BYTES_MAX: usize = iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;

// However little a trace keeps, the last PDUs are there.
const _: () = assert!(KEEP_BYTES_MIN > record::BLOCK_BYTES + 2 * EXCERPT_MAX_BYTES);

/// Whose connections are followed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// Those of a session that is there, and others that join it; of HyperSCSI its frames.
    Session(SessionId),
    /// Those of an initiator, by its folded name: of the sessions it has and of all that it begins,
    /// logins that fail too.
    Initiator(String),
}

/// How much a trace keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceLimits {
    /// Of the data of each SCSI PDU and ping, in bytes.
    pub data_bytes: usize,
    /// In all, in bytes of its file.
    pub keep_bytes: usize,
}

/// A trace at one moment.
#[derive(Clone, Debug)]
pub struct TraceReport {
    /// Whose connections it follows.
    pub subject: Subject,
    /// How much it keeps.
    pub limits: TraceLimits,
    /// When it began.
    pub since: SystemTime,
    /// PDUs that it has; of HyperSCSI frames.
    pub pdus: u64,
    /// PDUs that it had and dropped for newer ones.
    pub dropped: u64,
}

/// A trace, as all cores share it.
#[derive(Debug)]
pub(crate) struct Trace {
    subject: Subject,
    limits: TraceLimits,
    since: SystemTime,
    record: Mutex<Record>,
}

impl Trace {
    fn new(subject: Subject, limits: TraceLimits) -> Self {
        Self {
            subject,
            limits,
            since: SystemTime::now(),
            record: Mutex::default(),
        }
    }

    /// It follows every session that this initiator begins.
    pub(crate) fn is_of_initiator(&self, name: &str) -> bool {
        matches!(&self.subject, Subject::Initiator(own) if own == name)
    }

    /// It follows this session, which is there when the trace begins.
    pub(crate) fn is_of_session(&self, id: SessionId, initiator: &str) -> bool {
        self.subject == Subject::Session(id) || self.is_of_initiator(initiator)
    }

    /// A thread that panicked while it held the lock has added its PDU or not.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pdu: &Segment<'_>) {
        self.record().push(pdu, self.limits.keep_bytes);
    }

    fn note_frame(&self, frame: &Frame<'_>) {
        self.record().push_frame(frame, self.limits.keep_bytes);
    }

    fn report(&self) -> TraceReport {
        let record = self.record();
        TraceReport {
            subject: self.subject.clone(),
            limits: self.limits,
            since: self.since,
            pdus: record.pdus(),
            dropped: record.dropped(),
        }
    }

    /// The file. Cores that note something meanwhile wait for a copy of some pointers.
    fn file(&self) -> Vec<u8> {
        let record = self.record();
        let (link, blocks): (_, Vec<Arc<Block>>) = (record.link(), record.blocks());
        drop(record);
        pcap::file(link, blocks.iter().map(|block| block.packets()))
    }
}
