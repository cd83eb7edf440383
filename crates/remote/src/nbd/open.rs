//! What an export is found to be when it is opened.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{Export, Handshake, HandshakeError, Progress};
use rustls::ClientConnection;
use store::SharedStore;

use super::disk::NbdDisk;
use super::options::{NbdOptions, NbdServer, Stream};
use super::tls::{Tls, TlsFailure};
use crate::words;

/// For the first handshake. With one address both end before a change gives up (`daemon::attempts`).
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How much the first handshake receives at a time.
const RECEIVE_BYTES: usize = 16 * 1024;

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
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsFailure),
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
            over = Some(tls.connection().map_err(TlsFailure::Failed)?);
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
        Ok(error) => TlsFailure::Failed(error).into(),
        Err(error) => NbdFailure::BrokenOff(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_in_time_is_silent() {
        let (near, _far) = UnixStream::pair().unwrap();
        let stream = Timed {
            stream: Stream::Unix(near),
            until: Instant::now(),
        };
        let found = shake_hands(stream, Handshake::new("").unwrap(), None);
        assert!(matches!(found, Err(NbdFailure::Silent)), "{found:?}");
    }

    #[test]
    fn what_ends_a_handshake_is_silence_or_tls_or_the_connection() {
        let of_kind = |kind: io::ErrorKind| broken_off(kind.into());
        for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut] {
            assert!(matches!(of_kind(kind), NbdFailure::Silent), "{kind}");
        }
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
            assert!(matches!(of_kind(kind), NbdFailure::BrokenOff(_)), "{kind}");
        }
        let error = rustls::Error::DecryptError;
        let of_tls = broken_off(io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(matches!(of_tls, NbdFailure::Tls(_)), "{of_tls}");
    }
}
