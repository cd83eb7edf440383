//! TLS: whom this side trusts, and its end of a connection.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::words;

/// How TLS is done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsOptions {
    /// Certificates that the server's is checked against, in PEM; `None`: those of this machine.
    pub ca: Option<PathBuf>,
    /// The name in the server's certificate.
    pub name: String,
}

/// What keeps an export from being reached by TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// There is no session.
    #[error(
        "TLS failed: {0}; check the certificate of the server, and the authorities that are trusted"
    )]
    Failed(rustls::Error),
    /// The name cannot stand in a certificate.
    #[error("{0:?} is no name of a host that a certificate could be for")]
    Name(String),
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
    pub(super) fn new(options: &TlsOptions) -> Result<Self, TlsFailure> {
        let name = ServerName::try_from(options.name.clone())
            .map_err(|_| TlsFailure::Name(options.name.clone()))?;
        let mut roots = RootCertStore::empty();
        if let Some(path) = &options.ca {
            let bad = |reason: String| TlsFailure::Certificates {
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
                return Err(TlsFailure::NoCertificates);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsFailure::Failed)?
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
