//! HyperSCSI, SCSI over Ethernet frames or UDP, sans-I/O: both roles as state machines.
//!
//! `front::hyperscsi` serves it. docs/internals/hyperscsi.md specifies the wire; the framing and the opcodes are
//! those of 2002, the bodies are new. The crate knows no socket, thread, clock or random source: time is a duration
//! since any moment, random bytes come from a seed ([`Entropy`]). The peer is not trusted.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `limits` | the numbers |
//! | `frame`, `pdu`, `command`, `control`, `device`, `plain` | what is on the wire |
//! | `keys` | random bytes, keys, hashes, seals, what has come before |
//! | `discovery` | finding servers by the name of a group |
//! | `exchange` | the password-authenticated key exchange |
//! | `login` | from a question to a session, both sides |
//! | `assembly`, `outgoing` | a PDU in fragments: as it comes, as it goes |
//! | `path` | round trips, congestion, timers |
//! | `link` | what both ends of a session do alike |
//! | `client`, `target` | the ends |
//!
//! # How it is driven
//!
//! Everything has the same four calls: `handle_frame` for what came, `deadline` with `handle_deadline` for time,
//! `poll_event` for what happened, `poll_frame` for what leaves. `poll_frame` writes into a buffer of the caller, one
//! frame at a time, until there is none: no queue of frames is kept, and each transmission is sealed again. A frame
//! begins behind the Ethernet header, or is the payload of a UDP datagram. Whose it is, the caller sees from the
//! address of its sender and the tag ([`FragmentHeader`]): tag 0 is for [`Search`], [`Login`], [`Responder`] and
//! [`Gate`]; every other belongs to the session that has it in its [`Terms`].
//!
//! * **For `engine::Port`.** [`TargetEvent::Command`] comes with all its data, once; [`TaskId`] is its name, `slot`
//!   its place; [`TargetSession::respond`] is `respond`, `abandon` is the same with [`Outcome::Aborted`].
//!   [`TargetSession::set_window`] is what short memory turns.
//! * **For `store::Backstore`.** [`ClientSession::submit`] takes a command under a token, which can be the store's tag;
//!   each token comes back once, answered or lost. What was lost and not sent can be submitted to another session; what
//!   was sent may have had any part of its effect.
//! * **Buffers.** Data that leave are any `AsRef<[u8]>` and are borrowed until the peer has them; data that come are in
//!   the PDU that they came in ([`Data`]), into which fragments are copied once; those of a frame that is lent
//!   ([`TargetSession::handle_lent_frame`]) stay in it where it has all of them in the clear. What a session holds is
//!   bounded by [`Settings::begun_bytes`] for what comes, by the slots for what leaves.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod assembly;
mod bytes;
mod checksum;
mod client;
mod command;
mod control;
mod data;
mod device;
mod discovery;
mod exchange;
mod frame;
pub mod fuzz;
mod keys;
pub mod limits;
mod link;
mod login;
mod outgoing;
mod path;
mod pdu;
mod plain;
mod planted;
mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use client::{ClientEvent, ClientSession, SubmitError, WAITING_MAX};
pub use command::{Attribute, Command, Function, Outcome, Reply, Request, TaskName};
pub use data::Data;
pub use device::{Device, Opening, Page};
pub use discovery::{
    Address, Answer, Cookies, Found, Group, QUESTION_BYTES, Question, Responder, SERVERS_MAX,
    Search,
};
pub use exchange::{
    ClientExchange, OpaqueClient, OpaquePending, OpaqueTarget, Secret, TargetExchange,
};
pub use frame::FragmentHeader;
pub use keys::Entropy;
pub use link::{Counters, EndReason, Retransmit, Settings, Terms};
pub use login::{
    Accepted, Gate, GateSettings, Login, LoginError, LoginProgress, Proved, REQUEST_BYTES,
    Unproved, Wish,
};
pub use path::Profile;
pub use pdu::{HEADER_BYTES, Header, Level, Opcode};
pub use plain::{read_unknown_session, unknown_session};
pub use target::{TargetEvent, TargetSession, TaskId};
