//! Clients of TLS.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use ::nbd::{Client, Completion, Handshake as ClientHandshake, Progress};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::super::TlsConfig;
use super::*;

const CLIENT: &str = "client.example";
const SERVER: &str = "san.example";

/// A certificate that vouches for itself, and its key.
fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (made.cert.der().clone(), key)
}

fn trusting(certificate: &CertificateDer<'static>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    roots
}

/// What a server needs that wants a certificate of its clients, and a client with and one without it.
fn configs() -> (TlsConfig, [Arc<ClientConfig>; 2]) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (server, server_key) = certificate(SERVER);
    let (client, client_key) = certificate(CLIENT);
    let roots = Arc::new(trusting(&client));
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let of_server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server.clone()], server_key)
        .unwrap();
    let of_client = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusting(&server))
    };
    let known = of_client().with_client_auth_cert(vec![client], client_key);
    let unknown = of_client().with_no_client_auth();
    (
        Arc::new(of_server),
        [Arc::new(known.unwrap()), Arc::new(unknown)],
    )
}

/// The client's end of a line.
struct Sealed {
    line: usize,
    tls: ClientConnection,
    /// All that the server has sent, as it was on the line.
    raw: Vec<u8>,
}

impl Sealed {
    fn new(line: usize, config: &Arc<ClientConfig>) -> Self {
        let name = SERVER.try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        tls.set_buffer_limit(None);
        let raw = Vec::new();
        Self { line, tls, raw }
    }

    fn send(&mut self, bench: &mut Bench, plain: &[u8]) {
        self.tls.writer().write_all(plain).unwrap();
        let mut sealed = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut sealed).unwrap();
        }
        bench.send(self.line, &sealed);
    }

    fn heard(&mut self, bench: &mut Bench) -> Result<Vec<u8>, rustls::Error> {
        let heard = bench.heard(self.line);
        self.raw.extend(&heard);
        let mut sealed = &heard[..];
        let mut plain = Vec::new();
        while !sealed.is_empty() {
            self.tls.read_tls(&mut sealed).unwrap();
            let state = self.tls.process_new_packets()?;
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut plain[at..]).unwrap();
        }
        Ok(plain)
    }

    fn completions(&mut self, bench: &mut Bench, client: &mut Client) -> Vec<Completion> {
        let bytes = bytes_of(client);
        self.send(bench, &bytes);
        let plain = self.heard(bench).unwrap();
        client.handle_bytes(&plain).unwrap();
        std::iter::from_fn(|| client.poll_completion()).collect()
    }
}

fn bytes_of(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.transmit(usize::MAX, |piece| match piece {
        Piece::Header(header) => bytes.extend_from_slice(header),
        Piece::Data(data) => bytes.extend_from_slice(data),
    });
    bytes
}

/// A client that has asked for TLS and may begin it.
fn asked(bench: &mut Bench) -> (usize, ClientHandshake) {
    let line = bench.connect();
    let mut handshake = ClientHandshake::new("").unwrap().with_tls();
    for progress in [Progress::More, Progress::StartTls] {
        let heard = bench.heard(line);
        assert_eq!(handshake.handle_bytes(&heard), Ok(progress));
        if progress == Progress::More {
            let output = handshake.take_output();
            bench.send(line, &output);
        }
    }
    (line, handshake)
}

/// A client that has the export by way of TLS.
fn ready(bench: &mut Bench, config: &Arc<ClientConfig>) -> (Sealed, Client) {
    let (line, mut handshake) = asked(bench);
    let mut sealed = Sealed::new(line, config);
    for _ in 0..10 {
        let output = handshake.take_output();
        sealed.send(bench, &output);
        let heard = sealed.heard(bench).unwrap();
        if let Progress::Done(export) = handshake.handle_bytes(&heard).unwrap() {
            return (sealed, Client::new(export, 64));
        }
    }
    panic!("there is no export");
}

#[test]
fn everything_of_a_client_with_tls_is_encrypted_both_ways() {
    for piece_len in [usize::MAX, 700] {
        let (server, [config, _]) = configs();
        let mut bench = Bench::new();
        bench.set_policy(UNIT, Some(server));
        bench.piece_len = piece_len;
        let (mut sealed, mut client) = ready(&mut bench, &config);
        let detail = &bench.port().detail;
        assert_eq!(detail.client, format!("nbd:{CLIENT}"), "by its certificate");
        assert_eq!(detail.names[..], [CLIENT.to_owned()]);
        let bytes = b"not to be seen by others".repeat(512 * 75);
        client.submit(write(1, 512, bytes.clone())).unwrap();
        client.submit(read(2, 512, 512 * 75 * 24)).unwrap();
        let done = sealed.completions(&mut bench, &mut client);
        assert_eq!(done.len(), 2);
        assert_eq!(done[0].result, Ok(()));
        assert!(data_of(&done[1]) == bytes);
        assert_eq!(bench.disk.byte(1), b'n');
        assert!(sealed.raw.len() > bytes.len());
        let mut pieces = sealed.raw.windows(16);
        assert!(!pieces.any(|piece| piece == b"seen by othersno"));
        sealed.tls.send_close_notify();
        sealed.send(&mut bench, &[]);
        assert_eq!(bench.ended(), ["closed by the client"]);
        assert!(bench.is_shut(sealed.line));
        bench.end_all();
    }
}

#[test]
fn a_client_that_says_goodbye_by_tls_gets_its_answers_first() {
    let (server, [config, _]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let (mut sealed, mut client) = ready(&mut bench, &config);
    client.submit(read(1, 0, 1 << 20)).unwrap();
    client.disconnect();
    let done = sealed.completions(&mut bench, &mut client);
    assert!(data_of(&done[0]).iter().all(|byte| *byte == 0));
    assert_eq!(bench.ended(), ["the client has disconnected"]);
    bench.end_all();
}

/// So much of it is on the heap at once.
#[test]
fn a_long_message_is_encrypted_in_parts() {
    const DATA_BYTES: usize = 128 << 10;
    /// Four records with what TLS 1.3 adds to each.
    const PART: usize = 4 * ((16 << 10) + 22);
    let (server, [config, _]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let (mut sealed, mut client) = ready(&mut bench, &config);
    let line = sealed.line;
    bench.end(line).is_silent = true;
    client.submit(read(1, 0, 128 << 10)).unwrap();
    let bytes = bytes_of(&mut client);
    sealed.send(&mut bench, &bytes);
    let unsent = bench.port().unsent_bytes();
    for part in [PART, PART, unsent - DATA_BYTES + 22] {
        let sending = bench.under_way(line).sending.as_ref().unwrap();
        assert_eq!(sending.message.len(), part);
        assert_eq!(bench.port().unsent_bytes(), unsent);
        bench.end(line).is_silent = false;
        bench.carry_out(line);
        bench.end(line).is_silent = true;
        bench.settle();
    }
    assert!(bench.under_way(line).sending.is_none());
    assert_eq!(bench.port().unsent_bytes(), 0);
    bench.end_all();
}

/// Each of them takes a millisecond of the core.
#[test]
fn a_turn_goes_on_with_two_handshakes_of_tls() {
    let (server, [config, _]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let lines = [(); 5].map(|()| asked(&mut bench).0);
    for line in lines {
        let mut hello = Vec::new();
        Sealed::new(line, &config)
            .tls
            .write_tls(&mut hello)
            .unwrap();
        bench.end(line).outbound.extend(hello);
        bench.carry_in(line);
    }
    for answered in [0, 2, 4, 5] {
        let sent = lines.map(|line| bench.under_way(line).sending.is_some());
        assert_eq!(sent.iter().filter(|is_sent| **is_sent).count(), answered);
        assert_eq!(bench.nbd.has_more(), answered < 5);
        let front = bench.nbd.front.as_mut().unwrap();
        front.take_turn(&mut bench.engine);
    }
    bench.end_all();
}

#[test]
fn a_client_without_its_certificate_has_no_export() {
    let (server, [_, config]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let (line, mut handshake) = asked(&mut bench);
    let mut sealed = Sealed::new(line, &config);
    let output = handshake.take_output();
    sealed.send(&mut bench, &output);
    sealed.heard(&mut bench).unwrap();
    sealed.send(&mut bench, &[]);
    let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    assert_eq!(sealed.heard(&mut bench), Err(alert));
    let failed = &bench.engine.carrier.lines.failed;
    assert_eq!(failed, &["TLS: peer sent no certificates"]);
    assert!(bench.is_shut(line));
    assert_eq!(bench.engine.sessions().count(), 0);
    bench.end_all();
}

#[test]
fn a_handshake_that_does_not_go_on_with_tls_ends() {
    type Next = fn(&mut Bench, Sealed);
    let ways: [(Next, usize); 3] = [
        // No TLS at all.
        (|bench, sealed| bench.send(sealed.line, b"IHAVEOPT"), 1),
        (
            |bench, mut sealed| {
                sealed.send(bench, &[]);
                sealed.heard(bench).unwrap();
                sealed.tls.send_close_notify();
                sealed.send(bench, &[]);
            },
            0,
        ),
        (
            |bench, sealed| {
                bench.end(sealed.line).is_gone = true;
                bench.settle();
            },
            0,
        ),
    ];
    for (next, failures) in ways {
        let (server, [config, _]) = configs();
        let mut bench = Bench::new();
        bench.set_policy(UNIT, Some(server));
        let (line, _) = asked(&mut bench);
        next(&mut bench, Sealed::new(line, &config));
        assert!(bench.is_shut(line));
        assert_eq!(bench.engine.carrier.lines.failed.len(), failures);
        assert_eq!(bench.nbd.front.as_ref().unwrap().handshakes(), 0);
        bench.end_all();
    }
    // The rules have none any more when the client begins it.
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(configs().0));
    let line = bench.connect();
    bench.set_policy(UNIT, None);
    let mut handshake = ClientHandshake::new("").unwrap().with_tls();
    handshake.handle_bytes(&bench.heard(line)).unwrap();
    let output = handshake.take_output();
    bench.send(line, &output);
    assert!(bench.is_shut(line));
    bench.end_all();
}

#[test]
fn what_is_no_tls_ends_the_session() {
    let (server, [config, _]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let (sealed, mut client) = ready(&mut bench, &config);
    client.submit(write(1, 0, vec![7; 512])).unwrap();
    let bytes = bytes_of(&mut client);
    bench.send(sealed.line, &bytes);
    assert_eq!(bench.ended(), ["TLS failed"]);
    assert!(bench.is_shut(sealed.line));
    assert_eq!(bench.disk.byte(0), 0);
    bench.end_all();
}

/// Each command of a long write has a minute.
#[test]
fn data_that_does_not_come_by_tls_ends_the_session() {
    let (server, [config, _]) = configs();
    let mut bench = Bench::new();
    bench.set_policy(UNIT, Some(server));
    let (mut sealed, mut client) = ready(&mut bench, &config);
    client.submit(write(1, 0, vec![7; 5 << 20])).unwrap();
    let bytes = bytes_of(&mut client);
    sealed.send(&mut bench, &bytes[..1 << 20]);
    bench.pass_to(BEGIN + Duration::from_secs(59));
    sealed.send(&mut bench, &bytes[1 << 20..3 << 20]);
    for seconds in [60, 59 + 59] {
        bench.pass_to(BEGIN + Duration::from_secs(seconds));
        assert!(!bench.is_shut(sealed.line), "after {seconds} s");
    }
    bench.pass_to(BEGIN + Duration::from_secs(59 + 60));
    assert_eq!(bench.ended(), ["the data of a write does not come"]);
    bench.end_all();
}
