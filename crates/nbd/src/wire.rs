//! The numbers of the protocol. All are sent in network order.

use std::fmt;

/// First eight bytes of a greeting.
pub(crate) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second eight bytes of a greeting of the new style, and the start of each option.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, of the server in 16 bits and of the client in 32.
pub(crate) mod handshake_flags {
    /// Unknown options are answered, not punished.
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No 124 zeros behind the answer to `EXPORT_NAME`.
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the client.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options; those with the highest bit are errors.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERROR_BIT: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub(crate) const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub(crate) const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
}

/// Information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Types of requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub(crate) mod command_flags {
    /// On stable storage before it is answered.
    pub(crate) const FUA: u16 = 1 << 0;
    /// Zeros that keep their space.
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    /// A read is answered in one chunk.
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 2;
    /// A block status has one extent.
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    /// Fail with `ENOTSUP` instead of writing zeros slowly.
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Types of chunks of structured replies; those with the highest bit are errors.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
    /// The whole request failed.
    pub(crate) const ERROR: u16 = ERROR_BIT | 1;
    /// In the flags: the last chunk of its reply.
    pub(crate) const DONE: u16 = 1 << 0;
}

/// What an export can do, as its server says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// Flags that say only that there are flags.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// See [`Self::is_read_only`].
    pub const READ_ONLY: Self = Self(1 << 1);
    /// See [`Self::can_flush`].
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// See [`Self::can_fua`].
    pub const SEND_FUA: Self = Self(1 << 3);
    /// See [`Self::can_trim`].
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// See [`Self::can_write_zeroes`].
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// A read may ask for its answer in one chunk.
    pub const SEND_DF: Self = Self(1 << 7);
    /// See [`Self::can_multi_conn`].
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// See [`Self::can_fast_zero`].
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// These flags, and those.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These flags without those.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    const fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    /// No writes of any kind.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.has(1 << 1)
    }

    /// Takes [`crate::Work::Flush`].
    #[must_use]
    pub const fn can_flush(self) -> bool {
        self.has(1 << 2)
    }

    /// Takes the FUA flag.
    #[must_use]
    pub const fn can_fua(self) -> bool {
        self.has(1 << 3)
    }

    /// Takes [`crate::Work::Trim`].
    #[must_use]
    pub const fn can_trim(self) -> bool {
        self.has(1 << 5)
    }

    /// Takes [`crate::Work::WriteZeroes`].
    #[must_use]
    pub const fn can_write_zeroes(self) -> bool {
        self.has(1 << 6)
    }

    /// What one connection wrote and flushed, another one reads, and a flush covers the answered writes of all.
    #[must_use]
    pub const fn can_multi_conn(self) -> bool {
        self.has(1 << 8)
    }

    /// Takes [`crate::Work::WriteZeroes`] that fails rather than being slow.
    #[must_use]
    pub const fn can_fast_zero(self) -> bool {
        self.has(1 << 11)
    }

    /// The medium rotates.
    #[must_use]
    pub const fn is_rotational(self) -> bool {
        self.has(1 << 4)
    }
}

/// An error number that the server answered a request with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerError(pub u32);

impl ServerError {
    /// Input or output failed (`EIO`).
    pub const IO: Self = Self(5);
    /// No memory now (`ENOMEM`).
    pub const NO_MEMORY: Self = Self(12);
    /// The request is not valid (`EINVAL`).
    pub const INVALID: Self = Self(22);
    /// No space left (`ENOSPC`).
    pub const NO_SPACE: Self = Self(28);
    /// Not permitted (`EPERM`): the export is read-only.
    pub const NOT_PERMITTED: Self = Self(1);
    /// The server cannot do this, or not fast ([`crate::Work::WriteZeroes`]) (`ENOTSUP`).
    pub const NOT_SUPPORTED: Self = Self(95);
    /// The server is about to end (`ESHUTDOWN`).
    pub const SHUTTING_DOWN: Self = Self(108);
    /// The server may have lost writes that it answered, and goes on: its next flush is good. The protocol has no
    /// number for that. It is sent as `EIO` with [`CACHE_LOST_MESSAGE`], or without it where replies have no messages.
    pub const CACHE_LOST: Self = Self(u32::MAX);

    /// What is sent.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::CACHE_LOST => Self::IO.0,
            Self(number) => number,
        }
    }

    /// What an error chunk says.
    pub(crate) fn of_chunk(number: Option<u32>, message: Option<&[u8]>) -> Self {
        match number.map(Self) {
            Some(Self::IO) if message == Some(CACHE_LOST_MESSAGE) => Self::CACHE_LOST,
            // No number of the protocol.
            None | Some(Self(0) | Self::CACHE_LOST) => Self::IO,
            Some(error) => error,
        }
    }
}

/// The message of [`ServerError::CACHE_LOST`].
pub(crate) const CACHE_LOST_MESSAGE: &[u8; 16] = b"tarn: cache lost";

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(u32, &str); 8] = [
            (1, "EPERM: not permitted"),
            (5, "EIO: input or output failed"),
            (12, "ENOMEM: no memory"),
            (22, "EINVAL: invalid request"),
            (28, "ENOSPC: no space left"),
            (75, "EOVERFLOW: too large"),
            (95, "ENOTSUP: not supported"),
            (108, "ESHUTDOWN: shutting down"),
        ];
        match NAMES.iter().find(|(code, _)| *code == self.number()) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "error {}", self.0),
        }
    }
}
