//! A disk behind a connection: a peer has the medium. The protocol is one for tests.
//!
//! A request is a frame of 24 bytes: tag, operation (`r`, `w`, `f`, then three zeros), length, offset; the data of a
//! write follows. A reply is a frame of 16 bytes: tag, status (0 is good), length; the data of a read follows. A peer
//! does nothing more for a connection that has ended.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use memory::{Buffer, Message, Payload};

use crate::request::refuse;
use crate::{
    Backstore, Bottom, Capabilities, Durability, HelperAnswer, HelperOperation, HelperResult,
    IoAnswer, IoFailure, IoRequest, IoTag, Outlet, PartTag, SharedStore, SocketResult, SocketTag,
    SocketWork, Submitted, Waker,
};

/// Bytes of a request before its data.
pub const REQUEST_BYTES: usize = 24;
/// Bytes of a reply before its data.
pub const REPLY_BYTES: usize = 16;

/// The only connection of a handle.
const SOCKET: SocketTag = SocketTag(1);
// Numbers of operations.
const CONNECT: u64 = 0;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const FILL: u64 = 3;

/// A disk that every core reaches over a connection of its own.
#[derive(Clone, Debug)]
pub struct RemoteDisk {
    peer: SocketAddr,
    capabilities: Capabilities,
    patience: Duration,
}

impl RemoteDisk {
    /// A disk of so many bytes, in blocks of 512, at this peer. A request that is not answered in time ends the
    /// connection.
    pub const fn new(peer: SocketAddr, size_bytes: u64, patience: Duration) -> Self {
        let capabilities = Capabilities {
            volatile_cache: true,
            ..Capabilities::plain(size_bytes, 512)
        };
        Self {
            peer,
            capabilities,
            patience,
        }
    }
}

impl SharedStore for RemoteDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(RemoteHandle {
            disk: self.clone(),
            state: State::Connecting,
            unsent: VecDeque::new(),
            is_sending: false,
            open: HashMap::new(),
            head: Vec::new(),
            filling: None,
        }))
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Connected,
    Lost,
}

#[derive(Debug)]
struct RemoteHandle {
    disk: RemoteDisk,
    state: State,
    /// Frames that the socket has not been given.
    unsent: VecDeque<Message>,
    is_sending: bool,
    /// Requests that were not answered, each with the buffer of a read, unless data comes into that now.
    open: HashMap<IoTag, Option<Buffer>>,
    /// The beginning of a reply.
    head: Vec<u8>,
    /// The read whose buffer is being received into, and how many bytes are still to come.
    filling: Option<(IoTag, usize)>,
}

impl RemoteHandle {
    fn send_next(&mut self, outlet: &mut Outlet) {
        if self.state == State::Connected
            && !self.is_sending
            && let Some(message) = self.unsent.pop_front()
        {
            self.is_sending = true;
            outlet.on_socket(SOCKET, SEND, SocketWork::Send(message));
        }
    }

    /// The connection has ended: nothing that is open is answered by the peer.
    fn lose(&mut self, outlet: &mut Outlet) {
        if self.state == State::Connected {
            outlet.close_socket(SOCKET);
        }
        self.state = State::Lost;
        self.unsent.clear();
        for (tag, _) in self.open.drain() {
            outlet.answer(tag, Err(IoFailure::NotReady));
        }
    }

    /// Bytes of replies, in whatever pieces they come.
    fn take_bytes(&mut self, mut bytes: &[u8], outlet: &mut Outlet) {
        while !bytes.is_empty() {
            let missing = (REPLY_BYTES - self.head.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(missing);
            self.head.extend_from_slice(head);
            bytes = rest;
            if self.head.len() < REPLY_BYTES {
                break;
            }
            let number = |at: usize| {
                let field = self.head[at..at + 4].iter();
                field.fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
            };
            let tag = IoTag(u64::from(number(0)) << 32 | u64::from(number(4)));
            let (status, len) = (number(8), number(12) as usize);
            self.head.clear();
            let Some(buffer) = self.open.remove(&tag) else {
                self.lose(outlet);
                return;
            };
            let result = match buffer {
                _ if status != 0 => Err(IoFailure::Medium { offset: 0 }),
                None => Ok(IoAnswer::Done),
                Some(mut buffer) => {
                    let here = len.min(bytes.len());
                    buffer[..here].copy_from_slice(&bytes[..here]);
                    bytes = &bytes[here..];
                    if here < len {
                        self.filling = Some((tag, len - here));
                        self.open.insert(tag, None);
                        let range = here..len;
                        let work = SocketWork::ReceiveExact { buffer, range };
                        outlet.on_socket(SOCKET, FILL, work);
                        return;
                    }
                    Ok(IoAnswer::Data(Payload::Pool(buffer)))
                }
            };
            outlet.answer(tag, result);
        }
        outlet.on_socket(SOCKET, RECEIVE, SocketWork::Receive);
    }

    fn take_filled(&mut self, buffer: Buffer, came: usize, outlet: &mut Outlet) {
        let Some((tag, missing)) = self.filling.take() else {
            return;
        };
        if came < missing {
            self.lose(outlet);
            return;
        }
        self.open.remove(&tag);
        outlet.answer(tag, Ok(IoAnswer::Data(Payload::Pool(buffer))));
        outlet.on_socket(SOCKET, RECEIVE, SocketWork::Receive);
    }
}

fn frame(tag: IoTag, operation: u8, len: usize, offset: u64) -> Message {
    let mut message = Message::default();
    message.push_bytes(&tag.0.to_be_bytes());
    message.push_bytes(&[operation, 0, 0, 0]);
    message.push_bytes(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    message.push_bytes(&offset.to_be_bytes());
    message
}

impl Backstore for RemoteHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.disk.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn start(&mut self, _: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        let peer = self.disk.peer;
        let connect = move || match TcpStream::connect(peer) {
            Ok(stream) => Ok(HelperAnswer::Socket(stream.into())),
            Err(_) => Err(IoFailure::NotReady),
        };
        let operation = HelperOperation {
            name: "connect",
            work: Box::new(connect),
        };
        outlet.help(PartTag::own(CONNECT), operation);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.disk.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        if self.state == State::Lost {
            return Submitted::Done(Err(IoFailure::NotReady));
        }
        let (message, buffer) = match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => (frame(tag, b'r', len, offset), buffer),
            IoRequest::Write { offset, data, .. } => {
                let len = data.len();
                let mut message = frame(tag, b'w', len, offset);
                let index = message.push_payload(data);
                message.push_part(index, 0, len);
                (message, None)
            }
            IoRequest::Flush => (frame(tag, b'f', 0, 0), None),
            IoRequest::CompareAndWrite { .. }
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => {
                return Submitted::Done(Err(IoFailure::Hardware { errno: 0 }));
            }
        };
        self.open.insert(tag, buffer);
        self.unsent.push_back(message);
        self.send_next(outlet);
        outlet.set_timer(tag.0, self.disk.patience);
        Submitted::Taken
    }

    fn cancel(&mut self, _: IoTag, _: &mut Outlet) {
        // The peer has it, or will have it. Its reply ends it, or its time.
    }

    fn handle_helper_result(&mut self, _: PartTag, result: HelperResult, outlet: &mut Outlet) {
        if let Ok(HelperAnswer::Socket(descriptor)) = result {
            self.state = State::Connected;
            outlet.open_socket(SOCKET, descriptor);
            outlet.on_socket(SOCKET, RECEIVE, SocketWork::Receive);
            self.send_next(outlet);
        } else {
            self.lose(outlet);
        }
    }

    fn handle_socket(&mut self, _: SocketTag, _: u64, result: SocketResult, outlet: &mut Outlet) {
        if self.state == State::Lost {
            return;
        }
        match result {
            SocketResult::Sent { result: Ok(()), .. } => {
                self.is_sending = false;
                self.send_next(outlet);
            }
            SocketResult::Received(Ok((chunk, came))) if came > 0 => {
                self.take_bytes(&chunk[..came], outlet);
            }
            SocketResult::ReceivedExact {
                buffer,
                result: Ok(came),
            } => self.take_filled(buffer, came, outlet),
            SocketResult::Sent { .. }
            | SocketResult::Received(_)
            | SocketResult::ReceivedExact { .. } => self.lose(outlet),
        }
    }

    /// A request is not answered in time. What waits for the peer is cancelled, and the end of that is the end of the
    /// connection.
    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        if self.open.contains_key(&IoTag(number)) {
            outlet.cancel_part(PartTag::own(RECEIVE));
            outlet.cancel_part(PartTag::own(FILL));
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}
