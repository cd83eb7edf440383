//! Requests as they come, and which of them an export takes.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::PAYLOAD_MAX_BYTES;
use super::handshake::Agreement;
use crate::wire::{REQUEST_MAGIC, ServerError, TransmissionFlags, command, command_flags};

/// The length of the header of a request, in bytes. The data of a write follows it.
pub const REQUEST_BYTES: usize = 28;

/// What comes is no request: the end of the last one was not where it should have been.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("request with magic number {0:#010x}")]
pub struct BadMagic(pub u32);

/// What a request asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// Data.
    Read,
    /// To take the data that follows.
    Write,
    /// The end, without an answer.
    Disconnect,
    /// What was answered is to be on stable storage.
    Flush,
    /// Nobody needs this range any more.
    Trim,
    /// Zeros.
    WriteZeroes {
        /// Zeros that keep their space.
        no_hole: bool,
        /// Fail rather than be slow.
        fast: bool,
    },
    /// What is allocated.
    BlockStatus {
        /// One extent will do.
        one: bool,
    },
    /// Something else.
    Unknown(u16),
}

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// The client's name of it.
    pub cookie: u64,
    /// What it asks for.
    pub command: Command,
    /// On stable storage before it is answered.
    pub fua: bool,
    /// What is read comes in one chunk.
    pub is_whole: bool,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
    /// It has flags that it may not have.
    has_strange_flags: bool,
}

impl Request {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Close the connection.
    #[inline]
    pub fn parse(header: &[u8; REQUEST_BYTES]) -> Result<Self, BadMagic> {
        let [
            m0,
            m1,
            m2,
            m3,
            f0,
            f1,
            t0,
            t1,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
            o0,
            o1,
            o2,
            o3,
            o4,
            o5,
            o6,
            o7,
            l0,
            l1,
            l2,
            l3,
        ] = *header;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST_MAGIC {
            return Err(BadMagic(magic));
        }
        let flags = u16::from_be_bytes([f0, f1]);
        let has = |bit: u16| flags & bit != 0;
        let (command, allowed) = match u16::from_be_bytes([t0, t1]) {
            command::READ => (Command::Read, command_flags::DONT_FRAGMENT),
            command::WRITE => (Command::Write, command_flags::FUA),
            command::DISCONNECT => (Command::Disconnect, u16::MAX),
            command::FLUSH => (Command::Flush, 0),
            command::TRIM => (Command::Trim, command_flags::FUA),
            command::WRITE_ZEROES => {
                let (no_hole, fast) = (has(command_flags::NO_HOLE), has(command_flags::FAST_ZERO));
                let allowed =
                    command_flags::FUA | command_flags::NO_HOLE | command_flags::FAST_ZERO;
                (Command::WriteZeroes { no_hole, fast }, allowed)
            }
            command::BLOCK_STATUS => {
                let one = has(command_flags::REQ_ONE);
                (Command::BlockStatus { one }, command_flags::REQ_ONE)
            }
            other => (Command::Unknown(other), 0),
        };
        Ok(Self {
            cookie: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            command,
            fua: has(command_flags::FUA),
            is_whole: has(command_flags::DONT_FRAGMENT),
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            has_strange_flags: flags & !allowed & !command_flags::FUA != 0,
        })
    }

    /// How much data follows the header, in bytes.
    #[inline]
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.length,
            Command::Read
            | Command::Disconnect
            | Command::Flush
            | Command::Trim
            | Command::WriteZeroes { .. }
            | Command::BlockStatus { .. }
            | Command::Unknown(_) => 0,
        }
    }
}

/// What was agreed on, as far as it decides which requests are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// Of the export, in bytes.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// Offsets and lengths are multiples of this many bytes, a power of two.
    pub block_min_bytes: u32,
    /// Replies to reads are structured, and errors are.
    pub has_structured_replies: bool,
    /// Block status was agreed on.
    pub has_allocation_context: bool,
}

impl From<&Agreement> for Terms {
    fn from(agreement: &Agreement) -> Self {
        Self {
            size_bytes: agreement.offer.size_bytes,
            flags: agreement.offer.flags,
            block_min_bytes: agreement.offer.block_min_bytes,
            has_structured_replies: agreement.has_structured_replies,
            has_allocation_context: agreement.has_allocation_context,
        }
    }
}

impl Terms {
    /// Whether the request may be carried out.
    ///
    /// # Errors
    ///
    /// What it is answered.
    #[inline]
    pub fn check(&self, request: &Request) -> Result<(), ServerError> {
        let flags = self.flags;
        let (is_offered, changes) = match request.command {
            Command::Read => (true, false),
            Command::Write => (true, true),
            // It has neither offset nor length.
            Command::Flush => {
                let is_plain = flags.can_flush() && !request.has_strange_flags;
                return if is_plain {
                    Ok(())
                } else {
                    Err(ServerError::INVALID)
                };
            }
            Command::Trim => (flags.can_trim(), true),
            Command::WriteZeroes { fast, .. } => {
                let is_offered = flags.can_write_zeroes() && (!fast || flags.can_fast_zero());
                (is_offered, true)
            }
            Command::BlockStatus { .. } => (self.has_allocation_context, false),
            Command::Disconnect | Command::Unknown(_) => return Err(ServerError::INVALID),
        };
        if changes && flags.is_read_only() {
            return Err(ServerError::NOT_PERMITTED);
        }
        let mask = self.block_min_bytes.wrapping_sub(1);
        let is_aligned = request.offset & u64::from(mask) == 0 && request.length & mask == 0;
        let carries = matches!(request.command, Command::Read | Command::Write);
        let is_short = !carries || request.length <= PAYLOAD_MAX_BYTES;
        if !is_offered
            || request.has_strange_flags
            || !is_aligned
            || !is_short
            || request.length == 0
        {
            return Err(ServerError::INVALID);
        }
        let end = request.offset.checked_add(u64::from(request.length));
        match end {
            Some(end) if end <= self.size_bytes => Ok(()),
            // A trim needs no space.
            Some(_) | None if changes && request.command != Command::Trim => {
                Err(ServerError::NO_SPACE)
            }
            Some(_) | None => Err(ServerError::INVALID),
        }
    }
}
