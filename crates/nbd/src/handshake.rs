//! From the greeting to the export.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::reader::Reader;
use crate::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, TransmissionFlags, handshake_flags, info,
    option, reply,
};

/// Longest name of an export in bytes.
const NAME_MAX_BYTES: usize = 4096;
/// Longest reply to an option that is taken, in bytes.
const REPLY_MAX_BYTES: u32 = 64 * 1024;
/// Most replies to all options together.
const REPLIES_MAX: u32 = 256;
/// What servers take that say nothing of block sizes.
const BLOCK_MIN_DEFAULT: u32 = 1;
const BLOCK_PREFERRED_DEFAULT: u32 = 4096;
const PAYLOAD_MAX_DEFAULT: u32 = 32 * 1024 * 1024;
/// The context of [`crate::Work::BlockStatus`].
const ALLOCATION: &str = "base:allocation";
/// Zeros behind the answer to `EXPORT_NAME`, unless both sides can do without.
const EXPORT_NAME_ZEROES: usize = 124;

/// What was agreed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Export {
    /// In bytes.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// Offsets and lengths are multiples of this many bytes, a power of two.
    pub block_min_bytes: u32,
    /// What the server likes best, in bytes.
    pub block_preferred_bytes: u32,
    /// Longest data of one request, in bytes.
    pub payload_max_bytes: u32,
    /// Replies may come in chunks.
    pub has_structured_replies: bool,
    /// The number of the context `base:allocation`, in which [`crate::Work::BlockStatus`] is answered.
    pub allocation_context: Option<u32>,
}

/// What the caller of a [`Handshake`] does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Send what is to be sent, and receive.
    More,
    /// Begin TLS. What is to be sent now goes over it, and what comes over it goes on with this handshake.
    StartTls,
    /// It is over. Send what is to be sent.
    Done(Export),
}

/// Why there is no export. The stream is of no more use.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The name does not fit into an option.
    #[error("name of the export has {got_bytes} bytes, the limit is {NAME_MAX_BYTES}")]
    NameTooLong {
        /// Its length.
        got_bytes: usize,
    },
    /// The greeting is that of something else.
    #[error("this is no NBD server of the new style")]
    NotNbd,
    /// The server knows no such export.
    #[error("there is no such export{}", said(.0))]
    UnknownExport(String),
    /// The server wants TLS, which was not asked for.
    #[error("the server wants TLS{}", said(.0))]
    TlsRequired(String),
    /// TLS is wanted and the server has none.
    #[error("the server does not take TLS{}", said(.0))]
    TlsRefused(String),
    /// The server sent something in clear text behind its consent to TLS, where anybody could have put it.
    #[error("the server sent clear text before TLS began")]
    ClearText,
    /// The server does not want to.
    #[error("the server refuses with reply {code:#010x}{}", said(.message))]
    Refused {
        /// Type of the reply.
        code: u32,
        /// What the server says.
        message: String,
    },
    /// Sizes of blocks that no request could keep to.
    #[error(
        "its block sizes contradict each other: {min} at least, {preferred} at best, {max} at most; the server has to \
         be repaired"
    )]
    BlockSizes {
        /// The smallest block, in bytes.
        min: u32,
        /// What it likes best, in bytes.
        preferred: u32,
        /// The longest data of a request, in bytes.
        max: u32,
    },
    /// A reply breaks the protocol.
    #[error("reply breaks the protocol: {0}")]
    Malformed(&'static str),
}

fn said(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Greeting,
    /// Waiting for the reply to this option.
    StartTls,
    Structured,
    Context,
    Go,
    ExportName,
    Done,
}

/// One handshake.
#[derive(Debug)]
pub struct Handshake {
    name: String,
    state: State,
    wants_tls: bool,
    wants_status: bool,
    received: Vec<u8>,
    output: Vec<u8>,
    replies: u32,
    without_zeroes: bool,
    size_and_flags: Option<(u64, TransmissionFlags)>,
    export: Export,
}

impl Handshake {
    /// A handshake for the export of this name; empty for the server's default.
    ///
    /// # Errors
    ///
    /// The name is too long.
    pub fn new(name: &str) -> Result<Self, HandshakeError> {
        if name.len() > NAME_MAX_BYTES {
            let got_bytes = name.len();
            return Err(HandshakeError::NameTooLong { got_bytes });
        }
        Ok(Self {
            name: name.to_owned(),
            state: State::Greeting,
            wants_tls: false,
            wants_status: false,
            received: Vec::new(),
            output: Vec::new(),
            replies: 0,
            without_zeroes: false,
            size_and_flags: None,
            export: Export {
                size_bytes: 0,
                flags: TransmissionFlags::default(),
                block_min_bytes: BLOCK_MIN_DEFAULT,
                block_preferred_bytes: BLOCK_PREFERRED_DEFAULT,
                payload_max_bytes: PAYLOAD_MAX_DEFAULT,
                has_structured_replies: false,
                allocation_context: None,
            },
        })
    }

    /// Goes on over TLS, or not at all.
    #[must_use]
    pub fn with_tls(self) -> Self {
        Self {
            wants_tls: true,
            ..self
        }
    }

    /// Asks for [`Export::allocation_context`], too.
    #[must_use]
    pub fn with_block_status(self) -> Self {
        Self {
            wants_status: true,
            ..self
        }
    }

    /// What is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes received bytes.
    ///
    /// # Errors
    ///
    /// Close the connection.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Progress, HandshakeError> {
        self.received.extend_from_slice(bytes);
        while self.state != State::Done {
            let received = std::mem::take(&mut self.received);
            let mut reader = Reader(&received);
            let before = self.state;
            let went_on = self.step(&mut reader)?;
            let used = match went_on {
                Some(()) => received.len().saturating_sub(reader.0.len()),
                None => 0,
            };
            self.received = received;
            self.received.drain(..used);
            if went_on.is_none() {
                return Ok(Progress::More);
            }
            if before == State::StartTls {
                // What is here already came in clear text.
                return match self.received.is_empty() {
                    true => Ok(Progress::StartTls),
                    false => Err(HandshakeError::ClearText),
                };
            }
        }
        Ok(Progress::Done(self.export))
    }

    /// What was received behind the end of the handshake.
    #[must_use]
    pub fn into_unread(self) -> Vec<u8> {
        self.received
    }

    /// Takes one message; `None` while it is not complete.
    fn step(&mut self, reader: &mut Reader<'_>) -> Result<Option<()>, HandshakeError> {
        match self.state {
            State::Greeting => self.take_greeting(reader),
            State::StartTls | State::Structured | State::Context | State::Go => {
                self.take_reply(reader)
            }
            State::ExportName => Ok(self.take_export_name(reader)),
            State::Done => Ok(None),
        }
    }

    fn take_greeting(&mut self, reader: &mut Reader<'_>) -> Result<Option<()>, HandshakeError> {
        let magics = [GREETING_MAGIC, OPTION_MAGIC];
        for magic in magics {
            match reader.u64() {
                None => return Ok(None),
                Some(got) if got == magic => {}
                Some(_) => return Err(HandshakeError::NotNbd),
            }
        }
        let Some(flags) = reader.u16() else {
            return Ok(None);
        };
        let known = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
        self.without_zeroes = flags & handshake_flags::NO_ZEROES != 0;
        let answer = u32::from(flags & known);
        self.output.extend_from_slice(&answer.to_be_bytes());
        let takes_options = flags & handshake_flags::FIXED_NEWSTYLE != 0;
        match (takes_options, self.wants_tls) {
            (true, true) => {
                self.push_option(option::STARTTLS, &[]);
                self.state = State::StartTls;
            }
            (true, false) => self.ask_for_chunks(),
            (false, true) => return Err(HandshakeError::TlsRefused(String::new())),
            (false, false) => self.ask_by_name(),
        }
        Ok(Some(()))
    }

    fn ask_for_chunks(&mut self) {
        self.push_option(option::STRUCTURED_REPLY, &[]);
        self.state = State::Structured;
    }

    /// Asks for the context of allocations, of this export.
    fn ask_for_context(&mut self) {
        let (name, query) = (self.name.as_bytes(), ALLOCATION.as_bytes());
        let data = [
            &length(name).to_be_bytes(),
            name,
            &1_u32.to_be_bytes(), // So many queries.
            &length(query).to_be_bytes(),
            query,
        ]
        .concat();
        self.push_option(option::SET_META_CONTEXT, &data);
        self.state = State::Context;
    }

    fn push_option(&mut self, option: u32, data: &[u8]) {
        self.output.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        self.output.extend_from_slice(&option.to_be_bytes());
        self.output.extend_from_slice(&length(data).to_be_bytes());
        self.output.extend_from_slice(data);
    }

    /// Asks for the export, with block sizes.
    fn ask_by_go(&mut self) {
        let name = self.name.as_bytes();
        let mut data = length(name).to_be_bytes().to_vec();
        data.extend_from_slice(name);
        data.extend_from_slice(&1_u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        self.push_option(option::GO, &data);
        self.state = State::Go;
    }

    /// Asks for the export the way every server knows.
    fn ask_by_name(&mut self) {
        let name = self.name.clone();
        self.push_option(option::EXPORT_NAME, name.as_bytes());
        self.state = State::ExportName;
    }

    fn take_reply(&mut self, reader: &mut Reader<'_>) -> Result<Option<()>, HandshakeError> {
        let header = (|| Some((reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?)))();
        let Some((magic, option, kind, length)) = header else {
            return Ok(None);
        };
        let asked = match self.state {
            State::StartTls => option::STARTTLS,
            State::Structured => option::STRUCTURED_REPLY,
            State::Context => option::SET_META_CONTEXT,
            State::Go | State::Greeting | State::ExportName | State::Done => option::GO,
        };
        if magic != OPTION_REPLY_MAGIC || option != asked {
            return Err(HandshakeError::Malformed("not a reply to the option"));
        }
        if length > REPLY_MAX_BYTES {
            return Err(HandshakeError::Malformed("too long"));
        }
        let Some(data) = usize::try_from(length).ok().and_then(|n| reader.bytes(n)) else {
            return Ok(None);
        };
        self.replies = self.replies.saturating_add(1);
        if self.replies > REPLIES_MAX {
            return Err(HandshakeError::Malformed("too many replies"));
        }
        match self.state {
            State::StartTls if kind == reply::ACK => self.ask_for_chunks(),
            State::StartTls => return Err(HandshakeError::TlsRefused(text(data))),
            State::Structured => {
                // Whatever is wrong with this option, the export may still be had.
                self.export.has_structured_replies = kind == reply::ACK;
                if self.wants_status && self.export.has_structured_replies {
                    self.ask_for_context();
                } else {
                    self.ask_by_go();
                }
            }
            State::Context => self.take_context(kind, data)?,
            State::Go | State::Greeting | State::ExportName | State::Done => {
                self.take_go_reply(kind, data)?;
            }
        }
        Ok(Some(()))
    }

    fn take_context(&mut self, kind: u32, data: &[u8]) -> Result<(), HandshakeError> {
        if kind == reply::META_CONTEXT {
            let mut reader = Reader(data);
            let number = reader
                .u32()
                .ok_or(HandshakeError::Malformed("context too short"))?;
            if reader.0 == ALLOCATION.as_bytes() {
                self.export.allocation_context = Some(number);
            }
            return Ok(());
        }
        if kind != reply::ACK {
            // It knows no contexts, or not of this export; the export may still be had.
            self.export.allocation_context = None;
        }
        self.ask_by_go();
        Ok(())
    }

    fn take_go_reply(&mut self, kind: u32, data: &[u8]) -> Result<(), HandshakeError> {
        match kind {
            reply::INFO => return self.take_info(data),
            reply::ACK => {
                let known = self.size_and_flags;
                let (size_bytes, flags) =
                    known.ok_or(HandshakeError::Malformed("no size of the export"))?;
                (self.export.size_bytes, self.export.flags) = (size_bytes, flags);
                self.state = State::Done;
                return Ok(());
            }
            reply::ERR_UNSUP => {
                self.ask_by_name();
                return Ok(());
            }
            _ => {}
        }
        match kind {
            reply::ERR_UNKNOWN => Err(HandshakeError::UnknownExport(text(data))),
            reply::ERR_TLS_REQD => Err(HandshakeError::TlsRequired(text(data))),
            code if code & reply::ERROR_BIT != 0 => Err(HandshakeError::Refused {
                code,
                message: text(data),
            }),
            // Spec: unknown replies that are no errors are to be ignored.
            _ => Ok(()),
        }
    }

    fn take_info(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let short = HandshakeError::Malformed("information too short");
        let mut reader = Reader(data);
        match reader.u16() {
            Some(info::EXPORT) => {
                let size = reader.u64().zip(reader.u16());
                let (size_bytes, flags) = size.ok_or(short)?;
                self.size_and_flags = Some((size_bytes, TransmissionFlags(flags)));
            }
            Some(info::BLOCK_SIZE) => {
                let sizes = (|| Some((reader.u32()?, reader.u32()?, reader.u32()?)))();
                let (min, preferred, max) = sizes.ok_or(short)?;
                // Spec: the others are multiples of the least; a maximum of all ones is none.
                let fits = |size: u32| size >= min && size.is_multiple_of(min);
                let is_limited = max != u32::MAX;
                if !min.is_power_of_two() || !fits(preferred) || is_limited && !fits(max) {
                    return Err(HandshakeError::BlockSizes {
                        min,
                        preferred,
                        max,
                    });
                }
                self.export.block_min_bytes = min;
                self.export.block_preferred_bytes = preferred;
                self.export.payload_max_bytes = max;
            }
            Some(_) => {}
            None => return Err(short),
        }
        Ok(())
    }

    /// Without a header there is nothing else to read: a server that knows no such export hangs up.
    fn take_export_name(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let (size_bytes, flags) = (reader.u64()?, reader.u16()?);
        if !self.without_zeroes {
            reader.bytes(EXPORT_NAME_ZEROES)?;
        }
        self.export.size_bytes = size_bytes;
        self.export.flags = TransmissionFlags(flags);
        self.state = State::Done;
        Some(())
    }
}

/// The message of an error.
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim().to_owned()
}

/// Options are short: names are limited, and the rest is fixed.
fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}
