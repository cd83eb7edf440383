//! What TCP reports about the daemon's connections. The kernel is asked by `sock_diag`, so that the cores
//! have nothing to do with it.
//!
//! Spec: sock_diag(7); `struct inet_diag_req_v2`, `struct inet_diag_msg` and `struct tcp_info` of
//! the kernel's interface, all in the byte order of the machine but for addresses and ports.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

/// The kernel answers at once, or there is something wrong.
const PATIENCE: Duration = Duration::from_secs(1);

/// A part of an answer is never longer than this.
const PART_BYTES: usize = 32 << 10;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST`, and all that match.
const DUMP: u16 = 0x1 | 0x300;

/// A question: that header and a `struct inet_diag_req_v2`.
const QUESTION_BYTES: u8 = 72;

/// `struct inet_diag_msg`, without attributes.
const MESSAGE_BYTES: usize = 72;
/// The attribute with a `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
const ESTABLISHED: u32 = 1 << 1;
const PROTOCOL_TCP: u8 = 6;

/// An established connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    /// Bytes that a segment to the peer carries at most.
    pub(super) segment_bytes: u32,
    /// Bytes of a segment that this side said it takes: what its own MTU has room for.
    pub(super) own_segment_bytes: u32,
    /// The MTU of the path, as far as it was found out.
    pub(super) path_mtu: u32,
    /// How often in a row the same segment timed out.
    pub(super) timeouts: u8,
    pub(super) counts: Counts,
}

/// What TCP counts of a connection since it began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    /// Segments that were sent.
    pub(super) segments: u32,
    /// Those of them that were sent again.
    pub(super) again: u32,
    /// Time with data to send.
    pub(super) busy_us: u64,
    /// The part of it that the peer's receive window was full.
    pub(super) window_us: u64,
    /// The part of it that the send buffer was full.
    pub(super) buffer_us: u64,
}

/// A socket to ask the kernel with.
#[derive(Debug)]
pub(super) struct Asker {
    socket: OwnedFd,
    sequence: u32,
}

impl Asker {
    /// Opens the socket.
    pub(super) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let sequence = 0;
        Ok(Self { socket, sequence })
    }

    /// All connections that came to one of these addresses' ports.
    pub(super) fn connections(&mut self, portals: &[SocketAddr]) -> io::Result<Vec<Connection>> {
        let kind = |portal: &SocketAddr| (portal.is_ipv6(), portal.port());
        let kinds: BTreeSet<(bool, u16)> = portals.iter().map(kind).collect();
        let mut connections = Vec::new();
        for (is_ipv6, port) in kinds {
            self.ask(is_ipv6, port, &mut connections)?;
        }
        Ok(connections)
    }

    fn ask(&mut self, is_ipv6: bool, port: u16, found: &mut Vec<Connection>) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = question(is_ipv6, port, self.sequence);
        send(&self.socket, &question, SendFlags::empty())?;
        let mut part = vec![0; PART_BYTES];
        loop {
            let (length, _) = recv(&self.socket, &mut part[..], RecvFlags::empty())?;
            let mut rest = part.get(..length).unwrap_or_default();
            while let Some((message, after)) = Message::first(rest) {
                rest = after;
                // What a question that ran out of patience left behind.
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    SOCK_DIAG_BY_FAMILY => found.extend(connection(message.body)),
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return Err(refusal(message.body)),
                    _ => {}
                }
            }
        }
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn question(is_ipv6: bool, port: u16, sequence: u32) -> [u8; QUESTION_BYTES as usize] {
    // Spec: AF_INET, AF_INET6.
    let family = if is_ipv6 { 10 } else { 2 };
    let mut bytes = [0; QUESTION_BYTES as usize];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &u32::from(QUESTION_BYTES).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &DUMP.to_ne_bytes());
    put(8, &sequence.to_ne_bytes());
    put(16, &[family, PROTOCOL_TCP, 1 << (INET_DIAG_INFO - 1)]);
    put(20, &ESTABLISHED.to_ne_bytes());
    put(24, &port.to_be_bytes());
    bytes
}

/// The kernel's reason, the negative number that an error message begins with.
fn refusal(body: &[u8]) -> io::Error {
    let number = word(body, 0).unwrap_or_default().cast_signed();
    match number {
        // An error of zero acknowledges; nothing was asked to be.
        0 => Errno::PROTO.into(),
        number => io::Error::from_raw_os_error(number.wrapping_neg()),
    }
}

/// A message of netlink.
struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first of several, and the others.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = word(bytes, 0)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let kind = half(bytes, 4)?;
        let sequence = word(bytes, 8)?;
        let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let message = Self {
            kind,
            sequence,
            body,
        };
        Some((message, after))
    }
}

/// What a `struct inet_diag_msg` and its attributes contain; `None` if the kernel leaves the most of it
/// out.
fn connection(body: &[u8]) -> Option<Connection> {
    let is_ipv6 = *body.first()? == 10;
    let port = body.get(6..8)?.try_into().ok().map(u16::from_be_bytes)?;
    let address = body.get(24..40)?;
    let address = if is_ipv6 {
        IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?))
    } else {
        IpAddr::from(Ipv4Addr::from(*address.first_chunk::<4>()?))
    };
    let info = attribute(body.get(MESSAGE_BYTES..)?, INET_DIAG_INFO)?;
    let long = |at| eight(info, at).unwrap_or(0);
    Some(Connection {
        peer: SocketAddr::new(address, port),
        segment_bytes: word(info, 16)?,
        own_segment_bytes: word(info, 84)?,
        path_mtu: word(info, 60)?,
        timeouts: *info.get(2)?,
        // Kernels before 4.10 have no times.
        counts: Counts {
            segments: word(info, 136)?,
            again: word(info, 100)?,
            busy_us: long(168),
            window_us: long(176),
            buffer_us: long(184),
        },
    })
}

/// The value of an attribute: each has its length, header included, its type and its value, and
/// begins at a multiple of four.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(half(bytes, 0)?);
        let value = bytes.get(4..length)?;
        if half(bytes, 2)? == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The kernel's answer for connections that are there.
    #[test]
    fn the_kernel_tells_of_the_connections_of_a_port() {
        let mut asker = Asker::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                assert!(address.starts_with('['), "this machine has IPv4");
                continue;
            };
            let portal = listener.local_addr().unwrap();
            assert_eq!(asker.connections(&[portal]).unwrap(), []);
            let mut client = TcpStream::connect(portal).unwrap();
            let (mut server, peer) = listener.accept().unwrap();
            server.write_all(&[7; 1000]).unwrap();
            client.read_exact(&mut [0; 1000]).unwrap();
            let [connection] = asker.connections(&[portal, portal]).unwrap()[..] else {
                panic!("one connection, asked for once")
            };
            assert_eq!(connection.peer, peer);
            assert!(connection.segment_bytes >= 500);
            assert!(connection.own_segment_bytes >= connection.segment_bytes);
            assert!(connection.path_mtu > connection.segment_bytes);
            assert!(connection.counts.segments >= 1);
            assert_eq!((connection.timeouts, connection.counts.again), (0, 0));
        }
    }

    #[test]
    fn what_is_cut_short_is_no_connection_and_no_endless_loop() {
        let mut body = vec![0; MESSAGE_BYTES + 4 + 192];
        body[MESSAGE_BYTES..][..2].copy_from_slice(&196u16.to_ne_bytes());
        body[MESSAGE_BYTES + 2..][..2].copy_from_slice(&INET_DIAG_INFO.to_ne_bytes());
        assert!(connection(&body).is_some());
        for length in 0..body.len() {
            assert_eq!(connection(&body[..length]), None, "{length}");
        }
        let zeros = [0; 64];
        assert!(Message::first(&zeros).is_none());
        assert!(attribute(&zeros, INET_DIAG_INFO).is_none());
    }

    #[test]
    fn an_error_has_its_reason() {
        let reason = refusal(&(-13i32).to_ne_bytes());
        assert_eq!(reason.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            refusal(&[]).raw_os_error(),
            Some(Errno::PROTO.raw_os_error())
        );
    }
}
