//! Links of the world as the sessions of a core see them: one receive and one send under way on each.

use std::collections::VecDeque;
use std::net::SocketAddr;

use front::iscsi::{Detail, Line, LineKey};
use iscsi::framing::Pdu;
use iscsi::names::IscsiName;
use iscsi::negotiate::ConnectionParameters;
use iscsi::target::Receive;
use memory::Message;

/// How much one receive into a chunk takes, in bytes.
const CHUNK_BYTES: usize = 8192;

/// A link of the world.
#[derive(Debug)]
pub struct Link(pub usize);

impl Line for Link {
    type Context = ();

    /// Every link has an address of its own.
    fn peer(&self) -> SocketAddr {
        let [.., high, low] = self.0.to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 49_152))
    }

    fn portal(&self) -> SocketAddr {
        SocketAddr::from(([10, 1, 0, 1], 3260))
    }

    fn has_had_all(&self) -> bool {
        false
    }

    fn note_login(&mut self, _: &Pdu, _: Option<&IscsiName>, (): &()) {}

    fn enter(&mut self, _: &Detail, _: &ConnectionParameters, (): &()) {}

    fn note_received(&mut self, _: &[u8]) {}

    fn note_sent(&mut self, _: &Message) {}
}

/// A message on its way out. It keeps its data alive until all of it is sent, as a reactor would.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) key: LineKey,
    pub(super) message: Message,
    bytes: Vec<u8>,
    sent: usize,
}

impl Sending {
    pub(super) fn new(key: LineKey, message: Message) -> Self {
        Self {
            key,
            bytes: message.to_vec(),
            message,
            sent: 0,
        }
    }

    /// The next bytes, up to so many.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let left = &self.bytes[self.sent..];
        let taken = left[..len.min(left.len())].to_vec();
        self.sent += taken.len();
        taken
    }

    pub(super) const fn is_over(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

/// What is under way on a link.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    pub(super) receiving: Option<(LineKey, Receive)>,
    pub(super) sending: Option<Sending>,
    /// What was sent and the target need not wake for.
    pub(super) buffered: VecDeque<u8>,
    /// A send of which all is there. The target learns of its end with its next turn.
    pub(super) unwatched: Option<(LineKey, Message)>,
    /// It was shut: whatever is under way has ended, and is to be said so.
    pub(super) is_shut: bool,
}

impl UnderWay {
    /// How much a receive would take now, in bytes.
    pub(super) fn appetite(&self) -> usize {
        match &self.receiving {
            Some((_, Receive::Chunk { limit_bytes })) => CHUNK_BYTES.min(*limit_bytes),
            Some((_, Receive::Exact { range, .. })) => range.len(),
            None => 0,
        }
    }
}
