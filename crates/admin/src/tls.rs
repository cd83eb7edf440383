//! The certificate of the TCP listeners: one that is named, or one that is made here.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use durable::replace;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

use crate::expiry;
use crate::random::hex;

/// Bytes of a key file that are read: many times what a key takes.
const KEY_FILE_BYTES_MAX: u64 = 256 * 1024;

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

impl Certificate {
    /// SHA-256 of the certificate that is in the file that is named now, hexadecimal; `None` of our own, and where
    /// there is none.
    pub fn fingerprint(&self) -> Option<String> {
        match self {
            Self::Own { .. } => None,
            Self::Files { certificate, .. } => {
                let chain = read_chain(certificate).ok()?;
                chain.first().map(|leaf| hex(&Sha256::digest(leaf)))
            }
        }
    }

    /// Reads the files that are named, as the start does. Of our own certificate nothing is asked:
    /// the start makes it.
    ///
    /// # Errors
    ///
    /// What would keep the administration from starting with it.
    pub fn check(&self) -> Result<(), Vec<TlsError>> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::Files { certificate, key } => check_files(certificate, key, None),
        }
    }
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
    /// Something other than a file, such as a directory or a pipe.
    #[error("{}: the key is not a regular file; name one", path.display())]
    KeyNoFile {
        /// What is named as the key.
        path: PathBuf,
    },
    /// Others have rights to the key.
    #[error(
        "{path}: the key has mode {mode:04o}, which gives others access; run chmod 600 {path}",
        path = path.display()
    )]
    KeyExposed {
        /// The key.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key belongs to somebody else, who could change it.
    #[error(
        "{path}: the key belongs to user {owner}; it must belong to root or to user {uid}, run \
         chown {uid} {path}",
        path = path.display()
    )]
    KeyForeign {
        /// The key.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who runs this process.
        uid: u32,
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
    /// A file does not hold what vouches for clients.
    #[error("{}: nothing in it can vouch for clients: {reason}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
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
    /// SHA-256 of the certificate, to compare it.
    pub(crate) fingerprint: String,
    /// When the first certificate of the chain is valid no longer; `None` where none says.
    pub(crate) not_after: Option<SystemTime>,
}

impl Tls {
    /// Reads the certificate, and makes it first if it is our own and missing. `names` are what it
    /// is made for.
    pub(crate) fn load(certificate: &Certificate, names: &[String]) -> Result<Self, TlsError> {
        match certificate {
            Certificate::Own { directory } => {
                let (certificate, key) = own(directory, names)?;
                Self::read(&certificate, &key, None)
            }
            Certificate::Files { certificate, key } => Self::read(certificate, key, None),
        }
    }

    /// With `ca`, clients need a certificate that one of these vouches for.
    fn read(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<Self, TlsError> {
        let key = read_key(key)?;
        let chain = read_chain(certificate)?;
        let fingerprint = chain.first().map(|leaf| hex(&Sha256::digest(leaf)));
        let not_after = first_end(&chain);
        let pair = |source| TlsError::Pair {
            path: certificate.to_owned(),
            source,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match ca {
            None => builder.with_no_client_auth(),
            Some(ca) => builder.with_client_cert_verifier(verifier(ca, provider)?),
        };
        let config = builder.with_single_cert(chain, key).map_err(pair)?;
        Ok(Self {
            config: Arc::new(config),
            fingerprint: fingerprint.unwrap_or_default(),
            not_after,
        })
    }
}

fn first_end(chain: &[CertificateDer<'static>]) -> Option<SystemTime> {
    chain.iter().filter_map(|one| expiry::not_after(one)).min()
}

/// When the first certificate of a chain, in a file of PEM, is valid no longer; `None` where none says.
pub fn not_after(certificate: &Path) -> Option<SystemTime> {
    first_end(&read_chain(certificate).ok()?)
}

fn not_pem(path: &Path, source: pem::Error) -> TlsError {
    let path = path.to_owned();
    if let pem::Error::Io(source) = source {
        return TlsError::File { path, source };
    }
    TlsError::Pem { path, source }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let file = open_private(path, rustix::process::geteuid().as_raw())?;
    PrivateKeyDer::from_pem_reader(file).map_err(|source| not_pem(path, source))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|source| not_pem(path, source))
}

/// Whether files in PEM are a certificate, its key, and with `ca` what vouches for clients.
///
/// # Errors
///
/// All that is wrong with each of them; or that they do not belong together.
pub fn check_files(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<(), Vec<TlsError>> {
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let of_ca = ca.and_then(|ca| verifier(ca, provider()).err());
    let of_key = read_key(key).err();
    let found: Vec<_> = [read_chain(certificate).err(), of_key, of_ca]
        .into_iter()
        .flatten()
        .collect();
    if !found.is_empty() {
        return Err(found);
    }
    let read = Tls::read(certificate, key, ca);
    read.map(drop).map_err(|error| vec![error])
}

/// What connections of a service need that is not the administration, from files in PEM: certificate and key, and with
/// `ca` what vouches for the certificates that clients need then. No session is resumed, so each client shows its own.
///
/// # Errors
///
/// A file cannot be read or used.
pub fn service_tls(
    certificate: &Path,
    key: &Path,
    ca: Option<&Path>,
) -> Result<ServiceTls, TlsError> {
    let read = Tls::read(certificate, key, ca)?;
    let mut config = Arc::unwrap_or_clone(read.config);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let mut digest = Sha256::new();
    for path in [Some(certificate), Some(key), ca].into_iter().flatten() {
        let source = |source| TlsError::File {
            path: path.to_owned(),
            source,
        };
        digest.update(Sha256::digest(fs::read(path).map_err(source)?));
    }
    Ok(ServiceTls {
        config: Arc::new(config),
        digest: hex(&digest.finalize()),
        not_after: read.not_after,
    })
}

/// See [`service_tls`].
#[derive(Clone, Debug)]
pub struct ServiceTls {
    /// What connections need.
    pub config: Arc<ServerConfig>,
    /// Another one when the files have changed.
    pub digest: String,
    /// When the first certificate of the chain is valid no longer; `None` where none says.
    pub not_after: Option<SystemTime>,
}

/// Checks certificates of clients against those in a file.
fn verifier(
    ca: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let pem = |source| not_pem(ca, source);
    let unusable = |reason: String| TlsError::Ca {
        path: ca.to_owned(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(pem)? {
        let certificate = certificate.map_err(pem)?;
        if !expiry::is_ca(&certificate) {
            let reason = "it has a certificate that is none of a CA, which signs those of clients; name that one";
            return Err(unusable(reason.to_owned()));
        }
        let added = roots.add(certificate);
        added.map_err(|error| unusable(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| unusable(error.to_string()))?;
    Ok(verifier)
}

/// Opens a key that `uid` and root alone may read, as a user's secrets are.
fn open_private(path: &Path, uid: u32) -> Result<impl io::Read, TlsError> {
    let failed = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    // Not to block on the pipe that somebody may have put there; a file does not mind.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(nonblock);
    let file = options.open(path).map_err(failed)?;
    // Asked of the open file, so that nobody can swap it in between.
    let metadata = file.metadata().map_err(failed)?;
    let path = path.to_owned();
    if !metadata.is_file() {
        return Err(TlsError::KeyNoFile { path });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TlsError::KeyExposed { path, mode });
    }
    let owner = metadata.uid();
    if owner != uid && owner != 0 {
        return Err(TlsError::KeyForeign { path, owner, uid });
    }
    Ok(file.take(KEY_FILE_BYTES_MAX))
}

/// The files of our own certificate, made if one is missing, and made again if it was made for
/// other names: who reaches us by a name that it lacks could not trust it.
fn own(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let certificate = directory.join("admin-cert.pem");
    let key = directory.join("admin-key.pem");
    if certificate.exists() && key.exists() {
        let lacks = lacks(&certificate, names);
        let Some(name) = lacks else {
            return Ok((certificate, key));
        };
        tracing::warn!(
            certificate = %certificate.display(),
            name,
            "the certificate is made again, for it lacks a name of this server; clients that \
             trust the old one need the new one"
        );
        // Until both are new, there is none: a new key with the old certificate would be no pair.
        fs::remove_file(&certificate).map_err(|source| TlsError::File {
            path: certificate.clone(),
            source,
        })?;
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

/// The first of these names that a certificate was not made for. What cannot be read lacks nothing:
/// the error comes when it is used.
fn lacks<'a>(certificate: &Path, names: &'a [String]) -> Option<&'a str> {
    let certificate = CertificateDer::from_pem_file(certificate).ok()?;
    let parsed = ParsedCertificate::try_from(&certificate).ok()?;
    let lacks = |name: &str| {
        // What is no name for a client is none to look for.
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| verify_server_name(&parsed, &name).is_err())
    };
    names.iter().map(String::as_str).find(|name| lacks(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use durable::scratch::Scratch;

    #[test]
    fn our_own_certificate_is_made_once_and_its_key_is_private() {
        let scratch = Scratch::new();
        let own = Certificate::Own {
            directory: scratch.path().to_owned(),
        };
        let names = ["localhost".to_owned(), "192.0.2.1".to_owned()];
        let first = Tls::load(&own, &names).unwrap();
        let again = Tls::load(&own, &names).unwrap();
        assert_eq!(first.fingerprint, again.fingerprint);
        assert_eq!(first.fingerprint.len(), 64);
        let key = fs::metadata(scratch.path().join("admin-key.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn our_own_certificate_is_made_again_for_a_name_that_it_lacks() {
        let scratch = Scratch::new();
        let own = Certificate::Own {
            directory: scratch.path().to_owned(),
        };
        let load = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            Tls::load(&own, &names).unwrap().fingerprint
        };
        let first = load(&["localhost", "192.0.2.1", "2001:db8::1"]);
        assert_eq!(load(&["2001:db8::1", "localhost"]), first);
        for name in ["vm", "a_b.example", "192.0.2.2", "2001:db8::2"] {
            let again = load(&["localhost", name]);
            assert_ne!(again, first, "{name}");
            assert_eq!(load(&["localhost", name]), again, "{name}");
        }
    }

    #[test]
    fn a_key_that_is_not_the_certificates_is_refused_with_the_name_of_the_file() {
        let (one, two) = (Scratch::new(), Scratch::new());
        for scratch in [&one, &two] {
            let directory = scratch.path().to_owned();
            Tls::load(&Certificate::Own { directory }, &["localhost".to_owned()]).unwrap();
        }
        let mixed = Certificate::Files {
            certificate: one.path().join("admin-cert.pem"),
            key: two.path().join("admin-key.pem"),
        };
        let error = Tls::load(&mixed, &[]).unwrap_err().to_string();
        assert!(error.contains("admin-cert.pem: "), "{error}");
        assert!(mixed.check().is_err());
        let missing = Certificate::Files {
            certificate: one.path().join("nowhere.pem"),
            key: two.path().join("admin-key.pem"),
        };
        let error = Tls::load(&missing, &[]).unwrap_err().to_string();
        assert!(error.contains("nowhere.pem: "), "{error}");
    }

    #[test]
    fn a_key_that_others_can_reach_is_refused_with_the_command_that_helps() {
        let scratch = Scratch::new();
        let directory = scratch.path().to_owned();
        Tls::load(&Certificate::Own { directory }, &["localhost".to_owned()]).unwrap();
        let key = scratch.path().join("admin-key.pem");
        let files = Certificate::Files {
            certificate: scratch.path().join("admin-cert.pem"),
            key: key.clone(),
        };
        for (mode, is_good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(files.check().is_ok(), is_good, "{mode:04o}");
            assert_eq!(Tls::load(&files, &[]).is_ok(), is_good, "{mode:04o}");
        }
        let error = files.check().unwrap_err()[0].to_string();
        assert!(
            error.contains("mode 0604") && error.contains("run chmod 600 "),
            "{error}"
        );
    }

    #[test]
    fn a_key_of_a_third_user_and_what_is_no_file_are_refused() {
        let scratch = Scratch::new();
        let key = scratch.path().join("key.pem");
        fs::write(&key, "").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let own = rustix::process::geteuid().as_raw();
        if own == 0 {
            std::os::unix::fs::chown(&key, Some(4711), None).unwrap();
        }
        let refused = open_private(&key, own + 1).err();
        assert!(matches!(refused, Some(TlsError::KeyForeign { .. })));
        let refused = open_private(scratch.path(), own).err();
        assert!(matches!(refused, Some(TlsError::KeyNoFile { .. })));
    }

    /// A certificate that is valid until the first day of this year, and its key.
    fn made(year: i32, is_ca: bool) -> (String, String) {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        if is_ca {
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let pair = KeyPair::generate().unwrap();
        let made = parameters.self_signed(&pair).unwrap();
        (made.pem(), pair.serialize_pem())
    }

    #[test]
    fn each_file_of_a_service_is_checked_and_another_content_is_another_one() {
        let scratch = Scratch::new();
        let write = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let ((leaf, key), (ca, _)) = (made(2040, false), made(2030, true));
        let chain = write("chain.pem", &format!("{leaf}{ca}"));
        let [leaf, key, ca] = [("leaf.pem", leaf), ("key.pem", key), ("ca.pem", ca)]
            .map(|(name, text)| write(name, &text));
        let junk = "-----BEGIN CERTIFICATE-----\nwhat\n-----END CERTIFICATE-----\n";
        let (empty, junk) = (write("empty.pem", ""), write("junk.pem", junk));
        let absent = scratch.path().join("absent.pem");
        for (certificate, key, ca, mistakes) in [
            (&chain, &key, None, 0),
            (&chain, &key, Some(&*ca), 0),
            (&leaf, &key, Some(&*ca), 0),
            (&absent, &absent, Some(&*absent), 3),
            (&chain, &absent, None, 1),
            (&chain, &empty, None, 1),
            (&junk, &key, None, 1),
            (&empty, &key, None, 1),
            (&ca, &key, None, 1),
            (&chain, &key, Some(&*leaf), 1),
            (&chain, &key, Some(&*empty), 1),
        ] {
            let found = check_files(certificate, key, ca).map_or_else(|all| all.len(), |()| 0);
            assert_eq!(found, mistakes, "{certificate:?} {key:?} {ca:?}");
            assert_eq!(service_tls(certificate, key, ca).is_ok(), mistakes == 0);
        }
        let of = |ca: Option<&Path>| service_tls(&chain, &key, ca).unwrap();
        let (plain, with_ca) = (of(None), of(Some(&ca)));
        assert_eq!((plain.digest.len(), &of(None).digest), (64, &plain.digest));
        assert_ne!(plain.digest, with_ca.digest);
        assert_eq!(plain.config.send_tls13_tickets, 0);
        assert!(!plain.config.session_storage.can_cache());
        let end = |seconds| Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        assert_eq!(
            (plain.not_after, not_after(&chain)),
            (end(1_893_456_000), end(1_893_456_000))
        );
        assert_eq!(
            (not_after(&leaf), not_after(&absent)),
            (end(2_208_988_800), None)
        );
        let files = Certificate::Files {
            certificate: chain.clone(),
            key: key.clone(),
        };
        let fingerprint = Tls::load(&files, &[]).unwrap().fingerprint;
        assert_eq!(
            (files.fingerprint(), files.check().is_ok()),
            (Some(fingerprint), true)
        );
        let own = Certificate::Own {
            directory: absent.clone(),
        };
        assert_eq!((own.fingerprint(), own.check().is_ok()), (None, true));
        fs::write(&key, format!("{}\n", fs::read_to_string(&key).unwrap())).unwrap();
        assert_ne!(of(None).digest, plain.digest);
    }
}
