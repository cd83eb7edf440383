//! Listening, and the options of TCP sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::room::{self, Occupant, Way};

/// A socket that accepts connections. Clones name the same socket; it may move between threads
/// until [`crate::Reactor::accept`] is called for it.
#[derive(Clone, Debug)]
pub struct Listener {
    fd: Arc<OwnedFd>,
    local_address: SocketAddr,
    is_unix: bool,
}

/// What a unix socket has for an address: it is one of this machine, without a port.
pub const UNIX_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Why an address cannot be listened on. Each message names the address and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// `EADDRINUSE`.
    #[error("{address} is in use by another program: stop it or listen on another port")]
    InUse {
        /// What was asked for.
        address: SocketAddr,
    },
    /// `EACCES`.
    #[error(
        "{address} is not allowed to this user: take a port from 1024 on, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    Denied {
        /// What was asked for.
        address: SocketAddr,
    },
    /// `EADDRNOTAVAIL`.
    #[error(
        "{address} is not an address of this host: take one of its own, or the wildcard address"
    )]
    NotAvailable {
        /// What was asked for.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl BindError {
    pub(crate) fn new(address: SocketAddr, errno: Errno) -> Self {
        if errno == Errno::ADDRINUSE {
            Self::InUse { address }
        } else if errno == Errno::ACCESS {
            Self::Denied { address }
        } else if errno == Errno::ADDRNOTAVAIL {
            Self::NotAvailable { address }
        } else {
            Self::Other {
                address,
                source: errno.into(),
            }
        }
    }
}

/// A TCP socket that has an address, and at which nobody listens yet: nobody can connect.
#[derive(Debug)]
pub struct Bound {
    fd: OwnedFd,
    address: SocketAddr,
    is_passed: bool,
}

impl Bound {
    /// One that was passed to this process, and at which the one who did listens already.
    pub fn passed(listener: TcpListener, address: SocketAddr) -> Self {
        Self {
            fd: listener.into(),
            address,
            is_passed: true,
        }
    }

    /// Takes `address`, where sockets of this process that are to be closed may have the port yet. Port 0 takes a free
    /// one.
    ///
    /// # Errors
    ///
    /// It cannot be had.
    pub fn new(
        address: SocketAddr,
        families: Families,
        leaving: &[Occupant],
    ) -> Result<Self, BindError> {
        let bound = room::with_room(address, leaving, Way::Port, |makes_room| {
            let fd = tcp_socket(address, families)?;
            beside(&fd, makes_room, || rustix::net::bind(&fd, &address))?;
            Ok(fd)
        });
        let bound = bound.map(|fd| Self {
            fd,
            address,
            is_passed: false,
        });
        bound.map_err(|errno| BindError::new(address, errno))
    }

    /// Listens. `backlog` is how many connections may wait to be accepted; the system limits it further.
    ///
    /// # Errors
    ///
    /// Another program was quicker.
    pub fn listen(self, backlog: i32, leaving: &[Occupant]) -> Result<TcpListener, BindError> {
        let Self { fd, address, .. } = self;
        if self.is_passed {
            return Ok(fd.into());
        }
        let listens = room::with_room(address, leaving, Way::Port, |makes_room| {
            beside(&fd, makes_room, || rustix::net::listen(&fd, backlog))
        });
        listens.map_err(|errno| BindError::new(address, errno))?;
        Ok(fd.into())
    }

    /// The same, for a reactor.
    ///
    /// # Errors
    ///
    /// As [`Bound::listen`].
    pub fn listener(self, backlog: i32, leaving: &[Occupant]) -> Result<Listener, BindError> {
        let (address, is_passed) = (self.address, self.is_passed);
        let listener = self.listen(backlog, leaving)?;
        if !is_passed {
            crate::lane::note_listener(listener.as_raw_fd());
        }
        Listener::try_from(listener).map_err(|source| BindError::Other { address, source })
    }
}

/// Runs this with a socket that lets others have its port for the moment, if it `makes_room`.
fn beside(
    fd: &OwnedFd,
    makes_room: bool,
    call: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if makes_room {
        Way::Port.set(fd, true)?;
    }
    let called = call();
    if makes_room {
        Way::Port.set(fd, false)?;
    }
    called
}

impl Listener {
    /// Listens on `address`. Port 0 takes a free one, see [`Listener::local_address`].
    ///
    /// An IPv6 wildcard takes no IPv4 connections, so both can be listened on side by side.
    /// `backlog` is how many connections may wait to be accepted; the system limits it further.
    ///
    /// # Errors
    ///
    /// The address cannot be had.
    pub fn bind(address: SocketAddr, backlog: i32) -> Result<Self, BindError> {
        Bound::new(address, Families::One, &[])?.listener(backlog, &[])
    }

    /// What is in the way of others at its address.
    pub fn occupant(&self) -> Occupant {
        Occupant::new(&self.fd, self.local_address)
    }

    /// Where it listens, with the port the system chose if it was asked to; [`UNIX_ADDRESS`] for a unix socket.
    pub const fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// It is a unix socket.
    pub const fn is_unix(&self) -> bool {
        self.is_unix
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Of which families an IPv6 wildcard takes connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Families {
    /// Its own.
    One,
    /// That of IPv4, too, unless the system says otherwise.
    Both,
}

fn tcp_socket(address: SocketAddr, families: Families) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Connections of a program that just ended must not keep its successor out.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() && families == Families::One {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

impl TryFrom<TcpListener> for Listener {
    type Error = io::Error;

    /// Takes over a socket that listens already, say one a service manager passed on.
    fn try_from(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(false)?;
        Ok(Self {
            local_address: listener.local_addr()?,
            fd: Arc::new(listener.into()),
            is_unix: false,
        })
    }
}

impl TryFrom<UnixListener> for Listener {
    type Error = io::Error;

    /// Takes over a unix socket that listens already.
    fn try_from(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(false)?;
        crate::lane::note_listener(listener.as_raw_fd());
        Ok(Self {
            local_address: UNIX_ADDRESS,
            fd: Arc::new(listener.into()),
            is_unix: true,
        })
    }
}

/// How to find out that a silent peer is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// How many probes may stay unanswered.
    pub probes_max: u32,
    /// How long what was sent may stay unacknowledged, or wait because the peer takes nothing,
    /// before the kernel ends the connection (`TCP_USER_TIMEOUT`).
    pub patience: Duration,
}

/// Sets what every connection of a storage target wants: no delay of small segments, and probes
/// of a silent peer.
pub fn set_options(socket: impl AsFd, keep_alive: Option<KeepAlive>) -> io::Result<()> {
    let fd = socket.as_fd();
    sockopt::set_tcp_nodelay(fd, true)?;
    if let Some(keep_alive) = keep_alive {
        sockopt::set_tcp_keepidle(fd, keep_alive.idle)?;
        sockopt::set_tcp_keepintvl(fd, keep_alive.interval)?;
        sockopt::set_tcp_keepcnt(fd, keep_alive.probes_max)?;
        sockopt::set_socket_keepalive(fd, true)?;
        let patience_ms = u32::try_from(keep_alive.patience.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(fd, patience_ms)?;
    }
    Ok(())
}

/// Sends a few bytes without waiting; an error when they do not fit in the socket's buffer.
pub fn send_now(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let sent = rustix::net::send(socket, bytes, flags)?;
    if sent < bytes.len() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// The address of the other end of a connection; [`UNIX_ADDRESS`] for one over a unix socket.
pub fn peer_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address: Option<SocketAddrAny> = rustix::net::getpeername(socket)?;
    let address = address.ok_or(io::ErrorKind::NotConnected)?;
    if address.address_family() == AddressFamily::UNIX {
        return Ok(UNIX_ADDRESS);
    }
    Ok(SocketAddr::try_from(address)?)
}

/// The address of this end of a connection.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(socket)?)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpStream;

    use super::*;

    fn any_port(host: &str) -> SocketAddr {
        SocketAddr::new(host.parse().unwrap(), 0)
    }

    /// Both ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_has_the_options_of_a_storage_target() {
        let (client, _server) = connection();
        set_options(&client, None).unwrap();
        assert_eq!(sockopt::tcp_nodelay(&client), Ok(true));
        assert_eq!(sockopt::socket_keepalive(&client), Ok(false));
        let keep_alive = KeepAlive {
            idle: Duration::from_secs(7),
            interval: Duration::from_secs(3),
            probes_max: 4,
            patience: Duration::from_millis(19_500),
        };
        set_options(&client, Some(keep_alive)).unwrap();
        assert_eq!(sockopt::socket_keepalive(&client), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&client), Ok(keep_alive.idle));
        assert_eq!(sockopt::tcp_keepintvl(&client), Ok(keep_alive.interval));
        assert_eq!(sockopt::tcp_keepcnt(&client), Ok(keep_alive.probes_max));
        assert_eq!(sockopt::tcp_user_timeout(&client), Ok(19_500));
    }

    #[test]
    fn what_does_not_fit_at_once_is_an_error() {
        let (client, mut server) = connection();
        send_now(&client, b"few bytes").unwrap();
        let mut received = [0; 9];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"few bytes");
        let error = send_now(&client, &vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let error = send_now(&client, b"few bytes").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_ends_of_a_connection_have_each_other_s_address() {
        let (client, server) = connection();
        let [ours, theirs] = [&client, &server].map(|one| local_address(one).unwrap());
        assert_eq!(ours, client.local_addr().unwrap());
        assert_eq!(peer_address(&client).unwrap(), theirs);
        assert_eq!(peer_address(&server).unwrap(), ours);
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_address(&unix).unwrap(), UNIX_ADDRESS);
    }

    #[test]
    fn a_port_in_use_is_said_to_be_so_and_names_the_address() {
        let first = Listener::bind(any_port("127.0.0.1"), 1).unwrap();
        let error = Listener::bind(first.local_address(), 1).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
        assert!(
            error
                .to_string()
                .contains(&first.local_address().to_string())
        );
    }

    #[test]
    fn a_foreign_address_is_said_to_be_so() {
        // A documentation address (RFC 5737): no host has it.
        let error = Listener::bind(any_port("192.0.2.1"), 1).unwrap_err();
        assert!(matches!(error, BindError::NotAvailable { .. }), "{error:?}");
    }

    #[test]
    fn both_wildcards_share_a_port() {
        let Ok(v6) = Listener::bind(any_port("::"), 1) else {
            return; // a host without IPv6
        };
        let v4 = SocketAddr::new("0.0.0.0".parse().unwrap(), v6.local_address().port());
        Listener::bind(v4, 1).unwrap();
    }

    #[test]
    fn all_addresses_of_a_port_are_had_beside_one_that_goes_and_back() {
        let one = Listener::bind(any_port("127.0.0.1"), 1).unwrap();
        let address = one.local_address();
        let all = SocketAddr::new("0.0.0.0".parse().unwrap(), address.port());
        Listener::bind(all, 1).unwrap_err();
        let going = [one.occupant()];
        let both = Bound::new(all, Families::One, &going).unwrap();
        TcpStream::connect(address).unwrap();
        let both = both.listener(1, &going).unwrap();
        // Nobody else has room there, neither before the old one is closed nor after.
        Listener::bind(address, 1).unwrap_err();
        drop(one);
        TcpStream::connect(address).unwrap();
        Listener::bind(address, 1).unwrap_err();
        let going = [both.occupant()];
        let back = Bound::new(address, Families::Both, &going).unwrap();
        let back = back.listen(1, &going).unwrap();
        drop(both);
        TcpStream::connect(address).unwrap();
        Listener::bind(all, 1).unwrap_err();
        assert_eq!(back.local_addr().unwrap(), address);
    }

    #[test]
    fn another_program_with_an_address_of_the_port_keeps_all_of_them() {
        let other = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let own = Listener::bind(SocketAddr::from(([127, 0, 0, 1], port)), 1).unwrap();
        let all = SocketAddr::from(([0; 4], port));
        let error = Bound::new(all, Families::One, &[own.occupant()]).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
        TcpStream::connect(own.local_address()).unwrap();
    }

    #[test]
    fn who_listens_first_at_an_address_that_two_have_bound_has_it() {
        let first = Bound::new(any_port("127.0.0.1"), Families::One, &[]).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&first.fd).unwrap()).unwrap();
        TcpStream::connect(address).unwrap_err();
        let second = Bound::new(address, Families::One, &[]).unwrap();
        let second = second.listen(1, &[]).unwrap();
        let error = first.listen(1, &[]).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
        drop(second);
    }
}
