//! Every bound this crate puts on a peer, in one place.
//!
//! Relations between limits are checked at compile time. What happens at a limit is written at
//! the limit.

use std::time::Duration;

/// Longest data segment a 24-bit length field can announce, in bytes.
pub const DATA_SEGMENT_MAX_BYTES: u32 = (1 << 24) - 1;

/// Longest chain of additional header segments: the length field counts 4-byte words in 8 bits.
pub const AHS_MAX_BYTES: usize = 255 * 4;

/// Longest data segment of a login PDU, either way: the default of MaxRecvDataSegmentLength, as
/// no declaration is in force yet. A longer one fails the login.
pub const LOGIN_SEGMENT_MAX_BYTES: usize = 8192;

/// All text of one negotiation sequence, over as many PDUs as the C bit ties together. More fails
/// the login, or rejects the text request.
pub const TEXT_MAX_BYTES: usize = 64 * 1024;

/// Keys in one negotiation sequence. More fails the login, or rejects the text request.
pub const TEXT_KEYS_MAX: usize = 512;

/// Longest name of a key, in bytes.
pub const KEY_NAME_MAX_BYTES: usize = 63;

/// Longest value of a key that carries no binary value, in bytes.
pub const VALUE_MAX_BYTES: usize = 255;

/// Longest binary value (CHAP challenge and response), decoded.
pub const BINARY_VALUE_MAX_BYTES: usize = 1024;

/// Longest binary value as text: hexadecimal takes two digits a byte and has a two-letter prefix.
pub const BINARY_TEXT_MAX_BYTES: usize = 2 + 2 * BINARY_VALUE_MAX_BYTES;

/// Longest iSCSI name, in bytes.
pub const NAME_MAX_BYTES: usize = 223;

/// Login requests on one connection. One more fails the login.
pub const LOGIN_REQUESTS_MAX: u32 = 64;

/// Time from the first byte to the full-feature phase. At the deadline the connection is closed.
pub const LOGIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// SCSI commands marked immediate that a session takes at a time, besides its window. One more is
/// rejected.
pub const IMMEDIATE_COMMANDS_MAX: usize = 8;

/// Task management requests of one session that may be under way. One more is rejected.
pub const IMMEDIATE_MANAGEMENT_MAX: usize = 32;

/// How long data that was announced or asked for may stay away. Then the connection is dropped.
pub const DATA_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a write may wait for room for its data. Then it ends with TASK SET FULL, and what has come for it goes: the
/// room that it waits for may be held by what came for others like it.
pub const DATA_ROOM_TIMEOUT: Duration = Duration::from_secs(10);

/// So much more time has the rest of the data of a task for each byte that has come, but never more than
/// [`DATA_TIMEOUT`]. So data that comes in drips ends some time, and with it what it holds: 8 MiB after 2.3 hours.
/// For bursts of 60 KB and more it is no stricter than that timeout, with however many others they share a slow line.
pub const DATA_TIME_PER_BYTE: Duration = Duration::from_millis(1);

/// Tasks of a session that have ended although unsolicited data announced for them has not come.
/// With one more, the oldest is dropped, and data that still comes for it is rejected.
pub const DRAINING_TASKS_MAX: usize = 256;

/// What a session may hold of a peer's requests that are not whole or came before their turn, in
/// bytes: bodies of pings and texts, immediate data of commands, texts under way. What is beyond is
/// rejected, or ends the command with TASK SET FULL.
pub const SESSION_HOLD_MAX_BYTES: usize = 64 * 1024;

/// The same for a discovery session. Together with its output it stays within
/// [`SESSION_HOLD_MAX_BYTES`].
pub const DISCOVERY_HOLD_MAX_BYTES: usize = 12 * 1024;

/// Longest data segment a discovery session takes. It needs one line of text.
pub const DISCOVERY_SEGMENT_MAX_BYTES: u32 = 8192;

/// How much of a discovery session's requests is received at a time, in bytes. Each of them may be
/// answered with twice its length.
pub const DISCOVERY_RECEIVE_BYTES: usize = 2048;

/// Longest data segment of a text answer, in bytes. What is longer goes out in several, each asked
/// for by the initiator.
pub const TEXT_SEGMENT_MAX_BYTES: usize = 36 * 1024;

/// Requests of a discovery session that may be under way.
pub const DISCOVERY_QUEUE_DEPTH: u32 = 16;

/// How long a CmdSN may be missing that later requests wait for. Then the session ends.
pub const GAP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// R2Ts open at once in one task, whatever was negotiated.
pub const R2T_OUTSTANDING_MAX: usize = 8;

/// How many of the last target transfer tags are known as ours when late data comes for them.
/// Data for older ones is a protocol error.
pub const TRANSFER_TAGS_REMEMBERED: u32 = 1 << 16;

/// Initiator: text that a target may answer with, all continuations together. More drops the
/// connection.
pub const TEXT_ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Initiator: tasks and other requests under way in one session. Further ones are handed back.
pub const INITIATOR_TASKS_MAX: usize = 16 * 1024;

/// Initiator: pings of the target whose answer is not sent yet. One more drops the connection.
pub const PINGS_PENDING_MAX: usize = 64;

const _: () = assert!(DATA_SEGMENT_MAX_BYTES == 0x00ff_ffff);
const _: () = assert!(LOGIN_SEGMENT_MAX_BYTES <= TEXT_MAX_BYTES);
const _: () = assert!(NAME_MAX_BYTES <= VALUE_MAX_BYTES);
// The longest legal sequence must fit the number of requests a login may take.
const _: () = assert!(TEXT_MAX_BYTES / LOGIN_SEGMENT_MAX_BYTES < 64);
// A discovery session: what it holds, a text answer, the echo of a ping, and refusals.
const _: () = assert!(
    DISCOVERY_HOLD_MAX_BYTES
        + TEXT_SEGMENT_MAX_BYTES
        + DISCOVERY_SEGMENT_MAX_BYTES as usize
        + 3 * DISCOVERY_RECEIVE_BYTES
        <= SESSION_HOLD_MAX_BYTES
);
const _: () = assert!(DISCOVERY_SEGMENT_MAX_BYTES as usize <= DISCOVERY_HOLD_MAX_BYTES);
// A slot number and a generation make up a task tag, which must never be the reserved one.
const _: () = assert!(INITIATOR_TASKS_MAX < 0xffff);
