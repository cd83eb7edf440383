//! Where a daemon is, and how the client authenticates.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use crate::ClientError;

/// The port of `https://HOST` without one.
const PORT_DEFAULT: u16 = 443;

/// Where a daemon is.
#[derive(Debug)]
pub enum Endpoint {
    /// On this machine, at the socket of this path.
    Socket(PathBuf),
    /// At an address, over TLS.
    Remote(Box<Remote>),
}

/// A daemon at an address.
#[derive(Debug)]
pub struct Remote {
    /// `HOST:PORT`, as the request names it.
    authority: String,
    /// What to connect to.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What its certificate must be for.
    pub(crate) name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    token: Token,
}

/// A token. Its memory is wiped when it is dropped, and its `Debug` does not show it.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A token, as `tarn token add` printed it.
    pub fn new(text: Zeroizing<String>) -> Self {
        Self(text)
    }

    pub(crate) fn header(&self) -> Result<HeaderValue, ClientError> {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut value = HeaderValue::from_str(&text).map_err(|_| ClientError::TokenForm)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Endpoint {
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Socket(_) => "localhost",
            Self::Remote(remote) => &remote.authority,
        }
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        match self {
            Self::Socket(_) => None,
            Self::Remote(remote) => Some(&remote.token),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Remote(remote) => write!(f, "https://{}", remote.authority),
        }
    }
}

impl Remote {
    /// The daemon at `https://HOST` or `https://HOST:PORT`. `authorities` are certificates in the
    /// form of PEM that its own must come from; without them, those that the system trusts.
    ///
    /// # Errors
    ///
    /// The text is no such URL, or there is no certificate to trust.
    pub fn new(url: &str, token: Token, authorities: Option<&[u8]>) -> Result<Self, ClientError> {
        let wrong = || ClientError::Url {
            url: url.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !is_bare || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self {
            authority: authority.to_string(),
            port: authority.port_u16().unwrap_or(PORT_DEFAULT),
            name: ServerName::try_from(host.clone()).map_err(|_| wrong())?,
            host,
            tls: Arc::new(trust(authorities)?),
            token,
        })
    }
}

/// TLS that trusts these, or what the system trusts.
fn trust(authorities: Option<&[u8]>) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = authorities {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| ClientError::AuthorityForm)?;
            roots
                .add(certificate)
                .map_err(|_| ClientError::AuthorityForm)?;
        }
    } else {
        // One that cannot be read is one that is not trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(ClientError::NoAuthority);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| ClientError::Tls { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str) -> Result<Remote, ClientError> {
        let made = rcgen::generate_simple_self_signed(["san.example".to_owned()]).unwrap();
        let pem = made.cert.pem();
        let token = Token::new(Zeroizing::new("hush-hush".to_owned()));
        Remote::new(url, token, Some(pem.as_bytes()))
    }

    #[test]
    fn a_url_is_https_host_and_perhaps_a_port() {
        for (url, host, port) in [
            ("https://san.example:8443", "san.example", 8443),
            ("https://san.example/", "san.example", 443),
            ("https://192.0.2.1:3261", "192.0.2.1", 3261),
            ("https://[2001:db8::1]:3261", "2001:db8::1", 3261),
        ] {
            let remote = remote(url).unwrap();
            assert_eq!((remote.host.as_str(), remote.port), (host, port), "{url}");
        }
        for url in [
            "http://san.example",
            "san.example:3261",
            "https://",
            "https://san.example/api/v1",
            "https://me@san.example",
            "https://san.example/?a",
            "",
        ] {
            let error = remote(url).unwrap_err();
            assert!(matches!(error, ClientError::Url { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn a_bundle_without_certificates_is_none_to_trust() {
        let token = || Token::new(Zeroizing::new("secret".to_owned()));
        let error = Remote::new("https://san.example", token(), Some(b"nothing")).unwrap_err();
        assert!(matches!(error, ClientError::NoAuthority), "{error}");
        let torn = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        let error = Remote::new("https://san.example", token(), Some(torn)).unwrap_err();
        assert!(matches!(error, ClientError::AuthorityForm), "{error}");
    }

    #[test]
    fn a_token_is_not_shown() {
        let remote = remote("https://san.example").unwrap();
        assert!(!format!("{remote:?}").contains("hush-hush"));
        assert!(!format!("{:?}", remote.token.header()).contains("hush-hush"));
    }
}
