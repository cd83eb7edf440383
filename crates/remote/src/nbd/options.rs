//! Where an export is, and how it is reached.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nbd::{Handshake, HandshakeError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::tls::TlsOptions;
use crate::tcp;

/// The port of NBD.
const PORT: u16 = 10809;

/// Where an NBD server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NbdServer {
    /// On a TCP port.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port; [`NbdServer::tcp`] has the default.
        port: u16,
    },
    /// On a socket of this machine.
    Unix(PathBuf),
}

impl NbdServer {
    /// A server on a TCP port, 10809 unless another one is given.
    pub fn tcp(host: impl Into<String>, port: Option<u16>) -> Self {
        Self::Tcp {
            host: host.into(),
            port: port.unwrap_or(PORT),
        }
    }

    /// Resolves and connects. Blocks.
    pub(super) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp { host, port } => tcp::connect(host, *port).map(Stream::Tcp),
            Self::Unix(path) => connect_unix(path).map(Stream::Unix),
        }
    }
}

impl fmt::Display for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Where this very program serves what could be stores.
#[derive(Clone, Debug, Default)]
pub struct OwnServers {
    /// Addresses of its portals of iSCSI.
    pub portals: Vec<SocketAddr>,
    /// Addresses at which it serves NBD.
    pub addresses: Vec<SocketAddr>,
    /// Unix sockets at which it does.
    pub sockets: Vec<PathBuf>,
}

impl NbdServer {
    /// Whether it is this very program, by whatever name or link.
    pub(super) fn is_own(&self, stream: &Stream, own: &OwnServers) -> io::Result<bool> {
        match (stream, self) {
            (Stream::Tcp(stream), _) => tcp::is_own(stream, &own.addresses),
            (Stream::Unix(_), Self::Unix(path)) => {
                let node = |path: &Path| {
                    let found = std::fs::metadata(path)?;
                    Ok::<_, io::Error>((found.dev(), found.ino()))
                };
                let there = node(path)?;
                let is_there = |own: &PathBuf| node(own).is_ok_and(|own| own == there);
                Ok(own.sockets.iter().any(is_there))
            }
            (Stream::Unix(_), Self::Tcp { .. }) => Ok(false),
        }
    }
}

/// Where the server accepts nothing and its queue is full, this fails at once.
pub(crate) fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

/// What to open and how.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// Where the server is.
    pub server: NbdServer,
    /// The name of the export; empty for the server's default.
    pub export: String,
    /// Everything goes over TLS.
    pub tls: Option<TlsOptions>,
    /// How many connections there are at most, for all cores together. A server that does not say that several are
    /// safe gets one.
    pub connections: usize,
    /// How many cores use the store.
    pub cores: usize,
    /// How long requests wait for a lost connection to come back before they fail. Zero: they fail at once.
    pub retry: Duration,
    /// Refuse all writes.
    pub read_only: bool,
    /// Unmapped blocks release their space, if the server can do that.
    pub thin: bool,
    /// Logical block length, 512 or 4096.
    pub block_bytes: u32,
    /// Where this process has a server of its own: what that exports is no store.
    pub own: Arc<OwnServers>,
}

impl NbdOptions {
    /// The beginning of a connection.
    pub(super) fn handshake(&self) -> Result<Handshake, HandshakeError> {
        let handshake = Handshake::new(&self.export)?.with_block_status();
        Ok(match self.tls {
            Some(_) => handshake.with_tls(),
            None => handshake,
        })
    }
}
