//! Settings of the administration, and what is wrong with them or their system.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::tls::{Certificate, TlsError};
use crate::tokens::TokensError;

/// Settings of the administration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory: `tokens.toml`, and the certificate if it is made here.
    pub state: PathBuf,
    /// Names this server is reached by, beside its addresses: for Host, and for a certificate that
    /// is made here.
    pub names: Vec<String>,
    /// The certificate of TCP; none is no TLS, which only loopback may do without.
    pub certificate: Option<Certificate>,
}

impl Settings {
    /// Whether the certificate is one that is made here.
    pub(crate) const fn makes_certificate(&self) -> bool {
        matches!(self.certificate, Some(Certificate::Own { .. }))
    }
}

/// Why the administration cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// There is no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Tokens would go over the network for everybody to read.
    #[error(
        "{address}: the administration needs TLS on an address that others reach; \
         leave out tls = false, or listen on 127.0.0.1"
    )]
    PlainBeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The system refuses something.
    #[error("the administration cannot start: {0}")]
    System(#[from] io::Error),
}
