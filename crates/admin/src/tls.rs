//! The certificate of the TCP listeners: one that is named, or one that is made at the first start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};

use crate::random::hex;
use crate::tokens::replace;

/// Where the certificate comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Certificate {
    /// Made at the first start and kept in this directory as `admin-cert.pem` and `admin-key.pem`.
    Own {
        /// The state directory.
        directory: PathBuf,
    },
    /// In these files, as PEM.
    Files {
        /// The certificate, those that vouch for it after it.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: is no PEM file of the wanted kind: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// Certificate and key do not go together.
    #[error("{}: the certificate and its key cannot be used: {source}", path.display())]
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No certificate could be made.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// What the TCP listeners need for TLS.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// The configuration of every connection.
    pub(crate) config: Arc<ServerConfig>,
    /// SHA-256 of the certificate, for whoever wants to compare it.
    pub(crate) fingerprint: String,
}

impl Tls {
    /// Reads the certificate, and makes it first if it is our own and missing. `names` are what it
    /// is made for.
    pub(crate) fn load(certificate: &Certificate, names: &[String]) -> Result<Self, TlsError> {
        let (certificate, key) = match certificate {
            Certificate::Own { directory } => own(directory, names)?,
            Certificate::Files { certificate, key } => (certificate.clone(), key.clone()),
        };
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(&certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(pem(&certificate))?;
        let key = PrivateKeyDer::from_pem_file(&key).map_err(pem(&key))?;
        let fingerprint = chain.first().map(|leaf| hex(&Sha256::digest(leaf)));
        let pair = |source| TlsError::Pair {
            path: certificate.clone(),
            source,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        Ok(Self {
            config: Arc::new(config),
            fingerprint: fingerprint.unwrap_or_default(),
        })
    }
}

/// The files of our own certificate, made if one is missing.
fn own(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let certificate = directory.join("admin-cert.pem");
    let key = directory.join("admin-key.pem");
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let mut parameters = CertificateParams::new(names)?;
    let own_name = &mut parameters.distinguished_name;
    own_name.push(DnType::CommonName, "Tarn");
    let pair = KeyPair::generate()?;
    let made = parameters.self_signed(&pair)?;
    let write = |path: &Path, text: &str| {
        replace(path, text.as_bytes()).map_err(|source| TlsError::File {
            path: path.to_owned(),
            source,
        })
    };
    write(&key, &pair.serialize_pem())?;
    write(&certificate, &made.pem())?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn our_own_certificate_is_made_once_and_its_key_is_private() {
        let scratch = Scratch::new();
        let own = Certificate::Own {
            directory: scratch.path(""),
        };
        let names = ["localhost".to_owned(), "192.0.2.1".to_owned()];
        let first = Tls::load(&own, &names).unwrap();
        let again = Tls::load(&own, &names).unwrap();
        assert_eq!(first.fingerprint, again.fingerprint);
        assert_eq!(first.fingerprint.len(), 64);
        let key = fs::metadata(scratch.path("admin-key.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_is_not_the_certificates_is_refused_with_the_name_of_the_file() {
        let (one, two) = (Scratch::new(), Scratch::new());
        for scratch in [&one, &two] {
            let directory = scratch.path("");
            Tls::load(&Certificate::Own { directory }, &["localhost".to_owned()]).unwrap();
        }
        let mixed = Certificate::Files {
            certificate: one.path("admin-cert.pem"),
            key: two.path("admin-key.pem"),
        };
        let error = Tls::load(&mixed, &[]).unwrap_err().to_string();
        assert!(error.contains("admin-cert.pem: "), "{error}");
        let missing = Certificate::Files {
            certificate: one.path("nowhere.pem"),
            key: two.path("admin-key.pem"),
        };
        let error = Tls::load(&missing, &[]).unwrap_err().to_string();
        assert!(error.contains("nowhere.pem: "), "{error}");
    }
}
