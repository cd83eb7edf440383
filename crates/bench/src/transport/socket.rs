//! What transports over a stream socket share: connecting with a deadline, and one receive and
//! one send under way on the ring.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use memory::{Buffer, Message, Payload};
use reactor::{Event, Reactor, SendEnd, Socket};

use super::token;
use crate::error::BenchError;
use crate::url::host_port;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one answer may take before the first I/O.
pub(super) const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// What one send gathers at most, but for the last piece: large enough to make the system call
/// cheap, small enough to stay in the cache.
pub(super) const SEND_BYTES_MAX: usize = 512 * 1024;
/// Room that the bytes of a message keep.
const MESSAGE_ROOM_BYTES: usize = 1 << 20;

const PART_RECEIVE: u32 = 0;
const PART_SEND: u32 = 1;

/// What a failed blocking call means for a person.
pub(super) fn words(error: &io::Error) -> String {
    if matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) {
        let seconds = SETUP_TIMEOUT.as_secs();
        return format!("no answer within {seconds} s; is this the right kind of server?");
    }
    error.to_string()
}

/// A stream whose reads and writes block for a bounded time.
pub(super) trait Stream: Read + Write {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn into_fd(self) -> OwnedFd;
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    fn into_fd(self) -> OwnedFd {
        self.into()
    }
}

/// Connects to the first address of the host that answers.
pub(super) fn connect(target: &str, host: &str, port: u16) -> Result<TcpStream, BenchError> {
    let failed = |source| BenchError::Connect {
        target: target.to_owned(),
        address: host_port(host, port),
        source,
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_timeout(Some(SETUP_TIMEOUT)).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// A socket on the ring of its thread.
#[derive(Debug)]
pub(super) struct Pipe {
    socket: Socket,
    lane: u32,
    is_receiving: bool,
    /// Away while a send is under way.
    message: Option<Message>,
}

/// What a [`Pipe`] makes of an event.
pub(super) enum Heard {
    /// Bytes from the peer.
    Bytes { chunk: Rc<Buffer>, len: usize },
    /// Room to send more.
    Sent,
}

impl Pipe {
    /// Takes over a stream that was used in blocking calls until now.
    pub(super) fn new(stream: impl Stream, lane: u32) -> io::Result<Self> {
        stream.set_timeout(None)?;
        Ok(Self {
            socket: Socket::new(stream.into_fd())?,
            lane,
            is_receiving: false,
            message: Some(Message::default()),
        })
    }

    /// Lets `write` fill the message and sends it, unless one is still under way; waits for
    /// data in any case.
    pub(super) fn flush(&mut self, reactor: &mut Reactor, write: impl FnOnce(&mut Message)) {
        if let Some(mut message) = self.message.take() {
            write(&mut message);
            if message.is_empty() {
                self.message = Some(message);
            } else {
                reactor.send(
                    &self.socket,
                    token(self.lane, PART_SEND),
                    message,
                    SendEnd::Wakes,
                );
            }
        }
        if !self.is_receiving {
            self.is_receiving = true;
            reactor.receive(&self.socket, token(self.lane, PART_RECEIVE));
        }
    }

    /// Takes an event of this lane. An error is the end of the connection, in words.
    pub(super) fn handle(&mut self, event: Event) -> Result<Heard, String> {
        match event {
            Event::Received { result, .. } => {
                self.is_receiving = false;
                match result {
                    Ok(received) if received.len > 0 => Ok(Heard::Bytes {
                        len: received.len,
                        chunk: received.chunk,
                    }),
                    Ok(_) => Err("the target closed the connection".to_owned()),
                    Err(errno) => Err(io::Error::from(errno).to_string()),
                }
            }
            Event::Sent {
                mut message,
                result,
                ..
            } => {
                message.clear(MESSAGE_ROOM_BYTES);
                self.message = Some(message);
                result
                    .map(|()| Heard::Sent)
                    .map_err(|errno| io::Error::from(errno).to_string())
            }
            Event::Accepted { .. }
            | Event::ReceivedExact { .. }
            | Event::Datagram { .. }
            | Event::DatagramsSent { .. }
            | Event::Store { .. }
            | Event::Helper { .. }
            | Event::Mail { .. } => Err("an event that was not asked for".to_owned()),
        }
    }
}

/// A message under construction that refers to a pattern rather than copying it.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    pub(super) message: &'a mut Message,
    pub(super) pattern: Option<&'a super::Pattern>,
}

impl Gather<'_> {
    /// Appends a part of the pattern from where it lies; false when `data` is something else.
    pub(super) fn refer(
        &mut self,
        data: &std::sync::Arc<[u8]>,
        range: &std::ops::Range<usize>,
    ) -> bool {
        /// Below this, copying is cheaper than one more piece of memory for the kernel.
        const REFER_BYTES_MIN: usize = 1024;
        let Some(pattern) = self.pattern else {
            return false;
        };
        if range.len() < REFER_BYTES_MIN || !std::sync::Arc::ptr_eq(&pattern.bytes, data) {
            return false;
        }
        let index = self.message.push_payload(Payload::Received {
            chunk: Rc::clone(&pattern.buffer),
            offset: range.start,
            len: range.len(),
        });
        self.message.push_part(index, 0, range.len());
        true
    }
}
