//! The client against a scripted server: whatever it sends, the call ends, and says what it was.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::access::Token;
use api::problem::ProblemKind;
use client::{Client, ClientError, Endpoint, Limits, Message, path};

/// What the server does, piece by piece, after it has read a request.
enum Act {
    Send(&'static [u8]),
    /// Keeps the connection and says nothing until the client has gone.
    Hold,
}
use Act::{Hold, Send};

/// Longer than any answer takes on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(30);
/// For what does not come.
const SHORT: Duration = Duration::from_millis(300);
const LIMITS: Limits = Limits {
    connect: PATIENCE,
    question: PATIENCE,
    change: PATIENCE,
    silence: PATIENCE,
    answer_bytes_max: 4096,
};

/// A server for one connection. Gives what it was asked.
struct Server {
    socket: PathBuf,
    thread: Option<JoinHandle<String>>,
}

impl Server {
    fn new(acts: Vec<Act>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("client-{}-{count}", std::process::id());
        let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            for act in acts {
                match act {
                    // A client that gave up does not read on.
                    Send(bytes) => drop(stream.write_all(bytes)),
                    Hold => drop(stream.read(&mut [0])),
                }
            }
            request
        });
        Self {
            socket,
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        self.client_within(LIMITS)
    }

    fn client_within(&self, limits: Limits) -> Client {
        Client::new(Endpoint::Socket(self.socket.clone()), limits).unwrap()
    }

    /// What it was asked; the client is gone by now.
    fn request(mut self) -> String {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _left = fs::remove_file(&self.socket);
    }
}

/// A head and as much body as it announces.
fn read_request(stream: &mut UnixStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        text.push(char::from(byte[0]));
    }
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    text + &String::from_utf8(body).unwrap()
}

/// Asks a server that acts so.
fn ask(acts: Vec<Act>) -> Result<client::Answer<Vec<u32>>, ClientError> {
    Server::new(acts).client().get(&path(&["luns"]))
}

/// An answer with this status line and body.
fn answer(status: &str, body: &str) -> Act {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    Send(text.leak().as_bytes())
}

/// A chunk of a chunked body.
fn chunk(body: &str) -> Act {
    let text = format!("{:x}\r\n{body}\r\n", body.len());
    Send(text.leak().as_bytes())
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nETag: \"42\"\r\nContent-Length: 6\r\n\r\n[1, 2]";
const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn an_answer_comes_with_its_revision_and_its_json() {
    let answer = ask(vec![Send(OK)]).unwrap();
    assert_eq!(answer.value, [1, 2]);
    assert_eq!(answer.revision, Some(42));
    assert_eq!(answer.json.to_string(), "[1,2]");
    assert!(!answer.is_new);
}

#[test]
fn an_answer_is_the_same_in_pieces_in_chunks_and_to_the_end_of_the_stream() {
    let pieces = OK.chunks(1).map(Send).collect();
    assert_eq!(ask(pieces).unwrap().value, [1, 2]);
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n4\r\n, 2]\r\n0\r\n\r\n";
    assert_eq!(ask(vec![Send(chunked)]).unwrap().value, [1, 2]);
    let endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1, 2]";
    assert_eq!(ask(vec![Send(endless)]).unwrap().value, [1, 2]);
}

#[test]
fn a_server_that_falls_silent_is_left_at_the_deadline() {
    for acts in [
        vec![Hold],
        vec![Send(b"HTTP/1.1 200 OK\r\nContent-Le"), Hold],
        vec![
            Send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1,"),
            Hold,
        ],
    ] {
        let limits = Limits {
            question: SHORT,
            ..LIMITS
        };
        let server = Server::new(acts);
        let client = server.client_within(limits);
        let error = client.get::<Vec<u32>>(&path(&["luns"])).unwrap_err();
        assert!(matches!(error, ClientError::Late { .. }), "{error}");
    }
}

#[test]
fn a_server_that_closes_early_or_speaks_something_else_is_told() {
    for act in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1,",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\nzz\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\xff\xfe\x01\r\n\r\n",
    ] {
        let error = ask(vec![Send(act)]).unwrap_err();
        assert!(
            matches!(error, ClientError::Broken { .. }),
            "{act:?}: {error}"
        );
    }
}

#[test]
fn an_answer_has_a_size_it_may_not_exceed() {
    let body = "9".repeat(4094);
    for (body, is_too_large) in [(format!("[{body}]"), false), (format!("[{body}9]"), true)] {
        let text = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
        let error = ask(vec![Send(text.leak().as_bytes())]).unwrap_err();
        let got = matches!(error, ClientError::TooLarge { .. });
        assert_eq!(got, is_too_large, "{error}");
    }
    let head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20));
    let error = ask(vec![Send(head.leak().as_bytes())]).unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
}

#[test]
fn what_is_not_of_this_api_is_told_as_such() {
    for (text, status) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>", 200),
        ("HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\n<p>", 502),
        (
            "HTTP/1.1 301 Go\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
            301,
        ),
        ("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}", 500),
    ] {
        match ask(vec![Send(text.as_bytes())]) {
            Err(ClientError::Foreign { status: got, .. }) => assert_eq!(got, status),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_problem_is_told_with_its_place() {
    let body = r#"{"type":"invalid-config","title":"t","status":422,"detail":"size 0, give more",
        "place":"tarn.toml:3: lun[0].store"}"#;
    let Err(ClientError::Problem(problem)) = ask(vec![answer("422 No", body)]) else {
        panic!("a problem was sent");
    };
    assert_eq!(problem.kind, ProblemKind::InvalidConfig);
    assert_eq!(
        problem.to_string(),
        "tarn.toml:3: lun[0].store: size 0, give more"
    );
}

#[test]
fn a_change_names_its_revision_and_its_body() {
    let token = r#"{"name":"a","role":"viewer","made_ms":1,"token":"x","new":2}"#;
    let server = Server::new(vec![answer("201 Created", token)]);
    let body = serde_json::json!({ "name": "a" });
    let answer = server
        .client()
        .put::<Token>(&path(&["tokens", "a/b"]), &body, Some(7));
    let answer = answer.unwrap();
    assert!(answer.is_new);
    assert_eq!(answer.json["new"], 2, "a field this program does not know");
    let request = server.request();
    assert!(
        request.starts_with("PUT /api/v1/tokens/a%2Fb HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("if-match: \"7\"\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"name\":\"a\"}"), "{request}");
}

#[test]
fn nothing_to_tell_is_a_success_too() {
    let server = Server::new(vec![Send(b"HTTP/1.1 204 No Content\r\n\r\n")]);
    let gone = server
        .client()
        .delete::<()>(&path(&["sessions", "1"]), None);
    assert!(gone.unwrap().json.is_null());
    assert!(server.request().starts_with("DELETE /api/v1/sessions/1 "));
}

#[test]
fn a_stream_gives_its_messages_and_ends() {
    let server = Server::new(vec![
        Send(STREAM),
        chunk("event: hum\ndata: "),
        chunk("from a newer daemon\n\nevent: eve"),
        chunk(
            "nt\ndata: {\"number\":3,\"at_ms\":4,\"severity\":\"info\",\
             \"kind\":\"k\",\"message\":\"m\",\"more\":1}\n\n",
        ),
        Send(b"0\r\n\r\n"),
    ]);
    let client = server.client();
    let messages: Vec<_> = client.live(&path(&["live"])).unwrap().collect();
    let [Ok(Message::Event(event, json))] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!((event.number, json["more"].as_u64()), (3, Some(1)));
}

#[test]
fn a_stream_that_falls_silent_or_breaks_off_is_an_error_once() {
    for (silence, acts) in [
        (SHORT, vec![Send(STREAM), Hold]),
        (PATIENCE, vec![Send(STREAM), Send(b"3\r\nev")]),
        (
            PATIENCE,
            vec![Send(STREAM), chunk("event: stats\ndata: oops\n\n")],
        ),
    ] {
        let server = Server::new(acts);
        let client = server.client_within(Limits { silence, ..LIMITS });
        let messages: Vec<_> = client.live(&path(&["live"])).unwrap().collect();
        assert!(matches!(messages[..], [Err(_)]), "{messages:?}");
    }
}

#[test]
fn a_socket_that_does_not_answer_says_why_and_what_to_do() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ask = |socket: PathBuf| {
        let client = Client::new(Endpoint::Socket(socket), Limits::default()).unwrap();
        client.get::<()>(&path(&["status"])).unwrap_err()
    };
    let error = ask(directory.join("no-such-socket"));
    assert!(matches!(error, ClientError::NoSocket { .. }), "{error}");

    let left = directory.join(format!("client-{}-left", std::process::id()));
    drop(UnixListener::bind(&left).unwrap());
    let error = ask(left.clone());
    fs::remove_file(left).unwrap();
    assert!(
        matches!(error, ClientError::NobodyListens { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("start it with"), "{error}");
}
