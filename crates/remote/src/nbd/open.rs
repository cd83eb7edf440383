//! Where an export is, how it is reached, and what it is found to be when it is opened.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{Export, Handshake, HandshakeError, Progress};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use store::SharedStore;

use super::shared::NbdDisk;
use crate::{tcp, words};

/// The port of NBD.
const PORT: u16 = 10809;
/// For the first handshake. With one address both end before a change gives up (`daemon::attempts`).
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How much the first handshake receives at a time.
const RECEIVE_BYTES: usize = 16 * 1024;

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
    fn is_own(&self, stream: &Stream, own: &OwnServers) -> io::Result<bool> {
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
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connected socket that blocks until a certain time.
struct Timed {
    stream: Stream,
    until: Instant,
}

impl Timed {
    /// Has the next call end in time.
    fn limit(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match &self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))
            }
        }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

/// How TLS is done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsOptions {
    /// Certificates that the server's is checked against, in PEM; `None`: those of this machine.
    pub ca: Option<PathBuf>,
    /// The name in the server's certificate.
    pub name: String,
}

/// What TLS needs for each connection.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Larger files are no certificates.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

pub(super) fn read_certificates(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > CERTIFICATES_BYTES_MAX {
        return Err(io::Error::other("it is no file of at most 4 MiB"));
    }
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(CERTIFICATES_BYTES_MAX)
        .read_to_end(&mut text)?;
    Ok(text)
}

impl Tls {
    fn new(options: &TlsOptions) -> Result<Self, NbdFailure> {
        let name = ServerName::try_from(options.name.clone())
            .map_err(|_| NbdFailure::TlsName(options.name.clone()))?;
        let mut roots = RootCertStore::empty();
        if let Some(path) = &options.ca {
            let bad = |reason: String| NbdFailure::Certificates {
                path: path.clone(),
                reason,
            };
            let text = read_certificates(path).map_err(|error| bad(words(&error)))?;
            for certificate in CertificateDer::pem_slice_iter(&text) {
                let certificate = certificate.map_err(|error| bad(error.to_string()))?;
                let added = roots.add(certificate);
                added.map_err(|error| bad(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("there is no certificate in it".to_owned()));
            }
        } else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(NbdFailure::NoCertificates);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(NbdFailure::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    /// The client's end of a new connection.
    pub(super) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        let mut connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        // What is put in is taken out in the same turn.
        connection.set_buffer_limit(None);
        Ok(connection)
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

/// Why an export cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{server}, export {export:?}: {reason}")]
pub struct OpenError {
    server: NbdServer,
    export: String,
    /// What was found.
    pub reason: NbdFailure,
}

/// What keeps an export from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdFailure {
    /// No connection.
    #[error("cannot connect: {}; start the server, or check its address", words(.0))]
    Connect(io::Error),
    /// The connection broke off.
    #[error("the handshake broke off: {}; is this an NBD server, and does it have this export?", words(.0))]
    BrokenOff(io::Error),
    /// Nothing came in time.
    #[error(
        "the server accepts, but does not answer within {} s; is this an NBD server, and does it work?",
        HANDSHAKE_MAX.as_secs()
    )]
    Silent,
    /// The server refuses, or breaks the protocol.
    #[error("{}", with_remedy(.0))]
    Handshake(#[from] HandshakeError),
    /// TLS failed.
    #[error(
        "TLS failed: {0}; check the certificate of the server, and the authorities that are trusted"
    )]
    Tls(rustls::Error),
    /// The name cannot stand in a certificate.
    #[error("{0:?} is no name of a host that a certificate could be for")]
    TlsName(String),
    /// The file of certificates cannot be used.
    #[error("{path}: {reason}; it has to be a file of certificates in PEM", path = .path.display())]
    Certificates {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// This machine has no certificates of its own.
    #[error("this machine has no certificates of authorities; name some")]
    NoCertificates,
    /// Blocks of the server's are larger than those of the disk.
    #[error("its smallest block has {server_bytes} bytes, the disk's has {block_bytes}; {remedy}")]
    Blocks {
        /// Of the server.
        server_bytes: u32,
        /// Of the disk.
        block_bytes: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// Not a whole number of blocks, or none.
    #[error(
        "{size_bytes} bytes are not a whole number of blocks of {block_bytes} bytes, at least one"
    )]
    Size {
        /// Of the export.
        size_bytes: u64,
        /// Of the disk.
        block_bytes: u32,
    },
    /// It would wait for itself.
    #[error(
        "it is an export of this Tarn itself, which serves when all stores are open; name the store of that lun, or an \
         export of another server"
    )]
    Own,
    /// The export takes no writes.
    #[error("the server exports it read-only; open it read-only")]
    ReadOnly,
}

fn with_remedy(error: &HandshakeError) -> String {
    if matches!(error, HandshakeError::TlsRequired(_)) {
        return format!("{error}; connect with TLS");
    }
    if matches!(error, HandshakeError::TlsRefused(_)) {
        return format!("{error}; connect without TLS, or have the server use it");
    }
    error.to_string()
}

impl NbdOptions {
    /// Connects, looks at the export, and gives the store. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such export, it cannot be a disk, or it cannot be reached.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, OpenError> {
        self.look()
            .map_err(|reason| OpenError {
                server: self.server.clone(),
                export: self.export.clone(),
                reason,
            })
            .map(|(export, tls)| Arc::new(NbdDisk::new(self, export, tls)) as Arc<dyn SharedStore>)
    }

    fn look(&self) -> Result<(Export, Option<Tls>), NbdFailure> {
        let tls = self.tls.as_ref().map(Tls::new).transpose()?;
        let stream = self.server.connect().map_err(NbdFailure::Connect)?;
        if self
            .server
            .is_own(&stream, &self.own)
            .map_err(NbdFailure::Connect)?
        {
            return Err(NbdFailure::Own);
        }
        let stream = Timed {
            stream,
            until: Instant::now() + HANDSHAKE_MAX,
        };
        let export = shake_hands(stream, self.handshake()?, tls.as_ref())?;
        self.check(&export)?;
        Ok((export, tls))
    }

    /// The beginning of a connection.
    pub(super) fn handshake(&self) -> Result<Handshake, HandshakeError> {
        let handshake = Handshake::new(&self.export)?.with_block_status();
        Ok(match self.tls {
            Some(_) => handshake.with_tls(),
            None => handshake,
        })
    }

    fn check(&self, export: &Export) -> Result<(), NbdFailure> {
        let block_bytes = self.block_bytes;
        let server_bytes = export.block_min_bytes;
        if server_bytes > block_bytes {
            let remedy = match server_bytes {
                ..=4096 => "add the option blocksize=4096",
                _ => "such an export cannot be a disk",
            };
            return Err(NbdFailure::Blocks {
                server_bytes,
                block_bytes,
                remedy,
            });
        }
        let size_bytes = export.size_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) {
            return Err(NbdFailure::Size {
                size_bytes,
                block_bytes,
            });
        }
        if export.flags.is_read_only() && !self.read_only {
            return Err(NbdFailure::ReadOnly);
        }
        Ok(())
    }
}

/// The handshake in blocking calls. The connection is closed after it.
fn shake_hands(
    mut stream: Timed,
    mut handshake: Handshake,
    tls: Option<&Tls>,
) -> Result<Export, NbdFailure> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut over: Option<ClientConnection> = None;
    loop {
        let count = match &mut over {
            None => stream.read(&mut buffer),
            Some(connection) => rustls::Stream::new(connection, &mut stream).read(&mut buffer),
        };
        let bytes = match count.map_err(broken_off)? {
            0 => return Err(broken_off(io::ErrorKind::UnexpectedEof.into())),
            count => buffer.get(..count).unwrap_or_default(),
        };
        let progress = handshake.handle_bytes(bytes)?;
        if let (Progress::StartTls, Some(tls)) = (progress, tls) {
            over = Some(tls.connection().map_err(NbdFailure::Tls)?);
        }
        let output = handshake.take_output();
        match &mut over {
            None => stream.write_all(&output),
            Some(connection) => rustls::Stream::new(connection, &mut stream).write_all(&output),
        }
        .map_err(broken_off)?;
        if let Progress::Done(export) = progress {
            return Ok(export);
        }
    }
}

fn broken_off(error: io::Error) -> NbdFailure {
    if matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) {
        return NbdFailure::Silent;
    }
    match error.downcast::<rustls::Error>() {
        Ok(error) => NbdFailure::Tls(error),
        Err(error) => NbdFailure::BrokenOff(error),
    }
}
