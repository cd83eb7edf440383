//! Connections with TLS.

use std::fs;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::super::tls::{Tls, TlsFailure, TlsOptions, read_certificates};
use super::*;

const NAME: &str = "san.example";

/// A server with a certificate that vouches for itself, and a client that trusts it.
pub(super) struct TlsPair {
    pub(super) server: Arc<ServerConfig>,
    pub(super) options: TlsOptions,
}

impl Drop for TlsPair {
    fn drop(&mut self) {
        fs::remove_file(self.options.ca.as_ref().unwrap()).unwrap();
    }
}

fn file(text: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tarn-nbd-tls-{}-{count}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, text).unwrap();
    path
}

impl TlsPair {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let options = TlsOptions {
            ca: Some(file(&made.cert.pem())),
            name: NAME.to_owned(),
        };
        Self {
            server: Arc::new(server),
            options,
        }
    }

    /// The client trusts another server.
    pub(super) fn of_strangers() -> Self {
        let (mut pair, other) = (Self::new(), Self::new());
        pair.server = Arc::clone(&other.server);
        pair
    }
}

fn with(pair: TlsPair) -> World {
    World::new(Wishes {
        tls: Some(pair),
        ..Wishes::default()
    })
}

#[test]
fn requests_go_by_tls_and_do_what_they_say() {
    let mut world = with(TlsPair::new());
    let write = world.write(0, 0, 7, 700 << 10, true);
    let other = world.write(0, 700 << 10, 8, 4096, false);
    assert!(world.is_good(0, write) && world.is_good(0, other));
    let read = world.read_now(0, 512, 700 << 10);
    let (sevens, eights) = read.split_at((700 << 10) - 512);
    assert!(sevens.iter().all(|byte| *byte == 7));
    assert!(eights.iter().all(|byte| *byte == 8));
    assert_eq!(world.flush_now(0), Ok(()));
    assert_eq!(world.server.log, "w!wrf");
}

#[test]
fn a_server_that_is_not_trusted_gets_no_requests() {
    let mut world = with(TlsPair::of_strangers());
    let write = world.write(0, 0, 7, 512, false);
    world.pass(RETRY);
    let answer = world.answer(0, write);
    assert!(
        matches!(answer, Some(Err(IoFailure::NotReady))),
        "{answer:?}"
    );
    assert_eq!((world.server.log.as_str(), world.server.disk[0]), ("", 0));
    assert!(world.server.connections > 1, "it is tried again");
}

#[test]
fn a_connection_whose_tls_ends_or_breaks_is_made_again() {
    type Break = fn(&mut Connection);
    let ways: [Break; 2] = [
        |connection| connection.line.extend(b"\0\0\0\0 in clear text"),
        Connection::close_tls,
    ];
    for way in ways {
        let mut world = with(TlsPair::new());
        world.pass(Duration::from_secs(2));
        let before = world.server.connections;
        way(world.cores[0].connections.values_mut().next().unwrap());
        world.run();
        let read = world.read(0, 0, 512);
        world.pass(Duration::from_secs(2));
        assert!(world.is_good(0, read));
        assert_eq!(world.server.connections, before + 1);
    }
}

#[test]
fn whom_a_client_trusts_is_a_file_of_certificates() {
    let pem =
        |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let good = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let good = good.cert.pem();
    for (text, is_good) in [
        (good.clone(), true),
        (good.repeat(2), true),
        (String::new(), false),
        ("no certificate".to_owned(), false),
        (format!("{good}{}", pem("*")), false),
        (format!("{good}{}", pem("AAAA")), false),
    ] {
        let options = |name: &str, path: &Path| TlsOptions {
            ca: Some(path.to_owned()),
            name: name.to_owned(),
        };
        let path = file(&text);
        let made = Tls::new(&options(NAME, &path));
        let unnamed = Tls::new(&options("no host", &path));
        fs::remove_file(&path).unwrap();
        let gone = Tls::new(&options(NAME, &path));
        match made {
            Ok(_) => assert!(is_good, "{text}"),
            Err(error) => {
                assert!(!is_good, "{error}");
                assert!(matches!(error, TlsFailure::Certificates { .. }), "{error}");
            }
        }
        assert!(matches!(unnamed, Err(TlsFailure::Name(_))));
        assert!(matches!(gone, Err(TlsFailure::Certificates { .. })));
    }
}

#[test]
fn a_file_of_certificates_has_a_bound() {
    for path in ["/dev/zero", "/"] {
        let error = read_certificates(Path::new(path)).unwrap_err();
        assert_eq!(error.to_string(), "it is no file of at most 4 MiB");
    }
}
