//! One connection: requests go out, what comes back completes them.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::handshake::Export;
use crate::receive::{Receiver, Violation};
use crate::request::{Completion, ReadBuffer, Request, SubmitError, Task, Tasks, Work};
use crate::wire::{REQUEST_MAGIC, command};

const REQUEST_BYTES: usize = 28;

/// What [`Client::transmit`] gives to be sent.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A header.
    Header(&'a [u8]),
    /// The data of a write.
    Data(&'a Arc<[u8]>),
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
        if let Some(limit) = self.tasks.limit_reached() {
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
