//! Every limit of the administration, and what happens at it.

use std::time::Duration;

/// Connections at once, on the sockets and as many over TCP. At the limit the address with the most
/// loses its oldest to an address with fewer. Else the one that has been idle longest is closed for
/// the new one, else the oldest that has not authenticated; when there is neither, the new one is closed.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Connections over TCP that have not authenticated yet. At the limit one of them is closed as above.
pub(crate) const STRANGERS_MAX: usize = CONNECTIONS_MAX / 2;

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

/// Questions to the daemon under way. Beyond it: 503.
pub(crate) const READS_MAX: usize = 64;

/// The part of the questions under way that one token, or one user at the socket, may have, and the part that is for
/// administrators alone: one of so many.
pub(crate) const SHARE_OF_ONE: usize = 2;
pub(crate) const SHARE_OF_ADMINS: usize = 4;

/// Changes under way or waiting for their turn. Beyond it: 503.
pub(crate) const CHANGES_MAX: usize = 64;

/// Bytes of documents that are worked on at once, at most: the configuration in force counts for each
/// list of what is in it, a document that is sent for each plan. Working on a document takes up to a
/// hundred times its size for a moment. One that is larger is worked on alone.
pub(crate) const WORK_BYTES_MAX: usize = 1024 * 1024;

/// Documents smaller than this wait for nobody, in bytes.
pub(crate) const WORK_BYTES_SMALL: usize = 64 * 1024;

/// Those that wait for their turn, with the same parts as questions. Beyond it: 503.
pub(crate) const WORK_WAITING_MAX: usize = 16;

/// Threads that call the daemon, besides the one that asks whether it is ready.
pub(crate) const CALL_THREADS_MAX: usize = 8;

/// How old an answer to `/readyz` may be. More frequent requests get the same answer.
pub(crate) const READY_AGE_MAX: Duration = Duration::from_secs(1);

/// Streams of live data. At the limit one of the token that has most ends; where only higher roles have any: 503.
pub(crate) const STREAMS_MAX: usize = 32;

/// Of these, streams of one token, or of one user at the socket. At the limit its oldest ends.
pub(crate) const STREAMS_OF_TOKEN_MAX: usize = STREAMS_MAX / 2;

/// Files on their way to those who read them, each as large as a trace may be. Beyond it: 503.
pub(crate) const FILES_MAX: usize = 4;

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

/// Console logins that live. At the limit one of the token that has most ends; where only higher roles have any: 503.
pub(crate) const LOGINS_MAX: usize = 64;

/// Of these, logins of one token. At the limit its oldest ends.
pub(crate) const LOGINS_OF_TOKEN_MAX: usize = LOGINS_MAX / 2;

/// How long a console login lives.
pub(crate) const LOGIN_TIME_MAX: Duration = Duration::from_secs(12 * 3600);

/// Addresses whose failed attempts are remembered. At the limit the one that was seen longest ago
/// is dropped; the bucket of all addresses together still applies.
pub(crate) const ADDRESSES_MAX: usize = 1024;

/// How long a stop waits for answers under way, and then for calls of the daemon.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(BODY_BYTES_MAX <= DOCUMENT_BYTES_MAX);
const _: () = assert!(EVENTS_DEFAULT <= EVENTS_MAX);
const _: () = assert!(STREAMS_MAX < CONNECTIONS_MAX - STRANGERS_MAX);
const _: () = assert!(CALL_THREADS_MAX < READS_MAX);
