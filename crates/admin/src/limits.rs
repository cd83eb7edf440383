//! Every limit of the administration, and what happens at it.

use std::time::Duration;

/// Connections at once, on the sockets and as many over TCP. At the limit one that is idle is closed for the new one:
/// the oldest that has shown no token, else the one that is idle longest. When all are at work, the new one is closed.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Of these over TCP, connections of one address, or of one network of 64 bits with IPv6. At the limit one of its own
/// is closed as above.
pub(crate) const CONNECTIONS_OF_ADDRESS_MAX: usize = 160;

/// Requests of tokens below `admin` under way, streams among them; as many of tokens with `admin`, and on the sockets.
/// Beyond it: 503.
pub(crate) const REQUESTS_MAX: usize = 32;

/// Of these, requests of one token. Beyond it: 503.
pub(crate) const REQUESTS_OF_TOKEN_MAX: usize = 12;

/// Bytes of a request line and its header fields together. Beyond it: 431, and the end of the
/// connection.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Header fields of a request. Beyond it as above.
pub(crate) const HEADERS_MAX: usize = 64;

/// Bytes of a body that holds a document. Beyond it: 413.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of any other body. Beyond it: 413.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a body that is too long which are still read, so that the client gets to the
/// answer. Beyond it the connection is closed in the middle.
pub(crate) const DISCARDED_BYTES_MAX: usize = 4 * DOCUMENT_BYTES_MAX;

/// From the first byte of a connection, or the end of the answer before, to the end of a head.
/// After it the connection is closed.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(20);

/// From the end of the head to the end of the body. After it: 400.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// For the handshake of TLS. After it the connection is closed.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a peer may take no byte of an answer. After it the connection is closed.
pub(crate) const WRITE_STALL_MAX: Duration = Duration::from_secs(20);

/// For a question to the daemon. After it: 503, while the daemon may still be at it.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// For a change by the daemon. After it: 503, while the daemon may still be at it.
pub(crate) const CHANGE_TIME_MAX: Duration = Duration::from_secs(120);

/// For something that the daemon does at once and that waits for commands of initiators, as an eject.
/// After it: 503, while the daemon may still be at it.
pub(crate) const ACT_TIME_MAX: Duration = Duration::from_secs(30);

/// How long the caller of a change waits until it has taken effect everywhere: longer than commands
/// that can be aborted take.
pub(crate) const SETTLE_TIME_MAX: Duration = Duration::from_secs(15);

/// Between two times that it is asked for.
pub(crate) const SETTLE_PAUSE_MIN: Duration = Duration::from_millis(10);
pub(crate) const SETTLE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// From this size on a document, or the configuration in force, is large: working on it takes up to a hundred times
/// its size for a moment. One is worked on at a time, for tokens below `admin` together, for those with `admin`, and
/// for the sockets; others wait for their turn, in bytes.
pub(crate) const WORK_BYTES_SMALL: usize = 64 * 1024;

/// Answers with all counters that are made or sent at once, with the same parts as requests. Others wait.
pub(crate) const COUNTERS_MAX: usize = 2;

/// For the edits of one request. After it: 413, and nothing is done.
pub(crate) const EDITS_TIME_MAX: Duration = Duration::from_secs(5);

/// Calls of the daemon by the administration itself. Others wait.
pub(crate) const OWN_CALLS_MAX: usize = 8;

/// Threads that call the daemon: one for each request, and each that gives memory back.
pub(crate) const THREADS_MAX: usize = 3 * REQUESTS_MAX + OWN_CALLS_MAX + 4 * (COUNTERS_MAX + 1);

/// How old an answer to `/readyz` may be. More frequent requests get the same answer.
pub(crate) const READY_AGE_MAX: Duration = Duration::from_secs(1);

/// Streams of live data of one token, and on the sockets together. At the limit the oldest of these ends.
pub(crate) const STREAMS_MAX: usize = 6;

/// Files on their way to those who read them, each as large as a trace may be, with the same parts as requests. Beyond
/// it: 503.
pub(crate) const FILES_MAX: usize = 2;

/// Events that one request reads.
pub(crate) const EVENTS_MAX: usize = 1000;

/// Events that one request reads if it does not say how many.
pub(crate) const EVENTS_DEFAULT: usize = 100;

/// How often an edit is tried again because the configuration changed under it. Beyond it: 409.
pub(crate) const EDIT_TRIES_MAX: usize = 8;

/// Tokens. Beyond it: 409.
pub(crate) const TOKENS_MAX: usize = 256;

/// Characters of a token's name.
pub(crate) const TOKEN_NAME_MAX: usize = 64;

/// Console logins of one token that live. At the limit its oldest ends.
pub(crate) const LOGINS_MAX: usize = 16;

/// How long a console login lives.
pub(crate) const LOGIN_TIME_MAX: Duration = Duration::from_secs(12 * 3600);

/// Addresses whose failed attempts are remembered. At the limit the one that was seen longest ago
/// is dropped; the bucket of all addresses together still applies.
pub(crate) const ADDRESSES_MAX: usize = 1024;

/// How long a stop waits for answers under way, and then for calls of the daemon.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(BODY_BYTES_MAX <= DOCUMENT_BYTES_MAX);
const _: () = assert!(EVENTS_DEFAULT <= EVENTS_MAX);
const _: () = assert!(STREAMS_MAX < REQUESTS_OF_TOKEN_MAX);
// Two tokens leave room for a third.
const _: () = assert!(2 * REQUESTS_OF_TOKEN_MAX < REQUESTS_MAX);
// With all requests of tokens under way from one address, it gets a connection.
const _: () = assert!(2 * REQUESTS_MAX < CONNECTIONS_OF_ADDRESS_MAX);
const _: () = assert!(CONNECTIONS_OF_ADDRESS_MAX < CONNECTIONS_MAX);
const _: () = assert!(WORK_BYTES_SMALL <= BODY_BYTES_MAX);
