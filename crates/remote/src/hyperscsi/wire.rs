//! The socket of a store, and addresses of servers.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use hyperscsi::limits::UDP_PORT;
use rustix::net::sockopt;

/// Memory of the kernel for frames of one direction, as far as the system allows. A window of large frames fits.
const KERNEL_BYTES: usize = 4 << 20;

/// What carries frames.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Carrier {
    /// Datagrams to a host, or to all hosts of a network by its broadcast address.
    Udp {
        /// A name or an address, without brackets.
        host: String,
        /// The port; [`Carrier::udp`] has the default.
        port: u16,
    },
}

impl Carrier {
    /// UDP to a host, on port 5674 unless another one is given.
    pub fn udp(host: impl Into<String>, port: Option<u16>) -> Self {
        Self::Udp {
            host: host.into(),
            port: port.unwrap_or(UDP_PORT),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Udp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Where frames come from and go to.
pub(super) type Place = SocketAddr;

/// A socket that is open for the whole life of a store: a confined process opens no other.
#[derive(Debug)]
pub(super) struct Wire {
    socket: UdpSocket,
    /// Who is asked for servers.
    everybody: SocketAddr,
}

impl Wire {
    /// Resolves the name and opens the socket. Blocks.
    pub(super) fn open(carrier: &Carrier) -> io::Result<Self> {
        let Carrier::Udp { host, port } = carrier;
        let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
        let everybody = addresses.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let any: IpAddr = match everybody {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_broadcast(true)?;
        // Without as much it works, and loses more.
        let _sizes = (
            sockopt::set_socket_recv_buffer_size(&socket, KERNEL_BYTES),
            sockopt::set_socket_send_buffer_size(&socket, KERNEL_BYTES),
        );
        Ok(Self { socket, everybody })
    }

    /// Whether several servers may answer a question.
    pub(super) fn reaches_many(&self) -> bool {
        match self.everybody.ip() {
            // The broadcast address of most networks ends like this.
            IpAddr::V4(ip) => ip.is_broadcast() || ip.is_multicast() || ip.octets()[3] == 255,
            IpAddr::V6(ip) => ip.is_multicast(),
        }
    }

    /// Sends a frame to all that may be servers. One that cannot be sent is lost, as any frame may be.
    pub(super) fn ask(&self, frame: &[u8]) {
        self.send(&self.everybody, frame);
    }

    /// Sends a frame.
    pub(super) fn send(&self, to: &Place, frame: &[u8]) {
        drop(self.socket.send_to(frame, to));
    }

    /// A frame that has come; `None` where there is none.
    pub(super) fn receive(&self, to: &mut [u8]) -> Option<(usize, Place)> {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (count, _, from) = rustix::net::recvfrom(&self.socket, to, flags).ok()?;
        let from = SocketAddr::try_from(from?).ok()?;
        Some((count, from))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An address as the state machines keep it.
pub(super) fn to_bytes(place: &Place) -> Vec<u8> {
    place.to_string().into_bytes()
}

/// The address in what they keep.
pub(super) fn of_bytes(bytes: &[u8]) -> Option<Place> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
