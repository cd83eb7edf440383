//! A connected socket, held by its owner and by all operations under way on it.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::Shutdown;

use crate::net;

/// A connected stream socket of one core. Clones name the same socket; it is closed when the last
/// is dropped and the last operation on it has ended.
#[derive(Clone, Debug)]
pub struct Socket(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// The last receive left nothing behind.
    drained: Cell<bool>,
}

impl Socket {
    /// Takes over a connected socket.
    ///
    /// It is made blocking, which costs nobody any waiting: on a ring it means that operations
    /// wait for data inside the kernel instead of failing with `EAGAIN`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::make_blocking(&fd)?;
        let drained = Cell::new(false);
        Ok(Self(Rc::new(Shared { fd, drained })))
    }

    pub(crate) fn make_blocking(fd: &OwnedFd) -> io::Result<()> {
        let flags = fcntl_getfl(fd)?;
        if flags.contains(OFlags::NONBLOCK) {
            fcntl_setfl(fd, flags - OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    /// Ends the connection both ways. Operations under way end soon, with the end of the stream
    /// or an error.
    pub fn shutdown(&self) {
        if let Err(error) = rustix::net::shutdown(&self.0.fd, Shutdown::Both) {
            // The peer was first, which is as good.
            tracing::trace!(%error, "shutdown of an ended connection");
        }
    }

    /// Whether the other end has acknowledged all that was to be sent, and has not reset the connection, after which
    /// the kernel has dropped the rest. Other sockets than those of TCP say so always: what they are given is with
    /// their peer.
    ///
    /// Spec: `struct tcp_info` of the kernel's interface, in the byte order of the machine: the state at byte 0,
    /// segments that are not acknowledged at 24, bytes that wait for the window at 144.
    pub fn is_acknowledged(&self) -> bool {
        const ESTABLISHED: u8 = 1;
        const CLOSE_WAIT: u8 = 8;
        let mut info = [0_u8; 148];
        let mut len = libc::socklen_t::try_from(info.len()).unwrap_or(0);
        // SAFETY: the kernel writes at most so many bytes to what is there for the time of the call.
        let result = unsafe {
            libc::getsockopt(
                self.raw(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let is_none = |at: usize| info.get(at..at + 4) == Some(&[0; 4]);
        let is_open = matches!(info[0], ESTABLISHED | CLOSE_WAIT);
        let is_whole = usize::try_from(len) == Ok(info.len());
        result != 0 || is_whole && is_open && is_none(24) && is_none(144)
    }

    /// The socket without its core, to be moved to another one. Gives it back while clones of it
    /// live or operations are under way.
    pub fn park(self) -> Result<ParkedSocket, Self> {
        let parked = Rc::try_unwrap(self.0).map(|shared| ParkedSocket(shared.fd));
        parked.map_err(Self)
    }

    /// The address of the other end.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        net::peer_address(&self.0.fd)
    }

    /// The address of this end.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        net::local_address(&self.0.fd)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.0.drained.get()
    }

    pub(crate) fn note_drained(&self, drained: bool) {
        self.0.drained.set(drained);
    }
}

/// A connected socket between two cores.
#[derive(Debug)]
pub struct ParkedSocket(OwnedFd);

impl From<ParkedSocket> for Socket {
    /// It is blocking already.
    fn from(ParkedSocket(fd): ParkedSocket) -> Self {
        let drained = Cell::new(false);
        Self(Rc::new(Shared { fd, drained }))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_leaves_its_core_only_when_it_is_held_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let socket = Socket::new(stream.into()).unwrap();
        assert!(!fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
        assert_eq!(
            socket.peer_address().unwrap(),
            listener.local_addr().unwrap()
        );

        let clone = socket.clone();
        let socket = socket.park().unwrap_err();
        drop(clone);
        let socket = Socket::from(socket.park().unwrap());
        assert!(!fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
    }
}
