//! One connection: requests go out, what comes back completes them.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::arrived::Arrived;
use crate::handshake::Export;
use crate::receive::{Receiver, Violation, to_usize};
use crate::request::{Completion, ReadBuffer, Request, SubmitError, Task, Tasks, Work};
use crate::wire::{REQUEST_MAGIC, command};

const REQUEST_BYTES: usize = 28;

/// What [`Client::transmit`] gives to be sent.
#[derive(Debug)]
pub enum Piece<'a, W = Arc<[u8]>> {
    /// A header.
    Header(&'a [u8]),
    /// The data of a write.
    Data(&'a W),
}

/// One connection after the handshake.
///
/// Nothing is allocated for a request in steady state: buffers come with it and go back with its
/// completion.
#[derive(Debug)]
pub struct Client<R = Vec<u8>, W = Arc<[u8]>> {
    export: Export,
    tasks: Tasks<R, W>,
    receiver: Receiver,
    /// Cookies of requests that are not sent yet.
    waiting: VecDeque<u64>,
    completions: VecDeque<Completion<R, W>>,
    /// A goodbye is to be sent behind everything else.
    is_leaving: bool,
}

impl<R: AsRef<[u8]> + AsMut<[u8]>, W> Client<R, W> {
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
    pub fn submit(
        &mut self,
        request: Request<R, W>,
    ) -> Result<(), (SubmitError, Box<Request<R, W>>)> {
        let length = match self.check(&request) {
            Ok(length) => length,
            Err(error) => return Err((error, Box::new(request))),
        };
        if let Some(limit) = self.tasks.limit_reached() {
            return Err((SubmitError::Full { limit }, Box::new(request)));
        }
        let task = Task {
            tag: request.tag,
            offset: request.offset,
            length,
            work: request.work,
            received: 0,
            arrived: Arrived::default(),
            error: None,
        };
        self.waiting.extend(self.tasks.insert(task));
        Ok(())
    }

    /// The length of a request that the server will take.
    fn check(&self, request: &Request<R, W>) -> Result<u32, SubmitError> {
        let (export, work) = (&self.export, &request.work);
        if !work.is_allowed(export) {
            return Err(SubmitError::NotSupported);
        }
        let length = work.length();
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
            } if u32::try_from(buffer.as_ref().len()) != Ok(length) => {
                Err(SubmitError::BufferLength)
            }
            Work::Read { .. }
            | Work::Write { .. }
            | Work::Flush
            | Work::Trim { .. }
            | Work::WriteZeroes { .. }
            | Work::BlockStatus { .. } => Ok(length),
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
    pub fn transmit(&mut self, budget_bytes: usize, mut put: impl FnMut(Piece<'_, W>)) {
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
            if let Work::Write { length, data, .. } = &task.work {
                put(Piece::Data(data));
                sent = sent.saturating_add(to_usize(*length));
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
        let mut bytes = bytes;
        while let Some(cookie) = self
            .receiver
            .step(&mut bytes, &mut self.tasks, &self.export)?
        {
            self.complete(cookie);
        }
        Ok(())
    }

    fn complete(&mut self, cookie: u64) {
        if let Some(task) = self.tasks.remove(cookie) {
            self.completions.push_back(Completion {
                tag: task.tag,
                offset: task.offset,
                result: task.error.map_or(Ok(()), Err),
                work: task.work,
            });
        }
    }

    /// Lends the buffer of the read whose data comes next, to receive the range of it straight into it, if at least
    /// so many bytes of it are missing. [`Client::take_back`] follows before any other bytes are handled.
    pub fn lend(&mut self, bytes_min: usize) -> Option<(R, Range<usize>)> {
        let (cookie, range) = self.receiver.awaited()?;
        if range.len() < bytes_min {
            return None;
        }
        let task = self.tasks.find(cookie)?;
        match &mut task.work {
            Work::Read { buffer, .. } => match std::mem::replace(buffer, ReadBuffer::Discard) {
                ReadBuffer::Into(buffer) => Some((buffer, range)),
                ReadBuffer::Discard => None,
            },
            Work::Write { .. }
            | Work::Flush
            | Work::Trim { .. }
            | Work::WriteZeroes { .. }
            | Work::BlockStatus { .. } => None,
        }
    }

    /// A lent buffer is back, with so many more bytes of its range.
    ///
    /// # Errors
    ///
    /// As [`Client::handle_bytes`].
    pub fn take_back(&mut self, lent: R, received: usize) -> Result<(), Violation> {
        if let Some((cookie, _)) = self.receiver.awaited()
            && let Some(task) = self.tasks.find(cookie)
            && let Work::Read { buffer, .. } = &mut task.work
        {
            *buffer = ReadBuffer::Into(lent);
        }
        if let Some(cookie) = self.receiver.skip(received, &mut self.tasks)? {
            self.complete(cookie);
        }
        Ok(())
    }

    /// The requests that have no completion, after the connection is lost, in no particular order. Those that were
    /// sent may have had any part of their effect. Lent buffers must be back.
    pub fn into_requests(self) -> impl Iterator<Item = Request<R, W>> {
        self.tasks.into_tasks().map(|task| Request {
            tag: task.tag,
            offset: task.offset,
            work: task.work,
        })
    }

    /// A request that is done.
    pub fn poll_completion(&mut self) -> Option<Completion<R, W>> {
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
