//! What is to be opened, and why it cannot be.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use handler::{GreetingError, Violation};

use crate::scsi::link::NoDisk;
use crate::scsi::medium::InUse;
use crate::words;

/// For connecting, and for all that is asked of the device then.
pub(super) const MEET_MAX: Duration = Duration::from_secs(5);

/// Why a handler cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("handler:{}: {reason}", path.display())]
pub struct HandlerOpenError {
    pub(super) path: PathBuf,
    /// What was found.
    pub reason: Box<HandlerFailure>,
}

/// What keeps a handler from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerFailure {
    /// No connection.
    #[error("cannot connect: {}; start the handler, or check its socket", words(.0))]
    Connect(io::Error),
    /// No memory for a ring.
    #[error("there is no memory for its commands: {}", words(.0))]
    Memory(io::Error),
    /// Nothing came in time.
    #[error("it accepts, but does not answer within {} s; is this a handler, and does it work?", MEET_MAX.as_secs())]
    Silent,
    /// This command had no answer, for this reason.
    #[error("{0}: {1}")]
    Unanswered(String, Box<Self>),
    /// The connection broke off.
    #[error("the connection broke off: {}; is this a handler?", words(.0))]
    BrokenOff(io::Error),
    /// Something else, or another version.
    #[error("{0}; start one of this version there")]
    Greeting(#[from] GreetingError),
    /// It broke the protocol while it was asked what it is.
    #[error("the handler broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// It takes no commands.
    #[error("the handler is busy, and does not say what its device is")]
    Busy,
    /// It does not say what it is.
    #[error("the device does not say what it is (INQUIRY, at least 36 bytes)")]
    NoInquiry,
    /// Another store has the device.
    #[error(transparent)]
    Twice(InUse),
}

impl From<NoDisk> for HandlerFailure {
    fn from(error: NoDisk) -> Self {
        match error {
            NoDisk::Twice(in_use) => Self::Twice(in_use),
            NoDisk::Host(error) => Self::Memory(error),
        }
    }
}

/// What to open and how.
#[derive(Clone, Debug)]
pub struct HandlerOptions {
    /// The socket at which the handler listens.
    pub path: PathBuf,
    /// How long commands wait for a handler that is gone before they fail. Zero: they fail at once.
    pub retry: Duration,
}
