//! From the greeting to the export, as a server.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::{ALLOCATION_CONTEXT, PAYLOAD_MAX_BYTES};
use crate::reader::Reader;
use crate::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, TransmissionFlags, handshake_flags, info,
    option, reply,
};

/// Longest name of an export in bytes.
const NAME_MAX_BYTES: u32 = 4096;
/// Longest data of one option in bytes: a name, and as much again for the rest.
const OPTION_MAX_BYTES: u32 = 2 * NAME_MAX_BYTES;
/// Most options of one client.
const OPTIONS_MAX: u32 = 64;
/// With more than this to be sent, in bytes, no further option is looked at.
const OUTPUT_MAX_BYTES: usize = 16 * 1024;
/// The only context there is.
const ALLOCATION: &[u8] = b"base:allocation";
/// The names of contexts that begin so.
const BASE: &[u8] = b"base:";
/// Zeros behind the answer to `EXPORT_NAME`, unless the client can do without.
const EXPORT_NAME_ZEROES: usize = 124;
/// The smallest block that a client may take for granted that asks for none.
const BLOCK_ASSUMED_BYTES: u32 = 512;

/// An export as a client sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Offer {
    /// Its own name, also when it was asked for by the empty one.
    pub name: String,
    /// In bytes.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// Offsets and lengths are multiples of this many bytes, a power of two.
    pub block_min_bytes: u32,
    /// What serves best, in bytes.
    pub block_preferred_bytes: u32,
}

/// What the client of a handshake may have.
pub trait Exports {
    /// The names of all of them.
    fn names(&self) -> Vec<String>;

    /// The one of this name; the empty name is that of the default, if there is one.
    fn find(&self, name: &str) -> Option<Offer>;
}

/// Whether a client may, or has to, begin TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tls {
    /// There is none.
    Off,
    /// Nothing is answered before it has begun.
    Required,
    /// It has begun.
    On,
}

/// What was agreed on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Agreement {
    /// The export.
    pub offer: Offer,
    /// Replies to reads are structured, and errors are.
    pub has_structured_replies: bool,
    /// Block status was agreed on.
    pub has_allocation_context: bool,
}

/// What the caller of a [`Handshake`] does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Send what is to be sent, and receive.
    More,
    /// Send what is to be sent, then begin TLS. What comes over it goes on with this handshake.
    StartTls,
    /// It is over. Send what is to be sent.
    Done(Box<Agreement>),
    /// The client wants nothing. Send what is to be sent, and close.
    Aborted,
}

/// Why there is nothing to be agreed on. Close the connection.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are those of something else.
    #[error("the client does not speak NBD of the new style")]
    NotNbd,
    /// The client wants what the server did not offer.
    #[error("unknown flags {0:#x} of the client")]
    UnknownFlags(u32),
    /// Its data does not fit.
    #[error("option {option} with {got_bytes} bytes, the limit is {OPTION_MAX_BYTES}")]
    OptionTooLong {
        /// Which.
        option: u32,
        /// Its length.
        got_bytes: u32,
    },
    /// It goes on and on.
    #[error("more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// `EXPORT_NAME` has no other way to be refused.
    #[error("there is no such export, or not without TLS or block sizes")]
    NoExport,
    /// What came behind the wish for TLS could have been put there by anybody.
    #[error("the client sent clear text behind its wish for TLS")]
    ClearText,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Flags,
    Options,
    Over,
}

/// One handshake.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    tls: Tls,
    received: Vec<u8>,
    output: Vec<u8>,
    options: u32,
    without_zeroes: bool,
    has_structured_replies: bool,
    /// The export for which the context was set.
    context_of: Option<String>,
}

/// An option and its data.
struct Asked<'a> {
    option: u32,
    data: &'a [u8],
}

impl Handshake {
    /// A handshake, with the greeting to be sent.
    #[must_use]
    pub fn new(tls: Tls) -> Self {
        let mut output = Vec::new();
        output.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        output.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
        output.extend_from_slice(&flags.to_be_bytes());
        Self {
            state: State::Flags,
            tls,
            received: Vec::new(),
            output,
            options: 0,
            without_zeroes: false,
            has_structured_replies: false,
            context_of: None,
        }
    }

    /// What is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// What was received behind the end of the handshake.
    #[must_use]
    pub fn into_unread(self) -> Vec<u8> {
        self.received
    }

    /// Takes received bytes, as many as were received at once. To be called again, without any, when what was to be
    /// sent is sent: a client that does not read gets no more answers.
    ///
    /// # Errors
    ///
    /// Close the connection.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
        exports: &dyn Exports,
    ) -> Result<Progress, HandshakeError> {
        self.received.extend_from_slice(bytes);
        let mut received = std::mem::take(&mut self.received);
        let mut reader = Reader(&received);
        let outcome = self.advance(&mut reader, exports);
        let used = received.len().saturating_sub(reader.0.len());
        received.drain(..used);
        self.received = received;
        if outcome == Ok(Progress::StartTls) && !self.received.is_empty() {
            return Err(HandshakeError::ClearText);
        }
        outcome
    }

    fn advance(
        &mut self,
        reader: &mut Reader<'_>,
        exports: &dyn Exports,
    ) -> Result<Progress, HandshakeError> {
        while self.output.len() < OUTPUT_MAX_BYTES {
            let mut ahead = *reader;
            let progress = match self.state {
                State::Flags => {
                    let Some(flags) = ahead.u32() else {
                        break;
                    };
                    self.take_flags(flags)?;
                    None
                }
                State::Options => {
                    let Some(asked) = next_option(&mut ahead)? else {
                        break;
                    };
                    self.options = self.options.saturating_add(1);
                    if self.options > OPTIONS_MAX {
                        return Err(HandshakeError::TooManyOptions);
                    }
                    self.take_option(&asked, exports)?
                }
                State::Over => break,
            };
            *reader = ahead;
            if let Some(progress) = progress {
                return Ok(progress);
            }
        }
        Ok(Progress::More)
    }

    fn take_flags(&mut self, flags: u32) -> Result<(), HandshakeError> {
        let known = u32::from(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES);
        if flags & !known != 0 {
            return Err(HandshakeError::UnknownFlags(flags));
        }
        self.without_zeroes = flags & u32::from(handshake_flags::NO_ZEROES) != 0;
        self.state = State::Options;
        Ok(())
    }

    fn take_option(
        &mut self,
        asked: &Asked<'_>,
        exports: &dyn Exports,
    ) -> Result<Option<Progress>, HandshakeError> {
        let needs_tls = self.tls == Tls::Required;
        match asked.option {
            option::ABORT => {
                self.state = State::Over;
                self.reply(asked, reply::ACK, &[]);
                return Ok(Some(Progress::Aborted));
            }
            option::STARTTLS => return Ok(self.start_tls(asked)),
            option::EXPORT_NAME if needs_tls => return Err(HandshakeError::NoExport),
            _ if needs_tls => self.reply(asked, reply::ERR_TLS_REQD, b"TLS comes first"),
            option::EXPORT_NAME => return self.export_name(asked, exports).map(Some),
            option::LIST => self.list(asked, exports),
            option::INFO | option::GO => return Ok(self.go(asked, exports)),
            option::STRUCTURED_REPLY if asked.data.is_empty() => {
                self.has_structured_replies = true;
                self.reply(asked, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY => self.malformed(asked),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(asked, exports),
            _ => self.reply(asked, reply::ERR_UNSUP, b"this option is not known here"),
        }
        Ok(None)
    }

    fn start_tls(&mut self, asked: &Asked<'_>) -> Option<Progress> {
        if !asked.data.is_empty() {
            self.malformed(asked);
            return None;
        }
        match self.tls {
            Tls::Off => self.reply(asked, reply::ERR_UNSUP, b"this server has no TLS"),
            Tls::On => self.reply(asked, reply::ERR_INVALID, b"TLS has begun already"),
            Tls::Required => {
                self.tls = Tls::On;
                self.reply(asked, reply::ACK, &[]);
                return Some(Progress::StartTls);
            }
        }
        None
    }

    /// The way of old clients, on which an error has no words.
    fn export_name(
        &mut self,
        asked: &Asked<'_>,
        exports: &dyn Exports,
    ) -> Result<Progress, HandshakeError> {
        let offer = std::str::from_utf8(asked.data).ok();
        let offer = offer.and_then(|name| exports.find(name));
        let offer = offer.filter(|offer| offer.block_min_bytes <= BLOCK_ASSUMED_BYTES);
        let offer = offer.ok_or(HandshakeError::NoExport)?;
        self.output
            .extend_from_slice(&offer.size_bytes.to_be_bytes());
        let agreement = self.agree(offer);
        let flags = agreement.offer.flags.0.to_be_bytes();
        self.output.extend_from_slice(&flags);
        if !self.without_zeroes {
            self.output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(Progress::Done(Box::new(agreement)))
    }

    fn agree(&mut self, mut offer: Offer) -> Agreement {
        self.state = State::Over;
        offer.flags = self.flags_of(&offer);
        Agreement {
            has_structured_replies: self.has_structured_replies,
            has_allocation_context: self.has_structured_replies
                && self.context_of.as_ref() == Some(&offer.name),
            offer,
        }
    }

    /// Without chunks no read can ask for one.
    const fn flags_of(&self, offer: &Offer) -> TransmissionFlags {
        if self.has_structured_replies {
            offer.flags
        } else {
            offer.flags.without(TransmissionFlags::SEND_DF)
        }
    }

    fn list(&mut self, asked: &Asked<'_>, exports: &dyn Exports) {
        if !asked.data.is_empty() {
            self.malformed(asked);
            return;
        }
        for name in exports.names() {
            let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
            let entry = [&length.to_be_bytes(), name.as_bytes()].concat();
            self.reply(asked, reply::SERVER, &entry);
        }
        self.reply(asked, reply::ACK, &[]);
    }

    fn go(&mut self, asked: &Asked<'_>, exports: &dyn Exports) -> Option<Progress> {
        let Some((name, wanted)) = read_go(asked.data) else {
            self.malformed(asked);
            return None;
        };
        let Some(offer) = exports.find(name) else {
            self.reply(asked, reply::ERR_UNKNOWN, b"there is no such export");
            return None;
        };
        let wants = |kind: u16| wanted.contains(&kind);
        if asked.option == option::GO
            && offer.block_min_bytes > BLOCK_ASSUMED_BYTES
            && !wants(info::BLOCK_SIZE)
        {
            let why = b"the client has to ask for block sizes";
            self.reply(asked, reply::ERR_BLOCK_SIZE_REQD, why);
            return None;
        }
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend_from_slice(&offer.size_bytes.to_be_bytes());
        export.extend_from_slice(&self.flags_of(&offer).0.to_be_bytes());
        self.reply(asked, reply::INFO, &export);
        if wants(info::NAME) {
            let own = [&info::NAME.to_be_bytes(), offer.name.as_bytes()].concat();
            self.reply(asked, reply::INFO, &own);
        }
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [
            offer.block_min_bytes,
            offer.block_preferred_bytes,
            PAYLOAD_MAX_BYTES,
        ] {
            sizes.extend_from_slice(&size.to_be_bytes());
        }
        self.reply(asked, reply::INFO, &sizes);
        self.reply(asked, reply::ACK, &[]);
        (asked.option == option::GO).then(|| Progress::Done(Box::new(self.agree(offer))))
    }

    fn contexts(&mut self, asked: &Asked<'_>, exports: &dyn Exports) {
        let is_set = asked.option == option::SET_META_CONTEXT;
        if is_set && !self.has_structured_replies {
            self.reply(asked, reply::ERR_INVALID, b"structured replies come first");
            return;
        }
        let Some((name, queries)) = read_contexts(asked.data) else {
            self.malformed(asked);
            return;
        };
        if is_set {
            self.context_of = None;
        }
        let Some(offer) = exports.find(name) else {
            self.reply(asked, reply::ERR_UNKNOWN, b"there is no such export");
            return;
        };
        let is_meant = |query: &&[u8]| *query == ALLOCATION || !is_set && *query == BASE;
        if queries.iter().any(is_meant) || !is_set && queries.is_empty() {
            let id = if is_set { ALLOCATION_CONTEXT } else { 0 };
            let context = [&id.to_be_bytes(), ALLOCATION].concat();
            self.reply(asked, reply::META_CONTEXT, &context);
            if is_set {
                self.context_of = Some(offer.name);
            }
        }
        self.reply(asked, reply::ACK, &[]);
    }

    fn malformed(&mut self, asked: &Asked<'_>) {
        self.reply(
            asked,
            reply::ERR_INVALID,
            b"the data of the option is malformed",
        );
    }

    fn reply(&mut self, asked: &Asked<'_>, kind: u32, data: &[u8]) {
        let output = &mut self.output;
        output.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        output.extend_from_slice(&asked.option.to_be_bytes());
        output.extend_from_slice(&kind.to_be_bytes());
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        output.extend_from_slice(&length.to_be_bytes());
        output.extend_from_slice(data);
    }
}

/// The next whole option; `None` while it is not complete.
fn next_option<'a>(reader: &mut Reader<'a>) -> Result<Option<Asked<'a>>, HandshakeError> {
    let Some(magic) = reader.u64() else {
        return Ok(None);
    };
    if magic != OPTION_MAGIC {
        return Err(HandshakeError::NotNbd);
    }
    let (Some(option), Some(length)) = (reader.u32(), reader.u32()) else {
        return Ok(None);
    };
    if length > OPTION_MAX_BYTES {
        return Err(HandshakeError::OptionTooLong {
            option,
            got_bytes: length,
        });
    }
    let data = usize::try_from(length)
        .ok()
        .and_then(|length| reader.bytes(length));
    Ok(data.map(|data| Asked { option, data }))
}

/// A name with its length before it.
fn read_name<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let length = reader.u32().filter(|length| *length <= NAME_MAX_BYTES)?;
    std::str::from_utf8(reader.bytes(usize::try_from(length).ok()?)?).ok()
}

/// The name, and which information is wanted.
fn read_go(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut reader = Reader(data);
    let name = read_name(&mut reader)?;
    let count = reader.u16()?;
    let wanted: Option<Vec<u16>> = (0..count).map(|_| reader.u16()).collect();
    wanted
        .filter(|_| reader.0.is_empty())
        .map(|wanted| (name, wanted))
}

/// The name, and the queries.
fn read_contexts(data: &[u8]) -> Option<(&str, Vec<&[u8]>)> {
    let mut reader = Reader(data);
    let name = read_name(&mut reader)?;
    let count = reader.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(reader.u32()?).ok()?;
        queries.push(reader.bytes(length)?);
    }
    reader.0.is_empty().then_some((name, queries))
}
