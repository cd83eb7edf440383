//! A server that something is sent to: the connection to it, TLS, and an end to everything that takes too long. All
//! on the calling thread. Names are looked up by the system, which has limits of its own.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Why nothing could be said to a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The name has no address, or nobody answers there.
    #[error("cannot connect to {authority}: {source}")]
    Unreachable {
        /// Host and port.
        authority: String,
        /// What the system says.
        source: io::Error,
    },
    /// TLS cannot be used.
    #[error(
        "TLS with {authority} failed: {source}; check its certificate, and the authorities that this machine trusts"
    )]
    Tls {
        /// Host and port.
        authority: String,
        /// What is wrong.
        source: rustls::Error,
    },
    /// It is slow or silent.
    #[error("{authority} did not answer in time")]
    Late {
        /// Host and port.
        authority: String,
    },
    /// The connection broke.
    #[error("the exchange with {authority} failed: {source}")]
    Broken {
        /// Host and port.
        authority: String,
        /// What the system says.
        source: io::Error,
    },
}

/// A host and a port.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
}

/// TLS that trusts what this machine trusts. A certificate that cannot be read is one that is not trusted.
pub(crate) fn system_trust() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    trust(roots)
}

pub(crate) fn trust(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

impl Server {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let host = host.to_owned();
        Self { host, port }
    }

    /// Host and port, with brackets around an IPv6 address.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn of_tls(&self, source: rustls::Error) -> ServerError {
        ServerError::Tls {
            authority: self.authority(),
            source,
        }
    }

    pub(crate) fn of_break(&self, source: io::Error) -> ServerError {
        let authority = self.authority();
        // A read that takes too long is said to have found nothing.
        let late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        match late.contains(&source.kind()) {
            true => ServerError::Late { authority },
            false => ServerError::Broken { authority, source },
        }
    }

    /// Connects. That and all that follows on the connection has to end within `limit`.
    pub(crate) fn connect(&self, limit: Duration) -> Result<Limited, ServerError> {
        let unreachable = |source: io::Error| {
            let authority = self.authority();
            match source.kind() == io::ErrorKind::TimedOut {
                true => ServerError::Late { authority },
                false => ServerError::Unreachable { authority, source },
            }
        };
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses: Vec<_> = addresses.map_err(unreachable)?.collect();
        let ends = Instant::now() + limit;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for (at, address) in addresses.iter().enumerate() {
            // Each gets a part of what is left, so that a silent one leaves something to the next.
            let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(address, left(ends).map_err(unreachable)? / others) {
                Ok(stream) => return Ok(Limited { stream, ends }),
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    /// TLS over a connection, with a handshake at the first byte.
    pub(crate) fn begin_tls(
        &self,
        tls: &Arc<ClientConfig>,
        socket: Limited,
    ) -> Result<StreamOwned<ClientConnection, Limited>, ServerError> {
        let name = ServerName::try_from(self.host.clone());
        let name =
            name.map_err(|_| self.of_tls(rustls::Error::General("no name of a host".to_owned())))?;
        let connection = ClientConnection::new(Arc::clone(tls), name);
        let connection = connection.map_err(|source| self.of_tls(source))?;
        Ok(StreamOwned::new(connection, socket))
    }
}

/// A connection whose every step ends at one moment.
pub(crate) struct Limited {
    stream: TcpStream,
    ends: Instant,
}

/// The time until a moment.
fn left(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.ends)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Limited {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.ends)?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
