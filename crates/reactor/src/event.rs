//! The events of a reactor, for its owner.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use memory::{Buffer, Message};
use rustix::io::Errno;
use store::{HelperResult, RingOperation};

use crate::Datagram;

/// Chosen by the owner for an operation, and given back with its event.
pub type Token = u64;

/// Names one operation under way, for [`crate::Reactor::cancel`]. It is never used twice, so a
/// late cancel cannot hit another operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OperationId(pub(crate) u64);

/// How long [`crate::Reactor::turn`] may sleep when nothing is ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Until something happens or [`crate::Reactor::now`] would reach this time.
    Until(Duration),
    /// Until something happens.
    Forever,
}

/// Whether somebody waits for the end of a send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendEnd {
    /// [`Event::Sent`] ends a sleep.
    Wakes,
    /// Where the kernel takes the whole message when it is submitted, its [`Event::Sent`] comes with the next
    /// event that ends a sleep, however late that is. Where it does not, as with [`SendEnd::Wakes`].
    Waits,
}

/// The end of an operation, or mail.
#[derive(Debug)]
pub enum Event {
    /// Of [`crate::Reactor::accept`].
    Accepted {
        /// The owner's.
        token: Token,
        /// The new connection and its peer.
        result: Result<(OwnedFd, SocketAddr), Errno>,
    },
    /// Of [`crate::Reactor::receive`].
    Received {
        /// The owner's.
        token: Token,
        /// What came; a `len` of zero is the end of the stream.
        result: Result<Received, Errno>,
    },
    /// Of [`crate::Reactor::receive_exact`].
    ReceivedExact {
        /// The owner's.
        token: Token,
        /// The buffer that was lent.
        buffer: Buffer,
        /// How many bytes came; fewer than asked for means that the stream ended.
        result: Result<usize, Errno>,
    },
    /// Of [`crate::Reactor::receive_datagrams`], each time one came and once at the end.
    Datagram {
        /// The owner's.
        token: Token,
        /// What came; an error is the last event of the operation.
        result: Result<Datagram, Errno>,
    },
    /// Of [`crate::Reactor::send_datagram`]: some datagrams of one token are over. It ends no sleep where the kernel
    /// took them when they were submitted.
    DatagramsSent {
        /// The owner's.
        token: Token,
        /// How many the kernel has taken.
        sent: u32,
        /// How many it has not.
        lost: u32,
    },
    /// Of [`crate::Reactor::send`].
    Sent {
        /// The owner's.
        token: Token,
        /// The message that was lent, unchanged.
        message: Message,
        /// Good when all of it is in the hands of the kernel.
        result: Result<(), Errno>,
        /// The kernel took all of it when it was submitted, which was before the sleep of this turn.
        at_once: bool,
    },
    /// Of [`crate::Reactor::submit_store`].
    Store {
        /// The owner's.
        token: Token,
        /// The operation, for [`store::Backstore::handle_ring_result`].
        operation: RingOperation,
        /// The kernel's: a count, zero, or a negative error number.
        result: i32,
    },
    /// Of [`crate::Reactor::submit_helper`].
    Helper {
        /// The owner's.
        token: Token,
        /// For [`store::Backstore::handle_helper_result`].
        result: HelperResult,
    },
    /// A mailbox given to [`crate::Reactor::watch`] holds something; take all of it.
    Mail {
        /// The token given to `watch`.
        token: Token,
    },
}

/// What one receive brought.
#[derive(Debug)]
pub struct Received {
    /// The bytes; `chunk.len()` says how many. Keep clones for parts that are used in place
    /// ([`memory::Payload::Received`]) and drop the rest early: the whole chunk is taken for as
    /// long as one clone lives.
    pub chunk: Rc<Buffer>,
    /// In bytes, zero at the end of the stream.
    pub len: usize,
    /// The socket holds more already.
    pub more: bool,
}
