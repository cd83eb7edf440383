//! The socket of a store, and addresses of servers.
//!
//! A socket belongs to one store, whose attendant drives it. On one interface there may be many: each has all frames
//! for this machine until it has a session, then those of its server with the tags of its session, which no other
//! session of the two stations has. A server of this machine on the same interface has a socket of its own, and takes
//! nothing away. An interface that goes away is looked for once a second; sessions do not know, and go on if it is back
//! before they are over.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use hyperscsi::limits::{
    ETHERTYPE, FRAME_BASE_BYTES, FRAME_LEAST_BYTES, FRAME_MAX_BYTES, TAGS, UDP_PORT,
};
use reactor::{Address, FrameFilter, FrameSocket, InterfaceError};
use rustix::net::sockopt;

/// Memory of the kernel for frames of one direction, as far as the system allows. A window of large frames fits.
const KERNEL_BYTES: usize = 4 << 20;
/// The station that stands for all.
const EVERYBODY: [u8; 6] = [0xff; 6];
/// How often an interface that is away is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the MTU of one that is there is looked at.
const MTU_EVERY: Duration = Duration::from_secs(1);
/// Where the tag is in the first two bytes of a frame.
const TAG_SHIFT: u32 = 3;
const TAG_MASK: u32 = TAGS as u32 - 1;

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
    /// Frames of Ethernet.
    Interface {
        /// Its name on this machine.
        name: String,
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

    /// Frames of an interface of this machine.
    pub fn interface(name: impl Into<String>) -> Self {
        Self::Interface { name: name.into() }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Udp { host, port } => write!(f, "{host}:{port}"),
            Self::Interface { name } => write!(f, "interface {name}"),
        }
    }
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// Of a host.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The message has a remedy.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Frames of a session do not fit.
    #[error(
        "interface {name} has an MTU of {mtu}, and {FRAME_LEAST_BYTES} are needed: run `ip link set {name} mtu 1500`"
    )]
    Mtu {
        /// The interface.
        name: Arc<str>,
        /// What it has.
        mtu: u32,
    },
}

/// Where frames come from and go to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Inet(SocketAddr),
    /// The MAC address of a station.
    Link([u8; 6]),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Link([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
        }
    }
}

/// A socket that is open for the whole life of a store: a confined process opens no other.
#[derive(Debug)]
pub(super) struct Wire {
    socket: FrameSocket,
    /// Who is asked for servers.
    everybody: Place,
    /// Of the datagrams of the last receive: how many there are, and which is next.
    received: (usize, usize),
    /// When the MTU of its interface was looked at.
    looked_at: Duration,
    /// The interface that cannot be used now, with the reason, and when it is looked for.
    away: Option<(String, Duration)>,
}

impl Wire {
    /// Resolves the name and opens the socket. Blocks.
    pub(super) fn open(carrier: &Carrier) -> Result<Self, WireError> {
        let (socket, everybody) = match carrier {
            Carrier::Udp { host, port } => {
                let (socket, everybody) = open_udp(host, *port)?;
                (FrameSocket::udp(socket), Place::Inet(everybody))
            }
            Carrier::Interface { name } => {
                let socket = FrameSocket::interface(name, ETHERTYPE)?;
                // Without as much it works, and loses more.
                let _size = sockopt::set_socket_send_buffer_size(&socket, KERNEL_BYTES);
                (socket, Place::Link(EVERYBODY))
            }
        };
        if let (Some(state), Carrier::Interface { name }) = (socket.state(), carrier)
            && state.mtu < FRAME_LEAST_BYTES.into()
        {
            let (name, mtu) = (name.as_str().into(), state.mtu);
            return Err(WireError::Mtu { name, mtu });
        }
        Ok(Self {
            socket,
            everybody,
            received: (0, 0),
            looked_at: Duration::ZERO,
            away: None,
        })
    }

    /// Whether several servers may answer a question.
    pub(super) fn reaches_many(&self) -> bool {
        match self.everybody {
            // The broadcast address of most networks ends like this.
            Place::Inet(SocketAddr::V4(at)) => {
                let ip = at.ip();
                ip.is_broadcast() || ip.is_multicast() || ip.octets()[3] == 255
            }
            Place::Inet(SocketAddr::V6(at)) => at.ip().is_multicast(),
            Place::Link(_) => true,
        }
    }

    /// Looks once in a while what its interface carries.
    pub(super) fn look_at_mtu(&mut self, now: Duration) {
        if now >= self.looked_at + MTU_EVERY {
            self.looked_at = now;
            self.socket.look();
        }
    }

    /// The frame that goes through without trying, and the largest that may, in bytes.
    pub(super) fn frame_bytes(&self) -> (u16, u16) {
        match self.socket.state() {
            // What is left of a large frame behind the headers of IPv6 and UDP.
            None => (FRAME_LEAST_BYTES, FRAME_MAX_BYTES - 48),
            Some(state) => {
                let mtu = u16::try_from(state.mtu).unwrap_or(u16::MAX);
                let mtu = mtu.max(FRAME_LEAST_BYTES);
                (mtu.min(FRAME_BASE_BYTES), mtu.min(FRAME_MAX_BYTES))
            }
        }
    }

    /// From now on frames of this place with one of these tags are taken, and those without a session; or all again.
    pub(super) fn set_session(&mut self, session: Option<(Place, u16, u16)>) {
        let filter = match session {
            Some((Place::Link(sender), first, last)) => Some(FrameFilter {
                sender,
                field: (TAG_SHIFT, TAG_MASK),
                numbers: first..=last,
            }),
            Some((Place::Inet(_), ..)) | None => None,
        };
        // Without it more frames are looked at.
        let _filtered = self.socket.set_filter(filter);
    }

    /// Why no frames come and go, if that is so.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.away.as_ref().map(|(reason, _)| reason.as_str())
    }

    /// When an interface that is away is to be looked for.
    pub(super) fn look_at(&self) -> Option<Duration> {
        self.away.as_ref().map(|(_, at)| *at)
    }

    /// Looks for an interface that is away, if it is time.
    pub(super) fn look(&mut self, now: Duration) {
        if self.look_at().is_some_and(|at| at <= now) {
            self.away = match self.socket.bind_again() {
                Ok(()) => None,
                Err(error) => Some((error.to_string(), now + LOOK_EVERY)),
            };
        }
    }

    /// Sends a frame to all that may be servers. One that cannot be sent is lost, as any frame may be.
    pub(super) fn ask(&mut self, frame: &[u8]) {
        self.send(self.everybody, frame);
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, to: Place, frame: &[u8]) {
        if let Some(room) = self.room().get_mut(..frame.len()) {
            room.copy_from_slice(frame);
            self.push(frame.len(), to);
        }
        self.flush();
    }

    /// Room for a frame that leaves with the next flush.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.socket.room()
    }

    /// So much of the room is a frame.
    pub(super) fn push(&mut self, length: usize, to: Place) {
        if let Some(to) = self.address(to) {
            self.socket.push(length, to);
        }
    }

    /// A place as the kernel knows it.
    pub(super) fn address(&self, place: Place) -> Option<Address> {
        match place {
            Place::Inet(address) => Some(Address::Inet(address)),
            Place::Link(hardware) => self.socket.station(hardware),
        }
    }

    /// The socket alone. What it has received is lost, as any frame may be.
    pub(super) fn into_socket(self) -> Arc<OwnedFd> {
        self.socket.into_fd()
    }

    /// Sends the frames that wait.
    pub(super) fn flush(&mut self) {
        self.socket.flush();
    }

    /// A frame that has come; `None` where there is none.
    pub(super) fn receive(&mut self) -> Option<(Place, &[u8])> {
        let (count, next) = self.received;
        let (count, next) = if next < count {
            (count, next)
        } else {
            match self.socket.receive() {
                Ok(count) => (count, 0),
                Err(error) => {
                    // It says so once. What is wrong is found when it is looked for, at once.
                    let reason = crate::words(&error);
                    self.away.get_or_insert((reason, Duration::ZERO));
                    (0, 0)
                }
            }
        };
        self.received = (count, next + 1);
        if next >= count {
            self.received = (0, 0);
            return None;
        }
        // One from nowhere is nobody's.
        let nowhere = (Place::Link([0; 6]), &[][..]);
        let Some((from, frame)) = self.socket.received(next) else {
            return Some(nowhere);
        };
        let from = match from {
            Address::Inet(address) => Place::Inet(SocketAddr::new(address.ip(), address.port())),
            Address::Link { hardware, .. } => Place::Link(hardware),
        };
        Some((from, frame))
    }
}

fn open_udp(host: &str, port: u16) -> io::Result<(UdpSocket, SocketAddr)> {
    let mut addresses = (host, port).to_socket_addrs()?;
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
    Ok((socket, everybody))
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An address as the state machines keep it: six bytes of a station, or a text, which is longer.
pub(super) fn to_bytes(place: &Place) -> Vec<u8> {
    match place {
        Place::Inet(address) => address.to_string().into_bytes(),
        Place::Link(hardware) => hardware.to_vec(),
    }
}

/// The address in what they keep.
pub(super) fn of_bytes(bytes: &[u8]) -> Option<Place> {
    if let Ok(hardware) = <[u8; 6]>::try_from(bytes) {
        return Some(Place::Link(hardware));
    }
    let address = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    Some(Place::Inet(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_as_they_are() {
        for place in [
            Place::Inet("1.1.1.1:1".parse().unwrap()),
            Place::Inet("[::1]:5674".parse().unwrap()),
            Place::Link([2, 0, 0, 0, 0, 0x3a]),
        ] {
            assert_eq!(of_bytes(&to_bytes(&place)), Some(place));
        }
        assert_eq!(of_bytes(b"1.1.1.1"), None);
        assert_eq!(
            Place::Link([2, 0, 0, 0, 0, 0x3a]).to_string(),
            "02:00:00:00:00:3a"
        );
    }
}
