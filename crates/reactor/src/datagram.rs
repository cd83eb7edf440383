//! Sockets of datagrams: whole messages, each with the address of its sender. UDP, and frames of a
//! link (`AF_PACKET`).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, RecvMsgOut};
use memory::{Buffer, Payload};

use crate::Socket;

/// Room for the address of a sender: `sockaddr_in6` is the longest that is understood.
pub(crate) const NAME_BYTES: usize = 28;

/// What the kernel writes in front of a datagram: its `io_uring_recvmsg_out`, then the address.
pub(crate) const HEAD_BYTES: usize = 16 + NAME_BYTES;

/// A socket of datagrams of one core. Clones name the same socket; it is closed when the last is
/// dropped and the last operation on it has ended.
#[derive(Clone, Debug)]
#[expect(
    clippy::redundant_allocation,
    reason = "each operation clones it, and to count for one thread is cheaper than for all"
)]
pub struct DatagramSocket(Rc<Arc<OwnedFd>>);

impl DatagramSocket {
    /// Takes over a bound socket. It is made blocking, as [`Socket::new`] says.
    ///
    /// # Errors
    ///
    /// The descriptor is none of a socket that can be made so.
    pub fn new(fd: impl Into<Arc<OwnedFd>>) -> io::Result<Self> {
        let fd = fd.into();
        Socket::make_blocking(&fd)?;
        Ok(Self(Rc::new(fd)))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where a datagram comes from or goes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Address {
    /// Of a UDP socket.
    Inet(SocketAddr),
    /// Of a station on a link.
    Link {
        /// Index of the interface of this host.
        interface: i32,
        /// Of the station.
        hardware: [u8; 6],
        /// The type of the frame. What is sent through a socket of whole frames has it there, and 0 here.
        protocol: u16,
    },
}

impl Address {
    /// Whether it is one of a link of the interface of this index, or of no link where there is none.
    #[must_use]
    pub fn is_of(&self, index: Option<i32>) -> bool {
        match self {
            Self::Inet(_) => index.is_none(),
            Self::Link { interface, .. } => index == Some(*interface),
        }
    }

    /// As the kernel lays it out: `sockaddr_in`, `sockaddr_in6` or `sockaddr_ll`.
    pub(crate) fn encode(self) -> Name {
        let mut name = Name::default();
        match self {
            Self::Inet(SocketAddr::V4(address)) => {
                name.put(&family(libc::AF_INET));
                name.put(&address.port().to_be_bytes());
                name.put(&address.ip().octets());
                name.put(&[0; 8]);
            }
            Self::Inet(SocketAddr::V6(address)) => {
                name.put(&family(libc::AF_INET6));
                name.put(&address.port().to_be_bytes());
                name.put(&address.flowinfo().to_ne_bytes());
                name.put(&address.ip().octets());
                name.put(&address.scope_id().to_ne_bytes());
            }
            Self::Link {
                interface,
                hardware,
                protocol,
            } => {
                name.put(&family(libc::AF_PACKET));
                name.put(&protocol.to_be_bytes());
                name.put(&interface.to_ne_bytes());
                // Kinds of hardware and packet mean nothing here; then the length of the address.
                name.put(&[0, 0, 0, 6]);
                name.put(&hardware);
                name.put(&[0; 2]);
            }
        }
        name
    }

    /// What the kernel wrote; `None` for a family that is not understood, or an address cut short.
    pub(crate) fn decode(name: &[u8]) -> Option<Self> {
        let two = |at: usize| name.get(at..at + 2)?.try_into().ok();
        let four = |at: usize| name.get(at..at + 4)?.try_into().ok();
        let port = || two(2).map(u16::from_be_bytes);
        match i32::from(u16::from_ne_bytes(two(0)?)) {
            libc::AF_INET => {
                let ip = IpAddr::V4(Ipv4Addr::from(u32::from_be_bytes(four(4)?)));
                Some(Self::Inet(SocketAddr::new(ip, port()?)))
            }
            libc::AF_INET6 => {
                let octets: [u8; 16] = name.get(8..24)?.try_into().ok()?;
                let (flow, scope) = (u32::from_ne_bytes(four(4)?), u32::from_ne_bytes(four(24)?));
                let ip = Ipv6Addr::from(octets);
                let address = SocketAddrV6::new(ip, port()?, flow, scope);
                Some(Self::Inet(address.into()))
            }
            libc::AF_PACKET => Some(Self::Link {
                interface: i32::from_ne_bytes(four(4)?),
                hardware: name.get(12..18)?.try_into().ok()?,
                protocol: u16::from_be_bytes(two(2)?),
            }),
            _ => None,
        }
    }
}

fn family(number: i32) -> [u8; 2] {
    u16::try_from(number).unwrap_or(0).to_ne_bytes()
}

/// An address for the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Name {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Where it is and how long, for a `msghdr`; a null pointer for none.
    pub(crate) fn parts(&mut self) -> (*mut libc::c_void, libc::socklen_t) {
        if self.len == 0 {
            return (ptr::null_mut(), 0);
        }
        // At most NAME_BYTES.
        let len = libc::socklen_t::try_from(self.len).unwrap_or(0);
        (self.bytes.as_mut_ptr().cast(), len)
    }
}

/// Room for one datagram that leaves: the largest frame of Ethernet that is in use.
const ROOM_BYTES: usize = 9216;

/// A datagram that leaves, with its address, in memory that is used again for the next. It is boxed: the kernel reads
/// both where they lie.
pub(crate) struct DatagramRoom {
    bytes: [u8; ROOM_BYTES],
    len: usize,
    name: Name,
}

impl fmt::Debug for DatagramRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramRoom({})", self.len)
    }
}

impl DatagramRoom {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            bytes: [0; ROOM_BYTES],
            len: 0,
            name: Name::default(),
        })
    }

    /// Has it hold what `write` puts in; false where that is nothing.
    pub(crate) fn fill(
        &mut self,
        to: Option<Address>,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Some(len) = write(&mut self.bytes) else {
            return false;
        };
        self.len = len.min(ROOM_BYTES);
        self.name = to.map_or_else(Name::default, Address::encode);
        true
    }

    /// The entry that sends it: at once and without a completion, or when the socket has room.
    pub(crate) fn entry(&mut self, socket: &DatagramSocket, at_once: bool) -> Entry {
        let len = u32::try_from(self.len).unwrap_or(0);
        let (name, name_bytes) = self.name.parts();
        let flags = libc::MSG_NOSIGNAL | if at_once { libc::MSG_DONTWAIT } else { 0 };
        let entry = opcode::Send::new(Fd(socket.raw()), self.bytes.as_ptr(), len)
            .flags(flags)
            .dest_addr(name.cast_const().cast())
            .dest_addr_len(name_bytes)
            .build();
        if at_once {
            entry.flags(Flags::SKIP_SUCCESS)
        } else {
            entry
        }
    }
}

/// One datagram.
#[derive(Clone, Debug)]
pub struct Datagram {
    frame: Rc<Buffer>,
    name_bytes: usize,
    len: usize,
    /// It was longer than a frame has room for ([`crate::Settings::frame_bytes`]); the rest is gone.
    pub is_truncated: bool,
}

impl Datagram {
    /// What a receive put into `frame`; `None` when that is no datagram at all.
    pub(crate) fn parse(frame: Rc<Buffer>, header: &libc::msghdr) -> Option<Self> {
        let out = RecvMsgOut::parse(&frame, header).ok()?;
        let (name_bytes, len) = (out.name_data().len(), out.payload_data().len());
        let is_truncated = out.is_payload_truncated();
        Some(Self {
            frame,
            name_bytes,
            len,
            is_truncated,
        })
    }

    /// Who sent it; `None` when the kernel does not say, or in a way that is not understood.
    pub fn sender(&self) -> Option<Address> {
        let start = HEAD_BYTES - NAME_BYTES;
        Address::decode(self.frame.get(start..start + self.name_bytes)?)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.frame
            .get(HEAD_BYTES..HEAD_BYTES + self.len)
            .unwrap_or_default()
    }

    /// Its bytes as a payload, which keeps the frame.
    pub fn into_payload(self) -> Payload {
        Payload::Received {
            chunk: self.frame,
            offset: HEAD_BYTES,
            len: self.len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_and_cut_short_they_do_not() {
        let scoped = SocketAddrV6::new("2001:db8::1".parse().unwrap(), 5674, 5, 7);
        for (address, len) in [
            (Address::Inet("192.0.2.7:5674".parse().unwrap()), 16),
            (Address::Inet(scoped.into()), 28),
            (
                Address::Link {
                    interface: 3,
                    hardware: [2, 0, 0, 0, 0, 7],
                    protocol: 0x889a,
                },
                20,
            ),
        ] {
            let name = address.encode();
            assert_eq!(name.len, len, "{address:?}");
            assert_eq!(Address::decode(&name.bytes[..len]), Some(address));
            assert_eq!(Address::decode(&name.bytes[..3]), None, "{address:?}");
        }
        assert_eq!(Address::decode(&[]), None);
        assert_eq!(Address::decode(&family(libc::AF_UNIX)), None);
    }

    #[test]
    fn an_address_is_laid_out_as_the_kernel_has_it() {
        let inet = Address::Inet("192.0.2.7:5674".parse().unwrap());
        let link = Address::Link {
            interface: 3,
            hardware: [2, 0, 0, 0, 0, 7],
            protocol: 0x889a,
        };
        let own = |number: i32| u16::try_from(number).unwrap().to_ne_bytes();
        let expected = [&own(libc::AF_INET)[..], &[0x16, 0x2a, 192, 0, 2, 7]].concat();
        assert_eq!(inet.encode().bytes[..8], expected);
        let head = [
            &own(libc::AF_PACKET)[..],
            &[0x88, 0x9a],
            &3_i32.to_ne_bytes(),
        ]
        .concat();
        assert_eq!(link.encode().bytes[..8], head);
        assert_eq!(link.encode().bytes[11..18], [6, 2, 0, 0, 0, 0, 7]);
        assert!(inet.is_of(None) && !inet.is_of(Some(3)));
        assert!(link.is_of(Some(3)) && !link.is_of(Some(4)) && !link.is_of(None));
    }

    #[test]
    fn a_room_holds_what_is_written_and_no_more_than_it_has() {
        let mut room = DatagramRoom::new();
        assert!(!room.fill(None, |_| None));
        for (written, len) in [
            (0, 0),
            (ROOM_BYTES, ROOM_BYTES),
            (ROOM_BYTES + 1, ROOM_BYTES),
        ] {
            assert!(room.fill(None, |bytes| (bytes.len() == ROOM_BYTES).then_some(written)));
            assert_eq!(room.len, len);
            assert_eq!(room.name.parts(), (ptr::null_mut(), 0));
        }
        let to = Address::Inet("192.0.2.7:5674".parse().unwrap());
        assert!(room.fill(Some(to), |_| Some(1)));
        let (address, len) = room.name.parts();
        assert!(!address.is_null() && len == 16);
    }
}
