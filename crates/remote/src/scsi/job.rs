//! What the attendant carries out for a handle: one command each.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use store::{Extent, IoFailure};

/// Data of a write. It stays until the write is answered, because it may have to be sent again.
#[derive(Clone, Default)]
pub struct Bytes(Arc<[u8]>);

impl From<Arc<[u8]>> for Bytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Bytes {
    /// The same memory, for those who share it.
    pub(crate) fn shared(&self) -> Arc<[u8]> {
        Arc::clone(&self.0)
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Read {
        bytes: u32,
    },
    /// With `durable`, it is to be durable, by itself where the device can do that.
    Write {
        data: Bytes,
        durable: bool,
    },
    Flush,
    Zeros {
        bytes: u64,
        unmap: bool,
    },
    /// What is compared, then as much to write.
    Compare {
        data: Bytes,
        durable: bool,
    },
    Extents {
        range: Range<u64>,
        count_max: usize,
    },
    /// What the device is now, for the attendant itself.
    Look,
}

impl Work {
    /// It writes something that is to be durable then.
    pub(crate) const fn wants_durable(&self) -> bool {
        match self {
            Self::Write { durable, .. } | Self::Compare { durable, .. } => *durable,
            Self::Flush
            | Self::Zeros { .. }
            | Self::Read { .. }
            | Self::Extents { .. }
            | Self::Look => false,
        }
    }

    /// It takes data to the device.
    pub(crate) const fn sends_data(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Compare { .. } | Self::Zeros { .. } => true,
            Self::Flush | Self::Read { .. } | Self::Extents { .. } | Self::Look => false,
        }
    }

    /// Done twice it has the effect of once.
    pub(crate) const fn may_be_repeated(&self) -> bool {
        match self {
            Self::Compare { .. } => false,
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Flush
            | Self::Zeros { .. }
            | Self::Extents { .. }
            | Self::Look => true,
        }
    }
}

/// Work with its place.
#[derive(Debug)]
pub(crate) struct Job {
    /// The handle that wants it.
    pub(crate) core: usize,
    /// As the handle calls it.
    pub(crate) number: u64,
    /// In bytes.
    pub(crate) offset: u64,
    pub(crate) work: Work,
    /// How often its session was lost when it had been sent.
    pub(crate) losses: u8,
    /// How often it met a unit attention.
    pub(crate) attentions: u8,
    /// It is a flush that met lost caches, so many times.
    pub(crate) reports: u8,
    /// When the device first would not take it.
    pub(crate) refused_at: Option<Duration>,
    /// Nobody needs its result.
    pub(crate) is_cancelled: bool,
    /// It was sent as a write that is durable by itself.
    pub(crate) is_durable: bool,
}

impl Job {
    pub(crate) const fn new(core: usize, number: u64, offset: u64, work: Work) -> Self {
        Self {
            core,
            number,
            offset,
            work,
            losses: 0,
            attentions: 0,
            reports: 0,
            refused_at: None,
            is_cancelled: false,
            is_durable: false,
        }
    }

    /// The device may still lose it with its cache after it was answered.
    pub(crate) const fn writes_volatile(&self) -> bool {
        match self.work {
            Work::Write { .. } | Work::Compare { .. } => !self.is_durable,
            Work::Zeros { .. } => true,
            Work::Read { .. } | Work::Flush | Work::Extents { .. } | Work::Look => false,
        }
    }

    /// What it has written, or all that was written before, is durable when it succeeds.
    pub(crate) const fn makes_durable(&self) -> bool {
        self.is_durable || matches!(self.work, Work::Flush)
    }
}

/// Data that has come, in what it came in.
pub(crate) enum Arrived {
    /// A PDU of HyperSCSI.
    Pdu(hyperscsi::Data),
    /// Memory of its own.
    Own(Vec<u8>),
}

impl Default for Arrived {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Deref for Arrived {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pdu(data) => data,
            Self::Own(data) => data,
        }
    }
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// What a job brought.
#[derive(Debug)]
pub(crate) enum Brought {
    Nothing,
    /// It is written, and not durable, which it was to be.
    Volatile,
    Data(Arrived),
    Extents(Vec<Extent>),
}

/// To the attendant.
#[derive(Debug)]
pub(crate) enum Letter {
    Job(Job),
    /// Nobody needs the result of this job.
    Cancel {
        core: usize,
        number: u64,
    },
    /// The last user is gone.
    End,
}

/// To a handle, whose jobs bring `B`.
#[derive(Debug)]
pub(crate) enum Mail<B = Brought> {
    /// A job is over.
    Done {
        number: u64,
        result: Result<B, IoFailure>,
    },
    /// The size may have changed.
    Size,
    /// Requests end as not ready from now on, or no longer.
    Reach { is_reached: bool },
}
