//! One POST to a web server, on the calling thread: only the status line of the answer is read, and [`HEAD_MAX`]
//! bytes of it at most.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::server::{Server, ServerError, system_trust};
use crate::sign::hmac_sha256;

/// For all of it, from the connection on.
const LIMIT: Duration = Duration::from_secs(10);

/// How much of an answer is read, in bytes.
const HEAD_MAX: usize = 1024;

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The server cannot be reached.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// It is no HTTP.
    #[error("{authority} does not answer as a web server does")]
    NoHttp {
        /// Host and port.
        authority: String,
    },
    /// It answered with another status than 2xx.
    #[error("{authority} answered {status}, not 2xx")]
    Status {
        /// Host and port.
        authority: String,
        /// Which.
        status: u16,
    },
}

/// Where messages go.
#[derive(Clone)]
pub struct Webhook {
    server: Server,
    path: String,
    tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path may have a secret in it.
        f.debug_struct("Webhook")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// A server at a host and a port, with a path that begins with `/`. The certificates that this machine trusts are
    /// read now.
    ///
    /// # Errors
    ///
    /// TLS cannot be set up.
    pub fn new(host: &str, port: u16, path: &str, is_tls: bool) -> Result<Self, PostError> {
        let server = Server::new(host, port);
        let tls = is_tls.then(system_trust).transpose();
        Ok(Self {
            tls: tls.map_err(|source| server.of_tls(source))?.map(Arc::new),
            server,
            path: path.to_owned(),
        })
    }

    /// The head of a request with this body, which was signed at `now`, in seconds since 1970.
    ///
    /// The signature is of the time, a dot and the body, so that nobody can send it again later.
    fn head(&self, secret: &[u8], now: u64, body: &[u8]) -> String {
        let code = hmac_sha256(secret, &[now.to_string().as_bytes(), b".", body]);
        let code: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tarn\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nX-Tarn-Timestamp: {now}\r\nX-Tarn-Signature: sha256={code}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.server.authority(),
            body.len(),
        )
    }

    /// Sends a body, and waits until the server has taken it.
    ///
    /// # Errors
    ///
    /// It has not; it may have it all the same, where the connection broke after it was sent.
    pub fn post(&self, secret: &[u8], now: u64, body: &[u8]) -> Result<(), PostError> {
        let message = [self.head(secret, now, body).as_bytes(), body].concat();
        let socket = self.server.connect(LIMIT)?;
        let status = match &self.tls {
            None => exchange(socket, &message),
            Some(tls) => exchange(self.server.begin_tls(tls, socket)?, &message),
        };
        let authority = self.server.authority();
        match status.map_err(|source| self.server.of_break(source))? {
            Some(200..=299) => Ok(()),
            Some(status) => Err(PostError::Status { authority, status }),
            None => Err(PostError::NoHttp { authority }),
        }
    }
}

/// Sends, and reads the status of the answer; `None` where it is none.
fn exchange(mut stream: impl Read + Write, message: &[u8]) -> io::Result<Option<u16>> {
    stream.write_all(message)?;
    stream.flush()?;
    let mut head = Vec::new();
    let mut buffer = [0; HEAD_MAX];
    while !head.contains(&b'\n') && head.len() < HEAD_MAX {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(&buffer[..count]);
    }
    Ok(status_of(&head))
}

/// Spec: RFC 9112, Status Line.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split(' ').nth(1)?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

    use super::*;
    use crate::server::trust;

    /// A server that takes one connection, reads a whole request, and answers so. Gives its port and what it read.
    fn serve(
        answer: &'static str,
        tls: Option<Arc<ServerConfig>>,
    ) -> (u16, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let run = move || {
            let (stream, _) = listener.accept().unwrap();
            match tls {
                None => talk(stream, answer),
                Some(tls) => {
                    let tls = ServerConnection::new(tls).unwrap();
                    talk(StreamOwned::new(tls, stream), answer)
                }
            }
        };
        (port, thread::spawn(run))
    }

    fn talk(mut stream: impl Read + Write, answer: &str) -> String {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while !text.ends_with(b"END") {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => text.extend_from_slice(&buffer[..count]),
            }
        }
        stream.write_all(answer.as_bytes()).ok();
        stream.flush().ok();
        String::from_utf8(text).unwrap()
    }

    fn post(answer: &'static str) -> (Result<(), PostError>, String) {
        let (port, server) = serve(answer, None);
        let webhook = Webhook::new("127.0.0.1", port, "/hook?a=b", false).unwrap();
        let sent = webhook.post(b"key", 1_700_000_000, b"the END");
        (sent, server.join().unwrap())
    }

    #[test]
    fn a_message_is_signed_with_its_time() {
        let (sent, text) = post("HTTP/1.1 204 No Content\r\n\r\n");
        sent.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "the END");
        assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
        let code = hmac_sha256(b"key", &[b"1700000000.the END"]);
        let code: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        let signature = format!("\r\nX-Tarn-Signature: sha256={code}\r\n");
        assert!(head.contains(&signature), "{head}");
        assert!(
            head.contains("\r\nX-Tarn-Timestamp: 1700000000\r\n"),
            "{head}"
        );
    }

    #[test]
    fn only_a_status_of_success_is_one() {
        for (answer, is_taken) in [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.0 299\n", true),
            ("HTTP/1.1 300 Choices\r\n", false),
            ("HTTP/1.1 199 No\r\n", false),
            ("HTTP/1.1 500 Oops\r\n", false),
            ("HTTP/1.1\r\n", false),
            ("SSH-2.0-x\r\n", false),
            ("", false),
        ] {
            assert_eq!(post(answer).0.is_ok(), is_taken, "{answer:?}");
        }
        assert!(matches!(
            post("HTTP/1.1 503 x\r\n").0,
            Err(PostError::Status { status: 503, .. })
        ));
    }

    #[test]
    fn an_answer_without_end_is_not_read_to_its_end() {
        let long: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
        assert!(matches!(post(long).0, Err(PostError::NoHttp { .. })));
    }

    #[test]
    fn a_certificate_has_to_be_trusted() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key =
            rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let server = Arc::new(server);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        for (roots, is_taken) in [(roots, true), (RootCertStore::empty(), false)] {
            let (port, thread) = serve("HTTP/1.1 200 OK\r\n\r\n", Some(Arc::clone(&server)));
            let webhook = Webhook {
                tls: Some(Arc::new(trust(roots).unwrap())),
                ..Webhook::new("localhost", port, "/", false).unwrap()
            };
            assert_eq!(webhook.post(b"key", 1, b"END").is_ok(), is_taken);
            thread.join().unwrap();
        }
    }
}
