//! Requests and what becomes of them.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::handshake::Export;
use crate::receive::{Receiver, Violation};
use crate::wire::{REQUEST_MAGIC, ServerError, command, command_flags};

const REQUEST_BYTES: usize = 28;

/// Where the data of a read goes.
#[derive(Debug, Default)]
pub enum ReadBuffer {
    /// Into this buffer, from its start; it is as long as the request.
    Into(Vec<u8>),
    /// Nowhere: counted, not kept.
    #[default]
    Discard,
}

/// What a request is about.
#[derive(Debug)]
pub enum Work {
    /// Read so many bytes.
    Read {
        /// In bytes.
        length: u32,
        /// Where they go.
        buffer: ReadBuffer,
    },
    /// Write these bytes.
    Write {
        /// The data.
        data: Arc<[u8]>,
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Put everything that was answered on stable storage.
    Flush,
    /// Give the space of so many bytes back; what they read then is not known.
    Trim {
        /// In bytes.
        length: u32,
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Make so many bytes read zeros.
    WriteZeroes {
        /// In bytes.
        length: u32,
        /// On stable storage before it is answered.
        fua: bool,
        /// Keep their space.
        no_hole: bool,
    },
}

impl Work {
    fn length(&self) -> Option<u32> {
        match self {
            Self::Read { length, .. }
            | Self::Trim { length, .. }
            | Self::WriteZeroes { length, .. } => Some(*length),
            Self::Write { data, .. } => u32::try_from(data.len()).ok(),
            Self::Flush => Some(0),
        }
    }

    const fn command(&self) -> u16 {
        match self {
            Self::Read { .. } => command::READ,
            Self::Write { .. } => command::WRITE,
            Self::Flush => command::FLUSH,
            Self::Trim { .. } => command::TRIM,
            Self::WriteZeroes { .. } => command::WRITE_ZEROES,
        }
    }

    const fn flags(&self) -> u16 {
        let (fua, no_hole) = match self {
            Self::Read { .. } | Self::Flush => (false, false),
            Self::Write { fua, .. } | Self::Trim { fua, .. } => (*fua, false),
            Self::WriteZeroes { fua, no_hole, .. } => (*fua, *no_hole),
        };
        (if fua { command_flags::FUA } else { 0 })
            | (if no_hole { command_flags::NO_HOLE } else { 0 })
    }

    /// True when the export has said that it can do this.
    const fn is_allowed(&self, export: &Export) -> bool {
        let flags = export.flags;
        let is_known = match self {
            Self::Read { .. } => return true,
            Self::Flush => return flags.can_flush(),
            Self::Write { .. } => true,
            Self::Trim { .. } => flags.can_trim(),
            Self::WriteZeroes { .. } => flags.can_write_zeroes(),
        };
        let asks_fua = self.flags() & command_flags::FUA != 0;
        is_known && !flags.is_read_only() && (!asks_fua || flags.can_fua())
    }

    const fn carries_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. })
    }
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// Comes back with the completion; means nothing here.
    pub tag: u64,
    /// In bytes; 0 for a flush.
    pub offset: u64,
    /// What is to be done.
    pub work: Work,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub tag: u64,
    /// Good, or what the server said.
    pub result: Result<(), ServerError>,
    /// As submitted; filled, if it was a read and it is good.
    pub work: Work,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many are under way; try again after a completion.
    #[error("{limit} requests are under way")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// Not inside the export, empty, or longer than the server takes at once.
    #[error("the server takes no such range")]
    Range,
    /// Not a multiple of the smallest block.
    #[error("offset and length have to be multiples of {block_min_bytes} bytes")]
    Alignment {
        /// The smallest block.
        block_min_bytes: u32,
    },
    /// The export cannot do this.
    #[error("the export does not take this request")]
    NotSupported,
    /// The buffer of a read has another length than the read.
    #[error("buffer of another length than the read")]
    BufferLength,
}

/// What [`Client::transmit`] gives to be sent.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A header.
    Header(&'a [u8]),
    /// The data of a write.
    Data(&'a Arc<[u8]>),
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) work: Work,
    /// Bytes of data so far, holes included.
    pub(crate) received: u32,
    /// The first error of a structured reply.
    pub(crate) error: Option<ServerError>,
}

#[derive(Debug)]
struct Slot {
    /// Changes with each use, so that a cookie of the past names nothing.
    generation: u32,
    task: Option<Task>,
}

/// Everything under way, by cookie.
#[derive(Debug)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Tasks {
    fn new(limit: u32) -> Self {
        Self {
            slots: (0..limit)
                .map(|_| Slot {
                    generation: 0,
                    task: None,
                })
                .collect(),
            free: (0..limit).rev().collect(),
        }
    }

    fn insert(&mut self, task: Task) -> Option<u64> {
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        slot.task = Some(task);
        Some(u64::from(slot.generation) << 32 | u64::from(index))
    }

    fn slot(&mut self, cookie: u64) -> Option<(u32, &mut Slot)> {
        let [a, b, c, d, e, f, g, h] = cookie.to_be_bytes();
        let index = u32::from_be_bytes([e, f, g, h]);
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        (slot.generation == u32::from_be_bytes([a, b, c, d])).then_some((index, slot))
    }

    pub(crate) fn find(&mut self, cookie: u64) -> Option<&mut Task> {
        self.slot(cookie)?.1.task.as_mut()
    }

    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Task> {
        let (index, slot) = self.slot(cookie)?;
        let task = slot.task.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(task)
    }

    fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }
}

/// One connection after the handshake.
///
/// Nothing is allocated for a request in steady state: buffers come with it and go back with its
/// completion.
#[derive(Debug)]
pub struct Client {
    export: Export,
    tasks: Tasks,
    receiver: Receiver,
    /// Cookies of requests that are not sent yet.
    waiting: VecDeque<u64>,
    completions: VecDeque<Completion>,
    /// A goodbye is to be sent behind everything else.
    is_leaving: bool,
}

impl Client {
    /// A connection with up to `requests_max` requests under way.
    #[must_use]
    pub fn new(export: Export, requests_max: u32) -> Self {
        Self {
            export,
            tasks: Tasks::new(requests_max),
            receiver: Receiver::default(),
            waiting: VecDeque::new(),
            completions: VecDeque::new(),
            is_leaving: false,
        }
    }

    /// What was agreed on.
    #[must_use]
    pub const fn export(&self) -> &Export {
        &self.export
    }

    /// Requests without a completion.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Takes a request over.
    ///
    /// # Errors
    ///
    /// It comes back with the reason.
    pub fn submit(&mut self, request: Request) -> Result<(), (SubmitError, Box<Request>)> {
        let length = match self.check(&request) {
            Ok(length) => length,
            Err(error) => return Err((error, Box::new(request))),
        };
        if self.tasks.free.is_empty() {
            let limit = self.tasks.slots.len();
            return Err((SubmitError::Full { limit }, Box::new(request)));
        }
        let task = Task {
            tag: request.tag,
            offset: request.offset,
            length,
            work: request.work,
            received: 0,
            error: None,
        };
        self.waiting.extend(self.tasks.insert(task));
        Ok(())
    }

    /// The length of a request that the server will take.
    fn check(&self, request: &Request) -> Result<u32, SubmitError> {
        let (export, work) = (&self.export, &request.work);
        if !work.is_allowed(export) {
            return Err(SubmitError::NotSupported);
        }
        let length = work.length().ok_or(SubmitError::Range)?;
        if matches!(work, Work::Flush) {
            return Ok(length);
        }
        let end = request.offset.checked_add(length.into());
        let is_inside = end.is_some_and(|end| end <= export.size_bytes);
        let is_short = !work.carries_data() || length <= export.payload_max_bytes;
        if length == 0 || !is_inside || !is_short {
            return Err(SubmitError::Range);
        }
        let block_min_bytes = export.block_min_bytes;
        if !request.offset.is_multiple_of(block_min_bytes.into())
            || !length.is_multiple_of(block_min_bytes)
        {
            return Err(SubmitError::Alignment { block_min_bytes });
        }
        match work {
            Work::Read {
                buffer: ReadBuffer::Into(buffer),
                ..
            } if u32::try_from(buffer.len()) != Ok(length) => Err(SubmitError::BufferLength),
            Work::Read { .. }
            | Work::Write { .. }
            | Work::Flush
            | Work::Trim { .. }
            | Work::WriteZeroes { .. } => Ok(length),
        }
    }

    /// Says goodbye behind everything submitted so far. The server does not answer; it closes.
    pub fn disconnect(&mut self) {
        self.is_leaving = true;
    }

    /// True when [`Client::transmit`] has something to give.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.waiting.is_empty() || self.is_leaving
    }

    /// Gives whole requests to be sent until `budget_bytes` are reached or none is left.
    pub fn transmit(&mut self, budget_bytes: usize, mut put: impl FnMut(Piece<'_>)) {
        let mut sent = 0_usize;
        while sent < budget_bytes {
            let Some(cookie) = self.waiting.pop_front() else {
                break;
            };
            let Some(task) = self.tasks.find(cookie) else {
                continue;
            };
            let (flags, command) = (task.work.flags(), task.work.command());
            let header = header(flags, command, cookie, task.offset, task.length);
            put(Piece::Header(&header));
            sent = sent.saturating_add(header.len());
            if let Work::Write { data, .. } = &task.work {
                put(Piece::Data(data));
                sent = sent.saturating_add(data.len());
            }
        }
        if self.is_leaving && self.waiting.is_empty() {
            self.is_leaving = false;
            put(Piece::Header(&header(0, command::DISCONNECT, 0, 0, 0)));
        }
    }

    /// Takes received bytes, any number of them.
    ///
    /// # Errors
    ///
    /// The server broke the protocol: close the connection. What is under way stays so.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let has_structured = self.export.has_structured_replies;
        let mut bytes = bytes;
        while let Some(cookie) = self
            .receiver
            .step(&mut bytes, &mut self.tasks, has_structured)?
        {
            if let Some(task) = self.tasks.remove(cookie) {
                self.completions.push_back(Completion {
                    tag: task.tag,
                    result: task.error.map_or(Ok(()), Err),
                    work: task.work,
                });
            }
        }
        Ok(())
    }

    /// A request that is done.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }
}

fn header(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let mut header = [0; REQUEST_BYTES];
    let fields: [&[u8]; 6] = [
        &REQUEST_MAGIC.to_be_bytes(),
        &flags.to_be_bytes(),
        &command.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ];
    let bytes = fields.into_iter().flatten();
    for (place, byte) in header.iter_mut().zip(bytes) {
        *place = *byte;
    }
    header
}
