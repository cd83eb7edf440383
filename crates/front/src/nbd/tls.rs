//! TLS of a connection: a machine without I/O, between the bytes of the line and those of the protocol.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use memory::Message;
use rustls::{ServerConfig, ServerConnection};

/// How much is encrypted for one send, in bytes: so much of it is on the heap.
const SEALED_BYTES_MAX: usize = 64 * 1024;

/// What all connections of a service have: certificate, key, and who vouches for clients.
pub type TlsConfig = Arc<ServerConfig>;

/// What has come in.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The bytes of the protocol.
    pub(super) bytes: Vec<u8>,
    /// The client sends no more.
    pub(super) is_end: bool,
}

/// The server's end of one connection.
#[derive(Debug)]
pub(super) struct Tls(Box<ServerConnection>);

impl Tls {
    pub(super) fn new(config: &TlsConfig) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(Arc::clone(config))?;
        // What is put in is taken out in the same call.
        connection.set_buffer_limit(None);
        Ok(Self(Box::new(connection)))
    }

    /// Nothing of the protocol goes over it yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// The DNS names of the client's certificate, which was checked in the handshake.
    pub(super) fn names(&self) -> Vec<String> {
        let leaf = self.0.peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.and_then(|leaf| webpki::EndEntityCert::try_from(leaf).ok());
        leaf.map(|leaf| leaf.valid_dns_names().map(str::to_owned).collect())
            .unwrap_or_default()
    }

    /// Takes what the line has received.
    pub(super) fn open(&mut self, mut sealed: &[u8]) -> Result<Opened, rustls::Error> {
        let mut opened = Opened::default();
        while !sealed.is_empty() && !opened.is_end {
            let taken = self.0.read_tls(&mut sealed);
            let taken = taken.map_err(|error| rustls::Error::General(error.to_string()))?;
            let state = self.0.process_new_packets()?;
            let at = opened.bytes.len();
            let count = state.plaintext_bytes_to_read();
            opened.bytes.resize(at.saturating_add(count), 0);
            if let Some(room) = opened.bytes.get_mut(at..)
                && count > 0
            {
                let read = self.0.reader().read_exact(room);
                read.map_err(|error| rustls::Error::General(error.to_string()))?;
            }
            opened.is_end = state.peer_has_closed() || taken == 0;
        }
        Ok(opened)
    }

    /// Encrypts these bytes. Gives them and all else that TLS has to send.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        // Both go to memory without a limit, which cannot fail.
        let _infallible = self.0.writer().write_all(plain);
        let mut sealed = Vec::new();
        while self.0.wants_write() {
            if self.0.write_tls(&mut sealed).is_err() {
                break;
            }
        }
        sealed
    }
}

/// A message that is encrypted a part at a time.
#[derive(Debug)]
pub(super) struct Sealing {
    message: Message,
    /// So much of it has been encrypted, in bytes.
    done: usize,
}

impl Sealing {
    pub(super) const fn new(message: Message) -> Self {
        Self { message, done: 0 }
    }

    /// All of it is encrypted: the message, to be used again.
    pub(super) fn into_message(self) -> Result<Message, Self> {
        if self.done >= self.message.len() {
            Ok(self.message)
        } else {
            Err(self)
        }
    }

    /// The next part, encrypted.
    pub(super) fn next(&mut self, tls: &mut Tls) -> Vec<u8> {
        let left = self.message.len().saturating_sub(self.done);
        let mut plain = vec![0; left.min(SEALED_BYTES_MAX)];
        self.message.copy_to(self.done, &mut plain);
        self.done = self.done.saturating_add(plain.len());
        tls.seal(&plain)
    }
}
